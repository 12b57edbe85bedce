"""Checkpoints that survive anything: tensors and JSON only, written aside, synced, renamed, verified on load.

A checkpoint is a folder ``step-000012800`` with one safetensors file for each part, and ``manifest.json`` with the
size and SHA-256 of every file. Replay rows never change once written, so they live beside the checkpoints in
``rows-*.safetensors`` shards that each checkpoint only adds to. Nothing here, and nothing in safetensors or JSON, runs
code from a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode
from safetensors.torch import save as encode
from torch import Tensor

from ede.errors import EdeError, JobFailed

FORMAT = 1
KEPT = 2
"""How many checkpoints stay: the newest and the one to fall back on."""

Tensors = dict[str, Tensor]


class BadCheckpoint(Exception):
    """A checkpoint that is not what was written; the message says what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds, in memory."""

    step: int
    parts: Mapping[str, Tensors]
    """Part → its tensors (learner, actor, replay, scaler, …)."""
    blobs: Mapping[str, bytes]
    """Opaque bytes, such as the worlds' state."""
    facts: Mapping[str, Any]
    """Small JSON: counters, journal lengths, generators' states."""
    shards: Iterable[Tensors] = ()
    """Replay rows, oldest first; read from disk one piece at a time, for all of them are as large as the replay."""


