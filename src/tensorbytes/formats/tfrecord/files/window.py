"""A stretch of a stream in memory, for readers that must look around."""

from __future__ import annotations

import numpy as np

from tensorbytes.errors import CorruptError, LimitError
from tensorbytes.formats.tfrecord.files.framing import Stream
from tensorbytes.typing import bytes_view

# What is moved is in memory twice for a moment. So a window doubles only up to this size: whoever asks for more has
# shown that bytes arrive, and gets all the room at once, with some to look ahead. Pages never filled cost nothing.
_MOST_MOVED = 16 << 20
_AHEAD_BYTES = 20 << 20


class Window:
    """The bytes of a stream from some place on: more are read as they are asked for.

    Positions are those of the file, in which the stream starts at `base`. Memory follows the bytes
    that really arrive, and is never written again once it was: views of it may be kept.
    """

    def __init__(self, stream: Stream, base: int, step: int) -> None:
        self._stream, self._step = stream, step
        self._room = memoryview(b"")
        self._start = self._keep = base
        self.end = base
        # Where the file will end, if that is known without reading it.
        self.last = stream.size
        self.ended = False
        self.broken: CorruptError | None = None

    @property
    def start(self) -> int:
        """The first byte that may not go."""
        return self._keep

    @property
    def whole(self) -> bool:
        """Whether all was read, up to an end that is one."""
        return self.ended and self.broken is None

    def view(self, start: int, stop: int | None = None) -> memoryview:
        return self._room[start - self._start : (self.end if stop is None else stop) - self._start]

    def forget(self, before: int) -> None:
        """Allow bytes before this position to go, when room is needed."""
        self._keep = min(before, self.end)

    def reach(self, stop: int) -> bool:
        """Read on until the window goes up to `stop`; False if the stream ends before."""
        while self.end < stop and not self.ended:
            if self.end - self._start == len(self._room):
                self._move(stop)
            self._read()
        return self.end >= stop

    def skip(self) -> None:
        """Read on to the end and keep nothing."""
        while not self.ended:
            self._keep = self.end
            self._move(self.end)
            self._read()

    def _move(self, stop: int) -> None:
        kept = self.view(self._keep)
        size = max(self._step, min(stop - self._keep, 2 * len(kept)), len(kept) + len(kept) // 2)
        if len(kept) >= _MOST_MOVED:
            size = max(size, stop - self._keep + _AHEAD_BYTES)
        if self.last is not None:  # one more byte than there should be, to see the end
            size = max(min(size, self.last - self._keep + 1), len(kept) + 1)
        try:
            room = bytes_view(np.empty(size, np.uint8))
        except MemoryError:
            raise LimitError(f"no memory for {size} bytes of one record", path=self._stream.path) from None
        room[: len(kept)] = kept
        self._room, self._start = room, self._keep

    def _read(self) -> None:
        try:
            count = self._stream.readinto(self._room[self.end - self._start :])
        except CorruptError as error:
            if self.last is not None:
                raise  # no compression to be broken: the file changed while it was read
            self.broken, count = error, 0
        self.end += count
        self.ended = count == 0
