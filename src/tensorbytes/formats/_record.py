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

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tensorbytes import dtypes
from tensorbytes._wire import crc32c, mask, proto, varint
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import CorruptError, LimitError
from tensorbytes.formats import _extension, _layout
from tensorbytes.formats import _tensorproto as tensorproto
from tensorbytes.formats._directory import UnreadDirectory
from tensorbytes.formats._extension import (
    ALIAS,
    ALIAS_LAYOUT,
    ALONE,
    COMPRESSION,
    ENCODING,
    HEADER_CRC,
    ITEM,
    NAME,
    PADDING,
    PART,
    PARTS,
    STEP,
    Extension,
    Place,
)
from tensorbytes.formats._storing import AS_IS, Storing
from tensorbytes.formats._tensorproto import LAYOUT
from tensorbytes.tensor import InvalidValueError, Strings, Tensor, Value, amended
from tensorbytes.tree import Leaf, Stored, path_name
from tensorbytes.typing import bytes_view

ALIGNMENT = 64
ALIGN_FROM = 4096
_CRC_TAG = proto.tag(HEADER_CRC, proto.FIXED32)
_PADDING_TAG = proto.tag(PADDING, proto.DELIMITED)
# For a budget that refuses claims alone.
_PLENTY = 1 << 60
_KNOWN_ENCODINGS = {"utf-8"}
# What may stand in a part of a ragged or sparse value.
_IN_PARTS = {ENCODING, PADDING, COMPRESSION}
# What may stand in an alias.
_IN_ALIASES = {NAME, STEP, PART, PARTS, ITEM, LAYOUT, ALIAS, PADDING}


# ---- writing ----------------------------------------------------------------


def encode(leaf: Leaf, place: Place, at: int | None, storing: Storing = AS_IS, directory: bytes = b"") -> list[Any]:
    """The payload of a record that starts at file offset `at`, as a list of buffers.

    None stands for a message without a frame, which has neither padding nor checksum.
    `storing` compresses and quantizes. `directory` is that of the object, on its first record.
    """
    value = leaf.read()
    if value is not leaf.value:  # read just now: once is enough
        leaf = leaf._replace(value=value)
    if isinstance(value, Tensor | Strings):
        fields, content = b"", None
        # Python's own values stay as they are: small, and several times as large once they are read.
        if storing.changes and not leaf.kind:
            value, fields, content = storing.form(leaf.name, value)
        extension = _extension.encode(leaf, place, "", fields, directory)
        if content is not None:
            code = tensorproto.code_of(value)
            return [dense_header(code, value.shape, size_of(content), extension, at), *content]
        if isinstance(value, Tensor):
            code = dtypes.get(value.dtype).code
            return [dense_header(code, value.shape, value.nbytes, extension, at), value.data]
        return [tensorproto.head(dtypes.STRING_CODE, value.shape) + extension, tensorproto.body(value)[1]]
    layout, parts = _layout.parts_of(value)
    extension = _extension.encode(leaf, place, layout, b"", directory)
    out: list[Any] = [tensorproto.head(dtypes.STRING_CODE, (len(parts),)) + extension]
    if at is not None:
        at += len(out[0])
    for part in parts:
        inner = tensorproto.head(tensorproto.code_of(part), part.shape)
        if isinstance(part, Strings):
            inner += _extension.encoding(part)
        tag, whole = tensorproto.body(part)
        content = [whole]
        if storing.changes:
            _, fields, compressed = storing.part(leaf.name, part)
            inner += fields
            if compressed is not None:
                tag, content = tensorproto.CONTENT_TAG + varint(size_of(compressed)), compressed
        size = size_of(content)
        prefix = b"\x42" + varint(len(inner) + len(tag) + size) + inner + tag
        if at is not None:
            if isinstance(part, Tensor) and size >= ALIGN_FROM:
                prefix = _padding(at + len(prefix)) + prefix
            at += len(prefix) + size
        out += [prefix, *content]
    return out


