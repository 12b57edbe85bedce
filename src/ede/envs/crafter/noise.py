"""OpenSimplex noise over a fixed set of points, for any seed in a few milliseconds.

A seed only permutes the gradients at the lattice's vertices. Which vertices a point feels, in which order,
how strongly and from where does not depend on it. So the package's own ``noise3`` is run once a point with a
gradient function that notes down its arguments, and a seed's noise is those terms summed in the same order:
the same additions and multiplications of float64, hence the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

Point = tuple[float, float, float]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass
class _Trace:
    """Stands in for a gradient: ``noise3`` multiplies it by a vertex's weight and adds the result, nothing."""

    vertices: list[tuple[int, int, int]] = field(default_factory=list)
    offsets: list[Point] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def gradient(self, _perm: None, _index: None, x: int, y: int, z: int, *offset: float) -> _Trace:
        self.vertices.append((x & 0xFF, y & 0xFF, z & 0xFF))
        self.offsets.append(offset)  # type: ignore[arg-type]
        return self

    def __rmul__(self, weight: float) -> float:
        self.weights.append(weight)
        return 0.0

    def follow(self, points: Iterable[Point]) -> Integers:
        """Note down every point's terms; return how many each has."""
        internals: Any = import_module("opensimplex.internals")
        # Where numba is installed, ``noise3`` is compiled, and the Python function lies beneath.
        original = getattr(internals._noise3, "py_func", internals._noise3)
        noise3 = FunctionType(original.__code__, {**vars(internals), "_extrapolate3": self.gradient})
        ends = [0]
        for point in points:
            noise3(*point, None, None)
            ends.append(len(self.weights))
        return np.diff(ends)


class NoiseTable:
    """Noise at ``points``, as a function of the seed. Axis letters: P points, V vertices."""

    def __init__(self, points: Iterable[Point]) -> None:
        internals: Any = import_module("opensimplex.internals")
        self._simplex = import_module("opensimplex").OpenSimplex
        self._gradients = internals.GRADIENTS3.reshape(-1, 3).astype(np.float64)
        self._norm = internals.NORM_CONSTANT3
        trace = _Trace()
        count_P = trace.follow(points)
        self._vertices_3V, vertex_of_term = np.unique(np.array(trace.vertices).T, axis=1, return_inverse=True)
        vertex_of_term = vertex_of_term.reshape(-1)
        offset_3, weight = np.array(trace.offsets).T, np.array(trace.weights)
        # Points with many terms first, so that the t-th terms are those of the first so many points.
        order_P = np.argsort(-count_P, kind="stable")
        self._place_P = np.argsort(order_P, kind="stable")
        first_P = (np.cumsum(count_P) - count_P)[order_P]
        self._terms = []
        for t in range(count_P.max()):
            row = first_P[: (count_P > t).sum()] + t
            self._terms.append((vertex_of_term[row], np.ascontiguousarray(offset_3[:, row]), weight[row]))

    def __call__(self, seed: int) -> Floats:
        """[P] noise under OpenSimplex(seed)."""
        simplex = self._simplex(seed=seed)
        x_V, y_V, z_V = self._vertices_3V
        perm = simplex._perm
        hashed_V = (perm[(perm[x_V] + y_V) & 0xFF] + z_V) & 0xFF
        gradient_3V = self._gradients[simplex._perm_grad_index3[hashed_V] // 3].T.copy()
        value_P = np.zeros(len(self._place_P))
        for vertex, (dx, dy, dz), weight in self._terms:
            gx, gy, gz = (gradient_V[vertex] for gradient_V in gradient_3V)
            value_P[: len(vertex)] += weight * (gx * dx + gy * dy + gz * dz)
        noise_P: Floats = value_P[self._place_P] / self._norm
        return noise_P
