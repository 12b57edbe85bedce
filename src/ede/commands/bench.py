"""``ede bench``: how fast this machine is, and how near to what its matrix rate permits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ede.cli import parse

if TYPE_CHECKING:
    from ede.bench.learner import Measured
    from ede.bench.loop import Loop

TASKS = (
    ("bigfish-simple", "laptop"),
    ("gym/CartPole-v1", "laptop"),
    ("procgen/bigfish", "laptop"),
    ("procgen/bigfish", "paper"),
)
"""The loops that `ede bench` measures."""


@dataclass(frozen=True)
class Bench:
    """Measure this machine: the learner at the paper's size, and whole loops from acting to learning."""

    what: Annotated[Literal["all", "learner", "loop"], tyro.conf.Positional] = "all"
    """learner: one update in parts; loop: worlds, acting, replay, learner, end to end; all: both."""
    batch: int = 512
    """Transitions a member and update."""
    heads: int = 5
    """Members of the ensemble; with 1 it is QR-DQN."""
    precision: Literal["auto", "plain", "fp32", "bf16"] = "auto"
    """auto measures; plain is the specification, fp32 and bf16 are the fast paths."""
    updates: int = 5
    """Updates measured; the fastest counts."""
    threads: int = 0
    """Threads of torch; 0 for all cores."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the learner works."""
    json: bool = False
    """Print one line of JSON for the learner, or a line for each loop, and nothing else."""


def main(arguments: list[str]) -> int:
    given = parse(Bench, "bench", arguments)

    import os

    import torch

    from ede.errors import EdeError

    for name in ("batch", "heads", "updates"):
        if getattr(given, name) < 1:
            raise EdeError(f"--{name} must be at least 1; got {getattr(given, name)}.")
    if given.device == "cuda" and not torch.cuda.is_available():
        raise EdeError("This machine has no usable CUDA device; choose --device cpu.")
    torch.set_num_threads(given.threads or os.cpu_count() or 1)
    if given.what in ("all", "loop"):
        _loops(given)
    if given.what in ("all", "learner"):
        _learner(given)
    return 0


def _learner(given: Bench) -> None:
    from ede.bench.learner import measure, paper_settings

    settings = paper_settings(given.batch, given.heads, given.precision, given.device)
    measured = measure(settings, "ede" if given.heads > 1 else "qrdqn", given.updates)
    if given.json:
        print(json.dumps(measured.to_json()))
    else:
        _show_learner(measured)


def _show_learner(measured: Measured) -> None:
    from rich.console import Console
    from rich.table import Table

    from ede import precision

    table = Table(
        title=f"One update: {measured.members} heads of {measured.batch_size}, {measured.precision}"
    )
    table.add_column("part")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    for name, seconds in measured.parts.items():
        table.add_row(name, f"{seconds:.4f}", f"{seconds / measured.seconds_per_update:.0%}")
    table.add_section()
    table.add_row("update, fastest", f"{measured.seconds_per_update:.4f}", "100%")
    table.add_row("update, median", f"{measured.median_seconds:.4f}", "")
    table.add_row("floor", f"{measured.floor_seconds:.4f}", f"× {measured.ratio:.2f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"The floor is {measured.work.total / 1e9:.0f} thousand million operations at the matrix rate measured in "
        f"between, {measured.matrix_rate / 1e12:.2f} TFLOP/s; {precision.processor()}, {measured.threads} threads."
    )


def _loops(given: Bench) -> None:
    from ede.bench.loop import measure

    loops = [measure(task, "ede", preset, settings={"threads": given.threads}) for task, preset in TASKS]
    if given.json:
        for loop in loops:
            print(json.dumps({**vars(loop), "steps_per_second": loop.steps_per_second}))
    else:
        _show_loops(loops)


def _show_loops(loops: list[Loop]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="EDE end to end: milliseconds of a vector step, with its update")
    for name in ("task", "preset", "act", "world", "replay", "learn", "steps/s"):
        table.add_column(name, justify="left" if name in ("task", "preset") else "right")
    for loop in loops:
        parts = (loop.act, loop.world, loop.replay, loop.learn)
        table.add_row(
            loop.task, loop.preset, *(f"{1e3 * part:.1f}" for part in parts), f"{loop.steps_per_second:,.0f}"
        )
    Console(highlight=False).print(table)
