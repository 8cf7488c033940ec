"""The footer of a Parquet file, read without pyarrow: row groups, and what their columns claim.

    PAR1, pages, footer (FileMetaData, Thrift compact protocol), its length (u32), PAR1

    FileMetaData     3 num_rows, 4 row_groups
    RowGroup         1 columns, 3 num_rows
    ColumnChunk      1 file_path, 3 meta_data
    ColumnMetaData   1 type, 4 codec, 6 total_uncompressed_size, 7 total_compressed_size,
                     9 data_page_offset, 11 dictionary_page_offset
    PageHeader       2 uncompressed_page_size, 3 compressed_page_size, 5 data page,
                     7 dictionary page, 8 data page of version 2: 1 num_values, 2 (v2: 4) encoding

pyarrow's own view of the row groups ends the process where a footer contradicts itself,
so these numbers are taken from the bytes.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeAlias

from tensorbytes.errors import CorruptError, UnsupportedError

MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_NUMBERS, _BOOLEANS = (_I16, _I32, _I64), (_TRUE, _FALSE)
_DEEPEST = 32
_DELTA_BYTE_ARRAY = 7
_MOST_HEADER = 1 << 24  # pyarrow's own limit for the header of a page
BYTE_ARRAY = 6


class Chunk(NamedTuple):
    """One leaf column of a row group: its physical type, its bytes once decompressed, and where it lies."""

    kind: int
    size: int
    start: int
    end: int
    codec: int = 0
    nulls: int = -1  # as its statistics count them; -1 if they don't


class Group(NamedTuple):
    """One row group."""

    rows: int
    chunks: list[Chunk]


def groups(data: memoryview) -> list[Group]:
    """The row groups that the footer lists, each within the file, none sharing bytes with another."""
    end = len(data) - 8
    if end < 4 or bytes(data[:4]) != MAGIC or bytes(data[-4:]) != MAGIC:
        if bytes(data[-4:]) == b"PARE":
            raise UnsupportedError("a Parquet file with an encrypted footer: decrypt it first")
        raise CorruptError("a Parquet file starts and ends with PAR1: cut short, or no Parquet file", at=0)
    (length,) = struct.unpack_from("<I", data, end)
    if length > end - 4:
        raise CorruptError(f"a footer of {length} bytes in a file of {len(data)}", at=end)
    start = end - length
    about = _Reader(data[start:end], start).struct(_FILE)
    found = []
    for group in about.get(4, []):
        if group.get(3, -1) < 0:
            raise CorruptError(f"a row group of {group.get(3)} rows", at=start)
        found.append(Group(group[3], [_chunk(chunk, start) for chunk in group.get(1, [])]))
    last = 4
    for chunk in sorted((chunk for group in found for chunk in group.chunks), key=lambda chunk: chunk.start):
        if chunk.start < last and chunk.end > chunk.start:
            raise CorruptError("two columns of a row group share bytes", at=start)
        last = max(last, chunk.end)
    if sum(group.rows for group in found) != about.get(3):
        raise CorruptError(
            f"row groups of {sum(group.rows for group in found)} rows, {about.get(3)} promised", at=start
        )
    return found


def _chunk(chunk: dict[int, Any], end: int) -> Chunk:
    if 1 in chunk:
        raise UnsupportedError("a Parquet file with columns in other files: only single files are read")
    about = chunk.get(3, {})
    size, stored, first = about.get(6, -1), about.get(7, -1), about.get(9, -1)
    if about.get(11, 0) > 0 and (first == 0 or about[11] < first):  # 0: no page but the dictionary
        first = about[11]
    if size < 0 or stored < 0 or first < 0 or first + stored > end:
        raise CorruptError(f"a column of {stored} bytes at {first}, {size} when decompressed", at=end)
    nulls = max(about.get(12, {}).get(3, -1), -1)
    return Chunk(about.get(1, -1), size, first, first + stored, about.get(4, 0), nulls)


class Pages(NamedTuple):
    """What the pages of a column would come to."""

    size: int  # bytes once decompressed
    values: int
    dictionary: int  # bytes of the dictionary, out of which a value may be taken again and again
    repeated: int  # bytes that strings could come to, each starting like the one before
    words: int = 0  # how many the dictionary has
    words_at: int = 0  # where they are in the file, and where they end; 0 if there is not one page of them
    words_end: int = 0


def pages(data: memoryview, chunk: Chunk) -> Pages:
    """The headers of all pages of a chunk; content is passed over."""
    size = values = dictionary = repeated = words = words_at = words_end = 0
    at = chunk.start
    while at < chunk.end:
        reader = _Reader(data[at : min(at + _MOST_HEADER, chunk.end)], at)
        page = reader.struct(_PAGE)
        plain, stored = page.get(2, -1), page.get(3, -1)
        at += reader.at + stored
        if plain < 0 or stored < 0 or at > chunk.end:
            raise CorruptError(f"a page of {stored} bytes, {plain} when decompressed", at=reader.base)
        size += plain
        if 7 in page:
            words_at, words_end = (0, 0) if dictionary else (at - stored, at)
            words = max(page[7].get(1, 0), 0)
            dictionary += max(plain, stored)
        about = page.get(5) or page.get(8) or {}
        values += max(about.get(1, 0), 0)
        if about.get(2 if 5 in page else 4) == _DELTA_BYTE_ARRAY:
            repeated += max(about.get(1, 0), 0) * plain
    return Pages(size, values, dictionary, repeated, words, words_at, words_end)


# What is wanted of each struct: field -> int, bytes, the fields of a struct, or [them] for a list of structs.
_Wanted: TypeAlias = dict[int, Any]
_COLUMN: _Wanted = {1: int, 4: int, 6: int, 7: int, 9: int, 11: int, 12: {3: int}}
_FILE: _Wanted = {3: int, 4: [{1: [{1: bytes, 3: _COLUMN}], 3: int}]}
_PAGE: _Wanted = {2: int, 3: int, 5: {1: int, 2: int}, 7: {1: int}, 8: {1: int, 4: int}}


def _fits(value: Any, inside: Any) -> bool:
    if isinstance(inside, list):
        return isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict if isinstance(inside, dict) else inside)


class _Reader:
    """Thrift's compact protocol; fields that nobody wants are passed over, which most of a footer is."""

    def __init__(self, data: memoryview, base: int) -> None:
        self.data, self.at, self.base = data, 0, base

    def fail(self, what: str) -> CorruptError:
        return CorruptError(f"the footer {what}", at=self.base + self.at)

    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise self.fail("ends early")
        self.at = at + 1
        return self.data[at]

    def varint(self) -> int:
        found = self.byte()
        if found < 0x80:
            return found
        found &= 0x7F
        for shift in range(7, 70, 7):
            piece = self.byte()
            found |= (piece & 0x7F) << shift
            if piece < 0x80:
                return found
        raise self.fail("has a number of over 64 bits")

    def number(self) -> int:
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def skip(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise self.fail("ends inside a value")
        self.at += count

    def struct(self, wanted: _Wanted, depth: int = 0) -> dict[int, Any]:
        """The wanted fields of a struct, by number."""
        if depth > _DEEPEST:
            raise self.fail("is nested too deeply")
        found: dict[int, Any] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.number()
            kind, inside = head & 15, wanted.get(field)
            if inside is None:
                self.pass_over(kind, depth)
                continue
            value = self.value(kind, inside, depth)
            if field in found or not _fits(value, inside):
                raise self.fail(f"has a field {field} of another kind")
            found[field] = value
        return found

    def value(self, kind: int, inside: Any, depth: int) -> Any:
        """A value that is wanted; None if it is of a kind that never is."""
        if kind in _NUMBERS:
            return self.number()
        if kind == _STRUCT and isinstance(inside, dict):
            return self.struct(inside, depth + 1)
        if kind == _LIST and isinstance(inside, list):
            items, count = self.items(depth)
            if items == _STRUCT or not count:
                return [self.struct(inside[0], depth + 2) for _ in range(count)]
            return self.pass_over(items, depth + 1, count, in_list=True)
        self.pass_over(kind, depth)
        return b"" if kind == _BINARY else None

    def pass_over(self, kind: int, depth: int, count: int = 1, in_list: bool = False) -> None:
        """Leave behind so many values of a kind. A boolean in a struct has no bytes: its kind says all."""
        for _ in range(count):
            if kind == _STRUCT:
                self._pass_struct(depth + 1)
            elif kind in _NUMBERS:
                self.varint()
            elif kind == _BINARY:
                self.skip(self.varint())
            elif kind in (_LIST, _SET):
                items, length = self.items(depth)
                self.pass_over(items, depth + 1, length, in_list=True)
            elif kind == _DOUBLE:
                self.skip(8)
            elif kind == _BYTE or (kind in _BOOLEANS and in_list):
                self.byte()
            elif kind == _MAP:
                self._pass_map(depth)
            elif kind not in _BOOLEANS:
                raise self.fail(f"has a value of the unknown kind {kind}")

    def _pass_struct(self, depth: int) -> None:
        """Most of the footer of a wide table: the usual fields without a call for each."""
        if depth > _DEEPEST:
            raise self.fail("is nested too deeply")
        data, at = self.data, self.at
        try:
            while head := data[at]:
                at += 1
                kind = head & 15
                if kind in _NUMBERS and head > 15 and data[at] < 0x80:
                    at += 1
                elif kind == _BINARY and head > 15 and data[at] < 0x80:
                    at += 1 + data[at]
                else:
                    self.at = at
                    if head < 16:
                        self.number()
                    self.pass_over(kind, depth)
                    at = self.at
        except IndexError:
            raise self.fail("ends early") from None
        self.at = at + 1

    def _pass_map(self, depth: int) -> None:
        count = self.varint()
        kinds = self.byte() if count else 0
        for _ in range(self.counted(count)):
            self.pass_over(kinds >> 4, depth + 1, in_list=True)
            self.pass_over(kinds & 15, depth + 1, in_list=True)

    def items(self, depth: int) -> tuple[int, int]:
        """The kind of the items of a list, and how many there are."""
        if depth > _DEEPEST:
            raise self.fail("is nested too deeply")
        head = self.byte()
        return head & 15, self.counted(self.varint() if head >> 4 == 15 else head >> 4)

    def counted(self, count: int) -> int:
        """A number of items that the bytes left could hold: each takes one at least."""
        if count > len(self.data) - self.at:
            raise self.fail(f"has a list of {count} items")
        return count
