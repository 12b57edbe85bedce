"""Exactly N episodes, each lane its share, whatever the lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import counting
from ede.contexts import Contexts
from ede.envs import Lanes
from ede.evaluate import Examiner, Protocol, evaluate, quotas
from ede.learner import build_network
from ede.methods import METHODS
from ede.policy import Policy
from ede.presets import PRESETS

CONTEXTS = Contexts.range(0, 4)
"""Context c lasts c + 1 steps and pays 10, 20, … in them, so that long episodes are also the good ones."""


def counting_policy(lanes: Lanes) -> Policy:
    settings = replace(PRESETS["smoke"]["gym"].settings, encoder="mlp")
    method = METHODS["dqn"].built(settings)
    spec = lanes.spec
    network = build_network(
        method, settings, spec.obs_shape, spec.num_actions, len(CONTEXTS), torch.Generator().manual_seed(0)
    )
    return Policy(network, method, settings)


def one_context_a_lane() -> Lanes:
    lanes = counting.make(lanes=4, contexts=CONTEXTS, image=False)
    lanes.choose(np.arange(4))
    return lanes


def first_to_finish(episodes: int) -> list[int]:
    """Lengths of the first N episodes to finish in those four lanes: the mistake that quotas prevent."""
    finished: list[int] = []
    time = 0
    while len(finished) < episodes:
        time += 1
        finished += [length for length in (1, 2, 3, 4) if time % length == 0]
    return finished[:episodes]


@given(st.integers(1, 200), st.integers(1, 40))
def test_shares_are_even_and_add_up(episodes: int, lanes: int) -> None:
    share_K = quotas(episodes, lanes)
    assert share_K.sum() == episodes
    assert np.ptp(share_K) <= 1


@pytest.mark.parametrize("episodes", [1, 3, 4, 10, 12])
def test_exactly_n_episodes_each_lane_its_share(episodes: int) -> None:
    lanes = one_context_a_lane()
    judged = evaluate(counting_policy(lanes), lanes, Protocol(str(CONTEXTS), episodes), torch.Generator())
    assert len(judged.returns) == len(judged.lengths) == len(judged.contexts) == episodes
    np.testing.assert_array_equal(np.bincount(judged.contexts, minlength=4), quotas(episodes, 4))
    np.testing.assert_array_equal(judged.lengths, judged.contexts + 1)


def test_the_mean_is_that_of_the_shares_and_not_of_the_first_to_finish() -> None:
    lanes = one_context_a_lane()
    judged = evaluate(counting_policy(lanes), lanes, Protocol(str(CONTEXTS), 12), torch.Generator())
    assert judged.lengths.mean() == 2.5
    hasty = first_to_finish(12)
    assert np.mean(hasty) == pytest.approx(22 / 12)
    # An action adds 0 to 9 to a step's reward, so a length bounds its return from both sides.
    lowest = judged.lengths * (judged.lengths + 1) * 5
    assert (judged.returns >= lowest).all()
    assert (judged.returns <= lowest + 9 * judged.lengths).all()
    assert judged.returns.mean() > np.mean([5 * length * (length + 1) + 9 * length for length in hasty])


def test_what_was_played_before_does_not_enter_the_numbers() -> None:
    """Lanes that are examined again start anew: the same episodes, no half one from before."""
    lanes = counting.make(lanes=3, contexts=Contexts.range(0, 50), seed=4, image=False)
    examiner, policy = Examiner(lanes), counting_policy(lanes)
    protocol = Protocol("0..49", 7)
    first = examiner.examine(policy, protocol, torch.Generator().manual_seed(1))
    again = examiner.examine(policy, protocol, torch.Generator().manual_seed(1))
    assert first.to_json() == again.to_json()
    other = examiner.examine(policy, protocol, torch.Generator().manual_seed(2))
    assert other.contexts.tolist() == first.contexts.tolist()
    assert other.returns.tolist() != first.returns.tolist()


def test_every_number_travels_with_its_protocol() -> None:
    lanes = one_context_a_lane()
    protocol = Protocol(str(CONTEXTS), 5, epsilon=0.25)
    told = evaluate(counting_policy(lanes), lanes, protocol, torch.Generator()).to_json()
    assert told["protocol"] == {
        "contexts": "0..3",
        "episodes": 5,
        "epsilon": 0.25,
        "rule": "greedy on the mean over members and quantiles, noise off",
    }
    assert {name: len(told[name]) for name in ("returns", "lengths", "contexts")} == dict.fromkeys(
        ("returns", "lengths", "contexts"), 5
    )
