"""Documents as Arrow tables, and back.

A table has one row for each step along the leading axis where every value stands under a
key of its own (or is the only one) and all have the same length; otherwise it has one
row, in which every value is whole. The schema's metadata says which:

    tensorbytes    {"rows": true} or {"rows": false}

A field's metadata has a note under the same key if there is anything to say: the keys of
_parts.py, and "column" for what _arrow/write.py adds. Sparse values are several columns
(_parts.py), which makes the table one row. A table without our metadata is read as rows.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    MORE_TENSORS,
    CorruptError,
    Hint,
    LimitError,
    LossError,
    TensorbytesError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats import Option, _json, known_options
from tensorbytes.formats._arrow.read import ColumnValue, items_of, joined, value
from tensorbytes.formats._arrow.types import Form, form, is_plain
from tensorbytes.formats._arrow.write import (
    MOST_LEVELS,
    NAME,
    arrow,
    check_levels,
    column,
    is_native,
    shape_column,
    whole,
)
from tensorbytes.formats._parts import Part, pack, unpack
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.tensor import Header, Ragged, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, path_name, read_all

KEY = b"tensorbytes"
OPTIONS = known_options(
    rows=Option(
        bool | str,
        "True insists on rows, False on a single one that holds every value whole",
        "auto",
        ("auto", True, False),
    ),
    shapes=Option(bool, "True adds a column `name.shape` to each tensor column, for SQL", False),
)
# About what a column takes in memory, in pyarrow and here, beside its values.
_COLUMN_BYTES = 8192


# ---- writing ------------------------------------------------------------------


def table(document: Document, rows: Any = "auto", seconds: bool = True, shapes: bool = False) -> Any:
    """A document as a pyarrow.Table of one batch. `seconds=False` and `shapes`: see _arrow/write.py."""
    pa = arrow()
    document = document._replace(leaves=read_all(document.leaves))
    by_row = _by_row(document, rows)
    arrays, fields = [], []
    taken = {part.name for part, _ in _parts(document, seconds)} if shapes else set()
    for part, held in _parts(document, seconds):
        made = (column if by_row else whole)(held, held.origin, seconds)
        note = dict(part.note)
        if made.note:
            note["column"] = made.note
        arrays.append(made.array)
        fields.append(_field(part.name, made.array.type, note, made.extension))
        name = f"{part.name}.shape"
        if shapes and isinstance(held, Tensor | Strings) and name not in taken:
            inner = held.shape[1:] if by_row else held.shape
            if inner:
                arrays.append(shape_column(inner, held.shape[0] if by_row else 1))
                fields.append(_field(name, arrays[-1].type, {"column": {"of": part.name}}, {}))
    schema = pa.schema(fields, metadata={KEY: _json.dump({"rows": by_row})})
    return pa.Table.from_arrays(arrays, schema=schema)


def check(document: Document, rows: Any = "auto", seconds: bool = True) -> None:
    """Raise what `table` raises; of most values, only the header is looked at."""
    _by_row(document, rows)
    _packed(document, seconds)
    for leaf in document.leaves:
        if leaf.header.shape.count(None) > MOST_LEVELS:
            check_levels(leaf.read())


def by_name(values: Mapping[str, Value]) -> Document:
    """Values under their names, as a document."""
    return Document([Leaf(value, (("key", name),)) for name, value in values.items()])


def _field(name: str, kind: Any, note: dict[str, Any], extension: dict[bytes, bytes]) -> Any:
    metadata = {KEY: _json.dump(note).encode(), **extension} if note else extension
    return arrow().field(name, kind, nullable=False, metadata=metadata or None)


def _parts(document: Document, seconds: bool) -> list[tuple[Part, ColumnValue]]:
    """The columns of a document that was read: ragged values stay whole, sparse ones come apart."""
    remaining = iter(document.leaves)
    found: list[tuple[Part, ColumnValue]] = []
    for part in _packed(document, seconds):
        note = {key: item for key, item in part.note.items() if key != "encoding"}
        held: Any = part.value
        if "of" not in note:
            own = next(remaining).read()
            if isinstance(own, Ragged):
                held = own
                if not is_native(own.values, own.origin, seconds):
                    assert isinstance(own.values, Tensor)
                    note["dtype"] = own.values.dtype
        assert isinstance(held, Tensor | Strings | Ragged)
        found.append((Part(part.name, part.value, note), held))
    return found


def _packed(document: Document, seconds: bool) -> list[Part]:
    """The parts of a document; in the place of a ragged value stands something small, with the same metadata."""
    leaves = [
        leaf._replace(value=Tensor("bool", (0,), b"", leaf.value.name, leaf.value.meta, leaf.value.origin))
        if leaf.header.kind == "ragged"
        else leaf
        for leaf in document.leaves
    ]
    return pack(document._replace(leaves=leaves), lambda x: is_native(x, x.origin, seconds))


def _by_row(document: Document, rows: Any) -> bool:
    if rows not in ("auto", True, False):
        raise UsageError(f"rows={rows!r}", expected="True, False or 'auto'")
    if rows is False:
        return False
    fault = _why_not(document.leaves)
    if fault is None:
        # Rows that hold nothing would cost more as rows than they hold.
        return rows is True or not all(_is_hollow(leaf.header) for leaf in document.leaves)
    if rows is True:
        raise LossError(
            f"these are not rows: {fault}",
            feature="rows",
            hints=[Hint("rows", "auto", "for a table of one row", of="save")],
        )
    return False


def _why_not(leaves: Sequence[Leaf]) -> str | None:
    """Why these values don't make rows."""
    first = None
    for leaf in leaves:
        if len(leaves) > 1 and (len(leaf.path) != 1 or leaf.path[0][0] != "key"):
            return f"{path_name(leaf.path)!r} stands deeper in the structure than a column could"
        if len(leaf.path) > 1 or (leaf.path and leaf.path[0][0] != "key"):
            return f"{path_name(leaf.path)!r} is not a column"
        count = _row_count(leaf.header)
        if count is None:
            return f"{leaf.name!r} has no leading axis"
        if first is not None and count != first:
            return f"{leaf.name!r} has {count} rows, {leaves[0].name!r} has {first}"
        first = count
    return None


