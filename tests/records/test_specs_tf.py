"""TensorFlow's feature specs as schemas: what TensorFlow parses with them is what we give, and its errors are ours."""

import copy
import pickle
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes.errors import LimitError, Limits, LossError, SchemaError, UsageError
from tests.support.tiers import deep_but

Ragged = tf.io.RaggedFeature
FEATURES = {"i": tf.int64, "f": tf.float32, "s": tf.string}


def feature(values, kind=None):
    kind = kind or ("s" if isinstance(values[0], bytes) else "f" if isinstance(values[0], float) else "i")
    if kind == "s":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def features(values):
    made = {name: item if isinstance(item, tf.train.Feature) else feature(item) for name, item in values.items()}
    return tf.train.Features(feature=made)


def example(**values):
    return tf.train.Example(features=features(values)).SerializeToString()


def sequence(context, **lists):
    made = {name: tf.train.FeatureList(feature=[feature(*step) for step in steps]) for name, steps in lists.items()}
    return tf.train.SequenceExample(
        context=features(context), feature_lists=tf.train.FeatureLists(feature_list=made)
    ).SerializeToString()


def written(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def same(ours, theirs):
    """Whether two results of TensorFlow's types hold the same, dtypes and the dtype of row splits included."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, tf.SparseTensor):
        for part in ("indices", "values", "dense_shape"):
            same(getattr(ours, part), getattr(theirs, part))
    elif isinstance(theirs, tf.RaggedTensor):
        assert ours.ragged_rank == theirs.ragged_rank
        same(ours.row_splits, theirs.row_splits)
        same(ours.values, theirs.values)
    else:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.asarray(ours).tolist() == np.asarray(theirs).tolist()


def same_row(item, theirs, dtype):
    if isinstance(item, tf.RaggedTensor | tf.SparseTensor | tf.Tensor):
        same(item, theirs)
    else:  # strings stay Python's in rows
        same(tf.reshape(tf.constant(item, dtype), theirs.shape), theirs)


def check(tmp_path, records, spec, sizes=(1, 2, 1000)):
    """Batches and rows of records, beside TensorFlow's."""
    found = tb.open_records(written(tmp_path / "x.tfrecord", records), schema=spec, to="tensorflow")
    for size in sizes:
        batches = list(found.batches(size))
        parsed = [tf.io.parse_example(records[at : at + size], spec) for at in range(0, len(records), size)]
        assert len(batches) == len(parsed)
        for batch, expected in zip(batches, parsed, strict=True):
            assert batch.keys() == expected.keys()
            for name in expected:
                same(batch[name], expected[name])
    expected = tf.io.parse_example(records, spec)
    for name in expected:
        same(found[:][name], expected[name])
    some = 5  # TensorFlow takes its time for each
    for number, (row, record) in enumerate(zip(found, records[:some], strict=False)):
        single = tf.io.parse_single_example(record, spec)
        assert row.keys() == found[number].keys() == single.keys()
        for name, theirs in single.items():
            same_row(row[name], theirs, spec[name].dtype)
            same_row(found[number][name], theirs, spec[name].dtype)


# ---- equal to TensorFlow ---------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "records"),
    [
        (tf.io.FixedLenFeature([], tf.int64), [{"x": [1]}, {"x": [-(2**63)]}]),
        (tf.io.FixedLenFeature([2, 2], tf.float32), [{"x": [1.0, 2.0, 3.0, float("inf")]}]),
        (tf.io.FixedLenFeature([2], tf.string), [{"x": [b"a", b"\xff\0"]}]),
        (tf.io.FixedLenFeature(3, tf.int64), [{"x": [1, 2, 3]}]),
        (tf.io.FixedLenFeature(tf.TensorShape([2]), tf.int64), [{"x": [1, 2]}]),
        (tf.io.FixedLenFeature([], tf.int64, 7), [{"x": [1]}, {}, {"x": tf.train.Feature()}]),
        (tf.io.FixedLenFeature([], tf.float32, 7), [{"x": [1.5]}, {}]),
        (tf.io.FixedLenFeature([1], tf.float32, 0.1), [{}, {"x": [1.5]}]),
        (tf.io.FixedLenFeature([2, 2], tf.int64, [1, 2, 3, 4]), [{}, {"x": [5, 6, 7, 8]}]),
        (tf.io.FixedLenFeature([2], tf.int64, np.array([[1], [2]])), [{}]),
        (tf.io.FixedLenFeature([2], tf.int64, tf.constant([3, 4], tf.int64)), [{}]),
        (tf.io.FixedLenFeature([], tf.string, "é"), [{}, {"x": [b"a"]}]),
        (tf.io.FixedLenFeature([2], tf.string, [b"\0", ""]), [{}, {"x": [b"a", b"b"]}]),
        (tf.io.VarLenFeature(tf.int64), [{"x": [1, 2, 3]}, {}, {"x": feature([], "i")}, {"x": [4]}]),
        (tf.io.VarLenFeature(tf.float32), [{}, {}]),
        (tf.io.VarLenFeature(tf.string), [{"x": [b"a", b"", b"bc"]}, {"x": tf.train.Feature()}, {"x": [b"d"]}]),
        (tf.io.FixedLenSequenceFeature([], tf.int64, True), [{"x": [1, 2, 3]}, {}, {"x": [4]}]),
        (tf.io.FixedLenSequenceFeature([2], tf.int64, True, -1), [{"x": [1, 2, 3, 4]}, {"x": [5, 6]}, {}]),
        (tf.io.FixedLenSequenceFeature([1, 2], tf.float32, True, [0.5]), [{"x": [1.0, 2.0, 3.0, 4.0]}, {}]),
        (tf.io.FixedLenSequenceFeature([], tf.string, True, "-"), [{"x": [b"a", b"b"]}, {}]),
        (tf.io.FixedLenSequenceFeature([2], tf.string, True), [{"x": [b"a", b"b"]}, {}]),
        (Ragged(tf.int64), [{"x": [1, 2]}, {}, {"x": [3]}]),
        (Ragged(tf.string, row_splits_dtype=tf.int64), [{"x": [b"a", b"b"]}, {}]),
        (Ragged(tf.float32, "y"), [{"y": [1.0]}, {"x": [5]}]),
        (Ragged(tf.int64, "v", [Ragged.RowSplits("p")]), [{"v": [1, 2], "p": [0, 1, 1, 2]}, {"p": [0]}, {"p": [0, 0]}]),
        (Ragged(tf.string, "v", [Ragged.RowLengths("p")]), [{"v": [b"a", b"b"], "p": [0, 2]}, {"p": [0]}, {}]),
        (Ragged(tf.int64, "v", [Ragged.RowStarts("p")]), [{"v": [1, 2, 3], "p": [0, 0, 3]}, {"v": [9], "p": [0]}]),
        (Ragged(tf.int64, "v", [Ragged.RowLimits("p")]), [{"v": [1, 2, 3], "p": [0, 2, 3]}, {"v": [9], "p": [1]}]),
        (Ragged(tf.int64, "v", [Ragged.ValueRowIds("p")]), [{"v": [1, 2], "p": [0, 2]}, {"v": [9], "p": [1]}, {}]),
        (Ragged(tf.int64, "v", [Ragged.UniformRowLength(2)]), [{"v": [1, 2, 3, 4]}, {}, {"v": [5, 6]}]),
        (Ragged(tf.string, "v", [Ragged.UniformRowLength(2)]), [{"v": [b"a", b"b", b"c", b"d"]}, {}]),
        (
            Ragged(tf.int64, "v", [Ragged.UniformRowLength(2), Ragged.UniformRowLength(3)]),
            [{"v": list(range(12))}, {"v": list(range(6))}, {}],
        ),
        (
            Ragged(tf.int64, "v", [Ragged.UniformRowLength(2), Ragged.RowLengths("p")]),
            [{"v": [1, 2, 3, 4], "p": [1, 3]}, {"v": [1, 2], "p": [0, 0, 2, 0]}],
        ),
        (
            Ragged(tf.string, "v", [Ragged.RowLengths("p"), Ragged.UniformRowLength(2)]),
            [{"v": [b"a", b"b", b"c", b"d"], "p": [1, 0, 1]}, {}],
        ),
        (
            Ragged(tf.int64, "v", [Ragged.RowSplits("q"), Ragged.RowSplits("p")], tf.int64),
            [
                {"v": [3, 1, 4, 1, 5, 9], "p": [0, 2, 3, 3, 6], "q": [0, 2, 3, 4]},
                {"v": [2, 7, 1, 8, 2, 8, 1], "p": [0, 3, 4, 5, 7], "q": [0, 1, 1, 4]},
            ],
        ),
        (tf.io.SparseFeature("i", "v", tf.int64, 5), [{"i": [3, 0, 3], "v": [1, 2, 3]}, {}, {"i": [4], "v": [9]}]),
        (tf.io.SparseFeature(["i"], "v", tf.string, [5]), [{"i": [3, 0], "v": [b"d", b"a"]}, {}]),
        (
            tf.io.SparseFeature(["i", "j"], "v", tf.float32, [4, 3]),
            [{"i": [3, 1, 1], "j": [0, 2, 1], "v": [1.0, 2.0, 3.0]}, {"i": [0], "j": [0], "v": [4.0]}],
        ),
        (tf.io.SparseFeature("i", "v", tf.int64, 5, True), [{"i": [3, 0], "v": [1, 2]}]),
    ],
)  # fmt: skip
def test_what_tensorflow_parses_is_what_we_give(tmp_path, spec, records):
    check(tmp_path, [example(**record) for record in records], {"x": spec})


