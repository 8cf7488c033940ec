"""stats: how the numbers of each tensor are spread, a few mebibytes at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorbytes._wire.portions import portions
from tensorbytes.errors import LIMITS, Limits, UsageError
from tensorbytes.io.storage import naming
from tensorbytes.io.workers import count_threads, run_pipeline
from tensorbytes.notebook import Displayed
from tensorbytes.ops.inspection import printable
from tensorbytes.ops.pieces import Piece, pieces_of
from tensorbytes.ops.selection import Selection
from tensorbytes.ops.tallies import Found, FoundAgain, Lengths, Numbers, Texts
from tensorbytes.rows import unique
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.typing import bytes_view

T = TypeVar("T")
# What a thread looks at in one go.
_PART_BYTES = 2 << 20
_MOST_PARTS = 256

_MOST_BINS = 100_000
_MOST_FREQUENT = 5
_TIMES = ("datetime64", "timedelta64")
# How a file tells the unit; nothing else of what it says is believed.
_UNIT = re.compile(r"<([mM])8(\[[0-9]{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])")
_FIGURES = ("min", "max", "nan", "positive_inf", "negative_inf", "zeros", "negative")


@dataclass(frozen=True)
class Histogram:
    """counts[k] finite numbers lie in edges[k] <= x < edges[k + 1]; the last bin of floats has its upper edge too."""

    edges: tuple[float, ...]  # integers for integers
    counts: tuple[int, ...]


@dataclass(frozen=True)
class LengthStatistics:
    """How long strings are, in bytes, or how many elements rows have. None where there are none."""

    min: int | None
    mean: float | None
    max: int | None
    empty: int


@dataclass(frozen=True)
class Statistics(Displayed):
    """The result of `stats` for one tensor, or one feature of all records.

    min, max, mean, std and the histogram are of the finite numbers; std divides by their count.
    """

    name: str
    kind: str  # tensor, strings, ragged, sparse
    dtype: str  # "string" for strings
    count: int  # elements; of sparse tensors those that are stored
    of: str = ""  # "magnitude" of complex numbers; the unit of dates and durations, such as datetime64[s]
    min: int | float | None = None
    max: int | float | None = None
    mean: float | None = None
    std: float | None = None
    nan: int = 0  # also dates that are none (NaT)
    positive_inf: int = 0
    negative_inf: int = 0
    zeros: int = 0
    negative: int = 0  # negative infinities too
    histogram: Histogram | None = None
    lengths: LengthStatistics | None = None  # of strings
    distinct: int | None = None  # strings; None where there are too many to count
    frequent: tuple[tuple[str, int], ...] = ()  # strings that are there most often, long ones cut
    approximate: bool = False  # whether the counts of frequent strings are lower bounds
    rows: int | None = None  # of a table or a ragged tensor
    missing: int = 0  # rows of a table that lack the feature
    row_lengths: LengthStatistics | None = None  # of ragged tensors
    density: float | None = None  # of sparse tensors

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: finite numbers, text and None."""
        plain = asdict(self)
        return plain | {"earliest": self.earliest, "latest": self.latest} if self._has_dates else plain

    @property
    def earliest(self) -> str | None:
        """The first of dates, as text."""
        return self._date(self.min)

    @property
    def latest(self) -> str | None:
        """The last of dates, as text."""
        return self._date(self.max)

    @property
    def _has_dates(self) -> bool:
        return self.of.startswith("datetime64[")

    def _date(self, number: int | float | None) -> str | None:
        if number is None or not self._has_dates:
            return None
        return str(np.array(int(number), np.int64).astype(self.of))

    def _number(self, number: int | float) -> str:
        return self._date(number) or (str(number) if isinstance(number, int) else f"{number:.6g}")

    def __str__(self) -> str:
        kind = "" if self.kind in ("tensor", "strings") else f" {self.kind}"
        words = [f"{printable(self.name) or '(no name)'}: {self.dtype}{kind}, {self.count} values"]
        if self.min is not None and self.max is not None and self.mean is not None and self.std is not None:
            what = f" of {self.of}" if self.of == "magnitude" else ""
            words.append(f"{self._number(self.min)} to {self._number(self.max)}{what}")
            words += [f"mean {self._number(self.mean)}", f"std {self.std:.6g}"]
        named = {"NaN": self.nan, "+Inf": self.positive_inf, "-Inf": self.negative_inf}
        named |= {"zeros": self.zeros, "negative": self.negative, "missing": self.missing}
        words += [f"{label} {number}" for label, number in named.items() if number]
        for what, lengths in (("bytes", self.lengths), ("long rows", self.row_lengths)):
            if lengths is not None and lengths.mean is not None:
                words.append(f"{lengths.min} to {lengths.max} {what}, mean {lengths.mean:.6g}")
                words += [f"empty {lengths.empty}"] if lengths.empty else []
        if self.density is not None:
            words.append(f"density {self.density:.3g}")
        if self.frequent:
            shown = ", ".join(f'"{printable(text)}" {number}' for text, number in self.frequent)
            words.append(f"most frequent{' (at least)' if self.approximate else ''}: {shown}")
        return ", ".join(words)


