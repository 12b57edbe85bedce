"""The package's 64×64 frames from ready-made tiles.

A tile is a material with or without a creature on it. By day a frame is tiles put side by side after they
have been darkened; at night the noise makes every pixel its own. All mixing is per pixel and in the package's
order of float64 operations, so the bits are the same. Images here are [y, x, channel]; the package draws
[x, y, channel] and turns. Night works on planes [channel, y, x], where NumPy's inner loops are long.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ede.envs.crafter.package import MATERIALS, constants, engine
from ede.envs.crafter.world import VIEW, World

FRAME = (64, 64, 3)
UNIT = 7
"""Pixels of a cell's side: 64 // 9, so the frame's last row and column stay black."""
_WIDTH, _HEIGHT = VIEW[0] * UNIT, VIEW[1] * UNIT
_ITEM_ROWS = 2
_LARGEST_AMOUNT = 9

_LINES = np.arange(UNIT)[:, None]

_NIGHT_COLOUR = (0, 16, 64)
_LUMA = np.array((19595.0, 38470.0, 7471.0))
"""Pillow's weights of red, green and blue in units of 2⁻¹⁶ (its conversion of RGB to L)."""

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


def luma(planes: npt.NDArray[Any]) -> Integers:
    """Pillow's L of red, green and blue planes; sums of whole float64 numbers, so nothing is rounded."""
    weighted = np.einsum("c,c...->...", _LUMA, planes)
    level: Integers = ((weighted + 2.0**15) * 2.0**-16).astype(np.intp)
    return level


@cache
def _half_washed_out() -> Floats:
    """[L · 256 + c]: half of a channel c blended to 40 % with its pixel's grey L, by Pillow's own blend."""
    level = np.arange(256, dtype=np.uint8)
    grey, channel = (Image.fromarray(plane) for plane in np.meshgrid(level, level, indexing="ij"))
    half: Floats = 0.5 * np.asarray(Image.blend(grey, channel, 0.4)).reshape(-1)
    return half


def _at_night(planes: npt.NDArray[Any]) -> Floats:
    """The package's ``_light`` before it is mixed with the day: washed out, then half of a dark blue."""
    night: Floats = _half_washed_out().take(luma(planes) * 256 + planes.astype(np.intp))
    for plane, colour in zip(night, _NIGHT_COLOUR, strict=True):
        plane += 0.5 * colour
    return night


