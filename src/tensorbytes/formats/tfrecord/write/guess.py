"""The schema of rows that come without one: the first row or batch tells it.

| first value                                        | feature                            |
| -------------------------------------------------- | ---------------------------------- |
| int, bool, str, bytes                              | int64, bool, text, bytes; flat     |
| list of those                                      | the same, of that length           |
| float, or a list of them                           | refused: how precise, is not said  |
| scalar or 1-D array of int64, float32 or strings   | flat                               |
| any other array                                    | tensorproto (raw if TensorFlow has |
|                                                    | no such dtype)                     |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbytes import dtypes, frameworks
from tensorbytes.errors import Hint, UnsupportedError, UsageError
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.formats.tfrecord.write import encode
from tensorbytes.formats.tfrecord.write.batch import Given
from tensorbytes.tensor import Ragged, Strings, Tensor

GIVE_SCHEMA = Hint("schema", purpose="to say which", of="RecordWriter")
_BY_TYPE: dict[type, str] = {
    int: "int64",
    bool: "bool",
    str: "text",
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
}
_FLAT = ("int64", "float32", "text", "bytes")


def of_row(x: Any, is_list: bool) -> Feature:
    """The feature of a first value."""
    if is_list:
        return _of_steps(x)
    if isinstance(x, list | tuple):
        return _of_list(x)
    if frameworks.of(x) and type(x) not in _BY_TYPE:
        value = frameworks.to_value(x)
        if not isinstance(value, Tensor | Strings):
            raise UnsupportedError(
                f"a {type(value).__name__.lower()} value can't be a feature of one record",
                hints=[
                    Hint(purpose="store its parts, or its dense form, as features"),
                    Hint("lists", purpose="with its name if its rows are steps", of="RecordWriter"),
                ],
            )
        return _of_array(value, value.shape)
    return Feature(_of_type(x))


def of_batch(value: Given, is_list: bool) -> Feature:
    """The feature of a first column."""
    if isinstance(value, list):
        first = next((item for item in value if item is not None), None)
        if first is None:
            raise UsageError("no row has a value, so its type is unknown", hints=[GIVE_SCHEMA])
        return of_row(first, is_list)
    if not isinstance(value, Ragged):
        return _of_array(value, value.shape[1 + is_list :])
    levels = len(value.splits) - is_list
    if value.shapes is not None:
        return _of_array(value.values, (None,) * (value.shapes.shape[1] - is_list))
    if levels > 1:
        raise UnsupportedError(
            "a column with two levels of rows can only be a feature list",
            hints=[Hint("lists", purpose="with its name", of="RecordWriter")],
        )
    return _of_array(value.values, ((None,) * levels + value.values.shape[1:]))


def _of_steps(x: Any) -> Feature:
    if isinstance(x, list | tuple):
        if not x:
            raise UsageError("a list without steps does not tell what a step is", hints=[GIVE_SCHEMA])
        return of_row(x[0], False)
    value = frameworks.value_of(x)
    if isinstance(value, Ragged):
        return of_row(value.rows()[0], False) if len(value) else _of_array(value.values, (None,))
    if not isinstance(value, Tensor | Strings) or not value.shape:
        raise UsageError(f"expected a list of steps, or an array with a first axis for them; got {encode.describe(x)}")
    return _of_array(value, value.shape[1:])


def _of_list(x: Any) -> Feature:
    items, shape = encode.flattened(x)
    if not items:
        raise UsageError(
            "an empty list does not tell its type",
            hints=[Hint(purpose="pass an empty array of some dtype"), GIVE_SCHEMA],
        )
    if isinstance(items[0], np.generic):
        return of_row(np.array(items).reshape(shape), False)
    if frameworks.of(items[0]) and type(items[0]) not in _BY_TYPE:
        raise UnsupportedError(
            "a list of arrays",
            hints=[
                Hint(purpose="stack them"),
                Hint("lists", purpose="with its name if they are steps", of="RecordWriter"),
            ],
        )
    dtype = _of_type(items[0])
    return Feature(dtype, shape, "flat" if len(shape) < 2 else "tensorproto")


def _of_type(x: Any) -> str:
    if isinstance(x, float | complex):
        raise UsageError(
            f"a Python {type(x).__name__} has 64 bits for each number, which a float list (float32) can't hold",
            hints=[
                Hint(purpose="pass np.float32(x)"),
                Hint(purpose="np.float64(x), which is stored as a TensorProto"),
                GIVE_SCHEMA,
            ],
        )
    for kind in type(x).__mro__:
        if kind in _BY_TYPE:
            return _BY_TYPE[kind]
    raise UnsupportedError(f"expected a tensor, a number, text, bytes or a list of them; got {encode.describe(x)}")


def _of_array(value: Tensor | Strings, shape: tuple[int | None, ...]) -> Feature:
    dtype = encode.string_dtype(value) if isinstance(value, Strings) else value.dtype
    if dtype in _FLAT and len(shape) < 2:
        return Feature(dtype, shape, "flat")
    known = dtype in _FLAT or dtypes.get(dtype).in_tensorflow
    return Feature(dtype, shape, "tensorproto" if known else "raw")