def drawn_records(seed, count):
    """Records in which all parts of a spec agree; most features are absent now and then."""
    draw = random.Random(seed)
    for _ in range(count):
        lengths = [draw.randrange(4) for _ in range(draw.randrange(4))]
        ids = [row for row, length in enumerate(lengths) for _ in range(length)]
        total = sum(lengths)
        starts = [sum(lengths[:row]) for row in range(len(lengths))]
        values = {
            "v": feature([draw.randrange(-9, 9) for _ in range(total)], "i"),
            "vs": feature([draw.randbytes(draw.randrange(3)) for _ in range(total)], "s"),
            "lengths": feature(lengths, "i"),
            "starts": feature(starts, "i"),
            "limits": feature([start + length for start, length in zip(starts, lengths, strict=True)], "i"),
            "splits": feature([*starts, total], "i"),
            "ids": feature(ids, "i"),
            "outer": feature([len(lengths)], "i"),
            "i": feature(draw.sample(range(50), total), "i"),
        }
        if not total:
            values = {
                name: item for name, item in values.items() if draw.random() < 0.5 or name in ("outer", "lengths")
            }
        if draw.random() < 0.7:
            values["n"] = feature([draw.random(), draw.random()], "f")
        if draw.random() < 0.7:
            values["pad"] = feature([draw.randrange(9) for _ in range(3 * draw.randrange(4))], "i")
        if draw.random() < 0.7:
            values["text"] = feature([draw.randbytes(4) for _ in range(draw.randrange(4))], "s")
        yield tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


