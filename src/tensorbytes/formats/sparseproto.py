"""The string tensors of tf.io.serialize_sparse and tf.io.serialize_many_sparse.

A sparse tensor is three serialized TensorProtos: indices int64 [nnz, rank], values
[nnz], dense shape int64 [rank]. As a file, the three strings (or [N, 3] of them, for
`many=True`) are themselves stored as one serialized string tensor, which
tf.io.parse_tensor reads.

`triple` and `from_triple`, `many` and `from_many` give and take the bare strings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import varint
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, USE_TB, CorruptError, Hint, Limits, LossError, UnsupportedError, UsageError
from tensorbytes.formats import Format, Option, Options, _record, _tensorproto, known_options, only_value
from tensorbytes.formats._extension import MEANINGFUL
from tensorbytes.formats._message import alone
from tensorbytes.tensor import Array, InvalidValueError, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf

# One of the strings: a buffer, and where in it the string starts and ends.
_Piece: TypeAlias = tuple[memoryview, int, int]


class SparseProto(Format):
    name = "sparseproto"
    label = "sparse tensor of TensorFlow"
    words = "the strings of tf.io.serialize_sparse"
    suffixes = (".sparseproto",)
    read_by = "protobuf"
    holds = "one sparse tensor"
    holds_one = True
    nameless = True
    write_options = known_options(many=Option(bool, "True for the rows of tf.io.serialize_many_sparse", False))
    slices = "no"

    def sniff(self, head: bytes, size: int) -> bool:
        # a string tensor of shape [3] or [n, 3] whose first string is an int64 TensorProto
        if not head.startswith(b"\x08\x07\x12"):
            return False
        shape_end = 4 + head[3] if len(head) > 3 else 0
        first = head[shape_end : shape_end + 16]
        return head[shape_end - 2 : shape_end] == b"\x08\x03" and first[:1] == b"\x42" and b"\x08\x09\x12" in first

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        value, as_rows = self._held(document, allow, options), options.get("many", False)
        rows = many(value) if as_rows else [triple(value)]
        shape = (len(rows), 3) if as_rows else (3,)
        strings = Strings.from_items((item for row in rows for item in row), shape, "bytes")
        return [_tensorproto.head(7, shape), _tensorproto.body(strings)[1]]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        self._held(document, allow, options)

    def _held(self, document: Document, allow: frozenset[str], options: Options) -> Sparse:
        """The value as coordinates, once they are what TensorFlow can have."""
        value = only_value(self, document, allow | {"torch.coalesced", "tf.dense_shape"})
        if not isinstance(value, Sparse):
            kind = type(value).__name__.lower()
            raise LossError(
                f"format 'sparseproto' holds sparse tensors, not {kind}",
                feature=kind,
                hints=[Hint("format", "tensorproto", of="save")],
            )
        if value.layout != "coo" and "layout" not in allow:
            raise LossError(
                f"format 'sparseproto' holds coordinates, not {value.layout}",
                feature="layout",
                hints=[Hint("allow", {"layout"}, "to convert")],
            )
        if not options.get("many", False):
            return _coordinates(value)
        found = _in_rows(value)
        if not found.shape[0]:
            raise LossError(
                "no rows: neither rank nor dtype would be stored",
                feature="rows",
                hints=[Hint("many", False, of="save")],
            )
        return _coordinates(found)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        message = _tensorproto.parse(data, 0, len(data), budget)
        if any(item.number < MEANINGFUL for item in message.extra):
            # Fields of ours: a layout, a name, metadata, which TensorFlow never writes.
            yield alone(data, budget, lazy)
            return
        strings = _tensorproto.nested(data, message, budget)
        rank = len(message.shape)
        fits = message.code == dtypes.STRING_CODE and message.shape[-1:] == [3] and 1 <= rank <= 2
        if not fits or message.has_content or message.typed or math.prod(message.shape) != len(strings):
            raise CorruptError("not a serialized sparse tensor: expected strings of shape [3] or [n, 3]", at=0)
        pieces = [(data, item.start, item.end) for item in strings]
        if rank == 1:
            value: Value = _from_pieces(pieces, budget)
        else:
            value = _from_rows([pieces[i : i + 3] for i in range(0, len(pieces), 3)], budget)
        yield Document([Leaf(value)])


def triple(value: Sparse) -> list[bytes]:
    """The three strings of tf.io.serialize_sparse."""
    if not isinstance(value, Sparse):
        raise UsageError(
            expected="a tensorbytes.Sparse",
            got=type(value).__name__,
            hints=[Hint(purpose="tb.loads(tb.dumps(x), to='tensor') makes one")],
        )
    value = _coordinates(value)
    indices = np.ascontiguousarray(value.parts[0], np.int64)
    shape = np.array(value.shape, np.int64)
    return [
        _message(Tensor("int64", indices.shape, indices)),
        _message(value.values),
        _message(Tensor("int64", shape.shape, shape)),
    ]


def _coordinates(value: Sparse) -> Sparse:
    """The value in TensorFlow's layout, once it has single values of a dtype that TensorFlow knows."""
    value = value.to_coo()
    values = value.values
    if len(values.shape) != 1:
        raise LossError(
            "TensorFlow's sparse tensors hold single values, not rows of them", feature="hybrid", hints=[USE_TB]
        )
    if isinstance(values, Tensor) and not dtypes.get(values.dtype).in_tensorflow:
        raise LossError(f"TensorFlow has no dtype {values.dtype}", feature="dtype", hints=[USE_TB])
    return value