class StatisticsByName(dict[str, Statistics], Displayed):
    """The result of `stats`: the Statistics of each tensor, by its name."""

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain values, ready for JSON."""
        return {name: each.to_dict() for name, each in self.items()}

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))


def stats(
    source: Any,
    names: Collection[str] | str | None = None,
    *,
    format: str | None = None,
    bins: int = 40,
    limits: Limits = LIMITS,
    read_options: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> StatisticsByName:
    """Count, extremes, mean, standard deviation and histogram of each tensor, by its name.

    `source` is a path, a URL, a file object or a list of paths of records, or a tensor or a structure of them.
    `names` are names or patterns such as "layer.*"; a tensor without a name is listed under "". Tensors of one
    name in a stream, and a feature of all records, count together. Every byte that has a checksum is verified.
    `progress` is told how many bytes of values were seen; numbers are seen twice.
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= _MOST_BINS:
        raise UsageError(f"bins={bins!r}", expected=f"a whole number from 1 to {_MOST_BINS}")
    selection = Selection(names, None)
    path, pieces = pieces_of(source, format, limits, selection, read_options)
    seen = _Counter(progress)
    found: dict[tuple[str, str], _Tally] = {}

    def first() -> Iterator[_Part]:
        for piece in pieces(None):
            tally = found.setdefault((piece.name, piece.dtype), _Tally(piece, bins))
            tally.note(piece)
            yield from _parts(piece, tally)

    def second() -> Iterator[_Part]:
        for piece in pieces({name for name, _ in numeric}):
            yield from _parts(piece, found[piece.name, piece.dtype] if (piece.name, piece.dtype) in numeric else None)

    with naming(path):
        for tally, numbers, size in _in_threads(_Part.look, first()):
            if tally is not None and tally.numbers is not None and numbers is not None:
                tally.numbers.add(numbers)
            seen(size)
        if path:
            selection.check_used(path)
        elif selection.unused:
            raise UsageError(f"there is no tensor {min(selection.unused)!r}")
        numeric = {key for key, tally in found.items() if tally.prepare()}
        if numeric:
            for tally, again, size in _in_threads(_Part.look_again, second()):
                if tally is not None and tally.numbers is not None and again is not None:
                    tally.numbers.add_again(again)
                seen(size)
    result = StatisticsByName()
    for (name, _), tally in found.items():
        free = unique(name, result)  # one name with several dtypes, in a stream
        result[free] = tally.finish(free)
    return result


class _Counter:
    """Tells how far it is."""

    def __init__(self, progress: Callable[[int], None] | None) -> None:
        self._progress, self._done = progress, 0

    def __call__(self, size: int) -> None:
        if self._progress is not None and size:
            self._done += size
            self._progress(self._done)


class _Part(NamedTuple):
    """Some of the numbers of a piece, or a piece of anything else. Of what is told of as a whole, the size is 0."""

    tally: _Tally | None  # None: nothing is asked about it
    data: memoryview | None
    size: int

    def look(self) -> tuple[_Tally | None, Found | None, int]:
        numbers = self.tally.numbers if self.tally is not None else None
        return self.tally, None if numbers is None or self.data is None else numbers.look(self.data), self.size

    def look_again(self) -> tuple[_Tally | None, FoundAgain | None, int]:
        numbers = self.tally.numbers if self.tally is not None else None
        return self.tally, None if numbers is None or self.data is None else numbers.look_again(self.data), self.size


