"""The sections that look at all runs at once: what was run, aggregate scores, cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ede.report import figures
from ede.report.parts import (
    SPLITS,
    Cell,
    Material,
    Numbers,
    Picture,
    Section,
    count,
    distinct,
    few_seeds,
    plain,
    seed_list,
)
from ede.report.scores import Comparison, comparisons, differing, held_out, natural, preset_values
from ede.statistics import (
    DECISIVE,
    METRICS,
    Estimate,
    Floats,
    aggregate,
    performance_profile,
    probability_of_improvement,
    separation_chance,
)


def what_was_run(material: Material) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for group in material.groups:
        reached = [run.reached for run in group.runs]
        presets = ", ".join(sorted({run.preset for run in group.runs}))
        planned = max(run.planned for run in group.runs)
        rows.append(
            (
                group.task,
                group.label,
                presets,
                seed_list([run.seed for run in group.runs]),
                f"{len(group.finished)} of {len(group.runs)}",
                f"{min(reached):,} to {max(reached):,}" if min(reached) != max(reached) else reached[0],
                planned,
                distinct(run.config.get("train_contexts", "–") for run in group.runs),
                distinct(run.config.get("test_contexts", "–") for run in group.runs),
            )
        )
    runs = material.collection.runs
    sources = tuple(
        (name, distinct(plain(run.config.get(name, "–")) for run in runs))
        for name in ("sweep", "commit", "machine", "versions")
        if any(name in run.config for run in runs)
    )
    varied = differing(runs)
    own = set(preset_values(runs).items())
    values = tuple(
        (
            name,
            ", ".join(sorted({str(run.settings[name]) for run in runs if name in run.settings}, key=natural)),
            ", ".join(sorted({value for (_, _, known), value in own if known == name}, key=natural)) or "–",
        )
        for name in varied
    )
    unfinished = [run for run in runs if not run.finished]
    remarks = [
        f"{count(len(runs), 'run')} of {count(len({group.label for group in material.groups}), 'method')} on "
        f"{count(len(material.tasks()), 'task')}; "
        + (f"{len(runs) - len(unfinished)} of them finished." if unfinished else "all finished.")
    ]
    remarks += [
        f"{task}: training draws from the full distribution, so nothing is held out; a test evaluation is one more "
        "evaluation on the training contexts."
        for task, mine in material.tasks().items()
        if not held_out(mine[0])
    ]
    if unfinished:
        done = sum(min(run.reached / run.planned, 1.0) for run in runs) / len(runs)
        remarks.append(
            f"{len(unfinished)} of {len(runs)} runs are unfinished; {done:.0%} of the planned steps are done. "
            "Unfinished runs appear in curves, faintly where seeds are missing, and in no final score."
        )
    numbers = [
        Numbers(
            "runs",
            "Methods, tasks and seeds",
            (
                "task", "method", "preset", "seeds", "finished", "steps reached", "steps planned",
                "training contexts", "held-out contexts",
            ),
            tuple(rows),
        ),
        Numbers("methods", "What the methods and tasks are", ("name", "what it is"), _meanings(material)),
        Numbers(
            "evaluations", "How policies were judged: episodes of each split, share of random actions",
            ("task", "evaluation", "episodes", "random", "rule"), _protocols(material),
        ),
        Numbers("sources", "Where the numbers come from", ("what", "value"), sources),
        Numbers(
            "commands", "The command of each run", ("run", "command"),
            tuple((run.path.name, str(run.config.get("command", "–"))) for run in runs), shown=False,
        ),
    ]  # fmt: skip
    if values:
        numbers.insert(
            1,
            Numbers(
                "settings",
                "Settings that were varied; a label names those that are not the preset's",
                ("setting", "values", "preset's"),
                values,
            ),
        )
    return Section(
        "runs",
        "What was run",
        "One line a method and task. Seeds are independent repetitions; a final score needs a finished run.",
        numbers=tuple(numbers),
        remarks=(*remarks, *material.collection.problems),
    )


def _meanings(material: Material) -> tuple[tuple[Cell, ...], ...]:
    """A sentence for each method and world; runs may be older than the table and know names that it has lost."""
    from ede.envs import FAMILIES
    from ede.methods import METHODS

    runs = material.collection.runs
    methods = {run.method: METHODS[run.method].sentence for run in runs if run.method in METHODS}
    worlds = {
        prefix: f"{FAMILIES[prefix].sentence}."
        for prefix in dict.fromkeys(run.task.partition("/")[0] for run in runs)
        if prefix in FAMILIES
    }
    return tuple(sorted(methods.items())) + tuple(worlds.items())


def _protocols(material: Material) -> tuple[tuple[Cell, ...], ...]:
    """Task → episodes, ε and rule of the evaluations along the run and of the closing ones."""
    rows: dict[tuple[Cell, ...], None] = {}
    for task, mine in material.tasks().items():
        for final, when in ((False, "along the run"), (True, "closing")):
            found = [
                evaluation.protocol
                for group in mine
                for run in group.runs
                for evaluation in run.evaluations
                if evaluation.final == final and evaluation.protocol
            ]
            if found:
                values = [
                    distinct(one.get(name, "–") for one in found) for name in ("episodes", "epsilon", "rule")
                ]
                rows[task, when, *values] = None
    return tuple(rows)


def aggregates(material: Material) -> Section | None:
    """Mean, median, IQM and optimality gap a family, with profiles and the probability of improvement."""
    pictures: list[Picture] = []
    summary: list[tuple[Cell, ...]] = []
    improvement: list[tuple[Cell, ...]] = []
    remarks: list[str] = []
    both = [
        (split, found) for split in SPLITS for found in comparisons(material.groups, split, material.table)
    ]
    for split, comparison in sorted(both, key=lambda pair: (pair[1].family, pair[0])):
        where = f"{comparison.family}, {SPLITS[split]}"
        remarks += _coverage(comparison, comparison.family)
        if not comparison.tasks:
            continue
        scale = f"Normalised return, {where}"
        found = {label: aggregate(scores, material.generator) for label, scores in comparison.scores.items()}
        pictures.append(
            Picture(
                f"aggregate-{comparison.family}-{split}",
                f"{where}: {_tasks(comparison)}, normalised.",
                figures.intervals(found, material.tones, scale),
            )
        )
        for label, estimates in found.items():
            runs = sum(len(scores) for scores in comparison.scores[label].values())
            summary.append(
                (comparison.family, split, label, len(comparison.tasks), runs, *estimates.values())
            )
        if split == "test":
            wins = _improvements(comparison, material)
            pictures.append(_profile(comparison, material, scale))
            improvement += [(comparison.family, one, other, won) for (one, other), won in wins.items()]
            remarks += _leaders(where, comparison.scores, found, wins)
    if not summary:
        return None
    numbers = [
        Numbers(
            "aggregate",
            "Aggregates with 95 % intervals",
            ("family", "split", "method", "tasks", "runs", *METRICS),
            tuple(summary),
        )
    ]
    if improvement:
        numbers.append(
            Numbers(
                "improvement",
                "Probability that a run of the first method beats one of the second, held-out contexts",
                ("family", "method", "over", "probability"),
                tuple(improvement),
                shown=len(improvement) <= 30,
            )
        )
    return Section(
        "aggregates",
        "Aggregate scores",
        "Returns are scaled so that 0 and 1 are a task's known limits (Procgen: table "
        f"{material.table}). IQM is the mean of the middle half of all runs; the optimality gap is what is missing "
        "to 1 and is better when small. Bars are 95 % stratified bootstrap intervals over seeds; where they "
        "overlap widely, the runs do not tell the methods apart.",
        tuple(pictures),
        tuple(numbers),
        tuple(dict.fromkeys(remarks)),
    )


def _tasks(comparison: Comparison) -> str:
    tasks = len(comparison.tasks)
    return f"{tasks} tasks" if tasks > 1 else "one task, on which mean and median are the same"


def _leaders(
    where: str,
    scores: Mapping[str, Mapping[str, Floats]],
    found: dict[str, dict[str, Estimate]],
    wins: dict[tuple[str, str], Estimate],
) -> list[str]:
    """What a family's comparison says in a sentence: the two highest IQMs, and how sure the order is."""
    first, *others = sorted(found, key=lambda label: -found[label]["iqm"].value)
    if not others:
        return []
    won = wins[first, others[0]]
    sure = (
        "so few runs cannot tell them apart."
        if separation_chance(scores[first], scores[others[0]]) > DECISIVE
        else f"a run of {first} beats one of {others[0]} with probability {won}."
    )
    return [
        f"{where}: the highest IQM is {first} with {found[first]['iqm']}, then {others[0]} with "
        f"{found[others[0]]['iqm']}; {sure}"
    ]


