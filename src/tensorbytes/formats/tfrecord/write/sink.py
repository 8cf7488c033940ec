"""Where framed records go: through an encoder into a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tensorbytes.errors import Hint, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import detect
from tensorbytes.formats.tfrecord.schema import sidecar_path
from tensorbytes.formats.tfrecord.write import tail
from tensorbytes.io import storage
from tensorbytes.io.output import OutputFile
from tensorbytes.io.paths import base_path, shard_path
from tensorbytes.io.streams.detection import HEAD_BYTES, check_name, decode_start, find_by_suffix
from tensorbytes.io.streams.encoders import Encoder, open_encoder
from tensorbytes.tfrecord import HEADER_BYTES, is_record_header
from tensorbytes.tfrecord.tail import cut
from tensorbytes.typing import Buffer, bytes_view

# Smaller pieces are collected up to this size.
_BUFFER_BYTES = 1 << 18
# This much of a file tells whether its first record is a tensor.
_LOOK_BYTES = 1 << 13
# From the warning about a torn tail up to the caller of RecordWriter(), past the check of its parameters.
_CALLER = 7


class Sink:
    """One file of records. What is compressed counts as whole only up to the last flush."""

    def __init__(self, output: OutputFile, encoder: Encoder | None, count: int = 0) -> None:
        self.output = output
        self.count = count  # records that were there before
        self._encoder = encoder
        self._pieces: list[bytes] = []
        self._pending = 0

    def put(self, piece: Buffer) -> None:
        """Add whole records. The caller may reuse their memory afterwards."""
        size = len(bytes_view(piece))
        if size < _BUFFER_BYTES:
            self._pieces.append(bytes(piece))
            self._pending += size
        if self._pending >= _BUFFER_BYTES or size >= _BUFFER_BYTES:
            self._drain()
        if size >= _BUFFER_BYTES:
            self._pass(piece)

    def _drain(self) -> None:
        if self._pieces:
            pieces, self._pieces, self._pending = self._pieces, [], 0
            self._pass(b"".join(pieces))

    def _pass(self, piece: Buffer) -> None:
        if self._encoder is None:
            self.output.write([piece], len(bytes_view(piece)))
        else:
            self._write(self._encoder.compress(piece), whole=False)

    def _write(self, compressed: Buffer, whole: bool) -> None:
        self.output.write([compressed], len(bytes_view(compressed)), whole)

    def settle(self, sync: bool) -> None:
        """Hand all records to the system, or to the disk, so that a reader could read them."""
        self._drain()
        if self._encoder is not None:
            self._write(self._encoder.flush(), whole=True)
        self.output.settle(sync)

    def finish(self) -> None:
        """The end of the stream."""
        self._drain()
        if self._encoder is not None:
            self._write(self._encoder.finish(), whole=True)


class SinkSet:
    """All files of a writer, which become visible together."""

    def __init__(self, sinks: list[Sink]) -> None:
        self._sinks = sinks
        self.count = sinks[0].count

    def __len__(self) -> int:
        return len(self._sinks)

    @property
    def hidden(self) -> bool:
        return self._sinks[0].output.hidden

    @property
    def closed(self) -> bool:
        return self._sinks[0].output.closed

    @property
    def replaces(self) -> bool:
        return any(sink.output.replaces for sink in self._sinks)

    @property
    def published(self) -> bool:
        """Whether any of the files took its place."""
        return any(sink.output.published for sink in self._sinks)

    @property
    def foreign(self) -> bool:
        return self._sinks[0].output.foreign

    def check_open(self) -> None:
        self._sinks[0].output.check_open()

    def put(self, pieces: Iterable[tuple[int, Buffer]]) -> None:
        """Whole records, each piece for the file with this number."""
        for file, piece in pieces:
            self._sinks[file].put(piece)

    def settle(self, sync: bool) -> None:
        for sink in self._sinks:
            sink.settle(sync)

    def publish(self, sync: bool) -> None:
        for sink in self._sinks:
            sink.output.publish(sync)

    def finish(self) -> None:
        """The end of all streams, on disk but not yet visible."""
        for sink in self._sinks:
            sink.finish()
            sink.output.settle(sink.output.waits_for_disk)

    def close(self) -> None:
        for sink in self._sinks:
            sink.output.close()

    def abort(self) -> None:
        for sink in self._sinks:
            sink.output.abort()

    @property
    def failed(self) -> bool:
        return any(sink.output.failed for sink in self._sinks)

    def fail(self, error: BaseException) -> None:
        for sink in self._sinks:
            sink.output.fail(error)

    def forget(self) -> None:
        for sink in self._sinks:
            sink.output.forget()

    def leave(self) -> tuple[list[str], Exception | None]:
        """Close what was forgotten: the files that there are, and what kept the rest of it from them."""
        failure = None
        for sink in self._sinks:
            try:
                sink.finish()
            except Exception as error:
                failure = failure or error
        return [place for sink in self._sinks if (place := sink.output.leave()) is not None], failure


def check_arguments(target: Any, shards: int, mode: str) -> None:
    if not storage.is_path(target) and not hasattr(target, "write"):
        raise UsageError(expected="a path, a URL or a file object with write()", got=type(target).__qualname__)
    if mode not in ("w", "a"):
        raise UsageError(f"mode {mode!r}", expected="'w' or 'a'")
    if type(shards) is not int or shards < 1:
        raise UsageError(f"shards must be an integer from 1 up, got {shards!r}")
    if shards > 1 and mode == "a":
        raise UsageError("appending goes to one file: records in shards stand in an order that more would break")
    if shards > 1 and not storage.is_path(target):
        raise UsageError("several shards need a path to be named after, not a file object")


def sidecar(target: Any) -> str | None:
    """Where the schema is kept: beside the file, if there is a beside. A device or a named pipe has none."""
    if not storage.is_path(target):
        return None
    path = os.fspath(target)
    if storage.is_local(path) and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        return None
    return sidecar_path(base_path(path))


def create(target: Any, shards: int, compression: str | None, level: int | None, durable: bool) -> SinkSet:
    """New files, which take the place of old ones once they are visible."""
    sinks: list[Sink] = []
    name = _wanted(target, compression) or "none"
    try:
        for index in range(shards):
            path = target if shards == 1 else shard_path(os.fspath(target), index, shards)
            encoder = _open_encoder(name, level)
            sinks.append(Sink(OutputFile(path, durable=durable), encoder))
    except BaseException:
        for sink in sinks:
            sink.output.abort()
        raise
    return SinkSet(sinks)


def append(target: Any, compression: str | None, level: int | None, durable: bool) -> SinkSet:
    """A file that is written onwards from its last whole record; its compression stays as it is, whatever its name."""
    wanted = None if compression is None else _named(compression)
    found, count = _wanted(target, compression) or "none", 0

    def resume(file: Any, path: str) -> int:
        nonlocal found, count
        head = file.read(_LOOK_BYTES)
        if not head:
            return 0
        found = detect(head[:HEAD_BYTES])
        if wanted is not None and found != wanted:
            raise UsageError(
                f"its compression is {found!r}, not {wanted!r}",
                path=path,
                hints=[Hint("compression", None, "to keep it", of="RecordWriter")],
            )
        _check_no_tensors(head, path, found)
        end = tail.find(file, path, found)
        cut(file, path, end.at, "record", _CALLER)
        count = end.records
        return end.at

    output = OutputFile(target, resume, durable)
    try:
        return SinkSet([Sink(output, _open_encoder(found, level), count)])
    except BaseException:
        output.abort()
        raise


def _check_no_tensors(head: bytes, path: str, compression: str) -> None:
    """Leave a native file alone: its records are tensors that belong together, and no other record may join them."""
    from tensorbytes.formats.tfrecord.read.infer import is_tensor

    plain = decode_start(head, compression)
    if is_record_header(plain):
        size = int.from_bytes(plain[:8], "little")
        if is_tensor(memoryview(plain)[HEADER_BYTES : HEADER_BYTES + size], size):
            first = "" if compression == "none" else "decompress it first, then "
            raise UsageError(
                "records of tensors rather than Examples",
                path=path,
                hints=[Hint(purpose=f"{first}tb.open(path, 'a') appends to them")],
            )


def _open_encoder(compression: str, level: int | None) -> Encoder | None:
    made = open_encoder(compression, level)
    return None if compression == "none" else made


def _wanted(target: Any, compression: str | None) -> str | None:
    """The compression that was asked for: by its own name or, where there is none, by that of the file."""
    if compression is not None:
        return _named(compression)
    return find_by_suffix(base_path(os.fspath(target))) if storage.is_path(target) else None


def _named(compression: str | None) -> str:
    if compression == "auto":
        raise UsageError(
            "'auto' finds out the compression when reading",
            hints=[Hint("compression", purpose="to say which one to write", of="save")],
        )
    return check_name(compression)
