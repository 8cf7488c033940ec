"""The files that records are read from, opened in order, as often as they are asked for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from tensorbytes.errors import Limits, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream, open_stream
from tensorbytes.io import storage
from tensorbytes.io.paths import byte_range


class Inputs:
    """Paths are opened anew each time. File objects start where they stood when they were handed over."""

    def __init__(self, targets: Sequence[Any], compression: str, threads: int, limits: Limits) -> None:
        self.targets, self._compression, self._threads, self._limits = targets, compression, threads, limits
        # None for file objects that can be read only once, -1 when they were.
        self._starts = {id(t): _position(t) for t in targets if not storage.is_path(byte_range(t)[0])}
        self._turn = 0
        self._nbytes: int | None = None
        self.compressed = False  # what was last opened

    @property
    def are_files(self) -> bool:
        """Whether all are files on a disk, which never keep a reader waiting."""
        paths = [byte_range(target)[0] for target in self.targets]
        return all(storage.is_local(path) and os.path.isfile(path) for path in paths)

    @property
    def nbytes(self) -> int | None:
        """The bytes of all files, as they were when this iteration asked first; None if some are not on a disk, and
        nothing is known before they are read."""
        if self._nbytes is None and self.are_files:
            paths = {os.fspath(byte_range(target)[0]) for target in self.targets}
            self._nbytes = sum(map(os.path.getsize, paths))
        return self._nbytes

    @property
    def read_once(self) -> bool:
        """Whether some can't be read a second time: file objects without seek(), named pipes."""
        if any(start is None or start < 0 for start in self._starts.values()):
            return True
        paths = [byte_range(target)[0] for target in self.targets]
        return any(storage.is_local(path) and os.path.exists(path) and not os.path.isfile(path) for path in paths)

    def take_turn(self) -> int:
        """Start a new iteration."""
        self._nbytes = None
        self._turn += 1
        return self._turn

    def check_turn(self, turn: int) -> None:
        """An iteration goes on: has another moved the file objects meanwhile?"""
        if self._starts and turn != self._turn:
            raise UsageError("a file object can't be iterated over twice at once: it has one position")

    def streams(self) -> Iterator[tuple[ByteStream, int]]:
        """Every file, opened; compressed ones some ahead, since each inflates in a thread of its own."""
        ahead: deque[tuple[ByteStream, int]] = deque()
        waiting = deque(self.targets)
        try:
            while waiting or ahead:
                while waiting and (not ahead or (len(ahead) < self._threads and ahead[-1][0].compression != "none")):
                    target, start, end = byte_range(waiting.popleft())
                    self._rewind(target)
                    stream = open_stream(target, self._compression, start, end, limits=self._limits)
                    ahead.append((stream, start))
                stream, start = ahead.popleft()
                self.compressed = stream.compression != "none"
                with stream:
                    yield stream, start
        finally:
            for stream, _ in ahead:
                stream.close()

    def rewind(self) -> None:
        """Put all file objects that can go back where they stood."""
        for target in self.targets:
            start = self._starts.get(id(target))
            if start is not None and start >= 0:
                target.seek(start)

    def _rewind(self, target: Any) -> None:
        if id(target) not in self._starts:
            return
        start = self._starts[id(target)]
        if start is None:
            self._starts[id(target)] = -1
        elif start < 0:
            raise UsageError("it was read already, and can't be read again", path=storage.describe(target))
        else:
            target.seek(start)


def _position(target: Any) -> int | None:
    try:
        return int(target.tell()) if target.seekable() else None
    except (AttributeError, OSError):
        return None
