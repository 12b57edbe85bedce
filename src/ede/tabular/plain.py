"""The four learners in plain Python: the specification that the compiled kernels are held to.

Written for reading, with lists and one step at a time; the same streams give the same trajectories, values
and returns, to the bit. α_t = α₀/√t with t the episode (docs/decisions/tabular-readings.md says why).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ede.tabular.worlds import World

Table = list[list[float]]
"""A number for each state and action."""

_MASK = 2**64 - 1


class SplitMix:
    """SplitMix64 (Steele, Lea and Flood 2014): a counter, mixed."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def uniform(self) -> float:
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def best_action(values: list[float], stream: SplitMix) -> int:
    """Ties are broken at random, and only a tie draws a number."""
    highest = max(values)
    tied = [action for action, value in enumerate(values) if value == highest]
    return tied[0] if len(tied) == 1 else tied[int(stream.uniform() * len(tied))]


def egreedy_action(values: list[float], epsilon: float, stream: SplitMix) -> int:
    if stream.uniform() < epsilon:
        return int(stream.uniform() * len(values))
    return best_action(values, stream)


@dataclass
class Trial:
    """What one trial leaves behind."""

    values: Table
    """Q, or the policy's logits."""
    counts: list[list[int]]
    returns: list[tuple[float, float]] = field(default_factory=list)
    """(training, test) return of a greedy episode at each checkpoint."""
    history: list[tuple[Table, list[list[int]]]] = field(default_factory=list)
    """Values and counts at each checkpoint."""


