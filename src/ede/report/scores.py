"""From run folders to numbers: which runs are seeds of one thing, their curves, final scores, gaps and cost.

Axes: P points of a curve, R runs (seeds) of a group.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ede.contexts import Contexts
from ede.envs.bigfish import MEALS, WIN_BONUS
from ede.report.load import Run
from ede.statistics import RESAMPLES, Estimate, Floats, bounds, ranges, resample

Generator = np.random.Generator

NOT_TRAINING = frozenset({
    "device", "precision", "cuda_graphs", "threads", "eval_period", "eval_episodes", "final_episodes", "eval_lanes",
    "log_period", "checkpoint_period",
})  # fmt: skip
"""Settings that change how a run is watched or how fast it goes, so they tell no two methods apart."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    task: str
    label: str
    """The method, and whatever else tells it from another group on the task."""
    runs: tuple[Run, ...]

    @property
    def family(self) -> str:
        return self.runs[0].family

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.finished)


@dataclass(frozen=True)
class Curve:
    """A mean over seeds along the run; bounds are NaN where there is one seed."""

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds: Floats


def labels(runs: Sequence[Run]) -> dict[Run, str]:
    """Name each run by its method, its preset where a method has several, and the settings that differ.

    ``ede`` stays ``ede`` when all its runs on a family of tasks agree, and becomes ``ede · phi=10`` where φ was
    varied and is not the preset's own. A number of steps that varies is always told.
    """
    by_method: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_method[run.family, run.method].append(run)
    found = {}
    for (_, method), mine in by_method.items():
        several = any(
            len({run.preset for run in mine if run.task == task}) > 1 for task in {run.task for run in mine}
        )
        varied, plain = differing(mine), preset_values(mine)
        for run in mine:
            extra = [run.preset] if several else []
            extra += [
                f"{name}={shown}"
                for name in varied
                if (shown := str(run.settings.get(name, "–"))) != plain.get((run.task, run.preset, name))
                or name == "steps"
            ]
            found[run] = " · ".join([method, *extra])
    return found


def differing(runs: Iterable[Run]) -> list[str]:
    """Training settings that take several values among the runs of one task, method and preset."""
    cells: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        cells[run.task, run.method, run.preset].append(run)
    names = {
        name: None
        for cell in cells.values()
        for name in {name: None for run in cell for name in run.settings}
        if name not in NOT_TRAINING and len({str(run.settings.get(name)) for run in cell}) > 1
    }
    return list(names)


def preset_values(runs: Iterable[Run]) -> dict[tuple[str, str, str], str]:
    """(task, preset, setting) → the value of the runs that leave it alone, where these agree on one."""
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for run in runs:
        for name, value in run.settings.items():
            if name not in run.config.get("changed", {}):
                found[run.task, run.preset, name].add(str(value))
    return {place: values.pop() for place, values in found.items() if len(values) == 1}


def natural(label: str) -> tuple[str | float, ...]:
    """A key that sorts ``members=2`` before ``members=10``."""
    return tuple(
        float(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+\.?\d*)", label))
    )


def groups(runs: Sequence[Run]) -> tuple[Group, ...]:
    """The runs as groups of seeds, by task and label in alphabetical order, numbers by size."""
    named = labels(runs)
    cells: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        cells[run.task, named[run]].append(run)
    ordered = sorted(cells.items(), key=lambda cell: (cell[0][0], natural(cell[0][1])))
    return tuple(Group(task, label, tuple(mine)) for (task, label), mine in ordered)


# Curves


def learning_curve(group: Group, split: str, generator: Generator) -> Curve | None:
    """Mean return over seeds at the steps where any of them was evaluated on ``split``."""
    return over_seeds([run.curve(split) for run in group.runs], generator)


def training_curve(group: Group, generator: Generator, points: int = 40) -> Curve | None:
    """Mean return of the training episodes that ended in each of ``points`` equal stretches of the run."""
    last = max(run.reached for run in group.runs)
    edges = np.linspace(0, last, points + 1)
    binned = []
    for run in group.runs:
        place = np.clip(np.searchsorted(edges, run.episodes.steps) - 1, 0, points - 1)
        count = np.bincount(place, minlength=points)
        total = np.bincount(place, weights=run.episodes.returns, minlength=points)
        filled = count > 0
        binned.append((edges[1:][filled], total[filled] / count[filled]))
    return over_seeds(binned, generator)


def metric_curve(group: Group, name: str, generator: Generator) -> Curve | None:
    """A column of ``metrics.jsonl`` over the run; lines that lack it are passed over."""
    found = []
    for run in group.runs:
        values = run.metrics.get(name, np.zeros(0))
        there = ~np.isnan(values)
        found.append((run.metrics.get("step", np.zeros(0))[there], values[there]))
    return over_seeds(found, generator)


