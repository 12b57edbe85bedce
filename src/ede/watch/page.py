"""One self-contained HTML page of an episode: no library, no network, nothing beside it.

Axis letters: T steps, D components of a vector observation.
"""

from __future__ import annotations

import json
from base64 import b64encode
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.contexts import Contexts
from ede.errors import EdeError
from ede.methods import Method
from ede.presets import Settings
from ede.runs import RunFolder
from ede.watch.episode import Watched
from ede.watch.pictures import as_pictures, has_pictures, sprite


def render(folder: RunFolder, watched: Watched) -> str:
    """The page's source; the same episode gives the same bytes."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise EdeError("The page needs jinja2; install it with: pip install 'ede[report]'.") from None
    config, method = folder.config, folder.method
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = (files("ede") / "watch" / "page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=f"{config['method']} on {config['task']}",
        facts=facts(folder, watched),
        explorer=type(method.explorer).__name__,
        explorer_says=(method.explorer.__doc__ or "").partition("\n")[0],
        ensemble=method.ensemble.members > 1,
        units=units(folder.settings),
        cut=watched.end == "cut",
        steps=len(watched),
        episode=json.dumps(payload(method, watched)).replace("<", "\\u003c"),
    )


def facts(folder: RunFolder, watched: Watched) -> dict[str, str]:
    """What one must know to read the page, in short words."""
    config, settings = folder.config, folder.settings
    acts = (
        f"the explorer of training lane {watched.lane}"
        if watched.explores
        else f"the evaluation's rule: greedy, with probability {watched.epsilon:g} random"
    )
    train = Contexts.parse(config["train_contexts"])
    trained = (
        "training draws from all"
        if train.is_full
        else f"{'' if watched.context in train else 'not '}trained on"
    )
    return {
        "policy": f"seed {config['seed']}, after {watched.checkpoint:,} of {settings.steps:,} steps",
        "context": f"{watched.context}, drawn from {watched.contexts}; {trained}",
        "who acts": acts,
        "explorer": f"{type(folder.method.explorer).__name__}, coefficient {watched.coefficient:.3g} "
        f"(training lane {watched.lane} of {settings.lanes})",
        "end": {
            "terminated": f"terminated after {len(watched):,} steps",
            "truncated": f"truncated by the world's time limit after {len(watched):,} steps",
            "cut": f"not reached: the page stops after {len(watched):,} steps (`--steps` shows more)",
        }[watched.end],
    }


def units(settings: Settings) -> str:
    """What a return is, for the learner whose beliefs are shown."""
    rewards = (
        "rewards divided by the running standard deviation of the discounted return"
        if settings.reward_scaling
        else "raw rewards"
    )
    clipped = f" and clipped to ±{settings.reward_clip:g}" if settings.reward_clip else ""
    return f"discounted sums (γ = {settings.gamma:g}) of {rewards}{clipped}"


def payload(method: Method, watched: Watched) -> dict[str, Any]:
    """What the page's script reads."""
    actions = watched.q_TA.shape[1]
    names = watched.spec.action_names or tuple(f"action {action}" for action in range(actions))
    axis = np.percentile(watched.z_TMAL, [0.5, 99.5])
    return {
        "steps": len(watched),
        "names": [name.replace("_", " ") for name in names],
        "axis": axis.tolist(),
        "members": packed16(watched.z_TMAL),
        "mean": packed16(watched.mean_TAL),
        "q": packed32(watched.q_TA),
        "epistemic": packed32(watched.epistemic_TA),
        "aleatoric": packed32(watched.aleatoric_TA),
        "taken": watched.taken_T.tolist(),
        "greedy": watched.greedy_T.tolist(),
        "explorer": watched.explorer_T.tolist(),
        "reward": packed32(watched.reward_T),
        "explores": watched.explores,
        "seen": seen(watched.obs),
    }


def seen(obs: npt.NDArray[Any]) -> dict[str, Any]:
    """The observations: a sprite of pictures, or numbers with the range of each component."""
    if has_pictures(obs):
        pictures = as_pictures(obs)
        png, columns = sprite(pictures)
        return {
            "kind": "pictures",
            "height": pictures.shape[1],
            "width": pictures.shape[2],
            "columns": columns,
            "png": "data:image/png;base64," + b64encode(png).decode(),
        }
    numbers_TD = obs.reshape(len(obs), -1).astype(np.float32)
    return {"kind": "numbers", "numbers": packed32(numbers_TD)}


def packed32(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Little-endian float32 in base64, with its shape."""
    return {"shape": array.shape, "data": b64encode(array.astype("<f4").tobytes()).decode()}


def packed16(array: npt.NDArray[Any]) -> dict[str, Any]:
    """A 65535th of the range apart, in half the space: for curves."""
    low, high = float(array.min()), float(array.max())
    step = (high - low) / 65535 or 1.0
    whole = ((array - low) / step).round().astype("<u2")
    return {"shape": array.shape, "low": low, "step": step, "data": b64encode(whole.tobytes()).decode()}
