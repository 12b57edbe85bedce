"""``ede tabular``: the paper's tabular study, from equation to figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ede.cli import parse

if TYPE_CHECKING:
    from ede.tabular.study import Cell, Study


@dataclass(frozen=True)
class Tabular:
    """Run the paper's tabular study and write its table, curves and figures.

    The worlds are grid and windy; the methods egreedy, ucb, pg and sarsa (and pg-printed, policy gradient
    with the entropy's sign as the paper prints it). Without further words all of the paper's study is run.
    """

    out: Path = Path("out/tabular")
    """Folder for tabular.csv, curves.csv and the figures."""
    trials: int = 100
    """Independent trials of each value."""
    episodes: int = 1000
    """Training episodes of a trial."""
    world: tuple[str, ...] = ()
    """Worlds to run; all when not given."""
    method: tuple[str, ...] = ()
    """Methods to run; the paper's four when not given."""
    value: tuple[float, ...] = ()
    """Values of the method's hyperparameter; its ten when not given."""
    seed: int = 0
    """The same seed gives the same files."""
    threads: int = 0
    """Threads to run on; 0 takes all cores. The result does not depend on it."""
    figures: bool = True
    """Draw the figures."""


def main(arguments: list[str]) -> int:
    settings = parse(Tabular, "tabular", arguments)

    from ede.errors import EdeError
    from ede.paper.show import say
    from ede.report.style import figure
    from ede.tabular import files, report
    from ede.tabular.study import Size, Study, cells, cores, run

    chosen = cells(settings.world, settings.method, settings.value)
    size = Size(settings.trials, settings.episodes, settings.seed)
    if settings.threads < 0:
        raise EdeError(f"The number of threads must not be negative; got {settings.threads}.")
    threads = settings.threads or cores()
    if settings.figures:
        with figure():  # what figures need and is missing is told before the study, not after it
            pass
    whole = not (settings.method or settings.value)
    with files.staged(settings.out) as stage:
        with _progress(chosen) as advance:
            study = Study(size, run(chosen, size, threads=threads, advance=advance))
        files.write(study, stage)
        if settings.figures:
            _draw(study, stage)
        explained = {
            world: report.explain(world, size, threads, stage, settings.figures)
            for world in dict.fromkeys(cell.world for cell in chosen if whole)
        }
        files.seal(study, stage)
    report.scores(study)
    report.claims(study)
    for world, found in explained.items():
        report.quantities(world, found)
    say(f"In {settings.out}: {', '.join(sorted(path.name for path in settings.out.iterdir()))}")
    return 0


def _draw(study: Study, folder: Path) -> None:
    from ede.tabular.figures import drawable

    for drawn in drawable(study):
        drawn.draw(study, folder)


@contextmanager
def _progress(chosen: tuple[Cell, ...]) -> Iterator[Callable[[Cell], None]]:
    """A bar on a terminal; elsewhere a line for each sweep that is done."""
    from rich.progress import Progress

    from ede.paper.show import console, say

    screen = console()
    if screen.is_terminal:
        with Progress(console=screen, transient=True) as bar:
            task = bar.add_task("compiling on the first run", total=len(chosen))

            def advance(cell: Cell) -> None:
                bar.update(task, advance=1, description=f"{cell.world} {cell.method} {cell.value:g}")

            yield advance
    else:
        last = {cell[:2]: cell for cell in chosen}

        def announce(cell: Cell) -> None:
            if last[cell[:2]] == cell:
                say(f"{cell.world} {cell.method}: done")

        yield announce
