"""Reports from run folders: what is read, what is counted, what a reader sees."""

import csv
import json
from itertools import combinations

import numpy as np
import pytest

from chromium import opened
from ede.errors import EdeError
from ede.report.achievements import score, success_rates
from ede.report.figures import intervals, lattice, over_steps
from ede.report.load import load, read_run
from ede.report.page import order_of_tones, readable, write_report
from ede.report.scores import (
    Curve,
    comparisons,
    final_scores,
    gaps,
    groups,
    learning_curve,
    limits,
    over_seeds,
    trained_share,
)
from ede.statistics import METRICS, Estimate
from synthetic_runs import write_run


def rows(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_all(folder):
    """Two methods with two seeds on two Procgen games and Crafter; one run is unfinished, one folder broken."""
    for task, level in (("procgen/bigfish", 15.0), ("procgen/starpilot", 40.0)):
        for method, share in (("ede", 1.0), ("qrdqn", 0.5)):
            for seed in (0, 1):
                half = (task, method, seed) == ("procgen/starpilot", "qrdqn", 1)
                write_run(
                    folder / f"{task.replace('/', '-')}-{method}-{seed}",
                    task,
                    method,
                    seed,
                    level=level * share,
                    reached=0.5 if half else 1.0,
                )
    write_run(folder / "crafter-0", "crafter", "ede_thompson", achievements=True)
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text('{"task": "proc', encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    base = tmp_path_factory.mktemp("report")
    write_all(base / "runs")
    return write_report([base / "runs"], base / "out")


def test_final_scores_and_gaps_are_those_of_the_closing_evaluations(tmp_path):
    for seed in range(3):
        write_run(tmp_path / str(seed), seed=seed, reached=0.5 if seed == 2 else 1.0)
    (group,) = groups(load([tmp_path]).runs)
    lines = [
        [json.loads(line) for line in (tmp_path / seed / "evals.jsonl").read_text().splitlines()]
        for seed in "01"
    ]
    means = {
        split: [
            np.mean(line["returns"])
            for run in lines
            for line in run
            if line["final"] and line["split"] == split
        ]
        for split in ("train", "test")
    }
    np.testing.assert_allclose(final_scores(group, "test"), means["test"])
    np.testing.assert_allclose(gaps(group), np.subtract(means["train"], means["test"]))


def test_a_curve_reads_off_between_a_seeds_points_and_never_beyond_its_last():
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    second = (np.array([0.0, 5.0]), np.array([4.0, 4.0]))
    curve = over_seeds([first, second], np.random.default_rng(0))
    np.testing.assert_array_equal(curve.steps, [0, 5, 10, 20])
    np.testing.assert_allclose(curve.mean, [2.0, 2.25, 1.0, 2.0])
    np.testing.assert_array_equal(curve.seeds, [2, 2, 1, 1])
    assert curve.low[1] == pytest.approx(0.5)
    assert curve.high[1] == pytest.approx(4.0)
    assert np.isnan(curve.low[2:]).all()  # one seed says nothing of how seeds differ


def test_the_final_evaluation_wins_its_step(tmp_path):
    write_run(tmp_path / "run")
    (group,) = groups(load([tmp_path]).runs)
    curve = learning_curve(group, "test", np.random.default_rng(0))
    assert len(curve.steps) == 10
    assert curve.mean[-1] == pytest.approx(final_scores(group, "test")[0])


def test_what_differs_beside_the_seed_tells_groups_apart(tmp_path):
    for phi in (10.0, 30.0):
        for seed in (0, 1):
            write_run(tmp_path / f"{phi}-{seed}", seed=seed, phi=phi)
    write_run(tmp_path / "other", "bigfish-simple", phi=50.0)
    write_run(tmp_path / "watched", seed=2, phi=30.0, eval_period=7)
    found = {(group.task, group.label): len(group.runs) for group in groups(load([tmp_path]).runs)}
    assert found == {
        ("bigfish-simple", "ede"): 1,
        ("procgen/bigfish", "ede · phi=10.0"): 2,
        ("procgen/bigfish", "ede · phi=30.0"): 3,
    }


def test_a_label_names_the_settings_that_are_not_the_presets_own(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"plain{seed}", method="ede", seed=seed)
        for name, value in (("phi", 10.0), ("batch_size", 64), ("batch_size", 512)):
            write_run(tmp_path / f"{name}{value}{seed}", method="ede", seed=seed, **{name: value})
    write_run(tmp_path / "said", method="ede", seed=2, phi=30.0)  # the preset's value, spelt out
    found = {group.label: len(group.runs) for group in groups(load([tmp_path]).runs)}
    assert list(found.items()) == [
        ("ede", 3),
        ("ede · batch_size=64", 2),
        ("ede · batch_size=512", 2),
        ("ede · phi=10.0", 2),
    ]


def test_gymnasium_tasks_are_compared_within_their_suite(tmp_path):
    tasks = ("gym/MiniGrid-FourRooms-v0", "gym/MiniGrid-DoorKey-6x6-v0", "gym/CartPole-v1")
    for index, task in enumerate(tasks):
        write_run(tmp_path / str(index), task, level=0.5)
    (found,) = comparisons(groups(load([tmp_path]).runs), "test", "ede_code")
    assert (found.family, set(found.tasks)) == ("MiniGrid", set(tasks[:2]))


def test_runs_of_another_length_are_no_seeds_of_the_same_thing(tmp_path):
    for steps in (50_000, 100_000):
        write_run(tmp_path / str(steps), steps=steps)
    found = groups(load([tmp_path]).runs)
    assert [group.label for group in found] == ["ede · steps=50000", "ede · steps=100000"]


def test_methods_that_meet_on_several_tasks_have_colours_of_their_own(tmp_path):
    for index in range(12):
        write_run(tmp_path / f"m{index}", "bigfish-simple", f"method{index:02}")
    for task in ("procgen/bigfish", "procgen/miner"):
        for method in ("method00", "method08"):  # eight places apart in the alphabet: one colour twice
            write_run(tmp_path / f"{task[-5:]}-{method}", task, method)
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert 'id="figure-curves-procgen"' in page
    tones = {label: tone for tone, label in enumerate(order_of_tones(groups(load([tmp_path]).runs)))}
    assert {tones["method00"], tones["method08"]} == {0, 1}
    assert (tmp_path / "out" / "figures" / "uncertainty-bigfish-simple-epistemic.pdf").exists()


def test_where_training_has_every_context_nothing_is_held_out(tmp_path):
    folder = write_run(tmp_path / "run", "crafter")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "train_contexts": "full"}))
    page = write_report([folder], tmp_path / "out").read_text()
    assert "nothing is held out" in page
    assert "<h1>1 method on crafter</h1>" in page
    assert "crafter: with one seed on a task an interval is missing" in page  # it has no aggregates to say it
    assert "<!-- held-out contexts -->" not in page  # the label of a dot, as a figure spells it
    assert 'id="gap"' not in page
    assert 'id="contexts"' not in page


