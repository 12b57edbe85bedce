"""Observations in, an ensemble of return distributions out: one shared encoder f, M stacked heads g_i.

Axis letters: M members, B batch, A actions, N outputs an action, d features, H hidden units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ede.errors import EdeError

TASK_EMBEDDING = 64
"""Size of the context embedding (paper, appendix on partial observability)."""


def as_planes(obs: Tensor, like: Tensor) -> Tensor:
    """[B, H, W, C] bytes to [B, C, H, W] floats in [0, 1], in the type of the weights that read them.

    Without a copy of the layout (channels last).
    """
    return obs.permute(0, 3, 1, 2).to(like.dtype) / 255


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        residual: Tensor = self.conv1(F.relu(self.conv0(F.relu(x))))
        return x + residual


class ImpalaStage(nn.Module):
    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(entering, leaving, 3, padding=1)
        self.block0 = ResidualBlock(leaving)
        self.block1 = ResidualBlock(leaving)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv(x), 3, stride=2, padding=1)
        leaving: Tensor = self.block1(self.block0(x))
        return leaving


class Impala(nn.Module):
    """The residual encoder of IMPALA, channels 16-32-32 (paper, appendix on architecture)."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        channels = (obs_shape[2], 16, 32, 32)
        self.stages = nn.Sequential(*map(ImpalaStage, channels[:-1], channels[1:]))

    def forward(self, obs: Tensor) -> Tensor:
        planes = as_planes(obs, like=next(self.parameters()))
        return F.relu(self.stages(planes)).flatten(1)


class Convolutions(nn.Module):
    """Plain convolutions with ReLU between, each given as (channels, kernel, stride, padding)."""

    def __init__(self, obs_shape: tuple[int, ...], layers: tuple[tuple[int, int, int, int], ...]) -> None:
        super().__init__()
        entering = obs_shape[2]
        convolutions = []
        for channels, kernel, stride, padding in layers:
            convolutions.append(nn.Conv2d(entering, channels, kernel, stride, padding))
            entering = channels
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, obs: Tensor) -> Tensor:
        x = as_planes(obs, like=next(self.parameters()))
        for convolution in self.convolutions:
            x = F.relu(convolution(x))
        return x.flatten(1)


class Nature(Convolutions):
    """The canonical DQN stack (Mnih et al. 2015), which Crafter's Rainbow uses on 84×84."""

    SMALLEST = 36
    """The side of an image of which the last convolution still sees something."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__(obs_shape, ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)))


class Small(Convolutions):
    """For worlds of about 5 to 20 cells a side."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__(obs_shape, ((16, 3, 1, 1), (32, 3, 2, 1)))


class Mlp(nn.Module):
    """For vectors: one hidden layer."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(obs_shape[0], 128)

    def forward(self, obs: Tensor) -> Tensor:
        return F.relu(self.linear(obs.to(self.linear.weight.dtype)))


ENCODERS: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "impala": Impala,
    "nature": Nature,
    "small": Small,
    "mlp": Mlp,
}


def choose_encoder(name: str, obs_shape: tuple[int, ...]) -> str:
    """Resolve ``auto`` by the shape of an observation, and refuse what cannot work."""
    if name == "auto":
        if len(obs_shape) == 1:
            return "mlp"
        side = min(obs_shape[:2])
        return "small" if side <= 20 else "nature" if side >= 84 else "impala"
    if name not in ENCODERS:
        raise EdeError(f"There is no encoder '{name}'; choose auto, {', '.join(ENCODERS)}.")
    if (name == "mlp") != (len(obs_shape) == 1):
        raise EdeError(f"The encoder '{name}' cannot read observations of shape {obs_shape}; choose auto.")
    if name == "nature" and min(obs_shape[:2]) < Nature.SMALLEST:
        raise EdeError(
            f"The encoder 'nature' needs images of {Nature.SMALLEST} pixels a side; these are {obs_shape}: choose auto."
        )
    return name


Noise = tuple[tuple[Tensor, Tensor], ...]
"""For each noisy layer the factors (ε_in [M, in], ε_out [M, out]), already passed through f(x) = sgn(x)√|x|."""
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
"""As ``torch.baddbmm``: bias [M, 1, out], x [M, B, in], weight [M, in, out] → [M, B, out]."""


class StackedLinear(nn.Module):
    """M linear layers as one tensor; with ``sigma0`` each is a NoisyNet layer with factorised noise."""

    def __init__(
        self, members: int, entering: int, leaving: int, sigma0: float | None, init: Generator
    ) -> None:
        super().__init__()
        bound = 1 / sqrt(entering)
        self.weight = nn.Parameter(_uniform((members, entering, leaving), bound, init))
        self.bias = nn.Parameter(_uniform((members, 1, leaving), bound, init))
        self.noisy = sigma0 is not None
        if sigma0 is not None:
            self.weight_sigma = nn.Parameter(torch.full((members, entering, leaving), sigma0 * bound))
            self.bias_sigma = nn.Parameter(torch.full((members, 1, leaving), sigma0 * bound))

    def forward(
        self, x: Tensor, noise: tuple[Tensor, Tensor] | None, product: Product = torch.baddbmm
    ) -> Tensor:
        """x [B, in], the same for every member, or [M, B, in]; gives [M, B, out]."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if self.noisy and noise is not None:
            entering, leaving = noise
            weight = weight + self.weight_sigma * (entering[:, :, None] * leaving[:, None, :])
            bias = bias + self.bias_sigma * leaving[:, None, :]
        if x.ndim == 2:
            x = x.expand(weight.shape[0], *x.shape)
        return product(bias, x, weight)

    def draw_noise(self, generator: Generator) -> tuple[Tensor, Tensor]:
        members, entering, leaving = self.weight.shape

        def factor(size: int) -> Tensor:
            x = torch.randn((members, size), generator=generator, dtype=self.weight.dtype)
            return (x.sign() * x.abs().sqrt()).to(self.weight.device)

        return factor(entering), factor(leaving)


