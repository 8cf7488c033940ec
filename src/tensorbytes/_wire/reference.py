"""The kernel in Python and NumPy: the definition of correct, and the fallback.

Each function computes exactly what its twin in wire.c does; the parity test holds
them together. None of them raises for bad data: they report positions and codes,
and the layers above find the words.
"""

from __future__ import annotations

import itertools
import os
import struct
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tensorbytes._wire.common import (
    BAD_DATA,
    BAD_LENGTH,
    CUT_HEADER,
    CUT_PAYLOAD,
    LARGE_PAYLOAD,
    OK,
    SMALL,
    mask,
    varint,
)
from tensorbytes.typing import Buffer, bytes_view

_POLYNOMIAL = 0x82F63B78
_MAX_RANK = 64
# Below this many bytes a plain loop beats NumPy's set-up cost.
_LOOP_BYTES = 1 << 16
# No place or length of a record is as large: sums of some of them don't overflow.
_MOST_PLACE = (1 << 61) - 1
# At most this much is laid out in lanes at once, to bound the memory it takes.
_BLOCK_BYTES = 1 << 24


def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _byte_table()
_TABLE_NP = np.array(_TABLE, np.uint32)


@cache
def _word_table() -> np.ndarray[Any, Any]:
    """Two bytes at a time: what a 16-bit word does to a checksum. Made when first used."""
    words = np.arange(65536, dtype=np.uint32)
    first = _TABLE_NP[words & 0xFF]
    table: np.ndarray[Any, Any] = _TABLE_NP[(first ^ (words >> 8)) & 0xFF] ^ (first >> 8)
    return table


