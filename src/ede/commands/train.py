"""``ede train``: a method, a task, a preset and a seed become a run folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ede.cli import parse


@dataclass(frozen=True)
class Arguments:
    """Train an agent: prints the plan, shows progress, ends with a train/test table and a run folder."""

    task: Annotated[str, tyro.conf.Positional]
    """What to learn: procgen/<game>, crafter, bigfish-simple or gym/<id> (see `ede envs`)."""
    method: str = "ede"
    """How to learn it (see `ede methods`)."""
    preset: str = "laptop"
    """How big and how long: paper, laptop or smoke (see `ede describe METHOD`)."""
    seed: int = 0
    """One number that decides everything random."""
    steps: int | None = None
    """Environment steps in all; default: the preset's."""
    out: Path | None = None
    """The run folder; default: runs/<task>-<method>-<preset>-s<seed>."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change a setting of the preset: --set phi=10 --set lanes=32."""
    log: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Mirror the metrics: --log tensorboard, --log wandb."""


def main(arguments: list[str]) -> int:
    given = parse(Arguments, "train", arguments)

    from ede.train import train

    settings = parse_settings(given.set)
    return until_stopped(
        lambda: train(
            given.task,
            method=given.method,
            preset=given.preset,
            seed=given.seed,
            steps=given.steps,
            out=given.out,
            settings=settings,
            log=given.log,
        )
    )


def parse_settings(words: tuple[str, ...]) -> dict[str, object]:
    """``key=value`` words as typed settings."""
    from ede.errors import EdeError
    from ede.presets import read_setting

    settings: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise EdeError(f"--set takes name=value; got '{word}'.")
        settings[name] = read_setting(name, value)
    return settings


def until_stopped(work: Callable[[], object]) -> int:
    """Run the work; a signal that stopped it becomes the exit code that shells expect."""
    from ede.train import Stopped

    try:
        work()
    except Stopped as stopped:
        _tell(stopped)
        return 128 + stopped.number
    except KeyboardInterrupt:
        _tell(
            "Stopped at once; where a run folder was begun, `ede resume` carries on from its last checkpoint."
        )
        raise
    return 0


def _tell(last_words: object) -> None:
    """On standard error: Ctrl-C also ends what standard output may be piped into, as in ``| tee log``."""
    with suppress(OSError):  # the terminal may be gone as well
        print(last_words, file=sys.stderr, flush=True)
