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
    from ede.trainer import Trainer


@dataclass(frozen=True)
class Cost:
    """Seconds."""

    vector_step: float
    """Acting in and stepping all lanes once."""
    update: float


def rehearse(trainer: Trainer) -> Cost:
    settings = trainer.settings
    obs, context = trainer.lanes.obs, trainer.lanes.context
    stacked = np.concatenate([obs] * settings.frame_stack, axis=-1)
    return Cost(
        vector_step=_seconds(lambda: trainer.policy.values(stacked, context), 2) + _world_seconds(trainer),
        update=_update_seconds(trainer),
    )


def _world_seconds(trainer: Trainer) -> float:
    """The evaluation lanes stand in for the training lanes; they are reset before every use."""
    lanes = trainer.examiners["train"].lanes
    actions = np.zeros(lanes.lanes, dtype=np.int64)
    lanes.reset()
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
    return _seconds(lambda: copy.update(batch), 2)


def _seconds(work: Callable[[], object], times: int) -> float:
    work()
    begin = time.perf_counter()
    for _ in range(times):
        work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times
