"""``gym/<id>``: any Gymnasium environment with discrete actions, through ``gymnasium.vector``.

A context is a reset seed: every episode begins with ``reset(seed=context)``. Gymnasium's own autoreset is off
(``AutoresetMode.DISABLED``), because it would reset without a seed; ended lanes are reset here, by mask.

Saving keeps each running episode's context and its actions so far; restoring plays them again. That is exact for
an environment that ``reset(seed)`` makes deterministic, and the last observation is compared to prove it.

Axis letters: K lanes, E lanes whose episode begins or has ended, T steps since an episode's begin.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ede.contexts import Contexts
from ede.envs import lane_memory, minigrid_view
from ede.envs.contract import Lanes, Observations, Step, WorldSpec, checked_actions, join_final
from ede.envs.draws import Schedule
from ede.envs.packing import pack, unpack
from ede.errors import EdeError
from ede.seeds import child_seed

View = Callable[[npt.NDArray[Any]], Observations]
"""From the backend's stacked observations to a fresh array of ours."""

EXTRA_PACKAGES = {"MiniGrid": "minigrid", "BabyAI": "minigrid"}
"""Id prefix → the package that registers it, which is also the name of our extra."""
_BYTES_A_LANE, _BYTES_A_PROCESS = 4000, 10_000_000
"""What the smallest environment takes, as measured; a larger one takes more than can be known beforehand."""
MINIGRID_VIEWS = ("partial", "full", "rgb")
_MINIGRID_CODES = (11, 6, 4)
"""Kinds of object, colours, and states (in the full view, the agent's four directions) that MiniGrid encodes."""


