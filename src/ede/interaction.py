"""Acting in lanes: the one generator that training and evaluation both consume.

Axis letters: K lanes, S stacked frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ede.envs import Lanes, Observations, Step
from ede.explore import Explorer
from ede.parts import Coefficient
from ede.policy import Policy
from ede.returns import ReturnDistribution

Actions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Moment:
    """One step of all lanes, with what led to it."""

    obs: Observations
    """What was acted on: one frame a lane, not stacked."""
    actions: Actions
    values: ReturnDistribution | None
    """What the network believed; None while acting uniformly at random."""
    step: Step


class FrameStack:
    """The last S frames of each lane's episode joined along the channels, oldest first, zeros before its start."""

    def __init__(self, frames: int, lanes: int, obs_shape: tuple[int, ...], dtype: str) -> None:
        self.frames = frames
        self.stacked = np.zeros((lanes, *stacked_shape(obs_shape, frames)), dtype)

    def push(self, obs: Observations, first_K: npt.NDArray[np.bool_]) -> Observations:
        """The stack with one more frame; lanes at their episode's first frame forget the old ones."""
        if self.frames == 1:
            return obs
        channels = obs.shape[-1]
        shifted = np.zeros_like(self.stacked)
        shifted[..., :-channels] = self.stacked[..., channels:]
        shifted[first_K] = 0
        shifted[..., -channels:] = obs
        self.stacked = shifted
        return shifted


def stacked_shape(obs_shape: tuple[int, ...], frames: int) -> tuple[int, ...]:
    """The shape of one stacked observation."""
    return (*obs_shape[:-1], obs_shape[-1] * frames)


class Actor:
    """Chooses an action for every lane, and remembers what its explorer must."""

    def __init__(
        self,
        policy: Policy,
        explorer: Explorer,
        coefficient: Coefficient,
        lanes: Lanes,
        generator: Generator,
        random_steps: int = 0,
    ) -> None:
        self.policy, self.explorer, self.coefficient = policy, explorer, coefficient
        self.lanes, self.generator, self.random_steps = lanes.lanes, generator, random_steps
        self.members = policy.method.ensemble.members
        self.actions = lanes.spec.num_actions
        self.stack = FrameStack(
            policy.settings.frame_stack, lanes.lanes, lanes.spec.obs_shape, lanes.spec.obs_dtype
        )
        self.first_K = np.ones(lanes.lanes, dtype=np.bool_)
        self.vector_step = 0
        self.memory = explorer.begin(lanes.lanes, self.members, generator)

    def act(
        self, obs: Observations, context: npt.NDArray[np.int64]
    ) -> tuple[Actions, ReturnDistribution | None]:
        """An action for every lane: at random for the first ``random_steps`` vector steps, then the explorer's."""
        stacked = self.stack.push(obs, self.first_K)
        if self.vector_step < self.random_steps:
            actions = torch.randint(self.actions, (self.lanes,), generator=self.generator)
            return actions.numpy(), None
        noise = self.generator if self.explorer.noisy else None
        values = self.policy.values(stacked, context, noise)
        actions, self.memory = self.explorer.act(values, self.coefficients(), self.memory, self.generator)
        return actions.numpy(), values

    def coefficients(self) -> Tensor:
        """[K]: how strongly each lane explores now."""
        return self.coefficient.of_lanes(self.lanes, self.vector_step)

    def after(self, step: Step) -> None:
        """Take note of the episodes that ended."""
        self.vector_step += 1
        self.first_K = step.done
        if step.done.any():
            done = torch.from_numpy(step.done)
            self.memory = self.explorer.end(done, self.members, self.memory, self.generator)

    def begin_episodes(self) -> None:
        """Every lane's running episode was lost: all begin anew."""
        self.first_K = np.ones(self.lanes, dtype=np.bool_)
        everyone = torch.ones(self.lanes, dtype=torch.bool)
        self.memory = self.explorer.end(everyone, self.members, self.memory, self.generator)

    def state(self) -> dict[str, Tensor]:
        """What acting depends on, besides the network."""
        return {
            **{f"memory.{name}": tensor for name, tensor in self.memory.items()},
            "stacked": torch.from_numpy(self.stack.stacked),
            "first": torch.from_numpy(self.first_K),
            "vector_step": torch.tensor(self.vector_step),
            "generator": self.generator.get_state(),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        self.memory = {
            name.removeprefix("memory."): tensor
            for name, tensor in state.items()
            if name.startswith("memory.")
        }
        self.stack.stacked = state["stacked"].numpy()
        self.first_K = state["first"].numpy()
        self.vector_step = int(state["vector_step"])
        self.generator.set_state(state["generator"])


def interact(lanes: Lanes, actor: Actor) -> Iterator[Moment]:
    """Step the lanes for ever, from where they are; a moment is yielded once everyone has taken note of it."""
    obs: Any = lanes.obs
    while True:
        actions, values = actor.act(obs, lanes.context)
        step = lanes.step(actions)
        actor.after(step)
        yield Moment(obs, actions, values, step)
        obs = step.obs
