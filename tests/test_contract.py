"""The contract: no transition is lost, doubled or joined across an episode's end, on any kind of autoreset."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import counting
from counting import Numbers, read
from ede.contexts import Contexts
from ede.envs import Lanes, make_env
from ede.envs.contract import Observations, Step
from ede.errors import EdeError

STEPS = 60


def check_transition(
    lanes: Lanes, before: Observations, action_K: Numbers, step: Step, nth_K: Numbers
) -> None:
    """Everything the contract says of one step, read from the counters; ``nth_K`` steps were made before it."""
    old, new, last = read(before), read(step.obs), read(step.final_obs)
    time_K = old.time + 1
    terminated_K, truncated_K = counting.ends(old.context, time_K)
    np.testing.assert_array_equal(old.serial, nth_K)
    np.testing.assert_array_equal(step.context, old.context)
    np.testing.assert_array_equal(step.reward, counting.reward(time_K, action_K))
    np.testing.assert_array_equal(step.terminated, terminated_K)
    np.testing.assert_array_equal(step.truncated, truncated_K)
    np.testing.assert_array_equal(new.serial, nth_K + 1)
    np.testing.assert_array_equal(new.time, np.where(step.done, 0, time_K))
    np.testing.assert_array_equal(new.context[~step.done], old.context[~step.done])
    np.testing.assert_array_equal(lanes.context, new.context)
    np.testing.assert_array_equal(lanes.obs, step.obs)
    ended_E = step.ended
    if lanes.spec.shows_last_frame:
        np.testing.assert_array_equal(last.serial, nth_K[ended_E] + 1)
        np.testing.assert_array_equal(last.time, time_K[ended_E])
        np.testing.assert_array_equal(last.context, old.context[ended_E])
    else:
        np.testing.assert_array_equal(step.final_obs, before[ended_E])


def play(lanes: Lanes, steps: int = STEPS) -> tuple[int, int]:
    """Check every transition of a random player; how many episodes ended by themselves and by the limit."""
    generator = np.random.default_rng(lanes.lanes)
    obs = lanes.reset()
    assert obs.shape == (lanes.lanes, *lanes.spec.obs_shape)
    assert obs.dtype == lanes.spec.obs_dtype
    first_K = read(obs).serial
    terminated = truncated = 0
    for number in range(steps):
        action_K = generator.integers(0, counting.ACTIONS, lanes.lanes)
        step = lanes.step(action_K)
        check_transition(lanes, obs, action_K, step, first_K + number)
        terminated += int(step.terminated.sum())
        truncated += int(step.truncated.sum())
        obs = step.obs
    return terminated, truncated


@pytest.mark.parametrize("image", [True, False], ids=["image", "vector"])
@pytest.mark.parametrize("lanes", [1, 2, 7])
@pytest.mark.parametrize("style", counting.STYLES)
def test_no_transition_is_lost_doubled_or_joined(style: str, lanes: int, image: bool) -> None:
    terminated, truncated = play(counting.make(style, lanes=lanes, image=image))
    assert terminated > 3
    assert truncated > 3


@pytest.mark.parametrize("style", counting.STYLES)
def test_a_second_reset_begins_anew(style: str) -> None:
    lanes = counting.make(style, lanes=4)
    play(lanes, 9)
    play(lanes, 9)


@pytest.mark.parametrize("style", counting.STYLES)
def test_what_was_handed_out_is_never_written_again(style: str) -> None:
    lanes = counting.make(style, lanes=4)
    handed_out = [lanes.reset(), lanes.obs, lanes.context]
    for number in range(20):
        step = lanes.step(np.full(4, number % 10))
        handed_out += [step.obs, step.reward, step.terminated, step.truncated, step.context, step.final_obs]
        handed_out += [lanes.obs, lanes.context, *step.extra.values()]
        if number == 0:
            copies = [array.copy() for array in handed_out]
        copies += [array.copy() for array in handed_out[len(copies) :]]
    for array, copy in zip(handed_out, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


class Leaky(Lanes):
    """A next-step pool handed on as it is, with the step that it ignores: what the contract forbids."""

    def __init__(self) -> None:
        self.spec, self.lanes = counting.make("direct").spec, 2
        self._pool = counting.CountingPool(2, Contexts.range(0, 1000), 0, image=True)

    def reset(self) -> Observations:
        self._obs, self._info = self._pool.reset()
        return self._obs

    def step(self, actions: Numbers) -> Step:
        self._obs, reward_K, terminated_K, truncated_K, self._info = self._pool.step(actions)
        ended_E = np.flatnonzero(terminated_K | truncated_K)
        return Step(self._obs, reward_K, terminated_K, truncated_K, self.context, self._obs[ended_E])

    @property
    def obs(self) -> Observations:
        return self._obs

    @property
    def context(self) -> Numbers:
        return self._info["level_seed"].astype(np.int64)


def test_the_checks_catch_a_leaked_reset_step() -> None:
    with pytest.raises(AssertionError):
        play(Leaky())


def test_counting_lanes_continue_from_their_saved_state() -> None:
    lanes = counting.make(lanes=3)
    play(lanes, 11)
    twin = counting.make(lanes=3, seed=5)
    twin.restore(lanes.save())
    for _ in range(20):
        here, there = lanes.step(np.arange(3)), twin.step(np.arange(3))
        np.testing.assert_array_equal(here.obs, there.obs)


WORLDS = {
    "bigfish-simple": {},
    "gym/CartPole-v1": {},
    "gym/FrozenLake-v1": {},
    "gym/MiniGrid-MultiRoom-N2-S4-v0": {"observation": "full"},
}


def rollout(lanes: Lanes, steps: int, scribble: bool = False) -> list[np.ndarray]:
    """Every array of a random player's steps, copied; ``scribble`` then overwrites what was handed out."""
    generator = np.random.default_rng(7)
    arrays = []
    for _ in range(steps):
        step = lanes.step(generator.integers(0, lanes.spec.num_actions, lanes.lanes))
        handed_out = [step.obs, step.final_obs, step.reward, step.terminated, step.truncated, step.context]
        arrays += [array.copy() for array in handed_out]
        assert step.obs.shape == (lanes.lanes, *lanes.spec.obs_shape)
        assert {str(step.obs.dtype), str(step.final_obs.dtype)} == {lanes.spec.obs_dtype}
        assert len(step.final_obs) == len(step.ended)
        assert not (step.terminated & step.truncated).any()
        assert all(context in lanes.contexts for context in step.context)
        if scribble:
            for array in [*handed_out, lanes.obs, lanes.context]:
                array[...] = 1
    return arrays


