"""The native frame: a TFRecord file whose records are TensorProtos. See spec/frame.md.

    u64 length, u32 masked CRC-32C of it, payload, u32 masked CRC-32C of the payload

A document of n tensors is n records; a stream is any number of documents, numbered.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

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
from tensorbytes._wire.portions import portions
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    MORE_TENSORS,
    CorruptError,
    LimitError,
    Limits,
    TensorbytesError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats import (
    HARDLY,
    LIKELY,
    NATIVE,
    SURE,
    Format,
    Options,
    _directory,
    _extension,
    _message,
    _record,
    _storing,
    _table,
    ready_for,
)
from tensorbytes.formats._directory import Listed, UnreadDirectory
from tensorbytes.formats._extension import ALONE, Place
from tensorbytes.formats._opened import Created, Opened
from tensorbytes.formats._record import Alias, Record, size_of
from tensorbytes.formats._storing import AS_IS, Storing
from tensorbytes.io import checksums, storage
from tensorbytes.io.source import Source
from tensorbytes.io.storage import Target, naming
from tensorbytes.io.workers import MANY, Crew, map_in_order
from tensorbytes.lazy import made_once
from tensorbytes.rows import Table, concatenate, rebatch, table_of
from tensorbytes.tensor import InvalidValueError, Tensor, Value
from tensorbytes.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, is_record_header
from tensorbytes.tfrecord.walk import Walk
from tensorbytes.tree import NO_META, Document, LazyLeaves, Leaf, Path, find_aliases, read_all
from tensorbytes.typing import Buffer

# Documents from this size on are checksummed in a second thread while they are written.
_THREAD_BYTES = 1 << 23
# Of a large file, smaller records than this share memory with their neighbours, up to this much.
_LARGE_RECORD = 1 << 18
_RUN_BYTES = 1 << 20
_WINDOW = 1 << 16
_WORDS = {
    CUT_HEADER: "the file ends inside a record's header",
    CUT_PAYLOAD: "a record runs past the end of the file",
    BAD_LENGTH: "the checksum of a record's length differs",
    BAD_DATA: "the checksum of a record's data differs",
}


class Frame(Format):
    name = NATIVE
    label = "tensorbytes"
    words = "our own: a checksummed TFRecord of TensorProtos"
    aliases = ("tensorbytes",)
    suffixes = (".tb",)
    read_by = "TensorFlow"
    holds = "everything"
    complete = streams = rows = masks = ties = framed = empty = True
    checksums = "CRC-32C of each tensor"
    write_options = _storing.OPTIONS
    compressions = _storing.PIPELINES
    pipelines = True
    read_options = _storing.READ_OPTIONS
    lists_quickly = True

    def sniff(self, head: bytes, size: int) -> float:
        # The length's checksum decides, and the tag of a TensorProto's dtype; a file that was cut short is still one.
        if not is_record_header(head) or not any(head[:8]):  # no tensor is a record of no bytes
            return 0
        start = head[HEADER_BYTES : HEADER_BYTES + 1]
        if start == b"\x08":  # other messages may start so as well: then there is no shape after it
            return (
                SURE if _message.look(head, HEADER_BYTES, HEADER_BYTES + int.from_bytes(head[:8], "little")) else LIKELY
            )
        return SURE if not start else 0 if start in (b"\x09", b"\x0a", b"\x12") else HARDLY

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        """Header, tensor memory and checksum of each record; the memory is not copied."""
        storing = Storing.of(options)
        storing.check_names(document)
        if not storing.changes or _content_bytes(document) < _THREAD_BYTES:
            yield from _framed(whole(document, storing))
        else:  # made one by one: all of them may not fit into memory, and their sizes are known too late
            for payload in records(document, 0, storing):
                yield from _framed([payload])

    def pieces(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        storing = Storing.of(options)
        storing.check_names(document)
        return list(_framed(whole(document, storing)))

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        """There is no loss; names and metadata must be text with a UTF-8 form, and tables be tables."""
        Storing.of(options).check_names(document)
        check_rows(document)
        for part, leaf in enumerate(document.leaves):
            _extension.encode(leaf, Place.of(document, part))

    def written_apart(self, document: Document, options: Options) -> dict[int, int]:
        kept = aliases_of(document.leaves, Storing.of(options))
        return {part: first for part, first in find_aliases(document.leaves).items() if part not in kept}

    def dumps(self, document: Document, allow: frozenset[str], options: Options) -> bytes:
        storing = Storing.of(options)
        storing.check_names(document)
        return frames(whole(document, storing))

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        storing = Storing.of(options)
        if not storing.changes:
            payloads = whole(ready_for(document, target), storing)
            size = sum(size_of(payload) + FRAME_BYTES for payload in payloads)
            storage.write(target, _framed(payloads), sync=sync, size=size)
            return
        if document.item or len(document.leaves) == 1 or not storage.is_rewritable(target):
            super().write(document, target, allow, options, sync)
            return
        storing.check_names(document)
        directory = _Directory(document, storing)
        if not directory.field:
            super().write(document, target, allow, options, sync)
            return
        made = (piece for payload in directory.payloads() for piece in _framed([payload]))
        storage.write(target, made, sync=sync, finish=directory.fill_in)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        dequantize = options.get("dequantize", True)
        if lazy:
            return _decode_lazily(data, limits, dequantize)
        # A directory tells what values are, not what they are stored as.
        found = read_records(data, Budget(limits, len(data)), False, dequantize)
        return assemble(found, limits, len(data), directories=dequantize)

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document]:
        size = os.fstat(file.fileno()).st_size
        return assemble(_records_of_file(file, size, limits), limits, size)

    def open(self, source: Source, limits: Limits, options: Options, claimed: bool = False) -> Opened:
        return _OpenedFrame(self, source, limits, options)

    def create(self, target: Target, options: Options, sync: bool = True, shards: int = 1) -> Created:
        from tensorbytes.formats._frame_writer import CreatedFrame  # which stands on this module

        return CreatedFrame(target, options)


class _OpenedFrame(Opened):
    """A file of the frame. If all of its objects are groups of rows, it is a table: one document of its columns."""

    @made_once
    def rows(self) -> bool:
        """Whether it is a table. Where the first object is not a group of rows, no other is looked at.

        A table with a torn end is one: its rows are read up to there, and then the damage is told.
        """
        found = super().decode(True) if self.size else iter(())
        table = False
        with contextlib.suppress(CorruptError):
            for document in found:
                table = document.rows is not None
                if not table:
                    break
        return table

    def decode(self, lazy: bool) -> Iterator[Document]:
        found = super().decode(lazy)
        first = next(found, None)
        if first is None:
            return
        if first.rows is None:
            yield first
            yield from found
            return
        rest, budget, damage = [], Budget(self.limits, self.size), None
        try:
            for document in found:
                budget.tensors(len(document.leaves))
                rest.append(document)
        except CorruptError as error:  # what is sound before it is given first
            damage = error
        if damage is not None or any(document.rows is None for document in rest):
            yield first  # objects that were added to a table are a stream of both
            yield from rest
        else:
            yield self._joined([first, *rest], lazy) if rest else first._replace(item=0)
        if damage is not None:
            raise damage

    def _joined(self, groups: list[Document], lazy: bool) -> Document:
        """Groups of rows as one: each column is put together when it is asked for, or now."""
        by_path = [{leaf.path: leaf for leaf in group.leaves} for group in groups]
        rows = sum(group.rows or 0 for group in groups)
        paths = dict.fromkeys(path for leaves in by_path for path in leaves)
        leaves = [self._column(groups, [leaves.get(path) for leaves in by_path], rows) for path in paths]
        whole = groups[0]._replace(leaves=leaves, rows=rows, item=0)
        return whole if lazy else whole._replace(leaves=read_all(leaves))

    def _column(self, groups: list[Document], parts: list[Leaf | None], rows: int) -> Leaf:
        there = next(leaf for leaf in parts if leaf is not None)
        if None in parts and not _table.is_mask(there):
            raise CorruptError(f"the column {there.name!r} is in some groups of the table, and not in all", at=there.at)

        def fetch() -> Value:
            pairs = zip(parts, groups, strict=True)
            return concatenate([_all_there(group) if leaf is None else leaf.read() for leaf, group in pairs])

        def check() -> None:
            for leaf in parts:
                if leaf is not None and leaf.check is not None:
                    leaf.check()

        head = there.header
        size = sum(leaf.header.nbytes or 0 for leaf in parts if leaf is not None)
        told = there.value.meta, there.value.origin
        value = Deferred(head.kind, head.dtype, (rows, *head.shape[1:]), fetch, size, None, None, *told)
        return Leaf(value, there.path, check=check, at=there.at)

    def tables(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Table]:
        with naming(self.path):
            yield from rebatch(map(partial(self._table, takes), super().decode(True)), size)

    def _table(self, takes: Callable[[str], bool] | None, document: Document) -> Table:
        if document.rows is None:
            raise UnsupportedError("a table, and objects that are not rows of it", path=self.path)
        leaves = document.leaves
        if takes is not None:
            taken = [leaf.path for leaf in leaves if not _table.is_mask(leaf) and takes(str(leaf.name))]
            around = {path[:depth] for path in taken for depth in range(1, len(path) + 1)}
            leaves = [leaf for leaf in leaves if _owner(leaf) in around]
        for leaf in leaves:
            if leaf.check is not None:
                leaf.check()
        leaves = read_all(leaves)
        check_table(leaves, document.rows, leaves[0].at if leaves else 0)
        return table_of(document._replace(leaves=leaves))


def _all_there(group: Document) -> Tensor:
    """The mask of rows that all have a value."""
    assert group.rows is not None
    return Tensor("bool", (group.rows,), np.ones(group.rows, np.uint8))


def _owner(leaf: Leaf) -> Path:
    """The path of a column, or of the column or struct that a mask is of."""
    return leaf.path[:-1] if _table.is_mask(leaf) else leaf.path


def records(
    document: Document, at: int = 0, storing: Storing = AS_IS, directory: _Directory | None = None
) -> Iterator[list[Any]]:
    """The payload of each record as a list of buffers; `at` is where the first one will stand.

    `directory` goes onto the first record, and is told the size of each.
    """
    check_rows(document)
    aliases = aliases_of(document.leaves, storing) if directory is None else directory.aliases
    field = b"" if directory is None else directory.field
    for part, leaf in enumerate(document.leaves):
        place = Place.of(document, part)
        if part in aliases:
            first = aliases[part]
            payload = _record.encode_alias(leaf, place, first, document.leaves[first].name)
        else:
            payload = _record.encode(leaf, place, at + HEADER_BYTES, storing, b"" if part else field)
        size = size_of(payload)
        if directory is not None:
            directory.sizes.append(size)
        yield payload
        at += FRAME_BYTES + size


def check_rows(document: Document) -> None:
    """Refuse a document that says it is a table and is not one."""
    try:
        _table.check(document.leaves, document.rows)
    except InvalidValueError as error:
        raise UsageError(f"not a table: {error}") from None


def aliases_of(leaves: Sequence[Leaf], storing: Storing = AS_IS) -> dict[int, int]:
    """The numbers of leaves whose value is that of an earlier leaf, and would be stored in the same way."""
    return find_aliases(leaves, (lambda leaf: storing.asked(leaf.name)) if storing.changes else None)


def whole(document: Document, storing: Storing = AS_IS) -> list[list[Any]]:
    """The payloads of all records of an object that is saved whole, with a directory if there are several."""
    if len(document.leaves) == 1:
        return list(records(document, 0, storing))
    if not storing.changes:
        leaves = read_all(document.leaves)
        if leaves is not document.leaves:
            document = document._replace(leaves=leaves)
    directory = _Directory(document, storing)
    payloads = list(directory.payloads())
    if directory.field:
        payloads[0] = directory.filled()
    return payloads


class _Directory:
    """The directory of an object whose records are made one after another: filled in when they are."""

    def __init__(self, document: Document, storing: Storing) -> None:
        leaves = document.leaves
        if storing.changes and any(leaf.kind for leaf in leaves):  # Python's own values: small, and stored as they are
            leaves = [leaf._replace(value=leaf.read()) if leaf.kind else leaf for leaf in leaves]
            document = document._replace(leaves=leaves)
        self._document, self._storing = document, storing
        self.field, self._columns, self._wide = b"", b"", False
        self.aliases = aliases_of(leaves, storing)
        if not document.item and len(leaves) > 1:  # items of a stream are written object by object
            self._columns = _directory.encode(leaves, self.aliases, storing.changes)
        if self._columns:
            self._wide = _directory.is_wide(leaves)
            self.field = self._columns + _directory.sizes_field([0] * (len(leaves) - 1), self._wide)
        self._first: list[Any] = []
        self.sizes: list[int] = []  # of the payloads, as they are made

    def payloads(self) -> Iterator[list[Any]]:
        """Those of all records; the sizes in the first one are still zeros."""
        for payload in records(self._document, 0, self._storing, self):
            self._first = self._first or payload
            yield payload

    def filled(self) -> list[Any]:
        """The payload of the first record, once all others were made."""
        field = self._columns + _directory.sizes_field(self.sizes[1:], self._wide)
        return _record.with_directory(self._first, self.field, field)

    def fill_in(self, file: Any) -> None:
        """Write the first record once more."""
        payload = self.filled()
        file.seek(HEADER_BYTES)
        storage.write_all(file, payload[0])
        file.seek(HEADER_BYTES + self.sizes[0])
        storage.write_all(file, checksum(payload))
        file.seek(0, os.SEEK_END)


def _content_bytes(document: Document) -> int:
    return sum(leaf.value.nbytes for leaf in document.leaves)


def checksum(payload: list[Any]) -> bytes:
    """The four bytes that end a record."""
    crc = 0
    for piece in payload:
        crc = checksums.crc32c(piece, crc)
    return struct.pack("<I", mask(crc))


def framed(payload: list[Any], ending: bytes) -> list[Buffer]:
    """A record's pieces with its frame around them."""
    return [frame_header(size_of(payload)), *payload, ending]


