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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    MORE_TENSORS,
    USE_TB,
    CorruptError,
    Hint,
    LimitError,
    LossError,
    TensorbytesError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats import Option, _json, known_options
from tensorbytes.formats._arrow.composing import Columns, compose, with_nulls
from tensorbytes.formats._arrow.nested import (
    STRINGS,
    FlatColumn,
    Keys,
    any_null,
    collapsed,
    content_type,
    elements_at,
    flat_columns,
    plain_type,
    pruned,
    tensor_cells,
    unique_names,
)
from tensorbytes.formats._arrow.read import ColumnValue, fit_note, items_of, joined, stored_order, validate, value
from tensorbytes.formats._arrow.schemas import schema_of, schema_origin
from tensorbytes.formats._arrow.shredding import Shredded, ordered_words, shred
from tensorbytes.formats._arrow.types import Form, form, is_plain
from tensorbytes.formats._arrow.words import MOST_BYTES as MOST_WORDS
from tensorbytes.formats._arrow.words import Words, WordsError, has_dictionary, words_of
from tensorbytes.formats._arrow.write import (
    MOST_LEVELS,
    NAME,
    VARIABLE,
    arrow,
    check_levels,
    column,
    is_native,
    shape_column,
    whole,
)
from tensorbytes.formats._parts import Part, pack, unpack
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.formats._torch import unread
from tensorbytes.rows import SCHEMA, Missing, Table, noted_table, unique
from tensorbytes.tensor import Array, Header, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import NO_META, Document, Leaf, Path, path_name, read_all

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
    content = None if rows is False else noted_table(document)
    if content is not None:
        return table_of_rows(content, seconds, shapes, document.meta)
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


def table_of_rows(
    content: Table,
    seconds: bool = True,
    shapes: bool = False,
    meta: Mapping[str, str] = NO_META,
    nullable: bool = False,
) -> Any:
    """Rows as a pyarrow.Table: what came out of Arrow gets its types back, what is missing is null."""
    pa = arrow()
    content = content.with_masks()
    schema, since = schema_of(content.origin)
    made: dict[str, tuple[Any, Any]] = {}  # by the first column of each
    covered: set[str] = set()
    for group in groups_of(schema, since, content):
        array = group.compose(content, strict=SCHEMA in content.origin)
        if array is not None:
            made[group.names[0]] = group.field_of(array), array
            covered.update(group.names)
    rest = {name: value for name, value in content.columns.items() if name not in covered}
    for name in [name for name in rest if any(content.masks_of(name))]:
        made[name] = _with_missing_elements(name, content, seconds)
        del rest[name]
    if rest:
        plain = table(by_name(rest), rows=True, seconds=seconds, shapes=shapes)
        for field, column in zip(plain.schema, plain.columns, strict=True):
            array, mask = column.chunk(0), content.masks_of(field.name).get(0)
            if mask is not None and not mask.all():
                array, field = with_nulls(array, mask), field.with_nullable(True)
            made[field.name] = field.with_nullable(nullable or field.nullable), array
    # The schema's, where it knows all columns: some formats sort them.
    order = list(made) if covered >= content.columns.keys() else [name for name in content.columns if name in made]
    order += [name for name in made if name not in order]  # what tells the shapes of others
    said = {} if schema is None else {key: text for key, text in (schema.metadata or {}).items() if key != KEY}
    note: dict[str, Any] = {"rows": True, "document": dict(meta)} if meta else {"rows": True}
    if rest or meta:
        said[KEY] = _json.dump(note).encode()
    fields = [made[name][0] for name in order]
    return pa.Table.from_arrays([made[name][1] for name in order], schema=pa.schema(fields, metadata=said or None))


def _with_missing_elements(name: str, content: Table, seconds: bool) -> tuple[Any, Any]:
    """The field and the array of a column that lacks elements of its rows, and of which no schema tells the type."""
    value, masks = content.columns[name], content.masks_of(name)
    if isinstance(value, Sparse) or value.meta or not (kind := plain_type(value, seconds)):
        raise LossError(
            f"which elements of {name!r} are missing: Arrow has no type for lists of it",
            feature="missing",
            tensor=name,
            hints=[Hint("cast", "float32", "for floats that Arrow lacks", of="convert"), USE_TB],
        )
    with refusing(f"column {name!r}"):
        found = compose(kind, Columns({(): value}, {((), level): mask for level, mask in masks.items()}, content.rows))
    return arrow().field(name, found.type), found


