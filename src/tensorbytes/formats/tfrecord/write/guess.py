"""The schema of rows that come without one: the first row or batch tells it.

| first value                                        | feature                            |
| -------------------------------------------------- | ---------------------------------- |
| int, bool, str, bytes                              | int64, bool, text, bytes; flat     |
| list of those                                      | the same, of that length           |
| float, or a list of them, with integers perhaps    | float64, tensorproto; or, if the   |
|                                                    | writer says so, float32, flat      |
| complex, or a list of them                         | complex128, tensorproto            |
| an empty list                                      | not told: later rows tell it       |
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
from tensorbytes.formats.tfrecord.schema.feature import default_encoding
from tensorbytes.formats.tfrecord.write import encode
from tensorbytes.formats.tfrecord.write.batch import Given
from tensorbytes.tensor import Ragged, Strings, Tensor

GIVE_SCHEMA = Hint("schema", purpose="to say which", of="RecordWriter")
_BY_TYPE: dict[type, str] = {
    int: "int64",
    complex: "complex128",
    bool: "bool",
    str: "text",
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
}
_FLAT = ("int64", "float32", "text", "bytes")


def tells(x: Any) -> bool:
    """Whether a value tells its type: an empty list, or a list of them, does not."""
    return not isinstance(x, list | tuple) or any(map(tells, x))


def column_tells(value: Given) -> bool:
    """Whether any of a column's values tells its type."""
    return not isinstance(value, list) or any(item is not None and tells(item) for item in value)


def of_nothing(values: list[Any], is_list: bool) -> Feature:
    """The feature of empty lists alone, once it must be known: integers, which are the narrowest promise."""
    dimensions = max(len(encode.flattened(x)[1]) for x in values)
    varying = (None,) * (dimensions - is_list)
    return Feature("int64", varying, "flat" if len(varying) < 2 else "tensorproto")


def of_row(x: Any, is_list: bool, floats: str = "float64") -> Feature:
    """The feature of a first value; `floats` is what Python's floats become."""
    if is_list:
        return _of_steps(x, floats)
    if isinstance(x, list | tuple):
        return _of_list(x, floats)
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
    return Feature(_of_type(x, floats))


def of_batch(value: Given, is_list: bool, floats: str = "float64") -> Feature:
    """The feature of a first column."""
    if isinstance(value, list):
        return of_row(_telling(value), is_list, floats)
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


def _telling(items: list[Any]) -> Any:
    """The item of a column that tells what it holds: the first one, or the first one with a float among integers."""
    telling = [item for item in items if item is not None and tells(item)]
    if not telling:
        raise UsageError("no row has a value, so its type is unknown", hints=[GIVE_SCHEMA])
    if not _has_type(telling[0], int):
        return telling[0]
    return next((item for item in telling if _has_type(item, float)), telling[0])


def _has_type(x: Any, kind: type) -> bool:
    """Whether a Python number of this very type stands in a value, or in the lists that it is."""
    return any(_has_type(item, kind) for item in x) if isinstance(x, list | tuple) else type(x) is kind


def _of_steps(x: Any, floats: str) -> Feature:
    if isinstance(x, list | tuple):
        return of_row(_telling(list(x)), False, floats)
    value = frameworks.value_of(x)
    if isinstance(value, Ragged):
        return of_row(value.rows()[0], False) if len(value) else _of_array(value.values, (None,))
    if not isinstance(value, Tensor | Strings) or not value.shape:
        raise UsageError(f"expected a list of steps, or an array with a first axis for them; got {encode.describe(x)}")
    return _of_array(value, value.shape[1:])


def _of_list(x: Any, floats: str) -> Feature:
    items, shape = encode.flattened(x)
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
    dtype = _of_type(_telling(items), floats)
    flat = len(shape) < 2 and default_encoding(dtype) == "flat"
    return Feature(dtype, shape, "flat" if flat else "tensorproto")


def _of_type(x: Any, floats: str) -> str:
    for kind in type(x).__mro__:
        if kind is float:
            return floats
        if kind in _BY_TYPE:
            return _BY_TYPE[kind]
    raise UnsupportedError(f"expected a tensor, a number, text, bytes or a list of them; got {encode.describe(x)}")


def _of_array(value: Tensor | Strings, shape: tuple[int | None, ...]) -> Feature:
    dtype = encode.string_dtype(value) if isinstance(value, Strings) else value.dtype
    if dtype in _FLAT and len(shape) < 2:
        return Feature(dtype, shape, "flat")
    known = dtype in _FLAT or dtypes.get(dtype).in_tensorflow
    return Feature(dtype, shape, "tensorproto" if known else "raw")