def _framed(payloads: list[list[Any]]) -> Iterator[Buffer]:
    """The pieces of records with their frames. Of many bytes a second thread makes the sums while the caller writes:
    neither holds the GIL."""
    if sum(map(size_of, payloads)) < _THREAD_BYTES:
        for payload in payloads:
            yield from framed(payload, checksum(payload))
        return
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
    data: memoryview, budget: Budget, lazy: bool = False, dequantize: bool = True, at: int = 0
) -> Iterator[tuple[Record, int, int]]:
    """Each record from `at` on, with where its payload starts and ends."""
    # Large records are verified when they are read: those that are compressed have checksums of their own.
    for start, end in spans(data, 0 if lazy else SMALL, budget.limits, at):
        record = read_record(data, start, end, budget, lazy, end - start < LARGE_PAYLOAD, dequantize)
        yield record, start, end


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


class RecordOrder:
    """Which record comes next: the parts of an object in turn, the items of a stream in turn."""

    def __init__(self, item: int = 0) -> None:
        self.first = ALONE  # the place of the object's first record
        self.have = 0  # how many parts of the object there are so far
        self.item = item  # the number of the last stream item, 0 outside streams

    def fault(self, place: Place) -> str:
        """What is wrong with a record of this place coming next, if anything."""
        if place.part != self.have:
            return f"part {place.part} of an object where part {self.have} was due"
        if place.part:
            mixed = (place.parts, place.item) != (self.first.parts, self.first.item) or place.is_first
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
    """Puts records back together as documents, and notices when one is missing or not what another says of it."""

    def __init__(self, *, directories: bool = True, item: int = 0) -> None:
        self._directories = directories  # whether there is a frame, which they tell the sizes of
        self._leaves: list[Leaf] = []
        self._sizes: list[int] = []
        self._aliases: dict[int, int] = {}
        self._directory: UnreadDirectory | None = None
        self._order = RecordOrder(item)

    @property
    def item(self) -> int:
        """The number of the last stream item, 0 outside streams."""
        return self._order.item

    def add(self, record: Record, start: int, end: int) -> Document | None:
        """The document that this record completes, if it does."""
        self.check_place(record, start)
        leaf = record.leaf
        if record.alias is not None:
            leaf = self._shared(leaf, record.alias, start)
        self._leaves.append(leaf)
        self._sizes.append(end - start)
        if record.directory is not None and self._directories:
            self._directory = record.directory
        if not self._order.take(record.place):
            return None
        return self._finished(start)

    def check_place(self, record: Record, start: int) -> None:
        wrong = self._order.fault(record.place)
        if not wrong and record.directory is not None and record.place.part:
            wrong = f"a directory on part {record.place.part} of an object"
        if wrong:
            raise CorruptError(wrong, at=start)

    def skip(self, place: Place) -> None:
        """All records of an object, whose first has this place, are listed elsewhere."""
        self._order.take(place)
        self._order.have = 0

    def _shared(self, leaf: Leaf, alias: Alias, at: int) -> Leaf:
        target = self._leaves[alias.part]  # its number is below that of the record, which is how many there are
        check_alias(target, alias, alias.part in self._aliases, at)
        self._aliases[len(self._leaves)] = alias.part
        return shared(leaf, target)

    def _finished(self, at: int) -> Document:
        leaves, sizes, aliases, directory = self._leaves, self._sizes, self._aliases, self._directory
        self._leaves, self._sizes, self._aliases, self._directory = [], [], {}, None
        first = self._order.first
        if first.rows is not None or leaves[0].path:  # else it is one value, which is not part of a table
            check_table(leaves, first.rows, at)
        if directory is not None:
            _directory.compare(directory, leaves, sizes, aliases)
        return Document(leaves, first.document, self._order.item, first.origin, first.rows)

    def finish(self, at: int) -> None:
        """Complain if the last object is not whole."""
        if self._order.unfinished:
            raise CorruptError(self._order.unfinished, at=at)


