"""The study's files: ``tabular.csv``, ``curves.csv``, the figures, and ``tabular.json`` that says what they are.

Everything is written under a temporary name first and renamed when all of it is there.
"""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import ede
from ede.errors import EdeError
from ede.tabular.study import METHODS, Cell, Row, Size, Study

TABLE, CURVES, MANIFEST = "tabular.csv", "curves.csv", "tabular.json"

COLUMNS = (
    "world",
    "method",
    "hyperparameter",
    "value",
    "trials",
    "episodes",
    "train_return_mean",
    "train_return_std",
    "test_return_mean",
    "test_return_std",
)
CURVE_COLUMNS = (
    "world",
    "method",
    "hyperparameter",
    "value",
    "episode",
    "train_suboptimality_mean",
    "train_suboptimality_std",
    "test_suboptimality_mean",
    "test_suboptimality_std",
)


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder to write to; its files move to ``out`` when the block ends well, else nothing is left of them.

    A sealed study replaces an earlier one: files that only the earlier one wrote are removed, so that all
    that is there belongs together.
    """
    try:
        made = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".tabular-", dir=out))
    except OSError as error:
        raise EdeError(
            f"Cannot write to {out} ({error.strerror}); choose another folder with --out."
        ) from None
    done = False
    try:
        yield stage
        written = sorted(path.name for path in stage.iterdir())
        if MANIFEST in written:
            for name in _manifest(out).get("files", []):
                if name not in written and Path(name).name == name:
                    (out / name).unlink(missing_ok=True)
        for name in sorted(written, key=lambda name: name == MANIFEST):
            (stage / name).replace(out / name)
        done = True
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if not done:
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()


def write(study: Study, folder: Path, table_name: str = TABLE, curves_name: str = CURVES) -> None:
    """The table and the curves."""
    table, curves = [], []
    for row in study.rows:
        cell = row.cell
        head = (cell.world, cell.method, METHODS[cell.method].hyperparameter, f"{cell.value:g}")
        ends = (row.mean[0], row.std[0], row.mean[1], row.std[1])
        table.append((*head, row.trials, row.episodes, *map(_decimal, ends)))
        for at, episode in enumerate(row.episode_C):
            mean_2, std_2 = row.gap_mean_C2[at], row.gap_std_C2[at]
            curves.append((*head, episode, *map(_decimal, (mean_2[0], std_2[0], mean_2[1], std_2[1]))))
    write_table(folder / table_name, COLUMNS, table)
    write_table(folder / curves_name, CURVE_COLUMNS, curves)


def write_table(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def seal(study: Study, folder: Path) -> None:
    """Say in ``tabular.json`` how the files beside it were made; the last file of a study."""
    record = {
        **asdict(study.size),
        "ede": ede.__version__,
        "files": sorted({path.name for path in folder.iterdir()} | {MANIFEST}),
    }
    (folder / MANIFEST).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read(folder: Path, size: Size) -> Study:
    """The study in that folder; one without rows where there is none of that size made by this version."""
    made = _manifest(folder)
    if {key: made.get(key) for key in (*asdict(size), "ede")} != {**asdict(size), "ede": ede.__version__}:
        return Study(size, ())
    points: dict[Cell, list[list[float]]] = {}
    for line in _lines(folder / CURVES):
        numbers = [float(line[column]) for column in CURVE_COLUMNS[4:]]
        points.setdefault(_cell(line), []).append(numbers)
    rows = []
    for line in _lines(folder / TABLE):
        curve = np.array(points[_cell(line)])
        train_mean, train_std, test_mean, test_std = (float(line[column]) for column in COLUMNS[6:])
        rows.append(
            Row(
                _cell(line),
                int(line["trials"]),
                int(line["episodes"]),
                (train_mean, test_mean),
                (train_std, test_std),
                curve[:, 0].astype(np.int64),
                curve[:, [1, 3]],
                curve[:, [2, 4]],
            )
        )
    return Study(size, tuple(rows))


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _cell(line: dict[str, str]) -> Cell:
    return Cell(line["world"], line["method"], float(line["value"]))


def _decimal(number: float) -> str:
    return f"{number:.6f}"
