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
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import _wire, formats, storage
from tensorbytes.errors import LIMITS, CorruptError, Limits, TensorbytesError, UsageError
from tensorbytes.io import beside
from tensorbytes.io.holding import check_free
from tensorbytes.records.files import framing
from tensorbytes.records.files.compression import NAMES, SeekableInflate, Source, open_source
from tensorbytes.records.files.framing import Block
from tensorbytes.records.files.memory import Memory, offsets_of
from tensorbytes.records.files.paths import byte_range, expand
from tensorbytes.tensor import Array, Tensor
from tensorbytes.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from tensorbytes.tfrecord.walk import Walk, reader
from tensorbytes.tree import Document, Leaf

INDEX_SUFFIX = ".index.tb"
_VERSION = "1"
Stamp: TypeAlias = tuple[int, int]  # size and time of a file
# No record of a file is as long: sums of lengths stay far from where integers end.
_LONGEST = 1 << 48
# Records that lie closer together than this are read in one go.
_COALESCE_BYTES = 1 << 16
_HEAD_BYTES = 1 << 12


class Disproved(Exception):
    """A saved index was wrong, and another one is in its place now: what was made of its numbers is void."""


class Index:
    """The places of one file's records, or of a split's. `saved` is the path of the file that it came from, if any."""

    def __init__(
        self, target: Any, compression: str, records: Array, stamp: Stamp | None = None, saved: str | None = None
    ) -> None:
        self._target, self.compression = target, compression
        self.records = records  # int64 [n, 2]: where the payload starts, its length
        self.stamp = stamp
        self._saved, self._proved = saved, 0 if saved is not None else len(records)
        self._origin = 0 if storage.is_path(target) else target.tell()
        self._inflate: SeekableInflate | None = None

    def __len__(self) -> int:
        """How many records there are, and not what a saved index says."""
        with contextlib.suppress(Disproved):
            self._prove(len(self.records), last=True)
        return len(self.records)

    def claims(self, number: int) -> bool:
        """Whether there is a record of this number, by the index alone: reading it will tell."""
        return number < len(self.records)

    def _prove(self, number: int, last: bool = False) -> None:
        """See that a saved index is right about the first records, so many of them; and that there are no more."""
        if self._saved is None or (self._proved >= number and not last):
            return
        if self.compression != "none" or last:
            found = _build(self._target, 0, None, self.compression, LIMITS).records
            if np.array_equal(found, self.records):
                self._saved, self._proved = None, len(found)
                return
        else:
            with open(self._target, "rb", buffering=0) as file:
                start, end = self._end(self._proved), self._end(number)
                seen = list(Walk(reader(file), start, end))
            if seen and np.array_equal(np.concatenate(seen), self.records[self._proved : number]):
                self._proved = number
                return
            found = _build(self._target, 0, None, self.compression, LIMITS).records
        self.refuse()
        self.records, self._saved, self._proved = found, None, len(found)
        raise Disproved

    def _end(self, number: int) -> int:
        """Where so many records end, by the index."""
        return int(self.records[number - 1].sum()) + FOOTER_BYTES if number else 0

    def refuse(self) -> None:
        """Say that a saved index was disproved."""
        assert self._saved is not None
        beside.warn(self._saved, "does not fit the records; build_index or `tb index` renews it", stacklevel=5)

    def read(self, numbers: Array) -> Block:
        """These records, verified, in this order. Disproved: the index was wrong, and is another one now."""
        if self._saved is not None and len(numbers):
            self._check_stamp()
            self._prove(int(numbers.max()) + 1)
        return self._read_block(numbers)

    def _check_stamp(self) -> None:
        path = storage.describe(self._target)
        if self.stamp is not None and self.stamp != _stamp(path):
            raise CorruptError("the file has changed since it was indexed: open it again", at=0, path=path)

    def _read_block(self, numbers: Array) -> Block:
        self._check_stamp()
        path = storage.describe(self._target)
        wanted, inverse = np.unique(numbers, return_inverse=True)
        starts = self.records[wanted, 0] - HEADER_BYTES
        ends = starts + self.records[wanted, 1] + FRAME_BYTES
        pieces, moved, at = [], self.records[wanted], 0
        for first, last in _runs(starts, ends):
            begin, end = int(starts[first]), int(ends[last])
            data = memoryview(self._read(begin, end - begin))
            rows = slice(first, last + 1)
            for number in wanted[rows].tolist():
                self._check(number, data, begin, path)
            moved[rows, 0] += at - begin
            pieces.append(data)
            at += len(data)
        base, first = (int(starts[0]), int(wanted[0])) if len(wanted) else (0, 0)
        return Block(memoryview(b"".join(pieces)), moved[inverse], path, base, first)

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
            )

    def _read(self, start: int, size: int) -> bytes | memoryview:
        if storage.is_path(self._target):
            if self.compression != "none":
                if self._inflate is None:  # kept open for its checkpoints
                    self._inflate = SeekableInflate(self._target, self.compression)
                    weakref.finalize(self, self._inflate.close)
                return self._inflate.read_at(start, size)
            with _opened(self._target) as file:
                file.seek(start)
                return storage.read_exactly(file, size)
        with _position_kept(self._target):
            if self.compression == "none":
                self._target.seek(self._origin + start)
                return storage.read_exactly(self._target, size)
            self._target.seek(self._origin)
            return SeekableInflate(self._target, self.compression).read_at(start, size)


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


