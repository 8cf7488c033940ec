"""inspect and diff, over files of several kinds."""

import json

import numpy as np
import pytest

import tensorbytes as tb


@pytest.fixture
def files(tmp_path):
    x = {
        "w": np.arange(12, dtype=np.float32).reshape(4, 3),
        "words": np.array(["a", "bc", "", "d"], object),
        "r": tb.Ragged(tb.Tensor("float32", (3,), np.arange(3, dtype="<f4")), (np.array([0, 1, 1, 2, 3]),)),
    }
    tb.save(x, tmp_path / "x.tb", meta={"epoch": "3"})
    tb.convert(tmp_path / "x.tb", tmp_path / "x.tfrecord", unstack=0, allow="meta")
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "stream.tb")
    tb.convert(tmp_path / "x.tb", tmp_path / "x.npz")
    return tmp_path


def test_inspect_a_document(files):
    found = tb.inspect(files / "x.tb")
    assert (found.format, found.objects, found.meta) == ("tb", 1, {"epoch": "3"})
    assert found.size == (files / "x.tb").stat().st_size
    shown = [(t.name, t.kind, t.dtype, t.shape) for t in found.tensors]
    assert shown == [
        ("w", "tensor", "float32", (4, 3)),
        ("words", "strings", "string", (4,)),
        ("r", "ragged", "float32", (4, None)),
    ]
    assert found.tensors[0].nbytes == 48
    assert "float32 ragged" in str(found)
    json.dumps(found.to_dict())
    assert [(t.name, t.dtype) for t in tb.inspect(files / "x.npz").tensors] == [(t[0], t[2]) for t in shown]


def test_inspect_records(files):
    found = tb.inspect(files / "x.tfrecord")
    assert (found.format, found.objects) == ("tfrecord", 4)
    assert {t.name: (t.kind, t.dtype, t.shape) for t in found.tensors} == {
        "w": ("feature", "float32", (3,)),
        "words": ("feature", "text", ()),
        "r": ("feature", "float32", (None,)),
    }
    assert found.schema["w"].shape == (3,)
    json.dumps(found.to_dict())
    assert {tensor.shape[0] for tensor in tb.inspect(files / "stream.tb").tensors} == {4}
    tb.convert(files / "x.tfrecord", files / "x.tfrecord.gz")
    packed = tb.inspect(files / "x.tfrecord.gz")
    assert (packed.objects, packed.details) == (4, {"compression": "gzip"})


def test_inspect_reads_no_data(files):
    tb.save({"w": np.zeros(1 << 20, np.float32)}, files / "big.tb")
    data = bytearray((files / "big.tb").read_bytes())
    data[2_000_000] ^= 1
    (files / "big.tb").write_bytes(data)
    assert tb.inspect(files / "big.tb").tensors[0].shape == (1 << 20,)
    with pytest.raises(tb.errors.CorruptError):
        tb.load(files / "big.tb")


def test_names_can_t_steer_a_terminal(tmp_path):
    tb.save({"\x1b[31mred\n": np.ones(2)}, tmp_path / "x.tb")
    tb.save({"\x1b[31mred\n": np.zeros(2), "\x07": np.ones(1)}, tmp_path / "y.tb")
    for text in (str(tb.inspect(tmp_path / "x.tb")), str(tb.diff(tmp_path / "x.tb", tmp_path / "y.tb"))):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\\x1b[31mred\\n" in text


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x.tb", "x.npz"),
        ("x.tb", "x.tfrecord"),
        ("x.tfrecord", "x.npz"),
        ("x.tfrecord", "stream.tb"),
        ("stream.tb", "stream.tb"),
        ("x.tfrecord", "x.tfrecord"),
    ],
)
def test_the_same_in_other_formats(files, a, b):
    found = tb.diff(files / a, files / b)
    assert found.identical
    assert found.close()
    assert len(found.tensors) == 3
    assert "identical" in str(found)


