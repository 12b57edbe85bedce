"""``ede eval``: judge a trained agent on chosen contexts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ede.cli import parse


@dataclass(frozen=True)
class Arguments:
    """Play exactly N episodes with a run's newest policy and print what came of it."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    episodes: int = 100
    """How many; each lane plays a fixed share."""
    contexts: str = "test"
    """train, test (as the run defines them), both, full, or a range such as 200..299."""
    epsilon: float | None = None
    """Probability of a random action; default: the run's eval_epsilon."""
    seed: int = 0
    """Decides the contexts drawn and the random actions."""
    out: Path | None = None
    """Also write the episodes as JSON lines to this file."""
    json: bool = False
    """Print JSON lines and no table."""


def main(arguments: list[str]) -> int:
    given = parse(Arguments, "eval", arguments)

    from rich.console import Console

    from ede.display import judgement_table, judging_bar
    from ede.errors import EdeError
    from ede.runs import RunFolder
    from ede.train import judge_run

    if given.episodes < 1:
        raise EdeError(f"--episodes must be at least 1; got {given.episodes}.")
    folder = RunFolder.open(given.run)
    splits = {"both": ("train", "test")}.get(given.contexts, (given.contexts,))
    judged = {}
    for split in splits:
        with judging_bar(split, given.episodes) as on_episode:
            judged[split] = judge_run(folder, split, given.episodes, given.epsilon, given.seed, on_episode)
    lines = [json.dumps({"split": split, **episodes.to_json()}) for split, episodes in judged.items()]
    if given.out:
        try:
            given.out.write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise EdeError(f"Cannot write {given.out} ({error.strerror}).") from error
    if given.json:
        print("\n".join(lines))
    else:
        console = Console()
        title = f"{folder.path}: {folder.config['method']}"
        console.print(judgement_table(judged, console.width, title))
    return 0
