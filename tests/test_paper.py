"""Paper items from published tables: hand arithmetic, what is written, what is said."""

import csv
import statistics as arithmetic

import pytest

from ede.cli import main
from ede.paper import items
from ede.paper.published import META_METHODS, correlations, procgen

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
    assert "the table disagrees with the text: over its 16 games IDAAC is above EDE in mean, median" in said
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


def test_the_list_names_every_item_and_a_wrong_name_is_refused(capsys):
    assert main(["paper", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in items())
    assert main(["paper", "procgen-tset"]) == 2
    assert "ede paper --list" in capsys.readouterr().err