def check_alias(target: Leaf, alias: Alias, chained: bool, at: int) -> None:
    """Refuse an alias of something that is not a tensor by that name, stored in a record of its own."""
    if chained:
        raise CorruptError(f"an alias of {alias.name!r}, which is itself an alias", at=at)
    if target.name != alias.name:
        raise CorruptError(f"an alias of part {alias.part} as {alias.name!r}, which is {target.name!r}", at=at)
    if target.kind or not target.path:
        what = "is a Python value" if target.kind else "has no place in the structure"
        raise CorruptError(f"an alias of {alias.name!r}, which {what}", at=at)


def shared(leaf: Leaf, target: Leaf) -> Leaf:
    """The leaf of an alias: the value of its target, under its own path."""
    return leaf._replace(value=target.value, check=target.check, stored=target.stored)


def check_table(leaves: list[Leaf], rows: int | None, at: int) -> None:
    try:
        _table.check(leaves, rows)
    except InvalidValueError as error:
        raise CorruptError(str(error), at=at) from None


def assemble(
    found: Iterator[tuple[Record, int, int]], limits: Limits, size: int, *, directories: bool = True
) -> Iterator[Document]:
    """The documents of an input of `size` bytes. Each has the limits to itself: who keeps several counts them."""
    assembler, held = Assembler(directories=directories), Budget(limits, size)
    at = 0
    for record, at, end in found:
        held.tensors(1, at)
        document = assembler.add(record, at, end)
        if document is not None:
            yield document
            held = Budget(limits, size)
    assembler.finish(at)


