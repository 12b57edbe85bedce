"""What both engines know of a cell: its folder, its log, whether it is finished, why it failed."""

from __future__ import annotations

import fcntl
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ede.errors import EdeError
from ede.presets import Settings, find_preset
from ede.sweep.cells import MACHINE_SETTINGS, Cell, Value

ATTEMPTS = 2
"""A cell that fails this often is reported and left."""

Status = Literal["done", "failed", "stopped", "missing"]


@dataclass(frozen=True)
class Outcome:
    status: Status
    sentence: str = ""
    """What went wrong."""


@dataclass(frozen=True, eq=False)
class Job:
    """A cell and where it lives; two are equal only when they are the same object."""

    cell: Cell
    out: Path
    machine: Mapping[str, Value]
    """Settings that the cell leaves to the machine: its threads."""
    keep_replay: bool = False
    """Whether a finished run keeps its replay on disk."""

    @property
    def folder(self) -> Path:
        return self.out / self.cell.name

    @property
    def log(self) -> Path:
        return self.out / "logs" / f"{self.cell.name}.log"

    @property
    def done(self) -> bool:
        return (self.folder / "DONE").exists()

    @property
    def threads(self) -> int:
        """Threads of torch that the cell was planned with."""
        return self.settings().threads

    def command(self, parent: int) -> list[str]:
        """The process that runs it or carries it on."""
        words = self.cell.words(self.folder, self.machine)
        return [sys.executable, "-m", "ede.sweep.child", str(parent), str(self.folder), *words]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Every pool of threads as large as planned, so that neighbours do not get in each other's way."""
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
        return {**base, **dict.fromkeys(pools, str(self.threads)), "PYTHONUNBUFFERED": "1"}

    def outcome(self, code: int, log_start: int) -> Outcome:
        """What the end of its process means; a finished cell gives back the disk of its replay."""
        if self.done:
            self.drop_replay()
            return Outcome("done")
        return Outcome("failed", reason(code, self.log, log_start))

    def refuse_another(self) -> None:
        """A folder of this name that holds another run is not overwritten, nor taken for this one."""
        try:
            config = json.loads((self.folder / "config.json").read_text())
        except FileNotFoundError:
            return
        except ValueError:
            raise EdeError(
                f"{self.folder}/config.json is broken; remove {self.folder} to run it anew."
            ) from None
        cell = {name: getattr(self.cell, name) for name in ("task", "method", "preset", "seed")}
        mine = _identity({**cell, "changed": self.cell.settings})
        its = _identity(config)
        if mine != its:
            raise EdeError(
                f"{self.folder} holds another run ({_difference(its, mine)}); choose another --out."
            )

    def step(self) -> int:
        """How far it has come, from the last whole line of its metrics."""
        line = last_line(self.folder / "metrics.jsonl")
        return int(line.get("step", 0))

    def settings(self) -> Settings:
        """The preset's numbers with the cell's."""
        changed: dict[str, Any] = {**self.machine, **self.cell.settings}
        return replace(find_preset(self.cell.preset, self.cell.task).settings, **changed)

    def steps(self) -> int:
        """How far it is to go."""
        return self.settings().steps

    def returns(self) -> dict[str, float]:
        """Mean return of the closing evaluations, by split."""
        try:
            lines = (self.folder / "evals.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        found = [json.loads(line) for line in lines[-2:]] if self.done else []
        return {line["split"]: sum(line["returns"]) / len(line["returns"]) for line in found if line["final"]}

    def drop_replay(self) -> None:
        """Only training needs the replay, and training is over."""
        for path in (self.folder / "checkpoints").glob("rows-*.safetensors") if not self.keep_replay else ():
            path.unlink(missing_ok=True)


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this one, wherever it ran."""
    changed = {
        name: value for name, value in config.get("changed", {}).items() if name not in MACHINE_SETTINGS
    }
    return {**{name: config.get(name) for name in ("task", "method", "preset", "seed")}, **changed}


def _difference(its: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    names = [name for name in {**its, **mine} if its.get(name) != mine.get(name)]
    return ", ".join(
        f"{name} {its.get(name, 'as preset')} not {mine.get(name, 'as preset')}" for name in names
    )


def reason(code: int, log: Path, start: int) -> str:
    """Why a process failed, in a sentence: its own last words, where it had any."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"It was killed ({name}{', perhaps for lack of memory' if name == 'SIGKILL' else ''})."
    with log.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("ede: ") and not line.startswith("ede: warning:")]
    return (said or lines or [f"It left with exit code {code} and no word."])[-1].removeprefix("ede: ")


def last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a journal; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            whole = file.read().rpartition(b"\n")[0]
        found: dict[str, Any] = json.loads(whole.rpartition(b"\n")[2])
    except (OSError, ValueError):
        return {}
    return found


def jobs(cells: Sequence[Cell], out: Path, threads: int, keep_replay: bool = False) -> tuple[Job, ...]:
    """The cells with their folders; none of which may hold another run."""
    found = tuple(Job(cell, out, {"threads": threads}, keep_replay) for cell in cells)
    for job in found:
        job.refuse_another()
    return found


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The sweep's folder for one sweep at a time; the system lets go when the process dies."""
    try:
        (out / "logs").mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w")
    except OSError as error:
        raise EdeError(f"Cannot write to {out} ({error.strerror}); choose another --out.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EdeError(f"Another sweep works in {out}; wait for it or stop it first.") from None
        yield


class Stop:
    """Whether the sweep was asked to stop: by a signal, or because its time is up."""

    def __init__(self, limit_seconds: float | None = None) -> None:
        self._until = time.monotonic() + limit_seconds if limit_seconds else float("inf")
        self.signals: list[int] = []

    @property
    def asked(self) -> bool:
        return bool(self.signals) or time.monotonic() > self._until

    @property
    def urgent(self) -> bool:
        """A second signal: leave at once."""
        return len(self.signals) > 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """SIGINT and SIGTERM are noted, not obeyed at once."""
        before = {
            number: signal.signal(number, lambda number, _: self.signals.append(number))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