def bare_size(leaf: Leaf, place: Place) -> int:
    """The bytes of a record without a frame, stored as it is: found without making it."""
    value = leaf.read()
    if value is not leaf.value:
        leaf = leaf._replace(value=value)
    if isinstance(value, Tensor | Strings):
        head = tensorproto.head(tensorproto.code_of(value), value.shape)
        return len(head) + len(_extension.encode(leaf, place)) + tensorproto.body_size(value)
    layout, parts = _layout.parts_of(value)
    size = len(tensorproto.head(dtypes.STRING_CODE, (len(parts),))) + len(_extension.encode(leaf, place, layout))
    for part in parts:
        inner = len(tensorproto.head(tensorproto.code_of(part), part.shape)) + tensorproto.body_size(part)
        inner += len(_extension.encoding(part)) if isinstance(part, Strings) else 0
        size += 1 + len(varint(inner)) + inner
    return size


def encode_alias(leaf: Leaf, place: Place, part: int, name: str | None) -> list[Any]:
    """The payload of a record that says: the same as leaf number `part` of the object, which has this name.

    To TensorFlow it is that name, a string.
    """
    text = proto.put_bytes(tensorproto.STRING, _extension.utf8(name or ""))
    return [tensorproto.head(dtypes.STRING_CODE, ()) + _extension.encode_alias(leaf, place, part) + text]


def size_of(pieces: Sequence[Any]) -> int:
    """The bytes of a payload that is in pieces."""
    return sum(len(bytes_view(piece)) for piece in pieces)


def dense_header(code: int, shape: tuple[int, ...], nbytes: int, extension: bytes, at: int | None) -> bytes:
    """All of a dense record's payload but the content: head, extension fields, padding, checksum, tag."""
    header = tensorproto.head(code, shape) + extension
    tag = tensorproto.CONTENT_TAG + varint(nbytes) if nbytes else b""
    return vouched(header, tag, at) if nbytes >= ALIGN_FROM and at is not None else header + tag


def vouched(header: bytes, tag: bytes, at: int) -> bytes:
    """A header with its padding and its checksum, and the content's tag after it."""
    header += _padding(at + len(header) + len(_CRC_TAG) + 4 + len(tag))
    return header + _CRC_TAG + struct.pack("<I", mask(crc32c(header))) + tag


def with_directory(payload: list[Any], old: bytes, new: bytes) -> list[Any]:
    """The payload of a record with another directory of the same length in the place of its own."""
    head, *content = payload
    before, _, after = head.rpartition(old)  # the last field before padding and checksum
    head = before + new + after
    if len(after) < len(_CRC_TAG) + 4:  # no checksum
        return [head, *content]
    sealed = len(head) - len(tensorproto.CONTENT_TAG + varint(size_of(content)))
    crc = sealed - 4 - len(_CRC_TAG)
    if head[max(crc, 0) : sealed - 4] == _CRC_TAG and head[sealed : sealed + 1] == tensorproto.CONTENT_TAG:
        head = head[: sealed - 4] + struct.pack("<I", mask(crc32c(head[:crc]))) + head[sealed:]
    return [head, *content]


def _padding(at: int) -> bytes:
    """A padding field after which position `at` has moved to a multiple of 64."""
    need = -at % ALIGNMENT
    if not need:
        return b""
    overhead = len(_PADDING_TAG) + 1
    if need < overhead:
        need += ALIGNMENT
    return _PADDING_TAG + varint(need - overhead) + bytes(need - overhead)


# ---- reading ----------------------------------------------------------------


class Alias(NamedTuple):
    """Which leaf of its object a record stands for: its number and its name."""

    part: int
    name: str


class Record(NamedTuple):
    """A record as read: the leaf, its place, and how much of it a checksum of its own covers.

    The leaf of an alias has no value: that is another record's.
    """

    leaf: Leaf
    place: Place
    header_checked: bool = False
    alias: Alias | None = None
    directory: UnreadDirectory | None = None


