"""Rows: tables of them, and values as columns, taken apart and put together along their first axis.

Table              some rows, as columns with masks
rows_of(column)    its rows, one value each
cut(column, a, b)  rows a to b, as views
Column             rows or columns added one after another, kept on disk, given back as one column
"""

from __future__ import annotations

import json
import math
import weakref
from array import array
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import IO, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import Hint, LossError
from tensorbytes.io import storage
from tensorbytes.tensor import Array, InvalidValueError, Ragged, Sparse, Strings, Tensor, Value, amended, part_origin
from tensorbytes.tree import NO_META, Document, Leaf, Path, path_name

# What else writes rows.
WRITE_ROWS = (
    Hint(operation="RecordWriter", arguments=("path",), purpose="writes rows and columns"),
    Hint(operation="convert", arguments=("source", "path"), purpose="makes rows of a file"),
)
# Bytes of a growing column that are kept in memory.
_IN_MEMORY = 1 << 22


NO_MASKS: Mapping[tuple[str, int], Array] = MappingProxyType({})
NO_PATHS: Mapping[str, Path] = MappingProxyType({})
# Lists in lists in lists: more levels than any note has reason to speak of.
_MOST_LEVELS = 64
# Of a table's origin: which of its columns are masks of others, and which are the lengths of their inner lists.
MASKS, LEVELS = "masks", "levels"
# The schema that Arrow had of it, and the same where it may be dropped: see formats/_arrow/schemas.py.
SCHEMA, TYPES = "arrow.schema", "arrow.types"


