"""Which row suits which goal, by formulas that anyone can recompute from the rows.

| goal     | the least of                                                  | a draw     | goes to the least |
| -------- | ------------------------------------------------------------- | ---------- | ----------------- |
| size     | size                                                          | within 1 % | seconds           |
| speed    | write + read seconds                                          | within 5 % | size              |
| balanced | write + read seconds + 2 * size / storage (bytes in a second) | within 5 % | size              |

Only rows that are lossless take part. What is alike in both respects (seconds within 5 %, sizes
within 1 %) is decided by the order of the rows, in which the native format comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tensorbytes.errors import UsageError
from tensorbytes.formats import NATIVE
from tensorbytes.ops.benching.words import duration

if TYPE_CHECKING:
    from tensorbytes.ops.benching.result import BenchRow

GOALS = ("balanced", "size", "speed")
# What differs by less than this, relative to the best, is a draw. Times are not exact; sizes are, but nobody
# gives up speed for a header.
SIZE_DRAW, TIME_DRAW = 0.01, 0.05
DRAW = {"size": SIZE_DRAW, "speed": TIME_DRAW, "balanced": TIME_DRAW}
_SECOND_DRAW = {"size": TIME_DRAW, "speed": SIZE_DRAW, "balanced": SIZE_DRAW}


class Advice(NamedTuple):
    """A row, None if there is none to recommend, and why."""

    row: BenchRow | None
    reason: str


def check(goal: str, storage: float) -> None:
    if goal not in GOALS:
        raise UsageError(f"goal={goal!r}", expected=f"one of {', '.join(map(repr, GOALS))}")
    if not isinstance(storage, int | float) or not storage > 0:
        raise UsageError(f"storage={storage!r}", expected="bytes in a second, such as 500e6")


def seconds(row: BenchRow) -> float:
    """To write once and read once, without the storage."""
    assert row.write_seconds is not None
    assert row.read_seconds is not None
    return row.write_seconds + row.read_seconds


def score(row: BenchRow, goal: str, storage: float) -> float:
    """The less, the better."""
    assert row.size is not None
    if goal == "size":
        return float(row.size)
    return seconds(row) + (2 * row.size / storage if goal == "balanced" else 0.0)


def _second(row: BenchRow, goal: str) -> float:
    return seconds(row) if goal == "size" else float(row.size or 0)


def candidates(rows: Iterable[BenchRow]) -> list[BenchRow]:
    return [row for row in rows if row.held and row.lossless]


def best(rows: Iterable[BenchRow], goal: str, storage: float) -> BenchRow | None:
    fit = candidates(rows)
    if not fit:
        return None
    least = min(score(row, goal, storage) for row in fit)
    near = [row for row in fit if score(row, goal, storage) <= least * (1 + DRAW[goal])]
    return _alike(near, goal)[0]


def _alike(near: list[BenchRow], goal: str) -> list[BenchRow]:
    """Those of a draw that are best in the other respect."""
    least = min(_second(row, goal) for row in near)
    return [row for row in near if _second(row, goal) <= least * (1 + _SECOND_DRAW[goal])]


def ranked(rows: list[BenchRow], goal: str, storage: float) -> list[BenchRow]:
    first = best(rows, goal, storage)
    fit = sorted(candidates(rows), key=lambda row: score(row, goal, storage))
    rest = [row for row in rows if not (row.held and row.lossless)]
    return [row for row in fit if row is first] + [row for row in fit if row is not first] + rest


def advise(rows: list[BenchRow], goal: str, storage: float) -> Advice:
    check(goal, storage)
    row = best(rows, goal, storage)
    if row is None:
        return Advice(None, "no choice holds this data without loss")
    assert row.ratio is not None
    assert row.write_speed is not None
    assert row.read_speed is not None
    told = [
        f"{row.label}: {row.ratio:.1%} of the raw size, writes {_rate(row.write_speed)}, "
        f"reads {_rate(row.read_speed)} of raw bytes"
    ]
    if goal == "balanced":
        told.append(f"to and from storage of {storage / 1e6:.0f} MB/s that takes {duration(score(row, goal, storage))}")
    told += _compared(row, rows, goal, storage)
    told += _draw(row, rows, goal, storage)
    if row.notices_damage is False:
        told.append("it has no checksum, damage goes unnoticed")
    return Advice(row, "; ".join(told))


def _compared(row: BenchRow, rows: list[BenchRow], goal: str, storage: float) -> list[str]:
    """Beside the plain native format, or beside the next best if the plain one is the best."""
    plain = next((one for one in candidates(rows) if one.format == NATIVE and one.compression is None), None)
    if plain is not None and plain is not row:
        return [f"uncompressed {NATIVE} {_against(plain, row, goal, storage)}"]
    others = [one for one in ranked(rows, goal, storage) if one.held and one.lossless and one is not row]
    packed = next((one for one in others if one.compression), None)
    if packed is not None and row.compression is None:
        return [f"compression does not pay: the best, {packed.label}, {_against(packed, row, goal, storage)}"]
    return [f"next is {others[0].label}, which {_against(others[0], row, goal, storage)}"] if others else []


def _against(other: BenchRow, row: BenchRow, goal: str, storage: float) -> str:
    if goal == "size":
        return f"takes {other.ratio:.1%}"
    times = _factor(score(other, goal, storage) / score(row, goal, storage))
    return f"takes {times} that time" + (f", at {other.ratio:.1%} of the raw size" if goal == "balanced" else "")


def _draw(row: BenchRow, rows: list[BenchRow], goal: str, storage: float) -> list[str]:
    """That another was a hair better, if so."""
    least = min(candidates(rows), key=lambda one: score(one, goal, storage))
    if score(least, goal, storage) == score(row, goal, storage):
        return []
    if least in _alike([row, least], goal):
        return [f"as good as {least.label}, within {DRAW[goal]:.0%}"]
    return [f"within {DRAW[goal]:.0%} of {least.label}, which is {'slower' if goal == 'size' else 'larger'}"]


def _rate(speed: float) -> str:
    return f"{speed:.2g} GB/s" if speed < 10 else f"{speed:.0f} GB/s"


def _factor(times: float) -> str:
    return f"{times:.2f} times" if times < 10 else f"{times:.0f} times"