DRAWN_SPEC = {
    "n": tf.io.FixedLenFeature([2], tf.float32, [-1, -2]),
    "text": tf.io.VarLenFeature(tf.string),
    "pad": tf.io.FixedLenSequenceFeature([3], tf.int64, True, -5),
    "by_lengths": Ragged(tf.int64, "v", [Ragged.RowLengths("lengths")]),
    "by_limits": Ragged(tf.string, "vs", [Ragged.RowLimits("limits")]),
    "by_two": Ragged(tf.int64, "v", [Ragged.RowLengths("outer"), Ragged.RowLengths("lengths")]),
    "flat": Ragged(tf.int64, "v"),
}


@pytest.mark.parametrize("seed", deep_but([0], [0, 1]))
def test_drawn_records_are_what_tensorflow_parses(tmp_path, seed):
    check(tmp_path, list(drawn_records(seed, 40)), DRAWN_SPEC, sizes=(7, 1000))


@pytest.mark.parametrize("seed", deep_but([2], [2, 3]))
def test_partitions_of_drawn_records(tmp_path, seed):
    """Where every record has all of them: TensorFlow mixes records up otherwise."""
    records = [r for r in drawn_records(seed, 60) if len(tf.train.Example.FromString(r).features.feature) > 8]
    spec = {
        "a": Ragged(tf.int64, "v", [Ragged.RowSplits("splits")]),
        "b": Ragged(tf.string, "vs", [Ragged.RowStarts("starts")]),
        "c": Ragged(tf.int64, "v", [Ragged.ValueRowIds("ids")]),
    }
    records = [r for r in records if tf.train.Example.FromString(r).features.feature["v"].int64_list.value]
    check(tmp_path, records, spec, sizes=(7, 1000))
    sparse = {"s": tf.io.SparseFeature("i", "vs", tf.string, 50)}
    check(tmp_path, records, sparse, sizes=(7, 1000))


