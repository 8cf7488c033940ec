"""The values that the contract is checked with, as bits.

Every dtype of 8 bits or fewer appears with all its bit patterns. Wider ones appear with
both zeros, infinities, NaNs with payloads (quiet and signalling, of both signs),
subnormals, extremes, and bits drawn once from a fixed seed.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import dtypes

Array: TypeAlias = np.ndarray[Any, Any]

# The bits of the mantissa; the exponent takes what is left beside the sign.
_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
_COMPONENT = {"complex32": "float16", "bcomplex32": "bfloat16", "complex64": "float32", "complex128": "float64"}
_RANDOM = 40


def _float_specials(width: int, mantissa: int) -> list[int]:
    sign = 1 << width - 1
    infinity = sign - (1 << mantissa)
    quiet = 1 << mantissa - 1
    return [
        infinity | 1,  # a signalling NaN: arithmetic, even a cast and back, would change it
        sign,  # -0.0
        sign | infinity | quiet | 5,
        1,  # the least subnormal
        infinity | quiet | 3,
        sign | infinity,
        infinity,
        0,
        sign | infinity | 2,
        (1 << mantissa) - 1,  # the greatest subnormal
        sign | 1,
        1 << mantissa,  # the least normal number
        infinity - 1,  # the greatest finite number
        (infinity >> 1) & infinity,  # close to one
        sign | (1 << mantissa) | 9,
    ]


def _integer_specials(width: int) -> list[int]:
    top = 1 << width - 1
    return [top, 0, top - 1, 1, 2 * top - 1, 2 * top - 2, top | 1, int("5a" * (width // 8), 16)]


@cache
def patterns(name: str) -> Array:
    """The bit patterns of a dtype: one row of little-endian bytes for each."""
    row = dtypes.get(name)
    if name == "bool":
        return np.array([[1], [0]], np.uint8)
    if row.bits <= 8:
        # All of them, stirred, so that the first few are not merely the small numbers.
        count = 1 << row.bits
        return np.array([[(i * 37 + 0x7D) % count] for i in range(count)], np.uint8)
    if name in _COMPONENT:
        parts = patterns(_COMPONENT[name])
        return np.concatenate((parts, np.roll(parts, 4, axis=0)), axis=1)
    specials = _float_specials(row.bits, _MANTISSA[name]) if name in _MANTISSA else _integer_specials(row.bits)
    random = np.random.default_rng(row.code).integers(0, 256, (_RANDOM, row.itemsize), np.uint8)
    known = b"".join(special.to_bytes(row.itemsize, "little") for special in specials)
    return np.concatenate((np.frombuffer(known, np.uint8).reshape(-1, row.itemsize), random))


@cache
def content(name: str, shape: tuple[int, ...]) -> bytes:
    """The bytes of a tensor of this dtype and shape: its patterns, over and over."""
    rows, count = patterns(name), math.prod(shape)
    return rows[np.arange(count) % len(rows)].tobytes()


def every_pattern(name: str) -> bytes:
    """All bit patterns of a dtype of 16 bits."""
    assert dtypes.get(name).bits == 16
    return np.arange(1 << 16, dtype="<u2").tobytes()


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's or ml_dtypes' dtype, looked up without the code under test."""
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))
    return found


def array(name: str, shape: tuple[int, ...]) -> Array:
    """A fresh, writable, C-contiguous array."""
    return np.frombuffer(bytearray(content(name, shape)), numpy_dtype(name)).reshape(shape)


def keep_value_bits(name: str, raw: bytes) -> bytes:
    """Without the bits that carry nothing: those above a value of less than 8 bits."""
    bits = dtypes.get(name).bits if name in dtypes.DTYPES else 8
    return raw if bits >= 8 else (np.frombuffer(raw, np.uint8) & ((1 << bits) - 1)).tobytes()


def swap(raw: bytes, width: int) -> bytes:
    """Bytes with the order inside each group of `width` turned around."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width)[:, ::-1].tobytes()
