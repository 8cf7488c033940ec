"""The TensorProto message: dense and string tensors to its bytes and back.

    dtype 1, tensor_shape 2 {dim 2 {size 1, name 2}, unknown_rank 3}, tensor_content 4,
    string_val 8, and a typed *_val field for each family of dtypes (5 to 18)

Writing gives exactly the bytes of tf.io.serialize_tensor. Reading takes every form
that TensorFlow's writers have produced: content or typed values, packed or not, with
the rule that missing values repeat the last one. Where TensorFlow drops data in
silence (more values than elements, values in a field that the dtype does not use),
reading fails instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import plain_tensor, proto, strings_pack, strings_unpack, varint
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError, LimitError, Limits, UnsupportedError
from tensorbytes.tensor import Array, InvalidValueError, Strings, Tensor

LAYOUT = 1007  # the extension field that makes a list of TensorProtos a ragged or sparse value
CONTENT_TAG = b"\x22"
_STRING_TAG = 0x42
_CONTENT, _STRING = 4, 8
# Field numbers of the typed values: the wire's element type and the dtypes that use them.
_TYPED: dict[int, tuple[str, tuple[str, ...]]] = {
    5: ("<f4", ("float32",)),
    6: ("<f8", ("float64",)),
    7: ("varint", ("int8", "int16", "int32", "uint8", "uint16", "int4", "uint4", "int2", "uint2",
                   "qint8", "quint8", "qint16", "quint16", "qint32")),
    9: ("<f4", ("complex64",)),
    10: ("varint", ("int64",)),
    11: ("varint", ("bool",)),
    12: ("<f8", ("complex128",)),
    13: ("varint", ("float16", "bfloat16")),
    16: ("varint", ("uint32",)),
    17: ("varint", ("uint64",)),
    18: ("bytes", ()),
}  # fmt: skip
_FIELD_OF = {name: number for number, (_, names) in _TYPED.items() for name in names}
_FLOAT8 = tuple(name for name in dtypes.DTYPES if name.startswith("float8"))
_REFUSED = {14: "resource_handle_val", 15: "variant_val"}


# ---- writing ----------------------------------------------------------------


def head(code: int, shape: tuple[int, ...]) -> bytes:
    """The fields dtype and tensor_shape."""
    dims = b"".join(b"\x12\x00" if n == 0 else b"\x12" + _delimit(b"\x08" + varint(n)) for n in shape)
    return b"\x08" + varint(code) + b"\x12" + _delimit(dims)


def _delimit(data: bytes) -> bytes:
    return varint(len(data)) + data


def code_of(value: Tensor | Strings) -> int:
    return dtypes.STRING_CODE if isinstance(value, Strings) else dtypes.get(value.dtype).code


def body(value: Tensor | Strings) -> tuple[bytes, Any]:
    """What follows the head: the tag and length of the content, and the content itself."""
    if isinstance(value, Strings):
        return b"", strings_pack(_STRING_TAG, np.ascontiguousarray(value.offsets, np.int64), value.data)
    if not value.nbytes:
        return b"", b""
    return CONTENT_TAG + varint(value.nbytes), value.data


# ---- reading ----------------------------------------------------------------


@dataclass(slots=True)
class Message:
    """The fields of one TensorProto, values still undecoded."""

    code: int = 0
    shape: list[int] = field(default_factory=list)
    content: tuple[int, int] | None = None
    strings: tuple[Array, Any] | None = None
    string_runs: list[tuple[int, int]] = field(default_factory=list)  # where they stand
    string_fields: list[proto.Field] = field(default_factory=list)  # those after a layout was set
    typed: dict[int, list[proto.Field]] = field(default_factory=dict)
    extra: list[proto.Field] = field(default_factory=list)  # fields from 1000 up, ours


def parse(data: memoryview, start: int, end: int) -> Message:
    message = Message()
    plain = plain_tensor(data, start, end)
    if plain is not None:
        message.code, shape, at, size = plain
        message.shape, message.content = list(shape), (at, at + size)
        return message
    runs: list[tuple[Array, Any]] = []
    at = start
    while at < end:
        if data[at] == _STRING_TAG and not _has_layout(message):
            offsets, raw, stop = strings_unpack(data, at, end, _STRING_TAG)
            if stop > at:
                runs.append((np.frombuffer(offsets, np.int64), raw))
                message.string_runs.append((at, stop))
                at = stop
                continue
        item, at = proto.read_field(data, at, end)
        if item is not None:
            _take(message, data, item)
    if runs:
        message.strings = _join(runs)
    return message


def _has_layout(message: Message) -> bool:
    """Whether the strings are known to be the parts of a ragged or sparse value, not to be copied."""
    return any(item.number == LAYOUT for item in message.extra)


def nested(data: memoryview, message: Message) -> list[proto.Field]:
    """The parts of a ragged or sparse value; other writers may put the layout after them."""
    early = [item for start, stop in message.string_runs for item in proto.fields(data, start, stop)]
    return early + message.string_fields


def _take(message: Message, data: memoryview, item: proto.Field) -> None:
    if item.number == 1:
        message.code = proto.number(item)
    elif item.number == 2:
        proto.delimited(data, item)
        _parse_shape(message.shape, data, item)
    elif item.number == _CONTENT:
        proto.delimited(data, item)
        message.content = (item.start, item.end)
    elif item.number == _STRING:
        proto.delimited(data, item)
        message.string_fields.append(item)
    elif item.number in _TYPED:
        message.typed.setdefault(item.number, []).append(item)
    elif item.number in _REFUSED:
        raise UnsupportedError(f"a TensorProto with {_REFUSED[item.number]} holds references, not values")
    elif item.number >= 1000:
        message.extra.append(item)


def _parse_shape(shape: list[int], data: memoryview, whole: proto.Field) -> None:
    for item in proto.fields(data, whole.start, whole.end):
        if item.number == 3 and proto.number(item):
            raise CorruptError("the shape is unknown (unknown_rank is set)", at=item.at)
        if item.number != 2:
            continue
        proto.delimited(data, item)
        size = 0
        for part in proto.fields(data, item.start, item.end):
            if part.number == 1:
                size = proto.number(part)
        if size >= 1 << 63:
            raise CorruptError(f"a dimension is {size - (1 << 64)}", at=item.at)
        shape.append(size)


def _join(runs: list[tuple[Array, Any]]) -> tuple[Array, Any]:
    if len(runs) == 1:
        return runs[0]
    starts = np.cumsum([0] + [int(offsets[-1]) for offsets, _ in runs])
    joined = [np.zeros(1, np.int64)] + [offsets[1:] + start for (offsets, _), start in zip(runs, starts, strict=False)]
    return np.concatenate(joined), b"".join(raw for _, raw in runs)


def check_shape(shape: list[int], itemsize: int, limits: Limits, at: int) -> tuple[int, ...]:
    """The shape, if memory could hold it; zeros don't excuse the other dimensions."""
    if len(shape) > limits.max_rank:
        raise LimitError(f"a tensor of rank {len(shape)}, over the limit of {limits.max_rank} (byte {at})")
    if math.prod(max(n, 1) for n in shape) * itemsize >= 1 << 63:
        raise CorruptError(f"a shape of {shape} takes more bytes than 64 bits can count", at=at)
    return tuple(shape)


