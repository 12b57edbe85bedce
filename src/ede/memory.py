"""What this machine can still give: memory, a device's memory, disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ede.errors import JobFailed

if TYPE_CHECKING:  # worlds ask for memory, and do not wait for torch
    import torch


def available_memory() -> int:
    """Bytes this process may still take: the machine's, or its control group's where that is tighter."""
    free = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    machine = Path("/proc/meminfo")
    if machine.exists():  # counts what the kernel would give back, too
        words = dict(line.split(":") for line in machine.read_text().splitlines())
        free = [int(words["MemAvailable"].split()[0]) * 1024]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free.append(int(limit.read_text()) - int(used.read_text()))
    return max(0, min(free))


def available_on(device: torch.device) -> int:
    """Bytes that fit on a device now."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return available_memory()


def available_disk(path: Path) -> int:
    """Bytes a file at ``path`` may still take; what a file already there holds counts as free."""
    held = path.stat().st_size if path.exists() else 0
    return shutil.disk_usage(path.parent).free + held


@contextmanager
def told_where_memory_ends() -> Iterator[None]:
    """Says in one sentence that PyTorch or NumPy got no memory, and what takes it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if "allocate" not in str(error):  # PyTorch has no class of its own for this on the CPU
            raise
        raise JobFailed(
            "There is not enough memory for this; choose a smaller batch_size, members, hidden, quantiles or lanes."
        ) from error
