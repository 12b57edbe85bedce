"""The replay against an episode walker that keeps everything and looks nothing up by index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ede.errors import EdeError
from ede.replay import Batch, Priority, Replay, replay_bytes
from ede.replay.sum_tree import SumTree

SHAPE = (2, 1, 2)


def frame(number: int) -> np.ndarray:
    """Different for every number of a test."""
    return np.array([number % 256, number // 256, 1, 255 - number % 256], np.uint8).reshape(SHAPE)


@dataclass
class Walked:
    """One row as the walker keeps it."""

    frame: np.ndarray
    episode: int
    action: int = 0
    reward: float = 0.0
    end: str = ""
    """"" while the episode runs, "terminated", "truncated", or "no transition"."""
    context: int = 0


@dataclass
class Walker:
    """Feeds a replay random episodes and says, by walking them, what each row must give."""

    replay: Replay
    generator: np.random.Generator
    end_probability: float = 0.2
    lanes: list[list[Walked]] = field(default_factory=list)
    frames: int = 0
    episode: int = 0
    current: list[tuple[np.ndarray, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes = [[] for _ in range(self.replay.lanes)]
        self.current = [self.begin() for _ in self.lanes]

    def next_frame(self) -> np.ndarray:
        self.frames += 1
        return frame(self.frames)

    def begin(self) -> tuple[np.ndarray, int]:
        self.episode += 1
        return self.next_frame(), self.episode

    def step(self) -> None:
        lanes = self.replay.lanes
        action = self.generator.integers(0, 15, lanes)
        reward = self.generator.normal(size=lanes).astype(np.float32)
        ends = self.generator.random((2, lanes)) < self.end_probability / 2
        finals = {k: self.next_frame() for k in range(lanes) if ends[:, k].any()}
        self.replay.add(
            np.stack([obs for obs, _ in self.current]),
            action,
            reward,
            ends[0],
            ends[1],
            np.array([episode % 7 for _, episode in self.current]),
            np.stack(list(finals.values())) if finals else np.zeros((0, *SHAPE), np.uint8),
            self.generator,
        )
        for k, rows in enumerate(self.lanes):
            obs, episode = self.current[k]
            terminated, truncated = ends[:, k]
            if not self.replay.bootstrap_on_timeout:
                terminated = terminated or truncated
            end = "terminated" if terminated else "truncated" if truncated else ""
            rows.append(Walked(obs, episode, int(action[k]), float(reward[k]), end, episode % 7))
            if end == "truncated":
                rows.append(Walked(finals[k], episode, end="no transition"))
            self.current[k] = self.begin() if end else (self.next_frame(), episode)

    def interrupt(self) -> None:
        self.replay.interrupt()
        for k, rows in enumerate(self.lanes):
            if rows and rows[-1].episode == self.current[k][1]:
                self.episode += 1
                rows.append(Walked(np.zeros(SHAPE, np.uint8), self.episode, end="no transition"))
            self.current[k] = self.begin()

    def stacked(self, lane: int, number: int) -> np.ndarray | None:
        """None where a frame of the stack has left the ring."""
        rows = self.lanes[lane]
        frames = []
        for place in range(number - self.replay.stack + 1, number + 1):
            if place < 0 or rows[place].episode != rows[number].episode:
                frames.append(np.zeros(SHAPE, np.uint8))
            elif place < len(rows) - self.replay.rows_per_lane:
                return None
            else:
                frames.append(rows[place].frame)
        return np.concatenate(frames, axis=-1)

    def transition(self, lane: int, number: int) -> dict[str, Any] | None:
        """What a sample of this row must be; None where it cannot be sampled."""
        rows, gamma = self.lanes[lane], self.replay.gamma
        start = rows[number]
        obs = self.stacked(lane, number)
        if obs is None or start.end == "no transition":
            return None
        reward, steps = 0.0, 0
        while steps < self.replay.n_step:
            row = rows[number + steps]
            reward += gamma**steps * row.reward
            steps += 1
            if row.end:
                break
            if number + steps >= len(rows) or rows[number + steps].episode != start.episode:
                return None
        terminated = rows[number + steps - 1].end == "terminated"
        return {
            "obs": obs,
            "action": start.action,
            "reward": reward,
            "discount": 0.0 if terminated else gamma**steps,
            "next_obs": self.stacked(lane, number + steps - terminated),
            "context": start.context,
        }

    def transitions(self) -> dict[int, dict[str, Any]]:
        """By row name, all that can be sampled now."""
        found = {}
        for lane, rows in enumerate(self.lanes):
            for number in range(max(0, len(rows) - self.replay.rows_per_lane), len(rows)):
                if (transition := self.transition(lane, number)) is not None:
                    found[number * len(self.lanes) + lane] = transition
        return found

    def check(self) -> None:
        expected = self.transitions()
        assert len(self.replay) == len(expected)
        if not expected:
            with pytest.raises(EdeError, match="no complete transition"):
                self.replay.sample(1, 4, self.generator)
            return
        batch = self.replay.sample(self.replay.members, 25 * len(expected), self.generator)
        drawn = {}
        for member, column in np.ndindex(*batch.row_MB.shape):
            drawn[int(batch.row_MB[member, column])] = (member, column)
        assert set(drawn) == set(expected)
        for row, place in drawn.items():
            for name, value in expected[row].items():
                got = getattr(batch, f"{name}_MB")[place].numpy()
                np.testing.assert_allclose(got, np.float32(value), rtol=1e-6, atol=1e-6, err_msg=name)


def make(**changes: Any) -> Replay:
    settings: dict[str, Any] = {
        "capacity": 30,
        "lanes": 3,
        "obs_shape": SHAPE,
        "obs_dtype": "uint8",
        "n_step": 2,
        "gamma": 0.9,
        "bootstrap_on_timeout": True,
    }
    return Replay(**(settings | changes))


def assert_same(left: Batch, right: Batch) -> None:
    for name, tensor in vars(left).items():
        assert torch.equal(tensor, getattr(right, name)), name


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    lanes=st.integers(1, 3),
    capacity=st.integers(1, 24),
    n_step=st.integers(1, 5),
    stack=st.integers(1, 4),
    bootstrap=st.booleans(),
    prioritised=st.booleans(),
    end_probability=st.sampled_from([0.0, 0.15, 0.6]),
    steps=st.integers(0, 40),
    interruptions=st.sampled_from([0.0, 0.1]),
)
def test_every_sample_is_what_a_walk_along_the_episodes_gives(
    seed, lanes, capacity, n_step, stack, bootstrap, prioritised, end_probability, steps, interruptions
):
    generator = np.random.default_rng(seed)
    replay = make(
        capacity=capacity,
        lanes=lanes,
        n_step=n_step,
        stack=stack,
        bootstrap_on_timeout=bootstrap,
        priority=Priority() if prioritised else None,
    )
    walker = Walker(replay, generator, end_probability)
    for step in range(steps):
        walker.step()
        if generator.random() < interruptions:
            walker.interrupt()
        if step % 7 == 3:
            walker.check()
    walker.check()


def test_three_steps_by_hand():
    # One lane, n = 3, γ = 1/2: frames 1, 2, 3 with rewards 1, 2, 4, cut by time; then frame 5, ended for good.
    replay = make(lanes=1, capacity=10, n_step=3, gamma=0.5, stack=2)
    generator = np.random.default_rng(0)
    none, last = np.zeros((0, *SHAPE), np.uint8), frame(4)[None]
    yes, no = np.array([True]), np.array([False])
    for number, reward, terminated, truncated, final in (
        (1, 1.0, no, no, none),
        (2, 2.0, no, no, none),
        (3, 4.0, no, yes, last),
        (5, 8.0, yes, no, frame(6)[None]),
    ):
        ints = np.array([number])
        replay.add(
            frame(number)[None],
            ints,
            np.float32([reward]),
            terminated,
            truncated,
            10 * ints,
            final,
            generator,
        )
    batch = replay.sample(1, 200, generator)
    expected = {  # action: reward, discount, frames of the observation and of the next one
        1: (1 + 2 / 2 + 4 / 4, 1 / 8, (0, 1), (3, 4)),
        2: (2 + 4 / 2, 1 / 4, (1, 2), (3, 4)),
        3: (4, 1 / 2, (2, 3), (3, 4)),
        5: (8, 0, (0, 5), (0, 5)),
    }
    assert set(batch.action_MB.unique().tolist()) == set(expected)
    for action, (reward, discount, obs, next_obs) in expected.items():
        place = (0, int((batch.action_MB[0] == action).nonzero()[0]))
        assert (batch.reward_MB[place], batch.discount_MB[place]) == (reward, discount)
        assert (batch.context_MB[place], batch.weight_MB[place]) == (10 * action, 1)
        for stacked, numbers in ((batch.obs_MB[place], obs), (batch.next_obs_MB[place], next_obs)):
            parts = [frame(number) if number else np.zeros(SHAPE, np.uint8) for number in numbers]
            np.testing.assert_array_equal(stacked.numpy(), np.concatenate(parts, axis=-1))


def test_batches_have_the_promised_types_and_shapes():
    walker = Walker(make(stack=3), np.random.default_rng(0))
    for _ in range(9):
        walker.step()
    batch = walker.replay.sample(4, 5, walker.generator)
    assert batch.obs_MB.shape == batch.next_obs_MB.shape == (4, 5, 2, 1, 6)
    for name, dtype in {
        "obs_MB": torch.uint8,
        "next_obs_MB": torch.uint8,
        "action_MB": torch.int64,
        "reward_MB": torch.float32,
        "discount_MB": torch.float32,
        "context_MB": torch.int64,
        "weight_MB": torch.float32,
        "row_MB": torch.int64,
    }.items():
        assert getattr(batch, name).dtype == dtype
        assert getattr(batch, name).shape[:2] == (4, 5)


def test_vectors_stack_along_their_only_axis():
    replay = make(lanes=1, obs_shape=(2,), obs_dtype="float32", n_step=1, stack=2)
    generator, no = np.random.default_rng(0), np.array([False])
    for number in range(3):
        obs = np.float32([[number, -number]])
        replay.add(obs, no * 1, np.float32([0]), no, no, no * 1, obs[:0], generator)
    batch = replay.sample(1, 50, generator)
    rows = {tuple(row) for row in torch.cat([batch.obs_MB[0], batch.next_obs_MB[0]], dim=1).tolist()}
    assert rows == {(0, 0, 0, 0, 0, 0, 1, -1), (0, 0, 1, -1, 1, -1, 2, -2)}


def test_members_draw_independently_and_generators_decide_everything():
    walker = Walker(make(capacity=300), np.random.default_rng(0))
    for _ in range(60):
        walker.step()
    first, again, other = (walker.replay.sample(2, 64, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert_same(first, again)
    assert not torch.equal(first.row_MB, other.row_MB)
    assert not torch.equal(first.row_MB[0], first.row_MB[1])


def test_draws_are_uniform_over_what_can_be_sampled():
    walker = Walker(make(capacity=15, stack=2, n_step=3), np.random.default_rng(0), end_probability=0.4)
    for _ in range(30):
        walker.step()
    rows, counts = walker.replay.sample(1, 60_000, np.random.default_rng(1)).row_MB.unique(return_counts=True)
    assert len(rows) == len(walker.replay)
    expected = 60_000 / len(rows)
    assert (counts - expected).abs().max() < 5 * expected**0.5


def test_capacity_is_what_can_be_sampled_and_bytes_are_known_before():
    for changes in (
        {},
        {"n_step": 5, "stack": 4},
        {"priority": Priority()},
        {"mask_probability": 0.5, "members": 3},
    ):
        replay = make(capacity=31, **changes)
        walker = Walker(replay, np.random.default_rng(0), end_probability=0.0)
        for _ in range(40):
            walker.step()
        assert len(replay) == 33  # 11 in each of three lanes
        shape = {"capacity": 31, "lanes": 3, "obs_shape": SHAPE, "obs_dtype": "uint8", "n_step": 2}
        assert replay.nbytes == replay_bytes(**(shape | changes))


def test_a_million_procgen_transitions_fit_in_the_promised_bytes():
    for changes in (
        {"n_step": 1},
        {"n_step": 3, "mask_probability": 0.5, "members": 5, "priority": Priority()},
    ):
        assert (
            replay_bytes(capacity=1_000_000, lanes=64, obs_shape=(64, 64, 3), obs_dtype="uint8", **changes)
            < 12.7e9
        )


def test_too_large_a_replay_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(EdeError, match=r"need [\d,]+ bytes and [\d,]+ are free in memory"):
        make(capacity=10**14)
    with pytest.raises(EdeError, match=r"need [\d,]+ bytes and [\d,]+ are free on the disk"):
        make(capacity=10**17, path=tmp_path / "frames")


@pytest.mark.parametrize("changes", [{}, {"stack": 3, "n_step": 4}, {"mask_probability": 0.7, "members": 2}])
@pytest.mark.parametrize("prioritised", [False, True])
def test_a_checkpoint_in_pieces_restores_the_replay_to_the_bit(changes, prioritised):
    changes = changes | {"priority": Priority() if prioritised else None}
    members = changes.get("members", 1)
    walker = Walker(make(**changes), np.random.default_rng(3))
    replay, pieces, counts_K = walker.replay, [], walker.replay.counts_K.copy()
    for step in range(50):
        walker.step()
        if prioritised and len(replay):
            batch = replay.sample(members, 8, walker.generator)
            replay.update_priorities(batch.row_MB, batch.reward_MB.abs())
        if step in (0, 3, 20, 21, 40, 49):
            pieces.append(replay.rows_since(counts_K))
            counts_K = replay.counts_K.copy()
    assert (counts_K > 2 * replay.rows_per_lane).all()
    complete, late = make(**changes), make(**changes)
    for piece in pieces:
        complete.extend(piece)
    for piece in pieces[2:]:  # the earlier ones have left the ring
        late.extend(piece)
    for restored in (complete, late):
        restored.load_state(replay.state())
        assert len(restored) == len(replay)
    for seed in range(20):
        samples = [r.sample(members, 16, np.random.default_rng(seed)) for r in (replay, complete, late)]
        assert_same(samples[0], samples[1])
        assert_same(samples[0], samples[2])
        # What is added afterwards is the same too.
        state = walker.generator.bit_generator.state
        for restored in (complete, late):
            twin = Walker(restored, walker.generator)
            twin.current, twin.frames, twin.episode = list(walker.current), walker.frames, walker.episode
            twin.step()
            walker.generator.bit_generator.state = state
        walker.step()


def test_pieces_out_of_order_or_of_another_shape_are_refused():
    walker = Walker(make(), np.random.default_rng(3))
    pieces = []
    for _ in range(3):
        counts_K = walker.replay.counts_K.copy()
        walker.step()
        pieces.append(walker.replay.rows_since(counts_K))
    replay = make()
    replay.extend(pieces[0])
    with pytest.raises(EdeError, match="do not follow"):
        replay.extend(pieces[2])
    with pytest.raises(EdeError, match="do not follow"):
        replay.extend(pieces[0])
    with pytest.raises(EdeError, match="another shape"):
        make(mask_probability=0.5).extend(pieces[0])
    with pytest.raises(EdeError, match="another shape"):
        make(lanes=2).extend(pieces[0])
    with pytest.raises(EdeError, match="not of one checkpoint"):
        replay.load_state(walker.replay.state())


def test_frames_in_a_file_are_the_same_as_in_memory(tmp_path):
    samples = []
    for path in (None, tmp_path / "frames"):
        walker = Walker(make(stack=2, path=path), np.random.default_rng(4))
        for _ in range(40):
            walker.step()
        walker.check()
        samples.append(walker.replay.sample(2, 32, np.random.default_rng(5)))
    assert_same(*samples)
    assert (tmp_path / "frames").stat().st_size == walker.replay.rows_per_lane * 3 * 4


def test_masks_belong_to_row_and_member():
    walker = Walker(make(capacity=600, mask_probability=0.25, members=4), np.random.default_rng(6))
    for _ in range(150):
        walker.step()
    batch = walker.replay.sample(4, 2000, walker.generator)
    assert set(batch.weight_MB.unique().tolist()) == {0.0, 1.0}
    assert (batch.weight_MB.mean(dim=1) - 0.25).abs().max() < 0.08
    masks = {}
    for (member, column), row in np.ndenumerate(batch.row_MB.numpy()):
        weight = float(batch.weight_MB[member, column])
        assert masks.setdefault((int(row), member), weight) == weight
    agree = [masks[row, 0] == masks[row, 1] for row, member in masks if member == 0 and (row, 1) in masks]
    assert 0.5 < np.mean(agree) < 0.75  # 1/16 + 9/16 where masks are independent


def test_priorities_by_hand():
    # Priorities 1 and 4 with α = 1/2: drawn 1 : 2, weights at β = 1 are 1 and 1/2, at β = 0 both 1.
    replay = make(lanes=1, n_step=1, priority=Priority(alpha=0.5, beta=1.0))
    walker = Walker(replay, np.random.default_rng(7), end_probability=0.0)
    for _ in range(3):
        walker.step()
    assert len(replay) == 2
    replay.update_priorities(torch.tensor([[0, 1]]), torch.tensor([[1.0, 4.0]]))
    batch = replay.sample(1, 30_000, walker.generator)
    assert abs(float((batch.row_MB == 1).double().mean()) - 2 / 3) < 0.01
    weights = torch.where(batch.row_MB == 0, 1.0, 0.5)
    torch.testing.assert_close(batch.weight_MB, weights, rtol=0, atol=1e-5)
    assert (replay.sample(1, 99, walker.generator, beta=0.0).weight_MB == 1).all()
    # A new row gets the largest priority so far: shares 1 : 2 : 2.
    walker.step()
    rows = replay.sample(1, 30_000, walker.generator).row_MB
    assert [
        abs(float((rows == row).double().mean()) - share) < 0.01 for row, share in enumerate((0.2, 0.4, 0.4))
    ]


def test_priorities_of_rows_overwritten_since_are_left_alone():
    replay = make(capacity=6, priority=Priority())
    walker = Walker(replay, np.random.default_rng(8))
    for _ in range(6):
        walker.step()
    old = replay.sample(1, 50, walker.generator).row_MB
    for _ in range(10):
        walker.step()
    before = replay.state()["priority"]
    replay.update_priorities(old, torch.full(old.shape, 9.0))
    np.testing.assert_array_equal(replay.state()["priority"], before)
    with pytest.raises(EdeError, match="draws uniformly"):
        make().update_priorities(old, old.float())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40))
def test_the_sum_tree_is_a_running_sum(seed, size):
    generator = np.random.default_rng(seed)
    tree, priority = SumTree(size), np.zeros(size)
    for _ in range(4):
        leaf_L = generator.integers(0, size, generator.integers(0, 2 * size))
        value_L = generator.integers(0, 4, len(leaf_L)).astype(np.float64)
        tree.set(leaf_L, value_L)
        for leaf, value in zip(leaf_L, value_L, strict=True):
            priority[leaf] = value
        np.testing.assert_array_equal(tree.leaves, priority)
        assert tree.total == priority.sum()
        if tree.total:
            mass_L = generator.integers(0, int(tree.total), 30) + 0.5
            np.testing.assert_array_equal(tree.find(mass_L), np.searchsorted(np.cumsum(priority), mass_L))
