"""Random access to the plain bytes of a compressed file."""

from __future__ import annotations

import bisect
import threading
from types import TracebackType
from typing import Any, Self

from tensorbytes.errors import LIMITS, Limits, UsageError
from tensorbytes.records.files.decoders import Checkpoint, Feed, decoder
from tensorbytes.records.files.detection import HEAD_BYTES, checked_name, detect
from tensorbytes.records.files.sources import open_plain

_SPACING = 8 << 20
_PIECE_BYTES = 1 << 20


class SeekableInflate:
    """A gzip, zlib or snappy file that can be read at any place.

    The first time a place is reached, everything before it is inflated, and the decoder's
    state is kept every 8 MiB of plain bytes: about 40 KiB each, a 200th of the file. From
    then on no more than 8 MiB are inflated to get to a place, and none to go on from the
    last one. (Of snappy, whose blocks are decoded whole, up to the size of a block more.)
    """

    def __init__(self, target: Any, compression: str = "auto", *, limits: Limits = LIMITS) -> None:
        self._raw = open_plain(target)
        try:
            if not self._raw.seekable:
                raise UsageError("it can't be read at any place: it has no seek()", path=self._raw.path)
            name = checked_name(compression)
            if name == "auto":
                name = detect(self._raw.peek(HEAD_BYTES))
            if name == "none":
                raise UsageError("it is not compressed", path=self._raw.path)
            self._raw.seek(0)
            self._feed = Feed(self._raw)
            self._decoder = decoder(name, self._feed, limits, seekable=True)
        except BaseException:
            self._raw.close()
            raise
        self._plain = 0  # where the decoder stands
        self._places = [0]  # plain offsets of the checkpoints, rising
        self._checkpoints: list[Checkpoint] = [(0, None)]
        self._lock = threading.Lock()

    def read_at(self, start: int, size: int) -> bytearray:
        """`size` plain bytes from `start` on, fewer only where the stream ends before that."""
        if start < 0 or size < 0:
            raise UsageError(expected="a start and a size of 0 or more", got=f"{start} and {size}")
        with self._lock:
            self._go_near(start)
            end, out = start + size, bytearray()
            while self._plain < end:
                at = self._plain
                piece = self._next(end - at)
                if not len(piece):
                    break
                if self._plain > start:
                    out += piece[max(start - at, 0) :]
            return out

    def _go_near(self, start: int) -> None:
        """Take up decoding at the last checkpoint before a place, unless the decoder stands closer."""
        index = bisect.bisect_right(self._places, start) - 1
        if not self._places[index] <= self._plain <= start:
            self._decoder.resume(self._checkpoints[index])
            self._plain = self._places[index]

    def _next(self, wanted: int) -> Any:
        """Some of the next bytes. Pieces end where checkpoints go."""
        due = self._places[-1] + _SPACING
        if self._plain >= due and (checkpoint := self._decoder.checkpoint()):
            self._places.append(self._plain)
            self._checkpoints.append(checkpoint)
            due = self._plain + _SPACING
        limit = min(wanted, _PIECE_BYTES)
        if due > self._plain:
            limit = min(limit, due - self._plain)
        piece = self._decoder.next(limit)
        self._plain += len(piece)
        return piece

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
