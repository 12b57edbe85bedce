"""A paper item as one self-contained HTML page: what was printed, with its figures."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from ede.paper.item import Item
from ede.paper.show import Cell, Said, Shown
from ede.report.page import render
from ede.report.parts import Numbers, Picture, Section
from ede.report.style import DPI, WIDTHS


def write_page(item: Item, command: str, said: Sequence[Said], images: Sequence[Path], out: Path) -> Path:
    """Write ``page.html`` into ``out``: the sentences, then the images, then the tables."""
    tables = [one for one in said if isinstance(one, Shown)]
    section = Section(
        item.name,
        item.sentence,
        "Every number carries its origin: published is printed in the paper, measured here comes from runs of this "
        "package, not yet has no run behind it.",
        tuple(Picture(image.stem, f"{image.stem}.pdf", None) for image in images),
        tuple(
            Numbers(
                "", table.title, tuple(table.columns), tuple(tuple(map(_unbroken, row)) for row in table.rows)
            )
            for table in tables
        ),
        tuple(one.replace("`", "") for one in said if isinstance(one, str)),
    )
    found = {image.stem: image.read_bytes() for image in images}
    page = out / "page.html"
    text = render(
        item.name,
        f"Made by: {command}",
        (section,),
        {name: _element(name, data) for name, data in found.items()},
        {name for name, data in found.items() if _width(data) < WIDTHS["page"] * DPI},
        "Figures (PDF and PNG) and numbers (CSV) are beside this page.",
    )
    page.write_text(text, encoding="utf-8")
    return page


def _unbroken(cell: Cell) -> Cell:
    """An interval stays on one line, and so does a value with its deviation."""
    if not isinstance(cell, str):
        return cell
    return re.sub(r"\[(\S+), (\S+)\]", "[\\1,\u00a0\\2]", cell).replace(" ± ", "\u00a0±\u00a0")


def _element(name: str, data: bytes) -> str:
    return f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'


def _width(data: bytes) -> int:
    """Pixels, from the header of a PNG."""
    return int.from_bytes(data[16:20], "big")