def _row_count(header: Header) -> int | None:
    return header.shape[0] if header.shape and header.kind != "sparse" else None


def _is_hollow(header: Header) -> bool:
    return header.kind in ("tensor", "strings") and bool(header.shape[0]) and 0 in header.shape[1:]


# ---- reading ------------------------------------------------------------------


class StoredTable:
    """A table in a file: its schema, and its columns in chunks (record batches, row groups)."""

    schema: Any
    lengths: list[int]  # rows of each chunk
    size: int = 0  # bytes of the input
    at_hand = False  # whether chunks are views that cost nothing

    def chunks(self, number: int, first: int, last: int) -> list[Any]:
        """The arrays of a column in some chunks, validated in full unless `at_hand`."""
        raise NotImplementedError

    def claim(self, number: int, first: int, last: int) -> int:
        """The bytes that these chunks would take, where they take any."""
        return 0


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """What pyarrow raises over bytes from a file, as our exceptions."""
    pa = arrow()
    try:
        yield
    except TensorbytesError:
        raise
    except MemoryError as error:
        raise LimitError(f"no memory for {what}: {_first_line(error)}") from None
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(f"{what}: pyarrow can't read it: {_first_line(error)}") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError, TypeError) as error:
        raise CorruptError(f"{what}: {_first_line(error)}", at=0) from None


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:300]


