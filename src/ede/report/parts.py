"""What a report is made of: sections with pictures and tables, and the material they are built from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ede.report.load import Collection
from ede.report.scores import Group
from ede.statistics import Estimate

Cell = str | float | int | Estimate
"""An estimate is shown as a value with its bounds, and takes three columns of the CSV."""
SPLITS = {"train": "training contexts", "test": "held-out contexts"}


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    drawing: Any


@dataclass(frozen=True)
class Numbers:
    """A table; all of it is written as ``name.csv``."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: bool = True
    """Whether the page shows it too; long ones are files only."""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), f"{self.name}: a cell a column"


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    reading: str
    """How to read it, in a sentence or two."""
    pictures: tuple[Picture, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Material:
    """What every section is built from."""

    collection: Collection
    groups: tuple[Group, ...]
    tones: Mapping[str, int]
    """Label → place in the palette, the same in every figure."""
    table: str
    """Procgen's normalisation table."""
    generator: np.random.Generator

    def tasks(self) -> dict[str, list[Group]]:
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.task, []).append(group)
        return found

    def families(self) -> dict[str, dict[str, list[Group]]]:
        """Family → task → groups; pictures with a panel a task show one family."""
        found: dict[str, dict[str, list[Group]]] = {}
        for task, mine in self.tasks().items():
            found.setdefault(mine[0].family, {})[task] = mine
        return found


def seed_list(seeds: Sequence[int]) -> str:
    """0, 1, 2 and 5 as ``0–2, 5``."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)


FEW = 5
"""Below so many seeds a bootstrap over them ends at the best and the worst of them, or nearly so."""


def few_seeds(where: str, seeds: Mapping[str, int]) -> list[str]:
    """What weakens intervals of methods with so few seeds on a task."""
    single = sorted(label for label, fewest in seeds.items() if fewest == 1)
    few = sorted(label for label, fewest in seeds.items() if 1 < fewest < FEW)
    said = []
    if single:
        said.append(
            f"{where}: with one seed on a task an interval is missing or knows nothing of how seeds differ there "
            f"({', '.join(single)})."
        )
    if few:
        said.append(
            f"{where}: with fewer than {FEW} seeds on a task an interval is narrower than 95 % deserves, since it "
            f"knows only the seeds it has ({', '.join(few)})."
        )
    return said


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def distinct(values: Iterable[object]) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values))


def plain(value: object) -> str:
    return (
        ", ".join(f"{key} {value}" for key, value in value.items()) if isinstance(value, dict) else str(value)
    )


def file_name(task: str) -> str:
    return task.replace("/", "-")
