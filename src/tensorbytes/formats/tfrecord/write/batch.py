"""Columns of many rows, as the caller has them, to columns as the kernel writes them.

Arrays are checked once and used where they are; what has another form on disk (narrow
integers, TensorProtos) is made for some rows at a time, so memory stays bounded.

| given                                | in each row                                 |
| ------------------------------------ | ------------------------------------------- |
| array [n, ...] of any framework      | a value of shape [...]                      |
| Strings [n, ...]                     | the same of strings                         |
| Ragged                               | a value whose first size varies, or all do  |
| list                                 | one item, in any form that a row may have   |
| for a feature list: array, Ragged    | as many steps as the second axis has        |
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from tensorbytes import _wire, dtypes, frameworks, quantization
from tensorbytes.errors import Hint, UnsupportedError, UsageError
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.formats.tfrecord.write import encode
from tensorbytes.formats.tfrecord.write.assemble import KernelColumn, every
from tensorbytes.formats.tfrecord.write.collect import collector, string_column
from tensorbytes.formats.tfrecord.write.encode import STRINGS, Misfit
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor

# A column as given: a neutral value with the rows along its first axis, or a list of rows.
Arrays = Tensor | Strings | Ragged
Given = Arrays | list[Any]


class RowMisfit(Misfit):
    """A misfit in one row of a list."""

    def __init__(self, row: int, cause: Misfit) -> None:
        super().__init__(cause.expected, cause.got, cause.shape, cause.missing, cause.hints)
        self.row = row


class BatchColumn(Protocol):
    @property
    def nbytes(self) -> int:
        """About how much it will take on disk."""

    def rows(self, start: int, stop: int) -> KernelColumn:
        """The rows [start, stop) for the kernel."""


def given(x: Any) -> Given:
    """A column in one of the forms above."""
    if isinstance(x, list | tuple):
        return list(x)
    if isinstance(x, np.ndarray) and x.dtype == object and x.ndim == 1:
        return list(x)  # of texts, of arrays, some of them missing perhaps
    if not frameworks.of(x):
        raise UsageError(f"a column must be an array or a list, with one item for each row; got {encode.describe(x)}")
    value = frameworks.to_value(x)
    if isinstance(value, Sparse):
        raise UnsupportedError(
            "a sparse column has no rows to write", hints=[Hint(purpose="pass its dense form, or a Ragged")]
        )
    if not isinstance(value, Ragged) and not value.shape:
        raise UsageError(f"a column needs a first axis, one item for each row; got a scalar, {encode.describe(x)}")
    return value


def length(value: Given) -> int:
    return len(value) if isinstance(value, list | Ragged) else value.shape[0]


def count_rows(columns: Mapping[str, Given]) -> int:
    """How many rows a batch has."""
    lengths = {name: length(value) for name, value in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"the columns of a batch must be of one length, got {lengths}")
    return next(iter(lengths.values()), 0)


def column(key: str, feature: Feature, is_list: bool, value: Given) -> BatchColumn:
    """A column for the kernel, if it fits its feature."""
    if isinstance(value, list):
        return _from_list(key, feature, is_list, value)
    steps, cells = fitted(feature, is_list, value)
    if steps is None:
        return _plain(key, feature, cells)
    with _rows_of_steps(steps):
        return Steps(steps, _plain(key, replace(feature, optional=False), cells))


def present_column(made: BatchColumn, feature: Feature, present: Array) -> BatchColumn:
    """A column that some rows lack."""
    if not feature.optional and not present.all():
        raise RowMisfit(int(np.argmin(present)), Misfit(feature.describe(), "None", missing=True))
    return PresentColumn(made, present)


def fitted(feature: Feature, is_list: bool, value: Arrays) -> tuple[Array | None, Arrays]:
    """(where the steps of each row are, in a feature list; the values of all rows, or of all steps), if they fit.

    This decides what a feature takes. Nothing is encoded.
    """
    if not is_list:
        return None, _fit(feature, value)
    steps, below = _in_steps(feature, value)
    with _rows_of_steps(steps):
        return steps, _fit(feature, below)


@contextlib.contextmanager
def _rows_of_steps(steps: Array) -> Iterator[None]:
    """A misfit in a step is one in the row that has it."""
    try:
        yield
    except RowMisfit as error:
        error.row = int(np.searchsorted(steps, error.row, side="right")) - 1
        raise


def _in_steps(feature: Feature, value: Arrays) -> tuple[Array, Arrays]:
    """(where the steps of each row are, all steps)"""
    if isinstance(value, Ragged) and value.shapes is None:
        below = Ragged(value.values, value.splits[1:]) if len(value.splits) > 1 else value.values
        return _int64(value.splits[0]), below
    if isinstance(value, Ragged) and value.shapes is not None and value.shapes.shape[1]:
        counts, inner = np.split(_int64(value.shapes), [1], axis=1)
        shapes = np.repeat(inner, counts[:, 0], axis=0)
        below = Ragged(value.values, (offsets_of(shapes.prod(axis=1)),), shapes) if shapes.shape[1] else value.values
        return offsets_of(counts[:, 0]), below
    if isinstance(value, Ragged) or len(value.shape) < 2:
        raise Misfit(f"steps of {feature.describe()} in each row", encode.describe(value))
    count, size, *rest = value.shape
    shape = (count * size, *rest)
    if isinstance(value, Tensor):
        return every(size, count), Tensor(value.dtype, shape, value.data)
    return every(size, count), Strings(shape, value.offsets, value.data, value.encoding)


def _fit(feature: Feature, value: Arrays) -> Arrays:
    """The same column, if it fits; its strings are in the feature's encoding."""
    inside = elements(value)
    if isinstance(inside, Strings) != (feature.dtype in STRINGS):
        raise Misfit(feature.describe(), f"a column of {dtype_of(inside)}")
    if isinstance(value, Ragged):
        value = replace(value, splits=tuple(map(_int64, value.splits)))  # what is checked stays as it was
        _check_rows(feature, value)
    else:
        encode.check_shape(dtype_of(value), value.shape[1:], feature)
    if isinstance(inside, Tensor):
        encode.check_dtype(inside, feature)
        return value
    return _with_elements(value, encode.as_encoding(inside, feature))


