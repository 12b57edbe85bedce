"""The paper's experiments that need training, as data: which cells, on what, how many seeds, what it claims.

``ede.paper.trained`` turns each row into an item. ``{…}`` of a cell are the settings that the experiment varies;
``paper`` holds what else the paper fixed, for the plan of the published size. Where the paper's text does not
print the values a figure shows, ``note`` says that the choice is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

GAMES = (
    "bigfish", "starpilot", "fruitbot", "bossfight", "ninja", "plunder", "caveflyer", "coinrun", "jumper",
    "chaser", "climber", "dodgeball", "heist", "leaper", "maze", "miner",
)  # fmt: skip
"""In the order of the paper's tables."""

SENSITIVITY = ("bossfight", "ninja", "plunder", "starpilot", "caveflyer", "jumper", "bigfish", "leaper")
"""The eight games of the appendix's study of φ and M."""

Metric = Literal["test", "train", "crafter", "spectrum", "curves"]
Value = float | int | str


@dataclass(frozen=True)
class Cell:
    """One bar or curve of the figure."""

    label: str
    method: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    """What the experiment varies; a run belongs to the cell when it has these."""
    paper: Mapping[str, Value] = field(default_factory=dict)
    """What else the paper fixed; part of the published plan alone."""
    paper_method: str = ""
    """The method of the published plan, where the paper varied another base than ``method``."""


@dataclass(frozen=True)
class Claim:
    """What the text says: one cell above another, or no difference between them."""

    upper: str
    lower: str
    alike: bool = False

    def __str__(self) -> str:
        return (
            f"{self.upper} and {self.lower} are alike" if self.alike else f"{self.upper} above {self.lower}"
        )


@dataclass(frozen=True)
class Experiment:
    name: str
    sentence: str
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]
    metric: Metric = "test"
    tasks: tuple[str, ...] = tuple(f"procgen/{game}" for game in GAMES)
    seeds: int = 5
    note: str = ""
    varies: str = ""
    """The one setting that tells the cells apart: runs with other values of it are shown as well."""
    family: str = ""
    """The only family of tasks whose runs belong here; any when empty."""


def _procgen(games: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"procgen/{game}" for game in games)


def _varied(
    name: str,
    symbol: str,
    values: tuple[Value, ...],
    method: str = "ede",
    paper: Mapping[str, Value] | None = None,
    paper_method: str = "",
) -> tuple[Cell, ...]:
    """Cells that differ in one setting."""
    return tuple(
        Cell(f"{symbol} = {value}", method, {name: value}, paper or {}, paper_method) for value in values
    )


EDE = Cell("EDE", "ede")
QRDQN = Cell("QR-DQN", "qrdqn")
QRDQN_UCB = Cell("QR-DQN + UCB", "qrdqn_ucb")
QRDQN_TEE = Cell("QR-DQN + TEE", "qrdqn_tee")
DQN = Cell("DQN", "dqn")
DQN_UCB = Cell("DQN + UCB", "dqn_ucb")
PPO = Cell("PPO", "ppo")
IDAAC = Cell("IDAAC", "idaac")

NO_TEE: Mapping[str, Value] = {"tee_lambda": 1.0}
"""λ = 1 gives every lane the same φ: no TEE."""

