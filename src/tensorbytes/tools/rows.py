"""Values as columns: the rows along their first axis, taken apart and put together.

rows_of(column)    its rows, one value each
cut(column, a, b)  rows a to b, as views
Column             rows or columns added one after another, kept on disk, given back as one column
"""

from __future__ import annotations

import math
import weakref
from array import array
from collections.abc import Iterator
from typing import IO

import numpy as np

from tensorbytes import dtypes, storage
from tensorbytes.errors import LossError
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value, amended

# Bytes of a growing column that are kept in memory.
_IN_MEMORY = 1 << 22


def count(value: Value) -> int | None:
    """How many rows a value has; None for what has no rows, a scalar or a sparse value."""
    if isinstance(value, Ragged):
        return len(value)
    return None if isinstance(value, Sparse) or not value.shape else value.shape[0]


def cut(value: Value, start: int, stop: int) -> Value:
    """Rows start to stop, as views; name and metadata stay."""
    return amended(_cut(value, start, stop), value.name, value.meta, value.origin)


def _cut(value: Value, start: int, stop: int) -> Value:
    if isinstance(value, Tensor):
        shape = (stop - start, *value.shape[1:])
        size = math.prod(value.shape[1:]) * dtypes.get(value.dtype).itemsize
        return Tensor(value.dtype, shape, value.data[start * size : stop * size])
    if isinstance(value, Strings):
        width = math.prod(value.shape[1:])
        offsets = value.offsets[start * width : stop * width + 1]
        data = value.data[int(offsets[0]) : int(offsets[-1])]
        return Strings((stop - start, *value.shape[1:]), offsets - offsets[0], data, value.encoding)
    if isinstance(value, Sparse):
        raise LossError("a sparse value has no rows to take apart", feature="sparse")
    shapes = None if value.shapes is None else value.shapes[start:stop]
    splits = []
    for level in value.splits:
        bounds = level[start : stop + 1]
        start, stop = int(bounds[0]), int(bounds[-1])
        splits.append(bounds - start)
    values = _cut(value.values, start, stop)
    assert isinstance(values, Tensor | Strings)
    return Ragged(values, tuple(splits), shapes)


def rows_of(value: Value) -> Iterator[Value]:
    """Each row as a value of its own; what was ragged by one level is dense then."""
    total = count(value)
    if total is None:
        raise LossError("a scalar or sparse value has no rows to take apart", feature="rows")
    for index in range(total):
        yield amended(_row(value, index), None, {}, _row_origin(value))


def _row(value: Value, index: int) -> Value:
    one = _cut(value, index, index + 1)
    if isinstance(one, Tensor):
        return Tensor(one.dtype, one.shape[1:], one.data)
    if isinstance(one, Strings):
        return Strings(one.shape[1:], one.offsets, one.data, one.encoding)
    assert isinstance(one, Ragged)
    if len(one.splits) > 1:
        return Ragged(one.values, one.splits[1:])
    return one.values if one.shapes is None else _reshaped(one.values, tuple(one.shapes[0].tolist()))


def _row_origin(value: Value) -> dict[str, str]:
    """What is true of a row as it is of the whole."""
    return {key: text for key, text in value.origin.items() if key in ("framework", "numpy.dtype")}


def _reshaped(value: Tensor | Strings, shape: tuple[int, ...]) -> Tensor | Strings:
    if isinstance(value, Tensor):
        return Tensor(value.dtype, shape, value.data)
    return Strings(shape, value.offsets, value.data, value.encoding)


def scalar(row: Value) -> Value:
    """A row of one element as that element."""
    if isinstance(row, Tensor | Strings) and row.shape == (1,):
        return amended(_reshaped(row, ()), None, row.meta, row.origin)
    return row


def moved(value: Value, axis: int) -> Value:
    """The value with another axis as its first."""
    if axis == 0:
        return value
    if not isinstance(value, Tensor) or not -len(value.shape) <= axis < len(value.shape):
        raise LossError(f"no axis {axis} to take apart: {_describe(value)}", feature="rows")
    size = dtypes.get(value.dtype).itemsize
    elements = np.moveaxis(np.ndarray(value.shape, f"V{size}", value.data), axis, 0)
    flat = elements.copy(order="C").reshape(-1).view(np.uint8)
    return Tensor(value.dtype, elements.shape, flat, value.name, value.meta, value.origin)


def _describe(value: Value) -> str:
    if isinstance(value, Ragged):
        return f"ragged, {len(value)} rows"
    dtype = value.dtype if isinstance(value, Tensor) else "text" if isinstance(value, Strings) else value.layout
    return f"{dtype}{list(value.shape)}"


class _Elements:
    """Elements end to end: numbers, or strings and their lengths. From some size on they are in a temporary file."""

    def __init__(self, first: Tensor | Strings) -> None:
        self.dtype = first.dtype if isinstance(first, Tensor) else first.encoding
        self._numbers = isinstance(first, Tensor)
        self._pieces: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._lengths = array("q")

    def add(self, value: Tensor | Strings) -> None:
        kind = value.dtype if isinstance(value, Tensor) else value.encoding
        if kind != self.dtype:
            raise LossError(f"rows of {self.dtype} and of {kind} can't be stacked", feature="stack")
        if isinstance(value, Strings):
            self._lengths.frombytes(np.diff(value.offsets).astype(np.int64).tobytes())
        self._pieces.append(bytes(value.data))
        self._size += value.nbytes
        if self._size >= _IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
            weakref.finalize(self, self._file.close)
        self._file.writelines(self._pieces)
        self._pieces, self._size = [], 0

    def finish(self, shape: tuple[int, ...]) -> Tensor | Strings:
        if self._file is None:
            data = memoryview(b"".join(self._pieces))
        else:
            self._spill()
            self._file.flush()
            data = storage.map_open(self._file)
        if self._numbers:
            return Tensor(self.dtype, shape, data)
        return Strings(shape, _offsets([np.frombuffer(self._lengths, np.int64)]), data, self.dtype)


