"""The learner: equal to its plain twin, equal to its special cases, and reproducible from its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ede.learner import Learner, build_network
from ede.methods import METHODS, Method
from ede.parts import AllMembers, Anchor, Ensemble, OneMember, Quantile, Scalar, Target
from ede.presets import Settings
from ede.replay import Batch
from twin import Plain, Rules, Twin

ACTIONS = 3
BATCH = 2
WORLDS = {"vector": (4,), "image": (5, 4, 2)}
BASE = METHODS["ede"]
SETTINGS = Settings(hidden=5, learning_rate=1e-2, kappa=0.7)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def make_batch(members: int, shape: tuple[int, ...], seed: int, size: int = BATCH) -> Batch:
    """Random transitions, some terminal, of unequal weight."""
    generator, axes = seeded(seed), (members, size)

    def observations() -> Tensor:
        if len(shape) == 3:
            return torch.randint(256, (*axes, *shape), generator=generator, dtype=torch.uint8)
        return torch.randn((*axes, *shape), generator=generator)

    def uniform() -> Tensor:
        return torch.rand(axes, generator=generator, dtype=torch.float64)

    return Batch(
        obs_MB=observations(),
        action_MB=torch.randint(ACTIONS, axes, generator=generator),
        reward_MB=3 * uniform() - 1,
        discount_MB=0.97 * (uniform() > 0.3),
        next_obs_MB=observations(),
        context_MB=torch.randint(4, axes, generator=generator),
        weight_MB=2 * uniform(),
        row_MB=torch.arange(members * size).view(axes),
    )


def make_learner(method: Method, settings: Settings, shape: tuple[int, ...], seed: int = 0) -> Learner:
    """In float64, with target weights that differ from the network's."""
    network = build_network(method, settings, shape, ACTIONS, 4, seeded(seed)).double()
    learner = Learner(method, settings, network, seeded(seed + 100))
    moved = build_network(method, settings, shape, ACTIONS, 4, seeded(seed + 50)).double()
    learner.target_network.load_state_dict(moved.state_dict())
    return learner


def upcoming_member(learner: Learner) -> int:
    """Which member the next update draws, without drawing it."""
    ahead = Generator()
    ahead.set_state(learner.generator.get_state())
    return int(torch.randint(learner.method.ensemble.members, (), generator=ahead))


# ---- the twin ------------------------------------------------------------------------------------------------------


def plain_of(tensors: dict[str, Tensor], members: int) -> Plain:
    encoder = {
        name.removeprefix("encoder."): tensor.detach().clone()
        for name, tensor in tensors.items()
        if name.startswith("encoder.")
    }
    heads = [
        {
            name.removeprefix("heads."): tensor[member].detach().clone().squeeze(0)
            for name, tensor in tensors.items()
            if name.startswith("heads.")
        }
        for member in range(members)
    ]
    return Plain(encoder, heads)


def samples_of(batch: Batch) -> list[list[dict[str, Any]]]:
    members, size = batch.action_MB.shape
    return [
        [
            {
                "obs": batch.obs_MB[m, b],
                "action": int(batch.action_MB[m, b]),
                "reward": float(batch.reward_MB[m, b]),
                "discount": float(batch.discount_MB[m, b]),
                "next_obs": batch.next_obs_MB[m, b],
                "weight": float(batch.weight_MB[m, b]),
            }
            for b in range(size)
        ]
        for m in range(members)
    ]


TARGETS = {"own": Target(), "mean": Target(mean=True), "double": Target(double=True)}
GRADIENTS = {"one": OneMember(), "all": AllMembers(), "normalised": AllMembers(normalised=True)}


