"""Against onnx and gguf."""

import re
from typing import Any

from safety.fuzz.differential import protobytes
from safety.fuzz.differential.listing import BOTH, OURS, THEIRS, Divergence
from safety.fuzz.differential.pairs import gguf
from safety.fuzz.differential.pairs.onnx import Model, Tensor
from tests.support.wire_bytes import DELIMITED, field, number, overlong, tag

_TENSOR, _MODEL, _ONNX, _GGUF = ("onnx-tensor",), ("onnx-model",), ("onnx-tensor", "onnx-model"), ("gguf",)


# What such an input may be besides: other rows of this list.
_EXCUSES = re.compile("too large to be tried|cannot reshape array of size 0|is too small for the declared shape")


def _long_in_tensor(raw: bytes, ours: Any, _: Any) -> bool:
    """Whether the reason is a tag or a length in more bytes than it needs."""
    try:
        return bool(Tensor().theirs(protobytes.write(protobytes.parse(raw, {13: {}, 16: {}}))) == ours)
    except Exception as error:
        return _EXCUSES.search(str(error)) is not None


def _weights_alone(raw: bytes, ours: Any, _: Any) -> bool:
    """Whether the reason lies outside of the initializers, or in such a tag or length."""
    try:
        graphs = [field for field in protobytes.parse(raw, {7: {5: {13: {}, 16: {}}}}) if field.number == 7]
        for graph in graphs:
            assert isinstance(graph.payload, list)
            graph.payload = [field for field in graph.payload if field.number == 5]
        return bool(Model().theirs(protobytes.write(graphs)) == ours)
    except Exception as error:
        return _EXCUSES.search(str(error)) is not None


def _ambiguous(raw: bytes, _: Any, __: Any) -> bool:
    """Whether it is a tensor as well: by a field that is not a model's."""
    try:
        return any((field.number, field.wire) == (2, protobytes.VARINT) for field in protobytes.parse(raw, {}))
    except ValueError:
        return False


def _without_zeros(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_zeros(item) for name, item in value.items()}
    kind, shape, items = value
    return (kind, shape, [item.rstrip("\0") for item in items]) if kind == "U" else value


def _onnx(code: int, dims: tuple[int, ...], *fields: bytes) -> bytes:
    return b"".join(number(1, n) for n in dims) + number(2, code) + field(8, "w") + b"".join(fields)


def _model(*tensors: bytes) -> bytes:
    return number(1, 8) + field(7, b"".join(field(5, raw) for raw in tensors)) + field(8, number(2, 21))


def _placed(raw: bytes, mark: bytes, after: int, offset: int) -> bytes:
    """A file in which the tensor whose description starts with this mark stands at another offset."""
    at = raw.index(mark) + 1 + after
    return raw[:at] + offset.to_bytes(8, "little") + raw[at + 8 :]


