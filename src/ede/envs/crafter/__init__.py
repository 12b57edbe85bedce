"""Crafter: survival in a 64×64 world, with 22 achievements (Hafner, 2022), by the ``crafter`` package.

``make`` is the door. ``plain_env`` in ``package`` is the package's own environment, the specification that
the faster ``Game`` is held against bit by bit.
"""

from __future__ import annotations

from typing import Any

from ede.contexts import Contexts
from ede.envs import lane_memory
from ede.envs.contract import Lanes
from ede.envs.crafter.score import ACHIEVEMENTS, score, success_rates
from ede.errors import EdeError

__all__ = ["ACHIEVEMENTS", "OBSERVATIONS", "make", "score", "success_rates"]

OBSERVATIONS = ("rgb", "grey84")
"""The package's 64×64 RGB, or the paper's 84×84 grey."""

TIME_LIMIT = 10_000
"""Steps after which the package cuts an episode."""

_BYTES_A_LANE = 200_000
"""Twice what ``tracemalloc`` counts for a lane in the middle of an episode."""


def make(
    name: str = "",
    *,
    lanes: int = 1,
    contexts: Contexts | None = None,
    seed: int = 0,
    observation: str = "rgb",
    time_limit: int = TIME_LIMIT,
    **unknown: Any,
) -> Lanes:
    """Make lanes of Crafter. A context seeds an episode's world and everything random in it.

    ``observation`` is ``rgb`` (64×64×3) or ``grey84`` (84×84×1, the paper's); ``time_limit`` cuts an episode.
    """
    if name:
        raise EdeError(f"crafter takes no name: write 'crafter', not 'crafter/{name}'.")
    if unknown:
        raise EdeError(f"Crafter has no option '{next(iter(unknown))}'; it has observation and time_limit.")
    if observation not in OBSERVATIONS:
        raise EdeError(f"Crafter's observation is one of {', '.join(OBSERVATIONS)}; got '{observation}'.")
    if not isinstance(time_limit, int) or time_limit < 1:
        raise EdeError(f"Crafter's time_limit must be a whole number of at least 1; got {time_limit!r}.")
    if not 0 <= seed < 2**64:
        raise EdeError(f"Crafter's seed must lie in 0..{2**64 - 1}; got {seed}.")
    lane_memory.check("crafter", lanes, _BYTES_A_LANE)
    from ede.envs.crafter.lanes import CrafterLanes

    return CrafterLanes(
        lanes=lanes,
        contexts=contexts or Contexts.full(),
        seed=seed,
        observation=observation,
        time_limit=time_limit,
    )
