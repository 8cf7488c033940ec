"""Columns of any Arrow type as flat columns and masks, and back.

A field becomes one flat column for each of its leaves, under the path of the names that lead there:

| Arrow type                            | flat columns                                                          |
| ------------------------------------- | --------------------------------------------------------------------- |
| numbers, bools, strings, binary       | one, as `write.py` has them                                           |
| struct                                | those of its fields, under their names                                |
| list, large_list, list views          | those of its items, each one ragged level deeper                      |
| fixed_size_list                       | those of its items, one axis deeper                                   |
| map                                   | those of `key` and `value`, as in a list of structs                   |
| date, timestamp                       | datetime64 in its unit                                                |
| duration, time                        | timedelta64 in its unit: a time is what passed since midnight         |
| decimal                               | text, with every digit                                                |
| month_interval, month_day_nano        | int32; int64 of months, days and nanoseconds                          |
| dictionary, run_end_encoded           | those of their values                                                 |
| null, a struct without fields         | rows that hold nothing: uint8 [n, 0]                                  |
| an extension type                     | those of its storage                                                  |
| union                                 | none: there is no neutral form                                        |

masks[path, level] tells what is there: level 0 counts rows, level 1 the elements of their lists, and so on. A struct,
or a list of structs, has masks of its own, under its own path. What is not there is zero, or empty; what stands below
something that is not there counts as there. `compose` makes the same arrays of the columns, given the type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.errors import Hint, LossError, UnsupportedError
from tensorbytes.formats._arrow import decimals
from tensorbytes.formats._arrow.words import NO_WORDS, Words, WordsError, findable, has_dictionary, indexed
from tensorbytes.formats._arrow.write import arrow, room, time_type
from tensorbytes.tensor import Array, Ragged, Strings, Tensor
from tensorbytes.typing import bytes_view

Keys: TypeAlias = tuple[str, ...]
ColumnValue: TypeAlias = Tensor | Strings | Ragged
# masks[keys, level]: which elements there are.
Masks: TypeAlias = dict[tuple[Keys, int], Array]

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
_HOLLOW = "hollow"  # rows that hold nothing
STRINGS = ("text", "bytes")
_NONE = np.zeros(1, np.int64)
_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


class LeafType(NamedTuple):
    """What the elements of a flat column are: a dtype, or text or bytes; the dimensions of an element."""

    dtype: str  # "text" and "bytes" for strings
    inner: tuple[int, ...] = ()
    unit: str = ""  # of times

    @property
    def stored(self) -> str:
        return "uint8" if self.dtype == _HOLLOW else self.dtype

    @property
    def origin(self) -> dict[str, str]:
        return {"numpy.dtype": f"<{'M' if self.dtype == 'datetime64' else 'm'}8[{self.unit}]"} if self.unit else {}


class FlatColumn(NamedTuple):
    """A flat column of a field, by the field's type alone."""

    keys: Keys  # below the field's name
    leaf: LeafType
    levels: tuple[int | None, ...]  # the lists that its elements stand in: their size where it is fixed
    number: int  # of the leaf among those of the field, as Parquet counts them

    @property
    def dims(self) -> tuple[int | None, ...]:
        """The shape of a row; lists of one size around lists that vary are row splits as well."""
        last = max((number for number, size in enumerate(self.levels) if size is None), default=-1)
        return (*[None] * (last + 1), *self.levels[last + 1 :])


def flat_columns(kind: Any) -> list[FlatColumn]:
    """The flat columns of a type. UnsupportedError: there is no neutral form for it."""
    found: list[FlatColumn] = []
    _walk(kind, (), (), found, 0)
    return found


def _walk(kind: Any, keys: Keys, levels: tuple[int | None, ...], out: list[FlatColumn], number: int) -> int:
    """Add the flat columns of a type; the number of the next leaf."""
    types = arrow().types
    kind = content_type(kind)
    if types.is_struct(kind) and kind.num_fields:
        for name, child in zip(_child_names(kind), kind, strict=True):
            number = _walk(child.type, (*keys, name), levels, out, number)
        return number
    if types.is_map(kind):
        number = _walk(kind.key_type, (*keys, "key"), (*levels, None), out, number)
        return _walk(kind.item_type, (*keys, "value"), (*levels, None), out, number)
    if _is_list(kind):
        return _walk(kind.value_type, keys, (*levels, _list_size(kind)), out, number)
    out.append(FlatColumn(keys, leaf_type(kind), levels, number))
    return number + 1


def content_type(kind: Any) -> Any:
    """The type of what is encoded: of an extension its storage, of a dictionary its values."""
    pa = arrow()
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _child_names(kind: Any) -> list[str]:
    """The names of a struct's fields, of which no two are the same here."""
    return unique_names([field.name for field in kind])


def unique_names(names: list[str]) -> list[str]:
    """The same names; one that occurs again gets a number."""
    taken: set[str] = set()
    found = []
    for name in names:
        free, number = name, 1
        while free in taken:
            number += 1
            free = f"{name}~{number}"
        taken.add(free)
        found.append(free)
    return found