def _one_hot_planes(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """[K, H, W, 3] MiniGrid codes → [K, H, W, 21] planes of 0 and 255, as codes have no order to learn from."""
    planes = [
        np.eye(count, dtype=np.uint8)[codes[..., channel]] * np.uint8(255)
        for channel, count in enumerate(_MINIGRID_CODES)
    ]
    return np.concatenate(planes, axis=-1)


def _make_one(name: str, view: str | None, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """One environment whose observations are an array; runs in a worker where asked to."""
    prefix = name.split("-")[0]
    if prefix in EXTRA_PACKAGES:
        importlib.import_module(EXTRA_PACKAGES[prefix])
    env = gymnasium.make(name, disable_env_checker=True, **options)
    if view is not None:
        from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper, RGBImgPartialObsWrapper

        minigrid_view.quicken(env.unwrapped)
        if view == "full":
            env = FullyObsWrapper(env)
        elif view == "rgb":
            env = RGBImgPartialObsWrapper(env)
        return ImgObsWrapper(env)  # type: ignore[no-any-return]
    if isinstance(env.observation_space, spaces.Box):
        return env
    return gymnasium.wrappers.FlattenObservation(env)


def _checked_make(name: str, view: str | None, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The first environment, with every mistake told in a sentence."""
    package = EXTRA_PACKAGES.get(name.split("-")[0])
    try:
        return _make_one(name, view, options)
    except ImportError as error:
        line = f"run `pip install 'ede[{package}]'`" if package else f"{error}"
        raise EdeError(f"gym/{name} needs a package that is not installed: {line}.") from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise EdeError(f"gym/{name} needs a package that is not installed: {error}.") from None
    except gymnasium.error.Error as error:
        raise EdeError(f"Gymnasium cannot make '{name}': {error}") from None
    except TypeError as error:
        raise EdeError(
            f"gym/{name} does not take these options ({error}); see its own documentation."
        ) from None
    except Exception as error:  # whatever another's code makes of an option's value
        raise EdeError(f"gym/{name} cannot be made with these options: {error!r}.") from error


def _view(space: spaces.Space[Any], planes: bool) -> tuple[View, tuple[int, ...], str]:
    """How to turn stacked observations into ours; one lane's shape; its type."""
    if not isinstance(space, spaces.Box):
        raise EdeError(
            f"Observations of the kind {type(space).__name__} are not supported; wrap the environment."
        )
    shape = space.shape
    if planes:
        return _one_hot_planes, (*shape[:2], sum(_MINIGRID_CODES)), "uint8"
    if space.dtype == np.uint8 and len(shape) == 3:
        return np.array, shape, "uint8"
    if space.dtype == np.uint8 and len(shape) == 2:
        return lambda obs_K: np.array(obs_K)[..., None], (*shape, 1), "uint8"
    size = int(np.prod(shape))
    return lambda obs_K: obs_K.reshape(len(obs_K), size).astype(np.float32), (size,), "float32"


def _time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Gymnasium's own limit, or MiniGrid's; None where an environment has none or sets it at each reset."""
    limit = env.spec.max_episode_steps if env.spec else None
    return limit or getattr(env.unwrapped, "max_steps", None) or None


class GymLanes(Lanes):
    """K Gymnasium environments in one process, or one process each."""

    def __init__(
        self,
        name: str,
        lanes: int,
        contexts: Contexts,
        seed: int,
        asynchronous: bool,
        view: str | None,
        options: dict[str, Any],
    ) -> None:
        first = _checked_make(name, view, options)
        action_space, space, limit = first.action_space, first.observation_space, _time_limit(first)
        first.close()
        if not isinstance(action_space, spaces.Discrete):
            raise EdeError(
                f"gym/{name} has {type(action_space).__name__} actions; only discrete ones are supported."
            )
        self._view, shape, kind = _view(space, planes=view in ("partial", "full"))
        self._first_action = int(action_space.start)
        self.lanes, self.contexts = lanes, contexts
        self._settings = {"view": view, "options": {key: repr(value) for key, value in options.items()}}
        self.spec = WorldSpec(
            task=f"gym/{name}",
            backend=f"gymnasium {gymnasium.__version__}",
            obs_shape=shape,
            obs_dtype=kind,
            num_actions=int(action_space.n),
            can_save=True,
            can_choose=True,
            shows_last_frame=True,
            time_limit=limit,
        )
        makers = [partial(_make_one, name, view, options)] * lanes
        self._envs: VectorEnv[Any, Any, Any] = (
            AsyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
            if asynchronous
            else SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        )
        self._schedule = Schedule(contexts, lanes, child_seed(seed, "env"))
        self._all_K = np.arange(lanes)
        self._context_K = np.zeros(lanes, np.int64)
        self._actions_TK = np.zeros((64, lanes), np.int16)
        """The running episodes' actions so far: lane k's are the first ``length_K[k]`` of column k."""
        self._length_K = np.zeros(lanes, np.int64)
        self._obs: Observations | None = None

    def _not_begun(self) -> EdeError:
        return EdeError(f"Call reset before the first step of {self.spec.task}.")

    @property
    def obs(self) -> Observations:
        if self._obs is None:
            raise self._not_begun()
        return self._obs.copy()

    @property
    def context(self) -> npt.NDArray[np.int64]:
        return self._context_K.copy()

    def _reset_backend(self, lane_E: npt.NDArray[np.int64]) -> Observations:
        """Begin the episodes of ``context_K`` in these lanes; all lanes' observations."""
        mask_K = np.zeros(self.lanes, np.bool_)
        mask_K[lane_E] = True
        obs_K, _ = self._envs.reset(seed=self._context_K.tolist(), options={"reset_mask": mask_K})
        return self._view(obs_K)

    def _begin(self, lane_E: npt.NDArray[np.int64]) -> Observations:
        self._context_K[lane_E] = self._schedule.next(lane_E)
        self._length_K[lane_E] = 0
        return self._reset_backend(lane_E)

    def reset(self) -> Observations:
        self._obs = self._begin(self._all_K)
        return self.obs

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> Observations:
        self._schedule.choose(context_K)
        return self.reset()

    def _remember(self, actions: npt.NDArray[np.integer[Any]]) -> None:
        if self._length_K.max() == len(self._actions_TK):
            self._actions_TK = np.concatenate([self._actions_TK, np.zeros_like(self._actions_TK)])
        self._actions_TK[self._length_K, self._all_K] = actions
        self._length_K += 1

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        if self._obs is None:
            raise self._not_begun()
        action_K = checked_actions(actions, self.lanes, self.spec)
        self._remember(action_K)
        raw_K, reward_K, terminated_K, truncated_K, _ = self._envs.step(action_K + self._first_action)
        obs = self._view(raw_K)
        context_K = self._context_K.copy()
        truncated_K = truncated_K & ~terminated_K
        ended_E = np.flatnonzero(terminated_K | truncated_K)
        final_obs = join_final(obs, ended_E)
        if len(ended_E):
            obs = self._begin(ended_E)
        self._obs = obs
        return Step(self.obs, reward_K.astype(np.float32), terminated_K, truncated_K, context_K, final_obs)

    def save(self) -> bytes:
        played_TK = np.arange(len(self._actions_TK))[:, None] < self._length_K
        arrays = {
            **self._schedule.arrays(),
            "context_K": self._context_K,
            "length_K": self._length_K,
            "played": self._actions_TK.T[played_TK.T],
            "obs": self.obs,
        }
        return pack(self, arrays, **self._settings)

    def restore(self, state: bytes) -> None:
        """Play the saved episodes again; takes as long as the longest of them."""
        arrays = unpack(self, state, **self._settings)
        self._schedule.load(arrays)
        self._context_K, self._length_K = arrays["context_K"], arrays["length_K"]
        longest = int(self._length_K.max())
        self._actions_TK = np.zeros((max(64, longest), self.lanes), np.int16)
        played_TK = np.arange(len(self._actions_TK))[:, None] < self._length_K
        self._actions_TK.T[played_TK.T] = arrays["played"]
        self._obs = self._play_again(longest)
        if not np.array_equal(self._obs, arrays["obs"], equal_nan=self.spec.obs_dtype == "float32"):
            raise EdeError(
                f"{self.spec.task} cannot be restored: the same seed and actions led to another observation, "
                "so it draws randomness that its reset seed does not set."
            )

    def _play_again(self, longest: int) -> Observations:
        """All lanes step together, so a lane with fewer steps to play begins later; what it does before is void."""
        begin_K = longest - self._length_K
        obs = self._reset_backend(self._all_K)
        for time in range(longest):
            begins_E = np.flatnonzero(begin_K == time)
            if time and len(begins_E):
                self._reset_backend(begins_E)
            row_K = np.maximum(time - begin_K, 0)
            raw_K, _, terminated_K, truncated_K, _ = self._envs.step(
                self._actions_TK[row_K, self._all_K] + self._first_action
            )
            obs = self._view(raw_K)
            void_E = np.flatnonzero(terminated_K | truncated_K)
            if len(void_E):
                obs = self._reset_backend(void_E)
        unplayed_E = np.flatnonzero(self._length_K == 0)
        return self._reset_backend(unplayed_E) if longest and len(unplayed_E) else obs

    def close(self) -> None:
        self._envs.close()


def make(
    name: str,
    *,
    lanes: int,
    contexts: Contexts,
    seed: int,
    asynchronous: bool = False,
    observation: str | None = None,
    **options: Any,
) -> Lanes:
    """``asynchronous`` gives each lane a process. ``observation`` is MiniGrid's: ``partial`` (default, what the
    agent sees), ``full`` (the whole grid) or ``rgb``. All other options go to ``gymnasium.make``."""
    if name.split("-")[0] in EXTRA_PACKAGES:
        observation = observation or "partial"
        if observation not in MINIGRID_VIEWS:
            raise EdeError(
                f"There is no observation '{observation}'; MiniGrid has {', '.join(MINIGRID_VIEWS)}."
            )
    elif observation is not None:
        raise EdeError(f"gym/{name} shows one observation only; leave `observation` out.")
    lane_memory.check(f"gym/{name}", lanes, _BYTES_A_PROCESS if asynchronous else _BYTES_A_LANE)
    return GymLanes(name, lanes, contexts, seed, asynchronous, observation, options)
