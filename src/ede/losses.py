"""Losses of value-based agents: pure functions of tensors, never reduced over the batch.

Weights, masks and the mean over the batch belong to the learner; γ, n and the end of episodes are already in the
batch's ``discount``. Whoever chooses the greedy action is an argument (``take_greedy``), so double-Q is not a flag.
No gradient flows into a target.

Axis letters: B batch (any leading axes), A actions, N current quantiles or atoms, T target quantiles or atoms.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from ede.errors import EdeError


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

    Exact in O((N + T) log(N + T)) time and O(N + T) memory: for each θ the targets fall into four stretches, where the
    loss is linear, quadratic, quadratic and linear in θ, with coefficients that are differences of prefix sums of the
    sorted target. The pair-by-pair definition, [..., N, T], is the tests' twin.
    """
    assert current.shape[:-1] == target.shape[:-1], (current.shape, target.shape)
    assert current.shape[-1] > 0, current.shape
    assert target.shape[-1] > 0, target.shape
    assert 0 < kappa < inf, kappa
    loss: Tensor = _QuantileHuber.apply(current, target, kappa)  # type: ignore[no-untyped-call]
    return loss


CPU_NUMBERS = 2**15
"""Numbers in an intermediate on the CPU: PyTorch gives larger ones to all threads, which gain nothing here and wait
for each other after every operation; they would leave the cache, too."""


class _QuantileHuber(torch.autograd.Function):
    """Value and gradient together: the gradient needs little that the value has not computed."""

    @staticmethod
    def forward(ctx: FunctionCtx, current: Tensor, target: Tensor, kappa: float) -> Tensor:
        loss, gradient = _quantile_huber_with_gradient(current, target, kappa)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, loss_gradient: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # create_graph: the second derivative would silently be zero
            raise EdeError("quantile_huber has a first derivative only; call backward without create_graph.")
        (gradient,) = ctx.saved_tensors
        return gradient * loss_gradient.unsqueeze(-1).to(gradient.dtype), None, None


def _quantile_huber_with_gradient(current: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    current_BN, target_BT = current.reshape(-1, current.shape[-1]), target.reshape(-1, target.shape[-1])
    loss_B = current.new_empty(len(current_BN), dtype=_loss_dtype(current))
    gradient_BN = torch.empty_like(current_BN)
    step = max(1, len(current_BN))
    if current.device.type == "cpu":
        step = max(1, CPU_NUMBERS // (1 + max(current.shape[-1], target.shape[-1])))
    for start in range(0, len(current_BN), step):
        part = slice(start, start + step)
        loss_B[part], gradient_BN[part] = _quantile_huber_of_rows(current_BN[part], target_BT[part], kappa)
    return loss_B.view(current.shape[:-1]), gradient_BN.view(current.shape)


def _quantile_huber_of_rows(current_BN: Tensor, target_BT: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """Sums in float64 around each row's middle target: prefix sums cancel, and float32 would show it."""
    quantiles, targets = current_BN.shape[-1], target_BT.shape[-1]
    order_BN = _argsort(current_BN)
    ordered_BT = _sort(target_BT).double()
    middle_B1 = ordered_BT[:, targets // 2, None]
    ordered_BT = ordered_BT - middle_B1
    theta_BN = current_BN.gather(-1, order_BN).double() - middle_B1

    # Of the targets below θ − κ, θ and θ + κ: how many, their sum, and the sum of their squares.
    points = (theta_BN - kappa, theta_BN, theta_BN + kappa)
    first_BT = functional.pad(ordered_BT.cumsum(dim=-1), (1, 0))
    second_BT = functional.pad(ordered_BT.square().cumsum(dim=-1), (1, 0))
    below = [_count_below(ordered_BT, point_BN, _loss_dtype(current_BN)) for point_BN in points]
    count = [below_BN.double() for below_BN in below]
    first = [first_BT.gather(-1, below_BN) for below_BN in below]
    second = [second_BT.gather(-1, below_BN) for below_BN in below]

    # Each side: Σκ(|θ − y| − κ/2) over the targets farther than κ, and Σ(θ − y)²/2 over the nearer ones.
    slope_below, value_below = _quadratic(
        theta_BN, count[1] - count[0], first[1] - first[0], second[1] - second[0]
    )
    slope_below += kappa * count[0]
    value_below += kappa * (count[0] * (theta_BN - 0.5 * kappa) - first[0])
    slope_above, value_above = _quadratic(
        theta_BN, count[2] - count[1], first[2] - first[1], second[2] - second[1]
    )
    sum_B1 = first_BT[:, -1:]
    count_far, first_far = (
        targets + 0 * sum_B1 - count[2],
        sum_B1 - first[2],
    )  # 0 · NaN: no target's is hidden
    slope_above -= kappa * count_far
    value_above += kappa * (first_far - count_far * (theta_BN + 0.5 * kappa))

    tau_BN = (order_BN.double() + 0.5) / quantiles
    loss_B = torch.lerp(value_below, value_above, tau_BN).sum(dim=-1) / targets
    gradient_BN = torch.lerp(slope_below, slope_above, tau_BN) / targets
    gradient_BN = torch.empty_like(gradient_BN).scatter_(-1, order_BN, gradient_BN)
    return loss_B.to(_loss_dtype(current_BN)), gradient_BN.to(current_BN.dtype)


def _quadratic(
    theta_BN: Tensor, count_BN: Tensor, first_BN: Tensor, second_BN: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ(θ − y) and Σ(θ − y)²/2 from the count of the y, their sum and the sum of their squares."""
    slope_BN = count_BN * theta_BN - first_BN
    return slope_BN, 0.5 * (theta_BN * (slope_BN - first_BN) + second_BN)


def _count_below(ordered_BT: Tensor, point_BN: Tensor, dtype: torch.dtype) -> Tensor:
    """How many targets lie below each point; both inputs sorted.

    The loss and its gradient are continuous where a target changes its stretch, so a count that errs for a target
    within rounding of the point does no harm. On the CPU that permits a merge by NumPy's sort, of numbers rounded to
    ``dtype`` and with the last bit telling targets from points; it takes half the time of a binary search.
    """
    if ordered_BT.device.type != "cpu":
        return torch.searchsorted(ordered_BT, point_BN)
    target_key, point_key = _sortable_bits(ordered_BT, dtype), _sortable_bits(point_BN, dtype)
    keys = np.concatenate((target_key | 1, point_key & ~1), axis=-1)
    keys.sort(axis=-1)
    place_BN = np.flatnonzero(keys & 1 == 0).reshape(point_BN.shape)
    # Before the k-th point of row b lie k other points and all numbers of b rows.
    others_BN = np.arange(len(keys))[:, None] * keys.shape[-1] + np.arange(point_BN.shape[-1])
    return torch.from_numpy(place_BN - others_BN)


def _sortable_bits(values: Tensor, dtype: torch.dtype) -> npt.NDArray[Any]:
    """Integers in the order of the numbers; a NaN becomes one of the largest or smallest."""
    whole, sign, rest = (np.int32, 31, 2**31 - 1) if dtype == torch.float32 else (np.int64, 63, 2**63 - 1)
    bits: npt.NDArray[Any] = values.to(dtype).numpy().view(whole)
    return np.bitwise_xor(bits, bits >> sign & rest)


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
