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
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tensorbytes import dtypes
from tensorbytes._wire import crc32c, mask, proto, varint
from tensorbytes.deferred import Deferred
from tensorbytes.errors import CorruptError, LimitError, Limits, UnsupportedError
from tensorbytes.formats import _layout
from tensorbytes.formats import _tensorproto as tensorproto
from tensorbytes.formats._tensorproto import LAYOUT
from tensorbytes.tensor import InvalidValueError, Strings, Tensor, Value, with_meta
from tensorbytes.tree import NO_META, Leaf, Step, path_name

# The extension fields.
NAME, META, STEP, PART, PARTS, ITEM, KIND, _, ENCODING, DOCUMENT, PADDING, HEADER_CRC = range(1000, 1012)
_STEP_KINDS = {1: "key", 2: "number", 3: "list", 4: "tuple", 5: "named"}
_STEP_FIELDS = {kind: number for number, kind in _STEP_KINDS.items()}
_KNOWN_ENCODINGS = {"utf-8"}
# Numbers below this change the meaning of a record; those that are unknown here are for later versions.
_MEANINGFUL = 1500
ALIGNMENT = 64
ALIGN_FROM = 4096
_CRC_TAG = proto.tag(HEADER_CRC, proto.FIXED32)
_PADDING_TAG = proto.tag(PADDING, proto.DELIMITED)


class Place(NamedTuple):
    """Where a record stands: part `part` of `parts` of an object, item number `item` of a stream."""

    part: int = 0
    parts: int = 1
    item: int = 0
    document: Mapping[str, str] = NO_META


ALONE = Place()


# ---- writing ----------------------------------------------------------------


def encode(leaf: Leaf, place: Place, at: int | None) -> list[Any]:
    """The payload of a record that starts at file offset `at`, as a list of buffers.

    None stands for a message without a frame, which has neither padding nor checksum.
    """
    value = leaf.whole
    if value is not leaf.value:  # read just now: once is enough
        leaf = leaf._replace(value=value)
    if isinstance(value, Tensor | Strings):
        extension = _extension(leaf, place)
        if isinstance(value, Tensor):
            code = dtypes.get(value.dtype).code
            return [dense_header(code, value.shape, value.nbytes, extension, at), value.data]
        return [tensorproto.head(dtypes.STRING_CODE, value.shape) + extension, tensorproto.body(value)[1]]
    layout, parts = _layout.parts_of(value)
    out: list[Any] = [tensorproto.head(dtypes.STRING_CODE, (len(parts),)) + _extension(leaf, place, layout)]
    if at is not None:
        at += len(out[0])
    for part in parts:
        inner = tensorproto.head(tensorproto.code_of(part), part.shape)
        if isinstance(part, Strings):
            inner += _encoding(part)
        tag, content = tensorproto.body(part)
        prefix = b"\x42" + varint(len(inner) + len(tag) + len(content)) + inner + tag
        if at is not None:
            if isinstance(part, Tensor) and part.nbytes >= ALIGN_FROM:
                prefix = _padding(at + len(prefix)) + prefix
            at += len(prefix) + len(content)
        out += [prefix, content]
    return out


def dense_header(code: int, shape: tuple[int, ...], nbytes: int, extension: bytes, at: int | None) -> bytes:
    """All of a dense record's payload but the content: head, extension fields, padding, checksum, tag."""
    header = tensorproto.head(code, shape) + extension
    tag = tensorproto.CONTENT_TAG + varint(nbytes) if nbytes else b""
    if nbytes >= ALIGN_FROM and at is not None:
        header += _padding(at + len(header) + len(_CRC_TAG) + 4 + len(tag))
        header += _CRC_TAG + struct.pack("<I", mask(crc32c(header)))
    return header + tag


def item_field(item: int) -> bytes:
    return proto.put_number(ITEM, item)


def _padding(at: int) -> bytes:
    """A padding field after which position `at` has moved to a multiple of 64."""
    need = -at % ALIGNMENT
    if not need:
        return b""
    overhead = len(_PADDING_TAG) + 1
    if need < overhead:
        need += ALIGNMENT
    return _PADDING_TAG + varint(need - overhead) + bytes(need - overhead)


