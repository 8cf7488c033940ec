"""Types that every layer speaks of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

# Anything with the buffer protocol: bytes, bytearray, memoryview, mmap, ndarray, array.array.
# collections.abc.Buffer names this only from Python 3.12 on.
Buffer: TypeAlias = Any
# Of this size, copies stay in the processor's cache.
_PIECE_BYTES = 1 << 16


def bytes_view(buffer: Buffer) -> memoryview:
    """A flat view of a buffer's bytes, without copying."""
    view = memoryview(buffer)
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    if "O" in view.format:
        raise TypeError("its memory has the addresses of Python objects, not their bytes")
    # cast() refuses shapes with a zero in them.
    return view.cast("B") if view.nbytes else memoryview(b"")


def pinned(view: memoryview) -> memoryview:
    """The same bytes, held by whatever is made of them.

    np.ndarray(..., view) keeps the owner of the memory but not the view. An owner that can resize or close
    its memory (bytearray, mmap) would then do so under the array.
    """
    if isinstance(view.obj, bytes | np.ndarray) or not view.nbytes:
        return view
    return np.frombuffer(view, np.uint8).data


def same_bytes(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers hold the same bytes; memoryviews compare theirs one by one, many times as slowly."""
    one, two = bytes_view(a), bytes_view(b)
    return len(one) == len(two) and all(
        bytes(one[start : start + _PIECE_BYTES]) == bytes(two[start : start + _PIECE_BYTES])
        for start in range(0, len(one), _PIECE_BYTES)
    )
