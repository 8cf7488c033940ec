"""Against protobuf's own parser, with TensorFlow's reading of the fields."""

from functools import partial
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from safety.fuzz.differential import protobytes
from safety.fuzz.differential.listing import BOTH, OURS, THEIRS, Divergence
from safety.fuzz.differential.pairs.upb import SparseProto, TensorProto, feature_of
from tests.support.example_bytes import ENTRIES
from tests.support.wire_bytes import DELIMITED, FIXED32, field, int64s, number, overlong, tag, tensor

_TENSOR, _SPARSE = ("upb-tensorproto", "tf-tensorproto"), ("upb-sparse", "tf-sparse")
_EXAMPLE, _SEQUENCE = ("upb-example",), ("upb-sequence",)
_TENSORS = (*_TENSOR, *_SPARSE)


def _in_short_form(raw: bytes, schema: protobytes.Schema) -> bytes:
    """The message with tags and lengths in as many bytes as they need."""
    try:
        return protobytes.write(protobytes.parse(raw, schema))
    except ValueError:
        return raw


def _entries(raw: bytes, sequence: bool, whole: bool = True) -> Any:
    """What protobuf reads where the entries of maps are messages like others; without `whole`, as if those with
    unknown fields were not there."""

    def of(entries: Any, read: Any) -> Any:
        return {entry.key: read(entry.value) for entry in entries if whole or not len(UnknownFieldSet(entry))}

    try:
        message = ENTRIES[sequence].FromString(raw)
    except DecodeError:
        return None
    if not sequence:
        return of(message.features.feature, feature_of)
    lists = of(message.feature_lists.feature_list, lambda steps: [feature_of(step) for step in steps.feature])
    return of(message.context.feature, feature_of), lists


def _long_in_example(sequence: bool, raw: bytes, ours: Any, _: Any) -> bool:
    usual = _in_short_form(raw, protobytes.SEQUENCE if sequence else protobytes.EXAMPLE)
    return usual != raw and _entries(usual, sequence) == ours


def _long_in_tensor(raw: bytes, ours: Any, _: Any) -> bool:
    return _reread(raw, ours, TensorProto(), protobytes.TENSOR, names=True)


def _long_in_part(raw: bytes, ours: Any, _: Any) -> bool:
    return _reread(raw, ours, SparseProto(), _PARTS, names=True)


def _name_in_tensor(raw: bytes, ours: Any, _: Any) -> bool:
    return _reread(raw, ours, TensorProto(), protobytes.TENSOR, names=False)


def _name_in_part(raw: bytes, ours: Any, _: Any) -> bool:
    return _reread(raw, ours, SparseProto(), _PARTS, names=False)


_PARTS: protobytes.Schema = {2: {2: {}}, 8: protobytes.TENSOR}


def _reread(raw: bytes, ours: Any, pair: Any, schema: protobytes.Schema, names: bool) -> bool:
    """Whether protobuf reads the same as we, once tags and lengths are short; unless `names`, dimensions nameless."""
    try:
        fields = protobytes.parse(raw, schema)
        if not names:
            _without_names(fields)
        return bool(pair.theirs(protobytes.write(fields)) == ours)
    except Exception as error:
        return "too large to be tried" in str(error)


def _without_names(fields: list[protobytes.Field]) -> None:
    for tensor_or_part in fields:
        if not isinstance(tensor_or_part.payload, list):
            continue
        if tensor_or_part.number == 8:
            _without_names(tensor_or_part.payload)
        for dim in tensor_or_part.payload:
            if tensor_or_part.number == 2 and isinstance(dim.payload, list):
                dim.payload = [item for item in dim.payload if item.number != 2]


def _dropped_entry(sequence: bool, raw: bytes, ours: Any, theirs: Any) -> bool:
    return _entries(raw, sequence) == ours and _entries(raw, sequence, whole=False) == theirs


_UNPARSED = "Wire format was corrupt|Can't parse|ould not parse|nable to parse"
_LONG = "a tag or a length in six to ten bytes"
_NAME = "the name of a dimension that is not UTF-8"
_named_shape = field(2, field(2, number(1, 1) + field(2, b"\xff")))
_LONG_WHY = "upb stops at five; nothing is lost by reading on"
_ENTRY = "an unknown field in a map entry"
_ENTRY_WHY = "upb drops the whole entry, protobuf for C++ only the field, as we do"
_entry = field(1, field(1, field(1, "a") + field(2, field(3, number(1, 1))) + number(3, 5)))


def _sparse(values: bytes) -> bytes:
    return tensor(7, (3,), field(8, int64s(0, dims=(1, 1))), field(8, values), field(8, int64s(4)))


