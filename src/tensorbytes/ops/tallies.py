"""Running figures over numbers, strings and row lengths, a block at a time: what `stats` adds up.

Sums are exact. Those of integers are Python's; those of floats count in units of 2**-1074, the
smallest float there is, of which every finite double is a whole number. So the mean is the true one,
rounded once, in whatever order the blocks come and however large or small the numbers are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from fractions import Fraction
from heapq import nlargest
from itertools import pairwise

import numpy as np

from tensorbytes import dtypes
from tensorbytes.tensor import Array, Strings, Tensor

# Elements that are looked at together. In double precision they fit in a core's own cache.
_BLOCK = 1 << 16
_UNIT_BITS = 1074
_NOT_A_TIME = -(1 << 63)
_WORD = (1 << 64) - 1
# Squares of numbers below 2**400 and of differences above 2**-453 neither overflow nor vanish.
_SAFE_EXPONENT = 400

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


class Numbers:
    """Of one dtype. `first` sees every block once, then `second` every block again."""

    def __init__(self, dtype: str, bins: int) -> None:
        self.dtype, self.bins = dtype, bins
        row = dtypes.get(dtype)
        self._time = dtype in ("datetime64", "timedelta64")
        self._integers = self._time or dtype.startswith(("int", "uint", "qint", "quint", "bool"))
        self._wide = row.bits == 64
        self._complex = "complex" in dtype
        if self._time or row.numpy is None or dtype == "bool":  # those that NumPy lacks: by their bits
            unsigned = dtype == "bool" or dtype.startswith("qu")
            self._stored = np.dtype(f"<{'u' if unsigned else 'i'}{row.itemsize}")
        else:
            self._stored = dtypes.to_numpy(dtype)
        self.count = self.nan = self.positive_inf = self.negative_inf = self.zeros = self.negative = 0
        self.finite = 0
        self.min: int | float | None = None
        self.max: int | float | None = None
        self._sum = self._squares = 0  # integers, or units
        self._scale = 0  # the power of two that squares are taken under
        self._centre: int | float = 0
        self.edges: list[int] | list[float] = []
        self._edges: Array = np.empty(0)
        self.counts: list[int] = []

    # ---- the first time -----------------------------------------------------------

    def first(self, tensor: Tensor) -> None:
        """Count, add up, find the extremes."""
        for values in self._blocks(tensor, counting=True):
            if not len(values):
                continue
            self.finite += len(values)
            self.zeros += len(values) - int(np.count_nonzero(values))
            low, high = values.min().item(), values.max().item()
            self.min = low if self.min is None else min(self.min, low)
            self.max = high if self.max is None else max(self.max, high)
            if not self._integers:
                self._sum += exact_sum(values)
            elif self._wide:  # the halves of 64-bit integers have sums of 64 bits
                self._sum += (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
            else:
                self._sum += int(values.sum())

    def _blocks(self, tensor: Tensor, counting: bool = False) -> Iterator[Array]:
        """The finite numbers, as 64-bit integers or doubles."""
        if not tensor.nbytes:
            return
        flat: Array = np.frombuffer(tensor.data, self._stored)
        for start in range(0, len(flat), _BLOCK):
            block = flat[start : start + _BLOCK]
            self.count += len(block) if counting else 0
            yield self._whole(block, counting) if self._integers else self._floats(block, counting)

    def _whole(self, block: Array, counting: bool) -> Array:
        values: Array = block.astype(np.uint64 if block.dtype == np.uint64 else np.int64, copy=False)
        if self.dtype == "bool":
            values = (values != 0).astype(np.int64)
        if self._time:
            known = values != _NOT_A_TIME
            if not known.all():
                values = values[known]
                self.nan += len(block) - len(values) if counting else 0
        if counting:
            self.negative += int(np.count_nonzero(values < 0))
        return values

    def _floats(self, block: Array, counting: bool) -> Array:
        with np.errstate(all="ignore"):  # signalling NaNs, magnitudes beyond the largest float
            if self._complex:
                pairs = block.astype(np.complex128)
                values: Array = np.abs(pairs)
                values[np.isnan(pairs)] = np.nan
            else:
                values = block.astype(np.float64, copy=False)
            finite = np.isfinite(values)
            if counting:
                self.negative += int(np.count_nonzero(values < 0))
        if finite.all():
            return values
        if counting:
            self.nan += int(np.count_nonzero(np.isnan(values)))
            self.positive_inf += int(np.count_nonzero(values == np.inf))
            self.negative_inf += int(np.count_nonzero(values == -np.inf))
        return values[finite]

    # ---- the second time ----------------------------------------------------------

    @property
    def mean(self) -> float | None:
        """Of the finite numbers."""
        if not self.finite:
            return None
        return self._sum / (self.finite if self._integers else self.finite << _UNIT_BITS)

    def prepare(self) -> None:
        """Between the two: where the bins lie, and what distances are measured from."""
        if self.min is None or self.max is None:
            return
        if self._integers:
            assert isinstance(self.min, int)
            assert isinstance(self.max, int)
            self._centre = (2 * self._sum + self.finite) // (2 * self.finite)
            size = self.max - self.min + 1
            self._width = -(-size // self.bins)
            self.edges = [self.min + self._width * k for k in range(-(-size // self._width) + 1)]
        else:
            exponent = math.frexp(max(abs(self.min), abs(self.max)))[1]
            self._scale = 0 if abs(exponent) <= _SAFE_EXPONENT else -exponent
            mean = self._scaled_mean()
            self._centre = mean.numerator / mean.denominator
            self._edges = _edges(float(self.min), float(self.max), self.bins)
            self.edges = self._edges.tolist()
        self.counts = [0] * (len(self.edges) - 1)

    def _scaled_mean(self) -> Fraction:
        if self._integers:
            return Fraction(self._sum, self.finite)
        up, down = max(self._scale, 0), max(-self._scale, 0)
        return Fraction(self._sum << up, self.finite << (_UNIT_BITS + down))

    def second(self, tensor: Tensor) -> None:
        """Distances from the mean, and the histogram."""
        for values in self._blocks(tensor):
            if not len(values):
                continue
            distance = self._gap(values) if self._integers else self._distance(values)
            self._squares += _units(float(np.square(distance).sum()))
            last = len(self.counts) - 1
            # A file that changes meanwhile must not make bins of its own.
            places = np.clip(self._places(values), 0, last)
            found = np.bincount(places, minlength=last + 1).tolist()
            self.counts = [have + more for have, more in zip(self.counts, found, strict=True)]

    def _distance(self, values: Array) -> Array:
        scaled: Array = np.ldexp(values, self._scale) if self._scale else values
        away: Array = scaled - self._centre
        return away

    def _gap(self, values: Array) -> Array:
        """How far integers lie from the centre; that of two 64-bit ones is exact in unsigned arithmetic alone."""
        if not self._wide:
            return (values - self._centre).astype(np.float64)
        bits, centre = values.view(np.uint64), np.uint64(int(self._centre) & _WORD)
        return np.where(values >= self._centre, bits - centre, centre - bits).astype(np.float64)

    def _places(self, values: Array) -> Array:
        """The bin that each number falls in."""
        if len(self.counts) == 1:
            return np.zeros(len(values), np.intp)
        assert self.min is not None
        assert self.max is not None
        if self._integers:
            from_low = values.view(np.uint64) - np.uint64(int(self.min) & _WORD)
            return (from_low // np.uint64(self._width)).astype(np.intp)
        edges, last = self._edges, len(self.counts) - 1
        span = self.max - self.min
        if not max(1e-9 * max(abs(self.min), abs(self.max)), 1e-290) < span < math.inf:
            return np.searchsorted(edges, values, side="right") - 1
        places: Array = ((values - self.min) * (1 / span) * len(self.counts)).astype(np.intp)
        np.clip(places, 0, last, out=places)
        # Rounding may put a number one bin off: the edges decide.
        places -= values < edges[places]
        places += (values >= edges[places + 1]) & (places < last)
        return places

    @property
    def std(self) -> float | None:
        """The square root of the mean square distance from the mean, of the finite numbers."""
        if self.min is None or self.max is None:
            return None
        off = self._scaled_mean() - Fraction(self._centre)  # by which the centre misses the mean
        variance = max(Fraction(self._squares, self.finite << _UNIT_BITS) - off * off, Fraction(0))
        if self._integers:
            return math.sqrt(variance)
        most = math.ldexp(self.max, self._scale - 1) - math.ldexp(self.min, self._scale - 1)
        return math.ldexp(min(math.sqrt(variance), most), -self._scale)


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