def test_several_features_may_share_keys_and_others_are_left_alone(tmp_path):
    spec = {
        "i": tf.io.VarLenFeature(tf.int64),
        "a": tf.io.SparseFeature("i", "v", tf.int64, 5),
        "b": tf.io.SparseFeature("i", "w", tf.float32, 9),
    }
    check(tmp_path, [example(i=[1, 0], v=[5, 6], w=[0.5, 1.5], other=[b"x"]), example(n=[1])], spec)


def test_the_last_of_features_with_one_name_counts(tmp_path):
    first, second = features({"x": [1], "y": [b"a"]}), features({"x": [2, 3]})
    record = (
        tf.train.Example(features=first).SerializeToString() + tf.train.Example(features=second).SerializeToString()
    )
    spec = {"x": tf.io.VarLenFeature(tf.int64), "y": tf.io.FixedLenFeature([], tf.string)}
    check(tmp_path, [record, record], spec)


# ---- SequenceExamples ------------------------------------------------------------


def test_sequences_are_what_tensorflow_parses(tmp_path):
    records = [
        sequence({"id": [1], "tags": [b"a", b"b"], "x": [1]}, x=[([1, 2],), ([3, 4],)], w=[([b"a"],), ([], "s")],
                 v=[([1, 2, 3],), ([], "i")], p=[([1, 2],), ([], "i")]),
        sequence({"tags": [b"c"]}, x=[([5, 6],)], v=[], p=[]),
        sequence({"id": [3]}, w=[([b"d", b"e"],)], x=[]),
    ]  # fmt: skip
    context = {
        "id": tf.io.FixedLenFeature([], tf.int64, -1),
        "tags": tf.io.VarLenFeature(tf.string),
        "x": Ragged(tf.int64),
    }
    lists = {
        "x": tf.io.FixedLenSequenceFeature([2], tf.int64),
        "w": tf.io.VarLenFeature(tf.string),
        "r": Ragged(tf.int64, "v"),
        "rr": Ragged(tf.int64, "v", [Ragged.RowLengths("p")]),
    }
    found = tb.open_records(written(tmp_path / "x", records), schema=(context, lists), to="tensorflow")
    (batch,) = found.batches(10)
    expected_context, expected_lists, lengths = tf.io.parse_sequence_example(records, context, lists)
    assert set(batch) == {"id", "tags", "context/x", "lists/x", "w", "r", "rr"}
    for name, column in batch.items():
        key = name.removeprefix("context/").removeprefix("lists/")
        same(column, expected_lists[key] if key in lists and name != "context/x" else expected_context[key])
    assert batch.lengths["lists/x"].tolist() == lengths["x"].numpy().tolist() == [2, 1, 0]
    for row, record in zip(found, records, strict=True):
        one_context, one_lists = tf.io.parse_single_sequence_example(
            record, context, {name: lists[name] for name in ("x", "r", "rr")}
        )
        same(row["lists/x"], one_lists["x"])
        same(row["r"], one_lists["r"])
        same(row["rr"], one_lists["rr"])
        same(row["id"], one_context["id"])
    assert [row["w"].shape for row in tb.open_records(found.paths, schema=(context, lists))] == [(2, 1), (0, 0), (1, 2)]


