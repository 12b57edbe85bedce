"""The learners: pencil arithmetic on a corridor, and three executions of each that agree to the bit.

The compiled kernels are compared with their plain twin, and with their own source run without compilation
(which is also how their lines count as covered).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from types import ModuleType

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ede.tabular import kernels, plain
from ede.tabular.study import METHODS, RATE, Cell, Size, run_trials, streams
from ede.tabular.worlds import WORLDS, World

LEARNERS = ("egreedy", "ucb", "sarsa", "pg")
CORRIDOR = World("corridor", "", 3, 1, (0, 0), (0, 0), (2, 0))
RIGHT = 1


@pytest.fixture(scope="module")
def interpreted() -> ModuleType:
    """The kernels' source as plain Python."""
    spec = importlib.util.spec_from_file_location("interpreted_kernels", kernels.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, True
    try:
        spec.loader.exec_module(module)
    finally:
        numba.config.DISABLE_JIT = before
    return module


def train(
    module: ModuleType, learner: str, world: World, value: float, episodes: int, seeds: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, counts and returns after every episode."""
    at = np.arange(1, episodes + 1)
    values = np.zeros((episodes, world.states, 4))
    counts, returns = np.zeros(values.shape, np.int64), np.zeros((episodes, 2))
    seed = np.array(seeds, np.uint64).reshape(2, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        getattr(module, f"{learner}_trial")(world.rules, value, RATE, at, seed, returns, values, counts)
    return values, counts, returns


def twin(
    learner: str, world: World, value: float, episodes: int, seeds: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    done = plain.trial(plain.LEARNERS[learner], world, value, RATE, list(range(1, episodes + 1)), seeds)
    values, counts = zip(*done.history, strict=True)
    return np.array(values), np.array(counts), np.array(done.returns)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=6)
@given(index=st.integers(0, 9), seeds=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)))
def test_compiled_and_plain_go_the_same_way(
    world: str, name: str, index: int, seeds: tuple[int, int]
) -> None:
    method = METHODS[name]
    value = method.sign * method.values[index]
    for ours, theirs in zip(
        train(kernels, method.kernel, WORLDS[world], value, 25, seeds),
        twin(method.kernel, WORLDS[world], value, 25, seeds),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("world", WORLDS)
def test_the_source_without_compilation_goes_the_same_way(
    interpreted: ModuleType, learner: str, world: str
) -> None:
    for ours, theirs in zip(
        train(interpreted, learner, WORLDS[world], 0.3, 6, (7, 8)),
        train(kernels, learner, WORLDS[world], 0.3, 6, (7, 8)),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_the_whole_default_trial_agrees_with_the_plain_twin() -> None:
    cell, size = Cell("grid", "ucb", 45.0), Size(1)
    seeds = streams(cell, 1, 0)[0, :, 0]
    outcome = run_trials([cell], size)[cell]
    expected = plain.trial(
        plain.ucb, WORLDS["grid"], 45.0, RATE, size.checkpoints.tolist(), (int(seeds[0]), int(seeds[1]))
    )
    assert [tuple(pair) for pair in outcome.return_TC2[0].tolist()] == expected.returns


def test_the_stream_is_splitmix() -> None:
    first = 0xE220A8397B1DCDAF  # of seed 0, in the generator's published test vectors
    assert plain.SplitMix(0).uniform() == (first >> 11) * 2.0**-53
    stream = plain.SplitMix(5)
    drawn = [stream.uniform() for _ in range(20_000)]
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.01)
    assert np.var(drawn) == pytest.approx(1 / 12, abs=0.005)


def test_ties_are_broken_evenly_and_only_ties_draw() -> None:
    stream = plain.SplitMix(1)
    taken = [plain.best_action([1.0, 3.0, 3.0, 3.0], stream) for _ in range(6000)]
    assert np.bincount(taken, minlength=4) / 6000 == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.03)
    before = stream.state
    assert plain.best_action([0.0, 2.0, 1.0, 1.0], stream) == 1
    assert stream.state == before


def straight(learner: str, value: float, episodes: int) -> np.ndarray:
    """Values after each of the first episodes, of a seed under which all of them go straight to the goal."""
    for seed in range(100_000):
        values, counts, _ = train(kernels, learner, CORRIDOR, value, episodes, (seed, 0))
        if counts[-1].sum() == 2 * episodes:
            return values
    raise AssertionError("no such seed")


def test_q_learning_by_hand() -> None:
    first, second = straight("egreedy", 1.0, 2)
    assert first[0, RIGHT] == pytest.approx(0.05 * -0.04)
    assert first[1, RIGHT] == pytest.approx(0.05 * 2)
    rate = 0.05 / math.sqrt(2)  # of the second episode
    assert second[0, RIGHT] == pytest.approx(-0.002 + rate * (-0.04 + 0.9 * 0.1 + 0.002))
    assert second[1, RIGHT] == pytest.approx(0.1 + rate * (2 - 0.1))


def test_sarsa_by_hand() -> None:
    first, second = straight("sarsa", 1.0, 2)
    # The goal's error reaches the first square with its trace γλ = 0.81.
    assert first[1, RIGHT] == pytest.approx(0.05 * 2)
    assert first[0, RIGHT] == pytest.approx(0.05 * (-0.04 + 0.81 * 2))
    rate, at_0, at_1 = 0.05 / math.sqrt(2), 0.079, 0.1
    forward = -0.04 + 0.9 * at_1 - at_0
    assert second[0, RIGHT] == pytest.approx(at_0 + rate * (forward + 0.81 * (2 - at_1)))
    assert second[1, RIGHT] == pytest.approx(at_1 + rate * (2 - at_1))


def test_policy_gradient_by_hand() -> None:
    beta = 0.5
    first, second = straight("pg", beta, 2)
    # At equal logits the entropy is flat, so β does nothing yet. G = −0.04 + 0.9·2 = 1.76, then 2.
    assert first[0] == pytest.approx(0.05 * 1.76 * np.array([-0.25, 0.75, -0.25, -0.25]))
    assert first[1] == pytest.approx(0.05 * 2 * np.array([-0.25, 0.75, -0.25, -0.25]))

    def objective(logits: np.ndarray, gain: float) -> float:
        chances = np.exp(logits) / np.exp(logits).sum()
        return float(gain * np.log(chances[RIGHT]) - beta * (chances * np.log(chances)).sum())

    for state, gain in ((0, 1.76), (1, 2.0)):
        step = 1e-6 * np.eye(4)
        slope = [
            (objective(first[state] + step[a], gain) - objective(first[state] - step[a], gain)) / 2e-6
            for a in range(4)
        ]
        assert second[state] - first[state] == pytest.approx(0.05 / math.sqrt(2) * np.array(slope), abs=1e-10)


def test_ucb_tries_every_action_of_a_square_before_any_twice() -> None:
    _, counts, _ = train(kernels, "ucb", WORLDS["grid"], 45.0, 3, (3, 4))
    for row in counts[0]:
        assert row.min() >= 1 or row.max() <= 1


def test_ucb_finds_the_test_optimum_in_every_trial() -> None:
    cell = Cell("grid", "ucb", 45.0)
    last = run_trials([cell], Size(20, 400))[cell].return_TC2[:, -1, 1]
    assert last == pytest.approx(np.full(20, WORLDS["grid"].test_optimum))


def test_where_machine_code_cannot_be_kept_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def njit(*, cache: bool = False, **options: object) -> Callable[[kernels.Function], kernels.Function]:
        if cache:
            raise RuntimeError("no locator available")
        return lambda function: function

    monkeypatch.setattr(kernels, "njit", njit)
    assert kernels.compiled(abs) is abs
    assert kernels.inlined(abs) is abs
