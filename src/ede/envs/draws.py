"""Counter-based random draws: a function of its key, so there is no generator to carry, save or share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ede.contexts import Contexts

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