def decode(data: memoryview, message: Message, limits: Limits, at: int) -> Tensor | Strings:
    """The value of a message that starts at `at`."""
    if message.code == dtypes.STRING_CODE:
        return _decode_strings(data, message, limits, at)
    if message.code == 0:
        raise CorruptError("not a TensorProto: it has no dtype", at=at)
    row = dtypes.by_code(message.code)
    shape = check_shape(message.shape, row.itemsize, limits, at)
    if message.strings is not None:
        raise CorruptError(f"string values in a tensor of {row.name}", at=at)
    if message.content is not None and message.content[0] < message.content[1]:
        raw = data[message.content[0] : message.content[1]]
        want = dtypes.nbytes(row, shape)
        if len(raw) != want:
            raise CorruptError(
                f"{row.name}{list(shape)} takes {want} bytes, tensor_content has {len(raw)}", at=message.content[0]
            )
        return Tensor(row.name, shape, raw)
    values = _typed_values(data, message, row, at)
    return Tensor(row.name, shape, _repeat(values, row, shape, limits, at))


def check_content(value: Tensor | Strings, at: int) -> None:
    """Bytes that stand for no value: a bool of 2, an int4 with its high bits set."""
    if isinstance(value, Strings):
        return
    row = dtypes.get(value.dtype)
    most = 1 if row.name == "bool" else row.value_mask if row.bits < 8 else None
    if most is not None and value.nbytes:
        raw = np.frombuffer(value.data, np.uint8)
        if raw.max() > most:
            wrong = int(np.argmax(raw > most))
            raise CorruptError(f"the byte {raw[wrong]} (element {wrong}) is no {row.name}", at=at)


def _repeat(values: Array, row: DType, shape: tuple[int, ...], limits: Limits, at: int) -> Any:
    """TensorFlow's rule: too few values repeat the last one, none at all means zeros."""
    count = math.prod(shape)
    if len(values) > count:
        raise CorruptError(f"{row.name}{list(shape)} takes {count} values, got {len(values)}", at=at)
    if len(values) < count:
        allocate_within(limits, count * row.itemsize, f"{row.name}{list(shape)}", at)
        try:
            full = np.zeros((count, row.itemsize), np.uint8)
        except MemoryError:
            raise LimitError(f"no memory for {row.name}{list(shape)} (byte {at})") from None
        full[: len(values)] = values
        if len(values):
            full[len(values) :] = values[-1]
        values = full
    return np.ascontiguousarray(values).reshape(-1)


def allocate_within(limits: Limits, size: int, what: str, at: int) -> None:
    """Refuse memory that the input only claims to need."""
    if size > limits.max_bytes:
        raise LimitError(
            f"{what} would take {size} bytes that the input does not hold, over the limit of {limits.max_bytes}; "
            f"pass limits=Limits(max_bytes=...) to allow it (byte {at})"
        )


