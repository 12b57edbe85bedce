"""What a sweep costs on this machine, from a second's measurement of each kind of cell: ``--dry-run``."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from ede.checkpoint import KEPT
from ede.display import Display
from ede.memory import available_memory
from ede.plan import replay_shape, resolve
from ede.rehearsal import Cost, rehearse
from ede.replay import replay_bytes
from ede.runs import RunFolder
from ede.sweep.board import clock
from ede.sweep.work import Job
from ede.trainer import Trainer

FREE = frozenset({"steps", "phi", "tee_lambda", "tee_alpha", "train_contexts", "test_contexts"})
"""Settings that change nothing about what a step costs."""


@dataclass(frozen=True)
class Price:
    """What one cell takes."""

    updates: int
    seconds: float
    """Acting and learning, one cell alone on its threads; evaluations come on top."""
    memory: int
    """Bytes of its process, the replay full."""
    replay: int
    """Bytes of replay in its newest checkpoint, until it is finished."""
    parameters: int
    """Bytes of its checkpoints that stay."""


def price(jobs: Sequence[Job], say: Callable[[str], None]) -> dict[Job, Price]:
    """The price of each job; what costs alike is measured once."""
    measured: dict[object, tuple[Cost, int, int]] = {}
    found = {}
    for job in jobs:
        kind = _kind(job)
        if kind not in measured:
            say(f"measuring {job.cell.method} on {job.cell.task}, preset {job.cell.preset}")
            measured[kind] = _measure(job)
        cost, replay, parameters = measured[kind]
        settings = job.settings()
        updates = max(0, job.steps() - settings.learning_starts) // settings.steps_per_update
        found[job] = Price(
            updates=updates,
            seconds=job.steps() / settings.lanes * cost.vector_step + updates * cost.update,
            memory=replay + 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            replay=replay,
            parameters=KEPT * parameters,
        )
    return found


def _kind(job: Job) -> object:
    """Procgen's games cost nearly alike; other worlds do not."""
    cell = job.cell
    world = "procgen" if cell.task.startswith("procgen/") else cell.task
    settings = tuple(sorted((name, value) for name, value in cell.settings.items() if name not in FREE))
    return world, cell.method, cell.preset, settings


def _measure(job: Job) -> tuple[Cost, int, int]:
    """Seconds of a step and an update, bytes of the replay and of the parameters, of a run that is never begun."""
    cell, settings = job.cell, job.settings()
    small = (settings.n_step + settings.frame_stack + 8) * settings.lanes
    changed = {**job.machine, **cell.settings, "replay_size": small}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = resolve(cell.task, cell.method, cell.preset, cell.seed, changed)
        trainer = Trainer(RunFolder.create(Path(folder), config), Display(), stack)
        spec = trainer.spec
        replay = replay_bytes(**replay_shape(settings, trainer.method, spec.obs_shape, spec.obs_dtype))
        parameters = sum(tensor.nbytes for tensor in trainer.learner.state().values())
        return rehearse(trainer), replay, parameters


def at_once(missing: Sequence[Job], prices: dict[Job, Price], workers: int) -> int:
    """Bytes of memory of the largest cells that may run together."""
    return sum(sorted((prices[job].memory for job in missing), reverse=True)[:workers])


def too_big(jobs: Sequence[Job], prices: dict[Job, Price], workers: int) -> bool:
    return at_once([job for job in jobs if not job.done], prices, workers) > available_memory()


def tables(jobs: Sequence[Job], prices: dict[Job, Price], workers: int, out: Path) -> tuple[Table, Table]:
    """Every kind of cell, its seeds together; then the whole."""
    kinds: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        kinds[replace(job.cell, seed=0).name.removesuffix("-s0")].append(job)
    cells = Table(title="Cells", title_justify="left")
    for column in ("cell", "seeds", "missing", "steps", "updates", "time each", "memory each"):
        cells.add_column(column, justify="left" if column == "cell" else "right", overflow="fold")
    for name, mine in kinds.items():
        one = prices[mine[0]]
        cells.add_row(
            name,
            str(len(mine)),
            str(sum(not job.done for job in mine)),
            f"{mine[0].steps():,}",
            f"{one.updates:,}",
            clock(one.seconds),
            _gigabytes(one.memory),
        )
    missing = [job for job in jobs if not job.done]
    seconds = sum(prices[job].seconds for job in missing)
    disk = sum(sorted((prices[job].replay for job in missing), reverse=True)[:workers])
    disk += sum(prices[job].parameters for job in missing)
    whole = Table(title="The missing cells together", title_justify="left", show_header=False)
    for name, value in {
        "cells": f"{len(missing)} of {len(jobs)}, {workers} at once",
        "updates": f"{sum(prices[job].updates for job in missing):,}",
        "hours": f"{seconds / 3600 / workers:.2f} ({seconds / 3600:.2f} of one worker), evaluations not counted",
        "memory": f"{_gigabytes(at_once(missing, prices, workers))} at once, {_gigabytes(available_memory())} are free",
        "disk": f"{_gigabytes(disk)} at most, {_gigabytes(shutil.disk_usage(_existing(out)).free)} are free",
    }.items():
        whole.add_row(name, value)
    return cells, whole


def _existing(path: Path) -> Path:
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
