"""Observations as pictures: one sprite for the page, or a GIF.

Axis letters: T steps, H height, W width, C channels.
"""

from __future__ import annotations

import io
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ede.errors import EdeError

Pictures = npt.NDArray[np.uint8]
"""[T, H, W, C]; C = 3 once they are RGB."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#999999")
"""Okabe & Ito (2008), with grey for black: the planes of observations that are no picture."""
GIF_SIDE = 256
"""Pixels that a GIF is enlarged to, by whole pixels."""
MILLISECONDS = 80
"""A GIF's frame."""


def has_pictures(obs: npt.NDArray[Any]) -> bool:
    return obs.ndim == 4 and obs.dtype == np.uint8


def as_pictures(obs: Pictures) -> Pictures:
    """RGB as it is, grey as grey; any other number of planes painted over each other, each in its colour."""
    channels = obs.shape[-1]
    if channels == 3:
        return obs
    if channels == 1:
        return np.repeat(obs, 3, axis=-1)
    rgb_C3 = np.array([list(bytes.fromhex(COLOURS[plane % len(COLOURS)][1:])) for plane in range(channels)])
    painted: Pictures = np.minimum(obs.astype(np.float32) / 255 @ rgb_C3, 255).astype(np.uint8)
    return painted


def sprite(pictures: Pictures) -> tuple[bytes, int]:
    """All pictures in one PNG, row by row, and how many stand in a row."""
    steps, height, width, _ = pictures.shape
    columns = ceil(sqrt(steps * height / width))
    rows = ceil(steps / columns)
    sheet = np.zeros((rows * columns, height, width, 3), np.uint8)
    sheet[:steps] = pictures
    joined = sheet.reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    out = io.BytesIO()
    image_module().fromarray(joined.reshape(rows * height, columns * width, 3)).save(out, "PNG")
    return out.getvalue(), columns


def write_gif(pictures: Pictures, path: Path) -> None:
    """The episode as a film, its pixels enlarged without blur."""
    image = image_module()
    scale = max(1, GIF_SIDE // max(pictures.shape[1:3]))
    first, *rest = [
        image.fromarray(picture.repeat(scale, 0).repeat(scale, 1)).quantize(64) for picture in pictures
    ]
    first.save(path, "GIF", save_all=True, append_images=rest, duration=MILLISECONDS, loop=0)


def image_module() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise EdeError("Pictures need Pillow; install it with: pip install 'ede[report]'.") from None
    return Image
