"""Which scale belongs to which elements, and work in pieces that fit a processor's cache.

A tensor is one section, or two or three where groups don't divide the last axis: its elements as
a block [A, B, C], its scales as [A, B, 1]. All are views, so what is written to them is
written to the tensor.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes.tensor import Array

Tile: TypeAlias = tuple[slice, slice, slice]
# Some arrays of float64 of this size stay in a second-level cache.
TILE = 1 << 15
# Shorter runs than this are slow to combine with one scale each: the scales are written out instead.
_SHORT = 128
_OWN = threading.local()


def scratch(purpose: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Memory for intermediate values of a tile, used again for the next: fresh pages cost more than the arithmetic."""
    wanted, kept = np.dtype(dtype), getattr(_OWN, purpose, None)
    size = math.prod(shape) * wanted.itemsize
    if kept is None or kept.nbytes < size:
        kept = np.empty(max(size, TILE * 8), np.uint8)
        setattr(_OWN, purpose, kept)
    return np.ndarray(shape, wanted, kept)


class Section(NamedTuple):
    """The elements [first, first + runs * size) of each row, in runs that have a scale each."""

    rows: int
    width: int
    first: int
    runs: int
    size: int
    scale_rows: int  # 1 where all rows share their scales
    scale_width: int
    first_scale: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.runs, self.size

    def values(self, flat: Array) -> Array:
        """The elements of this section, out of all elements of the tensor."""
        row = flat.reshape(self.rows, self.width)[:, self.first : self.first + self.runs * self.size]
        return row.reshape(self.shape)

    def own_scales(self, flat: Array) -> Array:
        """The scales (or zeros) of this section, out of all: [A or 1, B]."""
        table = flat.reshape(self.scale_rows, self.scale_width)
        return table[:, self.first_scale : self.first_scale + self.runs]

    def scales(self, flat: Array) -> Array:
        """The same, for each row: [A, B, 1]."""
        return np.broadcast_to(self.own_scales(flat), (self.rows, self.runs))[:, :, None]

    def tiles(self, most: int = TILE) -> Iterator[Tile]:
        """Pieces of about `most` elements."""
        rows, runs, size = self.shape
        if runs * size <= most:
            step = max(most // (runs * size), 1)
            for a in range(0, rows, step):
                yield slice(a, min(a + step, rows)), slice(0, runs), slice(0, size)
            return
        step = max(most // size, 1)
        for a in range(rows):
            for b in range(0, runs, step):
                for c in range(0, size, most):
                    yield slice(a, a + 1), slice(b, min(b + step, runs)), slice(c, min(c + most, size))


def sections(shape: tuple[int, ...], axis: int | None, group: int | None, start: int = 0) -> list[Section]:
    """Those of a tensor; with `start`, of rows of one, whose first row is number `start`.

    The scales are then those of these rows alone, as `scales_of_rows` picks them.
    """
    count = math.prod(shape)
    if not count:
        return []
    if axis is not None:
        outer, size = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return [Section(outer, shape[axis] * size, 0, shape[axis], size, 1, shape[axis], 0)]
    if group is None:
        return [Section(1, count, 0, 1, count, 1, 1, 0)]
    width = shape[-1] if shape else 1
    rows, offset = count // width, start % group if len(shape) == 1 else 0
    total = -(-(offset + width) // group)
    found, first, scale = [], 0, 0
    while first < width:
        size = min(group - (offset if first == 0 else 0), width - first)
        runs = (width - first) // group if size == group else 1
        found.append(Section(rows, width, first, runs, size, rows, total, scale))
        first, scale = first + runs * size, scale + runs
    return found


def scales_of_rows(flat: Array, shape: tuple[int, ...], axis: int | None, group: int | None, start: int) -> Array:
    """The scales (or zeros) of the rows from `start` on, of which there are shape[0]."""
    if axis is not None:
        return flat[start : start + shape[0]] if axis == 0 else flat
    if group is None:
        return flat
    if len(shape) == 1:
        return flat[start // group : -(-(start + shape[0]) // group)]
    per_row = math.prod(shape[1:-1]) * -(-shape[-1] // group)
    return flat[start * per_row : (start + shape[0]) * per_row]


def spread(scales: Array, tile: Tile, shape: tuple[int, ...]) -> Array:
    """The scales of a tile, ready to be combined with its elements."""
    own = scales[tile[0], tile[1]]
    if own.size > 1 and shape[2] < _SHORT:
        full = scratch(f"spread {own.dtype}", shape, own.dtype)
        full[...] = own
        return full
    return own