class Table(NamedTuple):
    """Some rows: a column of values under each name, each with `rows` rows.

    masks[name, level] tells which elements of a column there are, where some are missing: level 0 counts rows, level 1
    the elements of rows, and so on. Where a row lacks a value, its column has a zero, or an empty string or row. The
    columns "s/a" and "s/b" may be the fields of a struct "s", which may have a mask of its own.
    """

    columns: dict[str, Value]
    rows: int
    masks: Mapping[tuple[str, int], Array] = NO_MASKS
    origin: Mapping[str, str] = NO_META  # how the whole was held, as we note it ourselves
    paths: Mapping[str, Path] = NO_PATHS  # of names that stand for more than one key

    @property
    def present(self) -> dict[str, Array]:
        """Which rows have a value, of the columns that some rows lack."""
        return {name: mask for (name, level), mask in self.masks.items() if not level}

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in self.columns.values())

    def cut(self, start: int, stop: int) -> Table:
        """Rows start to stop, as views."""
        masks = {place: _flags(cut(self.mask_column(*place), start, stop)) for place in self.masks}
        columns = {name: cut(value, start, stop) for name, value in self.columns.items()}
        return self._replace(columns=columns, rows=stop - start, masks=masks)

    def mask_column(self, name: str, level: int) -> Value:
        """A mask as a column of bools: in lists, where it tells of the elements of lists."""
        mask = self.masks[name, level]
        flags = np.ascontiguousarray(mask).view(np.uint8)
        column = self.column_below(name)
        splits = column.splits[:level] if isinstance(column, Ragged) else ()
        inner = (column.values if isinstance(column, Ragged) else column).shape[1 : level + 1 - len(splits)]
        count = int(splits[-1][-1]) if splits else self.rows
        value = Tensor("bool", (count, *inner), flags)
        return Ragged(value, splits) if splits else value

    def column_below(self, name: str) -> Tensor | Strings | Ragged:
        """The column of a name, or the first field of a struct of that name: it has the same lists."""
        found = next((self.columns[other] for other in self.below(name)), None)
        if found is None or isinstance(found, Sparse):
            raise InvalidValueError(f"a mask of {name!r}, which is not a column")
        return found

    def count_elements(self, name: str, level: int) -> int:
        """How many elements a column has at a level."""
        column = self.column_below(name)
        if not level:
            return self.rows
        if not isinstance(column, Ragged):
            return math.prod(column.shape[: level + 1])
        above = min(level, len(column.splits))
        return int(column.splits[above - 1][-1]) * math.prod(column.values.shape[1 : level + 1 - above])

    def row_bounds(self, name: str, level: int) -> Array:
        """Where the elements of each row begin, of those that a column has at a level, and where the last one ends."""
        column = self.column_below(name)
        splits = column.splits[:level] if isinstance(column, Ragged) else ()
        inner = (column.values if isinstance(column, Ragged) else column).shape[1:]
        if level > len(splits) + len(inner):
            raise InvalidValueError(f"a mask of level {level} of {name!r}, which has no such level")
        return _bounds(self.rows, splits, inner[: level - len(splits)])

    def with_whole_masks(self, places: Iterable[tuple[str, int]]) -> Table:
        """The same with masks at these places as well, where the columns are there: nothing is missing by them."""
        masks = dict(self.masks)
        for name, level in places:
            if (name, level) not in masks and any(one == name or one.startswith(f"{name}/") for one in self.columns):
                masks[name, level] = np.ones(self.count_elements(name, level), bool)
        return self._replace(masks=masks)

    def with_mask_columns(self, rows_as_well: bool) -> Table:
        """The same without masks inside of rows, or without any: they are columns, which `origin` names."""
        moved = {}
        for name, level in self.masks:
            if rows_as_well or level or name not in self.columns:
                moved[unique(f"{name}/mask{level}", self.columns)] = name, level
        if not moved:
            return self
        columns = {**self.columns, **{column: self.mask_column(*place) for column, place in moved.items()}}
        kept = {place: mask for place, mask in self.masks.items() if place not in moved.values()}
        origin = {**self.origin, MASKS: json.dumps(moved)}
        return self._replace(columns=columns, masks=kept, origin=origin)

    def with_masks(self) -> Table:
        """The same with masks, where `with_mask_columns` made columns of them."""
        told = self.origin.get(MASKS)
        if told is None:
            return self
        columns, masks = dict(self.columns), dict(self.masks)
        moved: dict[tuple[str, int], tuple[Value, Array | None]] = {}
        for column, place in told_places(told).items():
            value = columns.pop(column, None)
            if value is not None:
                if not _is_flags(value):
                    raise InvalidValueError(f"{column!r} is noted as a mask, and holds something else than bools")
                moved[place] = value, masks.pop((column, 0), None)
        origin = {key: text for key, text in self.origin.items() if key != MASKS}
        found = self._replace(columns=columns, masks=masks, origin=origin)
        for place, (value, there) in moved.items():
            masks[place] = _mask_of(value, there, found.row_bounds(*place))
        if any(len(mask) != found.count_elements(*place) for place, mask in masks.items()):
            raise InvalidValueError("a mask and its column don't fit together")
        return found

    def sizes(self) -> Array:
        """The bytes of each row."""
        total = np.zeros(self.rows, np.int64)
        for value in self.columns.values():
            total += _row_sizes(value, self.rows)
        return total

    def with_level_columns(self) -> Table:
        """The same with lists of lists as flat lists, beside the lengths of the inner lists: `origin` names these.

        It is how TensorFlow has it: RaggedFeature with partitions of row lengths.
        """
        columns: dict[str, Value] = {}
        told = {}
        for name, value in self.columns.items():
            if not isinstance(value, Ragged) or len(value.splits) < 2:
                columns[name] = value
                continue
            above = value.splits[0]
            for level, splits in enumerate(value.splits[1:], 1):
                own = unique(f"{name}/lengths{level}", self.columns)
                lengths = np.ascontiguousarray(np.diff(splits), np.int64)
                columns[own] = Ragged(Tensor("int64", lengths.shape, lengths), (above,))
                told[own] = name, level
                above = splits[above]
            columns[name] = replace(value, splits=(above,))
        origin = {**self.origin, LEVELS: json.dumps(told)} if told else self.origin
        return self._replace(columns=columns, origin=origin)

    def with_levels(self) -> Table:
        """The same with lists of lists, where `with_level_columns` made flat lists of them."""
        told = self.origin.get(LEVELS)
        if told is None:
            return self
        columns, masks = dict(self.columns), dict(self.masks)
        found: dict[str, dict[int, Value | None]] = {}
        for column, (name, level) in told_places(told).items():
            lengths = columns.pop(column, None)
            masks.pop((column, 0), None)  # a row without them has no list
            found.setdefault(name, {})[level] = lengths
        for name, levels in found.items():
            if name in columns:
                columns[name] = _in_lists(name, columns[name], levels)
        origin = {key: text for key, text in self.origin.items() if key != LEVELS}
        return self._replace(columns=columns, masks=masks, origin=origin)

    def documents(self) -> Iterator[Document]:
        """Each row as a document, without what it lacks."""
        split = {name: list(rows_of(value)) for name, value in self.columns.items()}
        present = self.present
        for index in range(self.rows):
            there = (name for name in split if name not in present or present[name][index])
            yield Document([Leaf(split[name][index], (("key", name),)) for name in there])

    def below(self, owner: str) -> list[str]:
        """The columns that a mask tells of: the one of this name, or the fields of the struct of this name."""
        found = columns_below(owner, self.columns)
        fields = [name for name in found if name in self.paths]
        return fields or found  # "s/x" may be the name of a column beside a struct "s"

    def masks_of(self, name: str) -> dict[int, Array]:
        """Which elements of a column there are, by level: its own masks and those of the structs around it."""
        found: dict[int, Array] = {}
        for (owner, level), mask in self.masks.items():
            if owner == name or (name.startswith(f"{owner}/") and name in self.below(owner)):
                found[level] = found[level] & mask if level in found else mask
        return found

    def elements_present(self, name: str) -> Array | None:
        """Which of the innermost elements of a column there are; None if none is missing, nor stands in what is."""
        column, masks = self.columns[name], self.masks_of(name)
        if isinstance(column, Sparse) or all(mask.all() for mask in masks.values()):
            return None
        splits = column.splits if isinstance(column, Ragged) else ()
        inner = (column.values if isinstance(column, Ragged) else column).shape[1:]
        found = np.ones(self.rows, bool)
        for level in range(len(splits) + len(inner) + 1):
            found = found & masks[level] if level in masks else found
            if level < len(splits):
                found = np.repeat(found, np.diff(splits[level]))
            elif level < len(splits) + len(inner):
                found = np.repeat(found, inner[level - len(splits)])
        return found

    def plain_document(self) -> Document:
        """The columns as one document of arrays: masks are arrays as well, which `origin` names."""
        whole = self.with_mask_columns(rows_as_well=True)
        return Document([Leaf(value, whole.path(name)) for name, value in whole.columns.items()], origin=whole.origin)

    def document(self) -> Document:
        """The columns, and their masks beside them, as one document that says it is rows of a table."""
        leaves = [Leaf(value, self.path(name)) for name, value in self.columns.items()]
        for (name, level), mask in self.masks.items():
            flags = Tensor("bool", mask.shape, np.ascontiguousarray(mask).view(np.uint8))
            leaves.append(Leaf(flags, (*self.path(name), ("mask", level))))
        return Document(leaves, rows=self.rows, origin=self.origin)

    def path(self, name: str) -> Path:
        return self.paths.get(name, (("key", name),))


