"""Paper items from published tables: hand arithmetic, what is written, what is said."""

import csv
import statistics as arithmetic
import tomllib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from chromium import opened
from ede import methods
from ede.cli import main
from ede.paper import items
from ede.paper.experiments import EXPERIMENTS
from ede.paper.plan import sweep_table
from ede.paper.published import META_METHODS, correlations, procgen
from ede.paper.trained import groups, measured, widened
from ede.report.achievements import score, success_rates
from ede.report.load import load
from ede.sweep.cells import read_table
from synthetic_runs import write_run

METHODS = ["PPO", "MixReg", "PLR", "UCB-DRAC", "PPG", "DAAC", "IDAAC", "EDE"]
HAND = {  # EDE's test row: (printed mean, easy minimum, easy maximum), game by game
    "bigfish": (22.1, 1, 40),
    "starpilot": (49.6, 2.5, 64),
    "fruitbot": (25.7, -1.5, 32.4),
    "bossfight": (10.0, 0.5, 13),
    "ninja": (6.1, 3.5, 10),
    "plunder": (4.9, 4.5, 30),
    "caveflyer": (7.9, 3.5, 12),
    "coinrun": (6.7, 5, 10),
    "jumper": (5.7, 3, 10),
    "chaser": (1.6, 0.5, 13),
    "climber": (5.7, 3, 12.6),
    "dodgeball": (13.3, 1.5, 19),
    "heist": (1.5, 3.5, 10),
    "leaper": (6.4, 3, 10),
    "maze": (3.4, 5, 10),
    "miner": (0.7, 1.5, 13),
}


