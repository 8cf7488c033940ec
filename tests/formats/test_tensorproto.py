"""TensorProto: byte for byte what tf.io.serialize_tensor writes, and every form that TensorFlow reads."""

import mmap
import struct

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
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
    field,
    number,
    overlong,
    shape,
    tag,
    tensor,
    varint,
)

SHAPES = [(), (1,), (7,), (2, 3, 1, 4), (0,), (0, 3), (3, 0), (2, 0, 4), (0, 0), (1, 300)]
# Dtypes with a serialize_tensor kernel.
SERIALIZED = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
              "float32", "float64", "bfloat16", "complex64", "complex128"]  # fmt: skip
# Those that only tf.make_tensor_proto writes.
PROTO_ONLY = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz",
              "float4_e2m1fn", "int4", "uint4", "int2", "uint2"]  # fmt: skip
QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def noise(name, dims):
    """Random bit patterns, NaN payloads included, as far as the dtype has such."""
    row = dtypes.get(name)
    raw = np.random.default_rng(len(dims)).integers(0, 256, (*dims, row.itemsize), np.uint8)
    if name == "bool":
        raw &= 1
    if row.bits < 8:
        raw &= row.value_mask
    return raw.reshape(-1).view(numpy_dtype(name)).reshape(dims)


def read(raw, **options):
    """The neutral value of a TensorProto."""
    return tb.loads(raw, "tensorproto", to="tensor", **options)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


# ---- writing ----------------------------------------------------------------


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("name", SERIALIZED)
def test_bytes_are_those_of_serialize_tensor(name, dims):
    x = noise(name, dims)
    theirs = tf.io.serialize_tensor(tf.constant(x)).numpy()
    assert tb.dumps(x, "tensorproto") == theirs
    assert tb.dumps(tf.constant(x), "tensorproto") == theirs
    back = read(theirs)
    assert (back.dtype, back.shape, bytes(back.data)) == (name, dims, x.tobytes())


STRINGS = [
    ((), [b""]),
    ((), [b"abc"]),
    ((3,), [b"", b"", b""]),
    ((2, 2), ["Grüße".encode(), b"\xff\x00", "漢字".encode(), b"x" * 127]),
    ((3,), [b"x" * 128, b"y" * 20000, b""]),
    ((0,), []),
    ((3, 0), []),
]


@pytest.mark.parametrize(("dims", "items"), STRINGS, ids=lambda v: str(v)[:20])
def test_string_bytes_are_those_of_serialize_tensor(dims, items):
    x = np.array(items, object).reshape(dims)
    theirs = tf.io.serialize_tensor(tf.constant(x, tf.string, dims)).numpy()
    assert tb.dumps(x, "tensorproto") == theirs
    assert read(theirs).items() == items
    assert read(theirs).shape == dims


@pytest.mark.parametrize("name", [*SERIALIZED, *PROTO_ONLY])
def test_tensorflow_reads_our_bytes(name):
    x = noise(name, (2, 5))
    raw = tb.dumps(x, "tensorproto")
    assert tf.io.parse_tensor(raw, x.dtype).numpy().tobytes() == x.tobytes()
    assert tf.make_ndarray(tensor_pb2.TensorProto.FromString(raw)).tobytes() == x.tobytes()


@pytest.mark.parametrize(("name", "integer"), QUANTIZED.items())
def test_quantized(name, integer):
    x = tf.bitcast(tf.constant([0, 1, 100], integer), name)
    back = read(tb.dumps(x, "tensorproto"))
    assert (back.dtype, back.bits().tolist()) == (name, [0, 1, 100])
    assert tf.io.parse_tensor(tb.dumps(x, "tensorproto"), x.dtype).dtype == x.dtype


# ---- reading: the forms TensorFlow's own writers give -----------------------


