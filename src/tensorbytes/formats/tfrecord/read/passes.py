"""What can be read any number of times, and one item after the other."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Passes(Generic[Item]):
    """Each `for` reads from the first item to the last; next() gives the next item of one such pass, and a `for` after
    it goes on from there."""

    _begun: Generator[Item, None, None] | None = None

    def _read(self) -> Generator[Item, None, None]:
        """One pass."""
        raise NotImplementedError

    def __iter__(self) -> Generator[Item, None, None]:
        if self._begun is not None and getattr(self._begun, "gi_frame", None) is not None:  # it has not ended
            return self._begun
        return self._read()

    def __next__(self) -> Item:
        if self._begun is None:
            self._begun = iter(self)
        return next(self._begun)

    def close(self) -> None:
        """End the pass that next() began."""
        if self._begun is not None:
            self._begun.close()
