"""What all libraries are given: the paper's encoder as a user would write it, two worlds, and the work to be timed.

A worker answers each line of its standard input, the name of a piece of work, with how long that took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

ACTIONS, QUANTILES, BATCH, HIDDEN = 15, 200, 512, 512
SHAPE = (3, 64, 64)
LANES = 64
PROCGEN_TURNS = 3
"""Vector steps timed, an update after each."""
CARTPOLE_TURNS, CARTPOLE_UPDATES = 50, 2
"""Vector steps timed, and the updates after each."""
CARTPOLE_BATCH, CARTPOLE_HIDDEN, CARTPOLE_QUANTILES = 64, 128, 32


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolutions(x)


def encoder() -> nn.Sequential:
    """[B, 3, 64, 64] numbers in [0, 1] to [B, 2048]."""
    layers: list[nn.Module] = []
    for entering, leaving in ((3, 16), (16, 32), (32, 32)):
        convolution = nn.Conv2d(entering, leaving, 3, padding=1)
        layers += [convolution, nn.MaxPool2d(3, stride=2, padding=1), Block(leaving), Block(leaving)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())


class Bigfish(gymnasium.Env):
    """One lane of Procgen's bigfish, 200 easy levels, planes first."""

    observation_space = spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = spaces.Discrete(ACTIONS)

    def __init__(self) -> None:
        from procgen import ProcgenGym3Env

        self.game = ProcgenGym3Env(1, "bigfish", num_levels=200, start_level=0, distribution_mode="easy")

    def frame(self) -> np.ndarray:
        return self.game.observe()[1]["rgb"][0].transpose(2, 0, 1).copy()

    def reset(self, *, seed=None, options=None):
        return self.frame(), {}

    def step(self, action):
        self.game.act(np.array([action]))
        reward, _, first = self.game.observe()
        return self.frame(), float(reward[0]), bool(first[0]), False, {}


def cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1")


def serve(name: str, version: str, works: Mapping[str, Callable[[], object]]) -> None:
    """Do what each line of standard input names; the driver takes turns."""
    print(json.dumps({"name": name, "version": version, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        works[line.strip()]()
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)
