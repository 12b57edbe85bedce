"""Operations and bytes of an update, by formula and by PyTorch's own counters: a regression in either fails here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ede import precision
from ede.bench.learner import Watch, watched
from ede.bench.work import of_convolutions, of_update
from ede.compute import PLAIN, Compute, Fused
from ede.learner import Learner, build_network
from ede.methods import METHODS
from ede.parts import AllMembers, Ensemble, OneMember, Quantile
from ede.presets import Settings
from test_compute import float_batch

SHAPE = (16, 16, 3)


def learner_of(members: int, compute: Compute = PLAIN, all_members: bool = False) -> Learner:
    rule = AllMembers() if all_members else OneMember()
    method = replace(METHODS["ede"], head=Quantile(6), ensemble=Ensemble(members), encoder_gradient=rule)
    settings = Settings(hidden=24, encoder="impala")
    network = build_network(method, settings, SHAPE, 3, 4, Generator().manual_seed(0))
    return Learner(method, settings, network, Generator().manual_seed(1), compute)


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 4])
def test_an_update_takes_the_operations_of_the_formula(members: int, size: int) -> None:
    learner = learner_of(members)
    with FlopCounterMode(display=False) as counter:
        learner.update(float_batch(members, SHAPE, size))
    assert counter.get_total_flops() == of_update(learner, size).total


def test_the_operations_where_every_member_trains_the_encoder() -> None:
    learner = learner_of(3, all_members=True)
    with FlopCounterMode(display=False) as counter:
        learner.update(float_batch(3, SHAPE, 4))
    assert counter.get_total_flops() == of_update(learner, 4).total


def test_one_image_of_64_by_64_by_pencil() -> None:
    """Per pixel of a stage's own side: 2·9·entering·leaving; the first convolution of a stage is before its pooling."""
    settings = Settings(encoder="impala", hidden=4)
    network = build_network(METHODS["ede"], settings, (64, 64, 3), 3, 4, Generator().manual_seed(0))
    wanted = [
        64 * 64 * 18 * 3 * 16, *[32 * 32 * 18 * 16 * 16] * 4,
        32 * 32 * 18 * 16 * 32, *[16 * 16 * 18 * 32 * 32] * 4,
        16 * 16 * 18 * 32 * 32, *[8 * 8 * 18 * 32 * 32] * 4,
    ]  # fmt: skip
    assert of_convolutions(network) == wanted


class Bytes(TorchDispatchMode):
    """Adds up the bytes of every result that is not a view of what entered."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: dict[str, Any] | None = None
    ) -> Any:
        result = function(*arguments, **(named or {}))
        entered = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, Tensor)}
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in entered:
                self.total += one.nbytes
        return result


def bytes_of_an_update(compute: Compute) -> int:
    learner = learner_of(5, compute)
    learner.update(float_batch(5, SHAPE, 8))
    with Bytes() as counted:
        learner.update(float_batch(5, SHAPE, 8, seed=1))
    return counted.total


def test_the_fast_paths_write_less() -> None:
    """Two fifths less in float32 by ReLUs, additions and pooling; about half of that again in bf16."""
    plain = bytes_of_an_update(PLAIN)
    assert bytes_of_an_update(Fused("fp32", 4)) < 0.8 * plain
    assert bytes_of_an_update(Fused("bf16", 4)) < 0.5 * plain


def test_the_watch_changes_nothing_and_finds_the_parts() -> None:
    states = []
    for under_watch in (False, True):
        learner, watch = learner_of(3, Fused("bf16", 4)), Watch(torch.device("cpu"))
        if under_watch:
            with watched(learner, watch):
                learner.update(float_batch(3, SHAPE, 4))
        else:
            learner.update(float_batch(3, SHAPE, 4))
        states.append(learner.state())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    assert set(watch.parts) >= {"target features", "trained features", "heads", "loss", "optimiser"}
    assert all(seconds > 0 for seconds in watch.parts.values())


def test_bf16_must_be_worth_its_rounding() -> None:
    assert precision.fastest({"plain": 3.0, "fp32": 2.0, "bf16": 1.0}) == "bf16"
    assert precision.fastest({"plain": 3.0, "fp32": 2.0, "bf16": 1.9}) == "fp32"
    assert precision.fastest({"plain": 2.0, "fp32": 3.0, "bf16": 1.9}) == "plain"


def test_a_measurement_is_made_once_and_remembered(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = learner_of(2).network
    first = precision.remembered(network, SHAPE)
    assert set(first) == {"plain", "fp32", "bf16"}
    assert precision.remembered(network, SHAPE) == first
    assert precision.memory().is_relative_to(tmp_path)
    precision.memory().write_text("{ damaged")
    assert set(precision.remembered(network, SHAPE)) == set(first)


def test_small_worlds_stay_plain_and_words_are_checked() -> None:
    from ede.errors import EdeError

    settings = Settings(encoder="small", hidden=4)
    small = build_network(METHODS["ede"], settings, (10, 10, 3), 3, 4, Generator().manual_seed(0))
    assert precision.resolve("auto", small, (10, 10, 3)) == "plain"
    with pytest.raises(EdeError, match="choose auto, plain, fp32, bf16"):
        precision.resolve("fp8", small, (10, 10, 3))
    with pytest.raises(EdeError, match="bf16 is for the impala encoder"):
        precision.resolve("bf16", small, (10, 10, 3))


def test_the_command_prints_one_line_of_json() -> None:
    words = "bench learner --batch 2 --heads 2 --updates 1 --precision fp32 --threads 1 --json"
    done = subprocess.run(
        [sys.executable, "-m", "ede.cli", *words.split()], capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["precision"] == "fp32"
    assert found["seconds_per_update"] > 0
    assert found["floor_seconds"] == pytest.approx(found["operations"] / found["matrix_rate"])
