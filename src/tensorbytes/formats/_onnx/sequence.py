"""ONNX's sequences and optional values: lists of tensors, as its test data and its runtimes save them.

SequenceProto  name 1, elem_type 2, tensor_values 3, sparse_tensor_values 4, sequence_values 5, map_values 6,
               optional_values 7: those of the field elem_type + 2
OptionalProto  the same with one value, or none

The bytes of an optional tensor are those of a sequence of one: nothing in them tells which it is. They are read as a
list, or with optional=True as the value, None where there is none. The name is the document's, onnx.name.
"""

from __future__ import annotations

from tensorbytes._wire import proto
from tensorbytes.errors import LIMITS, CorruptError, LimitError, UnsupportedError
from tensorbytes.formats._onnx.model import sparse
from tensorbytes.formats._onnx.tensor import Context, leaf, parse
from tensorbytes.tensor import Tensor
from tensorbytes.tree import Document, Leaf, Path

_TENSOR, _SPARSE, _SEQUENCE, _MAP, _OPTIONAL = range(1, 6)
_NOTHING = Tensor("bool", (0,), b"")


def decode(data: memoryview, context: Context, optional: bool) -> Document:
    """The list, or the optional value, of a message."""
    leaves: list[Leaf] = []
    name = _take(data, 0, len(data), context, (), optional, leaves)
    return Document(leaves, {"onnx.name": name} if name else {})


def _take(
    data: memoryview, start: int, end: int, context: Context, path: Path, optional: bool, leaves: list[Leaf]
) -> str:
    """Add the leaves of a message that stands at a path; its name."""
    if len(path) > min(context.budget.max_depth, LIMITS.max_depth):
        raise LimitError("sequences nested too deeply", at=start)
    name, kind = "", 0
    values: list[proto.Field] = []
    for item in proto.fields(data, start, end):
        if item.number == 1:
            name = proto.text(data, item)
        elif item.number == 2:
            kind = proto.number(item)
        else:
            proto.delimited(data, item)
            context.budget.tensors(1, item.at)
            values.append(item)
    if kind > _OPTIONAL or any(item.number != kind + 2 for item in values):
        raise CorruptError(f"a sequence of the kind {kind} with values of others", at=start)
    if values and kind == _MAP:
        raise UnsupportedError("a sequence of maps (MapProto), which is not read here", at=start)
    if optional and len(values) > 1:
        raise CorruptError(f"an optional value that is {len(values)} values", at=start)
    if not values:
        leaves.append(Leaf(_NOTHING, path, "none" if optional else "list", at=start))
    for index, item in enumerate(values):
        place = path if optional else (*path, ("list", index))
        if kind == _TENSOR:
            leaves.append(leaf(data, parse(data, item.start, item.end, context.budget), context, place))
        elif kind == _SPARSE:
            leaves.append(sparse(data, item, context, place))
        else:
            _take(data, item.start, item.end, context, place, kind == _OPTIONAL, leaves)
    return name
