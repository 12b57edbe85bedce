"""Losses of value-based agents: pure functions of tensors, never reduced over the batch.

Weights, masks and the mean over the batch belong to the learner; γ, n and the end of episodes are already in the
batch's ``discount``. Whoever chooses the greedy action is an argument (``take_greedy``), so double-Q is not a flag.
No gradient flows into a target.

Axis letters: B batch (any leading axes), A actions, N current quantiles or atoms, T target quantiles or atoms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional


def bellman(reward: Tensor, discount: Tensor, z: Tensor) -> Tensor:
    """The sample of the target's return, r + discount·z: [...], [...], [..., N] → [..., N].

    ``discount`` is γ^k·(1 − terminated) of each transition.
    """
    assert reward.shape == discount.shape == z.shape[:-1], (reward.shape, discount.shape, z.shape)
    return reward.unsqueeze(-1) + discount.unsqueeze(-1) * z


def take_greedy(z_BAN: Tensor, q_BA: Tensor) -> Tensor:
    """The quantiles of the action that is greedy under ``q_BA``: z_BN.

    With q from the network that also made z this is the plain target; with q from the online network it is
    double-Q. Ties go to the first action, as in ``argmax``.
    """
    assert z_BAN.shape[:-1] == q_BA.shape, (z_BAN.shape, q_BA.shape)
    action_B1 = q_BA.argmax(dim=-1, keepdim=True)
    return torch.take_along_dim(z_BAN, action_B1.unsqueeze(-1), dim=-2).squeeze(-2)


def huber(current: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """L_κ(target − current), element by element (appendix on QR-DQN): not divided by κ."""
    assert current.shape == target.shape, (current.shape, target.shape)
    return functional.huber_loss(current, target.detach(), reduction="none", delta=kappa)


def categorical_projection(support: Tensor, target_support: Tensor, target_probability: Tensor) -> Tensor:
    """C51's projection of a distribution onto the fixed, evenly spaced support: [N], [..., T], [..., T] → [..., N].

    Each target atom, clipped to the support's ends, shares its probability between its two neighbours in proportion
    to their nearness: atom i receives (1 − |y − z_i|/Δz)₊. Memory O(N·T) for a row, without scattered additions, so
    it is the same to the bit on every run.
    """
    assert target_support.shape == target_probability.shape, (target_support.shape, target_probability.shape)
    assert support.dim() == 1, support.shape
    assert len(support) > 1, support.shape
    spacing = (support[-1] - support[0]) / (len(support) - 1)
    clipped_BT = torch.minimum(torch.maximum(target_support, support[0]), support[-1])
    share_BTN = (1 - (clipped_BT.unsqueeze(-1) - support).abs() / spacing).clamp(min=0)
    return (target_probability.unsqueeze(-2) @ share_BTN).squeeze(-2)


def categorical_cross_entropy(logits: Tensor, target_probability: Tensor) -> Tensor:
    """−Σ_i p_i log softmax(logits)_i, [..., N] → [...]: C51's loss, and Rainbow's priority."""
    assert logits.shape == target_probability.shape, (logits.shape, target_probability.shape)
    return -(target_probability.detach() * logits.log_softmax(dim=-1)).sum(dim=-1)


def quantile_huber(current: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """The quantile Huber loss: Σ_j mean_i ρ^κ_τ̂_j(target_i − current_j), [..., N], [..., T] → [...].

    ρ^κ_τ(u) = |τ − 1(u < 0)|·L_κ(u) and τ̂_j = (2j − 1)/2N belongs to the j-th *current* quantile; neither side
    need be sorted. The sum over current and the mean over target are the paper's (docs/decisions/loss.md).

    Exact in O((N + T) log(N + T)) time and O(N + T) memory. With v = |u| the Huber loss is v²/2 − (v − κ)₊²/2. So
    with the lower tail G(t) = Σ_{y_i < t} (t − y_i)²/2 the targets below θ contribute G(θ) − G(θ − κ), and with the
    upper tail U(t) = Σ_{y_i ≥ t} (y_i − t)²/2 those above it U(θ) − U(θ + κ). Both tails are quadratics whose
    coefficients are prefix sums of the sorted target.
    """
    assert current.shape[:-1] == target.shape[:-1], (current.shape, target.shape)
    assert kappa > 0, kappa
    loss: Tensor = _QuantileHuber.apply(current, target, kappa)  # type: ignore[no-untyped-call]
    return loss


CPU_ROWS = 32
"""Rows of 200 quantiles whose float64 intermediates fit in a core's second-level cache (benchmarks/losses.py)."""


