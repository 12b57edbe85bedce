"""What a sweep shows while it runs and at its end: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from ede.sweep.work import Job, Outcome

FRESH = 2.0
"""Seconds between looks at the journals of running cells."""


class Board:
    """Told by an engine what happens; tells a person."""

    def __init__(self, total: int, done: int, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.total, self.done = total, done
        self.begun: dict[Job, float] = {}
        self.bars: dict[Job, TaskID] = {}
        self.looked = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=self.console, transient=True)

    @contextmanager
    def open(self) -> Iterator[None]:
        self.progress.disable = not self.console.is_terminal
        with self.progress:
            self.whole = self.progress.add_task("cells", total=self.total, completed=self.done)
            yield

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)

    def started(self, job: Job) -> None:
        self.begun[job] = time.monotonic()
        self.bars[job] = self.progress.add_task(job.cell.name, total=job.steps(), completed=job.step())
        self.say(f"{self._count()} {'resumed' if job.step() else 'started'}  {job.cell.name}")

    def again(self, job: Job, outcome: Outcome) -> None:
        self.say(f"{self._count()} failed, will be tried again  {job.cell.name}: {outcome.sentence}")
        self._forget(job)

    def ended(self, job: Job, outcome: Outcome) -> None:
        self.done += outcome.status == "done"
        seconds = time.monotonic() - self.begun.get(job, time.monotonic())
        told = "  ".join(f"{split} {value:.2f}" for split, value in job.returns().items())
        words = told if outcome.status == "done" else outcome.sentence
        self.say(f"{self._count()} {outcome.status:<7}  {job.cell.name}  {words}  {clock(seconds)}")
        self.progress.update(self.whole, completed=self.done)
        self._forget(job)

    def stopping(self, running: int) -> None:
        self.say(f"Stopping: {running} running cells save and leave.")

    def tick(self, running: Sequence[Job]) -> None:
        if self.console.is_terminal and time.monotonic() - self.looked > FRESH:
            self.looked = time.monotonic()
            for job in running:
                if job in self.bars:
                    self.progress.update(self.bars[job], completed=job.step())

    def _forget(self, job: Job) -> None:
        if job in self.bars:
            self.progress.remove_task(self.bars.pop(job))

    def _count(self) -> str:
        return f"{self.done:>{len(str(self.total))}}/{self.total}"


def final_table(jobs: Sequence[Job], outcomes: Mapping[Job, Outcome]) -> Table:
    """Each cell, what became of it, and its closing evaluations."""
    table = Table(title="Cells", title_justify="left")
    for column in ("cell", "status", "train", "test"):
        table.add_column(column, justify="left" if column in ("cell", "status") else "right", overflow="fold")
    for job in jobs:
        outcome = outcomes.get(job) or Outcome("done" if job.done else "missing")
        returns = {split: f"{value:.2f}" for split, value in job.returns().items()}
        table.add_row(job.cell.name, outcome.status, returns.get("train", "–"), returns.get("test", "–"))
    return table


def clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
