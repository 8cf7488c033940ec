"""Single values to what a feature stores: checked against its dtype, never cast with loss.

An array must have the feature's dtype; an integer array may also have a narrower one, whose
values are all values of the feature's dtype. Python numbers and lists have no dtype of their
own: they take the feature's, floats rounded to it, integers within its range; those that float64 would
round are refused.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tensorbytes import dtypes, frameworks
from tensorbytes._wire import varint
from tensorbytes.errors import Hint, TensorbytesError, UnsupportedError
from tensorbytes.formats import _tensorproto
from tensorbytes.formats.tfrecord.schema import Feature, quantized
from tensorbytes.tensor import Array, InvalidValueError, Strings, Tensor

STRINGS = ("text", "bytes")
Shape = tuple[int, ...]
_BYTES_LIKE = (bytes, bytearray, memoryview)
_PYTHON_NUMBERS = (bool, int, float, complex)


class Misfit(TensorbytesError):
    """A value that is not what its feature holds.

    `shape`: only the shape differs, and this is it. `missing`: there is no value. `row`: which
    one of those that came together.
    """

    row = 0

    def __init__(
        self,
        expected: object,
        got: object,
        shape: Shape | None = None,
        missing: bool = False,
        hints: Iterable[Hint] = (),
    ) -> None:
        super().__init__(expected=expected, got=got, hints=hints)
        self.shape, self.missing = shape, missing


def named(dtype: str, shape: Shape) -> str:
    """A value as Feature.describe() would say it: "float32[2, 3]", "text"."""
    return f"{dtype}{list(shape)}" if shape else dtype


def fits(shape: Shape, wanted: tuple[int | None, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(want is None or n == want for n, want in zip(shape, wanted, strict=True))


def check_shape(dtype: str, shape: Shape, feature: Feature) -> None:
    if not fits(shape, feature.shape):
        raise Misfit(feature.describe(), named(dtype, shape), shape)


# ---- numbers ----------------------------------------------------------------


@cache
def limits(dtype: str) -> tuple[int, int] | None:
    """The least and the greatest value of an integer dtype; None for others."""
    if not dtype.startswith(("int", "uint")):
        return None
    bits = dtypes.get(dtype).bits
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def tensor(x: Any, feature: Feature) -> Tensor:
    """Any number, array or nested list of numbers as a value of exactly the feature's dtype and a shape that fits."""
    if isinstance(x, _PYTHON_NUMBERS) and not isinstance(x, np.generic):
        value = _from_python([x], (), feature)
    elif isinstance(x, list | tuple):
        items, shape = flattened(x)
        if items and all(isinstance(item, np.generic) for item in items):
            value = of_dtype(_stacked(items, feature, shape), feature)
        else:
            value = _from_python(items, shape, feature)
    else:
        value = of_dtype(dense(x, feature), feature)
    check_shape(value.dtype, value.shape, feature)
    return value


def flattened(x: Any) -> tuple[list[Any], Shape]:
    """The leaves of nested lists in C order, and their shape."""
    items, shape = list(x), [len(x)]
    while items and isinstance(items[0], list | tuple):
        size = len(items[0])
        if not all(isinstance(item, list | tuple) and len(item) == size for item in items):
            raise Misfit(
                "lists of equal length inside a list", "lists of different lengths, or other values beside them"
            )
        items = list(itertools.chain.from_iterable(items))
        shape.append(size)
    return items, tuple(shape)


def _stacked(items: list[Any], feature: Feature, shape: Shape) -> Tensor:
    kinds = {item.dtype for item in items}
    if len(kinds) > 1:
        raise Misfit(feature.describe(), f"a list of {', '.join(sorted(str(kind) for kind in kinds))}")
    return dense(np.array(items, kinds.pop()).reshape(shape), feature)


def dense(x: Any, feature: Feature) -> Tensor:
    """The neutral value of an array."""
    if not frameworks.of(x):
        raise Misfit(feature.describe(), describe(x))
    value = frameworks.to_value(x)
    if isinstance(value, Strings):
        raise Misfit(feature.describe(), named(string_dtype(value), value.shape))
    if not isinstance(value, Tensor):
        raise UnsupportedError(
            f"a {type(value).__name__.lower()} value can't be a feature of one record",
            hints=[Hint(purpose="store its parts, or its dense form, as features")],
        )
    return value


