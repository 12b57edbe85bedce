"""One self-contained HTML page, its figures as PDF and PNG, its numbers as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from ede.errors import EdeError
from ede.report.detail import contexts, crafter, generalisation_gap, learning_curves, per_task, uncertainty
from ede.report.load import load
from ede.report.overview import aggregates, cost, what_was_run
from ede.report.parts import Cell, Material, Section
from ede.report.scores import groups
from ede.report.style import save, svg
from ede.statistics import Estimate

SECTIONS = (
    what_was_run,
    aggregates,
    per_task,
    learning_curves,
    generalisation_gap,
    contexts,
    crafter,
    uncertainty,
    cost,
)
"""In reading order; one that has nothing to show returns nothing."""


def write_report(runs: Sequence[Path], out: Path, table: str = "ede_code", seed: int = 0) -> Path:
    """Read ``runs``, compare them and write ``report.html``, ``figures/`` and ``numbers/`` into ``out``."""
    collection = load(runs)
    found = groups(collection.runs)
    methods = dict.fromkeys(group.label for group in sorted(found, key=lambda group: group.label))
    material = Material(
        collection=collection,
        groups=found,
        tones={label: index for index, label in enumerate(methods)},
        table=table,
        generator=np.random.default_rng(seed),
    )
    sections = tuple(section for make in SECTIONS if (section := make(material)) is not None)
    pictures = {
        picture.name: svg(picture.drawing, picture.name)
        for section in sections
        for picture in section.pictures
    }
    out.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for picture in section.pictures:
            save(picture.drawing, out / "figures", picture.name, formats=("pdf",))
        for numbers in section.numbers:
            write_csv(out / "numbers" / f"{numbers.name}.csv", numbers.columns, numbers.rows)
    page = out / "report.html"
    page.write_text(_render(material, sections, pictures), encoding="utf-8")
    return page


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        estimated = [any(isinstance(row[place], Estimate) for row in rows) for place in range(len(columns))]
        writer.writerow(
            [
                name
                for column, three in zip(columns, estimated, strict=True)
                for name in ([column, f"{column}_low", f"{column}_high"] if three else [column])
            ]
        )
        for row in rows:
            writer.writerow([field for cell in row for field in _fields(cell)])


def _fields(cell: Cell) -> list[str | int]:
    """Numbers to six digits; one that does not exist leaves its field empty."""
    if isinstance(cell, Estimate):
        return [field for part in (cell.value, cell.low, cell.high) for field in _fields(part)]
    if isinstance(cell, float):
        return ["" if math.isnan(cell) else f"{cell:.6g}"]
    return [cell]


def readable(cell: Cell) -> str:
    """A number as a reader wants it: three digits that count, a dash where there is none."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        alone = math.isnan(cell.low)
        return readable(cell.value) + ("" if alone else f" [{readable(cell.low)}, {readable(cell.high)}]")
    if isinstance(cell, int):
        return f"{cell:,}"
    if math.isnan(cell):
        return "–"
    return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.1f}" if abs(cell) >= 100 else f"{cell:.3g}"


def _render(material: Material, sections: Sequence[Section], pictures: dict[str, str]) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise EdeError("The report needs jinja2; install it with: pip install 'ede[report]'") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["readable"] = readable
    environment.tests["quantity"] = lambda cell: not isinstance(cell, str)
    source = (files("ede") / "report" / "page.html.jinja").read_text(encoding="utf-8")
    tasks = material.tasks()
    return environment.from_string(source).render(
        title=f"{len(material.tones)} methods on {len(tasks)} tasks",
        sections=sections,
        pictures=pictures,
    )