def _with_elements(value: Arrays, inside: Tensor | Strings) -> Arrays:
    if not isinstance(value, Ragged):
        return inside
    return value if inside is value.values else replace(value, values=inside)


def _check_rows(feature: Feature, value: Ragged) -> None:
    """Refuse rows of which one has another shape."""
    if len(value.splits) > 1:
        raise UnsupportedError(
            "a value with two levels of rows can't be a feature of one record",
            hints=[Hint(purpose="make it a feature list")],
        )
    if value.shapes is not None:
        sizes: Sequence[Array] = list(value.shapes.T)
    else:
        lengths = np.diff(value.splits[0])
        sizes = [lengths, *(np.full(len(lengths), n) for n in value.values.shape[1:])]
    wrong = np.full(len(value), len(sizes) != len(feature.shape))
    for size, want in zip(sizes, feature.shape, strict=False):
        if want is not None:
            wrong |= size != want
    if wrong.any():
        row = int(np.argmax(wrong))
        shape = tuple(int(size[row]) for size in sizes)
        raise RowMisfit(row, Misfit(feature.describe(), encode.named(dtype_of(value.values), shape), shape))


def _plain(key: str, feature: Feature, value: Arrays) -> BatchColumn:
    """A column that fits."""
    inside = elements(value)
    if isinstance(inside, Tensor):
        inside = encode.of_dtype(inside, feature)
        value = _with_elements(value, inside)
    if feature.encoding in ("tensorproto", "raw"):
        if isinstance(value, Ragged):
            return _from_list(key, feature, False, value.rows())
        if isinstance(value, Strings):
            return _from_list(key, feature, False, list(value.numpy()))
        return CellColumn(key, feature, value) if feature.quantize is None else _quantized(key, feature, value)
    if not isinstance(value, Ragged):
        offsets = every(math.prod(value.shape[1:]), value.shape[0])
    else:
        offsets = value.splits[0] * math.prod(value.values.shape[1:])
    if isinstance(inside, Tensor):
        return Numbers(key, feature, offsets, inside)
    return _strings(key, feature, offsets, inside)


