"""Whole records out of a stream of bytes, in blocks of some MiB.

    u64le  length            u32le  masked CRC-32C of the length
    bytes  payload           u32le  masked CRC-32C of the payload

Blocks are found by walking from header to header, each confirmed by its checksum.
Payloads are checked by `verified`, apart from the walk, so that threads can do it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorbytes import _wire
from tensorbytes.errors import LIMITS, CorruptError, LimitError, Limits
from tensorbytes.typing import bytes_view

HEADER_BYTES = 12
FRAME_BYTES = 16
BLOCK_BYTES = 4 << 20
ADVICE = "; repair(src, dst) keeps the records that are whole, on_corrupt='skip' reads around the damage"


class Stream(Protocol):
    """What records are read from: see compression.Source."""

    path: str
    size: int | None

    def readinto(self, view: memoryview, /) -> int: ...


class Block(NamedTuple):
    """Some records of one file, in the bytes they were read in."""

    data: memoryview
    records: np.ndarray[Any, Any]  # int64 [n, 2]: offset in data and length of each payload
    path: str
    base: int  # where data starts in the file, or in the inflated stream
    first: int  # the number of the first record in its file


class Cut(NamedTuple):
    """Where blocks should end: after every `every` records, of which `seen` came before this file."""

    every: int
    seen: int


class Memory:
    """Buffers that are used again: fresh memory costs more than filling it."""

    def __init__(self) -> None:
        self._spare: list[np.ndarray[Any, Any]] = []

    def take(self, size: int) -> np.ndarray[Any, Any]:
        while self._spare:
            room = self._spare.pop()
            if len(room) >= size:
                return room
        try:
            return np.empty(size, np.uint8)
        except MemoryError:
            raise LimitError(f"no memory for {size} bytes of one record") from None

    def give_back(self, data: memoryview) -> None:
        if isinstance(data.obj, np.ndarray):
            self._spare.append(data.obj)


def blocks(
    stream: Stream,
    *,
    base: int = 0,
    cut: Cut | None = None,
    memory: Memory | None = None,
    block_bytes: int = BLOCK_BYTES,
    limits: Limits = LIMITS,
) -> Iterator[Block]:
    """The records of a stream; damage raises CorruptError after all that came before it."""
    memory = memory or Memory()
    first, carried, size = 0, memoryview(b""), block_bytes
    found = np.empty((block_bytes // FRAME_BYTES + 1, 2), np.int64)
    while True:
        room = memory.take(size)
        room[: len(carried)] = carried
        view = bytes_view(room)
        filled = _fill(stream, view, len(carried))
        ended = filled < len(view)
        data = view[:filled]
        count, end, status = _wire.scan(data, 0, False, found)
        if count == len(found) and end < filled:
            status = _wire.OK  # more records than places: the rest is carried over
        kept = count if ended or cut is None else _until_border(count, first, cut)
        if kept < count:
            end, status = int(found[kept, 0]) - HEADER_BYTES, _wire.OK
        if kept:
            yield Block(data, found[:kept].copy(), stream.path, base, first)
            first += kept
        carried = data[end:]
        base += end
        if status == _wire.BAD_LENGTH or (status and ended):
            raise fault(stream, status, carried, base, first)
        if ended and not len(carried):
            return
        if kept:
            size = block_bytes * (1 + (len(carried) + block_bytes // 2) // block_bytes)
        else:  # one record fills the block: let it grow, as far as bytes arrive
            size = _larger(stream, carried, base, len(view), limits)


def _fill(stream: Stream, view: memoryview, filled: int) -> int:
    while filled < len(view):
        count = stream.readinto(view[filled:])
        if not count:
            break
        filled += count
    return filled


def _until_border(count: int, first: int, cut: Cut) -> int:
    """How many records to keep so that the block ends where a batch does, if that is most of them."""
    kept = count - (cut.seen + first + count) % cut.every
    return kept if kept * 2 >= count else count


def _larger(stream: Stream, carried: memoryview, base: int, size: int, limits: Limits) -> int:
    length = FRAME_BYTES + struct.unpack_from("<Q", carried)[0] if len(carried) >= HEADER_BYTES else 0
    if stream.size is not None and length > stream.size - base:
        raise fault(stream, _wire.CUT_PAYLOAD, carried, base, None)
    if stream.size is None and length > limits.max_bytes:
        raise LimitError(f"{stream.path}: a record of {length} bytes at byte {base}; the limit is {limits.max_bytes}")
    return min(max(length, size), 2 * size)


def fault(stream: Stream, status: int, rest: memoryview, at: int, number: int | None) -> CorruptError:
    """The error for what ended a walk over headers."""
    which = "a record" if number is None else f"record {number}"
    if status == _wire.CUT_HEADER:
        what = f"the file ends inside the header of {which}, {len(rest)} bytes into it"
    elif status == _wire.CUT_PAYLOAD:
        (length,) = struct.unpack_from("<Q", rest)
        what = f"the file ends inside {which}, which should have {length} bytes"
    else:
        what = f"the header of {which} is damaged: its length and the checksum of it disagree"
        if at == 0:
            what += " (is this a TFRecord file, in this compression?)"
    return CorruptError(what + ADVICE, at=at, path=stream.path)


def verified(block: Block) -> Block:
    """The same block, once the checksums of its payloads were found right."""
    records = block.records
    start = int(records[0, 0]) - HEADER_BYTES
    found, at, _ = _wire.scan(block.data, start, True, np.empty_like(records))
    if found < len(records):
        raise CorruptError(
            f"record {block.first + found} is damaged: its {int(records[found, 1])} bytes and their checksum disagree"
            + ADVICE,
            at=block.base + at,
            path=block.path,
        )
    return block
