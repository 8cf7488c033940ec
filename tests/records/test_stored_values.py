"""Values against their schema: given, beside the file or inferred; what is missing, and every encoding."""

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.records import Feature, Schema, infer_schema
from tests.support.example_bytes import FLOAT, INT64, by_entries
from tests.support.record_cases import example as made
from tests.support.record_cases import expected, floats, items_of, plain_rows, stream, write
from tests.support.wire_bytes import field, number

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
    """Records of `first`, and one that differs."""
    filler = made(**{**first, "fill": [bytes(10_000)]})
    return [filler] * 450, made(**{**second, "fill": [b""]})


# Between the places that are looked at of a file of 4.5 MB: after its first MiB, and far from the next ones.
HIDDEN = 150


LATER = {
    "a longer list": (
        {"a": [1]},
        {"a": [1, 2]},
        "record 150: feature 'a' has 2 values; the schema inferred from",
    ),
    "another kind": ({"a": [1]}, {"a": [1.0]}, "record 150: feature 'a' is a list of float"),
    "missing": ({"a": [1]}, {}, "record 150: feature 'a' is missing"),
    "a new feature": ({"a": [1]}, {"a": [1], "b": [1]}, "record 150 has a feature 'b', which the schema inferred"),
}


@pytest.mark.parametrize("case", LATER)
def test_a_record_that_contradicts_the_inferred_schema(tmp_path, case):
    first, second, match = LATER[case]
    payloads, odd = later(first, second)
    path = write(tmp_path / "x", [*payloads[:HIDDEN], odd, *payloads[HIDDEN:]])
    with pytest.raises(errors.SchemaError, match=match) as caught:
        list(open_records(path, threads=1))
    assert (caught.value.record, caught.value.tensor) == (HIDDEN, "b" if case == "a new feature" else "a")
    assert "infer_schema" in str(caught.value)
    if case != "another kind":
        assert plain_rows(open_records(path, schema=infer_schema(path)))[HIDDEN] == expected([odd])[0]
    else:
        with pytest.raises(errors.SchemaError, match=r"record 150: feature 'a' is a list of float32; .*int64"):
            infer_schema(path)


@pytest.mark.parametrize("case", [case for case in LATER if case != "another kind"])
def test_what_the_last_record_has_is_in_the_schema(tmp_path, case):
    first, second, _ = LATER[case]
    payloads, odd = later(first, second)
    path = write(tmp_path / "x", [*payloads, odd])
    assert plain_rows(open_records(path))[-2:] == expected([payloads[0], odd])


def test_lists_in_a_later_block_are_not_passed_over(tmp_path):
    payloads, _ = later({"a": [1]}, {})
    lists = tf.train.SequenceExample.FromString(payloads[0])
    lists.feature_lists.feature_list["steps"].feature.add().int64_list.value.append(5)
    path = write(tmp_path / "x", [*payloads[:HIDDEN], lists.SerializeToString(), *payloads[HIDDEN:]])
    with pytest.raises(errors.SchemaError, match="record 150 has a feature list 'steps'"):
        list(open_records(path))
    usual = lists.SerializeToString()
    features = len(usual) - len(field(2, lists.feature_lists.SerializeToString()))
    for odd in (usual[features:] + usual[:features], usual + number(9, 1)):
        write(path, [*payloads[:HIDDEN], odd, *payloads[HIDDEN:]])
        with pytest.raises(errors.SchemaError, match="record 150 has a feature list 'steps'"):
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
