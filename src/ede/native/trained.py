"""The encoder with a graph as machine code: ``trained.c``, on processors for which ``native`` compiles.

What backward needs of an image is kept in one block of bytes, whose blocks come back to be used again: their borders
are zeros that are never written to, and clearing them for every update would take as long as a convolution.

Axis letters: B batch, d features, T threads, P numbers of all parameters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from ede import native

TOLERANCE = {"fp32": 1e-5, "bf16": 0.2}
"""Of the gradients' norm: how far a build may be from the plain encoder."""
WAYS = ("fp32", "pairs")
"""Those of multiplying that ``trained.c`` knows."""

_spare: dict[tuple[object, ...], list[Tensor]] = {}
"""Blocks of kept bytes that no graph holds, by the images and the arithmetic that they are laid out for."""


@cache
def available(precision: str) -> bool:
    """Whether this machine can compile and run it in this precision, and its gradients are what they should be.

    Where there are matrix units, oneDNN uses them for this pass and this code does not: not taken there.
    """
    arithmetic = native.arithmetic_of(precision)
    if arithmetic not in WAYS or not native.available(precision):
        return False
    encoder, images = native.example()
    parameters = list(encoder.parameters())
    with torch.enable_grad():
        expected, found = encoder(images), features(images, parameters, arithmetic)
        toward = torch.randn(expected.shape, generator=Generator().manual_seed(0))
        both = [torch.autograd.grad(out, parameters, toward) for out in (expected, found)]
    one, other = (torch.cat([gradient.flatten() for gradient in gradients]) for gradients in both)
    return bool((one - other).norm() < TOLERANCE[precision] * one.norm())


def features(obs: Tensor, parameters: Sequence[Tensor], arithmetic: str) -> Tensor:
    """[B, d] of images [B, H, W, C], with a graph to weights and biases by turns, float32."""
    assert native.takes(obs)
    assert all(parameter.dtype == torch.float32 for parameter in parameters)
    encoded: Tensor = _Trained.apply(obs.contiguous(), arithmetic, *parameters)  # type: ignore[no-untyped-call]
    return encoded


class _Trained(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, obs: Tensor, arithmetic: str, *parameters: Tensor) -> Tensor:
        ctx.obs_shape, ctx.way = obs.shape, ctypes.c_int(native.ARITHMETIC[arithmetic])
        code = native.library()
        ctx.layout = (*obs.shape, arithmetic)
        if spare := _spare.get(ctx.layout):
            ctx.kept_BK = spare.pop()
        else:
            size = int(code.ede_kept_bytes(*map(ctypes.c_int, obs.shape[1:3]), ctx.way))
            ctx.kept_BK = torch.zeros(len(obs), size, dtype=torch.uint8)
        encoded_Bd = torch.empty(len(obs), native.features_of(obs.shape))
        weights = native.addresses(parameters)

        def encode(first: int, last: int, _: int) -> None:
            code.ede_train_forward(
                native.at(obs[first]), ctypes.c_long(last - first), *map(ctypes.c_int, obs.shape[1:]), ctx.way,
                weights.pointers, native.at(ctx.kept_BK[first]), native.at(encoded_Bd[first]),
            )  # fmt: skip

        native.share_out(len(obs), encode)
        ctx.save_for_backward(encoded_Bd, *parameters)
        return encoded_Bd

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_Bd: Tensor) -> tuple[Tensor | None, ...]:
        encoded_Bd, *parameters = ctx.saved_tensors
        closed_Bd = gradient_Bd * (encoded_Bd > 0)
        sizes = [parameter.numel() for parameter in parameters]
        sums_TP = torch.zeros(torch.get_num_threads(), sum(sizes))
        code, weights = native.library(), native.addresses(parameters)

        def learn(first: int, last: int, part: int) -> None:
            code.ede_train_backward(
                native.at(ctx.kept_BK[first]), ctypes.c_long(last - first), *map(ctypes.c_int, ctx.obs_shape[1:]),
                ctx.way, weights.pointers, native.at(closed_Bd[first]), native.at(sums_TP[part]),
            )  # fmt: skip

        native.share_out(len(encoded_Bd), learn)
        _spare.setdefault(ctx.layout, []).append(ctx.kept_BK)
        del ctx.kept_BK
        gradients: tuple[Tensor, ...] = sums_TP.sum(0).split(sizes)  # type: ignore[no-untyped-call]
        return (
            None,
            None,
            *(gradient.view_as(parameter) for gradient, parameter in zip(gradients, parameters, strict=True)),
        )
