"""Which compression a file has, by its first bytes or by its name.

TFRecord files have no magic number, and TensorFlow has to be told. A plain file starts with a
record header, twelve bytes that confirm themselves by a checksum. Only then do the signs of
the compressions count, which a plain file could show too: a record of 376 bytes starts as a
zlib stream does. Snappy's blocks show no sign at all, except that of the plain file inside.
So whoever asks says how a plain file starts.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorbytes.errors import unknown
from tensorbytes.io.streams import snappy
from tensorbytes.io.streams.engines import DamagedError, inflate_start

NAMES = ("none", "gzip", "zlib", "snappy")
# Of files to be written: where nothing else says how, their names do.
SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zlib": "zlib", ".zz": "zlib", ".snappy": "snappy"}
# Enough of a snappy file to decode the first record's header.
HEAD_BYTES = 64
_MOST_PLAIN = 1 << 16
# What snappy takes at most to show the start of a plain file.
_PLAIN_HEAD_BYTES = 12


def check_name(name: str | None) -> str:
    """The name of a compression as it is spelled here; TensorFlow's spelling, and None, are understood."""
    if name is None or name == "":
        return "none"
    known = name.lower() if isinstance(name, str) else name
    if known not in (*NAMES, "auto"):
        raise unknown("compression", name, (*NAMES, "auto"))
    return known


def find_by_suffix(path: str) -> str | None:
    """The compression that the name of a file to be written asks for."""
    return next((name for suffix, name in SUFFIXES.items() if path.lower().endswith(suffix)), None)


def detect(head: bytes, is_plain: Callable[[bytes], bool]) -> str:
    """The compression of a file that starts with these bytes: 64 of them, or all it has; 12 do for most.

    is_plain: whether a file that starts with these bytes is one without compression. An empty file is "none", and so is
    a file that starts like nothing known.
    """
    if is_plain(head):
        return "none"
    if _starts_as_gzip(head):
        return "gzip"
    if _starts_as_zlib(head):
        return "zlib"
    block = bytes(head[snappy.LENGTH_BYTES :])
    _, start = snappy.read_size(block)
    if start and is_plain(snappy.decode_start(block[start:], _PLAIN_HEAD_BYTES)):
        return "snappy"
    return "none"


def decode_start(head: bytes, compression: str, most: int = _MOST_PLAIN) -> bytes:
    """The first plain bytes of a file in this compression that starts with these; as many as they make."""
    if compression == "none":
        return head
    if compression == "snappy":
        block = bytes(head[snappy.LENGTH_BYTES :][: int.from_bytes(head[: snappy.LENGTH_BYTES], "big")])
        plain, start = snappy.read_size(block)
        return snappy.decode_start(block[start:], min(plain, most)) if start else b""
    while head:
        try:
            return inflate_start(compression, head, most)
        except DamagedError:  # the bytes before the damage may still tell what it is
            head = head[: len(head) // 2]
    return b""


def _starts_as_gzip(head: bytes) -> bool:
    if head[:3] != b"\x1f\x8b\x08"[: max(len(head), 2)]:
        return False
    if len(head) < 10:
        return True
    usual = head[3] < 0x20 and head[8] in (0, 2, 4) and (head[9] <= 13 or head[9] == 255)
    return usual or _inflates(head, "gzip")


def _starts_as_zlib(head: bytes) -> bool:
    """Whether zlib agrees: two bytes say too little, the first record's header may be damaged."""
    return len(head) > 1 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 and _inflates(head, "zlib")


def _inflates(head: bytes, container: str) -> bool:
    try:
        inflate_start(container, head, _MOST_PLAIN)
    except DamagedError:
        return False
    return True
