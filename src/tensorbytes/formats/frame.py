"""The native frame: a TFRecord file whose records are TensorProtos. See spec/frame.md.

    u64 length, u32 masked CRC-32C of it, payload, u32 masked CRC-32C of the payload

A document of n tensors is n records; a stream is any number of documents, numbered.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tensorbytes._wire import (
    BAD_DATA,
    BAD_LENGTH,
    CUT_HEADER,
    CUT_PAYLOAD,
    LARGE_PAYLOAD,
    OK,
    SMALL,
    crc32c,
    frame_header,
    frames,
    mask,
)
from tensorbytes.budget import Budget
from tensorbytes.errors import MORE_TENSORS, CorruptError, LimitError, Limits, UnsupportedError
from tensorbytes.formats import Format, Options, _record, _storing
from tensorbytes.formats._extension import ALONE, Place
from tensorbytes.formats._record import Record, size_of
from tensorbytes.formats._storing import AS_IS, Storing
from tensorbytes.io import checksums
from tensorbytes.io.workers import Crew
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES
from tensorbytes.tfrecord.walk import Walk
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer

# Documents from this size on are checksummed in a second thread while they are written.
_THREAD_BYTES = 1 << 23
_WORDS = {
    CUT_HEADER: "the file ends inside a record's header",
    CUT_PAYLOAD: "a record runs past the end of the file",
    BAD_LENGTH: "the checksum of a record's length differs",
    BAD_DATA: "the checksum of a record's data differs",
}


class Frame(Format):
    name = "tb"
    words = "our own: a checksummed TFRecord of TensorProtos"
    suffixes = (".tb",)
    complete = streams = True
    write_options = _storing.OPTIONS
    read_options = frozenset({"dequantize"})

    def sniff(self, head: bytes, size: int) -> bool:
        # The length's checksum decides; a file that was cut short is still one of ours.
        if len(head) < HEADER_BYTES:
            return False
        (stored,) = struct.unpack_from("<I", head, 8)
        return bool(stored == mask(crc32c(head[:8])))

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        """Header, tensor memory and checksum of each record; the memory is not copied."""
        storing = Storing.of(options)
        if storing.changes:  # made one by one: all of them may not fit into memory
            storing.check_names(document)
            for payload in records(document, 0, storing):
                ahead = size_of(payload) >= _THREAD_BYTES
                yield from _framed_ahead([payload]) if ahead else framed(payload, checksum(payload))
            return
        payloads = list(records(document))
        if sum(map(size_of, payloads)) < _THREAD_BYTES:
            for payload in payloads:
                yield from framed(payload, checksum(payload))
        else:
            yield from _framed_ahead(payloads)

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        """There is nothing that can't be held; options are checked."""
        Storing.of(options).check_names(document)

    def dumps(self, document: Document, allow: frozenset[str], options: Options) -> bytes:
        storing = Storing.of(options)
        storing.check_names(document)
        return frames(list(records(document, 0, storing)))

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        found = read_records(data, Budget(limits, len(data)), lazy, options.get("dequantize", True))
        return assemble(found, limits, len(data))


def records(document: Document, at: int = 0, storing: Storing = AS_IS) -> Iterator[list[Any]]:
    """The payload of each record as a list of buffers; `at` is where the first one will stand."""
    count = len(document.leaves)
    for part, leaf in enumerate(document.leaves):
        place = Place(part, count, document.item, document.meta if part == 0 else {})
        payload = _record.encode(leaf, place, at + HEADER_BYTES, storing)
        yield payload
        at += FRAME_BYTES + size_of(payload)


def checksum(payload: list[Any]) -> bytes:
    """The four bytes that end a record."""
    crc = 0
    for piece in payload:
        crc = checksums.crc32c(piece, crc)
    return struct.pack("<I", mask(crc))


def framed(payload: list[Any], ending: bytes) -> list[Buffer]:
    """A record's pieces with its frame around them."""
    return [frame_header(size_of(payload)), *payload, ending]


def _framed_ahead(payloads: list[list[Any]]) -> Iterator[Buffer]:
    """The same for many bytes: a second thread sums while the caller writes. Neither holds the GIL."""
    with Crew(1) as crew:
        endings = [crew.start(checksum, payload) for payload in payloads]
        for payload, ending in zip(payloads, endings, strict=True):
            yield frame_header(size_of(payload))
            yield from payload
            yield ending.take()


def spans(data: memoryview, verify: int, limits: Limits, start: int = 0) -> Iterator[tuple[int, int]]:
    """(payload start, payload end) of every record; raises at the first that is not sound."""
    # Large payloads are summed here, in portions.
    walk = Walk.through(data, start, verify=SMALL if verify else 0)
    for places in walk:
        if walk.count > limits.max_tensors:
            raise LimitError(f"over {limits.max_tensors} tensors", hints=[MORE_TENSORS])
        for at, size in places.tolist():
            if verify == 1 and size >= LARGE_PAYLOAD and not _is_sound(data, at, at + size):
                raise CorruptError(_WORDS[BAD_DATA], at=at - HEADER_BYTES)
            yield at, at + size
    if walk.status != OK:
        raise CorruptError(_WORDS[walk.status], at=walk.at)


