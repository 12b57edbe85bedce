"""The table of methods as the test matrix: every row, on an image world and on a vector world."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

import ede
from conftest import RunCli
from ede.errors import EdeError
from ede.learner import Learner, build_network
from ede.methods import METHODS, Method, find_method
from ede.parts import Ensemble, Masked, Prioritized, Single
from ede.presets import PRESETS, Settings, find_preset
from ede.replay import Batch

SOURCE = Path(ede.__file__).parent
ACTIONS, CONTEXTS, SIZE = 4, 5, 16
WORLDS = {"image": (6, 6, 3), "vector": (4,)}
SMALL = Settings(
    hidden=8, members=3, quantiles=6, atoms=7, batch_size=SIZE, learning_rate=1e-2, target_period=64
)
ROWS = pytest.mark.parametrize("name", METHODS)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_batch(method: Method, shape: tuple[int, ...], seed: int) -> Batch:
    generator, axes = seeded(seed), (method.ensemble.members, SIZE)

    def observations() -> Tensor:
        if len(shape) == 3:
            return torch.randint(256, (*axes, *shape), generator=generator, dtype=torch.uint8)
        return torch.randn((*axes, *shape), generator=generator)

    return Batch(
        obs_MB=observations(),
        action_MB=torch.randint(ACTIONS, axes, generator=generator),
        reward_MB=torch.randn(axes, generator=generator),
        discount_MB=0.97 * (torch.rand(axes, generator=generator) > 0.2),
        next_obs_MB=observations(),
        context_MB=torch.randint(CONTEXTS - 1, axes, generator=generator),
        weight_MB=torch.ones(axes),
        row_MB=torch.arange(axes[0] * axes[1]).view(axes),
    )


def make_learner(method: Method, settings: Settings, shape: tuple[int, ...]) -> Learner:
    network = build_network(method, settings, shape, ACTIONS, CONTEXTS, seeded(1))
    return Learner(method, settings, network, seeded(2))


# ---- the rows ------------------------------------------------------------------------------------------------------


@ROWS
def test_a_row_round_trips_through_json(name: str) -> None:
    for row in (METHODS[name], METHODS[name].built(SMALL)):
        assert Method.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_every_row_differs_from_every_other_in_what_it_is_made_of() -> None:
    def nameless(row: Method) -> Method:
        return replace(row, name="", sentence="")

    for preset in (None, find_preset("paper", "procgen/bigfish")):
        rows = [row.built(preset.settings) if preset else row for row in METHODS.values()]
        for one, other in combinations(rows, 2):
            assert nameless(one) != nameless(other), (one.name, other.name)


@ROWS
def test_a_row_says_in_one_sentence_what_it_is(name: str) -> None:
    row = METHODS[name]
    assert row.name == name
    assert row.sentence.endswith(".")
    assert row.sentence.count(". ") == 0


def test_the_rows_of_the_paper_are_there() -> None:
    wanted = (
        "dqn c51 rainbow qrdqn bootstrapped_dqn dqn_ucb dqn_ucb_tee qrdqn_tee qrdqn_ucb ede ede_thompson ede_total "
        "ede_aleatoric ede_shared_gradient ede_mean_target ez_greedy noisy_net ua_dqn dqn_task_id"
    )
    assert " ".join(METHODS) == wanted


@ROWS
def test_building_fills_every_number_from_the_settings(name: str) -> None:
    built = METHODS[name].built(SMALL)
    for part in built.parts().values():
        for field, setting in getattr(part, "reads", {}).items():
            assert getattr(part, field) == getattr(SMALL, setting)


# ---- two real updates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
@ROWS
def test_two_updates_move_exactly_what_they_should(name: str, world: str) -> None:
    method = METHODS[name].built(SMALL)
    learner = make_learner(method, SMALL, WORLDS[world])
    before = {key: tensor.clone() for key, tensor in learner.state().items()}
    for seed in range(2):
        report = learner.update(random_batch(method, WORLDS[world], seed))
        assert report.loss.isfinite()
        assert report.grad_norm > 0
        assert report.priority_MB.shape == (method.ensemble.members, SIZE)
        assert (report.priority_MB >= 0).all()
    after = learner.state()
    for key, tensor in after.items():
        if key.startswith("network.heads."):
            for member in range(method.ensemble.members):
                assert not torch.equal(tensor[member], before[key][member]), (key, member)
        elif key.startswith("network."):
            assert not torch.equal(tensor, before[key]), key
        elif key.startswith(("target.", "anchor.")):
            assert torch.equal(tensor, before[key]), key

    names = {key.partition(".")[2] for key in after if key.startswith("network.")}
    assert {"sigma" in name for name in names} == ({True, False} if method.noisy else {False})
    assert any("task_embedding" in name for name in names) == method.task_id
    assert any("heads.value" in name for name in names) == method.dueling
    assert any(key.startswith("anchor.") for key in after) == (method.anchor is not None)
    if method.task_id:
        table, old = after["network.task_embedding.weight"], before["network.task_embedding.weight"]
        assert torch.equal(table[CONTEXTS - 1], old[CONTEXTS - 1]), "a context never played is never trained"
        assert (table[: CONTEXTS - 1] != old[: CONTEXTS - 1]).any(1).all()


@pytest.mark.parametrize("world", WORLDS)
@ROWS
def test_a_method_acts_in_every_lane(name: str, world: str) -> None:
    """The explorer under the coefficient of the row, on the network of the row, and then an end of an episode."""
    method, lanes, generator = METHODS[name].built(SMALL), 5, seeded()
    learner = make_learner(method, SMALL, WORLDS[world])
    obs = random_batch(method, WORLDS[world], 0).obs_MB[0, :lanes]
    noise = learner.network.heads.draw_noise(generator) if method.explorer.noisy else None
    with torch.no_grad():
        values = learner.read(learner.network(obs, torch.arange(lanes), noise))
    members = method.ensemble.members
    state = method.explorer.begin(lanes, members, generator)
    for step in range(3):
        coefficient_K = method.coefficient.of_lanes(lanes, step)
        action_K, state = method.explorer.act(values, coefficient_K, state, generator)
        assert action_K.shape == (lanes,)
        assert ((action_K >= 0) & (action_K < ACTIONS)).all()
        state = method.explorer.end(torch.arange(lanes) == step, members, state, generator)


@ROWS
def test_a_paper_sized_network_has_the_papers_heads(name: str) -> None:
    settings = replace(find_preset("paper", "procgen/bigfish").settings, members=2)
    method = METHODS[name].built(settings)
    network = build_network(method, settings, (64, 64, 3), 15, 200, seeded())
    assert network.heads.hidden.weight.shape[1:] == (2048 + 64 * method.task_id, 512)
    assert network.heads.advantage.weight.shape[1:] == (512, 15 * method.head.outputs)


# ---- impossible combinations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "settings", "words"),
    [
        (
            METHODS["ede"],
            {"members": 1},
            "Ucb explores by the disagreement of an ensemble: ede needs members of at",
        ),
        (METHODS["ua_dqn"], {"members": 1}, "Thompson explores by the disagreement"),
        (METHODS["bootstrapped_dqn"], {"members": 1}, "HeadPerEpisode explores by the disagreement"),
        (replace(METHODS["ede"], ensemble=Single()), {}, "ede needs members of at least 2, got 1"),
        (replace(METHODS["c51"], ensemble=Ensemble()), {}, "a categorical head has no ensemble"),
        (replace(METHODS["noisy_net"], noisy=None), {}, "NoisyGreedy needs noisy layers"),
        (replace(METHODS["ede"], replay=Prioritized()), {}, "prioritised replay serves one member"),
        (replace(METHODS["dqn"], replay=Masked()), {}, "bootstrap masks need an ensemble"),
    ],
)
def test_impossible_combinations_are_refused_in_one_sentence(
    row: Method, settings: dict[str, int], words: str
) -> None:
    with pytest.raises(EdeError) as caught:
        row.built(replace(SMALL, **settings))  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_an_unknown_method_is_refused_with_a_suggestion() -> None:
    with pytest.raises(EdeError, match=r"There is no method 'qr_dqn'; did you mean 'qrdqn'\?"):
        find_method("qr_dqn")
    with pytest.raises(EdeError, match="`ede methods` lists them"):
        find_method("zzzzzz")


# ---- a method's name appears in the table and nowhere else -----------------------------------------------------------

NAMES_AS_DATA = ("methods.py", "commands/*.py", "paper/*.py", "sweep*.py", "sweep/*.py")
"""The table itself, default values of commands, and what names methods as data: tables of runs."""


def decides_by_name(tree: ast.AST) -> list[str]:
    """Expressions with a string equal to a method's name.

    ``ede`` is the package and the command too, so it counts only where a method is compared or looked up by it.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in METHODS and node.value != "ede":
            found.append(repr(node.value))
        elif isinstance(node, ast.Compare | ast.Subscript | ast.Match):
            code = ast.unparse(node)
            if re.search(r"method|name", code, re.IGNORECASE) and "'ede'" in code:
                found.append(code)
    return found


