"""Tables in batches of rows: written one after the other, read back in batches of any size."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbytes.budget import Budget
from tensorbytes.errors import (
    LIMITS,
    Hint,
    Limits,
    SchemaError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats._arrow import ipc as arrow_ipc
from tensorbytes.formats._arrow import parquet as arrow_parquet
from tensorbytes.formats._arrow import table as arrow_table
from tensorbytes.formats._arrow import thrift as arrow_thrift
from tensorbytes.formats._arrow.ipc import empty
from tensorbytes.formats._arrow.table import ColumnReader, StoredTable, TableReader
from tensorbytes.formats._arrow.words import GrowingWords
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.formats._opened import BATCH_ROWS, Created, Opened, as_loss
from tensorbytes.formats._torch import unread
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.lazy import made_once
from tensorbytes.rows import Column, Listing, Table, cut, spread
from tensorbytes.tensor import Array, Ragged, Value, with_meta, with_origin
from tensorbytes.tree import Document, Path
from tensorbytes.typing import bytes_view

# Rows that come one by one are written this many at a time.
_GATHERED_ROWS = 1024
# Of rows that take few bytes, this many bytes are read at a time, but no more than this many rows: each column of a
# batch takes some steps, however short it is.
_BATCH_BYTES = 4 << 20
_MOST_BATCH_ROWS = 1 << 16


class BatchWriter:
    """Writes batches of rows: neutral values by name, which share their leading axis.

    `kind` is "arrow" or "parquet"; by default what the suffix of the target says. `stream`,
    `compression`, `row_group_rows` and `shapes` are the options of these formats. The first
    batch makes the schema, and later ones must have the same columns. A local file appears,
    whole, when the writer is closed; when an exception ends the `with` block, the file that
    was there before stays.

    A batch is a record batch in Arrow. In Parquet, batches are gathered into row groups of
    `row_group_rows` rows, or of about 64 MiB.
    """

    def __init__(
        self,
        target: storage.Target,
        kind: str | None = None,
        *,
        stream: bool | None = None,
        compression: str | None = "default",
        row_group_rows: int | None = None,
        shapes: bool = False,
        sync: bool = True,
    ) -> None:
        storage.check_target(target, "write")
        suffix = os.path.splitext(str(target))[1].lower() if storage.is_path(target) else ""
        self._kind = kind or ("parquet" if suffix == ".parquet" else "arrow")
        if self._kind not in ("arrow", "parquet"):
            raise UsageError(f"kind={kind!r}", expected="'arrow' or 'parquet'")
        if row_group_rows is not None and self._kind == "arrow":
            raise UsageError("row_group_rows goes with Parquet; in Arrow each batch is a record batch")
        self._stream = suffix == ".arrows" if stream is None else stream
        self._shapes = shapes
        default = "zstd" if self._kind == "parquet" else None
        self._compression = default if compression == "default" else compression
        self._group_rows = row_group_rows
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._schema: Any = None
        self._writer: Any = None
        self._words: GrowingWords | None = None
        self.rows = 0
        self._stack = contextlib.ExitStack()
        self._file: Any = self._stack.enter_context(storage.writing(target, sync=sync))
        self._sink = arrow_ipc.Pieces()

    def write(self, columns: Mapping[str, Value]) -> None:
        """Add a batch."""
        self.write_table(Table(dict(columns), 0), nullable=False)

    def write_table(self, content: Table, nullable: bool = True) -> None:
        """Add a batch, some elements of which may be missing; with `nullable`, also where none of the first are."""
        if self._file is None:
            raise UsageError("the writer is closed")
        if not content.columns:
            raise UsageError("a batch without columns")
        table = arrow_table.table_of_rows(
            content, seconds=self._kind != "parquet", shapes=self._shapes, nullable=nullable
        )
        if self._schema is None:
            self._start(table)
        table = self._fitted(table)
        self.rows += table.num_rows
        if self._kind == "parquet":
            self._gather(table)
        else:
            for batch in table.to_batches():
                self._writer.write_batch(batch if self._words is None else self._words.batch(batch))
        self._drain()

    def _start(self, table: Any) -> None:
        self._schema = table.schema
        if self._kind == "parquet":
            arrow_parquet.group_rows(table, self._group_rows)
            with arrow_parquet.refusing_types():
                self._writer = arrow_parquet.writer(self._sink, self._schema, self._compression)
        else:
            self._words = None if self._stream else GrowingWords(self._schema)
            self._writer = arrow_ipc.writer(self._sink, self._schema, self._stream, self._compression)

    def _fitted(self, table: Any) -> Any:
        """The same batch with its columns in the order of the first one."""
        names = self._schema.names
        if sorted(table.schema.names) != sorted(names):
            missing = sorted(set(names) ^ set(table.schema.names))
            raise SchemaError(
                f"the batch from row {self.rows} on and the first one differ in the column {missing[0]!r}"
            )
        if table.schema.names != names:  # by number: names may occur twice
            places: dict[str, list[int]] = {}
            for number, name in enumerate(table.schema.names):
                places.setdefault(name, []).append(number)
            table = table.select([places[name].pop(0) for name in names])
        for number, (want, got) in enumerate(zip(self._schema, table.schema, strict=True)):
            if want.nullable and not got.nullable:
                got = got.with_nullable(True)
                table = table.set_column(number, got, table.column(number))
            if not want.equals(got, check_metadata=True):
                raise SchemaError(
                    f"column {want.name!r} is {_described(got)} from row {self.rows} on, and {_described(want)} before"
                )
        return table

    def _gather(self, table: Any) -> None:
        """Keep a batch until there is enough for a row group."""
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        rows = sum(piece.num_rows for piece in self._pending)
        if self._group_rows is None:
            done = rows if self._pending_bytes >= arrow_parquet.GROUP_BYTES else 0
        else:
            done = rows // self._group_rows * self._group_rows
        if done:
            whole = arrow().concat_tables(self._pending)
            self._put(whole.slice(0, done))
            self._pending = [whole.slice(done)] if done < rows else []
            self._pending_bytes = 0
        if self._pending:  # in memory of our own: the caller may fill the same arrays again
            self._pending[-1] = _copied(self._pending[-1])

    def _put(self, table: Any) -> None:
        with arrow_parquet.refusing_types():
            self._writer.write_table(table, row_group_size=arrow_parquet.group_rows(table, self._group_rows))

    def _drain(self) -> None:
        storage.write_pieces(self._file, self._sink.take())

    def close(self) -> None:
        """Finish the file; it appears now."""
        if self._file is None:
            return
        try:
            if self._writer is None:
                raise UsageError(
                    "no batch was written, so there is no schema", hints=[Hint(purpose="write one, if without rows")]
                )
            if self._pending:
                self._put(arrow().concat_tables(self._pending))
            self._writer.close()
            self._drain()
        except BaseException as error:
            self._abandon(error)
            raise
        self._file = None
        self._stack.close()

    def abort(self) -> None:
        """Give up: a local file that was there before stays as it was."""
        if self._file is not None:
            self._abandon(UsageError("given up"))

    def _abandon(self, error: BaseException) -> None:
        self._file = self._writer = None
        with contextlib.suppress(type(error)):
            self._stack.__exit__(type(error), error, error.__traceback__)

    def __enter__(self) -> BatchWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.close()
        elif self._file is not None:
            self._abandon(error)


def _copied(table: Any) -> Any:
    pa = arrow()
    if any("dictionary<" in str(field.type) for field in table.schema):  # which are messages of their own
        room = pa.BufferOutputStream()
        with pa.ipc.new_stream(room, table.schema) as writer:
            writer.write_table(table)
        return pa.ipc.open_stream(room.getvalue()).read_all()
    batches = [pa.ipc.read_record_batch(batch.serialize(), table.schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, table.schema)


def _described(field: Any) -> str:
    note = (field.metadata or {}).get(arrow_table.KEY, b"").decode()
    return f"{field.type}{f' with the note {note}' if note else ''}"


def check(columns: Mapping[str, Value]) -> None:
    """Raise what `write` would raise over these values."""
    arrow_table.table(arrow_table.by_name(columns), rows=True)


# ---- as files of rows ---------------------------------------------------------


class OpenedTable(Opened):
    """Arrow and Parquet files, a record batch at a time."""

    @made_once
    def rows(self) -> bool:
        """Whether it is a table of rows, rather than one document in a single row."""
        return self.data is not None and _has_rows(self._stored, self.limits)

    @made_once
    def may_hold_objects(self) -> bool:
        """The schema tells: nobody has to look at all leaves, the masks of which may have to be read."""
        if self.data is None:
            return super().may_hold_objects
        with naming(self.path):
            return bool(arrow_table.open_table(self._stored, Budget(self.limits)).unknown)

    @made_once
    def _stored(self) -> StoredTable:
        return _opened(self.data, Budget(self.limits))

    def tables(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Table]:
        with naming(self.path):
            budget = Budget(self.limits)
            opened = self._stored
            readers = arrow_table.open_table(opened, budget)
            if readers.unknown and not unread.skips(self.options):
                asked = [one for one in readers.unknown if takes is None or takes(one.name)]
                if asked:
                    raise asked[0].error.replaced(hints=[unread.SKIP])
            names = [reader.name for reader, _ in readers.columns]
            everything = takes is None or all(map(takes, names))  # a tensor without a name is a column all the same
            chosen = None if everything or takes is None else [name for name in names if takes(name)]
            yield from _batches(opened, _chosen(readers, chosen), size, budget)

    def listed(self, everything: bool = False) -> Iterator[Listing]:
        with naming(self.path):
            budget, opened = Budget(self.limits), self._stored
            found = arrow_table.document(opened, budget, True, unread.skips(self.options), masks=False)
            yield Listing(found, arrow_table.missing(opened, budget, everything))

    @made_once
    def batch_rows(self) -> int:
        with naming(self.path):
            opened = self._stored
            readers = arrow_table.open_table(opened, Budget(self.limits)).columns
            claim = sum(reader.claim(0, len(opened.lengths)) for reader, _ in readers)
        each = max(max(self.size, claim) // max(self.count(), 1), 1)
        return min(max(_BATCH_BYTES // each, BATCH_ROWS), _MOST_BATCH_ROWS)

    def as_document(self) -> Document | None:
        """A table of somebody else's says nothing beside its values that tables don't keep."""
        return None if self.rows and self._is_foreign else super().as_document()

    @made_once
    def _is_foreign(self) -> bool:
        return arrow_table.KEY not in (self._stored.schema.metadata or {})

    def count(self) -> int:
        return sum(self._stored.lengths) if self.rows else super().count()


class CreatedTable(Created):
    """Arrow and Parquet files; rows that come one by one are gathered."""

    columns_only = True

    def __init__(self, target: storage.Target, kind: str, options: Mapping[str, Any], sync: bool) -> None:
        self._target = target
        self._writer = BatchWriter(target, kind, sync=sync, **options)
        self._waiting: dict[str, Column] = {}
        self._present: dict[str, list[bool]] = {}  # which of the rows that wait have each column
        self._like: dict[str, Value] = {}  # what each column is, without rows
        self._ragged: set[str] = set()
        self._rows = self._count = 0

    def check(self, columns: Mapping[str, Value]) -> None:
        with as_loss():
            check(columns)

    def add(self, item: Document | Table) -> None:
        if isinstance(item, Table):
            self._drain()
            self._writer.write_table(item)
            self._count += item.rows
            return
        for leaf in item.leaves:
            name = str(leaf.name)
            if name not in self._waiting:
                self._waiting[name] = Column(ragged=name in self._ragged)
                self._present[name] = []
            flags = self._present[name]
            flags += [False] * (self._rows - len(flags)) + [True]
            self._waiting[name].add_row(leaf.read())
        self._rows += 1
        self._count += 1
        if self._rows >= _GATHERED_ROWS:
            self._drain()

    def _drain(self) -> None:
        if not self._rows:
            return
        columns: dict[str, Value] = {}
        masks: dict[tuple[str, int], Array] = {}
        for name in dict.fromkeys([*self._like, *self._waiting]):
            waiting = self._waiting.get(name)
            found = self._like[name] if waiting is None else waiting.finish()
            # Once ragged, always ragged: a batch of equal rows by chance is not another column.
            if isinstance(found, Ragged):
                self._ragged.add(name)
            self._like.setdefault(name, cut(found, 0, 0))
            flags = self._present.get(name, [])
            present = np.array(flags + [False] * (self._rows - len(flags)), bool)
            if not present.all():
                found, masks[name, 0] = spread(found, present), present
            columns[name] = found
        self._writer.write_table(Table(columns, self._rows, masks))
        self._waiting, self._present, self._rows = {}, {}, 0

    def close(self) -> list[str]:
        self._drain()
        self._writer.close()
        return [storage.describe(self._target)]

    def abort(self) -> None:
        self._writer.abort()


# ---- reading ------------------------------------------------------------------


def has_rows(source: Any, limits: Limits = LIMITS) -> bool:
    """Whether a file is a table of rows, which read_batches gives, rather than one document in a single row."""
    return _has_rows(_opened(source, Budget(limits)), limits)


def _has_rows(stored: StoredTable, limits: Limits) -> bool:
    found = arrow_table.open_table(stored, Budget(limits))
    return found.by_row and not any(reader.nested or {"layout", "of"} & set(note) for reader, note in found.columns)


def _opened(source: Any, budget: Budget) -> StoredTable:
    if not storage.is_path(source):
        data = bytes_view(source)
    else:
        data = storage.map_file(source) if storage.is_local(source) else storage.read(source)
    if bytes(data[:4]) == arrow_thrift.MAGIC:
        return arrow_parquet.Parquet(data)
    return arrow_ipc.Ipc(data, budget, lazy=True)


def read_batches(
    source: Any, rows: int, *, columns: Sequence[str] | None = None, limits: Limits = LIMITS
) -> Iterator[dict[str, Value]]:
    """Batches of `rows` rows, the last one of what is left, out of Arrow files, streams or Parquet.

    `source` is a path (a local file is mapped) or bytes. Each batch has the neutral values
    by column, their leading axis the rows. `columns` chooses some. A table of one row is
    one batch of one row; columns that make a value only together (sparse ones) are refused.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise UsageError(f"batches of {rows!r} rows: expected a whole number, 1 or more")
    budget = Budget(limits)
    opened = _opened(source, budget)
    readers = arrow_table.open_table(opened, budget)
    tables = _batches(opened, _chosen(readers, columns), rows, budget)
    return (_without_masks(table) for table in tables if table.rows)


