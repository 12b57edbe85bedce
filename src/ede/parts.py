"""The parts a method is composed of: what its outputs mean, how it is trained and how strongly it explores.

A part is a frozen dataclass. Its numbers are filled in from the run's settings by ``filled``: ``reads`` says which
field comes from which setting, so that a setting no part reads can be refused.

Axis letters: M members, B batch, A actions, N quantiles or atoms, K lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from ede import losses
from ede.explore import NOTHING, CoefficientKind, Reads, equalized, reads
from ede.returns import ReturnDistribution

Some = TypeVar("Some")


def filled(part: Some, settings: Any) -> Some:
    """The part with its numbers taken from the settings."""
    numbers = {field: getattr(settings, name) for field, name in part.reads.items()}  # type: ignore[attr-defined]
    return replace(part, **numbers) if numbers else part  # type: ignore[type-var]


# ---- heads: what the network's outputs mean ---------------------------------------------------------------------


class Head(Protocol):
    reads: ClassVar[Reads]
    loss_rule: ClassVar[str]
    equations: ClassVar[str]
    """Of the loss, in the paper or its source."""

    @property
    def outputs(self) -> int:
        """Outputs N for each action."""
        ...

    def returns(self, raw_MBAN: Tensor, unbiased: bool) -> ReturnDistribution: ...

    def loss(self, raw_MBN: Tensor, target_MBN: Tensor, p_MBN: Tensor | None) -> Tensor:
        """[M, B]: the loss of the taken actions' outputs towards target returns (with weights, if any)."""
        ...


@dataclass(frozen=True)
class Scalar:
    """One expected value an action."""

    reads: ClassVar[Reads] = reads(kappa="kappa")
    loss_rule: ClassVar[str] = "Huber loss of the temporal difference."
    equations: ClassVar[str] = "L_κ of appendix D"
    kappa: float = 1.0

    @property
    def outputs(self) -> int:
        return 1

    def returns(self, raw_MBAN: Tensor, unbiased: bool) -> ReturnDistribution:
        return ReturnDistribution(raw_MBAN, unbiased=unbiased)

    def loss(self, raw_MBN: Tensor, target_MBN: Tensor, p_MBN: Tensor | None) -> Tensor:
        return losses.huber(raw_MBN, target_MBN, self.kappa).sum(-1)


@dataclass(frozen=True)
class Quantile:
    """N quantiles of the return an action."""

    reads: ClassVar[Reads] = reads(quantiles="quantiles", kappa="kappa")
    loss_rule: ClassVar[str] = "Quantile Huber loss: sum over current, mean over target quantiles."
    equations: ClassVar[str] = "equation 16"
    quantiles: int = 200
    kappa: float = 1.0

    @property
    def outputs(self) -> int:
        return self.quantiles

    def returns(self, raw_MBAN: Tensor, unbiased: bool) -> ReturnDistribution:
        return ReturnDistribution(raw_MBAN, unbiased=unbiased)

    def loss(self, raw_MBN: Tensor, target_MBN: Tensor, p_MBN: Tensor | None) -> Tensor:
        return losses.quantile_huber(raw_MBN, target_MBN, self.kappa)


@dataclass(frozen=True)
class Categorical:
    """Probabilities of fixed returns (atoms) an action."""

    reads: ClassVar[Reads] = reads(atoms="atoms", v_min="v_min", v_max="v_max")
    loss_rule: ClassVar[str] = "Cross-entropy towards the target projected onto the atoms."
    equations: ClassVar[str] = "Bellemare et al. 2017"
    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0

    @property
    def outputs(self) -> int:
        return self.atoms

    def support(self, like: Tensor) -> Tensor:
        return torch.linspace(self.v_min, self.v_max, self.atoms, dtype=like.dtype, device=like.device)

    def returns(self, raw_MBAN: Tensor, unbiased: bool) -> ReturnDistribution:
        p_MBAN = raw_MBAN.softmax(-1)
        return ReturnDistribution(self.support(raw_MBAN).expand(p_MBAN.shape), p_MBAN)

    def loss(self, raw_MBN: Tensor, target_MBN: Tensor, p_MBN: Tensor | None) -> Tensor:
        assert p_MBN is not None
        projected_MBN = losses.categorical_projection(self.support(raw_MBN), target_MBN, p_MBN)
        return losses.categorical_cross_entropy(raw_MBN, projected_MBN)


# ---- how it is trained ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Single:
    """One head."""

    reads: ClassVar[Reads] = NOTHING
    equations: ClassVar[str] = "appendix D"
    members: ClassVar[int] = 1
    unbiased: ClassVar[bool] = False


@dataclass(frozen=True)
class Ensemble:
    """M heads on one encoder, each trained on its own minibatches from its own initial weights."""

    reads: ClassVar[Reads] = reads(members="members", unbiased="unbiased_variance")
    equations: ClassVar[str] = "section 4, algorithm 1"
    members: int = 5
    unbiased: bool = False


@dataclass(frozen=True)
class Target:
    """Whose quantiles at whose greedy action a member learns from."""

    mean: bool = False
    """The mean of all members' target quantiles, and not the member's own."""
    double: bool = False
    """The online network chooses the action that the target network judges."""

    @property
    def sentence(self) -> str:
        judge = "the mean of the target heads" if self.mean else "each member's own target head"
        actor = "the member's online head" if self.double else "that same judge"
        return f"Outputs of {judge} at the greedy action of {actor}."

    @property
    def equations(self) -> str:
        source = "equation 15, with the mean of the members" if self.mean else "equation 15, algorithm 3"
        return f"{source}; a* as in van Hasselt et al. 2016" if self.double else source


