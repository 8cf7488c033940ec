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
from tensorbytes.tree import NO_META, Document, Leaf, Step

# The extension fields.
NAME, META, STEP, PART, PARTS, ITEM, KIND, _, ENCODING, DOCUMENT, PADDING, HEADER_CRC = range(1000, 1012)
COMPRESSION, QUANTIZATION, ORIGIN, DOCUMENT_ORIGIN, ROWS, ALIAS = range(1012, 1018)
DIRECTORY = 1500
_STEP_KINDS = {1: "key", 2: "number", 3: "list", 4: "tuple", 5: "named", 6: "mask"}
_STEP_FIELDS = {kind: number for number, kind in _STEP_KINDS.items()}
# The layout of a record that stands for an earlier one.
ALIAS_LAYOUT = "alias"
# Numbers below this change the meaning of a record; those that are unknown here are for later versions.
MEANINGFUL = 1500


class Place(NamedTuple):
    """Where a record stands: part `part` of `parts` of an object, item number `item` of a stream.

    The rest is about the object, and on its first record alone: its metadata and origin, and of a table its rows.
    """

    part: int = 0
    parts: int = 1
    item: int = 0
    document: Mapping[str, str] = NO_META
    origin: Mapping[str, str] = NO_META
    rows: int | None = None

    @classmethod
    def of(cls, document: Document, part: int) -> Place:
        """The place of leaf number `part` of a document."""
        leaves, meta, item, origin, rows = document
        return cls(part, len(leaves), item) if part else cls(part, len(leaves), item, meta, origin, rows)

    @property
    def is_first(self) -> bool:
        """Whether it says anything that only an object's first record may say."""
        return bool(self.document or self.origin) or self.rows is not None


ALONE = Place()


# ---- writing ----------------------------------------------------------------


def item_field(item: int) -> bytes:
    return proto.put_number(ITEM, item)


def name_field(name: str) -> bytes:
    return proto.put_bytes(NAME, utf8(name))


def origin_field(origin: Mapping[str, str]) -> bytes:
    return b"".join(_map(ORIGIN, origin))


def place_fields(place: Place) -> bytes:
    """Which part of which item a record is; nothing for an object of one tensor outside streams."""
    part = proto.put_number(PART, place.part) + proto.put_number(PARTS, place.parts) if place.parts != 1 else b""
    return part + item_field(place.item) if place.item else part


def encode(leaf: Leaf, place: Place, layout: str = "", stored: bytes = b"", directory: bytes = b"") -> bytes:
    """The extension fields, in the order of their numbers; nothing for a plain tensor.

    `stored` are those of compression and quantization, `directory` is that of the whole object.
    """
    value = leaf.value
    out = _named(leaf, value.meta)
    out.append(place_fields(place))
    if leaf.kind:
        out.append(proto.put_bytes(KIND, leaf.kind.encode()))
    if layout:
        out.append(proto.put_bytes(LAYOUT, layout.encode()))
    if isinstance(value, Strings):
        out.append(encoding(value))
    if place.document:
        out += _map(DOCUMENT, place.document)
    if stored:
        out.append(stored)
    if value.origin:
        out += _map(ORIGIN, value.origin)
    if place.origin:
        out += _map(DOCUMENT_ORIGIN, place.origin)
    if place.rows is not None:
        out.append(proto.put_number(ROWS, place.rows))
    if directory:
        out.append(proto.put_bytes(DIRECTORY, directory))
    return b"".join(out)


def encode_alias(leaf: Leaf, place: Place, part: int) -> bytes:
    """The same of a leaf that is the leaf number `part` of its object once more."""
    out = [*_named(leaf, NO_META), place_fields(place), proto.put_bytes(LAYOUT, ALIAS_LAYOUT.encode())]
    return b"".join(out) + proto.put_number(ALIAS, part)


def _named(leaf: Leaf, meta: Mapping[str, str]) -> list[bytes]:
    steps, name = leaf.path, leaf.name
    out = [] if name is None else [name_field(name)]
    if meta:
        out += _map(META, meta)
    if len(steps) == 1 and steps[0][0] == "key":
        out.append(_NAMED_STEP)  # the name says it already
    else:
        out += [proto.put_bytes(STEP, _step(step, None)) for step in steps]
    return out


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
    field = b"" if stored else name_field(name)
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


_NAMED_BYTES = proto.put_number(_STEP_FIELDS["named"], 1)
_NAMED_STEP = proto.put_bytes(STEP, _NAMED_BYTES)
_NAMED: list[Step] = [("named", 1)]


# ---- reading ----------------------------------------------------------------


class Extension:
    """Collects the extension fields of one record; of a repeated scalar the last counts."""

    name: str | None = None
    part, parts, item = 0, 1, 0
    kind = encoding = ""
    layout: str | None = None
    rows: int | None = None
    alias: int | None = None
    directory: proto.Field | None = None
    header_checked, header_end = False, 0

    def __init__(self) -> None:
        self.meta: dict[str, str] = {}
        self.document: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        self.document_origin: dict[str, str] = {}
        self.steps: list[Step] = []
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
            case 1014:
                _read_entry(data, item, self.origin)
            case 1015:
                _read_entry(data, item, self.document_origin)
            case 1016:
                self.rows = proto.number(item)
            case 1017:
                self.alias = proto.number(item)
            case 1500 if item.wire == proto.DELIMITED:
                self.directory = item
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
        if self.steps == _NAMED and self.name is not None:
            return (("key", self.name),)
        if len(self.steps) > budget.max_depth:
            raise LimitError(f"a path of {len(self.steps)} steps, over the limit of {budget.max_depth}", at=start)
        if all(kind not in ("named", "mask") for kind, _ in self.steps):
            return tuple(self.steps)
        if all(kind != "named" for kind, _ in self.steps):
            return self._path_of_mask(start)
        if len(self.steps) != 1 or self.name is None:
            raise CorruptError("a path refers to the record's name, which is missing or not its only step", at=start)
        return (("key", self.name),)  # said in another way than ours

    def _path_of_mask(self, start: int) -> tuple[Step, ...]:
        *above, last = self.steps
        if last[0] != "mask" or not above or any(kind not in ("key", "number") for kind, _ in above):
            raise CorruptError("a mask that is not the last step below the key of a column", at=start)
        return tuple(self.steps)

    @property
    def place(self) -> Place:
        return Place(self.part, self.parts, self.item, self.document, self.document_origin, self.rows)


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
    if proto.delimited(data, whole) == _NAMED_BYTES:
        return _NAMED[0]
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