def decode(
    data: memoryview,
    start: int,
    end: int,
    budget: Budget,
    *,
    check_values: bool = True,
    nested: bool = False,
    lazy: bool = False,
    verify: Callable[[], None] | None = None,
    dequantize: bool = True,
) -> Record:
    """The record whose payload is data[start:end].

    `check_values=False` leaves the content untouched: a ragged or sparse value is deferred.
    `lazy` does so if the record's header vouches for itself, and defers what is compressed or
    quantized in any case. `verify` is called to check all bytes, unless there are checksums
    enough inside: of the header, and of chunks or, if `lazy`, of nothing.
    `dequantize=False` gives quantized values as they are stored.
    """
    message = tensorproto.parse(data, start, end, budget, quick=verify is None and not nested)
    if not message.extra and verify is None:
        plain = tensorproto.decode(data, message, budget, start)
        if check_values:
            tensorproto.check_content(plain, message, start)
        place = Place(item=message.item) if message.item else ALONE
        return Record(Leaf(plain, at=start), place)
    ext = Extension()
    for item in message.extra:
        ext.take(data, item, start)
    if ext.header_checked:
        _check_alone(message, ext, end)
        check_values = check_values and not lazy
    if verify is not None and not (ext.header_checked and (lazy or COMPRESSION in ext.stored)):
        verify()
    try:
        return _decode_value(data, message, ext, start, budget, check_values, nested, lazy, dequantize)
    except InvalidValueError as error:
        raise CorruptError(error.fault, at=start) from None


def _check_alone(message: tensorproto.Message, ext: Extension, end: int) -> None:
    """Nothing may follow a header checksum but the content, or it would go unchecked."""
    content = message.content or (0, 0)
    size = len(tensorproto.CONTENT_TAG) + len(varint(content[1] - content[0]))
    if not message.has_content or content != (ext.header_end + size, end):
        raise CorruptError("the header's checksum is not followed by the content alone", at=ext.header_end)


def _decode_value(
    data: memoryview,
    message: tensorproto.Message,
    ext: Extension,
    start: int,
    budget: Budget,
    check_values: bool,
    nested: bool,
    lazy: bool,
    dequantize: bool,
) -> Record:
    stored: Stored | None = None
    if nested and ext.seen - _IN_PARTS:
        number = min(ext.seen - _IN_PARTS)
        raise CorruptError(f"extension field {number} has no place in a part of a ragged or sparse value", at=start)
    alias: Alias | None = None
    value: Value | Deferred
    if ext.layout == ALIAS_LAYOUT or ext.alias is not None:
        alias = _read_alias(data, message, ext, start, budget)
        value = Deferred("alias", "string", (), partial(_refuse_alias, alias, start))
    elif ext.layout is not None:
        if ext.stored:
            raise CorruptError("a ragged or sparse value is compressed in its parts, not as a whole", at=start)
        build = _assemble if check_values else _postpone
        value = build(data, message, ext.layout, budget, start)
    elif ext.stored:
        if ext.kind:
            raise CorruptError(f"a Python {ext.kind!r} that is compressed or quantized", at=start)
        from tensorbytes.formats._stored import Content  # most tensors are stored as they are

        content = Content(data, message, ext.stored, start, budget, lazy or not check_values, dequantize)
        value, stored = content.read()
    else:
        value = _decode_plain(data, message, ext, start, budget)
    if ext.encoding:
        if ext.encoding not in _KNOWN_ENCODINGS or not isinstance(value, Strings):
            raise CorruptError(f"unknown encoding {ext.encoding!r}", at=start)
        value = Strings(value.shape, value.offsets, value.data, ext.encoding)
    if check_values and stored is None and isinstance(value, Tensor | Strings):
        tensorproto.check_content(value, message, start)
    if not 0 <= ext.part < ext.parts:
        raise CorruptError(f"part {ext.part} of {ext.parts}", at=start)
    path = ext.path(start, budget)
    if path and ext.name not in (None, path_name(path)):
        raise CorruptError(f"the name {ext.name!r} on a value whose path is {path_name(path)!r}", at=start)
    name = None if path else ext.name
    if name is not None or ext.meta or ext.origin:
        value = amended(value, name, ext.meta, ext.origin)
    leaf = Leaf(value, path, ext.kind, at=start, stored=stored)
    directory = None if ext.directory is None else UnreadDirectory(data, ext.directory)
    return Record(leaf, ext.place, ext.header_checked, alias, directory)