def _quantized(key: str, feature: Feature, value: Tensor) -> BatchColumn:
    """All rows at once where the schema has the scale; else each has its own, and so it has if one can't be held."""
    if feature.encoding == "raw" and feature.quantize.max_error is None:
        try:
            return CellColumn(key, feature, quantization.quantize(value, feature.quantize).data)
        except UnsupportedError:
            pass  # which row it is is found one by one
    return _from_list(key, feature, False, list(value.numpy()))


def _strings(key: str, feature: Feature, offsets: Array, value: Strings) -> BatchColumn:
    if feature.encoding == "base64":
        raw = value if value.encoding == "bytes" else Strings(value.shape, value.offsets, value.data)
        return Whole(string_column(key.encode(), feature, offsets, raw.items()))
    data = np.frombuffer(value.data, np.uint8)
    return Whole(KernelColumn(1, key.encode(), None, offsets, None, data, _int64(value.offsets)))


def elements(value: Arrays) -> Tensor | Strings:
    return value.values if isinstance(value, Ragged) else value


def dtype_of(value: Tensor | Strings) -> str:
    return value.dtype if isinstance(value, Tensor) else encode.string_dtype(value)


def _int64(x: Array) -> Array:
    return np.array(x, np.int64, order="C")  # always a copy


# ---- lists of rows ----------------------------------------------------------


def _from_list(key: str, feature: Feature, is_list: bool, items: list[Any]) -> BatchColumn:
    if not is_list and not feature.shape and not feature.optional and feature.quantize is None:
        quick = _quick_list(key, feature, items)
        if quick is not None:
            return quick
    collected = collector(key, feature, is_list)
    row = 0
    try:
        for row, item in enumerate(items):  # noqa: B007 - named in the error
            if item is None and not feature.optional:
                raise Misfit(feature.describe(), "None", missing=True)
            collected.add(item)
    except Misfit as error:
        raise RowMisfit(row, error) from None
    return Whole(collected.take())


def _quick_list(key: str, feature: Feature, items: list[Any]) -> BatchColumn | None:
    """A list of plain Python scalars, where that is what the feature holds."""
    if feature.dtype == "bytes" and feature.encoding == "flat":
        bounds = np.empty(len(items) + 1, np.int64)
        return Blobs(key, items, bounds) if _wire.bytes_offsets(items, bounds) == len(items) else None
    types = set(map(type, items))
    if feature.dtype == "float64" and types == {float}:
        return CellColumn(key, feature, Tensor("float64", (len(items),), np.array(items, "<f8").view(np.uint8)))
    if feature.encoding != "flat":
        return None
    if feature.dtype == "text" and types == {str}:
        return _quick_texts(key, feature, items)
    if feature.dtype == "int64" and types == {int}:
        try:
            values = np.array(items, np.int64)
        except OverflowError:
            return None
        return Whole(KernelColumn(3, key.encode(), None, every(1, len(items)), None, values, None))
    return None


def _quick_texts(key: str, feature: Feature, items: list[str]) -> BatchColumn | None:
    joined = "".join(items)
    if joined.isascii():  # so that lengths in characters are lengths in bytes
        bounds = offsets_of(np.fromiter(map(len, items), np.int64, len(items)))
        return Whole(KernelColumn(1, key.encode(), None, every(1, len(items)), None, joined.encode(), bounds))
    try:
        return Whole(string_column(key.encode(), feature, every(1, len(items)), [item.encode() for item in items]))
    except UnicodeEncodeError:
        return None


# ---- the forms of a column --------------------------------------------------


