"""``bigfish-simple``: the paper's simplified bigfish (Section 3, Appendix "Simplified Bigfish") as a small CMDP.

A green fish swims in a 10×10 pond with eight red fish, each in a row of its own. A smaller fish is eaten, for a
reward of 1, and the agent grows by one; a fish at least as big as the agent ends the episode. Who has eaten four
has won. ``docs/bigfish-simple.md`` draws it.

Axis letters: K lanes, E episodes that begin, F fish, W random words.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.contexts import LIMIT, Contexts
from ede.envs import lane_memory
from ede.envs.contract import Lanes, Observations, Step, WorldSpec, checked_actions, join_final
from ede.envs.draws import Schedule, words
from ede.envs.packing import pack, unpack
from ede.errors import EdeError
from ede.seeds import child_seed

SIZE = 10
"""Rows and columns of the pond; fish swim round its sides, the agent stops at them."""
FISH = 8
MEALS = 4
"""Who has eaten so many fish is full-grown and has won: the near fish are enough, and the solution of a training
context leaves much of the pond aside, as in the paper's example."""
BIRTH_SIZE = 2
"""The agent's first size; it may eat fish smaller than itself."""
WIN_BONUS = 4.0
"""So that the best return is 8."""
TIME_LIMIT = 100
BAY = 256
"""So many contexts with consecutive ids begin in the same cell: one bay of the pond."""
_BYTES_A_LANE = 1500
"""State, frames and what a step needs meanwhile; 1230 measured over 200 000 lanes."""
ACTIONS = ("stay", "up", "down", "left", "right")
_ROW_CHANGE = np.array([0, -1, 1, 0, 0], np.int32)
_COLUMN_CHANGE = np.array([0, 0, 0, -1, 1], np.int32)

_LARGEST_F = np.array([1, 2, 3, 4, *[BIRTH_SIZE + MEALS] * (FISH - MEALS)], np.uint64)
"""The first fish are small enough that one of them can always be eaten; the others are of any size."""
_RED, _BLUE = 0, 2
_BODY = np.array([0, *range(165, 256, 15)], np.uint8)
"""Brightness by size, of fish and of the agent; 0 is an eaten fish."""
_HEADING = np.array([0, 30, 60, 90], np.uint8)
"""Brightness of the cell ahead: nothing, a slow fish that rests this step, one that moves, a fast fish."""

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pond:
    """How episodes begin. Fish swim in half cells, so that speed and phase are one number each."""

    start_E2: Integers
    """Row and column of the agent."""
    row_EF: Integers
    half_EF: Integers
    """Column · 2, plus 1 in the middle of a slow fish's way: it is in column ``half // 2``."""
    speed_EF: Integers
    """Half cells a step: ±2 fast, ±1 slow."""
    size_EF: Integers


def _scenario() -> tuple[list[int], list[int], list[int], list[int]]:
    """Rows, half columns, speeds and sizes of the appendix's pond, which contexts 0 and 256 share.

    From (2, 1), where context 0 begins, up twice eats the fish at the top; down and twice right eats the one
    that comes from the right; the big fish reaches (2, 1) after two steps. Context 256 begins at (4, 1): one
    step up is the state that the second trajectory has passed, two steps up is death.
    """
    row = [0, 3, 5, 7, 2, 6, 8, 9]
    half = [2 + 1, 8 + 1, 14, 4, 6, 12, 2, 16]
    speed = [-1, -1, 2, 1, -2, -2, 1, -1]
    size = [1, 1, 2, 3, 5, 6, 4, 2]
    return row, half, speed, size


SCENARIO_STARTS = ((2, 1), (4, 1))
"""Where bays 0 and 1 begin; all other bays draw their cell."""


