"""The numbers: every setting with what it means, every preset value with its source.

The shape of a method is its row in ``ede.methods``; how big, how long and how fast is a ``Settings``. Steps are
environment steps, over all lanes, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from numbers import Real
from types import MappingProxyType
from typing import Any, get_type_hints

from ede.errors import EdeError

REPLAY_PLACES = ("device", "memory", "file")


@dataclass(frozen=True)
class Settings:
    """Everything a run can be tuned by; each field is read by at least one method (a test holds that)."""

    steps: int = 25_000_000
    """Environment steps of the whole run."""
    lanes: int = 64
    """Copies of the world that step together: the paper's K actors."""
    train_contexts: str = "0..199"
    """Contexts trained on: full, 0..199 or 0:200."""
    test_contexts: str = "full"
    """Contexts judged on: the full distribution, or such as 200:2147483647 for contexts never trained on."""
    frame_stack: int = 1
    """Frames joined along the channels, oldest first, zeros before an episode's start."""
    world_options: str = ""
    """Options of the world as key=value, separated by commas; `ede envs TASK` lists them."""
    bootstrap_on_timeout: bool = False
    """Whether the value continues where an episode was cut by a time limit; the published code says no."""
    reward_scaling: bool = True
    """Divide training rewards by the running standard deviation of the discounted return."""
    reward_clip: float = 10.0
    """Clip training rewards (after scaling) to ± this; 0 for none."""

    gamma: float = 0.99
    """Discount γ."""
    n_step: int = 3
    """Steps of reward before the bootstrap."""
    batch_size: int = 512
    """Transitions a member and update."""
    replay_size: int = 1_000_000
    """Transitions kept."""
    replay_place: str = "device"
    """Where their frames are kept: device (where the learner is), memory, or file (in the run folder)."""
    learning_starts: int = 128_000
    """Steps taken uniformly at random before the first update."""
    steps_per_update: int = 64
    """Environment steps for one gradient step."""
    target_period: int = 32_000
    """Environment steps between copies of the network into the target network."""
    learning_rate: float = 2.5e-4
    """Adam's step size."""
    adam_epsilon: float = 1.5e-4
    """Adam's ε."""
    clip_norm: float = 10.0
    """Largest norm of the whole gradient."""

    encoder: str = "auto"
    """auto, impala, nature, small or mlp."""
    hidden: int = 512
    """Hidden units of a head."""
    members: int = 5
    """Heads M of an ensemble."""
    quantiles: int = 200
    """Quantiles N of a quantile head."""
    kappa: float = 1.0
    """Where the Huber loss turns linear."""
    atoms: int = 51
    """Atoms of a categorical head."""
    v_min: float = -10.0
    """Lowest atom."""
    v_max: float = 10.0
    """Highest atom."""
    sigma0: float = 0.5
    """Initial noise of noisy layers."""
    unbiased_variance: bool = False
    """Epistemic variance over M − 1 as in the published code, not over M as in the paper."""

    phi: float = 30.0
    """Exploration coefficient φ on the uncertainty."""
    tee_lambda: float = 0.6
    """Base λ of temporally equalized exploration."""
    tee_alpha: float = 7.0
    """Exponent α of temporally equalized exploration."""
    epsilon_final: float = 0.1
    """Where the decaying ε ends."""
    epsilon_start: int = 2_000
    """Vector steps (of all lanes at once) before ε starts to fall from 1."""
    epsilon_decay: int = 8_000
    """Vector steps in which the rest of ε falls by e."""
    ez_mu: float = 2.0
    """Exponent μ of the duration of εz-greedy's random actions."""
    ez_longest: int = 10_000
    """Longest random action of εz-greedy."""
    mask_probability: float = 0.5
    """Probability that a member of Bootstrapped DQN trains on a transition."""
    anchor: float = 1e-4
    """Strength of UA-DQN's pull of the heads towards their initial weights."""
    priority_alpha: float = 0.5
    """Exponent of prioritised replay."""
    priority_beta: float = 0.4
    """Importance correction of prioritised replay at the start; it grows to 1 over the run."""

    eval_period: int = 64_000
    """Steps between evaluations on training and test contexts."""
    eval_episodes: int = 10
    """Episodes of such an evaluation, on each split."""
    final_episodes: int = 1000
    """Episodes of the last evaluation, on each split."""
    eval_lanes: int = 16
    """Lanes that evaluate at once, at most."""
    eval_epsilon: float = 0.05
    """Probability of a random action while evaluating."""
    log_period: int = 6_400
    """Steps between lines of metrics.jsonl."""
    checkpoint_period: int = 250_000
    """Steps between checkpoints."""

    device: str = "auto"
    """auto, cpu or cuda."""
    precision: str = "auto"
    """auto (a short measurement on this machine), plain (the modules as they are), fp32 or bf16 (fast paths)."""
    threads: int = 0
    """Threads of torch; 0 for one where the encoder is small or mlp, and else for all cores."""
    cuda_graphs: bool = False
    """On CUDA, record updates as graphs and replay them: small networks learn 2.5 times as fast."""

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            if not _fits(getattr(self, name), kind):
                raise EdeError(
                    f"{getattr(self, name)!r} is no value for {name}, which is of type {kind.__name__}."
                )
        for names, (low, high), words in _LIMITS:
            for name in names.split():
                value = getattr(self, name)
                if not low <= value <= high:  # also where it is not a number
                    wanted = f"at most {high:,.0f}" if value > high == ENOUGH else words
                    raise EdeError(f"{name} must be {wanted}; got {value}.")
        if self.replay_place not in REPLAY_PLACES:
            raise EdeError(
                f"There is no replay_place '{self.replay_place}'; choose {', '.join(REPLAY_PLACES)}."
            )
        if self.v_min >= self.v_max:
            raise EdeError(f"v_min must be below v_max; got {self.v_min} and {self.v_max}.")


