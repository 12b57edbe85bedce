"""The worlds of the tabular study, as data, and what can be computed of them exactly.

Axis letters: S states, A actions. A state is a square, numbered row by row: s = y · width + x, with y downwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ACTIONS = ("left", "right", "up", "down")
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

Square = tuple[int, int]
"""(x, y), from the upper left corner."""


class Rules(NamedTuple):
    """A world as the compiled kernels take it: plain numbers and arrays."""

    next_SA: npt.NDArray[np.int64]
    blown_S: npt.NDArray[np.int64]
    """Where a gust carries an agent that has just arrived at s."""
    start: int
    test_start: int
    goal: int
    test_wind: float
    step_reward: float
    goal_reward: float
    discount: float
    limit: int


@dataclass(frozen=True)
class World:
    """A grid whose test differs from its training by the start, or by wind (paper, Section 3 and Appendix C)."""

    name: str
    title: str
    width: int
    height: int
    start: Square
    test_start: Square
    goal: Square
    test_wind: float = 0.0
    """Probability, at each step of a test episode, of being blown ``gust`` squares down after the move."""
    gust: int = 2
    step_reward: float = -0.04
    goal_reward: float = 2.0
    discount: float = 0.9
    limit: int = 250
    """Steps after which an episode is cut."""

    @property
    def states(self) -> int:
        return self.width * self.height

    def state(self, square: Square) -> int:
        return square[1] * self.width + square[0]

    def square(self, state: int) -> Square:
        return state % self.width, state // self.width

    @cached_property
    def next_SA(self) -> Integers:
        """Where each action leads without wind; a move against the border stays."""
        x_S, y_S = np.arange(self.states) % self.width, np.arange(self.states) // self.width
        columns = [
            np.clip(y_S + dy, 0, self.height - 1) * self.width + np.clip(x_S + dx, 0, self.width - 1)
            for dx, dy in _MOVES
        ]
        next_SA: Integers = np.stack(columns, axis=1)
        return next_SA

    @cached_property
    def blown_S(self) -> Integers:
        x_S, y_S = np.arange(self.states) % self.width, np.arange(self.states) // self.width
        return (np.minimum(y_S + self.gust, self.height - 1) * self.width + x_S).astype(np.int64)

    @cached_property
    def rules(self) -> Rules:
        return Rules(
            self.next_SA,
            self.blown_S,
            self.state(self.start),
            self.state(self.test_start),
            self.state(self.goal),
            float(self.test_wind),
            float(self.step_reward),
            float(self.goal_reward),
            float(self.discount),
            int(self.limit),
        )

    @property
    def worst_return(self) -> float:
        """The return of an episode that is cut."""
        return self.step_reward * self.limit

    def distance(self, state: int) -> int:
        """Moves from a state to the goal without wind."""
        (x, y), (goal_x, goal_y) = self.square(state), self.goal
        return abs(x - goal_x) + abs(y - goal_y)

    @cached_property
    def train_optimum(self) -> float:
        """The best undiscounted return from the training start: straight to the goal."""
        return self.step_reward * (self.distance(self.state(self.start)) - 1) + self.goal_reward

    @cached_property
    def test_optimum(self) -> float:
        """What the paper measures test suboptimality against: the expected return of an oracle that
        always moves towards the goal; where two moves do, it takes the better one.
        """
        towards_SA = np.array(
            [
                [self.distance(int(after)) < self.distance(s) for after in self.next_SA[s]]
                for s in range(self.states)
            ]
        )
        goal = self.state(self.goal)
        arrival_S = np.where(np.arange(self.states) == goal, self.goal_reward, self.step_reward)
        value_S = np.zeros(self.states)
        for _ in range(self.limit):
            arrive_S = arrival_S + value_S
            value_SA = (1 - self.test_wind) * arrive_S[self.next_SA]
            value_SA += self.test_wind * arrive_S[self.blown_S[self.next_SA]]
            value_S = np.where(towards_SA, value_SA, -np.inf).max(axis=1, initial=-np.inf)
            value_S[goal] = 0.0
        return float(value_S[self.state(self.test_start)])

    @cached_property
    def optimal_SA(self) -> Floats:
        """Q* of the training world (discounted, without the cut), by value iteration; zero at the goal."""
        goal = self.state(self.goal)
        reward_SA = np.where(self.next_SA == goal, self.goal_reward, self.step_reward)
        q_SA = np.zeros((self.states, len(ACTIONS)))
        for _ in range(10_000):
            updated_SA = reward_SA + self.discount * q_SA.max(axis=1)[self.next_SA]
            updated_SA[goal] = 0.0
            if np.array_equal(updated_SA, q_SA):
                break
            q_SA = updated_SA
        return q_SA


WORLDS: dict[str, World] = {
    "grid": World("grid", "5×5 grid, other start at test", 5, 5, (0, 0), (0, 4), (4, 0)),
    "windy": World("windy", "7×7 grid, wind at test", 7, 7, (0, 3), (0, 3), (4, 2), test_wind=0.4),
}


def find(table: dict[str, Any], name: str, kind: str) -> Any:
    """The entry of that name, or one sentence that lists the names."""
    if name not in table:
        raise EdeError(f"There is no {kind} '{name}'; choose from {', '.join(table)}.")
    return table[name]