class CheckpointFolder:
    """``checkpoints/`` of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shards: list[dict[str, Any]] = []
        """Manifest entries of the shards that the next checkpoint goes on from."""

    # ---- writing

    def append_rows(self, rows: Tensors, first: int, stop: Sequence[int], piece: int = 0) -> None:
        """Write replay rows that the next checkpoint will refer to.

        ``first`` and ``piece`` make the file's name; ``stop`` counts, for each lane, the rows written up to its end.
        """
        with told_if_unwritten(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        name = f"rows-{first:012d}{f'-{piece}' if piece else ''}.safetensors"
        self.shards.append({**_write(self.path / name, encode(rows)), "name": name, "stop": list(stop)})

    def forget_rows(self, oldest: Sequence[int]) -> None:
        """Leave out shards of which every row is older than the oldest that each lane still holds."""
        self.shards = [
            shard
            for shard in self.shards
            if any(stop > first for stop, first in zip(shard["stop"], oldest, strict=True))
        ]

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write aside, sync, rename; the previous checkpoint stays."""
        self.path.mkdir(parents=True, exist_ok=True)
        target = self.path / f"step-{checkpoint.step:012d}"
        aside = self.path / f".{target.name}.writing"
        for leftover in (aside, target):
            if leftover.exists():
                shutil.rmtree(leftover)
        with told_if_unwritten(aside):
            aside.mkdir()
        files = {f"{part}.safetensors": encode(tensors) for part, tensors in checkpoint.parts.items()}
        files |= {f"{name}.bin": blob for name, blob in checkpoint.blobs.items()}
        manifest = {
            "format": FORMAT,
            "step": checkpoint.step,
            "files": {name: _write(aside / name, content) for name, content in files.items()},
            "shards": self.shards,
            "facts": checkpoint.facts,
        }
        _write(aside / "manifest.json", _sealed(manifest))
        _sync_folder(aside)
        aside.rename(target)
        _sync_folder(self.path)
        for ahead in self.list():  # damaged ones that were passed over; this run will write them again
            if ahead.name > target.name:
                shutil.rmtree(ahead)
        self._tidy()
        return target

    def _tidy(self) -> None:
        """Keep the newest checkpoints and the shards they name."""
        found = self.list()
        for path in found[:-KEPT]:
            shutil.rmtree(path)
        named: set[str] = set()
        for path in found[-KEPT:]:
            try:
                named |= {shard["name"] for shard in _read_manifest(path)["shards"]}
            except BadCheckpoint:
                return  # a damaged neighbour: delete nothing it may need
        for path in self.path.glob("rows-*.safetensors"):
            if path.name not in named:
                path.unlink()

    # ---- reading

    def facts(self) -> Mapping[str, Any]:
        """The facts of the newest checkpoint that has a whole manifest; its other files are not read."""
        for path in reversed(self.list()):
            try:
                return dict(_read_manifest(path)["facts"])
            except (BadCheckpoint, KeyError, TypeError, ValueError):
                continue
        return {}

    def list(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted(self.path.glob("step-*")) if self.path.is_dir() else []

    def newest(
        self, warn: Callable[[str], None], parts: tuple[str, ...] | None = None, usable: int = 10**9
    ) -> Checkpoint:
        """The newest checkpoint that is whole; a damaged one is passed over with a warning."""
        found = self.list()
        if not found:
            raise EdeError(
                f"{self.path} holds no checkpoint yet; let the run reach its first (`ede resume` carries it on)."
            )
        for path in reversed(found[:usable]):
            try:
                return self.read(path, parts)
            except BadCheckpoint as error:
                warn(f"Checkpoint {path.name} is damaged ({error}); trying the one before it.")
        raise EdeError(f"Every checkpoint in {self.path} is damaged; the run must be started again.")

    def read(self, path: Path, parts: tuple[str, ...] | None = None) -> Checkpoint:
        """All of a checkpoint, or only some parts of it (then without replay rows); everything verified."""
        manifest = _read_manifest(path)
        try:
            contents = {
                name: _read(path / name, entry)
                for name, entry in manifest["files"].items()
                if parts is None or name.partition(".")[0] in parts
            }
            shards = list(manifest["shards"]) if parts is None else []
            for entry in shards:
                decode(_read(self.path / entry["name"], entry))
            checkpoint = Checkpoint(
                step=int(manifest["step"]),
                parts={
                    name.removesuffix(".safetensors"): decode(content)
                    for name, content in contents.items()
                    if name.endswith(".safetensors")
                },
                blobs={
                    name.removesuffix(".bin"): content
                    for name, content in contents.items()
                    if name.endswith(".bin")
                },
                facts=dict(manifest["facts"]),
                shards=(decode((self.path / entry["name"]).read_bytes()) for entry in shards),
            )
        except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
            raise BadCheckpoint(f"unreadable: {error}") from error
        if parts is None:
            self.shards = shards
        return checkpoint


@contextmanager
def told_if_unwritten(path: Path) -> Iterator[None]:
    """One sentence where a disk is full or gone."""
    try:
        yield
    except OSError as error:
        raise JobFailed(
            f"Could not write {path} ({error.strerror}); free some space and run `ede resume`: "
            "the last checkpoint is untouched."
        ) from error


def _write(path: Path, content: bytes) -> dict[str, Any]:
    """Write and sync a file; gives its manifest entry."""
    temporary = path.with_name(f".{path.name}.writing")
    with told_if_unwritten(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _read(path: Path, entry: Mapping[str, Any]) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadCheckpoint(f"{path.name}: {error.strerror}") from error
    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise BadCheckpoint(f"{path.name} is not what was written")
    return content


def _sealed(manifest: Mapping[str, Any]) -> bytes:
    """JSON with its own checksum on the second line."""
    body = json.dumps(manifest, sort_keys=True).encode()
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        body, _, rest = (path / "manifest.json").read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != rest.partition(b"\n")[0]:
            raise BadCheckpoint("manifest.json is not what was written")
        manifest = json.loads(body)
        if manifest["format"] != FORMAT:
            raise BadCheckpoint(f"format {manifest['format']} is not {FORMAT}")
    except BadCheckpoint:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"manifest.json: {error}") from error
    return dict(manifest)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def tensors_of(arrays: Mapping[str, Any]) -> Tensors:
    """Numpy arrays (and numbers) as tensors that share their memory where they can."""
    return {name: torch.as_tensor(array) for name, array in arrays.items()}
