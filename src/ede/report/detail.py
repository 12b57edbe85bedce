"""The sections that look at each task: final returns, curves, gap, contexts, Crafter, uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ede.report import figures
from ede.report.achievements import NAMES, score, success_rates
from ede.report.parts import (
    SPLITS,
    Cell,
    Material,
    Numbers,
    Picture,
    Section,
    distinct,
    few_seeds,
    file_name,
)
from ede.report.scores import (
    Curve,
    Group,
    by_context,
    final_scores,
    gaps,
    held_out,
    learning_curve,
    limits,
    metric_curve,
    natural,
    over_runs,
    trained_share,
    training_curve,
)
from ede.statistics import Estimate, Floats


def per_task(material: Material) -> Section | None:
    pictures: list[Picture] = []
    rows: list[tuple[Cell, ...]] = []
    remarks: list[str] = []
    for family, tasks in material.families().items():
        drawn: dict[str, dict[str, list[Estimate | None]]] = {}
        unseen = any(held_out(group) for mine in tasks.values() for group in mine)
        for task, mine in tasks.items():
            if limits(mine[0].runs[0], material.table) is None:  # no aggregates, which would say it
                remarks += few_seeds(task, {group.label: len(group.finished) for group in mine})
            for group in mine:
                values = {split: final_scores(group, split) for split in ("test", "train")}
                found = {split: over_runs(runs, material.generator) for split, runs in values.items()}
                planned = sorted({run.planned for run in group.finished})
                steps = planned[0] if len(planned) == 1 else distinct(f"{one:,}" for one in planned)
                for split, estimate in found.items():
                    if estimate is not None:
                        runs = values[split]
                        spread = float(runs.std(ddof=1)) if len(runs) > 1 else float("nan")
                        rows.append((task, group.label, split, len(runs), steps, estimate, spread))
                if any(found.values()):
                    drawn.setdefault(task, {})[group.label] = (
                        list(found.values()) if unseen else [found["test"]]
                    )
        if drawn:
            names = (SPLITS["test"], SPLITS["train"]) if unseen else ("full distribution",)
            drawing = figures.dots(drawn, material.tones, names, "Return")
            pictures.append(Picture(f"final-{family}", f"{family}: closing evaluation, raw return.", drawing))
    if not rows:
        return None
    columns = ("task", "method", "split", "runs", "steps", "mean", "std over runs")
    return Section(
        "final",
        "Final returns, task by task",
        "Raw returns of the closing evaluation with 95 % bootstrap intervals over seeds. The filled dot is what "
        "counts: held-out contexts, or the full distribution where nothing is held out. A hollow dot (training "
        "contexts) far to its right is overfitting.",
        tuple(pictures),
        (Numbers("final_scores", "Closing evaluations", columns, tuple(rows)),),
        tuple(remarks),
    )


def learning_curves(material: Material) -> Section | None:
    tasks = material.tasks()
    pictures: list[Picture] = []
    rows: list[tuple[Cell, ...]] = []
    unseen: dict[str, dict[str, dict[str, Curve]]] = {}
    for task, mine in tasks.items():
        by_split = {
            where: _drawable(
                {group.label: learning_curve(group, split, material.generator) for group in mine}
            )
            for split, where in _evaluated(mine[0]).items()
        }
        episodes = _drawable({group.label: training_curve(group, material.generator) for group in mine})
        shown = {where: found for where, found in by_split.items() if found}
        shown = shown or ({"training episodes": episodes} if episodes else {})
        rows += [
            (task, label, where, int(step), *point, int(seeds))
            for where, found in {**by_split, "training episodes": episodes}.items()
            for label, curve in found.items()
            for step, *point, seeds in zip(
                curve.steps.tolist(), curve.mean.tolist(), curve.low.tolist(), curve.high.tolist(),
                curve.seeds.tolist(), strict=True,
            )
        ]  # fmt: skip
        if by_split.get(SPLITS["test"]) and len(mine) <= figures.MANY:
            unseen.setdefault(mine[0].family, {})[task] = by_split[SPLITS["test"]]
        if shown:
            drawing = _curves(shown, material, "Return")
            pictures.append(Picture(f"curves-{file_name(task)}", f"{task}: {' and '.join(shown)}.", drawing))
    if not pictures:
        return None
    for family, found in unseen.items():
        if len(found) > 1:
            drawing = figures.curves(found, material.tones, "Return on held-out contexts")
            pictures.insert(
                0, Picture(f"curves-{family}", f"{family}: all tasks, held-out contexts.", drawing)
            )
    columns = ("task", "method", "contexts", "step", "mean", "low", "high", "seeds")
    return Section(
        "curves",
        "Learning curves",
        "Mean return over seeds against environment steps, with pointwise 95 % bootstrap bands; a faint stretch "
        "means that some seeds have not got that far, a missing band that there is one seed. Where methods are "
        "many, each has a panel of its own, with the others in grey behind it.",
        tuple(pictures),
        (Numbers("curves", "Learning curves", columns, tuple(rows), shown=False),),
    )


def _evaluated(group: Group) -> dict[str, str]:
    """Split → what to call it; where nothing is held out both are the same, and one is shown."""
    return SPLITS if held_out(group) else {"test": "evaluation on the training contexts"}


def _curves(shown: Mapping[str, Mapping[str, Curve]], material: Material, ylabel: str) -> Any:
    """A panel a title with a line a method; where these are many, a panel a method with a line a title."""
    labels = [label for label in material.tones if any(label in curves for curves in shown.values())]
    if len(labels) <= figures.MANY:
        titles = {where[0].upper() + where[1:]: curves for where, curves in shown.items()}
        return figures.curves(titles, material.tones, ylabel, 2, 2.3, share_y=True)
    names = tuple(shown)[::-1]  # held-out contexts come last and are drawn solid
    found = {
        label: [figures.over_steps(shown[name].get(label)) for name in names]
        for label in sorted(labels, key=natural)
    }
    return figures.lattice(found, material.tones, names, "Million environment steps", ylabel)


def _drawable(found: Mapping[str, Curve | None]) -> dict[str, Curve]:
    return {label: curve for label, curve in found.items() if curve is not None and len(curve.steps) > 1}


def generalisation_gap(material: Material) -> Section | None:
    pictures: list[Picture] = []
    rows: list[tuple[Cell, ...]] = []
    for family, tasks in material.families().items():
        drawn: dict[str, dict[str, list[Estimate | None]]] = {}
        for task, mine in tasks.items():
            for group in filter(held_out, mine):
                estimate = over_runs(gaps(group), material.generator)
                if estimate is not None:
                    drawn.setdefault(task, {})[group.label] = [estimate]
                    rows.append((task, group.label, float(final_scores(group, "train").mean()), estimate))
        if drawn:
            drawing = figures.dots(drawn, material.tones, ("gap",), "Training − held-out return", zero=True)
            pictures.append(
                Picture(f"gap-{family}", f"{family}: right of the line, training is better.", drawing)
            )
    if not rows:
        return None
    return Section(
        "gap",
        "Generalisation gap",
        "Training return minus held-out return, run by run. Small is good only when the training return is good: a "
        "policy that plays at random has no gap at all.",
        tuple(pictures),
        (Numbers("gap", "Gaps", ("task", "method", "training return", "gap"), tuple(rows)),),
    )


def contexts(material: Material) -> Section | None:
    """How the closing evaluation spreads over contexts."""
    pictures: list[Picture] = []
    rows: list[tuple[Cell, ...]] = []
    remarks: list[str] = []
    for family, tasks in material.families().items():
        drawn: dict[str, dict[str, list[Floats]]] = {}
        for task, mine in tasks.items():
            if not held_out(mine[0]):
                continue
            for group in mine:
                found = {split: by_context(group, split) for split in ("test", "train")}
                rows += [
                    (task, group.label, split, context, len(values), float(values.mean()))
                    for split, known in found.items()
                    for context, values in known.items()
                ]
                if any(found.values()):
                    drawn.setdefault(task, {})[group.label] = [
                        np.array([values.mean() for values in known.values()]) for known in found.values()
                    ]
            share = trained_share(mine[0])
            if share > 0:
                remarks.append(
                    f"{task}: {share:.1%} of the held-out episodes were played on a training context."
                )
        if drawn:
            drawing = figures.shares(
                drawn, material.tones, ("held-out", "training"), "Mean return on a context"
            )
            pictures.append(Picture(f"contexts-{family}", f"{family}, closing evaluations.", drawing))
    if not rows:
        return None
    columns = ("task", "method", "split", "context", "episodes", "mean return")
    return Section(
        "contexts",
        "Returns context by context",
        "Each line gives the share of contexts whose mean return, over seeds and episodes, reaches the value below "
        "it: held-out contexts solid, training contexts dotted. A step down near zero is the share of contexts "
        "that are never solved.",
        tuple(pictures),
        (Numbers("contexts", "Per-context returns", columns, tuple(rows), shown=False),),
        tuple(remarks),
    )


def crafter(material: Material) -> Section | None:
    """Crafter's score and success-rate spectrum, where runs recorded achievements."""
    rates = {
        group: by_run
        for group in material.groups
        if (by_run := [found for run in group.runs if (found := success_rates(run)) is not None])
    }
    if not rates:
        return None
    scored: list[tuple[Cell, ...]] = []
    for group, by_run in rates.items():
        values = np.array([score(rate) for rate in by_run])
        estimate = over_runs(values, material.generator)
        assert estimate is not None
        steps = min(run.reached for run in group.runs)
        scored.append((group.task, group.label, len(by_run), steps, estimate))
    means = {group: np.mean(by_run, axis=0) for group, by_run in rates.items()}
    return Section(
        "crafter",
        "Crafter",
        "Per cent of all training episodes (of the first million steps) that unlocked each achievement; the score "
        "is their geometric mean, so a rare achievement counts as much as a common one.",
        (
            Picture(
                "crafter-spectrum",
                "Success rates, mean over seeds.",
                figures.spectrum({group.label: mean for group, mean in means.items()}, NAMES, material.tones),
            ),
        ),
        (
            Numbers(
                "crafter",
                "Scores at the steps reached",
                ("task", "method", "runs", "steps", "score"),
                tuple(scored),
            ),
            Numbers(
                "achievements",
                "Success rates",
                ("task", "method", *NAMES),
                tuple((group.task, group.label, *mean.tolist()) for group, mean in means.items()),
                shown=False,
            ),
        ),
    )