def assert_equals_twin(
    world: str, members: int, rules: Rules, quantiles: int = 3, updates: int = 3, seed: int = 0
) -> None:
    """Losses, every gradient and all parameters after every one of several updates, to 1e-10."""
    settings = replace(SETTINGS, kappa=rules.kappa, clip_norm=rules.clip_norm)
    method = replace(
        BASE,
        head=Quantile(quantiles, rules.kappa) if rules.quantile else Scalar(rules.kappa),
        ensemble=Ensemble(members),
        target=TARGETS[rules.target],
        encoder_gradient=GRADIENTS[rules.encoder],
        anchor=Anchor(rules.anchor) if rules.anchor else None,
    )
    learner = make_learner(method, settings, WORLDS[world], seed)
    twin = Twin(rules, ACTIONS, plain_of(dict(learner.network.named_parameters()), members))
    twin.frozen = plain_of(dict(learner.target_network.named_parameters()), members)

    for update in range(updates):
        batch = make_batch(members, WORLDS[world], seed + update)
        chosen = upcoming_member(learner) if rules.encoder == "one" else -1
        report = learner.update(batch)
        losses_MB, gradients, norm = twin.update(samples_of(batch), chosen)

        close = {"rtol": 0, "atol": 1e-10}
        torch.testing.assert_close(report.priority_MB, losses_MB, **close)
        weighted = (losses_MB * batch.weight_MB).mean(1).sum()
        torch.testing.assert_close(report.loss, weighted, **close)
        torch.testing.assert_close(float(report.grad_norm), norm, **close)
        slopes = {name: p.grad for name, p in learner.network.named_parameters() if p.grad is not None}
        ours = plain_of(slopes, members).leaves()
        assert ours.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(ours[name], gradient, **close, msg=f"{name} at {update}")
        after = plain_of(dict(learner.network.named_parameters()), members).leaves()
        for name, tensor in twin.online.leaves().items():
            torch.testing.assert_close(after[name], tensor.detach(), **close, msg=f"{name} at {update}")
        if update == 0:
            learner.sync_target()
            twin.sync()


@pytest.mark.parametrize("encoder", GRADIENTS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("members", [1, 2, 3, 4, 5])
def test_an_update_is_the_twins_update(members: int, target: str, encoder: str) -> None:
    assert_equals_twin("vector", members, Rules(target, encoder, kappa=0.7), seed=members)


@pytest.mark.parametrize("encoder", GRADIENTS)
@pytest.mark.parametrize("target", TARGETS)
def test_an_update_from_images_is_the_twins_update(target: str, encoder: str) -> None:
    assert_equals_twin("image", 3, Rules(target, encoder), updates=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("members", [1, 3])
def test_a_scalar_update_is_the_twins_update(members: int, target: str) -> None:
    assert_equals_twin("vector", members, Rules(target, "one", quantile=False, kappa=0.7), quantiles=1)


@pytest.mark.parametrize("encoder", GRADIENTS)
def test_a_clipped_update_is_the_twins_update(encoder: str) -> None:
    assert_equals_twin("vector", 3, Rules("own", encoder, clip_norm=0.05))


def test_an_anchored_update_is_the_twins_update() -> None:
    assert_equals_twin("vector", 3, Rules("mean", "one", anchor=0.3))


# ---- reductions ----------------------------------------------------------------------------------------------------


def updated(method: Method, settings: Settings = SETTINGS, members: int = 1) -> dict[str, Tensor]:
    """Everything after three updates."""
    learner = make_learner(method, settings, WORLDS["vector"])
    for seed in range(3):
        learner.update(make_batch(members, WORLDS["vector"], seed, size=6))
    return {name: tensor for name, tensor in learner.state().items() if name != "generator"}


def assert_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name


def test_one_member_of_ede_is_qrdqn_to_the_bit() -> None:
    ede = replace(METHODS["ede"], head=Quantile(7), ensemble=Ensemble(1))
    assert_same(updated(ede), updated(replace(METHODS["qrdqn"], head=Quantile(7))))


@pytest.mark.parametrize("rule", [AllMembers(), AllMembers(normalised=True)], ids=str)
def test_with_one_member_every_encoder_rule_is_the_same(rule: AllMembers) -> None:
    one = replace(METHODS["qrdqn"], head=Quantile(7))
    assert_same(updated(one), updated(replace(one, encoder_gradient=rule)))


def test_with_one_member_the_mean_target_is_its_own() -> None:
    one = replace(METHODS["qrdqn"], head=Quantile(7))
    assert_same(updated(one), updated(replace(one, target=Target(mean=True))))


def test_double_q_with_equal_networks_is_the_plain_target() -> None:
    own = replace(METHODS["ede"], head=Quantile(7), ensemble=Ensemble(3))
    plain, double = (
        make_learner(method, SETTINGS, WORLDS["vector"])
        for method in (own, replace(own, target=Target(double=True)))
    )
    batch = make_batch(3, WORLDS["vector"], 0)
    assert not torch.equal(plain.targets(batch)[0], double.targets(batch)[0]), "the networks differ so far"
    plain.sync_target()
    double.sync_target()
    assert torch.equal(plain.targets(batch)[0], double.targets(batch)[0])


def test_one_quantile_is_huber_dqn_at_half_the_loss() -> None:
    """With N = 1 the only quantile is the median, and |½ − 1(u < 0)| is ½ on both sides."""
    unclipped = replace(SETTINGS, clip_norm=1e9)
    batch, slopes, losses = make_batch(1, WORLDS["vector"], 0, size=8), [], []
    for head in (Quantile(1, kappa=0.7), Scalar(kappa=0.7)):
        learner = make_learner(replace(METHODS["qrdqn"], head=head), unclipped, WORLDS["vector"])
        losses.append(learner.update(batch).priority_MB)
        slopes.append([p.grad for p in learner.network.parameters() if p.grad is not None])
    torch.testing.assert_close(2 * losses[0], losses[1], rtol=0, atol=1e-12)
    assert len(slopes[0]) == len(slopes[1]) == 6
    for quantile, scalar in zip(*slopes, strict=True):
        torch.testing.assert_close(2 * quantile, scalar, rtol=0, atol=1e-12)


# ---- what may and what may not matter ------------------------------------------------------------------------------


ENSEMBLE = replace(METHODS["ede"], head=Quantile(5), ensemble=Ensemble(3))


def test_nothing_after_the_end_of_an_episode_is_looked_at() -> None:
    batch = make_batch(3, WORLDS["vector"], 0)
    ended = replace(batch, discount_MB=torch.zeros_like(batch.discount_MB))
    elsewhere = replace(ended, next_obs_MB=ended.next_obs_MB + 100)
    learner = make_learner(ENSEMBLE, SETTINGS, WORLDS["vector"])
    target_MBN, _ = learner.targets(ended)
    assert torch.equal(target_MBN, batch.reward_MB[..., None].expand_as(target_MBN))
    assert torch.equal(target_MBN, learner.targets(elsewhere)[0])


def test_a_sample_without_weight_teaches_nothing() -> None:
    batch = make_batch(3, WORLDS["vector"], 0, size=4)
    batch.weight_MB[1, 2] = 0
    disturbed = replace(batch, reward_MB=batch.reward_MB.clone(), obs_MB=batch.obs_MB.clone())
    disturbed.reward_MB[1, 2], disturbed.obs_MB[1, 2] = 50, -9
    states = []
    for one in (batch, disturbed):
        learner = make_learner(ENSEMBLE, SETTINGS, WORLDS["vector"])
        learner.update(one)
        states.append(learner.state())
    for name, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][name], rtol=0, atol=1e-12, msg=name)


