"""A file of records that another process appends to, read as it grows; and places to go on from.

Records are given as soon as they are whole. What lies after the last whole one is waited for: only what can't become
a record any more is damage. A file that becomes shorter, or that another takes the place of, is an error: what was
read of it, and what will be, don't belong together.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tensorbytes import _wire
from tensorbytes.errors import CorruptError, Hint, TornTailWarning, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import detect, open_plain
from tensorbytes.formats.tfrecord.files.framing import BLOCK_BYTES, RecordBlock, fault
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.formats.tfrecord.files.splits import next_record
from tensorbytes.io import storage
from tensorbytes.io.streams.detection import HEAD_BYTES
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES, is_record_header
from tensorbytes.tfrecord.walk import Walk, reader
from tensorbytes.typing import bytes_view

# How much of the end of what was read is compared when more has come.
_KEPT_BYTES = 64
# How far back of a place records are looked for at first.
_LOOK_BYTES = 1 << 20


@dataclass(frozen=True)
class Follow:
    """How a file that grows is followed. `open_records(path, follow=True)` waits for ever.

    Args:
        poll: the seconds between two looks at the file.
        stop: called at each look; reading ends when it returns True and all whole records were given.
        timeout: reading ends when no record came for this many seconds.
    """

    poll: float = 0.2
    stop: Callable[[], bool] | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not (_is_number(self.poll) and 0 < self.poll <= threading.TIMEOUT_MAX):
            raise UsageError(f"poll={self.poll!r}", expected="seconds, more than 0")
        if self.stop is not None and not callable(self.stop):
            raise UsageError(f"stop={self.stop!r}", expected="a function")
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout >= 0):
            raise UsageError(f"timeout={self.timeout!r}", expected="seconds, or None")

    @classmethod
    def of(cls, follow: bool | Follow) -> Follow | None:
        if isinstance(follow, Follow):
            return follow
        if not isinstance(follow, bool):
            raise UsageError(f"follow={follow!r}", expected="True, False or records.Follow(...)")
        return cls() if follow else None


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)


def follow_blocks(
    path: str, start: int, follow: Follow, *, memory: Memory | None = None, verify: bool = True
) -> Iterator[RecordBlock]:
    """The records of a file from a place on, as long as it is followed."""
    with open(path, "rb", buffering=0) as file:
        yield from _Followed(file, path, start, follow, memory or Memory(), verify).blocks()


class _Followed:
    """One pass over a file that grows."""

    def __init__(self, file: IO[bytes], path: str, start: int, follow: Follow, memory: Memory, verify: bool) -> None:
        self.path = path
        self.size: int | None = None
        self._file, self._follow, self._memory, self._verify = file, follow, memory, verify
        self._at, self._first = start, 0  # where the next record starts, and its number
        self._kept = b""  # the bytes before it
        self._suspect = -1  # where something was found that can't be a record, unless it is not written yet

    def readinto(self, view: memoryview, /) -> int:
        """Never called: whoever reports a fault asks for the path and the size alone."""
        raise NotImplementedError

    def blocks(self) -> Iterator[RecordBlock]:
        since = time.monotonic()
        while True:
            ended = self._is_over(since)  # asked first: what came before the end was said is still read
            block = self._next(last=ended)
            if block is not None:
                yield block
                del block
                since = time.monotonic()
            elif ended:
                self._warn_of_tail()
                return
            else:
                time.sleep(self._follow.poll)

    def _is_over(self, since: float) -> bool:
        how = self._follow
        if how.stop is not None and how.stop():
            return True
        return how.timeout is not None and time.monotonic() - since >= how.timeout

    def _next(self, *, last: bool) -> RecordBlock | None:
        """The whole records that come next, some MiB of them; None if there is none yet. last: none is waited for."""
        size = os.fstat(self._file.fileno()).st_size
        if size < self._at:
            raise self._changed(f"it became shorter: {size} bytes, of which {self._at} were read")
        if size == self._at:
            self._check_place()
            return None
        wanted = BLOCK_BYTES
        while True:
            data = self._read(min(size - self._at, wanted))
            found = np.empty((len(data) // FRAME_BYTES + 1, 2), np.int64)
            count, end, status = _wire.scan(data, 0, self._verify, found)
            if count:
                return self._block(data[:end], found[:count].copy())
            if status in (_wire.BAD_LENGTH, _wire.BAD_DATA):
                self._check_damage(status, data, last)
                return None
            length = FRAME_BYTES + int.from_bytes(data[:8], "little")
            if len(data) < HEADER_BYTES or length > size - self._at:  # it is not all there
                self._check_place()
                return None
            wanted = length

    def _block(self, data: memoryview, records: Array) -> RecordBlock:
        block = RecordBlock(data, records, self.path, self._at, self._first, self._memory)
        self._at, self._first = self._at + len(data), self._first + len(records)
        self._kept = bytes(data[-_KEPT_BYTES:])
        return block

    def _check_damage(self, status: int, data: memoryview, last: bool) -> None:
        """Raise what is wrong with a record at the second look: at the first, its bytes may be on their way."""
        if self._at == 0 and (name := detect(bytes(data[:HEAD_BYTES]))) != "none":
            raise compressed(self.path, name)
        if last or self._suspect == self._at:
            raise fault(self, status, data, self._at, self._first)
        self._suspect = self._at

    def _read(self, count: int) -> memoryview:
        """Bytes from the next record on; what stands before it must be what it was."""
        kept = len(self._kept)
        room = bytes_view(self._memory.array(kept + count))
        self._file.seek(self._at - kept)
        filled = 0
        while filled < len(room):
            got = self._file.readinto(room[filled:])  # type: ignore[attr-defined]
            if not got:
                raise self._changed("it became shorter while it was read")
            filled += got
        if room[:kept] != self._kept:
            raise self._changed(f"what stands before byte {self._at} is not what was read there")
        return room[kept:]

    def _check_place(self) -> None:
        """Raise if the path no longer leads to the file."""
        mine = os.fstat(self._file.fileno())
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            raise self._changed("it was removed") from None
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise self._changed("another file took its place")

    def _changed(self, what: str) -> CorruptError:
        return CorruptError(
            f"the file changed while it was followed: {what}",
            at=self._at,
            path=self.path,
            hints=[Hint(purpose="open it again to read it from the start")],
        )

    def _warn_of_tail(self) -> None:
        torn = os.fstat(self._file.fileno()).st_size - self._at
        if torn > 0:
            warnings.warn(
                f"{self.path}: ends with {torn} bytes of a record that is not whole; it starts at byte {self._at}",
                TornTailWarning,
                stacklevel=2,
            )


def compressed(path: str, name: str) -> UsageError:
    return UsageError(
        f"only uncompressed files are followed, and read from an offset; this one is {name}",
        path=path,
        hints=[Hint(purpose="read it from its start, without follow and offset")],
    )


def check_start(path: str, compression: str, offset: int) -> None:
    """Raise unless records of a file can be read from this byte on."""
    if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or offset < 0:
        raise UsageError(f"offset={offset!r}", expected="a number of bytes, 0 or more")
    with open_plain(path) as stream:
        if not stream.seekable:
            raise UsageError("reading from an offset needs a file that can be read at any place", path=stream.path)
        head = stream.peek(HEAD_BYTES)
        name = detect(head) if compression == "auto" else compression
        if name != "none":
            raise compressed(stream.path, name)
        if stream.size is not None and offset > stream.size:
            raise UsageError(f"offset={offset}: the file has {stream.size} bytes", path=stream.path)
        stream.limit(offset, None)
        head = stream.peek(HEADER_BYTES)
    if len(head) >= HEADER_BYTES and not is_record_header(head) and offset:
        near = _nearest(path, offset) if storage.is_local(path) else None
        raise UsageError(
            f"no record starts at byte {offset}",
            path=storage.describe(path),
            hints=[] if near is None else [Hint(purpose=f"the nearest that does starts at byte {near}")],
        )


def _nearest(path: str, offset: int) -> int | None:
    """The place nearest to an offset where a record starts, or the last one ends; None if none is found."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        after = next_record(reader(file), offset, size)
        back, before = _LOOK_BYTES, None
        while before is None:
            start = max(offset - back, 0)
            begin = next_record(reader(file), start, after) if start else 0
            for places in Walk(reader(file), begin, after):
                starts = places[:, 0] - HEADER_BYTES
                if len(earlier := starts[starts < offset]):
                    before = int(earlier[-1])
            if start == 0:
                break
            back *= 8
    found = [place for place in (before, after) if place is not None]
    return min(found, key=lambda place: abs(place - offset), default=None)