def _estimated(found: Mapping[str, Curve | None]) -> dict[str, Curve]:
    """Without the methods whose uncertainty is zero throughout, because they have no estimate of it."""
    return {label: curve for label, curve in _drawable(found).items() if curve.mean.any()}


def uncertainty(material: Material) -> Section | None:
    pictures: list[Picture] = []
    rows: list[tuple[Cell, ...]] = []
    for task, mine in material.tasks().items():
        found = {
            name: _estimated({group.label: metric_curve(group, name, material.generator) for group in mine})
            for name in ("epistemic", "aleatoric")
        }
        shown = {name: curves for name, curves in found.items() if curves}
        rows += [
            (task, label, name, int(step), mean)
            for name, curves in found.items()
            for label, curve in curves.items()
            for step, mean in zip(curve.steps.tolist(), curve.mean.tolist(), strict=True)
        ]
        if max(map(len, shown.values()), default=0) > figures.MANY:  # a picture a kind: their sizes differ
            pictures += [
                Picture(
                    f"uncertainty-{file_name(task)}-{name}",
                    f"{task}: {name} uncertainty.",
                    _curves({name: curves}, material, "Standard deviation of return"),
                )
                for name, curves in shown.items()
            ]
        elif shown:
            titles = {name[0].upper() + name[1:]: curves for name, curves in shown.items()}
            drawing = figures.curves(titles, material.tones, "Std of return", 2, 2.1)
            pictures.append(Picture(f"uncertainty-{file_name(task)}", f"{task}.", drawing))
    if not pictures:
        return None
    return Section(
        "uncertainty",
        "Uncertainty over training",
        "Mean over visited states and actions, as standard deviations in the units the agent learns in. Epistemic "
        "uncertainty (members disagree) should fall as the agent learns; aleatoric uncertainty (returns vary) "
        "need not. A method with one member estimates no epistemic uncertainty, and one that learns values alone "
        "no aleatoric: neither is drawn.",
        tuple(pictures),
        (
            Numbers(
                "uncertainty",
                "Uncertainties",
                ("task", "method", "kind", "step", "mean"),
                tuple(rows),
                shown=False,
            ),
        ),
    )
