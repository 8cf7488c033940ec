"""Where to go on in a file of records that is appended to: after its last whole record.

tfrecord/tail.py says what may be cut off. Here is what is special about compressed files: a new gzip member, or snappy
block, may begin only where one ends, so those are inflated and checked, with places noted where both a part and a
record end. A last part that is cut goes, unless there are whole records in it, or it can be told that not its end is
missing but its start is damaged. A file that shows no record at all may be anybody's.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from tensorbytes.errors import LIMITS, REPAIR, CorruptError, Hint, UsageError
from tensorbytes.formats.tfrecord.files import framing
from tensorbytes.io.streams import engines, snappy
from tensorbytes.io.streams.detection import decode_start
from tensorbytes.io.streams.engines import DamagedError
from tensorbytes.tfrecord import HEADER_BYTES, is_record_header, tail
from tensorbytes.tfrecord.tail import NOT_JUST_CUT, End

_READ_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_FLAGS_AT = 3
# Those that say what else is in the header: each mix of an extra field, a name and a comment.
_GZIP_FLAGS = range(0, 32, 4)
# A member that starts with a record shows its header within this many bytes.
_LOOK_BYTES = 1 << 12
# A block that starts with a record shows its header within this many bytes: at worst six stand for one.
_SNAPPY_LOOK_BYTES = snappy.LENGTH_BYTES + snappy.SIZE_BYTES + snappy.MOST_INPUT * HEADER_BYTES
# Places that are looked at together.
_SNAPPY_PLACES = 1 << 16


def find(file: Any, path: str, compression: str) -> End:
    """The end of the last whole record of a file that is not empty."""
    if compression == "zlib":
        raise UsageError(
            "a zlib file can't be appended to: TensorFlow silently drops what follows its first stream",
            path=path,
            hints=[Hint(purpose="write another file"), Hint(purpose="use gzip")],
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
        raise CorruptError(parts.broken, at=parts.at, path=parts.path, hints=[NOT_JUST_CUT])
    if fault is not None and not (parts.cut and fault.what.startswith("the file ends inside")):
        raise fault.replaced(at=parts.at, path=parts.path, hints=(NOT_JUST_CUT,))
    if seen > good.records:
        raise CorruptError(
            f"the compressed data ends too early, and {seen - good.records} whole records in its last part "
            "would be lost by cutting it off",
            at=good.at,
            path=parts.path,
            hints=[REPAIR],
        )
    if good.at == size:
        return good
    if not is_record_header(parts.head):
        raise CorruptError(
            "not a file of records, or its first part is damaged", at=0, path=parts.path, hints=[NOT_JUST_CUT]
        )
    if (other := parts.another(good.at)) is not None:
        raise CorruptError(
            f"a part of the compressed data is cut, and another follows it at byte {other}",
            at=good.at,
            path=parts.path,
            hints=[NOT_JUST_CUT],
        )
    return good


class _Parts:
    """The plain bytes of a compressed file, with the places where its parts end: see framing.Stream."""

    size: int | None = None

    def __init__(self, file: Any, path: str) -> None:
        self.file, self.path = file, path
        self.at = 0  # where the present part starts
        self.ends: list[tuple[int, int]] = []  # of each part: in the plain bytes, in the file
        self.head = b""  # the first plain bytes, where the header of a record should stand
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
            self.head += piece[: HEADER_BYTES - len(self.head)]
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
            except DamagedError as error:
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
        """Where a part starts, after the start of the one at `at`, that starts with a record."""
        raise NotImplementedError

    def _only_zeros(self) -> bool:
        """What a file system may leave after a power cut."""
        at = self.at
        while piece := bytes(self._bytes(at, _LOOK_BYTES)):
            if piece.strip(b"\0"):
                return False
            at += len(piece)
        return True


class _Members(_Parts):
    """gzip."""

    def _part(self) -> Generator[bytes, None, int | None]:
        inflate, at, most = engines.open_inflater("gzip"), self.at, _LOOK_BYTES
        # Little at first: what a member leaves over is copied, and a file may hold very many small ones.
        while piece := bytes(self._bytes(at, most)):
            at, most = at + len(piece), min(2 * most, _READ_BYTES)
            while piece and not inflate.eof:
                try:
                    plain = inflate.decompress(piece, _READ_BYTES)
                except engines.inflate_errors() as error:
                    raise DamagedError(str(error)) from None
                yield plain
                piece = inflate.unconsumed_tail
            if inflate.eof:
                return at - len(inflate.unused_data)
        self._check_header(at)
        return None

    def _check_header(self, end: int) -> None:
        """Raise if the file has no end of a member because zlib takes for its header what is none."""
        if self._is_member(self.at):
            return
        if any(self._is_member(self.at, flags) for flags in _GZIP_FLAGS):
            raise DamagedError("the flags of a gzip member are damaged")
        before = self.ends[-1][0] if self.ends else 0
        if self._plain == before and end - self.at > _LOOK_BYTES:
            raise DamagedError(f"{end - self.at} bytes that start as a gzip member does, and hold nothing")

    def another(self, at: int) -> int | None:
        at += 1
        while len(data := bytes(self._bytes(at, least=len(_GZIP_MAGIC)))) >= len(_GZIP_MAGIC):
            found = -1
            while (found := data.find(_GZIP_MAGIC, found + 1)) >= 0:
                if self._is_member(at + found):
                    return at + found
            at += len(data) - len(_GZIP_MAGIC) + 1
        return None

    def _is_member(self, at: int, flags: int | None = None) -> bool:
        """Whether there is the start of a member that starts with a record; with other flags than it has, if given."""
        self.file.seek(at)
        head = bytearray(self.file.read(_LOOK_BYTES))
        if flags is not None:
            head[_GZIP_FLAGS_AT : _GZIP_FLAGS_AT + 1] = bytes([flags])
        return is_record_header(decode_start(bytes(head), "gzip", HEADER_BYTES))


class _Blocks(_Parts):
    """TensorFlow's blocks of snappy."""

    def _part(self) -> Generator[bytes, None, int | None]:
        self.file.seek(self.at)
        header = self.file.read(snappy.LENGTH_BYTES)
        if len(header) < snappy.LENGTH_BYTES:
            return None
        length = int.from_bytes(header, "big")
        head = self.file.read(min(length, snappy.SIZE_BYTES))
        size, start = snappy.read_size(head)
        if not start and len(head) < min(length, snappy.SIZE_BYTES):
            return None
        if not start or not snappy.can_hold(length, size) or size > LIMITS.max_bytes:
            raise DamagedError(f"an impossible snappy block: {length} bytes that should hold {size}")
        begin = self.at + snappy.LENGTH_BYTES
        there = min(length, os.fstat(self.file.fileno()).st_size - begin)
        block = head + self.file.read(there - len(head))
        if there < length:
            yield _unsnap_cut(block[start:], size)
            return None
        yield _unsnap(block)
        return begin + length

    def another(self, at: int) -> int | None:
        """They have no mark: any bytes may be a length and a size, but hardly with the header of a record after them.

        The block at `at` itself must not be found again, by the last bytes of its size alone.
        """
        size = self._bytes(at + snappy.LENGTH_BYTES, snappy.SIZE_BYTES, least=snappy.SIZE_BYTES)
        at += max(snappy.read_size(bytes(size))[1], 1)
        while len(data := bytes(self._bytes(at, _SNAPPY_PLACES, least=_SNAPPY_LOOK_BYTES))) > snappy.LENGTH_BYTES:
            for inside in _likely_blocks(data):
                if _is_block(data[inside : inside + _SNAPPY_LOOK_BYTES]):
                    return at + inside
            # Those near the end of these bytes may not have shown enough.
            at += len(data) - _SNAPPY_LOOK_BYTES + 1 if len(data) >= _SNAPPY_LOOK_BYTES else len(data)
        return None


