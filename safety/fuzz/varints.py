"""Protobuf's integers of varying length, for what mutates messages."""

from __future__ import annotations


def written(value: int, size: int = 0) -> bytes:
    """Of 64 bits, in at least `size` bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < size:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read(data: bytes | bytearray, at: int, end: int) -> tuple[int | None, int]:
    """(the value, or None if it is too long or cut; where it ends)"""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return None, at
