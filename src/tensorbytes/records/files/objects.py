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
from dataclasses import dataclass

from tensorbytes.errors import CorruptError
from tensorbytes.formats import frame
from tensorbytes.formats._extension import Place
from tensorbytes.formats._moving import moved, place_of
from tensorbytes.formats._record import size_of
from tensorbytes.records.files.framing import Block
from tensorbytes.tfrecord import FOOTER_BYTES, HEADER_BYTES
from tensorbytes.typing import Buffer

# What a TensorProto starts with: the tag of its dtype.
_DTYPE_TAG = 0x08


@dataclass(slots=True)
class Run:
    """Records one behind the other that can't be read, since others are missing. None: only that is to be said."""

    index: int  # of the first one, among the whole records
    count: int
    start: int  # where they are in the file
    end: int
    number: int  # of the first one, as damage is numbered
    what: str


def is_native(block: Block) -> bool:
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
        self._order = frame.Order()
        self._pending: list[Run] = []  # of the object that is not whole yet
        self._torn = ""  # what is wrong with it
        self._last = Place()
        self._objects = self._broken = self._noted = 0

    def add(self, block: Block, damages: int) -> None:
        """`damages` is how many places in front of the block are damaged."""
        if self.native is None:
            self.native = is_native(block)
        if not self.native:
            return
        for number, (at, size) in enumerate(block.records.tolist(), block.first):
            start, end = block.base + at - HEADER_BYTES, block.base + at + size + FOOTER_BYTES
            self._take(place_of(block.data[at : at + size]), Run(self.records, 1, start, end, number, ""), damages)
            self.records += 1

    def _take(self, place: Place, record: Run, damages: int) -> None:
        wrong = self._torn or self._fault(place)
        if wrong and self._pending:
            if self._goes_on(place):
                self._torn = wrong
                self._pend(place, record)
                return
            self._give_up(wrong)
            wrong = self._fault(place)
        if wrong and not place.part and place.parts > 0:
            self._note(record, wrong, damages)
            self._order.item, wrong = place.item - 1, ""
        self._pend(place, record)
        if wrong:
            self._torn, self._order.item = wrong, place.item
        elif self._order.take(place):
            self._pending, self._noted = [], damages
            self._objects += 1

    def _fault(self, place: Place) -> str:
        """What readers would say to a record of this place coming next."""
        in_range = 0 <= place.part < place.parts
        return self._order.fault(place) if in_range else f"part {place.part} of {place.parts}"

    def _goes_on(self, place: Place) -> bool:
        """Whether this is a later part of the object of which others are missing."""
        same = (place.parts, place.item) == (self._last.parts, self._last.item)
        return same and self._last.part < place.part < place.parts and not place.document

    def _pend(self, place: Place, record: Run) -> None:
        _join(self._pending, record)
        self._last = place

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
            self.kept = sum(run.count for run in self.lost)
            self.lost = [] if damages else [Run(0, 0, first.start, first.start, first.number, first.what)]

    @property
    def lost_records(self) -> int:
        return sum(run.count for run in self.lost)

    @property
    def lost_bytes(self) -> int:
        return sum(run.end - run.start for run in self.lost)

    # ---- writing ---------------------------------------------------------------

    def mended(self, blocks: Iterable[Block], path: str) -> Iterator[Buffer]:
        """The records that are kept, out of the same blocks again, numbered so that readers take them."""
        at = index = item = 0
        gone = deque(run for run in self.lost if run.count)
        for block in blocks:
            for offset, size in block.records.tolist():
                index += 1
                if gone and index > gone[0].index:
                    if index == gone[0].index + gone[0].count:
                        gone.popleft()
                    continue
                payload = block.data[offset : offset + size]
                place = place_of(payload)
                if not place.part:  # streams that were joined start again at 1
                    item = place.item if place.item < 2 else item + 1
                new = Place(index - 1, self.kept) if self.alone else Place(place.part, place.parts, item)
                if new[:3] == place[:3]:
                    made = frame.framed([payload], bytes(block.data[offset + size : offset + size + FOOTER_BYTES]))
                else:
                    pieces = moved(payload, new, at + HEADER_BYTES, flat=self.alone)
                    made = frame.framed(pieces, frame.checksum(pieces))
                at += size_of(made)
                yield from made
        if index != self.records:
            raise CorruptError("it changed while it was read", at=0, path=path)


def _join(runs: list[Run], record: Run) -> None:
    """Add records to some; those that lie one behind the other are one run."""
    last = runs[-1] if runs else None
    if last is not None and last.count and (last.end, last.index + last.count) == (record.start, record.index):
        last.count, last.end = last.count + record.count, record.end
    else:
        runs.append(record)
