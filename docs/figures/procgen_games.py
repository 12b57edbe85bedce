"""Draws ``procgen_games.png``: level 0 of each game, some steps on. Run it from this folder."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ede.contexts import Contexts
from ede.envs import make_env
from ede.envs.procgen import GAMES

STEPS = 25


def main() -> None:
    figure, axes = plt.subplots(2, 8, figsize=(10, 2.9), layout="constrained")
    for panel, game in zip(axes.flat, GAMES, strict=True):
        generator = np.random.default_rng(3)
        with make_env(f"procgen/{game}", contexts=Contexts.range(0, 1)) as lanes:
            lanes.reset()
            for _ in range(STEPS):
                lanes.step(generator.integers(0, lanes.spec.num_actions, 1))
            panel.imshow(lanes.obs[0], interpolation="nearest")
        panel.set_title(game, fontsize=9)
        panel.set_axis_off()
    figure.savefig(Path("procgen_games.png"), dpi=110)


if __name__ == "__main__":
    main()