def test_no_code_outside_the_table_knows_a_methods_name() -> None:
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if not any(place.match(allowed) for allowed in NAMES_AS_DATA):
            found = decides_by_name(ast.parse(path.read_text(encoding="utf-8")))
            assert not found, f"{place} names {found}"


@pytest.mark.parametrize(
    "code",
    [
        "if method.name == 'ede': pass",
        "x = METHODS['ede']",
        "rates = {'qrdqn': 1}",
        "if name in ('dqn', other): pass",
        "match name:\n  case 'ede': pass",
        "use('rainbow')",
    ],
)
def test_the_search_finds_names(code: str) -> None:
    assert decides_by_name(ast.parse(code))


def test_the_search_lets_the_package_be() -> None:
    assert not decides_by_name(ast.parse("version('ede')\n'''A dqn in prose.'''"))


# ---- the commands --------------------------------------------------------------------------------------------------


def test_methods_lists_every_row(run_cli: RunCli) -> None:
    ran = run_cli("methods")
    assert ran.code == 0
    for row in METHODS.values():
        assert row.name in ran.out


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "ede",
            {
                "loss": "16",
                "target": "15",
                "explorer": "4",
                "coefficient": "5",
                "encoder gradient": "algorithm 3",
            },
        ),
        ("ede_thompson", {"explorer": "equation 3", "coefficient": "equations 3 and 4"}),
        ("dqn", {"loss": "appendix D", "coefficient": "appendix I", "target": "van Hasselt et al. 2016"}),
        ("rainbow", {"replay": "Schaul", "noisy": "Fortunato", "dueling": "Wang", "loss": "Bellemare"}),
        ("ua_dqn", {"anchor": "Clements", "target": "mean"}),
        ("dqn_task_id", {"task id": "appendix G"}),
    ],
)
def test_describe_names_the_equations(run_cli: RunCli, name: str, source: dict[str, str]) -> None:
    ran = run_cli("describe", name, "--json")
    assert ran.code == 0, ran.err
    parts = {row["role"]: row for row in json.loads(ran.out)["parts"]}
    for role, words in source.items():
        assert words in parts[role]["source"], role