class Missing(NamedTuple):
    """How many elements of a column are missing: of its rows, of its lists, and of the structs around it."""

    elements: int
    exact: bool = True  # or at least so many

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{self.elements} null"


class Listing(NamedTuple):
    """What a document holds, without its masks, and what is missing in its columns as far as that is known."""

    document: Document
    missing: Mapping[str, Missing]


def listing(document: Document, local: bool) -> Listing:
    """A document as it is listed: masks are counted, where they need not be fetched from afar."""
    if document.rows is None and MASKS not in document.origin:
        return Listing(document, {})
    told = {column: name for column, (name, _) in told_places(document.origin.get(MASKS, "{}")).items()}
    kept: list[Leaf] = []
    found: dict[str, Missing] = {}
    for leaf in document.leaves:
        is_mask = bool(leaf.path) and leaf.path[-1][0] == "mask"
        owner = path_name(leaf.path[:-1]) if is_mask else told.get(str(leaf.name))
        if owner is None or leaf.header.dtype != "bool":
            kept.append(leaf)
        elif local or leaf.value.at_hand:
            flags = _flags(leaf.read())
            before = found.get(owner, Missing(0)).elements
            found[owner] = Missing(before + len(flags) - int(np.count_nonzero(flags)))
    names = [str(leaf.name) for leaf in kept]
    for owner in [owner for owner in found if owner not in names]:  # a struct
        count = found.pop(owner).elements
        for name in names:
            if name.startswith(f"{owner}/"):
                found[name] = Missing(found.get(name, Missing(0)).elements + count)
    return Listing(document._replace(leaves=kept), found)


def table_of(document: Document) -> Table:
    """The rows that a document says it is."""
    assert document.rows is not None
    columns: dict[str, Value] = {}
    masks: dict[tuple[str, int], Array] = {}
    paths: dict[str, Path] = {}
    every = [leaf.path[:-1] if leaf.path[-1][0] == "mask" else leaf.path for leaf in document.leaves]
    names = _names_of(every)
    for leaf, path in zip(document.leaves, every, strict=True):
        name = names[path]
        if len(path) > 1:
            paths[name] = path
        if path is not leaf.path:
            level = leaf.path[-1][1]
            assert isinstance(level, int)
            masks[name, level] = leaf.read().numpy()  # type: ignore[union-attr]
        else:
            columns[name] = leaf.read()
    return Table(columns, document.rows, masks, document.origin, paths)


