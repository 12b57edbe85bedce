"""How passes through the network are computed: precision, layout, chunks. What they compute is the network's affair.

``PLAIN`` is the specification: the modules as they are, in the type of their parameters. ``Fused`` is for CPUs: passes
as machine code for this processor where it can be compiled (``native``, with a graph ``native.trained``); else oneDNN's
convolutions with ReLU and additions inside (``encoder_passes``), chunks that stay in the cache; and products of the
heads in bf16 where that is the precision. ``Autocast`` is for accelerators. Parameters, targets, losses and the
optimiser stay in float32 whatever the precision; each path is tested against ``PLAIN``.

Axis letters: M members, B batch, d features, H leaving.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from ede import encoder_passes, native
from ede.native import trained
from ede.networks import Impala, Network, Product

CHUNK = 64
"""Images at a time: 64 to 128 of 64×64 were best on every CPU measured (docs/performance.md)."""


class Compute:
    """The plain way, and what the others may do differently."""

    precision = "fp32"

    @torch.no_grad()
    def frozen_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        """[B, d] of observations [B, …], without a graph."""
        return network.encode(obs, context)

    def trained_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        """[B, d] with a graph."""
        return network.encode(obs, context)

    def product(self, features: Tensor, trained: int | None) -> Product:
        """For the heads; only the member ``trained`` (None: each) needs the gradient of its features."""

        def product(bias_M1H: Tensor, x_MBd: Tensor, weight_MdH: Tensor) -> Tensor:
            member = trained if x_MBd is features else None
            return self._product(bias_M1H, x_MBd, weight_MdH, member)

        return product

    def _product(self, bias_M1H: Tensor, x_MBd: Tensor, weight_MdH: Tensor, member: int | None) -> Tensor:
        if member is None:
            return torch.baddbmm(bias_M1H, x_MBd, weight_MdH)
        return _multiply(torch.bmm, bias_M1H, x_MBd, weight_MdH, weight_MdH, member)


@dataclass(frozen=True, eq=False)
class Casts:
    """Copies of parameters in another type, made anew only after the parameter has changed."""

    dtype: torch.dtype
    made: MutableMapping[Tensor, tuple[int, Tensor]] = field(default_factory=WeakTensorKeyDictionary)

    def of(self, parameter: Tensor) -> Tensor:
        if parameter.dtype == self.dtype:
            return parameter.detach()
        if not isinstance(parameter, nn.Parameter):  # such as a layer's weight plus its noise: new every time
            return parameter.detach().to(self.dtype)
        if parameter not in self.made or self.made[parameter][0] != parameter._version:
            self.made[parameter] = (parameter._version, parameter.detach().to(self.dtype))
        return self.made[parameter][1]


class Fused(Compute):
    """Few passes over memory on a CPU, in float32 or bf16."""

    def __init__(self, precision: str, chunk: int = CHUNK, native: bool = False) -> None:
        self.precision, self.chunk, self.native = precision, chunk, native
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.casts = Casts(self.dtype)

    @torch.no_grad()
    def frozen_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        if not isinstance(network.encoder, Impala):
            return network.encode(obs, context)
        convolutions = encoder_passes.convolutions(network.encoder)
        if arithmetic := self._arithmetic(obs):
            parameters = [parameter.detach() for pair in convolutions for parameter in pair]
            return network.join(native.features(obs, parameters, arithmetic), context)
        pairs = [(self.casts.of(weight), self.casts.of(bias)) for weight, bias in convolutions]
        return network.join(encoder_passes.frozen(obs, pairs, self.chunk).float(), context)

    def _arithmetic(self, obs: Tensor) -> str | None:
        """How machine code would multiply for these observations; None where it is not to be used."""
        return native.arithmetic_of(self.precision) if self.native and native.takes(obs) else None

    def trained_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        if not isinstance(network.encoder, Impala):
            return network.encode(obs, context)
        pairs = encoder_passes.convolutions(network.encoder)
        arithmetic = self._arithmetic(obs)
        if arithmetic and trained.available(self.precision):
            parameters = [parameter for pair in pairs for parameter in pair]
            return network.join(trained.features(obs, parameters, arithmetic), context)
        features = encoder_passes.trained(obs, pairs, self.dtype, self.chunk)
        return network.join(features.float(), context)

    def _product(self, bias_M1H: Tensor, x_MBd: Tensor, weight_MdH: Tensor, member: int | None) -> Tensor:
        multiply = torch.bmm if self.dtype == torch.bfloat16 else onednn_bmm
        return _multiply(multiply, bias_M1H, x_MBd, weight_MdH, self.casts.of(weight_MdH), member)


class Autocast(Compute):
    """bf16 where PyTorch's own rules allow it: for accelerators."""

    precision = "bf16"

    @torch.no_grad()
    def frozen_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        return self.trained_features(network, obs, context)

    def trained_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        with torch.autocast(obs.device.type, torch.bfloat16):
            return network.encode(obs, context).float()

    def _product(self, bias_M1H: Tensor, x_MBd: Tensor, weight_MdH: Tensor, member: int | None) -> Tensor:
        cast_MdH = weight_MdH.detach().to(torch.bfloat16)
        return _multiply(torch.bmm, bias_M1H, x_MBd, weight_MdH, cast_MdH, member)


