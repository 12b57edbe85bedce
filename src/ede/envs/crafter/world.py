"""The package's world and its creatures with faster ways to ask where things are.

The rules, that is every creature's ``update``, stay the package's. What they call to look around, to measure
distances and to move is replaced here by plain integers and small caches that answer the same.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.envs.crafter.package import MATERIALS, OrderedSet, constants, engine, objects

SIDE = 64
VIEW = (9, 7)
"""Cells that a frame shows, in x and y; the two rows beneath show the inventory."""
MARGIN = (VIEW[0] // 2, VIEW[1] // 2)
VOID = len(MATERIALS)
"""What lies beyond the edge: never in the map itself, only in the margin a frame may show."""

Position = tuple[int, int]

_STEPS: dict[Position, npt.NDArray[np.int64]] = {
    (dx, dy): np.array((dx, dy)) for dx in (-1, 0, 1) for dy in (-1, 0, 1)
}
for _step in _STEPS.values():
    _step.setflags(write=False)


class Random:
    """The two draws the game makes from a ``RandomState``, without its costs for a single number."""

    def __init__(self, seed: int | None) -> None:
        self.state = np.random.RandomState(seed)
        self._next_word = self.state._bit_generator.random_raw
        self._next_fraction = self.state.random_sample

    def uniform(self, low: float = 0.0, high: float = 1.0, size: tuple[int, ...] | None = None) -> Any:
        if size is None:
            return low + (high - low) * self._next_fraction()
        return self.state.uniform(low, high, size)

    def randint(self, low: int, high: int) -> int:
        """``RandomState.randint``: 32-bit words under the smallest mask until one fits (none for one choice)."""
        span = high - low - 1
        mask = (1 << span.bit_length()) - 1
        while span:
            word: int = self._next_word() & mask
            if word <= span:
                return low + word
        return low


class _Quick:
    """Mixed into each creature's class: the same answers from the integers ``x`` and ``y``."""

    world: Any
    walkable: list[str]
    random: Random
    x: int
    y: int
    kind: int
    all_dirs = ((-1, 0), (+1, 0), (0, -1), (0, +1))

    def move(self, direction: Any) -> bool:
        target = self.x + int(direction[0]), self.y + int(direction[1])
        if self.is_free(target):
            self.world.move(self, target)
            return True
        return False

    def is_free(self, target: Any, materials: list[str] | None = None) -> bool:
        material, thing = self.world[target]
        return thing is None and material in (self.walkable if materials is None else materials)

    def distance(self, target: Any) -> int:
        x, y = self._whereabouts(target)
        return abs(x - self.x) + abs(y - self.y)

    def toward(self, target: Any, long_axis: bool = True) -> npt.NDArray[np.int64]:
        x, y = self._whereabouts(target)
        dx, dy = x - self.x, y - self.y
        along_x = abs(dx) > abs(dy) if long_axis else abs(dx) <= abs(dy)
        return _STEPS[((dx > 0) - (dx < 0), 0) if along_x else (0, (dy > 0) - (dy < 0))]

    def random_dir(self) -> Position:
        return self.all_dirs[self.random.randint(0, 4)]

    @staticmethod
    def _whereabouts(target: Any) -> Position:
        if isinstance(target, _Quick):
            return target.x, target.y
        return int(target[0]), int(target[1])


KINDS: tuple[type, ...] = (
    objects.Player,
    objects.Cow,
    objects.Zombie,
    objects.Skeleton,
    objects.Arrow,
    objects.Plant,
    objects.Fence,
)
"""The package's classes, in the order in which its semantic view numbers them; it knows no fence."""

_QUICK = {
    original: type(original.__name__, (_Quick, original), {"kind": len(MATERIALS) + number})
    for number, original in enumerate(KINDS)
}


