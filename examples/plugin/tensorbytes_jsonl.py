"""A format in one file, one that holds rows: JSON Lines, an object for each row (.jsonl).

    {"id": 1, "words": ["a", "b"], "score": 0.5}
    {"id": 2, "words": [], "score": null}

Columns are int64, float64, bool and text, single or in lists. A row may lack a column, or have null in its place.
Other dtypes would come back as one of these, so they are refused, and so are NaN and infinities, which JSON lacks.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from types import NoneType
from typing import Any

import numpy as np

from tensorbytes.errors import CorruptError, LimitError, Limits, LossError
from tensorbytes.formats import LIKELY, Created, Format, OpenedRows, Options
from tensorbytes.io import storage
from tensorbytes.io.source import Source
from tensorbytes.rows import Column, Table
from tensorbytes.tensor import Ragged, Strings, Tensor, Value
from tensorbytes.tree import Document

_DTYPES = {bool: "bool", int: "int64", float: "float64", str: "text"}
_HELD = ("int64", "float64", "bool")


class JsonLines(Format):
    name = "jsonl"
    label = "JSON Lines"
    words = "a JSON object for each row"
    suffixes = (".jsonl", ".ndjson")
    units = ("row", "column")
    read_by = "anyone"
    holds = "rows of numbers and text, single or in lists"
    documents = False
    rows = masks = empty = True
    slices = "no"

    def sniff(self, head: bytes, size: int) -> float:
        line, newline, _ = head.partition(b"\n")
        if not line.startswith(b"{") or not (newline or len(head) == size):
            return 0
        try:
            return LIKELY if isinstance(json.loads(line), dict) else 0
        except ValueError:
            return 0

    def open(self, source: Source, limits: Limits, options: Options, claimed: bool = False) -> OpenedRows:
        return _Opened(self, source, limits, options)

    def create(self, target: Any, options: Options, sync: bool = True, shards: int = 1) -> Created:
        return _Created(target, sync)


class _Opened(OpenedRows):
    @cached_property
    def _kinds(self) -> dict[str, tuple[type, bool]]:
        """Of each column: the type of its values, and whether they come in lists. All tables have the same columns."""
        found: dict[str, tuple[type, bool]] = {}
        for row in self._rows():
            for name, value in row.items():
                if value is not None and (name not in found or found[name][0] in (NoneType, int)):
                    found[name] = _kind(value, found.get(name))
        return {name: (int if single is NoneType else single, lists) for name, (single, lists) in found.items()}

    def tables(self, size: int, takes: Callable[[str], bool] | None = None) -> Iterator[Table]:
        kinds = {name: kind for name, kind in self._kinds.items() if takes is None or takes(name)}
        rows = self._rows()
        while some := list(islice(rows, size)):
            yield _table(some, kinds)

    def _rows(self) -> Iterator[dict[str, Any]]:
        at = 0
        for line in io.BytesIO(self.source.data):
            if line.strip():
                yield self._row(line, at)
            at += len(line)

    def _row(self, line: bytes, at: int) -> dict[str, Any]:
        try:
            row = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise CorruptError(f"a line that is not JSON: {error}", at=at, path=self.path) from None
        if not isinstance(row, dict):
            raise CorruptError("a line that is not an object", at=at, path=self.path)
        if len(row) > self.limits.max_tensors:
            raise LimitError(f"over {self.limits.max_tensors} columns", at=at, path=self.path)
        return row


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _table(rows: list[dict[str, Any]], kinds: dict[str, tuple[type, bool]]) -> Table:
    columns: dict[str, Value] = {}
    masks = {}
    for name, (single, lists) in kinds.items():
        present = np.array([row.get(name) is not None for row in rows])
        nothing = [] if lists else single()
        column = Column(ragged=lists)
        for row, there in zip(rows, present, strict=True):
            column.add_row(_value(name, row[name] if there else nothing, (single, lists)))
        columns[name] = column.finish()
        if not present.all():
            masks[name, 0] = present
    return Table(columns, len(rows), masks)


def _kind(value: Any, before: tuple[type, bool] | None) -> tuple[type, bool]:
    """(the type of a column's values, whether they come in lists), by one more value; integers become floats."""
    lists = isinstance(value, list)
    types = {type(item) for item in (value if lists else [value])} & set(_DTYPES)
    if before is not None and before[0] is int:
        types |= {int}
    single = next(iter(types), NoneType) if types != {int, float} else float
    return (single, lists) if before is None else (single if single is not NoneType else before[0], before[1])


def _value(name: str, value: Any, kind: tuple[type, bool]) -> Tensor | Strings:
    single, lists = kind
    items = value if lists else [value]
    taken = (int, float) if single is float else (single,)
    shape = (len(items),) if lists and isinstance(items, list) else ()
    try:
        if not isinstance(items, list) or any(type(item) not in taken for item in items):
            raise OverflowError
        if single is str:
            return Strings.from_items(items, shape, "utf-8")
        return Tensor(_DTYPES[single], shape, np.array(items, _DTYPES[single]).view(np.uint8))
    except OverflowError:
        what = f"a list of {single.__name__}" if lists else single.__name__
        raise CorruptError(f"column {name!r}", at=0, tensor=name, expected=what, got=repr(value)[:80]) from None


class _Created(Created):
    columns_only = True

    def __init__(self, target: Any, sync: bool) -> None:
        self._target = target
        self._open = contextlib.ExitStack()
        self._file = self._open.enter_context(storage.writing(target, sync=sync))

    def check(self, columns: Mapping[str, Value]) -> None:
        for name, column in columns.items():
            inner = column.values if isinstance(column, Ragged) else column
            text = isinstance(inner, Strings) and inner.encoding == "utf-8"
            held = text or (isinstance(inner, Tensor) and inner.dtype in _HELD)
            depth = len(inner.shape) + (len(column.splits) if isinstance(column, Ragged) else 0)
            if not held or depth > 2 or (isinstance(column, Ragged) and column.shapes is not None):
                raise LossError(f"JSON Lines would give {name!r} back as something else", feature="column", tensor=name)

    def add(self, item: Document | Table) -> None:
        for row in item.documents() if isinstance(item, Table) else [item]:
            plain = {str(leaf.name): leaf.read().numpy().tolist() for leaf in row.leaves}  # type: ignore[union-attr]
            try:
                line = json.dumps(plain, allow_nan=False, ensure_ascii=False)
            except ValueError:
                raise LossError("JSON has neither NaN nor infinities", feature="column") from None
            storage.write_all(self._file, line.encode() + b"\n")

    def close(self) -> list[str]:
        self._open.close()
        return [storage.describe(self._target)]

    def abort(self) -> None:
        with contextlib.suppress(LossError):
            self._open.__exit__(LossError, LossError("given up", feature="rows"), None)


FORMAT = JsonLines()
