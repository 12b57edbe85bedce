"""The paper's figures and tables by name; every module beside this one offers its ``ITEMS``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ede.errors import EdeError
from ede.paper.item import Item, Request

__all__ = ["Item", "Request", "find", "items"]


def items() -> dict[str, Item]:
    """Every item of every module in this package, in the modules' alphabetical order."""
    found: dict[str, Item] = {}
    for module in iter_modules(__path__):
        for item in getattr(import_module(f"{__name__}.{module.name}"), "ITEMS", ()):
            if item.name in found:
                raise ValueError(f"Two items of the paper are named '{item.name}'.")
            found[item.name] = item
    return found


def find(name: str) -> Item:
    known = items()
    if name not in known:
        raise EdeError(f"There is no paper item '{name}'; `ede paper --list` shows them all.")
    return known[name]
