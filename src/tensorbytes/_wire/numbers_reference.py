"""numbers.c in NumPy: the definition of correct, and the fallback.

Sums of squares and of products are made in another order, so that their last digits may differ; nothing else does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tensorbytes.typing import Buffer, bytes_view

_BINS, _WORDS, _COUNT_LANES, _LANES, _MOST_STEPS = 512, 4, 4, 256, 1 << 14
# Sums of the squares of as many fractions fit in 64 bits, and so do those of halves of them in a double.
_BLOCK = 1 << 16
_NAN, _OVERFLOW = 1, 2
_NOT_FINITE = 0x7F800000

Array = np.ndarray[Any, Any]


def count_values(values: Buffer, width: int, counts: Buffer) -> None:
    """How often each value of 1 or 2 bytes is there: those of even and of odd places."""
    _position(width, 2)
    data, table = bytes_view(values), np.frombuffer(bytes_view(counts), np.uint8)
    size = 512 if width == 1 else 131072
    _check(width > 0 and len(data) % width == 0 and table.nbytes == size * 4, "count_values")
    found, lanes = np.frombuffer(data, f"<u{width}"), table.view(np.uint32).reshape(2, -1)
    for lane in (0, 1):
        different, times = np.unique(found[lane::2], return_counts=True)
        lanes[lane, different] += times.astype(np.uint32)


def sum_floats(values: Buffer, bins: Buffer, portable: bool = False) -> tuple[int, int, int, int, int, float, float]:
    """float32 by sign and exponent: how many, the sum of their fractions, the sum of the squares of these."""
    data, table = bytes_view(values), np.frombuffer(bytes_view(bins), np.uint8)
    _check(len(data) % 4 == 0 and table.nbytes == _BINS * _WORDS * 8, "sum_floats")
    words, bits = table.view(np.uint64).reshape(_BINS, _WORDS), np.frombuffer(data, "<u4")
    counts, low, high = np.zeros(5, np.int64), _NOT_FINITE, -_NOT_FINITE
    for start in range(0, len(bits), _BLOCK):
        block = bits[start : start + _BLOCK]
        which, fractions = (block >> 23).astype(np.intp), (block & 0x7FFFFF).astype(np.uint64)
        squares = fractions * fractions
        words[:, 0] += np.bincount(which, minlength=_BINS).astype(np.uint64)
        words[:, 1] += _added(which, fractions)
        more = _added(which, squares & 0xFFFFFFFF) + (_added(which, squares >> 32) << np.uint64(32))
        words[:, 2] += more
        words[:, 3] += words[:, 2] < more
        counts += _count_kinds(block)
        ordered = _ordered(block[block & 0x7FFFFFFF < 0x7F800000])
        low, high = int(ordered.min(initial=low)), int(ordered.max(initial=high))
    nan, positive_inf, negative_inf, zeros, negative = counts.tolist()
    ends = _ordered(np.array([low, high], np.int32).view(np.uint32)).view(np.float32) if low <= high else (1.0, 0.0)
    return nan, positive_inf, negative_inf, zeros, negative, float(ends[0]), float(ends[1])


def _ordered(bits: Array) -> Array:
    """Floats as integers of the same order, and back."""
    return (bits ^ np.where(bits >> 31, np.uint32(0x7FFFFFFF), np.uint32(0))).view(np.int32)


def _count_kinds(bits: Array) -> list[int]:
    """NaNs, both infinities, zeros, and what is below zero."""
    magnitude, signed = bits & 0x7FFFFFFF, bits >> 31 == 1
    infinite = magnitude == 0x7F800000
    kinds = (
        magnitude > 0x7F800000,
        infinite & ~signed,
        infinite & signed,
        magnitude == 0,
        signed & (magnitude > 0) & (magnitude <= 0x7F800000),
    )
    return [int(np.count_nonzero(kind)) for kind in kinds]


def _added(which: Array, numbers: Array) -> Array:
    """The sum of each bin: as doubles, which hold those of a block."""
    added: Array = np.bincount(which, numbers.astype(np.float64), _BINS).astype(np.uint64)
    return added


def histogram(values: Buffer, type: int, edges: Buffer, factor: float, counts: Buffer, portable: bool = False) -> None:
    """Finite numbers by the bin that they lie in; what lies outside all of them, in the one at that end."""
    dtype = _dtype(type)
    data, table = bytes_view(values), np.frombuffer(bytes_view(counts), np.uint8)
    borders: Array = np.frombuffer(bytes_view(edges), np.float64)
    bins = len(borders) - 1
    _check(type >= 2 and len(data) % dtype.itemsize == 0, "histogram")
    _check(bins > 0 and table.nbytes == _COUNT_LANES * bins * 8, "histogram")
    numbers, lanes = np.frombuffer(data, dtype), table.view(np.uint64).reshape(_COUNT_LANES, bins)
    for start in range(0, len(numbers), _BLOCK):  # a multiple of the lanes
        for lane in range(_COUNT_LANES):
            own = numbers[start + lane : start + _BLOCK : _COUNT_LANES]
            own = own[np.isfinite(own)].astype(np.float64)
            places = np.clip(np.searchsorted(borders, own, side="right") - 1, 0, bins - 1)
            lanes[lane] += np.bincount(places, minlength=bins).astype(np.uint64)


def cast_floats(values: Buffer, type: int, out: Buffer, to: int, portable: bool = False) -> tuple[float, int]:
    """Floats as another type, each rounded once; the largest error."""
    old, new = _dtype(type), _dtype(to)
    data, target = bytes_view(values), bytes_view(out)
    _check(type != to and (to == 2 if type == 3 else to != 3) and len(data) % old.itemsize == 0, "cast_floats")
    given = np.frombuffer(data, old)
    _check(len(target) == len(given) * new.itemsize, "cast_floats")
    with np.errstate(all="ignore"):
        wide = given.astype(np.float64)
        made = given.astype(np.float32).astype(new)
        back = made.astype(np.float64)
        finite = np.isfinite(wide)
        if len(given):  # views of nothing can't be written to
            target[:] = made.tobytes()
        status = _NAN * bool(np.isnan(wide).any()) | _OVERFLOW * bool((finite & ~np.isfinite(back)).any())
        return (0.0 if status else float(np.abs(back - wide)[finite].max(initial=0.0))), status


def quantize_floats(
    values: Buffer,
    type: int,
    out: Buffer,
    scales: Buffer,
    zeros: Buffer | None,
    run: int,
    least: int,
    most: int,
    mask: int,
    sums: Buffer,
    portable: bool = False,
) -> tuple[float, float, float, int]:
    """Floats as integers, and what comes back for them: (the largest error, the energies, whether one was moved)."""
    dtype = _dtype(type)
    _position(mask, 255)
    data, target = bytes_view(values), bytes_view(out)
    _check(type != 3 and len(data) % dtype.itemsize == 0 and run > 0, "quantize_floats")
    given = np.frombuffer(data, dtype)
    _check(len(target) == len(given) and len(given) % run == 0, "quantize_floats")
    scale, table = np.frombuffer(bytes_view(scales), np.uint8), np.frombuffer(bytes_view(sums), np.uint8)
    zero = None if zeros is None else np.frombuffer(bytes_view(zeros), np.uint8)
    runs = len(given) // run
    _check(scale.nbytes == runs * 4 and table.nbytes == 2 * _LANES * 8, "quantize_floats")
    _check(
        -_MOST_STEPS <= least <= most <= _MOST_STEPS and (zero is None or zero.nbytes == runs * 4), "quantize_floats"
    )
    middle = np.zeros(runs, np.float32) if zero is None else zero.view(np.int32).astype(np.float32)
    _check(bool((np.abs(middle) <= _MOST_STEPS).all()), "quantize_floats")
    step, middle = np.repeat(scale.view(np.float32), run), np.repeat(middle, run)
    with np.errstate(all="ignore"):
        wide = given.astype(np.float32)
        numbers = np.rint(wide / step) + middle
        kept = np.clip(np.where(np.isnan(numbers), np.float32(most), numbers), np.float32(least), np.float32(most))
        back = ((kept - middle) * step).astype(dtype)
        error = np.abs(wide.astype(np.float64) - back.astype(np.float64))
        if len(given):
            target[:] = (kept.astype(np.int32).astype(np.uint8) & np.uint8(mask)).tobytes()
        whole = len(error) // _LANES * _LANES
        added = table.view(np.float64)
        added[:] = 0
        added[:_LANES] = np.add.reduce(error[:whole].reshape(-1, _LANES), axis=0)
        added[_LANES : _LANES + len(error) - whole] = error[whole:]
        signal, noise = (float(np.square(side, dtype=np.float64).sum()) for side in (wide, error))
        return float(error.max(initial=0.0)), signal, noise, int((kept != numbers).any())


def extremes(values: Buffer, type: int, run: int, low: Buffer, high: Buffer, portable: bool = False) -> bool:
    """The least and the greatest of each run, as float32; whether all are finite: if not, nothing is said of them."""
    dtype, data = _dtype(type), bytes_view(values)
    _check(type != 3 and len(data) % dtype.itemsize == 0 and run > 0, "extremes")
    numbers = np.frombuffer(data, dtype)
    _check(len(numbers) % run == 0, "extremes")
    runs = numbers.astype(np.float32).reshape(-1, run)
    ends = [np.frombuffer(bytes_view(end), np.uint8) for end in (low, high)]
    _check(all(end.nbytes == len(runs) * 4 for end in ends), "extremes")
    if not np.isfinite(runs).all():
        return False
    ends[0].view(np.float32)[:] = runs.min(axis=1)
    ends[1].view(np.float32)[:] = runs.max(axis=1)
    return True


def compare_floats(
    a: Buffer, b: Buffer, type: int, portable: bool = False
) -> tuple[int, int, int, int, float, float, float, float, float]:
    """How far floats of one type lie apart, pair by pair."""
    dtype = _dtype(type)
    one, two = bytes_view(a), bytes_view(b)
    _check(len(one) % dtype.itemsize == 0 and len(one) == len(two), "compare_floats")
    with np.errstate(all="ignore"):
        x, y = (np.frombuffer(side, dtype).astype(np.float64) for side in (one, two))
        nan_x, nan_y = np.isnan(x), np.isnan(y)
        different = (x != y) & ~(nan_x & nan_y)
        told = different & ~nan_x & ~nan_y
        gap = np.abs(x[told] - y[told])
        size = np.maximum(np.abs(x[told]), np.abs(y[told]))
        relative = np.where(np.isfinite(gap), gap / np.where(size > 0, size, 1), np.inf)
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = x[finite], y[finite]
        counts = (int(np.count_nonzero(each)) for each in (different, nan_x, nan_y, nan_x != nan_y))
        sums = (float((p * q).sum()) for p, q in ((x, y), (x, x), (y, y)))
        return *counts, float(gap.max(initial=0.0)), float(relative.max(initial=0.0)), *sums  # type: ignore[return-value]


def _dtype(type: int) -> np.dtype[Any]:
    _position(type, len(_types()) - 1)
    return _types()[type]


@cache
def _types() -> list[np.dtype[Any]]:
    import ml_dtypes  # looking into a file loads this module, and has no need of it

    return [np.dtype("<f2"), np.dtype(ml_dtypes.bfloat16), np.dtype("<f4"), np.dtype("<f8")]


def _position(number: int, most: int) -> None:
    if not 0 <= number <= most:
        raise IndexError(f"{number} is outside 0..{most}")


def _check(fits: bool, name: str) -> None:
    if not fits:
        raise ValueError(f"{name}: the sizes of the buffers, or the types, don't fit")
