"""What a person sees of a run: the plan, the progress, the table at the end. ``Display`` itself is silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ede.rehearsal import Pace, planned_updates
from ede.runs import print_warning

if TYPE_CHECKING:
    from ede.evaluate import Episodes
    from ede.runs import RunFolder
    from ede.trainer import Trainer


class Display:
    """Shows nothing: for tests, sweeps and other programs."""

    @contextmanager
    def open(self, folder: RunFolder, trainer: Trainer) -> Iterator[None]:
        yield

    def say(self, text: str) -> None: ...

    def advance(self, trainer: Trainer) -> None: ...

    def metrics(self, trainer: Trainer, line: Mapping[str, Any]) -> None: ...

    @contextmanager
    def judging(self, split: str, episodes: int) -> Iterator[Callable[[int], None] | None]:
        yield None

    def judged(self, trainer: Trainer, judged: Mapping[str, Episodes]) -> None: ...

    def saved(self, trainer: Trainer) -> None: ...

    def stopping(self) -> None:
        """A signal came. Called from its handler: must not print."""


class _Bars(Progress):
    """Bars with a line of notes below, so that both fit a narrow terminal."""

    notes = ""
    farewell = ""
    """Said in place of the notes once the run was asked to stop."""

    @classmethod
    def get_default_columns(cls) -> tuple[ProgressColumn, ...]:
        return (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,}"),
            _TimeLeft(),
            TextColumn("left"),
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.farewell or self.notes, style="dim")


class _TimeLeft(TimeRemainingColumn):
    """What a bar was told is left; else what its own speed says."""

    def render(self, task: Task) -> Text:
        if "left" not in task.fields:
            return super().render(task)
        return Text(clock(task.fields["left"]), style="progress.remaining")


class _Output(Console):
    """Standard output that may lose its reader, as in ``ede train … | head``."""

    def on_broken_pipe(self) -> None:
        """From here on nothing is written; Rich would leave, and lose what was learned since the last checkpoint."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        with suppress(OSError):  # the warnings may have gone the same way
            print_warning("Nobody reads the output any more; the run is silent from here on.")