@pytest.mark.parametrize("dims", [(), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", [*SERIALIZED, *PROTO_ONLY])
def test_make_tensor_proto(name, dims):
    dims = (2,) if name.endswith("fnuz") and not dims else dims  # TensorFlow writes no single value of these
    x = noise(name, dims)
    back = read(tf.make_tensor_proto(x).SerializeToString())
    assert (back.dtype, back.shape) == (name, dims)
    assert bytes(back.data) == x.tobytes()


TYPED = {
    "float32": ("float_val", [1.5, -0.0]),
    "float64": ("double_val", [1.5, -2.0]),
    "int8": ("int_val", [-128, 127]),
    "int16": ("int_val", [-32768, 7]),
    "int32": ("int_val", [-(1 << 31), (1 << 31) - 1]),
    "uint8": ("int_val", [255, 0]),
    "uint16": ("int_val", [65535, 1]),
    "int4": ("int_val", [-8, 7]),
    "uint4": ("int_val", [15, 0]),
    "int2": ("int_val", [-2, 1]),
    "uint2": ("int_val", [3, 0]),
    "qint8": ("int_val", [-1, 5]),
    "quint8": ("int_val", [200, 5]),
    "qint16": ("int_val", [-300, 5]),
    "quint16": ("int_val", [50000, 5]),
    "qint32": ("int_val", [-70000, 5]),
    "int64": ("int64_val", [-(1 << 63), (1 << 63) - 1]),
    "uint32": ("uint32_val", [(1 << 32) - 1, 0]),
    "uint64": ("uint64_val", [(1 << 64) - 1, 0]),
    "bool": ("bool_val", [True, False]),
    "float16": ("half_val", [0x3C00, 0xFE01]),
    "bfloat16": ("half_val", [0x3F80, 0xFFC1]),
    "complex64": ("scomplex_val", [1.0, -2.0, 0.0, 4.0]),
    "complex128": ("dcomplex_val", [1.0, -2.0, 0.0, 4.0]),
    "float8_e4m3fn": ("float8_val", b"\x38\xff"),
    "float8_e5m2": ("float8_val", b"\x3c\xff"),
    "float8_e4m3fnuz": ("float8_val", b"\x40\x80"),
    "float8_e5m2fnuz": ("float8_val", b"\x40\x80"),
    "float8_e4m3b11fnuz": ("float8_val", b"\x58\x80"),
    "float4_e2m1fn": ("float8_val", b"\x0a\x02"),
}


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("name", TYPED)
def test_typed_values_and_the_repetition_of_the_last(name, count):
    attribute, values = TYPED[name]
    message = tensor_pb2.TensorProto(dtype=dtypes.get(name).code)
    message.tensor_shape.dim.add().size = count
    if isinstance(values, bytes):
        setattr(message, attribute, values)
    else:
        getattr(message, attribute).extend(values)
    raw = message.SerializeToString()
    theirs = tf.io.parse_tensor(raw, tf.dtypes.as_dtype(message.dtype))
    expected = bytes(tb.frameworks.to_value(theirs).data)
    back = read(raw)
    assert (back.dtype, back.shape, bytes(back.data)) == (name, (count,), expected)


@pytest.mark.parametrize("name", [*SERIALIZED, *PROTO_ONLY, *QUANTIZED])
def test_no_values_are_zeros(name):
    back = read(tensor(dtypes.get(name).code, (2, 3)))
    assert bytes(back.data) == bytes(6 * dtypes.get(name).itemsize)


def test_eight_bit_floats_in_half_val_as_older_writers_put_them():
    back = read(tensor(25, (3,), number(13, 0x38), number(13, 0xFF)))
    assert bytes(back.data) == b"\x38\xff\xff"


def test_missing_strings_repeat_the_last_as_tensorflow_has_it():
    raw = tensor(STRING, (4,), field(8, b"a"), field(8, b"bc"))
    assert tf.io.parse_tensor(raw, tf.string).numpy().tolist() == [b"a", b"bc", b"bc", b"bc"]
    assert read(raw).items() == [b"a", b"bc", b"bc", b"bc"]
    assert (
        read(tensor(STRING, (2,))).items()
        == [b"", b""]
        == tf.io.parse_tensor(tensor(STRING, (2,)), tf.string).numpy().tolist()
    )


def test_strings_in_tensor_content():
    raw = tensor(STRING, (3,), field(4, b"\x01\x00\x02abc"))
    assert tf.io.parse_tensor(raw, tf.string).numpy().tolist() == [b"a", b"", b"bc"]
    assert read(raw).items() == [b"a", b"", b"bc"]


# ---- reading: the freedoms of the wire format -------------------------------

ONE_TWO_THREE = {
    "packed": field(5, floats(1, 2, 3)),
    "single values": b"".join(tag(5, FIXED32) + floats(n) for n in (1, 2, 3)),
    "packed, single, packed": field(5, floats(1)) + tag(5, FIXED32) + floats(2) + field(5, floats(3)),
    "two packed chunks": field(5, floats(1, 2)) + field(5, floats(3)),
    "empty chunks between": field(5, b"") + field(5, floats(1, 2, 3)) + field(5, b""),
    "an empty chunk of a field not in use": field(5, floats(1, 2, 3)) + field(7, b""),
    "content and an empty chunk": field(4, floats(1, 2, 3)) + field(5, b""),
    "content twice: the last counts": field(4, floats(7, 8, 9)) + field(4, floats(1, 2, 3)),
    "empty content": field(4, b"") + field(5, floats(1, 2, 3)),
    "a length in five bytes": tag(5, DELIMITED) + overlong(12, 5) + floats(1, 2, 3),
    "a tag in five bytes": overlong(5 << 3 | 2, 5) + varint(12) + floats(1, 2, 3),
    "unknown fields": number(99, 5) + field(999, b"xyz") + tag(77, FIXED64) + bytes(8) + field(5, floats(1, 2, 3)),
    "a group": tag(50, START_GROUP) + number(1, 2) + tag(51, START_GROUP) + tag(51, END_GROUP) + tag(50, END_GROUP)
    + field(4, floats(1, 2, 3)),
    "the version number": number(3, 17) + field(4, floats(1, 2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("form", ONE_TWO_THREE)
def test_forms_of_the_same_tensor(form):
    raw = tensor(1, (3,), ONE_TWO_THREE[form])
    assert tf.io.parse_tensor(raw, tf.float32).numpy().tolist() == [1, 2, 3]
    assert tb.loads(raw, "tensorproto").tolist() == [1, 2, 3]


HEADS = {
    "fields in reverse": field(4, floats(1, 2, 3)) + shape(3) + number(1, 1),
    "dtype twice: the last counts": number(1, 9) + number(1, 1) + shape(3) + field(4, floats(1, 2, 3)),
    "shape in two pieces, merged": number(1, 1) + shape(1) + shape(3) + field(4, floats(1, 2, 3)),
    "named dimensions": number(1, 1) + field(2, field(2, field(2, "rows") + number(1, 3))) + field(4, floats(1, 2, 3)),
    "size twice: the last counts": number(1, 1) + field(2, field(2, number(1, 8) + number(1, 3)))
    + field(4, floats(1, 2, 3)),
    "a zero that is written out": number(1, 1) + field(2, field(2, number(1, 0)) + field(2, number(1, 3))),
    "unknown_rank is false": number(1, 1) + field(2, field(2, number(1, 3)) + number(3, 0)) + field(4, floats(1, 2, 3)),
    "unknown fields in the shape": number(1, 1) + field(2, field(2, number(1, 3) + field(9, b"x")) + number(8, 1))
    + field(4, floats(1, 2, 3)),
    "no shape is a scalar": number(1, 1) + field(4, floats(5)),
}  # fmt: skip


@pytest.mark.parametrize("form", HEADS)
def test_forms_of_the_head(form):
    theirs = tf.io.parse_tensor(HEADS[form], tf.float32).numpy()
    ours = tb.loads(HEADS[form], "tensorproto")
    assert (ours.shape, ours.tolist()) == (theirs.shape, theirs.tolist())


STRING_FORMS = {
    "with an unknown field between": field(8, b"a") + number(99, 1) + field(8, b"bc"),
    "with a tag in two bytes": overlong(8 << 3 | 2, 2) + varint(1) + b"a" + field(8, b"bc"),
    "with a length in three bytes": tag(8, DELIMITED) + overlong(1, 3) + b"a" + field(8, b"bc"),
    "with an empty packed field": field(5, b"") + field(8, b"a") + field(8, b"bc"),
}


@pytest.mark.parametrize("form", STRING_FORMS)
def test_forms_of_strings(form):
    raw = tensor(STRING, (2,), STRING_FORMS[form])
    assert tf.io.parse_tensor(raw, tf.string).numpy().tolist() == [b"a", b"bc"]
    assert read(raw).items() == [b"a", b"bc"]


def test_a_ten_byte_varint_keeps_its_low_64_bits():
    raw = tensor(9, (2,), number(10, 1), tag(10, 0) + b"\x85" + b"\x80" * 8 + b"\x7e")
    assert tf.io.parse_tensor(raw, tf.int64).numpy().tolist() == [1, 5]
    assert tb.loads(raw, "tensorproto").tolist() == [1, 5]


@pytest.mark.parametrize("number_of_field", [5, 8])
def test_a_length_beyond_64_bits_is_refused(number_of_field):
    raw = tensor(STRING, (1,), tag(number_of_field, DELIMITED) + b"\x81" + b"\x80" * 8 + b"\x7e" + b"a")
    with pytest.raises(errors.CorruptError, match="more than 64 bits") as caught:
        read(raw)
    assert caught.value.at == len(tensor(STRING, (1,))) + 1


def test_two_gibibytes_are_refused_before_anything_is_written():
    pages = mmap.mmap(-1, 1 << 31)  # memory that is never touched, so never taken
    with pytest.raises(errors.LossError, match="2 GiB"):
        tb.buffers(tb.Tensor("uint8", (1 << 31,), pages), "tensorproto")