def has_twins(kind: Any) -> bool:
    """Whether two fields of a struct, at any level, have one name: which is which can't be told by one alone."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return len({field.name for field in fields}) < len(fields) or any(has_twins(field.type) for field in fields)


def _is_list(kind: Any) -> bool:
    types = arrow().types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _list_size(kind: Any) -> int | None:
    return int(kind.list_size) if arrow().types.is_fixed_size_list(kind) else None


def leaf_type(kind: Any) -> LeafType:
    """What the elements of a type without children are."""
    types = arrow().types
    text = str(kind)
    name = _FLOATS.get(text, text)
    if name in dtypes.DTYPES and dtypes.get(name).arrow:
        return LeafType(name)
    if types.is_null(kind) or types.is_struct(kind):
        return LeafType(_HOLLOW, (0,))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_decimal(kind):
        return LeafType("text")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return LeafType("bytes")
    if types.is_fixed_size_binary(kind):
        return LeafType("bytes")
    if types.is_date(kind):
        return LeafType("datetime64", unit="D" if types.is_date32(kind) else "ms")
    if types.is_timestamp(kind):
        return LeafType("datetime64", unit=kind.unit)
    if types.is_duration(kind) or types.is_time(kind):
        return LeafType("timedelta64", unit=kind.unit)
    if text == "month_interval":
        return LeafType("int32")
    if text == "month_day_nano_interval":
        return LeafType("int64", (3,))
    raise UnsupportedError(f"the Arrow type {text[:100]} has no neutral form")


def any_null(array: Any) -> bool:
    """Whether anything in an array is null, at any level."""
    pa = arrow()
    if array.null_count:
        return True
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return any_null(array.storage)
    if pa.types.is_dictionary(kind):
        return any_null(array.dictionary) or any_null(array.indices)
    if pa.types.is_struct(kind):
        return any(any_null(array.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return any_null(array.keys) or any_null(array.items)
    if pa.types.is_null(kind):
        return bool(len(array))
    if pa.types.is_run_end_encoded(kind):
        return any_null(array.values)
    return _is_list(kind) and any_null(array.values)


def elements_at(value: ColumnValue, level: int) -> int:
    """How many elements a column has at a level of lists: 0 counts rows."""
    if not isinstance(value, Ragged):
        return math.prod(value.shape[: level + 1])
    if not level:
        return len(value)
    above = min(level, len(value.splits))
    return int(value.splits[above - 1][-1]) * math.prod(value.values.shape[1 : level + 1 - above])


# ---- taking apart ------------------------------------------------------------


class Shredded(NamedTuple):
    """Flat columns by their keys, and masks of them and of what they stand in."""

    columns: dict[Keys, ColumnValue]
    masks: Masks


def shred(array: Any, budget: Budget, where: str, wanted: Keys | None = None) -> Shredded:
    """The flat columns of a validated array: all of them, or the one of some keys with the masks on its way."""
    out = Shredded({}, {})
    _shred(array, (), [], None, out, budget, where, wanted)
    return out


def by_leaf(array: Any) -> list[Any]:
    """For each leaf of an array's type, the structs that lead to it and nothing else."""
    pa = arrow()
    kind = array.type
    if not pa.types.is_struct(kind) or not kind.num_fields or array.offset:
        return [array] * len(flat_columns(kind))
    found = []
    for number, (name, field) in enumerate(zip(_child_names(kind), kind, strict=True)):
        for child in by_leaf(array.field(number)):
            inside = pa.struct([pa.field(name, child.type, field.nullable, field.metadata)])
            found.append(pa.Array.from_buffers(inside, len(array), array.buffers()[:1], children=[child]))
    return found


class Level(NamedTuple):
    """Lists of some level: how many there are, and their row splits or the size that all of them have."""

    lists: int
    splits: Array | None = None
    size: int = 0

    def all_splits(self) -> Array:
        return np.arange(self.lists + 1, dtype=np.int64) * self.size if self.splits is None else self.splits


def _shred(
    array: Any, keys: Keys, levels: list[Level], dead: Array | None, out: Shredded, budget: Budget, where: str,
    wanted: Keys | None,
) -> None:  # fmt: skip
    """`dead` tells which elements stand below something that is not there: they count as there, and as zero."""
    types = arrow().types
    array = _decoded(array, budget, where)
    kind = array.type
    if array.null_count:  # what is null, what is missing, and the mask; an array of nulls takes no bytes by itself
        budget.copy(4 * len(array), f"the mask of column {where!r}", 0)
    gone = _nulls(array)
    missing = gone if dead is None or gone is None else gone & ~dead
    if missing is not None and missing.any():
        out.masks[keys, len(levels)] = ~missing
    below = dead if gone is None else gone if dead is None else gone | dead
    if types.is_struct(kind) and kind.num_fields:
        for number, name in enumerate(_child_names(kind)):
            if wanted is None or wanted[: len(keys) + 1] == (*keys, name):
                _shred(array.field(number), (*keys, name), levels, below, out, budget, where, wanted)
    elif types.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        if below is not None:
            budget.copy(len(array) * size, f"the mask of column {where!r}", 0)
        inside = None if below is None else np.repeat(below, size)
        _shred(items, keys, [*levels, Level(len(array), None, size)], inside, out, budget, where, wanted)
    elif types.is_map(kind):
        splits, entries = _list_items(array, below, budget, where)
        for number, name in enumerate(("key", "value")):
            if wanted is None or wanted[: len(keys) + 1] == (*keys, name):
                _shred(
                    entries.field(number),
                    (*keys, name),
                    [*levels, Level(len(array), splits)],
                    None,
                    out,
                    budget,
                    where,
                    wanted,
                )
    elif _is_list(kind):
        splits, items = _list_items(array, below, budget, where)
        _shred(items, keys, [*levels, Level(len(array), splits)], None, out, budget, where, wanted)
    elif wanted is None or wanted == keys:
        out.columns[keys] = _in_levels(_leaf_values(array, below, budget, where), levels)


def _nulls(array: Any) -> Array | None:
    """Which elements are null; None if none are."""
    if not array.null_count:
        return None
    bits = array.buffers()[0]
    found: Array = (
        np.asarray(array.is_null())  # of nulls alone, which have no bits
        if bits is None
        else _unpacked(memoryview(bits), array.offset, len(array)) == 0
    )
    return found


