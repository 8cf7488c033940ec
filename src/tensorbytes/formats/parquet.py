"""Parquet: a table of columns in row groups (.parquet).

The layout of the bytes is Parquet's own. Documents are tables as in format "arrow"
(_arrow/table.py, _arrow/write.py): pyarrow stores the Arrow schema in the file, with the
extension types and the notes, so everything comes back exactly. Times in seconds, which
Parquet lacks, are 64-bit integers with a note. Floats are stored without dictionaries and
keep every bit. Pages carry checksums, which reading verifies.

Options for writing: `rows` and `shapes` as for "arrow"; `compression` ("zstd", which is
the default, "snappy", "gzip", "brotli", "lz4" or None); `row_group_rows` (the default is
about 64 MiB a row group). Read lazily, a column is read alone, and a slice along the rows
reads the row groups that it lies in.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import Limits
from tensorbytes.formats import Format, Option, Options, known_options
from tensorbytes.formats._arrow import ipc as arrow_ipc
from tensorbytes.formats._arrow import parquet as arrow_parquet
from tensorbytes.formats._arrow import table as arrow_table
from tensorbytes.formats._arrow import thrift as arrow_thrift
from tensorbytes.formats._arrow.batches import CreatedTable, OpenedTable
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.formats._torch import unread
from tensorbytes.io.source import Source
from tensorbytes.io.storage import Target
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer


class Parquet(Format):
    name = "parquet"
    label = "Parquet"
    words = "Parquet, with tensor columns"
    aliases = ("pq",)
    suffixes = (".parquet",)
    read_by = "Arrow, Spark"
    holds = "everything"
    complete = rows = masks = True
    checksums = "CRC-32 of each page, where its writer made them"
    write_options = known_options(
        **arrow_table.OPTIONS,
        compression=Option(
            str | None, "of each page", "zstd", (*arrow_parquet.COMPRESSIONS, *arrow_parquet.SLOW_COMPRESSIONS)
        ),
        row_group_rows=Option(int | None, "the rows of a row group, which otherwise has about 64 MiB"),
    )
    not_of_rows = frozenset({"rows"})
    compressions = arrow_parquet.COMPRESSIONS
    slow_compressions = arrow_parquet.SLOW_COMPRESSIONS
    read_options = known_options(objects=unread.OPTION)
    unmistakable = True
    slices = "column by column"

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith(arrow_thrift.MAGIC)

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        table, rows = self._table(document, options)
        return arrow_parquet.encode(table, options.get("compression", "zstd"), rows)

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        arrow("format 'parquet'")
        arrow_table.check(document, options.get("rows", "auto"), seconds=False)
        arrow_parquet.check_group_rows(options.get("row_group_rows"))

    def _table(self, document: Document, options: Options) -> tuple[Any, int]:
        """A table that shares the memory of the document, and the rows of a row group."""
        arrow("format 'parquet'")
        table = arrow_table.table(
            document, options.get("rows", "auto"), seconds=False, shapes=options.get("shapes", False)
        )
        return table, arrow_parquet.group_rows(table, options.get("row_group_rows"))

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        arrow("format 'parquet'")
        yield arrow_table.document(arrow_parquet.Parquet(data), budget, lazy, unread.skips(options))

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document]:
        arrow("format 'parquet'")
        return self.decode(arrow_ipc.read_file(file), limits, False, options)

    def open(self, source: Source, limits: Limits, options: Options, claimed: bool = False) -> OpenedTable:
        return OpenedTable(self, source, limits, options)

    def create(self, target: Target, options: Options, sync: bool = True, shards: int = 1) -> CreatedTable:
        return CreatedTable(target, self.name, options, sync)


FORMAT = Parquet()