def next_document(data: memoryview, at: int, item: int, limits: Limits) -> tuple[Document, int]:
    """The document at `at`, verified, and where it ends; `item` is the number of the stream's item before it."""
    assembler, held = Assembler(item=item), Budget(limits, len(data))
    for record, start, end in read_records(data, held, at=at):
        held.tensors(1, start)
        document = assembler.add(record, start, end)
        if document is not None:
            return document, end + FOOTER_BYTES
    assembler.finish(at)
    raise CorruptError("no record where one was due", at=at)


# ---- lazily: from directories where there are any ----------------------------------------


def _decode_lazily(data: memoryview, limits: Limits, dequantize: bool) -> Iterator[Document]:
    """The documents of a file. One with a directory is listed by it; else all records are looked at."""
    budget, assembler, held = Budget(limits, len(data)), Assembler(directories=dequantize), Budget(limits, len(data))
    at = last = count = 0
    while at < len(data):
        # The first record of a stretch is looked at alone: it may tell all about the others.
        first = _sound_span(data, at)
        rest = spans(data, 0, limits, at if first is None else first[1] + FOOTER_BYTES)
        for start, end in itertools.chain([] if first is None else [first], rest):
            count += 1
            if count > limits.max_tensors:
                raise LimitError(f"over {limits.max_tensors} tensors", hints=[MORE_TENSORS])
            last = start
            record = read_record(data, start, end, budget, lazy=True, dequantize=dequantize)
            # The columns of a table are checked against each other, so all of them are looked at.
            listed = record.directory is not None and not record.place.part and record.place.rows is None
            if listed and dequantize:
                assembler.check_place(record, start)
                listing = _Listing(data, start, end, record, budget)
                assembler.skip(record.place)
                yield listing.document()
                held, at, count = Budget(limits, len(data)), listing.end, count + record.place.parts - 1
                break
            held.tensors(1, start)
            document = assembler.add(record, start, end)
            if document is not None:
                yield document
                held = Budget(limits, len(data))
        else:
            break
    assembler.finish(last)


