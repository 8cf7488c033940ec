"""Schemas from a sample of the records: what is looked at, what counts as fixed, and what that costs."""

import io
import os
import threading

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.formats.tfrecord.files import sample
from tensorbytes.records import Feature, Schema, infer_schema, plan
from tests.support import REAL_FILES
from tests.support.record_cases import by_hand, expected, plain_batches, plain_rows, stream, write
from tests.support.record_cases import example as made


def long_lists(*lengths):
    return [made(x=np.arange(n, dtype=np.float32).tolist(), y=[n]) for n in lengths]


def pipe_of(payloads):
    """A file object without seek() that has these records in it."""
    read_end, write_end = os.pipe()

    def feed():
        with os.fdopen(write_end, "wb") as sink:
            sink.write(by_hand(payloads))

    threading.Thread(target=feed, daemon=True).start()
    return os.fdopen(read_end, "rb")


@pytest.fixture(scope="module")
def two_long(tmp_path_factory):
    """The file that could not be read: a block holds one record, and the next one is longer."""
    folder = tmp_path_factory.mktemp("long")
    payloads = long_lists(300_000, 310_000)
    return {name: write(folder / f"x.{name}", payloads, name) for name in ("none", "gzip")}, payloads


@pytest.mark.parametrize("name", ["none", "gzip"])
def test_two_long_records_of_different_lengths(two_long, name, tmp_path):
    paths, payloads = two_long
    path = paths[name]
    parsed = [tf.train.Example.FromString(raw).features.feature for raw in payloads]
    rows = list(open_records(path))
    assert [row["x"].tolist() for row in rows] == [list(one["x"].float_list.value) for one in parsed]
    assert [int(row["y"]) for row in rows] == [300_000, 310_000]  # all records were looked at: a scalar
    (batch,) = open_records(path).batches(10)
    assert [len(row) for row in batch["x"].rows()] == batch["y"].tolist() == [300_000, 310_000]
    table = open_records(path).to_arrow().read_all()
    assert [len(item) for item in table["x"]] == [300_000, 310_000]
    assert tb.inspect(path).schema == open_records(path).schema == infer_schema(path)
    tb.convert(path, tmp_path / "x.parquet")
    assert tb.load(tmp_path / "x.parquet")["y"].tolist() == [300_000, 310_000]
    assert len(tb.load(path)["x"]) == len(open_records(path)[:]["x"]) == 2


def test_what_can_only_be_read_once_is_widened():
    with pipe_of(long_lists(600_000, 600_000, 610_000)) as file:
        records = open_records(file)
        assert records.schema == Schema(
            {"x": Feature("float32", [None], optional=True), "y": Feature("int64", [None], optional=True)}
        )
        assert [row["x"].shape for row in records] == [(600_000,), (600_000,), (610_000,)]


def test_a_short_pipe_is_seen_whole():
    payloads = long_lists(3, 3)
    with pipe_of(payloads) as file:
        records = open_records(file)
        assert records.schema == Schema({"x": ("float32", [3]), "y": "int64"})
        assert plain_rows(records) == expected(payloads)


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
def test_a_real_file_of_long_lists():
    path = REAL_FILES / "records" / "humanoid_corridor.tfrecord"
    payloads = list(tf.data.TFRecordDataset(str(path), compression_type="GZIP").as_numpy_iterator())
    assert len(payloads) == 2
    assert plain_rows(open_records(path)) == expected(payloads)
    assert plain_batches(open_records(path), 2) == expected(payloads)
    assert open_records(path).to_arrow().read_all().num_rows == 2


# ---- what is looked at -------------------------------------------------------------------


FILL = [bytes(10_000)]


def with_odd(count, odd, **columns):
    """Records of 10 kB, some of which have other columns."""
    return [made(fill=FILL, **odd.get(number, columns)) for number in range(count)]


