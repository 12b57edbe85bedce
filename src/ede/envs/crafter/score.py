"""Crafter's score: how many of the 22 achievements an agent unlocks while it trains, rare ones weighing more."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError

ACHIEVEMENTS = (
    *("collect_coal", "collect_diamond", "collect_drink", "collect_iron", "collect_sapling"),
    *("collect_stone", "collect_wood", "defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant"),
    *("make_iron_pickaxe", "make_iron_sword", "make_stone_pickaxe", "make_stone_sword"),
    *("make_wood_pickaxe", "make_wood_sword", "place_furnace", "place_plant", "place_stone"),
    *("place_table", "wake_up"),
)
"""The names of ``extra["achievements"]``'s columns, in the package's order."""

BUDGET = 1_000_000
"""Steps that count. Source: Hafner, "Benchmarking the Spectrum of Agent Capabilities" (2022), section 3."""

Counts = npt.NDArray[np.integer[Any]]
"""[episodes, 22]: how often each episode unlocked each achievement."""


def success_rates(
    achievements: Counts, lengths: npt.ArrayLike, budget: int = BUDGET
) -> npt.NDArray[np.float64]:
    """[22] percentages of episodes that unlocked each achievement at least once.

    ``lengths`` [episodes] are the steps of each training episode, in the order in which the episodes ended.
    An episode counts if its last step is among the first ``budget`` of training; with several lanes the
    steps of finished episodes are added up in the order of their ends.
    """
    counts, steps = np.asarray(achievements), np.asarray(lengths)
    if counts.shape != (len(steps), len(ACHIEVEMENTS)):
        raise EdeError(
            f"The score needs one row of {len(ACHIEVEMENTS)} counts an episode: "
            f"got {counts.shape} for {len(steps)} lengths."
        )
    counted = counts[np.cumsum(steps) <= budget]
    if not len(counted):
        raise EdeError(f"No episode ended within the first {budget} steps, so there is no score yet.")
    rates: npt.NDArray[np.float64] = 100 * (counted >= 1).mean(axis=0)
    return rates


def score(achievements: Counts, lengths: npt.ArrayLike, budget: int = BUDGET) -> float:
    """exp(mean ln(1 + rate)) − 1 over the 22 success rates in percent: a geometric mean that survives zeros."""
    return float(np.expm1(np.log1p(success_rates(achievements, lengths, budget)).mean()))