class World(engine.World):  # type: ignore[misc]
    """A 64×64 world with ordered chunks, whose maps carry a margin so that a frame is one slice of them."""

    def __init__(self) -> None:
        super().__init__((SIDE, SIDE), constants.materials, (12, 12))
        self._names = (*MATERIALS, None)
        corners = range(0, SIDE, 12)
        self._keys = [[super(World, self).chunk_key((x, y)) for y in corners] for x in corners]

    def reset(self, seed: int | None = None) -> None:
        self.random = Random(seed)
        self.daylight = 0.0
        self._chunks: defaultdict[Any, OrderedSet] = defaultdict(OrderedSet)
        self._objects: list[Any] = [None]
        shape = (SIDE + 2 * MARGIN[0], SIDE + 2 * MARGIN[1])
        inner = tuple(slice(margin, margin + SIDE) for margin in MARGIN)
        self._wide_materials = np.full(shape, VOID, np.uint8)
        self._wide_objects = np.zeros(shape, np.uint32)
        self._mat_map = self._wide_materials[inner]
        self._obj_map = self._wide_objects[inner]
        self._mat_map[:] = 0
        self._kinds = np.zeros(256, np.uint8)
        self._space: dict[tuple[tuple[int, ...], str | None], int] = {}

    @property
    def materials(self) -> npt.NDArray[np.uint8]:
        return self._mat_map

    def set_materials(self, kinds: npt.NDArray[np.uint8]) -> None:
        """Write the whole map."""
        self._mat_map[:] = kinds
        self._space.clear()

    def __setitem__(self, pos: Any, material: str) -> None:
        x, y = pos
        before = self._names[self._mat_map[x, y]]
        self._mat_map[x, y] = self._mat_ids[material]
        for changed in (before, material):
            self._space.pop((self.chunk_key(pos), changed), None)

    def __getitem__(self, pos: Any) -> tuple[str | None, Any]:
        x, y = pos
        if 0 <= x < SIDE and 0 <= y < SIDE:
            return self._names[self._mat_map[x, y]], self._objects[self._obj_map[x, y]]
        return None, None

    def chunk_key(self, pos: Any) -> tuple[int, ...]:
        x, y = pos
        return self._keys[x // 12][y // 12]  # type: ignore[no-any-return]

    def space(self, chunk: tuple[int, ...], material: str) -> int:
        """How many cells of a chunk are of a material; remembered until one comes or goes."""
        key = chunk, material
        if key not in self._space:
            self._space[key] = int(self.mask(*chunk, material).sum())
        return self._space[key]

    def add(self, thing: Any) -> None:
        """Every creature enters the world here, whoever made it, and takes its quick class."""
        self.seat(thing, len(self._objects))
        self._chunks[self.chunk_key((thing.x, thing.y))].add(thing)

    def seat(self, thing: Any, index: int) -> None:
        """Give a new thing its place in the list and on the map, without entering it in a chunk."""
        thing.__class__ = _QUICK[type(thing)]
        thing.x, thing.y = int(thing.pos[0]), int(thing.pos[1])
        thing.pos = np.array((thing.x, thing.y))
        assert self._obj_map[thing.x, thing.y] == 0
        self._objects.extend([None] * (index + 1 - len(self._objects)))
        self._objects[index] = thing
        if index >= len(self._kinds):
            self._kinds = np.concatenate([self._kinds, np.zeros(max(index, 256), np.uint8)])
        self._kinds[index] = thing.kind
        self._obj_map[thing.x, thing.y] = index

    def move(self, thing: Any, pos: Any) -> None:
        if thing.removed:
            return
        x, y = pos
        assert self._obj_map[x, y] == 0
        self._obj_map[x, y] = self._obj_map[thing.x, thing.y]
        self._obj_map[thing.x, thing.y] = 0
        old, new = self.chunk_key((thing.x, thing.y)), self.chunk_key(pos)
        if old is not new:
            self._chunks[old].remove(thing)
            self._chunks[new].add(thing)
        thing.x, thing.y = x, y
        thing.pos = np.array(pos)

    def count_of_things(self) -> int:
        """How many things ever entered; a thing's index never changes."""
        return len(self._objects)

    def near(self, thing: Any, reach: int, before: int) -> list[Any]:
        """The other things nearer than ``reach`` steps whose index is below ``before``, in order of entry."""
        x, y = thing.x, thing.y
        window = self._obj_map[max(0, x - reach) : x + reach, max(0, y - reach) : y + reach]
        found = [self._objects[index] for index in sorted(window[window > 0].tolist()) if index < before]
        return [
            other for other in found if other is not thing and abs(other.x - x) + abs(other.y - y) < reach
        ]

    def semantic(self) -> npt.NDArray[np.uint8]:
        """The package's semantic view: a cell's material, or the creature upon it."""
        canvas = self._mat_map.copy()
        indices = self._obj_map.reshape(-1)
        where = np.flatnonzero(indices)
        canvas.reshape(-1)[where] = self._kinds[indices[where]]
        return canvas

    def thing(self, index: int) -> Any:
        return self._objects[index]

    def window(self, thing: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        """Materials and object indices of the cells a frame shows around a thing, [9, 7] each."""
        where = slice(thing.x, thing.x + VIEW[0]), slice(thing.y, thing.y + VIEW[1])
        return self._wide_materials[where], self._wide_objects[where]
