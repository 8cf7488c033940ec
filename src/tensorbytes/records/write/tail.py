"""Where to go on in a file that is appended to: behind its last whole record.

What was being written when a process or the power died is cut off: a record that ends too
early, a tail of zeros, a last record whose checksum differs. Damage anywhere else, and a cut
that would take whole records with it, is for repair to deal with.

A plain file is walked from header to header, with only the last record read in full. A
gzip or snappy file is inflated and checked: a new member (or block) may begin where one ends.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire
from tensorbytes.errors import CorruptError, UsageError
from tensorbytes.records.files.decoders import snappy_length

_READ_BYTES = 1 << 20
_FRAME_BYTES = 16  # length, its checksum, the checksum of the data
_ADVICE = "repair it first"
# An element of 3 bytes can stand for 64.
_SNAPPY_MOST_OUTPUT = 22


class End(NamedTuple):
    """Where the last whole record of a file ends, and how many there are."""

    at: int
    records: int


class Chain:
    """The records of a stream, from header to header, however the stream comes in pieces.

    `verify` checks the data too, which takes memory for a record that spans pieces.
    """

    def __init__(self, verify: bool) -> None:
        self.count = self.end = self.seen = 0  # whole records, where the last ends, bytes seen
        self.last = (0, 0)  # payload offset and length of the last whole record
        self.missing = 0  # bytes until the record at `end` is whole, where its header is known
        self._verify = verify
        self._carry: list[bytes] = []
        self._found = np.empty((4096, 2), np.int64)

    def feed(self, piece: bytes) -> str:
        """Take the next bytes of the stream; gives what is wrong with the record at `end`, "" if nothing is."""
        self.seen += len(piece)
        if len(piece) < self.missing:
            self.missing -= len(piece)
            if self._verify:
                self._carry.append(piece)
            return ""
        if self.missing and not self._verify:
            self._finish(self.seen - len(piece) + self.missing)
            piece = piece[self.missing :]
        data = b"".join([*self._carry, piece]) if self._carry else piece
        self.missing, self._carry = 0, []
        base, at, status = self.seen - len(data), 0, _wire.OK
        while at < len(data) and status == _wire.OK:
            found, at, status = _wire.scan(data, at, self._verify, self._found)
            if found:
                payload, length = self._found[found - 1].tolist()
                self.count += found
                self.last, self.end = (base + payload, length), base + at
        if status == _wire.CUT_PAYLOAD:
            self.missing = struct.unpack_from("<Q", data, at)[0] + _FRAME_BYTES - (len(data) - at)
        if status == _wire.CUT_HEADER or (self.missing and self._verify):
            self._carry = [data[at:]]
        return {_wire.BAD_LENGTH: "length", _wire.BAD_DATA: "data"}.get(status, "")

    def skip(self, size: int) -> None:
        """The same for bytes inside a payload that nobody needs to look at."""
        self.seen += size
        self.missing -= size
        if not self.missing:
            self._finish(self.seen)

    def _finish(self, end: int) -> None:
        self.last = (self.end + 12, end - self.end - _FRAME_BYTES)
        self.end = end
        self.count += 1

    @property
    def whole(self) -> bool:
        """Whether a record ends where the stream does so far."""
        return self.end == self.seen


def find(file: Any, path: str, compression: str) -> End:
    """The end of the last whole record of a file that is not empty."""
    if compression == "zlib":
        raise UsageError(
            f"{path}: a zlib file can't be appended to, since TensorFlow drops in silence what follows the first "
            "stream; write another file, or use gzip"
        )
    if compression == "none":
        return _plain(file, path)
    return _in_parts(file, path, _member if compression == "gzip" else _block)


# ---- plain files ------------------------------------------------------------


def _plain(file: Any, path: str) -> End:
    size = os.fstat(file.fileno()).st_size
    chain, fault = Chain(verify=False), ""
    while not fault and chain.seen < size:
        file.seek(chain.seen)
        piece = file.read(_READ_BYTES)
        if not piece:
            raise CorruptError("the file became shorter while it was read", at=chain.seen, path=path)
        fault = chain.feed(piece)
        if chain.missing:
            chain.skip(min(chain.missing, size - chain.seen))
    if fault and not _only_zeros(file, chain.end):
        what = f"the checksum of a record's {fault} differs"
        raise CorruptError(f"{what}; the file is damaged: {_ADVICE}", at=chain.end, path=path)
    if chain.count and not _last_is_sound(file, chain):
        return End(chain.last[0] - 12, chain.count - 1)
    return End(chain.end, chain.count)


def _only_zeros(file: Any, start: int) -> bool:
    """What a file system may leave after a power cut."""
    file.seek(start)
    piece = file.read(16)
    while piece:
        if piece.strip(b"\0"):
            return False
        piece = file.read(_READ_BYTES)
    return True


def _last_is_sound(file: Any, chain: Chain) -> bool:
    start, left = chain.last
    file.seek(start)
    crc = 0
    while left:
        piece = file.read(min(left, _READ_BYTES))
        if not piece:
            return False
        crc = _wire.crc32c(piece, crc)
        left -= len(piece)
    return bool(file.read(4) == struct.pack("<I", _wire.mask(crc)))


# ---- compressed files -------------------------------------------------------


# Feeds a part of the file that starts at `at` into the chain; gives where the part ends, None if it is cut.
Part = Callable[[Any, int, Chain], "int | None"]


def _in_parts(file: Any, path: str, part: Part) -> End:
    size = os.fstat(file.fileno()).st_size
    chain, good = Chain(verify=True), End(0, 0)
    at, cut = 0, False
    while at < size and not cut and not _only_zeros(file, at):
        try:
            end = part(file, at, chain)
        except (_Broken, zlib.error) as error:
            raise CorruptError(f"{error}; the file is damaged: {_ADVICE}", at=at, path=path) from None
        cut, at = end is None, at if end is None else end
        if not cut and chain.whole:
            good = End(at, chain.count)
    if not cut and not chain.whole:
        raise CorruptError(f"a record ends too early inside the compressed data: {_ADVICE}", at=at, path=path)
    if chain.count > good.records:
        raise CorruptError(
            f"the compressed data ends too early, and {chain.count - good.records} whole records in its last part "
            f"would be lost by cutting it off: {_ADVICE}",
            at=good.at,
            path=path,
        )
    return good


class _Broken(Exception):
    """A part that is not cut but wrong."""


def _member(file: Any, at: int, chain: Chain) -> int | None:
    inflate = zlib.decompressobj(31)
    file.seek(at)
    while piece := file.read(_READ_BYTES):
        at += len(piece)
        while piece and not inflate.eof:
            _feed(chain, inflate.decompress(piece, _READ_BYTES))
            piece = inflate.unconsumed_tail
        if inflate.eof:
            return at - len(inflate.unused_data)
    return None


def _feed(chain: Chain, plain: bytes) -> None:
    fault = chain.feed(plain)
    if fault:
        raise _Broken(f"the checksum of the {fault} of record {chain.count} differs")


def _block(file: Any, at: int, chain: Chain) -> int | None:
    file.seek(at)
    header = file.read(4)
    size = int.from_bytes(header, "big")
    if len(header) < 4 or size > os.fstat(file.fileno()).st_size - at - 4:
        return None
    _feed(chain, _unsnap(file.read(size)))
    return at + 4 + size


def _unsnap(block: bytes) -> bytes:
    from cramjam import snappy

    size, start = snappy_length(block)
    if not start or size > _SNAPPY_MOST_OUTPUT * len(block):
        raise _Broken(f"an impossible snappy block: {len(block)} bytes that should hold {size}")
    try:
        return bytes(snappy.decompress_raw(block))
    except Exception as error:  # of cramjam; anything it refuses is damage
        raise _Broken(f"damaged snappy block: {error}") from None