def _unpacked(bits: memoryview, start: int, count: int) -> Array:
    """Some bits as bytes of 0 or 1."""
    raw = np.frombuffer(bits, np.uint8)[start // 8 : (start + count + 7) // 8]
    return np.unpackbits(raw, count=start % 8 + count, bitorder="little")[start % 8 :]


def _decoded(array: Any, budget: Budget, where: str) -> Any:
    """The array without extensions, dictionaries and runs, which may stand for much more than they take."""
    pa = arrow()
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        budget.copy(len(array) * (_width(array.type.index_type) + 1), f"column {where!r}", 0)
        numbers = np.asarray(array.indices.fill_null(0))
        return _decoded(_taken(array.dictionary, numbers, _nulls(array.indices), budget, where), budget, where)
    if pa.types.is_run_end_encoded(array.type):
        return _decoded(_without_runs(array, budget, where), budget, where)
    return array


def _without_runs(array: Any, budget: Budget, where: str) -> Any:
    pa = arrow()
    kind, count = array.type.value_type, len(array)
    ends = np.asarray(array.run_ends, np.int64)
    budget.copy(16 * len(ends), f"column {where!r}", 0)
    lengths = np.diff(np.clip(ends - array.offset, 0, count), prepend=0)
    if isinstance(kind, pa.BaseExtensionType) or kind.num_fields or pa.types.is_dictionary(kind) or is_text(kind):
        budget.copy(8 * count, f"column {where!r}", 0)
        return _taken(array.values, np.repeat(np.arange(len(ends)), lengths), None, budget, where)
    budget.copy(count * _width(kind), f"column {where!r}", 0)
    return pa.compute.run_end_decode(array)


def _taken(array: Any, order: Array, gone: Array | None, budget: Budget, where: str) -> Any:
    """The elements of some numbers, once there is room for them; `gone` tells which of them are null whatever they are.

    pyarrow does the same of most types, but of no views nor runs, and does not tell before what it will take.
    """
    pa = arrow()
    types, kind, count = pa.types, array.type, len(order)
    if isinstance(kind, pa.BaseExtensionType):
        return _taken(array.storage, order, gone, budget, where)
    if not len(array) and count:  # all are gone
        budget.copy(count * _width(kind), f"column {where!r}", 0)
        return pa.nulls(count, kind)
    if types.is_run_end_encoded(kind):
        ends = np.asarray(array.run_ends, np.int64)
        budget.copy(16 * (len(ends) + count), f"column {where!r}", 0)
        return _taken(
            array.values, np.searchsorted(ends, order.astype(np.int64) + array.offset, "right"), gone, budget, where
        )
    if types.is_dictionary(kind):
        budget.copy((len(array) + count) * (_width(kind.index_type) + 1), f"column {where!r}", 0)
        hidden = _gone_of(array.indices, order, gone)
        numbers = np.asarray(array.indices.fill_null(0))[order]
        return _taken(array.dictionary, numbers, hidden, budget, where)
    if not kind.num_fields:
        return _taken_leaves(array, order, gone, budget, where)
    budget.copy(4 * count, f"column {where!r}", 0)
    hidden = _gone_of(array, order, gone)
    valid = None if hidden is None else _bits(~hidden)
    if types.is_struct(kind):
        children = [_taken(array.field(number), order, None, budget, where) for number in range(kind.num_fields)]
        fields = [field.with_type(child.type) for field, child in zip(kind, children, strict=True)]
        return pa.Array.from_buffers(pa.struct(fields), count, [valid], children=children)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        budget.copy(16 * count * size, f"column {where!r}", 0)
        inside = (order.astype(np.int64)[:, None] * size + np.arange(size)).reshape(-1)
        values = array.values.slice(array.offset * size, len(array) * size)
        child = _taken(values, inside, None, budget, where)
        return pa.Array.from_buffers(pa.list_(child.type, size), count, [valid], children=[child])
    starts, lengths, values = _placed_items(array)
    lengths = lengths[order] if hidden is None else np.where(hidden, 0, lengths[order])
    splits = np.concatenate(([0], np.cumsum(lengths)))
    budget.copy(32 * (count + int(splits[-1])), f"column {where!r}", 0)
    child = _taken(values, np.repeat(starts[order] - splits[:-1], lengths) + np.arange(splits[-1]), None, budget, where)
    if types.is_map(kind):
        whole = pa.map_(*(field.type for field in child.type))
        child = pa.Array.from_buffers(pa.struct([whole.key_field, whole.item_field]), len(child), [None], children=[
            child.field(0), child.field(1)
        ])  # fmt: skip
    else:
        wide = types.is_large_list(kind) or types.is_large_list_view(kind)
        whole = pa.large_list(child.type) if wide else pa.list_(child.type)
    offsets = _offsets(splits, "<i8" if types.is_large_list(whole) else "<i4")
    return pa.Array.from_buffers(whole, count, [valid, offsets], children=[child])


def _taken_leaves(array: Any, order: Array, gone: Array | None, budget: Budget, where: str) -> Any:
    pa = arrow()
    kind, count = array.type, len(order)
    if pa.types.is_null(kind):
        return pa.nulls(count)
    if is_text(kind):
        array = _wide(array, budget, where)
        offsets = np.frombuffer(_buffer_of(array, 1), "<i8", len(array) + 1, 8 * array.offset) if len(array) else _NONE
        budget.copy(8 * count, f"column {where!r}", 0)
        size = int(np.diff(offsets)[order].sum(dtype=np.int64))
        budget.copy(2 * (size + 8 * count), f"column {where!r}", 0)
    else:
        budget.copy(count * (_width(kind) + 1), f"column {where!r}", 0)
    return array.take(pa.array(order, mask=gone))


def _gone_of(array: Any, order: Array, gone: Array | None) -> Array | None:
    """Which elements of some numbers are null, or gone before."""
    own = _nulls(array)
    if own is None:
        return gone
    return own[order] if gone is None else own[order] | gone


def _placed_items(array: Any) -> tuple[Array, Array, Any]:
    """(where each list starts, how long it is, all items) of lists, list views and maps."""
    types, kind = arrow().types, array.type
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        starts, lengths = (np.asarray(part, np.int64) for part in (array.offsets, array.sizes))
        return starts, lengths, array.values
    width = np.dtype("<i8" if types.is_large_list(kind) else "<i4")
    count = len(array) + 1 if len(array) else 0
    offsets = np.frombuffer(_buffer_of(array, 1), width, count, width.itemsize * array.offset).astype(np.int64)
    return offsets[:-1], np.diff(offsets), _entries(array) if types.is_map(kind) else array.values


def _width(kind: Any) -> int:
    """The bytes that an element takes at least."""
    if arrow().types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type) + 1
    if kind.num_fields:
        return 8 + sum(_width(kind.field(number).type) for number in range(kind.num_fields))
    try:
        return int(kind.bit_width) // 8 + 1
    except ValueError:  # it varies
        return 8


