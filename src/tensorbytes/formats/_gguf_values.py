"""The metadata of a GGUF file: typed values, which become text or arrays.

0 uint8, 1 int8, 2 uint16, 3 int16, 4 uint32, 5 int32, 6 float32, 7 bool (a byte of 0 or 1),
8 string (u64 length, UTF-8), 9 array (u32 type, u64 count, items), 10 uint64, 11 int64, 12 float64
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, elsewhere
from tensorbytes.errors import CorruptError, LimitError, UnsupportedError
from tensorbytes.tensor import Array, InvalidValueError, Strings, Tensor

STRING, ARRAY, UINT32 = 8, 9, 4
_SCALARS = {
    0: "uint8", 1: "int8", 2: "uint16", 3: "int16", UINT32: "uint32", 5: "int32", 6: "float32", 7: "bool",
    10: "uint64", 11: "int64", 12: "float64",
}  # fmt: skip
# The least that an item takes: a string its length, an array its type and count.
_LEAST = {STRING: 8, ARRAY: 12}
# About what it takes to hold a string or to spell a number.
_PLACE_BYTES = 200
# Arrays of more items than this are not text in the metadata.
SHORT = 256


class Cursor:
    """A place in the file, and the byte order of its numbers."""

    __slots__ = ("at", "big", "budget", "data")

    def __init__(self, data: memoryview, at: int, big: bool, budget: Budget) -> None:
        self.data, self.at, self.big, self.budget = data, at, big, budget

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int, what: str) -> memoryview:
        if size > self.left:
            raise CorruptError(f"{what} takes {size} bytes, {self.left} are left", at=self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, letter: str, what: str) -> int:
        """An unsigned number: "I" of 32 bits, "Q" of 64."""
        order = ">" if self.big else "<"
        found: int = struct.unpack(order + letter, self.take(8 if letter == "Q" else 4, what))[0]
        return found

    def text(self, what: str) -> str:
        size, at = self.number("Q", f"the length of {what}"), self.at
        raw = self.take(size, what)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise CorruptError(f"{what} is not UTF-8", at=at) from None

    def count(self, least: int, what: str) -> int:
        """A number of things that take at least so many bytes each."""
        found = self.number("Q", f"the number of {what}")
        if found > self.left // least:
            raise CorruptError(f"{found} {what} can't fit into the {self.left} bytes left", at=self.at - 8)
        return found


class Values(NamedTuple):
    """A value of the metadata. Arrays of numbers or strings can be had as `array`."""

    kind: int
    text: str
    number: int | None = None
    array: Tensor | Strings | Deferred | None = None


def read(cursor: Cursor, kind: int, key: str, arrays: bool) -> Values:
    """The value at the cursor; `arrays` asks for arrays as such."""
    if kind == ARRAY:
        return _array(cursor, key, arrays)
    if kind == STRING:
        return Values(kind, cursor.text(f"the value of {key!r}"))
    elements = _numbers(cursor, kind, 1, key)
    return Values(kind, _texts(elements)[0], int(elements[0]) if kind == UINT32 else None)


def _numbers(cursor: Cursor, kind: int, count: int, key: str) -> Array:
    """`count` numbers as a view; bools are bytes."""
    name = _SCALARS.get(kind)
    if name is None:
        raise UnsupportedError(f"{key!r} is of the unknown value type {kind}", at=cursor.at)
    at = cursor.at
    raw = cursor.take(count * dtypes.get(name).itemsize, f"the value of {key!r}")
    if name == "bool":
        elements: Array = np.frombuffer(raw, np.uint8)
        if count and elements.max() > 1:
            wrong = int(np.argmax(elements > 1))
            raise CorruptError(f"{key!r}: the byte {elements[wrong]} is not a valid bool", at=at + wrong)
        return elements.view(np.bool_)
    return np.frombuffer(raw, np.dtype(name).newbyteorder(">" if cursor.big else "<"))


def _texts(elements: Array) -> list[str]:
    """Each number in the shortest text that tells it apart: 0.1 for the float32 closest to it."""
    if elements.dtype.kind == "f":
        return [str(element) for element in elements.astype(elements.dtype.newbyteorder("="))]
    return [str(element).lower() if isinstance(element, bool) else str(element) for element in elements.tolist()]


def _array(cursor: Cursor, key: str, arrays: bool) -> Values:
    kind, count = _array_head(cursor, key)
    if kind == ARRAY:
        return Values(ARRAY, _nested(cursor, key, count))
    if kind == STRING:
        return _strings(cursor, key, count, arrays)
    at = cursor.at
    elements = _numbers(cursor, kind, count, key)
    array: Tensor | Deferred | None = None
    if arrays:
        array = numbers_of(_SCALARS[kind], (count,), cursor.data[at : cursor.at], cursor.big)
    text = _summary(count, f"{_SCALARS[kind]} values") if count > SHORT else _joined(elements)
    return Values(ARRAY, text, None, array)


def _array_head(cursor: Cursor, key: str) -> tuple[int, int]:
    kind = cursor.number("I", f"the type of {key!r}")
    if kind not in _SCALARS and kind not in _LEAST:
        raise UnsupportedError(f"{key!r} is an array of the unknown value type {kind}", at=cursor.at - 4)
    least = _LEAST.get(kind) or dtypes.get(_SCALARS[kind]).itemsize
    return kind, cursor.count(least, f"items of {key!r}")


def _joined(elements: Array) -> str:
    """Numbers as JSON; those that JSON lacks as text."""
    texts = _texts(elements)
    if elements.dtype.kind == "f":
        texts = [text if math.isfinite(float(text)) else f'"{text}"' for text in texts]
    return f"[{','.join(texts)}]"


def _summary(count: int, what: str) -> str:
    return f"<{count} {what}: read with arrays=True>"


def _strings(cursor: Cursor, key: str, count: int, arrays: bool) -> Values:
    """Strings are walked over; their bytes are joined only if they are asked for."""
    data, at, end = cursor.data, cursor.at, len(cursor.data)
    length = struct.Struct(">Q" if cursor.big else "<Q").unpack_from
    starts: list[tuple[int, int]] = []
    wanted = arrays or count <= SHORT
    if wanted:
        cursor.budget.objects(count, f"the strings of {key!r}", at, _PLACE_BYTES)
    for _ in range(count):
        size = length(data, at)[0] if end - at >= 8 else end
        if size > end - at - 8:
            raise CorruptError(f"a string of {key!r} runs past the end of the file", at=at)
        if wanted:
            starts.append((at + 8, at + 8 + size))
        at += 8 + size
    cursor.at, first = at, cursor.at
    if not wanted:
        return Values(ARRAY, _summary(count, "strings"))
    offsets = np.cumsum([0, *(stop - start for start, stop in starts)], dtype=np.int64)
    try:
        array = Strings((count,), offsets, b"".join(data[start:stop] for start, stop in starts), "utf-8")
    except InvalidValueError as error:
        raise CorruptError(f"{key!r}: {error.fault}", at=first) from None
    text = _json(array.items()) if count <= SHORT else _summary(count, "strings")
    return Values(ARRAY, text, None, array if arrays else None)


def _json(items: Any) -> str:
    return json.dumps(items, separators=(",", ":"), ensure_ascii=False)


def _nested(cursor: Cursor, key: str, count: int) -> str:
    """Arrays of arrays, which are rare, as JSON whatever their length."""
    out = ["["]
    open_arrays = [count]  # items still to come, outermost first
    fresh = True
    while open_arrays:
        if not open_arrays[-1]:
            open_arrays.pop()
            out.append("]")
            fresh = False
            continue
        open_arrays[-1] -= 1
        if not fresh:
            out.append(",")
        kind, inner = _array_head(cursor, key)
        fresh = kind == ARRAY
        if kind == ARRAY:
            open_arrays.append(inner)
            if len(open_arrays) > cursor.budget.max_depth:
                raise LimitError(f"{key!r}: arrays nested deeper than {cursor.budget.max_depth}", at=cursor.at)
            out.append("[")
        elif kind == STRING:
            cursor.budget.objects(inner, f"the strings of {key!r}", cursor.at, _PLACE_BYTES)
            texts = [cursor.text(f"a string of {key!r}") for _ in range(inner)]
            out.append(_json(texts))
        else:
            cursor.budget.objects(inner, f"the numbers of {key!r}", cursor.at, _PLACE_BYTES)
            out.append(_joined(_numbers(cursor, kind, inner, key)))
    return "".join(out)


def numbers_of(dtype: str, shape: tuple[int, ...], data: memoryview, big: bool) -> Tensor | Deferred:
    """A tensor of the file: a view where its byte order allows that."""
    row = dtypes.get(dtype)
    if not big or row.itemsize == 1:
        return Tensor(dtype, shape, data)
    return elsewhere(dtype, np.ndarray(shape, f"V{row.itemsize}", data), swap=True)
