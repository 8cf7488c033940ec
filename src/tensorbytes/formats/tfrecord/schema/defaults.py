"""Defaults: the values that stand in for a missing feature.

A default is a scalar, which fills whatever shape the feature has, or an array of exactly
that shape. It is checked against the dtype once, when the feature is built, and kept as a
Python scalar or as a read-only NumPy array. Floats are rounded to the dtype, as any value
written would be; nothing else is changed to make it fit.

In JSON a default is a scalar or nested lists of them. JSON lacks some scalars:

    nan, inf and -inf   the strings "nan", "inf", "-inf"
    complex numbers     [real, imaginary]
    bytes               base64
"""

from __future__ import annotations

import base64
import binascii
import math
import operator
import reprlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import UsageError
from tensorbytes.tensor import Array

Shape = tuple[int | None, ...]
STRINGS = ("text", "bytes")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SHOWN = 100
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 60


def family(dtype: str) -> str:
    """The kind of value: text, bytes, bool, int, float, complex; "" for those that NumPy has no numbers for."""
    if dtype in (*STRINGS, "bool"):
        return dtype
    if dtype.startswith(("int", "uint")):
        return "int"
    if "complex" in dtype:
        return "complex"
    return "float" if "float" in dtype else ""


def brief(value: Any) -> str:
    """A value in a message: recognisable, and never long."""
    try:
        text = _BRIEF.repr(value)
    except ValueError:  # Python refuses to spell integers of over 4300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# ---- checking ---------------------------------------------------------------


def checked(dtype: str, shape: Shape, value: Any) -> Any:
    """The default as it is kept: a Python scalar, or a read-only array of the shape."""
    if not family(dtype):
        raise UsageError(f"{dtype} can't have a default: NumPy has no numbers of it")
    if hasattr(value, "__array__"):
        try:
            value = np.asarray(value).tolist()
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"a default must be a number, text, bytes or an array: {error}") from None
    if not isinstance(value, list | tuple):
        scalar: Any = _plain_items(dtype, _array(dtype, [value]))[0]
        return scalar
    array = _array(dtype, list(_flattened(value, shape, shape))).reshape([n or 0 for n in shape])
    array.flags.writeable = False
    return array


def _flattened(value: Any, left: Shape, shape: Shape) -> Iterator[Any]:
    """The elements of nested lists in C order. Goes no deeper than the shape does."""
    if not left:
        yield value
        return
    if not isinstance(value, list | tuple) or len(value) != left[0]:
        raise UsageError(f"a default must be a scalar or have the feature's shape {list(shape)}, got {brief(value)}")
    for item in value:
        yield from _flattened(item, left[1:], shape)


def _array(dtype: str, items: list[Any]) -> Array:
    kind = family(dtype)
    if kind in STRINGS:
        return _string_array(dtype, items)
    if kind == "int":
        return _int_array(dtype, items)
    if kind == "bool":
        for item in items:
            if not isinstance(item, bool):
                raise _misfit(dtype, item, "True or False")
        return np.array(items, np.bool_)
    return _float_array(dtype, items) if kind == "float" else _complex_array(dtype, items)


def _misfit(dtype: str, item: Any, expected: str) -> UsageError:
    return UsageError(f"a default for {dtype} must be {expected}, got {brief(item)}")


def _string_array(dtype: str, items: list[Any]) -> Array:
    wanted = str if dtype == "text" else bytes
    for item in items:
        if type(item) is not wanted:
            raise _misfit(dtype, item, wanted.__name__)
        if isinstance(item, str) and not is_utf8(item):
            raise _misfit(dtype, item, "text with a UTF-8 form (no lone surrogates)")
    array = np.empty(len(items), object)
    array[:] = items
    return array


