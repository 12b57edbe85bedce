"""The command ``ede``: finds the command's module, runs it, turns errors into one sentence.

Exit codes: 0 it worked, 1 the job failed, 2 the command was used wrongly, 130 it was stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import NoReturn, TypeVar

from ede import __version__, commands
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
    "completion": "print the script that completes `ede` in bash, zsh or fish",
}
"""A command and what it does; its code is ``ede.commands.<name>``, imported only when asked for."""

COMPLETE = "--complete"
"""First word of a call that asks for completions in place of work; the shells' scripts make it."""

Settings = TypeVar("Settings")


def available() -> dict[str, str]:
    """The commands that are there, in the table's order."""
    present = {module.name for module in iter_modules(commands.__path__)}
    return {name: sentence for name, sentence in COMMANDS.items() if name in present}


def parse(settings: Callable[..., Settings], command: str, arguments: Sequence[str]) -> Settings:
    """Read typed settings from the words after ``ede <command>``; a wrong word leaves with exit code 2."""
    if arguments and arguments[0] == COMPLETE:
        from ede.commands.completion import suggestions

        print("\n".join(suggestions(settings, arguments[1:])))
        raise SystemExit(0)
    import tyro

    return tyro.cli(
        settings,
        prog=f"ede {command}",
        args=list(arguments),
        config=(tyro.conf.CascadeSubcommandArgs,),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        signal.signal(signal.SIGTERM, _leave)  # `ede train` and `ede sweep` have their own, which save
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except EdeError as error:
        return _refuse(error, error.exit_code)
    except BrokenPipeError:
        # The reader has gone, as in `ede methods | head`: silence the interpreter's last flush as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _refuse(error, 1)
    except KeyboardInterrupt:
        return 130


def _leave(number: int, _: object) -> NoReturn:
    """By way of an exception, so that what is half written is cleared away."""
    sys.exit(128 + number)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        _help()
        return 0
    if words[0] in ("-V", "--version"):
        print(f"ede {__version__}")
        return 0
    if words[0] == COMPLETE and len(words) <= 2:
        print("\n".join(available()))
        return 0
    # `ede --complete COMMAND …` asks the command itself: `parse` answers.
    command, *rest = [words[1], COMPLETE, *words[2:]] if words[0] == COMPLETE else words
    if command not in available():
        close = get_close_matches(command, available(), n=1)
        hint = f"did you mean `ede {close[0]}`?" if close else "`ede --help` lists them."
        raise EdeError(f"There is no command '{command}'; {hint}")
    run: Callable[[list[str]], int] = import_module(f"ede.commands.{command}").main
    return run(rest)


def _refuse(error: Exception, code: int) -> int:
    if os.environ.get("EDE_TRACEBACK"):
        raise error
    print(f"ede: {error}", file=sys.stderr)
    return code


def _help() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, sentence in available().items():
        table.add_row(f"  {name}", sentence)
    console = Console(highlight=False)
    console.print("Agents whose exploration makes them generalise.\n\n[bold]usage:[/] ede COMMAND …\n")
    console.print(table)
    console.print(
        "\n`ede COMMAND --help` explains a command; `ede --version`."
        "\nExit codes: 0 it worked, 1 the job failed, 2 wrong use, 130 stopped by Ctrl-C."
    )


if __name__ == "__main__":
    sys.exit(main())
