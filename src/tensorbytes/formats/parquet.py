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

from collections.abc import Iterator

from tensorbytes.budget import Budget
from tensorbytes.errors import Limits, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.formats._arrow import parquet as arrow_parquet
from tensorbytes.formats._arrow import table as arrow_table
from tensorbytes.formats._arrow import thrift as arrow_thrift
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer


class Parquet(Format):
    name = "parquet"
    words = "Parquet, with tensor columns"
    suffixes = (".parquet",)
    complete = True
    write_options = frozenset({"rows", "compression", "row_group_rows", "shapes"})

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith(arrow_thrift.MAGIC)

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        shapes, compression = options.get("shapes", False), options.get("compression", "zstd")
        if type(shapes) is not bool:
            raise UsageError(f"shapes={shapes!r}", expected="True or False")
        arrow("format 'parquet'")
        table = arrow_table.table(document, options.get("rows", "auto"), seconds=False, shapes=shapes)
        rows = arrow_parquet.group_rows(table, options.get("row_group_rows"))
        return arrow_parquet.encode(table, compression, rows)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        arrow("format 'parquet'")
        yield arrow_table.document(arrow_parquet.Parquet(data), budget, lazy)


FORMAT = Parquet()