def test_few_runs_name_no_winner(tmp_path):
    for method, level in (("ede", 9.0), ("qrdqn", 3.0)):
        for seed in range(2):
            write_run(tmp_path / f"{method}{seed}", "bigfish-simple", method, seed, level=level)
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert "so few runs cannot tell them apart" in page


def test_uncertainty_that_is_zero_throughout_is_not_drawn(tmp_path):
    folder = write_run(tmp_path / "qrdqn", "bigfish-simple", "qrdqn")
    write_run(tmp_path / "ede", "bigfish-simple", "ede")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({**line, "epistemic": 0.0}) + "\n" for line in lines)
    )
    write_report([tmp_path], tmp_path / "out")
    found = {(row["method"], row["kind"]) for row in rows(tmp_path / "out" / "numbers" / "uncertainty.csv")}
    assert found == {("ede", "epistemic"), ("ede", "aleatoric"), ("qrdqn", "aleatoric")}


@pytest.mark.parametrize(
    ("number", "shown"),
    [(7.0, "7.00"), (0.0951, "0.0951"), (99.97, "100"), (123.45, "123.5"), (4567.8, "4,568")],
)
def test_numbers_on_the_page_keep_three_digits(number, shown):
    assert readable(number) == shown


def test_a_cell_that_is_there_twice_counts_once(tmp_path):
    write_run(tmp_path / "first", reached=0.5)
    write_run(tmp_path / "again")
    found = load([tmp_path, tmp_path / "again"])
    assert [run.path.name for run in found.runs] == ["again"]
    assert "first repeats the cell" in found.problems[0]
    write_run(tmp_path / "on-a-gpu", device="cuda", threads=1)
    assert [run.path.name for run in load([tmp_path / "again", tmp_path / "on-a-gpu"]).runs] == ["on-a-gpu"]


