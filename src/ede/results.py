"""Raw scores small enough to commit: finished run folders condensed into ``results/NAME``, and read back from there.

``runs.json`` says what was run, where and by which command; ``scores.csv`` holds every evaluation;
``episodes.csv.gz`` every episode of the closing ones; ``training.csv.gz`` the training episodes in ``STRETCHES``
equal stretches of the run; ``metrics.csv.gz`` the metrics at ``POINTS`` moments. ``results/README.md`` explains the
columns. Whatever reads run folders reads this as well (``ede report results/NAME``).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from ede.errors import EdeError
from ede.report.achievements import NAMES
from ede.report.load import Collection, Episodes, Evaluation, Run, load
from ede.statistics import Floats
from ede.sweep.cells import train_words

FORMAT = 1
STRETCHES = 40
"""As many as the report draws points of a training curve, so that it draws the same curve."""
POINTS = 24
LEFT_OUT = ("method_row", "spec", "log", "command", "sweep")
"""Parts of a run's config that follow from the others."""
OWN_OPTIONS = ("--out", "--collect", "--limit-seconds", "--workers")
"""Options of ``ede sweep`` that say where and how fast it ran, not what."""
SCORES = ("cell", "method", "task", "seed", "step", "split", "final", "episodes", "mean", "std", "length")
EPISODES = ("cell", "split", "context", "return")
TRAINING = ("cell", "step", "episodes", "return", "length")

Row = Sequence[str | int | float]
Rows = dict[str, list[dict[str, str]]]


