"""The transition contract: what every backend turns into, whatever its own autoreset.

Axis letters: K lanes, E lanes whose episode has just ended, in lane order.

All K lanes make one real step a call. Where an episode ends, the lane is reset within the same call, and:

* ``reward``, ``terminated``, ``truncated``, ``context`` and ``extra`` belong to the step just made;
* ``obs`` is what to act on next: for an ended lane, the first observation of its next episode;
* ``final_obs`` holds, for the ended lanes only, the last observation of the ended episode. Where
  ``WorldSpec.shows_last_frame`` is false the backend cannot show it, and ``final_obs`` repeats the
  observation that was acted on.

Arrays in a ``Step`` are the caller's: no backend writes to them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ede.contexts import Contexts
from ede.errors import EdeError

Observations = npt.NDArray[Any]
"""[K, H, W, C] uint8 images, or [K, D] float32 vectors."""


@dataclass(frozen=True)
class WorldSpec:
    """What the agent needs to know of a world, and what its backend can do."""

    task: str
    """The name it was made by, such as ``procgen/bigfish``."""
    backend: str
    """Which implementation and version plays it."""
    obs_shape: tuple[int, ...]
    """One lane's observation: (H, W, C) for images, (D,) for vectors."""
    obs_dtype: str
    """``uint8`` or ``float32``."""
    num_actions: int
    can_save: bool
    """``save`` and ``restore`` continue to the bit, also in another process."""
    can_choose: bool
    """``choose`` sends each lane to a context of the caller's choosing."""
    shows_last_frame: bool
    """``final_obs`` is the true last observation of an ended episode."""
    time_limit: int | None = None
    """Steps after which an episode is cut, where the world has such a limit."""
    action_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One step of all lanes; see the module's contract."""

    obs: Observations
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    context: npt.NDArray[np.int64]
    final_obs: Observations
    """[E, …], for the lanes in ``ended`` and in that order."""
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """What only this world tells, [K, …] each, of the step just made."""

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        return self.terminated | self.truncated

    @property
    def ended(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.done)


class Lanes(ABC):
    """K copies of a world that step together."""

    spec: WorldSpec
    contexts: Contexts
    lanes: int

    @abstractmethod
    def reset(self) -> Observations:
        """Begin a new episode in every lane."""

    @abstractmethod
    def step(self, actions: npt.NDArray[np.integer[Any]]) -> Step:
        """Make one real step in every lane; actions [K]."""

    @property
    @abstractmethod
    def obs(self) -> Observations:
        """What to act on now: right after ``reset``, ``step`` or ``restore``."""

    @property
    @abstractmethod
    def context(self) -> npt.NDArray[np.int64]:
        """The context of each lane's running episode."""

    def save(self) -> bytes:
        """Everything that the lanes' future depends on."""
        raise EdeError(f"{self.spec.task} on {self.spec.backend} cannot save its state.")

    def restore(self, state: bytes) -> None:
        """Continue, to the bit, from what ``save`` returned (same task, lanes and contexts)."""
        raise EdeError(f"{self.spec.task} on {self.spec.backend} cannot restore its state.")

    def choose(self, context_K: npt.NDArray[np.integer[Any]]) -> Observations:
        """Begin a new episode in every lane, lane k in ``context_K[k]`` and there in all its later episodes."""
        raise EdeError(f"{self.spec.task} on {self.spec.backend} cannot choose its contexts.")

    def close(self) -> None:  # noqa: B027 - most backends hold nothing
        """Free what the backend holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def checked_actions(
    actions: npt.NDArray[np.integer[Any]], lanes: int, spec: WorldSpec
) -> npt.NDArray[np.integer[Any]]:
    """The actions, none of which a backend may read as something else: to Procgen, −1 ends the episode."""
    action_K = np.asarray(actions)
    if action_K.shape != (lanes,) or not np.issubdtype(action_K.dtype, np.integer):
        raise EdeError(
            f"{spec.task} needs one whole number a lane as actions, {lanes} of them; "
            f"got {action_K.dtype} of shape {action_K.shape}."
        )
    if action_K.min() < 0 or action_K.max() >= spec.num_actions:
        raise EdeError(f"The actions of {spec.task} lie in 0..{spec.num_actions - 1}.")
    return action_K


def join_final(obs_K: Observations, ended: npt.NDArray[np.int64]) -> Observations:
    """Copies of the rows of the ended lanes: the usual way to fill ``Step.final_obs``."""
    return obs_K[ended].copy()
