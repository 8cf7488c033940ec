"""Where each record starts: counting, and reading any of them without the rest.

An index is built by walking over the headers. `build_index` saves it beside the data as a
.tb file, which is used while size and time of the file are those it was built from. Otherwise
an index is built in memory: reading writes nothing. Compressed files have one as well, with places in
the inflated stream; reading from the middle of one inflates up to 8 MiB to get there.

A saved index is proved as it is used: for a record, by the headers up to it and its own checksums; for the number of
records, by all headers (a compressed file is inflated for either, once). One that is disproved is dropped with a
warning, and built anew in memory.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import _wire, formats
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, Hint, Limits, TensorbytesError, UsageError
from tensorbytes.formats.tfrecord.files import framing
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream, SeekableStream, open_stream
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.io import beside, storage
from tensorbytes.io.holding import check_free
from tensorbytes.io.paths import byte_range, expand
from tensorbytes.io.source import Source
from tensorbytes.io.streams.detection import NAMES
from tensorbytes.tensor import Array, Tensor
from tensorbytes.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from tensorbytes.tfrecord.walk import Walk, reader
from tensorbytes.tree import Document, Leaf

INDEX_SUFFIX = ".index.tb"
_VERSION = "1"
Stamp: TypeAlias = tuple[int, int]  # size and time of a file
_NONE: Array = np.empty((0, 2), np.int64)
# No record of a file is as long: sums of lengths stay far from where integers end.
_LONGEST = 1 << 48
# Records that lie closer together than this are read in one go.
_COALESCE_BYTES = 1 << 16
# More than this is not gathered in one call, which Ctrl-C would wait for.
_MOST_GATHERED = 64 << 20
# Records of at most this size, on the average, are read from a map: larger ones are faster copied once.
_SMALL_RECORD = 1 << 13
_HEAD_BYTES = 1 << 12
# What a byte of a compressed file can be inflated to, at most: deflate's 258 bytes for two bits.
_MOST_INFLATED = 1032
# A saved index is stored as it is: what would grow when it is decoded is not an index.
_AS_STORED = Limits(max_bytes=0)


class Disproved(Exception):
    """A saved index was wrong, and another one is in its place now: what was made of its numbers is void."""


class Index:
    """The places of one file's records, or of a split's. `saved` is the path of the file that it came from, if any."""

    def __init__(
        self,
        target: Any,
        compression: str,
        records: Array,
        budget: Budget,
        stamp: Stamp | None = None,
        saved: str | None = None,
    ) -> None:
        self._target, self.compression, self._budget = target, compression, budget
        self.records = records  # int64 [n, 2]: where the payload starts, its length
        self.stamp = stamp
        self._saved, self._proved = saved, 0 if saved is not None else len(records)
        self._origin = 0 if storage.is_path(target) else target.tell()
        self._inflate: SeekableStream | None = None
        self._process = 0  # which opened it
        self._mapped: tuple[Any, tuple[int, int]] | None = None  # a map, and which file it is of

    def __len__(self) -> int:
        """How many records there are, and not what a saved index says."""
        with contextlib.suppress(Disproved):
            self._prove(len(self.records), last=True)
        return len(self.records)

    def claims(self, number: int) -> bool:
        """Whether there is a record of this number, by the index alone: reading it will tell."""
        return number < len(self.records)

    def _prove(self, number: int, last: bool = False) -> None:
        """See that a saved index is right about the first records, this many of them; and that there are no more."""
        if self._saved is None or (self._proved >= number and not last):
            return
        if self.compression != "none" or last:
            if self._is_right(0, self._all_places()) == len(self.records):
                self._saved, self._proved = None, len(self.records)
                return
        else:
            with open(self._target, "rb", buffering=0) as file:
                walk = Walk(reader(file), self._end(self._proved), self._end(number))
                if self._is_right(self._proved, walk) == number:
                    self._proved = number
                    return
        self.refuse()
        self.records = _NONE  # what it said goes before what is true comes
        self.records = _build(self._target, 0, None, self.compression, self._budget).records
        self._saved, self._proved = None, len(self.records)
        raise Disproved

    def _is_right(self, at: int, places: Iterable[Array]) -> int | None:
        """How far the index agrees with what is in the file, from record `at` on; None if it does not."""
        for part in places:
            if not np.array_equal(part, self.records[at : at + len(part)]):
                return None
            at += len(part)
        return at

    def _all_places(self) -> Iterator[Array]:
        with open_stream(self._target, self.compression, limits=self._budget.limits) as stream:
            yield from _found(self._target, stream, 0, self._budget)

    def _end(self, number: int) -> int:
        """Where this many records end, by the index."""
        return int(self.records[number - 1].sum()) + FOOTER_BYTES if number else 0

    def refuse(self) -> None:
        """Say that a saved index was disproved."""
        assert self._saved is not None
        beside.warn(self._saved, "does not fit the records; build_index or `tb index` renews it", stacklevel=5)

    def read(self, numbers: Array) -> RecordBlock:
        """These records, verified, in this order. Disproved: the index was wrong, and is another one now."""
        if self._saved is not None and len(numbers):
            self._check_stamp()
            self._prove(int(numbers.max()) + 1)
        return self._read_block(numbers)

    def _check_stamp(self) -> None:
        if self.stamp is not None:
            self._check_status(os.stat(storage.describe(self._target)))

    def _check_status(self, status: os.stat_result) -> None:
        if self.stamp != _stamp_of(status):
            raise CorruptError(
                "the file has changed since it was indexed",
                at=0,
                path=storage.describe(self._target),
                hints=[Hint(purpose="open it again")],
            )

    def _read_block(self, numbers: Array) -> RecordBlock:
        self._check_stamp()
        return self._gathered(numbers) or self._read_runs(numbers)

    def _gathered(self, numbers: Array) -> RecordBlock | None:
        """The records, each read by itself; None where that can't be, or one of them is not sound."""
        return Shelf([self]).read(numbers)

    # ---- the file, for a shelf -----------------------------------------------------

    @property
    def path(self) -> str:
        return storage.describe(self._target)

    @property
    def is_plain(self) -> bool:
        """Whether records can be read at their places in the file."""
        return self.compression == "none" and storage.is_local(self._target)

    def open(self) -> io.FileIO:
        return io.FileIO(self._target)

    def map(self) -> Any:
        """A map of the file, which is kept: the pages belong to the system. None where there is none, or where records
        are so large that copying them twice would take longer than asking for each of them."""
        if self._mapped is None and self._has_small_records():
            with self.open() as file:
                status = os.fstat(file.fileno())
                self._check_status(status)
                made = _wire.map_file(file.fileno(), status.st_size)
            if made is not None:
                self._mapped = made, (status.st_dev, status.st_ino)
        return None if self._mapped is None else self._mapped[0]

    def _has_small_records(self) -> bool:
        return len(self.records) > 0 and self._end(len(self.records)) // len(self.records) <= _SMALL_RECORD

    def is_current(self) -> bool:
        """Whether the file is still the one that was mapped, if it was; one that has changed raises CorruptError."""
        status, mapped = os.stat(self._target), self._mapped
        self._check_status(status)
        if mapped is None or mapped[1] == (status.st_dev, status.st_ino):
            return True
        self._mapped = None
        return False

    def _read_runs(self, numbers: Array) -> RecordBlock:
        path = storage.describe(self._target)
        wanted, inverse = np.unique(numbers, return_inverse=True)
        starts = self.records[wanted, 0] - HEADER_BYTES
        ends = starts + self.records[wanted, 1] + FRAME_BYTES
        pieces, moved, at = [], self.records[wanted], 0
        runs = _runs(starts, ends)
        if self.compression != "none":
            size = sum(int(ends[last] - starts[first]) for first, last in runs)
            # Joining copies them.
            self._budget.check(size * min(len(runs), 2), f"{path}: {len(wanted)} records", int(starts[0]))
        spans = [(int(starts[first]), int(ends[last])) for first, last in runs]
        for (first, last), (begin, _), data in zip(runs, spans, self._read(spans), strict=True):
            rows = slice(first, last + 1)
            if not self._are_in_order(wanted[rows], data, begin):
                for number in wanted[rows].tolist():
                    self._check(number, data, begin, path)
            moved[rows, 0] += at - begin
            pieces.append(data)
            at += len(data)
        base, first = (int(starts[0]), int(wanted[0])) if len(wanted) else (0, 0)
        data = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        return RecordBlock(data, moved[inverse], path, base, first)

    def _are_in_order(self, numbers: Array, data: memoryview, begin: int) -> bool:
        """Whether these bytes are exactly these records, one after the other, with the right checksums."""
        places = np.empty((len(numbers), 2), np.int64)
        count, end, _ = _wire.scan(data, 0, True, places)
        return count == len(numbers) and end == len(data) and np.array_equal(places, self.records[numbers] - (begin, 0))

    def _check(self, number: int, data: memoryview, begin: int, path: str) -> None:
        """A record must be where the index has it, of that length and with the right checksums."""
        start, size = self.records[number].tolist()
        at = start - HEADER_BYTES - begin
        whole = data[at : at + FRAME_BYTES + size]
        count, end, _ = _wire.scan(whole, 0, True, np.empty((1, 2), np.int64))
        if count != 1 or end != FRAME_BYTES + size:
            raise CorruptError(
                f"record {number} is damaged, or not where the index has it: no {size} bytes with their checksum here",
                at=start - HEADER_BYTES,
                path=path,
                record=number,
            )

    def _read(self, spans: list[tuple[int, int]]) -> Iterator[memoryview]:
        """The plain bytes of these spans."""
        if self.compression == "none":
            origin = self._origin
            yield from Source(self._target).ranges([(origin + start, origin + end) for start, end in spans])
        elif storage.is_path(self._target):
            if self._inflate is None or self._process != os.getpid():  # a thread may have been reading at the fork
                # Kept open for its checkpoints.
                self._inflate = SeekableStream(self._target, self.compression, limits=self._budget.limits)
                self._process = os.getpid()
                weakref.finalize(self, self._inflate.close)
            for start, end in spans:
                yield memoryview(self._inflate.read_at(start, end - start))
        else:
            with _position_kept(self._target):
                self._target.seek(self._origin)
                inflate = SeekableStream(self._target, self.compression, limits=self._budget.limits)
                for start, end in spans:
                    yield memoryview(inflate.read_at(start, end - start))


