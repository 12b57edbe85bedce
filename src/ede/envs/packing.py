"""What a lane's state is packed into: named arrays in one safetensors blob, no code inside."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ede.envs.contract import Lanes
from ede.errors import EdeError

Arrays = dict[str, npt.NDArray[Any]]
_LABEL = "label"


def _label(lanes: Lanes, **more: object) -> dict[str, object]:
    """Whose state it is; a state is only restored where all of this is the same."""
    return {"task": lanes.spec.task, "lanes": lanes.lanes, "contexts": str(lanes.contexts), **more}


def pack(lanes: Lanes, arrays: Arrays, **settings: object) -> bytes:
    """The arrays, labelled with the task, the lanes, the contexts and the given settings."""
    label = json.dumps(_label(lanes, **settings)).encode()
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return bytes(save({_LABEL: np.frombuffer(label, np.uint8), **contiguous}))


def unpack(lanes: Lanes, state: bytes, **settings: object) -> Arrays:
    """The arrays ``pack`` was given, writable; refused where the label differs."""
    try:
        arrays = {name: array.copy() for name, array in load(state).items()}
        found = json.loads(arrays.pop(_LABEL).tobytes())
    except (SafetensorError, KeyError, ValueError):
        raise EdeError(f"This is no saved state of {lanes.spec.task}; pass what `save` returned.") from None
    for name, wanted in _label(lanes, **settings).items():
        if found.get(name) != wanted:
            raise EdeError(
                f"This state was saved with {name} {found.get(name)!r}, these lanes have {wanted!r}; "
                "make the lanes as they were."
            )
    return arrays
