"""Judging a policy: exactly N episodes on chosen contexts, under a protocol that is saved with every number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Generator

from ede.contexts import Contexts
from ede.envs import Lanes
from ede.errors import EdeError
from ede.explore import EpsilonGreedy
from ede.interaction import Actor, interact
from ede.parts import Constant
from ede.policy import Policy


@dataclass(frozen=True)
class Protocol:
    """How an evaluation is done; train and test are judged alike but for the contexts."""

    contexts: str
    episodes: int
    epsilon: float = 0.05
    """Probability of a uniformly random action."""
    rule: str = "greedy on the mean over members and quantiles, noise off"

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise EdeError(f"epsilon is a probability, between 0 and 1; got {self.epsilon}.")


@dataclass(frozen=True)
class Episodes:
    """What came of it, episode by episode."""

    protocol: Protocol
    returns: npt.NDArray[np.float64]
    """Raw, undiscounted."""
    lengths: npt.NDArray[np.int64]
    contexts: npt.NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": asdict(self.protocol),
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "contexts": self.contexts.tolist(),
        }


def quotas(episodes: int, lanes: int) -> npt.NDArray[np.int64]:
    """[K]: how many episodes each lane contributes; fixed before the first step.

    Taking the first N to finish would favour short episodes.
    """
    return episodes // lanes + (np.arange(lanes) < episodes % lanes).astype(np.int64)


def evaluate(
    policy: Policy,
    lanes: Lanes,
    protocol: Protocol,
    generator: Generator,
    on_episode: Callable[[int], None] | None = None,
) -> Episodes:
    """Play ``protocol.episodes`` episodes; each lane plays its quota, and what it plays beyond it is not counted."""
    assert Contexts.parse(protocol.contexts) == lanes.contexts, (protocol.contexts, lanes.contexts)
    actor = Actor(policy, EpsilonGreedy(), Constant(protocol.epsilon), lanes, generator)
    left_K = quotas(protocol.episodes, lanes.lanes)
    return_K, length_K = np.zeros(lanes.lanes), np.zeros(lanes.lanes, dtype=np.int64)
    finished: list[tuple[float, int, int]] = []
    for moment in interact(lanes, actor):
        return_K += moment.step.reward
        length_K += 1
        for lane in moment.step.ended:
            if left_K[lane] > 0:
                left_K[lane] -= 1
                finished.append((return_K[lane], length_K[lane], int(moment.step.context[lane])))
                if on_episode:
                    on_episode(len(finished))
            return_K[lane], length_K[lane] = 0.0, 0
        if not left_K.any():
            break
    returns, lengths, contexts = zip(*finished, strict=True)
    return Episodes(protocol, np.array(returns), np.array(lengths), np.array(contexts))


class Examiner:
    """The lanes of one split, made once and judged from the same start each time, where the world allows."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        lanes.reset()
        self.start = lanes.save() if lanes.spec.can_save else None

    def examine(
        self,
        policy: Policy,
        protocol: Protocol,
        generator: Generator,
        on_episode: Callable[[int], None] | None = None,
    ) -> Episodes:
        if self.start is None:
            self.lanes.reset()
        else:
            self.lanes.restore(self.start)
        return evaluate(policy, self.lanes, protocol, generator, on_episode)
