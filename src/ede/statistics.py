"""What the field asks of a comparison: robust aggregates of normalised scores, with intervals.

Scores are a mapping from task to one number a run, ``{"bigfish": [21.0, 23.5], "miner": [0.7, 0.6, 0.8]}``;
tasks may have unequal numbers of runs, and then every task still weighs the same. With equal numbers all
point values are those of Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical
precipice", whose package rliable they are tested against.

Axes: S resamples, T tasks, R runs (short rows padded with NaN), P thresholds of a profile.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import permutations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ede.errors import EdeError

Floats = NDArray[np.float64]
Scores = Mapping[str, ArrayLike]
"""Task → one score a run."""

RESAMPLES = 2000
"""Bootstrap draws when none are asked for; a 95 % bound then moves by a few per cent of the width."""


DECISIVE = 0.025
"""The one-sided chance behind a 95 % interval: where ``separation_chance`` is above it, runs are too few to decide."""


@dataclass(frozen=True)
class Estimate:
    """A value and the bounds of its interval; NaN bounds where one run a task says nothing of the spread."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f}" + ("" if np.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]")


@dataclass(frozen=True)
class Profile:
    """A curve over thresholds with its pointwise band."""

    thresholds: Floats
    value: Floats
    low: Floats
    high: Floats


# Normalisation


@cache
def ranges(table: str = "ede_code", mode: str = "easy") -> dict[str, tuple[float, float]]:
    """Procgen's (minimum, maximum) return a game under one of the public tables of constants.

    The tables disagree on the easy minima of jumper, leaper and climber, so whoever states a normalised score
    names its table. ``data/README.md`` says where each comes from.
    """
    with (files("ede") / "data" / "procgen_ranges.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    found = {
        row["game"]: (float(row["min"]), float(row["max"]))
        for row in rows
        if row["source"] == table and row["mode"] == mode
    }
    if not found:
        known = sorted({f"{row['source']} ({row['mode']})" for row in rows})
        raise EdeError(
            f"There is no normalisation table '{table} ({mode})'; choose one of {', '.join(known)}."
        )
    return found


def normalise(scores: Scores, table: str = "ede_code", mode: str = "easy") -> dict[str, Floats]:
    """Min-max normalise: 0 is the table's minimum, 1 its maximum; a game the table lacks is refused."""
    constants = ranges(table, mode)
    missing = [task for task in scores if task not in constants]
    if missing:
        raise EdeError(f"The normalisation table '{table} ({mode})' has no entry for {', '.join(missing)}.")
    return {
        task: (np.asarray(runs, dtype=np.float64) - constants[task][0])
        / (constants[task][1] - constants[task][0])
        for task, runs in scores.items()
    }


# Aggregates, each over the last two axes of padded scores


def mean(x_STR: Floats) -> Floats:
    """The mean over tasks of each task's mean over runs."""
    return np.asarray(np.nanmean(x_STR, axis=-1).mean(axis=-1))


def median(x_STR: Floats) -> Floats:
    """The median over tasks of each task's mean over runs."""
    return np.asarray(np.median(np.nanmean(x_STR, axis=-1), axis=-1))


