"""Telling ONNX's three kinds of file apart from each other and from TensorFlow's, by their first bytes.

Protobuf has no magic. All three begin with field 1, and what follows tells them apart:

    ONNX TensorProto          08 dim ... 10 data_type       (or 10 data_type alone: a scalar)
    ONNX ModelProto           08 ir_version 12 text ... 3a graph
    ONNX SequenceProto        0a name 10 kind 1a tensor ... (22, 2a, 3a with the kinds 2, 3, 5); the name may be missing
    TensorFlow's TensorProto  08 dtype 12 shape             whose shape is not readable text

In doubt the answer is TensorFlow's, which another format reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorbytes._wire import proto
from tensorbytes.errors import CorruptError
from tensorbytes.formats._onnx.tensor import BY_CODE, STRING

# Field numbers and their wire types, packed and not.
_TENSOR = {
    4: (2, 5), 5: (2, 0), 6: (2,), 7: (2, 0), 8: (2,), 9: (2,), 10: (2, 1), 11: (2, 0), 12: (2,), 13: (2,), 14: (0,),
    16: (2,),
}  # fmt: skip
_MODEL = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_MODEL_TEXT = (2, 3, 4, 6)
# Tags that a graph may begin with: node, name, initializer, doc_string, input, output, value_info,
# quantization_annotation, sparse_initializer; metadata_props has a tag of two bytes.
_GRAPH = b"\x0a\x12\x2a\x52\x5a\x62\x6a\x72\x7a\x82"
_MOST_VERSION = 127
_MOST_DIMS = 64
_MOST_LEVELS = 4  # of lists in lists that are looked at
_MOST_KINDS = 5  # of values in a sequence: tensors, sparse tensors, sequences, maps, optional values


def kind(head: bytes, size: int) -> str:
    """ "tensor", "sequence", "model" or "", for a file of this size that starts with these bytes."""
    try:
        if _is_sequence(head, size, _MOST_LEVELS):  # a tensor of int8 may start like one, but not go on so
            return "sequence"
        return "tensor" if _is_tensor(head, size) else "model" if _is_model(head, size) else ""
    except CorruptError:
        return ""


def _fields(head: bytes, size: int) -> Iterator[proto.Field]:
    """The fields that begin in the head; the last may end beyond it, but not beyond the file."""
    view, at = memoryview(head), 0
    while at < len(head):
        first = at
        tag, at = proto.read_varint(view, at, len(head))
        number, wire, start, end = tag >> 3, tag & 7, at, at
        if wire == proto.VARINT:
            start, at = proto.read_varint(view, at, len(head))
        elif wire == proto.DELIMITED:
            length, start = proto.read_varint(view, at, len(head))
            at = end = start + length
        elif wire in (proto.FIXED32, proto.FIXED64):
            at = end = at + (4 if wire == proto.FIXED32 else 8)
        else:
            raise CorruptError("a group", at=first)
        if at > size or not number:
            raise CorruptError("a field beyond the end", at=first)
        yield proto.Field(number, wire, start, end, first)


def _is_tensor(head: bytes, size: int) -> bool:
    empty = valued = typed = False
    rank = 0
    for item in _fields(head, size):
        if not typed:
            if item.number == 1 and item.wire in (proto.VARINT, proto.DELIMITED):
                rank += 1
                empty |= item.wire == proto.VARINT and item.start == 0
                if rank > _MOST_DIMS:
                    return False
            elif item.number == 2 and item.wire == proto.VARINT and (item.start in BY_CODE or item.start == STRING):
                typed = True
            else:
                return False
        elif item.wire not in _TENSOR.get(item.number, ()):
            return False
        else:
            valued |= item.number not in (8, 12, 16)
    return typed and (valued or empty)


def _is_sequence(head: bytes, size: int, levels: int) -> bool:
    """Its fields in order: a name, the kind of its values, and values of this kind, the first of which may be one."""
    named, of = False, 0
    for item in _fields(head, size):
        if item.number == 1 and item.wire == proto.DELIMITED and not named and not of:
            named = item.start < item.end
            if not _readable(head[item.start : item.end], item.end <= len(head)):
                return False
        elif item.number == 2 and item.wire == proto.VARINT and not of and 1 <= item.start <= _MOST_KINDS:
            of = item.start
        elif of and item.number == of + 2 and item.wire == proto.DELIMITED:
            return levels == 0 or _is_value(of, head[item.start : item.end], item.end - item.start, levels - 1)
        else:
            return False
    return bool(named and of)


def _is_value(of: int, head: bytes, size: int, levels: int) -> bool:
    """Whether a value of a sequence may be one of this kind."""
    try:
        if of in (3, 5):
            return _is_sequence(head, size, levels)
        if of == 1:
            return _is_tensor(head, size)
        first = next(_fields(head, size), None)
        if first is None or first.number != 1 or first.wire != proto.DELIMITED:
            return False
        # A sparse tensor begins with its values, a map with its name.
        inner = head[first.start : first.end]
        return _is_tensor(inner, first.end - first.start) if of == 2 else _readable(inner, first.end <= len(head))
    except CorruptError:
        return False


def _is_model(head: bytes, size: int) -> bool:
    named = False
    for index, item in enumerate(_fields(head, size)):
        if _MODEL.get(item.number) != item.wire:
            return False
        if index == 0 and not (item.number == 1 and 1 <= item.start <= _MOST_VERSION):
            return False
        if item.number in _MODEL_TEXT:
            if not _readable(head[item.start : item.end], item.end <= len(head)):
                return False
            named |= item.start < item.end
        if item.number == 7 and item.start < item.end:
            return item.start >= len(head) or head[item.start] in _GRAPH
    return named and size > len(head)


def _readable(raw: bytes, whole: bool) -> bool:
    """Whether some bytes are text; one that is cut may end inside a character."""
    text = raw.decode("utf-8", "replace" if whole else "ignore")
    return not any(mark == "�" or (mark < " " and mark not in "\t\n\r") for mark in text)
