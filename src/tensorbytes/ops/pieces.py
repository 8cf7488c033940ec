"""Everything that a file or a value holds, as pieces of a few mebibytes: what `stats` looks at."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import dtypes, frameworks, opening, rows
from tensorbytes.errors import Limits, UsageError
from tensorbytes.formats._opened import BATCH_ROWS, Opened
from tensorbytes.io import storage
from tensorbytes.ops.selection import Selection
from tensorbytes.rows import Table
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import NO_META, Document, Leaf, flatten

# What is decoded at once of a tensor that is not stored as its own bytes, and of the rows of a table.
_SLICE_BYTES = 2 << 20
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


# Everything to see, or of it what goes by some names; may be asked for twice.
Pieces: TypeAlias = Callable[[Collection[str] | None], Iterator[Piece]]


def pieces_of(
    target: Any,
    format: str | None,
    limits: Limits,
    selection: Selection,
    options: Mapping[str, Any] | None = None,
) -> tuple[str, Pieces]:
    """(the path, empty for what is not a file; the pieces)"""
    if not _is_file(target):
        if format is not None:
            raise UsageError(f"a format ({format!r}) goes with a file, not with {type(target).__name__}")
        leaves = flatten(target, frameworks.value_of, more=frameworks.children)
        return "", lambda only: _document_pieces(Document(leaves), selection, only, limits)
    source = opening.open_file(target, format, limits=limits, options=options)
    if source.rows:
        return source.path, lambda only: _row_pieces(source, selection, only)
    documents = source.documents
    return source.path, lambda only: (
        piece for document in documents() for piece in _pieces_of(document, selection, only, limits)
    )


def _pieces_of(
    document: Document, selection: Selection, only: Collection[str] | None, limits: Limits
) -> Iterator[Piece]:
    """Those of a document, or of the rows that its origin tells of: masks are not looked at like other arrays."""
    table = rows.noted_table(document, selection.takes) if rows.MASKS in document.origin else None
    if table is None:
        yield from _document_pieces(document, selection, only, limits)
        return
    for name in table.columns:
        if only is None or name in only:
            yield from _column(name, table)


def _is_file(target: Any) -> bool:
    if storage.is_path(target) or hasattr(target, "read"):
        return True
    return isinstance(target, list | tuple) and bool(target) and all(isinstance(x, str | os.PathLike) for x in target)


def _document_pieces(
    document: Document, selection: Selection, only: Collection[str] | None, limits: Limits
) -> Iterator[Piece]:
    seen: set[str] = set()
    for leaf in document.leaves:
        if leaf.kind in _NO_TENSORS or not selection.takes(leaf.name):
            continue
        name = rows.unique(leaf.name or "", seen)  # {"a": {"b": x}, "a/b": y}
        seen.add(name)
        if only is None or name in only:
            if only is None and leaf.check is not None:
                leaf.check()
            for value in _slices(leaf, limits):
                yield _piece(name, value)


def _slices(leaf: Leaf, limits: Limits) -> Iterator[Value]:
    """The value in parts along its first axis where it has to be decoded and that can be done in parts."""
    value, (kind, dtype, shape, _) = leaf.value, leaf.header
    if value.at_hand or kind != "tensor" or not value.in_parts or not shape:
        yield leaf.read()
        return
    total = shape[0]
    # A few bytes may claim to be terabytes of zeros: what grows beyond the limits is refused as when it is loaded.
    grown = 0 if leaf.stored is None else value.nbytes - leaf.stored.nbytes
    if total is None or value.nbytes <= _SLICE_BYTES or grown > limits.max_bytes:
        yield leaf.read()
        return
    each = math.prod(n or 0 for n in shape[1:]) * dtypes.get(dtype).itemsize
    step = max(_SLICE_BYTES // max(each, 1), 1)
    for start in range(0, total, step):
        yield leaf.part(slice(start, min(start + step, total)))


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


def _row_pieces(source: Opened, selection: Selection, only: Collection[str] | None) -> Iterator[Piece]:
    def takes(name: str) -> bool:
        return selection.takes(name) and (only is None or name in only)

    # Records of images are a thousand times as large as those of numbers: the first ones tell.
    begin = next(source.tables(_FIRST_ROWS, takes), Table({}, 0))
    size = begin.nbytes // max(begin.rows, 1)
    for table in source.tables(min(max(_SLICE_BYTES // max(size, 1), _FIRST_ROWS), BATCH_ROWS), takes):
        for name in table.columns:
            yield from _column(name, table)


def _column(name: str, table: Table) -> Iterator[Piece]:
    """A column of some rows, without what is missing of it."""
    value, masks, present = table.columns[name], table.masks_of(name), table.elements_present(name)
    whole = _piece(name, value)._replace(rows=table.rows)
    if present is None or isinstance(value, Sparse):
        yield whole
        return
    missing = sum(len(mask) - int(np.count_nonzero(mask)) for mask in masks.values())
    if isinstance(value, Ragged) and 0 in masks:
        whole = whole._replace(row_lengths=np.diff(value.splits[0])[masks[0]])
    yield whole._replace(values=None, missing=missing)
    told = whole._replace(row_lengths=None, rows=0)
    elements = value.values if isinstance(value, Ragged) else value
    if isinstance(elements, Tensor):
        by_row = isinstance(value, Tensor) and masks.keys() == {0}
        yield told._replace(values=_taken(elements, masks[0] if by_row else present))
        return
    flat = Strings((len(present),), elements.offsets, elements.data, elements.encoding)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], present, [False]))))
    for start, stop in edges.reshape(-1, 2).tolist():
        some = rows.cut(flat, start, stop)
        assert isinstance(some, Strings)
        yield told._replace(values=some)


def _taken(value: Tensor, present: Array) -> Tensor:
    """The elements that there are, or the rows."""
    kept = np.frombuffer(value.data, np.uint8).reshape(len(present), -1)[present]
    shape = value.shape[1:] if len(present) == value.shape[0] else ()
    return Tensor(value.dtype, (len(kept), *shape), kept.reshape(-1), value.name, value.meta, value.origin)
