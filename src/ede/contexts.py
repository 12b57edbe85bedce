"""Contexts as data: which levels, layouts or reset seeds a set of lanes may play."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

from ede.errors import EdeError

LIMIT = 2**31 - 1
"""Context ids are 31-bit: Procgen draws levels from [0, 2³¹ − 1)."""


@dataclass(frozen=True)
class Contexts:
    """The half-open range of context ids ``[start, stop)``; an episode draws one of them at random."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        for name, end in (("start", self.start), ("stop", self.stop)):
            try:
                object.__setattr__(self, name, index(end))
            except TypeError:
                raise EdeError(f"Contexts are whole numbers; got {end!r}.") from None
        if not 0 <= self.start < self.stop <= LIMIT:
            raise EdeError(
                f"Contexts must satisfy 0 <= start < stop <= {LIMIT}; got {self.start} and {self.stop}."
            )

    @classmethod
    def range(cls, start: int, stop: int) -> Contexts:
        """The ids ``start … stop − 1``, such as the paper's 200 training levels ``range(0, 200)``."""
        return cls(start, stop)

    @classmethod
    def full(cls) -> Contexts:
        """The full distribution, training contexts included: the paper's test set."""
        return cls(0, LIMIT)

    def beyond(self) -> Contexts:
        """Every context above this set: a test set that shares nothing with it."""
        if self.stop >= LIMIT:
            raise EdeError("No context lies beyond the full distribution; choose a training range first.")
        return Contexts(self.stop, LIMIT)

    @property
    def is_full(self) -> bool:
        return (self.start, self.stop) == (0, LIMIT)

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, context: int) -> bool:
        return self.start <= context < self.stop

    def __str__(self) -> str:
        return "full" if self.is_full else f"{self.start}..{self.stop - 1}"

    @classmethod
    def parse(cls, text: str) -> Contexts:
        """Read what ``str`` writes, also ``START:STOP``: ``full``, ``0..199``, ``0:200``."""
        if text == "full":
            return cls.full()
        try:
            if ".." in text:
                first, last = text.split("..")
                return cls(int(first), int(last) + 1)
            first, stop = text.split(":")
            return cls(int(first), int(stop))
        except ValueError:
            raise EdeError(f"'{text}' is no set of contexts; write full, 0..199 or 0:200.") from None
