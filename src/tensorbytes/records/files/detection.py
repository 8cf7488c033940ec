"""Which compression a file has, by its first bytes.

TFRecord files have no magic number, and TensorFlow has to be told. A plain file starts with a
record header, twelve bytes that confirm themselves by a checksum. Only then do the signs of
the compressions count, which a plain file could show too: a record of 376 bytes starts as a
zlib stream does.
"""

from __future__ import annotations

import zlib

from tensorbytes._wire import frame_header
from tensorbytes.errors import unknown
from tensorbytes.tfrecord import HEADER_BYTES

NAMES = ("none", "gzip", "zlib", "snappy")
# TFRecord files don't say how they are compressed; where nothing else does, their names do.
SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zlib": "zlib", ".zz": "zlib", ".snappy": "snappy"}
# Enough of a snappy file to decode the first record's header.
HEAD_BYTES = 64
_MOST_PLAIN = 1 << 16


def checked_name(name: str | None) -> str:
    """A compression as it is spelled here; TensorFlow's spelling, and none at all, are understood."""
    if name is None or name == "":
        return "none"
    known = name.lower() if isinstance(name, str) else name
    if known not in (*NAMES, "auto"):
        raise unknown("compression", name, (*NAMES, "auto"))
    return known


def by_suffix(path: str) -> str | None:
    """The compression that the name of a file to be written asks for."""
    return next((name for suffix, name in SUFFIXES.items() if path.lower().endswith(suffix)), None)


def detect(head: bytes) -> str:
    """The compression of a file that starts with these bytes: 64 of them, or all it has; 12 do for most.

    An empty file is "none", and so is a file that starts like nothing known.
    """
    if is_record_header(head):
        return "none"
    if _starts_as_gzip(head):
        return "gzip"
    if _starts_as_zlib(head):
        return "zlib"
    if _starts_as_snappy(head):
        return "snappy"
    return "none"


def plain_start(head: bytes, compression: str) -> bytes:
    """The first plain bytes of a file in this compression that starts with these; as many as can be had of them."""
    if compression == "none":
        return head
    if compression == "snappy":
        from tensorbytes.records.files.decoders import snappy_length, snappy_start

        block = bytes(head[4 : 4 + int.from_bytes(head[:4], "big")])
        plain, start = snappy_length(block)
        return snappy_start(block[start:], min(plain, _MOST_PLAIN)) if start else b""
    try:
        return zlib.decompressobj(31 if compression == "gzip" else 15).decompress(head, _MOST_PLAIN)
    except zlib.error:
        return b""


def is_record_header(head: bytes) -> bool:
    """Whether the first 12 bytes are a length and the checksum of it."""
    start = bytes(head[:HEADER_BYTES])
    return len(start) == HEADER_BYTES and start == frame_header(int.from_bytes(start[:8], "little"))


def _starts_as_gzip(head: bytes) -> bool:
    if head[:3] != b"\x1f\x8b\x08"[: max(len(head), 2)]:
        return False
    if len(head) < 10:
        return True
    usual = head[3] < 0x20 and head[8] in (0, 2, 4) and (head[9] <= 13 or head[9] == 255)
    return usual or _inflates(head, 31)


def _starts_as_zlib(head: bytes) -> bool:
    """Whether zlib agrees: two bytes say too little, the first record's header may be damaged."""
    return len(head) > 1 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 and _inflates(head, 15)


def _inflates(head: bytes, wbits: int) -> bool:
    try:
        zlib.decompressobj(wbits).decompress(head, 1 << 16)
    except zlib.error:
        return False
    return True


def _starts_as_snappy(head: bytes) -> bool:
    from tensorbytes.records.files.decoders import snappy_length, snappy_start  # and with it all codecs

    block = bytes(head[4:])
    _, start = snappy_length(block)
    return bool(start) and is_record_header(snappy_start(block[start:], HEADER_BYTES))
