"""The learner at the paper's size beside a plain update, in one run, all taking turns.

A plain update is what the structure of the ensemble invites: every head evaluated on every minibatch, the loss pair by
pair, NCHW in float32, an optimiser without fusion. At the end whole loops on Procgen, with five members and with one.
Run it on a quiet machine: ``python benchmarks/learner.py``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ede import precision
from ede.bench.learner import SHAPE, filled_replay, matrix_rate, paper_learner, paper_settings
from ede.bench.loop import prepared, turn
from ede.bench.work import of_update
from ede.compute import keep_memory
from ede.learner import Learner
from ede.networks import Network
from ede.replay import Batch
from ede.seeds import numpy_generator

PARTS = ("act", "world", "replay", "learn")
WARM = 6
"""Vector steps until the first transition is complete and memory is warm."""


class PlainUpdate:
    """All heads for each minibatch, N×N loss, NCHW float32."""

    def __init__(self, network: Network, target: Network) -> None:
        self.network, self.target = network, target
        self.optimizer = torch.optim.Adam(network.parameters(), lr=2.5e-4, eps=1.5e-4)
        self.generator = Generator().manual_seed(0)

    def encode(self, network: Network, obs: Tensor) -> Tensor:
        planes = (obs.permute(0, 3, 1, 2).float() / 255).contiguous()
        return F.relu(network.encoder.stages(planes)).flatten(1)  # type: ignore[operator, union-attr]

    def update(self, batch: Batch) -> None:
        members, size = batch.action_MB.shape
        chosen = int(torch.randint(members, (), generator=self.generator))
        rows, loss = torch.arange(size), torch.zeros(())
        for member in range(members):
            with torch.no_grad():
                next_z = self.target.heads(self.encode(self.target, batch.next_obs_MB[member]))[member]
                best = next_z[rows, next_z.mean(-1).argmax(-1)]
                aim = batch.reward_MB[member, :, None] + batch.discount_MB[member, :, None] * best
            features = self.encode(self.network, batch.obs_MB[member])
            z = self.network.heads(features if member == chosen else features.detach())[member]
            loss = loss + pairwise(z[rows, batch.action_MB[member]], aim).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
        self.optimizer.step()


def pairwise(current_BN: Tensor, target_BT: Tensor) -> Tensor:
    """The quantile Huber loss by its definition."""
    quantiles = current_BN.shape[-1]
    error_BNT = target_BT[:, None, :] - current_BN[:, :, None]
    huber_BNT = F.huber_loss(error_BNT, torch.zeros_like(error_BNT), reduction="none")
    tau_N1 = ((torch.arange(quantiles) + 0.5) / quantiles)[:, None]
    return ((tau_N1 - (error_BNT < 0).float()).abs() * huber_BNT).mean(-1).sum(-1)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def loops(names: tuple[str, ...], turns: int, threads: int) -> dict[str, list[float]]:
    """Seconds of acting, world, replay and learning on Procgen, 64 lanes at the paper's size; methods by turns."""
    changed = {"threads": threads, "precision": "auto"}
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(prepared("procgen/bigfish", name, "paper", changed)) for name in names
        }
        found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
        for number in range(WARM + turns):
            for name, run in runs.items():
                parts = turn(run)
                if number >= WARM:
                    found[name].append(parts)
    return {name: [min(part) for part in zip(*parts, strict=True)] for name, parts in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_memory()

    five = paper_settings(given.batch, 5, "fp32")
    replay, generator = filled_replay(five), numpy_generator(0, "batch")
    batches = {members: replay.sample(members, given.batch, generator) for members in (5, 1)}
    learners: dict[str, Learner] = {}
    works: dict[str, Callable[[], object]] = {}
    for members in (5, 1):
        for name in ("bf16", "fp32", "plain"):
            settings = paper_settings(given.batch, members, name)
            learner = paper_learner(settings, "ede" if members > 1 else "qrdqn")
            learners[f"{name}, M={members}"] = learner
            works[f"{name}, M={members}"] = lambda learner=learner, batch=batches[members]: learner.update(
                batch
            )
    beginner = paper_learner(five, "ede")
    naive = PlainUpdate(beginner.network, beginner.target_network)
    works["a plain update, M=5"] = lambda: naive.update(batches[5])

    best = dict.fromkeys(works, float("inf"))
    rates = {"bf16": 0.0, "fp32": 0.0}
    for number in range(given.turns + 1):
        for name, work in works.items():
            taken = seconds(work)
            if number:
                best[name] = min(best[name], taken)
        for name in rates:
            rates[name] = max(rates[name], matrix_rate(name, torch.device("cpu")))

    print(f"{precision.processor()}, {given.threads} threads, PyTorch {torch.__version__}, images {SHAPE}")
    print(", ".join(f"{name} {rate / 1e12:.3f} TFLOP/s" for name, rate in rates.items()))
    print(f"{'update':22s}{'seconds':>9s}{'floor':>9s}{'ratio':>7s}{'speedup':>9s}")
    for name, taken in best.items():
        line = f"{name:22s}{taken:9.4f}"
        if name in learners:
            rate = rates["bf16" if name.startswith("bf16") else "fp32"]
            floor = of_update(learners[name], given.batch).total / rate
            line += f"{floor:9.4f}{taken / floor:7.2f}"
        if name.endswith("M=5"):
            line = f"{line:47s}{best['a plain update, M=5'] / taken:9.1f}"
        print(line)
    for name in ("bf16", "fp32"):
        print(f"{name}: M=5 takes {best[f'{name}, M=5'] / best[f'{name}, M=1']:.2f} times M=1")
    ends = loops(("ede", "qrdqn"), given.turns, given.threads)
    for name, parts in ends.items():
        spent = ", ".join(f"{part} {1e3 * one:.0f} ms" for part, one in zip(PARTS, parts, strict=True))
        print(f"procgen/bigfish, 64 lanes, {name}: {spent}; {64 / sum(parts):.0f} steps/s")
    print(f"end to end: M=5 takes {sum(ends['ede']) / sum(ends['qrdqn']):.2f} times M=1")


if __name__ == "__main__":
    main()
