"""Methods learn a toy in seconds, through the whole of training: the public call, replay, explorer, learner, judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

import ede
from ede.display import Display

PLACES = 5
SETTINGS: dict[str, Any] = {
    "lanes": 8,
    "threads": 1,
    "gamma": 0.9,
    "n_step": 1,
    "learning_starts": 400,
    "steps_per_update": 8,
    "batch_size": 32,
    "target_period": 160,
    "learning_rate": 5e-3,
    "hidden": 32,
    "replay_size": 3_000,
    "final_episodes": 16,
    "eval_episodes": 1,
    "eval_epsilon": 0.0,
    "eval_period": 100_000,
    "checkpoint_period": 100_000,
    "log_period": 1_000,
}


class Chain(gymnasium.Env[npt.NDArray[np.float32], int]):
    """Five places; the last pays 1 and ends. Staying at the first pays 0.05 a step: half as much, discounted."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 1, (PLACES,), np.float32)
    place = 0

    def _obs(self) -> npt.NDArray[np.float32]:
        return np.eye(PLACES, dtype=np.float32)[self.place]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        self.place = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.place = self.place + 1 if action else max(self.place - 1, 0)
        goal = self.place == PLACES - 1
        return self._obs(), 1.0 if goal else 0.05 * (self.place == 0), goal, False, {}


gymnasium.register("Chain-v0", entry_point=Chain, max_episode_steps=20)


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("dqn", {"epsilon_start": 10, "epsilon_decay": 50}),
        ("ede", {"members": 3, "quantiles": 8, "phi": 2.0}),
    ],
)
def test_a_method_learns_to_walk_to_the_end_of_a_chain(
    method: str, own: dict[str, Any], tmp_path: Path
) -> None:
    run = ede.train(
        "gym/Chain-v0",
        method=method,
        preset="smoke",
        steps=3_000,
        out=tmp_path / "run",
        settings=SETTINGS | own,
        display=Display(),
    )
    assert run.test.returns.tolist() == [1.0] * 16
    assert run.test.lengths.tolist() == [PLACES - 1] * 16


def test_the_public_call_is_a_function_however_often_its_module_is_imported() -> None:
    from ede.train import train

    assert ede.train is train
    assert ede.train is train
