"""What the paper's printed tables alone say: aggregates of all eight methods, and train against test.

The numbers are data (``data/procgen_published.csv``, ``data/crafter_published.csv``); every verdict is computed
from them, never written down.

Axes: S simulated experiments, T games, R runs a game.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files

import numpy as np

from ede.paper.item import Item, Request
from ede.paper.show import MEASURED, PUBLISHED, Cell, say, table, write_csv
from ede.report.figures import TITLES, intervals
from ede.report.load import load
from ede.report.scores import comparisons, groups
from ede.report.style import COLOURS, MARKERS, colour, figure, save
from ede.statistics import (
    METRICS,
    Estimate,
    Floats,
    aggregate,
    bounds,
    normalise,
    padded,
    spearman,
    spearman_chance,
)

TABLE = "ede_code"
"""The normalisation table under which this paper's scores are compared."""
RUNS = 5
"""Seeds a game and method behind the published mean and standard deviation."""
SIMULATIONS = 4_000


@dataclass(frozen=True)
class Published:
    """One method's printed scores on one split."""

    games: tuple[str, ...]
    mean: dict[str, float]
    std: dict[str, float]


@cache
def procgen(split: str) -> dict[str, Published]:
    """Method → its printed raw scores on ``split``, in the paper's order of methods and games."""
    rows = [row for row in read_data("procgen_published.csv") if row["split"] == split]
    found = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        found[method] = Published(
            games=tuple(row["game"] for row in mine),
            mean={row["game"]: float(row["mean"]) for row in mine},
            std={row["game"]: float(row["std"]) for row in mine},
        )
    return found


def crafter() -> dict[str, tuple[float, float, str]]:
    """Method → (mean, standard deviation, runs where the paper says) of the printed Crafter score, in per cent."""
    return {
        row["method"]: (float(row["mean"]), float(row["std"]), row["runs"])
        for row in read_data("crafter_published.csv")
    }


