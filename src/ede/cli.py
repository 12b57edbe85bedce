"""The command ``ede``: finds the command's module, runs it, turns errors into one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TypeVar

import tyro

from ede.errors import EdeError

COMMANDS: dict[str, str] = {
    "train": "train an agent and write a run folder",
    "resume": "carry on a run that was stopped",
    "eval": "judge a trained agent on chosen contexts",
    "watch": "write one HTML page of an episode: frames, return quantiles, uncertainties",
    "sweep": "run a table of runs, only the missing ones",
    "report": "compare runs: one HTML page, PDF figures, CSV numbers",
    "paper": "draw a figure or table of the paper, ours beside theirs",
    "tabular": "the paper's tabular study: worlds, learners, sweeps, theory",
    "methods": "list the methods",
    "describe": "print a method's parts with equations and sources",
    "envs": "list the worlds, their options and abilities",
    "doctor": "check this machine and what is installed",
    "bench": "measure this machine: worlds, acting, replay, learner",
}
"""A command and what it does; its code is ``ede.commands.<name>``, imported only when asked for."""

Settings = TypeVar("Settings")


def parse(settings: Callable[..., Settings], command: str, arguments: Sequence[str]) -> Settings:
    """Read typed settings from the words after ``ede <command>``; a wrong word leaves with exit code 2."""
    return tyro.cli(
        settings,
        prog=f"ede {command}",
        args=list(arguments),
        config=(tyro.conf.CascadeSubcommandArgs, tyro.conf.FlagConversionOff),
    )


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return f"usage: ede COMMAND [...]\n\n{rows}\n\n`ede COMMAND --help` explains a command; `ede --version`."


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"ede {version('ede')}")
        return 0
    command, *rest = words
    try:
        if command not in COMMANDS:
            raise EdeError(f"There is no command '{command}'; `ede --help` lists them.")
        run: Callable[[list[str]], int] = import_module(f"ede.commands.{command}").main
        return run(rest)
    except EdeError as error:
        print(f"ede: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    sys.exit(main())
