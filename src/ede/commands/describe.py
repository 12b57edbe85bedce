"""``ede describe``: what a method is made of, where the paper says so, and every number it reads with its source."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ede.cli import parse

if TYPE_CHECKING:
    from ede.methods import Method


@dataclass(frozen=True)
class Describe:
    """Print a method's parts with the paper's equations, and every number it reads with its source."""

    method: Annotated[str, tyro.conf.Positional]
    """Which method (see `ede methods`)."""
    preset: str = "paper"
    """Whose numbers: paper, laptop or smoke."""
    task: str = "procgen/bigfish"
    """For which world: procgen/<game>, crafter, bigfish-simple or gym/<id>."""
    json: bool = False
    """Print the description as JSON."""


@dataclass(frozen=True)
class PartRow:
    """One part of a method."""

    role: str
    part: str
    """Its name and numbers."""
    what: str
    source: str
    """Equations of the EDE paper, or another paper."""


@dataclass(frozen=True)
class NumberRow:
    """One setting that the method reads."""

    name: str
    value: Any
    source: str
    meaning: str


def main(arguments: list[str]) -> int:
    given = parse(Describe, "describe", arguments)
    from ede.methods import find_method
    from ede.presets import find_preset

    preset = find_preset(given.preset, given.task)
    method = find_method(given.method).built(preset.settings)
    meaning = meanings()
    parts = list(part_rows(method))
    numbers = [
        NumberRow(name, getattr(preset.settings, name), preset.sources[name], meaning[name])
        for name in meaning
        if name in method.settings_read()
    ]
    if given.json:
        description = {
            "method": method.name,
            "sentence": method.sentence,
            "task": given.task,
            "preset": given.preset,
            "parts": [asdict(row) for row in parts],
            "settings": [asdict(row) for row in numbers],
        }
        print(json.dumps(description, indent=2, ensure_ascii=False))
        return 0
    from ede.paper.show import say, table

    say(f"{method.name}: {method.sentence}\n")
    table(
        "Parts; equations, algorithms and appendices are the EDE paper's",
        ("role", "part", "what it does", "written in"),
        [(row.role, row.part, row.what, row.source) for row in parts],
        justify="left",
    )
    table(
        f"Every number it reads on {given.task}, preset {given.preset}",
        ("setting", "value", "source", "meaning"),
        [(row.name, str(row.value), row.source, row.meaning) for row in numbers],
        justify="left",
    )
    return 0


def part_rows(method: Method) -> Iterator[PartRow]:
    """The parts in the order of the data: outputs, training, acting."""
    head = method.head
    yield PartRow("head", repr(head), _what(head), "section 2, appendix I")
    yield PartRow("loss", f"{type(head).__name__}.loss", head.loss_rule, head.equations)
    for role in ("ensemble", "target", "encoder_gradient", "replay", "explorer", "coefficient"):
        part = getattr(method, role)
        if role == "encoder_gradient" and method.ensemble.members == 1:  # every rule is the same for one head
            continue
        yield PartRow(role.replace("_", " "), repr(part), _what(part), part.equations)
    for role in ("noisy", "anchor"):
        if part := getattr(method, role):
            yield PartRow(role, repr(part), _what(part), part.equations)
    if method.dueling:
        yield PartRow("dueling", "–", "A value and advantages add up to the outputs.", "Wang et al. 2016")
    if method.task_id:
        yield PartRow(
            "task id",
            "–",
            "An embedding of the context joins the features.",
            "appendix G, partial observability",
        )


def _what(part: Any) -> str:
    """A part in one sentence: its own, where it depends on its fields, else its docstring's first line."""
    return str(getattr(part, "sentence", None) or (type(part).__doc__ or "").splitlines()[0])


def meanings() -> dict[str, str]:
    """Setting → the docstring under its field, in the order of the class."""
    from ede.presets import Settings

    (definition,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(definition, ast.ClassDef)
    found = {
        field.target.id: doc.value.value
        for field, doc in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }
    return {field.name: found[field.name] for field in fields(Settings)}