def is_text(kind: Any) -> bool:
    """Whether a type is text or bytes of any length."""
    return str(kind).removesuffix("_view").removeprefix("large_") in ("string", "binary")


def _wide(array: Any, budget: Budget, where: str) -> Any:
    """Strings with 64-bit offsets: large_string or large_binary."""
    pa = arrow()
    text = str(array.type)
    if text in ("large_string", "large_binary"):
        return array
    if text.endswith("_view"):
        held = _buffer_of(array, 1)[16 * array.offset : 16 * (array.offset + len(array))]
        size = int(np.frombuffer(held, "<i4").reshape(-1, 4)[:, 0].clip(0).sum(dtype=np.int64))
        budget.copy(size, f"column {where!r}", 0)
    budget.copy(8 * (len(array) + 1), f"column {where!r}", 0)
    return array.cast(pa.large_string() if "string" in text else pa.large_binary())


def _list_items(array: Any, gone: Array | None, budget: Budget, where: str) -> tuple[Array, Any]:
    """(row splits from 0 on, the items that they speak of); lists that are not there have none."""
    types = arrow().types
    if types.is_list_view(array.type) or types.is_large_list_view(array.type):
        return _view_items(array, gone, budget, where)
    wide = types.is_large_list(array.type)
    kind = np.dtype("<i8" if wide else "<i4")
    values = array.values if not types.is_map(array.type) else _entries(array)
    if not len(array):
        return np.zeros(1, kind), values.slice(0, 0)
    offsets = np.frombuffer(_buffer_of(array, 1), kind)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    values = values.slice(first, last - first)
    offsets = offsets - offsets[0] if first else offsets
    if gone is None:
        return offsets, values
    lengths = np.diff(offsets)
    hidden = gone & (lengths > 0)
    if hidden.any():
        budget.copy(len(values) * 9, f"column {where!r}", 0)
        values = _taken(values, np.flatnonzero(np.repeat(~hidden, lengths)), None, budget, where)
        lengths[hidden] = 0
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(kind)
    return offsets, values


def _view_items(array: Any, gone: Array | None, budget: Budget, where: str) -> tuple[Array, Any]:
    """The same of list views, whose lists may stand anywhere among the items."""
    wide = np.int64 if arrow().types.is_large_list_view(array.type) else np.int32
    starts, lengths, values = _placed_items(array)
    if gone is not None:
        lengths = np.where(gone, 0, lengths)
    splits = np.concatenate(([0], np.cumsum(lengths)))
    total = int(splits[-1])
    budget.copy(total * 24, f"column {where!r}", 0)
    order = np.repeat(starts - splits[:-1], lengths) + np.arange(total)
    items = _taken(values, order, None, budget, where)
    return splits.astype(wide) if total <= np.iinfo(wide).max else splits, items


def _entries(array: Any) -> Any:
    """All entries of a map, as structs."""
    pa = arrow()
    kind = array.type
    fields = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=fields)


def _buffer_of(array: Any, number: int) -> memoryview:
    found = array.buffers()[number]
    return memoryview(b"") if found is None else memoryview(found)


def _leaf_values(array: Any, gone: Array | None, budget: Budget, where: str) -> Tensor | Strings:
    """The elements of an array without children; those that are not there are zero or empty."""
    kind, count = array.type, len(array)
    leaf = leaf_type(content_type(kind))
    if leaf.dtype == _HOLLOW:
        return Tensor("uint8", (count, 0), b"")
    if leaf.dtype in ("text", "bytes"):
        return _string_values(array, gone, budget, where)
    if leaf.dtype == "bool":
        budget.copy(count, f"column {where!r}", 0)
        flags = _unpacked(_buffer_of(array, 1), array.offset, count)
        if gone is not None:
            flags[gone] = 0
        return Tensor("bool", (count,), flags)
    width = kind.bit_width // 8
    data = _buffer_of(array, 1)[array.offset * width : (array.offset + count) * width]
    if leaf.inner:  # months, days and nanoseconds
        budget.copy(24 * count, f"column {where!r}", 0)
        parts = np.frombuffer(data, _INTERVAL)
        whole = np.stack([parts[name].astype("<i8") for name in _INTERVAL.names or ()], axis=1)
        elements: Array = np.ascontiguousarray(whole)
    elif width == 4 and leaf.unit:  # days, or a time of the day
        budget.copy(8 * count, f"column {where!r}", 0)
        elements = room(count, "<i8")
        np.copyto(elements, np.frombuffer(data, "<i4"))
    elif gone is None:
        return Tensor(leaf.dtype, (count,), data, origin=leaf.origin)
    else:
        budget.copy(width * count, f"column {where!r}", 0)
        # As integers times 0 or 1: faster than an assignment by index, and what is there keeps its bits.
        elements = room(count, f"<u{width}")
        np.multiply(np.frombuffer(data, elements.dtype), ~gone, out=elements)
        return Tensor(leaf.dtype, (count,), elements.view(np.uint8), origin=leaf.origin)
    if gone is not None:
        elements[gone] = np.zeros((), elements.dtype)
    return Tensor(leaf.dtype, (count, *leaf.inner), elements.reshape(-1).view(np.uint8), origin=leaf.origin)


