"""Procgen behind the lanes' contract: both backends, their agreement, and what only the default one can do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ede
from ede.envs.contract import Lanes, Step
from ede.envs.procgen import ACTION_NAMES, GAMES, split_ends

MIRROR, ENVPOOL = BACKENDS = ("procgen-mirror", "envpool")
TRAINING = ede.Contexts.range(0, 200)
NOTHING = ACTION_NAMES.index("nothing")
SAME_FRAMES_ON_ANY_QT = ("bigfish", "chaser", "maze")
"""Games whose frames do not depend on the Qt version (measured: benchmarks/procgen_parity.py)."""

Make = Callable[..., Lanes]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Lanes] = []

    def make_lanes(game: str, backend: str = MIRROR, lanes: int = 4, **options: Any) -> Lanes:
        settings = {"contexts": TRAINING, "seed": 3, **options}
        made.append(ede.make_env(f"procgen/{game}", lanes=lanes, backend=backend, **settings))
        return made[-1]

    yield make_lanes
    for lanes in made:
        lanes.close()


def random_actions(steps: int, lanes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, len(ACTION_NAMES), (steps, lanes))


def play(lanes: Lanes, actions: np.ndarray) -> list[Step]:
    return [lanes.step(action_K) for action_K in actions]


def digest(steps: list[Step]) -> str:
    """One hash of all that steps tell."""
    total = hashlib.sha256()
    for step in steps:
        for array in (step.obs, step.reward, step.terminated, step.truncated, step.context, step.final_obs):
            total.update(np.ascontiguousarray(array).tobytes())
        for name in sorted(step.extra):
            total.update(step.extra[name].tobytes())
    return total.hexdigest()


@pytest.mark.parametrize("game", GAMES)
def test_backends_agree(game: str, make: Make) -> None:
    mirror, envpool = (make(game, backend, lanes=8) for backend in BACKENDS)
    for seed in range(2):  # a second round, because `reset` must draw the same levels too
        first, other = mirror.reset(), envpool.reset()
        assert first.shape == other.shape == (8, 64, 64, 3)
        np.testing.assert_array_equal(mirror.context, envpool.context)
        for action_K in random_actions(80, 8, seed):
            ours, theirs = mirror.step(action_K), envpool.step(action_K)
            for name in ("reward", "terminated", "truncated", "context", "ended"):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
            np.testing.assert_array_equal(ours.extra["level_complete"], theirs.extra["level_complete"])
            np.testing.assert_array_equal(mirror.context, envpool.context)
            if game in SAME_FRAMES_ON_ANY_QT:
                np.testing.assert_array_equal(ours.obs, theirs.obs)


@pytest.mark.parametrize(
    ("game", "mode"), [(g.name, m) for g in GAMES.values() for m in g.modes if m != "easy"]
)
def test_every_mode_plays_the_same_levels(game: str, mode: str, make: Make) -> None:
    options = {"contexts": ede.Contexts.full()} if mode == "exploration" else {}
    mirror, envpool = (make(game, backend, mode=mode, **options) for backend in BACKENDS)
    np.testing.assert_array_equal(mirror.reset().shape, envpool.reset().shape)
    for action_K in random_actions(10, 4):
        ours, theirs = mirror.step(action_K), envpool.step(action_K)
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        np.testing.assert_array_equal(ours.context, theirs.context)
        assert all(context in mirror.contexts for context in ours.context)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("game", "mode", "limit"), [("maze", "easy", 500), ("jumper", "memory", 2000)])
def test_the_games_own_time_limit_truncates(
    backend: str, game: str, mode: str, limit: int, make: Make
) -> None:
    lanes = make(game, backend, lanes=2, mode=mode, seed=0)
    lanes.reset()
    steps = play(lanes, np.full((limit, 2), NOTHING))
    assert lanes.spec.time_limit == limit
    assert not any(step.done.any() for step in steps[:-1])
    assert steps[-1].truncated.all()
    assert not steps[-1].terminated.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_time_limit_counts_each_episode_by_itself(backend: str, make: Make) -> None:
    lanes = make("leaper", backend, lanes=8)
    lanes.reset()
    deaths = [step.terminated.sum() for step in play(lanes, random_actions(600, 8))]
    assert sum(deaths[500:]) > 0


def test_an_end_is_a_time_out_only_at_the_limit() -> None:
    done_K = np.array([True, True, False, True])
    terminated_K, truncated_K = split_ends(done_K, np.array([3, 500, 500, 499]), 500)
    assert terminated_K.tolist() == [True, False, False, True]
    assert truncated_K.tolist() == [False, True, False, False]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_ended_lane_shows_its_next_episode(backend: str, make: Make) -> None:
    """With a single level every episode begins with the same frame."""
    lanes = make("starpilot", backend, lanes=8, contexts=ede.Contexts.range(11, 12))
    first = lanes.reset()
    before, ends, rewards = first, 0, 0.0
    for action_K in random_actions(250, 8):
        step = lanes.step(action_K)
        np.testing.assert_array_equal(step.obs[step.ended], first[step.ended])
        assert step.final_obs.shape == (len(step.ended), 64, 64, 3)
        if not lanes.spec.shows_last_frame:
            np.testing.assert_array_equal(step.final_obs, before[step.ended])
        assert (step.context == 11).all()
        before, ends, rewards = step.obs, ends + len(step.ended), rewards + float(step.reward.sum())
    assert ends > 8
    assert rewards > 0


def test_envpool_shows_the_true_last_frame_and_no_step_is_lost(make: Make) -> None:
    """Against the bare pool, whose every episode takes one step more."""
    ours = make("dodgeball", ENVPOOL, lanes=1, seed=7)
    import envpool

    bare = envpool.make_gymnasium(
        "DodgeballEasy-v0",
        num_envs=1,
        num_threads=1,
        seed=7,
        channel_first=False,
        start_level=0,
        num_levels=200,
    )
    np.testing.assert_array_equal(ours.reset(), bare.reset()[0])
    ends = 0
    for action_K in random_actions(150, 1):
        step = ours.step(action_K)
        obs, reward, terminated, truncated, _ = bare.step(action_K.astype(np.int32))
        assert step.reward == reward
        assert step.done == (terminated | truncated)
        if step.done[0]:
            ends += 1
            np.testing.assert_array_equal(step.final_obs, obs)
            obs = bare.step(action_K.astype(np.int32))[0]
        np.testing.assert_array_equal(step.obs, obs)
    assert ends > 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_are_the_callers(backend: str, make: Make) -> None:
    lanes, twin = make("dodgeball", backend), make("dodgeball", backend)
    lanes.reset()
    twin.reset()
    steps: list[Step] = []
    hashes: list[str] = []
    for action_K in random_actions(60, 4):
        steps.append(lanes.step(action_K))
        hashes.append(digest(steps[-1:]))
    assert hashes == [digest([step]) for step in steps]
    assert any(len(step.ended) for step in steps)
    # … and a caller who writes to them changes nothing but them.
    scribbled = []
    for action_K in random_actions(60, 4):
        step = twin.step(action_K)
        scribbled.append(digest([step]))
        np.testing.assert_array_equal(twin.obs, step.obs)
        for array in (step.obs, step.context, twin.obs, twin.context, action_K):
            array.fill(0)
    assert scribbled == hashes


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_is_a_value(backend: str, make: Make) -> None:
    def trace(seed: int, threads: int) -> str:
        lanes = make("bossfight", backend, seed=seed, threads=threads)
        lanes.reset()
        return digest(play(lanes, random_actions(60, 4)))

    assert trace(5, 0) == trace(5, 2)
    assert trace(5, 0) != trace(6, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_contexts_are_levels(backend: str, make: Make) -> None:
    def seen(contexts: ede.Contexts) -> set[int]:
        lanes = make("dodgeball", backend, lanes=16, contexts=contexts)
        lanes.reset()
        assert lanes.context.dtype == np.int64
        return {
            int(c) for step in play(lanes, random_actions(60, 16)) for c in (*step.context, *lanes.context)
        }

    few = ede.Contexts.range(300, 304)  # above 255: a level does not fit eight bits
    assert seen(few) == {300, 301, 302, 303}
    assert min(seen(few.beyond())) >= 304
    assert max(seen(ede.Contexts.full())) > 10**6


def test_200_lanes_play_exactly_their_levels(make: Make) -> None:
    lanes = make("dodgeball", lanes=200, contexts=ede.Contexts.full())
    lanes.reset()
    play(lanes, random_actions(3, 200))
    first = lanes.choose(np.arange(200))
    episodes_K = np.zeros(200, int)
    for action_K in random_actions(120, 200):
        step = lanes.step(action_K)
        episodes_K += step.done
        np.testing.assert_array_equal(step.context, np.arange(200))
        np.testing.assert_array_equal(lanes.context, np.arange(200))
        np.testing.assert_array_equal(step.obs[step.ended], first[step.ended])
    assert (episodes_K > 0).mean() > 0.8
    np.testing.assert_array_equal(lanes.reset(), first)


def test_a_chosen_level_is_the_one_that_contexts_would_give(make: Make) -> None:
    chosen = make("leaper", lanes=3).choose(np.array([4, 123456, 4]))
    for lane, level in enumerate((4, 123456, 4)):
        alone = make("leaper", lanes=1, contexts=ede.Contexts.range(level, level + 1), seed=99)
        np.testing.assert_array_equal(chosen[lane], alone.reset()[0])


def test_the_next_level_is_chosen_while_the_episode_runs(make: Make) -> None:
    lanes, twin = (make("dodgeball", lanes=2) for _ in range(2))
    for world in (lanes, twin):
        world.choose(np.array([1, 2]))
    lanes.choose_next(np.array([0]), np.array([50]))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(lanes.context, [1, 2])
    ended_K = np.zeros(2, bool)
    for action_K in random_actions(300, 2):
        step, other = lanes.step(action_K), twin.step(action_K)
        running_K = ~ended_K
        np.testing.assert_array_equal(step.reward[running_K], other.reward[running_K])
        ended_K |= step.done
        np.testing.assert_array_equal(lanes.context, np.where(ended_K, [50, 2], [1, 2]))
    assert ended_K.all()
    for lane_E, level_E in (([-1], [5]), ([2], [5]), ([0.0], [5]), ([0], [-5]), ([0], [5.0]), ([0, 1], [5])):
        with pytest.raises(ede.EdeError):
            lanes.choose_next(np.array(lane_E), np.array(level_E))  # type: ignore[attr-defined]


def test_restored_lanes_go_on_to_the_bit_in_another_process(tmp_path: Path, make: Make) -> None:
    expected = []
    for game in GAMES:
        lanes = make(game)
        lanes.reset()
        play(lanes, random_actions(40, 4, seed=1))
        (tmp_path / game).write_bytes(lanes.save())
        expected.append(digest(play(lanes, random_actions(60, 4, seed=2))))
    program = (
        "import sys, test_procgen as t, ede\n"
        "for game in t.GAMES:\n"
        "    lanes = ede.make_env(f'procgen/{game}', lanes=4, contexts=t.TRAINING, seed=1234)\n"
        "    lanes.restore((t.Path(sys.argv[1]) / game).read_bytes())\n"
        "    print(t.digest(t.play(lanes, t.random_actions(60, 4, seed=2))))\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.split() == expected


def test_restore_brings_back_what_to_act_on_and_the_episodes_age(make: Make) -> None:
    lanes, other = make("maze", lanes=2), make("maze", lanes=2, seed=8)
    lanes.reset()
    play(lanes, np.full((450, 2), NOTHING))
    other.restore(lanes.save())
    np.testing.assert_array_equal(other.obs, lanes.obs)
    np.testing.assert_array_equal(other.context, lanes.context)
    assert play(other, np.full((50, 2), NOTHING))[-1].truncated.all()


def test_a_wrong_state_is_refused(make: Make) -> None:
    lanes = make("maze")
    state = lanes.save()
    for wrong in (
        make("leaper"),
        make("maze", lanes=3),
        make("maze", mode="hard"),
        make("maze", paint_vel_info=True),
    ):
        with pytest.raises(ede.EdeError):
            wrong.restore(state)
    flipped = bytearray(state)
    flipped[-1000] ^= 255
    for broken in (b"", state[:100], state[:-1], bytes(flipped)):
        with pytest.raises(ede.EdeError):
            lanes.restore(broken)
    assert not make("maze", ENVPOOL).spec.can_save
    with pytest.raises(ede.EdeError, match="cannot save"):
        make("maze", ENVPOOL).save()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "procgen/bigfisch"}, "no Procgen game 'bigfisch'.*bigfish, bossfight"),
        ({"mode": "extreme"}, "bigfish has no mode 'extreme'; its modes are easy, hard"),
        ({"backend": "gym3"}, "backends are procgen-mirror, envpool"),
        ({"colour": True}, "no option 'colour'; the options are mode, backend, threads, center_agent"),
        ({"center_agent": "no"}, "True or False"),
        ({"use_sequential_levels": True}, "use lanes.choose|lanes.choose"),
        ({"lanes": 10**6}, "GiB are free; ask for at most"),
        ({"seed": -1}, "seed"),
        ({"threads": -1}, "threads"),
        ({"threads": 1.5}, "threads must be a whole number"),
        (
            {"task": "procgen/maze", "mode": "exploration", "contexts": TRAINING},
            "plays level 158988835 alone",
        ),
    ],
)
def test_mistakes_are_told_in_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ede.EdeError, match=words) as caught:
        ede.make_env(**{"task": "procgen/bigfish", **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_missing_backend_names_its_install_line(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "procgen" if backend == MIRROR else backend, None)
    with pytest.raises(ede.EdeError, match=r"pip install 'ede\["):
        ede.make_env("procgen/maze", backend=backend)


def test_the_default_backend_is_the_first_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with ede.make_env("procgen/maze") as lanes:
        assert lanes.spec.backend == "procgen-mirror 0.10.7"
    monkeypatch.setitem(sys.modules, "procgen", None)
    with ede.make_env("procgen/maze") as lanes:
        assert lanes.spec.backend.startswith("envpool 1.")
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ede.EdeError, match="Procgen is not installed"):
        ede.make_env("procgen/maze")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("actions", [[0, 1, -1], [0, 1, 15], [0, 1], [[0, 1, 2]], [0.0, 1.0, 2.0]])
def test_actions_the_games_would_misread_are_refused(backend: str, actions: list[Any], make: Make) -> None:
    lanes = make("maze", backend, lanes=3)
    lanes.reset()
    with pytest.raises(ede.EdeError):
        lanes.step(np.array(actions))


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_frees_the_games(backend: str) -> None:
    def threads_after_a_life() -> int:
        with ede.make_env("procgen/maze", lanes=8, backend=backend, threads=3) as lanes:
            lanes.reset()
        lanes.close()
        with pytest.raises(ede.EdeError, match="closed"):
            lanes.step(np.zeros(8, int))
        return len(list(Path("/proc/self/task").iterdir()))

    settled = threads_after_a_life()
    assert [threads_after_a_life() for _ in range(3)] == [settled] * 3


def test_gym_is_neither_imported_nor_heard_of() -> None:
    program = "import sys, ede; ede.make_env('procgen/maze', backend='procgen-mirror'); assert 'gym' not in sys.modules"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (child.stdout, child.stderr) == ("", "")


def test_without_qt_one_sentence_says_so() -> None:
    """Where the system has Qt of its own the lanes are made; elsewhere the sentence names the wheel."""
    program = (
        "import sys, ede\n"
        "sys.modules['PyQt5'] = None\n"
        "try: ede.make_env('procgen/maze', backend='envpool'); print('made')\n"
        "except ede.EdeError as error: print(error)"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert child.stdout == "made\n" or "pip install PyQt5-Qt5" in child.stdout


def test_a_package_that_envpool_wants_is_named() -> None:
    program = (
        "import sys, ede\n"
        "sys.modules['dm_env'] = None\n"
        "try: ede.make_env('procgen/maze', backend='envpool')\n"
        "except ede.EdeError as error: print(error)"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert child.stdout == "envpool needs the package 'dm_env': run pip install dm_env.\n"
