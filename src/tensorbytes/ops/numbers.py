"""How far two tensors lie apart, added up piece by piece so that no copy of a tensor is made."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes._wire.portions import portions
from tensorbytes.errors import UnsupportedError
from tensorbytes.io.workers import count_threads, map_in_order
from tensorbytes.tensor import Array, Tensor
from tensorbytes.typing import bytes_view

# Elements that are looked at together.
_CHUNK = 1 << 18
# What a thread compares at a time.
_PART_BYTES = 4 << 20


@dataclass
class Distance:
    """Running figures over pairs of numbers. Pairs of NaN count as equal."""

    elements: int = 0
    differing: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    nan_a: int = 0
    nan_b: int = 0
    nan_apart: int = 0  # pairs of which one alone is NaN
    _dot: float = 0.0
    _square_a: float = 0.0
    _square_b: float = 0.0

    @property
    def cosine(self) -> float | None:
        """Of the two as vectors, over the pairs of finite numbers; None where one of them is all zeros."""
        norm = math.sqrt(self._square_a) * math.sqrt(self._square_b)
        return min(max(self._dot / norm, -1.0), 1.0) if norm and math.isfinite(norm) else None

    def to_dict(self) -> dict[str, float | None]:
        """The figures; those that are not finite numbers, which JSON lacks, as None."""
        shown = {key: value for key, value in vars(self).items() if not key.startswith("_")} | {"cosine": self.cosine}
        return {key: value if value is not None and math.isfinite(value) else None for key, value in shown.items()}

    def add(self, a: Tensor, b: Tensor) -> None:
        """Two tensors of as many elements each."""
        if a.dtype == b.dtype and a.dtype in _wire.FLOAT_TYPES:
            self._add_floats(a, b)
            return
        flat_a, flat_b = _flat(a), _flat(b)
        # 64-bit integers don't fit in a double: they are compared as what they are.
        exact = flat_a.dtype.kind in "iu" and flat_a.dtype.kind == flat_b.dtype.kind
        if exact and flat_a.dtype != flat_b.dtype:
            wide = np.result_type(flat_a.dtype, flat_b.dtype)
            flat_a, flat_b = flat_a.astype(wide), flat_b.astype(wide)
        for start in range(0, len(flat_a), _CHUNK):
            part_a, part_b = flat_a[start : start + _CHUNK], flat_b[start : start + _CHUNK]
            if exact and np.array_equal(part_a, part_b):
                self.elements += len(part_a)
                self._angles(_wide(part_a), _wide(part_b))
            else:
                self._add(part_a, part_b, exact)

    def _add_floats(self, a: Tensor, b: Tensor) -> None:
        kind, width = _wire.FLOAT_TYPES[a.dtype], dtypes.get(a.dtype).itemsize
        one, two = bytes_view(a.data), bytes_view(b.data)
        parts = portions(len(one), _PART_BYTES)

        def compare(part: slice) -> tuple[Any, ...]:
            return _wire.compare_floats(one[part], two[part], kind)

        threads = count_threads() if len(one) > _PART_BYTES else 1
        with closing(map_in_order(compare, parts, threads)) as found:
            for differing, nan_a, nan_b, nan_apart, max_abs, max_rel, dot, square_a, square_b in found:
                self.differing += differing
                self.nan_a += nan_a
                self.nan_b += nan_b
                self.nan_apart += nan_apart
                self.max_abs, self.max_rel = max(self.max_abs, max_abs), max(self.max_rel, max_rel)
                self._dot += dot
                self._square_a += square_a
                self._square_b += square_b
        self.elements += len(one) // width

    def add_same(self, a: Tensor) -> None:
        """A tensor that is the same in both, bit for bit."""
        flat = _flat(a)
        for start in range(0, len(flat), _CHUNK):
            part = flat[start : start + _CHUNK]
            plain = part if part.dtype in (np.float32, np.float64) else _wide(part)
            with np.errstate(all="ignore"):
                square = float(np.vdot(plain, plain).real)
            if not math.isfinite(square):  # numbers that are none, or too large to be squared
                self._add(part, part, exact=False)
                continue
            self.elements += len(part)
            self._dot += square
            self._square_a += square
            self._square_b += square

    def _add(self, raw_a: Array, raw_b: Array, exact: bool) -> None:
        a, b = _wide(raw_a), _wide(raw_b)
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        with np.errstate(all="ignore"):
            same = (raw_a == raw_b) if exact else (a == b)
            different = ~(same | (nan_a & nan_b))
            self.elements += len(a)
            self.differing += int(different.sum())
            self.nan_a += int(nan_a.sum())
            self.nan_b += int(nan_b.sum())
            self.nan_apart += int((nan_a != nan_b).sum())
            pairs = different & ~nan_a & ~nan_b
            if pairs.any():
                gap = _gap(raw_a[pairs], raw_b[pairs]) if exact else np.abs(a[pairs] - b[pairs])
                gap = np.where(np.isnan(gap), np.inf, gap)  # infinities that point elsewhere
                size = np.maximum(np.abs(a[pairs]), np.abs(b[pairs]))
                self.max_abs = max(self.max_abs, float(gap.max()))
                relative = np.where(np.isfinite(gap), gap / np.where(size == 0, 1, size), np.inf)
                self.max_rel = max(self.max_rel, float(relative.max()))
        self._angles(a, b)

    def _angles(self, a: Array, b: Array) -> None:
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            a, b = a[finite], b[finite]
        with np.errstate(all="ignore"):
            self._dot += float(np.vdot(a, b).real)
            self._square_a += float(np.vdot(a, a).real)
            self._square_b += float(np.vdot(b, b).real)


def _gap(a: Array, b: Array) -> Array:
    """How far whole numbers lie apart: exact, since the difference of two of 64 bits fits in 64."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    gap: Array = (larger.view(unsigned) - smaller.view(unsigned)).astype(np.float64)
    return gap


def _flat(tensor: Tensor) -> Array:
    """The elements in a row, as NumPy knows them; those it has no type for by their bits."""
    if tensor.dtype in ("datetime64", "timedelta64"):
        return np.frombuffer(tensor.data, "<i8")
    try:
        return np.frombuffer(tensor.data, dtypes.to_numpy(tensor.dtype))
    except UnsupportedError:  # quantized types: their integers
        kind = "u" if tensor.dtype.startswith("qu") else "i"
        return np.frombuffer(tensor.data, f"<{kind}{dtypes.get(tensor.dtype).itemsize}")


def _wide(x: Array) -> Array:
    """The numbers in double precision, which holds those of all dtypes but 64-bit integers."""
    name = x.dtype.name
    if "complex32" in name:
        x = x.astype(np.complex64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
