"""The tabular figures of the paper as items: a finished study is reused, else what a figure needs is run."""

from __future__ import annotations

from functools import partial

from ede.errors import EdeError
from ede.paper.item import Item, Request
from ede.paper.show import MEASURED, PUBLISHED, say
from ede.tabular import files
from ede.tabular.figures import FIGURES, Figure
from ede.tabular.study import Size, Study, cores, run


def draw_figure(drawn: Figure, request: Request) -> None:
    """Draw one figure; print the paper's claims about it beside ours."""
    from ede.tabular import report

    study = _study(drawn, request)
    with files.staged(request.out) as stage:
        drawn.draw(study, stage)
        if study.rows:
            files.write(study, stage, f"{drawn.name}.csv", f"{drawn.name}-curves.csv")
    if study.rows:
        say(_origin(request))
        report.scores(study)
    report.claims(study, drawn.name)


def draw_theory(world: str, request: Request) -> None:
    """Appendix A's quantities of three explorers, over training and at its end."""
    from ede.tabular import report

    with files.staged(request.out) as stage:
        found = report.explain(world, Size(seed=request.seed), cores(), stage)
    say(_origin(request))
    report.quantities(world, found)
    say(
        "The paper argues that UCB's coverage is what makes its Q right where training seldom goes; it prints no "
        "numbers for this."
    )


def _origin(request: Request) -> str:
    return (
        f"{MEASURED[0].upper()}{MEASURED[1:]}: whatever is not called {PUBLISHED} or the paper's was "
        f"computed by this package, seed {request.seed}, at the paper's own size."
    )


def _study(drawn: Figure, request: Request) -> Study:
    """The figure's rows: from a finished study of the same size and seed where there is one."""
    size = Size(seed=request.seed)
    kept = {folder: files.read(folder, size).rows for folder in (request.out, *request.runs)}
    for folder in request.runs if drawn.needs else ():
        if not kept[folder]:
            raise EdeError(
                f"{folder} holds no tabular study of {size.trials} trials of {size.episodes} episodes with seed "
                f"{size.seed} from this version; leave out --runs to run what the figure needs."
            )
    known = [row for rows in kept.values() for row in rows]
    missing = Study(size, tuple(known)).missing(drawn.needs)
    rows = {row.cell: row for row in (*known, *run(missing, size, threads=cores()))}
    return Study(size, tuple(rows[cell] for cell in drawn.needs))


ITEMS = (
    *(Item(drawn.name, drawn.sentence, partial(draw_figure, drawn)) for drawn in FIGURES.values()),
    Item(
        "tabular-theory",
        "Grid: what each explorer covers (μ_min, t_mix, G(α)) beside the error of Q and test return.",
        partial(draw_theory, "grid"),
    ),
    Item(
        "tabular-windy-theory",
        "Windy world: the same quantities.",
        partial(draw_theory, "windy"),
    ),
)
