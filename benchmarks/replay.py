"""What the replay costs: memory, adding a vector step, sampling [M, B], with and without priorities.

python benchmarks/replay.py [--capacity 100000] [--lanes 64] [--members 5] [--batch 512] [--threads 2] [--device cpu]
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from ede.replay import Priority, Replay


@dataclass(frozen=True)
class Settings:
    capacity: int = 100_000
    """Transitions; the paper's million takes 12.3 GB."""
    lanes: int = 64
    members: int = 5
    batch: int = 512
    n_step: int = 1
    rounds: int = 30
    threads: int = 2
    device: str = "cpu"


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def milliseconds(action: Callable[[], object], rounds: int) -> str:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return f"{statistics.median(times):7.2f} ms (least {min(times):.2f})"


def main(settings: Settings) -> None:
    torch.set_num_threads(settings.threads)
    shape, lanes = (64, 64, 3), settings.lanes
    generator = np.random.default_rng(0)
    for priority in (None, Priority()):
        before = resident()
        start = time.perf_counter()
        replay = Replay(
            capacity=settings.capacity,
            lanes=lanes,
            obs_shape=shape,
            obs_dtype="uint8",
            n_step=settings.n_step,
            gamma=0.99,
            bootstrap_on_timeout=False,
            priority=priority,
            device=settings.device,
        )
        print(f"{'prioritised' if priority else 'uniform'}, {settings.device}, {settings.threads} threads")
        print(
            f"  {settings.capacity:,} transitions: {replay.nbytes / 1e9:.3f} GB said, "
            f"{(resident() - before) / 1e9:.3f} GB more resident, made in {time.perf_counter() - start:.1f} s"
        )
        obs = generator.integers(0, 256, (lanes, *shape), dtype=np.uint8)

        def add(replay: Replay = replay, obs: np.ndarray = obs) -> None:
            replay.add(
                obs,
                np.zeros(lanes, np.int64),
                np.zeros(lanes, np.float32),
                generator.random(lanes) < 0.01,
                np.zeros(lanes, np.bool_),
                np.zeros(lanes, np.int64),
                obs[:0],
                generator,
            )

        for _ in range(settings.capacity // lanes + 10):
            add()
        print(f"  add {lanes} lanes             {milliseconds(add, settings.rounds)}")
        batch = replay.sample(settings.members, settings.batch, generator)
        draw = milliseconds(
            lambda replay=replay: replay.sample(settings.members, settings.batch, generator), settings.rounds
        )
        print(f"  sample [{settings.members}, {settings.batch}]          {draw}")
        if priority:
            update = milliseconds(
                lambda replay=replay, batch=batch: replay.update_priorities(batch.row_MB, batch.reward_MB),
                settings.rounds,
            )
            print(f"  update the priorities    {update}")
        print(f"  {(resident() - before) / 1e9:.3f} GB more resident at the end")
        del replay, batch, add


if __name__ == "__main__":
    main(tyro.cli(Settings))
