"""A source: the bytes of a path, a URL, a file object or several files, each opened once."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

from tensorbytes.io import storage
from tensorbytes.lazy import made_once

# How much of a file tells its format.
HEAD_BYTES = 4096
# A file of at most this size is read at once.
_SMALL_BYTES = 1 << 16


class Source:
    """Where bytes come from. Nothing is opened before something is asked for.

    `target` is what the caller gave: a path, a URL, a file object, or several of them, which have no bytes of their
    own here. A local file is mapped, or with own=True read into memory; of a private map a process may change its copy.
    """

    def __init__(self, target: Any, *, own: bool = False, private: bool = False) -> None:
        self.target, self._own, self._private = target, own, private
        self.path = storage.describe(target)

    @classmethod
    def of_bytes(cls, data: memoryview) -> Source:
        """Bytes that are in memory already."""
        made = cls.__new__(cls)
        made.target, made.path, made._own, made._private = data, "<bytes>", False, False
        made.__dict__.update(data=data, head=bytes(data[:HEAD_BYTES]), size=len(data), is_local=False, file=None)
        return made

    @made_once
    def is_local(self) -> bool:
        return storage.is_local(self.target)

    @made_once
    def file(self) -> io.FileIO | None:
        """The open file, where it is a regular one to read rather than map."""
        return io.FileIO(self.target) if self._own and self.is_local and os.path.isfile(self.target) else None

    @made_once
    def head(self) -> bytes:
        """The first bytes."""
        if "data" not in self.__dict__:
            if self.file is not None and self.size > _SMALL_BYTES:
                return os.pread(self.file.fileno(), HEAD_BYTES, 0)
            if storage.is_url(self.target):
                return self._start[0]
            found = None if self.is_local else _peek(self.target)
            if found is not None:
                return found
        return bytes(self.data[:HEAD_BYTES])

    @made_once
    def size(self) -> int:
        if self.file is not None:
            return os.fstat(self.file.fileno()).st_size
        if "data" in self.__dict__ or self.is_local:
            return len(self.data)
        known = self._start[1] if storage.is_url(self.target) else _bytes_left(self.target)
        return len(self.data) if known is None else known

    @made_once
    def _start(self) -> tuple[bytes, int | None]:
        """Of a URL: its first bytes, and its size if the server tells it."""
        with storage.open_url(self.target, "rb") as file:
            size = getattr(file, "size", None)
            return bytes(file.read(HEAD_BYTES)), size if isinstance(size, int) else None

    @made_once
    def data(self) -> memoryview:
        """All bytes."""
        if self.file is not None:
            try:
                return storage.read_whole(self.file)
            finally:
                self.close()
        if self._own or not self.is_local:
            return storage.read(self.target)
        return storage.map_file(self.target, self._private)

    def ranges(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes [start, end) of each span, fewer where the source ends before. It is opened once for all of them.

        A file object is its owner's, who may be reading it as well: it stands where it stood.
        """
        if "data" in self.__dict__:
            return [self.data[start:end] for start, end in spans]
        if not storage.is_path(self.target):
            before = self.target.tell()
            try:
                return [_read_span(self.target, *span) for span in spans]
            finally:
                self.target.seek(before)
        remote = storage.is_url(self.target)
        with storage.open_url(self.target, "rb") if remote else io.FileIO(self.target) as file:
            return [_read_span(file, *span) for span in spans]

    @property
    def is_read(self) -> bool:
        """Whether all bytes were read, and can't be read again: a file object has none left, nor has a pipe."""
        return "data" in self.__dict__ and not (
            storage.is_url(self.target) or (self.is_local and os.path.isfile(self.target))
        )

    def close(self) -> None:
        """Close what was opened here. Bytes that were given stay valid."""
        file = self.__dict__.get("file")
        self.__dict__["file"] = None
        if file is not None:
            file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _read_span(file: Any, start: int, end: int) -> memoryview:
    file.seek(start)
    return storage.read_exactly(file, end - start)


def _bytes_left(file: Any) -> int | None:
    """How many bytes a file object has from here on, if it can go back."""
    try:
        if not file.seekable():
            return None
        at = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(at)
    except (AttributeError, OSError):
        return None
    return end - at if isinstance(end, int) else None


def _peek(file: Any) -> bytes | None:
    """The first bytes of a file object that can go back."""
    try:
        if not file.seekable():
            return None
        at = file.tell()
        head = file.read(HEAD_BYTES)
        file.seek(at)
    except (AttributeError, OSError):
        return None
    return head if isinstance(head, bytes) else None
