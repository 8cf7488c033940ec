"""Neutral values as Arrow arrays: one column each, the leading axis as its rows. Memory is shared.

| value                           | Arrow type                                                      |
| ------------------------------- | --------------------------------------------------------------- |
| Tensor [n]                      | the primitive type                                              |
| Tensor [n, ...]                 | arrow.fixed_shape_tensor                                        |
| Strings [n]                     | large_string (UTF-8) or large_binary                            |
| Strings [n, ...]                | fixed_size_list of them                                         |
| Ragged                          | list (32-bit splits) or large_list, nested by level             |
| Ragged with row shapes          | arrow.variable_shape_tensor: struct {data: list, shape: int32}  |
| datetime64, timedelta64         | timestamp, duration, where the unit is s, ms, us or ns          |
| complex                         | as a further axis of 2: real part, imaginary part               |
| other dtypes that Arrow lacks   | the unsigned integer of the same width                          |

What the type does not say stands in the field's note, under "column":

    cell     the innermost list, or fixed-size list, of a row has this shape
    splits   the integers of the row splits by level, where the type has others: ["int64"]
    shapes   the integers of the row shapes
    ragged   true: the single row of the column is a list of the rows of a ragged value
    of       the column tells the shapes of this one, for SQL; readers here pass over it

Rows that hold nothing (a zero among their dimensions) and rows of 2^31 elements and more
are large_lists with a `cell`: Parquet has no fixed-size lists of size 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.deferred import Dense
from tensorbytes.errors import USE_TB, LossError, MissingDependencyError
from tensorbytes.tensor import Array, Ragged, Strings, Tensor, Value
from tensorbytes.typing import bytes_view

NAME, DETAILS = b"ARROW:extension:name", b"ARROW:extension:metadata"
VARIABLE = "arrow.variable_shape_tensor"
# Arrow's own limit is 64 levels, and a table and its cells take some.
MOST_LEVELS = 48
_SMALL = 1 << 31
_COMPLEX = {"complex32": "float16", "bcomplex32": "uint16", "complex64": "float32", "complex128": "float64"}
_TIME = re.compile(r"<[mM]8\[(s|ms|us|ns)\]")


def arrow(what: str = "Arrow") -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise MissingDependencyError(what, "arrow") from None
    return pyarrow


def room(count: int, dtype: str) -> Array:
    """Memory for an array that will be filled, of pyarrow's: it keeps what was given back, and new pages are slow."""
    return np.frombuffer(arrow().allocate_buffer(count * np.dtype(dtype).itemsize), dtype, count)


class ArrowColumn(NamedTuple):
    """An array, what only we read about it, and the field metadata that makes it an extension type."""

    array: Any
    note: dict[str, Any]
    extension: dict[bytes, bytes]


def carrier(dtype: str) -> tuple[str, bool]:
    """The dtype in which Arrow holds another one, and whether elements become pairs."""
    row = dtypes.get(dtype)
    if row.arrow:
        return dtype, False
    return (_COMPLEX[dtype], True) if dtype in _COMPLEX else (f"uint{8 * row.itemsize}", False)


def is_native(value: Dense, origin: Mapping[str, str], seconds: bool) -> bool:
    """Whether Arrow has a type for it, so that no note is needed."""
    if isinstance(value, Strings) or dtypes.get(value.dtype).arrow:
        return True
    return time_type(value.dtype, origin, seconds) is not None


def time_type(dtype: str, origin: Mapping[str, str], seconds: bool) -> Any:
    """timestamp or duration. `seconds=False`: Parquet has no timestamps in seconds."""
    if dtype not in ("datetime64", "timedelta64"):
        return None
    found = _TIME.fullmatch(origin.get("numpy.dtype", ""))
    if found is None or (found[0][1] == "M") != (dtype == "datetime64"):
        return None
    if dtype == "timedelta64":
        return arrow().duration(found[1])
    return arrow().timestamp(found[1]) if seconds or found[1] != "s" else None


def primitive(dtype: str) -> Any:
    pa = arrow()
    return pa.bool_() if dtype == "bool" else getattr(pa, dtype)()


def check_levels(value: Value) -> None:
    """Refuse lists in lists in lists that are deeper than Arrow goes."""
    if isinstance(value, Ragged) and value.shapes is None and len(value.splits) > MOST_LEVELS:
        raise LossError(
            f"{len(value.splits)} ragged levels: Arrow nests {MOST_LEVELS} here", feature="rank", hints=[USE_TB]
        )


def column(value: Tensor | Strings | Ragged, origin: Mapping[str, str], seconds: bool = True) -> ArrowColumn:
    """A value whose leading axis is the rows."""
    note: dict[str, Any] = {}
    if not isinstance(value, Ragged):
        return ArrowColumn(_items(value, origin, seconds, note, top=True), note, {})
    if value.shapes is not None and value.shapes.shape[1]:
        return _variable(value, value.shapes, origin, seconds, note)
    check_levels(value)
    array = _items(value.values, origin, seconds, note)
    for splits in reversed(value.splits):
        array = lists(splits, array)
    if any(splits.dtype.itemsize < 4 for splits in value.splits):
        note["splits"] = [splits.dtype.name for splits in value.splits]
    if value.shapes is not None:  # rows without axes: a shape field would be a list of size 0
        note["shapes"] = value.shapes.dtype.name
    return ArrowColumn(array, note, {})


