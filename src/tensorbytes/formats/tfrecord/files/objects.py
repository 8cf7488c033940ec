"""Which whole records of a file make whole objects, where it is one of the native frame.

The records of an object, and the objects of a stream, are numbered (spec/frame.md, section 4). Where one is missing,
the others can't be read as they are, though each is whole. So the records of an object that lacks some are given up,
and the objects of a stream are numbered anew. A file of one object alone, as `save` writes it, keeps those of its
tensors that are there.

Records of anything else stand for themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tensorbytes.errors import CorruptError
from tensorbytes.formats import frame
from tensorbytes.formats._extension import Place
from tensorbytes.formats._moving import Seen, copied, look_at, moved
from tensorbytes.formats._record import size_of
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.tfrecord import FOOTER_BYTES, HEADER_BYTES
from tensorbytes.typing import Buffer

# What a TensorProto starts with: the tag of its dtype.
_DTYPE_TAG = 0x08


@dataclass(slots=True)
class Run:
    """Records one after the other that can't be read, since others are missing. None: there is only that to say."""

    index: int  # of the first one, among the whole records
    count: int
    start: int  # where they are in the file
    end: int
    number: int  # of the first one, as damage is numbered
    what: str


def is_native(block: RecordBlock) -> bool:
    """Whether a file whose first whole records these are is one of the native frame."""
    at, size = block.records[0].tolist()
    return bool(size and block.data[at] == _DTYPE_TAG)


