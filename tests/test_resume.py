"""Killed at any moment, a run ends as if nothing had happened: to the bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import pytest

from ede.display import Display
from ede.errors import EdeError
from ede.policy import load
from ede.runs import RunFolder
from ede.train import resume, train
from ede.trainer import Stopped, Trainer
from runs_alike import assert_alike, story

STEPS = {"bigfish-simple": 4_000, "procgen/starpilot": 1_280, "crafter": 800, "gym/CartPole-v1": 2_000}
SETTINGS = {"checkpoint_period": 160, "threads": 1}


class Stopping(Display):
    """Presses Ctrl-C at a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def advance(self, trainer: Trainer) -> None:
        if trainer.step == self.at:
            signal.raise_signal(signal.SIGINT)


def start(words: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "ede.cli", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_for_growth(process: subprocess.Popen[bytes], path: Path, lines: int) -> None:
    """Until the file has some more lines than now, or the process has ended."""

    def count() -> int:
        return path.read_bytes().count(b"\n") if path.exists() else 0

    goal = count() + lines
    while process.poll() is None and count() < goal:
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kills"), [("bigfish-simple", 4), ("procgen/starpilot", 2), ("crafter", 2)])
def test_kill_nine_and_resume_equals_the_uninterrupted_run(tmp_path: Path, task: str, kills: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(task, preset="smoke", steps=STEPS[task], settings=SETTINGS, out=whole, display=Display())
    chance = random.Random(1)
    words = ["train", task, "--preset", "smoke", "--steps", str(STEPS[task]), "--out", str(killed)]
    words += [f"--set={name}={value}" for name, value in SETTINGS.items()]
    done_kills = 0
    for _ in range(kills):
        process = start(words)
        wait_for_growth(process, killed / "metrics.jsonl", chance.randint(1, 6))
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        done_kills += process.wait() == -signal.SIGKILL
        words = ["resume", str(killed)]
    assert done_kills >= 1
    if not (killed / "DONE").exists():
        resume(killed, display=Display())
    assert_alike(whole, killed)


def test_the_same_seed_tells_the_same_story_and_another_seed_another(tmp_path: Path) -> None:
    runs = {name: tmp_path / name for name in ("one", "same", "other")}
    for name, path in runs.items():
        train(
            "bigfish-simple", preset="smoke", seed=3 if name == "other" else 2, out=path, display=Display(),
            settings={"threads": 1},
        )  # fmt: skip
    assert_alike(runs["one"], runs["same"])
    one, other = story(runs["one"]), story(runs["other"])
    for name in ("episodes", "evals", "metrics", "files", "rows"):
        assert one[name] != other[name], name


class Noting(Display):
    """Remembers how a run began: its weights, actions and a batch, before anything was learned."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {}

    def advance(self, trainer: Trainer) -> None:
        if trainer.learner.updates:
            return
        self.seen["weights"] = next(iter(trainer.learner.network.parameters())).flatten().tolist()
        self.seen["actions"] = trainer.replay.rows_since(trainer.saved_counts_K)["action"].tolist()
        if len(trainer.replay):
            batch = trainer.replay.sample(2, 16, deepcopy(trainer.replay_generator))
            self.seen["batch"] = batch.row_MB.flatten().tolist()


def test_another_seed_has_other_weights_actions_and_batches(tmp_path: Path) -> None:
    beginnings = []
    for place, seed in enumerate((0, 0, 1)):
        display = Noting()
        train(
            "bigfish-simple", preset="smoke", seed=seed, steps=160, out=tmp_path / str(place), display=display
        )
        beginnings.append(display.seen)
    one, same, other = beginnings
    assert one == same
    for name in ("weights", "actions", "batch"):
        assert one[name] != other[name], name


def test_sigterm_saves_and_leaves(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(["train", "bigfish-simple", "--preset", "smoke", "--steps", "400000", "--out", str(run)])
    wait_for_growth(process, run / "metrics.jsonl", 3)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert process.stderr is not None
    told = process.stderr.read()
    assert b"Traceback" not in told
    assert b"Stopped and saved" in told
    saved = max((run / "checkpoints").glob("step-*"))
    last = (run / "metrics.jsonl").read_text().splitlines()[-1]
    assert int(saved.name.removeprefix("step-")) >= int(last.split('"step": ')[1].split(",")[0])


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    train("bigfish-simple", preset="smoke", steps=320, out=tmp_path / "run", display=Display())
    folder = RunFolder.open(tmp_path / "run")
    (folder.path / "DONE").unlink()
    with folder.lock(), pytest.raises(EdeError, match="in use by another process"):
        resume(folder.path, display=Display())


def test_a_changed_setting_is_refused_and_nothing_lost(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train("bigfish-simple", preset="smoke", steps=320, out=run, display=Display())
    (run / "DONE").unlink()
    config = run / "config.json"
    before = config.read_text()
    config.write_text(before.replace('"gamma": 0.97', '"gamma": 0.9'))
    with pytest.raises(EdeError, match="was changed since its checkpoint"):
        resume(run, display=Display())
    config.write_text(before)
    resume(run, display=Display())
    assert (run / "DONE").exists()


def edit(config: Path, old: str, new: str) -> None:
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that is not done, with journals of some length."""
    run = tmp_path / "run"
    settings = SETTINGS | {"eval_period": 320, "eval_episodes": 1}
    train("bigfish-simple", preset="smoke", steps=640, out=run, settings=settings, display=Display())
    (run / "DONE").unlink()
    return run


@pytest.mark.parametrize(
    ("old", "new"),
    [('"seed": 0', '"seed": "x"'), ('"lanes": 8', '"lanes": "8"'), ('"part": "Ucb"', '"part": "Ucc"')],
)
def test_a_config_of_wrong_types_is_one_sentence(stopped: Path, old: str, new: str) -> None:
    edit(stopped / "config.json", old, new)
    with pytest.raises(EdeError, match="was changed since its checkpoint"):
        resume(stopped, display=Display())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x80\x04\x95"])
def test_a_config_that_is_no_config_is_one_sentence(stopped: Path, content: bytes) -> None:
    (stopped / "config.json").write_bytes(content)
    with pytest.raises(EdeError, match=r"config\.json is damaged; bring it back from a copy"):
        resume(stopped, display=Display())


def test_a_config_changed_where_it_does_not_matter_is_told(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(stopped / "config.json", '"commit":', '"remark": "hello", "commit":')
    resume(stopped, display=Display())
    assert "in nothing that decides the run" in capsys.readouterr().err


def test_an_agent_whose_config_was_changed_loads_with_a_warning(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(stopped)
    assert capsys.readouterr().err == ""
    edit(stopped / "config.json", '"gamma": 0.97', '"gamma": 0.9')
    load(stopped)
    assert (
        capsys.readouterr().err == f"ede: warning: {stopped}/config.json was changed since its checkpoint.\n"
    )


@pytest.mark.parametrize("name", ["episodes", "metrics", "evals"])
@pytest.mark.parametrize("damage", ["truncated", "replaced", "flipped", "removed"])
def test_a_damaged_journal_is_told_and_mended(
    stopped: Path, capsys: pytest.CaptureFixture[str], name: str, damage: str
) -> None:
    path = stopped / f"{name}.jsonl"
    before = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(before[: len(before) // 3])
    elif damage == "replaced":
        path.write_bytes(b"\x80\x04\x95cos\nsystem\n")
    elif damage == "flipped":
        path.write_bytes(b"]" + before[1:])
    else:
        path.unlink()
    resume(stopped, display=Display())
    assert capsys.readouterr().err == (
        f"ede: warning: {path} is damaged: its readable lines are kept, the others are lost.\n"
    )
    after = RunFolder.open(stopped).read_journal(name)
    kept = path.read_bytes()
    if damage == "flipped":
        assert kept.startswith(before.partition(b"\n")[2])
    assert all(isinstance(line, dict) for line in after)


def test_a_run_of_a_gpu_is_not_resumed_without_one(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    edit(stopped / "config.json", '"device": "cpu"', '"device": "cuda"')
    shutil.rmtree(stopped / "checkpoints")
    with pytest.raises(EdeError, match="learns on a GPU and this machine has none"):
        resume(stopped, display=Display())


def test_rows_in_many_pieces_resume_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one row a lane; the ring goes round within the run, and once between two checkpoints."""
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    for size in (1000, 120):
        settings = SETTINGS | {"replay_size": size}
        one, other = whole / str(size), pieces / str(size)
        train("bigfish-simple", preset="smoke", settings=settings, out=one, display=Display())
        monkeypatch.setattr("ede.trainer.PIECE", 1)
        with pytest.raises(Stopped):
            train("bigfish-simple", preset="smoke", settings=settings, out=other, display=Stopping(720))
        assert size < 160 or len(list((other / "checkpoints").glob("rows-*-*"))) > 10
        resume(other, display=Display())
        monkeypatch.undo()
        first, second = story(one), story(other)
        del first["rows"], second["rows"]
        assert first == second


def test_a_run_is_not_overwritten_and_a_finished_one_not_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train("bigfish-simple", preset="smoke", steps=320, out=run, display=Display())
    with pytest.raises(EdeError, match="already holds a run"):
        train("bigfish-simple", preset="smoke", steps=320, out=run, display=Display())
    with pytest.raises(EdeError, match="is finished"):
        resume(run, display=Display())


@pytest.mark.slow
def test_a_world_that_cannot_restore_says_so_and_continues(tmp_path: Path) -> None:
    class Listening(Display):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def say(self, text: str) -> None:
            self.heard.append(text)

    run, ears = tmp_path / "run", Listening()
    options = {"world_options": "backend=envpool", "checkpoint_period": 160}
    train("procgen/starpilot", preset="smoke", steps=640, settings=options, out=run, display=Display())
    (run / "DONE").unlink()
    newest = max((run / "checkpoints").glob("step-*"))
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    resume(run, display=ears)
    assert any("cannot restore running episodes" in text for text in ears.heard)
    assert (run / "DONE").exists()


@pytest.mark.parametrize("method", ["dqn", "rainbow"])
def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_checkpoint(
    tmp_path: Path, method: str
) -> None:
    from ede.errors import JobFailed

    run = tmp_path / "run"
    with pytest.raises(JobFailed, match="try a lower learning_rate"):
        train(
            "bigfish-simple", method=method, preset="smoke", out=run, display=Display(), steps=20_000,
            settings={"learning_rate": 1e12, "learning_starts": 2_000, "checkpoint_period": 1_000},
        )  # fmt: skip
    kept = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    assert kept
    assert max(kept) <= 2_064
