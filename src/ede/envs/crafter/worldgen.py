"""The package's world generation, a whole map at a time.

The thresholds and the order of the random draws are those of ``crafter/worldgen.py``; only cells whose kind
is left to chance are visited one by one, in the package's order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.envs.crafter.noise import Floats, NoiseTable
from ede.envs.crafter.package import MATERIALS, constants, objects
from ede.envs.crafter.world import SIDE

_ID = {name: index for index, name in enumerate(MATERIALS)}

_LAYERS: dict[str, tuple[float, float, int, int]] = {
    "start": (1, 1, 8, 3),
    "water": (1, 1, 3, 15),
    "water_fine": (1, 1, 3, 5),
    "mountain": (1, 1, 0, 15),
    "mountain_fine": (1, 1, 0, 5),
    "cave": (1, 1, 6, 7),
    "horizontal_tunnel": (2, 1 / 5, 7, 3),
    "vertical_tunnel": (1 / 5, 2, 7, 3),
    "coal": (1, 1, 1, 8),
    "iron": (1, 1, 2, 6),
    "lava": (1, 1, 6, 5),
    "sand": (1, 1, 4, 9),
    "tree": (1, 1, 5, 7),
}
"""Layers of noise the package reads: how far x and y are stretched, the slice z, and the size of a feature."""


def _stretch(coordinate: int, factor: float) -> float:
    """``coordinate · factor`` as the package rounds it: it divides by five."""
    return coordinate / 5 if factor == 1 / 5 else coordinate * factor


@cache
def _noise_table() -> NoiseTable:
    """Every layer at every cell; a second or two, once a process."""
    return NoiseTable(
        (_stretch(x, fx) / size, _stretch(y, fy) / size, z)
        for fx, fy, z, size in _LAYERS.values()
        for x in range(SIDE)
        for y in range(SIDE)
    )


def _noise_layers(seed: int) -> dict[str, Floats]:
    return dict(zip(_LAYERS, _noise_table()(seed).reshape(-1, SIDE, SIDE), strict=True))


def generate(world: Any, player: Any) -> None:
    """Fill a fresh world, in which there is only the player, exactly as the package would."""
    noise = _noise_layers(world.random.randint(0, 2**31 - 1))
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
    distance = np.sqrt((x - player.pos[0]) ** 2 + (y - player.pos[1]) ** 2)
    tunnels = _set_materials(world, noise, distance)
    _set_creatures(world, player, distance, tunnels)


def _set_materials(world: Any, noise: dict[str, Floats], distance: Floats) -> npt.NDArray[np.bool_]:
    """Write the map; return where tunnels run."""
    start = 4 - distance
    start += 2 * noise["start"]
    start = 1 / (1 + np.exp(-start))
    water = noise["water"] + 0.15 * noise["water_fine"] + 0.1
    water -= 2 * start
    mountain = (noise["mountain"] + 0.3 * noise["mountain_fine"]) / (1 + 0.3)
    mountain -= 4 * start + 0.3 * water

    is_start = start > 0.5
    is_mountain = ~is_start & (mountain > 0.15)
    is_low = ~is_start & ~is_mountain
    is_cave = is_mountain & (noise["cave"] > 0.15) & (mountain > 0.3)
    is_tunnel = (noise["horizontal_tunnel"] > 0.4) | (noise["vertical_tunnel"] > 0.4)
    tunnels: npt.NDArray[np.bool_] = is_mountain & ~is_cave & is_tunnel
    is_rock = is_mountain & ~is_cave & ~tunnels
    is_sand = is_low & (water > 0.25) & (water <= 0.35) & (noise["sand"] > -0.2)
    is_water = is_low & ~is_sand & (water > 0.3)
    is_forest = is_low & ~is_sand & ~is_water & (noise["tree"] > 0)

    kinds = np.full((SIDE, SIDE), _ID["grass"], np.uint8)
    kinds[is_cave | tunnels] = _ID["path"]
    kinds[is_rock] = _ID["stone"]
    kinds[is_rock & (mountain > 0.3) & (noise["lava"] > 0.35)] = _ID["lava"]
    kinds[is_sand] = _ID["sand"]
    kinds[is_water] = _ID["water"]

    may_be_coal = noise["coal"] > 0
    may_be_iron = noise["iron"] > 0.4
    may_be_diamond = mountain > 0.18
    left_to_chance = is_forest | (is_rock & (may_be_coal | may_be_iron | may_be_diamond))
    cells = zip(
        np.flatnonzero(left_to_chance).tolist(),
        *(where[left_to_chance].tolist() for where in (is_forest, may_be_coal, may_be_iron, may_be_diamond)),
        strict=True,
    )
    uniform = world.random.uniform
    kinds_flat = kinds.reshape(-1)
    for cell, forest, coal, iron, diamond in cells:
        if forest:
            if uniform() > 0.8:
                kinds_flat[cell] = _ID["tree"]
        elif coal and uniform() > 0.85:
            kinds_flat[cell] = _ID["coal"]
        elif iron and uniform() > 0.75:
            kinds_flat[cell] = _ID["iron"]
        elif diamond and uniform() > 0.994:
            kinds_flat[cell] = _ID["diamond"]
    world.set_materials(kinds)
    return tunnels


def _set_creatures(world: Any, player: Any, distance: Floats, tunnels: npt.NDArray[np.bool_]) -> None:
    kinds = world.materials
    is_grass, is_path = kinds == _ID["grass"], kinds == _ID["path"]
    may_be_cow = is_grass & (distance > 3)
    may_be_zombie = np.isin(kinds, [_ID[name] for name in constants.walkable]) & (distance > 10)
    may_be_skeleton = is_path & tunnels
    left_to_chance = may_be_cow | may_be_zombie | may_be_skeleton
    cells = zip(
        np.flatnonzero(left_to_chance).tolist(),
        *(where[left_to_chance].tolist() for where in (may_be_cow, may_be_zombie, may_be_skeleton)),
        strict=True,
    )
    uniform = world.random.uniform
    for cell, cow, zombie, skeleton in cells:
        position = divmod(cell, SIDE)
        if cow and uniform() > 0.985:
            world.add(objects.Cow(world, position))
        elif zombie and uniform() > 0.993:
            world.add(objects.Zombie(world, position, player))
        elif skeleton and uniform() > 0.95:
            world.add(objects.Skeleton(world, position, player))