def _without_masks(table: Table) -> dict[str, Value]:
    if table.masks:
        name, _ = min(table.masks)
        raise UnsupportedError(f"column {name!r} has nulls", tensor=name, hints=[Hint(purpose="read it as a table")])
    return table.columns


# A column, its metadata and its origin.
_Chosen: TypeAlias = tuple[ColumnReader, dict[str, str], dict[str, str]]


def _texts(said: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in said.items()} if isinstance(said, dict) else {}


def _chosen(readers: TableReader, columns: Sequence[str] | None) -> list[_Chosen]:
    found = {}
    for reader, note in readers.columns:
        if columns is not None and reader.name not in columns:
            continue
        if "layout" in note or "of" in note or reader.nested:
            raise UnsupportedError(
                f"column {reader.name!r} is one value, not rows of it",
                tensor=reader.name,
                hints=[Hint(operation="load", arguments=("path",), purpose="reads the file")],
            )
        found[reader.name] = reader, _texts(note.get("meta")), _texts(note.get("origin"))
    missing = [name for name in columns or () if name not in found]
    if missing:
        names = [reader.name for reader, _ in readers.columns]
        raise UsageError(f"there is no column {missing[0]!r}; there are {', '.join(map(repr, names[:8]))}")
    return list(found.values())


def _batches(stored: StoredTable, chosen: list[_Chosen], rows: int, budget: Budget) -> Iterator[Table]:
    origin = arrow_table.origin_of(stored, budget)
    pending: list[list[Any]] = [[] for _ in chosen]
    have = 0
    for number, count in enumerate(stored.lengths):
        budget = budget.renewed(stored.size)
        for reader, *_ in chosen:
            reader.charge(number, number + 1, budget)
        with stored.together([reader.number for reader, *_ in chosen], number, number + 1):
            for held, (reader, *_) in zip(pending, chosen, strict=True):
                held.extend(reader.fetch(number, number + 1))
        have += count
        while have >= rows:
            yield _taken(pending, chosen, rows, budget.renewed(stored.size))._replace(origin=origin)
            have -= rows
    if have or not sum(stored.lengths):  # a table without rows has columns all the same
        yield _taken(pending, chosen, have, budget.renewed(stored.size))._replace(origin=origin)


