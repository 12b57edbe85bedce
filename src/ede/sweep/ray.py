"""Cells as tasks of a Ray cluster: one task a cell, retried elsewhere when a node dies.

The run folders lie on storage that all nodes share, so a cell that is tried again is carried on from its newest
checkpoint. Each cell has a process of its own below the Ray worker (``ede.sweep.child``), which dies with the worker:
what it computes is what it computes alone.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from ede.errors import EdeError, JobFailed
from ede.sweep.board import Board
from ede.sweep.work import ATTEMPTS, Job, Outcome, Stop

NODE_LOSSES = 8
"""How often a cell is started again because its node or worker died."""
GRACE = 60.0
"""Seconds that a cell has to save when the sweep is stopped."""
POLL = 0.2
OBJECT_STORE = 80_000_000
"""Bytes; cells pass nothing but a word, and this is about the least that Ray accepts."""


def run(jobs: Sequence[Job], address: str | None, cores: int, board: Board, stop: Stop) -> dict[Job, Outcome]:
    """Run the jobs on a cluster (one of this machine alone where no address is given)."""
    ray = _connect(address, cores)
    try:
        with stop.listening():  # after Ray has set handlers of its own
            return _watch(ray, jobs, board, stop)
    finally:
        ray.shutdown()


def _connect(address: str | None, cores: int) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a notice about GPUs
    if address is None and not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & os.environ.keys():
        # Ray listens on every interface: a cluster of our own obeys nobody but this sweep, and leaves no token behind.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ModuleNotFoundError:
        raise EdeError("Ray is not installed: pip install 'ede[ray]'.") from None
    # Ray takes this machine's address on the network for its own, which a cluster on loopback does not know.
    host = str(address).rpartition(":")[0]
    own = {"_node_ip_address": host} if host.startswith("127.") else {}
    local = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **(own if address else local),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise JobFailed(f"Ray did not answer at {address or 'a cluster of its own'}: {error}") from None
    return ray


def carry_out(job: Job) -> Outcome:
    """What a task does: the cell's process, from its start to its end."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log:
        start = log.tell()
        process = subprocess.Popen(
            job.command(os.getpid()),
            env=job.environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        while process.poll() is None:
            time.sleep(POLL)
    except KeyboardInterrupt:  # the sweep was stopped
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    return job.outcome(process.returncode, start)


def _watch(ray: Any, jobs: Sequence[Job], board: Board, stop: Stop) -> dict[Job, Outcome]:
    task = ray.remote(carry_out)

    def submit(job: Job) -> Any:
        return task.options(
            name=job.cell.name,
            num_cpus=job.threads,
            num_gpus=1 if job.cell.settings.get("device") == "cuda" else 0,
            max_retries=NODE_LOSSES,
        ).remote(job)

    nodes = _alive(ray)
    board.say(f"Ray: {ray.cluster_resources().get('CPU', 0):.0f} CPUs on {nodes} nodes.")
    pending = {submit(job): job for job in jobs}
    silent = {job: _size(job) for job in jobs}
    failures: dict[Job, int] = {}
    outcomes: dict[Job, Outcome] = {}
    while pending:
        if stop.asked:
            break
        ready, _ = ray.wait(list(pending), timeout=POLL)
        for job in [job for job, size in silent.items() if _size(job) > size]:
            del silent[job]
            board.started(job)
        for reference in ready:
            job = pending.pop(reference)
            outcome = _outcome(ray, reference)
            if outcome.status == "failed":
                failures[job] = failures.get(job, 0) + 1
                if failures[job] < ATTEMPTS:
                    board.again(job, outcome)
                    pending[submit(job)] = job
                    silent[job] = _size(job)
                    continue
            outcomes[job] = outcome
            board.ended(job, outcome)
        nodes = _say_lost(_alive(ray), nodes, board)
        board.tick(list(pending.values()))
    if pending:
        board.stopping(len(pending) - len(silent))
        for reference in pending:
            ray.cancel(reference, force=False)
        until = time.monotonic() + GRACE
        references = list(pending)
        while references and time.monotonic() < until and not stop.urgent:
            _, references = ray.wait(references, timeout=POLL)
        for job in pending.values():
            outcomes[job] = (
                Outcome("done") if job.done else Outcome("missing" if job in silent else "stopped")
            )
            board.ended(job, outcomes[job])
    return outcomes


def _outcome(ray: Any, reference: Any) -> Outcome:
    try:
        found: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Outcome("failed", str(error).strip().splitlines()[0])
    return found


def _alive(ray: Any) -> int:
    return sum(node["Alive"] for node in ray.nodes())


def _say_lost(now: int, before: int, board: Board) -> int:
    if now < before:
        board.say(f"{before - now} of {before} nodes lost; their cells are carried on elsewhere.")
    elif now > before:
        board.say(f"{now - before} more nodes.")
    return now


def _size(job: Job) -> int:
    return job.log.stat().st_size if job.log.exists() else -1
