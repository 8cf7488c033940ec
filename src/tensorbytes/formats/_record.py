"""One record of the native frame: a TensorProto with extension fields.

spec/frame.md is the normative text. A record holds one leaf:

- dense tensors and strings are plain TensorProtos;
- ragged and sparse values are string tensors whose strings are TensorProtos in turn
  (for coo exactly what tf.io.serialize_sparse gives), with the field `layout` set;
- content of 4 KiB and more starts on a 64-byte boundary of the file, by padding, and
  the header before it has a checksum of its own, so that a memory map can be trusted
  without reading the content.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import crc32c, mask, proto, varint
from tensorbytes.errors import CorruptError, Limits, UnsupportedError
from tensorbytes.formats import _tensorproto as tensorproto
from tensorbytes.formats._tensorproto import LAYOUT
from tensorbytes.tensor import (
    Array,
    InvalidValueError,
    Ragged,
    Sparse,
    Strings,
    Tensor,
    Value,
    with_meta,
)
from tensorbytes.tree import Leaf, Step, path_name

# The extension fields.
NAME, META, STEP, PART, PARTS, ITEM, KIND, _, ENCODING, DOCUMENT, PADDING, HEADER_CRC = range(1000, 1012)
_STEP_KINDS = {1: "key", 2: "number", 3: "list", 4: "tuple", 5: "named"}
_STEP_FIELDS = {kind: number for number, kind in _STEP_KINDS.items()}
_KNOWN_ENCODINGS = {"utf-8"}
ALIGNMENT = 64
ALIGN_FROM = 4096
_CRC_TAG = proto.tag(HEADER_CRC, proto.FIXED32)
_PADDING_TAG = proto.tag(PADDING, proto.DELIMITED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: part `part` of `parts` of an object, item number `item` of a stream."""

    part: int = 0
    parts: int = 1
    item: int = 0
    document: Mapping[str, str] = field(default_factory=dict)


ALONE = Place()


# ---- writing ----------------------------------------------------------------


def encode(leaf: Leaf, place: Place, at: int) -> list[Any]:
    """The payload of a record that starts at file offset `at`, as a list of buffers."""
    value = leaf.value
    if isinstance(value, Tensor | Strings):
        header = tensorproto.head(tensorproto.code_of(value), value.shape) + _extension(leaf, place)
        tag, content = tensorproto.body(value)
        if isinstance(value, Tensor) and value.nbytes >= ALIGN_FROM:
            header += _padding(at + len(header) + len(_CRC_TAG) + 4 + len(tag))
            header += _CRC_TAG + struct.pack("<I", mask(crc32c(header)))
        return [header + tag, content]
    layout, parts = _parts(value)
    out: list[Any] = [
        tensorproto.head(dtypes.STRING_CODE, (len(parts),))
        + _extension(leaf, place)
        + proto.put_bytes(LAYOUT, layout.encode())
    ]
    at += len(out[0])
    for part in parts:
        inner = tensorproto.head(tensorproto.code_of(part), part.shape)
        if isinstance(part, Strings):
            inner += _encoding(part)
        tag, content = tensorproto.body(part)
        prefix = b"\x42" + varint(len(inner) + len(tag) + len(content)) + inner + tag
        if isinstance(part, Tensor) and part.nbytes >= ALIGN_FROM:
            prefix = _padding(at + len(prefix)) + prefix
        out += [prefix, content]
        at += len(prefix) + len(content)
    return out


def _padding(at: int) -> bytes:
    """A padding field after which position `at` has moved to a multiple of 64."""
    need = -at % ALIGNMENT
    if not need:
        return b""
    overhead = len(_PADDING_TAG) + 1
    if need < overhead:
        need += ALIGNMENT
    return _PADDING_TAG + varint(need - overhead) + bytes(need - overhead)


def _extension(leaf: Leaf, place: Place) -> bytes:
    """The extension fields, in the order of their numbers; nothing for a plain tensor."""
    value, steps, name = leaf.value, leaf.path, leaf.name
    out = b""
    if name is not None:
        out += proto.put_bytes(NAME, utf8(name))
    out += _map(META, value.meta)
    for step in steps:
        out += proto.put_bytes(STEP, _step(step, name if len(steps) == 1 else None))
    if place.parts != 1:
        out += proto.put_number(PART, place.part) + proto.put_number(PARTS, place.parts)
    if place.item:
        out += proto.put_number(ITEM, place.item)
    if leaf.kind:
        out += proto.put_bytes(KIND, leaf.kind.encode())
    if isinstance(value, Strings):
        out += _encoding(value)
    return out + _map(DOCUMENT, place.document)


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise UnsupportedError(f"names and metadata must be text with a UTF-8 form, got {text!r}") from None


def _encoding(value: Strings) -> bytes:
    return proto.put_bytes(ENCODING, b"utf-8") if value.encoding == "utf-8" else b""


def _map(number: int, entries: Mapping[str, str]) -> bytes:
    """A protobuf map, its keys sorted: the same input gives the same bytes."""
    out = b""
    for key in sorted(entries):
        out += proto.put_bytes(number, proto.put_bytes(1, utf8(key)) + proto.put_bytes(2, utf8(entries[key])))
    return out


def _step(step: Step, name: str | None) -> bytes:
    kind, key = step
    if kind == "key" and key == name:
        return proto.put_number(_STEP_FIELDS["named"], 1)  # the name says it already
    if isinstance(key, str):
        return proto.put_bytes(_STEP_FIELDS["key"], utf8(key))
    if kind == "number":
        return proto.put_number(_STEP_FIELDS[kind], key << 1 ^ key >> 63)  # sint64: zigzag
    return proto.put_number(_STEP_FIELDS[kind], key)


