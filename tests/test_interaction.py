"""The loop from lanes to learner: counters, memories and frame stacks by lane, and what a run does with them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import counting
import ede
from ede.contexts import Contexts
from ede.display import Display
from ede.explore import EpsilonGreedy, Explorer, EzGreedy, HeadPerEpisode, NoisyGreedy
from ede.interaction import Actor, Moment, interact
from ede.methods import METHODS
from ede.parts import Coefficient, Decay, Zero
from ede.presets import Settings
from ede.returns import ReturnDistribution
from ede.trainer import Trainer

LANES, MEMBERS = 4, 3


class Believer:
    """Stands in for a policy: random values, and a note of everything it was asked."""

    def __init__(self, frame_stack: int = 1) -> None:
        self.settings = Settings(frame_stack=frame_stack)
        self.method = SimpleNamespace(ensemble=SimpleNamespace(members=MEMBERS))
        self.asked: list[SimpleNamespace] = []
        self.generator = torch.Generator().manual_seed(7)

    def values(self, obs: Any, context: Any, noise: torch.Generator | None) -> ReturnDistribution:
        z_MBAN = torch.randn((MEMBERS, LANES, counting.ACTIONS, 2), generator=self.generator)
        self.asked.append(SimpleNamespace(obs=obs.copy(), context=context.copy(), noise=noise))
        return ReturnDistribution(z_MBAN)


def playing(
    believer: Believer,
    explorer: Explorer,
    coefficient: Coefficient | None = None,
    random_steps: int = 0,
) -> tuple[Actor, Iterator[Moment]]:
    lanes = counting.make("direct", lanes=LANES, contexts=Contexts.range(0, 8), seed=3, image=False)
    lanes.reset()
    generator = torch.Generator().manual_seed(0)
    actor = Actor(believer, explorer, coefficient or Zero(), lanes, generator, random_steps)  # type: ignore[arg-type]
    return actor, interact(lanes, actor)


def test_epsilon_falls_with_the_steps_of_all_lanes_at_once() -> None:
    decay = Decay(final=0.1, start=2, length=5)
    actor, moments = playing(Believer(), EpsilonGreedy(), decay, random_steps=2)
    for steps in range(10):
        assert torch.equal(actor.coefficients(), decay.of_lanes(LANES, steps))
        next(moments)


def test_the_first_steps_are_random_and_ask_nobody() -> None:
    believer = Believer()
    _, moments = playing(believer, EpsilonGreedy(), random_steps=300)
    actions = np.concatenate([moment.actions for moment in islice(moments, 300)])
    assert not believer.asked
    counts = np.bincount(actions, minlength=counting.ACTIONS)
    assert abs(counts - 120).max() < 5 * 120**0.5
    assert next(moments).values is not None
    assert len(believer.asked) == 1


def test_a_lane_keeps_its_head_to_the_end_of_its_own_episode() -> None:
    actor, moments = playing(Believer(), HeadPerEpisode())
    kept, changed, ends = actor.memory["head_K"], 0, 0
    for moment in islice(moments, 300):
        assert moment.values is not None
        chosen = moment.values.q_MBA[kept, torch.arange(LANES)].argmax(-1)
        assert chosen.tolist() == moment.actions.tolist()
        moved = (actor.memory["head_K"] != kept).numpy()
        assert not (moved & ~moment.step.done).any()
        changed, ends, kept = changed + moved.sum(), ends + moment.step.done.sum(), actor.memory["head_K"]
    assert abs(changed / ends - 2 / 3) < 5 * (2 / 9 / ends) ** 0.5


def test_a_random_action_does_not_outlive_its_episode() -> None:
    actor, moments = playing(Believer(), EzGreedy(mu=0.5), Decay(final=1.0))
    running = cut = 0
    for moment in islice(moments, 60):
        done = torch.from_numpy(moment.step.done)
        assert (actor.memory["left_K"][done] == 0).all()
        running, cut = running + int((actor.memory["left_K"][~done] > 0).sum()), cut + int(done.sum())
    assert running > cut > 0


def test_a_stack_holds_frames_of_its_own_episode_only() -> None:
    believer = Believer(frame_stack=3)
    _, moments = playing(believer, EpsilonGreedy())
    for moment in islice(moments, 40):
        stacked, now = believer.asked[-1].obs.reshape(LANES, 3, 3), counting.read(moment.obs)
        for lane in range(LANES):
            for back in range(3):
                frame = stacked[lane, 2 - back]
                if back > now.time[lane]:
                    assert not frame.any()
                else:
                    assert frame.tolist() == [
                        now.context[lane],
                        now.time[lane] - back,
                        now.serial[lane] - back,
                    ]
        assert believer.asked[-1].context.tolist() == now.context.tolist()


def test_only_a_noisy_explorer_acts_under_noise() -> None:
    for explorer in (NoisyGreedy(), EpsilonGreedy()):
        believer = Believer()
        actor, moments = playing(believer, explorer)
        next(moments)
        assert believer.asked[0].noise is (actor.generator if explorer.noisy else None)


def test_after_lost_episodes_every_lane_begins_anew() -> None:
    believer = Believer(frame_stack=3)
    actor, moments = playing(believer, EzGreedy(mu=0.5), Decay(final=1.0))
    for _ in islice(moments, 5):
        pass
    actor.begin_episodes()
    assert not actor.memory["left_K"].any()
    next(moments)
    assert not believer.asked[-1].obs[:, :6].any()


# ---- what a run does with its settings ------------------------------------------------------------------------------


class Looking(Display):
    """Keeps the trainer, and what ``look`` sees of it after each step."""

    def __init__(self, look: Any) -> None:
        self.look, self.seen = look, []  # type: ignore[var-annotated]

    def advance(self, trainer: Trainer) -> None:
        self.seen.append(self.look(trainer))


def run(path: Path, look: Any, method: str = "qrdqn", **settings: Any) -> list[Any]:
    display = Looking(look)
    least = {"threads": 1, "final_episodes": 1, "eval_episodes": 1, "steps": 640, "n_step": 1}
    ede.train(
        "gym/CartPole-v1", method=method, preset="smoke", out=path, settings=least | settings, display=display
    )
    return display.seen


def rewards(trainer: Trainer) -> torch.Tensor:
    return trainer.replay.sample(1, 64, np.random.default_rng(0)).reward_MB


def test_rewards_are_clipped_scaled_or_neither(tmp_path: Path) -> None:
    """Every step of CartPole pays 1."""
    plain = rewards(run(tmp_path / "plain", lambda trainer: trainer)[-1])
    clipped = rewards(run(tmp_path / "clipped", lambda trainer: trainer, reward_clip=0.25)[-1])
    scaled = rewards(run(tmp_path / "scaled", lambda trainer: trainer, reward_scaling=True)[-1])
    assert (plain == 1).all()
    assert (clipped == 0.25).all()
    assert (scaled > 0).all()
    assert len(scaled.unique()) > 9, "each by the deviation of its day"


@pytest.mark.parametrize("bootstrap", [False, True])
def test_the_replay_has_the_runs_discount(tmp_path: Path, bootstrap: bool) -> None:
    settings = {"gamma": 0.8, "n_step": 2, "bootstrap_on_timeout": bootstrap}
    replays = run(tmp_path / "run", lambda trainer: trainer.replay, **settings)
    assert (replays[-1].gamma, replays[-1].n_step) == (0.8, 2)
    assert replays[-1].bootstrap_on_timeout is bootstrap


def test_priorities_become_losses_and_their_correction_grows_to_one(tmp_path: Path) -> None:
    def look(trainer: Trainer) -> tuple[int, float | None, int]:
        return trainer.step, trainer.beta(), len(np.unique(trainer.replay.state()["priority"]))

    for step, beta, different in run(tmp_path / "run", look, method="rainbow", priority_beta=0.4):
        assert beta == pytest.approx(0.4 + 0.6 * step / 640)
        assert (different > 2) == (step >= 384), "the smoke preset learns from step 320 on, every 64"


def test_the_target_is_copied_by_environment_steps(tmp_path: Path) -> None:
    def look(trainer: Trainer) -> tuple[int, bool]:
        pairs = zip(
            trainer.learner.network.parameters(), trainer.learner.target_network.parameters(), strict=True
        )
        return trainer.step, all(torch.equal(own, target) for own, target in pairs)

    for step, equal in run(tmp_path / "run", look, target_period=200, steps_per_update=8):
        # With 8 lanes 200 falls before the first update; then 400 and 600 are reached exactly.
        assert equal == (step < 328 or step in (400, 600)), step


def test_masks_and_members_reach_the_replay(tmp_path: Path) -> None:
    method = METHODS["bootstrapped_dqn"]
    replay = run(
        tmp_path / "run", lambda trainer: trainer.replay, method=method.name, members=3, mask_probability=0.2
    )[-1]
    weight_MB = replay.sample(3, 4000, np.random.default_rng(0)).weight_MB
    assert abs(float(weight_MB.mean()) - 0.2) < 0.05
