"""A checkpoint is whole or it is not used, and reading one never runs code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ede.checkpoint import Checkpoint, CheckpointFolder
from ede.errors import EdeError, JobFailed
from ede.runs import Journal


def write(folder: CheckpointFolder, step: int) -> Path:
    folder.append_rows({"reward": torch.full((3,), float(step))}, stop=[step], first=step - 10)
    return folder.write(
        Checkpoint(
            step, {"learner": {"weight": torch.full((2, 2), step)}}, {"world": b"fish"}, {"seconds": 1.5}
        )
    )


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    for step in (10, 20, 30):
        write(folder, step)
    return folder


class Hostile:
    """Unpickling this would create a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def replaced(path: Path, mark: Path) -> None:
    path.write_bytes(pickle.dumps(Hostile(mark)))


def truncated(path: Path, mark: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path, mark: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def emptied(path: Path, mark: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path, mark: Path) -> None:
    path.unlink()


DAMAGES = (replaced, truncated, flipped, emptied, removed)
FILES = ("manifest.json", "learner.safetensors", "world.bin", "rows")


def file_of(folder: CheckpointFolder, checkpoint: Path, name: str) -> Path:
    """A file that only this checkpoint needs."""
    if name == "rows":
        return sorted(folder.path.glob("rows-*"))[-1]
    return checkpoint / name


def test_the_newest_comes_back_as_it_was(folder: CheckpointFolder) -> None:
    found = CheckpointFolder(folder.path).newest(pytest.fail)
    assert found.step == 30
    assert torch.equal(found.parts["learner"]["weight"], torch.full((2, 2), 30))
    assert found.blobs == {"world": b"fish"}
    assert found.facts == {"seconds": 1.5}
    assert [float(rows["reward"][0]) for rows in found.shards] == [10.0, 20.0, 30.0]


def test_two_checkpoints_are_kept_and_every_row_they_need(folder: CheckpointFolder) -> None:
    assert [path.name for path in folder.list()] == ["step-000000000020", "step-000000000030"]
    folder.forget_rows([10])
    write(folder, 40)
    assert len(list(folder.path.glob("rows-*"))) == 4  # step 30 still needs the rows of step 10
    write(folder, 50)
    assert len(list(folder.path.glob("rows-*"))) == 4


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_means_the_checkpoint_before_it(
    folder: CheckpointFolder, tmp_path: Path, damage: Callable[[Path, Path], None], name: str
) -> None:
    mark = tmp_path / "code-ran"
    damage(file_of(folder, folder.list()[-1], name), mark)
    warnings: list[str] = []
    found = CheckpointFolder(folder.path).newest(warnings.append)
    assert found.step == 20
    assert len(warnings) == 1
    assert "step-000000000030" in warnings[0]
    assert damage is removed or "is not what was written" in warnings[0]
    assert not mark.exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_when_all_are_damaged_one_sentence_says_so(
    folder: CheckpointFolder, tmp_path: Path, damage: Callable[[Path, Path], None]
) -> None:
    for path in folder.list():
        damage(path / "manifest.json", tmp_path / "code-ran")
    with pytest.raises(EdeError, match="is damaged; the run must be started again"):
        CheckpointFolder(folder.path).newest(lambda text: None)


@pytest.mark.parametrize("name", ["learner", "rows"])
def test_a_resealed_pickle_is_still_no_tensor(folder: CheckpointFolder, tmp_path: Path, name: str) -> None:
    """Someone who can mend the checksums, too, gets no code run."""
    from ede import checkpoint as module

    mark = tmp_path / "code-ran"
    newest = folder.list()[-1]
    target = file_of(folder, newest, name if name == "rows" else f"{name}.safetensors")
    replaced(target, mark)
    manifest = module._read_manifest(newest)
    fresh = module._write(target, target.read_bytes())
    for entry in [*manifest["shards"], *manifest["files"].values()]:
        if entry is manifest["files"].get(target.name) or entry.get("name") == target.name:
            entry.update(fresh)
    module._write(newest / "manifest.json", module._sealed(manifest))
    warnings: list[str] = []
    assert CheckpointFolder(folder.path).newest(warnings.append).step == 20
    assert not mark.exists()


def test_parts_can_be_read_alone(folder: CheckpointFolder) -> None:
    found = CheckpointFolder(folder.path).newest(pytest.fail, parts=("learner",))
    assert set(found.parts) == {"learner"}
    assert list(found.shards) == []


def test_what_a_crash_left_behind_is_in_nobodys_way(folder: CheckpointFolder) -> None:
    (folder.path / ".step-000000000040.writing").mkdir()
    (folder.path / ".step-000000000040.writing" / "learner.safetensors").write_bytes(b"half")
    assert CheckpointFolder(folder.path).newest(pytest.fail).step == 30
    write(folder, 40)
    assert CheckpointFolder(folder.path).newest(pytest.fail).step == 40


def test_a_damaged_checkpoint_ahead_is_in_nobodys_way(folder: CheckpointFolder, tmp_path: Path) -> None:
    """After a fall back to step 20 the run passes 25 on its way to 30: what is damaged does not outlive it."""
    flipped(folder.list()[-1] / "learner.safetensors", tmp_path)
    resumed = CheckpointFolder(folder.path)
    assert resumed.newest(lambda text: None).step == 20
    write(resumed, 25)
    assert [path.name for path in resumed.list()] == ["step-000000000020", "step-000000000025"]
    assert CheckpointFolder(folder.path).newest(pytest.fail).step == 25


def test_a_full_disk_leaves_the_last_checkpoint(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JobFailed, match="No space left on device"):
        write(folder, 40)
    monkeypatch.undo()
    assert CheckpointFolder(folder.path).newest(pytest.fail).step == 30


def test_a_journal_that_a_full_disk_cuts_says_so_and_closes() -> None:
    journal = Journal(Path("/dev/full"))
    with pytest.raises(JobFailed, match=r"/dev/full .*free some space and run `ede resume`"):
        journal.write({"step": 1})
    journal.close()


def test_no_checkpoint_is_said(tmp_path: Path) -> None:
    with pytest.raises(EdeError, match="holds no checkpoint"):
        CheckpointFolder(tmp_path).newest(pytest.fail)