class Shelf:
    """The records of several files, numbered one after another, and read in one call: what a file is asked for costs
    little more than where all are of one. The indexes must be proved, and stay as they are."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._indexes = indexes
        self.starts: Array = np.array([0, *itertools.accumulate(len(index.records) for index in indexes)], np.int64)
        self._plain = all(index.is_plain for index in indexes)
        self._places = indexes[0].records
        if len(indexes) > 1:
            self._places = np.concatenate([index.records for index in indexes])
            for index, start, end in zip(indexes, self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
                index.records = self._places[start:end]
        self._maps: tuple[Any, ...] = (None,) * len(indexes)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, numbers: Array) -> RecordBlock | None:
        """These records, verified, in this order; None where they can't be read at once, or one is not sound."""
        if not self._plain or not len(numbers):
            return None
        wanted = np.ascontiguousarray(numbers, np.int64)
        order, moved, indexes = np.argsort(wanted), np.empty((len(wanted), 2), np.int64), self._indexes
        while True:
            touched = bytearray(len(indexes))
            arguments = self.starts, self._places, wanted, order, moved, touched, _MOST_GATHERED
            data = _wire.gather(self._maps, *arguments)
            used = [0] if len(indexes) == 1 else np.flatnonzero(touched).tolist()
            if data is None:
                data = self._opened(used, arguments)
            if data is None:
                return None
            # After it was read: what a file was changed to meanwhile is not taken for what was there.
            moved_away = [number for number in used if not indexes[number].is_current()]
            if not moved_away:
                break
            self._keep(dict.fromkeys(moved_away))
        first, path = int(wanted[order[0]]), indexes[used[0]].path
        more = f" and {len(used) - 1} more" if len(used) > 1 else ""
        start = int(self._places[first, 0]) - HEADER_BYTES
        return RecordBlock(memoryview(data), moved, path + more, start, first - int(self.starts[used[0]]))

    def _opened(self, used: list[int], arguments: tuple[Any, ...]) -> bytes | None:
        """The same, once the files that have some of the records are mapped, or open."""
        if all(self._maps[number] is not None for number in used):
            return None
        self._keep({number: self._indexes[number].map() for number in used})
        with contextlib.ExitStack() as stack:
            sources = list(self._maps)
            for number in used:
                if sources[number] is None:
                    sources[number] = stack.enter_context(self._indexes[number].open()).fileno()
            return _wire.gather(tuple(sources), *arguments)

    def _keep(self, found: dict[int, Any]) -> None:
        """Other threads go on with the maps that they have."""
        self._maps = tuple(found.get(number, map) for number, map in enumerate(self._maps))


