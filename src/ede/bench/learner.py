"""One update of the learner: its seconds, its parts, and the floor given by its operations and the matrix rate.

Rate and updates take turns and the fastest of each counts: what else runs on a machine only lengthens a measurement.

Axis letters: M members, B batch, A actions, N quantiles or atoms, d features, H leaving.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch import Generator, Tensor

from ede import precision as precisions
from ede.bench.work import Work, of_update
from ede.compute import Compute, choose, keep_memory
from ede.encoder_passes import planes_of
from ede.learner import Learner, build_network
from ede.methods import find_method
from ede.networks import Network
from ede.parts import Head
from ede.presets import Settings, find_preset
from ede.replay import Batch, Replay
from ede.returns import ReturnDistribution
from ede.seeds import numpy_generator

SHAPE, ACTIONS = (64, 64, 3), 15
"""Procgen's observations and actions."""
LANES, ROWS = 64, 32
"""The replay that minibatches are drawn from holds this many rows in each lane."""
MATRIX = {"cpu": 2048, "cuda": 8192}
"""Side of the matrices whose product gives the rate; on a GPU a smaller product ends before it is timed."""


@dataclass(frozen=True)
class Measured:
    """One update at one size."""

    batch_size: int
    members: int
    precision: str
    threads: int
    seconds_per_update: float
    """The fastest update, its minibatches drawn."""
    median_seconds: float
    parts: dict[str, float]
    """Seconds of the parts of the fastest update."""
    work: Work
    matrix_rate: float
    """Operations a second of a matrix product in this precision, measured between the updates."""

    @property
    def floor_seconds(self) -> float:
        return self.work.total / self.matrix_rate

    @property
    def ratio(self) -> float:
        return self.seconds_per_update / self.floor_seconds

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds_per_update": self.seconds_per_update,
            "precision": self.precision,
            "floor_seconds": self.floor_seconds,
            "ratio": self.ratio,
            "median_seconds": self.median_seconds,
            "operations": self.work.total,
            "matrix_rate": self.matrix_rate,
            "batch_size": self.batch_size,
            "members": self.members,
            "threads": self.threads,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "processor": precisions.processor(),
            "torch": torch.__version__,
            "parts": self.parts,
        }


@dataclass
class Watch:
    """Adds up the seconds of named parts."""

    device: torch.device
    parts: dict[str, float] = field(default_factory=dict)
    since: float = 0.0

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin = self.now()
        yield
        self.add(name, self.now() - begin)

    def add(self, name: str, seconds: float) -> None:
        self.parts[name] = self.parts.get(name, 0.0) + seconds


class Watched(Compute):
    """A way of computing under the watch."""

    def __init__(self, compute: Compute, watch: Watch, target: Network) -> None:
        self.compute, self.watch, self.target = compute, watch, target
        self.precision = compute.precision

    def frozen_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        with self.watch.part("target features" if network is self.target else "members' features"):
            return self.compute.frozen_features(network, obs, context)

    def trained_features(self, network: Network, obs: Tensor, context: Tensor) -> Tensor:
        with self.watch.part("trained features"):
            return self.compute.trained_features(network, obs, context)

    def _product(self, bias_M1H: Tensor, x_MBd: Tensor, weight_MdH: Tensor, member: int | None) -> Tensor:
        with self.watch.part("heads"):
            return self.compute._product(bias_M1H, x_MBd, weight_MdH, member)


@dataclass(frozen=True)
class WatchedHead:
    """A method's head whose loss is under the watch; what comes after it is the backward pass."""

    head: Head
    watch: Watch

    @property
    def outputs(self) -> int:
        return self.head.outputs

    def returns(self, raw_MBAN: Tensor, unbiased: bool) -> ReturnDistribution:
        return self.head.returns(raw_MBAN, unbiased)

    def loss(self, raw_MBN: Tensor, target_MBN: Tensor, p_MBN: Tensor | None) -> Tensor:
        with self.watch.part("loss"):
            loss_MB = self.head.loss(raw_MBN, target_MBN, p_MBN)
        self.watch.since = self.watch.now()
        return loss_MB


def paper_learner(settings: Settings, method: str) -> Learner:
    """The learner that a run on Procgen would have, its precision resolved."""
    built = find_method(method).built(settings)
    network = build_network(built, settings, SHAPE, ACTIONS, 200, Generator().manual_seed(0))
    network = network.to(settings.device)
    resolved = precisions.resolve(settings.precision, network, SHAPE)
    compute = choose(resolved, network)
    settings = replace(settings, precision=resolved)
    return Learner(built, settings, network, Generator().manual_seed(1), compute)


