"""``ede completion``: the shells' completion scripts, and the words they ask for.

The scripts call ``ede --complete`` with the words typed so far. The command's own settings answer, so that
completion cannot fall behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from ede.cli import parse

SCRIPTS = {
    "bash": """\
_ede() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$(ede --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)" -- "$2"))
}
complete -o default -F _ede ede
""",
    "zsh": """\
#compdef ede
_ede() {
  local -a found
  found=("${(@f)$(ede --complete "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  compadd -- ${found:#} || _files
}
compdef _ede ede
""",
    "fish": """\
complete -c ede -a '(ede --complete (commandline -opc)[2..] (commandline -ct) 2> /dev/null)'
""",
}

_POSITIONAL = get_args(tyro.conf.Positional[str])[1]


@dataclass(frozen=True)
class Completion:
    """Print a completion script.

    bash: put `source <(ede completion bash)` into ~/.bashrc. zsh: the same with zsh in ~/.zshrc, after compinit.
    fish: `ede completion fish > ~/.config/fish/completions/ede.fish`.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """The shell that is to complete `ede`."""


def main(arguments: list[str]) -> int:
    print(SCRIPTS[parse(Completion, "completion", arguments).shell], end="")
    return 0


def suggestions(settings: Any, words: Sequence[str]) -> list[str]:
    """What may stand at the last of ``words``: the choices of the option before it, else options not yet given.

    Choices of positional settings are offered beside the options. An option without choices offers nothing:
    the shell then completes file names.
    """
    *before, current = words or [""]
    options = dict(_options(settings))
    positional = options.pop("", [])
    if before and before[-1] in options and options[before[-1]] is not None:
        return options[before[-1]] or []
    offered = [option for option in [*options, "--help"] if option not in before]
    return offered if current.startswith("-") else [*(positional or []), *offered]


def _options(settings: Any, prefix: str = "") -> Iterator[tuple[str, list[str] | None]]:
    """Each option with the choices of its value: empty when any will do, None for a flag; "" for positionals."""
    defaults = {field.name: field.default for field in fields(settings)}
    positional: list[str] = []
    for name, hint in get_type_hints(settings, include_extras=True).items():
        option = f"{prefix}{name.replace('_', '-')}"
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if is_dataclass(bare):
            yield from _options(bare, f"{option}.")
        elif _POSITIONAL in getattr(hint, "__metadata__", ()):
            positional += _choices(bare)
        elif bare is bool:
            yield f"--no-{option}" if defaults[name] is True else f"--{option}", None
        else:
            yield f"--{option}", _choices(bare)
    if positional:
        yield "", positional


def _choices(hint: Any) -> list[str]:
    """The words of every ``Literal`` within a type."""
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [word for part in get_args(hint) for word in _choices(part)]