ROWS = [
    Divergence(
        _TENSOR,
        OURS,
        _UNPARSED,
        _LONG,
        _LONG_WHY,
        tensor(3, (1,), tag(4, DELIMITED) + overlong(4, 10) + b"\1\0\0\0"),
        _long_in_tensor,
    ),
    Divergence(
        _SPARSE,
        OURS,
        _UNPARSED,
        _LONG,
        _LONG_WHY,
        _sparse(tensor(3, (1,), tag(4, DELIMITED) + overlong(4, 10) + b"\1\0\0\0")),
        _long_in_part,
    ),
    Divergence(_EXAMPLE, OURS, _UNPARSED, _LONG, _LONG_WHY, overlong(10, 6) + b"\0", partial(_long_in_example, False)),
    Divergence(_SEQUENCE, OURS, _UNPARSED, _LONG, _LONG_WHY, overlong(10, 6) + b"\0", partial(_long_in_example, True)),
    Divergence(
        _EXAMPLE, BOTH, "", _ENTRY, _ENTRY_WHY, _entry, partial(_dropped_entry, False), theirs="without the feature"
    ),
    Divergence(
        _SEQUENCE, BOTH, "", _ENTRY, _ENTRY_WHY, _entry, partial(_dropped_entry, True), theirs="without the feature"
    ),
    Divergence(
        (*_TENSORS, *_EXAMPLE, *_SEQUENCE),
        THEIRS,
        "a field has the number 0",
        "field number 0 inside a group that is skipped",
        "upb does not look; no such field exists",
        tag(1, 3) + b"\0\0" + tag(1, 4) + number(1, 3),
    ),
    Divergence(
        ("tf-tensorproto", "tf-sparse"),
        THEIRS,
        r"a field has the number \d",
        "a tag of over 32 bits",
        "TensorFlow's protobuf drops the high bits",
        bytes.fromhex("f8e1edfb120208033803"),
    ),
    Divergence(
        _TENSOR,
        BOTH,
        "",
        "8-bit floats in half_val",
        "as older TensorFlow wrote them",
        tensor(25, (), number(13, 0x68)),
        lambda raw, ours, theirs: ours[0].startswith("float8") and ours[1] == theirs[1],
        theirs="zeros",
        ours="the values",
    ),
    Divergence(
        _TENSOR,
        OURS,
        f"bad UTF-8|{_UNPARSED}",
        _NAME,
        "names of dimensions are passed over",
        number(1, 3) + _named_shape + number(7, 1),
        _name_in_tensor,
    ),
    Divergence(
        _SPARSE,
        OURS,
        f"bad UTF-8|{_UNPARSED}",
        _NAME,
        "names of dimensions are passed over",
        _sparse(number(1, 3) + _named_shape + number(7, 1)),
        _name_in_part,
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "^LimitError: .*(would take|no memory)",
        "few values that stand for more bytes than `max_bytes`",
        "19 bytes could claim four tebibytes; `limits=` decides",
        tensor(2, (1 << 22,), field(6, bytes(8))),
    ),
    Divergence(
        ("tf-sparse",),
        THEIRS,
        "must hold integers >= 0",
        "a sparse shape with a negative size",
        "TensorFlow does not look until it is used",
        tensor(7, (3,), field(8, int64s(dims=(0, 1))), field(8, int64s(dims=(0,))), field(8, int64s(-4))),
    ),
    Divergence(
        _TENSORS,
        OURS,
        "^ValueError: too large to be tried",
        "a tensor of over four million elements",
        "not compared; within our limits it is read",
        tensor(4, ((1 << 22) + 1,), number(7, 1)),
        theirs="not tried",
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        r"has the wire type \d",
        "a field of the wrong wire type",
        "to protobuf an unknown field: dropped in silence",
        tensor(3, (1,), tag(7, FIXED32) + b"\1\0\0\0"),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "the range of",
        "a value too large for the dtype",
        "TensorFlow keeps its low bits",
        tensor(6, (1,), number(7, 300)),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "holds values that",
        "values in a field that the dtype does not use, or beside tensor_content",
        "dropped in silence",
        tensor(1, (1,), number(7, 5)),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        r"takes \d+ (values|strings), got",
        "more values than elements",
        "the rest is dropped in silence",
        tensor(7, (1,), field(8, b"a"), field(8, b"b")),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        r"takes 0 bytes, tensor_content has|bytes are left over",
        "content of a tensor without elements",
        "dropped in silence",
        tensor(1, (0,), field(4, bytes(4))),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        r"unknown TensorProto dtype number \d{8}",
        "a dtype number of over 32 bits",
        "protobuf keeps its low bits",
        number(1, (1 << 40) + 4),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "string values in a tensor of|both tensor_content and string_val",
        "strings beside content, or in a tensor of numbers",
        "dropped in silence",
        tensor(3, (1,), field(8, b"a")),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "an odd number of values",
        "half a complex number",
        "dropped in silence",
        tensor(8, (1,), field(9, bytes(12))),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        r"is not a valid (u?int\d|float4|bool)",
        "a byte with bits that its dtype does not use",
        "passed over, or an undefined value",
        tensor(29, (1,), field(4, b"\xf1")),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "the shape is unknown",
        "`unknown_rank` set",
        "read as a scalar, or by the dimensions given besides",
        number(1, 3) + field(2, number(3, 1)),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        "holds references, not values",
        "resource handles and variants beside values",
        "unknown to a parser that does not ask for them",
        tensor(3, (), tag(15, DELIMITED) + b"\0"),
    ),
    Divergence(
        _TENSORS,
        THEIRS,
        r"extension field|field 1\d{3}|layout '|rank over|rank \d+, over the limit|"
        "read as what fields of ours|it has no dtype",
        "fields of ours (1000 and up) that are malformed or out of place, and ranks over 64",
        "unknown to others; to us they change what is read",
        tensor(3, (1,) * 65),
    ),
    Divergence(
        ("tf-sparse",),
        THEIRS,
        "sparse indices of shape",
        "indices whose width takes over 32 bits",
        "TensorFlow keeps its low bits",
        bytes.fromhex(
            "080712041202080342100809120c1200120808818080808080044206081f1202120042"
            "12080912041202080122080200000000000000"
        ),
    ),
    Divergence(
        ("tf-sparse",),
        THEIRS,
        "index lies outside",
        "a sparse index outside the shape",
        "TensorFlow does not look until it is used",
        tensor(7, (3,), field(8, int64s(9, dims=(1, 1))), field(8, int64s(1)), field(8, int64s(4))),
    ),
    Divergence(
        _SPARSE,
        THEIRS,
        "expected strings of shape",
        "more than three strings",
        "the rest would be dropped in silence",
        _sparse(int64s(1)) + field(8, b""),
    ),
]
