"""``ede envs``: every world is listed with what it can do, and mistakes are told."""

from __future__ import annotations

import json

import pytest

from conftest import RunCli
from ede.envs import FAMILIES, make_env
from ede.errors import EdeError


@pytest.mark.slow
def test_the_list_names_every_world_and_its_abilities(run_cli: RunCli) -> None:
    ran = run_cli("envs")
    assert ran.code == 0
    for family in FAMILIES.values():
        assert family.prefix in ran.out
    row = next(line for line in ran.out.splitlines() if "procgen-mirror" in line)
    assert [cell.strip() for cell in row.split("│")][-4:-1] == ["yes", "yes", "no"]


def test_one_task_shows_its_spec_options_and_actions(run_cli: RunCli) -> None:
    ran = run_cli("envs", "bigfish-simple")
    assert ran.code == 0
    for word in ("10×10×3 uint8", "starts='bay'", "3 left"):
        assert word in ran.out


@pytest.mark.slow
def test_a_game_shows_its_own_modes_and_a_family_its_names(run_cli: RunCli) -> None:
    assert "Modes of leaper: easy, hard, extreme, exploration." in run_cli("envs", "procgen/leaper").out
    assert "Names: bigfish, bossfight" in run_cli("envs", "procgen").out


def test_json_holds_the_spec_of_the_lanes(run_cli: RunCli) -> None:
    (world,) = json.loads(run_cli("envs", "gym/CartPole-v1", "--json").out)
    assert world["world"] == "gym"
    assert world["options"] == {"asynchronous": False, "observation": None}
    spec = make_env("gym/CartPole-v1").spec
    assert world["played"][0]["spec"] == json.loads(json.dumps(vars(spec)))


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("nowhere", "lists the worlds"),
        ("procgen/chess", "no Procgen game 'chess'"),
        ("gym/Pendulum-v1", "only discrete"),
        ("bigfish-simple/hard", "takes no name"),
    ],
)
def test_a_task_that_cannot_be_made_is_told_in_a_sentence(run_cli: RunCli, task: str, sentence: str) -> None:
    ran = run_cli("envs", task)
    assert ran.code == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err


def test_a_world_whose_package_is_missing_is_no_success(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise EdeError("Crafter needs a package that is missing: pip install 'ede[crafter]'")

    monkeypatch.setattr("ede.envs.crafter.make", missing)
    ran = run_cli("envs", "crafter")
    assert (ran.code, ran.out) == (2, "")
    assert "pip install 'ede[crafter]'" in ran.err
