"""``ede watch``: one episode of a trained agent on one HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ede.cli import parse


@dataclass(frozen=True)
class Arguments:
    """Play one episode with a run's newest policy and write one self-contained HTML page of it.

    The page shows the frames, each action's return quantiles, both uncertainties, and what the explorer would do.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    contexts: str = "test"
    """train, test (as the run defines them), one context's id, full, or a range such as 200..299."""
    seed: int = 0
    """Decides the context drawn and the random actions."""
    explore: bool = False
    """Act by the training's explorer, not by the evaluation's greedy rule."""
    lane: int = 0
    """The training lane whose coefficient the explorer has; under TEE lane 0 explores most."""
    steps: int = 1000
    """The page stops here if the episode does not end before."""
    out: Path | None = None
    """The page's file; default: watch-<contexts>-s<seed>.html in the run folder."""
    gif: bool = False
    """Also write the frames as a GIF beside the page."""


def main(arguments: list[str]) -> int:
    given = parse(Arguments, "watch", arguments)

    from rich.console import Console

    from ede.errors import EdeError
    from ede.runs import RunFolder
    from ede.watch.episode import play
    from ede.watch.page import render
    from ede.watch.pictures import as_pictures, has_pictures, write_gif

    folder = RunFolder.open(given.run)
    name = f"watch-{given.contexts.replace(':', '-')}-s{given.seed}{'-explore' if given.explore else ''}.html"
    out = given.out or folder.path / name
    if out.suffix != ".html":
        raise EdeError(f"--out names an HTML page: write {out}.html in place of {out}.")
    with Console(stderr=True).status("Playing an episode"):
        watched = play(folder, given.contexts, given.seed, given.explore, given.lane, given.steps)
    if given.gif and not has_pictures(watched.obs):
        raise EdeError(f"{watched.spec.task} shows numbers, not pictures: leave out --gif.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render(folder, watched), encoding="utf-8")
        if given.gif:
            write_gif(as_pictures(watched.obs), out.with_suffix(".gif"))
    except OSError as error:
        raise EdeError(f"Cannot write {out} ({error.strerror}); choose another --out.") from error
    ends = {"cut": "goes on; `--steps` shows more"}.get(watched.end, watched.end)
    print(
        f"Context {watched.context}: return {watched.reward_T.sum():z.2f} in {len(watched):,} steps ({ends}).\n"
        f"Open in a browser: {out}" + (f"\nFilm: {out.with_suffix('.gif')}" if given.gif else "")
    )
    return 0
