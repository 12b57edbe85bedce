"""Settings: each is read, sourced and explained; what makes no sense is refused in one sentence."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import ede
from ede.commands.describe import meanings
from ede.errors import EdeError
from ede.methods import METHODS, refuse_unread
from ede.plan import resolve
from ede.presets import COMMON, PRESETS, Preset, Settings, find_preset, read_setting

SOURCE = Path(ede.__file__).parent
NAMES = {field.name for field in fields(Settings)}
ALL_PRESETS = [
    pytest.param(preset, id=f"{name}-{family}")
    for name, families in PRESETS.items()
    for family, preset in families.items()
]


# ---- read, sourced, explained --------------------------------------------------------------------------------------


def test_every_setting_is_read_by_a_method() -> None:
    assert frozenset().union(*(method.settings_read() for method in METHODS.values())) == NAMES


def settings_attributes(tree: ast.AST) -> set[str]:
    """Names read as ``settings.NAME`` or ``….settings.NAME``."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if name == "settings":
                found.add(node.attr)
    return found


def test_every_common_setting_is_read_by_code() -> None:
    """The others are filled into parts by ``reads``; those of no part must be used somewhere by name."""
    read = set()
    for path in SOURCE.rglob("*.py"):
        read |= settings_attributes(ast.parse(path.read_text(encoding="utf-8")))
    assert not COMMON - read, f"nobody reads {sorted(COMMON - read)}"


def test_a_part_reads_fields_it_has_from_settings_there_are() -> None:
    for method in METHODS.values():
        for part in method.parts().values():
            for field, setting in getattr(part, "reads", {}).items():
                assert hasattr(part, field), (part, field)
                assert setting in NAMES - COMMON, (part, setting)


@pytest.mark.parametrize("preset", ALL_PRESETS)
def test_every_number_of_a_preset_has_a_source(preset: Preset) -> None:
    assert set(preset.sources) == NAMES
    assert all(source.strip() for source in preset.sources.values())


def test_every_setting_is_explained_in_one_line() -> None:
    explained = meanings()
    assert set(explained) == NAMES
    assert all(text and "\n" not in text and text[0] != " " for text in explained.values())


@pytest.mark.parametrize("preset", ALL_PRESETS)
def test_every_preset_builds_every_method(preset: Preset) -> None:
    for method in METHODS.values():
        assert method.built(preset.settings).name == method.name


def test_the_papers_procgen_numbers() -> None:
    """The paper's table of hyperparameters for Procgen, row by row."""
    preset = find_preset("paper", "procgen/bigfish")
    printed = {
        "train_contexts": "0..199",
        "batch_size": 512,
        "lanes": 64,
        "replay_size": 1_000_000,
        "gamma": 0.99,
        "n_step": 3,
        "frame_stack": 1,
        "target_period": 32_000,
        "learning_starts": 2_000 * 64,
        "steps": 25_000_000,
        "steps_per_update": 64,
        "learning_rate": 2.5e-4,
        "adam_epsilon": 1.5e-4,
        "quantiles": 200,
        "members": 5,
        "kappa": 1.0,
        "clip_norm": 10.0,
        "phi": 30.0,
        "tee_lambda": 0.6,
        "tee_alpha": 7.0,
    }
    for name, value in printed.items():
        assert getattr(preset.settings, name) == value, name
        assert preset.sources[name].startswith("paper table"), name


def test_the_papers_crafter_numbers() -> None:
    preset = find_preset("paper", "crafter")
    printed = {
        "batch_size": 64,
        "lanes": 1,
        "replay_size": 1_000_000,
        "gamma": 0.99,
        "n_step": 3,
        "frame_stack": 4,
        "target_period": 8_000,
        "learning_starts": 20_000,
        "steps": 1_000_000,
        "steps_per_update": 4,
        "learning_rate": 6.25e-5,
        "adam_epsilon": 1.5e-4,
        "quantiles": 200,
        "members": 5,
        "kappa": 1.0,
        "clip_norm": 10.0,
        "phi": 0.5,
    }
    for name, value in printed.items():
        assert getattr(preset.settings, name) == value, name
        assert preset.sources[name].startswith("paper table"), name
    for name in ("tee_lambda", "tee_alpha", "epsilon_final", "epsilon_start", "epsilon_decay"):
        assert "for Procgen" in preset.sources[name], f"the paper has no {name} on Crafter"


# ---- refusals: one sentence each -----------------------------------------------------------------------------------


