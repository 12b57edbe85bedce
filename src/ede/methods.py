"""The table of methods: each row is composed of parts, and reads as its difference from its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, get_args

from ede import explore, parts
from ede.errors import EdeError
from ede.explore import (
    EpsilonGreedy,
    Explorer,
    EzGreedy,
    HeadPerEpisode,
    NoisyGreedy,
    Thompson,
    Ucb,
    Uncertainty,
)
from ede.parts import (
    AllMembers,
    Anchor,
    Categorical,
    Coefficient,
    Constant,
    Decay,
    Ensemble,
    Equalized,
    EqualizedEpsilon,
    Head,
    Masked,
    Noisy,
    OneMember,
    Prioritized,
    Quantile,
    Scalar,
    Single,
    Target,
    Uniform,
    Zero,
    filled,
)
from ede.presets import COMMON, Settings


@dataclass(frozen=True)
class Method:
    """A row: what a value-based agent is made of."""

    name: str
    sentence: str
    """What it is, as the difference from its parent."""
    head: Head
    explorer: Explorer
    coefficient: Coefficient
    ensemble: Single | Ensemble = Single()
    target: Target = Target()
    encoder_gradient: OneMember | AllMembers = OneMember()
    replay: Uniform | Masked | Prioritized = Uniform()
    noisy: Noisy | None = None
    dueling: bool = False
    task_id: bool = False
    anchor: Anchor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            part = getattr(self, field.name)
            if field.name in ("name", "sentence", "dueling", "task_id") or part is field.default:
                continue
            if isinstance(part, type) or not is_dataclass(part):
                raise EdeError(f"{self.name}: {field.name} must be a part, such as Ucb() is; got {part!r}.")

    def parts(self) -> dict[str, Any]:
        """Field → part, for the fields that hold one."""
        return {
            field.name: part
            for field in fields(self)
            if not isinstance(part := getattr(self, field.name), str | bool | None)
        }

    def settings_read(self) -> frozenset[str]:
        """Every setting that changes something under this method."""
        own = {name for part in self.parts().values() for name in getattr(part, "reads", {}).values()}
        return COMMON | own

    def built(self, settings: Settings) -> Method:
        """The row with its numbers filled in, or one sentence why it cannot be."""
        numbered = {
            name: filled(part, settings) for name, part in self.parts().items() if hasattr(part, "reads")
        }
        method = replace(self, **numbered)
        method.check()
        return method

    def check(self) -> None:
        members = self.ensemble.members
        kind = type(self.explorer).__name__
        if members < 1:
            raise EdeError(f"{self.name} needs members of at least 1; got {members}.")
        if members < self.explorer.minimum_members:
            raise EdeError(
                f"{kind} explores by the disagreement of an ensemble: {self.name} needs members of at least "
                f"{self.explorer.minimum_members}, got {members}."
            )
        if members > 1 and isinstance(self.head, Categorical):
            raise EdeError(f"{self.name}: a categorical head has no ensemble; use quantiles.")
        of = getattr(self.explorer, "of", None)
        if of not in (None, *get_args(Uncertainty)):
            raise EdeError(
                f"{self.name}: there is no uncertainty '{of}'; choose {', '.join(get_args(Uncertainty))}."
            )
        if of == "aleatoric" and self.head.outputs < 2:
            raise EdeError(
                f"{self.name} explores by the spread of an action's quantiles, and one has none: it needs at least 2."
            )
        if self.explorer.takes != self.coefficient.kind:
            raise EdeError(
                f"{self.name}: {kind} takes {self.explorer.takes}, and {type(self.coefficient).__name__} is "
                f"{self.coefficient.kind}."
            )
        if self.explorer.noisy and self.noisy is None:
            raise EdeError(f"{self.name}: {kind} needs noisy layers.")
        if isinstance(self.replay, Prioritized) and members > 1:
            raise EdeError(f"{self.name}: prioritised replay serves one member; use uniform replay.")
        if isinstance(self.replay, Masked) and members < 2:
            raise EdeError(f"{self.name}: bootstrap masks need an ensemble.")

    def to_json(self) -> dict[str, Any]:
        """The row as plain data: each part as its name and its fields."""
        row: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            row[field.name] = (
                {"part": type(value).__name__, **asdict(value)} if field.name in self.parts() else value
            )
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Method:
        def revive(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            name, numbers = value["part"], {key: number for key, number in value.items() if key != "part"}
            return _PARTS[name](**numbers)

        return cls(**{name: revive(value) for name, value in row.items()})


_PARTS: Mapping[str, type[Any]] = {
    name: kind
    for module in (explore, parts)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")
}

DQN = Method(
    "dqn",
    "One value an action, double-Q targets, ε-greedy with the published decay.",
    head=Scalar(),
    explorer=EpsilonGreedy(),
    coefficient=Decay(),
    target=Target(double=True),
)
QRDQN = replace(
    DQN,
    name="qrdqn",
    sentence="DQN with quantiles for values and plain targets.",
    head=Quantile(),
    target=Target(),
)
DQN_UCB = replace(
    DQN,
    name="dqn_ucb",
    sentence="DQN with an ensemble, acting on its mean plus φ times its spread.",
    ensemble=Ensemble(),
    explorer=Ucb(),
    coefficient=Constant(),
)
QRDQN_UCB = replace(
    QRDQN,
    name="qrdqn_ucb",
    sentence="QR-DQN with an ensemble, acting on its mean plus φ times its epistemic uncertainty.",
    ensemble=Ensemble(),
    explorer=Ucb(),
    coefficient=Constant(),
)
EDE = replace(
    QRDQN_UCB,
    name="ede",
    sentence="QR-DQN+UCB with a different φ in every lane (TEE): the paper's method.",
    coefficient=Equalized(),
)

_ROWS = (
    DQN,
    replace(
        DQN,
        name="c51",
        sentence="DQN with a categorical distribution and plain targets.",
        head=Categorical(),
        target=Target(),
    ),
    replace(
        DQN,
        name="rainbow",
        sentence="DQN with C51, dueling, noisy layers and prioritised replay.",
        head=Categorical(),
        noisy=Noisy(),
        dueling=True,
        replay=Prioritized(),
        explorer=NoisyGreedy(),
        coefficient=Zero(),
    ),
    QRDQN,
    replace(
        DQN,
        name="bootstrapped_dqn",
        sentence="DQN with an ensemble on bootstrap masks, one member acting through each episode.",
        ensemble=Ensemble(),
        encoder_gradient=AllMembers(normalised=True),
        replay=Masked(),
        explorer=HeadPerEpisode(),
        coefficient=Zero(),
    ),
    DQN_UCB,
    replace(
        DQN_UCB,
        name="dqn_ucb_tee",
        sentence="DQN+UCB with a different φ in every lane.",
        coefficient=Equalized(),
    ),
    replace(
        QRDQN,
        name="qrdqn_tee",
        sentence="QR-DQN with a constant ε of its own in every lane.",
        coefficient=EqualizedEpsilon(),
    ),
    QRDQN_UCB,
    EDE,
    replace(
        QRDQN_UCB,
        name="ede_thompson",
        sentence="EDE that draws values from N(Q, φσ) and has one φ: the paper's agent for Crafter.",
        explorer=Thompson(),
    ),
    replace(EDE, name="ede_total", sentence="EDE on the total uncertainty.", explorer=Ucb(of="total")),
    replace(
        EDE, name="ede_aleatoric", sentence="EDE on the aleatoric uncertainty.", explorer=Ucb(of="aleatoric")
    ),
    replace(
        EDE,
        name="ede_shared_gradient",
        sentence="EDE whose encoder is trained by every member.",
        encoder_gradient=AllMembers(),
    ),
    replace(
        EDE,
        name="ede_mean_target",
        sentence="EDE whose members all learn from the mean of the target members.",
        target=Target(mean=True),
    ),
    replace(
        QRDQN, name="ez_greedy", sentence="QR-DQN whose random actions last (εz-greedy).", explorer=EzGreedy()
    ),
    replace(
        QRDQN,
        name="noisy_net",
        sentence="QR-DQN that explores by noisy layers.",
        noisy=Noisy(),
        explorer=NoisyGreedy(),
        coefficient=Zero(),
    ),
    replace(
        QRDQN_UCB,
        name="ua_dqn",
        sentence="QR-DQN members anchored to their initial weights, mean targets, Thompson sampling (UA-DQN).",
        target=Target(mean=True),
        anchor=Anchor(),
        explorer=Thompson(),
    ),
    replace(DQN, name="dqn_task_id", sentence="DQN that is told which context it plays.", task_id=True),
)

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})


def find_method(name: str) -> Method:
    if not isinstance(name, str):
        raise EdeError(
            f"A method is given by its name, as `ede methods` lists it; got a {type(name).__name__}."
        )
    if name in METHODS:
        return METHODS[name]
    close = get_close_matches(name, METHODS, n=1)
    hint = f"did you mean '{close[0]}'?" if close else "`ede methods` lists them."
    raise EdeError(f"There is no method '{name}'; {hint}")


def refuse_unread(method: Method, changed: Mapping[str, Any]) -> None:
    """A setting that someone changed and this method never reads is a mistake, said at once."""
    unread = sorted(set(changed) - method.settings_read())
    if unread:
        raise EdeError(
            f"{method.name} never reads {', '.join(unread)}; `ede describe {method.name}` lists what it reads."
        )