def test_a_list_that_must_be_there_is_an_error_where_it_is_not(tmp_path):
    path = written(tmp_path / "x", [sequence({}, x=[([1],)]), sequence({})])
    strict = ({}, {"x": tf.io.FixedLenSequenceFeature([], tf.int64)})
    with pytest.raises(SchemaError, match="record 1: feature 'x' is missing"):
        list(tb.open_records(path, schema=strict).batches(5))
    loose = ({}, {"x": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)})
    (batch,) = tb.open_records(path, schema=loose).batches(5)
    assert batch["x"].tolist() == [[1], [0]]


# ---- what TensorFlow refuses -------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "record", "match"),
    [
        (tf.io.FixedLenFeature([], tf.int64), {}, "feature 'x' is missing"),
        (tf.io.FixedLenFeature([], tf.int64, 3), {"x": [1.0]}, "is a list of float; the schema says int64"),
        (tf.io.FixedLenFeature([], tf.int64, 3), {"x": feature([], "i")}, "has 0 values"),
        (tf.io.FixedLenFeature([], tf.int64), {"x": [1, 2]}, "has 2 values"),
        (tf.io.FixedLenFeature([2, 2], tf.string), {"x": [b"a"]}, "has 1 values"),
        (tf.io.VarLenFeature(tf.int64), {"x": [b"a"]}, "is a list of bytes"),
        (tf.io.VarLenFeature(tf.int64), {"x": feature([], "f")}, "is a list of float"),
        (tf.io.FixedLenSequenceFeature([2], tf.int64, True), {"x": [1, 2, 3]}, "3 values, not a multiple of 2"),
        (Ragged(tf.string), {"x": [1]}, "is a list of int64"),
        (tf.io.SparseFeature("i", "v", tf.int64, 5), {"i": [1], "v": [1, 2]}, "2 values, and 'i' indices of 1"),
        (Ragged(tf.int64, "v", [Ragged.ValueRowIds("p")]), {"v": [1, 2], "p": [0]}, "2 items, and 'p' names rows of 1"),
    ],
)
def test_what_tensorflow_refuses_is_refused_by_record(tmp_path, spec, record, match):
    sound = {"x": [1, 2] if "Sequence" in str(spec) else [1]}
    if "string" in str(spec):
        sound = {"x": [b"a"] * 4} if "FixedLen" in str(spec) else {}
    sound = {"v": [1], "p": [0], "i": [0]} if "key='v'" in str(spec) else sound
    records = [example(**sound)] * 3 + [example(**record)]
    tf.io.parse_example(records[:3], {"x": spec})
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        tf.io.parse_example(records, {"x": spec})
    found = tb.open_records(written(tmp_path / "x.tfrecord", records), schema={"x": spec})
    with pytest.raises(SchemaError, match=match) as caught:
        list(found.batches(10))
    assert caught.value.record == 3
    assert sum(1 for _ in zip(range(3), found, strict=False)) == 3


