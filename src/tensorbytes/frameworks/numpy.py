"""NumPy: any strides, order, byte order and ml_dtypes; text in every form NumPy has."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.deferred import Deferred, in_fortran_order
from tensorbytes.errors import LIMITS, Hint, LimitError, UnsupportedError
from tensorbytes.structs import Structured
from tensorbytes.tensor import Array, Header, Strings, Tensor, Value, with_origin

# The dtypes that metadata may ask for: they carry a width or a unit that the value itself does not.
_FIXED_TEXT = re.compile(r"[<>|]?([US])(\d{1,9})")
_TIME = re.compile(r"[<>]?[mM]8(\[\d*(generic|Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")

# By whether they turn other objects into text, as NumPy's own words for them.
_STRING_DTYPES = {True: "StringDType", False: "StringDType(coerce=False)"}

# Dtypes that NumPy has no arrays of, so that slicing goes over their bits.
NUMPY_LACKS = frozenset(row.name for row in dtypes.DTYPES.values() if row.numpy is None)


def to_value(x: Any) -> Value:
    if isinstance(x, np.generic):
        if isinstance(x, str | bytes) and x and not ord(x[-1:]):
            plain = "str" if isinstance(x, str) else "bytes"
            raise UnsupportedError(
                f"NumPy drops the zeros at the end of a {type(x).__name__}", hints=[Hint(purpose=f"pass {plain}(x)")]
            )
        x = np.asarray(x)
    if isinstance(x, np.ma.MaskedArray):
        raise UnsupportedError(
            f"{type(x).__qualname__} carries more than its array, a mask, which np.asarray(x) would drop",
            hints=[
                Hint(purpose="pass x.filled(value)"),
                Hint(purpose="{'data': x.data, 'mask': np.ma.getmaskarray(x)} to keep both"),
            ],
        )
    if type(x) not in (np.ndarray, np.memmap):
        raise UnsupportedError(
            f"{type(x).__qualname__} carries more than its array (a unit, other rules of arithmetic)",
            hints=[Hint(purpose="pass np.asarray(x) to store the array alone")],
        )
    if x.dtype.kind in "OTUS":
        return _strings(x)
    row = dtypes.from_numpy(x.dtype)
    flat = _flat_bytes(x)
    if row.bits < 8 and np.any(flat > row.value_mask):
        flat = _without_high_bits(row, flat)
    check_bool(row.name, flat)
    value = Tensor(row.name, x.shape, flat)
    return (
        with_origin(value, {"numpy.dtype": x.dtype.newbyteorder("<").str})
        if row.name.endswith(("time64", "delta64"))
        else value
    )


def address_of(x: Any) -> int:
    if not isinstance(x, np.ndarray) or not x.nbytes:
        return 0
    address: int = x.__array_interface__["data"][0]
    return address


def place_of(x: Array) -> Hashable:
    return address_of(x), x.dtype, x.shape, x.strides


def _without_high_bits(row: dtypes.DType, flat: Array) -> Array:
    if row.name.startswith("float"):  # ml_dtypes reads a sign out of them, other readers don't
        raise UnsupportedError(f"a {row.name} array holds a byte over {row.value_mask}, which is not a value of it")
    return flat & row.value_mask  # of an integer they repeat the sign, or carry nothing


def _flat_bytes(x: Array) -> Array:
    """The elements in C order, little-endian; the array's own memory where it already is."""
    if x.dtype.byteorder == ">":
        if x.dtype.kind in "mM":
            x = x.view(">i8")  # NumPy does not swap times without a unit
        x = x.astype(x.dtype.newbyteorder("<"))
    if not x.flags.c_contiguous:
        x = x.copy(order="C")
    return x.reshape(-1).view(np.uint8)


def check_bool(name: str, flat: Array) -> None:
    """Bytes other than 0 and 1 are not booleans, and not every reader treats them alike."""
    if name == "bool" and flat.size and flat.max() > 1:
        raise UnsupportedError("a bool tensor holds a byte other than 0 and 1", hints=[Hint(purpose="pass (x != 0)")])