class ColumnReader:
    """One column of a stored table: what it holds, and how its rows are read."""

    def __init__(self, stored: StoredTable, number: int, name: str, note: dict[str, Any]) -> None:
        self.stored, self.number, self.name = stored, number, name
        own = note.pop("column", {})
        dtype = note.pop("dtype", None)
        if not isinstance(own, dict) or not isinstance(dtype, str | None):
            raise CorruptError(f"the note of column {name!r}", at=0)
        self.own = own
        field = stored.schema.field(number)
        kind = field.type
        self.nested = own.get("ragged") is True
        if self.nested:
            types = arrow().types
            if not (types.is_list(kind) or types.is_large_list(kind)):
                raise CorruptError(f"column {name!r}: a ragged value in a column of {kind}", at=0)
            kind = kind.value_type
        self.type = kind
        self.form: Form = form(kind, own, dtype, name, (field.metadata or {}).get(NAME, b""))

    def claim(self, first: int, last: int) -> int:
        """The bytes that some chunks would take, where they are not views."""
        claimed, rows = self.stored.claim(self.number, first, last), sum(self.stored.lengths[first:last])
        if self.stored.at_hand or self.form.kind != "tensor":
            return claimed
        return max(claimed, rows * math.prod(n or 0 for n in self.form.dims) * dtypes.get(self.form.dtype).itemsize)

    def arrays(self, first: int, last: int, budget: Budget) -> list[Any]:
        """The arrays of some chunks, once there is room for them."""
        claim = self.claim(first, last)
        if not self.stored.at_hand:  # decoders take some more
            claim += claim // 4
        budget.copy(claim, f"column {self.name!r}", 0)
        with refusing(f"column {self.name!r}"):
            found = self.stored.chunks(self.number, first, last)
        have, want = sum(map(len, found)), sum(self.stored.lengths[first:last])
        if have != want:
            raise CorruptError(f"column {self.name!r} has {have} rows of {want}", at=0)
        return found

    def read(self, arrays: Sequence[Any], budget: Budget, trusted: bool = False) -> ColumnValue:
        """The rows in some arrays."""
        pieces = []
        with refusing(f"column {self.name!r}"):
            for array in arrays:
                array.validate(full=not trusted)
                if self.nested:
                    array = items_of(array, self.name)
                pieces.append(value(array, self.own, self.form, budget, self.name))
            if len(pieces) > 1:  # joining copies them
                budget.copy(sum(piece.nbytes for piece in pieces), f"column {self.name!r}", 0)
            found = joined(pieces)
        if isinstance(found, Tensor) and dtypes.get(found.dtype).bits < 8:
            check_bits(found, None)
        return found


def column_readers(stored: StoredTable) -> tuple[bool, list[tuple[ColumnReader, dict[str, Any]]]]:
    """(whether the table has rows, its columns with what is left of their notes)"""
    with refusing("the schema"):
        overall = _note((stored.schema.metadata or {}).get(KEY), "the schema's note")
        by_row = overall.get("rows", True)
        if set(overall) - {"rows"} or type(by_row) is not bool:
            raise CorruptError(f"the schema's note is {_json.dump(overall)[:200]}", at=0)
        if not by_row and sum(stored.lengths) != 1:
            raise CorruptError(f"a table of one row has {sum(stored.lengths)}", at=0)
        found = []
        names = stored.schema.names
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise UnsupportedError(
                f"several columns have the name {twice!r}", tensor=twice, hints=[Hint(purpose="rename them")]
            )
        for number in range(len(stored.schema)):
            field = stored.schema.field(number)
            note = _note((field.metadata or {}).get(KEY), f"the note of column {field.name!r}")
            reader = ColumnReader(stored, number, field.name, note)
            if reader.nested and by_row:
                raise CorruptError(f"column {field.name!r} is whole, in a table of rows", at=0)
            if reader.form.kind == "ragged" and {"layout", "of", "encoding"} & set(note):
                raise CorruptError(f"the note of column {field.name!r} is for other columns", at=0)
            if "of" not in reader.own:
                found.append((reader, note))
    if not found:
        raise UnsupportedError("a table without columns holds no tensors")
    return by_row, found


def _note(data: bytes | None, what: str) -> dict[str, Any]:
    note = {} if data is None else _json.parse(data, 0, what)
    if not isinstance(note, dict):
        raise CorruptError(f"{what} is not a JSON object", at=0)
    return note


def document(stored: StoredTable, budget: Budget, lazy: bool) -> Document:
    """What a table holds; lazily, as views and as values that are read when asked."""
    by_row, found = column_readers(stored)
    if len(found) > budget.max_tensors:
        raise LimitError(f"over {budget.max_tensors} columns", hints=[MORE_TENSORS])
    budget.objects(len(found), "columns", 0, _COLUMN_BYTES)
    parts = []
    for reader, note in found:
        held = _deferred(reader, by_row, budget) if lazy else _whole(reader, by_row, budget)
        parts.append(Part(reader.name, held, note))  # type: ignore[arg-type]
    return unpack(parts, budget, lazy)