ENOUGH = 1e12
"""No setting is larger; what is larger is a slip of the keyboard."""

_LIMITS: tuple[tuple[str, tuple[float, float], str], ...] = (
    (
        "steps lanes n_step batch_size replay_size steps_per_update target_period hidden members "
        "quantiles eval_period eval_lanes eval_episodes final_episodes log_period checkpoint_period",
        (1, ENOUGH),
        "at least 1",
    ),
    ("frame_stack", (1, 256), "between 1 and 256"),
    ("ez_longest", (1, 1_000_000), "between 1 and 1,000,000"),
    ("threads", (0, 1024), "between 0 and 1024"),
    ("atoms", (2, ENOUGH), "at least 2"),
    (
        "reward_clip learning_starts sigma0 phi tee_alpha epsilon_start ez_mu anchor priority_alpha",
        (0, ENOUGH),
        "0 or above",
    ),
    ("learning_rate adam_epsilon clip_norm kappa epsilon_decay", (1e-12, ENOUGH), "above 0"),
    ("tee_lambda mask_probability", (1e-12, 1), "above 0 and at most 1"),
    ("gamma epsilon_final priority_beta eval_epsilon", (0, 1), "between 0 and 1"),
    ("v_min v_max", (-ENOUGH, ENOUGH), "a finite number"),
)
"""Setting names, the range of each and how to say it."""

_KINDS = {field.name: type(field.default) for field in fields(Settings)}


def _fits(value: object, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, Real) and (kind is float or value % 1 == 0)
    return isinstance(value, kind)


COMMON: frozenset[str] = frozenset(field.name for field in fields(Settings)) - {
    "members", "quantiles", "kappa", "atoms", "v_min", "v_max", "sigma0", "unbiased_variance", "phi",
    "tee_lambda", "tee_alpha", "epsilon_final", "epsilon_start", "epsilon_decay", "ez_mu", "ez_longest",
    "mask_probability", "anchor", "priority_alpha", "priority_beta",
}  # fmt: skip
"""Settings that every method reads; the others are read by the parts of a method that name them."""


@dataclass(frozen=True)
class Preset:
    """Settings for one family of worlds, each changed number with its source."""

    settings: Settings
    sources: Mapping[str, str]
    """Setting → where its value comes from, for every field."""


TABLE = "paper table"
TEXT = "paper text"
CODE = "authors' code"
CHOICE = "our choice"
RAINBOW = "the Rainbow that the paper builds on"


def _preset(parent: Preset | None, **sourced: tuple[Any, str]) -> Preset:
    base = parent.settings if parent else Settings()
    sources = dict(parent.sources) if parent else {}
    for name, (_, source) in sourced.items():
        sources[name] = source
    for field in fields(Settings):
        sources.setdefault(field.name, CHOICE)
    values = {name: value for name, (value, _) in sourced.items()}
    return Preset(replace(base, **values), MappingProxyType(sources))


