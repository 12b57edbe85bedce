"""Items that need training: the plan of the published size, and what the given run folders say of each claim."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ede.paper.experiments import EXPERIMENTS, Cell, Claim, Experiment, Value
from ede.paper.item import Item, Request
from ede.paper.plan import print_plan, sweep_table
from ede.paper.published import TABLE, crafter
from ede.paper.show import MEASURED, NOT_YET, PUBLISHED, say, table, write_csv
from ede.report import figures
from ede.report.achievements import BUDGET, NAMES, score, success_rates
from ede.report.load import Run, load
from ede.report.parts import distinct, plain
from ede.report.scores import NOT_TRAINING, Group, comparisons, learning_curve
from ede.report.style import figure, save
from ede.statistics import (
    DECISIVE,
    Estimate,
    Floats,
    aggregate,
    difference,
    separation_chance,
    shuffle_chance,
)


@dataclass(frozen=True)
class Measured:
    """Scores of an experiment's cells on the tasks that all of them have finished."""

    family: str
    scores: Mapping[str, Mapping[str, Floats]]
    """Cell → task → one score a run."""
    metric: str
    """The aggregate that is compared."""
    unit: str
    steps: str
    """Environment steps of these runs."""
    left_out: tuple[str, ...] = ()
    """Tasks that some of the cells have not finished."""


def draw(experiment: Experiment, request: Request) -> None:
    """Print the plan at the published size, and what the given runs show, each number marked with its origin."""
    if experiment.note:
        say(f"Note: {experiment.note}")
    if request.preset == "paper":
        print_plan(experiment, request)
    runs = load(request.runs).runs if request.runs else ()
    experiment = widened(experiment, runs)
    found = groups(experiment, runs)
    if request.runs and not found:
        say("None of the given runs fits this experiment: another method, task or setting.")
    if found:
        _remark_on(found)
    if experiment.metric == "spectrum":
        _spectrum(found, request)
        return
    generator = np.random.default_rng(request.seed)
    if experiment.metric == "curves":
        _curves(experiment, found, request, generator)
    _compare(experiment, measured(experiment, found), request, generator)


def matches(cell: Cell, run: Run) -> bool:
    return run.method == cell.method and all(
        _same(run.settings.get(name), value) for name, value in cell.settings.items()
    )


def _same(value: Any, wanted: Value) -> bool:
    return value == wanted if isinstance(wanted, str) else value is not None and float(value) == wanted


def widened(experiment: Experiment, runs: Sequence[Run]) -> Experiment:
    """The experiment with a cell for every value of its setting that the runs vary, in the order of the values.

    The published values suit the published size; a study on a laptop looks elsewhere.
    """
    name, method = experiment.varies, experiment.cells[0].method
    if not name:
        return experiment
    values: dict[str, set[float]] = defaultdict(set)
    for run in runs:
        if run.method == method and name in run.settings:
            values[run.task].add(float(run.settings[name]))
    varied = {value for mine in values.values() if len(mine) > 1 for value in mine}
    symbol, _, _ = experiment.cells[0].label.partition(" = ")
    known = {float(cell.settings[name]): cell for cell in experiment.cells}
    whole = all(isinstance(cell.settings[name], int) for cell in experiment.cells)
    for value in varied - set(known):
        shown = int(value) if whole else value
        known[value] = Cell(f"{symbol} = {shown}", method, {name: shown})
    return replace(experiment, cells=tuple(known[value] for value in sorted(known)))


