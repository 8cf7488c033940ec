"""Whole records out of a stream of bytes, in blocks of some MiB.

    u64le  length            u32le  masked CRC-32C of the length
    bytes  payload           u32le  masked CRC-32C of the payload

Blocks are found by walking from header to header; what both checksums confirm is a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from tensorbytes import _wire, formats
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, MORE_BYTES, REPAIR, CorruptError, Hint, LimitError, Limits, UsageError
from tensorbytes.formats.tfrecord.files.memory import FRESH, Memory
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES
from tensorbytes.typing import bytes_view

BLOCK_BYTES = 2 << 20
# A block that must grow doubles up to this size. Then bytes do arrive, and one more step takes it to all of its record:
# what is copied from one block to the next is in memory twice.
_MOST_DOUBLED = 16 << 20
# Batches up to this size are read as a whole, larger ones in parts that are joined.
_LARGE_BATCH_BYTES = 8 << 20
_HEAD_BYTES = 4096
AROUND_DAMAGE = (REPAIR, Hint("on_corrupt", "skip", "to read around the damage", of="open_records"))
QUESTION = "is this a TFRecord file, in this compression?"


class Stream(Protocol):
    """What records are read from: see bytestreams.ByteStream."""

    path: str
    size: int | None

    def readinto(self, view: memoryview, /) -> int: ...


class RecordBlock(NamedTuple):
    """Some records of one file, in the bytes they were read in."""

    data: memoryview
    records: Array  # int64 [n, 2]: offset in data and length of each payload
    path: str
    base: int  # where data starts in the file, or in the inflated stream
    first: int  # the number of the first record in its file
    memory: Memory = FRESH  # for what is made of it
    verified: bool = True  # whether the checksums of the payloads were checked


class Cut(NamedTuple):
    """Where blocks should end: after every `every` records, of which `seen` came before this file."""

    every: int
    seen: int


def blocks(
    stream: Stream,
    *,
    base: int = 0,
    cut: Cut | None = None,
    memory: Memory | None = None,
    verify: bool = True,
    trusted: bool = True,
    block_bytes: int = BLOCK_BYTES,
    limits: Limits = LIMITS,
    budget: Budget | None = None,
) -> Iterator[RecordBlock]:
    """The records of a stream; damage raises CorruptError after all that came before it.

    verify=False does not look at the checksums of payloads: they are `trusted`, or whoever reads the blocks verifies
    them. Headers are always checked. A record of a compressed file may take what is left of the budget: of one that
    the caller charges for what is made of the blocks, or of all `limits`.
    """
    budget = budget or Budget(limits)
    memory = memory or Memory()
    first, size, wanted = 0, block_bytes, block_bytes
    if stream.size is not None:  # a small file takes little memory
        size = min(size, max(stream.size - base, 0) + 1)
    carried = data = memoryview(b"")
    found = np.empty((0, 2), np.int64)
    while True:
        room = memory.array(size)
        if len(found) <= len(room) // FRAME_BYTES:  # one more than can be there: without room nothing is looked at
            found = np.empty((len(room) // FRAME_BYTES + 1, 2), np.int64)
        room[: len(carried)] = carried
        view, filled = bytes_view(room), len(carried)
        carried = data = memoryview(b"")  # the block before goes before this one fills
        filled, broken = _fill(stream, view, filled)
        ended = filled < len(view)
        data = view[:filled]
        count, end, status = _wire.scan(data, 0, verify, found)
        damaged, kept = status in (_wire.BAD_LENGTH, _wire.BAD_DATA), count
        if cut is not None and count and not (ended or damaged):
            wanted = _whole_batches(block_bytes, cut.every * end // count)
            whole = count - (cut.seen + first + count) % cut.every
            if whole <= 0 and wanted > len(view):  # not all of a batch yet: read on
                carried, size = data, wanted
                continue
            kept = whole if whole > 0 else count
        if kept < count:
            end, status = int(found[kept, 0]) - HEADER_BYTES, _wire.OK
        if kept:
            yield RecordBlock(data, found[:kept].copy(), stream.path, base, first, memory, verify or trusted)
            first += kept
        carried = data[end:]
        base += end
        if broken is not None and not damaged:
            raise broken
        if damaged or (status and ended):
            raise fault(stream, status, carried, base, first)
        if ended:
            return
        if kept:
            size = max(wanted, len(carried) + block_bytes // 2)
        else:  # one record fills the block: let it grow, as far as bytes arrive
            size = _larger(stream, carried, base, first, len(view), budget)


def _fill(stream: Stream, view: memoryview, filled: int) -> tuple[int, CorruptError | None]:
    """(how far the view is filled, what broke the stream there); what came before is worth reading."""
    while filled < len(view):
        try:
            count = stream.readinto(view[filled:])
        except CorruptError as error:
            return filled, error
        if not count:
            break
        filled += count
    return filled, None


def _whole_batches(block_bytes: int, batch_bytes: int) -> int:
    """The size of a block that holds a number of batches and little more."""
    if batch_bytes > _LARGE_BATCH_BYTES:
        return block_bytes
    return max(1, round(block_bytes / batch_bytes)) * batch_bytes * 17 // 16 + FRAME_BYTES


def _larger(stream: Stream, carried: memoryview, base: int, number: int, size: int, budget: Budget) -> int:
    length = FRAME_BYTES + struct.unpack_from("<Q", carried)[0] if len(carried) >= HEADER_BYTES else 0
    if stream.size is not None and length > stream.size - base:
        raise fault(stream, _wire.CUT_PAYLOAD, carried, base, number)
    if stream.size is None and length > budget.left:
        raise LimitError(
            f"a record of {length} bytes, over the limit of {budget.left}",
            path=stream.path,
            at=base,
            record=number,
            hints=[MORE_BYTES],
        )
    return max(length, size) if size >= _MOST_DOUBLED else min(max(length, size), 2 * size)


def damaged(block: RecordBlock, index: int) -> CorruptError:
    """The error for a record of a block whose payload and checksum disagree."""
    start, length = block.records[index].tolist()
    return _damage(length, block.path, block.base + start - HEADER_BYTES, block.first + index)


def _damage(length: int, path: str, at: int, number: int) -> CorruptError:
    what = f"record {number} is damaged: its {length} bytes and their checksum disagree"
    return CorruptError(what, at=at, path=path, record=number, hints=AROUND_DAMAGE)


def sound(block: RecordBlock) -> RecordBlock:
    """The records of a block up to the first that is damaged, all of them verified."""
    if block.verified or not len(block.records):
        return block
    found = np.empty_like(block.records)
    count, _, _ = _wire.scan(block.data, int(block.records[0, 0]) - HEADER_BYTES, True, found)
    return block._replace(records=block.records[:count], verified=True)


def verified(block: RecordBlock) -> RecordBlock:
    """The same block, with all its payloads verified; the first that is damaged raises CorruptError."""
    found = sound(block)
    if len(found.records) < len(block.records):
        raise damaged(block, len(found.records))
    return found


def fault(stream: Stream, status: int, rest: memoryview, at: int, number: int) -> CorruptError | UsageError:
    """The error for what ended a walk from record to record."""
    which = f"record {number}"
    length = int.from_bytes(rest[:8], "little")
    if status == _wire.CUT_HEADER:
        what = f"the file ends inside the header of {which}, {len(rest)} bytes into it"
    elif status == _wire.CUT_PAYLOAD:
        what = f"the file ends inside {which}, which should have {length} bytes"
    elif status == _wire.BAD_DATA:
        return _damage(length, stream.path, at, number)
    else:
        what = f"the header of {which} is damaged: its length and the checksum of it disagree"
    if at or status not in (_wire.CUT_HEADER, _wire.BAD_LENGTH):
        return CorruptError(what, at=at, path=stream.path, record=number, hints=AROUND_DAMAGE)
    # Where a file starts with no header, it is more likely no such file than a damaged one.
    found = formats.sniff(bytes(rest[:_HEAD_BYTES]), len(rest) if stream.size is None else stream.size)
    if found is not None and formats.get(found).unmistakable:
        return UsageError(
            f"a file of format {found!r}, without records",
            path=stream.path,
            hints=[Hint(operation="open", arguments=("path",), purpose="reads it")],
        )
    return CorruptError(what, at=at, path=stream.path, record=number, hints=[Hint(purpose=QUESTION)])
