"""Compare ``ede.statistics`` with the real rliable, in an environment of its own.

    python -m venv rliable-env
    rliable-env/bin/pip install -r benchmarks/rliable_requirements.txt
    rliable-env/bin/pip install --no-deps -e .
    rliable-env/bin/python benchmarks/rliable_check.py                    # live comparison
    rliable-env/bin/python benchmarks/rliable_check.py --write tests/data/rliable.json

The second form stores rliable's answers, which the ordinary tests compare with.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

from ede import statistics

RESAMPLES = 20_000
THRESHOLDS = [-0.2, 0.0, 0.25, 0.5, 0.75, 1.0, 1.2]
METRICS = {
    "mean": metrics.aggregate_mean,
    "median": metrics.aggregate_median,
    "iqm": metrics.aggregate_iqm,
    "optimality_gap": metrics.aggregate_optimality_gap,
}


def score_tables() -> dict[str, np.ndarray]:
    """Three score tables [runs, tasks]: plain, with ties and scores above 1, and one whose quarter is odd."""
    generator = np.random.default_rng(2024)
    return {
        "plain": generator.normal(0.4, 0.3, size=(5, 16)),
        "ties": np.round(generator.normal(0.8, 0.5, size=(10, 4)), 1),
        "odd": generator.normal(0.5, 0.2, size=(3, 5)),
    }


def answers(x: np.ndarray) -> dict:
    """Everything rliable says of the table, and of the table against itself shifted by 0.1 in reverse."""
    other = x[::-1] - 0.1
    found: dict = {"scores": x.tolist(), "baseline": other.tolist()}
    for name, metric in METRICS.items():
        value, interval = library.get_interval_estimates(
            {"x": x}, lambda scores, metric=metric: np.array([metric(scores)]), reps=RESAMPLES
        )
        found[name] = [float(value["x"][0]), *(float(bound) for bound in interval["x"][:, 0])]
    profile, band = library.create_performance_profile({"x": x}, np.array(THRESHOLDS), reps=RESAMPLES // 10)
    found["profile"] = [profile["x"].tolist(), *(bound.tolist() for bound in band["x"])]
    value, interval = library.get_interval_estimates(
        {"pair": (x, other)},
        lambda a, b: np.array([metrics.probability_of_improvement(a, b)]),
        reps=RESAMPLES // 10,
    )
    found["improvement"] = [float(value["pair"][0]), *(float(bound) for bound in interval["pair"][:, 0])]
    return found


def compare(theirs: dict) -> None:
    """Print both sides; refuse a point value that differs at all, or a bound beyond Monte-Carlo error."""
    generator = np.random.default_rng(0)
    for table, found in theirs.items():
        x = dict(enumerate(np.array(found["scores"]).T))
        other = dict(enumerate(np.array(found["baseline"]).T))
        ours = {
            name: [estimate.value, estimate.low, estimate.high]
            for name, estimate in statistics.aggregate(x, generator, resamples=RESAMPLES).items()
        }
        pair = statistics.probability_of_improvement(x, other, generator, resamples=RESAMPLES)
        ours["improvement"] = [pair.value, pair.low, pair.high]
        for name, (value, low, high) in ours.items():
            print(f"{table:6} {name:15} ours {value:.4f} [{low:.4f}, {high:.4f}]", end="  ")
            print("rliable {:.4f} [{:.4f}, {:.4f}]".format(*found[name]))
            assert abs(value - found[name][0]) < 1e-9, (table, name)
            width = found[name][2] - found[name][1]
            assert abs(low - found[name][1]) < 0.05 * width, (table, name)
            assert abs(high - found[name][2]) < 0.05 * width, (table, name)
        profile = statistics.performance_profile(x, THRESHOLDS, generator)
        assert np.allclose(profile.value, found["profile"][0]), (table, "profile")
        steps = 2 / np.array(found["scores"]).size  # a share of runs moves in steps of one run
        assert np.allclose(profile.low, found["profile"][1], atol=steps), (table, "profile")
        assert np.allclose(profile.high, found["profile"][2], atol=steps), (table, "profile")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", type=Path, help="store rliable's answers here")
    target = parser.parse_args().write
    np.random.seed(0)  # noqa: NPY002 - rliable draws from numpy's global state
    theirs = {name: answers(x) for name, x in score_tables().items()}
    compare(theirs)
    if target:
        provenance = {
            "command": "python benchmarks/rliable_check.py --write tests/data/rliable.json",
            "versions": {name: version(name) for name in ("rliable", "arch", "numpy", "scipy", "pandas")},
            "resamples": RESAMPLES,
            "thresholds": THRESHOLDS,
        }
        target.write_text(json.dumps({**provenance, "tables": theirs}, indent=1) + "\n", encoding="utf-8")
