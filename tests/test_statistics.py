"""Aggregates by pencil, against rliable's stored answers, and against naive twins."""

import json
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ede import statistics
from ede.errors import EdeError

RLIABLE = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text(encoding="utf-8"))
SHORT = st.floats(-2, 2, allow_nan=False).map(lambda value: round(value, 1))


def by_task(rows):
    """rliable's [runs, tasks] as our task → runs."""
    return dict(enumerate(np.array(rows).T))


def test_the_four_aggregates_by_pencil():
    scores = {"a": [0.0, 0.2], "b": [0.4, 0.6], "c": [1.0, 2.0], "d": [0.1, 0.3]}
    found = {name: float(metric(statistics.padded(scores))) for name, metric in statistics.METRICS.items()}
    assert found["mean"] == pytest.approx((0.1 + 0.5 + 1.5 + 0.2) / 4)
    assert found["median"] == pytest.approx((0.2 + 0.5) / 2)
    assert found["iqm"] == pytest.approx((0.2 + 0.3 + 0.4 + 0.6) / 4)  # two of eight left out at each end
    assert found["optimality_gap"] == pytest.approx(1 - (0.1 + 0.5 + 1.0 + 0.2) / 4)


def test_tasks_with_unequal_numbers_of_runs_weigh_the_same():
    scores = {"a": [0.0, 0.0, 0.0, 0.0], "b": [1.0]}
    x = statistics.padded(scores)
    assert statistics.mean(x) == pytest.approx(0.5)
    assert statistics.optimality_gap(x) == pytest.approx(0.5)
    # 5 runs: a fifth of the weight goes at each end, 0.3 of task a's half and 0.3 of task b's are left.
    assert statistics.iqm(x) == pytest.approx(0.5)


@given(st.lists(st.lists(SHORT, min_size=3, max_size=3), min_size=1, max_size=7))
def test_iqm_of_equal_numbers_is_the_plain_trimmed_mean(rows):
    runs = sorted(value for row in rows for value in row)
    cut = len(runs) // 4
    twin = np.mean(runs[cut : len(runs) - cut])
    assert statistics.iqm(statistics.padded(dict(enumerate(rows)))) == pytest.approx(twin, abs=1e-9)


@pytest.mark.parametrize("table", RLIABLE["tables"])
def test_values_and_intervals_are_rliables(table):
    stored = RLIABLE["tables"][table]
    generator = np.random.default_rng(0)
    x, baseline = by_task(stored["scores"]), by_task(stored["baseline"])
    found = statistics.aggregate(x, generator, resamples=5000)
    found["improvement"] = statistics.probability_of_improvement(x, baseline, generator, resamples=5000)
    for name, ours in found.items():
        value, low, high = stored[name]
        assert ours.value == pytest.approx(value, abs=1e-9), name
        assert ours.low == pytest.approx(low, abs=0.06 * (high - low)), name
        assert ours.high == pytest.approx(high, abs=0.06 * (high - low)), name
    profile = statistics.performance_profile(x, RLIABLE["thresholds"], generator)
    value, low, high = map(np.array, stored["profile"])
    one_run = 1 / np.array(stored["scores"]).size
    np.testing.assert_allclose(profile.value, value)
    np.testing.assert_allclose(profile.low, low, atol=2 * one_run)
    np.testing.assert_allclose(profile.high, high, atol=2 * one_run)


def test_resampling_stays_within_a_task_and_keeps_its_number_of_runs():
    x = statistics.padded({"a": [1.0, 2.0, 3.0], "b": [10.0], "c": [20.0, 30.0]})
    drawn = statistics.resample(x, 400, np.random.default_rng(0))
    np.testing.assert_array_equal(np.isnan(drawn), np.broadcast_to(np.isnan(x), drawn.shape))
    assert [set(np.unique(task[~np.isnan(task)])) for task in drawn.transpose(1, 0, 2)] == [
        {1.0, 2.0, 3.0},
        {10.0},
        {20.0, 30.0},
    ]


