"""The sweeps of the tabular study: which cells there are, how they are run, and what is known of each.

Axis letters: T trials, C checkpoints, S states, A actions; pair 2 is (training, test).
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError
from ede.memory import available_memory
from ede.tabular.worlds import ACTIONS, WORLDS, Floats, Integers, find

RATE = 0.05
"""α₀ (paper, Appendix C); it decays as α₀/√t with t the episode."""

MOST = 10**12
"""Trials or episodes: more would take years, and counters of 64 bits hold the steps of so many."""


@dataclass(frozen=True)
class Method:
    """A learner and the ten values of its one hyperparameter (paper, Appendix C)."""

    name: str
    title: str
    hyperparameter: str
    symbol: str
    values: tuple[float, ...]
    published: float
    """The best value in the paper."""
    kernel: str
    """The compiled learner: ``<kernel>_trial``."""
    sign: float = 1.0
    """What the value is multiplied with before the kernel sees it."""
    in_paper: bool = True
    """Part of the study; the others are run when named."""


_TENTHS = tuple(i / 10 for i in range(10))

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("egreedy", "Q-learning, ε-greedy", "epsilon", "ε", _TENTHS, 0.9, "egreedy"),
        Method("ucb", "Q-learning, UCB", "c", "c", tuple(map(float, range(5, 51, 5))), 45.0, "ucb"),
        Method("pg", "Policy gradient", "beta", "β", _TENTHS, 0.1, "pg"),
        Method("sarsa", "Sarsa(λ)", "epsilon", "ε", _TENTHS, 0.9, "sarsa"),
        Method(
            "pg-printed",
            "Policy gradient, entropy's sign as printed",
            "beta",
            "β",
            _TENTHS,
            0.1,
            "pg",
            sign=-1.0,
            in_paper=False,
        ),
    )
}


class Cell(NamedTuple):
    """One value of one method in one world."""

    world: str
    method: str
    value: float


@dataclass(frozen=True)
class Size:
    """How much is run, and from which seed; the paper's size by default."""

    trials: int = 100
    episodes: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, count in (("trials", self.trials), ("episodes", self.episodes)):
            if count < 1:
                raise EdeError(f"The number of {name} must be at least 1; got {count}.")
            if count > MOST:
                raise EdeError(f"The number of {name} must be at most {MOST}; got {count}.")
        if self.seed < 0:
            raise EdeError(f"The seed must not be negative; got {self.seed}.")

    @property
    def checkpoints(self) -> Integers:
        """Episodes after which the greedy policy is judged: about a hundred, the first and the last among them."""
        every = math.ceil(self.episodes / 100)
        episodes = {1, *range(every, self.episodes + 1, every), self.episodes}
        return np.array(sorted(episodes), np.int64)


@dataclass(frozen=True)
class Row:
    """What is known of a cell: returns after the last episode, and suboptimality over training.

    Standard deviations are over trials (population). Index 0 is training, 1 is test.
    """

    cell: Cell
    trials: int
    episodes: int
    mean: tuple[float, float]
    std: tuple[float, float]
    episode_C: Integers = field(repr=False)
    gap_mean_C2: Floats = field(repr=False)
    gap_std_C2: Floats = field(repr=False)

    @property
    def error(self) -> float:
        """Standard error of the mean test return."""
        return self.std[1] / math.sqrt(self.trials)


@dataclass(frozen=True)
class Study:
    """Rows of one size, and the questions that are asked of them."""

    size: Size
    rows: tuple[Row, ...]

    def row(self, world: str, method: str, value: float) -> Row | None:
        return next((row for row in self.rows if row.cell == (world, method, value)), None)

    def sweep(self, world: str, method: str) -> tuple[Row, ...]:
        """The method's rows in that world, by value."""
        found = [row for row in self.rows if row.cell[:2] == (world, method)]
        return tuple(sorted(found, key=lambda row: row.cell.value))

    def best(self, world: str, method: str) -> Row | None:
        """The row of the highest mean test return; the published value wins a tie, then the smallest."""
        published = METHODS[method].published
        return max(
            self.sweep(world, method),
            key=lambda row: (row.mean[1], row.cell.value == published, -row.cell.value),
            default=None,
        )

    def missing(self, wanted: Iterable[Cell]) -> tuple[Cell, ...]:
        have = {row.cell for row in self.rows}
        return tuple(cell for cell in wanted if cell not in have)


@dataclass(frozen=True)
class Trials:
    """The raw outcome of a cell."""

    return_TC2: Floats
    value_TCSA: Floats
    """Q or logits at each checkpoint; empty unless history was asked for."""
    count_TCSA: Integers


def cells(
    worlds: Sequence[str] = (), methods: Sequence[str] = (), values: Sequence[float] = ()
) -> tuple[Cell, ...]:
    """The cells of these worlds, methods and values; all of the paper's where none is named."""
    chosen_worlds = [find(WORLDS, name, "world").name for name in worlds] or list(WORLDS)
    chosen = [find(METHODS, name, "method") for name in methods] or [
        m for m in METHODS.values() if m.in_paper
    ]
    for value in values:
        for method in chosen:
            if value not in method.values:
                known = ", ".join(f"{v:g}" for v in method.values)
                raise EdeError(
                    f"{value:g} is no value of {method.symbol} for '{method.name}'; choose from {known}."
                )
    return tuple(
        dict.fromkeys(
            Cell(world, method.name, value)
            for world in chosen_worlds
            for method in chosen
            for value in (values or method.values)
        )
    )


