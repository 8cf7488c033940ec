"""Parquet through pyarrow: tables into row groups, and row groups as columns."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tensorbytes import _wire
from tensorbytes.errors import USE_TB, CorruptError, LossError, TensorbytesError, UsageError
from tensorbytes.formats._arrow import thrift as arrow_thrift
from tensorbytes.formats._arrow.ipc import Pieces, empty
from tensorbytes.formats._arrow.nested import has_twins, is_text
from tensorbytes.formats._arrow.shredding import by_leaf
from tensorbytes.formats._arrow.table import StoredTable, refusing
from tensorbytes.formats._arrow.words import has_dictionary
from tensorbytes.formats._arrow.write import arrow

COMPRESSIONS = (None, "snappy", "lz4", "zstd")
SLOW_COMPRESSIONS = ("gzip", "brotli")
# A row group is read as a whole: small enough for memory, large enough to be worth a seek.
GROUP_BYTES = 64 << 20
_MOST_ROWS = 1 << 20
_LARGE = 64 << 20
# Bytes of Parquet's physical types: bool, int32, int64, int96, float, double. Others: one at least.
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
# Parquet's codecs that pyarrow has by themselves; 0 is none.
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
# A dictionary of more words is not looked through.
_MOST_WORDS = 1 << 17


def writer(sink: Any, schema: Any, compression: str | None) -> Any:
    """pyarrow's writer of row groups. Pages carry checksums."""
    import pyarrow.parquet as parquet

    hollow = next((field.name for field in schema if _has_hollow_lists(field.type)), None)
    if hollow is not None:
        raise LossError(
            f"Parquet can't hold this: lists of size 0 in column {hollow!r}, which pyarrow writes and can't read",
            feature="type",
            tensor=hollow,
            hints=[USE_TB],
        )
    known = (*COMPRESSIONS, *SLOW_COMPRESSIONS)
    if compression not in known:
        raise UsageError(f"compression={compression!r}", expected=f"one of {', '.join(map(repr, known))}")
    return parquet.ParquetWriter(
        sink,
        schema,
        compression=compression or "none",
        # A dictionary of floats compares them as numbers, and NaNs are many.
        use_dictionary=[path for field in schema for path in _repeated(field.name, field.type)],
        write_page_checksum=True,
        store_schema=True,
    )


