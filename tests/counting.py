"""The counting environment: worlds whose observations say which transition of which episode they are.

An observation holds three numbers, which ``read`` reads back: the context, the time in the episode, and a serial
number of the lane's real steps that no reset touches. The reward of a step is 10 · (its time) + its action. So
whoever stores or joins transitions can be checked by looking at what was stored.

``make("direct", …)`` is a plain ``Lanes``, for tests of replay and of the training loop. The other styles put
counting backends, one for each kind of autoreset, under the project's own adapters:

* ``disabled``: Gymnasium environments under ``GymLanes``, which resets ended lanes itself;
* ``next-step``: a pool like envpool's, which spends a step on each reset, under ``EnvpoolLanes``;
* ``same-step``: games like gym3's, which reset within the last step and hide its frame, under ``MirrorLanes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
import numpy.typing as npt

from ede.contexts import Contexts
from ede.envs import gym, procgen_envpool, procgen_mirror
from ede.envs.contract import Lanes, Observations, Step, WorldSpec, join_final
from ede.envs.draws import Schedule
from ede.envs.packing import pack, unpack
from ede.envs.procgen import Game, Looks, Setup
from ede.errors import EdeError

STYLES = ("direct", "disabled", "next-step", "same-step")
ACTIONS = 10
TIME_LIMIT = 6
IMAGE = (8, 8, 3)

Numbers = npt.NDArray[np.int64]


def ends(context: Numbers, time: Numbers) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether an episode is terminated or truncated after ``time`` steps: contexts last 1 to 8, cut at 6."""
    last = 1 + context % 8
    return (time >= last) & (last < TIME_LIMIT), (time >= TIME_LIMIT) & (last >= TIME_LIMIT)