def _offsets(lengths: list[Array]) -> Array:
    out = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    if lengths:
        np.cumsum(np.concatenate(lengths), out=out[1:])
    return out


class Column:
    """A column that grows row by row or batch by batch. Its data go to a temporary file, so that memory stays small.

    Rows of one shape make a tensor, others a ragged value.
    """

    def __init__(self, ragged: bool = False) -> None:
        self._elements: _Elements | None = None
        self._shapes = array("q")  # [rows, rank], flat
        self._rank: int | None = None
        self._levels: list[list[Array]] = []  # lengths, for values that are ragged in several levels
        self._inner: tuple[int, ...] = ()
        self._counted = 0  # rows in _shapes
        self._ragged, self._shaped = ragged, False
        self._origin: dict[str, str] = {}
        self.rows = 0

    def add_row(self, row: Value) -> None:
        """One more row."""
        if isinstance(row, Ragged) and row.shapes is None:
            first = np.array([0, len(row)])
            self._add_levels([np.diff(level) for level in (first, *row.splits)], row.values)
        elif isinstance(row, Tensor | Strings):
            self._add_dense(_reshaped(row, (1, *row.shape)))
        else:
            raise LossError(f"rows like this can't be stacked: {_describe(row)}", feature="stack")
        self._note(row, 1)

    def add(self, batch: Value) -> None:
        """More rows, as a column."""
        if isinstance(batch, Tensor | Strings) and batch.shape:
            self._add_dense(batch)
        elif isinstance(batch, Ragged) and len(batch.splits) == 1:
            self._add_ragged(batch)
        elif isinstance(batch, Ragged):
            self._add_levels([np.diff(level) for level in batch.splits], batch.values)
        else:
            raise LossError(f"no rows to stack: {_describe(batch)}", feature="stack")
        self._note(batch, count(batch) or 0)

    def _note(self, value: Value, rows: int) -> None:
        if not self.rows:
            self._origin = _row_origin(value)
        self.rows += rows

    def _store(self, values: Tensor | Strings) -> None:
        if self._elements is None:
            self._elements = _Elements(values)
        self._elements.add(values)

    def _add_dense(self, batch: Tensor | Strings) -> None:
        self._add_shapes(np.tile(np.array(batch.shape[1:], np.int64), (batch.shape[0], 1)))
        self._store(batch)

    def _add_ragged(self, batch: Ragged) -> None:
        self._ragged = True
        if batch.shapes is not None:
            self._shaped = True
            self._add_shapes(batch.shapes.astype(np.int64))
        else:
            lengths = np.diff(batch.splits[0])
            rest = np.tile(np.array(batch.values.shape[1:], np.int64), (len(lengths), 1))
            self._add_shapes(np.concatenate((lengths[:, None], rest), axis=1))
        self._store(batch.values)

    def _add_shapes(self, shapes: Array) -> None:
        if self._levels or self._rank not in (None, shapes.shape[1]):
            raise LossError("rows of different ranks can't be stacked", feature="stack")
        self._rank = shapes.shape[1]
        self._shapes.frombytes(shapes.astype(np.int64).tobytes())
        self._counted += len(shapes)

    def _add_levels(self, lengths: list[Array], values: Tensor | Strings) -> None:
        inner = values.shape[1:]
        if self._rank is not None or (self._levels and (len(self._levels) != len(lengths) or inner != self._inner)):
            raise LossError("rows of different depths can't be stacked", feature="stack")
        if not self._levels:
            self._levels, self._inner = [[] for _ in lengths], inner
        for level, more in zip(self._levels, lengths, strict=True):
            level.append(more)
        self._store(values)

    def finish(self) -> Value:
        """The whole column."""
        if self._elements is None:
            raise LossError("no rows to stack", feature="stack")
        made = self._nested() if self._levels else self._flat()
        return amended(made, None, {}, self._origin)

    def _nested(self) -> Ragged:
        assert self._elements is not None
        splits = tuple(_offsets(level) for level in self._levels)
        values = self._elements.finish((int(splits[-1][-1]), *self._inner))
        return Ragged(values, splits)

    def _flat(self) -> Value:
        assert self._elements is not None
        assert self._rank is not None
        shapes = np.frombuffer(self._shapes, np.int64).reshape(self._counted, self._rank).copy()
        alike = bool((shapes == shapes[:1]).all())
        if alike and not self._ragged:
            return self._elements.finish((len(shapes), *(shapes[0].tolist() if len(shapes) else self._width())))
        rest = shapes[:, 1:]
        sizes = shapes.prod(axis=1)
        if not self._shaped and bool((rest == rest[:1]).all()):
            lengths = shapes[:, 0]
            inner = rest[0].tolist() if len(rest) else self._width()[1:]
            return Ragged(self._elements.finish((int(lengths.sum()), *inner)), (_offsets([lengths]),))
        return Ragged(self._elements.finish((int(sizes.sum()),)), (_offsets([sizes]),), shapes)

    def _width(self) -> tuple[int, ...]:
        return (0,) * (self._rank or 0)
