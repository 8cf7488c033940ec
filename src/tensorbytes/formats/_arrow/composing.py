"""Flat columns and masks put together: arrays of any Arrow type, as nested.py has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import Hint, LossError
from tensorbytes.formats._arrow import decimals
from tensorbytes.formats._arrow.nested import (
    INTERVAL,
    ColumnValue,
    Keys,
    LeafType,
    bits_of,
    child_names,
    is_list,
    leaf_type,
    list_size,
    misfit,
    offsets_buffer,
)
from tensorbytes.formats._arrow.words import NO_WORDS, Words, WordsError, findable, indexed
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.tensor import Array, Ragged, Strings, Tensor
from tensorbytes.typing import bytes_view


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
    if is_list(kind):
        own = [] if pa.types.is_fixed_size_list(kind) else [array.buffers()[1]]
        return pa.Array.from_buffers(kind, len(array), [valid, *own], children=[array.values])
    return pa.Array.from_buffers(kind, len(array), [valid, *array.buffers()[1:]])


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
                    raise misfit(keys, f"lists of level {level}, {count} of them")
                if first is not None and first is not found and not np.array_equal(first, found):
                    raise misfit(keys, "lists of the same lengths as those of the columns beside it")
                first = found if first is None else first
        if first is None:
            raise misfit(keys, "a column")
        if size is not None and (np.diff(first) != size).any():
            raise misfit(keys, f"lists of {size} elements")
        return first

    def elements(self, keys: Keys, leaf: LeafType, count: int) -> Tensor | Strings:
        """All elements of a column, one after another."""
        value = self.columns.get(keys)
        values = value.values if isinstance(value, Ragged) else value
        strings = leaf.dtype in ("text", "bytes")
        if values is None or isinstance(values, Strings) != strings:
            raise misfit(keys, leaf.dtype)
        if isinstance(values, Strings):
            if len(values.offsets) - 1 != count:
                raise misfit(keys, f"{count} strings")
            return values
        # A format without times has integers.
        dtype = "int64" if leaf.unit and values.dtype == "int64" and not values.origin else leaf.stored
        if leaf.unit and dtype != "int64" and values.origin.get("numpy.dtype") != leaf.origin["numpy.dtype"]:
            raise misfit(keys, f"{leaf.dtype} in {leaf.unit}")
        if values.dtype != dtype or values.nbytes != count * math.prod(leaf.inner) * dtypes.get(dtype).itemsize:
            raise misfit(keys, f"{count} elements of {leaf.dtype}")
        return values

    def validity(self, keys: Keys, level: int, count: int) -> Any:
        """The bits that tell which elements there are; None if all are."""
        mask = self.masks.get((keys, level))
        if mask is None or mask.all():
            return None
        if len(mask) != count:
            raise misfit(keys, f"a mask of {count} elements")
        return bits_of(mask)

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


def _splits_of(value: ColumnValue, level: int, count: int) -> Array | None:
    ragged = len(value.splits) if isinstance(value, Ragged) else 0
    if isinstance(value, Ragged) and level < ragged:
        return value.splits[level]
    inner = (value.values if isinstance(value, Ragged) else value).shape[1:]
    axis = level - ragged
    return np.arange(count + 1, dtype=np.int64) * inner[axis] if axis < len(inner) else None


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
            for name, field in zip(child_names(kind), kind, strict=True)
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
        return pa.Array.from_buffers(kind, count, [valid, offsets_buffer(splits, "<i4")], children=[child])
    if is_list(kind):
        size = list_size(kind)
        splits = columns.splits(keys, level, size, count)
        below = None if size is None else columns.below(keys, level, dead)
        inside = None if below is None or size is None else np.repeat(below, size)
        items = _compose(kind.value_type, keys, level + 1, int(splits[-1]), columns, inside)
        if size is not None:
            return pa.Array.from_buffers(kind, count, [valid], children=[items])
        wide = "<i8" if "large" in str(kind)[:5] else "<i4"
        if types.is_list_view(kind) or types.is_large_list_view(kind):
            buffers = [valid, offsets_buffer(splits[:-1], wide), offsets_buffer(np.diff(splits), wide)]
            return pa.Array.from_buffers(kind, count, buffers, children=[items])
        return pa.Array.from_buffers(kind, count, [valid, offsets_buffer(splits, wide)], children=[items])
    elements = columns.elements(keys, leaf_type(kind), count)
    if isinstance(elements, Strings):
        gone = columns.below(keys, level, dead)
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
        made = np.empty(count, INTERVAL)
        for number, name in enumerate(INTERVAL.names or ()):
            made[name] = _narrowed(parts[:, number], INTERVAL[name])
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
    """`there`: which elements matter, where some don't: what is null, or stands below what is."""
    pa = arrow()
    types = pa.types
    matter = None if there is None else bits_of(there)
    if types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(_fixed(kind, elements, matter, count))])
    text = types.is_decimal(kind) or "string" in str(kind)
    if text != (elements.encoding == "utf-8"):
        raise LossError(f"{elements.encoding} strings for {kind}", feature="type")
    if types.is_decimal(kind):
        digits = decimals.from_text(elements, there, kind)
        if digits is not None:
            return pa.Array.from_buffers(kind, count, [valid, digits])
    if elements.offsets.dtype == np.int32:
        offsets, plain = elements.offsets, pa.string() if text else pa.binary()
    else:
        offsets, plain = np.ascontiguousarray(elements.offsets, "<i8"), pa.large_string() if text else pa.large_binary()
    buffers = [matter, pa.py_buffer(bytes_view(np.ascontiguousarray(offsets))), pa.py_buffer(elements.data)]
    array = pa.Array.from_buffers(plain, count, buffers)
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
