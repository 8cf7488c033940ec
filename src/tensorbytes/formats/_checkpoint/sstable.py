r"""Sorted tables, as LevelDB and TensorFlow write them: keys and values in checked blocks.

    blocks    of entries: varint bytes shared with the key before, varint further bytes of
              the key, varint bytes of the value, those bytes of the key, the value; then the
              offsets of the entries that share nothing (u32 each), and how many they are (u32)
              after each block: 1 byte, 0 for plain or 1 for snappy, and the masked CRC-32C
              (u32) of the block and this byte
    footer    the handles (varint offset, varint size) of the block of metadata and of the block
              whose values are the handles of all data blocks, zeros up to 40 bytes, then
              57 fb 80 8b 24 75 47 db

Keys rise strictly. A key of the block of handles is no less than the last key of the block
that it leads to, and less than the first key of the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensorbytes._wire import crc32c, mask, proto, varint
from tensorbytes.budget import Budget
from tensorbytes.errors import MORE_TENSORS, CorruptError, LimitError, UnsupportedError
from tensorbytes.io.streams.engines import DamagedError, decompress_into
from tensorbytes.io.streams.snappy import MOST_OUTPUT

MAGIC = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
# As TensorFlow has them.
_BLOCK_BYTES = 1 << 18
_RESTART_INTERVAL = 16
# About what an entry takes in memory beside its key.
_ITEM_BYTES = 400
_MOST_BYTES = 64 << 20


class Item(NamedTuple):
    """A key and its value; `at` is where it stands, or where its block does if that is compressed."""

    key: bytes
    value: memoryview
    at: int


# ---- reading ----------------------------------------------------------------


def read(data: memoryview, budget: Budget) -> list[Item]:
    """Everything in a table, in order, every checksum verified."""
    if len(data) < _FOOTER_BYTES:
        raise CorruptError(f"a table of {len(data)} bytes: its footer alone takes {_FOOTER_BYTES}", at=0)
    if bytes(data[-8:]) != MAGIC:
        raise CorruptError(
            f"no table of TensorFlow or LevelDB: expected {MAGIC.hex(' ')} at its end, got {bytes(data[-8:]).hex(' ')}",
            at=len(data) - 8,
        )
    start, end = len(data) - _FOOTER_BYTES, len(data) - 8
    metadata, at = _handle(data, start, end)
    index, at = _handle(data, at, end)
    if any(data[at:end]):
        raise CorruptError("the footer's padding is not zero", at=at)
    # Names need no gigabytes, though a few bytes can repeat a long one.
    budget = Budget(replace(budget.limits, max_bytes=min(budget.limits.max_bytes, _MOST_BYTES)), len(data))
    list(_entries(*_block(data, metadata, start, budget), budget))
    items: list[Item] = []
    passed = 0
    floor: bytes | None = None
    for key, value, place in _entries(*_block(data, index, start, budget), budget):
        try:
            handle, used = _handle(value, 0, len(value))
        except CorruptError as error:
            raise error.shifted(place) from None
        if used != len(value) or handle[0] < passed:
            raise CorruptError("the handle of a block is damaged, or leads back", at=place)
        passed = sum(handle) + _TRAILER_BYTES
        first = len(items)
        items += _entries(*_block(data, handle, start, budget), budget, floor)
        if len(items) > budget.max_tensors + 1:  # the header is one of them
            raise LimitError(f"over {budget.max_tensors} entries", hints=[MORE_TENSORS])
        # What a search for a key would go by: it must lead to the block that holds it.
        if len(items) > first and items[-1].key > key:
            raise CorruptError("a block holds keys beyond its own in the index", at=place)
        floor = key
    return items


def _handle(data: memoryview, at: int, end: int) -> tuple[tuple[int, int], int]:
    offset, middle = proto.read_varint(data, at, end)
    size, after = proto.read_varint(data, middle, end)
    # A handle that is longer than it needs to be would hide a damaged bit: nothing checks the footer.
    if bytes(data[at:after]) != varint(offset) + varint(size):
        raise CorruptError("the handle of a block is damaged", at=at)
    return (offset, size), after


def _block(data: memoryview, handle: tuple[int, int], limit: int, budget: Budget) -> tuple[memoryview, int, bool]:
    """(the plain bytes of a block, where it stands, whether offsets in it are the file's)"""
    offset, size = handle
    end = offset + size
    if end + _TRAILER_BYTES > limit:
        raise CorruptError(f"a block from byte {offset} to {end} of a table of {limit}", at=limit)
    kind, stored = struct.unpack_from("<BI", data, end)
    if mask(crc32c(data[offset : end + 1])) != stored:
        raise CorruptError("the checksum of a block differs", at=offset)
    if kind == 0:
        return data[offset:end], offset, True
    if kind == 1:
        return _decompress(data[offset:end], budget, offset), offset, False
    raise UnsupportedError(f"a block of the unknown compression {kind}", at=end)


def _decompress(block: memoryview, budget: Budget, at: int) -> memoryview:
    """The plain bytes of a snappy block that stands at `at`: a varint, their number, and their code."""
    try:
        size, _ = proto.read_varint(block, 0, len(block))
    except CorruptError as error:
        raise error.shifted(at) from None
    if size > MOST_OUTPUT * len(block):
        raise CorruptError(f"impossible snappy block: {len(block)} bytes that should hold {size}", at=at)
    budget.copy(size, "a snappy block", at)
    out = memoryview(bytearray(size))
    try:
        decompress_into("snappy", block, out)
    except DamagedError as error:
        raise error.at(at) from None
    return out.toreadonly()


def _entries(block: memoryview, base: int, plain: bool, budget: Budget, before: bytes | None = None) -> Iterator[Item]:
    """The entries of a block; keys must follow `before`."""
    limit, restarts = _restarts(block, base)
    seen = 0  # restarts that were found to be entries
    key, at = b"", 0
    while at < limit:
        place = base + at if plain else base
        first = at
        shared, further, size, at = _lengths(block, at, limit, base)
        if shared > len(key) or further + size > limit - at:
            raise CorruptError(
                f"an entry shares {shared} bytes of {len(key)}, and takes {further} + {size} of {limit - at}", at=place
            )
        if seen < len(restarts) and restarts[seen] == first:
            seen += 1
            if shared:
                raise CorruptError("a restart whose entry shares bytes with the one before", at=place)
        budget.objects(1, "the entries of the table", place, shared + further + _ITEM_BYTES)
        key = key[:shared] + bytes(block[at : at + further])
        if before is not None and key <= before:
            raise CorruptError(f"the key {key[:80]!r} is out of order, or appears twice", at=place)
        before = key
        at += further
        yield Item(key, block[at : at + size], place)
        at += size
    if seen != len(restarts) and not (limit == 0 and restarts == [0]):
        raise CorruptError("a restart that is not an entry", at=base)


def _lengths(block: memoryview, at: int, limit: int, base: int) -> tuple[int, int, int, int]:
    """(bytes shared, further bytes of the key, bytes of the value, where these numbers end)"""
    if at + 3 <= limit:
        shared, further, size = block[at : at + 3]
        if shared < 128 and further < 128 and size < 128:
            return shared, further, size, at + 3
    try:
        shared, at = proto.read_varint(block, at, limit)
        further, at = proto.read_varint(block, at, limit)
        size, at = proto.read_varint(block, at, limit)
    except CorruptError as error:
        raise error.shifted(base) from None
    return shared, further, size, at


def _restarts(block: memoryview, base: int) -> tuple[int, list[int]]:
    """(where the entries end, the offsets of those that can be read without the ones before)"""
    count = struct.unpack_from("<I", block, len(block) - 4)[0] if len(block) >= 4 else 0
    limit = len(block) - 4 - 4 * count
    if count == 0 or limit < 0:
        raise CorruptError(f"a block of {len(block)} bytes with {count} restarts", at=base)
    offsets = np.frombuffer(block, "<u4", count, limit)
    if offsets[0] != 0 or (offsets[1:] <= offsets[:-1]).any():
        raise CorruptError("the restarts of a block don't rise from 0", at=base)
    return limit, offsets.tolist()


# ---- writing ----------------------------------------------------------------


class _Block:
    """A block under construction."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.data = bytearray()
        self.restarts = [0]
        self.count = 0
        self.key = b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count and self.count % self.interval == 0:
            self.restarts.append(len(self.data))
        elif self.count:
            shared = _common(self.key, key)
        self.data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self.count += 1
        self.key = key

    @property
    def size(self) -> int:
        return len(self.data) + 4 * len(self.restarts) + 4

    def finish(self) -> bytes:
        restarts = struct.pack(f"<{len(self.restarts) + 1}I", *self.restarts, len(self.restarts))
        return bytes(self.data) + restarts


def build(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A table of these keys and values, which must come in order; as TensorFlow builds it, without compression."""
    out = bytearray()
    index = _Block(1)
    block = _Block(_RESTART_INTERVAL)
    waiting: tuple[bytes, bytes] | None = None  # the last key of a block that is written, and its handle
    for key, value in items:
        if waiting is not None:
            index.add(_between(waiting[0], key), waiting[1])
            waiting = None
        block.add(key, value)
        if block.size >= _BLOCK_BYTES:
            waiting = (key, _append(out, block.finish()))
            block = _Block(_RESTART_INTERVAL)
    if block.count:
        waiting = (block.key, _append(out, block.finish()))
    metadata = _append(out, _Block(1).finish())
    if waiting is not None:
        index.add(_beyond(waiting[0]), waiting[1])
    handles = metadata + _append(out, index.finish())
    return bytes(out) + handles.ljust(_FOOTER_BYTES - 8, b"\0") + MAGIC


def _append(out: bytearray, block: bytes) -> bytes:
    """Write a block with its trailer; gives its handle."""
    handle = varint(len(out)) + varint(len(block))
    out += block + b"\0" + struct.pack("<I", mask(crc32c(block + b"\0")))
    return handle


def _common(a: bytes, b: bytes) -> int:
    """How many first bytes are the same."""
    most = min(len(a), len(b))
    if a[:most] == b[:most]:
        return most
    return next(i for i in range(most) if a[i] != b[i])


def _between(low: bytes, high: bytes) -> bytes:
    """A short key that is no less than `low`, and less than `high`."""
    shared = _common(low, high)
    if shared < min(len(low), len(high)) and low[shared] + 1 < high[shared]:
        return low[:shared] + bytes([low[shared] + 1])
    return low


def _beyond(key: bytes) -> bytes:
    """A short key that is no less than `key`."""
    for place, byte in enumerate(key):
        if byte != 0xFF:
            return key[:place] + bytes([byte + 1])
    return key
