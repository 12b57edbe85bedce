"""``ede methods``: the table of methods."""

from __future__ import annotations

from dataclasses import dataclass

from ede.cli import parse


@dataclass(frozen=True)
class Methods:
    """List the methods, each as its difference from its parent; `ede describe METHOD` says more."""


def main(arguments: list[str]) -> int:
    parse(Methods, "methods", arguments)
    from ede.methods import METHODS
    from ede.paper.show import table

    rows = [(row.name, row.sentence) for row in METHODS.values()]
    table("Methods", ("name", "what it is"), rows, justify="left")
    return 0
