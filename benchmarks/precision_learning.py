"""Do float32 and bf16 learn the same? Reads the runs of the sweep that trains both.

    ede sweep bigfish-precision
    python benchmarks/precision_learning.py runs/bigfish-precision      # or results/bigfish-precision

Prints the closing returns of each precision with 95 % intervals over the seeds, and exits with 1 where the mean of one
lies outside the interval of the other on held-out contexts.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from ede.report.load import load
from ede.statistics import Estimate, aggregate, difference


def main() -> int:
    folders = [Path(word) for word in sys.argv[1:]] or [Path("runs/bigfish-precision")]
    generator = np.random.default_rng(0)
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in load(folders).runs:
        for evaluation in run.evaluations:
            if evaluation.final:
                found[evaluation.split][str(run.settings["precision"])].append(
                    float(evaluation.returns.mean())
                )
    print(f"{'contexts':10s}{'precision':11s}{'seeds':>6s}  mean return [95 % interval]")
    means: dict[str, Estimate] = {}
    for split in ("train", "test"):
        for precision, returns in sorted(found[split].items()):
            means[precision] = aggregate({"task": np.array(returns)}, generator, metrics=["mean"])["mean"]
            print(f"{split:10s}{precision:11s}{len(returns):6d}  {means[precision]}")
    scores = {precision: {"task": np.array(returns)} for precision, returns in found["test"].items()}
    print(f"held-out, bf16 − fp32: {difference(scores['bf16'], scores['fp32'], generator, 'mean')}")
    bf16, fp32 = means["bf16"], means["fp32"]
    alike = bf16.low <= fp32.value <= bf16.high and fp32.low <= bf16.value <= fp32.high
    print("Each lies within the interval of the other." if alike else "They differ.")
    return int(not alike)


if __name__ == "__main__":
    sys.exit(main())
