"""The TensorProto message: dense and string tensors to its bytes and back.

    dtype 1, tensor_shape 2 {dim 2 {size 1, name 2}, unknown_rank 3}, tensor_content 4,
    string_val 8, and a typed *_val field for each family of dtypes (5 to 18)

Writing gives exactly the bytes of tf.io.serialize_tensor. Reading takes every form
that TensorFlow's writers have produced: content or typed values, packed or not, with
the rule that missing values repeat the last one. Where TensorFlow drops data in
silence (more values than elements, values in a field that the dtype does not use or
beside tensor_content, values too large for the dtype), reading fails instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import plain_tensor, proto, strings_pack, strings_unpack, varint
from tensorbytes.budget import Budget
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError, LimitError, UnsupportedError
from tensorbytes.formats import _typed
from tensorbytes.tensor import Array, InvalidValueError, Strings, Tensor

LAYOUT = 1007  # the extension field that makes a list of TensorProtos a ragged or sparse value
CONTENT_TAG = b"\x22"
_STRING_TAG = 0x42
CONTENT, STRING = 4, 8
# What a string costs in memory beside its bytes, once it is a Python object in an array.
_STRING_COST = 64
# About what is held of a string that the kernel does not read, of a part and of an extension field with its text.
_RUN_BYTES, _PART_BYTES, _FIELD_BYTES = 400, 2048, 400
# TensorFlow's own limit, the highest of any framework; no need to read on.
_MOST_DIMENSIONS = 254
_REFUSED = {14: "resource_handle_val", 15: "variant_val"}


# ---- writing ----------------------------------------------------------------


@lru_cache(4096)
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
        return b"", strings_pack(_STRING_TAG, np.require(value.offsets, np.int64, ["C", "A"]), value.data)
    if not value.nbytes:
        return b"", b""
    return CONTENT_TAG + varint(value.nbytes), value.data


def body_size(value: Tensor | Strings) -> int:
    """The bytes that `body` makes, in all."""
    if isinstance(value, Tensor):
        return len(CONTENT_TAG + varint(value.nbytes)) + value.nbytes if value.nbytes else 0
    lengths = np.diff(value.offsets)
    prefixes = sum(int((lengths >= 1 << 7 * more).sum()) for more in range(1, 10))  # of lengths over one byte
    return 2 * len(lengths) + prefixes + len(value.data)


# ---- reading ----------------------------------------------------------------


class Message:
    """The fields of one TensorProto, values still undecoded."""

    __slots__ = (
        "code", "content", "extra", "has_layout", "item", "shape", "string_fields", "string_runs", "strings",
        "typed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.code = 0
        self.shape: list[int] = []
        self.content: tuple[int, int] | None = None
        self.strings: tuple[Array, Any] | None = None
        self.string_runs: list[tuple[int, int]] = []  # where they stand
        self.string_fields: list[proto.Field] = []  # those after a layout was set
        self.typed: dict[int, _typed.Values] = {}
        self.extra: list[proto.Field] = []  # fields from 1000 up, ours
        # The strings are the parts of a ragged or sparse value, not to be copied.
        self.has_layout = False
        self.item = 0  # the frame's field, where a quick parse found it

    @property
    def has_content(self) -> bool:
        return self.content is not None and self.content[0] < self.content[1]


def parse(data: memoryview, start: int, end: int, budget: Budget, quick: bool = False) -> Message:
    """The fields of a message. `quick` lets the kernel read the plain form, frame fields included."""
    message = Message()
    plain = plain_tensor(data, start, end) if quick else None
    if plain is not None:
        message.code, shape, at, size, message.item = plain
        message.shape, message.content = list(shape), (at, at + size)
        return message
    runs: list[tuple[Array, Any]] = []
    at = start
    while at < end:
        usual, at = proto.field_run(data, at, end, _STRING_TAG)
        for item in usual:
            _take(message, data, item, budget)
        if at == end:
            break
        if data[at] == _STRING_TAG and not message.has_layout:
            offsets, raw, stop = strings_unpack(data, at, end, _STRING_TAG)
            if stop > at:
                runs.append((np.frombuffer(offsets, np.int64), raw))
                message.string_runs.append((at, stop))
                at = stop
                continue
        odd, at = proto.read_field(data, at, end)
        if odd is None:
            continue
        if odd.number == STRING and not message.has_layout:
            # Sound, but with a tag or a length in a longer form than the kernel takes.
            budget.objects(1, "strings", odd.at, _RUN_BYTES)
            piece = proto.delimited(data, odd)
            runs.append((np.array([0, len(piece)], np.int64), piece))
            message.string_runs.append((odd.at, at))
        else:
            _take(message, data, odd, budget)
    if runs:
        message.strings = _join(runs)
    return message


def nested(data: memoryview, message: Message, budget: Budget) -> list[proto.Field]:
    """All string_val fields; other writers may put the layout after them."""
    early = []
    for start, stop in message.string_runs:
        for item in proto.fields(data, start, stop):
            budget.objects(1, "the parts of a tensor", item.at, _PART_BYTES)
            early.append(item)
    return early + message.string_fields


def _take(message: Message, data: memoryview, item: proto.Field, budget: Budget) -> None:
    if item.number == 1:
        message.code = proto.number(item)
    elif item.number == 2:
        proto.delimited(data, item)
        parse_shape(message.shape, data, item)
    elif item.number == CONTENT:
        proto.delimited(data, item)
        message.content = (item.start, item.end)
    elif item.number == STRING:
        proto.delimited(data, item)
        budget.objects(1, "the parts of a tensor", item.at, _PART_BYTES)
        message.string_fields.append(item)
    elif item.number in _typed.FIELDS:
        _typed.take(message.typed, data, item, _typed.FIELDS[item.number][0])
    elif item.number in _REFUSED:
        what = _REFUSED[item.number]
        raise UnsupportedError(f"a TensorProto with {what} holds references, not values", at=item.at)
    elif item.number >= 1000:
        budget.objects(1, "the fields of a tensor", item.at, _FIELD_BYTES)
        message.extra.append(item)
        message.has_layout |= item.number == LAYOUT


def parse_shape(shape: list[int], data: memoryview, whole: proto.Field) -> None:
    """Add the dimensions that a field has."""
    proto.delimited(data, whole)
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
        if len(shape) > _MOST_DIMENSIONS:
            raise LimitError(f"a tensor of rank over {_MOST_DIMENSIONS}", at=whole.at)


def _join(runs: list[tuple[Array, Any]]) -> tuple[Array, Any]:
    if len(runs) == 1:
        return runs[0]
    starts = np.cumsum([0] + [int(offsets[-1]) for offsets, _ in runs])
    joined = [np.zeros(1, np.int64)] + [offsets[1:] + start for (offsets, _), start in zip(runs, starts, strict=False)]
    return np.concatenate(joined), b"".join(raw for _, raw in runs)


def check_shape(shape: Sequence[int], itemsize: int, budget: Budget, at: int) -> tuple[int, ...]:
    """The shape, if memory could hold it; zeros don't excuse the other dimensions."""
    if len(shape) > budget.max_rank:
        raise LimitError(f"a tensor of rank {len(shape)}, over the limit of {budget.max_rank}", at=at)
    if math.prod(max(n, 1) for n in shape) * itemsize >= 1 << 63:
        raise CorruptError(f"a shape of {list(shape)} takes more bytes than 64 bits can count", at=at)
    return tuple(shape)


