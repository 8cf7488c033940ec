"""Schemas as TensorFlow's feature specs: TensorFlow itself parses Examples with them."""

import base64
import sys

import numpy as np
import pytest
import tensorflow as tf

from tensorbytes.errors import MissingDependencyError
from tensorbytes.formats.tfrecord.schema import Feature, Schema


def tf_feature(values):
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def tf_features(values):
    return tf.train.Features(feature={name: tf_feature(items) for name, items in values.items()})


def parse_examples(feature, *records):
    """What tf.io.parse_example makes of feature x; None is a record without it."""
    encoded = [
        tf.train.Example(
            features=tf_features({"x": values} if values is not None else {"other": [1]})
        ).SerializeToString()
        for values in records
    ]
    return tf.io.parse_example(encoded, Schema({"x": feature}).to_tf())["x"]


@pytest.mark.parametrize(
    ("feature", "records", "expected"),
    [
        (Feature("int64"), ([1], [2]), [1, 2]),
        (Feature("float32"), ([0.5], [2.0]), [0.5, 2.0]),
        (Feature("text"), ([b"a"], ["é".encode()]), [b"a", "é".encode()]),
        (Feature("bytes"), ([b"\xff"],), [b"\xff"]),
        (Feature("bool"), ([1], [0]), [1, 0]),
        (Feature("float32", [2]), ([1.0, 2.0], [3.0, 4.0]), [[1.0, 2.0], [3.0, 4.0]]),
        (Feature("uint8", [2, 2]), ([1, 2, 3, 4],), [[[1, 2], [3, 4]]]),
        (Feature("text", [2]), ([b"a", b"b"],), [[b"a", b"b"]]),
        (Feature("bytes", encoding="base64"), ([b"/w=="],), [b"/w=="]),
        (Feature("int64", default=7), ([1], None), [1, 7]),
        (Feature("int32", [2], default=[7, -8]), ([1, 2], None), [[1, 2], [7, -8]]),
        (Feature("int4", [2], default=-1), ([1, 2], None), [[1, 2], [-1, -1]]),
        (Feature("float16", [1, 2], default=0.5), ([1.0, 2.0], None), [[[1.0, 2.0]], [[0.5, 0.5]]]),
        (Feature("bool", default=True), ([0], None), [0, 1]),
        (Feature("text", default="é"), ([b"a"], None), [b"a", "é".encode()]),
        (Feature("text", [2], default=["x", "é"]), (None,), [[b"x", "é".encode()]]),
        (Feature("bytes", default=b"\xff\0"), (None,), [b"\xff\0"]),
        (Feature("bytes", [2], "base64", default=b"\xff"), (None,), [[b"/w==", b"/w=="]]),
        (Feature("text", [], "base64", default="é"), (None,), [base64.b64encode("é".encode())]),
        (Feature("int16", [2], "raw", default=[1, 256]), ([b"abcd"], None), [b"abcd", b"\1\0\0\1"]),
    ],
)
def test_tensorflow_reads_fixed_features(feature, records, expected):
    parsed = parse_examples(feature, *records)
    assert isinstance(parsed, tf.Tensor)
    assert parsed.numpy().tolist() == expected
    assert parsed.dtype == {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}[feature.kind]


@pytest.mark.parametrize(
    ("feature", "records", "expected"),
    [
        (Feature("int64", [None]), ([1, 2], [], [3]), [[1, 2], [], [3]]),
        (Feature("text", [None]), ([b"a"], None), [[b"a"], []]),
        (Feature("float32", [None, 3]), ([1.0] * 6, [2.0] * 3, None), [[[1.0] * 3] * 2, [[2.0] * 3], []]),
        (Feature("int64", [None, 1, 2]), ([1, 2, 3, 4], [5, 6]), [[[[1, 2]], [[3, 4]]], [[[5, 6]]]]),
        (Feature("int64", [2, None]), ([1, 2, 3, 4], [5, 6]), [[1, 2, 3, 4], [5, 6]]),
        (Feature("int64", optional=True), ([1], None), [[1], []]),
        (Feature("int64", [2], optional=True), ([1, 2], None), [[1, 2], []]),
        (Feature("int64", [2, 2], optional=True), ([1, 2, 3, 4], None), [[[1, 2], [3, 4]], []]),
        (Feature("float64", [3], optional=True), ([b"p"], None), [[b"p"], []]),
        (Feature("int64", [0]), ([], None), [[], []]),
        (Feature("int64", [2, 0], default=0), ([], None), [[], []]),
    ],
)
def test_tensorflow_reads_features_that_vary(feature, records, expected):
    parsed = parse_examples(feature, *records)
    assert isinstance(parsed, tf.RaggedTensor)
    assert parsed.to_list() == expected


