"""Draws ``bigfish_simple.png``: the scenario of the paper's appendix, played. Run it from this folder."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from ede.envs import make_env
from ede.envs.bigfish import BAY, FISH, SIZE, ponds

UP, DOWN, RIGHT = 1, 2, 4
TRAJECTORIES = (
    ("training (context 0), greedy: up, up", 0, (UP, UP)),
    ("training (context 0), explorative: down, right, right", 0, (DOWN, RIGHT, RIGHT)),
    (f"test (context {BAY}): up, right, right", BAY, (UP, RIGHT, RIGHT)),
    (f"test (context {BAY}): up, up", BAY, (UP, UP)),
)
SHARED = {(1, 1), (2, 1), (3, 1)}
"""(trajectory, step) of the state that three of the trajectories pass."""
GREEN, RED, SHARED_EDGE = "#1b9e4b", "#c8321e", "#e255a1"
LONGEST = max(len(actions) for _, _, actions in TRAJECTORIES)


def draw(
    axes: Axes, agent: tuple[int, int], agent_size: int, time: int, eaten: set[int], context: int
) -> None:
    pond = ponds(np.array([context]))
    axes.set(xlim=(-0.5, SIZE - 0.5), ylim=(SIZE - 0.5, -0.5), aspect="equal", xticks=[], yticks=[])
    axes.set_facecolor("#f2f6fa")
    for fish in range(FISH):
        if fish in eaten:
            continue
        speed = int(pond.speed_EF[0, fish])
        column = (int(pond.half_EF[0, fish]) + time * speed) % (2 * SIZE) // 2
        row, size = int(pond.row_EF[0, fish]), int(pond.size_EF[0, fish])
        axes.add_patch(Circle((column, row), 0.14 + 0.055 * size, color=RED))
        reach = 0.16 + 0.055 * size
        toward = np.sign(speed)
        axes.plot(
            [column + toward * reach, column + toward * (reach + 0.2 * abs(speed))], [row, row], color=RED
        )
    axes.add_patch(Circle(agent[::-1], 0.14 + 0.055 * agent_size, color=GREEN))


def main() -> None:
    figure, grid = plt.subplots(len(TRAJECTORIES), LONGEST + 1, figsize=(8.4, 9.2))
    for number, (title, context, actions) in enumerate(TRAJECTORIES):
        lanes = make_env("bigfish-simple")
        lanes.choose(np.array([context]))
        row, column = ponds(np.array([context])).start_E2[0].tolist()
        eaten: set[int] = set()
        draw(grid[number, 0], (row, column), 2, 0, eaten, context)
        grid[number, 0].set_title(title, loc="left", fontsize=9)
        for time, action in enumerate(actions, 1):
            step = lanes.step(np.array([action]))
            row += {UP: -1, DOWN: 1}.get(action, 0)
            column += action == RIGHT
            if step.reward[0]:
                pond = ponds(np.array([context]))
                eaten.add(int(np.flatnonzero(pond.row_EF[0] == row)[0]))
            axes = grid[number, time]
            draw(axes, (row, column), 2 + len(eaten), time, eaten, context)
            result = "dies" if step.terminated[0] else f"+{step.reward[0]:.0f}" if step.reward[0] else ""
            axes.set_xlabel(result, fontsize=9, fontweight="bold")
        for time, axes in enumerate(grid[number]):
            axes.set_ylabel(f"T={time}", fontsize=8)
            axes.set_visible(time <= len(actions))
            if (number, time) in SHARED:
                for spine in axes.spines.values():
                    spine.set(color=SHARED_EDGE, linewidth=3)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
