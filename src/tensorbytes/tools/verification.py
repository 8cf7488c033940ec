"""Reading a written file again, and comparing it with what should be in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tensorbytes.errors import CorruptError, Limits
from tensorbytes.tensor import Strings, Value, amended, identical
from tensorbytes.tools.report import Report
from tensorbytes.tools.sources import Columns, Documents, Table, as_table, open_source, row_documents
from tensorbytes.tools.targets import column_name
from tensorbytes.tree import Document


def check(
    expected: Document | Iterator[Columns | Document], dst: Any, format: str, report: Report, limits: Limits
) -> None:
    """Raise CorruptError at the first thing that differs; otherwise the report says "verified"."""
    lost = frozenset(loss.feature for loss in report.losses)
    dropped = {loss.name for loss in report.losses if loss.dropped}
    if isinstance(expected, Document):
        if len(report.files) == 1:
            source = open_source(dst, format, limits=limits)
            assert isinstance(source, Documents)
            _compare([expected], source.verified(), lost, dropped, report.target)
    else:
        files = report.files if len(report.files) > 1 else [dst]
        shards = [_rows(_items(open_source(file, format, limits=limits))) for file in files]
        _compare(_rows(expected), _in_turn(shards), lost, dropped, report.target)
    report.verified = True


def _items(source: Documents | Table) -> Iterator[Columns | Document]:
    table = as_table(source)
    if table is not None:
        yield from table.batches(4096)
    else:
        assert isinstance(source, Documents)
        yield from source.verified()


def _in_turn(shards: list[Iterator[Document]]) -> Iterator[Document]:
    """Record i is in shard i % shards."""
    for number in itertools.count():
        row = next(shards[number % len(shards)], None)
        if row is None:
            return
        yield row


def _rows(items: Iterator[Columns | Document]) -> Iterator[Document]:
    for item in items:
        if isinstance(item, Columns):
            yield from row_documents(item)
        else:
            yield item


def _compare(expected: Any, got: Iterator[Document], lost: frozenset[str], dropped: set[str | None], path: str) -> None:
    number = 0
    for number, document in enumerate(expected, 1):
        other = next(got, None)
        if other is None:
            raise CorruptError(f"verify: it ends after {number - 1} objects", at=0, path=path)
        _compare_documents(document, other, lost, dropped, path)
    if next(got, None) is not None:
        raise CorruptError(f"verify: it holds more than {number} objects", at=0, path=path)


def _compare_documents(
    expected: Document, got: Document, lost: frozenset[str], dropped: set[str | None], path: str
) -> None:
    wanted = {column_name(leaf): leaf for leaf in expected.leaves if leaf.name not in dropped}
    found = {column_name(leaf): leaf for leaf in got.leaves}
    if len(wanted) == len(found) == 1:  # a single tensor may have lost its name
        found = dict(zip(wanted, found.values(), strict=True))
    for name in wanted.keys() | found.keys():
        if name not in found or name not in wanted:
            raise CorruptError(f"verify: {name!r} is {'missing' if name not in found else 'too many'}", at=0, path=path)
        if not same_value(wanted[name].whole, found[name].whole, lost):
            raise CorruptError(f"verify: {name!r} differs from its source", at=found[name].at, path=path)


def same_value(a: Value, b: Value, lost: frozenset[str] = frozenset()) -> bool:
    """Whether two values are identical, apart from what was allowed to be lost."""
    if isinstance(a, Strings) and isinstance(b, Strings) and "encoding" in lost:
        a = Strings(a.shape, a.offsets, a.data)
        b = Strings(b.shape, b.offsets, b.data)
    return identical(amended(a, None, {}), amended(b, None, {}))
