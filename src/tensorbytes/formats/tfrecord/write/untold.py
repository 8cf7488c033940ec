"""Features of which nothing but empty lists was seen: what they hold is not told yet.

The records that have one wait, encoded but for these features, until a value tells the type; the writer decides when
they have waited for too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorbytes.formats.tfrecord.schema import ColumnFeature
from tensorbytes.formats.tfrecord.write.assemble import KernelColumn
from tensorbytes.formats.tfrecord.write.collect import collector
from tensorbytes.typing import bytes_view

# How many records wait, at most, and how many bytes of them.
MOST_ROWS = 1 << 16
MOST_BYTES = 1 << 25


@dataclass(frozen=True, slots=True)
class Waiting:
    """Some records, as columns for the kernel: (whether it is a feature list, the column)."""

    first: int  # the number of the first one
    count: int
    columns: list[tuple[bool, KernelColumn]]


class Untold:
    """The features of a writer, by name, and the records that wait for them."""

    def __init__(self) -> None:
        self._values: dict[str, dict[int, Any]] = {}  # the empty lists of a feature, by the numbers of records
        self._waiting: list[Waiting] = []
        self.rows = self._nbytes = 0

    def __bool__(self) -> bool:
        return bool(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def names(self) -> list[str]:
        return list(self._values)

    def add(self, name: str, record: int, value: Any) -> None:
        self._values.setdefault(name, {})[record] = value

    def shapes(self, name: str) -> list[Any]:
        """The empty lists that a feature had, each once."""
        return list({repr(value): value for value in self._values[name].values()}.values())

    def is_everywhere(self, name: str, first: int, count: int) -> bool:
        """Whether all records of a writer have the feature: `count` of them, from number `first` on."""
        return len(self._values[name]) == count - first

    @property
    def is_too_long(self) -> bool:
        """Whether nothing more should wait."""
        return self.rows >= MOST_ROWS or self._nbytes >= MOST_BYTES

    def hold(self, first: int, count: int, columns: list[tuple[bool, KernelColumn]]) -> None:
        """Let records wait. They have memory of their own from here on."""
        held = [(is_list, _copied(column)) for is_list, column in columns]
        self._waiting.append(Waiting(first, count, held))
        self.rows += count
        self._nbytes += sum(_nbytes(column) for _, column in held)

    def tell(self, name: str, told: ColumnFeature) -> None:
        """Give the records that wait their feature, which is known now."""
        values = self._values.pop(name)
        for held in self._waiting:
            numbers = range(held.first, held.first + held.count)
            if any(number in values for number in numbers):
                collected = collector(told.name, replace(told.feature, optional=True), told.is_list)
                for number in numbers:
                    collected.add(values.get(number))
                held.columns.append((told.is_list, collected.take()))

    def release(self) -> Iterator[Waiting]:
        """The records, whole now, in the order of their numbers; keys are sorted, as those of all records."""
        waiting, self._waiting = self._waiting, []
        self.rows = self._nbytes = 0
        for held in waiting:
            held.columns.sort(key=lambda pair: (pair[0], pair[1].key))
            yield held


def _copied(column: KernelColumn) -> KernelColumn:
    """A column that shares no memory: a batch's is the caller's."""
    owned: list[Any] = [part.copy() if isinstance(part, np.ndarray) else part for part in column]
    return KernelColumn(*owned)


def _nbytes(column: KernelColumn) -> int:
    return sum(bytes_view(part).nbytes for part in column if isinstance(part, bytes | np.ndarray))
