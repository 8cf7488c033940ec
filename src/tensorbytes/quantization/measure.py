"""The error of a quantization: exact for the largest, float64 for the rest.

Values that are not finite don't count: they stay as they are or are refused. Sums are made in
an order that no processor's vector width changes, so that the same input gives the same
numbers on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorbytes.quantization.blocks import scratch
from tensorbytes.tensor import Array

# How many sums are made side by side; the kernel has as many.
LANES = 256
_PIECE = 8192
# Sums of squares between these were made without any that overflowed, or vanished and mattered; in float32 too.
_SAFE = 1e-25, 1e30


class Energy(NamedTuple):
    """A sum of squares: value * 2**exponent."""

    value: float
    exponent: int


NOTHING = Energy(0.0, 0)


class Measure(NamedTuple):
    """What was measured on some of the values."""

    worst: float
    total: float  # of the absolute errors
    finite: int  # how many values were
    signal: Energy
    noise: Energy


class Summary(NamedTuple):
    max_error: float
    mean_error: float
    snr: float


def compare(values: Array, back: Array, known: float = 0.0) -> Measure:
    """Measure values against what comes back for them. Errors below one that is known are not made exact."""
    values, back = values.reshape(-1), back.reshape(-1)
    error = scratch("error", back.shape, np.float64)
    with np.errstate(invalid="ignore"):  # infinities, and what is not a number
        np.subtract(values, back, out=error, dtype=np.float64)
    np.abs(error, out=error)
    worst = float(error.max())
    if not worst < math.inf:
        finite = np.isfinite(values)
        values, error, back = values[finite], error[finite], back[finite]
        worst = float(error.max(initial=0))
        if not worst < math.inf:
            return Measure(math.inf, math.inf, len(values), NOTHING, NOTHING)
    if worst and worst >= known:
        worst = _rounded_up(values, back, error, worst)
    return Measure(worst, _sum(error), len(values), _energy(values), _energy(error))


def _rounded_up(values: Array, back: Array, error: Array, worst: float) -> float:
    """The largest error, not less than it is: a difference in float64 may have been rounded down."""
    which = np.flatnonzero(error == worst)
    a, b = values[which].astype(np.float64), back[which].astype(np.float64)
    difference = a - b
    # What the rounding has taken away, exactly (two-sum).
    taken = a - difference
    lost = (a - (difference + taken)) + (taken - b)
    return math.nextafter(worst, math.inf) if (lost * np.sign(difference) > 0).any() else worst


def _sum(values: Array) -> float:
    lanes = len(values) // LANES * LANES
    parts = np.add.reduce(values[:lanes].reshape(-1, LANES), axis=0) if lanes else np.empty(0)
    return exact_total(np.concatenate((parts, values[lanes:])))


def exact_total(parts: Array) -> float:
    """The sum of sums, rounded once."""
    try:
        return math.fsum(parts.tolist())
    except OverflowError:
        return math.inf


def _energy(values: Array) -> Energy:
    """The sum of the squares. Its last digits differ between processors, and are not stated."""
    total = _squares(values)
    if _SAFE[0] < total < _SAFE[1]:
        return Energy(total, 0)
    peak = float(np.abs(values).max(initial=0))
    if not peak:
        return NOTHING
    exponent = math.frexp(peak)[1]
    return Energy(_squares(np.ldexp(values.astype(np.float64), -exponent)), 2 * exponent)


def _squares(values: Array) -> float:
    # In pieces that linear algebra libraries give no threads of their own to.
    rest = len(values) // _PIECE * _PIECE
    pieces = values[:rest].reshape(-1, _PIECE)
    with np.errstate(all="ignore"):
        return float(np.vecdot(pieces, pieces).sum(dtype=np.float64)) + float(np.dot(values[rest:], values[rest:]))


def summary(measures: list[Measure]) -> Summary:
    """What is stated of a whole tensor."""
    worst = max((measure.worst for measure in measures), default=0.0)
    count = sum(measure.finite for measure in measures)
    if not worst:
        return Summary(0.0, 0.0, math.inf)
    mean = min(sum(measure.total for measure in measures) / count, worst)
    signal, noise = (_together(side) for side in zip(*((m.signal, m.noise) for m in measures), strict=True))
    return Summary(worst, mean, _decibels(signal, noise))


def _together(energies: Sequence[Energy]) -> Energy:
    top = max((energy.exponent for energy in energies if energy.value), default=0)
    return Energy(math.fsum(math.ldexp(e.value, max(e.exponent - top, -5000)) for e in energies if e.value), top)


def _decibels(signal: Energy, noise: Energy) -> float:
    """Rounded to hundredths: beyond, logarithms differ between machines."""
    if not noise.value:
        return math.inf
    if not signal.value:
        return -math.inf
    ratio = math.log2(signal.value) - math.log2(noise.value) + (signal.exponent - noise.exponent)
    return round(10 * math.log10(2) * ratio, 2)
