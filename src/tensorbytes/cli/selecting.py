"""What an address such as model.tb::w[0:4] names: a tensor, a part of it, a feature of records, a record.

Only what is named is read: a slice of a mapped file touches its own pages, one of a compressed file decodes its chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from tensorbytes import dtypes
from tensorbytes.cli.values import elements, flat_blocks
from tensorbytes.errors import UsageError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.io.storage import naming
from tensorbytes.ops.addressing import Address
from tensorbytes.rows import Table
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, unflatten

# What is decoded at a time of a tensor that is not stored as its own bytes.
_DECODED_BYTES = 1 << 22


@dataclass
class SelectedValue:
    """One value, or a part of one. A dense one is given in blocks, and `value()` is it as a whole."""

    name: str | None
    kind: str  # tensor, strings, ragged, sparse
    dtype: str
    shape: tuple[int | None, ...]
    value: Callable[[], Value]
    blocks: Callable[[], Iterator[Array]] | None = None  # None for ragged and sparse values


@dataclass
class SelectedRows:
    """Records, objects of a stream or events: each with its number and its values."""

    noun: str
    rows: Iterator[tuple[int, Any]]
    column: str | None = None  # the only one that was asked for
    together: Callable[[], Value] | None = None  # of a column: all of its rows as one value


def select(address: Address, format: str | None, options: Mapping[str, Any]) -> SelectedValue | SelectedRows:
    """What the address names."""
    from tensorbytes import opening
    from tensorbytes.formats.tfrecord.kinds import EVENTS, OTHERS

    source = opening.open_file(address.path, format, options=options)
    if source.holds_records:
        if source.kind == EVENTS:
            return _events(address)
        if source.kind == OTHERS:
            return _payloads(address, options)
        return _records(address, options)
    if address.number is not None:
        if source.rows:
            return _row_of_table(address, source)
        return _object(address, source.documents())
    return _tensor(address, source.documents())


# ---- tensors ------------------------------------------------------------------------


def _tensor(address: Address, documents: Iterator[Document]) -> SelectedValue | SelectedRows:
    found: list[Leaf] = []
    names: dict[str | None, None] = {}
    objects = 0
    for document in documents:
        objects += 1
        for leaf in document.leaves:
            if address.name is None or leaf.name == address.name:
                found.append(leaf)
            names.setdefault(leaf.name)
        if objects > 1 and address.name is None:  # a stream, of which all is meant
            break
    path = address.path
    if len(found) == 1:
        return part_of(found[0], address)
    if not found:
        refuse_name(path, address.name, names)
    if objects > 1 and address.name is not None:
        raise UsageError(
            f"{path}: {len(found)} tensors are called {address.name!r}; take one object by its number: {path}::#0"
        )
    if objects > 1 and address.index is None:
        raise AllOfAStream
    some = next((str(leaf.name) for leaf in found if leaf.name), "")
    raise UsageError(
        f"{path} holds {len(found)} tensors: say which one, such as '{Address(path, some)}' (tb info lists them)"
        if some
        else f"{path} holds several tensors without a name: take an object by its number: {path}::#0"
    )


class AllOfAStream(Exception):
    """No name was given, and the file is a stream: every object of it is meant."""


def part_of(leaf: Leaf, address: Address) -> SelectedValue:
    """A tensor of a file, or the part of it that an index picks."""
    index, path = address.index, address.path
    value = leaf.value
    if index is None and leaf.check is not None:
        with naming(path):
            leaf.check()
    kind, _, shape, _ = leaf.header
    if kind == "tensor" and index is None and value.in_parts:
        return _in_parts(leaf, path)
    if kind in ("tensor", "strings") and index is not None:
        with naming(path), _indexing(address, shape):
            return _dense(leaf.name, leaf.part(index))
    with naming(path):
        whole = leaf.read()
    return _not_dense(leaf.name, whole, address) if isinstance(whole, Ragged | Sparse) else _dense(leaf.name, whole)


def _dense(name: str | None, value: Tensor | Strings) -> SelectedValue:
    """A value in memory or mapped."""
    array = elements(value)
    kind, dtype, _, _ = value.header
    return SelectedValue(name, kind, dtype, array.shape, value.load, lambda: flat_blocks(array))


def _in_parts(leaf: Leaf, path: str) -> SelectedValue:
    """A tensor, some rows of it at a time: it may have to be decoded."""
    kind, dtype, sizes, _ = leaf.header
    shape = tuple(size or 0 for size in sizes)
    each = int(np.prod(shape[1:], dtype=np.int64)) * dtypes.get(dtype).itemsize
    step = max(_DECODED_BYTES // max(each, 1), 1)

    def blocks() -> Iterator[Array]:
        with naming(path):
            for start in range(0, shape[0], step) if shape else [0]:
                index: Any = slice(start, min(start + step, shape[0])) if shape else ...
                yield from flat_blocks(elements(leaf.part(index)))

    return SelectedValue(leaf.name, kind, dtype, shape, leaf.read, blocks)


def _not_dense(name: str | None, value: Ragged | Sparse, address: Address) -> SelectedValue:
    held = value.values.dtype if isinstance(value.values, Tensor) else "string"
    if isinstance(value, Sparse):
        if address.index is not None:
            raise UsageError(f"{address}: a sparse tensor has no slices; take all of it")
        return SelectedValue(name, "sparse", held, value.shape, lambda: value)
    if address.index is None:
        sizes: list[int | None] = [None] * (len(value.splits) if value.shapes is None else value.shapes.shape[1])
        inner = value.values.shape[1:] if value.shapes is None else ()
        return SelectedValue(name, "ragged", held, (len(value), *sizes, *inner), lambda: value)
    first, *rest = address.index
    if not isinstance(first, int):
        raise UsageError(f"{address}: of a ragged tensor one row can be taken, such as [0], or [0, 2:4] of it")
    with _indexing(address, (len(value),)):
        row = value[first]
        if isinstance(row, list):
            raise UsageError(f"{address}: its rows are ragged themselves; take all of it")
        picked = np.asarray(row[tuple(rest)], None if held != "string" else object)
    made = numpy_adapter.to_value(picked)
    assert isinstance(made, Tensor | Strings)
    return _dense(name, made)


class _indexing:
    """Says of an index that does not fit which one, and what it would have to fit."""

    def __init__(self, address: Address, shape: tuple[int | None, ...]) -> None:
        self._address, self._shape = address, shape

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, IndexError):
            raise UsageError(f"{self._address}: {error}; the shape is {list(self._shape)}") from None


def refuse_name(path: str, name: str | None, names: Any) -> NoReturn:
    """There is no tensor of that name: say which are near."""
    from difflib import get_close_matches

    known = [str(known) for known in names if known]
    if not known:
        raise UsageError(f"{path}: no tensor in it has a name" if name else f"{path}: there is no tensor in it")
    low = {each.lower(): each for each in reversed(known)}
    near = [low[each] for each in get_close_matches(str(name).lower(), low, 3)]
    near += [each for each in known if each not in near and str(name).lower() in each.lower()][: 3 - len(near)]
    if near:
        raise UsageError(f"{path} has no tensor {name!r}; did you mean {' or '.join(map(repr, near))}?")
    shown = ", ".join(map(repr, known[:5])) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
    raise UsageError(f"{path} has no tensor {name!r}; it has {shown}")


# ---- rows ---------------------------------------------------------------------------


def _object(address: Address, documents: Iterator[Document]) -> SelectedValue | SelectedRows:
    """One object of a stream."""
    number = address.number or 0
    if number < 0:
        every = list(documents)
        number += len(every)
        found = every[number] if number >= 0 else None
        count = len(every)
    else:
        count = 0
        found = None
        for document in islice(documents, number + 1):
            count += 1
            found = document if count == number + 1 else None
    if found is None:
        raise UsageError(f"{address}: there are {count} objects, numbered from 0")
    if len(found.leaves) == 1 and not found.leaves[0].kind:
        return part_of(found.leaves[0], address)
    if address.index is not None:
        raise UsageError(f"{address}: object {number} is not a single tensor, so it has no slices")
    return SelectedRows("object", iter([(number, restored(found, address.path))]))


def objects(path: str, format: str | None, options: Mapping[str, Any]) -> SelectedRows:
    """Every object of a stream."""
    from tensorbytes import opening

    source = opening.open_file(path, format, options=options)
    return SelectedRows("object", ((at, restored(document, path)) for at, document in enumerate(source.documents())))


def restored(document: Document, path: str) -> Any:
    """An object as it was, its tensors as neutral values; everything of it is verified."""
    with naming(path):
        for leaf in document.leaves:
            if leaf.check is not None:
                leaf.check()
        return unflatten(document.leaves, lambda value: value.load())


def table_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a table: what one lacks is None; masks of what is missing inside of rows are values beside them."""
    table = table.with_mask_columns(rows_as_well=False)
    return [
        dict.fromkeys(table.columns) | {str(leaf.name): leaf.read() for leaf in row.leaves} for row in table.documents()
    ]