def _sound_span(data: memoryview, at: int) -> tuple[int, int] | None:
    """Where the payload of the record at `at` starts and ends, if its header is sound and it fits into the file."""
    if len(data) - at < FRAME_BYTES:
        return None
    length, stored = struct.unpack_from("<QI", data, at)
    if stored != mask(crc32c(data[at : at + 8])) or length > len(data) - at - FRAME_BYTES:
        return None
    return at + HEADER_BYTES, at + HEADER_BYTES + length


class _Listing:
    """An object that is listed by its directory. Records are read when they are asked for, each once, and must be
    what the directory said of them."""

    def __init__(self, data: memoryview, start: int, end: int, first: Record, budget: Budget) -> None:
        assert first.directory is not None
        self._data, self._limits, self._place = data, budget.limits, first.place
        self._directory = _directory.decode(*first.directory, end - start, first.place.parts, budget)
        sizes = self._directory.sizes
        if sizes.sum(dtype=np.float64) <= len(data):  # else 64 bits may not hold the sum
            frames = sizes.astype(np.int64) + FRAME_BYTES
            self._starts, self.end = start + np.cumsum(frames) - frames, start - HEADER_BYTES + int(frames.sum())
        else:
            self.end = start - HEADER_BYTES + sum(size + FRAME_BYTES for size in sizes.tolist())
        if self.end > len(data):
            raise CorruptError(
                f"{_WORDS[CUT_PAYLOAD]}: the directory of the object tells of {self.end} bytes", at=len(data)
            )
        self._leaves = {0: self._proved(first, 0)}

    def document(self) -> Document:
        place = self._place
        leaves = LazyLeaves(self._directory.names, self._listed)
        return Document(leaves, place.document, place.item, place.origin, place.rows)

    def _listed(self, part: int) -> Leaf:
        return Listed.of(self._directory, part, partial(self._leaf, part)) if part else self._leaves[0]

    def _leaf(self, part: int) -> Leaf:
        """The leaf of a record, read once."""
        leaf = self._leaves.get(part)
        return self._leaves.setdefault(part, self._read(part)) if leaf is None else leaf

    def _read(self, part: int) -> Leaf:
        start, size = int(self._starts[part]), int(self._directory.sizes[part])
        at = start - HEADER_BYTES
        if _sound_span(self._data, at) != (start, start + size):
            check_header(self._data, at)
            raise CorruptError(f"the directory of the object says {size} bytes of part {part}, which has others", at=at)
        budget = Budget(self._limits, size)
        record = read_record(self._data, start, start + size, budget, lazy=True)
        if record.place != self._place._replace(part=part, document=NO_META, origin=NO_META, rows=None):
            raise CorruptError(f"another record where part {part} of an object should be", at=start)
        return self._proved(record, part)

    def _proved(self, record: Record, part: int) -> Leaf:
        leaf, alias, flags = record.leaf, record.alias, self._directory.flags
        wrong = ""
        if bool(flags[part] & _directory.ALIAS) != (alias is not None):  # known before a chain of them is followed
            wrong = f"the directory of the object says {alias is None} of the alias of part {part}"
        elif alias is not None:
            chained = bool(flags[alias.part] & _directory.ALIAS)
            target = leaf if chained else self._leaf(alias.part)
            check_alias(target, alias, chained, leaf.at)
            leaf = shared(leaf, target)
        wrong = wrong or _directory.fault(self._directory, part, leaf, alias is not None)
        if wrong:
            raise CorruptError(wrong, at=leaf.at)
        return leaf


