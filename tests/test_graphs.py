"""Recorded updates: what is recorded, what is played, and that nothing in an update asks for a number."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Generator

from conftest import RunCli
from ede.graphs import EAGER, Graphs, Work
from ede.learner import Learner, build_network
from ede.methods import METHODS
from ede.presets import Settings
from ede.replay import Batch
from test_learner import WORLDS, make_batch, make_learner

SETTINGS = Settings(hidden=5, members=3, quantiles=4, learning_rate=1e-2)
QUIET = [name for name, row in METHODS.items() if row.noisy is None]
"""Rows whose layers have no noise, which is drawn on the host."""


class Recorder:
    """A recording does its work anew, on the tensors that it was made with."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, work: Work) -> Work:
        self.made += 1
        return work


@pytest.mark.parametrize("name", QUIET)
def test_recorded_updates_are_the_eager_ones(name: str) -> None:
    method = METHODS[name].built(SETTINGS)
    eager, recorded = (make_learner(method, SETTINGS, WORLDS["image"]) for _ in range(2))
    recorder = Recorder()
    recorded.graphs = Graphs(recorded.step, recorder)
    members = set()
    for update in range(EAGER + 8):
        batch = make_batch(method.ensemble.members, WORLDS["image"], seed=update)
        for learner in (eager, recorded):
            report = learner.update(batch)
            if learner is eager:
                expected = report
        assert all(
            torch.equal(getattr(report, field.name), getattr(expected, field.name))
            for field in fields(report)
        )
        members |= set(recorded.graphs.recorded)
        if update == EAGER + 4:
            for learner in (eager, recorded):
                learner.sync_target()
    assert all(torch.equal(tensor, recorded.state()[key]) for key, tensor in eager.state().items())
    assert recorder.made == len(members)
    assert recorded.updates == eager.updates == EAGER + 8


def test_a_recording_reads_the_same_tensors_every_time_and_goes_with_the_state() -> None:
    method = METHODS["ede"].built(SETTINGS)
    learner, seen = make_learner(method, SETTINGS, WORLDS["vector"]), list[Batch]()

    def step(batch: Batch, chosen: int | None):
        seen.append(batch)
        return Learner.step(learner, batch, chosen)

    learner.graphs = Graphs(step, Recorder())
    for update in range(EAGER + 5):
        learner.update(make_batch(3, WORLDS["vector"], seed=update))
    assert len({batch.obs_MB.data_ptr() for batch in seen[EAGER:]}) == 1
    assert learner.graphs.recorded
    learner.load(learner.state())
    assert not learner.graphs.recorded


@pytest.mark.parametrize("name", QUIET)
def test_nothing_in_an_update_beside_the_cpu_asks_for_a_number(name: str) -> None:
    """Tensors without numbers pass a whole update by the path of accelerators: a recording would meet no wait."""
    method = METHODS[name].built(SETTINGS)
    network = build_network(method, SETTINGS, WORLDS["image"], 3, 4, Generator().manual_seed(0))
    learner = Learner(method, SETTINGS, network, Generator())
    for part in (learner.network, learner.target_network):
        part.to("meta")
    learner.anchors = {key: anchor.to("meta") for key, anchor in learner.anchors.items()}
    learner.parameters = list(network.parameters())
    learner.optimizer = torch.optim.SGD(learner.parameters)  # PyTorch has no fused Adam without numbers
    made = make_batch(method.ensemble.members, WORLDS["image"], seed=0)
    batch = Batch(**{field.name: getattr(made, field.name).to("meta") for field in fields(made)})
    report = learner.step(replace(batch, reward_MB=batch.reward_MB.float()), 0)
    assert report.loss.is_meta
    with pytest.raises(RuntimeError, match="meta"):
        float(report.loss)


def test_graphs_are_refused_where_they_cannot_be(run_cli: RunCli) -> None:
    done = run_cli(
        "train", "bigfish-simple", "--preset", "smoke", "--set", "cuda_graphs=true", "--set", "device=cpu"
    )
    assert done.code == 2
    assert "cuda_graphs=true needs a CUDA device" in done.err