def check_dtype(value: Tensor, feature: Feature) -> None:
    """Refuse numbers that the feature's dtype does not hold."""
    own, wanted = limits(value.dtype), limits(feature.dtype)
    if value.dtype == feature.dtype or (own and wanted and wanted[0] <= own[0] and own[1] <= wanted[1]):
        return
    raise Misfit(
        feature.describe(),
        f"{named(value.dtype, value.shape)}, and arrays are not cast with loss",
        hints=[Hint(purpose="cast it"), Hint(purpose="say so in the schema")],
    )


def of_dtype(value: Tensor, feature: Feature) -> Tensor:
    """The same, widened to the feature's integers if need be."""
    check_dtype(value, feature)
    if value.dtype == feature.dtype:
        return value
    wide = value.numpy().astype(dtypes.to_numpy(feature.dtype))
    return Tensor(feature.dtype, value.shape, wide.reshape(-1).view(np.uint8))


def _from_python(items: list[Any], shape: Shape, feature: Feature) -> Tensor:
    if feature.dtype == "bool":
        array = _of_types(items, shape, feature, {bool}, np.bool_)
    elif limits(feature.dtype) is not None:
        array = _integers(items, shape, feature)
    elif "complex" in feature.dtype or "float" in feature.dtype:
        array = _floats(items, shape, feature)
    else:
        raise Misfit(feature.describe(), describe_items(items, shape), hints=[Hint(purpose="pass an array")])
    return Tensor(feature.dtype, shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _of_types(items: list[Any], shape: Shape, feature: Feature, types: set[type], dtype: Any) -> Array:
    if not set(map(type, items)) <= types:
        raise Misfit(feature.describe(), describe_items(items, shape))
    return np.array(items, dtype)


def _integers(items: list[Any], shape: Shape, feature: Feature) -> Array:
    if not all(isinstance(item, int) and type(item) is not bool for item in items):
        raise Misfit(feature.describe(), describe_items(items, shape))
    bounds = limits(feature.dtype)
    assert bounds is not None
    low, high = bounds
    for item in items:
        if not low <= item <= high:
            raise Misfit(feature.describe(), f"{item}, which is outside {low}..{high}")
    return np.array(items, np.uint64 if high > 1 << 63 else np.int64).astype(dtypes.to_numpy(feature.dtype))


def _floats(items: list[Any], shape: Shape, feature: Feature) -> Array:
    types: set[type] = {int, float, complex} if "complex" in feature.dtype else {int, float}
    wide_dtype = np.complex128 if "complex" in feature.dtype else np.float64
    try:
        wide = _of_types(items, shape, feature, types, wide_dtype)
    except OverflowError:
        raise Misfit(feature.describe(), "an integer too large for any float") from None
    with np.errstate(all="ignore"):
        narrow = wide.astype(dtypes.to_numpy(feature.dtype))
        close = _rounded(wide.view(np.float64), narrow.astype(wide_dtype).view(np.float64), narrow.dtype)
    if not close.all():
        first = items[int(np.argmin(close)) // (wide.itemsize // 8)]
        raise Misfit(feature.describe(), f"{first!r}, which {feature.dtype} can't hold")
    if feature.dtype in ("float64", "complex128"):
        _check_exact(items, feature)
    return narrow


def _check_exact(items: list[Any], feature: Feature) -> None:
    """Raise over an integer that float64 would round: nobody asked for that, as by a narrower float."""
    for item in items:
        if type(item) is int and int(float(item)) != item:
            raise Misfit(feature.describe(), f"{item}, which {feature.dtype} can't hold exactly")


def _rounded(wide: Array, back: Array, dtype: np.dtype[Any]) -> Array:
    """Whether values were changed by no more than rounding: they stay finite, NaN or infinite."""
    info = ml_dtypes.finfo(dtype)
    room = np.maximum(np.abs(wide) * (float(info.eps) / 2), float(info.smallest_subnormal))
    near = (np.abs(wide - back) <= room) & np.isfinite(back) & ((wide != 0) | (back == 0))
    close: Array = np.where(np.isfinite(wide), near, (wide == back) | (np.isnan(wide) & np.isnan(back)))
    return close


def stored(value: Tensor, kind: str) -> Array:
    """The values as a float or int64 list holds them: 1-D, float32 or int64; a view where they are that already."""
    wanted = "<f4" if kind == "float" else "<i8"
    if value.dtype == ("float32" if kind == "float" else "int64"):
        return np.frombuffer(value.data, wanted)
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted
        return value.numpy().reshape(-1).astype(wanted)


# ---- strings ----------------------------------------------------------------


def string_dtype(value: Strings) -> str:
    return "text" if value.encoding == "utf-8" else "bytes"


def string_items(x: Any, feature: Feature) -> tuple[list[bytes], Shape]:
    """Text, bytes, or lists or arrays of them, as bytes in C order, with a shape that fits."""
    shape: Shape = ()
    if isinstance(x, str | bytes | bytearray | memoryview):
        items = [_encoded(x, feature, ())]
    elif isinstance(x, list | tuple):
        leaves, shape = flattened(x)
        items = [_encoded(leaf, feature, shape) for leaf in leaves]
    else:
        value = strings(x, feature)
        shape = value.shape
        bounds = value.offsets.tolist()
        items = [bytes(value.data[a:b]) for a, b in itertools.pairwise(bounds)]
    check_shape(feature.dtype, shape, feature)
    return items, shape


def _encoded(x: Any, feature: Feature, shape: Shape) -> bytes:
    if feature.dtype == "text" and isinstance(x, str):
        try:
            return x.encode()
        except UnicodeEncodeError:
            raise Misfit(feature.describe(), "text with a lone surrogate, which has no UTF-8 form") from None
    if feature.dtype == "bytes" and isinstance(x, _BYTES_LIKE):
        return bytes(x)
    raise Misfit(feature.describe(), describe(x) if not shape else f"a list with {describe(x)} in it")


def strings(x: Any, feature: Feature) -> Strings:
    """An array of strings in the feature's encoding; bytes may be text if they are UTF-8, text is not bytes."""
    if not frameworks.of(x):
        raise Misfit(feature.describe(), describe(x))
    value = frameworks.to_value(x)
    if not isinstance(value, Strings):
        got = named(value.dtype, value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__} value"
        raise Misfit(feature.describe(), got)
    return as_encoding(value, feature)


def as_encoding(value: Strings, feature: Feature) -> Strings:
    if string_dtype(value) == feature.dtype:
        return value
    if feature.dtype == "bytes":
        raise Misfit(
            feature.describe(),
            named("text", value.shape),
            hints=[Hint(purpose="encode it"), Hint(purpose="say text in the schema")],
        )
    try:
        return Strings(value.shape, value.offsets, value.data, "utf-8")
    except InvalidValueError as error:
        raise Misfit(feature.describe(), f"{named('bytes', value.shape)}, and {error.fault}") from None


to_base64 = base64.b64encode


# ---- whole arrays in one string ---------------------------------------------


def proto_head(dtype: str, shape: Shape, nbytes: int) -> bytes:
    """A TensorProto of numbers up to its content."""
    head = _tensorproto.head(dtypes.get(dtype).code, shape)
    return head + _tensorproto.CONTENT_TAG + varint(nbytes) if nbytes else head


def cell(x: Any, feature: Feature) -> tuple[bytes, bytes]:
    """The head and the content of a value stored as a TensorProto or raw."""
    if feature.dtype in STRINGS:
        items, shape = string_items(x, feature)
        value = Strings(shape, np.cumsum([0, *map(len, items)], dtype=np.int64), b"".join(items))
        return _tensorproto.head(dtypes.STRING_CODE, shape), bytes(_tensorproto.body(value)[1])
    number = tensor(x, feature)
    if feature.quantize is not None:
        try:
            return quantized.cell(number, feature.quantize, feature.encoding)
        except UnsupportedError as error:
            raise Misfit(
                feature.describe(), f"{named(number.dtype, number.shape)}, of which {error.fault}", hints=error.hints
            ) from None
    head = b"" if feature.encoding == "raw" else proto_head(number.dtype, number.shape, number.nbytes)
    return head, bytes(number.data)


# ---- words ------------------------------------------------------------------


def describe(x: Any) -> str:
    """What a value is, for messages."""
    if x is None:
        return "None"
    if isinstance(x, list | tuple):
        try:
            return describe_items(*flattened(x))
        except Misfit:
            return f"a {type(x).__name__} of lists of different lengths"
    if isinstance(x, str | bytes | bytearray | memoryview):
        return type(x).__name__
    if isinstance(x, _PYTHON_NUMBERS) and not isinstance(x, np.generic):
        return f"the {type(x).__name__} {str(x)[:40]}"
    if frameworks.of(x):
        value = frameworks.to_value(x)
        if isinstance(value, Strings):
            return named(string_dtype(value), value.shape)
        return named(value.dtype, value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__} value"
    return f"a {type(x).__module__}.{type(x).__qualname__}"


def describe_items(items: list[Any], shape: Shape) -> str:
    if not shape:
        return describe(items[0])
    kinds = sorted({type(item).__name__ for item in items})
    sizes = " x ".join(map(str, shape))
    return f"a list of {sizes} {', '.join(kinds[:4])}".rstrip() if items else f"an empty list ({sizes})"
