"""QR-DQN of Tianshou, in its own environment (see run.py)."""

from __future__ import annotations

from functools import cache

import numpy as np
import tianshou
import torch
from common import (
    ACTIONS,
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
from gymnasium import spaces
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import QRDQNPolicy
from torch import nn

ROWS = 4_096


class Network(nn.Module):
    def __init__(self, layers: nn.Module, actions: int, quantiles: int, scale: float) -> None:
        super().__init__()
        self.layers, self.shape, self.scale = layers, (actions, quantiles), scale

    def forward(self, obs, state=None, info=None):
        numbers = torch.as_tensor(np.asarray(obs)).float() / self.scale
        return self.layers(numbers).view(-1, *self.shape), state


class Run:
    """A policy, its buffer and its lanes."""

    def __init__(self, network: Network, worlds, batch: int, updates: int) -> None:
        self.batch, self.updates = batch, updates
        actions, quantiles = network.shape
        self.policy = QRDQNPolicy(
            model=network,
            optim=torch.optim.Adam(network.parameters(), lr=2.5e-4, eps=1.5e-4),
            action_space=spaces.Discrete(actions),
            discount_factor=0.99,
            num_quantiles=quantiles,
            estimation_step=3,
            target_update_freq=500,
        )
        self.policy.set_eps(0.1)
        self.policy.train()
        self.policy.is_within_training_step = True
        self.buffer = VectorReplayBuffer(20_000, LANES)
        self.collector = Collector(self.policy, DummyVectorEnv(worlds), self.buffer, exploration_noise=True)
        self.collector.reset()
        self.collector.collect(n_step=ROWS, random=True)

    def update(self) -> None:
        self.policy.update(sample_size=self.batch, buffer=self.buffer)

    def steps(self, turns: int) -> None:
        for _ in range(turns):
            self.collector.collect(n_step=LANES)
            for _ in range(self.updates):
                self.update()


@cache
def on_bigfish() -> Run:
    layers = nn.Sequential(
        encoder(), nn.Linear(2048, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, ACTIONS * QUANTILES)
    )
    return Run(Network(layers, ACTIONS, QUANTILES, 255), [Bigfish] * LANES, BATCH, 1)


@cache
def on_cartpole() -> Run:
    hidden, outputs = CARTPOLE_HIDDEN, 2 * CARTPOLE_QUANTILES
    layers = nn.Sequential(
        nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )
    worlds = [cartpole] * LANES
    return Run(Network(layers, 2, CARTPOLE_QUANTILES, 1), worlds, CARTPOLE_BATCH, CARTPOLE_UPDATES)


def main() -> None:
    torch.set_num_threads(2)
    serve(
        "Tianshou",
        tianshou.__version__,
        {
            "update": lambda: on_bigfish().update(),
            "procgen": lambda: on_bigfish().steps(PROCGEN_TURNS),
            "cartpole": lambda: on_cartpole().steps(CARTPOLE_TURNS),
        },
    )


if __name__ == "__main__":
    main()
