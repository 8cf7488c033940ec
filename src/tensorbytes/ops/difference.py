"""diff: two files of any formats, compared tensor by tensor without holding either in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from tensorbytes import metadata, opening, rows
from tensorbytes.errors import LIMITS, Limits, UsageError
from tensorbytes.formats._opened import BATCH_ROWS, Opened
from tensorbytes.io.checksums import crc32
from tensorbytes.io.storage import naming
from tensorbytes.notebook import Displayed
from tensorbytes.ops.comparing import same_value
from tensorbytes.ops.inspection import printable, table
from tensorbytes.ops.numbers import Distance
from tensorbytes.ops.plural import many
from tensorbytes.ops.selection import Selection
from tensorbytes.ops.targets import column_name
from tensorbytes.rows import Table
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, check_unread
from tensorbytes.typing import bytes_view

_MOST_SHOWN = 60
# Smaller tensors are compared as they are.
_TELLING_BYTES = 64
# Of tensors with one mark that might be the same, this many are compared.
_MOST_TRIED = 16


@dataclass
class TensorDiff:
    """One tensor, or one column of rows, in both files."""

    name: str
    identical: bool = True  # bit for bit
    shapes: tuple[Any, Any] = ((), ())
    dtypes: tuple[str, str] = ("", "")
    why: str = ""  # why there are no figures: other shapes, other kinds, other indices
    numbers: Distance = field(default_factory=Distance)
    strings: int = 0  # that differ

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {key: value for key, value in vars(self).items() if key != "numbers"}
        return plain | self.numbers.to_dict()


@dataclass
class Difference(Displayed):
    """The result of `diff`."""

    a: str
    b: str
    only_in_a: list[str] = field(default_factory=list)
    only_in_b: list[str] = field(default_factory=list)
    tensors: list[TensorDiff] = field(default_factory=list)
    rows: tuple[int, int] | None = None
    meta: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # of the whole, where it differs
    renamed: list[tuple[str, str]] = field(default_factory=list)  # of those in one file only: the same tensor in both

    @property
    def identical(self) -> bool:
        """Whether the same names hold the same values, bit for bit. Metadata does not count."""
        return self._same_outline() and all(tensor.identical for tensor in self.tensors)

    def close(self, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
        """Whether all numbers lie within a tolerance, and all else agrees."""
        return self._same_outline() and all(_close(tensor, rtol, atol) for tensor in self.tensors)

    def _same_outline(self) -> bool:
        """Whether both have the same names and as many rows."""
        return not (self.only_in_a or self.only_in_b or (self.rows is not None and self.rows[0] != self.rows[1]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {key: value for key, value in vars(self).items() if key != "tensors"}
        return plain | {"identical": self.identical, "tensors": [tensor.to_dict() for tensor in self.tensors]}

    def __str__(self) -> str:
        different = [tensor for tensor in self.tensors if not tensor.identical]
        head = "identical" if self.identical else f"{len(different)} of {len(self.tensors)} common tensors differ"
        lines = [f"{self.a} | {self.b}: {head}"]
        if self.rows is not None:
            lines.append(f"  rows: {self.rows[0]} | {self.rows[1]}")
        for where, names in (("a", self.only_in_a), ("b", self.only_in_b)):
            lines += [f"  only in {where}: {printable(name)}" for name in names[:_MOST_SHOWN]]
        lines += [f"  the same: {printable(one)} | {printable(two)}" for one, two in self.renamed[:_MOST_SHOWN]]
        lines += table([_cells(tensor) for tensor in different[:_MOST_SHOWN]])
        if len(different) > _MOST_SHOWN:
            lines.append(f"  and {len(different) - _MOST_SHOWN} more")
        lines += [f"  metadata {printable(key)}: {one!r} | {two!r}" for key, (one, two) in self.meta.items()]
        return "\n".join(lines)


def _close(tensor: TensorDiff, rtol: float, atol: float) -> bool:
    numbers = tensor.numbers
    if tensor.identical:
        return True
    within = numbers.max_abs <= atol or numbers.max_rel <= rtol
    return not tensor.why and bool(numbers.elements) and within and not numbers.nan_apart


def _cells(tensor: TensorDiff) -> tuple[str, ...]:
    dtype = tensor.dtypes[0] if tensor.dtypes[0] == tensor.dtypes[1] else " | ".join(tensor.dtypes)
    if tensor.why:
        return (printable(tensor.name), dtype, tensor.why, "", "")
    numbers = tensor.numbers
    nans = f"NaN {numbers.nan_a} | {numbers.nan_b}" if numbers.nan_a or numbers.nan_b else ""
    cosine = "" if numbers.cosine is None else f"cosine {numbers.cosine:.9g}"
    if not numbers.differing:
        return (printable(tensor.name), dtype, "equal numbers, other bits", nans, cosine)
    size = f"{numbers.differing} of {numbers.elements}, max abs {numbers.max_abs:.6g}, max rel {numbers.max_rel:.6g}"
    return (printable(tensor.name), dtype, size, nans, cosine)


def diff(
    a: Any,
    b: Any,
    *,
    a_format: str | None = None,
    b_format: str | None = None,
    names: Collection[str] | str | None = None,
    limits: Limits = LIMITS,
    progress: Callable[[int], None] | None = None,
) -> Difference:
    """What differs between two files of any formats: names, shapes, dtypes, numbers.

    Rows of tables and streams are compared one with the other, a few thousand at a time;
    a table and a file of arrays are compared along the arrays' first axis. `progress` is
    called with the number of bytes compared so far.
    """
    sources = opening.open_file(a, a_format, limits=limits), opening.open_file(b, b_format, limits=limits)
    result = Difference(sources[0].path, sources[1].path)
    selection = Selection(names, None)
    comparison = _Comparison(result, selection, progress)
    comparison.run(_Side(sources[0]), _Side(sources[1]))
    if selection.unused:
        raise UsageError(f"neither {result.a} nor {result.b} has a tensor {min(selection.unused)!r}")
    return result


def diff_values(a: Value, b: Value, shown: tuple[str, str], name: str = "tensor") -> Difference:
    """What differs between two values, which have these names in the result."""
    result = Difference(*shown)
    comparison = _Comparison(result, Selection(None, None))
    comparison.pair({name: a}, {name: b})
    result.tensors = comparison.found
    return result


class _Side:
    """One of the two files: a single document, or rows."""

    def __init__(self, source: Opened) -> None:
        self.table = source if source.rows else None
        self._source = source
        self.document: Document | None = None
        if self.table is None:
            documents = source.documents()
            first = next(documents, Document([]))
            self.document = first if not first.item and next(documents, None) is None else None

    @property
    def values(self) -> dict[str, Value]:
        assert self.document is not None
        with naming(self._source.path):
            return _values(self.document)

    @property
    def lazy_values(self) -> Mapping[str, Value]:
        assert self.document is not None
        return _LazyValues(self.document, self._source.path)

    def rows(self) -> Iterator[dict[str, Value]]:
        """Row by row."""
        if self.table is not None:
            for some in self.table.tables(BATCH_ROWS):
                yield from map(_values, some.documents())
            return
        for document in self._source.documents():
            with naming(self._source.path):
                values = _values(document)
            yield values


def _values(document: Document) -> dict[str, Value]:
    return {name: leaf.read() for name, leaf in _by_name(check_unread(document)).items()}


def _by_name(document: Document) -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    for leaf in document.leaves:
        name, number = column_name(leaf), 1
        while name in found:  # {"a": {"b": x}, "a/b": y}
            number += 1
            name = f"{column_name(leaf)}~{number}"
        found[name] = leaf
    return found


class _LazyValues(Mapping[str, Value]):
    """The values of a document, each checked and decoded when it is asked for, and not kept."""

    def __init__(self, document: Document, path: str) -> None:
        self._leaves, self._path = _by_name(document), path

    def __getitem__(self, name: str) -> Value:
        leaf = self._leaves[name]
        with naming(self._path):
            if leaf.check is not None:
                leaf.check()
            return leaf.read()

    def __contains__(self, name: object) -> bool:
        return name in self._leaves

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)


def _with_masks(some: Table) -> dict[str, Value]:
    """The columns, and which rows have them where some lack one: a zero is not the same as nothing."""
    return some.columns | {
        f"{name} (present)": Tensor("bool", mask.shape, np.ascontiguousarray(mask).view(np.uint8))
        for name, mask in some.present.items()
    }


class _Comparison:
    def __init__(self, result: Difference, selection: Selection, progress: Callable[[int], None] | None = None) -> None:
        self.result, self._selection, self._progress = result, selection, progress
        self._done = 0  # bytes of the first file
        self._found: dict[str, TensorDiff] = {}
        self._noted: tuple[set[str], set[str]] = (set(), set())

    def run(self, a: _Side, b: _Side) -> None:
        if a.document is not None and b.document is not None:
            one, two = a.lazy_values, b.lazy_values
            self.pair(one, two)
            self._find_renamed(one, two)
            self._metadata(a.document, b.document)
        elif a.table is not None and b.table is not None:
            self._tables(a.table, b.table)
        elif a.document is not None and b.table is not None:
            self._arrays_and_table(a.values, b.table, turned=False)
        elif a.table is not None and b.document is not None:
            self._arrays_and_table(b.values, a.table, turned=True)
        else:
            self._streams(a, b)
        self.result.tensors = self.found

    @property
    def found(self) -> list[TensorDiff]:
        return list(self._found.values())

    def _find_renamed(self, a: Mapping[str, Value], b: Mapping[str, Value]) -> None:
        """Pairs of tensors that are in one file only, and the same: renamed, by all appearance."""
        waiting: dict[Any, deque[str]] = {}
        for name in self.result.only_in_b if self.result.only_in_a else ():
            waiting.setdefault(_mark(b[name]), deque()).append(name)
        for name in self.result.only_in_a if waiting else ():
            alike = waiting.get(_mark(a[name]), deque())
            tried = islice(alike, _MOST_TRIED)
            other = next((other for other in tried if same_value(a[name], b[other])), None)
            if other is not None:
                alike.remove(other)
                self.result.renamed.append((name, other))

    def _metadata(self, a: Document, b: Document) -> None:
        one, two = (metadata.typed(document.meta, document.origin) for document in (a, b))
        for key in sorted(one.keys() | two.keys()):
            texts = a.meta.get(key), b.meta.get(key)
            if texts[0] != texts[1]:
                self.result.meta[key] = texts
            elif type(one[key]) is not type(two[key]):  # 3 and "3"
                self.result.meta[key] = one[key], two[key]

    def pair(self, a: Mapping[str, Value], b: Mapping[str, Value]) -> None:
        """Compare the values of the same names."""
        for name in a:
            if self._selection.takes(name):
                if name in b:
                    one = a[name]
                    self._compare(name, one, b[name])
                    self._done += one.nbytes
                    if self._progress is not None:
                        self._progress(self._done)
                else:
                    self._note_alone(name, 0)
        for name in b:
            if name not in a and self._selection.takes(name):
                self._note_alone(name, 1)

    def _note_alone(self, name: str, side: int) -> None:
        """Note that a name is in one file only; the rows of a table say so again and again."""
        if name not in self._noted[side]:
            self._noted[side].add(name)
            (self.result.only_in_a, self.result.only_in_b)[side].append(name)

    def _tables(self, a: Opened, b: Opened) -> None:
        counts = [0, 0]
        tables = a.tables(BATCH_ROWS), b.tables(BATCH_ROWS)
        empty = Table({}, 0)
        while True:
            pair = next(tables[0], empty), next(tables[1], empty)
            counts = [counts[0] + pair[0].rows, counts[1] + pair[1].rows]
            common = min(pair[0].rows, pair[1].rows)
            if not common:
                break
            self.pair(*(_with_masks(side.cut(0, common)) for side in pair))
        for index in (0, 1):
            counts[index] += sum(rest.rows for rest in tables[index])
        self.result.rows = (counts[0], counts[1])

    def _arrays_and_table(self, arrays: Mapping[str, Value], other: Opened, turned: bool) -> None:
        """Row i of the table with the arrays' elements i, as far as both go."""
        total = 0
        have = {name: rows.count(value) or 0 for name, value in arrays.items()}
        for some in other.tables(BATCH_ROWS):
            start, total = total, total + some.rows
            one, two = dict(arrays), dict(some.columns)
            for name in one.keys() & two.keys():
                common = max(min(total, have[name]), start)
                if isinstance(one[name], Sparse):
                    continue
                one[name] = rows.cut(one[name], min(start, have[name]), min(common, have[name]))
                two[name] = rows.cut(two[name], 0, common - start)
            self.pair(*((two, one) if turned else (one, two)))
        for name, known in self._found.items():
            if have[name] != total:
                known.identical, known.why = False, f"{have[name]} rows in the arrays, {total} in the table"
        longest = max((have[name] for name in self._found), default=max(have.values(), default=0))
        self.result.rows = (total, longest) if turned else (longest, total)

    def _streams(self, a: _Side, b: _Side) -> None:
        one, two = a.rows(), b.rows()
        counts = [0, 0]
        for counts[0], row in enumerate(one, 1):
            other = next(two, None)
            if other is None:
                break
            counts[1] += 1
            self.pair(row, other)
        rest = (sum(1 for _ in one), sum(1 for _ in two))
        self.result.rows = (counts[0] + rest[0], counts[1] + rest[1])

    # ---- one pair ---------------------------------------------------------------

    def _compare(self, name: str, a: Value, b: Value) -> None:
        known = self._found.get(name)
        if known is None:
            known = self._found[name] = TensorDiff(name, True, (_shape(a), _shape(b)), (_dtype(a), _dtype(b)))
        units = [value.origin.get("numpy.dtype") for value in (a, b) if _dtype(value).endswith(("time64", "delta64"))]
        if len(units) == 2 and units[0] != units[1]:
            known.identical, known.why = False, f"{units[0]} | {units[1]}"
            return
        if same_value(a, b):
            if isinstance(a, Tensor) and isinstance(b, Tensor):
                known.numbers.add_same(a)
            return
        known.identical = False
        why = _mismatch(a, b)
        if why:
            known.why = known.why or why
            return
        one, two = _numbers(a), _numbers(b)
        if isinstance(one, Tensor) and isinstance(two, Tensor):
            known.numbers.add(one, two)
        else:
            assert isinstance(one, Strings)
            assert isinstance(two, Strings)
            known.strings += sum(x != y for x, y in zip(_raw(one), _raw(two), strict=True))
            known.why = many(known.strings, "other string") if known.strings else "text | bytes"


