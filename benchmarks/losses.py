"""Quantile Huber loss, value and gradient: the N×N definition against the sorted form, interleaved in one run.

python benchmarks/losses.py [--batch 512] [--quantiles 200] [--rounds 9] [--threads 2] [--device cpu]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import tyro
from torch import Tensor
from torch.nn import functional

from ede.losses import quantile_huber


@dataclass(frozen=True)
class Settings:
    batch: int = 512
    """Rows: the paper's minibatch of one member."""
    quantiles: int = 200
    rounds: int = 9
    threads: int = 2
    device: str = "cpu"


def dense(current: Tensor, target: Tensor) -> Tensor:
    quantiles = current.shape[-1]
    tau = (torch.arange(quantiles, device=current.device) + 0.5) / quantiles
    current, target = torch.broadcast_tensors(current.unsqueeze(-1), target.unsqueeze(-2))
    loss = functional.huber_loss(current, target, reduction="none")
    weight = (tau.unsqueeze(-1) - (target < current).float()).abs()
    return (weight * loss).mean(dim=-1).sum(dim=-1)


def seconds(loss: Callable[[Tensor, Tensor], Tensor], current: Tensor, target: Tensor) -> float:
    current.grad = None
    _wait(current)
    start = time.perf_counter()
    loss(current, target).mean().backward()
    _wait(current)
    return time.perf_counter() - start


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()


def main(settings: Settings) -> None:
    torch.set_num_threads(settings.threads)
    generator = torch.Generator().manual_seed(0)
    shape = (settings.batch, settings.quantiles)
    current = torch.randn(shape, generator=generator).to(settings.device).requires_grad_()
    target = torch.randn(shape, generator=generator).to(settings.device)
    times = [
        (seconds(dense, current, target), seconds(quantile_huber, current, target))
        for _ in range(settings.rounds + 1)
    ]
    slow, fast = (sorted(column) for column in zip(*times[1:], strict=True))
    print(
        f"{settings.batch} rows of {settings.quantiles} quantiles, {settings.threads} threads, {settings.device}: "
        f"N×N {statistics.median(slow):.4f} s, sorted {statistics.median(fast):.4f} s (medians of "
        f"{settings.rounds}), {statistics.median(slow) / statistics.median(fast):.1f} times; "
        f"least {slow[0]:.4f} s and {fast[0]:.4f} s, {slow[0] / fast[0]:.1f} times"
    )


if __name__ == "__main__":
    main(tyro.cli(Settings))
