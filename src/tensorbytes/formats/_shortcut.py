"""A short way for plain NumPy arrays, which most calls are about.

The bytes before an array's content depend on its dtype and shape alone, so they are made
once; the kernel then copies, sums and frames in one pass. Only dtypes whose every bit
pattern is a value take part: nothing has to be looked at. Whatever does not fit returns
None, and the general way does the same job, or finds the words.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import frame, plain_record
from tensorbytes.formats import _extension, _record
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.typing import Buffer, bytes_view, pinned

_BY_CODE: dict[int, np.dtype[Any]] = {
    row.code: np.dtype(row.name)
    for row in dtypes.DTYPES.values()
    if sys.byteorder == "little" and (row.struct not in (None, "?") or row.name in ("complex64", "complex128"))
}
_CODES = {dtype: code for code, dtype in _BY_CODE.items()}
_KEPT = 4096
_prefixes: dict[tuple[np.dtype[Any], tuple[int, ...]], bytes] = {}


def dump(array: Array) -> bytes | None:
    """The bytes of one unnamed array."""
    prefix = _prefixes.get((array.dtype, array.shape))
    if prefix is None:
        code = _code(array)
        if code is None:
            return None
        if len(_prefixes) >= _KEPT:
            _prefixes.clear()
        prefix = _record.dense_header(code, array.shape, array.nbytes, b"", HEADER_BYTES)
        _prefixes[array.dtype, array.shape] = prefix
    try:
        return frame(prefix, array)
    except (ValueError, TypeError):  # not contiguous
        return None


def dump_named(array: Array, name: Any) -> bytes | None:
    """The bytes of one array under a name."""
    code = _code(array)
    if code is None or type(name) is not str:
        return None
    try:
        prefix = _record.dense_header(code, array.shape, array.nbytes, _extension.name_field(name), HEADER_BYTES)
        return frame(prefix, array)
    except (ValueError, TypeError):  # not contiguous, or a name without a UTF-8 form
        return None


def dump_item(array: Array, item: int, at: int) -> bytes | None:
    """The bytes of an unnamed array as item number `item` of a stream, at file offset `at`."""
    code = _code(array)
    if code is None:
        return None
    number = _extension.item_field(item)
    prefix = _record.dense_header(code, array.shape, array.nbytes, number, at + HEADER_BYTES)
    try:
        return frame(prefix, array)
    except (ValueError, TypeError):
        return None


def _code(array: Array) -> int | None:
    return _CODES.get(array.dtype) if array.size else None


def load(buffer: Buffer) -> Array | None:
    """The array in some bytes, if they are one sound record of one, outside streams."""
    try:
        plain = plain_record(buffer)
        if plain is not None:
            code, shape, at, size, item = plain
            held = buffer if type(buffer) is bytes else pinned(bytes_view(buffer))
            array: Array = np.ndarray(shape, _BY_CODE[code], held, at)
            if array.nbytes == size and not item:
                return array
    except (TypeError, ValueError, KeyError, BufferError):
        pass
    return None
