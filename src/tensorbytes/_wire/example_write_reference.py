"""The writing half of the kernel's functions over Examples, and what both halves ask of their arguments.

The twin of example_write.c, as example_reference.py is of example.c. A map entry is written as

    0a length  0a length key  12 length value
    value      the Feature, or with steps a FeatureList: 0a length Feature for each step
    Feature    0a, 12 or 1a, length, list
    list       0a length value for each string; 0a length and all numbers packed, nothing if there are none
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes._wire.reference import crc32c, frame_header, mask, strings_pack, varint
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


class _Column(NamedTuple):
    """The rows of a column that a call is about, with the sizes of all they consist of."""

    key: bytes
    present: Array  # for each row
    values: Array  # of all lists, end to end; for strings: their offsets
    ends: Array  # where the bytes of each list's content end, among all contents
    steps: Array | None  # which lists make up each row; None: one each
    entries: Array  # sizes of the map entries


def _column(
    kind: int, key: Buffer, steps: Buffer | None, offsets: Buffer, present: Buffer | None,
    values: Buffer, string_offsets: Buffer | None, first: int, count: int,
) -> _Column:  # fmt: skip
    known_kind(kind)
    lists = items_of(offsets, np.int64)
    items = items_of(values, {BYTES: np.uint8, FLOAT: np.uint32, INT64: np.int64}[kind])
    if first < 0:
        raise IndexError(f"row {first} is none")
    last = first + count
    shown = np.ones(count, bool) if present is None else items_of(present, np.uint8, last)[first:last] != 0
    rows = None
    if steps is not None:
        rows = rising(items_of(steps, np.int64), first, last, len(lists) - 1)
        first, last = int(rows[0]), int(rows[-1])
    if kind == BYTES:
        strings = items_of(string_offsets, np.int64)
        bounds = rising(lists, first, last, len(strings) - 1)
        items = rising(strings, int(bounds[0]), int(bounds[-1]), len(items))
        sizes = _field_sizes(np.diff(items))
    else:
        bounds = rising(lists, first, last, len(items))
        items = items[bounds[0] : bounds[-1]]
        sizes = _varint_sizes(items) if kind == INT64 else np.full(len(items), 4)
    ends = _totals(sizes)[bounds - bounds[0]]
    contents = np.diff(ends)
    messages = contents if kind == BYTES else np.where(contents > 0, _field_sizes(contents), 0)
    features = _field_sizes(messages)
    in_rows = features if rows is None else np.diff(_totals(_field_sizes(features))[rows - rows[0]])
    name = bytes(bytes_view(key))
    entries = len(name) + 1 + len(varint(len(name))) + _field_sizes(in_rows)
    return _Column(name, shown, items, ends, None if rows is None else rows - rows[0], entries)


def example_sizes(
    kind: int, key: Buffer, steps: Buffer | None, offsets: Buffer, present: Buffer | None,
    values: Buffer, string_offsets: Buffer | None, first: int, sizes: Buffer,
) -> None:  # fmt: skip
    """Adds to sizes[i] what the map entry "key: feature" takes in row first + i; nothing where present is 0.

    Row r has the values offsets[r] .. offsets[r + 1]; with steps it is a FeatureList of the steps
    steps[r] .. steps[r + 1], and step s has the values offsets[s] .. offsets[s + 1]. Values are
    float32, int64, or bytes of which string i is string_offsets[i] .. string_offsets[i + 1].
    """
    target = items_of(sizes, np.int64)
    column = _column(kind, key, steps, offsets, present, values, string_offsets, first, len(target))
    target += np.where(column.present, _field_sizes(column.entries), 0)


def example_write(
    kind: int, key: Buffer, steps: Buffer | None, offsets: Buffer, present: Buffer | None,
    values: Buffer, string_offsets: Buffer | None, first: int, at: Buffer, out: Buffer,
) -> None:  # fmt: skip
    """Writes the entries of `example_sizes` at out[at[i]:], and moves at[i] past them."""
    places, target = items_of(at, np.int64), items_of(out, np.uint8)
    column = _column(kind, key, steps, offsets, present, values, string_offsets, first, len(places))
    if kind == BYTES:
        contents = strings_pack(0x0A, np.ascontiguousarray(column.values), items_of(values, np.uint8))
    else:
        contents = _packed(column.values) if kind == INT64 else column.values.astype("<u4").tobytes()
    features = [
        _field(kind, contents[start:stop] if kind == BYTES or start == stop else _field(1, contents[start:stop]))
        for start, stop in pairwise(column.ends.tolist())
    ]
    if column.steps is not None:
        steps_of = [_field(1, feature) for feature in features]
        features = [b"".join(steps_of[start:stop]) for start, stop in pairwise(column.steps.tolist())]
    for row, feature in enumerate(features):
        if column.present[row]:
            entry = _field(1, _field(1, column.key) + _field(2, feature))
            place = int(places[row])
            if not 0 <= place <= len(target) - len(entry):
                raise ValueError("an entry does not fit")
            places[row] = _put(target, place, entry)


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


def example_record_sizes(sizes: Buffer, list_sizes: Buffer | None, out: Buffer) -> None:
    """The size of each framed record whose entries, and feature lists if there are any, take so many bytes."""
    entries = items_of(sizes, np.int64)
    lists = None if list_sizes is None else items_of(list_sizes, np.int64, len(entries))[: len(entries)]
    target = items_of(out, np.int64, len(entries))
    if (entries < 0).any() or (lists is not None and (lists < 0).any()):
        raise ValueError("a size is negative")
    target[: len(entries)] = 16 + _field_sizes(entries) + (0 if lists is None else _field_sizes(lists))


def example_frame(
    out: Buffer, starts: Buffer, sizes: Buffer, list_sizes: Buffer | None, at: Buffer, list_at: Buffer | None,
    finish: bool,
) -> None:  # fmt: skip
    """Writes what stands around the entries of the record at out[starts[i]:].

    First its headers: at[i] becomes the place of its entries, list_at[i] that of its feature
    lists' entries. When those are written, `finish` puts the checksum after them.
    """
    target, places = items_of(out, np.uint8), items_of(starts, np.int64)
    count = len(places)
    entries, at = items_of(sizes, np.int64, count)[:count], items_of(at, np.int64, count)
    lists = None if list_sizes is None else items_of(list_sizes, np.int64, count)[:count]
    list_at = items_of(list_at, np.int64, 0 if lists is None else count)
    records = np.empty(count, np.int64)
    example_record_sizes(entries, lists, records)
    most = max(entries.max(initial=0), 0 if lists is None else lists.max(initial=0))
    if most > len(target) or ((places < 0) | (records > len(target) - places)).any():
        raise ValueError("a record is outside the output")
    for index, (start, size) in enumerate(zip(places.tolist(), records.tolist(), strict=True)):
        if finish:
            end = start + size - 4
            _put(target, end, mask(crc32c(target[start + 12 : end])).to_bytes(4, "little"))
            continue
        at[index] = _put(target, start, frame_header(size - 16) + b"\x0a" + varint(int(entries[index])))
        if lists is not None:
            list_at[index] = _put(target, int(at[index] + entries[index]), b"\x12" + varint(int(lists[index])))


def _put(target: Array, at: int, raw: bytes) -> int:
    """The place after what was written."""
    target[at : at + len(raw)] = np.frombuffer(raw, np.uint8)
    return at + len(raw)
