"""Writing streams of objects: to a file, a pipe or a socket; appending after a crash."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorbytes import shortcut, storage
from tensorbytes.errors import LIMITS, CorruptError, TensorbytesError, UsageError
from tensorbytes.formats import frame
from tensorbytes.tree import Document

# Small records are collected up to this size before they go to the operating system.
_BUFFER_BYTES = 1 << 18


class TornTailWarning(UserWarning):
    """The end of a file was not a whole object, and was cut off before appending."""


class Writer:
    """A stream being written. Each `write` adds one object, which may be a whole structure.

    A file that exists is replaced only when the new one is first made visible, by
    flush(), sync() or close(): if the block raises before that, the old file stays as it
    was. What flush() returned for survives the death of the process, sync() a power cut.
    """

    def __init__(self, to_document: Callable[..., Document], target: Any, append: bool) -> None:
        self._to_document = to_document
        self._pieces: list[Any] = []
        self._pending = self._at = self._item = 0
        self._temporary: str | None = None
        self._path: str | None = None
        self._owned = storage.is_path(target)
        storage.check_target(target, "write")
        if not self._owned:
            if append:
                raise UsageError("appending needs a path, to look at what is there; a file object is written onwards")
            self._file: Any = target
        elif storage.is_url(target):
            if append:
                raise UsageError(f"{target}: a URL can't be appended to; write a new object")
            self._file = storage.open_url(target, "wb")
        else:
            self._path = os.path.realpath(os.fspath(target))
            self._open_path(append)

    def _open_path(self, append: bool) -> None:
        assert self._path is not None
        if append and os.path.exists(self._path):
            self._file = open(self._path, "r+b", buffering=0)  # noqa: SIM115 - lives as long as the writer
            try:
                _lock(self._file, self._path)
                self._at, self._item = _resume(self._file, self._path)
            except BaseException:
                self._file.close()
                raise
        elif os.path.exists(self._path) and not os.path.isfile(self._path):
            self._file = open(self._path, "wb", buffering=0)  # noqa: SIM115 - a device or a named pipe
        else:
            self._temporary = f"{self._path}.{os.urandom(4).hex()}.tmp"
            self._file = open(self._temporary, "xb", buffering=0)  # noqa: SIM115
            _lock(self._file, self._path)

    def write(self, obj: Any, name: str | None = None, meta: Mapping[str, str] | None = None) -> None:
        """Add one object to the stream."""
        if self._file is None:
            raise TensorbytesError("the writer is closed")
        if type(obj) is np.ndarray and obj.nbytes < _BUFFER_BYTES and name is None and meta is None:
            data = shortcut.dump_item(obj, self._item + 1, self._at)
            if data is not None:
                self._add([data], len(data))
                return
        document = self._to_document(obj, name=name, meta=meta)
        numbered = Document(document.leaves, document.meta, self._item + 1)
        pieces = [
            piece
            for payload in frame.records(numbered, self._at)
            for piece in frame.framed(payload, frame.checksum(payload))
        ]
        self._add(pieces, sum(memoryview(piece).nbytes for piece in pieces))

    def _add(self, pieces: list[Any], size: int) -> None:
        if self._pending + size > _BUFFER_BYTES:
            self._drain()
        if size > _BUFFER_BYTES:
            self._put(pieces)
        else:
            # The caller may change its arrays after this returns: keep bytes, not views.
            self._pieces.append(b"".join(pieces))
            self._pending += size
        self._at += size
        self._item += 1

    def _drain(self) -> None:
        if self._pieces:
            self._put(self._pieces)
            self._pieces, self._pending = [], 0

    def _put(self, pieces: list[Any]) -> None:
        """Write whole records; if that fails, take back what was written of them."""
        try:
            storage.write_pieces(self._file, pieces)
        except BaseException:
            good = self._at - self._pending
            self._pieces, self._pending = [], 0
            if self._path is not None:
                with contextlib.suppress(OSError):
                    self._file.truncate(good)
            self.abort()
            raise

    def flush(self) -> None:
        """Hand everything written so far to the operating system, and make the file visible."""
        self._drain()
        if hasattr(self._file, "flush"):
            self._file.flush()
        self._publish()

    def _publish(self) -> None:
        if self._temporary is not None and self._path is not None:
            if os.path.exists(self._path):
                storage.keep_mode(self._path, self._file.fileno())
            os.replace(self._temporary, self._path)
            self._temporary = None

    def sync(self) -> None:
        """flush(), and wait until the disk has it all."""
        self._drain()
        if self._path is not None:
            os.fsync(self._file.fileno())
            self._publish()
            storage.sync_folder(self._path)
        else:
            self.flush()

    def close(self) -> None:
        if self._file is None:
            return
        try:
            if self._path is not None and os.path.isfile(self._temporary or self._path):
                self.sync()
            else:
                self.flush()
        except BaseException:
            self.abort()
            raise
        self._release()

    def abort(self) -> None:
        """Close without publishing; a file that was not visible yet is removed."""
        self._pieces, self._pending = [], 0
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._temporary = None
        self._release()

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._owned:
            file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or self._temporary is None:
            self.close()  # what was visible already stays, up to the last whole object
        else:
            self.abort()


def _lock(file: Any, path: str) -> None:
    """One writer at a time, where the system can tell."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not a POSIX system
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise TensorbytesError(f"{path} is being written by another process or writer") from None


def _resume(file: Any, path: str) -> tuple[int, int]:
    """(where to append, the number of the last item); cuts off an object that is not whole."""
    size = os.fstat(file.fileno()).st_size
    if not size:
        return 0, 0
    data = storage.map_file(path)
    good, item, fault = _last_whole(data)
    torn = size - good
    if fault is not None:
        rest = bytes(data[fault.at : fault.at + (1 << 20)])
        if fault.what in frame.NOT_TORN and rest.strip(b"\0"):
            raise CorruptError(
                f"{fault.what}; the file is damaged, not just cut: repair it first", at=fault.at, path=path
            )
    del data
    if torn:
        warnings.warn(
            f"{path}: cut off {torn} bytes of an unfinished object at byte {good}", TornTailWarning, stacklevel=5
        )
        file.truncate(good)
    file.seek(good)
    return good, item


def _last_whole(data: memoryview) -> tuple[int, int, CorruptError | None]:
    """(end of the last whole object, its item number, what stopped the scan)"""
    assembler = frame.Assembler()
    good = item = 0
    last: tuple[int, int] | None = None
    try:
        for start, end in frame.spans(data, False, LIMITS):
            last = (start, end)
            if assembler.add(frame.read_record(data, start, end, LIMITS, lazy=True), start) is not None:
                good, item = end + 4, assembler.item
        if last is not None:
            frame.check_payload(data, *last)
    except CorruptError as error:
        if last is not None and error.at == last[0] and good == last[1] + 4:
            good = last[0] - frame.HEADER_BYTES  # the last record itself is torn
        return good, item, error
    return good, item, None
