"""Draws ``crafter_frames.png``: what an agent sees by day, at night, asleep, in grey. Run it from this folder."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ede.contexts import Contexts
from ede.envs import make_env
from ede.envs.crafter.lanes import CrafterLanes, grey84

CONTEXT = 7
SLEEP = 6
MOMENTS = ((40, "day, step 40"), (190, "night, step 190"), (230, "asleep, step 230"))


def main() -> None:
    lanes = make_env("crafter", contexts=Contexts.range(CONTEXT, CONTEXT + 1))
    assert isinstance(lanes, CrafterLanes)
    first = lanes.reset()
    generator = np.random.default_rng(0)
    pictures = []
    for step in range(1, MOMENTS[-1][0] + 1):
        for game in lanes._games:
            game._player.health = 9
        lanes.step(np.array([SLEEP if step > 200 else generator.integers(1, 6)]))
        pictures += [(lanes.frame(pixels=288), name) for moment, name in MOMENTS if moment == step]
    pictures.append((np.repeat(grey84(first)[0], 3, axis=-1), "observation grey84, step 0"))
    figure, axes = plt.subplots(1, len(pictures), figsize=(10, 2.8), layout="constrained")
    for panel, (image, name) in zip(axes, pictures, strict=True):
        panel.imshow(image, interpolation="nearest")
        panel.set_title(name, fontsize=9)
        panel.set_axis_off()
    figure.savefig(Path("crafter_frames.png"), dpi=110)


if __name__ == "__main__":
    main()