def streams(cell: Cell, trials: int, seed: int) -> npt.NDArray[np.uint64]:
    """Seeds [T, 2, 1] of exploration and evaluation: a trial's do not depend on how many others there are."""
    key = zlib.crc32(f"{cell.world}/{cell.method}/{cell.value:g}".encode())
    sequence = np.random.SeedSequence([seed, key])
    state: npt.NDArray[Any] = sequence.generate_state(2 * trials, np.uint64)
    return state.reshape(trials, 2, 1)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Task = Callable[[], None]


def _prepare(cell: Cell, size: Size, checkpoint_C: Integers, history: bool) -> tuple[Trials, list[Task]]:
    """Room for a cell's outcome, and one task a trial that fills its part of it."""
    from ede.tabular import kernels

    world, method = WORLDS[cell.world], METHODS[cell.method]
    kernel: Callable[..., None] = getattr(kernels, f"{method.kernel}_trial")
    shape = (size.trials, len(checkpoint_C) if history else 0, world.states, len(ACTIONS))
    outcome = Trials(
        np.zeros((size.trials, len(checkpoint_C), 2)), np.zeros(shape), np.zeros(shape, np.int64)
    )
    streams_T21 = streams(cell, size.trials, size.seed)

    def task(trial: int) -> None:
        kernel(
            world.rules,
            method.sign * cell.value,
            RATE,
            checkpoint_C,
            streams_T21[trial],
            outcome.return_TC2[trial],
            outcome.value_TCSA[trial],
            outcome.count_TCSA[trial],
        )

    return outcome, [lambda trial=trial: task(trial) for trial in range(size.trials)]  # type: ignore[misc]


TASK_BYTES = 2500
"""What a trial costs while it waits for a thread, at most, as measured with CPython 3.11."""


def _check_memory(chosen: Sequence[Cell], trials: int, checkpoints: int, history: bool) -> None:
    """Refuse what cannot be held: returns of all trials at all checkpoints, and their tables if asked for."""
    numbers = [2 + 2 * history * WORLDS[cell.world].states * len(ACTIONS) for cell in chosen]
    needed = trials * (len(chosen) * TASK_BYTES + checkpoints * 8 * sum(numbers))
    free = available_memory()
    if needed > free:
        raise EdeError(
            f"{trials} trials of {len(chosen)} values need {needed / 1e9:.3g} GB of memory and {free / 1e9:.3g} GB are "
            f"free; run at most {free * trials // needed}, or fewer values at a time."
        )


def run_trials(
    chosen: Iterable[Cell],
    size: Size,
    *,
    threads: int = 1,
    checkpoint_C: Integers | None = None,
    history: bool = False,
    advance: Callable[[Cell], Any] = lambda cell: None,
) -> dict[Cell, Trials]:
    """Run the cells; ``advance`` is called from the caller's thread whenever a cell is done.

    The outcome does not depend on the number of threads: each trial has its own streams and its own room.
    """
    if threads < 1:
        raise EdeError(f"The number of threads must be at least 1; got {threads}.")
    at_C = size.checkpoints if checkpoint_C is None else checkpoint_C
    chosen = tuple(chosen)
    _check_memory(chosen, size.trials, len(at_C), history)
    outcomes: dict[Cell, Trials] = {}
    with ThreadPoolExecutor(threads) as pool:
        try:
            work: dict[Cell, list[Future[None]]] = {}
            for cell in chosen:
                outcomes[cell], tasks = _prepare(cell, size, at_C, history)
                work[cell] = [pool.submit(task) for task in tasks]
            for cell, futures in work.items():
                for future in futures:
                    future.result()
                advance(cell)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return outcomes


def summarise(cell: Cell, outcome: Trials, size: Size) -> Row:
    world = WORLDS[cell.world]
    gap_TC2 = np.array([world.train_optimum, world.test_optimum]) - outcome.return_TC2
    last_T2 = outcome.return_TC2[:, -1]
    mean_2, std_2 = _tidy(last_T2.mean(axis=0)), _tidy(last_T2.std(axis=0))
    return Row(
        cell,
        size.trials,
        size.episodes,
        (float(mean_2[0]), float(mean_2[1])),
        (float(std_2[0]), float(std_2[1])),
        size.checkpoints,
        _tidy(gap_TC2.mean(axis=0)),
        _tidy(gap_TC2.std(axis=0)),
    )


def _tidy(numbers: Floats) -> Floats:
    """Six decimals, as they are written, so that a study read back from its files is the same study."""
    return np.round(numbers, 6) + 0.0


def run(
    chosen: Iterable[Cell],
    size: Size,
    *,
    threads: int = 1,
    advance: Callable[[Cell], Any] = lambda cell: None,
) -> tuple[Row, ...]:
    """Run the cells and keep what the study reports of each."""
    outcomes = run_trials(chosen, size, threads=threads, advance=advance)
    return tuple(summarise(cell, outcome, size) for cell, outcome in outcomes.items())