def _message(value: Tensor | Strings) -> bytes:
    """One TensorProto; strings go into tensor_content here, all lengths first, as TensorFlow does it."""
    head = _tensorproto.head(_tensorproto.code_of(value), value.shape)
    if isinstance(value, Strings):
        content = b"".join(map(varint, np.diff(value.offsets).tolist())) + bytes(value.data)
        return head + (_tensorproto.CONTENT_TAG + varint(len(content)) + content if content else b"")
    tag, content = _tensorproto.body(value)
    return head + tag + bytes(content)


def many(value: Sparse) -> list[list[bytes]]:
    """The strings of tf.io.serialize_many_sparse, three for each index of axis 0."""
    value = _in_rows(value)
    (indices,) = value.parts
    bounds = np.searchsorted(indices[:, 0], np.arange(value.shape[0] + 1)).tolist()
    return [
        triple(Sparse("coo", value.shape[1:], (indices[start:stop, 1:],), _part(value.values, start, stop)))
        for start, stop in itertools.pairwise(bounds)
    ]


def _in_rows(value: Sparse) -> Sparse:
    """The value as coordinates that can be cut along axis 0."""
    value = value.to_coo()
    (indices,) = value.parts
    if len(value.shape) < 2 or indices.shape[1] != len(value.shape):
        raise UnsupportedError(f"serialize_many_sparse wants a rank over 1, got shape {value.shape}")
    _check_rising(indices)
    return value


def _check_rising(indices: Array) -> None:
    """TensorFlow cuts rows only out of indices that are sorted and name no place twice."""
    step = np.diff(indices, axis=0)
    first = np.take_along_axis(step, (step != 0).argmax(axis=1)[:, None], axis=1) if len(step) else step
    if (first <= 0).any():
        wrong = int((first[:, 0] <= 0).argmax()) + 1
        raise UnsupportedError(
            f"serialize_many_sparse wants sorted indices, none twice: entry {wrong} is {indices[wrong].tolist()} "
            f"after {indices[wrong - 1].tolist()}",
            hints=[Hint(purpose="sort them (coalesce) first"), Hint("many", False, of="save")],
        )


