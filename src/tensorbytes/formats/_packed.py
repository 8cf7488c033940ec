"""Elements of 2, 4 and 6 bits as ONNX and safetensors pack them: one stream of bits, lowest first, zeros at the end."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.deferred import Deferred
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError
from tensorbytes.tensor import Array, Tensor


def size(row: DType, count: int) -> int:
    """The bytes that so many elements take, packed or not."""
    return -(-count * row.bits // 8)


def whole_bytes(row: DType, shape: tuple[int, ...]) -> bool:
    """Whether these elements fill their last byte."""
    return math.prod(shape) * row.bits % 8 == 0


def _group(bits: int) -> int:
    """So many elements fill whole bytes: 2 of 4 bits, 4 of 2 or 6 bits."""
    return 8 // math.gcd(8, bits)


def pack(values: Array, bits: int) -> Array:
    """One byte for each element to so many bits for each."""
    group = _group(bits)
    rows = np.zeros((-(-len(values) // group), group), np.uint8)
    rows.reshape(-1)[: len(values)] = values & ((1 << bits) - 1)
    packed = np.zeros((len(rows), group * bits // 8), np.uint8)
    for index in range(group):
        byte, shift = divmod(index * bits, 8)
        packed[:, byte] |= rows[:, index] << shift
        if shift + bits > 8:
            packed[:, byte + 1] |= rows[:, index] >> (8 - shift)
    return packed.reshape(-1)[: -(-len(values) * bits // 8)]


def pack_tensor(value: Tensor) -> Array:
    return pack(np.frombuffer(value.data, np.uint8), dtypes.get(value.dtype).bits)


def unpack(raw: Array, bits: int, count: int) -> Array:
    """The way back: `count` elements, a byte each."""
    group = _group(bits)
    width = group * bits // 8
    missing = -len(raw) % width
    rows = (np.concatenate((raw, np.zeros(missing, np.uint8))) if missing else raw).reshape(-1, width)
    values = np.empty((len(rows), group), np.uint8)
    for index in range(group):
        byte, shift = divmod(index * bits, 8)
        element = rows[:, byte] >> shift
        if shift + bits > 8:
            element |= rows[:, byte + 1] << (8 - shift)
        values[:, index] = element & ((1 << bits) - 1)
    return values.reshape(-1)[:count]


def check_rest(raw: Array, bits: int, count: int, at: int) -> None:
    """The bits after the last element must be zero: what stands there would be dropped."""
    rest = len(raw) * 8 - count * bits
    if rest and raw[-1] >> (8 - rest):
        raise CorruptError(f"the {rest} bits after the last element are not zero", at=at)


def whole(row: DType, shape: tuple[int, ...], data: memoryview, at: int) -> Tensor:
    """A packed tensor, unpacked."""
    raw, count = np.frombuffer(data, np.uint8), math.prod(shape)
    check_rest(raw, row.bits, count, at)
    return Tensor(row.name, shape, unpack(raw, row.bits, count))


def deferred(row: DType, shape: tuple[int, ...], data: memoryview, at: int) -> Deferred:
    """A packed tensor, unpacked when it is read; slices of the first axis unpack themselves alone."""
    raw = np.frombuffer(data, np.uint8)

    def fetch() -> Tensor:
        return whole(row, shape, data, at)

    def part(index: Any) -> Tensor:
        low, high, inner = rows_of(index, shape)
        each = math.prod(shape[1:])
        first = low * each // _group(row.bits) * _group(row.bits)
        flat = unpack(raw[first * row.bits // 8 : size(row, high * each)], row.bits, high * each - first)
        kept = flat[low * each - first :].reshape((high - low, *shape[1:]) if shape else ())
        picked = np.asarray(kept[inner])
        return Tensor(row.name, picked.shape, np.ascontiguousarray(picked).reshape(-1))

    return Deferred("tensor", row.name, shape, fetch, dtypes.nbytes(row, shape), part)


def rows_of(index: Any, shape: tuple[int, ...]) -> tuple[int, int, Any]:
    """(the first row that an index needs, the one after the last, the index into those rows)"""
    steps = index if isinstance(index, tuple) else (index,)
    first = steps[0] if steps and shape else None
    if isinstance(first, slice):
        wanted = range(shape[0])[first]
        if not wanted:
            return 0, 0, (slice(0, 0), *steps[1:])
        low, high = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1]) + 1
        return low, high, (slice(None, None, wanted.step), *steps[1:])
    if isinstance(first, int | np.integer) and not isinstance(first, bool):
        row = range(shape[0])[operator.index(first)]  # IndexError, as for any sequence
        return row, row + 1, (0, *steps[1:])
    return 0, shape[0] if shape else 1, index