def _extension(leaf: Leaf, place: Place, layout: str = "") -> bytes:
    """The extension fields, in the order of their numbers; nothing for a plain tensor."""
    value, steps, name = leaf.value, leaf.path, leaf.name
    out = [] if name is None else [proto.put_bytes(NAME, utf8(name))]
    out += _map(META, value.meta)
    out += [proto.put_bytes(STEP, _step(step, name if len(steps) == 1 else None)) for step in steps]
    if place.parts != 1:
        out += [proto.put_number(PART, place.part), proto.put_number(PARTS, place.parts)]
    if place.item:
        out.append(item_field(place.item))
    if leaf.kind:
        out.append(proto.put_bytes(KIND, leaf.kind.encode()))
    if layout:
        out.append(proto.put_bytes(LAYOUT, layout.encode()))
    if isinstance(value, Strings):
        out.append(_encoding(value))
    return b"".join(out + _map(DOCUMENT, place.document))


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise UnsupportedError(f"names and metadata must be text with a UTF-8 form, got {text!r}") from None


def _encoding(value: Strings) -> bytes:
    return proto.put_bytes(ENCODING, b"utf-8") if value.encoding == "utf-8" else b""


def _map(number: int, entries: Mapping[str, str]) -> list[bytes]:
    """A protobuf map, its keys sorted: the same input gives the same bytes."""
    return [
        proto.put_bytes(number, proto.put_bytes(1, utf8(key)) + proto.put_bytes(2, utf8(entries[key])))
        for key in sorted(entries)
    ]


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


class Record(NamedTuple):
    """A record as read: the leaf, its place, and how much of it a checksum of its own covers."""

    leaf: Leaf
    place: Place
    header_checked: bool = False
    grown: int = 0  # bytes in memory that the record does not hold


def decode(
    data: memoryview,
    start: int,
    end: int,
    limits: Limits,
    *,
    check_values: bool = True,
    nested: bool = False,
    verify: Callable[[], None] | None = None,
) -> Record:
    """The record whose payload is data[start:end].

    `check_values=False` leaves the content untouched, for lazy reading: a ragged or sparse
    value is deferred. `verify` does so for dense ones, if the record's header vouches for
    itself; if not, it is called to check all bytes.
    """
    message = tensorproto.parse(data, start, end, quick=verify is None and not nested)
    if not message.extra and verify is None:
        plain = tensorproto.decode(data, message, limits, start)
        if check_values:
            tensorproto.check_content(plain, message, start)
        place = Place(item=message.item) if message.item else ALONE
        return Record(Leaf(plain, at=start), place, grown=message.grown)
    ext = _Extension()
    for item in message.extra:
        ext.take(data, item, start)
    if ext.header_checked:
        _check_alone(message, ext, end)
        check_values = check_values and verify is None
    elif verify is not None:
        verify()
    try:
        return _decode_value(data, message, ext, start, limits, check_values, nested)
    except InvalidValueError as error:
        raise CorruptError(str(error), at=start) from None


def _check_alone(message: tensorproto.Message, ext: _Extension, end: int) -> None:
    """Nothing may follow a header checksum but the content, or it would go unchecked."""
    content = message.content or (0, 0)
    size = len(tensorproto.CONTENT_TAG) + len(varint(content[1] - content[0]))
    if not message.has_content or content != (ext.header_end + size, end):
        raise CorruptError("the header's checksum is not followed by the content alone", at=ext.header_end)


