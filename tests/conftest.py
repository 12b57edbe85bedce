"""What every test shares: one thread a process, repeatable examples, and the command ``ede``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ede.cli import main

# The tests run in several processes already; nothing above has loaded NumPy or torch, which read these.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

settings.register_profile(
    "ede",
    deadline=None,
    max_examples=50,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ede")


@dataclass(frozen=True)
class Ran:
    """What a call of ``ede`` left behind."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Ran]


@pytest.fixture
def run_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """Run ``ede`` with these words in an empty folder: within this process, or with ``fresh=True`` in one of its own.

    A fresh process is what the user starts; the other is faster and counts towards coverage.
    """

    def run(*words: str, fresh: bool = False, folder: Path = tmp_path) -> Ran:
        if fresh:
            done = subprocess.run(
                [sys.executable, "-m", "ede.cli", *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=300,
                env={**os.environ, "COLUMNS": "100"},
            )
            return Ran(done.returncode, done.stdout, done.stderr)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "100")
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main(words)
            except SystemExit as leaving:
                code = int(leaving.code or 0)
        return Ran(code, out.getvalue(), err.getvalue())

    return run
