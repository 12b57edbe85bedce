"""Sweeps: tables are read or refused, only missing cells run, and nothing is lost to a kill."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import RunCli
from ede.display import Display
from ede.errors import EdeError
from ede.sweep.cells import Block, Cell, Sweep, find, read_table
from ede.sweep.named import SWEEPS
from ede.sweep.work import Job, jobs, reason
from ede.train import train
from runs_alike import assert_alike

TINY = {"steps": 2_000, "checkpoint_period": 160, "threads": 1}
TABLE = """
tasks = ["bigfish-simple"]
preset = "smoke"
seeds = 2
settings = { steps = 2000, checkpoint_period = 160, threads = 1 }
[[block]]
methods = ["dqn"]
[[block]]
methods = ["ede"]
grid = { phi = [1, 5] }
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.toml"
    path.write_text(TABLE)
    return path


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ede.cli", "sweep", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def children(out: Path) -> list[int]:
    """Processes that work on a cell of this sweep."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "ede.sweep.child" in words and any(word.startswith(str(out)) for word in words):
            found.append(int(path.parent.name))
    return found


def wait_until(holds: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


# Tables


def test_a_table_is_every_combination_under_readable_names(table: Path) -> None:
    assert [cell.name for cell in find(str(table)).cells()] == [
        "bigfish-simple-dqn-smoke-s0",
        "bigfish-simple-ede-smoke-phi=1-s0",
        "bigfish-simple-ede-smoke-phi=5-s0",
        "bigfish-simple-dqn-smoke-s1",
        "bigfish-simple-ede-smoke-phi=1-s1",
        "bigfish-simple-ede-smoke-phi=5-s1",
    ]
    first, *_ = find(str(table)).cells()
    assert first == Cell("bigfish-simple", "dqn", 0, "smoke", TINY)


def test_a_block_inherits_the_top_and_changes_some_of_it() -> None:
    sweep = read_table(
        "mine",
        {
            "tasks": ["crafter"],
            "steps": 9,
            "block": [{"seeds": [4]}, {"tasks": ["bigfish-simple"], "steps": 8}],
        },
    )
    assert [(cell.task, cell.seed, cell.settings["steps"]) for cell in sweep.cells()] == [
        ("bigfish-simple", 0, 8),
        ("crafter", 4, 9),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tasks = [", "is not TOML"),
        ("task = ['crafter']", "'task' is unknown"),
        ("tasks = 'crafter'", "tasks is a list of words"),
        ("methods = ['ede']", "name tasks with --tasks"),
        ("tasks = ['bigfish-simple']\nmethods = ['edee']", "did you mean 'ede'"),
        ("tasks = ['bigfish-simple']\ngrid = { phi = 3 }", "a list"),
        ("tasks = ['bigfish-simple']\ngrid = { fie = [3] }", "There is no setting 'fie'"),
        ("tasks = ['bigfish-simple']\nmethods = ['dqn']\ngrid = { phi = [3] }", "dqn never reads phi"),
        ("tasks = ['bigfish-simple']\npreset = 'papers'", "There is no preset"),
        ("tasks = ['bigfish-simple']\n[[block]]\n[[block]]\nsettings = { phi = 3 }", "would be called"),
        ("tasks = ['bigfish-simple']\n[block]\nseeds = 3", "two brackets"),
        ("tasks = ['bigfish-simple']\nblock = [1]", "two brackets"),
        ("tasks = ['bigfish-simple']\nsettings = 3", "settings is a table"),
        ("tasks = ['bigfish-simple']\ngrid = { phi = [] }", "at least one value"),
        ("tasks = ['bigfish-simple']\nseeds = -2", "seeds are how many"),
        ("tasks = ['bigfish-simple']\nseeds = [1.5]", "seeds are how many"),
    ],
)
def test_a_wrong_table_is_one_sentence(tmp_path: Path, run_cli: RunCli, text: str, says: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    ran = run_cli("sweep", "wrong.toml")
    assert ran.code == 2
    assert says in ran.err
    assert not (tmp_path / "runs").exists()


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(run_cli: RunCli) -> None:
    ran = run_cli("sweep", "bigfish")
    assert (ran.code, "There is no sweep 'bigfish'" in ran.err) == (2, True)
    listed = run_cli("sweep", "--list").out
    assert all(name in listed for name in SWEEPS)


@pytest.mark.parametrize("name", SWEEPS)
def test_every_named_sweep_is_a_table_of_cells_that_can_run(name: str) -> None:
    sweep = SWEEPS[name]
    games = ("procgen/bigfish", "procgen/starpilot")
    cells = sweep.cells() if sweep.blocks[0].tasks else sweep.changed(tasks=games).cells()
    assert len({cell.name for cell in cells}) == len(cells) > 1


def test_tasks_methods_seeds_preset_and_settings_can_be_changed_but_not_what_is_varied() -> None:
    sweep = Sweep("mine", "", (Block(("crafter",), ("ede",), grid={"phi": (1.0, 2.0)}),))
    changed = sweep.changed(("bigfish-simple",), 2, "smoke", {"steps": 640})
    assert {(cell.task, cell.preset, cell.settings["steps"]) for cell in changed.cells()} == {
        ("bigfish-simple", "smoke", 640)
    }
    assert [cell.seed for cell in changed.cells()] == [0, 0, 1, 1]
    assert {cell.method for cell in sweep.changed(methods=("qrdqn_ucb",)).cells()} == {"qrdqn_ucb"}
    with pytest.raises(EdeError, match="varies phi"):
        sweep.changed(settings={"phi": 3.0})


# Folders


def job(out: Path) -> Job:
    (found,) = jobs([Cell("bigfish-simple", "dqn", 0, "smoke", {"steps": 320})], out, threads=1)
    return found


def test_a_folder_that_holds_another_run_is_neither_overwritten_nor_taken(tmp_path: Path) -> None:
    folder = tmp_path / "bigfish-simple-dqn-smoke-s0"
    settings = {"threads": 4, "device": "cpu"}
    train(
        "bigfish-simple",
        method="dqn",
        preset="smoke",
        steps=320,
        settings=settings,
        out=folder,
        display=Display(),
    )
    assert job(tmp_path).done  # other threads and device: the same cell
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"changed": {"steps": 640}}))
    with pytest.raises(EdeError, match=r"holds another run \(steps 640 not 320\)"):
        job(tmp_path)


def test_why_a_process_failed_is_its_own_last_word(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ede: before\nstep 1\nede: The disk is full.\nede: warning: odd\n")
    assert reason(1, log, 0) == "The disk is full."
    log.write_text("ede: before\nTraceback\nValueError: no\n")
    assert reason(1, log, len("ede: before\n")) == "ValueError: no"
    assert "SIGKILL" in reason(-9, log, 0)


# Running


@pytest.mark.slow
def test_kill_nine_at_random_and_starting_again_runs_only_what_is_missing(
    table: Path, tmp_path: Path
) -> None:
    out, chance = tmp_path / "out", random.Random(3)
    words = [str(table), "--out", str(out), "--workers", "2"]
    progress = 0
    for _ in range(3):
        sweep = start(*words)
        goal = progress + chance.randint(2, 12)

        def lines() -> int:
            return sum(path.read_bytes().count(b"\n") for path in out.glob("*/metrics.jsonl"))

        wait_until(lambda goal=goal, sweep=sweep: lines() >= goal or sweep.poll() is not None)
        sweep.kill()
        assert sweep.wait() == -signal.SIGKILL
        wait_until(lambda: not children(out), 10)  # nobody is left behind
        progress = lines()
    finished = {path: path.stat().st_mtime_ns for path in out.glob("*/DONE")}
    last = start(*words)
    told, _ = last.communicate(timeout=300)
    assert last.returncode == 0, told
    cells = find(str(table)).cells()
    assert f"6 cells, {6 - len(finished)} missing".encode() in told
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for cell in cells:
        alone = tmp_path / "alone" / cell.name
        train(
            cell.task, method=cell.method, preset=cell.preset, seed=cell.seed, settings=cell.settings,
            out=alone, display=Display(),
        )  # fmt: skip
        assert_alike(alone, out / cell.name)
        assert not list(
            (out / cell.name).glob("checkpoints/rows-*")
        )  # the replay of finished cells is dropped


@pytest.mark.slow
def test_a_hopeless_cell_is_reported_and_does_not_stop_the_rest(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "table.toml").write_text(
        "tasks = ['bigfish-simple']\nmethods = ['dqn']\npreset = 'smoke'\n"
        "settings = { learning_starts = 320, steps = 2000 }\ngrid = { learning_rate = [1e11, 0.001] }\n"
    )
    ran = run_cli("sweep", "table.toml", "--out", "out", "--workers", "1", "--collect", "results")
    assert ran.code == 1
    assert "1/2" in ran.out
    assert "will be tried again" in ran.out
    assert "learning_rate=100000000000-s0 failed: The loss became" in ran.out
    log = tmp_path / "out" / "logs" / "bigfish-simple-dqn-smoke-learning_rate=100000000000-s0.log"
    assert log.read_text().count("The loss became") == 2
    assert "carry on with: ede sweep table.toml" in ran.out
    runs = json.loads((tmp_path / "results" / "runs.json").read_text())["runs"]
    assert list(runs) == ["bigfish-simple-dqn-smoke-learning_rate=0.001-s0"]


@pytest.mark.slow
def test_sigterm_saves_what_runs_and_says_how_to_carry_on(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep = start(str(table), "--out", str(out), "--workers", "2", "--set", "checkpoint_period=1000000")
    wait_until(
        lambda: (
            list(out.glob("*/metrics.jsonl")) and any(p.stat().st_size for p in out.glob("*/metrics.jsonl"))
        )
    )
    sweep.terminate()
    told, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 128 + signal.SIGTERM
    assert b"carry on with: ede sweep" in told
    assert not children(out)
    assert list(out.glob("*/checkpoints/step-*"))  # none was due: they were saved because of the signal


@pytest.mark.slow
def test_a_second_sweep_in_the_folder_is_refused(table: Path, tmp_path: Path, run_cli: RunCli) -> None:
    out = tmp_path / "out"
    first = start(str(table), "--out", str(out))
    try:
        wait_until(lambda: (out / "sweep.json").exists())
        ran = run_cli("sweep", str(table), "--out", str(out))
        assert (ran.code, "Another sweep works in" in ran.err) == (2, True)
    finally:
        first.kill()
        first.communicate()


@pytest.mark.slow
def test_a_dry_run_measures_and_writes_nothing(table: Path, tmp_path: Path, run_cli: RunCli) -> None:
    ran = run_cli("sweep", str(table), "--out", "out", "--dry-run")
    assert ran.code == 0
    assert "6 of 6" in ran.out
    assert ran.out.count("measuring") == 2  # φ costs nothing
    assert f"{(2_000 - 320) // 64:,}" in ran.out
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["table.toml"]
