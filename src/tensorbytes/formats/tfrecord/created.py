"""Files of records, being written: rows and columns, or the records of other files as they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tensorbytes.errors import Hint, SchemaError, UsageError
from tensorbytes.formats import Options
from tensorbytes.formats._opened import Created, Opened, as_loss
from tensorbytes.formats.tfrecord.opened import OpenedRecords
from tensorbytes.formats.tfrecord.schema import Schema, load_beside, sidecar_path
from tensorbytes.formats.tfrecord.schema.origins import Noted, merge_origins
from tensorbytes.formats.tfrecord.write import sidecar
from tensorbytes.formats.tfrecord.write.check import check, check_whole
from tensorbytes.formats.tfrecord.write.sink import Sink, SinkSet
from tensorbytes.formats.tfrecord.write.tables import TableRows
from tensorbytes.formats.tfrecord.write.writer import RecordWriter
from tensorbytes.io import storage
from tensorbytes.io.output import OutputFile
from tensorbytes.io.paths import base_path, shard_path
from tensorbytes.io.storage import Target
from tensorbytes.io.streams.detection import check_name
from tensorbytes.io.streams.encoders import Encoder, open_encoder
from tensorbytes.rows import Table
from tensorbytes.tensor import Value
from tensorbytes.tree import Document

_COPY_OPTIONS = frozenset({"compression", "level"})


class CreatedRecords(Created):
    """Records being written, with their schema beside them."""

    columns_only = True

    def __init__(self, target: Target, options: Options, sync: bool, shards: int) -> None:
        self._target, self._shards = target, shards
        self._schema = None if options.get("schema") is None else Schema.of(options["schema"])
        self._lists = options.get("lists")
        self._described = options.get("sidecar", True)
        self._tables = TableRows({} if self._schema is None else self._schema.origin)
        self._open = partial(RecordWriter, target, shards=shards, sync=sync, **options)
        # Opening a URL may empty what is there, which something that is refused must not do.
        self._opened: RecordWriter | None = None if storage.is_url(target) else self._open()

    @property
    def _writer(self) -> RecordWriter:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def check(self, columns: Mapping[str, Value]) -> None:
        """What a writer can't take, or would give back as something else, is a loss of the column."""
        with as_loss():
            check(columns, self._schema, self._lists)

    def prepare(self, table: Table) -> Table:
        return self._tables.prepare(table)

    def check_table(self, table: Table) -> None:
        self.check(table.columns)
        with as_loss():
            check_whole(table.columns, self._schema, self._lists, self._schema_for_readers)

    def _schema_for_readers(self, written: Schema) -> Schema | None:
        """What readers will take for the schema of records of this one; None: nothing tells them."""
        places = sidecar.places(self._target)
        if not self._described:  # one that is there already stays
            return next((found for place in places if (found := load_beside(place.path)) is not None), None)
        if any(place.shared for place in places):
            return sidecar.merged(written, sidecar.load(places))
        return written if places else None

    def add(self, item: Document | Table) -> None:
        self._writer.note_origin(self._tables.origin)
        if isinstance(item, Table):
            self._writer.write_table(item)
        else:
            self._writer.write({str(leaf.name): leaf.read() for leaf in item.leaves})

    def close(self) -> list[str]:
        self._writer.close()
        if self._shards == 1:
            return [storage.describe(self._target)]
        return [shard_path(str(self._target), index, self._shards) for index in range(self._shards)]

    def abort(self) -> None:
        if self._opened is not None:
            self._opened.abort()


def _packer(like: OpenedRecords, options: Options) -> tuple[str, Encoder]:
    """An encoder for one file: as it was asked for, or as the first source is compressed."""
    wrong = sorted(set(options) - _COPY_OPTIONS)
    if wrong:
        known = ", ".join(sorted(_COPY_OPTIONS))
        raise UsageError(f"records are copied with no option {wrong[0]!r}; known: {known}")
    wanted = options.get("compression")
    if wanted is not None and check_name(wanted) == "auto":
        raise UsageError(
            "'auto' finds out the compression when reading",
            hints=[Hint("compression", purpose="to say which one to write", of="save")],
        )
    name = check_name(wanted) if wanted is not None else like.found_compression
    return name, open_encoder(name, options.get("level"))


class CreatedCopy(Created):
    """Records being copied as they are."""

    def __init__(self, like: Opened, target: Target, options: Options, sync: bool, inputs: Sequence[str]) -> None:
        assert isinstance(like, OpenedRecords)
        compression, encoder = _packer(like, options)
        self._target, self._sync, self._inputs = target, sync, inputs
        self.changes: list[str] = []
        self.files = SinkSet([Sink(OutputFile(target, durable=sync), None if compression == "none" else encoder)])

    def add(self, item: Any) -> None:
        self.files.put([(0, item)])

    def close(self) -> list[str]:
        self.files.finish()
        beside: AbstractContextManager[None] = contextlib.nullcontext()
        if self._inputs and storage.is_local(self._target):
            target = os.fspath(self._target)  # type: ignore[arg-type]
            beside = copy_schema(self._inputs, target, self._sync, self.files, self.changes)
        with beside:
            self.files.close()
        return [storage.describe(self._target)]

    def abort(self) -> None:
        self.files.abort()


@contextlib.contextmanager
def copy_schema(
    sources: Sequence[str],
    dst: str,
    sync: bool,
    files: sidecar.UnpublishedRecords,
    changes: list[str],
    follow: bool = True,
) -> Iterator[None]:
    """Keep the schema that is beside the sources beside the result too, which becomes visible in the block.

    One that was there before is not of it. `follow` says that the result goes where a link leads.
    """
    beside = dict.fromkeys(sidecar_path(base_path(path)) for path in sources)
    found = {place: schema for place in beside if (schema := load_beside(place)) is not None}
    if found:  # numbers that mean different things must not become one file
        merge_origins([Noted(place, schema.origin, schema.columns.keys()) for place, schema in found.items()])
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
