"""An Arrow Tensor message: one dense tensor (.arrowtensor), as pyarrow.ipc.write_tensor writes it.

    4 bytes   FFFFFFFF
    4 bytes   metadata length (i32); 8 + length is a multiple of 64
    n bytes   Message (FlatBuffer) with a Tensor as its header, zero-padded
    rest      the elements

    Tensor      0 type's kind (u8: 2 Int, 3 FloatingPoint), 1 type, 2 shape [TensorDim],
                3 strides in bytes [i64], 4 data (offset i64, length i64)
    TensorDim   0 size (i64), 1 name
    Int         0 bits (i32), 1 signed;   FloatingPoint   0 precision (i16: half, single, double)

Written in C order; read in any order, as pyarrow may have written it. The names of the
axes, if there are any, are the metadata "dim_names", a JSON list. The message holds
integers and floats alone: everything else, bools and other metadata included, is refused.
pyarrow is not needed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, elsewhere
from tensorbytes.errors import USE_TB, CorruptError, Hint, Limits, LossError, UnsupportedError
from tensorbytes.formats import Format, Options, _json, dense, only_value
from tensorbytes.formats._arrow import flat as arrow_flat
from tensorbytes.formats._arrow.flat import Flat
from tensorbytes.formats._tensorproto import check_shape
from tensorbytes.formats.arrow import kind_of
from tensorbytes.tensor import Tensor, amended
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer

_NAMES = "dim_names"
_INT, _FLOAT = 2, 3
_PRECISIONS = ("float16", "float32", "float64")
_V4, _V5 = 3, 4


class ArrowTensor(Format):
    name = "arrowtensor"
    label = "Arrow tensor"
    words = "Arrow's tensor message"
    suffixes = (".arrowtensor",)
    read_by = "Arrow"
    holds = "one dense tensor"
    holds_one = True
    nameless = True
    unmistakable = True

    def sniff(self, head: bytes, size: int) -> bool:
        return kind_of(head) == arrow_flat.TENSOR

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        tensor = dense(self, only_value(self, document, allow | {_NAMES}))
        if not dtypes.get(tensor.dtype).arrow or tensor.dtype == "bool":
            raise LossError(
                f"an Arrow tensor message holds integers and floats, not {tensor.dtype}",
                feature="dtype",
                hints=[Hint("format", "arrow", of="save"), USE_TB],
            )
        head = _message(tensor, _axis_names(tensor))
        head += bytes(-(8 + len(head)) % 64)
        return [arrow_flat.CONTINUES + struct.pack("<i", len(head)) + head, tensor.data]

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        message = arrow_flat.message(data, 0)
        if message is None or message.kind == arrow_flat.SPARSE:
            raise UnsupportedError("an Arrow message of a sparse tensor, or of nothing: only dense ones are read")
        if message.kind != arrow_flat.TENSOR:
            raise CorruptError("an Arrow message that is not a tensor; format 'arrow' reads tables", at=0)
        if message.version not in (_V4, _V5):
            raise UnsupportedError(f"an Arrow message of version V{message.version + 1}; known: V4, V5 (byte 0)")
        if message.end != len(data):
            raise CorruptError(f"{len(data) - message.end} bytes follow the tensor", at=message.end)
        yield Document([Leaf(_tensor(message.header, data[message.start : message.end], message.start, budget, lazy))])


# ---- writing ------------------------------------------------------------------


def _axis_names(tensor: Tensor) -> list[bytes]:
    text = tensor.meta.get(_NAMES)
    if text is None:
        return [b""] * len(tensor.shape)
    try:
        names = json.loads(text)
        if not isinstance(names, list) or len(names) != len(tensor.shape):
            raise ValueError
        return [str.encode(name) for name in names]
    except (ValueError, TypeError, RecursionError):
        raise LossError(
            f"the metadata {_NAMES}={text[:80]!r} is not a JSON list of {len(tensor.shape)} names",
            feature=_NAMES,
            hints=[Hint(purpose="drop or correct it")],
        ) from None


class _Builder:
    """A FlatBuffer from front to back: what is not known yet is filled in later."""

    def __init__(self) -> None:
        self.data = bytearray(4)  # where the root stands

    def align(self, to: int, before: int = 0) -> int:
        self.data += bytes(-(len(self.data) + before) % to)
        return len(self.data)

    def table(self, size: int, fields: tuple[int, ...], values: bytes) -> int:
        """A table: the places of its fields, and its bytes after the first four."""
        vtable = self.align(8)
        self.data += struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), size, *fields)
        at = self.align(8)
        self.data += struct.pack("<i", at - vtable) + values.ljust(size - 4, b"\0")
        return at

    def point(self, at: int, target: int) -> None:
        struct.pack_into("<I", self.data, at, target - at)


def _message(tensor: Tensor, names: list[bytes]) -> bytes:
    out = _Builder()
    message = out.table(24, (16, 18, 4, 8), struct.pack("<IqhB", 0, tensor.nbytes, _V5, arrow_flat.TENSOR))
    out.point(0, message)
    kind = _FLOAT if tensor.dtype in _PRECISIONS else _INT
    header = out.table(40, (32, 4, 8, 12, 16), struct.pack("<IIIqqB", 0, 0, 0, 0, tensor.nbytes, kind))
    out.point(message + 4, header)
    if kind == _FLOAT:
        typed = out.table(8, (4,), struct.pack("<h", _PRECISIONS.index(tensor.dtype)))
    else:
        signed = not tensor.dtype.startswith("u")
        typed = out.table(12, (4, 8), struct.pack("<iB", dtypes.get(tensor.dtype).bits, signed))
    out.point(header + 4, typed)
    rank = len(tensor.shape)
    shape = out.align(4)
    out.data += struct.pack("<I", rank) + bytes(4 * rank)
    out.point(header + 8, shape)
    for axis, (size, name) in enumerate(zip(tensor.shape, names, strict=True)):
        at = out.table(16, (8, 4), struct.pack("<Iq", 0, size))
        out.point(shape + 4 + 4 * axis, at)
        out.point(at + 4, out.align(4))
        out.data += struct.pack("<I", len(name)) + name + b"\0"
    strides = out.align(8, 4)
    width = dtypes.get(tensor.dtype).itemsize
    steps = [width * math.prod(tensor.shape[axis + 1 :]) for axis in range(rank)]
    out.data += struct.pack(f"<I{rank}q", rank, *steps) if rank else bytes(4)
    out.point(header + 12, strides)
    return bytes(out.data)


# ---- reading ------------------------------------------------------------------


def _tensor(header: Flat, body: memoryview, at: int, budget: Budget, lazy: bool) -> Tensor | Deferred:
    dtype = _dtype(header)
    shape, names = _shape(header, budget, dtypes.get(dtype).itemsize)
    meta = {_NAMES: _json.dump(names)} if any(names) else {}
    content = _content(header, body)
    width = dtypes.get(dtype).itemsize
    steps = tuple(width * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    strides = _strides(header, len(shape)) or steps
    size = math.prod(shape) * width
    used = [(n, stride) for n, stride in zip(shape, strides, strict=True) if n > 1]
    if size and used == [(n, step) for n, step in zip(shape, steps, strict=True) if n > 1]:
        if size > len(content):
            raise CorruptError(f"{dtype}{list(shape)} takes {size} bytes, the message has {len(content)}", at=at)
        return Tensor(dtype, shape, content[:size], meta=meta)
    if not size:
        return Tensor(dtype, shape, b"", meta=meta)
    reach = width + sum((n - 1) * stride for n, stride in used)
    if any(stride < 0 for _, stride in used) or reach > len(content):
        raise CorruptError(f"strides of {list(strides)} leave the {len(content)} bytes of the message", at=at)
    elements = np.ndarray(shape, f"V{width}", content, strides=strides)
    if size > len(content):  # a stride of 0 makes much out of little
        budget.charge(size, f"{dtype}{list(shape)}", at)
    later = amended(elsewhere(dtype, elements), None, meta)
    if lazy:
        return later
    made = later.load()
    assert isinstance(made, Tensor)
    return made


def _dtype(header: Flat) -> str:
    kind, typed = header.scalar(0, "<B"), header.table(1)
    if typed is not None and kind == _INT:
        name = f"{'' if typed.scalar(1, '<B') else 'u'}int{typed.scalar(0, '<i')}"
        if name in dtypes.DTYPES and dtypes.get(name).arrow:
            return name
    if typed is not None and kind == _FLOAT and 0 <= typed.scalar(0, "<h") < len(_PRECISIONS):
        return _PRECISIONS[typed.scalar(0, "<h")]
    raise UnsupportedError(f"an Arrow tensor of the type number {kind}: only integers and floats are tensors in Arrow")


def _shape(header: Flat, budget: Budget, width: int) -> tuple[tuple[int, ...], list[str]]:
    start, count = header.vector(2, 4)
    sizes: list[int] = []
    names: list[str] = []
    for axis in range(min(count, budget.max_rank + 1)):
        place = start + 4 * axis
        dim = Flat(header.data, place + header.number("<I", place), header.base)
        sizes.append(dim.scalar(0, "<q"))
        try:
            names.append(dim.text(1).decode())
        except UnicodeDecodeError:
            raise CorruptError(f"the name of axis {axis} is not UTF-8", at=header.base) from None
    if any(n < 0 for n in sizes):
        raise CorruptError(f"a shape of {sizes}", at=header.base)
    return check_shape(sizes, width, budget, header.base), names


def _strides(header: Flat, rank: int) -> tuple[int, ...] | None:
    start, count = header.vector(3, 8)
    if not count:
        return None
    if count != rank:
        raise CorruptError(f"{count} strides for {rank} axes", at=header.base)
    return struct.unpack_from(f"<{count}q", header.data, start)


def _content(header: Flat, body: memoryview) -> memoryview:
    place: Any = header.place(4)
    if place is None:
        raise CorruptError("a tensor without data", at=header.base)
    offset, length = header.number("<q", place), header.number("<q", place + 8)
    if offset < 0 or length < 0 or offset + length > len(body):
        raise CorruptError(f"data of {length} bytes at {offset} of a body of {len(body)}", at=header.base)
    return body[offset : offset + length]


FORMAT = ArrowTensor()
