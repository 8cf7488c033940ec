"""Snappy's block format, for the few kilobytes of a table's index: no package needed.

varint    size of the plain data
elements  tag & 3 == 0   literal: a length of 1 to 60 in the tag, or in the next 1 to 4 bytes
          tag & 3 == 1   copy of 4 to 11 bytes, 11 bits of distance
          tag & 3 == 2   copy of 1 to 64 bytes, 16 bits of distance
          tag & 3 == 3   copy of 1 to 64 bytes, 32 bits of distance
"""

from __future__ import annotations

from tensorbytes._wire import proto
from tensorbytes.errors import CorruptError, LimitError, Limits

# An element of 3 bytes stands for 64 at most.
_MOST_OUTPUT = 22


def unpack(block: memoryview, limits: Limits, at: int) -> memoryview:
    """The plain data of a block that stands at `at`."""
    try:
        size, start = proto.read_varint(block, 0, len(block))
    except CorruptError as error:
        raise error.shifted(at) from None
    if size > _MOST_OUTPUT * len(block):
        raise CorruptError(f"impossible snappy block: {len(block)} bytes that should hold {size}", at=at)
    if size > limits.max_bytes:
        raise LimitError(f"a snappy block of {size} bytes, over the limit of {limits.max_bytes} (byte {at})")
    out = bytearray()
    data = bytes(block)
    place = start
    while place < len(data):
        literal, length, distance, after = _element(data, place, at)
        if literal:
            out += data[after : after + length]
            after += length
        else:
            _copy(out, length, distance, at + place)
        if len(out) > size or after > len(data):
            raise CorruptError("a snappy element runs past the end of its block", at=at + place)
        place = after
    if len(out) != size:
        raise CorruptError(f"a snappy block of {len(out)} bytes that should hold {size}", at=at)
    return memoryview(bytes(out))


def _element(data: bytes, place: int, at: int) -> tuple[bool, int, int, int]:
    """(whether it is a literal, its length, the distance of a copy, where its header ends)"""
    tag = data[place]
    kind, upper = tag & 3, tag >> 2
    # Bytes of the header beside the tag.
    extra = (max(upper - 59, 0), 1, 2, 4)[kind]
    after = place + 1 + extra
    if after > len(data):
        raise CorruptError("a snappy element runs past the end of its block", at=at + place)
    number = int.from_bytes(data[place + 1 : after], "little")
    if kind == 0:
        return True, (number if extra else upper) + 1, 0, after
    if kind == 1:
        return False, (upper & 7) + 4, (tag >> 5 << 8) | number, after
    return False, upper + 1, number, after


def _copy(out: bytearray, length: int, distance: int, at: int) -> None:
    """Repeat what stands `distance` back; a short distance repeats what it just wrote."""
    if not 0 < distance <= len(out):
        raise CorruptError(f"a snappy copy from {distance} bytes back, of {len(out)}", at=at)
    piece = out[len(out) - distance :][:length]
    while len(piece) < length:
        piece += piece[: length - len(piece)]
    out += piece
