"""What the records of a file are, by the first of them.

An Example is told by its features: one of them has a list of bytes, floats or integers. A record that has none
may still be an Example, without features or with features that hold nothing; so is a record of no bytes. What can't be
parsed as an Example, or only by passing over all that is in it, is a record of bytes, perhaps another message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorbytes._wire import proto
from tensorbytes._wire.proto import DELIMITED, Field
from tensorbytes.errors import CorruptError
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.typing import bytes_view

EXAMPLES, EVENTS, OTHERS = "tfrecord", "events", "other records"
# What others are, in messages.
OF_BYTES = "records of bytes, not Examples"
# The records of a file that are looked at for a feature, and the fields of each.
MOST_RECORDS, _MOST_FIELDS = 100, 1000
_GROUP = Field(1 << 29, proto.START_GROUP, 0, 0, 0)


def kind_of(plain: bytes) -> str:
    """What the records of a file are likely to be that starts like this, once it is inflated."""
    length, first = int.from_bytes(plain[:8], "little"), plain[HEADER_BYTES:]
    payload = first[: min(length, len(first))]
    if payload[:1] == b"\x09" and b"brain.Event:" in payload[9:32]:
        return EVENTS
    return EXAMPLES if not length or _may_be_example(payload, length) else OTHERS


def _may_be_example(payload: bytes, length: int) -> bool:
    """Whether a record starts as an Example or SequenceExample does: with a part that fits into it."""
    if payload[:1] not in (b"\x0a", b"\x12"):
        return False
    size = shift = 0
    for at, byte in enumerate(payload[1:11], 2):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            # In it, if there is anything, the first entry of a map.
            return at + size <= length and (not size or payload[at : at + 1] in (b"\x0a", b""))
    return False


def are_examples(payloads: Iterable[memoryview]) -> bool:
    """Whether these records, the first of a file, are Examples or SequenceExamples."""
    others = False
    for _, payload in zip(range(MOST_RECORDS), payloads, strict=False):
        if _Record(payload).has_feature():
            return True
        others = others or not _Record(payload).is_empty()
    return not others


class _Record:
    """A record that may be an Example. No more of its fields are looked at than tell."""

    def __init__(self, payload: memoryview) -> None:
        self._view, self._left = bytes_view(payload), _MOST_FIELDS

    def has_feature(self) -> bool:
        """Whether there is a feature in it, with a list; what comes after it may be malformed."""
        for part in self._sound(0, len(self._view)):
            for entry in self._messages(part, (1, 2)):
                if entry.number == 1 and entry.wire == DELIMITED and self._is_feature(entry):
                    return True
        return False

    def _is_feature(self, entry: Field) -> bool:
        """Whether an entry of a map has a list of values, or of steps, under a name or none."""
        parts = list(self._sound(entry.start, entry.end))
        if any(part.number == 1 and part.wire == DELIMITED and self._name(part) is None for part in parts):
            return False
        for value in parts:
            for part in self._messages(value, (2,)):
                if part.number <= 3 and part.wire == DELIMITED:
                    inside = next(self._sound(part.start, part.end), None)
                    if part.start == part.end or (inside is not None and inside.number <= 3):
                        return True
        return False

    def is_empty(self) -> bool:
        """Whether it is an Example without values, and nothing has to be passed over to say so."""
        try:
            for part in self._known(0, len(self._view), (1, 2)):
                for entry in self._known(part.start, part.end, (1,)):
                    parts = list(self._known(entry.start, entry.end, (1, 2)))
                    # A list of Examples looks like this: what should be the name is the entry of another map.
                    if not any(one.number == 2 for one in parts) and not all(map(self._is_plain, parts)):
                        return False
        except CorruptError:
            return False
        return True

    def _messages(self, field: Field, numbers: tuple[int, ...]) -> Iterator[Field]:
        """The fields of a message that is a field of one of these numbers."""
        if field.number in numbers and field.wire == DELIMITED:
            yield from self._sound(field.start, field.end)

    def _sound(self, start: int, end: int) -> Iterator[Field]:
        """The fields of a message up to the first that is malformed."""
        try:
            yield from self._fields(start, end)
        except CorruptError:
            return

    def _known(self, start: int, end: int, numbers: tuple[int, ...]) -> Iterator[Field]:
        """The fields of a message, which must be messages or text of these numbers."""
        for field in self._fields(start, end):
            if field.number not in numbers or field.wire != DELIMITED:
                raise CorruptError("a field that is not known", at=field.at)
            yield field

    def _fields(self, start: int, end: int) -> Iterator[Field]:
        while start < end and self._left:
            self._left -= 1
            field, start = proto.read_field(self._view, start, end)
            yield field or _GROUP

    def _name(self, field: Field) -> str | None:
        try:
            return proto.text(self._view, field)
        except CorruptError:
            return None

    def _is_plain(self, field: Field) -> bool:
        name = self._name(field)
        return name is not None and name.isprintable()
