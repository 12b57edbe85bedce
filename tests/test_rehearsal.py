"""What progress says of the time left: random steps cost nothing like those that learn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ede.presets import find_preset
from ede.rehearsal import Cost, Pace


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of 1,000 steps in 10 lanes, 200 of them at random, with an update each vector step."""
    monkeypatch.setattr("ede.rehearsal.rehearse", lambda trainer: Cost(acting=0.75, world=0.25, update=5.0))
    settings = SimpleNamespace(**vars(find_preset("smoke", "bigfish-simple").settings))
    settings.__dict__.update(steps=1000, lanes=10, learning_starts=200, steps_per_update=10)
    return SimpleNamespace(settings=settings, step=0, seconds=0.0, learner=SimpleNamespace(updates=0))


def go_on(trainer: Any, pace: Pace, upto: int, each: float) -> None:
    """Vector steps up to a step that take ``each`` a second."""
    while trainer.step < upto:
        trainer.step, trainer.seconds = trainer.step + 10, trainer.seconds + each
        trainer.learner.updates = max(0, trainer.step - 200) // 10
        pace.advance(trainer)


def test_while_steps_are_random_the_rehearsal_tells_what_is_left(trainer: Any) -> None:
    pace = Pace(trainer)
    assert pace.seconds_left(trainer) == 20 * 0.25 + 80 * 1.0 + 80 * 5.0
    go_on(trainer, pace, upto=200, each=0.01)
    assert pace.seconds_left(trainer) == 80 * 1.0 + 80 * 5.0
    assert pace.steps_per_second(trainer) == pytest.approx(1000)


def test_once_it_learns_its_own_pace_does_and_the_random_steps_are_forgotten(trainer: Any) -> None:
    pace = Pace(trainer)
    go_on(trainer, pace, upto=200, each=0.01)
    go_on(trainer, pace, upto=600, each=2.0)
    assert pace.steps_per_second(trainer) == pytest.approx(5)
    assert pace.seconds_left(trainer) == pytest.approx(400 / 5)
    go_on(trainer, pace, upto=1000, each=2.0)
    assert pace.seconds_left(trainer) == 0


def test_a_resumed_run_counts_from_where_it_was_resumed(trainer: Any) -> None:
    trainer.step, trainer.seconds, trainer.learner.updates = 500, 9000.0, 30
    pace = Pace(trainer)
    assert pace.seconds_left(trainer) == 50 * 1.0 + 50 * 5.0
    go_on(trainer, pace, upto=700, each=4.0)
    assert pace.seconds_left(trainer) == pytest.approx(300 / 2.5)