def over_seeds(series: Sequence[tuple[Floats, Floats]], generator: Generator) -> Curve | None:
    """Join the seeds' (steps, values): each is read off between its own points, never beyond its last one."""
    series = [(steps, values) for steps, values in series if len(steps)]
    if not series:
        return None
    steps_P = np.unique(np.concatenate([steps for steps, _ in series]))
    x_PR = np.stack(
        [np.interp(steps_P, steps, values, left=np.nan, right=np.nan) for steps, values in series], axis=1
    )
    seeds_P = (~np.isnan(x_PR)).sum(axis=1).astype(np.float64)
    drawn_SP = np.nanmean(resample(np.sort(x_PR, axis=1), RESAMPLES // 4, generator), axis=-1)
    low_P, high_P = bounds(drawn_SP)
    alone_P = seeds_P < 2
    return Curve(
        steps=steps_P,
        mean=np.nanmean(x_PR, axis=1),
        low=np.where(alone_P, np.nan, low_P),
        high=np.where(alone_P, np.nan, high_P),
        seeds=seeds_P,
    )


# Final scores


def held_out(group: Group) -> bool:
    """Whether the test contexts are others than the training contexts; Crafter trains on the full distribution."""
    config = group.runs[0].config
    return config.get("train_contexts") is None or config["train_contexts"] != config.get("test_contexts")


def final_scores(group: Group, split: str) -> Floats:
    """One mean return a finished run, from its closing evaluation on ``split``."""
    found = [run.final(split) for run in group.runs]
    return np.array([evaluation.returns.mean() for evaluation in found if evaluation is not None])


def gaps(group: Group) -> Floats:
    """Training minus held-out return, a finished run each."""
    pairs = [(run.final("train"), run.final("test")) for run in group.runs]
    return np.array(
        [
            train.returns.mean() - test.returns.mean()
            for train, test in pairs
            if train is not None and test is not None
        ]
    )


def over_runs(values: Floats, generator: Generator) -> Estimate | None:
    """The mean of a number a run and its bootstrap interval; no run, no estimate; one run, no interval."""
    if not len(values):
        return None
    if len(values) == 1:
        return Estimate(float(values[0]), np.nan, np.nan)
    low, high = bounds(np.nanmean(resample(values[None], RESAMPLES, generator), axis=-1)[:, 0])
    return Estimate(float(values.mean()), float(low), float(high))


def limits(run: Run, table: str) -> tuple[float, float] | None:
    """The returns that count as 0 and 1 on the run's task; None where nobody has said.

    Procgen's are a named table; bigfish-simple, MiniGrid and BabyAI pay between 0 and a known best by construction.
    """
    if run.family == "procgen":
        options = str(run.settings.get("world_options", ""))
        return ranges(table, "hard" if "mode=hard" in options else "easy").get(run.task.split("/")[1])
    if run.task == "bigfish-simple":
        return 0.0, MEALS + WIN_BONUS
    if run.task.startswith(("gym/MiniGrid", "gym/BabyAI")):
        return 0.0, 1.0
    return None


@dataclass(frozen=True)
class Comparison:
    """Normalised final scores of the methods of a family on the tasks that all of them have finished."""

    family: str
    tasks: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Floats]]
    """Label → task → one score a run."""
    left_out: tuple[str, ...]
    """Tasks that some of the compared methods have not finished, or that have no known limits."""


def comparisons(found: Sequence[Group], split: str, table: str) -> tuple[Comparison, ...]:
    """One comparison a family; a method without any finished run takes no part."""
    scores: dict[str, dict[str, dict[str, Floats]]] = defaultdict(lambda: defaultdict(dict))
    tasks: dict[str, dict[str, None]] = defaultdict(dict)
    for group in found:
        tasks[group.family][group.task] = None
        known, values = limits(group.runs[0], table), final_scores(group, split)
        if known is not None and len(values):
            scores[group.family][group.label][group.task] = (values - known[0]) / (known[1] - known[0])
    result = []
    for family, by_label in scores.items():
        shared = [task for task in tasks[family] if all(task in mine for mine in by_label.values())]
        result.append(
            Comparison(
                family=family,
                tasks=tuple(shared),
                scores={label: {task: mine[task] for task in shared} for label, mine in by_label.items()},
                left_out=tuple(task for task in tasks[family] if task not in shared),
            )
        )
    return tuple(result)


# Contexts


def by_context(group: Group, split: str) -> dict[int, Floats]:
    """Context → returns of the closing evaluations on ``split``, over all finished runs."""
    found: dict[int, list[float]] = defaultdict(list)
    for run in group.runs:
        evaluation = run.final(split)
        if evaluation is not None:
            for context, value in zip(evaluation.contexts, evaluation.returns, strict=True):
                found[int(context)].append(float(value))
    return {context: np.array(values) for context, values in sorted(found.items())}


def trained_share(group: Group) -> float:
    """The share of held-out episodes whose context was a training context; NaN where it is not recorded."""
    contexts = by_context(group, "test")
    trained = group.runs[0].config.get("train_contexts")
    if not contexts or trained is None:
        return float("nan")
    known = Contexts.parse(str(trained))
    inside = sum(len(values) for context, values in contexts.items() if context in known)
    return inside / sum(map(len, contexts.values()))
