"""Gymnasium environments: what is played, what is seen, how it continues, and how mistakes are told."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest

import counting
from ede.contexts import Contexts
from ede.envs import make_env
from ede.errors import EdeError


def test_an_episode_is_the_environments_own_from_its_seed() -> None:
    lanes = make_env("gym/CartPole-v1", lanes=2)
    obs = lanes.choose(np.array([11, 12]))
    alone = gymnasium.make("CartPole-v1")
    first, _ = alone.reset(seed=12)
    np.testing.assert_array_equal(obs[1], first)
    for number in range(100):
        step = lanes.step(np.array([0, number % 2]))
        seen, reward, terminated, truncated, _ = alone.step(number % 2)
        assert step.reward[1] == reward
        assert (step.terminated[1], step.truncated[1]) == (terminated, truncated)
        if terminated or truncated:
            np.testing.assert_array_equal(step.final_obs[-1], seen)
            np.testing.assert_array_equal(step.obs[1], first)
            break
        np.testing.assert_array_equal(step.obs[1], seen)
    else:
        pytest.fail("the pole never fell")


def test_contexts_are_drawn_from_their_set_and_cover_it() -> None:
    with make_env("gym/CartPole-v1", lanes=4, contexts=Contexts.range(50, 60), seed=1) as lanes:
        lanes.reset()
        seen = {int(context) for _ in range(300) for context in lanes.step(np.zeros(4, np.int64)).context}
    assert seen == set(range(50, 60))


def test_a_time_limit_truncates() -> None:
    with make_env("gym/CartPole-v1", max_episode_steps=5) as lanes:
        lanes.reset()
        ends = [lanes.step(np.array([number % 2])) for number in range(10)]
        assert lanes.spec.time_limit == 5
    assert [bool(step.truncated[0]) for step in ends] == [False, False, False, False, True] * 2
    assert not any(step.terminated[0] for step in ends)


def test_processes_play_what_one_process_plays() -> None:
    settings = {"lanes": 2, "contexts": Contexts.range(0, 9), "seed": 2}
    with (
        make_env("gym/CartPole-v1", **settings) as here,
        make_env("gym/CartPole-v1", **settings, asynchronous=True) as there,
    ):
        np.testing.assert_array_equal(here.reset(), there.reset())
        for number in range(40):
            one, other = (lanes.step(np.array([number % 2, 1])) for lanes in (here, there))
            for name in ("obs", "reward", "terminated", "truncated", "context", "final_obs"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        state = there.save()
        assert state == here.save()
        there.reset()
        there.restore(state)
        np.testing.assert_array_equal(there.obs, here.obs)


@pytest.mark.parametrize(
    ("view", "shape"), [("partial", (7, 7, 21)), ("full", (8, 8, 21)), ("rgb", (56, 56, 3))]
)
def test_minigrid_views(view: str, shape: tuple[int, ...]) -> None:
    with make_env("gym/MiniGrid-Empty-8x8-v0", observation=view) as lanes:
        obs = lanes.reset()
        assert obs.shape == (1, *shape)
        assert lanes.spec.time_limit == 256
        turned = lanes.step(np.array([1])).obs
    assert obs.dtype == np.uint8
    assert not np.array_equal(obs, turned)


def test_minigrid_planes_are_the_codes_one_by_one() -> None:
    with make_env("gym/MiniGrid-DoorKey-8x8-v0") as lanes:
        planes = lanes.choose(np.array([3]))[0]
    from minigrid.wrappers import ImgObsWrapper

    codes, _ = ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0")).reset(seed=3)
    assert set(np.unique(planes)) == {0, 255}
    for channel, part in enumerate(np.split(planes, [11, 17], axis=-1)):
        np.testing.assert_array_equal(part.argmax(-1), codes[..., channel])
        assert (part.sum(-1, dtype=int) == 255).all()


def test_the_full_view_tells_where_the_agent_looks() -> None:
    with make_env("gym/MiniGrid-Empty-5x5-v0", observation="full") as lanes:
        lanes.reset()
        looks = [lanes.step(np.array([1])).obs[0, 1, 1, 17:].argmax() for _ in range(4)]
    assert sorted(looks) == [0, 1, 2, 3]


def test_counted_observations_become_vectors() -> None:
    with make_env("gym/FrozenLake-v1", is_slippery=False) as lanes:
        assert lanes.spec.obs_shape == (16,)
        assert lanes.reset().tolist() == [[1.0] + [0.0] * 15]
        assert lanes.step(np.array([2])).obs.argmax() == 1


def test_an_environment_that_its_seed_does_not_settle_is_not_restored() -> None:
    """The counting environment's serial number survives resets, as hidden randomness would."""
    lanes = counting.make("disabled", lanes=2)
    lanes.reset()
    for _ in range(9):
        lanes.step(np.zeros(2, np.int64))
    with pytest.raises(EdeError, match="cannot be restored"):
        lanes.restore(lanes.save())


def test_a_long_episode_is_remembered_whole() -> None:
    with make_env("gym/CliffWalking-v1", lanes=2) as lanes, make_env("gym/CliffWalking-v1", lanes=2) as twin:
        lanes.reset()
        generator = np.random.default_rng(0)
        for _ in range(150):
            lanes.step(generator.integers(0, 4, 2))
        twin.restore(lanes.save())
        np.testing.assert_array_equal(twin.obs, lanes.obs)
        assert twin.save() == lanes.save()


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("gym/Nope-v1", {}, "doesn't exist"),
        ("gym/CartPole-v9", {}, "v9"),
        ("gym/Pendulum-v1", {}, "Box actions"),
        ("gym/CartPole-v1", {"colour": "red"}, "colour"),
        ("gym/CartPole-v1", {"observation": "rgb"}, "leave `observation` out"),
        ("gym/MiniGrid-Empty-5x5-v0", {"observation": "smell"}, "partial, full, rgb"),
        ("gym/nowhere_to_be_found:Foo-v1", {}, "not installed"),
        ("gym/GymV26Environment-v0", {}, "needs a package that is not installed: .*shimmy"),
        ("gym/FrozenLake-v1", {"map_name": "nowhere"}, "cannot be made with these options: KeyError"),
        ("gym", {}, "needs a name"),
    ],
)
def test_mistakes_are_told_in_a_sentence(task: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(EdeError, match=sentence) as told:
        make_env(task, **options)
    assert "\n" not in str(told.value)


def test_a_missing_minigrid_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(EdeError, match=r"pip install 'ede\[minigrid\]'"):
        make_env("gym/MiniGrid-Empty-5x5-v0")