def _taken(pending: list[list[Any]], chosen: list[_Chosen], rows: int, budget: Budget) -> Table:
    """The first rows of what is pending, which is taken away."""
    batch: dict[str, Value] = {}
    masks: dict[tuple[str, int], Array] = {}
    paths: dict[str, Path] = {}
    for held, (reader, meta, origin) in zip(pending, chosen, strict=True):
        want, arrays = rows, []
        while want:
            array = held.pop(0)
            if len(array) > want:
                held.insert(0, array.slice(want))
                array = array.slice(0, want)
            if len(array):
                arrays.append(array)
            want -= len(array)
        if not arrays:
            arrays = [empty(reader.stored.schema.field(reader.number).type)]
        found, missing = reader.read_with_masks(arrays, budget)
        batch[reader.name] = with_origin(with_meta(found, meta=meta), origin)
        if reader.keys:
            paths[reader.name] = reader.path
        for (keys, level), mask in missing.items():
            # Of a struct around the column, or of the column itself, whose name may have a number added.
            owner = reader.name if keys == reader.keys else "/".join((reader.field, *keys))
            masks[owner, level] = mask
            if keys and keys != reader.keys:
                paths[owner] = reader.path[: len(keys) + 1]
    return Table(batch, rows, masks, paths=paths)


def table_of_arrow(table: Any, limits: Limits = LIMITS) -> Table:
    """All rows of a pyarrow.Table; memory is shared."""
    opened = arrow_ipc.InMemory(table)
    budget = Budget(limits, table.nbytes)
    readers = arrow_table.open_table(opened, budget)
    if readers.unknown:
        raise readers.unknown[0].error
    (found,) = _batches(opened, _chosen(readers, None), max(table.num_rows, 1), budget)
    return found
