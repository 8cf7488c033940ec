"""ONNX models: the weights that a ModelProto holds.

ModelProto   ir_version 1, producer_name 2, producer_version 3, domain 4, model_version 5,
             doc_string 6, graph 7, opset_import 8 {domain 1, version 2}, metadata_props 14
GraphProto   node 1 {op_type 4}, name 2, initializer 5 (TensorProto), sparse_initializer 15
SparseTensorProto  values 1 (named), indices 2 (int64 [nnz, rank], or [nnz] counted in C order), dims 3
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from tensorbytes._wire import proto
from tensorbytes.deferred import Deferred
from tensorbytes.errors import CorruptError, LimitError
from tensorbytes.formats._onnx.tensor import (
    STRING,
    Context,
    TensorFields,
    described,
    leaf,
    parse,
    put_entry,
    put_text,
    take_dims,
    tensor,
)
from tensorbytes.formats._tensorproto import check_shape
from tensorbytes.tensor import Array, InvalidValueError, Sparse, Tensor
from tensorbytes.tree import Document, Leaf, Path

_TEXTS = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "doc_string"}
_NUMBERS = {1: "ir_version", 5: "model_version"}


def decode(data: memoryview, context: Context) -> Document:
    """The initializers of a model's graph, under their names."""
    own: dict[str, str] = {}  # a field that comes twice counts with its last value
    meta: dict[str, str] = {}
    graphs = []
    opsets: dict[str, list[str]] = {}  # some exporters import one twice
    for item in proto.fields(data, 0, len(data)):
        if item.number in _TEXTS:
            own[f"onnx.{_TEXTS[item.number]}"] = proto.text(data, item)
        elif item.number in _NUMBERS:
            own[f"onnx.{_NUMBERS[item.number]}"] = str(_signed(proto.number(item)))
        elif item.number == 7:
            proto.delimited(data, item)
            context.budget.objects(1, "graphs", item.at, 400)
            graphs.append(item)
        elif item.number == 8:
            context.budget.objects(1, "opsets", item.at, 400)
            key, version = _opset(data, item)
            if version not in opsets.setdefault(key, []):
                opsets[key].append(version)
        elif item.number == 14:
            put_entry(meta, data, item, context.budget)
    if not graphs:
        raise CorruptError("neither a TensorProto (no data_type) nor a model (no graph)", at=0)
    leaves: dict[str, Leaf] = {}
    for graph in graphs:  # protobuf takes several for one, in pieces
        _take_graph(data, graph, context, leaves, own)
    for key, text in [*((key, ", ".join(versions)) for key, versions in opsets.items()), *meta.items()]:
        put_text(own, key, text, 0)
    if not leaves:
        constants = sum(_constants(data, graph) for graph in graphs)
        if constants:
            own.setdefault("onnx.remark", f"constants inside nodes are not read: {constants}")
        return Document([Leaf(Tensor("bool", (0,), b""), kind="dict")], own)
    return Document(list(leaves.values()), own)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _opset(data: memoryview, item: proto.Field) -> tuple[str, str]:
    domain, version = "", 0
    proto.delimited(data, item)
    for part in proto.fields(data, item.start, item.end):
        if part.number == 1:
            domain = proto.text(data, part)
        elif part.number == 2:
            version = _signed(proto.number(part))
    return f"onnx.opset.{domain}" if domain not in ("", "ai.onnx") else "onnx.opset", str(version)


def _take_graph(
    data: memoryview, graph: proto.Field, context: Context, leaves: dict[str, Leaf], meta: dict[str, str]
) -> None:
    for item in proto.fields(data, graph.start, graph.end):
        if item.number == 2:
            meta["onnx.graph"] = proto.text(data, item)
        if item.number not in (5, 15):
            continue
        proto.delimited(data, item)
        context.budget.tensors(1, item.at)
        if item.number == 5:
            message = parse(data, item.start, item.end, context.budget)
            found = leaf(data, message, context, (("key", _name(message, leaves)),))
        else:
            found = sparse(data, item, context)
            _check_name(str(found.path[0][1]), leaves, item.at)
        leaves[str(found.path[0][1])] = found
        if len(leaves) > context.budget.max_tensors:
            raise LimitError(f"over {context.budget.max_tensors} initializers", at=item.at)


