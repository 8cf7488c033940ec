"""Batches: passes over them, batches by number, their pickles and copies, and the tables that other libraries make."""

import copy
import io
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tensorbytes as tb
from tensorbytes import open_records
from tensorbytes.formats.tfrecord.files.index import Index, Shelf
from tensorbytes.records import Batch, Feature, Records
from tests.support.record_cases import by_hand, expected, numbered, plain_batches, rows_of, sequence, stream, write

COUNT = 50


@pytest.fixture
def path(tmp_path):
    """Records of every kind of column that needs no schema."""
    with tb.RecordWriter(tmp_path / "a.tfrecord") as writer:
        for i in range(COUNT):
            row = {"id": i, "image": np.full((2, 3), i, np.uint8), "text": f"row {i}", "raw": b"\xff%d" % i}
            writer.write(row | {"tokens": np.arange(i % 4), "vector": np.float32([i, -i])})
    return str(tmp_path / "a.tfrecord")


@pytest.fixture
def lacking(tmp_path):
    """Records that lack some features."""
    schema = {
        "number": Feature("int64", optional=True),
        "text": Feature("text", optional=True),
        "pair": Feature("float32", [2], optional=True),
        "filled": Feature("int64", default=7),
        "words": ("text", [2]),
    }
    with tb.RecordWriter(tmp_path / "b.tfrecord", schema=schema) as writer:
        writer.write({"number": 2**60 + 1, "text": "x", "pair": [1, 2], "filled": 3, "words": ["a", "b"]})
        writer.write({"words": ["c", "d"]})
    return str(tmp_path / "b.tfrecord")


# JAX has 64-bit types only where a program switches them on.
JAX_TAKES = [["image", "text", "vector"], ["pair", "words"]]


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def all_ids(size):
    return [list(range(COUNT))[at : at + size] for at in range(0, COUNT, size)]


# ---- passes ------------------------------------------------------------------------


def test_batches_can_be_iterated_again(path):
    batches = open_records(path).batches(16)
    assert ids(batches) == ids(batches) == all_ids(16)
    one, two = iter(batches), iter(batches)
    assert next(one)["id"][0] == next(two)["id"][0] == 0


def test_next_gives_one_after_the_other_and_a_loop_goes_on_from_there(path):
    batches = open_records(path).batches(16)
    assert next(batches)["id"].tolist() == all_ids(16)[0]
    assert ids(batches) == all_ids(16)[1:]
    assert next(batches, None) is None, "that pass has ended"
    assert ids(batches) == all_ids(16)
    left = open_records(path).batches(16)
    next(left)
    left.close()
    assert ids(left) == all_ids(16)


def test_batches_by_number_are_those_of_a_pass(path):
    for options in ({}, {"drop_last": True}, {"to": "tensor"}):
        batches = open_records(path).batches(16, **options)
        passed = list(iter(batches))
        assert len(batches) == len(passed) == 3 + ("drop_last" not in options)
        for number in range(-len(batches), len(batches)):
            assert pa.table(batches[number]).equals(pa.table(passed[number]))
            assert type(batches[number]["vector"]) is type(passed[number]["vector"])
        for wrong in (len(batches), -len(batches) - 1):
            with pytest.raises(IndexError, match="there are"):
                batches[wrong]
        with pytest.raises(tb.errors.UsageError, match="one by one"):
            batches[1:]


def test_batches_of_a_stream_are_read_once():
    data = by_hand(numbered(20))

    class Pipe(io.RawIOBase):
        def __init__(self):
            self.inner = io.BytesIO(data)

        def readable(self):
            return True

        def readinto(self, room):
            return self.inner.readinto(room)

    assert len(list(open_records(Pipe()).batches(6))) == 4
    with pytest.raises(tb.errors.UsageError):
        len(open_records(Pipe()).batches(6))
    assert sum(batch.records for batch in open_records(Pipe()).batches(6)) == 20


def test_several_records_at_once_are_those_one_by_one(tmp_path):
    paths = [write(tmp_path / "a", numbered(20)), write(tmp_path / "b", numbered(20, 20), "gzip")]
    records = open_records(paths)
    for numbers in ([3, 39, 0, 3, -1], [], [19, 20]):
        assert repr(records.__getitems__(numbers)) == repr([records[number] for number in numbers])
    with pytest.raises(IndexError, match="record 40"):
        records.__getitems__([0, 40])


def test_a_loader_decodes_the_records_of_a_batch_at_once(path, monkeypatch):
    from torch.utils.data import DataLoader

    asked = []
    decode = Records._picked
    monkeypatch.setattr(Records, "_picked", lambda self, numbers: asked.append(len(numbers)) or decode(self, numbers))
    found = [number for batch in DataLoader(open_records(path, columns=["id"]), 20) for number in batch["id"].tolist()]
    assert found == list(range(COUNT))
    assert asked == [20, 20, 10]


