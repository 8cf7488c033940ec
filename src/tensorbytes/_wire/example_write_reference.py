"""The writing half of the kernel's functions over Examples, and what both halves ask of their arguments.

The twin of example_write.c, as example_reference.py is of example.c. A map entry is written as

    0a length  0a length key  12 length value
    value      the Feature, or with steps a FeatureList: 0a length Feature for each step
    Feature    0a, 12 or 1a, length, list
    list       0a length value for each string; 0a length and all numbers packed, nothing if there are none
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tensorbytes._wire.common import mask, varint
from tensorbytes._wire.reference import crc32c, frame_header, strings_pack
from tensorbytes.typing import Buffer, bytes_view

Array: TypeAlias = np.ndarray[Any, Any]

MISSING, BYTES, FLOAT, INT64 = range(4)
_VARINT_LIMITS = np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)


# ---- arguments --------------------------------------------------------------


def items_of(buffer: Buffer, dtype: Any, least: int = 0) -> Array:
    """The items of an argument, of which there must be `least`."""
    view = memoryview(b"" if buffer is None else buffer)
    if not view.c_contiguous:
        raise ValueError("the array is not C-contiguous")
    raw = bytes_view(view)
    # A view of nothing may be read-only, which even an empty assignment would meet.
    items = np.frombuffer(raw[: len(raw) - len(raw) % np.dtype(dtype).itemsize] or bytearray(), dtype)
    if len(items) < least:
        raise ValueError(f"an array of {len(items)} items where {least} are needed")
    return items


def rising(offsets: Array, first: int, last: int, most: int) -> Array:
    """offsets[first] .. offsets[last], which must rise from 0 or more to at most `most`."""
    if not 0 <= first <= last < len(offsets):
        raise ValueError(f"{len(offsets)} offsets where {last + 1} are needed")
    found = offsets[first : last + 1]
    if found[0] < 0 or found[-1] > most or (found[1:] < found[:-1]).any():
        raise ValueError(f"offsets must rise, from 0 or more to at most {most}")
    return found


def known_kind(kind: int) -> None:
    if not BYTES <= kind <= INT64:
        raise ValueError(f"no list has the kind {kind}")


# ---- sizes ------------------------------------------------------------------


def _varint_sizes(values: Array) -> Array:
    return np.searchsorted(_VARINT_LIMITS, values.view(np.uint64), "right") + 1


def _field_sizes(contents: Array) -> Array:
    """The sizes of length-delimited fields with tags of one byte."""
    return 1 + _varint_sizes(contents) + contents


def _totals(sizes: Array) -> Array:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


# (kind, key, steps, offsets, present, values, string_offsets)
Column: TypeAlias = tuple[int, Buffer, Buffer | None, Buffer, Buffer | None, Buffer, Buffer | None]


def _entries(column: Column, first: int, last: int) -> list[bytes]:
    """The map entry "key: feature" of each row; nothing where the row lacks the feature."""
    kind, key, steps, offsets, present, values, string_offsets = column
    known_kind(kind)
    lists = items_of(offsets, np.int64)
    items = items_of(values, {BYTES: np.uint8, FLOAT: np.uint32, INT64: np.int64}[kind])
    shown = np.ones(last - first, bool) if present is None else items_of(present, np.uint8, last)[first:last] != 0
    rows = None
    if steps is not None:
        rows = rising(items_of(steps, np.int64), first, last, len(lists) - 1)
        first, last = int(rows[0]), int(rows[-1])
    if kind == BYTES:
        strings = items_of(string_offsets, np.int64)
        bounds = rising(lists, first, last, len(strings) - 1)
        ends = rising(strings, int(bounds[0]), int(bounds[-1]), len(items))
        contents = strings_pack(0x0A, np.ascontiguousarray(ends), items)
        sizes = _field_sizes(np.diff(ends))
    else:
        bounds = rising(lists, first, last, len(items))
        numbers = items[bounds[0] : bounds[-1]]
        contents = _packed(numbers) if kind == INT64 else numbers.astype("<u4").tobytes()
        sizes = _varint_sizes(numbers) if kind == INT64 else np.full(len(numbers), 4)
    features = [
        _field(kind, contents[start:stop] if kind == BYTES or start == stop else _field(1, contents[start:stop]))
        for start, stop in pairwise(_totals(sizes)[bounds - bounds[0]].tolist())
    ]
    if rows is not None:
        steps_of = [_field(1, feature) for feature in features]
        features = [b"".join(steps_of[start:stop]) for start, stop in pairwise((rows - rows[0]).tolist())]
    name = _field(1, bytes(bytes_view(key)))
    return [
        _field(1, name + _field(2, feature)) if there else b""
        for feature, there in zip(features, shown.tolist(), strict=True)
    ]


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def _packed(values: Array) -> bytes:
    """Numbers as varints end to end."""
    numbers = values.view(np.uint64)
    sizes = _varint_sizes(numbers)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for position in range(sizes.max(initial=0)):
        longer = sizes > position
        out[starts[longer] + position] = numbers[longer] >> np.uint64(7 * position) & np.uint64(0x7F) | np.uint64(0x80)
    out[ends - 1] &= 0x7F
    return out.tobytes()


# (name, form, detail, values, add); see `collect_row`
RowColumn: TypeAlias = tuple[str, int, Any, list[Any], Callable[[Any], int]]


def collect_row(row: Mapping[str, Any], columns: tuple[RowColumn, ...]) -> int:
    """Gives every column its value of a row, and returns about how many bytes that makes.

    `add(value)` keeps a copy of the value, checked, and says its size. Values of the column's usual form need no call
    of it, for what it would do is known: a copy joins the list `values`.

        FORM_BYTES  bytes, as they are; size + 8
        FORM_TEXT   str that has a form in UTF-8, as that; size + 8
        FORM_INT64  int of 64 bits, as it is; 8
        FORM_ARRAY  an array of the class, the dtype (itself, none that equals it) and the sizes (negative: any) that
                    `detail` has, contiguous, as bytes; size
    """
    return sum(add(row[name]) for name, _, _, _, add in columns)


def bytes_offsets(items: Sequence[object], offsets: Buffer) -> int:
    """Where each item would start and end were all joined: item i is offsets[i] .. offsets[i + 1].

    Returns how many items come before the first that is anything else than bytes; what is noted after these is not
    defined.
    """
    target = items_of(offsets, np.int64, len(items) + 1)
    target[0] = total = 0
    for index, item in enumerate(items):
        if type(item) is not bytes:
            return index
        total += len(item)
        target[index + 1] = total
    return len(items)


# ---- records ----------------------------------------------------------------


def example_records(
    features: Sequence[Column], lists: Sequence[Column] | None, rows: Buffer | None, first: int, out: Buffer,
    ends: Buffer,
) -> tuple[int, int]:  # fmt: skip
    """Writes framed records end to end, as many as `ends` has items: ends[i] is where the i-th of them ends.

    These are the records first, first + 1, ... of the batch. Record i has row rows[i], or row i. In each column, row r
    has the values offsets[r] .. offsets[r + 1]; with steps it is a FeatureList of the steps steps[r] .. steps[r + 1],
    and step s has the values offsets[s] .. offsets[s + 1]. Values are float32, int64, or bytes of which string i is
    string_offsets[i] .. string_offsets[i + 1]. Rows whose `present` is 0 lack the feature. With `lists` the records
    are SequenceExamples.

    Returns how many were written, and the size of the record that found no room; 0 if these are all.
    """
    target, places = items_of(out, np.uint8), items_of(ends, np.int64)
    if first < 0:
        raise IndexError(f"there is no record {first}")
    wanted = _rows(rows, first, len(places))
    low, high = (first, first + len(places)) if rows is None else (0, max(wanted, default=-1) + 1)
    parts = [[_entries(column, low, high) for column in part] for part in (features, lists or ())]
    at = 0
    for index, row in enumerate(wanted):
        payload = _field(1, b"".join(entries[row - low] for entries in parts[0]))
        if lists is not None:
            payload += _field(2, b"".join(entries[row - low] for entries in parts[1]))
        record = frame_header(len(payload)) + payload + mask(crc32c(payload)).to_bytes(4, "little")
        if len(record) > len(target) - at:
            return index, len(record)
        target[at : at + len(record)] = np.frombuffer(record, np.uint8)
        at += len(record)
        places[index] = at
    return len(places), 0


def _rows(rows: Buffer | None, first: int, count: int) -> Sequence[int]:
    if rows is None:
        return range(first, first + count)
    numbers = items_of(rows, np.int64, first + count)[first : first + count]
    if (numbers < 0).any():
        raise ValueError("no row has this number")
    found: list[int] = numbers.tolist()
    return found
