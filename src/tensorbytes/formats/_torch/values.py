"""Tensors from what a torch file says of them: storages, offsets, sizes and strides, all checked.

A tensor that lies in C order is a view of its storage. One with other strides, in the
other byte order, packed, or with a pending conjugation or negation is deferred: it is
copied when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, elsewhere
from tensorbytes.errors import CorruptError, LimitError
from tensorbytes.formats._tensorproto import check_shape
from tensorbytes.formats._torch.pickle_values import FaultError, RefusedError
from tensorbytes.tensor import Array, InvalidValueError, Ragged, Sparse, Tensor, Value, amended, with_origin
from tensorbytes.tree import Extent

_SIGNED = ("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128")
_INTEGERS = ("int8", "int16", "int32", "int64")
_PAIRS = "float4_e2m1fn"
# About what a row of a nested tensor takes in memory, for each number that describes it.
_ROW_BYTES = 512
_MEMORY_FORMATS = {4: ("channels_last", (0, 2, 3, 1)), 5: ("channels_last_3d", (0, 2, 3, 4, 1))}


class Storage:
    """Memory that tensors are views of. `dtype` is empty where the tensors say it."""

    __slots__ = ("at", "check", "checked", "data", "dtype", "location", "swap")

    def __init__(
        self, dtype: str, data: memoryview, location: str, at: int, swap: bool, check: Callable[[], None] | None
    ) -> None:
        self.dtype, self.data, self.location, self.at, self.swap = dtype, data, location, at, swap
        self.check, self.checked = check, False

    def verify(self) -> None:
        """Once is enough, however many tensors share it."""
        if self.check is not None and not self.checked:
            self.check()
            self.checked = True


class View(NamedTuple):
    """Which view of which memory a tensor is. Tensors of the same view are one tensor."""

    extent: Extent
    dtype: str
    place: tuple[Any, ...]  # offset, size, strides
    flips: tuple[bool, bool] = (False, False)  # a pending conjugation, a pending negation


class Held(NamedTuple):
    """A value on the machine's stack, and the storages that it is made of; of a dense tensor, the view that it is."""

    value: Value | Deferred
    storages: tuple[Storage, ...]
    view: View | None = None

    def with_origin(self, origin: dict[str, str]) -> Held:
        return self._replace(value=with_origin(self.value, origin))

    def read(self) -> Value:
        return self.value.load()


def dense(storage: Storage, dtype: str, place: tuple[Any, Any, Any], origin: dict[str, str], budget: Budget) -> Held:
    """The tensor of this (offset, size, stride)."""
    offset, size, stride = place
    count, plain = _layout(offset, size, stride, budget)
    row = dtypes.DTYPES[dtype]
    width = row.itemsize
    if not count:
        check_shape(size, width, budget, storage.at)
        shape = size if dtype != _PAIRS or not size else (*size[:-1], size[-1] * 2)
        return Held(Tensor(dtype, shape, b"", origin=origin), (storage,))
    end = (offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1) * width
    if end > len(storage.data):
        raise FaultError(f"a tensor {dtype}{_short(size)} ends at byte {end} of a storage of {len(storage.data)}")
    view = View(Extent(storage.at, offset * width, end), dtype, place)
    if plain and not storage.swap and dtype != _PAIRS:
        return Held(Tensor(dtype, size, storage.data[offset * width : end], origin=origin), (storage,), view)
    budget.check(count * width, f"a tensor {dtype}{_short(size)} with strides {_short(stride)}", storage.at)
    steps = [step * width if n != 1 else 0 for n, step in zip(size, stride, strict=True)]
    try:
        elements = np.ndarray(size, f"V{width}", storage.data, offset * width, steps)
    except ValueError as error:
        raise RefusedError(f"a tensor {dtype}{_short(size)} that NumPy can't address: {error}") from None
    if memory_format := _memory_format(size, stride) if not plain else "":
        origin = {**origin, "memory_format": memory_format}
    if dtype == _PAIRS:
        return Held(replace(_unpaired(elements), origin=origin), (storage,), view)
    return Held(replace(elsewhere(dtype, elements, storage.swap), origin=origin), (storage,), view)