def _string_values(array: Any, gone: Array | None, budget: Budget, where: str) -> Strings:
    pa = arrow()
    kind, count = array.type, len(array)
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        budget.copy(8 * (count + 1), f"column {where!r}", 0)
        data: Any = _buffer_of(array, 1)[array.offset * width : (array.offset + count) * width]
        if gone is not None and width:
            budget.copy(len(data), f"column {where!r}", 0)
            data = np.frombuffer(data, np.uint8).reshape(count, width).copy()
            data[gone] = 0
        return Strings((count,), np.arange(count + 1, dtype=np.int64) * width, bytes_view(data))
    if pa.types.is_decimal(kind):
        budget.copy(count * (kind.precision + 16), f"column {where!r}", 0)
        array = decimals.to_text(array, _nulls(array))
    array = _wide(array, budget, where)
    if not count:
        return Strings((0,), np.zeros(1, np.int64), b"", "utf-8" if "string" in str(array.type) else "bytes")
    offsets = np.frombuffer(_buffer_of(array, 1), "<i8")[array.offset : array.offset + count + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = _buffer_of(array, 2)[first:last]
    offsets = offsets - first if first else offsets
    if gone is not None:
        lengths = np.diff(offsets)
        hidden = gone & (lengths > 0)
        if hidden.any():
            budget.copy(len(data) + 8 * count, f"column {where!r}", 0)
            data = np.frombuffer(data, np.uint8)[np.repeat(~hidden, lengths)]
            lengths[hidden] = 0
            offsets = np.concatenate(([0], np.cumsum(lengths)))
    return Strings((count,), offsets, bytes_view(data), "utf-8" if "string" in str(array.type) else "bytes")


def _in_levels(elements: Tensor | Strings, levels: list[Level]) -> ColumnValue:
    """Elements in the lists that they stand in: axes for the inner ones of one size, row splits for the others."""
    cut = len(levels)
    while cut and levels[cut - 1].splits is None:
        cut -= 1
    rows = levels[cut].lists if cut < len(levels) else elements.shape[0]
    shape = (rows, *(level.size for level in levels[cut:]), *elements.shape[1:])
    values: Tensor | Strings
    if isinstance(elements, Tensor):
        values = Tensor(elements.dtype, shape, elements.data, origin=elements.origin)
    else:
        values = Strings(shape, elements.offsets, elements.data, elements.encoding)
    if not cut:
        return values
    return Ragged(values, tuple(level.all_splits() for level in levels[:cut]), origin=values.origin)


def ordered_words(array: Any, keys: Keys = (), level: int = 0) -> Iterator[tuple[tuple[Keys, int], Any]]:
    """The words of the ordered dictionaries in an array, by their places."""
    pa = arrow()
    kind = array.type
    if not has_dictionary(kind, ordered=True):
        return
    if isinstance(kind, pa.BaseExtensionType):
        yield from ordered_words(array.storage, keys, level)
    elif pa.types.is_dictionary(kind):
        if kind.ordered:
            yield (keys, level), array.dictionary
        yield from ordered_words(array.dictionary, keys, level)
    elif pa.types.is_run_end_encoded(kind):
        yield from ordered_words(array.values, keys, level)
    elif pa.types.is_struct(kind):
        for number, name in enumerate(_child_names(kind)):
            yield from ordered_words(array.field(number), (*keys, name), level)
    elif pa.types.is_map(kind):
        yield from ordered_words(array.keys, (*keys, "key"), level + 1)
        yield from ordered_words(array.items, (*keys, "value"), level + 1)
    else:
        yield from ordered_words(array.values, keys, level + 1)


def with_nulls(array: Any, mask: Array) -> Any:
    """The same array, with nulls where the mask has no element."""
    pa = arrow()
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, with_nulls(array.storage, mask))
    valid = pa.py_buffer(bytes_view(np.packbits(mask, bitorder="little")))
    if pa.types.is_struct(kind):
        children = [array.field(number) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), [valid], children=children)
    if _is_list(kind):
        own = [] if pa.types.is_fixed_size_list(kind) else [array.buffers()[1]]
        return pa.Array.from_buffers(kind, len(array), [valid, *own], children=[array.values])
    return pa.Array.from_buffers(kind, len(array), [valid, *array.buffers()[1:]])


# ---- putting together -----------------------------------------------------------


