"""Protocol Buffers' wire format: walking the fields of a message.

Follows protobuf's own rules: unknown fields are passed over, groups too; a value of
ten bytes keeps its low 64 bits, one of eleven is an error. A length may not overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire
from tensorbytes._wire import varint
from tensorbytes.errors import CorruptError

VARINT, FIXED64, DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)
_MAX_GROUP_DEPTH = 100
# The stretch of a message whose fields are held at once.
_RUN_BYTES = 1 << 14
# The bytes of packed numbers that are decoded at once; the longest of them.
_PACKED_BYTES, _LONGEST = 1 << 16, 10
# So few bytes of packed varints are read one by one.
_FEW_BYTES = 64


class Field(NamedTuple):
    """One field. For a varint, `start` is its value; else its bytes are [start, end)."""

    number: int
    wire: int
    start: int
    end: int
    at: int


def read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """(value, next position)"""
    value = shift = 0
    first = at
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift == 70:
            raise CorruptError("a varint is longer than ten bytes", at=first)
    raise CorruptError("a varint runs past the end of its message", at=first)


def fields(data: memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in [start, end), in order."""
    at = start
    while at < end:
        run, at = field_run(data, at, end, 0)
        yield from run
        if at < end:
            field, at = read_field(data, at, end)
            if field is not None:
                yield field


def field_run(data: memoryview, start: int, end: int, stop: int) -> tuple[list[Field], int]:
    """(the usual fields from `start` on, where they end): at `end`, at the tag byte `stop`,
    or at something that needs `read_field`. No more than some thousands at a time: each takes 100 bytes and more."""
    found, at = _wire.fields(data, start, min(end, start + _RUN_BYTES), stop)
    return [Field(*field) for field in found], at


def read_field(data: memoryview, at: int, end: int, depth: int = 0) -> tuple[Field | None, int]:
    """(the field at `at`, or None for a group; the position after it)"""
    first = at
    tag, at = read_varint(data, at, end)
    number, wire = tag >> 3, tag & 7
    if not 0 < number < 1 << 29:
        raise CorruptError(f"a field has the number {number}", at=first)
    if wire == VARINT:
        value, at = read_varint(data, at, end)
        return Field(number, wire, value, 0, first), at
    if wire == START_GROUP:
        return None, _skip_group(data, at, end, number, depth + 1)
    if wire == DELIMITED:
        size, at = read_length(data, at, end)
    elif wire in (FIXED32, FIXED64):
        size = 4 if wire == FIXED32 else 8
    elif wire == END_GROUP:
        raise CorruptError(f"field {number} ends a group that never began", at=first)
    else:
        raise CorruptError(f"field {number} has the unknown wire type {wire}", at=first)
    if size > end - at:
        raise CorruptError(f"field {number} claims {size} bytes where {end - at} are left", at=first)
    return Field(number, wire, at, at + size, first), at + size


def read_length(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A varint that may not be cut to 64 bits: what follows would be misread."""
    size, after = read_varint(data, at, end)
    if after - at == 10 and data[after - 1] > 1:
        raise CorruptError("a length of more than 64 bits", at=at)
    return size, after


def _skip_group(data: memoryview, at: int, end: int, number: int, depth: int) -> int:
    if depth > _MAX_GROUP_DEPTH:
        raise CorruptError(f"groups are nested deeper than {_MAX_GROUP_DEPTH}", at=at)
    while at < end:
        first = at
        tag, after = read_varint(data, at, end)
        if tag & 7 == END_GROUP:
            if tag >> 3 != number:
                raise CorruptError(f"group {number} is ended as {tag >> 3}", at=first)
            return after
        _, at = read_field(data, at, end, depth)
    raise CorruptError(f"group {number} never ends", at=end)


def text(data: memoryview, field: Field) -> str:
    """A string field."""
    raw = delimited(data, field)
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise CorruptError(f"field {field.number} is not UTF-8", at=field.at) from None


def delimited(data: memoryview, field: Field) -> memoryview:
    if field.wire != DELIMITED:
        raise CorruptError(f"field {field.number} has the wire type {field.wire}, expected 2", at=field.at)
    return data[field.start : field.end]


def number(field: Field) -> int:
    if field.wire != VARINT:
        raise CorruptError(f"field {field.number} has the wire type {field.wire}, expected 0", at=field.at)
    return field.start


def varints(data: memoryview, at: int = 0) -> np.ndarray[Any, Any]:
    """All values of a packed varint field, as uint64. `at` is where the data stands, for errors."""
    raw = np.frombuffer(data, np.uint8)
    if not raw.size:
        return np.empty(0, np.uint64)
    if raw[-1] >= 0x80:
        raise CorruptError("a packed varint runs past the end of its field", at=at + raw.size)
    if raw.size <= _FEW_BYTES:
        return _few_varints(raw.tobytes(), at)
    if raw.size <= _PACKED_BYTES:
        return _varints(raw, at)
    # A portion at a time: the work takes many times the bytes.
    values, start, count = np.empty(np.count_nonzero(raw < 0x80), np.uint64), 0, 0
    while start < raw.size:
        stop = start + _PACKED_BYTES
        if stop < raw.size:
            ends = np.flatnonzero(raw[stop - 1 : stop + _LONGEST] < 0x80)
            stop += int(ends[0]) if ends.size else _LONGEST  # which is too long, as will be found
        found = _varints(raw[start:stop], at + start)
        values[count : count + len(found)] = found
        start, count = stop, count + len(found)
    return values


def _few_varints(data: bytes, at: int) -> np.ndarray[Any, Any]:
    """The same for few bytes: one by one they take less time than NumPy takes to begin."""
    values, value, shift = [], 0, 0
    for position, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value & 0xFFFF_FFFF_FFFF_FFFF)
            value = shift = 0
        elif shift == 7 * _LONGEST:
            raise CorruptError("a varint is longer than ten bytes", at=at + position + 1 - _LONGEST)
    return np.array(values, np.uint64)


def _varints(raw: np.ndarray[Any, Any], at: int) -> np.ndarray[Any, Any]:
    stops = np.flatnonzero(raw < 0x80)
    if not stops.size or stops[-1] != raw.size - 1:
        raise CorruptError("a varint is longer than ten bytes", at=at + (int(stops[-1]) + 1 if stops.size else 0))
    starts = np.concatenate(([0], stops[:-1] + 1))
    sizes = stops - starts + 1
    if sizes.max() > 10:
        raise CorruptError("a varint is longer than ten bytes", at=at + int(starts[sizes.argmax()]))
    values = np.zeros(len(stops), np.uint64)
    for position in range(int(sizes.max())):
        longer = sizes > position
        byte = raw[starts[longer] + position].astype(np.uint64) & np.uint64(0x7F)
        values[longer] |= byte << np.uint64(7 * position)
    return values


@cache
def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def put_number(number: int, value: int) -> bytes:
    return tag(number, VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def put_bytes(number: int, value: bytes) -> bytes:
    return tag(number, DELIMITED) + varint(len(value)) + value
