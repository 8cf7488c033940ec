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
| month_day_nano_interval               | int64 of months, days and nanoseconds                                 |
| dictionary, run_end_encoded           | those of their values                                                 |
| null, a struct without fields         | rows that hold nothing: uint8 [n, 0]                                  |
| an extension type                     | those of its storage                                                  |
| union                                 | none: there is no neutral form                                        |
| month_interval, day_time_interval     | none: pyarrow has no arrays of them                                   |

masks[path, level] tells what is there: level 0 counts rows, level 1 the elements of their lists, and so on. A struct,
or a list of structs, has masks of its own, under its own path. What is not there is zero, or empty; what stands below
something that is not there counts as there. shredding.py takes arrays apart like this, composing.py makes the same
arrays of the columns, given the type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import LossError, UnsupportedError
from tensorbytes.formats._arrow.write import arrow, time_type
from tensorbytes.rows import unique
from tensorbytes.tensor import Array, Ragged, Strings, Tensor
from tensorbytes.typing import bytes_view

Keys: TypeAlias = tuple[str, ...]
ColumnValue: TypeAlias = Tensor | Strings | Ragged
# masks[keys, level]: which elements there are.
Masks: TypeAlias = dict[tuple[Keys, int], Array]

FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
HOLLOW = "hollow"  # rows that hold nothing
STRINGS = ("text", "bytes")
# Of months, days and nanoseconds.
INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


class LeafType(NamedTuple):
    """What the elements of a flat column are: a dtype, or text or bytes; the dimensions of an element."""

    dtype: str  # "text" and "bytes" for strings
    inner: tuple[int, ...] = ()
    unit: str = ""  # of times

    @property
    def stored(self) -> str:
        return "uint8" if self.dtype == HOLLOW else self.dtype

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
        for name, child in zip(child_names(kind), kind, strict=True):
            number = _walk(child.type, (*keys, name), levels, out, number)
        return number
    if types.is_map(kind):
        number = _walk(kind.key_type, (*keys, "key"), (*levels, None), out, number)
        return _walk(kind.item_type, (*keys, "value"), (*levels, None), out, number)
    if is_list(kind):
        return _walk(kind.value_type, keys, (*levels, list_size(kind)), out, number)
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


def child_names(kind: Any) -> list[str]:
    """The names of a struct's fields, of which no two are the same here."""
    return unique_names([field.name for field in kind])


def unique_names(names: list[str]) -> list[str]:
    """The same names; one that occurs again gets a number."""
    taken: set[str] = set()
    found = []
    for name in names:
        found.append(unique(name, taken))
        taken.add(found[-1])
    return found


def has_twins(kind: Any) -> bool:
    """Whether two fields of a struct, at any level, have one name: which is which can't be told by one alone."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return len({field.name for field in fields}) < len(fields) or any(has_twins(field.type) for field in fields)


def is_list(kind: Any) -> bool:
    types = arrow().types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def list_size(kind: Any) -> int | None:
    return int(kind.list_size) if arrow().types.is_fixed_size_list(kind) else None


def leaf_type(kind: Any) -> LeafType:
    """What the elements of a type without children are."""
    types = arrow().types
    text = str(kind)
    name = FLOATS.get(text, text)
    if name in dtypes.DTYPES and dtypes.get(name).arrow:
        return LeafType(name)
    if types.is_null(kind) or types.is_struct(kind):
        return LeafType(HOLLOW, (0,))
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
    if text == "month_day_nano_interval":
        return LeafType("int64", (3,))
    raise UnsupportedError(f"the Arrow type {text[:100]} has no neutral form")


def any_null(array: Any) -> bool:
    """Whether anything in an array is null, at any level."""
    pa = arrow()
    if array.null_count:
        return True
    kind = array.type
    if pa.types.is_primitive(kind):
        return False
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
    return is_list(kind) and any_null(array.values)


def elements_at(value: ColumnValue, level: int) -> int:
    """How many elements a column has at a level of lists: 0 counts rows."""
    if not isinstance(value, Ragged):
        return math.prod(value.shape[: level + 1])
    if not level:
        return len(value)
    above = min(level, len(value.splits))
    return int(value.splits[above - 1][-1]) * math.prod(value.values.shape[1 : level + 1 - above])


def is_text(kind: Any) -> bool:
    """Whether a type is text or bytes of any length."""
    return str(kind).removesuffix("_view").removeprefix("large_") in ("string", "binary")


def tensor_cells(kind: Any) -> tuple[int, Any] | None:
    """(how many lists stand around them, their type) of the tensors of one shape that the elements of a type are."""
    level = 0
    while is_list(kind):
        kind, level = kind.value_type, level + 1
    return (level, kind) if isinstance(kind, arrow().FixedShapeTensorType) else None


def bits_of(mask: Array) -> Any:
    return arrow().py_buffer(bytes_view(np.packbits(mask, bitorder="little")))


def misfit(keys: Keys, what: str) -> LossError:
    return LossError(
        f"the column is not what its Arrow type says: expected {what}", feature="type", tensor="/".join(keys)
    )


def offsets_buffer(splits: Array, width: str) -> Any:
    if len(splits) and splits.max() > np.iinfo(width).max:
        raise LossError("more elements than 32-bit lists of Arrow hold", feature="type")
    return arrow().py_buffer(bytes_view(np.ascontiguousarray(splits, width)))


# ---- types of what is left --------------------------------------------------


def pruned(kind: Any, values: Mapping[Keys, Any]) -> Any:
    """A type without what has no column; numbers that were cast have the type of their dtype."""
    found = _pruned(kind, (), values)
    if found is None:
        raise misfit((), "a column")
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
    if is_list(inner):
        made = _pruned(inner.value_type, keys, values)
        if made is None or made == inner.value_type:
            return None if made is None else kind
        return _list_like(inner, inner.value_field.with_type(made))
    return None if keys not in values else _cast_type(kind, values[keys])


def _children(kind: Any) -> list[tuple[str, Any]]:
    return list(zip(child_names(kind), kind, strict=True))


def _cast_type(kind: Any, value: Any) -> Any:
    """The type of a number that may have been cast."""
    values = value.values if isinstance(value, Ragged) else value
    leaf = leaf_type(content_type(kind))
    if not isinstance(values, Tensor) or leaf.unit or leaf.inner or values.dtype == leaf.stored:
        return kind
    floats = leaf.stored in FLOATS.values() and values.dtype in FLOATS.values()
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
    if is_list(inner):
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
