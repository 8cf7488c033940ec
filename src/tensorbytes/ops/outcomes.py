"""What verify and repair return, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensorbytes.damage import Damage
from tensorbytes.formats.tfrecord.files.framing import QUESTION
from tensorbytes.notebook import Displayed
from tensorbytes.ops.plural import many

UNFINISHED = "the compressed stream was flushed and not finished: its writer is at work, or died"
EMPTY = "an empty file: nothing was written, or a download failed"
_EMPTY_SHARD = "empty: a shard without records"


class _Outcome(Displayed):
    """What both have."""

    damages: list[Damage]
    size: int | None
    intact: int | None

    @property
    def ok(self) -> bool:
        """Whether nothing was damaged."""
        return not self.damages

    @property
    def lost(self) -> int | None:
        """Of records, how many bytes belong to none that is whole."""
        return None if self.size is None or self.intact is None else self.size - self.intact


@dataclass
class Verification(_Outcome):
    """What `verify` found in a file, or in the files of a set.

    Of records `records`, `size` and `intact` are known, of all other files `tensors`, `rows`, `nbytes` and `unread`.
    """

    path: str
    format: str | None  # None: an empty file, whose format nothing tells
    damages: list[Damage] = field(default_factory=list)
    checksums: str = ""  # which ones the file has; empty: nothing but its structure can be checked
    read: int | None = None  # the bytes of its files, where no checksum covers them and all were read
    records: int | None = None  # those that are whole
    size: int | None = None  # of the files of records, or of their inflated streams
    intact: int | None = None  # how many of these bytes belong to whole records
    unfinished: bool = False  # whether a compressed stream of records was flushed at its end, and not finished
    tensors: int = 0
    rows: int | None = None  # of tables and streams
    nbytes: int = 0  # of the tensors, in memory
    unread: int = 0  # objects that are listed, and neither read nor checked
    manifest: str | None = None  # the path of the one that was compared, or written
    manifest_written: bool = False

    @property
    def checked(self) -> str:
        """What was checked, in words."""
        if self.format is None:
            return "size"
        if self.records is not None:
            return self.checksums
        read = "" if self.read is None else "every byte was read"
        compared = f"SHA-256 of each tensor, in {self.manifest}" if self.is_compared else ""
        return ", ".join(filter(None, ["structure", read, self.checksums, compared]))

    @property
    def is_compared(self) -> bool:
        """Whether the tensors were compared with a manifest."""
        return self.manifest is not None and not self.manifest_written

    @property
    def emptiness(self) -> str:
        """What to say of an empty file; "" for any other."""
        if self.format is not None:
            return ""
        return _EMPTY_SHARD if self.ok else EMPTY

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        fields: tuple[str, ...] = ("tensors", "rows", "unread", "nbytes", "manifest")
        if self.records is not None:
            fields = ("records", "size", "lost", *["unfinished"] * self.unfinished)
        elif self.format is None:
            fields = ()
        fields = ("path", "format", "ok", "checked", *fields)
        return {name: getattr(self, name) for name in fields} | {"damages": _plain(self.damages)}

    def __str__(self) -> str:
        if self.format is None:
            return f"{self.path}: {self.emptiness}"
        if self.records is not None:
            return "\n".join([self._records_line(), *_lines(self.path, self.damages)])
        rows = "" if self.rows is None else f", {many(self.rows, 'row')}"
        unread = f", {many(self.unread, 'object')} not read" if self.unread else ""
        head = f"{self.path} ({self.format}): {many(self.tensors, 'tensor')}{rows}, {self.nbytes} bytes{unread}, "
        return "\n".join([head + self._verdict(), *_lines(self.path, self.damages)])

    def _records_line(self) -> str:
        head = f"{self.path}: {many(self.records or 0, 'record')} in {self.size} bytes, "
        if self.ok:
            return f"{head}all intact{f'; {UNFINISHED}' * self.unfinished}"
        places = f"{len(self.damages)} places are" if len(self.damages) > 1 else "1 place is"
        doubt = ""
        if not self.records and all(damage.kind != "object" for damage in self.damages):
            doubt = f"\n  nothing in it is a record: {QUESTION}"
        return f"{head}{places} damaged, {self.lost} bytes lost{doubt}"

    def _verdict(self) -> str:
        if self.damages:
            return "1 place is damaged" if len(self.damages) == 1 else f"{len(self.damages)} places are damaged"
        if self.manifest_written:
            return f"sound; wrote {self.manifest}"
        if self.checksums or self.manifest:
            return f"sound ({self.checked})"
        return f"readable ({self.checked}); this format has no checksums"


@dataclass
class Repair(_Outcome):
    """What `repair` kept of a file.

    Of records `records`, `size` and `intact` are known, of all other files `tensors`.
    """

    path: str
    target: str
    format: str
    damages: list[Damage] = field(default_factory=list)  # of the source
    checksums: str = ""  # what damage is noticed by; empty: it can't be
    records: int | None = None  # those that were kept
    size: int | None = None  # of the source, or of its inflated stream
    intact: int | None = None  # how many of these bytes belong to records that were kept
    tensors: int = 0  # those that were kept

    @property
    def lost_tensors(self) -> int:
        return len({damage.name for damage in self.damages if damage.kind != "file"})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        fields = ("tensors",) if self.records is None else ("records", "size", "lost")
        fields = ("path", "format", "ok", *fields)
        plain = {name: getattr(self, name) for name in fields}
        return plain | {"damages": _plain(self.damages), "target": self.target}

    def __str__(self) -> str:
        return "\n".join([f"{self.path} -> {self.target}: {self._summary()}", *_lines(self.path, self.damages)])

    def _summary(self) -> str:
        if self.records is not None:
            kept = many(self.records, "record")
            places = many(len(self.damages), "place")
            return f"{kept}, nothing was damaged" if self.ok else f"{kept} kept, {self.lost} bytes lost in {places}"
        kept = many(self.tensors, "tensor")
        if self.damages:
            return f"{kept} kept, {self.lost_tensors} lost"
        if self.checksums:
            return f"{kept} copied, nothing was damaged"
        return f"{kept} copied; this format has no checksums, so damage can't be noticed"


def _plain(damages: list[Damage]) -> list[dict[str, Any]]:
    return [damage.to_dict() for damage in damages]


def _lines(path: str, damages: list[Damage]) -> list[str]:
    """A line for each damage, with the path of the file where it is one of several."""
    return [f"  {damage.describe() if damage.path == path else damage}" for damage in damages]
