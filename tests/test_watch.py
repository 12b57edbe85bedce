"""`ede watch`: the page shows what the agent saw, believed and did, and nothing else."""

from __future__ import annotations

import io
import json
import re
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page

import ede
from chromium import opened
from conftest import RunCli
from ede.display import Display
from ede.errors import EdeError
from ede.returns import ReturnDistribution
from ede.runs import RunFolder
from ede.train import judge_run
from ede.watch.episode import LEVELS, Watched, play, shown_quantiles
from ede.watch.page import packed16, packed32, render
from ede.watch.pictures import as_pictures, sprite


def train(task: str, path: Path, method: str = "ede", **settings: Any) -> Path:
    settings = {"threads": 1, "final_episodes": 1, "eval_episodes": 1, **settings}
    return ede.train(
        task, method=method, preset="smoke", steps=640, out=path, settings=settings, display=Display()
    ).path


@pytest.fixture(scope="module")
def bigfish(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train("bigfish-simple", tmp_path_factory.mktemp("runs") / "bigfish", phi=200.0)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train("gym/CartPole-v1", tmp_path_factory.mktemp("runs") / "cartpole", method="c51")


# ---- the episode


def test_the_episode_is_the_one_that_eval_plays_with_the_same_seed(bigfish: Path) -> None:
    folder = RunFolder.open(bigfish)
    for split, seed in (("test", 0), ("train", 5)):
        judged = judge_run(folder, split, episodes=1, epsilon=None, seed=seed)
        watched = play(folder, split, seed)
        assert watched.reward_T.sum() == judged.returns[0]
        assert len(watched) == judged.lengths[0]
        assert watched.context == judged.contexts[0]


def test_beliefs_are_the_policys_and_marks_are_what_they_say(bigfish: Path) -> None:
    watched = play(RunFolder.open(bigfish), "train", seed=1)
    values = ede.load(bigfish).values(watched.obs)
    np.testing.assert_allclose(watched.q_TA, values.q, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(watched.epistemic_TA, values.epistemic, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(watched.aleatoric_TA, values.aleatoric, rtol=1e-3, atol=1e-6)
    optimistic = watched.q_TA + watched.coefficient * watched.epistemic_TA
    np.testing.assert_array_equal(watched.greedy_T, watched.q_TA.argmax(-1))
    np.testing.assert_array_equal(watched.explorer_T, optimistic.argmax(-1))
    assert (watched.explorer_T != watched.greedy_T).any()


def test_the_explorer_acts_where_asked_with_its_lanes_coefficient(bigfish: Path) -> None:
    folder = RunFolder.open(bigfish)
    coefficient_K = folder.method.coefficient.of_lanes(folder.settings.lanes, 0)
    for lane in (0, 7):
        watched = play(folder, "test", explore=True, lane=lane)
        assert watched.coefficient == pytest.approx(float(coefficient_K[lane]))
        np.testing.assert_array_equal(watched.taken_T, watched.explorer_T)
        np.testing.assert_array_equal(watched.greedy_T, watched.q_TA.argmax(-1))


@pytest.mark.parametrize("method", ["rainbow", "noisy_net", "bootstrapped_dqn", "ez_greedy", "dqn_task_id"])
def test_every_kind_of_explorer_can_be_watched(method: str, tmp_path: Path) -> None:
    folder = RunFolder.open(train("bigfish-simple", tmp_path / "run", method))
    for explore in (False, True):
        watched = play(folder, "17", explore=explore, steps=5)
        assert watched.context == 17
        assert np.isfinite(watched.z_TMAL).all()
        np.testing.assert_array_equal(watched.greedy_T, watched.q_TA.argmax(-1))


def test_a_long_episode_is_cut_and_says_so(bigfish: Path) -> None:
    folder = RunFolder.open(bigfish)
    watched = play(folder, "train", seed=1, steps=3)
    assert (len(watched), watched.end) == (3, "cut")
    assert "the page stops after 3 steps" in render(folder, watched)


def test_shown_quantiles_by_pencil() -> None:
    z_MBAN = torch.tensor([[[[3.0, 1.0, 2.0]]], [[[5.0, 4.0, 6.0]]]], dtype=torch.float64)
    np.testing.assert_array_equal(shown_quantiles(ReturnDistribution(z_MBAN))[:, 0], [[1, 2, 3], [4, 5, 6]])
    atoms = torch.tensor([[[[-1.0, 0.0, 1.0]]]])
    weights = torch.tensor([[[[0.25, 0.5, 0.25]]]])
    shown = shown_quantiles(ReturnDistribution(atoms, weights))[0, 0]
    # Levels (i + ½)/21: five lie below 0.25, eleven more below 0.75.
    np.testing.assert_array_equal(shown, [-1] * 5 + [0] * 11 + [1] * 5)
    many = torch.arange(420, dtype=torch.float64).expand(1, 1, 1, 420)
    thinned = shown_quantiles(ReturnDistribution(many))[0, 0]
    np.testing.assert_allclose(thinned, 20 * np.arange(LEVELS) + 9.5, atol=1)


# ---- pictures and numbers


def test_the_sprite_holds_every_picture_in_its_place() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (7, 4, 6, 3), dtype=np.uint8)
    png, columns = sprite(pictures)
    sheet = np.array(Image.open(io.BytesIO(png)))
    for index, picture in enumerate(pictures):
        top, left = 4 * (index // columns), 6 * (index % columns)
        np.testing.assert_array_equal(sheet[top : top + 4, left : left + 6], picture)


def test_observations_of_any_number_of_planes_become_pictures() -> None:
    generator = np.random.default_rng(0)
    for channels in (1, 3, 4, 21):
        obs = generator.integers(0, 256, (2, 5, 5, channels), dtype=np.uint8)
        pictures = as_pictures(obs)
        assert (pictures.shape, pictures.dtype) == ((2, 5, 5, 3), np.uint8)
    one_hot = np.zeros((1, 1, 2, 4), np.uint8)
    one_hot[0, 0, 0, 0] = one_hot[0, 0, 1, 1] = 255
    np.testing.assert_array_equal(as_pictures(one_hot)[0, 0], [[0x00, 0x72, 0xB2], [0xD5, 0x5E, 0x00]])


def test_numbers_survive_packing() -> None:
    array = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    packed = packed32(array)
    np.testing.assert_array_equal(np.frombuffer(b64decode(packed["data"]), "<f4").reshape(3, 4), array)
    packed = packed16(array)
    whole = np.frombuffer(b64decode(packed["data"]), "<u2").reshape(3, 4)
    np.testing.assert_allclose(packed["low"] + whole * packed["step"], array, atol=packed["step"])
    constant = packed16(np.full((2, 2), 7.0))
    assert (constant["low"], set(b64decode(constant["data"]))) == (7.0, {0})


# ---- the command


def test_the_command_writes_one_page_that_needs_nothing_else(run_cli: RunCli, bigfish: Path) -> None:
    ran = run_cli("watch", str(bigfish), "--gif", "--seed", "2")
    page = bigfish / "watch-test-s2.html"
    assert (ran.code, ran.err) == (0, "")
    assert str(page) in ran.out
    source = page.read_text()
    assert re.findall(r"(?:src|href)=[\"'](?!#)[^\"']*", source) == []
    assert set(re.findall(r"https?://[^\"' ]+", source)) == {"http://www.w3.org/2000/svg"}
    watched = play(RunFolder.open(bigfish), "test", seed=2)
    film = Image.open(page.with_suffix(".gif"))
    assert film.n_frames <= len(watched)  # Pillow joins frames that are alike
    assert film.size == (250, 250)
    again = run_cli("watch", str(bigfish), "--seed", "2", "--out", "again.html")
    assert again.code == 0
    assert Path("again.html").read_text() == source


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--contexts", "tset"], "'tset' is no set of contexts"),
        (["--lane", "8"], "--lane must be one of this run's training lanes, 0 to 7"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--out", "page.pdf"], "--out names an HTML page"),
        (["--out", "/proc/page.html"], "Cannot write /proc/page.html"),
    ],
)
def test_wrong_words_are_one_sentence(
    run_cli: RunCli, bigfish: Path, words: list[str], sentence: str, tmp_path: Path
) -> None:
    ran = run_cli("watch", str(bigfish), *words)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_watched_is_one_sentence(
    run_cli: RunCli, bigfish: Path, cartpole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is no run folder" in run_cli("watch", "nowhere").err
    assert "shows numbers, not pictures" in run_cli("watch", str(cartpole), "--gif", "--out", "a.html").err
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "pip install 'ede[report]'" in run_cli("watch", str(bigfish), "--out", "a.html").err
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(EdeError, match=r"pip install 'ede\[report\]'"):
        render(RunFolder.open(bigfish), play(RunFolder.open(bigfish), "test", steps=2))


# ---- the page, driven by a browser


def shown(page: Page) -> dict[str, Any]:
    """What a person sees at the current step."""
    return page.evaluate(
        """() => ({
            where: byId("where").textContent, deed: byId("deed").textContent, sofar: byId("sofar").textContent,
            taken: document.querySelector(".action.taken .name").textContent,
            marks: ["taken", "greedy", "explorer"].map(mark => [...document.querySelectorAll(".marks ." + mark)]
                .findIndex(slot => slot.style.visibility === "visible")),
            epistemic: [...document.querySelectorAll(".action .epistemic i")].map(bar => parseFloat(bar.style.width)),
            aleatoric: [...document.querySelectorAll(".action .aleatoric i")].map(bar => parseFloat(bar.style.width)),
            curves: [...document.querySelectorAll("polyline.mean")].map(curve => curve.getAttribute("points")),
            canvas: document.querySelector("canvas")?.toDataURL(),
            cursor: document.querySelector(".strip path.now").getAttribute("d"),
        })"""
    )


def pixels(url: str) -> np.ndarray[Any, Any]:
    return np.array(Image.open(io.BytesIO(b64decode(url.partition(",")[2]))).convert("RGB"))


def assert_shows(page: Page, watched: Watched, t: int) -> None:
    seen, names = shown(page), watched.spec.action_names
    assert seen["where"] == f"step {t + 1} of {len(watched)}"
    assert float(seen["sofar"].replace("−", "-")) == pytest.approx(
        float(watched.reward_T[: t + 1].sum()), abs=1e-3
    )
    assert seen["marks"] == [watched.taken_T[t], watched.greedy_T[t], watched.explorer_T[t]]
    assert seen["taken"] == names[watched.taken_T[t]]
    assert names[watched.taken_T[t]] in seen["deed"]
    for kind, sigma_TA in (("epistemic", watched.epistemic_TA), ("aleatoric", watched.aleatoric_TA)):
        np.testing.assert_allclose(seen[kind], 100 * sigma_TA[t] / sigma_TA.max(), rtol=1e-3)
    np.testing.assert_array_equal(pixels(seen["canvas"]), as_pictures(watched.obs)[t])
    assert seen["cursor"].startswith(f"M{t + 0.5} ")


@pytest.mark.browser
def test_slider_keys_timeline_and_play_move_through_the_episode(bigfish: Path, tmp_path: Path) -> None:
    folder = RunFolder.open(bigfish)
    watched = next(
        found for seed in range(20) if 12 <= len(found := play(folder, "train", seed, explore=True)) <= 60
    )
    file = tmp_path / "page.html"
    file.write_text(render(folder, watched))
    last = len(watched) - 1
    with opened(file, width=1280) as (page, complaints):
        page.wait_for_function(  # the sprite is decoded aside
            "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 10, 10).data.some(byte => byte > 0)"
        )
        assert_shows(page, watched, 0)
        before = shown(page)
        page.locator("#slider").fill("7")
        assert_shows(page, watched, 7)
        assert shown(page)["curves"] != before["curves"]
        for key, place in (
            ("ArrowRight", 8),
            ("ArrowLeft", 7),
            ("Home", 0),
            ("Shift+ArrowRight", 10),
            ("End", last),
        ):
            page.keyboard.press(key)
            assert_shows(page, watched, place)
        for index in range(5):
            chart = page.locator(".strip svg").nth(index)
            box = chart.bounding_box()
            assert box is not None
            chart.click(position={"x": box["width"] * (index + 2.5) / len(watched), "y": box["height"] / 2})
            assert_shows(page, watched, index + 2)
        page.locator("#speed").select_option("30")
        page.keyboard.press("Home")
        page.locator("#play").click()
        assert page.locator("#play").inner_text() == "Pause"
        page.wait_for_function(f"byId('where').textContent === 'step {last + 1} of {last + 1}'")
        page.wait_for_function("byId('play').textContent === 'Play'")
        assert_shows(page, watched, last)
        fixed = shown(page)["curves"]
        page.locator("#zoom").check()
        assert shown(page)["curves"] != fixed
        assert complaints == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 900, 390])
def test_the_page_fits_any_window_and_shows_numbers_where_there_are_no_pictures(
    cartpole: Path, tmp_path: Path, width: int
) -> None:
    folder = RunFolder.open(cartpole)
    watched = play(folder, "test")
    file = tmp_path / "page.html"
    file.write_text(render(folder, watched))
    with opened(file, width=width) as (page, complaints):
        page.keyboard.press("End")
        told = page.locator(".component > span:last-child").all_inner_texts()
        read = [float(text.replace("−", "-")) for text in told]
        np.testing.assert_allclose(read, watched.obs[-1], atol=6e-3)
        assert "nothing can disagree" in page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert complaints == []


def test_text_in_the_page_cannot_end_its_script(bigfish: Path) -> None:
    from dataclasses import replace

    folder = RunFolder.open(bigfish)
    watched = play(folder, "test", steps=2)
    hostile = ("</script><script>alert(1)</script>", "a", "b", "c", "d")
    source = render(folder, replace(watched, spec=replace(watched.spec, action_names=hostile)))
    assert source.count("</script>") == 2
    (data,) = re.findall(r'<script type="application/json" id="episode">(.*?)</script>', source)
    assert tuple(json.loads(data)["names"]) == hostile
