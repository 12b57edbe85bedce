"""Run folders: everything that is known of a run, readable by anyone with a text editor.

``config.json`` (resolved settings, versions, machine, commit), ``episodes.jsonl``, ``evals.jsonl``, ``metrics.jsonl``,
``checkpoints/`` and, at the end, ``DONE``.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import torch

from ede.checkpoint import BadCheckpoint, CheckpointFolder, told_if_unwritten
from ede.errors import EdeError
from ede.learner import build_network
from ede.methods import Method
from ede.policy import Policy
from ede.presets import Settings

JOURNALS = ("episodes", "evals", "metrics")
PACKAGES = (
    "ede",
    "torch",
    "numpy",
    "gymnasium",
    "safetensors",
    "procgen-mirror",
    "envpool",
    "crafter",
    "minigrid",
)


class Journal:
    """A file of JSON lines that can be cut back to where a checkpoint knew it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("ab")
        self._sum = sha256()

    def write(self, line: Mapping[str, Any]) -> None:
        content = json.dumps(line).encode() + b"\n"
        with told_if_unwritten(self.path):
            self._file.write(content)
            self._file.flush()
        self._sum.update(content)

    def sum(self) -> str:
        """SHA-256 of all lines since ``cut``, those that it kept included."""
        return self._sum.hexdigest()

    def length(self) -> int:
        """Bytes that are safely on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(
        self, length: int, expected: str | None = None, warn: Callable[[str], None] | None = None
    ) -> None:
        """Forget what was written after a checkpoint; say so where what was written before it is not as it was."""
        content = self.path.read_bytes()[:length]
        if len(content) < length or (expected and sha256(content).hexdigest() != expected):
            content = b"".join(line for line in content.splitlines(keepends=True) if _is_whole(line))
            if warn:
                warn(f"{self.path} is damaged: its readable lines are kept, the others are lost.")
            self._file.truncate(0)
            self._file.write(content)
            self._file.flush()
        self._file.truncate(len(content))
        self._file.seek(len(content))
        self._sum = sha256(content)

    def close(self) -> None:
        with suppress(OSError):  # what a full disk left unwritten was told by ``write``
            self._file.close()


def _is_whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


@dataclass(frozen=True)
class RunFolder:
    """A run on disk."""

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> RunFolder:
        if (path / "config.json").exists():
            raise EdeError(
                f"{path} already holds a run; carry it on with `ede resume {path}` or choose another --out."
            )
        if path.exists() and not path.is_dir():
            raise EdeError(f"{path} is a file; choose another --out.")
        begun = path / ".config.json"  # may have been left by a full disk; is in nobody's way
        if path.exists() and any(inside.name != begun.name for inside in path.iterdir()):
            raise EdeError(f"{path} is not empty; choose another --out.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            begun.write_text(json.dumps(config, indent=2) + "\n")
            begun.rename(path / "config.json")
        except OSError as error:
            raise EdeError(f"Cannot write to {path} ({error.strerror}); choose another --out.") from error
        return cls(path, config)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        try:
            config = json.loads((path / "config.json").read_text())
            whole = {"task", "seed", "settings", "method_row", "spec"} <= config.keys()
        except OSError:
            raise EdeError(
                f"{path} is no run folder; a run folder has a config.json written by `ede train`."
            ) from None
        except (ValueError, AttributeError):
            whole = False
        if not whole:
            raise EdeError(f"{path}/config.json is damaged; bring it back from a copy, or train anew.")
        return cls(path, config)

    @property
    def settings(self) -> Settings:
        try:
            return Settings(**self.config["settings"])
        except TypeError as error:
            raise EdeError(
                f"{self.path}/config.json was changed or written by another version of EDE ({error})."
            ) from None

    @property
    def method(self) -> Method:
        try:
            return Method.from_json(self.config["method_row"])
        except (KeyError, TypeError, AttributeError) as error:
            raise EdeError(f"{self.path}/config.json describes no known method ({error}).") from None

    @property
    def checkpoints(self) -> CheckpointFolder:
        return CheckpointFolder(self.path / "checkpoints")

    @property
    def replay_file(self) -> Path:
        """Frames of a running replay that is not kept in memory; checkpoints do not need it."""
        return self.path / "replay.frames"

    @property
    def done(self) -> bool:
        return (self.path / "DONE").exists()

    def digest(self, whole: bool = False) -> str:
        """What a checkpoint remembers of the config (or of what decides the run), so that a changed one is noticed."""
        names = self.config if whole else ("task", "seed", "settings", "method_row", "spec")
        same = {name: self.config[name] for name in names}
        return sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()

    def refuse_change(self, warn: Callable[[str], None] | None = None) -> None:
        """Compare the config with what the checkpoints remember: a change that matters is refused (or only told)."""
        facts = self.checkpoints.facts()
        if facts.get("digest", self.digest()) != self.digest():
            if warn is None:
                raise EdeError(
                    f"{self.path}/config.json was changed since its checkpoint; undo the change, or train anew."
                )
            warn(f"{self.path}/config.json was changed since its checkpoint.")
        elif facts.get("config", self.digest(whole=True)) != self.digest(whole=True):
            (warn or print_warning)(
                f"{self.path}/config.json was changed since its checkpoint, in nothing that decides the run."
            )

    def lock(self) -> IO[str]:
        """Hold the folder until the returned file is closed; the system lets go when the process dies."""
        file = (self.path / ".lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise EdeError(
                f"{self.path} is in use by another process; wait for it or stop it first."
            ) from None
        return file

    def journals(self) -> dict[str, Journal]:
        return {name: Journal(self.path / f"{name}.jsonl") for name in JOURNALS}

    def read_journal(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of a journal; a last line cut short by a crash is left out."""
        path = self.path / f"{name}.jsonl"
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise EdeError(
                f"{path} is damaged; take its unreadable lines out, or bring it back from a copy."
            ) from None

    def finish(self, facts: Mapping[str, Any]) -> None:
        temporary = self.path / ".DONE"
        with told_if_unwritten(self.path / "DONE"):
            temporary.write_text(json.dumps(facts) + "\n")
            temporary.rename(self.path / "DONE")
        self.replay_file.unlink(missing_ok=True)

    def policy(self, warn: Callable[[str], None] | None = None) -> Policy:
        """The agent of the newest good checkpoint."""
        return self.policy_and_step(warn)[0]

    def policy_and_step(self, warn: Callable[[str], None] | None = None) -> tuple[Policy, int]:
        """The agent of the newest good checkpoint, and the step that it was written at."""
        self.refuse_change(warn or print_warning)
        spec, settings, method = self.config["spec"], self.settings, self.method
        checkpoint = self.checkpoints.newest(warn or print_warning, parts=("learner",))
        network = build_network(
            method,
            settings,
            tuple(spec["stacked_shape"]),
            spec["num_actions"],
            spec["task_ids"],
            torch.Generator().manual_seed(0),
        )
        tensors = {
            name.removeprefix("network."): tensor
            for name, tensor in checkpoint.parts["learner"].items()
            if name.startswith("network.")
        }
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            raise EdeError(
                f"The checkpoint in {self.path} does not fit its config.json; was it edited?"
            ) from error
        return Policy(network.requires_grad_(False), method, settings), checkpoint.step


def print_warning(text: str) -> None:
    print(f"ede: warning: {text}", file=sys.stderr)


def provenance() -> dict[str, Any]:
    """Versions, machine, commit and command: where a number came from."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        },
        "commit": _commit(),
        "command": shlex.join(["ede", *sys.argv[1:]])
        if Path(sys.argv[0]).stem in ("ede", "cli")
        else "python",
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str | None:
    """The commit of the checkout that this package runs from, marked where it was changed.

    Where there is no checkout, such as in a container, EDE_COMMIT says it; else None.
    """
    if told_commit := os.environ.get("EDE_COMMIT"):
        return told_commit
    home = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None


def settings_json(settings: Settings) -> dict[str, Any]:
    return asdict(settings)


__all__ = [
    "JOURNALS",
    "BadCheckpoint",
    "Journal",
    "RunFolder",
    "print_warning",
    "provenance",
    "settings_json",
]