def test_a_member_without_weight_keeps_its_head() -> None:
    """A bootstrap mask that leaves a member out leaves it as it is."""
    batch = make_batch(3, WORLDS["vector"], 0)
    batch.weight_MB[2] = 0
    learner = make_learner(ENSEMBLE, SETTINGS, WORLDS["vector"])
    before = {name: p.detach().clone() for name, p in learner.network.heads.named_parameters()}
    learner.update(batch)
    for name, parameter in learner.network.heads.named_parameters():
        assert torch.equal(parameter[2], before[name][2]), name
        assert not torch.equal(parameter[:2], before[name][:2]), name


@pytest.mark.parametrize("mean", [False, True])
def test_each_member_is_evaluated_once(mean: bool) -> None:
    """M·B rows pass through the encoder and M·B through the heads; only mean targets need M·M·B."""
    learner = make_learner(replace(ENSEMBLE, target=Target(mean=mean)), SETTINGS, WORLDS["vector"])
    rows: dict[str, int] = {}

    def count(name: str, module: torch.nn.Module, axes: int) -> None:
        def hook(module: torch.nn.Module, entering: object, leaving: Tensor) -> None:
            rows[name] = rows.get(name, 0) + leaving.shape[:axes].numel()

        module.register_forward_hook(hook)

    count("encoder", learner.network.encoder, 1)
    count("target encoder", learner.target_network.encoder, 1)
    count("heads", learner.network.heads, 2)
    count("target heads", learner.target_network.heads, 2)
    learner.update(make_batch(3, WORLDS["vector"], 0, size=4))
    assert rows == {
        "encoder": 12,
        "target encoder": 12,
        "heads": 12,
        "target heads": 36 if mean else 12,
    }


