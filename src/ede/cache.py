"""Where what was measured or built for this machine is kept; removing the folder measures and builds anew."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/ede`` or ``~/.cache/ede``; it need not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ede"
