"""The parameters of quantization as bytes: as protobuf's own library writes them, and refused when they don't fit."""

import math
import struct

import numpy as np
import pytest

from tensorbytes._wire import proto
from tensorbytes.errors import CorruptError
from tensorbytes.formats import _quantized
from tensorbytes.quantization import Quantization, Quantize, quantize
from tensorbytes.tensor import Tensor

RNG = np.random.default_rng(1)


def tensor(array):
    return Tensor(array.dtype.name, array.shape, array.copy(order="C").reshape(-1).view(np.uint8))


def read(data, stored="int8", shape=(2, 3)):
    around = b"\x00\x01" + data + b"\x02"
    return _quantized.decode(memoryview(around), 2, 2 + len(data), stored, shape)


SPECS = [
    "int8",
    "uint4",
    "bfloat16",
    "float8_e4m3fn",
    1e-3,
    {"dtype": "int8", "axis": 0},
    {"dtype": "int8", "axis": 1},
    {"dtype": "int4", "group": 2},
    {"dtype": "int16", "symmetric": False},
    {"dtype": "int16", "scale": 0.01},
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("original", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 30), (0, 3), (3, 0)])
def test_parameters_come_back(spec, original, shape):
    made = quantize(tensor(RNG.normal(size=shape).astype(original)), Quantize.of(spec)).parameters
    data = _quantized.encode(made)
    back = read(data, made.stored, shape)
    for name in ("scheme", "dtype", "stored", "axis", "group", "max_error", "mean_error", "snr"):
        assert getattr(back, name) == getattr(made, name)
    for name in ("scales", "zeros"):
        a, b = getattr(made, name), getattr(back, name)
        assert (a is None or not a.size) if b is None else (a.dtype == b.dtype and a.tobytes() == b.tobytes())
    assert _quantized.encode(back) == data


