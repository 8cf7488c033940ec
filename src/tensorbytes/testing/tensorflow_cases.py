"""TensorFlow's cases: eager tensors, variables, strings, SparseTensor, RaggedTensor, IndexedSlices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tensorbytes import dtypes
from tensorbytes.testing.bits import array, every_pattern, keep_value_bits, numpy_dtype, patterns
from tensorbytes.testing.case import Case, Fingerprint

_INTEGERS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32", "qint16": "int16", "quint16": "uint16"}
NAMES = tuple(row.name for row in dtypes.DTYPES.values() if row.in_tensorflow)
# TensorFlow has tensors of these, but its own serialize_tensor does not take them.
NO_KERNELS = tuple(
    name for name in NAMES if name.startswith(("float8", "float4", "int2", "uint2", "int4", "uint4", "q"))
)
# Nor do its variables take these.
NO_VARIABLES = ("float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "qint16", "quint16")
EMPTY = ((0,), (0, 3), (3, 0), (2, 0, 3))
_BYTES = [b"", b"a", b"\0", b"trailing\0\0", bytes(range(256)), "naïve \U0001f600".encode()]


# ---- what a TensorFlow value is ---------------------------------------------


def dense(x: Any) -> tuple[str, tuple[int, ...], Any]:
    """dtype, shape and bits, as TensorFlow's own C++ writes them."""
    shape = tuple(x.shape)
    if x.dtype == tf.string:
        return "object", shape, [("bytes", item) for item in tf.reshape(x, [-1]).numpy().tolist()]
    name = x.dtype.name
    size = math.prod(shape) * dtypes.get(name).itemsize
    message = x.numpy().tobytes() if name in NO_KERNELS else tf.io.serialize_tensor(x).numpy()
    return name, shape, keep_value_bits(name, message[len(message) - size :])


def fingerprint(x: Any) -> Fingerprint:
    if isinstance(x, tf.Variable):
        held = {"held.shape": str(x.shape), "held.name": x.name, "held.trainable": x.trainable}
        return {"held.type": "Variable", "dense": dense(x.read_value())} | held
    if isinstance(x, tf.SparseTensor):
        return {
            "layout": "coo",
            "shape": tuple(x.dense_shape.numpy().tolist()),
            "parts": [x.indices.numpy().tolist()],
            "values": dense(x.values),
            "held.type": "SparseTensor",
        }
    if isinstance(x, tf.RaggedTensor):
        return {
            "splits": [splits.numpy().tolist() for splits in x.nested_row_splits],
            "values": dense(x.flat_values),
            "own.shape": x.shape.as_list(),
            "held.splits": [splits.dtype.name for splits in x.nested_row_splits],
        }
    if isinstance(x, tf.IndexedSlices):
        whole = None if x.dense_shape is None else (x.dense_shape.dtype.name, x.dense_shape.numpy().tolist())
        return {
            "own.indices": (x.indices.dtype.name, x.indices.numpy().tolist()),
            "values": dense(x.values),
            "own.dense_shape": whole,
        }
    if not isinstance(x, tf.Tensor):
        raise TypeError(f"{type(x)} is not of TensorFlow")
    if x.dtype in (tf.variant, tf.resource):
        return {"dense": (x.dtype.name, tuple(x.shape))}
    return {"held.type": "Tensor", "dense": dense(x)}


# ---- dense ------------------------------------------------------------------


def tensor(name: str, shape: tuple[int, ...]) -> Any:
    if name in _INTEGERS:
        return tf.bitcast(tf.constant(array(_INTEGERS[name], shape)), tf.as_dtype(name))
    return tf.constant(array(name, shape))


_DENSE: dict[str, Callable[[str], Any]] = {
    "0-d": lambda name: tensor(name, ()),
    **{f"empty {'x'.join(map(str, shape))}": partial(tensor, shape=shape) for shape in EMPTY},
    "1-d": lambda name: tensor(name, (max(len(patterns(_INTEGERS.get(name, name))), 40),)),
    "4-d": lambda name: tensor(name, (2, 3, 4, 5)),
    "rank 32": lambda name: tensor(name, (1,) * 30 + (2, 3)),
    "page and more": lambda name: tensor(name, (70, 70)),
    "Variable": lambda name: tf.Variable(tensor(name, (3, 4))),
    "Variable, 0-d": lambda name: tf.Variable(tensor(name, ())),
}
_FLOAT32: dict[str, Callable[[str], Any]] = {
    "Variable, not trainable": lambda name: tf.Variable(tensor(name, (3,)), trainable=False),
    "Variable, named": lambda name: tf.Variable(tensor(name, (3,)), name="scope/kernel"),
    "Variable, of any length": lambda name: tf.Variable(tensor(name, (2, 3)), shape=tf.TensorShape([None, 3])),
    "Variable, of any rank": lambda name: tf.Variable(tensor(name, (2, 3)), shape=tf.TensorShape(None)),
    "transposed": lambda name: tf.transpose(tf.constant(np.arange(6.0, dtype=np.float32).reshape(2, 3))),
    "host memory": lambda name: tf.constant(array(name, (4, 5))[::-1, ::2]),
}


