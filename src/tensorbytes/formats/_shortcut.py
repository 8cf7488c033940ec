"""A short way for plain arrays, and for flat dicts, lists and tuples of them, which most calls are about.

The bytes before an array's content depend on its dtype and shape alone, so they are made
once; the kernel then copies, sums and frames in one pass. Of a structure it makes all records
in one call, and reads many in one: what describes a tensor is made only where it is needed.
Whatever does not fit returns None, and the general way does the same job, or finds the words.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import frame, objects_read, objects_write, plain_record
from tensorbytes.formats import _extension, _record
from tensorbytes.formats._tensorproto import head
from tensorbytes.tensor import Array, Making, Memory
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.typing import Buffer, bytes_view, pinned

_BY_CODE: dict[int, np.dtype[Any]] = {
    row.code: np.dtype(row.name)
    for row in dtypes.DTYPES.values()
    if sys.byteorder == "little" and (row.struct not in (None, "?") or row.name in ("complex64", "complex128"))
}
_CODES = {dtype: code for code, dtype in _BY_CODE.items()}
_KEPT = 4096
# What is larger is worth threads, and memory that is faulted in with care.
_MOST_BYTES = 1 << 22
# Records of a stream that are read at a time.
_PORTION = 1024
# By the kernel's numbers: what an object is, and of how many.
_ALONE, _DICT, _LIST, _TUPLE = range(4)
_CONTAINERS: dict[type, int] = {dict: _DICT, list: _LIST, tuple: _TUPLE}
_CODE_OF = {row.name: row.code for row in dtypes.DTYPES.values()}
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


# ---- structures, and the tensors of frameworks ------------------------------------------


class _Table(NamedTuple):
    """What the kernel is told of dtypes, and what is made of their codes."""

    sizes: bytes
    by_code: dict[int, Any]


def dump_object(
    obj: Any, memories: Mapping[type, Memory], item: int = 0, at: int = 0, most: int = _MOST_BYTES
) -> bytes | None:
    """The bytes of a tensor, or of a flat dict, list or tuple of them; `item` and `at` as of dump_item.

    `memories` tells which types of other frameworks are known. Values of more than `most` bytes are left to others.
    """
    rows: list[tuple[bytes, Any, bytes, Any]]
    if type(obj) is np.ndarray:
        code = _ARRAY_CODES.get(obj.dtype)
        if code is None or obj.nbytes > most:
            return None
        try:
            return objects_write([(head(code, obj.shape), None, b"", obj)], _ALONE, item, at, most)
        except (ValueError, TypeError, BufferError):  # not contiguous
            return None
    container, rows = _CONTAINERS.get(type(obj), _ALONE), []
    for key, x in obj.items() if container == _DICT else ((None, obj),) if container == _ALONE else enumerate(obj):
        kind = type(x)
        if kind is np.ndarray:
            code = _ARRAY_CODES.get(x.dtype)
            if code is None:
                return None
            rows.append((head(code, x.shape), key, b"", x))
            continue
        known = memories.get(kind)
        found = None if known is None else known.memory_of(x)
        if found is None:
            return None
        assert known is not None
        name, shape, memory = found
        if not memory.size and container != _ALONE:  # without memory, nothing would tell a tensor that is there twice
            return None
        rows.append((head(_CODE_OF[name], shape), key, _origin(known.framework), memory))
    try:
        return objects_write(rows, container, item, at, most)
    except (ValueError, TypeError, BufferError):  # not contiguous, or a key that is not text
        return None


_BY_ARRAY_CODE = {**_BY_CODE, _CODE_OF["bool"]: np.dtype(bool)} if sys.byteorder == "little" else {}
_ARRAY_CODES = {dtype: code for code, dtype in _BY_ARRAY_CODE.items()}


@cache
def _origin(framework: str) -> bytes:
    return _extension.origin_field({"framework": framework})


@cache
def _table(making: Making | None) -> _Table:
    """NumPy's own dtypes, or those that a framework makes."""
    by_code = dict(_BY_ARRAY_CODE) if making is None else {_CODE_OF[name]: made for name, made in making.dtypes.items()}
    sizes = bytearray(256)
    for code in by_code:
        if code < len(sizes) and sys.byteorder == "little":
            sizes[code] = dtypes.by_code(code).itemsize
    return _Table(bytes(sizes), by_code)


def load_object(buffer: Buffer, making: Making | None = None) -> Any:
    """What some bytes hold, if they are one tensor or flat structure of the usual form, and sound: as NumPy's arrays,
    which are views of the buffer, or as what `making` makes."""
    try:
        held = buffer if type(buffer) is bytes else pinned(bytes_view(buffer))
        if len(held) > _MOST_BYTES:
            return None
        table = _table(making)
        found, end, item = objects_read(held, 0, 0, 1, table.sizes, making is not None)
        if len(found) != 1 or end != len(held) or item:
            return None
        return _made(found[0], held, table, making)
    except (TypeError, ValueError, BufferError):
        return None


class Objects(NamedTuple):
    """Objects of a stream, the place after them, the number of the last one, and how many records they are."""

    made: list[Any]
    at: int
    item: int
    records: int


def load_objects(data: memoryview, at: int, item: int, making: Making | None) -> Objects:
    """Objects of a stream from `at` on, up to the first that is not of the usual form; `item` is the number of the last
    one before. `data` must hold its memory for as long as what is made of it lives."""
    table = _table(making)
    found, end, last = objects_read(data, at, item, _PORTION, table.sizes, making is not None)
    made: list[Any] = []
    records = 0
    for one in found:
        whole = _made(one, data, table, making)
        if whole is None:  # all before it again, so that it is known where it stands
            _, end, last = objects_read(data, at, item, records, table.sizes, False)
            break
        made.append(whole)
        records += 1 if len(one) == 3 else len(one[1])
    return Objects(made, end, last, records)


def _made(one: tuple[Any, ...], held: Any, table: _Table, making: Making | None) -> Any:
    """What the kernel found of an object as an object; None if a key is there twice."""
    by_code = table.by_code
    if len(one) == 3:
        code, shape, place = one
        return (
            np.ndarray(shape, by_code[code], held, place)
            if making is None
            else making.make(by_code[code], shape, place)
        )
    container, rows = one
    if making is None:
        made = [np.ndarray(shape, by_code[code], held, at) for code, shape, at, _ in rows]
    else:
        make = making.make
        made = [make(by_code[code], shape, memory) for code, shape, memory, _ in rows]
    if container == _DICT:
        whole = {row[3]: x for row, x in zip(rows, made, strict=True)}
        return whole if len(whole) == len(rows) else None
    return made if container == _LIST else tuple(made)
