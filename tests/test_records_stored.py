"""Values against their schema: given, beside the file or inferred; what is missing, and every encoding."""

import base64

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from example_bytes import FLOAT, INT64, by_entries
from record_cases import example as made
from record_cases import expected, floats, items_of, plain_rows, rows_of, stream, write
from tensorbytes import Feature, Schema, errors, infer_schema, open_records
from wire_bytes import field, number, tensor

# ---- the schema: given, beside the file, inferred ---------------------------------------


def fails(payloads, schema, match):
    with pytest.raises(errors.SchemaError, match=match) as caught:
        list(open_records(stream(payloads), schema=schema).batches(100))
    assert "<BytesIO>" in str(caught.value)


MISFITS = {
    "another kind": ([made(a=[1]), made(a=[1.0])], {"a": "int64"}, "record 1: feature 'a' is a list of float; .*int64"),
    "a list too long": ([made(a=[1]), made(a=[1, 2])], {"a": "int64"}, "record 1: feature 'a' has 2 values; .*int64"),
    "a list too short": (
        [made(a=[1.0])],
        {"a": ("float32", [2])},
        r"record 0: feature 'a' has 1 values; .*float32\[2\]",
    ),
    "an empty list": ([made(a=(INT64,))], {"a": "int64"}, "record 0: feature 'a' has 0 values"),
    "strings too few": ([made(a=[b"x"])], {"a": ("bytes", [2])}, r"record 0: feature 'a' has 1 values; .*bytes\[2\]"),
    "missing": ([made(a=[1]), made(b=[1])], {"a": "int64"}, "record 1: feature 'a' is missing; the schema says int64"),
    "no kind": ([made(a=[1]), made(a=None)], {"a": "int64"}, "record 1: feature 'a' is missing"),
    "no multiple": ([made(a=[1] * 7)], {"a": ("int64", [None, 2])}, "has 7 values, not a multiple of 2"),
    "no multiple of strings": ([made(a=[b""] * 3)], {"a": ("bytes", [None, 2])}, "has 3 values, not a multiple of 2"),
    "int8": ([made(a=[127]), made(a=[128])], {"a": "int8"}, "record 1: feature 'a' holds 128; .*int8"),
    "int8 of many": ([made(a=[1, 2, -129])], {"a": ("int8", [None])}, "record 0: feature 'a' holds -129"),
    "uint8": ([made(a=[-1])], {"a": "uint8"}, "record 0: feature 'a' holds -1; .*uint8"),
    "uint32": ([made(a=[1 << 32])], {"a": "uint32"}, "holds 4294967296"),
    "bool": ([made(a=[1]), made(a=[0]), made(a=[2])], {"a": "bool"}, "record 2: feature 'a' holds 2; .*bool"),
    "int4": ([made(a=[7, 8])], {"a": ("int4", [2])}, "holds 8"),
    "float16": ([made(a=[0.5]), made(a=[1e6])], {"a": "float16"}, "record 1: feature 'a' holds 1000000.0; .*float16"),
    "float16, inexact": ([made(a=[0.1])], {"a": "float16"}, "holds 0.1"),
    "bfloat16": ([made(a=[1.001])], {"a": "bfloat16"}, "holds 1.00"),
    "a negative zero": ([made(a=[-0.0])], {"a": "float8_e4m3fnuz"}, "holds -0.0"),
    "infinity": ([made(a=floats(0x7F800000))], {"a": "float8_e4m3fn"}, "holds inf"),
    "in an optional feature": (
        [made(), made(a=[300])],
        {"a": Feature("int8", optional=True)},
        "record 1: .* holds 300",
    ),
    "beside a default": ([made(), made(a=[300])], {"a": Feature("int8", default=1)}, "record 1: .* holds 300"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_named(case):
    fails(*MISFITS[case])


FITS = {
    "bool": ([0, 1], "bool"),
    "int8": ([-128, 127], "int8"),
    "uint32": ([0, (1 << 32) - 1], "uint32"),
    "int2": ([-2, 1], "int2"),
    "float16": (floats(0x80000000, 0x7FC00000, 0x7F800000, 0x38000000), "float16"),
    "bfloat16": (floats(0x80000000, 0x7F800000, 0x3F810000), "bfloat16"),
    "float8_e5m2": ([0.25, -0.0, 57344.0], "float8_e5m2"),
    "float4_e2m1fn": ([0.5, -6.0, -0.0], "float4_e2m1fn"),
}


@pytest.mark.parametrize("case", FITS)
def test_narrow_dtypes_are_restored(case):
    values, dtype = FITS[case]
    want = np.array(values, np.float32 if isinstance(values[0], float) else np.int64).astype(tb.dtypes.to_numpy(dtype))
    for shape in ([len(values)], [None]):
        (row,) = open_records(stream([made(a=values)]), schema={"a": (dtype, shape)})
        assert row["a"].dtype == want.dtype
        assert row["a"].tobytes() == want.tobytes()


def test_shapes_are_restored():
    payloads = [
        made(a=list(range(6)), b=[float(x) for x in range(4 * i)] or (FLOAT,), c=[b"w", b"x"] * 2) for i in range(3)
    ]
    schema = {"a": ("int64", [2, 3]), "b": ("float32", [None, 2, 2]), "c": ("bytes", [2, 2])}
    rows = list(open_records(stream(payloads), schema=schema))
    assert [row["a"].shape for row in rows] == [(2, 3)] * 3
    assert [row["b"].shape for row in rows] == [(0, 2, 2), (1, 2, 2), (2, 2, 2)]
    assert [row["c"].tolist() for row in rows] == [[[b"w", b"x"]] * 2] * 3
    (batch,) = open_records(stream(payloads), schema=schema).batches(9)
    assert (batch["a"].shape, batch["b"].values.shape, batch["c"].shape) == ((3, 2, 3), (3, 2, 2), (3, 2, 2))
    assert batch["b"].splits[0].tolist() == [0, 0, 1, 3]
    inner = open_records(stream(payloads), schema={"b": ("float32", [2, None, 2])})
    (batch,) = inner.batches(9)
    assert batch["b"].shapes.tolist() == [[2, 0, 2], [2, 1, 2], [2, 2, 2]]
    assert [row["b"].shape for row in open_records(stream(payloads), schema=inner.schema)] == [
        (2, i, 2) for i in range(3)
    ]
    strings = open_records(stream(payloads), schema={"c": ("bytes", [None, 2])})
    (batch,) = strings.batches(9)
    assert (batch["c"].values.shape, batch["c"].splits[0].tolist()) == ((6, 2), [0, 2, 4, 6])


def test_the_schema_beside_the_file_is_used_and_closed(tmp_path):
    path = write(tmp_path / "x", [made(a=[1], b=[b"h\xc3\xb6"]), made(a=[2], b=[b"x"])])
    Schema({"a": "int8", "b": "text"}).save(path + ".schema.json")
    assert list(open_records(path)) == [{"a": np.int8(1), "b": "hö"}, {"a": np.int8(2), "b": "x"}]
    assert next(iter(open_records(path)))["a"].dtype == np.int8
    Schema({"a": "int8"}).save(path + ".schema.json")
    with pytest.raises(
        errors.SchemaError, match="record 0 has a feature 'b', which the schema file beside it does not"
    ):
        list(open_records(path))
    assert [row["a"] for row in open_records(path, columns=["a"])] == [1, 2]
    assert list(open_records(path, schema={"b": "bytes"})) == [{"b": b"h\xc3\xb6"}, {"b": b"x"}]


def later(first, second):
    """Records of `first` that fill a block, then one that differs."""
    filler = made(**{**first, "fill": [bytes(1 << 20)]})
    return [filler] * 6, made(**{**second, "fill": [b""]})


LATER = {
    "a longer list": (
        {"a": [1]},
        {"a": [1, 2]},
        "record 6: feature 'a' has 2 values; the schema inferred from the first",
    ),
    "another kind": ({"a": [1]}, {"a": [1.0]}, "record 6: feature 'a' is a list of float"),
    "missing": ({"a": [1]}, {}, "record 6: feature 'a' is missing"),
    "a new feature": ({"a": [1]}, {"a": [1], "b": [1]}, "record 6 has a feature 'b', which the schema inferred"),
}


@pytest.mark.parametrize("case", LATER)
def test_a_later_block_that_contradicts_the_inferred_schema(tmp_path, case):
    first, second, match = LATER[case]
    payloads, last = later(first, second)
    path = write(tmp_path / "x", [*payloads, last])
    with pytest.raises(errors.SchemaError, match=match):
        list(open_records(path, threads=1))
    if case != "another kind":
        assert plain_rows(open_records(path, schema=infer_schema(path)))[-1] == expected([last])[0]
    else:
        with pytest.raises(errors.SchemaError, match=r"record 6: feature 'a' is a list of float32; .*int64"):
            infer_schema(path)


def test_lists_in_a_later_block_are_not_passed_over(tmp_path):
    payloads, _ = later({"a": [1]}, {})
    lists = tf.train.SequenceExample.FromString(payloads[0])
    lists.feature_lists.feature_list["steps"].feature.add().int64_list.value.append(5)
    path = write(tmp_path / "x", [*payloads, lists.SerializeToString()])
    with pytest.raises(errors.SchemaError, match="record 6 has a feature list 'steps'"):
        list(open_records(path))
    assert infer_schema(path).lists["steps"].optional


def test_a_feature_that_later_blocks_lack_is_optional(tmp_path):
    payloads, last = later({"a": [1]}, {})
    schema = infer_schema(write(tmp_path / "x", [*payloads, last, *payloads]))
    assert schema["a"] == Feature("int64", optional=True)
    assert infer_schema([stream([made(a=[1])]), stream([made(b=[1])]), stream([made(a=None)])]) == Schema(
        {"a": Feature("int64", optional=True), "b": Feature("int64", optional=True)}
    )


def test_features_are_counted_once_where_the_general_parser_helps():
    odd = field(1, field(1, field(1, "b") + field(2, field(3, number(2, 5) + number(1, 1)))))
    payloads = [made(a=[1]), odd, made(b=[2])]
    assert infer_schema(stream(payloads)) == Schema(
        {"a": Feature("int64", optional=True), "b": Feature("int64", optional=True)}
    )
    assert plain_rows(open_records(stream(payloads))) == expected(payloads)


def test_thousands_of_names_are_inferred():
    payloads = [made(**{f"name {i}": [i]}) for i in range(1500)]
    schema = infer_schema(stream(payloads))
    assert len(schema) == 1500
    assert all(feature == Feature("int64", optional=True) for feature in schema.values())


def test_a_wrong_schema_is_refused_before_reading(tmp_path):
    path = write(tmp_path / "x", [made(a=[1])])
    with pytest.raises(errors.UnsupportedError, match="column 'a' can't be read: NumPy has no dtype for qint8"):
        open_records(path, schema={"a": "qint8"})
    with pytest.raises(errors.UnsupportedError, match="strings, may vary in their first dimension only"):
        open_records(path, schema={"a": {"dtype": "text", "shape": [2, None]}})


# ---- optional features and defaults --------------------------------------------------


OPTIONAL = {
    "scalar": ([3], "int64", []),
    "vector": ([3, 4], "int64", [2]),
    "matrix": ([1.0, 2.0, 3.0, 4.0], "float32", [2, 2]),
    "varying": ([3, 4, 5], "int16", [None]),
    "varying rows": ([3, 4, 5, 6], "int64", [None, 2]),
    "varying columns": ([3, 4, 5, 6], "int64", [2, None]),
    "string": ([b"x"], "bytes", []),
    "strings": ([b"x", b""], "text", [2]),
    "matrix of strings": ([b"a", b"b", b"c", b"d"], "text", [2, 2]),
    "varying strings": ([b"x", b"", b"z"], "bytes", [None]),
}


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if b.dtype.kind in "OSU":
        return a.shape == b.shape and a.tolist() == b.tolist()
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("case", OPTIONAL)
def test_optional_features_without_a_default(case):
    values, dtype, shape = OPTIONAL[case]
    payloads = [made(x=values, n=[0]), made(n=[1]), made(x=None, n=[2]), made(x=values, n=[3])]
    (want,) = (row["x"] for row in open_records(stream(payloads[:1]), schema={"x": (dtype, shape)}))
    schema = {"x": Feature(dtype, shape, optional=True), "n": "int64"}
    rows = list(open_records(stream(payloads), schema=schema))
    assert ["x" in row for row in rows] == [True, False, False, True]
    assert all(same(row["x"], want) for row in rows if "x" in row)
    for chosen in (payloads, payloads[:1], payloads[1:2]):  # the form does not depend on what happens to be there
        (batch,) = open_records(stream(chosen), schema=schema).batches(9)
        assert isinstance(batch["x"], tb.Ragged)
        assert batch.present["x"].tolist() == [
            b"x" in payload and bool(by_entries(payload, False)["x"][0]) for payload in chosen
        ]
        assert len(batch["x"]) == len(chosen)
        for item, there in zip(batch["x"].rows(), batch.present["x"], strict=True):
            flat, whole = np.asarray(item).reshape(-1), np.asarray(want).reshape(-1)
            assert flat.tolist() == (whole.tolist() if there else [])
    assert [list(b.present["x"]) for b in open_records(stream(payloads), schema=schema).batches(3)] == [
        [True, False, False],
        [True],
    ]


@pytest.mark.parametrize("encoding", ["flat", "tensorproto", "raw", "base64"])
@pytest.mark.parametrize("shape", [[], [2], [2, 1], [0]], ids=str)
def test_defaults_of_every_dtype(encoding, shape):
    tried = 0
    for dtype in ["text", "bytes", *tb.dtypes.DTYPES]:
        value = {"text": "é", "bytes": b"\xff", "bool": True}.get(dtype, 1)
        try:
            one = Feature(dtype, shape, encoding, default=value)
        except errors.UsageError:
            continue
        full = Feature(dtype, shape, encoding, default=one.default_array().tolist())
        tried += 1
        for feature in (one, full):
            rows = [row["x"] for row in open_records(stream([made(n=[1]), made(x=None)]), schema={"x": feature})]
            (batch,) = open_records(stream([made(), made()]), schema={"x": feature}).batches(2)
            assert batch.present["x"].tolist() == [False, False]
            for got in (*rows, *items_of(batch["x"])):
                assert np.shape(got) == tuple(shape)
                assert same(got, feature.default_array()), (dtype, got)
    assert tried >= {"flat": 20, "tensorproto": 20, "raw": 20, "base64": 2}[encoding]


def test_defaults_stand_in_only_where_the_feature_is_missing():
    payloads = [made(a=[5], s=[b"x", b"y"]), made(), made(a=[7], s=[b"", b""])]
    schema = {"a": Feature("int8", default=-1), "s": Feature("text", [2], default=["p", "q"])}
    records = open_records(stream(payloads), schema=schema)
    (batch,) = records.batches(3)
    assert batch["a"].tolist() == [5, -1, 7]
    assert batch["s"].numpy().tolist() == [["x", "y"], ["p", "q"], ["", ""]]
    assert batch.present["a"].tolist() == [True, False, True]


# ---- other encodings ------------------------------------------------------------------


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
    "no TensorProto": (b"\x08\x01\x12", Feature("float32", [1], "tensorproto"), "is no sound TensorProto"),
    "another dtype": (serialized(np.zeros(2, np.int32)), Feature("float64", [2]), "is a TensorProto of int32"),
    "strings": (serialized(np.array([b"x"], object)), Feature("float64", [1]), "is a TensorProto of bytes"),
    "another shape": (serialized(np.zeros(3)), Feature("float64", [2]), r"of the shape \[3\]"),
    "another rank": (serialized(np.zeros(2)), Feature("float64", [None, None]), r"of the shape \[2\]"),
    "raw of odd size": (bytes(5), Feature("float64", [None], "raw"), "has 5 bytes, not a multiple of 8"),
    "raw too short": (bytes(8), Feature("float64", [2], "raw"), "has 1 values"),
    "a raw bool": (b"\x01\x02", Feature("bool", [2], "raw"), "holds the byte 2, which is no bool"),
    "a raw int4": (b"\x0f\x10", Feature("int4", [2], "raw"), "holds the byte 16, which is no int4"),
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


@pytest.mark.slow
def test_small_protos_can_not_claim_more_than_the_limit():
    claim = tf.compat.v1.make_tensor_proto(1.0, tf.float64, [1 << 25]).SerializeToString()  # 256 MiB each
    with pytest.raises(errors.LimitError, match="record 4: feature 'x'"):
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
