"""Records of the native frame that move to another place, as they are: their values are not read.

A record says which part of an object it is, and which item of a stream. Where others are missing, these numbers have a
gap, which no reader takes: whoever closes it writes the numbers anew, and the padding and the checksum with them. The
directory of an object is left out: it would tell of other records. An alias of a record becomes a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tensorbytes._wire import plain_tensor, proto
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, LimitError
from tensorbytes.formats._extension import (
    ALIAS,
    ALONE,
    DIRECTORY,
    DOCUMENT,
    DOCUMENT_ORIGIN,
    HEADER_CRC,
    ITEM,
    NAME,
    PADDING,
    PART,
    PARTS,
    ROWS,
    STEP,
    Extension,
    Place,
    named,
    place_fields,
)
from tensorbytes.formats._record import vouched
from tensorbytes.formats._tensorproto import CONTENT, LAYOUT, parse_shape
from tensorbytes.tree import Path, path_name

# dtype and shape; what the place decides.
_SHAPE = 2
_HEAD = {1, _SHAPE}
_OF_PLACE = {PART, PARTS, ITEM, ROWS, HEADER_CRC}
_NAMED = {NAME, STEP, PART, PARTS, ITEM}
_OF_OBJECT = {DOCUMENT, DOCUMENT_ORIGIN, ROWS, DIRECTORY}
_LOOKED_AT = _NAMED | {DOCUMENT, DOCUMENT_ORIGIN, ROWS, LAYOUT, ALIAS}


class Seen(NamedTuple):
    """What a record says of itself that matters to others."""

    place: Place
    alias: int | None = None  # the part that it stands for
    path: Path = ()
    rows: int | None = None  # how many rows it has, if its shape tells


def look_at(payload: memoryview) -> Seen:
    """Where a record stands, whatever it holds. One that is not a TensorProto stands for itself."""
    plain = plain_tensor(payload, 0, len(payload))
    if plain is not None:
        return Seen(Place(item=plain[4]) if plain[4] else ALONE)
    ext = Extension()
    shape: list[int] = []
    try:
        for item in proto.fields(payload, 0, len(payload)):
            if item.number in _LOOKED_AT:
                ext.take(payload, item, 0)
            elif item.number == _SHAPE:
                parse_shape(shape, payload, item)
        path = ext.path(0, Budget(LIMITS))
    except (CorruptError, LimitError):
        return Seen(ALONE)
    inner = ext.layout is not None or (path and path[-1][0] == "mask" and path[-1][1] != 0)
    return Seen(ext.place, ext.alias, path, shape[0] if shape and not inner else None)


def copied(alias: memoryview, target: memoryview) -> memoryview:
    """The payload of an alias with what it stands for in it, where a reader would not find it any more."""
    own = [(item.number, bytes(alias[item.at : stop])) for item, stop in _spans(alias)]
    kept = [field for number, field in own if number in _NAMED]
    rest = [bytes(target[item.at : stop]) for item, stop in _spans(target) if item.number not in _OF_OBJECT | _NAMED]
    return memoryview(b"".join(rest + kept))


def moved(payload: memoryview, place: Place, at: int, *, flat: bool) -> list[Any]:
    """The payload of a record as it is at another place, and at file offset `at`.

    `flat` puts an item of a list under its name: others of the list are missing, and a part of a list is not a list.
    The rows of a table are those that `place` tells.
    """
    head, values = [], [(0, 0)]
    content: proto.Field | None = None
    for item, stop in _spans(payload):
        content = item if item.number == CONTENT else content
        if item.number == DIRECTORY:
            continue
        if item.number in _HEAD or (item.number >= NAME and item.number != PADDING):
            head.append((item.number, bytes(payload[item.at : stop])))
        elif item.at == values[-1][1]:
            values[-1] = values[-1][0], stop
        else:  # padding stands between the parts of a layout
            values.append((item.at, stop))
    sealed = any(number == HEADER_CRC for number, _ in head)
    head = [(number, field) for number, field in head if number not in _OF_PLACE]
    head = [*(_under_its_name(head) if flat else head), (PART, place_fields(place))]
    if place.rows is not None:
        head.append((ROWS, proto.put_number(ROWS, place.rows)))
    header = b"".join(field for _, field in sorted(head, key=lambda numbered: numbered[0]))
    if not sealed or content is None:
        return [header, *(payload[start:stop] for start, stop in values)]
    return [vouched(header, bytes(payload[content.at : content.start]), at), payload[content.start : content.end]]


def _spans(payload: memoryview) -> Iterator[tuple[proto.Field, int]]:
    """The fields of a message, and where each of them ends."""
    before = None
    for item in proto.fields(payload, 0, len(payload)):
        if before is not None:
            yield before, item.at
        before = item
    if before is not None:
        yield before, len(payload)


def _under_its_name(head: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    ext = Extension()
    for number, field in head:
        if number in (NAME, STEP):
            view = memoryview(field)
            ext.take(view, next(proto.fields(view, 0, len(view))), 0)
    if all(kind not in ("list", "tuple") for kind, _ in ext.steps):
        return head
    fields = named(str(path_name(tuple(ext.steps))), stored=ext.name is not None)
    return [*(one for one in head if one[0] != STEP), (STEP, fields)]