@pytest.mark.parametrize("place", [0, 1, 449, 250])
def test_the_head_the_tail_and_places_between(tmp_path, place):
    payloads = with_odd(450, {place: {"a": [1, 2], "b": [b"new"]}}, a=[1])
    if place == 250:  # where a place is looked at: 6/11 of the file
        payloads[244:260] = [payloads[250]] * 16
    path = write(tmp_path / "x", payloads)
    records = open_records(path)
    assert records.schema == Schema(
        {"a": ("int64", [None]), "b": Feature("bytes", [None] if place != 250 else (), optional=True), "fill": "bytes"}
    )
    assert plain_rows(records) == expected(payloads)


def test_a_feature_that_few_records_have_is_of_no_fixed_length(tmp_path):
    payloads = with_odd(450, {0: {"a": [1], "b": [5, 5]}}, a=[1])
    schema = open_records(write(tmp_path / "x", payloads)).schema
    assert schema["a"] == Feature("int64")
    assert schema["b"] == Feature("int64", [None], optional=True)
    assert infer_schema(tmp_path / "x")["b"] == Feature("int64", [2], optional=True)  # everything was seen


@pytest.mark.parametrize("count", [7, 8])
def test_eight_records_make_a_rule(tmp_path, count):
    """Of a file too large to be read whole, with records that fill it."""
    payloads = [made(a=[1], fill=[bytes(5 << 20)])] * count
    path = write(tmp_path / "x", payloads, "gzip")
    schema = open_records(path).schema
    assert schema["a"] == Feature("int64", [None], optional=True)  # 32 MiB hold six of them
    small = write(tmp_path / "y", [made(a=[1], fill=[bytes(700_000)])] * (count + 4), "gzip")
    assert open_records(small).schema["a"] == Feature("int64")


def test_few_records_up_to_32_mib_are_all_looked_at(tmp_path):
    payloads = [made(a=[1] * (1 + (number == 4)), fill=[bytes(3 << 20)]) for number in range(7)]
    path = write(tmp_path / "x", payloads)
    assert open_records(path).schema == infer_schema(path) == Schema({"a": ("int64", [None]), "fill": "bytes"})
    assert [len(row["a"]) for row in open_records(path)] == [1, 1, 1, 1, 2, 1, 1]


def test_every_one_of_some_files_is_looked_at(tmp_path):
    parts = [with_odd(130, {}, **{f"f{n}": [n]}) for n in range(4)]
    paths = [write(tmp_path / f"x{n}", part) for n, part in enumerate(parts)]
    records = open_records(paths)
    assert {*records.schema} == {"fill", "f0", "f1", "f2", "f3"}
    assert all(records.schema[f"f{n}"] == Feature("int64", optional=True) for n in range(4))
    assert plain_rows(records) == expected([payload for part in parts for payload in part])


def test_of_many_files_the_first_the_last_and_some_between(tmp_path):
    paths = [write(tmp_path / f"x{n:03}", with_odd(20, {}, **{f"f{n}": [n]})) for n in range(70)]
    names = {*open_records(paths).schema} - {"fill"}
    assert len(names) == 12
    assert {"f0", "f69"} < names
    few = [write(tmp_path / f"y{n:03}", [made(**{f"f{n}": [n]})]) for n in range(30)]
    assert len(open_records(few).schema) == 30  # which are little together


def test_all_splits_of_a_file_have_one_schema(tmp_path):
    payloads = with_odd(450, {449: {"a": [1, 2]}}, a=[1])
    path = write(tmp_path / "x", payloads)
    splits = plan(path, 2)
    assert len(splits) == 2
    assert {repr(open_records(split).schema) for split in splits} == {repr(open_records(path).schema)}
    assert [row for split in splits for row in plain_rows(open_records(split))] == expected(payloads)


