"""What must be in a file, whatever was done to it."""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from safety.machine import helper

LYING_SCHEMAS = (
    '{"features":{"x":{"dtype":"float32","encoding":"flat","shape":[3]}},"tensorbytes.schema":1}',
    '{"features":{"x":{"dtype":"int64","encoding":"flat","shape":[2]}},"tensorbytes.schema":1}',
    '{"features":{"y":{"dtype":"int64","encoding":"flat","shape":[3]}},"tensorbytes.schema":1}',
)
_GZIP = b"\x1f\x8b"
_FRAME_BYTES = 16  # length, its checksum, the checksum of the data
# The start of a TensorProto of int64, its shape included; and an axis of a shape.
_TENSOR = re.compile(rb"\x08\x09\x12((?s:.){1,64})")
_AXIS = re.compile(rb"\x12[\x02-\x04]\x08([\x80-\xff]*[\x00-\x7f])")


class Violation(AssertionError):
    """A promise was not kept."""


def demand(condition: object, words: str) -> None:
    if not condition:
        raise Violation(words)


class Part(NamedTuple):
    """Bytes of a file that stand or fall together: a frame, or a member of a gzip file."""

    start: int
    end: int
    numbers: list[int]


def parts(data: bytes, numbers: list[int]) -> list[Part]:
    """The whole parts of a file of which these are the records."""
    found, at, left = [], 0, list(numbers)
    walk = _member if data[:2] == _GZIP else _frame
    while at < len(data):
        end, count = walk(data, at)
        if end is None:
            break
        found.append(Part(at, end, left[:count]))
        del left[:count]
        at = end
    return found


def _frame(data: bytes, at: int) -> tuple[int | None, int]:
    if len(data) - at < _FRAME_BYTES:
        return None, 0
    end = at + _FRAME_BYTES + struct.unpack_from("<Q", data, at)[0]
    return (end, _rows(data[at + 12 : end - 4])) if end <= len(data) else (None, 0)


def _rows(payload: bytes) -> int:
    """How many records a frame holds: one, unless it is rows of a table."""
    axes = _axes(payload)
    return sum((byte & 127) << 7 * place for place, byte in enumerate(axes[0])) if len(axes) == 2 else 1


def _axes(payload: bytes) -> list[bytes]:
    """The axes of a TensorProto: a record has one, rows of a table have two."""
    found = _TENSOR.match(payload)
    return [] if found is None else _AXIS.findall(found[1][: found[1][0] + 1], 1)


def _member(data: bytes, at: int) -> tuple[int | None, int]:
    inflate = zlib.decompressobj(31)
    try:
        plain = inflate.decompress(data[at:])
    except zlib.error:
        return None, 0
    if not inflate.eof:
        return None, 0
    count = start = 0
    while start < len(plain):
        end, _ = _frame(plain, start)
        if end is None:
            return None, 0
        start, count = end, count + 1
    return len(data) - len(inflate.unused_data), count