def _coverage(comparison: Comparison, where: str) -> list[str]:
    """What stands behind an aggregate, and what weakens it."""
    said = []
    if comparison.left_out:
        said.append(
            f"{where}: left out of the aggregates, because not every compared method finished "
            f"there or the limits are unknown: {', '.join(comparison.left_out)}."
        )
    seeds = {label: min(map(len, mine.values())) for label, mine in comparison.scores.items() if mine}
    return said + few_seeds(where, seeds)


def _profile(comparison: Comparison, material: Material, scale: str) -> Picture:
    values = np.concatenate([runs for mine in comparison.scores.values() for runs in mine.values()])
    thresholds = np.linspace(min(0.0, float(values.min())), max(1.0, float(values.max())), 61)
    found = {
        label: performance_profile(scores, thresholds, material.generator, resamples=500)
        for label, scores in comparison.scores.items()
    }
    return Picture(
        f"profile-{comparison.family}",
        f"{comparison.family}, held-out contexts: the share of runs above each normalised return; higher is better.",
        figures.profiles(found, material.tones, scale),
    )


def _improvements(comparison: Comparison, material: Material) -> dict[tuple[str, str], Estimate]:
    return {
        (one, other): probability_of_improvement(scores, baseline, material.generator, resamples=1000)
        for one, scores in comparison.scores.items()
        for other, baseline in comparison.scores.items()
        if one != other
    }


def cost(material: Material) -> Section:
    rows: list[tuple[Cell, ...]] = []
    spent = 0.0
    for group in material.groups:
        speeds = np.array([run.speed for run in group.runs if not np.isnan(run.speed)])
        hours = np.array([run.hours for run in group.runs if not np.isnan(run.hours)])
        spent += float(hours.sum())
        speed = float(np.median(speeds)) if len(speeds) else float("nan")
        missing = sum(max(run.planned - run.reached, 0) for run in group.runs if not run.finished)
        left = (missing / speed / 3600 if speed else float("nan")) if missing else 0.0
        rows.append((group.task, group.label, len(group.runs), speed, float(hours.sum()), left))
    return Section(
        "cost",
        "Cost",
        "Environment steps a second over a whole run, evaluations included (median over runs; whatever else ran on "
        "the machine slowed them), hours spent over all seeds, and the hours the missing steps "
        "would take at that speed, one run after another.",
        numbers=(
            Numbers(
                "cost",
                "Speed and time",
                ("task", "method", "runs", "steps a second", "hours spent", "hours to go"),
                tuple(rows),
            ),
        ),
        remarks=(f"In all {spent:.1f} hours of training.",),
    )
