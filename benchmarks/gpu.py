"""An update of EDE at the paper's size on a GPU: precisions, with and without recorded graphs, in one run.

``python benchmarks/gpu.py`` on a machine with CUDA. It also says how far recorded updates are from those that are not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from ede.bench.learner import filled_replay, matrix_rate, paper_learner, paper_settings
from ede.bench.work import of_update
from ede.learner import Learner
from ede.seeds import numpy_generator

WAYS = [(precision, graphs) for precision in ("plain", "bf16") for graphs in (False, True)]
WARM = 16
"""Updates until every member's graph is recorded, nearly surely, and the clocks are up."""


def learner_for(batch_size: int, members: int, precision: str, graphs: bool) -> Learner:
    settings = replace(paper_settings(batch_size, members, precision, "cuda"), cuda_graphs=graphs)
    return paper_learner(settings, "ede" if members > 1 else "qrdqn")


def learn(learner: Learner, updates: int) -> Iterator[None]:
    """Minibatches drawn and learned from one after the other, as in a run; a stop after each."""
    replay, generator = filled_replay(learner.settings), numpy_generator(0, "replay")
    for _ in range(updates):
        learner.update(replay.sample(learner.method.ensemble.members, learner.settings.batch_size, generator))
        yield


def seconds_an_update(learner: Learner, updates: int) -> float:
    for number, _ in enumerate(learn(learner, WARM + updates), start=1):
        if number == WARM:
            torch.cuda.synchronize()
            begin = time.perf_counter()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / updates


def difference(batch_size: int, precision: str, updates: int = 20) -> float:
    """The largest difference of any parameter after some updates, recorded and not, over the largest parameter."""
    ends = []
    for graphs in (False, True):
        learner = learner_for(batch_size, 5, precision, graphs)
        for _ in learn(learner, updates):
            pass
        ends.append(torch.cat([parameter.detach().flatten() for parameter in learner.parameters]))
    return float((ends[0] - ends[1]).abs().max() / ends[0].abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--updates", type=int, default=50)
    given = parser.parse_args()
    device = torch.device("cuda")
    rates = {name: matrix_rate(name, device) for name in ("bf16", "fp32")}
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print(", ".join(f"{name} {rate / 1e12:.1f} TFLOP/s" for name, rate in rates.items()))
    for members in (5, 1):
        for precision, graphs in WAYS:
            learner = learner_for(given.batch, members, precision, graphs)
            taken = seconds_an_update(learner, given.updates)
            floor = of_update(learner, given.batch).total / rates["bf16" if precision == "bf16" else "fp32"]
            name = f"{precision}{', recorded' if graphs else ''}, M={members}"
            print(f"{name:24s}{1e3 * taken:9.2f} ms, floor {1e3 * floor:7.2f} ms", flush=True)
    for precision in ("plain", "bf16"):
        print(f"{precision}: recorded differs from not by {difference(given.batch, precision):.1e}")


if __name__ == "__main__":
    main()
