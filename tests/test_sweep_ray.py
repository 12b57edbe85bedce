"""Twelve cells on a Ray cluster of three nodes, one of which dies: every cell ends as if it had run alone."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ede.display import Display
from ede.sweep.cells import find
from ede.train import train
from runs_alike import assert_alike

TABLE = """
tasks = ["bigfish-simple"]
preset = "smoke"
seeds = 3
settings = { steps = 4000, checkpoint_period = 160, threads = 1 }
[[block]]
methods = ["qrdqn", "dqn"]
[[block]]
methods = ["ede"]
grid = { phi = [1, 5] }
"""
HEAD, *OTHERS = "127.0.0.2", "127.0.0.3", "127.0.0.4"
"""Loopback addresses, one a node: Ray would replace 127.0.0.1 by the machine's own."""


def wait_until(holds: Callable[[], object], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def members(session: int) -> dict[int, str]:
    """Process → command line, of those that belong to a session of the system."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == session and words[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class Cluster:
    """Three nodes of one CPU each on this machine, each a session of processes of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind((HEAD, 0))
            port = probe.getsockname()[1]
        self.folder, self.address = folder, f"{HEAD}:{port}"
        self.sessions: dict[str, int] = {}
        # Ray listens on every interface: only those who know this test's own token may speak to its cluster.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment = {**os.environ, **token, "RAY_USAGE_STATS_ENABLED": "0"}

    def begin(self) -> None:
        port = self.address.rpartition(":")[2]
        head = self.start(HEAD, "--head", f"--port={port}", "--include-dashboard=false")
        assert head.wait(120) == 0, self.told(HEAD)
        joining = {host: self.start(host, f"--address={self.address}") for host in OTHERS}
        for host, process in joining.items():
            assert process.wait(120) == 0, self.told(host)

    def start(self, host: str, *options: str) -> subprocess.Popen[bytes]:
        words = [
            str(Path(sys.executable).with_name("ray")), "start", f"--node-ip-address={host}", "--num-cpus=1",
            f"--temp-dir={self.folder / host}", "--object-store-memory=80000000", "--disable-usage-stats",
            "--min-worker-port=0", "--max-worker-port=0", *options,
        ]  # fmt: skip
        with (self.folder / f"{host}.log").open("wb") as log:
            process = subprocess.Popen(
                words, env=self.environment, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
            )
        self.sessions[host] = process.pid
        return process

    def told(self, host: str) -> str:
        return (self.folder / f"{host}.log").read_text()

    def cells(self, host: str) -> list[Path]:
        """Run folders of the cells that this node works on."""
        commands = [command.split() for command in members(self.sessions[host]).values()]
        return [
            Path(words[words.index("ede.sweep.child") + 2])
            for words in commands
            if "ede.sweep.child" in words
        ]

    def kill(self, host: str, spare: str = "-") -> None:
        """Kill a node's processes, but for those with this word in their command line."""
        for process, command in members(self.sessions[host]).items():
            if spare not in command.split():
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def gone(self, host: str) -> bool:
        return not members(self.sessions[host])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: the system limits the length of a socket's path
    started = Cluster(folder)
    try:
        started.begin()
        yield started
    finally:
        for host in started.sessions:
            wait_until(lambda host=host: started.kill(host) or started.gone(host), 30, "the cluster to end")
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_node_dies_and_all_twelve_cells_end_as_if_run_alone(cluster: Cluster, tmp_path: Path) -> None:
    table, out = tmp_path / "table.toml", tmp_path / "swept"
    table.write_text(TABLE)
    words = ["sweep", str(table), "--out", str(out), "--engine", "ray", "--address", cluster.address]
    with (tmp_path / "sweep.log").open("wb") as log:
        sweep = subprocess.Popen(
            [sys.executable, "-m", "ede.cli", *words],
            env=cluster.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        victim = OTHERS[0]

        def in_the_middle() -> list[Path]:
            assert sweep.poll() is None, (tmp_path / "sweep.log").read_text()
            return [run for run in cluster.cells(victim) if len(list(run.glob("checkpoints/step-*"))) > 1]

        wait_until(in_the_middle, 120, "a cell on the victim to have saved")
        (struck,) = in_the_middle()
        cluster.kill(victim, spare="ede.sweep.child")
        wait_until(lambda: cluster.gone(victim), 10, "the dead node's cells to die with it")
        assert not (struck / "DONE").exists()
        assert sweep.wait(400) == 0, (tmp_path / "sweep.log").read_text()
    finally:
        sweep.kill()
        sweep.wait()
    told = (tmp_path / "sweep.log").read_text()
    assert "1 of 3 nodes lost" in told
    assert "Resumed" in (out / "logs" / f"{struck.name}.log").read_text()
    cells = find(str(table)).cells()
    assert len(cells) == 12
    for cell in cells:
        alone = tmp_path / "alone" / cell.name
        train(
            cell.task, method=cell.method, preset=cell.preset, seed=cell.seed, settings=cell.settings,
            out=alone, display=Display(),
        )  # fmt: skip
        assert_alike(alone, out / cell.name)