class Terminal(Display):
    """A live bar on a terminal; plain lines where the output goes elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _Output(highlight=False)
        self.live = self.console.is_terminal
        self.notes = {"return": "–", "held-out": "–", "epistemic": "–"}
        self.last_judgement: Mapping[str, Episodes] | None = None
        self.last_line = 0.0

    @contextmanager
    def open(self, folder: RunFolder, trainer: Trainer) -> Iterator[None]:
        with self.console.status("Measuring this machine"):
            self.pace = Pace(trainer)
        self.console.print(plan_table(folder, trainer, self.pace.seconds_left(trainer)))
        held_out = [line["returns"] for line in folder.read_journal("evals") if line["split"] == "test"]
        if trainer.recent:  # of a run that is resumed
            self.notes["return"] = f"{np.mean(trainer.recent):z.2f}"
        if held_out:
            self.notes["held-out"] = f"{np.mean(held_out[-1]):z.2f}"
        with _Bars(console=self.console, disable=not self.live, transient=True) as self.progress:
            self.bar = self.progress.add_task("steps", total=trainer.settings.steps, left=0)
            self.advance(trainer)
            yield
        if self.last_judgement:
            self.console.print(judgement_table(self.last_judgement, self.console.width))
            path = folder.path
            self.console.print(f"Run folder: {path}\nLook inside the agent: ede watch {path}", soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def advance(self, trainer: Trainer) -> None:
        self.pace.advance(trainer)
        if self.live:
            left = self.pace.seconds_left(trainer)
            self.progress.update(self.bar, completed=trainer.step, left=left)
            self.progress.notes = self._notes(trainer)

    def metrics(self, trainer: Trainer, line: Mapping[str, Any]) -> None:
        if line.get("return") is not None:
            self.notes["return"] = f"{line['return']:z.2f}"
        if "epistemic" in line:
            self.notes["epistemic"] = f"{line['epistemic']:.3f}"
        if not self.live and time.monotonic() - self.last_line > 10:  # a log file is read by people, too
            self.last_line = time.monotonic()
            left = clock(self.pace.seconds_left(trainer))
            self.say(f"step {trainer.step:,}/{trainer.settings.steps:,}  {self._notes(trainer)}  left {left}")

    def _notes(self, trainer: Trainer) -> str:
        told = "  ".join(f"{name} {value}" for name, value in self.notes.items())
        return f"{self.pace.steps_per_second(trainer):,.0f} steps/s  {told}"

    @contextmanager
    def judging(self, split: str, episodes: int) -> Iterator[Callable[[int], None] | None]:
        if not self.live:
            yield None
            return
        bar = self.progress.add_task(f"judging {split}", total=episodes)
        try:
            yield lambda finished: self.progress.update(bar, completed=finished)
        finally:
            self.progress.remove_task(bar)

    def stopping(self) -> None:
        if self.live:
            self.progress.farewell = (
                "Stopping once this step or judgement is done. Ctrl-C again: at once, unsaved."
            )

    def judged(self, trainer: Trainer, judged: Mapping[str, Episodes]) -> None:
        self.notes["held-out"] = f"{judged['test'].returns.mean():z.2f}"
        self.last_judgement = judged
        if not self.live:
            told = "  ".join(f"{split} {episodes.returns.mean():z.2f}" for split, episodes in judged.items())
            self.say(f"step {trainer.step:,}  judged: {told}")


@contextmanager
def judging_bar(split: str, episodes: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal, for judging outside a run."""
    console = Console(stderr=True)
    with _Bars(console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task(f"judging {split}", total=episodes)
        yield lambda finished: progress.update(bar, completed=finished)


def plan_table(folder: RunFolder, trainer: Trainer, seconds: float) -> Table:
    """What is going to happen, before it does."""
    config, settings = folder.config, trainer.settings
    updates = planned_updates(settings)
    table = Table(title="Plan", show_header=False, title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = {
        "task": f"{config['task']} on {trainer.spec.backend}",
        "method": f"{config['method']}, preset {config['preset']}, seed {config['seed']}",
        "contexts": f"train {config['train_contexts']}, test {config['test_contexts']}",
        "steps": f"{settings.steps:,} in {settings.lanes} lanes ({settings.learning_starts:,} at random first)",
        "updates": f"{updates:,} of {trainer.method.ensemble.members} × {settings.batch_size} transitions"
        if updates
        else f"none: learning_starts is {settings.learning_starts:,}; choose more steps or a smaller one",
        "memory": f"{readable_bytes(trainer.replay.nbytes)} of replay for {settings.replay_size:,} transitions"
        + (" in a file" if settings.replay_place == "file" else ""),
        "device": f"{settings.device}, {settings.precision}",
        "time": f"about {clock(seconds)} for what is left, judgements apart",
        "folder": str(folder.path),
    }
    if config["changed"]:
        rows["changed"] = ", ".join(f"{name}={value}" for name, value in config["changed"].items())
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def judgement_table(judged: Mapping[str, Episodes], width: int, title: str = "Final judgement") -> Table:
    """Train beside test, with the standard error over episodes; all of it where there are 74 columns."""
    table = Table(
        title=title, title_justify="left", box=box.HORIZONTALS, collapse_padding=True, pad_edge=False
    )
    table.add_column("contexts", overflow="fold")
    columns = ("episodes", "return ± error", "lowest", "median", "highest", "length")
    shown = len(columns) if width >= 74 else 2
    for column in columns[:shown]:
        table.add_column(column, justify="right", no_wrap=True)
    for split, episodes in judged.items():
        returns = episodes.returns
        error = returns.std() / np.sqrt(len(returns))
        cells = (
            str(len(returns)),
            f"{returns.mean():z.2f} ± {error:.2f}",
            f"{returns.min():z.2f}",
            f"{np.median(returns):z.2f}",
            f"{returns.max():z.2f}",
            f"{episodes.lengths.mean():.0f}",
        )
        table.add_row(f"{split} ({episodes.protocol.contexts})", *cells[:shown])
    return table


def readable_bytes(count: int) -> str:
    size, unit = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if count >= pair[0]), (1e3, "kB"))
    return f"{count / size:.1f} {unit}"


def clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