@pytest.mark.parametrize(
    ("partition", "numbers", "match"),
    [
        (Ragged.RowSplits("p"), [0, 2], "has 3 items, and 'p' makes rows of 2"),
        (Ragged.RowSplits("p"), [1, 3], "does not start at 0"),
        (Ragged.RowSplits("p"), [0, 2, 1, 3], "does not rise"),
        (Ragged.RowSplits("p"), [], "makes rows of 0"),
        (Ragged.RowSplits("p"), [0, 5], "which holds 5 for 3 items"),
        (Ragged.RowLengths("p"), [1, 1], "makes rows of 2"),
        (Ragged.RowLengths("p"), [4, -1], "which holds 4 for 3 items"),
        (Ragged.RowLengths("p"), [2**62, 2**62, 2**62, 2**62, 3], "holds 4611686018427387904 for 3"),
        (Ragged.RowLimits("p"), [2], "makes rows of 2"),
        (Ragged.RowLimits("p"), [2, 1, 3], "does not rise"),
        (Ragged.RowStarts("p"), [1], "does not start at 0"),
        (Ragged.RowStarts("p"), [0, 2, 1], "does not rise"),
        (Ragged.RowStarts("p"), [], "makes rows of 0"),
        (Ragged.ValueRowIds("p"), [0, 2, 1], "does not rise from 0"),
        (Ragged.ValueRowIds("p"), [-1, 0, 0], "does not rise from 0"),
        (Ragged.UniformRowLength(2), [0], "3 values, not a multiple of 2"),
    ],
)
def test_partitions_that_do_not_fit_are_errors_where_tensorflow_mixes_records(tmp_path, partition, numbers, match):
    """A deliberate difference: with validate=False, its default, TensorFlow gives values of one record to another."""
    sound = example(v=[8, 9], p=[0, 2] if isinstance(partition, Ragged.RowSplits) else [0, 0])
    if isinstance(partition, Ragged.RowLengths | Ragged.RowLimits):
        sound = example(v=[8, 9], p=[2])
    if isinstance(partition, Ragged.RowStarts):
        sound = example(v=[8, 9], p=[0])
    records = [sound, example(v=[1, 2, 3], p=feature(numbers, "i")), sound]
    path = written(tmp_path / "x.tfrecord", records)
    with pytest.raises(SchemaError, match=match) as caught:
        list(tb.open_records(path, schema={"x": Ragged(tf.int64, "v", [partition])}).batches(10))
    assert caught.value.record == 1


@pytest.mark.parametrize(
    ("indices", "match"), [([5, 0], "the index 5 in 'i', outside its size 5"), ([0, -1], "index -1")]
)
def test_an_index_outside_of_a_sparse_feature_is_an_error(tmp_path, indices, match):
    path = written(tmp_path / "x.tfrecord", [example(i=[1], v=[1]), example(i=indices, v=[1, 2])])
    with pytest.raises(SchemaError, match=match) as caught:
        list(tb.open_records(path, schema={"x": tf.io.SparseFeature("i", "v", tf.int64, 5)}))
    assert caught.value.record == 1


def test_row_ids_take_no_memory_on_the_word_of_a_record(tmp_path):
    spec = {"x": Ragged(tf.int64, "v", [Ragged.ValueRowIds("p")])}
    for last in (1 << 40, (1 << 63) - 1):
        path = written(tmp_path / "x.tfrecord", [example(v=[1], p=[last])] * 2)
        with pytest.raises(LimitError):
            list(tb.open_records(path, schema=spec).batches(2))


