"""Columns to framed records, by one call of the kernel for some thousand rows."""

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
# Room for records is what they are expected to take, and this much more, up to a limit: what finds none gets another.
_SLACK_BYTES = 1 << 10
_MOST_ROOM = 8 << 20


class KernelColumn(NamedTuple):
    """A feature of some rows, as the kernel takes it to write."""

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
    size: int,
    shards: int = 1,
    first: int = 0,
    memory: Memory = FRESH,
) -> list[tuple[int, memoryview]]:
    """The records of `count` rows as (shard, records end to end), in the order in which a shard gets them.

    `size` is about how many bytes they take. `first` is the number of the first row: row i goes to
    shard i % shards. With `lists`, the records are SequenceExamples.
    """
    order, bounds = (None, [0, count]) if shards == 1 else _by_shard(count, shards, first)
    room = min(size + size // 8 + _SLACK_BYTES, _MOST_ROOM)
    pieces: list[tuple[int, memoryview]] = []
    done = needed = 0
    while done < count:
        out, ends = memory.array(max(room, needed)), np.empty(count - done, np.int64)
        made, needed = _wire.example_records(features, lists, order, done, out, ends)
        if needed > MAX_BYTES + _FRAME_BYTES:
            raise too_large(needed - _FRAME_BYTES)
        view, end = bytes_view(out), 0
        for shard, (low, high) in enumerate(itertools.pairwise(bounds)):
            stop = min(high, done + made)
            if max(low, done) < stop:
                start, end = end, int(ends[stop - done - 1])
                pieces.append((shard, view[start:end]))
        done += made
    return pieces


def too_large(size: int) -> LossError:
    return LossError(
        f"a record of {size} bytes: protobuf ends at 2 GiB",
        feature="size",
        hints=[Hint(purpose="split it into several")],
    )


def _by_shard(count: int, shards: int, first: int) -> tuple[Array, list[int]]:
    """(the rows shard after shard, where each shard's rows start and end among these)"""
    shard = (first + np.arange(count)) % shards
    counts = np.bincount(shard, minlength=shards)
    return np.argsort(shard, kind="stable").astype(np.int64), [0, *np.cumsum(counts).tolist()]