@contextlib.contextmanager
def _position_kept(file: Any) -> Iterator[None]:
    """A file object is its owner's, who may be reading it as well."""
    before = file.tell()
    try:
        yield
    finally:
        file.seek(before)


def _runs(starts: Array, ends: Array) -> list[tuple[int, int]]:
    """Neighbours that are read in one go: (first, last) of each run."""
    if not len(starts):
        return []
    breaks = np.flatnonzero(starts[1:] - ends[:-1] > _COALESCE_BYTES)
    return list(zip([0, *(breaks + 1).tolist()], [*breaks.tolist(), len(starts) - 1], strict=True))


# ---- building --------------------------------------------------------------------


def indexes(targets: Sequence[Any], compression: str, limits: Limits = LIMITS) -> list[Index]:
    """An index for each target: the saved one where it is current, else a fresh one."""
    budget = Budget(limits)
    return [_index(target, compression, budget) for target in targets]


def build_index(paths: Any, *, compression: str = "auto") -> list[str]:
    """Save an index beside each file, and return their paths. Reading uses them while the files stay as they are."""
    saved = []
    for target in expand(paths):
        if not storage.is_local(target):
            raise UsageError("an index is saved beside a local file only", path=storage.describe(target))
        path = os.fspath(target)
        check_free(path)  # it would be of the past as soon as it is there
        _save(path, _build(path, 0, None, compression, Budget(LIMITS)))
        saved.append(path + INDEX_SUFFIX)
    return saved


