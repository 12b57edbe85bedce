"""The study: cells, seeds, files, claims."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ede.errors import EdeError
from ede.tabular import files
from ede.tabular.claims import CLAIMS, findings
from ede.tabular.figures import FIGURES, drawable
from ede.tabular.study import METHODS, Cell, Row, Size, Study, cells, cores, run, run_trials
from ede.tabular.worlds import WORLDS


def row(world: str, method: str, value: float, mean: float, std: float = 1.0, trials: int = 100) -> Row:
    """A cell's row with flat curves."""
    at = np.array([1, 500, 1000])
    gap = np.tile([0.0, WORLDS[world].test_optimum - mean], (3, 1)).round(6)
    return Row(Cell(world, method, value), trials, 1000, (1.88, mean), (0.0, std), at, gap, np.ones((3, 2)))


def made(**means: list[float]) -> Study:
    """A study of the grid with these mean test returns, one method a keyword."""
    return Study(
        Size(),
        tuple(
            row("grid", method, value, mean)
            for method, ten in means.items()
            for value, mean in zip(METHODS[method].values, ten, strict=True)
        ),
    )


def test_the_papers_study_is_two_worlds_four_methods_ten_values() -> None:
    everything = cells()
    assert len(everything) == len(set(everything)) == 80
    assert {cell.method for cell in everything} == {"egreedy", "ucb", "pg", "sarsa"}
    assert cells(["windy"], ["ucb"], [45.0]) == (Cell("windy", "ucb", 45.0),)
    assert len(cells(["grid", "grid"], ["pg-printed"])) == 10


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((["moon"], [], []), "no world 'moon'; choose from grid, windy"),
        (([], ["dqn"], []), "no method 'dqn'; choose from egreedy"),
        (([], ["ucb"], [7.0]), "7 is no value of c for 'ucb'; choose from 5, 10"),
        (([], ["egreedy", "ucb"], [0.5]), "0.5 is no value of c"),
    ],
)
def test_what_does_not_exist_is_said(words: tuple[list[str], list[str], list[float]], sentence: str) -> None:
    with pytest.raises(EdeError, match=sentence):
        cells(*words)


@pytest.mark.parametrize("size", [(0, 10, 0), (10, 0, 0), (10, 10, -1)])
def test_impossible_sizes_are_refused(size: tuple[int, int, int]) -> None:
    with pytest.raises(EdeError):
        Size(*size)
    with pytest.raises(EdeError, match="threads"):
        run_trials([], Size(1, 1), threads=0)


@pytest.mark.parametrize("episodes", [1, 7, 100, 101, 1000, 1234])
def test_checkpoints_begin_with_the_first_and_end_with_the_last_episode(episodes: int) -> None:
    at = Size(episodes=episodes).checkpoints
    assert at[0] == 1
    assert at[-1] == episodes
    assert len(at) <= 102
    assert (np.diff(at) > 0).all()


def test_threads_do_not_matter_seeds_do_and_trials_stand_alone() -> None:
    some = cells([], [], [])[::9]
    one, two = (run_trials(some, Size(3, 30, 5), threads=threads) for threads in (1, 2))
    other = run_trials(some, Size(3, 30, 6))
    fewer = run_trials(some[:1], Size(2, 30, 5))
    for cell in some:
        np.testing.assert_array_equal(one[cell].return_TC2, two[cell].return_TC2)
    assert any((one[cell].return_TC2 != other[cell].return_TC2).any() for cell in some)
    np.testing.assert_array_equal(fewer[some[0]].return_TC2, one[some[0]].return_TC2[:2])
    assert cores() >= 1


def test_a_row_is_the_mean_and_population_deviation_over_trials() -> None:
    cell, size = Cell("windy", "egreedy", 0.5), Size(7, 20, 1)
    last_T2 = run_trials([cell], size)[cell].return_TC2[:, -1]
    (summary,) = run([cell], size)
    assert summary.mean == pytest.approx(tuple(last_T2.mean(axis=0)), abs=1e-6)
    assert summary.std == pytest.approx(tuple(last_T2.std(axis=0)), abs=1e-6)
    assert summary.gap_mean_C2[-1, 1] == pytest.approx(
        WORLDS["windy"].test_optimum - summary.mean[1], abs=1e-6
    )
    assert summary.error == pytest.approx(summary.std[1] / 7**0.5)


def test_a_study_reads_back_as_it_was_written(tmp_path: Path) -> None:
    size = Size(4, 12, 3)
    study = Study(size, run(cells(["grid"], ["ucb", "pg"]), size))
    with files.staged(tmp_path / "out") as stage:
        files.write(study, stage)
        files.seal(study, stage)
    again = files.read(tmp_path / "out", size)
    for before, after in zip(study.rows, again.rows, strict=True):
        assert (before.cell, before.mean, before.std) == (after.cell, after.mean, after.std)
        np.testing.assert_array_equal(before.gap_mean_C2, after.gap_mean_C2)
        np.testing.assert_array_equal(before.gap_std_C2, after.gap_std_C2)
        np.testing.assert_array_equal(before.episode_C, after.episode_C)
    assert files.read(tmp_path / "out", Size(4, 12, 4)).rows == ()
    (tmp_path / "out" / files.MANIFEST).write_text("[")
    assert files.read(tmp_path / "out", size).rows == ()
    assert files.read(tmp_path / "nowhere", size).rows == ()


