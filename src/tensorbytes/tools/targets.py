"""Where rows go: TFRecord files, Arrow and Parquet tables, streams of documents, or stacked into one document.

A target takes rows as documents, or many at once as columns, and is told at its first rows
what it may lose. Nothing is visible before `close`.
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Iterable
from typing import Any

from tensorbytes import formats, storage
from tensorbytes.errors import Hint, LossError, TensorbytesError, UsageError
from tensorbytes.formats import ADVISORY, Options
from tensorbytes.records import RecordWriter, Schema, open_records
from tensorbytes.records.files.paths import shard_path
from tensorbytes.tensor import Ragged, Strings, Tensor, Value, amended, identical
from tensorbytes.tools import fitting
from tensorbytes.tools.report import Loss, refuse
from tensorbytes.tools.rows import Column, rows_of, scalar
from tensorbytes.tools.sources import TFRECORD, Columns, row_documents
from tensorbytes.tree import Document, Leaf
from tensorbytes.writer import Writer

# Rows that come one by one are handed to a table in batches of so many.
_BATCH_ROWS = 1024


class Target:
    """A file of rows being written."""

    format: str

    def __init__(self, allowed: frozenset[str]) -> None:
        self.allowed = allowed
        self.losses: list[Loss] = []
        self.rows = self.nbytes = 0
        self.names: dict[str, None] = {}
        self._met: set[Any] = set()  # what leaves were like so far

    def add(self, columns: Columns) -> None:
        """Some rows, as columns."""
        for document in row_documents(columns):
            self.add_row(document)

    def add_row(self, row: Document) -> None:
        """One row."""
        raise NotImplementedError

    def close(self) -> list[str]:
        """Make it visible; the paths of the files."""
        raise NotImplementedError

    def abort(self) -> None:
        """Leave no trace."""

    def lost(self, losses: list[Loss]) -> None:
        refuse(losses, self.allowed, self.format)
        self.losses += losses

    def _news(self, row: Document) -> Document:
        """The leaves of a row that are like none before: what is lost of them is not known yet."""
        found = []
        for leaf in row.leaves:
            mark = (leaf.path, leaf.kind, frozenset(leaf.value.meta), frozenset(leaf.value.origin))
            if mark not in self._met:
                self._met.add(mark)
                found.append(leaf)
        return Document(found, {} if self.rows else row.meta, origin={} if self.rows else row.origin)

    def _lacking(self, columns: Columns) -> None:
        for name in columns.present:
            if not any(loss.name == name and loss.feature == "missing" for loss in self.losses):
                self.lost([Loss(name, "missing", "rows that lack it get an empty or zero value")])

    def _count(self, values: dict[str, Value], rows: int) -> None:
        self.rows += rows
        self.nbytes += sum(value.nbytes for value in values.values())
        self.names.update(dict.fromkeys(values))


def row_losses(document: Document) -> list[Loss]:
    """What is lost when a document becomes a row, or its arrays become columns: all but names and tensors."""
    losses = [
        Loss(None, "meta", f"metadata of the whole, such as {key!r}")
        for key in sorted(formats.told_of_the_whole(document))[:1]
    ]
    for leaf in document.leaves:
        if len(leaf.path) > 1 or (leaf.path and leaf.path[0][0] != "key"):
            losses.append(Loss(leaf.name, "structure", "columns have a flat list of names; it was nested"))
        if leaf.kind not in ("", "numpy"):
            losses.append(Loss(leaf.name, "kind", f"that it was a Python {leaf.kind}"))
        value = leaf.value
        own = {key: text for key, text in value.origin.items() if key not in ADVISORY and key != "numpy.dtype"}
        losses += [Loss(leaf.name, "meta", f"metadata {key}={text!r}") for key, text in {**own, **value.meta}.items()]
    return losses


def column_name(leaf: Leaf) -> str:
    return leaf.name if leaf.name is not None else "tensor"


def by_column(leaves: Iterable[Leaf]) -> dict[str, Leaf]:
    """The leaves under their names; {"a": {"b": x}} and {"a/b": x} have the same."""
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        name = column_name(leaf)
        if name in found:
            raise LossError(
                f"two columns would be named {name!r}",
                feature="structure",
                tensor=name,
                hints=[Hint(purpose="rename one")],
            )
        found[name] = leaf
    return found


class TableTarget(Target):
    """Rows of columns of one kind each: what TFRecord, Arrow and Parquet files have in common."""

    def __init__(self, format: str, allowed: frozenset[str]) -> None:
        super().__init__(allowed)
        self.format = format
        self._dropped: set[str] = set()  # columns that can't be held

    def _try(self, values: dict[str, Value]) -> None:
        """Write a batch to nowhere, to see whether it can be written."""
        raise NotImplementedError

    def _fit(self, leaves: list[Leaf], as_rows: bool) -> None:
        """Find out what of the leaves can't be held."""

        def attempt(document: Document, granted: frozenset[str]) -> None:
            column = Column()
            (column.add_row if as_rows else column.add)(document.leaves[0].whole)
            self._try({column_name(document.leaves[0]): column.finish()})

        kept, _, losses = fitting.fitting_leaves(leaves, attempt)
        self.lost(losses)
        self._dropped |= {column_name(leaf) for leaf in leaves} - {column_name(leaf) for leaf in kept}
        if not kept and not self.rows:
            raise LossError(f"nothing of these rows can be written as {self.format!r}", feature="rows")

    def _held(self, leaves: list[Leaf]) -> dict[str, Value]:
        return {name: leaf.whole for name, leaf in by_column(leaves).items() if name not in self._dropped}

    def _held_columns(self, columns: Columns) -> dict[str, Value]:
        leaves = [Leaf(value, (("key", name),)) for name, value in columns.values.items()]
        if not self.rows:
            self._fit(leaves, as_rows=False)
        return self._held(leaves)

    def _held_row(self, row: Document) -> dict[str, Value]:
        news = self._news(row)
        if news.leaves:
            self.lost(row_losses(news))
            self._fit(news.leaves, as_rows=True)
        return self._held(row.leaves)


