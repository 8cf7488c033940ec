"""Columns as TensorFlow's feature specs ask for them: padded, sparse, or partitioned into ragged rows.

What a record's features must agree on is checked while its block is decoded, so that errors name the record. TensorFlow
leaves most of it unchecked, and then gives values of one record to another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes.budget import STRING_BYTES, Budget
from tensorbytes.errors import Hint, SchemaError
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, to_rows, to_value
from tensorbytes.formats.tfrecord.schema.specs import Indexed, Padded, Partition, Partitioned, Varying, Viewed
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value

# Makes the error for a row: its number, the splits of the steps if it is one, the name of the column, what was found.
Complaint: TypeAlias = "Callable[[int, Array | None, str, str], SchemaError]"
# The features of some records, by (whether it is a feature list, its key).
Parts: TypeAlias = "Mapping[tuple[bool, str], ColumnPart]"
_MOST_INT32 = (1 << 31) - 1


def arranged(columns: Mapping[str, Viewed], parts: Parts, complain: Complaint, budget: Budget) -> dict[str, ColumnPart]:
    """The columns that are made of the features of some records."""
    made = {}
    for name, column in columns.items():
        part = parts[column.in_lists, column.key]
        if isinstance(column.view, Partitioned):
            part = _Rows(name, column, parts, complain, budget).partitioned(column.view)
        elif isinstance(column.view, Indexed):
            part = _Rows(name, column, parts, complain, budget).indexed(column.view)
        made[name] = part
    return made


class _Level(NamedTuple):
    """The rows of one level of a ragged column: how long each is, and how many there are in each row above."""

    lengths: Array
    counts: Array


class _Rows:
    """The rows of one column: records, or the steps of feature lists."""

    def __init__(self, name: str, column: Viewed, parts: Parts, complain: Complaint, budget: Budget) -> None:
        self._name, self._in_lists, self._parts, self._budget = name, column.in_lists, parts, budget
        self._part = parts[column.in_lists, column.key]
        self._steps = self._part.splits[0] if column.in_lists else None
        self._complain = complain

    def _refuse(self, wrong: Array, words: Callable[[int], str]) -> None:
        """Raise for the first row that is wrong."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self._complain(row, self._steps, self._name, words(row))

    def _other(self, key: str) -> ColumnPart:
        """Another feature of the same rows."""
        part = self._parts[self._in_lists, key]
        if self._steps is not None and not np.array_equal(part.splits[0], self._steps):
            record = int(np.argmax(np.diff(part.splits[0]) != np.diff(self._steps)))
            raise self._complain(record, None, self._name, f"has not as many steps as {key!r}")
        return part

    # ---- ragged ----

    def partitioned(self, view: Partitioned) -> ColumnPart:
        part = self._part
        counts, size, values = np.diff(part.splits[-1]), math.prod(view.inner), part.values
        self._refuse(counts % size != 0, lambda row: f"has {counts[row]} values, not a multiple of {size}")
        counts = counts // size
        if part.strings is None and view.inner:
            values = values.reshape(-1, *view.inner)
        levels: list[Array] = []
        for partition in reversed(view.levels):
            lengths, counts = self._level(partition, counts)
            levels.insert(0, offsets_of(lengths))
        splits = [*part.splits[:-1], offsets_of(counts), *levels]
        if part.strings is not None:  # whose last splits count strings
            splits[-1] = splits[-1] * size
        return replace(part, values=values, splits=tuple(splits))

    def _level(self, partition: Partition, counts: Array) -> _Level:
        length = partition.length
        if partition.key:
            level = _LEVELS[partition.kind](self, partition.key, counts)
            rows = np.repeat(np.arange(len(counts)), level.counts)
            wrong = np.bincount(rows[level.lengths < 0], minlength=len(counts)) > 0
            self._refuse(wrong, lambda row: f"is partitioned by {partition.key!r}, which does not rise")
            covered = np.diff(offsets_of(level.lengths)[offsets_of(level.counts)])
            self._refuse(
                covered != counts,
                lambda row: f"has {counts[row]} items, and {partition.key!r} makes rows of {covered[row]}",
            )
            return level
        self._refuse(counts % length != 0, lambda row: f"has {counts[row]} rows, not a multiple of {length}")
        return _Level(np.full(int(counts.sum()) // length, length, np.int64), counts // length)

    def _places(self, key: str, counts: Array) -> tuple[Array, Array, Array]:
        """(the numbers of a partition, how many each row has, the row of each), all from 0 to what the row holds."""
        part = self._other(key)
        numbers, sizes = part.values, np.diff(part.splits[-1])
        rows = np.repeat(np.arange(len(sizes)), sizes)
        outside = (numbers < 0) | (numbers > counts[rows])
        if outside.any():
            item = int(np.argmax(outside))
            row = int(rows[item])
            got = f"is partitioned by {key!r}, which holds {numbers[item]} for {counts[row]} items"
            raise self._complain(row, self._steps, self._name, got)
        self._budget.copy(4 * numbers.nbytes, f"the rows of {self._name!r}", 0)
        return numbers, sizes, rows

    def row_lengths(self, key: str, counts: Array) -> _Level:
        numbers, sizes, _ = self._places(key, counts)
        return _Level(numbers, sizes)

    def row_limits(self, key: str, counts: Array) -> _Level:
        numbers, sizes, _ = self._places(key, counts)
        return _Level(_steps_up(numbers, sizes), sizes)

    def row_splits(self, key: str, counts: Array) -> _Level:
        numbers, sizes, _ = self._places(key, counts)
        starts = (offsets_of(sizes)[:-1])[sizes > 0]
        self._start_at_zero(key, numbers, sizes, starts)
        return _Level(np.delete(_steps_up(numbers, sizes), starts), np.maximum(sizes - 1, 0))

    def row_starts(self, key: str, counts: Array) -> _Level:
        numbers, sizes, _ = self._places(key, counts)
        starts = (offsets_of(sizes)[:-1])[sizes > 0]
        self._start_at_zero(key, numbers, sizes, starts)
        ends = np.empty_like(numbers)
        ends[:-1] = numbers[1:]
        ends[offsets_of(sizes)[1:][sizes > 0] - 1] = counts[sizes > 0]
        return _Level(ends - numbers, sizes)

    def _start_at_zero(self, key: str, numbers: Array, sizes: Array, starts: Array) -> None:
        wrong = np.zeros(len(sizes), bool)
        wrong[sizes > 0] = numbers[starts] != 0
        self._refuse(wrong, lambda row: f"is partitioned by {key!r}, which does not start at 0")

    def value_rowids(self, key: str, counts: Array) -> _Level:
        part = self._other(key)
        numbers, sizes = part.values, np.diff(part.splits[-1])
        self._refuse(sizes != counts, lambda row: f"has {counts[row]} items, and {key!r} names rows of {sizes[row]}")
        rows = np.repeat(np.arange(len(sizes)), sizes)
        wrong = np.zeros(len(sizes), bool)
        falls = np.empty(len(numbers), bool)
        falls[:1], falls[1:] = False, (numbers[1:] < numbers[:-1]) & (rows[1:] == rows[:-1])
        wrong[rows[falls | (numbers < 0)]] = True
        self._refuse(wrong, lambda row: f"is partitioned by {key!r}, which does not rise from 0")
        made = np.zeros(len(sizes), np.int64)
        made[sizes > 0] = numbers[offsets_of(sizes)[1:][sizes > 0] - 1]
        total = sum(made.tolist()) + len(made)  # in Python: they may be of any size
        self._budget.charge(16 * total, f"the rows of {self._name!r} that {key!r} names", 0)
        made[sizes > 0] += 1
        lengths = np.bincount(numbers + offsets_of(made)[:-1][rows], minlength=int(made.sum()))
        return _Level(lengths.astype(np.int64), made)

    # ---- sparse ----

    def indexed(self, view: Indexed) -> ColumnPart:
        part, splits = self._part, self._part.splits[-1]
        counts = np.diff(splits)
        found = []
        for key, size in zip(view.index_keys, view.size, strict=True):
            other = self._other(key)
            sizes = np.diff(other.splits[-1])
            self._refuse(sizes != counts, partial(_unequal, counts, sizes, key))
            outside = (other.values < 0) | (other.values >= size)
            if outside.any():
                item = int(np.argmax(outside))
                row = int(np.searchsorted(splits, item, side="right")) - 1
                got = f"has the index {other.values[item]} in {key!r}, outside its size {size}"
                raise self._complain(row, self._steps, self._name, got)
            found.append(other.values)
        self._budget.copy(8 * (len(found) + 2) * len(part), f"the indices of {self._name!r}", 0)
        indices = np.stack(found, axis=1)
        if view.sorted:
            return replace(part, indices=indices)
        rows = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((*reversed(found), rows))
        if (order[1:] >= order[:-1]).all():
            return replace(part, indices=indices)
        items = ColumnPart(part.values, part.strings).take(order)
        return replace(part, values=items.values, strings=items.strings, indices=indices[order])


_LEVELS: dict[str, Callable[[_Rows, str, Array], _Level]] = {
    "RowSplits": _Rows.row_splits,
    "RowLengths": _Rows.row_lengths,
    "RowStarts": _Rows.row_starts,
    "RowLimits": _Rows.row_limits,
    "ValueRowIds": _Rows.value_rowids,
}


def _unequal(counts: Array, sizes: Array, key: str, row: int) -> str:
    return f"has {counts[row]} values, and {key!r} indices of {sizes[row]}"


def _steps_up(numbers: Array, sizes: Array) -> Array:
    """How much each number adds to the one before it in its row, the first to 0."""
    before = np.zeros_like(numbers)
    before[1:] = numbers[:-1]
    before[(offsets_of(sizes)[:-1])[sizes > 0]] = 0
    return numbers - before


# ---- handing out -----------------------------------------------------------------


def to_column(part: ColumnPart, column: Viewed, budget: Budget) -> Value:
    """A column of some records as a neutral value."""
    view = column.view
    if isinstance(view, Varying | Indexed):
        return _sparse(part, view)
    value = to_value(part, column.feature)
    if isinstance(view, Padded):
        return _padded(value, view, budget)
    if isinstance(view, Partitioned) and isinstance(value, Ragged):
        return replace(value, splits=tuple(_splits_of(level, view.splits_dtype) for level in value.splits))
    return value


def _splits_of(level: Array, dtype: str) -> Array:
    if dtype == "int32" and len(level) and int(level[-1]) > _MOST_INT32:
        raise SchemaError(
            f"row splits of int32 can't count {level[-1]} values",
            hints=[Hint(purpose="give the RaggedFeature row_splits_dtype=tf.int64, or take smaller batches")],
        )
    return level.astype(dtype)


def _padded(value: Value, view: Padded, budget: Budget) -> Tensor | Strings:
    assert isinstance(value, Ragged)
    lengths = np.diff(value.splits[0])
    count = len(lengths) * int(lengths.max(initial=0)) * math.prod(value.values.shape[1:])
    each = STRING_BYTES if isinstance(value.values, Strings) else 8
    budget.copy(count * each, f"filling up {len(lengths)} rows to the longest", 0)
    padded = value.pad(view.fill)
    if isinstance(padded, Strings):
        return padded
    return Tensor(value.values.header.dtype, padded.shape, padded.reshape(-1).view(np.uint8))


def _sparse(part: ColumnPart, view: Varying | Indexed) -> Sparse:
    if part.strings is None:
        values: Tensor | Strings = Tensor(str(part.values.dtype), part.values.shape, part.values.view(np.uint8))
    else:
        values = Strings((len(part.strings) - 1,), part.strings, part.values)
    columns: list[Array] = []
    shape = [len(part)]
    for splits in part.splits:
        lengths = np.diff(splits)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(rows)) - splits[:-1][rows]
        columns = [*(column[rows] for column in columns or [np.arange(len(lengths))]), within]
        shape.append(int(lengths.max(initial=0)))
    if isinstance(view, Varying):
        return Sparse("coo", tuple(shape), (np.stack(columns, axis=1),), values)
    assert part.indices is not None
    return Sparse("coo", (len(part), *view.size), (np.column_stack([columns[0], part.indices]),), values)


def to_items(part: ColumnPart, column: Viewed, budget: Budget) -> list[Any] | Array:
    """A column of some records as one item for each, without the dimension of the records."""
    view = column.view
    if view is None or (not column.depth and isinstance(view, Padded | Partitioned)):
        return to_rows(part, column.feature)
    return [_single(to_column(part.rows(row, row + 1), column, budget)) for row in range(len(part))]


def _single(value: Value) -> Any:
    """The only row of a column."""
    if isinstance(value, Sparse):
        (indices,) = value.parts
        return Sparse("coo", value.shape[1:], (indices[:, 1:],), value.values)
    if isinstance(value, Ragged):
        return Ragged(value.values, value.splits[1:])
    return value.tolist()[0] if isinstance(value, Strings) else value.numpy()[0]