def collect(sources: Sequence[Path], target: Path, commit: str | None = None) -> str:
    """Condense the finished runs in these folders; returns a sentence about what was written.

    ``commit`` stands in where a run knows none, because it ran on a machine without the repository's history.
    """
    runs = sorted((run for run in load(sources).runs if run.finished), key=lambda run: run.path.name)
    if not runs:
        raise EdeError("None of these runs is finished, so there is nothing to collect.")
    names = [run.path.name for run in runs]
    if len(set(names)) < len(names):
        raise EdeError("Two of these run folders have the same name; rename one.")
    target.mkdir(parents=True, exist_ok=True)
    described = {run.path.name: _describe(run, commit) for run in runs}
    shared = _shared(list(described.values()))
    document = {
        "format": FORMAT,
        "commands": _commands(sources),
        "shared": shared,
        "runs": {name: _beyond(own, shared) for name, own in described.items()},
    }
    (target / "runs.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    _write(target / "scores.csv", SCORES, (row for run in runs for row in _scores(run)))
    _write(target / "episodes.csv.gz", EPISODES, (row for run in runs for row in _closing(run)))
    crafter = any(run.episodes.achievements is not None for run in runs)
    columns = (*TRAINING, *NAMES) if crafter else TRAINING
    _write(target / "training.csv.gz", columns, (row for run in runs for row in _training(run)))
    kept = tuple(dict.fromkeys(name for run in runs for name in run.metrics))
    _write(target / "metrics.csv.gz", ("cell", *kept), (row for run in runs for row in _metrics(run, kept)))
    size = sum(path.stat().st_size for path in target.iterdir()) / 1000
    return f"{len(runs)} runs condensed into {target} ({size:,.0f} kB)."


# What was run


def _describe(run: Run, commit: str | None) -> dict[str, Any]:
    config = {name: value for name, value in run.config.items() if name not in LEFT_OUT}
    config["commit"] = config.get("commit") or commit
    config["seconds"] = round(float(json.loads((run.path / "DONE").read_text()).get("seconds", 0.0)), 1)
    config["protocols"] = {
        evaluation.split: {name: value for name, value in evaluation.protocol.items() if name != "episodes"}
        for evaluation in run.evaluations
    }
    return config


def _shared(described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all runs agree on, folders within folders."""
    first = described[0]
    found: dict[str, Any] = {}
    for name, value in first.items():
        values = [one.get(name) for one in described]
        if all(isinstance(each, Mapping) for each in values):
            if part := _shared([each for each in values if each is not None]):
                found[name] = part
        elif all(each == value for each in values):
            found[name] = value
    return found


def _beyond(own: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """What a run says beyond the shared."""
    found: dict[str, Any] = {}
    for name, value in own.items():
        if name not in shared:
            found[name] = value
        elif isinstance(value, Mapping) and (part := _beyond(value, shared[name])):
            found[name] = part
    return found


def _joined(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of ``_beyond``."""
    found = {**shared, **own}
    for name, value in own.items():
        if isinstance(value, Mapping) and isinstance(shared.get(name), Mapping):
            found[name] = _joined(shared[name], value)
    return found


def _commands(sources: Iterable[Path]) -> list[str]:
    """The sweeps that made the runs, without the folders and limits of the machine they ran on."""
    found: dict[str, None] = {}
    for source in sources:
        path = source / "sweep.json"
        for command in json.loads(path.read_text())["commands"] if path.exists() else ():
            words, kept = iter(shlex.split(command)), []
            for word in words:
                if word in OWN_OPTIONS:
                    next(words, None)
                elif word.partition("=")[0] not in OWN_OPTIONS:
                    kept.append(Path(word).name if word.endswith(".toml") else word)
            found[shlex.join(kept)] = None
    return list(found)


# Rows out of a run


def _scores(run: Run) -> Iterable[Row]:
    for one in run.evaluations:
        yield (
            run.path.name, run.method, run.task, run.seed, one.step, one.split, int(one.final), len(one.returns),
            float(one.returns.mean()), float(one.returns.std()), float(one.lengths.mean()),
        )  # fmt: skip


def _closing(run: Run) -> Iterable[Row]:
    for split in ("train", "test"):
        if evaluation := run.final(split):
            for context, value in zip(evaluation.contexts, evaluation.returns, strict=True):
                yield run.path.name, split, int(context), float(value)


def _training(run: Run) -> Iterable[Row]:
    episodes = run.episodes
    edges = np.linspace(0, run.reached, STRETCHES + 1)
    place = np.clip(np.searchsorted(edges, episodes.steps) - 1, 0, STRETCHES - 1)
    for stretch in range(STRETCHES):
        mine = place == stretch
        if not mine.any():
            continue
        row: list[str | int | float] = [run.path.name, int(edges[stretch + 1]), int(mine.sum())]
        row += [float(episodes.returns[mine].mean()), float(episodes.lengths[mine].mean())]
        if episodes.achievements is not None:
            row += (episodes.achievements[mine] > 0).sum(axis=0).tolist()
        yield row


def _metrics(run: Run, columns: Sequence[str]) -> Iterable[Row]:
    count = len(run.metrics.get("step", ()))
    for index in (
        np.unique(np.linspace(0, count - 1, min(POINTS, count)).round().astype(int)) if count else ()
    ):
        values = [run.metrics[name][index] if name in run.metrics else np.nan for name in columns]
        yield (run.path.name, *("" if np.isnan(value) else float(value) for value in values))


def _write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([f"{value:.8g}" if isinstance(value, float) else value for value in row])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


# And back


def read_results(folder: Path) -> Collection:
    """The runs of a folder that ``collect`` wrote.

    Evaluations before the closing ones have one entry, their mean, and so have all lengths; training episodes are as
    many as there were, each with the mean of its stretch, and as many of them unlocked an achievement as did.
    """
    try:
        document = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
        shared, own = document["shared"], document["runs"]
        sweep = "; ".join(document["commands"])
        tables = {name: _read(folder / name) for name in ("scores.csv", "episodes.csv.gz")}
        tables |= {name: _read(folder / name) for name in ("training.csv.gz", "metrics.csv.gz")}
        runs = tuple(
            _run(
                folder / name,
                {**_joined(shared, config), "sweep": sweep},
                *(table.get(name, []) for table in tables.values()),
            )
            for name, config in own.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EdeError(f"{folder} is no folder of results, or a broken one ({error!r}).") from None
    return Collection(runs, ())


def _read(path: Path) -> Rows:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    found: Rows = defaultdict(list)
    for row in csv.DictReader(io.StringIO(text)):
        found[row["cell"]].append(row)
    return found


def _run(
    path: Path,
    config: dict[str, Any],
    scores: list[dict[str, str]],
    closing: list[dict[str, str]],
    training: list[dict[str, str]],
    metrics: list[dict[str, str]],
) -> Run:
    identity = (config["task"], config["method"], config["preset"], config["seed"], config["changed"])
    config["command"] = shlex.join(["ede", *train_words(*identity)])
    return Run(
        path=path,
        config=config,
        evaluations=tuple(_evaluation(row, closing, config["protocols"]) for row in scores),
        episodes=_episodes(training),
        metrics={
            name: np.array([float(row[name] or "nan") for row in metrics])
            for name in (metrics[0] if metrics else ())
            if name != "cell"
        },
        finished=True,
    )


def _evaluation(
    row: Mapping[str, str], closing: list[dict[str, str]], protocols: Mapping[str, Any]
) -> Evaluation:
    final = row["final"] == "1"
    rows = [one for one in closing if one["split"] == row["split"]] if final else []
    return Evaluation(
        step=int(row["step"]),
        split=row["split"],
        final=final,
        protocol={**protocols[row["split"]], "episodes": int(row["episodes"])},
        returns=_column(rows, "return") if rows else np.array([float(row["mean"])]),
        lengths=np.array([float(row["length"])]),
        contexts=_column(rows, "context") if rows else np.array([np.nan]),
    )


def _episodes(rows: list[dict[str, str]]) -> Episodes:
    count = _column(rows, "episodes").astype(int)
    unlocked = None
    if rows and rows[0].get(NAMES[0]):
        unlocked = np.concatenate(
            [
                np.arange(int(row["episodes"]))[:, None] < np.array([int(row[name]) for name in NAMES])
                for row in rows
            ]
        ).astype(np.float64)
    return Episodes(
        steps=_column(rows, "step").repeat(count),
        contexts=np.full(int(count.sum()), np.nan),
        returns=_column(rows, "return").repeat(count),
        lengths=_column(rows, "length").repeat(count),
        achievements=unlocked,
    )


def _column(rows: list[dict[str, str]], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows], dtype=np.float64)


@dataclass(frozen=True)
class Arguments:
    """Condense finished runs into a folder of small files that can be committed."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Sweep folders or run folders, then the folder to write: results/NAME."""
    commit: str | None = None
    """The commit that ran, where the runs do not know it."""


def main() -> int:
    given = tyro.cli(Arguments, prog="python -m ede.results")
    try:
        if len(given.sources) < 2:
            raise EdeError("Name a folder of runs, then the folder to write.")
        print(collect(given.sources[:-1], given.sources[-1], given.commit))
    except EdeError as error:
        print(f"ede: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
