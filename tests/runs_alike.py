"""Whether two run folders tell the same story, times apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TIMES = {"seconds", "steps_per_second"}
PLACES = {"command", "commit", "machine", "versions"}
SUMS = {"config", "journals", "journal_sums"}
"""What a checkpoint remembers of files that hold times and places."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in json.loads(line).items() if name not in TIMES}
        for line in path.read_text().splitlines()
    ]


def story(run: Path) -> dict[str, Any]:
    """Everything of a run that the seed decides: config, journals, and the bytes of the newest checkpoint."""
    config = json.loads((run / "config.json").read_text())
    newest = max((run / "checkpoints").glob("step-*"))
    manifest = json.loads((newest / "manifest.json").read_bytes().split(b"\n")[0])
    facts = {name: value for name, value in manifest["facts"].items() if name not in TIMES | SUMS}
    return {
        "config": {name: value for name, value in config.items() if name not in PLACES},
        **{name: lines(run / f"{name}.jsonl") for name in ("episodes", "evals", "metrics")},
        "facts": facts,
        "files": {name: entry["sha256"] for name, entry in manifest["files"].items()},
        "rows": [entry["sha256"] for entry in manifest["shards"]],
        "done": (run / "DONE").exists(),
    }


def assert_alike(first: Path, second: Path) -> None:
    one, other = story(first), story(second)
    for name in one:
        assert one[name] == other[name], name
