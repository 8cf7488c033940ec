"""Files of records, opened."""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorbytes import dtypes, frameworks, rows
from tensorbytes.deferred import Deferred, leading_block
from tensorbytes.errors import Hint, Limits, MissingDependencyError, SchemaError, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.formats._opened import NO_COLUMNS, Opened, Progress
from tensorbytes.formats.tfrecord.files import framing
from tensorbytes.formats.tfrecord.files.bytestreams import likely_compression, open_stream
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.files.index import indexes
from tensorbytes.formats.tfrecord.files.inputs import Inputs
from tensorbytes.formats.tfrecord.files.sample import Sample
from tensorbytes.formats.tfrecord.kinds import EVENTS, EXAMPLES, OF_BYTES, OTHERS, kind_of
from tensorbytes.formats.tfrecord.read.infer import hold_features
from tensorbytes.formats.tfrecord.read.reader import Records, open_records
from tensorbytes.formats.tfrecord.schema import Schema
from tensorbytes.io import storage
from tensorbytes.io.paths import byte_range, expand
from tensorbytes.io.source import Source
from tensorbytes.io.streams.detection import decode_start
from tensorbytes.lazy import made_once
from tensorbytes.rows import Table
from tensorbytes.tensor import Array, InvalidValueError, Ragged, Strings, Tensor, Value
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES, is_record_header
from tensorbytes.tree import Document, Leaf, Path


