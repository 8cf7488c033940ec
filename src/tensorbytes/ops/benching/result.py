"""What was measured, as data, as a table and in words."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tensorbytes.errors import UsageError
from tensorbytes.notebook import Displayed
from tensorbytes.ops.benching import advice
from tensorbytes.ops.benching.choices import label, usage
from tensorbytes.ops.benching.words import amount, duration, speed
from tensorbytes.ops.inspection import printable

_WIDTH = 100
HEAD = ("choice", "size", "of raw", "write", "read", "slice", "mmap", "exact", "checks", "read by")
LEFT = frozenset({0, 9})  # columns of words


@dataclass(frozen=True)
class BenchRow:
    """One choice. A refused one has its reason and no numbers; seconds are those of the fastest round."""

    format: str
    compression: str | None
    read_by: str = ""  # who else reads such files
    size: int | None = None  # bytes on disk
    ratio: float | None = None  # to the bytes in memory
    write_seconds: float | None = None
    read_seconds: float | None = None
    write_speed: float | None = None  # GB of raw bytes in a second
    read_speed: float | None = None
    slice_seconds: float | None = None  # opening the file and reading 4 KB of it; None: it has no slices
    lossless: bool = False  # what came back was the same bit for bit
    fault: str = ""  # why it was not
    mapped: float = 0.0  # the share of the data that mmap=True gives as views of the file
    notices_damage: bool | None = None  # whether a flipped bit was noticed; None: too small to tell
    rounds: int = 0
    refused: str = ""

    @property
    def held(self) -> bool:
        """Whether the format takes the data, and gives it back."""
        return not self.refused and self.read_seconds is not None

    @property
    def zero_copy(self) -> bool:
        """Whether mmap=True gives views of the file, of nearly all of the data."""
        return self.mapped >= 0.99

    @property
    def label(self) -> str:
        return label(self.format, self.compression)

    @property
    def usage(self) -> str:
        """How to write such a file."""
        return usage(self.format, self.compression)


@dataclass
class Bench(Displayed):
    """The result of `bench`. `best` is the row for the goal, `reason` says why."""

    goal: str
    source: str  # a path, or the type of the object
    description: str  # what the tensors are
    nbytes: int  # bytes that were measured
    total: int | None  # bytes that there are; None if nobody counted them
    rows: list[BenchRow]
    storage: float = 500e6  # bytes in a second, of the disk or network that "balanced" reckons with
    notes: list[str] = field(default_factory=list)  # what was left out, how rows became columns
    machine: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        advice.check(self.goal, self.storage)

    @property
    def sampled(self) -> bool:
        """Whether only a part of the data was measured."""
        return self.total != self.nbytes

    @property
    def best(self) -> BenchRow | None:
        """The row that suits the goal; None if no lossless choice holds the data."""
        return self.recommend().row

    @property
    def reason(self) -> str:
        return self.recommend().reason

    def recommend(self, goal: str | None = None, *, storage: float | None = None) -> advice.Advice:
        """The row for a goal, which may be another one, from what was measured."""
        return advice.advise(self.rows, goal or self.goal, self.storage if storage is None else storage)

    def ranked(self) -> list[BenchRow]:
        """The rows, best first; those that lose something or refuse the data come last."""
        return advice.ranked(self.rows, self.goal, self.storage)

    # ---- as data ---------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {key: value for key, value in vars(self).items() if key != "rows"}
        found = {goal: self.recommend(goal) for goal in advice.GOALS}
        return plain | {
            "rows": [asdict(row) | {"zero_copy": row.zero_copy, "usage": row.usage} for row in self.rows],
            "sampled": self.sampled,
            "recommendations": {
                goal: {
                    "format": None if one.row is None else one.row.format,
                    "compression": None if one.row is None else one.row.compression,
                    "reason": one.reason,
                }
                for goal, one in found.items()
            },
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Bench:
        """The result whose `to_dict` or JSON this is."""
        names = BenchRow.__dataclass_fields__
        rows = [BenchRow(**{key: row[key] for key in names if key in row}) for row in plain["rows"]]
        return cls(**{key: plain[key] for key in cls.__dataclass_fields__ if key in plain and key != "rows"}, rows=rows)

    def json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def chart(self, path: str | os.PathLike[str]) -> None:
        """Draw sizes and speeds, as .svg, or as .png where matplotlib is installed."""
        from tensorbytes.ops.benching import chart

        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix not in (".svg", ".png"):
            raise UsageError("a chart is a .svg or a .png file", path=os.fspath(path))
        drawing = chart.draw(self)
        if suffix == ".svg":
            with open(path, "w", encoding="utf-8") as file:
                file.write(chart.svg(drawing))
        else:
            chart.png(drawing, path)

    # ---- in words --------------------------------------------------------------

    @property
    def headline(self) -> str:
        """What was measured."""
        total = "" if self.total is None else f" of {amount(self.total)}"
        measured = f"a sample of {amount(self.nbytes)}{total}" if self.sampled else amount(self.nbytes)
        notes = f" ({'; '.join(map(printable, self.notes))})" if self.notes else ""
        return f"{printable(self.source)}: {self.description}, {measured}{notes}"

    def table(self) -> str:
        """The rows that hold the data, aligned, best first."""
        rows = [HEAD, *(row_cells(row) for row in self.ranked() if not row.refused)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [
                cell.ljust(width) if number in LEFT else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def __str__(self) -> str:
        advised = self.recommend()
        parts = [*_wrapped(self.headline), ""]
        parts += _wrapped(f"{self.goal}: {advised.reason}")
        if advised.row is not None:
            parts += [f"  {advised.row.usage}"]
        parts += ["", self.table()]
        parts += ["", *_wrapped(METHOD)]
        faults = [f"{row.label}: {row.fault}" for row in self.rows if row.fault]
        parts += _listed("not lossless:", faults) + _listed("can't hold this:", refusals(self.rows))
        return "\n".join(parts)


METHOD = (
    "write, read: GB of raw bytes in a second, files in the page cache. slice: opening the file and reading 4 KB. "
    "mmap: load(mmap=True) gives views of the file. exact: everything came back bit for bit. checks: a flipped bit "
    "was noticed."
)


def refusals(rows: Iterable[BenchRow]) -> list[str]:
    """A line for each reason, however many choices met it."""
    said: dict[str, list[str]] = {}
    for row in rows:
        if row.refused:
            reason = row.refused.removeprefix(f"format {row.format!r} ")
            names = said.setdefault(reason, [])
            if row.format not in names:  # what it refuses uncompressed it refuses in any case
                names.append(row.label)
    return [f"{', '.join(names)}: {reason}" for reason, names in said.items()]


def _listed(title: str, lines: list[str]) -> list[str]:
    return ["", title, *(text for line in lines for text in _wrapped(printable(line), "  "))] if lines else []


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)


def row_cells(row: BenchRow) -> tuple[str, ...]:
    """A row of the table, below HEAD."""
    mapped = "yes" if row.zero_copy else f"{row.mapped:.0%}" if row.mapped else "no"
    return (
        row.format + (f" {row.compression}" if row.compression else ""),
        amount(row.size or 0),
        f"{row.ratio:.1%}",
        speed(row.write_speed),
        speed(row.read_speed),
        "" if row.slice_seconds is None else duration(row.slice_seconds),
        mapped,
        "yes" if row.lossless else "NO",
        "" if row.notices_damage is None else "yes" if row.notices_damage else "no",
        row.read_by,
    )
