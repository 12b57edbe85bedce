"""The sweeps that have a name: the evidence in ``results/``, and the paper's size for a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ede.methods import METHODS
from ede.paper.experiments import GAMES
from ede.sweep.cells import Block, Sweep

_PROCGEN = tuple(f"procgen/{game}" for game in GAMES)


def _minigrid(*tasks: str) -> tuple[str, ...]:
    return tuple(f"gym/MiniGrid-{task}-v0" for task in tasks)


def _around_ede(**grid: tuple[float, ...]) -> Block:
    """One setting of EDE varied, all else as in the preset."""
    return Block(("bigfish-simple",), ("ede",), tuple(range(10)), grid=grid)


_ALL = (
    Sweep(
        "bigfish-methods",
        "Every method on bigfish-simple, ten seeds.",
        (Block(("bigfish-simple",), tuple(METHODS), tuple(range(10))),),
    ),
    Sweep(
        "bigfish-ablations",
        "EDE on bigfish-simple with other M, φ, λ and α, one at a time; the preset's own are in bigfish-methods.",
        (
            _around_ede(members=(2, 3, 10)),
            _around_ede(phi=(0.3, 1.0, 8.0, 30.0)),
            _around_ede(tee_lambda=(0.4, 0.8)),
            _around_ede(tee_alpha=(3.0, 9.0)),
        ),
    ),
    Sweep(
        "bigfish-phi",
        "On bigfish-simple, the rows that explore by uncertainty at the paper's φ, and EDE beyond it.",
        (
            Block(
                ("bigfish-simple",),
                ("qrdqn_ucb", "dqn_ucb", "dqn_ucb_tee", "ede_total", "ede_aleatoric", "ede_shared_gradient"),
                tuple(range(5)),
                grid={"phi": (30.0,)},
            ),
            Block(("bigfish-simple",), ("ede",), tuple(range(5)), grid={"phi": (30.0, 100.0, 300.0)}),
            Block(
                ("bigfish-simple",),
                ("ede_thompson", "ua_dqn", "ede_mean_target"),
                tuple(range(3)),
                grid={"phi": (30.0,)},
            ),
        ),
    ),
    Sweep(
        "bigfish-precision",
        "EDE on bigfish-simple with the encoder that has a bf16 path, in float32 and in bf16, ten seeds each.",
        (
            Block(
                ("bigfish-simple",),
                ("ede",),
                tuple(range(10)),
                settings={"encoder": "impala", "steps": 64_000},
                grid={"precision": ("fp32", "bf16")},
            ),
        ),
    ),
    Sweep(
        "minigrid",
        "Three MiniGrid tasks whose layouts are drawn anew for every seed, 200 of them trained on; DoorKey is hard to "
        "explore: key, door and goal must be found in this order before there is any reward.",
        (
            Block(
                _minigrid("MultiRoom-N2-S4", "DoorKey-5x5", "FourRooms"),
                ("ede", "qrdqn", "qrdqn_ucb", "qrdqn_tee", "dqn", "noisy_net", "ez_greedy"),
                tuple(range(5)),
                # Fewer episodes than the preset's: those of an agent that fails are long.
                settings={
                    "steps": 1_000_000,
                    "eval_period": 64_000,
                    "eval_episodes": 32,
                    "final_episodes": 256,
                },
            ),
        ),
    ),
    Sweep(
        "minigrid-phi",
        "EDE with other φ on two of these tasks, whose returns stay below 1; the preset's φ is in minigrid.",
        (
            Block(
                _minigrid("MultiRoom-N2-S4", "DoorKey-5x5"),
                ("ede",),
                (0, 1, 2),
                settings={"steps": 200_000, "eval_episodes": 32, "final_episodes": 256},
                grid={"phi": (0.1, 0.3, 1.0, 30.0)},
            ),
        ),
    ),
    Sweep(
        "procgen-pilot",
        "A short run of EDE on all sixteen games, to see which of them learn soonest.",
        (Block(_PROCGEN, ("ede",), settings={"steps": 250_000}),),
    ),
    Sweep(
        "procgen",
        "EDE and QR-DQN on the games given by --tasks, three seeds, a million steps.",
        (Block((), ("ede", "qrdqn"), (0, 1, 2), settings={"steps": 1_000_000}),),
    ),
    Sweep(
        "crafter",
        "EDE (Thompson sampling), Rainbow and random play (ε = 1, no update) on Crafter, two seeds, 100,000 steps.",
        (
            Block(("crafter",), ("ede_thompson", "rainbow"), (0, 1), settings={"steps": 100_000}),
            Block(
                ("crafter",),
                ("dqn",),
                (0, 1),
                settings={"steps": 100_000, "learning_starts": 100_000},
                grid={"epsilon_final": (1.0,)},
            ),
        ),
    ),
    Sweep(
        "hyperparameters",
        "The paper's search over φ, λ and α, on bigfish.",
        (
            Block(
                ("procgen/bigfish",),
                ("ede",),
                grid={
                    "phi": (10.0, 20.0, 30.0, 50.0),
                    "tee_lambda": (0.5, 0.6, 0.7),
                    "tee_alpha": (6.0, 7.0, 8.0, 9.0),
                },
            ),
        ),
    ),
    Sweep(
        "paper-procgen",
        "The paper's size, for a cluster: QR-DQN, its two halves of EDE, and EDE on sixteen games, five seeds.",
        (Block(_PROCGEN, ("ede", "qrdqn", "qrdqn_ucb", "qrdqn_tee"), tuple(range(5)), "paper"),),
    ),
    Sweep(
        "paper-crafter",
        "The paper's size, for a cluster: EDE (Thompson sampling) and Rainbow on Crafter, ten seeds.",
        (Block(("crafter",), ("ede_thompson", "rainbow"), tuple(range(10)), "paper"),),
    ),
)

SWEEPS: Mapping[str, Sweep] = MappingProxyType({sweep.name: sweep for sweep in _ALL})
