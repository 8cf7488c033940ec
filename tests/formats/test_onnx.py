"""ONNX TensorProtos: the bytes that onnx itself writes, read and written without it."""

import io
import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbytes as tb
from tensorbytes import dtypes, formats
from tensorbytes.errors import CorruptError, LimitError, LossError, UnsupportedError, UsageError
from tensorbytes.formats import _packed
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.testing import bits
from tests.support.holding import holder
from tests.support.wire_bytes import END_GROUP, START_GROUP, field, number, overlong, tag, varint

NAMES = [row.name for row in dtypes.DTYPES.values() if row.onnx is not None]
LACKING = [row.name for row in dtypes.DTYPES.values() if row.onnx is None]
SHAPES = [(), (0,), (0, 3), (3, 0, 2), (1,), (5,), (2, 3), (7, 3, 3), (1, 64)]
FLOAT, UINT8, INT8, INT64, STRING, BOOL, FLOAT16, INT4, UINT2, FLOAT6 = 1, 2, 3, 7, 8, 9, 10, 22, 25, 27
ONNX = formats.get("onnx")


def same(made, want):
    assert made.dtype == want.dtype
    assert made.shape == want.shape
    assert made.tolist() == want.tolist() if made.dtype == object else made.tobytes() == want.tobytes()


def theirs(data):
    return numpy_helper.to_array(TensorProto.FromString(data))


def dims(*sizes):
    return b"".join(number(1, n) for n in sizes)


def message(code, shape, *fields):
    return dims(*shape) + number(2, code) + b"".join(fields)


def raw(content):
    return field(9, content)


def prop(key, value):
    return field(16, field(1, key) + field(2, value))


# ---- with the real library --------------------------------------------------


