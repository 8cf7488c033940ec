"""From header to header: where the records of a file, or of memory, start and how long they are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorbytes import storage
from tensorbytes._wire import CUT_PAYLOAD, OK, scan
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES
from tensorbytes.typing import Buffer

_READ_BYTES = 1 << 20
# After a record that was passed over without reading it, the next may be as large.
_HOP_BYTES = 1 << 12
_ROOM = 1024

# Gives so many bytes from a place on.
Read = Callable[[int, int], Buffer]


class Walk:
    """Iterates over int64 [n, 2]: where payloads start and how long they are.

    It ends at `end`, or in front of the first record that is not sound: `at` is where, `status` the kernel's word for
    it (OK at the end). Payloads are looked at as `verify` says, and those that don't fit into a piece not at all.
    """

    def __init__(self, read: Read, start: int, end: int, *, verify: int = 0, piece: int = _READ_BYTES) -> None:
        self.at, self.count, self.status = start, 0, OK
        self._read, self._end, self._verify, self._piece = read, end, verify, piece

    @classmethod
    def through(cls, data: memoryview, start: int = 0, *, verify: int = 0) -> Walk:
        """Over memory."""
        return cls(lambda at, size: data[at : at + size], start, len(data), verify=verify, piece=len(data))

    def __iter__(self) -> Iterator[Array]:
        size, room = self._piece, np.empty((min(_ROOM, self._piece // FRAME_BYTES + 1), 2), np.int64)
        while self.at < self._end:
            data = self._read(self.at, min(size, self._end - self.at))
            found, after, self.status = scan(data, 0, self._verify, room)
            if found:
                places = room[:found].copy()
                places[:, 0] += self.at
            elif self._passes(data):
                places = np.array([[self.at + HEADER_BYTES, self._length(data)]])
                after = FRAME_BYTES + self._length(data)
            else:
                return
            size = self._piece if found else _HOP_BYTES
            self.at += after
            self.count += len(places)
            self.status = OK
            yield places

    def _passes(self, data: Buffer) -> bool:
        """Whether there is a record here that is not in the piece, but in the file."""
        return self.status == CUT_PAYLOAD and self._length(data) <= self._end - self.at - FRAME_BYTES

    def _length(self, data: Buffer) -> int:
        length: int = struct.unpack_from("<Q", data)[0]
        return length


def reader(file: Any) -> Read:
    """The bytes of an open file. One that became shorter is an error."""

    def read(at: int, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        storage.read_at(file, data, at)
        return data

    return read
