"""Rows of different lengths in one dense array: which elements are there, and which rows are too long.

Rows are given as a Ragged has them: row splits, outermost first, or one level of them with a shape for each row.
An axis that varies is one level of splits, or one column of the shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


class Excess(NamedTuple):
    """A row that is longer than its axis may be."""

    row: int  # of the outermost level
    axis: int  # which of those that vary, from 0
    size: int


def longest(splits: Sequence[Array], shapes: Array | None) -> list[int]:
    """The size that each axis that varies needs."""
    if shapes is not None:
        found: list[int] = shapes.max(axis=0, initial=0).tolist()
        return found
    return [int(np.diff(level).max(initial=0)) for level in splits]


def first_excess(splits: Sequence[Array], shapes: Array | None, sizes: Sequence[int]) -> Excess | None:
    """The first row that does not fit these sizes."""
    for axis, size in enumerate(sizes):
        lengths = np.diff(splits[axis]) if shapes is None else shapes[:, axis]
        if (over := np.flatnonzero(lengths > size)).size:
            row = number = int(over[0])
            for level in reversed(splits[:axis]) if shapes is None else ():
                row = int(np.searchsorted(level, row, side="right")) - 1
            return Excess(row, axis, int(lengths[number]))
    return None


def mask_of(splits: Sequence[Array], shapes: Array | None, sizes: Sequence[int]) -> Array:
    """bool [rows, *sizes]: where there is an element. What does not fit the sizes is left out."""
    if shapes is not None:
        mask = np.ones((len(shapes), *sizes), bool)
        for axis, size in enumerate(sizes):
            inside = np.arange(size) < shapes[:, axis, None]
            mask &= inside.reshape(len(shapes), *(size if other == axis else 1 for other in range(len(sizes))))
        return mask
    mask, kept = np.ones(len(splits[0]) - 1, bool), np.ones(len(splits[0]) - 1, bool)
    for level, size in zip(splits, sizes, strict=True):
        lengths = np.zeros(mask.shape, np.int64)
        lengths[mask] = np.diff(level)[kept]
        mask = np.arange(size) < lengths[..., None]
        kept = _fitting(level, kept, size)
    return mask


def kept_of(splits: Sequence[Array], shapes: Array | None, sizes: Sequence[int]) -> Array:
    """bool [values]: which values fit the sizes, in the order of `mask_of`."""
    kept = np.ones(len(splits[0]) - 1, bool)
    if shapes is None:
        for level, size in zip(splits, sizes, strict=True):
            kept = _fitting(level, kept, size)
        return kept
    lengths = np.diff(splits[0])
    place = _places(splits[0])
    kept = np.ones(len(place), bool)
    for axis in reversed(range(len(sizes))):
        width = np.repeat(shapes[:, axis].astype(np.int64), lengths)
        kept &= place % width < sizes[axis]
        place //= width
    return kept


def _places(splits: Array) -> Array:
    """The place of each item within its row."""
    found: Array = np.arange(splits[-1]) - np.repeat(splits[:-1], np.diff(splits))
    return found


def _fitting(splits: Array, kept: Array, size: int) -> Array:
    """Which items of a level fit, given which rows do."""
    fitting: Array = (_places(splits) < size) & np.repeat(kept, np.diff(splits))
    return fitting
