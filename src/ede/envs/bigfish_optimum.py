"""The exact optimum of ``bigfish-simple``, by backward induction over its deterministic dynamics.

Where the fish are follows from the context and the time, and the agent's size from the number of fish it has
eaten; so (time, which fish are eaten, the agent's cell) is the whole state: 100 × 93 × 100 of them a context.

Axis letters: G sets of eaten fish, F fish, C cells where a fish can be met this step (two a fish).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ede.envs.bigfish import BIRTH_SIZE, FISH, MEALS, SIZE, TIME_LIMIT, WIN_BONUS, Pond, ponds

Values = npt.NDArray[np.float64]
"""[G, 10, 10]: by the fish eaten so far and the agent's row and column."""

_EATEN = [eaten for eaten in range(2**FISH) if eaten.bit_count() < MEALS]
"""Every set of eaten fish, a bit each, at which an episode still runs; none is the first."""
_COUNT_G = np.array([eaten.bit_count() for eaten in _EATEN])
_IS_EATEN_GF = np.array([[bool(eaten >> fish & 1) for fish in range(FISH)] for eaten in _EATEN])
_INDEX = {eaten: index for index, eaten in enumerate(_EATEN)}
_AFTER_GF = np.array([[_INDEX.get(eaten | 1 << fish, 0) for fish in range(FISH)] for eaten in _EATEN])
"""The set with one fish more; 0 where that meal wins, which ends the episode."""


def optimum(contexts: Iterable[int], gamma: float = 1.0, starts: str = "bay") -> npt.NDArray[np.float64]:
    """The best return any player can reach in each context, some tens of milliseconds each."""
    return np.array([_plan(_pond(context, starts), gamma)[0] for context in contexts])


def best_actions(context: int, gamma: float = 0.99, starts: str = "bay") -> list[int]:
    """The actions of a best episode; a ``gamma`` below 1 makes it a short one."""
    pond = _pond(context, starts)
    _, action_TGRC = _plan(pond, gamma)
    (row, column), group, actions = pond.start_E2[0], 0, []
    for time in range(TIME_LIMIT):
        actions.append(int(action_TGRC[time, group, row, column]))
        row = min(max(row + (0, -1, 1, 0, 0)[actions[-1]], 0), SIZE - 1)
        column = min(max(column + (0, 0, 0, -1, 1)[actions[-1]], 0), SIZE - 1)
        fish_C, row_C, column_C = _meetings(pond, time)
        met = fish_C[(row_C == row) & (column_C == column) & ~_IS_EATEN_GF[group, fish_C]]
        if len(met):
            if pond.size_EF[0, met[0]] >= BIRTH_SIZE + _COUNT_G[group] or _COUNT_G[group] + 1 == MEALS:
                break
            group = _AFTER_GF[group, met[0]]
    return actions


def _pond(context: int, starts: str) -> Pond:
    return ponds(np.array([context]), starts == "own")


def _meetings(pond: Pond, time: int) -> tuple[npt.NDArray[np.intp], ...]:
    """[C] fish, rows and columns: where the agent, having moved at this time, meets which fish."""
    half_F, speed_F = pond.half_EF[0], pond.speed_EF[0]
    before_F = (half_F + time * speed_F) % (2 * SIZE) // 2
    after_F = (half_F + (time + 1) * speed_F) % (2 * SIZE) // 2
    fish_C = np.tile(np.arange(FISH), 2)
    return fish_C, pond.row_EF[0, fish_C], np.concatenate([before_F, after_F])


def _plan(pond: Pond, gamma: float) -> tuple[float, npt.NDArray[np.int8]]:
    """The value of the start, and the best action by time, group, row and column."""
    size_F = pond.size_EF[0]
    edible_GF = size_F < BIRTH_SIZE + _COUNT_G[:, None]
    wins_G1 = (_COUNT_G + 1 == MEALS)[:, None]
    value: Values = np.zeros((len(_EATEN), SIZE, SIZE))
    action_TGRC = np.zeros((TIME_LIMIT, *value.shape), np.int8)
    for time in reversed(range(TIME_LIMIT)):
        fish_C, row_C, column_C = _meetings(pond, time)
        later_GC = gamma * value[_AFTER_GF[:, fish_C], row_C, column_C]
        meal_GC = edible_GF[:, fish_C] * (1.0 + np.where(wins_G1, WIN_BONUS, later_GC))
        arrival = gamma * value
        arrival[:, row_C, column_C] = np.where(_IS_EATEN_GF[:, fish_C], arrival[:, row_C, column_C], meal_GC)
        by_action = _moves(arrival)
        action_TGRC[time] = by_action.argmax(0)
        value = by_action.max(0)
    row, column = pond.start_E2[0]
    return float(value[0, row, column]), action_TGRC


def _moves(arrival: Values) -> npt.NDArray[np.float64]:
    """[5, G, 10, 10]: for each action, the value of the cell it leads to."""
    up = np.concatenate([arrival[:, :1], arrival[:, :-1]], 1)
    down = np.concatenate([arrival[:, 1:], arrival[:, -1:]], 1)
    left = np.concatenate([arrival[:, :, :1], arrival[:, :, :-1]], 2)
    right = np.concatenate([arrival[:, :, 1:], arrival[:, :, -1:]], 2)
    return np.stack([arrival, up, down, left, right])
