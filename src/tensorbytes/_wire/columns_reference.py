"""columns.c in NumPy: the definition of correct, and the fallback."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tensorbytes._wire.common import MOST_DECIMAL, MOST_SCALE
from tensorbytes.typing import Buffer, bytes_view

_MOST_DIGITS = 18
_DIGITS = 4  # that are written at a time
_PIECE = 1 << 16
_MINUS, _PLUS, _POINT, _ZERO = b"-+.0"
_LENGTH = struct.Struct("<I")
_Array = np.ndarray[Any, Any]


# ---- what is missing ----------------------------------------------------------


def missing_zero(data: Buffer, present: Buffer, width: int, portable: bool = False) -> bool:
    elements, missing = _elements(data, present, width)
    return not elements[missing].any()


def missing_clear(data: Buffer, present: Buffer, width: int, portable: bool = False) -> None:
    elements, missing = _elements(data, present, width)
    if missing.any():
        elements[missing] = 0


def _elements(data: Buffer, present: Buffer, width: int) -> tuple[_Array, _Array]:
    raw, flags = np.frombuffer(bytes_view(data), np.uint8), np.frombuffer(bytes_view(present), np.uint8)
    _check(width > 0 and len(raw) == len(flags) * width)
    return raw.reshape(len(flags), width), flags == 0


# ---- offsets and lengths ----------------------------------------------------------


def offsets_rise(offsets: Buffer, width: int) -> bool:
    """Whether offsets of 4 or 8 bytes rise, or stay, from one to the next."""
    raw = bytes_view(offsets)
    if not 0 <= width <= 8:
        raise IndexError(f"a width of {width} is outside")
    _check(width in (4, 8) and len(raw) % width == 0)
    numbers = np.frombuffer(raw, f"<i{width}")
    return bool((numbers[1:] >= numbers[:-1]).all())


def longest_word(data: Buffer, count: int) -> int:
    """The bytes of the longest of some words, each after its length in 4 bytes; -1 if they run past the end."""
    raw = bytes_view(data)
    if count < 0:
        raise IndexError(f"{count} words are outside")
    longest = at = 0
    try:
        for _ in range(count):
            length = _LENGTH.unpack_from(raw, at)[0]
            if length > longest:  # a call of max() would take as long as the rest
                longest = length
            at += 4 + length
    except struct.error:
        return -1
    return longest if at <= len(raw) else -1


# ---- decimals -------------------------------------------------------------------


def decimal_sizes(data: Buffer, present: Buffer | None, offsets: Buffer, width: int, scale: int, most: int) -> bool:
    """Where the text of each decimal begins and the last one ends; whether the digits of all are under `most`."""
    raw, sizes = bytes_view(data), np.frombuffer(bytes_view(offsets), "<i8")
    _check_decimals(len(raw), len(sizes), width, scale, most)
    there = _flags(present, len(sizes) - 1)
    numbers, fit = _numbers(raw, width)
    digits = np.abs(numbers)
    fit &= (digits < most) & (digits >= 0)  # of the lowest number, abs() is itself
    digits[(digits >= MOST_DECIMAL) | (digits < 0)] = 0
    lengths = np.full(len(numbers), 1, np.int64)
    for count in range(1, _MOST_DIGITS):
        lengths += digits >= 10**count
    lengths = np.maximum(lengths, scale + 1) + (numbers < 0) + (scale > 0)
    if there is not None:
        lengths[~there] = 0
        fit |= ~there
    sizes[0] = 0
    np.cumsum(lengths, out=sizes[1:])
    return bool(fit.all())


def decimal_text(data: Buffer, offsets: Buffer, out: Buffer, width: int, scale: int) -> None:
    """The text of decimals whose offsets decimal_sizes gave."""
    raw, sizes = bytes_view(data), np.frombuffer(bytes_view(offsets), "<i8")
    letters = np.frombuffer(bytes_view(out), np.uint8)
    _check_decimals(len(raw), len(sizes), width, scale, 0)
    numbers, fit = _numbers(raw, width)
    for start in range(0, len(numbers), _PIECE):  # whose tables stay in the processor's cache
        part = slice(start, start + _PIECE)
        some, bounds = numbers[part], sizes[start : start + _PIECE + 1]
        lengths = np.diff(bounds)
        there = lengths != 0
        least = scale + (scale > 0) + (some < 0) + 1
        _check(bool((bounds >= 0).all() and (bounds <= len(letters)).all()))
        _check(bool((fit[part] & (np.abs(some) < MOST_DECIMAL) & (np.abs(some) >= 0) | ~there).all()))
        _check(bool(((lengths >= least) & (lengths <= _MOST_DIGITS + 1 + (scale > 0)) | ~there).all()))
        if there.any():
            letters[bounds[0] : bounds[-1]] = _written(some, lengths, scale)


def _numbers(raw: memoryview, width: int) -> tuple[_Array, _Array]:
    """The low 64 bits of each number, and whether that is all of it."""
    if width <= 8:
        numbers: _Array = np.frombuffer(raw, f"<i{width}").astype(np.int64)
        return numbers, np.ones(len(numbers), bool)
    words = np.frombuffer(raw, "<i8").reshape(-1, width // 8)
    numbers = words[:, 0].copy()
    return numbers, (words[:, 1:] == (numbers >> 63)[:, None]).all(axis=1)


def _written(numbers: _Array, lengths: _Array, scale: int) -> _Array:
    """The letters of numbers with a point before the last `scale` digits, each of so many letters."""
    rest, below = np.abs(numbers), numbers < 0
    point = int(scale > 0)
    width = max(int(lengths.max()), scale + 1 + point)
    whole = width - scale - point  # letters before the point
    digits = _digits(rest, whole + scale)
    table = np.empty((len(numbers), width), np.uint8)
    table[:, :whole] = digits[:, digits.shape[1] - scale - whole : digits.shape[1] - scale]
    if point:
        table[:, whole] = _POINT
        table[:, whole + 1 :] = digits[:, -scale:]
    starts = width - lengths
    rows = np.flatnonzero(below & (lengths > 0))
    table[rows, starts[rows]] = _MINUS
    places = np.arange(width + 1)
    found: _Array = table[(places[:-1] >= places[:, None]).take(starts, axis=0)]
    return found


def _digits(numbers: _Array, count: int) -> _Array:
    """The last digits of each number, at least `count` of them, as letters."""
    pieces = -(-count // _DIGITS)
    found = np.empty((len(numbers), pieces), "<u4")
    for place in reversed(range(pieces)):
        above = numbers // 10**_DIGITS
        found[:, place] = _letters()[numbers - above * 10**_DIGITS]
        numbers = above
    return found.view(np.uint8)


def _letters() -> _Array:
    """0000 to 9999, each as one number of four letters."""
    if not _made:
        numbers = np.arange(10**_DIGITS)[:, None] // 10 ** np.arange(_DIGITS)[::-1] % 10
        _made.append((numbers + _ZERO).astype(np.uint8).view("<u4").reshape(-1))
    return _made[0]


_made: list[_Array] = []


def decimal_parse(
    text: Buffer, offsets: Buffer, present: Buffer | None, out: Buffer, width: int, scale: int, most: int
) -> bool:
    """Text as decimals: a sign or none, digits, and up to `scale` more of them after a point. Whether all is so."""
    letters, bounds = np.frombuffer(bytes_view(text), np.uint8), np.frombuffer(bytes_view(offsets), "<i8")
    made = np.frombuffer(bytes_view(out), np.uint8)
    _check_decimals(len(made), len(bounds), width, scale, most)
    there = _flags(present, len(bounds) - 1)
    rows = np.arange(len(bounds) - 1) if there is None else np.flatnonzero(there)
    values = np.zeros(len(bounds) - 1, np.int64)
    numbers = _parsed(letters, bounds[:-1][rows], bounds[1:][rows], scale, most)
    if numbers is None:
        return False
    values[rows] = numbers
    if not len(values):
        return True
    if width == 4:
        made.view("<i4")[:] = values
    else:
        words = made.view("<i8").reshape(-1, width // 8)
        words[:, 0] = values
        words[:, 1:] = (values >> 63)[:, None]
    return True


def _parsed(letters: _Array, starts: _Array, ends: _Array, scale: int, most: int) -> _Array | None:
    """The numbers in stretches of letters; None if one is something else."""
    if not len(starts):
        return starts
    lengths = ends - starts
    # A sign, a point and the digits.
    if starts.min() < 0 or lengths.min() < 1 or ends.max() > len(letters) or lengths.max() > _MOST_DIGITS + 2:
        return None
    below = letters[starts] == _MINUS
    signed = below | (letters[starts] == _PLUS)
    numbers, digits, after = (np.zeros(len(starts), np.int64) for _ in range(3))
    points = np.zeros(len(starts), bool)
    for place in range(int(lengths.max())):
        inside = place < lengths if place else ~signed
        letter = letters[np.minimum(starts + place, len(letters) - 1)]
        point = inside & (letter == _POINT) & (digits > 0) & ~points
        digit = inside & ~point
        if ((letter - np.uint8(_ZERO) > 9) & digit).any() or (digits[digit] >= _MOST_DIGITS).any():
            return None
        numbers = np.where(digit, numbers * 10 + (letter - np.uint8(_ZERO)), numbers)
        digits += digit
        after += digit & points
        points |= point
    if ((digits == after) | (points > after) | (after > scale) | (digits - after + scale > _MOST_DIGITS)).any():
        return None
    numbers *= np.power(10, scale - after)
    if (numbers >= most).any():
        return None
    numbers[below] *= -1
    return numbers


def _flags(present: Buffer | None, count: int) -> _Array | None:
    if present is None:
        return None
    found: _Array = np.frombuffer(bytes_view(present), np.uint8) != 0
    _check(len(found) == count)
    return found


def _check_decimals(size: int, offsets: int, width: int, scale: int, most: int) -> None:
    if not 0 <= width <= 32 or not 0 <= scale <= MOST_SCALE:
        raise IndexError(f"a width of {width} or a scale of {scale} is outside")
    _check(width in (4, 8, 16, 32) and 0 <= most <= MOST_DECIMAL and offsets > 0 and size == (offsets - 1) * width)


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError("the sizes of the buffers, or a number, don't fit")
