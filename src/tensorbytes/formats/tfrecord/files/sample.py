"""Some records from all over some files: what a schema is inferred from.

| what is read                                   | what is looked at                                              |
| ---------------------------------------------- | -------------------------------------------------------------- |
| up to 64 files, of 4 MiB together              | every record                                                   |
| a file of less than 8 records to the MiB       | every record, up to 32 MiB                                     |
| a larger file                                  | its head (1 MiB), its tail and ten places between (128 KiB)    |
| several                                        | 12 places in all, two in each at least: its head and its tail  |
| more than 12                                   | 12 of them, the first and the last included                    |
| compressed files, URLs, other libraries' files | the head of each; 4 MiB in all                                 |

Places between are found by the checksums of lengths, as the cuts of splits are. A record that is longer than its place
is read whole, and heads of streams go on to the eighth record. Altogether no more than 32 MiB are read, looking for
places included; nothing if the first record is longer. A payload that holds records itself may pass for a part of the
file: that makes a schema wider, never wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from tensorbytes import _wire
from tensorbytes.errors import CorruptError, LimitError, Limits
from tensorbytes.formats.tfrecord.files import framing
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream, FileStream, open_stream
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.files.splits import next_record
from tensorbytes.io import storage
from tensorbytes.io.paths import byte_range
from tensorbytes.tfrecord import FOOTER_BYTES, FRAME_BYTES

SAMPLE_BYTES = 4 << 20
MOST_BYTES = 32 << 20
# What this many records agree on is taken for a rule.
ENOUGH = 8
_MOST_FILES = 64
_PLACES = 12
_PLACE_BYTES = 1 << 17
_HEAD_BYTES = 1 << 20
# Headers go on this far from a place that was found.
_CONFIRM_BYTES = 1 << 18


class Sample:
    """Blocks of records, the first one from the head of the first file; none if that can't be read.

    `complete`, once all were given, says whether these are all records of all files. Damage ends a place, not the
    sample, which goes on behind it. A Split stands for its file, so that all splits of a file have one schema.
    """

    def __init__(
        self, targets: Sequence[Any], total: int | None, compression: str, verify: bool, limits: Limits
    ) -> None:
        """total: the bytes of all files, where they are known."""
        files = {id(path) if hasattr(path, "read") else path: path for path, _, _ in map(byte_range, targets)}
        self._files, self._compression, self._verify, self._limits = [*files.values()], compression, verify, limits
        self._little = total is not None and total <= SAMPLE_BYTES and len(self._files) <= _MOST_FILES
        self._room = _Room(MOST_BYTES)
        self.complete = False

    def __iter__(self) -> Iterator[RecordBlock]:
        chosen = self._files
        if not self._little and len(chosen) > _PLACES:
            chosen = [chosen[round(at)] for at in np.linspace(0, len(chosen) - 1, _PLACES)]
        share = SAMPLE_BYTES if self._little else SAMPLE_BYTES // len(chosen)
        complete, seen = len(chosen) == len(self._files), 0
        for number, target in enumerate(chosen):
            with open_stream(target, self._compression, prefetch=False, limits=self._limits) as stream:
                file = _File.of(stream, target, self._room, self._verify)
                if file is None:
                    found = self._head(stream, share)
                elif file.size <= share:
                    found = self._places(file, 2, share)
                else:
                    found = self._places(file, max(_PLACES // len(chosen), 2), _PLACE_BYTES if number else _HEAD_BYTES)
                count, whole = yield from found
                complete = complete and whole
                if not count and not whole and not seen:
                    return  # nothing is known about the first records
                seen += count
        self.complete = complete

    def _head(self, stream: ByteStream, share: int) -> Generator[RecordBlock, None, tuple[int, bool]]:
        """The first records of a stream: how many there were, and whether these are all."""
        count = 0
        try:
            for block in framing.blocks(stream, verify=self._verify, block_bytes=_HEAD_BYTES, limits=self._limits):
                yield block
                count, share = count + len(block.records), share - len(block.data)
                self._room.take(len(block.data))
                if share <= 0 and count >= ENOUGH:
                    return count, False
        except (_Spent, CorruptError, LimitError):  # the others are met again when the records are read
            return count, False
        return count, True

    def _places(self, file: _File, places: int, head: int) -> Generator[RecordBlock, None, tuple[int, bool]]:
        """The head, the tail and places between: how many records there were, and whether these are all."""
        count = after = 0  # where the records end that were given
        whole = True  # so far
        try:
            for number in range(places):
                at, wanted = 0, head
                if number:
                    tail = max(_PLACE_BYTES, 2 * file.longest)
                    between = file.size * number // (places - 1)
                    at, wanted = max(min(between, file.size - tail), after), _PLACE_BYTES
                if number == 1 and count < ENOUGH and self._room.has(file.size):
                    at, wanted = after, file.size  # few records: all of them
                block = file.block(at, wanted, found=at == after)
                if block is None and number and at == after:
                    block = file.block(after + 1, wanted, found=False)  # behind the damage
                if block is not None:
                    whole = whole and block.base == after
                    after = block.base + int(block.records[-1].sum()) + FOOTER_BYTES
                    count += len(block.records)
                    yield block
                if (not number and block is None) or (wanted >= file.size and after == file.size):
                    return count, whole and after == file.size
        except (_Spent, CorruptError):
            pass
        return count, False


class _Spent(Exception):
    """All was read that may be."""


class _Room:
    """How many bytes may still be read."""

    def __init__(self, size: int) -> None:
        self._left = size

    def has(self, size: int) -> bool:
        return size <= self._left

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _Spent


class _File:
    """A file that can be read at any place."""

    def __init__(self, stream: FileStream, size: int, room: _Room, verify: bool) -> None:
        self._stream, self.size, self._room, self._verify = stream, size, room, verify
        self.longest = 0  # of the records so far

    @classmethod
    def of(cls, stream: ByteStream, target: Any, room: _Room, verify: bool) -> _File | None:
        """None for what can't be, or is far away."""
        if not isinstance(stream, FileStream) or not stream.seekable or storage.is_url(target):
            return None
        return None if stream.total is None else cls(stream, stream.total, room, verify)

    def block(self, at: int, wanted: int, found: bool) -> RecordBlock | None:
        """The records from the first on that starts at `at` or after it (`found`: there); None if there are none."""
        if not found:
            at = next_record(self._read, at, self.size, _PLACE_BYTES, _CONFIRM_BYTES)
        left = self.size - at
        wanted = min(wanted, left)
        while 0 < wanted <= left:
            data = self._read(at, wanted)
            records = np.empty((len(data) // FRAME_BYTES + 1, 2), np.int64)
            count, _, status = _wire.scan(data, 0, self._verify, records)
            if count:
                records = records[:count].copy()
                self.longest = max(self.longest, int(records[:, 1].max()) + FRAME_BYTES)
                return RecordBlock(data, records, self._stream.path, at, 0 if not at else 1)
            longer = FRAME_BYTES + int.from_bytes(data[:8], "little")  # one record, longer than what was wanted
            if status != _wire.CUT_PAYLOAD or longer <= wanted:
                break
            wanted = longer
        return None

    def _read(self, at: int, size: int) -> memoryview:
        self._room.take(size)
        data = memoryview(bytearray(size))
        self._stream.seek(at)
        done = 0
        while done < size:
            count = self._stream.readinto(data[done:])
            if not count:
                raise CorruptError("the file became shorter while it was read", at=at + done, path=self._stream.path)
            done += count
        return data