def test_methods_are_compared_on_the_tasks_all_of_them_finished(tmp_path):
    for method, tasks in (("ede", "ab"), ("qrdqn", "a")):
        for task in tasks:
            name = {"a": "procgen/bigfish", "b": "procgen/miner"}[task]
            write_run(tmp_path / f"{method}-{task}", name, method)
    (found,) = comparisons(groups(load([tmp_path]).runs), "test", "ede_code")
    assert found.tasks == ("procgen/bigfish",)
    assert found.left_out == ("procgen/miner",)
    raw = final_scores(groups(load([tmp_path / "ede-a"]).runs)[0], "test")
    np.testing.assert_allclose(found.scores["ede"]["procgen/bigfish"], (raw - 1) / 39)


def test_held_out_episodes_on_training_contexts_are_counted(tmp_path):
    folder = write_run(tmp_path / "run")
    lines = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    for line in lines:
        if line["final"] and line["split"] == "test":
            line["contexts"] = [
                *range(185, 200),
                *range(200, 245),
            ]  # 15 of 60 among the training contexts 0..199
    (folder / "evals.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert trained_share(groups(load([folder]).runs)[0]) == pytest.approx(15 / 60)


def test_crafters_score_by_pencil(tmp_path):
    run = read_run(write_run(tmp_path / "run", "crafter", achievements=True))
    counts = run.episodes.achievements
    np.testing.assert_allclose(success_rates(run), 100 * np.mean(counts > 0, axis=0))
    early = run.episodes.steps <= 30_000
    np.testing.assert_allclose(success_rates(run, 30_000), 100 * np.mean(counts[early] > 0, axis=0))
    rates = np.zeros(22)
    rates[:11] = 100.0  # half of them always, half of them never: √101 − 1
    assert score(rates) == pytest.approx(101**0.5 - 1)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("config.json", "{", "config.json is broken"),
        ("config.json", '{"task": "crafter"}', "lacks method, seed, steps"),
        ("evals.jsonl", '{"step": 1}\n', "no evaluation"),
        ("metrics.jsonl", 'oops\n{"step": 1}\n', "line 1 is not JSON"),
        ("episodes.jsonl", '{"step": "x"}\n', "no episode"),
    ],
)
def test_damage_is_one_sentence_that_names_the_file(tmp_path, file, text, says):
    folder = write_run(tmp_path / "run")
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(EdeError, match=says):
        read_run(folder)


