"""The extension fields of the native frame's records: what a TensorProto has no place for.

spec/frame.md lists them. Compression and quantization are messages of their own, in
_stored.py and _quantized.py; here they are only found.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tensorbytes._wire import crc32c, mask, proto
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, LimitError, UnsupportedError
from tensorbytes.formats._tensorproto import LAYOUT
from tensorbytes.tensor import Strings
from tensorbytes.tree import NO_META, Leaf, Step

# The extension fields.
NAME, META, STEP, PART, PARTS, ITEM, KIND, _, ENCODING, DOCUMENT, PADDING, HEADER_CRC = range(1000, 1012)
COMPRESSION, QUANTIZATION = 1012, 1013
_STEP_KINDS = {1: "key", 2: "number", 3: "list", 4: "tuple", 5: "named"}
_STEP_FIELDS = {kind: number for number, kind in _STEP_KINDS.items()}
# Numbers below this change the meaning of a record; those that are unknown here are for later versions.
MEANINGFUL = 1500


class Place(NamedTuple):
    """Where a record stands: part `part` of `parts` of an object, item number `item` of a stream."""

    part: int = 0
    parts: int = 1
    item: int = 0
    document: Mapping[str, str] = NO_META


ALONE = Place()


# ---- writing ----------------------------------------------------------------


def item_field(item: int) -> bytes:
    return proto.put_number(ITEM, item)


def place_fields(place: Place) -> bytes:
    """Which part of which item a record is; nothing for an object of one tensor outside streams."""
    part = proto.put_number(PART, place.part) + proto.put_number(PARTS, place.parts) if place.parts != 1 else b""
    return part + item_field(place.item) if place.item else part


def encode(leaf: Leaf, place: Place, layout: str = "") -> bytes:
    """The extension fields, in the order of their numbers; nothing for a plain tensor."""
    value, steps, name = leaf.value, leaf.path, leaf.name
    out = [] if name is None else [proto.put_bytes(NAME, utf8(name))]
    out += _map(META, value.meta)
    out += [proto.put_bytes(STEP, _step(step, name if len(steps) == 1 else None)) for step in steps]
    out.append(place_fields(place))
    if leaf.kind:
        out.append(proto.put_bytes(KIND, leaf.kind.encode()))
    if layout:
        out.append(proto.put_bytes(LAYOUT, layout.encode()))
    if isinstance(value, Strings):
        out.append(encoding(value))
    return b"".join(out + _map(DOCUMENT, place.document))


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise UnsupportedError(f"names and metadata must be text with a UTF-8 form, got {text!r}") from None


def encoding(value: Strings) -> bytes:
    return proto.put_bytes(ENCODING, b"utf-8") if value.encoding == "utf-8" else b""


def _map(number: int, entries: Mapping[str, str]) -> list[bytes]:
    """A protobuf map, its keys sorted: the same input gives the same bytes."""
    return [
        proto.put_bytes(number, proto.put_bytes(1, utf8(key)) + proto.put_bytes(2, utf8(entries[key])))
        for key in sorted(entries)
    ]


def named(name: str, stored: bool) -> bytes:
    """The fields of a tensor that stands under its name alone, which is `stored` already or not."""
    field = b"" if stored else proto.put_bytes(NAME, utf8(name))
    return field + proto.put_bytes(STEP, _step(("key", name), name))


def _step(step: Step, name: str | None) -> bytes:
    kind, key = step
    if kind == "key" and key == name:
        return proto.put_number(_STEP_FIELDS["named"], 1)  # the name says it already
    if isinstance(key, str):
        return proto.put_bytes(_STEP_FIELDS["key"], utf8(key))
    if kind == "number":
        return proto.put_number(_STEP_FIELDS[kind], key << 1 ^ key >> 63)  # sint64: zigzag
    return proto.put_number(_STEP_FIELDS[kind], key)


# ---- reading ----------------------------------------------------------------


class Extension:
    """Collects the extension fields of one record; of a repeated scalar the last counts."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.meta: dict[str, str] = {}
        self.document: dict[str, str] = {}
        self.steps: list[Step] = []
        self.part, self.parts, self.item = 0, 1, 0
        self.kind = self.encoding = ""
        self.layout: str | None = None
        self.header_checked, self.header_end = False, 0
        self.stored: dict[int, proto.Field] = {}  # compression and quantization
        self.seen: set[int] = set()  # the numbers met, of those that carry meaning

    def take(self, data: memoryview, item: proto.Field, start: int) -> None:
        if item.number < MEANINGFUL:
            self.seen.add(item.number)
        match item.number:
            case 1000:
                self.name = proto.text(data, item)
            case 1001:
                _read_entry(data, item, self.meta)
            case 1002:
                self.steps.append(_read_step(data, item))
            case 1003:
                self.part = proto.number(item)
            case 1004:
                self.parts = proto.number(item)
            case 1005:
                self.item = proto.number(item)
            case 1006:
                self.kind = proto.text(data, item)
            case 1007:
                self.layout = proto.text(data, item)
            case 1008:
                self.encoding = proto.text(data, item)
            case 1009:
                _read_entry(data, item, self.document)
            case 1010:
                pass  # padding
            case 1011:
                self._check_header(data, item, start)
            case 1012 | 1013:
                proto.delimited(data, item)
                self.stored[item.number] = item
            case _ if item.number < MEANINGFUL:
                raise CorruptError(f"extension field {item.number} is unknown to this version", at=item.at)

    def _check_header(self, data: memoryview, item: proto.Field, start: int) -> None:
        if item.wire != proto.FIXED32:
            raise CorruptError(f"the header checksum has the wire type {item.wire}", at=item.at)
        if self.header_checked:  # each would mean another look at all that stands before it
            raise CorruptError("a second checksum of the record's header", at=item.at)
        (stored,) = struct.unpack_from("<I", data, item.start)
        if stored != mask(crc32c(data[start : item.at])):
            raise CorruptError("the checksum of the record's header differs", at=item.at)
        self.header_checked, self.header_end = True, item.end

    def path(self, start: int, budget: Budget) -> tuple[Step, ...]:
        if len(self.steps) > budget.max_depth:
            raise LimitError(f"a path of {len(self.steps)} steps, over the limit of {budget.max_depth}", at=start)
        if all(kind != "named" for kind, _ in self.steps):
            return tuple(self.steps)
        if len(self.steps) != 1 or self.name is None:
            raise CorruptError("a path refers to the record's name, which is missing or not its only step", at=start)
        return (("key", self.name),)


def _read_entry(data: memoryview, whole: proto.Field, into: dict[str, str]) -> None:
    proto.delimited(data, whole)
    key = value = ""
    for item in proto.fields(data, whole.start, whole.end):
        if item.number == 1:
            key = proto.text(data, item)
        elif item.number == 2:
            value = proto.text(data, item)
    if key in into:
        raise CorruptError(f"the metadata {key!r} is stored twice", at=whole.at)
    into[key] = value


def _read_step(data: memoryview, whole: proto.Field) -> Step:
    proto.delimited(data, whole)
    step: Step | None = None
    for item in proto.fields(data, whole.start, whole.end):
        kind = _STEP_KINDS.get(item.number)
        if kind == "key":
            step = (kind, proto.text(data, item))
        elif kind is not None:
            raw = proto.number(item)
            step = (kind, raw >> 1 ^ -(raw & 1) if kind == "number" else raw)
    if step is None:
        raise CorruptError("a path step without a kind", at=whole.at)
    return step