def _decode_value(
    data: memoryview,
    message: tensorproto.Message,
    ext: _Extension,
    start: int,
    limits: Limits,
    check_values: bool,
    nested: bool,
) -> Record:
    if nested and ext.seen - {ENCODING, PADDING}:
        number = min(ext.seen - {ENCODING, PADDING})
        raise CorruptError(f"extension field {number} has no place in a part of a ragged or sparse value", at=start)
    if ext.layout is not None:
        build = _assemble if check_values else _postpone
        value: Value | Deferred = build(data, message, ext.layout, limits, start)
    else:
        value = _decode_plain(data, message, ext, start, limits)
    if ext.encoding:
        if ext.encoding not in _KNOWN_ENCODINGS or not isinstance(value, Strings):
            raise CorruptError(f"unknown encoding {ext.encoding!r}", at=start)
        value = Strings(value.shape, value.offsets, value.data, ext.encoding)
    if check_values and isinstance(value, Tensor | Strings):
        tensorproto.check_content(value, message, start)
    if not 0 <= ext.part < ext.parts:
        raise CorruptError(f"part {ext.part} of {ext.parts}", at=start)
    path = ext.path(start, limits)
    if path and ext.name not in (None, path_name(path)):
        raise CorruptError(f"the name {ext.name!r} on a value whose path is {path_name(path)!r}", at=start)
    name = None if path else ext.name
    if isinstance(value, Deferred):
        value = replace(value, name=name, meta=ext.meta)
    else:
        value = with_meta(value, name, ext.meta)
    place = Place(ext.part, ext.parts, ext.item, ext.document)
    return Record(Leaf(value, path, ext.kind, at=start), place, ext.header_checked, message.grown)


def _decode_plain(
    data: memoryview, message: tensorproto.Message, ext: _Extension, start: int, limits: Limits
) -> Tensor | Strings:
    if not ext.kind or len(message.shape) > limits.max_rank:
        return tensorproto.decode(data, message, limits, start)
    # Python values take several times the memory of their tensor: only those that are there count.
    try:
        return tensorproto.decode(data, message, tensorproto.after(limits, limits.max_bytes), start)
    except LimitError:
        raise CorruptError(f"a Python {ext.kind!r} whose values are not all there", at=start) from None


class _Extension:
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
        self.seen: set[int] = set()  # the numbers met, of those that carry meaning

    def take(self, data: memoryview, item: proto.Field, start: int) -> None:
        if item.number < _MEANINGFUL:
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
            case _ if item.number < _MEANINGFUL:
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

    def path(self, start: int, limits: Limits) -> tuple[Step, ...]:
        if len(self.steps) > limits.max_depth:
            raise LimitError(f"a path of {len(self.steps)} steps, over the limit of {limits.max_depth} (byte {start})")
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


def _assemble(data: memoryview, message: tensorproto.Message, layout: str, limits: Limits, at: int) -> Value:
    """A ragged or sparse value from its nested TensorProtos."""
    parts = _parts(data, message, layout, limits, at, check_values=True)
    try:
        return _layout.build(layout, parts, limits)
    except InvalidValueError as error:
        raise _misfit(layout, error, at) from None


def _postpone(data: memoryview, message: tensorproto.Message, layout: str, limits: Limits, at: int) -> Deferred:
    """The same, of which only what its parts are is read now."""
    parts = _parts(data, message, layout, limits, at, check_values=False)
    try:
        return _layout.postpone(layout, parts, limits, lambda: _assemble(data, message, layout, limits, at))
    except InvalidValueError as error:
        raise _misfit(layout, error, at) from None


def _misfit(layout: str, error: InvalidValueError, at: int) -> CorruptError:
    return CorruptError(f"layout {layout!r} with parts that don't fit: {error}", at=at)


def _parts(
    data: memoryview, message: tensorproto.Message, layout: str, limits: Limits, at: int, check_values: bool
) -> list[Tensor | Strings]:
    items = tensorproto.nested(data, message)
    if message.code != dtypes.STRING_CODE or message.shape != [len(items)] or message.has_content or message.typed:
        raise CorruptError(f"layout {layout!r} on something that is no list of parts", at=at)
    parts: list[Tensor | Strings] = []
    for item in items:
        part = decode(data, item.start, item.end, limits, nested=True, check_values=check_values)
        limits = tensorproto.after(limits, part.grown)
        message.grown += part.grown
        assert isinstance(part.leaf.value, Tensor | Strings)
        parts.append(part.leaf.value)
    return parts
