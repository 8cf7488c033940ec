"""From header to header: where the records of a file, or of memory, start and how long they are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorbytes._wire import CUT_HEADER, CUT_PAYLOAD, OK, scan
from tensorbytes.io import storage
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES

_READ_BYTES = 1 << 20
# After a record that was passed over without reading it, the next may be as large.
_HOP_BYTES = 1 << 12
_ROOM = 8192

# Gives so many bytes from a place on.
Read = Callable[[int, int], "bytes | memoryview"]


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
            base, inside, status = self.at, 0, OK
            data = self._read(base, min(size, self._end - base))
            size = self._piece
            while status == OK and inside < len(data):
                found, inside, status = scan(data, inside, self._verify, room)
                self.at = base + inside
                self.count += found
                if found:
                    places = room[:found].copy()
                    places[:, 0] += base
                    yield places
            if status == OK or (self.at > base and status in (CUT_HEADER, CUT_PAYLOAD)):
                continue  # the piece ends inside a record, perhaps the file does not
            length = struct.unpack_from("<Q", data)[0] if status == CUT_PAYLOAD else self._end
            if length > self._end - self.at - FRAME_BYTES:
                self.status = status
                return
            # A record that is not in the piece is in the file.
            self.at, self.count, size = base + FRAME_BYTES + length, self.count + 1, _HOP_BYTES
            yield np.array([[base + HEADER_BYTES, length]])


def reader(file: Any) -> Read:
    """The bytes of an open file. One that became shorter is an error."""

    def read(at: int, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        storage.read_at(file, data, at)
        return data

    return read
