"""``ede paper``: a figure or table of the paper by name, ours beside theirs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ede.cli import parse
from ede.errors import EdeError


@dataclass(frozen=True)
class Paper:
    """Draw a figure or table of the paper; every number is marked published, measured here or not yet."""

    item: Annotated[str, tyro.conf.Positional] = ""
    """The figure or table to draw."""
    out: Path | None = None
    """Folder for PDF, PNG and CSV; `paper/ITEM` when not given."""
    preset: Literal["laptop", "paper"] = "laptop"
    """`laptop` draws what can be had here; `paper` prints the published plan for a cluster."""
    runs: tuple[Path, ...] = ()
    """Run folders, or folders that hold them."""
    train: bool = False
    """First train what is missing of the preset's size, into `OUT/runs`: hours on a laptop. `ede sweep OUT/sweep.toml
    --dry-run` says how many; the same line carries on."""
    seed: int = 0
    """Seed of bootstrap draws and simulations."""
    list: bool = False
    """Show every item with a sentence, and draw none."""


def main(arguments: list[str]) -> int:
    settings = parse(Paper, "paper", arguments)

    from ede.commands.sweep import main as sweep
    from ede.paper import find, items
    from ede.paper.item import SWEEP, Request
    from ede.paper.page import write_page
    from ede.paper.show import kept

    if settings.list:
        known = items()
        width = max(map(len, known))
        for item in known.values():
            print(f"{item.name:<{width}}  {item.sentence}")
        return 0
    if not settings.item:
        raise EdeError("Name a figure or table of the paper; `ede paper --list` shows them all.")
    out = settings.out or Path("paper") / settings.item
    item, runs = find(settings.item), settings.runs
    if settings.train:
        if not item.table:
            raise EdeError(f"{item.name} trains nothing; leave out --train.")
        _write_table(out, item.table(settings.preset))
        code = sweep([str(out / SWEEP), "--out", str(out / "runs")])
        if code:
            return code
        runs = (*runs, out / "runs")
    before = _images(out)
    with kept() as said:
        item.draw(Request(out=out, preset=settings.preset, seed=settings.seed, runs=runs))
    drawn = [path for path, changed in _images(out).items() if before.get(path) != changed]
    if item.table:
        _write_table(out, item.table(settings.preset))
    write_page(item, shlex.join(["ede", "paper", *arguments]), said, drawn, out)
    written = sorted(path.name for path in out.iterdir())
    print(f"In {out}: {', '.join(written)}")
    return 0


def _write_table(out: Path, table: str) -> None:
    from ede.paper.item import SWEEP

    out.mkdir(parents=True, exist_ok=True)
    (out / SWEEP).write_text(table, encoding="utf-8")


def _images(out: Path) -> dict[Path, int]:
    """Each image of the folder and when it was written."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.png"))}
