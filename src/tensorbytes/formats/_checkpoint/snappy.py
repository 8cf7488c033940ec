"""Snappy's blocks, of which the index of a table may be made: a varint, the size of the plain data, then its code."""

from __future__ import annotations

from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError
from tensorbytes.io.streams.engines import DamagedError, decompress_into
from tensorbytes.io.streams.snappy import MOST_OUTPUT


def unpack(block: memoryview, budget: Budget, at: int) -> memoryview:
    """The plain data of a block that stands at `at`."""
    try:
        size, _ = proto.read_varint(block, 0, len(block))
    except CorruptError as error:
        raise error.shifted(at) from None
    if size > MOST_OUTPUT * len(block):
        raise CorruptError(f"impossible snappy block: {len(block)} bytes that should hold {size}", at=at)
    budget.copy(size, "a snappy block", at)
    out = memoryview(bytearray(size))
    try:
        decompress_into("snappy", block, out)
    except DamagedError as error:
        raise error.at(at) from None
    return out.toreadonly()
