"""limit.c as a contender: how fast plain C reads a file of records on all cores, without anything around it."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record_data import Column, FeatureSpec, Sample, Spec, Table, dtype_and_shape, joined, same_tables
from benchmarks.timing import FLOOR, Contender

NAME = "plain C, one pass"
_SOURCE = Path(__file__).with_name("limit.c")
_KINDS = {"bytes": 1, "float32": 2, "int64": 3}
_ITEMS = {1: np.uint8, 2: np.float32, 3: np.int64}
_NUMBERS = ctypes.POINTER(ctypes.c_int64)


class _Column(ctypes.Structure):
    """struct column"""

    _fields_ = (
        ("key", ctypes.c_char_p),
        ("key_size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("in_lists", ctypes.c_int),
        ("fixed", ctypes.c_int),
        ("values", ctypes.POINTER(ctypes.c_uint8)),
        ("size", ctypes.c_size_t),
        ("room", ctypes.c_size_t),
        ("lengths", _NUMBERS),
        ("lists", ctypes.c_size_t),
        ("lists_room", ctypes.c_size_t),
        ("steps", _NUMBERS),
        ("records", ctypes.c_size_t),
        ("steps_room", ctypes.c_size_t),
    )


@functools.cache
def _library() -> Any:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "limit.so")
        subprocess.run([compiler, "-O3", "-fPIC", "-shared", "-o", made, str(_SOURCE), "-lpthread"], check=True)
        library = ctypes.CDLL(made)
    library.limit_read.restype = ctypes.c_int64
    library.limit_read.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_Column), ctypes.c_size_t)
    library.limit_free.argtypes = (ctypes.POINTER(_Column), ctypes.c_size_t)
    library.limit_free.restype = None
    return library


def _filled(column: Any, name: str, feature: FeatureSpec, in_lists: bool) -> None:
    dtype, shape = dtype_and_shape(feature)
    column.key, column.key_size = name.encode(), len(name.encode())
    column.kind, column.in_lists = _KINDS[dtype], in_lists
    column.fixed = dtype != "bytes" and None not in shape


class _Read:
    """What one run found, one part for each thread. Its memory is freed with it."""

    def __init__(self, path: str, spec: Spec, threads: int) -> None:
        features = [(name, feature, False) for name, feature in spec.features.items()]
        features += [(name, feature, True) for name, feature in (spec.lists or {}).items()]
        self._names, self._threads = [name for name, _, _ in features], threads
        self._columns = (_Column * (threads * len(features)))()
        for column, (name, feature, in_lists) in zip(self._columns, features, strict=False):
            _filled(column, name, feature, in_lists)
        self.records = _library().limit_read(os.fsencode(path), threads, self._columns, len(features))

    def __del__(self) -> None:
        _library().limit_free(self._columns, len(self._columns))

    def table(self) -> Table:
        return joined(self._parts())

    def _parts(self) -> Iterator[Table]:
        width = len(self._names)
        for thread in range(self._threads):
            columns = self._columns[thread * width : (thread + 1) * width]
            yield {name: _values(column) for name, column in zip(self._names, columns, strict=True)}


def _values(column: Any) -> Column:
    parts = [np.ctypeslib.as_array(column.values, (column.size,)).view(_ITEMS[column.kind]) if column.size else
             np.empty(0, _ITEMS[column.kind])]  # fmt: skip
    if not column.fixed:
        parts.append(_numbers(column.lengths, column.lists))
    if column.in_lists:
        parts.append(_numbers(column.steps, column.records))
    return tuple(part.copy() for part in parts)


def _numbers(found: Any, count: int) -> Any:
    return np.ctypeslib.as_array(found, (count,)) if count else np.empty(0, np.int64)


def contender(path: str, sample: Sample) -> Contender:
    """Reads a file that is not compressed."""
    threads = min(os.cpu_count() or 1, 16)

    def consume(path: str) -> int:
        return int(_Read(path, sample.spec, threads).records)

    def right(found: int) -> bool:
        return found == sample.count and same_tables(_Read(path, sample.spec, threads).table(), sample.table)

    return Contender(NAME, consume, path, right, FLOOR, note="limit.c: no schema, no odd records, no Python")