Multiply = Callable[[Tensor, Tensor], Tensor]
"""As ``torch.bmm``."""


def onednn_bmm(x_MBd: Tensor, weight_MdH: Tensor) -> Tensor:
    """``torch.bmm`` of float32 through oneDNN: on AMD's processors in half the time of the MKL behind ``bmm``."""
    product_MBH = x_MBd.new_empty((*x_MBd.shape[:2], weight_MdH.shape[2]))
    for x_Bd, weight_dH, product_BH in zip(x_MBd, weight_MdH, product_MBH, strict=True):
        product_BH.copy_(torch.ops.mkldnn._linear_pointwise(x_Bd, weight_dH.T, None, "none", [], ""))
    return product_MBH


def _multiply(
    multiply: Multiply,
    bias_M1H: Tensor,
    x_MBd: Tensor,
    weight_MdH: Tensor,
    cast_MdH: Tensor,
    member: int | None,
) -> Tensor:
    product: Tensor = _Multiplied.apply(multiply, bias_M1H, x_MBd, weight_MdH, cast_MdH, member)  # type: ignore[no-untyped-call]
    return product


class _Multiplied(torch.autograd.Function):
    """baddbmm in the type of ``cast_MdH``, a copy of the weight; one member's gradient of x where one is named."""

    @staticmethod
    def forward(
        ctx: Any,
        multiply: Multiply,
        bias_M1H: Tensor,
        x_MBd: Tensor,
        weight_MdH: Tensor,
        cast_MdH: Tensor,
        member: int | None,
    ) -> Tensor:
        rounded_MBd = x_MBd.to(cast_MdH.dtype)
        ctx.save_for_backward(rounded_MBd, cast_MdH)
        ctx.multiply, ctx.member, ctx.dtype = multiply, member, weight_MdH.dtype
        if (
            multiply is torch.bmm and cast_MdH.dtype == bias_M1H.dtype
        ):  # to the bit what PLAIN does without a member
            return torch.baddbmm(bias_M1H, rounded_MBd, cast_MdH)
        return multiply(rounded_MBd, cast_MdH).to(bias_M1H.dtype).add_(bias_M1H)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_MBH: Tensor) -> tuple[Tensor | None, ...]:
        x_MBd, cast_MdH = ctx.saved_tensors
        rounded_MBH = gradient_MBH.to(cast_MdH.dtype)
        x_gradient = None
        if ctx.needs_input_grad[2]:
            learning = slice(None) if ctx.member is None else slice(ctx.member, ctx.member + 1)
            x_gradient = torch.zeros_like(x_MBd, dtype=ctx.dtype)
            x_gradient[learning] = ctx.multiply(rounded_MBH[learning], cast_MdH[learning].mT)
        weight_gradient = ctx.multiply(x_MBd.mT, rounded_MBH).to(ctx.dtype)
        return None, gradient_MBH.sum(1, keepdim=True), x_gradient, weight_gradient, None, None


PLAIN = Compute()


def choose(precision: str, network: Network) -> Compute:
    """The way of computing for a resolved precision (plain, fp32 or bf16) on the network's device."""
    parameter = next(network.parameters())
    if precision == "plain" or parameter.dtype != torch.float32:
        return PLAIN
    if parameter.device.type != "cpu":
        return Autocast() if precision == "bf16" else PLAIN
    if not isinstance(network.encoder, Impala) or not encoder_passes.available():
        return PLAIN
    return Fused(precision, native=native.available(precision))


def keep_memory() -> None:
    """Let the C library keep freed memory: else each large tensor is new pages, cleared by the system one by one."""
    if sys.platform != "linux":
        return
    trim_threshold, mmap_threshold, gigabyte = -1, -3, 1 << 30
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc's
        library.mallopt(mmap_threshold, gigabyte)
        library.mallopt(trim_threshold, 2 * gigabyte - 1)