def _mark(value: Value) -> Any:
    """What values that are the same have in common, and others hardly ever."""
    if not isinstance(value, Tensor):
        return None, _dtype(value), _shape(value)
    if value.nbytes < _TELLING_BYTES:
        return bytes(value.data), value.dtype, value.shape
    return crc32(bytes_view(value.data)), value.dtype, value.shape


def _raw(value: Strings) -> list[bytes]:
    items: list[bytes] = Strings(value.shape, value.offsets, value.data).items()
    return items


def _numbers(value: Value) -> Tensor | Strings:
    return value.values if isinstance(value, Ragged | Sparse) else value


def _mismatch(a: Value, b: Value) -> str:
    """Why elements can't be compared one with the other; empty if they can."""
    if type(a) is not type(b) or type(_numbers(a)) is not type(_numbers(b)):
        return f"{type(a).__name__.lower()} | {type(b).__name__.lower()}"
    if isinstance(a, Ragged) and isinstance(b, Ragged):
        alike = len(a.splits) == len(b.splits) and all(map(_equal, a.splits, b.splits))
        shapes = (a.shapes is None) == (b.shapes is None) and (a.shapes is None or _equal(a.shapes, b.shapes))
        return "" if alike and shapes and a.values.shape == b.values.shape else "row lengths differ"
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        if a.layout != b.layout or a.shape != b.shape:
            return f"{a.layout}{list(a.shape)} | {b.layout}{list(b.shape)}"
        same = all(map(_equal, a.parts, b.parts)) and a.values.shape == b.values.shape
        return "" if same else "indices differ"
    one, two = _shape(a), _shape(b)
    return "" if one == two else f"shape {list(one)} | {list(two)}"


def _equal(a: Array | None, b: Array | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


def _shape(value: Value) -> tuple[int | None, ...]:
    return (len(value), None) if isinstance(value, Ragged) else value.shape


def _dtype(value: Value) -> str:
    held = _numbers(value)
    return held.dtype if isinstance(held, Tensor) else "string"
