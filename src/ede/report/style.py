"""How every figure of the project looks: Okabe–Ito colours, sizes of a printed page, reproducible files.

No ``pyplot`` and so no global state: a figure is made in a context that carries the style, and is saved
by name.

    with figure("column", height=2.2) as drawing:
        axes = drawing.subplots()
        axes.plot(x, y, color=colour(0))
        save(drawing, out_dir, "curve")     # curve.pdf and curve.png
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ede.errors import EdeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Width = Literal["column", "page"]

WIDTHS: dict[Width, float] = {"column": 3.4, "page": 7.0}
"""Inches: one column of a two-column page, and the page."""

DPI = 200
"""Pixels an inch of a PNG."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe & Ito (2008), told apart with any kind of colour vision; yellow last, since it is faint on white."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")

_STYLE: dict[str, Any] = {
    "font.size": 8.0,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "patch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "savefig.dpi": DPI,
}


def colour(index: int) -> str:
    """The colour of the ``index``-th series; after eight they repeat and ``line`` tells them apart."""
    return COLOURS[index % len(COLOURS)]


def line(index: int) -> str:
    """The dash pattern that tells the ``index``-th series from one of the same colour."""
    return LINES[index // len(COLOURS) % len(LINES)]


def marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


@contextmanager
def figure(width: Width = "column", height: float = 2.2) -> Iterator[Figure]:
    """A figure of the given width and a height in inches, drawn inside the block in the house style."""
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        yield Figure(figsize=(WIDTHS[width], height), layout="constrained")


_ANONYMOUS: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
"""What a file would say of when and by what it was made, left out so that its bytes can be compared."""


def save(
    drawing: Figure, out_dir: Path, name: str, formats: tuple[str, ...] = ("pdf", "png")
) -> tuple[Path, ...]:
    """Write ``name.pdf`` and ``name.png``; the same drawing gives the same bytes on any day."""
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = tuple(out_dir / f"{name}.{kind}" for kind in formats)
    with _matplotlib().rc_context(_STYLE):
        _settle(drawing)
        for path in paths:
            drawing.savefig(path, metadata=_ANONYMOUS[path.suffix[1:]])
    return paths


def svg(drawing: Figure, name: str) -> str:
    """The drawing as one ``<svg>`` element to stand inside a page; ``name`` keeps its ids from clashing."""
    text = io.StringIO()
    with _matplotlib().rc_context({**_STYLE, "svg.hashsalt": name, "svg.id": name}):
        _settle(drawing)
        drawing.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    source = text.getvalue()
    return source[source.index("<svg") :]


def _settle(drawing: Figure) -> None:
    """Lay the figure out once: three formats would otherwise solve the same layout three times."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if isinstance(drawing.get_layout_engine(), ConstrainedLayoutEngine):
        drawing.draw_without_rendering()
        drawing.set_layout_engine("none")


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise EdeError("Figures need matplotlib; install it with: pip install 'ede[report]'") from None
    return matplotlib