def check_header(data: memoryview, at: int) -> None:
    """Raise what is wrong with the header of the record at `at`, if anything."""
    walk = Walk.through(data[: at + FRAME_BYTES], at)
    for _ in walk:
        return
    if walk.status not in (OK, CUT_PAYLOAD):
        raise CorruptError(_WORDS[walk.status], at=at)


# ---- large files: two threads, and memory of its own for each large tensor ----------------
#
# A tensor that is dropped gives its memory back, whatever else of the file is kept; and memory that was given back is
# used again, which fresh memory for the whole file never is.


def _records_of_file(file: io.FileIO, size: int, limits: Limits) -> Iterator[tuple[Record, int, int]]:
    budget = Budget(limits, size)
    total = 0
    work = map_in_order(partial(_read_segment, file, limits), segments(file.fileno(), size), 2, ahead=MANY)
    with closing(work) as segments_read:
        for start, data, spans in segments_read:
            total += len(spans)
            if total > limits.max_tensors:
                raise LimitError(f"over {limits.max_tensors} tensors", hints=[MORE_TENSORS])
            for first, last in spans:
                record = at_offset(data, first, last, start, budget)
                yield record, start + first, start + last


def at_offset(data: memoryview, start: int, end: int, base: int, budget: Budget) -> Record:
    """The record in data[start:end], where data stands at `base` of a file: errors tell the file's offsets."""
    try:
        record = read_record(data, start, end, budget, lazy=False, verified=True)
    except TensorbytesError as error:
        raise error.shifted(base) from None
    return record._replace(leaf=record.leaf._replace(at=base + start))