@pytest.mark.parametrize(
    "default",
    [
        Feature("float64", [2], default=[1.5, -2]), Feature("uint64", default=2**64 - 1),
        Feature("complex64", [1, 2], default=1j), Feature("text", [2], "tensorproto", default=["a", "é"]),
        Feature("uint8", [2, 2], "tensorproto", default=3), Feature("bytes", [], "tensorproto", default=b"\xff"),
    ],
)  # fmt: skip
def test_the_default_of_a_tensorproto_is_one(default):
    stored = tf.io.serialize_tensor(tf.constant([9.0])).numpy()
    first, second = parse_examples(default, [stored], None).numpy().tolist()
    assert first == stored
    dtype = tf.string if default.dtype in ("text", "bytes") else default.dtype
    parsed = tf.io.parse_tensor(second, dtype).numpy()
    expected = default.default_array()
    if default.dtype == "text":
        expected = np.array([text.encode() for text in expected], object)
    np.testing.assert_array_equal(parsed, expected)


def parse_sequences(schema, *records):
    encoded = [
        tf.train.SequenceExample(
            context=tf_features(context),
            feature_lists=tf.train.FeatureLists(
                feature_list={
                    name: tf.train.FeatureList(feature=[tf_feature(step) for step in steps])
                    for name, steps in lists.items()
                }
            ),
        ).SerializeToString()
        for context, lists in records
    ]
    context_spec, list_spec = schema.to_tf()
    return tf.io.parse_sequence_example(encoded, context_spec, list_spec)


@pytest.mark.parametrize(
    ("feature", "records", "expected", "lengths"),
    [
        (Feature("int64"), ([[1], [2]], [[3]]), [[1, 2], [3, 0]], [2, 1]),
        (Feature("float32", [2]), ([[1.0, 2.0]], [[3.0, 4.0]]), [[[1.0, 2.0]], [[3.0, 4.0]]], [1, 1]),
        (Feature("uint8", [1, 2]), ([[1, 2], [3, 4]],), [[[[1, 2]], [[3, 4]]]], [2]),
        (Feature("text"), ([[b"a"], [b"b"]],), [[b"a", b"b"]], [2]),
        (Feature("float64", [None]), ([[b"p"], [b"q"]],), [[b"p", b"q"]], [2]),
        (Feature("int64", optional=True), ([[1], [2]], None), [[1, 2], [0, 0]], [2, 0]),
    ],
)
def test_tensorflow_reads_steps_of_fixed_shape(feature, records, expected, lengths):
    schema = Schema({}, {"y": feature})
    _, lists, counts = parse_sequences(schema, *[({}, {"y": steps} if steps is not None else {}) for steps in records])
    assert lists["y"].numpy().tolist() == expected
    assert counts["y"].numpy().tolist() == lengths


@pytest.mark.parametrize(
    ("feature", "records", "expected"),
    [
        (Feature("int64", [None]), ([[1], [2, 3]], [[]]), [[[1], [2, 3]], [[]]]),
        (Feature("text", [None]), ([[b"a", b"b"]], None), [[[b"a", b"b"]], []]),
        (Feature("int64", [None, 2]), ([[1, 2], [3, 4, 5, 6]], [[7, 8]]), [[[[1, 2]], [[3, 4], [5, 6]]], [[[7, 8]]]]),
        (Feature("int8", [0]), ([[], []],), [[[], []]]),
    ],
)
def test_tensorflow_reads_steps_that_vary(feature, records, expected):
    schema = Schema({}, {"y": feature})
    _, lists, _ = parse_sequences(schema, *[({}, {"y": steps} if steps is not None else {}) for steps in records])
    assert isinstance(lists["y"], tf.RaggedTensor)
    assert lists["y"].to_list() == expected


def test_tensorflow_reads_context_and_lists_of_one_name():
    schema = Schema(
        {"x": ("float32", [2]), "n": Feature("int64", default=5), "tags": ("text", [None]), "m": ("int64", [None, 2])},
        {"x": "int64"},
    )
    context, lists, _ = parse_sequences(
        schema,
        ({"x": [1.0, 2.0], "tags": [b"a", b"b"], "m": [1, 2]}, {"x": [[1]]}),
        ({"x": [3.0, 4.0], "n": [6]}, {"x": [[2], [3]]}),
    )
    assert context["x"].numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert context["n"].numpy().tolist() == [5, 6]
    assert context["tags"].to_list() == [[b"a", b"b"], []]
    assert context["m"].to_list() == [[[1, 2]], []]
    assert lists["x"].numpy().tolist() == [[1, 0], [2, 3]]


def test_without_tensorflow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'tensorbytes\[tensorflow\]'"):
        Schema({"x": "int64"}).to_tf()
