"""ONNX's TensorProto: reading one, wherever it stands.

    dims 1, data_type 2, segment 3, float_data 4, int32_data 5, string_data 6, int64_data 7,
    name 8, raw_data 9, double_data 10, uint64_data 11, doc_string 12,
    external_data 13 {key 1, value 2}, data_location 14, metadata_props 16 {key 1, value 2}

The values stand in exactly one place: raw_data, an external file, or the typed field of
their data type. int32_data holds integers up to 32 bits, bools, and the bit patterns of
floats up to 16 bits, of which those under 8 bits are packed as in raw_data, a byte in each
value (but 6-bit floats come one by one). A complex number is two values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto, strings_unpack
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError, Hint, LimitError, UnsupportedError
from tensorbytes.formats import _json, _packed, _parts, _typed
from tensorbytes.formats._onnx.files import ExternalFiles
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.tensor import Array, InvalidValueError, Strings, Tensor, amended
from tensorbytes.tree import Leaf, Path

STRING = 8
BY_CODE: dict[int, DType] = {row.onnx: row for row in dtypes.DTYPES.values() if row.onnx is not None}
NOTE, DOC_STRING = "tensorbytes", "onnx.doc_string"
NOTE_KEYS = frozenset({"kind", "encoding", "meta", "origin"})
_STRING_TAG = 0x32
# About what is held of a string that the kernel does not read, and of an entry of metadata.
_RUN_BYTES, _ENTRY_BYTES = 400, 320
# Typed fields: the wire's element type, and the dtypes that use it (the rest use int32_data).
_INT32 = 5
_ELEMENTS = {4: "<f4", _INT32: "varint", 7: "varint", 10: "<f8", 11: "varint"}
_FIELD_OF = {
    "float32": 4, "complex64": 4, "float64": 10, "complex128": 10, "int64": 7, "uint32": 11, "uint64": 11,
}  # fmt: skip
_FIELD_NAMES = {4: "float_data", _INT32: "int32_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}


class Context(NamedTuple):
    """How to read: what all tensors of a file share."""

    budget: Budget
    lazy: bool
    files: ExternalFiles
    encoding: str = "utf-8"


class TensorFields:
    """The fields of one TensorProto, values still undecoded."""

    __slots__ = ("at", "code", "dims", "doc", "external", "name", "outside", "props", "raw", "strings", "typed")

    def __init__(self, at: int) -> None:
        self.at = at
        self.code = 0
        self.dims: list[int] = []
        self.name: str | None = None
        self.doc = ""
        self.props: dict[str, str] = {}
        self.raw: proto.Field | None = None
        self.strings: list[tuple[Array, Any]] = []  # offsets and bytes of each run
        self.typed: dict[int, _typed.Values] = {}
        self.outside = False
        self.external: dict[str, str] = {}

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"tensor {self.name!r}" if self.name else "the tensor"


def parse(data: memoryview, start: int, end: int, budget: Budget) -> TensorFields:
    message = TensorFields(start)
    at = start
    while at < end:
        usual, at = proto.field_run(data, at, end, _STRING_TAG)
        for item in usual:
            _take(message, data, item, budget)
        if at < end and data[at] == _STRING_TAG:
            offsets, raw, stop = strings_unpack(data, at, end, _STRING_TAG)
            if stop > at:
                message.strings.append((np.frombuffer(offsets, np.int64), raw))
                at = stop
                continue
        if at < end:
            odd, at = proto.read_field(data, at, end)
            if odd is not None:
                _take(message, data, odd, budget)
    return message


def _take(message: TensorFields, data: memoryview, item: proto.Field, budget: Budget) -> None:
    number = item.number
    if number == 1:
        take_dims(message.dims, data, item, budget)
    elif number == 2:
        message.code = proto.number(item)
    elif number == 3:
        raise UnsupportedError("a segment of a tensor, which is not read here", at=item.at)
    elif number == 6:  # a tag or a length in a longer form than the kernel takes
        piece = proto.delimited(data, item)
        budget.objects(1, "strings", item.at, _RUN_BYTES)
        message.strings.append((np.array([0, len(piece)], np.int64), piece))
    elif number == 8:
        message.name = proto.text(data, item)
    elif number == 9:
        proto.delimited(data, item)
        message.raw = item
    elif number in _ELEMENTS:
        _typed.take(message.typed, data, item, _ELEMENTS[number])
    elif number == 12:
        message.doc = proto.text(data, item)
    elif number == 13:
        put_entry(message.external, data, item, budget)
    elif number == 14:
        message.outside = _location(proto.number(item), item.at)
    elif number == 16:
        put_entry(message.props, data, item, budget)


def take_dims(dims: list[int], data: memoryview, item: proto.Field, budget: Budget) -> None:
    """dims may be packed, single, or both in turn."""
    at, end = item.start, item.end
    while item.wire == proto.VARINT or at < end:
        if item.wire == proto.VARINT:
            size = item.start
        else:
            proto.delimited(data, item)
            size, at = proto.read_varint(data, at, end)
        if size >= 1 << 63:
            raise CorruptError(f"a dimension is {size - (1 << 64)}", at=item.at)
        dims.append(size)
        if len(dims) > budget.max_rank:
            raise LimitError(f"a tensor of rank over the limit of {budget.max_rank}", at=item.at)
        if item.wire == proto.VARINT:
            return


def _location(number: int, at: int) -> bool:
    if number > 1:
        raise UnsupportedError(f"the data location {number} is unknown", at=at)
    return number == 1


def put_entry(entries: dict[str, str], data: memoryview, item: proto.Field, budget: Budget) -> None:
    """One StringStringEntryProto."""
    budget.objects(1, "metadata", item.at, _ENTRY_BYTES)
    key = value = ""
    proto.delimited(data, item)
    for part in proto.fields(data, item.start, item.end):
        if part.number == 1:
            key = proto.text(data, part)
        elif part.number == 2:
            value = proto.text(data, part)
    put_text(entries, key, value, item.at)


def put_text(entries: dict[str, str], key: str, value: str, at: int) -> None:
    if key in entries:
        raise CorruptError(f"the key {key[:200]!r} appears twice", at=at)
    entries[key] = value


# ---- values -----------------------------------------------------------------


def leaf(data: memoryview, message: TensorFields, context: Context, path: Path = ()) -> Leaf:
    """A message's value: with lazy reading, a view of the data, or a promise where the bytes need work."""
    meta, note = _metadata(message)
    if message.code == STRING:
        encoding = note.get("encoding", context.encoding)
        value: Tensor | Strings | Deferred = _strings(data, message, encoding, context.budget)
        check = None
    else:
        value, check = tensor(data, message, context)
    name, origin = None if path else message.name, note.get("origin", {})
    return Leaf(amended(value, name, meta, origin), path, note.get("kind", ""), check, message.at)


