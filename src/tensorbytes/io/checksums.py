"""Checksums of much, in portions, so that Ctrl-C acts between two of them."""

from __future__ import annotations

import zlib

from tensorbytes import _wire
from tensorbytes._wire.portions import PORTION_BYTES, portions
from tensorbytes.io.streams import engines
from tensorbytes.typing import Buffer, bytes_view


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The checksum of records and checkpoints."""
    if memoryview(data).nbytes <= PORTION_BYTES:
        return _wire.crc32c(data, crc)
    view = bytes_view(data)
    for part in portions(len(view)):
        crc = _wire.crc32c(view[part], crc)
    return crc


def crc32(data: memoryview, crc: int = 0) -> int:
    """The checksum of gzip and of zip archives."""
    isal = engines.find_isal()
    checksum = zlib.crc32 if isal is None else isal.zlib.crc32
    for part in portions(len(data)):
        crc = checksum(data[part], crc)
    return crc


def can_join_crc32() -> bool:
    """Whether `join_crc32` works on this machine."""
    return engines.find_isal() is not None


def join_crc32(first: int, second: int, size: int) -> int:
    """The checksum of two parts one after the other; `size` is that of the second."""
    isal = engines.find_isal()
    assert isal is not None
    joined: int = isal.zlib.crc32_combine(first, second, size)
    return joined
