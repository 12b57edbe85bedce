"""Explorers: pure functions from what the network believes to an action for every lane.

Axis letters: K lanes, A actions, M members. Each explorer is a frozen object without state of its own; what must
be remembered between steps (a running random action, a lane's head) is a dictionary of tensors that comes in and
goes out, and is reset for a lane at that lane's own episode end. Randomness comes in as a CPU generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol

import torch
from torch import Generator, Tensor

from ede.returns import ReturnDistribution

Reads = Mapping[str, str]


def reads(**fields: str) -> Reads:
    """Which field of a part is filled from which setting."""
    return MappingProxyType(fields)


NOTHING = reads()

State = dict[str, Tensor]
Uncertainty = Literal["epistemic", "aleatoric", "total"]
CoefficientKind = Literal["no coefficient", "a probability", "a multiple of the uncertainty"]


class Explorer(Protocol):
    reads: ClassVar[Reads]
    """Field → the setting it is filled from."""
    equations: ClassVar[str]
    """Where the paper (or its source) writes it down."""
    noisy: ClassVar[bool]
    """Whether the network's layers are noisy while acting."""
    minimum_members: ClassVar[int]
    """The smallest ensemble this explorer makes sense with."""
    takes: ClassVar[CoefficientKind]
    """What it makes of a lane's coefficient."""

    def begin(self, lanes: int, members: int, generator: Generator) -> State: ...

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]: ...

    def end(self, ended_K: Tensor, members: int, state: State, generator: Generator) -> State: ...


def greedy(values: ReturnDistribution) -> Tensor:
    """[K]: the action of highest mean over members and quantiles."""
    return values.q.argmax(-1)


@dataclass(frozen=True)
class _Memoryless:
    reads: ClassVar[Reads] = NOTHING
    noisy: ClassVar[bool] = False
    minimum_members: ClassVar[int] = 1
    takes: ClassVar[CoefficientKind] = "no coefficient"

    def begin(self, lanes: int, members: int, generator: Generator) -> State:
        return {}

    def end(self, ended_K: Tensor, members: int, state: State, generator: Generator) -> State:
        return state


@dataclass(frozen=True)
class EpsilonGreedy(_Memoryless):
    """A uniformly random action with probability ε_k, the lane's coefficient."""

    equations: ClassVar[str] = "appendix I, points of comparison"
    takes: ClassVar[CoefficientKind] = "a probability"

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]:
        lanes, actions = values.q.shape
        explore_K = torch.rand(lanes, generator=generator) < coefficient_K
        random_K = torch.randint(actions, (lanes,), generator=generator)
        return torch.where(explore_K, random_K, greedy(values)), state


@dataclass(frozen=True)
class EzGreedy:
    """εz-greedy: a random action is kept for n steps, P(n) ∝ n^−μ (Dabney et al. 2021)."""

    reads: ClassVar[Reads] = reads(mu="ez_mu", longest="ez_longest")
    equations: ClassVar[str] = "appendix I, points of comparison; Dabney et al. 2021"
    noisy: ClassVar[bool] = False
    minimum_members: ClassVar[int] = 1
    takes: ClassVar[CoefficientKind] = "a probability"
    mu: float = 2.0
    longest: int = 10_000

    def begin(self, lanes: int, members: int, generator: Generator) -> State:
        return {
            "action_K": torch.zeros(lanes, dtype=torch.int64),
            "left_K": torch.zeros(lanes, dtype=torch.int64),
        }

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]:
        lanes, actions = values.q.shape
        start_K = (state["left_K"] == 0) & (torch.rand(lanes, generator=generator) < coefficient_K)
        random_K = torch.randint(actions, (lanes,), generator=generator)
        duration_K = self.durations(torch.rand(lanes, generator=generator, dtype=torch.float64))
        action_K = torch.where(start_K, random_K, state["action_K"])
        left_K = torch.where(start_K, duration_K, state["left_K"])
        chosen_K = torch.where(left_K > 0, action_K, greedy(values))
        return chosen_K, {"action_K": action_K, "left_K": (left_K - 1).clamp(min=0)}

    def durations(self, uniform_K: Tensor) -> Tensor:
        """The truncated zeta distribution by inversion of its cumulative sum."""
        weights = torch.arange(1, self.longest + 1, dtype=torch.float64) ** -self.mu
        cumulative = weights.cumsum(0) / weights.sum()
        return torch.searchsorted(cumulative, uniform_K).clamp(max=self.longest - 1) + 1

    def end(self, ended_K: Tensor, members: int, state: State, generator: Generator) -> State:
        return {**state, "left_K": torch.where(ended_K, 0, state["left_K"])}