def _dense_cases(name: str) -> Iterable[Case]:
    layouts = {k: v for k, v in _DENSE.items() if name not in NO_VARIABLES or "Variable" not in k}
    if dtypes.get(name).bits == 16 and name not in _INTEGERS:
        layouts["every bit pattern"] = lambda name: tf.constant(np.frombuffer(every_pattern(name), numpy_dtype(name)))
    if name == "float32":
        layouts |= _FLOAT32
    for layout, build in layouts.items():
        yield Case("tensorflow", name, layout, partial(build, name))


# ---- sparse, ragged, slices -------------------------------------------------

Values = Callable[[tuple[int, ...]], Any]


def _sparse(values: Values, indices: list[list[int]], shape: list[int]) -> Any:
    at = tf.constant(np.array(indices, np.int64).reshape(len(indices), len(shape)))
    return tf.SparseTensor(at, values((len(indices),)), shape)


def _ragged(values: Values, *levels: list[int], inner: tuple[int, ...] = (), index: Any = tf.int64) -> Any:
    splits = [tf.constant(level, index) for level in levels]
    return tf.RaggedTensor.from_nested_row_splits(values((levels[-1][-1], *inner)), splits)


def _slices(values: Values, indices: list[int], index: Any, shape: Any) -> Any:
    return tf.IndexedSlices(values((len(indices), 3)), tf.constant(indices, index), shape)


_STRUCTURES: dict[str, Callable[[Values], Any]] = {
    "SparseTensor": lambda v: _sparse(v, [[0, 1], [2, 3], [2, 0]], [3, 4]),
    "SparseTensor, duplicates": lambda v: _sparse(v, [[2, 1], [0, 0], [2, 1]], [3, 4]),
    "SparseTensor, empty": lambda v: _sparse(v, [], [3, 4]),
    "SparseTensor, no rows": lambda v: _sparse(v, [], [0, 4]),
    "SparseTensor, 1-d": lambda v: _sparse(v, [[4], [1]], [9]),
    "SparseTensor, 4-d": lambda v: _sparse(v, [[0, 1, 2, 3], [1, 0, 0, 0]], [2, 2, 3, 4]),
    "SparseTensor, index outside": lambda v: _sparse(v, [[5, 5]], [3, 4]),
    "RaggedTensor": lambda v: _ragged(v, [0, 2, 2, 5]),
    "RaggedTensor, int32 splits": lambda v: _ragged(v, [0, 2, 2, 5], index=tf.int32),
    "RaggedTensor, inner axes": lambda v: _ragged(v, [0, 2, 2, 5], inner=(2, 3)),
    "RaggedTensor, 3 levels": lambda v: _ragged(v, [0, 2, 3], [0, 1, 1, 4], [0, 2, 3, 3, 7]),
    "RaggedTensor, 3 levels, int32 splits": lambda v: _ragged(
        v, [0, 2, 3], [0, 1, 1, 4], [0, 2, 3, 3, 7], inner=(2,), index=tf.int32
    ),
    "RaggedTensor, no rows": lambda v: _ragged(v, [0]),
    "RaggedTensor, empty rows": lambda v: _ragged(v, [0, 0, 0]),
    "RaggedTensor, uniform rows": lambda v: tf.RaggedTensor.from_uniform_row_length(_ragged(v, [0, 2, 2, 5, 6]), 2),
    "RaggedTensor, uniform inside": lambda v: tf.RaggedTensor.from_row_splits(
        tf.RaggedTensor.from_uniform_row_length(v((6,)), 2), tf.constant([0, 1, 3], tf.int64)
    ),
    "IndexedSlices": lambda v: _slices(v, [4, 0, 4], tf.int64, tf.constant([6, 3], tf.int64)),
    "IndexedSlices, int32": lambda v: _slices(v, [4, 0, 4], tf.int32, tf.constant([6, 3], tf.int32)),
    "IndexedSlices, no shape": lambda v: _slices(v, [4, 0, 4], tf.int32, None),
    "IndexedSlices, empty, no shape": lambda v: _slices(v, [], tf.int64, None),
}
_STRING_DENSE: dict[str, Callable[[Values], Any]] = {
    "0-d": lambda v: tf.constant(b"\xff\0"),
    "1-d": lambda v: v((7,)),
    "2-d": lambda v: v((2, 3)),
    "empty": lambda v: v((2, 0)),
    "Variable": lambda v: tf.Variable(v((4,))),
}  # fmt: skip


def _strings(shape: tuple[int, ...]) -> Any:
    items = [_BYTES[i % len(_BYTES)] for i in range(math.prod(shape))]
    return tf.reshape(tf.constant(items, tf.string, shape=(len(items),)), shape)


def _structure_cases(name: str) -> Iterable[Case]:
    for layout, build in _STRUCTURES.items():
        yield Case("tensorflow", name, layout, partial(build, partial(tensor, name)))


CASES: list[Case] = [
    *(case for name in NAMES for case in _dense_cases(name)),
    *(case for name in NAMES for case in _structure_cases(name)),
    *(
        Case("tensorflow", "string", layout, partial(build, _strings))
        for layout, build in (_STRING_DENSE | _STRUCTURES).items()
    ),
    Case("tensorflow", "variant", "0-d", lambda: tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant([], tf.int32), max_num_elements=1, element_dtype=tf.float32)),
    Case("tensorflow", "resource", "0-d", lambda: tf.Variable(1.0).handle),
]  # fmt: skip
