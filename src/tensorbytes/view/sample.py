"""Parts of values: enough to show what they are like, however large they are.

What is looked at of a tensor are runs of neighbours spread evenly over it, so that few pages of a
mapped file are read; of strings and rows, the first ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tensorbytes import dtypes, rows
from tensorbytes.errors import UnsupportedError
from tensorbytes.ops.statistics import Statistics, stats
from tensorbytes.tensor import Array, Header, Ragged, Sparse, Strings, Tensor, Value, amended
from tensorbytes.tree import Leaf
from tensorbytes.view.words import amount, count, many

_RUNS = 64
# Strings and rows that are looked at.
_MOST_ITEMS = 10_000


@dataclass(frozen=True)
class Size:
    """How much of a value is looked at."""

    numbers: int = 1 << 16  # elements of a tensor
    text: int = 1 << 20  # bytes of strings
    decoded: int = 1 << 24  # bytes of a value that has to be decoded before anything of it is seen


@dataclass(frozen=True)
class Sample:
    """A part of a value, of its kind; `words` say which part, and are empty if it is all of it."""

    value: Value
    words: str = ""
    nbytes: int = 0  # that were looked at

    @property
    def whole(self) -> bool:
        return not self.words


class TooLargeError(UnsupportedError):
    """A value that can't be looked at without reading more than was allowed."""


def sampled(value: Value, size: Size) -> Sample:
    """A part of a value that is in memory or mapped."""
    if isinstance(value, Tensor):
        return _numbers(value, size.numbers)
    if isinstance(value, Strings):
        return _strings(value, size)
    if isinstance(value, Sparse):
        part = sampled(value.values, size)
        return Sample(value, part.words.replace("elements", "stored elements"), part.nbytes)
    return _rows(value, size)


def elements(tensor: Tensor) -> Array:
    """The elements as an array; those of dtypes that NumPy lacks as the integers that are stored."""
    try:
        return np.ndarray(tensor.shape, dtypes.to_numpy(tensor.dtype), tensor.data)
    except UnsupportedError:
        kind = "u" if tensor.dtype.startswith("qu") else "i"
        return np.ndarray(tensor.shape, f"<{kind}{dtypes.get(tensor.dtype).itemsize}", tensor.data)


def real(array: Array) -> Array:
    """Numbers as doubles; of complex ones the magnitude, of dates their number."""
    with np.errstate(all="ignore"):
        if "complex" in array.dtype.name:
            return np.abs(array.astype(np.complex128))
        return array.astype(np.float64)


def _numbers(tensor: Tensor, most: int) -> Sample:
    total = math.prod(tensor.shape)
    if total <= most:
        return Sample(tensor, nbytes=tensor.nbytes)
    item = dtypes.get(tensor.dtype).itemsize
    run = max(most // _RUNS, 1)
    starts = np.linspace(0, total - run, _RUNS).astype(np.int64).tolist()
    data = b"".join(tensor.data[start * item : (start + run) * item] for start in starts)
    part = Tensor(tensor.dtype, (run * _RUNS,), data, tensor.name, tensor.meta, tensor.origin)
    return Sample(part, f"{count(run * _RUNS)} of {many(total, 'element')}, in {_RUNS} runs", len(data))


def _strings(value: Strings, size: Size) -> Sample:
    total = len(value.offsets) - 1
    fitting = int(np.searchsorted(value.offsets[: _MOST_ITEMS + 1], size.text, side="right")) - 1
    taken = max(min(total, _MOST_ITEMS, fitting), 1)
    if taken >= total:
        return Sample(value, nbytes=value.nbytes)
    end = int(value.offsets[taken])
    # Its bytes were checked when the whole was made, and text is cut between two strings.
    part = Strings(
        (taken,), value.offsets[: taken + 1], value.data[:end], value.encoding, value.name, value.meta, value.origin
    )
    return Sample(part, f"the first {count(taken)} of {many(total, 'string')}", end)


def _rows(value: Ragged, size: Size) -> Sample:
    total = len(value)
    bounds = value.splits[0][: _MOST_ITEMS + 1]
    for level in value.splits[1:]:
        bounds = level[bounds]
    width = max(math.prod(value.values.shape[1:]), 1)
    most = size.numbers // width
    if isinstance(value.values, Strings):
        offsets = value.values.offsets
        most = min(int(np.searchsorted(offsets, size.text, side="right")) // width, _MOST_ITEMS)
    taken = min(max(int(np.searchsorted(bounds, most, side="right")) - 1, 1), total)
    if taken >= total:
        return Sample(value, nbytes=value.nbytes)
    part = rows.cut(value, 0, taken)
    return Sample(part, f"the first {count(taken)} of {many(total, 'row')}", part.nbytes)


def resolved(leaf: Leaf, size: Size) -> tuple[Value, str]:
    """The value of a leaf, or the first rows of what would take too much decoding, and which.

    What is small enough to be looked at as a whole is verified first.
    """
    value = leaf.value
    small = value.nbytes <= max(size.decoded, 1)
    if leaf.check is not None and small:
        leaf.check()
    kind, _, shape, _ = leaf.header
    if value.at_hand or (small and not _unbounded(leaf.header)):
        return leaf.read(), ""
    if not value.in_parts or kind != "tensor" or not shape or shape[0] is None:
        raise TooLargeError(f"it is stored in one piece of {amount(value.nbytes)}, to be decoded as a whole")
    total = shape[0]
    each = max(value.nbytes // max(total, 1), 1)
    taken = min(max(size.decoded // (4 * each), 1), total)
    if taken * each > 8 * size.decoded:
        raise TooLargeError(f"a single row of it takes {amount(each)} decoded")
    words = f"the first {count(taken)} of {many(total, 'row')}, which are decoded" if taken < total else ""
    return leaf.part(slice(0, taken)), words


def _unbounded(header: Header) -> bool:
    """Whether nobody knows how large it gets."""
    return not header.nbytes and header.kind == "tensor" and bool(math.prod(n or 0 for n in header.shape))


def statistics(value: Value, bins: int = 40) -> Statistics:
    """The figures of a value, all of it: sample it before."""
    return next(iter(stats(amended(value, None, value.meta), bins=bins).values()))
