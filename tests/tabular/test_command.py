"""`ede tabular` and the tabular items of `ede paper`, as a user meets them."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_study import row

from conftest import RunCli
from ede.commands import tabular
from ede.errors import EdeError
from ede.paper import items
from ede.tabular import files
from ede.tabular.study import METHODS, Size, Study

SMALL = ("--trials", "3", "--episodes", "12")


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_whole_study_writes_its_table_curves_theory_and_every_figure(
    run_cli: RunCli, tmp_path: Path
) -> None:
    ran = run_cli("tabular", "--out", "out", *SMALL)
    assert ran.code == 0, ran.err
    table = lines(tmp_path / "out" / "tabular.csv")
    assert list(table[0]) == [
        *("world", "method", "hyperparameter", "value", "trials", "episodes"),
        *("train_return_mean", "train_return_std", "test_return_mean", "test_return_std"),
    ]
    assert len(table) == 80
    assert {line["hyperparameter"] for line in table} == {"epsilon", "c", "beta"}
    assert {(line["trials"], line["episodes"]) for line in table} == {("3", "12")}
    curves = lines(tmp_path / "out" / "curves.csv")
    assert {int(line["episode"]) for line in curves} == set(range(1, 13))
    # One number in two files: the last point of a curve is the optimum less the return.
    assert float(curves[11]["test_suboptimality_mean"]) == pytest.approx(
        1.72 - float(table[0]["test_return_mean"]), abs=2e-6
    )
    drawn = {path.stem for path in (tmp_path / "out").glob("*.pdf")}
    assert drawn == {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert drawn == {name for name in items() if name.startswith("tabular-")}
    assert lines(tmp_path / "out" / "tabular-theory.csv")[-1]["episode"] == "12"
    for word in ("UCB is best at c = 45", "not yet", "t_mix"):
        assert word in ran.out


def test_the_same_seed_gives_the_same_bytes_on_one_thread_and_on_two(run_cli: RunCli, tmp_path: Path) -> None:
    words = ("tabular", *SMALL, "--no-figures", "--world", "grid", "--method", "egreedy", "ucb")
    for out, more in (
        ("a", ("--threads", "1")),
        ("b", ("--threads", "2")),
        ("c", ("--threads", "2", "--seed", "1")),
    ):
        assert run_cli(*words, "--out", out, *more).code == 0
    read = {out: (tmp_path / out / "tabular.csv").read_bytes() for out in "abc"}
    assert read["a"] == read["b"] != read["c"]


def test_a_part_of_the_study_is_the_same_part(run_cli: RunCli, tmp_path: Path) -> None:
    run_cli("tabular", *SMALL, "--no-figures", "--world", "windy", "--method", "sarsa", "--out", "some")
    run_cli(
        "tabular", *SMALL, "--no-figures", "--world", "windy", "--method", "sarsa", "--value", "0.3", "--out", "one"
    )  # fmt: skip
    (one,) = lines(tmp_path / "one" / "tabular.csv")
    assert one in lines(tmp_path / "some" / "tabular.csv")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--world", "moon"), "There is no world 'moon'; choose from grid, windy."),
        (("--method", "dqn"), "There is no method 'dqn'"),
        (("--method", "ucb", "--value", "7"), "7 is no value of c for 'ucb'"),
        (("--trials", "0"), "The number of trials must be at least 1; got 0."),
        (("--trials", "100000000000"), "GB are free; run at most"),
        (("--episodes", "-3"), "The number of episodes must be at least 1; got -3."),
        (("--episodes", "1" + "0" * 20), "The number of episodes must be at most 1000000000000; got 1"),
        (("--threads", "-1"), "The number of threads must not be negative; got -1."),
        (("--seed", "-1"), "The seed must not be negative; got -1."),
        (("--out", "file/below"), "Cannot write to file/below"),
        (("--out", "too-long" * 40), "File name too long"),
    ],
)
def test_a_mistake_is_one_sentence_exit_code_2_and_nothing_written(
    run_cli: RunCli, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "file").write_text("")
    ran = run_cli("tabular", *SMALL, *words)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_sigterm_leaves_nothing_half_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = subprocess.Popen(
        [sys.executable, "-m", "ede.cli", "tabular", "--out", out], stderr=subprocess.DEVNULL
    )
    while not out.exists():
        assert study.poll() is None
        time.sleep(0.05)
    study.send_signal(signal.SIGTERM)
    assert study.wait(60) == 128 + signal.SIGTERM
    assert not out.exists()


def test_figures_that_cannot_be_drawn_are_refused_before_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("ede.tabular.study.run", lambda *_, **__: pytest.fail("the study was run"))
    with pytest.raises(EdeError, match="Figures need matplotlib"):
        tabular.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_paper_item_draws_a_finished_study_and_judges_its_claims(run_cli: RunCli, tmp_path: Path) -> None:
    # Numbers that no run would give show that the study was read and not run again.
    rows = [
        row("grid", name, value, -7.0 + 0.25 * METHODS[name].values.index(value))
        for name in ("egreedy", "ucb", "pg")
        for value in METHODS[name].values
    ]
    study = Study(Size(), tuple(rows))
    with files.staged(tmp_path / "finished") as stage:
        files.write(study, stage)
        files.seal(study, stage)
    ran = run_cli("paper", "tabular-ucb", "--out", "item", "--runs", "finished")
    assert ran.code == 0, ran.err
    assert "best c = 50: -4.75" in ran.out
    assert "differs" in ran.out
    assert {path.name for path in (tmp_path / "item").iterdir()} == {
        *("tabular-ucb.pdf", "tabular-ucb.png", "tabular-ucb.csv", "tabular-ucb-curves.csv", "page.html"),
    }
    assert len(lines(tmp_path / "item" / "tabular-ucb.csv")) == 30


@pytest.mark.parametrize("runs", ["nowhere", "other"])
def test_a_paper_item_names_a_folder_without_the_study_it_needs(
    run_cli: RunCli, tmp_path: Path, runs: str
) -> None:
    assert run_cli("tabular", *SMALL, "--no-figures", "--method", "ucb", "--out", "other").code == 0
    ran = run_cli("paper", "tabular-ucb", "--out", "item", "--runs", runs)
    assert (ran.code, ran.out) == (2, "")
    assert f"{runs} holds no tabular study of 100 trials" in ran.err
    assert not (tmp_path / "item").exists()


def test_the_worlds_need_no_run(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("paper", "tabular-worlds", "--out", "item").code == 0
    assert {path.name for path in (tmp_path / "item").iterdir()} == {
        "tabular-worlds.pdf",
        "tabular-worlds.png",
        "page.html",
    }


def test_the_list_names_every_tabular_figure(run_cli: RunCli) -> None:
    listed = run_cli("paper", "--list").out
    for name in ("egreedy", "ucb", "pg", "sweep", "sarsa", "windy", "windy-sweep", "theory", "worlds"):
        assert f"tabular-{name} " in listed