class FlatField(NamedTuple):
    """A field of a schema, and the columns that it becomes: their names and their keys."""

    field: Any
    name: str
    names: list[str]
    keys: list[Keys]


def flat_fields(schema: Any) -> list[FlatField]:
    """The fields of a schema that have a neutral form, by the names of their columns, no two of which are the same."""
    taken: set[str] = set()
    found = []
    for field, name in zip(schema, unique_names(schema.names), strict=True):
        try:
            keys = [flat.keys for flat in flat_columns(field.type)]
        except UnsupportedError:
            continue
        names = []
        for own in keys:
            names.append(unique("/".join((name, *own)), taken))
            taken.add(names[-1])
        found.append(FlatField(field, name, names, keys))
    return found


class Group(NamedTuple):
    """Columns that are a field of a schema, or what is left of it, under the name that it has now."""

    field: Any
    name: str
    kind: Any  # what is left of the field's type
    names: list[str]  # of the columns
    keys: list[Keys]
    words: Words  # of dictionaries

    def compose(self, content: Table, strict: bool) -> Any:
        """The array; None if the columns are no longer of its type. `strict`: then it is a LossError."""
        values = [content.columns[name] for name in self.names]
        if any(isinstance(value, Sparse) or value.meta for value in values):
            return None
        owners = {
            "/".join((self.name, *keys[:depth])): keys[:depth] for keys in self.keys for depth in range(len(keys))
        }
        owners |= dict(zip(self.names, self.keys, strict=True))
        masks = {(owners[name], level): mask for (name, level), mask in content.masks.items() if name in owners}
        try:
            kind = pruned(self.kind, dict(zip(self.keys, values, strict=True)))
            columns = {keys: stored_order(value, kind) for keys, value in zip(self.keys, values, strict=True)}
            with refusing(f"column {self.name!r}"):
                return compose(kind, Columns(columns, masks, content.rows, self.words))
        except WordsError as error:
            raise error.replaced(tensor=self.name) from None
        except (LossError, UnsupportedError, CorruptError) as error:
            if not strict:
                return None
            raise LossError(
                f"it can't be written as the Arrow type that it had, {str(self.kind)[:100]}: {error.fault}",
                feature="type",
                tensor=self.name,
            ) from None

    def field_of(self, array: Any) -> Any:
        own = {key: text for key, text in (self.field.metadata or {}).items() if key != KEY}
        field = self.field.with_type(array.type).with_metadata(own or None)
        return field.with_nullable(field.nullable or bool(array.null_count))


def groups_of(schema: Any, since: Mapping[str, str | None], content: Table) -> list[Group]:
    """What there is of each field of a schema, whose columns may have other names since."""
    if schema is None:
        return []
    now = {old: name for name in content.columns if (old := since.get(name, name)) is not None}
    found = []
    for field in flat_fields(schema):
        groups: dict[str, list[tuple[str, Keys]]] = {}
        alone, words = [], words_of(field.field)
        for old, keys in zip(field.names, field.keys, strict=True):
            new, ending = now.get(old), "/".join(("", *keys))
            if new == old:
                groups.setdefault(field.name, []).append((old, keys))
            elif new is not None and new.endswith(ending) and new != ending:
                groups.setdefault(new.removesuffix(ending), []).append((new, keys))
            elif new is not None:
                alone.append((new, keys))
        for name, parts in groups.items():
            own = field.field.name if name == field.name else name
            names, left = [name for name, _ in parts], [keys for _, keys in parts]
            found.append(Group(field.field.with_name(own), name, field.field.type, names, left, words))
        # What left its struct is a column by itself.
        for name, keys in alone:
            kind = collapsed(field.field.type, keys)
            own_words: Words = {((), at[1]): words[at] for at in words if at[0] == keys}
            found.append(Group(field.field.with_name(name), name, kind, [name], [()], own_words))
    return found