def _index(target: Any, compression: str, budget: Budget) -> Index:
    path, start, end = byte_range(target)
    if not _can_seek(path):  # a pipe, say: reading it for its index would leave nothing to read
        raise UsageError(
            "a stream that can't seek has no length and no random access", hints=[Hint(purpose="read it in order")]
        )
    if not storage.is_path(path):
        with _position_kept(path):
            return _build(path, start, end, compression, budget)
    whole = start == 0 and end is None
    index = current_index(os.fspath(path), compression, budget) if whole and storage.is_local(path) else None
    return _build(path, start, end, compression, budget) if index is None else index


def _can_seek(target: Any) -> bool:
    if storage.is_path(target):
        return storage.is_url(target) or os.path.isfile(target)
    return hasattr(target, "seekable") and bool(target.seekable())


def current_index(path: str, asked: str = "auto", budget: Budget | None = None) -> Index | None:
    """The saved index of a file; None if there is none, or none that is used.

    It is part of the input, and takes three times its bytes: nothing is charged for it.
    """
    budget = budget or Budget(LIMITS)
    stamp, place = _stamp(path), path + INDEX_SUFFIX
    data = beside.read(place, max(budget.limits.max_bytes, stamp[0]))
    if data is None:
        return None
    found = _parsed(memoryview(data))
    if found is None:
        beside.warn(place, "is damaged, or not an index of this version")
        return None
    built_from, lengths, compression = found
    if built_from != stamp:
        beside.warn(place, "is of the file as it was before; build_index or `tb index` renews it")
        return None
    if not _fits(lengths, compression, stamp[0]):
        beside.warn(place, "is of another file: its records would not fill this one")
        return None
    with open_stream(path, asked, prefetch=False, limits=budget.limits) as stream:
        if compression != stream.compression:
            beside.warn(place, f"says that the compression is {compression!r}, and it is {stream.compression!r}")
            return None
    return Index(path, compression, _places(lengths), budget, stamp, place)


