"""Finding records again after damage, in NumPy: the twin of salvage.c.

A sound header is 12 bytes of which the last four are the masked checksum of the first eight.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tensorbytes._wire import reference
from tensorbytes._wire.common import mask
from tensorbytes.typing import Buffer, bytes_view

_HEADER, _CHECKSUM = 12, 4
# Positions looked at together: enough to hide NumPy's set-up cost, few enough for the cache.
_BLOCK = 1 << 15


@cache
def _tables() -> list[np.ndarray[Any, Any]]:
    """What each of eight bytes adds to the checksum of all eight; the first also holds that of zeros."""
    tables = []
    for place in range(8):
        words = np.zeros((256, 8), np.uint8)
        words[:, place] = np.arange(256)
        tables.append(np.array([reference.crc32c(word.tobytes()) for word in words], np.uint32))
    zeros = tables[0][0]
    return [tables[0], *(table ^ zeros for table in tables[1:])]


def resync(buffer: Buffer, start: int, end: int) -> int:
    """The first sound header in [start, end), at most at end - 12; else where to go on with more bytes."""
    data = np.frombuffer(_checked(buffer, start, end), np.uint8)
    stop = max(start, end - _HEADER + 1)
    for at in range(start, stop, _BLOCK):
        count = min(_BLOCK, stop - at)
        sound = np.flatnonzero(_sound(data[at : at + count + _HEADER - 1], count))
        if len(sound):
            return at + int(sound[0])
    return stop


def _sound(data: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Which of the first `count` positions hold a sound header."""
    crc = np.zeros(count, np.uint32)
    for place, table in enumerate(_tables()):
        crc ^= table[data[place : place + count]]
    stored = np.zeros(count, np.uint32)
    for place in range(4):
        stored |= data[8 + place : 8 + place + count].astype(np.uint32) << np.uint32(8 * place)
    result: np.ndarray[Any, Any] = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8) == stored
    return result


def closing(buffer: Buffer, start: int, end: int, crc: int) -> tuple[int, int]:
    """Where a payload ends whose length is lost, and its checksum up to there.

    That is the first x from start on such that the masked checksum of the payload up to x stands
    at x, and a sound header at x + 4. `crc` is the checksum of the payload up to start. If it ends
    nowhere: the position beyond end - 16 where to go on once more bytes follow.
    """
    data = _checked(buffer, start, end)
    if end - start < _CHECKSUM + _HEADER:
        return start, crc
    at = done = start
    while True:
        at = resync(data, at + _CHECKSUM, end) - _CHECKSUM
        crc = reference.crc32c(data[done:at], crc)
        done = at
        stored = int.from_bytes(data[at : at + _CHECKSUM], "little")
        if end - at < _CHECKSUM + _HEADER or stored == mask(crc):
            return at, crc
        at += 1


def _checked(buffer: Buffer, start: int, end: int) -> memoryview:
    data = bytes_view(buffer)
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"position {start} or {end} is outside 0..{len(data)}")
    return data
