"""EDE: agents whose exploration makes them generalise."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

__version__ = version("ede")

_HOME = {
    "Contexts": "ede.contexts",
    "EdeError": "ede.errors",
    "METHODS": "ede.methods",
    "PRESETS": "ede.presets",
    "ReturnDistribution": "ede.returns",
    "load": "ede.policy",
    "make_env": "ede.envs",
    "train": "ede.train",
}
"""Public name → module, imported on first use so that `import ede` stays instant."""

__all__ = ["__version__", *_HOME, "losses"]


def __getattr__(name: str) -> Any:
    if name == "losses":
        return import_module("ede.losses")
    if name not in _HOME:
        raise AttributeError(f"module 'ede' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


class _Package(ModuleType):
    """Importing ``ede.train`` would bind the module over the function of that name: the public name stays."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
