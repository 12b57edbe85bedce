"""Crafter: the package's own game to the bit, behind the lanes' contract."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opensimplex import OpenSimplex
from PIL import Image

from ede.contexts import LIMIT, Contexts
from ede.envs import make_env
from ede.envs.contract import Step
from ede.envs.crafter import ACHIEVEMENTS, package, score, success_rates
from ede.envs.crafter.game import Game
from ede.envs.crafter.lanes import CrafterLanes, grey84
from ede.envs.crafter.noise import NoiseTable
from ede.envs.crafter.package import constants, context_of, objects, plain_env
from ede.envs.crafter.state import FIELDS
from ede.envs.crafter.world import KINDS, Random, World
from ede.errors import EdeError

SLEEP = constants.actions.index("sleep")


def crafter(lanes: int = 1, **options: Any) -> CrafterLanes:
    made = make_env("crafter", lanes=lanes, **options)
    assert isinstance(made, CrafterLanes)
    return made


def some_actions(steps: int, lanes: int, *, sleepy: bool = False) -> np.ndarray:
    generator = np.random.default_rng(7)
    actions = generator.integers(0, len(constants.actions), (steps, lanes))
    return np.where(generator.random((steps, lanes)) < 0.8, SLEEP, actions) if sleepy else actions


# --- the same game as the package's ------------------------------------------------------------------------


def assert_same_step(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[0].dtype == theirs[0].dtype
    assert ours[1:3] == theirs[1:3]
    assert ours[3].keys() == theirs[3].keys()
    for key, value in theirs[3].items():
        np.testing.assert_array_equal(ours[3][key], value, err_msg=key)


def things(world: Any) -> list[tuple[str, list[int]]]:
    return [(type(thing).__name__, thing.pos.tolist()) for thing in world.objects]


@pytest.mark.parametrize(
    ("seed", "first_step", "energy", "inventory", "sleepy"),
    [(1, 0, 9, 0, False), (2, 170, 3, 0, True), (3, 120, 9, 9, False)],
    ids=["day", "asleep at night", "rich at dusk"],
)
def test_observations_rewards_ends_and_infos_are_the_packages(
    seed: int, first_step: int, energy: int, inventory: int, sleepy: bool
) -> None:
    ours, theirs = Game(seed=seed), plain_env(seed)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    np.testing.assert_array_equal(ours._world._mat_map, theirs._world._mat_map)
    assert things(ours._world) == things(theirs._world)
    for env in (ours, theirs):
        env._step = first_step
        env._player.inventory["energy"] = energy
        for item in list(env._player.inventory)[4:]:
            env._player.inventory[item] = inventory
    nights = naps = 0
    for (action,) in some_actions(150, 1, sleepy=sleepy):
        for env in (ours, theirs):
            env._player.health = 9
        assert_same_step(ours.step(action), theirs.step(action))
        nights += ours._world.daylight < 0.5
        naps += ours._player.sleeping
    assert (nights > 50) == (first_step > 0)
    assert (naps > 50) == sleepy
    assert (sum(count > 0 for count in ours.achievements) > 5) == (inventory > 0)
    assert things(ours._world) == things(theirs._world)


def test_a_context_is_the_seed_the_package_gives_an_episode() -> None:
    seed, episode = 11, 1
    lanes = crafter(contexts=Contexts.range(context_of(seed, episode), context_of(seed, episode) + 1))
    np.testing.assert_array_equal(lanes.reset()[0], plain_env(seed).reset())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31 - 2), st.lists(st.one_of(st.none(), st.integers(1, 2**31 - 1)), max_size=30))
def test_single_draws_are_numpys(seed: int, draws: list[int | None]) -> None:
    ours, theirs = Random(seed), np.random.RandomState(seed)
    for choices in draws:
        if choices is None:
            assert ours.uniform() == theirs.uniform()
            assert ours.uniform(32, 127) == theirs.uniform(32, 127)
        else:
            assert ours.randint(5, 5 + choices) == theirs.randint(5, 5 + choices)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**31 - 2),
    st.lists(
        st.tuples(*[st.floats(-40, 40, allow_nan=False)] * 2, st.integers(0, 8)), min_size=1, max_size=30
    ),
)
def test_noise_table_is_opensimplex(seed: int, points: list[tuple[float, float, int]]) -> None:
    simplex = OpenSimplex(seed=seed)
    assert NoiseTable(points)(seed).tolist() == [simplex.noise3(*point) for point in points]


def test_names_are_the_packages() -> None:
    assert list(ACHIEVEMENTS) == constants.achievements
    assert crafter().spec.action_names == tuple(constants.actions)


# --- the contract ------------------------------------------------------------------------------------------


def test_lanes_play_what_single_games_play_and_show_each_last_frame() -> None:
    limit, steps = 6, 20
    lanes = crafter(3, contexts=Contexts.range(40, 43), seed=5, time_limit=limit)
    seen = lanes.reset()
    games = [Game(length=limit) for _ in range(3)]
    expected = np.zeros_like(seen)
    for k, game in enumerate(games):
        game.begin(int(lanes.context[k]), expected[k])
    np.testing.assert_array_equal(seen, expected)
    for number, action_K in enumerate(some_actions(steps, 3), start=1):
        played = lanes.context
        step = lanes.step(action_K)
        rewards = [
            game.advance(int(a), expected[k]).reward
            for k, (game, a) in enumerate(zip(games, action_K, strict=True))
        ]
        np.testing.assert_array_equal(step.reward, np.array(rewards, np.float32))
        np.testing.assert_array_equal(step.context, played)
        np.testing.assert_array_equal(step.extra["achievements"], [game.achievements for game in games])
        assert not step.terminated.any()
        np.testing.assert_array_equal(step.truncated, np.full(3, number % limit == 0))
        np.testing.assert_array_equal(step.final_obs, expected[step.ended])
        for k in step.ended:
            games[k].begin(int(lanes.context[k]), expected[k])
        np.testing.assert_array_equal(step.obs, expected)
        np.testing.assert_array_equal(lanes.obs, expected)


def test_death_terminates_even_on_the_last_allowed_step() -> None:
    lanes = crafter(2, contexts=Contexts.range(0, 9), time_limit=1)
    lanes.reset()
    lanes._games[1]._player.health = 0
    step = lanes.step(np.array([0, 0]))
    assert step.terminated.tolist() == [False, True]
    assert step.truncated.tolist() == [True, False]


def test_contexts_come_from_the_set_and_differ_by_lane_episode_and_seed() -> None:
    def drawn(seed: int, count: int) -> list[list[int]]:
        lanes = crafter(count, contexts=Contexts.range(100, 100_000), seed=seed, time_limit=1)
        lanes.reset()
        return [lanes.step(np.zeros(count, int)).context.tolist() for _ in range(3)]

    three = drawn(0, 3)
    ids = [context for episode in three for context in episode]
    assert all(100 <= context < 100_000 for context in ids)
    assert len(set(ids)) == len(ids)
    assert [episode[:2] for episode in three] == drawn(0, 2)
    assert three != drawn(1, 3)


def test_chosen_contexts_stay() -> None:
    lanes = crafter(4, contexts=Contexts.range(0, 4), time_limit=2)
    first = lanes.choose(np.arange(4))
    for _ in range(5):
        step = lanes.step(np.zeros(4, int))
        assert step.context.tolist() == [0, 1, 2, 3]
        if step.done.all():
            np.testing.assert_array_equal(step.obs, first)
    far = crafter().choose(np.array([LIMIT - 1]))
    assert far.shape == (1, 64, 64, 3)


def test_a_step_is_the_callers_to_write_to() -> None:
    lanes = crafter(2, contexts=Contexts.range(0, 2))
    lanes.reset()[:] = 0
    step = lanes.step(np.zeros(2, int))
    before = lanes.obs
    step.obs[:] = 7
    step.extra["achievements"][:] = 7
    lanes.obs[:] = 7
    np.testing.assert_array_equal(lanes.obs, before)
    assert before.any()


def test_grey_is_pillows_nearest_resize_of_the_channels_mean_rounded_down() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
    for one, grey in zip(frame, grey84(frame), strict=True):
        large = np.array(Image.fromarray(one).resize((84, 84), Image.Resampling.NEAREST))
        np.testing.assert_array_equal(grey[..., 0], np.floor(large.astype(np.float64).mean(-1)))
    colour, plain = crafter(seed=3), crafter(seed=3, observation="grey84")
    np.testing.assert_array_equal(grey84(colour.reset()), plain.reset())
    assert plain.obs.shape == (1, *plain.spec.obs_shape)
    assert plain.obs.dtype == np.uint8


# --- save and restore --------------------------------------------------------------------------------------


def digest_of_the_rest(lanes: CrafterLanes, actions: np.ndarray) -> str:
    digest = hashlib.sha256(lanes.obs.tobytes())
    for action_K in actions:
        step: Step = lanes.step(action_K)
        for array in (step.obs, step.reward, step.terminated, step.truncated, step.context, step.final_obs):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(step.extra["achievements"].tobytes())
    return digest.hexdigest()


def settings_of_the_saved() -> dict[str, Any]:
    return {"contexts": Contexts.range(0, 50), "time_limit": 230}


def continue_elsewhere(path: str) -> None:
    """What the other process runs: another seed, which the state overrides."""
    lanes = crafter(4, seed=99, **settings_of_the_saved())
    lanes.restore(Path(path).read_bytes())
    print(digest_of_the_rest(lanes, some_actions(400, 4, sleepy=True)[200:]))
    assert "gym" not in sys.modules


def test_another_process_continues_to_the_bit_asleep_and_at_night(tmp_path: Path) -> None:
    lanes = crafter(4, seed=0, **settings_of_the_saved())
    lanes.reset()
    actions = some_actions(400, 4, sleepy=True)
    for action_K in actions[:200]:
        lanes.step(action_K)
    assert any(game._world.daylight < 0.5 for game in lanes._games)
    assert any(game._player.sleeping for game in lanes._games)
    assert any(type(thing).__name__ == "Skeleton" for game in lanes._games for thing in game._world.objects)
    state = lanes.save()
    assert len(state) < 4 * 100_000
    (tmp_path / "state").write_bytes(state)
    expected = digest_of_the_rest(lanes, actions[200:])
    code = f"import test_crafter; test_crafter.continue_elsewhere({str(tmp_path / 'state')!r})"
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert (other.stdout.strip(), other.stderr) == (expected, "")
    lanes.restore(state)
    assert lanes.save() == state


def test_chosen_contexts_are_saved() -> None:
    lanes = crafter(2, time_limit=3)
    lanes.choose(np.array([5, 6]))
    other = crafter(2, time_limit=3)
    other.restore(lanes.save())
    for _ in range(7):
        assert other.step(np.zeros(2, int)).context.tolist() == [5, 6]


def test_every_creature_of_every_kind_survives_a_save() -> None:
    lanes = crafter(contexts=Contexts.range(3, 4))
    lanes.reset()
    game = lanes._games[0]
    world, player = game._world, game._player
    free = iter([(x, y) for x in range(64) for y in range(64) if world[x, y] == ("grass", None)])
    world.add(objects.Skeleton(world, next(free), player))
    world.add(objects.Arrow(world, next(free), np.array((-1, 0))))
    world.add(objects.Plant(world, next(free)))
    world.add(objects.Fence(world, next(free)))
    player.sleeping, player._hunger = True, 3.5
    for kind in KINDS:
        thing = next(thing for thing in world.objects if isinstance(thing, kind))
        structure = {"world", "random", "pos", "player", "removed", "x", "y"}
        assert set(vars(thing)) - structure == set(FIELDS[kind.__name__])
    twin = crafter(contexts=Contexts.range(3, 4))
    twin.restore(lanes.save())
    assert twin.save() == lanes.save()
    restored = twin._games[0]._world
    for before, after in zip(world.objects, restored.objects, strict=True):
        assert type(before) is type(after)
        for field in ("pos", *FIELDS[type(before).__name__]):
            np.testing.assert_array_equal(getattr(before, field), getattr(after, field))
            assert type(getattr(before, field)) is type(getattr(after, field))
        assert after.world is restored
        assert after.random is restored.random
    actions = some_actions(60, 1)
    assert digest_of_the_rest(lanes, actions) == digest_of_the_rest(twin, actions)


def test_a_picture_for_people_leaves_the_game_as_it_was() -> None:
    lanes, twin = crafter(contexts=Contexts.range(8, 9)), crafter(contexts=Contexts.range(8, 9))
    for each in (lanes, twin):
        each.reset()
        each._games[0]._step = 200
    for action_K in some_actions(10, 1):
        np.testing.assert_array_equal(lanes.step(action_K).obs, twin.step(action_K).obs)
        assert lanes._games[0]._world.daylight < 0.5
        assert lanes.frame(0, 180).shape == (180, 180, 3)
    np.testing.assert_array_equal(lanes.frame(pixels=64)[49:], lanes.obs[0, 49:])


# --- the score ---------------------------------------------------------------------------------------------


def test_score_by_hand() -> None:
    counts = np.zeros((4, 22), int)
    counts[0, :2] = 1
    counts[1, 0] = 9
    counts[3] = 1  # ends beyond the budget
    lengths = [300, 300, 400, 1]
    rates = success_rates(counts, lengths, budget=1000)
    np.testing.assert_allclose(rates[:3], [200 / 3, 100 / 3, 0])
    product = (1 + 200 / 3) * (1 + 100 / 3)
    assert score(counts, lengths, budget=1000) == pytest.approx(product ** (1 / 22) - 1, rel=1e-12)
    assert score(np.ones((3, 22), int), [1, 1, 1]) == pytest.approx(100)
    assert score(np.zeros((3, 22), int), [1, 1, 1]) == 0
    assert score(np.array([[1] * 22, [0] * 22]), [1_000_000, 1]) == pytest.approx(100)


def test_score_refuses_what_is_no_score() -> None:
    with pytest.raises(EdeError, match="No episode ended"):
        score(np.zeros((1, 22), int), [1_000_001])
    with pytest.raises(EdeError, match="22 counts"):
        score(np.zeros((2, 22), int), [5])


# --- mistakes ----------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = crafter(2, contexts=Contexts.range(0, 2))
    with pytest.raises(EdeError, match="reset"):
        lanes.step(np.zeros(2, int))
    lanes.reset()
    for wrong in (np.zeros(3, int), np.zeros(2), np.array([0, 17]), np.array([-1, 0])):
        with pytest.raises(EdeError, match="actions"):
            lanes.step(wrong)
    for wrong in (np.zeros(1, int), np.array([0, LIMIT]), np.array([0.0, 1.0])):
        with pytest.raises(EdeError, match="context"):
            lanes.choose(wrong)
    with pytest.raises(EdeError, match="no saved state"):
        lanes.restore(b"nonsense")
    with pytest.raises(EdeError, match="observation"):
        crafter(2, contexts=Contexts.range(0, 2), observation="grey84").restore(lanes.save())
    with pytest.raises(EdeError, match="rgb, grey84"):
        crafter(observation="grey")
    with pytest.raises(EdeError, match="no option 'mode'"):
        crafter(mode="hard")
    for limit in (0, "500"):
        with pytest.raises(EdeError, match="at least 1"):
            crafter(time_limit=limit)
    for seed in (-1, 2**64):
        with pytest.raises(EdeError, match="seed must lie in"):
            crafter(seed=seed)
    with pytest.raises(EdeError, match="lanes of crafter need"):
        crafter(2**40)
    monkeypatch.setitem(sys.modules, "crafter", None)  # type: ignore[arg-type]
    with pytest.raises(EdeError, match=r"pip install 'ede\[crafter\]'"):
        package._load()


def test_a_thing_never_stands_where_another_stands() -> None:
    world = World()
    world.reset(0)
    world.add(objects.Cow(world, (3, 4)))
    with pytest.raises(AssertionError):
        world.add(objects.Plant(world, (3, 4)))
