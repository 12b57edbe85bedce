"""QR-DQN here and in other libraries: same networks, batches and quantiles, one head, taking turns in one run.

``python benchmarks/peers/run.py`` makes an environment for each peer (in .venv-peers/, once), starts every library in a
process of its own and lets them work by turns, so that what else the machine does falls on all alike. The fastest turn
of each counts.

update: one update at the paper's size. procgen: bigfish in 64 lanes, such an update after every vector step.
cartpole: CartPole in 64 lanes, two small updates after every vector step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from common import CARTPOLE_TURNS, LANES, PROCGEN_TURNS

HERE = Path(__file__).parent
PROCGEN = ("procgen-mirror==0.10.7", "numpy<2")
PEERS = {
    "sb3.py": ("sb3", ("sb3-contrib==2.9.2", *PROCGEN)),
    "tianshou_qrdqn.py": ("tianshou", ("tianshou==1.2.0", *PROCGEN)),
}
"""Script → its environment and what is installed there after PyTorch."""
WORKS = {"update": 1, "procgen": PROCGEN_TURNS * LANES, "cartpole": CARTPOLE_TURNS * LANES}
"""Piece of work → updates or environment steps in it."""


def environment(home: Path, name: str, packages: tuple[str, ...]) -> Path:
    """The Python of a peer's environment, made on first use."""
    python, done = home / name / "bin" / "python", home / name / ".installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", home / name], check=True)
        for wanted in (("torch==2.13.0",), ("torch==2.13.0", *packages)):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        done.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"))
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=list(WORKS))
    given = parser.parse_args()
    commands = [[sys.executable, str(HERE / "ours.py"), precision] for precision in ("bf16", "fp32")]
    for script, (name, packages) in PEERS.items():
        commands.append([str(environment(given.environments, name, packages)), str(HERE / script)])

    workers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                **os.environ,
                "OMP_WAIT_POLICY": "PASSIVE",
            },  # who has no turn leaves the cores to the others
        )
        for command in commands
    ]
    try:
        names = [json.loads(worker.stdout.readline()) for worker in workers]
        print(f"{'':20s}" + "".join(f"{about['name']:>14s}" for about in names))
        print(f"{'version':20s}" + "".join(f"{about['version']:>14s}" for about in names))
        print(f"{'PyTorch':20s}" + "".join(f"{about['torch']:>14s}" for about in names), flush=True)
        for work in given.works:
            best = [float("inf")] * len(workers)
            for turn in range(given.turns + 1):
                for number, worker in enumerate(workers):
                    worker.stdin.write(work + "\n")
                    taken = json.loads(worker.stdout.readline())["seconds"]
                    if turn:  # the first one builds and warms up
                        best[number] = min(best[number], taken)
            if work == "update":
                print(f"{'seconds an update':20s}" + "".join(f"{taken:14.3f}" for taken in best))
            else:
                print(f"{work + ', steps/s':20s}" + "".join(f"{WORKS[work] / taken:14.0f}" for taken in best))
            print(f"{'EDE bf16 is faster':20s}" + "".join(f"{taken / best[0]:13.1f}×" for taken in best))
            print(
                f"{'EDE fp32 is faster':20s}" + "".join(f"{taken / best[1]:13.1f}×" for taken in best),
                flush=True,
            )
    finally:
        for worker in workers:
            worker.kill()


if __name__ == "__main__":
    main()
