"""A run while it runs: all that it consists of, and the loop."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ede.checkpoint import Checkpoint, tensors_of
from ede.compute import choose, keep_memory
from ede.contexts import Contexts
from ede.display import Display
from ede.envs import Lanes, make_env
from ede.errors import JobFailed
from ede.evaluate import Episodes, Examiner, Protocol
from ede.interaction import Actor, Moment, interact, stacked_shape
from ede.learner import Learner, Report, build_network
from ede.mirrors import Mirror, open_mirrors
from ede.parts import Prioritized
from ede.plan import replay_shape, world_options
from ede.policy import Policy
from ede.replay import Replay
from ede.rewards import RewardScaler
from ede.runs import RunFolder, print_warning
from ede.seeds import child_seed, numpy_generator, torch_generator

RECENT = 100
"""Training episodes behind the return that progress shows."""
PIECE = 2**28
"""Bytes of replay rows in one file of a checkpoint, about."""
EXPLODED = 1e9
"""A loss beyond this is as lost as one that is not a number."""


@dataclass(frozen=True)
class Run:
    """What ``ede.train`` gives back."""

    path: Path
    train: Episodes
    """The final evaluation on the training contexts."""
    test: Episodes
    """The final evaluation on the test contexts."""


class Stopped(Exception):
    """A signal asked the run to stop; it was saved first."""

    def __init__(self, number: int, path: Path, step: int) -> None:
        super().__init__(f"Stopped and saved at step {step:,}; carry on with: ede resume {path}")
        self.number = number


class Trainer:
    """All that a run consists of, built from its config; ``run`` is the loop."""

    def __init__(self, folder: RunFolder, display: Display, stack: ExitStack) -> None:
        self.folder, self.display = folder, display
        config, settings, method = folder.config, folder.settings, folder.method
        self.settings, self.method, self.seed = settings, method, int(config["seed"])
        torch.set_num_threads(settings.threads or os.cpu_count() or 1)
        keep_memory()
        self.journals = folder.journals()
        for journal in self.journals.values():
            stack.callback(journal.close)
        self.mirrors: list[Mirror] = open_mirrors(config["log"], folder)
        for mirror in self.mirrors:
            stack.callback(mirror.close)

        self.lanes = stack.enter_context(self._world("train_contexts", settings.lanes, "env"))
        self.lanes.reset()
        self.spec = self.lanes.spec
        self.examiners = {
            split: Examiner(
                stack.enter_context(self._world(f"{split}_contexts", settings.eval_lanes, "eval"))
            )
            for split in ("train", "test")
        }
        network = build_network(
            method,
            settings,
            stacked_shape(self.spec.obs_shape, settings.frame_stack),
            self.spec.num_actions,
            config["spec"]["task_ids"],
            torch_generator(self.seed, "init"),
        ).to(settings.device)
        compute = choose(settings.precision, network)
        self.learner = Learner(method, settings, network, torch_generator(self.seed, "learn"), compute)
        self.policy = Policy(network, method, settings, compute)
        self.actor = Actor(
            self.policy,
            method.explorer,
            method.coefficient,
            self.lanes,
            torch_generator(self.seed, "explore"),
            random_steps=-(-settings.learning_starts // settings.lanes),
        )
        shape = replay_shape(settings, method, self.spec.obs_shape, self.spec.obs_dtype)
        self.replay = Replay(
            **shape,
            gamma=settings.gamma,
            bootstrap_on_timeout=settings.bootstrap_on_timeout,
            device=settings.device,
            frames_on="cpu" if settings.replay_place == "memory" else None,
            path=folder.replay_file if settings.replay_place == "file" else None,
        )
        self.replay_generator = numpy_generator(self.seed, "replay")
        self.scaler = RewardScaler(settings.lanes, settings.gamma, clip=settings.reward_clip or np.inf)

        self.step = 0
        self.seconds = 0.0
        self.syncs = 0
        self.return_K, self.length_K = np.zeros(settings.lanes), np.zeros(settings.lanes, dtype=np.int64)
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.report: Report | None = None
        self.saved_counts_K = self.replay.counts_K.copy()
        self.checkpoints = folder.checkpoints

    def _world(self, contexts: str, lanes: int, stream: str) -> Lanes:
        config = self.folder.config
        return make_env(
            config["task"],
            lanes=lanes,
            contexts=Contexts.parse(getattr(self.settings, contexts)),
            seed=child_seed(self.seed, stream),
            **world_options(self.settings.world_options),
        )

    def run(self, stopping: list[int]) -> Run:
        """The loop: act, remember, learn; log, judge and save when due."""
        settings, clock = self.settings, time.perf_counter()
        if self.step < settings.steps:
            for moment in interact(self.lanes, self.actor):
                self.remember(moment)
                self.learn()
                self.seconds, clock = self.seconds + time.perf_counter() - clock, time.perf_counter()
                self.display.advance(self)
                if self.due(settings.log_period):
                    self.log(moment)
                if self.due(settings.eval_period) and self.step < settings.steps:
                    self.judge(settings.eval_episodes)
                if self.due(settings.checkpoint_period) or stopping or self.step >= settings.steps:
                    self.save()
                if stopping:
                    raise Stopped(stopping[0], self.folder.path, self.step)
                if self.step >= settings.steps:
                    break
        judged = self.judge(settings.final_episodes, final=True)
        self.folder.finish({"step": self.step, "seconds": self.seconds})
        return Run(self.folder.path, judged["train"], judged["test"])

    def due(self, period: int) -> bool:
        """Whether the last vector step reached or crossed a multiple of the period."""
        return self.step // period > (self.step - self.settings.lanes) // period

    def remember(self, moment: Moment) -> None:
        """Count the step, write down ended episodes, add the transitions to the replay."""
        step = moment.step
        self.step += self.settings.lanes
        self.return_K += step.reward
        self.length_K += 1
        for lane in step.ended:
            self.recent.append(float(self.return_K[lane]))
            episode = {
                "step": self.step,
                "lane": int(lane),
                "context": int(step.context[lane]),
                "return": float(self.return_K[lane]),
                "length": int(self.length_K[lane]),
                "terminated": bool(step.terminated[lane]),
            }
            extra = {name: values[lane].tolist() for name, values in step.extra.items()}
            self.journals["episodes"].write(episode | extra)
            self.return_K[lane], self.length_K[lane] = 0.0, 0
        self.replay.add(
            moment.obs,
            moment.actions,
            self.training_reward(moment),
            step.terminated,
            step.truncated,
            step.context,
            step.final_obs,
            self.replay_generator,
        )

    def training_reward(self, moment: Moment) -> np.ndarray[Any, np.dtype[np.float32]]:
        """What the learner sees of a reward: scaled, clipped, both or neither."""
        step, limit = moment.step, self.settings.reward_clip
        if self.settings.reward_scaling:
            return self.scaler.scale(step.reward, step.done)
        return step.reward.clip(-limit, limit) if limit else step.reward

    def learn(self) -> None:
        """The updates that are due, then the target's synchronisation."""
        settings = self.settings
        owed = max(0, self.step - settings.learning_starts) // settings.steps_per_update
        while self.learner.updates < owed and len(self.replay) > 0:
            batch = self.replay.sample(
                self.method.ensemble.members, settings.batch_size, self.replay_generator, beta=self.beta()
            )
            self.report = self.learner.update(batch)
            if isinstance(self.method.replay, Prioritized):
                self.refuse_lost_loss({"loss": float(self.report.loss)})  # it would become a priority
                self.replay.update_priorities(batch.row_MB, self.report.priority_MB)
        if self.due(settings.target_period) and self.learner.updates:
            self.learner.sync_target()
            self.syncs += 1

    def beta(self) -> float | None:
        """The importance correction of prioritised replay, growing to 1 at the end of the run."""
        rule = self.method.replay
        if not isinstance(rule, Prioritized):
            return None
        return rule.beta + (1 - rule.beta) * min(1.0, self.step / self.settings.steps)

    def log(self, moment: Moment) -> None:
        """One line of metrics."""
        line: dict[str, Any] = {
            "step": self.step,
            "updates": self.learner.updates,
            "target_syncs": self.syncs,
            "replay": len(self.replay),
            "return": float(np.mean(self.recent)) if self.recent else None,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(self.step / self.seconds, 1) if self.seconds else None,
        }
        if self.report is not None:
            line |= {
                "loss": float(self.report.loss),
                "grad_norm": float(self.report.grad_norm),
                "q": float(self.report.q),
                "target": float(self.report.target),
            }
        if moment.values is not None:
            taken = torch.from_numpy(moment.actions)[:, None]
            coefficient_K = self.actor.coefficients()
            line |= {
                "epistemic": float(moment.values.epistemic.gather(1, taken).mean()),
                "aleatoric": float(moment.values.aleatoric.gather(1, taken).mean()),
                "coefficient_min": float(coefficient_K.min()),
                "coefficient_max": float(coefficient_K.max()),
            }
        self.refuse_lost_loss(line)
        self.journals["metrics"].write(line)
        for mirror in self.mirrors:
            mirror.write(line)
        self.display.metrics(self, line)

    def refuse_lost_loss(self, line: Mapping[str, Any]) -> None:
        if not abs(line.get("loss", 0.0)) < EXPLODED:
            raise JobFailed(
                f"The loss became {line['loss']} at step {self.step}; the last good checkpoint in {self.folder.path} "
                "is kept: try a lower learning_rate, a smaller clip_norm, or reward_scaling=true."
            )

    def judge(self, episodes: int, final: bool = False) -> dict[str, Episodes]:
        """Evaluate on both splits and write it down."""
        judged = {}
        for split, examiner in self.examiners.items():
            protocol = Protocol(str(examiner.lanes.contexts), episodes, self.settings.eval_epsilon)
            with self.display.judging(split, episodes) as on_episode:
                judged[split] = examiner.examine(
                    self.policy, protocol, torch_generator(self.seed, f"eval-{split}", self.step), on_episode
                )
            line = {"step": self.step, "split": split, "final": final, **judged[split].to_json()}
            self.journals["evals"].write(line)
            for mirror in self.mirrors:
                mirror.write({"step": self.step, f"{split}_return": float(judged[split].returns.mean())})
        self.display.judged(self, judged)
        return judged

    def save(self) -> None:
        """A checkpoint of everything the run's future depends on."""
        if self.report is not None:
            self.refuse_lost_loss({"loss": float(self.report.loss)})
        self.append_rows()
        self.checkpoints.forget_rows(self.replay.oldest_K.tolist())
        self.checkpoints.write(
            Checkpoint(
                step=self.step,
                parts={
                    "learner": self.learner.state(),
                    "actor": self.actor.state(),
                    "replay": tensors_of(self.replay.state()),
                    "scaler": tensors_of(self.scaler.state()),
                    "episodes": tensors_of({"return": self.return_K, "length": self.length_K}),
                },
                blobs={"world": self.lanes.save()} if self.spec.can_save else {},
                facts={
                    "digest": self.folder.digest(),
                    "config": self.folder.digest(whole=True),
                    "journals": {name: journal.length() for name, journal in self.journals.items()},
                    "journal_sums": {name: journal.sum() for name, journal in self.journals.items()},
                    "replay_generator": self.replay_generator.bit_generator.state,
                    "recent": list(self.recent),
                    "seconds": self.seconds,
                    "syncs": self.syncs,
                    "mirrors": {mirror.name: mirror.run_id for mirror in self.mirrors},
                },
            )
        )
        self.display.saved(self)

    def append_rows(self) -> None:
        """Write the replay's new rows, in pieces that take little memory beside it."""
        bytes_a_row = self.replay.nbytes // (self.replay.lanes * self.replay.rows_per_lane)
        most = max(1, PIECE // (self.replay.lanes * bytes_a_row))
        for piece in count():
            rows = self.replay.rows_since(self.saved_counts_K, most)
            self.saved_counts_K = rows["counts_K"]
            stop = self.saved_counts_K.tolist()
            self.checkpoints.append_rows(tensors_of(rows), first=self.step, stop=stop, piece=piece)
            if (self.saved_counts_K == self.replay.counts_K).all():
                return

    def begin(self) -> None:
        """From step 0; what a run that never reached a checkpoint left behind is forgotten."""
        if any(journal.length() for journal in self.journals.values()):
            self.display.say("No checkpoint was reached before; starting again from step 0.")
        for journal in self.journals.values():
            journal.cut(0)

    def restore(self) -> None:
        """Continue from the newest good checkpoint."""
        checkpoint = self.checkpoints.newest(print_warning)
        facts = checkpoint.facts
        self.learner.load(dict(checkpoint.parts["learner"]))
        self.actor.load(dict(checkpoint.parts["actor"]))
        for rows in checkpoint.shards:
            self.replay.extend({name: tensor.numpy() for name, tensor in rows.items()})
        self.replay.load_state({name: tensor.numpy() for name, tensor in checkpoint.parts["replay"].items()})
        self.scaler.load({name: tensor.numpy() for name, tensor in checkpoint.parts["scaler"].items()})
        self.return_K = checkpoint.parts["episodes"]["return"].numpy().copy()
        self.length_K = checkpoint.parts["episodes"]["length"].numpy().copy()
        self.step, self.seconds, self.syncs = checkpoint.step, float(facts["seconds"]), int(facts["syncs"])
        self.recent.extend(facts["recent"])
        self.replay_generator.bit_generator.state = facts["replay_generator"]
        self.saved_counts_K = self.replay.counts_K.copy()
        for name, journal in self.journals.items():
            journal.cut(int(facts["journals"][name]), facts.get("journal_sums", {}).get(name), print_warning)
        if "world" in checkpoint.blobs:
            self.lanes.restore(checkpoint.blobs["world"])
        else:
            self.begin_episodes_anew()
        self.display.say(f"Resumed {self.folder.path} at step {self.step:,}.")

    def begin_episodes_anew(self) -> None:
        """Where the world cannot be restored: its running episodes are lost, and nothing is joined across the gap."""
        self.display.say(
            f"{self.spec.backend} cannot restore running episodes: new ones begin, all else continues."
        )
        self.replay.interrupt()
        self.actor.begin_episodes()
        self.return_K[:], self.length_K[:] = 0.0, 0
