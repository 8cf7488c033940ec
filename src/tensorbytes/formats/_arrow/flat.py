"""The envelopes of Arrow IPC, read without pyarrow: which messages there are, and what they claim.

    file      ARROW1 0 0, messages, footer (FlatBuffer), its length (i32), ARROW1
    stream    messages, FFFFFFFF 00000000
    message   FFFFFFFF, metadata length (i32), Message (FlatBuffer, padded), body
              (before Arrow 0.15 without FFFFFFFF)

    Message         0 version (i16), 1 header type (u8), 2 header, 3 body length (i64)
    header type     1 Schema, 2 DictionaryBatch, 3 RecordBatch, 4 Tensor, 5 SparseTensor
    RecordBatch     0 rows (i64), 1 nodes, 2 buffers [offset, length], 3 compression
    DictionaryBatch 0 id, 1 RecordBatch
    Footer          2 dictionaries, 3 record batches: [offset i64, metadata length i32 + 4, body length i64]

A compressed buffer starts with the length it has when it is not (i64; -1: it is not
compressed after all). pyarrow allocates on its word, so that word is checked first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError

MAGIC = b"ARROW1"
CONTINUES = b"\xff\xff\xff\xff"
SCHEMA, DICTIONARY, RECORDS, TENSOR, SPARSE = 1, 2, 3, 4, 5
_KINDS = {1: "a schema", 2: "a dictionary", 3: "a record batch", 4: "a tensor", 5: "a sparse tensor"}
_BLOCK = struct.Struct("<qi4xq")
_PAIR = struct.Struct("<qq")


class Flat:
    """A table of a FlatBuffer. Each look is checked against the bytes that are there; nothing is followed in a loop."""

    __slots__ = ("at", "base", "data", "fields")

    def __init__(self, data: memoryview, at: int, base: int) -> None:
        self.data, self.at, self.base = data, at, base
        vtable = at - self.number("<i", at)
        size = self.number("<H", vtable)
        if size < 4 or size % 2:
            raise CorruptError(f"a FlatBuffer table with a vtable of {size} bytes", at=base + max(vtable, 0))
        self.number("<H", vtable + size - 2)
        self.fields = struct.unpack_from(f"<{size // 2 - 2}H", data, vtable + 4)

    def number(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self.data):
            raise CorruptError("a FlatBuffer offset points outside", at=self.base)
        return int(struct.unpack_from(form, self.data, at)[0])

    def place(self, field: int) -> int | None:
        """Where a field stands; None if it is not set."""
        offset = self.fields[field] if field < len(self.fields) else 0
        return self.at + offset if offset else None

    def scalar(self, field: int, form: str, default: int = 0) -> int:
        at = self.place(field)
        return default if at is None else self.number(form, at)

    def table(self, field: int) -> Flat | None:
        at = self.place(field)
        return None if at is None else Flat(self.data, at + self.number("<I", at), self.base)

    def vector(self, field: int, width: int) -> tuple[int, int]:
        """(the first item's place, how many) of a vector with items of `width` bytes."""
        at = self.place(field)
        if at is None:
            return 0, 0
        at += self.number("<I", at)
        count = self.number("<I", at)
        if at + 4 + count * width > len(self.data):
            raise CorruptError(f"a FlatBuffer vector of {count} items runs past the end", at=self.base)
        return at + 4, count

    def text(self, field: int) -> bytes:
        start, count = self.vector(field, 1)
        return bytes(self.data[start : start + count])


def root(data: memoryview, base: int) -> Flat:
    if len(data) < 4:
        raise CorruptError("a FlatBuffer of under 4 bytes", at=base)
    return Flat(data, struct.unpack_from("<I", data)[0], base)


class Message(NamedTuple):
    """One message: its header, and where its body lies."""

    kind: int
    header: Flat
    at: int
    start: int
    end: int
    version: int  # of the metadata: 4 is V5


def message(data: memoryview, at: int) -> Message | None:
    """The message at `at`; None at the end of a stream."""
    first = at
    if bytes(data[at : at + 4]) == CONTINUES:
        at += 4
    if at + 4 > len(data):
        raise CorruptError("the file ends inside a message", at=first)
    (length,) = struct.unpack_from("<i", data, at)
    if length == 0:
        return None
    start = at + 4 + length
    if length < 0 or start > len(data):
        raise CorruptError(f"a message of {length} bytes of metadata, {len(data) - at - 4} are left", at=first)
    table = root(data[at + 4 : start], at + 4)
    kind, body = table.scalar(1, "<B"), table.scalar(3, "<q")
    header = table.table(2)
    if header is None or kind not in _KINDS:
        raise CorruptError(f"a message of the unknown kind {kind}", at=first)
    if body < 0 or start + body > len(data):
        raise CorruptError(f"{_KINDS[kind]} of {body} bytes, {len(data) - start} are left", at=first)
    return Message(kind, header, first, start, start + body, table.scalar(0, "<h"))


class BatchClaim(NamedTuple):
    """What a record batch claims before it is read."""

    rows: int
    compressed: bool
    claimed: int  # bytes that decompression would make
    nulls: tuple[int, ...]  # of each array, the children of nested ones after them
    apart: bool  # whether no byte belongs to two buffers


def record_batch(data: memoryview, found: Message) -> BatchClaim:
    header = found.header.table(1) if found.kind == DICTIONARY else found.header
    if header is None:
        raise CorruptError("a dictionary without data", at=found.at)
    rows = header.scalar(0, "<q")
    if rows < 0:
        raise CorruptError(f"a record batch of {rows} rows", at=found.at)
    nulls = tuple(count for _, count in _pairs(header, 1))
    buffers = _pairs(header, 2)
    apart = _are_apart(buffers)
    if header.place(3) is None:
        return BatchClaim(rows, False, 0, nulls, apart)
    claimed = 0
    for offset, length in buffers:
        if length == 0:
            continue
        at = found.start + offset
        if offset < 0 or length < 8 or at + length > found.end:
            raise CorruptError(f"a compressed buffer of {length} bytes at {offset} of its body", at=found.at)
        (size,) = struct.unpack_from("<q", data, at)
        if size < -1:
            raise CorruptError(f"a compressed buffer that claims {size} bytes", at=at)
        claimed += max(size, 0)
    return BatchClaim(rows, True, claimed, nulls, apart)


def _pairs(header: Flat, field: int) -> list[tuple[int, int]]:
    start, count = header.vector(field, _PAIR.size)
    return list(_PAIR.iter_unpack(header.data[start : start + count * _PAIR.size]))


def _are_apart(buffers: list[tuple[int, int]]) -> bool:
    end = 0
    for offset, length in sorted(buffers):
        if length and offset < end:
            return False
        end = max(end, offset + length)
    return True


def has_end(data: memoryview) -> bool:
    """Whether a stream ends with its mark. Arrow lets writers leave it out; then nobody can tell where it was cut."""
    return bytes(data[-8:]) == CONTINUES + bytes(4)


def batches(data: memoryview) -> list[BatchClaim]:
    """The record batches of a file or a stream, without their content; dictionaries count as claims alone."""
    found: list[BatchClaim] = []
    extra = 0
    for item in _file(data) if bytes(data[:6]) == MAGIC else _stream(data):
        if item.kind not in (DICTIONARY, RECORDS):
            raise CorruptError(f"{_KINDS[item.kind]} among the record batches", at=item.at)
        batch = record_batch(data, item)
        if item.kind == DICTIONARY:
            extra += batch.claimed
        else:
            found.append(batch._replace(claimed=batch.claimed + extra))
            extra = 0
    return found


def check_claims(found: list[BatchClaim], size: int, budget: Budget, lazy: bool) -> None:
    """Refuse to decompress what only claims to be there. Lazily read batches are taken one by one."""
    total = max((batch.claimed for batch in found), default=0) if lazy else sum(batch.claimed for batch in found)
    budget.renewed(size).copy(total, "compressed record batches", 0)


def _stream(data: memoryview) -> Iterator[Message]:
    at = 0
    while at < len(data):
        item = message(data, at)
        if item is None:
            rest = len(data) - at - (8 if bytes(data[at : at + 4]) == CONTINUES else 4)
            if rest:
                raise CorruptError(f"{rest} bytes follow the end of the stream", at=len(data) - rest)
            return
        if at == 0 and item.kind != SCHEMA:
            raise CorruptError(f"a stream starts with its schema, not with {_KINDS[item.kind]}", at=0)
        if at:
            yield item
        at = item.end


def _file(data: memoryview) -> Iterator[Message]:
    """The messages that the footer lists; no byte may belong to two of them."""
    end = len(data) - 10
    if end < 8 or bytes(data[-6:]) != MAGIC:
        raise CorruptError("the file does not end with ARROW1: cut short, or no Arrow file", at=max(len(data) - 6, 0))
    (length,) = struct.unpack_from("<i", data, end)
    if not 0 < length <= end - 8:
        raise CorruptError(f"a footer of {length} bytes in a file of {len(data)}", at=end)
    footer = root(data[end - length : end], end - length)
    blocks = []
    for field in (2, 3):
        start, count = footer.vector(field, _BLOCK.size)
        blocks += [
            (*_BLOCK.unpack_from(footer.data, start + n * _BLOCK.size), DICTIONARY if field == 2 else RECORDS)
            for n in range(count)
        ]
    last = 8
    for offset, head, body, _ in sorted(blocks):
        if offset < last or head <= 0 or body < 0 or offset + head + body > end - length:
            raise CorruptError(f"the footer lists a block at {offset} that overlaps others or lies outside", at=end)
        last = offset + head + body
    for offset, head, body, kind in blocks:
        item = message(data, offset)
        if item is None or item.kind != kind or item.start != offset + head or item.end != item.start + body:
            raise CorruptError("the footer and a message disagree", at=offset)
        yield item
