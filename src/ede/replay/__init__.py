"""Replay: transitions in, [M, B] batches that carry their own discount out; docs/decisions/replay.md says why so."""

from ede.replay.layout import Priority, replay_bytes
from ede.replay.ring import Batch, Replay

__all__ = ["Batch", "Priority", "Replay", "replay_bytes"]
