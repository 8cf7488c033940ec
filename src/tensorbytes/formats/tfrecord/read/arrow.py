"""Columns as Arrow record batches; the memory is shared, not copied.

| column                                | Arrow type                                          |
| ------------------------------------- | --------------------------------------------------- |
| one number, bytes or text a record    | the primitive type, large_binary, large_string      |
| a fixed number of values              | fixed_size_list; n-D: arrow.fixed_shape_tensor      |
| a varying number, feature lists       | large_list, nested as deep as the feature varies    |

A missing feature is null. Arrow has no bfloat16, float8 or complex types, so columns of
those are refused; leave them out with columns=.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorbytes import dtypes, frameworks
from tensorbytes.errors import Hint, LossError, MissingDependencyError
from tensorbytes.formats._arrow import table as arrow_table
from tensorbytes.formats._arrow import write as arrow_write
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, to_value
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise MissingDependencyError("to_arrow()", "arrow") from None


def reader(columns: Mapping[str, tuple[Feature, int]], parts: Iterator[dict[str, ColumnPart]]) -> pa.RecordBatchReader:
    """A stream of record batches. For each column: its feature, and how many lists there are around it."""
    schema = pa.schema([_field(name, *about) for name, about in columns.items()])
    return pa.RecordBatchReader.from_batches(schema, (_batch(schema, columns, piece) for piece in parts))


def _batch(
    schema: pa.Schema, columns: Mapping[str, tuple[Feature, int]], parts: dict[str, ColumnPart]
) -> pa.RecordBatch:
    arrays = [
        _array(to_value(parts[name], feature), parts[name].present, feature) for name, (feature, _) in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def stream(
    items: Mapping[str, Any], present: Mapping[str, Array], columns: Mapping[str, tuple[Feature, int]]
) -> pa.RecordBatchReader:
    """A batch that was handed out, as a stream of one record batch; columns that were added to it too."""
    arrays, fields = [], []
    for name, item in items.items():
        value = item if isinstance(item, Tensor | Strings | Ragged | Sparse) else frameworks.to_value(item)
        if name in columns and not isinstance(value, Sparse):
            arrays.append(_array(value, present.get(name), columns[name][0]))
            fields.append(_field(name, *columns[name]))
        else:
            table = arrow_table.table(arrow_table.by_name({name: value}), rows=True)
            arrays += table.column(0).chunks
            fields.append(table.schema.field(0))
    schema = pa.schema(fields)
    return pa.RecordBatchReader.from_batches(schema, [pa.RecordBatch.from_arrays(arrays, schema=schema)])


_MOST_ITEMS = (1 << 31) - 1


# ---- types -----------------------------------------------------------------------


def _field(name: str, feature: Feature, depth: int) -> pa.Field:
    return pa.field(name, _type(name, feature, depth))


def _type(name: str, feature: Feature, depth: int) -> pa.DataType:
    kind, shape = _item_type(name, feature), feature.shape
    if None in shape[1:]:
        raise LossError(
            f"column {name!r} is {feature.describe()}: to_arrow() has lists that vary in their first dimension only",
            feature="shape",
            tensor=name,
            hints=[Hint("columns", purpose="to leave it out", of="open_records")],
        )
    if math.prod(n or 1 for n in shape) > _MOST_ITEMS:
        raise LossError(
            f"column {name!r} is {feature.describe()}: a list of Arrow's has at most {_MOST_ITEMS} values",
            feature="shape",
            tensor=name,
            hints=[Hint("columns", purpose="to leave it out", of="open_records")],
        )
    kind = pa.large_list(_fixed_type(kind, shape[1:])) if None in shape else _fixed_type(kind, shape)
    for _ in range(depth):
        kind = pa.large_list(kind)
    return kind


def _item_type(name: str, feature: Feature) -> pa.DataType:
    if feature.dtype in ("text", "bytes"):
        return pa.large_string() if feature.dtype == "text" else pa.large_binary()
    arrow = dtypes.get(feature.dtype).arrow
    if arrow is None:
        raise LossError(
            f"column {name!r} is {feature.dtype}, which Arrow has no type for",
            feature="dtype",
            tensor=name,
            hints=[Hint("columns", purpose="to leave it out", of="open_records")],
        )
    return arrow_write.primitive(feature.dtype)


def _fixed_type(item: pa.DataType, shape: tuple[int | None, ...]) -> pa.DataType:
    known = [n or 0 for n in shape]
    numeric = pa.types.is_floating(item) or pa.types.is_integer(item)
    if len(known) > 1 and numeric and all(known):
        return pa.fixed_shape_tensor(item, known)
    for n in reversed(known):
        item = pa.list_(item, n)
    return item


# ---- arrays ----------------------------------------------------------------------


def _array(value: Tensor | Strings | Ragged, present: Array | None, feature: Feature) -> pa.Array:
    missing = None if present is None or feature.default is not None else ~present
    if missing is not None and feature.optional and feature.size is not None:
        return _with_gaps(value, feature, missing)
    splits, values = (value.splits, value.values) if isinstance(value, Ragged) else ((), value)
    if isinstance(value, Ragged) and value.shapes is not None:  # TensorProtos, each with a shape of its own
        inner = tuple(n or 0 for n in feature.shape[1:])
        items, splits = _items(values, (-1, *inner)), (splits[0] // max(math.prod(inner), 1),)
    else:
        items = _items(values, values.shape)
    for level, offsets in reversed(list(enumerate(splits))):
        mask = pa.array(missing) if missing is not None and level == 0 else None
        items = pa.LargeListArray.from_arrays(pa.array(offsets), items, mask=mask)
    return items


def _items(values: Tensor | Strings, shape: tuple[int, ...]) -> pa.Array:
    """An array whose items have the shape[1:]."""
    flat, _ = arrow_write.flat(values, {}, True)
    inner = shape[1:]
    count = shape[0] if shape[0] >= 0 else len(flat) // max(math.prod(inner), 1)
    kind = _fixed_type(flat.type, inner)
    if isinstance(kind, pa.FixedShapeTensorType):
        storage = pa.FixedSizeListArray.from_arrays(flat, kind.storage_type.list_size)
        return pa.ExtensionArray.from_storage(kind, storage)
    for axis in reversed(range(len(inner))):
        rows = count * math.prod(inner[:axis])
        flat = pa.Array.from_buffers(pa.list_(flat.type, inner[axis]), rows, [None], children=[flat])
    return flat


def _with_gaps(value: Tensor | Strings | Ragged, feature: Feature, missing: Array) -> pa.Array:
    """An optional feature of fixed shape: what is there, spread over the records by index."""
    assert isinstance(value, Ragged)
    there = int(np.count_nonzero(~missing))
    items = _items(value.values, (there, *(n or 0 for n in feature.shape)))
    return items.take(pa.array(np.cumsum(~missing) - 1, mask=missing))
