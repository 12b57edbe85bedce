"""Drawings of a comparison, each from plain numbers; what the numbers are is decided elsewhere.

A figure is made for the printed page (7 inches wide) and for the screen alike. A method keeps its colour through
all figures of a report: callers hand in ``tones``, label → place in the palette.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from textwrap import fill
from typing import Any

import numpy as np

from ede.report.scores import Curve
from ede.report.style import COLOURS, colour, figure, line
from ede.statistics import Estimate, Floats, Profile

Tones = Mapping[str, int]
MANY = len(COLOURS)
"""With more lines than colours a panel cannot be read: each then has a panel of its own (``lattice``)."""
TITLES = {"mean": "Mean", "median": "Median", "iqm": "IQM", "optimality_gap": "Optimality gap"}


@dataclass(frozen=True)
class Trace:
    """A line of a ``lattice``, with a band where it has one."""

    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


def over_steps(curve: Curve | None) -> Trace | None:
    return None if curve is None else Trace(curve.steps / 1e6, curve.mean, curve.low, curve.high)


@contextmanager
def panels(
    titles: Sequence[str], height: float, columns: int = 4, **sharing: Any
) -> Iterator[tuple[Any, list[Any]]]:
    """A page-wide figure with one titled panel a name, at most ``columns`` in a row."""
    columns = min(columns, len(titles))
    rows = ceil(len(titles) / columns)
    # What stands above a panel without touching the next.
    letters = 48 if columns < 3 else 24 if columns < 5 else 19
    shown = [fill(title, letters, break_long_words=False) for title in titles]
    height += 0.13 * max(title.count("\n") for title in shown)
    with figure("page", height=height * rows + 0.35) as drawing:
        grid = drawing.subplots(rows, columns, squeeze=False, **sharing).flat
        for axes, title in zip(grid, shown, strict=False):
            axes.set_title(title)
            axes.locator_params(axis="x", nbins=5)
        for axes in grid[len(titles) :]:
            axes.set_axis_off()
        yield drawing, list(grid)[: len(titles)]


def intervals(found: Mapping[str, Mapping[str, Estimate]], tones: Tones, xlabel: str) -> Any:
    """One panel a metric, one bar a method: the band is the interval, the stroke the value."""
    metrics = list(next(iter(found.values())))
    beside = _beside(found)
    height = 0.6 + sum(max(0.2, 0.14 * (label.count("\n") + 1)) for label in beside)
    with panels([TITLES.get(name, name) for name in metrics], height, sharey=True) as (drawing, grid):
        for axes, name in zip(grid, metrics, strict=True):
            axes.use_sticky_edges = False
            for place, (label, estimates) in enumerate(found.items()):
                estimate, tone = estimates[name], colour(tones[label])
                axes.barh(place, estimate.high - estimate.low, left=estimate.low, color=tone, alpha=0.4)
                axes.plot([estimate.value] * 2, [place - 0.4, place + 0.4], color=tone, linewidth=2)
            axes.grid(visible=False, axis="y")
            if len(metrics) > 2:  # narrow panels: values close together have long labels
                axes.locator_params(axis="x", nbins=3)
        grid[0].set_yticks(range(len(found)), beside)
        grid[0].set_ylim(len(found) - 0.4, -0.6)
        drawing.supxlabel(xlabel, fontsize=8)
    return drawing


def _beside(labels: Iterable[str]) -> list[str]:
    """Labels of rows, broken so that they leave the panels most of the width."""
    return [fill(label, 28, break_long_words=False) for label in labels]


def curves(
    found: Mapping[str, Mapping[str, Curve]],
    tones: Tones,
    ylabel: str,
    columns: int = 4,
    height: float = 1.9,
    share_y: bool = False,
) -> Any:
    """Panel title → label → curve, over millions of environment steps.

    A stretch with fewer seeds than the curve has at its fullest is drawn faintly: seeds are missing there.
    """
    with panels(list(found), height, columns, sharey=share_y) as (drawing, grid):
        for axes, mine in zip(grid, found.values(), strict=True):
            for label, curve in mine.items():
                style: dict[str, Any] = {"color": colour(tones[label]), "linestyle": line(tones[label])}
                whole = curve.seeds == curve.seeds.max()
                million = curve.steps / 1e6
                axes.plot(million, curve.mean, alpha=0.35, **style)
                axes.plot(million, np.where(whole, curve.mean, np.nan), label=label, **style)
                axes.fill_between(
                    million, curve.low, curve.high, color=style["color"], alpha=0.15, linewidth=0
                )
            axes.set_xlim(left=0)
        _finish(drawing, grid, {label for mine in found.values() for label in mine}, tones)
        drawing.supxlabel("Million environment steps", fontsize=8)
        drawing.supylabel(ylabel, fontsize=8)
    return drawing


def lattice(
    found: Mapping[str, Sequence[Trace | None]], tones: Tones, names: Sequence[str], xlabel: str, ylabel: str
) -> Any:
    """A panel a label: its own lines in colour, the first solid and the second dotted, the first of all others grey."""
    dashes = ("-", ":")
    with panels(list(found), 1.15, columns=5, sharex=True, sharey=True) as (drawing, grid):
        for axes, mine in zip(grid, found.values(), strict=True):
            for first, *_ in found.values():
                if first is not None and first is not mine[0]:
                    axes.plot(first.x, first.y, color="#cfcfcf", linewidth=0.6)
        for axes, (label, mine) in zip(grid, found.items(), strict=True):
            tone = colour(tones[label])
            for trace, dash in zip(mine, dashes, strict=False):
                if trace is not None:
                    axes.plot(trace.x, trace.y, color=tone, linestyle=dash)
                    if trace.low is not None:
                        axes.fill_between(trace.x, trace.low, trace.high, color=tone, alpha=0.2, linewidth=0)
        for axes in grid[-5:]:
            axes.tick_params(labelbottom=True)
        _dash_legend(drawing, names, dashes, [])
        drawing.supxlabel(xlabel, fontsize=8)
        drawing.supylabel(ylabel, fontsize=8)
    return drawing


def _dash_legend(drawing: Any, names: Sequence[str], dashes: Sequence[str], before: list[Any]) -> None:
    """What the dashes mean, in grey, after the handles of the colours."""
    from matplotlib.lines import Line2D

    handles = [
        *before,
        *(
            Line2D([], [], color="#555555", linestyle=dash, label=name)
            for name, dash in zip(names, dashes, strict=False)
        ),
    ]
    drawing.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 5))


def dots(
    found: Mapping[str, Mapping[str, Sequence[Estimate | None]]],
    tones: Tones,
    names: Sequence[str],
    xlabel: str,
    zero: bool = False,
) -> Any:
    """Panel → label → one estimate a name: the first filled, the second hollow, with intervals as whiskers."""
    labels = list(dict.fromkeys(label for mine in found.values() for label in mine))
    with panels(list(found), 0.55 + 0.2 * len(labels), sharey=True) as (drawing, grid):
        for axes, mine in zip(grid, found.values(), strict=True):
            if zero:
                axes.axvline(0, color="black", linewidth=0.7)
            for label, estimates in mine.items():
                for index, estimate in enumerate(estimates):
                    if estimate is None:
                        continue
                    place = labels.index(label) + (index - (len(names) - 1) / 2) * 0.3
                    tone = colour(tones[label])
                    axes.plot([estimate.low, estimate.high], [place, place], color=tone, linewidth=1.2)
                    face = "white" if index else tone
                    axes.plot(estimate.value, place, "o", color=tone, markerfacecolor=face)
            axes.grid(visible=False, axis="y")
        grid[0].set_yticks(range(len(labels)), _beside(labels))
        grid[0].set_ylim(len(labels) - 0.5, -0.5)
        if len(names) > 1:
            from matplotlib.lines import Line2D

            handles = [
                Line2D([], [], color="#555555", marker="o", linestyle="", markerfacecolor=face, label=name)
                for name, face in zip(names, ("#555555", "white"), strict=True)
            ]
            drawing.legend(handles=handles, loc="outside upper center", ncols=len(names))
        drawing.supxlabel(xlabel, fontsize=8)
    return drawing


def shares(
    found: Mapping[str, Mapping[str, Sequence[Floats]]], tones: Tones, names: Sequence[str], xlabel: str
) -> Any:
    """Panel → label → one sample a name: the share of the sample that reaches each value, ``names`` by dash."""
    dashes, ylabel = ("-", ":"), "Share that reaches it"
    crowded = [mine for mine in found.values() if len(mine) > MANY]
    if crowded and len(found) == 1:
        traces = {label: [_survival(sample) for sample in mine] for label, mine in crowded[0].items()}
        return lattice(traces, tones, names, xlabel, ylabel)
    with panels(list(found), 1.9, sharey=True) as (drawing, grid):
        for axes, mine in zip(grid, found.values(), strict=True):
            for label, samples in mine.items():
                for sample, dash in zip(samples, dashes, strict=True):
                    if (trace := _survival(sample)) is not None:
                        axes.plot(trace.x, trace.y, color=colour(tones[label]), linestyle=dash)
            axes.set_ylim(0, 1.02)
        from matplotlib.lines import Line2D

        handles = [
            Line2D([], [], color=colour(tones[label]), label=label)
            for label in tones
            if any(label in mine for mine in found.values())
        ]
        _dash_legend(drawing, names, dashes, handles)
        drawing.supxlabel(xlabel, fontsize=8)
        drawing.supylabel(ylabel, fontsize=8)
    return drawing


def _survival(sample: Floats) -> Trace | None:
    """The share of the sample that reaches each value, as the corners of its steps."""
    if not len(sample):
        return None
    value, count = np.unique(sample, return_counts=True)
    share = count[::-1].cumsum()[::-1] / len(sample)
    return Trace(np.repeat(value, 2), np.append(np.repeat(share, 2)[1:], 0.0))


def profiles(found: Mapping[str, Profile], tones: Tones, xlabel: str) -> Any:
    """The share of runs above each normalised score."""
    ylabel = "Share of runs above it"
    if len(found) > MANY:
        traces = {label: [Trace(p.thresholds, p.value, p.low, p.high)] for label, p in found.items()}
        return lattice(traces, tones, ("the method named, all others grey",), xlabel, ylabel)
    with figure("column", height=2.4) as drawing:
        axes = drawing.subplots()
        for label, profile in found.items():
            style: dict[str, Any] = {"color": colour(tones[label]), "linestyle": line(tones[label])}
            axes.plot(profile.thresholds, profile.value, label=label, **style)
            axes.fill_between(
                profile.thresholds, profile.low, profile.high, color=style["color"], alpha=0.15, linewidth=0
            )
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.set_ylim(0, 1.02)
        _finish(drawing, [axes], set(found), tones, columns=3)
    return drawing


def spectrum(rates: Mapping[str, Floats], names: Sequence[str], tones: Tones) -> Any:
    """Success rates of Crafter's achievements, one bar a method, on a logarithmic scale as the benchmark has it."""
    with figure("page", height=2.8) as drawing:
        axes = drawing.subplots()
        width = 0.8 / len(rates)
        for index, (label, rate) in enumerate(rates.items()):
            place = np.arange(len(names)) + (index - (len(rates) - 1) / 2) * width
            axes.bar(place, np.maximum(rate, 1e-3), width, color=colour(tones[label]), label=label)
        axes.set_yscale("log")
        axes.set_ylim(0.01, 100)
        axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        axes.set_xticks(
            range(len(names)), [name.replace("_", " ") for name in names], rotation=60, ha="right"
        )
        axes.set_ylabel("Success rate, %")
        axes.grid(visible=False, axis="x")
        _finish(drawing, [axes], set(rates), tones)
    return drawing


def _finish(drawing: Any, grid: Sequence[Any], labels: set[str], tones: Tones, columns: int = 5) -> None:
    """One legend above all panels, in the order of the palette."""
    by_label = {}
    for axes in grid:
        by_label.update(dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
    ordered = [label for label in tones if label in labels and label in by_label]
    # At 7 points an inch holds about 17 letters, and an entry takes 6 beside its label.
    fit = int(17 * drawing.get_figwidth()) // (max(map(len, ordered), default=0) + 6)
    drawing.legend(
        [by_label[label] for label in ordered],
        ordered,
        loc="outside upper center",
        ncols=max(1, min(len(ordered), columns, fit)),
    )
