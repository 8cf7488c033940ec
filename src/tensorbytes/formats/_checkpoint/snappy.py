"""Snappy's blocks, of which the index of a table may be made: a varint, the size of the plain data, then its code."""

from __future__ import annotations

from tensorbytes import codecs
from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.codecs import Damaged
from tensorbytes.errors import CorruptError

# An element of 3 bytes stands for 64 at most.
_MOST_OUTPUT = 22


def unpack(block: memoryview, budget: Budget, at: int) -> memoryview:
    """The plain data of a block that stands at `at`."""
    try:
        size, _ = proto.read_varint(block, 0, len(block))
    except CorruptError as error:
        raise error.shifted(at) from None
    if size > _MOST_OUTPUT * len(block):
        raise CorruptError(f"impossible snappy block: {len(block)} bytes that should hold {size}", at=at)
    budget.copy(size, "a snappy block", at)
    out = memoryview(bytearray(size))
    try:
        codecs.get("snappy").decompress(block, out)
    except Damaged as error:
        raise error.at(at) from None
    return out.toreadonly()