def test_the_member_that_trains_the_encoder_is_drawn_uniformly() -> None:
    learner = make_learner(ENSEMBLE, SETTINGS, WORLDS["vector"])
    batch, counts = make_batch(3, WORLDS["vector"], 0), [0, 0, 0]
    weight = next(learner.network.encoder.parameters())
    for _ in range(900):
        features = learner.features(batch, learner.draw_member())
        slopes = [torch.autograd.grad(row.sum(), weight, retain_graph=True)[0] for row in features]
        (trained,) = [member for member, slope in enumerate(slopes) if slope.any()]
        counts[trained] += 1
    # 300 each; five standard deviations are 71.
    assert all(abs(count - 300) < 71 for count in counts), counts


def test_no_gradient_and_no_step_reaches_the_target_network() -> None:
    learner = make_learner(ENSEMBLE, SETTINGS, WORLDS["image"])
    before = {name: tensor.clone() for name, tensor in learner.target_network.state_dict().items()}
    learner.update(make_batch(3, WORLDS["image"], 0))
    assert not any(p.requires_grad or p.grad is not None for p in learner.target_network.parameters())
    assert_same(before, dict(learner.target_network.state_dict()))
    learner.sync_target()
    assert_same(dict(learner.network.state_dict()), dict(learner.target_network.state_dict()))


def test_the_categorical_loss_by_pencil() -> None:
    """Atoms (−1, 0, 1); after a terminal reward of ½ the target is half on 0 and half on 1."""
    head = replace(METHODS["c51"].head, atoms=3, v_min=-1.0, v_max=1.0)
    learner = make_learner(replace(METHODS["c51"], head=head), SETTINGS, WORLDS["vector"])
    batch = make_batch(1, WORLDS["vector"], 0, size=1)
    batch = replace(batch, reward_MB=torch.full((1, 1), 0.5).double(), discount_MB=torch.zeros(1, 1).double())
    logits = learner.network(batch.obs_MB[0])[0, 0, batch.action_MB[0, 0]].detach()
    expected = -0.5 * (logits.log_softmax(-1)[1] + logits.log_softmax(-1)[2])
    torch.testing.assert_close(learner.update(batch).priority_MB[0, 0], expected, rtol=0, atol=1e-12)


def test_the_report_says_what_the_update_saw() -> None:
    learner = make_learner(replace(METHODS["qrdqn"], head=Quantile(4)), SETTINGS, WORLDS["vector"])
    batch = make_batch(1, WORLDS["vector"], 0, size=5)
    q_BA = learner.network(batch.obs_MB[0])[0].detach().mean(-1)
    target_MBN, _ = learner.targets(batch)
    report = learner.update(batch)
    torch.testing.assert_close(report.q, q_BA.gather(1, batch.action_MB[0, :, None]).mean())
    torch.testing.assert_close(report.target, target_MBN.mean())
    assert learner.updates == 1


# ---- continuing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ede", "rainbow", "ua_dqn", "noisy_net", "dqn_task_id", "bootstrapped_dqn"])
def test_a_learner_continues_to_the_bit_from_its_state(name: str) -> None:
    settings = replace(SETTINGS, quantiles=4, atoms=5, members=3, anchor=0.1)
    method = METHODS[name].built(settings)
    members = method.ensemble.members
    batches = [make_batch(members, WORLDS["vector"], seed) for seed in range(4)]
    learner = make_learner(method, settings, WORLDS["vector"])
    for batch in batches[:2]:
        learner.update(batch)
    stored = {key: tensor.clone() for key, tensor in learner.state().items()}
    resumed = make_learner(method, settings, WORLDS["vector"], seed=9)
    resumed.load(stored)
    for batch in batches[2:]:
        learner.update(batch)
        resumed.update(batch)
    assert_same(learner.state(), resumed.state())


def test_a_state_is_a_copy_that_later_updates_leave_alone() -> None:
    learner, batch = make_learner(ENSEMBLE, SETTINGS, WORLDS["vector"]), make_batch(3, WORLDS["vector"], 0)
    learner.update(batch)
    stored = learner.state()
    copies = {name: tensor.clone() for name, tensor in stored.items()}
    learner.update(batch)
    assert_same(stored, copies)
    resumed = make_learner(ENSEMBLE, SETTINGS, WORLDS["vector"], seed=9)
    resumed.load(stored)
    resumed.update(batch)
    assert_same(stored, copies)
