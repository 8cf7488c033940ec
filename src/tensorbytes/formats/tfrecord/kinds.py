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
# The fields of a record that are looked at for a feature, and the records of a file.
_MOST_FIELDS, _MOST_RECORDS = 4096, 100


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
    for _, payload in zip(range(_MOST_RECORDS), payloads, strict=False):
        view = bytes_view(payload)
        if _has_feature(view):
            return True
        others = others or not _is_empty(view)
    return not others


def _has_feature(view: memoryview) -> bool:
    """Whether there is a feature in a record, with a list; what comes after it may be malformed."""
    for entry in _entries(view):
        parts = list(_sound(view, entry))
        if any(part.number == 1 and part.wire == DELIMITED and not _is_text(view, part) for part in parts):
            continue
        for value in parts:
            if value.number == 2 and value.wire == DELIMITED and _is_feature(view, value):
                return True
    return False


def _entries(view: memoryview) -> Iterator[Field]:
    """The entries of the maps of a record, as far as they are sound; not of very many fields."""
    left = _MOST_FIELDS
    for part in _sound(view, Field(0, DELIMITED, 0, len(view), 0)):
        left -= 1
        inside = _sound(view, part) if part.number in (1, 2) and part.wire == DELIMITED else iter(())
        for entry in inside:
            left -= 1
            if entry.number == 1 and entry.wire == DELIMITED:
                yield entry
            if left <= 0:
                return
        if left <= 0:
            return


def _is_feature(view: memoryview, value: Field) -> bool:
    """Whether the value of an entry is a list of values, or of steps."""
    lists = (part for part in _sound(view, value) if part.number in (1, 2, 3) and part.wire == DELIMITED)
    return any(part.start == part.end or any(inner.number <= 3 for inner in _sound(view, part)) for part in lists)


def _sound(view: memoryview, message: Field) -> Iterator[Field]:
    """The fields of a message up to the first that is malformed."""
    at = message.start
    try:
        while at < message.end:
            field, at = proto.read_field(view, at, message.end)
            if field is not None:
                yield field
    except CorruptError:
        return


def _is_text(view: memoryview, field: Field) -> bool:
    try:
        proto.text(view, field)
    except CorruptError:
        return False
    return True


def _is_name(view: memoryview, field: Field) -> bool:
    return _is_text(view, field) and proto.text(view, field).isprintable()


def _is_empty(view: memoryview) -> bool:
    """Whether a record is an Example without values, and nothing has to be passed over to say so."""
    try:
        for part in proto.fields(view, 0, len(view)):
            if part.number not in (1, 2) or part.wire != DELIMITED:
                return False
            for entry in proto.fields(view, part.start, part.end):
                if entry.number != 1 or entry.wire != DELIMITED:
                    return False
                fields = list(proto.fields(view, entry.start, entry.end))
                if any(field.number not in (1, 2) or field.wire != DELIMITED for field in fields):
                    return False
                # A list of Examples looks like this: what should be the name is the entry of another map.
                if not any(field.number == 2 for field in fields) and not all(
                    _is_name(view, field) for field in fields
                ):
                    return False
    except CorruptError:
        return False
    return True
