"""The tabular study's speed: compiled trials against plain Python, interleaved on one core, and the whole study.

python benchmarks/tabular.py [--rounds 5] [--episodes 1000] [--threads 2] [--no-study]

Trials are timed in processor seconds, so that a busy machine does not change the ratio.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import tyro

from ede.tabular import plain
from ede.tabular.study import METHODS, RATE, Cell, Size, cells, run, run_trials, streams
from ede.tabular.worlds import WORLDS

COMPARED = (
    Cell("grid", "egreedy", 0.9),
    Cell("grid", "ucb", 45.0),
    Cell("grid", "pg", 0.1),
    Cell("grid", "sarsa", 0.9),
)
BATCH = 100
"""Compiled trials timed together, as a sweep runs them."""


@dataclass(frozen=True)
class Settings:
    rounds: int = 5
    """Plain and compiled are timed in turn this often; the medians count."""
    episodes: int = 1000
    threads: int = 2
    """For the whole study; trials are compared on one."""
    study: bool = True
    """Also time the whole study: 2 worlds, 4 methods, 10 values, 100 trials, 1000 episodes."""


def compare(cell: Cell, size: Size) -> tuple[float, float, bool]:
    """Seconds of a plain trial and of a compiled one, and whether their returns are the same."""
    explore, judge = (int(seed) for seed in streams(cell, 1, size.seed)[0, :, 0])
    checkpoints, learner = size.checkpoints.tolist(), plain.LEARNERS[METHODS[cell.method].kernel]
    begin = time.process_time()
    twin = plain.trial(learner, WORLDS[cell.world], cell.value, RATE, checkpoints, (explore, judge))
    between = time.process_time()
    outcome = run_trials([cell], Size(BATCH, size.episodes, size.seed))[cell]
    end = time.process_time()
    same = twin.returns == [tuple(pair) for pair in outcome.return_TC2[0].tolist()]
    return between - begin, (end - between) / BATCH, same


def main(settings: Settings) -> None:
    print(f"{'one trial':<16}{'plain':>11}{'compiled':>12}{'ratio':>8}   same returns")
    for cell in COMPARED:
        run_trials([cell], Size(1, 1))  # compiles, or loads what was compiled
        size = Size(1, settings.episodes)
        slow, fast, same = zip(*(compare(cell, size) for _ in range(settings.rounds)), strict=True)
        ratio = statistics.median(slow) / statistics.median(fast)
        print(
            f"{f'{cell.method} {cell.value:g}':<16}{1000 * statistics.median(slow):>8.1f} ms"
            f"{1000 * statistics.median(fast):>9.2f} ms{ratio:>8.0f}   {all(same)}"
        )
    if settings.study:
        begin = time.perf_counter()
        run(cells(), Size(), threads=settings.threads)
        print(f"whole study on {settings.threads} threads: {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main(tyro.cli(Settings, config=(tyro.conf.FlagCreatePairsOff,)))