def groups(experiment: Experiment, runs: Sequence[Run]) -> tuple[Group, ...]:
    """The runs of each cell, task by task.

    On a task all cells are taken at one number of steps: the one at which most cells have a finished run, then the
    largest. Where several variants fit a cell (a study of λ lies beside one of φ), the one that most cells have is
    taken, so that like is compared with like; then the one that changes the fewest other settings of its preset,
    then the one with the most runs.
    """
    found = []
    fitting: dict[str, dict[int, dict[str, list[Run]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for cell in experiment.cells:
        for run in runs:
            if matches(cell, run) and experiment.family in ("", run.family):
                fitting[run.task][run.planned][cell.label].append(run)
    for task, by_steps in fitting.items():
        finished = {
            steps: sum(any(run.finished for run in mine) for mine in by_cell.values())
            for steps, by_cell in by_steps.items()
        }
        chosen = by_steps[max(by_steps, key=lambda steps: (finished[steps], len(by_steps[steps]), steps))]
        variants: dict[str, dict[tuple[str, ...], list[Run]]] = {}
        for cell in experiment.cells:
            for run in chosen.get(cell.label, ()):
                by_variant = variants.setdefault(cell.label, defaultdict(list))
                by_variant[run.preset, *_others(cell, run)].append(run)
        shared = Counter(variant for by_variant in variants.values() for variant in by_variant)
        for label, by_variant in variants.items():
            plainest = min(by_variant, key=lambda v: (-shared[v], len(v), -len(by_variant[v]), v))
            found.append(Group(task, label, tuple(by_variant[plainest])))
    return tuple(found)


def _others(cell: Cell, run: Run) -> list[str]:
    """What a run changes of its preset beside the cell's own settings and its length."""
    return sorted(
        f"{name}={value}"
        for name, value in run.config.get("changed", {}).items()
        if name not in cell.settings and name not in NOT_TRAINING | {"steps"}
    )


def measured(experiment: Experiment, found: Sequence[Group]) -> list[Measured]:
    if experiment.metric == "crafter":
        scores = {
            group.label: {
                "crafter": np.array(
                    [score(rates) for run in group.finished if (rates := success_rates(run)) is not None]
                )
            }
            for group in found
            if group.family == "crafter"
        }
        filled = {label: mine for label, mine in scores.items() if len(mine["crafter"])}
        unit = "score in per cent"
        return [Measured("crafter", filled, "mean", unit, _steps(found, ("crafter",)))] if filled else []
    split = "train" if experiment.metric == "train" else "test"
    where = "training" if split == "train" else "held-out"
    return [
        Measured(
            comparison.family,
            comparison.scores,
            "iqm",
            f"normalised return on {where} contexts"
            + (f" ({TABLE})" if comparison.family == "procgen" else ""),
            _steps(found, comparison.tasks),
            comparison.left_out,
        )
        for comparison in comparisons(found, split, TABLE)
        if comparison.tasks
    ]


def _steps(found: Sequence[Group], tasks: Sequence[str]) -> str:
    planned = sorted({run.planned for group in found if group.task in tasks for run in group.finished})
    return "; ".join(f"{steps:,}" for steps in planned)


def verdict(claim: Claim, found: Measured, generator: np.random.Generator) -> str:
    """What the runs at hand say of a claim, by the 95 % interval of the difference and a permutation test.

    The bootstrap of few runs is too sure of itself. Where even complete separation would be chance too often, nothing
    is decided.
    """
    if claim.upper not in found.scores or claim.lower not in found.scores:
        return NOT_YET
    upper, lower = found.scores[claim.upper], found.scores[claim.lower]
    apart = difference(upper, lower, generator, found.metric)
    if separation_chance(upper, lower) > DECISIVE:
        return f"too few runs to decide here (difference {apart})"
    chance = shuffle_chance(upper, lower, generator, found.metric)
    if apart.low <= 0 <= apart.high or chance > DECISIVE:
        undecided = "no difference shown" if claim.alike else "not decided"
        return f"{undecided} here (difference {apart}; chance gives as much in {chance:.1%} of cases)"
    decided = "they differ" if claim.alike else "holds" if apart.low > 0 else "the contrary"
    return f"{decided} here (difference {apart})"


def _compare(
    experiment: Experiment, found: Sequence[Measured], request: Request, generator: np.random.Generator
) -> None:
    """Published beside ours, cell by cell, then claim by claim."""
    labels = {cell.label for cell in experiment.cells if experiment.metric == "crafter"}
    printed = {label: score for label, score in crafter().items() if label in labels}
    estimates = {
        one.family: {
            label: aggregate(scores, generator, metrics=[one.metric])[one.metric]
            for label, scores in one.scores.items()
        }
        for one in found
    }
    rows: list[list[Value]] = []
    plain_rows: list[list[Value]] = []
    for cell in experiment.cells:
        if cell.label in printed:
            value, spread, runs = printed[cell.label]
            rows.append([cell.label, "crafter", f"{value} ± {spread}", f"{BUDGET:,}", 1, runs, PUBLISHED])
            plain_rows.append([cell.label, "crafter", value, "", "", spread, BUDGET, 1, runs, PUBLISHED])
        ours = [one for one in found if cell.label in one.scores]
        for one in ours:
            counts = [len(scores) for scores in one.scores[cell.label].values()]
            mine = estimates[one.family][cell.label]
            behind: list[Value] = [len(counts), sum(counts), MEASURED]
            rows.append([cell.label, one.family, str(mine), one.steps, *behind])
            bounds = ["" if np.isnan(bound) else bound for bound in (mine.low, mine.high)]
            steps = one.steps.replace(",", "")
            plain_rows.append([cell.label, one.family, mine.value, *bounds, "", steps, *behind])
        if not ours and cell.method:
            rows.append([cell.label, "", "", "", "", "", NOT_YET])
            plain_rows.append([cell.label, *[""] * 8, NOT_YET])
    columns = ["cell", "tasks of", "value", "steps", "tasks", "runs", "origin"]
    units = "; ".join(f"{one.family}: {one.metric} of the {one.unit}" for one in found)
    table(f"{experiment.name}{': ' + units if units else ''}", columns, rows)
    plain_columns = [*columns[:3], "low", "high", "std", *columns[3:]]
    write_csv(request.out / f"{experiment.name}.csv", plain_columns, plain_rows)
    if printed:
        say(
            "After ± stands the published standard deviation over runs, in brackets the 95 % interval of ours: one "
            "says how runs differ, the other how sure the mean is."
        )
    else:
        say("The paper shows this as a figure without numbers, so only its claims can be compared.")
        for one in found:
            if one.left_out:
                say(
                    f"{one.family}: scores are of what every cell shown has finished, "
                    f"{distinct(next(iter(one.scores.values())))}."
                )
        if found:
            say(
                "In brackets, as in the bands of the figures: 95 % stratified bootstrap interval over runs; where a "
                "task has one run there is none. A claim holds, or the contrary does, where that interval of the "
                "difference (first minus second) leaves out zero and shuffling the runs gives as much in at most "
                "2.5 % of cases."
            )
    claims: list[list[Value]] = [
        [str(claim), one.family, verdict(claim, one, generator)]
        for claim in experiment.claims
        for one in found
    ]
    claims = claims or [[str(claim), "", NOT_YET] for claim in experiment.claims]
    if claims:
        table("Verdicts", ["the paper's claim", "tasks of", "here"], claims)
        write_csv(request.out / f"{experiment.name}-claims.csv", ["claim", "tasks", "verdict"], claims)
    if not request.runs:
        say(
            f"Ours: not yet. `ede paper {experiment.name} --train` trains what fits this machine (sweep.toml, hours; "
            "`ede sweep` prices it), --runs takes runs that are there, --preset paper plans the published size."
        )
    tones = {cell.label: index for index, cell in enumerate(experiment.cells)}
    for one in () if printed else found:
        if len(one.scores) < 2:
            continue
        drawing = figures.intervals(
            {label: {one.metric: estimate} for label, estimate in estimates[one.family].items()},
            tones,
            f"{one.family}: {one.unit}, {one.steps} steps, {MEASURED} (bands 95 %)",
        )
        save(drawing, request.out, f"{experiment.name}-{one.family}")
    if printed:
        ours_after = "; ".join(one.steps for one in found)
        _beside(experiment, printed, estimates.get("crafter", {}), ours_after, request)


def _beside(
    experiment: Experiment,
    printed: Mapping[str, tuple[float, float, str]],
    ours: Mapping[str, Estimate],
    steps: str,
    request: Request,
) -> None:
    """Published scores (mean and standard deviation) as filled dots, ours (95 % intervals) as hollow ones."""
    labels = [cell.label for cell in experiment.cells if cell.label in printed or cell.label in ours]
    with figure("column", height=1.1 + 0.22 * len(labels)) as drawing:
        axes = drawing.subplots()
        for place, label in enumerate(labels):
            if label in printed:
                value, spread, _ = printed[label]
                name = f"{PUBLISHED}, a million steps (± std)" if place == 0 else None
                axes.errorbar(value, place - 0.12, xerr=spread, fmt="o", color="#0072B2", label=name)
            if label in ours:
                mine = ours[label]
                axes.plot([mine.low, mine.high], [place + 0.15] * 2, color="#D55E00")
                name = f"{MEASURED}, {steps} steps (95 %)" if label == next(iter(ours)) else None
                axes.plot(mine.value, place + 0.15, "o", color="#D55E00", markerfacecolor="white", label=name)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("Crafter score, %")
        axes.grid(visible=False, axis="y")
        drawing.legend(loc="outside upper center")
        save(drawing, request.out, experiment.name)


def _curves(
    experiment: Experiment, found: Sequence[Group], request: Request, generator: np.random.Generator
) -> None:
    drawn: dict[str, dict[str, Any]] = defaultdict(dict)
    for group in sorted(found, key=lambda group: group.task):
        curve = learning_curve(group, "test", generator)
        if curve is not None and len(curve.steps) > 1:
            drawn[group.task][group.label] = curve
    if drawn:
        tones = {cell.label: index for index, cell in enumerate(experiment.cells)}
        drawing = figures.curves(drawn, tones, f"Held-out return,\n{MEASURED}")
        save(drawing, request.out, f"{experiment.name}-by-task")


def _spectrum(found: Sequence[Group], request: Request) -> None:
    rates = {
        group.label: np.mean(by_run, axis=0)
        for group in found
        if (by_run := [rate for run in group.finished if (rate := success_rates(run)) is not None])
    }
    if not rates:
        say("Success rates: not yet; give runs of Crafter with --runs. The paper prints no numbers for them.")
        return
    counts = distinct(len(group.finished) for group in found if group.label in rates)
    columns = ["achievement", *rates]
    rows: list[list[Value]] = [
        [name, *(float(rate[index]) for rate in rates.values())] for index, name in enumerate(NAMES)
    ]
    steps = distinct(f"{run.planned:,}" for group in found for run in group.finished)
    table(f"Success rates in per cent, {MEASURED}: mean over {counts} runs of {steps} steps", columns, rows)
    write_csv(request.out / "crafter-spectrum.csv", columns, rows)
    say(
        "The paper shows this as a figure without numbers. Each rate is of all training episodes; no bar is zero."
    )
    drawing = figures.spectrum(rates, NAMES, {label: index for index, label in enumerate(rates)})
    save(drawing, request.out, "crafter-spectrum")


def _remark_on(found: Sequence[Group]) -> None:
    """Say how big the runs are, so that nobody takes them for the paper's."""
    runs = [run for group in found for run in group.runs]
    unfinished = sum(not run.finished for run in runs)
    say(
        f"{len(runs)} runs fit: preset {distinct(run.preset for run in runs)}, "
        f"{distinct(f'{run.planned:,}' for run in runs)} steps, tasks {distinct(run.task for run in runs)}"
        + (f"; {unfinished} of them unfinished and in no score." if unfinished else ", all finished.")
    )
    sources = {
        name: distinct(plain(run.config.get(name, "unknown")) for run in runs)
        for name in ("commit", "machine")
    }
    say(f"Measured at commit {sources['commit']} on: {sources['machine']}.")
    variants = {
        f"{group.label} on {group.task}: {name}={value}"
        for group in found
        for run in group.runs
        for name, value in run.config.get("changed", {}).items()
        if name not in NOT_TRAINING | {"steps"}
    }
    if variants:
        say("Settings that these runs change: " + "; ".join(sorted(variants)) + ".")


ITEMS = tuple(
    Item(experiment.name, experiment.sentence, partial(draw, experiment), partial(sweep_table, experiment))
    for experiment in EXPERIMENTS
)
