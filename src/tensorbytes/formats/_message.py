"""One message of spec/tensorbytes.proto by itself: what the formats without a frame share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tensorbytes import dtypes
from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.errors import USE_TB, CorruptError, LossError
from tensorbytes.formats import Format, _record
from tensorbytes.formats._extension import Place
from tensorbytes.formats._record import Record
from tensorbytes.formats._storing import Storing
from tensorbytes.tensor import Tensor
from tensorbytes.tree import Document, Leaf

# No protobuf runtime reads a message of 2 GiB or more.
MAX_BYTES = (1 << 31) - 1
_EXTENSION = range(1000, 1501)


def encode(chosen: Format, document: Document, part: int, alias: int | None, storing: Storing) -> tuple[int, list[Any]]:
    """(size, pieces) of the message of leaf number `part`, without the padding and checksum that a frame wants.

    `alias` is the number of an earlier leaf that has the same value.
    """
    leaf, place = document.leaves[part], Place.of(document, part)
    if alias is not None:
        pieces = _record.encode_alias(leaf, place, alias, document.leaves[alias].name)
    else:
        pieces = _record.encode(leaf, place, None, storing)
    size = _record.size_of(pieces)
    _check_size(chosen, leaf, size)
    return size, pieces


def check(chosen: Format, document: Document, aliases: Mapping[int, int], storing: Storing) -> None:
    """Raise what `encode` raises of all leaves, unless it shows when they are compressed how large they are."""
    for part, leaf in enumerate(document.leaves):
        if part in aliases:
            _record.encode_alias(leaf, Place.of(document, part), aliases[part], document.leaves[aliases[part]].name)
        else:
            size = _record.bare_size(leaf, Place.of(document, part))
            if not storing.changes:
                _check_size(chosen, leaf, size)


def _check_size(chosen: Format, leaf: Leaf, size: int) -> None:
    if size > MAX_BYTES:
        what = "a tensor" if leaf.name is None else f"the tensor {leaf.name!r}"
        raise LossError(
            f"format {chosen.name!r}: {what} makes a message of {size} bytes, and protobuf ends at 2 GiB",
            feature="size",
            hints=[USE_TB],
        )


def decode(data: memoryview, start: int, end: int, budget: Budget, lazy: bool, dequantize: bool = True) -> Record:
    """The message in data[start:end]. A lazy one leaves content alone until it is loaded."""
    record = _record.decode(data, start, end, budget, check_values=not lazy, dequantize=dequantize)
    value = record.leaf.value
    if not lazy or not isinstance(value, Tensor) or (value.dtype != "bool" and dtypes.get(value.dtype).bits >= 8):
        return record
    return record._replace(leaf=record.leaf._replace(check=_check_later(data, start, end, budget)))


def _check_later(data: memoryview, start: int, end: int, budget: Budget) -> Callable[[], None]:
    def check() -> None:
        _record.decode(data, start, end, budget.renewed(end - start))

    return check


def alone(data: memoryview, budget: Budget, lazy: bool) -> Document:
    """A message read as a TensorProto with fields of ours; one of several is the leaf that it holds."""
    record = decode(data, 0, len(data), budget, lazy)
    return Document([record.leaf], record.place.document, origin=record.place.origin)


class Look(NamedTuple):
    """The first fields of a message, as far as they tell what it is."""

    code: int  # the dtype
    number: int  # of the field after dtype and shape, 0 where the message ends there

    @property
    def extended(self) -> bool:
        """Whether TensorFlow's TensorProto lacks what it has."""
        return self.code >= 1000 or self.number in _EXTENSION


def look(head: bytes, start: int, end: int) -> Look | None:
    """What stands at `start`, if it begins like a message that ends at `end`: dtype, a known one, then a shape."""
    data, end = memoryview(head), min(end, len(head))
    try:
        kind, at = proto.read_field(data, start, end)
        if kind is None or (kind.number, kind.wire) != (1, proto.VARINT):
            return None
        if kind.start not in dtypes.BY_CODE and kind.start != dtypes.STRING_CODE:
            return None
        shape, at = proto.read_field(data, at, end)
        if shape is None or (shape.number, shape.wire) != (2, proto.DELIMITED):
            return None
        for dim in proto.fields(data, shape.start, shape.end):
            if (dim.number, dim.wire) not in ((2, proto.DELIMITED), (3, proto.VARINT)):
                return None
        return Look(kind.start, proto.read_varint(data, at, end)[0] >> 3 if at < end else 0)
    except CorruptError:
        return None
