"""Tensors that a checkpoint holds in slices: variables that were partitioned when they were saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbytes.deferred import Deferred, swapped
from tensorbytes.errors import CorruptError, LimitError, UnsupportedError
from tensorbytes.formats._checkpoint.bundle import BundleEntry, Extent
from tensorbytes.tensor import Array, Strings, Tensor

# That each pair of slices is apart takes the square of their number, unless they are cut along one axis.
_MOST_IN_A_GRID = 1 << 10
Box = tuple[slice, ...]


def check(entry: BundleEntry, found: Sequence[BundleEntry | None]) -> list[BundleEntry]:
    """The slices of an entry, if together they are the whole tensor and nothing else."""
    name, shape = entry.name, entry.shape
    if entry.is_strings or entry.row is None:
        raise UnsupportedError(f"{name!r} is stored in slices, and is of no dtype of numbers", at=entry.at)
    pieces: list[BundleEntry] = []
    for extents, piece in zip(entry.slices, found, strict=True):
        if piece is None:
            raise CorruptError(f"{name!r}: the slice {_text(extents)} is missing", at=entry.at)
        if len(extents) != len(shape) or any(
            start < 0 or length < -1 or start + max(length, 0) > n or (length == -1 and start)
            for (start, length), n in zip(extents, shape, strict=True)
        ):
            raise CorruptError(f"{name!r}: the slice {_text(extents)} of a shape {list(shape)}", at=entry.at)
        box = boxed(extents, shape)
        if piece.code != entry.code or piece.slices or piece.shape != tuple(side.stop - side.start for side in box):
            raise CorruptError(f"{name!r}: the slice {_text(extents)} is stored as something else", at=piece.at)
        pieces.append(piece)
    if sum(math.prod(piece.shape) for piece in pieces) != math.prod(shape) or not _apart(entry):
        raise CorruptError(f"{name!r}: its slices overlap, or leave gaps", at=entry.at)
    # Errors shall name the tensor, not the code of a slice.
    for piece in pieces:
        piece.name = name
    return pieces


def _text(extents: Sequence[Extent]) -> str:
    return ":".join("-" if length == -1 else f"{start},{length}" for start, length in extents) or "of a scalar"


def boxed(extents: Sequence[Extent], shape: tuple[int, ...]) -> Box:
    return tuple(
        slice(start, n if length == -1 else start + length) for (start, length), n in zip(extents, shape, strict=True)
    )


def _apart(entry: BundleEntry) -> bool:
    """Whether no two slices share an element. Empty ones never do."""
    boxes = [boxed(extents, entry.shape) for extents in entry.slices]
    boxes = [box for box in boxes if all(side.stop > side.start for side in box)]
    if not entry.shape:
        return len(boxes) == 1
    starts = np.array([[side.start for side in box] for box in boxes], np.int64).reshape(-1, len(entry.shape))
    stops = np.array([[side.stop for side in box] for box in boxes], np.int64).reshape(-1, len(entry.shape))
    cut = np.flatnonzero((stops - starts != entry.shape).any(axis=0))
    if len(cut) <= 1:
        axis = int(cut[0]) if len(cut) else 0
        order = np.argsort(starts[:, axis])
        return bool((stops[order, axis][:-1] <= starts[order, axis][1:]).all())
    if len(boxes) > _MOST_IN_A_GRID:
        raise LimitError(f"{entry.name!r} is stored in {len(boxes)} slices, over the limit of {_MOST_IN_A_GRID}")
    return not any(
        ((starts[i] < stops[i + 1 :]) & (starts[i + 1 :] < stops[i])).all(axis=1).any() for i in range(len(boxes) - 1)
    )


def joined(entry: BundleEntry, pieces: Sequence[BundleEntry], values: Sequence[Tensor | Strings]) -> Tensor:
    """The tensor that verified slices make."""
    data = [value.data for value in values]
    return _assemble(entry, pieces, lambda number: data[number], tuple(slice(0, n) for n in entry.shape))


def _assemble(entry: BundleEntry, pieces: Sequence[BundleEntry], data: Callable[[int], Any], wanted: Box) -> Tensor:
    """A box of the tensor, from the slices that reach into it; the bytes are copied as they are."""
    row = entry.row
    assert row is not None
    try:
        out = np.empty(tuple(side.stop - side.start for side in wanted), f"V{row.itemsize}")
    except MemoryError:
        raise LimitError(f"no memory for {entry.name!r}") from None
    for number, (extents, piece) in enumerate(zip(entry.slices, pieces, strict=True)):
        box = boxed(extents, entry.shape)
        common = [
            (max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(box, wanted, strict=True)
        ]  # fmt: skip
        if all(start < stop for start, stop in common):
            source = np.ndarray(piece.shape, out.dtype, data(number))
            into = tuple(slice(s - side.start, e - side.start) for (s, e), side in zip(common, wanted, strict=True))
            of = tuple(slice(s - side.start, e - side.start) for (s, e), side in zip(common, box, strict=True))
            out[into] = source[of]
    return Tensor(row.name, out.shape, out.reshape(-1).view(np.uint8))


def deferred(
    entry: BundleEntry, pieces: Sequence[BundleEntry], stretch: Callable[[BundleEntry, bool], memoryview], big: bool
) -> Deferred:
    """The tensor, put together when it is asked for; `stretch` gives a slice's bytes, verified or not."""
    row = entry.row
    assert row is not None

    def get(wanted: Box, verified: bool) -> Tensor:
        made = _assemble(entry, pieces, lambda number: stretch(pieces[number], verified), wanted)
        return Tensor(row.name, made.shape, swapped(np.frombuffer(made.data, np.uint8), row.name)) if big else made

    def fetch() -> Tensor:
        return get(tuple(slice(0, n) for n in entry.shape), True)

    def part(index: Any) -> Tensor:
        wanted, rest = _around(index, entry.shape)
        got = get(wanted, False)
        elements: Array = np.ndarray(got.shape, f"V{row.itemsize}", got.data)
        picked = np.asarray(elements[rest])
        return Tensor(row.name, picked.shape, picked.copy(order="C").reshape(-1).view(np.uint8))

    size = math.prod(entry.shape) * row.itemsize
    return Deferred("tensor", row.name, entry.shape, fetch, size, part)


def _around(index: Any, shape: tuple[int, ...]) -> tuple[Box, Any]:
    """(the box that holds everything an index asks for, the index within it)"""
    parts = index if isinstance(index, tuple) else (index,)
    first = parts[0] if parts else ...
    whole = tuple(slice(0, n) for n in shape)
    # The first axis is the one that partitioners cut; the others are taken whole.
    if not shape or not isinstance(first, int | np.integer | slice) or isinstance(first, bool):
        return whole, index
    if isinstance(first, slice):
        chosen = range(shape[0])[first]
        if not chosen:
            return whole, index
        low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1
        stop = chosen[-1] - low + (1 if chosen.step > 0 else -1)
        inner: Any = slice(chosen[0] - low, stop if stop >= 0 else None, chosen.step)
    else:
        if not -shape[0] <= first < shape[0]:
            return whole, index  # NumPy's own error tells it best
        low = int(first) % shape[0]
        high, inner = low + 1, 0
    return (slice(low, high), *whole[1:]), (inner, *parts[1:])
