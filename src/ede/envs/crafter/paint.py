"""The package's 64×64 frames from ready-made tiles.

A tile is a material with or without a creature on it; by day a frame is tiles put side by side after they
have been darkened, at night the noise makes every pixel its own. All mixing is per pixel, so doing it tile
by tile gives the same bits. Arrays here are [y, x, channel]; the package draws [x, y, channel] and turns.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance

from ede.envs.crafter.package import MATERIALS, constants, engine
from ede.envs.crafter.world import VIEW, World

FRAME = (64, 64, 3)
UNIT = 7
"""Pixels of a cell's side: 64 // 9, so the frame's last row and column stay black."""
_ITEM_ROWS = 2
_LARGEST_AMOUNT = 9

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


def _tinted(image: Bytes, saturation: float, colour: tuple[int, int, int]) -> Floats:
    """``LocalView``'s desaturation, then half of a colour."""
    washed = np.asarray(ImageEnhance.Color(Image.fromarray(image)).enhance(saturation))
    tinted: Floats = 0.5 * washed + 0.5 * np.array(colour)
    return tinted


def _at_night(image: Bytes) -> Floats:
    return _tinted(image, 0.4, (0, 16, 64))


def _asleep(image: Bytes) -> Bytes:
    return _tinted(image, 0.0, (0, 0, 16)).astype(np.uint8)


def _join(tiles: Bytes) -> Bytes:
    """[rows, columns, 7, 7, 3] to one image."""
    rows, columns = tiles.shape[:2]
    return tiles.transpose(0, 2, 1, 3, 4).reshape(rows * UNIT, columns * UNIT, 3)


class Painter:
    """Draws frames for any number of games; it only remembers tiles."""

    def __init__(self) -> None:
        self.textures = engine.Textures(constants.root / "assets")
        self._rows: dict[tuple[int, str], int] = {}
        grounds = [self._texture(name)[..., :3] for name in MATERIALS]
        grounds.append(np.full_like(grounds[0], 127))
        self._tiles = np.stack([ground.transpose(1, 0, 2) for ground in grounds])
        self._day = self._tiles.astype(np.float64)
        self._night = np.stack([_at_night(tile) for tile in self._tiles])
        self._items = self._draw_items()
        width, height = VIEW[0] * UNIT, VIEW[1] * UNIT
        local = engine.LocalView(World(), self.textures, VIEW)
        self._vignette: Floats = local._vignette((width, height, 3), 0.5)

    def paint(self, world: World, player: Any, out: Bytes) -> None:
        """Draw what the player sees into ``out`` [64, 64, 3]; at night this draws from the world's random."""
        height, width = VIEW[1] * UNIT, VIEW[0] * UNIT
        out[:height, :width] = self._local(world, player)
        amounts = np.fromiter(player.inventory.values(), np.int64, len(constants.items))
        tiles = np.zeros((_ITEM_ROWS * VIEW[0], UNIT, UNIT, 3), np.uint8)
        tiles[: len(amounts)] = self._items[np.arange(len(amounts)), amounts]
        bottom = height + _ITEM_ROWS * UNIT
        out[height:bottom, :width] = _join(tiles.reshape(_ITEM_ROWS, VIEW[0], UNIT, UNIT, 3))
        out[bottom:] = 0
        out[:, width:] = 0

    def _local(self, world: World, player: Any) -> Bytes:
        materials, indices = world.window(player)
        rows = materials.astype(np.intp)
        for x, y in zip(*(axis.tolist() for axis in indices.nonzero()), strict=True):
            rows[x, y] = self._row(int(materials[x, y]), world.thing(indices[x, y]).texture)
        if world.daylight < 0.5:
            canvas = self._dark(world, _join(self._tiles[rows.T]))
            return _asleep(canvas) if player.sleeping else canvas
        shown = np.flatnonzero(np.bincount(rows.reshape(-1)))
        lit = (world.daylight * self._day[shown] + (1 - world.daylight) * self._night[shown]).astype(np.uint8)
        tiles = np.empty_like(self._tiles)
        tiles[shown] = _asleep(lit.reshape(-1, UNIT, 3)).reshape(lit.shape) if player.sleeping else lit
        return _join(tiles[rows.T])

    def _dark(self, world: World, canvas: Bytes) -> Bytes:
        daylight, amount = world.daylight, 2 * (0.5 - world.daylight)
        noise = world.random.uniform(32, 127, self._vignette.shape).T[..., None]
        mask = amount * self._vignette.T[..., None]
        noisy = (1 - mask) * canvas + mask * noise
        dark: Bytes = (daylight * canvas + (1 - daylight) * _at_night(noisy.astype(np.uint8))).astype(
            np.uint8
        )
        return dark

    def _row(self, material: int, texture: str) -> int:
        """Where the tile of a creature on a ground lies; drawn when first asked for."""
        key = material, texture
        if key not in self._rows:
            tile = self._tiles[material].transpose(1, 0, 2).copy()
            engine._draw_alpha(tile, (0, 0), self._texture(texture))
            tile = tile.transpose(1, 0, 2)[None]
            self._rows[key] = len(self._tiles)
            self._tiles = np.concatenate([self._tiles, tile])
            self._day = np.concatenate([self._day, tile.astype(np.float64)])
            self._night = np.concatenate([self._night, _at_night(np.ascontiguousarray(tile[0]))[None]])
        return self._rows[key]

    def _texture(self, name: str | None) -> Bytes:
        texture: Bytes = self.textures.get(name, (UNIT, UNIT))
        return texture

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
