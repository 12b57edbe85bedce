"""Reward scaling: by hand, against a plain twin, across ends, and continued from its saved state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ede.errors import EdeError
from ede.rewards import RewardScaler


def test_two_lanes_by_hand() -> None:
    """γ = 0.5. Returns after each step: (1, 0), (2.5, 1); then lane 0 ends and its next return is its reward."""
    scaler = RewardScaler(2, gamma=0.5)
    first = scaler.scale(np.array([1.0, 0.0]), np.array([False, False]))
    # The returns 1 and 0 have mean 1/2 and variance 1/4.
    np.testing.assert_allclose(first, [2.0, 0.0], rtol=1e-6)
    second = scaler.scale(np.array([2.0, 1.0]), np.array([True, False]))
    # 1, 0, 2.5, 1: mean 9/8, squares 1 + 6.25 + 1, so variance 33/16 − 81/64 = 51/64.
    np.testing.assert_allclose(second, np.array([2.0, 1.0]) / np.sqrt(51 / 64), rtol=1e-6)
    third = scaler.scale(np.array([3.0, 0.0]), np.array([False, False]))
    # The new returns are 3, as lane 0 began anew, and 0.5: mean 4/3, squares 17.5, variance 35/12 − 16/9 = 41/36.
    np.testing.assert_allclose(third, np.array([3.0, 0.0]) / np.sqrt(41 / 36), rtol=1e-6)
    assert scaler.count == 6
    assert scaler.mean == pytest.approx(4 / 3)
    assert third.dtype == np.float32


def plain_twin(reward_TK: np.ndarray, done_TK: np.ndarray, gamma: float, clip: float) -> np.ndarray:
    """All returns so far in a list, their standard deviation anew at every step."""
    seen: list[float] = []
    running = [0.0] * reward_TK.shape[1]
    scaled = []
    for reward_K, done_K in zip(reward_TK, done_TK, strict=True):
        running = [gamma * value + reward for value, reward in zip(running, reward_K, strict=True)]
        seen += running
        running = [0.0 if done else value for value, done in zip(running, done_K, strict=True)]
        deviation = np.sqrt(np.var(seen) + 1e-8) if np.ptp(seen) > 0 else 1.0
        scaled.append(np.clip(reward_K / deviation, -clip, clip))
    return np.array(scaled)


@given(
    seed=st.integers(0, 1000),
    lanes=st.integers(1, 5),
    gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]),
    offset=st.sampled_from([0.0, 100.0]),
)
def test_the_running_scale_is_the_plain_twins(seed: int, lanes: int, gamma: float, offset: float) -> None:
    generator = np.random.default_rng(seed)
    reward_TK = generator.normal(offset, 3.0, (40, lanes))
    done_TK = generator.random((40, lanes)) < 0.2
    scaler = RewardScaler(lanes, gamma, clip=2.0)
    scaled = [scaler.scale(*row) for row in zip(reward_TK, done_TK, strict=True)]
    np.testing.assert_allclose(scaled, plain_twin(reward_TK, done_TK, gamma, 2.0), rtol=1e-5)


def test_rewards_are_clipped_and_untouched_until_returns_vary() -> None:
    scaler = RewardScaler(1, gamma=0.99, clip=10.0)
    for _ in range(500):
        assert scaler.scale(np.zeros(1), np.zeros(1, bool))[0] == 0.0
    assert scaler.deviation == 1.0
    # The deviation of one 1 among 501 numbers is about 1/√501, so the scaled reward would be about 22.
    assert scaler.scale(np.ones(1), np.zeros(1, bool))[0] == 10.0
    assert scaler.scale(-np.ones(1), np.zeros(1, bool))[0] == -10.0


def test_a_loaded_state_continues_to_the_bit() -> None:
    generator = np.random.default_rng(0)
    reward_TK, done_TK = generator.random((60, 4)), generator.random((60, 4)) < 0.1
    scaler, twin = RewardScaler(4, 0.99), RewardScaler(4, 0.99)
    for reward_K, done_K in zip(reward_TK[:30], done_TK[:30], strict=True):
        scaler.scale(reward_K, done_K)
    twin.load(scaler.state())
    for reward_K, done_K in zip(reward_TK[30:], done_TK[30:], strict=True):
        np.testing.assert_array_equal(scaler.scale(reward_K, done_K), twin.scale(reward_K, done_K))


def test_a_saved_state_is_a_copy() -> None:
    scaler = RewardScaler(2, 0.9)
    state = scaler.state()
    scaler.scale(np.ones(2), np.zeros(2, bool))
    assert state["return_K"].tolist() == [0.0, 0.0]
    assert state["count"] == 0


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(EdeError, match="gamma"):
        RewardScaler(2, gamma=1.5)
    with pytest.raises(EdeError, match="3 lanes"):
        RewardScaler(2, 0.9).load(RewardScaler(3, 0.9).state())