def _row_of_table(address: Address, source: Any) -> SelectedRows:
    number, count = address.number or 0, 0
    if number < 0:
        raise UsageError(f"{address}: rows of this format are counted from the front, #0 first")
    for table in source.tables(4096):
        if number < count + table.rows:
            row = table_rows(table.cut(number - count, number - count + 1))[0]
            return SelectedRows("row", iter([(number, row)]))
        count += table.rows
    raise UsageError(f"{address}: there are {count} rows, numbered from 0")


def _records(address: Address, options: Mapping[str, Any]) -> SelectedRows:
    from tensorbytes.records import open_records

    schema = open_records(address.path, **options).schema
    if address.name is not None and address.name not in schema:
        refuse_name(address.path, address.name, schema)
    columns = None if address.name is None else [address.name]
    given = {"schema": schema, **options} | ({} if columns is None else {"columns": columns})
    records = open_records(address.path, **given)
    if address.number is not None:
        if address.index is not None:
            raise UsageError(
                f"{address}: a record has no slices; '{address.path}::NAME[{address.number}]' is one value"
            )
        return SelectedRows("record", iter([_numbered(records, address)]))
    if address.name is None:
        if address.index is not None:
            raise UsageError(
                f"{address}: say of which feature, such as '{address.path}::{next(iter(schema), 'x')}[0:4]'"
            )
        return SelectedRows("record", enumerate(records))
    return _column(address, records)


