"""Which way of computing a machine is best at: measured, remembered, said. Never a flag of the CPU alone.

Precisions: ``plain`` is the specification, the modules as they are; ``fp32`` and ``bf16`` are the fast paths of
``ede.compute``. ``auto`` times one chunk of each, forward and backward, and takes bf16 only where it clearly wins. A
run writes what was chosen into its config, so that it resumes to the bit.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor

from ede import __version__
from ede.cache import cache_folder
from ede.compute import CHUNK, PLAIN, Compute, choose
from ede.errors import EdeError
from ede.networks import Impala, Network

PRECISIONS = ("auto", "plain", "fp32", "bf16")
WORTH_IT = 0.8
"""bf16 rounds, so it must save a fifth of float32's time to be chosen."""
TIMES = 3
"""Passes of each way; the fastest counts, because what disturbs a measurement only lengthens it."""


def resolve(precision: str, network: Network, obs_shape: tuple[int, ...]) -> str:
    """The precision to use: what was asked for, or the fastest here for ``auto``."""
    if precision not in PRECISIONS:
        raise EdeError(f"There is no precision '{precision}'; choose {', '.join(PRECISIONS)}.")
    if precision == "bf16" and choose(precision, network) is PLAIN:
        raise EdeError("On this device bf16 is for the impala encoder alone; choose precision=auto.")
    if precision != "auto":
        return precision
    if not isinstance(network.encoder, Impala):
        return "plain"  # small worlds: nothing to gain
    seconds = remembered(network, obs_shape)
    chosen = fastest(seconds)
    times = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in seconds.items())
    print(
        f"ede: computing in {chosen}; {CHUNK} images, forward and backward, took here: {times}.",
        file=sys.stderr,
    )
    return chosen


def fastest(seconds: dict[str, float]) -> str:
    """bf16 where it is worth its rounding, else float32, and plain where nothing is gained."""
    exact = min(("fp32", "plain"), key=seconds.__getitem__)
    return "bf16" if seconds["bf16"] < WORTH_IT * seconds[exact] else exact


def remembered(network: Network, obs_shape: tuple[int, ...]) -> dict[str, float]:
    """Seconds of each way for one chunk, measured once for each machine, version of PyTorch and of ours, and shape."""
    key = " | ".join(
        (machine(network), torch.__version__, f"ede {__version__}", "×".join(map(str, obs_shape)))
    )
    table = _read()
    if key not in table:
        table[key] = measure(network, obs_shape)
        _write(table)
    return table[key]


def measure(network: Network, obs_shape: tuple[int, ...]) -> dict[str, float]:
    """Seconds of a frozen and a trained pass, the ways taking turns."""
    copy = deepcopy(network)
    parameter = next(copy.parameters())
    obs = torch.randint(256, (CHUNK, *obs_shape), dtype=torch.uint8).to(parameter.device)
    context = torch.zeros(CHUNK, dtype=torch.int64, device=parameter.device)
    ways = {name: choose(name, copy) for name in PRECISIONS[1:]}
    best = dict.fromkeys(ways, float("inf"))
    with _one_thread():
        for turn in range(TIMES + 1):
            for name, way in ways.items():
                seconds = _there_and_back(way, copy, obs, context)
                if turn:  # the first turn compiles and allocates
                    best[name] = min(best[name], seconds)
    return best


@contextmanager
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take as long as what else runs on the machine lets them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _there_and_back(compute: Compute, network: Network, obs: Tensor, context: Tensor) -> float:
    """By this thread's own time on the CPU, which other programs do not lengthen much; by the clock on a GPU."""
    clock = time.perf_counter if obs.is_cuda else time.thread_time
    begin = clock()
    compute.frozen_features(network, obs, context)
    compute.trained_features(network, obs, context).sum().backward()  # type: ignore[no-untyped-call]
    if obs.is_cuda:
        torch.cuda.synchronize()
    return clock() - begin


def machine(network: Network) -> str:
    """What this machine is, as far as its speed goes."""
    if next(network.parameters()).is_cuda:
        return torch.cuda.get_device_name()
    return f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"


def processor() -> str:
    """The processor's name and what of it matters here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    abilities = [
        ability for ability in ("avx512_bf16", "amx_bf16") if ability in facts.get("flags", "").split()
    ]
    return " ".join([facts.get("model name", platform.machine()), *abilities])


def memory() -> Path:
    """The file in which measurements are remembered; removing it measures anew."""
    return cache_folder() / "precision.json"


def _read() -> dict[str, dict[str, float]]:
    try:
        table: dict[str, dict[str, float]] = json.loads(memory().read_text())
    except (OSError, ValueError):
        return {}
    return table


def _write(table: dict[str, dict[str, float]]) -> None:
    try:
        memory().parent.mkdir(parents=True, exist_ok=True)
        fresh = memory().with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(table, indent=1))
        fresh.replace(memory())
    except OSError:
        return  # a home that cannot be written: measured again next time