def crc32c(buffer: Buffer, crc: int = 0) -> int:
    data = bytes_view(buffer)
    crc ^= 0xFFFFFFFF
    while len(data) >= _LOOP_BYTES:
        block = data[:_BLOCK_BYTES]
        lanes = 8192 if len(block) == _BLOCK_BYTES else 1024
        lane = len(block) // lanes & ~1
        crc = _crc_of_lanes(np.frombuffer(block[: lane * lanes], "<u2").reshape(lanes, lane // 2), crc)
        data = data[lane * lanes :]
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_of_lanes(words: np.ndarray[Any, Any], crc: int) -> int:
    """Checksum equal stretches side by side, then fold neighbours together."""
    lanes = np.zeros(len(words), np.uint32)
    lanes[0] = crc
    table = _word_table()
    for column in np.ascontiguousarray(words.T):
        lanes = table[(lanes ^ column) & 0xFFFF] ^ (lanes >> np.uint32(16))
    shift = _zeros_operator(words.shape[1] * 2)
    while len(lanes) > 1:
        lanes = _apply(shift, lanes[0::2]) ^ lanes[1::2]
        shift = _apply(shift, shift)
    return int(lanes[0])


def _zeros_operator(length: int) -> np.ndarray[Any, Any]:
    """The effect of `length` zero bytes on each of the 32 bits of a checksum."""
    power = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = _TABLE_NP[power & np.uint32(0xFF)] ^ (power >> np.uint32(8))
    while length:
        if length & 1:
            power = _apply(step, power)
        step = _apply(step, step)
        length >>= 1
    return power


def _apply(operator: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = np.zeros_like(values)
    for bit in range(32):
        result ^= np.where(values >> np.uint32(bit) & np.uint32(1), operator[bit], np.uint32(0))
    return result


def frame_header(length: int) -> bytes:
    """The 12 bytes before a payload: its length and that length's checksum."""
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", mask(crc32c(size)))


def frame(prefix: Buffer, data: Buffer) -> bytes:
    if not memoryview(data).c_contiguous:
        raise ValueError("the data is not C-contiguous")  # as NumPy says to the compiled kernel
    return frames([[prefix, data]])


def frames(records: Sequence[Sequence[Buffer]]) -> bytes:
    out: list[Buffer] = []
    for parts in records:
        views = [bytes_view(part) for part in parts]
        crc = 0
        for view in views:
            crc = crc32c(view, crc)
        out += [frame_header(sum(len(v) for v in views)), *views, struct.pack("<I", mask(crc))]
    return b"".join(out)


def scan(buffer: Buffer, start: int, verify: int, out: np.ndarray[Any, Any]) -> tuple[int, int, int]:
    data = bytes_view(buffer)
    if not 0 <= verify <= SMALL:
        raise IndexError(f"position {verify} is outside 0..{SMALL}")
    if not 0 <= start <= len(data):
        raise IndexError(f"position {start} is outside 0..{len(data)}")
    at, found = start, 0
    while found < len(out) and at < len(data):
        left = len(data) - at - 12
        if left < 0:
            return found, at, CUT_HEADER
        length, stored = struct.unpack_from("<QI", data, at)
        if stored != mask(crc32c(data[at : at + 8])):
            return found, at, BAD_LENGTH
        if left < 4 or length > left - 4:
            return found, at, CUT_PAYLOAD
        payload = at + 12
        if verify and not (verify == SMALL and length >= LARGE_PAYLOAD):
            (stored,) = struct.unpack_from("<I", data, payload + length)
            if stored != mask(crc32c(data[payload : payload + length])):
                return found, at, BAD_DATA
        out[found] = payload, length
        found += 1
        at = payload + length + 4
    return found, at, OK


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """(value, next position); the position is -1 when the varint is cut or over 64 bits."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


def _delimited(data: memoryview, at: int, end: int, tag: int) -> tuple[int, int]:
    """(start, stop) of a length-delimited field with this tag; stop is -1 if there is none."""
    if at < 0 or at >= end or data[at] != tag:
        return 0, -1
    length, at = _varint(data, at + 1, end)
    return (at, at + length) if at >= 0 and length <= end - at else (0, -1)


# The tags of the frame's fields 1000, 1005, 1010 and 1011.
_NAME_TAG = b"\xc2\x3e"
_ITEM_TAG, _PADDING_TAG, _HEADER_CRC_TAG = b"\xe8\x3e", b"\x92\x3f", b"\x9d\x3f"
PlainTensor = tuple[int, tuple[int, ...], int, int, int]


def plain_tensor(buffer: Buffer, start: int, end: int) -> PlainTensor | None:
    return _plain_tensor(bytes_view(buffer), start, end, named=False)


def _plain_tensor(data: memoryview, start: int, end: int, named: bool) -> PlainTensor | None:
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"position {start} or {end} is outside 0..{len(data)}")
    if start == end or data[start] != 0x08:
        return None
    dtype, at = _varint(data, start + 1, end)
    at, shape_end = _delimited(data, at, end, 0x12)
    if shape_end < 0:
        return None
    shape: list[int] = []
    while at < shape_end:
        at, dim_end = _delimited(data, at, shape_end, 0x12)
        size = 0
        if dim_end < 0 or len(shape) == _MAX_RANK:
            return None
        if at < dim_end:
            if data[at] != 0x08:
                return None
            size, at = _varint(data, at + 1, dim_end)
        if at != dim_end or size >= 1 << 63:
            return None
        shape.append(size)
    if data[at : min(at + 2, end)] == _NAME_TAG:
        at, after = _delimited(data, at + 1, end, _NAME_TAG[1])
        if after < 0 or not named or not bytes(data[at:after]).isascii():
            return None
        at = after
    item, at = _frame_fields(data, start, at, end)
    at, content_end = _delimited(data, at, end, 0x22)
    return (dtype, tuple(shape), at, end - at, item) if content_end == end else None


def _frame_fields(data: memoryview, start: int, at: int, end: int) -> tuple[int, int]:
    """(item, next position) after the frame's fields before the content; the position is -1 for a fault."""
    item = 0
    if data[at : min(at + 2, end)] == _ITEM_TAG:
        item, at = _varint(data, at + 2, end)
        if at < 0:
            return 0, -1
    if data[at : min(at + 2, end)] == _PADDING_TAG:
        size, after = _varint(data, at + 2, end)
        if after < 0 or size > end - after:
            return 0, -1
        at = after + size
    if data[at : min(at + 2, end)] == _HEADER_CRC_TAG:
        if end - at < 6 or data[at + 2 : at + 6] != struct.pack("<I", mask(crc32c(data[start:at]))):
            return 0, -1
        at += 6
    return item, at


def fields(buffer: Buffer, start: int, end: int, stop: int) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """The fields of a message up to its end, the tag byte `stop`, or what the general parser must read."""
    data = bytes_view(buffer)
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"position {start} or {end} is outside 0..{len(data)}")
    found: list[tuple[int, int, int, int, int]] = []
    at = start
    while at < end and data[at] != stop:
        tag, after = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if after < 0 or not 0 < number < 1 << 29 or after - at != len(varint(tag)):
            break
        first, last = after, 0
        if wire == 0:
            first, after = _varint(data, after, end)
        elif wire in (1, 2, 5):
            size, first = _varint(data, after, end) if wire == 2 else (8 if wire == 1 else 4, after)
            after = last = first + size if first >= 0 and size <= end - first else -1
        else:
            break
        if after < 0:
            break
        found.append((number, wire, first, last, at))
        at = after
    return found, at


def plain_record(buffer: Buffer) -> PlainTensor | None:
    data = bytes_view(buffer)
    record = np.empty((1, 2), np.int64)
    found, stop, _ = scan(data, 0, True, record)
    if not found or stop != len(data):
        return None
    at, size = record[0].tolist()
    return _plain_tensor(data, at, at + size, named=True)


def prefault(buffer: Buffer) -> None:
    """Nothing to do: only the compiled kernel reaches the system call."""


def map_file(fd: int, size: int) -> Any:
    """A map of a file for `gather`; None where there is none. Here never: a file that is cut would end the process."""
    if fd < 0 or size < 0:
        raise IndexError("a position is negative")
    return None


def gather(
    sources: tuple[Any, ...],
    starts: Buffer,
    places: Buffer,
    numbers: Buffer,
    order: Buffer,
    moved: Buffer,
    touched: Buffer,
    most: int,
) -> bytes | None:
    """Read records of several files by number: their frames end to end, in this order; None if they are more than
    `most` bytes, are not there or not sound, or their file is not open.

    sources: for each file a map, the number of the open file, or None; starts: the number of its first record, and
    after the last file how many there are; places: where the payload of each record starts in its file, and its length;
    moved: the same of what was read, for each number; touched: which files have some of them.
    """
    first, wanted = np.frombuffer(starts, np.int64), np.frombuffer(numbers, np.int64)
    table, found = np.frombuffer(places, np.int64).reshape(-1, 2), np.frombuffer(moved, np.int64).reshape(-1, 2)
    ranks, files = np.frombuffer(order, np.int64), np.frombuffer(touched, np.uint8)
    if len(first) != len(sources) + 1 or len(files) < len(sources) or first[0] or (first[1:] < first[:-1]).any():
        raise ValueError("the arrays don't fit")
    if first[-1] != len(table) or len(found) < len(wanted) or len(ranks) != len(wanted):
        raise ValueError("the arrays don't fit")
    if any(source is not None and source < 0 for source in sources):
        raise IndexError("a position is negative")
    found[: len(wanted)] = 0
    pieces, at, closed = [], 0, False
    for rank in ranks.tolist():
        if not 0 <= rank < len(wanted) or not 0 <= wanted[rank] < len(table):
            raise ValueError("a number or a place is no record's")
        start, length = table[wanted[rank]].tolist()
        file = int(np.searchsorted(first, wanted[rank], side="right")) - 1
        if not (12 <= start < _MOST_PLACE and 0 <= length < _MOST_PLACE):
            raise ValueError("a number or a place is no record's")
        files[file], closed = 1, closed or sources[file] is None
        if closed:
            continue
        if at + length + 16 > most or not hasattr(os, "pread"):
            return None
        found[rank] = at + 12, length
        pieces.append((sources[file], start - 12, length))
        at += length + 16
    if closed:
        return None
    read = [os.pread(fd, length + 16, start) for fd, start, length in pieces]
    for (_, _, length), whole in zip(pieces, read, strict=True):
        if len(whole) < length + 16 or whole[:12] != frame_header(length):
            return None
        if mask(crc32c(whole[12:-4])) != int.from_bytes(whole[-4:], "little"):
            return None
    return b"".join(read)


def reserve(fd: int, offset: int, size: int) -> None:
    """Has the disk set blocks aside for these bytes of a file, which stays as long as it is; here nothing: a hint."""
    if fd < 0 or offset < 0 or size < 0:
        raise IndexError("a position is negative")


def start_writeback(fd: int, offset: int, size: int) -> None:
    """Has the disk begin to take these bytes of a file, without waiting for it; here nothing, for it is only a hint."""
    if fd < 0 or offset < 0 or size < 0:
        raise IndexError("a position is negative")


def strings_pack(tag: int, offsets: Buffer, data: Buffer) -> bytes:
    bounds = np.frombuffer(bytes_view(offsets), np.int64)
    view = bytes_view(data)
    if len(bounds) == 0 or bounds[0] < 0 or bounds[-1] > len(view) or (bounds[1:] < bounds[:-1]).any():
        raise ValueError("string offsets must rise from 0 to the size of the data")
    stops = bounds.tolist()
    return b"".join(bytes([tag]) + varint(stop - start) + view[start:stop] for start, stop in itertools.pairwise(stops))


def strings_unpack(buffer: Buffer, start: int, end: int, tag: int) -> tuple[bytearray, bytes, int]:
    data = bytes_view(buffer)
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"position {start} or {end} is outside 0..{len(data)}")
    content, offsets = bytearray(), array("q", [0])  # and no object for each of very many short strings
    stop = start
    while True:
        at, after = _delimited(data, stop, end, tag)
        if after < 0:
            break
        content += data[at:after]
        offsets.append(len(content))
        stop = after
    return bytearray(offsets), bytes(content), stop
