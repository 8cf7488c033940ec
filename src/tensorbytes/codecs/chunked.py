"""Tensors in chunks, each compressed by itself: several at once, and a slice needs only its own.

Every chunk has a checksum, so a slice is verified as far as it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorbytes._wire import PLANES_SLACK, chunks_decode, chunks_encode, crc32c, mask
from tensorbytes._wire.portions import PORTION_BYTES, check_stopped
from tensorbytes.codecs.pipelines import Elements, Pipeline, scratch
from tensorbytes.errors import CorruptError
from tensorbytes.io import storage
from tensorbytes.io.streams.engines import DamagedError
from tensorbytes.io.workers import count_threads, share
from tensorbytes.tensor import Array, InvalidValueError
from tensorbytes.typing import Buffer

# Small enough for a core's own cache, and for slices; large enough that tables and calls don't count.
CHUNK_BYTES = 1 << 18
# What a reader takes, so that a slice can't ask for much.
_MOST_BYTES = 1 << 26
_TABLE_BYTES = 8  # for each chunk
# Runs of chunks that each thread takes, and the most chunks of a run: Ctrl-C acts between two of them.
_RUNS = 4
_MOST_RUN = 64
# What the kernel's codes need another thread for: it takes as long to start as to decode a third of this.
_THREAD_BYTES = 1 << 19


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """How the content of a compressed tensor is divided; `raw` is its size in memory."""

    pipeline: Pipeline
    elements: Elements
    raw: int
    chunk: int
    sizes: Array  # of the compressed chunks
    checksums: Array  # of the compressed chunks: masked CRC-32C

    def check(self, content: int) -> None:
        """Raise InvalidValueError unless all this fits together and `content` bytes of it."""
        if not 0 < self.chunk <= _MOST_BYTES or self.chunk % self.elements.width:
            raise InvalidValueError(f"chunks of {self.chunk} bytes")
        count = -(-self.raw // self.chunk)
        if len(self.sizes) != count or len(self.checksums) != count:
            raise InvalidValueError(f"{len(self.sizes)} chunks, {len(self.checksums)} checksums, expected {count}")
        if self.pipeline.fitted(self.elements) != self.pipeline:
            raise InvalidValueError(f"compression {self.pipeline.text!r} of {self.elements.family} elements")
        if int(self.sizes.sum(dtype=np.uint64)) != content:
            raise InvalidValueError(f"chunks of {int(self.sizes.sum(dtype=np.uint64))} bytes in {content}")
        if content >= self.raw:
            raise InvalidValueError(f"{content} compressed bytes for {self.raw}")
        plain = np.full(count, self.chunk)
        plain[-1:] = self.raw - self.chunk * (count - 1)
        if (self.sizes == 0).any() or (self.sizes > plain).any():
            raise InvalidValueError("a chunk without bytes, or with more than it stands for")

    def decode(self, content: memoryview, at: int, start: int, stop: int) -> memoryview:
        """The bytes [start, stop) of the tensor; `at` is where the content stands, for errors."""
        if start >= stop:
            return memoryview(b"")
        first, last = start // self.chunk, -(-stop // self.chunk)
        base = first * self.chunk
        out = np.empty(min(last * self.chunk, self.raw) - base, np.uint8).data
        ends = np.cumsum(self.sizes, dtype=np.int64)
        work = partial(_decode_run, self, content, at, out, base, ends)
        if self.pipeline.in_kernel(self.elements):
            work = partial(_decode_in_kernel, work, self, content, out, base, ends)
            for numbers in _cut(first, last, max(PORTION_BYTES // self.chunk, 1)):
                check_stopped()
                work(numbers)
        else:
            share(work, _runs(first, last), count_threads())
        return out[start - base : stop - base]


def _decode_run(
    chunks: Chunks, content: memoryview, at: int, out: memoryview, base: int, ends: Array, numbers: range
) -> None:
    """Fill the places of these chunks in `out`, which starts at `base` of the tensor."""
    for number in numbers:
        begin, end = int(ends[number] - chunks.sizes[number]), int(ends[number])
        place = number * chunks.chunk - base
        data = content[begin:end]
        if mask(crc32c(data)) != chunks.checksums[number]:
            raise CorruptError(f"the checksum of chunk {number} differs", at=at + begin)
        try:
            chunks.pipeline.decode(data, out[place : place + chunks.chunk], chunks.elements)
        except DamagedError as error:
            raise CorruptError(f"chunk {number}: {error}", at=at + begin) from None


def _decode_in_kernel(
    one_by_one: Callable[[range], None],
    chunks: Chunks,
    content: memoryview,
    out: memoryview,
    base: int,
    ends: Array,
    numbers: range,
) -> None:
    """The same in one call. What is wrong with a chunk that is not sound, the other way tells."""
    width, rotated = chunks.pipeline.planes(chunks.elements)
    while numbers:
        first, last = numbers[0], numbers[-1] + 1
        data = content[int(ends[first] - chunks.sizes[first]) : int(ends[last - 1])]
        place = out[first * chunks.chunk - base : last * chunks.chunk - base]
        told = chunks.sizes[first:last], chunks.checksums[first:last]
        threads = min(count_threads(), -(-len(place) // _THREAD_BYTES), len(numbers))
        size = min(chunks.chunk, len(place))
        with scratch(threads * size) as room:
            done = chunks_decode(data, place, room, width, rotated, size, *told, threads)
        one_by_one(numbers[done : done + 1])
        numbers = numbers[done + 1 :]


def compress(data: memoryview, pipeline: Pipeline, elements: Elements) -> tuple[Chunks, list[Buffer]] | None:
    """The chunks and their bytes; None where that would save nothing."""
    fitting = pipeline.fitted(elements)
    if fitting is None:
        return None
    count = -(-len(data) // CHUNK_BYTES)
    made = Chunks(fitting, elements, len(data), CHUNK_BYTES, np.empty(count, "<u4"), np.empty(count, "<u4"))
    pieces = _in_kernel(made, data) if fitting.in_kernel(elements) else _one_by_one(made, data)
    size = int(made.sizes.sum(dtype=np.int64))
    if size + _TABLE_BYTES * count >= len(data):
        storage.tell(-len(data))
        return None
    storage.tell(-size)
    return made, pieces


def _in_kernel(made: Chunks, data: memoryview) -> list[Buffer]:
    """The chunks of `data`, several in one piece; fills in their sizes and checksums."""
    count, threads = len(made.sizes), min(count_threads(), -(-len(data) // _THREAD_BYTES))
    each = min(max(count // (threads * _RUNS), 1), _MOST_RUN // _RUNS)  # chunks of a piece
    part, slot = each * CHUNK_BYTES, each * CHUNK_BYTES + PLANES_SLACK
    pieces = _cut(0, count, each)
    out = np.empty(len(data) + len(pieces) * PLANES_SLACK, np.uint8).data
    width, rotated = made.pipeline.planes(made.elements)
    with scratch(threads * CHUNK_BYTES) as room:
        for numbers in _cut(0, count, _MOST_RUN // each * each):
            first, last = numbers[0], numbers[-1] + 1
            check_stopped()
            chunks = data[CHUNK_BYTES * first : CHUNK_BYTES * last]
            told = made.sizes[first:last], made.checksums[first:last]
            place = out[first // each * slot :]
            chunks_encode(chunks, place, room, width, rotated, CHUNK_BYTES, *told, threads, part)
            storage.tell(len(chunks))
    starts = range(0, len(out), slot)
    sizes = np.add.reduceat(made.sizes, range(0, count, each), dtype=np.int64).tolist()
    return [out[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _one_by_one(made: Chunks, data: memoryview) -> list[Buffer]:
    """Each chunk of `data` as a piece; fills in their sizes and checksums."""
    pieces: list[Buffer] = [b""] * len(made.sizes)
    told = 0

    def work(numbers: range) -> None:
        for number in numbers:
            chunk = data[CHUNK_BYTES * number : CHUNK_BYTES * (number + 1)]
            pieces[number] = piece = made.pipeline.encode(chunk, made.elements)
            made.sizes[number] = memoryview(piece).nbytes
            made.checksums[number] = mask(crc32c(piece))

    def tell() -> None:
        nonlocal told
        done = min(sum(map(bool, pieces)) * CHUNK_BYTES, len(data))
        storage.tell(done - told)
        told = done

    share(work, _runs(0, len(pieces)), count_threads(), tell)
    tell()
    return pieces


def _runs(first: int, last: int) -> list[range]:
    """The chunks from first to last in stretches: enough that threads end together."""
    return _cut(first, last, min(max((last - first) // (count_threads() * _RUNS), 1), _MOST_RUN))


def _cut(first: int, last: int, size: int) -> list[range]:
    return [range(start, min(start + size, last)) for start in range(first, last, size)]