def test_filling_up_takes_no_more_than_the_limit(tmp_path):
    spec = {"x": tf.io.FixedLenSequenceFeature([], tf.int64, True)}
    path = written(tmp_path / "x.tfrecord", [example(x=[1] * 100_000)] + [example(x=[1])] * 3000)
    with pytest.raises(LimitError, match="filling up 3001 rows"):
        list(tb.open_records(path, schema=spec, limits=Limits(max_bytes=64 << 20)).batches(5000))
    assert sum(batch.records for batch in tb.open_records(path, schema=spec).batches(100)) == 3001


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"x": tf.io.FixedLenFeature([None], tf.int64)}, "'x': the shape .* unknown size; use tf.io.FixedLenSequence"),
        ({"x": tf.io.FixedLenFeature([2, None], tf.int64)}, "unknown size"),
        ({"x": tf.io.FixedLenFeature([], tf.int32)}, "'x': records hold float32, int64 and string, not int32"),
        ({"x": tf.io.VarLenFeature(None)}, "no dtype"),
        ({"x": tf.io.FixedLenFeature([2], tf.int64, 7)}, "a default of 1 values for the shape"),
        ({"x": tf.io.FixedLenFeature([], tf.int64, 1.5)}, "a default for int64 must be an integer"),
        ({"x": tf.io.FixedLenSequenceFeature([], tf.int64)}, "must have allow_missing=True"),
        ({"x": tf.io.FixedLenSequenceFeature([], tf.int64, True, [1, 2])}, "one value, to fill up with"),
        (
            {"x": tf.io.FixedLenFeature([], tf.int64), "y": tf.io.SparseFeature("i", "x", tf.int64, 4)},
            r"'y' takes 'x' for int64\[\?\], and another for int64",
        ),
        (({}, {"x": tf.io.FixedLenFeature([], tf.int64)}), "FixedLenFeature is not for feature lists"),
        (({"x": tf.io.SparseFeature("i", "v", tf.int64, 4)}, {}), "SparseFeature is not for the context"),
        (({}, {"x": tf.io.FixedLenSequenceFeature([], tf.int64, True, 3)}), "takes no default_value"),
    ],
)
def test_specs_that_tensorflow_refuses_are_refused_at_once(tmp_path, spec, match):
    path = written(tmp_path / "x.tfrecord", [example(x=[1])])
    with pytest.raises(UsageError, match=match):
        tb.open_records(path, schema=spec)
    parse = tf.io.parse_sequence_example if isinstance(spec, tuple) else tf.io.parse_example
    specs = spec if isinstance(spec, tuple) else (spec,)
    with pytest.raises((ValueError, TypeError, tf.errors.OpError)):
        parse([example(x=[1])], *specs)


# ---- beside TensorFlow -------------------------------------------------------------


def test_columns_of_a_spec_are_chosen_by_their_names(tmp_path):
    spec = {
        "a": Ragged(tf.int64, "v", [Ragged.RowLengths("p")]),
        "b": tf.io.VarLenFeature(tf.string),
        "c": tf.io.FixedLenFeature([], tf.int64),
    }
    path = written(tmp_path / "x.tfrecord", [example(v=[1, 2], p=[2], b=[b"x"], c=[1])])
    (batch,) = tb.open_records(path, schema=spec, columns=["a"]).batches(5)
    assert list(batch) == ["a"]
    assert batch["a"].to_list() == [[[1, 2]]]
    assert list(tb.open_records(path, schema=spec, columns=["c", "a"]).schema) == ["c", "p", "v"]
    with pytest.raises(UsageError, match="the spec has no feature 'v'"):
        tb.open_records(path, schema=spec, columns=["v"])


def test_records_and_batches_of_a_spec_can_be_pickled(tmp_path):
    spec = {"x": tf.io.SparseFeature("i", "v", tf.int64, 5), "y": tf.io.FixedLenSequenceFeature([], tf.int64, True)}
    path = written(tmp_path / "x.tfrecord", [example(i=[3, 0], v=[1, 2], y=[1]), example(y=[1, 2])])
    records = tb.open_records(path, schema=spec)
    (batch,) = records.batches(5)
    for other in (pickle.loads(pickle.dumps(records)), copy.deepcopy(records)):
        assert next(other.batches(5)) == batch
    back = pickle.loads(pickle.dumps(batch, protocol=5))
    assert back == batch
    assert back.lengths["y"].tolist() == [1, 2]


