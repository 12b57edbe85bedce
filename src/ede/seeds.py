"""One seed, split into named streams: nothing else in the project draws randomness of its own."""

from __future__ import annotations

import zlib
from operator import index as index_of

import numpy as np
import torch

from ede.errors import EdeError

STREAMS = ("env", "explore", "replay", "init", "learn", "eval")


def child_seed(seed: int, stream: str, index: int = 0) -> int:
    """A 31-bit seed for a named stream; different names or indices give independent streams."""
    try:
        whole = index_of(seed)
    except TypeError:
        whole = -1
    if whole < 0:
        raise EdeError(f"A seed is a whole number of 0 or above; got {seed!r}.")
    key = zlib.crc32(stream.encode())
    return int(np.random.SeedSequence([whole, key, index]).generate_state(1, np.uint32)[0] >> 1)


def numpy_generator(seed: int, stream: str, index: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(child_seed(seed, stream, index)))


def torch_generator(seed: int, stream: str, index: int = 0) -> torch.Generator:
    """A CPU generator: randomness stays on the CPU, so that a run does not depend on the device."""
    return torch.Generator().manual_seed(child_seed(seed, stream, index))
