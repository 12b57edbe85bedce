"""``ede sweep``: run a table of cells, only the missing ones."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ede.cli import parse
from ede.errors import EdeError


@dataclass(frozen=True)
class Arguments:
    """Run a table of cells into a folder of run folders: only missing cells run, begun ones are carried on."""

    sweep: Annotated[str, tyro.conf.Positional] = ""
    """A TOML file, or a name that `--list` shows."""
    out: Path | None = None
    """Folder of the run folders; default: runs/<sweep>."""
    dry_run: bool = False
    """Print the cells and what they cost here, and run none."""
    list: bool = False
    """Show the named sweeps and run none."""
    engine: Literal["processes", "ray"] = "processes"
    """Processes on this machine, or tasks on a Ray cluster."""
    workers: int | None = None
    """Processes: cells that run at once; default: one a core."""
    address: str | None = None
    """Ray: `auto` or HOST:PORT of a running cluster; a local one is started when absent."""
    tasks: tuple[str, ...] = ()
    """Run these tasks in place of the sweep's."""
    methods: tuple[str, ...] = ()
    """Run these methods in place of the sweep's."""
    seeds: int | None = None
    """Run this many seeds, from 0."""
    preset: str | None = None
    """Run this preset: paper, laptop or smoke."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change a setting in every cell: --set steps=10000 --set device=cpu."""
    limit_seconds: float | None = None
    """Save and leave after so long; the same command carries on."""
    keep_replay: bool = False
    """Keep the replay of finished cells, which only more training would need."""
    collect: Path | None = None
    """Afterwards, condense the finished runs into this folder of small files (results/NAME)."""


def main(arguments: list[str]) -> int:
    given = parse(Arguments, "sweep", arguments)
    from ede.commands.train import parse_settings
    from ede.paper import show
    from ede.sweep.cells import find

    console = show.console()
    if given.list:
        return show_names()
    if not given.sweep:
        raise EdeError("Name a sweep or a TOML file; `ede sweep --list` shows the sweeps.")
    settings: dict[str, Any] = parse_settings(given.set)
    sweep = find(given.sweep).changed(given.tasks, given.seeds, given.preset, settings, given.methods)
    cells = sweep.cells()
    out = (given.out or Path("runs") / sweep.name).absolute()
    cores = available_cores()
    workers = min(given.workers or cores, len(cells))
    if workers < 1:
        raise EdeError(f"--workers must be at least 1; got {given.workers}.")

    from ede.sweep.board import Board, final_table
    from ede.sweep.work import Stop, held, jobs

    threads = max(1, cores // workers) if given.engine == "processes" else 1
    if given.dry_run:
        from ede.sweep.plan import price, tables, too_big

        table = jobs(cells, out, threads)
        with console.status("measuring") as status:
            prices = price(table, status.update if console.is_terminal else console.print)
        console.print(*tables(table, prices, workers, out))
        if too_big(table, prices, workers):
            console.print("[bold]These cells do not fit into memory together:[/] choose fewer --workers.")
        return 0

    with held(out):
        table = jobs(cells, out, threads, given.keep_replay)
        missing = [job for job in table if not job.done]
        if missing:
            remember(out, sweep.name, arguments)
        board = Board(len(table), len(table) - len(missing))
        board.say(f"{len(table)} cells, {len(missing)} missing; {out}")
        stop = Stop(given.limit_seconds)
        with board.open():
            if given.engine == "ray" and missing:
                from ede.sweep import ray

                outcomes = ray.run(missing, given.address, cores, board, stop)
            else:
                from ede.sweep import processes

                outcomes = processes.run(missing, workers, board, stop)
        for job in table:
            if job.done:  # also where the sweep was killed just before it could
                job.drop_replay()
    console.print(final_table(table, outcomes))
    failed = {job: outcome for job, outcome in outcomes.items() if outcome.status == "failed"}
    for job, outcome in failed.items():
        board.say(f"{job.cell.name} failed: {outcome.sentence} Log: {job.log}")
    left = sum(not job.done for job in table)
    if left:
        board.say(f"{left} cells are missing; carry on with: {shlex.join(['ede', 'sweep', *arguments])}")
    if given.collect and left < len(table):
        from ede.results import collect

        board.say(collect([out], given.collect))
    if stop.signals:
        return 128 + stop.signals[0]
    return 1 if left else 0


def remember(out: Path, name: str, arguments: list[str]) -> None:
    """Which sweep fills the folder, and the commands that did."""
    path, aside = out / "sweep.json", out / ".sweep.json"
    before: list[str] = json.loads(path.read_text())["commands"] if path.exists() else []
    commands = list(dict.fromkeys([*before, shlex.join(["ede", "sweep", *arguments])]))
    aside.write_text(json.dumps({"sweep": name, "commands": commands}, indent=2) + "\n")
    aside.rename(path)


def show_names() -> int:
    from ede.paper import show
    from ede.sweep.named import SWEEPS

    show.table(
        "Sweeps", ("name", "what it is"), [(name, sweep.sentence) for name, sweep in SWEEPS.items()], "left"
    )
    return 0


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