def check(document: Document, rows: Any = "auto", seconds: bool = True) -> None:
    """Raise what `table` raises; of most values, only the header is looked at."""
    content = None if rows is False else noted_table(document)
    if content is not None:
        table_of_rows(content, seconds)
        return
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
    def together(self, numbers: Sequence[int], first: int, last: int) -> Iterator[None]:
        """Read these columns at once, where that is faster: in the block, `chunks` and `leaf_chunks` give them."""
        yield

    def leaf_chunks(self, number: int, leaf: int, first: int, last: int) -> list[Any]:
        """The same as `chunks`; of a nested column, what leads to other leaves may be left out."""
        return self.chunks(number, first, last)

    def writable(self, buffer: Any) -> memoryview | None:
        """The bytes of a buffer of an array's, if nobody else has them."""
        return None

    def has_nulls(self, number: int) -> bool | None:
        """Whether anything in a column is null, at any level; None if that is not known before it is read."""
        return None

    def count_nulls(self, number: int) -> int | None:
        """How many rows of a column without children are null; None if that is not known before it is read."""
        return None


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


# Where a mask belongs: the keys below the name of its field, and the level.
Place: TypeAlias = tuple[Keys, int]
MaskArrays: TypeAlias = dict[Place, Array]


class ColumnReader:
    """One column of a stored table: what it holds, and how its rows are read."""

    keys: Keys = ()  # below the name of the field

    def __init__(self, stored: StoredTable, number: int, name: str, note: dict[str, Any]) -> None:
        self.stored, self.number, self.name, self.field = stored, number, name, name
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

    @property
    def path(self) -> Path:
        return tuple(("key", key) for key in (self.field, *self.keys))

    def shape(self, by_row: bool) -> tuple[int | None, ...]:
        """Of the value: all rows, or what the only one holds."""
        rows = (sum(self.stored.lengths),) if by_row else (None,) if self.nested else ()
        return (*rows, *self.form.dims)

    def check(self, by_row: bool, budget: Budget) -> None:
        """Raise over a shape that no memory could hold."""
        width = 8 if self.form.base == "strings" else dtypes.get(self.form.dtype).itemsize
        check_shape([n or 0 for n in self.shape(by_row)], width, budget, 0)

    def places(self, budget: Budget) -> dict[Place, int]:
        """The masks that there are, and how many elements each has. Where no statistics tell, the column is read."""
        if self.stored.has_nulls(self.number) is False:
            return {}
        told = self.told_places()
        if told:
            return told
        arrays = self.arrays(0, len(self.stored.lengths), budget.renewed(self.stored.size))
        _, masks = self.read_with_masks(arrays, budget.renewed(self.stored.size))
        return {place: len(mask) for place, mask in masks.items()}

    def told_places(self) -> dict[Place, int]:
        """The masks that statistics alone tell of."""
        flat = not content_type(self.type).num_fields
        return {((), 0): sum(self.stored.lengths)} if flat and self.stored.has_nulls(self.number) else {}

    def claim(self, first: int, last: int) -> int:
        """The bytes that some chunks would take, where they are not views."""
        claimed, rows = self.stored.claim(self.number, first, last), sum(self.stored.lengths[first:last])
        if self.stored.at_hand or self.form.kind != "tensor":
            return claimed
        return max(claimed, rows * math.prod(n or 0 for n in self.form.dims) * dtypes.get(self.form.dtype).itemsize)

    def arrays(self, first: int, last: int, budget: Budget) -> list[Any]:
        """The arrays of some chunks, once there is room for them."""
        self.charge(first, last, budget)
        return self.fetch(first, last)

    def charge(self, first: int, last: int, budget: Budget) -> None:
        """Take the memory that some chunks need."""
        claim = self.claim(first, last)
        if not self.stored.at_hand:  # decoders take some more
            claim += claim // 4
        budget.copy(claim, f"column {self.name!r}", 0)

    def fetch(self, first: int, last: int) -> list[Any]:
        """The arrays of some chunks, which were charged."""
        with refusing(f"column {self.name!r}"):
            found = self._chunks(first, last)
        have, want = sum(map(len, found)), sum(self.stored.lengths[first:last])
        if have != want:
            raise CorruptError(f"column {self.name!r} has {have} rows of {want}", at=0)
        return found

    def _chunks(self, first: int, last: int) -> list[Any]:
        return self.stored.chunks(self.number, first, last)

    def read(self, arrays: Sequence[Any], budget: Budget, trusted: bool = False) -> ColumnValue:
        """The rows in some arrays; what is null is zero or empty."""
        return self.read_with_masks(arrays, budget, trusted)[0]

    def read_with_masks(
        self, arrays: Sequence[Any], budget: Budget, trusted: bool = False
    ) -> tuple[ColumnValue, MaskArrays]:
        """The rows in some arrays, and which of their elements there are, where any is null."""
        pieces: list[tuple[ColumnValue, MaskArrays]] = []
        with refusing(f"column {self.name!r}"):
            for array in arrays:
                array.validate() if trusted else validate(array)
                pieces.append(self._piece(array, budget))
            if len(pieces) > 1:  # joining copies them
                budget.copy(sum(piece.nbytes for piece, _ in pieces), f"column {self.name!r}", 0)
                budget.copy(_mask_bytes(pieces), f"the masks of column {self.name!r}", 0)
            found, masks = joined([piece for piece, _ in pieces]), _joined_masks(pieces)
        if masks and self.stored.has_nulls(self.number) is False:
            raise CorruptError(f"column {self.name!r} has nulls, of which its statistics don't know", at=0)
        if isinstance(found, Tensor) and dtypes.get(found.dtype).bits < 8:
            check_bits(found, None)
        return found, masks

    def _piece(self, array: Any, budget: Budget) -> tuple[ColumnValue, MaskArrays]:
        if self.nested:
            array = items_of(array, self.name)
        if not any_null(array):
            return value(array, self.own, self.form, budget, self.name), {}
        found = shred(array, budget, self.name, None, self.stored.writable)
        if "shapes" in self.own or self.form.ragged:
            return self._without_nulls(array, found, budget), found.masks
        masks = _shaped_masks(array.type, found.masks, self.name)
        return fit_note(found.columns[()], array.type, self.own, self.form), masks

    def _without_nulls(self, array: Any, found: Shredded, budget: Budget) -> ColumnValue:
        """Rows with shapes of their own; those that are null have no elements."""
        if found.masks.keys() - {((), 0)}:
            raise UnsupportedError(f"column {self.name!r} has nulls inside of its rows", tensor=self.name)
        budget.copy(sum(part.nbytes for part in found.columns.values()), f"column {self.name!r}", 0)
        whole = compose(content_type(array.type), Columns(found.columns, {}, len(array)))
        return value(whole, self.own, self.form, budget, self.name)


