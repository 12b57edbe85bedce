"""The table of methods as the test matrix: every row, on an image world and on a vector world."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch

import counting
import ede
from conftest import RunCli
from ede.contexts import Contexts
from ede.errors import EdeError
from ede.explore import EpsilonGreedy, Ucb
from ede.interaction import Actor, interact
from ede.learner import Learner, Report, build_network
from ede.methods import METHODS, Method, find_method
from ede.parts import Decay, Ensemble, Masked, Prioritized, Single
from ede.plan import replay_shape
from ede.policy import Policy
from ede.presets import PRESETS, Settings, find_preset
from ede.replay import Replay
from ede.seeds import numpy_generator, torch_generator

SOURCE = Path(ede.__file__).parent
WORLDS = {"image": True, "vector": False}
LANES, CONTEXTS, NEVER_PLAYED = 4, 5, 5
SMALL = Settings(
    lanes=LANES,
    hidden=8,
    members=3,
    quantiles=6,
    atoms=7,
    batch_size=16,
    replay_size=200,
    learning_starts=40,
    learning_rate=1e-2,
    epsilon_start=0,
    epsilon_decay=1,
)
ROWS = pytest.mark.parametrize("name", METHODS)


class Training:
    """A row in the counting environment: real lanes, replay, explorer and learner, without a run folder."""

    def __init__(self, name: str, world: str) -> None:
        self.method = method = METHODS[name].built(SMALL)
        self.lanes = counting.make(
            "direct", lanes=LANES, contexts=Contexts.range(0, CONTEXTS), image=WORLDS[world]
        )
        self.lanes.reset()
        spec = self.lanes.spec
        network = build_network(
            method, SMALL, spec.obs_shape, spec.num_actions, CONTEXTS + 1, torch_generator(0, "init")
        )
        self.learner = Learner(method, SMALL, network, torch_generator(0, "learn"))
        shape = replay_shape(SMALL, method, spec.obs_shape, spec.obs_dtype)
        self.replay = Replay(**shape, gamma=SMALL.gamma, bootstrap_on_timeout=True)
        self.generator = numpy_generator(0, "replay")
        self.actor = Actor(
            Policy(network, method, SMALL),
            method.explorer,
            method.coefficient,
            self.lanes,
            torch_generator(0, "explore"),
            random_steps=SMALL.learning_starts // LANES,
        )

    def updates(self, count: int) -> Iterator[Report]:
        """Act at random until learning starts, then act and learn in turn."""
        for moment in interact(self.lanes, self.actor):
            step = moment.step
            self.replay.add(
                moment.obs,
                moment.actions,
                step.reward,
                step.terminated,
                step.truncated,
                step.context,
                step.final_obs,
                self.generator,
            )
            if self.actor.vector_step <= self.actor.random_steps:
                continue
            assert moment.values is not None, "past the start of learning the network acts"
            batch = self.replay.sample(
                self.method.ensemble.members, SMALL.batch_size, self.generator, beta=SMALL.priority_beta
            )
            report = self.learner.update(batch)
            if isinstance(self.method.replay, Prioritized):
                self.replay.update_priorities(batch.row_MB, report.priority_MB)
            yield report
            if self.learner.updates == count:
                return


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
    assert set(wanted.split()) <= set(METHODS)


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
    training = Training(name, world)
    learner, method = training.learner, training.method
    before = learner.state()
    for report in training.updates(2):
        assert report.loss.isfinite()
        assert report.grad_norm > 0
        assert report.priority_MB.shape == (method.ensemble.members, SMALL.batch_size)
        assert (report.priority_MB >= 0).all()
    assert learner.updates == 2
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
        moved = (after["network.task_embedding.weight"] != before["network.task_embedding.weight"]).any(1)
        assert moved[:NEVER_PLAYED].any()
        assert not moved[NEVER_PLAYED]


@ROWS
def test_a_paper_sized_network_has_the_papers_heads(name: str) -> None:
    settings = replace(find_preset("paper", "procgen/bigfish").settings, members=2)
    method = METHODS[name].built(settings)
    network = build_network(method, settings, (64, 64, 3), 15, 200, torch_generator(0, "init"))
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
        (METHODS["ede_aleatoric"], {"quantiles": 1}, "by the spread of an action's quantiles"),
        (
            replace(METHODS["ede"], explorer=Ucb("epistemc")),
            {},
            "no uncertainty 'epistemc'; choose epistemic,",
        ),  # type: ignore[arg-type]
        (
            replace(METHODS["ede"], explorer=EpsilonGreedy()),
            {},
            "EpsilonGreedy takes a probability, and Equalized is a multiple of the uncertainty",
        ),
        (
            replace(METHODS["noisy_net"], coefficient=Decay()),
            {},
            "NoisyGreedy takes no coefficient, and Decay is a probability",
        ),
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


@pytest.mark.parametrize("part", [Ucb, 30, "ucb"])
def test_what_is_no_part_is_refused(part: object) -> None:
    with pytest.raises(EdeError, match=r"ede: explorer must be a part, such as Ucb\(\) is; got"):
        replace(METHODS["ede"], explorer=part)  # type: ignore[arg-type]


def test_an_unknown_method_is_refused_with_a_suggestion() -> None:
    with pytest.raises(EdeError, match=r"There is no method 'qr_dqn'; did you mean 'qrdqn'\?"):
        find_method("qr_dqn")
    with pytest.raises(EdeError, match="`ede methods` lists them"):
        find_method("zzzzzz")
    with pytest.raises(EdeError, match=r"A method is given by its name, .* got a Method"):
        find_method(METHODS["ede"])  # type: ignore[arg-type]


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


EVERY_PRESET = [(preset, task) for preset, families in PRESETS.items() for task in families]


@pytest.mark.parametrize(
    ("name", "preset", "task"),
    [(name, "paper", "procgen/bigfish") for name in METHODS] + [("ede", *preset) for preset in EVERY_PRESET],
)
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