def _unsnap(block: bytes) -> bytes:
    try:
        return bytes(engines.decompress_block(block))
    except DamagedError as error:
        raise DamagedError(f"damaged snappy block: {error}") from None


def _unsnap_cut(elements: bytes, size: int) -> bytes:
    """What there is of a block whose length leads beyond the file, if nothing but its end can be wrong with it."""
    plain, sound = snappy.decode_part(elements, size)
    if not sound:
        raise DamagedError("damaged snappy block, which the file ends in")
    if len(plain) == size:
        raise DamagedError("a snappy block that is whole, but for its length")
    return plain


def _is_block(head: bytes) -> bool:
    """Whether a block that starts with these bytes starts with a record."""
    block = head[snappy.LENGTH_BYTES :]
    return is_record_header(snappy.decode_start(block[snappy.read_size(block)[1] :], HEADER_BYTES))


def _likely_blocks(data: bytes) -> list[int]:
    """The places in some bytes where a length stands with a size after it that it can have."""
    places = len(data) - snappy.LENGTH_BYTES
    padded = np.frombuffer(data + bytes(snappy.SIZE_BYTES), np.uint8).astype(np.int64)
    length, size, goes_on = np.zeros(places, np.int64), np.zeros(places, np.int64), np.ones(places, bool)
    for index in range(snappy.LENGTH_BYTES):
        length = length << 8 | padded[index:][:places]
    for index in range(snappy.SIZE_BYTES):
        byte = padded[snappy.LENGTH_BYTES + index :][:places]
        size |= np.where(goes_on, (byte & 0x7F) << 7 * index, 0)
        goes_on &= byte >= 0x80
    likely: list[int] = np.flatnonzero(snappy.can_hold(length, size) & ~goes_on & (size > 0)).tolist()
    return likely
