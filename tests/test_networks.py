"""Encoders and stacked heads against plain layers, one member and one noise draw at a time."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ede.errors import EdeError
from ede.networks import (
    ENCODERS,
    TASK_EMBEDDING,
    Heads,
    HeadShape,
    Nature,
    Network,
    as_planes,
    choose_encoder,
)

SHAPE = HeadShape(members=3, actions=4, outputs=5, hidden=6)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def image(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=seeded(), dtype=torch.uint8)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# ---- encoders -----------------------------------------------------------------------------------------------------


def test_bytes_become_planes_between_zero_and_one() -> None:
    obs = image(2, 3, 4, 5)
    planes = as_planes(obs, like=torch.zeros(0, dtype=torch.float64))
    assert planes.shape == (2, 5, 3, 4)
    assert planes.dtype == torch.float64
    assert planes[1, 4, 2, 3] == obs[1, 2, 3, 4] / torch.tensor(255, dtype=torch.float64)
    assert as_planes(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), like=planes).flatten().tolist() == [
        0,
        1,
    ]


def test_impala_is_the_papers_residual_stack() -> None:
    encoder = Network("impala", (64, 64, 3), SHAPE, 0, seeded()).encoder.double()
    obs = image(2, 64, 64, 3)
    weights = iter(encoder.parameters())
    x = obs.permute(0, 3, 1, 2).double() / 255

    def convolve(x: Tensor) -> Tensor:
        return F.conv2d(x, next(weights), next(weights), padding=1)

    for _ in range(3):
        x = F.max_pool2d(convolve(x), 3, stride=2, padding=1)
        for _ in range(2):
            x = x + convolve(F.relu(convolve(F.relu(x))))
    assert next(weights, None) is None
    torch.testing.assert_close(encoder(obs), F.relu(x).flatten(1), rtol=1e-12, atol=1e-12)
    assert encoder(obs).shape == (2, 2048)
    # 3×3 kernels: one into and four within each stage of 16, 32 and 32 channels.
    weights_of = [(3, 16), (16, 32), (32, 32)]
    assert parameters(encoder) == sum(9 * i * o + o + 4 * (9 * o * o + o) for i, o in weights_of)


def test_nature_is_the_canonical_stack() -> None:
    network = Network("nature", (84, 84, 4), SHAPE, 0, seeded())
    assert network.features == 64 * 7 * 7
    assert parameters(network.encoder) == 77_984  # Mnih et al. 2015: 8224 + 32 832 + 36 928


def test_small_and_mlp_flatten_their_worlds() -> None:
    assert Network("small", (5, 5, 3), SHAPE, 0, seeded()).features == 32 * 3 * 3
    network = Network("mlp", (7,), SHAPE, 0, seeded())
    assert network(torch.ones(2, 7)).shape == (3, 2, 4, 5)


def test_paper_heads_have_the_papers_size() -> None:
    heads = Heads(2048, HeadShape(members=5, actions=15, outputs=200), seeded())
    assert parameters(heads) == 5 * (2048 * 512 + 512 + 512 * 15 * 200 + 15 * 200)


@pytest.mark.parametrize(
    ("shape", "encoder"),
    [
        ((4,), "mlp"),
        ((7, 7, 3), "small"),
        ((20, 30, 1), "small"),
        ((64, 64, 3), "impala"),
        ((84, 84, 4), "nature"),
    ],
)
def test_the_shape_of_an_observation_chooses_its_encoder(shape: tuple[int, ...], encoder: str) -> None:
    assert choose_encoder("auto", shape) == encoder
    assert choose_encoder(encoder, shape) == encoder


def test_encoders_that_cannot_read_the_world_are_refused() -> None:
    with pytest.raises(EdeError, match="no encoder 'resnet'; choose auto, impala"):
        choose_encoder("resnet", (64, 64, 3))
    with pytest.raises(EdeError, match="'mlp' cannot read"):
        choose_encoder("mlp", (64, 64, 3))
    for name in set(ENCODERS) - {"mlp"}:
        with pytest.raises(EdeError, match=f"'{name}' cannot read"):
            choose_encoder(name, (4,))
    with pytest.raises(EdeError, match="'nature' needs images of 36 pixels a side"):
        choose_encoder("nature", (84, 35, 3))
    Nature((36, 36, 3))(torch.zeros((1, 36, 36, 3), dtype=torch.uint8))


# ---- stacked heads ------------------------------------------------------------------------------------------------


def separate_head(heads: Heads, member: int) -> nn.Sequential:
    """The same member made of plain layers."""
    layers = []
    for stacked in (heads.hidden, heads.advantage):
        _, entering, leaving = stacked.weight.shape
        linear = nn.Linear(entering, leaving, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(stacked.weight[member].T)
            linear.bias.copy_(stacked.bias[member, 0])
        layers.append(linear)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def test_stacked_heads_are_separate_heads() -> None:
    heads = Heads(7, SHAPE, seeded()).double()
    shared_Bd = torch.randn(2, 7, generator=seeded(1), dtype=torch.float64)
    own_MBd = torch.randn(3, 2, 7, generator=seeded(2), dtype=torch.float64)
    for member in range(3):
        plain = separate_head(heads, member)
        for stacked, alone in ((heads(shared_Bd), shared_Bd), (heads(own_MBd), own_MBd[member])):
            torch.testing.assert_close(stacked[member], plain(alone).view(2, 4, 5), rtol=1e-12, atol=1e-12)


def test_members_begin_apart_and_within_the_usual_bounds() -> None:
    heads = Heads(7, SHAPE, seeded())
    assert not torch.equal(heads.hidden.weight[0], heads.hidden.weight[1])
    assert float(heads.hidden.weight.detach().abs().max()) <= 1 / sqrt(7)
    assert float(heads.hidden.weight.detach().abs().max()) > 0.9 / sqrt(7)


def test_dueling_splits_a_value_from_advantages() -> None:
    heads = Heads(7, HeadShape(3, 4, 5, 6, dueling=True), seeded()).double()
    features = torch.randn(2, 7, generator=seeded(1), dtype=torch.float64)
    out_MBAN = heads(features)
    for i in range(3):
        hidden = F.relu(features @ heads.value_hidden.weight[i] + heads.value_hidden.bias[i])
        value_BN = hidden @ heads.value.weight[i] + heads.value.bias[i]
        advantage_BAN = separate_head(heads, i)(features).view(2, 4, 5)
        for action in range(4):
            expected = value_BN + advantage_BAN[:, action] - advantage_BAN.mean(1)
            torch.testing.assert_close(out_MBAN[i, :, action], expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(out_MBAN[i].mean(1), value_BN, rtol=1e-12, atol=1e-12)


# ---- noise --------------------------------------------------------------------------------------------------------


def noisy_heads() -> Heads:
    return Heads(7, HeadShape(3, 4, 5, 6, sigma0=0.5), seeded()).double()


def test_noise_is_factorised_as_in_noisynet() -> None:
    heads = noisy_heads()
    noise = heads.draw_noise(seeded(1))
    assert noise is not None
    x = torch.randn(2, 7, generator=seeded(2), dtype=torch.float64)
    out = heads(x, noise)
    for i in range(3):
        y = x
        for layer, (entering, leaving) in zip((heads.hidden, heads.advantage), noise, strict=True):
            weight = layer.weight[i] + layer.weight_sigma[i] * torch.outer(entering[i], leaving[i])
            y = y @ weight + layer.bias[i, 0] + layer.bias_sigma[i, 0] * leaving[i]
            y = F.relu(y) if layer is heads.hidden else y
        torch.testing.assert_close(out[i], y.view(2, 4, 5), rtol=1e-12, atol=1e-12)


def test_noise_begins_at_sigma0_over_the_root_of_the_inputs() -> None:
    heads = noisy_heads()
    assert torch.allclose(heads.hidden.weight_sigma, torch.tensor(0.5 / sqrt(7), dtype=torch.float64))
    assert torch.allclose(heads.advantage.bias_sigma, torch.tensor(0.5 / sqrt(6), dtype=torch.float64))


def test_noise_is_the_generators_and_its_absence_is_a_plain_layer() -> None:
    heads, x = noisy_heads(), torch.ones(2, 7, dtype=torch.float64)
    first, again, other = (heads(x, heads.draw_noise(seeded(s))) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    plain = torch.stack([separate_head(heads, i)(x).view(2, 4, 5) for i in range(3)])
    torch.testing.assert_close(heads(x), plain, rtol=1e-12, atol=1e-12)
    assert Heads(7, SHAPE, seeded()).draw_noise(seeded()) is None


def test_noise_factors_are_signed_roots_of_normal_draws() -> None:
    layer = Heads(20_000, HeadShape(1, 1, 1, 1, sigma0=0.5), seeded()).hidden
    entering, _ = layer.draw_noise(seeded(1))
    normal = entering.sign() * entering.square()
    assert abs(float(normal.mean())) < 0.03
    assert float(normal.std()) == pytest.approx(1, abs=0.03)


# ---- the whole network ---------------------------------------------------------------------------------------------


def test_the_encoder_runs_once_whatever_the_number_of_members() -> None:
    network, calls = Network("small", (5, 5, 3), SHAPE, 0, seeded()), []
    network.encoder.register_forward_hook(lambda *_: calls.append(1))
    network(image(2, 5, 5, 3))
    assert calls == [1]


def test_one_seed_one_network_and_nothing_drawn_behind_the_back() -> None:
    torch.manual_seed(5)
    untouched = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (Network("small", (5, 5, 3), SHAPE, 4, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), untouched)
    for (name, weight), twin, stranger in zip(
        one.state_dict().items(), same.state_dict().values(), other.state_dict().values(), strict=True
    ):
        assert torch.equal(weight, twin), name
        assert not torch.equal(weight, stranger), name


def test_a_context_is_embedded_and_an_unknown_one_gets_the_mean() -> None:
    network = Network("mlp", (2,), SHAPE, 3, seeded()).double()
    assert network.task_embedding is not None
    table, obs = network.task_embedding.weight, torch.ones(4, 2)
    features = network.encode(obs, torch.tensor([0, 2, 3, -1]))
    assert features.shape == (4, 128 + TASK_EMBEDDING)
    assert network.features == 128 + TASK_EMBEDDING
    torch.testing.assert_close(
        features[:, 128:], torch.stack([table[0], table[2], table.mean(0), table.mean(0)])
    )
    assert network(obs, torch.tensor([0, 2, 3, -1])).shape == (3, 4, 4, 5)


def test_without_an_embedding_the_context_changes_nothing() -> None:
    network = Network("mlp", (2,), SHAPE, 0, seeded())
    assert torch.equal(network(torch.ones(1, 2), torch.tensor([1])), network(torch.ones(1, 2)))
