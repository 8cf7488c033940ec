"""Arrow IPC through pyarrow: tables into pieces of bytes, and record batches as views of a buffer."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, UsageError
from tensorbytes.formats._arrow import flat as arrow_flat
from tensorbytes.formats._arrow.nested import any_null
from tensorbytes.formats._arrow.table import KEY, StoredTable, refusing
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.io import storage
from tensorbytes.typing import bytes_view

COMPRESSIONS: tuple[str | None, ...] = (None, "lz4", "zstd")


class Pieces:
    """A file that keeps what is written to it, without copying what pyarrow hands over as a buffer."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[Any] = []
        self.size = 0

    def write(self, data: Any) -> int:
        self.pieces.append(data)
        self.size += len(data)
        return len(data)

    def take(self) -> list[Any]:
        """What was written since the last time."""
        taken, self.pieces = self.pieces, []
        return taken

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def read_file(file: io.FileIO) -> memoryview:
    """A file's bytes in memory of pyarrow's, which keeps what was given back: other memory comes page by page."""
    room = bytes_view(arrow().allocate_buffer(os.fstat(file.fileno()).st_size))
    storage.read_at(file, room, 0)
    return room


def writer(sink: Any, schema: Any, stream: bool, compression: str | None) -> Any:
    """pyarrow's writer of record batches."""
    pa = arrow()
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression={compression!r}", expected="None, 'lz4' or 'zstd'")
    # A file can't have other words from some batch on, as a stream can: it can have more (words.GrowingWords).
    options = pa.ipc.IpcWriteOptions(compression=compression, allow_64bit=True, emit_dictionary_deltas=not stream)
    return (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, schema, options=options)


def encode(table: Any, stream: bool, compression: str | None) -> Iterator[Any]:
    """The bytes of a table of one batch; large buffers are the columns' own memory."""
    sink = Pieces()
    with writer(sink, table.schema, stream, compression) as file:
        for batch in table.to_batches():
            file.write_batch(batch)
            yield from sink.take()
    yield from sink.take()


class Ipc(StoredTable):
    """The record batches of a file or a stream. Uncompressed ones are views of the buffer."""

    def __init__(self, data: memoryview, budget: Budget, lazy: bool, own: bool = False) -> None:
        """`own`: nobody else has the data."""
        pa = arrow()
        claims = arrow_flat.batches(data)
        arrow_flat.check_claims(claims, len(data), budget, lazy)
        self.size, self._claims = len(data), claims
        self._own = data if own and all(batch.apart for batch in claims) else None
        self._nulls: dict[int, bool] = {}
        self.at_hand = not any(batch.compressed for batch in claims)
        self.lengths = [batch.rows for batch in claims]
        self._is_file = bytes(data[:6]) == arrow_flat.MAGIC
        self._buffer = pa.py_buffer(data)
        self._batches: list[Any] | None = None
        with refusing("the schema"):
            self.schema = self._open(None).schema
            if not self._is_file and KEY in (self.schema.metadata or {}) and not arrow_flat.has_end(data):
                raise CorruptError("the stream has no end: it was cut short", at=len(data))
        if self.at_hand or not lazy:
            with refusing("a record batch"):
                self._batches = list(self._read(self._open(None)))
                if [batch.num_rows for batch in self._batches] != self.lengths:
                    raise CorruptError("record batches of other lengths than their messages say", at=0)

    def writable(self, buffer: Any) -> memoryview | None:
        if buffer.is_mutable:  # it was decompressed, or gathered
            return memoryview(buffer)
        start, own = buffer.address - self._buffer.address, self._own
        if own is None or not 0 <= start <= len(own) - buffer.size:
            return None
        return own[start : start + buffer.size]

    def has_nulls(self, number: int) -> bool | None:
        if self._batches is not None:
            if number not in self._nulls:
                with refusing(f"column {self.schema.field(number).name!r}"):
                    columns = [batch.column(number) for batch in self._batches]
                    for column in columns:  # before it is looked into: pyarrow ends the process over lengths below zero
                        column.validate()
                    self._nulls[number] = any(map(any_null, columns))
            return self._nulls[number]
        if self._has_dictionaries:  # whose words may be null, elsewhere
            return None
        start, stop = self._array_numbers[number : number + 2]
        return any(any(batch.nulls[start:stop]) or len(batch.nulls) < stop for batch in self._claims)

    def count_nulls(self, number: int) -> int | None:
        if self._has_dictionaries:
            return None
        at = self._array_numbers[number]
        return sum(batch.nulls[at] for batch in self._claims if at < len(batch.nulls))

    @cached_property
    def _has_dictionaries(self) -> bool:
        return any("dictionary<" in str(field.type) for field in self.schema)

    @cached_property
    def _array_numbers(self) -> list[int]:
        """Where the arrays of each field begin, among all."""
        return [0, *itertools.accumulate(_count_arrays(field.type) for field in self.schema)]

    def _open(self, number: int | None) -> Any:
        pa = arrow()
        options = pa.ipc.IpcReadOptions(included_fields=None if number is None else [number])
        return (pa.ipc.open_file if self._is_file else pa.ipc.open_stream)(self._buffer, options=options)

    def _read(self, reader: Any) -> Iterator[Any]:
        if self._is_file:
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from reader

    def chunks(self, number: int, first: int, last: int) -> list[Any]:
        if first >= last:
            return [empty(self.schema.field(number).type)]
        if self._batches is not None:
            return [batch.column(number) for batch in self._batches[first:last]]
        reader = self._open(number)
        if self._is_file:
            return [reader.get_batch(n).column(0) for n in range(first, last)]
        return [batch.column(0) for n, batch in enumerate(reader) if first <= n < last]


def _count_arrays(kind: Any) -> int:
    """How many arrays make one of a type: its own, and those of its children."""
    kind = kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind
    return 1 + sum(_count_arrays(kind.field(number).type) for number in range(kind.num_fields))


def empty(kind: Any) -> Any:
    return arrow().nulls(0, kind)  # unlike array([], kind), of every type


class InMemory(StoredTable):
    """A pyarrow.Table."""

    def __init__(self, table: Any) -> None:
        self._batches = table.to_batches()
        self.schema, self.size, self.at_hand = table.schema, table.nbytes, True
        self.lengths = [batch.num_rows for batch in self._batches]

    def has_nulls(self, number: int) -> bool:
        return any(any_null(batch.column(number)) for batch in self._batches)

    def chunks(self, number: int, first: int, last: int) -> list[Any]:
        return [batch.column(number) for batch in self._batches[first:last]] or [empty(self.schema.field(number).type)]