def _opened(path: Any) -> contextlib.AbstractContextManager[Any]:
    if storage.is_url(path):
        file: contextlib.AbstractContextManager[Any] = storage.open_url(path, "rb")
        return file
    return open(path, "rb", buffering=0)


# ---- building --------------------------------------------------------------------


def indexes(targets: Sequence[Any], compression: str, limits: Limits = LIMITS) -> list[Index]:
    """An index for each target: the saved one where it is current, else a fresh one."""
    return [_index(target, compression, limits) for target in targets]


def build_index(paths: Any, *, compression: str = "auto") -> list[str]:
    """Save an index beside each file, and return their paths. Reading uses them while the files stay as they are."""
    saved = []
    for target in expand(paths):
        if not storage.is_local(target):
            raise UsageError(f"{storage.describe(target)}: an index is saved beside a local file only")
        path = os.fspath(target)
        check_free(path)  # it would be of the past as soon as it is there
        _save(path, _build(path, 0, None, compression, LIMITS))
        saved.append(path + INDEX_SUFFIX)
    return saved


def _index(target: Any, compression: str, limits: Limits) -> Index:
    path, start, end = byte_range(target)
    if not _can_seek(path):  # a pipe, say: reading it for its index would leave nothing to read
        raise UsageError("a stream that can't seek has no length and no random access: read it in order")
    if not storage.is_path(path):
        with _position_kept(path):
            return _build(path, start, end, compression, limits)
    whole = start == 0 and end is None
    index = current_index(os.fspath(path), compression) if whole and storage.is_local(path) else None
    return _build(path, start, end, compression, limits) if index is None else index


def _can_seek(target: Any) -> bool:
    if storage.is_path(target):
        return storage.is_url(target) or os.path.isfile(target)
    return hasattr(target, "seekable") and bool(target.seekable())


def current_index(path: str, asked: str = "auto") -> Index | None:
    """The saved index of a file; None if there is none, or none that is used."""
    stamp, place = _stamp(path), path + INDEX_SUFFIX
    data = beside.read(place, LIMITS.max_bytes)
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
    if compression == "none" and int(lengths.sum()) + FRAME_BYTES * len(lengths) != stamp[0]:
        beside.warn(place, "is of another file: its records would not fill this one")
        return None
    with open_source(path, asked, prefetch=False) as source:
        if compression != source.compression:
            beside.warn(place, f"says that the compression is {compression!r}, and it is {source.compression!r}")
            return None
    return Index(path, compression, _places(lengths), stamp, place)


def _build(path: Any, start: int, end: int | None, compression: str, limits: Limits) -> Index:
    origin = None if storage.is_path(path) else path.tell()
    stamp = _stamp(path) if storage.is_local(path) else None
    with open_source(path, compression, start, end) as source:
        if source.compression == "none" and source.total is not None and storage.is_local(path):
            with open(path, "rb", buffering=0) as file:
                records = _walk(file, source, start, start + source.total)
        else:
            lengths = list(_lengths(source, Memory(), limits))
            records = _places(np.concatenate([np.empty(0, np.int64), *lengths]), start)
    if origin is not None:
        path.seek(origin)
    return Index(path, source.compression, records, stamp)


def _lengths(source: Source, memory: Memory, limits: Limits) -> Iterator[Array]:
    for block in framing.blocks(source, memory=memory, verify=False, limits=limits):
        yield block.records[:, 1].copy()


def _places(lengths: Array, start: int = 0) -> Array:
    """Where payloads start, and their lengths; records follow each other without a gap."""
    ends = offsets_of(lengths + FRAME_BYTES)
    return np.stack([ends[:-1] + (start + HEADER_BYTES), lengths], axis=1)


def _walk(file: Any, source: Source, at: int, end: int) -> Array:
    """From header to header; over long payloads without reading them."""
    walk = Walk(reader(file), at, end)
    parts = [np.empty((0, 2), np.int64), *walk]
    if walk.status:
        rest = bytearray(min(_HEAD_BYTES, end - walk.at))
        storage.read_at(file, memoryview(rest), walk.at)
        raise framing.fault(source, walk.status, memoryview(rest), walk.at, walk.count)
    return np.concatenate(parts)


# ---- saving ----------------------------------------------------------------------


def _stamp(path: Any) -> Stamp:
    """What tells whether a file is still the one that was indexed."""
    status = os.stat(path)
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
        (document,) = formats.get("tb").decode(data, LIMITS, False, {})
        value = document.leaves[0].whole
        stamp = int(value.meta["size"]), int(value.meta["mtime_ns"])
        compression = value.meta["compression"]
    except (TensorbytesError, LookupError, ValueError):
        return None
    if not isinstance(value, Tensor) or value.dtype != "int64" or value.meta.get("tensorbytes.index") != _VERSION:
        return None
    lengths = value.numpy()
    sound = lengths.ndim == 1 and compression in NAMES and bool(((lengths >= 0) & (lengths < _LONGEST)).all())
    return (stamp, lengths, compression) if sound else None
