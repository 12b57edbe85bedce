"""Counter-based random draws: a function of its key, so there is no generator to carry, save or share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.contexts import LIMIT, Contexts
from ede.errors import EdeError

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def splitmix64(key: Words) -> Words:
    """The output function of SplitMix64 (Steele, Lea and Flood, 2014), one independent word a key."""
    word = key + _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


def words(key_E: npt.NDArray[np.integer[Any]], count: int) -> Words:
    """[E, count] words for each key."""
    stream_E1 = splitmix64(key_E.astype(np.uint64))[:, None]
    return splitmix64(stream_E1 + np.arange(count, dtype=np.uint64) * _GOLDEN)


def episode_context(
    contexts: Contexts, seed: int, lane_E: npt.NDArray[np.int64], episode_E: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The context of a lane's n-th episode: what one lane draws does not depend on when the others end."""
    key_E = splitmix64(splitmix64(lane_E.astype(np.uint64)) + np.uint64(seed)) + episode_E.astype(np.uint64)
    drawn_E = splitmix64(key_E) % np.uint64(len(contexts))
    return drawn_E.astype(np.int64) + contexts.start


class Schedule:
    """Which context each lane plays next: drawn from a set, or chosen by the caller for good."""

    def __init__(self, contexts: Contexts, lanes: int, seed: int) -> None:
        self._contexts, self._seed = contexts, seed
        self._episode_K = np.zeros(lanes, np.int64)
        """How many episodes each lane has begun."""
        self._chosen_K: npt.NDArray[np.int64] | None = None

    def next(self, lane_E: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The contexts of the episodes that these lanes begin now."""
        episode_E = self._episode_K[lane_E]
        self._episode_K[lane_E] += 1
        if self._chosen_K is not None:
            return self._chosen_K[lane_E]
        return episode_context(self._contexts, self._seed, lane_E, episode_E)

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> None:
        chosen_K = np.array(context_K)
        if (
            chosen_K.shape != self._episode_K.shape
            or not np.issubdtype(chosen_K.dtype, np.integer)
            or chosen_K.min() < 0
            or chosen_K.max() >= LIMIT
        ):
            raise EdeError(
                f"choose needs {len(self._episode_K)} context ids, one whole number a lane, from 0 to {LIMIT - 1}."
            )
        self._chosen_K = chosen_K.astype(np.int64)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        chosen_K = np.zeros(0, np.int64) if self._chosen_K is None else self._chosen_K
        return {"seed": np.array([self._seed]), "episode_K": self._episode_K.copy(), "chosen_K": chosen_K}

    def load(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._seed = int(arrays["seed"][0])
        self._episode_K = arrays["episode_K"].astype(np.int64)
        self._chosen_K = arrays["chosen_K"].astype(np.int64) if len(arrays["chosen_K"]) else None
