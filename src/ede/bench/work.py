"""Floating-point operations of one update, counted by formula; a test holds it to PyTorch's own counter.

A multiplication and an addition are two operations. Only convolutions and matrix products are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import nn

from ede.learner import Learner
from ede.networks import Impala, Network
from ede.parts import AllMembers


@dataclass(frozen=True)
class Work:
    """Operations of one update, by part."""

    target_features: int
    frozen_features: int
    trained_features: int
    encoder_backward: int
    heads: int
    heads_backward: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


def of_update(learner: Learner, batch_size: int) -> Work:
    """For a method whose members learn from their own targets, without dueling, on images through IMPALA."""
    network, members = learner.network, learner.method.ensemble.members
    target, heads = learner.method.target, network.heads.shape
    assert not target.mean
    assert not target.double
    assert not heads.dueling
    convolutions = of_convolutions(network)
    image = sum(convolutions)
    learning = members if isinstance(learner.method.encoder_gradient, AllMembers) else 1
    first = 2 * network.features * heads.hidden
    second = 2 * heads.hidden * heads.actions * heads.outputs
    return Work(
        target_features=members * batch_size * image,
        frozen_features=(members - learning) * batch_size * image,
        trained_features=learning * batch_size * image,
        # Each convolution backward into its weight and its input; the first has no use for the latter.
        encoder_backward=learning * batch_size * (2 * image - convolutions[0]),
        heads=2 * members * batch_size * (first + second),
        # Into both weights, into the hidden units, and into the features of the members that train the encoder.
        heads_backward=batch_size * (members * (first + 2 * second) + learning * first),
    )


def of_convolutions(network: Network) -> list[int]:
    """Of one image through each convolution, in order; a stage halves the sides after its first."""
    assert isinstance(network.encoder, Impala)
    convolutions = [module for module in network.encoder.modules() if isinstance(module, nn.Conv2d)]
    stages = len(convolutions) // 5
    last = (network.features - _embedding(network)) // convolutions[-1].out_channels
    operations = []
    for number, convolution in enumerate(convolutions):
        stage, place = divmod(number, 5)
        pixels = last * 4 ** (stages - 1 - stage) * (4 if place == 0 else 1)
        per_pixel = 2 * convolution.weight[0].numel() * convolution.out_channels
        operations.append(pixels * per_pixel)
    return operations


def _embedding(network: Network) -> int:
    return 0 if network.task_embedding is None else network.task_embedding.embedding_dim
