"""Appendix A: chains small enough to solve by hand, and naive twins on random policies."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ede.errors import EdeError
from ede.tabular import theory
from ede.tabular.worlds import WORLDS, World

GRID = WORLDS["grid"]
CORRIDOR = World("corridor", "", 3, 1, (0, 0), (0, 0), (2, 0))
LEFT, RIGHT = 0, 1
UNIFORM = np.full((3, 4), 0.25)


def random_policy(seed: int, world: World = GRID) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(4), size=world.states)


def chain(world: World, policy_SA: np.ndarray) -> np.ndarray:
    """Pair to pair, goal left out, by loops: the naive twin."""
    goal, start = world.state(world.goal), world.state(world.start)
    pairs = [(s, a) for s in range(world.states) for a in range(4) if s != goal]
    matrix = np.zeros((len(pairs), len(pairs)))
    for i, (s, a) in enumerate(pairs):
        after = int(world.next_SA[s, a])
        after = start if after == goal else after
        for j, (t, b) in enumerate(pairs):
            if t == after:
                matrix[i, j] = policy_SA[t, b]
    return matrix


def test_the_corridor_by_hand() -> None:
    # Squares 0 and 1: 0 goes on with 1/4; 1 goes back, or over the goal and its reset, with 1/4 each.
    d_SA = theory.stationary(CORRIDOR, UNIFORM)
    assert d_SA == pytest.approx(np.array([[2 / 3] * 4, [1 / 3] * 4, [0.0] * 4]) / 4)
    assert theory.mu_min(CORRIDOR, d_SA) == pytest.approx(1 / 12)
    # From a pair that leads to 1: P₁ has all its mass on 1, 2/3 away. P₂ is (1/2, 1/2), 1/6 away.
    assert theory.mixing_time(CORRIDOR, UNIFORM) == 2


@given(seed=st.integers(0, 2**32 - 1))
def test_stationary_is_the_chain_s_left_eigenvector(seed: int) -> None:
    policy_SA = random_policy(seed)
    d_SA = theory.stationary(GRID, policy_SA)
    kept = np.delete(d_SA, GRID.state(GRID.goal), axis=0).ravel()
    assert kept.sum() == pytest.approx(1)
    assert kept @ chain(GRID, policy_SA) == pytest.approx(kept, abs=1e-10)
    assert not d_SA[GRID.state(GRID.goal)].any()


@given(seed=st.integers(0, 2**32 - 1))
def test_mixing_time_is_the_first_step_that_is_near(seed: int) -> None:
    policy_SA = random_policy(seed)
    matrix = chain(GRID, policy_SA)
    d_P = np.delete(theory.stationary(GRID, policy_SA), GRID.state(GRID.goal), axis=0).ravel()
    reached, steps = np.eye(len(matrix)), 0
    while np.abs(reached - d_P).sum(axis=1).max() / 2 > 0.25:
        reached, steps = reached @ matrix, steps + 1
    assert theory.mixing_time(GRID, policy_SA) == steps


def test_a_process_that_goes_round_never_mixes_but_has_averages() -> None:
    to_and_fro = np.zeros((3, 4))
    to_and_fro[0, RIGHT] = to_and_fro[1, LEFT] = to_and_fro[2, RIGHT] = 1.0
    assert theory.mixing_time(CORRIDOR, to_and_fro) == math.inf
    d_SA = theory.stationary(CORRIDOR, to_and_fro)
    assert d_SA[0, RIGHT] == pytest.approx(0.5)
    assert d_SA[1, LEFT] == pytest.approx(0.5)
    assert theory.mu_min(CORRIDOR, d_SA) == 0


def test_policies() -> None:
    q_SA = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0]])
    assert theory.egreedy_policy(q_SA, 0.4) == pytest.approx(
        np.array([[0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]])
    )
    assert theory.averaged_policy(np.array([[3, 1, 0, 0], [0, 0, 0, 0]])) == pytest.approx(
        np.array([[0.75, 0.25, 0, 0], [0.25] * 4])
    )


def optimal_paths(world: World, state: int) -> Iterator[list[tuple[int, int]]]:
    if state == world.state(world.goal):
        yield []
        return
    for action in range(4):
        after = int(world.next_SA[state, action])
        if world.distance(after) < world.distance(state):
            for rest in optimal_paths(world, after):
                yield [(state, action), *rest]


@given(seed=st.integers(0, 2**32 - 1))
def test_bottleneck_is_the_best_path_s_rarest_pair(seed: int) -> None:
    d_SA = np.random.default_rng(seed).random((GRID.states, 4))
    start = GRID.state(GRID.test_start)
    paths = list(optimal_paths(GRID, start))
    assert len(paths) == math.comb(8, 4)
    assert theory.bottleneck(GRID, d_SA, start) == max(min(d_SA[pair] for pair in path) for path in paths)


def test_the_sub_mdp_below_the_bottleneck_keeps_the_training_path_and_above_it_does_not() -> None:
    d_SA = theory.stationary(GRID, theory.egreedy_policy(GRID.optimal_SA, 0.3))
    alpha = theory.bottleneck(GRID, d_SA, GRID.state(GRID.start))
    path = next(optimal_paths(GRID, GRID.state(GRID.start)))
    assert all(theory.sub_mdp(GRID, d_SA, 0.999 * alpha)[pair] for pair in path)
    assert not all(theory.sub_mdp(GRID, d_SA, alpha)[pair] for pair in path)
    assert not theory.sub_mdp(GRID, d_SA, -1.0)[GRID.state(GRID.goal)].any()


def test_sample_complexity_by_hand() -> None:
    assert theory.sample_complexity(0.01, 20, 0.5, 0.1) == pytest.approx(100 * 32 * 100 + 20 * 100 * 2)
    assert theory.sample_complexity(0.0, 20, 0.5, 0.1) == math.inf
    with pytest.raises(EdeError, match="discount"):
        theory.sample_complexity(0.01, 20, 1.0, 0.1)


def test_errors_and_right_squares_leave_the_goal_out() -> None:
    q_SA = GRID.optimal_SA.copy()
    q_SA[GRID.state(GRID.goal)] = 99.0
    assert theory.worst_error(GRID, q_SA) == 0
    assert theory.right_squares(GRID, q_SA) == 1
    q_SA[7, 2] += 10.0  # up from (2, 1): right, and so is right
    assert theory.worst_error(GRID, q_SA) == pytest.approx(10)
    assert theory.right_squares(GRID, q_SA) == 1
    q_SA[7, 0] += 20.0
    assert theory.right_squares(GRID, q_SA) == pytest.approx(23 / 24)
    assert theory.right_squares(GRID, np.zeros((2, 25, 4))) == pytest.approx([0, 0])


def test_coverage_gathers_the_quantities() -> None:
    policy_SA = theory.egreedy_policy(GRID.optimal_SA, 0.5)
    found = theory.coverage(GRID, policy_SA)
    assert found.mu_min < found.test_alpha < found.train_alpha
    assert found.kept == (found.d_SA >= found.train_alpha).sum()
    assert found.pairs == 96
