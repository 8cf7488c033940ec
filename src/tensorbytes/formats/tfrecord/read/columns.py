"""The values of one feature in some records, and how such parts are cut, joined and handed out.

A part is laid out like Arrow's lists: values end to end, and row splits for what varies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorbytes import _wire
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.tensor import Array, Ragged, Strings, Tensor, fitting_strings
from tensorbytes.typing import bytes_view

# About what a part takes beside the bytes of its arrays.
_PART_BYTES = 512


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPart:
    """A column's values in some records."""

    values: Array  # [rows or total, ...]; of strings: all their bytes
    strings: Array | None = None  # offsets: string i is values[strings[i]:strings[i + 1]]
    splits: tuple[Array, ...] = ()  # outermost first; none where every record has one item of `values`
    shapes: Array | None = None  # [rows, rank], where rows have n-D shapes of their own
    present: Array | None = None  # bool [rows], where some records lack the feature
    indices: Array | None = None  # int64 [total, rank], of a sparse feature: where in its record each value is

    def __len__(self) -> int:
        if self.splits:
            return len(self.splits[0]) - 1
        return len(self.values) if self.strings is None else len(self.strings) - 1

    @property
    def nbytes(self) -> int:
        arrays = (self.values, self.strings, *self.splits, self.shapes, self.present, self.indices)
        return sum(array.nbytes for array in arrays if array is not None)

    def rows(self, start: int, stop: int) -> ColumnPart:
        """The part of records [start, stop), as views."""
        if start == 0 and stop == len(self):
            return self
        shapes = None if self.shapes is None else self.shapes[start:stop]
        present = None if self.present is None else self.present[start:stop]
        splits = []
        for level in self.splits:
            cut = level[start : stop + 1]
            start, stop = int(cut[0]), int(cut[-1])
            splits.append(cut - start)
        indices = None if self.indices is None else self.indices[start:stop]
        if self.strings is None:
            return ColumnPart(self.values[start:stop], None, tuple(splits), shapes, present, indices)
        cut = self.strings[start : stop + 1]
        return ColumnPart(self.values[cut[0] : cut[-1]], cut - cut[0], tuple(splits), shapes, present, indices)

    def take(self, order: Array) -> ColumnPart:
        """The part of these records, in this order."""
        shapes = None if self.shapes is None else self.shapes[order]
        present = None if self.present is None else self.present[order]
        splits = []
        for level in self.splits:
            order, lengths = _gather(level, order)
            splits.append(offsets_of(lengths))
        indices = None if self.indices is None else self.indices[order]
        if self.strings is None:
            return ColumnPart(self.values[order], None, tuple(splits), shapes, present, indices)
        order, lengths = _gather(self.strings, order)
        return ColumnPart(self.values[order], offsets_of(lengths), tuple(splits), shapes, present, indices)


class Columns(dict[str, ColumnPart]):
    """The columns of some records, by name. There may be none: the number of records is kept apart.

    `ends` is where each record ends in its file, where they come in that order.
    """

    def __init__(self, parts: Mapping[str, ColumnPart], count: int, ends: Array | None = None) -> None:
        super().__init__(parts)
        self.count, self.ends = count, ends

    def ends_list(self) -> list[int | None]:
        """The `ends` of all records; None for each where they are not known."""
        return [None] * self.count if self.ends is None else self.ends.tolist()

    @property
    def last_end(self) -> int | None:
        """Where the last record ends, where that is known."""
        return None if self.ends is None else int(self.ends[-1])

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        return sum(_PART_BYTES + part.nbytes for part in self.values())

    def rows(self, start: int, stop: int) -> Columns:
        """The columns of records [start, stop), as views."""
        ends = None if self.ends is None else self.ends[start:stop]
        return Columns({name: part.rows(start, stop) for name, part in self.items()}, stop - start, ends)

    def take(self, order: Array) -> Columns:
        """The columns of these records, in this order."""
        return Columns({name: part.take(order) for name, part in self.items()}, len(order))


def joined(pieces: Sequence[Columns]) -> Columns:
    """The same columns of several lots of records, one lot after the other."""
    count = sum(piece.count for piece in pieces)
    ends = [piece.ends for piece in pieces if piece.ends is not None]
    whole = np.concatenate(ends) if ends and len(ends) == len(pieces) else None
    return Columns({name: join([piece[name] for piece in pieces]) for name in pieces[0]}, count, whole)


