"""to_arrow() against arrays that pyarrow builds from plain Python values."""

import numpy as np
import pytest
import tensorflow as tf

from tensorbytes import errors, open_records
from tensorbytes.records import Feature, parse_examples
from tests.support.example_bytes import BYTES, FLOAT, INT64
from tests.support.record_cases import example as made
from tests.support.record_cases import sequence, stream, write

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def table(payloads, schema, size=65536, **options):
    return open_records(stream(payloads), schema=schema, **options).to_arrow(size).read_all()


def column(payloads, feature, size=65536):
    """The column x as one array."""
    found = table(payloads, {"x": feature}, size)
    found.validate(full=True)
    return found.column("x").combine_chunks()


def same(got, values, kind):
    want = pa.array(values, kind)
    got.validate(full=True)
    assert got.type == kind
    assert got.equals(want), (got, want)


def lists(kind):
    return pa.large_list(kind)


PLAIN = {
    "int64": ([1], "int64", 1, pa.int64()),
    "int8": ([-5], "int8", -5, pa.int8()),
    "uint32": ([1 << 31], "uint32", 1 << 31, pa.uint32()),
    "bool": ([1], "bool", True, pa.bool_()),
    "float32": ([0.5], "float32", 0.5, pa.float32()),
    "float16": ([0.5], "float16", np.float16(0.5), pa.float16()),
    "bytes": ([b"\xff"], "bytes", b"\xff", pa.large_binary()),
    "text": (["é".encode()], "text", "é", pa.large_string()),
    "vector": ([1, 2], ("int64", [2]), [1, 2], pa.list_(pa.int64(), 2)),
    "flags": ([1, 0, 1], ("bool", [3]), [True, False, True], pa.list_(pa.bool_(), 3)),
    "strings": ([b"a", b""], ("bytes", [2]), [b"a", b""], pa.list_(pa.large_binary(), 2)),
    "matrix of text": (
        [b"a", b"b"],
        ("text", [2, 1]),
        [["a"], ["b"]],
        pa.list_(pa.list_(pa.large_string(), 1), 2),
    ),
    "matrix of flags": ([1, 0], ("bool", [1, 2]), [[True, False]], pa.list_(pa.list_(pa.bool_(), 2), 1)),
    "nothing": ((INT64,), ("int64", [0]), [], pa.list_(pa.int64(), 0)),
    "no rows": ((FLOAT,), ("float32", [0, 3]), [], pa.list_(pa.list_(pa.float32(), 3), 0)),
    "no columns": ((FLOAT,), ("float32", [2, 0]), [[], []], pa.list_(pa.list_(pa.float32(), 0), 2)),
    "varying": ([1, 2, 3], ("int16", [None]), [1, 2, 3], lists(pa.int16())),
    "varying and empty": ((FLOAT,), ("float32", [None]), [], lists(pa.float32())),
    "varying text": ([b"a", b"b"], ("text", [None]), ["a", "b"], lists(pa.large_string())),
    "varying rows": ([1, 2, 3, 4], ("int64", [None, 2]), [[1, 2], [3, 4]], lists(pa.list_(pa.int64(), 2))),
    "varying rows of text": ([b"a", b"b"], ("text", [None, 2]), [["a", "b"]], lists(pa.list_(pa.large_string(), 2))),
}


@pytest.mark.parametrize("case", PLAIN)
def test_types_and_values(case):
    values, spec, want, kind = PLAIN[case]
    for size in (65536, 2):
        same(column([made(x=values)] * 5, Feature.of(spec), size), [want] * 5, kind)


@pytest.mark.parametrize("case", PLAIN)
def test_missing_values_are_null(case):
    values, spec, want, kind = PLAIN[case]
    feature = Feature.of(spec)
    optional = Feature(feature.dtype, feature.shape, feature.encoding, optional=True)
    payloads = [made(y=[1]), made(x=values), made(x=None), made(x=values), made(x=values), made(y=[1])]
    expected = [None, want, None, want, want, None]
    for size in (65536, 2, 1):
        same(column(payloads, optional, size), expected, kind)
    same(column(payloads[:1], optional), [None], kind)
    same(column(payloads[1:2], optional), [want], kind)


