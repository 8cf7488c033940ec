"""TensorFlow: eager tensors, variables, strings, SparseTensor, RaggedTensor, IndexedSlices."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from tensorbytes import dtypes
from tensorbytes.errors import Hint, UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.frameworks import placement
from tensorbytes.tensor import Array, Header, Ragged, Sparse, Strings, Tensor, Value, with_meta, with_origin

_QUANTIZED = {"qint8": tf.int8, "quint8": tf.uint8, "qint32": tf.int32, "qint16": tf.int16, "quint16": tf.uint16}
_UNIFORM = "tf.uniform_row_length"


def to_value(x: Any) -> Value:
    origin = {"framework": "tensorflow"}
    if isinstance(x, tf.Variable):
        origin["type"] = "Variable"
        if not x.trainable:
            origin["tf.trainable"] = "false"
        if not x.shape.is_fully_defined():
            origin["tf.shape"] = _loose_shape(x.shape)
        name = x.name.partition(":")[0]
        return with_origin(with_meta(to_value(x.read_value()), name if name != "Variable" else None), origin)
    if isinstance(x, tf.SparseTensor):
        values = _dense(x.values)
        return Sparse("coo", _shape(x.dense_shape), (x.indices.numpy(),), values, origin=origin)
    if isinstance(x, tf.RaggedTensor):
        splits = tuple(split.numpy() for split in x.nested_row_splits)
        return Ragged(_dense(x.flat_values), splits, origin=origin | _uniform(x))
    if isinstance(x, tf.IndexedSlices):
        return with_origin(_slices(x), origin)
    if not isinstance(x, tf.Tensor):
        raise UnsupportedError(f"{type(x).__module__}.{type(x).__qualname__} is not a TensorFlow tensor")
    if not hasattr(x, "numpy"):
        raise UnsupportedError(
            f"a symbolic tensor ({x.name}) has no value yet", hints=[Hint(purpose="call this outside tf.function")]
        )
    if not x.device.endswith("CPU:0"):
        origin["device"] = x.device
    return with_origin(_dense(x), origin)


def _shape(dense_shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in dense_shape.numpy())


def _loose_shape(shape: Any) -> str:
    """The shape that a variable may change within: "?,3", or "?..." for any rank."""
    return "?..." if shape.rank is None else ",".join("?" if n is None else str(n) for n in shape)


def _dense(x: Any) -> Tensor | Strings:
    if x.dtype in (tf.resource, tf.variant):
        raise UnsupportedError(f"a {x.dtype.name} tensor holds references, not values")
    if x.dtype == tf.string:
        # dtype=object: of a 0-d tensor TensorFlow gives bytes, and NumPy's own choice for them drops trailing zeros.
        value = numpy_adapter.to_value(np.array(x.numpy(), object))
        assert isinstance(value, Strings)
        return value
    array = np.asarray(x.numpy())
    if x.dtype.name in _QUANTIZED:
        return Tensor(x.dtype.name, tuple(x.shape), np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    value = numpy_adapter.to_value(array)
    assert isinstance(value, Tensor)
    return value


def _uniform(x: Any) -> dict[str, str]:
    """The static row lengths, outermost first, where a level is ragged in form only."""
    lengths = []
    while isinstance(x, tf.RaggedTensor):
        length = x.uniform_row_length
        lengths.append("-" if length is None else str(int(length)))
        x = x.values
    return {_UNIFORM: ",".join(lengths)} if set(lengths) != {"-"} else {}


def _slices(x: Any) -> Sparse:
    indices = x.indices.numpy()[:, None]
    values = _dense(x.values)
    origin = {"type": "IndexedSlices"}
    if x.dense_shape is None:
        origin["tf.dense_shape"] = "none"
        shape = (int(indices.max(initial=-1)) + 1, *values.shape[1:])
    else:
        shape = _shape(x.dense_shape)
        if str(x.dense_shape.dtype.name) == "int32":
            origin["tf.dense_shape"] = "int32"
    return Sparse("coo", shape, (indices,), values, origin=origin)


def from_value(value: Value, device: str | None = None) -> Any:
    with _device(placement(value, device)):
        if isinstance(value, Ragged):
            return _ragged(value)
        if isinstance(value, Sparse):
            return _sparse(value)
        made = _tensor(value)
        if value.origin.get("type") == "Variable":
            return _variable(made, value)
        return made


def _device(where: str | None) -> Any:
    """The device by its name, which may come out of a file."""
    if not where:
        return contextlib.nullcontext()
    try:
        with tf.device(where):  # an unknown one shows when it is entered, or when it is used
            tf.constant(0)
        return tf.device(where)
    except (ValueError, TypeError, RuntimeError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UnsupportedError(f"TensorFlow has no device {where[:100]!r}: {reason}") from None


def _variable(made: Any, value: Value) -> Any:
    loose = value.origin.get("tf.shape")
    shape = made.shape
    if loose == "?...":
        shape = tf.TensorShape(None)
    elif loose is not None:
        sizes = [None if n == "?" else int(n) if n.isdecimal() else -1 for n in loose.split(",")]
        if len(sizes) != shape.rank or any(n not in (None, have) for n, have in zip(sizes, shape, strict=True)):
            raise UnsupportedError(f"metadata tf.shape={loose!r} does not fit a variable of shape {tuple(shape)}")
        shape = tf.TensorShape(sizes)
    name, trainable = value.name or value.origin.get("name"), value.origin.get("tf.trainable") != "false"
    return tf.Variable(made, trainable=trainable, name=name, shape=shape)


def _tensor(value: Tensor | Strings) -> Any:
    if isinstance(value, Strings):
        items = [item.encode() if isinstance(item, str) else item for item in value.items()]
        return tf.reshape(tf.constant(items, tf.string, shape=(len(items),)), value.shape)
    row = dtypes.get(value.dtype)
    if not row.in_tensorflow:
        raise UnsupportedError(
            f"TensorFlow has no dtype for {value.dtype}", hints=[Hint("to", choices=("numpy", "tensor"), of="load")]
        )
    if row.name in _QUANTIZED:
        if "torch.scale" in value.origin:
            raise UnsupportedError(
                f"TensorFlow's {row.name} has no scale and zero point",
                hints=[Hint("to", choices=("torch", "tensor"), of="load")],
            )
        integers = _QUANTIZED[row.name]
        array = np.ndarray(value.shape, integers.as_numpy_dtype, value.data)
        return tf.bitcast(tf.constant(array), row.name)
    return tf.constant(value.numpy())


def _ragged(value: Ragged) -> Any:
    if value.shapes is not None:
        raise UnsupportedError(
            "rows of differing shapes have no RaggedTensor", hints=[Hint("to", choices=("numpy", "torch"), of="load")]
        )
    lengths = value.origin.get(_UNIFORM, ",".join("-" * len(value.splits))).split(",")
    if len(lengths) != len(value.splits):
        raise UnsupportedError(f"metadata {_UNIFORM} names {len(lengths)} levels, the value has {len(value.splits)}")
    made = _tensor(value.values)
    for splits, length in zip(reversed(value.splits), reversed(lengths), strict=True):
        if length == "-":
            made = tf.RaggedTensor.from_row_splits(made, tf.constant(splits))
        else:
            made = _uniform_rows(made, splits, length)
    return made


def _uniform_rows(values: Any, splits: Array, length: str) -> Any:
    if not (np.diff(splits) == np.int64(length if length.isdecimal() and len(length) < 19 else -1)).all():
        raise UnsupportedError(f"metadata {_UNIFORM} asks for rows of length {length}, which they are not")
    index = tf.as_dtype(splits.dtype)
    return tf.RaggedTensor.from_uniform_row_length(
        values, tf.constant(int(length), index), tf.constant(len(splits) - 1, index)
    )


def _sparse(value: Sparse) -> Any:
    slices = value.origin.get("type") == "IndexedSlices"
    value = value.to_coo()
    (indices,) = value.parts
    if slices and indices.shape[1] == 1:
        kind = value.origin.get("tf.dense_shape")
        dense_shape = None if kind == "none" else tf.constant(value.shape, tf.int32 if kind == "int32" else tf.int64)
        return tf.IndexedSlices(_tensor(value.values), tf.constant(indices[:, 0]), dense_shape)
    if len(value.values.shape) != 1:
        raise UnsupportedError(
            "a SparseTensor holds single values, not rows of them", hints=[Hint("to", "torch", of="load")]
        )
    return tf.SparseTensor(tf.constant(indices, tf.int64), _tensor(value.values), tf.constant(value.shape, tf.int64))


# ---- templates ----------------------------------------------------------------


def outline(x: Any) -> Header | None:
    """What a dense tensor is, or a TensorSpec; None for any other."""
    if not isinstance(x, tf.Tensor | tf.Variable | tf.TensorSpec) or x.shape.rank is None:
        return None
    if x.dtype == tf.string:
        return Header("strings", "string", tuple(x.shape.as_list()), None)
    return Header("tensor", dtypes.by_code(x.dtype.as_datatype_enum).name, tuple(x.shape.as_list()), None)
