"""One self-contained HTML page, its figures as PDF and PNG, its numbers as CSV."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from importlib.resources import files
from pathlib import Path

import numpy as np

from ede.errors import EdeError
from ede.report.detail import contexts, crafter, generalisation_gap, learning_curves, per_task, uncertainty
from ede.report.load import load
from ede.report.overview import aggregates, cost, what_was_run
from ede.report.parts import Cell, Material, Section, count
from ede.report.scores import Group, groups, natural
from ede.report.style import WIDTHS, save, svg
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
    material = Material(
        collection=collection,
        groups=found,
        tones={label: index for index, label in enumerate(order_of_tones(found))},
        table=table,
        generator=np.random.default_rng(seed),
    )
    sections = tuple(section for make in SECTIONS if (section := make(material)) is not None)
    drawings = {picture.name: picture.drawing for section in sections for picture in section.pictures}
    out.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for picture in section.pictures:
            save(picture.drawing, out / "figures", picture.name, formats=("pdf",))
        for numbers in section.numbers:
            write_csv(out / "numbers" / f"{numbers.name}.csv", numbers.columns, numbers.rows)
    page = out / "report.html"
    tasks = list(material.tasks())
    text = render(
        f"{count(len(material.tones), 'method')} on {tasks[0] if len(tasks) == 1 else count(len(tasks), 'task')}",
        "Made by ede report from run folders alone. Every figure is in figures/, every number in numbers/, beside "
        "this page.",
        sections,
        {name: svg(drawing, name) for name, drawing in drawings.items()},
        {name for name, drawing in drawings.items() if drawing.get_figwidth() < WIDTHS["page"]},
        "Intervals are 95 % percentile intervals of a stratified bootstrap over seeds. Returns are raw unless a "
        "section says that they are normalised.",
    )
    page.write_text(text, encoding="utf-8")
    return page


def order_of_tones(found: Sequence[Group]) -> list[str]:
    """Colours are few: methods that meet on several tasks get theirs first."""
    met = Counter(group.label for group in found)
    return sorted(met, key=lambda label: (-met[label], natural(label)))


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
    """A number as a reader wants it: three digits that count, a dash where there is none; an interval in one piece."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        alone = math.isnan(cell.low)
        return readable(cell.value) + (
            "" if alone else f" [{readable(cell.low)},\u00a0{readable(cell.high)}]"
        )
    if isinstance(cell, int):
        return f"{cell:,}"
    if math.isnan(cell):
        return "–"
    return (
        f"{cell:,.0f}"
        if abs(cell) >= 1000
        else f"{cell:.1f}"
        if abs(cell) >= 100
        else f"{cell:#.3g}".rstrip(".")
    )


def render(
    title: str,
    origin: str,
    sections: Sequence[Section],
    pictures: Mapping[str, str],
    narrow: Set[str],
    footer: str,
) -> str:
    """The page; ``pictures`` are elements by name, those in ``narrow`` as wide as a column."""
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
    return environment.from_string(source).render(
        title=title, origin=origin, sections=sections, pictures=pictures, narrow=narrow, footer=footer
    )
