"""A policy asked from Python: what it reads, and what it refuses in a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ede.errors import EdeError
from ede.learner import build_network
from ede.methods import METHODS
from ede.policy import Policy
from ede.presets import find_preset
from ede.seeds import torch_generator

SHAPE = (5, 4, 6)


def make(name: str = "ede", shape: tuple[int, ...] = SHAPE) -> Policy:
    settings = replace(find_preset("smoke", "bigfish-simple").settings, frame_stack=2)
    method = METHODS[name].built(settings)
    return Policy(build_network(method, settings, shape, 3, 8, torch_generator(0, "init")), method, settings)


def images(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


@pytest.mark.filterwarnings("error")
def test_every_view_of_the_same_numbers_gives_the_same_values() -> None:
    policy, obs = make(), images(4)
    expected = policy.values(obs).z_MBAN
    sealed = obs.copy()
    sealed.flags.writeable = False
    for same in (obs[::-1].copy()[::-1], sealed, np.asfortranarray(obs), torch.from_numpy(obs)):
        assert torch.equal(policy.values(same).z_MBAN, expected)
    assert torch.equal(policy.values(obs[1]).z_MBAN, policy.values(obs[1:2]).z_MBAN)
    vectors = make(shape=(6,))
    assert vectors.act([0.5] * 6).shape == vectors.act([[1] * 6]).shape == (1,)  # type: ignore[arg-type, list-item]


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        (images(4)[..., :3], "shape (5, 4, 6) (2 frames joined along the last axis, oldest first), one or a"),
        (images(4).astype(np.float32), "images of type uint8, 0 to 255; got torch.float32"),
        (None, "shape (5, 4, 6), one or a batch; got no numbers"),
        ({"image": images(1)}, "got no numbers"),
    ],
    ids=["shape", "floats", "nothing", "dictionary"],
)  # fmt: skip
def test_what_it_cannot_read_is_refused(obs: Any, words: str) -> None:
    with pytest.raises(EdeError) as caught:
        make().act(obs)
    assert words in str(caught.value)


def test_a_context_belongs_to_each_observation() -> None:
    policy = make("dqn_task_id")
    known, unknown = policy.values(images(2), np.array([1, 2])), policy.values(images(2))
    assert not torch.equal(known.q, unknown.q)
    with pytest.raises(EdeError, match=r"a context for each of 2 observations; got \[5\]"):
        policy.act(images(2), np.array([5]))


def test_noisy_layers_are_silent_unless_noise_is_asked_for() -> None:
    policy, obs = make("noisy_net"), images(2)
    with torch.no_grad():
        silent = policy.network(torch.from_numpy(obs), noise=None)
    torch.testing.assert_close(policy.values(obs).z_MBAN, silent)
    noisy = policy.values(obs, noise_generator=torch.Generator().manual_seed(1)).z_MBAN
    assert not torch.allclose(noisy, silent)