def _index(part: Array) -> Tensor:
    part = np.ascontiguousarray(part, part.dtype.newbyteorder("<"))
    return Tensor(part.dtype.name, part.shape, part.reshape(-1))


def _parts(value: Ragged | Sparse) -> tuple[str, list[Tensor | Strings]]:
    """The layout's name and its parts in the order of the specification."""
    if isinstance(value, Ragged):
        splits: list[Tensor | Strings] = [_index(part) for part in value.splits]
        if value.shapes is None:
            return "ragged", [*splits, value.values]
        return "ragged-shapes", [*splits, value.values, _index(value.shapes)]
    shape = np.array(value.shape, np.int64)
    return value.layout, [*(_index(part) for part in value.parts), value.values, _index(shape)]


# ---- reading ----------------------------------------------------------------


@dataclass(slots=True)
class Record:
    """A record as read: the leaf, its place, and how much of it a checksum of its own covers."""

    leaf: Leaf
    place: Place
    header_checked: bool = False


def decode(
    data: memoryview, start: int, end: int, limits: Limits, check_values: bool = True, nested: bool = False
) -> Record:
    """The record whose payload is data[start:end].

    `check_values=False` leaves the content untouched, for lazy reading.
    """
    message = tensorproto.parse(data, start, end)
    if not message.extra:
        plain = tensorproto.decode(data, message, limits, start)
        if check_values:
            tensorproto.check_content(plain, start)
        return Record(Leaf(plain), ALONE)
    try:
        return _decode_extended(data, message, start, limits, check_values, nested)
    except InvalidValueError as error:
        raise CorruptError(str(error), at=start) from None


def _decode_extended(
    data: memoryview, message: tensorproto.Message, start: int, limits: Limits, check_values: bool, nested: bool
) -> Record:
    ext = _Extension()
    for item in message.extra:
        ext.take(data, item, start)
    if ext.layout:
        if nested:
            raise CorruptError("a ragged or sparse value inside another", at=start)
        value: Value = _assemble(data, message, ext.layout, limits, start)
    else:
        value = tensorproto.decode(data, message, limits, start)
    if ext.encoding:
        if ext.encoding not in _KNOWN_ENCODINGS or not isinstance(value, Strings):
            raise CorruptError(f"unknown encoding {ext.encoding!r}", at=start)
        value = Strings(value.shape, value.offsets, value.data, ext.encoding)
    if check_values and isinstance(value, Tensor | Strings):
        tensorproto.check_content(value, start)
    if not 0 <= ext.part < ext.parts:
        raise CorruptError(f"part {ext.part} of {ext.parts}", at=start)
    path = ext.path(start)
    named = with_meta(value, None if path_name(path) == ext.name else ext.name, ext.meta)
    place = Place(ext.part, ext.parts, ext.item, ext.document)
    return Record(Leaf(named, path, ext.kind), place, ext.header_checked)


class _Extension:
    """Collects the extension fields of one record; of a repeated scalar the last counts."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.meta: dict[str, str] = {}
        self.document: dict[str, str] = {}
        self.steps: list[Step] = []
        self.part, self.parts, self.item = 0, 1, 0
        self.kind = self.layout = self.encoding = ""
        self.header_checked = False

    def take(self, data: memoryview, item: proto.Field, start: int) -> None:
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
            case _ if item.number < 1500:
                # Numbers up to 1499 change the meaning of a record; later versions may use them.
                raise CorruptError(f"extension field {item.number} is unknown to this version", at=item.at)

    def _check_header(self, data: memoryview, item: proto.Field, start: int) -> None:
        if item.wire != proto.FIXED32:
            raise CorruptError(f"the header checksum has the wire type {item.wire}", at=item.at)
        (stored,) = struct.unpack_from("<I", data, item.start)
        if stored != mask(crc32c(data[start : item.at])):
            raise CorruptError("the checksum of the record's header differs", at=item.at)
        self.header_checked = True

    def path(self, start: int) -> tuple[Step, ...]:
        if ("named", 1) not in self.steps:
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


def _assemble(data: memoryview, message: tensorproto.Message, layout: str, limits: Limits, at: int) -> Value:
    """A ragged or sparse value from its nested TensorProtos."""
    items = tensorproto.nested(data, message)
    if message.code != dtypes.STRING_CODE or message.shape != [len(items)]:
        raise CorruptError(f"layout {layout!r} on something that is no list of parts", at=at)
    parts = [_nested(data, item, limits) for item in items]
    try:
        if layout == "ragged":
            return Ragged(parts[-1], tuple(_integers(part) for part in parts[:-1]))
        if layout == "ragged-shapes":
            return Ragged(parts[-2], tuple(_integers(part) for part in parts[:-2]), _integers(parts[-1]))
        *index, values, shape = parts
        return Sparse(layout, tuple(_integers(shape).tolist()), tuple(_integers(part) for part in index), values)
    except (IndexError, ValueError) as error:
        raise CorruptError(f"layout {layout!r} with parts that don't fit: {error}", at=at) from None


def _nested(data: memoryview, item: proto.Field, limits: Limits) -> Tensor | Strings:
    value = decode(data, item.start, item.end, limits, nested=True).leaf.value
    assert isinstance(value, Tensor | Strings)
    return value


def _integers(part: Tensor | Strings) -> Array:
    if not isinstance(part, Tensor) or part.dtype not in ("int32", "int64"):
        raise InvalidValueError("indices must be int32 or int64")
    return part.numpy()
