"""Quantize: what a caller asks for."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from tensorbytes import dtypes
from tensorbytes.errors import Hint, UsageError, unknown
from tensorbytes.quantization.parameters import CASTS, INTEGERS, MOST_ZERO

_EXPECTED = "a dtype ('int8', 'bfloat16'), a number (the largest error allowed), a dict of options, or a Quantize"


@dataclass(frozen=True, slots=True)
class Quantize:
    """How floats are to be stored in fewer bits.

    dtype       a narrower float ("bfloat16", "float16", "float8_e4m3fn"...): a cast; or an
                integer type ("int8", "uint8", "int4"...): value = (integer - zero) * scale
    axis        integers: a scale for each index of this axis, instead of one for the tensor
    group       integers: a scale for each run of so many elements along the last axis
    symmetric   integers: the range is centred on 0, and zero needs no storing; else it is as
                tight as the values are. Signed types are, unsigned ones aren't, unless said
    scale, zero integers: this scale (and zero, else 0): fixed point. Values beyond are refused
    max_error   the largest |error| allowed. Without a dtype: the smallest encoding that keeps to it
    """

    dtype: str | None = None
    axis: int | None = None
    group: int | None = None
    symmetric: bool | None = None
    scale: float | None = None
    max_error: float | None = None
    zero: int | None = None

    def __post_init__(self) -> None:
        if self.dtype is None and self.max_error is None:
            raise UsageError(
                "say a dtype or a max_error to quantize",
                hints=[Hint(purpose="Quantize('int8')"), Hint(purpose="Quantize(max_error=1e-3)")],
            )
        if self.dtype is not None:
            found = dtypes.find(self.dtype)
            if found is None or found.name not in (*CASTS, *INTEGERS):
                raise unknown("dtype to quantize to", self.dtype, (*CASTS, *INTEGERS))
            object.__setattr__(self, "dtype", found.name)
        for name in ("axis", "group", "zero"):
            _settle(self, name, _integer)
        for name in ("scale", "max_error"):
            _settle(self, name, _number)
        self._check_numbers()
        self._check_together()

    def _check_numbers(self) -> None:
        if self.group is not None and not 1 <= self.group < 1 << 63:
            raise UsageError(f"group must be 1 or more elements, got {self.group}")
        if self.zero is not None and not -MOST_ZERO <= self.zero <= MOST_ZERO:
            raise UsageError(f"zero must lie within {-MOST_ZERO}..{MOST_ZERO}, got {self.zero}")
        if self.scale is not None and not 0 < self.scale < math.inf:
            raise UsageError(f"scale must be a finite number above 0, got {self.scale}")
        if self.max_error is not None and not 0 <= self.max_error < math.inf:
            raise UsageError(f"max_error must be a finite number, 0 or more, got {self.max_error}")
        if self.symmetric is not None and not isinstance(self.symmetric, bool):
            raise UsageError(f"symmetric must be True or False, got {self.symmetric!r}")

    def _check_together(self) -> None:
        given = [name for name in ("axis", "group", "symmetric", "scale", "zero") if getattr(self, name) is not None]
        if self.dtype in CASTS and given:
            raise UsageError(f"{given[0]} is for integers; {self.dtype} is a cast, which has no scale")
        if self.axis is not None and self.group is not None:
            raise UsageError("axis and group exclude each other: scales go by channel or by group")
        if self.scale is not None:
            if self.dtype is None:
                raise UsageError("scale needs a dtype: Quantize('int16', scale=2**-10)")
            if others := [name for name in given if name not in ("scale", "zero")]:
                raise UsageError(f"{others[0]} goes with scales that are measured; scale gives one for all")
        elif self.zero is not None:
            raise UsageError("zero needs a scale: Quantize('uint8', scale=0.1, zero=128)")

    @classmethod
    def of(cls, spec: Any) -> Quantize:
        """From a short form: "int8" · 1e-3, the largest error allowed · {"dtype": "int4", "group": 32} · a dtype of a
        framework · a Quantize"""
        if isinstance(spec, Quantize):
            return spec
        if isinstance(spec, str) or dtypes.find(spec) is not None:
            return cls(spec)
        if isinstance(spec, Mapping):
            known = [field.name for field in fields(cls)]
            for key in spec:
                if key not in known:
                    raise unknown("option of Quantize", key, known)
            return cls(**spec)
        if isinstance(spec, Real) and not isinstance(spec, bool):
            return cls(max_error=float(spec))
        raise UsageError(expected=_EXPECTED, got=f"{type(spec).__name__} {str(spec)[:60]!r}")

    @property
    def is_symmetric(self) -> bool:
        """As it was said, or else as suits the dtype."""
        if self.symmetric is not None:
            return self.symmetric
        return self.dtype is not None and not self.dtype.startswith("u")

    @property
    def fixed(self) -> bool:
        """Whether it says all that the way back needs: then no values have a part in it."""
        return self.dtype in CASTS or self.scale is not None

    def options(self) -> dict[str, Any]:
        """What was said: what builds it again."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in found if value is not None}

    def describe(self) -> str:
        """In words: "int8 per group of 32", "int16 in steps of 0.01", "an error of at most 0.001"."""
        words = [] if self.dtype is None else [self.dtype]
        if self.scale is not None:
            words.append(f"in steps of {self.scale:.6g}" + (f" around {self.zero}" if self.zero else ""))
        if self.group is not None:
            words.append(f"per group of {self.group}")
        if self.axis is not None:
            words.append(f"per index of axis {self.axis}")
        if self.max_error is not None:
            words.append(f"{'with ' if words else ''}an error of at most {self.max_error:g}")
        return " ".join(words)


def _settle(spec: Quantize, name: str, convert: Any) -> None:
    value = getattr(spec, name)
    if value is not None:
        object.__setattr__(spec, name, convert(name, value))


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be an integer, got {value!r}") from None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
