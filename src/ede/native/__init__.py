"""The encoder as machine code for this processor, compiled where it is first needed: ``encoder.c`` without a graph,
``trained.c`` with one (``native.trained``).

Used where the processor has AVX-512 and a C compiler is found; for bf16 it must also have matrix units (AMX) or
multiply pairs (AVX512-BF16). A build that does not agree with the plain encoder is not used. ``EDE_NATIVE=0`` turns it
off.

Axis letters: B batch, d features.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from ede.cache import cache_folder
from ede.networks import Impala

SOURCES = tuple(Path(__file__).with_name(name) for name in ("convolve.h", "encoder.c", "trained.c"))
"""Each includes the one before it."""
OPTIONS = ("-O3", "-march=native", "-fno-strict-aliasing", "-shared", "-fPIC")
ARITHMETIC = {"fp32": 0, "pairs": 1, "tiles": 2}
"""The ways of multiplying that ``encoder.c`` knows; the latter two are bf16."""
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
"""Of the features' norm: how far a build may be from the plain encoder."""
MOST_CHANNELS = 4
"""Of an image; more, as in stacked frames, take the other path."""


@cache
def available(precision: str) -> bool:
    """Whether this machine can compile and run the encoder in this precision, and it computes what it should."""
    arithmetic = arithmetic_of(precision)
    if arithmetic is None:
        return False
    encoder, images = example()
    with torch.no_grad():
        expected = encoder(images)
    parameters = [parameter.detach() for parameter in encoder.parameters()]
    error = (features(images, parameters, arithmetic) - expected).norm() / expected.norm()
    return bool(error < TOLERANCE[precision])


def example() -> tuple[Impala, Tensor]:
    """A plain encoder and images that a build must agree with it on."""
    generator = Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = Impala((18, 10, 3))
    return encoder, torch.randint(256, (3, 18, 10, 3), generator=generator, dtype=torch.uint8)


@cache
def arithmetic_of(precision: str) -> str | None:
    """The way of multiplying that this processor has for a precision; None where there is none or no compiler."""
    code = _library()
    if code is None or precision == "fp32":
        return precision if code else None
    return "tiles" if code.ede_matrix_units() else "pairs" if code.ede_pairs() else None


def takes(obs: Tensor) -> bool:
    """Whether these are images that it reads."""
    return obs.dtype == torch.uint8 and obs.ndim == 4 and obs.shape[3] <= MOST_CHANNELS


def features(obs: Tensor, parameters: list[Tensor], arithmetic: str) -> Tensor:
    """[B, d] of images [B, H, W, C]; ``parameters`` are weights and biases of the convolutions by turns, float32."""
    obs = obs.contiguous()
    assert takes(obs)
    assert all(parameter.dtype == torch.float32 for parameter in parameters)
    encoded = torch.empty(len(obs), features_of(obs.shape))
    code, weights = library(), addresses(parameters)

    def encode(first: int, last: int, _: int) -> None:
        code.ede_encode(
            at(obs[first]), ctypes.c_long(last - first), *map(ctypes.c_int, obs.shape[1:]),
            ctypes.c_int(ARITHMETIC[arithmetic]), weights.pointers, at(encoded[first]),
        )  # fmt: skip

    share_out(len(obs), encode)
    return encoded


def features_of(obs_shape: Sequence[int]) -> int:
    """How many features images [B, H, W, C] have."""
    height, width = obs_shape[1:3]
    for _ in range(3):
        height, width = (height + 1) // 2, (width + 1) // 2
    return 32 * height * width


def at(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


@dataclass(frozen=True)
class Addresses:
    """Where tensors lie, and the tensors, so that they stay there."""

    pointers: Any
    tensors: list[Tensor]


def addresses(parameters: Sequence[Tensor]) -> Addresses:
    kept = [parameter.contiguous() for parameter in parameters]
    return Addresses((ctypes.c_void_p * len(kept))(*(parameter.data_ptr() for parameter in kept)), kept)


def share_out(images: int, work: Callable[[int, int, int], None]) -> None:
    """Work from one image to before another as the so-manieth part, in as many parts as there are threads."""
    threads = min(torch.get_num_threads(), images)
    ends = [images * part // max(1, threads) for part in range(threads + 1)]
    if threads == 1:
        work(0, images, 0)
    elif images:
        list(_workers(threads).map(work, ends[:-1], ends[1:], range(threads)))


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="ede-encoder")


def library() -> ctypes.CDLL:
    """The compiled code, where there is a way of multiplying."""
    code = _library()
    assert code is not None
    return code


@cache
def _library() -> ctypes.CDLL | None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if os.environ.get("EDE_NATIVE") == "0" or sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    if shutil.which(compiler[0]) is None:
        return None
    try:
        code = ctypes.CDLL(str(_built(compiler)))
        code.ede_kept_bytes.restype = ctypes.c_long
        return code
    except (
        OSError,
        subprocess.SubprocessError,
    ):  # such as a processor without AVX-512, for which it does not compile
        return None


def _built(compiler: list[str]) -> Path:
    """The compiled code, from the cache where it has been compiled by this compiler for this processor before."""
    told = subprocess.run(
        [*compiler, *OPTIONS, "-Q", "--help=target"], capture_output=True, check=True, timeout=60
    ).stdout
    texts = b"".join(source.read_bytes() for source in SOURCES)
    name = f"encoder-{hashlib.sha256(texts + told).hexdigest()[:16]}.so"
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / name).exists():
            return folder / name
        building = Path(tempfile.mkdtemp(dir=folder))
    except OSError:  # a home that cannot be written: compiled anew each time
        folder = building = Path(tempfile.mkdtemp())
    fresh = building / name
    try:
        subprocess.run(
            [*compiler, *OPTIONS, "-o", fresh, SOURCES[-1]], capture_output=True, check=True, timeout=120
        )
        return fresh if building == folder else fresh.replace(folder / name)
    finally:
        if building != folder:
            shutil.rmtree(building)
