"""TensorFlow's first format of checkpoints, of before its version 1.0: one sorted table (sstable.py) that holds it all.

    ""           SavedTensorSlices {meta 1 {tensor 1 {name 1, shape 2, type 3, slice 4 {extent 1 {start 1, length 2}}},
                 versions 2 {producer 1, min_consumer 2}}}
    each slice   SavedTensorSlices {data 2 {name 1, slice 2, data 3}}, under the key of bundle.slice_key: the values
                 are a TensorProto without dtype and shape, in the field of values that its dtype has

A variable that was not partitioned is one slice. One whose slices are in several files (-00000-of-00002) is listed,
and refused: each file says what it holds, and no file which others there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import CorruptError, Hint, LimitError, UnsupportedError
from tensorbytes.formats import _tensorproto, _typed
from tensorbytes.formats._checkpoint import bundle, slices, sstable
from tensorbytes.formats._checkpoint.bundle import BundleEntry, Extent
from tensorbytes.formats._checkpoint.sstable import Item
from tensorbytes.formats._parts import Part
from tensorbytes.tensor import Strings, Tensor

# The only version there is.
_VERSION = 1
_META, _DATA = 1, 2


def is_table(head: bytes, size: int) -> bool:
    """Whether a file starts like such a table: with an empty key, and a message of nothing but a description."""
    try:
        view = memoryview(head)
        length, at = proto.read_varint(view, 2, len(head))
        inner, start = proto.read_varint(view, at + 1, len(head))
    except (CorruptError, IndexError):
        return False
    described = head[:2] == b"\0\0" and head[at : at + 1] == b"\x0a" and start + inner == at + length
    return described and at + length < size and (not inner or head[start : start + 1] in (b"\x0a", b"\x12"))


def read(data: memoryview, budget: Budget, lazy: bool) -> list[Part]:
    """Every tensor of a table, unread where `lazy` says so."""
    items = sstable.read(data, budget)
    if not items or items[0].key:
        raise CorruptError("the table has no description of what it holds", at=0)
    if bytes(items[0].value[:1]) == b"\x08":  # the header of a bundle
        raise UnsupportedError(
            "a checkpoint's index alone, without its data",
            hints=[Hint(operation="load", arguments=("path",), purpose="takes its prefix, its .index or its folder")],
        )
    stored = {item.key: item for item in items[1:]}
    entries = _entries(items[0], budget)
    parts = [Part(entry.name, _value(entry, stored, budget), {}, entry.at) for entry in entries]
    if stored:
        raise CorruptError("values of a tensor that is not described", at=min(item.at for item in stored.values()))
    return parts if lazy else [part._replace(value=part.value.load()) for part in parts]  # type: ignore[arg-type]


# ---- what it says of itself -------------------------------------------------


def _entries(first: Item, budget: Budget) -> list[BundleEntry]:
    entries: dict[str, BundleEntry] = {}
    for field in _fields(first.value, None, first.at):
        if field.number != _META:
            continue
        for item in _fields(first.value, field, first.at):
            if item.number == 1:
                budget.tensors(1, first.at)
                entry = _entry(first.value, item, budget, first.at)
                if entry.name in entries:
                    raise CorruptError(f"{entry.name!r} is described twice", at=first.at)
                entries[entry.name] = entry
            elif item.number == 2:
                _check_version(first.value, item, first.at)
    return list(entries.values())


def _fields(data: memoryview, whole: proto.Field | None, at: int) -> Sequence[proto.Field]:
    """The fields of a message, or of a field of one. Faults are told by where the entry of the table stands."""
    try:
        if whole is None:
            return list(proto.fields(data, 0, len(data)))
        proto.delimited(data, whole)
        return list(proto.fields(data, whole.start, whole.end))
    except CorruptError as error:
        raise error.replaced(at=at) from None


def _check_version(data: memoryview, whole: proto.Field, at: int) -> None:
    for item in _fields(data, whole, at):
        if item.number == 2 and proto.number(item) > _VERSION:
            raise UnsupportedError(f"a checkpoint for readers of version {proto.number(item)} or later", at=at)


def _entry(data: memoryview, whole: proto.Field, budget: Budget, at: int) -> BundleEntry:
    entry = BundleEntry("", 0, (), 0, 0, 0, 0, at)
    shape: list[int] = []
    try:
        for item in _fields(data, whole, at):
            if item.number == 1:
                entry.name = proto.text(data, item)
            elif item.number == 2:
                _tensorproto.parse_shape(shape, data, item)
            elif item.number == 3:
                entry.code = proto.number(item)
            elif item.number == 4:
                budget.objects(1, "slices", at, 400)
                entry.slices.append(bundle.read_slice(data, item))
    except CorruptError as error:
        raise error.replaced(at=at) from None
    entry.row = dtypes.BY_CODE.get(entry.code) if entry.code < 1000 else None
    entry.shape = _tensorproto.check_shape(shape, entry.row.itemsize if entry.row else 8, budget, at)
    return entry


# ---- values -----------------------------------------------------------------


def _value(entry: BundleEntry, stored: dict[bytes, Item], budget: Budget) -> Tensor | Strings | Deferred:
    """The tensor of an entry, whose slices are taken out of what is stored."""
    keys = [bundle.slice_key(entry.name.encode(), extents) for extents in entry.slices]
    found = [stored.pop(key, None) for key in keys]
    items = [item for item in found if item is not None]
    if not entry.readable:
        return _refused(entry, entry.refusal())
    if len(items) != len(found) or not items:
        raise CorruptError(f"{entry.name!r}: a slice of it is missing", at=entry.at)
    shapes = [_slice_shape(entry, extents) for extents in entry.slices]
    if shapes == [entry.shape]:
        fetch = partial(_decode, entry, entry.shape, items[0], budget)
        return _later(entry, fetch)
    pieces = [
        BundleEntry(entry.name, entry.code, shape, 0, 0, 0, 0, item.at, [], entry.row)
        for shape, item in zip(shapes, items, strict=True)
    ]
    try:
        pieces = slices.check(entry, pieces)
    except CorruptError as error:
        if sum(math.prod(shape) for shape in shapes) >= math.prod(entry.shape):
            raise
        hint = Hint(purpose="join them with tf.train.load_checkpoint, by a pattern of their names, and save them")
        what = f"{entry.name!r} is partitioned: other slices of it are in other files, or missing"
        return _refused(entry, UnsupportedError(what, at=error.at, tensor=entry.name, hints=[hint]))

    def join() -> Tensor:
        values = [_decode(entry, shape, item, budget) for shape, item in zip(shapes, items, strict=True)]
        return slices.joined(entry, pieces, values)

    return _later(entry, join)


def _slice_shape(entry: BundleEntry, extents: tuple[Extent, ...]) -> tuple[int, ...]:
    if len(extents) != len(entry.shape):
        raise CorruptError(
            f"{entry.name!r}: a slice of {len(extents)} axes of a shape {list(entry.shape)}", at=entry.at
        )
    return tuple(n if length == -1 else max(length, 0) for (_, length), n in zip(extents, entry.shape, strict=True))


def _later(entry: BundleEntry, fetch: Any) -> Deferred:
    if entry.is_strings:
        return Deferred("strings", "string", entry.shape, fetch)
    assert entry.row is not None
    return Deferred("tensor", entry.row.name, entry.shape, fetch, dtypes.nbytes(entry.row, entry.shape))


def _refused(entry: BundleEntry, error: UnsupportedError) -> Deferred:
    """Listed, but refused once it is asked for."""

    def refuse(index: Any = None) -> Tensor:
        raise error

    name = entry.row.name if entry.row else "string" if entry.is_strings else f"unknown({entry.code})"
    return Deferred("tensor", name, entry.shape, refuse, 0, refuse)


def _decode(entry: BundleEntry, shape: tuple[int, ...], item: Item, budget: Budget) -> Tensor | Strings:
    """The values of a slice, as many as its shape takes: here none stands for several."""
    data = item.value
    try:
        whole = _values_field(entry, item)
        message = _tensorproto.parse(data, whole.start, whole.end, budget.renewed(len(data)))
        if message.code not in (0, entry.code) or message.shape or message.content is not None:
            raise CorruptError(f"{entry.name!r}: values that have a dtype or a shape of their own", at=0)
        if entry.is_strings:
            _tensorproto.refuse_typed(message)
            offsets, raw = message.strings or (np.zeros(1, np.int64), b"")
            _check_count(entry, shape, len(offsets) - 1)
            return Strings(shape, offsets, raw)
        assert entry.row is not None
        if message.strings is not None:
            raise CorruptError(f"{entry.name!r}: string values in a tensor of {entry.row.name}", at=0)
        values = _typed.values(data, message.typed, entry.row)
        _check_count(entry, shape, len(values))
        return Tensor(entry.row.name, shape, np.ascontiguousarray(values).reshape(-1))
    except (CorruptError, LimitError) as error:
        raise error.replaced(at=item.at) from None


def _check_count(entry: BundleEntry, shape: tuple[int, ...], count: int) -> None:
    if count != math.prod(shape):
        raise CorruptError(f"{entry.name!r}: {count} values for a shape of {list(shape)}", at=0)


def _values_field(entry: BundleEntry, item: Item) -> proto.Field:
    """Where the values of an entry of the table stand, which must be of this tensor."""
    found, name = None, ""
    for saved in _fields(item.value, None, item.at):
        for part in _fields(item.value, saved, item.at) if saved.number == _DATA else ():
            if part.number == 1:
                name = proto.text(item.value, part)
            elif part.number == 3:
                proto.delimited(item.value, part)
                found = part
    if name != entry.name or found is None:
        raise CorruptError(f"{entry.name!r}: its values are those of {name!r}, or missing", at=item.at)
    return found