def join(parts: Sequence[ColumnPart]) -> ColumnPart:
    """Parts of one column, one after the other."""
    if len(parts) == 1:
        return parts[0]
    splits = tuple(_chain(levels) for levels in zip(*(part.splits for part in parts), strict=True))
    strings = None
    if parts[0].strings is not None:
        strings = _chain([part.strings for part in parts if part.strings is not None])
    shapes = None
    if parts[0].shapes is not None:
        shapes = np.concatenate([part.shapes for part in parts if part.shapes is not None])
    present = None
    if any(part.present is not None for part in parts):
        present = np.concatenate([np.ones(len(part), bool) if part.present is None else part.present for part in parts])
    indices = None
    if parts[0].indices is not None:
        indices = np.concatenate([part.indices for part in parts if part.indices is not None])
    return ColumnPart(np.concatenate([part.values for part in parts]), strings, splits, shapes, present, indices)


def _chain(levels: Sequence[Array]) -> Array:
    """Running offsets, one list after the other."""
    out = [levels[0]]
    total = int(levels[0][-1])
    for level in levels[1:]:
        out.append(level[1:] + total)
        total += int(level[-1])
    return np.concatenate(out)


def _gather(splits: Array, order: Array) -> tuple[Array, Array]:
    """(the items of these rows one after the other, how many each row has)"""
    starts, lengths = splits[order], splits[order + 1] - splits[order]
    before = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return np.arange(len(before)) + before, lengths


# ---- as neutral values ---------------------------------------------------------


def to_value(part: ColumnPart, feature: Feature) -> Tensor | Strings | Ragged:
    """A column as a neutral value."""
    splits, strings = part.splits, part.strings
    if strings is None:
        raw = np.ascontiguousarray(part.values).reshape(-1).view(np.uint8)  # ml_dtypes export no buffer
        values: Tensor | Strings = Tensor(feature.dtype, part.values.shape, raw)
    else:
        shape: tuple[int, ...] = (len(strings) - 1,)
        if _is_uniform(feature):  # strings come with splits, also where each record has as many
            shape = (len(splits[-1]) - 1, *(n or 0 for n in feature.shape))
            splits = splits[:-1]
        elif part.shapes is None and len(feature.shape) > 1:
            inner = tuple(n or 0 for n in feature.shape[1:])
            size = math.prod(inner)
            shape, splits = (shape[0] // size, *inner), (*splits[:-1], splits[-1] // size)
        values = fitting_strings(
            shape, strings, bytes_view(part.values), "utf-8" if feature.dtype == "text" else "bytes"
        )
    return Ragged(values, splits, part.shapes) if splits else values


def _is_uniform(feature: Feature) -> bool:
    return bool(feature.shape) and feature.size is not None and (not feature.optional or feature.default is not None)


# ---- as rows ---------------------------------------------------------------------


def to_rows(part: ColumnPart, feature: Feature) -> list[Any] | Array:
    """One NumPy array or scalar for each record; of strings the string or a list of them. None where it is missing.

    Where every record has one item of the values, these are given as they are: their items are made when asked for.
    """
    if part.strings is None:
        values = part.values
        if not part.splits:
            return values
        items: list[Any] = [values[a:b] for a, b in _pairs(part.splits[-1])]
        if part.shapes is not None:
            items = [row.reshape(shape) for row, shape in zip(items, part.shapes.tolist(), strict=True)]
    else:
        items = _string_rows(part, feature)
    if feature.optional and part.splits and not feature.shape:
        items = [row[0] if len(row) else None for row in items]  # a scalar, where it is there
    for level in reversed(part.splits[:-1]):
        items = [items[a:b] for a, b in _pairs(level)]
    return items


def _string_rows(part: ColumnPart, feature: Feature) -> list[Any]:
    assert part.strings is not None
    found: list[Any] = _wire.strings_list(part.strings, part.values, feature.dtype == "text")
    if part.splits:
        found = [found[a:b] for a, b in _pairs(part.splits[-1])]
        if len(feature.shape) > 1:
            found = [_object_array(row, feature.shape) for row in found]
    return found


def _object_array(items: list[Any], shape: tuple[int | None, ...]) -> Array:
    out = np.empty(len(items), object)
    out[:] = items
    known = math.prod(n for n in shape if n is not None)
    if known * (None not in shape) > len(items):
        return out  # a missing one
    return out.reshape([len(items) // known if n is None else n for n in shape])


def _pairs(offsets: Array) -> itertools.pairwise[Any]:
    return itertools.pairwise(offsets.tolist())
