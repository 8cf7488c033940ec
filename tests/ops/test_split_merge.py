"""split and merge: what is cut is all there, in order, read by the real libraries, and joined again as it was."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes.formats import _tensorproto  # noqa: F401 - loaded before hypothesis counts the time
from tensorbytes.formats.tfrecord.schema import Schema

RNG = np.random.default_rng(0)
TENSORS = {f"layer{i}.w": RNG.normal(size=(10 + i, 4)).astype(np.float32) for i in range(7)} | {"step": np.int64(3)}


def files_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path) as w:
        for i in range(25):
            w.write({"id": i, "values": np.arange(i % 4, dtype=np.int64), "text": "t" * (i % 7)})
    return path


# ---- records --------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"shards": 4}, {"rows": 7}, {"nbytes": 700}])
def test_records_are_cut_in_order_and_nothing_is_lost(records, tmp_path, how):
    import tensorflow as tf

    made = tb.split(records, tmp_path / "y.tfrecord", **how)
    count = len(made.files)
    assert made.files == [str(tmp_path / f"y.tfrecord-{i:05d}-of-{count:05d}") for i in range(count)]
    assert b"".join(Path(file).read_bytes() for file in made.files) == records.read_bytes()
    assert (made.total, made.unit, made.nbytes) == (25, "record", records.stat().st_size)
    read = [len(list(tf.data.TFRecordDataset(file))) for file in made.files]
    assert read == made.items
    if "shards" in how:
        assert count == 4
        assert max(read) - min(read) <= 1
    if "rows" in how:
        assert read == [7, 7, 7, 4]
    if "nbytes" in how:
        assert all(os.path.getsize(file) <= 700 for file in made.files)
    assert Schema.load(f"{tmp_path / 'y.tfrecord'}.schema.json") == tb.open_records(records).schema
    assert tb.diff(records, f"{tmp_path}/y.tfrecord@{count}").identical
    merged = tb.merge(f"{tmp_path}/y.tfrecord@{count}", tmp_path / "z.tfrecord")
    assert (tmp_path / "z.tfrecord").read_bytes() == records.read_bytes()
    assert (merged.total, merged.files) == (25, [str(tmp_path / "z.tfrecord")])
    assert tb.open_records(tmp_path / "z.tfrecord").schema["text"].dtype == "text"
    json.dumps(made.to_dict())
    assert "25 records in" in str(made)


@pytest.mark.parametrize("compression", ["gzip", "zlib", "snappy"])
def test_the_compression_stays_unless_another_is_asked_for(records, tmp_path, compression):
    import tensorflow as tf

    packed = tmp_path / "p.tfrecord"
    tb.merge([records], packed, compression=compression)
    made = tb.split(packed, tmp_path / "q.tfrecord", shards=3)
    assert tb.inspect(made.files[0]).details == {"compression": compression}
    found = tf.data.TFRecordDataset(made.files, compression_type=compression.upper())
    assert [bytes(item.numpy()) for item in found] == list(tb.open_records(records).payloads())
    plain = tb.split(packed, tmp_path / "r.tfrecord", shards=3, compression="none")
    assert b"".join(Path(file).read_bytes() for file in plain.files) == records.read_bytes()
    tb.merge(made.files, tmp_path / "z.tfrecord.gz")
    assert gzip.decompress((tmp_path / "z.tfrecord.gz").read_bytes()) == records.read_bytes()


def test_records_of_anything(tmp_path):
    import tensorflow as tf

    payloads = [b"hello", b'{"a": 1}', b"", bytes(range(256))]
    with tf.io.TFRecordWriter(str(tmp_path / "any")) as w:
        for payload in payloads:
            w.write(payload)
    made = tb.split(tmp_path / "any", tmp_path / "part", rows=1)
    assert [next(tb.open_records(file).payloads()) for file in made.files] == payloads
    assert not [name for name in files_in(tmp_path) if "schema" in name]
    tb.merge(str(tmp_path / "part@4"), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "any").read_bytes()


def test_more_shards_than_records(records, tmp_path):
    made = tb.split(records, tmp_path / "y", shards=40)
    assert sum(made.items) == 25
    assert len(made.files) == 40
    assert tb.diff(records, f"{tmp_path}/y@40").identical
    again = tb.split(f"{tmp_path}/y@40", tmp_path / "few", shards=2)  # shards are cut anew
    assert b"".join(Path(file).read_bytes() for file in again.files) == records.read_bytes()


def test_damage_stops_it_and_leaves_nothing(records, tmp_path):
    data = bytearray(records.read_bytes())
    data[len(data) // 2] ^= 1
    records.write_bytes(data)
    before = files_in(tmp_path)
    with pytest.raises(tb.errors.CorruptError, match=r"x\.tfrecord: .*record \d+") as caught:
        tb.split(records, tmp_path / "y.tfrecord", rows=3)
    assert caught.value.at > 0
    with pytest.raises(tb.errors.CorruptError):
        tb.merge([records], tmp_path / "y.tfrecord")
    assert files_in(tmp_path) == before


def test_a_failure_leaves_nothing_and_keeps_the_old_files(records, tmp_path, monkeypatch):
    old = tmp_path / "y.tfrecord-00001-of-00002"
    old.write_bytes(b"old")
    before = files_in(tmp_path)

    def fail(done, total):
        raise KeyboardInterrupt

    for how in ({"rows": 5}, {"shards": 2}):
        with pytest.raises(KeyboardInterrupt):
            tb.split(records, tmp_path / "y.tfrecord", progress=fail, **how)
    with pytest.raises(KeyboardInterrupt):
        tb.merge([records], old, progress=fail)
    assert files_in(tmp_path) == before
    assert old.read_bytes() == b"old"


def test_an_input_is_never_replaced(records, tmp_path):
    made = tb.split(records, tmp_path / "y.tfrecord", shards=2)
    contents = [Path(file).read_bytes() for file in made.files]
    for target in made.files:
        with pytest.raises(tb.errors.UsageError, match="one of the files that are read"):
            tb.merge(made.files, target)
    with pytest.raises(tb.errors.UsageError, match="one of the files that are read"):
        tb.split(f"{tmp_path}/y.tfrecord@2", tmp_path / "y.tfrecord", shards=2)
    assert [Path(file).read_bytes() for file in made.files] == contents
    assert not [name for name in files_in(tmp_path) if name.endswith(".tmp")]


def test_progress_counts_bytes(records, tmp_path):
    seen = []
    tb.split(records, tmp_path / "y", rows=5, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (records.stat().st_size,) * 2
    seen.clear()
    tb.merge([records, records], tmp_path / "z", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2 * records.stat().st_size,) * 2


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    how=st.one_of(
        st.integers(1, 50).map(lambda n: {"shards": n}),
        st.integers(1, 50).map(lambda n: {"rows": n}),
        st.integers(1, 2000).map(lambda n: {"nbytes": n}),
    ),
    compression=st.sampled_from(["none", "gzip"]),
)
def test_any_records_in_any_parts(tmp_path_factory, sizes, how, compression):
    folder = tmp_path_factory.mktemp("any")
    with tb.RecordWriter(folder / "x", schema={"b": "bytes"}, sync=False) as w:
        for size in sizes:
            w.write({"b": bytes(size)})
    data = (folder / "x").read_bytes()
    made = tb.split(folder / "x", folder / "y", sync=False, compression=compression, **how)
    plain = [Path(file).read_bytes() for file in made.files]
    plain = [gzip.decompress(part) for part in plain] if compression == "gzip" else plain
    assert b"".join(plain) == data
    assert made.total == len(sizes)
    if "rows" in how:
        assert all(number == how["rows"] for number in made.items[:-1])
        assert 0 < made.items[-1] <= how["rows"]
    if "nbytes" in how:
        sized = zip(plain, made.items, strict=True)
        assert all(len(part) <= how["nbytes"] or number == 1 for part, number in sized)
    tb.merge(made.files, folder / "z", sync=False, compression="none")
    assert (folder / "z").read_bytes() == data


# ---- tables and streams -----------------------------------------------------------


@pytest.mark.parametrize("suffix", ["arrow", "parquet", "arrows"])
@pytest.mark.parametrize("how", [{"shards": 3}, {"rows": 40}, {"nbytes": 2000}])
def test_tables_are_cut_by_rows(tmp_path, suffix, how):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / f"x.{suffix}"
    columns = {
        "image": RNG.integers(0, 256, (100, 5, 5), np.uint8),
        "text": np.array(["x" * (i % 9) for i in range(100)], object),
        "ids": tb.Ragged(
            tb.Tensor("int64", (150,), np.arange(150)), (np.sort(np.r_[0, RNG.integers(0, 150, 99), 150]),)
        ),
    }
    tb.save(columns, path)
    made = tb.split(path, tmp_path / f"y.{suffix}", **how)
    assert made.files[0].endswith(f"y-00000-of-{len(made.files):05d}.{suffix}")
    assert (made.total, made.unit) == (100, "row")
    if suffix == "parquet":
        assert [pq.read_table(file).num_rows for file in made.files] == made.items
    else:
        read = pa.ipc.open_stream if suffix == "arrows" else pa.ipc.open_file
        assert [read(pa.memory_map(file)).read_all().num_rows for file in made.files] == made.items
    merged = tb.merge(f"{tmp_path}/y.{suffix}@{len(made.files)}", tmp_path / f"z.{suffix}")
    assert merged.total == 100
    assert tb.diff(path, tmp_path / f"z.{suffix}").identical


def test_tables_of_other_columns(tmp_path):
    tb.save({"a": np.arange(3)}, tmp_path / "a.arrow")
    tb.save({"b": np.arange(3)}, tmp_path / "b.arrow")
    before = files_in(tmp_path)
    with pytest.raises(tb.errors.SchemaError, match="column"):
        tb.merge([tmp_path / "a.arrow", tmp_path / "b.arrow"], tmp_path / "c.arrow")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("suffix", ["tb", "pbs"])
@pytest.mark.parametrize("how", [{"shards": 3}, {"rows": 4}, {"nbytes": 300}])
def test_streams_are_cut_by_objects(tmp_path, suffix, how):
    with tb.open(tmp_path / "x.tb", "w") as w:
        for i in range(10):
            w.write({"a": np.arange(i), "b": [np.ones(2), "text"]})
    if suffix != "tb":
        tb.convert(tmp_path / "x.tb", tmp_path / f"x.{suffix}")
    made = tb.split(tmp_path / f"x.{suffix}", tmp_path / f"y.{suffix}", **how)
    assert (made.total, made.unit) == (10, "object")
    assert [tb.inspect(file).objects for file in made.files] == made.items
    tb.merge(made.files, tmp_path / f"z.{suffix}")
    assert tb.diff(tmp_path / f"x.{suffix}", tmp_path / f"z.{suffix}").identical
    assert (tmp_path / f"z.{suffix}").read_bytes() == (tmp_path / f"x.{suffix}").read_bytes()


def test_what_was_compressed_is_said(tmp_path):
    tb.save({f"w{i}": np.zeros(1000) for i in range(4)}, tmp_path / "x.tb", compression="zstd")
    made = tb.split(tmp_path / "x.tb", tmp_path / "y.tb", shards=2)
    assert "stored plainly" in made.changes[0]
    packed = tb.split(tmp_path / "x.tb", tmp_path / "z.tb", shards=2, compression="zstd")
    assert not packed.changes
    assert packed.nbytes < made.nbytes / 10
    assert tb.inspect(packed.files[0]).tensors[0].stored == "zstd"


# ---- files of tensors ---------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["tb", "npz", "pt", "pbs", "safetensors"])
@pytest.mark.parametrize("how", [{"shards": 3}, {"nbytes": 500}])
def test_files_of_tensors_are_cut_between_them(tmp_path, suffix, how):
    held = {name: value for name, value in TENSORS.items() if suffix != "safetensors" or value.ndim}
    tb.save(held, tmp_path / f"x.{suffix}")
    made = tb.split(tmp_path / f"x.{suffix}", tmp_path / f"y.{suffix}", **how)
    assert (made.total, made.unit) == (len(held), "tensor")
    assert len(made.files) == 3 if "shards" in how else len(made.files) > 2
    found = {}
    for file in made.files:
        part = tb.load(file)
        if "nbytes" in how:
            assert sum(value.nbytes for value in part.values()) <= 500
        found |= part
    assert found.keys() == held.keys()
    tb.merge(made.files, tmp_path / f"z.{suffix}")
    assert tb.diff(tmp_path / f"x.{suffix}", tmp_path / f"z.{suffix}").identical


def test_safetensors_parts_have_an_index(tmp_path):
    from safetensors.numpy import load_file

    held = {name: value for name, value in TENSORS.items() if value.ndim}
    tb.save(held, tmp_path / "x.safetensors", meta={"format": "pt"})
    made = tb.split(tmp_path / "x.safetensors", tmp_path / "model.safetensors", nbytes=500)
    count = len(made.files)
    assert [Path(file).name for file in made.files] == [
        f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)
    ]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    for file in made.files:
        for name, value in load_file(file).items():
            assert index["weight_map"].pop(name) == Path(file).name
            np.testing.assert_array_equal(value, held[name])
    assert not index["weight_map"]
    merged = tb.merge(tmp_path / "model.safetensors.index.json", tmp_path / "one.safetensors")
    assert (merged.total, tb.inspect(tmp_path / "one.safetensors").meta) == (7, {"format": "pt"})
    for target in ("x.safetensors", "model.safetensors"):
        with pytest.raises(tb.errors.UsageError, match="one of the files that are read"):
            tb.split(tmp_path / target, tmp_path / target, nbytes=300)
    tb.merge(made.files, tmp_path / "all.npz")  # and to another format
    assert tb.diff(tmp_path / "x.safetensors", tmp_path / "all.npz").identical


def test_lists_stay_whole(tmp_path):
    tree = {"a": np.ones(50), "list": [np.zeros(50), {"x": np.ones(50)}], "b": {"c": np.ones(50), "d": np.ones(50)}}
    tb.save(tree, tmp_path / "x.tb", meta={"epoch": "3"})
    made = tb.split(tmp_path / "x.tb", tmp_path / "y.tb", nbytes=400)
    assert made.items == [1, 2, 1, 1]
    tb.merge(made.files, tmp_path / "z.tb")
    assert tb.diff(tmp_path / "x.tb", tmp_path / "z.tb").identical
    assert tb.inspect(tmp_path / "z.tb").meta == {"epoch": "3"}
    tb.save([np.ones(3), np.ones(4)], tmp_path / "l.tb")
    with pytest.raises(tb.errors.UsageError, match="nothing to cut between"):
        tb.split(tmp_path / "l.tb", tmp_path / "m.tb", shards=2)


def test_names_choose(tmp_path):
    tb.save(TENSORS, tmp_path / "x.npz")
    made = tb.split(tmp_path / "x.npz", tmp_path / "y.npz", shards=2, names="layer[0-3]*")
    assert made.total == 4
    with pytest.raises(tb.errors.UsageError, match="no tensor 'nope'"):
        tb.split(tmp_path / "x.npz", tmp_path / "w.npz", shards=2, names="nope")


def test_a_doubled_name_is_told_with_its_files(tmp_path):
    tb.save({"w": np.ones(3), "v": np.ones(1)}, tmp_path / "a.npz")
    tb.save({"w": np.zeros(3)}, tmp_path / "b.tb")
    with pytest.raises(tb.errors.UsageError, match=r"'w' is in .*a\.npz and in .*b\.tb; pass prefix='stem'"):
        tb.merge([tmp_path / "a.npz", tmp_path / "b.tb"], tmp_path / "c.npz")
    assert not (tmp_path / "c.npz").exists()
    tb.merge([tmp_path / "a.npz", tmp_path / "b.tb"], tmp_path / "c.npz", prefix="stem")
    assert sorted(np.load(tmp_path / "c.npz").files) == ["a/v", "a/w", "b/w"]
    tb.merge(f"{tmp_path}/[ab].*", tmp_path / "d.npz", prefix=lambda path: Path(path).suffix)
    assert sorted(tb.load(tmp_path / "d.npz")) == [".npz/v", ".npz/w", ".tb/w"]
    tb.save({"w": {"x": np.ones(1)}}, tmp_path / "n.tb")
    with pytest.raises(tb.errors.UsageError, match="two values one place"):
        tb.merge([tmp_path / "b.tb", tmp_path / "n.tb"], tmp_path / "e.tb")


def test_single_tensors_are_called_like_their_files(tmp_path):
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.full(3, ord(name)))
    with pytest.raises(tb.errors.UsageError, match="has no name"):
        tb.merge(f"{tmp_path}/*.npy", tmp_path / "all.npz")
    tb.merge(f"{tmp_path}/*.npy", tmp_path / "all.npz", prefix="stem")
    assert {name: int(value[0]) for name, value in np.load(tmp_path / "all.npz").items()} == {"a": 97, "b": 98, "c": 99}
    with pytest.raises(tb.errors.UsageError, match="nothing to cut between"):
        tb.split(tmp_path / "a.npy", tmp_path / "d.npy", shards=2)


def test_numbers_of_metadata_and_structs_are_kept(tmp_path):
    struct = np.array([(1.5, 2), (2.5, 3)], [("x", "f8"), ("y", "i4")])
    tb.save({"a": struct, "l": [struct[0]]}, tmp_path / "a.tb", meta={"n": 3, "lr": 0.5, "none": None})
    tb.save({"b": struct}, tmp_path / "b.npz", meta={"n": 3, "best": True})
    tb.merge([tmp_path / "a.tb", tmp_path / "b.npz"], tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb") as file:
        assert dict(file.meta) == {"n": 3, "lr": 0.5, "none": None, "best": True}
    found = tb.load(tmp_path / "x.tb")
    assert found["a"].dtype == found["b"].dtype == struct.dtype
    assert found["l"][0].tolist() == (1.5, 2)
    tb.merge([tmp_path / "a.tb", tmp_path / "b.npz"], tmp_path / "y.npz", prefix="stem")
    assert tb.load(tmp_path / "y.npz")["b/b"].tolist() == struct.tolist()
    tb.save({"c": np.ones(1)}, tmp_path / "c.tb", meta={"n": "3"})
    with pytest.raises(tb.errors.UsageError, match=r"the metadata 'n' is 3 in .* and '3' in"):
        tb.merge([tmp_path / "a.tb", tmp_path / "c.tb"], tmp_path / "z.tb")


def test_a_struct_that_was_cut_is_whole_again(tmp_path):
    struct = np.zeros(500, [("x", "f8"), ("y", "f8")])
    tb.save({"s": struct}, tmp_path / "x.tb")
    parts = tb.split(tmp_path / "x.tb", tmp_path / "part.tb", shards=2)
    assert [list(tb.load(path)["s"]) for path in parts.files] == [["x"], ["y"]]
    tb.merge(parts.files, tmp_path / "y.npz")
    assert np.load(tmp_path / "y.npz")["s"].dtype == struct.dtype


def test_metadata_must_agree(tmp_path):
    tb.save({"a": np.ones(1)}, tmp_path / "a.tb", meta={"epoch": "3", "x": "1"})
    tb.save({"b": np.ones(1)}, tmp_path / "b.tb", meta={"epoch": "4", "y": "2"})
    with pytest.raises(tb.errors.UsageError, match=r"'epoch' is '3' in .*a\.tb and '4' in"):
        tb.merge([tmp_path / "a.tb", tmp_path / "b.tb"], tmp_path / "c.tb")
    tb.merge([tmp_path / "a.tb", tmp_path / "b.tb"], tmp_path / "c.tb", allow="meta")
    assert tb.inspect(tmp_path / "c.tb").meta == {"epoch": "3", "x": "1", "y": "2"}


def test_damage_in_a_file_of_tensors(tmp_path):
    tb.save({"a": np.arange(1000.0), "b": np.arange(1000.0)}, tmp_path / "x.tb")
    data = bytearray((tmp_path / "x.tb").read_bytes())
    data[9000] ^= 1
    (tmp_path / "x.tb").write_bytes(data)
    for work in (
        lambda: tb.split(tmp_path / "x.tb", tmp_path / "y.tb", shards=2),
        lambda: tb.merge([tmp_path / "x.tb"], tmp_path / "y.tb"),
    ):
        with pytest.raises(tb.errors.CorruptError, match=r"x\.tb"):
            work()
    assert files_in(tmp_path) == ["x.tb"]


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("pass shards=.*, or pass rows=.*, or pass nbytes=", {}),
        ("pass shards=.*, or pass rows=.*, or pass nbytes=", {"shards": 2, "rows": 3}),
        ("whole number", {"shards": 0}),
        ("whole number", {"nbytes": 1.5}),
        ("no option 'colour'", {"shards": 2, "colour": "red"}),
        ("convert", {"shards": 2, "format": "npz"}),
        ("names pick tensors", {"shards": 2, "names": "id"}),
    ],
)
def test_what_can_t_be_asked_for(records, tmp_path, words, arguments):
    before = files_in(tmp_path)
    with pytest.raises(tb.errors.UsageError, match=words):
        tb.split(records, tmp_path / "y.tfrecord", **arguments)
    assert files_in(tmp_path) == before


def test_files_that_don_t_go_together(records, tmp_path):
    tb.save({"a": np.ones(3), "b": np.ones(2)}, tmp_path / "x.npz")
    with pytest.raises(tb.errors.UsageError, match=r"x\.tfrecord holds records and .*x\.npz tensors"):
        tb.merge([tmp_path / "x.npz", records], tmp_path / "y.npz")
    with pytest.raises(tb.errors.UsageError, match="not rows"):
        tb.split(tmp_path / "x.npz", tmp_path / "y.npz", rows=2)
    with pytest.raises(tb.errors.UsageError, match="can't be cut into 3"):
        tb.split(tmp_path / "x.npz", tmp_path / "y.npz", shards=3)
    for work in (
        lambda: tb.split(records, tmp_path / "y.npz", shards=2),
        lambda: tb.merge([records], tmp_path / "y.npz"),
    ):
        with pytest.raises(tb.errors.UsageError, match=r"y\.npz: records are copied as they are; convert\(src, dst\)"):
            work()
    with pytest.raises(tb.errors.UsageError, match="local path"):
        tb.split(records, "memory://y.tfrecord", shards=2)
    with pytest.raises(tb.errors.UsageError, match="no files"):
        tb.merge([], tmp_path / "y.npz")