def read_records(
    data: memoryview, budget: Budget, lazy: bool = False, dequantize: bool = True
) -> Iterator[tuple[Record, int]]:
    """Each record, with its offset."""
    # Large records are verified when they are read: those that are compressed have checksums of their own.
    for start, end in spans(data, 0 if lazy else SMALL, budget.limits):
        record = read_record(data, start, end, budget, lazy, end - start < LARGE_PAYLOAD, dequantize)
        yield record, start


def read_record(
    data: memoryview, start: int, end: int, budget: Budget, lazy: bool, verified: bool = False, dequantize: bool = True
) -> Record:
    """The record in [start, end). `verified` says that its checksum was looked at; a lazy one must vouch for its
    own header, or is read whole."""

    def check() -> None:
        check_payload(data, start, end)

    if lazy and end - start < _record.ALIGN_FROM:  # too small for a header checksum of ours
        check()
        return _record.decode(data, start, end, budget, lazy=True, dequantize=dequantize)
    if verified and not lazy:
        return _record.decode(data, start, end, budget, dequantize=dequantize)
    try:
        record = _record.decode(data, start, end, budget, lazy=lazy, verify=check, dequantize=dequantize)
    except (LimitError, UnsupportedError):
        check()  # damage may explain what was found
        raise
    compressed = record.leaf.stored is not None and record.leaf.stored.compression
    if lazy and record.header_checked and not compressed:  # chunks have checksums of their own
        leaf = record.leaf._replace(check=lambda: check_record(data, start, end, budget.renewed(end - start)))
        return record._replace(leaf=leaf)
    return record


def check_record(data: memoryview, start: int, end: int, budget: Budget) -> None:
    """Everything about a record that lazy reading puts off."""
    check_payload(data, start, end)
    _record.decode(data, start, end, budget)


def check_payload(data: memoryview, start: int, end: int) -> None:
    if not _is_sound(data, start, end):
        raise CorruptError(_WORDS[BAD_DATA], at=start)


def _is_sound(data: memoryview, start: int, end: int) -> bool:
    (stored,) = struct.unpack_from("<I", data, end)
    return bool(stored == mask(checksums.crc32c(data[start:end])))


class Order:
    """Which record comes next: the parts of an object in turn, the items of a stream in turn."""

    def __init__(self) -> None:
        self.first = ALONE  # the place of the object's first record
        self.have = 0  # how many parts of the object there are so far
        self.item = 0  # the number of the last stream item, 0 outside streams

    def fault(self, place: Place) -> str:
        """What is wrong with a record of this place coming next, if anything."""
        if place.part != self.have:
            return f"part {place.part} of an object where part {self.have} was due"
        if place.part:
            mixed = (place.parts, place.item) != (self.first.parts, self.first.item) or place.document
            return "two objects are mixed" if mixed else ""
        # Concatenated streams start again at 1.
        follows = place.item in (self.item + 1, 1, 0)
        return "" if follows else f"item {place.item} of a stream follows item {self.item}"

    def take(self, place: Place) -> bool:
        """Count a record in; whether its object is whole now."""
        if not place.part:
            self.first, self.item = place, place.item
        self.have += 1
        if self.have < place.parts:
            return False
        self.have = 0
        return True

    @property
    def unfinished(self) -> str:
        """What is wrong if the file ends here."""
        return f"the file ends after {self.have} of {self.first.parts} tensors of an object" if self.have else ""


class Assembler:
    """Puts records back together as documents, and notices when one is missing."""

    def __init__(self) -> None:
        self._leaves: list[Leaf] = []
        self._order = Order()

    @property
    def item(self) -> int:
        """The number of the last stream item, 0 outside streams."""
        return self._order.item

    def add(self, record: Record, at: int) -> Document | None:
        """The document that this record completes, if it does."""
        wrong = self._order.fault(record.place)
        if wrong:
            raise CorruptError(wrong, at=at)
        self._leaves.append(record.leaf)
        if not self._order.take(record.place):
            return None
        document, self._leaves = Document(self._leaves, self._order.first.document, self._order.item), []
        return document

    def finish(self, at: int) -> None:
        """Complain if the last object is not whole."""
        if self._order.unfinished:
            raise CorruptError(self._order.unfinished, at=at)


def assemble(found: Iterator[tuple[Record, int]], limits: Limits, size: int) -> Iterator[Document]:
    """The documents of an input of `size` bytes. Each has the limits to itself: who keeps several counts them."""
    assembler, held = Assembler(), Budget(limits, size)
    at = 0
    for record, at in found:
        held.tensors(1, at)
        document = assembler.add(record, at)
        if document is not None:
            yield document
            held = Budget(limits, size)
    assembler.finish(at)


FORMAT = Frame()
