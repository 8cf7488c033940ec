"""Batch after batch of the same records, as often as they are asked for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from typing import Any, Protocol

from tensorbytes.errors import UsageError
from tensorbytes.formats.tfrecord.read.batch import Batch
from tensorbytes.formats.tfrecord.read.passes import Passes


class BatchSource(Protocol):
    """The records that batches are made of."""

    def __len__(self) -> int: ...
    def read_batches(self, size: int, drop_last: bool, to: str | None) -> Generator[Batch, None, None]: ...
    def read_range(self, start: int, stop: int, to: str | None) -> Batch: ...


class Batches(Passes[Batch]):
    """What `Records.batches` gives. Each `for` reads the records from the first to the last; next() gives the next
    batch of one such pass, and a `for` after it goes on from there.

    Also a list of batches, by an index of the records: `len(batches)`, and `batches[i]`, which reads no other batch. It
    can be pickled. So torch's DataLoader takes it as it is, with batch_size=None and any number of workers.
    """

    def __init__(self, records: BatchSource, size: int, drop_last: bool, to: str | None) -> None:
        self._records, self._size, self._drop_last, self._to = records, size, drop_last, to

    def _read(self) -> Generator[Batch, None, None]:
        return self._records.read_batches(self._size, self._drop_last, self._to)

    def __len__(self) -> int:
        """How many batches there are; counts the records first, as len(records) does."""
        whole, rest = divmod(len(self._records), self._size)
        return whole + (rest > 0 and not self._drop_last)

    def __getitem__(self, index: Any) -> Batch:
        """Batch number i."""
        if isinstance(index, slice):
            raise UsageError("batches are taken one by one", expected="a number", got=repr(index))
        total = len(self)
        number = operator.index(index)
        if not -total <= number < total:
            raise IndexError(f"batch {number}: there are {total}")
        start = number % total * self._size
        return self._records.read_range(start, min(start + self._size, len(self._records)), self._to)

    def __repr__(self) -> str:
        return f"Batches({self._records!r}, {self._size})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Batches, (self._records, self._size, self._drop_last, self._to)
