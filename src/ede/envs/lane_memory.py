"""More lanes than fit are refused before one of them is made."""

from __future__ import annotations

from ede.errors import EdeError
from ede.memory import available_memory


def check(task: str, lanes: int, bytes_a_lane: int) -> None:
    available = available_memory()
    if lanes * bytes_a_lane > available:
        raise EdeError(
            f"{lanes} lanes of {task} need about {lanes * bytes_a_lane / 2**30:.1f} GiB and "
            f"{available / 2**30:.1f} GiB are free; ask for at most {available // bytes_a_lane} lanes."
        )
