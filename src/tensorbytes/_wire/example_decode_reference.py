"""Records to columns in one pass: the twin of example_decode.c.

Records are taken one after the other, each whole or not at all:

    verify    the checksum behind the payload
    walk      the usual form of a message, as example_reference.py has it
    add       the values of each wanted feature to its column

A column has up to five arrays, None for those that it needs not; of the running numbers the first is 0.

    values     float32, int64, or the bytes of strings
    strings    bytes so far, of each string                bytes
    splits     values (strings) so far, of each list       where the width is -1, and of optional features
    steps      lists so far, of each record                feature lists
    present    whether a record has the feature            optional ones

A record is odd if it is of unusual form or malformed, if a key comes twice, if it lacks a feature that is not optional,
or has another kind or number of values; and, where that is said, if it has a key that is not wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tensorbytes._wire.common import mask
from tensorbytes._wire.example_reference import decode_varints, each_run, enter, entries, varints
from tensorbytes._wire.example_write_reference import BYTES, FLOAT, INT64, Array, items_of, known_kind, rising
from tensorbytes._wire.reference import crc32c
from tensorbytes.typing import Buffer, bytes_view

_DONE, _DAMAGED, _ODD, _ROOM = range(4)
_ARRAYS = 5


class _Stop(Exception):
    """A record that can't be added."""

    def __init__(self, outcome: int, column: int = 0) -> None:
        super().__init__(outcome)
        self.outcome, self.column = outcome, column


