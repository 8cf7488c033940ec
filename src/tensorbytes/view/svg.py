"""Small drawings as inline SVG: they take the colour of the text around them, and need no namespace in HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from tensorbytes.tensor import Array

_HEIGHT = 100
# More points than a line has pixels add nothing.
_MOST_POINTS = 240


def histogram(edges: Sequence[float], counts: Sequence[int], label: str) -> str:
    """Bars of equal width. A thin line marks zero where it lies inside."""
    width = 10 * max(len(counts), 1)
    most = max(counts, default=0)
    # Few bars stand apart, rather than fill the picture.
    thick = 9 if len(counts) >= 12 else max(3, 9 * len(counts) // 12)
    steps = []
    for place, number in enumerate(counts):
        if number:  # the rarest is still to be seen
            height = max(2, round(_HEIGHT * number / most))
            steps.append(f"M{10 * place + (9 - thick) // 2} {_HEIGHT}v-{height}h{thick}v{height}z")
    zero = ""
    if len(edges) > 1 and edges[0] < 0 < edges[-1]:
        at = width * (-edges[0] / (edges[-1] - edges[0])) if math.isfinite(edges[-1] - edges[0]) else width / 2
        zero = f'<path class="tbv-zero" d="M{at:.1f} 0v{_HEIGHT}"/>'
    bars = f'<path class="tbv-bars" d="{"".join(steps)}"/>'
    return _frame(width, "tbv-hist", label, bars + zero)


def sparkline(values: Array, label: str) -> str:
    """Numbers from left to right, without axes."""
    points = _Scale.of(np.arange(len(values), dtype=np.float64), values).path(np.arange(len(values)), values)
    return _frame(_WIDTH, "tbv-spark", label, _line(points))


_WIDTH = 400


def curve(xs: Array, ys: Array, label: str) -> str:
    """A line through points, with a grid of three lines; NaN and infinities leave gaps."""
    grid = "".join(f'<path class="tbv-grid" d="M0 {y}H{_WIDTH}"/>' for y in (0, _HEIGHT // 2, _HEIGHT))
    return _frame(_WIDTH, "tbv-curve", label, grid + _line(_Scale.of(xs, ys).path(xs, ys)))


def _line(points: str) -> str:
    return f'<path class="tbv-line" d="{points}"/>' if points else ""


def _frame(width: int, kind: str, label: str, inner: str) -> str:
    box = f'viewBox="0 -2 {width} {_HEIGHT + 4}" preserveAspectRatio="none"'
    return f'<svg class="{kind}" {box} role="img" aria-label="{escape(label)}">{inner}</svg>'


class _Scale(NamedTuple):
    """Where points go."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def of(cls, xs: Array, ys: Array) -> _Scale:
        sound = ys[np.isfinite(ys)]
        low, high = (float(sound.min()), float(sound.max())) if len(sound) else (0.0, 0.0)
        return cls(float(xs.min()) if len(xs) else 0.0, float(xs.max()) if len(xs) else 0.0, low, high)

    def path(self, xs: Array, ys: Array) -> str:
        """The line, thinned out to the extremes of each small stretch."""
        xs, ys = _thinned(np.asarray(xs, np.float64), np.asarray(ys, np.float64))
        steps, draw = [], False
        for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
            if not math.isfinite(y):
                draw = False
                continue
            across = _WIDTH * _part(x, self.left, self.right)
            steps.append(f"{'L' if draw else 'M'}{across:.1f} {_HEIGHT * (1 - _part(y, self.low, self.high)):.1f}")
            if not draw:  # a point between gaps is a dot
                steps.append("h.1")
            draw = True
        return "".join(steps)


def _part(value: float, low: float, high: float) -> float:
    """Where a value lies between two others; halves, so that the difference of two huge ones is finite."""
    span = high / 2 - low / 2
    return (value / 2 - low / 2) / span if span > 0 else 0.5


def _thinned(xs: Array, ys: Array) -> tuple[Array, Array]:
    if len(ys) <= _MOST_POINTS:
        return xs, ys
    picked = []
    for stretch in np.array_split(np.arange(len(ys)), _MOST_POINTS // 2):
        part = ys[stretch]
        sound = np.isfinite(part)
        if not sound.all():
            picked.append(int(stretch[np.flatnonzero(~sound)[0]]))
        if sound.any():
            low = np.where(sound, part, np.inf).argmin()
            high = np.where(sound, part, -np.inf).argmax()
            picked += [int(stretch[low]), int(stretch[high])]
    chosen = sorted(set(picked))
    return xs[chosen], ys[chosen]
