"""One game of Crafter: the package's rules on the fast world, seeded by a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.envs.crafter.package import constants, context_of, crafter, engine, objects
from ede.envs.crafter.paint import FRAME, painter
from ede.envs.crafter.world import VIEW, World
from ede.envs.crafter.worldgen import generate

_REACH = 2 * 9
"""Creatures nearer than twice the view's larger side are alive; the others wait."""


@dataclass(frozen=True)
class Outcome:
    """What one action brought."""

    reward: float
    dead: bool
    over: bool
    """Whether the time limit was reached, dead or not."""


class Game(crafter.Env):  # type: ignore[misc, name-defined]
    """``begin`` and ``advance`` draw their frame into the caller's ``out`` [64, 64, 3].

    ``reset`` and ``step`` are the package's own interface, for comparison with it.
    """

    def __init__(self, length: int = 10_000, seed: int = 0) -> None:
        """Set what the package's methods read; its own constructor would load the pictures for every game."""
        self._world = World()
        self._textures = painter().textures
        self._area, self._view, self._size = self._world.area, np.array((9, 9)), np.array(FRAME[:2])
        self._local_view = engine.LocalView(self._world, self._textures, VIEW)
        self._item_view = engine.ItemView(self._textures, (9, 2))
        self._length = length
        self._seed = seed
        self._episode = 0
        self._step = 0
        self._player: Any = None
        self._last_health = 0
        self._unlocked = 0

    def begin(self, context: int, out: npt.NDArray[np.uint8]) -> None:
        """Make the world that the context seeds and draw its first frame."""
        self._step = 0
        self._world.reset(context)
        self._update_time()
        self._player = objects.Player(self._world, (self._area[0] // 2, self._area[1] // 2))
        self._last_health = self._player.health
        self._world.add(self._player)
        self._unlocked = 0
        generate(self._world, self._player)
        painter().paint(self._world, self._player, out)

    def advance(self, action: int, out: npt.NDArray[np.uint8]) -> Outcome:
        """The package's ``step``: player, creatures near it, every tenth step the balance of the chunks."""
        self._step += 1
        self._update_time()
        player, world = self._player, self._world
        player.action = constants.actions[action]
        entered = world.count_of_things()
        player.update()
        for creature in world.near(player, _REACH, entered):
            creature.update()
        if self._step % 10 == 0:
            for chunk, things in world.chunks.items():
                self._balance_chunk(chunk, things)
        painter().paint(world, player, out)
        reward = (player.health - self._last_health) / 10
        self._last_health = player.health
        unlocked = sum(count > 0 for count in player.achievements.values())
        if unlocked > self._unlocked:
            reward += 1.0
        self._unlocked = unlocked
        return Outcome(reward, dead=player.health <= 0, over=self._step >= self._length)

    def reset(self) -> npt.NDArray[np.uint8]:
        self._episode += 1
        frame = np.empty(FRAME, np.uint8)
        self.begin(context_of(self._seed, self._episode), frame)
        return frame

    def step(self, action: int) -> tuple[npt.NDArray[np.uint8], float, bool, dict[str, Any]]:
        frame = np.empty(FRAME, np.uint8)
        outcome = self.advance(action, frame)
        info = {
            "inventory": self._player.inventory.copy(),
            "achievements": self._player.achievements.copy(),
            "discount": 1 - float(outcome.dead),
            "semantic": self._world.semantic(),
            "player_pos": self._player.pos,
            "reward": outcome.reward,
        }
        return frame, outcome.reward, outcome.dead or outcome.over, info

    @property
    def achievements(self) -> list[int]:
        """How often each was unlocked in this episode, in the package's order."""
        return list(self._player.achievements.values())

    def picture(self, pixels: int) -> npt.NDArray[np.uint8]:
        """The present view at another size, for people. The game goes on as if nobody had looked."""
        random = self._world.random.state
        before = random.get_state()
        image: npt.NDArray[np.uint8] = self.render((pixels, pixels))
        random.set_state(before)
        return image

    def _balance_object(
        self, chunk: tuple[int, ...], things: Any, kind: type, material: str, *rule: Any
    ) -> None:
        """Ask the package only where a creature may come or go; elsewhere it would neither act nor draw."""
        number = len([thing for thing in things if isinstance(thing, kind)])
        least, most = rule[-1](number, self._world.space(chunk, material))
        if not int(least) <= number <= int(most):
            super()._balance_object(chunk, things, kind, material, *rule)