def _part(values: Tensor | Strings, start: int, stop: int) -> Tensor | Strings:
    """Values number `start` to `stop`, which are one run of the same bytes."""
    if isinstance(values, Strings):
        offsets = values.offsets[start : stop + 1]
        data = values.data[int(offsets[0]) : int(offsets[-1])]
        return Strings((stop - start,), offsets - offsets[0], data, values.encoding)
    size = dtypes.get(values.dtype).itemsize
    return Tensor(values.dtype, (stop - start,), values.data[start * size : stop * size])


def from_triple(strings: Sequence[bytes], limits: Limits = LIMITS) -> Sparse:
    """The sparse tensor of three strings of tf.io.serialize_sparse."""
    return _from_pieces([(memoryview(raw), 0, len(raw)) for raw in strings], Budget(limits, sum(map(len, strings))))


def from_many(rows: Sequence[Sequence[bytes]], limits: Limits = LIMITS) -> Sparse:
    """One sparse tensor of the rows of tf.io.serialize_many_sparse; the largest row sets the shape."""
    size = sum(len(raw) for row in rows for raw in row)
    return _from_rows([[(memoryview(raw), 0, len(raw)) for raw in row] for row in rows], Budget(limits, size))


def _from_pieces(pieces: Sequence[_Piece], budget: Budget) -> Sparse:
    if len(pieces) != 3:
        raise CorruptError(f"a sparse tensor is three strings, got {len(pieces)}", at=0)
    parts = []
    for which, (data, start, end) in zip(("indices", "values", "shape"), pieces, strict=True):
        try:
            record = _record.decode(data, start, end, budget, nested=True)
        except CorruptError as error:
            raise CorruptError(f"sparse {which}: {error.what}", at=error.at) from None
        parts.append(record.leaf.value)
    indices, values, shape = parts
    at = pieces[0][1]
    if not isinstance(indices, Tensor) or not isinstance(shape, Tensor) or not isinstance(values, Tensor | Strings):
        raise CorruptError("a sparse tensor's indices and shape must be dense int64 tensors", at=at)
    if indices.dtype != "int64" or shape.dtype != "int64":
        raise CorruptError(f"sparse indices and shape must be int64, got {indices.dtype} and {shape.dtype}", at=at)
    if len(shape.shape) != 1 or shape.shape[0] > budget.max_rank or indices.shape[1:] != shape.shape:
        raise CorruptError(f"sparse indices of shape {indices.shape} with a dense shape of {shape.shape}", at=at)
    try:
        return Sparse("coo", tuple(shape.numpy().tolist()), (indices.numpy(),), values)
    except InvalidValueError as error:
        raise CorruptError(error.fault, at=at) from None


def _from_rows(rows: Sequence[Sequence[_Piece]], budget: Budget) -> Sparse:
    if not rows:
        raise CorruptError("no rows: the rank and dtype of the sparse tensor can't be told", at=0)
    parts = [_from_pieces(row, budget) for row in rows]
    first = parts[0]
    if any(len(p.shape) != len(first.shape) for p in parts) or len({_dtype(p.values) for p in parts}) != 1:
        raise CorruptError("rows of different rank or dtype", at=0)
    numbered = [np.column_stack((np.full(len(p.parts[0]), i, np.int64), p.parts[0])) for i, p in enumerate(parts)]
    shape = (len(parts), *(max(sizes) for sizes in zip(*(p.shape for p in parts), strict=True)))
    indices = np.concatenate(numbered)
    if isinstance(first.values, Strings):
        items = [item for p in parts for item in p.values.items()]  # type: ignore[union-attr]
        return Sparse("coo", shape, (indices,), Strings.from_items(items, (len(items),), "bytes"))
    data = b"".join(p.values.data for p in parts)
    return Sparse("coo", shape, (indices,), Tensor(first.values.dtype, (len(indices),), data))


def _dtype(values: Tensor | Strings) -> str:
    return values.dtype if isinstance(values, Tensor) else "string"


FORMAT = SparseProto()
