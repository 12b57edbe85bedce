"""Worlds behind one contract; ``make_env`` is the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from operator import index
from typing import Any

from ede.contexts import Contexts
from ede.envs.contract import Lanes, Observations, Step, WorldSpec
from ede.errors import EdeError

__all__ = ["FAMILIES", "Family", "Lanes", "Observations", "Step", "WorldSpec", "make_env"]


@dataclass(frozen=True)
class Family:
    """A row of the table of worlds."""

    prefix: str
    """``procgen`` plays tasks ``procgen/<name>``; a family without a slash is one task."""
    module: str
    """Where ``make(name, lanes, contexts, seed, **options) -> Lanes`` lives; imported when first asked for."""
    sentence: str
    has_names: bool = True
    """Whether ``/<name>`` follows the prefix."""


FAMILIES: dict[str, Family] = {
    family.prefix: family
    for family in (
        Family("procgen", "ede.envs.procgen", "sixteen procedurally generated games, 64×64 RGB"),
        Family(
            "crafter", "ede.envs.crafter", "survival with 22 achievements, 64×64 RGB or 84×84 grey", False
        ),
        Family("bigfish-simple", "ede.envs.bigfish", "the paper's simplified bigfish, for a laptop", False),
        Family("gym", "ede.envs.gym", "any Gymnasium environment with discrete actions, gym/<id>"),
    )
}


def make_env(
    task: str, *, lanes: int = 1, contexts: Contexts | None = None, seed: int = 0, **options: Any
) -> Lanes:
    """Make ``lanes`` copies of a task whose episodes draw from ``contexts`` (default: the full distribution)."""
    prefix, _, name = task.partition("/")
    family = FAMILIES.get(prefix)
    if family is None:
        known = ", ".join(
            f"{row.prefix}/<name>" if row.has_names else row.prefix for row in FAMILIES.values()
        )
        raise EdeError(f"There is no task '{task}'; the worlds are {known} (see `ede envs`).")
    if family.has_names != bool(name):
        raise EdeError(
            f"'{task}' needs a name after the slash (see `ede envs`)."
            if family.has_names
            else f"'{prefix}' takes no name: write '{prefix}'."
        )
    try:
        # Procgen's library ends the whole process where a setting is not Python's own whole number.
        lanes, seed = index(lanes), index(seed)
    except TypeError:
        raise EdeError(f"lanes and seed must be whole numbers; got {lanes!r} and {seed!r}.") from None
    if not isinstance(contexts, Contexts | None):
        raise EdeError(f"contexts must be a set such as ede.Contexts.range(0, 200); got {contexts!r}.")
    if lanes < 1:
        raise EdeError(f"At least one lane is needed; got {lanes}.")
    make: Callable[..., Lanes] = import_module(family.module).make
    return make(name, lanes=lanes, contexts=contexts or Contexts.full(), seed=seed, **options)
