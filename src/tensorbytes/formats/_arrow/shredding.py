"""Arrays of any Arrow type taken apart: flat columns and masks, as nested.py has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError
from tensorbytes.formats._arrow import decimals
from tensorbytes.formats._arrow.nested import (
    HOLLOW,
    INTERVAL,
    ColumnValue,
    Keys,
    Masks,
    bits_of,
    child_names,
    content_type,
    flat_columns,
    is_list,
    is_text,
    leaf_type,
    offsets_buffer,
)
from tensorbytes.formats._arrow.read import strings
from tensorbytes.formats._arrow.words import has_dictionary
from tensorbytes.formats._arrow.write import arrow, room
from tensorbytes.tensor import Array, Ragged, Strings, Tensor
from tensorbytes.typing import bytes_view

_NONE = np.zeros(1, np.int64)


class Shredded(NamedTuple):
    """Flat columns by their keys, and masks of them and of what they stand in."""

    columns: dict[Keys, ColumnValue]
    masks: Masks


def shared(buffer: Any) -> memoryview | None:
    """No buffer may be written to: others have it as well."""
    return None


class _Job(NamedTuple):
    """What is read, and with what."""

    out: Shredded
    budget: Budget
    where: str
    wanted: Keys | None
    writable: Callable[[Any], memoryview | None]

    def leads_to(self, keys: Keys) -> bool:
        return self.wanted is None or self.wanted[: len(keys)] == keys


def shred(
    array: Any,
    budget: Budget,
    where: str,
    wanted: Keys | None = None,
    writable: Callable[[Any], memoryview | None] = shared,
) -> Shredded:
    """The flat columns of a validated array: all of them, or the one of some keys with the masks on its way.

    `writable` gives the bytes of buffers that nobody else has: what is missing is made zero in place there.
    """
    out = Shredded({}, {})
    _shred(array, (), [], None, _Job(out, budget, where, wanted, writable))
    return out


def by_leaf(array: Any) -> list[Any]:
    """For each leaf of an array's type, the structs that lead to it and nothing else."""
    pa = arrow()
    kind = array.type
    if not pa.types.is_struct(kind) or not kind.num_fields or array.offset:
        return [array] * len(flat_columns(kind))
    found = []
    for number, (name, field) in enumerate(zip(child_names(kind), kind, strict=True)):
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


def _shred(array: Any, keys: Keys, levels: list[Level], alive: Array | None, job: _Job) -> None:
    """`alive` tells which elements stand below nothing that is missing: the others count as there, and as zero."""
    types, budget, where = arrow().types, job.budget, job.where
    array = _decoded(array, budget, where)
    kind = array.type
    if array.null_count:  # what is there, with what stands above it; an array of nulls takes no bytes by itself
        budget.copy(4 * len(array), f"the mask of column {where!r}", 0)
    own = _there(array, where)
    if own is not None:
        mask = own if alive is None else own | ~alive
        if alive is None or not mask.all():
            job.out.masks[keys, len(levels)] = mask
    there = alive if own is None else own if alive is None else own & alive
    if types.is_struct(kind) and kind.num_fields:
        for number, name in enumerate(child_names(kind)):
            if job.leads_to((*keys, name)):
                _shred(array.field(number), (*keys, name), levels, there, job)
    elif types.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        if there is not None:
            budget.copy(len(array) * size, f"the mask of column {where!r}", 0)
        inside = None if there is None else np.repeat(there, size)
        _shred(items, keys, [*levels, Level(len(array), None, size)], inside, job)
    elif types.is_map(kind):
        splits, entries = _list_items(array, there, budget, where)
        for number, name in enumerate(("key", "value")):
            if job.leads_to((*keys, name)):
                _shred(entries.field(number), (*keys, name), [*levels, Level(len(array), splits)], None, job)
    elif is_list(kind):
        splits, items = _list_items(array, there, budget, where)
        _shred(items, keys, [*levels, Level(len(array), splits)], None, job)
    elif job.wanted is None or job.wanted == keys:
        job.out.columns[keys] = _in_levels(_leaf_values(array, there, job), levels)


def _there(array: Any, where: str) -> Array | None:
    """Which elements are not null; None if all are."""
    if not array.null_count:
        return None
    bits = array.buffers()[0]
    if bits is None:  # nulls alone, which have no bits
        return ~np.asarray(array.is_null())
    found: Array = _unpacked(memoryview(bits), array.offset, len(array)).view(bool)
    if np.count_nonzero(found) != len(array) - array.null_count:
        raise CorruptError(f"column {where!r}: its bits show another number of nulls than {array.null_count}", at=0)
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
        gone = _nulls(array.indices, where)
        return _decoded(_taken(array.dictionary, numbers, gone, budget, where), budget, where)
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
        hidden = _gone_of(array.indices, order, gone, where)
        numbers = np.asarray(array.indices.fill_null(0))[order]
        return _taken(array.dictionary, numbers, hidden, budget, where)
    if not kind.num_fields:
        return _taken_leaves(array, order, gone, budget, where)
    budget.copy(4 * count, f"column {where!r}", 0)
    hidden = _gone_of(array, order, gone, where)
    valid = None if hidden is None else bits_of(~hidden)
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
    offsets = offsets_buffer(splits, "<i8" if types.is_large_list(whole) else "<i4")
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


def _gone_of(array: Any, order: Array, gone: Array | None, where: str) -> Array | None:
    """Which elements of some numbers are null, or gone before."""
    own = _nulls(array, where)
    if own is None:
        return gone
    return own[order] if gone is None else own[order] | gone


