"""Explorers: their frequencies, their memory, their limits; coefficients: the paper's schedules."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from ede.explore import (
    EpsilonGreedy,
    Explorer,
    EzGreedy,
    HeadPerEpisode,
    NoisyGreedy,
    State,
    Thompson,
    Ucb,
    equalized,
    greedy,
)
from ede.parts import Constant, Decay, Equalized, EqualizedEpsilon, Zero
from ede.returns import ReturnDistribution

EXPLORERS: list[Explorer] = [
    EpsilonGreedy(),
    EzGreedy(),
    HeadPerEpisode(),
    NoisyGreedy(),
    *(kind(of) for kind in (Ucb, Thompson) for of in ("epistemic", "aleatoric", "total")),
]
MEMBERS = 3


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def values(lanes: int, actions: int = 4, quantiles: int = 5, seed: int = 0) -> ReturnDistribution:
    z = torch.randn((MEMBERS, lanes, actions, quantiles), generator=seeded(seed), dtype=torch.float64)
    return ReturnDistribution(z)


def certain(lanes: int, actions: int, best: int) -> ReturnDistribution:
    """Every member is sure that one action is the best."""
    z = torch.zeros(MEMBERS, lanes, actions, 2)
    z[:, :, best] = 1
    return ReturnDistribution(z)


def act(
    explorer: Explorer, beliefs: ReturnDistribution, coefficient_K: Tensor, generator: Generator
) -> tuple[Tensor, State]:
    state = explorer.begin(len(coefficient_K), MEMBERS, generator)
    return explorer.act(beliefs, coefficient_K, state, generator)


# ---- what holds for all --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("explorer", EXPLORERS, ids=str)
def test_the_generator_alone_decides(explorer: Explorer) -> None:
    def run(seed: int) -> list[list[int]]:
        generator, chosen = seeded(seed), []
        state = explorer.begin(6, MEMBERS, generator)
        for step in range(8):
            action_K, state = explorer.act(values(6, seed=step), torch.full((6,), 0.5), state, generator)
            assert action_K.dtype == torch.int64
            assert action_K.shape == (6,)
            assert ((action_K >= 0) & (action_K < 4)).all()
            chosen.append(action_K.tolist())
            state = explorer.end(torch.arange(6) == step, MEMBERS, state, generator)
        return chosen

    torch.manual_seed(1)
    first = run(0)
    torch.manual_seed(2)
    assert run(0) == first


@pytest.mark.parametrize("explorer", EXPLORERS, ids=str)
def test_acting_changes_no_argument(explorer: Explorer) -> None:
    generator, beliefs, coefficient_K = seeded(), values(5), torch.full((5,), 0.7)
    state = explorer.begin(5, MEMBERS, generator)
    before = {name: tensor.clone() for name, tensor in state.items()}
    z = beliefs.z_MBAN.clone()
    explorer.act(beliefs, coefficient_K, state, generator)
    explorer.end(torch.ones(5, dtype=torch.bool), MEMBERS, state, generator)
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert torch.equal(beliefs.z_MBAN, z)
    assert torch.equal(coefficient_K, torch.full((5,), 0.7))


@pytest.mark.parametrize("explorer", [e for e in EXPLORERS if not isinstance(e, HeadPerEpisode)], ids=str)
@given(seed=st.integers(0, 10_000))
def test_a_coefficient_of_zero_is_greedy_to_the_bit(explorer: Explorer, seed: int) -> None:
    beliefs = values(7, seed=seed)
    chosen, _ = act(explorer, beliefs, torch.zeros(7), seeded(seed))
    assert torch.equal(chosen, greedy(beliefs))


@pytest.mark.parametrize("explorer", EXPLORERS, ids=str)
def test_one_lanes_beliefs_do_not_move_anothers_action(explorer: Explorer) -> None:
    calm, changed = values(5).z_MBAN, values(5).z_MBAN
    changed[:, 2] = changed[:, 2].flip(1) * 3
    one, two = (
        act(explorer, ReturnDistribution(z), torch.full((5,), 0.5), seeded(3))[0] for z in (calm, changed)
    )
    others = torch.arange(5) != 2
    assert torch.equal(one[others], two[others])


@pytest.mark.parametrize("explorer", EXPLORERS, ids=str)
def test_an_episodes_end_leaves_the_other_lanes_alone(explorer: Explorer) -> None:
    generator = seeded()
    state = explorer.begin(50, MEMBERS, generator)
    _, state = explorer.act(values(50), torch.ones(50), state, generator)
    ended = torch.arange(50) % 2 == 0
    after = explorer.end(ended, MEMBERS, state, generator)
    assert after.keys() == state.keys()
    assert all(torch.equal(after[name][~ended], state[name][~ended]) for name in state)


# ---- ε-greedy ------------------------------------------------------------------------------------------------------


def test_epsilon_greedy_explores_with_each_lanes_own_epsilon() -> None:
    lanes, actions = 40_000, 5
    epsilon_K = torch.tensor([0.0, 0.2, 0.6, 1.0]).repeat_interleave(lanes // 4)
    chosen, _ = act(EpsilonGreedy(), certain(lanes, actions, best=3), epsilon_K, seeded(0))
    for quarter, epsilon in zip(chosen.chunk(4), (0.0, 0.2, 0.6, 1.0), strict=True):
        frequency = torch.bincount(quarter, minlength=actions) / len(quarter)
        expected = torch.full((actions,), epsilon / actions)
        expected[3] += 1 - epsilon
        # Five standard deviations of a frequency in 10 000 draws, at most.
        assert (frequency - expected).abs().max() <= 5 * 0.5 / 100, epsilon
    assert (chosen.chunk(4)[0] == 3).all()


# ---- εz-greedy -----------------------------------------------------------------------------------------------------


def test_durations_follow_the_zeta_law() -> None:
    explorer, draws = EzGreedy(mu=2.0, longest=50), 100_000
    weights = torch.tensor([n**-2.0 for n in range(1, 51)], dtype=torch.float64)
    expected = weights / weights.sum()
    duration = explorer.durations(torch.rand(draws, generator=seeded(), dtype=torch.float64))
    assert duration.min() == 1
    assert duration.max() == 50
    frequency = torch.bincount(duration - 1, minlength=50) / draws
    spread = (expected * (1 - expected) / draws).sqrt()
    assert ((frequency - expected).abs() <= 5 * spread).all()


@given(st.floats(0, 1, exclude_max=True), st.floats(1.1, 4), st.integers(1, 10_000))
def test_a_duration_inverts_the_cumulative_law(uniform: float, mu: float, longest: int) -> None:
    duration = int(EzGreedy(mu, longest).durations(torch.tensor([uniform], dtype=torch.float64)))
    weights = torch.arange(1, longest + 1, dtype=torch.float64) ** -mu
    share = weights.sum()
    assert 1 <= duration <= longest
    assert uniform <= float(weights[:duration].sum() / share) + 1e-9
    assert uniform >= float(weights[: duration - 1].sum() / share) - 1e-9


def test_a_random_action_lasts_its_duration_and_then_a_new_one_may_begin() -> None:
    """With ε = 1 every step is random; an action changes only where a duration has run out."""
    explorer, generator, beliefs = EzGreedy(longest=20), seeded(), certain(200, 1_000, best=0)
    state = explorer.begin(200, MEMBERS, generator)
    previous, left = torch.zeros(200, dtype=torch.int64), torch.zeros(200, dtype=torch.int64)
    for _ in range(60):
        chosen, state = explorer.act(beliefs, torch.ones(200), state, generator)
        assert torch.equal(chosen[left > 0], previous[left > 0])
        fresh = left == 0
        assert (chosen[fresh] != previous[fresh]).float().mean() > 0.9
        previous, left = chosen, state["left_K"]


def test_after_a_random_action_without_epsilon_the_lane_is_greedy() -> None:
    explorer, generator = EzGreedy(), seeded()
    running = {"action_K": torch.tensor([2, 2, 2]), "left_K": torch.tensor([2, 1, 0])}
    beliefs = certain(3, 4, best=1)
    chosen, running = explorer.act(beliefs, torch.zeros(3), running, generator)
    assert chosen.tolist() == [2, 2, 1]
    chosen, running = explorer.act(beliefs, torch.zeros(3), running, generator)
    assert chosen.tolist() == [2, 1, 1]
    assert running["left_K"].tolist() == [0, 0, 0]


def test_a_random_action_ends_with_its_episode() -> None:
    explorer, generator = EzGreedy(), seeded()
    running = {"action_K": torch.tensor([2, 2]), "left_K": torch.tensor([9, 9])}
    running = explorer.end(torch.tensor([True, False]), MEMBERS, running, generator)
    chosen, _ = explorer.act(certain(2, 4, best=1), torch.zeros(2), running, generator)
    assert chosen.tolist() == [1, 2]


def test_a_long_random_action_moves_the_frequency_of_exploring_above_epsilon() -> None:
    """A renewal process: greedy runs last (1−ε)/ε steps on average, random ones E[n]; the shares follow."""
    explorer, epsilon, lanes = EzGreedy(longest=10), 0.1, 4_000
    weights = torch.arange(1, 11, dtype=torch.float64) ** -2
    mean_duration = float((weights * torch.arange(1, 11)).sum() / weights.sum())
    generator, explored = seeded(), 0
    state = explorer.begin(lanes, MEMBERS, generator)
    beliefs = certain(lanes, 1_000, best=0)
    for step in range(120):
        chosen, state = explorer.act(beliefs, torch.full((lanes,), epsilon), state, generator)
        explored += int((chosen != 0).sum()) if step >= 20 else 0
    expected = mean_duration / (mean_duration + (1 - epsilon) / epsilon)
    assert explored / (100 * lanes) == pytest.approx(expected * 0.999, rel=0.02)


# ---- bootstrapped head ---------------------------------------------------------------------------------------------


def disagreeing(lanes: int) -> ReturnDistribution:
    """Member i is sure that action i is the best."""
    return ReturnDistribution(torch.eye(MEMBERS)[:, None, :, None].expand(MEMBERS, lanes, MEMBERS, 2).clone())


def test_a_lane_follows_one_member_through_an_episode_and_draws_anew_after_it() -> None:
    explorer, generator, lanes = HeadPerEpisode(), seeded(), 9_000
    state = explorer.begin(lanes, MEMBERS, generator)
    first, state = explorer.act(disagreeing(lanes), torch.zeros(lanes), state, generator)
    shares = torch.bincount(first, minlength=MEMBERS) / lanes
    assert (shares - 1 / 3).abs().max() < 0.025
    nobody = torch.zeros(lanes, dtype=torch.bool)
    for _ in range(3):
        state = explorer.end(nobody, MEMBERS, state, generator)
        again, state = explorer.act(disagreeing(lanes), torch.zeros(lanes), state, generator)
        assert torch.equal(again, first)
    ended = torch.arange(lanes) < lanes // 2
    state = explorer.end(ended, MEMBERS, state, generator)
    after, _ = explorer.act(disagreeing(lanes), torch.zeros(lanes), state, generator)
    assert torch.equal(after[~ended], first[~ended])
    for member in range(MEMBERS):
        drawn = after[ended & (first == member)]
        shares = torch.bincount(drawn, minlength=MEMBERS) / len(drawn)
        assert (shares - 1 / 3).abs().max() < 0.07, "the new head does not depend on the old one"


# ---- UCB and Thompson ----------------------------------------------------------------------------------------------


def test_ucb_by_pencil() -> None:
    """Two actions, Q = (1, 0), epistemic (0, 2): the bonus wins from φ = ½ on."""
    z = torch.tensor([[1.0, 2.0], [1.0, -2.0]]).view(2, 1, 2, 1).expand(2, 3, 2, 1)
    chosen, _ = act(Ucb(), ReturnDistribution(z), torch.tensor([0.49, 0.51, 30.0]), seeded())
    assert chosen.tolist() == [0, 1, 1]


@pytest.mark.parametrize("of", ["epistemic", "aleatoric", "total"])
@given(seed=st.integers(0, 10_000))
def test_ucb_is_equations_4_and_5_lane_by_lane(of: str, seed: int) -> None:
    beliefs, phi_K = values(6, seed=seed), 30 * equalized(6, 0.6, 7.0)
    chosen, _ = act(Ucb(of), beliefs, phi_K, seeded())  # type: ignore[arg-type]
    sigma = getattr(beliefs, of)
    for k in range(6):
        scores = [float(beliefs.q[k, a]) + float(phi_K[k]) * float(sigma[k, a]) for a in range(4)]
        assert scores[int(chosen[k])] >= max(scores) - 1e-12


def test_ucb_with_the_same_uncertainty_everywhere_is_greedy() -> None:
    offsets = torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1)
    beliefs = ReturnDistribution(
        torch.tensor([0.0, 0.25, -0.5]).view(1, 1, 3, 1).expand(2, 4, 3, 1) + offsets
    )
    chosen, _ = act(Ucb(), beliefs, torch.full((4,), 30.0), seeded())
    assert torch.equal(chosen, greedy(beliefs))


def test_thompson_draws_have_the_moments_of_equation_3() -> None:
    """Of two actions, A and B, P(A) = Φ((Q_A − Q_B) / (φ √(σ_A² + σ_B²))); the spread is φσ, no variance."""
    lanes, phi = 40_000, 0.5
    z = torch.tensor([[1.0 + 0.6, 0.5 + 0.8], [1.0 - 0.6, 0.5 - 0.8]], dtype=torch.float64)
    beliefs = ReturnDistribution(z.view(2, 1, 2, 1).expand(2, lanes, 2, 1))
    chosen, _ = act(Thompson(), beliefs, torch.full((lanes,), phi), seeded())
    expected = float(torch.special.ndtr(torch.tensor(0.5 / (phi * 1.0))))
    assert float((chosen == 0).double().mean()) == pytest.approx(expected, abs=5 * 0.5 / 200)


def test_thompson_draws_lanes_and_actions_apart() -> None:
    """Three equal actions: each is chosen by a third of the lanes, and neighbours agree by chance only."""
    lanes = 30_000
    z = torch.tensor([1.0, -1.0]).view(2, 1, 1, 1).expand(2, lanes, 3, 1)
    chosen, _ = act(Thompson(), ReturnDistribution(z), torch.ones(lanes), seeded())
    shares = torch.bincount(chosen, minlength=3) / lanes
    assert (shares - 1 / 3).abs().max() < 0.015
    assert float((chosen[1:] == chosen[:-1]).float().mean()) == pytest.approx(1 / 3, abs=0.015)


# ---- coefficients --------------------------------------------------------------------------------------------------


@given(st.integers(2, 100), st.floats(0.01, 0.99), st.floats(0, 12))
def test_equalized_is_equation_5(lanes: int, base: float, alpha: float) -> None:
    coefficient_K = equalized(lanes, base, alpha).double()
    for k in range(lanes):
        assert float(coefficient_K[k]) == pytest.approx(base ** (1 + alpha * k / (lanes - 1)), rel=1e-6)


def test_the_papers_lanes_reach_from_18_to_a_half() -> None:
    phi_K = Equalized().of_lanes(64, vector_step=0)
    assert float(phi_K[0]) == pytest.approx(30 * 0.6, rel=1e-6)
    assert float(phi_K[-1]) == pytest.approx(30 * 0.6**8, rel=1e-6)
    assert (phi_K.diff() < 0).all()


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_equalized_has_constant_limits(lanes: int) -> None:
    assert torch.equal(equalized(lanes, 1.0, 7.0), torch.ones(lanes))
    assert torch.equal(Equalized(phi=30.0, base=1.0).of_lanes(lanes, 0), Constant(30.0).of_lanes(lanes, 0))
    assert torch.equal(equalized(lanes, 0.6, 0.0), torch.full((lanes,), 0.6))


def test_a_single_lane_does_not_divide_by_zero() -> None:
    assert equalized(1, 0.6, 7.0).tolist() == pytest.approx([0.6])


def test_equalized_epsilon_is_equalized_exploration_without_phi() -> None:
    assert torch.equal(EqualizedEpsilon().of_lanes(64, 0), EqualizedEpsilon().of_lanes(64, 10**6))
    torch.testing.assert_close(30 * EqualizedEpsilon().of_lanes(64, 0), Equalized().of_lanes(64, 0))


@given(st.integers(0, 10**6))
def test_epsilon_decays_as_published(t: int) -> None:
    epsilon_K = Decay().of_lanes(3, t)
    expected = min(0.1 + 0.9 * exp(-(t - 2000) / 8000), 1)
    assert epsilon_K.tolist() == pytest.approx([expected] * 3, rel=1e-6)


def test_a_short_decay_does_not_overflow_before_its_start() -> None:
    assert Decay(final=0.1, start=5_000, length=1).of_lanes(1, 0).item() == 1


@pytest.mark.parametrize("make", [Zero, Constant, Decay, Equalized, EqualizedEpsilon])
@pytest.mark.parametrize("lanes", [1, 2, 64])
def test_every_coefficient_is_finite_in_every_lane(make: Callable[[], Zero], lanes: int) -> None:
    coefficient_K = make().of_lanes(lanes, 0)
    assert coefficient_K.shape == (lanes,)
    assert coefficient_K.isfinite().all()
    assert (coefficient_K >= 0).all()
