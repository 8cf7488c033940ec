"""Checksums of much, in portions, so that Ctrl-C acts between two of them."""

from __future__ import annotations

from tensorbytes import _wire
from tensorbytes._wire.portions import PORTION_BYTES, portions
from tensorbytes.typing import Buffer, bytes_view


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The checksum of records and checkpoints."""
    if memoryview(data).nbytes <= PORTION_BYTES:
        return _wire.crc32c(data, crc)
    view = bytes_view(data)
    for part in portions(len(view)):
        crc = _wire.crc32c(view[part], crc)
    return crc
