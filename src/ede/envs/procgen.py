"""Procgen: the sixteen games as data, the settings both backends share, and the door ``make``.

The backends are ``ede.envs.procgen_mirror`` (default: it saves, restores and plays chosen levels) and
``ede.envs.procgen_envpool`` (it shows the true last frame). Both play the same levels for the same seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.contexts import LIMIT, Contexts
from ede.envs import lane_memory
from ede.envs.contract import Lanes, WorldSpec
from ede.errors import EdeError

ACTION_NAMES = (
    *("left down", "left", "left up", "down", "nothing", "up", "right down", "right", "right up"),
    *("fire D", "fire A", "fire W", "fire S", "fire Q", "fire E"),
)
"""The fifteen key combinations, in the games' own order."""

FRAME = (64, 64, 3)


@dataclass(frozen=True)
class Game:
    """A row of the table of games. Source: the games' C++ code, ``procgen/src/games/*.cpp``, version 0.10.7."""

    name: str
    time_limit: int
    """Steps after which the game itself ends an episode."""
    kilobytes_a_lane: int
    """Resident memory that a lane comes to, as the games keep every picture they have drawn, per lane: measured on
    procgen-mirror in the largest mode by ``benchmarks/memory.py --lane-cost``."""
    modes: tuple[str, ...] = ("easy", "hard")
    exploration_level: int | None = None
    """The one level of exploration mode (``procgen/env.py``)."""
    time_limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Modes whose limit differs."""

    def limit_in(self, mode: str) -> int:
        return self.time_limits.get(mode, self.time_limit)


_EXTREME, _MEMORY, _EXPLORATION = "extreme", "memory", "exploration"
_BOTH = ("easy", "hard")

GAMES: dict[str, Game] = {
    game.name: game
    for game in (
        Game("bigfish", 6000, 226),
        Game("bossfight", 4000, 1479),
        Game("caveflyer", 1000, 449, (*_BOTH, _MEMORY, _EXPLORATION), 1259048185),
        Game("chaser", 1000, 409, (*_BOTH, _EXTREME)),
        Game("climber", 1000, 385, (*_BOTH, _EXPLORATION), 1561126160),
        Game("coinrun", 1000, 3911, (*_BOTH, _EXPLORATION), 1949448038),
        Game("dodgeball", 1000, 345, (*_BOTH, _EXTREME, _MEMORY)),
        Game("fruitbot", 1000, 318),
        Game("heist", 1000, 450, (*_BOTH, _MEMORY, _EXPLORATION), 876640971),
        Game(
            "jumper",
            1000,
            822,
            (*_BOTH, _MEMORY, _EXPLORATION),
            1434825276,
            MappingProxyType({_MEMORY: 2000}),
        ),
        Game("leaper", 500, 616, (*_BOTH, _EXTREME, _EXPLORATION), 1318677581),
        Game("maze", 500, 566, (*_BOTH, _MEMORY, _EXPLORATION), 158988835),
        Game("miner", 1000, 309, (*_BOTH, _MEMORY)),
        Game("ninja", 1000, 665, (*_BOTH, _EXPLORATION), 1123500215),
        Game("plunder", 4000, 491),
        Game("starpilot", 1000, 2177, (*_BOTH, _EXTREME)),
    )
}


@dataclass(frozen=True)
class Looks:
    """What the games draw. The defaults are the benchmark's; each field changes the frames, none the rules."""

    center_agent: bool = True
    """The view follows the agent where the game scrolls."""
    use_backgrounds: bool = True
    """Painted backgrounds instead of black."""
    use_monochrome_assets: bool = False
    """Coloured rectangles instead of sprites."""
    restrict_themes: bool = False
    """One theme a kind of sprite instead of several."""
    use_generated_assets: bool = False
    """Randomly generated sprites instead of painted ones."""
    paint_vel_info: bool = False
    """The agent's velocity painted in the frame's corner, where the game has one."""


@dataclass(frozen=True)
class Setup:
    """Everything a backend needs to start; ``make`` has checked it."""

    game: Game
    mode: str
    lanes: int
    contexts: Contexts
    seed: int
    threads: int
    looks: Looks

    @property
    def task(self) -> str:
        return f"procgen/{self.game.name}"

    @property
    def time_limit(self) -> int:
        return self.game.limit_in(self.mode)

    @property
    def levels(self) -> dict[str, int]:
        """The backends' own words for the contexts; exploration mode takes none, it names its level itself."""
        if self.mode == _EXPLORATION:
            return {}
        if self.contexts.is_full:
            return {"start_level": 0, "num_levels": 0}
        return {"start_level": self.contexts.start, "num_levels": len(self.contexts)}

    def spec(self, backend: str, *, can_save: bool, can_choose: bool, shows_last_frame: bool) -> WorldSpec:
        return WorldSpec(
            task=self.task,
            backend=backend,
            obs_shape=FRAME,
            obs_dtype="uint8",
            num_actions=len(ACTION_NAMES),
            can_save=can_save,
            can_choose=can_choose,
            shows_last_frame=shows_last_frame,
            time_limit=self.time_limit,
            action_names=ACTION_NAMES,
        )


