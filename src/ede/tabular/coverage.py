"""The picture that explains the paper: what each explorer covers, how wrong Q stays, and what test returns.

Axis letters: T trials, C checkpoints, S states, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ede.report.style import COLOURS, figure, save
from ede.tabular import theory
from ede.tabular.figures import squares
from ede.tabular.files import write_table
from ede.tabular.study import METHODS, Cell, Size, run_trials
from ede.tabular.worlds import WORLDS, Floats, Integers, World

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

AGENTS = {
    name: (Cell(name, "egreedy", 0.1), Cell(name, "egreedy", 0.9), Cell(name, "ucb", 45.0)) for name in WORLDS
}
"""Ordinary ε-greedy, the paper's best ε, and the paper's best c."""
ACCURACY = 0.1
"""ε of the sample complexity: the error of Q that the expression is printed for."""
COLUMNS = (
    "world",
    "method",
    "value",
    "episode",
    "mu_min",
    "rarest_pair_share",
    "worst_q_error",
    "right_squares",
    "test_return",
)
_TONES = (COLOURS[3], COLOURS[1], COLOURS[0])
_DASHES = (":", "--", "-")


@dataclass(frozen=True)
class Exploration:
    """One explorer over training; medians over trials unless it says otherwise."""

    cell: Cell
    episode_C: Integers
    mu_TC: Floats
    """μ_min of the policy averaged over training so far."""
    rarest_TC: Floats
    """min N(s,a)/t, which Li et al. (2020) tie to μ_min."""
    error_TC: Floats
    """max |Q − Q*|."""
    right_TC: Floats
    """Share of the squares whose greedy action is an optimal one."""
    return_TC: Floats
    """Test return."""
    d_SA: Floats
    """Stationary state-action distribution at the end, mean over trials."""
    ends: tuple[theory.Coverage, ...]
    """The appendix's quantities at the end of each trial."""

    def median(self, name: str) -> float:
        return float(np.median([getattr(end, name) for end in self.ends]))


def explore(world: World, size: Size, threads: int = 1) -> tuple[Exploration, ...]:
    """Train the three explorers and compute what they covered, at about forty checkpoints spaced evenly in log."""
    episode_C = np.unique(np.rint(np.geomspace(1, size.episodes, 40))).astype(np.int64)
    outcomes = run_trials(AGENTS[world.name], size, threads=threads, checkpoint_C=episode_C, history=True)
    found = []
    for cell, outcome in outcomes.items():
        policy_TCSA = theory.averaged_policy(outcome.count_TCSA)
        d_TCSA = theory.stationary(world, policy_TCSA)
        share_TCSA = outcome.count_TCSA / outcome.count_TCSA.sum(axis=(-2, -1), keepdims=True)
        found.append(
            Exploration(
                cell,
                episode_C,
                theory.mu_min(world, d_TCSA),
                theory.mu_min(world, share_TCSA),
                theory.worst_error(world, outcome.value_TCSA),
                theory.right_squares(world, outcome.value_TCSA),
                outcome.return_TC2[:, :, 1],
                d_TCSA[:, -1].mean(axis=0),
                tuple(theory.coverage(world, policy_SA) for policy_SA in policy_TCSA[:, -1]),
            )
        )
    return tuple(found)


def label(cell: Cell) -> str:
    kind = {"egreedy": "ε-greedy", "ucb": "UCB"}[cell.method]
    return f"{kind}, {METHODS[cell.method].symbol} = {cell.value:g}"


def summary(world: World, found: tuple[Exploration, ...]) -> list[tuple[str, ...]]:
    """A row an explorer: the appendix's quantities at the end of training, medians over trials."""
    rows: list[tuple[str, ...]] = []
    for one in found:
        smallest, mixing, alpha = (one.median(name) for name in ("mu_min", "mixing_time", "train_alpha"))
        whole = theory.sample_complexity(smallest, mixing, world.discount, ACCURACY)
        pruned = theory.sample_complexity(alpha, mixing, world.discount, ACCURACY)
        rows.append(
            (
                label(one.cell),
                f"{smallest:.2g}",
                f"{mixing:.0f}",
                f"{alpha:.2g}",
                f"{one.median('test_alpha'):.2g}",
                f"{one.median('kept'):.0f} of {one.ends[0].pairs}",
                f"{pruned:.1e}",
                f"{whole:.1e}",
                f"{np.median(one.error_TC[:, -1]):.2f}",
                f"{100 * np.mean(one.right_TC[:, -1]):.0f} %",
                f"{np.mean(one.return_TC[:, -1]):.2f}",
            )
        )
    return rows


SUMMARY = (
    "explorer",
    "μ_min",
    "t_mix",
    "α train path",
    "α test path",
    "|G(α train)|",
    "steps on G",
    "steps on all",
    "worst Q error",
    "right squares",
    "test return",
)


