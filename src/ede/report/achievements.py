"""Crafter's score and success rates, from the training episodes as the benchmark defines them."""

from __future__ import annotations

import numpy as np

from ede.report.load import Run
from ede.statistics import Floats

NAMES = (
    "collect_coal", "collect_diamond", "collect_drink", "collect_iron", "collect_sapling", "collect_stone",
    "collect_wood", "defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant", "make_iron_pickaxe",
    "make_iron_sword", "make_stone_pickaxe", "make_stone_sword", "make_wood_pickaxe", "make_wood_sword",
    "place_furnace", "place_plant", "place_stone", "place_table", "wake_up",
)  # fmt: skip
"""In the order of the counts in ``episodes.jsonl``: Crafter's own, which is alphabetical."""

BUDGET = 1_000_000
"""Environment steps over which the benchmark scores (Hafner 2022)."""


def success_rates(run: Run, budget: int = BUDGET) -> Floats | None:
    """[22] per cent of the training episodes within the budget that unlocked each achievement at least once."""
    counts = run.episodes.achievements
    if counts is None:
        return None
    within = counts[run.episodes.steps <= budget]
    return np.asarray(100 * (within > 0).mean(axis=0)) if len(within) else None


def score(rates: Floats) -> float:
    """exp(mean of ln(1 + success %)) − 1: the geometric mean that makes rare achievements count."""
    return float(np.expm1(np.log1p(rates).mean()))
