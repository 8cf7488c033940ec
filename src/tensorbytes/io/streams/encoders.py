"""Compressed streams from plain bytes, as TensorFlow reads them."""

from __future__ import annotations

import struct
from typing import Any, Protocol

from tensorbytes.errors import UsageError
from tensorbytes.io.checksums import crc32
from tensorbytes.io.streams import engines
from tensorbytes.io.streams.detection import NAMES, check_name
from tensorbytes.typing import Buffer, bytes_view

_SNAPPY_BLOCK = 1 << 18
# No name, no time, and "unknown" for the system, so that the same input gives the same bytes.
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


class Encoder(Protocol):
    """Compressed bytes from plain ones. What is written to the file is what the three give, in order."""

    def compress(self, buffer: Buffer, /) -> Buffer: ...

    def flush(self) -> Buffer:
        """What makes everything so far readable, even if nothing follows."""
        ...

    def finish(self) -> Buffer:
        """The end of the stream."""
        ...


def open_encoder(name: str | None, level: int | None = None) -> Encoder:
    """An encoder for a compression. `level` is zlib's, 0 to 9, for gzip and zlib; isal deflates without one."""
    name = check_name(name)
    if level is not None and (name not in ("gzip", "zlib") or level not in range(10)):
        raise UsageError(expected="a level from 0 to 9 for gzip or zlib", got=f"{level!r} for {name}")
    if name == "auto":
        raise UsageError("nothing to detect when writing", expected=f"one of {', '.join(NAMES)}")
    if name == "none":
        return _Plain()
    if name == "snappy":
        return _Snappy()
    return _Gzip(level) if name == "gzip" else _Zlib(level)


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

    def compress(self, buffer: Buffer) -> Buffer:
        view = bytes_view(buffer)
        if not len(view):
            return b""
        start = self._begin() if self._object is None else b""
        self._crc = crc32(view, self._crc)
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
        self._object, self._written = engines.open_deflater("deflate", self._level), True
        self._crc = self._size = 0
        return _GZIP_HEADER


class _Zlib:
    def __init__(self, level: int | None) -> None:
        self._object = engines.open_deflater("zlib", level)
        self._pending = False

    def compress(self, buffer: Buffer) -> Buffer:
        self._pending = True
        return self._object.compress(bytes_view(buffer))

    def flush(self) -> Buffer:
        if not self._pending:
            return b""
        self._pending = False
        return self._object.flush(engines.SYNC_FLUSH)

    def finish(self) -> Buffer:
        return self._object.flush()


class _Snappy:
    """Blocks of 256 KiB plain bytes, the most that TensorFlow reads."""

    def __init__(self) -> None:
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
        packed = bytes(engines.compress("snappy", bytes_view(plain), None))
        return struct.pack(">I", len(packed)) + packed