class RecordTarget(TableTarget):
    """TFRecord files of Examples, with their schema beside them."""

    def __init__(self, path: Any, allowed: frozenset[str], shards: int, sync: bool, options: Options) -> None:
        super().__init__(TFRECORD, allowed)
        self._path, self._shards = path, shards
        _check_arguments(RecordWriter, options)
        self._schema = None if options.get("schema") is None else Schema.of(options["schema"])
        self._lists = frozenset(options.get("lists") or ())
        self._writer = RecordWriter(path, shards=shards, sync=sync, **options)

    def _try(self, values: dict[str, Value]) -> None:
        file = io.BytesIO()
        with _as_loss():
            known = self._schema is not None and all(name in self._schema for name in values)
            schema = self._schema.select(list(values)) if self._schema is not None and known else None
            lists = self._lists & values.keys() if schema is None else None
            writer = RecordWriter(file, schema=schema, lists=lists or None)
            writer.write_batch(values)
            writer.close()
            file.seek(0)
            back = next(open_records(file, schema=writer.schema, to="tensor").batches(1 << 20))
        for name, value in values.items():
            if not _same_rows(back[name], value):
                raise LossError(f"records would give {name!r} back as something else", feature="column")

    def add(self, columns: Columns) -> None:
        if columns.present:
            super().add(columns)
            return
        held = self._held_columns(columns)
        self._writer.write_batch(held)
        self._count(held, columns.size)

    def add_row(self, row: Document) -> None:
        held = self._held_row(row)
        self._writer.write(held)
        self._count(held, 1)

    def close(self) -> list[str]:
        self._writer.close()
        if self._shards == 1:
            return [storage.describe(self._path)]
        return [shard_path(str(self._path), index, self._shards) for index in range(self._shards)]

    def abort(self) -> None:
        self._writer.abort()


def _same_rows(got: Value, given: Value) -> bool:
    """Whether two columns have the same rows; an optional scalar comes back as a row of one or none."""
    got, given = amended(got, None, {}), amended(given, None, {})
    if identical(got, given):
        return True
    scalars = isinstance(given, Tensor | Strings) and len(given.shape) == 1
    pairs = zip(map(scalar, rows_of(got)) if scalars else rows_of(got), rows_of(given), strict=True)
    return all(identical(one, two) for one, two in pairs)


def _check_arguments(writer: Any, options: Options) -> None:
    known = set(inspect.signature(writer).parameters) - {"path", "target", "kind", "mode", "shards", "sync"}
    wrong = sorted(set(options) - known)
    if wrong:
        raise UsageError(f"no option {wrong[0]!r} here; known: {', '.join(sorted(known))}")


