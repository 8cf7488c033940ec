"""Arrow arrays as neutral values, the rows as their leading axis. Memory is shared where the layout is ours.

Types are looked at first (`_arrow_types.form`); arrays must have been validated before
they come here. Nulls have
no place in a tensor and are refused. Of extension types only those of tensors are known;
the storage of others is never taken for the value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, Hint, UnsupportedError
from tensorbytes.formats._arrow.nested import is_text, tensor_cells
from tensorbytes.formats._arrow.types import VIEWS, Form, is_struct, permutation, type_form
from tensorbytes.formats._arrow.write import arrow, carrier, room
from tensorbytes.tensor import Array, InvalidValueError, Ragged, Strings, Tensor, amended, check_utf8, fitting_strings
from tensorbytes.typing import bytes_view

ColumnValue: TypeAlias = Tensor | Strings | Ragged


# ---- arrays --------------------------------------------------------------------


def validate(array: Any) -> None:
    """Check what a file could lie about: lengths, offsets, indices, text."""
    # The offsets and the text of strings are checked when they become Strings, and all text at once takes less time.
    array.validate(full=not is_text(array.type) or str(array.type) in VIEWS)


def value(array: Any, own: Mapping[str, Any], wanted: Form, budget: Budget, where: str) -> ColumnValue:
    """The rows of a validated array, of the form that its type and its note promised."""
    try:
        if "shapes" in own or wanted.ragged:
            found = _with_shapes(array, own, budget, where)
        else:
            found = _value(array, budget, where)
        if "cell" in own:
            found = _reshape_cells(found, tuple(own["cell"]))
        if "splits" in own and isinstance(found, Ragged):
            found = replace(found, splits=tuple(x.astype(n) for x, n in zip(found.splits, own["splits"], strict=False)))
        if wanted.base == "tensor":
            found = _retyped(found, wanted.dtype)
    except InvalidValueError as error:
        raise CorruptError(f"column {where!r}: {error.fault}", at=0) from None
    return amended(found, None, wanted.meta, wanted.origin) if wanted.origin else found


def fit_note(found: ColumnValue, kind: Any, own: Mapping[str, Any], wanted: Form) -> ColumnValue:
    """A column that was read by its Arrow type alone, as its note has it."""
    cells = tensor_cells(kind)
    if cells is not None:
        if permutation(cells[1]) != tuple(range(len(cells[1].shape))):
            raise UnsupportedError("tensors with permuted axes, some of which are null: permute them first")
        found = _shape_cells(found, tuple(cells[1].shape))
    if "cell" in own:
        found = _reshape_cells(found, tuple(own["cell"]))
    if "splits" in own and isinstance(found, Ragged):
        found = replace(found, splits=tuple(x.astype(n) for x, n in zip(found.splits, own["splits"], strict=False)))
    if wanted.base == "tensor":
        found = _retyped(found, wanted.dtype)
    return amended(found, None, wanted.meta, wanted.origin) if wanted.origin else found


def stored_order(value: Any, kind: Any) -> ColumnValue:
    """A column as the storage of its type has it: the tensors of a column of tensors are lists there."""
    found: ColumnValue = value
    if not isinstance(kind, arrow().FixedShapeTensorType) or not isinstance(found, Tensor | Strings):
        return found
    order = permutation(kind)
    if isinstance(found, Strings):
        return Strings((found.shape[0], math.prod(found.shape[1:])), found.offsets, found.data, found.encoding)
    if order != tuple(range(len(order))) and len(found.shape) == len(order) + 1:
        elements: Array = np.ndarray(found.shape, f"V{dtypes.get(found.dtype).itemsize}", found.data)
        back = [order.index(axis) for axis in range(len(order))]
        moved = elements.transpose(0, *(axis + 1 for axis in back))
        found = Tensor(found.dtype, moved.shape, moved.tobytes(), origin=found.origin)
    return Tensor(found.dtype, (found.shape[0], math.prod(found.shape[1:])), found.data, origin=found.origin)


def _value(array: Any, budget: Budget, where: str) -> ColumnValue:
    pa = arrow()
    kind, count = array.type, len(array)
    if isinstance(kind, pa.FixedShapeTensorType):
        return _fixed_tensors(array, budget, where)
    _refuse_nulls(array, where)
    if pa.types.is_dictionary(kind):
        return _value(_undictionaried(array, budget, where), budget, where)
    if pa.types.is_fixed_size_list(kind):
        items = _value(array.values.slice(array.offset * kind.list_size, count * kind.list_size), budget, where)
        return _grouped(items, count, kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        splits, inside = _splits(array)
        items = _value(inside, budget, where)
        if isinstance(items, Ragged):
            return Ragged(items.values, (splits, *items.splits))
        return Ragged(items, (splits,))
    if pa.types.is_fixed_size_binary(kind):
        budget.copy(8 * (count + 1), f"column {where!r}", 0)
        data = _bytes(array, 1)[array.offset * kind.byte_width : (array.offset + count) * kind.byte_width]
        return Strings((count,), np.arange(count + 1, dtype=np.int64) * kind.byte_width, data)
    if is_text(kind):
        return strings(array, budget, where)
    return _scalars(array, budget, where)


def _refuse_nulls(array: Any, where: str) -> None:
    if array.null_count:
        raise UnsupportedError(
            f"column {where!r} has {array.null_count} nulls, which tensors can't hold",
            tensor=where,
            hints=[
                Hint(purpose="fill them first (pyarrow.compute.fill_null)"),
                Hint(purpose="drop those rows"),
                Hint(purpose="leave the column out"),
            ],
        )


def _bytes(array: Any, number: int) -> memoryview:
    found = array.buffers()[number]
    return memoryview(b"") if found is None else memoryview(found)


def _scalars(array: Any, budget: Budget, where: str) -> Tensor:
    held, start, count = type_form(array.type, where), array.offset, len(array)
    if held.dtype == "bool":
        budget.copy(count, f"column {where!r}", 0)
        bits = np.frombuffer(_bytes(array, 1), np.uint8)[start // 8 : (start + count + 7) // 8]
        first = start % 8
        return Tensor("bool", (count,), np.unpackbits(bits, count=first + count, bitorder="little")[first:])
    width = array.type.bit_width // 8
    data = _bytes(array, 1)[start * width : (start + count) * width]
    if held.dtype == "datetime64" and width == 4:  # days
        budget.copy(8 * count, f"column {where!r}", 0)
        data = bytes_view(np.frombuffer(data, "<i4").astype("<i8"))
    return Tensor(held.dtype, (count,), data)


def strings(array: Any, budget: Budget, where: str) -> Strings:
    """The strings of an array: text or bytes of any length, nulls as what stands in their place."""
    pa = arrow()
    kind, count = array.type, len(array)
    if str(kind) in VIEWS:
        held = _bytes(array, 1)[16 * array.offset : 16 * (array.offset + count)]
        lengths = np.frombuffer(held, "<i4").reshape(-1, 4)[:, 0]
        budget.copy(int(lengths.clip(0).sum(dtype=np.int64)), f"column {where!r}", 0)
        array = array.cast(getattr(pa, VIEWS[str(kind)])())
    encoding = "utf-8" if str(array.type).endswith("string") else "bytes"
    if not count:
        return Strings((0,), np.zeros(1, np.int64), b"", encoding)
    width = 8 if str(array.type).startswith("large") else 4
    held = _bytes(array, 1)[width * array.offset : width * (array.offset + count + 1)]
    offsets: Array = np.frombuffer(held, f"<i{width}")
    first, last, data = int(offsets[0]), int(offsets[-1]), _bytes(array, 2)
    rise = len(offsets) == count + 1 and _wire.offsets_rise(held, width)
    if not rise or not 0 <= first <= last <= len(data):
        raise CorruptError(f"column {where!r}: string offsets must rise within {len(data)} bytes", at=0)
    if first:
        budget.copy(len(held), f"column {where!r}", 0)
        offsets = np.subtract(offsets, first, out=room(len(offsets), f"<i{width}"))
    data = data[first:last]
    if encoding == "utf-8":
        try:
            check_utf8(data, offsets)
        except InvalidValueError as error:
            raise CorruptError(f"column {where!r}: {error.fault}", at=0) from None
    return fitting_strings((count,), offsets, data, encoding)


def _splits(array: Any) -> tuple[Array, Any]:
    """(row splits from 0 on, the items that they speak of)"""
    wide = arrow().types.is_large_list(array.type)
    if not len(array):
        return np.zeros(1, np.int64 if wide else np.int32), array.values.slice(0, 0)
    offsets = np.frombuffer(_bytes(array, 1), "<i8" if wide else "<i4")[array.offset : array.offset + len(array) + 1]
    first = int(offsets[0])
    return offsets - offsets[0] if first else offsets, array.values.slice(first, int(offsets[-1]) - first)


def items_of(array: Any, where: str) -> Any:
    """What stands in a list of one row."""
    _refuse_nulls(array, where)
    return _splits(array)[1]


def _grouped(items: ColumnValue, count: int, size: int) -> ColumnValue:
    if isinstance(items, Tensor):
        return Tensor(items.dtype, (count, size, *items.shape[1:]), items.data)
    if isinstance(items, Strings):
        return Strings((count, size, *items.shape[1:]), items.offsets, items.data, items.encoding)
    return Ragged(items.values, (np.arange(count + 1, dtype=np.int64) * size, *items.splits))


def _fixed_tensors(array: Any, budget: Budget, where: str) -> ColumnValue:
    kind = array.type
    _refuse_nulls(array, where)
    storage = array.storage
    _refuse_nulls(storage, where)
    size, count = kind.storage_type.list_size, len(storage)
    items = _value(storage.values.slice(storage.offset * size, count * size), budget, where)
    shape, order = (count, *kind.shape), permutation(kind)
    if isinstance(items, Strings):
        if order != tuple(range(len(order))):
            raise UnsupportedError(f"column {where!r}: strings with permuted axes: permute them first")
        return Strings(shape, items.offsets, items.data, items.encoding)
    if not isinstance(items, Tensor) or len(items.shape) != 1:
        raise UnsupportedError(f"column {where!r}: tensors of {kind.value_type}")
    if order == tuple(range(len(order))):
        return Tensor(items.dtype, shape, items.data)
    budget.copy(items.nbytes, f"column {where!r}", 0)
    bits = np.ndarray(shape, f"V{dtypes.get(items.dtype).itemsize}", items.data)
    moved = bits.transpose(0, *(axis + 1 for axis in order))
    return Tensor(items.dtype, moved.shape, moved.tobytes())


def _undictionaried(array: Any, budget: Budget, where: str) -> Any:
    """The values that indices stand for, once they are known to fit."""
    pa = arrow()
    words, indices = array.dictionary, array.indices
    _refuse_nulls(words, where)
    _refuse_nulls(indices, where)
    if type_form(words.type, where).base == "strings" and not pa.types.is_fixed_size_binary(words.type):
        text = str(words.type).replace("_view", "").removeprefix("large_")
        if str(words.type) in VIEWS:
            _value(words, budget, where)  # counts what a view makes of itself
        words = words.cast(getattr(pa, f"large_{text}")())
        lengths = np.asarray(pa.compute.binary_length(words))
        size = int(lengths[np.asarray(indices)].sum(dtype=np.int64)) + 8 * len(indices)
        budget.copy(2 * size, f"column {where!r}", 0)  # as Arrow has them, then as we do
    else:
        budget.copy(len(indices) * max(words.type.bit_width // 8, 1), f"column {where!r}", 0)
    return words.take(indices)


def _with_shapes(array: Any, own: Mapping[str, Any], budget: Budget, where: str) -> ColumnValue:
    """Rows with shapes of their own: the data and the shape of each."""
    pa = arrow()
    storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    _refuse_nulls(storage, where)
    dtype = own.get("shapes", "int32")
    if not is_struct(storage.type):  # without axes
        found = _value(storage, budget, where)
        if not isinstance(found, Ragged):
            raise InvalidValueError("row shapes over something that is not a list")
        return Ragged(found.values, found.splits, np.zeros((len(found), 0), dtype))
    data, shapes = storage.field("data"), _value(storage.field("shape"), budget, where)
    found = _value(data, budget, where)
    if not isinstance(found, Ragged) or not isinstance(shapes, Tensor):
        raise InvalidValueError("row shapes over something that is not a list")
    pairs = found.values.shape[1:]
    values = found.values if not pairs or isinstance(found.values, Strings) else _flat_pairs(found.values)
    return Ragged(values, found.splits, shapes.numpy().astype(dtype, copy=False))


def _flat_pairs(values: Tensor) -> Tensor:
    """Complex numbers, whose dtype the note will give back."""
    names = {"float16": "complex32", "uint16": "bcomplex32", "float32": "complex64", "float64": "complex128"}
    if values.shape[1:] != (2,) or values.dtype not in names:
        raise InvalidValueError(f"row shapes over values of shape {list(values.shape)}")
    return Tensor(names[values.dtype], values.shape[:1], values.data)


def _reshape_cells(found: ColumnValue, cell: tuple[int, ...]) -> ColumnValue:
    """Give the innermost lists their shape: those of fixed size, or those of splits that all are as long."""
    values = found.values if isinstance(found, Ragged) else found
    splits = found.splits if isinstance(found, Ragged) else ()
    count = values.shape[0]
    if len(values.shape) == 1:
        if not splits or (np.diff(splits[-1]) != math.prod(cell)).any():
            raise InvalidValueError(f"a list that is not a tensor of {list(cell)}")
        count, splits = len(splits[-1]) - 1, splits[:-1]
    shape = (count, *cell)
    made: Tensor | Strings
    if isinstance(values, Tensor):
        made = Tensor(values.dtype, shape, values.data)
    else:
        made = Strings(shape, values.offsets, values.data, values.encoding)
    return Ragged(made, splits) if splits else made


def _shape_cells(found: ColumnValue, cell: tuple[int, ...]) -> ColumnValue:
    """Give the innermost lists, which are all of one size, their shape."""
    values = found.values if isinstance(found, Ragged) else found
    shape = (*values.shape[:-1], *cell)
    made: Tensor | Strings
    if isinstance(values, Tensor):
        made = Tensor(values.dtype, shape, values.data, origin=values.origin)
    else:
        made = Strings(shape, values.offsets, values.data, values.encoding)
    return Ragged(made, found.splits) if isinstance(found, Ragged) else made


def _retyped(found: ColumnValue, dtype: str) -> ColumnValue:
    if isinstance(found, Ragged):
        values = _retyped(found.values, dtype)
        assert isinstance(values, Tensor)
        return replace(found, values=values)
    assert isinstance(found, Tensor)
    if found.dtype == dtype:
        return found
    pairs = carrier(dtype)[1]
    return Tensor(dtype, found.shape[:-1] if pairs else found.shape, found.data)


# ---- one after the other ---------------------------------------------------------


def joined(pieces: Sequence[ColumnValue]) -> ColumnValue:
    """The rows of several batches, one after the other."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if isinstance(first, Tensor):
        tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
        shape = (sum(piece.shape[0] for piece in tensors), *first.shape[1:])
        return Tensor(
            first.dtype, shape, b"".join(piece.data for piece in tensors), meta=first.meta, origin=first.origin
        )
    if isinstance(first, Strings):
        strings = [piece for piece in pieces if isinstance(piece, Strings)]
        shape = (sum(piece.shape[0] for piece in strings), *first.shape[1:])
        offsets = _chained([piece.offsets for piece in strings])
        return Strings(
            shape,
            offsets,
            b"".join(piece.data for piece in strings),
            first.encoding,
            meta=first.meta,
            origin=first.origin,
        )
    rows = [piece for piece in pieces if isinstance(piece, Ragged)]
    values = joined([piece.values for piece in rows])
    assert not isinstance(values, Ragged)
    splits = tuple(_chained(level) for level in zip(*(piece.splits for piece in rows), strict=True))
    shapes = (
        None if first.shapes is None else np.concatenate([piece.shapes for piece in rows if piece.shapes is not None])
    )
    return Ragged(values, splits, shapes, meta=first.meta, origin=first.origin)


def _chained(levels: Sequence[Array]) -> Array:
    """Running offsets, one list after the other, in wider integers if they outgrow their own."""
    starts = np.cumsum([0, *(int(level[-1]) for level in levels)])
    kind = levels[0].dtype if starts[-1] <= np.iinfo(levels[0].dtype).max else np.dtype(np.int64)
    parts = [levels[0][:1].astype(kind)]
    parts += [(level[1:] + start).astype(kind) for level, start in zip(levels, starts, strict=False)]
    return np.concatenate(parts)