def test_the_generator_decides_the_interval():
    scores = {"a": [0.1, 0.5, 0.9], "b": [0.2, 0.3, 0.7]}
    first, again, other = (
        statistics.aggregate(scores, np.random.default_rng(seed), resamples=200) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        scores = {task: generator.normal(0.5, 0.2, size=20) for task in "abc"}
        mean = statistics.aggregate(scores, generator, metrics=["mean"], resamples=300)["mean"]
        hits += mean.low <= 0.5 <= mean.high
    assert 0.87 < hits / 200 < 0.99


def test_improvement_counts_a_tie_as_half():
    generator = np.random.default_rng(0)
    found = statistics.probability_of_improvement({"a": [1.0, 2.0]}, {"a": [1.0, 0.0, 3.0]}, generator)
    assert found.value == pytest.approx((0.5 + 1 + 0 + 1 + 1 + 0) / 6)
    assert 0 <= found.low <= found.value <= found.high <= 1
    with pytest.raises(EdeError, match="same tasks"):
        statistics.probability_of_improvement({"a": [1.0]}, {"b": [1.0]}, generator)


def test_a_difference_is_that_of_the_values_and_its_interval_that_of_both_sides():
    x, y = {"a": [0.5, 0.7, 0.9], "b": [0.1, 0.2, 0.3]}, {"b": [0.0, 0.0, 0.0], "a": [0.1, 0.1, 0.1]}
    found = statistics.difference(x, y, np.random.default_rng(0), metric="mean")
    assert found.value == pytest.approx((0.7 + 0.2) / 2 - 0.05)
    assert 0 < found.low < found.value < found.high  # y does not vary: x's own interval, shifted
    alone = statistics.aggregate(x, np.random.default_rng(0))["mean"]
    assert found.low == pytest.approx(alone.low - 0.05, abs=0.02)


def test_one_run_a_task_has_no_interval():
    generator = np.random.default_rng(0)
    scores = {"a": [0.5], "b": [0.7]}
    found = statistics.aggregate(scores, generator)["iqm"]
    assert str(found) == "0.600"
    assert np.isnan([found.low, found.high]).all()
    assert np.isnan(statistics.difference(scores, scores, generator).low)
    assert not np.isnan(statistics.difference(scores, {"a": [0.1, 0.2], "b": [0.3]}, generator).low)


def test_normalisation_is_by_a_named_table():
    assert statistics.normalise({"climber": [3.0, 12.6]}, "ede_code")["climber"] == pytest.approx([0.0, 1.0])
    by_paper = statistics.normalise({"climber": [3.0]}, "procgen_paper")["climber"][0]
    assert by_paper == pytest.approx(1 / 10.6)
    assert len(statistics.ranges("train_procgen", "hard")) == 16
    with pytest.raises(EdeError, match="no entry for pong"):
        statistics.normalise({"bigfish": [1.0], "pong": [1.0]})
    with pytest.raises(EdeError, match="choose one of"):
        statistics.normalise({"bigfish": [1.0]}, "somewhere")


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [1.0, float("nan")]}])
def test_scores_that_cannot_be_aggregated_are_refused(scores):
    with pytest.raises(EdeError):
        statistics.aggregate(scores, np.random.default_rng(0))


def test_ranks_share_ties():
    np.testing.assert_array_equal(statistics.ranks([10.0, 30.0, 20.0, 20.0]), [1.0, 4.0, 2.5, 2.5])


def test_spearman_by_pencil():
    assert statistics.spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1.0)
    assert statistics.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # d = (0, -1, 1, 0): 1 - 6·2 / (4·15) = 0.8
    assert statistics.spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    # Ranks (1, 2.5, 2.5, 4) and (1, 2, 3, 4): covariance 4.5, scale √(4.5·5).
    assert statistics.spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert np.isnan(statistics.spearman([1, 1], [1, 2]))


def test_spearman_chance_counts_every_order():
    x, y = [1.0, 2.0, 3.0, 4.0, 4.0], [2.0, 1.0, 4.0, 3.0, 5.0]
    found = abs(statistics.spearman(x, y))
    twin = np.mean([abs(statistics.spearman(x, order)) >= found - 1e-9 for order in permutations(y)])
    assert statistics.spearman_chance(x, y) == pytest.approx(twin)


def test_few_runs_cannot_decide_whatever_they_are():
    two, three, five = ({"a": np.zeros(n), "b": np.zeros(n)} for n in (2, 3, 5))
    one_task = statistics.separation_chance({"a": [0.0, 1.0]}, {"a": [2.0, 3.0]})
    assert one_task == pytest.approx(
        1 / 6
    )  # of the 6 ways to deal four runs into two pairs, one separates them
    assert one_task > statistics.DECISIVE
    assert statistics.separation_chance(two, three) == pytest.approx(1 / 10**2)
    assert statistics.separation_chance(five, five) == pytest.approx(1 / 252**2)


def test_dealing_runs_anew_counts_what_every_deal_would_give():
    x, y = {"a": [0.9, 0.7], "b": [0.2, 0.6, 0.5]}, {"a": [0.8, 0.1], "b": [0.3]}
    found = statistics.difference(x, y, np.random.default_rng(0), metric="mean").value
    deals = [
        [
            np.mean([pool[i] for i in mine]) - np.mean([pool[i] for i in range(4) if i not in mine])
            for mine in combinations(range(4), len(x[task]))
        ]
        for task, pool in ((task, [*x[task], *y[task]]) for task in x)
    ]
    twin = np.mean([(one + other) / 2 >= found - 1e-12 for one in deals[0] for other in deals[1]])
    chance = statistics.shuffle_chance(x, y, np.random.default_rng(0), "mean", resamples=20_000)
    assert chance == pytest.approx(twin, abs=0.015)
    backwards = statistics.shuffle_chance(y, x, np.random.default_rng(0), "mean", resamples=20_000)
    assert backwards == pytest.approx(twin, abs=0.015)


def test_three_runs_a_task_need_more_than_an_interval_that_leaves_zero_out():
    upper, lower = {"a": [2.7, 4.3, 4.1], "b": [4.7, 4.8, 4.7]}, {"a": [2.8, 3.2, 1.1], "b": [4.8, 4.1, 3.5]}
    apart = statistics.difference(upper, lower, np.random.default_rng(0), metric="mean")
    assert apart.low > 0
    assert statistics.shuffle_chance(upper, lower, np.random.default_rng(0), "mean") > statistics.DECISIVE
