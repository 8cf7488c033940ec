"""The native frame: a TFRecord file whose records are TensorProtos. See spec/frame.md.

    u64 length, u32 masked CRC-32C of it, payload, u32 masked CRC-32C of the payload

A document of n tensors is n records; a stream is any number of documents, numbered.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorbytes._wire import (
    BAD_DATA,
    BAD_LENGTH,
    CUT_HEADER,
    CUT_PAYLOAD,
    OK,
    crc32c,
    frame_header,
    frames,
    mask,
    scan,
)
from tensorbytes.errors import CorruptError, LimitError, Limits
from tensorbytes.formats import Format, Options, _record
from tensorbytes.formats._record import Place, Record
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer, bytes_view

HEADER_BYTES = 12
FRAME_BYTES = 16
_WORDS = {
    CUT_HEADER: "the file ends inside a record's header",
    CUT_PAYLOAD: "a record runs past the end of the file",
    BAD_LENGTH: "the checksum of a record's length differs",
    BAD_DATA: "the checksum of a record's data differs",
}
# Faults that a write cut short does not explain.
NOT_TORN = (_WORDS[BAD_LENGTH],)


class Frame(Format):
    name = "tb"
    suffixes = (".tb",)

    def sniff(self, head: bytes, size: int) -> bool:
        if len(head) < FRAME_BYTES:
            return False
        length, stored = struct.unpack_from("<QI", head)
        return bool(stored == mask(crc32c(head[:8])) and length <= size - FRAME_BYTES)

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        """Header, tensor memory and checksum of each record; the memory is not copied."""
        for payload in records(document):
            yield from framed(payload)

    def dumps(self, document: Document, allow: frozenset[str], options: Options) -> bytes:
        return frames(list(records(document)))

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        return assemble(read_records(data, limits, lazy))


def records(document: Document, at: int = 0) -> Iterator[list[Any]]:
    """The payload of each record as a list of buffers; `at` is where the first one will stand."""
    count = len(document.leaves)
    for part, leaf in enumerate(document.leaves):
        place = Place(part, count, document.item, document.meta if part == 0 else {})
        payload = _record.encode(leaf, place, at + HEADER_BYTES)
        yield payload
        at += FRAME_BYTES + sum(len(bytes_view(piece)) for piece in payload)


def framed(payload: list[Any]) -> Iterator[Buffer]:
    """A record's pieces with its frame around them. Checksums are computed as pieces go out."""
    yield frame_header(sum(len(bytes_view(piece)) for piece in payload))
    crc = 0
    for piece in payload:
        crc = crc32c(piece, crc)
        yield piece
    yield struct.pack("<I", mask(crc))


def spans(data: memoryview, verify: bool, limits: Limits, start: int = 0) -> Iterator[tuple[int, int]]:
    """(payload start, payload end) of every record; raises at the first that is not sound."""
    room = np.empty((1024, 2), np.int64)
    total = 0
    while start < len(data):
        found, start, status = scan(data, start, verify, room)
        total += found
        if total > limits.max_tensors:
            raise LimitError(f"over {limits.max_tensors} tensors; pass limits=Limits(max_tensors=...) to read them")
        for at, size in room[:found].tolist():
            yield at, at + size
        if status != OK:
            raise CorruptError(_WORDS[status], at=start)


def read_records(data: memoryview, limits: Limits, lazy: bool = False) -> Iterator[tuple[Record, int]]:
    """Each record, with its offset."""
    for start, end in spans(data, not lazy, limits):
        yield read_record(data, start, end, limits, lazy), start


def read_record(data: memoryview, start: int, end: int, limits: Limits, lazy: bool) -> Record:
    """The record in [start, end). A lazy one must vouch for its own header, or is read whole."""
    if lazy:
        record = _record.decode(data, start, end, limits, check_values=False)
        if record.header_checked:
            leaf = record.leaf
            record.leaf = Leaf(leaf.value, leaf.path, leaf.kind, lambda: check_record(data, start, end, limits))
            return record
        check_payload(data, start, end)
    return _record.decode(data, start, end, limits)


def check_record(data: memoryview, start: int, end: int, limits: Limits) -> None:
    """Everything about a record that lazy reading puts off."""
    check_payload(data, start, end)
    _record.decode(data, start, end, limits)


def check_payload(data: memoryview, start: int, end: int) -> None:
    (stored,) = struct.unpack_from("<I", data, end)
    if stored != mask(crc32c(data[start:end])):
        raise CorruptError(_WORDS[BAD_DATA], at=start)


class Assembler:
    """Puts records back together as documents, and notices when one is missing."""

    def __init__(self) -> None:
        self._leaves: list[Leaf] = []
        self._first = Place()
        self.item = 0  # the number of the last stream item, 0 outside streams

    def add(self, record: Record, at: int) -> Document | None:
        """The document that this record completes, if it does."""
        place = record.place
        if place.part != len(self._leaves):
            raise CorruptError(f"part {place.part} of an object where part {len(self._leaves)} was due", at=at)
        if place.part == 0:
            # Concatenated streams start again at 1.
            if place.item not in (self.item + 1, 1, 0):
                raise CorruptError(f"item {place.item} of a stream follows item {self.item}", at=at)
            self._first, self.item = place, place.item
        elif (place.parts, place.item) != (self._first.parts, self._first.item):
            raise CorruptError("two objects are mixed", at=at)
        self._leaves.append(record.leaf)
        if len(self._leaves) < place.parts:
            return None
        document, self._leaves = Document(self._leaves, self._first.document, self.item), []
        return document

    def finish(self, at: int) -> None:
        """Complain if the last object is not whole."""
        if self._leaves:
            raise CorruptError(
                f"the file ends after {len(self._leaves)} of {self._first.parts} tensors of an object", at=at
            )


def assemble(found: Iterator[tuple[Record, int]]) -> Iterator[Document]:
    assembler = Assembler()
    at = 0
    for record, at in found:
        document = assembler.add(record, at)
        if document is not None:
            yield document
    assembler.finish(at)


FORMAT = Frame()
