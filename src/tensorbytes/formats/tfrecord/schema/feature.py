"""Feature: what one feature of a record holds, and how it is stored.

An Example has three kinds of list: of bytes, of float32, of int64. The encoding says how
values of any dtype and shape go into one of them.

    flat         one list item for each value, in C order. Integers and bool go into an
                 int64 list, float32 and narrower floats into a float list (none of them
                 loses a bit there), text and bytes into a bytes list
    base64       the same for text and bytes, each written in base64
    tensorproto  the whole array as one serialized TensorProto, as tf.io.parse_tensor reads it
    raw          the whole array as its little-endian bytes, as tf.io.decode_raw reads it

Floats may be quantized in the last two, which is said with `quantize`: what is stored then are
narrower floats, or integers. In a TensorProto their scales stand beside them, in a field that
TensorFlow passes over; raw bytes have no room for that, so their scale is in the schema.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import LIMITS, Hint, UsageError, unknown
from tensorbytes.formats.tfrecord.schema import defaults as defaults
from tensorbytes.formats.tfrecord.schema import quantized
from tensorbytes.formats.tfrecord.schema.defaults import STRINGS, Shape, brief
from tensorbytes.quantization import Quantize
from tensorbytes.tensor import Array

KINDS = {"bytes": 1, "float": 2, "int64": 3}
ENCODINGS = ("flat", "tensorproto", "raw", "base64")
_FIELDS = ("dtype", "shape", "encoding", "optional", "default", "quantize")
# Dtypes that a list of float32 or int64 can't hold without loss, though it holds their kind.
_TOO_WIDE = {"float64": "a float list holds float32", "uint64": "an int64 list ends at 2**63 - 1"}
_TIMES = ("datetime64", "timedelta64")
_PYTHON_TYPES: dict[Any, str] = {int: "int64", str: "text", bytes: "bytes", bool: "bool"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Feature:
    """The dtype, the shape and the encoding of a feature, and what stands in for a missing one.

    None in the shape is a size that varies from record to record. A default makes the
    feature optional; it is a scalar or an array of the shape. `quantize` is what `Quantize.of`
    takes, such as "int8".
    """

    dtype: str
    shape: Shape = ()
    encoding: str = ""
    optional: bool = False
    default: Any = None
    quantize: Any = None
    # What follows from them, and is asked for with every block that is read.
    kind: str = field(init=False)  # the list that holds it: "bytes", "float" or "int64"
    kind_number: int = field(init=False)  # the field of that list in the message Feature: 1, 2 or 3
    size: int | None = field(init=False)  # the values in a record; None if that varies
    width: int | None = field(init=False)  # the list items in a record: 1 where they hold whole arrays

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        settle("dtype", dtype_name(self.dtype))
        _check_dtype(self.dtype)
        settle("shape", _checked_shape(self.shape, self.dtype))
        if self.quantize is not None:
            settle("quantize", Quantize.of(self.quantize))
            settle("encoding", quantized.checked_encoding(self.dtype, self.shape, self.encoding, self.quantize))
        settle("encoding", _checked_encoding(self.dtype, self.encoding))
        _check_varying(self.encoding, self.shape)
        settle("kind", _kind(self.dtype, self.encoding))
        settle("kind_number", KINDS[self.kind])
        settle("size", None if None in self.shape else math.prod(n or 0 for n in self.shape))
        settle("width", 1 if self.encoding in ("tensorproto", "raw") else self.size)
        if not isinstance(self.optional, bool):
            raise UsageError(f"optional must be True or False, got {brief(self.optional)}")
        if self.default is not None:
            if None in self.shape:
                raise UsageError(f"a default needs a shape without None, got {self.describe()}")
            settle("default", defaults.checked(self.dtype, self.shape, self.default))
            settle("optional", True)

    @classmethod
    def of(cls, spec: Any) -> Feature:
        """A feature from a short form.

        "int64" · ("float32", [28, 28]) · {"dtype": "text", "optional": True} · int, str,
        bytes, bool · a dtype of NumPy, TensorFlow, PyTorch or JAX · a Feature
        """
        if isinstance(spec, Feature):
            return spec
        if isinstance(spec, Mapping):
            for key in spec:
                if key not in _FIELDS:
                    raise unknown("field of a feature", key, _FIELDS)
            if "dtype" not in spec:
                raise UsageError(f"a feature needs a dtype, got {brief(dict(spec))}")
            return cls(**spec)
        if isinstance(spec, tuple):
            if len(spec) != 2:
                raise UsageError(f"expected a pair (dtype, shape), got {brief(spec)}")
            return cls(*spec)
        return cls(spec)

    def default_array(self) -> Array:
        """The default as a read-only array of the shape (of objects, for text and bytes)."""
        if self.default is None:
            raise UsageError(f"{self.describe()} has no default")
        return defaults.filled(self.dtype, tuple(n or 0 for n in self.shape), self.default)

    def describe(self) -> str:
        """In words: "float32[32]", "int64[?]", "text", "uint8[28, 28] as tensorproto"."""
        sizes = ", ".join("?" if n is None else str(n) for n in self.shape)
        stored = "" if self.encoding == default_encoding(self.dtype) else f" as {self.stored_as()}"
        return f"{self.dtype}{f'[{sizes}]' if self.shape else ''}{stored}"

    def stored_as(self) -> str:
        """The encoding, in words: "raw", "tensorproto of int8"."""
        return self.encoding if self.quantize is None else f"{self.encoding} of {self.quantize.describe()}"

    def _compared(self) -> tuple[Any, ...]:
        # repr, so that nan equals itself and -0.0 is not 0.0
        default = repr(defaults.plain(self.dtype, self.default))
        return self.dtype, self.shape, self.encoding, self.optional, default, self.quantize

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Feature):
            return NotImplemented
        return self is other or self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.encoding, self.optional))

    def __repr__(self) -> str:
        parts = [repr(self.dtype)]
        if self.shape:
            parts.append(repr(list(self.shape)))
        if self.encoding != default_encoding(self.dtype) or self.quantize is not None:
            parts.append(f"encoding={self.encoding!r}")
        if self.default is not None:
            parts.append(f"default={defaults.plain(self.dtype, self.default)!r}")
        elif self.optional:
            parts.append("optional=True")
        if self.quantize is not None:
            parts.append(f"quantize={self.quantize.options()!r}")
        return f"Feature({', '.join(parts)})"


def default_encoding(dtype: str) -> str:
    """Flat where a list holds the dtype as it is; else a TensorProto, or raw if TensorFlow lacks the dtype."""
    if dtype in STRINGS or (defaults.family(dtype) in ("bool", "int", "float") and dtype not in _TOO_WIDE):
        return "flat"
    return "tensorproto" if dtypes.get(dtype).in_tensorflow else "raw"


def dtype_name(spec: Any) -> str:
    """Our name for a dtype of Python, NumPy, TensorFlow, PyTorch or JAX; "text" and "bytes" for those of strings."""
    if spec is float or spec is complex:
        names = "'float32' or 'float64'" if spec is float else "'complex64' or 'complex128'"
        raise UsageError(f"{spec.__name__} does not say how wide", hints=[Hint(purpose=f"choose {names}")])
    if isinstance(spec, str) and spec in STRINGS:
        return spec
    if isinstance(spec, type) and spec in _PYTHON_TYPES:
        return _PYTHON_TYPES[spec]
    if isinstance(spec, np.dtype) or (isinstance(spec, type) and issubclass(spec, np.generic)):
        kind = np.dtype(spec).kind
        if kind in "UTS":
            return "bytes" if kind == "S" else "text"
    if getattr(spec, "name", None) == "string" and type(spec).__name__ == "DType":  # tf.string
        return "bytes"
    found = dtypes.find(spec)
    if found is not None:
        return found.name
    if isinstance(spec, str):
        raise unknown("dtype", spec[:60], {*STRINGS, *dtypes.DTYPES} - set(_TIMES))
    raise UsageError(
        "expected a feature: a dtype ('int64'), a pair ('float32', [28, 28]), a dict of "
        f"{', '.join(_FIELDS)}, or a Feature; got {brief(spec)}"
    )


# ---- checks -----------------------------------------------------------------


def check_name(name: Any) -> None:
    """Names are opaque: any text that protobuf can hold, never a path or a pattern."""
    if not isinstance(name, str):
        raise UsageError(f"the name of a feature must be text, got {brief(name)}")
    if not defaults.is_utf8(name):
        raise UsageError(f"the name {brief(name)} has no UTF-8 form: it holds a lone surrogate")


def _check_dtype(dtype: str) -> None:
    if dtype in _TIMES:
        raise UsageError(
            f"a schema has no place for the unit of {dtype}", hints=[Hint(purpose="store int64 and name the unit")]
        )


def _checked_shape(shape: Any, dtype: str) -> Shape:
    if isinstance(shape, str | bytes) or not hasattr(shape, "__iter__"):
        raise UsageError(f"shape must be a list, such as [28, 28] or [None], got {brief(shape)}")
    sizes = tuple(_checked_size(n) for n in shape)
    if len(sizes) > LIMITS.max_rank:
        raise UsageError(f"a shape of {len(sizes)} dimensions; at most {LIMITS.max_rank} are possible")
    width = 1 if dtype in STRINGS else dtypes.get(dtype).itemsize
    if math.prod(n for n in sizes if n) * width >= 1 << 63:
        raise UsageError(f"shape {brief(list(sizes))} of {dtype} takes 2**63 bytes or more")
    return sizes


def _checked_size(n: Any) -> int | None:
    if n is None:
        return None
    try:
        size = -1 if isinstance(n, bool) else operator.index(n)
    except TypeError:
        size = -1
    if not 0 <= size < 1 << 63:
        raise UsageError(f"a size in a shape must be an integer from 0 to 2**63 - 1, or None, got {brief(n)}")
    return size


def _checked_encoding(dtype: str, encoding: Any) -> str:
    if encoding == "":
        return default_encoding(dtype)
    if encoding not in ENCODINGS:
        raise unknown("encoding", encoding[:60] if isinstance(encoding, str) else encoding, ENCODINGS)
    reason = _misfit(dtype, encoding)
    if reason:
        raise UsageError(f"{dtype} can't be stored as {encoding}: {reason}")
    return str(encoding)


def _misfit(dtype: str, encoding: str) -> str:
    """Why a dtype and an encoding don't go together; "" if they do."""
    if encoding == "base64":
        return "" if dtype in STRINGS else "base64 is for text and bytes; use 'tensorproto' or 'raw'"
    if dtype in STRINGS:
        return "strings have no raw form; use 'flat', 'base64' or 'tensorproto'" if encoding == "raw" else ""
    if encoding == "flat" and default_encoding(dtype) != "flat":
        return f"{_TOO_WIDE.get(dtype, 'no list holds it')}; use '{default_encoding(dtype)}'"
    if encoding == "tensorproto" and not dtypes.get(dtype).in_tensorflow:
        return f"TensorFlow has no such dtype; use '{default_encoding(dtype)}'"
    return ""


def _kind(dtype: str, encoding: str) -> str:
    if encoding != "flat" or dtype in STRINGS:
        return "bytes"
    return "float" if defaults.family(dtype) == "float" else "int64"


def _check_varying(encoding: str, shape: Shape) -> None:
    """A TensorProto knows its own shape; elsewhere the number of values must tell the one that varies."""
    if encoding == "tensorproto" or None not in shape:
        return
    if shape.count(None) > 1:
        raise UsageError(
            f"shape {list(shape)} varies in {shape.count(None)} dimensions, but {encoding} values can tell only one",
            hints=[Hint("encoding", "tensorproto", of="Feature")],
        )
    if 0 in shape:
        raise UsageError(f"shape {list(shape)} has no values that could tell the size of the dimension that varies")
