"""QR-DQN of sb3-contrib, in its own environment (see run.py)."""

from __future__ import annotations

from functools import cache

import gymnasium
import numpy as np
import sb3_contrib
import torch
from common import (
    BATCH,
    CARTPOLE_BATCH,
    CARTPOLE_HIDDEN,
    CARTPOLE_QUANTILES,
    CARTPOLE_TURNS,
    CARTPOLE_UPDATES,
    HIDDEN,
    LANES,
    PROCGEN_TURNS,
    QUANTILES,
    Bigfish,
    cartpole,
    encoder,
    serve,
)
from sb3_contrib import QRDQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor

ROWS = 4_096


class Features(BaseFeaturesExtractor):
    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, features_dim=2048)
        self.encoder = encoder()

    def forward(self, obs: Tensor) -> Tensor:
        return self.encoder(obs)


@cache
def on_bigfish() -> QRDQN:
    lanes = DummyVecEnv([Bigfish] * LANES)
    model = QRDQN(
        "CnnPolicy", lanes, buffer_size=20_000, learning_starts=0, batch_size=BATCH, train_freq=1, gradient_steps=1,
        policy_kwargs={"n_quantiles": QUANTILES, "net_arch": [HIDDEN], "features_extractor_class": Features},
    )  # fmt: skip
    obs, generator = lanes.reset(), np.random.default_rng(0)
    for _ in range(ROWS // LANES):
        actions = generator.integers(lanes.action_space.n, size=LANES)
        following, rewards, dones, infos = lanes.step(actions)
        model.replay_buffer.add(obs, following, actions, rewards, dones, infos)
        obs = following
    model.learn(LANES, log_interval=None)
    return model


@cache
def on_cartpole() -> QRDQN:
    lanes = DummyVecEnv([cartpole] * LANES)
    return QRDQN(
        "MlpPolicy", lanes, buffer_size=20_000, learning_starts=0, batch_size=CARTPOLE_BATCH, train_freq=1,
        gradient_steps=CARTPOLE_UPDATES,
        policy_kwargs={"n_quantiles": CARTPOLE_QUANTILES, "net_arch": [CARTPOLE_HIDDEN, CARTPOLE_HIDDEN]},
    )  # fmt: skip


def steps(model: QRDQN, turns: int) -> None:
    model.learn(turns * LANES, reset_num_timesteps=False, log_interval=None)


def main() -> None:
    torch.set_num_threads(2)
    serve(
        "sb3-contrib",
        sb3_contrib.__version__,
        {
            "update": lambda: on_bigfish().train(1, BATCH),
            "procgen": lambda: steps(on_bigfish(), PROCGEN_TURNS),
            "cartpole": lambda: steps(on_cartpole(), CARTPOLE_TURNS),
        },
    )


if __name__ == "__main__":
    main()
