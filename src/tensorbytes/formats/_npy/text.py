"""Text in columns of one width, as NumPy's dtypes U and S hold it: zeros fill up what a string leaves.

All strings are turned at once, as a table of code points (U) or bytes (S), one row each.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tensorbytes.errors import LIMITS, CorruptError, LimitError, UnsupportedError
from tensorbytes.tensor import Array, Strings
from tensorbytes.typing import Buffer

_FIXED = re.compile(r"<U(\d{1,9})|\|S(\d{1,9})")
# At most so many times the bytes of the text, and never many bytes.
_WIDER, _SLACK, _MOST = 8, 1 << 16, 1 << 26
# NumPy's own limit for one element.
MOST_WIDE = 0x7FFFFFFF
_LAST_CHARACTER = 0x10FFFF
# So many bytes are turned at once.
_BLOCK = 1 << 20


def descr_of(value: Strings) -> str | None:
    """NumPy's word for strings as an array, where that is exact and not a waste.

    Metadata may ask for a width; otherwise it is that of the longest string.
    """
    text = value.encoding == "utf-8"
    offsets = np.ascontiguousarray(value.offsets, np.int64)
    raw = np.frombuffer(value.data, np.uint8)
    lengths = np.diff(offsets)
    if not raw[offsets[1:][lengths > 0] - 1].all():
        return None  # NumPy takes zeros at the end of a string for padding
    asked = _FIXED.fullmatch(value.origin.get("numpy.dtype", ""))
    named = int(asked[1 if text else 2]) if asked and asked[1 if text else 2] else -1
    most = min(_WIDER * len(raw), _MOST) + _SLACK if named < 0 else LIMITS.max_bytes + len(raw)
    if len(lengths) * int(lengths.max(initial=0)) > most:  # four bytes of UTF-8 are at least one character
        return None
    if text:
        lengths = _characters(raw, offsets)
    longest = int(lengths.max(initial=0))
    width = named if named >= longest else max(longest, 1)
    size = 4 if text else 1
    if width * size > MOST_WIDE or len(lengths) * width * size > most:
        return None
    return f"{'<U' if text else '|S'}{width}"


def fixed_width(value: Strings, descr: str) -> Buffer:
    """The bytes of strings as an array of a dtype that `descr_of` gave."""
    offsets = np.ascontiguousarray(value.offsets, np.int64)
    cells = np.frombuffer(value.data, np.uint8)
    lengths = np.diff(offsets)
    if value.encoding == "utf-8":
        lengths = _characters(cells, offsets)
        cells = np.frombuffer(str(value.data, "utf-8").encode("utf-32-le"), "<u4")
    width = int(descr[2:])
    table = np.zeros((len(lengths), width), cells.dtype)
    table[np.arange(width) < lengths[:, None]] = cells
    return table.reshape(-1).view(np.uint8)


def _characters(raw: Array, offsets: Array) -> Array:
    """How many characters each of some strings of UTF-8 has."""
    starts = np.concatenate(([0], np.cumsum((raw & 0xC0) != 0x80)))
    return np.diff(starts[offsets])


def strings(rows: Array, at: int) -> Strings:
    """The strings of an array of dtype U or S, whose bytes stand at `at`."""
    text = rows.dtype.kind == "U"
    flat = rows.reshape(-1)
    step = max(_BLOCK // max(rows.dtype.itemsize, 1), 1)
    pieces: list[bytes] = []
    try:
        offsets = np.zeros(rows.size + 1, np.int64)
        for start in range(0, rows.size, step):
            block = flat[start : start + step]
            piece, offsets[start + 1 : start + 1 + len(block)] = _utf8(block, at) if text else _bytes(block)
            pieces.append(piece)
        np.cumsum(offsets, out=offsets)
        return Strings(rows.shape, offsets, b"".join(pieces), "utf-8" if text else "bytes")
    except MemoryError:
        raise LimitError(f"no memory for {rows.size} strings", at=at) from None


def _bytes(rows: Array) -> tuple[bytes, Array]:
    """(all strings, the size of each)"""
    cells, lengths = _used(rows, np.dtype("u1"))
    return cells.tobytes(), lengths


def _utf8(rows: Array, at: int) -> tuple[bytes, Array]:
    cells, lengths = _used(rows, np.dtype(f"{rows.dtype.byteorder}u4"))
    if cells.size and cells.max() > _LAST_CHARACTER:
        raise CorruptError(f"text with a character number {cells.max()}", at=at)
    try:
        data = str(cells.astype("<u4").data, "utf-32-le").encode()
    except UnicodeDecodeError:
        raise UnsupportedError("text with a lone surrogate has no UTF-8 form", at=at) from None
    sizes = 1 + (cells >= 0x80) + (cells >= 0x800) + (cells >= 0x10000)
    ends = np.concatenate(([0], np.cumsum(sizes)))[np.cumsum(lengths)]
    return data, np.diff(ends, prepend=0)


def _used(rows: Array, cell: np.dtype[Any]) -> tuple[Array, Array]:
    """The cells of all rows without the zeros at their ends, and how many of each row."""
    width = rows.dtype.itemsize // cell.itemsize
    table = np.ascontiguousarray(rows).view(cell).reshape(len(rows), width)
    filled = table != 0
    lengths = np.where(filled.any(axis=1), width - np.argmax(filled[:, ::-1], axis=1), 0)
    return table[np.arange(width) < lengths[:, None]], lengths