PAPER_PROCGEN = _preset(
    None,
    steps=(25_000_000, TABLE),
    lanes=(64, TABLE),
    train_contexts=("0..199", TABLE),
    test_contexts=("full", TEXT),
    frame_stack=(1, TABLE),
    bootstrap_on_timeout=(False, CODE),
    reward_scaling=(True, CODE),
    reward_clip=(10.0, CODE),
    gamma=(0.99, TABLE),
    n_step=(3, TABLE),
    batch_size=(512, TABLE),
    replay_size=(1_000_000, TABLE),
    learning_starts=(2_000 * 64, TABLE),
    steps_per_update=(64, TABLE),
    target_period=(32_000, "paper table, read in environment steps as in the authors' code"),
    learning_rate=(2.5e-4, TABLE),
    adam_epsilon=(1.5e-4, TABLE),
    clip_norm=(10.0, TABLE),
    encoder=("impala", TEXT),
    hidden=(512, TEXT),
    members=(5, "paper table; the paper's UA-DQN has 3"),
    quantiles=(200, TABLE),
    kappa=(1.0, TABLE),
    atoms=(51, "Bellemare et al. 2017"),
    v_min=(-10.0, "Bellemare et al. 2017"),
    v_max=(10.0, "Bellemare et al. 2017"),
    sigma0=(0.5, TEXT),
    unbiased_variance=(False, "paper, equation 2 (the authors' code divides by M − 1)"),
    phi=(30.0, "paper table, for UCB"),
    tee_lambda=(0.6, TABLE),
    tee_alpha=(7.0, TABLE),
    epsilon_final=(0.1, TEXT),
    epsilon_start=(2_000, TEXT),
    epsilon_decay=(8_000, TEXT),
    ez_mu=(2.0, TEXT),
    ez_longest=(10_000, TEXT),
    mask_probability=(0.5, "Osband et al. 2016"),
    priority_alpha=(0.5, "Hessel et al. 2018"),
    priority_beta=(0.4, "Hessel et al. 2018"),
    eval_period=(64_000, CODE),
    eval_episodes=(10, CODE),
    final_episodes=(1000, CODE),
    eval_epsilon=(0.05, CODE),
    world_options=("", "paper table: the easy mode, the world's default"),
)

PAPER_CRAFTER = _preset(
    PAPER_PROCGEN,
    steps=(1_000_000, TABLE),
    lanes=(1, TABLE),
    train_contexts=("full", TEXT),
    frame_stack=(4, TABLE),
    world_options=("observation=grey84", CODE),
    reward_scaling=(False, CODE),
    reward_clip=(1.0, CODE),
    batch_size=(64, "paper table; the Rainbow that it changes has 32"),
    learning_starts=(20_000, TABLE),
    steps_per_update=(4, TABLE),
    target_period=(8_000, TABLE),
    learning_rate=(6.25e-5, TABLE),
    encoder=("nature", RAINBOW),
    hidden=(512, RAINBOW),
    sigma0=(0.1, CODE),
    phi=(0.5, "paper table, for Thompson sampling"),
    tee_lambda=(0.6, "paper table for Procgen; the paper has no TEE on Crafter"),
    tee_alpha=(7.0, "paper table for Procgen; the paper has no TEE on Crafter"),
    epsilon_final=(0.1, "paper text for Procgen"),
    epsilon_start=(2_000, "paper text for Procgen"),
    epsilon_decay=(8_000, "paper text for Procgen"),
    ez_mu=(2.0, "paper text for Procgen"),
    ez_longest=(10_000, "paper text for Procgen"),
    eval_period=(250_000, CHOICE),
    eval_episodes=(10, CHOICE),
    final_episodes=(10, CHOICE),
    eval_lanes=(1, CHOICE),
    eval_epsilon=(0.05, "authors' code for Procgen"),
    log_period=(2_000, CHOICE),
    checkpoint_period=(50_000, CHOICE),
)

LAPTOP_PROCGEN = _preset(
    PAPER_PROCGEN,
    steps=(120_000, CHOICE),
    batch_size=(128, CHOICE),
    replay_size=(100_000, CHOICE),
    learning_starts=(6_400, CHOICE),
    target_period=(3_200, CHOICE),
    members=(3, CHOICE),
    quantiles=(64, CHOICE),
    hidden=(256, CHOICE),
    epsilon_start=(100, CHOICE),
    epsilon_decay=(250, CHOICE),
    eval_period=(16_000, CHOICE),
    eval_episodes=(16, CHOICE),
    final_episodes=(64, CHOICE),
    log_period=(1_600, CHOICE),
    checkpoint_period=(16_000, CHOICE),
)