class Grid:
    """A world as lists, and the episodes that are played in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.next: list[list[int]] = world.next_SA.tolist()
        self.blown: list[int] = world.blown_S.tolist()
        self.start, self.test_start = world.state(world.start), world.state(world.test_start)
        self.goal = world.state(world.goal)
        self.actions = len(self.next[0])

    def table(self) -> Table:
        return [[0.0] * self.actions for _ in self.next]

    def greedy_return(self, values: Table, start: int, wind: float, stream: SplitMix) -> float:
        """Undiscounted return of one episode that follows the highest value."""
        state = start
        for step in range(self.world.limit):
            state = self.next[state][best_action(values[state], stream)]
            if wind > 0.0 and stream.uniform() < wind:
                state = self.blown[state]
            if state == self.goal:
                return self.world.step_reward * step + self.world.goal_reward
        return self.world.worst_return


Learner = Callable[[Grid, float, float, SplitMix, Trial], Iterator[None]]
"""Trains for ever and yields after every episode."""


def trial(
    learner: Learner, world: World, value: float, rate: float, checkpoints: list[int], seeds: tuple[int, int]
) -> Trial:
    """Train until the last checkpoint; ``seeds`` are those of exploration and of evaluation."""
    grid, judge = Grid(world), SplitMix(seeds[1])
    done = Trial(grid.table(), [[0] * grid.actions for _ in grid.next])
    episodes = learner(grid, value, rate, SplitMix(seeds[0]), done)
    for episode in range(1, checkpoints[-1] + 1):
        next(episodes)
        if episode in checkpoints:
            train = grid.greedy_return(done.values, grid.start, 0.0, judge)
            test = grid.greedy_return(done.values, grid.test_start, world.test_wind, judge)
            done.returns.append((train, test))
            done.history.append(([list(row) for row in done.values], [list(row) for row in done.counts]))
    return done


def q_learning(
    grid: Grid, rate: float, done: Trial, choose: Callable[[int], int], q: Table
) -> Iterator[None]:
    world, episode = grid.world, 0
    while True:
        episode += 1
        alpha = rate / math.sqrt(episode)
        state = grid.start
        for _ in range(world.limit):
            action = choose(state)
            done.counts[state][action] += 1
            after = grid.next[state][action]
            ahead = world.discount * max(q[after])
            target = world.goal_reward if after == grid.goal else world.step_reward + ahead
            q[state][action] += alpha * (target - q[state][action])
            state = after
            if state == grid.goal:
                break
        yield


def egreedy(grid: Grid, epsilon: float, rate: float, stream: SplitMix, done: Trial) -> Iterator[None]:
    """Q-learning that explores with ε-greedy."""
    q = done.values
    return q_learning(grid, rate, done, lambda state: egreedy_action(q[state], epsilon, stream), q)


def ucb(grid: Grid, coefficient: float, rate: float, stream: SplitMix, done: Trial) -> Iterator[None]:
    """Q-learning that takes argmax Q + c √(log t / N), t counting steps; an untried action comes first."""
    q, time = done.values, 0

    def choose(state: int) -> int:
        nonlocal time
        time += 1
        bonus = coefficient * math.sqrt(math.log(time))
        scores = [
            value + bonus * (1 / math.sqrt(visits)) if visits else math.inf
            for value, visits in zip(q[state], done.counts[state], strict=True)
        ]
        return best_action(scores, stream)

    return q_learning(grid, rate, done, choose, q)


def sarsa(grid: Grid, epsilon: float, rate: float, stream: SplitMix, done: Trial) -> Iterator[None]:
    """Sarsa(λ) with accumulating traces, λ = 0.9 (Sutton and Barto 2018, 12.7)."""
    world, q, episode = grid.world, done.values, 0
    while True:
        episode += 1
        alpha = rate / math.sqrt(episode)
        traces = grid.table()
        state = grid.start
        action = egreedy_action(q[state], epsilon, stream)
        for _ in range(world.limit):
            done.counts[state][action] += 1
            after = grid.next[state][action]
            next_action = 0
            if after == grid.goal:
                error = world.goal_reward - q[state][action]
            else:
                next_action = egreedy_action(q[after], epsilon, stream)
                error = world.step_reward + world.discount * q[after][next_action] - q[state][action]
            traces[state][action] += 1.0
            for q_row, trace_row in zip(q, traces, strict=True):
                for a in range(grid.actions):
                    q_row[a] += alpha * error * trace_row[a]
                    trace_row[a] *= world.discount * 0.9
            state, action = after, next_action
            if state == grid.goal:
                break
        yield


def pg(grid: Grid, beta: float, rate: float, stream: SplitMix, done: Trial) -> Iterator[None]:
    """REINFORCE with reward-to-go and β times the entropy at each visited state, one trajectory an episode.

    ∂ log π(a|s) / ∂θ(s,b) = 1[a=b] − π(b|s);  ∂H(π(·|s)) / ∂θ(s,b) = −π(b|s) (log π(b|s) + H).
    """
    world, logits, episode = grid.world, done.values, 0
    while True:
        episode += 1
        alpha = rate / math.sqrt(episode)
        path: list[tuple[int, int]] = []
        policy: dict[int, list[float]] = {}
        state = grid.start
        while len(path) < world.limit and state != grid.goal:
            if state not in policy:
                highest = max(logits[state])
                weights = [math.exp(logit - highest) for logit in logits[state]]
                total = 0.0
                for weight in weights:
                    total += weight
                policy[state] = [weight / total for weight in weights]
            action, left = 0, stream.uniform()  # the last action takes what rounding leaves
            for action in range(grid.actions):
                left -= policy[state][action]
                if left < 0.0:
                    break
            done.counts[state][action] += 1
            path.append((state, action))
            state = grid.next[state][action]
        gain = 0.0
        gains = [0.0] * len(logits)
        gains_of = grid.table()
        for step in reversed(range(len(path))):
            last = step == len(path) - 1 and state == grid.goal
            gain = (world.goal_reward if last else world.step_reward) + world.discount * gain
            gains[path[step][0]] += gain
            gains_of[path[step][0]][path[step][1]] += gain
        visits = [0] * len(logits)
        for visited, _ in path:
            visits[visited] += 1
        for visited, chances in policy.items():
            entropy = 0.0
            for chance in chances:
                if chance > 0.0:
                    entropy -= chance * math.log(chance)
            for a, chance in enumerate(chances):
                ascent = gains_of[visited][a] - chance * gains[visited]
                if chance > 0.0:
                    ascent -= beta * visits[visited] * chance * (math.log(chance) + entropy)
                logits[visited][a] += alpha * ascent
        yield


LEARNERS: dict[str, Learner] = {"egreedy": egreedy, "ucb": ucb, "sarsa": sarsa, "pg": pg}