def test_defaults_are_values():
    payloads = [made(x=[1], s=[b"a", b"b"]), made()]
    found = table(payloads, {"x": Feature("int8", default=7), "s": Feature("text", [2], default="d")})
    assert found.column("x").to_pylist() == [1, 7]
    assert found.column("s").to_pylist() == [["a", "b"], ["d", "d"]]


def test_tensors_of_fixed_shape():
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) * i for i in range(5)]
    payloads = [made(x=x.reshape(-1).tolist()) for x in arrays]
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3])
    for size in (65536, 2):
        got = column(payloads, Feature("float32", [2, 3]), size)
        assert got.type == kind
        assert got.to_numpy_ndarray().tolist() == np.stack(arrays).tolist()
    gaps = column([made(), *payloads[1:3], made()], Feature("float32", [2, 3], optional=True))
    assert gaps.type == kind
    assert gaps.storage.to_pylist() == [None, arrays[1].reshape(-1).tolist(), arrays[2].reshape(-1).tolist(), None]


def test_varying_numbers_of_tensors():
    payloads = [made(x=[float(n) for n in range(4 * i)] or (FLOAT,)) for i in range(3)]
    got = column(payloads, Feature("float32", [None, 2, 2]))
    assert got.type == lists(pa.fixed_shape_tensor(pa.float32(), [2, 2]))
    assert got.value_lengths().to_pylist() == [0, 1, 2]
    assert got.values.storage.to_pylist() == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("optional", [False, True])
def test_other_encodings(optional):
    arrays = [np.arange(3.0) + i for i in range(3)]
    protos = [made(x=[tf.io.serialize_tensor(x).numpy()]) for x in arrays]
    want = [x.tolist() for x in arrays]
    same(column(protos, Feature("float64", [3], optional=optional), 2), want, pa.list_(pa.float64(), 3))
    raws = [made(x=[x.tobytes()]) for x in arrays]
    same(column(raws, Feature("float64", [None], "raw", optional), 2), want, lists(pa.float64()))
    rows = [made(x=[tf.io.serialize_tensor(np.ones((i, 2), np.uint64)).numpy()]) for i in range(3)]
    shapes = [[[1, 1]] * i for i in range(3)]
    same(column(rows, Feature("uint64", [None, 2], optional=optional), 2), shapes, lists(pa.list_(pa.uint64(), 2)))


def test_feature_lists():
    payloads = [
        sequence({"id": [i]}, {"a": [[j] * j or (INT64,) for j in range(i)], "b": [[1.0, 2.0]] * i, "c": [[b"w"]] * i})
        for i in range(4)
    ]
    for size in (65536, 3):
        found = open_records(
            stream(payloads), schema=({"id": "int64"}, {"a": ("int64", [None]), "b": ("float32", [2]), "c": "text"})
        )
        got = found.to_arrow(size).read_all()
        same(got.column("id").combine_chunks(), [0, 1, 2, 3], pa.int64())
        same(
            got.column("a").combine_chunks(), [[[j] * j for j in range(i)] for i in range(4)], lists(lists(pa.int64()))
        )
        same(got.column("b").combine_chunks(), [[[1.0, 2.0]] * i for i in range(4)], lists(pa.list_(pa.float32(), 2)))
        same(got.column("c").combine_chunks(), [["w"] * i for i in range(4)], lists(pa.large_string()))


def test_missing_feature_lists_are_null():
    payloads = [
        sequence({}, {"a": [[1], [2]], "b": [[b"x"], (BYTES,)]}),
        sequence({"z": [1]}),
        sequence({}, {"a": [], "b": []}),
    ]
    schema = ({}, {"a": Feature("int64", optional=True), "b": Feature("bytes", [None], optional=True)})
    for size in (65536, 2, 1):
        found = open_records(stream(payloads), schema=schema).to_arrow(size).read_all()
        same(found.column("a").combine_chunks(), [[1, 2], None, []], lists(pa.int64()))
        same(found.column("b").combine_chunks(), [[[b"x"], []], None, []], lists(lists(pa.large_binary())))


def test_bits_of_floats_are_kept():
    bits = np.array([0x7FC00001, 0x80000000, 0xFFC12345, 1], np.uint32)
    payloads = [made(x=[value]) for value in bits.view(np.float32)]
    got = column(payloads, Feature("float32"))
    assert np.frombuffer(got.buffers()[1], np.uint32)[: len(bits)].tolist() == bits.tolist()