def _metadata(message: TensorFields) -> tuple[dict[str, str], dict[str, Any]]:
    """The metadata that a user sees, and our note."""
    meta = dict(message.props)
    if message.doc:
        put_text(meta, DOC_STRING, message.doc, message.at)
    text = meta.pop(NOTE, None)
    if text is None:
        return meta, {}
    note = _json.parse(text.encode(), message.at, f"the note of {message.label}")
    _parts.check_note(_parts.Part(message.name or "", Tensor("bool", (0,), b""), note, message.at))
    if not NOTE_KEYS.issuperset(note):
        raise CorruptError(f"the note of {message.label} says more than kind, encoding, meta and origin", at=message.at)
    for key, value in note.get("meta", {}).items():
        put_text(meta, key, value, message.at)
    return meta, note


def tensor(
    data: memoryview, message: TensorFields, context: Context
) -> tuple[Tensor | Deferred, Callable[[], None] | None]:
    """The dense tensor of a message, and a check for later where nothing is to be read now."""
    row, shape = described(message, context.budget)
    count, at = math.prod(shape), message.at
    need = _packed.size(row, count)
    used = list(message.typed)
    has_raw = message.raw is not None and message.raw.start < message.raw.end
    if message.strings or len(used) + has_raw + message.outside > 1:
        raise CorruptError(f"{message.label} of {row.name} holds values in several places", at=at)
    check: Callable[[], None] | None = None
    if used:
        return _whole(_typed_later(data, message, row, shape), context.lazy), None
    if message.outside:
        content = context.files.view(message.external, need, message.label, at)
        check = partial(context.files.check, message.external, message.label, at)
        first = last = at
    else:
        first, end = (message.raw.start, message.raw.end) if message.raw is not None and has_raw else (at, at)
        content, last = data[first:end], max(first, end - 1)
        if len(content) != need:
            raise CorruptError(f"{row.name}{list(shape)} takes {need} bytes, raw_data has {len(content)}", at=first)
    if row.bits < 8:
        value = _whole(_packed.deferred(row, shape, content, last), context.lazy)
    else:
        value = Tensor(row.name, shape, content)
    return value, _checked(value, check, None if message.outside else first, at, context.lazy)