def _read_alias(data: memoryview, message: tensorproto.Message, ext: Extension, start: int, budget: Budget) -> Alias:
    if ext.layout != ALIAS_LAYOUT or ext.alias is None:
        raise CorruptError("an alias needs both its layout and the number of what it stands for", at=start)
    if ext.seen - _IN_ALIASES:
        number = min(ext.seen - _IN_ALIASES)
        raise CorruptError(f"extension field {number} has no place in an alias", at=start)
    if not ext.alias < ext.part:
        raise CorruptError(f"part {ext.part} is an alias of part {ext.alias}, which does not come before it", at=start)
    found = tensorproto.nested(data, message, budget)
    if message.code != dtypes.STRING_CODE or message.shape or len(found) != 1 or message.has_content or message.typed:
        raise CorruptError("an alias is one string, the name of what it stands for", at=start)
    return Alias(ext.alias, proto.text(data, found[0]))


def _refuse_alias(alias: Alias, at: int) -> Value:
    raise CorruptError(f"an alias of {alias.name!r}, which is another record", at=at)


def _decode_plain(
    data: memoryview, message: tensorproto.Message, ext: Extension, start: int, budget: Budget
) -> Tensor | Strings:
    if not ext.kind or len(message.shape) > budget.max_rank:
        return tensorproto.decode(data, message, budget, start)
    # Python values take several times the memory of their tensor: only those that are there count.
    try:
        found = tensorproto.decode(data, message, Budget(replace(budget.limits, max_bytes=0), _PLENTY), start)
    except LimitError:
        raise CorruptError(f"a Python {ext.kind!r} whose values are not all there", at=start) from None
    if isinstance(found, Strings):
        budget.strings(math.prod(found.shape), start)
    return found


def _assemble(data: memoryview, message: tensorproto.Message, layout: str, budget: Budget, at: int) -> Value:
    """A ragged or sparse value from its nested TensorProtos."""
    parts = _parts(data, message, layout, budget, at, check_values=True)
    try:
        return _layout.build(layout, [part for part in parts if isinstance(part, Tensor | Strings)], budget)
    except InvalidValueError as error:
        raise _misfit(layout, error, at) from None


def _postpone(data: memoryview, message: tensorproto.Message, layout: str, budget: Budget, at: int) -> Deferred:
    """The same, of which only what its parts are is read now."""
    parts = _parts(data, message, layout, budget, at, check_values=False)
    try:
        size = sum(item.end - item.start for item in tensorproto.nested(data, message, budget))

        def assemble() -> Value:
            return _assemble(data, message, layout, budget.renewed(size), at)

        return _layout.postpone(layout, parts, budget, assemble)
    except InvalidValueError as error:
        raise _misfit(layout, error, at) from None


def _misfit(layout: str, error: InvalidValueError, at: int) -> CorruptError:
    return CorruptError(f"layout {layout!r} with parts that don't fit: {error.fault}", at=at)


def _parts(
    data: memoryview, message: tensorproto.Message, layout: str, budget: Budget, at: int, check_values: bool
) -> list[Tensor | Strings | Deferred]:
    items = tensorproto.nested(data, message, budget)
    if message.code != dtypes.STRING_CODE or message.shape != [len(items)] or message.has_content or message.typed:
        raise CorruptError(f"layout {layout!r} on something that is not a list of parts", at=at)
    parts: list[Tensor | Strings | Deferred] = []
    for item in items:
        part = decode(data, item.start, item.end, budget, nested=True, check_values=check_values)
        assert isinstance(part.leaf.value, Tensor | Strings | Deferred)
        parts.append(part.leaf.value)
    return parts
