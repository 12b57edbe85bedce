"""What the study prints: scores, claims with verdicts, and the appendix's quantities."""

from __future__ import annotations

from pathlib import Path

from ede.paper.show import say, table
from ede.tabular import coverage
from ede.tabular.claims import findings
from ede.tabular.study import METHODS, Row, Size, Study
from ede.tabular.worlds import WORLDS

EXPLAINED = 30
"""Trials behind the appendix's quantities: they vary little."""
THEORY = {"grid": "tabular-theory", "windy": "tabular-windy-theory"}


def scores(study: Study) -> None:
    """The best value of each sweep; every value where the study is small."""
    sweeps = dict.fromkeys(row.cell[:2] for row in study.rows)
    every = len(study.rows) <= 10
    rows = study.rows if every else [study.best(*sweep) for sweep in sweeps]
    table(
        f"Returns after {study.size.episodes} episodes, mean (std) over {study.size.trials} trials"
        + ("" if every else ", best value of each sweep"),
        ["world", "method", "value", "published best", "training", "test", "test optimum"],
        [_score(row) for row in rows if row is not None],
    )


def _score(row: Row) -> tuple[str, ...]:
    method, world = METHODS[row.cell.method], WORLDS[row.cell.world]
    return (
        row.cell.world,
        method.title,
        f"{method.symbol} = {row.cell.value:g}",
        f"{method.published:g}" if row.cell.world == "grid" else "not printed",
        f"{row.mean[0]:.2f} ({row.std[0]:.2f})",
        f"{row.mean[1]:.2f} ({row.std[1]:.2f})",
        f"{world.test_optimum:.2f}",
    )


def claims(study: Study, figure: str | None = None) -> None:
    """The paper's sentences beside ours; those that this study cannot judge stand as not yet."""
    judged = findings(study, figure)
    if not judged:
        return
    table(
        "The paper's claims",
        ["published", "ours (± standard error)", "verdict"],
        [(one.published, one.ours, one.verdict) for one in judged],
    )
    if any(one.verdict == "not yet" for one in judged):
        say("Not yet: this needs whole sweeps of at least 100 trials, and 1000 episodes each.")
    for one in judged:
        if one.why:
            say(f"{one.published}: differs. {one.why}")


def explain(
    world: str, size: Size, threads: int, out: Path, figures: bool = True
) -> tuple[coverage.Exploration, ...]:
    """Appendix A on a world, written as ``<name>.csv`` and drawn."""
    fewer = Size(min(size.trials, EXPLAINED), size.episodes, size.seed)
    found = coverage.explore(WORLDS[world], fewer, threads)
    coverage.write(WORLDS[world], found, out / f"{THEORY[world]}.csv")
    if figures:
        coverage.draw(WORLDS[world], found, out, THEORY[world])
    return found


def quantities(world: str, found: tuple[coverage.Exploration, ...]) -> None:
    """Print what ``explain`` found at the end of training."""
    trials = len(found[0].ends)
    table(
        f"Appendix A, {world}: coverage, and steps to an error of {coverage.ACCURACY:g}; medians of {trials} trials",
        coverage.SUMMARY,
        coverage.summary(WORLDS[world], found),
    )
