"""Files of other people's software, where they are at hand: shared/corpus beside the repository."""

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors, open_records, verify
from tensorbytes.records import build_index, infer_schema, plan
from tests.support import REAL_FILES
from tests.support.example_bytes import by_entries
from tests.support.record_cases import expected, plain_batches, plain_rows, present

EXAMPLES = {
    "iris.tfrecords": ("none", 150),
    "iris.tfrecords.gz": ("gzip", 150),
    "salient_span.tfrecord.gz": ("gzip", 2),
    "nsynth.tfrecord": ("none", 3),
}
pytestmark = pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")


def payloads_of(name, compression):
    dataset = tf.data.TFRecordDataset(
        str(REAL_FILES / name), compression_type={"none": "", "gzip": "GZIP"}[compression]
    )
    return [payload.numpy() for payload in dataset]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name):
    compression, count = EXAMPLES[name]
    payloads = payloads_of(name, compression)
    assert len(payloads) == count
    records = open_records(REAL_FILES / name)
    assert list(records.payloads()) == payloads
    assert plain_rows(records) == expected(payloads)
    for size in (1, 7, 4096):
        assert plain_batches(open_records(REAL_FILES / name), size) == expected(payloads)
    assert plain_rows(open_records(REAL_FILES / name, schema=infer_schema(REAL_FILES / name))) == expected(payloads)
    assert len(records) == count
    assert verify(REAL_FILES / name).ok


def test_what_iris_holds():
    records = open_records(REAL_FILES / "iris.tfrecords")
    assert {feature.describe() for feature in records.schema.values()} == {"float32", "bytes"}
    (batch,) = records.batches(200)
    (labels,) = (column for column in batch.values() if isinstance(column, tb.Strings))
    assert [labels.items().count(label) for label in sorted(set(labels.items()))] == [50, 50, 50]
    assert all(column.shape == (150,) for column in batch.values())


def test_parse_example_agrees():
    payloads = payloads_of("nsynth.tfrecord", "none")
    schema = infer_schema(REAL_FILES / "nsynth.tfrecord")
    spec = {
        name: tf.io.RaggedFeature({"float32": tf.float32, "int64": tf.int64, "bytes": tf.string}[feature.dtype])
        for name, feature in schema.items()
    }
    want = tf.io.parse_example(payloads, spec)
    for index, row in enumerate(open_records(REAL_FILES / "nsynth.tfrecord")):
        for name, value in row.items():
            theirs = want[name][index].numpy()
            ours = np.asarray(value, object if schema[name].dtype == "bytes" else None).reshape(-1)
            assert ours.tolist() == theirs.tolist(), name


def test_a_sequence_of_images():
    path = REAL_FILES / "starcraft.tfrecords"
    (payload,) = payloads_of("starcraft.tfrecords", "none")
    context, lists = by_entries(payload, True)
    records = open_records(path)
    (row,) = plain_rows(records)
    assert row == present(context) | lists
    assert {len(steps) for steps in lists.values()} == {20}
    (images,) = lists
    (first,) = open_records(path, columns=[images])
    assert [len(step) for step in first[images]] == [len(values[0]) for _, values in lists[images]]
    (batch,) = records.batches(5)
    assert isinstance(batch[images], tb.Ragged)


def test_access_and_splits(tmp_path):
    for name in ("iris.tfrecords", "iris.tfrecords.gz"):
        (tmp_path / name).write_bytes((REAL_FILES / name).read_bytes())
    plain, packed = tmp_path / "iris.tfrecords", tmp_path / "iris.tfrecords.gz"
    rows = plain_rows(open_records(plain))
    build_index([plain, packed])
    for path in (plain, packed):
        batch = open_records(path)[[149, 0, 75]]
        for name, column in batch.items():
            items = column.items() if isinstance(column, tb.Strings) else column.tolist()
            want = [rows[number][name][1] for number in (149, 0, 75)]
            assert items == [w[0] if isinstance(w, list) else np.frombuffer(w, np.float32)[0] for w in want]
    got = [row for split in plan(plain, 7) for row in plain_rows(open_records(split))]
    assert got == rows
    with pytest.raises(errors.UsageError):
        plan(packed, 2)


def test_arrow():
    pytest.importorskip("pyarrow")
    table = open_records(REAL_FILES / "iris.tfrecords").to_arrow().read_all()
    assert table.num_rows == 150
    assert table.num_columns == 5
