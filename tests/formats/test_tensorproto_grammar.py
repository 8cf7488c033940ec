"""TensorProto against TensorFlow, on messages drawn from the grammar of the format.

Either both give the same bits, or both refuse, or the difference is one of DIVERGENCES.
"""

import math
import re
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import event, given
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2

import tensorbytes as tb
from tensorbytes import dtypes, errors
from tests.support.wire_bytes import (
    DELIMITED,
    END_GROUP,
    FIXED32,
    FIXED64,
    START_GROUP,
    STRING,
    VARINT,
    field,
    number,
    overlong,
    shape,
    tag,
    tensor,
    varint,
)

# Where we refuse and TensorFlow does not: it drops or changes data in silence.
DIVERGENCES = {
    r"takes \d+ (values|strings), got": "more values than elements: TensorFlow drops the rest",
    r"takes 0 bytes, tensor_content has": "content of a tensor without elements: TensorFlow drops it",
    "holds values that": "values in a field that the dtype does not use, or beside tensor_content: dropped",
    "string values in a tensor of": "the same, for string_val",
    "both tensor_content and string_val": "the same, for strings: TensorFlow takes the content",
    "the range of": "a value too large for the dtype: TensorFlow keeps its low bits",
    "an odd number of values": "half a complex number: TensorFlow drops it",
    r"is not a valid (u?int\d|float4)": "high bits beside a value of under 8 bits: TensorFlow passes over them",
    "the shape is unknown": "unknown_rank is set: TensorFlow reads a scalar, or the dimensions given besides",
    r"has the wire type \d": "a field of the wrong wire type: to protobuf an unknown field, so dropped",
    "a pickle, which is never read": "an unknown field first, whose bytes are those that pickles start with",
}
# Where we read and TensorFlow refuses: nothing is lost by reading.
ACCEPTED = {
    "a length or a tag in six to ten bytes": "TensorFlow's parser takes five",
    "a dimension's name that is not UTF-8": "names of dimensions are passed over",
    "8-bit floats in half_val": "as older TensorFlow wrote them; the present one reads zeros",
}

FIELD_OF = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 8: 9, 9: 10, 10: 11, 11: 7, 12: 7, 13: 7, 14: 13, 15: 7, 16: 7, 17: 7,
            18: 12, 19: 13, 22: 16, 23: 17, 24: 18, 25: 18, 29: 7, 30: 7, 31: 7, 32: 7, 33: 18}  # fmt: skip
FLOATS = {5: "<f", 9: "<f", 6: "<d", 12: "<d"}
INTEGERS = st.one_of(st.integers(0, 3), st.sampled_from([-1, -2, 127, 128, 255, 65535, 1 << 31, -(1 << 31), 1 << 63]))


@st.composite
def typed_chunk(draw, which):
    """One field of typed values: a single one, or any number of them packed."""
    if which == 18:
        return field(18, draw(st.binary(max_size=4)))
    values = draw(st.lists(INTEGERS, max_size=4))
    if which in FLOATS:
        packed = [struct.pack(FLOATS[which], value) for value in values]
        single = FIXED32 if FLOATS[which] == "<f" else FIXED64
    else:
        packed = [varint(value) for value in values]
        single = VARINT
    if draw(st.booleans()):
        return field(which, b"".join(packed))
    return b"".join(tag(which, single) + value for value in packed)


@st.composite
def unknown(draw):
    """Fields that every reader passes over."""
    which = draw(st.integers(19, 500))
    return draw(
        st.sampled_from(
            [
                number(which, 1 << 40),
                field(which, b"\x0a\xff"),
                tag(which, FIXED32) + bytes(4),
                tag(which, FIXED64) + bytes(8),
                tag(which, START_GROUP) + field(3, b"x") + tag(which, END_GROUP),
                tag(which, START_GROUP) + tag(9, START_GROUP) + tag(9, END_GROUP) + tag(which, END_GROUP),
            ]
        )
    )


@st.composite
def broken(draw):
    """Bytes that no reader should take."""
    return draw(
        st.sampled_from(
            [
                tag(20, START_GROUP),
                tag(20, END_GROUP),
                tag(20, START_GROUP) + tag(21, END_GROUP),
                tag(20, DELIMITED) + varint(1 << 40),
                b"\x80" * 11 + b"\x01",
                b"\x02\x00",  # field number 0
                tag(20, 6),
                tag(20, 7),
                b"\x08",
                field(5, b"abc"),
                field(7, b"\x80"),
                field(2, field(2, number(1, -1))),
                field(2, number(3, 1)),
                field(2, b"\x12\x05"),
                number(1, 200),
                number(1, 21),
                tag(4, VARINT) + b"\x01",
                tag(5, FIXED64) + bytes(8),
            ]
        )
    )