def decode(data: memoryview, message: Message, budget: Budget, at: int) -> Tensor | Strings:
    """The value of a message that starts at `at`."""
    if message.code == dtypes.STRING_CODE:
        return _decode_strings(data, message, budget, at)
    if message.code == 0:
        raise CorruptError("not a TensorProto: it has no dtype", at=at)
    try:
        row = dtypes.by_code(message.code)
    except UnsupportedError as error:
        raise error.replaced(at=at) from None
    shape = check_shape(message.shape, row.itemsize, budget, at)
    if message.strings is not None:
        raise CorruptError(f"string values in a tensor of {row.name}", at=message.string_runs[0][0])
    if message.has_content:
        return Tensor(row.name, shape, _content(data, message, row, shape))
    values = _typed.values(data, message.typed, row)
    return Tensor(row.name, shape, _repeat(values, message, row, shape, budget, at))


def _content(data: memoryview, message: Message, row: DType, shape: tuple[int, ...]) -> memoryview:
    assert message.content is not None
    start, end = message.content
    refuse_typed(message)
    want = dtypes.nbytes(row, shape)
    if end - start != want:
        raise CorruptError(f"{row.name}{list(shape)} takes {want} bytes, tensor_content has {end - start}", at=start)
    return data[start:end]


def refuse_typed(message: Message) -> None:
    """Values that would be dropped, since others count."""
    for number, items in message.typed.items():
        raise CorruptError(f"field {number} holds values that this tensor does not use", at=items.at)