def rows(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_published_tables_are_whole():
    for split in ("train", "test"):
        found = procgen(split)
        assert list(found) == METHODS
        assert all(set(method.games) == set(HAND) for method in found.values())
    assert procgen("test")["EDE"].mean == {game: score for game, (score, _, _) in HAND.items()}


def test_procgen_test_equals_hand_arithmetic_and_says_where_table_and_text_disagree(tmp_path, capsys):
    assert main(["paper", "procgen-test", "--out", str(tmp_path)]) == 0
    found = {row["method"]: row for row in rows(tmp_path / "aggregate.csv")}
    assert list(found) == METHODS
    assert list(found["EDE"])[:5] == ["method", "mean", "median", "iqm", "optimality_gap"]
    normalised = sorted((score - low) / (high - low) for score, low, high in HAND.values())
    assert float(found["EDE"]["mean"]) == pytest.approx(arithmetic.mean(normalised), abs=1e-6)
    assert float(found["EDE"]["median"]) == pytest.approx(arithmetic.median(normalised), abs=1e-6)
    assert float(found["EDE"]["iqm"]) == pytest.approx(arithmetic.mean(normalised[4:12]), abs=1e-6)
    assert float(found["EDE"]["optimality_gap"]) == pytest.approx(1 - arithmetic.mean(normalised), abs=1e-6)
    for metric in ("mean", "median"):
        assert float(found["IDAAC"][metric]) > float(found["EDE"][metric])
        assert float(found["EDE"][f"{metric}_low"]) < float(found["EDE"][f"{metric}_high"])
    said = " ".join(capsys.readouterr().out.split())
    assert "table disagrees with the text: over its 16 games IDAAC is above EDE in mean, median" in said
    assert "origin: published" in said
    for suffix in ("pdf", "png"):
        assert (tmp_path / f"procgen-test.{suffix}").stat().st_size > 5000


def test_the_seed_moves_only_the_simulated_intervals(tmp_path):
    for seed in (0, 1):
        assert main(["paper", "procgen-train", "--out", str(tmp_path / str(seed)), "--seed", str(seed)]) == 0
    first, second = (rows(tmp_path / str(seed) / "aggregate.csv")[0] for seed in (0, 1))
    differing = {name for name in first if first[name] != second[name]}
    assert differing
    assert all(name.endswith(("_low", "_high")) for name in differing)


def test_the_meta_analysis_is_over_the_seven_methods_without_ede(tmp_path, capsys):
    assert main(["paper", "procgen-meta", "--out", str(tmp_path)]) == 0
    assert len(META_METHODS) == 7
    assert "EDE" not in META_METHODS
    # plunder by hand: ranks of train (2, 3, 1, 4, 5, 6, 7) and of test (1, 2, 4, 3, 5, 6, 7): Σd² = 12.
    found = {row["game"]: float(row["spearman"]) for row in rows(tmp_path / "spearman.csv")}
    assert found["plunder"] == pytest.approx(1 - 6 * 12 / (7 * 48), abs=1e-6)
    assert len(found) == 16
    assert "over the seven published methods" in " ".join(capsys.readouterr().out.split())


def test_the_scatter_plots_share_the_games_by_the_sign_of_their_correlation(tmp_path):
    for kind in ("positive", "negative"):
        assert main(["paper", f"procgen-scatter-{kind}", "--out", str(tmp_path / kind)]) == 0
    sides = [
        {row["game"] for row in rows(tmp_path / kind / "scatter.csv")} for kind in ("positive", "negative")
    ]
    assert sides[0] | sides[1] == set(HAND)
    assert not sides[0] & sides[1]
    assert all((correlations()[game] > 0) == (game in sides[0]) for game in HAND)


def test_the_printed_scores_stand_game_by_game_beside_ours(tmp_path, run_cli):
    for seed, level in enumerate((1.0, 3.0)):
        write_run(tmp_path / "runs" / str(seed), "procgen/bigfish", "ede", seed, level=level)
    ran = run_cli(
        "paper", "procgen-test-scores", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")
    )
    found = rows(tmp_path / "out" / "scores.csv")
    published = [row for row in found if row["origin"] == "published"]
    assert len(published) == 8 * 16
    assert {row["game"]: float(row["mean"]) for row in published if row["method"] == "EDE"} == {
        game: score for game, (score, _, _) in HAND.items()
    }
    (ours,) = (row for row in found if row["origin"] == "measured here")
    assert (ours["game"], ours["method"], ours["runs"], ours["steps"]) == ("bigfish", "ede", "2", "100000")
    page = (tmp_path / "out" / "page.html").read_text()
    assert page.count("not yet</td>") == 15  # ours on the other games
    assert "22.1 ± 2.0" in ran.out


@pytest.mark.parametrize(("name", "lines"), [("procgen", 24), ("crafter", 20)])
def test_the_paper_preset_has_the_printed_hyperparameters(tmp_path, run_cli, name, lines):
    ran = run_cli("paper", f"{name}-hyperparameters", "--out", str(tmp_path))
    assert len(rows(tmp_path / "hyperparameters.csv")) == lines
    said = " ".join(ran.out.split())
    assert "the paper preset has every printed value" in said
    assert said.count("target_period=32000 (paper table, read in environment steps") == (name == "procgen")
    assert said.count(";") == 0  # nothing else is read otherwise


def test_the_list_names_every_item_and_a_wrong_name_is_refused(capsys):
    assert main(["paper", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in items())
    assert main(["paper", "procgen-tset"]) == 2
    assert "ede paper --list" in capsys.readouterr().err


BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


def test_the_plan_at_the_published_size_is_whole(tmp_path, run_cli):
    ran = run_cli("paper", "ablation", "--preset", "paper", "--out", str(tmp_path))
    plan = rows(tmp_path / "plan.csv")
    assert len(plan) == 4 * 16 * 5
    assert {row["method"] for row in plan} == {"qrdqn", "qrdqn_tee", "qrdqn_ucb", "ede"}
    assert {row["steps"] for row in plan} == {"25000000"}
    assert {int(row["updates"]) for row in plan} == {(25_000_000 - 128_000) // 64}
    assert len({(row["task"], row["method"], row["seed"]) for row in plan}) == len(plan)
    assert f"{len(plan)} runs, 8,000,000,000 environment steps" in ran.out
    assert "not yet" in ran.out


def test_a_plan_carries_what_the_paper_fixed(tmp_path, run_cli):
    run_cli("paper", "ablation-members", "--preset", "paper", "--out", str(tmp_path))
    plan = rows(tmp_path / "plan.csv")
    assert {row["method"] for row in plan} == {"ede_shared_gradient"}
    assert plan[0]["settings"] == "phi=50.0 tee_lambda=1.0 members=2"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_claim_is_about_cells_of_its_experiment(experiment):
    labels = [cell.label for cell in experiment.cells]
    assert len(set(labels)) == len(labels)
    assert {label for claim in experiment.claims for label in (claim.upper, claim.lower)} <= set(labels)


def test_claims_are_judged_by_the_runs_at_hand(tmp_path, run_cli):
    for method, level in (("ede", 9.0), ("qrdqn_ucb", 6.0), ("qrdqn", 3.0)):
        for seed in range(5):
            write_run(tmp_path / "runs" / f"{method}-{seed}", "bigfish-simple", method, seed, level=level)
    ran = run_cli("paper", "ablation", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    assert ran.code == 0
    claims = {row["claim"]: row["verdict"] for row in rows(tmp_path / "out" / "ablation-claims.csv")}
    assert claims["EDE above QR-DQN + UCB"].startswith("holds here")
    assert claims["QR-DQN + UCB above QR-DQN + TEE"] == "not yet"
    origins = {row["cell"]: row["origin"] for row in rows(tmp_path / "out" / "ablation.csv")}
    assert origins == {
        "QR-DQN": "measured here",
        "QR-DQN + TEE": "not yet",
        "QR-DQN + UCB": "measured here",
        "EDE": "measured here",
    }
    assert "100,000 steps" in ran.out
    assert (tmp_path / "out" / "ablation-bigfish-simple.pdf").exists()


def test_three_runs_a_side_on_one_task_decide_nothing(tmp_path, run_cli):
    for method, level in (("qrdqn_ucb", 9.0), ("qrdqn", 1.0)):
        for seed in range(3):
            write_run(tmp_path / "runs" / f"{method}-{seed}", "bigfish-simple", method, seed, level=level)
    run_cli("paper", "ablation", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    claims = {row["claim"]: row["verdict"] for row in rows(tmp_path / "out" / "ablation-claims.csv")}
    assert claims["QR-DQN + UCB above QR-DQN"].startswith("too few runs to decide here")


def test_cells_are_compared_at_one_number_of_steps(tmp_path):
    for steps, trained in ((50_000, ("ede",)), (100_000, ("ede", "qrdqn"))):
        for method in trained:
            write_run(tmp_path / f"{method}-{steps}", "procgen/bigfish", method, steps=steps)
    found = groups(BY_NAME["ablation"], load([tmp_path]).runs)
    assert [(group.label, [run.planned for run in group.runs]) for group in found] == [
        ("QR-DQN", [100_000]),
        ("EDE", [100_000]),
    ]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
@pytest.mark.parametrize("preset", ["laptop", "paper"])
def test_what_an_experiment_would_train_is_a_sweep(experiment, preset):
    sweep = read_table(experiment.name, tomllib.loads(sweep_table(experiment, preset)))
    cells = sweep.cells()
    here = [cell for cell in experiment.cells if cell.method in methods.METHODS]
    tasks = len(sweep.blocks[0].tasks)
    assert len(cells) == len(here) * tasks * len(sweep.blocks[0].seeds)
    assert (
        preset == "paper" or not experiment.claims or len(sweep.blocks[0].seeds) == 5
    )  # enough to judge them
    assert {cell.preset for cell in cells} == {preset}


def test_an_item_trains_what_fits_this_machine_and_shows_it(tmp_path, run_cli, monkeypatch):
    def short(experiment, preset):
        return (
            'tasks = ["bigfish-simple"]\npreset = "smoke"\nsettings = { threads = 1 }\n'
            '[[block]]\nmethods = ["qrdqn", "ede"]\n'
        )

    ablation = items()["ablation"]
    monkeypatch.setattr("ede.paper.find", lambda name: replace(ablation, table=partial(short, None)))
    ran = run_cli("paper", "ablation", "--train", "--out", str(tmp_path))
    assert ran.code == 0, ran.err
    origins = {row["cell"]: row["origin"] for row in rows(tmp_path / "ablation.csv")}
    assert {name for name, origin in origins.items() if origin == "measured here"} == {"QR-DQN", "EDE"}
    again = run_cli("paper", "ablation", "--train", "--out", str(tmp_path))
    assert "2 cells, 0 missing" in again.out


def test_an_item_that_trains_nothing_says_so(tmp_path, run_cli):
    ran = run_cli("paper", "procgen-meta", "--train", "--out", str(tmp_path))
    assert ran.code == 2
    assert "trains nothing" in ran.err


def test_the_page_says_what_the_terminal_says(tmp_path, run_cli):
    for seed in range(2):
        write_run(tmp_path / "runs" / str(seed), "procgen/bigfish", "ede", seed)
    ran = run_cli("paper", "procgen-test", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    assert ran.code == 0, ran.err
    page = (tmp_path / "out" / "page.html").read_text()
    assert "IDAAC is above EDE in mean, median" in page
    assert page.count("data:image/png;base64,") == 1
    assert "On bigfish alone" in page
    assert "ours 100,000" in page
    origins = {row["method"]: row["origin"] for row in rows(tmp_path / "out" / "beside.csv")}
    assert origins["ede"] == "measured here"
    assert origins["EDE"] == "published"
    beside = next(row for row in rows(tmp_path / "out" / "beside.csv") if row["method"] == "EDE")
    assert float(beside["mean"]) == pytest.approx(
        (22.1 - 1) / 39, abs=1e-5
    )  # the printed 22.1 of bigfish, 1 to 40


@pytest.mark.browser
def test_the_page_of_an_item_fits_a_desk_and_a_telephone(tmp_path, run_cli):
    run_cli("paper", "procgen-test", "--out", str(tmp_path))
    for width in (1100, 390):
        with opened(tmp_path / "page.html", width=width) as (page, complaints):
            assert page.locator("figure img").bounding_box()["width"] > 250
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert complaints == []


def test_a_cell_takes_the_runs_that_change_nothing_else(tmp_path):
    write_run(tmp_path / "plain", "bigfish-simple", level=1.0)
    write_run(tmp_path / "other-lambda", "bigfish-simple", level=9.0, tee_lambda=0.9)
    write_run(tmp_path / "other-phi", "bigfish-simple", level=5.0, phi=10.0)
    runs = load([tmp_path]).runs
    assert [run.path.name for group in groups(BY_NAME["ablation"], runs) for run in group.runs] == ["plain"]
    by_phi = {group.label: group.runs[0].path.name for group in groups(BY_NAME["ablation-phi"], runs)}
    assert by_phi == {"φ = 10.0": "other-phi", "φ = 30.0": "plain"}


def test_like_is_compared_with_like(tmp_path):
    write_run(tmp_path / "more-seeds", "bigfish-simple", "ede", phi=300.0)
    write_run(tmp_path / "more-seeds-1", "bigfish-simple", "ede", 1, phi=300.0)
    for method in ("ede", "ede_total"):
        write_run(tmp_path / method, "bigfish-simple", method, phi=10.0)
    found = groups(BY_NAME["ablation-uncertainty"], load([tmp_path]).runs)
    assert {group.label: [run.path.name for run in group.runs] for group in found} == {
        "Epistemic": ["ede"],
        "Total": ["ede_total"],
    }


def test_a_study_shows_values_the_paper_did_not_try(tmp_path):
    for phi in (1.0, 30.0):
        write_run(tmp_path / str(phi), "bigfish-simple", phi=phi)
    write_run(tmp_path / "elsewhere", "gym/MiniGrid-Empty-8x8-v0", phi=7.0)
    found = widened(BY_NAME["ablation-phi"], load([tmp_path]).runs)
    assert [cell.label for cell in found.cells] == ["φ = 1.0", "φ = 10.0", "φ = 20.0", "φ = 30.0", "φ = 50.0"]


def test_crafters_table_sets_ours_beside_the_published(tmp_path, run_cli):
    for seed in (0, 1):
        write_run(tmp_path / "runs" / str(seed), "crafter", "ede_thompson", seed, achievements=True)
    write_run(tmp_path / "runs" / "half", "crafter", "rainbow", achievements=True, reached=0.5)
    runs = load([tmp_path / "runs"]).runs
    (found,) = measured(BY_NAME["crafter-table"], groups(BY_NAME["crafter-table"], runs))
    assert set(found.scores) == {"EDE"}  # the unfinished run has no score
    np.testing.assert_allclose(
        found.scores["EDE"]["crafter"], [score(success_rates(run)) for run in runs if run.finished]
    )
    run_cli("paper", "crafter-table", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    table = rows(tmp_path / "out" / "crafter-table.csv")
    (quoted,) = (row for row in table if (row["cell"], row["origin"]) == ("LSTM-SPCNN", "published"))
    assert (quoted["value"], quoted["std"], quoted["steps"]) == ("12.1", "0.8", "1000000")
    (mine,) = (row for row in table if (row["cell"], row["origin"]) == ("EDE", "measured here"))
    assert float(mine["low"]) <= float(mine["value"]) <= float(mine["high"])
    assert {(row["origin"], row["runs"]) for row in table if row["cell"] == "EDE"} == {
        ("published", "10"),
        ("measured here", "2"),
    }
    assert (tmp_path / "out" / "crafter-table.png").exists()


def test_procgen_items_take_no_runs_of_other_worlds(tmp_path):
    write_run(tmp_path / "fish", "procgen/bigfish")
    write_run(tmp_path / "grid", "gym/MiniGrid-Empty-8x8-v0")
    found = groups(BY_NAME["procgen-main"], load([tmp_path]).runs)
    assert [group.task for group in found] == ["procgen/bigfish"]
