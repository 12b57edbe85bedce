"""The whole loop at work on one task: seconds of a vector step in acting, in the world, in the replay, in learning."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ede.display import Display
from ede.interaction import Moment
from ede.runs import RunFolder
from ede.train import Trainer, resolve

STEPS = 6
"""Vector steps measured, each with its update."""


@dataclass(frozen=True)
class Loop:
    """Seconds of one vector step of all lanes, with the update that is due."""

    task: str
    method: str
    preset: str
    lanes: int
    precision: str
    act: float
    world: float
    replay: float
    learn: float

    @property
    def seconds(self) -> float:
        return self.act + self.world + self.replay + self.learn

    @property
    def steps_per_second(self) -> float:
        return self.lanes / self.seconds


def measure(
    task: str, method: str, preset: str, steps: int = STEPS, settings: Mapping[str, Any] | None = None
) -> Loop:
    """Build a run as `ede train` would, in a folder that goes again, and take some of its steps; the fastest counts."""
    with prepared(task, method, preset, settings) as trainer:
        before = trainer.settings.n_step + 2  # until a transition is complete and memory is warm
        turns = [turn(trainer) for _ in range(before + steps)][before:]
        act, world, replay, learn = (min(part) for part in zip(*turns, strict=True))
    made = trainer.settings
    return Loop(task, method, preset, made.lanes, made.precision, act, world, replay, learn)


@contextmanager
def prepared(
    task: str, method: str, preset: str, settings: Mapping[str, Any] | None = None
) -> Iterator[Trainer]:
    """A run that learns from its first step on, in a folder that goes again."""
    changed = {"learning_starts": 0, "replay_size": 20_000, **(settings or {})}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        run = RunFolder.create(Path(folder) / "run", resolve(task, method, preset, 0, changed))
        yield Trainer(run, Display(), stack)


def turn(trainer: Trainer) -> tuple[float, float, float, float]:
    """One vector step as in ``Trainer.run``: seconds of acting, of the world, of remembering and of learning."""
    lanes, actor, clock = trainer.lanes, trainer.actor, time.perf_counter
    obs, times = lanes.obs.copy(), [clock()]
    actions, values = actor.act(obs, lanes.context)
    times.append(clock())
    step = lanes.step(actions)
    actor.after(step)
    times.append(clock())
    trainer.remember(Moment(obs, actions, values, step))
    times.append(clock())
    trainer.learn()
    times.append(clock())
    act, world, replay, learn = (later - sooner for sooner, later in pairwise(times))
    return act, world, replay, learn
