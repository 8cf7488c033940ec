"""Reading a written file again, and comparing it with what should be in it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tensorbytes import formats, opening
from tensorbytes.errors import CorruptError, Limits
from tensorbytes.formats._opened import BATCH_ROWS, Opened
from tensorbytes.ops.report import Report
from tensorbytes.ops.targets import column_name
from tensorbytes.rows import LEVELS, MASKS, SCHEMA, Table, noted_table
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, Value, amended, identical
from tensorbytes.tree import Document, Leaf, unflatten


def check(
    expected: list[tuple[Document, Any]] | Iterator[Table | Document],
    dst: Any,
    format: str,
    report: Report,
    limits: Limits,
) -> None:
    """Raise CorruptError at the first thing that differs; otherwise the report says "verified".

    Documents are compared with their structure, Python kinds and metadata, rows with their values.
    """
    lost = _Lost(report)
    if isinstance(expected, list):
        for document, path in expected:
            source = opening.open_file(path, format, limits=limits)
            table = noted_table(document) if source.rows else None
            if table is not None:
                _compare(_rows(iter([table])), _rows(_items(source)), lost, path, whole=False)
            else:
                _compare([document], source.documents(lazy=False), lost, path, whole=True)
    else:
        files = report.files if len(report.files) > 1 else [dst]
        shards = [_rows(_items(opening.open_file(file, format, limits=limits))) for file in files]
        _compare(_rows(expected), _interleave(shards), lost, report.target, whole=False)
    report.verified = True


class _Lost:
    """What the report says of each tensor."""

    def __init__(self, report: Report) -> None:
        self._features: dict[str | None, set[str]] = {}
        for loss in report.losses:
            self._features.setdefault(loss.name, set()).add(loss.feature)
        self.dropped = {loss.name for loss in report.losses if loss.dropped}

    def of(self, name: str | None) -> set[str]:
        return self._features.get(name, set()) | self._features.get(None, set())


def _items(source: Opened) -> Iterator[Table | Document]:
    return source.tables(BATCH_ROWS) if source.rows else source.documents(lazy=False)


def _interleave(shards: list[Iterator[Document]]) -> Iterator[Document]:
    """Record i is in shard i % shards."""
    for number in itertools.count():
        row = next(shards[number % len(shards)], None)
        if row is None:
            return
        yield row


def _rows(items: Iterator[Table | Document]) -> Iterator[Document]:
    for item in items:
        if isinstance(item, Table):
            yield from _row_documents(item)
        else:
            yield item


def _row_documents(table: Table) -> Iterator[Document]:
    """Each row, with the masks of what is missing inside of it."""
    told = table.with_mask_columns(rows_as_well=False)
    masks = told.columns.keys() - table.columns.keys()
    for row in told.documents():
        yield row._replace(leaves=[leaf for leaf in row.leaves if leaf.name not in masks or not _is_all(leaf.read())])


def _same_times(a: Value, b: Value) -> bool:
    """Whether times are the integers that records hold of them."""
    if isinstance(a, Ragged) and isinstance(b, Ragged):
        splits = zip(a.splits, b.splits, strict=True) if len(a.splits) == len(b.splits) else ()
        return bool(splits) and all(np.array_equal(*pair) for pair in splits) and _same_times(a.values, b.values)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape:
        return False
    return a.dtype == "int64" and b.dtype in ("datetime64", "timedelta64") and bytes(a.data) == bytes(b.data)


def _is_all(mask: Value) -> bool:
    values = mask.values if isinstance(mask, Ragged) else mask
    return isinstance(values, Tensor) and bool(values.numpy().all())


def _compare(expected: Any, got: Iterator[Document], lost: _Lost, path: Any, whole: bool) -> None:
    number = 0
    shown = str(path)
    for number, document in enumerate(expected, 1):
        other = next(got, None)
        if other is None:
            raise CorruptError(f"verify: it ends after {number - 1} objects", at=0, path=shown)
        _compare_documents(document, other, lost, shown, whole)
    if next(got, None) is not None:
        raise CorruptError(f"verify: it holds more than {number} objects", at=0, path=shown)


def _compare_documents(expected: Document, got: Document, lost: _Lost, path: str, whole: bool) -> None:
    if whole or got.leaves:  # that it can be put together
        unflatten([leaf._replace(kind="") for leaf in got.leaves], lambda value: None)
    wanted = _by_place([leaf for leaf in expected.leaves if leaf.name not in lost.dropped], whole)
    found = _by_place(got.leaves, whole)
    if len(wanted) == len(found) == 1:  # a single tensor may have lost its name
        found = dict(zip(wanted, found.values(), strict=True))
    for place in wanted.keys() | found.keys():
        if place not in found or place not in wanted:
            what = "missing" if place not in found else "too many"
            raise CorruptError(f"verify: {place!r} is {what}", at=0, path=path)
        one, two = wanted[place], found[place]
        features = lost.of(one.name)
        kind = two.stored.quantization if two.stored else None
        if "quantize" in features and kind is not None:
            same = _is_within(one.read(), two.read(), kind.max_error)
        else:
            same = "missing" in features or same_value(one.read(), two.read(), features)
            same = same or (not whole and _same_times(one.read(), two.read()))
        if not same or (whole and not _same_description(one, two, features)):
            raise CorruptError(f"verify: {one.name!r} differs from its source", at=two.at, path=path)
    if whole and "meta" not in lost.of(None) and _meta_to_keep(expected) != _meta_to_keep(got):
        raise CorruptError("verify: the metadata of the whole differs", at=0, path=path)


def _meta_to_keep(document: Document) -> dict[str, str]:
    """What is said of the whole, but for how a table is held: its masks and its types, which follow from its leaves."""
    told = formats.document_meta_to_keep(document)
    return {key: text for key, text in told.items() if key not in (MASKS, LEVELS, SCHEMA)}


def _by_place(leaves: list[Leaf], whole: bool) -> dict[Any, Leaf]:
    """Leaves of a document by their paths, those of a row by their names."""
    return {leaf.path if whole else column_name(leaf): leaf for leaf in leaves}


def _same_description(a: Leaf, b: Leaf, lost: set[str]) -> bool:
    """Whether two leaves were the same Python value, with the same metadata."""
    metas = (
        {key: text for key, text in formats.meta_to_keep(leaf.value).items() if key not in lost} for leaf in (a, b)
    )
    one, two = metas
    return ("kind" in lost or a.kind == b.kind) and ("meta" in lost or one == two)


def _is_within(a: Value, b: Value, bound: float) -> bool:
    """Whether two tensors of floats differ by no more than was stated."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    one, two = (value.numpy().astype(np.float64) for value in (a, b))
    with np.errstate(invalid="ignore"):
        near = np.abs(one - two) <= bound
    return bool((near | (one == two) | (np.isnan(one) & np.isnan(two))).all())


def same_value(a: Value, b: Value, lost: Collection[str] = ()) -> bool:
    """Whether two values are identical, apart from what was allowed to be lost."""
    if isinstance(a, Strings) and isinstance(b, Strings) and "encoding" in lost:
        a, b = (Strings(value.shape, value.offsets, value.data) for value in (a, b))
    if isinstance(a, Sparse) and isinstance(b, Sparse) and "layout" in lost:
        a, b = a.to_coo(), b.to_coo()
    return identical(amended(a, None, {}), amended(b, None, {}))
