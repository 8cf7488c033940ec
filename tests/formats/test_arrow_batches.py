"""Tables in batches: written and read one after the other, and handed to others as Arrow streams."""

import io
import itertools
import os
import pickle

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.formats._arrow.batches import BatchWriter, check, has_rows, read_batches
from tensorbytes.records import Feature
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, identical
from tests.support.record_cases import example, sequence, stream

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NAMES = ["x.arrow", "x.arrows", "x.parquet"]


def columns(start, stop):
    """Rows [start, stop) of a table with every kind of column."""
    number = np.arange(start, stop, dtype="<i4")
    count = len(number)
    lengths = number % 3
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.repeat(number, lengths).astype("<f8")
    values = Tensor("float64", (len(flat),), flat)
    return {
        "x": Tensor("int32", (count,), number, meta={"unit": "m"}),
        "half": Tensor("bfloat16", (count, 2), np.repeat(number, 2).astype("<u2")),
        "flag": Tensor("bool", (count,), (number % 2).astype(np.uint8)),
        "word": Strings.from_items([f"é{n}" for n in number], (count,), "utf-8"),
        "list": Ragged(values, (splits,)),
        "shaped": Ragged(values, (splits,), np.stack([lengths, np.ones(count)], axis=1).astype(np.int64)),
    }


def assert_batch(got, want):
    assert list(got) == list(want)
    for name, value in want.items():
        assert identical(got[name], value), name
        assert got[name].meta == value.meta


def written(path, bounds, **options):
    with BatchWriter(path, sync=False, **options) as writer:
        for start, stop in itertools.pairwise(bounds):
            writer.write(columns(start, stop))
        assert writer.rows == bounds[-1]


