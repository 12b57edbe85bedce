"""What a network believes about returns: quantiles (or weighted atoms) for each member, state and action.

Axis letters: M members (heads), B batch, A actions, N quantiles or atoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class ReturnDistribution:
    """An ensemble of return distributions. Uncertainties are standard deviations, in units of return."""

    z_MBAN: Tensor
    """The quantiles θ_ij(s, a); one value for a scalar head; the fixed support for a categorical one."""
    p_MBAN: Tensor | None = None
    """The probability of each atom; None where all N weigh the same."""
    unbiased: bool = False
    """Divide the variance over members by M − 1, as the published code does, and not by M, as the paper."""

    def __post_init__(self) -> None:
        assert self.z_MBAN.ndim == 4, self.z_MBAN.shape
        assert self.p_MBAN is None or self.p_MBAN.shape == self.z_MBAN.shape
        assert self.p_MBAN is None or self.z_MBAN.shape[0] == 1, "atoms with weights have one member"

    @cached_property
    def q_MBA(self) -> Tensor:
        """Each member's expected return."""
        if self.p_MBAN is None:
            return self.z_MBAN.mean(-1)
        return (self.p_MBAN * self.z_MBAN).sum(-1)

    @cached_property
    def q(self) -> Tensor:
        """[B, A]: the expected return of the whole ensemble (below equation 2 of the paper)."""
        return self.q_MBA.mean(0)

    @cached_property
    def epistemic(self) -> Tensor:
        """[B, A]: σ̂_epi of equation 2, the members' disagreement about each quantile; zero for one member."""
        members = self.z_MBAN.shape[0]
        if members == 1:
            return torch.zeros_like(self.q)
        squares_MBAN = (self.z_MBAN - self.z_MBAN.mean(0)).square()  # a fiftieth of the time of var(0)
        return (squares_MBAN.sum(0).mean(-1) / (members - 1 if self.unbiased else members)).sqrt()

    @cached_property
    def aleatoric(self) -> Tensor:
        """[B, A]: σ̂_ale of equation 2, the spread of the members' mean quantiles."""
        if self.p_MBAN is None:
            return self.z_MBAN.mean(0).var(-1, correction=0).sqrt()
        deviation_BAN = self.z_MBAN[0] - self.q[..., None]
        return (self.p_MBAN[0] * deviation_BAN.square()).sum(-1).sqrt()

    @cached_property
    def total(self) -> Tensor:
        """[B, A]: the root of both variances together."""
        return (self.epistemic.square() + self.aleatoric.square()).sqrt()

    def take(self, actions: Tensor | npt.NDArray[Any]) -> Tensor:
        """[M, B, N]: the quantiles of chosen actions, [B] for all members or [M, B] for each its own."""
        action_MB = torch.as_tensor(actions, device=self.z_MBAN.device).expand(self.z_MBAN.shape[:2])
        return take(self.z_MBAN, action_MB)

    def to(self, device: torch.device | str) -> ReturnDistribution:
        p_MBAN = None if self.p_MBAN is None else self.p_MBAN.to(device)
        return ReturnDistribution(self.z_MBAN.to(device), p_MBAN, self.unbiased)


def take(x_MBAN: Tensor, action_MB: Tensor) -> Tensor:
    """[M, B, N]: the entries of one action each."""
    index = action_MB[..., None, None].expand(*action_MB.shape, 1, x_MBAN.shape[-1])
    return x_MBAN.gather(2, index).squeeze(2)
