"""Damage: what a checksum or a parser refuses in a file, and where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_OF_RECORDS = {
    "header": "the length of record {} and its checksum disagree",
    "payload": "the data of record {} and its checksum disagree",
    "cut header": "the file ends inside the header of record {}",
    "cut payload": "record {} is cut off",
    "compression": "the compressed data is damaged or ends early, at record {}",
    "object": "record {} is of an object that is not whole",
    "missing": "records are missing in front of record {}",
}


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a file that is not what was written.

    Of records it is a range of bytes: of the file, or of the inflated stream of a compressed file. All of it is lost,
    unless `recovered`: then it is the header of a record whose payload was confirmed by its own
    checksum and is kept. How many records a range held can't always be known: it counts as one in
    the numbers of those that follow. Records of an "object" are what was written; others that belong to
    them are not there.

    Of other files it is a tensor, called `name`, or the file as a whole. `start` is where the fault was noticed,
    if that is known.
    """

    path: str
    # Of records: "header", "payload", "cut header", "cut payload", "compression", "object" or "missing".
    # Of tensors: "tensor", or "manifest" if it is not what a manifest says. "file": its structure, or that it is empty.
    kind: str
    start: int | None = None
    end: int | None = None
    record: int | None = None
    recovered: bool = False
    cause: str = ""
    name: str | None = None

    @property
    def what(self) -> str:
        """What is wrong, in words, without the place."""
        if self.kind not in _OF_RECORDS:
            return self.cause
        kept = "; its payload was kept" if self.recovered else ""
        return f"{self._fault}{kept}{self._because}"

    @property
    def size(self) -> int:
        """How many bytes the range has."""
        return (self.end or 0) - (self.start or 0) if self.record is not None else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: more of them for records than for tensors."""
        plain = {"name": self.name, "what": self.what, "at": self.start}
        if self.record is None:
            return plain
        fields = ("kind", "record", "start", "end", "recovered")
        return {field: getattr(self, field) for field in fields} | plain

    def __str__(self) -> str:
        return f"{self.path}: {self.describe()}"

    def describe(self) -> str:
        """The damage and its place, without the path."""
        if self.record is None:
            place = "" if self.start is None else f" (byte {self.start})"
            text = f"{'' if self.name is None else f'{self.name}: '}{self.what}{place}"
            return text if text.isprintable() else repr(text)[1:-1]  # names come from files, and go to terminals
        size = self.size
        loss = "its payload was kept" if self.recovered else f"{size} bytes lost" if size else "no whole record lost"
        return f"{self._fault} (bytes {self.start} to {self.end}, {loss}){self._because}"

    @property
    def _fault(self) -> str:
        return _OF_RECORDS[self.kind].format(self.record)

    @property
    def _because(self) -> str:
        return f": {self.cause}" if self.cause else ""