def _shaped_masks(kind: Any, masks: MaskArrays, where: str) -> MaskArrays:
    """Masks by the axes of a column: tensors of one shape are lists in their type, with a single level."""
    cells = tensor_cells(kind)
    if cells is None:
        return masks
    level, rank = cells[0], len(cells[1].shape)
    if not rank and ((), level + 1) in masks:
        raise UnsupportedError(f"column {where!r} has nulls inside of tensors without axes", tensor=where)
    return {(keys, at + rank - 1 if at > level else at): mask for (keys, at), mask in masks.items()}


class FlatReader(ColumnReader):
    """One flat column of a field whose type is nested, or not a tensor's: see nested.py."""

    nested = False

    def __init__(self, stored: StoredTable, number: int, field: str, name: str, flat: FlatColumn) -> None:
        self.stored, self.number, self.name, self.field, self.keys = stored, number, name, field, flat.keys
        self.own: dict[str, Any] = {}
        self.type = stored.schema.field(number).type
        self._leaf = flat.number
        base, dtype = ("strings", "string") if flat.leaf.dtype in STRINGS else ("tensor", flat.leaf.stored)
        dims = (*flat.dims, *flat.leaf.inner)
        self.form = Form(base, dtype, dims, flat.leaf.origin, ragged=None in flat.dims)

    def _chunks(self, first: int, last: int) -> list[Any]:
        return self.stored.leaf_chunks(self.number, self._leaf, first, last)

    def _piece(self, array: Any, budget: Budget) -> tuple[ColumnValue, MaskArrays]:
        found = shred(array, budget, self.name, self.keys, self.stored.writable)
        return found.columns[self.keys], found.masks