def ponds(context_E: npt.NDArray[np.integer[Any]], own_start: bool = False) -> Pond:
    """The first state of each context: a pure function of its id."""
    word_EW = words(context_E, 4 * FISH + SIZE + 1)
    column_EF, speed_EF, size_EF, rest_EF, row_EW = np.split(
        word_EW[:, 1:], [FISH * i for i in range(1, 5)], 1
    )

    bay_E = context_E.astype(np.int64) // BAY
    cell_E = word_EW[:, 0] if own_start else words(bay_E + LIMIT, 1)[:, 0]
    cell_E = (cell_E % np.uint64(SIZE * SIZE)).astype(np.int32)
    start_E2 = np.stack(np.divmod(cell_E, SIZE), 1).astype(np.int32)
    if not own_start:
        for bay, start in enumerate(SCENARIO_STARTS):
            start_E2[bay_E == bay] = start

    row_EF = np.argsort(row_EW, axis=1)[:, :FISH].astype(np.int32)
    column_EF = (column_EF % np.uint64(SIZE)).astype(np.int32)
    # Nobody is born beside a fish: one that would be within two cells swims on the pond's other side.
    away_EF = (column_EF - start_E2[:, 1:] + 2) % SIZE
    near_EF = (row_EF == start_E2[:, :1]) & (away_EF <= 4)
    column_EF = (column_EF + near_EF * (SIZE // 2)) % SIZE
    half_EF = 2 * column_EF + (rest_EF & np.uint64(1)).astype(np.int32)
    speed_EF = np.array([-2, -1, 1, 2], np.int32)[(speed_EF & np.uint64(3)).astype(np.intp)]
    size_EF = (size_EF % _LARGEST_F).astype(np.int32) + 1

    is_scenario_E = np.isin(context_E, (0, BAY)) & (not own_start)
    for target_EF, values in zip((row_EF, half_EF, speed_EF, size_EF), _scenario(), strict=True):
        target_EF[is_scenario_E] = values
    return Pond(start_E2, row_EF, half_EF, speed_EF, size_EF)


@dataclass
class _State:
    """One running episode a lane."""

    agent_K2: Integers
    agent_size_K: Integers
    row_KF: Integers
    half_KF: Integers
    speed_KF: Integers
    size_KF: Integers
    """0 where the fish is eaten."""
    time_K: Integers
    context_K: npt.NDArray[np.int64]

    def begin(self, lane_E: npt.NDArray[np.int64], context_E: npt.NDArray[np.int64], pond: Pond) -> None:
        self.agent_K2[lane_E] = pond.start_E2
        self.agent_size_K[lane_E] = BIRTH_SIZE
        self.row_KF[lane_E] = pond.row_EF
        self.half_KF[lane_E] = pond.half_EF
        self.speed_KF[lane_E] = pond.speed_EF
        self.size_KF[lane_E] = pond.size_EF
        self.time_K[lane_E] = 0
        self.context_K[lane_E] = context_E

    def paint(self, lane_E: npt.NDArray[np.int64] | slice = slice(None)) -> npt.NDArray[np.uint8]:
        """[E, 10, 10, 3], red, green and blue: the fish that would kill, the agent, the fish it may eat.

        Brightness is size; ahead of each fish a fainter cell says how soon it moves. Together with the rules
        this is the whole state but the clock of the time limit.
        """
        agent_E2, agent_size_E = self.agent_K2[lane_E], self.agent_size_K[lane_E]
        half_EF, speed_EF, size_EF = self.half_KF[lane_E], self.speed_KF[lane_E], self.size_KF[lane_E]
        lanes = len(agent_E2)
        image = np.zeros((lanes, SIZE, SIZE, 3), np.uint8)
        flat = image.reshape(-1)
        lane_E1 = np.arange(0, lanes * SIZE, SIZE)[:, None]
        flat[((lane_E1[:, 0] + agent_E2[:, 0]) * SIZE + agent_E2[:, 1]) * 3 + 1] = _BODY[agent_size_E]

        column_EF = half_EF >> 1
        row_EF = (lane_E1 + self.row_KF[lane_E]) * SIZE
        colour_EF = np.where(size_EF < agent_size_E[:, None], _BLUE, _RED)
        moves_EF = (half_EF + speed_EF) >> 1 != column_EF
        urgency_EF = (np.abs(speed_EF) + moves_EF) * (size_EF > 0)
        flat[(row_EF + (column_EF + np.sign(speed_EF)) % SIZE) * 3 + colour_EF] = _HEADING[urgency_EF]
        flat[(row_EF + column_EF) * 3 + colour_EF] = _BODY[size_EF]
        return image


class Bigfish(Lanes):
    """Lanes of ``bigfish-simple``, all in a few numpy calls a step."""

    def __init__(self, lanes: int, contexts: Contexts, seed: int, starts: str) -> None:
        if starts not in ("bay", "own"):
            raise EdeError(f"bigfish-simple has no starts='{starts}'; choose 'bay' or 'own'.")
        self.lanes, self.contexts, self.starts = lanes, contexts, starts
        self.spec = WorldSpec(
            task="bigfish-simple",
            backend="ede",
            obs_shape=(SIZE, SIZE, 3),
            obs_dtype="uint8",
            num_actions=len(ACTIONS),
            can_save=True,
            can_choose=True,
            shows_last_frame=True,
            time_limit=TIME_LIMIT,
            action_names=ACTIONS,
        )
        self._schedule = Schedule(contexts, lanes, child_seed(seed, "env"))
        self._all_K = np.arange(lanes)
        fish = (lanes, FISH)
        self._state = _State(
            agent_K2=np.zeros((lanes, 2), np.int32),
            agent_size_K=np.zeros(lanes, np.int32),
            row_KF=np.zeros(fish, np.int32),
            half_KF=np.zeros(fish, np.int32),
            speed_KF=np.ones(fish, np.int32),
            size_KF=np.zeros(fish, np.int32),
            time_K=np.zeros(lanes, np.int32),
            context_K=np.zeros(lanes, np.int64),
        )
        self._has_begun = False

    def _check_begun(self) -> None:
        if not self._has_begun:
            raise EdeError("Call reset before the first step of bigfish-simple.")

    @property
    def obs(self) -> Observations:
        self._check_begun()
        return self._state.paint()

    @property
    def context(self) -> npt.NDArray[np.int64]:
        return self._state.context_K.copy()

    def _begin(self, lane_E: npt.NDArray[np.int64]) -> None:
        context_E = self._schedule.next(lane_E)
        self._state.begin(lane_E, context_E, ponds(context_E, self.starts == "own"))

    def reset(self) -> Observations:
        self._begin(self._all_K)
        self._has_begun = True
        return self.obs

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> Observations:
        self._schedule.choose(context_K)
        return self.reset()

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        self._check_begun()
        action_K = checked_actions(actions, self.lanes, self.spec)
        state = self._state
        agent_K2 = state.agent_K2
        agent_K2[:, 0] += _ROW_CHANGE[action_K]
        agent_K2[:, 1] += _COLUMN_CHANGE[action_K]
        np.clip(agent_K2, 0, SIZE - 1, out=agent_K2)
        # The agent moves, then the fish; it meets a fish that is in its cell before or after the fish's move.
        before_KF = state.half_KF >> 1
        state.half_KF += state.speed_KF
        state.half_KF %= 2 * SIZE
        column_K1 = agent_K2[:, 1:]
        here_KF = (before_KF == column_K1) | (state.half_KF >> 1 == column_K1)
        here_KF &= state.row_KF == agent_K2[:, :1]
        # Rows hold one fish each, so at most one is met; an eaten one has size 0.
        met_K = (here_KF * state.size_KF).sum(1)
        eaten_K = (met_K > 0) & (met_K < state.agent_size_K)
        state.size_KF *= ~(here_KF & eaten_K[:, None])
        state.agent_size_K += eaten_K
        won_K = eaten_K & (state.agent_size_K == BIRTH_SIZE + MEALS)
        reward_K = (eaten_K + WIN_BONUS * won_K).astype(np.float32)
        terminated_K = (met_K > 0) & ~eaten_K | won_K
        state.time_K += 1
        truncated_K = (state.time_K >= TIME_LIMIT) & ~terminated_K
        context_K = state.context_K.copy()

        obs = state.paint()
        ended_E = np.flatnonzero(terminated_K | truncated_K)
        final_obs = join_final(obs, ended_E)
        if len(ended_E):
            self._begin(ended_E)
            obs[ended_E] = state.paint(ended_E)
        return Step(obs, reward_K, terminated_K, truncated_K, context_K, final_obs)

    def save(self) -> bytes:
        arrays = {**vars(self._state), **self._schedule.arrays(), "has_begun": np.array([self._has_begun])}
        return pack(self, arrays, starts=self.starts)

    def restore(self, state: bytes) -> None:
        arrays = unpack(self, state, starts=self.starts)
        self._schedule.load(arrays)
        self._state = _State(**{field.name: arrays[field.name] for field in fields(_State)})
        self._has_begun = bool(arrays["has_begun"][0])


def make(
    name: str, *, lanes: int, contexts: Contexts, seed: int, starts: str = "bay", **unknown: Any
) -> Lanes:
    """``starts='bay'``: 256 consecutive contexts share their first cell; ``'own'``: each draws its own."""
    if unknown:
        raise EdeError(f"bigfish-simple has no option '{next(iter(unknown))}'; it has starts.")
    lane_memory.check("bigfish-simple", lanes, _BYTES_A_LANE)
    return Bigfish(lanes, contexts, seed, starts)