@contextlib.contextmanager
def refusing_types() -> Iterator[None]:
    """What pyarrow says of types that Parquet has no place for, as a loss."""
    try:
        yield
    except (arrow().ArrowNotImplementedError, arrow().ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of Parquet
            raise
        raise LossError(f"Parquet can't hold this: {str(error)[:200]}", feature="type", hints=[USE_TB]) from None


def _has_hollow_lists(kind: Any) -> bool:
    kind = kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind
    if arrow().types.is_fixed_size_list(kind) and not kind.list_size:
        return True
    return any(_has_hollow_lists(kind.field(number).type) for number in range(kind.num_fields))


def _repeated(path: str, kind: Any) -> Iterator[str]:
    """The columns that are written as words and indices: Arrow's dictionaries at any level, which keep their words."""
    types = arrow().types
    kind = kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind
    if types.is_integer(kind) or is_text(kind):
        yield path
    elif has_dictionary(kind):
        yield from _dictionary_paths(path, kind)


def _dictionary_paths(path: str, kind: Any) -> Iterator[str]:
    types = arrow().types
    kind = kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind
    if types.is_dictionary(kind):
        yield path
    elif types.is_map(kind):
        yield from _dictionary_paths(f"{path}.key_value.key", kind.key_type)
        yield from _dictionary_paths(f"{path}.key_value.value", kind.item_type)
    elif types.is_struct(kind):
        for field in kind:
            yield from _dictionary_paths(f"{path}.{field.name}", field.type)
    elif kind.num_fields:
        yield from _dictionary_paths(f"{path}.list.element", kind.value_type)


def group_rows(table: Any, rows: Any) -> int:
    """How many rows go into a row group."""
    check_group_rows(rows)
    if rows is not None:
        return int(rows)
    each = max(table.nbytes // max(table.num_rows, 1), 1)
    return int(min(max(GROUP_BYTES // each, 1), _MOST_ROWS))


def check_group_rows(rows: Any) -> None:
    if rows is not None and (type(rows) is not int or rows < 1):
        raise UsageError(f"row_group_rows={rows!r}", expected="a whole number, 1 or more")


def encode(table: Any, compression: str | None, rows: int) -> Iterator[Any]:
    """The bytes of a table, one row group after the other."""
    sink = Pieces()
    with refusing_types(), writer(sink, table.schema, compression) as file:
        for start in range(0, table.num_rows, rows):
            file.write_table(table.slice(start, rows), row_group_size=rows)
            yield from sink.take()
    yield from sink.take()


class Parquet(StoredTable):
    """The row groups of a file, read column by column when asked."""

    def __init__(self, data: memoryview) -> None:
        self.size, self._data = len(data), data
        self._groups = arrow_thrift.groups(data)
        self._known_pages: dict[arrow_thrift.Chunk, arrow_thrift.Pages] = {}
        self._claims: dict[tuple[int, int, int], int] = {}
        self._ahead: dict[tuple[int, int, int], list[Any]] = {}  # by column, first and last row group
        self._leaves_ahead: dict[tuple[int, int, int], list[list[Any]]] = {}  # the same by leaf
        self._alone: dict[int, bool] = {}  # whether a leaf of a column can be read without the others
        self.lengths = [group.rows for group in self._groups]
        with refusing("the footer"):
            self._file = self._open([])
            self.schema = self._file.schema_arrow
            self._leaves = self._assign()
            self._null_counts: dict[int, int | None] = {}

    def _open(self, dictionaries: list[int]) -> Any:
        import pyarrow.parquet as parquet

        return parquet.ParquetFile(
            arrow().BufferReader(arrow().py_buffer(self._data)),
            page_checksum_verification=True,
            pre_buffer=False,
            read_dictionary=dictionaries or None,
        )

    def _assign(self) -> list[range]:
        """The leaf columns of each field. Names can't tell: a dot may be part of one."""
        found, start = [], 0
        for field in self.schema:
            stop = start + _leaf_count(field.type)
            found.append(range(start, stop))
            start = stop
        wrong = next((len(group.chunks) for group in self._groups if len(group.chunks) != start), None)
        if wrong is not None:
            raise CorruptError(f"a row group of {wrong} columns for a schema of {start}", at=0)
        return found

    def writable(self, buffer: Any) -> memoryview | None:
        return memoryview(buffer) if buffer.is_mutable else None  # what was decoded is; views of the file are not

    def has_nulls(self, number: int) -> bool | None:
        """What the statistics say, if they do."""
        if not _may_be_null(self.schema.field(number)):
            return False
        count = self.count_nulls(number)
        return None if count is None else count > 0

    def count_nulls(self, number: int) -> int | None:
        """The same; of nested columns, empty lists count as well. pyarrow is not asked: damaged statistics abort it."""
        if number not in self._null_counts:
            counts = [chunk.nulls for group in self._groups for chunk in self._chunks(group, number)]
            self._null_counts[number] = None if -1 in counts else sum(counts)
        return self._null_counts[number]

    def claim(self, number: int, first: int, last: int) -> int:
        """What the headers of the pages come to: a few bytes may stand for many equal values."""
        found = self._claims.get((number, first, last))
        if found is None:  # each leaf of a struct asks for all of it
            found = self._claims[number, first, last] = sum(
                max(chunk.size, self._page_claim(chunk))
                for group in self._groups[first:last]
                for chunk in self._chunks(group, number)
            )
        return found

    def _pages(self, chunk: arrow_thrift.Chunk) -> arrow_thrift.Pages:
        found = self._known_pages.get(chunk)
        if found is None:
            found = self._known_pages[chunk] = arrow_thrift.pages(self._data, chunk)
        return found

    def _page_claim(self, chunk: arrow_thrift.Chunk) -> int:
        about = self._pages(chunk)
        if chunk.kind == arrow_thrift.BYTE_ARRAY:
            return about.size + about.repeated
        return max(about.size, about.values * _WIDTHS.get(chunk.kind, 1))

    def _chunks(self, group: arrow_thrift.Group, number: int) -> list[arrow_thrift.Chunk]:
        leaves = self._leaves[number]
        return group.chunks[leaves.start : leaves.stop]

    def _bulky(self, number: int, first: int, last: int) -> list[int]:
        """Leaves with strings out of a dictionary: they are read as indices, and counted before they are decoded."""
        found = set()
        for group in self._groups[first:last]:
            for leaf, chunk in zip(self._leaves[number], self._chunks(group, number), strict=True):
                if chunk.kind == arrow_thrift.BYTE_ARRAY:
                    about, room = self._pages(chunk), max(self.size, _LARGE)
                    if about.values * about.dictionary > room and about.values * self._longest(chunk) > room:
                        found.add(leaf)
        return sorted(found)

    def _longest(self, chunk: arrow_thrift.Chunk) -> int:
        """The bytes of the longest word of a dictionary, or of all words where that can't be told."""
        about = self._pages(chunk)
        if not about.words_at or about.words > _MOST_WORDS:
            return about.dictionary
        data: Any = self._data[about.words_at : about.words_end]
        try:
            if chunk.codec:
                data = arrow().Codec(_CODECS[chunk.codec]).decompress(data, about.dictionary)
        except (arrow().ArrowException, KeyError, OSError, ValueError):
            return about.dictionary  # pyarrow will tell what is wrong
        longest = _wire.longest_word(data, about.words)
        return about.dictionary if longest < 0 else longest

    @contextlib.contextmanager
    def together(self, numbers: Sequence[int], first: int, last: int) -> Iterator[None]:
        """pyarrow decodes columns side by side if they are asked for in one call."""
        some = [n for n in dict.fromkeys(numbers) if first < last and not self._bulky(n, first, last)]
        if len(some) > 1:
            try:
                with refusing("columns"):
                    self._ahead = self._read_together(some, first, last)
            except TensorbytesError:  # they are read again one by one, for an error that names its column
                self._ahead = {}
        try:
            yield
        finally:
            self._ahead, self._leaves_ahead = {}, {}

    def _read_together(self, numbers: list[int], first: int, last: int) -> dict[tuple[int, int, int], list[Any]]:
        numbers = sorted(numbers)
        leaves = list(itertools.chain.from_iterable(self._leaves[number] for number in numbers))
        found: dict[tuple[int, int, int], list[Any]] = {(number, first, last): [] for number in numbers}
        for group in range(first, last):
            table = self._file.reader.read_row_groups([group], column_indices=leaves, use_threads=True)
            for number, column in zip(numbers, table.columns, strict=True):
                self._check_length(column, group)
                found[number, first, last] += column.chunks or [empty(column.type)]
        return found

    def _check_length(self, column: Any, group: int) -> None:
        if len(column) != self.lengths[group]:
            raise CorruptError(f"{len(column)} rows where the footer has {self.lengths[group]}", at=0)

    def chunks(self, number: int, first: int, last: int) -> list[Any]:
        ahead = self._ahead.get((number, first, last))
        return self._read(number, list(self._leaves[number]), first, last) if ahead is None else ahead

    def leaf_chunks(self, number: int, leaf: int, first: int, last: int) -> list[Any]:
        kind = self.schema.field(number).type
        place = number, first, last
        ahead = self._ahead.get(place)
        if ahead is not None:
            leaves = self._leaves_ahead.get(place)
            if leaves is None:
                leaves = self._leaves_ahead[place] = [by_leaf(array) for array in ahead]
            return [arrays[leaf] for arrays in leaves]
        whole = list(self._leaves[number])
        # pyarrow leaves out fields of structs, but not a part of a map, and a dictionary or an extension stays whole.
        if number not in self._alone:
            self._alone[number] = arrow().types.is_struct(kind) and not has_twins(kind)
        return self._read(number, [whole[leaf]] if self._alone[number] else whole, first, last)

    def _read(self, number: int, leaves: list[int], first: int, last: int) -> list[Any]:
        if first >= last:
            return [empty(self.schema.field(number).type)]
        bulky = self._bulky(number, first, last)
        file = self._open(bulky) if bulky else self._file
        found: list[Any] = []
        # One by one: pyarrow can't put lists of dictionaries of several row groups together.
        for group in range(first, last):
            column = file.reader.read_row_groups([group], column_indices=leaves, use_threads=True).column(0)
            self._check_length(column, group)
            found += column.chunks
        return found or [empty(column.type)]


def _may_be_null(field: Any) -> bool:
    if field.nullable:
        return True
    kind = field.type
    kind = kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind
    return any(_may_be_null(kind.field(number)) for number in range(kind.num_fields))


def _leaf_count(kind: Any) -> int:
    pa = arrow()
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _leaf_count(kind.value_type)
    return sum(_leaf_count(kind.field(n).type) for n in range(kind.num_fields)) if kind.num_fields else 1
