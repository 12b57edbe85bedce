"""bigfish-simple: its rules on ponds made by hand, a plain twin, the appendix's scenario, and the exact optimum."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ede.contexts import Contexts
from ede.envs import make_env
from ede.envs.bigfish import ACTIONS, BAY, FISH, MEALS, SIZE, TIME_LIMIT, WIN_BONUS, ponds
from ede.envs.bigfish_optimum import best_actions, optimum
from ede.envs.contract import Lanes, Step
from ede.errors import EdeError

STAY, UP, DOWN, LEFT, RIGHT = range(5)
BEST = MEALS + WIN_BONUS
RED, GREEN, BLUE = range(3)


def one_lane(context: int, starts: str = "bay") -> Lanes:
    lanes = make_env("bigfish-simple", starts=starts)
    lanes.choose(np.array([context]))
    return lanes


def act(lanes: Lanes, *actions: int) -> list[Step]:
    return [lanes.step(np.array([action])) for action in actions]


class PlainPond:
    """The rules in plain Python, one fish at a time: the naive twin."""

    def __init__(self, context: int) -> None:
        pond = ponds(np.array([context]))
        self.row, self.column = map(int, pond.start_E2[0])
        self.size, self.time = 2, 0
        columns = zip(pond.row_EF[0], pond.half_EF[0], pond.speed_EF[0], pond.size_EF[0], strict=True)
        self.fish = [[int(number) for number in one] for one in columns]

    def step(self, action: int) -> tuple[float, bool, bool]:
        self.row = min(max(self.row + {UP: -1, DOWN: 1}.get(action, 0), 0), SIZE - 1)
        self.column = min(max(self.column + {LEFT: -1, RIGHT: 1}.get(action, 0), 0), SIZE - 1)
        self.time += 1
        met = []
        for fish in self.fish:
            row, half, speed, _ = fish
            fish[1] = (half + speed) % (2 * SIZE)
            if row == self.row and self.column in (half // 2, fish[1] // 2):
                met.append(fish)
        assert len(met) <= 1
        for fish in met:
            if fish[3] >= self.size:
                return 0.0, True, False
            self.fish.remove(fish)
            self.size += 1
            if self.size == 2 + MEALS:
                return 1.0 + WIN_BONUS, True, False
            return 1.0, False, self.time == TIME_LIMIT
        return 0.0, False, self.time == TIME_LIMIT

    def image(self) -> np.ndarray:
        image = np.zeros((SIZE, SIZE, 3), np.uint8)
        image[self.row, self.column, GREEN] = 150 + 15 * self.size
        for row, half, speed, size in self.fish:
            colour = BLUE if size < self.size else RED
            ahead = (half // 2 + (1 if speed > 0 else -1)) % SIZE
            moves = (half + speed) // 2 % SIZE != half // 2
            image[row, ahead, colour] = 90 if abs(speed) == 2 else 60 if moves else 30
            image[row, half // 2, colour] = 150 + 15 * size
        return image


def test_many_lanes_play_what_the_plain_twin_plays() -> None:
    generator = np.random.default_rng(0)
    lanes = make_env("bigfish-simple", lanes=12, seed=1)
    lanes.reset()
    twins = [PlainPond(int(context)) for context in lanes.context]
    seen: Counter[str] = Counter()
    for _ in range(400):
        action_K = generator.integers(0, len(ACTIONS), 12)
        step = lanes.step(action_K)
        last = dict(zip(step.ended.tolist(), step.final_obs, strict=True))
        for lane, twin in enumerate(twins):
            reward, terminated, truncated = twin.step(int(action_K[lane]))
            told = (step.reward[lane], step.terminated[lane], step.truncated[lane])
            assert told == (reward, terminated, truncated)
            shown = last.get(lane, step.obs[lane])
            if not terminated:
                np.testing.assert_array_equal(shown, twin.image())
            if terminated or truncated:
                seen["terminated" if terminated else "truncated"] += 1
                twins[lane] = PlainPond(int(lanes.context[lane]))
                np.testing.assert_array_equal(step.obs[lane], twins[lane].image())
            seen["meals"] += int(reward)
    assert seen["terminated"] > 100
    assert seen["truncated"] > 0
    assert seen["meals"] > 100


def test_context_0_is_the_appendix_scenario() -> None:
    greedy = act(one_lane(0), UP, UP)
    assert [float(step.reward[0]) for step in greedy] == [0.0, 1.0]
    explorative = act(one_lane(0), DOWN, RIGHT, RIGHT)
    assert [float(step.reward[0]) for step in explorative] == [0.0, 0.0, 1.0]

    test = one_lane(BAY)
    assert not np.array_equal(test.obs, one_lane(0).obs)
    shared = act(test, UP)[0]
    np.testing.assert_array_equal(shared.obs, explorative[0].obs)
    saved = test.save()
    assert [float(step.reward[0]) for step in act(test, RIGHT, RIGHT)] == [0.0, 1.0]
    test.restore(saved)
    death = act(test, UP)[0]
    assert death.terminated[0]
    assert death.reward[0] == 0.0
    # The true last frame: the agent where it was bitten.
    assert death.final_obs[0, 2, 1, GREEN] > 0
    assert death.final_obs[0, 2, 1, RED] > 0


def test_training_contexts_begin_in_one_cell_and_others_everywhere() -> None:
    training = ponds(np.arange(200)).start_E2
    assert (training == training[0]).all()
    everywhere = ponds(np.random.default_rng(0).integers(0, 2**31 - 1, 2000)).start_E2
    assert len(np.unique(everywhere @ np.array([SIZE, 1]))) == SIZE * SIZE
    own = ponds(np.arange(2000), own_start=True).start_E2
    assert len(np.unique(own @ np.array([SIZE, 1]))) == SIZE * SIZE


def test_ponds_follow_from_their_ids_alone_and_differ() -> None:
    context_E = np.random.default_rng(1).integers(0, 2**31 - 1, 500)
    pond = ponds(context_E)
    np.testing.assert_array_equal(pond.half_EF[::-1], ponds(context_E[::-1]).half_EF)
    layouts = np.concatenate([pond.row_EF, pond.half_EF, pond.speed_EF, pond.size_EF], 1)
    assert len(np.unique(layouts, axis=0)) == 500
    assert all(len(set(rows)) == FISH for rows in pond.row_EF)
    away = np.abs((pond.half_EF // 2 - pond.start_E2[:, 1:] + SIZE // 2) % SIZE - SIZE // 2)
    assert (away[pond.row_EF == pond.start_E2[:, :1]] > 2).all()
    # Every combination is drawn: speeds evenly, and the largest fish as often as the smallest among the wild four.
    speeds = np.bincount(pond.speed_EF.reshape(-1) + 2, minlength=5)
    assert (np.abs(speeds[[0, 1, 3, 4]] / pond.speed_EF.size - 0.25) < 0.03).all()
    wild = np.bincount(pond.size_EF[:, MEALS:].reshape(-1), minlength=7)[1:]
    assert (np.abs(wild / wild.sum() - 1 / 6) < 0.04).all()


def test_two_states_that_look_alike_go_on_alike() -> None:
    """The image is the whole state but the clock: play the same actions from equal images, reached at any time."""
    context_K = np.repeat(np.arange(50), 20)
    lanes = make_env("bigfish-simple", lanes=len(context_K))
    generator = np.random.default_rng(3)
    obs = lanes.choose(context_K)
    following: dict[bytes, bytes] = {}
    repeated = 0
    for _ in range(60):
        action_K = generator.integers(0, len(ACTIONS), lanes.lanes)
        step = lanes.step(action_K)
        for lane in np.flatnonzero(~step.done):
            key = obs[lane].tobytes() + bytes([int(action_K[lane])])
            value = step.obs[lane].tobytes()
            repeated += key in following
            assert following.setdefault(key, value) == value
        obs = step.obs
    assert repeated > 1000


def test_the_optimum_is_reached_and_is_what_can_be_had() -> None:
    for context in (0, 7, BAY, 123_456_789):
        lanes, earned = one_lane(context), 0.0
        actions = best_actions(context)
        for number, action in enumerate(actions):
            step = lanes.step(np.array([action]))
            earned += float(step.reward[0])
            assert step.done[0] == (number == len(actions) - 1)
        assert earned == optimum([context])[0] == BEST
    discounted = optimum([0], gamma=0.9)[0]
    lanes = one_lane(0)
    rewards = [float(step.reward[0]) for step in act(lanes, *best_actions(0, gamma=0.9))]
    assert discounted == pytest.approx(sum(0.9**time * reward for time, reward in enumerate(rewards)))
    assert discounted < BEST


def test_no_player_beats_the_optimum_by_search() -> None:
    """All 5⁷ plays of seven steps; with γ = 0.05 what comes later weighs less than 1e-8."""
    gamma, steps = 0.05, 7
    play_KT = np.indices((5,) * steps).reshape(steps, -1).T
    for context in (2, BAY):
        lanes = make_env("bigfish-simple", lanes=len(play_KT))
        lanes.choose(np.full(len(play_KT), context))
        value_K, is_alive_K = np.zeros(len(play_KT)), np.ones(len(play_KT), bool)
        for time in range(steps):
            step = lanes.step(play_KT[:, time])
            value_K += is_alive_K * gamma**time * step.reward
            is_alive_K &= ~step.done
        assert value_K.max() > 1e-6
        assert optimum([context], gamma)[0] == pytest.approx(value_K.max(), abs=1e-8)


def test_random_play_earns_little() -> None:
    lanes = make_env("bigfish-simple", lanes=256, contexts=Contexts.range(0, 200))
    lanes.reset()
    generator = np.random.default_rng(0)
    steps = [lanes.step(generator.integers(0, 5, 256)) for _ in range(200)]
    earned = sum(float(step.reward.sum()) for step in steps)
    episodes = sum(len(step.ended) for step in steps)
    assert 0.0 < earned / episodes < 0.2 * BEST


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(EdeError, match="starts='sea'"):
        make_env("bigfish-simple", starts="sea")
    with pytest.raises(EdeError, match="takes no name"):
        make_env("bigfish-simple/hard")
    with pytest.raises(EdeError, match="2 context ids"):
        make_env("bigfish-simple", lanes=2).choose(np.array([1]))
    with pytest.raises(EdeError, match="starts 'bay'"):
        one_lane(0, starts="own").restore(one_lane(0).save())
