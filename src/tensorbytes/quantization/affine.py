"""Affine quantization: value = (integer - zero) * scale.

Only the way back is part of a file's format (parameters.py defines it); how scales are chosen
and values rounded is this writer's business.
"""

from __future__ import annotations

import numpy as np

from tensorbytes import dtypes
from tensorbytes.quantization import casts
from tensorbytes.quantization.blocks import scratch
from tensorbytes.quantization.parameters import MOST_ZERO, arithmetic
from tensorbytes.tensor import Array

# Zeros up to this size, and integers of 16 bits, are exact in float32, and so is their difference.
_EXACT_ZERO = 1 << 23
# Within this many steps of zero, float32 finds the nearest integer to within a thousandth of a step.
_NEAR = 1 << 14


# ---- the integers of a dtype ------------------------------------------------


def limits(stored: str, bits: int | None = None) -> tuple[int, int]:
    """The least and the greatest integer; with `bits`, of an unsigned number of so many bits.

    Of int32 only the part that keeps every zero within 32 bits is used.
    """
    if bits is None:
        bits = dtypes.get(stored).bits
        if stored == "int32":
            return -MOST_ZERO, MOST_ZERO
        if not stored.startswith("u"):
            return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


def memory(stored: str) -> np.dtype[np.generic]:
    """The integers as NumPy holds them: those under 8 bits as bytes."""
    row = dtypes.get(stored)
    return np.dtype("u1") if row.bits < 8 else np.dtype(stored).newbyteorder("<")


def signed(raw: Array, stored: str) -> Array:
    """Stored bytes as numbers: an int4 of -1 is stored as 15."""
    bits = dtypes.get(stored).bits
    if bits >= 8 or stored.startswith("u"):
        return raw
    half = 1 << bits - 1
    extended: Array = ((raw ^ half) - np.uint8(half)).view(np.int8)
    return extended


# ---- choosing scales --------------------------------------------------------


def ranged(low: Array, high: Array, original: str, span: tuple[int, int]) -> tuple[Array, Array]:
    """(scales, zeros) that map [low, high] onto the integers of `span`, as tightly as possible."""
    least, most = span
    steps = most - least
    peak = np.maximum(np.abs(low), np.abs(high))
    # Each bound by itself: their difference may lie beyond the last float. Far from 0, zeros
    # would outgrow 32 bits.
    with np.errstate(over="ignore"):
        scale = np.maximum(high / steps - low / steps, peak / (1 << 30))
        scale = _covering(scale, high - low, steps, peak, original)
    constant = low == high
    zero = np.where(constant, least + (low < 0), least - np.rint(low / scale))
    return scale, np.clip(zero, -MOST_ZERO, MOST_ZERO).astype("<i4")


def centred(low: Array, high: Array, original: str, steps: int) -> Array:
    """Scales that map the larger of |low| and |high| onto `steps`."""
    peak = np.maximum(np.abs(low), np.abs(high))
    return _covering(peak / steps, np.where(low == high, 0, peak), steps, peak, original)


def _covering(scale: Array, width: Array, steps: int, peak: Array, original: str) -> Array:
    """Scales in their own precision, of which `steps` are no less than `width`: no value falls beyond
    the last integer. A single value is its own scale, and exact."""
    dtype = arithmetic(original)
    scale = np.where(width == 0, np.where(peak == 0, 1.0, peak), scale)
    with np.errstate(over="ignore", under="ignore"):
        out = scale.astype(dtype)
        short = out.astype(np.float64) * steps < width
        out = np.where(short, np.nextafter(out, dtype.type(np.inf)), out)
    info = np.finfo(dtype)
    held: Array = np.clip(out, info.smallest_subnormal, info.max).astype(dtype)
    return held


# ---- there and back ---------------------------------------------------------


def is_near(span: tuple[int, int], zero: Array | None) -> bool:
    """Whether float32 is enough to find the nearest integer."""
    return span[1] - span[0] < _NEAR and (zero is None or bool((np.abs(zero) < _NEAR).all()))


def to_integers(
    values: Array, scale: Array, zero: Array | None, span: tuple[int, int], strict: bool
) -> tuple[Array, Array | None]:
    """(the nearest integers, as floats, none outside the span; if `strict`, which of them would be)."""
    wide = np.dtype(np.float32 if values.dtype.itemsize < 8 and is_near(span, zero) else np.float64)
    with np.errstate(over="ignore"):  # of a given scale there may be too many steps to count
        out = np.divide(values, scale, out=scratch("numbers", values.shape, wide), dtype=wide)
    np.rint(out, out=out)
    if zero is not None:
        out += zero.astype(wide)
    beyond = ~((out >= span[0]) & (out <= span[1])) if strict else None
    return np.clip(out, span[0], span[1], out=out), beyond


def raw(numbers: Array, stored: str) -> Array:
    """Integers as they are stored."""
    bits = dtypes.get(stored).bits
    if bits >= 8:
        return numbers.astype(memory(stored))
    return numbers.astype(np.int8).view(np.uint8) & np.uint8((1 << bits) - 1)


def to_values(integers: Array, scale: Array, zero: Array | None, original: str, out: Array) -> None:
    """The way back, into `out`, which has the original dtype."""
    wide = arithmetic(original)
    product = out if original == wide.name else scratch("product", out.shape, wide)
    with np.errstate(over="ignore", under="ignore"):
        if zero is None:
            np.multiply(integers, scale, out=product, dtype=wide)
        else:
            if integers.dtype.itemsize <= 2 and bool((np.abs(zero) < _EXACT_ZERO).all()):
                np.subtract(integers, zero, out=product, dtype=wide, casting="unsafe")
            else:
                product[...] = integers.astype(np.int64) - zero
            product *= scale
        if product is not out:
            out[...] = casts.narrow(product, original)