def test_a_line_torn_by_a_kill_is_passed_over(tmp_path):
    folder = write_run(tmp_path / "run", reached=0.5)
    whole = read_run(folder)
    with (folder / "evals.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 99, "spl')
    torn = read_run(folder)
    assert len(torn.evaluations) == len(whole.evaluations)
    assert not torn.finished


def test_folders_that_hold_no_run_are_refused(tmp_path, run_cli):
    (tmp_path / "empty").mkdir()
    for words, says in ((["nowhere"], "no folder"), (["empty"], "holds no run")):
        ran = run_cli("report", *words)
        assert ran.code == 2
        assert says in ran.err


def test_numbers_are_written_beside_the_page(report):
    numbers = report.parent / "numbers"
    summary = {(row["split"], row["method"]): row for row in rows(numbers / "aggregate.csv")}
    assert set(summary) == {(split, method) for split in ("train", "test") for method in ("ede", "qrdqn")}
    assert summary["test", "qrdqn"]["runs"] == "3"
    ede = summary["test", "ede"]
    assert float(ede["iqm_low"]) <= float(ede["iqm"]) <= float(ede["iqm_high"])
    assert float(ede["iqm"]) > float(summary["test", "qrdqn"]["iqm"])
    for name in ("runs", "final_scores", "curves", "gap", "contexts", "uncertainty", "cost", "crafter"):
        assert rows(numbers / f"{name}.csv"), name
    (crafter,) = rows(numbers / "crafter.csv")
    assert float(crafter["score"]) > 0
    assert crafter["score_low"] == ""  # one seed
    figures = {path.name for path in (report.parent / "figures").iterdir()}
    assert {"aggregate-procgen-test.pdf", "curves-procgen-bigfish.pdf", "crafter-spectrum.pdf"} <= figures


def test_the_same_runs_give_the_same_page_and_figures(tmp_path):
    write_run(tmp_path / "runs" / "one", reached=0.5)
    for name in ("a", "b"):
        write_report([tmp_path / "runs"], tmp_path / name)
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [
        name for name in files if (tmp_path / "a" / name).read_bytes() != (tmp_path / "b" / name).read_bytes()
    ] == []


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("procgen/climber", (3.0, 12.6)),
        ("bigfish-simple", (0.0, 8.0)),
        ("gym/MiniGrid-Empty-8x8-v0", (0.0, 1.0)),
        ("gym/CartPole-v1", None),
        ("crafter", None),
    ],
)
def test_returns_are_scaled_only_where_the_limits_are_known(tmp_path, task, expected):
    assert limits(read_run(write_run(tmp_path / "run", task)), "ede_code") == expected


@pytest.mark.browser
def test_a_stranger_sees_what_was_run_how_much_and_what_it_shows(report):
    with opened(report) as (page, complaints):
        said = page.inner_text("#runs")
        assert "9 runs of 3 methods on 3 tasks; 8 of them finished." in said
        assert "1 of 9 runs are unfinished" in said
        assert "config.json is broken" in said
        assert "the highest IQM is ede" in page.inner_text("#aggregates")
        links = page.locator("nav a")
        for index in range(links.count()):
            links.nth(index).click()
            target = links.nth(index).get_attribute("href")
            assert page.locator(target).is_visible()
        for section in ("aggregates", "final", "curves", "gap", "contexts", "crafter", "uncertainty"):
            picture = page.locator(f"#{section} figure svg").first
            assert picture.bounding_box()["width"] > 300, section
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert complaints == []


@pytest.mark.parametrize("count", [3, 9, 28])
def test_long_labels_neither_overlap_nor_crush_the_panels(count):
    line = Curve(*(np.arange(5.0) for _ in range(5)))
    labels = [f"ede · phi=10.0 · tee_lambda=0.5 · tee_alpha={index}.0" for index in range(count)]
    tones = {label: index for index, label in enumerate(labels)}
    estimates = {label: {metric: Estimate(0.5, 0.1, 0.9) for metric in METRICS} for label in labels}
    for drawing in (
        lattice({label: [over_steps(line)] for label in labels}, tones, ("held-out",), "Steps", "Return"),
        intervals(estimates, tones, "Normalised return"),
    ):
        drawing.draw_without_rendering()
        panels = [axes for axes in drawing.axes if axes.axison]
        titles = [axes.title.get_window_extent() for axes in panels]
        assert not any(one.overlaps(other) for one, other in combinations(titles, 2))
        assert min(axes.get_window_extent().height for axes in panels) > 0.4 * drawing.dpi
        assert min(axes.get_window_extent().width for axes in panels) > 0.8 * drawing.dpi


@pytest.mark.browser
def test_the_page_fits_a_telephone(report):
    with opened(report, width=390) as (page, complaints):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wide = page.locator("#final figure svg").first
        assert wide.bounding_box()["width"] > 600, "its words would be too small to read"
        assert complaints == []
