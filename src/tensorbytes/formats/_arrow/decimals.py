"""Decimals as text and back, all of a column at once. pyarrow's own casts give the same, one value after another.

These are the usual ones: of under 19 digits, with 0 to 6 of them after the point. pyarrow writes some others with an
exponent, so it is asked for all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbytes import _wire
from tensorbytes.formats._arrow.nested import bits_of
from tensorbytes.formats._arrow.write import arrow, room
from tensorbytes.tensor import Array, Strings, fitting_strings
from tensorbytes.typing import bytes_view


def to_text(array: Any, there: Array | None) -> Strings:
    """The text of each decimal; what is not there is empty."""
    pa = arrow()
    kind, count = array.type, len(array)
    width, held = kind.bit_width // 8, array.buffers()[1]
    data = bytes_view(b"" if held is None else held)[array.offset * width : (array.offset + count) * width]
    offsets = room(count + 1, "<i8")
    if _is_usual(kind) and _wire.decimal_sizes(data, there, offsets, width, kind.scale, _most(kind)):
        letters = room(int(offsets[-1]), "u1")
        _wire.decimal_text(data, offsets, letters, width, kind.scale)
        return fitting_strings((count,), offsets, bytes_view(letters), "utf-8")
    valid = None if there is None else bits_of(there)
    text = pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(data)]).cast(pa.large_string())
    _, bounds, letters = text.buffers()
    found = np.frombuffer(bounds, "<i8", count + 1) if count else np.zeros(1, np.int64)
    return Strings((count,), found, b"" if letters is None else bytes_view(letters)[: int(found[-1])], "utf-8")


def from_text(text: Strings, there: Array | None, kind: Any) -> Any:
    """The buffer of decimals of a type; None if a text is not a usual one."""
    width = kind.bit_width // 8
    if not _is_usual(kind):
        return None
    data = arrow().allocate_buffer((len(text.offsets) - 1) * width)
    offsets = np.ascontiguousarray(text.offsets, "<i8")
    plain = _wire.decimal_parse(text.data, offsets, there, data, width, kind.scale, _most(kind))
    return data if plain else None


def _is_usual(kind: Any) -> bool:
    return bool(0 <= kind.scale <= _wire.MOST_SCALE)


def _most(kind: Any) -> int:
    """What the digits of its numbers must be under."""
    return min(int(10**kind.precision), _wire.MOST_DECIMAL)
