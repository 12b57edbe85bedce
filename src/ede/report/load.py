"""Run folders as they are read for a report: what was asked for, what has come of it, what is missing.

Everything shown comes from ``config.json``, ``episodes.jsonl``, ``evals.jsonl``, ``metrics.jsonl`` and ``DONE``.
A run that still trains, or was killed, is shown as unfinished; a torn last line is what a kill leaves and is
passed over; any other damage is one sentence that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ede.errors import EdeError
from ede.statistics import Floats
from ede.sweep.cells import MACHINE_SETTINGS

RESULTS = "runs.json"
"""Marks a folder of condensed runs (``ede.results``)."""
MARKS = ("config.json", RESULTS)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of one split: an entry an episode."""

    step: int
    split: str
    """``train`` (training contexts) or ``test`` (held-out contexts)."""
    final: bool
    protocol: Mapping[str, Any]
    returns: Floats
    lengths: Floats
    contexts: Floats


@dataclass(frozen=True)
class Episodes:
    """The training episodes, an entry each, in the order they ended."""

    steps: Floats
    contexts: Floats
    returns: Floats
    lengths: Floats
    achievements: Floats | None
    """[episodes, 22] how often each was unlocked; Crafter only."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run folder; two are equal only when they are the same object."""

    path: Path
    config: Mapping[str, Any]
    evaluations: tuple[Evaluation, ...]
    episodes: Episodes
    metrics: Mapping[str, Floats]
    """Column → values; NaN where a line lacks it."""
    finished: bool

    @property
    def task(self) -> str:
        return str(self.config["task"])

    @property
    def family(self) -> str:
        """What tasks are aggregated together: ``procgen`` of ``procgen/bigfish``, ``MiniGrid`` of its Gymnasium ids."""
        family, _, name = self.task.partition("/")
        return name.split("-")[0] if family == "gym" else family

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def preset(self) -> str:
        return str(self.config.get("preset", ""))

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def planned(self) -> int:
        """Environment steps asked for."""
        return int(self.config["steps"])

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.config.get("settings", {})
        return found

    @cached_property
    def reached(self) -> int:
        """The last environment step that left a trace."""
        traces = [evaluation.step for evaluation in self.evaluations]
        traces += [int(column.max()) for column in (self.episodes.steps, self._metric("step")) if len(column)]
        return max(traces, default=0)

    @cached_property
    def hours(self) -> float:
        """Wall-clock hours of training, as the run counted them."""
        seconds = self._metric("seconds")
        return float(np.nanmax(seconds)) / 3600 if len(seconds) and not np.isnan(seconds).all() else np.nan

    @cached_property
    def speed(self) -> float:
        """Environment steps a second over the whole run, as it last reported them."""
        found = self._metric("steps_per_second")
        known = found[~np.isnan(found)]
        return float(known[-1]) if len(known) else np.nan

    def curve(self, split: str) -> tuple[Floats, Floats]:
        """(environment steps, mean return) of the evaluations on ``split``; the final one wins its step."""
        chosen = {
            e.step: float(e.returns.mean()) for e in sorted(self.evaluations, key=_order) if e.split == split
        }
        return np.array(list(chosen), dtype=np.float64), np.array(list(chosen.values()), dtype=np.float64)

    def final(self, split: str) -> Evaluation | None:
        """The closing evaluation on ``split`` of a finished run."""
        found = [e for e in self.evaluations if e.split == split and e.final]
        return found[-1] if found and self.finished else None

    def _metric(self, name: str) -> Floats:
        return self.metrics.get(name, np.zeros(0))


def _order(evaluation: Evaluation) -> tuple[int, bool]:
    return evaluation.step, evaluation.final