def test_blocks_and_files_are_joined(tmp_path):
    spec = {"x": tf.io.SparseFeature("i", "v", tf.string, 50), "y": Ragged(tf.int64, "w", [Ragged.RowLengths("p")])}
    draw = random.Random(0)

    def record():
        count = draw.randrange(5)
        made = {"i": feature(draw.sample(range(50), count), "i")}
        made["v"] = feature([draw.randbytes(2000) for _ in range(count)], "s")
        return example(**made, w=[1, 2, 3], p=[1, 2])

    records = [record() for _ in range(1500)]  # over several blocks
    paths = [written(tmp_path / "a", records[:900]), written(tmp_path / "b", records[900:])]
    found = tb.open_records(paths, schema=spec, to="tensorflow")
    (batch,) = found.batches(2000)
    expected = tf.io.parse_example(records, spec)
    for name in spec:
        same(batch[name], expected[name])
    some = [5, 1400, 3, 5]
    picked, expected = found[some], tf.io.parse_example([records[number] for number in some], spec)
    for name in spec:
        same(picked[name], expected[name])


def test_arrow_has_lists_of_what_varies(tmp_path):
    spec = {
        "n": tf.io.FixedLenFeature([], tf.int64, 7),
        "w": tf.io.VarLenFeature(tf.string),
        "p": tf.io.FixedLenSequenceFeature([2], tf.int64, True),
        "r": Ragged(tf.int64, "v", [Ragged.RowLengths("q")]),
    }
    path = written(tmp_path / "x", [example(w=[b"a", b"b"], p=[1, 2], v=[1, 2, 3], q=[1, 2], n=[1]), example(w=[b"c"])])
    table = pa.table(tb.open_records(path, schema=spec).to_arrow())
    assert table.to_pydict() == {
        "n": [1, 7],
        "w": [[b"a", b"b"], [b"c"]],
        "p": [[[1, 2]], None],
        "r": [[[1], [2, 3]], None],
    }
    assert table.schema.field("w").type == pa.large_list(pa.large_binary())
    sparse = {"s": tf.io.SparseFeature("p", "v", tf.int64, 5)}
    with pytest.raises(LossError, match="'s' is sparse"):
        tb.open_records(path, schema=sparse).to_arrow()


def test_a_spec_says_what_records_hold(tmp_path):
    spec = {
        "x": tf.io.FixedLenFeature([2], tf.float32, [1, 2]),
        "y": tf.io.SparseFeature("i", "v", tf.string, 5),
        "z": tb.records.Feature("text"),
    }
    schema = tb.records.Schema.of(spec)
    optional = {"optional": True}
    assert schema == tb.records.Schema(
        {
            "x": tb.records.Feature("float32", [2], default=[1.0, 2.0]),
            "i": tb.records.Feature("int64", [None], **optional),
            "v": tb.records.Feature("bytes", [None], **optional),
            "z": "text",
        }
    )
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, schema=spec) as writer:
        writer.write({"i": [1, 3], "v": [b"a", b"b"], "z": "é"})
    (batch,) = tb.open_records(path, schema=spec).batches(5)
    assert batch["z"].tolist() == ["é"]
    assert batch["x"].tolist() == [[1, 2]]
    assert batch["y"].parts[0].tolist() == [[0, 1], [0, 3]]
    assert batch["y"].shape == (1, 5)
    assert tb.open(path, schema=spec).keys() == ["i", "v", "x", "z"]


def test_specs_are_known_without_tensorflow():
    """By the names of their classes: records are read where TensorFlow was not imported, as from a pickled spec."""
    code = """
import collections, sys, types, io
import tensorbytes as tb
module = types.ModuleType("tensorflow.python.ops.parsing_config")
made = collections.namedtuple("VarLenFeature", ["dtype"])
made.__module__ = module.__name__
out = io.BytesIO()
with tb.RecordWriter(out) as writer:
    writer.write({"x": [1, 2]})
(batch,) = tb.open_records(io.BytesIO(out.getvalue()), schema={"x": made("int64")}).batches(2)
assert batch["x"].shape == (1, 2) and batch["x"].layout == "coo"
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