def stream(value: Tensor | Strings | Ragged, requested_schema: Any) -> Any:
    """A value whose leading axis is the rows, as Arrow's interface hands it to other libraries."""
    made = arrow().chunked_array([column(value, value.origin).array])
    return made.__arrow_c_stream__(requested_schema)


def whole(value: Tensor | Strings | Ragged, origin: Mapping[str, str], seconds: bool = True) -> ArrowColumn:
    """A value as the single row of a column."""
    if isinstance(value, Tensor):
        return column(Tensor(value.dtype, (1, *value.shape), value.data), origin, seconds)
    if isinstance(value, Strings):
        once = Strings((1, *value.shape), value.offsets, value.data, value.encoding)
        return column(once, origin, seconds)
    rows = column(value, origin, seconds)
    outer = np.array([0, len(value)], np.int32 if len(value) < _SMALL else np.int64)
    return ArrowColumn(lists(outer, rows.array), {**rows.note, "ragged": True}, {})


def _items(
    values: Tensor | Strings, origin: Mapping[str, str], seconds: bool, note: dict[str, Any], top: bool = False
) -> Any:
    """An array over the leading axis; each item has the rest of the shape."""
    pa = arrow()
    elements, inner = flat(values, origin, seconds)
    count = values.shape[0]
    if not inner:
        return elements
    size = math.prod(inner)
    if not 0 < size < _SMALL:
        note["cell"] = list(inner)
        return lists(np.arange(count + 1, dtype=np.int64) * size, elements)
    items = pa.Array.from_buffers(pa.list_(elements.type, size), count, [None], children=[elements])
    if top and isinstance(values, Tensor):
        return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(elements.type, inner), items)
    if len(inner) > 1:
        note["cell"] = list(inner)
    return items


def flat(values: Tensor | Strings, origin: Mapping[str, str], seconds: bool) -> tuple[Any, tuple[int, ...]]:
    """All elements end to end, and the shape of an item."""
    pa = arrow()
    if isinstance(values, Strings):
        kind = pa.large_string() if values.encoding == "utf-8" else pa.large_binary()
        buffers = [None, _buffer(np.ascontiguousarray(values.offsets, "<i8")), _buffer(values.data)]
        return pa.Array.from_buffers(kind, len(values.offsets) - 1, buffers), values.shape[1:]
    held, pairs = carrier(values.dtype)
    kind = time_type(values.dtype, origin, seconds) or primitive(held)
    inner = (*values.shape[1:], 2) if pairs else values.shape[1:]
    data = values.data
    if held == "bool":
        data = np.packbits(np.frombuffer(data, np.uint8), bitorder="little")
    count = values.nbytes // dtypes.get(values.dtype).itemsize * (2 if pairs else 1)
    return pa.Array.from_buffers(kind, count, [None, _buffer(data)]), inner


def _buffer(data: Any) -> Any:
    view = bytes_view(data)
    return arrow().py_buffer(view)


def lists(splits: Array, items: Any) -> Any:
    pa = arrow()
    wide = splits.dtype.itemsize > 4
    kind = pa.large_list(items.type) if wide else pa.list_(items.type)
    offsets = np.ascontiguousarray(splits, "<i8" if wide else "<i4")
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, _buffer(offsets)], children=[items])


def _variable(
    value: Ragged, shapes: Array, origin: Mapping[str, str], seconds: bool, note: dict[str, Any]
) -> ArrowColumn:
    """Rows with shapes of their own. The extension type wants 32 bits, which nearly always are enough."""
    pa = arrow()
    (splits,) = value.splits
    note |= {"splits": [splits.dtype.name], "shapes": shapes.dtype.name}
    small = value.values.shape[0] < _SMALL and not (shapes >= _SMALL).any()
    data = lists(splits.astype(np.int32 if small else np.int64), _items(value.values, origin, seconds, note))
    held = np.ascontiguousarray(shapes, "<i4" if small else "<i8")
    flat = pa.Array.from_buffers(pa.int32() if small else pa.int64(), held.size, [None, _buffer(held)])
    sizes = pa.Array.from_buffers(pa.list_(flat.type, shapes.shape[1]), len(shapes), [None], children=[flat])
    array = pa.Array.from_buffers(
        pa.struct([("data", data.type), ("shape", sizes.type)]), len(shapes), [None], children=[data, sizes]
    )
    standard = small and isinstance(value.values, Tensor) and not carrier(value.values.dtype)[1]
    return ArrowColumn(array, note, {NAME: VARIABLE.encode(), DETAILS: b"{}"} if standard else {})


def shape_column(shape: tuple[int, ...], rows: int) -> Any:
    """The same shape in each row, as a list that SQL can read."""
    pa = arrow()
    flat = np.tile(np.array(shape, "<i8"), rows)
    return lists(
        np.arange(rows + 1, dtype=np.int32) * len(shape),
        pa.Array.from_buffers(pa.int64(), len(flat), [None, _buffer(flat)]),
    )
