"""A game as plain data: arrays and JSON, from which it continues to the bit in any process.

Nothing is pickled. Each kind of creature has a list of the fields that may change; reading a state builds the
creatures anew and sets these fields and no others.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ede.envs.crafter.game import Game
from ede.envs.crafter.package import OrderedSet, objects
from ede.envs.crafter.world import KINDS
from ede.envs.packing import Arrays

FIELDS: dict[str, tuple[str, ...]] = {
    "Player": (
        *("inventory", "achievements", "facing", "action", "sleeping"),
        *("_last_health", "_hunger", "_thirst", "_fatigue", "_recover"),
    ),
    "Cow": ("inventory",),
    "Zombie": ("inventory", "cooldown"),
    "Skeleton": ("inventory", "reload"),
    "Arrow": ("inventory", "facing"),
    "Plant": ("inventory", "grown"),
    "Fence": ("inventory",),
}
"""What a creature holds besides its place in the world (``world``, ``random``, ``pos``, ``player``, ``removed``)."""

_KIND = {kind.__name__: kind for kind in KINDS}

Record = dict[str, Any]


def encode(game: Game) -> tuple[Record, Arrays]:
    """A begun game: what JSON holds well, and the arrays."""
    world = game._world
    _, words, position, *_ = cast("tuple[Any, ...]", world.random.state.get_state())
    index_of = {thing: index for index, thing in enumerate(world._objects) if thing is not None}
    record = {
        "step": game._step,
        "last_health": game._last_health,
        "unlocked": game._unlocked,
        "random_position": int(position),
        "entered": len(world._objects),
        "things": [_encode_thing(thing, index) for thing, index in index_of.items()],
        "chunks": [[key, [index_of[thing] for thing in things]] for key, things in world._chunks.items()],
    }
    return record, {"materials": world.materials, "random_words": words}


def decode(game: Game, record: Record, arrays: Arrays) -> None:
    """Turn ``game`` into the one that was encoded."""
    world = game._world
    world.reset(0)
    world.set_materials(arrays["materials"])
    # The third and fourth words of the state are a spare normal draw; the game makes none.
    world.random.state.set_state(("MT19937", arrays["random_words"], record["random_position"], 0, 0.0))
    game._player = None
    for entry in record["things"]:
        thing = _decode_thing(entry, world, game._player)
        world.seat(thing, entry["index"])
        if entry["kind"] == "Player":
            game._player = thing
    world._objects.extend([None] * (record["entered"] - len(world._objects)))
    for key, indices in record["chunks"]:
        chunk = world._chunks[world.chunk_key((key[0], key[2]))] = OrderedSet()
        for index in indices:
            chunk.add(world._objects[index])
    game._step = record["step"]
    game._last_health = record["last_health"]
    game._unlocked = record["unlocked"]
    game._update_time()


def _encode_thing(thing: Any, index: int) -> Record:
    name = type(thing).__name__
    fields = {field: _plain(getattr(thing, field)) for field in FIELDS[name]}
    return {"kind": name, "index": index, "place": [thing.x, thing.y], "fields": fields}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _decode_thing(entry: Record, world: Any, player: Any) -> Any:
    """The player enters every world first, so later creatures can be told who it is."""
    kind: Any = _KIND[entry["kind"]]
    thing = kind.__new__(kind)
    objects.Object.__init__(thing, world, tuple(entry["place"]))
    if kind in (objects.Zombie, objects.Skeleton):
        thing.player = player
    for field in FIELDS[entry["kind"]]:
        setattr(thing, field, entry["fields"][field])
    if kind is objects.Player:
        thing.facing = tuple(thing.facing)
    if kind is objects.Arrow:
        thing.facing = np.array(thing.facing)
    return thing