def _whole(reader: ColumnReader, by_row: bool, budget: Budget) -> ColumnValue:
    arrays = reader.arrays(0, len(reader.stored.lengths), budget)
    found = reader.read(arrays, budget)
    for dense in (found, found.values) if isinstance(found, Ragged) else (found,):
        if not isinstance(dense, Ragged):
            width = dtypes.get(dense.dtype).itemsize if isinstance(dense, Tensor) else 8
            check_shape(dense.shape, width, budget, 0)
    return _row_or_column(reader, found, by_row)


def _row_or_column(reader: ColumnReader, found: ColumnValue, by_row: bool) -> ColumnValue:
    """The value; of a table of one row, what that row holds."""
    if by_row or reader.nested:
        return found
    if isinstance(found, Tensor):
        return Tensor(found.dtype, found.shape[1:], found.data, meta=found.meta, origin=found.origin)
    if isinstance(found, Strings):
        return Strings(found.shape[1:], found.offsets, found.data, found.encoding, meta=found.meta, origin=found.origin)
    raise CorruptError(f"column {reader.name!r}: a list that no note explains, in a table of one row", at=0)


def _deferred(reader: ColumnReader, by_row: bool, budget: Budget) -> Value | Deferred:
    stored, held = reader.stored, reader.form
    rows = (sum(stored.lengths),) if by_row else (None,) if reader.nested else ()
    shape: tuple[int | None, ...] = (*rows, *held.dims)
    size = 0
    if held.kind == "tensor":
        known = check_shape([n or 0 for n in shape], dtypes.get(held.dtype).itemsize, budget, 0)
        size = dtypes.nbytes(dtypes.get(held.dtype), known)
        if stored.at_hand and len(stored.lengths) == 1 and is_plain(reader.type, reader.own):
            return _row_or_column(reader, reader.read(reader.arrays(0, 1, budget), budget, trusted=True), by_row)

    def fetch() -> Value:
        return _whole(reader, by_row, budget.renewed(stored.size))

    def part(index: Any) -> Tensor:
        return _cut(reader, index, by_row, budget.renewed(stored.size))

    cut = part if held.kind == "tensor" else None
    return Deferred(held.kind, held.dtype, shape, fetch, size, cut, meta=held.meta, origin=held.origin)


def _cut(reader: ColumnReader, index: Any, by_row: bool, budget: Budget) -> Tensor:
    """Some of a tensor, out of the chunks that it lies in."""
    parts = index if isinstance(index, tuple) else (index,)
    total = sum(reader.stored.lengths)
    if by_row and parts and isinstance(parts[0], slice | int | np.integer) and not isinstance(parts[0], bool):
        first = parts[0]
        chosen = range(total)[first] if isinstance(first, slice) else range(total)[int(first)]
        rows = chosen if isinstance(chosen, range) else range(chosen, chosen + 1)
        low, high = (min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1) if len(rows) else (0, 0)
        found = reader.read(_between(reader, low, high, budget), budget)
        if isinstance(chosen, range):
            stop = rows[-1] - low + rows.step if len(rows) else 0
            relative: Any = slice(rows[0] - low, None if stop < 0 else stop, rows.step) if len(rows) else slice(0, 0)
        else:
            relative = 0
        index = (relative, *parts[1:])
    else:
        found = _whole(reader, by_row, budget)
    assert isinstance(found, Tensor)
    elements = np.ndarray(found.shape, f"V{dtypes.get(found.dtype).itemsize}", found.data)
    picked = np.asarray(elements[index])
    return Tensor(found.dtype, picked.shape, picked.tobytes(), meta=found.meta, origin=found.origin)


def _between(reader: ColumnReader, low: int, high: int, budget: Budget) -> list[Any]:
    """The arrays of rows [low, high)."""
    starts = [0, *itertools.accumulate(reader.stored.lengths)]
    first = max(bisect.bisect_right(starts, low) - 1, 0)
    last = min(max(bisect.bisect_left(starts, high), first + 1), len(starts) - 1)
    arrays = reader.arrays(min(first, last), last, budget)
    at, found = starts[min(first, last)], []
    for array in arrays:
        start, stop = max(low - at, 0), min(high - at, len(array))
        if start < stop:
            found.append(array.slice(start, stop - start))
        at += len(array)
    return found or [arrays[0].slice(0, 0)]
