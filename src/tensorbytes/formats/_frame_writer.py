"""Writing streams of objects: to a file, a pipe or a socket; appending after a crash."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS
from tensorbytes.formats import _shortcut, frame
from tensorbytes.formats._opened import Created, Options
from tensorbytes.formats._storing import AS_IS, Storing
from tensorbytes.io import storage
from tensorbytes.io.output import Closable, OutputFile, check_between_calls
from tensorbytes.rows import Table
from tensorbytes.tensor import Memory
from tensorbytes.tfrecord import FOOTER_BYTES, tail
from tensorbytes.tfrecord.tail import End
from tensorbytes.tree import Document

# Small records are collected up to this size before they go to the operating system.
_BUFFER_BYTES = 1 << 18
# From the warning about a torn tail up to the caller of open().
_CALLER = 6


class Writer(Closable):
    """A stream being written. Each `write` adds one object, which may be a whole structure.

    A file that exists is replaced only when the new one is first made visible, by
    flush(), sync() or close(): if the block raises before that, the old file stays as it
    was. What flush() returned for survives the death of the process, sync() a power cut.
    Threads may share a writer: each call is done whole.
    """

    def __init__(
        self,
        to_document: Callable[..., Document],
        target: Any,
        append: bool,
        storing: Storing = AS_IS,
        memories: Mapping[type, Memory] | None = None,
    ) -> None:
        """`memories` are the short ways from tensors of frameworks, where objects may be such."""
        self._to_document, self._storing, self._memories = to_document, storing, memories
        self._lock = threading.RLock()
        self._pieces: list[Any] = []
        self._pending = self._item = 0
        self._objects = 0  # how many there are
        self._output = OutputFile(target, self._resume if append else None)
        self._target, self._at = target, self._output.size
        self._before = self._objects  # how many there were
        self._mark_open()

    def _resume(self, file: Any, path: str) -> int:
        """Where to append; cuts off an object that is not whole."""
        if not os.fstat(file.fileno()).st_size:
            return 0
        objects = _Objects(path)
        end = tail.find(file, path, objects)
        tail.cut(file, path, end.at, "object", _CALLER)
        self._item, self._objects = objects.item, end.records
        return end.at

    def write(self, obj: Any, name: str | None = None, meta: Mapping[str, str] | None = None) -> None:
        """Add one object to the stream."""
        self._output.check_open()  # a forked process must not wait for a lock that nobody there holds
        check_between_calls(self, self._lock)
        with self._lock:
            if self._output.closed:  # by another thread, just now
                self._output.check_open()
            if name is None and meta is None and self._memories is not None and not self._storing.changes:
                data = _shortcut.dump_object(obj, self._memories, self._item + 1, self._at, _BUFFER_BYTES - 1)
                if data is not None:
                    self._add(data, len(data))
                    return
            self._write_document(self._to_document(obj, name=name, meta=meta))

    def write_document(self, document: Document) -> None:
        """Add an object in its neutral form: a group of rows of a table, for one."""
        self._output.check_open()
        check_between_calls(self, self._lock)
        with self._lock:
            self._output.check_open()
            self._write_document(document)

    def _write_document(self, document: Document) -> None:
        numbered = document._replace(item=self._item + 1)
        pieces = [
            piece
            for payload in frame.records(numbered, self._at, self._storing)
            for piece in frame.framed(payload, frame.checksum(payload))
        ]
        size = sum(memoryview(piece).nbytes for piece in pieces)
        # The caller may change its arrays after this returns: small ones are kept as bytes, not as views.
        self._add(b"".join(pieces) if size <= _BUFFER_BYTES else pieces, size)

    def _add(self, data: bytes | list[Any], size: int) -> None:
        if self._pending + size > _BUFFER_BYTES:
            self._drain()
        if isinstance(data, bytes):
            self._pieces.append(data)
            self._pending += size
        else:
            self._output.write(data, size)
        self._at += size
        self._item += 1
        self._objects += 1

    def _drain(self) -> None:
        if self._pieces:
            pieces, size = self._pieces, self._pending
            self._pieces, self._pending = [], 0
            self._output.write([b"".join(pieces)], size)

    def flush(self) -> None:
        """Hand everything written so far to the operating system, and make the file visible."""
        self._show(self._output.flush)

    def sync(self) -> None:
        """flush(), and wait until the disk has it all."""
        self._show(self._output.sync)

    def _show(self, show: Callable[[], None]) -> None:
        self._output.check_open()
        check_between_calls(self, self._lock)
        with self._lock:
            self._drain()
            show()

    def close(self) -> None:
        """sync(), where there is a disk, and close. A forked process only lets go of the file."""
        self._mark_closed()
        if self._output.foreign:
            self._output.close()
            return
        check_between_calls(self, self._lock)
        with self._lock:
            self._drain()
            self._output.close()

    def abort(self) -> None:
        """Close without publishing; a file that was not visible yet is removed."""
        self._mark_closed()
        if self._output.foreign:
            self._output.abort()
            return
        check_between_calls(self, self._lock)
        with self._lock:
            self._pieces, self._pending = [], 0
            self._output.abort()

    def _leave(self) -> tuple[str, str, list[str]] | None:
        if self._output.foreign or self._output.closed:
            return None
        if self._objects == self._before:
            self._output.abort()
            return None
        self._output.forget()
        found = f"{self._objects} object{'' if self._objects == 1 else 's'}"
        try:
            self._drain()
        except Exception as error:  # of the disk
            found = f"a part of {found}, for then {error}"
        place = self._output.leave()
        return storage.describe(self._target), found, [place or storage.describe(self._target)]

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and self._output.failed:
            self.abort()  # the error says it
        elif error is None or not self._output.hidden:
            self.close()  # what was visible already stays, up to the last whole object
        else:
            self.abort()


class CreatedFrame(Created):
    """A stream of objects, or a table: one object for each group of rows."""

    def __init__(self, target: Any, options: Options) -> None:
        self._target = target
        self._writer = Writer(lambda document: document, target, append=False, storing=Storing.of(options))

    def add(self, item: Document | Table) -> None:
        self._writer.write_document(item.document() if isinstance(item, Table) else item)

    def close(self) -> list[str]:
        self._writer.close()
        return [storage.describe(self._target)]

    def abort(self) -> None:
        self._writer.abort()


class _Objects:
    """Which records of a stream make whole objects."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.item = 0  # the number of the last whole object

    def __call__(self, spans: list[tuple[int, int]]) -> End:
        data = storage.map_file(self._path) if spans else memoryview(b"")
        assembler, end = frame.Assembler(), End(0, 0)
        for start, stop in spans:
            if assembler.add(frame.read_record(data, start, stop, Budget(LIMITS), lazy=True), start, stop) is not None:
                end, self.item = End(stop + FOOTER_BYTES, end.records + 1), assembler.item
        return end
