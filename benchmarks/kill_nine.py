"""Kill runs with SIGKILL at ten random moments, resume each time, and compare with the run nobody disturbed.

    python benchmarks/kill_nine.py [--kills 10] [--tasks bigfish-simple procgen/starpilot crafter]

The tests do the same with fewer kills. Exit code 1 where anything but the times differs.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from runs_alike import assert_alike

STEPS = {"bigfish-simple": 12_000, "procgen/starpilot": 4_000, "crafter": 3_000}
EDE = [sys.executable, "-m", "ede.cli"]


def words(task: str, out: Path) -> list[str]:
    settings = ["threads=1", "checkpoint_period=160", "device=cpu"]
    return [
        *("train", task, "--preset", "smoke", "--steps", str(STEPS[task]), "--out", str(out)),
        *(word for setting in settings for word in ("--set", setting)),
    ]


def killed_run(task: str, out: Path, kills: int, chance: random.Random) -> int:
    """Start, kill, resume, kill … then resume to the end; gives how often it was really killed."""
    command, done = words(task, out), 0
    for _ in range(kills):
        process = subprocess.Popen([*EDE, *command], stdout=subprocess.DEVNULL)
        journal = out / "metrics.jsonl"
        goal = (journal.stat().st_size if journal.exists() else 0) + chance.randint(1, 600)
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < goal):
            time.sleep(0.002)
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        done += process.wait() == -signal.SIGKILL
        command = ["resume", str(out)]
    if not (out / "DONE").exists():
        subprocess.run([*EDE, *command], stdout=subprocess.DEVNULL, check=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = False
    for task in given.tasks:
        with tempfile.TemporaryDirectory() as folder:
            whole, killed = Path(folder) / "whole", Path(folder) / "killed"
            subprocess.run([*EDE, *words(task, whole)], stdout=subprocess.DEVNULL, check=True)
            done = killed_run(task, killed, given.kills, random.Random(given.seed))
            try:
                assert_alike(whole, killed)
                print(f"{task}: killed {done} times, equal to the bit", flush=True)
            except AssertionError as difference:
                failed = True
                print(
                    f"{task}: killed {done} times, differs in {str(difference).splitlines()[0]}", flush=True
                )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
