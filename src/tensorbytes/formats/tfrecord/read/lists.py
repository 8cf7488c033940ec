"""The values of one feature in the records of a block, found by the kernel and checked against the schema."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.budget import Budget
from tensorbytes.errors import SchemaError
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.read import stored
from tensorbytes.formats.tfrecord.read.columns import ColumnPart
from tensorbytes.formats.tfrecord.read.plan import ColumnPlan
from tensorbytes.tensor import Array

_KIND_NAMES = ("nothing", "bytes", "float", "int64")


class Unusual(Exception):
    """A list that is malformed, or sound but not of the form that the kernel reads."""


class ListReader:
    """Reads one column of one block."""

    def __init__(self, block: RecordBlock, column: ColumnPlan, origin: str, budget: Budget) -> None:
        self.block, self.column, self.origin, self.budget = block, column, origin, budget
        self.feature, self.array = column.feature, block.memory.array

    def read(self, kinds: Array, spans: Array) -> ColumnPart:
        """The column, step by step: what does not fit is told."""
        present = self._present(kinds)
        if not self.column.in_lists:
            self._check_kinds(kinds, None)
            return self._values(spans, present, None)
        steps, step_kinds, step_spans = steps_of(self.block, spans)
        self._check_kinds(step_kinds, steps)
        return self._values(step_spans, present, steps)

    def _present(self, kinds: Array) -> Array | None:
        """Which records have the feature; None where all must have it."""
        present: Array = kinds != 0
        if self.column.optional:
            return present
        if not present.all():
            raise self._error(int(np.argmin(present)), None, "is missing")
        return None

    def _check_kinds(self, kinds: Array, steps: Array | None) -> None:
        wrong = (kinds != self.feature.kind_number) & (kinds != 0)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise self._error(index, steps, f"is a list of {_KIND_NAMES[kinds[index]]}")

    def _values(self, spans: Array, present: Array | None, steps: Array | None) -> ColumnPart:
        if self.feature.kind_number == example.BYTES:
            return self._bytes(spans, present, steps)
        if not self._is_dense(steps):
            splits = self._count(spans)
            values, stop = self._filled(spans, int(splits[-1]), -1)
            if stop < len(spans):
                raise Unusual
            return self.of_numbers(values, splits, len(spans), present, steps)
        rows = self._rows(present, steps)
        some = spans if rows is None else spans[rows]
        return self.of_numbers(self._fixed(some, rows, steps), None, len(spans), present, steps)

    def _is_dense(self, steps: Array | None) -> bool:
        """Whether each record (or step) has the same number of values, if only by default."""
        feature = self.feature
        return feature.size is not None and (
            steps is not None or not self.column.optional or feature.default is not None
        )

    def _rows(self, present: Array | None, steps: Array | None) -> Array | None:
        """The records that have the feature; None if all do."""
        return None if steps is not None or present is None or present.all() else np.flatnonzero(present)

    def _fixed(self, spans: Array, rows: Array | None, steps: Array | None) -> Array:
        size = self.feature.size or 0
        if len(spans) * size > len(self.block.data):  # more than the records hold: no memory on a schema's word
            stop = int(np.argmax(np.diff(self._count(spans)) != size))
        else:
            values, stop = self._filled(spans, len(spans) * size, size)
            if stop == len(spans):
                return values
        count = self._count(spans[stop : stop + 1])[-1]
        if count == size:  # the right number, so something else is unusual
            raise Unusual
        raise self._error(stop if rows is None else int(rows[stop]), steps, f"has {count} values")

    def _filled(self, spans: Array, total: int, width: int) -> tuple[Array, int]:
        """(all values end to end, how many lists come before one that is malformed or has another number of them)"""
        self._charge(8 * total)
        values = self.array(total, np.float32 if self.feature.kind_number == example.FLOAT else np.int64)
        return values, _wire.example_fill(self.block.data, spans, self.feature.kind_number, width, values)

    # ---- what the kernel found, as the schema has it ---------------------------------
    # Of `lists` lists, one for each record, or, with `steps`, for each step.

    def of_numbers(
        self, values: Array, splits: Array | None, lists: int, present: Array | None, steps: Array | None
    ) -> ColumnPart:
        """A column of these values, which lie end to end."""
        if self._is_dense(steps):
            rows = self._rows(present, steps)
            values = values.reshape(lists if rows is None else len(rows), *(n or 0 for n in self.feature.shape))
            values = self._restored(values, rows, steps)
            if rows is not None:
                values = stored.with_default(self.feature, values, rows, lists, self.budget)
            return self._around(ColumnPart(values), present, steps)
        assert splits is not None
        values = self._restored(values, None, steps, splits)
        missing = present if steps is None else None
        part = stored.shaped(values, splits, self.feature, lambda index, got: self._error(index, steps, got), missing)
        return self._around(part, present, steps)

    def of_strings(
        self, strings: Array, data: Array, splits: Array, present: Array | None, steps: Array | None
    ) -> ColumnPart:
        """A column of lists of bytes; string i is data[strings[i]:strings[i + 1]]. They are charged for already."""
        missing = present if steps is None else None
        part = stored.from_strings(
            strings,
            data,
            splits,
            self.feature,
            missing,
            lambda index, got: self._error(index, steps, got),
            self.budget,
        )
        return self._around(part, present, steps)

    def _around(self, part: ColumnPart, present: Array | None, steps: Array | None) -> ColumnPart:
        if present is None and steps is None:
            return part
        return replace(part, splits=part.splits if steps is None else (steps, *part.splits), present=present)

    def _count(self, spans: Array) -> Array:
        splits = self.array(len(spans) + 1, np.int64)
        if _wire.example_count(self.block.data, spans, self.feature.kind_number, splits)[0] < len(spans):
            raise Unusual
        return splits

    def _charge(self, size: int) -> None:
        self.budget.copy(size, f"column {self.column.name!r}", self.block.base)

    def _restored(self, values: Array, rows: Array | None, steps: Array | None, splits: Array | None = None) -> Array:
        """The values in the schema's dtype, which must hold each of them exactly."""
        wanted = dtypes.to_numpy(self.feature.dtype)
        if values.dtype == wanted:
            return values
        out, wrong = stored.restored(values, wanted)
        if wrong is not None:
            item = int(np.argmax(wrong.reshape(-1)))
            if splits is not None:
                index = int(np.searchsorted(splits, item, side="right")) - 1
            else:
                index = item // max(math.prod(values.shape[1:]), 1)
                index = index if rows is None else int(rows[index])
            raise self._error(index, steps, f"holds {values.reshape(-1)[item]}")
        return out

    def _bytes(self, spans: Array, present: Array | None, steps: Array | None) -> ColumnPart:
        splits = self.array(len(spans) + 1, np.int64)
        stop, size = _wire.example_count(self.block.data, spans, example.BYTES, splits)
        if stop < len(spans):
            raise Unusual
        self._charge(size)
        self.budget.strings(int(splits[-1]), self.block.base)
        strings, data = self.array(int(splits[-1]) + 1, np.int64), self.array(size, np.uint8)
        _wire.example_fill_bytes(self.block.data, spans, strings, data)
        return self.of_strings(strings, data, splits, present, steps)

    def _error(self, index: int, steps: Array | None, got: str) -> SchemaError:
        """What is wrong with a record's feature; with `steps`, `index` is that of a step."""
        index, where = place_of(index, steps)
        return SchemaError(
            f"record {self.block.first + index}: feature {self.column.name!r}{where} {got}; "
            f"{self.origin} says {self.feature.describe()}",
            path=self.block.path,
            record=self.block.first + index,
            tensor=self.column.name,
        )


def steps_of(block: RecordBlock, spans: Array) -> tuple[Array, Array, Array]:
    """(running number of steps, the kind of each, where its list lies) of feature lists."""
    outer = np.empty(len(spans) + 1, np.int64)
    if _wire.example_steps(block.data, spans, outer, None, None) < len(spans):
        raise Unusual
    total = int(outer[-1])
    kinds, steps = block.memory.array(total, np.uint8), block.memory.array((total, 2), np.int64)
    _wire.example_steps(block.data, spans, outer, kinds, steps)
    return outer, kinds, steps


def place_of(index: int, steps: Array | None) -> tuple[int, str]:
    """(the record of an index, words about the step in it); with `steps`, `index` is that of a step."""
    if steps is None:
        return index, ""
    record = int(np.searchsorted(steps, index, side="right")) - 1
    return record, f", step {index - int(steps[record])}"
