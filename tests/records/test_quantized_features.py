"""Quantized features of Examples: the schema says how, TensorFlow reads what is stored, we give back what it was."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.ops.quantizing import quantize
from tensorbytes.quantization import Quantize
from tensorbytes.records import Feature, Schema
from tests.support.record_cases import example as made
from tests.support.record_cases import stream
from tests.support.wire_bytes import field
from tests.support.written_records import examples, written

RNG = np.random.default_rng(11)
X = RNG.normal(size=(20, 4, 6)).astype(np.float32)
RAW = [
    "bfloat16",
    "float16",
    "float8_e4m3fn",
    {"dtype": "int16", "scale": 2**-10},
    {"dtype": "uint8", "scale": 0.1, "zero": 128},
    {"dtype": "int4", "scale": 1.0},
]
MEASURED = [
    "int8",
    "uint8",
    {"dtype": "int8", "axis": 0},
    {"dtype": "int8", "group": 4},
    1e-2,
    "bfloat16",
    {"dtype": "int16", "scale": 0.01},
]


def read(path, **options):
    rows = [row["x"] for row in open_records(path, **options)]
    (batch,) = open_records(path, **options).batches(100)
    return rows, batch["x"]


@pytest.mark.parametrize("rows", [True, False], ids=["rows", "batch"])
@pytest.mark.parametrize(
    ("encoding", "spec"), [("raw", s) for s in RAW] + [("tensorproto", s) for s in MEASURED], ids=str
)
def test_what_was_written_comes_back_within_the_error(tmp_path, encoding, spec, rows):
    path = tmp_path / "x.tfrecord"
    schema = {"x": Feature("float32", [4, 6], encoding, quantize=spec)}
    items = {"rows": [{"x": x} for x in X]} if rows else {"batch": {"x": X}}
    written(path, schema=schema, **items)
    singles, batch = read(path)
    assert batch.dtype == np.float32
    assert batch.shape == X.shape
    for x, single, row in zip(X, singles, batch, strict=True):
        done = quantize(x, spec)
        want = done.dequantize().numpy()
        assert single.tobytes() == row.tobytes() == want.tobytes()
        assert np.abs(x.astype(np.float64) - single).max() <= done.cost.max_error
    assert np.abs(X - batch).max() > 0
    other = tmp_path / "other.tfrecord"
    written(other, schema=schema, **({"batch": {"x": X}} if rows else {"rows": [{"x": x} for x in X]}))
    assert other.read_bytes() == path.read_bytes()


def test_tensorflow_reads_raw_with_one_multiplication(tmp_path):
    path = tmp_path / "x.tfrecord"
    written(
        path, schema={"x": Feature("float32", [4, 6], quantize=Quantize("int16", scale=0.01, zero=7))}, batch={"x": X}
    )
    feature = open_records(path).schema["x"]
    parsed = tf.io.parse_example(
        [e.numpy() for e in tf.data.TFRecordDataset(str(path))], Schema({"x": feature}).to_tf()
    )
    integers = tf.io.decode_raw(parsed["x"], tf.int16)
    values = (tf.cast(integers, tf.float32) - feature.quantize.zero) * feature.quantize.scale
    assert values.numpy().tobytes() == read(path)[1].tobytes()


@pytest.mark.parametrize("stored", ["int8", "uint8", "int16", "bfloat16", "float16"])
def test_tensorflow_reads_the_stored_values_of_tensorprotos(tmp_path, stored):
    path = tmp_path / "x.tfrecord"
    written(path, schema={"x": Feature("float32", [4, 6], "tensorproto", quantize=stored)}, batch={"x": X})
    override = {"x": Feature(stored, [4, 6], "tensorproto")}
    ours, batch = read(path, schema=override)
    for x, cells, mine, row in zip(X, examples(path), ours, batch, strict=True):
        theirs = tf.io.parse_tensor(cells["x"][0], getattr(tf, stored)).numpy()
        assert theirs.tobytes() == mine.tobytes() == row.tobytes() == bytes(quantize(x, stored).data.data)


def test_the_stored_values_of_raw_features_on_request(tmp_path):
    path = tmp_path / "x.tfrecord"
    written(path, schema={"x": Feature("float32", [4, 6], quantize={"dtype": "int8", "scale": 0.1})}, batch={"x": X})
    _, batch = read(path, schema={"x": Feature("int8", [4, 6], "raw")})
    np.testing.assert_array_equal(batch, np.rint(X / np.float32(0.1)).astype(np.int8))


@pytest.mark.parametrize("spec", ["int8", {"dtype": "int8", "scale": 0.1}, "bfloat16"], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [[], [3], [None], [None, 2], [0, 3]], ids=str)
def test_every_dtype_and_shape(tmp_path, dtype, shape, spec):
    if dtype in ("float16", "bfloat16") and spec == "bfloat16":
        with pytest.raises(errors.UsageError, match="saves nothing"):
            Feature(dtype, shape, quantize=spec)
        return
    sizes = [[2 + i if n is None else n for n in shape] for i in range(3)]
    arrays = [np.asarray(RNG.uniform(-5, 5, size)).astype(tb.dtypes.to_numpy(dtype)) for size in sizes]
    path = tmp_path / "x.tfrecord"
    written(path, [{"x": x} for x in arrays], schema={"x": Feature(dtype, shape, quantize=spec)})
    rows, batch = read(path)
    for x, got, row in zip(arrays, rows, batch, strict=True):
        want = quantize(x, spec).dequantize().numpy()
        assert np.asarray(got).tobytes() == np.asarray(row).tobytes() == want.tobytes()
        assert np.asarray(got).shape == x.shape


def test_optional_features_and_defaults(tmp_path):
    path = tmp_path / "x.tfrecord"
    for encoding in ("raw", "tensorproto"):
        schema = {
            "a": Feature("float32", [2], encoding, default=[1.0, 2.5], quantize={"dtype": "int8", "scale": 0.5}),
            "b": Feature("float32", [2], encoding, optional=True, quantize={"dtype": "int8", "scale": 0.5}),
        }
        written(path, [{}, {"a": [3.0, 4.0], "b": [0.5, 9.0]}], schema=schema, sync=False)
        rows = list(open_records(path))
        assert rows[0]["a"].tolist() == [1.0, 2.5]
        assert "b" not in rows[0]
        assert [rows[1]["a"].tolist(), rows[1]["b"].tolist()] == [[3.0, 4.0], [0.5, 9.0]]
        parsed = tf.io.parse_example([made()], {"a": Schema(schema).to_tf()["a"]})["a"][0]
        cell = tf.io.decode_raw(parsed, tf.int8) if encoding == "raw" else tf.io.parse_tensor(parsed, tf.int8)
        assert cell.numpy().tolist() == [2, 5]
        (batch,) = open_records(path).batches(5)
        assert batch["a"].tolist() == [[1.0, 2.5], [3.0, 4.0]]
        path.unlink()


def test_steps_of_feature_lists(tmp_path):
    path = tmp_path / "x.tfrecord"
    schema = Schema(
        {}, {"x": Feature("float32", [3], quantize="int8"), "y": Feature("float32", [], quantize="bfloat16")}
    )
    steps = [[X[0, 0, :3], X[0, 1, :3]], [X[1, 0, :3]]]
    written(path, [{"x": s, "y": np.float32([1.1, 2.2])} for s in steps], schema=schema)
    for row, want in zip(open_records(path), steps, strict=True):
        for got, x in zip(row["x"], want, strict=True):
            assert np.asarray(got).tobytes() == quantize(x, "int8").dequantize().numpy().tobytes()
        np.testing.assert_allclose(np.asarray(row["y"]).reshape(-1), [1.1, 2.2], rtol=2**-8)


# ---- the schema -------------------------------------------------------------


def test_json_keeps_it():
    schema = Schema(
        {
            "a": Feature("float32", [3], quantize={"dtype": "int16", "scale": 0.01, "zero": 5}),
            "b": Feature("float64", [3, 4], quantize=Quantize("int8", axis=-1, symmetric=False)),
            "c": Feature("float32", [None], "tensorproto", optional=True, quantize=1e-3),
            "d": Feature("float32", quantize="bfloat16"),
            "e": Feature("float32", [2]),
        }
    )
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert again.to_json() == schema.to_json()
    said = {name: feature.get("quantize") for name, feature in json.loads(schema.to_json())["features"].items()}
    assert said["a"] == {"dtype": "int16", "scale": 0.01, "zero": 5}
    assert said["e"] is None
    assert again["a"].encoding == again["d"].encoding == "raw"
    assert again["b"].encoding == "tensorproto"
    assert eval(repr(schema["b"]), {"Feature": Feature}) == schema["b"]
    assert schema["a"] != Feature("float32", [3], "raw")
    assert schema["a"].describe() == "float32[3] as raw of int16 in steps of 0.01 around 5"
    assert "float64[3, 4]  tensorproto of int8 per index of axis -1" in str(schema)


@pytest.mark.parametrize(
    ("quantized", "what"),
    [
        ('"int8"', "expected an object"),
        ("null", "expected an object"),
        ('{"dtype": "int9"}', "unknown dtype to quantize to"),
        ('{"dtype": "int8", "scale": 0}', "scale must be"),
        ('{"dtype": "int8", "scale": 1e999}', "scale must be"),
        ('{"dtype": "int8", "scale": NaN}', "scale must be"),
        ('{"dtype": "int8", "dtype": "int8"}', "appears twice"),
        ('{"dtype": "int8", "wide": 1}', "unknown option"),
        ('{"dtype": "int8", "axis": 4}', "axis 4 of a feature of 1 dimensions"),
        ('{"dtype": "int8", "symmetric": 1}', "symmetric must be"),
        ('{"dtype": "int8"}', "raw has no room"),
    ],
)
def test_json_is_read_strictly(quantized, what):
    feature = '{"dtype": "float32", "encoding": "raw", "shape": [3], "quantize": %s}'
    text = '{"features": {"x": ' + feature + '}, "tensorbytes.schema": 1}'
    with pytest.raises(errors.SchemaError, match=rf"features\['x'\].*{what}"):
        Schema.from_json(text % quantized)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("int64", [3], "", False, None, "int8"), "int64 can't be quantized"),
        (("text", [3], "", False, None, "int8"), "text can't be quantized"),
        (("float32", [3], "flat", False, None, "bfloat16"), "stored as 'raw' or 'tensorproto', not as 'flat'"),
        (("float32", [3], "raw", False, None, 1e-3), "raw has no room"),
        (("float32", [3], "tensorproto", False, None, "float6_e2m3fn"), "TensorFlow has no such dtype"),
        (("float32", [3], "", False, None, "float32"), "saves nothing"),
        (("float32", [], "", False, None, {"dtype": "int8", "axis": 0}), "axis 0 of a feature of 0"),
        (("float32", [3], "", False, None, "int9"), "unknown dtype"),
    ],
)
def test_what_makes_no_sense_is_refused_early(arguments, what):
    with pytest.raises(errors.UsageError, match=what):
        Feature(*arguments)


def test_merging():
    one = Schema({"x": Feature("float32", [3], quantize="bfloat16")})
    other = Schema({"x": Feature("float32", [4], quantize="bfloat16")})
    assert one.merge(other)["x"] == Feature("float32", [None], quantize="bfloat16")
    for differs in ("float16", {"dtype": "int8", "scale": 0.1}):
        with pytest.raises(errors.SchemaError, match="differ in quantize"):
            one.merge(Schema({"x": Feature("float32", [3], quantize=differs)}))


def test_quantized_tensors_are_recognised_without_a_schema(tmp_path):
    path = tmp_path / "x.tfrecord"
    shapes = [(2, 3), (4, 3)]
    rows = [{"x": RNG.normal(size=s).astype(np.float32), "b": b"abc", "t": np.ones((2, 2))} for s in shapes]
    schema = {
        "x": Feature("float32", [None, 3], quantize={"dtype": "int8", "group": 2}),
        "b": "bytes",
        "t": ("float64", [2, 2]),
    }
    written(path, rows, schema=schema)
    (tmp_path / "x.tfrecord.schema.json").unlink()
    found = tb.records.infer_schema(path)
    assert found["x"] == schema["x"]
    assert (found["b"], found["t"]) == (Feature("bytes"), Feature("bytes"))
    for row, want in zip(open_records(path), rows, strict=True):
        assert row["x"].tobytes() == quantize(want["x"], schema["x"].quantize).dequantize().numpy().tobytes()


def test_what_only_starts_as_quantized_tensors_stays_bytes():
    payload = (
        written_cell("int8", [1.0, 2.0]),
        written_cell("bfloat16", [1.0, 2.0]),
        written_cell("int8", [[1.0], [2.0]]),
    )
    cases = [
        ([payload[0], payload[1]], Feature("float32", [2], "tensorproto")),
        ([payload[0], payload[2]], Feature("bytes")),
        ([payload[0], b"other"], Feature("bytes")),
        ([payload[0], payload[0][:-1]], Feature("bytes")),
    ]
    for cells, want in cases:
        assert tb.records.infer_schema(stream([made(x=[cell]) for cell in cells]))["x"] == want
    assert tb.records.infer_schema(stream([made(x=[payload[0], payload[0]])]))["x"] == Feature("bytes", [2])


def written_cell(spec, values):
    from tensorbytes.formats.tfrecord.schema import quantized

    value = tb.loads(tb.dumps(np.array(values, np.float32)), to="tensor")
    return b"".join(quantized.cell(value, Quantize.of(spec), "tensorproto"))


# ---- what does not fit ------------------------------------------------------


@pytest.mark.parametrize("encoding", ["raw", "tensorproto"])
def test_values_out_of_reach_name_their_record(tmp_path, encoding):
    schema = {"x": Feature("float32", [2], encoding, quantize={"dtype": "int8", "scale": 0.1})}
    good, bad = np.float32([1, 2]), np.float32([1, 99])
    with pytest.raises(
        errors.SchemaError, match=r"record 1.*'x'.*99.0: int8 with a scale of 0.1 goes from -12.8 to 12.7"
    ):
        written(tmp_path / "a", [{"x": good}, {"x": bad}], schema=schema)
    with pytest.raises(errors.SchemaError, match=r"record 2.*'x'.*99.0: int8"):
        written(tmp_path / "b", batch={"x": np.stack([good, good, bad])}, schema=schema)
    with pytest.raises(errors.SchemaError, match=r"'x'.*nan"):
        written(tmp_path / "c", [{"x": good * np.nan}], schema=schema)


def test_a_bound_that_is_not_kept_names_the_record(tmp_path):
    schema = {"x": Feature("float32", [2], "tensorproto", quantize={"dtype": "int8", "max_error": 0.01})}
    with pytest.raises(errors.SchemaError, match=r"record 1.*'x'.*over the bound of 0.01"):
        written(tmp_path / "a", batch={"x": np.float32([[1, 2], [0.37, 100]])}, schema=schema)


def test_other_dtypes_are_not_cast(tmp_path):
    with pytest.raises(errors.SchemaError, match="arrays are not cast with loss"):
        written(tmp_path / "a", [{"x": np.ones(2)}], schema={"x": Feature("float32", [2], quantize="int8")})


@pytest.mark.parametrize("place", range(0, 60, 3))
def test_damaged_cells_are_refused_or_read_as_what_they_say(place):
    cell = bytearray(written_cell({"dtype": "int8", "group": 2, "symmetric": False}, RNG.normal(size=5)))
    for value in range(0, 256, 5):
        damaged = bytes(cell[:place] + bytes([value]) + cell[place + 1 :])
        data = stream([made(x=[damaged])])
        try:
            (row,) = open_records(data, schema={"x": Feature("float32", [5], "tensorproto")})
            assert row["x"].shape == (5,)
        except errors.TensorbytesError as error:
            assert "record 0: feature 'x'" in str(error)  # noqa: PT017 - the other outcome


def test_a_schema_of_another_dtype_is_an_error():
    data = stream([made(x=[written_cell("int8", [1.0, 2.0])])])
    with pytest.raises(errors.SchemaError, match="is a TensorProto of float32"):
        list(open_records(data, schema={"x": Feature("float64", [2], "tensorproto")}))


# ---- many cells at once -----------------------------------------------------

SPECS = ["int8", "uint8", "int4", {"dtype": "int8", "group": 4}, {"dtype": "uint8", "group": 3}, "bfloat16"]
CELLS = {str(spec): [written_cell(spec, x) for x in X] for spec in SPECS}


def column(cells, dtype="float32"):
    schema = {"x": Feature(dtype, [4, 6], "tensorproto")}
    (batch,) = open_records(stream([made(x=[cell]) for cell in cells]), schema=schema).batches(100)
    return batch["x"]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_cells_read_together_are_those_read_one_by_one(spec, monkeypatch):
    from tensorbytes.formats.tfrecord.schema import quantized

    cells, stored = CELLS[str(spec)], Quantize.of(spec).dtype
    together, integers, calls = column(cells), column(cells, stored), []
    real = quantized.alike
    monkeypatch.setattr(quantized, "alike", lambda *args: calls.append(real(*args)))
    assert together.tobytes() == column(cells).tobytes()
    assert integers.tobytes() == column(cells, stored).tobytes()
    assert [found.shape for found in calls] == [X.shape] * 2  # it did read them together, each time


@pytest.mark.parametrize("spec", ["int8", {"dtype": "uint8", "group": 3}], ids=str)
def test_a_damaged_cell_among_many(spec):
    """Each byte of one cell is changed: the others come back as they were, or the error names that record."""
    cells, want = CELLS[str(spec)], column(CELLS[str(spec)])
    for place in range(len(cells[7])):
        damaged = bytearray(cells[7])
        damaged[place] ^= 0x81
        changed = [*cells[:7], bytes(damaged), *cells[8:]]
        try:
            got = column(changed)
        except errors.TensorbytesError as error:
            assert "record 7: feature 'x'" in str(error)  # noqa: PT017 - the other outcome
            with pytest.raises(errors.TensorbytesError):
                column([bytes(damaged)])
        else:
            assert got[[*range(7), *range(8, 20)]].tobytes() == want[[*range(7), *range(8, 20)]].tobytes()
            assert got[7].tobytes() == column([bytes(damaged)]).tobytes()


def test_parameters_that_make_no_sense_among_many():
    cells = CELLS["int8"]
    scale = quantize(X[3], "int8").parameters.scales.tobytes()
    for bad in (b"\0\0\0\0", b"\0\0\x80\x7f", b"\0\0\x80\xbf"):
        changed = [*cells[:3], cells[3].replace(scale, bad), *cells[4:]]
        with pytest.raises(errors.SchemaError, match=r"record 3: feature 'x'.*not a finite number above 0"):
            column(changed)


def test_values_in_typed_fields():
    """TensorFlow may write integers as int_val; with the parameters beside them they are values all the same."""
    x = np.float32([[1, 2, 3]])
    done = quantize(x, "int8")
    message = tf.make_tensor_proto(done.data.numpy())
    message.ClearField("tensor_content")
    message.int_val.extend(done.data.numpy().ravel().tolist())
    from tensorbytes.formats import _extension, _quantized

    cell = message.SerializeToString() + field(_extension.QUANTIZATION, _quantized.encode(done.parameters))
    schema = {"x": Feature("float32", [1, 3], "tensorproto")}
    (batch,) = open_records(stream([made(x=[cell])] * 3), schema=schema).batches(9)
    assert batch["x"].tobytes() == done.dequantize().numpy().tobytes() * 3
