"""Making mutated bytes whole again: lengths and checksums that a mutation broke, so that it reaches what they guard.

Each function takes any bytes and returns some; what it can't make sense of it leaves alone.
None of them uses the parsers that are tested.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from safety.fuzz import varints
from tensorbytes._wire import crc32c, mask

_FRAME = 16
_HEADER = 12
_CRC_TAG = b"\x9d\x3f"  # field 1011 of a record, fixed32
_EOCD = struct.Struct("<4s4H2IH")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_STRING = 7
_TABLE_MAGIC = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"


def _masked(data: bytes | bytearray | memoryview) -> bytes:
    return struct.pack("<I", mask(crc32c(data)))


def records(data: bytes) -> bytes:
    """TFRecord framing: the last length is cut to what is there, and every checksum is right."""
    out, at, size = bytearray(), 0, len(data)
    while size - at >= _FRAME:
        length = int.from_bytes(data[at : at + 8], "little")
        if length > size - at - _FRAME:
            length = size - at - _FRAME
        head = length.to_bytes(8, "little")
        payload = data[at + _HEADER : at + _HEADER + length]
        out += head + _masked(head) + payload + _masked(payload)
        at += _FRAME + length
    return bytes(out)


def frames(data: bytes) -> bytes:
    """The same of tensors, whose headers may have checksums of their own."""
    at = data.find(_CRC_TAG)
    if at >= _HEADER and len(data) > at + 6:
        start = 0
        while (length := int.from_bytes(data[start : start + 8], "little")) + start + _FRAME <= at:
            start += _FRAME + length
        data = data[: at + 2] + _masked(data[start + _HEADER : at]) + data[at + 6 :]
    return records(data)


def stored(data: bytes) -> bytes:
    """The same of tensors that are compressed, each chunk of which has a checksum."""
    out = bytearray(data)
    at = 0
    while len(out) - at > _FRAME:
        length = min(int.from_bytes(out[at : at + 8], "little"), len(out) - at - _FRAME)
        _seal_chunks(out, at + _HEADER, at + _HEADER + length)
        at += _FRAME + length
    return records(bytes(out))


def _seal_chunks(out: bytearray, start: int, end: int) -> None:
    """Set the checksums in field 1012 of the message in out[start:end] to those of its field 4."""
    found = _delimited(out, start, end)
    if 1012 not in found or 4 not in found:
        return
    inner = _delimited(out, *found[1012])
    if 3 not in inner or 4 not in inner:
        return
    (sizes, sizes_end), (sums, sums_end) = inner[3], inner[4]
    begin, stop = found[4]
    for number in range(min(sizes_end - sizes, sums_end - sums) // 4):
        size = int.from_bytes(out[sizes + 4 * number : sizes + 4 * number + 4], "little")
        if number == (sizes_end - sizes) // 4 - 1:  # the last one takes what is left
            size = max(stop - begin, 0)
            struct.pack_into("<I", out, sizes + 4 * number, size)
        chunk = out[begin : min(begin + size, stop)]
        out[sums + 4 * number : sums + 4 * number + 4] = _masked(chunk)
        begin += size


def _delimited(data: bytearray, at: int, end: int) -> dict[int, tuple[int, int]]:
    """Where the length-delimited fields of a message are, as far as it is one."""
    found: dict[int, tuple[int, int]] = {}
    while at < end:
        tag, at = _varint(data, at, end)
        wire = tag & 7
        if wire == 0:
            _, at = _varint(data, at, end)
        elif wire == 2:
            size, at = _varint(data, at, end)
            if size > end - at:
                break
            found[tag >> 3] = at, at + size
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            break
    return found


def _varint(data: bytearray | bytes, at: int, end: int) -> tuple[int, int]:
    """(the value, where it ends); what is not a varint takes all that is left."""
    value, at = varints.read(data, at, end)
    return (0, end) if value is None else (value, at)


def npy(data: bytes) -> bytes:
    """The length of the first header: up to the first newline."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        return data
    wide = data[6] > 1
    start = 12 if wide else 10
    stop = data.find(b"\n", start)
    if stop < 0:
        return data
    length = stop + 1 - start
    return data[:8] + length.to_bytes(4 if wide else 2, "little") + data[start:]