def test_the_table_has_every_data_type_of_onnx():
    codes = {code for name, code in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")}
    assert codes == {dtypes.get(name).onnx for name in NAMES}
    for name in NAMES:
        assert helper.tensor_dtype_to_np_dtype(dtypes.get(name).onnx) == dtypes.to_numpy(name)


def test_the_fields_are_where_we_think_they_are():
    numbers = {item.name: item.number for item in TensorProto.DESCRIPTOR.fields}
    assert numbers == {
        "dims": 1, "data_type": 2, "segment": 3, "float_data": 4, "int32_data": 5, "string_data": 6, "int64_data": 7,
        "name": 8, "raw_data": 9, "double_data": 10, "uint64_data": 11, "doc_string": 12, "external_data": 13,
        "data_location": 14, "metadata_props": 16,
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_those_of_onnx(name, shape):
    x = bits.array(name, shape)
    data = tb.dumps(x, "onnx")
    assert data == numpy_helper.from_array(x).SerializeToString()
    same(theirs(data), x)
    same(tb.loads(data), x)
    assert tb.dumps(x, "onnx", name="w") == numpy_helper.from_array(x, "w").SerializeToString()


@pytest.mark.parametrize("name", NAMES)
def test_any_memory_layout(name):
    x = bits.array(name, (6, 8))
    for view in (x.T, x[::-2, 1::3], np.asfortranarray(x), np.broadcast_to(x[:1], (3, 8))):
        same(theirs(tb.dumps(view, "onnx")), np.ascontiguousarray(view))


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_typed_fields_as_onnx_fills_them(name, shape):
    x = bits.array(name, shape)
    with np.errstate(all="ignore"):
        made = helper.make_tensor("w", dtypes.get(name).onnx, shape, x.reshape(-1))
    assert not made.HasField("raw_data")
    data = made.SerializeToString()
    same(tb.loads(data), numpy_helper.to_array(made))
    with tb.open(io.BytesIO(data)) as f:
        assert (f["w"].dtype, f["w"].shape) == (name, shape)
        same(f["w"].load(), numpy_helper.to_array(made))
        same(f["w"][...], numpy_helper.to_array(made))


@pytest.mark.parametrize("name", NAMES)
def test_raw_data_as_onnx_fills_it(name):
    x = bits.array(name, (3, 5))
    made = helper.make_tensor("w", dtypes.get(name).onnx, x.shape, x, raw=True)
    same(tb.loads(made.SerializeToString()), x)


DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="onnx came without its test data")
def test_the_test_data_of_onnx():
    files = sorted(DATA.rglob("*.pb"))
    assert len(files) > 100
    for path in files:
        same(tb.load(path), theirs(path.read_bytes()))


def test_names_and_metadata_both_ways():
    x = np.arange(3.0)
    meta = {"unit": "m", "onnx.doc_string": "what it is", "": "empty key", "日": "本"}
    data = tb.dumps(x, "onnx", name="wé", meta=meta)
    made = TensorProto.FromString(data)
    assert (made.name, made.doc_string) == ("wé", "what it is")
    assert {item.key: item.value for item in made.metadata_props} == {"unit": "m", "": "empty key", "日": "本"}
    assert made.SerializeToString() == data
    back = tb.loads(data, to="tensor")
    assert (back.name, back.meta) == ("wé", meta)


@pytest.mark.parametrize(
    "meta", [{"tensorbytes": "mine"}, {"onnx.doc_string": ""}, {"tensorbytes": "{}", "a": "b"}, {"kind": "int"}]
)
def test_metadata_that_looks_like_ours(meta):
    back = tb.loads(tb.dumps(np.arange(3.0), "onnx", meta=meta), to="tensor")
    assert back.meta == meta


def test_an_empty_name_is_a_name():
    assert tb.loads(tb.dumps(np.arange(3.0), "onnx", name=""), to="tensor").name == ""
    assert tb.loads(tb.dumps(np.arange(3.0), "onnx"), to="tensor").name is None


@pytest.mark.parametrize(
    "value",
    [1, -(1 << 80), 2.5, 1j, True, "text", b"bytes", None, [1.0, 2.0], ("a", "b"), np.float32(3), {}, []],
    ids=repr,
)
def test_python_values(value):
    data = tb.dumps(value, "onnx")
    back = tb.loads(data)
    assert type(back) is type(value)
    assert back == value
    TensorProto.FromString(data)


def test_strings_are_text():
    x = np.array([["a", "", "naïve"], ["日本", "\0x", "e"]], object)
    data = tb.dumps(x, "onnx")
    assert data == numpy_helper.from_array(x).SerializeToString()
    assert theirs(data).tolist() == x.tolist()
    assert tb.loads(data).tolist() == x.tolist()
    nul = np.array(["a\0"], object)  # at the end of a string, onnx's own reader drops it
    assert tb.loads(numpy_helper.from_array(nul).SerializeToString()).tolist() == ["a\0"]
    made = helper.make_tensor("s", STRING, [2], [b"x", "é".encode()])
    assert tb.loads(made.SerializeToString()).tolist() == ["x", "é"]
    assert tb.loads(made.SerializeToString(), encoding="bytes").tolist() == [b"x", "é".encode()]


def test_bytes_stay_bytes():
    x = np.array([b"a", b"", "é".encode()], object)
    data = tb.dumps(x, "onnx")
    assert theirs(data).tolist() == ["a", "", "é"]
    assert tb.loads(data).tolist() == x.tolist()
    odd = np.array([b"\xff"], object)
    with pytest.raises(LossError, match="onnx itself won't read") as caught:
        tb.dumps(odd, "onnx")
    assert caught.value.feature == "encoding"
    assert tb.loads(tb.dumps(odd, "onnx", allow={"encoding"})).tolist() == [b"\xff"]


def test_text_that_is_none():
    data = message(STRING, (1,), field(6, b"\xff"))
    with pytest.raises(CorruptError, match="encoding='bytes'"):
        tb.loads(data, "onnx")
    assert tb.loads(data, "onnx", encoding="bytes").tolist() == [b"\xff"]
    with pytest.raises(UsageError, match="expected 'bytes' or 'utf-8', got"):
        tb.loads(data, "onnx", encoding="latin-1")


# ---- what ONNX lacks --------------------------------------------------------


@pytest.mark.parametrize("name", LACKING)
def test_dtypes_that_onnx_lacks_are_refused(name):
    value = Tensor(name, (2,), bytes(2 * dtypes.get(name).itemsize))
    with pytest.raises(LossError, match=f"ONNX has no dtype {name}") as caught:
        tb.dumps(value, "onnx")
    assert caught.value.feature == "dtype"


def test_structures_and_their_like_are_refused():
    import scipy.sparse

    ragged = tb.Ragged(Tensor("int8", (3,), b"abc"), (np.array([0, 1, 3]),))
    for value, feature in (
        ({"a": np.arange(3)}, "structure"),
        ([np.arange(3), np.arange(2)], "structure"),
        (ragged, "ragged"),
        (scipy.sparse.coo_array(np.eye(3)), "sparse"),
    ):
        with pytest.raises(LossError) as caught:
            tb.dumps(value, "onnx")
        assert caught.value.feature == feature


def test_models_are_not_written(tmp_path):
    with pytest.raises(UsageError, match="a model, which is read-only"):
        tb.save(np.arange(3), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


def test_two_gibibytes_are_refused():
    class Large(Tensor):
        def __post_init__(self):
            pass

    room = np.broadcast_to(np.zeros(1, np.uint8), (1 << 31,))

    class Fake:  # as long as 2 GiB, without the memory
        def __len__(self):
            return len(room)

    value = Large("uint8", (1 << 31,), Fake())
    document = tb.tree.Document([tb.tree.Leaf(value)])
    with pytest.raises(LossError, match="2 GiB"):
        ONNX.encode(document, frozenset(), {})


# ---- the format is recognised -----------------------------------------------


def test_the_suffix_and_the_content_tell_the_format(tmp_path):
    x = np.arange(6.0).reshape(2, 3)
    tb.save(x, tmp_path / "x.pb")
    assert (tmp_path / "x.pb").read_bytes() == tb.dumps(x, "onnx")
    same(tb.load(tmp_path / "x.pb"), x)
    (tmp_path / "unnamed").write_bytes(tb.dumps(x, "onnx"))
    same(tb.load(tmp_path / "unnamed"), x)
    with tb.open(tmp_path / "x.pb") as f:
        assert f.format == "onnx"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensors_of_tensorflow_and_of_onnx_are_told_apart(shape, tmp_path):
    for row in dtypes.DTYPES.values():
        value = Tensor(row.name, shape, bits.content(row.name, shape))
        if row.in_tensorflow:
            data = tb.dumps(value, "tensorproto")
            assert formats.sniff(data[:4096], len(data)) == "tensorproto"
            (tmp_path / "x.pb").write_bytes(data)
            assert not ONNX.claims(str(tmp_path / "x.pb"))
            assert bytes(tb.load(tmp_path / "x.pb", to="tensor").data) == bytes(value.data)
        if row.onnx is not None:
            data = tb.dumps(value, "onnx")
            assert formats.sniff(data[:4096], len(data)) == "onnx"
    strings = Strings.from_items([b"ab"] * math.prod(shape), shape, "bytes")
    for name in ("tensorproto", "onnx"):
        data = tb.dumps(strings, name)
        assert formats.sniff(data[:4096], len(data)) == name


def test_large_tensors_are_recognised_by_their_head():
    for rank in (0, 1, 5, 60):
        data = tb.dumps(np.zeros((*[1] * rank, 5000)), "onnx", name="n" * 300, meta={"k": "v" * 9000})
        assert formats.sniff(data[:4096], len(data)) == "onnx"


@pytest.mark.parametrize(
    "head", [b"\x08", b"\x08\x01", b"\x10", b"\x10\x01", b"\x08\x03\x10\x01", b"", b"\x10\x63\x4a\0", b"\x0b" * 9,
             b"\x10\x01\x4a\x7f", b"\x10\x01\x1a\x01a", b"\x08\x01" * 65 + b"\x10\x01\x4a\0", b"\xff" * 12]
)  # fmt: skip
def test_what_is_not_taken_for_onnx(head):
    assert not ONNX.sniff(head, len(head))


# ---- every form of the fields -----------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_typed_values_one_by_one(name):
    """Not packed, as a writer of another language may store them."""
    x = bits.array(name, (3,))
    made = helper.make_tensor("", dtypes.get(name).onnx, (3,), x)
    want = numpy_helper.to_array(made)
    single = dims(3) + number(2, made.data_type)
    for at, wire in ((4, "<f"), (10, "<d")):
        for value in {4: made.float_data, 10: made.double_data}[at]:
            single += tag(at, 5 if at == 4 else 1) + struct.pack(wire, value)
    for at, values in ((5, made.int32_data), (7, made.int64_data), (11, made.uint64_data)):
        single += b"".join(number(at, value) for value in values)
    same(tb.loads(single, "onnx"), want)
    same(theirs(single), want)


FORMS = {
    "packed dims": field(1, varint(2) + varint(3)) + number(2, UINT8) + raw(bytes(6)),
    "dims both ways": number(1, 2) + field(1, varint(3)) + number(2, UINT8) + raw(bytes(6)),
    "fields in another order": raw(bytes(6)) + number(2, UINT8) + dims(2, 3),
    "a field that comes twice": raw(b"x") + number(2, 1) + message(UINT8, (2, 3), raw(bytes(6))),
    "an empty raw_data beside values": message(UINT8, (2, 3), raw(b""), field(5, bytes(6))),
    "an empty typed field beside raw_data": message(UINT8, (2, 3), field(5, b""), raw(bytes(6))),
    "packed and single values": message(UINT8, (2, 3), field(5, b"\0\0"), number(5, 0), field(5, bytes(3))),
    "unknown fields": message(UINT8, (2, 3), raw(bytes(6)), number(99, 1), field(98, b"x")),
    "a group": message(UINT8, (2, 3), tag(50, START_GROUP), number(1, 9), tag(50, END_GROUP), raw(bytes(6))),
    "overlong varints": tag(1, 0) + overlong(2, 5) + dims(3) + overlong(16, 3) + b"\x02" + raw(bytes(6)),
    "external_data that does not count": message(UINT8, (2, 3), raw(bytes(6)), field(13, field(1, "location")),
                                                 number(14, 0)),
}  # fmt: skip


@pytest.mark.parametrize("case", FORMS)
def test_other_forms_are_read_as_onnx_reads_them(case):
    made = tb.loads(FORMS[case], "onnx")
    assert (made.dtype, made.shape, made.tobytes()) == (np.uint8, (2, 3), bytes(6))
    if case != "an empty raw_data beside values":  # which onnx takes for the values, and fails
        same(made, theirs(FORMS[case]))


def test_strings_in_odd_forms():
    data = message(STRING, (4,), field(6, "a"), number(99, 1), overlong(6 << 3 | 2, 3) + b"\1b", field(6, ""), raw(b""))
    data += tag(6, 2) + overlong(2, 4) + "é".encode()
    assert tb.loads(data, "onnx").tolist() == ["a", "b", "", "é"] == theirs(data).tolist()


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_packing_against_onnx(name):
    row = dtypes.get(name)
    rng = np.random.default_rng(row.bits)
    theirs_pack = {2: numpy_helper._pack_2bitx4, 4: numpy_helper._pack_4bitx2, 6: numpy_helper._pack_6bit}[row.bits]
    for count in range(40):
        x = rng.integers(0, 1 << row.bits, count).astype(np.uint8)
        packed = _packed.pack(x, row.bits)
        assert packed.tolist() == theirs_pack(x).tolist()
        assert _packed.unpack(packed, row.bits, count).tolist() == x.tolist()


# ---- lazy reading -----------------------------------------------------------

INDEXES = [
    0, -1, np.int64(2), slice(None), slice(1, 4), slice(4, 1, -1), slice(None, None, 2), slice(5, 2), slice(-2, None),
    ..., (slice(1, 3), slice(None, None, -1)), (2, 1), (slice(None), 2), (..., 0), [0, 3], (slice(6, None, -3), 1), (),
    np.array([True, False] * 3 + [True]), None,
]  # fmt: skip


@pytest.mark.parametrize("name", ["int2", "uint4", "float6_e3m2fn", "float32", "bool"])
def test_slices_equal_the_whole(name, tmp_path):
    x = bits.array(name, (7, 3))
    tb.save(x, tmp_path / "x.pb", name="x")
    with tb.open(tmp_path / "x.pb") as f:
        entry = f["x"]
        assert (entry.dtype, entry.shape, entry.nbytes) == (name, x.shape, x.nbytes)
        for index in INDEXES:
            same(np.asarray(entry[index]), np.asarray(x[index]))
        with pytest.raises(IndexError):
            entry[7]


def test_tensors_are_views_of_the_map(tmp_path):
    x = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    tb.save(x, tmp_path / "x.pb", name="x")
    with tb.open(tmp_path / "x.pb", to="tensor") as f:
        value = f["x"].load()
    view = value.data
    whole = holder(view)
    assert type(whole).__name__ == "mmap"
    assert len(whole) == (tmp_path / "x.pb").stat().st_size
    made = tb.loads(tb.dumps(x, "onnx"))
    assert not made.flags.owndata


def test_a_slice_reads_no_more_than_it_must(tmp_path):
    data = bytearray(message(INT4, (3,), raw(b"\x21\x03")))
    data[-1] |= 0xF0  # bits after the last element
    (tmp_path / "x").write_bytes(data)
    with tb.open(tmp_path / "x", format="onnx") as f:
        (entry,) = f.entries()
        assert entry[:2].tolist() == [1, 2]
        with pytest.raises(CorruptError, match="are not zero"):
            entry.load()
    (tmp_path / "y").write_bytes(message(BOOL, (3,), raw(b"\1\0\2")))
    with tb.open(tmp_path / "y", format="onnx") as f:
        (entry,) = f.entries()
        assert entry[:2].tolist() == [True, False]
        with pytest.raises(CorruptError, match="not a valid bool"):
            entry.load()


# ---- hostile bytes ----------------------------------------------------------

BAD = {
    "1 empty": (b"", CorruptError, "neither a TensorProto"),
    "19 negative dim": (message(FLOAT, (-1,), raw(b"")), CorruptError, "a dimension is -1"),
    "20 packed -1": (field(1, varint(-1)) + number(2, FLOAT), CorruptError, "a dimension is -1"),
    "21 product overflow": (message(UINT8, (1 << 32, 1 << 32)), CorruptError, "64 bits"),
    "22 itemsize overflow": (message(11, (1 << 60,)), CorruptError, "64 bits"),
    "23 a zero excuses nothing": (message(UINT8, (0, 1 << 62, 1 << 62)), CorruptError, "64 bits"),
    "23 in another order": (message(UINT8, (1 << 62, 1 << 62, 0)), CorruptError, "64 bits"),
    "26 rank 65": (message(UINT8, (1,) * 65, raw(b"x")), LimitError, "rank"),
    "26 rank 10^6": (message(UINT8, (1,) * 10**6, raw(b"x")), LimitError, "rank"),
    "26 rank 10^6, packed": (field(1, b"\1" * 10**6) + number(2, 2) + raw(b"x"), LimitError, "rank"),
    "27 a dim of four bytes": (tag(1, 5) + bytes(4) + number(2, FLOAT), CorruptError, "wire type 5"),
    "27 a data type of text": (dims(1) + field(2, "x"), CorruptError, "neither a TensorProto"),
    "29 too few bytes": (message(FLOAT, (3,), raw(bytes(11))), CorruptError, "takes 12 bytes, raw_data has 11"),
    "29 too many bytes": (message(FLOAT, (3,), raw(bytes(13))), CorruptError, "takes 12 bytes, raw_data has 13"),
    "29 no values": (message(FLOAT, (3,)), CorruptError, "takes 12 bytes, raw_data has 0"),
    "29 values for none": (message(FLOAT, (0,), raw(bytes(4))), CorruptError, "takes 0 bytes"),
    "29 too few values": (message(FLOAT, (3,), field(4, bytes(8))), CorruptError, "takes 3 values, got 2"),
    "73 too many values": (message(INT64, (1,), field(7, bytes(2))), CorruptError, "takes 1 values, got 2"),
    "72 a large claim": (message(FLOAT, (1 << 40,), field(4, bytes(4))), CorruptError, "values, got 1"),
    "30 unknown data type": (message(99, (1,), raw(b"x")), UnsupportedError, "unknown data type 99"),
    "30 no data type": (message(0, (1,), raw(b"x")), CorruptError, "has no data type"),
    "30 negative data type": (message(-1, (1,), raw(b"x")), UnsupportedError, "unknown data type"),
    "33 bool byte 2": (message(BOOL, (2,), raw(b"\1\2")), CorruptError, "the byte 2"),
    "33 bool value 2": (message(BOOL, (2,), field(5, b"\1\2")), CorruptError, "the value 2 is not a valid bool"),
    "34 dirty padding": (message(INT4, (3,), raw(b"\x11\x11")), CorruptError, "4 bits after the last"),
    "34 dirty padding, 2 bits": (message(UINT2, (5,), raw(b"\0\4")), CorruptError, "6 bits after the last"),
    "34 dirty padding, 6 bits": (message(FLOAT6, (3,), raw(b"\0\0\4")), CorruptError, "6 bits after the last"),
    "34 dirty padding, typed": (message(INT4, (1,), number(5, 16)), CorruptError, "4 bits after the last"),
    "34 odd count": (message(INT4, (3,), raw(b"\x11")), CorruptError, "takes 2 bytes"),
    "34 packed into too few": (message(INT4, (3,), number(5, 1)), CorruptError, "packed into 2"),
    "34 a byte of 256": (message(INT4, (2,), number(5, 256)), CorruptError, "outside 0..255"),
    "34 six bits of 64": (message(FLOAT6, (1,), number(5, 64)), CorruptError, "outside 0..63"),
    "39 half a complex number": (message(14, (1,), field(4, bytes(4))), CorruptError, "odd number"),
    "39 no bytes of a complex number": (message(15, (1,), field(10, bytes(8))), CorruptError, "odd number"),
    "values out of range, int8": (message(INT8, (1,), number(5, 128)), CorruptError, "-128..127"),
    "values out of range, below": (message(INT8, (1,), number(5, -129)), CorruptError, "-128..127"),
    "values out of range, float16": (message(FLOAT16, (1,), number(5, 65536)), CorruptError, "0..65535"),
    "values out of range, uint32": (message(12, (1,), number(11, 1 << 32)), CorruptError, "0..4294967295"),
    "45 a name of bytes": (message(FLOAT, (0,), field(8, b"\xff")), CorruptError, "field 8 is not UTF-8"),
    "45 a key of bytes": (message(FLOAT, (0,), field(16, field(1, b"\xff"))), CorruptError, "not UTF-8"),
    "60 varint of eleven bytes": (b"\x10" + b"\x81" * 10 + b"\1", CorruptError, "longer than ten"),
    "63 field 0": (message(FLOAT, (0,), b"\0\0"), CorruptError, "the number 0"),
    "63 wire type 7": (message(FLOAT, (0,), b"\x57"), CorruptError, "wire type 7"),
    "64 a length past the end": (message(FLOAT, (1,), b"\x4a\x05abcd"), CorruptError, "claims 5 bytes"),
    "64 a length of 2^63": (message(FLOAT, (1,), b"\x4a" + varint(1 << 63)), CorruptError, "claims"),
    "65 groups": (message(FLOAT, (0,), tag(50, START_GROUP) * 101), CorruptError, "deeper than 100"),
    "66 an end without a start": (message(FLOAT, (0,), tag(50, END_GROUP)), CorruptError, "never began"),
    "67 packed floats of 7 bytes": (message(FLOAT, (1,), field(4, bytes(7))), CorruptError, "fill 7 bytes"),
    "67 floats of another width": (message(FLOAT, (1,), tag(4, 1) + bytes(8)), CorruptError, "wire type 1"),
    "74 raw and typed": (message(UINT8, (1,), raw(b"x"), number(5, 1)), CorruptError, "in several places"),
    "74 two typed fields": (message(UINT8, (1,), number(5, 1), number(7, 1)), CorruptError, "in several places"),
    "74 raw and strings": (message(UINT8, (1,), raw(b"x"), field(6, "x")), CorruptError, "in several places"),
    "the wrong typed field": (message(FLOAT, (1,), number(5, 1)), CorruptError, "int32_data, those of float32"),
    "strings for numbers": (message(FLOAT, (1,), field(6, "x")), CorruptError, "several places"),
    "75 too few strings": (message(STRING, (2,), field(6, "x")), CorruptError, "takes 2 strings, got 1"),
    "75 a claim of strings": (message(STRING, (1 << 40,)), CorruptError, "strings, got 0"),
    "strings in raw_data": (message(STRING, (1,), raw(b"x")), CorruptError, "string_data alone"),
    "strings in int32_data": (message(STRING, (1,), number(5, 1)), CorruptError, "string_data alone"),
    "79 metadata twice": (message(FLOAT, (0,), prop("a", "1"), prop("a", "2")), CorruptError, "'a' appears twice"),
    "79 doc_string twice": (message(FLOAT, (0,), prop("onnx.doc_string", "1"), field(12, "2")), CorruptError,
                            "appears twice"),
    "a segment": (message(FLOAT, (1,), field(3, number(1, 0))), UnsupportedError, "a segment"),
    "a location of 2": (message(FLOAT, (1,), number(14, 2)), UnsupportedError, "location 2"),
    "a note of no JSON": (message(FLOAT, (0,), prop("tensorbytes", "{")), CorruptError, "not JSON"),
    "a note of a list": (message(FLOAT, (0,), prop("tensorbytes", "[1]")), CorruptError, "not a JSON object"),
    "a note of an empty list": (message(FLOAT, (0,), prop("tensorbytes", "[]")), CorruptError, "not a JSON object"),
    "a note of null": (message(FLOAT, (0,), prop("tensorbytes", "null")), CorruptError, "not a JSON object"),
    "a note that says too much": (message(FLOAT, (0,), prop("tensorbytes", '{"path":[]}')), CorruptError,
                                  "more than kind"),
    "a note of an unknown encoding": (message(STRING, (0,), prop("tensorbytes", '{"encoding":"x"}')),
                                      CorruptError, "the encoding 'x'"),
    "a kind that is none": (message(FLOAT, (0,), prop("tensorbytes", '{"kind":"eval"}')), CorruptError,
                            "marked as Python 'eval'"),
    "a note on metadata twice": (message(FLOAT, (0,), prop("a", "1"), prop("tensorbytes", '{"meta":{"a":"2"}}')),
                                 CorruptError, "appears twice"),
    "92 external data of bytes": (message(FLOAT, (1,), number(14, 1), field(13, field(1, "location") + field(2, "x"))),
                                  UnsupportedError, "load\\(path\\) reads the model"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_hostile_bytes(case):
    data, error, words = BAD[case]
    with pytest.raises(error, match=words):
        tb.loads(data, "onnx")


def test_large_empty_shapes_are_accepted():
    """24: no bytes are claimed."""
    data = message(FLOAT, (0, 1 << 40), raw(b""))
    assert tb.loads(data, "onnx").shape == (0, 1 << 40)
    same(tb.loads(data, "onnx"), theirs(data))


GOLDEN = {
    "float32": tb.dumps(np.arange(3, dtype=np.float32), "onnx", name="w", meta={"a": "b"}),
    "int4": helper.make_tensor("w", INT4, (3,), [1, -2, 3]).SerializeToString(),
    "uint2 raw": tb.dumps(bits.array("uint2", (5,)), "onnx"),
    "bool": helper.make_tensor("w", BOOL, (2, 2), [True, False, True, True]).SerializeToString(),
    "complex64": helper.make_tensor("w", 14, (2,), [1 + 2j, 3j]).SerializeToString(),
    "int16": helper.make_tensor("w", 5, (2,), [-5, 700]).SerializeToString(),
    "strings": tb.dumps(np.array(["ab", "é"]), "onnx"),
    "a kind": tb.dumps(7, "onnx"),
}


def outcome(data):
    """What comes of some bytes: the neutral value, or our exception. Any other exception leaves here."""
    try:
        return tb.loads(data, "onnx", to="tensor")
    except (CorruptError, LimitError, UnsupportedError) as error:
        return error


@pytest.mark.parametrize("case", GOLDEN)
def test_every_truncation(case):
    for end in range(len(GOLDEN[case])):
        outcome(GOLDEN[case][:end])
        with_error = formats.sniff(GOLDEN[case][:end], end)
        assert with_error in (None, *formats.BUILTIN)


@pytest.mark.parametrize("case", GOLDEN)
def test_every_flipped_bit_is_refused_or_read_as_onnx_reads_it(case):
    agreed = 0
    for position in range(len(GOLDEN[case]) * 8):
        data = bytearray(GOLDEN[case])
        data[position // 8] ^= 1 << position % 8
        made = outcome(bytes(data))
        if not isinstance(made, Tensor):
            continue
        want = theirs(bytes(data))
        assert (made.dtype, made.shape) == (dtypes.from_numpy(want.dtype).name, want.shape)
        assert bits.keep_value_bits(made.dtype, want.tobytes()) == bytes(made.data)
        agreed += 1
    assert agreed or case in ("strings", "a kind")


CHILD = """
import json, resource, sys
import numpy, tensorbytes as tb
from tensorbytes import formats
formats.sniff(b"x", 1)
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
out = {}
for name, (format, text) in json.load(sys.stdin).items():
    try:
        tb.loads(bytes.fromhex(text), format)
        out[name] = "loaded"
    except BaseException as error:
        out[name] = type(error).__name__
print(json.dumps(out))
"""


def verdicts(cases):
    """What a process that may not have the memory makes of some bytes."""
    given = json.dumps({name: (format, data.hex()) for name, (format, data) in cases.items()})
    run = subprocess.run([sys.executable, "-c", CHILD], input=given, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
def test_claims_without_the_memory_for_them():
    pytest.importorskip("resource")  # POSIX only
    cases = {
        name: ("onnx", data)
        for name, data in {
            "floats": message(FLOAT, (1 << 40,), field(4, bytes(4))),
            "raw": message(FLOAT, (1 << 40,), raw(bytes(4))),
            "int4": message(INT4, (1 << 40,), raw(bytes(4))),
            "int4, typed": message(INT4, (1 << 40,), number(5, 1)),
            "strings": message(STRING, (1 << 40,), field(6, "x")),
            "dims": number(1, 1) * (4 << 20) + number(2, FLOAT),
        }.items()
    }
    assert verdicts(cases) == dict.fromkeys(cases, "CorruptError") | {"dims": "LimitError"}
