"""``ede envs``: the worlds, what each can do on each backend, and one task in full.

Abilities are read from a lane that is really made here, so the list cannot promise what a backend does not do.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ede.cli import parse
from ede.errors import EdeError

if TYPE_CHECKING:
    from ede.envs import Family, WorldSpec

EXAMPLES = {"procgen": "procgen/bigfish", "gym": "gym/CartPole-v1"}
"""The task by which a family with names is shown."""
COMMON = ("name", "lanes", "contexts", "seed")
"""What every world takes."""


@dataclass(frozen=True)
class Envs:
    """List the worlds and what each can do, or show one task: observations, actions, options, backends."""

    task: Annotated[str | None, tyro.conf.Positional] = None
    """A task such as procgen/bigfish, or a family such as procgen; without it, all worlds."""
    json: bool = False
    """Print the same as JSON."""


@dataclass(frozen=True)
class Played:
    """A task on one backend."""

    task: str
    spec: WorldSpec | None
    """None where it cannot be made here."""
    problem: str = ""


@dataclass(frozen=True)
class Option:
    name: str
    default: Any


def main(arguments: list[str]) -> int:
    settings = parse(Envs, "envs", arguments)
    from ede.envs import FAMILIES

    prefix = (settings.task or "").partition("/")[0]
    if settings.task is None:
        shown = list(FAMILIES.values())
    elif prefix in FAMILIES:
        shown = [FAMILIES[prefix]]
    else:
        raise EdeError(f"There is no task '{settings.task}'; `ede envs` lists the worlds.")
    is_task = settings.task is not None and (settings.task != prefix or not shown[0].has_names)
    task = settings.task if is_task else None
    worlds = [(family, list(_played(family, task))) for family in shown]
    if task is not None and not any(played.spec for played in worlds[0][1]):
        raise EdeError(worlds[0][1][0].problem)
    if settings.json:
        print(json.dumps([_as_data(family, played) for family, played in worlds], indent=2))
        return 0
    _print_abilities(worlds)
    if settings.task is not None:
        _print_details(*worlds[0], settings.task.partition("/")[2])
    return 0


def _played(family: Family, task: str | None) -> Iterator[Played]:
    """The task, or the family's example, on each backend that the family has."""
    from ede.envs import make_env

    task = task or EXAMPLES.get(family.prefix, family.prefix)
    backends = getattr(import_module(family.module), "BACKENDS", None)
    for options in [{"backend": name} for name in backends] if backends else [{}]:
        try:
            with make_env(task, **options) as lanes:
                yield Played(task, lanes.spec)
        except EdeError as error:
            yield Played(task, None, str(error))


def _options(module: ModuleType) -> Iterator[Option]:
    """What ``make`` takes beyond the common; a catch-all named ``looks`` stands for the module's ``Looks``."""
    for parameter in inspect.signature(module.make).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            more = getattr(module, parameter.name.capitalize(), None)
            if is_dataclass(more):
                yield from (Option(field.name, field.default) for field in fields(more))
        elif parameter.name not in COMMON:
            yield Option(parameter.name, parameter.default)


def _as_data(family: Family, played: list[Played]) -> dict[str, Any]:
    options = {option.name: option.default for option in _options(import_module(family.module))}
    return {
        "world": family.prefix,
        "sentence": family.sentence,
        "options": options,
        "played": [asdict(each) for each in played],
    }


def _print_abilities(worlds: list[tuple[Family, list[Played]]]) -> None:
    from ede.paper.show import say, table

    columns = ("task", "backend", "observation", "actions", "limit", "restore", "choose", "last frame")
    rows = []
    for family, played in worlds:
        for each in played:
            spec = each.spec
            if spec is None:
                continue
            name = (
                each.task
                if len(worlds) == 1
                else f"{family.prefix}/<name>" * family.has_names or family.prefix
            )
            able = [_yes(ability) for ability in (spec.can_save, spec.can_choose, spec.shows_last_frame)]
            shape = "×".join(map(str, spec.obs_shape))
            limit = str(spec.time_limit or "none")
            rows.append(
                (name, spec.backend, f"{shape} {spec.obs_dtype}", str(spec.num_actions), limit, *able)
            )
    table("Worlds", columns, rows, justify="left")
    if len(worlds) > 1:
        say("Where a world has names, the row is of " + " and ".join(EXAMPLES.values()) + ".")
        say("restore: save and restore continue to the bit. choose: the caller chooses each lane's context.")
        say("last frame: final_obs is the true last observation. `ede envs TASK` shows a task's options.")
    for _, played in worlds:
        for each in played:
            if each.problem:
                say(each.problem)


def _print_details(family: Family, played: list[Played], task: str) -> None:
    """``task`` is the name after the slash, or empty for the whole family."""
    from ede.paper.show import say

    module = import_module(family.module)
    say(f"\n{family.prefix}: {family.sentence}.")
    options = [f"{option.name}={option.default!r}" for option in _options(module)]
    if options:
        say(f"\nOptions: {', '.join(options)}.")
    say(" ".join((inspect.getdoc(module.make) or "").replace("``", "`").split()))
    games = getattr(module, "GAMES", {})
    if task in games:
        say(f"\nModes of {task}: {', '.join(games[task].modes)}.")
    elif games:
        say(f"\nNames: {', '.join(games)}.")
    actions = next((each.spec.action_names for each in played if each.spec), ())
    if actions:
        say(f"\nActions: {', '.join(f'{number} {name}' for number, name in enumerate(actions))}.")


def _yes(ability: bool) -> str:
    return "yes" if ability else "no"
