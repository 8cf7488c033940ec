"""Running figures over numbers, strings and row lengths, a block at a time: what `stats` adds up.

Sums are exact. Those of integers are Python's; those of floats count in units of 2**-1074, the
smallest float there is, of which every finite double is a whole number. So the mean is the true one,
rounded once, in whatever order the blocks come and however large or small the numbers are. Of numbers of
32 bits or fewer, the squares are added up exactly as well, and the standard deviation is the true one, rounded.

Numbers are looked at in parts, in any threads: `look` and `look_again` change nothing, and what they
find is added by `add` and `add_again`.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import cache
from heapq import nlargest
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.tensor import Array, Strings

# Elements that are looked at together. In double precision they fit in a core's own cache.
_BLOCK = 1 << 16
_UNIT_BITS = 1074
_NOT_A_TIME = -(1 << 63)
_WORD = (1 << 64) - 1
# Squares of numbers below 2**400 and of differences above 2**-453 neither overflow nor vanish.
_SAFE_EXPONENT = 400

# Fewer numbers than this are looked at one by one.
_WORTH_COUNTING = 1 << 13

_MOST_DISTINCT = 100_000
_MOST_KEPT_BYTES = 128  # of one string
_PREFIX_BYTES = 64


def _units(value: float) -> int:
    """A finite double as a whole number of units."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_UNIT_BITS + 1 - denominator.bit_length())


def exact_sum(values: Array) -> int:
    """The sum of at most 2**16 finite doubles, in units.

    Each round takes from every number the bits above a common place, few enough that their sum is
    exact, and goes on with what is left (S. M. Rump's error-free extraction).
    """
    if len(values) == 0:
        return 0
    largest = float(np.abs(values).max())
    if largest > 2.0**900:  # the number that sets the place would overflow
        huge = np.abs(values) > 2.0**900
        return (exact_sum(values[huge] * 2.0**-200) << 200) + exact_sum(values[~huge])
    total, rest = 0, values
    high, left = np.empty_like(values), np.empty_like(values)
    while largest:
        place = math.ldexp(1.0, math.frexp(largest)[1] + 17)
        np.subtract(np.add(rest, place, out=high), place, out=high)
        total += _units(float(high.sum()))
        rest = np.subtract(rest, high, out=left)
        largest = max(float(rest.max()), -float(rest.min()))
    return total


class Found(NamedTuple):
    """What a part of the numbers is like. The sums are integers, or units."""

    elements: int = 0
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    zeros: int = 0
    negative: int = 0
    finite: int = 0
    min: int | float | None = None
    max: int | float | None = None
    sum: int = 0
    squares: int = 0


class FoundAgain(NamedTuple):
    """The same, the second time: the sum of the squares of distances, in units, and how many fall in each bin."""

    squares: int
    counts: Array


