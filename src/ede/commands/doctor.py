"""``ede doctor``: what this machine is, what is installed, and the line that installs what is missing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ede import __version__
from ede.cli import parse
from ede.errors import EdeError

GIB = 2**30

CORE = ("numpy", "gymnasium", "tyro", "rich", "safetensors")
"""Without these, and torch, nothing works."""

PARTS: tuple[tuple[str, str, str], ...] = (
    ("crafter", "crafter", "crafter"),
    ("minigrid", "minigrid", "minigrid"),
    ("numba", "numba", "tabular"),
    ("matplotlib", "matplotlib", "report"),
    ("jinja2", "jinja2", "report"),
    ("pillow", "PIL", "report"),
    ("tensorboard", "tensorboard", "tensorboard"),
    ("wandb", "wandb", "wandb"),
    ("ray", "ray", "ray"),
)
"""Optional distributions, the package each brings, and the extra of ours that asks for it."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

MATRIX = 512
"""Rows of the square matrices bf16 is measured with: their product outweighs the call, and a second holds many."""
SECONDS = 1.0
"""How long bf16 is measured."""


@dataclass(frozen=True)
class Doctor:
    """Check this machine: the core, the hardware, each optional part; exit code 0 where the core is sound."""

    json: bool = False
    """Print the findings as JSON."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    part: str
    ok: bool | None
    """None where there is nothing to be right or wrong: a fact of the machine."""
    found: str
    remedy: str = ""
    """The line that mends it."""
    core: bool = False
    """Whether EDE can do nothing without it."""


def main(arguments: list[str]) -> int:
    settings = parse(Doctor, "doctor", arguments)
    findings = [*_core(), *_hardware(), *_procgen(), *_parts()]
    sound = all(finding.ok for finding in findings if finding.core)
    if settings.json:
        print(json.dumps({"ok": sound, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _show(findings, sound)
    return 0 if sound else 1


def _core() -> Iterator[Finding]:
    enough = sys.version_info >= (3, 11)
    yield Finding(
        "Python", enough, platform.python_version(), "" if enough else "install Python 3.11", core=True
    )
    yield Finding("ede", True, __version__, core=True)
    for name in ("torch", *CORE):
        try:
            import_module(name)
        except ImportError as error:
            yield Finding(name, False, str(error), f"pip install {name}", core=True)
        else:
            yield Finding(name, True, version(name), core=True)


def _hardware() -> Iterator[Finding]:
    yield Finding("processor", None, f"{_processor()}, {len(os.sched_getaffinity(0))} cores for this process")
    yield Finding("disk", None, f"{shutil.disk_usage(Path.cwd()).free / GIB:.0f} GiB free here")
    if find_spec("torch") is None:
        return
    import torch

    from ede.memory import available_memory

    yield Finding(
        "memory", None, f"{available_memory() / GIB:.1f} GiB free; a million Procgen frames take 11.4"
    )
    yield Finding("threads", None, f"torch uses {torch.get_num_threads()}")
    yield Finding("bf16", None, _bf16())
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield Finding("CUDA", None, ", ".join(names) or "no device: everything runs on the processor")


def _processor() -> str:
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _cpuinfo() -> list[str]:
    source = Path("/proc/cpuinfo")
    return source.read_text().splitlines() if source.exists() else []


def _bf16() -> str:
    """Whether bf16 is faster than float32 here: the processor's flags alone do not say."""
    import torch

    single = torch.ones(MATRIX, MATRIX)
    half = single.to(torch.bfloat16)
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    end = time.perf_counter() + SECONDS
    rounds = 0
    while rounds < 2 or time.perf_counter() < end:
        for matrix in (single, half):
            start = time.perf_counter()
            torch.mm(matrix, matrix)
            best[matrix.dtype] = min(best[matrix.dtype], time.perf_counter() - start)
        rounds += 1
    ratio = best[torch.float32] / best[torch.bfloat16]
    flags = {word for line in _cpuinfo() if line.startswith("flags") for word in line.split()}
    units = [flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags]
    return f"{ratio:.1f} times the speed of float32 ({', '.join(units) or 'no bf16 units named'})"


def _procgen() -> Iterator[Finding]:
    """Both backends by playing a step: only that shows that their native libraries are found."""
    import numpy as np

    from ede.envs import make_env
    from ede.envs.procgen import BACKENDS

    for name, backend in BACKENDS.items():
        if find_spec(backend.package) is None:
            yield Finding(name, False, "missing", backend.install)
            continue
        try:
            with make_env("procgen/bigfish", backend=name) as lanes:
                lanes.reset()
                lanes.step(np.zeros(1, np.int64))
                yield Finding(name, True, f"{version(name)}, plays")
        except EdeError as error:
            yield Finding(name, False, str(error))
        except (ImportError, OSError) as error:
            yield Finding(name, False, f"does not start: {error}", backend.install)


def _parts() -> Iterator[Finding]:
    for name, package, extra in PARTS:
        found = find_spec(package) is not None
        yield Finding(
            name, found, version(name) if found else "missing", "" if found else f"pip install 'ede[{extra}]'"
        )
    browser = next((path for path in map(shutil.which, BROWSERS) if path), None)
    yield Finding(
        "browser",
        bool(browser),
        browser or "missing; only the tests need it",
        "" if browser else "apt install chromium",
    )


def _show(findings: list[Finding], sound: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    marks = {True: Text("✓", "green"), False: Text("✗", "red"), None: Text("·")}
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        table.add_row(marks[finding.ok], finding.part, Text(finding.found))
        if finding.remedy:
            table.add_row("", "", Text(finding.remedy, "bold"))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "\nThe core is sound." if sound else "\nThe core is incomplete: mend the lines marked ✗ at the top."
    )
