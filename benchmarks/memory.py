"""Does a world's resident memory stay flat, and what does a lane cost?

    python benchmarks/memory.py --tasks procgen/bigfish procgen/coinrun --backends procgen-mirror envpool
    python benchmarks/memory.py --lane-cost

The first plays a million steps of each task on each backend, in a process of its own, and prints the resident
memory along the way: flat means within ±5 % of its value after the first tenth. The second measures what a
lane of each Procgen game ends up costing; ``ede.envs.procgen.GAMES`` holds the outcome.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import ede
from ede.envs.procgen import GAMES

TOLERANCE = 0.05
SAMPLES = 20


@dataclass(frozen=True)
class Settings:
    tasks: tuple[str, ...] = (
        *("procgen/bigfish", "procgen/coinrun", "procgen/starpilot"),
        *("crafter", "bigfish-simple", "gym/CartPole-v1"),
    )
    """The worlds to play."""
    backends: tuple[str, ...] = ("procgen-mirror", "envpool")
    """The Procgen backends to play them on; other worlds have one."""
    lanes: int = 64
    steps: int = 1_000_000
    """Steps of all lanes together."""
    mode: str = "easy"
    """Procgen's distribution mode."""
    lane_cost: bool = False
    """Measure the memory of a lane of each Procgen game, in its largest mode, instead."""
    json_file: Path | None = None
    """Also write what was measured to this file."""


def resident() -> int:
    """This process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def play(task: str, lanes: int, steps: int, options: dict[str, str]) -> list[int]:
    """Resident bytes before the lanes are made, and at ``SAMPLES`` even points of a random policy's play."""
    generator = np.random.default_rng(0)
    samples = [resident()]
    with ede.make_env(task, lanes=lanes, contexts=ede.Contexts.full(), **options) as world:
        world.reset()
        for _ in range(SAMPLES):
            for _ in range(steps // lanes // SAMPLES):
                world.step(generator.integers(0, world.spec.num_actions, lanes))
            samples.append(resident())
    return samples


def play_alone(task: str, lanes: int, steps: int, options: dict[str, str]) -> list[int]:
    """``play`` in a fresh process, so that one world's memory is not counted with another's."""
    words = json.dumps([task, lanes, steps, options])
    done = subprocess.run([sys.executable, __file__, "--alone", words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    samples: list[int] = json.loads(done.stdout)
    return samples


def flatness(settings: Settings, console: Console) -> list[dict[str, object]]:
    table = Table("task", "backend", "MB after 10 %", "MB at the end", "largest change", "flat")
    rows: list[dict[str, object]] = []
    for task in settings.tasks:
        in_procgen = task.startswith("procgen/")
        for backend in settings.backends if in_procgen else ("",):
            options = {"backend": backend, "mode": settings.mode} if in_procgen else {}
            samples = play_alone(task, settings.lanes, settings.steps, options)
            begin, *later = samples[1 + SAMPLES // 10 :]
            change = max((abs(sample / begin - 1) for sample in later), default=0.0)
            table.add_row(
                task,
                backend or "-",
                f"{begin / 1e6:.0f}",
                f"{later[-1] / 1e6:.0f}",
                f"{change:.1%}",
                "yes" if change <= TOLERANCE else "no",
            )
            rows.append(
                {"task": task, **options, "lanes": settings.lanes, "resident": samples, "change": change}
            )
    console.print(table)
    return rows


def lane_cost(settings: Settings, console: Console) -> list[dict[str, object]]:
    table = Table("game", "mode", *(f"kB a lane, {backend}" for backend in settings.backends))
    rows: list[dict[str, object]] = []
    for game in GAMES.values():
        for mode in [mode for mode in game.modes if mode not in ("easy", "exploration")]:
            costs = []
            for backend in settings.backends:
                options = {"backend": backend, "mode": mode}
                few = play_alone(f"procgen/{game.name}", 1, SAMPLES, options)
                many = play_alone(f"procgen/{game.name}", settings.lanes, settings.steps, options)
                costs.append((many[-1] - few[-1]) / (settings.lanes - 1))
                rows.append({"game": game.name, **options, "bytes_a_lane": costs[-1]})
            table.add_row(game.name, mode, *(f"{cost / 1e3:.0f}" for cost in costs))
    console.print(table)
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(play(*json.loads(sys.argv[2]))))
        return
    settings = tyro.cli(Settings)
    measure = lane_cost if settings.lane_cost else flatness
    rows = measure(settings, Console(width=None if sys.stdout.isatty() else 120))
    if settings.json_file:
        settings.json_file.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