def noted_table(document: Document, takes: Callable[[str], bool] | None = None) -> Table | None:
    """The rows that a document says it is, or its origin: by their masks or their schema. None for anything else.

    `takes` tells which columns are wanted; the others are not read.
    """
    if document.rows is not None:
        return table_of(document)
    if not document.origin.keys() & {SCHEMA, TYPES, MASKS}:
        return None
    lengths: set[int | None] = set()
    for leaf in document.leaves:
        if leaf.kind or not leaf.path or any(kind != "key" for kind, _ in leaf.path):
            return None
        kind, _, shape, _ = leaf.header
        lengths.add(shape[0] if shape and kind != "sparse" else None)
    names = _names_of([leaf.path for leaf in document.leaves])
    if len(lengths) != 1 or None in lengths or len(names) < len(document.leaves):
        return None
    wanted = set(names.values()) if takes is None else taken_columns(names.values(), owners(document.origin), takes)
    read = {names[leaf.path]: leaf for leaf in document.leaves if names[leaf.path] in wanted}
    columns = {name: leaf.read() for name, leaf in read.items()}
    paths = {name: leaf.path for name, leaf in read.items() if len(leaf.path) > 1}
    return Table(columns, lengths.pop() or 0, origin=document.origin, paths=paths).with_levels().with_masks()


def _names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """A name for each path: {"a/b": x} and {"a": {"b": y}} have two."""
    names: dict[Path, str] = {}
    taken: set[str] = set()
    for path in paths:
        if path not in names:
            names[path] = unique(str(path_name(path)), taken)
            taken.add(names[path])
    return names


def taken_columns(names: Collection[str], told: Mapping[str, str], takes: Callable[[str], bool]) -> set[str]:
    """The columns that are taken, and those that are masks and lengths of them, as `owners` tells."""
    names = dict.fromkeys(names)
    taken = {name for name in names if name not in told and takes(name)}
    for _ in range(2):  # masks have lengths, too
        taken |= {name for name, owner in told.items() if not taken.isdisjoint(columns_below(owner, names))}
    return taken


def columns_below(owner: str, names: Collection[str]) -> list[str]:
    """Of some columns the one of this name, or those that may be fields of a struct of this name."""
    return [owner] if owner in names else [name for name in names if name.startswith(f"{owner}/")]


def with_names(origin: Mapping[str, str], names: Mapping[str, str | None]) -> Mapping[str, str]:
    """An origin whose schema knows its columns by the names that they have since: `names` gives the old ones.

    None stands for a column of which the schema is no longer true.
    """
    changed = dict(origin)
    for key in {SCHEMA, TYPES} & origin.keys():
        schema, before = split_names(origin[key])
        since = before | {new: old if old is None else before.get(old, old) for new, old in names.items()}
        gone = {old for old in names.values() if old is not None} - names.keys()
        since = {new: old for new, old in since.items() if new not in gone and new != old}
        changed[key] = f"{schema} {json.dumps(since)}" if since else schema
    return changed


def split_names(text: str) -> tuple[str, dict[str, str | None]]:
    """(the schema, the names that its columns have since and those that it has for them)"""
    schema, _, names = text.partition(" ")
    try:
        found = json.loads(names or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(old, str | None) for old in found.values()):
        raise InvalidValueError("the note of names is not sound")
    return schema, found


