"""Decimals as text, all of a column at once. pyarrow's own cast gives the same, one value after another.

These are the usual ones: of under 19 digits, with 0 to 6 of them after the point. pyarrow writes some others with an
exponent, so it is asked for all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbytes.formats._arrow.write import arrow, room
from tensorbytes.tensor import Array

_MOST_SCALE = 6
_MOST = 10**18
_DIGITS = 4  # that are written at a time
_PIECE = 1 << 16
_MINUS, _POINT, _ZERO = b"-.0"


def to_text(array: Any, gone: Array | None) -> Any:
    """A large_string array; what is gone is null, and empty."""
    pa = arrow()
    kind, count = array.type, len(array)
    numbers = _integers(array, gone) if 0 <= kind.scale <= _MOST_SCALE and count else None
    if numbers is None:
        return array.cast(pa.large_string())
    offsets = room(count + 1, "<i8")
    offsets[0] = 0
    pieces = []
    for start in range(0, count, _PIECE):  # whose tables stay in the processor's cache
        some = slice(start, start + _PIECE)
        lengths, letters = _written(numbers[some], kind.scale, None if gone is None else gone[some])
        offsets[1:][some] = lengths
        pieces.append(letters)
    np.cumsum(offsets, out=offsets)
    letters = np.concatenate(pieces)
    valid = None if gone is None else pa.py_buffer(np.packbits(~gone, bitorder="little"))
    return pa.Array.from_buffers(pa.large_string(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(letters)])


def _integers(array: Any, gone: Array | None) -> Array | None:
    """The digits of each as int64; None if some have too many."""
    width = array.type.bit_width // 8
    data = memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
    if width <= 8:
        numbers: Array = np.frombuffer(data, f"<i{width}").astype(np.int64)
    else:
        words = np.frombuffer(data, "<i8").reshape(len(array), -1)
        numbers = words[:, 0].copy()
        wide = (words[:, 1:] != (numbers >> 63)[:, None]).any(axis=1)
        if (wide if gone is None else wide & ~gone).any():
            return None
    if gone is not None:
        numbers[gone] = 0
    return numbers if numbers.min() > -_MOST and numbers.max() < _MOST else None


def _written(numbers: Array, scale: int, gone: Array | None) -> tuple[Array, Array]:
    """(lengths, letters) of numbers with a point before the last `scale` digits."""
    rest, below = np.abs(numbers), numbers < 0
    most = len(str(int(rest.max())))
    lengths = np.full(len(numbers), 1, np.uint8)
    for count in range(1, most):
        lengths += rest >= 10**count
    point = int(scale > 0)
    lengths = np.maximum(lengths, scale + 1, dtype=np.uint8) + below + np.uint8(point)
    width = max(most, scale + 1) + 1 + point  # with a sign
    whole = width - scale - point  # letters before the point
    digits = _digits(rest, whole + scale)
    table = np.empty((len(numbers), width), np.uint8)
    table[:, :whole] = digits[:, digits.shape[1] - scale - whole : digits.shape[1] - scale]
    if point:
        table[:, whole] = _POINT
        table[:, whole + 1 :] = digits[:, -scale:]
    starts = width - lengths
    rows = np.flatnonzero(below)
    table[rows, starts[rows]] = _MINUS
    if gone is not None:
        lengths[gone], starts[gone] = 0, width
    places = np.arange(width + 1)
    return lengths, table[(places[:-1] >= places[:, None]).take(starts, axis=0)]


def _digits(numbers: Array, count: int) -> Array:
    """The last digits of each number, at least `count` of them, as letters."""
    pieces = -(-count // _DIGITS)
    found = np.empty((len(numbers), pieces), "<u4")
    for place in reversed(range(pieces)):
        above = numbers // 10**_DIGITS
        found[:, place] = _letters()[numbers - above * 10**_DIGITS]
        numbers = above
    return found.view(np.uint8)


def _letters() -> Array:
    """0000 to 9999, each as one number of four letters."""
    if not _made:
        numbers = np.arange(10**_DIGITS)[:, None] // 10 ** np.arange(_DIGITS)[::-1] % 10
        _made.append((numbers + _ZERO).astype(np.uint8).view("<u4").reshape(-1))
    return _made[0]


_made: list[Array] = []
