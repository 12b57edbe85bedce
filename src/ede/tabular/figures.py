"""The paper's figures of the tabular study, drawn from a ``Study``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ede.report.style import COLOURS, figure, save
from ede.tabular.study import METHODS, Cell, Row, Study, cells
from ede.tabular.worlds import WORLDS, Square, World

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN = COLOURS[0], COLOURS[4], COLOURS[2]
"""The paper's colours of the training start, the test start and the goal."""
TRAIN, TEST = COLOURS[0], COLOURS[1]


@dataclass(frozen=True)
class Figure:
    """A figure by name."""

    name: str
    sentence: str
    needs: tuple[Cell, ...]
    """The cells that it shows."""
    draw: Callable[[Study, Path], None]


def squares(axes: Axes, world: World) -> None:
    """An empty board in square coordinates, y downwards, with its starts and its goal."""
    axes.set(xlim=(-0.5, world.width - 0.5), ylim=(world.height - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(world.width))
    axes.set_yticks(range(world.height))
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(True)


def _square(axes: Axes, at: Square, colour: str, text: str) -> None:
    axes.fill(*_corners(at, 0.5), color=colour, linewidth=0)
    ink = "black" if colour == ORANGE else "white"
    axes.text(at[0], at[1], text, ha="center", va="center", fontsize=7, color=ink, weight="bold")


def _corners(at: Square, half: float) -> tuple[list[float], list[float]]:
    x, y = at
    return [x - half, x + half, x + half, x - half], [y - half, y - half, y + half, y + half]


def draw_worlds(study: Study, out: Path) -> None:
    """Both worlds: where training and test start, the goal, the wind."""
    with figure("page", height=2.7) as drawing:
        for axes, world in zip(drawing.subplots(1, len(WORLDS)), WORLDS.values(), strict=True):
            squares(axes, world)
            for line in range(1, world.width):
                axes.axvline(line - 0.5, color="#cccccc", linewidth=0.6)
            for line in range(1, world.height):
                axes.axhline(line - 0.5, color="#cccccc", linewidth=0.6)
            same = world.start == world.test_start
            _square(axes, world.start, BLUE, "start" if same else "train")
            if not same:
                _square(axes, world.test_start, ORANGE, "test")
            _square(axes, world.goal, GREEN, "goal")
            if world.test_wind:
                x = world.width - 2
                axes.annotate(
                    "",
                    (x, 3 + world.gust),
                    (x, 3),
                    arrowprops={"arrowstyle": "-|>", "color": TEST, "linewidth": 1.4},
                )
                axes.text(
                    x - 0.15,
                    3 + world.gust / 2,
                    f"test: wind {100 * world.test_wind:.0f} %\n{world.gust} squares down",
                    ha="right",
                    va="center",
                    fontsize=7,
                    color=TEST,
                )
            axes.set(xlabel="x", ylabel="y", title=world.title)
        save(drawing, out, "tabular-worlds")


def curves(axes: Axes, row: Row) -> None:
    """Suboptimality in training and in test over episodes: mean, and one standard deviation as a band."""
    for index, (name, colour, dash) in enumerate((("training", TRAIN, "--"), ("test", TEST, "-"))):
        mean_C, std_C = row.gap_mean_C2[:, index], row.gap_std_C2[:, index]
        axes.fill_between(
            row.episode_C, mean_C - std_C, mean_C + std_C, color=colour, alpha=0.18, linewidth=0
        )
        axes.plot(row.episode_C, mean_C, dash, color=colour, label=f"{name} ± std")
    method = METHODS[row.cell.method]
    axes.set(
        xlim=(0, row.episode_C[-1]),
        ylim=(-1.2, 17),
        yticks=range(0, 16, 5),
        xlabel="Episodes",
        title=f"{method.title}\n{method.symbol} = {row.cell.value:g}",
    )


def sweep(axes: Axes, rows: tuple[Row, ...], colour: str = TEST, label: str = "") -> None:
    """Mean test return by value, with the standard error over trials; the paper's best value is ringed."""
    world, method = rows[0].cell.world, METHODS[rows[0].cell.method]
    value, mean = [row.cell.value for row in rows], [row.mean[1] for row in rows]
    axes.errorbar(
        value,
        mean,
        [row.error for row in rows],
        color=colour,
        marker="o",
        capsize=1.5,
        elinewidth=0.8,
        label=label or "mean ± standard error",
    )
    ring = [row for row in rows if row.cell.value == method.published]
    ring_label = f"paper's best{'' if world == 'grid' else ' on the grid'}"
    said_already = ring_label in axes.get_legend_handles_labels()[1]
    axes.scatter(
        [row.cell.value for row in ring],
        [row.mean[1] for row in ring],
        s=60,
        facecolors="none",
        edgecolors="black",
        linewidths=0.9,
        label=None if said_already else ring_label,
        zorder=4,
    )
    axes.set(xlabel=f"{_COEFFICIENTS[method.kernel]} {method.symbol}", title=method.title)


_COEFFICIENTS = {
    "egreedy": "Exploration rate",
    "sarsa": "Exploration rate",
    "ucb": "Exploration coefficient",
    "pg": "Entropy coefficient",
}
"""What a kernel's value is, for the axis."""


def _optimum(axes: Axes, world: World) -> None:
    axes.axhline(world.test_optimum, color="black", linewidth=0.8, linestyle=":", label="optimum")
    axes.set_ylim(world.worst_return - 0.6, world.goal_reward + 0.6)


def _best(study: Study, world: str, method: str) -> Row:
    row = study.best(world, method)
    assert row is not None
    return row


def draw_best(method: str, study: Study, out: Path) -> None:
    """One method's best value on the grid."""
    with figure("column", height=2.3) as drawing:
        axes = drawing.subplots()
        curves(axes, _best(study, "grid", method))
        axes.set_ylabel("Suboptimality (return)")
        axes.legend(loc="upper right")
        save(drawing, out, f"tabular-{method}")


def draw_pg(study: Study, out: Path) -> None:
    """Policy gradient's best value, and its sweep under both readings of the printed entropy."""
    with figure("page", height=2.4) as drawing:
        left, right = drawing.subplots(1, 2)
        curves(left, _best(study, "grid", "pg"))
        left.set_ylabel("Suboptimality (return)")
        left.legend(loc="upper right")
        sweep(right, study.sweep("grid", "pg"), label="entropy as a bonus (the words)")
        printed = study.sweep("grid", "pg-printed")
        if printed:
            sweep(right, printed, colour=COLOURS[3], label="entropy's sign as printed")
        _optimum(right, WORLDS["grid"])
        right.set(ylabel="Mean test return", title="Policy gradient, all values")
        right.legend(loc="lower left")
        save(drawing, out, "tabular-pg")


def draw_sweeps(world: str, methods: tuple[str, ...], name: str, study: Study, out: Path) -> None:
    """Mean test return over the ten values of each method."""
    with figure("page", height=2.3) as drawing:
        panels = drawing.subplots(1, len(methods), sharey=True)
        for axes, method in zip(panels, methods, strict=True):
            sweep(axes, study.sweep(world, method))
            _optimum(axes, WORLDS[world])
        panels[0].set_ylabel("Mean test return")
        panels[methods.index("ucb")].legend(loc="lower center")
        save(drawing, out, name)


def draw_sarsa(study: Study, out: Path) -> None:
    """Sarsa(λ): mean and standard deviation of the test return over ε, and the best value's curves."""
    rows = study.sweep("grid", "sarsa")
    with figure("page", height=2.3) as drawing:
        mean, spread, best = drawing.subplots(1, 3)
        sweep(mean, rows)
        _optimum(mean, WORLDS["grid"])
        mean.set(ylabel="Mean test return", title="Mean")
        mean.legend(loc="lower right")
        spread.plot([row.cell.value for row in rows], [row.std[1] for row in rows], "o-", color=TEST)
        spread.set(
            xlabel="Exploration rate ε",
            ylabel="Std of test return",
            title="Standard deviation",
            ylim=(0, 6.5),
        )
        curves(best, _best(study, "grid", "sarsa"))
        best.set_ylabel("Suboptimality (return)")
        best.legend(loc="upper right")
        save(drawing, out, "tabular-sarsa")


def draw_windy(study: Study, out: Path) -> None:
    """Each method's best value in the windy world; the paper shows the first three."""
    methods = ("egreedy", "ucb", "pg", "sarsa")
    with figure("page", height=2.3) as drawing:
        panels = drawing.subplots(1, len(methods), sharey=True)
        for axes, method in zip(panels, methods, strict=True):
            curves(axes, _best(study, "windy", method))
            axes.set_xticks(np.linspace(0, axes.get_xlim()[1], 3))
        panels[0].set_ylabel("Suboptimality (return)")
        panels[-1].legend(loc="upper right")
        save(drawing, out, "tabular-windy")


def _grid(*methods: str) -> tuple[Cell, ...]:
    return cells(["grid"], methods)


def _bound(function: Callable[..., None], *first: Any) -> Callable[[Study, Path], None]:
    def draw(study: Study, out: Path) -> None:
        function(*first, study, out)

    return draw


_THREE = ("egreedy", "ucb", "pg")

FIGURES: dict[str, Figure] = {
    drawn.name: drawn
    for drawn in (
        Figure("tabular-worlds", "The two tabular worlds: starts, goal and wind.", (), draw_worlds),
        Figure(
            "tabular-egreedy",
            "Grid: train and test suboptimality of Q-learning with the best ε.",
            _grid(*_THREE),
            _bound(draw_best, "egreedy"),
        ),
        Figure(
            "tabular-ucb",
            "Grid: train and test suboptimality of Q-learning with the best UCB coefficient.",
            _grid(*_THREE),
            _bound(draw_best, "ucb"),
        ),
        Figure(
            "tabular-pg",
            "Grid: policy gradient with the best entropy coefficient, and both readings of its equation.",
            _grid(*_THREE, "pg-printed"),
            draw_pg,
        ),
        Figure(
            "tabular-sweep",
            "Grid: mean test return over ten values of ε, c and β.",
            _grid(*_THREE),
            _bound(draw_sweeps, "grid", _THREE, "tabular-sweep"),
        ),
        Figure(
            "tabular-sarsa",
            "Grid: Sarsa(λ) over ε, mean, standard deviation and the best value.",
            _grid(*_THREE, "sarsa"),
            draw_sarsa,
        ),
        Figure(
            "tabular-windy",
            "Windy world: train and test suboptimality of each method's best value.",
            cells(["windy"]),
            draw_windy,
        ),
        Figure(
            "tabular-windy-sweep",
            "Windy world: mean test return over ten values of each method.",
            cells(["windy"]),
            _bound(draw_sweeps, "windy", (*_THREE, "sarsa"), "tabular-windy-sweep"),
        ),
    )
}


def drawable(study: Study) -> tuple[Figure, ...]:
    """The figures for which the study holds every cell; policy gradient's also without the second reading."""
    return tuple(
        drawn
        for drawn in FIGURES.values()
        if not study.missing(cell for cell in drawn.needs if METHODS[cell.method].in_paper)
    )
