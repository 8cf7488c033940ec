"""Features of which nothing but empty lists was seen: what they hold is not told yet.

The records that have one wait, encoded but for these features, until a value tells the type; the writer decides when
they have waited for too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorbytes.formats.tfrecord.schema import ColumnFeature
from tensorbytes.formats.tfrecord.write.assemble import KernelColumn
from tensorbytes.formats.tfrecord.write.collect import collector
from tensorbytes.formats.tfrecord.write.encode import Misfit, flattened
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
        self._shapes: dict[str, dict[str, Any]] = {}  # each of them once
        self._waiting: list[Waiting] = []
        self.rows = self._nbytes = 0

    def __bool__(self) -> bool:
        return bool(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def names(self) -> list[str]:
        return list(self._values)

    def check(self, name: str, items: Iterable[Any], is_list: bool) -> None:
        """Raise unless more empty lists can be of one feature with those it had: they are as deep. A feature list of
        no steps is as deep as any."""
        depths = {depth for value in self.shapes(name) if (depth := _depth(value, is_list))}
        for row, item in enumerate(items):
            depth = None if item is None else _depth(item, is_list)
            if depth and depths and depth not in depths:
                error = Misfit(f"empty lists of {depths.pop()} dimensions, as before", f"one of {depth}")
                error.row = row
                raise error
            depths |= {depth} if depth else set()

    def add(self, name: str, record: int, value: Any) -> None:
        self._values.setdefault(name, {})[record] = value
        self._shapes.setdefault(name, {}).setdefault(repr(value), value)

    def forget(self, record: int) -> None:
        """A record is not kept after all."""
        for name, values in list(self._values.items()):
            values.pop(record, None)
            if not values:
                del self._values[name], self._shapes[name]

    def shapes(self, name: str) -> list[Any]:
        """The empty lists that a feature had, each once."""
        return list(self._shapes.get(name, {}).values())

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
        del self._shapes[name]
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


def _depth(value: Any, is_list: bool) -> int | None:
    """How many dimensions a list has; raises over lists of different lengths in it."""
    _, shape = flattened(value)
    return None if is_list and not shape[0] else len(shape)


def _copied(column: KernelColumn) -> KernelColumn:
    """A column that shares no memory: a batch's is the caller's."""
    owned: list[Any] = [part.copy() if isinstance(part, np.ndarray) else part for part in column]
    return KernelColumn(*owned)


def _nbytes(column: KernelColumn) -> int:
    return sum(bytes_view(part).nbytes for part in column if isinstance(part, bytes | np.ndarray))
