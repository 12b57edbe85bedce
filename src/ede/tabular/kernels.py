"""The four learners, compiled: one call trains a batch of trials of one cell of the study.

``plain.py`` says the same in plain Python and the tests hold the two to the same bits, so the code here
is free to be shaped for speed. Kernels release the interpreter lock, so that threads run in parallel, and
each trial owns its random streams, so that its result does not depend on which thread ran it.

Axis letters: T trials, C checkpoints, S states, A actions; pair 2 is (training, test).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError
from ede.tabular.worlds import Rules

try:
    from numba import njit
except ModuleNotFoundError as missing:
    raise EdeError("The tabular study needs numba: pip install 'ede[tabular]'.") from missing

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, **more: Any) -> Function:
    """Machine code that runs without the interpreter lock, cached on disk where there is a place to write."""
    options = {"nogil": True, "error_model": "numpy", **more}
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError:  # neither beside this file nor in the user's own folders: compile in every process
        return cast(Function, njit(**options)(function))


def inlined(function: Function) -> Function:
    """The same, always part of its caller: a call would cost more than these small functions do."""
    return compiled(function, inline="always")


ACTIONS = 4
"""Left, right, up, down: a constant, so that loops over actions are unrolled."""
TRACE_DECAY = 0.9
"""λ of Sarsa(λ) (paper, Appendix C)."""

_TABLED = 2**16
_RARITY = np.array([math.inf, *(1.0 / math.sqrt(count) for count in range(1, _TABLED))])
"""1/√N of UCB's counts."""
_ROOT_LOG = np.array([1.0, 1.0, *(math.sqrt(math.log(time)) for time in range(2, _TABLED))])
"""√log t of UCB's early steps. At t = 1 nothing is tried, and any bonus but √log 1 says so: 0 · ∞ is no number."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_UNIT = 2.0**-53


@inlined
def uniform(stream: Array) -> float:
    """The next number of a SplitMix64 stream (Steele, Lea and Flood 2014) in [0, 1), with 53 random bits."""
    stream[0] += _GOLDEN
    z = stream[0]
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    z ^= z >> _31
    return float(np.int64(z >> _11)) * _UNIT


@inlined
def highest(value_SA: Array, state: int) -> float:
    """max over actions, without making a view of the row."""
    value: float = value_SA[state, 0]
    for action in range(1, ACTIONS):
        other = value_SA[state, action]
        value = other if other > value else value
    return value


@inlined
def best_action(value_SA: Array, state: int, stream: Array) -> int:
    """The action of highest value; ties are broken at random, and only a tie draws a number."""
    value = highest(value_SA, state)
    best, ties = 0, 0
    for action in range(ACTIONS - 1, -1, -1):
        if value_SA[state, action] == value:
            best = action
            ties += 1
    if ties > 1:
        skip = int(uniform(stream) * ties)
        while skip > 0:
            best += 1
            if value_SA[state, best] == value:
                skip -= 1
    return best


@inlined
def egreedy_action(value_SA: Array, state: int, epsilon: float, stream: Array) -> int:
    """A uniformly random action with probability ε, else the best one."""
    random = uniform(stream) < epsilon
    return int(uniform(stream) * ACTIONS) if random else best_action(value_SA, state, stream)


@compiled
def greedy_return(rules: Rules, value_SA: Array, start: int, wind: float, stream: Array) -> float:
    """Undiscounted return of one episode that follows the highest value.

    Without wind, a walk that takes more steps than there are states without drawing a number has
    closed a loop and will be cut: it is not walked to the end.
    """
    state, quiet = start, 0
    for step in range(rules.limit):
        before = stream[0]
        state = rules.next_SA[state, best_action(value_SA, state, stream)]
        if wind > 0.0 and uniform(stream) < wind:
            state = rules.blown_S[state]
        if state == rules.goal:
            return rules.step_reward * step + rules.goal_reward
        quiet = quiet + 1 if stream[0] == before else 0
        if quiet > value_SA.shape[0]:
            break
    return rules.step_reward * rules.limit


@compiled
def record(
    rules: Rules,
    value_SA: Array,
    count_SA: Array,
    stream: Array,
    checkpoint: int,
    return_C2: Array,
    value_CSA: Array,
    count_CSA: Array,
) -> None:
    """One greedy episode in training and in test; values and counts too where the caller gave room for them."""
    return_C2[checkpoint, 0] = greedy_return(rules, value_SA, rules.start, 0.0, stream)
    return_C2[checkpoint, 1] = greedy_return(rules, value_SA, rules.test_start, rules.test_wind, stream)
    if value_CSA.shape[0] > 0:
        value_CSA[checkpoint] = value_SA
        count_CSA[checkpoint] = count_SA


@compiled
def egreedy_trial(
    rules: Rules,
    epsilon: float,
    rate: float,
    checkpoint_C: Array,
    streams_21: Array,
    return_C2: Array,
    value_CSA: Array,
    count_CSA: Array,
) -> None:
    """Q-learning that explores with ε-greedy."""
    explore, judge = streams_21[0], streams_21[1]
    q_SA = np.zeros(rules.next_SA.shape)
    count_SA = np.zeros(rules.next_SA.shape, np.int64)
    checkpoint = 0
    for episode in range(1, checkpoint_C[-1] + 1):
        alpha = rate / math.sqrt(episode)
        state = rules.start
        for _ in range(rules.limit):
            # Not a call of egreedy_action: written out, this loop runs three times faster.
            if uniform(explore) < epsilon:
                action = int(uniform(explore) * ACTIONS)
            else:
                action = best_action(q_SA, state, explore)
            count_SA[state, action] += 1
            after = rules.next_SA[state, action]
            if after == rules.goal:
                q_SA[state, action] += alpha * (rules.goal_reward - q_SA[state, action])
                break
            target = rules.step_reward + rules.discount * highest(q_SA, after)
            q_SA[state, action] += alpha * (target - q_SA[state, action])
            state = after
        if episode == checkpoint_C[checkpoint]:
            record(rules, q_SA, count_SA, judge, checkpoint, return_C2, value_CSA, count_CSA)
            checkpoint += 1


@compiled
def ucb_trial(
    rules: Rules,
    coefficient: float,
    rate: float,
    checkpoint_C: Array,
    streams_21: Array,
    return_C2: Array,
    value_CSA: Array,
    count_CSA: Array,
) -> None:
    """Q-learning that takes argmax Q + c √(log t / N), t counting steps; an untried action comes first."""
    explore, judge = streams_21[0], streams_21[1]
    q_SA = np.zeros(rules.next_SA.shape)
    count_SA = np.zeros(rules.next_SA.shape, np.int64)
    score_1A = np.zeros((1, ACTIONS))
    rarity_SA = np.full(q_SA.shape, math.inf)  # 1/√N, so that no root stands between two steps
    time, checkpoint = 0, 0
    for episode in range(1, checkpoint_C[-1] + 1):
        alpha = rate / math.sqrt(episode)
        state = rules.start
        for _ in range(rules.limit):
            time += 1
            bonus = coefficient * (_ROOT_LOG[time] if time < _TABLED else math.sqrt(math.log(time)))
            left = q_SA[state, 0] + bonus * rarity_SA[state, 0]
            right = q_SA[state, 1] + bonus * rarity_SA[state, 1]
            up = q_SA[state, 2] + bonus * rarity_SA[state, 2]
            down = q_SA[state, 3] + bonus * rarity_SA[state, 3]
            # best_action, but a single best one is found without a branch, since none here can be predicted.
            sideways = left if left > right else right
            upright = up if up > down else down
            value = sideways if sideways > upright else upright
            if int(left == value) + int(right == value) + int(up == value) + int(down == value) == 1:
                action = int(right == value) + 2 * int(up == value) + 3 * int(down == value)
            else:
                score_1A[0, 0], score_1A[0, 1], score_1A[0, 2], score_1A[0, 3] = left, right, up, down
                action = best_action(score_1A, 0, explore)
            count_SA[state, action] += 1
            count = count_SA[state, action]
            rarity_SA[state, action] = _RARITY[count] if count < _TABLED else 1.0 / math.sqrt(count)
            after = rules.next_SA[state, action]
            if after == rules.goal:
                q_SA[state, action] += alpha * (rules.goal_reward - q_SA[state, action])
                break
            target = rules.step_reward + rules.discount * highest(q_SA, after)
            q_SA[state, action] += alpha * (target - q_SA[state, action])
            state = after
        if episode == checkpoint_C[checkpoint]:
            record(rules, q_SA, count_SA, judge, checkpoint, return_C2, value_CSA, count_CSA)
            checkpoint += 1


@compiled
def sarsa_trial(
    rules: Rules,
    epsilon: float,
    rate: float,
    checkpoint_C: Array,
    streams_21: Array,
    return_C2: Array,
    value_CSA: Array,
    count_CSA: Array,
) -> None:
    """Sarsa(λ) with ε-greedy and accumulating traces (Sutton and Barto 2018, 12.7)."""
    explore, judge = streams_21[0], streams_21[1]
    q_SA = np.zeros(rules.next_SA.shape)
    count_SA = np.zeros(rules.next_SA.shape, np.int64)
    trace_SA = np.zeros(rules.next_SA.shape)
    states = q_SA.shape[0]
    checkpoint = 0
    for episode in range(1, checkpoint_C[-1] + 1):
        alpha = rate / math.sqrt(episode)
        trace_SA[:] = 0.0
        state = rules.start
        action = egreedy_action(q_SA, state, epsilon, explore)
        for _ in range(rules.limit):
            count_SA[state, action] += 1
            after = rules.next_SA[state, action]
            ended = after == rules.goal
            next_action = 0
            if ended:
                error = rules.goal_reward - q_SA[state, action]
            else:
                next_action = egreedy_action(q_SA, after, epsilon, explore)
                error = rules.step_reward + rules.discount * q_SA[after, next_action] - q_SA[state, action]
            trace_SA[state, action] += 1.0
            for s in range(states):
                for a in range(ACTIONS):
                    q_SA[s, a] += alpha * error * trace_SA[s, a]
                    trace_SA[s, a] *= rules.discount * TRACE_DECAY
            if ended:
                break
            state, action = after, next_action
        if episode == checkpoint_C[checkpoint]:
            record(rules, q_SA, count_SA, judge, checkpoint, return_C2, value_CSA, count_CSA)
            checkpoint += 1


@compiled
def pg_trial(
    rules: Rules,
    beta: float,
    rate: float,
    checkpoint_C: Array,
    streams_21: Array,
    return_C2: Array,
    value_CSA: Array,
    count_CSA: Array,
) -> None:
    """Policy gradient with a softmax policy, one trajectory an episode, entropy summed over its states."""
    explore, judge = streams_21[0], streams_21[1]
    logit_SA = np.zeros(rules.next_SA.shape)
    count_SA = np.zeros(rules.next_SA.shape, np.int64)
    states = logit_SA.shape[0]
    policy_SA = np.zeros((states, ACTIONS))
    visit_S = np.zeros(states, np.int64)
    gain_S = np.zeros(states)
    gain_SA = np.zeros((states, ACTIONS))
    path = np.zeros((rules.limit, 2), np.int64)
    checkpoint = 0
    for episode in range(1, checkpoint_C[-1] + 1):
        alpha = rate / math.sqrt(episode)
        state, length, reward = rules.start, 0, rules.step_reward
        visit_S[:] = 0
        while length < rules.limit:
            if visit_S[state] == 0:
                top = highest(logit_SA, state)
                total = 0.0
                for a in range(ACTIONS):
                    policy_SA[state, a] = math.exp(logit_SA[state, a] - top)
                    total += policy_SA[state, a]
                for a in range(ACTIONS):
                    policy_SA[state, a] /= total
            visit_S[state] += 1
            left = uniform(explore)
            action = 0
            while action < ACTIONS - 1:
                left -= policy_SA[state, action]
                if left < 0.0:
                    break
                action += 1
            count_SA[state, action] += 1
            path[length, 0], path[length, 1] = state, action
            length += 1
            state = rules.next_SA[state, action]
            if state == rules.goal:
                reward = rules.goal_reward
                break
        gain_S[:] = 0.0
        gain_SA[:] = 0.0
        gain = 0.0
        for step in range(length - 1, -1, -1):
            gain = reward + rules.discount * gain
            reward = rules.step_reward
            gain_S[path[step, 0]] += gain
            gain_SA[path[step, 0], path[step, 1]] += gain
        for s in range(states):
            if visit_S[s] == 0:
                continue
            entropy = 0.0
            for a in range(ACTIONS):
                if policy_SA[s, a] > 0.0:
                    entropy -= policy_SA[s, a] * math.log(policy_SA[s, a])
            for a in range(ACTIONS):
                chance = policy_SA[s, a]
                step_up = gain_SA[s, a] - chance * gain_S[s]
                if chance > 0.0:
                    step_up -= beta * visit_S[s] * chance * (math.log(chance) + entropy)
                logit_SA[s, a] += alpha * step_up
        if episode == checkpoint_C[checkpoint]:
            record(rules, logit_SA, count_SA, judge, checkpoint, return_C2, value_CSA, count_CSA)
            checkpoint += 1
