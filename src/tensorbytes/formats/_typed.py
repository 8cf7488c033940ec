"""The typed *_val fields of a TensorProto: one for each family of dtypes.

    float_val 5, double_val 6, int_val 7, scomplex_val 9, int64_val 10, bool_val 11,
    dcomplex_val 12, half_val 13, uint32_val 16, uint64_val 17, float8_val 18

Values may be packed, single, or both in turn. A complex number is two values. int_val
holds all integers up to 32 bits, half_val the bit patterns of 16-bit floats (and, from
older writers, of 8-bit ones), float8_val those of the floats of 8 bits and under.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError
from tensorbytes.tensor import Array

HALF, FLOAT8 = 13, 18
_FEW_BYTES = 16
# Fields that are held as such: each takes over 100 bytes, where its value may take two.
_MOST_FIELDS = 4096
_SMALL_FLOATS = (*(name for name in dtypes.DTYPES if name.startswith("float8")), "float4_e2m1fn")
# Field numbers: the wire's element type and the dtypes that use them.
FIELDS: dict[int, tuple[str, tuple[str, ...]]] = {
    5: ("<f4", ("float32",)),
    6: ("<f8", ("float64",)),
    7: ("varint", ("int8", "int16", "int32", "uint8", "uint16", "int4", "uint4", "int2", "uint2",
                   "qint8", "quint8", "qint16", "quint16", "qint32")),
    9: ("<f4", ("complex64",)),
    10: ("varint", ("int64",)),
    11: ("varint", ("bool",)),
    12: ("<f8", ("complex128",)),
    HALF: ("varint", ("float16", "bfloat16")),
    16: ("varint", ("uint32",)),
    17: ("varint", ("uint64",)),
    FLOAT8: ("bytes", _SMALL_FLOATS),
}  # fmt: skip
_FIELD_OF = {name: number for number, (_, names) in FIELDS.items() for name in names}


class Values:
    """The values of one field of a message: its fields, of which many are turned into an array at a time."""

    __slots__ = ("_fields", "_kind", "_parts", "at")

    def __init__(self, at: int, kind: str) -> None:
        self.at, self._kind = at, kind
        self._fields: list[proto.Field] = []
        self._parts: list[Array] = []

    def add(self, data: memoryview, item: proto.Field) -> None:
        self._fields.append(item)
        if len(self._fields) >= _MOST_FIELDS and self._kind != "bytes":
            self._pack(data)

    def _pack(self, data: memoryview) -> None:
        convert = integers if self._kind == "varint" else floats
        self._parts.append(convert(data, self._fields, self._kind))
        self._fields = []

    def array(self, data: memoryview) -> Array:
        """All of them, as the wire has them: uint64, float32, float64 or bytes."""
        if self._kind == "bytes":
            return np.frombuffer(proto.delimited(data, self._fields[-1]), np.uint8)
        if self._fields:
            self._pack(data)
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)


def take(typed: dict[int, Values], data: memoryview, item: proto.Field, kind: str) -> None:
    """Keep a field for later, unless it holds no values: packed fields may be empty."""
    empty = item.wire == proto.DELIMITED and item.start == item.end
    if item.number == FLOAT8:  # one bytes field, of which the last counts
        typed.pop(FLOAT8, None)
    if not empty:
        if item.number not in typed:
            typed[item.number] = Values(item.at, kind)
        typed[item.number].add(data, item)


def values(data: memoryview, typed: dict[int, Values], row: DType) -> Array:
    """The values as rows of `itemsize` bytes."""
    own = _FIELD_OF.get(row.name)
    if own == FLOAT8 and row.bits == 8 and HALF in typed:
        own = HALF
    for number, items in typed.items():
        if number != own:
            raise CorruptError(f"field {number} holds values that a tensor of {row.name} does not use", at=items.at)
    if own is None or own not in typed:
        return np.empty((0, row.itemsize), np.uint8)
    items, kind = typed[own], FIELDS[own][0]
    flat = items.array(data)
    if kind == "bytes":
        return flat.reshape(-1, 1)
    if kind == "varint":
        return narrow(flat, row, items.at)
    if flat.nbytes % row.itemsize:
        raise CorruptError(f"an odd number of values for {row.name}", at=items.at)
    return flat.view(np.uint8).reshape(-1, row.itemsize)


def integers(data: memoryview, items: Iterable[proto.Field], kind: str = "varint") -> Array:
    """Packed and single varints as uint64, in order."""
    chunks: list[Array] = []
    few: list[int] = []  # from here and there: NumPy is too slow for one at a time
    for item in items:
        if item.wire == proto.VARINT:
            few.append(item.start)
        elif len(proto.delimited(data, item)) <= _FEW_BYTES:
            at = item.start
            while at < item.end:
                value, at = proto.read_varint(data, at, item.end)
                few.append(value)
        else:
            chunks += [np.array(few, np.uint64), proto.varints(proto.delimited(data, item), item.start)]
            few = []
    parts = [part for part in (*chunks, np.array(few, np.uint64)) if len(part)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])


def floats(data: memoryview, items: Iterable[proto.Field], kind: str) -> Array:
    size = np.dtype(kind).itemsize
    for item in items:
        if item.wire not in (proto.DELIMITED, proto.FIXED32 if size == 4 else proto.FIXED64):
            raise CorruptError(f"field {item.number} has the wire type {item.wire}", at=item.at)
        if (item.end - item.start) % size:
            raise CorruptError(f"packed values of {size} bytes fill {item.end - item.start} bytes", at=item.at)
    return np.frombuffer(b"".join([data[item.start : item.end] for item in items]), kind)


def narrow(wide: Array, row: DType, at: int) -> Array:
    """64-bit varints as elements of the dtype; a value that does not fit is an error."""
    if row.name == "bool":
        return np.not_equal(wide, 0).view(np.uint8).reshape(-1, 1)
    if row.name.removeprefix("q").startswith("int"):
        low, high = -(1 << row.bits - 1), (1 << row.bits - 1) - 1
    else:
        low, high = 0, (1 << row.bits) - 1
    if high < 1 << 63:
        wide = wide.view(np.int64)
    if len(wide) and not (low <= int(wide.min()) and int(wide.max()) <= high):
        raise CorruptError(f"a value outside {low}..{high}, the range of {row.name}", at=at)
    narrow = wide.view("<u8") if row.itemsize == 8 else wide.astype(f"<u{row.itemsize}")
    if row.bits < 8:
        narrow &= row.value_mask
    return narrow.view(np.uint8).reshape(-1, row.itemsize)
