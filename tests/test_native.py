"""The encoder as machine code against the plain one; and what happens where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from ede import native
from ede.compute import Fused, choose
from ede.native import trained
from ede.networks import Impala, Network
from test_compute import BF16, FLOAT32, distance, float_batch, network_of

TOLERANCE = {"fp32": FLOAT32, "bf16": BF16, "pairs": BF16, "tiles": BF16}
DIRECTION = 0.97
"""Least cosine of a gradient in bf16 with the plain one."""


@pytest.fixture(params=["fp32", "bf16"], scope="session")
def precision(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not native.available(name):
        pytest.skip(f"this machine has no {name} units that the code is written for, or no compiler")
    return name


@pytest.fixture(params=native.ARITHMETIC, scope="session")
def arithmetic(request: pytest.FixtureRequest) -> str:
    """Each way of multiplying that this processor has, also the one that is not its fastest."""
    name, code = str(request.param), native._library()
    if code is None or not {"fp32": 1, "pairs": code.ede_pairs(), "tiles": code.ede_matrix_units()}[name]:
        pytest.skip(f"this processor does not multiply by {name}, or there is no compiler")
    return name


@pytest.fixture(scope="session")
def trained_way(arithmetic: str) -> str:
    if arithmetic not in trained.WAYS:
        pytest.skip("oneDNN's path has the gradients where there are matrix units")
    return arithmetic


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Everything about this machine is asked anew, and again afterwards."""
    caches = (native.available, native.arithmetic_of, native._library, trained.available)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


any_images = given(
    height=st.integers(1, 40), width=st.integers(1, 40), channels=st.integers(1, 4), images=st.integers(1, 3)
)


def encoder_and_images(shape: tuple[int, int, int], images: int, seed: int = 0) -> tuple[Impala, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Impala(shape)
    return encoder, torch.randint(
        256, (images, *shape), dtype=torch.uint8, generator=Generator().manual_seed(seed)
    )


def parameters_of(encoder: Impala) -> list[Tensor]:
    return [parameter.detach() for parameter in encoder.parameters()]


@any_images
def test_images_of_any_size_give_the_plain_features(
    arithmetic: str, height: int, width: int, channels: int, images: int
) -> None:
    encoder, obs = encoder_and_images((height, width, channels), images, seed=height * 41 + width)
    with torch.no_grad():
        plain = encoder(obs)
    assert distance(native.features(obs, parameters_of(encoder), arithmetic), plain) < TOLERANCE[arithmetic]


def test_an_image_gives_the_same_bits_in_any_batch_and_on_any_number_of_threads(arithmetic: str) -> None:
    encoder, obs = encoder_and_images((20, 16, 3), 7)
    whole = native.features(obs, parameters_of(encoder), arithmetic)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(native.features(obs, parameters_of(encoder), arithmetic), whole)
    finally:
        torch.set_num_threads(before)
    for image in range(7):
        alone = native.features(obs[image : image + 1], parameters_of(encoder), arithmetic)
        assert torch.equal(alone[0], whole[image])
    assert native.features(obs[:0], parameters_of(encoder), arithmetic).shape == (0, whole.shape[1])


def gradients(features: Tensor, parameters: list[Tensor]) -> Tensor:
    """Of all parameters, one after another, towards a fixed direction of the features."""
    toward = torch.randn(features.shape, generator=Generator().manual_seed(1))
    return torch.cat([part.flatten() for part in torch.autograd.grad(features, parameters, toward)])


@any_images
def test_images_of_any_size_give_the_plain_gradients(
    trained_way: str, height: int, width: int, channels: int, images: int
) -> None:
    encoder, obs = encoder_and_images((height, width, channels), images, seed=height * 41 + width)
    parameters = list(encoder.parameters())
    plain, found = encoder(obs), trained.features(obs, parameters, trained_way)
    assert distance(found, plain.detach()) < TOLERANCE[trained_way]
    expected, ours = gradients(plain, parameters), gradients(found, parameters)
    if trained_way == "fp32":
        assert distance(ours, expected) < FLOAT32
    else:
        assert torch.cosine_similarity(ours, expected, 0) > DIRECTION


def test_gradients_are_the_same_bits_each_time_and_where_two_graphs_are_open(trained_way: str) -> None:
    encoder, obs = encoder_and_images((20, 16, 3), 7)
    parameters = list(encoder.parameters())
    alone = [
        gradients(trained.features(part, parameters, trained_way), parameters) for part in (obs, obs.flip(0))
    ]
    both = [trained.features(part, parameters, trained_way) for part in (obs, obs.flip(0))]
    again = [gradients(features, parameters) for features in both]
    assert all(map(torch.equal, alone, again))
    with pytest.raises(RuntimeError):
        gradients(both[0], parameters)
    assert gradients(trained.features(obs[:0], parameters, trained_way), parameters).eq(0).all()


def test_a_run_computes_with_it_where_it_can(precision: str) -> None:
    network = network_of()
    compute = choose(precision, network)
    assert isinstance(compute, Fused)
    assert compute.native
    batch = float_batch(1, size=7)
    obs, context = batch.obs_MB[0], batch.context_MB[0]
    plain = Fused(precision).frozen_features(network, obs, context)
    assert distance(compute.frozen_features(network, obs, context), plain) < TOLERANCE[precision]
    with torch.no_grad():  # it reads the parameters themselves, whatever wrote them
        for parameter in network.parameters():
            parameter.mul_(1.5)
    moved = Fused(precision).frozen_features(network, obs, context)
    assert distance(compute.frozen_features(network, obs, context), moved) < TOLERANCE[precision]
    assert distance(moved, plain) > 0.1


def test_stacked_frames_take_the_other_path(precision: str) -> None:
    network: Network = network_of(shape=(16, 16, 12))
    obs = torch.zeros((2, 16, 16, 12), dtype=torch.uint8)
    compute = Fused(precision, native=True)
    context = torch.zeros(2, dtype=torch.int64)
    assert torch.equal(
        compute.frozen_features(network, obs, context),
        Fused(precision).frozen_features(network, obs, context),
    )


def test_a_build_that_computes_something_else_is_not_used(
    precision: str, forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = tuple(tmp_path / source.name for source in native.SOURCES)
    for source, copy in zip(native.SOURCES, wrong, strict=True):
        copy.write_text(source.read_text())
    right = wrong[1].read_text()
    wrong[1].write_text(
        right.replace("most = _mm512_max_ps(_mm512_max_ps", "most = _mm512_min_ps(_mm512_max_ps")
    )
    assert wrong[1].read_text() != right
    monkeypatch.setattr(native, "SOURCES", wrong)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not native.available(precision)


@pytest.mark.parametrize(
    "environment",
    [{"EDE_NATIVE": "0"}, {"CC": "no-such-compiler"}, {"CC": "false"}],
    ids=["turned off", "no compiler", "a compiler that fails"],
)
def test_without_it_the_other_path_is_taken(
    environment: dict[str, str], forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not native.available("fp32")
    assert not native.available("bf16")
    compute = choose("fp32", network_of())
    assert not getattr(compute, "native", False)


def test_a_home_that_cannot_be_written_compiles_anew(tmp_path: Path) -> None:
    if not native.available("fp32"):
        pytest.skip("this machine has no fp32 units that the code is written for, or no compiler")
    (tmp_path / "ede").write_text("a file in the folder's place")
    code = "from ede import native; print(native.available('fp32'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True"]