def _parts(piece: Piece, tally: _Tally | None) -> Iterator[_Part]:
    values = piece.values
    if values is None:
        return
    if not isinstance(values, Tensor) or tally is None or not values.nbytes:
        yield _Part(None, None, values.nbytes)
        return
    data = bytes_view(values.data)
    for part in portions(len(data), _PART_BYTES):
        yield _Part(tally, data[part], part.stop - part.start)


def _in_threads(look: Callable[[_Part], T], parts: Iterator[_Part]) -> Iterator[T]:
    """What is found in each part, in order. Threads get some at a time: a small one is not worth waking them."""

    def work(some: list[_Part]) -> list[T]:
        return [look(part) for part in some]

    with closing(run_pipeline(work, _runs(parts), count_threads())) as results:
        for found in results:
            yield from found


def _runs(parts: Iterator[_Part]) -> Iterator[list[_Part]]:
    run: list[_Part] = []
    for part in parts:
        run.append(part)
        if sum(one.size for one in run) >= _PART_BYTES or len(run) >= _MOST_PARTS:
            yield run
            run = []
    if run:
        yield run


class _Tally:
    """What is added up for one name."""

    def __init__(self, piece: Piece, bins: int) -> None:
        self.kind, self.dtype, self.origin = piece.kind, piece.dtype, piece.origin
        self.numbers = None if piece.dtype == "string" else Numbers(piece.dtype, bins)
        self.texts = Texts() if piece.dtype == "string" else None
        self.row_lengths = Lengths()
        self.rows = self.missing = self.cells = 0

    def note(self, piece: Piece) -> None:
        """What a piece tells but for its numbers."""
        self.rows += piece.rows
        self.missing += piece.missing
        self.cells += piece.cells
        if piece.row_lengths is not None:
            self.row_lengths.add(piece.row_lengths)
        if piece.values is not None:
            self._check_unit(piece)
        if self.texts is not None and isinstance(piece.values, Strings):
            self.texts.add(piece.values)

    def _check_unit(self, piece: Piece) -> None:
        if piece.dtype in _TIMES:
            units = self.origin.get("numpy.dtype"), piece.origin.get("numpy.dtype")
            if units[0] != units[1]:
                raise UsageError(f"{piece.name!r} is {units[0]} and {units[1]} in one stream: no figures for both")

    def prepare(self) -> bool:
        """Whether there is something to see a second time."""
        if self.numbers is None:
            return False
        self.numbers.prepare()
        return self.numbers.finite > 0

    def finish(self, name: str) -> Statistics:
        rows_known = self.kind == "ragged" or self.rows or self.missing
        common: dict[str, Any] = {
            "rows": self.rows if rows_known else None,
            "missing": self.missing,
            "row_lengths": _lengths(self.row_lengths) if self.kind == "ragged" else None,
        }
        if self.texts is not None:
            texts = self.texts
            count = texts.lengths.count
            common |= {
                "lengths": _lengths(texts.lengths),
                "distinct": texts.distinct,
                "frequent": tuple(texts.frequent(_MOST_FREQUENT)),
                "approximate": texts.forgot,
            }
        else:
            assert self.numbers is not None
            count = self.numbers.found.elements
            common |= self._figures(self.numbers)
        if self.kind == "sparse":
            common["density"] = count / self.cells if self.cells else None
        return Statistics(name, self.kind, self.dtype, count, **common)

    def _figures(self, numbers: Numbers) -> dict[str, Any]:
        of = "magnitude" if "complex" in self.dtype else ""
        if self.dtype in _TIMES:
            told = _UNIT.fullmatch(self.origin.get("numpy.dtype", ""))
            of = self.dtype + (told[2] if told else "")
        bars = Histogram(tuple(numbers.edges), tuple(numbers.counts)) if numbers.finite else None
        figures = {key: getattr(numbers.found, key) for key in _FIGURES}
        return figures | {"mean": numbers.mean, "std": numbers.std, "of": of, "histogram": bars}


def _lengths(lengths: Lengths) -> LengthStatistics:
    return LengthStatistics(lengths.min, lengths.mean, lengths.max, lengths.empty)