def _read_segment(
    file: io.FileIO, limits: Limits, segment: tuple[int, int]
) -> tuple[int, memoryview, list[tuple[int, int]]]:
    """(where it stands, the bytes, its records), checksums verified."""
    start, end = segment
    data = storage.aligned_memory(end - start, start % 64)
    for part in portions(len(data)):
        storage.read_at(file, data[part], start + part.start)
    try:
        return start, data, list(spans(data, True, limits))
    except CorruptError as error:
        raise error.shifted(start) from None


def segments(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Stretches of whole records: each large record alone, small ones together.

    Where the framing is damaged, the last stretch is the rest of the file; reading it will tell.
    """
    run, walk = 0, Walk(partial(_pread, fd), 0, size, piece=_WINDOW)
    for places in walk:
        start, length = places[-1].tolist()
        at = start - HEADER_BYTES
        if len(places) == 1 and length >= _LARGE_RECORD:
            if run < at:
                yield run, at
            yield at, walk.at
            run = walk.at
        elif walk.at - run >= _RUN_BYTES:
            yield run, walk.at
            run = walk.at
    if run < size:  # also what is damaged, or cut short
        yield run, size


def _pread(fd: int, at: int, size: int) -> bytes:
    return os.pread(fd, size, at)


FORMAT = Frame()