def unique(name: str, taken: Container[str]) -> str:
    """The name, or the same with a number if it is taken."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


def told_places(text: str) -> dict[str, tuple[str, int]]:
    """What was noted of columns that stand for levels of others; a file may say anything."""
    found: dict[str, tuple[str, int]] = {}
    try:
        for column, (name, level) in json.loads(text).items():
            if type(name) is not str or type(level) is not int or not 0 <= level <= _MOST_LEVELS or name == column:
                raise ValueError
            found[column] = name, level
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidValueError("the note of masks and levels is not sound") from None
    if len(set(found.values())) < len(found):
        raise InvalidValueError("the note of masks and levels is not sound: it names two columns for one place")
    return found


def owners(origin: Mapping[str, str]) -> dict[str, str]:
    """The columns of a table that are masks or lengths of others, and of which."""
    told = [origin[key] for key in (MASKS, LEVELS) if key in origin]
    return {column: name for text in told for column, (name, _) in told_places(text).items()}


def _bounds(rows: int, splits: Iterable[Array], inner: tuple[int, ...]) -> Array:
    """Where the elements of each row begin: row splits lead to them, and axes after those."""
    bounds: Array = np.arange(rows + 1)
    for level in splits:
        bounds = level[bounds]
    return bounds * math.prod(inner)


def _mask_of(value: Value, there: Array | None, bounds: Array) -> Array:
    """The mask that a column holds, of rows with elements between `bounds`; what a row has none for is all there."""
    inside = value.values if isinstance(value, Ragged) else value
    splits = value.splits if isinstance(value, Ragged) else ()
    sizes, wanted = np.diff(_bounds(count(value) or 0, splits, inside.shape[1:])), np.diff(bounds)
    rows = np.ones(len(wanted), bool) if there is None else there
    if len(sizes) != len(wanted) or (sizes != wanted)[rows].any():
        raise InvalidValueError("a mask and its column don't fit together")
    if rows.all():
        return _flags(value)
    mask = np.ones(int(bounds[-1]), bool)
    mask[np.repeat(rows, wanted)] = _flags(value)[np.repeat(rows, sizes)]
    return mask


def _in_lists(name: str, value: Value, lengths: Mapping[int, Value | None]) -> Ragged:
    """A flat list as lists of lists, by the lengths of the inner ones."""
    unsound = InvalidValueError(f"the note of the lists of {name!r} is not sound")
    if not isinstance(value, Ragged) or len(value.splits) > 1 or value.shapes is not None:
        raise unsound
    if sorted(lengths) != list(range(1, len(lengths) + 1)):
        raise unsound
    splits: list[Array] = []
    bounds: Array = np.arange(len(value) + 1)
    for level in range(1, len(lengths) + 1):
        column = lengths[level]
        if not isinstance(column, Ragged) or not isinstance(column.values, Tensor) or column.values.dtype != "int64":
            raise unsound
        (own, *deeper), sizes = column.splits, column.values.numpy().reshape(-1)
        splits = splits or [own]
        bounds = own if level == 1 else splits[-1][bounds]
        if deeper or len(column) != len(value) or not np.array_equal(bounds, own) or (sizes < 0).any():
            raise unsound
        splits.append(_offsets([sizes]))
    if not np.array_equal(splits[-1][bounds], value.splits[0]):
        raise unsound
    return replace(value, splits=tuple(splits))


def with_axes(value: Value, inner: tuple[int, ...]) -> Value:
    """Rows with shapes of their own that differ in nothing but their length, as lists of elements of one shape."""
    if not isinstance(value, Ragged) or value.shapes is None:
        return value
    lengths = value.shapes[:, 0]
    shape = (int(lengths.sum()), *inner)
    if not np.array_equal(np.diff(value.splits[0]), lengths * math.prod(inner)):
        raise InvalidValueError(f"rows of elements of shape {list(inner)} have another one")
    return Ragged(_reshape(value.values, shape), (_offsets([lengths]),), None, value.name, value.meta, value.origin)


def _is_flags(value: Value) -> bool:
    inside = value.values if isinstance(value, Ragged) else value
    return isinstance(inside, Tensor) and inside.dtype == "bool"


def _flags(value: Value) -> Array:
    """The bools of a mask that is a column."""
    inside = value.values if isinstance(value, Ragged) else value
    assert isinstance(inside, Tensor)
    return inside.numpy().reshape(-1)


def table_of_columns(document: Document) -> Table:
    """The rows whose columns a document is: a dict of values of one length. LossError for anything else."""
    columns: dict[str, Value] = {}
    for leaf in document.leaves:
        if leaf.kind or len(leaf.path) != 1 or leaf.path[0][0] != "key":
            raise _no_columns("something else", leaf.name)
        columns[str(leaf.name)] = leaf.read()
    lengths = {name: count(value) for name, value in columns.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise _no_columns("lengths " + ", ".join(f"{name!r}: {length}" for name, length in islice(lengths.items(), 4)))
    return Table(columns, next(iter(lengths.values())) or 0)


def _no_columns(got: str, tensor: str | None = None) -> LossError:
    return LossError(
        "rows are written of columns",
        feature="rows",
        tensor=tensor,
        expected="a dict of arrays of one length",
        got=got,
        hints=WRITE_ROWS,
    )


def rebatch(tables: Iterator[Table], size: int) -> Iterator[Table]:
    """The same rows, `size` in each table but the last; where there are none, a table without rows, if there is one."""
    waiting: list[Table] = []
    have = total = 0
    first: Table | None = None
    for table in tables:
        first = table if first is None else first
        total += table.rows
        start = 0
        while table.rows - start >= size - have:
            stop = start + size - have
            yield join_tables([*waiting, table.cut(start, stop)])
            waiting, have, start = [], 0, stop
        if start < table.rows:
            waiting.append(table.cut(start, table.rows))
            have += table.rows - start
    if waiting:
        yield join_tables(waiting)
    elif first is not None and not total:
        yield first


def join_tables(tables: list[Table]) -> Table:
    """Tables of the same columns, one after the other."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].columns.keys()
    for table in tables:
        if table.columns.keys() != names:
            odd = min(table.columns.keys() ^ names)
            raise LossError(f"tables of different columns can't be joined: {odd!r}", feature="stack")
    columns = {name: concatenate([table.columns[name] for table in tables]) for name in names}
    return tables[0]._replace(columns=columns, rows=sum(table.rows for table in tables), masks=join_masks(tables))


def join_masks(tables: list[Table]) -> dict[tuple[str, int], Array]:
    """The masks of tables one after the other; what one has none for is all there."""
    masks = {}
    for place in sorted({place for table in tables for place in table.masks}):
        found = [table.masks.get(place) for table in tables]
        counts = [table.count_elements(*place) for table in tables]
        whole = [np.ones(n, bool) if mask is None else mask for mask, n in zip(found, counts, strict=True)]
        masks[place] = np.concatenate(whole)
    return masks


