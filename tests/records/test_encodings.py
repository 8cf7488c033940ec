"""Tensors and text inside lists of bytes: TensorProtos of TensorFlow, raw, base64, UTF-8."""

import base64

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.records import Feature
from tests.support.record_cases import example as made
from tests.support.record_cases import rows_of, stream
from tests.support.wire_bytes import field, tensor

NUMPY = [name for name, row in tb.dtypes.DTYPES.items() if row.numpy and row.numpy not in ("datetime64", "timedelta64")]
SHAPES = {"scalar": [], "fixed": [2, 3], "empty": [0, 3], "varying": [None], "n-D": [None, 2], "any": [None, None]}


def array(dtype, shape, seed=0):
    """Values of a dtype, with every bit pattern that it may have."""
    row = tb.dtypes.get(dtype)
    count = int(np.prod(shape)) if shape else 1
    raw = np.random.default_rng(seed).integers(0, 256, count * row.itemsize, np.uint8)
    if row.bits < 8:
        raw &= row.value_mask
    if dtype == "bool":
        raw &= 1
    return raw.view(tb.dtypes.to_numpy(dtype)).reshape(shape)


def shapes_of(shape):
    return [[2 + i % 2 if n is None else n for n in shape] for i in range(3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("encoding", ["tensorproto", "raw"])
def test_tensors_of_every_dtype(encoding, shape):
    sizes = SHAPES[shape]
    tried = 0
    for dtype in NUMPY:
        try:
            feature = Feature(dtype, sizes, encoding)
        except errors.UsageError:
            continue
        tried += 1
        arrays = [array(dtype, each, i) for i, each in enumerate(shapes_of(sizes))]
        cells = [x.tobytes() if encoding == "raw" else serialized(x) for x in arrays]
        payloads = [made(x=[cell]) for cell in cells]
        rows = [row["x"] for row in open_records(stream(payloads), schema={"x": feature})]
        (batch,) = open_records(stream(payloads), schema={"x": feature}).batches(9)
        for want, *others in zip(arrays, rows, [row["x"] for row in rows_of(batch)], strict=True):
            for got in others:
                assert np.asarray(got).dtype == want.dtype
                assert np.asarray(got).shape == want.shape
                assert np.asarray(got).tobytes() == want.tobytes(), dtype
        assert isinstance(batch["x"], tb.Ragged if None in sizes else np.ndarray)
    assert tried >= (15 if shape != "any" else 0)


def serialized(x):
    """TensorFlow's own bytes; of dtypes that its kernel lacks, those of its Python code, or by hand."""
    try:
        return tf.io.serialize_tensor(tf.constant(x)).numpy()
    except tf.errors.NotFoundError:
        pass
    try:
        return tf.make_tensor_proto(x).SerializeToString()
    except TypeError:
        return tensor(tb.dtypes.from_numpy(x.dtype).code, x.shape, field(4, x.tobytes()) if x.size else b"")


def test_tensorprotos_that_are_not_alike():
    """Values in typed fields, other forms of the same header, and one value for all."""
    dense = np.arange(4, dtype=np.float32)
    protos = [
        tf.io.serialize_tensor(dense).numpy(),
        tf.make_tensor_proto(dense.tolist(), tf.float32).SerializeToString(),
        tf.compat.v1.make_tensor_proto(2.0, tf.float32, [4]).SerializeToString(),
    ]
    for feature, order in (
        (Feature("float32", [4], "tensorproto"), 1),
        (Feature("float32", [None], "tensorproto"), -1),
    ):
        payloads = [made(x=[proto]) for proto in protos[::order]]
        got = [row["x"].tolist() for row in open_records(stream(payloads), schema={"x": feature})]
        assert got == [dense.tolist(), dense.tolist(), [2.0] * 4][::order]


def test_tensors_of_strings():
    cells = [tf.io.serialize_tensor(tf.constant(x)).numpy() for x in ([["a", "é"]], [["", "zz"]])]
    payloads = [made(x=[cell]) for cell in cells]
    schema = {"x": Feature("text", [1, 2], "tensorproto")}
    assert [row["x"].tolist() for row in open_records(stream(payloads), schema=schema)] == [[["a", "é"]], [["", "zz"]]]
    (batch,) = open_records(stream(payloads), schema=schema).batches(2)
    assert batch["x"].numpy().tolist() == [[["a", "é"]], [["", "zz"]]]
    flat = [made(x=[tf.io.serialize_tensor(tf.constant(x)).numpy()]) for x in (["a"], [b"\xff", "c"])]
    schema = {"x": Feature("bytes", [None], "tensorproto", optional=True)}
    assert [row.get("x") for row in open_records(stream([*flat, made()]), schema=schema)] == [
        [b"a"],
        [b"\xff", b"c"],
        None,
    ]
    with pytest.raises(errors.SchemaError, match="record 1: feature 'x' is not UTF-8"):
        list(open_records(stream(flat), schema={"x": Feature("text", [None], "tensorproto")}))


WRONG_TENSORS = {
    "no TensorProto": (b"\x08\x01\x12", Feature("float32", [1], "tensorproto"), "is not a sound TensorProto"),
    "another dtype": (serialized(np.zeros(2, np.int32)), Feature("float64", [2]), "is a TensorProto of int32"),
    "strings": (serialized(np.array([b"x"], object)), Feature("float64", [1]), "is a TensorProto of bytes"),
    "another shape": (serialized(np.zeros(3)), Feature("float64", [2]), r"of the shape \[3\]"),
    "another rank": (serialized(np.zeros(2)), Feature("float64", [None, None]), r"of the shape \[2\]"),
    "raw of odd size": (bytes(5), Feature("float64", [None], "raw"), "has 5 bytes, not a multiple of 8"),
    "raw too short": (bytes(8), Feature("float64", [2], "raw"), "has 1 values"),
    "a raw bool": (b"\x01\x02", Feature("bool", [2], "raw"), "holds the byte 2, which is not a valid bool"),
    "a raw int4": (b"\x0f\x10", Feature("int4", [2], "raw"), "holds the byte 16, which is not a valid int4"),
    "no base64": (b"a*==", Feature("bytes", [], "base64"), "is not base64"),
    "base64 of no text": (base64.b64encode(b"\xff"), Feature("text", [], "base64"), "is not UTF-8"),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
@pytest.mark.parametrize("optional", [False, True])
def test_tensors_that_do_not_fit_are_named(case, optional):
    cell, feature, match = WRONG_TENSORS[case]
    schema = {"x": Feature(feature.dtype, feature.shape, feature.encoding, optional=optional)}
    payloads = [made() if optional else good(feature), made(x=[cell])]
    with pytest.raises(errors.SchemaError, match=f"record 1: feature 'x' .*{match}.*; the schema says"):
        list(open_records(stream(payloads), schema=schema))


def good(feature):
    """A record that fits."""
    shape = [2 if n is None else n for n in feature.shape]
    if feature.encoding == "base64":
        return made(x=[base64.b64encode(b"fine")])
    x = np.zeros(shape, tb.dtypes.to_numpy(feature.dtype))
    return made(x=[x.tobytes() if feature.encoding == "raw" else serialized(x)])


@pytest.mark.deep
def test_small_protos_can_not_claim_more_than_the_limit():
    claim = tf.compat.v1.make_tensor_proto(1.0, tf.float64, [1 << 25]).SerializeToString()  # 256 MiB each
    with pytest.raises(errors.LimitError, match="record 2: feature 'x'"):  # joining two of them takes all of it
        list(open_records(stream([made(x=[claim])] * 6), schema={"x": Feature("float64", [None])}))


def test_base64():
    values = [b"", b"\x00\xff", "é".encode()]
    payloads = [made(x=[base64.b64encode(value)], y=[base64.b64encode("é".encode())] * 2) for value in values]
    schema = {"x": Feature("bytes", [], "base64"), "y": Feature("text", [None], "base64")}
    rows = list(open_records(stream(payloads), schema=schema))
    assert [row["x"] for row in rows] == values
    assert [row["y"] for row in rows] == [["é", "é"]] * 3


TEXTS = {
    "in the middle": [b"a", b"b\xffc", b"d"],
    "at a border": [b"a\xc3", b"\xa9b"],
    "across an empty one": [b"a\xc3", b"", b"\xa9b"],
    "at the end": [b"a", b"\xe2\x82"],
    "a surrogate": [b"\xed\xa0\x80"],
    "a start only": [b"x", b"\x80"],
}


@pytest.mark.parametrize("case", TEXTS)
def test_text_must_be_utf8_in_each_string(case):
    values = TEXTS[case]
    bad = next(i for i, value in enumerate(values) if not valid(value))
    with pytest.raises(errors.SchemaError, match=f"record {bad}: feature 'x' is not UTF-8: .*; the schema says text"):
        list(open_records(stream([made(x=[value]) for value in values]), schema={"x": "text"}).batches(9))
    with pytest.raises(errors.SchemaError, match="record 0: feature 'x' is not UTF-8"):
        list(open_records(stream([made(x=values)]), schema={"x": ("text", [None])}))


def valid(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