class Numbers:
    """Of one dtype. Every part is looked at once, then `prepare` is called, then every part is looked at again."""

    def __init__(self, dtype: str, bins: int) -> None:
        self.dtype, self.bins = dtype, bins
        self._kind = _Kind(dtype)
        self._integers, self._wide = self._kind.integers, self._kind.wide
        self.found = Found()
        self._squares = 0  # of distances, in units; of numbers that are not wide, those of `found` are used
        self._scale = 0  # the power of two that squares are taken under
        self._centre: int | float = 0
        self.edges: list[int] | list[float] = []
        self._edges: Array = np.empty(0)
        self.counts: list[int] = []

    @property
    def finite(self) -> int:
        return self.found.finite

    # ---- the first time -----------------------------------------------------------

    def look(self, data: memoryview) -> Found:
        """Count, add up, find the extremes."""
        flat: Array = np.frombuffer(data, self._kind.stored)
        if self._kind.narrow and len(flat) >= _WORTH_COUNTING:
            return self._weigh(_count(flat))
        if self.dtype == "float32" and len(flat) >= _WORTH_COUNTING:
            return _look_at_floats(flat)
        found = Found()
        for start in range(0, len(flat), _BLOCK):
            found = _both(found, self._look_at_block(flat[start : start + _BLOCK]))
        return found

    def add(self, found: Found) -> None:
        """What was found in a part."""
        self.found = _both(self.found, found)

    def _look_at_block(self, block: Array) -> Found:
        values, found = self._kind.values(block)
        if not len(values):
            return found
        squares = 0
        if not self._integers:
            total = exact_sum(values)
            squares = 0 if self._wide else exact_sum(np.square(values))
        elif self._wide:  # the halves of 64-bit integers have sums of 64 bits
            total = (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
        else:
            total, square = int(values.sum()), np.square(values.view(np.uint64))  # of 32 bits, of either sign
            squares = (int((square >> 32).sum()) << 32) + int((square & 0xFFFFFFFF).sum())
        return found._replace(
            finite=len(values),
            zeros=len(values) - int(np.count_nonzero(values)),
            min=_least(values),
            max=_greatest(values),
            sum=total,
            squares=squares,
        )

    def _weigh(self, counts: Array) -> Found:
        """The same for values that are there so often each: no more than 2**23 of them, so that products are exact."""
        kind, there = self._kind, np.flatnonzero(counts)
        values, finite = kind.all_values()
        values, finite, often = values[there], finite[there], counts[there].astype(np.int64)

        def how_often(which: Array) -> int:
            return int(often[which].sum())

        with np.errstate(invalid="ignore"):
            found = Found(int(often.sum()), negative=how_often(values < 0))
        if not finite.all():
            found = found._replace(
                nan=how_often(np.isnan(values)),
                positive_inf=how_often(values == np.inf),
                negative_inf=how_often(values == -np.inf),
            )
            values, often = values[finite], often[finite]
        if not len(values):
            return found
        products = values * often, np.square(values) * often
        total, squares = (int(one.sum()) if self._integers else exact_sum(one) for one in products)
        return found._replace(
            finite=int(often.sum()),
            zeros=int(often[values == 0].sum()),
            min=_least(values),
            max=_greatest(values),
            sum=total,
            squares=squares,
        )

    # ---- the second time ----------------------------------------------------------

    @property
    def mean(self) -> float | None:
        """Of the finite numbers."""
        if not self.finite:
            return None
        return self.found.sum / (self.finite if self._integers else self.finite << _UNIT_BITS)

    def prepare(self) -> None:
        """Between the two: where the bins lie, and what distances are measured from."""
        low, high = self.found.min, self.found.max
        if low is None or high is None:
            return
        if self._integers:
            assert isinstance(low, int)
            assert isinstance(high, int)
            self._centre = (2 * self.found.sum + self.finite) // (2 * self.finite)
            size = high - low + 1
            self._width = -(-size // self.bins)
            self.edges = [low + self._width * k for k in range(-(-size // self._width) + 1)]
        else:
            exponent = math.frexp(max(abs(low), abs(high)))[1]
            self._scale = 0 if abs(exponent) <= _SAFE_EXPONENT else -exponent
            mean = self._scaled_mean()
            self._centre = mean.numerator / mean.denominator
            self._edges = _edges(float(low), float(high), self.bins)
            self.edges = self._edges.tolist()
        self.counts = [0] * (len(self.edges) - 1)

    def _scaled_mean(self) -> Fraction:
        if self._integers:
            return Fraction(self.found.sum, self.finite)
        up, down = max(self._scale, 0), max(-self._scale, 0)
        return Fraction(self.found.sum << up, self.finite << (_UNIT_BITS + down))

    def look_again(self, data: memoryview) -> FoundAgain:
        """Distances from the mean, and the histogram."""
        flat: Array = np.frombuffer(data, self._kind.stored)
        bins = len(self.counts)
        if self._kind.narrow and len(flat) >= _WORTH_COUNTING:
            counts, (values, finite) = _count(flat), self._kind.all_values()
            there = np.flatnonzero(counts)
            there = there[finite[there]]
            return FoundAgain(0, np.bincount(self._bins_of(values[there]), counts[there], bins).astype(np.int64))
        if self.dtype == "float32" and self._evenly_spread:
            return FoundAgain(0, self._histogram(flat))
        squares, counts = 0, np.zeros(bins, np.int64)
        for start in range(0, len(flat), _BLOCK):
            values, _ = self._kind.values(flat[start : start + _BLOCK])
            if not len(values):
                continue
            if self._wide:
                distance = self._gap(values) if self._integers else self._distance(values)
                squares += _units(float(np.square(distance).sum()))
            if self._integers or not self._evenly_spread:
                counts += np.bincount(self._bins_of(values), minlength=bins)
            else:
                counts += self._histogram(np.ascontiguousarray(values))
        return FoundAgain(squares, counts)

    def add_again(self, found: FoundAgain) -> None:
        """What was found in a part."""
        self._squares += found.squares
        self.counts = [have + more for have, more in zip(self.counts, found.counts.tolist(), strict=True)]

    def _distance(self, values: Array) -> Array:
        scaled: Array = np.ldexp(values, self._scale) if self._scale else values
        away: Array = scaled - self._centre
        return away

    def _gap(self, values: Array) -> Array:
        """How far integers lie from the centre; that of two 64-bit ones is exact in unsigned arithmetic alone."""
        bits, centre = values.view(np.uint64), np.uint64(int(self._centre) & _WORD)
        return np.where(values >= self._centre, bits - centre, centre - bits).astype(np.float64)

    @property
    def _evenly_spread(self) -> bool:
        """Whether the bins of floats are wide enough for a product to find the right one, or one beside it."""
        low, high = float(self._edges[0]), float(self._edges[-1])
        return bool(max(1e-9 * max(abs(low), abs(high)), 1e-290) < high - low < math.inf)

    def _histogram(self, values: Array) -> Array:
        bins = len(self.counts)
        counts = np.zeros((4, bins), np.uint64)
        factor = 1 / float(self._edges[-1] - self._edges[0]) * bins
        _wire.histogram(values, _wire.FLOAT_TYPES[values.dtype.name], self._edges, factor, counts)
        found: Array = counts.sum(axis=0).astype(np.int64)
        return found

    def _bins_of(self, values: Array) -> Array:
        """The bin that each number falls in. A file that changes meanwhile must not make bins of its own."""
        last = len(self.counts) - 1
        if not last:
            return np.zeros(len(values), np.intp)
        if self._integers:
            from_low = values.view(np.uint64) - np.uint64(int(self.found.min or 0) & _WORD)
            places = from_low // np.uint64(self._width)
            bins: Array = np.minimum(places, np.uint64(last)).astype(np.intp)
            return bins
        return np.clip(np.searchsorted(self._edges, values, side="right") - 1, 0, last)

    @property
    def std(self) -> float | None:
        """The square root of the mean square distance from the mean, of the finite numbers."""
        low, high = self.found.min, self.found.max
        if low is None or high is None:
            return None
        if not self._wide:
            unit = 0 if self._integers else _UNIT_BITS
            total, squares, count = self.found.sum, self.found.squares, self.finite
            return _square_root(((squares * count) << unit) - total * total, (count << unit) ** 2)
        off = self._scaled_mean() - Fraction(self._centre)  # by which the centre misses the mean
        variance = max(Fraction(self._squares, self.finite << _UNIT_BITS) - off * off, Fraction(0))
        if self._integers:
            return math.sqrt(variance)
        most = math.ldexp(high, self._scale - 1) - math.ldexp(low, self._scale - 1)
        return math.ldexp(min(math.sqrt(variance), most), -self._scale)


class _Kind:
    """How numbers of a dtype are read."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        row = dtypes.get(dtype)
        self._time = dtype in ("datetime64", "timedelta64")
        self.integers = self._time or dtype.startswith(("int", "uint", "qint", "quint", "bool"))
        self._complex = "complex" in dtype
        # Those whose squares, or whose magnitudes, doubles don't hold.
        self.wide = row.bits == 64 or self._complex
        self.narrow = row.itemsize <= 2 and not self._complex
        if self._time or row.numpy is None or dtype == "bool":  # those that NumPy lacks: by their bits
            unsigned = dtype == "bool" or dtype.startswith("qu")
            self.stored = np.dtype(f"<{'u' if unsigned else 'i'}{row.itemsize}")
        else:
            self.stored = dtypes.to_numpy(dtype)

    def values(self, block: Array) -> tuple[Array, Found]:
        """The finite numbers, as 64-bit integers or doubles, and what there is beside them."""
        values, found = self._wider(block), Found(len(block))
        with np.errstate(invalid="ignore"):  # signalling NaNs
            found = found._replace(negative=int(np.count_nonzero(values < 0)))
            finite = self._finite(values)
        if finite.all():
            return values, found
        if self.integers:  # dates that are none
            known = values[finite]
            return known, found._replace(nan=len(block) - len(known), negative=int(np.count_nonzero(known < 0)))
        found = found._replace(
            nan=int(np.count_nonzero(np.isnan(values))),
            positive_inf=int(np.count_nonzero(values == np.inf)),
            negative_inf=int(np.count_nonzero(values == -np.inf)),
        )
        return values[finite], found

    def _wider(self, block: Array) -> Array:
        if self.integers:
            values: Array = block.astype(np.uint64 if block.dtype == np.uint64 else np.int64, copy=False)
            return (values != 0).astype(np.int64) if self._dtype == "bool" else values
        with np.errstate(all="ignore"):  # signalling NaNs, magnitudes beyond the largest float
            if self._complex:
                pairs = block.astype(np.complex128)
                values = np.abs(pairs)
                values[np.isnan(pairs)] = np.nan
                return values
            return block.astype(np.float64, copy=False)

    def _finite(self, values: Array) -> Array:
        if self.integers:
            return values != _NOT_A_TIME if self._time else np.ones(len(values), bool)
        return np.isfinite(values)

    def all_values(self) -> tuple[Array, Array]:
        """What each byte, or pair of bytes, stands for, and which of these are finite."""
        return _all_values(self._dtype)


@cache
def _all_values(dtype: str) -> tuple[Array, Array]:
    kind = _Kind(dtype)
    bits = np.arange(1 << 8 * kind.stored.itemsize, dtype=f"<u{kind.stored.itemsize}")
    values = kind._wider(bits.view(kind.stored))
    return values, kind._finite(values)


def _count(flat: Array) -> Array:
    """How often each byte, or pair of bytes, is there."""
    counts = np.zeros((2, 1 << 8 * flat.dtype.itemsize), np.uint32)
    _wire.count_values(flat.view(np.uint8), flat.dtype.itemsize, counts)
    both: Array = np.add(*counts)  # of no more than 2**31
    return both


def _look_at_floats(flat: Array) -> Found:
    """float32: sums by exponent, put together."""
    bins = np.zeros((512, 4), np.uint64)
    nan, positive_inf, negative_inf, zeros, negative, low, high = _wire.sum_floats(flat, bins)
    total = squares = finite = 0
    for place in np.flatnonzero(bins[:, 0]).tolist():
        exponent, sign = place & 255, -1 if place >> 8 else 1
        if exponent == 255:
            continue
        # Each is (hidden + fraction) * 2**(lowest - 149).
        count, first, second, carried = bins[place].tolist()
        hidden, lowest = (1 << 23, exponent - 1) if exponent else (0, 0)
        finite += count
        total += sign * (count * hidden + first) << _UNIT_BITS - 149 + lowest
        second += carried << 64
        squares += count * hidden * hidden + 2 * hidden * first + second << _UNIT_BITS - 298 + 2 * lowest
    least, most = (low, high) if finite else (None, None)
    return Found(len(flat), nan, positive_inf, negative_inf, zeros, negative, finite, least, most, total, squares)


def _both(a: Found, b: Found) -> Found:
    """Two parts together."""
    lows, highs = [[x for x in pair if x is not None] for pair in ((a.min, b.min), (a.max, b.max))]
    return Found(
        a.elements + b.elements,
        a.nan + b.nan,
        a.positive_inf + b.positive_inf,
        a.negative_inf + b.negative_inf,
        a.zeros + b.zeros,
        a.negative + b.negative,
        a.finite + b.finite,
        min(lows, key=_order, default=None),
        max(highs, key=_order, default=None),
        a.sum + b.sum,
        a.squares + b.squares,
    )


def _order(number: int | float) -> tuple[int | float, float]:
    """-0 comes before 0."""
    return number, math.copysign(1, number) if isinstance(number, float) else 0


def _least(values: Array) -> int | float:
    least: int | float = values.min().item()
    # Which zero of several NumPy finds is not said.
    return -0.0 if least == 0 and values.dtype.kind == "f" and np.signbit(values[values == 0]).any() else least


def _greatest(values: Array) -> int | float:
    greatest: int | float = values.max().item()
    if greatest == 0 and values.dtype.kind == "f":
        return -0.0 if np.signbit(values[values == 0]).all() else 0.0
    return greatest


def _square_root(numerator: int, denominator: int) -> float:
    """Of a fraction that is not negative: rounded once."""
    if numerator <= 0:
        return 0.0
    # 64 bits of the root, and a last one that tells whether anything is left.
    shift = max(2 * 66 - (numerator.bit_length() - denominator.bit_length()), 0)
    shift += shift & 1
    whole, rest = divmod(numerator << shift, denominator)
    root = math.isqrt(whole)
    sticky = rest != 0 or root * root != whole
    return ((root << 1) | sticky) / (1 << shift // 2 + 1)


def _edges(low: float, high: float, bins: int) -> Array:
    if low == high:
        return np.array([low, high])
    steps = np.arange(bins + 1) / bins
    inner = low + (high - low) * steps if math.isfinite(high - low) else low * (1 - steps) + high * steps
    edges: Array = np.maximum.accumulate(np.clip(inner, low, high))
    edges[-1] = high
    return edges


class Lengths:
    """How long things are."""

    def __init__(self) -> None:
        self.count = self.total = self.empty = 0
        self.min: int | None = None
        self.max: int | None = None

    def add(self, lengths: Array) -> None:
        if not len(lengths):
            return
        low, high = int(lengths.min()), int(lengths.max())
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)
        self.count += len(lengths)
        self.total += int(lengths.sum())
        self.empty += len(lengths) - int(np.count_nonzero(lengths))

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class Texts:
    """Strings: their lengths in bytes, and which are there most often.

    A long one is kept as its beginning and a digest. Beyond 100000 distinct ones the rarer half is
    forgotten, and counts are lower bounds from then on.
    """

    def __init__(self) -> None:
        self.lengths = Lengths()
        self.forgot = False
        self._found: dict[tuple[bytes, bytes], int] = {}

    def add(self, value: Strings) -> None:
        for start in range(0, len(value.offsets) - 1, _BLOCK):
            bounds = value.offsets[start : start + _BLOCK + 1]
            self.lengths.add(np.diff(bounds))
            for low, high in pairwise(bounds.tolist()):
                key = _key(value.data[low:high])
                self._found[key] = self._found.get(key, 0) + 1
                if len(self._found) > _MOST_DISTINCT:
                    self._forget()

    def _forget(self) -> None:
        self.forgot = True
        self._found = dict(nlargest(_MOST_DISTINCT // 2, self._found.items(), key=lambda item: item[1]))

    @property
    def distinct(self) -> int | None:
        """How many different ones there are; None where some were forgotten."""
        return None if self.forgot else len(self._found)

    def frequent(self, most: int) -> list[tuple[str, int]]:
        """The most frequent ones as text, bytes that are not text escaped."""
        top = nlargest(most, self._found.items(), key=lambda item: item[1])
        return [(_text(*key), count) for key, count in top]


def _key(piece: memoryview) -> tuple[bytes, bytes]:
    if len(piece) <= _MOST_KEPT_BYTES:
        return bytes(piece), b""
    return bytes(piece[:_PREFIX_BYTES]), hashlib.blake2b(piece, digest_size=16).digest()


def _text(start: bytes, digest: bytes) -> str:
    if digest:  # a character that the cut went through is left out
        for end in range(len(start), len(start) - 4, -1):
            try:
                return start[:end].decode() + "..."
            except UnicodeDecodeError:
                continue
    return start.decode("utf-8", "backslashreplace") + ("..." if digest else "")