def _mask_bytes(pieces: Sequence[tuple[ColumnValue, MaskArrays]]) -> int:
    """What the masks of all pieces take, if those of some are made and all are joined."""
    places = {place for _, masks in pieces for place in masks}
    return sum(2 * elements_at(piece, level) for piece, _ in pieces for _, level in places)


def _joined_masks(pieces: Sequence[tuple[ColumnValue, MaskArrays]]) -> MaskArrays:
    if len(pieces) == 1:
        return pieces[0][1]
    found: MaskArrays = {}
    for place in dict.fromkeys(place for _, masks in pieces for place in masks):
        parts = []
        for piece, masks in pieces:
            mask = masks.get(place)
            parts.append(np.ones(elements_at(piece, place[1]), bool) if mask is None else mask)
        found[place] = np.concatenate(parts)
    return found


class Unknown(NamedTuple):
    """A column that has no neutral form."""

    name: str
    error: UnsupportedError

    def leaf(self, rows: int) -> Leaf:
        def refuse() -> NoReturn:
            raise self.error

        what = self.error.got or "an Arrow type"
        return unread.leaf(str(what), refuse, (("key", self.name),), (rows,))


class TableReader(NamedTuple):
    """How a table is read: whether it has rows, its columns with what is left of their notes, and those unknown."""

    by_row: bool
    columns: list[tuple[ColumnReader, dict[str, Any]]]
    unknown: list[Unknown]
    meta: dict[str, str]  # of the whole


def open_table(stored: StoredTable, budget: Budget) -> TableReader:
    """The readers of a table's columns, as far as the limits allow. Nothing but the schema is looked at."""
    with refusing("the schema"):
        overall = _note((stored.schema.metadata or {}).get(KEY), "the schema's note")
        by_row, meta = overall.get("rows", True), overall.get("document", {})
        if set(overall) - {"rows", "document"} or type(by_row) is not bool or not _are_texts(meta):
            raise CorruptError(f"the schema's note is {_json.dump(overall)[:200]}", at=0)
        if not by_row and sum(stored.lengths) != 1:
            raise CorruptError(f"a table of one row has {sum(stored.lengths)}", at=0)
        found: list[tuple[ColumnReader, dict[str, Any]]] = []
        unknown: list[Unknown] = []
        flat_names: set[str] = set()
        for number, name in enumerate(unique_names(stored.schema.names)):
            field = stored.schema.field(number)
            note = _note((field.metadata or {}).get(KEY), f"the note of column {field.name!r}")
            if KEY not in (field.metadata or {}) and by_row and not _is_simple(stored, number):
                try:
                    flats = flat_columns(field.type)
                except UnsupportedError as error:
                    unknown.append(Unknown(name, error.replaced(tensor=name, got=str(field.type)[:100])))
                    continue
                for flat in flats:
                    own = unique("/".join((name, *flat.keys)), flat_names)
                    flat_names.add(own)
                    found.append((FlatReader(stored, number, name, own, flat), {}))
                continue
            name = unique(name, flat_names)
            flat_names.add(name)
            reader = ColumnReader(stored, number, name, note)
            if reader.nested and by_row:
                raise CorruptError(f"column {field.name!r} is whole, in a table of rows", at=0)
            if reader.form.kind == "ragged" and {"layout", "of", "encoding"} & set(note):
                raise CorruptError(f"the note of column {field.name!r} is for other columns", at=0)
            if "of" not in reader.own:
                found.append((reader, note))
    if not found and not unknown:
        raise UnsupportedError("a table without columns holds no tensors")
    if len(found) > budget.max_tensors:
        raise LimitError(f"over {budget.max_tensors} columns", hints=[MORE_TENSORS])
    for reader, _ in found:
        reader.check(by_row, budget)
    return TableReader(by_row, found, unknown, meta)


def _are_texts(meta: Any) -> bool:
    return isinstance(meta, dict) and all(type(text) is str for text in meta.values())