class Columns:
    """The flat columns and masks that arrays are made of again."""

    def __init__(
        self,
        columns: Mapping[Keys, ColumnValue],
        masks: Mapping[tuple[Keys, int], Array],
        rows: int,
        words: Words = NO_WORDS,
    ) -> None:
        self.columns, self.masks, self.rows, self.words = columns, masks, rows, words

    def splits(self, keys: Keys, level: int, size: int | None, count: int) -> Array:
        """The row splits of the lists of some level, of which there are `count`: all columns below have the same."""
        first = None
        for under, value in self.columns.items():
            if under[: len(keys)] == keys:
                found = _splits_of(value, level, count)
                if found is None or len(found) != count + 1:
                    raise _misfit(keys, f"lists of level {level}, {count} of them")
                if first is not None and first is not found and not np.array_equal(first, found):
                    raise _misfit(keys, "lists of the same lengths as those of the columns beside it")
                first = found if first is None else first
        if first is None:
            raise _misfit(keys, "a column")
        if size is not None and (np.diff(first) != size).any():
            raise _misfit(keys, f"lists of {size} elements")
        return first

    def elements(self, keys: Keys, leaf: LeafType, count: int) -> Tensor | Strings:
        """All elements of a column, one after another."""
        value = self.columns.get(keys)
        values = value.values if isinstance(value, Ragged) else value
        strings = leaf.dtype in ("text", "bytes")
        if values is None or isinstance(values, Strings) != strings:
            raise _misfit(keys, leaf.dtype)
        if isinstance(values, Strings):
            if len(values.offsets) - 1 != count:
                raise _misfit(keys, f"{count} strings")
            return values
        # A format without times has integers.
        dtype = "int64" if leaf.unit and values.dtype == "int64" and not values.origin else leaf.stored
        if leaf.unit and dtype != "int64" and values.origin.get("numpy.dtype") != leaf.origin["numpy.dtype"]:
            raise _misfit(keys, f"{leaf.dtype} in {leaf.unit}")
        if values.dtype != dtype or values.nbytes != count * math.prod(leaf.inner) * dtypes.get(dtype).itemsize:
            raise _misfit(keys, f"{count} elements of {leaf.dtype}")
        return values

    def validity(self, keys: Keys, level: int, count: int) -> Any:
        """The bits that tell which elements there are; None if all are."""
        mask = self.masks.get((keys, level))
        if mask is None or mask.all():
            return None
        if len(mask) != count:
            raise _misfit(keys, f"a mask of {count} elements")
        return _bits(mask)

    def with_flat_cells(self, kind: Any, keys: Keys, level: int) -> Columns:
        """The same, where tensors of one shape are the lists that their type stores them in."""
        column, rank = self.columns.get(keys), len(kind.shape)
        if column is None or rank == 1:
            return self
        masks = dict(self.masks)
        if (keys, level + rank) in masks:
            masks[keys, level + 1] = masks.pop((keys, level + rank))
        return Columns({**self.columns, keys: flat_cells(column, kind, level)}, masks, self.rows, self.words)

    def below(self, keys: Keys, level: int, dead: Array | None) -> Array | None:
        """Which elements are not there, or stand below something that is not; None if none."""
        mask = self.masks.get((keys, level))
        return dead if mask is None else ~mask if dead is None else dead | ~mask


def tensor_cells(kind: Any) -> tuple[int, Any] | None:
    """(how many lists stand around them, their type) of the tensors of one shape that the elements of a type are."""
    level = 0
    while _is_list(kind):
        kind, level = kind.value_type, level + 1
    return (level, kind) if isinstance(kind, arrow().FixedShapeTensorType) else None


def flat_cells(column: ColumnValue, kind: Any, level: int) -> ColumnValue:
    """Tensors of one shape inside of lists as lists of their elements; a column that has them so already stays."""
    dense = column.values if isinstance(column, Ragged) else column
    around = 1 + level - (len(column.splits) if isinstance(column, Ragged) else 0)
    order = list(range(len(kind.shape)) if kind.permutation is None else kind.permutation)
    outer, cell = dense.shape[:around], dense.shape[around:]
    if around < 1 or cell != tuple(kind.shape[axis] for axis in order):
        return column
    shape = (*outer, math.prod(cell))
    made: Tensor | Strings
    if isinstance(dense, Strings):
        made = Strings(shape, dense.offsets, dense.data, dense.encoding)
    else:
        data: Any = dense.data
        if order != sorted(order):
            elements: Array = np.ndarray(dense.shape, f"V{dtypes.get(dense.dtype).itemsize}", data)
            back = [around + order.index(axis) for axis in range(len(order))]
            data = elements.transpose(*range(around), *back).tobytes()
        made = Tensor(dense.dtype, shape, data, origin=dense.origin)
    return Ragged(made, column.splits, origin=column.origin) if isinstance(column, Ragged) else made


def _bits(mask: Array) -> Any:
    return arrow().py_buffer(bytes_view(np.packbits(mask, bitorder="little")))


def _splits_of(value: ColumnValue, level: int, count: int) -> Array | None:
    ragged = len(value.splits) if isinstance(value, Ragged) else 0
    if isinstance(value, Ragged) and level < ragged:
        return value.splits[level]
    inner = (value.values if isinstance(value, Ragged) else value).shape[1:]
    axis = level - ragged
    return np.arange(count + 1, dtype=np.int64) * inner[axis] if axis < len(inner) else None


def _misfit(keys: Keys, what: str) -> LossError:
    return LossError(
        f"the column is not what its Arrow type says: expected {what}", feature="type", tensor="/".join(keys)
    )


# ---- types of what is left --------------------------------------------------


def pruned(kind: Any, values: Mapping[Keys, Any]) -> Any:
    """A type without what has no column; numbers that were cast have the type of their dtype."""
    found = _pruned(kind, (), values)
    if found is None:
        raise _misfit((), "a column")
    return found


def _pruned(kind: Any, keys: Keys, values: Mapping[Keys, Any]) -> Any:
    pa = arrow()
    types, inner = pa.types, content_type(kind)
    if types.is_struct(inner) and inner.num_fields:
        every = [(name, field, _pruned(field.type, (*keys, name), values)) for name, field in _children(inner)]
        if all(made == field.type for _, field, made in every):
            return kind
        left = [field.with_name(name).with_type(made) for name, field, made in every if made is not None]
        return pa.struct(left) if left else None
    if types.is_map(inner):
        key = _pruned(inner.key_type, (*keys, "key"), values)
        value = _pruned(inner.item_type, (*keys, "value"), values)
        if (key, value) == (inner.key_type, inner.item_type):
            return kind
        if key is not None and value is not None:
            return pa.map_(inner.key_field.with_type(key), inner.item_field.with_type(value))
        left = [pa.field(name, made) for name, made in (("key", key), ("value", value)) if made is not None]
        return pa.list_(pa.struct(left)) if left else None
    if isinstance(kind, pa.FixedShapeTensorType):
        made = _pruned(kind.value_type, keys, values)
        if made is None or made == kind.value_type:
            return None if made is None else kind
        return pa.fixed_shape_tensor(made, kind.shape, dim_names=kind.dim_names, permutation=kind.permutation)
    if _is_list(inner):
        made = _pruned(inner.value_type, keys, values)
        if made is None or made == inner.value_type:
            return None if made is None else kind
        return _list_like(inner, inner.value_field.with_type(made))
    return None if keys not in values else _cast_type(kind, values[keys])


