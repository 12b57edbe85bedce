"""A figure or table of the paper by name: what it is called, what it claims, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SWEEP = "sweep.toml"
"""The file beside an item's page that holds its table."""


@dataclass(frozen=True)
class Request:
    """What the user asked of an item."""

    out: Path
    """Folder that receives the figures (PDF and PNG) and the numbers (CSV)."""
    preset: str = "laptop"
    """``laptop`` draws what can be had here; ``paper`` is the published size: a plan for a cluster."""
    seed: int = 0
    """Seed of whatever is random in drawing: bootstrap draws, simulated runs, tabular trials."""
    runs: tuple[Path, ...] = ()
    """Run folders, or folders that hold them, for items that show what was trained."""


@dataclass(frozen=True)
class Item:
    """One figure or table of the paper."""

    name: str
    sentence: str
    """What it shows, for ``ede paper --list``."""
    draw: Callable[[Request], None]
    """Prints published beside ours with a verdict, and writes PDF, PNG and CSV into ``request.out``."""
    table: Callable[[str], str] | None = None
    """Preset → what it would train, as a table for ``ede sweep``; None where nothing is trained."""
