"""Types that every layer speaks of."""

from __future__ import annotations

from typing import Any, TypeAlias

# Anything with the buffer protocol: bytes, bytearray, memoryview, mmap, ndarray, array.array.
# collections.abc.Buffer names this only from Python 3.12 on.
Buffer: TypeAlias = Any


def bytes_view(buffer: Buffer) -> memoryview:
    """A flat view of a buffer's bytes, without copying."""
    view = memoryview(buffer)
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    # cast() refuses shapes with a zero in them.
    return view.cast("B") if view.nbytes else memoryview(b"")