def test_what_arrow_has_no_type_for_is_refused():
    for dtype in ("bfloat16", "float8_e5m2", "complex64", "int4"):
        with pytest.raises(errors.LossError, match=f"column 'x' is {dtype}, which Arrow has no type for"):
            table([], {"x": dtype})
    with pytest.raises(errors.LossError, match="lists that vary in their first dimension only"):
        table([], {"x": ("int64", [2, None])})
    with pytest.raises(errors.LossError, match="lists that vary in their first dimension only"):
        table([], {"x": Feature("float64", [None, None])})
    assert table([made(y=[1])], {"x": Feature("complex64", optional=True), "y": "int64"}, columns=["y"]).num_rows == 1


def test_batches_come_one_by_one(tmp_path):
    path = write(tmp_path / "x", [made(i=[i], s=[b"x" * (i % 5)]) for i in range(100)])
    reader = open_records(path).to_arrow(30)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == pa.schema([("i", pa.int64()), ("s", pa.large_binary())])
    assert [batch.num_rows for batch in reader] == [30, 30, 30, 10]
    assert open_records(write(tmp_path / "empty", []), schema={"i": "int64"}).to_arrow().read_all().num_rows == 0


def test_errors_come_through(tmp_path):
    path = write(tmp_path / "x", [made(i=[1]), made(i=[1.0])])
    with pytest.raises(errors.SchemaError, match="record 1: feature 'i' is a list of float"):
        open_records(path, schema={"i": "int64"}).to_arrow().read_all()


def test_the_table_survives_parquet(tmp_path):
    payloads = [
        made(
            i=[i],
            v=list(range(i % 4)) or (INT64,),
            f=[0.5, float(i)],
            s=["é".encode() * (i % 3)],
            b=[bytes([i])] * (i % 3) or (BYTES,),
        )
        if i % 5
        else made(i=[i], v=(INT64,), s=[b""], b=(BYTES,))
        for i in range(50)
    ]
    schema = {
        "i": "int16",
        "v": ("int64", [None]),
        "f": Feature("float32", [2], optional=True),
        "s": "text",
        "b": ("bytes", [None]),
    }
    path = write(tmp_path / "x", payloads)
    found = open_records(path, schema=schema).to_arrow(7).read_all()
    pq.write_table(found, tmp_path / "x.parquet")
    back = pq.read_table(tmp_path / "x.parquet")
    assert back.cast(found.schema).equals(found)
    rows = list(open_records(path, schema=schema))
    for got, row in zip(back.to_pylist(), rows, strict=True):
        assert (got["i"], got["s"], got["b"]) == (row["i"], row["s"], row["b"])
        assert got["v"] == row["v"].tolist()
        assert got["f"] == (row["f"].tolist() if "f" in row else None)


# ---- as tfx-bsl decodes Examples ------------------------------------------------------


def test_lists_of_features_are_the_columns_that_tfx_bsl_makes(tmp_path):
    """Columns by name, each of large lists; null where an Example lacks the feature or the feature has no list."""
    kinds = {"i": "int64_list", "f": "float_list", "b": "bytes_list"}
    rows = [{"i": [1], "f": [0.5, 2.0], "b": [b"x"]}, {"f": [], "b": [b"y", b""]}, {"i": [3, 4], "f": None}]
    examples = []
    for row in rows:
        example = tf.train.Example()
        for name, values in row.items():
            feature = example.features.feature[name]
            if values is not None:
                getattr(feature, kinds[name]).value.extend(values)
                getattr(feature, kinds[name]).SetInParent()
        examples.append(example.SerializeToString())
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as file:
        for example in examples:
            file.write(example)
    want = pa.table(
        {
            "b": pa.array([[b"x"], [b"y", b""], None], pa.large_list(pa.large_binary())),
            "f": pa.array([[0.5, 2.0], [], None], pa.large_list(pa.float32())),
            "i": pa.array([[1], None, [3, 4]], pa.large_list(pa.int64())),
        }
    )
    found = open_records(tmp_path / "x.tfrecord", lengths="ragged").to_arrow().read_all()
    assert found.schema.names == want.schema.names
    assert [column.type for column in found.columns] == [column.type for column in want.columns]
    assert found.to_pydict() == want.to_pydict()
    assert pa.table(parse_examples(examples)).to_pydict() == want.to_pydict()
