"""Exactly N episodes, each lane its share, whatever the lengths."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ede.evaluate import quotas


@given(st.integers(1, 200), st.integers(1, 40))
def test_shares_are_even_and_add_up(episodes: int, lanes: int) -> None:
    share_K = quotas(episodes, lanes)
    assert share_K.sum() == episodes
    assert np.ptp(share_K) <= 1
