"""Tensors in chunks, each compressed by itself: several at once, and a slice needs only its own.

Every chunk has a checksum, so a slice is verified as far as it was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tensorbytes._wire import crc32c, mask
from tensorbytes.codecs.pipelines import Elements, Pipeline
from tensorbytes.errors import CorruptError
from tensorbytes.io import storage
from tensorbytes.io.streams.engines import DamagedError
from tensorbytes.io.workers import count_threads, map_in_order
from tensorbytes.tensor import Array, InvalidValueError
from tensorbytes.typing import Buffer

# Small enough for a core's own cache, and for slices; large enough that tables and calls don't count.
CHUNK_BYTES = 1 << 18
# What a reader takes, so that a slice can't ask for much.
_MOST_BYTES = 1 << 26
_TABLE_BYTES = 8  # for each chunk
_RUN = 16  # chunks that a thread takes at once


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

        def work(numbers: range) -> None:
            for number in numbers:
                end = int(ends[number])
                begin = end - int(self.sizes[number])
                place = number * self.chunk - base
                data = content[begin:end]
                if mask(crc32c(data)) != self.checksums[number]:
                    raise CorruptError(f"the checksum of chunk {number} differs", at=at + begin)
                try:
                    self.pipeline.decode(data, out[place : place + self.chunk], self.elements)
                except DamagedError as error:
                    raise CorruptError(f"chunk {number}: {error}", at=at + begin) from None

        for _ in map_in_order(work, _runs(first, last), count_threads()):
            pass
        return out[start - base : stop - base]


def compress(data: memoryview, pipeline: Pipeline, elements: Elements) -> tuple[Chunks, list[Buffer]] | None:
    """The chunks and their bytes; None where that would save nothing."""
    fitting = pipeline.fitted(elements)
    if fitting is None:
        return None
    found = []
    for number, chunk in enumerate(_encoded(data, fitting, elements)):
        found.append(chunk)
        storage.tell(min(CHUNK_BYTES, len(data) - number * CHUNK_BYTES))
    pieces = [piece for piece, _ in found]
    sizes = np.array([memoryview(piece).nbytes for piece in pieces], "<u4")
    if int(sizes.sum()) + _TABLE_BYTES * len(sizes) >= len(data):
        storage.tell(-len(data))
        return None
    storage.tell(-int(sizes.sum()))
    checksums = np.array([checksum for _, checksum in found], "<u4")
    return Chunks(fitting, elements, len(data), CHUNK_BYTES, sizes, checksums), pieces


def _encoded(data: memoryview, pipeline: Pipeline, elements: Elements) -> Iterator[tuple[Buffer, int]]:
    """Each chunk, with its checksum."""

    def work(numbers: range) -> list[tuple[Buffer, int]]:
        found = [pipeline.encode(data[CHUNK_BYTES * k : CHUNK_BYTES * (k + 1)], elements) for k in numbers]
        return [(piece, mask(crc32c(piece))) for piece in found]

    count = -(-len(data) // CHUNK_BYTES)
    return chain.from_iterable(map_in_order(work, _runs(0, count), count_threads()))


def _runs(first: int, last: int) -> list[range]:
    """The chunks from first to last in stretches, since waking a thread takes as long as a small chunk."""
    return [range(start, min(start + _RUN, last)) for start in range(first, last, _RUN)]