def _fits(lengths: Array, compression: str, size: int) -> bool:
    """Whether a file of this size can hold such records."""
    plain = int(lengths.sum()) + FRAME_BYTES * len(lengths)
    return plain == size if compression == "none" else plain <= _MOST_INFLATED * size


def _build(path: Any, start: int, end: int | None, compression: str, budget: Budget) -> Index:
    origin = None if storage.is_path(path) else path.tell()
    stamp = _stamp(path) if storage.is_local(path) else None
    with open_stream(path, compression, start, end, limits=budget.limits) as stream:
        parts = [_NONE]
        for part in _found(path, stream, start, budget):
            stream.count_into(budget)
            budget.copy(2 * part.nbytes, f"{stream.path}: an index of its records", 0)  # joining copies it
            parts.append(part)
    if origin is not None:
        path.seek(origin)
    return Index(path, stream.compression, np.concatenate(parts), budget, stamp)


def _found(path: Any, stream: ByteStream, start: int, budget: Budget) -> Iterator[Array]:
    """The places of the records in a file, some at a time."""
    if stream.compression == "none" and stream.total is not None and storage.is_local(path):
        with open(path, "rb", buffering=0) as file:
            yield from _walk(file, stream, start, start + stream.total)
        return
    for block in framing.blocks(stream, base=start, memory=Memory(), verify=False, budget=budget):
        places = block.records.copy()
        places[:, 0] += block.base
        del block  # which goes before the next one fills
        yield places


def _places(lengths: Array) -> Array:
    """Where payloads start, and their lengths; records follow each other without a gap."""
    places = np.full((len(lengths), 2), FRAME_BYTES, np.int64)
    places[:1, 0] = HEADER_BYTES
    places[1:, 0] += lengths[:-1]
    np.cumsum(places[:, 0], out=places[:, 0])
    places[:, 1] = lengths
    return places


def _walk(file: Any, stream: ByteStream, at: int, end: int) -> Iterator[Array]:
    """From header to header; over long payloads without reading them."""
    walk = Walk(reader(file), at, end)
    yield from walk
    if walk.status:
        rest = bytearray(min(_HEAD_BYTES, end - walk.at))
        storage.read_at(file, memoryview(rest), walk.at)
        raise framing.fault(stream, walk.status, memoryview(rest), walk.at, walk.count)


# ---- saving ----------------------------------------------------------------------


def _stamp(path: Any) -> Stamp:
    """What tells whether a file is still the one that was indexed."""
    return _stamp_of(os.stat(path))


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


def _save(path: str, index: Index) -> None:
    assert index.stamp is not None
    lengths = np.ascontiguousarray(index.records[:, 1])
    size, time = map(str, index.stamp)
    meta = {"tensorbytes.index": _VERSION, "compression": index.compression, "size": size, "mtime_ns": time}
    document = Document([Leaf(Tensor("int64", lengths.shape, lengths, meta=meta))])
    pieces = formats.get("tb").encode(document, frozenset(), {})
    storage.write(path + INDEX_SUFFIX, pieces, sync=False, follow=False)


def _parsed(data: memoryview) -> tuple[Stamp, Array, str] | None:
    """(the stamp, the lengths, the compression) of a saved index; None if it is not usable."""
    try:
        (document,) = formats.get("tb").decode(data, _AS_STORED, False, {})
        value = document.leaves[0].read()
        stamp = int(value.meta["size"]), int(value.meta["mtime_ns"])
        compression = value.meta["compression"]
    except (TensorbytesError, LookupError, ValueError):
        return None
    if not isinstance(value, Tensor) or value.dtype != "int64" or value.meta.get("tensorbytes.index") != _VERSION:
        return None
    lengths = value.numpy()
    sound = lengths.ndim == 1 and compression in NAMES and bool(((lengths >= 0) & (lengths < _LONGEST)).all())
    return (stamp, lengths, compression) if sound else None
