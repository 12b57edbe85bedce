"""Each fast path against the plain float32 one, with the tolerance it must hold; what it does not compute."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import cosine_similarity

from ede import encoder_passes
from ede.compute import PLAIN, Autocast, Casts, Compute, Fused, choose
from ede.learner import Learner, build_network
from ede.methods import METHODS, Method
from ede.networks import Impala, Network
from ede.parts import AllMembers, Ensemble, Quantile, Target
from ede.presets import Settings
from ede.replay import Batch
from test_learner import make_batch

SHAPE = (16, 16, 3)
"""Sides that each stage halves evenly, as it does 64."""
ODD = (17, 13, 3)
EDE = replace(METHODS["ede"], head=Quantile(6), ensemble=Ensemble(3))
SETTINGS = Settings(hidden=24, encoder="impala", learning_rate=1e-3)

FLOAT32 = 1e-5
"""Relative: sums in another order."""
BF16 = 0.02
"""Relative, in norm: bf16 rounds to 2⁻⁸ = 0.004, fifteen convolutions deep."""
CHUNKS = (1, 3, 64)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def network_of(
    method: Method = EDE, shape: tuple[int, ...] = SHAPE, settings: Settings = SETTINGS
) -> Network:
    return build_network(method, settings, shape, 3, 4, seeded(0))


def float_batch(members: int, shape: tuple[int, ...] = SHAPE, size: int = 5, seed: int = 0) -> Batch:
    batch = make_batch(members, shape, seed, size)
    return replace(
        batch,
        reward_MB=batch.reward_MB.float(),
        discount_MB=batch.discount_MB.float(),
        weight_MB=batch.weight_MB.float(),
    )


def distance(ours: Tensor, plain: Tensor) -> float:
    """‖ours − plain‖ / ‖plain‖."""
    return float((ours.detach().float() - plain).norm() / plain.norm().clamp(min=1e-12))


FAST = [
    *(pytest.param(Fused("fp32", chunk), FLOAT32, id=f"fp32-{chunk}") for chunk in CHUNKS),
    *(pytest.param(Fused("bf16", chunk), BF16, id=f"bf16-{chunk}") for chunk in CHUNKS),
    pytest.param(Autocast(), BF16, id="autocast"),
]


@pytest.mark.parametrize(("compute", "tolerance"), FAST)
@pytest.mark.parametrize("shape", [SHAPE, ODD], ids=str)
def test_features_are_the_plain_ones(compute: Compute, tolerance: float, shape: tuple[int, ...]) -> None:
    network, batch = network_of(shape=shape), float_batch(1, shape, size=7)
    obs, context = batch.obs_MB[0], batch.context_MB[0]
    plain = PLAIN.frozen_features(network, obs, context)
    frozen = compute.frozen_features(network, obs, context)
    trained = compute.trained_features(network, obs, context)
    assert frozen.dtype == trained.dtype == torch.float32
    assert not frozen.requires_grad
    assert trained.requires_grad
    assert distance(frozen, plain) < tolerance
    assert distance(trained, plain) < tolerance


@pytest.mark.parametrize("shape", [SHAPE, ODD], ids=str)
def test_gradients_of_the_encoder_are_the_plain_ones(shape: tuple[int, ...]) -> None:
    for name, ours, plain in encoder_gradients(Fused("fp32", 3), shape):
        assert distance(ours, plain) < FLOAT32, name


@pytest.mark.parametrize("compute", [Fused("bf16", 3), Autocast()], ids=["fused", "autocast"])
def test_gradients_in_bf16_point_the_same_way(compute: Compute) -> None:
    """Rounding closes some ReLUs and moves some maxima, so single numbers differ and the direction hardly."""
    for name, ours, plain in encoder_gradients(compute, SHAPE):
        assert cosine_similarity(ours.flatten(), plain.flatten(), dim=0) > 0.97, name


def test_the_hand_written_gradient_in_bf16_is_as_good_as_pytorchs() -> None:
    """PyTorch's is that of the plain modules with parameters in bf16; many images, so that single ReLUs average out."""
    obs, towards = float_batch(1, size=200).obs_MB[0], torch.randn((200, 128), generator=seeded(1))
    gradients = []
    for compute, dtype in ((PLAIN, torch.float32), (Fused("bf16"), torch.float32), (PLAIN, torch.bfloat16)):
        network = network_of().to(dtype)
        compute.trained_features(network, obs, torch.zeros(200)).backward(towards.to(dtype))  # type: ignore[no-untyped-call]
        slopes = [p.grad.float().flatten() for p in network.encoder.parameters() if p.grad is not None]
        gradients.append(torch.cat(slopes))
    plain, ours, theirs = gradients
    assert distance(ours, plain) < 1.2 * distance(theirs, plain)


