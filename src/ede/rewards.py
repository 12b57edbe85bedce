"""Reward scaling: divide rewards by the running standard deviation of the discounted return.

The authors' published code does this to training rewards before they enter replay, though the paper does not
say so; φ and ε are in these units. It belongs to training alone: evaluation returns are raw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError

Float64s = npt.NDArray[np.float64]


class RewardScaler:
    """One running standard deviation over the discounted returns of K lanes.

    For each lane, R ← γ R + r at every step, and R ← 0 after an episode's last step. The count, mean and
    variance of all R so far are merged step by step (Chan, Golub and LeVeque, 1979), in float64. A scaled
    reward is r / √(variance + 1e-8), clipped.
    """

    EPSILON = 1e-8

    def __init__(self, lanes: int, gamma: float, clip: float = 10.0) -> None:
        if lanes < 1 or not 0.0 <= gamma <= 1.0 or clip <= 0.0:
            raise EdeError(
                f"Reward scaling needs lanes >= 1, 0 <= gamma <= 1 and clip > 0; got {lanes}, {gamma}, {clip}."
            )
        self.gamma, self.clip = gamma, clip
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0
        """The sum of squared deviations from the mean, so that no starting count biases the variance."""
        self._return_K: Float64s = np.zeros(lanes)

    @property
    def deviation(self) -> float:
        """What rewards are divided by; 1 until returns have varied."""
        if self.squares == 0.0:
            return 1.0
        return float(np.sqrt(self.squares / self.count + self.EPSILON))

    def scale(self, reward_K: npt.NDArray[Any], done_K: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
        """Take in one step of all lanes, and return its rewards scaled by what is known including this step."""
        assert reward_K.shape == done_K.shape == self._return_K.shape, "one reward and one end a lane"
        self._return_K = self.gamma * self._return_K + reward_K
        self._merge(self._return_K)
        self._return_K[done_K] = 0.0
        return np.clip(reward_K / self.deviation, -self.clip, self.clip).astype(np.float32)

    def _merge(self, return_K: Float64s) -> None:
        new = len(return_K)
        mean = float(return_K.mean())
        shift = mean - self.mean
        total = self.count + new
        self.squares += float(((return_K - mean) ** 2).sum()) + shift**2 * self.count * new / total
        self.mean += shift * new / total
        self.count = total

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that later scaling depends on."""
        return {
            "return_K": self._return_K.copy(),
            "count": np.array(self.count, np.int64),
            "mean": np.array(self.mean),
            "squares": np.array(self.squares),
        }

    def load(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Continue, to the bit, from what ``state`` returned."""
        if state["return_K"].shape != self._return_K.shape:
            raise EdeError(
                f"This reward scale was saved with {len(state['return_K'])} lanes and cannot continue with "
                f"{len(self._return_K)}; use as many lanes as the run had."
            )
        self._return_K = state["return_K"].astype(np.float64)
        self.count = int(state["count"])
        self.mean = float(state["mean"])
        self.squares = float(state["squares"])
