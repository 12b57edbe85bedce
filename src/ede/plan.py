"""What a run is going to be: every word resolved and checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch

from ede import precision
from ede.contexts import Contexts
from ede.envs import make_env
from ede.errors import EdeError
from ede.interaction import stacked_shape
from ede.learner import build_network
from ede.memory import available_on, told_where_memory_ends
from ede.methods import Method, find_method, refuse_unread
from ede.mirrors import check_mirrors
from ede.networks import Mlp, Network, Small
from ede.parts import Masked, Prioritized
from ede.presets import Settings, find_preset, read_setting
from ede.replay import Priority, replay_bytes
from ede.runs import provenance
from ede.seeds import child_seed, torch_generator

MOST_TASK_IDS = 100_000
"""Contexts that a task-id embedding may hold."""


def resolve(
    task: str, method: str, preset: str, seed: int, changed: Mapping[str, Any], log: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Everything a run is defined by, checked: what is wrong is said here, before anything is written."""
    check_mirrors(log)
    row = find_method(method)
    changed = {name: read_setting(name, str(value)) for name, value in changed.items()}
    refuse_unread(row, changed)
    settings = replace(find_preset(preset, task).settings, **changed)
    settings = replace(settings, device=_device(settings.device))
    built = row.built(settings)
    if settings.cuda_graphs and settings.device != "cuda":
        raise EdeError(
            "cuda_graphs=true needs a CUDA device, and this run learns on the CPU; leave it false."
        )
    if settings.cuda_graphs and built.noisy:
        raise EdeError(
            f"{method} draws its layers' noise outside of what a graph can record; leave cuda_graphs=false."
        )
    train_contexts, test_contexts = (
        Contexts.parse(settings.train_contexts),
        Contexts.parse(settings.test_contexts),
    )
    if built.task_id and train_contexts.stop > MOST_TASK_IDS:
        raise EdeError(
            f"{method} learns an embedding for each context: choose train_contexts below {MOST_TASK_IDS}."
        )
    with make_env(
        task,
        lanes=1,
        contexts=train_contexts,
        seed=child_seed(seed, "env"),
        **world_options(settings.world_options),
    ) as probe:
        spec = probe.spec
    shape = stacked_shape(spec.obs_shape, settings.frame_stack)
    with told_where_memory_ends():
        network = build_network(
            built, settings, shape, spec.num_actions, train_contexts.stop, torch_generator(seed, "init")
        )
        resolved = precision.resolve(settings.precision, network.to(settings.device), shape)
    threads = settings.threads or _threads(network)
    settings = replace(settings, precision=resolved, threads=threads)
    needed = replay_bytes(**replay_shape(settings, built, spec.obs_shape, spec.obs_dtype))
    _refuse_too_much_memory(needed, settings)
    return {
        "task": task,
        "method": method,
        "preset": preset,
        "seed": seed,
        "steps": settings.steps,
        "train_contexts": str(train_contexts),
        "test_contexts": str(test_contexts),
        "settings": asdict(settings),
        "changed": dict(changed),
        "method_row": built.to_json(),
        "spec": {**asdict(spec), "stacked_shape": shape, "task_ids": train_contexts.stop},
        "log": list(log),
        **provenance(),
    }


def world_options(text: str) -> dict[str, Any]:
    """``mode=hard,center_agent=false,time_limit=500`` as keyword arguments of the world."""
    options: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        if not equals:
            raise EdeError(f"world_options are written name=value, separated by commas; got '{word}'.")
        options[name.strip()] = _typed(value.strip())
    return options


def _typed(text: str) -> bool | int | float | str:
    """A truth, a number, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def replay_shape(
    settings: Settings, method: Method, obs_shape: tuple[int, ...], obs_dtype: str
) -> dict[str, Any]:
    """What decides the size of the replay."""
    rule = method.replay
    return {
        "capacity": settings.replay_size,
        "lanes": settings.lanes,
        "obs_shape": obs_shape,
        "obs_dtype": obs_dtype,
        "n_step": settings.n_step,
        "stack": settings.frame_stack,
        "mask_probability": rule.probability if isinstance(rule, Masked) else None,
        "members": method.ensemble.members,
        "priority": Priority(rule.alpha, rule.beta) if isinstance(rule, Prioritized) else None,
    }


def _threads(network: Network) -> int:
    """Small networks gain nothing by a second thread, and wait for it where the machine is busy; 0 is all cores."""
    return 1 if isinstance(network.encoder, Small | Mlp) else 0


def _device(name: str) -> str:
    """The device that a name stands for here."""
    if name not in ("auto", "cpu", "cuda"):
        raise EdeError(f"There is no device '{name}'; choose auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise EdeError("This machine has no usable CUDA device; choose device=cpu.")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def _refuse_too_much_memory(needed: int, settings: Settings) -> None:
    if settings.replay_place == "file":  # asks the disk when it makes the file
        return
    device = settings.device if settings.replay_place == "device" else "cpu"
    free = available_on(torch.device(device))
    if needed > free:
        raise EdeError(
            f"The replay needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on the {device}; "
            "set a smaller replay_size, or another replay_place (device, memory, file)."
        )
