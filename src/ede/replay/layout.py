"""How rows lie in memory: their columns, how many there are, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ede.errors import EdeError
from ede.memory import available_disk, available_on
from ede.replay.sum_tree import SumTree

Ints = npt.NDArray[np.int64]

RUNNING, TERMINATED, TRUNCATED, LAST_FRAME, GAP = range(5)
"""What follows a row: its episode's next row; the end; a cut with its last frame in the next row. The other two are
no transitions: that last frame itself, and a place where the lane was reset without an end."""

COLUMNS: dict[str, npt.DTypeLike] = {
    "action": np.int32,
    "reward": np.float32,
    "kind": np.uint8,
    "context": np.int32,
    "age": np.uint8,
}
"""Beside the frame; ``age`` counts the earlier frames of the episode that belong to the row's stack."""


@dataclass(frozen=True)
class Priority:
    """Proportional prioritisation (Schaul et al. 2016, as in Rainbow)."""

    alpha: float = 0.5
    """Exponent of the priorities (Hessel et al. 2018)."""
    beta: float = 0.4
    """Exponent of the importance weights where ``sample`` is not given one; a run raises it to 1 (the same)."""


def replay_bytes(
    *,
    capacity: int,
    lanes: int,
    obs_shape: tuple[int, ...],
    obs_dtype: str,
    n_step: int = 1,
    stack: int = 1,
    mask_probability: float | None = None,
    members: int = 1,
    priority: Priority | None = None,
) -> int:
    """What a ``Replay`` of this shape will hold, without allocating it."""
    rows = lanes * rows_per_lane(capacity, lanes, n_step, stack)
    beside = sum(np.dtype(dtype).itemsize for dtype in COLUMNS.values()) + 1  # 1: whether it can be sampled
    frame = prod(obs_shape) * np.dtype(obs_dtype).itemsize
    mask = 0 if mask_probability is None else members
    return rows * (frame + beside + mask) + (SumTree.bytes_for(rows) if priority else 0)


def rows_per_lane(capacity: int, lanes: int, n_step: int, stack: int) -> int:
    """Room for the capacity and for the rows at both ends of the ring that lack their future or their past."""
    return ceil(capacity / lanes) + n_step + stack - 1


def spans(start_K: Ints, stop_K: Ints) -> tuple[Ints, Ints]:
    """Lanes and row numbers of start_K[k] … stop_K[k] − 1, lane after lane."""
    length_K = np.maximum(stop_K - start_K, 0)
    lane_L = np.repeat(np.arange(len(start_K)), length_K)
    first_L = np.repeat(np.cumsum(length_K) - length_K, length_K)
    return lane_L, start_K[lane_L] + np.arange(len(lane_L)) - first_L


class Frames:
    """The frames of all rows, on a device, in memory or in a file; read to the device that learns.

    On the CPU NumPy copies them in one thread: PyTorch's threads bring little to a copy, and on a busy machine each
    call waited for the slowest of them.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        kept_on: torch.device,
        path: Path | None,
        read_to: torch.device,
    ) -> None:
        self._kept_on, self._read_to = kept_on, read_to
        self._tensor = _allocate(shape, dtype, kept_on, path)
        self._array = self._tensor.numpy() if self._tensor.device.type == "cpu" else None
        self.nbytes: int = self._tensor.nbytes

    def write(self, slot_L: Ints, frames_L: npt.NDArray[Any]) -> None:
        expected = np.dtype(str(self._tensor.dtype).removeprefix("torch."))
        assert frames_L.dtype == expected, (frames_L.dtype, expected)
        assert frames_L.shape == (len(slot_L), *self._tensor.shape[1:]), (frames_L.shape, self._tensor.shape)
        if self._array is not None:
            self._array[slot_L] = frames_L
        else:
            frames = torch.from_numpy(np.ascontiguousarray(frames_L)).to(self._kept_on)
            self._tensor.index_copy_(0, torch.from_numpy(slot_L).to(self._kept_on), frames)

    def read(self, slot_L: Ints) -> Tensor:
        """Copies, on the device that learns."""
        if self._array is not None:
            frames = torch.empty((len(slot_L), *self._tensor.shape[1:]), dtype=self._tensor.dtype)
            self._array.take(slot_L, axis=0, out=frames.numpy(), mode="clip")  # "raise" would copy twice
            return frames.to(self._read_to)
        return self._tensor.index_select(0, torch.from_numpy(slot_L).to(self._kept_on)).to(self._read_to)


def _allocate(shape: tuple[int, ...], dtype: str, device: torch.device, path: Path | None) -> Tensor:
    """Zeros, every page touched, so that memory that is not there is missed now and not hours later."""
    needed = prod(shape) * np.dtype(dtype).itemsize
    free = available_disk(path) if path else available_on(device)
    if needed > free:
        where, way = ("on the disk", "") if path else ("in memory", " or keep its frames in a file")
        raise EdeError(
            f"The replay's frames need {needed:,} bytes and {free:,} are free {where}; choose a smaller replay{way}."
        )
    if path:
        return torch.from_numpy(np.memmap(path, dtype, mode="w+", shape=shape)).zero_()
    return torch.empty(shape, dtype=getattr(torch, dtype), device=device).zero_()