def test_numbers(tmp_path):
    a = np.array([1.0, 2.0, np.nan, np.inf, 0.0, -0.0, np.nan], np.float32)
    b = np.array([1.5, 2.0, np.nan, np.inf, 0.0, 0.0, 1.0], np.float32)
    tb.save({"x": a}, tmp_path / "a.tb")
    tb.save({"x": b}, tmp_path / "b.tb")
    found = tb.diff(tmp_path / "a.tb", tmp_path / "b.tb")
    (x,) = found.tensors
    assert not found.identical
    assert not found.close()
    assert (x.numbers.elements, x.numbers.differing) == (7, 2)
    assert x.numbers.max_abs == 0.5
    assert x.numbers.max_rel == pytest.approx(1 / 3)
    assert (x.numbers.nan_a, x.numbers.nan_b) == (2, 1)
    finite = np.isfinite(a) & np.isfinite(b)
    va, vb = a[finite].astype(float), b[finite].astype(float)
    assert x.numbers.cosine == pytest.approx(va @ vb / np.linalg.norm(va) / np.linalg.norm(vb))
    json.dumps(found.to_dict())


def test_minus_zero_is_told_apart_without_being_a_distance(tmp_path):
    tb.save({"x": np.array([-0.0])}, tmp_path / "a.tb")
    tb.save({"x": np.array([0.0])}, tmp_path / "b.tb")
    found = tb.diff(tmp_path / "a.tb", tmp_path / "b.tb")
    assert not found.identical
    assert found.close()
    assert "equal numbers, other bits" in str(found)


def test_64_bit_integers_are_compared_exactly(tmp_path):
    tb.save({"x": np.array([2**62, -(2**63)])}, tmp_path / "a.tb")
    tb.save({"x": np.array([2**62 + 1, 2**63 - 1])}, tmp_path / "b.tb")
    (x,) = tb.diff(tmp_path / "a.tb", tmp_path / "b.tb").tensors
    assert x.numbers.differing == 2
    assert x.numbers.max_abs == float(2**64 - 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int4", "complex64", "complex32", "bool"])
def test_across_dtypes(tmp_path, dtype):
    import ml_dtypes

    wide = np.array([0, 1, 1, 0], np.complex128 if "complex" in dtype else np.float64)
    tb.save({"x": wide}, tmp_path / "a.tb")
    tb.save({"x": wide.astype(getattr(np, dtype, None) or getattr(ml_dtypes, dtype))}, tmp_path / "b.tb")
    found = tb.diff(tmp_path / "a.tb", tmp_path / "b.tb")
    assert not found.identical
    assert found.close()
    assert found.tensors[0].dtypes[1] == dtype


def test_structure(tmp_path):
    sparse = tb.Sparse("coo", (3,), (np.array([[1]]),), tb.Tensor("float32", (1,), bytes(4)))
    tb.save({"a": np.ones(2), "b": np.ones((2, 3)), "s": sparse, "t": np.array(["x", "y"])}, tmp_path / "a.tb")
    other = tb.Sparse("coo", (3,), (np.array([[2]]),), tb.Tensor("float32", (1,), bytes(4)))
    tb.save(
        {"b": np.ones((3, 2)), "c": np.ones(1), "s": other, "t": np.array(["x", "z"])},
        tmp_path / "b.tb",
        meta={"k": "v"},
    )
    found = tb.diff(tmp_path / "a.tb", tmp_path / "b.tb")
    assert (found.only_in_a, found.only_in_b) == (["a"], ["c"])
    why = {tensor.name: tensor.why for tensor in found.tensors}
    assert why == {"b": "shape [2, 3] | [3, 2]", "s": "indices differ", "t": "1 other string"}
    assert found.meta == {"k": (None, "v")}
    assert not found.close()
    assert tb.diff(tmp_path / "a.tb", tmp_path / "b.tb", names="b").only_in_a == []


def test_rows_that_are_missing(files):
    tb.save({"w": np.zeros((3, 3), np.float32), "words": np.array(["a"] * 9, object)}, files / "short.tb")
    found = tb.diff(files / "x.tfrecord", files / "short.tb")
    why = {tensor.name: tensor.why for tensor in found.tensors}
    assert why == {"w": "3 rows in the arrays, 4 in the table", "words": "9 rows in the arrays, 4 in the table"}
    with tb.RecordWriter(files / "y.tfrecord") as writer:
        for row in list(tb.open_records(files / "x.tfrecord"))[:2]:
            writer.write(row)
    found = tb.diff(files / "x.tfrecord", files / "y.tfrecord")
    assert found.rows == (4, 2)
    assert not found.identical
    assert tb.diff(files / "stream.tb", files / "y.tfrecord").rows == (4, 2)


def test_damage_is_found_on_the_way(files):
    data = bytearray((files / "x.tb").read_bytes())
    data[40] ^= 1
    (files / "bad.tb").write_bytes(data)
    with pytest.raises(tb.errors.CorruptError):
        tb.diff(files / "x.tb", files / "bad.tb")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array([1, np.nan, 2]), np.array([np.nan, 1, 2])),
        (np.array([complex(np.inf, 1)]), np.array([complex(np.inf, 2)])),
        (np.array([5], "M8[D]"), np.array([5], "M8[s]")),
        (np.array([2**62 + 1], np.int64), np.array([2**62], np.int64)),
    ],
)
def test_what_is_not_close(tmp_path, a, b):
    tb.save({"x": a}, tmp_path / "a.tb")
    tb.save({"x": b}, tmp_path / "b.tb")
    found = tb.diff(tmp_path / "a.tb", tmp_path / "b.tb")
    assert not found.identical
    assert not found.close(rtol=1e-30, atol=0)
    json.loads(json.dumps(found.to_dict(), allow_nan=False))