def assert_same(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("task", WORLDS)
def test_the_same_seed_plays_the_same_and_what_is_handed_out_is_the_callers(task: str) -> None:
    runs = []
    for scribble in (False, True):
        with make_env(task, lanes=3, contexts=Contexts.range(5, 25), seed=3, **WORLDS[task]) as lanes:
            lanes.reset()
            runs.append(rollout(lanes, 50, scribble))
    assert_same(*runs)


@pytest.mark.parametrize("task", WORLDS)
def test_a_saved_state_continues_to_the_bit(task: str) -> None:
    with (
        make_env(task, lanes=3, contexts=Contexts.range(5, 25), seed=3, **WORLDS[task]) as lanes,
        make_env(task, lanes=3, contexts=Contexts.range(5, 25), seed=4, **WORLDS[task]) as twin,
    ):
        lanes.reset()
        rollout(lanes, 43)
        state = lanes.save()
        wanted = rollout(lanes, 40)
        twin.restore(state)
        assert twin.save() == state
        assert_same(wanted, rollout(twin, 40))


CONTINUE = """
import hashlib, pathlib, sys
import numpy as np
from ede.envs import make_env

lanes = make_env("bigfish-simple", lanes=8, seed=1)
lanes.restore(pathlib.Path(sys.argv[1]).read_bytes())
digest = hashlib.sha256()
for number in range(200):
    step = lanes.step((np.arange(8) + number * number) % 5)
    for array in (step.obs, step.final_obs, step.reward, step.terminated, step.truncated, step.context):
        digest.update(array.tobytes())
print(digest.hexdigest())
"""


def test_a_saved_state_continues_in_other_processes(tmp_path: Path) -> None:
    lanes = make_env("bigfish-simple", lanes=8)
    lanes.reset()
    rollout(lanes, 200)
    state = tmp_path / "state"
    state.write_bytes(lanes.save())
    words = [sys.executable, "-c", CONTINUE, str(state)]
    there = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout.strip()
    digest = hashlib.sha256()
    for number in range(200):
        step = lanes.step((np.arange(8) + number * number) % 5)
        for array in (step.obs, step.final_obs, step.reward, step.terminated, step.truncated, step.context):
            digest.update(array.tobytes())
    assert there == digest.hexdigest()


@pytest.mark.parametrize("task", WORLDS)
def test_chosen_contexts_are_played_and_stay(task: str) -> None:
    wanted_K = np.array([9, 900_000_001, 9])
    with make_env(task, lanes=3, seed=3, **WORLDS[task]) as lanes:
        obs = lanes.choose(wanted_K)
        np.testing.assert_array_equal(obs[0], obs[2])
        ended = 0
        for _ in range(60):
            step = lanes.step(np.full(3, 1))
            np.testing.assert_array_equal(step.context, wanted_K)
            np.testing.assert_array_equal(lanes.context, wanted_K)
            np.testing.assert_array_equal(step.obs[step.ended], obs[step.ended])
            ended += len(step.ended)
        assert ended > 0


@pytest.mark.parametrize("task", WORLDS)
def test_a_state_that_does_not_fit_is_refused(task: str) -> None:
    with make_env(task, lanes=2, **WORLDS[task]) as lanes, make_env(task, lanes=3, **WORLDS[task]) as more:
        lanes.reset()
        with pytest.raises(EdeError, match="lanes 2"):
            more.restore(lanes.save())
        with pytest.raises(EdeError, match="no saved state"):
            more.restore(b"nothing")


@pytest.mark.parametrize("task", WORLDS)
def test_looking_before_the_first_reset_is_told_in_a_sentence(task: str) -> None:
    with make_env(task, **WORLDS[task]) as lanes, pytest.raises(EdeError, match="reset"):
        lanes.obs


@pytest.mark.parametrize("task", WORLDS)
def test_actions_that_a_world_has_not_are_told_in_a_sentence(task: str) -> None:
    with make_env(task, lanes=2, **WORLDS[task]) as lanes:
        lanes.reset()
        for wrong in (np.zeros(3, int), np.zeros(2)):
            with pytest.raises(EdeError, match="needs one whole number a lane as actions, 2 of them"):
                lanes.step(wrong)
        for wrong in (np.array([0, lanes.spec.num_actions]), np.array([-1, 0])):
            with pytest.raises(EdeError, match=f"lie in 0..{lanes.spec.num_actions - 1}"):
                lanes.step(wrong)


@pytest.mark.parametrize("task", WORLDS)
def test_settings_of_another_kind_are_told_in_a_sentence_and_numpys_numbers_are_numbers(task: str) -> None:
    with make_env(task, lanes=np.int32(2), seed=np.int64(3), **WORLDS[task]) as lanes:
        first = lanes.reset()
        with pytest.raises(EdeError):
            lanes.choose(np.array([1.5, 2.5]))
    with make_env(task, lanes=2, seed=3, **WORLDS[task]) as lanes:
        np.testing.assert_array_equal(lanes.reset(), first)
    for wrong in ({"lanes": 2.0}, {"lanes": "2"}, {"seed": 1.5}):
        with pytest.raises(EdeError, match="must be whole numbers"):
            make_env(task, **{**WORLDS[task], **wrong})
    with pytest.raises(EdeError, match="must be a set such as"):
        make_env(task, **{**WORLDS[task], "contexts": range(5)})


def test_contexts_are_whole_numbers() -> None:
    assert Contexts.range(np.int64(0), np.int64(200)) == Contexts.range(0, 200)
    with pytest.raises(EdeError, match="whole numbers"):
        Contexts(0, 200.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", WORLDS)
def test_more_lanes_than_fit_are_refused_before_one_is_made(task: str) -> None:
    with pytest.raises(EdeError, match=f"lanes of {task} need about .* GiB are free; ask for at most"):
        make_env(task, lanes=10**11, **WORLDS[task])


def test_an_option_that_a_world_has_not_is_told_in_a_sentence() -> None:
    with pytest.raises(EdeError, match="no option 'mode'; it has starts"):
        make_env("bigfish-simple", mode="easy")