@dataclass(frozen=True)
class HeadPerEpisode:
    """Bootstrapped DQN: each lane follows one member, drawn anew at each of its episodes."""

    reads: ClassVar[Reads] = NOTHING
    equations: ClassVar[str] = "appendix I, points of comparison; Osband et al. 2016"
    noisy: ClassVar[bool] = False
    minimum_members: ClassVar[int] = 2
    takes: ClassVar[CoefficientKind] = "no coefficient"

    def begin(self, lanes: int, members: int, generator: Generator) -> State:
        return {"head_K": torch.randint(members, (lanes,), generator=generator)}

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]:
        lanes = torch.arange(values.q.shape[0])
        return values.q_MBA[state["head_K"], lanes].argmax(-1), state

    def end(self, ended_K: Tensor, members: int, state: State, generator: Generator) -> State:
        fresh_K = torch.randint(members, ended_K.shape, generator=generator)
        return {"head_K": torch.where(ended_K, fresh_K, state["head_K"])}


@dataclass(frozen=True)
class Ucb(_Memoryless):
    """argmax Q + φ_k σ (equations 4 and 5): optimism in the face of the chosen uncertainty."""

    equations: ClassVar[str] = "σ of equation 2 in equation 4, by lane in equation 5; algorithm 2"
    of: Uncertainty = "epistemic"
    minimum_members: ClassVar[int] = 2
    takes: ClassVar[CoefficientKind] = "a multiple of the uncertainty"

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]:
        bonus_KA = coefficient_K[:, None] * getattr(values, self.of)
        return (values.q + bonus_KA).argmax(-1), state


@dataclass(frozen=True)
class Thompson(_Memoryless):
    """argmax of a draw from N(Q, φ σ) (equation 3), independent for every lane and action."""

    equations: ClassVar[str] = "σ of equation 2 in equation 3; algorithm 2"
    of: Uncertainty = "epistemic"
    minimum_members: ClassVar[int] = 2
    takes: ClassVar[CoefficientKind] = "a multiple of the uncertainty"

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]:
        normal_KA = torch.randn(values.q.shape, generator=generator, dtype=values.q.dtype)
        spread_KA = coefficient_K[:, None] * getattr(values, self.of)
        return (values.q + spread_KA * normal_KA).argmax(-1), state


@dataclass(frozen=True)
class NoisyGreedy(_Memoryless):
    """Greedy under a fresh draw of the layers' noise: NoisyNet's exploration."""

    equations: ClassVar[str] = "appendix I, points of comparison; Fortunato et al. 2018"
    noisy: ClassVar[bool] = True

    def act(
        self, values: ReturnDistribution, coefficient_K: Tensor, state: State, generator: Generator
    ) -> tuple[Tensor, State]:
        return greedy(values), state


def equalized(lanes: int, base: float, alpha: float) -> Tensor:
    """[K]: λ^(1 + α·k/(K−1)), temporally equalized exploration (equation 5); a single lane has k/(K−1) = 0."""
    place_K = torch.linspace(0, 1, lanes, dtype=torch.float64) if lanes > 1 else torch.zeros(1).double()
    return (base ** (1 + alpha * place_K)).to(torch.get_default_dtype())