def _is_simple(stored: StoredTable, number: int) -> bool:
    """Whether a column without a note is one tensor, or one list of strings or numbers, without more ado."""
    field = stored.schema.field(number)
    try:
        form(field.type, {}, None, field.name, (field.metadata or {}).get(NAME, b""))
    except UnsupportedError:
        return False
    shaped = isinstance(field.type, arrow().BaseExtensionType) and field.type.extension_name == VARIABLE
    return not shaped or stored.has_nulls(number) is False


def _note(data: bytes | None, what: str) -> dict[str, Any]:
    note = {} if data is None else _json.parse(data, 0, what)
    if not isinstance(note, dict):
        raise CorruptError(f"{what} is not a JSON object", at=0)
    return note


def document(stored: StoredTable, budget: Budget, lazy: bool, skip: bool = False, masks: bool = True) -> Document:
    """What a table holds; lazily, as views and as values that are read when asked.

    `skip`: without what is unknown. `masks=False`: without masks, which are looked for in the data.
    """
    by_row, found, unknown, meta = open_table(stored, budget)
    budget.objects(len(found), "columns", 0, _COLUMN_BYTES)
    if unknown and not skip and not lazy:
        others = len(unknown) - 1
        raise unknown[0].error.replaced(hints=[unread.SKIP], got=_and_others(unknown[0].error.got, others))
    parts, flats, flags = [], [], []
    for reader, note, held, own in _held(stored, found, by_row, budget, lazy, masks):
        flags.append(own)
        if isinstance(reader, FlatReader):
            flats.append(Leaf(held, reader.path))
        else:
            parts.append(Part(reader.name, held, note))
    whole = unpack(parts, budget, lazy) if parts else Document([])
    if meta:
        whole = whole._replace(meta={**meta, **whole.meta})
    origin = {**whole.origin, **origin_of(stored, budget)} if by_row else whole.origin
    if not flats and not any(flags) and not unknown:
        return whole._replace(origin=origin)
    return _in_order(whole._replace(origin=origin), found, flats, flags, [] if skip else unknown, sum(stored.lengths))


