"""The paper's two tables of hyperparameters, line by line beside the presets."""

from __future__ import annotations

from functools import partial

from ede.methods import METHODS
from ede.paper.item import Item, Request
from ede.paper.published import read_data
from ede.paper.show import PUBLISHED, Cell, say, table, write_csv
from ede.parts import Prioritized
from ede.presets import Preset, find_preset

EXAMPLES = {"procgen": ("procgen/bigfish", "ede"), "crafter": ("crafter", "ede_thompson")}
"""Table → a task of it and the method that the table is about."""


def ours(preset: Preset, method: str, setting: str) -> str:
    """The value here: of a setting, or of the method's row where the table speaks of a part."""
    if setting == "dueling":
        return "yes" if METHODS[method].dueling else "no"
    if setting == "prioritised":
        return "yes" if isinstance(METHODS[method].replay, Prioritized) else "no"
    value = str(getattr(preset.settings, setting))
    if setting == "world_options":  # Procgen's: easy unless they say otherwise
        return "hard" if "mode=hard" in value else "easy"
    return value


def same(printed: str, here: str) -> bool:
    try:
        return float(printed) == float(here)
    except ValueError:
        return printed == here


def draw(name: str, request: Request) -> None:
    """Each printed line, the setting that it is here, and its value in both presets."""
    task, method = EXAMPLES[name]
    paper, laptop = find_preset("paper", task), find_preset("laptop", task)
    rows: list[list[Cell]] = []
    other = []
    for line in read_data("hyperparameters_published.csv"):
        if line["table"] != name:
            continue
        setting = line["setting"]
        here = ours(paper, method, setting)
        if not same(line["value"], here):
            other.append(f"{line['name']}, {setting}={here} ({paper.sources[setting]})")
        rows.append([line["name"], line["printed"], setting, here, ours(laptop, method, setting)])
    columns = ["name", PUBLISHED, "setting", "preset paper", "preset laptop"]
    table(f"Hyperparameters of {method} on {name}, the table and the presets here", columns, rows, "left")
    write_csv(request.out / "hyperparameters.csv", columns, rows)
    say("Steps and periods here are environment steps over all lanes (the paper's workers).")
    say(
        "Verdict: the paper preset has every printed value"
        + (f", but for one that it reads otherwise: {'; '.join(other)}." if other else ".")
    )
    say(
        f"What the table leaves open: `ede describe {method} --task {task}` gives every number with its source."
    )
    if request.runs:
        say("This item is about settings alone; the given runs are not used.")
    if request.preset == "paper":
        say("Nothing here needs training.")


ITEMS = tuple(
    Item(
        f"{name}-hyperparameters",
        f"The printed table of hyperparameters for {where}, beside ours.",
        partial(draw, name),
    )
    for name, where in (("procgen", "Procgen"), ("crafter", "Crafter"))
)