def _children(kind: Any) -> list[tuple[str, Any]]:
    return list(zip(_child_names(kind), kind, strict=True))


def _cast_type(kind: Any, value: Any) -> Any:
    """The type of a number that may have been cast."""
    values = value.values if isinstance(value, Ragged) else value
    leaf = leaf_type(content_type(kind))
    if not isinstance(values, Tensor) or leaf.unit or leaf.inner or values.dtype == leaf.stored:
        return kind
    floats = leaf.stored in _FLOATS.values() and values.dtype in _FLOATS.values()
    return number_type(values.dtype) if floats else kind


def number_type(dtype: str) -> Any:
    """Arrow's type of numbers of a dtype; None if it has none."""
    pa = arrow()
    if not dtypes.get(dtype).arrow:
        return None
    return pa.bool_() if dtype == "bool" else getattr(pa, dtype)()


def _list_like(kind: Any, item: Any) -> Any:
    """The type of lists of something else."""
    pa = arrow()
    types = pa.types
    if types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    makers = {
        types.is_large_list: pa.large_list,
        types.is_list_view: pa.list_view,
        types.is_large_list_view: pa.large_list_view,
    }
    return next((make for test, make in makers.items() if test(kind)), pa.list_)(item)


def collapsed(kind: Any, keys: Keys) -> Any:
    """The type of one column of a nested type, without the structs that it stood in."""
    pa = arrow()
    types, inner = pa.types, content_type(kind)
    if types.is_struct(inner) and inner.num_fields:
        return collapsed(dict(_children(inner))[keys[0]].type, keys[1:])
    if types.is_map(inner):
        return pa.list_(collapsed(inner.key_type if keys[0] == "key" else inner.item_type, keys[1:]))
    if _is_list(inner):
        made = collapsed(inner.value_type, keys)
        return kind if made == inner.value_type else _list_like(inner, pa.field(inner.value_field.name, made))
    return kind


def plain_type(value: ColumnValue, seconds: bool) -> Any:
    """The type of a column by its value alone, as far as Arrow has it; None if it has none."""
    pa = arrow()
    values = value.values if isinstance(value, Ragged) else value
    if isinstance(value, Ragged) and value.shapes is not None:
        return None
    if isinstance(values, Strings):
        kind = pa.large_string() if values.encoding == "utf-8" else pa.large_binary()
    else:
        kind = number_type(values.dtype) or time_type(values.dtype, value.origin or values.origin, seconds)
    for size in reversed(values.shape[1:]):
        kind = kind if kind is None else pa.list_(kind, size)
    for _ in value.splits if isinstance(value, Ragged) else ():
        kind = kind if kind is None else pa.large_list(kind)
    return kind


def compose(kind: Any, columns: Columns) -> Any:
    """The array of a type that these flat columns are of. LossError if they are not."""
    return _compose(kind, (), 0, columns.rows, columns, None)


def _compose(kind: Any, keys: Keys, level: int, count: int, columns: Columns, dead: Array | None) -> Any:
    """`dead` tells which elements stand below something that is not there: what they hold is of no matter."""
    pa = arrow()
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.FixedShapeTensorType):
            columns = columns.with_flat_cells(kind, keys, level)
        storage = _compose(kind.storage_type, keys, level, count, columns, dead)
        return pa.ExtensionArray.from_storage(kind, storage)
    if types.is_dictionary(kind):
        return _compose_dictionary(kind, keys, level, count, columns, dead)
    if types.is_run_end_encoded(kind):
        plain = _compose(kind.value_type, keys, level, count, columns, dead)
        try:
            encoded = pa.compute.run_end_encode(findable(plain), run_end_type=kind.run_end_type)
            ends, values = encoded.run_ends, encoded.values.cast(kind.value_type)
        except pa.ArrowNotImplementedError:  # what can't be compared, such as lists: each is a run
            ends, values = pa.array(np.arange(1, count + 1), kind.run_end_type), plain
        return pa.RunEndEncodedArray.from_arrays(ends, values, kind)
    valid = columns.validity(keys, level, count)
    if types.is_struct(kind) and kind.num_fields:
        below = columns.below(keys, level, dead)
        children = [
            _compose(field.type, (*keys, name), level, count, columns, below)
            for name, field in zip(_child_names(kind), kind, strict=True)
        ]
        return pa.Array.from_buffers(kind, count, [valid], children=children)
    if types.is_map(kind):
        splits = columns.splits(keys, level, None, count)
        total = int(splits[-1])
        parts = [
            _compose(part, (*keys, name), level + 1, total, columns, None)
            for name, part in (("key", kind.key_type), ("value", kind.item_type))
        ]
        entries = pa.struct([kind.key_field, kind.item_field])
        child = pa.Array.from_buffers(entries, total, [None], children=parts)
        return pa.Array.from_buffers(kind, count, [valid, _offsets(splits, "<i4")], children=[child])
    if _is_list(kind):
        size = _list_size(kind)
        splits = columns.splits(keys, level, size, count)
        below = None if size is None else columns.below(keys, level, dead)
        inside = None if below is None or size is None else np.repeat(below, size)
        items = _compose(kind.value_type, keys, level + 1, int(splits[-1]), columns, inside)
        if size is not None:
            return pa.Array.from_buffers(kind, count, [valid], children=[items])
        wide = "<i8" if "large" in str(kind)[:5] else "<i4"
        if types.is_list_view(kind) or types.is_large_list_view(kind):
            buffers = [valid, _offsets(splits[:-1], wide), _offsets(np.diff(splits), wide)]
            return pa.Array.from_buffers(kind, count, buffers, children=[items])
        return pa.Array.from_buffers(kind, count, [valid, _offsets(splits, wide)], children=[items])
    elements = columns.elements(keys, leaf_type(kind), count)
    if isinstance(elements, Strings):
        gone = None if dead is None else columns.below(keys, level, dead)
        return _compose_strings(kind, elements, valid, count, None if gone is None else ~gone)
    return _compose_leaf(kind, elements, valid, count)


