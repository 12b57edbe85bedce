"""Crafter's speed against the package, with every bit compared; and the random policy's score.

    python benchmarks/crafter_speed.py                    # 10 episodes, with numba if it is installed
    python benchmarks/crafter_speed.py --without-numba    # the package as `pip install crafter` leaves it
    python benchmarks/crafter_speed.py --long             # one long game that meets most of the rules
    python benchmarks/crafter_speed.py --lanes 16         # the lanes alone
    python benchmarks/crafter_speed.py --score            # a random policy's score over 100 000 steps
    python benchmarks/crafter_speed.py --memory           # resident memory over a million steps

Times are this process's processor seconds, the two environments taking turns at every episode.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ede.contexts import Contexts
from ede.envs import make_env

ACTIONS = 17


@dataclass
class Stopwatch:
    reset: float = 0.0
    step: float = 0.0

    def play(self, env: Any, actions: list[int]) -> tuple[Any, list[tuple[Any, ...]]]:
        """One episode, as far as the actions go: the first observation and every step's answer."""
        start = time.process_time()
        first = env.reset()
        begun = time.process_time()
        answers = []
        for action in actions:
            answers.append(env.step(action))
            if answers[-1][2]:
                break
        self.reset += begun - start
        self.step += time.process_time() - begun
        return first, answers


def assert_same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1:3] == theirs[1:3]
    assert ours[3].keys() == theirs[3].keys()
    for key, value in theirs[3].items():
        np.testing.assert_array_equal(ours[3][key], value, err_msg=key)


def _is_night(step: int) -> bool:
    """Whether the frame after this many steps is a noisy one."""
    return abs(math.cos(math.pi * ((step / 300) % 1 + 0.3))) ** 3 > 0.5


def compare(episodes: int, seed: int) -> None:
    """Both environments through the same random episodes; stops at the first bit that differs."""
    from ede.envs.crafter.game import Game
    from ede.envs.crafter.package import plain_env

    first = time.process_time()
    Game(seed=seed).reset()
    print(f"first reset, with the tables of the process: {time.process_time() - first:.2f} s")
    plain_env(seed).reset()
    ours, theirs = Game(seed=seed), plain_env(seed)
    watch, plain_watch = Stopwatch(), Stopwatch()
    generator = np.random.default_rng(seed)
    steps = nights = 0
    for _ in range(episodes):
        actions = generator.integers(0, ACTIONS, 10_000).tolist()
        first, answers = watch.play(ours, actions)
        plain_first, plain_answers = plain_watch.play(theirs, actions)
        np.testing.assert_array_equal(first, plain_first)
        for answer, plain_answer in zip(answers, plain_answers, strict=True):
            assert_same(answer, plain_answer)
        steps += len(answers)
        nights += sum(_is_night(number) for number in range(1, len(answers) + 1))
    print(f"{episodes} episodes, {steps} steps, {nights} of them by night: every bit the same")
    rows = [("package, ordered chunks", plain_watch), ("ours", watch)]
    for name, row in rows:
        print(
            f"{name:<24} reset {1e3 * row.reset / episodes:8.2f} ms   step {1e3 * row.step / steps:6.3f} ms   "
            f"{steps / (row.reset + row.step):8.0f} steps/s with resets"
        )
    total, plain_total = watch.reset + watch.step, plain_watch.reset + plain_watch.step
    print(
        f"ratio: {plain_total / total:.1f} with resets, {plain_watch.step / watch.step:.1f} a step, "
        f"{plain_watch.reset / watch.reset:.1f} a reset"
    )


def compare_long(steps: int, seed: int) -> None:
    """One long game with health and goods given back now and then, so that most of the rules are met."""
    from ede.envs.crafter.game import Game
    from ede.envs.crafter.package import plain_env

    envs = Game(seed=seed, length=10**9), plain_env(seed, length=10**9)
    np.testing.assert_array_equal(*(env.reset() for env in envs))
    generator = np.random.default_rng(seed)
    nights = naps = 0
    kinds: set[str] = set()
    for number in range(1, steps + 1):
        action = int(generator.integers(ACTIONS))
        for env in envs:
            env._player.health = 9
            if number % 500 == 1:
                env._player.inventory = dict.fromkeys(env._player.inventory, 9)
        assert_same(*(env.step(action) for env in envs))
        nights += _is_night(number)
        naps += envs[0]._player.sleeping
        kinds |= {type(thing).__name__ for thing in envs[0]._world.objects}
    unlocked = sum(count > 0 for count in envs[0].achievements)
    print(
        f"{steps} steps in one world, {nights} by night, {naps} asleep, {unlocked} achievements, "
        f"{', '.join(sorted(kinds))}: every bit the same"
    )


def lanes_alone(lanes: int, seed: int) -> None:
    for observation in ("rgb", "grey84"):
        played = make_env("crafter", lanes=lanes, seed=seed, observation=observation)
        played.reset()
        generator = np.random.default_rng(seed)
        vector_steps = max(1, 8000 // lanes)
        start = time.process_time()
        for _ in range(vector_steps):
            played.step(generator.integers(0, ACTIONS, lanes))
        rate = vector_steps * lanes / (time.process_time() - start)
        print(f"{lanes} lanes, {observation}: {rate:.0f} steps/s with resets, random policy")


def random_score(steps: int, seed: int) -> None:
    """One lane, as training would have it; the unfinished last episode does not count."""
    from ede.envs.crafter.score import ACHIEVEMENTS, score, success_rates

    lanes = make_env("crafter", contexts=Contexts.full(), seed=seed)
    lanes.reset()
    generator = np.random.default_rng(seed)
    counts, lengths, length = [], [], 0
    for _ in range(steps):
        step = lanes.step(generator.integers(0, ACTIONS, 1))
        length += 1
        if step.done[0]:
            counts.append(step.extra["achievements"][0])
            lengths.append(length)
            length = 0
    rates = success_rates(np.array(counts), lengths)
    print(
        f"random policy, seed {seed}, {steps} steps, {len(lengths)} episodes of {np.mean(lengths):.0f} steps:"
    )
    print(f"score {score(np.array(counts), lengths):.2f} %")
    print(", ".join(f"{name} {rate:.1f}" for name, rate in zip(ACHIEVEMENTS, rates, strict=True) if rate > 0))


def memory(steps: int, seed: int) -> None:
    """Resident memory while 16 lanes play; Linux."""

    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    lanes = make_env("crafter", lanes=16, seed=seed)
    lanes.reset()
    generator = np.random.default_rng(seed)
    for number in range(0, steps + 1, 16):
        if number % 100_000 == 0:
            print(f"{number} steps: {resident_mb():.1f} MB resident", flush=True)
        lanes.step(generator.integers(0, ACTIONS, 16))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-numba", action="store_true")
    parser.add_argument("--lanes", type=int)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--steps", type=int)
    wanted = parser.parse_args()
    if wanted.without_numba:
        sys.modules["numba"] = None  # type: ignore[assignment]
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {os.cpu_count()} cores"
    )
    if wanted.score:
        random_score(wanted.steps or 100_000, wanted.seed)
    elif wanted.memory:
        memory(wanted.steps or 1_000_000, wanted.seed)
    elif wanted.long:
        compare_long(wanted.steps or 6000, wanted.seed)
    elif wanted.lanes:
        lanes_alone(wanted.lanes, wanted.seed)
    else:
        compare(wanted.episodes, wanted.seed)


if __name__ == "__main__":
    main()