def check_content(value: Tensor | Strings, message: Message, at: int) -> None:
    """Bytes that stand for no value: a bool of 2, an int4 with its high bits set."""
    if isinstance(value, Tensor):
        check_bits(value, message.content[0] if message.content and message.has_content else None, at)


def check_bits(value: Tensor, first: int | None, at: int = 0) -> None:
    """The same; `first` is where the content stands, if it stands anywhere."""
    row = dtypes.get(value.dtype)
    most = 1 if row.name == "bool" else row.value_mask if row.bits < 8 else None
    if most is not None and value.nbytes:
        raw = np.frombuffer(value.data, np.uint8)
        if raw.max() > most:
            wrong = int(np.argmax(raw > most))
            where = at if first is None else first + wrong
            raise CorruptError(f"the byte {raw[wrong]} (element {wrong}) is not a valid {row.name}", at=where)


def _repeat(values: Array, message: Message, row: DType, shape: tuple[int, ...], budget: Budget, at: int) -> Any:
    """TensorFlow's rule: too few values repeat the last one, none at all means zeros."""
    count = math.prod(shape)
    if len(values) > count:
        raise CorruptError(f"{row.name}{list(shape)} takes {count} values, got {len(values)}", at=at)
    if len(values) < count:
        budget.charge(count * row.itemsize, f"{row.name}{list(shape)}", at)
        try:
            full = np.zeros((count, row.itemsize), np.uint8)
        except MemoryError:
            raise LimitError(f"no memory for {row.name}{list(shape)}", at=at) from None
        full[: len(values)] = values
        if len(values):
            full[len(values) :] = values[-1]
        values = full
    return np.ascontiguousarray(values).reshape(-1)


def _decode_strings(data: memoryview, message: Message, budget: Budget, at: int) -> Strings:
    shape = check_shape(message.shape, 8, budget, at)
    count = math.prod(shape)
    refuse_typed(message)
    if message.strings is not None:
        if message.has_content:
            raise CorruptError("both tensor_content and string_val hold values", at=message.string_runs[0][0])
        offsets, raw = message.strings
        if len(offsets) - 1 > count:
            raise CorruptError(f"string{list(shape)} takes {count} strings, got {len(offsets) - 1}", at=at)
    elif message.content is not None and message.has_content:
        offsets, raw = _lengths_then_bytes(data, *message.content, count)
    else:
        offsets, raw = np.zeros(1, np.int64), b""
    missing = count - (len(offsets) - 1)
    budget.strings(count - missing, at)
    if missing:
        offsets, raw = _repeat_string(offsets, raw, missing, message, budget, at)
    try:
        return Strings(shape, offsets, raw)
    except InvalidValueError as error:
        raise CorruptError(error.fault, at=at) from None


def _repeat_string(
    offsets: Array, raw: Any, missing: int, message: Message, budget: Budget, at: int
) -> tuple[Array, bytes]:
    """The same rule for strings: the last one again, or empty ones."""
    last = bytes(raw[int(offsets[-2]) :]) if len(offsets) > 1 else b""
    budget.charge(missing * (_STRING_COST + len(last)), f"string{message.shape}", at)
    try:
        steps = np.arange(1, missing + 1, dtype=np.int64)
        steps *= len(last)
        steps += int(offsets[-1])
        return np.concatenate((offsets, steps)), b"".join((raw, last * missing))
    except MemoryError:
        raise LimitError(f"no memory for string{message.shape}", at=at) from None


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
