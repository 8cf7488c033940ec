"""Files of a format: one that was opened, and one that is being written.

    Opened     documents, lazily decoded or verified; where the file holds rows, tables of them
    Created    takes documents and tables one after another, and is visible when it is closed

A format that decodes bytes and encodes documents gets both from here; one that holds rows has classes of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorbytes.errors import Limits, LossError, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.io import storage
from tensorbytes.io.source import Source
from tensorbytes.io.storage import naming
from tensorbytes.picking import pick
from tensorbytes.rows import Listing, Table, join_tables, listing
from tensorbytes.tensor import Array, Tensor, Value
from tensorbytes.tree import Document, Leaf, to_plain

if TYPE_CHECKING:
    from tensorbytes.formats import Format

Options = Mapping[str, Any]
Progress = Callable[[int, int | None], object]
# Rows are read this many at a time.
BATCH_ROWS = 4096
# What a file without rows holds.
NO_COLUMNS = Document([Leaf(Tensor("bool", (0,), b""), kind="dict")])
# Smaller files are read in one piece.
_LARGE_BYTES = 1 << 22


class Opened:
    """A file that was opened. `claimed`: the format reads it by its path, not by its bytes."""

    def __init__(
        self, chosen: Format, source: Source, limits: Limits, options: Options, *, claimed: bool = False
    ) -> None:
        self.chosen, self.source, self.limits, self.options = chosen, source, limits, options
        self._claimed = claimed

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def format(self) -> str:
        return self.chosen.name

    @property
    def data(self) -> memoryview | None:
        """Its bytes, mapped or read; None for what is read by its path."""
        return None if self._claimed else self.source.data

    @property
    def size(self) -> int:
        """How many bytes it has; 0 for what is read by its path."""
        return 0 if self._claimed else self.source.size

    @property
    def is_empty(self) -> bool:
        """Whether there are no bytes at all."""
        return not self._claimed and not self.source.size

    def decode(self, lazy: bool) -> Iterator[Document]:
        """The documents one after another, as the format gives them; lazily, or every byte checked that can be."""
        if self._claimed:
            return self.chosen.decode_path(self.path, self.limits, lazy, self.options)
        file = None if lazy or self.options else self.source.file
        if file is not None and self.source.size >= _LARGE_BYTES:
            found = self.chosen.decode_file(file, self.limits, self.options)
            if found is not None:
                return found
        return self.chosen.decode(self.source.data, self.limits, lazy, self.options)

    def documents(self, lazy: bool = True) -> Iterator[Document]:
        """The documents one after another; a table is the dict of its columns. Errors name the file."""
        with naming(self.path):
            yield from map(to_plain, self.decode(lazy))

    def part(self, takes: Callable[[str | None], bool]) -> Iterator[Document]:
        """The documents with those of their leaves whose name is taken, lazily decoded: nothing else is read."""
        return (pick(document, takes) for document in self.decode(lazy=True))

    def listed(self, everything: bool = False) -> Iterator[Listing]:
        """The documents for whoever asks what there is. `everything`: what is missing is counted, whatever it takes."""
        with naming(self.path):
            for document in self.decode(lazy=True):
                yield listing(document, everything or storage.is_local(self.path))

    @property
    def kind(self) -> str:
        """What its records are, where the format has several kinds; empty elsewhere."""
        return ""

    @property
    def rows(self) -> bool:
        """Whether it holds rows, which `tables` gives."""
        return False

    def tables(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Table]:
        """Tables of `size` rows, the last one of what is left; of the columns whose name is taken."""
        raise UnsupportedError("it holds no rows", path=self.path)

    @property
    def batch_rows(self) -> int:
        """How many rows at a time are read best."""
        return BATCH_ROWS

    def count(self) -> int:
        """How many rows it has."""
        document = self.as_document()
        leaf = next(iter(document.leaves), None) if document is not None else None
        return 0 if leaf is None else leaf.header.shape[0] or 0

    @property
    def holds_records(self) -> bool:
        """Whether it is made of records, which can be copied as they are stored, whatever is in them."""
        return False

    def files(self) -> list[str]:
        """The files that are read, as far as one is known of several."""
        return [self.path]

    def payloads(self) -> Iterator[bytes]:
        """The bytes of each record, whatever it holds."""
        raise UnsupportedError("it holds no records", path=self.path)

    def as_document(self) -> Document | None:
        """Of a file of rows, the columns with what they say beside their values, unread; None if that is nothing."""
        return next(self.documents(), None)

    def options_like(self, takes: Callable[[str], bool], rename: Callable[[str], str] | None) -> dict[str, Any]:
        """Options for writing rows like these to another file: of some columns, under other names perhaps."""
        return {}

    def as_stored(self, progress: Progress | None = None) -> Iterator[tuple[Any, Array]]:
        """All records in order, verified, in pieces: piece.cut(a, b) gives the bytes of some, which a file made by
        `recreate` takes. With each piece, the bytes that its records take.

        `progress` is called with the bytes read so far, and their total if it is known. Damage raises CorruptError.
        """
        raise UnsupportedError("it holds no records", path=self.path)

    @property
    def may_hold_objects(self) -> bool:
        """Whether leaves of the kind "object" may stand in it, which are listed and not read."""
        return "objects" in self.chosen.read_options

    def without_objects(self) -> Opened:
        """The same file with these left out."""
        options = {**self.options, "objects": "skip"}
        return self.chosen.open(self.source, self.limits, options, self._claimed)


class OpenedRows(Opened):
    """A file that holds rows alone, for formats that read them onwards: its document is all of its columns."""

    @property
    def rows(self) -> bool:
        return True

    def as_document(self) -> None:
        return None

    def count(self) -> int:
        return sum(table.rows for table in self.tables(BATCH_ROWS))

    def decode(self, lazy: bool) -> Iterator[Document]:
        tables = list(self.tables(BATCH_ROWS))
        yield join_tables(tables).document() if tables else NO_COLUMNS

    def part(self, takes: Callable[[str | None], bool]) -> Iterator[Document]:
        tables = list(self.tables(BATCH_ROWS, takes))
        yield join_tables(tables).document() if tables else Document([])


class Created:
    """A file being written, which takes documents and tables; nothing is visible before `close`.

    columns_only: rows are flat lists of columns, without structure, metadata or Python's own types.
    """

    columns_only = False
    changes: Sequence[str] = ()  # what differs from the source

    def prepare(self, table: Table) -> Table:
        """Rows as this file takes them: what has no place of its own in it may become a column."""
        return table

    def check(self, columns: Mapping[str, Value]) -> None:
        """Raise LossError over columns that can't be held. Nothing is written."""

    def check_table(self, table: Table) -> None:
        """The same of a table that is all there will be: LossError where a reader would give other columns."""
        self.check(table.columns)

    def add(self, item: Document | Table) -> None:
        raise NotImplementedError

    def close(self) -> list[str]:
        """Make it visible; the paths of the files."""
        raise NotImplementedError

    def abort(self) -> None:
        """Leave no trace."""
        raise NotImplementedError


