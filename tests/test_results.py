"""Condensed runs tell the same as the run folders they came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import RunCli
from ede.errors import EdeError
from ede.report.achievements import success_rates
from ede.report.load import load
from ede.report.scores import Group, final_scores, metric_curve, trained_share, training_curve
from ede.results import collect
from synthetic_runs import write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in range(2):
        write_run(tmp_path / "runs" / f"ede-s{seed}", seed=seed, phi=3.0)
        write_run(tmp_path / "runs" / f"qrdqn-s{seed}", method="qrdqn", seed=seed, level=4.0)
    write_run(tmp_path / "runs" / "unfinished", seed=7, reached=0.5)
    return tmp_path / "runs"


def test_scores_curves_and_settings_come_back(runs: Path, tmp_path: Path) -> None:
    said = collect([runs], tmp_path / "results")
    assert "4 runs" in said
    before = {run.path.name: run for run in load([runs]).runs if run.finished}
    after = {run.path.name: run for run in load([tmp_path / "results"]).runs}
    assert before.keys() == after.keys()
    for name, run in before.items():
        again = after[name]
        assert again.settings == run.settings
        assert (again.config["commit"], again.config["machine"]) == (
            run.config["commit"],
            run.config["machine"],
        )
        assert (again.planned, again.reached, again.finished) == (run.planned, run.reached, True)
        assert again.hours == pytest.approx(run.hours)
        for split in ("train", "test"):
            one, other = run.final(split), again.final(split)
            assert one is not None
            assert other is not None
            np.testing.assert_allclose(other.returns, one.returns, rtol=1e-7)
            np.testing.assert_array_equal(other.contexts, one.contexts)
            for mine, theirs in zip(run.curve(split), again.curve(split), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-7)
    old, new = (Group(*(("task", "ede", tuple(found.values())))) for found in (before, after))
    np.testing.assert_allclose(final_scores(new, "test"), final_scores(old, "test"))
    assert trained_share(new) == trained_share(old)
    for curve in (training_curve, lambda *given: metric_curve(given[0], "epistemic", given[1])):
        drawn = [curve(group, np.random.default_rng(0)) for group in (old, new)]
        assert drawn[0] is not None
        assert drawn[1] is not None
        np.testing.assert_allclose(drawn[1].mean, drawn[0].mean, rtol=1e-6)


def test_crafters_success_rates_come_back_exactly(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", task="crafter", achievements=True, points=40)
    collect([tmp_path / "runs"], tmp_path / "results")
    (before,), (after,) = load([tmp_path / "runs"]).runs, load([tmp_path / "results"]).runs
    expected, found = success_rates(before), success_rates(after)
    assert expected is not None
    assert found is not None
    np.testing.assert_allclose(found, expected)
    assert expected.max() > 0


def test_what_every_run_shares_is_written_once_and_no_folder_of_the_machine(
    runs: Path, tmp_path: Path
) -> None:
    (runs / "sweep.json").write_text(
        '{"commands": ["ede sweep mine/table.toml --out far/away --set phi=3 --limit-seconds=5"]}'
    )
    collect([runs], tmp_path / "results", commit="abcdef")
    text = (tmp_path / "results" / "runs.json").read_text()
    assert '"ede sweep table.toml --set phi=3"' in text
    assert text.count("train_contexts") == 2  # of the run and of its settings
    assert str(tmp_path) not in text
    (run, *_) = load([tmp_path / "results"]).runs
    assert run.config["command"].startswith(f"ede train {run.task} --method {run.method}")
    assert run.config["commit"] == "abc1234"  # what the run knew


def test_the_report_draws_from_results(runs: Path, tmp_path: Path, run_cli: RunCli) -> None:
    collect([runs], tmp_path / "results")
    ran = run_cli("report", str(tmp_path / "results"), "--out", str(tmp_path / "page"))
    assert ran.code == 0, ran.err
    ran = run_cli(
        "paper", "procgen-main", "--runs", str(tmp_path / "results"), "--out", str(tmp_path / "item")
    )
    assert ran.code == 0, ran.err
    assert "4 runs fit" in ran.out


def test_broken_results_and_nothing_to_collect_are_one_sentence(runs: Path, tmp_path: Path) -> None:
    collect([runs], tmp_path / "results")
    (tmp_path / "results" / "scores.csv").write_text("cell\nede-s0\n")
    with pytest.raises(EdeError, match="no folder of results, or a broken one"):
        load([tmp_path / "results"])
    with pytest.raises(EdeError, match="nothing to collect"):
        collect([runs / "unfinished"], tmp_path / "other")
