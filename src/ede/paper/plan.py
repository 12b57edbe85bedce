"""What an experiment would train: the published size for a cluster, or what fits a laptop, for ``ede sweep``."""

from __future__ import annotations

import json
from collections import defaultdict

from ede.paper.experiments import Experiment, Value
from ede.paper.item import SWEEP, Request
from ede.paper.show import say, table, write_csv

NO_SUCH_METHOD = "not yet: no such method here"
LAPTOP_TASKS = {
    "procgen": ("procgen/coinrun", "procgen/jumper"),
    "crafter": ("crafter",),
    "": ("bigfish-simple",),
}
"""Family → the tasks that a machine without a cluster trains; ``docs/evidence.md`` says how the games were chosen."""
LAPTOP_SEEDS = 5
"""Enough for two methods on one task to be told apart (``ede.statistics.DECISIVE``): fewer could judge no claim."""


def sweep_table(experiment: Experiment, preset: str) -> str:
    """The experiment's cells as TOML, for ``ede sweep``; one whose method is not here stands as a comment."""
    from ede.methods import METHODS

    published = preset == "paper"
    tasks = experiment.tasks if published else LAPTOP_TASKS[experiment.family]
    here = LAPTOP_SEEDS if experiment.claims else min(experiment.seeds, LAPTOP_SEEDS)
    seeds = experiment.seeds if published else here
    lines = [
        f"sentence = {_quoted(experiment.sentence)}",
        f"tasks = {_quoted(tasks)}",
        f"preset = {_quoted(preset)}",
        f"seeds = {seeds}",
    ]
    for cell in experiment.cells:
        method = (published and cell.paper_method) or cell.method
        if method not in METHODS:
            lines += ["", f"# {cell.label}: {NO_SUCH_METHOD}"]
            continue
        settings = {**(cell.paper if published else {}), **cell.settings}
        lines += ["", f"[[block]]  # {cell.label}", f"methods = {_quoted([method])}"]
        if settings:
            inside = ", ".join(f"{name} = [{_quoted(value)}]" for name, value in settings.items())
            lines.append(f"grid = {{ {inside} }}")
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    """A word, a number or a list of words as TOML writes it, which for these is as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def print_plan(experiment: Experiment, request: Request) -> None:
    """Every cell of the published size: what a cluster would run."""
    from ede.methods import METHODS
    from ede.presets import find_preset

    rows: list[list[Value]] = []
    for cell in experiment.cells:
        if not cell.method:
            continue
        method = cell.paper_method or cell.method
        settings = " ".join(f"{name}={value}" for name, value in {**cell.paper, **cell.settings}.items())
        for task in experiment.tasks:
            numbers = find_preset("paper", task).settings
            updates: Value = (
                (numbers.steps - numbers.learning_starts) // numbers.steps_per_update
                if method in METHODS
                else NO_SUCH_METHOD
            )
            rows += [
                [cell.label, task, method, seed, numbers.steps, updates, settings]
                for seed in range(experiment.seeds)
            ]
    columns = ["cell", "task", "method", "seed", "steps", "updates", "settings"]
    write_csv(request.out / "plan.csv", columns, rows)
    summary: dict[tuple[str, str, str], list[list[Value]]] = defaultdict(list)
    for row in rows:
        summary[str(row[0]), str(row[2]), str(row[6])].append(row)
    lines: list[list[Value]] = []
    for (label, method, settings), mine in summary.items():
        updates = mine[0][5]
        lines.append(
            [
                label, method, settings or "preset paper", len({row[1] for row in mine}), experiment.seeds,
                len(mine), f"{mine[0][4]:,}", f"{updates:,}" if isinstance(updates, int) else updates,
            ]
        )  # fmt: skip
    table(
        f"{experiment.name}, the published size: {len(rows)} runs, "
        f"{sum(int(row[4]) for row in rows):,} environment steps",
        ["cell", "method", "settings", "tasks", "seeds", "runs", "steps a run", "updates a run"],
        lines,
    )
    first = rows[0]
    changes = "".join(f" --set {change}" for change in str(first[6]).split())
    say(
        f"Every run is a row of plan.csv; the first one is: ede train {first[1]} --method {first[2]} --preset paper "
        f"--seed {first[3]}{changes}"
    )
    say(f"All of them on a cluster: ede sweep {request.out / SWEEP} --engine ray --address auto --out FOLDER")
