"""Steps per second of every world, and of the bare backend beside it.

    python benchmarks/worlds.py
    python benchmarks/worlds.py --worlds bigfish-mirror crafter --lanes 16 --seconds 5 --json worlds.json

A random policy plays. Ours and the bare backend take turns of a tenth of a second, so that what else the
machine does falls on both, and in each turn make the same actions. The ratio is the median over the turns of
ours to the bare one's in the same turn. It is given by the wall's clock and by the processor's, which other
work on the machine hardly touches.
A step is one real transition of one lane: the step that a backend ignores after an episode's end counts for
nothing.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import gymnasium
import numpy as np
import numpy.typing as npt
import tyro
from gymnasium.vector import SyncVectorEnv
from rich.console import Console
from rich.table import Table

from ede.contexts import Contexts
from ede.envs import make_env

TURN = 0.1
"""Seconds a turn takes, about."""
WARM_UP = 20
"""Steps."""
Play = Callable[[npt.NDArray[np.int32]], int]
"""Makes one step of all lanes, [K] actions, and tells how many real transitions that was."""
TRAINING = Contexts.range(0, 200)


def bare_mirror(game: str, lanes: int) -> Play:
    """gym3 as its users call it: act, then observe."""
    from ede.envs.procgen import default_threads
    from ede.envs.procgen_mirror import import_procgen

    env = import_procgen().ProcgenGym3Env(
        num=lanes,
        env_name=game,
        distribution_mode="easy",
        start_level=TRAINING.start,
        num_levels=len(TRAINING),
        rand_seed=0,
        num_threads=default_threads(lanes),
    )

    def play(action_K: npt.NDArray[np.int32]) -> int:
        env.act(action_K)
        env.observe()
        return lanes

    return play


def bare_envpool(game: str, lanes: int) -> Play:
    """envpool as its users call it; after an end it spends a step on the reset."""
    from ede.envs.procgen import default_threads
    from ede.envs.procgen_envpool import import_envpool

    pool = import_envpool().make_gymnasium(
        f"{game.capitalize()}Easy-v0",
        num_envs=lanes,
        num_threads=max(1, default_threads(lanes)),
        seed=0,
        channel_first=False,
        start_level=TRAINING.start,
        num_levels=len(TRAINING),
    )
    pool.reset()
    ignored = 0

    def play(action_K: npt.NDArray[np.int32]) -> int:
        nonlocal ignored
        _, _, terminated_K, truncated_K, _ = pool.step(action_K)
        real = lanes - ignored
        ignored = int((terminated_K | truncated_K).sum())
        return real

    return play


def bare_crafter(_: str, lanes: int) -> Play:
    """The package, one environment a lane in a loop, as it has no lanes of its own."""
    import crafter

    envs = [crafter.Env(seed=lane) for lane in range(lanes)]
    for env in envs:
        env.reset()

    def play(action_K: npt.NDArray[np.int32]) -> int:
        for env, action in zip(envs, action_K.tolist(), strict=True):
            if env.step(action)[2]:
                env.reset()
        return lanes

    return play


def bare_gymnasium(name: str, lanes: int) -> Play:
    """Gymnasium's own vector, which spends a step on each reset."""
    if name.startswith("MiniGrid"):
        import minigrid  # noqa: F401 - registers its environments
    envs: Any = SyncVectorEnv([lambda: gymnasium.make(name)] * lanes)
    envs.reset(seed=0)
    ignored = 0

    def play(action_K: npt.NDArray[np.int32]) -> int:
        nonlocal ignored
        _, _, terminated_K, truncated_K, _ = envs.step(action_K)
        real = lanes - ignored
        ignored = int((terminated_K | truncated_K).sum())
        return real

    return play


@dataclass(frozen=True)
class World:
    """A row: our task, and what plays the same without us."""

    task: str
    options: dict[str, Any] = field(default_factory=dict)
    bare: Callable[[str, int], Play] | None = None
    """None where the world is our own."""
    lanes: int | None = None
    """Lanes, where the number asked for makes no sense."""


def _procgen(game: str) -> dict[str, World]:
    return {
        f"{game}-mirror": World(f"procgen/{game}", {"backend": "procgen-mirror"}, bare_mirror),
        f"{game}-envpool": World(f"procgen/{game}", {"backend": "envpool"}, bare_envpool),
    }


