"""Training: a method, a task, a preset and a seed become a run folder; the loop itself is ``Trainer.run``."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ede.contexts import Contexts
from ede.display import Display, Terminal
from ede.envs import make_env
from ede.errors import EdeError
from ede.evaluate import Episodes, Examiner, Protocol
from ede.memory import told_where_memory_ends
from ede.plan import resolve, world_options
from ede.runs import RunFolder
from ede.seeds import child_seed, torch_generator
from ede.trainer import Run, Stopped, Trainer

__all__ = ["Run", "Stopped", "Trainer", "judge_run", "resolve", "resume", "train"]


def train(
    task: str,
    *,
    method: str = "ede",
    preset: str = "laptop",
    seed: int = 0,
    steps: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    log: str | tuple[str, ...] = (),
    display: Display | None = None,
) -> Run:
    """Train an agent; ``settings`` overrides the preset's. Writes the run folder ``out`` and returns the judgement."""
    try:
        changed = dict(settings or {})
    except ValueError:
        raise EdeError(f'settings must be a mapping such as {{"phi": 3}}; got {settings!r}.') from None
    if steps is not None:
        changed["steps"] = steps
    config = resolve(task, method, preset, seed, changed, (log,) if isinstance(log, str) else log)
    default = Path("runs") / f"{task.replace('/', '-')}-{method}-{preset}-s{seed}"
    folder = RunFolder.create(Path(out) if out else default, config)
    return _carry_out(folder, display or Terminal())


def resume(path: str | Path, *, display: Display | None = None) -> Run:
    """Carry on a run from its newest good checkpoint, to the bit where its world can be restored."""
    folder = RunFolder.open(Path(path))
    if folder.done:
        raise EdeError(
            f"{path} is finished; judge it with `ede eval {path}` or look at it with `ede watch {path}`."
        )
    return _carry_out(folder, display or Terminal())


def judge_run(
    folder: RunFolder,
    contexts: str,
    episodes: int,
    epsilon: float | None,
    seed: int,
    on_episode: Callable[[int], None] | None = None,
) -> Episodes:
    """Judge a run's newest policy on ``train``, ``test`` or any set of contexts."""
    config, settings = folder.config, folder.settings
    chosen = Contexts.parse(getattr(settings, f"{contexts}_contexts", contexts))
    protocol = Protocol(str(chosen), episodes, settings.eval_epsilon if epsilon is None else epsilon)
    policy = folder.policy()
    with make_env(
        config["task"],
        lanes=min(settings.eval_lanes, episodes),
        contexts=chosen,
        seed=child_seed(seed, "eval", 1),
        **world_options(settings.world_options),
    ) as lanes:
        return Examiner(lanes).examine(policy, protocol, torch_generator(seed, "eval", 2), on_episode)


def _carry_out(folder: RunFolder, display: Display) -> Run:
    with ExitStack() as stack:
        stack.enter_context(folder.lock())
        stack.enter_context(told_where_memory_ends())
        folder.refuse_change()
        if folder.settings.device == "cuda" and not torch.cuda.is_available():
            raise EdeError(
                f"{folder.path} learns on a GPU and this machine has none; carry it on where one is."
            )
        trainer = Trainer(folder, display, stack)
        if folder.checkpoints.list():
            trainer.restore()
        else:
            trainer.begin()
        stack.enter_context(display.open(folder, trainer))
        stopping = stack.enter_context(_listen_for_signals(display.stopping))
        return trainer.run(stopping)


@contextmanager
def _listen_for_signals(on_first: Callable[[], None]) -> Iterator[list[int]]:
    """A list that receives the number of the first SIGINT or SIGTERM; a second one acts at once."""
    at_once: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    received: list[int] = []

    def take_note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, at_once[number])
        on_first()

    try:
        before = {number: signal.signal(number, take_note) for number in at_once}
    except ValueError:  # not in the main thread: signals stay whose they are
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
