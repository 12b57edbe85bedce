"""TensorBoard and W&B get copies of the metrics; a resumed run goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ede
from ede.display import Display
from ede.mirrors import check_mirrors, numbers
from ede.train import resume

QUICK = {"threads": 1, "final_episodes": 1, "eval_episodes": 1, "checkpoint_period": 160}


def train(path: Path, log: str) -> None:
    ede.train(
        "gym/CartPole-v1", preset="smoke", steps=480, out=path, settings=QUICK, log=(log,), display=Display()
    )


def unfinish(run: Path) -> None:
    """As if it had been killed after the checkpoint before the last."""
    (run / "DONE").unlink()
    newest = max((run / "checkpoints").glob("step-*"))
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()


def test_tensorboard_gets_every_number_of_the_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "epistemic", "return"):
        written = {event.step: event.value for event in events.Scalars(name)}
        told = {line["step"]: line[name] for line in metrics if line.get(name) is not None}
        assert written.keys() == told.keys()
        assert written == pytest.approx(told, rel=1e-6)
    finals = [json.loads(line) for line in (tmp_path / "run" / "evals.jsonl").read_text().splitlines()]
    (test,) = [line for line in finals if line["final"] and line["split"] == "test"]
    assert events.Scalars("test_return")[-1].value == pytest.approx(
        sum(test["returns"]) / len(test["returns"])
    )


def test_a_resumed_run_goes_on_in_the_same_tensorboard_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, "tensorboard")
    unfinish(run)
    resume(run, display=Display())
    assert len(list((run / "tensorboard").glob("events.out.tfevents.*"))) == 2
    assert (run / "DONE").exists()


@pytest.mark.slow
def test_wandb_writes_offline_and_keeps_its_run_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = tmp_path / "run"
    train(run, "wandb")
    unfinish(run)
    resume(run, display=Display())
    files = sorted((run / "wandb").glob("offline-run-*/run-*.wandb"))
    identities = {file.stem.removeprefix("run-") for file in files}
    assert len(identities) == 1
    newest = max((run / "checkpoints").glob("step-*"))
    facts = json.loads((newest / "manifest.json").read_bytes().split(b"\n")[0])["facts"]
    assert facts["mirrors"] == {"wandb": identities.pop()}
    written = b"".join(file.read_bytes() for file in files)
    assert all(name in written for name in (b"epistemic", b"grad_norm", b"test_return"))


def test_only_numbers_are_mirrored() -> None:
    assert numbers({"step": 3, "loss": 0.5, "updates": 2, "return": None, "split": "test"}) == {
        "loss": 0.5,
        "updates": 2,
    }


def test_a_mirror_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ede.EdeError, match="There is no log 'sheets'; choose tensorboard or wandb"):
        check_mirrors(("tensorboard", "sheets"))
