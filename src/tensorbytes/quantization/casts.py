"""Casts: floats rounded to a narrower float type, to nearest, ties to even."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import UnsupportedError
from tensorbytes.quantization.blocks import scratch
from tensorbytes.tensor import Array


def narrow(values: Array, stored: str) -> Array:
    """Values as a narrower type, each rounded once. `check_held` tells whether it can hold them."""
    wanted = dtypes.to_numpy(stored)
    with np.errstate(all="ignore"):
        if values.dtype.itemsize == 8 and stored not in ("float32", "float16"):
            values = _to_odd_float32(values)  # ml_dtypes goes through float32 and would round twice
        if stored == "bfloat16":
            return _to_bfloat16(values)
        out: Array = values.astype(wanted)
        return out


def _to_bfloat16(values: Array) -> Array:
    """The upper half of a float32, rounded: several times as fast as a cast of ml_dtypes."""
    bits = values.view("<u4")
    out = np.right_shift(bits, 16, out=scratch("rounded", bits.shape, "<u4"))
    out &= 1
    out += bits
    out += 0x7FFF
    out >>= 16
    if np.isnan(values.max(initial=0)):
        out = np.where(np.isnan(values), bits >> 16 | 0x40, out)
    half: Array = out.astype("<u2").view(dtypes.to_numpy("bfloat16"))
    return half


def widen(values: Array, original: str) -> Array:
    """Values in the type that they had. Exact."""
    wanted = dtypes.to_numpy(original)
    if values.dtype.itemsize == 1:
        known: Array = _table(values.dtype.name, original)[values.view(np.uint8)]
        return known
    if values.dtype.name == "bfloat16" and original == "float32":
        bits: Array = values.view("<u2").astype("<u4") << 16
        return bits.view("<f4")
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted
        out: Array = values.astype(wanted)
    return out


@cache
def _table(stored: str, original: str) -> Array:
    """The value of each byte."""
    dtype = dtypes.to_numpy(stored)
    known = np.arange(1 << dtypes.get(stored).bits, dtype=np.uint8).view(dtype)
    table = np.zeros(256, dtypes.to_numpy(original))
    with np.errstate(invalid="ignore"):
        table[: len(known)] = known.astype(np.float32).astype(table.dtype)
    return table


def _to_odd_float32(values: Array) -> Array:
    """Rounded towards zero, with the last bit set if anything was cut off: rounding on, to 22 bits or
    fewer, gives what rounding at once would have given."""
    near = values.astype(np.float32)
    wide = near.astype(np.float64)
    bits = near.view(np.uint32)
    bits -= np.abs(wide) > np.abs(values)
    bits |= (wide != values) & ~np.isnan(values)
    return near


def check_held(values: Array, back: Array, stored: str) -> None:
    """Refuse finite values that did not stay so, and infinities and NaN that did not stay what they are."""
    finite, most = np.isfinite(values), float(ml_dtypes.finfo(dtypes.to_numpy(stored)).max)
    if saturates(stored):
        wrong = ~finite | (np.abs(values) > most)
    else:
        wrong = (np.isfinite(back) != finite) | (np.isnan(back) != np.isnan(values))
    if wrong.any():
        value = float(values[wrong].reshape(-1)[0])
        lacks = "" if np.isfinite(value) else f", and it has no {'nan' if np.isnan(value) else 'inf'}"
        raise UnsupportedError(f"{stored} can't hold {value!r}; its largest value is {most:.6g}{lacks}")


def saturates(stored: str) -> bool:
    """Whether what is too large would become the largest value: such types have neither infinities nor NaN."""
    return dtypes.get(stored).bits < 8
