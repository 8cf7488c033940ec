"""TFRecord files under compression: gzip, zlib, snappy, exactly as TensorFlow reads them.

The whole stream of records is compressed; the framing lies inside. TensorFlow 2.21, as tried:

gzip      Members one after another are read on; anything else after a member, zero bytes
          included, is an error. A file cut inside a member reads as a clean end if the cut
          leaves whole records. Here that is an error, and zero bytes at the end are padding.
zlib      Whatever follows the stream is dropped in silence. Here it is an error.
snappy    Blocks of a length (u32, big-endian) and a raw snappy block. The writer fills blocks
          of up to 256 KiB, never splits what is written at once, and makes one block of a
          larger payload, of any size. The reader takes blocks of at most 262,144 plain bytes
          and raises ResourceExhaustedError for larger ones: TensorFlow can't read what it
          wrote. Here larger blocks are read, and none are written. A file cut inside a length
          reads as a clean end; here that is an error. TFRecordOptions refuses the name
          SNAPPY; TFRecordDataset(compression_type="SNAPPY") and the RecordWriter beneath
          TFRecordWriter take it.

An empty file is an empty stream in every compression, and for TensorFlow as well.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Protocol

from tensorbytes.errors import LIMITS, Limits, UsageError
from tensorbytes.records.files.decoders import Feed, decoder, isal_zlib
from tensorbytes.records.files.detection import HEAD_BYTES, NAMES, checked_name, detect, is_record_header
from tensorbytes.records.files.inflate import SeekableInflate
from tensorbytes.records.files.sources import DecodedSource, PlainSource, Prefetched, Source, open_plain
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.typing import Buffer, bytes_view

__all__ = [
    "NAMES",
    "Compressor",
    "Prefetched",
    "SeekableInflate",
    "Source",
    "compressor",
    "detect",
    "open_source",
]

_SNAPPY_BLOCK = 1 << 18
_RAW_DEFLATE = -15
_ZLIB_WBITS = 15
# No name, no time, and "unknown" for the system, so that the same input gives the same bytes.
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


# ---- reading -----------------------------------------------------------------


def open_source(
    target: Any,
    compression: str | None = "auto",
    start: int = 0,
    end: int | None = None,
    *,
    prefetch: bool = True,
    limits: Limits = LIMITS,
) -> Source:
    """The plain bytes of a path, a URL or a file object.

    start, end: read only these bytes of an uncompressed file. prefetch: compressed files are
    inflated ahead, in a thread. A file object is read from where it stands, and left open.
    """
    name = checked_name(compression)
    whole = start == 0 and end is None
    if not whole and not 0 <= start <= (start if end is None else end):
        raise UsageError(expected="a range of bytes", got=f"{start} to {end}")
    raw = open_plain(target)
    try:
        if not whole and not raw.seekable:
            raise UsageError("a range of bytes needs a file that can be read at any place", path=raw.path)
        if name == "auto":
            name = _detected(raw)
        if not whole and name != "none":
            raise UsageError(
                f"a range of bytes can be read of uncompressed files only, and this one is {name}", path=raw.path
            )
        if not whole:
            raw.limit(start, end)
        if name == "none":
            return raw
        feed = Feed(raw)
        source = DecodedSource(raw, name, feed, decoder(name, feed, limits))
        return Prefetched(source) if prefetch else source
    except BaseException:
        raw.close()
        raise


def _detected(raw: PlainSource) -> str:
    head = raw.peek(HEADER_BYTES)
    name = detect(head)
    if name != "none" or is_record_header(head):
        return name
    return detect(raw.peek(HEAD_BYTES))


# ---- writing -----------------------------------------------------------------


class Compressor(Protocol):
    """Compressed bytes from plain ones. What is written to the file is what the three give, in order."""

    def compress(self, buffer: Buffer, /) -> Buffer: ...

    def flush(self) -> Buffer:
        """What makes everything so far readable, even if nothing follows."""
        ...

    def finish(self) -> Buffer:
        """The end of the stream."""
        ...


def compressor(name: str | None, level: int | None = None) -> Compressor:
    """A compressor. `level` is zlib's, 0 to 9, for gzip and zlib.

    Without a level isal compresses, where it is installed: some ten times as fast as zlib's
    level 1, and no larger. So the bytes are the same on every run, but not on every machine.
    """
    name = checked_name(name)
    if level is not None and (name not in ("gzip", "zlib") or level not in range(10)):
        raise UsageError(expected="a level from 0 to 9 for gzip or zlib", got=f"{level!r} for {name}")
    if name == "auto":
        raise UsageError("nothing to detect when writing", expected=f"one of {', '.join(NAMES)}")
    if name == "none":
        return _Plain()
    if name == "snappy":
        return _Snappy()
    return _Gzip(level) if name == "gzip" else _Zlib(level)


def _deflate(level: int | None, wbits: int) -> Any:
    if level is None and isal_zlib is not None:
        return isal_zlib.compressobj(wbits=wbits)
    return zlib.compressobj(1 if level is None else level, zlib.DEFLATED, wbits)


class _Plain:
    def compress(self, buffer: Buffer) -> Buffer:
        return buffer

    def flush(self) -> Buffer:
        return b""

    def finish(self) -> Buffer:
        return b""


class _Gzip:
    """A flush ends the member: only then does a reader know that it lacks nothing."""

    def __init__(self, level: int | None) -> None:
        self._level = level
        self._object: Any = None  # none: between members
        self._written = False
        self._crc = self._size = 0
        self._checksum = zlib.crc32 if isal_zlib is None else isal_zlib.crc32

    def compress(self, buffer: Buffer) -> Buffer:
        view = bytes_view(buffer)
        if not len(view):
            return b""
        start = self._begin() if self._object is None else b""
        self._crc = self._checksum(view, self._crc)
        self._size += len(view)
        return start + self._object.compress(view)

    def flush(self) -> Buffer:
        if self._object is None:
            return b""
        end = self._object.flush() + struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)
        self._object = None
        return end

    def finish(self) -> Buffer:
        """The last member; one that holds nothing if there was nothing to write."""
        start = b"" if self._written else self._begin()
        return start + self.flush()

    def _begin(self) -> bytes:
        self._object, self._written = _deflate(self._level, _RAW_DEFLATE), True
        self._crc = self._size = 0
        return _GZIP_HEADER


class _Zlib:
    def __init__(self, level: int | None) -> None:
        self._object = _deflate(level, _ZLIB_WBITS)
        self._pending = False

    def compress(self, buffer: Buffer) -> Buffer:
        self._pending = True
        return self._object.compress(bytes_view(buffer))

    def flush(self) -> Buffer:
        if not self._pending:
            return b""
        self._pending = False
        return self._object.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> Buffer:
        return self._object.flush(zlib.Z_FINISH)


class _Snappy:
    """Blocks of 256 KiB plain bytes, the most that TensorFlow reads."""

    def __init__(self) -> None:
        from cramjam import snappy

        self._compress = snappy.compress_raw
        self._pending = bytearray()

    def compress(self, buffer: Buffer) -> Buffer:
        view = bytes_view(buffer)
        parts: list[Buffer] = []
        if self._pending:
            room = _SNAPPY_BLOCK - len(self._pending)
            self._pending += view[:room]
            view = view[room:]
            if len(self._pending) < _SNAPPY_BLOCK:
                return b""
            parts.append(self.flush())
        while len(view) >= _SNAPPY_BLOCK:
            parts.append(self._block(view[:_SNAPPY_BLOCK]))
            view = view[_SNAPPY_BLOCK:]
        self._pending += view
        return b"".join(parts)

    def flush(self) -> Buffer:
        if not self._pending:
            return b""
        block = self._block(self._pending)
        self._pending = bytearray()
        return block

    def finish(self) -> Buffer:
        return self.flush()

    def _block(self, plain: Buffer) -> bytes:
        packed = bytes(self._compress(plain))
        return struct.pack(">I", len(packed)) + packed
