"""Copies of the metrics for TensorBoard and W&B, for those who ask; the run folder needs neither."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ede.errors import EdeError
from ede.runs import RunFolder


class Mirror(Protocol):
    name: str
    run_id: str
    """What a resumed run gives back to the tool, so that its curves go on in the same place."""

    def write(self, line: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    name = "tensorboard"

    def __init__(self, folder: RunFolder) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise EdeError("TensorBoard is not installed: pip install 'ede[tensorboard]'.") from None
        self.run_id = str(folder.path / "tensorboard")
        self._writer = SummaryWriter(self.run_id)

    def write(self, line: Mapping[str, Any]) -> None:
        for name, value in numbers(line).items():
            self._writer.add_scalar(name, value, int(line["step"]))

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Writes offline unless WANDB_MODE says otherwise: training never needs the network."""

    name = "wandb"

    def __init__(self, folder: RunFolder) -> None:
        try:
            import wandb
        except ImportError:
            raise EdeError("W&B is not installed: pip install 'ede[wandb]'.") from None
        self.run_id = folder.digest()[:16]
        self._run = wandb.init(
            project="ede",
            id=self.run_id,
            resume="allow",
            dir=str(folder.path),
            mode=None if "WANDB_MODE" in os.environ else "offline",
            config=dict(folder.config),
        )

    def write(self, line: Mapping[str, Any]) -> None:
        self._run.log(numbers(line), step=int(line["step"]))

    def close(self) -> None:
        self._run.finish()


_MIRRORS: Mapping[str, Callable[[RunFolder], Mirror]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def check_mirrors(names: Sequence[str]) -> None:
    """Refuse a name that is no mirror."""
    for name in names:
        if name not in _MIRRORS:
            raise EdeError(f"There is no log '{name}'; choose {' or '.join(_MIRRORS)}.")


def open_mirrors(names: Sequence[str], folder: RunFolder) -> list[Mirror]:
    check_mirrors(names)
    return [_MIRRORS[name](folder) for name in names]


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """The entries that a curve can be drawn of."""
    return {name: value for name, value in line.items() if isinstance(value, int | float) and name != "step"}