def concatenate(values: list[Value]) -> Value:
    """Columns one after the other; those of rows of different shapes are ragged together."""
    first = values[0]
    alike = {(value.dtype, value.shape[1:]) if isinstance(value, Tensor) else None for value in values}
    if isinstance(first, Tensor) and len(alike) == 1:
        flat = np.concatenate([np.frombuffer(value.data, np.uint8) for value in values if isinstance(value, Tensor)])
        total = sum(count(value) or 0 for value in values)
        return Tensor(first.dtype, (total, *first.shape[1:]), flat, first.name, first.meta, first.origin)
    column = Column()
    for value in values:
        column.add(value)
    return amended(column.finish(), first.name, first.meta, first.origin)


def _row_sizes(value: Value, rows: int) -> Array | int:
    bounds = np.arange(rows + 1)
    while isinstance(value, Ragged):
        for level in value.splits:
            bounds = level[bounds]
        value = value.values
    if isinstance(value, Tensor):
        return np.diff(bounds) * (dtypes.get(value.dtype).itemsize * int(np.prod(value.shape[1:], dtype=np.int64)))
    if isinstance(value, Strings):
        sizes: Array = np.diff(value.offsets[bounds * int(np.prod(value.shape[1:], dtype=np.int64))])
        return sizes
    return 0


def fill_missing(value: Value, present: Array, shape: tuple[int | None, ...] = ()) -> Tensor | Strings:
    """A column of rows of one shape, or none, as a dense one: zeros or empty strings where there is none."""
    assert isinstance(value, Ragged)
    inner = tuple(size or 0 for size in shape)
    rows, each = (len(value), *inner), math.prod(inner)
    if isinstance(value.values, Tensor):
        size = dtypes.get(value.values.dtype).itemsize * each
        room = np.zeros((len(value), size), np.uint8)
        room[present] = np.frombuffer(value.values.data, np.uint8).reshape(-1, size) if size else 0
        return Tensor(value.values.dtype, rows, room.reshape(-1), None, value.meta, value.origin)
    assert isinstance(value.values, Strings)
    lengths = np.zeros((len(value), each), np.int64)
    lengths[present] = np.diff(value.values.offsets).reshape(-1, each) if each else 0
    return Strings(rows, _offsets([lengths.reshape(-1)]), value.values.data, value.values.encoding)


def spread(value: Value, present: Array) -> Value:
    """A column of the rows that there are, as one of all rows: zeros, or empty ones, where there is none."""
    rows = len(present)
    if isinstance(value, Tensor):
        size = math.prod(value.shape[1:]) * dtypes.get(value.dtype).itemsize
        room = np.zeros((rows, size), np.uint8)
        room[present] = np.frombuffer(value.data, np.uint8).reshape(-1, size) if size else 0
        made: Value = Tensor(value.dtype, (rows, *value.shape[1:]), room.reshape(-1))
    elif isinstance(value, Strings):
        each = math.prod(value.shape[1:])
        lengths = np.zeros((rows, each), np.int64)
        lengths[present] = np.diff(value.offsets).reshape(-1, each) if each else 0
        made = Strings((rows, *value.shape[1:]), _offsets([lengths.reshape(-1)]), value.data, value.encoding)
    elif isinstance(value, Ragged):
        sizes = np.zeros(rows, np.int64)
        sizes[present] = np.diff(value.splits[0])
        shapes = None
        if value.shapes is not None:
            shapes = np.zeros((rows, value.shapes.shape[1]), value.shapes.dtype)
            shapes[present] = value.shapes
        made = replace(value, splits=(_offsets([sizes]), *value.splits[1:]), shapes=shapes)
    else:
        raise LossError("a sparse value has no rows to take apart", feature="sparse")
    return amended(made, value.name, value.meta, value.origin)


def count(value: Value) -> int | None:
    """How many rows a value has; None for what has no rows, a scalar or a sparse value."""
    if isinstance(value, Ragged):
        return len(value)
    return None if isinstance(value, Sparse) or not value.shape else value.shape[0]


def cut(value: Value, start: int, stop: int) -> Value:
    """Rows start to stop, as views; name and metadata stay."""
    return amended(_cut(value, start, stop), value.name, value.meta, value.origin)


