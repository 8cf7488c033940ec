"""A framework in one file: array.array of the standard library, which has one dimension and the types of C."""

from __future__ import annotations

import array
from typing import Any

import numpy as np

from tensorbytes import Tensor
from tensorbytes.errors import UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.tensor import Value, with_origin

# The top-level packages that its classes come from.
PACKAGES = ("array",)
_CODES = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
_CODES |= {"uint64": "Q", "float32": "f", "float64": "d"}


def to_value(x: Any) -> Value:
    """The neutral value; its memory is shared."""
    if x.typecode == "u":
        raise UnsupportedError("an array of characters", expected="one of numbers")
    found = numpy_adapter.to_value(np.asarray(x))
    return with_origin(found, {"framework": "array"})


def from_value(value: Value, device: str | None = None) -> Any:
    """The array of a neutral value."""
    if not isinstance(value, Tensor) or len(value.shape) != 1 or value.dtype not in _CODES:
        what = f"{value.dtype}{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__.lower()
        raise UnsupportedError("array.array holds numbers in one dimension", got=what)
    made = array.array(_CODES[value.dtype])
    made.frombytes(value.data)
    return made
