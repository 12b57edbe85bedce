"""Procgen through ``procgen-mirror``: the original C++ with its original frames.

The games restart a lane within the step that ends it, so the last frame of an episode is never seen. Their
state can be read and written, which is what ``save``, ``restore``, ``choose`` and ``choose_next`` are made of.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.contexts import LIMIT
from ede.envs.contract import Lanes, Observations, Step, checked_actions
from ede.envs.packing import Arrays, pack, unpack
from ede.envs.procgen import Setup, split_ends
from ede.errors import EdeError

END_EPISODE = -1
"""The action with which the games end an episode and begin the next."""


def start(setup: Setup) -> MirrorLanes:
    return MirrorLanes(setup)


class MirrorLanes(Lanes):
    def __init__(self, setup: Setup) -> None:
        procgen = import_procgen()
        self._setup = setup
        self.lanes = setup.lanes
        self.contexts = setup.contexts
        self.spec = setup.spec(
            f"procgen-mirror {procgen.__version__.strip()}",
            can_save=True,
            can_choose=True,
            shows_last_frame=False,
        )
        self._games: Any = procgen.ProcgenGym3Env(
            num=setup.lanes,
            env_name=setup.game.name,
            distribution_mode=setup.mode,
            rand_seed=setup.seed,
            num_threads=setup.threads,
            **setup.levels,
            **asdict(setup.looks),
        )
        # gym3 copies every array at every look; we take its own buffers and copy what we hand out.
        self._games._reuse_arrays = True
        self._frame_KHWC: Observations = self._games._ob["rgb"]
        self._acted_on_KHWC = np.empty_like(self._frame_KHWC)
        self._length_K = np.zeros(setup.lanes, np.int64)
        self._is_fresh = True
        self._games.observe()

    def reset(self) -> Observations:
        if not self._is_fresh:
            self._end_episodes()
        self._is_fresh = False
        return self.obs

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        self._check_open()
        action_K = checked_actions(actions, self.lanes, self.spec).astype(np.int32)
        np.copyto(self._acted_on_KHWC, self._frame_KHWC)
        self._games.act(action_K)
        reward_K, _, first_K = self._games.observe()
        self._is_fresh = False
        self._length_K += 1
        terminated_K, truncated_K = split_ends(first_K, self._length_K, self._setup.time_limit)
        ended_E = np.flatnonzero(first_K)
        self._length_K[ended_E] = 0
        return Step(
            obs=self._frame_KHWC.copy(),
            reward=reward_K.copy(),
            terminated=terminated_K,
            truncated=truncated_K,
            # Where the lane has just restarted, level_seed is already the next episode's.
            context=self._info("prev_level_seed").astype(np.int64),
            final_obs=self._acted_on_KHWC[ended_E],
            extra={"level_complete": self._info("prev_level_complete").astype(np.bool_)},
        )

    @property
    def obs(self) -> Observations:
        self._check_open()
        return self._frame_KHWC.copy()

    @property
    def context(self) -> npt.NDArray[np.int64]:
        self._check_open()
        return self._info("level_seed").astype(np.int64)

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> Observations:
        context_K = np.asarray(context_K)
        if context_K.shape != (self.lanes,):
            raise EdeError(f"Choose one level a lane: {self.lanes} of them; got shape {context_K.shape}.")
        self.choose_next(np.arange(self.lanes), context_K)
        self._end_episodes()
        self._is_fresh = False
        return self.obs

    def choose_next(
        self, lane_E: npt.NDArray[np.integer[Any]], context_E: npt.NDArray[np.integer[Any]]
    ) -> None:
        """Let the running episodes go on, and send these lanes to these levels from their next episode on.

        This is what prioritised level replay needs: choose a lane's next level while its episode runs.
        """
        self._check_open()
        lane_E, context_E = np.asarray(lane_E), np.asarray(context_E)
        if lane_E.shape != context_E.shape:
            raise EdeError(f"Choose one level for each of these {lane_E.size} lanes; got {context_E.size}.")
        # The games end the whole process where they are given a lane that is not there.
        for what, number_E, end in (("Lanes", lane_E, self.lanes), ("Levels", context_E, LIMIT)):
            is_whole = np.issubdtype(number_E.dtype, np.integer)
            if not is_whole or (number_E < 0).any() or (number_E >= end).any():
                raise EdeError(f"{what} are whole numbers in 0..{end - 1}.")
        state_K = self._games.get_state()
        for lane, context in zip(lane_E.tolist(), context_E.tolist(), strict=True):
            self._write(lane, _at_level(state_K[lane], self._setup, context))

    def save(self) -> bytes:
        self._check_open()
        state_K = self._games.get_state()
        state = b"".join(state_K)
        arrays: Arrays = {
            "state": np.frombuffer(state, np.uint8),
            "size_K": np.array([len(lane) for lane in state_K], np.int64),
            "checksum": np.array([zlib.crc32(state)], np.int64),
            "length_K": self._length_K,
            "is_fresh": np.array([self._is_fresh]),
        }
        return pack(self, arrays, **self._settings())

    def restore(self, state: bytes) -> None:
        self._check_open()
        saved = unpack(self, state, **self._settings())
        # A damaged state must stop here: the games end the whole process when they cannot read one.
        if zlib.crc32(saved["state"].tobytes()) != saved["checksum"][0]:
            raise EdeError("This Procgen state is damaged; take an older one.")
        end_K = np.cumsum(saved["size_K"])
        for lane, piece in enumerate(np.split(saved["state"], end_K[:-1])):
            self._write(lane, piece.tobytes())
        self._length_K[:] = saved["length_K"]
        self._is_fresh = bool(saved["is_fresh"][0])

    def close(self) -> None:
        self._games.close()

    def _settings(self) -> dict[str, object]:
        """What must be equal for a state to fit. The seed need not be: it is spent at the start."""
        return {"backend": self.spec.backend, "mode": self._setup.mode, **asdict(self._setup.looks)}

    def _info(self, name: str) -> npt.NDArray[Any]:
        buffer_K: npt.NDArray[Any] = self._games._info[name]
        return buffer_K

    def _write(self, lane: int, state: bytes) -> None:
        self._games.call_c_func("set_state", lane, state, len(state))

    def _end_episodes(self) -> None:
        self._check_open()
        self._games.act(np.full(self.lanes, END_EPISODE, np.int32))
        self._games.observe()
        self._length_K[:] = 0

    def _check_open(self) -> None:
        if self._games.closed:
            raise EdeError("These lanes are closed; make new ones.")


def _at_level(state: bytes, setup: Setup, context: int) -> bytes:
    """The state with the lane's level range narrowed to one level.

    A state begins with the version, the game's name (its length first), nine options and three settings of
    an older game, and the step of the grid; then come the range's two ends (``Game::serialize``).
    """
    name = setup.game.name.encode()
    head = struct.pack(f"<2i{len(name)}s", 0, len(name), name)
    offset = len(head) + 13 * 4
    low, high = struct.unpack_from("<2i", state, offset)
    if not state.startswith(head) or not 0 <= low < high:
        raise EdeError("This version of procgen-mirror writes its state in another order; install 0.10.7.")
    return state[:offset] + struct.pack("<2i", context, context + 1) + state[offset + 8 :]


def import_procgen() -> ModuleType:
    """Import the games; the abandoned ``gym``, to which they only announce themselves, is kept out.

    Importing it would print its notice to our users, and it does not work with NumPy 2.
    """
    with _stand_in_for_gym():
        import procgen
    module: ModuleType = procgen
    return module


@contextmanager
def _stand_in_for_gym() -> Iterator[None]:
    if "gym" in sys.modules:
        yield
        return
    registration: Any = ModuleType("gym.envs.registration")
    registration.register = _register_nothing
    stand_ins = {
        "gym": ModuleType("gym"),
        "gym.envs": ModuleType("gym.envs"),
        registration.__name__: registration,
    }
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]


def _register_nothing(**_: object) -> None:
    """Stands for ``gym.envs.registration.register`` while the games are imported."""