def read_data(name: str) -> list[dict[str, str]]:
    with (files("ede") / "data" / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def aggregates(method: Published, generator: np.random.Generator) -> dict[str, Estimate]:
    """The four metrics of the printed means, and where they would fall in 95 % of repetitions.

    The values are plain arithmetic on the means. The runs behind them are not printed, so each simulated
    experiment draws five a game from the normal distribution of the printed mean and standard deviation.
    """
    at_means_TR = padded(normalise({game: [method.mean[game]] for game in method.games}, TABLE))
    raw_TSR = {
        game: generator.normal(method.mean[game], method.std[game], size=(SIMULATIONS, RUNS))
        for game in method.games
    }
    simulated_STR: Floats = np.stack(list(normalise(raw_TSR, TABLE).values()), axis=1)
    found = {}
    for name, metric in METRICS.items():
        low, high = bounds(metric(simulated_STR))
        found[name] = Estimate(float(metric(at_means_TR)), float(low), float(high))
    return found


AGGREGATE = ["method", *METRICS, *(f"{name}_{end}" for name in METRICS for end in ("low", "high"))]
"""Columns of a CSV of aggregates: the values, then the bounds (empty where a task has one run)."""


def _numbers(metrics: Mapping[str, Estimate]) -> list[Cell]:
    ends = [end for estimate in metrics.values() for end in (estimate.low, estimate.high)]
    return [
        *(estimate.value for estimate in metrics.values()),
        *("" if np.isnan(end) else end for end in ends),
    ]


def draw_aggregates(split: str, request: Request) -> None:
    """Median, IQM, mean and optimality gap of the eight methods over the sixteen games."""
    generator = np.random.default_rng(request.seed)
    found = {name: aggregates(method, generator) for name, method in procgen(split).items()}
    write_csv(
        request.out / "aggregate.csv",
        [*AGGREGATE, "split", "normalisation", "origin"],
        [[method, *_numbers(metrics), split, TABLE, PUBLISHED] for method, metrics in found.items()],
    )
    table(
        f"Procgen, {split} levels, 16 games, min-max normalised ({TABLE}); origin: {PUBLISHED}",
        ["method", *TITLES.values()],
        [[method, *(str(estimate) for estimate in metrics.values())] for method, metrics in found.items()],
    )
    say(
        "Values (strokes of the figure): arithmetic on the printed means. Brackets (bands): 95 % of simulated "
        "repetitions with five runs a game drawn from the printed mean and standard deviation."
    )
    say(f"Verdict: {verdict(split, found)}")
    if request.runs:
        _set_beside(split, request, generator)
    else:
        say("Ours: not yet; --runs sets runs of Procgen beside the printed methods on the same games.")
    if request.preset == "paper":
        say(
            "Nothing here needs training; the runs that would measure it: `ede paper procgen-main --preset paper`."
        )
    drawing = intervals(
        found,
        {method: int(method == "EDE") for method in found},
        f"Published scores, {split} levels, min-max normalised ({TABLE})",
    )
    save(drawing, request.out, f"procgen-{split}")


def _set_beside(split: str, request: Request, generator: np.random.Generator) -> None:
    """Our finished runs and the printed methods, on the games of our runs alone."""
    ours = [
        one
        for one in comparisons(groups(load(request.runs).runs), split, TABLE)
        if one.family == "procgen" and one.tasks
    ]
    if not ours:
        say("Ours: not yet; none of the given runs is a finished one of Procgen that can be compared.")
        return
    (found,) = ours
    games = tuple(task.removeprefix("procgen/") for task in found.tasks)
    estimates: list[tuple[str, dict[str, Estimate], int, str]] = [
        (label, aggregate(scores, generator), sum(map(len, scores.values())), MEASURED)
        for label, scores in found.scores.items()
    ]
    estimates += [
        (name, aggregates(replace(method, games=games), generator), RUNS * len(games), PUBLISHED)
        for name, method in procgen(split).items()
    ]
    table(
        f"On {', '.join(games)} alone, {split} levels ({TABLE})",
        ["method", *TITLES.values(), "runs", "origin"],
        [[name, *map(str, metrics.values()), runs, origin] for name, metrics, runs, origin in estimates],
    )
    write_csv(
        request.out / "beside.csv",
        [*AGGREGATE, "runs", "origin"],
        [[name, *_numbers(metrics), runs, origin] for name, metrics, runs, origin in estimates],
    )
    steps = sorted(
        {run.planned for run in load(request.runs).runs if run.task in found.tasks and run.finished}
    )
    say(
        f"Published runs had 25,000,000 environment steps, ours {' or '.join(f'{count:,}' for count in steps)}: the "
        "rows say how far a budget reaches, not whether the paper's numbers hold."
    )


def verdict(split: str, found: dict[str, dict[str, Estimate]]) -> str:
    """Where EDE stands in the printed table, beside what the paper's text says of it."""
    places = []
    for name, title in TITLES.items():
        sign = 1 if name == "optimality_gap" else -1
        order = sorted(found, key=lambda method: sign * found[method][name].value)
        places.append(
            f"{title} {found['EDE'][name].value:.3f}, place {order.index('EDE') + 1} of {len(order)} "
            f"(first: {order[0]} {found[order[0]][name].value:.3f})"
        )
    above = [
        title
        for name, title in (("mean", "mean"), ("median", "median"), ("iqm", "IQM"))
        if found["IDAAC"][name].value > found["EDE"][name].value
    ]
    standing = f"the paper's own table gives EDE {'; '.join(places)}."
    if split != "test":
        return standing[0].upper() + standing[1:]
    if not above:
        return f"As the text says, EDE is ahead of IDAAC: {standing}"
    return (
        "the paper's table disagrees with the text: over its 16 games IDAAC is above EDE in "
        f"{', '.join(above)}. The text says that EDE greatly outperforms all baselines in median and IQM and is "
        f"competitive in mean; {standing} The text compares with PPO, IDAAC and QR-DQN in a figure whose scores are "
        "not printed; no QR-DQN row is in the table."
    )


META_METHODS = ("PPO", "MixReg", "PLR", "UCB-DRAC", "PPG", "DAAC", "IDAAC")
"""The seven algorithms of the paper's meta-analysis: its table without EDE."""


def correlations(methods: Sequence[str] = META_METHODS) -> dict[str, float]:
    """Game → Spearman's correlation between the methods' printed training and test scores."""
    train, test = procgen("train"), procgen("test")
    return {
        game: spearman([train[m].mean[game] for m in methods], [test[m].mean[game] for m in methods])
        for game in train[methods[0]].games
    }


def _from_tables_alone(request: Request) -> None:
    """Runs cannot change an item about published scores, and there is nothing to plan for it."""
    if request.runs:
        say("This item is about the published scores alone; the given runs are not used.")
    if request.preset == "paper":
        say("Nothing here needs training.")


def draw_meta(request: Request) -> None:
    """Does better training go with better testing? One rank correlation a game."""
    found = dict(sorted(correlations().items(), key=lambda pair: -pair[1]))
    without_plr = correlations([method for method in META_METHODS if method != "PLR"])
    with_ede = correlations([*META_METHODS, "EDE"])
    train, test = procgen("train"), procgen("test")
    chances = {
        game: spearman_chance(
            [train[m].mean[game] for m in META_METHODS], [test[m].mean[game] for m in META_METHODS]
        )
        for game in found
    }
    columns = ["game", "spearman", "chance", "without_PLR", "with_EDE", "origin"]
    rows: list[Sequence[Cell]] = [
        [game, value, chances[game], without_plr[game], with_ede[game], PUBLISHED]
        for game, value in found.items()
    ]
    write_csv(request.out / "spearman.csv", columns, rows)
    table("Spearman's correlation of training with test scores over the published methods", columns, rows)
    positive = [game for game, value in found.items() if value > 0]
    strong = [game for game, value in found.items() if value >= 0.5]
    beyond_chance = [game for game, chance in chances.items() if chance < 0.05]
    say(
        f"Verdict: over the seven published methods {len(positive)} of {len(found)} games correlate positively "
        f"and {len(strong)} with 0.5 or more; without PLR {sum(v > 0 for v in without_plr.values())} are positive. "
        "The paper says the correlation is strong for many games; it prints no numbers, only bars. Seven methods "
        f"are few: {len(beyond_chance)} games ({', '.join(beyond_chance)}) lie outside what shuffling the "
        "methods gives in 95 % of cases (column chance: the exact share of shuffles at least as far from zero)."
    )
    with figure("column", height=2.6) as drawing:
        axes = drawing.subplots()
        axes.bar(
            range(len(found)), list(found.values()), color=[colour(0 if v > 0 else 1) for v in found.values()]
        )
        axes.axhline(0, color="black", linewidth=0.7)
        axes.set_xticks(range(len(found)), list(found), rotation=90)
        axes.set_ylabel("Spearman's $r_s$, train and test scores")
        axes.set_ylim(-1, 1.05)
        axes.grid(visible=False, axis="x")
        save(drawing, request.out, "procgen-meta")
    _from_tables_alone(request)


def draw_scatter(positive: bool, request: Request) -> None:
    """Each method on each game of one sign of correlation: training score across, test score up."""
    games = [game for game, value in correlations().items() if (value > 0) == positive]
    points = scatter_points(games)
    write_csv(
        request.out / "scatter.csv",
        ["game", "method", "train", "test", "normalisation", "origin"],
        [[*point, TABLE, PUBLISHED] for point in points],
    )
    kind = "positive" if positive else "negative"
    rows: list[Sequence[Cell]] = []
    for label, left_out in (("all seven methods", ()), ("without PLR", ("PLR",))):
        kept = np.array([point[2:] for point in points if point[1] not in left_out])
        slope, intercept = np.polyfit(kept[:, 0], kept[:, 1], 1)
        gap = (kept[:, 0] - kept[:, 1]).mean()
        rows.append([label, len(kept), float(slope), float(intercept), float(gap)])
    columns = ["points", "number", "slope", "intercept", "mean train − test"]
    table(f"Games of {kind} correlation ({', '.join(games)}), {TABLE}; {PUBLISHED}", columns, rows)
    inverted = [method for _, method, train, test in points if test > train]
    claim = (
        "almost linear with a slope of 1 here"
        if positive
        else "unclear here: better training need not mean better testing"
    )
    say(
        f"Verdict: the paper says the relation is {claim}. From the printed scores the least-squares slope is "
        f"{rows[0][2]:.2f} with PLR and {rows[1][2]:.2f} without it. The paper says most outliers are PLR: of "
        f"the {len(inverted)} points above the diagonal (testing better than training) {inverted.count('PLR')} "
        "are PLR's."
    )
    with figure("column", height=3.4) as drawing:
        axes = drawing.subplots()
        ends = [min(min(p[2:]) for p in points) - 0.05, max(max(p[2:]) for p in points) + 0.05]
        axes.plot(ends, ends, color="#999999", linewidth=0.8, linestyle="--")
        for index, game in enumerate(games):
            mine = [point for point in points if point[0] == game]
            axes.scatter(
                [point[2] for point in mine],
                [point[3] for point in mine],
                s=16,
                color=colour(index),
                marker=MARKERS[index // len(COLOURS) * 2],
                label=game,
            )
        outliers = [point for point in points if point[1] == "PLR"]
        axes.scatter(
            [point[2] for point in outliers],
            [point[3] for point in outliers],
            s=46,
            facecolors="none",
            edgecolors="black",
            linewidths=0.7,
            label="PLR (ringed)",
        )
        axes.set_xlabel(f"Training score, normalised ({TABLE})")
        axes.set_ylabel(f"Test score, normalised ({TABLE})")
        drawing.legend(loc="outside lower center", ncols=3)
        save(drawing, request.out, f"procgen-scatter-{kind}")
    _from_tables_alone(request)


def scatter_points(games: Sequence[str]) -> list[tuple[str, str, float, float]]:
    """(game, method, normalised training score, normalised test score) of the seven methods."""
    train, test = procgen("train"), procgen("test")
    return [
        (
            game,
            method,
            float(normalise({game: train[method].mean[game]}, TABLE)[game]),
            float(normalise({game: test[method].mean[game]}, TABLE)[game]),
        )
        for game in games
        for method in META_METHODS
    ]


ITEMS = (
    Item(
        "procgen-test",
        "Aggregates of the eight methods on test levels, from the published table.",
        partial(draw_aggregates, "test"),
    ),
    Item(
        "procgen-train",
        "Aggregates of the eight methods on training levels, from the published table.",
        partial(draw_aggregates, "train"),
    ),
    Item(
        "procgen-meta",
        "Rank correlation between training and test scores of seven methods, game by game.",
        draw_meta,
    ),
    Item(
        "procgen-scatter-positive",
        "Training against test scores on games where they correlate positively.",
        partial(draw_scatter, True),
    ),
    Item(
        "procgen-scatter-negative",
        "Training against test scores on games where they correlate negatively.",
        partial(draw_scatter, False),
    ),
)
