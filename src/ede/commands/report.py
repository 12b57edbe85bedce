"""``ede report``: compare runs on one HTML page, with PDF figures and CSV numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ede.cli import parse


@dataclass(frozen=True)
class Report:
    """Compare runs: one self-contained HTML page, its figures as PDF, its numbers as CSV."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders that hold them."""
    out: Path = Path("report")
    """Folder to write."""
    normalisation: str = "ede_code"
    """Procgen's table of limits: ede_code, procgen_paper or train_procgen."""
    seed: int = 0
    """Seed of the bootstrap."""


def main(arguments: list[str]) -> int:
    settings = parse(Report, "report", arguments)
    from ede.report.page import write_report

    page = write_report(settings.runs, settings.out, settings.normalisation, settings.seed)
    print(f"{page}, figures in {settings.out / 'figures'}, numbers in {settings.out / 'numbers'}")
    return 0