@pytest.mark.parametrize("rows", [1, 7, 13, 1000])
@pytest.mark.parametrize("name", NAMES)
def test_rows_come_back_in_batches_of_any_size(tmp_path, name, rows):
    written(tmp_path / name, [0, 7, 7, 30, 31, 50])
    got = list(read_batches(tmp_path / name, rows))
    assert len(got) == -(-50 // rows)
    for start, batch in zip(range(0, 50, rows), got, strict=True):
        assert_batch(batch, columns(start, min(start + rows, 50)))
    assert has_rows(tmp_path / name)
    whole = tb.load(tmp_path / name, to="tensor")
    assert_batch(whole, columns(0, 50))
    chosen = list(read_batches((tmp_path / name).read_bytes(), 50, columns=["word", "x"]))
    assert [list(batch) for batch in chosen] == [["x", "word"]]


def test_what_pyarrow_reads(tmp_path):
    for name in NAMES:
        written(tmp_path / name, [0, 4, 8])
    with pa.ipc.open_file(tmp_path / "x.arrow") as file:
        assert [file.get_batch(n).num_rows for n in range(file.num_record_batches)] == [4, 4]
    with pa.ipc.open_stream((tmp_path / "x.arrows").read_bytes()) as file:
        assert file.read_all()["word"].to_pylist() == [f"é{n}" for n in range(8)]
    assert pq.read_table(tmp_path / "x.parquet")["list"].to_pylist() == [[float(n)] * (n % 3) for n in range(8)]


def test_row_groups_gather_batches(tmp_path):
    written(tmp_path / "x.parquet", [0, 3, 9, 10, 25], row_group_rows=10)
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [10, 10, 5]
    written(tmp_path / "x.parquet", list(range(25)))
    assert pq.ParquetFile(tmp_path / "x.parquet").metadata.num_row_groups == 1


@pytest.mark.parametrize("name", NAMES)
def test_arrays_may_be_filled_again(tmp_path, name):
    memory = np.zeros(4, "<i8")
    with BatchWriter(tmp_path / name, sync=False) as writer:
        for n in range(3):
            memory[:] = n
            writer.write({"x": Tensor("int64", (4,), memory)})
    assert tb.load(tmp_path / name)["x"].tolist() == [0] * 4 + [1] * 4 + [2] * 4


@pytest.mark.parametrize("name", NAMES)
def test_columns_may_come_in_another_order(tmp_path, name):
    with BatchWriter(tmp_path / name, sync=False) as writer:
        writer.write(columns(0, 2))
        writer.write(dict(reversed(columns(2, 4).items())))
    assert_batch(next(read_batches(tmp_path / name, 4)), columns(0, 4))


CHANGES = {
    "dtype": (lambda given: given | {"x": Tensor("int64", (2,), bytes(16))}, "'x' is int64"),
    "carried dtype": (lambda given: given | {"half": Tensor("uint16", (2, 2), bytes(8))}, "'half'.*bfloat16"),
    "shape": (lambda given: given | {"half": Tensor("bfloat16", (2, 3), bytes(12))}, "'half'"),
    "kind": (lambda given: given | {"list": Tensor("float64", (2,), bytes(16))}, "'list'"),
    "a column more": (lambda given: given | {"new": Tensor("int8", (2,), b"ab")}, "'new'"),
    "a column less": (lambda given: {name: given[name] for name in given if name != "flag"}, "'flag'"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_does_not_fit_leaves_the_old_file(tmp_path, name, change):
    path = tmp_path / name
    path.write_bytes(b"old")
    changed, words = CHANGES[change]

    def write():
        with BatchWriter(path, sync=False) as writer:
            writer.write(columns(0, 2))
            writer.write(changed(columns(2, 4)))

    with pytest.raises(errors.SchemaError, match=words):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


def test_writers_that_end_otherwise(tmp_path):
    path = tmp_path / "x.arrow"
    with pytest.raises(errors.UsageError, match="no batch"):
        BatchWriter(path, sync=False).close()
    given_up = BatchWriter(path, sync=False)
    given_up.write(columns(0, 2))
    given_up.abort()
    given_up.abort()
    assert os.listdir(tmp_path) == []
    with pytest.raises(errors.UsageError, match="closed"):
        given_up.write(columns(0, 2))
    for wrong in ({"kind": "csv"}, {"row_group_rows": 3}):
        with pytest.raises(errors.UsageError):
            BatchWriter(path, **wrong)
    with pytest.raises(errors.LossError), BatchWriter(path, sync=False) as writer:
        writer.write({"a": Tensor("int8", (2,), b"ab"), "b": Tensor("int8", (3,), b"abc")})
    assert os.listdir(tmp_path) == []
    file = io.BytesIO()
    with BatchWriter(file, "parquet") as writer:
        writer.write(columns(0, 0))
    assert_batch(tb.loads(file.getvalue(), to="tensor"), columns(0, 0))
    assert list(read_batches(file.getvalue(), 3)) == []


def test_values_are_checked_ahead():
    check(columns(0, 3))
    with pytest.raises(errors.LossError, match="no leading axis"):
        check({"a": Tensor("int8", (), b"a")})
    with pytest.raises(errors.LossError):
        check({"a": Sparse("coo", (3,), (np.array([[1]]),), Tensor("int8", (1,), b"a"))})


def test_documents_that_are_no_rows():
    whole = tb.dumps({"a": np.zeros(2), "b": np.float32(1)}, "arrow")
    assert not has_rows(whole)
    (batch,) = read_batches(whole, 10)
    assert {name: value.shape for name, value in batch.items()} == {"a": (1, 2), "b": (1,)}
    sparse = tb.dumps(Sparse("coo", (3,), (np.array([[1]]),), Tensor("int8", (1,), b"a")), "arrow")
    with pytest.raises(errors.UnsupportedError, match="one value, not rows"):
        read_batches(sparse, 1)
    for wrong in (0, True, "x"):
        with pytest.raises(errors.UsageError, match="batches of"):
            read_batches(whole, wrong)
    with pytest.raises(errors.UsageError, match="no column 'z'"):
        read_batches(whole, 1, columns=["z"])


def test_tables_of_others_in_batches():
    file = io.BytesIO()
    pq.write_table(
        pa.table({"d": pa.array(["a", "b"] * 50).dictionary_encode(), "n": range(100)}), file, row_group_size=30
    )
    got = list(read_batches(file.getvalue(), 45))
    assert [batch["n"].shape for batch in got] == [(45,), (45,), (10,)]
    assert got[1]["d"].items() == ["b", "a"] * 22 + ["b"]


# ---- Arrow's stream interface ------------------------------------------------------


SCHEMA = {
    "id": "int64",
    "name": "text",
    "pair": ("float32", [2]),
    "grid": ("float32", [2, 2]),
    "many": ("int64", [None]),
    "maybe": Feature("int64", optional=True),
}


def payloads():
    return [
        example(
            id=[n],
            name=[f"é{n}".encode()],
            pair=[0.5, float(n)],
            grid=[1.0, 2.0, 3.0, float(n)],
            many=list(range(n)) or None,
            **({"maybe": [n]} if n % 2 else {}),
        )
        for n in range(1, 6)
    ]


@pytest.mark.parametrize("to", ["numpy", "torch", "tensor"])
def test_a_batch_is_an_arrow_stream(to):
    records = open_records(stream(payloads()), schema=SCHEMA, to=to)
    want = open_records(stream(payloads()), schema=SCHEMA).to_arrow().read_all()
    (batch,) = records.batches(100)
    table = pa.table(batch)
    table.validate(full=True)
    assert table.schema.equals(want.schema)
    assert table.equals(want)
    assert table["maybe"].to_pylist() == [1, None, 3, None, 5]
    reader = pa.RecordBatchReader.from_stream(batch)
    assert [piece.num_rows for piece in reader] == [5]


def test_a_batch_behaves_like_a_dict():
    (batch,) = open_records(stream(payloads()), schema={"id": "int64"}).batches(100)
    assert pa.table(pickle.loads(pickle.dumps(batch))).equals(pa.table(batch))
    assert list(batch) == [*batch.keys()] == list({**batch}) == ["id"]
    assert pa.table(batch | {"more": np.ones(5)}).num_columns == 2
    assert pa.table(batch.copy()).equals(pa.table(batch))


def test_columns_of_a_batch_may_be_replaced():
    (batch,) = open_records(stream(payloads()), schema={"maybe": SCHEMA["maybe"], "id": "int64"}).batches(100)
    filled = batch | {"maybe": np.arange(5.0)}
    assert pa.table(filled)["maybe"].to_pylist() == [0, 1, 2, 3, 4]
    assert pa.table(batch)["maybe"].to_pylist() == [1, None, 3, None, 5]


def test_records_are_an_arrow_stream():
    records = open_records(stream(payloads()), schema=SCHEMA)
    table = pa.table(records)
    assert table.equals(open_records(stream(payloads()), schema=SCHEMA).to_arrow().read_all())
    cast = pa.RecordBatchReader.from_stream(
        open_records(stream(payloads()), schema={"id": "int64"}), schema=pa.schema([("id", pa.int32())])
    )
    assert cast.read_all()["id"].to_pylist() == [1, 2, 3, 4, 5]


def test_columns_that_were_added_to_a_batch():
    (batch,) = open_records(stream(payloads()), schema={"id": "int64"}).batches(100)
    batch["square"] = batch["id"] ** 2
    batch["image"] = np.zeros((5, 2, 2), np.uint8)
    table = pa.table(batch)
    assert table["square"].to_pylist() == [1, 4, 9, 16, 25]
    assert table["image"].type == pa.fixed_shape_tensor(pa.uint8(), [2, 2])


def test_feature_lists_of_a_batch():
    given = [sequence({"id": [n]}, {"steps": [[n], [n + 1]]}) for n in range(3)]
    schema = ({"id": "int64"}, {"steps": ("int64", [1])})
    (batch,) = open_records(stream(given), schema=schema).batches(10)
    assert pa.table(batch).equals(open_records(stream(given), schema=schema).to_arrow().read_all())


# ---- no rows -------------------------------------------------------------------------


@pytest.mark.parametrize("open_writer", ["new_file", "new_stream"])
@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("batches", [0, 1])
def test_tensors_without_rows_are_loaded_and_sliced(open_writer, compression, batches):
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])  # pyarrow's array([], kind) refuses it
    schema = pa.schema([("x", kind), ("y", pa.list_(pa.int8(), 2))])
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with getattr(pa.ipc, open_writer)(out, schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema))
    assert {name: value.shape for name, value in tb.loads(out.getvalue()).items()} == {"x": (0, 3, 2), "y": (0, 2)}
    with tb.open(io.BytesIO(out.getvalue())) as file:
        assert file["x"][:1].shape == (0, 3, 2)
        assert file["y"][:1].shape == (0, 2)