@pytest.mark.parametrize("size", [100, 10_000, 1_500_000])
def test_no_more_is_read_than_is_said(tmp_path, size, monkeypatch):
    path = tmp_path / "x"
    frame = by_hand([made(a=[1], fill=[bytes(size)])])
    path.write_bytes(frame * ((60 << 20) // len(frame)))
    read = []
    take = sample._Room.take
    monkeypatch.setattr(sample._Room, "take", lambda self, n: (read.append(n), take(self, n))[1])
    assert open_records(path).schema["a"] == Feature("int64")
    assert len(read) >= 12
    assert sum(read[:-1]) <= sample.MOST_BYTES
    assert size > 1_000_000 or sum(read) < 12 << 20


def test_a_place_may_lie_in_a_payload_that_holds_records(tmp_path):
    """What passes for records of the file makes the schema wider, and nothing else."""
    inner = by_hand([made(inside=[1], a=[1, 2])] * 40_000)
    payloads = [made(a=[1], fill=[inner])] * 20
    records = open_records(write(tmp_path / "x", payloads))
    assert "inside" in records.schema
    assert plain_rows(records) == expected(payloads)


# ---- damage, and records that can't be read ------------------------------------------------


def test_damage_in_the_sample_is_met_when_it_is_read(tmp_path):
    payloads = with_odd(450, {}, a=[1])
    data = bytearray(by_hand(payloads))
    data[len(data) - 5_000] ^= 1
    (tmp_path / "x").write_bytes(data)
    records = open_records(tmp_path / "x")
    assert records.schema == Schema({"a": "int64", "fill": "bytes"})
    rows = iter(records)
    assert sum(1 for _, _ in zip(range(449), rows, strict=False)) == 449
    with pytest.raises(errors.CorruptError, match="record 449"):
        next(rows)


@pytest.mark.parametrize("at", [20, 2_000_000])
def test_damage_is_read_around(tmp_path, at):
    payloads = with_odd(450, {}, a=[1])
    data = bytearray(by_hand(payloads))
    data[at] ^= 1
    (tmp_path / "x").write_bytes(data)
    records = open_records(tmp_path / "x", on_corrupt="skip")
    with pytest.warns(errors.DamageWarning) as warned:
        assert sum(1 for _ in records) == 449
    assert len(warned) == len(records.damages) == 1


def test_a_malformed_record_of_the_sample_is_met_when_it_is_read(tmp_path):
    payloads = with_odd(450, {}, a=[1])
    payloads[449] = b"\x0a\x05\x0a\x7f"
    path = write(tmp_path / "x", payloads)
    rows = iter(open_records(path))
    assert sum(1 for _, _ in zip(range(449), rows, strict=False)) == 449
    with pytest.raises(errors.CorruptError, match="record 449 is not a sound Example"):
        next(rows)


def test_a_first_record_that_is_too_long_for_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "MOST_BYTES", 4 << 20)
    path = write(tmp_path / "x", [made(a=[1], fill=[bytes(5 << 20)]), made(a=[1, 2], fill=[b""])])
    assert open_records(path).schema["a"] == Feature("int64", [None], optional=True)
    assert [np.ravel(row["a"]).tolist() for row in open_records(path)] == [[1], [1, 2]]


# ---- lengths="ragged" -------------------------------------------------------------------


def test_no_length_is_fixed_on_request(tmp_path):
    payloads = [made(a=[1], b=[1.0, 2.0], c=[b"x"])] * 20
    path = write(tmp_path / "x", payloads)
    want = Schema({"a": ("int64", [None]), "b": ("float32", [None]), "c": ("bytes", [None])})
    assert open_records(path, lengths="ragged").schema == infer_schema(path, lengths="ragged") == want
    assert (
        open_records(path).schema == infer_schema(path) == Schema({"a": "int64", "b": ("float32", [2]), "c": "bytes"})
    )
    (batch,) = open_records(path, lengths="ragged").batches(20)
    assert [row.tolist() for row in batch["a"].rows()] == [[1]] * 20
    assert isinstance(tb.load(path, lengths="ragged")["b"], tb.Ragged)
    steps = tf.train.SequenceExample()
    steps.feature_lists.feature_list["s"].feature.add().int64_list.value.append(5)
    assert infer_schema(stream([steps.SerializeToString()]), lengths="ragged").lists["s"] == Feature("int64", [None])


def test_what_lengths_may_say(tmp_path):
    path = write(tmp_path / "x", [made(a=[1])])
    for call in (open_records, infer_schema):
        with pytest.raises(errors.UsageError, match="lengths='fixed': expected 'auto' or 'ragged'"):
            call(path, lengths="fixed")
    with pytest.raises(errors.UsageError, match="one is given"):
        open_records(path, schema={"a": "int64"}, lengths="ragged")


# ---- file objects ------------------------------------------------------------------------


def test_file_objects_need_no_schema_for_arrow():
    payloads = [made(a=[number], b=[b"x" * number]) for number in range(30)]
    want = open_records(stream(payloads), schema={"a": "int64", "b": "bytes"}).to_arrow().read_all()
    assert open_records(stream(payloads)).to_arrow().read_all().equals(want)
    with pipe_of(payloads) as file:
        assert open_records(file).to_arrow(7).read_all().combine_chunks().equals(want.combine_chunks())
    with pipe_of(payloads) as file:
        import pyarrow as pa

        assert pa.table(open_records(file)).equals(want)


def test_looking_leaves_a_file_object_where_it_stood():
    file = io.BytesIO(b"before" + by_hand([made(a=[number]) for number in range(30)]))
    file.seek(6)
    records = open_records(file)
    assert records.schema == Schema({"a": "int64"})
    assert file.tell() == 6
    assert [int(row["a"]) for row in records] == list(range(30))
    file.seek(6)
    records = open_records(file)
    begun = iter(records.payloads())
    next(begun)
    assert records.schema == Schema({"a": "int64"})
    with pytest.raises(errors.UsageError, match="can't be iterated over twice at once"):
        list(begun)


def test_a_named_pipe_is_opened_once(tmp_path):
    payloads = [made(a=[number]) for number in range(30)]
    os.mkfifo(tmp_path / "pipe")
    feeder = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(by_hand(payloads)))
    feeder.start()
    records = open_records(tmp_path / "pipe")
    assert records.schema == Schema({"a": "int64"})
    assert [int(row["a"]) for row in records] == list(range(30))
    feeder.join()