@dataclass(frozen=True)
class OneMember:
    """One member, drawn at random at each update, trains the encoder."""

    equations: ClassVar[str] = "algorithm 3, lines 2 and 9 to 11"


@dataclass(frozen=True)
class AllMembers:
    """Every member trains the encoder."""

    normalised: bool = False
    """Divide the gradient that enters the encoder by M."""

    @property
    def sentence(self) -> str:
        return f"Every member trains the encoder{', each by 1/M of its gradient' if self.normalised else ''}."

    @property
    def equations(self) -> str:
        return (
            "Osband et al. 2016" if self.normalised else "appendix J, the ablation of the feature extractor"
        )


@dataclass(frozen=True)
class Noisy:
    """NoisyNet layers in the heads, with factorised noise."""

    reads: ClassVar[Reads] = reads(sigma0="sigma0")
    equations: ClassVar[str] = "Fortunato et al. 2018"
    sigma0: float = 0.5


@dataclass(frozen=True)
class Anchor:
    """A pull of the heads towards their initial weights: randomised MAP sampling."""

    reads: ClassVar[Reads] = reads(strength="anchor")
    equations: ClassVar[str] = "Clements et al. 2019; Pearce et al. 2020"
    strength: float = 1e-4


@dataclass(frozen=True)
class Uniform:
    """Every stored transition is as likely as any other; each member draws its own minibatch."""

    reads: ClassVar[Reads] = NOTHING
    equations: ClassVar[str] = "algorithm 3, line 4"


@dataclass(frozen=True)
class Masked:
    """A transition trains only the members that its own random mask names: the bootstrap."""

    reads: ClassVar[Reads] = reads(probability="mask_probability")
    equations: ClassVar[str] = "Osband et al. 2016"
    probability: float = 0.5


@dataclass(frozen=True)
class Prioritized:
    """Transitions drawn in proportion to their last loss."""

    reads: ClassVar[Reads] = reads(alpha="priority_alpha", beta="priority_beta")
    equations: ClassVar[str] = "Schaul et al. 2016"
    alpha: float = 0.5
    beta: float = 0.4


# ---- how strongly a lane explores -------------------------------------------------------------------------------


class Coefficient(Protocol):
    reads: ClassVar[Reads]
    equations: ClassVar[str]
    kind: ClassVar[CoefficientKind]
    """What it is; an explorer takes one kind."""

    def of_lanes(self, lanes: int, vector_step: int) -> Tensor:
        """[K]: the coefficient of each lane after so many steps of all lanes."""
        ...


@dataclass(frozen=True)
class Zero:
    """No coefficient: the explorer needs none."""

    reads: ClassVar[Reads] = NOTHING
    equations: ClassVar[str] = "–"
    kind: ClassVar[CoefficientKind] = "no coefficient"

    def of_lanes(self, lanes: int, vector_step: int) -> Tensor:
        return torch.zeros(lanes)


@dataclass(frozen=True)
class Constant:
    """The same φ in every lane, at all times."""

    reads: ClassVar[Reads] = reads(value="phi")
    equations: ClassVar[str] = "equations 3 and 4"
    kind: ClassVar[CoefficientKind] = "a multiple of the uncertainty"
    value: float = 30.0

    def of_lanes(self, lanes: int, vector_step: int) -> Tensor:
        return torch.full((lanes,), self.value)


@dataclass(frozen=True)
class Decay:
    """ε(t) = min(ε_final + (1 − ε_final)·exp(−(t − start)/length), 1), t in vector steps."""

    reads: ClassVar[Reads] = reads(final="epsilon_final", start="epsilon_start", length="epsilon_decay")
    equations: ClassVar[str] = "appendix I, points of comparison"
    kind: ClassVar[CoefficientKind] = "a probability"
    final: float = 0.1
    start: int = 2_000
    length: int = 8_000

    def of_lanes(self, lanes: int, vector_step: int) -> Tensor:
        fallen = exp(-max(vector_step - self.start, 0) / self.length)
        return torch.full((lanes,), self.final + (1 - self.final) * fallen)


@dataclass(frozen=True)
class Equalized:
    """φ λ^(1 + α k/(K−1)): temporally equalized exploration, each lane its own strength."""

    reads: ClassVar[Reads] = reads(phi="phi", base="tee_lambda", alpha="tee_alpha")
    equations: ClassVar[str] = "equation 5"
    kind: ClassVar[CoefficientKind] = "a multiple of the uncertainty"
    phi: float = 30.0
    base: float = 0.6
    alpha: float = 7.0

    def of_lanes(self, lanes: int, vector_step: int) -> Tensor:
        return self.phi * equalized(lanes, self.base, self.alpha)


@dataclass(frozen=True)
class EqualizedEpsilon:
    """ε_k = λ^(1 + α k/(K−1)), constant over time: TEE for ε-greedy."""

    reads: ClassVar[Reads] = reads(base="tee_lambda", alpha="tee_alpha")
    equations: ClassVar[str] = "appendix I, points of comparison, with the exponent of equation 5"
    kind: ClassVar[CoefficientKind] = "a probability"
    base: float = 0.6
    alpha: float = 7.0

    def of_lanes(self, lanes: int, vector_step: int) -> Tensor:
        return equalized(lanes, self.base, self.alpha)
