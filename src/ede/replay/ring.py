"""Each frame stored once, in a ring of rows for every lane.

A row is one frame with the action, reward and end that followed it. The next observation is the frame some rows
on, a frame stack the rows before, both of the same episode. A truncated end that bootstraps takes one more row,
its last frame; a lane that was reset out of turn takes one that marks the gap. Rows never change once written, so a
checkpoint appends the new ones. Everything else (which rows can be sampled, n-step sums) is derived from the rows.

Axis letters: K lanes, E lanes whose episode has just ended, M members, B batch, L any list of rows, W a window of
consecutive rows, S stacked frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ede.errors import EdeError
from ede.replay.layout import (
    COLUMNS,
    GAP,
    LAST_FRAME,
    RUNNING,
    TERMINATED,
    TRUNCATED,
    Frames,
    Ints,
    Priority,
    rows_per_lane,
    spans,
)
from ede.replay.sum_tree import SumTree

Rows = dict[str, npt.NDArray[Any]]

PRIORITY_FLOOR = 1e-6
"""Added to every priority so that no row becomes unreachable (our choice; the form is Schaul et al. 2016)."""


@dataclass(frozen=True)
class Batch:
    """Transitions of n steps or fewer; axes [M, B, …]."""

    obs_MB: Tensor
    action_MB: Tensor
    reward_MB: Tensor
    """Σ_j γ^j r_j over the steps made."""
    discount_MB: Tensor
    """γ^k·(1 − terminated) after k steps."""
    next_obs_MB: Tensor
    """k steps on; where the discount is 0, the last observation that was acted on."""
    context_MB: Tensor
    weight_MB: Tensor
    """Importance weight times bootstrap mask; 1 where there is neither."""
    row_MB: Tensor
    """Names the rows for ``update_priorities``."""


class Replay:
    """Transitions of K lanes that step together, drawn as [M, B] independent samples with n-step returns."""

    def __init__(
        self,
        *,
        capacity: int,
        lanes: int,
        obs_shape: tuple[int, ...],
        obs_dtype: str,
        n_step: int,
        gamma: float,
        bootstrap_on_timeout: bool,
        stack: int = 1,
        mask_probability: float | None = None,
        members: int = 1,
        priority: Priority | None = None,
        device: str | torch.device = "cpu",
        frames_on: str | torch.device | None = None,
        path: Path | None = None,
    ) -> None:
        """Batches are made on ``device``; frames are kept there, or on another device, or in the file ``path``.

        What the file held before is lost.
        """
        assert n_step >= 1, n_step
        assert 1 <= stack <= 256, stack
        self.lanes, self.n_step, self.gamma, self.stack = lanes, n_step, gamma, stack
        self.bootstrap_on_timeout = bootstrap_on_timeout
        self.mask_probability, self.members, self.priority = mask_probability, members, priority
        self.obs_shape, self._obs_dtype, self.device = obs_shape, np.dtype(obs_dtype), torch.device(device)
        self.stacked_shape = (*obs_shape[:-1], obs_shape[-1] * stack)
        self.rows_per_lane = rows_per_lane(capacity, lanes, n_step, stack)
        rows = lanes * self.rows_per_lane
        kept_on = torch.device(frames_on or self.device)
        self._frames = Frames((rows, *obs_shape), obs_dtype, kept_on, path, read_to=self.device)
        self._columns: Rows = {name: np.full(rows, 0, dtype) for name, dtype in COLUMNS.items()}
        self._columns["kind"].fill(GAP)
        if mask_probability is not None:
            self._columns["mask"] = np.full((rows, members), False)
        self._sampleable = np.full(rows, False)
        self._tree = SumTree(rows) if priority else None
        self._max_priority = 1.0
        self.counts_K: Ints = np.zeros(lanes, np.int64)
        """Rows ever written, per lane: the write heads."""
        self._begin_K: Ints = np.zeros(lanes, np.int64)
        """The first row this replay ever held: not 0 where it was filled from a late checkpoint piece."""

    @property
    def nbytes(self) -> int:
        beside = sum(column.nbytes for column in self._columns.values()) + self._sampleable.nbytes
        return self._frames.nbytes + beside + (self._tree.nbytes if self._tree else 0)

    def __len__(self) -> int:
        """Transitions that can be sampled now."""
        return int(np.count_nonzero(self._sampleable))

    def add(
        self,
        obs_K: npt.NDArray[Any],
        action_K: npt.NDArray[Any],
        reward_K: npt.NDArray[Any],
        terminated_K: npt.NDArray[np.bool_],
        truncated_K: npt.NDArray[np.bool_],
        context_K: npt.NDArray[Any],
        final_obs_E: npt.NDArray[Any],
        generator: np.random.Generator,
    ) -> None:
        """One transition of every lane: the observations acted on, and what followed (``ede.envs.contract``).

        A row can be sampled once its n-step future is there: n calls later, or when its episode ends.
        """
        terminated_K = terminated_K if self.bootstrap_on_timeout else terminated_K | truncated_K
        kept_K = truncated_K & ~terminated_K
        all_K = np.arange(self.lanes)
        columns: Rows = {
            "action": action_K,
            "reward": reward_K,
            "kind": np.where(terminated_K, TERMINATED, np.where(kept_K, TRUNCATED, RUNNING)),
            "context": context_K,
            "age": self._next_age(all_K),
        }
        if self.mask_probability is not None:
            columns["mask"] = generator.random((self.lanes, self.members)) < self.mask_probability
        self._append(all_K, obs_K, columns)
        if kept_K.any():
            ended_E = np.flatnonzero(terminated_K | truncated_K)
            self._append_frames_only(np.flatnonzero(kept_K), final_obs_E[kept_K[ended_E]], LAST_FRAME)
        self._refresh_ends()

    def interrupt(self) -> None:
        """Say that the lanes were reset out of turn: what comes next continues nothing (a resumed run's lost episodes).

        The up to n last transitions of each lane then stay without a future and are never sampled.
        """
        open_L = np.flatnonzero(~self._at_episode_start(np.arange(self.lanes)))
        blank = np.zeros((len(open_L), *self.obs_shape), self._obs_dtype)
        self._append_frames_only(open_L, blank, GAP)
        self._refresh_ends()

    def sample(
        self, members: int, batch: int, generator: np.random.Generator, beta: float | None = None
    ) -> Batch:
        """[M, B] independent draws with replacement: uniform, or in proportion to priority."""
        if not self._sampleable.any():
            raise EdeError("The replay holds no complete transition yet; collect more steps before learning.")
        shape = (members, batch)
        lane_L, number_L = self._draw(members * batch, generator)
        slot_L = self._slot(lane_L, number_L)
        column = self._columns

        # The window of n rows from each start, and at which of them the episode ends.
        window_LW = self._slot(lane_L[:, None], number_L[:, None] + np.arange(self.n_step))
        ends_LW = column["kind"][window_LW] != RUNNING
        before_LW = np.cumsum(ends_LW, axis=1) - ends_LW == 0
        steps_L = before_LW.sum(axis=1)
        power_W = self.gamma ** np.arange(self.n_step)
        reward_L = (column["reward"][window_LW] * before_LW) @ power_W
        last_slot_L = window_LW[np.arange(len(slot_L)), steps_L - 1]
        terminated_L = column["kind"][last_slot_L] == TERMINATED
        discount_L = np.where(terminated_L, 0.0, self.gamma**steps_L)

        next_number_L = number_L + steps_L - terminated_L
        weight_L = self._weights(slot_L, self._default_beta if beta is None else beta)
        if "mask" in column:
            assert members == self.members, (members, self.members)
            weight_L = weight_L * column["mask"][slot_L, np.repeat(np.arange(members), batch)]

        def tensor(values_L: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
            return torch.from_numpy(values_L).to(self.device, dtype).view(shape)

        return Batch(
            obs_MB=self._stacked(lane_L, number_L).view(*shape, *self.stacked_shape),
            action_MB=tensor(column["action"][slot_L], torch.int64),
            reward_MB=tensor(reward_L, torch.float32),
            discount_MB=tensor(discount_L, torch.float32),
            next_obs_MB=self._stacked(lane_L, next_number_L).view(*shape, *self.stacked_shape),
            context_MB=tensor(column["context"][slot_L], torch.int64),
            weight_MB=tensor(weight_L, torch.float32),
            row_MB=tensor(number_L * self.lanes + lane_L, torch.int64),
        )

    def update_priorities(self, row_MB: Tensor, priority_MB: Tensor) -> None:
        """Give sampled rows their new priorities, such as their losses; rows overwritten since are left alone."""
        if self._tree is None or self.priority is None:
            raise EdeError("This replay draws uniformly; make it with a Priority to give rows priorities.")
        row_L = row_MB.detach().cpu().numpy().ravel()
        value_L = priority_MB.detach().double().cpu().numpy().ravel() + PRIORITY_FLOOR
        assert (value_L > 0).all(), "priorities must be numbers, none of them negative"
        number_L, lane_L = np.divmod(row_L, self.lanes)
        slot_L = self._slot(lane_L, number_L)
        here_L = (number_L >= self.oldest_K[lane_L]) & self._sampleable[slot_L]
        scaled_L = value_L[here_L] ** self.priority.alpha
        self._tree.set(slot_L[here_L], scaled_L)
        self._max_priority = max(self._max_priority, float(scaled_L.max(initial=0.0)))

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def rows_since(self, counts_K: Ints, most: int | None = None) -> Rows:
        """The rows written since ``counts_K``, lane after lane, at ``most`` so many of each: what a checkpoint appends.

        ``counts_K`` of the rows says how far they go. A ring that went round since is given whole.
        """
        start_K = np.maximum(counts_K, self.oldest_K)
        whole = most is None or (start_K > counts_K).any()
        stop_K = self.counts_K.copy() if whole else np.minimum(self.counts_K, start_K + most)
        lane_L, number_L = spans(start_K, stop_K)
        slot_L = self._slot(lane_L, number_L)
        frames = self._frames.read(slot_L)
        rows = {name: column[slot_L] for name, column in self._columns.items()}
        return rows | {"frame": frames.cpu().numpy(), "start_K": start_K, "counts_K": stop_K}

    def extend(self, rows: Rows) -> None:
        """Write what ``rows_since`` returned after the rows already here; to the bit when all pieces come in order."""
        start_K, counts_K = rows["start_K"], rows["counts_K"]
        if (
            set(rows) != {*self._columns, "frame", "start_K", "counts_K"}
            or start_K.shape != self.counts_K.shape
            or rows["frame"].shape[1:] != self.obs_shape
            or (counts_K - start_K > self.rows_per_lane).any()
        ):
            raise EdeError(
                "These replay rows come from a replay of another shape; resume with the saved settings."
            )
        late_K = start_K != self.counts_K
        if (late_K & (self.counts_K > 0) & (counts_K - start_K < self.rows_per_lane)).any():
            raise EdeError(
                "These replay rows do not follow those already loaded; load the pieces in the order of their writing."
            )
        first_K = np.minimum(self.counts_K, start_K)
        self._begin_K[late_K] = start_K[late_K]
        self.counts_K = counts_K.copy()
        lane_L, number_L = spans(start_K, counts_K)
        self._write(self._slot(lane_L, number_L), rows["frame"], {name: rows[name] for name in self._columns})
        # The new rows complete up to n older ones, and push the stacks of the oldest out of the ring.
        self._refresh(*spans(np.maximum(first_K - self.n_step, self.oldest_K), counts_K))
        self._refresh_ends()

    def state(self) -> Rows:
        """What changes without being a row: the write heads and the priorities."""
        state: Rows = {"counts_K": self.counts_K.copy()}
        if self._tree is not None:
            state |= {"priority": self._tree.leaves.copy(), "max_priority": np.array(self._max_priority)}
        return state

    def load_state(self, state: Rows) -> None:
        """Restore what ``state`` returned, after ``extend`` has brought back the rows."""
        if not np.array_equal(state["counts_K"], self.counts_K):
            raise EdeError(
                "The replay's rows and its state are not of one checkpoint; use pieces of one save."
            )
        if self._tree is not None:
            self._max_priority = float(state["max_priority"])
            self._tree.set(np.arange(len(state["priority"])), state["priority"])

    # -- rows ----------------------------------------------------------------------------------------------------

    @property
    def oldest_K(self) -> Ints:
        """The first row of each lane that is still here."""
        return np.maximum(self.counts_K - self.rows_per_lane, self._begin_K)

    def _slot(self, lane: Ints, number: Ints) -> Ints:
        """Where the ``number``-th row of a lane lies, or lay."""
        return lane * self.rows_per_lane + number % self.rows_per_lane

    def _at_episode_start(self, lane_L: Ints) -> npt.NDArray[np.bool_]:
        previous_L = self._columns["kind"][self._slot(lane_L, self.counts_K[lane_L] - 1)]
        first_L: npt.NDArray[np.bool_] = self.counts_K[lane_L] == 0
        return first_L | np.isin(previous_L, (TERMINATED, LAST_FRAME, GAP))

    def _next_age(self, lane_L: Ints) -> npt.NDArray[np.int64]:
        previous_L = self._columns["age"][self._slot(lane_L, self.counts_K[lane_L] - 1)].astype(np.int64)
        return np.where(self._at_episode_start(lane_L), 0, np.minimum(previous_L + 1, self.stack - 1))

    def _append_frames_only(self, lane_L: Ints, frames_L: npt.NDArray[Any], kind: int) -> None:
        columns: Rows = {name: np.zeros(len(lane_L), column.dtype) for name, column in self._columns.items()}
        if "mask" in columns:
            columns["mask"] = np.zeros((len(lane_L), self.members), np.bool_)
        columns["kind"][:] = kind
        columns["age"] = self._next_age(lane_L)
        self._append(lane_L, frames_L, columns)

    def _append(self, lane_L: Ints, frames_L: npt.NDArray[Any], columns: Rows) -> None:
        self._write(self._slot(lane_L, self.counts_K[lane_L]), frames_L, columns)
        self.counts_K[lane_L] += 1

    def _write(self, slot_L: Ints, frames_L: npt.NDArray[Any], columns: Rows) -> None:
        self._frames.write(slot_L, frames_L)
        for name, column in self._columns.items():
            column[slot_L] = columns[name]
        self._sampleable[slot_L] = False
        if self._tree is not None:
            self._tree.set(slot_L, np.zeros(len(slot_L)))

    def _refresh_ends(self) -> None:
        """Look again at the rows that ``add`` can change: the last, whose future came; the oldest, whose past went."""
        self._refresh(*spans(np.maximum(self.counts_K - self.n_step - 2, self.oldest_K), self.counts_K))
        self._refresh(*spans(self.oldest_K, np.minimum(self.oldest_K + self.stack - 1, self.counts_K)))

    def _refresh(self, lane_L: Ints, number_L: Ints) -> None:
        """Whether each of these rows is a transition with its stack in the ring and its n steps complete."""
        slot_L = self._slot(lane_L, number_L)
        future_LW = number_L[:, None] + np.arange(self.n_step + 1)
        kind_LW = self._columns["kind"][self._slot(lane_L[:, None], future_LW)]
        kind_LW[future_LW >= self.counts_K[lane_L][:, None]] = GAP
        first_stop_L = (kind_LW != RUNNING).argmax(axis=1)
        stop_L = kind_LW[np.arange(len(slot_L)), first_stop_L]
        complete_L = (stop_L != GAP) & (kind_LW[:, 0] != LAST_FRAME)
        now_L = complete_L & (number_L - self._columns["age"][slot_L] >= self.oldest_K[lane_L])
        if self._tree is not None:
            changed_L = now_L != self._sampleable[slot_L]
            self._tree.set(slot_L[changed_L], np.where(now_L[changed_L], self._max_priority, 0.0))
        self._sampleable[slot_L] = now_L

    # -- draws ---------------------------------------------------------------------------------------------------

    @property
    def _default_beta(self) -> float:
        return self.priority.beta if self.priority else 0.0

    def _draw(self, size: int, generator: np.random.Generator) -> tuple[Ints, Ints]:
        """Lanes and row numbers of ``size`` draws."""
        oldest_K = self.oldest_K
        if self._tree is not None:
            lane_L, place_L = np.divmod(self._tree.draw(size, generator), self.rows_per_lane)
            return lane_L, oldest_K[lane_L] + (place_L - oldest_K[lane_L]) % self.rows_per_lane
        # Uniform over all rows here, drawn again where the row cannot be sampled: few are like that.
        ends_K = np.cumsum(self.counts_K - oldest_K)
        lane_L, number_L = np.empty(size, np.int64), np.empty(size, np.int64)
        missing_L = np.arange(size)
        while len(missing_L):
            draw_L = generator.integers(ends_K[-1], size=len(missing_L))
            lane = np.searchsorted(ends_K, draw_L, side="right")
            number = self.counts_K[lane] - ends_K[lane] + draw_L
            lane_L[missing_L], number_L[missing_L] = lane, number
            missing_L = missing_L[~self._sampleable[self._slot(lane, number)]]
        return lane_L, number_L

    def _weights(self, slot_L: Ints, beta: float) -> npt.NDArray[np.float64]:
        """(min p / p)^β: the importance weights (N·P)^−β over their maximum in the batch."""
        if self._tree is None:
            return np.ones(len(slot_L))
        priority_L = self._tree.leaves[slot_L]
        weight_L: npt.NDArray[np.float64] = (priority_L.min() / priority_L) ** beta
        return weight_L

    def _stacked(self, lane_L: Ints, number_L: Ints) -> Tensor:
        """The frame and the S − 1 before it, oldest first along the last axis, zeros before the episode's start."""
        back_S = np.arange(self.stack - 1, -1, -1)
        slot_LS = self._slot(lane_L[:, None], number_L[:, None] - back_S)
        frames = self._frames.read(slot_LS.ravel())
        if self.stack == 1:
            return frames
        absent_LS = back_S > self._columns["age"][self._slot(lane_L, number_L)][:, None]
        frames[torch.from_numpy(np.flatnonzero(absent_LS)).to(self.device)] = 0
        return frames.view(len(lane_L), self.stack, *self.obs_shape).movedim(1, -2).flatten(-2)