def _uniform(shape: tuple[int, ...], bound: float, init: Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=init)


@dataclass(frozen=True)
class HeadShape:
    """The size of the heads and what they are made of."""

    members: int
    actions: int
    outputs: int
    hidden: int = 512
    dueling: bool = False
    sigma0: float | None = None
    """NoisyNet's initial noise; None for plain layers."""


class Heads(nn.Module):
    """M two-layer perceptrons g_i = g⁽²⁾ ∘ ReLU ∘ g⁽¹⁾ (paper, appendix on architecture), optionally dueling."""

    def __init__(self, features: int, shape: HeadShape, init: Generator) -> None:
        super().__init__()
        self.shape = shape

        def layer(entering: int, leaving: int) -> StackedLinear:
            return StackedLinear(shape.members, entering, leaving, shape.sigma0, init)

        self.hidden = layer(features, shape.hidden)
        self.advantage = layer(shape.hidden, shape.actions * shape.outputs)
        if shape.dueling:
            self.value_hidden = layer(features, shape.hidden)
            self.value = layer(shape.hidden, shape.outputs)

    def layers(self) -> list[StackedLinear]:
        return [module for module in self.children() if isinstance(module, StackedLinear)]

    def draw_noise(self, generator: Generator) -> Noise | None:
        if self.shape.sigma0 is None:
            return None
        return tuple(layer.draw_noise(generator) for layer in self.layers())

    def forward(
        self, features: Tensor, noise: Noise | None = None, product: Product = torch.baddbmm
    ) -> Tensor:
        """[M, B, A, N] from features [B, d] or, each member its own, [M, B, d]; ``product`` multiplies."""
        noises = dict(zip(self.layers(), noise or (None,) * 4, strict=False))

        def through(first: StackedLinear, second: StackedLinear) -> Tensor:
            x: Tensor = second(F.relu(first(features, noises[first], product)), noises[second], product)
            return x

        x_MBC = through(self.hidden, self.advantage)
        x_MBAN = x_MBC.view(*x_MBC.shape[:2], self.shape.actions, self.shape.outputs)
        if self.shape.dueling:
            value_MBN = through(self.value_hidden, self.value)
            x_MBAN = value_MBN[:, :, None] + x_MBAN - x_MBAN.mean(2, keepdim=True)
        return x_MBAN


class Network(nn.Module):
    """Encoder, optional context embedding, heads. What the outputs mean is the method's head's affair."""

    def __init__(
        self, encoder: str, obs_shape: tuple[int, ...], shape: HeadShape, task_ids: int, init: Generator
    ) -> None:
        super().__init__()
        self.obs_shape = obs_shape
        # The modules of torch.nn draw from the global generator: lend it our stream and give it back.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31 - 1, (), generator=init)))
            self.encoder = ENCODERS[encoder](obs_shape)
            self.task_embedding = nn.Embedding(task_ids, TASK_EMBEDDING) if task_ids else None
        with torch.no_grad():
            dtype = torch.uint8 if len(obs_shape) == 3 else torch.float32
            features = self.encoder(torch.zeros((1, *obs_shape), dtype=dtype)).shape[1]
        self.features = features + (TASK_EMBEDDING if task_ids else 0)
        self.heads = Heads(self.features, shape, init)

    def encode(self, obs: Tensor, context: Tensor | None = None) -> Tensor:
        """Features [B, d] of observations [B, …] and, for methods that read it, the context ids [B]."""
        return self.join(self.encoder(obs), context)

    def join(self, features: Tensor, context: Tensor | None = None) -> Tensor:
        """Features of observations and, for methods that read it, the embedded context."""
        if self.task_embedding is None:
            return features
        assert context is not None
        return torch.cat([features, self._embed(context)], dim=1)

    def _embed(self, context: Tensor) -> Tensor:
        """A context never trained on has no embedding of its own: it gets the mean of those that have."""
        assert self.task_embedding is not None
        table = self.task_embedding.weight
        known = (context >= 0) & (context < table.shape[0])
        own = self.task_embedding(torch.where(known, context, 0))
        return torch.where(known[:, None], own, table.mean(0))

    def forward(self, obs: Tensor, context: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """Raw head outputs [M, B, A, N]; the encoder runs once, whatever M."""
        raw: Tensor = self.heads(self.encode(obs, context), noise)
        return raw