def write(world: World, found: tuple[Exploration, ...], path: Path) -> None:
    """The curves as data: medians over trials, test return and right squares as means."""
    rows: list[tuple[Any, ...]] = []
    for one in found:
        columns = (
            np.median(one.mu_TC, axis=0),
            np.median(one.rarest_TC, axis=0),
            np.median(one.error_TC, axis=0),
            one.right_TC.mean(axis=0),
            one.return_TC.mean(axis=0),
        )
        head = (world.name, one.cell.method, f"{one.cell.value:g}")
        rows += [
            (*head, episode, *(f"{column[at]:.6g}" for column in columns))
            for at, episode in enumerate(one.episode_C)
        ]
    write_table(path, COLUMNS, rows)


def draw(world: World, found: tuple[Exploration, ...], out: Path, name: str) -> None:
    """Above: where each explorer's steps go. Below: coverage, error, greedy actions and test return over training."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import PercentFormatter

    with figure("page", height=5.0) as drawing:
        above, below = drawing.subfigures(2, 1, height_ratios=(1.25, 1), squeeze=False)[:, 0]
        maps = above.subplots(1, len(found))
        shades = LogNorm(1e-4, 0.3, clip=True)
        for axes, one in zip(maps, found, strict=True):
            _map(axes, world, one, shades)
        maps[0].set_ylabel("y")
        bar = above.colorbar(
            ScalarMappable(shades, "viridis"), ax=list(maps), fraction=0.025, pad=0.01, extend="both"
        )
        bar.set_label("Share of steps $d_π(s,a)$")
        panels = below.subplots(1, 4)
        titles = ("Coverage $μ_{min}$", "Worst error of Q", "Right greedy actions", "Test return")
        for index, one in enumerate(found):
            style = {"color": _TONES[index], "linestyle": _DASHES[index]}
            for axes, series_TC in zip(
                panels, (one.mu_TC, one.error_TC, one.right_TC, one.return_TC), strict=True
            ):
                average = np.mean if axes in (panels[2], panels[3]) else np.median
                axes.plot(one.episode_C, average(series_TC, axis=0), **style, label=label(one.cell))
        for axes, title in zip(panels, titles, strict=True):
            axes.set(xscale="log", xlabel="Episodes", title=title, xlim=(1, max(2, found[0].episode_C[-1])))
        panels[0].set_yscale("symlog", linthresh=1e-4)
        panels[0].set_ylim(-1e-5, 2e-2)
        panels[1].set_ylim(0, None)
        panels[2].set_ylim(0, 1.03)
        panels[2].yaxis.set_major_formatter(PercentFormatter(1))
        panels[3].axhline(world.test_optimum, color="black", linewidth=0.8, linestyle=":")
        panels[3].set_yticks(range(int(world.worst_return), 1, 5))
        panels[3].set_ylim(world.worst_return - 0.6, world.goal_reward + 0.6)
        handles, names = panels[0].get_legend_handles_labels()
        below.legend(handles, names, loc="outside lower center", ncols=len(found))
        save(drawing, out, name)


_SIDES = (
    ((-0.5, -0.5), (-0.5, 0.5)),
    ((0.5, -0.5), (0.5, 0.5)),
    ((-0.5, -0.5), (0.5, -0.5)),
    ((-0.5, 0.5), (0.5, 0.5)),
)
"""The side of a square that each action points to."""


def _map(axes: Axes, world: World, one: Exploration, shades: Normalize) -> None:
    """Each square as four triangles, one an action, shaded by d; G(α) is outlined.

    α is the largest that keeps an optimal path from the training start.
    """
    from matplotlib.collections import PolyCollection

    squares(axes, world)
    alpha = theory.bottleneck(world, one.d_SA, world.state(world.start))
    kept_SA = theory.sub_mdp(world, one.d_SA, float(np.nextafter(alpha, 0.0)))
    goal = world.state(world.goal)
    for kept in (False, True):
        places = [
            (s, a)
            for s in range(world.states)
            for a in range(one.d_SA.shape[1])
            if s != goal and kept_SA[s, a] == kept
        ]
        corners = [
            [world.square(s), *(tuple(np.add(world.square(s), corner)) for corner in _SIDES[a])]
            for s, a in places
        ]
        drawn = PolyCollection(
            corners,
            cmap="viridis",
            norm=shades,
            edgecolors="black" if kept else "white",
            linewidths=0.9 if kept else 0.3,
        )
        drawn.set_array([max(one.d_SA[place], 1e-9) for place in places])
        axes.add_collection(drawn)
    for at, text in {world.test_start: "T", world.start: "S", world.goal: "G"}.items():
        axes.text(
            *at,
            text,
            ha="center",
            va="center",
            fontsize=7,
            weight="bold",
            bbox={"boxstyle": "circle,pad=0.15", "facecolor": "white", "linewidth": 0.5},
        )
    axes.set_title(
        f"{label(one.cell)}\n$μ_{{min}}$ = {one.median('mu_min'):.1g}, $t_{{mix}}$ = {one.median('mixing_time'):.0f}\n"
        f"|G(α)| = {kept_SA.sum()} of {one.ends[0].pairs}"
    )
    axes.set_xlabel("x")