@st.composite
def messages(draw):
    """A TensorProto, mostly sound: (bytes, the dtype it was drawn for)"""
    code = draw(st.sampled_from([*FIELD_OF, STRING]))
    dims = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=3))
    count = math.prod(dims)
    if code == STRING:
        values = [field(8, item) for item in draw(st.lists(st.binary(max_size=3), max_size=max(count, 1) + 1))]
    else:
        values = draw(st.lists(typed_chunk(FIELD_OF[code]), max_size=2))
    pieces = [number(1, code)]
    cut = draw(st.integers(0, len(dims)))
    pieces += [shape(*dims[:cut]), shape(*dims[cut:])] if cut else [shape(*dims)]
    content = draw(st.booleans())
    if content and code != STRING:
        size = count * dtypes.by_code(code).itemsize
        noise = draw(st.binary(min_size=size, max_size=size))
        pieces.append(field(4, bytes(b"\x00\x01\x02\xff"[byte & 3] for byte in noise)))
        values = values if draw(st.integers(0, 3)) == 0 else []
    pieces += values
    for _ in range(draw(st.integers(0, 2))):
        pieces.insert(draw(st.integers(0, len(pieces))), draw(unknown()))
    if draw(st.integers(0, 5)) == 0:
        pieces.append(draw(st.one_of(typed_chunk(draw(st.sampled_from([5, 6, 7, 9, 10, 11, 12, 16, 17]))), broken())))
    if draw(st.integers(0, 5)) == 0:
        pieces[0] = tag(1, VARINT) + overlong(code, draw(st.integers(2, 5)))
    return b"".join(draw(st.permutations(pieces)) if draw(st.booleans()) and cut == 0 else pieces)


def theirs(raw):
    """(dtype code, shape, bytes or strings) as TensorFlow reads it, None if it does not."""
    try:
        message = tensor_pb2.TensorProto.FromString(raw)
        if message.dtype in (0, 20, 21):  # none, and types without values
            return None
        found = tf.io.parse_tensor(raw, tf.dtypes.as_dtype(message.dtype))
    except Exception:  # whatever TensorFlow and protobuf may raise
        return None
    if message.dtype == STRING:
        return message.dtype, tuple(found.shape), np.array(found.numpy(), object).reshape(-1).tolist()
    row = dtypes.by_code(message.dtype)
    raw = found.numpy().tobytes()
    return message.dtype, tuple(found.shape), bytes(b & row.value_mask for b in raw) if row.bits < 8 else raw


def ours(raw):
    """The same as we read it, or our words of refusal."""
    try:
        value = tb.loads(raw, "tensorproto", to="tensor")
    except (errors.CorruptError, errors.LimitError, errors.UnsupportedError, errors.UsageError) as error:
        return str(error)
    if isinstance(value, tb.Strings):
        return STRING, value.shape, value.items()
    return dtypes.get(value.dtype).code, value.shape, bytes(value.data)


@given(messages())
def test_the_same_verdict_and_the_same_bits(raw):
    expected = theirs(raw)
    got = ours(raw)
    if isinstance(got, str) and expected is not None:
        known = [why for words, why in DIVERGENCES.items() if re.search(words, got)]
        assert known, f"TensorFlow reads {expected}, we say: {got}"
        event(known[0])
    else:
        assert expected == (None if isinstance(got, str) else got)
        event("both refuse" if expected is None else "both read")


# One message for each, so that the lists above don't go stale.
REFUSED = {
    "more values than elements": (tensor(1, (1,), field(5, struct.pack("<2f", 1, 2))), [1.0]),
    "more strings than elements": (tensor(7, (1,), field(8, b"a"), field(8, b"b")), [b"a"]),
    "content without elements": (tensor(1, (0,), field(4, bytes(4))), []),
    "a field not in use": (tensor(1, (1,), number(7, 5)), [0.0]),
    "values beside content": (tensor(3, (1,), field(4, b"\1\0\0\0"), number(7, 5)), [1]),
    "strings in a tensor of numbers": (tensor(3, (1,), field(8, b"a")), [0]),
    "strings beside content": (tensor(7, (1,), field(4, b"\1a"), field(8, b"b")), [b"a"]),
    "a value too large": (tensor(6, (1,), number(7, 300)), [44]),
    "half a complex number": (tensor(8, (1,), field(9, struct.pack("<3f", 1, 2, 3))), [1 + 2j]),
    "high bits beside an int4": (tensor(29, (1,), field(4, b"\xf1")), [1]),
    "a shape of unknown rank": (number(1, 3) + field(2, number(3, 1)), 0),
    "the wrong wire type": (tensor(3, (1,), tag(7, FIXED32) + b"\1\0\0\0"), [0]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_we_refuse_and_tensorflow_does_not(case):
    raw, read_by_tensorflow = REFUSED[case]
    code = tensor_pb2.TensorProto.FromString(raw).dtype
    assert tf.io.parse_tensor(raw, tf.dtypes.as_dtype(code)).numpy().tolist() == read_by_tensorflow
    with pytest.raises(errors.CorruptError) as caught:
        tb.loads(raw, "tensorproto")
    assert any(re.search(words, str(caught.value)) for words in DIVERGENCES)
    assert 0 <= caught.value.at <= len(raw)


def test_a_message_that_starts_as_a_pickle_does():
    raw = number(80, 128) + tensor(1, ())
    assert tf.io.parse_tensor(raw, tf.float32).numpy() == 0
    with pytest.raises(errors.UsageError, match="a pickle, which is never read"):
        tb.loads(raw, "tensorproto")


READ = {
    "a length in ten bytes": (tensor(3, (1,), tag(4, DELIMITED) + overlong(4, 10) + b"\1\0\0\0"), [1]),
    "a dimension's name that is not UTF-8": (
        number(1, 3) + field(2, field(2, number(1, 1) + field(2, b"\xff"))) + number(7, 1),
        [1],
    ),
}


@pytest.mark.parametrize("case", READ)
def test_what_we_read_and_tensorflow_does_not(case):
    raw, values = READ[case]
    assert theirs(raw) is None
    assert tb.loads(raw, "tensorproto").tolist() == values
