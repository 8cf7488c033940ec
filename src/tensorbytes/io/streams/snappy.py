"""Raw snappy blocks, looked at byte by byte: where one is cut or damaged, and where one may start.

a varint, the plain size; then elements: literals, and copies of what came before
"""

from __future__ import annotations

from typing import Any

# In TensorFlow's files, before each block: its length.
LENGTH_BYTES = 4
# The most that the plain size takes.
SIZE_BYTES = 5
# An element of 3 bytes can stand for 64, and at worst 6 bytes stand for one.
MOST_OUTPUT = 22
MOST_INPUT = 6


def read_size(block: bytes) -> tuple[int, int]:
    """The size that a block decodes to, and where its elements start: 0 if it has no size."""
    value = 0
    for index, byte in enumerate(block[:SIZE_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value, index + 1) if value < 1 << 32 else (0, 0)
    return 0, 0


def can_hold(length: Any, plain: Any) -> Any:
    """Whether a block of this length can decode to this many bytes; of arrays, for each pair."""
    return (plain <= MOST_OUTPUT * length) & (length <= SIZE_BYTES + MOST_INPUT * plain)


def decode_start(elements: bytes, limit: int) -> bytes:
    """Up to `limit` of the first bytes of a block, as far as it can be decoded."""
    return decode_part(elements, limit)[0]


def decode_part(elements: bytes, limit: int) -> tuple[bytes, bool]:
    """What `decode_start` gives, and whether the elements are sound as far as they go."""
    out, at = bytearray(), 0
    while len(out) < limit and at < len(elements):
        tag = elements[at]
        # Bytes of the number after the tag: of a literal its length, if it is long; of a copy its distance.
        width = (max((tag >> 2) - 59, 0), 1, 2, 4)[tag & 3]
        at += 1 + width
        if at > len(elements):
            break
        number = int.from_bytes(elements[at - width : at], "little")
        if tag & 3 == 0:
            size = 1 + (number if width else tag >> 2)
            out += elements[at : at + size]
            at += size
            continue
        size = 4 + (tag >> 2 & 7) if tag & 3 == 1 else 1 + (tag >> 2)
        distance = number | tag >> 5 << 8 if tag & 3 == 1 else number
        if not 0 < distance <= len(out):
            return bytes(out), False
        start = len(out) - distance
        pattern = out[start : start + size]  # no more: a copy from far back must not cost its distance
        out += (pattern * -(-size // len(pattern)))[:size]
    return bytes(out[:limit]), True
