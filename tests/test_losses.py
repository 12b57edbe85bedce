"""The losses against pencil arithmetic and naive twins."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ede import losses
from ede.errors import EdeError


def quantile_huber_dense(current: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """The definition, pair by pair: builds [..., N, T]."""
    quantiles = current.shape[-1]
    tau = (torch.arange(quantiles, dtype=current.dtype) + 0.5) / quantiles
    difference = target.detach().unsqueeze(-2) - current.unsqueeze(-1)
    size = difference.abs()
    huber = torch.where(size <= kappa, 0.5 * difference.square(), kappa * (size - 0.5 * kappa))
    weight = (tau.unsqueeze(-1) - (difference < 0).to(current.dtype)).abs()
    return (weight * huber).mean(dim=-1).sum(dim=-1)


def value_and_gradient(loss, current: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    current = current.clone().requires_grad_()
    value = loss(current, target, kappa)
    # Unequal weights, so that a gradient that forgets the incoming one is noticed.
    weight = torch.linspace(0.5, 2.0, value.numel(), dtype=value.dtype).reshape(value.shape)
    (gradient,) = torch.autograd.grad((value * weight).sum(), current)
    return value.detach(), gradient


def doubles(*rows) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_quantile_huber_by_pencil():
    # B=1, N=2 so τ̂ = 1/4, 3/4; T=3; κ=1.
    # θ=0: u = −2, 0.5, 3; L = 1.5, 0.125, 2.5; weights 3/4, 1/4, 1/4: 1.125 + 0.03125 + 0.625 = 1.78125
    # θ=1: u = −3, −0.5, 2; L = 2.5, 0.125, 1.5; weights 1/4, 1/4, 3/4: 0.625 + 0.03125 + 1.125 = 1.78125
    # Mean over the three targets, sum over the two quantiles: 3.5625 / 3 = 1.1875.
    # dρ/dθ = −weight·clip(u): θ=0: (0.75 − 0.125 − 0.25)/3 = 0.125; θ=1: (0.25 + 0.125 − 0.75)/3 = −0.125.
    current = doubles([0.0, 1.0]).requires_grad_()
    value = losses.quantile_huber(current, doubles([3.0, -2.0, 0.5]))
    value.sum().backward()
    torch.testing.assert_close(value, doubles(1.1875), rtol=0, atol=1e-15)
    torch.testing.assert_close(current.grad, doubles([0.125, -0.125]), rtol=0, atol=1e-15)


def test_quantile_huber_with_half_kappa_is_not_divided_by_kappa():
    # N=1, τ̂ = 1/2; u = 0.25 and −2: L = 0.03125 and 0.5·(2 − 0.25) = 0.875; half of each, mean: 0.2265625.
    value = losses.quantile_huber(doubles([1.0]), doubles([1.25, -1.0]), kappa=0.5)
    torch.testing.assert_close(value, doubles(0.2265625), rtol=0, atol=1e-15)


def test_quantiles_belong_to_their_place_and_not_to_their_rank():
    # The upper quantile (τ̂ = 3/4) is the smaller number: u = 2 and 6 for it, −2 and 2 for the lower one.
    # 3/4·(1.5 + 5.5)/2 + (3/4·1.5 + 1/4·1.5)/2 = 2.625 + 0.75
    value = losses.quantile_huber(doubles([2.0, -2.0]), doubles([0.0, 4.0]))
    torch.testing.assert_close(value, doubles(3.375), rtol=0, atol=1e-15)


@pytest.mark.parametrize("kappa", [0.5, 1.0])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("shape", [(7, 3, 5), (2, 4, 11, 6), (1, 1, 1), (70, 8, 8)])
def test_quantile_huber_is_its_dense_twin(kappa, scale, shape):
    generator = torch.Generator().manual_seed(1)
    *batch, quantiles, targets = shape
    current = scale * torch.randn(*batch, quantiles, generator=generator, dtype=torch.float64)
    target = scale * torch.randn(*batch, targets, generator=generator, dtype=torch.float64)
    value, gradient = value_and_gradient(losses.quantile_huber, current, target, kappa)
    dense_value, dense_gradient = value_and_gradient(quantile_huber_dense, current, target, kappa)
    assert value.shape == tuple(batch)
    torch.testing.assert_close(value, dense_value, rtol=1e-11, atol=1e-11 * min(1, scale**2))
    torch.testing.assert_close(gradient, dense_gradient, rtol=0, atol=1e-11)


@settings(max_examples=60, deadline=None)
@given(
    current=st.lists(st.integers(-8, 8), min_size=1, max_size=7),
    target=st.lists(st.integers(-8, 8), min_size=1, max_size=7),
    kappa=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_ties_and_differences_of_exactly_kappa(current, target, kappa):
    current_N, target_T = (torch.tensor(values, dtype=torch.float64) / 4 for values in (current, target))
    value, gradient = value_and_gradient(losses.quantile_huber, current_N, target_T, kappa)
    dense_value, dense_gradient = value_and_gradient(quantile_huber_dense, current_N, target_T, kappa)
    torch.testing.assert_close(value, dense_value, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, dense_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 0.0), (1.0, 0.0), (1.0, 1e4), (1e4, 0.0), (1e6, 1e7)])
def test_float32_inputs_keep_float32_accuracy(scale, offset):
    generator = torch.Generator().manual_seed(2)
    current = offset + scale * torch.randn(6, 200, generator=generator)
    target = offset + scale * torch.randn(6, 200, generator=generator)
    value, gradient = value_and_gradient(losses.quantile_huber, current, target, 1.0)
    exact_value, exact_gradient = value_and_gradient(
        quantile_huber_dense, current.double(), target.double(), 1.0
    )
    assert value.dtype == gradient.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact_value, rtol=2e-7, atol=0)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=2e-7, atol=2e-7)


def test_bfloat16_gives_a_float32_loss_and_a_bfloat16_gradient():
    current = torch.randn(3, 5, generator=torch.Generator().manual_seed(3)).bfloat16()
    target = torch.randn(3, 4, generator=torch.Generator().manual_seed(4)).bfloat16()
    value, gradient = value_and_gradient(losses.quantile_huber, current, target, 1.0)
    exact_value, exact_gradient = value_and_gradient(
        quantile_huber_dense, current.double(), target.double(), 1.0
    )
    assert (value.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(value.double(), exact_value, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-2, atol=1e-4)


def test_one_quantile_is_half_of_huber():
    current, target = torch.randn(2, 9, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(
        losses.quantile_huber(current, target),
        0.5 * losses.huber(current, target).squeeze(-1),
        rtol=0,
        atol=1e-14,
    )


def test_a_nan_is_not_hidden():
    for poisoned in (0, 1):
        pair = [torch.zeros(2, 3), torch.zeros(2, 3)]
        pair[poisoned][1, 0] = math.nan
        value, gradient = value_and_gradient(losses.quantile_huber, *pair, 1.0)
        assert value[0] == 0
        assert value[1].isnan()
        assert gradient[0].isfinite().all()
        assert gradient[1, 0].isnan()


def test_what_has_no_answer_is_refused():
    some, none = torch.zeros(2, 3), torch.zeros(2, 0)
    for current, target, kappa in (
        (none, some, 1.0),
        (some, none, 1.0),
        (some, some, 0.0),
        (some, some, math.inf),
    ):
        with pytest.raises(AssertionError):
            losses.quantile_huber(current, target, kappa)
    assert losses.quantile_huber(torch.zeros(2, 0, 3), torch.zeros(2, 0, 4)).shape == (2, 0)


def test_a_second_derivative_is_refused():
    current = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(EdeError, match="first derivative only"):
        torch.autograd.grad(
            losses.quantile_huber(current, torch.zeros(2, 3)).sum(), current, create_graph=True
        )


def test_no_gradient_reaches_the_target():
    target = torch.zeros(2, 3, requires_grad=True)
    current = torch.ones(2, 3, requires_grad=True)
    for loss in (losses.quantile_huber, losses.huber, losses.categorical_cross_entropy):
        loss(current, target).sum().backward()
        assert current.grad is not None
        assert target.grad is None


def test_huber_by_pencil():
    value = losses.huber(doubles(0.0, 0.0, 0.0), doubles(0.5, -1.0, 3.0), kappa=1.0)
    torch.testing.assert_close(value, doubles(0.125, 0.5, 2.5), rtol=0, atol=0)
    value = losses.huber(doubles(0.0, 0.0), doubles(0.5, -2.0), kappa=0.5)
    torch.testing.assert_close(value, doubles(0.125, 0.875), rtol=0, atol=0)


def test_bellman_and_the_greedy_target_by_pencil():
    # B=2, A=3, N=2: greedy by one network's q, quantiles of the other.
    z_BAN = torch.arange(12, dtype=torch.float64).reshape(2, 3, 2)
    q_BA = doubles([0.0, 5.0, 5.0], [1.0, 0.0, 2.0])
    z_BN = losses.take_greedy(z_BAN, q_BA)
    torch.testing.assert_close(z_BN, doubles([2.0, 3.0], [10.0, 11.0]), rtol=0, atol=0)
    target_BN = losses.bellman(doubles(1.0, -1.0), doubles(0.5, 0.0), z_BN)
    torch.testing.assert_close(target_BN, doubles([2.0, 2.5], [-1.0, -1.0]), rtol=0, atol=0)
    z_MBAN, q_MBA = z_BAN.expand(4, 2, 3, 2), q_BA.expand(4, 2, 3)
    torch.testing.assert_close(losses.take_greedy(z_MBAN, q_MBA), z_BN.expand(4, 2, 2), rtol=0, atol=0)


def test_projection_by_pencil():
    # Support −1, 0, 1. An atom on a support point stays; 0.25 is split 3:1; 7 and −3 go to the ends.
    projected = losses.categorical_projection(
        doubles(-1.0, 0.0, 1.0),
        doubles([0.0, 0.25], [7.0, -3.0], [-0.5, 1.0]),
        doubles([0.2, 0.8], [0.9, 0.1], [0.5, 0.5]),
    )
    expected = doubles([0.0, 0.8, 0.2], [0.1, 0.0, 0.9], [0.25, 0.25, 0.5])
    torch.testing.assert_close(projected, expected, rtol=0, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 9), st.integers(1, 9))
def test_projection_is_its_loop_twin(seed, atoms, target_atoms):
    generator = torch.Generator().manual_seed(seed)
    support = torch.linspace(-10, 10, atoms, dtype=torch.float64)
    targets = 8 * torch.randn(3, target_atoms, generator=generator, dtype=torch.float64)
    probability = torch.rand(3, target_atoms, generator=generator, dtype=torch.float64).softmax(dim=-1)
    expected = torch.zeros(3, atoms, dtype=torch.float64)
    for row in range(3):
        for y, mass in zip(targets[row].clamp(-10, 10).tolist(), probability[row].tolist(), strict=True):
            place = (y + 10) / 20 * (atoms - 1)
            lower = min(int(place), atoms - 2)
            expected[row, lower] += mass * (1 - (place - lower))
            expected[row, lower + 1] += mass * (place - lower)
    projected = losses.categorical_projection(support, targets, probability)
    torch.testing.assert_close(projected, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(projected.sum(dim=-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-12)


def test_cross_entropy_by_pencil():
    # Softmax of (0, ln 3) is (1/4, 3/4).
    value = losses.categorical_cross_entropy(doubles([0.0, math.log(3)]), doubles([0.5, 0.5]))
    expected = -0.5 * (math.log(0.25) + math.log(0.75))
    torch.testing.assert_close(value, doubles(expected), rtol=0, atol=1e-15)