def _asleep(planes: Bytes) -> Bytes:
    """The package's ``_sleep``: grey, then half of (0, 0, 16)."""
    dim = (luma(planes) // 2).astype(np.uint8)
    return np.stack([dim, dim, dim + np.uint8(8)])


def _strips(rows: Integers) -> Integers:
    """Which strips, one pixel high, of a stack of tiles make up a grid of tiles: [lines of tiles, 7, columns]."""
    return (UNIT * rows)[:, None] + _LINES


class Painter:
    """Draws frames for any number of games; it only remembers tiles."""

    def __init__(self) -> None:
        self.textures = engine.Textures(constants.root / "assets")
        self._rows: dict[tuple[int, str], int] = {}
        grounds = [self._texture(name)[..., :3] for name in MATERIALS]
        grounds.append(np.full_like(grounds[0], 127))
        self._day = self._night = np.zeros((0, UNIT * UNIT * 3))
        self._planes = np.zeros((3, 0, UNIT))
        for ground in grounds:
            self._keep(ground)
        self._items = self._draw_items()
        self._inventory = lru_cache(maxsize=2048)(self._draw_inventory)
        local = engine.LocalView(World(), self.textures, VIEW)
        self._vignette: Floats = np.ascontiguousarray(local._vignette((_WIDTH, _HEIGHT, 3), 0.5).T)

    def paint(self, world: World, player: Any, out: Bytes) -> None:
        """Draw what the player sees into ``out`` [64, 64, 3]; at night this draws from the world's random."""
        materials, indices = world.window(player)
        rows = materials.astype(np.intp)
        for x, y in zip(*(axis.tolist() for axis in indices.nonzero()), strict=True):
            rows[x, y] = self._row(int(materials[x, y]), world.thing(indices[x, y]).texture)
        paint_view = self._by_night if world.daylight < 0.5 else self._by_day
        paint_view(world, rows.T, player.sleeping, out[:_HEIGHT, :_WIDTH])
        bottom = _HEIGHT + _ITEM_ROWS * UNIT
        out[_HEIGHT:bottom, :_WIDTH] = self._inventory(tuple(player.inventory.values()))
        out[bottom:] = 0
        out[:, _WIDTH:] = 0

    def _by_day(self, world: World, rows: Integers, asleep: bool, out: Bytes) -> None:
        """Light the few tiles that are shown, then put them in their places."""
        shown = np.bincount(rows.reshape(-1)).nonzero()[0]
        day, night = self._day.take(shown, axis=0), self._night.take(shown, axis=0)
        lit = (world.daylight * day + (1 - world.daylight) * night).astype(np.uint8)
        if asleep:
            lit = _asleep(lit.reshape(-1, 3).T).T.reshape(lit.shape)
        tiles = np.empty(self._day.shape, np.uint8)
        tiles[shown] = lit
        out[:] = tiles.reshape(-1, UNIT * 3).take(_strips(rows), axis=0).reshape(out.shape)

    def _by_night(self, world: World, rows: Integers, asleep: bool, out: Bytes) -> None:
        daylight = world.daylight
        day = self._planes.take(_strips(rows), axis=1).reshape(3, _HEIGHT, _WIDTH)
        noise = world.random.uniform(32, 127, (_WIDTH, _HEIGHT)).T
        mask = 2 * (0.5 - daylight) * self._vignette
        noisy = (1 - mask) * day + mask * noise
        mixed = (daylight * day + (1 - daylight) * _at_night(np.floor(noisy))).astype(np.uint8)
        for channel, plane in enumerate(_asleep(mixed) if asleep else mixed):
            out[..., channel] = plane

    def _row(self, material: int, texture: str) -> int:
        """Where the tile of a creature on a ground lies; drawn when first asked for."""
        key = material, texture
        if key not in self._rows:
            self._rows[key] = len(self._day)
            tile = self._day[material].astype(np.uint8).reshape(UNIT, UNIT, 3).transpose(1, 0, 2)
            engine._draw_alpha(tile, (0, 0), self._texture(texture))
            self._keep(tile)
        return self._rows[key]

    def _keep(self, tile: Bytes) -> None:
        """Add a tile, [x, y, channel] as the package has it, to the stacks of tiles and of strips."""
        planes = tile.transpose(2, 1, 0).astype(np.float64)
        night = _at_night(planes)
        self._day = np.concatenate([self._day, planes.transpose(1, 2, 0).reshape(1, -1)])
        self._night = np.concatenate([self._night, night.transpose(1, 2, 0).reshape(1, -1)])
        self._planes = np.concatenate([self._planes, planes], axis=1)

    def _texture(self, name: str | None) -> Bytes:
        texture: Bytes = self.textures.get(name, (UNIT, UNIT))
        return texture

    def _draw_inventory(self, amounts: tuple[int, ...]) -> Bytes:
        """The two rows of items beneath the view."""
        tiles = np.zeros((_ITEM_ROWS * VIEW[0], UNIT, UNIT, 3), np.uint8)
        tiles[: len(amounts)] = self._items[np.arange(len(amounts)), amounts]
        strips = _strips(np.arange(len(tiles)).reshape(_ITEM_ROWS, VIEW[0]))
        return tiles.reshape(-1, UNIT * 3).take(strips, axis=0).reshape(_ITEM_ROWS * UNIT, _WIDTH, 3)

    def _draw_items(self) -> Bytes:
        """[items, amounts, 7, 7, 3]: each item with each amount, by the package's own item view."""
        tiles = np.zeros((len(constants.items), _LARGEST_AMOUNT + 1, UNIT, UNIT, 3), np.uint8)
        view = engine.ItemView(self.textures, (1, 1))
        for number, item in enumerate(constants.items):
            for amount in range(1, _LARGEST_AMOUNT + 1):
                tiles[number, amount] = view({item: amount}, (UNIT, UNIT)).transpose(1, 0, 2)
        return tiles


@cache
def painter() -> Painter:
    """One a process: tiles are the same for every game."""
    return Painter()