def _strings(x: Array) -> Strings:
    if x.dtype.kind == "T" and hasattr(x.dtype, "na_object"):
        raise UnsupportedError("a StringDType with a missing-value object has no portable form: fill it first")
    items = x.reshape(-1).tolist()
    kinds = {type(item) for item in items}
    if x.dtype.kind in "UT" or kinds == {str}:
        encoding = "utf-8"
    elif x.dtype.kind == "S" or kinds <= {bytes}:
        encoding = "bytes"
    else:
        other = next(((i, item) for i, item in enumerate(items) if not isinstance(item, str | bytes)), (0, items[0]))
        raise UnsupportedError(
            f"object array {x.shape}: only all-text or all-bytes arrays have a portable form; "
            f"element {other[0]} is {type(other[1]).__name__}"
            + (" among others" if isinstance(other[1], str | bytes) else "")
        )
    value = Strings.from_items(items, x.shape, encoding)
    if x.dtype.kind == "T":
        return with_origin(value, {"numpy.dtype": _STRING_DTYPES[x.dtype.coerce]})
    return value if x.dtype.kind == "O" else with_origin(value, {"numpy.dtype": x.dtype.newbyteorder("<").str})


def in_memory_order(x: Any) -> Deferred | None:
    """A plain array in Fortran order as it stands, for formats that keep the order; None for all others."""
    if type(x) not in (np.ndarray, np.memmap) or x.flags.c_contiguous or not x.flags.f_contiguous:
        return None
    if x.dtype.kind in "OTUS" or x.dtype.names is not None:
        return None
    reverse = to_value(x.T)
    assert isinstance(reverse, Tensor)
    return with_origin(in_fortran_order(reverse.dtype, x.shape, lambda: reverse), reverse.origin)


def from_value(value: Value | Deferred, device: str | None = None) -> Any:
    """An array; one that stands in Fortran order keeps it."""
    if device not in (None, "cpu", "original"):
        raise UnsupportedError(f"NumPy arrays live on the CPU, not on {device!r}")
    if isinstance(value, Structured):
        whole = value.array(from_value)
        return value.as_dict(from_value) if whole is None else whole[()] if value.struct.scalar else whole
    if isinstance(value, Deferred):
        reverse = value.reversed_axes()
        if reverse is not None:
            return _array(reverse).T
        value = value.load()
    if isinstance(value, Tensor):
        return _array(value)
    if isinstance(value, Strings):
        return _text(value)
    return value  # NumPy has nothing like Ragged or Sparse; ours are made of NumPy arrays


def _array(value: Tensor) -> Array:
    if value.dtype in ("datetime64", "timedelta64"):
        wanted = value.origin.get("numpy.dtype", "")
        letter = "M" if value.dtype == "datetime64" else "m"
        if not _TIME.fullmatch(wanted) or letter not in wanted[:2]:
            raise UnsupportedError(f"{value.dtype} without its unit: metadata 'numpy.dtype' is {wanted!r}")
        return value.bits().view(_dtype(wanted).newbyteorder("<"))
    return value.numpy()


def _text(value: Strings) -> Array:
    wanted = value.origin.get("numpy.dtype")
    plain = value.numpy()
    if wanted is None:
        return plain
    if wanted in _STRING_DTYPES.values() and value.encoding == "utf-8":
        return plain.astype(np.dtypes.StringDType(coerce=wanted == _STRING_DTYPES[True]))
    fixed = _FIXED_TEXT.fullmatch(wanted)
    if not fixed or (fixed[1] == "U") != (value.encoding == "utf-8"):
        raise UnsupportedError(f"metadata asks for the NumPy dtype {wanted!r}, which holds no {value.encoding} strings")
    width = int(fixed[2])
    if width * 4 * plain.size > LIMITS.max_bytes + value.nbytes:
        raise LimitError(f"metadata asks for {plain.size} strings of width {width}, over {LIMITS.max_bytes} bytes")
    nul = "\0" if value.encoding == "utf-8" else b"\0"
    if any(len(item) > width or item.endswith(nul) for item in plain.reshape(-1)):
        raise UnsupportedError(f"metadata asks for the NumPy dtype {wanted!r}, which would cut a string short")
    return plain.astype(_dtype(wanted))


def _dtype(name: str) -> np.dtype[Any]:
    """A dtype that metadata names, already of a sound form."""
    try:
        return np.dtype(name)
    except TypeError as error:
        raise UnsupportedError(f"metadata asks for the NumPy dtype {name!r}: {error}") from None


# ---- templates ----------------------------------------------------------------


def outline(x: Any) -> Header | None:
    """What an array is; None for text, which its items tell."""
    if x.dtype.kind in "OTUS":
        return None
    return Header("tensor", dtypes.from_numpy(x.dtype).name, x.shape, x.nbytes)


def like(value: Value, x: Any, device: str | None) -> Any:
    made = from_value(value, device)
    if x.dtype.kind in "mM" and made.dtype != x.dtype.newbyteorder("<"):
        raise UnsupportedError("times of another unit than the template's", expected=str(x.dtype), got=str(made.dtype))
    return made[()] if isinstance(x, np.generic) else made