def iqm(x_STR: Floats) -> Floats:
    """The mean of the middle half of all runs: a quarter of them, rounded down, is left out at each end.

    A run weighs one over its task's number of runs. With unequal numbers the cut may fall inside a run, which
    then counts in part; with equal numbers this is the plain trimmed mean.
    """
    there_STR = ~np.isnan(x_STR)
    count_S = there_STR.sum(axis=(-2, -1))
    weight_STR = there_STR / (there_STR.sum(axis=-1, keepdims=True) * x_STR.shape[-2])
    x_SN = x_STR.reshape(*x_STR.shape[:-2], -1)
    order_SN = np.argsort(x_SN, axis=-1)  # NaN sorts last, with no weight
    x_SN = np.nan_to_num(np.take_along_axis(x_SN, order_SN, axis=-1))
    weight_SN = np.take_along_axis(weight_STR.reshape(x_SN.shape), order_SN, axis=-1)
    cut_S1 = np.expand_dims(count_S // 4 / count_S, -1)
    right_SN = weight_SN.cumsum(axis=-1)
    kept_SN = np.minimum(right_SN, 1 - cut_S1) - np.maximum(right_SN - weight_SN, cut_S1)
    kept_SN = np.maximum(kept_SN, 0.0)
    return np.asarray((kept_SN * x_SN).sum(axis=-1) / kept_SN.sum(axis=-1))


def optimality_gap(x_STR: Floats) -> Floats:
    """How far the runs fall short of a normalised score of 1 on average; more than 1 earns nothing."""
    return 1.0 - mean(np.minimum(x_STR, 1.0))


METRICS: dict[str, Callable[[Floats], Floats]] = {
    "mean": mean,
    "median": median,
    "iqm": iqm,
    "optimality_gap": optimality_gap,
}
"""The four aggregates the paper reports; each maps padded scores [..., T, R] to [...]."""


def padded(scores: Scores) -> Floats:
    """``scores`` as one array [T, R], NaN where a task has fewer runs than another."""
    rows = [np.asarray(runs, dtype=np.float64).reshape(-1) for runs in scores.values()]
    if not rows or not all(len(row) for row in rows):
        raise EdeError("An aggregate needs at least one task, and every task at least one run.")
    for task, row in zip(scores, rows, strict=True):
        if not np.isfinite(row).all():
            raise EdeError(f"Task '{task}' has a score that is not a finite number.")
    x_TR = np.full((len(rows), max(map(len, rows))), np.nan)
    for x_R, row in zip(x_TR, rows, strict=True):
        x_R[: len(row)] = row
    return x_TR


def resample(x_TR: Floats, resamples: int, generator: np.random.Generator) -> Floats:
    """Draw runs with replacement within each task (the strata), as many as it has: [S, T, R]."""
    count_T1 = (~np.isnan(x_TR)).sum(axis=-1, keepdims=True)
    pick_STR = (generator.random((resamples, *x_TR.shape)) * count_T1).astype(np.intp)
    drawn_STR = np.take_along_axis(x_TR[None], pick_STR, axis=-1)
    return np.where(np.isnan(x_TR), np.nan, drawn_STR)


def bounds(values: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The percentile interval of resampled values over their first axis."""
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(values, [tail, 1.0 - tail], axis=0)
    return low, high


def _estimate(value: Floats, drawn_S: Floats, confidence: float, *sides_TR: Floats) -> Estimate:
    """A value with the interval of its resamples; none where no task on any side has a second run."""
    if all(x_TR.shape[-1] == 1 for x_TR in sides_TR):
        return Estimate(float(value), np.nan, np.nan)
    low, high = bounds(drawn_S, confidence)
    return Estimate(float(value), float(low), float(high))


def aggregate(
    scores: Scores,
    generator: np.random.Generator,
    metrics: Sequence[str] = tuple(METRICS),
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> dict[str, Estimate]:
    """Each metric's value with its stratified bootstrap interval; one set of draws serves all metrics."""
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise EdeError(f"There is no metric '{unknown[0]}'; choose from {', '.join(METRICS)}.")
    x_TR = padded(scores)
    drawn_STR = resample(x_TR, resamples, generator)
    return {
        name: _estimate(METRICS[name](x_TR), METRICS[name](drawn_STR), confidence, x_TR) for name in metrics
    }


# Comparisons


def performance_profile(
    scores: Scores,
    thresholds: ArrayLike,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Profile:
    """The share of runs above each threshold, every task weighing the same."""
    threshold_P = np.asarray(thresholds, dtype=np.float64)
    x_TR = padded(scores)
    drawn_STR = resample(x_TR, resamples, generator)
    low_P, high_P = np.empty_like(threshold_P), np.empty_like(threshold_P)
    value_P = np.empty_like(threshold_P)
    for p, threshold in enumerate(threshold_P):  # one threshold at a time keeps the memory at [S, T, R]
        value_P[p] = _share_above(x_TR, threshold)
        low_P[p], high_P[p] = bounds(_share_above(drawn_STR, threshold), confidence)
    return Profile(threshold_P, value_P, low_P, high_P)


def _share_above(x_STR: Floats, threshold: float) -> Floats:
    return mean(np.where(np.isnan(x_STR), np.nan, x_STR > threshold))


def probability_of_improvement(
    scores: Scores,
    baseline: Scores,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Estimate:
    """How likely a run beats a run of ``baseline`` on a task drawn at random; a tie counts as half a win."""
    x_TR, y_TR = _both(scores, baseline)
    drawn_S = _wins(resample(x_TR, resamples, generator), resample(y_TR, resamples, generator))
    return _estimate(_wins(x_TR, y_TR), drawn_S, confidence, x_TR, y_TR)


def difference(
    scores: Scores,
    baseline: Scores,
    generator: np.random.Generator,
    metric: str = "iqm",
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Estimate:
    """How much higher a metric is than that of ``baseline`` on the same tasks, both sides resampled."""
    x_TR, y_TR = _both(scores, baseline)
    measure = METRICS[metric]
    drawn_S = measure(resample(x_TR, resamples, generator)) - measure(resample(y_TR, resamples, generator))
    return _estimate(measure(x_TR) - measure(y_TR), drawn_S, confidence, x_TR, y_TR)


def separation_chance(scores: Scores, baseline: Scores) -> float:
    """How often chance alone puts every run of one side above every run of the other, on every task.

    No exact test of so few runs can be surer than this, whatever the runs are.
    """
    x_TR, y_TR = _both(scores, baseline)
    counts = zip((~np.isnan(x_TR)).sum(axis=1).tolist(), (~np.isnan(y_TR)).sum(axis=1).tolist(), strict=True)
    return float(np.prod([1 / comb(ours + theirs, ours) for ours, theirs in counts]))


def shuffle_chance(
    scores: Scores,
    baseline: Scores,
    generator: np.random.Generator,
    metric: str = "iqm",
    resamples: int = RESAMPLES,
) -> float:
    """How often dealing each task's runs anew to the two sides sets the metrics as far apart, in the same direction.

    A one-sided permutation test. Unlike the bootstrap it is not too sure of itself with three runs a task.
    """
    x_TR, y_TR = _both(scores, baseline)
    measure = METRICS[metric]
    found = float(measure(x_TR) - measure(y_TR))
    z_TR = np.concatenate([x_TR, y_TR], axis=1)
    key_STR = np.where(np.isnan(z_TR), np.inf, generator.random((resamples, *z_TR.shape)))
    dealt_STR = np.take_along_axis(z_TR[None], key_STR.argsort(axis=-1), axis=-1)  # missing runs come last
    count_T1 = (~np.isnan(x_TR)).sum(axis=-1, keepdims=True)
    place_R = np.arange(z_TR.shape[1])
    mine_STR = measure(np.where(place_R < count_T1, dealt_STR, np.nan))
    theirs_STR = measure(np.where(place_R < count_T1, np.nan, dealt_STR))
    as_far = np.sign(found) * (mine_STR - theirs_STR) >= abs(found) - 1e-12
    return float((as_far.sum() + 1) / (resamples + 1))


def _both(scores: Scores, baseline: Scores) -> tuple[Floats, Floats]:
    if set(scores) != set(baseline):
        raise EdeError("A comparison needs the same tasks on both sides.")
    return padded(scores), padded({task: baseline[task] for task in scores})


def _wins(x_STR: Floats, y_STR: Floats) -> Floats:
    difference = x_STR[..., :, None] - y_STR[..., None, :]
    pairs = np.where(np.isnan(difference), np.nan, (np.sign(difference) + 1) / 2)
    return np.asarray(np.nanmean(pairs, axis=(-2, -1)).mean(axis=-1))


def ranks(values: ArrayLike) -> Floats:
    """Ranks from 1; equal values share the mean of the ranks they take up."""
    _, group, count = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = count.cumsum()
    return np.asarray((last - (count - 1) / 2)[group])


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's of the ranks; NaN where all values of a side are equal."""
    x_rank, y_rank = ranks(x), ranks(y)
    if len(x_rank) != len(y_rank) or len(x_rank) < 2:
        raise EdeError("A rank correlation needs two lists of the same length, of two numbers or more.")
    x_rank, y_rank = x_rank - x_rank.mean(), y_rank - y_rank.mean()
    scale = float(np.sqrt((x_rank**2).sum() * (y_rank**2).sum()))
    return float((x_rank * y_rank).sum() / scale) if scale else float("nan")


def spearman_chance(x: ArrayLike, y: ArrayLike) -> float:
    """The share of all orders of ``y`` whose rank correlation with ``x`` is at least as far from zero.

    An exact two-sided permutation test, for the few methods of a comparison: at most nine pairs.
    """
    x_rank, y_rank = ranks(x), ranks(y)
    if len(x_rank) > 9:
        raise EdeError("The exact permutation test takes at most nine pairs.")
    found = abs(spearman(x, y))
    orders = y_rank[np.array(list(permutations(range(len(y_rank)))))] - y_rank.mean()
    scale = np.sqrt(((x_rank - x_rank.mean()) ** 2).sum() * (orders[0] ** 2).sum())
    return float(np.mean(np.abs(orders @ (x_rank - x_rank.mean()) / scale) >= found - 1e-9))
