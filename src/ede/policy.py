"""A network that can be asked: values of observations, greedy actions. What ``ede.load`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ede.compute import PLAIN, Compute
from ede.envs import Observations
from ede.errors import EdeError
from ede.methods import Method
from ede.networks import Network
from ede.presets import Settings
from ede.returns import ReturnDistribution


@dataclass(frozen=True)
class Policy:
    """What an agent believes, for (stacked) observations."""

    network: Network
    method: Method
    settings: Settings
    compute: Compute = PLAIN

    @torch.no_grad()
    def values(
        self,
        obs: Observations | Tensor,
        context: npt.NDArray[Any] | None = None,
        noise_generator: Generator | None = None,
    ) -> ReturnDistribution:
        """Return distributions of a batch of observations (or of one, as a batch of one), on the CPU.

        Noisy layers are silent unless a generator for their noise is given.
        """
        device = next(self.network.parameters()).device
        images = self._batch(obs)
        contexts = torch.as_tensor(
            np.full(len(images), -1) if context is None else context, dtype=torch.int64, device=device
        )
        if contexts.shape != images.shape[:1]:
            raise EdeError(
                f"This policy reads a context for each of {len(images)} observations; got {contexts.tolist()}."
            )
        noise = self.network.heads.draw_noise(noise_generator) if noise_generator else None
        features = self.compute.frozen_features(self.network, images.to(device), contexts)
        # The heads in full precision: their disagreement is small beside their outputs.
        raw_MBAN = self.network.heads(features, noise)
        return self.method.head.returns(raw_MBAN.float().cpu(), self.method.ensemble.unbiased)

    def _batch(self, given: Observations | Tensor) -> Tensor:
        """One observation becomes a batch of one; what the network cannot read is refused."""
        shape, stack = self.network.obs_shape, self.settings.frame_stack
        if not isinstance(given, Tensor):
            given = np.asarray(given)
            if given.dtype.kind not in "buif":
                raise EdeError(
                    f"This policy reads observations of shape {shape}, one or a batch; got no numbers."
                )
            given = np.require(given, requirements=["C", "W"])  # torch takes no flipped and no sealed array
        obs = torch.as_tensor(given)
        batch = obs[None] if obs.shape == shape else obs
        if batch.shape[1:] != shape:
            stacked = f" ({stack} frames joined along the last axis, oldest first)" if stack > 1 else ""
            raise EdeError(
                f"This policy reads observations of shape {shape}{stacked}, one or a batch; got {tuple(obs.shape)}."
            )
        if len(shape) == 3 and obs.dtype != torch.uint8:
            raise EdeError(f"This policy reads images of type uint8, 0 to 255; got {obs.dtype}.")
        return batch

    def act(
        self, obs: Observations | Tensor, context: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[np.int64]:
        """The greedy action of each observation: argmax of the mean over members and quantiles."""
        actions: npt.NDArray[np.int64] = self.values(obs, context).q.argmax(-1).numpy()
        return actions


def load(path: str | Path) -> Policy:
    """The policy of a run folder's newest good checkpoint. Only tensors and JSON are read; no code runs."""
    from ede.runs import RunFolder

    return RunFolder.open(Path(path)).policy()
