"""``ede resume``: carry on a run that was stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ede.cli import parse
from ede.commands.train import until_stopped


@dataclass(frozen=True)
class Arguments:
    """Carry on a run from its newest good checkpoint, to the bit where its world can be restored."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""


def main(arguments: list[str]) -> int:
    given = parse(Arguments, "resume", arguments)

    from ede.train import resume

    return until_stopped(lambda: resume(given.run))
