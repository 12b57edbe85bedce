"""Procgen through ``envpool``: a maintained build that shows the true last frame and cannot restore.

envpool ends an episode in one step and begins the next in the following one, whose action it ignores. Here
that second step is made at once for the lanes that have ended, and never reaches the caller.

envpool hands out fresh arrays and never reads them, so they go to the caller as they are: a copy of the frames would
take a tenth of the cheapest game's step. What the caller writes into the last ``Step.obs`` shows in ``obs``, and in
nothing that comes later.
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.envs.contract import Lanes, Observations, Step, checked_actions, join_final
from ede.envs.procgen import Setup, split_ends
from ede.errors import EdeError


def start(setup: Setup) -> EnvpoolLanes:
    return EnvpoolLanes(setup)


class EnvpoolLanes(Lanes):
    def __init__(self, setup: Setup) -> None:
        envpool = import_envpool()
        self._setup = setup
        self.lanes = setup.lanes
        self.contexts = setup.contexts
        self.spec = setup.spec(
            f"envpool {envpool.__version__}", can_save=False, can_choose=False, shows_last_frame=True
        )
        self._pool: Any = envpool.make_gymnasium(
            f"{setup.game.name.capitalize()}{setup.mode.capitalize()}-v0",
            num_envs=setup.lanes,
            # To envpool no threads means one a lane.
            num_threads=max(1, setup.threads),
            seed=setup.seed,
            channel_first=False,
            **setup.levels,
            **asdict(setup.looks),
        )
        self._frame_KHWC: Observations
        self._context_K: npt.NDArray[np.int64]
        self._begin_episodes()
        self._is_fresh = True

    def reset(self) -> Observations:
        if not self._is_fresh:
            self._begin_episodes()
        self._is_fresh = False
        return self.obs

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        pool = self._open_pool()
        frame_KHWC, reward_K, terminated_K, truncated_K, info = pool.step(
            checked_actions(actions, self.lanes, self.spec).astype(np.int32)
        )
        self._is_fresh = False
        done_K = terminated_K | truncated_K
        ended_E = np.flatnonzero(done_K)
        if len(ended_E):  # the pool works on it while the rest is done here
            pool.send(np.zeros(len(ended_E), np.int32), ended_E.astype(np.int32))
        context_K = info["level_seed"].astype(np.int64)
        # envpool's own split believes jumper's memory mode to end at 1000; the game ends it at 2000.
        terminated_K, truncated_K = split_ends(done_K, info["elapsed_step"], self._setup.time_limit)
        final_EHWC = join_final(frame_KHWC, ended_E)
        self._frame_KHWC, self._context_K = frame_KHWC, context_K.copy()
        if len(ended_E):
            first_EHWC, _, _, _, first = pool.recv()
            frame_KHWC[first["env_id"]] = first_EHWC
            self._context_K[first["env_id"]] = first["level_seed"]
        return Step(
            obs=frame_KHWC,
            reward=reward_K,
            terminated=terminated_K,
            truncated=truncated_K,
            context=context_K,
            final_obs=final_EHWC,
            extra={"level_complete": info["prev_level_complete"].astype(np.bool_)},
        )

    @property
    def obs(self) -> Observations:
        self._open_pool()
        return self._frame_KHWC.copy()

    @property
    def context(self) -> npt.NDArray[np.int64]:
        self._open_pool()
        return self._context_K.copy()

    def close(self) -> None:
        # envpool has no way to close a pool of games; the last reference frees its threads and memory.
        self._pool = None

    def _begin_episodes(self) -> None:
        self._frame_KHWC, info = self._open_pool().reset()
        self._context_K = info["level_seed"].astype(np.int64)

    def _open_pool(self) -> Any:
        if self._pool is None:
            raise EdeError("These lanes are closed; make new ones.")
        return self._pool


def import_envpool() -> ModuleType:
    _load_qt_from_wheel()
    try:
        import envpool
        import envpool.procgen
    except ModuleNotFoundError as missing:
        raise EdeError(
            f"envpool needs the package '{missing.name}': run pip install {missing.name}."
        ) from None
    try:
        envpool.procgen.ProcgenEnvSpec  # noqa: B018 - raises where Qt was not found
    except ImportError:
        raise EdeError(
            "envpool's Procgen needs the Qt 5 libraries: run pip install PyQt5-Qt5, "
            "or install your system's (apt install libqt5gui5)."
        ) from None
    module: ModuleType = envpool
    return module


def _load_qt_from_wheel() -> None:
    """Load Qt from the ``PyQt5-Qt5`` wheel where it is installed, so that the system need not have it."""
    wheel = find_spec("PyQt5")
    for folder in wheel.submodule_search_locations or () if wheel else ():
        for library in ("libQt5Core.so.5", "libQt5Gui.so.5"):
            path = Path(folder) / "Qt5" / "lib" / library
            if path.exists():
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
