"""What a sweep is: blocks of cells, from a TOML file or a name. A cell is one run: task × method × settings × seed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from ede.errors import EdeError
from ede.presets import read_setting

Value = int | float | str | bool

MACHINE_SETTINGS = frozenset({"threads", "device", "precision", "cuda_graphs"})
"""Settings that may differ between the machines that carry on a sweep."""


def typed(settings: Mapping[str, Any]) -> dict[str, Value]:
    """Values of a table in the types of their settings: ``phi = 10`` is 10.0."""
    return {name: read_setting(name, str(value)) for name, value in settings.items()}


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    task: str
    method: str
    seed: int
    preset: str = "laptop"
    settings: Mapping[str, Value] = field(default_factory=dict)
    """Everything that differs from the preset."""
    varied: tuple[str, ...] = ()
    """The settings that tell this cell from its neighbours: they are in its name."""

    @property
    def name(self) -> str:
        """The run folder's name."""
        varied = [f"{name}={written(self.settings[name])}" for name in self.varied]
        return "-".join([self.task, self.method, self.preset, *varied, f"s{self.seed}"]).replace("/", "-")

    def words(self, folder: Path, machine: Mapping[str, Value]) -> list[str]:
        """The words after ``ede`` that train it; ``machine`` gives settings that the cell leaves open."""
        return [
            *train_words(
                self.task, self.method, self.preset, self.seed, {**machine, **self.settings}
            ),
            "--out",
            str(folder),
        ]  # fmt: skip


def train_words(task: str, method: str, preset: str, seed: int, settings: Mapping[str, Value]) -> list[str]:
    """``train TASK --method … --set …``."""
    changed = [f"--set={name}={written(value)}" for name, value in settings.items()]
    return ["train", task, "--method", method, "--preset", preset, "--seed", str(seed), *changed]


def written(value: Value) -> str:
    """A value as ``--set`` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Block:
    """Every combination of tasks, methods, the grid's values and seeds."""

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    preset: str = "laptop"
    settings: Mapping[str, Value] = field(default_factory=dict)
    """The same in every cell."""
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Setting → the values it takes."""

    def cells(self) -> Iterator[Cell]:
        """Seed by seed, so that a sweep that is cut short has seen every kind of cell."""
        settings = typed(self.settings)
        for seed, task, method, values in product(
            self.seeds, self.tasks, self.methods, product(*self.grid.values())
        ):
            varied = typed(dict(zip(self.grid, values, strict=True)))
            yield Cell(task, method, seed, self.preset, {**settings, **varied}, tuple(varied))


@dataclass(frozen=True)
class Sweep:
    name: str
    sentence: str
    blocks: tuple[Block, ...]

    def changed(
        self,
        tasks: tuple[str, ...] = (),
        seeds: int | None = None,
        preset: str | None = None,
        settings: Mapping[str, Value] | None = None,
        methods: tuple[str, ...] = (),
    ) -> Sweep:
        """The sweep with other tasks, methods, number of seeds, preset, or with these settings in every cell."""
        settings = settings or {}
        for name in settings:
            if any(name in block.grid for block in self.blocks):
                raise EdeError(f"The sweep {self.name} varies {name}; leave it out of --set.")
        if seeds is not None and seeds < 1:
            raise EdeError(f"--seeds must be at least 1; got {seeds}.")
        blocks = tuple(
            replace(
                block,
                tasks=tasks or block.tasks,
                methods=methods or block.methods,
                seeds=tuple(range(seeds)) if seeds else block.seeds,
                preset=preset or block.preset,
                settings={**block.settings, **settings},
            )
            for block in self.blocks
        )
        return replace(self, blocks=blocks)

    def cells(self) -> tuple[Cell, ...]:
        """All cells, each under a name of its own, checked before anything runs."""
        if not all(block.tasks and block.methods and block.seeds for block in self.blocks):
            raise EdeError(f"The sweep {self.name} needs tasks, methods and seeds; name tasks with --tasks.")
        found: dict[str, Cell] = {}
        # Seed by seed over all blocks; sorting keeps the order of the blocks within a seed.
        for cell in sorted((cell for block in self.blocks for cell in block.cells()), key=lambda c: c.seed):
            if cell.name in found and found[cell.name] != cell:
                raise EdeError(
                    f"Two cells of {self.name} would be called {cell.name}: put what tells them apart into a [grid]."
                )
            found[cell.name] = cell
        check(found.values())
        return tuple(found.values())


def check(cells: Iterable[Cell]) -> None:
    """Refuse unknown methods, presets and settings that nothing reads."""
    from ede.methods import find_method, refuse_unread
    from ede.presets import find_preset

    for method, preset, task, items in {
        (cell.method, cell.preset, cell.task, tuple(cell.settings.items())) for cell in cells
    }:
        changed: dict[str, Any] = dict(items)
        row = find_method(method)
        refuse_unread(row, changed)
        row.built(replace(find_preset(preset, task).settings, **changed))


def find(name: str) -> Sweep:
    """A named sweep, or one that a TOML file describes."""
    from ede.sweep.named import SWEEPS

    if name in SWEEPS:
        return SWEEPS[name]
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise EdeError(f"There is no sweep '{name}'; `ede sweep --list` shows them, or name a TOML file.")
    try:
        return read_table(path.stem, tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise EdeError(f"Cannot read {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EdeError(f"{path} is not TOML: {error}.") from None


_KEYS = {"tasks", "methods", "seeds", "preset", "settings", "grid", "steps"}


def read_table(name: str, table: Mapping[str, Any]) -> Sweep:
    """A sweep from a table: each ``[[block]]`` inherits what the top says and changes some of it."""
    top = {key: value for key, value in table.items() if key not in ("sentence", "block")}
    blocks = table.get("block", [{}])
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise EdeError(f"{name}: blocks are written [[block]], with two brackets.")
    return Sweep(
        name,
        str(table.get("sentence", "")),
        tuple(_read_block(name, top, block) for block in blocks),
    )


def _read_block(name: str, top: Mapping[str, Any], own: Mapping[str, Any]) -> Block:
    for key in {**top, **own}:
        if key not in _KEYS:
            raise EdeError(f"{name}: '{key}' is unknown; a sweep has {', '.join(sorted(_KEYS))}.")
    for key, table in (("settings", top), ("settings", own), ("grid", top), ("grid", own)):
        if not isinstance(table.get(key, {}), Mapping):
            raise EdeError(f"{name}: {key} is a table of settings: {key} = {{ phi = … }}.")
    block = {**top, **own}
    settings = {**top.get("settings", {}), **own.get("settings", {})}
    if "steps" in block:
        settings["steps"] = block["steps"]
    grid = block.get("grid", {})
    if not all(isinstance(values, list) and values for values in grid.values()):
        raise EdeError(f"{name}: a [grid] gives each setting a list of at least one value.")
    return Block(
        tasks=_words(name, "tasks", block.get("tasks", [])),
        methods=_words(name, "methods", block.get("methods", ["ede"])),
        seeds=_seeds(name, block.get("seeds", 1)),
        preset=str(block.get("preset", "laptop")),
        settings=settings,
        grid={key: tuple(values) for key, values in grid.items()},
    )


def _seeds(name: str, value: Any) -> tuple[int, ...]:
    seeds = tuple(range(value)) if type(value) is int else tuple(value) if isinstance(value, list) else ()
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise EdeError(f"{name}: seeds are how many, from 1, or a list of whole numbers from 0.")
    return seeds


def _words(name: str, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise EdeError(f"{name}: {key} is a list of words.")
    return tuple(value)
