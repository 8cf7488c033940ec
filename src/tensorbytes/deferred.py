"""Values that are not read yet: what their file says of them, and how to get them.

Lazy decoding gives a plain view wherever the bytes of a file are the bytes of a tensor.
Where they are not (compressed, packed, in another byte order, not in C order), it gives a
Deferred: listing the file costs nothing, and a slice reads no more than it must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.tensor import Array, Strings, Tensor, Value, amended


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """One value of a file. `part(index)` reads a slice alone, where the format can do that."""

    kind: str  # tensor, strings, ragged or sparse
    dtype: str  # "string" for strings
    shape: tuple[int | None, ...]  # None for ragged axes
    fetch: Callable[[], Value] = field(repr=False)
    nbytes: int = 0  # in memory, as far as it is known before reading
    part: Callable[[Any], Tensor | Strings] | None = field(default=None, repr=False)
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)

    def load(self) -> Value:
        """The value itself, under the name and with the metadata given here."""
        return amended(self.fetch(), self.name, self.meta)


def whole(value: Value | Deferred) -> Value:
    """The value itself, read if it was not."""
    return value.load() if isinstance(value, Deferred) else value


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


def swapped(flat: Array, dtype: str) -> Array:
    """The bytes of elements in the other byte order; a complex number is two floats, each swapped on its own."""
    row = dtypes.get(dtype)
    width = row.itemsize // 2 if "complex" in dtype else row.itemsize
    return flat if width == 1 else flat.view(f"<u{width}").byteswap().view(np.uint8)