def _constants(data: memoryview, graph: proto.Field) -> int:
    """How many nodes of a graph are constants."""
    nodes = (item for item in proto.fields(data, graph.start, graph.end) if item.number == 1)
    return sum(any(_is_constant(data, part) for part in _within(data, node)) for node in nodes)


def _within(data: memoryview, item: proto.Field) -> Iterator[proto.Field]:
    proto.delimited(data, item)
    return proto.fields(data, item.start, item.end)


def _is_constant(data: memoryview, part: proto.Field) -> bool:
    return part.number == 4 and bytes(proto.delimited(data, part)) == b"Constant"


def _name(message: TensorFields, leaves: Mapping[str, Leaf]) -> str:
    if not message.name:
        raise CorruptError("an initializer without a name", at=message.at)
    _check_name(message.name, leaves, message.at)
    return message.name


def _check_name(name: str, leaves: Mapping[str, Leaf], at: int) -> None:
    if name in leaves:
        raise CorruptError(f"{name!r} is stored twice", at=at)


def sparse(data: memoryview, whole_field: proto.Field, context: Context, path: Path | None = None) -> Leaf:
    """The value of a SparseTensorProto: at a path, or under its own name, which it must have then."""
    at, budget = whole_field.at, context.budget
    parts: dict[int, TensorFields] = {}
    dims: list[int] = []
    for item in proto.fields(data, whole_field.start, whole_field.end):
        if item.number in (1, 2):
            proto.delimited(data, item)
            parts[item.number] = parse(data, item.start, item.end, budget)
        elif item.number == 3:
            take_dims(dims, data, item, budget)
    if 1 not in parts or parts[1].code == STRING:
        raise CorruptError("a sparse initializer without numbers for values", at=at)
    name = _name(parts[1], {}) if path is None else parts[1].name or ""
    row, held = described(parts[1], budget)
    shape = check_shape(dims, row.itemsize, budget, at)

    def fetch() -> Sparse:
        eager = context._replace(lazy=False)
        values = tensor(data, parts[1], eager)[0]
        indices = tensor(data, parts[2], eager)[0] if 2 in parts else Tensor("int64", (0,), b"")
        assert isinstance(values, Tensor)
        assert isinstance(indices, Tensor)
        if indices.dtype != "int64" or len(values.shape) != 1 or len(indices.shape) not in (1, 2):
            raise CorruptError(
                f"{name!r}: sparse values of shape {list(values.shape)} with {indices.dtype} indices "
                f"of shape {list(indices.shape)}",
                at=at,
            )
        places = indices.numpy()
        if len(indices.shape) == 1:
            budget.charge(places.size * len(shape) * 8, f"the indices of {name!r}", at)
            places = _unravelled(places, shape, name, at)
        elif indices.shape[1] != len(shape):
            raise CorruptError(f"{name!r}: indices of {indices.shape[1]} columns in {list(shape)}", at=at)
        try:
            return Sparse("coo", shape, (places,), values)
        except InvalidValueError as error:
            raise CorruptError(f"{name!r}: {error.fault}", at=at) from None

    size = math.prod(held) * (row.itemsize + 8 * len(shape))
    later = Deferred("sparse", row.name, shape, fetch, size)
    return Leaf(later if context.lazy else later.load(), (("key", name),) if path is None else path, at=at)


def _unravelled(flat: Array, shape: tuple[int, ...], name: str, at: int) -> Array:
    """Positions in C order as one index for each axis."""
    count = math.prod(shape)
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >= count):
        raise CorruptError(f"{name!r}: a sparse index lies outside the shape {list(shape)}", at=at)
    places = np.empty((flat.size, len(shape)), np.int64)
    rest = flat
    for axis in range(len(shape) - 1, -1, -1):
        rest, places[:, axis] = np.divmod(rest, max(shape[axis], 1))
    return places