def message_class():
    """The message as protobuf's library builds it from a description."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="quantization_test.proto", package="q", syntax="proto3")
    message = file.message_type.add(name="Quantization")
    types = {"string": 9, "uint32": 13, "uint64": 4, "bytes": 12, "double": 1}
    names = "scheme:string dtype:uint32 axis:uint64 group:uint64 scales:bytes zeros:bytes "
    names += "max_error:double mean_error:double snr:double"
    for number, (name, kind) in enumerate((item.split(":") for item in names.split()), 1):
        field = message.field.add(name=name, number=number, type=types[kind], label=1)
        if name == "axis":
            message.oneof_decl.add(name="_axis")
            field.oneof_index, field.proto3_optional = 0, True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("q.Quantization"))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_protobuf_reads_and_writes_the_same_bytes(spec):
    made = quantize(tensor(RNG.normal(size=(2, 30)).astype("f4")), Quantize.of(spec)).parameters
    data = _quantized.encode(made)
    theirs = message_class().FromString(data)
    assert (theirs.scheme, theirs.dtype, theirs.max_error) == (made.scheme, 1, made.max_error)
    assert theirs.scales == (b"" if made.scales is None else made.scales.tobytes())
    assert theirs.HasField("axis") == (made.axis is not None)
    assert theirs.SerializeToString(deterministic=True) == data


def double(number, value):
    return proto.tag(number, proto.FIXED64) + struct.pack("<d", value)


AFFINE = proto.put_bytes(1, b"affine") + proto.put_number(2, 1)
ONE = proto.put_bytes(5, struct.pack("<f", 0.5))
SIX = struct.pack("<6f", *[0.5] * 6)


def test_a_sound_one_is_read():
    back = read(AFFINE + ONE + double(7, 0.25) + double(9, -math.inf))
    assert (back.max_error, back.mean_error, back.snr, back.scales.tolist()) == (0.25, 0.0, -math.inf, [0.5])
    assert read(AFFINE + ONE + proto.put_bytes(5, struct.pack("<f", 2))).scales.tolist() == [2]  # the last one counts
    assert len(read(AFFINE + proto.put_number(4, 1) + proto.put_bytes(5, SIX)).scales) == 6


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "does not say what it was made of"),
        (ONE, "does not say what it was made of"),
        (proto.put_bytes(1, b"log") + proto.put_number(2, 1) + ONE, "scales where there should be none"),
        (proto.put_bytes(1, b"log") + proto.put_number(2, 1), "unknown scheme of quantization 'log'"),
        (proto.put_number(2, 1), "unknown scheme of quantization ''"),
        (proto.put_bytes(1, b"\xff") + proto.put_number(2, 1), "not UTF-8"),
        (proto.put_bytes(1, b"affine") + proto.put_number(2, 77), "unknown TensorProto dtype number 77"),
        (proto.put_bytes(1, b"affine") + proto.put_number(2, 3) + ONE, "quantization of int32"),
        (proto.put_bytes(1, b"affine") + proto.put_number(2, 2) + ONE, "scales in 4 bytes, 8 each"),
        (proto.put_bytes(1, b"cast") + proto.put_number(2, 1), "can't be cast to int8"),
        (AFFINE, "0 scales, not 1"),
        (AFFINE + proto.put_bytes(5, b"\0\0\0"), "scales in 3 bytes"),
        (AFFINE + proto.put_bytes(5, bytes(4)), "not a finite number above 0"),
        (AFFINE + proto.put_bytes(5, struct.pack("<f", -1)), "not a finite number above 0"),
        (AFFINE + proto.put_bytes(5, struct.pack("<f", math.inf)), "not a finite number above 0"),
        (AFFINE + proto.put_bytes(5, struct.pack("<f", math.nan)), "not a finite number above 0"),
        (AFFINE + proto.put_bytes(5, SIX), "6 scales, not 1"),
        (AFFINE + ONE + proto.put_number(3, 0), "1 scales; .2, 3. takes 2"),
        (AFFINE + ONE + proto.put_number(3, 2), "axis 2 of a tensor of shape"),
        (AFFINE + ONE + proto.put_number(3, (1 << 64) - 1), "axis 18446744073709551615"),
        (AFFINE + ONE + proto.put_number(4, 2), "1 scales; .2, 3. takes 4"),
        (AFFINE + ONE + proto.put_number(4, 0), "groups of 0"),
        (AFFINE + ONE + proto.put_number(3, 0) + proto.put_number(4, 2), "both an axis and a group"),
        (AFFINE + ONE + proto.put_bytes(6, bytes(8)), "2 zeros for 1 scales"),
        (AFFINE + ONE + proto.put_bytes(6, bytes(5)), "zeros in 5 bytes"),
        (AFFINE + ONE + proto.put_bytes(6, b"\0\0\0\x80"), "a zero of -2147483648"),
        (AFFINE + ONE + double(7, -1), "a max_error of -1"),
        (AFFINE + ONE + double(7, math.nan), "a max_error of nan"),
        (AFFINE + ONE + double(8, 0.5), "a mean error of 0.5, over the maximum"),
        (AFFINE + ONE + double(9, math.nan), "ratio of nan"),
        (AFFINE + ONE + proto.put_number(7, 1), "field 7 has the wire type 0"),
        (AFFINE + proto.put_number(5, 1), "field 5 has the wire type 0"),
        (AFFINE + ONE + proto.put_number(10, 1), "field 10 of a quantization is unknown"),
        (AFFINE + ONE[:-1], "claims 4 bytes where 3 are left"),
    ],
)
def test_what_does_not_fit_is_refused(data, what):
    with pytest.raises(CorruptError, match=what):
        read(data)


def test_damage_is_an_error_of_ours_or_other_parameters():
    """Every byte of a message replaced by every value: nothing but CorruptError, and nothing unsound."""
    made = quantize(tensor(RNG.normal(size=(2, 3)).astype("f4")), Quantize("int8", group=2, symmetric=False)).parameters
    data = _quantized.encode(made)
    for place in range(len(data)):
        for value in range(256):
            damaged = data[:place] + bytes([value]) + data[place + 1 :]
            try:
                back = read(damaged)
            except CorruptError:
                continue
            assert isinstance(back, Quantization)
            back.check_shape((2, 3))