class _as_loss:
    """What a writer can't take is a loss of the column."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, TensorbytesError) and not isinstance(error, LossError):
            raise LossError(
                error.fault, feature="column", path=error.path, tensor=error.tensor, hints=error.hints
            ) from error


class ArrowTarget(TableTarget):
    """Arrow and Parquet files; rows that come one by one are gathered."""

    def __init__(self, path: Any, format: str, allowed: frozenset[str], sync: bool, options: Options) -> None:
        from tensorbytes.formats._arrow import batches as arrow_batches

        super().__init__(format, allowed)
        self._batches, self._path = arrow_batches, path
        _check_arguments(arrow_batches.BatchWriter, options)
        self._writer = arrow_batches.BatchWriter(path, format, sync=sync, **options)
        self._pending: dict[str, Column] = {}
        self._ragged: set[str] = set()
        self._waiting = 0

    def _try(self, values: dict[str, Value]) -> None:
        with _as_loss():
            self._batches.check(values)

    def add(self, columns: Columns) -> None:
        self._lacking(columns)
        self._drain()
        held = self._held_columns(columns)
        self._writer.write(held)
        self._count(held, columns.size)

    def add_row(self, row: Document) -> None:
        held = self._held_row(row)
        if self._pending and held.keys() != self._pending.keys():
            odd = min(held.keys() ^ self._pending.keys())
            raise LossError(f"row {self.rows}: a table has the same columns in each row, not {odd!r}", feature="rows")
        for name, value in held.items():
            self._pending.setdefault(name, Column(ragged=name in self._ragged)).add_row(value)
        self._waiting += 1
        self._count(held, 1)
        if self._waiting >= _BATCH_ROWS:
            self._drain()

    def _drain(self) -> None:
        if self._waiting:
            batch = {name: column.finish() for name, column in self._pending.items()}
            # Once ragged, always ragged: a batch of equal rows by chance is no other column.
            self._ragged |= {name for name, value in batch.items() if isinstance(value, Ragged)}
            self._writer.write(batch)
            self._pending, self._waiting = {}, 0

    def close(self) -> list[str]:
        self._drain()
        self._writer.close()
        return [storage.describe(self._path)]

    def abort(self) -> None:
        self._writer.abort()


class StreamTarget(Target):
    """The native frame as a stream: each row is an object of its own."""

    def __init__(self, path: Any, allowed: frozenset[str], options: Options) -> None:
        super().__init__(allowed)
        self.format, self._path = "tb", path
        formats.check_options(formats.get("tb"), options, frozenset())
        self._writer = Writer(lambda document, **_: document, path, append=False)

    def add_row(self, row: Document) -> None:
        self._writer.write(row)
        self._count({column_name(leaf): leaf.whole for leaf in row.leaves}, 1)

    def close(self) -> list[str]:
        self._writer.close()
        return [storage.describe(self._path)]

    def abort(self) -> None:
        self._writer.abort()


class EncodedTarget(Target):
    """A stream in another format: each row encoded, one after the other."""

    def __init__(self, path: Any, format: str, allowed: frozenset[str], sync: bool, options: Options) -> None:
        super().__init__(allowed)
        self.format, self._path, self._options = format, path, options
        self._chosen = formats.get(format)
        formats.check_options(self._chosen, options, self._chosen.write_options)
        self._open = contextlib.ExitStack()
        self._file = self._open.enter_context(storage.writing(path, sync=sync))

    def add_row(self, row: Document) -> None:
        numbered = row._replace(item=self.rows + 1)
        storage.write_pieces(self._file, self._chosen.encode(numbered, frozenset(), self._options))
        self._count({column_name(leaf): leaf.whole for leaf in row.leaves}, 1)

    def close(self) -> list[str]:
        self._open.close()
        return [storage.describe(self._path)]

    def abort(self) -> None:
        with contextlib.suppress(UsageError):
            self._open.__exit__(UsageError, UsageError("given up"), None)


class StackTarget(Target):
    """Rows stacked into one array, or one ragged value, for each name; the data wait in temporary files."""

    def __init__(self, format: str, allowed: frozenset[str]) -> None:
        super().__init__(allowed)
        self.format = format
        self._columns: dict[str, Column] = {}

    def add(self, columns: Columns) -> None:
        self._lacking(columns)
        self._check_names(columns.values)
        for name, value in columns.values.items():
            self._columns.setdefault(name, Column()).add(value)
        self._count(columns.values, columns.size)

    def add_row(self, row: Document) -> None:
        values = {name: leaf.whole for name, leaf in by_column(row.leaves).items()}
        self.lost(row_losses(self._news(row)))
        self._check_names(values)
        for name, value in values.items():
            self._columns.setdefault(name, Column()).add_row(value)
        self._count(values, 1)

    def _check_names(self, values: dict[str, Value]) -> None:
        if self.rows and values.keys() != self._columns.keys():
            odd = min(values.keys() ^ self._columns.keys())
            raise LossError(f"row {self.rows}: rows of different names can't be stacked: {odd!r}", feature="stack")

    def document(self) -> Document:
        """The columns, as one document."""
        if not self._columns:
            raise UsageError("no rows to stack")
        return Document([Leaf(column.finish(), (("key", name),)) for name, column in self._columns.items()])
