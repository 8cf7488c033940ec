"""Columns to framed records: the kernel computes where everything goes, then puts it there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire
from tensorbytes.errors import Hint, LossError
from tensorbytes.formats.tfrecord.files.memory import FRESH, Memory
from tensorbytes.tensor import Array
from tensorbytes.typing import bytes_view

# No protobuf runtime reads a message of 2 GiB or more.
MAX_BYTES = (1 << 31) - 1
_FRAME_BYTES = 16


class KernelColumn(NamedTuple):
    """A feature of some rows, as the kernel's writing functions take it."""

    kind: int
    key: bytes
    steps: Array | None  # of a feature list: steps of row r are steps[r] .. steps[r + 1]
    offsets: Array  # values of row (or step) r are offsets[r] .. offsets[r + 1]
    present: Array | None  # uint8, where rows may lack the feature
    values: Any  # float32, int64, or the bytes of all strings
    string_offsets: Array | None


def every(width: int, count: int) -> Array:
    """The offsets of rows that have `width` values each."""
    return np.arange(0, width * count + 1, width, dtype=np.int64) if width else np.zeros(count + 1, np.int64)


def framed(
    features: Sequence[KernelColumn],
    lists: Sequence[KernelColumn] | None,
    count: int,
    shards: int = 1,
    first: int = 0,
    memory: Memory = FRESH,
) -> list[memoryview]:
    """The records of `count` rows, for each shard the ones it gets, end to end.

    `first` is the number of the first row: row i goes to shard i % shards. With `lists`, the
    records are SequenceExamples.
    """
    sizes = _sizes(features, count)
    list_sizes = None if lists is None else _sizes(lists, count)
    record_sizes = np.empty(count, np.int64)
    _wire.example_record_sizes(sizes, list_sizes, record_sizes)
    largest = int(record_sizes.max(initial=0)) - _FRAME_BYTES
    if largest > MAX_BYTES:
        raise too_large(largest)
    starts, bounds = _placed(record_sizes, shards, first)
    out = memory.array(bounds[-1])
    at, list_at = np.empty(count, np.int64), None if lists is None else np.empty(count, np.int64)
    _wire.example_frame(out, starts, sizes, list_sizes, at, list_at, False)
    for column in features:
        _wire.example_write(*column, 0, at, out)
    if lists is not None and list_at is not None:
        for column in lists:
            _wire.example_write(*column, 0, list_at, out)
    _wire.example_frame(out, starts, sizes, list_sizes, at, list_at, True)
    view = bytes_view(out)
    return [view[start:end] for start, end in itertools.pairwise(bounds)]


def too_large(size: int) -> LossError:
    return LossError(
        f"a record of {size} bytes: protobuf ends at 2 GiB",
        feature="size",
        hints=[Hint(purpose="split it into several")],
    )


def _sizes(columns: Sequence[KernelColumn], count: int) -> Array:
    sizes = np.zeros(count, np.int64)
    for column in columns:
        _wire.example_sizes(*column, 0, sizes)
    return sizes


def _placed(sizes: Array, shards: int, first: int) -> tuple[Array, list[int]]:
    """(where each record starts, where each shard's records start and end), shard after shard."""
    if shards == 1:
        ends = np.cumsum(sizes)
        return ends - sizes, [0, int(ends[-1]) if len(ends) else 0]
    shard = (first + np.arange(len(sizes))) % shards
    order = np.argsort(shard, kind="stable")
    ends = np.cumsum(sizes[order])
    starts = np.empty_like(sizes)
    starts[order] = ends - sizes[order]
    last = np.cumsum(np.bincount(shard, minlength=shards))
    return starts, [0, *np.concatenate(([0], ends))[last].tolist()]
