"""What an ensemble of return distributions says of itself: pencil, brute force, identities."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ede.returns import ReturnDistribution, take

sizes = st.tuples(*[st.integers(1, 5)] * 4)
seeds = st.integers(0, 2**31 - 1)


def random_z(sizes: tuple[int, ...], seed: int) -> torch.Tensor:
    return 3 * torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_members_and_two_quantiles_by_pencil() -> None:
    # Member means of the quantiles: θ̄ = (2, 6); deviations ±1 and ±2.
    z = torch.tensor([[1.0, 4.0], [3.0, 8.0]], dtype=torch.float64).view(2, 1, 1, 2)
    values = ReturnDistribution(z)
    assert values.q.item() == 4
    assert values.q_MBA.flatten().tolist() == [2.5, 5.5]
    assert values.epistemic.item() == pytest.approx(sqrt((1 + 4) / 2), abs=1e-15)
    assert values.aleatoric.item() == 2
    assert values.total.item() == pytest.approx(sqrt(2.5 + 4), abs=1e-15)
    assert ReturnDistribution(z, unbiased=True).epistemic.item() == pytest.approx(sqrt(5), abs=1e-15)


def test_weighted_atoms_by_pencil() -> None:
    z = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64).view(1, 1, 1, 3)
    p = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64).view(1, 1, 1, 3)
    values = ReturnDistribution(z, p)
    assert values.q.item() == 0.75
    assert values.aleatoric.item() == pytest.approx(sqrt(0.25 + 2 - 0.75**2), abs=1e-15)
    assert values.epistemic.item() == 0
    assert values.total.item() == pytest.approx(values.aleatoric.item(), abs=1e-15)


@given(sizes, seeds)
def test_uncertainties_are_equation_2_written_as_loops(sizes: tuple[int, ...], seed: int) -> None:
    z = random_z(sizes, seed)
    members, batch, actions, quantiles = sizes
    values = ReturnDistribution(z)
    for b in range(batch):
        for a in range(actions):
            middle = [sum(float(z[i, b, a, j]) for i in range(members)) / members for j in range(quantiles)]
            q = sum(middle) / quantiles
            epistemic = sum(
                (float(z[i, b, a, j]) - middle[j]) ** 2 for i in range(members) for j in range(quantiles)
            ) / (members * quantiles)
            aleatoric = sum((middle[j] - q) ** 2 for j in range(quantiles)) / quantiles
            assert float(values.q[b, a]) == pytest.approx(q, abs=1e-12)
            assert float(values.epistemic[b, a]) == pytest.approx(sqrt(epistemic), abs=1e-12)
            assert float(values.aleatoric[b, a]) == pytest.approx(sqrt(aleatoric), abs=1e-12)


@given(sizes, seeds)
def test_law_of_total_variance(sizes: tuple[int, ...], seed: int) -> None:
    """Both parts together are the variance of one quantile of one member, drawn at random."""
    z = random_z(sizes, seed)
    pooled_BA = z.movedim(0, -1).flatten(2).var(-1, correction=0)
    values = ReturnDistribution(z)
    torch.testing.assert_close(values.total.square(), pooled_BA, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        values.total.square(), values.epistemic.square() + values.aleatoric.square(), rtol=1e-12, atol=1e-12
    )


@given(sizes.filter(lambda sizes: sizes[0] > 1), seeds)
def test_unbiased_is_the_papers_times_a_constant(sizes: tuple[int, ...], seed: int) -> None:
    z, members = random_z(sizes, seed), sizes[0]
    ours, published_code = ReturnDistribution(z), ReturnDistribution(z, unbiased=True)
    torch.testing.assert_close(
        published_code.epistemic, sqrt(members / (members - 1)) * ours.epistemic, rtol=1e-12, atol=0
    )
    assert torch.equal(published_code.aleatoric, ours.aleatoric)


@pytest.mark.parametrize("unbiased", [False, True])
def test_one_member_disagrees_with_nobody(unbiased: bool) -> None:
    values = ReturnDistribution(random_z((1, 3, 2, 4), 0), unbiased=unbiased)
    assert torch.equal(values.epistemic, torch.zeros(3, 2, dtype=torch.float64))
    assert torch.equal(values.total, values.aleatoric)


def test_scalars_have_no_aleatoric_part() -> None:
    z = random_z((4, 3, 2, 1), 0)
    values = ReturnDistribution(z)
    assert torch.equal(values.aleatoric, torch.zeros(3, 2, dtype=torch.float64))
    torch.testing.assert_close(values.epistemic, z[..., 0].std(0, correction=0), rtol=1e-12, atol=0)


@given(sizes, seeds, st.floats(0.1, 100), st.floats(-50, 50))
def test_uncertainties_are_in_units_of_return(
    sizes: tuple[int, ...], seed: int, scale: float, shift: float
) -> None:
    z = random_z(sizes, seed)
    values, moved = ReturnDistribution(z), ReturnDistribution(scale * z + shift)
    torch.testing.assert_close(moved.q, scale * values.q + shift, rtol=1e-9, atol=1e-9)
    for name in ("epistemic", "aleatoric", "total"):
        torch.testing.assert_close(
            getattr(moved, name), scale * getattr(values, name), rtol=1e-6, atol=1e-9 * (scale + abs(shift))
        )


@given(sizes, seeds)
def test_taking_actions(sizes: tuple[int, ...], seed: int) -> None:
    z = random_z(sizes, seed)
    members, batch, actions, _ = sizes
    generator = torch.Generator().manual_seed(seed)
    action_MB = torch.randint(actions, (members, batch), generator=generator)
    own = take(z, action_MB)
    for i in range(members):
        for b in range(batch):
            assert torch.equal(own[i, b], z[i, b, action_MB[i, b]])
    values = ReturnDistribution(z)
    assert torch.equal(values.take(action_MB), own)
    shared = values.take(action_MB[0])
    assert torch.equal(shared, take(z, action_MB[:1].repeat(members, 1)))
    assert torch.equal(shared, values.take(action_MB[0].numpy())), "what a policy's act returns"


def test_moving_keeps_weights_and_the_choice_of_variance() -> None:
    z = random_z((1, 2, 2, 3), 0)
    values = ReturnDistribution(z, z.softmax(-1), unbiased=True)
    moved = values.to("cpu")
    assert torch.equal(moved.q, values.q)
    assert moved.unbiased
