"""`ede train` and `ede eval` as their users meet them."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import ede
from conftest import RunCli
from ede.commands.train import until_stopped
from ede.display import Display, Terminal, judgement_table
from ede.envs import make_env
from ede.errors import EdeError
from ede.evaluate import Episodes, Protocol
from ede.methods import METHODS
from ede.plan import world_options
from ede.train import resume
from ede.trainer import Stopped, Trainer
from runs_alike import story

LEAST = {"threads": 1, "final_episodes": 1}
QUICK = ("--preset", "smoke", "--set", "threads=1")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_whole(run: Path, task: str) -> None:
    """The run folder holds what the documentation promises."""
    config = json.loads((run / "config.json").read_text())
    assert {
        "task", "method", "preset", "seed", "steps", "train_contexts", "test_contexts", "settings", "changed",
        "method_row", "spec", "log", "versions", "machine", "commit", "command",
    } <= config.keys()  # fmt: skip
    assert (config["task"], config["settings"]["threads"], config["changed"]["threads"]) == (task, 1, 1)
    settings = config["settings"]

    metrics = lines(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [
        step
        for step in range(settings["lanes"], settings["steps"] + 1, settings["lanes"])
        if step % settings["log_period"] == 0
    ]
    learning = metrics[-1]
    assert {
        "step", "updates", "target_syncs", "replay", "return", "seconds", "steps_per_second", "loss", "grad_norm",
        "q", "target", "epistemic", "aleatoric", "coefficient_min", "coefficient_max",
    } <= learning.keys()  # fmt: skip
    owed = (settings["steps"] - settings["learning_starts"]) // settings["steps_per_update"]
    assert learning["updates"] == owed
    syncs = range(settings["target_period"], settings["steps"] + 1, settings["target_period"])
    first_update = settings["learning_starts"] + settings["steps_per_update"]
    assert learning["target_syncs"] == sum(step >= first_update for step in syncs)
    assert all(np.isfinite(learning[name]) for name in ("loss", "grad_norm", "q", "epistemic", "aleatoric"))

    evals = lines(run / "evals.jsonl")
    final = [line for line in evals if line["final"]]
    assert [line["split"] for line in final] == ["train", "test"]
    assert [line["split"] for line in evals if not line["final"]] == ["train", "test"] * (
        (settings["steps"] - 1) // settings["eval_period"]
    )
    for line in evals:
        episodes = settings["final_episodes"] if line["final"] else settings["eval_episodes"]
        assert line["protocol"] == {
            "contexts": config[f"{line['split']}_contexts"],
            "episodes": episodes,
            "epsilon": settings["eval_epsilon"],
            "rule": Protocol.rule,
        }
        assert len(line["returns"]) == len(line["lengths"]) == len(line["contexts"]) == episodes

    for episode in lines(run / "episodes.jsonl"):
        assert {"step", "lane", "context", "return", "length", "terminated"} <= episode.keys()
        assert episode["step"] % settings["lanes"] == 0
    newest = max((run / "checkpoints").glob("step-*"))
    assert int(newest.name.removeprefix("step-")) == settings["steps"]
    assert {path.suffix for path in newest.iterdir()} <= {".safetensors", ".bin", ".json"}
    assert json.loads((run / "DONE").read_text())["step"] == settings["steps"]


def test_settings_that_are_no_mapping_are_one_sentence() -> None:
    with pytest.raises(EdeError, match="must be a mapping"):
        ede.train("bigfish-simple", settings=["phi=3"])  # type: ignore[arg-type]


def test_from_the_command_to_the_judged_run(run_cli: RunCli, tmp_path: Path) -> None:
    ran = run_cli("train", "bigfish-simple", *QUICK, "--out", "run")
    assert (ran.code, ran.err) == (0, "")
    places = [
        ran.out.index(text)
        for text in ("Plan", "about 0:0", "step 160/1,280", "Final judgement", "ede watch run")
    ]
    assert places == sorted(places)
    assert max(map(len, ran.out.splitlines())) <= 100
    assert_whole(tmp_path / "run", "bigfish-simple")

    told = run_cli("eval", "run", "--episodes", "7", "--contexts", "both", "--json")
    assert (told.code, told.err) == (0, "")
    train, test = map(json.loads, told.out.splitlines())
    assert (train["split"], test["split"]) == ("train", "test")
    assert (train["protocol"]["contexts"], test["protocol"]["contexts"]) == ("0..199", "full")
    assert len(train["returns"]) == len(test["returns"]) == 7
    assert all(0 <= context < 200 for context in train["contexts"])
    assert run_cli("eval", "run", "--episodes", "7", "--contexts", "both", "--json").out == told.out

    ranged = run_cli(
        "eval", "run", "--episodes", "3", "--contexts", "300..301", "--epsilon", "0", "--out", "e.jsonl"
    )
    assert "300..301" in ranged.out
    (written,) = lines(tmp_path / "e.jsonl")
    assert set(written["contexts"]) <= {300, 301}
    assert written["protocol"]["epsilon"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "steps"), [("gym/CartPole-v1", 960), ("crafter", 480), ("procgen/starpilot", 480)]
)
def test_other_worlds_from_the_command_to_the_judged_run(
    run_cli: RunCli, tmp_path: Path, task: str, steps: int
) -> None:
    quick = (*QUICK, "--steps", str(steps), "--set", "final_episodes=2", "--set", "eval_episodes=1")
    ran = run_cli("train", task, *quick, "--out", "run")
    assert (ran.code, ran.err) == (0, "")
    assert_whole(tmp_path / "run", task)
    assert run_cli("eval", "run", "--episodes", "1").code == 0


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, tmp_path: Path) -> None:
    run = ede.train(
        "bigfish-simple",
        method=method,
        preset="smoke",
        steps=640,
        out=tmp_path / "run",
        settings={"threads": 1, "final_episodes": 2, "eval_period": 10_000, "batch_size": 8},
        display=Display(),
    )
    assert len(run.train.returns) == len(run.test.returns) == 2
    last = lines(run.path / "metrics.jsonl")[-1]
    assert last["updates"] == 5
    assert np.isfinite(last["loss"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["procgen/bigfsh"], "bigfsh"),
        (["atari/pong"], "The preset 'smoke' says nothing about 'atari/pong'"),
        (["bigfish-simple", "--method", "edd"], "did you mean 'ede'?"),
        (["bigfish-simple", "--preset", "huge"], "There is no preset 'huge'"),
        (["bigfish-simple", "--set", "phj=3"], "did you mean 'phi'?"),
        (["bigfish-simple", "--set", "phi"], "--set takes name=value"),
        (["bigfish-simple", "--set", "phi=much"], "'much' is no value for phi"),
        (["bigfish-simple", "--method", "dqn", "--set", "phi=3"], "dqn never reads phi"),
        (["bigfish-simple", "--set", "members=1"], "needs members of at least 2"),
        (["bigfish-simple", "--set", "gamma=1.5"], "gamma must be between 0 and 1"),
        (["bigfish-simple", "--steps", "0"], "steps must be at least 1"),
        (["bigfish-simple", "--seed", "-1"], "A seed is a whole number of 0 or above"),
        (["bigfish-simple", "--set", "frame_stack=300"], "frame_stack must be between 1 and 256"),
        (["bigfish-simple", "--set", "world_options=foo=1"], "bigfish-simple has no option 'foo'"),
        (["bigfish-simple", "--set", "train_contexts=5..2"], "0 <= start < stop"),
        (["bigfish-simple", "--set", "replay_size=1000000000000"], "set a smaller replay_size"),
        (
            ["bigfish-simple", "--set", "replay_place=cloud"],
            "There is no replay_place 'cloud'; choose device, memory",
        ),
        (["bigfish-simple", "--log", "sheets"], "There is no log 'sheets'"),
        (["bigfish-simple", "--out", "/proc/run"], "Cannot write to /proc/run"),
        (["bigfish-simple", "--out", "taken"], "taken is not empty"),
        (["bigfish-simple", "--out", "file"], "file is a file; choose another --out"),
    ],
)
def test_wrong_words_are_one_sentence_and_nothing_is_written(
    run_cli: RunCli, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    ran = run_cli("train", *QUICK, *words)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert ran.err.startswith("ede: ")
    assert ran.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("setting", ["hidden=1e9", "quantiles=1e12"])
def test_a_network_too_large_for_the_memory_is_one_sentence(
    run_cli: RunCli, tmp_path: Path, setting: str
) -> None:
    ran = run_cli("train", "bigfish-simple", *QUICK, "--set", setting)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("ede: There is not enough memory for this; choose a smaller")
    assert ran.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_batch_too_large_for_the_memory_is_one_sentence(run_cli: RunCli) -> None:
    ran = run_cli("train", "bigfish-simple", *QUICK, "--set", "batch_size=1e11", "--out", "run")
    assert ran.code == 1
    assert ran.err.startswith("ede: There is not enough memory for this; choose a smaller batch_size")
    assert ran.err.count("\n") == 1


def test_world_options_come_in_their_types() -> None:
    assert world_options("mode=hard, center_agent=False,time_limit=500,slip=0.5") == {
        "mode": "hard",
        "center_agent": False,
        "time_limit": 500,
        "slip": 0.5,
    }


def test_a_run_that_will_not_learn_says_so_in_its_plan(run_cli: RunCli) -> None:
    ran = run_cli("train", "bigfish-simple", *QUICK, "--steps", "320", "--set", "final_episodes=1")
    assert "none: learning_starts is 320" in ran.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere is no run folder"),
        (["run", "--seed", "-1"], "A seed is a whole number of 0 or above"),
        (["run", "--episodes", "0"], "--episodes must be at least 1"),
        (["run", "--epsilon", "1.5"], "epsilon is a probability, between 0 and 1"),
        (["run", "--epsilon", "nan"], "epsilon is a probability, between 0 and 1"),
        (["run", "--contexts", "some"], "'some' is no set of contexts"),
        (["run", "--out", "/proc/e.jsonl"], "Cannot write /proc/e.jsonl"),
    ],
)
def test_wrong_words_to_eval_are_one_sentence(
    run_cli: RunCli, tmp_path: Path, words: list[str], sentence: str
) -> None:
    ede.train(
        "gym/CartPole-v1", preset="smoke", steps=320, out=tmp_path / "run", settings=LEAST, display=Display()
    )
    ran = run_cli("eval", *words)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_the_same_from_python(tmp_path: Path) -> None:
    run = ede.train(
        "bigfish-simple",
        method="ede",
        preset="smoke",
        seed=3,
        steps=640,
        settings={"threads": 1},
        out=tmp_path / "run",
        display=Display(),
    )
    assert run.path == tmp_path / "run"
    assert run.test.protocol.contexts == "full"
    policy = ede.load(run.path)
    with make_env("bigfish-simple", lanes=6, contexts=ede.Contexts.range(0, 9), seed=0) as lanes:
        obs = lanes.reset()
        values = policy.values(obs)
        members, quantiles = policy.settings.members, policy.settings.quantiles
        assert values.z_MBAN.shape == (members, 6, lanes.spec.num_actions, quantiles)
        assert (
            values.q.shape == values.epistemic.shape == values.aleatoric.shape == (6, lanes.spec.num_actions)
        )
        actions = policy.act(obs)
        np.testing.assert_array_equal(actions, values.q.argmax(-1))
        np.testing.assert_array_equal(policy.act(obs[2]), actions[2:3])
        lanes.step(actions)


def test_a_replay_in_a_file_tells_the_same_story(tmp_path: Path) -> None:
    """Stopped, resumed and finished; the file is gone at the end."""
    runs = {place: tmp_path / place for place in ("device", "memory", "file")}
    for place, path in runs.items():
        settings = LEAST | {"replay_place": place}
        with pytest.raises(Stopped):
            ede.train(
                "bigfish-simple", preset="smoke", out=path, settings=settings, display=Interrupting(at=720)
            )
        assert (path / "replay.frames").exists() == (place == "file")
        resume(path, display=Display())
        assert not (path / "replay.frames").exists()
    device, *others = map(story, runs.values())
    for other in others:
        assert {**other, "config": None, "facts": None} == {**device, "config": None, "facts": None}


def test_what_loads_is_what_was_trained(tmp_path: Path) -> None:
    """Another run gives other values; the same folder gives the same ones."""
    obs = np.random.default_rng(0).integers(0, 256, (4, 10, 10, 3), dtype=np.uint8)
    q = []
    for seed in (0, 1):
        path = tmp_path / str(seed)
        ede.train(
            "bigfish-simple",
            preset="smoke",
            seed=seed,
            steps=320,
            out=path,
            settings=LEAST,
            display=Display(),
        )
        q.append(ede.load(path).values(obs).q)
        np.testing.assert_array_equal(ede.load(path).values(obs).q, q[-1])
    assert not np.allclose(q[0], q[1])


class Interrupting(Display):
    """Presses Ctrl-C at a step, where asked to twice."""

    def __init__(self, at: int, again: bool = False) -> None:
        self.at, self.again, self.told = at, again, 0

    def advance(self, trainer: Trainer) -> None:
        if trainer.step == self.at:
            signal.raise_signal(signal.SIGINT)
            if self.again:
                signal.raise_signal(signal.SIGINT)

    def stopping(self) -> None:
        self.told += 1


def test_ctrl_c_saves_and_says_how_to_carry_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, display = tmp_path / "run", Interrupting(at=400)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    code = until_stopped(
        lambda: ede.train("bigfish-simple", preset="smoke", out=run, settings=LEAST, display=display)
    )
    assert (code, display.told) == (130, 1)
    assert capsys.readouterr().err == f"Stopped and saved at step 400; carry on with: ede resume {run}\n"
    assert max((run / "checkpoints").glob("step-*")).name == "step-000000000400"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert resume(run, display=Display()).path == run


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, display = tmp_path / "run", Interrupting(at=400, again=True)
    with pytest.raises(KeyboardInterrupt):
        until_stopped(
            lambda: ede.train("bigfish-simple", preset="smoke", out=run, settings=LEAST, display=display)
        )
    assert "carries on from its last checkpoint" in capsys.readouterr().err
    assert max((run / "checkpoints").glob("step-*")).name == "step-000000000320"


def test_what_was_learned_outlives_the_reader_of_the_output(tmp_path: Path) -> None:
    run = tmp_path / "run"
    reading, writing = os.pipe()
    os.close(reading)
    words = ("train", "bigfish-simple", *QUICK, "--out", str(run))
    done = subprocess.run(
        [sys.executable, "-m", "ede.cli", *words], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, (run / "DONE").exists()) == (0, True)
    assert done.stderr == "ede: warning: Nobody reads the output any more; the run is silent from here on.\n"


def test_a_folder_that_a_full_disk_left_half_begun_can_be_begun_again(tmp_path: Path) -> None:
    (tmp_path / ".config.json").write_text("{")
    ede.train("gym/CartPole-v1", preset="smoke", steps=320, out=tmp_path, settings=LEAST, display=Display())
    assert (tmp_path / "DONE").exists()


def test_a_live_terminal_of_80_columns_shows_everything_unfolded(tmp_path: Path) -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None, highlight=False)
    long_settings = LEAST | {"test_contexts": "200..2147483646"}
    ede.train(
        "bigfish-simple",
        preset="smoke",
        out=tmp_path / "run",
        settings=long_settings,
        display=Terminal(console),
    )
    shown = screen.getvalue()
    assert re.search(r"steps +[━╸╺ ]+ +1,280/1,280 ", shown)
    assert re.search(r"judging test +[━╸╺ ]+ +\d/\d ", shown)
    assert re.search(r"steps/s  return \S+  held-out \S+  epistemic \S+", shown)
    assert re.search(r"train \(0\.\.199\) +1 +\S+ ± \S+ +\S+ +\S+ +\S+ +\d+", shown)
    assert "…" not in shown


def test_a_narrow_terminal_shows_fewer_columns_and_every_digit() -> None:
    ended = Episodes(Protocol("0..199", 3), np.array([1200.0, 0.0, 7.5]), np.full(3, 900), np.zeros(3, int))
    for width in (40, 60, 74, 80):
        screen = StringIO()
        console = Console(file=screen, width=width, color_system=None)
        console.print(judgement_table({"train": ended, "test": ended}, width))
        assert "402.50 ± 325.58" in re.sub(r" +", " ", screen.getvalue())
        assert ("1200.00" in screen.getvalue()) is (width >= 74)
        assert "…" not in screen.getvalue()


def test_a_mean_that_rounds_to_zero_has_no_sign() -> None:
    ended = Episodes(Protocol("full", 3), np.array([-0.9, 1.1, -0.203]), np.full(3, 9), np.zeros(3, int))
    screen = StringIO()
    Console(file=screen, width=80).print(judgement_table({"test": ended}, 80))
    assert " 0.00 ± " in screen.getvalue()


def test_settings_from_python_are_read_as_those_of_the_command(tmp_path: Path) -> None:
    settings = LEAST | {"steps": 3.2e2, "lanes": "4", "phi": 1}
    run = ede.train(
        "gym/CartPole-v1", preset="smoke", out=tmp_path / "run", settings=settings, log="tensorboard",
        display=Display(),
    )  # fmt: skip
    config = json.loads((run.path / "config.json").read_text())
    assert {name: config["settings"][name] for name in ("steps", "lanes", "phi")} == {
        "steps": 320, "lanes": 4, "phi": 1.0,
    }  # fmt: skip
    assert config["log"] == ["tensorboard"]
    for seed in (1.5, None, "1"):
        with pytest.raises(ede.EdeError, match="A seed is a whole number"):
            ede.train("gym/CartPole-v1", seed=seed, out=tmp_path / "never")  # type: ignore[arg-type]
    with pytest.raises(ede.EdeError, match="'many' is no value for steps"):
        ede.train("gym/CartPole-v1", settings={"steps": "many"}, out=tmp_path / "never")


def test_the_loop_reads_on_one_screen() -> None:
    assert len(inspect.getsource(Trainer.run).splitlines()) <= 60