def _nulls(array: Any, where: str) -> Array | None:
    there = _there(array, where)
    return None if there is None else ~there


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


def _list_items(array: Any, there: Array | None, budget: Budget, where: str) -> tuple[Array, Any]:
    """(row splits from 0 on, the items that they speak of); lists that are not there have none."""
    types = arrow().types
    if types.is_list_view(array.type) or types.is_large_list_view(array.type):
        return _view_items(array, there, budget, where)
    wide = types.is_large_list(array.type)
    kind = np.dtype("<i8" if wide else "<i4")
    values = array.values if not types.is_map(array.type) else _entries(array)
    if not len(array):
        return np.zeros(1, kind), values.slice(0, 0)
    offsets = np.frombuffer(_buffer_of(array, 1), kind)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    values = values.slice(first, last - first)
    offsets = offsets - offsets[0] if first else offsets
    if there is None:
        return offsets, values
    lengths = np.diff(offsets)
    if not _wire.missing_zero(lengths, there, kind.itemsize):
        budget.copy(len(values) * 9, f"column {where!r}", 0)
        values = _taken(values, np.flatnonzero(np.repeat(there, lengths)), None, budget, where)
        lengths[~there] = 0
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(kind)
    return offsets, values


def _view_items(array: Any, there: Array | None, budget: Budget, where: str) -> tuple[Array, Any]:
    """The same of list views, whose lists may stand anywhere among the items."""
    wide = np.int64 if arrow().types.is_large_list_view(array.type) else np.int32
    starts, lengths, values = _placed_items(array)
    if there is not None:
        lengths = np.where(there, lengths, 0)
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


def _leaf_values(array: Any, there: Array | None, job: _Job) -> Tensor | Strings:
    """The elements of an array without children; those that are not there are zero or empty."""
    kind, count, budget, where = array.type, len(array), job.budget, job.where
    leaf = leaf_type(content_type(kind))
    if leaf.dtype == HOLLOW:
        return Tensor("uint8", (count, 0), b"")
    if leaf.dtype in ("text", "bytes"):
        return _string_values(array, there, job)
    if leaf.dtype == "bool":
        budget.copy(count, f"column {where!r}", 0)
        flags = _unpacked(_buffer_of(array, 1), array.offset, count)
        return Tensor("bool", (count,), flags if there is None else np.bitwise_and(flags, there, out=flags))
    width = kind.bit_width // 8
    if leaf.inner:  # months, days and nanoseconds
        budget.copy(24 * count, f"column {where!r}", 0)
        parts = np.frombuffer(_data_of(array, width), INTERVAL)
        whole = np.stack([parts[name].astype("<i8") for name in INTERVAL.names or ()], axis=1)
        elements: Array = np.ascontiguousarray(whole)
    elif width == 4 and leaf.unit:  # days, or a time of the day
        budget.copy(8 * count, f"column {where!r}", 0)
        elements = room(count, "<i8")
        np.copyto(elements, np.frombuffer(_data_of(array, width), "<i4"))
    else:
        return Tensor(leaf.dtype, (count,), _cleared(array, width, there, job), origin=leaf.origin)
    data = bytes_view(elements)
    if there is not None and count:
        _wire.missing_clear(data, there, len(data) // count)
    return Tensor(leaf.dtype, (count, *leaf.inner), data, origin=leaf.origin)


def _data_of(array: Any, width: int) -> memoryview:
    """The bytes of elements of one width."""
    return _buffer_of(array, 1)[array.offset * width : (array.offset + len(array)) * width]


def _cleared(array: Any, width: int, there: Array | None, job: _Job) -> memoryview:
    """The same, where what is missing is zero: most writers leave it so, and of the others a copy is rarely needed."""
    data = _data_of(array, width)
    if there is None or not width:
        return data
    own = job.writable(array.buffers()[1])
    if own is not None:
        _wire.missing_clear(own[array.offset * width :][: len(data)], there, width)
    elif not _wire.missing_zero(data, there, width):
        job.budget.copy(len(data), f"column {job.where!r}", 0)
        copy = room(len(data), "u1")
        copy[:] = np.frombuffer(data, np.uint8)
        data = bytes_view(copy)
        _wire.missing_clear(data, there, width)
    return data


def _string_values(array: Any, there: Array | None, job: _Job) -> Strings:
    types, budget, where = arrow().types, job.budget, job.where
    kind, count = array.type, len(array)
    if types.is_fixed_size_binary(kind):
        width = kind.byte_width
        budget.copy(8 * (count + 1), f"column {where!r}", 0)
        return Strings((count,), np.arange(count + 1, dtype=np.int64) * width, _cleared(array, width, there, job))
    if types.is_decimal(kind):
        budget.copy(count * (kind.precision + 16), f"column {where!r}", 0)
        return decimals.to_text(array, there)
    found = strings(array, budget, where)
    if there is None:
        return found
    lengths = np.diff(found.offsets)
    if _wire.missing_zero(lengths, there, lengths.itemsize):
        return found
    budget.copy(len(found.data) + 8 * count, f"column {where!r}", 0)
    data = np.frombuffer(found.data, np.uint8)[np.repeat(there, lengths)]
    lengths[~there] = 0
    return Strings((count,), np.concatenate(([0], np.cumsum(lengths))), bytes_view(data), found.encoding)


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
        for number, name in enumerate(child_names(kind)):
            yield from ordered_words(array.field(number), (*keys, name), level)
    elif pa.types.is_map(kind):
        yield from ordered_words(array.keys, (*keys, "key"), level + 1)
        yield from ordered_words(array.items, (*keys, "value"), level + 1)
    else:
        yield from ordered_words(array.values, keys, level + 1)
