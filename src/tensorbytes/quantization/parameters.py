"""Quantization: what the way back needs, and what the way there has cost.

The way back is the same on every machine and in every framework, since each step is one
operation of IEEE 754, rounded to nearest, ties to even:

    cast    the stored float, widened, which is exact
    affine  integer - zero (exact), as a float, times scale, rounded to the original dtype;
            the floats in between are float64 if the original is, else float32
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.tensor import Array, InvalidValueError

ORIGINALS = ("float64", "float32", "float16", "bfloat16")
# float8_e8m0fnu is missing: it has neither a sign nor a zero.
CASTS = (
    "float32", "bfloat16", "float16",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4",
    "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip
# uint32 is missing: with it, a zero would not fit 32 bits.
INTEGERS = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "int16", "uint16", "int32")
MOST_ZERO = (1 << 31) - 1


def arithmetic(original: str) -> np.dtype[Any]:
    """The float type of scales, and of the way back."""
    return np.dtype("<f8" if original == "float64" else "<f4")


def scale_count(shape: tuple[int, ...], axis: int | None, group: int | None) -> int:
    """How many scales a tensor has."""
    if axis is not None:
        if axis >= len(shape):
            raise InvalidValueError(f"axis {axis} of a tensor of shape {list(shape)}")
        return shape[axis]
    if group is None:
        return 1
    *outer, last = shape or (1,)
    return math.prod(outer) * -(-last // group)


@dataclass(frozen=True, slots=True, eq=False)
class Quantization:
    """The parameters of a quantized tensor.

    scheme      "cast" or "affine"
    dtype       what the values were; `stored` is what they are stored as
    axis, group which scale belongs to which elements: one for each index of the axis, or for each
                run of `group` elements along the last axis (its last run may be shorter), or one for all
    scales, zeros   flat, in C order; no zeros means that all are 0
    max_error, mean_error   of |value - value got back|, over the finite values
    snr         power of the values over that of the errors, in dB; inf if nothing was lost
    """

    scheme: str
    dtype: str
    stored: str
    axis: int | None = None
    group: int | None = None
    scales: Array | None = field(default=None, repr=False)
    zeros: Array | None = field(default=None, repr=False)
    max_error: float = 0.0
    mean_error: float = 0.0
    snr: float = math.inf

    def __post_init__(self) -> None:
        _require(self.scheme in ("cast", "affine"), f"unknown scheme of quantization {self.scheme!r}")
        _require(self.dtype in ORIGINALS, f"quantization of {self.dtype}; it is for {', '.join(ORIGINALS)}")
        {"cast": self._check_cast, "affine": self._check_affine}[self.scheme]()
        for name in ("max_error", "mean_error"):
            _require(0 <= getattr(self, name) < math.inf, f"a {name} of {getattr(self, name)}")
        _require(self.mean_error <= self.max_error, f"a mean error of {self.mean_error}, over the maximum")
        _require(not math.isnan(self.snr), "a signal-to-noise ratio of nan")

    def _check_cast(self) -> None:
        narrower = self.stored in CASTS and dtypes.get(self.stored).bits < dtypes.get(self.dtype).bits
        _require(narrower, f"{self.dtype} can't be cast to {self.stored} to save space")
        extra = [name for name in ("axis", "group", "scales", "zeros") if getattr(self, name) is not None]
        _require(not extra, f"a cast with {' and '.join(extra)}")

    def _check_affine(self) -> None:
        _require(self.stored in INTEGERS, f"{self.dtype} can't be stored as integers of {self.stored}")
        _require(self.axis is None or self.group is None, "both an axis and a group of scales")
        _require(self.axis is None or self.axis >= 0, f"scales along the axis {self.axis}")
        _require(self.group is None or self.group >= 1, f"groups of {self.group} elements")
        _require(self.scales is not None, "integers without a scale")
        scales = _flat(self.scales, arithmetic(self.dtype), "scales")
        sound = bool(((scales > 0) & np.isfinite(scales)).all())
        _require(sound, "a scale that is not a finite number above 0")
        _require(self.axis is not None or self.group is not None or len(scales) == 1, f"{len(scales)} scales, not 1")
        object.__setattr__(self, "scales", scales)
        if self.zeros is not None:
            zeros = _flat(self.zeros, np.dtype("<i4"), "zeros")
            _require(len(zeros) == len(scales), f"{len(zeros)} zeros for {len(scales)} scales")
            _require(bool((zeros >= -MOST_ZERO).all()), f"a zero of {-MOST_ZERO - 1}")
            object.__setattr__(self, "zeros", zeros)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Whether these are the parameters of a tensor of this shape."""
        if self.scales is not None:
            wanted = scale_count(shape, self.axis, self.group)
            _require(len(self.scales) == wanted, f"{len(self.scales)} scales; {list(shape)} takes {wanted}")

    @property
    def nbytes(self) -> int:
        """What the parameters add to the values."""
        return sum(part.nbytes for part in (self.scales, self.zeros) if part is not None)

    def describe(self) -> str:
        """In words: "int8 per group of 32, max error 1.2e-4"."""
        per = ""
        if self.group is not None:
            per = f" per group of {self.group}"
        elif self.axis is not None:
            per = f" per index of axis {self.axis}"
        return f"{self.stored}{per}, {'exact' if not self.max_error else f'max error {at_most(self.max_error)}'}"


def at_most(error: float) -> str:
    """An error in two digits, never less than it is."""
    return f"{Context(prec=2, rounding=ROUND_CEILING).create_decimal(error):.2g}"


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InvalidValueError(what)


def _flat(values: Any, dtype: np.dtype[Any], what: str) -> Array:
    sound = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == dtype
    _require(sound, f"{what} must be a list of {dtype.name}")
    view: Array = values.view()
    view.flags.writeable = False
    return view
