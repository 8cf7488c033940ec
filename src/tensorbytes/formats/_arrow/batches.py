"""Tables in batches of rows: written one after the other, read back in batches of any size."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tensorbytes import storage
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, Hint, Limits, SchemaError, UnsupportedError, UsageError
from tensorbytes.formats._arrow import ipc as arrow_ipc
from tensorbytes.formats._arrow import parquet as arrow_parquet
from tensorbytes.formats._arrow import table as arrow_table
from tensorbytes.formats._arrow import thrift as arrow_thrift
from tensorbytes.formats._arrow.read import Rows
from tensorbytes.formats._arrow.table import Place, Source
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.tensor import Value, with_meta, with_origin
from tensorbytes.typing import bytes_view


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
        self.rows = 0
        self._stack = contextlib.ExitStack()
        self._file: Any = self._stack.enter_context(storage.writing(target, sync=sync))
        self._sink = arrow_ipc.Pieces()

    def write(self, columns: Mapping[str, Value]) -> None:
        """Add a batch."""
        if self._file is None:
            raise UsageError("the writer is closed")
        document = arrow_table.by_name(columns)
        if not document.leaves:
            raise UsageError("a batch without columns")
        table = arrow_table.table(document, rows=True, seconds=self._kind != "parquet", shapes=self._shapes)
        if self._schema is None:
            self._start(table)
        table = self._fitted(table)
        self.rows += table.num_rows
        if self._kind == "parquet":
            self._gather(table)
        else:
            for batch in table.to_batches():
                self._writer.write_batch(batch)
        self._drain()

    def _start(self, table: Any) -> None:
        self._schema = table.schema
        if self._kind == "parquet":
            arrow_parquet.group_rows(table, self._group_rows)
            self._writer = arrow_parquet.writer(self._sink, self._schema, self._compression)
        else:
            self._writer = arrow_ipc.writer(self._sink, self._schema, self._stream, self._compression)

    def _fitted(self, table: Any) -> Any:
        """The same batch with its columns in the order of the first one."""
        names = self._schema.names
        if sorted(table.schema.names) != sorted(names):
            missing = sorted(set(names) ^ set(table.schema.names))
            raise SchemaError(
                f"the batch from row {self.rows} on and the first one differ in the column {missing[0]!r}"
            )
        table = table.select(names)
        for want, got in zip(self._schema, table.schema, strict=True):
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
    batches = [pa.ipc.read_record_batch(batch.serialize(), table.schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, table.schema)


def _described(field: Any) -> str:
    note = (field.metadata or {}).get(arrow_table.KEY, b"").decode()
    return f"{field.type}{f' with the note {note}' if note else ''}"


# ---- reading ------------------------------------------------------------------


def check(columns: Mapping[str, Value]) -> None:
    """Raise what `write` would raise over these values."""
    arrow_table.table(arrow_table.by_name(columns), rows=True)


def has_rows(source: Any) -> bool:
    """Whether a file is a table of rows, which read_batches gives, rather than one document in a single row."""
    by_row, found = arrow_table.places(_opened(source, Budget(LIMITS)))
    return by_row and not any(place.nested or {"layout", "of"} & set(note) for place, note in found)


def _opened(source: Any, budget: Budget) -> Source:
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
    return _batches(opened, _chosen(opened, columns), rows, budget)


# A column, its metadata and its origin.
_Chosen: TypeAlias = tuple[Place, dict[str, str], dict[str, str]]


def _texts(said: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in said.items()} if isinstance(said, dict) else {}


def _chosen(source: Source, columns: Sequence[str] | None) -> list[_Chosen]:
    found = {}
    for place, note in arrow_table.places(source)[1]:
        if columns is not None and place.name not in columns:
            continue
        if "layout" in note or "of" in note or place.nested:
            raise UnsupportedError(
                f"column {place.name!r} is one value, not rows of it",
                tensor=place.name,
                hints=[Hint(operation="load", arguments=("path",), purpose="reads the file")],
            )
        if place.name in found:
            raise UnsupportedError(
                f"two columns are named {place.name!r}", tensor=place.name, hints=[Hint(purpose="rename one")]
            )
        found[place.name] = place, _texts(note.get("meta")), _texts(note.get("origin"))
    missing = [name for name in columns or () if name not in found]
    if missing:
        raise UsageError(
            f"there is no column {missing[0]!r}; there are {', '.join(map(repr, source.schema.names[:8]))}"
        )
    return list(found.values())


def _batches(source: Source, chosen: list[_Chosen], rows: int, budget: Budget) -> Iterator[dict[str, Value]]:
    pending: list[list[Any]] = [[] for _ in chosen]
    have = 0
    for number, count in enumerate(source.lengths):
        budget = budget.renewed(source.size)
        for held, (place, *_) in zip(pending, chosen, strict=True):
            held.extend(place.arrays(number, number + 1, budget))
        have += count
        while have >= rows:
            yield _taken(pending, chosen, rows, budget.renewed(source.size))
            have -= rows
    if have:
        yield _taken(pending, chosen, have, budget.renewed(source.size))


def _taken(pending: list[list[Any]], chosen: list[_Chosen], rows: int, budget: Budget) -> dict[str, Value]:
    """The first rows of what is pending, which is taken away."""
    batch: dict[str, Value] = {}
    for held, (place, meta, origin) in zip(pending, chosen, strict=True):
        want, arrays = rows, []
        while want:
            array = held.pop(0)
            if len(array) > want:
                held.insert(0, array.slice(want))
                array = array.slice(0, want)
            if len(array):
                arrays.append(array)
            want -= len(array)
        found: Rows = place.read(arrays, budget)
        batch[place.name] = with_origin(with_meta(found, meta=meta), origin)
    return batch
