"""The command ``ede``: help, exit codes, completion, and what ``ede doctor`` reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Literal

import pytest
import tyro

import ede
from conftest import RunCli
from ede import cli, commands
from ede.commands import doctor
from ede.commands.completion import SCRIPTS, suggestions
from ede.errors import EdeError

HEAVY = ("torch", "numba", "matplotlib", "ray", "scipy")
"""What no command may import before it has read its words: `ede COMMAND --help` must not wait for it."""


def raising(error: BaseException) -> object:
    def main(arguments: list[str]) -> int:
        raise error

    return type("Command", (), {"main": staticmethod(main)})


def test_help_lists_every_command_that_is_there_and_no_other(run_cli: RunCli) -> None:
    present = {module.name for module in iter_modules(commands.__path__)}
    ran = run_cli("--help")
    assert ran.code == 0
    listed = {line.split()[0] for line in ran.out.splitlines() if line.startswith("  ")}
    assert listed == present == set(cli.available())
    assert run_cli().out == ran.out


def test_a_command_whose_module_is_missing_is_unknown(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "teleport", "not written")
    assert "teleport" not in run_cli("--help").out
    assert run_cli("teleport").code == 2


def test_version(run_cli: RunCli) -> None:
    assert run_cli("--version", fresh=True).out == f"ede {ede.__version__}\n"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("docter", "ede: There is no command 'docter'; did you mean `ede doctor`?\n"),
        ("xyzzy", "ede: There is no command 'xyzzy'; `ede --help` lists them.\n"),
    ],
)
def test_an_unknown_command_is_one_sentence_and_exit_code_2(
    run_cli: RunCli, typed: str, sentence: str
) -> None:
    ran = run_cli(typed, fresh=True)
    assert (ran.code, ran.out, ran.err) == (2, "", sentence)


def test_a_wrong_option_exits_2_and_names_the_right_one(run_cli: RunCli) -> None:
    ran = run_cli("doctor", "--jsn", fresh=True)
    assert ran.code == 2
    assert "--json" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (EdeError("Mend this."), 2, "ede: Mend this.\n"),
        (OSError(28, "No space left on device"), 1, "ede: [Errno 28] No space left on device\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_a_sentence_and_an_exit_code(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "ede.commands.doctor", raising(error))
    ran = run_cli("doctor")
    assert (ran.code, ran.err) == (code, said)


def test_a_fault_of_ours_keeps_its_traceback(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ede.commands.doctor", raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run_cli("doctor")


def test_tracebacks_on_request(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDE_TRACEBACK", "1")
    with pytest.raises(EdeError):
        run_cli("xyzzy")


def test_ctrl_c_in_a_real_process_exits_130() -> None:
    waiting = (
        # A shell makes its background jobs deaf to Ctrl-C, and the tests may be one.
        "import signal, sys, time, types; from ede import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def main(arguments):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "sys.modules['ede.commands.doctor'] = types.SimpleNamespace(main=main)\n"
        "sys.exit(cli.main(['doctor']))"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_a_reader_who_leaves_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "ede.cli", "--version"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 141


def test_no_command_loads_heavy_packages_to_explain_itself() -> None:
    listing = (
        "import json, sys; from ede import cli\n"
        "guilty = {}\n"
        "for command in cli.available():\n"
        "    try:\n        cli.main([command, '--help'])\n    except SystemExit as leaving:\n"
        "        assert not leaving.code, command\n"
        f"    for package in {HEAVY}:\n"
        "        if package in sys.modules: guilty.setdefault(package, command)\n"
        "print('\\n' + json.dumps(guilty))"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {}


@pytest.mark.parametrize("command", cli.available())
def test_every_command_has_a_row_a_main_and_a_help(run_cli: RunCli, command: str) -> None:
    assert callable(import_module(f"ede.commands.{command}").main)
    ran = run_cli(command, "--help")
    assert ran.code == 0
    assert f"ede {command}" in ran.out


@dataclass(frozen=True)
class Inner:
    deep_value: int = 0


@dataclass(frozen=True)
class Example:
    item: Annotated[Literal["one", "two"], tyro.conf.Positional]
    worlds: tuple[Literal["grid", "windy"], ...] = ("grid",)
    out_dir: str = ""
    quick: bool = False
    colour: bool = True
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["--"], ["--worlds", "--out-dir", "--quick", "--no-colour", "--inner.deep-value", "--help"]),
        (["--worlds", ""], ["grid", "windy"]),
        (["--out-dir", ""], []),
        (["--quick", "-"], ["--worlds", "--out-dir", "--no-colour", "--inner.deep-value", "--help"]),
    ],
)
def test_completion_offers_options_and_their_choices(words: list[str], offered: list[str]) -> None:
    assert suggestions(Example, words) == offered


def test_completion_offers_the_choices_of_a_positional() -> None:
    assert suggestions(Example, [""])[:2] == ["one", "two"]


def test_completion_and_the_parser_know_the_same_options() -> None:
    words = [
        "one",
        "--no-colour",
        "--quick",
        "--worlds",
        "windy",
        "--out-dir",
        "x",
        "--inner.deep-value",
        "3",
    ]
    parsed = cli.parse(Example, "example", words)
    assert parsed == Example("one", ("windy",), "x", True, False, Inner(3))


def test_bash_completes_commands_options_and_choices() -> None:
    script = SCRIPTS["bash"] + (
        f'ede() {{ "{sys.executable}" -m ede.cli "$@"; }}\n'
        'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ede ede "${@: -1}"; echo "${COMPREPLY[*]}"; }\n'
        'try ede doct; try ede doctor --js; try ede completion ""; try ede doctor --nothing-like-it\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n\n")[0].replace("\n", " ").split() == [
        *("doctor", "--json"),
        *("bash", "zsh", "fish", "--help"),
    ]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_shell_has_a_script(run_cli: RunCli, shell: str) -> None:
    assert run_cli("completion", shell).out == SCRIPTS[shell]


def test_doctor_finds_the_core_sound_and_says_so_in_json(run_cli: RunCli) -> None:
    ran = run_cli("doctor", "--json")
    report = json.loads(ran.out)
    parts = {finding["part"]: finding for finding in report["findings"]}
    assert ran.code == 0
    assert report["ok"]
    assert all(parts[name]["ok"] for name in ("torch", *doctor.CORE))
    assert "times the speed of float32" in parts["bf16"]["found"]


def test_doctor_names_the_line_that_installs_what_is_missing(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "PARTS", (("nosuch", "nosuch_package", "report"),))
    monkeypatch.setattr(doctor, "BROWSERS", ())
    ran = run_cli("doctor")
    assert ran.code == 0
    assert "pip install 'ede[report]'" in ran.out
    assert "apt install chromium" in ran.out


def test_doctor_fails_when_the_core_is_incomplete(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CORE", ("nosuch_package",))
    ran = run_cli("doctor")
    assert ran.code == 1
    assert "pip install nosuch_package" in ran.out
