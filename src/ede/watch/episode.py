"""One episode played by a run's newest policy, with everything that led to each action.

Axis letters: T steps of the episode, M members, A actions, N quantiles or atoms, L levels shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ede.contexts import Contexts
from ede.envs import WorldSpec, make_env
from ede.errors import EdeError
from ede.explore import EpsilonGreedy
from ede.interaction import Actor, interact
from ede.parts import Constant
from ede.plan import world_options
from ede.returns import ReturnDistribution
from ede.runs import RunFolder
from ede.seeds import child_seed, torch_generator

LEVELS = 21
"""Most quantiles kept of each distribution: enough for a curve of the eye's resolution."""

Floats = npt.NDArray[np.float32]
Actions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Watched:
    """What happened, step by step."""

    spec: WorldSpec
    checkpoint: int
    """Training step of the policy that plays."""
    contexts: str
    context: int
    seed: int
    explores: bool
    """Whether the explorer acted; else the evaluation's rule did."""
    epsilon: float
    """Probability of a random action, where the evaluation's rule acted."""
    lane: int
    coefficient: float
    """The explorer's, of that training lane at the checkpoint."""
    obs: npt.NDArray[Any]
    """[T, …]: what was acted on, one frame a step."""
    z_TMAL: Floats
    """Each member's return quantiles, in ascending order."""
    mean_TAL: Floats
    """Those of the mean over members."""
    q_TA: Floats
    epistemic_TA: Floats
    aleatoric_TA: Floats
    taken_T: Actions
    greedy_T: Actions
    explorer_T: Actions
    """What the explorer did, or would have done."""
    reward_T: Floats
    """Raw, of the step that the action made."""
    end: str
    """terminated, truncated, or cut where the watching stopped first."""

    def __len__(self) -> int:
        return len(self.taken_T)


def play(
    folder: RunFolder, contexts: str, seed: int = 0, explore: bool = False, lane: int = 0, steps: int = 1000
) -> Watched:
    """Play one episode of at most ``steps`` steps; contexts are train, test, one id or a range.

    Two actors see it: the evaluation's and training's explorer. One of them acts, the other only says what it would do.
    """
    config, settings, method = folder.config, folder.settings, folder.method
    if not 0 <= lane < settings.lanes:
        raise EdeError(
            f"--lane must be one of this run's training lanes, 0 to {settings.lanes - 1}; got {lane}."
        )
    if steps < 1:
        raise EdeError(f"--steps must be at least 1; got {steps}.")
    chosen = parse_contexts(config.get(f"{contexts}_contexts", contexts))
    policy, checkpoint = folder.policy_and_step()
    coefficient = float(method.coefficient.of_lanes(settings.lanes, checkpoint // settings.lanes)[lane])
    with make_env(
        config["task"],
        lanes=1,
        contexts=chosen,
        seed=child_seed(seed, "eval", 1),
        **world_options(settings.world_options),
    ) as lanes:
        lanes.reset()
        judge = Actor(
            policy,
            EpsilonGreedy(),
            Constant(0.0 if explore else settings.eval_epsilon),
            lanes,
            torch_generator(seed, "eval", 2),
        )
        explorer = Actor(
            policy, method.explorer, Constant(coefficient), lanes, torch_generator(seed, "explore")
        )
        acting, looking_on = (explorer, judge) if explore else (judge, explorer)
        obs, z, mean, q, epistemic, aleatoric = [], [], [], [], [], []
        taken, would, reward = [], [], []
        end = "cut"
        context = int(lanes.context[0])
        for moment in interact(lanes, acting):
            other, others_values = looking_on.act(moment.obs, np.array([context]))
            looking_on.after(moment.step)
            # The evaluation's values, without the noise that an explorer may add to the layers.
            values = others_values if explore else moment.values
            assert values is not None
            obs.append(moment.obs[0])
            z.append(shown_quantiles(values))
            mean.append(shown_quantiles(mean_of_members(values))[0])
            q.append(values.q[0].numpy())
            epistemic.append(values.epistemic[0].numpy())
            aleatoric.append(values.aleatoric[0].numpy())
            taken.append(moment.actions[0])
            would.append(moment.actions[0] if explore else other[0])
            reward.append(moment.step.reward[0])
            if moment.step.done[0]:
                end = "terminated" if moment.step.terminated[0] else "truncated"
            if moment.step.done[0] or len(taken) == steps:
                break
        spec = lanes.spec
    return Watched(
        spec=spec,
        checkpoint=checkpoint,
        contexts=str(chosen),
        context=context,
        seed=seed,
        explores=explore,
        epsilon=settings.eval_epsilon,
        lane=lane,
        coefficient=coefficient,
        obs=np.stack(obs),
        z_TMAL=np.stack(z),
        mean_TAL=np.stack(mean),
        q_TA=np.stack(q),
        epistemic_TA=np.stack(epistemic),
        aleatoric_TA=np.stack(aleatoric),
        taken_T=np.array(taken),
        greedy_T=np.stack(q).argmax(-1),
        explorer_T=np.array(would),
        reward_T=np.array(reward, np.float32),
        end=end,
    )


def parse_contexts(text: str) -> Contexts:
    """One id, or whatever ``Contexts.parse`` reads."""
    return Contexts(int(text), int(text) + 1) if text.isdecimal() else Contexts.parse(text)


def mean_of_members(values: ReturnDistribution) -> ReturnDistribution:
    """The distribution whose quantiles are the members' mean quantiles (equation 2); one member is its own mean."""
    return values if len(values.z_MBAN) == 1 else ReturnDistribution(values.z_MBAN.mean(0, keepdim=True))


def shown_quantiles(values: ReturnDistribution) -> Floats:
    """[M, A, L]: for a batch of one, at most ``LEVELS`` evenly spaced quantiles of each distribution, ascending."""
    z_MAN, order = values.z_MBAN[:, 0].sort(-1)
    outputs = z_MAN.shape[-1]
    if values.p_MBAN is None:
        share_N = (torch.arange(outputs) + 0.5) / outputs
        upto_MAN = share_N.expand(z_MAN.shape)
    else:
        upto_MAN = values.p_MBAN[:, 0].gather(-1, order).cumsum(-1)
    levels = LEVELS if values.p_MBAN is not None else min(LEVELS, outputs)
    level_L = ((torch.arange(levels) + 0.5) / levels).expand(*z_MAN.shape[:2], levels)
    place_MAL = torch.searchsorted(upto_MAN.contiguous(), level_L.contiguous()).clamp(max=outputs - 1)
    shown: Floats = z_MAN.gather(-1, place_MAL).numpy()
    return shown
