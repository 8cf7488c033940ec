"""Bars and histograms, of block characters or, where the terminal has none, of ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int, blocks: bool = True) -> str:
    """A part of a whole as a bar, at least a sliver of one for what is not nothing."""
    if share <= 0:
        return ""
    if not blocks:
        return "#" * max(round(share * width), 1)
    whole, eighths = divmod(max(round(share * width * 8), 1), 8)
    return _EIGHTHS[8] * whole + _EIGHTHS[eighths].strip()


def percent(part: float, whole: float) -> str:
    """52 %; what is little and not nothing is < 1 %, and what is nearly all is not 100 %."""
    if not whole:
        return ""
    share = 100 * part / whole
    if 99.5 <= share < 100:
        return f"{share:.1f} %" if share < 99.95 else "> 99.9 %"
    return "< 1 %" if 0 < share < 1 else f"{share:.0f} %"


def histogram(counts: Sequence[float], height: int, blocks: bool = True) -> list[str]:
    """Columns of different heights, the lines from the top; every column that is not empty shows."""
    most = max(counts, default=0)
    steps = 8 if blocks else 1
    heights = [0 if not count else max(round(count / most * height * steps), 1) for count in counts]
    levels = _LEVELS if blocks else " #"
    return [
        "".join(levels[min(max(tall - line * steps, 0), steps)] for tall in heights) for line in reversed(range(height))
    ]


def gathered(counts: Sequence[int], width: int) -> list[float]:
    """At most so many columns, each as wide as any other: a count that two of them share is divided."""
    if len(counts) <= width:
        return list(counts)
    below = [0, *accumulate(counts)]

    def up_to(place: float) -> float:
        whole = min(int(place), len(counts) - 1)
        return below[whole] + (place - whole) * counts[whole]

    edges = [up_to(at * len(counts) / width) for at in range(width + 1)]
    return [high - low for low, high in pairwise(edges)]
