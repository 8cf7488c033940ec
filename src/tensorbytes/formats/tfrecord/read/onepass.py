"""Records to columns in one pass: the kernel verifies, walks and decodes a block in one call.

Fixed shapes have arrays of exactly their size. How many values the others have shows only when they are read: their
arrays are as large as the block before suggests, and grow where that is too small. A record of unusual form is
rewritten by the general parser, and the pass goes on after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbytes import _wire
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, TensorbytesError
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files import framing
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.read.columns import ColumnPart
from tensorbytes.formats.tfrecord.read.lists import ListReader
from tensorbytes.formats.tfrecord.read.located import record_ends, record_in_one_piece, usual_record
from tensorbytes.formats.tfrecord.read.plan import ColumnLayout, Plan
from tensorbytes.tensor import Array

_DONE, _DAMAGED, _ODD, _ROOM = range(4)
# The five arrays of a column, in the kernel's order.
_VALUES, _STRINGS, _SPLITS, _STEPS, _PRESENT = range(5)
_ARRAYS = 5
_INT64, _BOOL = np.dtype(np.int64), np.dtype(bool)
# What is allowed for above what the last block had.
_SPARE = 1.125
_LEAST = 4
# The first records, which show how much room a block takes.
_FEW = 64


def parts_of(block: RecordBlock, plan: Plan) -> dict[str, ColumnPart] | None:
    """The columns of a block's records, by name; None where some record does not fit. Damage raises CorruptError."""
    try:
        if not plan.layout.learned and len(block.records) > 2 * _FEW:
            some = block._replace(records=block.records[:_FEW])
            few = _Columns(some._replace(data=block.data[: record_ends(some).max()]), plan, plan.budget(block))
            if few.fits and few.fill():
                few.finished()
        columns = _Columns(block, plan, plan.budget(block))
        return columns.finished() if columns.fits and columns.fill() else None
    except CorruptError:
        raise
    except TensorbytesError:
        return None  # the same again, step by step, says where