def _cut(value: Value, start: int, stop: int) -> Value:
    if isinstance(value, Tensor):
        shape = (stop - start, *value.shape[1:])
        size = math.prod(value.shape[1:]) * dtypes.get(value.dtype).itemsize
        return Tensor(value.dtype, shape, value.data[start * size : stop * size])
    if isinstance(value, Strings):
        width = math.prod(value.shape[1:])
        offsets = value.offsets[start * width : stop * width + 1]
        data = value.data[int(offsets[0]) : int(offsets[-1])]
        return Strings((stop - start, *value.shape[1:]), offsets - offsets[0], data, value.encoding)
    if isinstance(value, Sparse):
        raise LossError("a sparse value has no rows to take apart", feature="sparse")
    shapes = None if value.shapes is None else value.shapes[start:stop]
    splits = []
    for level in value.splits:
        bounds = level[start : stop + 1]
        start, stop = int(bounds[0]), int(bounds[-1])
        splits.append(bounds - start)
    values = _cut(value.values, start, stop)
    assert isinstance(values, Tensor | Strings)
    return Ragged(values, tuple(splits), shapes)


def rows_of(value: Value) -> Iterator[Value]:
    """Each row as a value of its own; what was ragged by one level is dense then."""
    total = count(value)
    if total is None:
        raise LossError("a scalar or sparse value has no rows to take apart", feature="rows")
    for index in range(total):
        yield amended(_row(value, index), None, {}, part_origin(value.origin))


def _row(value: Value, index: int) -> Value:
    one = _cut(value, index, index + 1)
    if isinstance(one, Tensor):
        return Tensor(one.dtype, one.shape[1:], one.data)
    if isinstance(one, Strings):
        return Strings(one.shape[1:], one.offsets, one.data, one.encoding)
    assert isinstance(one, Ragged)
    if len(one.splits) > 1:
        return Ragged(one.values, one.splits[1:])
    return one.values if one.shapes is None else _reshape(one.values, tuple(one.shapes[0].tolist()))


def _reshape(value: Tensor | Strings, shape: tuple[int, ...]) -> Tensor | Strings:
    if isinstance(value, Tensor):
        return Tensor(value.dtype, shape, value.data)
    return Strings(shape, value.offsets, value.data, value.encoding)


def scalar(row: Value) -> Value:
    """A row of one element as that element."""
    if isinstance(row, Tensor | Strings) and row.shape == (1,):
        return amended(_reshape(row, ()), None, row.meta, row.origin)
    return row


def move_axis(value: Value, axis: int) -> Value:
    """The value with another axis as its first."""
    if axis == 0:
        return value
    if not isinstance(value, Tensor) or not -len(value.shape) <= axis < len(value.shape):
        raise LossError(f"no axis {axis} to take apart: {_describe(value)}", feature="rows")
    size = dtypes.get(value.dtype).itemsize
    elements = np.moveaxis(np.ndarray(value.shape, f"V{size}", value.data), axis, 0)
    flat = elements.copy(order="C").reshape(-1).view(np.uint8)
    return Tensor(value.dtype, elements.shape, flat, value.name, value.meta, value.origin)


def _describe(value: Value) -> str:
    if isinstance(value, Ragged):
        return f"ragged, {len(value)} rows"
    dtype = value.dtype if isinstance(value, Tensor) else "text" if isinstance(value, Strings) else value.layout
    return f"{dtype}{list(value.shape)}"


class _Elements:
    """Elements end to end: numbers, or strings and their lengths. From some size on they are in a temporary file."""

    def __init__(self, first: Tensor | Strings) -> None:
        self.dtype = first.dtype if isinstance(first, Tensor) else first.encoding
        self._numbers = isinstance(first, Tensor)
        self._pieces: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._lengths = array("q")

    def add(self, value: Tensor | Strings) -> None:
        kind = value.dtype if isinstance(value, Tensor) else value.encoding
        if kind != self.dtype:
            raise LossError(f"rows of {self.dtype} and of {kind} can't be stacked", feature="stack")
        if isinstance(value, Strings):
            self._lengths.frombytes(np.diff(value.offsets).astype(np.int64).tobytes())
        self._pieces.append(bytes(value.data))
        self._size += value.nbytes
        if self._size >= _IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
            weakref.finalize(self, self._file.close)
        self._file.writelines(self._pieces)
        self._pieces, self._size = [], 0

    def finish(self, shape: tuple[int, ...]) -> Tensor | Strings:
        if self._file is None:
            data = memoryview(b"".join(self._pieces))
        else:
            self._spill()
            self._file.flush()
            data = storage.map_open(self._file)
        if self._numbers:
            return Tensor(self.dtype, shape, data)
        return Strings(shape, _offsets([np.frombuffer(self._lengths, np.int64)]), data, self.dtype)


def _offsets(lengths: list[Array]) -> Array:
    out = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    if lengths:
        np.cumsum(np.concatenate(lengths), out=out[1:])
    return out