def safetensors(data: bytes) -> bytes:
    """The length of the header: up to the last brace, unless it ends with one already."""
    size = int.from_bytes(data[:8], "little")
    if data[8 : 8 + size].rstrip(b" ").endswith(b"}"):
        return data
    stop = data.rfind(b"}")
    return (stop - 7).to_bytes(8, "little") + data[8:] if stop >= 8 else data


def zipped(data: bytes) -> bytes:
    """The checksums of an archive's members, in its directory and before each; and its sizes, where stored."""
    end = data.rfind(b"PK\x05\x06")
    if end < 0 or end + _EOCD.size > len(data):
        return data
    out = bytearray(data)
    at = data.find(b"PK\x01\x02")
    if not 0 <= at <= end:
        return data
    struct.pack_into("<II", out, end + 12, end - at, at)
    while at + _ENTRY.size <= end and out[at : at + 4] == b"PK\x01\x02":
        entry = _ENTRY.unpack_from(out, at)
        method, stored, name, extra, comment, local = entry[4], entry[8], entry[10], entry[11], entry[12], entry[16]
        if local + 30 <= at:
            names = struct.unpack_from("<2H", out, local + 26)
            start = local + 30 + sum(names)
            content = bytes(out[start : start + stored])
            if method == 8:
                content = _inflated(content)
            crc = struct.pack("<I", zlib.crc32(content))
            out[at + 16 : at + 20] = crc
            out[local + 14 : local + 18] = crc
        at += _ENTRY.size + name + extra + comment
    return bytes(out)


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(-15).decompress(data, 1 << 16)
    except zlib.error:
        return b""


def table(data: bytes, shard: bytes | None = None) -> bytes:
    """Every block of a sorted table, found by the handles in its footer and in its block of handles.

    With the bytes of a `shard`, the table is the index of a checkpoint, whose entries have checksums of their own.
    """
    if len(data) < 48:
        return data
    out = bytearray(data[:-8] + _TABLE_MAGIC)
    foot = len(out) - 48
    first, at = _handle(out, foot, foot + 40)
    second, at = _handle(out, at, foot + 40)
    out[at : foot + 40] = bytes(foot + 40 - at)
    handles = [first, second]
    if sum(second) <= foot:
        for at, end in _values(out, *second):
            handles.append(_handle(out, at, end)[0])
    for number, (start, size) in enumerate(handles):
        end = start + size + 1
        if end + 4 > foot:
            continue
        if shard is not None and number > 1:
            for place in _values(out, start, size):
                _seal_entry(out, *place, shard)
        out[end : end + 4] = _masked(out[start:end])
    return bytes(out)


def _values(out: bytearray, at: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the values of a block's entries are."""
    stop = at + size - 4
    while at < stop:
        _, at = _varint(out, at, stop)
        key, at = _varint(out, at, stop)
        value, at = _varint(out, at, stop)
        at += key
        if at + value > stop or not value:
            return
        yield at, at + value
        at += value


def _seal_entry(out: bytearray, at: int, end: int, shard: bytes) -> None:
    """The checksum of a tensor of numbers: field 6 of its entry, after the offset (4) and the size (5)."""
    numbers = {1: 0, 4: 0, 5: 0}
    while at < end:
        tag, at = _varint(out, at, end)
        if tag & 7 == 0:
            numbers[tag >> 3], at = _varint(out, at, end)
        elif tag & 7 == 2:
            size, at = _varint(out, at, end)
            at += size
        elif tag == 0x35 and at + 4 <= end and numbers[1] != _STRING:
            out[at : at + 4] = _masked(shard[numbers[4] : numbers[4] + min(numbers[5], len(shard))])
            return
        else:
            return


def _handle(data: bytearray, at: int, end: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(data, at, end)
    size, at = _varint(data, at, end)
    return (offset, size), at


def checkpoint(data: bytes) -> bytes:
    """A checkpoint in one piece: u16 length of the data, the data, the index."""
    size = min(int.from_bytes(data[:2], "little"), max(len(data) - 2, 0))
    shard = data[2 : 2 + size]
    return size.to_bytes(2, "little") + shard + table(data[2 + size :], shard)


def parquet(data: bytes) -> bytes:
    """The magic at both ends."""
    return b"PAR1" + data[4:-4] + b"PAR1" if len(data) > 12 else data
