"""EDE's QR-DQN (one head) at the same sizes, in float32 or bf16 (see run.py)."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import cache

import torch
from common import (
    BATCH,
    CARTPOLE_BATCH,
    CARTPOLE_HIDDEN,
    CARTPOLE_QUANTILES,
    CARTPOLE_TURNS,
    CARTPOLE_UPDATES,
    LANES,
    PROCGEN_TURNS,
    serve,
)

import ede
from ede.bench.learner import filled_replay, paper_learner, paper_settings
from ede.bench.loop import prepared, turn
from ede.compute import keep_memory
from ede.seeds import numpy_generator
from ede.trainer import Trainer

CARTPOLE = {
    "batch_size": CARTPOLE_BATCH, "hidden": CARTPOLE_HIDDEN, "quantiles": CARTPOLE_QUANTILES,
    "steps_per_update": LANES // CARTPOLE_UPDATES,
}  # fmt: skip


def main(precision: str) -> None:
    torch.set_num_threads(2)
    keep_memory()
    settings = paper_settings(BATCH, 1, precision)
    learner, replay = paper_learner(settings, "qrdqn"), filled_replay(settings)
    generator, stack = numpy_generator(0, "batches"), ExitStack()

    @cache
    def run(task: str, preset: str) -> Trainer:
        # Small networks know float32 alone.
        own = CARTPOLE if preset == "laptop" else {"precision": precision}
        settings = {"threads": 2, **own}
        return stack.enter_context(prepared(task, "qrdqn", preset, settings))

    def steps(task: str, preset: str, turns: int) -> None:
        for _ in range(turns):
            turn(run(task, preset))

    with stack:
        serve(
            f"EDE {precision}",
            ede.__version__,
            {
                "update": lambda: learner.update(replay.sample(1, BATCH, generator)),
                "procgen": lambda: steps("procgen/bigfish", "paper", PROCGEN_TURNS),
                "cartpole": lambda: steps("gym/CartPole-v1", "laptop", CARTPOLE_TURNS),
            },
        )


if __name__ == "__main__":
    main(sys.argv[1])
