"""Loading a large file of the native frame: two threads, and memory of its own for each large tensor.

A tensor that is dropped gives its memory back, whatever else of the file is kept; and
memory that was given back is used again, which fresh memory for the whole file never is.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from tensorbytes import storage
from tensorbytes._wire.portions import portions
from tensorbytes.budget import Budget
from tensorbytes.errors import MORE_TENSORS, CorruptError, LimitError, Limits, TensorbytesError
from tensorbytes.formats import frame
from tensorbytes.formats._record import Record
from tensorbytes.io.workers import MANY, map_in_order
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.tfrecord.walk import Walk
from tensorbytes.tree import Document

# Smaller files are read in one piece.
FROM_BYTES = 1 << 22
# Smaller records share memory with their neighbours, up to so much.
_LARGE_RECORD = 1 << 18
_RUN_BYTES = 1 << 20
_WINDOW = 1 << 16


def documents(file: io.FileIO, size: int, limits: Limits) -> Iterator[Document]:
    """The documents of an open file of `size` bytes, verified."""
    return frame.assemble(_records(file, size, limits), limits, size)


def _records(file: io.FileIO, size: int, limits: Limits) -> Iterator[tuple[Record, int, int]]:
    budget = Budget(limits, size)
    total = 0
    work = map_in_order(partial(_read, file, limits), segments(file.fileno(), size), 2, ahead=MANY)
    with closing(work) as segments_read:
        for start, data, spans in segments_read:
            total += len(spans)
            if total > limits.max_tensors:
                raise LimitError(f"over {limits.max_tensors} tensors", hints=[MORE_TENSORS])
            for first, last in spans:
                record = at_offset(data, first, last, start, budget)
                yield record, start + first, start + last


def at_offset(data: memoryview, start: int, end: int, base: int, budget: Budget) -> Record:
    """The record in data[start:end], where data stands at `base` of a file: errors tell the file's offsets."""
    try:
        record = frame.read_record(data, start, end, budget, lazy=False, verified=True)
    except TensorbytesError as error:
        raise error.shifted(base) from None
    return record._replace(leaf=record.leaf._replace(at=base + start))


def _read(file: io.FileIO, limits: Limits, segment: tuple[int, int]) -> tuple[int, memoryview, list[tuple[int, int]]]:
    """(where it stands, the bytes, its records), checksums verified."""
    start, end = segment
    data = storage.aligned(end - start, start % 64)
    for part in portions(len(data)):
        storage.read_at(file, data[part], start + part.start)
    try:
        return start, data, list(frame.spans(data, True, limits))
    except CorruptError as error:
        raise error.shifted(start) from None


def segments(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Stretches of whole records: each large record alone, small ones together.

    Where the framing is damaged, the last stretch is the rest of the file; reading it will tell.
    """
    run, walk = 0, Walk(partial(_pread, fd), 0, size, piece=_WINDOW)
    for places in walk:
        start, length = places[-1].tolist()
        at = start - HEADER_BYTES
        if len(places) == 1 and length >= _LARGE_RECORD:
            if run < at:
                yield run, at
            yield at, walk.at
            run = walk.at
        elif walk.at - run >= _RUN_BYTES:
            yield run, walk.at
            run = walk.at
    if run < size:  # also what is damaged, or cut short
        yield run, size


def _pread(fd: int, at: int, size: int) -> bytes:
    return os.pread(fd, size, at)