def is_utf8(text: str) -> bool:
    """Whether text can be stored: a lone surrogate has no UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _int_array(dtype: str, items: list[Any]) -> Array:
    bits = dtypes.get(dtype).bits
    low, high = (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    for item in items:
        try:
            fits = not isinstance(item, bool) and low <= operator.index(item) <= high
        except TypeError:
            fits = False
        if not fits:
            raise _misfit(dtype, item, f"an integer from {low} to {high}")
    return np.array(items, np.uint64 if dtype == "uint64" else np.int64).astype(dtypes.to_numpy(dtype))


def _float_array(dtype: str, items: list[Any]) -> Array:
    wide = np.array([_number(float, dtype, item) for item in items], np.float64)
    with np.errstate(all="ignore"):
        array = wide.astype(dtypes.to_numpy(dtype))
        back = array.astype(np.float64)
        info = ml_dtypes.finfo(array.dtype)
        room = np.maximum(np.abs(wide) * float(info.eps), float(info.smallest_subnormal))
        near = (np.abs(wide - back) <= room) & ((wide != 0) | (back == 0)) & np.isfinite(back)
        good = np.where(np.isfinite(wide), near, (wide == back) | (np.isnan(wide) & np.isnan(back)))
    _refuse_first(dtype, items, good)
    return array


def _complex_array(dtype: str, items: list[Any]) -> Array:
    wide = np.array([_number(complex, dtype, item) for item in items], np.complex128)
    with np.errstate(all="ignore"):
        array = wide.astype(dtypes.to_numpy(dtype))
        back = array.astype(np.complex128)
    same = (np.isfinite(wide.real) == np.isfinite(back.real)) & (np.isfinite(wide.imag) == np.isfinite(back.imag))
    _refuse_first(dtype, items, same)
    return array


def _number(convert: type[float] | type[complex], dtype: str, item: Any) -> Any:
    if not isinstance(item, bool | str | bytes):
        try:
            return convert(item)
        except (TypeError, ValueError, OverflowError):
            pass
    raise _misfit(dtype, item, "a number")


def _refuse_first(dtype: str, items: list[Any], good: Array) -> None:
    if not good.all():
        raise _misfit(dtype, items[int(np.argmin(good))], "a number that it can hold")


# ---- other forms ------------------------------------------------------------


def _plain_items(dtype: str, array: Array) -> list[Any]:
    """The elements as Python scalars. For a narrow float, the shortest number that is rounded to it."""
    if dtype in ("float16", "float32"):
        return [float(str(item)) for item in array.reshape(-1)]
    items: list[Any] = array.reshape(-1).tolist()
    return items


def plain(dtype: str, default: Any) -> Any:
    """The default as Python scalars and nested lists of them: what builds it again."""
    if isinstance(default, np.ndarray):
        return _nested(iter(_plain_items(dtype, default)), default.shape)
    return default


def _nested(items: Iterator[Any], shape: tuple[int, ...]) -> Any:
    return [_nested(items, shape[1:]) for _ in range(shape[0])] if shape else next(items)


def filled(dtype: str, shape: tuple[int, ...], default: Any) -> Array:
    """The default as a read-only array of the shape (of objects, for text and bytes)."""
    if isinstance(default, np.ndarray):
        return default
    return np.broadcast_to(_array(dtype, [default]).reshape(()), shape)


def to_json(dtype: str, default: Any) -> Any:
    if isinstance(default, np.ndarray):
        return _nested((_element_to_json(item) for item in _plain_items(dtype, default)), default.shape)
    return _element_to_json(default)


def _element_to_json(item: Any) -> Any:
    if isinstance(item, bytes):
        return base64.b64encode(item).decode()
    if isinstance(item, complex):
        return [_element_to_json(item.real), _element_to_json(item.imag)]
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def from_json(dtype: str, rank: int, value: Any) -> Any:
    """What `checked` takes, from what JSON holds. Goes no deeper than the rank."""
    # A list of two that are not lists can only be one complex number: in an array these are lists.
    pair = family(dtype) == "complex" and isinstance(value, list) and len(value) == 2
    if pair and not any(isinstance(part, list) for part in value):
        real, imaginary = (_number(float, dtype, _element_from_json("float", part)) for part in value)
        return complex(real, imaginary)
    if not isinstance(value, list):
        return _element_from_json(family(dtype), value)
    if not rank:
        raise _misfit(dtype, value, "of the feature's shape, and no deeper")
    return [from_json(dtype, rank - 1, item) for item in value]


def _element_from_json(kind: str, item: Any) -> Any:
    if kind == "float" and isinstance(item, str):
        return _NOT_FINITE.get(item, item)
    if kind == "complex":
        raise _misfit(kind, item, "[real, imaginary]")
    if kind != "bytes":
        return item
    try:
        return base64.b64decode(item, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _misfit(kind, item, "base64") from None