def paper_settings(batch_size: int, members: int, precision: str, device: str = "cpu") -> Settings:
    preset = find_preset("paper", "procgen/bigfish").settings
    return replace(preset, batch_size=batch_size, members=members, precision=precision, device=device)


def measure(settings: Settings, method: str, updates: int = 5) -> Measured:
    """Draw minibatches and learn from them, the matrix product in turn with them."""
    keep_memory()
    learner = paper_learner(settings, method)
    replay, generator = filled_replay(settings), numpy_generator(0, "replay")
    members = learner.method.ensemble.members
    seconds, parts, rates = [], [], []
    for update in range(updates + 1):
        watch = Watch(learner.device)
        begin = watch.now()
        with watch.part("sample"):
            batch = replay.sample(members, settings.batch_size, generator)
        with watched(learner, watch):
            learner.update(batch)
        whole = watch.now() - begin
        rate = matrix_rate(learner.compute.precision, learner.device)
        if update:  # the first one allocates and compiles
            seconds.append(whole)
            parts.append({**watch.parts, "rest": whole - sum(watch.parts.values())})
            rates.append(rate)
    best = min(range(updates), key=seconds.__getitem__)
    return Measured(
        batch_size=settings.batch_size,
        members=members,
        precision=learner.settings.precision,
        threads=torch.get_num_threads(),
        seconds_per_update=seconds[best],
        median_seconds=median(seconds),
        parts={**parts[best], "of which bytes to numbers": conversion_seconds(batch)},
        work=of_update(learner, settings.batch_size),
        matrix_rate=max(rates),
    )


@contextmanager
def watched(learner: Learner, watch: Watch) -> Iterator[None]:
    """Put the learner under the watch for a while."""
    compute, method = learner.compute, learner.method
    learner.compute = Watched(compute, watch, learner.target_network)
    learner.method = replace(method, head=WatchedHead(method.head, watch))  # type: ignore[arg-type]

    def before(*_: object) -> None:
        watch.add("backward and clipping", watch.now() - watch.since)
        watch.since = watch.now()

    def after(*_: object) -> None:
        watch.add("optimiser", watch.now() - watch.since)

    hooks = learner.optimizer.register_step_pre_hook(before), learner.optimizer.register_step_post_hook(after)
    try:
        yield
    finally:
        learner.compute, learner.method = compute, method
        for hook in hooks:
            hook.remove()


def filled_replay(settings: Settings) -> Replay:
    """A replay of random frames."""
    replay = Replay(
        capacity=LANES * ROWS, lanes=LANES, obs_shape=SHAPE, obs_dtype="uint8", n_step=settings.n_step,
        gamma=settings.gamma, bootstrap_on_timeout=False, device=settings.device,
    )  # fmt: skip
    generator = numpy_generator(0, "frames")
    for _ in range(ROWS):
        replay.add(
            generator.integers(256, size=(LANES, *SHAPE), dtype="uint8"),
            generator.integers(ACTIONS, size=LANES),
            generator.normal(size=LANES).astype("float32"),
            generator.random(LANES) < 0.01,
            generator.random(LANES) < 0,
            generator.integers(200, size=LANES),
            generator.integers(256, size=(0, *SHAPE), dtype="uint8"),
            generator,
        )
    return replay


def conversion_seconds(batch: Batch) -> float:
    """Of all the update's images, both ends of the transitions, as part of the features' seconds."""
    begin = time.perf_counter()
    for obs_MB in (batch.obs_MB, batch.next_obs_MB):
        for obs in obs_MB:
            planes_of(obs, torch.bfloat16)
    return time.perf_counter() - begin


def matrix_rate(precision: str, device: torch.device) -> float:
    """Operations a second of a matrix product: the fastest of three."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    side = MATRIX[device.type]
    # Drawn, as a GPU is faster, and less warm, on equal numbers.
    matrix = torch.randn((side, side), device=device).to(dtype)
    watch, rate = Watch(device), 0.0
    for _ in range(3):
        begin = watch.now()
        _ = matrix @ matrix
        rate = max(rate, 2 * side**3 / (watch.now() - begin))
    return rate