class _QuantileHuber(torch.autograd.Function):
    """Value and gradient together: the gradient costs four more operations on what the value has computed."""

    @staticmethod
    def forward(ctx: FunctionCtx, current: Tensor, target: Tensor, kappa: float) -> Tensor:
        loss, gradient = _quantile_huber_with_gradient(current, target, kappa)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_gradient: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * loss_gradient.unsqueeze(-1).to(gradient.dtype), None, None


def _quantile_huber_with_gradient(current: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """On the CPU a few rows at a time, so that every intermediate stays in the cache."""
    if current.device.type != "cpu" or current.dim() == 1:
        return _quantile_huber_of_rows(current, target, kappa)
    current_BN, target_BT = current.flatten(0, -2), target.flatten(0, -2)
    loss_B = current.new_empty(len(current_BN), dtype=_loss_dtype(current))
    gradient_BN = torch.empty_like(current_BN)
    for start in range(0, len(current_BN), CPU_ROWS):
        rows = slice(start, start + CPU_ROWS)
        loss_B[rows], gradient_BN[rows] = _quantile_huber_of_rows(current_BN[rows], target_BT[rows], kappa)
    return loss_B.view(current.shape[:-1]), gradient_BN.view(current.shape)


def _quantile_huber_of_rows(current: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """Sums in float64 around each row's middle target: prefix sums cancel, and float32 would show it.

    Sorting ``current`` too changes nothing but the time: searches for neighbours take the same branches.
    """
    quantiles, targets = current.shape[-1], target.shape[-1]
    order_BN = _argsort(current)
    ordered_BT = _sort(target).double()
    middle_B1 = ordered_BT[..., targets // 2, None]
    ordered_BT = ordered_BT - middle_B1
    theta_BN = current.gather(-1, order_BN).double() - middle_B1

    # Of the targets below θ − κ, θ and θ + κ: how many, their sum and the sum of their squares.
    point_B3N = torch.cat((theta_BN - kappa, theta_BN, theta_BN + kappa), dim=-1)
    count_B3N = torch.searchsorted(ordered_BT, point_B3N)
    first_BT = functional.pad(ordered_BT.cumsum(dim=-1), (1, 0))
    second_BT = functional.pad(ordered_BT.square().cumsum(dim=-1), (1, 0))
    first_B3N, second_B3N = first_BT.gather(-1, count_B3N), second_BT.gather(-1, count_B3N)

    here = slice(quantiles, None)
    above, above_slope = _tail_difference(
        point_B3N[..., here],
        targets - count_B3N[..., here],
        first_BT[..., -1:] - first_B3N[..., here],
        second_BT[..., -1:] - second_B3N[..., here],
    )
    here = slice(2 * quantiles)
    below, below_slope = _tail_difference(
        point_B3N[..., here], count_B3N[..., here], first_B3N[..., here], second_B3N[..., here]
    )
    tau_BN = (order_BN.double() + 0.5) / quantiles
    loss_B = (tau_BN * above - (1 - tau_BN) * below).sum(dim=-1) / targets
    gradient_BN = (tau_BN * above_slope - (1 - tau_BN) * below_slope) / targets
    gradient_BN = torch.empty_like(gradient_BN).scatter_(-1, order_BN, gradient_BN)
    return loss_B.to(_loss_dtype(current)), gradient_BN.to(current.dtype)


def _tail_difference(
    point_B2N: Tensor, count_B2N: Tensor, first_B2N: Tensor, second_B2N: Tensor
) -> tuple[Tensor, Tensor]:
    """G(s) − G(t) and G'(s) − G'(t) for points (s, t): G(t) = Σ(t − y)²/2, from the count and the sums of y and y²."""
    slope_B2N = count_B2N * point_B2N - first_B2N
    tail_B2N = 0.5 * (point_B2N * (slope_B2N - first_B2N) + second_B2N)
    (tail_s, tail_t), (slope_s, slope_t) = tail_B2N.chunk(2, dim=-1), slope_B2N.chunk(2, dim=-1)
    return tail_s - tail_t, slope_s - slope_t


def _sort(values: Tensor) -> Tensor:
    """NumPy's sort uses the CPU's vector units and is 30 times PyTorch's there (benchmarks/losses.py)."""
    if values.device.type != "cpu":
        return values.sort(dim=-1).values
    return torch.from_numpy(np.sort(values.to(_loss_dtype(values)).numpy(), axis=-1))


def _argsort(values: Tensor) -> Tensor:
    """As ``_sort``; ties in any order, since equal quantiles may exchange their places in a sum."""
    if values.device.type != "cpu":
        return values.argsort(dim=-1)
    return torch.from_numpy(np.argsort(values.to(_loss_dtype(values)).numpy(), axis=-1))


def _loss_dtype(current: Tensor) -> torch.dtype:
    return torch.promote_types(current.dtype, torch.float32)
