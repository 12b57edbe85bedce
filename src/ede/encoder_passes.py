"""IMPALA's encoder in few passes over memory: convolutions that apply ReLU and the residual addition themselves.

The same function as ``networks.Impala``, for CPUs, in any type that oneDNN convolves. Images pass in chunks that stay
in the cache, as NHWC. A convolution with ``relu`` or ``add`` does so while its result is still in registers; the
pooling is maxima of whole rows, then of columns, in a third of the time of ``max_pool2d``.

Axis letters: B batch, d features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ede.networks import Impala

Pair = tuple[Tensor, Tensor]
"""The weight and the bias of one convolution."""
SAME = ([1, 1], [1, 1], [1, 1])
"""Padding, stride and dilation of every convolution here."""


def available() -> bool:
    """Whether this build of PyTorch has oneDNN's convolutions with something after them."""
    built = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return built and hasattr(torch.ops.mkldnn, "_convolution_pointwise")


def convolutions(encoder: Impala) -> list[Pair]:
    """In the order in which images pass them: five a stage."""
    return [
        (module.weight, module.bias)
        for module in encoder.modules()
        if isinstance(module, torch.nn.Conv2d) and module.bias is not None
    ]


def planes_of(obs: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, H, W, C] bytes to [B, C, H, W] numbers in [0, 1], rounded once."""
    return (obs.permute(0, 3, 1, 2).to(torch.float32) / 255).to(dtype)


def _chunks(batch: Tensor, chunk: int) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = batch.split(chunk)  # type: ignore[no-untyped-call]
    return parts


def frozen(obs: Tensor, pairs: list[Pair], chunk: int) -> Tensor:
    """[B, d] without a graph."""
    with torch.no_grad():
        return torch.cat([_frozen(planes_of(part, pairs[0][0].dtype), pairs) for part in _chunks(obs, chunk)])


def trained(obs: Tensor, pairs: list[Pair], dtype: torch.dtype, chunk: int) -> Tensor:
    """[B, d] in ``dtype``, with a graph to the (float32) pairs; gradients are added up in the pairs' own type."""
    features: Tensor = _Trained.apply(obs, dtype, chunk, *(p for pair in pairs for p in pair))  # type: ignore[no-untyped-call]
    return features


def _convolve(x: Tensor, pair: Pair, relu: bool = False) -> Tensor:
    after = "relu" if relu else "none"
    convolved: Tensor = torch.ops.mkldnn._convolution_pointwise(x, *pair, *SAME, 1, after, [], "")
    return convolved


def _convolve_onto(residual: Tensor, x: Tensor, pair: Pair, relu: bool = False) -> Tensor:
    """Add the convolution of ``x`` to ``residual``, in its place."""
    after = "relu" if relu else None
    added: Tensor = torch.ops.mkldnn._convolution_pointwise_.binary(
        residual, x, *pair, *SAME, 1, "add", 1.0, after, [], ""
    )
    return added


def _pool(x: Tensor) -> Tensor:
    """max_pool2d(x, 3, stride=2, padding=1) where both sides are even: first of rows, then of columns."""
    if x.shape[2] % 2 or x.shape[3] % 2:
        return F.max_pool2d(x, 3, stride=2, padding=1)
    image = x.permute(0, 2, 3, 1)
    rows = torch.maximum(image[:, 0::2], image[:, 1::2])
    torch.maximum(rows[:, 1:], image[:, 1:-1:2], out=rows[:, 1:])
    pooled = torch.maximum(rows[:, :, 0::2], rows[:, :, 1::2])
    torch.maximum(pooled[:, :, 1:], rows[:, :, 1:-1:2], out=pooled[:, :, 1:])
    return pooled.permute(0, 3, 1, 2)


def _stages(pairs: list[Pair]) -> Iterator[tuple[list[Pair], bool]]:
    """The five convolutions of each stage, and whether it is the last."""
    for first in range(0, len(pairs), 5):
        yield pairs[first : first + 5], first + 5 == len(pairs)


def _frozen(x: Tensor, pairs: list[Pair]) -> Tensor:
    for (entry, *blocks), last in _stages(pairs):
        x = _pool(_convolve(x, entry))
        x = _convolve_onto(x, _convolve(F.relu(x), blocks[0], relu=True), blocks[1])
        x = _convolve_onto(x, _convolve(F.relu(x), blocks[2], relu=True), blocks[3], relu=last)
    return x.flatten(1)


class _Trained(torch.autograd.Function):
    """Forward keeps what entered each convolution: that also tells where each ReLU was open."""

    @staticmethod
    def forward(ctx: Any, obs: Tensor, dtype: torch.dtype, chunk: int, *parameters: Tensor) -> Tensor:
        cast = [p.detach().to(dtype) for p in parameters]
        pairs = list(zip(cast[::2], cast[1::2], strict=True))
        features, ctx.kept = [], []
        for part in _chunks(obs, chunk):
            x, kept = planes_of(part, dtype), []
            for (entry, *blocks), last in _stages(pairs):
                wide = _convolve(x, entry)
                pooled, places = F.max_pool2d(wide, 3, stride=2, padding=1, return_indices=True)
                open0 = F.relu(pooled)
                open1 = _convolve(open0, blocks[0], relu=True)
                pooled = _convolve_onto(pooled, open1, blocks[1])
                open2 = F.relu(pooled)
                open3 = _convolve(open2, blocks[2], relu=True)
                pooled = _convolve_onto(pooled, open3, blocks[3], relu=last)
                kept.append((x, wide, places, open0, open1, open2, open3))
                x = pooled
            ctx.kept.append((kept, x))
            features.append(x.flatten(1))
        ctx.pairs, ctx.chunk = pairs, chunk
        ctx.save_for_backward(*parameters)
        return torch.cat(features)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_Bd: Tensor) -> tuple[Tensor | None, ...]:
        sums = [torch.zeros_like(p) for p in ctx.saved_tensors]
        for part, (kept, out) in zip(_chunks(gradient_Bd, ctx.chunk), ctx.kept, strict=True):
            gradient = _closed(part.view_as(out).contiguous(memory_format=torch.channels_last), out)
            for stage in reversed(range(len(kept))):
                x, wide, places, open0, open1, open2, open3 = kept[stage]
                at = 5 * stage

                def back(gradient: Tensor, entered: Tensor, number: int, first: bool = False) -> Tensor:
                    """Through one convolution; its own gradients join the sums."""
                    entering, weight, bias = torch.ops.aten.convolution_backward(
                        gradient, entered, ctx.pairs[number][0], [len(gradient[0])], [1, 1], [1, 1], [1, 1],
                        False, [0, 0], 1, [not first, True, True],
                    )  # fmt: skip
                    sums[2 * number] += weight
                    sums[2 * number + 1] += bias
                    return cast(Tensor, entering)

                inner = _closed(back(gradient, open3, at + 4), open3)
                gradient = _closed(back(inner, open2, at + 3), open2).add_(gradient)
                inner = _closed(back(gradient, open1, at + 2), open1)
                gradient = _closed(back(inner, open0, at + 1), open0).add_(gradient)
                gradient = torch.ops.aten.max_pool2d_with_indices_backward(
                    gradient, wide, [3, 3], [2, 2], [1, 1], [1, 1], False, places
                )
                gradient = back(gradient, x, at, first=stage == 0)
        return None, None, None, *sums


def _closed(gradient: Tensor, opened: Tensor) -> Tensor:
    """The gradient before a ReLU whose output was ``opened``."""
    return cast(Tensor, torch.ops.aten.threshold_backward(gradient, opened, 0))
