"""Where to go on in a file of records that is appended to: behind its last whole record.

tfrecord/tail.py says what may be cut off. Here is what is special about compressed files: a new gzip member, or snappy
block, may begin only where one ends, so those are inflated and checked, with places noted where both a part and a
record end. A last part that is cut goes, unless there are whole records in it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from tensorbytes.errors import LIMITS, CorruptError, UsageError
from tensorbytes.records.files import framing
from tensorbytes.records.files.decoders import snappy_length
from tensorbytes.records.files.detection import is_record_header
from tensorbytes.tfrecord import HEADER_BYTES, tail
from tensorbytes.tfrecord.tail import ADVICE, End

_READ_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b\x08"
# A member that starts with a record shows its header within so many bytes.
_LOOK_BYTES = 1 << 12
# An element of 3 bytes can stand for 64.
_SNAPPY_MOST_OUTPUT = 22
_SNAPPY_LENGTH_BYTES = 4


def find(file: Any, path: str, compression: str) -> End:
    """The end of the last whole record of a file that is not empty."""
    if compression == "zlib":
        raise UsageError(
            f"{path}: a zlib file can't be appended to, since TensorFlow drops in silence what follows the first "
            "stream; write another file, or use gzip"
        )
    if compression == "none":
        return tail.find(file, path)
    return _in_parts(_Members(file, path) if compression == "gzip" else _Blocks(file, path))


def _in_parts(parts: _Parts) -> End:
    good, seen, waiting, fault = End(0, 0), 0, 0, None
    try:
        for block in framing.blocks(parts, limits=LIMITS):
            ends = block.base + block.records[:, 0] + block.records[:, 1] + 4
            while waiting < len(parts.ends) and parts.ends[waiting][0] <= ends[-1]:
                plain, at = parts.ends[waiting]
                before = int(np.searchsorted(ends, plain))
                if ends[before] == plain:
                    good = End(at, seen + before + 1)
                waiting += 1
            seen += len(ends)
    except CorruptError as error:
        fault = error
    if not seen and parts.ends and parts.ends[-1][0] == 0:
        good = End(parts.ends[-1][1], 0)  # parts that hold nothing
    size = os.fstat(parts.file.fileno()).st_size
    if parts.broken is not None:
        raise CorruptError(f"{parts.broken}; {ADVICE}", at=parts.at, path=parts.path)
    if fault is not None and not (parts.cut and fault.what.startswith("the file ends inside")):
        raise CorruptError(f"{fault.what.removesuffix(framing.ADVICE)}; {ADVICE}", at=parts.at, path=parts.path)
    if seen > good.records:
        raise CorruptError(
            f"the compressed data ends too early, and {seen - good.records} whole records in its last part "
            "would be lost by cutting it off: repair it first",
            at=good.at,
            path=parts.path,
        )
    if not seen and not parts.ends and not parts.cut:
        what = "nothing but zeros, which don't tell whose they are: remove it, or repair it first"
        raise CorruptError(what, at=0, path=parts.path)
    if good.at < size and (other := parts.another(good.at + 1)) is not None:
        raise CorruptError(
            f"a part of the compressed data is cut, and another follows it at byte {other}; {ADVICE}",
            at=good.at,
            path=parts.path,
        )
    return good


class _Parts:
    """The plain bytes of a compressed file, with the places where its parts end: see framing.Stream."""

    size: int | None = None

    def __init__(self, file: Any, path: str) -> None:
        self.file, self.path = file, path
        self.at = 0  # where the present part starts
        self.ends: list[tuple[int, int]] = []  # of each part: in the plain bytes, in the file
        self.cut = False  # whether the file ends inside a part
        self.broken: str | None = None  # what is wrong with a part that is not just cut
        self._plain, self._pieces, self._left = 0, self._inflated(), memoryview(b"")
        self._block, self._start = b"", 0  # some bytes of the file, and where they stand

    def readinto(self, view: memoryview, /) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._plain += len(piece)
            self._left = memoryview(piece)
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _bytes(self, at: int, most: int = _READ_BYTES, least: int = 1) -> memoryview:
        """Some bytes from a place on, fewer than `least` only at the end of the file."""
        if not self._start <= at <= self._start + len(self._block) - least:
            self.file.seek(at)
            self._block, self._start = self.file.read(_READ_BYTES), at
        return memoryview(self._block)[at - self._start :][:most]

    def _inflated(self) -> Iterator[bytes]:
        size = os.fstat(self.file.fileno()).st_size
        while self.at < size and not self._only_zeros():
            try:
                end = yield from self._part()
            except (_Broken, zlib.error) as error:
                self.broken = str(error)
                return
            if end is None:
                self.cut = True
                return
            self.at = end
            self.ends.append((self._plain, end))

    def _part(self) -> Generator[bytes, None, int | None]:
        """The plain bytes of the part at `at`; gives where it ends, None if it is cut."""
        raise NotImplementedError

    def another(self, at: int) -> int | None:
        """Where a part starts, from `at` on, that holds records."""
        raise NotImplementedError

    def _only_zeros(self) -> bool:
        """What a file system may leave after a power cut."""
        at = self.at
        while piece := bytes(self._bytes(at, _LOOK_BYTES)):
            if piece.strip(b"\0"):
                return False
            at += len(piece)
        return True


class _Broken(Exception):
    """A part that is not cut but wrong."""


class _Members(_Parts):
    """gzip."""

    def _part(self) -> Generator[bytes, None, int | None]:
        inflate, at, most = zlib.decompressobj(31), self.at, _LOOK_BYTES
        # Little at first: what a member leaves over is copied, and a file may hold very many small ones.
        while piece := bytes(self._bytes(at, most)):
            at, most = at + len(piece), min(2 * most, _READ_BYTES)
            while piece and not inflate.eof:
                yield inflate.decompress(piece, _READ_BYTES)
                piece = inflate.unconsumed_tail
            if inflate.eof:
                return at - len(inflate.unused_data)
        return None

    def another(self, at: int) -> int | None:
        while len(data := bytes(self._bytes(at, least=len(_GZIP_MAGIC)))) >= len(_GZIP_MAGIC):
            found = -1
            while (found := data.find(_GZIP_MAGIC, found + 1)) >= 0:
                if self._is_member(at + found):
                    return at + found
            at += len(data) - len(_GZIP_MAGIC) + 1
        return None

    def _is_member(self, at: int) -> bool:
        """Whether there is the start of a member that starts with a record."""
        self.file.seek(at)
        try:
            return is_record_header(zlib.decompressobj(31).decompress(self.file.read(_LOOK_BYTES), HEADER_BYTES))
        except zlib.error:
            return False


class _Blocks(_Parts):
    """TensorFlow's blocks of snappy."""

    def _part(self) -> Generator[bytes, None, int | None]:
        self.file.seek(self.at)
        header = self.file.read(_SNAPPY_LENGTH_BYTES)
        size = int.from_bytes(header, "big")
        end = self.at + _SNAPPY_LENGTH_BYTES + size
        if len(header) < _SNAPPY_LENGTH_BYTES or end > os.fstat(self.file.fileno()).st_size:
            return None
        yield _unsnap(self.file.read(size))
        return end

    def another(self, at: int) -> int | None:
        """They have no mark. One that ends where the file does is a block."""
        size = os.fstat(self.file.fileno()).st_size
        while len(data := bytes(self._bytes(at, least=_SNAPPY_LENGTH_BYTES + 1))) > _SNAPPY_LENGTH_BYTES:
            for inside in range(len(data) - _SNAPPY_LENGTH_BYTES):
                length = int.from_bytes(data[inside : inside + _SNAPPY_LENGTH_BYTES], "big")
                here = at + inside
                if length and here + _SNAPPY_LENGTH_BYTES + length == size and self._is_block(here, length):
                    return here
            at += len(data) - _SNAPPY_LENGTH_BYTES
        return None

    def _is_block(self, at: int, length: int) -> bool:
        self.file.seek(at + _SNAPPY_LENGTH_BYTES)
        try:
            return bool(_unsnap(self.file.read(length)))
        except _Broken:
            return False


def _unsnap(block: bytes) -> bytes:
    from cramjam import snappy

    size, start = snappy_length(block)
    if not start or size > _SNAPPY_MOST_OUTPUT * len(block) or size > LIMITS.max_bytes:
        raise _Broken(f"an impossible snappy block: {len(block)} bytes that should hold {size}")
    try:
        return bytes(snappy.decompress_raw(block))
    except Exception as error:  # of cramjam; anything it refuses is damage
        raise _Broken(f"damaged snappy block: {error}") from None
