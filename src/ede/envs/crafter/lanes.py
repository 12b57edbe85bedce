"""Crafter behind the lanes' contract: K games stepped in one process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ede.contexts import LIMIT, Contexts
from ede.envs.contract import Lanes, Observations, Step, WorldSpec, checked_actions
from ede.envs.crafter.game import Game
from ede.envs.crafter.package import ACTION_NAMES, VERSION
from ede.envs.crafter.paint import FRAME
from ede.envs.crafter.state import decode, encode
from ede.envs.draws import episode_context
from ede.envs.packing import pack, unpack
from ede.errors import EdeError

GREY = (84, 84, 1)
Frames = npt.NDArray[np.uint8]

_RULER = Image.fromarray(np.arange(FRAME[0], dtype=np.uint8)[None])
_NEAREST = np.asarray(_RULER.resize((GREY[0], 1), Image.Resampling.NEAREST))[0].astype(np.intp)
"""The pixel of 64 that each pixel of 84 shows: Pillow's nearest resize, which rounds ties in its own way."""


def grey84(frame_K: Frames) -> Frames:
    """[K, 64, 64, 3] to [K, 84, 84, 1]: the mean of the channels, rounded down, then the nearest resize."""
    red_K, green_K, blue_K = (frame_K[..., channel].astype(np.uint16) for channel in range(3))
    grey_K = ((red_K + green_K + blue_K) // 3).astype(np.uint8)
    large_K: Frames = grey_K[:, _NEAREST[:, None], _NEAREST, None]
    return large_K


class CrafterLanes(Lanes):
    """Lane k's n-th episode plays a context that depends on the seed, k and n alone."""

    def __init__(
        self, *, lanes: int, contexts: Contexts, seed: int, observation: str, time_limit: int
    ) -> None:
        self.lanes = lanes
        self.contexts = contexts
        self.spec = WorldSpec(
            task="crafter",
            backend=f"crafter {VERSION}",
            obs_shape=GREY if observation == "grey84" else FRAME,
            obs_dtype="uint8",
            num_actions=len(ACTION_NAMES),
            can_save=True,
            can_choose=True,
            shows_last_frame=True,
            time_limit=time_limit,
            action_names=ACTION_NAMES,
        )
        self._settings = {"observation": observation, "time_limit": time_limit}
        self._seed = seed
        self._games = [Game(length=time_limit) for _ in range(lanes)]
        self._frame_K = np.zeros((lanes, *FRAME), np.uint8)
        self._context_K = np.zeros(lanes, np.int64)
        self._episode_K = np.zeros(lanes, np.int64)
        self._chosen_K: npt.NDArray[np.int64] | None = None
        self._begun = False

    def reset(self) -> Observations:
        self._begin(np.arange(self.lanes))
        self._begun = True
        return self.obs

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> Observations:
        chosen_K = np.asarray(context_K)
        if chosen_K.shape != (self.lanes,) or not np.issubdtype(chosen_K.dtype, np.integer):
            raise EdeError(f"Choose one whole number a lane: {self.lanes} context ids.")
        if chosen_K.min() < 0 or chosen_K.max() >= LIMIT:
            raise EdeError(f"Crafter's contexts lie in 0..{LIMIT - 1}.")
        self._chosen_K = chosen_K.astype(np.int64)
        return self.reset()

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        self._check_begun()
        action_K = checked_actions(actions, self.lanes, self.spec)
        outcomes = [
            game.advance(action, frame)
            for game, action, frame in zip(self._games, action_K.tolist(), self._frame_K, strict=True)
        ]
        dead_K = np.array([outcome.dead for outcome in outcomes])
        over_K = np.array([outcome.over for outcome in outcomes])
        context_K = self._context_K.copy()
        extra = {"achievements": np.array([game.achievements for game in self._games], np.int32)}
        ended = np.flatnonzero(dead_K | over_K)
        final_obs = self._observe(self._frame_K[ended])
        self._begin(ended)
        return Step(
            obs=self.obs,
            reward=np.array([outcome.reward for outcome in outcomes], np.float32),
            terminated=dead_K,
            truncated=over_K & ~dead_K,
            context=context_K,
            final_obs=final_obs,
            extra=extra,
        )

    @property
    def obs(self) -> Observations:
        self._check_begun()
        return self._observe(self._frame_K)

    @property
    def context(self) -> npt.NDArray[np.int64]:
        self._check_begun()
        return self._context_K.copy()

    def frame(self, lane: int = 0, pixels: int = 576) -> Frames:
        """A picture of a lane for people, ``pixels`` wide and high; the game goes on as if nobody had looked.

        At night its noise is not the observation's.
        """
        self._check_begun()
        return self._games[lane].picture(pixels)

    def save(self) -> bytes:
        self._check_begun()
        records, arrays = zip(*(encode(game) for game in self._games), strict=True)
        lanes = {"seed": self._seed, "chosen": self._chosen_K is not None, "games": records}
        return pack(
            self,
            {
                "record": np.frombuffer(json.dumps(lanes).encode(), np.uint8),
                "frame": self._frame_K,
                "context": self._context_K,
                "episode": self._episode_K,
                **{name: np.stack([of_lane[name] for of_lane in arrays]) for name in arrays[0]},
            },
            **self._settings,
        )

    def restore(self, state: bytes) -> None:
        arrays = unpack(self, state, **self._settings)
        lanes = json.loads(arrays.pop("record").tobytes())
        self._seed = lanes["seed"]
        self._frame_K, self._context_K, self._episode_K = (
            arrays.pop(name) for name in ("frame", "context", "episode")
        )
        self._chosen_K = self._context_K.copy() if lanes["chosen"] else None
        for lane, (game, record) in enumerate(zip(self._games, lanes["games"], strict=True)):
            decode(game, record, {name: array[lane] for name, array in arrays.items()})
        self._begun = True

    def _begin(self, lane_E: npt.NDArray[np.int64]) -> None:
        """Start the next episode of these lanes and draw its first frame."""
        if self._chosen_K is None:
            context_E = episode_context(self.contexts, self._seed, lane_E, self._episode_K[lane_E])
        else:
            context_E = self._chosen_K[lane_E]
        self._context_K[lane_E] = context_E
        self._episode_K[lane_E] += 1
        for lane, context in zip(lane_E.tolist(), context_E.tolist(), strict=True):
            self._games[lane].begin(context, self._frame_K[lane])

    def _observe(self, frame_K: Frames) -> Frames:
        return grey84(frame_K) if self.spec.obs_shape == GREY else frame_K.copy()

    def _check_begun(self) -> None:
        if not self._begun:
            raise EdeError("Call reset before the first step of crafter.")