@pytest.mark.parametrize("in_lists", [False, True])
def test_quantized_tensors_that_few_records_show(in_lists):
    feature = Feature("float32", [2, 3], quantize="int8")
    schema = Schema({}, {"q": feature}) if in_lists else Schema({"q": feature})
    target = io.BytesIO()
    with tb.RecordWriter(target, schema=schema, compression="none") as writer:
        for n in range(3):
            value = np.full((2, 3), n, np.float32)
            writer.write({"q": [value, value] if in_lists else value})
    data = target.getvalue()
    shapes = [np.shape(row["q"]) for row in open_records(io.BytesIO(data))]
    assert shapes == [(2, 2, 3) if in_lists else (2, 3)] * 3
    for records in (open_records(io.BytesIO(data), lengths="ragged"), open_records(io.BytesIO(data))):
        assert [np.shape(row["q"]) for row in records] == shapes
    found = open_records(io.BytesIO(data), lengths="ragged").schema["q"]
    assert found.shape == ((2, 3) if in_lists else (None, None))


def test_a_sample_goes_on_behind_damage(tmp_path):
    """A record that is skipped does not make scalars lists."""
    path = tmp_path / "x"
    with tb.RecordWriter(path, sidecar=False) as writer:
        for number in range(20):
            writer.write({"x": number})
    data = bytearray(path.read_bytes())
    data[3 * len(data) // 20 + 20] ^= 1
    path.write_bytes(data)
    with pytest.warns(errors.DamageWarning):
        rows = [int(row["x"]) for row in tb.open_records(path, on_corrupt="skip")]
    assert rows == [number for number in range(20) if number != 3]
