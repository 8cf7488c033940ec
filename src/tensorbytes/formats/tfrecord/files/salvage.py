"""Reading around damage: every record that is whole, and an account of what is not.

Records and damaged ranges together cover a file exactly: each byte is in a record that is
delivered, or in a range that is reported. See search.py for how records are found again, and objects.py for
what the native frame makes of those that are whole.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from tensorbytes import _wire, formats
from tensorbytes.budget import Budget
from tensorbytes.damage import Damage
from tensorbytes.errors import LIMITS, MORE_BYTES, CorruptError, Hint, LimitError, Limits, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream, FileStream, open_stream
from tensorbytes.formats.tfrecord.files.framing import BLOCK_BYTES, QUESTION, RecordBlock, Stream
from tensorbytes.formats.tfrecord.files.objects import Survey, is_native
from tensorbytes.formats.tfrecord.files.search import Search
from tensorbytes.formats.tfrecord.files.window import Window
from tensorbytes.io import holding, publish, storage
from tensorbytes.io.holding import Hold
from tensorbytes.io.rereading import rereadable
from tensorbytes.io.streams.encoders import open_encoder
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES
from tensorbytes.typing import Buffer

Progress = Callable[[int, int | None], object]
# What a Damage takes, with its numbers and its places in a list and a tuple.
DAMAGE_BYTES = 300

_MOST_RECORDS = 1 << 16
# A header is eight bytes and their checksum: just what a record of eight bytes ends with.
_LENGTH_BYTES = 8
# The first bytes of a file, which tell what it is if it has no records.
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """What was found in a file of records, or kept of it."""

    path: str
    records: int
    size: int  # of the file, or of its inflated stream
    intact: int  # how many of these bytes belong to records that were kept
    damages: tuple[Damage, ...]
    unfinished: bool = False  # whether its compressed stream was flushed, and lacks its end

    @property
    def ok(self) -> bool:
        return not self.damages

    @property
    def lost(self) -> int:
        """How many bytes belong to no record that was kept."""
        return self.size - self.intact


def intact(
    stream: Stream,
    on_damage: Callable[[Damage], object],
    *,
    base: int = 0,
    block_bytes: int = BLOCK_BYTES,
    budget: Budget | None = None,
) -> Iterator[RecordBlock]:
    """The whole records of a stream, confirmed by their checksums; damage is handed to `on_damage`, in order.

    `base` is where the stream starts in its file. A block never reaches over damage, so that its
    records are numbered one after the other. The block of a record whose header was recovered
    holds that record only, and follows the call that reports it. A record of a compressed file may
    take what is left of the budget, which `on_damage` may charge for what it keeps.
    """
    return _Reader(stream, on_damage, base, block_bytes, budget or Budget(LIMITS)).blocks()


class _Reader:
    """Where reading is: a position in the stream, and the number of the record there."""

    def __init__(
        self, stream: Stream, on_damage: Callable[[Damage], object], base: int, block_bytes: int, budget: Budget
    ) -> None:
        self._path, self._on_damage, self._block_bytes, self._budget = stream.path, on_damage, block_bytes, budget
        self._window = Window(stream, base, block_bytes)
        self._search = Search(self._window, budget)
        self._found = np.empty((min(block_bytes // FRAME_BYTES + 1, _MOST_RECORDS), 2), np.int64)
        self._at, self._number, self._kind = base, 0, ""

    def blocks(self) -> Iterator[RecordBlock]:
        window, size = self._window, self._block_bytes
        while True:
            window.forget(self._at)
            window.reach(self._at + size)
            data = window.view(self._at, min(self._at + size, window.end))
            count, after, status = _wire.scan(data, 0, True, self._found)
            size = self._block_bytes
            length = _length(data)
            if count:
                yield from self._whole(data[:after], count)
            data = memoryview(b"")  # nothing holds what the window lets go
            if count:
                continue
            if status == _wire.OK:
                break
            if status == _wire.CUT_PAYLOAD and self._is_present(length):
                size = FRAME_BYTES + length
            else:
                yield from self._damaged(status)
        if window.broken is not None and self._kind != "compression":
            self._report("compression", self._at)

    def _whole(self, data: memoryview, count: int) -> Iterator[RecordBlock]:
        after = len(data)
        torn = self._found[count - 1, 1] == _LENGTH_BYTES and self._search.is_header(self._at + after - HEADER_BYTES)
        if torn:
            count, after = count - 1, after - FRAME_BYTES - _LENGTH_BYTES
        if count:
            yield RecordBlock(data[:after], self._found[:count].copy(), self._path, self._at, self._number)
            self._at, self._number = self._at + after, self._number + count
        if torn:
            self._report("cut payload", self._at + HEADER_BYTES)
            self._at, self._number = self._at + HEADER_BYTES, self._number + 1

    def _damaged(self, status: int) -> Iterator[RecordBlock]:
        kind, stop, recovered = self._search.fault(self._at, status)
        self._report(kind, self._at + HEADER_BYTES if recovered else stop, recovered)
        if recovered:
            record = np.array([[HEADER_BYTES, stop - self._at - FRAME_BYTES]], np.int64)
            yield RecordBlock(self._window.view(self._at, stop), record, self._path, self._at, self._number)
        self._at, self._number = stop, self._number + 1

    def _report(self, kind: str, end: int, recovered: bool = False) -> None:
        broken = self._window.broken
        cause = broken.what if broken is not None and kind == "compression" else ""
        self._kind = kind
        self._on_damage(Damage(self._path, kind, self._at, end, self._number, recovered, cause))

    def _is_present(self, length: int) -> bool:
        """Have all bytes of the record here, whose header is sound; False if the stream ends before."""
        window, limit = self._window, self._budget.left
        if window.last is None and length > limit and window.reach(self._at + HEADER_BYTES + limit):
            raise LimitError(
                f"a record of {length} bytes, over the limit of {limit}",
                path=self._path,
                at=self._at,
                hints=[MORE_BYTES],
            )
        end = self._at + FRAME_BYTES + length
        return (window.last is None or end <= window.last) and window.reach(end)


def _length(header: memoryview) -> int:
    return int.from_bytes(header[:8], "little")


# ---- whole files ------------------------------------------------------------


class _Account:
    """What is known of a file so far."""

    def __init__(self, limits: Limits) -> None:
        self.records = self.intact = 0
        self.objects = Survey()
        self._budget = Budget(limits)
        self.damages: list[Damage] = []

    def blocks(self, stream: ByteStream, progress: Progress | None) -> Iterator[RecordBlock]:
        """The whole records of a file; one that has none and is of another format is refused."""

        def note(damage: Damage) -> None:
            stream.count_into(self._budget)
            self._budget.objects(1, f"{stream.path}: all that is damaged", damage.start or 0, DAMAGE_BYTES)
            self.damages.append(damage)

        head = stream.peek(_HEAD_BYTES) if isinstance(stream, FileStream) else b""
        for block in intact(stream, note, budget=self._budget):
            self.records += len(block.records)
            self.intact += len(block.data)
            self.objects.add(block, len(self.damages))
            yield block
            del block
            if progress is not None:
                progress(stream.consumed, stream.total)
        if progress is not None:
            progress(stream.consumed, stream.total)
        self.objects.finish(len(self.damages))
        if head and not self.records:
            found = formats.sniff(head, self.report(stream.path).size)
            if found is not None and not formats.get(found).framed:
                raise UsageError(
                    f"a file of format {found!r}, without records",
                    path=stream.path,
                    hints=[Hint("format", found, "to have its tensors checked", of="load")],
                )

    def report(self, path: str, unfinished: bool = False) -> RecordCheck:
        size = self.intact + sum(damage.size for damage in self.damages if not damage.recovered)
        found = self.objects
        lost = [
            Damage(path, "object" if run.count else "missing", run.start, run.end, run.number, cause=run.what)
            for run in found.lost
        ]
        damages = sorted([*self.damages, *lost], key=lambda damage: (damage.start or 0, damage.end or 0))
        return RecordCheck(
            path, self.records - found.lost_records, size, self.intact - found.lost_bytes, tuple(damages), unfinished
        )


def check_records(
    path: Any, *, compression: str = "auto", limits: Limits = LIMITS, progress: Progress | None = None
) -> RecordCheck:
    """Read all of a file and report what is damaged: which bytes, which record, in what way.

    `path` may be a URL or a file object as well. `progress` is called with the bytes read so far
    and their total, or None if that is unknown. A file of another format raises UsageError.
    """
    account = _Account(limits)
    with open_stream(path, compression, limits=limits) as stream:
        deque(account.blocks(stream, progress), maxlen=0)
        return account.report(stream.path, stream.unfinished)


def keep_records(
    src: Any,
    dst: Any,
    *,
    compression: str = "auto",
    same: bool = False,
    limits: Limits = LIMITS,
    progress: Progress | None = None,
) -> RecordCheck:
    """Write the whole records of `src` to `dst`, in the same compression, and report what was lost.

    Their bytes are copied as they are; only a record whose header was damaged gets a new one. Of the native frame, the
    objects that are whole are kept, and numbered anew where others are missing; of a file that is one object alone,
    those of its tensors that are whole. `dst` is replaced atomically if it is a local path; `same` says that it is
    `src` itself. If nothing is whole, nothing is written.
    """
    account = _Account(limits)
    # Who replaces what he reads has the path all the time: what is appended meanwhile would be lost.
    with _held(dst) if same else contextlib.nullcontext() as hold, rereadable(src) as again:

        def opened() -> ByteStream:
            return open_stream(again(), compression, limits=limits)

        native = _is_native(opened, limits)
        if native:  # how many objects of it are whole is known at its end
            with opened() as stream:
                deque(account.blocks(stream, progress), maxlen=0)

        def pieces() -> Generator[Buffer]:
            with opened() as stream:
                packer = open_encoder(stream.compression)
                if native:
                    made = account.objects.fix(intact(stream, lambda damage: None, budget=Budget(limits)), stream.path)
                else:
                    made = _copied(account, stream, progress)
                yield from map(packer.compress, made)
                _check_kept(account.report(stream.path), same)
                yield packer.finish()

        with contextlib.closing(pieces()) as made:
            first = next(made)  # what has no records raises before anything is opened for writing
            storage.write(dst, chain([first], made), hold=hold)
    return account.report(storage.describe(src))


def _is_native(opened: Callable[[], ByteStream], limits: Limits) -> bool:
    with opened() as stream:
        first = next(intact(stream, lambda damage: None, budget=Budget(limits)), None)
        return first is not None and is_native(first)


def _copied(account: _Account, stream: ByteStream, progress: Progress | None) -> Iterator[Buffer]:
    """The whole records of a file as they are, with new headers where theirs were damaged."""
    for block in account.blocks(stream, progress):
        last = account.damages[-1] if account.damages else None
        if last is not None and last.recovered and last.start == block.base:
            yield _wire.frame_header(int(block.records[0, 1]))
            yield block.data[HEADER_BYTES:]
        else:
            yield block.data
        del block  # the window lets go of it


def _check_kept(report: RecordCheck, same: bool) -> None:
    """Refuse to write nothing in the place of something."""
    if report.ok or report.records:
        return
    at = report.damages[0].start or 0
    if any(damage.kind == "object" for damage in report.damages):
        rest = "it is not replaced by nothing" if same else "nothing is written"
        raise CorruptError(f"no object in it is whole, so {rest}", at=at, path=report.path)
    if same:
        raise UsageError("no record in it is whole, so it is not replaced by nothing", path=report.path)
    raise CorruptError(
        "no record in it is whole, so nothing is written", at=at, path=report.path, hints=[Hint(purpose=QUESTION)]
    )


def _held(path: Any) -> Hold:
    hold = Hold(publish.follow_link(os.fspath(path)), "repair")
    holding.check_unlocked(hold.path)
    return hold