class _Columns:
    """The arrays of all columns of a block."""

    def __init__(self, block: RecordBlock, plan: Plan, budget: Budget) -> None:
        self._block, self._plan, self._layout, self._budget = block, plan, plan.layout, budget
        self._count, self._most = len(block.records), len(block.data)
        columns, usual = self._layout.columns, self._layout.usual
        guess = max(self._most // max(2 * self._count * len(columns), 1), 1)
        # No memory on a schema's word: a value takes a byte at least.
        self.fits = self._count * self._layout.widest <= self._most
        self._arrays: list[Array | None] = []
        self._held = 0  # bytes of all arrays
        if self.fits:
            for column, known in zip(columns, usual, strict=True):
                self._arrays += self._made(column, known or (guess, 1, 4))

    def _made(self, column: ColumnLayout, each: tuple[float, float, float]) -> list[Array | None]:
        count, width, array = self._count, column.width, self._array
        values, strings, splits, steps, present = (None,) * _ARRAYS
        lists = self._room(each[2], 2) if column.in_lists else count
        if column.kind == example.BYTES:
            strings = array((self._dense(lists, width, 2) if width >= 0 else self._room(each[1], 2)) + 1, _INT64)
            values = array(self._room(each[0], 1), column.dtype)
        else:
            values = array(self._dense(lists, width, 1) if width >= 0 else self._room(each[0], 1), column.dtype)
        if column.varies:
            splits = array(lists + 1, _INT64)
        if column.in_lists:
            steps = array(count + 1, _INT64)
        if column.optional:
            present = array(count, _BOOL)
        return [values, strings, splits, steps, present]

    def _array(self, count: int, dtype: np.dtype[Any]) -> Array:
        """An array, if there is room for it beside the others."""
        self._held += count * dtype.itemsize
        self._budget.check(self._held, "columns", self._block.base)
        return self._block.memory.array(count, dtype)

    def _room(self, each: float, size: int) -> int:
        """For how many items to allow, where a record has so many, and one takes so many bytes at least."""
        return min(int(_SPARE * each * self._count) + _LEAST, self._most // size + 1)

    def _dense(self, lists: int, width: int, size: int) -> int:
        """The items of so many lists, one of which takes so many bytes at least; there may be fewer lists than that."""
        return min(lists * width, self._most // size + 1)

    def fill(self) -> bool:
        """Whether all records fit."""
        block, row, count = self._block, 0, self._count
        data, verify = block.data, not block.verified
        while True:
            done, outcome, column = self._decode(data, block.records[row:], verify, row)
            row += done
            if outcome == _DONE:
                return row == count
            if outcome == _DAMAGED:
                raise framing.damaged(block, row)
            if outcome == _ROOM:
                self._grow(column)
            elif not self._add_odd(row):
                return False
            else:
                row += 1

    def _decode(self, data: Any, records: Array, verify: bool, row: int) -> tuple[int, int, int]:
        layout = self._layout
        return _wire.example_decode(
            data, records, verify, row, layout.keys, layout.offsets, layout.fields, layout.features, self._plan.closed,
            self._arrays,
        )  # fmt: skip

    def _add_odd(self, row: int) -> bool:
        """Whether a record fits once it is in the usual form. For most it is enough that they come in one piece."""
        for rewrite in record_in_one_piece, usual_record:
            written = rewrite(self._block, row, self._plan.sequence, self._budget)
            if written is not None and self._add_alone(written, row):
                return True
        return False

    def _add_alone(self, written: bytes, row: int) -> bool:
        record = np.array([[0, len(written)]], np.int64)
        while True:
            _, outcome, column = self._decode(written, record, False, row)
            if outcome != _ROOM:
                return bool(outcome == _DONE)
            self._grow(column)

    def _grow(self, column: int) -> None:
        """Twice the room for what varies in a column."""
        first = _ARRAYS * column
        in_lists = self._layout.columns[column].in_lists
        for kind in (_VALUES, _STRINGS, _SPLITS) if in_lists else (_VALUES, _STRINGS):
            old = self._arrays[first + kind]
            if old is None:
                continue
            new = self._array(2 * len(old) + _LEAST, old.dtype)
            new[: len(old)] = old
            self._arrays[first + kind] = new
            self._held -= old.nbytes

    # ---- what comes of them ------------------------------------------------------

    def finished(self) -> dict[str, ColumnPart]:
        layout, arrays = self._layout, self._arrays
        layout.learned = True
        return {
            column.plan.name: self._part(number, column, arrays[_ARRAYS * number : _ARRAYS * (number + 1)])
            for number, column in enumerate(layout.columns)
        }

    def _part(self, number: int, column: ColumnLayout, arrays: list[Array | None]) -> ColumnPart:
        values, strings, splits, steps, present = arrays
        assert values is not None
        lists = self._count if steps is None else int(steps[self._count])
        items = lists * column.width if splits is None else int(splits[lists])
        if splits is not None:
            splits = _first(splits, lists + 1)
        if strings is not None:
            size, strings = int(strings[items]), _first(strings, items + 1)
            self._note(number, size, items, lists)
            self._budget.copy(size, column.what, self._block.base)
            self._budget.strings(items, self._block.base)
            data = _first(values, size)
            if column.plain:
                return ColumnPart(data, strings)
            if splits is None:
                splits = np.arange(lists + 1) * column.width
            return self._reader(column).of_strings(strings, data, splits, present, steps)
        self._note(number, items, 0, lists)
        self._budget.copy(8 * items, column.what, self._block.base)
        if column.plain:
            return ColumnPart(_first(values, items).reshape(lists, *column.shape))
        return self._reader(column).of_numbers(_first(values, items), splits, lists, present, steps)

    def _reader(self, column: ColumnLayout) -> ListReader:
        return ListReader(self._block, column.plan, self._plan.origin, self._budget)

    def _note(self, number: int, values: int, strings: int, lists: int) -> None:
        count = max(self._count, 1)
        self._layout.usual[number] = values / count, strings / count, lists / count


def _first(array: Array, count: int) -> Array:
    """The first items of an array. Where little of it is used, it is not kept for them."""
    if len(array) == count:
        return array
    return array[:count] if 2 * count >= len(array) else array[:count].copy()
