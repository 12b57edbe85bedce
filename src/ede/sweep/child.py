"""A cell in a process of its own: ``python -m ede.sweep.child PARENT FOLDER train …``.

Both engines start cells through this. The process dies with the one that started it, waits for a predecessor that
still holds the run folder, and carries the run on where there is something to carry on.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

PATIENCE = 60.0
"""Seconds to wait for a process that is about to die to let go of the run folder."""

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(1)


def wait_until_free(folder: Path) -> None:
    """Return once nobody trains in the folder, or when patience ends: ``ede`` then says that it is in use."""
    lock = folder / ".lock"
    until = time.monotonic() + PATIENCE
    while lock.exists() and time.monotonic() < until:
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
        time.sleep(0.1)


def main() -> int:
    parent, folder, *words = sys.argv[1:]
    die_with_parent(int(parent))
    path = Path(folder)
    wait_until_free(path)
    if (path / "DONE").exists():
        return 0
    if (path / "config.json").exists():
        words = ["resume", folder]
    else:
        (path / ".config.json").unlink(missing_ok=True)  # what a kill in the first moment leaves
    from ede.cli import main as ede

    sys.argv = ["ede", *words]  # so that config.json names the command
    return ede(words)


if __name__ == "__main__":
    sys.exit(main())
