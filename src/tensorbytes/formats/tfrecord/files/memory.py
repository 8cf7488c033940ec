"""Arrays: in memory that is used again, and with offsets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorbytes.errors import LimitError
from tensorbytes.tensor import Array

# Smaller arrays are cheap enough by themselves.
_SMALL_BYTES = 1 << 15
# At most this much is kept of buffers of one size.
_SPARE_BYTES = 32 << 20


class Memory:
    """Arrays in memory that is used again: faulting fresh pages in takes longer than decoding into them.

    Memory comes back by itself when the last view of an array is gone.
    """

    def __init__(self, spare_bytes: int = _SPARE_BYTES) -> None:
        self._spare: dict[int, list[Array]] = {}
        self._spare_bytes = spare_bytes

    def array(self, shape: int | tuple[int, ...], dtype: Any = np.uint8) -> Array:
        """np.empty, where possible in memory that was used before."""
        dtype = np.dtype(dtype)
        size = (math.prod(shape) if isinstance(shape, tuple) else shape) * dtype.itemsize
        if size < _SMALL_BYTES:
            return np.empty(shape, dtype)
        room = self._room(1 << (size - 1).bit_length())
        lease = _Lease(len(room), np.uint8, room)
        lease.memory, lease.room = self, room
        made: Array = np.ndarray(shape, dtype, lease)
        if not made.flags.writeable:  # NumPy found no memory to ask for more, and makes do with less
            raise LimitError(f"no memory for {size} bytes")
        return made

    def _room(self, size: int) -> Array:
        try:
            return self._spare[size].pop()
        except (KeyError, IndexError):
            pass
        try:
            # Of the same class as leases: of plain arrays NumPy keeps the first in a chain of views, and not the lease.
            return np.empty(size, np.uint8).view(_Lease)
        except (MemoryError, ValueError):
            raise LimitError(f"no memory for {size} bytes") from None

    def give_back(self, room: Array) -> None:
        spare = self._spare.setdefault(len(room), [])
        if (len(spare) + 1) * len(room) <= self._spare_bytes:
            spare.append(room)


class _Lease(np.ndarray[Any, Any]):
    """Stands between a buffer and the arrays in it, and hands it back when they are gone."""

    memory: Memory | None = None
    room: Array

    def __del__(self) -> None:
        if self.memory is not None:
            self.memory.give_back(self.room)


# Memory that is not kept.
FRESH = Memory(0)


def offsets_of(lengths: Any) -> Array:
    """Where each of some items starts, and the last one ends, if they have these lengths."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out
