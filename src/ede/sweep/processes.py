"""Cells as processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ede.sweep.board import Board
from ede.sweep.work import ATTEMPTS, Job, Outcome, Stop

GRACE = 60.0
"""Seconds that a stopped sweep gives its cells to save; then they are killed and keep their last checkpoint."""
POLL = 0.1


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log_start: int


def run(jobs: Sequence[Job], workers: int, board: Board, stop: Stop) -> dict[Job, Outcome]:
    """Run the jobs, ``workers`` at a time, until all have ended or the sweep is asked to stop."""
    with stop.listening():
        return _watch(jobs, workers, board, stop)


def _watch(jobs: Sequence[Job], workers: int, board: Board, stop: Stop) -> dict[Job, Outcome]:
    waiting, running = deque(jobs), list[_Running]()
    failures: dict[Job, int] = {}
    outcomes: dict[Job, Outcome] = {}
    deadline: float | None = None
    try:
        while running or (waiting and not stop.asked):
            while waiting and len(running) < workers and not stop.asked:
                running.append(_start(waiting.popleft(), board))
            time.sleep(POLL)
            if stop.asked and deadline is None:
                deadline = time.monotonic() + GRACE
                board.stopping(len(running))
                for one in running:
                    one.process.terminate()
            if deadline is not None and (stop.urgent or time.monotonic() > deadline):
                for one in running:
                    one.process.kill()
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                outcome = one.job.outcome(one.process.returncode, one.log_start)
                if deadline is not None and outcome.status == "failed":
                    outcome = Outcome("stopped")
                elif outcome.status == "failed":
                    failures[one.job] = failures.get(one.job, 0) + 1
                    if failures[one.job] < ATTEMPTS:
                        board.again(one.job, outcome)
                        waiting.append(one.job)
                        continue
                outcomes[one.job] = outcome
                board.ended(one.job, outcome)
            board.tick([one.job for one in running])
    finally:
        for one in running:  # an error of our own: leave nobody behind
            one.process.send_signal(signal.SIGKILL)
            one.process.wait()
    return outcomes


def _start(job: Job, board: Board) -> _Running:
    board.started(job)
    with job.log.open("ab") as log:
        start = log.tell()
        process = subprocess.Popen(
            job.command(os.getpid()),
            env=job.environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which then asks every cell once
        )
    return _Running(job, process, start)
