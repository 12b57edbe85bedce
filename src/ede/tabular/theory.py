"""Appendix A of the paper, computed: how well a behaviour policy covers a world, and what that costs Q-learning.

The analysis needs a process without end, so an agent that reaches the goal is put back at the training start
(the cut after 250 steps is left out). States here are all squares but the goal.

Axis letters: S states, A actions, P pairs (s, a) in row order; `…` any leading axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError
from ede.tabular.worlds import ACTIONS, Floats, World

_SQUARINGS = 60
"""2⁶⁰ steps: a chain that has not settled by then never will."""


def egreedy_policy(q_SA: Floats, epsilon: float) -> Floats:
    """π(a|s) of ε-greedy; tied best actions share."""
    best_SA = q_SA == q_SA.max(axis=-1, keepdims=True)
    greedy_SA = best_SA / best_SA.sum(axis=-1, keepdims=True)
    mixed: Floats = (1 - epsilon) * greedy_SA + epsilon / q_SA.shape[-1]
    return mixed


def averaged_policy(count_SA: npt.NDArray[Any]) -> Floats:
    """N(s,a)/N(s): what an agent has done so far, as one fixed policy; uniform where it has not been.

    The analysis asks for a fixed behaviour policy. UCB's is deterministic and changes at every step, so its
    momentary policy says nothing; its average over training is what filled the table.
    """
    visits_S1 = count_SA.sum(axis=-1, keepdims=True)
    averaged: Floats = np.where(visits_S1 > 0, count_SA / np.maximum(visits_S1, 1), 1 / count_SA.shape[-1])
    return averaged


def _others(world: World) -> npt.NDArray[np.int64]:
    """Every state but the goal."""
    return np.delete(np.arange(world.states), world.state(world.goal))


def _continuing_SA(world: World) -> npt.NDArray[np.int64]:
    """Where each action leads in the process with resets."""
    return np.where(world.next_SA == world.state(world.goal), world.state(world.start), world.next_SA)


def stationary(world: World, policy_SA: Floats) -> Floats:
    """d_π(s,a) = π(a|s) · lim 1/(T+1) Σ_t P_t(s), from the training start; zero at the goal.

    The limit of averages is the limit of the lazy chain (I + P)/2, found by squaring: sums of positive
    numbers only, so that the smallest probabilities, which matter here, keep their digits. Leading axes pass.
    """
    chain_SS = np.zeros((*policy_SA.shape[:-2], world.states, world.states))
    after_SA = _continuing_SA(world)
    for s in range(world.states):
        for a in range(len(ACTIONS)):
            chain_SS[..., s, after_SA[s, a]] += policy_SA[..., s, a]
    power_SS = (chain_SS + np.eye(world.states)) / 2
    for _ in range(_SQUARINGS):
        squared_SS = power_SS @ power_SS
        squared_SS /= squared_SS.sum(axis=-1, keepdims=True)
        if np.allclose(squared_SS, power_SS, rtol=1e-12, atol=0.0):
            break
        power_SS = squared_SS
    d_SA: Floats = power_SS[..., world.state(world.start), :, None] * policy_SA
    return d_SA


def mu_min(world: World, d_SA: Floats) -> Floats:
    """μ_min(π) = min d_π(s,a) over all squares but the goal."""
    smallest: Floats = d_SA[..., _others(world), :].min(axis=(-2, -1))
    return smallest


def mixing_time(world: World, policy_SA: Floats) -> float:
    """t_mix(π): steps until P_t from every (s₀,a₀) is within total variation 1/4 of d_π; infinite if never.

    The largest distance never grows with t, so powers of two bracket the first t that is near enough.
    """
    others, actions = _others(world), len(ACTIONS)
    place_S = np.full(world.states, -1)
    place_S[others] = np.arange(len(others))
    after_P = place_S[_continuing_SA(world)[others]].ravel()
    step_PP = np.zeros((len(after_P), len(after_P)))
    for pair, after in enumerate(after_P):
        step_PP[pair, after * actions : (after + 1) * actions] = policy_SA[others[after]]
    d_P = stationary(world, policy_SA)[others].ravel()

    def far(reached_PP: Floats) -> bool:
        return bool(np.abs(reached_PP - d_P).sum(axis=1).max() / 2 > 0.25)

    powers = [step_PP]
    while far(powers[-1]):
        if len(powers) == _SQUARINGS:
            return math.inf
        doubled_PP = powers[-1] @ powers[-1]
        powers.append(doubled_PP / doubled_PP.sum(axis=1, keepdims=True))
    reached_PP, steps = np.eye(len(after_P)), 0
    for exponent in reversed(range(len(powers) - 1)):
        further_PP = reached_PP @ powers[exponent]
        if far(further_PP):
            reached_PP, steps = further_PP, steps + 2**exponent
    return steps + 1


def sub_mdp(world: World, d_SA: Floats, alpha: float) -> npt.NDArray[np.bool_]:
    """G(α) = {(s,a) : d_π(s,a) > α} (after Kearns and Singh 1998); never the goal."""
    kept_SA: npt.NDArray[np.bool_] = d_SA > alpha
    kept_SA[world.state(world.goal)] = False
    return kept_SA


def bottleneck(world: World, d_SA: Floats, start: int) -> float:
    """The largest α that still leaves an optimal path from ``start`` in G(α): its rarest pair, at best.

    Where several paths are optimal, that of the most visited rarest pair counts.
    """
    goal, q_SA = world.state(world.goal), world.optimal_SA
    widest_S = np.zeros(world.states)
    widest_S[goal] = math.inf
    for s in sorted(range(world.states), key=world.distance):
        if s != goal:
            best_A = np.isclose(q_SA[s], q_SA[s].max(), rtol=0, atol=1e-12)
            widest_S[s] = max(min(d_SA[s, a], widest_S[world.next_SA[s, a]]) for a in np.flatnonzero(best_A))
    return float(widest_S[start])


def sample_complexity(smallest: float, mixing: float, discount: float, accuracy: float) -> float:
    """1/(μ_min (1−γ)⁵ ε²) + t_mix/(μ_min (1−γ)): Li et al. (2020), without constants and logarithms."""
    if smallest <= 0.0:
        return math.inf
    if not (0.0 < discount < 1.0 and accuracy > 0.0):
        raise EdeError("The sample complexity needs a discount between 0 and 1 and an accuracy above 0.")
    return 1 / (smallest * (1 - discount) ** 5 * accuracy**2) + mixing / (smallest * (1 - discount))


def worst_error(world: World, q_SA: Floats) -> Floats:
    """max |Q(s,a) − Q*(s,a)| over all squares but the goal; leading axes pass."""
    others = _others(world)
    worst: Floats = np.abs(q_SA - world.optimal_SA)[..., others, :].max(axis=(-2, -1))
    return worst


def right_squares(world: World, q_SA: Floats) -> Floats:
    """Share of the squares, but the goal, whose every highest-valued action is optimal; leading axes pass."""
    others = _others(world)
    optimal_SA = np.isclose(world.optimal_SA, world.optimal_SA.max(axis=1, keepdims=True), rtol=0, atol=1e-12)
    taken_SA = q_SA == q_SA.max(axis=-1, keepdims=True)
    wrong_S = (taken_SA & ~optimal_SA).any(axis=-1)
    right: Floats = 1 - wrong_S[..., others].mean(axis=-1)
    return right


@dataclass(frozen=True)
class Coverage:
    """The appendix's quantities of one behaviour policy."""

    d_SA: Floats
    mu_min: float
    mixing_time: float
    train_alpha: float
    """Largest α for which G(α) keeps an optimal path from the training start."""
    test_alpha: float
    """The same from the test start."""
    kept: int
    """Pairs in G(α) just below ``train_alpha``."""
    pairs: int


def coverage(world: World, policy_SA: Floats) -> Coverage:
    d_SA = stationary(world, policy_SA)
    train = bottleneck(world, d_SA, world.state(world.start))
    return Coverage(
        d_SA,
        float(mu_min(world, d_SA)),
        mixing_time(world, policy_SA),
        train,
        bottleneck(world, d_SA, world.state(world.test_start)),
        int(sub_mdp(world, d_SA, np.nextafter(train, 0.0)).sum()),
        len(_others(world)) * len(ACTIONS),
    )
