"""The two worlds: moves, wind and optima, by hand."""

import numpy as np
import pytest

from ede.tabular.worlds import WORLDS, World

GRID, WINDY = WORLDS["grid"], WORLDS["windy"]
LEFT, RIGHT, UP, DOWN = range(4)


def after(world: World, square: tuple[int, int], action: int) -> tuple[int, int]:
    return world.square(int(world.next_SA[world.state(square), action]))


def test_moves_go_one_square_and_stop_at_the_border() -> None:
    assert [after(GRID, (2, 3), a) for a in range(4)] == [(1, 3), (3, 3), (2, 2), (2, 4)]
    assert [after(GRID, (0, 0), a) for a in range(4)] == [(0, 0), (1, 0), (0, 0), (0, 1)]
    assert [after(GRID, (4, 4), a) for a in range(4)] == [(3, 4), (4, 4), (4, 3), (4, 4)]


def test_wind_blows_two_squares_down_and_stops_at_the_border() -> None:
    blown = [WINDY.square(int(WINDY.blown_S[WINDY.state((5, y))])) for y in range(7)]
    assert blown == [(5, 2), (5, 3), (5, 4), (5, 5), (5, 6), (5, 6), (5, 6)]


def test_optimal_returns_are_those_of_the_shortest_ways() -> None:
    assert pytest.approx(2 - 3 * 0.04) == GRID.train_optimum
    assert pytest.approx(2 - 7 * 0.04) == GRID.test_optimum == pytest.approx(1.72)
    assert pytest.approx(2 - 4 * 0.04) == WINDY.train_optimum
    assert pytest.approx(-10) == GRID.worst_return


def test_the_windy_optimum_is_the_mean_return_of_an_oracle_that_moves_towards_the_goal() -> None:
    corridor = World("", "", 1, 4, (0, 0), (0, 0), (0, 2), test_wind=0.4, gust=1)
    # From y=0, down leads to 1 (0.6) or is blown onto the goal (0.4). From 1, down leads to the goal, or past
    # it to 3 (0.4); from 3, up leads to the goal, or is blown back to 3.
    from_3 = (0.6 * 2 + 0.4 * -0.04) / (1 - 0.4)
    from_1 = 0.6 * 2 + 0.4 * (-0.04 + from_3)
    assert corridor.test_optimum == pytest.approx(0.4 * 2 + 0.6 * (-0.04 + from_1))


def test_without_wind_the_oracle_is_the_optimum() -> None:
    still = World("", "", 7, 7, (0, 3), (0, 3), (4, 2), test_wind=0.0)
    assert still.test_optimum == pytest.approx(still.train_optimum)
    assert WINDY.test_optimum < WINDY.train_optimum


def test_optimal_values_are_discounted_steps_to_the_goal() -> None:
    def by_hand(moves: int) -> float:
        return sum(0.9**k * -0.04 for k in range(moves - 1)) + 0.9 ** (moves - 1) * 2

    for state in range(GRID.states):
        for action in range(4):
            if state != GRID.state(GRID.goal):
                moves = 1 + GRID.distance(int(GRID.next_SA[state, action]))
                assert GRID.optimal_SA[state, action] == pytest.approx(by_hand(moves))
    assert not GRID.optimal_SA[GRID.state(GRID.goal)].any()
    assert np.isfinite(WINDY.optimal_SA).all()
