"""Does a long run stay flat in memory, threads and open files?

    python benchmarks/soak.py --hours 2 --task procgen/bigfish

Trains with evaluations and checkpoints coming often, reads the process every half minute, stops it with SIGTERM and
compares the last tenth of the readings with those after the first tenth. Exit code 1 where anything grew.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOLERANCE = 0.05
"""Resident memory may end this much above where it was after the first tenth."""
FOREVER = 10**12


def reading(process: int) -> tuple[float, int, int]:
    """Resident megabytes, threads, open files."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return (
        int(facts["VmRSS"].split()[0]) / 1024,
        int(facts["Threads"]),
        len(list(Path(f"/proc/{process}/fd").iterdir())),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--task", default="procgen/bigfish")
    parser.add_argument("--method", default="ede")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between readings")
    parser.add_argument("--set", action="append", default=[], help="more settings of the run")
    given = parser.parse_args()
    settings = [
        "replay_size=20000", "learning_starts=2000", "eval_period=16000", "eval_episodes=8",
        "checkpoint_period=8000", "threads=1", *given.set,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["train", given.task, "--method", given.method, "--steps", str(FOREVER), "--out", str(out)]
        words += [word for setting in settings for word in ("--set", setting)]
        with (Path(folder) / "log").open("wb") as log:
            run = subprocess.Popen([sys.executable, "-m", "ede.cli", *words], stdout=log, stderr=log)
        print(f"{'minutes':>8s}{'MB':>9s}{'threads':>9s}{'files':>7s}{'episodes':>10s}", flush=True)
        readings, begin = [], time.monotonic()
        while time.monotonic() - begin < 3600 * given.hours and run.poll() is None:
            time.sleep(given.every)
            if run.poll() is None:
                readings.append(reading(run.pid))
                episodes = sum(1 for _ in (out / "episodes.jsonl").open()) if out.exists() else 0
                memory, threads, files = readings[-1]
                minutes = (time.monotonic() - begin) / 60
                print(f"{minutes:8.1f}{memory:9.1f}{threads:9d}{files:7d}{episodes:10d}", flush=True)
        if run.poll() is not None:
            print(
                f"The run ended by itself with exit code {run.returncode}:\n{(Path(folder) / 'log').read_text()}"
            )
            return 1
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=300)
        print((Path(folder) / "log").read_text().splitlines()[-1])
    tenth = max(1, len(readings) // 10)
    first, last = (np.array(part).max(0) for part in (readings[tenth : 2 * tenth + 1], readings[-tenth:]))
    for name, before, after, allowed in zip(
        ("memory in MB", "threads", "open files"), first, last, (1 + TOLERANCE, 1, 1), strict=True
    ):
        verdict = "flat" if after <= allowed * before else "GREW"
        print(f"{name}: {before:.0f} after the first tenth, {after:.0f} in the last: {verdict}")
    return int(bool((last > first * [1 + TOLERANCE, 1, 1]).any()))


if __name__ == "__main__":
    sys.exit(main())