def stop_half_way(out: Path) -> None:
    with files.staged(out) as stage:
        (stage / "tabular.csv").write_text("half")
        raise KeyboardInterrupt


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    fresh, old = tmp_path / "new" / "fresh", tmp_path / "old"
    old.mkdir()
    (old / "tabular.csv").write_text("old")
    for out in (fresh, old):
        with pytest.raises(KeyboardInterrupt):
            stop_half_way(out)
    assert not fresh.parent.exists()
    assert [path.name for path in old.iterdir()] == ["tabular.csv"]
    assert (old / "tabular.csv").read_text() == "old"


def test_a_sealed_study_takes_the_place_of_an_earlier_one_and_touches_nothing_else(tmp_path: Path) -> None:
    study = Study(Size(), ())
    (tmp_path / "mine.txt").write_text("mine")
    for name in ("first.png", "second.png"):
        with files.staged(tmp_path) as stage:
            (stage / name).write_text(name)
            files.seal(study, stage)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "second.png", files.MANIFEST]
    assert json.loads((tmp_path / files.MANIFEST).read_text())["files"] == ["second.png", files.MANIFEST]


def test_best_takes_the_published_value_among_equals() -> None:
    study = made(ucb=[1.0] + [1.72] * 9, egreedy=[-9.0] * 9 + [-4.0], pg=[0.0] * 10)
    assert [
        best.cell.value for name in ("ucb", "egreedy", "pg") if (best := study.best("grid", name)) is not None
    ] == [45.0, 0.9, 0.1]
    assert study.best("grid", "sarsa") is None


RISING = [-4 + 0.4 * i for i in range(10)]


def test_claims_agree_where_the_numbers_do_and_differ_where_they_do_not() -> None:
    agreeing = made(
        ucb=[1.0] + [1.72] * 9, egreedy=[-9.0] * 9 + [-5.0], pg=[-2, -1.9] + [-2.0] * 8, sarsa=RISING
    )
    verdicts = {one.published: one for one in findings(agreeing)}
    for sentence in (
        "ε-greedy is best at ε = 0.9",
        "UCB is best at c = 45",
        "Policy gradient is best at β = 0.1",
        "Sarsa(λ) is best at ε = 0.9",
        "Sarsa(λ): higher ε, higher test return",
        "Test return: UCB > Sarsa(λ) > policy gradient > ε-greedy",
        "UCB and policy gradient are robust to their value; ε-greedy varies greatly",
        "All three quickly reach the optimal training return",
    ):
        assert verdicts[sentence].verdict == "agrees", sentence
    # Every standard deviation here is 1: UCB's is not negligible, and Sarsa's is not much larger.
    assert verdicts["UCB reliably finds the optimal test policy: negligible variance"].verdict == "differs"
    assert verdicts["Sarsa(λ) varies much more than UCB"].verdict == "differs"
    assert verdicts["Wind: similar results, UCB > policy gradient > ε-greedy"].verdict == "not yet"

    turned = made(ucb=[1.0] * 10, egreedy=[2.0] + [1.0] * 9, pg=[-2.0] * 9 + [-1.5], sarsa=RISING[::-1])
    verdicts = {one.published: one for one in findings(turned)}
    for sentence in (
        "ε-greedy is best at ε = 0.9",
        "Policy gradient is best at β = 0.1",
        "Sarsa(λ): higher ε, higher test return",
        "Test return: UCB > Sarsa(λ) > policy gradient > ε-greedy",
    ):
        assert verdicts[sentence].verdict == "differs", sentence
    beta = verdicts["Policy gradient is best at β = 0.1"]
    assert "β = 0.9" in beta.ours
    assert "beyond two standard errors" in beta.ours
    assert "--method pg-printed" in beta.why


def test_a_smaller_study_shows_its_numbers_and_no_verdict() -> None:
    small = Study(Size(trials=99), made(ucb=[1.0] + [1.72] * 9).rows)
    (finding,) = [one for one in findings(small) if one.published == "UCB is best at c = 45"]
    assert finding.verdict == "not yet"
    assert "best c = 45" in finding.ours


def test_a_claim_about_variance_reads_the_standard_deviations() -> None:
    exact = [row("grid", "ucb", value, 1.72, std=0.0) for value in METHODS["ucb"].values]
    falling = [row("grid", "sarsa", value, 0.0, std=5 - 4 * value) for value in METHODS["sarsa"].values]
    verdicts = {one.published: one.verdict for one in findings(Study(Size(), (*exact, *falling)))}
    assert verdicts["UCB reliably finds the optimal test policy: negligible variance"] == "agrees"
    assert verdicts["Sarsa(λ): higher ε tends to smaller standard deviation"] == "agrees"
    assert verdicts["Sarsa(λ) varies much more than UCB"] == "agrees"


def test_every_claim_belongs_to_a_figure_and_every_figure_with_rows_has_claims() -> None:
    named = {name for claim in CLAIMS for name in claim.figures}
    assert named == {name for name, figure in FIGURES.items() if figure.needs}
    for claim in CLAIMS:
        for name in claim.figures:
            assert set(claim.needs) <= {cell[:2] for cell in FIGURES[name].needs}


def test_a_figure_is_drawn_where_the_study_holds_all_of_it(tmp_path: Path) -> None:
    study = made(ucb=[1.72] * 10, egreedy=[-9.0] * 10, pg=[-2.0] * 10)
    found = {figure.name: figure for figure in drawable(study)}
    assert set(found) == {"tabular-worlds", "tabular-egreedy", "tabular-ucb", "tabular-pg", "tabular-sweep"}
    for figure in found.values():
        figure.draw(study, tmp_path)
        assert (tmp_path / f"{figure.name}.pdf").stat().st_size > 1000
        assert (tmp_path / f"{figure.name}.png").stat().st_size > 1000
