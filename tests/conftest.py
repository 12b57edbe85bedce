"""Settings of the whole test suite: examples are the same on every run, and a busy machine is no failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ede", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ede")