def example_decode(
    buffer: Buffer, records: Buffer, verify: int, row: int, key_data: Buffer, key_offsets: Buffer, fields: Buffer,
    features: int, closed: int, arrays: Sequence[Buffer | None],
) -> tuple[int, int, int]:  # fmt: skip
    """Add records to columns that hold `row` of them; (how many were added, why no more, the column without room).

    The keys are those of `features` features, then those of feature lists, each of them rising. For each there is
    (kind, optional, width) in `fields`, the width being the number of values that a list must have, -1 for any; and
    five arrays. Why no more: 0 all are added, 1 the checksum differs, 2 the record is odd, 3 a column has no room.
    What stands in the arrays behind the records that were added is undefined.
    """
    data = bytes_view(buffer)
    places = items_of(records, np.int64)
    places = places[: len(places) // 2 * 2].reshape(-1, 2)
    after = 4 if verify else 0
    if (places < 0).any() or (places[:, 0] > len(data) - after - places[:, 1]).any():
        raise ValueError("a record is outside the buffer")
    names = bytes_view(key_data)
    bounds = items_of(key_offsets, np.int64)
    bounds = rising(bounds, 0, len(bounds) - 1, len(names))
    keys = [bytes(names[start:stop]) for start, stop in pairwise(bounds.tolist())]
    told = items_of(fields, np.int64)
    told = told[: len(told) // 3 * 3].reshape(-1, 3)
    if min(row, features) < 0 or closed not in (0, 1) or verify not in (0, 1):
        raise IndexError("row, features, closed or verify is out of range")
    if features > len(keys) or len(told) != len(keys) or len(arrays) != _ARRAYS * len(keys):
        raise ValueError("each key has a column of five arrays")
    maps = [keys[:features], keys[features:]]
    if any(one >= other for group in maps for one, other in pairwise(group)):
        raise ValueError("keys must rise")
    columns = []
    for number, (kind, optional, width) in enumerate(told.tolist()):
        own = arrays[_ARRAYS * number : _ARRAYS * (number + 1)]
        columns.append(_Column(number, number >= features, kind, optional, width, own))
    for column in columns:
        column.settle(row)
    wanted = [{key: columns[number] for number, key in enumerate(maps[0])}]
    wanted.append({key: columns[features + number] for number, key in enumerate(maps[1])})
    for done, (start, size) in enumerate(places.tolist()):
        end = start + size
        if verify and mask(crc32c(data[start:end])) != int.from_bytes(data[end : end + 4], "little"):
            return done, _DAMAGED, 0
        try:
            _add_record(data, start, end, wanted, bool(closed), columns, row + done)
        except _Stop as stop:
            return done, stop.outcome, stop.column
    return len(places), _DONE, 0


def _add_record(
    data: memoryview,
    at: int,
    end: int,
    wanted: list[dict[bytes, _Column]],
    closed: bool,
    columns: list[_Column],
    row: int,
) -> None:
    seen: set[int] = set()
    for in_lists, tag in enumerate((0x0A, 0x12)):
        if at == end or data[at] != tag:
            continue
        start, stop = enter(data, at, end, tag)
        if stop < 0:
            raise _Stop(_ODD)
        at = stop
        if in_lists and not wanted[1] and not closed:
            continue
        for entry in entries(data, start, stop):
            if entry is None:
                raise _Stop(_ODD)
            key, first, last = entry
            column = wanted[in_lists].get(key)
            if column is None:
                if closed:
                    raise _Stop(_ODD)
                continue
            if column.number in seen:  # of a key that comes twice, the last counts
                raise _Stop(_ODD)
            if not in_lists and first == last:  # a Feature without a kind is a missing one
                continue
            seen.add(column.number)
            column.add(data, first, last, row)
    if at != end:
        raise _Stop(_ODD)
    for column in columns:
        if column.number not in seen:
            column.add_nothing(row)


class _Column:
    def __init__(
        self, number: int, in_lists: bool, kind: int, optional: int, width: int, arrays: Sequence[Buffer | None]
    ) -> None:
        known_kind(kind)
        if optional not in (0, 1) or width < -1:
            raise ValueError("a column is of an unknown kind")
        needed = True, kind == BYTES, width < 0 or (optional and not in_lists), in_lists, optional
        if any((array is not None) != bool(need) for array, need in zip(arrays, needed, strict=True)):
            raise ValueError("a column has arrays that it does not need, or lacks some")
        self.number, self.in_lists, self.kind, self.optional, self.width = number, in_lists, kind, optional, width
        self.values = items_of(arrays[0], {BYTES: np.uint8, FLOAT: np.uint32, INT64: np.int64}[kind])
        self.strings, self.splits, self.steps = (
            None if array is None else items_of(array, np.int64, 1) for array in arrays[1:4]
        )
        self.present = None if arrays[4] is None else items_of(arrays[4], np.uint8)
        self.lists = self.items = self.used = 0  # lists, values or strings, and values or bytes so far

    def settle(self, row: int) -> None:
        """Stand where `row` records end."""
        if row == 0:
            for array in (self.strings, self.splits, self.steps):
                if array is not None:
                    array[0] = 0
        try:
            self.lists = row if self.steps is None else _at(self.steps, row)
            self.items = self.lists * self.width if self.splits is None else _at(self.splits, self.lists)
            self.used = self.items if self.strings is None else _at(self.strings, self.items)
            fits = self.present is None or row <= len(self.present)
        except IndexError:
            fits = False
        if not fits or self.used > len(self.values):
            raise ValueError("the columns don't hold so many records")

    def add(self, data: memoryview, at: int, end: int, row: int) -> None:
        if self.steps is None:
            self._add_list(data, at, end)
        else:
            self._need(row + 1 < len(self.steps))
            while at < end:
                start, stop = enter(data, at, end, 0x0A)
                if stop < 0:
                    raise _Stop(_ODD)
                self._add_list(data, start, stop)
                at = stop
            self.steps[row + 1] = self.lists
        if self.present is not None:
            self._need(row < len(self.present))
            self.present[row] = 1

    def add_nothing(self, row: int) -> None:
        """A record that lacks the feature."""
        if self.present is None:
            raise _Stop(_ODD)
        self._need(row < len(self.present))
        self.present[row] = 0
        if self.steps is None:
            self._end_list()
        else:
            self._need(row + 1 < len(self.steps))
            self.steps[row + 1] = self.lists

    def _need(self, room: bool) -> None:
        if not room:
            raise _Stop(_ROOM, self.number)

    def _end_list(self) -> None:
        if self.splits is not None:
            self._need(self.lists + 1 < len(self.splits))
            self.splits[self.lists + 1] = self.items
        self.lists += 1

    def _add_list(self, data: memoryview, at: int, end: int) -> None:
        before = self.items
        if at < end:
            start, stop = enter(data, at, end, self.kind << 3 | 2)
            if stop != end:
                raise _Stop(_ODD)
            for first, last in each_run(data, start, stop, self.kind):
                if last < 0:
                    raise _Stop(_ODD)
                left = -1 if self.width < 0 else self.width - (self.items - before)
                (self._add_string if self.kind == BYTES else self._add_numbers)(data[first:last], left)
        if self.width >= 0 and self.items - before != self.width:
            raise _Stop(_ODD)
        self._end_list()

    def _add_string(self, content: memoryview, left: int) -> None:
        if left == 0:
            raise _Stop(_ODD)
        assert self.strings is not None
        self._need(self.items + 1 < len(self.strings) and len(content) <= len(self.values) - self.used)
        self.values[self.used : self.used + len(content)] = np.frombuffer(content, np.uint8)
        self.items, self.used = self.items + 1, self.used + len(content)
        self.strings[self.items] = self.used

    def _add_numbers(self, content: memoryview, left: int) -> None:
        """left: how many the list may still have; -1 for any number."""
        raw, room = np.frombuffer(content, np.uint8), len(self.values) - self.used
        if self.kind == FLOAT:
            found: Array = raw.view("<u4")
            if 0 <= left < len(found):
                raise _Stop(_ODD)
            self._need(len(found) <= room)
        else:
            count = int(np.count_nonzero(raw < 0x80))
            if 0 <= left < min(count, room):
                raise _Stop(_ODD)
            self._need(count <= room)
            parts = [decode_varints(raw, starts, stops) for starts, stops in varints(raw)]
            found = np.concatenate([np.empty(0, np.int64), *parts])
            if len(found) < count:  # one is too long
                raise _Stop(_ODD)
        self.values[self.used : self.used + len(found)] = found
        self.used = self.items = self.used + len(found)


def _at(array: Array, index: int) -> int:
    """An item, which must be there and not below 0."""
    found = int(array[index]) if index >= 0 else -1
    if found < 0:
        raise IndexError
    return found
