"""TensorProto by protobuf's own parser (upb), without TensorFlow: the message class is built here from its fields.

`decode` is TensorFlow's reading of the fields, in a few lines that share nothing with ours: content counts before
values, too few values repeat the last one, too many are cut off.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from safety.fuzz.differential.arrays import masked
from tensorbytes import dtypes

# name, number, type (of descriptor.proto), repeated
_TENSOR = [
    ("dtype", 1, 14, False), ("tensor_shape", 2, 11, False), ("version_number", 3, 5, False),
    ("tensor_content", 4, 12, False), ("float_val", 5, 2, True), ("double_val", 6, 1, True), ("int_val", 7, 5, True),
    ("string_val", 8, 12, True), ("scomplex_val", 9, 2, True), ("int64_val", 10, 3, True), ("bool_val", 11, 8, True),
    ("dcomplex_val", 12, 1, True), ("half_val", 13, 5, True), ("uint32_val", 16, 13, True),
    ("uint64_val", 17, 4, True), ("float8_val", 18, 12, False),
]  # fmt: skip
STRING = 7
_MOST_ELEMENTS = 1 << 22

# code -> the field of its values, and NumPy's word for an element of them
VALUES = {
    1: ("float_val", "<f4"), 2: ("double_val", "<f8"), 3: ("int_val", "<i4"), 4: ("int_val", "u1"),
    5: ("int_val", "<i2"), 6: ("int_val", "i1"), 8: ("scomplex_val", "<f4"), 9: ("int64_val", "<i8"),
    10: ("bool_val", "?"), 11: ("int_val", "i1"), 12: ("int_val", "u1"), 13: ("int_val", "<i4"),
    14: ("half_val", "<u2"), 15: ("int_val", "<i2"), 16: ("int_val", "<u2"), 17: ("int_val", "<u2"),
    18: ("dcomplex_val", "<f8"), 19: ("half_val", "<u2"), 22: ("uint32_val", "<u4"), 23: ("uint64_val", "<u8"),
    24: ("float8_val", "u1"), 25: ("float8_val", "u1"), 26: ("float8_val", "u1"), 27: ("float8_val", "u1"),
    28: ("float8_val", "u1"), 29: ("int_val", "i1"), 30: ("int_val", "u1"), 31: ("int_val", "i1"),
    32: ("int_val", "u1"), 33: ("float8_val", "u1"),
}  # fmt: skip


@cache
def tensor_class() -> Any:
    """Field numbers and types as in TensorFlow's tensor.proto; under a name of its own, beside TensorFlow's."""
    file = descriptor_pb2.FileDescriptorProto(name="differential.proto", package="differential", syntax="proto3")
    kinds = file.enum_type.add(name="DataType")
    kinds.value.add(name="DT_INVALID", number=0)
    shape = file.message_type.add(name="Shape")
    dim = shape.nested_type.add(name="Dim")
    dim.field.add(name="size", number=1, type=3, label=1)
    dim.field.add(name="name", number=2, type=9, label=1)
    shape.field.add(name="dim", number=2, type=11, label=3, type_name=".differential.Shape.Dim")
    shape.field.add(name="unknown_rank", number=3, type=8, label=1)
    tensor = file.message_type.add(name="Tensor")
    for name, number, kind, repeated in _TENSOR:
        made = tensor.field.add(name=name, number=number, type=kind, label=3 if repeated else 1)
        if kind == 11:
            made.type_name = ".differential.Shape"
        elif kind == 14:
            made.type_name = ".differential.DataType"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("differential.Tensor"))


def parse(raw: bytes) -> Any:
    return tensor_class().FromString(raw)


def decode(message: Any) -> Any:
    """The value in the form of arrays.neutral; ValueError where TensorFlow has none."""
    dims = [dim.size for dim in message.tensor_shape.dim]
    if any(n < 0 for n in dims):
        raise ValueError("a negative dimension")
    count = math.prod(dims)
    if math.prod(max(n, 1) for n in dims) > 1 << 50 or count > _MOST_ELEMENTS:
        raise ValueError("too large to be tried")
    if message.dtype == STRING:
        return "S", dims, _strings(message, count)
    if message.dtype not in VALUES:
        raise ValueError(f"no values of dtype {message.dtype}")
    row = dtypes.by_code(message.dtype)
    if message.tensor_content:
        if len(message.tensor_content) != count * row.itemsize and count:
            raise ValueError("content of another size")
        return row.name, dims, masked(row.name, message.tensor_content if count else b"")
    name, element = VALUES[message.dtype]
    found = getattr(message, name)
    if name == "float8_val":
        values = np.frombuffer(found, "u1")
    elif name in ("float_val", "double_val", "scomplex_val", "dcomplex_val"):
        values = np.array(found, element)
    else:
        values = np.array(found, np.uint64 if name == "uint64_val" else np.int64).astype(element)
    values = values.view("u1").reshape(-1)
    values = values[: len(values) // row.itemsize * row.itemsize].reshape(-1, row.itemsize)[:count]
    full = np.zeros((count, row.itemsize), np.uint8)
    full[: len(values)] = values
    if len(values):
        full[len(values) :] = values[-1]
    return row.name, dims, masked(row.name, full.tobytes())


def _strings(message: Any, count: int) -> list[bytes]:
    if message.tensor_content:
        return lengths_first(message.tensor_content, count)
    found = list(message.string_val)[:count]
    return found + [found[-1] if found else b""] * (count - len(found))


def lengths_first(raw: bytes, count: int) -> list[bytes]:
    """Strings in tensor_content: all lengths as varints, then all bytes."""
    from safety.fuzz.differential.protobytes import read_varint

    at, sizes = 0, []
    for _ in range(count):
        size, at = read_varint(raw, at)
        sizes.append(size)
    if sum(sizes) != len(raw) - at:
        raise ValueError("lengths and bytes disagree")
    out = []
    for size in sizes:
        out.append(raw[at : at + size])
        at += size
    return out