@pytest.mark.parametrize("gathered", [True, False])
def test_a_run_of_records_is_checked_like_each_of_them(gathered, tmp_path, monkeypatch):
    file = tmp_path / "a"
    data = bytearray(by_hand(numbered(20)))
    file.write_bytes(data)
    records = open_records(file)
    assert len(records) == 20
    if not gathered:  # as from streams, and where a file can't be read at a place
        monkeypatch.setattr(Shelf, "read", lambda *_: None)
    one_by_one, check = [], Index._check
    monkeypatch.setattr(Index, "_check", lambda *args: one_by_one.append(args[1]) or check(*args))
    assert records[3:19]["i"].tolist() == list(range(3, 19))
    assert one_by_one == []
    assert records[[3, 5, 4, 9, 4]]["i"].tolist() == [3, 5, 4, 9, 4]
    assert one_by_one == ([] if gathered else [3, 4, 5, 9]), "there are others between them"
    data[len(data) // 2] ^= 1  # of the same size, in the same instant
    with open(file, "r+b") as out:
        out.write(data)
    for which in (slice(0, 20), [*range(19, -1, -1)]):
        with pytest.raises(tb.errors.CorruptError, match="record"):
            records[which]


# ---- pickles -----------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "tensor", "torch", "tensorflow", "jax"])
@pytest.mark.parametrize("way", [*range(6), "deepcopy", "copy"])
def test_a_batch_is_pickled_and_copied_with_all_it_has(path, lacking, to, way):
    for file in (path, lacking):
        batch = open_records(file, to=to, columns=JAX_TAKES[file == lacking] if to == "jax" else None).batches(9)[0]
        again = {"deepcopy": copy.deepcopy, "copy": copy.copy}.get(way, lambda x: pickle.loads(pickle.dumps(x, way)))(
            batch
        )
        assert type(again) is Batch
        assert again.records == batch.records
        assert {name: type(column) for name, column in again.items()} == {
            name: type(column) for name, column in batch.items()
        }
        assert pa.table(again).equals(pa.table(batch))
        assert {name: mask.tolist() for name, mask in again.present.items()} == {
            name: mask.tolist() for name, mask in batch.present.items()
        }
        with pytest.raises(tb.errors.MissingNameError):
            again["?"]


@pytest.mark.parametrize("to", ["numpy", "tensor", "torch", "tensorflow", "jax"])
def test_pickles_of_batches_hand_out_memory(tmp_path, to):
    def pickled(count):
        with tb.RecordWriter(tmp_path / f"{count}.tfrecord") as writer:
            columns = {"image": np.zeros((count, 100, 10), np.uint8), "number": np.arange(count)}
            writer.write_batch(columns | {"text": ["abc"] * count})
        buffers = []
        columns = ["image", "text"] if to == "jax" else ["image", "number", "text"]
        batch = open_records(tmp_path / f"{count}.tfrecord", to=to, columns=columns).batches(count)[0]
        return batch, pickle.dumps(batch, 5, buffer_callback=buffers.append), buffers

    batch, raw, buffers = pickled(1000)
    assert len(raw) < 4000
    assert len(raw) - len(pickled(10)[1]) < 100
    assert sum(buffer.raw().nbytes for buffer in buffers) >= 1_000_000
    again = pickle.loads(raw, buffers=buffers)
    assert pa.table(again).equals(pa.table(batch))
    if to in ("numpy", "torch"):  # the others copy what they are given
        assert np.shares_memory(np.asarray(again["image"]), np.asarray(batch["image"]))


def test_columns_that_are_not_contiguous_are_handed_out_too(path):
    batch = open_records(path).batches(COUNT)[0]
    batch["every other"] = np.zeros((COUNT, 20_000))[:, ::2]
    buffers = []
    raw = pickle.dumps(batch, 5, buffer_callback=buffers.append)
    assert len(raw) < 4000
    assert np.array_equal(pickle.loads(raw, buffers=buffers)["every other"], batch["every other"])


def test_a_batch_is_saved_as_a_dict(path, tmp_path):
    batch = open_records(path).batches(9)[0]
    tb.save(batch, tmp_path / "x.tb")
    assert tb.equal(tb.load(tmp_path / "x.tb"), dict(batch))


@pytest.mark.parametrize("protocol", range(6))
def test_records_are_pickled_by_their_paths(tmp_path, protocol):
    payloads = numbered(30)
    paths = [write(tmp_path / "a", payloads[:10]), write(tmp_path / "b", payloads[10:], "gzip")]
    for records in (
        open_records(paths),
        open_records(paths, columns=(name for name in ["i", "v"])),
        open_records(tb.records.plan(paths[0], 2)),
    ):
        for known in (False, True):
            if known:
                assert len(records) > 0
                assert records.schema
            again = pickle.loads(pickle.dumps(records, protocol))
            assert (again.paths, again.known_schema) == (records.paths, records.known_schema)
            assert repr(list(again)) == repr(list(records))
            assert ids_of(pickle.loads(pickle.dumps(records.batches(7), protocol))) == ids_of(records.batches(7))
    assert plain_batches(pickle.loads(pickle.dumps(open_records(paths), protocol)), 7) == expected(payloads)


def ids_of(batches):
    return [batch["i"].tolist() for batch in batches]


def test_records_keep_their_options_in_a_pickle(tmp_path):
    data = bytearray(by_hand(numbered(20)))
    data[len(data) // 2] ^= 1
    (tmp_path / "x").write_bytes(data)
    given = open_records(tmp_path / "x", on_corrupt="skip", to="tensor", threads=1, schema={"i": "int64"})
    size = len(pickle.dumps(given))
    assert len(given) == 20
    assert len(pickle.dumps(given)) == size, "the index stays behind"
    records = pickle.loads(pickle.dumps(given))
    with pytest.warns(tb.errors.DamageWarning):
        assert sum(batch.records for batch in records.batches(4)) == 19
    assert len(pickle.loads(pickle.dumps(records)).damages) == 1
    assert isinstance(next(iter(records.batches(4)))["i"], tb.Tensor)


def test_records_of_file_objects_are_not_pickled():
    records = open_records(stream(numbered(3)))
    for use in (pickle.dumps, copy.deepcopy, lambda records: pickle.dumps(records.batches(2))):
        with pytest.raises(
            tb.errors.UsageError, match=r"file object can't be pickled.*<BytesIO>; open them by their path"
        ):
            use(records)
    assert len(list(records)) == 3, "it still reads"


# ---- tables of other libraries --------------------------------------------------------


def plain(cell):
    return cell.tolist() if isinstance(cell, np.ndarray | np.generic) else cell


def test_tables_of_a_batch(path):
    batch = open_records(path).batches(9)[2]
    wanted = [
        {
            "id": i, "image": [[i] * 3] * 2, "raw": b"\xff%d" % i, "text": f"row {i}",
            "tokens": list(range(i % 4)), "vector": [i, -i],
        }
        for i in range(18, 27)
    ]  # fmt: skip
    frame = batch.to_pandas()
    assert [{name: plain(cell) for name, cell in row.items()} for row in frame.to_dict("records")] == wanted
    assert frame["id"].dtype == np.int64
    assert pd.api.types.is_string_dtype(frame["text"])
    assert type(frame["text"][0]) is str
    assert frame["image"][0].dtype == np.uint8
    made = pl.DataFrame(batch)
    assert made.rows(named=True) == [row | {"image": pl.Series([row["image"]])[0].to_list()} for row in wanted]
    assert made.schema["id"] == pl.Int64
    assert made.schema["text"] == pl.String
    assert made.schema["image"] == pl.Array(pl.UInt8, (2, 3))
    table = pa.table(batch)
    assert table.column("id").to_pylist() == [row["id"] for row in wanted]
    assert table.column("image").combine_chunks().to_numpy_ndarray().tolist() == [row["image"] for row in wanted]


@pytest.mark.parametrize("to", ["tensor", "torch", "jax", "tensorflow"])
def test_frames_of_other_frameworks_columns(path, to):
    columns = JAX_TAKES[0] if to == "jax" else None
    batch, wanted = (open_records(path, columns=columns, to=one).batches(9)[1] for one in (to, "numpy"))
    assert repr(batch.to_pandas().to_dict("records")) == repr(wanted.to_pandas().to_dict("records"))


def test_what_is_missing_is_none(lacking):
    batch = open_records(lacking).batches(9)[0]
    rows = [
        {"filled": 3, "number": 2**60 + 1, "pair": [1.0, 2.0], "text": "x", "words": ["a", "b"]},
        {"filled": 7, "number": None, "pair": None, "text": None, "words": ["c", "d"]},
    ]
    assert batch.to_pandas().to_dict("records") == rows
    assert pa.table(batch).to_pylist() == rows
    assert pl.DataFrame(pa.table(batch)).rows(named=True) == rows
    assert pl.DataFrame(batch)["number"].to_list() == [[2**60 + 1], []], (
        "by columns alone nothing tells what is missing"
    )


def test_frames_of_feature_lists_and_of_no_columns(tmp_path):
    file = write(tmp_path / "a", [sequence({"i": [1]}, {"s": [[1, 2], [3]]}), sequence({"i": [2]}, {"s": []})])
    batch = open_records(file).batches(9)[0]
    assert batch.to_pandas()["s"].tolist() == [[[1, 2], [3]], []]
    assert open_records(file, columns=[]).batches(9)[0].to_pandas().shape == (2, 0)


def test_pandas_is_told_what_to_use(path):
    batch = open_records(path).batches(9)[0]
    for use in (pd.DataFrame, np.asarray):
        with pytest.raises(tb.errors.UsageError, match=r"use batch.to_pandas\(\)"):
            use(batch)


def test_duckdb_queries_a_batch(path):
    duckdb = pytest.importorskip("duckdb")
    batch = open_records(path).batches(COUNT)[0]  # noqa: F841 - found by its name
    assert duckdb.sql("select sum(id), max(len(tokens)) from batch where text like 'row 1%'").fetchall() == [(146, 3)]


def test_batches_are_rows_still(path):
    assert len(rows_of(open_records(path).batches(9)[0])) == 9


def test_batches_compare_by_content(path, lacking):
    one, two = (next(iter(tb.open_records(path).batches(64))) for _ in range(2))
    assert one == two
    assert one == next(iter(tb.open_records(path).batches(64, to="tensor")))
    assert one != next(iter(tb.open_records(path).batches(32)))
    assert one != next(iter(tb.open_records(lacking).batches(64)))
    assert one != dict(one)


@pytest.mark.parametrize("kind", ["numbers", "text", "pairs", "lists", "arrays"])
def test_columns_that_some_rows_lack_are_written_like_rows(kind, tmp_path):
    flags = np.arange(500) % 3 != 1
    columns = {
        "numbers": np.arange(500),
        "text": np.array([f"row {i}" for i in range(500)]),
        "pairs": np.arange(1000, dtype=np.float32).reshape(500, 2),
        "lists": [np.arange(i % 4) for i in range(500)],
        "arrays": np.arange(3000, dtype=np.uint8).reshape(500, 2, 3),
    }
    column = columns[kind]
    schema = tb.records.Schema({"id": "int64", "x": _feature(kind)})
    with tb.RecordWriter(tmp_path / "a.tfrecord", schema=schema) as writer:
        for i in range(500):
            writer.write({"id": i} | ({"x": column[i]} if flags[i] else {}))
    with tb.RecordWriter(tmp_path / "b.tfrecord", schema=schema) as writer:
        given = [x if there else None for x, there in zip(column, flags, strict=True)] if kind == "lists" else column
        writer.write_batch({"id": np.arange(500), "x": given}, present={"x": flags})
    assert (tmp_path / "a.tfrecord").read_bytes() == (tmp_path / "b.tfrecord").read_bytes()
    with tb.RecordWriter(tmp_path / "c.tfrecord", schema=schema) as writer:
        for batch in tb.open_records(tmp_path / "a.tfrecord").batches(64):
            writer.write_batch(batch)
    assert (tmp_path / "a.tfrecord").read_bytes() == (tmp_path / "c.tfrecord").read_bytes()


def _feature(kind):
    shapes = {"numbers": ("int64", []), "text": ("text", []), "pairs": ("float32", [2]), "lists": ("int64", [None])}
    dtype, shape = shapes.get(kind, ("uint8", [2, 3]))
    return Feature(dtype, shape, optional=True)


def test_flags_that_do_not_fit_their_columns_are_refused(tmp_path):
    with tb.RecordWriter(tmp_path / "a.tfrecord") as writer:
        for present in ({"y": np.ones(3, bool)}, {"x": np.ones(2, bool)}, {"x": [1, 0, 1]}):
            with pytest.raises(tb.errors.UsageError, match="present"):
                writer.write_batch({"x": np.arange(3)}, present=present)
        rows = tb.Ragged(tb.Tensor("int64", (4,), np.arange(4)), (np.array([0, 1, 1, 4]),))
        schema = {"x": Feature("int64", [2], optional=True)}
        with tb.RecordWriter(tmp_path / "b.tfrecord", schema=schema) as other, pytest.raises(tb.errors.SchemaError):
            other.write_batch({"x": rows}, present={"x": np.array([True, False, True])})
        writer.write_batch({"x": np.arange(3)}, present={"x": np.array([True, False, True])})
    assert next(iter(tb.open_records(tmp_path / "a.tfrecord").batches(3))).present["x"].tolist() == [True, False, True]
