"""What the kernel, its twins and those who call them have in common: numbers with a meaning, and functions too short
to be compiled."""

from __future__ import annotations

# What a scan finds of a record.
OK, CUT_HEADER, CUT_PAYLOAD, BAD_LENGTH, BAD_DATA = range(5)
# What a scan verifies beyond lengths: nothing, everything, or payloads that are not large.
LENGTHS, ALL, SMALL = range(3)
LARGE_PAYLOAD = 1 << 20
# The usual forms of values, of which `collect_row` needs nobody's help to keep a copy.
FORM_OTHER, FORM_BYTES, FORM_TEXT, FORM_INT64, FORM_ARRAY = range(5)
# Decimals, without their point, are under it: 18 digits; and the most digits after the point.
MOST_DECIMAL = 10**18
MOST_SCALE = 6
# The widest numbers that bits_pack takes.
MOST_BITS = 56
# The room that coding needs beyond the size of what it is given: for all of it, and for each part in planes.
HUFFMAN_SLACK = 16
PLANES_SLACK = 48

_ONE_BYTE = [bytes([value]) for value in range(128)]


def mask(crc: int) -> int:
    """TFRecord's masking, so that checksums of checksums stay sound."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