def refusal(call: object, *arguments: object) -> str:
    with pytest.raises(EdeError) as caught:
        call(*arguments)  # type: ignore[operator]
    sentence = str(caught.value)
    assert sentence.endswith(".") or sentence.endswith("?")
    assert "\n" not in sentence
    return sentence


def test_settings_are_read_in_the_type_of_their_field() -> None:
    assert read_setting("phi", "10") == 10.0
    assert isinstance(read_setting("phi", "10"), float)
    assert read_setting("steps", "2e5") == 200_000
    assert isinstance(read_setting("steps", "2e5"), int)
    assert read_setting("reward_scaling", "False") is False
    assert read_setting("train_contexts", "0..9") == "0..9"


def test_an_unknown_setting_is_refused_with_a_suggestion() -> None:
    assert "'lernning_rate'; did you mean 'learning_rate'?" in refusal(read_setting, "lernning_rate", "1")
    assert "`ede describe METHOD` lists them" in refusal(read_setting, "zzz", "1")


@pytest.mark.parametrize(
    ("name", "text"),
    [("steps", "many"), ("steps", "1.5"), ("steps", "inf"), ("reward_scaling", "maybe"), ("phi", "")],
)
def test_a_value_of_the_wrong_type_is_refused(name: str, text: str) -> None:
    assert f"'{text}' is no value for {name}" in refusal(read_setting, name, text)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lanes", 0, "lanes must be at least 1; got 0."),
        ("gamma", 1.5, "gamma must be between 0 and 1; got 1.5."),
        ("phi", float("nan"), "phi must be 0 or above; got nan."),
        ("learning_rate", 0.0, "learning_rate must be above 0; got 0.0."),
        ("epsilon_decay", 0, "epsilon_decay must be above 0; got 0."),
        ("v_min", 10.0, "v_min must be below v_max; got 10.0 and 10.0."),
        ("reward_clip", float("inf"), "reward_clip must be at most 1,000,000,000,000; got inf."),
        ("learning_rate", 1e13, "learning_rate must be at most 1,000,000,000,000; got 10000000000000.0."),
        ("tee_lambda", 1.1, "tee_lambda must be above 0 and at most 1; got 1.1."),
        ("mask_probability", 0.0, "mask_probability must be above 0 and at most 1; got 0.0."),
        ("ez_longest", 10**7, "ez_longest must be between 1 and 1,000,000; got 10000000."),
        ("threads", 10**5, "threads must be between 0 and 1024; got 100000."),
    ],
)
def test_an_impossible_number_is_refused(name: str, value: float, words: str) -> None:
    with pytest.raises(EdeError) as caught:
        replace(Settings(), **{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("lanes", 2.5, "int"), ("phi", "3", "float"), ("steps", None, "int"), ("reward_scaling", "no", "bool")],
)
def test_a_value_of_another_type_is_refused(name: str, value: object, kind: str) -> None:
    sentence = refusal(lambda: replace(Settings(), **{name: value}))  # type: ignore[arg-type]
    assert sentence == f"{value!r} is no value for {name}, which is of type {kind}."
    assert replace(Settings(), lanes=np.int64(4), phi=np.float32(2)).lanes == 4


def test_every_numeric_setting_has_limits() -> None:
    """An infinite number slips through nowhere."""
    for field in fields(Settings):
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            with pytest.raises(EdeError, match=field.name):
                replace(Settings(), **{field.name: float("inf")})  # type: ignore[arg-type]


def test_a_setting_the_method_never_reads_is_refused() -> None:
    sentence = refusal(refuse_unread, METHODS["dqn"], {"phi": 3.0, "gamma": 0.9, "members": 2})
    assert sentence == "dqn never reads members, phi; `ede describe dqn` lists what it reads."
    refuse_unread(METHODS["ede"], {"phi": 3.0, "gamma": 0.9, "members": 2})


def test_unknown_presets_and_tasks_are_refused() -> None:
    assert "choose paper, laptop, smoke" in refusal(find_preset, "huge", "crafter")
    assert "'paper' says nothing about 'bigfish-simple'; choose laptop, smoke" in refusal(
        find_preset, "paper", "bigfish-simple"
    )
    assert "choose a known task" in refusal(find_preset, "paper", "chess")


@pytest.mark.parametrize(
    ("changed", "threads"),
    [({}, 1), ({"threads": 3}, 3), ({"encoder": "impala", "precision": "fp32"}, 0)],
)
def test_a_small_network_takes_one_thread_unless_told(changed: dict[str, object], threads: int) -> None:
    settings = {**changed, "device": "cpu"}
    assert resolve("bigfish-simple", "dqn", "smoke", 0, settings)["settings"]["threads"] == threads