WORLDS: dict[str, World] = {
    **_procgen("bigfish"),
    **_procgen("coinrun"),
    **_procgen("maze"),
    **_procgen("starpilot"),
    "crafter": World("crafter", bare=bare_crafter, lanes=1),
    "crafter-grey84": World("crafter", {"observation": "grey84"}, bare_crafter, lanes=1),
    "bigfish-simple": World("bigfish-simple"),
    "bigfish-simple-4096": World("bigfish-simple", lanes=4096),
    "cartpole": World("gym/CartPole-v1", bare=bare_gymnasium),
    "minigrid": World("gym/MiniGrid-Empty-8x8-v0", bare=bare_gymnasium),
}


@dataclass(frozen=True)
class Settings:
    worlds: tuple[str, ...] = tuple(WORLDS)
    """Rows of the table of worlds."""
    lanes: int = 64
    seconds: float = 4.0
    """How long each of the two plays, about."""
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class Rate:
    """Real transitions a second."""

    wall: float
    processor: float
    """Of all this process's threads together: what other work on the machine hardly touches."""


def turn(play: Play, actions_TK: npt.NDArray[np.int32]) -> Rate:
    """Play all these actions."""
    wall, processor = time.perf_counter(), time.process_time()
    transitions = sum(play(action_K) for action_K in actions_TK)
    return Rate(transitions / (time.perf_counter() - wall), transitions / (time.process_time() - processor))


def measure(world: World, settings: Settings) -> dict[str, Any]:
    count = world.lanes or settings.lanes
    lanes = make_env(world.task, lanes=count, contexts=TRAINING, seed=0, **world.options)
    lanes.reset()

    def ours(action_K: npt.NDArray[np.int32]) -> int:
        lanes.step(action_K)
        return count

    bare = world.bare(world.task.partition("/")[2], count) if world.bare else None
    generator = np.random.default_rng(0)

    def actions(steps: int) -> npt.NDArray[np.int32]:
        return generator.integers(0, lanes.spec.num_actions, (steps, count)).astype(np.int32)

    plays = [play for play in (ours, bare) if play]
    rates: dict[Play, list[Rate]] = {play: [] for play in plays}
    warm_up = actions(WARM_UP)
    slowest = min(turn(play, warm_up).wall for play in plays)
    steps = max(1, round(TURN * slowest / count))
    for _ in range(max(1, round(settings.seconds / TURN))):
        actions_TK = actions(steps)
        for play in plays:
            rates[play].append(turn(play, actions_TK))
        plays.reverse()
    lanes.close()
    row: dict[str, Any] = {"task": world.task, "backend": lanes.spec.backend, "lanes": count}
    for clock in ("wall", "processor"):
        mine = [getattr(rate, clock) for rate in rates[ours]]
        row[f"steps_a_{clock}_second"] = median(mine)
        if bare:
            theirs = [getattr(rate, clock) for rate in rates[bare]]
            row[f"bare_steps_a_{clock}_second"] = median(theirs)
            row[f"{clock}_ratio"] = median(one / other for one, other in zip(mine, theirs, strict=True))
    return row


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    if unknown := [name for name in settings.worlds if name not in WORLDS]:
        raise SystemExit(f"There is no world {', '.join(unknown)}; the worlds are {', '.join(WORLDS)}.")
    console = Console(width=None if sys.stdout.isatty() else 140)
    rows = [measure(WORLDS[name], settings) for name in settings.worlds]
    table = Table("world", "backend", "lanes", "steps/s", "bare", "ratio", "steps/cpu-s", "bare", "ratio")
    for name, row in zip(settings.worlds, rows, strict=True):
        cells = [name, row["backend"], str(row["lanes"])]
        for clock in ("wall", "processor"):
            cells.append(f"{row[f'steps_a_{clock}_second']:,.0f}")
            if f"{clock}_ratio" in row:
                cells += [f"{row[f'bare_steps_a_{clock}_second']:,.0f}", f"{row[f'{clock}_ratio']:.2f}"]
            else:
                cells += ["-", "-"]
        table.add_row(*cells)
    console.print(table)
    if settings.json_file:
        machine = {
            "processor": platform.processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
        settings.json_file.write_text(json.dumps({"machine": machine, "worlds": rows}, indent=1))


if __name__ == "__main__":
    main()