ROWS = [
    Divergence(
        _TENSOR,
        OURS,
        "Wire format was corrupt",
        "a tag or a length in six to ten bytes",
        "upb stops at five; nothing is lost by reading on",
        number(2, 6) + tag(9, DELIMITED) + overlong(4, 6) + b"\1\0\0\0",
        _long_in_tensor,
    ),
    Divergence(
        _MODEL,
        OURS,
        "Wire format was corrupt|bad UTF-8",
        "damage outside of the weights: nodes, value infos",
        "what is not read is not parsed",
        number(1, 8) + field(7, field(13, b"g") + field(5, number(2, 6) + field(8, "w") + number(5, 1))),
        _weights_alone,
    ),
    Divergence(
        _MODEL,
        THEIRS,
        "",
        "bytes that are a tensor as much as a model",
        "`data_type` as a number is not a field of models",
        number(1, 8) + number(2, 8),
        _ambiguous,
        ours="as a tensor",
    ),
    Divergence(
        _TENSOR,
        OURS,
        "is UNDEFINED",
        "a model where a tensor is looked for",
        "a graph is not a field of tensors",
        field(7, b"") + field(9, b"\1"),
        lambda raw, ours, theirs: bool(ours == "a model"),
        ours="as a model",
    ),
    Divergence(
        _MODEL,
        BOTH,
        "",
        "the same, of a sound tensor",
        "`data_type` as a number is not a field of models",
        number(1, 0) + number(2, 6),
        _ambiguous,
        ours="as a tensor",
    ),
    Divergence(
        _ONNX,
        OURS,
        "cannot reshape array of size 0|is too small for the declared shape",
        "raw_data that is there, but empty, beside values",
        "the values are there",
        number(2, 6) + field(8, "w") + number(5, 1) + field(9, b""),
    ),
    Divergence(
        _ONNX,
        BOTH,
        "",
        "strings that end with a zero",
        "numpy_helper makes NumPy's text of them, which drops it",
        _onnx(8, (1,), field(6, b"a\0")),
        lambda raw, ours, theirs: _without_zeros(ours) == theirs,
        theirs="without it",
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "an odd number of values",
        "half a complex number, of a tensor without elements",
        "dropped in silence",
        _onnx(14, (0,), field(4, bytes(4)), field(9, b"")),
    ),
    Divergence(
        _MODEL,
        THEIRS,
        "a sparse initializer|sparse",
        "a sparse initializer that is none",
        "not looked at; we read them",
        number(1, 8) + field(7, field(15, b"")),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        r"data location \d+ is unknown",
        "a data location that nobody knows",
        "read as if the data were here",
        _onnx(6, (), number(5, 1), number(14, 3)),
    ),
    Divergence(
        _ONNX,
        OURS,
        "^ValueError: too large to be tried",
        "dimensions of over four million elements beside a zero",
        "not compared; no memory is taken",
        _onnx(6, (1 << 40, 0)),
        theirs="not tried",
    ),
    Divergence(
        _ONNX,
        THEIRS,
        r"has the wire type \d",
        "a field of the wrong wire type",
        "to protobuf an unknown field: dropped in silence",
        _onnx(6, (), number(9, 1), number(5, 1)),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "is not UTF-8",
        "names that are not UTF-8",
        "upb does not look in proto2",
        number(2, 6) + field(8, b"\xff") + number(5, 1),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "a dimension is -",
        "a dimension of -1",
        "numpy's reshape makes of it whatever fits",
        _onnx(6, (-1,), number(5, 1)),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "holds values in several places|has values in .* stand in|strings stand in string_data alone",
        "values in a field that the dtype does not use, or in two",
        "dropped in silence",
        _onnx(6, (), number(5, 1), number(7, 1)),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        r"takes \d+ (bytes|values), (raw_data has|got)|are packed into",
        "more values than elements, of types under 8 bits and of empty tensors",
        "the rest is dropped in silence",
        _onnx(21, (1,), field(9, b"\1\1")),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "the range of",
        "a value too large for the dtype",
        "its low bits are kept",
        _onnx(4, (1,), number(5, 70000)),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "after the last element are not zero",
        "bits after the last element of a packed type",
        "passed over",
        _onnx(21, (1,), field(9, b"\xf1")),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        r"unknown data type \d{8}",
        "a data type of over 32 bits",
        "protobuf keeps its low bits",
        _onnx((1 << 32) + 6, (), number(5, 1)),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "a segment of a tensor",
        "a segment of the wrong wire type",
        "to protobuf an unknown field: dropped in silence",
        _onnx(6, (), number(5, 1), number(3, 1)),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "is not a valid bool",
        "a bool byte other than 0 and 1",
        "no value: compilers may take it for either",
        _onnx(9, (1,), field(9, b"\2")),
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "a field has the number 0",
        "field number 0 inside a group that is skipped",
        "upb does not look; no such field exists",
        tag(30, 3) + b"\0\0" + tag(30, 4) + _onnx(6, (), number(5, 1)),
    ),
    Divergence(
        _MODEL,
        THEIRS,
        "without a name",
        "an initializer without a name",
        "nothing can refer to it",
        _model(number(2, 6) + number(5, 1)),
    ),
    Divergence(
        _MODEL,
        THEIRS,
        "is stored twice",
        "two initializers of one name",
        "parsers disagree about which one counts",
        _model(*[_onnx(6, (), number(5, n)) for n in (1, 2)]),
        theirs="the last one",
    ),
    Divergence(
        _ONNX,
        THEIRS,
        "appears twice",
        "two versions of one operator set, two places of external data",
        "the specification wants one",
        _onnx(6, (), number(5, 1), field(13, b""), field(13, b"")),
    ),
    Divergence(
        _MODEL,
        THEIRS,
        "neither a TensorProto",
        "no bytes at all, or a model without a graph",
        "no model: a file that was never written",
        b"",
        theirs="an empty model",
    ),
    Divergence(
        _GGUF,
        THEIRS,
        "overlaps",
        "tensors that overlap",
        "the specification wants them apart",
        _placed(gguf._seed(2), b"v\1\0\0\0", 16, 0),
    ),
    Divergence(
        _GGUF,
        THEIRS,
        "is not UTF-8",
        "metadata that is not UTF-8",
        "GGUFReader keeps the bytes and does not look",
        gguf._seed(0).replace(b"llama", b"ll\xffma"),
    ),
    Divergence(
        _GGUF,
        THEIRS,
        "is not a multiple of",
        "an offset off the alignment",
        "the specification forbids it",
        _placed(gguf._seed(0), b"w\2\0\0\0", 24, 4),
    ),
]
