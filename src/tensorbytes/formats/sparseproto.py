"""The string tensors of tf.io.serialize_sparse and tf.io.serialize_many_sparse.

A sparse tensor is three serialized TensorProtos: indices int64 [nnz, rank], values
[nnz], dense shape int64 [rank]. As a file, the three strings (or [N, 3] of them, for
`many=True`) are themselves stored as one serialized string tensor, which
tf.io.parse_tensor reads.

`triple` and `from_triple`, `many` and `from_many` give and take the bare strings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorbytes._wire import varint
from tensorbytes.errors import LIMITS, CorruptError, Limits, LossError, UnsupportedError
from tensorbytes.formats import Format, Options, _record, _tensorproto, only_value
from tensorbytes.tensor import Array, InvalidValueError, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf


class SparseProto(Format):
    name = "sparseproto"
    suffixes = (".sparseproto",)
    write_options = frozenset({"many"})

    def sniff(self, head: bytes, size: int) -> bool:
        # a string tensor of shape [3] or [n, 3] whose first string is an int64 TensorProto
        if not head.startswith(b"\x08\x07\x12"):
            return False
        shape_end = 4 + head[3] if len(head) > 3 else 0
        first = head[shape_end : shape_end + 16]
        return head[shape_end - 2 : shape_end] == b"\x08\x03" and first[:1] == b"\x42" and b"\x08\x09\x12" in first

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        value = only_value(self, document, allow | {"torch.coalesced", "tf.dense_shape"})
        if not isinstance(value, Sparse):
            kind = type(value).__name__.lower()
            raise LossError(f"format 'sparseproto' holds sparse tensors, not {kind}; use 'tensorproto'", feature=kind)
        if value.layout != "coo" and "layout" not in allow:
            raise LossError(
                f"format 'sparseproto' holds coordinates, not {value.layout}; pass allow={{'layout'}} to convert",
                feature="layout",
            )
        as_rows = options.get("many", False)
        rows = many(value) if as_rows else [triple(value)]
        shape = (len(rows), 3) if as_rows else (3,)
        strings = Strings.from_items((item for row in rows for item in row), shape, "bytes")
        return [_tensorproto.head(7, shape), _tensorproto.body(strings)[1]]

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        outer = _record.decode(data, 0, len(data), limits).leaf.value
        if not isinstance(outer, Strings) or outer.shape[-1:] != (3,) or len(outer.shape) > 2:
            raise CorruptError("not a serialized sparse tensor: expected strings of shape [3] or [n, 3]", at=0)
        strings = outer.items()
        if len(outer.shape) == 1:
            value: Value = from_triple(strings, limits)
        else:
            value = from_many([strings[i : i + 3] for i in range(0, len(strings), 3)], limits)
        yield Document([Leaf(value)])


def triple(value: Sparse) -> list[bytes]:
    """The three strings of tf.io.serialize_sparse."""
    value = value.to_coo()
    indices = np.ascontiguousarray(value.parts[0], np.int64)
    if len(value.values.shape) != 1:
        raise LossError("TensorFlow's sparse tensors hold single values, not rows of them; use 'tb'", feature="hybrid")
    shape = np.array(value.shape, np.int64)
    return [
        _message(Tensor("int64", indices.shape, indices)),
        _message(value.values),
        _message(Tensor("int64", shape.shape, shape)),
    ]


def _message(value: Tensor | Strings) -> bytes:
    """One TensorProto; strings go into tensor_content here, all lengths first, as TensorFlow does it."""
    code = _tensorproto.code_of(value)
    if code >= 1000:
        raise LossError(f"TensorFlow has no dtype {value.dtype}; use 'tb'", feature="dtype")  # type: ignore[union-attr]
    head = _tensorproto.head(code, value.shape)
    if isinstance(value, Strings):
        content = b"".join(map(varint, np.diff(value.offsets).tolist())) + bytes(value.data)
        return head + (_tensorproto.CONTENT_TAG + varint(len(content)) + content if content else b"")
    tag, content = _tensorproto.body(value)
    return head + tag + bytes(content)


def many(value: Sparse) -> list[list[bytes]]:
    """The strings of tf.io.serialize_many_sparse, three for each index of axis 0."""
    value = value.to_coo()
    (indices,) = value.parts
    if len(value.shape) < 2 or indices.shape[1] != len(value.shape):
        raise UnsupportedError(f"serialize_many_sparse wants a rank over 1, got shape {value.shape}")
    order = np.argsort(indices[:, 0], kind="stable")
    bounds = np.searchsorted(indices[order, 0], np.arange(value.shape[0] + 1))
    rows = []
    for start, stop in itertools.pairwise(bounds):
        picked = order[start:stop]
        row = Sparse("coo", value.shape[1:], (indices[picked, 1:],), _pick(value.values, picked))
        rows.append(triple(row))
    return rows


def _pick(values: Tensor | Strings, picked: Array) -> Tensor | Strings:
    if isinstance(values, Strings):
        items = values.items()
        return Strings.from_items([items[i] for i in picked], (len(picked),), values.encoding)
    return Tensor(values.dtype, (len(picked),), np.ascontiguousarray(values.bits()[picked]).reshape(-1))


def from_triple(strings: Sequence[bytes], limits: Limits = LIMITS) -> Sparse:
    """The sparse tensor of three strings of tf.io.serialize_sparse."""
    parts = []
    for which, raw in zip(("indices", "values", "shape"), strings, strict=True):
        try:
            parts.append(_record.decode(memoryview(raw), 0, len(raw), limits).leaf.value)
        except CorruptError as error:
            raise CorruptError(f"sparse {which}: {error.what}", at=error.at) from None
    indices, values, shape = parts
    if not isinstance(indices, Tensor) or not isinstance(shape, Tensor) or not isinstance(values, Tensor | Strings):
        raise CorruptError("a sparse tensor's indices and shape must be dense int64 tensors", at=0)
    if indices.dtype != "int64" or shape.dtype != "int64" or len(shape.shape) != 1:
        raise CorruptError(f"sparse indices and shape must be int64, got {indices.dtype} and {shape.dtype}", at=0)
    try:
        return Sparse("coo", tuple(shape.numpy().tolist()), (indices.numpy(),), values)
    except InvalidValueError as error:
        raise CorruptError(str(error), at=0) from None


def from_many(rows: Sequence[Sequence[bytes]], limits: Limits = LIMITS) -> Sparse:
    """One sparse tensor of the rows of tf.io.serialize_many_sparse; the largest row sets the shape."""
    if not rows:
        raise CorruptError("no rows: the rank and dtype of the sparse tensor can't be told", at=0)
    parts = [from_triple(row, limits) for row in rows]
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
