"""Everything that a file or a value holds, as pieces of a few mebibytes: what `stats` looks at."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import dtypes, frameworks, storage
from tensorbytes.deferred import Deferred
from tensorbytes.errors import Limits, UsageError
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tools import rows
from tensorbytes.tools.selection import Selection
from tensorbytes.tools.sources import BATCH_ROWS, Columns, Documents, Table, as_table, open_source
from tensorbytes.tree import NO_META, Document, Leaf, flatten

# What is decoded at once of a tensor that is not stored as its own bytes, and of the rows of a table.
_SLICE_BYTES = 1 << 22
_FIRST_ROWS = 16
# Leaves that stand for something else than a tensor.
_NO_TENSORS = ("none", "dict", "list", "tuple", "object")


class Piece(NamedTuple):
    """Part of what goes by one name."""

    name: str
    kind: str
    dtype: str
    values: Tensor | Strings | None  # None for what tells of rows alone
    origin: Mapping[str, str] = NO_META
    row_lengths: Array | None = None
    rows: int = 0
    missing: int = 0
    cells: int = 0  # of a sparse tensor, were it dense


def unique_name(name: str, taken: Collection[str]) -> str:
    """The name, numbered if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


# Everything that is to be seen, or of it what goes by some names; may be asked for twice.
Pieces: TypeAlias = Callable[[Collection[str] | None], Iterator[Piece]]


def pieces_of(
    target: Any,
    format: str | None,
    limits: Limits,
    selection: Selection,
    options: Mapping[str, Any] | None = None,
) -> tuple[str, Pieces]:
    """(the path, empty for what is no file; the pieces)"""
    if not _is_file(target):
        if format is not None:
            raise UsageError(f"a format ({format!r}) goes with a file, not with {type(target).__name__}")
        leaves = flatten(target, lambda x: frameworks.to_value(x) if frameworks.of(x) else None)
        return "", lambda only: _of_document(Document(leaves), selection, only, limits)
    source = open_source(target, format, limits=limits, options=options)
    table = as_table(source)
    if table is not None:
        return source.path, lambda only: _of_table(table, selection, only)
    assert isinstance(source, Documents)
    documents = source.documents
    return source.path, lambda only: (
        piece for document in documents() for piece in _of_document(document, selection, only, limits)
    )


def _is_file(target: Any) -> bool:
    if storage.is_path(target) or hasattr(target, "read"):
        return True
    return isinstance(target, list | tuple) and bool(target) and all(isinstance(x, str | os.PathLike) for x in target)


def _of_document(
    document: Document, selection: Selection, only: Collection[str] | None, limits: Limits
) -> Iterator[Piece]:
    seen: set[str] = set()
    for leaf in document.leaves:
        if leaf.kind in _NO_TENSORS or not selection.takes(leaf.name):
            continue
        name = unique_name(leaf.name or "", seen)  # {"a": {"b": x}, "a/b": y}
        seen.add(name)
        if only is None or name in only:
            if only is None and leaf.check is not None:
                leaf.check()
            for value in _slices(leaf, limits):
                yield _piece(name, value)


def _slices(leaf: Leaf, limits: Limits) -> Iterator[Value]:
    """The value in parts along its first axis where it has to be decoded and that can be done in parts."""
    value = leaf.value
    if not isinstance(value, Deferred) or value.kind != "tensor" or value.part is None or not value.shape:
        yield leaf.whole
        return
    total = value.shape[0]
    # A few bytes may claim to be terabytes of zeros: what grows beyond the limits is refused as when it is loaded.
    grown = 0 if leaf.stored is None else value.nbytes - leaf.stored.nbytes
    if total is None or value.nbytes <= _SLICE_BYTES or grown > limits.max_bytes:
        yield leaf.whole
        return
    each = math.prod(n or 0 for n in value.shape[1:]) * dtypes.get(value.dtype).itemsize
    step = max(_SLICE_BYTES // max(each, 1), 1)
    for start in range(0, total, step):
        part = value.part(slice(start, min(start + step, total)))
        assert isinstance(part, Tensor)
        yield Tensor(part.dtype, part.shape, part.data, value.name, value.meta, value.origin)


def _piece(name: str, value: Value) -> Piece:
    if isinstance(value, Ragged):
        lengths = np.diff(value.splits[0])
        return Piece(
            name, "ragged", _dtype(value.values), value.values, _origin(value), row_lengths=lengths, rows=len(value)
        )
    if isinstance(value, Sparse):
        if value.layout == "dia" and isinstance(value.values, Tensor):  # without what lies outside the matrix
            value = value.to_coo()
        cells = math.prod(value.shape)
        return Piece(name, "sparse", _dtype(value.values), value.values, _origin(value), cells=cells)
    kind = "tensor" if isinstance(value, Tensor) else "strings"
    return Piece(name, kind, _dtype(value), value, value.origin)


def _origin(value: Ragged | Sparse) -> dict[str, str]:
    return {**value.values.origin, **value.origin}


def _dtype(value: Tensor | Strings) -> str:
    return value.dtype if isinstance(value, Tensor) else "string"


def _of_table(table: Table, selection: Selection, only: Collection[str] | None) -> Iterator[Piece]:
    def takes(name: str) -> bool:
        return selection.takes(name) and (only is None or name in only)

    # Records of images are a thousand times as large as those of numbers: the first ones tell.
    begin = next(table.batches(_FIRST_ROWS, takes), Columns({}, 0))
    size = sum(value.nbytes for value in begin.values.values()) // max(begin.size, 1)
    for columns in table.batches(min(max(_SLICE_BYTES // max(size, 1), _FIRST_ROWS), BATCH_ROWS), takes):
        for name, value in columns.values.items():
            yield from _column(name, value, columns)


def _column(name: str, value: Value, columns: Columns) -> Iterator[Piece]:
    """A column of some rows, without those rows that lack it."""
    total = rows.count(value) or 0
    present = columns.present.get(name)
    whole = _piece(name, value)
    if isinstance(value, Ragged):
        lengths = np.diff(value.splits[0])
        if name in columns.scalars:  # ragged only since some are missing
            whole = whole._replace(kind="strings" if whole.dtype == "string" else "tensor", row_lengths=None)
        elif present is not None:
            whole = whole._replace(row_lengths=lengths[present])
    missing = 0 if present is None else total - int(np.count_nonzero(present))
    if not missing or isinstance(value, Ragged):
        yield whole._replace(rows=total, missing=missing)
        return
    yield whole._replace(values=None, rows=total, missing=missing)
    assert present is not None
    edges = np.flatnonzero(np.diff(np.concatenate(([False], present, [False]))))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield _piece(name, rows.cut(value, start, stop))
