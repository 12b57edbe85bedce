"""How a paper item speaks: tables for the terminal, CSV for everyone else, and the marks of a number's origin."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

Origin = Literal["published", "measured here", "not yet"]
"""Every number an item shows carries one of these, and a table never mixes them in one column unmarked."""

PUBLISHED: Origin = "published"
MEASURED: Origin = "measured here"
NOT_YET: Origin = "not yet"

Cell = str | float | int


@dataclass(frozen=True)
class Shown:
    """A table as it was printed."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


Said = str | Shown

# Whatever prints need not know whether a page is made of it: the study of tables prints through here as well.
_keeping: ContextVar[list[Said] | None] = ContextVar("keeping", default=None)


@contextmanager
def kept() -> Iterator[list[Said]]:
    """Everything that is printed inside the block, in order."""
    said: list[Said] = []
    token = _keeping.set(said)
    try:
        yield said
    finally:
        _keeping.reset(token)


def _keep(one: Said) -> None:
    if (said := _keeping.get()) is not None:
        said.append(one)


def console() -> Console:
    """As wide as the terminal; a file or a pipe gets lines wide enough for any table here."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=150)


def text(cell: Cell) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    justify: Literal["left", "right"] = "right",
) -> None:
    """Print a table; numbers stand right, words left, and so does the first column."""
    rows = list(rows)
    _keep(Shown(title, columns, rows))
    shown = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        shown.add_column(column, justify=justify if index else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(text, row))
    console().print(shown)


def say(sentence: str) -> None:
    _keep(sentence)
    console().print(sentence, markup=False, highlight=False)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
