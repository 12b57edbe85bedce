"""Do the two Procgen backends agree, and does the default one restore and choose levels exactly?

    python benchmarks/procgen_parity.py                      # everything, a few minutes
    python benchmarks/procgen_parity.py --same-qt            # frames too: procgen-mirror on envpool's Qt
    python benchmarks/procgen_parity.py --checks levels --games maze

Agreement: the same seed, levels and actions on both; rewards, ends, level ids and completions must be equal
to the bit. Frames are drawn by Qt, of which the backends bring different versions, so how many frames differ
is only reported; with ``--same-qt`` none may. Restore: play, save, play on; another process restores and must
see the same. Levels: lane k is sent to level k and must play it in all its episodes.

The exit code is 1 where anything is not as it must be.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table

from ede.contexts import Contexts
from ede.envs import make_env
from ede.envs.contract import Lanes, Step
from ede.envs.procgen import ACTION_NAMES, GAMES

TRAINING = Contexts.range(0, 200)
Check = Literal["agreement", "restore", "levels"]


@dataclass(frozen=True)
class Settings:
    games: tuple[str, ...] = tuple(GAMES)
    checks: tuple[Check, ...] = ("agreement", "restore", "levels")
    lanes: int = 64
    steps: int = 400
    mode: str = "easy"
    seed: int = 0
    same_qt: bool = False
    """Run procgen-mirror on the Qt of the PyQt5-Qt5 wheel, which envpool uses, and demand equal frames; this checks
    the agreement alone."""
    json_file: Path | None = None
    """Also write what was found to this file."""


@dataclass
class Agreement:
    """What differed between the backends over one game."""

    game: str
    differing: list[str]
    """Fields that must be equal and were not."""
    episodes: int = 0
    frames: int = 0
    differing_frames: int = 0


def random_actions(steps: int, lanes: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, len(ACTION_NAMES), (steps, lanes))


def make(
    settings: Settings, game: str, backend: str = "procgen-mirror", lanes: int = 0, seed: int = 0
) -> Lanes:
    return make_env(
        f"procgen/{game}",
        lanes=lanes or settings.lanes,
        contexts=TRAINING,
        seed=seed or settings.seed,
        backend=backend,
        mode=settings.mode,
    )


def agreement(settings: Settings, game: str) -> Agreement:
    """Play the same actions on both backends, one reset in between, and compare all that a step tells."""
    found = Agreement(game, [])
    differing: set[str] = set()

    def compare(name: str, ours: npt.NDArray[np.generic], theirs: npt.NDArray[np.generic]) -> None:
        if not np.array_equal(ours, theirs):
            differing.add(name)

    def compare_frames(ours: npt.NDArray[np.generic], theirs: npt.NDArray[np.generic]) -> None:
        found.frames += len(ours)
        found.differing_frames += int((ours != theirs).any(axis=(1, 2, 3)).sum())

    with make(settings, game) as mirror, make(settings, game, "envpool") as envpool:
        for half in range(2):
            compare_frames(mirror.reset(), envpool.reset())
            for action_K in random_actions(settings.steps // 2, settings.lanes, settings.seed + half):
                ours, theirs = mirror.step(action_K), envpool.step(action_K)
                for name in ("reward", "terminated", "truncated", "context"):
                    compare(name, getattr(ours, name), getattr(theirs, name))
                compare("level_complete", ours.extra["level_complete"], theirs.extra["level_complete"])
                compare("context now", mirror.context, envpool.context)
                compare_frames(ours.obs, theirs.obs)
                found.episodes += len(ours.ended)
    if settings.same_qt and found.differing_frames:
        differing.add("frames")
    found.differing = sorted(differing)
    return found


def digest(steps: list[Step]) -> str:
    total = hashlib.sha256()
    for step in steps:
        for array in (step.obs, step.reward, step.terminated, step.truncated, step.context, step.final_obs):
            total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def play_on(lanes: Lanes, steps: int, seed: int) -> str:
    return digest([lanes.step(action_K) for action_K in random_actions(steps, lanes.lanes, seed)])


def restore(settings: Settings, game: str, folder: Path) -> bool:
    """Whether another process, its lanes made with another seed, goes on from a saved state to the bit."""
    half = settings.steps // 2
    with make(settings, game) as lanes:
        lanes.reset()
        play_on(lanes, half, 1)
        state = folder / game
        state.write_bytes(lanes.save())
        expected = play_on(lanes, half, 2)
    words = json.dumps([game, settings.lanes, settings.mode, half, str(state)])
    child = subprocess.run([sys.executable, __file__, "--continue", words], capture_output=True, text=True)
    return child.stdout.strip() == expected


def continue_elsewhere(game: str, lanes: int, mode: str, steps: int, state: str) -> str:
    settings = Settings(lanes=lanes, mode=mode)
    with make(settings, game, seed=987654) as world:
        world.restore(Path(state).read_bytes())
        return play_on(world, steps, 2)


def levels(settings: Settings, game: str) -> tuple[bool, int]:
    """Whether 200 lanes play exactly levels 0…199 and begin each episode alike, and the episodes they ended."""
    wanted_K = np.arange(len(TRAINING))
    episodes, exact = 0, True
    with make(settings, game, lanes=len(TRAINING)) as lanes:
        first = lanes.choose(wanted_K)
        for action_K in random_actions(settings.steps, len(TRAINING), settings.seed):
            step = lanes.step(action_K)
            exact &= np.array_equal(step.context, wanted_K) and np.array_equal(lanes.context, wanted_K)
            exact &= np.array_equal(step.obs[step.ended], first[step.ended])
            episodes += len(step.ended)
    return exact, episodes


@contextmanager
def mirror_on_the_wheels_qt() -> Iterator[None]:
    """Put a copy of procgen-mirror first on the path whose Qt is the PyQt5-Qt5 wheel's."""
    procgen, wheel = find_spec("procgen"), find_spec("PyQt5")
    if procgen is None or wheel is None or not (procgen.origin and wheel.submodule_search_locations):
        raise SystemExit("--same-qt needs procgen-mirror and PyQt5-Qt5.")
    package, qt = Path(procgen.origin).parent, Path(wheel.submodule_search_locations[0]) / "Qt5" / "lib"
    with tempfile.TemporaryDirectory() as folder:
        copy, libraries = Path(folder) / "procgen", Path(folder) / "procgen_mirror.libs"
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("assets", "__pycache__"))
        (copy / "data" / "assets").symlink_to(package / "data" / "assets")
        libraries.mkdir()
        for library in [
            *(package.parent / libraries.name).iterdir(),
            *qt.glob("libicu*.so.*"),
            *qt.glob("libQt5*.so.5"),
        ]:
            newer = next(
                (name for name in ("libQt5Core", "libQt5Gui") if library.name.startswith(f"{name}-")), None
            )
            (libraries / library.name).symlink_to(qt / f"{newer}.so.5" if newer else library)
        sys.path.insert(0, folder)
        yield


