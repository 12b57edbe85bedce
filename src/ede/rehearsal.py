"""How long a step and an update take here, measured on copies so that the run itself is not touched."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ede.learner import Learner
from ede.replay import Batch

if TYPE_CHECKING:
    from ede.presets import Settings
    from ede.trainer import Trainer


BUDGET = 0.3
"""Seconds that measuring a small piece may take; a large one takes as long as it does."""


@dataclass(frozen=True)
class Cost:
    """Seconds."""

    acting: float
    """The network's for all lanes once."""
    world: float
    """Stepping all lanes once."""
    update: float

    @property
    def vector_step(self) -> float:
        return self.acting + self.world


def rehearse(trainer: Trainer) -> Cost:
    settings = trainer.settings
    obs, context = trainer.lanes.obs, trainer.lanes.context
    stacked = np.concatenate([obs] * settings.frame_stack, axis=-1)
    return Cost(
        acting=_seconds(lambda: trainer.policy.values(stacked, context), 3, BUDGET),
        world=_world_seconds(trainer),
        update=_update_seconds(trainer),
    )


class Pace:
    """How fast a run goes, and how long it still takes.

    Steps before the first update are many times faster than those after it and say nothing of them: until some
    updates were made, the rehearsal tells what is left.
    """

    TOLD = 10
    """Updates after which the run's own pace counts."""

    def __init__(self, trainer: Trainer) -> None:
        self.cost = rehearse(trainer)
        self.note(trainer)

    def note(self, trainer: Trainer) -> None:
        self.step, self.seconds, self.updates = trainer.step, trainer.seconds, trainer.learner.updates

    def advance(self, trainer: Trainer) -> None:
        """After each step: what went before the first update is forgotten."""
        if not trainer.learner.updates:
            self.note(trainer)

    def steps_per_second(self, trainer: Trainer) -> float:
        """Since learning began, or the run was resumed; before that, since the first step."""
        steps, seconds = trainer.step - self.step, trainer.seconds - self.seconds
        if not steps:  # no update yet
            steps, seconds = trainer.step, trainer.seconds
        return steps / seconds if seconds else 0.0

    def seconds_left(self, trainer: Trainer) -> float:
        settings, learner = trainer.settings, trainer.learner
        steps = settings.steps - trainer.step
        if learner.updates - self.updates >= self.TOLD:
            return steps / self.steps_per_second(trainer)
        at_random = max(0, min(settings.learning_starts, settings.steps) - trainer.step)
        updates = max(0, planned_updates(settings) - learner.updates)
        vector_seconds = steps * self.cost.vector_step - at_random * self.cost.acting
        return vector_seconds / settings.lanes + updates * self.cost.update


def planned_updates(settings: Settings) -> int:
    return max(0, settings.steps - settings.learning_starts) // settings.steps_per_update


def _world_seconds(trainer: Trainer) -> float:
    """The evaluation lanes stand in for the training lanes; they are reset before every use."""
    lanes = trainer.examiners["train"].lanes
    actions = np.zeros(lanes.lanes, dtype=np.int64)
    lanes.reset()
    # A fixed number of steps: where a world's randomness goes on over a reset, the run depends on it.
    return _seconds(lambda: lanes.step(actions), 5) * trainer.settings.lanes / lanes.lanes


def _update_seconds(trainer: Trainer) -> float:
    settings, learner = trainer.settings, trainer.learner
    spec = trainer.folder.config["spec"]
    shape = (trainer.method.ensemble.members, settings.batch_size)
    device = learner.device
    obs = torch.zeros(
        (*shape, *spec["stacked_shape"]), dtype=getattr(torch, spec["obs_dtype"]), device=device
    )
    whole = torch.zeros(shape, dtype=torch.int64, device=device)
    real = torch.zeros(shape, device=device)
    batch = Batch(obs, whole, real, real + settings.gamma, obs, whole, real + 1, whole)
    copy = Learner(learner.method, settings, deepcopy(learner.network), torch.Generator(), learner.compute)
    return _seconds(lambda: copy.update(batch), 2, BUDGET)


def _seconds(work: Callable[[], object], least: int, budget: float = 0.0) -> float:
    """The median of some turns, so that one which something disturbed counts little; more where they fit the budget."""
    work()
    turns: list[float] = []
    while len(turns) < least or sum(turns) < budget:
        begin = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        turns.append(time.perf_counter() - begin)
    return float(np.median(turns))
