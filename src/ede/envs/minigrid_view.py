"""What MiniGrid's agent sees, computed by looking cells up in place where the package copies and turns whole grids.

The package slices the view out of the grid, turns it up to four times, spreads light through it cell by cell and
encodes it, each through Python calls a cell: seven tenths of a step. Here a cell of the view is an offset from the
agent, and a row of light is a number whose answer is remembered. Equal to the package's observation to the bit; an
environment that computes its view in a way of its own keeps it.

In the view, column ``i`` runs from the agent's left to its right, row ``j`` from far to near; the agent is in the
middle of the last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from minigrid.core.world_object import WorldObj
    from minigrid.minigrid_env import MiniGridEnv

_EMPTY, _UNSEEN = b"\x01\x00\x00", b"\x00\x00\x00"
"""Codes of a cell with nothing in it, and of one that the agent does not see."""


def quicken(env: MiniGridEnv) -> None:
    """Give one environment this view, unless its class has its own."""
    from minigrid.minigrid_env import MiniGridEnv

    own = type(env)
    if own.gen_obs is MiniGridEnv.gen_obs and own.gen_obs_grid is MiniGridEnv.gen_obs_grid:
        env.gen_obs = partial(_observation, env)


def _observation(env: MiniGridEnv) -> dict[str, Any]:
    return {"image": image(env), "direction": env.agent_dir, "mission": env.mission}


def image(env: MiniGridEnv) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """[column, row, 3] codes of what the agent sees: kind of object, colour, state."""
    size = env.agent_view_size
    rows = _cells(env, size)
    seen = _light(rows, size, env.see_through_walls)
    rows[-1][size // 2] = env.carrying
    codes = b"".join(
        (_EMPTY if cell is None else _code(cell)) if seen_row >> column & 1 else _UNSEEN
        for row, seen_row in zip(rows, seen, strict=True)
        for column, cell in enumerate(row)
    )
    return np.frombuffer(codes, np.uint8).reshape(size, size, 3).transpose(1, 0, 2).copy()


def _cells(env: MiniGridEnv, size: int) -> list[list[WorldObj | None]]:
    """The view's rows, far to near; outside of the grid all is wall."""
    grid, (x, y) = env.grid, (int(env.agent_pos[0]), int(env.agent_pos[1]))
    width, height, cells = grid.width, grid.height, grid.grid
    wall = _wall()
    return [
        [
            cells[(y + dy) * width + x + dx] if 0 <= x + dx < width and 0 <= y + dy < height else wall
            for dx, dy in row
        ]
        for row in _offsets(env.agent_dir, size)
    ]


@cache
def _wall() -> WorldObj:
    from minigrid.core.world_object import Wall

    return Wall()


@cache
def _offsets(direction: int, size: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """From the agent to the cells of its view, by rows; directions 0 to 3 face right, down, left and up."""
    (forward_x, forward_y), half = ((1, 0), (0, 1), (-1, 0), (0, -1))[direction], size // 2
    right_x, right_y = -forward_y, forward_x
    return tuple(
        tuple(
            (forward_x * ahead + right_x * aside, forward_y * ahead + right_y * aside)
            for aside in range(-half, size - half)
        )
        for ahead in reversed(range(size))
    )


def _light(rows: Sequence[Sequence[WorldObj | None]], size: int, through_walls: bool) -> list[int]:
    """Bit i of row j: whether the agent sees that cell. Light spreads from the agent's row outward."""
    if through_walls:
        return [(1 << size) - 1] * size
    lit, seen = 1 << size // 2, []
    for row in reversed(rows):
        clear = 0
        for column, cell in enumerate(row):
            if cell is None or cell.see_behind():
                clear |= 1 << column
        lit, above = _spread(lit, clear, size)
        seen.append(lit)
        lit = above
    return seen[::-1]


@cache
def _spread(lit: int, clear: int, size: int) -> tuple[int, int]:
    """Light within a row, first to the right and then to the left, and what of it falls on the row beyond."""
    above = 0
    for column in range(size - 1):
        if lit & clear & 1 << column:
            lit |= 2 << column
            above |= 3 << column
    for column in range(size - 1, 0, -1):
        if lit & clear & 1 << column:
            lit |= 1 << column - 1
            above |= 3 << column - 1
    return lit, above


def _code(cell: WorldObj) -> bytes:
    """The codes of an object; those of a door change, so only what cannot change is remembered."""
    from minigrid.core.world_object import WorldObj

    if type(cell).encode is WorldObj.encode:
        return _fixed_code(cell.type, cell.color)
    return bytes(cell.encode())


@cache
def _fixed_code(kind: str, color: str) -> bytes:
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

    return bytes((OBJECT_TO_IDX[kind], COLOR_TO_IDX[color], 0))