@dataclass(frozen=True)
class Collection:
    """The runs that could be read, and a sentence for each thing that could not."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


WHERE_IT_RAN = MACHINE_SETTINGS - {"precision"}
"""Settings that a cell can be repeated under; its precision is not one, as runs compare precisions."""


def load(paths: Iterable[Path]) -> Collection:
    """Read run folders and folders that hold them; a broken one is reported and the others are kept.

    Two folders of the same cell (task, method, settings but for where it ran, seed) would count one seed twice: the
    one that is finished, or further along, or read later, is kept.
    """
    kept: dict[str, Run] = {}
    problems: list[str] = []
    for run in _runs(paths, problems):
        settings = {name: value for name, value in run.settings.items() if name not in WHERE_IT_RAN}
        cell = json.dumps([run.task, run.method, run.preset, run.seed, settings], sort_keys=True)
        if cell in kept:
            one, other = sorted((kept[cell], run), key=lambda run: (run.finished, run.reached))
            problems.append(
                f"{one.path} repeats the cell of {other.path}, which is no less far along; it is left out."
            )
            run = other
        kept[cell] = run
    if not kept:
        raise EdeError(" ".join(["No run could be read.", *problems]))
    return Collection(
        tuple(sorted(kept.values(), key=lambda run: (run.task, run.method, run.seed))), tuple(problems)
    )


def _runs(paths: Iterable[Path], problems: list[str]) -> Iterator[Run]:
    """Every run that can be read; of the others, a sentence each is added to ``problems``."""
    from ede.results import read_results

    for folder in _folders(paths):
        try:
            yield from read_results(folder).runs if (folder / RESULTS).exists() else (read_run(folder),)
        except EdeError as error:
            problems.append(str(error))


def _folders(paths: Iterable[Path]) -> list[Path]:
    """Run folders, and folders of condensed runs."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise EdeError(f"There is no folder {path}; name run folders, or a folder that holds them.")
        inside = [path] if any((path / name).exists() for name in MARKS) else []
        inside = inside or sorted(found.parent for name in MARKS for found in path.rglob(name))
        if not inside:
            raise EdeError(f"{path} holds no run: no config.json or {RESULTS} in it or below.")
        found.update(dict.fromkeys(folder.resolve() for folder in inside))
    return list(found)


def read_run(folder: Path) -> Run:
    config = _json(folder / "config.json")
    missing = [key for key in ("task", "method", "seed", "steps") if key not in config]
    if missing:
        raise EdeError(f"{folder / 'config.json'} lacks {', '.join(missing)}; it is no run of this version.")
    done = folder / "DONE"
    return Run(
        path=folder,
        config=config,
        evaluations=tuple(_evaluation(folder, line) for line in _lines(folder / "evals.jsonl")),
        episodes=_episodes(folder, _lines(folder / "episodes.jsonl")),
        metrics=_columns(_lines(folder / "metrics.jsonl")),
        finished=done.exists(),
    )


def _evaluation(folder: Path, line: Mapping[str, Any]) -> Evaluation:
    try:
        evaluation = Evaluation(
            step=int(line["step"]),
            split=str(line["split"]),
            final=bool(line["final"]),
            protocol=line.get("protocol", {}),
            returns=np.array(line["returns"], dtype=np.float64),
            lengths=np.array(line["lengths"], dtype=np.float64),
            contexts=np.array(line["contexts"], dtype=np.float64),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EdeError(f"{folder / 'evals.jsonl'} has a line that is no evaluation ({error!r}).") from None
    if not len(evaluation.returns):
        raise EdeError(f"{folder / 'evals.jsonl'} has an evaluation without episodes.")
    return evaluation


def _episodes(folder: Path, lines: list[dict[str, Any]]) -> Episodes:
    try:
        columns = {
            name: np.array([line[name] for line in lines], dtype=np.float64)
            for name in ("step", "context", "return", "length")
        }
        unlocked = [line["achievements"] for line in lines] if lines and "achievements" in lines[0] else None
    except (KeyError, TypeError, ValueError) as error:
        raise EdeError(f"{folder / 'episodes.jsonl'} has a line that is no episode ({error!r}).") from None
    return Episodes(
        steps=columns["step"],
        contexts=columns["context"],
        returns=columns["return"],
        lengths=columns["length"],
        achievements=np.array(unlocked, dtype=np.float64) if unlocked else None,
    )


def _columns(lines: list[dict[str, Any]]) -> dict[str, Floats]:
    names = dict.fromkeys(
        name
        for line in lines
        for name, value in line.items()
        if isinstance(value, int | float) or value is None
    )
    return {
        name: np.array(
            [np.nan if (value := line.get(name)) is None else value for line in lines], dtype=np.float64
        )
        for name in names
    }


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EdeError(f"{path} is missing, so {path.parent} is no run folder.") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise EdeError(f"{path} is broken: it is not JSON.") from None
    if not isinstance(found, dict):
        raise EdeError(f"{path} is broken: it holds no settings.")
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; one that does not exist yet has none."""
    if not path.exists():
        return []
    rows = path.read_bytes().split(b"\n")
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            found.append(json.loads(row))
        except (json.JSONDecodeError, UnicodeDecodeError):
            if number == len(rows):  # no line end after it: the write was cut short
                continue
            raise EdeError(f"{path} is broken: line {number} is not JSON.") from None
        if not isinstance(found[-1], dict):
            raise EdeError(f"{path} is broken: line {number} is no object.")
    return found
