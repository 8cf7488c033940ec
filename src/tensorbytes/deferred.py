"""Values that are not read yet: what their file says of them, and how to get them.

Lazy decoding gives a plain view wherever the bytes of a file are the bytes of a tensor.
Where they are not (compressed, packed, in another byte order, not in C order), it gives a
Deferred: listing the file costs nothing, and a slice reads no more than it must.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import dtypes
from tensorbytes.tensor import Array, Header, Strings, Tensor, Value, amended, part_origin


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """One value of a file. `cut(index)` reads a slice alone, where the format can do that.

    It has the `header`, `load()` and `part(index)` of the values themselves.
    """

    kind: str  # tensor, strings, ragged or sparse
    dtype: str  # "string" for strings
    shape: tuple[int | None, ...]  # None for ragged axes
    fetch: Callable[[], Value] = field(repr=False)
    nbytes: int = 0  # in memory, as far as it is known before reading
    cut: Callable[[Any], Tensor | Strings] | None = field(default=None, repr=False)
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    # Of an array in Fortran order, whose first axis is the fastest in memory: the tensor with its axes reversed.
    reverse: Callable[[], Tensor] | None = field(default=None, repr=False)

    at_hand = False

    @property
    def header(self) -> Header:
        return Header(self.kind, self.dtype, self.shape, self.nbytes if self.nbytes or 0 in self.shape else None)

    @property
    def in_parts(self) -> bool:
        return self.cut is not None

    def load(self) -> Value:
        """The value itself, under the name and with the metadata given here."""
        return amended(self.fetch(), self.name, self.meta, self.origin)

    def reversed_axes(self) -> Tensor | None:
        """The tensor with its axes reversed, where that is how it stands in memory; None where it is not."""
        return None if self.reverse is None else amended(self.reverse(), self.name, self.meta, self.origin)

    def part(self, index: Any) -> Tensor | Strings:
        """What an index picks, as NumPy would, with the metadata given here."""
        if self.cut is None:
            return self.load().part(index)
        return amended(self.cut(index), self.name, self.meta, part_origin(self.origin))


# What is stored as one array: a tensor, read or not, or strings.
Dense: TypeAlias = Tensor | Strings | Deferred


def elsewhere(dtype: str, elements: Array, swap: bool = False) -> Deferred:
    """A tensor in memory of another order: any strides, and with `swap` the other byte order.

    `elements` is a view of type V1, V2, V4, ...: bytes that no arithmetic touches.
    """

    def part(index: Any) -> Tensor:
        picked = np.asarray(elements[index])
        # Not ascontiguousarray, which makes a scalar one-dimensional.
        flat = picked.copy(order="C").reshape(-1).view(np.uint8)
        return Tensor(dtype, picked.shape, swapped(flat, dtype) if swap else flat)

    return Deferred("tensor", dtype, elements.shape, lambda: part(...), elements.nbytes, part)


def in_fortran_order(dtype: str, shape: tuple[int, ...], reverse: Callable[[], Tensor]) -> Deferred:
    """A tensor whose first axis is the fastest in memory; `reverse` gives the one with its axes reversed."""

    def part(index: Any) -> Tensor:
        got = reverse()
        elements: Array = np.ndarray(shape, f"V{dtypes.get(dtype).itemsize}", got.data, order="F")
        return elsewhere(dtype, elements).part(index)  # type: ignore[return-value]

    size = dtypes.nbytes(dtypes.get(dtype), shape)
    return Deferred("tensor", dtype, shape, lambda: part(...), size, part, reverse=reverse)


def swapped(flat: Array, dtype: str) -> Array:
    """The bytes of elements in the other byte order; a complex number is two floats, each swapped on its own."""
    row = dtypes.get(dtype)
    width = row.itemsize // 2 if "complex" in dtype else row.itemsize
    return flat if width == 1 else flat.view(f"<u{width}").byteswap().view(np.uint8)


class Block(NamedTuple):
    """A contiguous block of a tensor that holds all that an index asks for."""

    first: int  # the number of its first element
    shape: tuple[int, ...]
    rest: Any  # the index within the block


def leading_block(shape: tuple[int, ...], index: Any, whole_rows: bool = False) -> Block:
    """The smallest block that the integers at the front of an index, and a slice after them, tell.

    Whatever else can index an array is left to `rest`. With `whole_rows` the block is rows of the first axis.
    The block keeps an axis of size 1, and `rest` a 0, for each integer: next to an array they decide the order of axes.
    """
    steps = index if isinstance(index, tuple) else (index,)
    first = 0
    ones: tuple[int, ...] = ()
    zeros: tuple[int, ...] = ()
    for axis, (size, step) in enumerate(zip(shape, steps, strict=False)):
        after, left = shape[axis + 1 :], steps[axis + 1 :]
        if isinstance(step, slice):
            wanted = range(size)[step]
            low, high = (min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1]) + 1) if wanted else (0, 0)
            within = slice(None, None, wanted.step)
            return Block(first + low * math.prod(after), (*ones, high - low, *after), (*zeros, within, *left))
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            return Block(first, (*ones, *shape[axis:]), (*zeros, *steps[axis:]))
        if not -size <= step < size:
            raise IndexError(f"index {step} is out of bounds for axis {axis} with size {size}")
        first += int(step) % size * math.prod(after)
        ones, zeros = (*ones, 1), (*zeros, 0)
        if whole_rows:
            return Block(first, (*ones, *after), (*zeros, *left))
    return Block(first, (*ones, *shape[len(steps) :]), (*zeros, *steps[len(shape) :]))
