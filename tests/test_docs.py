"""The words of the project are true: its tables, links, command lines and versions agree with the tree."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import ede
from conftest import RunCli
from ede import cli

ROOT = Path(__file__).parent.parent

MACHINE_WORDS = ("/wo" + "rk/", "/tm" + "p/", "shar" + "ed/", "/ro" + "ot/", "/ho" + "me/")
"""Paths of somebody's machine, written so that this file does not contain them."""


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]


def pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def stations() -> set[str]:
    """The second column of the README's table of stations."""
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_readme_lists_every_module_and_folder_and_no_other() -> None:
    package = ROOT / "src" / "ede"
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert stations() == modules | folders


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    relative = [target for target in targets if "://" not in target and not target.startswith("#")]
    assert [target for target in relative if not (page.parent / target.split("#")[0]).exists()] == []


def code_in(page: Path) -> list[str]:
    """The fenced blocks and the inline code of a page."""
    found = re.findall(r"^```.*?\n(.*?)^```|`([^`\n]+)`", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block or inline for block, inline in found]


def command_lines() -> Iterator[tuple[Path, str]]:
    """Each `ede …` in a page, inline or as a line of a fenced block."""
    for page in pages():
        for code in code_in(page):
            for line in code.splitlines():
                if line.strip().removeprefix("$ ").startswith("ede "):
                    yield page, line.strip().removeprefix("$ ")


def test_every_command_line_in_the_pages_is_one_that_the_command_knows(run_cli: RunCli) -> None:
    general = {"--help", "--version", cli.COMPLETE, "COMMAND", "…"}
    wrong = []
    for page, line in command_lines():
        command, *words = shlex.split(line, comments=True)[1:]
        if command in general:
            continue
        options = run_cli(cli.COMPLETE, command, "--").out.split()
        unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in options]
        if command not in cli.available() or unknown:
            wrong.append(f"{page.relative_to(ROOT)}: {line}")
    assert wrong == []


def test_the_readme_shows_the_two_commands_and_the_makefile_has_them() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        shown = set(re.findall(r"\bmake ([a-z0-9-]+)", "\n".join(code_in(page))))
        assert shown <= targets
    assert {"run", "test"} <= set(re.findall(r"\bmake (\w+)", "\n".join(code_in(ROOT / "README.md"))))


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    decisions = (ROOT / "docs" / "decisions" / "README.md").read_text()
    docs = {path for path in pages() if path.parent == ROOT / "docs" and path.name != "README.md"}
    choices = {
        path for path in pages() if path.parent == ROOT / "docs" / "decisions" and path.name != "README.md"
    }
    assert {path.name for path in docs if f"({path.name})" not in index} == set()
    assert {path.name for path in choices if f"({path.name})" not in decisions} == set()


def test_no_file_names_a_machine() -> None:
    found = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        text = content.decode()
        found += [f"{path.relative_to(ROOT)}: {word}" for word in MACHINE_WORDS if word in text]
    assert found == []


def test_every_requirement_has_a_tested_version_that_satisfies_it_and_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [
        *project["project"]["dependencies"],
        *(requirement for extra in extras.values() for requirement in extra),
        *(requirement for group in project["dependency-groups"].values() for requirement in group),
    ]
    names = {
        re.split(r"[^\w.-]", requirement)[0].lower() for requirement in wanted if isinstance(requirement, str)
    }
    names -= {"ede"}
    pinned = "\n".join(path.read_text() for path in sorted((ROOT / "requirements").glob("*.txt")))
    tested = {name.replace("_", "-").lower() for name in re.findall(r"^([\w.-]+)==", pinned, re.MULTILINE)}
    assert names - tested == set()
    reasons = (ROOT / "docs" / "dependencies.md").read_text().lower()
    assert {name for name in names if name.removeprefix("pytest-") not in reasons} == set()


def test_the_core_tests_exist() -> None:
    lines = (ROOT / "tests" / "core.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#") and not (ROOT / line).exists()] == []


@pytest.mark.parametrize("name", ede.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(ede, name) is not None
