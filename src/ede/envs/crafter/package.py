"""The installed ``crafter`` package, without ``gym``, and its plain twin of our fast game.

The package keeps a chunk's creatures in a ``set``, so which of them leaves the world follows their addresses
in memory: the same seed and actions give another episode in every process. Everything here keeps them in the
order in which they came instead, and that is the only thing it changes about the game.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, cast

from ede.errors import EdeError

VERSION = "1.8.3"
"""The package's last version; the fast game leans on how it is built inside."""


def _load() -> ModuleType:
    """Import ``crafter`` as if ``gym`` were absent: it only wants gym's names, gym prints a notice."""
    install = "pip install 'ede[crafter]'"
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    hides_gym = "crafter" not in modules and "gym" not in modules
    if hides_gym:
        modules["gym"] = None
    try:
        package = import_module("crafter")
        import_module("opensimplex.internals")
        found = version("crafter")
    except (ImportError, PackageNotFoundError) as error:
        raise EdeError(f"Crafter needs a package that is missing ({error}): {install}") from None
    finally:
        if hides_gym:
            del modules["gym"]
    if found != VERSION:
        raise EdeError(f"The crafter package must be version {VERSION}, not {found}: {install}")
    return package


crafter = _load()
constants: Any = import_module("crafter.constants")
engine: Any = import_module("crafter.engine")
objects: Any = import_module("crafter.objects")

MATERIALS: tuple[str | None, ...] = (None, *constants.materials)
"""What a cell of the map may hold, by the package's own id."""
ACTION_NAMES: tuple[str, ...] = tuple(constants.actions)


class OrderedSet(dict[Any, None]):
    """The three things the package asks of a chunk's ``set``, in order of arrival."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]


class _OrderedWorld(engine.World):  # type: ignore[misc]
    def reset(self, seed: int | None = None) -> None:
        super().reset(seed)
        self._chunks: defaultdict[Any, OrderedSet] = defaultdict(OrderedSet)


def plain_env(seed: int, length: int = 10_000) -> Any:
    """The package's own environment with ordered chunks: what the fast game is held against."""
    env = crafter.Env(seed=seed, length=length)
    env._world.__class__ = _OrderedWorld
    return env


def context_of(seed: int, episode: int) -> int:
    """The context of the ``episode``-th episode (from 1) of the package's ``Env(seed=seed)``."""
    return hash((seed, episode)) % (2**31 - 1)
