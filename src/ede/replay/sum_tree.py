"""A sum tree: draws in proportion to priority, and changes of priority, both in logarithmic time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class SumTree:
    """Node i is the sum of nodes 2i and 2i + 1; node 1 is the root, the leaves are a power of two.

    Every node is recomputed from its children, never adjusted, so sums do not drift. All methods take whole arrays.
    """

    def __init__(self, size: int) -> None:
        self._half = _leaves(size)
        self._node = np.full(2 * self._half, 0.0)
        self.leaves: Floats = self._node[self._half : self._half + size]
        """The priorities, for reading."""

    @staticmethod
    def bytes_for(size: int) -> int:
        return 2 * _leaves(size) * np.dtype(np.float64).itemsize

    @property
    def nbytes(self) -> int:
        return self._node.nbytes

    @property
    def total(self) -> float:
        return float(self._node[1])

    def set(self, leaf_L: Ints, priority_L: Floats) -> None:
        """Give leaves their priorities; where a leaf is named twice, the last one holds."""
        node_L = leaf_L + self._half
        self._node[node_L] = priority_L
        while len(node_L) and node_L[0] > 1:
            node_L = np.unique(node_L >> 1)
            self._node[node_L] = self._node[2 * node_L] + self._node[2 * node_L + 1]

    def draw(self, size: int, generator: np.random.Generator) -> Ints:
        """Independent draws in proportion to priority; a leaf of priority 0 is never drawn."""
        return self.find(generator.random(size) * self.total)

    def find(self, mass_L: Floats) -> Ints:
        """The leaves in which the running sum of priorities first exceeds these values of [0, total)."""
        node_L = np.ones(len(mass_L), np.int64)
        mass_L = mass_L.copy()
        for _ in range(self._half.bit_length() - 1):
            left_L = 2 * node_L
            # Rounding may leave a little mass at the end of a subtree: an empty one is not entered for it.
            right_L = (mass_L >= self._node[left_L]) & (self._node[left_L + 1] > 0)
            mass_L -= np.where(right_L, self._node[left_L], 0.0)
            node_L = left_L + right_L
        return node_L - self._half


def _leaves(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()