LAPTOP_CRAFTER = _preset(
    PAPER_CRAFTER,
    steps=(100_000, CHOICE),
    replay_size=(100_000, CHOICE),
    learning_starts=(5_000, CHOICE),
    members=(3, CHOICE),
    quantiles=(64, CHOICE),
    epsilon_start=(5_000, CHOICE),
    epsilon_decay=(20_000, CHOICE),
    eval_period=(50_000, CHOICE),
    eval_episodes=(4, CHOICE),
    checkpoint_period=(20_000, CHOICE),
)

LAPTOP_SMALL = _preset(
    None,
    steps=(200_000, CHOICE),
    lanes=(64, CHOICE),
    reward_scaling=(False, CHOICE),
    reward_clip=(0.0, CHOICE),
    gamma=(0.97, CHOICE),
    batch_size=(64, CHOICE),
    replay_size=(100_000, CHOICE),
    learning_starts=(6_400, CHOICE),
    steps_per_update=(32, CHOICE),
    target_period=(3_200, CHOICE),
    learning_rate=(1e-3, CHOICE),
    hidden=(128, CHOICE),
    quantiles=(32, CHOICE),
    phi=(30.0, "paper table, for UCB; Thompson sampling wants about 2 here"),
    v_min=(-2.0, CHOICE),
    v_max=(10.0, CHOICE),
    epsilon_start=(100, CHOICE),
    epsilon_decay=(500, CHOICE),
    eval_period=(32_000, CHOICE),
    eval_episodes=(64, CHOICE),
    final_episodes=(512, CHOICE),
    eval_lanes=(64, CHOICE),
    log_period=(3_200, CHOICE),
    checkpoint_period=(50_000, CHOICE),
)

LAPTOP_GYM = _preset(LAPTOP_SMALL, v_min=(-10.0, CHOICE), v_max=(40.0, CHOICE))

_SMOKE = {
    "steps": (1_280, CHOICE),
    "lanes": (8, CHOICE),
    "batch_size": (16, CHOICE),
    "replay_size": (1_000, CHOICE),
    "learning_starts": (320, CHOICE),
    "target_period": (320, CHOICE),
    "steps_per_update": (64, CHOICE),
    "hidden": (16, CHOICE),
    "members": (2, CHOICE),
    "quantiles": (8, CHOICE),
    "eval_period": (640, CHOICE),
    "eval_episodes": (3, CHOICE),
    "final_episodes": (5, CHOICE),
    "eval_lanes": (4, CHOICE),
    "log_period": (160, CHOICE),
    "checkpoint_period": (320, CHOICE),
    "precision": ("fp32", CHOICE),
}

PRESETS: Mapping[str, Mapping[str, Preset]] = MappingProxyType(
    {
        "paper": {"procgen": PAPER_PROCGEN, "crafter": PAPER_CRAFTER},
        "laptop": {
            "procgen": LAPTOP_PROCGEN,
            "crafter": LAPTOP_CRAFTER,
            "bigfish-simple": LAPTOP_SMALL,
            "gym": LAPTOP_GYM,
        },
        "smoke": {
            "procgen": _preset(LAPTOP_PROCGEN, **_SMOKE),
            "crafter": _preset(LAPTOP_CRAFTER, **{**_SMOKE, "lanes": (1, CHOICE), "steps": (640, CHOICE)}),
            "bigfish-simple": _preset(LAPTOP_SMALL, **_SMOKE),
            "gym": _preset(LAPTOP_GYM, **_SMOKE),
        },
    }
)
"""Preset → family of worlds → its numbers."""


def find_preset(name: str, task: str) -> Preset:
    """The preset for a task, by the task's family."""
    if name not in PRESETS:
        raise EdeError(f"There is no preset '{name}'; choose {', '.join(PRESETS)}.")
    family = task.partition("/")[0]
    try:
        return PRESETS[name][family]
    except KeyError:
        having = ", ".join(preset for preset, families in PRESETS.items() if family in families)
        raise EdeError(
            f"The preset '{name}' says nothing about '{task}'; choose {having or 'a known task'}."
        ) from None


def read_setting(name: str, text: str) -> Any:
    """The value of ``--set name=text``, in the type of the field."""
    types = get_type_hints(Settings)
    if name not in types:
        close = get_close_matches(name, types, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else "; `ede describe METHOD` lists them."
        raise EdeError(f"There is no setting '{name}'{hint}")
    kind = types[name]
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        if kind is int:
            number = float(text)
            if number != int(number):
                raise ValueError
            return int(number)
        return kind(text)
    except (ValueError, KeyError, OverflowError):
        raise EdeError(f"'{text}' is no value for {name}, which is of type {kind.__name__}.") from None