def _numbered(records: Any, address: Address) -> tuple[int, Any]:
    number = address.number or 0
    try:
        return (number if number >= 0 else len(records) + number), records[number]
    except IndexError:
        raise UsageError(f"{address}: there are {len(records)} records, numbered from 0") from None


def _column(address: Address, records: Any) -> SelectedRows:
    """One feature of all records, or of some; what the index says beyond the records goes for each value."""
    from tensorbytes import frameworks

    name = str(address.name)
    first, *rest = address.index or (slice(None),)
    if first is ...:
        first, rest = slice(None), [..., *rest]
    inner = tuple(rest)

    def within(row: Any) -> Any:
        if not inner or row is None:
            return row
        with _indexing(address, np.shape(row)):
            return np.asarray(row)[inner]

    if first == slice(None):
        rows = ((at, within(row.get(name))) for at, row in enumerate(records))
    else:
        numbers = [range(len(records))[first]] if isinstance(first, slice) else [_at(first, address, len(records))]
        picked = [number for each in numbers for number in (each if isinstance(each, range) else [each])]
        rows = ((at, within(records[at].get(name))) for at in picked)

    def together() -> Value:
        if inner:
            raise UsageError(f"{address}: this form takes whole values; leave out what comes after the records")
        chosen = first if isinstance(first, slice) else slice(first, first + 1 or None)
        return frameworks.to_value(records[chosen][name])

    return SelectedRows("record", rows, name, together)


def _at(number: int, address: Address, count: int) -> int:
    with _indexing(address, (count,)):
        if not -count <= number < count:
            raise IndexError(f"record {number} is out of bounds")
        return number % count


def _payloads(address: Address, options: Mapping[str, Any]) -> SelectedRows:
    """Records of something else: their bytes."""
    from tensorbytes.records import open_records

    if address.name is not None or address.index is not None:
        raise UsageError(f"{address}: its records are bytes, not Examples, so they have no names; #3 is one of them")
    rows = enumerate(open_records(address.path, **options).payloads())
    if address.number is None:
        return SelectedRows("record", rows)
    found = next(islice(rows, address.number, None), None) if address.number >= 0 else None
    if found is None:
        raise UsageError(f"{address}: there is no such record; they are numbered from 0")
    return SelectedRows("record", iter([found]))


def _events(address: Address) -> SelectedRows:
    from tensorbytes.records import read_events

    if address.index is not None:
        raise UsageError(f"{address}: events have no slices")

    def told(event: Any) -> dict[str, Any]:
        return {"step": event.step, "tag": event.tag, "kind": event.kind, "value": event.value}

    events = read_events(address.path, tags=None if address.name is None else [address.name], live=True)
    rows: Iterator[tuple[int, Any]] = ((at, told(event)) for at, event in enumerate(events))
    if address.number is not None:
        rows = iter(list(islice(rows, address.number, address.number + 1)) if address.number >= 0 else [])
    first = next(rows, None)
    if first is None:
        if address.number is not None:
            raise UsageError(f"{address}: there is no such event; they are numbered from 0")
        refuse_name(address.path, address.name, {event.tag: None for event in read_events(address.path, live=True)})

    def again() -> Iterator[tuple[int, Any]]:
        yield first
        yield from rows

    return SelectedRows("event", again())