def _typed_values(data: memoryview, message: Message, row: DType, at: int) -> Array:
    """The typed values as rows of `itemsize` bytes."""
    own = _FIELD_OF.get(row.name)
    if row.name in _FLOAT8:  # older writers used half_val
        own = 13 if 13 in message.typed else 18
    for number in message.typed:
        if number != own:
            raise CorruptError(f"field {number} holds values that a tensor of {row.name} does not use", at=at)
    items = message.typed.get(own or 0, [])
    if not items:
        return np.empty((0, row.itemsize), np.uint8)
    kind = _TYPED[own or 0][0]
    if kind == "bytes":
        raw = proto.delimited(data, items[-1])  # a bytes field: the last one counts
        return np.frombuffer(raw, np.uint8).reshape(-1, 1)
    if kind == "varint":
        return _narrow(np.concatenate([_packed_varints(data, item) for item in items]), row, items[0].at)
    flat = np.concatenate([_packed_floats(data, item, kind) for item in items])
    if flat.nbytes % row.itemsize:
        raise CorruptError(f"an odd number of values for {row.name}", at=items[0].at)
    return flat.view(np.uint8).reshape(-1, row.itemsize)


def _packed_varints(data: memoryview, item: proto.Field) -> Array:
    if item.wire == proto.VARINT:
        return np.array([item.start], np.uint64)
    return proto.varints(proto.delimited(data, item), item.start)


def _packed_floats(data: memoryview, item: proto.Field, kind: str) -> Array:
    size = np.dtype(kind).itemsize
    if item.wire not in (proto.DELIMITED, proto.FIXED32 if size == 4 else proto.FIXED64):
        raise CorruptError(f"field {item.number} has the wire type {item.wire}", at=item.at)
    if (item.end - item.start) % size:
        raise CorruptError(f"packed values of {size} bytes fill {item.end - item.start} bytes", at=item.at)
    return np.frombuffer(data[item.start : item.end], kind)


def _narrow(values: Array, row: DType, at: int) -> Array:
    """64-bit varints as elements of the dtype; a value that does not fit is an error."""
    if row.name == "bool":
        return np.not_equal(values, 0).view(np.uint8).reshape(-1, 1)
    signed = row.name.removeprefix("q").startswith("int")
    if row.name.startswith(("float", "bfloat")):
        low, high = 0, (1 << row.bits) - 1
    else:
        low, high = (-(1 << row.bits - 1), (1 << row.bits - 1) - 1) if signed else (0, (1 << row.bits) - 1)
    wide = values.view(np.int64) if low < 0 or high < 1 << 63 else values
    if len(wide) and not (low <= int(wide.min()) and int(wide.max()) <= high):
        raise CorruptError(f"a value outside {low}..{high}, the range of {row.name}", at=at)
    narrow = wide.astype(f"<u{row.itemsize}")
    if row.bits < 8:
        narrow &= row.value_mask
    return narrow.view(np.uint8).reshape(-1, row.itemsize)


def _decode_strings(data: memoryview, message: Message, limits: Limits, at: int) -> Strings:
    shape = check_shape(message.shape, 8, limits, at)
    count = math.prod(shape)
    if message.typed:
        raise CorruptError(f"field {min(message.typed)} holds values that a tensor of strings does not use", at=at)
    if message.strings is not None:
        offsets, raw = message.strings
        if len(offsets) - 1 > count:
            raise CorruptError(f"string{list(shape)} takes {count} strings, got {len(offsets) - 1}", at=at)
    elif message.content is not None and message.content[0] < message.content[1]:
        offsets, raw = _lengths_then_bytes(data, *message.content, count)
    else:
        offsets, raw = np.zeros(1, np.int64), b""
    missing = count - (len(offsets) - 1)
    if missing:
        last = raw[int(offsets[-2]) :] if len(offsets) > 1 else b""
        allocate_within(limits, missing * (8 + len(last)), f"string{list(shape)}", at)
        steps = int(offsets[-1]) + len(last) * np.arange(1, missing + 1, dtype=np.int64)
        offsets, raw = np.concatenate((offsets, steps)), bytes(raw) + bytes(last) * missing
    try:
        return Strings(shape, offsets, raw)
    except InvalidValueError as error:
        raise CorruptError(str(error), at=at) from None


def _lengths_then_bytes(data: memoryview, start: int, end: int, count: int) -> tuple[Array, Any]:
    """Strings in tensor_content, as serialize_sparse writes them: all lengths, then all bytes."""
    if count > end - start:
        raise CorruptError(f"{count} strings can't fit into {end - start} bytes of tensor_content", at=start)
    offsets = np.zeros(count + 1, np.int64)
    at, total = start, 0
    for index in range(count):
        size, at = proto.read_varint(data, at, end)
        total += size
        if total > end - at:
            raise CorruptError(f"string {index} runs past the end of tensor_content", at=at)
        offsets[index + 1] = total
    if total != end - at:
        raise CorruptError(f"{end - at - total} bytes are left over after the last string", at=at + total)
    return offsets, data[at:end]