def _compose_dictionary(kind: Any, keys: Keys, level: int, count: int, columns: Columns, dead: Array | None) -> Any:
    pa = arrow()
    plain = _compose(kind.value_type, keys, level, count, columns, dead)
    gone = columns.below(keys, level, dead)
    if gone is not None and not plain.type.num_fields and not pa.types.is_null(plain.type):
        plain = with_nulls(plain, ~gone)
    numbers: Any
    if kind.ordered:
        words = columns.words.get((keys, level))
        if words is None or words.type != kind.value_type:
            raise WordsError(
                "an ordered dictionary whose words were not kept", feature="type", hints=[Hint(purpose="leave it out")]
            )
        numbers = pa.compute.index_in(findable(plain), value_set=findable(words), skip_nulls=True)
        if numbers.null_count != plain.null_count:
            raise WordsError("an ordered dictionary with words that the first batch does not have", feature="type")
    else:
        try:
            encoded = plain.dictionary_encode()
            numbers, words = encoded.indices, encoded.dictionary
        except pa.ArrowNotImplementedError:  # words that can't be looked up, such as lists
            numbers, words = pa.array(np.arange(count)), plain
    valid = columns.validity(keys, level, count)
    if len(words) and valid is None and numbers.null_count:  # below what is missing: any word will do
        numbers = numbers.fill_null(0)
    return indexed(numbers, np.arange(len(words)), words, kind)


def _offsets(splits: Array, width: str) -> Any:
    if len(splits) and splits.max() > np.iinfo(width).max:
        raise LossError("more elements than 32-bit lists of Arrow hold", feature="type")
    return arrow().py_buffer(bytes_view(np.ascontiguousarray(splits, width)))


def _compose_leaf(kind: Any, elements: Tensor, valid: Any, count: int) -> Any:
    pa = arrow()
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(count)
    if types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [valid])
    data: Any = elements.data
    if elements.dtype == "bool":
        data = np.packbits(np.frombuffer(data, np.uint8), bitorder="little")
    elif str(kind) == "month_day_nano_interval":
        parts = np.frombuffer(data, "<i8").reshape(count, 3)
        made = np.empty(count, _INTERVAL)
        for number, name in enumerate(_INTERVAL.names or ()):
            made[name] = _narrowed(parts[:, number], _INTERVAL[name])
        data = made.view(np.uint8)
    elif kind.bit_width == 32 and leaf_type(kind).unit:
        data = _narrowed(np.frombuffer(data, "<i8"), np.dtype("<i4"))
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(bytes_view(data))])


def _narrowed(numbers: Array, kind: np.dtype[Any]) -> Array:
    made = numbers.astype(kind)
    if (made != numbers).any():
        raise LossError(f"a number does not fit {kind.itemsize * 8} bits of its Arrow type", feature="type")
    return made


def _compose_strings(kind: Any, elements: Strings, valid: Any, count: int, there: Array | None) -> Any:
    """`there`: which elements matter, where not just those that are null don't."""
    pa = arrow()
    types = pa.types
    matter = valid if there is None else _bits(there)
    if types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(_fixed(kind, elements, matter, count))])
    text = types.is_decimal(kind) or "string" in str(kind)
    if text != (elements.encoding == "utf-8"):
        raise LossError(f"{elements.encoding} strings for {kind}", feature="type")
    offsets = pa.py_buffer(bytes_view(np.ascontiguousarray(elements.offsets, "<i8")))
    wide = pa.large_string() if text else pa.large_binary()
    array = pa.Array.from_buffers(wide, count, [matter, offsets, pa.py_buffer(elements.data)])
    try:
        array = array if array.type == kind else array.cast(kind)
    except pa.ArrowException as error:  # not a number, or more than 32-bit offsets hold
        raise LossError(f"text that is not {kind}: {str(error)[:100]}", feature="type") from None
    return array if there is None else pa.Array.from_buffers(kind, count, [valid, *array.buffers()[1:]])


def _fixed(kind: Any, elements: Strings, matter: Any, count: int) -> memoryview:
    """The bytes of strings of one length; those that don't matter may be empty."""
    lengths = np.diff(elements.offsets)
    full = lengths == kind.byte_width
    if full.all():
        return bytes_view(elements.data)
    flags = (
        np.ones(count, bool)
        if matter is None
        else np.unpackbits(np.frombuffer(matter, np.uint8), count=count, bitorder="little").view(bool)
    )
    if (flags & ~full).any() or lengths[~full].any():
        raise LossError(f"bytes of another length than {kind}", feature="type")
    whole = np.zeros((count, kind.byte_width), np.uint8)
    whole[full] = np.frombuffer(elements.data, np.uint8).reshape(-1, kind.byte_width)
    return bytes_view(whole)