def reward(time: Numbers, action: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
    """Of the step that leads to ``time``."""
    return (10 * time + action).astype(np.float32)


@dataclass(frozen=True)
class Reading:
    context: Numbers
    time: Numbers
    serial: Numbers


def show(reading: Reading, image: bool) -> Observations:
    """[K, 3] float32, or [K, 8, 8, 3] uint8 with the bytes of number c in the first row of channel c."""
    number_K3 = np.stack([reading.context, reading.time, reading.serial], 1)
    if not image:
        return number_K3.astype(np.float32)
    obs = np.zeros((len(number_K3), *IMAGE), np.uint8)
    obs[:, 0] = np.ascontiguousarray(number_K3, "<i8").view(np.uint8).reshape(-1, 3, 8).transpose(0, 2, 1)
    return obs


def read(obs: npt.ArrayLike) -> Reading:
    """What ``show`` showed, for any leading axes."""
    array = np.asarray(obs)
    if array.dtype == np.uint8:
        byte = np.ascontiguousarray(np.moveaxis(array[..., 0, :, :], -1, -2))
        number = byte.view("<i8")[..., 0]
    else:
        number = array.astype(np.int64)
    return Reading(*np.moveaxis(number, -1, 0))


class Counters:
    """The counting worlds of K lanes, without any reset of their own."""

    def __init__(self, lanes: int, image: bool) -> None:
        self.image = image
        self.context_K = np.zeros(lanes, np.int64)
        self.time_K = np.zeros(lanes, np.int64)
        self.serial_K = np.zeros(lanes, np.int64)

    def begin(self, lane_E: Numbers, context_E: Numbers) -> None:
        self.context_K[lane_E] = context_E
        self.time_K[lane_E] = 0

    def advance(self, lane_E: Numbers, action_E: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        self.time_K[lane_E] += 1
        self.serial_K[lane_E] += 1
        return reward(self.time_K[lane_E], action_E)

    def ends(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        return ends(self.context_K, self.time_K)

    def obs(self) -> Observations:
        return show(Reading(self.context_K, self.time_K, self.serial_K), self.image)


class CountingLanes(Lanes):
    """The contract, written down as plainly as can be."""

    def __init__(self, lanes: int, contexts: Contexts, seed: int, image: bool) -> None:
        self.lanes, self.contexts = lanes, contexts
        self.spec = _spec("direct", image)
        self._schedule = Schedule(contexts, lanes, seed)
        self._world = Counters(lanes, image)
        self._all_K = np.arange(lanes)

    def reset(self) -> Observations:
        self._world.begin(self._all_K, self._schedule.next(self._all_K))
        return self.obs

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> Observations:
        self._schedule.choose(context_K)
        return self.reset()

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        world, context_K = self._world, self.context
        reward_K = world.advance(self._all_K, actions)
        terminated_K, truncated_K = world.ends()
        ended_E = np.flatnonzero(terminated_K | truncated_K)
        final_obs = join_final(world.obs(), ended_E)
        world.begin(ended_E, self._schedule.next(ended_E))
        return Step(self.obs, reward_K, terminated_K, truncated_K, context_K, final_obs)

    @property
    def obs(self) -> Observations:
        return self._world.obs()

    @property
    def context(self) -> Numbers:
        return self._world.context_K.copy()

    def save(self) -> bytes:
        world = self._world
        numbers = {"context_K": world.context_K, "time_K": world.time_K, "serial_K": world.serial_K}
        return pack(self, {**numbers, **self._schedule.arrays()}, image=world.image)

    def restore(self, state: bytes) -> None:
        arrays = unpack(self, state, image=self._world.image)
        self._schedule.load(arrays)
        for name in ("context_K", "time_K", "serial_K"):
            setattr(self._world, name, arrays[name])


class CountingEnv(gymnasium.Env[npt.NDArray[Any], int]):
    """One lane for ``gymnasium.vector``: the context is the reset seed, the serial number survives resets."""

    def __init__(self, image: bool = True) -> None:
        self._world = Counters(1, image)
        self._lane = np.zeros(1, np.int64)
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self.observation_space = (
            gymnasium.spaces.Box(0, 255, IMAGE, np.uint8)
            if image
            else gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        assert seed is not None, "an episode without a context"
        self._world.begin(self._lane, np.array([seed]))
        return self._world.obs()[0], {}

    def step(self, action: int) -> tuple[npt.NDArray[Any], float, bool, bool, dict[str, Any]]:
        gain = self._world.advance(self._lane, np.array([action]))
        terminated, truncated = self._world.ends()
        return self._world.obs()[0], float(gain[0]), bool(terminated[0]), bool(truncated[0]), {}


gymnasium.register("Counting-v0", entry_point=CountingEnv)


class CountingPool:
    """envpool's manners: an ended lane is reset by the next step, whose action it ignores."""

    def __init__(self, lanes: int, contexts: Contexts, seed: int, image: bool) -> None:
        self._schedule = Schedule(contexts, lanes, seed)
        self._world = Counters(lanes, image)
        self._has_ended_K = np.zeros(lanes, np.bool_)
        self._complete_K = np.zeros(lanes, np.int32)

    def reset(self) -> tuple[Observations, dict[str, npt.NDArray[Any]]]:
        everyone = np.arange(len(self._has_ended_K))
        self._has_ended_K[:] = False
        self._world.begin(everyone, self._schedule.next(everyone))
        return self._world.obs(), self._info(everyone)

    def step(self, actions: npt.NDArray[np.integer[Any]], env_id: Numbers | None = None) -> tuple[Any, ...]:
        lane_E = np.arange(len(self._has_ended_K)) if env_id is None else env_id
        begins_E = self._has_ended_K[lane_E]
        self._world.begin(lane_E[begins_E], self._schedule.next(lane_E[begins_E]))
        reward_E = np.zeros(len(lane_E), np.float32)
        reward_E[~begins_E] = self._world.advance(lane_E[~begins_E], actions[~begins_E])
        terminated_E, truncated_E = (end_K[lane_E] for end_K in self._world.ends())
        self._has_ended_K[lane_E] = terminated_E | truncated_E
        return self._world.obs()[lane_E], reward_E, terminated_E, truncated_E, self._info(lane_E)

    def send(self, actions: npt.NDArray[np.integer[Any]], env_id: Numbers) -> None:
        self._sent = actions, env_id

    def recv(self) -> tuple[Any, ...]:
        return self.step(*self._sent)

    def _info(self, lane_E: Numbers) -> dict[str, npt.NDArray[Any]]:
        return {
            "env_id": lane_E.astype(np.int32),
            "level_seed": self._world.context_K[lane_E].astype(np.int32),
            "elapsed_step": self._world.time_K[lane_E].astype(np.int32),
            "prev_level_complete": self._complete_K[lane_E],
        }


class CountingGames:
    """gym3's manners: an ended lane is reset within its last step, and only ``first`` tells."""

    closed = False

    def __init__(self, lanes: int, contexts: Contexts, seed: int, image: bool) -> None:
        self._schedule = Schedule(contexts, lanes, seed)
        self._world = Counters(lanes, image)
        self._all_K = np.arange(lanes)
        self._world.begin(self._all_K, self._schedule.next(self._all_K))
        self._ob = {"rgb": self._world.obs()}
        self._reward_K = np.zeros(lanes, np.float32)
        self._first_K = np.ones(lanes, np.bool_)
        self._info = {
            "level_seed": self._world.context_K.astype(np.int32),
            "prev_level_seed": np.zeros(lanes, np.int32),
            "prev_level_complete": np.zeros(lanes, np.int32),
        }

    def act(self, actions: npt.NDArray[np.integer[Any]]) -> None:
        world = self._world
        self._info["prev_level_seed"][:] = world.context_K
        if (actions == procgen_mirror.END_EPISODE).all():
            self._reward_K[:], self._first_K[:] = 0.0, True
        else:
            self._reward_K[:] = world.advance(self._all_K, actions)
            self._first_K[:] = np.logical_or(*world.ends())
        ended_E = np.flatnonzero(self._first_K)
        world.begin(ended_E, self._schedule.next(ended_E))
        self._info["level_seed"][:] = world.context_K
        self._ob["rgb"][:] = world.obs()

    def observe(self) -> tuple[npt.NDArray[np.float32], dict[str, Observations], npt.NDArray[np.bool_]]:
        return self._reward_K, self._ob, self._first_K

    def close(self) -> None:
        self.closed = True


def make(
    style: str = "direct",
    *,
    lanes: int = 3,
    contexts: Contexts | None = None,
    seed: int = 0,
    image: bool = True,
) -> Lanes:
    """Counting lanes in one of the ``STYLES``; contexts stay small enough for float32 to hold them."""
    contexts = contexts or Contexts.range(0, 1000)
    if style == "direct":
        return CountingLanes(lanes, contexts, seed, image)
    made: Lanes
    if style == "disabled":
        made = gym.make("Counting-v0", lanes=lanes, contexts=contexts, seed=seed, image=image)
        made.spec = replace(_spec(style, image), shows_last_frame=made.spec.shows_last_frame)
        return made
    setup = Setup(Game("counting", TIME_LIMIT, 1), "easy", lanes, contexts, seed, 0, Looks())
    if style == "next-step":
        pool = CountingPool(lanes, contexts, seed, image)
        module = SimpleNamespace(__version__="counting", make_gymnasium=lambda *_, **__: pool)
        with patch.object(procgen_envpool, "import_envpool", lambda: module):
            made = procgen_envpool.start(setup)
    elif style == "same-step":
        games = CountingGames(lanes, contexts, seed, image)
        module = SimpleNamespace(__version__="counting", ProcgenGym3Env=lambda *_, **__: games)
        with patch.object(procgen_mirror, "import_procgen", lambda: module):
            made = procgen_mirror.start(setup)
    else:
        raise EdeError(f"There is no style '{style}'; the styles are {', '.join(STYLES)}.")
    made.spec = replace(_spec(style, image), shows_last_frame=made.spec.shows_last_frame)
    return made


def _spec(style: str, image: bool) -> WorldSpec:
    return WorldSpec(
        task="counting",
        backend=style,
        obs_shape=IMAGE if image else (3,),
        obs_dtype="uint8" if image else "float32",
        num_actions=ACTIONS,
        can_save=style == "direct",
        can_choose=style in ("direct", "disabled"),
        shows_last_frame=True,
        time_limit=TIME_LIMIT,
    )