@dataclass(frozen=True)
class Backend:
    """A row of the table of backends, in order of preference."""

    name: str
    package: str
    """The Python package whose presence decides."""
    module: str
    install: str
    more_kilobytes_a_lane: int
    """Memory of a lane beyond ``Game.kilobytes_a_lane``."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("procgen-mirror", "procgen", "ede.envs.procgen_mirror", "pip install 'ede[procgen]'", 0),
        Backend("envpool", "envpool", "ede.envs.procgen_envpool", "pip install 'ede[envpool]'", 200),
    )
}


def make(
    name: str,
    *,
    lanes: int = 1,
    contexts: Contexts | None = None,
    seed: int = 0,
    backend: str | None = None,
    mode: str = "easy",
    threads: int | None = None,
    **looks: Any,
) -> Lanes:
    """Make lanes of one of the sixteen games.

    ``contexts`` are levels. ``backend`` is a name in ``BACKENDS``, by default the first that is installed.
    ``mode`` is one of the game's distribution modes. ``threads`` only changes the speed. Any field of
    ``Looks`` may follow.
    """
    game = GAMES.get(name)
    if game is None:
        raise EdeError(f"There is no Procgen game '{name}'; the games are {', '.join(GAMES)}.")
    if mode not in game.modes:
        raise EdeError(f"{name} has no mode '{mode}'; its modes are {', '.join(game.modes)}.")
    if not 0 <= seed <= LIMIT:
        raise EdeError(f"Procgen's seed must lie in 0..{LIMIT}; got {seed}.")
    if threads is not None and (not isinstance(threads, int) or not 0 <= threads <= 256):
        raise EdeError(f"Procgen's threads must be a whole number in 0..256; got {threads!r}.")
    chosen = _backend(backend)
    setup = Setup(
        game=game,
        mode=mode,
        lanes=lanes,
        contexts=_contexts(game, mode, contexts or Contexts.full()),
        seed=seed,
        threads=default_threads(lanes) if threads is None else threads,
        looks=_looks(looks),
    )
    lane_memory.check(setup.task, lanes, (game.kilobytes_a_lane + chosen.more_kilobytes_a_lane) * 1000)
    start: Callable[[Setup], Lanes] = import_module(chosen.module).start
    return start(setup)


def _backend(name: str | None) -> Backend:
    if name is None:
        for backend in BACKENDS.values():
            if find_spec(backend.package) is not None:
                return backend
        lines = " or ".join(backend.install for backend in BACKENDS.values())
        raise EdeError(f"Procgen is not installed: run {lines}.")
    if name not in BACKENDS:
        raise EdeError(f"There is no Procgen backend '{name}'; the backends are {', '.join(BACKENDS)}.")
    backend = BACKENDS[name]
    if find_spec(backend.package) is None:
        raise EdeError(f"The Procgen backend '{name}' is not installed: run {backend.install}.")
    return backend


def _contexts(game: Game, mode: str, contexts: Contexts) -> Contexts:
    if mode != _EXPLORATION:
        return contexts
    assert game.exploration_level is not None
    only = Contexts.range(game.exploration_level, game.exploration_level + 1)
    if not contexts.is_full and contexts != only:
        raise EdeError(
            f"{game.name}'s exploration mode plays level {only.start} alone; leave its contexts at full."
        )
    return only


def _looks(options: dict[str, Any]) -> Looks:
    known = [option.name for option in fields(Looks)]
    if "use_sequential_levels" in options:
        raise EdeError(
            "use_sequential_levels is not offered, because the two backends do different things with it; "
            "play levels in an order with lanes.choose."
        )
    for option, value in options.items():
        if option not in known:
            every = ", ".join(["mode", "backend", "threads", *known])
            raise EdeError(f"Procgen has no option '{option}'; the options are {every}.")
        if not isinstance(value, bool):
            raise EdeError(f"Procgen's option {option} is True or False; got {value!r}.")
    return Looks(**options)


def default_threads(lanes: int) -> int:
    """Few lanes are fastest without threads; many want one more than the cores, to bridge the hand-over
    (docs/procgen.md has the measurement)."""
    return 0 if lanes <= 4 else min(len(os.sched_getaffinity(0)) + 1, 8)


def split_ends(
    done_K: npt.NDArray[np.bool_], length_K: npt.NDArray[np.integer[Any]], time_limit: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(terminated, truncated). The games do not tell a time-out apart, so an end on the limit's own step counts
    as one; a death on exactly that step does too."""
    truncated_K = done_K & (length_K >= time_limit)
    return done_K & ~truncated_K, truncated_K