def origin_of(stored: StoredTable, budget: Budget) -> dict[str, str]:
    """What the schema says of a table beyond its values, with the words of ordered dictionaries."""
    words: dict[int, Words] = {}
    left = MOST_WORDS
    for number, field in enumerate(stored.schema):
        if has_dictionary(field.type, ordered=True):
            last = min(len(stored.lengths), 1)
            claim = stored.claim(number, 0, last)
            budget.renewed(stored.size).copy(claim + claim // 4, f"column {field.name!r}", 0)
            with refusing(f"column {field.name!r}"):
                array = stored.chunks(number, 0, last)[0]
                array.validate(full=True)
                found = dict(ordered_words(array))
            left -= sum(array.nbytes for array in found.values())
            if left >= 0:
                words[number] = found
    return schema_origin(stored.schema, words)


def missing(stored: StoredTable, budget: Budget, everything: bool) -> dict[str, Missing]:
    """What is missing in the columns of rows: as the file counted it, or as the first chunk or everything shows."""
    by_row, found, _, _ = open_table(stored, budget)
    told = {}
    for reader, _ in found if by_row else ():
        if stored.has_nulls(reader.number) is False:
            continue
        count = None if content_type(reader.type).num_fields else stored.count_nulls(reader.number)
        chunks = len(stored.lengths) if everything else min(len(stored.lengths), 1)
        exact = count is not None or chunks == len(stored.lengths)
        if count is None:
            again = budget.renewed(stored.size)
            _, masks = reader.read_with_masks(reader.arrays(0, chunks, again), again)
            count = sum(len(mask) - int(np.count_nonzero(mask)) for mask in masks.values())
        if count or not exact:
            told[reader.name] = Missing(count, exact)
    return told


def _held(
    stored: StoredTable,
    found: list[tuple[ColumnReader, dict[str, Any]]],
    by_row: bool,
    budget: Budget,
    lazy: bool,
    masks: bool,
) -> Iterator[tuple[ColumnReader, dict[str, Any], Any, list[Leaf]]]:
    """Each column with its note, its value and its masks."""
    if lazy:
        for reader, note in found:
            flags = _deferred_masks(reader, budget) if by_row and masks else []
            yield reader, note, _deferred(reader, by_row, budget), flags
        return
    last = len(stored.lengths)
    for reader, _ in found:
        reader.charge(0, last, budget)
    with stored.together([reader.number for reader, _ in found], 0, last):
        for reader, note in found:
            value, arrays = _converted(reader, reader.fetch(0, last), by_row, budget)
            yield reader, note, value, [_mask_leaf(reader, place, _flags(mask)) for place, mask in arrays.items()]


def _in_order(
    whole: Document,
    found: list[tuple[ColumnReader, dict[str, Any]]],
    flats: list[Leaf],
    masks: list[list[Leaf]],
    unknown: list[Unknown],
    rows: int,
) -> Document:
    """All columns in the order of the table, then their masks, then what is unknown."""
    plain, nested = iter(whole.leaves), iter(flats)
    leaves = [next(nested if isinstance(reader, FlatReader) else plain) for reader, _ in found]
    by_place = {leaf.path: leaf for some in masks for leaf in some}
    listed = [one.leaf(rows) for one in unknown]
    return whole._replace(leaves=[*leaves, *by_place.values(), *listed], rows=rows if by_place else None)


def _and_others(what: object, others: int) -> str:
    return f"{what}{f', and {others} more such columns' if others else ''}"


def _flags(mask: Array) -> Tensor:
    return Tensor("bool", mask.shape, np.ascontiguousarray(mask).view(np.uint8))


def _mask_leaf(reader: ColumnReader, place: Place, value: Tensor | Deferred) -> Leaf:
    keys, level = place
    return Leaf(value, (*(("key", key) for key in (reader.field, *keys)), ("mask", level)))


def _deferred_masks(reader: ColumnReader, budget: Budget) -> list[Leaf]:
    """The masks of a column, which are read when they are asked for."""
    stored = reader.stored

    def fetch(place: Place) -> Value:
        return _flags(_whole(reader, True, budget.renewed(stored.size))[1][place])

    return [
        _mask_leaf(reader, place, Deferred("tensor", "bool", (count,), partial(fetch, place), count))
        for place, count in reader.places(budget).items()
    ]


def _whole(reader: ColumnReader, by_row: bool, budget: Budget) -> tuple[ColumnValue, MaskArrays]:
    return _converted(reader, reader.arrays(0, len(reader.stored.lengths), budget), by_row, budget)


def _converted(
    reader: ColumnReader, arrays: Sequence[Any], by_row: bool, budget: Budget
) -> tuple[ColumnValue, MaskArrays]:
    """All rows of a column, out of its arrays."""
    found, masks = reader.read_with_masks(arrays, budget)
    if masks and not by_row:
        raise CorruptError(f"column {reader.name!r} has nulls, in a table of one row", at=0)
    if by_row and not masks:  # statistics may speak of nulls that are not there
        told = reader.told_places()
        budget.copy(sum(told.values()), f"the mask of column {reader.name!r}", 0)
        masks = {place: np.ones(count, bool) for place, count in told.items()}
    for dense in (found, found.values) if isinstance(found, Ragged) else (found,):
        if not isinstance(dense, Ragged):
            width = dtypes.get(dense.dtype).itemsize if isinstance(dense, Tensor) else 8
            check_shape(dense.shape, width, budget, 0)
    return _row_or_column(reader, found, by_row), masks


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
    shape = reader.shape(by_row)
    size = 0
    if held.kind == "tensor":
        size = dtypes.nbytes(dtypes.get(held.dtype), tuple(n or 0 for n in shape))
        simple = not isinstance(reader, FlatReader) and is_plain(reader.type, reader.own)
        if simple and stored.at_hand and len(stored.lengths) == 1 and stored.has_nulls(reader.number) is False:
            return _row_or_column(reader, reader.read(reader.arrays(0, 1, budget), budget, trusted=True), by_row)

    def fetch() -> Value:
        return _whole(reader, by_row, budget.renewed(stored.size))[0]

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
        found, _ = _whole(reader, by_row, budget)
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