class Column:
    """A column that grows row by row or batch by batch. Its data go to a temporary file, so that memory stays small.

    Rows of one shape make a tensor, others a ragged value.
    """

    def __init__(self, ragged: bool = False) -> None:
        self._elements: _Elements | None = None
        self._shapes = array("q")  # [rows, rank], flat
        self._rank: int | None = None
        self._levels: list[list[Array]] = []  # lengths, for values that are ragged in several levels
        self._inner: tuple[int, ...] = ()
        self._counted = 0  # rows in _shapes
        self._ragged, self._shaped = ragged, False
        self._origin: dict[str, str] = {}
        self.rows = 0

    def add_row(self, row: Value) -> None:
        """One more row."""
        if isinstance(row, Ragged) and row.shapes is None:
            first = np.array([0, len(row)])
            self._add_levels([np.diff(level) for level in (first, *row.splits)], row.values)
        elif isinstance(row, Tensor | Strings):
            self._add_dense(_reshape(row, (1, *row.shape)))
        else:
            raise LossError(f"rows like this can't be stacked: {_describe(row)}", feature="stack")
        self._note(row, 1)

    def add(self, batch: Value) -> None:
        """More rows, as a column."""
        if isinstance(batch, Tensor | Strings) and batch.shape:
            self._add_dense(batch)
        elif isinstance(batch, Ragged) and len(batch.splits) == 1:
            self._add_ragged(batch)
        elif isinstance(batch, Ragged):
            self._add_levels([np.diff(level) for level in batch.splits], batch.values)
        else:
            raise LossError(f"no rows to stack: {_describe(batch)}", feature="stack")
        self._note(batch, count(batch) or 0)

    def _note(self, value: Value, rows: int) -> None:
        if not self.rows:
            self._origin = part_origin(value.origin)
        self.rows += rows

    def _store(self, values: Tensor | Strings) -> None:
        if self._elements is None:
            self._elements = _Elements(values)
        self._elements.add(values)

    def _add_dense(self, batch: Tensor | Strings) -> None:
        self._add_shapes(np.tile(np.array(batch.shape[1:], np.int64), (batch.shape[0], 1)))
        self._store(batch)

    def _add_ragged(self, batch: Ragged) -> None:
        self._ragged = True
        if batch.shapes is not None:
            self._shaped = True
            self._add_shapes(batch.shapes.astype(np.int64))
        else:
            lengths = np.diff(batch.splits[0])
            rest = np.tile(np.array(batch.values.shape[1:], np.int64), (len(lengths), 1))
            self._add_shapes(np.concatenate((lengths[:, None], rest), axis=1))
        self._store(batch.values)

    def _add_shapes(self, shapes: Array) -> None:
        if self._levels or self._rank not in (None, shapes.shape[1]):
            raise LossError("rows of different ranks can't be stacked", feature="stack")
        self._rank = shapes.shape[1]
        self._shapes.frombytes(shapes.astype(np.int64).tobytes())
        self._counted += len(shapes)

    def _add_levels(self, lengths: list[Array], values: Tensor | Strings) -> None:
        inner = values.shape[1:]
        if self._rank is not None or (self._levels and (len(self._levels) != len(lengths) or inner != self._inner)):
            raise LossError("rows of different depths can't be stacked", feature="stack")
        if not self._levels:
            self._levels, self._inner = [[] for _ in lengths], inner
        for level, more in zip(self._levels, lengths, strict=True):
            level.append(more)
        self._store(values)

    def finish(self) -> Value:
        """The whole column."""
        if self._elements is None:
            raise LossError("no rows to stack", feature="stack")
        made = self._ragged_value() if self._levels else self._flat_value()
        return amended(made, None, {}, self._origin)

    def _ragged_value(self) -> Ragged:
        assert self._elements is not None
        splits = tuple(_offsets(level) for level in self._levels)
        values = self._elements.finish((int(splits[-1][-1]), *self._inner))
        return Ragged(values, splits)

    def _flat_value(self) -> Value:
        assert self._elements is not None
        assert self._rank is not None
        shapes = np.frombuffer(self._shapes, np.int64).reshape(self._counted, self._rank).copy()
        alike = bool((shapes == shapes[:1]).all())
        if alike and not self._ragged:
            return self._elements.finish((len(shapes), *(shapes[0].tolist() if len(shapes) else self._width())))
        rest = shapes[:, 1:]
        sizes = shapes.prod(axis=1)
        if not self._shaped and bool((rest == rest[:1]).all()):
            lengths = shapes[:, 0]
            inner = rest[0].tolist() if len(rest) else self._width()[1:]
            return Ragged(self._elements.finish((int(lengths.sum()), *inner)), (_offsets([lengths]),))
        return Ragged(self._elements.finish((int(sizes.sum()),)), (_offsets([sizes]),), shapes)

    def _width(self) -> tuple[int, ...]:
        return (0,) * (self._rank or 0)