def report(settings: Settings, console: Console) -> bool:
    table = Table("game", *settings.checks, "episodes", "frames that differ")
    rows: list[dict[str, object]] = []
    all_well = True
    with tempfile.TemporaryDirectory() as folder:
        for game in settings.games:
            row: dict[str, object] = {"game": game}
            cells: dict[str, str] = {}
            episodes = frames = ""
            if "agreement" in settings.checks:
                found = agreement(settings, game)
                row |= vars(found)
                cells["agreement"] = "equal" if not found.differing else ", ".join(found.differing)
                frames = f"{found.differing_frames} of {found.frames}"
                episodes = str(found.episodes)
                all_well &= not found.differing
            if "restore" in settings.checks:
                row["restored"] = restore(settings, game, Path(folder))
                cells["restore"] = "equal" if row["restored"] else "DIFFERS"
                all_well &= bool(row["restored"])
            if "levels" in settings.checks:
                row["levels_exact"], row["levels_episodes"] = levels(settings, game)
                cells["levels"] = (
                    f"{'exact' if row['levels_exact'] else 'WRONG'}, {row['levels_episodes']} episodes"
                )
                all_well &= bool(row["levels_exact"])
            table.add_row(game, *(cells[check] for check in settings.checks), episodes, frames)
            rows.append(row)
    console.print(table)
    if settings.json_file:
        settings.json_file.write_text(json.dumps(rows, indent=1))
    return all_well


def main() -> int:
    if sys.argv[1:2] == ["--continue"]:
        print(continue_elsewhere(*json.loads(sys.argv[2])))
        return 0
    settings = tyro.cli(Settings, description=__doc__)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if settings.same_qt:
        with mirror_on_the_wheels_qt():
            return 0 if report(replace(settings, checks=("agreement",)), console) else 1
    return 0 if report(settings, console) else 1


if __name__ == "__main__":
    sys.exit(main())
