"""Passes over a tensor: its extremes, its values encoded and measured. In tiles, and in threads if it is large."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.errors import UnsupportedError
from tensorbytes.io.workers import count_threads, map_in_order
from tensorbytes.quantization import affine, casts
from tensorbytes.quantization.blocks import TILE, Section, Tile, scratch, spread
from tensorbytes.quantization.measure import LANES, Energy, Measure, Summary, compare, exact_total, summary
from tensorbytes.tensor import Array

R = TypeVar("R")
# What one thread does at a time: enough that waking it is no cost.
_TILES_AT_ONCE = 64
# Nothing is written when extremes are looked for, so that more is done at a time.
_TILE_OF_EXTREMES = 8 * TILE
# The place of a tile: which section, and where in it.
Place = tuple[int, Tile]


class Encoded(NamedTuple):
    """The stored values, flat, and what they cost."""

    raw: Array
    cost: Summary


class OverBound(Exception):
    """An error over the bound. `place` is where it was found, a good place to look at first the next time."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.place = place


def places(parts: list[Section], most: int = TILE) -> Iterator[Place]:
    for number, part in enumerate(parts):
        for tile in part.tiles(most):
            yield number, tile


def in_threads(
    work: Callable[[list[Place]], R], found: Iterable[Place], at_once: int = _TILES_AT_ONCE
) -> Generator[R, None, None]:
    """The work on some tiles at a time, in order."""
    rest = iter(found)
    runs = iter(lambda: list(islice(rest, at_once)), [])
    first = list(islice(runs, 2))
    if len(first) < 2:  # asking for the number of processors takes longer than a small tensor does
        yield from map(work, first)
    else:
        yield from map_in_order(work, chain(first, runs), count_threads())


def plain(values: Array) -> Array:
    """Floats that NumPy calculates with itself: the 16-bit ones as float32."""
    return values if values.dtype.itemsize > 2 else casts.widen(values, "float32")


# ---- extremes ---------------------------------------------------------------


def extremes(flat: Array, parts: list[Section], count: int) -> tuple[Array, Array]:
    """The least and the greatest value under each of `count` scales, in float64. All must be finite."""
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    views = [part.values(flat) for part in parts]
    places_of = [(part.own_scales(low), part.own_scales(high)) for part in parts]

    def work(run: list[Place]) -> list[tuple[Place, Array, Array]]:
        return [((number, tile), *_extremes(views[number][tile], parts[number])) for number, tile in run]

    for run in in_threads(work, places(parts, _TILE_OF_EXTREMES), 4):
        for (number, (rows, runs, _)), least, most in run:
            where = (rows if parts[number].scale_rows > 1 else slice(0, 1), runs)
            lows, highs = places_of[number]
            lows[where] = np.minimum(lows[where], least)
            highs[where] = np.maximum(highs[where], most)
    return low, high


def _extremes(values: Array, part: Section) -> tuple[Array, Array]:
    kind = _wire.FLOAT_TYPES.get(values.dtype.name)
    least, most = np.empty((2, *values.shape[:2]), np.float32)
    plain_memory = values.dtype.itemsize < 8 and values.flags.c_contiguous
    if (
        kind is None
        or not plain_memory
        or not _wire.extremes(values.view(np.uint8), kind, values.shape[2], least, most)
    ):
        values = plain(values)
        least, most = values.min(axis=2), values.max(axis=2)
    if part.scale_rows == 1:
        least, most = least.min(axis=0, keepdims=True), most.max(axis=0, keepdims=True)
    if not (np.isfinite(least).all() and np.isfinite(most).all()):
        first = float(values[~np.isfinite(values)][0])
        raise UnsupportedError(f"integers have no {first}; a cast to a float type that has it keeps it")
    return least.astype(np.float64), most.astype(np.float64)


# ---- encoding ---------------------------------------------------------------


class Affine(NamedTuple):
    """How values become integers."""

    stored: str
    scales: Array
    zeros: Array | None
    span: tuple[int, int]
    strict: bool = False  # values beyond the span are refused, not moved to its end


def encode_affine(
    flat: Array,
    original: str,
    parts: list[Section],
    how: Affine,
    bound: float | None = None,
    first: Place | None = None,
) -> Encoded:
    """All values as integers. Gives up where the error is over the bound; `first` is looked at first."""
    raw = np.empty(flat.shape, affine.memory(how.stored))
    values, out = [part.values(flat) for part in parts], [part.values(raw) for part in parts]
    scales = [part.scales(how.scales) for part in parts]
    zeros = [None if how.zeros is None else part.scales(how.zeros) for part in parts]

    def work(place: Place, known: float) -> Measure:
        number, tile = place
        own, zero = values[number][tile], zeros[number]
        measure = _encode_by_kernel(own, scales[number], zero, tile, how, original, out[number][tile], known)
        if measure is not None:
            return measure
        steps = spread(scales[number], tile, own.shape)
        offset = None if zero is None else spread(zero, tile, own.shape)
        return _encode_tile(own, steps, offset, how, original, out[number][tile], known)

    return Encoded(raw, _measured(work, parts, bound, first))