def _layout(offset: Any, size: Any, stride: Any, budget: Budget) -> tuple[int, bool]:
    """(the number of elements, whether they lie in C order)"""
    if type(offset) is not int or not 0 <= offset < 1 << 63 or type(size) is not tuple or type(stride) is not tuple:
        raise FaultError("the offset, size or strides of a tensor are of other types")
    if len(size) != len(stride):
        raise FaultError(f"a tensor of rank {len(size)} has {len(stride)} strides")
    if len(size) > budget.max_rank:
        raise LimitError(f"a tensor of rank {len(size)}, over the limit of {budget.max_rank}")
    count, plain = 1, True
    for n, step in zip(reversed(size), reversed(stride), strict=True):
        if type(n) is not int or type(step) is not int or n < 0 or step < 0 or n >> 63 or step >> 63:
            raise FaultError(f"a tensor has the size {_short(size)} and the strides {_short(stride)}")
        if step != count and n != 1:
            plain = False
        count *= n
    return count, plain


def _short(numbers: tuple[Any, ...]) -> str:
    text = str(list(numbers))
    return text if len(text) < 100 else f"{text[:100]}..."


def _memory_format(size: tuple[int, ...], stride: tuple[int, ...]) -> str:
    """Whether the strides are those of channels_last, as torch sees it."""
    name, order = _MEMORY_FORMATS.get(len(size), ("", ()))
    expected = 1
    for axis in reversed(order):
        if size[axis] != 1 and stride[axis] != expected:
            return ""
        expected *= size[axis]
    return name


def _unpaired(elements: Array) -> Deferred:
    """Two values to a byte, the first in the low half; the last axis counts bytes."""
    if not elements.ndim:
        raise RefusedError("a 0-d tensor of float4_e2m1fn_x2: it holds two values and has no axis for them")
    shape = (*elements.shape[:-1], elements.shape[-1] * 2)

    def fetch() -> Tensor:
        packed = elements.copy(order="C").reshape(-1).view(np.uint8)
        return Tensor(_PAIRS, shape, np.stack((packed & 15, packed >> 4), axis=-1).reshape(-1))

    return Deferred("tensor", _PAIRS, shape, fetch, math.prod(shape))


def flipped(held: Held, conjugate: bool, negative: bool) -> Held:
    """The tensor with the operations done that torch has put off."""
    value = held.value
    _, dtype, shape, _ = value.header
    if (conjugate and "complex" not in dtype) or dtype not in (*_SIGNED, *_INTEGERS):
        raise RefusedError(f"a pending conjugation or negation of {dtype}")

    def flip(got: Value) -> Tensor:
        assert isinstance(got, Tensor)
        return Tensor(dtype, got.shape, _flip_signs(np.frombuffer(got.data, np.uint8), dtype, conjugate, negative))

    later = Deferred(
        "tensor", dtype, shape, lambda: flip(value.load()), value.nbytes,
        (lambda index: flip(value.part(index))) if value.in_parts else None, None, value.meta, value.origin,
    )  # fmt: skip
    view = None if held.view is None else held.view._replace(flips=(conjugate, negative))
    return Held(later, held.storages, view)


def _flip_signs(flat: Array, dtype: str, conjugate: bool, negative: bool) -> Array:
    """Negate by the sign bit, as arithmetic would change NaNs."""
    parts = 2 if "complex" in dtype else 1
    width = dtypes.get(dtype).itemsize // parts
    bits = flat.view(f"<u{width}").reshape(-1, parts)
    if dtype in _INTEGERS:
        done: Array = -bits
        return done.reshape(-1).view(np.uint8)
    sign = 1 << width * 8 - 1
    which = [negative, negative != conjugate][:parts]
    made: Array = bits ^ np.array([sign if flip else 0 for flip in which], bits.dtype)
    return made.reshape(-1).view(np.uint8)


# ---- values of several tensors ----------------------------------------------