EXPERIMENTS = (
    Experiment(
        "procgen-main",
        "EDE, QR-DQN, PPO and IDAAC on Procgen's test levels (the paper's main figure).",
        (QRDQN, PPO, IDAAC, EDE),
        (Claim("EDE", "QR-DQN"), Claim("EDE", "PPO"), Claim("EDE", "IDAAC")),
        note="The text says almost three times the median and more than twice the IQM of QR-DQN. The printed scores of "
        "PPO, IDAAC and EDE, game by game, are aggregated in procgen-test, which sets runs beside them too.",
        family="procgen",
    ),
    Experiment(
        "procgen-curves",
        "Learning curves on test levels, game by game (the paper's per-game figure).",
        (QRDQN, PPO, IDAAC, EDE),
        (Claim("EDE", "QR-DQN"),),
        metric="curves",
        note="The text says better than, or the same as, QR-DQN on 11 of 16 games.",
        family="procgen",
    ),
    Experiment(
        "ablation",
        "What UCB and TEE each add to QR-DQN.",
        (QRDQN, QRDQN_TEE, QRDQN_UCB, EDE),
        (Claim("EDE", "QR-DQN + UCB"), Claim("QR-DQN + UCB", "QR-DQN + TEE"), Claim("QR-DQN + UCB", "QR-DQN")),
    ),
    Experiment(
        "exploration-baselines",
        "EDE against other ways of exploring with values.",
        (
            DQN, Cell("Bootstrapped DQN", "bootstrapped_dqn"), DQN_UCB, QRDQN, QRDQN_UCB,
            Cell("εz-greedy", "ez_greedy"), Cell("UA-DQN", "ua_dqn"), Cell("NoisyNet", "noisy_net"), EDE,
        ),
        (
            Claim("QR-DQN", "DQN"), Claim("DQN", "Bootstrapped DQN"), Claim("DQN", "DQN + UCB"),
            Claim("QR-DQN + UCB", "UA-DQN"), Claim("εz-greedy", "QR-DQN"), Claim("EDE", "εz-greedy"),
            Claim("EDE", "NoisyNet"),
        ),
    ),
    Experiment(
        "ablation-dqn-ucb-tee",
        "UCB and TEE on plain DQN.",
        (DQN, DQN_UCB, Cell("DQN + UCB + TEE", "dqn_ucb_tee"), EDE),
        (Claim("EDE", "DQN + UCB + TEE"), Claim("DQN", "DQN + UCB + TEE")),
    ),
    Experiment(
        "ablation-uncertainty",
        "Exploring on epistemic, total or aleatoric uncertainty.",
        (Cell("Epistemic", "ede"), Cell("Total", "ede_total"), Cell("Aleatoric", "ede_aleatoric")),
        (Claim("Epistemic", "Total"), Claim("Epistemic", "Aleatoric")),
        note="The paper varies QR-DQN + UCB, ours EDE, which adds TEE; the paper shows no aleatoric bar.",
    ),
    Experiment(
        "ablation-members",
        "How many members M the ensemble needs.",
        _varied(
            "members", "M", (2, 3, 5, 8), paper={"phi": 50.0, **NO_TEE}, paper_method="ede_shared_gradient"
        ),
        (Claim("M = 5", "M = 3", alike=True),),
        tasks=_procgen(SENSITIVITY),
        seeds=1,
        varies="members",
        note="The figure's values of M are not in the text: these are ours. The paper's study is without TEE, with "
        "φ = 50 and every member's gradient in the encoder.",
    ),
    Experiment(
        "ablation-phi",
        "How much φ matters.",
        _varied(
            "phi", "φ", (10.0, 20.0, 30.0, 50.0),
            paper={"members": 3, **NO_TEE}, paper_method="ede_shared_gradient",
        ),
        (Claim("φ = 10.0", "φ = 50.0"),),
        tasks=_procgen(SENSITIVITY),
        seeds=1,
        varies="phi",
        note="The figure's values are not in the text: these are the search's. The paper's study is without TEE, with "
        "M = 3 and every member's gradient in the encoder.",
    ),
    Experiment(
        "ablation-lambda",
        "How much TEE's λ matters, at α = 7.",
        _varied("tee_lambda", "λ", (0.5, 0.6, 0.7)),
        (Claim("λ = 0.6", "λ = 0.5", alike=True), Claim("λ = 0.6", "λ = 0.7", alike=True)),
        tasks=_procgen(("bossfight", "climber", "plunder", "starpilot")),
        seeds=1,
        varies="tee_lambda",
        note="The number of seeds is not in the text.",
    ),
    Experiment(
        "ablation-alpha",
        "How much TEE's α matters, at λ = 0.6.",
        _varied("tee_alpha", "α", (6.0, 7.0, 8.0, 9.0)),
        (Claim("α = 7.0", "α = 6.0", alike=True), Claim("α = 7.0", "α = 9.0", alike=True)),
        tasks=_procgen(("bossfight", "climber", "plunder", "starpilot")),
        seeds=1,
        varies="tee_alpha",
        note="The number of seeds is not in the text.",
    ),
    Experiment(
        "ablation-encoder-gradient",
        "Training the encoder by one member an update, or by all.",
        (
            Cell("One member", "ede", paper={"phi": 50.0, "members": 3, **NO_TEE}),
            Cell("All members", "ede_shared_gradient", paper={"phi": 50.0, "members": 3, **NO_TEE}),
        ),
        (Claim("One member", "All members"),),
        tasks=_procgen(("ninja", "plunder", "jumper", "caveflyer", "bigfish", "leaper", "climber")),
        seeds=1,
    ),
    Experiment(
        "hyperparameter-search",
        "The paper's search over φ, λ and α on bigfish.",
        tuple(
            Cell(
                f"φ = {phi}, λ = {tee_lambda}, α = {tee_alpha}",
                "ede",
                {"phi": phi, "tee_lambda": tee_lambda, "tee_alpha": tee_alpha},
            )
            for phi in (10.0, 20.0, 30.0, 50.0)
            for tee_lambda in (0.5, 0.6, 0.7)
            for tee_alpha in (6.0, 7.0, 8.0, 9.0)
        ),
        (),
        tasks=("procgen/bigfish",),
        seeds=1,
        note="The paper picked φ = 30, λ = 0.6, α = 7. The number of seeds is not in the text.",
    ),
    Experiment(
        "crafter-table",
        "Crafter's score after a million steps.",
        (
            Cell("EDE", "ede_thompson"),
            Cell("Rainbow", "rainbow"),
            Cell("PPO", "ppo"),
            Cell("DreamerV2", ""),
            Cell("LSTM-SPCNN", ""),
            Cell("Random", "dqn", {"epsilon_final": 1.0}, {"learning_starts": 1_000_000}),
        ),
        (Claim("EDE", "Rainbow"), Claim("EDE", "PPO")),
        metric="crafter",
        tasks=("crafter",),
        family="crafter",
        seeds=10,
        note="Random is ours: the paper's table has no such row.",
    ),
    Experiment(
        "crafter-spectrum",
        "Success rates of Crafter's 22 achievements.",
        (Cell("EDE", "ede_thompson"), Cell("Rainbow", "rainbow")),
        (),
        metric="spectrum",
        tasks=("crafter",),
        family="crafter",
        seeds=10,
    ),
    Experiment(
        "crafter-phi",
        "The paper's search over φ of Thompson sampling on Crafter.",
        _varied("phi", "φ", (0.5, 1.0, 2.0), method="ede_thompson"),
        (Claim("φ = 0.5", "φ = 1.0"), Claim("φ = 0.5", "φ = 2.0")),
        metric="crafter",
        tasks=("crafter",),
        family="crafter",
        seeds=1,
        varies="phi",
        note="The paper picked φ = 0.5; the number of seeds is not in the text.",
    ),
    Experiment(
        "singleton",
        "DQN and PPO on one single level of each game.",
        (
            Cell("DQN", "dqn", {"train_contexts": "0..0"}),
            Cell("PPO", "ppo", {"train_contexts": "0..0"}),
        ),
        (Claim("DQN", "PPO", alike=True),),
        metric="train",
        seeds=3,
        note="The paper averages over the ten games where both pass 0.5; which level it took is not in the text.",
    ),
    Experiment(
        "task-id",
        "DQN told which level it plays.",
        (DQN, Cell("DQN + task id", "dqn_task_id")),
        (Claim("DQN + task id", "DQN", alike=True),),
        metric="train",
        note="The claim is about training levels; the number of seeds is not in the text.",
    ),
)  # fmt: skip