def _encode_by_kernel(
    own: Array, scales: Array, zeros: Array | None, tile: Tile, how: Affine, original: str, out: Array, known: float
) -> Measure | None:
    """A tile in one go, with the same result; None if that takes the general way: a value that can't be held, and an
    error that is the largest so far, which is made exact."""
    kind = _wire.FLOAT_TYPES.get(original)
    least, most = how.span
    if kind is None or original == "float64" or out.dtype.itemsize > 1 or not affine.is_near(how.span, zeros):
        return None
    if not (own.flags.c_contiguous and out.flags.c_contiguous):
        return None
    steps = np.ascontiguousarray(scales[tile[0], tile[1]], np.float32)
    offsets = None if zeros is None else np.ascontiguousarray(zeros[tile[0], tile[1]], np.int32)
    sums, mask = scratch("sums", (2 * LANES,), np.float64), (1 << dtypes.get(how.stored).bits) - 1
    worst, signal, noise, beyond = _wire.quantize_floats(
        own.view(np.uint8), kind, out.view(np.uint8), steps, offsets, own.shape[2], least, most, mask, sums
    )
    if (beyond and how.strict) or not worst < np.inf or (worst and worst >= known):
        return None
    return Measure(worst, exact_total(sums[: LANES + own.size % LANES]), own.size, Energy(signal, 0), Energy(noise, 0))


def _encode_tile(
    own: Array, scale: Array, zero: Array | None, how: Affine, original: str, out: Array, known: float
) -> Measure:
    wide = plain(own)
    numbers, beyond = affine.to_integers(wide, scale, zero, how.span, how.strict)
    if beyond is not None and beyond.any():
        raise _out_of_reach(float(wide[beyond][0]), how)

    def there_and_back() -> Array:
        out[...] = affine.raw(numbers, how.stored)
        back = scratch("back", out.shape, dtypes.to_numpy(original))
        affine.to_values(affine.signed(out, how.stored), scale, zero, original, back)
        return plain(back)

    back = there_and_back()
    measure = compare(wide, back, known)
    if measure.worst < np.inf:
        return measure
    # The nearest integer stands for a number beyond the last float; the one before it does not.
    middle = np.broadcast_to(0 if zero is None else zero, numbers.shape)
    lost = ~np.isfinite(back)
    numbers[lost] -= np.sign(numbers[lost] - middle[lost])
    return compare(wide, there_and_back(), known)


def _out_of_reach(value: float, how: Affine) -> UnsupportedError:
    zero, scale = 0 if how.zeros is None else int(how.zeros[0]), float(how.scales[0])
    least, most = ((number - zero) * scale for number in how.span)
    return UnsupportedError(f"{value!r}: {how.stored} with a scale of {scale:.6g} goes from {least:.6g} to {most:.6g}")


def encode_cast(
    flat: Array, stored: str, parts: list[Section], bound: float | None = None, first: Place | None = None
) -> Encoded:
    """All values as narrower floats."""
    raw = np.empty(flat.shape, dtypes.to_numpy(stored))
    values, out = [part.values(flat) for part in parts], [part.values(raw) for part in parts]

    def work(place: Place, known: float) -> Measure:
        number, tile = place
        wide = plain(values[number][tile])
        narrow = casts.narrow(wide, stored)
        out[number][tile] = narrow
        back = casts.widen(narrow, wide.dtype.name)
        measure = compare(wide, back, known)
        if not measure.worst < np.inf or measure.finite < wide.size or casts.saturates(stored):
            casts.check_held(wide, back, stored)
        return measure

    return Encoded(raw, _measured(work, parts, bound, first))


def _measured(
    work: Callable[[Place, float], Measure], parts: list[Section], bound: float | None, first: Place | None
) -> Summary:
    limit, worst = np.inf if bound is None else bound, 0.0

    def look(place: Place) -> Measure:
        nonlocal worst
        measure = work(place, worst)
        worst = max(worst, measure.worst)
        if measure.worst > limit:
            raise OverBound(place)
        return measure

    if first is not None:
        look(first)
    with closing(in_threads(lambda run: [look(place) for place in run], places(parts))) as found:
        return summary([measure for run in found for measure in run])


def decode(raw: Array, parts: list[Section], out: Array, one: Callable[[int, Tile, Array, Array], None]) -> None:
    """All values by the way back; `one` writes those of a tile: (section, tile, stored, where to)."""
    sources, targets = [part.values(raw) for part in parts], [part.values(out) for part in parts]

    def work(run: list[Place]) -> None:
        for number, tile in run:
            one(number, tile, sources[number][tile], targets[number][tile])

    for _ in in_threads(work, places(parts)):
        pass
