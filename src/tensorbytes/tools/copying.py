"""What split and merge write: records as they are, batches of rows, streams of objects."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tensorbytes import formats, storage
from tensorbytes.errors import Hint, Limits, SchemaError, UsageError
from tensorbytes.formats import Options
from tensorbytes.formats._storing import Storing
from tensorbytes.io.streams.detection import check_name, find_by_suffix
from tensorbytes.io.streams.encoders import Encoder, open_encoder
from tensorbytes.output import Output
from tensorbytes.reader import naming
from tensorbytes.records.files.framing import Block, blocks
from tensorbytes.records.files.paths import base_path, byte_range
from tensorbytes.records.files.sources import open_source
from tensorbytes.records.schema import Schema, load_beside, sidecar_path
from tensorbytes.records.write import sidecar
from tensorbytes.records.write.sink import Files, Sink
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES
from tensorbytes.tools.parts import PartFile
from tensorbytes.tools.recognition import EXAMPLES
from tensorbytes.tools.sources import Documents, checked
from tensorbytes.tools.targets import EncodedTarget
from tensorbytes.tree import Document
from tensorbytes.writer import Writer

Progress = Callable[[int, int | None], object]
_OPTIONS = frozenset({"compression", "level"})


# ---- records ------------------------------------------------------------------


def check_record_format(format: str | None, dst: str) -> None:
    """Records stay records: a name or a wish that asks for something else is not for copying."""
    wanted = format or formats.by_suffix(dst)
    if wanted not in (None, "raw", EXAMPLES):
        raise UsageError(
            "records are copied as they are",
            path=dst,
            hints=[Hint(operation="convert", arguments=("src", "dst"), purpose=f"makes format {wanted!r} of them")],
        )


class RawRecords:
    """The verified bytes of the records of some files, whatever is in them."""

    def __init__(
        self, targets: Sequence[Any], dst: str, options: Options, progress: Progress | None, limits: Limits
    ) -> None:
        wrong = sorted(set(options) - _OPTIONS)
        if wrong:
            raise UsageError(f"records are copied with no option {wrong[0]!r}; known: {', '.join(sorted(_OPTIONS))}")
        self._targets, self._progress, self._limits = targets, progress, limits
        self._wanted = options.get("compression", find_by_suffix(dst))
        if self._wanted is not None and check_name(self._wanted) == "auto":
            raise UsageError(
                "'auto' finds out the compression when reading",
                hints=[Hint("compression", purpose="to say which one to write", of="save")],
            )
        self._level = options.get("level")
        self._found: str | None = None  # the compression of the first file
        self._sizes = [_size(target) for target in targets]

    def blocks(self) -> Iterator[Block]:
        """All records in order; damage raises CorruptError, with file and place."""
        total = None if None in self._sizes else sum(size or 0 for size in self._sizes)
        before = 0
        for target, size in zip(self._targets, self._sizes, strict=True):
            path, start, end = byte_range(target)
            with open_source(path, "auto", start, end, limits=self._limits) as source:
                if self._found is None:
                    self._found = source.compression
                for block in blocks(source, base=start, limits=self._limits):
                    yield block
                    if self._progress is not None:
                        self._progress(before + source.consumed, total)
            before += size or 0

    def packer(self) -> tuple[str, Encoder]:
        """An encoder for one file, as it was asked for, or as the first source is compressed."""
        name = check_name(self._wanted) if self._wanted is not None else self._found or "none"
        return name, open_encoder(name, self._level)


def record_sizes(block: Block) -> Array:
    """The bytes that each record takes, its frame included."""
    sizes: Array = block.records[:, 1] + FRAME_BYTES
    return sizes


def record_bytes(block: Block, start: int, stop: int) -> memoryview:
    """The bytes of some records of a block, which lie one behind the other."""
    first, (last, size) = int(block.records[start, 0]), block.records[stop - 1].tolist()
    return block.data[first - HEADER_BYTES : last + size + FRAME_BYTES - HEADER_BYTES]


def _size(target: Any) -> int | None:
    path, start, end = byte_range(target)
    if end is not None:
        return end - start
    return os.path.getsize(path) if storage.is_local(path) and os.path.isfile(path) else None


class RecordFile:
    """A TFRecord file that takes records as bytes."""

    def __init__(self, path: Any, packer: tuple[str, Encoder], sync: bool) -> None:
        name, compress = packer
        self.files = Files([Sink(Output(path, durable=sync), None if name == "none" else compress)])

    def add(self, records: memoryview) -> None:
        self.files.put([records])

    def close(self, showing: AbstractContextManager[None] | None = None) -> None:
        """Make it visible, in the block `showing`."""
        self.files.finish()
        with showing or contextlib.nullcontext():
            self.files.close()

    def abort(self) -> None:
        self.files.abort()


@contextlib.contextmanager
def copy_schema(
    sources: Sequence[str], dst: str, sync: bool, files: sidecar.Files, changes: list[str], follow: bool = True
) -> Iterator[None]:
    """Keep the schema that is beside the sources beside the result too, which becomes visible in the block.

    One that was there before is not of it. `follow` says that the result goes where a link leads.
    """
    beside = dict.fromkeys(sidecar_path(base_path(path)) for path in sources)
    found = {place: schema for place in beside if (schema := load_beside(place)) is not None}
    try:
        schema = Schema.merged(list(found.items())) if found and len(found) == len(beside) else None
    except SchemaError as error:
        changes.append(f"no schema beside the result: {error.fault}")
        schema = None
    places = sidecar.places(dst, follow)
    if schema is None:  # one that a source has stays
        places = [place for place in places if place.path not in beside]
    with sidecar.Sidecar(places, sync).saved(schema, None, files):
        yield


# ---- rows and objects -----------------------------------------------------------


class TableFile:
    """An Arrow or Parquet file that takes batches of rows."""

    def __init__(self, path: Any, format: str, sync: bool, options: Options) -> None:
        from tensorbytes.formats._arrow.batches import BatchWriter

        known = formats.get(format).write_options - {"rows"}
        formats.check_options(formats.get(format), options, known)
        self._writer = BatchWriter(path, format, sync=sync, **options)

    def add(self, columns: Mapping[str, Any]) -> None:
        self._writer.write(columns)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.abort()


class _Stream:
    """A stream of the native frame."""

    def __init__(self, path: Any, options: Options) -> None:
        formats.check_options(formats.get("tb"), options, formats.get("tb").write_options)
        self._writer = Writer(lambda document, **_: document, path, append=False, storing=Storing.of(options))

    def add(self, document: Document) -> None:
        self._writer.write(document)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.abort()


class _Encoded:
    """A stream in another format."""

    def __init__(self, path: Any, format: str, sync: bool, options: Options) -> None:
        self._target = EncodedTarget(path, format, frozenset(), sync, options)

    def add(self, document: Document) -> None:
        self._target.add_row(document)

    def close(self) -> None:
        self._target.close()

    def abort(self) -> None:
        self._target.abort()


def stream_file(path: Any, format: str, sync: bool, options: Options) -> PartFile:
    """A stream of objects, being written."""
    if not formats.get(format).streams:
        raise UsageError(
            f"format {format!r} holds no stream of objects",
            hints=[
                Hint(purpose="use .tb or .pbs"),
                Hint(operation="convert", arguments=("src", "dst"), purpose="makes one of the result"),
            ],
        )
    return _Stream(path, options) if format == "tb" else _Encoded(path, format, sync, options)


def sound(source: Documents, document: Document) -> Document:
    """The document, once what lazy decoding left unread was verified."""
    with naming(source.path):
        return checked(document)


def stored_otherwise(document: Document, options: Options) -> list[str]:
    """What is to be said of tensors that were stored in a way which is not kept."""
    if Storing.of(options).changes or all(leaf.stored is None for leaf in document.leaves):
        return []
    return ["tensors that were compressed or quantized are stored plainly: pass compression= to pack them again"]
