"""The plain twin of the learner: M separate QR-DQN networks that share an encoder.

Everything is as slow and as plain as it can be written: one sample and one member at a time, convolutions as loops
over positions, the N×N loss, autograd, and Adam and clipping by hand. It shares no code with ``ede``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import torch
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Rules:
    """How the twin learns; the counterpart of a method's row and its settings."""

    target: str
    """own, mean or double."""
    encoder: str
    """one (a chosen member trains the encoder), all or normalised (all, divided by M)."""
    quantile: bool = True
    kappa: float = 1.0
    learning_rate: float = 1e-2
    adam_epsilon: float = 1.5e-4
    clip_norm: float = 10.0
    anchor: float = 0.0


@dataclass
class Plain:
    """One copy of the shared encoder and of every head."""

    encoder: Weights
    heads: list[Weights]

    def features(self, obs: Tensor) -> Tensor:
        """Of one observation [D] or [H, W, C]."""
        if obs.ndim == 1:
            return relu(self.encoder["linear.weight"] @ obs.double() + self.encoder["linear.bias"])
        x = obs.double() / 255
        for layer, stride in (("convolutions.0", 1), ("convolutions.1", 2)):
            weight, bias = self.encoder[f"{layer}.weight"], self.encoder[f"{layer}.bias"]
            x = relu(convolve(x, weight, bias, stride))
        return x.permute(2, 0, 1).flatten()

    def quantiles(self, member: int, features: Tensor, actions: int) -> Tensor:
        """[A, N] of one member."""
        head = self.heads[member]
        hidden = relu(features @ head["hidden.weight"] + head["hidden.bias"])
        return (hidden @ head["advantage.weight"] + head["advantage.bias"]).reshape(actions, -1)

    def leaves(self) -> dict[str, Tensor]:
        """Every parameter under a name of its own."""
        named = {f"encoder.{name}": tensor for name, tensor in self.encoder.items()}
        for member, head in enumerate(self.heads):
            named |= {f"head{member}.{name}": tensor for name, tensor in head.items()}
        return named

    def copy(self) -> Plain:
        def fresh(weights: Weights) -> Weights:
            return {name: tensor.detach().clone() for name, tensor in weights.items()}

        return Plain(fresh(self.encoder), [fresh(head) for head in self.heads])


def relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """A 3×3 convolution with one ring of zeros: [H, W, C] to [H', W', C']."""
    height, width, channels = x.shape
    padded = torch.zeros(height + 2, width + 2, channels, dtype=x.dtype)
    padded[1:-1, 1:-1] = x
    rows = []
    for top in range(0, height, stride):
        row = []
        for left in range(0, width, stride):
            patch = padded[top : top + 3, left : left + 3].permute(2, 0, 1)
            row.append((weight * patch).sum((1, 2, 3)) + bias)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def huber(u: Tensor, kappa: float) -> Tensor:
    return torch.where(u.abs() <= kappa, 0.5 * u**2, kappa * (u.abs() - 0.5 * kappa))


def quantile_huber(theta_N: Tensor, target_N: Tensor, kappa: float) -> Tensor:
    """Equation 16, N×N: the sum over current quantiles j of the mean over target quantiles i."""
    count = len(theta_N)
    total = torch.zeros((), dtype=theta_N.dtype)
    for j in range(count):
        middle = (2 * j + 1) / (2 * count)
        for i in range(len(target_N)):
            u = target_N[i] - theta_N[j]
            total = total + abs(middle - float(u < 0)) * huber(u, kappa)
    return total / len(target_N)


@dataclass
class Twin:
    """The twin itself: networks, target networks and Adam's moments."""

    rules: Rules
    actions: int
    online: Plain
    frozen: Plain = field(init=False)
    start: Plain = field(init=False)
    first: dict[str, Tensor] = field(default_factory=dict)
    second: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.frozen, self.start = self.online.copy(), self.online.copy()

    def target(self, member: int, reward: float, discount: float, next_obs: Tensor) -> Tensor:
        """Equation 15: r + discount · θ(s', a*), one member, one sample."""
        features = self.frozen.features(next_obs)
        if self.rules.target == "mean":
            each = [self.frozen.quantiles(i, features, self.actions) for i in range(len(self.frozen.heads))]
            judged = sum(each, torch.zeros_like(each[0])) / len(each)
        else:
            judged = self.frozen.quantiles(member, features, self.actions)
        chooser = judged
        if self.rules.target == "double":
            chooser = self.online.quantiles(member, self.online.features(next_obs), self.actions)
        values = [float(chooser[action].detach().mean()) for action in range(self.actions)]
        return reward + discount * judged[values.index(max(values))].detach()

    def update(self, samples: list[list[dict]], chosen: int) -> tuple[Tensor, dict[str, Tensor], float]:  # type: ignore[type-arg]
        """``samples[member][b]``; gives unweighted losses [M, B], clipped gradients and the norm before."""
        leaves = self.online.leaves()
        for tensor in leaves.values():
            tensor.requires_grad_(True)
            tensor.grad = None
        members, losses, total = len(samples), [], torch.zeros((), dtype=torch.float64)
        for member, minibatch in enumerate(samples):
            row = []
            for sample in minibatch:
                features = self.online.features(sample["obs"])
                if self.rules.encoder == "one" and member != chosen:
                    features = features.detach()
                theta_N = self.online.quantiles(member, features, self.actions)[sample["action"]]
                target_N = self.target(member, sample["reward"], sample["discount"], sample["next_obs"])
                if self.rules.quantile:
                    loss = quantile_huber(theta_N, target_N, self.rules.kappa)
                else:
                    loss = huber(target_N[0] - theta_N[0], self.rules.kappa)
                total = total + sample["weight"] * loss / len(minibatch)
                row.append(loss.detach())
            losses.append(torch.stack(row))
        total.backward()  # type: ignore[no-untyped-call]
        gradients = {
            name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.clone()
            for name, tensor in leaves.items()
        }
        for name, gradient in gradients.items():
            if name.startswith("encoder.") and self.rules.encoder == "normalised":
                gradient /= members
            if not name.startswith("encoder."):
                # The derivative of λ (θ − θ₀)².
                gradient += 2 * self.rules.anchor * (leaves[name].detach() - self.start.leaves()[name])
        norm = sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
        scale = min(self.rules.clip_norm / (norm + 1e-6), 1)  # 1e-6: the constant in torch's clipping
        gradients = {name: gradient * scale for name, gradient in gradients.items()}
        self.adam(gradients)
        return torch.stack(losses), gradients, norm

    def adam(self, gradients: dict[str, Tensor]) -> None:
        """Kingma & Ba 2015, algorithm 1."""
        self.steps += 1
        for name, tensor in self.online.leaves().items():
            gradient = gradients[name]
            m = 0.9 * self.first.get(name, torch.zeros_like(gradient)) + 0.1 * gradient
            v = 0.999 * self.second.get(name, torch.zeros_like(gradient)) + 0.001 * gradient**2
            self.first[name], self.second[name] = m, v
            m_hat, v_hat = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            with torch.no_grad():
                tensor -= self.rules.learning_rate * m_hat / (v_hat.sqrt() + self.rules.adam_epsilon)

    def sync(self) -> None:
        self.frozen = self.online.copy()
