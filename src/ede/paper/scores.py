"""The paper's two score tables as they are printed, game by game, and the scores of given runs in columns beside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ede.paper.item import Item, Request
from ede.paper.published import RUNS, procgen
from ede.paper.show import MEASURED, NOT_YET, PUBLISHED, Cell, say, table, write_csv
from ede.report.load import load
from ede.report.parts import distinct
from ede.report.scores import final_scores, groups
from ede.statistics import Floats

STEPS = 25_000_000
"""Environment steps of a published run."""


def draw(split: str, request: Request) -> None:
    """Raw returns, mean ± standard deviation over runs; a game without a run of ours is not yet."""
    printed = procgen(split)
    games = next(iter(printed.values())).games
    rows: list[Sequence[Cell]] = [
        [game, name, method.mean[game], method.std[game], RUNS, STEPS, PUBLISHED]
        for name, method in printed.items()
        for game in games
    ]
    ours: dict[str, dict[str, Floats]] = {}
    steps: set[int] = set()
    for group in groups(load(request.runs).runs if request.runs else ()):
        values = final_scores(group, split)
        if group.family == "procgen" and len(values):
            game = group.task.removeprefix("procgen/")
            ours.setdefault(group.label, {})[game] = values
            spread = float(values.std(ddof=1)) if len(values) > 1 else ""
            steps |= {run.planned for run in group.finished}
            longest = max(run.planned for run in group.finished)
            rows.append([game, group.label, float(values.mean()), spread, len(values), longest, MEASURED])
    write_csv(request.out / "scores.csv", ["game", "method", "mean", "std", "runs", "steps", "origin"], rows)
    table(
        f"Procgen, {split} levels, raw return: {PUBLISHED} after {STEPS:,} steps"
        + (f"; in the last columns {MEASURED}" if ours else ""),
        ["game", *printed, *(f"{label}, {MEASURED}" for label in ours)],
        [
            [
                game,
                *(f"{method.mean[game]} ± {method.std[game]}" for method in printed.values()),
                *(_shown(mine[game]) if game in mine else NOT_YET for mine in ours.values()),
            ]
            for game in games
        ],
    )
    say(f"After ± stands the standard deviation over runs: {RUNS} of them where {PUBLISHED}.")
    if ours:
        lengths = distinct(f"{one:,}" for one in sorted(steps))
        say(f"In brackets the number of our runs, of {lengths} steps: no check of the printed ones.")
    else:
        say("Ours: not yet; --runs sets runs of Procgen beside the printed scores.")
    if request.preset == "paper":
        say("The runs that would measure it: `ede paper procgen-main --preset paper`.")


def _shown(values: Floats) -> str:
    spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{spread} ({len(values)})"


ITEMS = tuple(
    Item(
        f"procgen-{split}-scores",
        f"The printed table of scores on {where} levels, game by game.",
        partial(draw, split),
    )
    for split, where in (("test", "test"), ("train", "training"))
)
