"""Arrow: a table of columns, as an IPC file (.arrow, .feather, .ipc) or an IPC stream (.arrows).

The layout of the bytes is Arrow's own (_arrow/flat.py has its envelopes). A document is a
table: of rows where all values share their leading axis, of one row otherwise
(_arrow/table.py). What each value is as a column stands in _arrow/write.py; what Arrow
has no place for is in field metadata, under the key "tensorbytes", as JSON. Everything
comes back exactly, and other software sees plain columns.

Reading takes tables of other origin as well: numbers, bools, dates and times, strings,
lists, fixed-size lists, tensors, dictionaries, in any number of batches, and whatever else
Arrow has, nulls included, as flat columns and masks (_arrow/nested.py). Buffers that are not
compressed are views of the input.

Options for writing: `rows` ("auto", True or False), `stream` (True for an IPC stream),
`compression` (None, "lz4", "zstd"), `shapes` (True adds a column <name>.shape to each
tensor column, for SQL, which readers here pass over).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, Limits, UsageError
from tensorbytes.formats import Format, Option, Options, known_options
from tensorbytes.formats._arrow import flat as arrow_flat
from tensorbytes.formats._arrow import ipc as arrow_ipc
from tensorbytes.formats._arrow import table as arrow_table
from tensorbytes.formats._arrow.batches import CreatedTable, OpenedTable
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.formats._torch import unread
from tensorbytes.io import storage
from tensorbytes.io.source import Source
from tensorbytes.io.storage import Target
from tensorbytes.tensor import Value
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer


class Arrow(Format):
    name = "arrow"
    label = "Arrow"
    words = "Arrow IPC files and streams, with tensor columns"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")
    read_by = "Arrow"
    holds = "everything"
    complete = rows = masks = True
    write_options = known_options(
        **arrow_table.OPTIONS,
        stream=Option(bool, "True for an IPC stream, which `.arrows` files are anyway", False),
        compression=Option(str | None, "of each column", choices=arrow_ipc.COMPRESSIONS),
    )
    not_of_rows = frozenset({"rows"})
    compressions = arrow_ipc.COMPRESSIONS
    read_options = known_options(objects=unread.OPTION)
    unmistakable = True

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith(arrow_flat.MAGIC) or kind_of(head) == arrow_flat.SCHEMA

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        table = self._table(document, options)
        return list(arrow_ipc.encode(table, options.get("stream", False), options.get("compression")))

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        arrow("format 'arrow'")
        arrow_table.check(document, options.get("rows", "auto"))

    def _table(self, document: Document, options: Options) -> Any:
        """A table that shares the memory of the document."""
        arrow("format 'arrow'")
        return to_table(document, rows=options.get("rows", "auto"), shapes=options.get("shapes", False))

    def options_for(self, path: str, options: Options) -> Options:
        return {"stream": True, **options} if path.lower().endswith(".arrows") else options

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        given = self.options_for(str(target), options) if storage.is_path(target) else options
        super().write(document, target, allow, given, sync)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        return self._decode(data, limits, lazy, options, own=False)

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document]:
        arrow("format 'arrow'")
        return self._decode(arrow_ipc.read_file(file), limits, False, options, own=True)

    def _decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options, own: bool) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        arrow("format 'arrow'")
        yield arrow_table.document(arrow_ipc.Ipc(data, budget, lazy, own), budget, lazy, unread.skips(options))

    def open(self, source: Source, limits: Limits, options: Options, claimed: bool = False) -> OpenedTable:
        return OpenedTable(self, source, limits, options)

    def create(self, target: Target, options: Options, sync: bool = True, shards: int = 1) -> CreatedTable:
        return CreatedTable(target, self.name, options, sync)


def kind_of(head: bytes) -> int:
    """The kind of the first message of a stream; 0 if there is none."""
    if head[:4] != arrow_flat.CONTINUES or len(head) < 8:
        return 0
    (length,) = struct.unpack_from("<i", head, 4)
    if not 0 < length <= 1 << 30:
        return 0
    try:
        return arrow_flat.root(memoryview(head[8 : 8 + length]), 8).scalar(1, "<B")
    except CorruptError:
        return 0


def to_table(content: Document | Mapping[str, Value], *, rows: Any = "auto", shapes: bool = False) -> Any:
    """A document, or neutral values by name, as a pyarrow.Table that shares their memory."""
    if type(shapes) is not bool:
        raise UsageError(f"shapes={shapes!r}", expected="True or False")
    document = content if isinstance(content, Document) else arrow_table.by_name(content)
    return arrow_table.table(document, rows, shapes=shapes)


def from_table(table: Any, limits: Limits = LIMITS) -> Document:
    """What a pyarrow.Table holds, or anything else that gives an Arrow stream; memory is shared."""
    pa = arrow()
    found = table if isinstance(table, pa.Table) else pa.table(table)
    return arrow_table.document(arrow_ipc.InMemory(found), Budget(limits, found.nbytes), lazy=False)


FORMAT = Arrow()