@pytest.mark.parametrize(("preset", "task"), [(p, f) for p, families in PRESETS.items() for f in families])
@ROWS
def test_describe_explains_every_part_and_every_number(
    run_cli: RunCli, name: str, preset: str, task: str
) -> None:
    ran = run_cli("describe", name, "--preset", preset, "--task", task, "--json")
    assert ran.code == 0, ran.err
    described = json.loads(ran.out)
    assert all(row["what"].endswith(".") and row["source"] for row in described["parts"])
    settings = find_preset(preset, task).settings
    assert {row["name"]: row["value"] for row in described["settings"]} == {
        setting: getattr(settings, setting) for setting in METHODS[name].settings_read()
    }
    assert all(row["source"] and row["meaning"] for row in described["settings"])


def test_describe_prints_tables_for_people(run_cli: RunCli) -> None:
    ran = run_cli("describe", "ede")
    assert ran.code == 0
    for words in ("equation 16", "Equalized(phi=30.0, base=0.6, alpha=7.0)", "paper table", "authors' code"):
        assert words in ran.out


def test_describe_refuses_what_is_not_there(run_cli: RunCli) -> None:
    assert run_cli("describe", "eed").err.startswith("ede: There is no method 'eed'; did you mean 'ede'?")
    assert run_cli("describe", "ede", "--preset", "huge").code == 2
    assert run_cli("describe", "ede", "--task", "chess").code == 2