def described(message: TensorFields, budget: Budget) -> tuple[DType, tuple[int, ...]]:
    """The dtype and shape of a tensor that is not a string tensor."""
    if message.code not in BY_CODE:
        if message.code == 0:
            raise CorruptError(f"{message.label} has no data type: not an ONNX TensorProto", at=message.at)
        what = "strings, where numbers are due" if message.code == STRING else f"the unknown data type {message.code}"
        raise UnsupportedError(f"{message.label} has {what}", at=message.at)
    row = BY_CODE[message.code]
    return row, check_shape(message.dims, row.itemsize, budget, message.at)


def _whole(value: Deferred, lazy: bool) -> Tensor | Deferred:
    if lazy:
        return value
    got = value.fetch()
    assert isinstance(got, Tensor)
    return got


def _checked(
    value: Tensor | Deferred, check: Callable[[], None] | None, first: int | None, at: int, lazy: bool
) -> Callable[[], None] | None:
    """Do the checks now, or give them back for later."""

    def run() -> None:
        if check is not None:
            check()
        if isinstance(value, Tensor):
            check_bits(value, first, at)

    if lazy:
        return run if check is not None or (isinstance(value, Tensor) and value.dtype == "bool") else None
    run()
    return None


def _typed_later(data: memoryview, message: TensorFields, row: DType, shape: tuple[int, ...]) -> Deferred:
    """Values in a typed field: decoded when they are read."""
    own = _FIELD_OF.get(row.name, _INT32)
    for number, items in message.typed.items():
        if number != own:
            raise CorruptError(
                f"{message.label} has values in {_FIELD_NAMES[number]}, those of {row.name} stand in "
                f"{_FIELD_NAMES[own]}",
                at=items.at,
            )
    items = message.typed[own]

    def fetch() -> Tensor:
        flat = _typed_values(data, items, row, math.prod(shape), _ELEMENTS[own])
        want = dtypes.nbytes(row, shape)
        if flat.size != want:
            got, due = flat.size // row.itemsize, math.prod(shape)
            raise CorruptError(f"{row.name}{list(shape)} takes {due} values, got {got}", at=items.at)
        return Tensor(row.name, shape, flat)

    return Deferred("tensor", row.name, shape, fetch, dtypes.nbytes(row, shape))


def _typed_values(data: memoryview, items: _typed.Values, row: DType, count: int, kind: str) -> Array:
    """The bytes of the elements, one after another."""
    at = items.at
    if kind != "varint":
        flat = items.array(data)
        if flat.nbytes % row.itemsize:
            raise CorruptError(f"an odd number of values for {row.name}", at=at)
        return flat.view(np.uint8)
    wide = items.array(data)
    if row.name == "bool" and len(wide) and wide.max() > 1:
        raise CorruptError(f"the value {wide.max()} is not a valid bool", at=at)
    if row.bits in (2, 4):
        raw = _typed.narrow(wide, dtypes.get("uint8"), at).reshape(-1)
        if len(raw) != _packed.size(row, count):
            raise CorruptError(
                f"{count} values of {row.name} are packed into {_packed.size(row, count)} of int32_data, "
                f"got {len(raw)}",
                at=at,
            )
        _packed.check_rest(raw, row.bits, count, at)
        return _packed.unpack(raw, row.bits, count)
    return _typed.narrow(wide, row, at).reshape(-1)


def _strings(data: memoryview, message: TensorFields, encoding: str, budget: Budget) -> Strings:
    shape = check_shape(message.dims, 8, budget, message.at)
    if message.outside or message.typed or (message.raw is not None and message.raw.start < message.raw.end):
        raise CorruptError(f"{message.label}: strings stand in string_data alone", at=message.at)
    offsets, raw = _joined(message.strings)
    budget.strings(len(offsets) - 1, message.at)
    if len(offsets) - 1 != math.prod(shape):
        raise CorruptError(
            f"string{list(shape)} takes {math.prod(shape)} strings, got {len(offsets) - 1}", at=message.at
        )
    try:
        return Strings(shape, offsets, raw, encoding)
    except InvalidValueError as error:
        raise CorruptError(
            f"{message.label}: {error.fault}",
            at=message.at,
            hints=[Hint("encoding", "bytes", "to read them as they are", of="load")] if encoding == "utf-8" else (),
        ) from None


def _joined(runs: list[tuple[Array, Any]]) -> tuple[Array, Any]:
    if len(runs) == 1:
        return runs[0]
    lengths = [np.diff(offsets) for offsets, _ in runs]
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
    return ends, b"".join(raw for _, raw in runs)