@dataclass
class File:
    """A file, and what was acknowledged of it."""

    path: str
    records: list[int] | None = None  # None: there is no file
    exact: bytes | None = None  # of a damaged file: nobody may change these but by cutting off an unfinished end
    parts: list[Part] = field(default_factory=list)  # of a damaged file, as they were before
    hit: set[int] = field(default_factory=set)  # records that damage touched
    untidy: bool = False  # whether a writer died here, and temporary files may be left

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def misled(self) -> bool:
        """Whether the schema beside it lies: then readers may refuse, in words of ours."""
        beside = f"{self.path}.schema.json"
        if os.path.islink(beside) or not os.path.isfile(beside):
            return False
        with open(beside) as file:
            features = json.load(file)["features"]  # a lie may have been copied, in other words, by merge or split
        return [*features] != ["x"] or (features["x"]["dtype"], features["x"]["shape"]) != ("int64", [3])

    @property
    def mixed(self) -> bool:
        """Whether it is a stream of tables and of single records: as rows, these are of different shapes."""
        data = self.data() or b""
        if not helper.is_stream(self.path):
            return False
        return len({len(_axes(data[part.start + 12 : part.end])) for part in parts(data, [])}) > 1

    def data(self) -> bytes | None:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def become(self, records: list[int] | None) -> None:
        """The file is sound, and holds these."""
        self.records, self.exact, self.parts, self.hit = records, None, [], set()

    def damage(self, changed: bytes) -> None:
        """Change bytes of a file that has some."""
        assert self.records is not None
        before = self.data()
        assert before is not None
        if self.exact is None:
            self.parts = parts(before, self.records)
        lost = False
        for part in self.parts:
            # Nobody looks for members of a gzip file after damage: what follows it is reported as lost.
            lost = (lost and before[:2] == _GZIP) or changed[part.start : part.end] != before[part.start : part.end]
            if lost:
                self.hit |= set(part.numbers)
        self.exact = changed
        with open(self.path, "r+b") as file:  # the same file, of which others may have names
            file.write(changed)
            file.truncate()

    @property
    def untouched(self) -> list[int]:
        return [number for number in self.records or [] if number not in self.hit]

    # ---- what a reader may find --------------------------------------------------

    def check(self, how: str = "rows", pending: tuple[int, ...] = ()) -> None:
        """Read the file, and compare. `pending`: what a live writer was given and has not acknowledged."""
        if self.records is None:
            demand(not os.path.lexists(self.path), f"{self.name} is there, and nobody made it")
            return
        if self.exact is not None and not pending:
            demand(self.data() == self.exact, f"{self.name} was damaged, and was then changed by somebody else")
        self.check_found(*helper.read(self.path, how), how, pending)

    def check_found(self, found: list[int], error: str, how: str, pending: tuple[int, ...] = ()) -> None:
        assert self.records is not None
        said = f"{self.name}, {how}: {found} of {self.records}, {error or 'no error'}"
        if self.misled and error:
            return
        if self.exact is not None:
            demand(_in_order(found, self.records), f"what was not written is there: {said}")
            if not error and how in ("rows", "skip"):
                demand(_in_order(self.untouched, found), f"sound records are missing: {said}")
            if error:
                demand(error.startswith(("CorruptError", "UsageError")), f"another error than of damage: {said}")
            return
        if pending:
            whole = [*self.records, *pending]
            if how in ("rows", "skip") or not error:
                demand(found == whole[: len(found)], f"what was not written is there: {said}")
                demand(len(found) >= len(self.records), f"acknowledged records are missing: {said}")
            return
        demand(not error, f"can't be read: {said}")
        demand(found == self.records, f"is not what was acknowledged: {said}")

    # ---- after a death -------------------------------------------------------------

    def resolve(self, possible: list[list[int] | None]) -> None:
        """Somebody died, or failed, in the middle: find out what is there, which must be one of these."""
        data = self.data()
        if self.exact is not None and data == self.exact and self.records in possible:
            return
        if data is None:
            demand(None in possible, f"{self.name} is gone; it might hold one of {possible}")
            self.become(None)
            return
        found, error = self.read_alone()
        demand(found in possible, f"{self.name} holds {found} ({error}); it might hold one of {possible}")
        self.become(found)
        if error:
            self.exact, self.parts = data, parts(data, found)
            whole = {number for part in self.parts for number in part.numbers}
            self.hit = set(found) - whole

    def read_alone(self) -> tuple[list[int], str]:
        """What is there, without a schema beside it that lies."""
        beside = f"{self.path}.schema.json"
        if not self.misled:
            return helper.read(self.path)
        os.rename(beside, f"{beside}.away")
        try:
            return helper.read(self.path)
        finally:
            os.rename(f"{beside}.away", beside)

    def appended(self, numbers: list[int], kept: int) -> None:
        """These were added after `kept` bytes of a damaged file."""
        data = self.data()
        assert data is not None
        assert self.exact is not None
        demand(data[:kept] == self.exact[:kept], f"{self.name}: what was there before an append was changed")
        for part in self.parts:
            if part.numbers and not self.hit & set(part.numbers):  # a gzip member may hold none
                demand(part.end <= kept, f"{self.name}: {part} is sound, and was cut off")
        self.parts = [part for part in self.parts if part.end <= kept]
        self.records = [number for part in self.parts for number in part.numbers] + numbers
        covered = self.parts[-1].end if self.parts else 0
        self.hit &= set(self.records)
        if not self.hit and covered == kept:
            self.become(self.records)
        else:
            self.exact = data
            self.parts += [Part(kept + start, kept + end, some) for start, end, some in parts(data[kept:], numbers)]


def _in_order(some: list[int], all_of: list[int]) -> bool:
    """Whether some of the items are there in their order."""
    rest = iter(all_of)
    return all(number in rest for number in some)