@contextlib.contextmanager
def as_loss() -> Iterator[None]:
    """What a writer can't take, in the block, is a loss of the column."""
    try:
        yield
    except LossError:
        raise
    except TensorbytesError as error:
        raise LossError(
            error.fault, feature="column", path=error.path, tensor=error.tensor, hints=error.hints
        ) from error


def write_table(table: Table, created: Created) -> None:
    """All rows of a file at once; what it can't hold raises LossError."""
    try:
        created.check_table(table)
        created.add(table)
        created.close()
    except BaseException:
        created.abort()
        raise


class CreatedStream(Created):
    """Documents encoded one after another; the rows of a table are documents as well."""

    def __init__(self, chosen: Format, target: Any, options: Options, sync: bool) -> None:
        self._chosen, self._target, self._options = chosen, target, options
        self._count = 0
        self._open = contextlib.ExitStack()
        self._file = self._open.enter_context(storage.writing(target, sync=sync))

    def prepare(self, table: Table) -> Table:
        """What is missing inside of rows is told by values beside them; a row that is missing is left out."""
        return table.with_mask_columns(rows_as_well=False)

    def add(self, item: Document | Table) -> None:
        for document in item.documents() if isinstance(item, Table) else [item]:
            self._count += 1
            numbered = document._replace(item=self._count)
            storage.write_pieces(self._file, self._chosen.encode(numbered, frozenset(), self._options))

    def close(self) -> list[str]:
        self._open.close()
        return [storage.describe(self._target)]

    def abort(self) -> None:
        with contextlib.suppress(UsageError):
            self._open.__exit__(UsageError, UsageError("given up"), None)
