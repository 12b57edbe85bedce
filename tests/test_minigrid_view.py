"""MiniGrid's quick view against the package's own, to the bit."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest

from ede.envs.minigrid_view import image, quicken

pytest.importorskip("minigrid")

from minigrid.minigrid_env import MiniGridEnv

TASKS = (
    "MiniGrid-DoorKey-8x8-v0",  # doors, a key to carry
    "MiniGrid-MultiRoom-N4-S5-v1",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-LavaCrossingS9N2-v0",
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-ObstructedMaze-1Dlhb-v0",  # boxes, balls, locked doors
    "MiniGrid-PutNear-8x8-N3-v0",
    "BabyAI-GoToLocal-v0",
)


def walked(env: gymnasium.Env[object, object], steps: int = 150) -> Iterator[MiniGridEnv]:
    """The environment, then after each of many random steps, its episodes joined."""
    generator = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(steps):
        yield env.unwrapped
        action = min(int(generator.choice([0, 1, 2, 2, 2, 3, 4, 5])), env.action_space.n - 1)
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("through_walls", [False, True])
def test_the_view_is_the_packages_to_the_bit(task: str, through_walls: bool) -> None:
    env = gymnasium.make(task, disable_env_checker=True)
    env.unwrapped.see_through_walls = through_walls
    for inner in walked(env):
        expected = MiniGridEnv.gen_obs(inner)["image"]
        found = image(inner)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [3, 5, 9])
def test_other_sizes_of_view(size: int) -> None:
    env = gymnasium.make("MiniGrid-DoorKey-6x6-v0", disable_env_checker=True, agent_view_size=size)
    for inner in walked(env, 60):
        np.testing.assert_array_equal(image(inner), MiniGridEnv.gen_obs(inner)["image"])


def test_an_environment_with_a_view_of_its_own_keeps_it() -> None:
    env = gymnasium.make("MiniGrid-Empty-5x5-v0", disable_env_checker=True).unwrapped

    class Blind(type(env)):
        def gen_obs(self) -> dict[str, object]:
            return {"image": np.zeros((7, 7, 3), np.uint8), "direction": 0, "mission": ""}

    quicken(env)
    assert "gen_obs" in vars(env)
    blind = Blind(size=5)
    quicken(blind)
    assert "gen_obs" not in vars(blind)