def _later(
    kind: str, dtype: str, shape: tuple[int | None, ...], parts: list[Held], nbytes: int, make: Callable[[], Value]
) -> Held:
    """A value that is put together when it is read; parts that don't fit are the file's fault."""
    storages = tuple(storage for part in parts for storage in part.storages)
    at = storages[0].at if storages else 0

    def fetch() -> Value:
        try:
            return make()
        except InvalidValueError as error:
            raise CorruptError(error.fault, at=at) from None

    # `make` leaves the metadata out: load() adds it.
    return Held(Deferred(kind, dtype, shape, fetch, nbytes, origin=parts[-1].value.origin), storages)


def sparse(layout: str, index: list[Held], values: Held, shape: tuple[int, ...]) -> Held:
    """torch keeps coordinates as [k, nnz], we as [nnz, k]; compressed layouts are the same."""
    inner = values.value
    for part in index:
        if part.value.header.dtype not in ("int32", "int64"):
            raise FaultError("the indices of a sparse tensor are not integers")

    def make() -> Sparse:
        arrays = [_array(part) for part in index]
        if layout == "coo":
            if arrays[0].ndim != 2:
                raise InvalidValueError(f"coordinates have two axes, not {arrays[0].ndim}")
            arrays = [np.ascontiguousarray(arrays[0].T)]
        got = values.read()
        assert isinstance(got, Tensor)
        return Sparse(layout, shape, tuple(arrays), amended(got, None, {}, {}))

    nbytes = inner.nbytes + sum(part.value.nbytes for part in index)
    return _later("sparse", inner.header.dtype, shape, [*index, values], nbytes, make)


def _array(held: Held) -> Array:
    value = held.read()
    assert isinstance(value, Tensor)
    return value.numpy()


def jagged(values: Held, offsets: Held) -> Held:
    inner, splits = values.value.header, offsets.value.header
    if splits.dtype not in ("int32", "int64") or len(splits.shape) != 1 or not inner.shape:
        raise FaultError("a jagged tensor wants a list of offsets, and values with an axis")

    def make() -> Ragged:
        got = values.read()
        assert isinstance(got, Tensor)
        return Ragged(amended(got, None, {}, {}), (_array(offsets),))

    shape = ((splits.shape[0] or 1) - 1, None, *inner.shape[1:])
    return _later("ragged", inner.dtype, shape, [offsets, values], values.value.nbytes + offsets.value.nbytes, make)


def nested(buffer: Held, index: list[Held], budget: Budget) -> Held:
    """Rows in one buffer, each with sizes, strides and an offset of its own. The indices are read at once."""
    inner = buffer.value.header
    if len(inner.shape) != 1 or any(part.value.header.dtype != "int64" for part in index):
        raise FaultError("a nested tensor wants a flat buffer, and indices of int64")
    at = buffer.storages[0].at
    numbers = sum(part.value.nbytes for part in index) // 8
    budget.objects(numbers, "the rows of a nested tensor", at, _ROW_BYTES)
    sizes, strides, offsets = (_array(part) for part in index)
    if sizes.ndim != 2 or strides.shape != sizes.shape or offsets.shape != sizes.shape[:1] or not len(sizes):
        raise FaultError(f"a nested tensor with sizes {sizes.shape}, strides {strides.shape}, offsets {offsets.shape}")
    width = dtypes.get(inner.dtype).itemsize
    rows = list(zip(offsets.tolist(), map(tuple, sizes.tolist()), map(tuple, strides.tolist()), strict=True))
    total = sum(_layout(*row, budget)[0] for row in rows)
    budget.check(total * width, "a nested tensor", at)

    def make() -> Ragged:
        got = buffer.read()
        assert isinstance(got, Tensor)
        memory = Storage(inner.dtype, memoryview(got.data), "cpu", 0, False, None)
        room = budget.renewed(got.nbytes)  # what all rows take together was counted
        try:
            views = [dense(memory, inner.dtype, row, {}, room).read() for row in rows]
        except (FaultError, RefusedError) as error:
            raise InvalidValueError(str(error)) from None
        splits = np.cumsum([0, *(view.nbytes // width for view in views)], dtype=np.int64)
        values = Tensor(inner.dtype, (total,), b"".join(view.data for view in views if isinstance(view, Tensor)))
        return Ragged(values, (splits,), sizes)

    shape = (len(rows), *[None] * sizes.shape[1])
    return _later("ragged", inner.dtype, shape, [*index, buffer], total * width, make)