class Whole:
    """A column that is in its final form."""

    def __init__(self, made: KernelColumn) -> None:
        self._column = made

    @property
    def nbytes(self) -> int:
        strings = self._column.string_offsets
        return memoryview(self._column.values).nbytes + (0 if strings is None else 2 * len(strings))

    def rows(self, start: int, stop: int) -> KernelColumn:
        column = self._column
        present = None if column.present is None else column.present[start:stop]
        if column.steps is not None:
            return column._replace(steps=column.steps[start : stop + 1], present=present)
        return column._replace(offsets=column.offsets[start : stop + 1], present=present)


class Blobs:
    """One byte string for each row, with the places that they would have end to end."""

    def __init__(self, key: str, items: list[bytes], bounds: Array) -> None:
        self._key, self._items, self._bounds = key.encode(), items, bounds

    @property
    def nbytes(self) -> int:
        return int(self._bounds[-1]) + 2 * len(self._bounds)

    def rows(self, start: int, stop: int) -> KernelColumn:
        bounds = self._bounds[start : stop + 1] - self._bounds[start]
        joined = b"".join(self._items[start:stop])
        return KernelColumn(1, self._key, None, every(1, stop - start), None, joined, bounds)


class PresentColumn:
    """A column that some rows lack: what it holds for them is not written."""

    def __init__(self, made: BatchColumn, present: Array) -> None:
        self._column, self._present = made, np.ascontiguousarray(present, bool).view(np.uint8)

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    def rows(self, start: int, stop: int) -> KernelColumn:
        return self._column.rows(start, stop)._replace(present=self._present[start:stop])


class Numbers:
    """Numbers for an int64 or float list, in whatever dtype they have."""

    def __init__(self, key: str, feature: Feature, offsets: Array, value: Tensor) -> None:
        self._key, self._feature, self._offsets, self._value = key.encode(), feature, offsets, value
        self._itemsize = dtypes.get(value.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return self._value.nbytes // self._itemsize * (4 if self._feature.kind == "float" else 3)

    def rows(self, start: int, stop: int) -> KernelColumn:
        offsets = self._offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = memoryview(self._value.data)[first * self._itemsize : last * self._itemsize]
        values = encode.stored(Tensor(self._value.dtype, (last - first,), data), self._feature.kind)
        return KernelColumn(self._feature.kind_number, self._key, None, offsets - first, None, values, None)


class CellColumn:
    """Arrays of one shape, each as a TensorProto or raw: the same head before each content."""

    def __init__(self, key: str, feature: Feature, value: Tensor) -> None:
        self._key = key.encode()
        count, *inner = value.shape
        size = value.nbytes // count if count else 0
        head = b"" if feature.encoding == "raw" else encode.proto_head(value.dtype, tuple(inner), size)
        self._head = np.frombuffer(head, np.uint8)
        self._content = np.frombuffer(value.data, np.uint8).reshape(count, size)

    @property
    def nbytes(self) -> int:
        return self._content.nbytes + len(self._content) * len(self._head)

    def rows(self, start: int, stop: int) -> KernelColumn:
        content, at = self._content[start:stop], len(self._head)
        cells = np.empty((len(content), at + content.shape[1]), np.uint8)
        cells[:, :at] = self._head
        cells[:, at:] = content
        bounds = every(cells.shape[1], len(cells))
        return KernelColumn(1, self._key, None, every(1, len(cells)), None, cells.reshape(-1), bounds)


class Steps:
    """A feature list: rows of a column whose rows are steps."""

    def __init__(self, steps: Array, inner: BatchColumn) -> None:
        self._steps, self._inner = steps, inner

    @property
    def nbytes(self) -> int:
        return self._inner.nbytes + 4 * int(self._steps[-1])

    def rows(self, start: int, stop: int) -> KernelColumn:
        steps = self._steps[start : stop + 1]
        first = int(steps[0])
        return self._inner.rows(first, int(steps[-1]))._replace(steps=steps - first)