class OpenedRecords(Opened):
    """Files of records, opened: one, or several in order."""

    def __init__(
        self, chosen: Format, source: Source, limits: Limits, options: Options, *, claimed: bool = False
    ) -> None:
        super().__init__(chosen, source, limits, options, claimed=claimed)
        if hasattr(source.target, "read"):
            _ = self.records  # now: a file object is read from where it stands when it is handed over

    @made_once
    def records(self) -> Records:
        """The records, as open_records gives them."""
        return self._records()

    @made_once
    def targets(self) -> list[Any]:
        """Every file: paths, URLs, file objects, Splits. Nothing is read of what stands beside them."""
        return expand(self._target)

    def _records(self, **options: Any) -> Records:
        given = {**self.options, **options}
        if given.get("schema") is not None:  # of a feature spec of TensorFlow, what it says of the records
            given["schema"] = Schema.of(given["schema"])
        return open_records(self._target, to="tensor", limits=self.limits, **given)

    @property
    def _target(self) -> Any:
        return io.BytesIO(self.source.data) if self.source.is_read else self.source.target

    @property
    def compression(self) -> str:
        """How they are said to be compressed."""
        return str(self.options.get("compression", "auto"))

    @property
    def data(self) -> memoryview | None:
        return None

    @property
    def size(self) -> int:
        return 0

    @made_once
    def kind(self) -> str:
        """What the records are: EXAMPLES, EVENTS or OTHERS. The first file that is not empty tells."""
        if self._claimed:
            return EVENTS
        if "schema" in self.options or "columns" in self.options:
            return EXAMPLES
        for target in self.targets:
            path = byte_range(target)[0]
            head = self.source.head if path is self.source.target else Source(path).head
            plain = decode_start(head, likely_compression(head))
            if is_record_header(plain):
                named = "tfevents" in os.path.basename(storage.describe(path))
                if kind_of(plain) == EVENTS or (plain[HEADER_BYTES:][:1] == b"\x09" and named):
                    return EVENTS
                break
        return EXAMPLES if self._holds_examples() else OTHERS

    def _holds_examples(self) -> bool:
        """By the records alone: a schema beside a file, sound or not, has no say in it."""
        if hasattr(self.source.target, "read"):  # has none, and may have been moved
            return self.records.holds_examples
        inputs = Inputs(self.targets, self.compression, 1, self.limits)
        try:
            block = next(iter(Sample(self.targets, None, self.compression, True, self.limits)), None)
        finally:
            inputs.rewind()
        return block is None or hold_features(block)

    @property
    def rows(self) -> bool:
        return self.kind != EVENTS

    def check_rows(self) -> None:
        """Refuse events. Records of bytes are rows of one column."""
        if self.kind == EVENTS:
            raise UsageError(
                "TensorBoard's events",
                path=self.path,
                hints=[
                    Hint(operation="records.read_events", arguments=("paths",), purpose="reads them"),
                    Hint(operation="inspect", arguments=("path",), purpose="lists them"),
                ],
            )

    def decode(self, lazy: bool) -> Iterator[Document]:
        """One document: the columns of all rows, each read when it is asked for, or at once."""
        self.check_rows()
        if not lazy:
            table = next(self._stored_tables(_ALL), None)
            yield NO_COLUMNS if table is None else table.document()
            return
        count = len(self.records)
        yield Document([self._leaf(name, count) for name in self.records.schema])

    def part(self, takes: Callable[[str | None], bool]) -> Iterator[Document]:
        """One document: the columns that are taken, read at once, and the masks and lengths of them."""
        self.check_rows()
        wanted = {name for name in self.records.schema if takes(name)}
        wanted |= rows.taken_columns(self.records.schema, self._owners, wanted.__contains__)
        table = next(self._stored_tables(_ALL, wanted.__contains__), None) if wanted else None
        yield Document([]) if table is None else table.document()

    def _leaf(self, name: str, count: int) -> Leaf:
        """A column that is read when it is asked for; a slice of rows reads these alone."""
        feature = self.records.schema[name]

        def fetch() -> Value:
            return next(self._stored_tables(_ALL, lambda one: one == name)).columns[name]

        def part(index: Any) -> Tensor | Strings:
            block = leading_block((count, *(n or 0 for n in feature.shape)), index, whole_rows=True)
            row = max(math.prod(block.shape[1:]), 1)
            numbers = range(block.first // row, block.first // row + block.shape[0])
            records = self._records(columns=[name], schema=self.records.schema)
            picked = records[list(numbers)][name]
            assert isinstance(picked, Tensor)  # of a dtype that NumPy has, and dense
            found = frameworks.to_value(np.asarray(picked.numpy()[block.rest]))
            assert isinstance(found, Tensor | Strings)
            return found

        text = feature.dtype in ("bytes", "text")
        ragged = None in feature.shape or (feature.optional and bool(feature.shape))
        kind, dtype = "ragged" if ragged else "strings" if text else "tensor", "string" if text else feature.dtype
        apart = part if kind == "tensor" and not feature.optional and feature.dtype in _SLICED else None
        return Leaf(Deferred(kind, dtype, (count, *feature.shape), fetch, 0, apart), (("key", name),))

    def tables(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Table]:
        """Tables; columns that were masks or lengths of others when they were written are these again."""
        self.check_rows()
        try:
            wanted = None if takes is None else self._with_owner(takes)
            schema, paths = self.records.schema, self._paths
            shapes = {name: feature.shape for name, feature in schema.items() if feature.optional}
            inner = _inner_shapes(schema) if schema.origin else {}
            for table in self._stored_tables(size, wanted):
                for name, present in table.present.items():
                    column, shape = table.columns[name], shapes.get(name, ())
                    if isinstance(column, Ragged) and shape and None not in shape:
                        table.columns[name] = rows.fill_missing(column, present, shape)
                for name, shape in inner.items():
                    if name in table.columns:
                        table.columns[name] = rows.with_axes(table.columns[name], shape)
                yield table.with_levels().with_masks()._replace(paths=paths)
        except InvalidValueError as error:
            raise SchemaError(error.fault, path=self.path) from None

    @made_once
    def _owners(self) -> dict[str, str]:
        """The features that are masks or lengths of others, and of which."""
        origin = self.records.schema.origin
        try:
            owners = rows.owners(origin)
        except InvalidValueError as error:
            raise SchemaError(error.fault, path=self.path) from None
        for key, word in ((rows.MASKS, "mask"), (rows.LEVELS, "lengths")):
            for column, (name, level) in rows.told_places(origin.get(key, "{}")).items():
                usual = f"{name}/{word}{level}"
                if column != usual and not column.startswith(f"{usual}~"):
                    fault = f"the note of masks and levels is not sound: {column!r} is no {usual!r}"
                    raise SchemaError(fault, path=self.path)
        return owners

    def _with_owner(self, takes: Callable[[str], bool]) -> Callable[[str], bool]:
        """What takes some features, with the masks and lengths of them, and of the structs that they are fields of."""
        return rows.taken_columns(self.records.schema, self._owners, takes).__contains__

    @made_once
    def _paths(self) -> dict[str, Path]:
        """The keys that names stand for: as Arrow's schema tells them, or what structs have masks of their own."""
        schema, owners = self.records.schema, self._owners
        structs = {name for name in owners.values() if name not in schema}
        found: dict[str, Path] = {}
        try:
            from tensorbytes.formats._arrow.schemas import schema_of
            from tensorbytes.formats._arrow.table import flat_fields

            noted, since = schema_of(schema.origin)
        except MissingDependencyError:
            noted, since = None, {}
        for field in () if noted is None else flat_fields(noted):
            for name, keys in zip(field.names, field.keys, strict=True):
                for depth in range(1, len(keys)):
                    owner = "/".join((field.name, *keys[:depth]))
                    found[owner] = tuple(("key", key) for key in (field.name, *keys[:depth]))
                if keys and name not in since:
                    found[name] = tuple(("key", key) for key in (field.name, *keys))
        for name in [*structs, *schema] if structs else ():
            above = [0, *sorted(len(owner) + 1 for owner in structs if name.startswith(f"{owner}/")), len(name) + 1]
            if len(above) > 2 and name not in found and name not in since:
                found[name] = tuple(("key", name[start : stop - 1]) for start, stop in itertools.pairwise(above))
        return found

    def _stored_tables(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Table]:
        """Tables of the features as they are stored."""
        schema, records = self.records.schema, self.records
        if takes is not None and not all(map(takes, schema)):
            records = self._records(columns=[name for name in schema if takes(name)], schema=schema)
        scalars = {name for name, feature in schema.items() if feature.optional and not feature.shape}
        for batch in records.batches(size):
            columns = {name: _value(column) for name, column in batch.items()}
            masks = {}
            for name, present in batch.present.items():
                masks[name, 0] = present
                if name in scalars and isinstance(columns[name], Ragged):
                    columns[name] = rows.fill_missing(columns[name], present)
            yield Table(columns, batch.records, masks, schema.origin)

    def payloads(self) -> Iterator[bytes]:
        return self.records.payloads()

    def as_document(self) -> None:
        return None

    def count(self) -> int:
        return sum(map(len, indexes(self.targets, self.compression, self.limits)))

    @property
    def holds_records(self) -> bool:
        return True

    def files(self) -> list[str]:
        return [storage.describe(byte_range(target)[0]) for target in self.targets]

    def options_like(self, takes: Callable[[str], bool], rename: Callable[[str], str] | None) -> dict[str, Any]:
        if self.kind == OTHERS:
            raise UsageError(
                f"{OF_BYTES}: written as Examples they would be other records",
                path=self.path,
                hints=[
                    Hint(operation="merge", arguments=("path", "target"), purpose="copies them as they are"),
                    Hint("format", "parquet", "to have them in a table", of="save"),
                ],
            )
        schema = self.records.schema
        if rename is not None:
            return {"lists": [rename(name) for name in schema.lists if takes(name)]} if schema.lists else {}
        takes = self._with_owner(takes)
        some = [name for name in schema if takes(name)]
        return {"schema": schema if len(some) == len(list(schema)) else schema.select(some)}

    # The compression of the first file, known once its first records were read.
    found_compression = "none"

    def as_stored(self, progress: Progress | None = None) -> Iterator[tuple[StoredRecords, Array]]:
        sizes = [_file_size(target) for target in self.targets]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        before = 0
        for target, size in zip(self.targets, sizes, strict=True):
            path, start, end = byte_range(target)
            with open_stream(path, self.compression, start, end, limits=self.limits) as stream:
                if not before:
                    self.found_compression = stream.compression
                for block in framing.blocks(stream, base=start, limits=self.limits):
                    yield StoredRecords(block), block.records[:, 1] + FRAME_BYTES
                    if progress is not None:
                        progress(before + stream.consumed, total)
            before += size or 0


# As many rows as there are.
_ALL = 1 << 40
# Dtypes that NumPy has, so that it can index them.
_SLICED = frozenset(name for name in dtypes.DTYPES if name in np.sctypeDict)


def _inner_shapes(schema: Schema) -> dict[str, tuple[int, ...]]:
    """Of features that are lists of elements of one shape, that shape."""
    found = {}
    for name, feature in schema.items():
        inner = tuple(size for size in feature.shape[1:] if size is not None)
        if feature.shape[:1] == (None,) and inner and len(inner) == len(feature.shape) - 1:
            found[name] = inner
    return found


def _value(column: Any) -> Value:
    return frameworks.to_value(column)


def _file_size(target: Any) -> int | None:
    path, start, end = byte_range(target)
    if end is not None:
        return end - start
    return os.path.getsize(path) if storage.is_local(path) and os.path.isfile(path) else None


class StoredRecords:
    """Some records as they are stored."""

    def __init__(self, block: RecordBlock) -> None:
        self.block = block

    def cut(self, start: int, stop: int) -> memoryview:
        """The bytes of records start to stop, which lie one after the other."""
        first, (last, size) = int(self.block.records[start, 0]), self.block.records[stop - 1].tolist()
        return self.block.data[first - HEADER_BYTES : last + size + FRAME_BYTES - HEADER_BYTES]
