"""Batches in, new parameters out. Knows parts, no method's name.

One update is algorithm 3 of the paper in one pass: every member has its own minibatch, is evaluated once on it, and
learns from its own target; by default one member, drawn at random, also trains the encoder.

Axis letters: M members, B batch, A actions, N quantiles or atoms, d features.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ede import losses
from ede.compute import PLAIN, Compute
from ede.graphs import Graphs, cuda_recorder
from ede.methods import Method
from ede.networks import HeadShape, Network, choose_encoder
from ede.parts import AllMembers
from ede.presets import Settings
from ede.replay import Batch
from ede.returns import ReturnDistribution, take


def build_network(
    method: Method,
    settings: Settings,
    obs_shape: tuple[int, ...],
    actions: int,
    task_ids: int,
    init: Generator,
) -> Network:
    """The network of a built method for observations of one (already stacked) shape."""
    shape = HeadShape(
        members=method.ensemble.members,
        actions=actions,
        outputs=method.head.outputs,
        hidden=settings.hidden,
        dueling=method.dueling,
        sigma0=method.noisy.sigma0 if method.noisy else None,
    )
    encoder = choose_encoder(settings.encoder, obs_shape)
    return Network(encoder, obs_shape, shape, task_ids if method.task_id else 0, init)


@dataclass(frozen=True)
class Report:
    """What one update saw; tensors, so that nothing waits for the device."""

    loss: Tensor
    """Mean over the batch, sum over members."""
    grad_norm: Tensor
    """Before clipping."""
    q: Tensor
    """Mean value of the taken actions."""
    target: Tensor
    """Mean target return."""
    priority_MB: Tensor
    """The unweighted loss of every sample."""


class Learner:
    """The network, its target, and how they learn."""

    def __init__(
        self,
        method: Method,
        settings: Settings,
        network: Network,
        generator: Generator,
        compute: Compute = PLAIN,
    ) -> None:
        self.method, self.settings, self.compute = method, settings, compute
        self.network = network
        self.target_network = deepcopy(network).requires_grad_(False)
        self.generator = generator
        self.parameters = list(network.parameters())
        self.optimizer = torch.optim.Adam(  # fused: one pass over memory where the plain one makes ten
            self.parameters,
            lr=settings.learning_rate,
            eps=settings.adam_epsilon,
            fused=True,
            capturable=settings.cuda_graphs,
        )
        self.graphs = Graphs(self.step, cuda_recorder()) if settings.cuda_graphs else None
        self.anchors: dict[str, Tensor] = {}
        if method.anchor:
            self.anchors = {name: p.detach().clone() for name, p in network.heads.named_parameters()}
        self.updates = 0

    def update(self, batch: Batch) -> Report:
        """One gradient step on a batch of [M, B] transitions."""
        chosen = self.draw_member()
        report = self.graphs.update(batch, chosen) if self.graphs else self.step(batch, chosen)
        # The fused step writes unnoticed: without this, copies of parameters in bf16 would stay as they first were.
        torch.autograd.graph.increment_version(self.parameters)
        self.updates += 1
        return report

    def step(self, batch: Batch, chosen: int | None) -> Report:
        """The work of an update for the device: nothing in it waits for a number."""
        target_MBN, p_MBN = self.targets(batch)
        noise = self.network.heads.draw_noise(self.generator)
        features_MBd = self.features(batch, chosen)
        raw_MBAN = self.network.heads(features_MBd, noise, self.compute.product(features_MBd, chosen))
        taken_MBN = take(raw_MBAN, batch.action_MB)
        loss_MB = self.method.head.loss(taken_MBN, target_MBN, p_MBN)
        loss = (loss_MB * batch.weight_MB).mean(1).sum()
        self.optimizer.zero_grad(set_to_none=True)
        (loss + self.anchor_penalty()).backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.optimizer.step()
        with torch.no_grad():
            values = self.read(raw_MBAN.detach())
            q = values.q_MBA.gather(2, batch.action_MB[..., None]).mean()
            target = (target_MBN if p_MBN is None else (p_MBN * target_MBN).sum(-1)).mean()
        return Report(loss.detach(), norm, q, target, loss_MB.detach())

    def read(self, raw_MBAN: Tensor) -> ReturnDistribution:
        """What raw head outputs mean under this method."""
        return self.method.head.returns(raw_MBAN, self.method.ensemble.unbiased)

    def draw_member(self) -> int | None:
        """The member that trains the encoder in this update; None where all do."""
        if isinstance(self.method.encoder_gradient, AllMembers):
            return None
        return int(torch.randint(self.method.ensemble.members, (), generator=self.generator))

    def features(self, batch: Batch, chosen: int | None) -> Tensor:
        """[M, B, d]: of each member's own observations, with a graph only where the encoder is to learn."""
        obs_MB, context_MB = batch.obs_MB, batch.context_MB
        rule, members = self.method.encoder_gradient, len(obs_MB)

        def of(part: slice) -> tuple[Network, Tensor, Tensor]:
            return self.network, obs_MB[part].flatten(0, 1), context_MB[part].flatten(0, 1)

        if chosen is None:
            features = self.compute.trained_features(*of(slice(None)))
            if isinstance(rule, AllMembers) and rule.normalised:
                features = features.detach() + (features - features.detach()) / members
        else:
            before, after = slice(chosen), slice(chosen + 1, members)
            parts = [self.compute.frozen_features(*of(before))] if chosen > 0 else []
            parts.append(self.compute.trained_features(*of(slice(chosen, chosen + 1))))
            parts += [self.compute.frozen_features(*of(after))] if chosen < members - 1 else []
            features = torch.cat(parts)
        return features.unflatten(0, context_MB.shape)  # type: ignore[no-untyped-call, no-any-return]

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """[M, B, N]: r + discount · z of the greedy next action (equation 15), and the weights of atoms, if any."""
        rule = self.method.target
        members, size = batch.action_MB.shape
        next_obs, context = batch.next_obs_MB.flatten(0, 1), batch.context_MB.flatten(0, 1)
        noise = self.target_network.heads.draw_noise(self.generator)
        features = self.compute.frozen_features(self.target_network, next_obs, context)
        own_MBd = features.unflatten(0, (members, size))  # type: ignore[no-untyped-call]
        # The mean rule asks every member about every minibatch; else each is asked only about its own.
        product = self.compute.product(features, None)
        raw = self.target_network.heads(features if rule.mean else own_MBd, noise, product)
        values = self.read(raw)
        z, p, q = values.z_MBAN, values.p_MBAN, values.q_MBA
        if rule.mean:
            shape = (members, size, *z.shape[2:])
            z, q = z.mean(0).view(shape), values.q.view(shape[:-1])
        if rule.double:
            online_noise = self.network.heads.draw_noise(self.generator)
            online = self.compute.frozen_features(self.network, next_obs, context).view_as(own_MBd)
            q = self.read(self.network.heads(online, online_noise, product)).q_MBA
        z_MBN = losses.take_greedy(z, q)
        p_MBN = None if p is None else losses.take_greedy(p, q)
        return losses.bellman(batch.reward_MB, batch.discount_MB, z_MBN), p_MBN

    def anchor_penalty(self) -> Tensor | float:
        """λ Σ (θ − θ₀)² over the heads, for methods that are anchored."""
        if self.method.anchor is None:
            return 0.0
        distance = sum(
            (now - self.anchors[name]).square().sum() for name, now in self.network.heads.named_parameters()
        )
        return self.method.anchor.strength * distance

    def sync_target(self) -> None:
        """Copy the network into the target network."""
        self.target_network.load_state_dict(self.network.state_dict())

    def state(self) -> dict[str, Tensor]:
        """Copies of every tensor that learning depends on, by name."""
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"target.{name}": tensor for name, tensor in self.target_network.state_dict().items()}
        tensors |= {f"anchor.{name}": tensor for name, tensor in self.anchors.items()}
        for name, parameter in self.network.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"adam.{key}.{name}"] = torch.as_tensor(value)
        tensors["generator"] = self.generator.get_state()
        tensors["updates"] = torch.tensor(self.updates)
        return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from what ``state`` gave."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)
            }

        self.network.load_state_dict(under("network."))
        self.target_network.load_state_dict(under("target."))
        self.anchors = {name: tensor.to(self.device) for name, tensor in under("anchor.").items()}
        moments: dict[int, dict[str, Tensor]] = {}
        for index, (name, _) in enumerate(self.network.named_parameters()):
            found = {
                key: state[f"adam.{key}.{name}"].clone()  # the optimiser would write into the caller's
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}.{name}" in state
            }
            if found:
                moments[index] = found
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self.generator.set_state(state["generator"])
        self.updates = int(state["updates"])
        if self.graphs:
            self.graphs.forget()

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device