def encoder_gradients(compute: Compute, shape: tuple[int, ...]) -> list[tuple[str, Tensor, Tensor]]:
    """Of every parameter: its name, our gradient and the plain one, for a random gradient of the features."""
    network, batch = network_of(shape=shape), float_batch(1, shape, size=7)
    towards = torch.randn((7, network.features), generator=seeded(1))
    found = []
    for one in (compute, PLAIN):
        network.zero_grad()
        one.trained_features(network, batch.obs_MB[0], batch.context_MB[0]).backward(towards)  # type: ignore[no-untyped-call]
        found.append({name: p.grad for name, p in network.encoder.named_parameters()})
    return [(name, ours, found[1][name]) for name, ours in found[0].items()]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_copies_of_parameters_follow_every_update(precision: str) -> None:
    """After updates and a synchronisation, the learner's own way and one made afresh give the same bits."""
    network = network_of()
    learner = Learner(EDE, SETTINGS, network, seeded(1), Fused(precision))
    for update in range(4):
        batch = float_batch(3, seed=update)
        learner.update(batch)
        if update == 2:
            learner.sync_target()
        obs, context = batch.obs_MB[0], batch.context_MB[0]
        for asked in (learner.network, learner.target_network):
            kept, fresh = (
                asked.heads(features, None, way.product(features, None))
                for way in (learner.compute, Fused(precision))
                for features in [way.frozen_features(asked, obs, context)]
            )
            assert torch.equal(kept, fresh)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("member", [None, 1])
@pytest.mark.parametrize(
    ("compute", "tolerance"), [(PLAIN, FLOAT32), (Fused("bf16"), BF16), (Autocast(), BF16)]
)
def test_heads_and_their_gradients_are_the_plain_ones(
    compute: Compute, tolerance: float, member: int | None, noisy: bool, dueling: bool
) -> None:
    method = replace(EDE, dueling=dueling, noisy=METHODS["noisy_net"].noisy if noisy else None)
    heads = network_of(method).heads
    noise = heads.draw_noise(seeded(2))
    features = torch.randn((3, 5, network_of().features), generator=seeded(3)).requires_grad_()
    plain = heads(features, noise)
    towards = torch.randn(plain.shape, generator=seeded(4))
    wanted = torch.autograd.grad(plain, [features, *heads.parameters()], towards)
    ours = heads(features, noise, compute.product(features, member))
    given = torch.autograd.grad(ours, [features, *heads.parameters()], towards)

    assert distance(ours, plain) < tolerance
    for name, one, other in zip(["features", *dict(heads.named_parameters())], given, wanted, strict=True):
        if name == "features" and member is not None:
            assert one.flatten(1).any(1).tolist() == [False, True, False], "only the trained member's"
            one, other = one[member], other[member]
        if compute is PLAIN:
            assert distance(one, other) < tolerance, name
        else:
            assert cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.97, name


@pytest.mark.parametrize("rule", ["one", "all"])
@pytest.mark.parametrize(
    "target", [Target(), Target(mean=True), Target(double=True)], ids=["own", "mean", "double"]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_update_is_the_plain_one(precision: str, target: Target, rule: str) -> None:
    method = replace(EDE, target=target)
    if rule == "all":
        method = replace(method, encoder_gradient=AllMembers())
    reports = []
    for compute in (Fused(precision, 4), PLAIN):
        learner = Learner(method, SETTINGS, network_of(method), seeded(1), compute)
        reports.append([learner.update(float_batch(3, seed=seed)) for seed in range(2)][-1])
    ours, plain = reports
    tolerance = 1e-4 if precision == "fp32" else 0.05  # Adam divides by small numbers; bf16 as above
    assert distance(ours.loss, plain.loss) < tolerance
    assert distance(ours.grad_norm, plain.grad_norm) < 2 * tolerance
    assert distance(ours.priority_MB, plain.priority_MB) < 2 * tolerance


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_seed_gives_the_same_bits(precision: str) -> None:
    states = []
    for _ in range(2):
        learner = Learner(EDE, SETTINGS, network_of(), seeded(1), Fused(precision, 4))
        for seed in range(3):
            learner.update(float_batch(3, seed=seed))
        states.append(learner.state())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_a_cast_is_made_anew_only_after_a_change() -> None:
    casts, weight = Casts(torch.bfloat16), torch.nn.Parameter(torch.randn(3))
    first = casts.of(weight)
    assert casts.of(weight) is first
    with torch.no_grad():
        weight.add_(1)
    assert torch.equal(casts.of(weight), weight.detach().bfloat16())
    assert not torch.equal(casts.of(weight), first)


def test_a_step_and_a_synchronisation_are_seen_by_the_casts() -> None:
    learner = Learner(EDE, SETTINGS, network_of(), seeded(1), Fused("bf16"))
    batch = float_batch(3)
    before = learner.targets(batch)[0]
    learner.update(batch)
    assert torch.equal(learner.targets(batch)[0], before)
    learner.sync_target()
    assert not torch.equal(learner.targets(batch)[0], before)


def test_what_has_no_fast_path_stays_plain() -> None:
    assert choose("bf16", network_of(shape=(10, 10, 3), settings=replace(SETTINGS, encoder="small"))) is PLAIN
    assert choose("fp32", network_of().double()) is PLAIN
    assert isinstance(choose("bf16", network_of()), Fused)


def test_convolutions_come_in_the_order_in_which_images_pass_them() -> None:
    encoder = network_of().encoder
    assert isinstance(encoder, Impala)
    wanted = [
        module.weight
        for stage in encoder.stages
        for module in (
            stage.conv,
            *(getattr(stage, f"block{b}").get_submodule(f"conv{c}") for b in (0, 1) for c in (0, 1)),
        )
    ]
    found = [weight for weight, _ in encoder_passes.convolutions(encoder)]
    assert len(found) == len(wanted) == 15
    assert all(one is other for one, other in zip(found, wanted, strict=True))