def test_a_name_that_neither_has(files):
    with pytest.raises(tb.errors.UsageError, match="typo"):
        tb.diff(files / "x.tb", files / "x.npz", names="typo")


def test_records_without_any_feature_are_counted(tmp_path):
    import tensorflow as tf

    for name, count in (("a", 3), ("b", 2)):
        with tf.io.TFRecordWriter(str(tmp_path / f"{name}.tfrecord")) as w:
            for _ in range(count):
                w.write(b"")
    found = tb.diff(tmp_path / "a.tfrecord", tmp_path / "b.tfrecord")
    assert found.rows == (3, 2)
    assert not found.identical


def write_nulls(path, **options):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "id": [1, 2, 3, 4],
        "x": [1.5, None, 2.5, None],
        "s": [{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}, {"a": 4, "b": ""}],
        "l": [[1, None], [], None, [2]],
        "w": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), path, **options)


NULLS = {"x": 2, "s/a": 2, "s/b": 1, "l": 2, "w": 1}


@pytest.mark.parametrize("suffix", ["arrow", "parquet", "tb", "npz"])
def test_what_is_missing_is_counted(suffix, tmp_path):
    write_nulls(tmp_path / "x.parquet")
    if suffix != "parquet":
        tb.convert(tmp_path / "x.parquet", tmp_path / f"x.{suffix}")
    found = tb.inspect(tmp_path / f"x.{suffix}")
    assert {tensor.name: tensor.nulls for tensor in found.tensors} == {"id": None} | NULLS
    assert all(tensor.nulls_exact for tensor in found.tensors if tensor.nulls)
    assert "  2 null" in str(found)
    assert "arrow.schema" not in str(found)


def test_what_is_missing_without_statistics_is_counted_on_request(tmp_path):
    write_nulls(tmp_path / "x.parquet", write_statistics=False, row_group_size=2)
    found = tb.inspect(tmp_path / "x.parquet")
    assert [tensor.nulls for tensor in found.tensors] == [0, 1, 1, 1, 1, 1]
    assert not any(tensor.nulls_exact for tensor in found.tensors)
    assert "at least 1 null" in str(found)
    every = tb.inspect(tmp_path / "x.parquet", scan="all")
    assert {tensor.name: tensor.nulls for tensor in every.tensors if tensor.nulls_exact} == NULLS


def test_what_records_lack_is_counted_as_far_as_they_were_looked_at(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for number in range(50):
            writer.write({"id": number} | ({"x": np.float32(1)} if number % 5 else {}))
    some, every = tb.inspect(tmp_path / "x.tfrecord", scan=20), tb.inspect(tmp_path / "x.tfrecord")
    assert [(tensor.nulls, tensor.nulls_exact) for tensor in some.tensors] == [(None, False), (4, False)]
    assert "in 16, at least 4 null" in str(some)
    assert [(tensor.nulls, tensor.nulls_exact) for tensor in every.tensors] == [(None, False), (10, True)]
