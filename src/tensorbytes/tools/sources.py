"""Any file as what it holds: one document, a stream of documents, or a table of rows.

| source    | is                                                 | gives                          |
| --------- | -------------------------------------------------- | ------------------------------ |
| Documents | every format; several documents make a stream      | documents, lazily decoded      |
| Table     | TFRecord files of Examples, Arrow and Parquet      | columns of some rows at a time |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tensorbytes import formats, frameworks, opening, storage
from tensorbytes.errors import LIMITS, Hint, Limits, UsageError, unknown
from tensorbytes.formats import Options
from tensorbytes.reader import naming
from tensorbytes.tensor import Array, Value
from tensorbytes.tools import recognition, rows
from tensorbytes.tools.recognition import named_records
from tensorbytes.tree import Document, Leaf, plain

TFRECORD = "tfrecord"
# Formats whose files are tables of rows.
TABLES = frozenset({TFRECORD, "arrow", "parquet"})
# Rows are read this many at a time.
BATCH_ROWS = 4096
_RECORD_OPTIONS = frozenset({"columns", "schema", "compression", "on_corrupt", "verify", "threads"})
_NO_TENSORS = {
    recognition.EVENTS: (
        "TensorBoard's events",
        [
            Hint(operation="read_events", arguments=("paths",), purpose="reads them"),
            Hint(operation="inspect", arguments=("path",), purpose="lists them"),
        ],
    ),
    recognition.OTHERS: (
        "a TFRecord file of something else than Examples and tensors",
        [Hint(operation="open_records", arguments=("path",), purpose="has payloads(), the bytes of each record")],
    ),
}


__all__ = [
    "BATCH_ROWS",
    "TABLES",
    "TFRECORD",
    "ArrowTable",
    "Columns",
    "Documents",
    "Records",
    "Table",
    "as_table",
    "checked",
    "named_records",
    "open_source",
    "row_documents",
]


class Columns(NamedTuple):
    """Some rows: a column of values under each name; `present` where some rows lack a value."""

    values: dict[str, Value]
    size: int
    present: Mapping[str, Array] = {}
    scalars: frozenset[str] = frozenset()  # ragged columns whose rows, where they are there, are scalars


class Documents:
    """A file of documents."""

    def __init__(self, path: str, found: opening.Found, limits: Limits, options: Options) -> None:
        self.path, self.format, self.data, self.limits = path, found.chosen.name, found.data, limits
        self._found, self._options = found, options
        self._decode = found.decoder(path, limits, options)

    def documents(self) -> Iterator[Document]:
        """The documents one after another, lazily decoded."""
        with naming(self.path):
            yield from map(plain, self._decode(True))

    def objects(self) -> list[Leaf]:
        """What stands in the file and is not read; of formats that may hold such things."""
        if "objects" not in self._found.chosen.read_options:
            return []
        return [leaf for document in self.documents() for leaf in document.leaves if leaf.kind == "object"]

    def without_objects(self) -> Documents:
        """The same file with these left out."""
        return Documents(self.path, self._found, self.limits, {**self._options, "objects": "skip"})

    def verified(self) -> Iterator[Document]:
        """The same, every byte checked that can be checked."""
        with naming(self.path):
            yield from map(plain, self._decode(False))


class Table:
    """A file of rows."""

    path: str
    format: str

    def batches(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Columns]:
        """Columns of `size` rows at a time, checked; only those whose name is taken are read."""
        raise NotImplementedError


def check_record_options(path: str, options: Options) -> None:
    """Refuse options that open_records does not have, or that are not for whoever reads a file here."""
    wrong = sorted(options.keys() - _RECORD_OPTIONS)
    if wrong:
        known = ", ".join(sorted(_RECORD_OPTIONS))
        raise UsageError(f"records are read with no option {wrong[0]!r} here; known: {known}", path=path)


class Records(Table):
    """TFRecord files of Examples."""

    format = TFRECORD

    def __init__(self, path: Any, options: Options, limits: Limits = LIMITS) -> None:
        from tensorbytes.records import open_records

        self.path = storage.describe(path)
        check_record_options(self.path, options)
        self._open = partial(open_records, path, to="tensor", limits=limits, **options)
        self.records = self._open()
        self.compression = str(options.get("compression", "auto"))

    def batches(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Columns]:
        schema, records = self.records.schema, self.records
        if takes is not None and not all(map(takes, schema)):
            records = self._open(columns=[name for name in schema if takes(name)], schema=schema)
        scalars = frozenset(name for name, feature in schema.items() if feature.optional and not feature.shape)
        for batch in records.batches(size):
            values = {name: frameworks.to_value(column) for name, column in batch.items()}
            yield Columns(values, batch.records, batch.present, scalars)


class ArrowTable(Table):
    """Arrow and Parquet files, a record batch at a time."""

    def __init__(self, source: Documents, document: Document) -> None:
        self.path, self.format, self.document = source.path, source.format, document
        self._source = source

    def batches(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Columns]:
        from tensorbytes.formats._arrow import batches as arrow_batches

        names = [str(leaf.name) for leaf in self.document.leaves]
        everything = takes is None or all(map(takes, names))  # a tensor without a name is a column all the same
        chosen = None if everything or takes is None else [name for name in names if takes(name)]
        source = self._source
        for values in arrow_batches.read_batches(source.data, size, columns=chosen, limits=source.limits):
            yield Columns(values, next((rows.count(value) or 0 for value in values.values()), 0))


def open_source(
    target: Any, format: str | None = None, *, limits: Limits = LIMITS, options: Options | None = None
) -> Documents | Table:
    """What a path, a URL, a glob of records or a file object holds, recognised by its content."""
    given = options or {}
    kind = recognition.kind_of(target) if format is None else format
    if kind == TFRECORD:
        return Records(target, given, limits)
    if kind in (recognition.EVENTS, recognition.OTHERS):
        what, hints = _NO_TENSORS[kind]
        raise UsageError(what, path=storage.describe(target), hints=hints)
    if format is not None and format not in formats.BUILTIN:
        raise unknown("format", format, (*formats.BUILTIN, TFRECORD))
    path, found = storage.describe(target), opening.mapped(target, format)
    if format is None and found.chosen.name == "raw" and "dtype" not in given and found.data is not None:
        opening.refuse_wrong(bytes(found.data[: formats.SNIFF_BYTES]), path, None)  # called so, but perhaps known
    return Documents(path, found, limits, given)


def as_table(source: Documents | Table) -> Table | None:
    """The source as a table of rows, if it is one."""
    if isinstance(source, Table):
        return source
    if source.format not in TABLES:
        return None
    from tensorbytes.formats._arrow import batches as arrow_batches

    if not arrow_batches.has_rows(source.data):
        return None
    return ArrowTable(source, next(source.documents(), Document([])))


def checked(document: Document) -> Document:
    """The document, once what lazy decoding left unread was looked at."""
    for leaf in document.leaves:
        if leaf.check is not None:
            leaf.check()
    return document


def row_documents(columns: Columns) -> Iterator[Document]:
    """Each row of some columns as a document."""
    split = {name: list(rows.rows_of(value)) for name, value in columns.values.items()}
    for name in columns.scalars & split.keys():
        split[name] = [rows.scalar(row) for row in split[name]]
    for index in range(columns.size):
        present = (name for name in split if name not in columns.present or columns.present[name][index])
        yield Document([Leaf(split[name][index], (("key", name),)) for name in present])