class Survey:
    """Looks at all whole records of a file in turn. `finish` tells which of them are of no use."""

    def __init__(self) -> None:
        self.native: bool | None = None
        self.lost: list[Run] = []
        self.fits = True  # whether the records can stay as they are
        self.alone = False  # whether the file is one object, of which tensors are missing
        self.records = self.kept = 0
        self._order = frame.RecordOrder()
        self._pending: list[Run] = []  # of the object that is not whole yet
        self._members: list[tuple[Run, Seen]] = []  # the same, one by one
        self._gone: set[int] = set()  # records that are of no use without others which are lost
        self._targets: set[int] = set()  # parts that others stand for
        self._rows: int | None = None  # of an object that is a table
        self._torn = ""  # what is wrong with it
        self._last = Place()
        self._objects = self._broken = self._noted = 0

    def add(self, block: RecordBlock, damages: int) -> None:
        """`damages` is how many places in front of the block are damaged."""
        if self.native is None:
            self.native = is_native(block)
        if not self.native:
            return
        for number, (at, size) in enumerate(block.records.tolist(), block.first):
            start, end = block.base + at - HEADER_BYTES, block.base + at + size + FOOTER_BYTES
            self._take(look_at(block.data[at : at + size]), Run(self.records, 1, start, end, number, ""), damages)
            self.records += 1

    def _take(self, seen: Seen, record: Run, damages: int) -> None:
        place = seen.place
        wrong = self._torn or self._fault(place)
        if wrong and self._pending:
            if self._goes_on(place):
                self._torn = wrong
                self._pend(seen, record)
                return
            self._give_up(wrong)
            wrong = self._fault(place)
        if wrong and not place.part and place.parts > 0:
            self._note(record, wrong, damages)
            self._order.item, wrong = place.item - 1, ""
        self._pend(seen, record)
        if wrong:
            self._torn, self._order.item = wrong, place.item
        elif self._order.take(place):
            self._pending, self._members, self._noted = [], [], damages
            self._objects += 1

    def _fault(self, place: Place) -> str:
        """What readers would say to a record of this place coming next."""
        in_range = 0 <= place.part < place.parts
        return self._order.fault(place) if in_range else f"part {place.part} of {place.parts}"

    def _goes_on(self, place: Place) -> bool:
        """Whether this is a later part of the object of which others are missing."""
        same = (place.parts, place.item) == (self._last.parts, self._last.item)
        return same and self._last.part < place.part < place.parts and not place.is_first

    def _pend(self, seen: Seen, record: Run) -> None:
        if not self._pending:
            self._members = []
        self._members.append((replace(record), seen))
        _join(self._pending, record)
        self._last = seen.place

    def _give_up(self, what: str) -> None:
        for run in self._pending:
            run.what = what
            _join(self.lost, run)
        self._broken += 1
        self._pending, self._torn, self._order.have = [], "", 0
        self.fits = False

    def _note(self, record: Run, what: str, damages: int) -> None:
        """Items are missing; that is said unless it was told already what was lost here."""
        self.fits = False
        if damages == self._noted and not (self.lost and self.lost[-1].end == record.start):
            self.lost.append(Run(record.index, 0, record.start, record.start, record.number, what))

    def finish(self, damages: int) -> None:
        """The end of the file."""
        if self._pending:
            self._give_up(self._torn or self._order.unfinished)
        if self._broken == 1 and not self._objects and not self._last.item:
            self.alone = True
            first = self.lost[0]
            self.lost = [] if damages else [Run(0, 0, first.start, first.start, first.number, first.what)]
            self._part()
            self.kept = len(self._members) - len(self._gone)

    def _part(self) -> None:
        """Of an object that is not whole, which records are of no use by themselves."""
        members = self._members
        there = {seen.place.part for _, seen in members}
        self._targets = {seen.alias for _, seen in members if seen.alias is not None} & there
        columns = {
            seen.path[:depth] for _, seen in members if not _is_mask(seen) for depth in range(len(seen.path) + 1)
        }
        masks = [seen for _, seen in members if _is_mask(seen)]
        told = [seen.place.rows for _, seen in members if seen.place.rows is not None]
        counts = [seen.rows for _, seen in members if seen.rows is not None]
        if told or (masks and counts):
            self._rows = told[0] if told else max(set(counts), key=counts.count)
        for run, seen in members:
            if seen.alias is not None and seen.alias not in there:
                run.what = "an alias of a tensor that is lost"
            elif _is_mask(seen) and (self._rows is None or seen.path[:-1] not in columns):
                run.what = "a mask of a column that is lost"
            else:
                continue
            self._gone.add(run.index)
            self.lost.append(run)

    @property
    def lost_records(self) -> int:
        return sum(run.count for run in self.lost)

    @property
    def lost_bytes(self) -> int:
        return sum(run.end - run.start for run in self.lost)

    # ---- writing ---------------------------------------------------------------

    def fix(self, blocks: Iterable[RecordBlock], path: str) -> Iterator[Buffer]:
        """The records that are kept, out of the same blocks again, numbered so that readers take them."""
        at = index = item = part = 0
        targets: dict[int, memoryview] = {}
        gone = deque(run for run in self.lost if run.count)
        for block in blocks:
            for offset, size in block.records.tolist():
                index += 1
                if self.alone and index - 1 in self._gone:
                    continue
                if gone and not self.alone and index > gone[0].index:
                    if index == gone[0].index + gone[0].count:
                        gone.popleft()
                    continue
                payload = block.data[offset : offset + size]
                seen = look_at(payload)
                place = seen.place
                if self.alone:
                    if place.part in self._targets:
                        targets.setdefault(place.part, memoryview(bytes(payload)))
                    if seen.alias is not None:
                        payload = copied(payload, targets[seen.alias])
                if not place.part:  # streams that were joined start again at 1
                    item = place.item if place.item < 2 else item + 1
                if self.alone:
                    new = Place(part, self.kept, rows=None if part else self._rows)
                    part += 1
                else:
                    new = Place(place.part, place.parts, item, rows=place.rows)
                if new[:3] == place[:3] and not self.alone:
                    made = frame.framed([payload], bytes(block.data[offset + size : offset + size + FOOTER_BYTES]))
                else:
                    pieces = moved(payload, new, at + HEADER_BYTES, flat=self.alone)
                    made = frame.framed(pieces, frame.checksum(pieces))
                at += size_of(made)
                yield from made
        if index != self.records:
            raise CorruptError("it changed while it was read", at=0, path=path)


def _is_mask(seen: Seen) -> bool:
    return bool(seen.path) and seen.path[-1][0] == "mask"


def _join(runs: list[Run], record: Run) -> None:
    """Add records to some; those that lie one after the other are one run."""
    last = runs[-1] if runs else None
    if last is not None and last.count and (last.end, last.index + last.count) == (record.start, record.index):
        last.count, last.end = last.count + record.count, record.end
    else:
        runs.append(record)
