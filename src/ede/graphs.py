"""Updates on a GPU as CUDA graphs: recorded once for each member that trains the encoder, then replayed by the driver,
without Python and launches between the kernels.

A recording knows fixed tensors alone, so every batch is copied into those that it was made with. Off unless
``cuda_graphs=true``; small networks gain most (docs/performance.md). When what is recorded and played is tested on the
CPU, with a recorder that does the work anew; ``benchmarks/gpu.py`` compares with updates that were not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

import torch

from ede.replay import Batch

if TYPE_CHECKING:
    from ede.learner import Report

Step = Callable[[Batch, int | None], "Report"]
"""One update from a batch and the member that trains the encoder (None: all)."""
Work = Callable[[], "Report"]
Record = Callable[[Work], Work]
"""From work to that which repeats it; the work itself is not done."""

EAGER = 3
"""Updates before anything is recorded: they make the optimiser's moments and choose the libraries' kernels."""

Tensors = TypeVar("Tensors", Batch, "Report")


class Graphs:
    """Updates by recordings, one for each member that may train the encoder."""

    def __init__(self, step: Step, record: Record) -> None:
        self.step, self.record = step, record
        self.forget()

    def forget(self) -> None:
        """What was recorded holds tensors that are no longer the learner's."""
        self.eager_updates = 0
        self.batch: Batch | None = None
        self.recorded: dict[int | None, Work] = {}

    def update(self, batch: Batch, chosen: int | None) -> Report:
        if self.eager_updates < EAGER:
            self.eager_updates += 1
            return self.step(batch, chosen)
        fixed = self._copied(batch)
        if chosen not in self.recorded:
            self.recorded[chosen] = self.record(lambda: self.step(fixed, chosen))
        return self.recorded[chosen]()

    def _copied(self, batch: Batch) -> Batch:
        if self.batch is None:
            self.batch = cloned(batch)
        for field in fields(batch):
            getattr(self.batch, field.name).copy_(getattr(batch, field.name))
        return self.batch


def cloned(tensors: Tensors) -> Tensors:
    """The same dataclass of copies."""
    return replace(tensors, **{field.name: getattr(tensors, field.name).clone() for field in fields(tensors)})


def cuda_recorder() -> Record:
    """Recordings that share their memory: they are played one after the other, and results are copied out."""
    pool = torch.cuda.graph_pool_handle()

    def record(work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            report = work()

        def play() -> Report:
            graph.replay()
            return cloned(report)

        return play

    return record
