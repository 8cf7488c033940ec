"""SequenceExamples against protobuf's parser and TensorFlow's two: context and feature lists, ragged both ways."""

import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import _wire, errors, open_records
from tensorbytes.formats.tfrecord.example import encode_sequence
from tensorbytes.records import Feature, Schema, infer_schema
from tests.records.test_example_grammar import SEQUENCES
from tests.support.example_bytes import BYTES, FLOAT, INT64, MISSING, by_entries
from tests.support.record_cases import (
    OneKind,
    by_hand,
    floats,
    items_of,
    plain_batches,
    plain_rows,
    present,
    sequence,
    stream,
    write,
)
from tests.support.tiers import deep_but
from tests.support.wire_bytes import field, number

NAN = floats(0x7FC00001, 0x80000000, 0xFFC12345)
EMPTY = {BYTES: [], FLOAT: b"", INT64: []}


def expected(payloads, schema):
    """What protobuf reads, by the names of our columns; a step without a kind is an empty list of the others' kind."""
    rows = []
    for payload in payloads:
        context, lists = by_entries(payload, True)
        found = present(context), lists
        row = {}
        for name, column in schema.columns.items():
            if column.name in found[column.is_list]:
                value = found[column.is_list][column.name]
                if column.is_list:
                    kind = column.feature.kind_number
                    value = [(kind, EMPTY[kind]) if step[0] == MISSING else step for step in value]
                row[name] = value
        assert len(row) == len(found[0]) + len(found[1])
        rows.append(row)
    return rows


def check(payloads, **options):
    records = open_records(stream(payloads), **options)
    rows = plain_rows(records)
    assert rows == expected(payloads, records.schema)
    for size in (1, 3, 4096):
        assert plain_batches(open_records(stream(payloads), **options), size) == rows
    return records.schema


def every_kind(count):
    payloads = []
    for i in range(count):
        context = {"id": [i], "name": [b"n" * i], "weights": NAN[: i % 4] or (FLOAT,)}
        lists = {
            "tokens": [[j, -j, i][: (i + j) % 4] or (INT64,) for j in range(i % 5)],
            "words": [[b"", b"w" * j][: j % 3] or (BYTES,) for j in range(i % 4)],
            "ragged": [NAN[: j % 4] or (FLOAT,) for j in range(3)],
            "pairs": [[float(j), -0.0] for j in range(i % 3)],
            "labels": [[j] for j in range(i % 6)],
            "frames": [[bytes([i, j])] for j in range(2)],
        }
        if i % 3 == 1:
            del lists["labels"]
            del context["weights"]
        if i % 3 == 2:
            lists["tokens"] = []
        payloads.append(sequence(context, lists))
    return payloads


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_all_that_tensorflow_writes(tmp_path, compression):
    payloads = every_kind(40)
    path = write(tmp_path / "x", payloads, compression)
    records = open_records(path, threads=2)
    assert plain_rows(records) == expected(payloads, records.schema)
    assert plain_batches(records, 7) == expected(payloads, records.schema)
    assert plain_batches(open_records(path, schema=infer_schema(path)), 7) == expected(payloads, records.schema)


def test_schema_and_columns():
    schema = check(every_kind(12))
    described = {name: (schema.columns[name].is_list, feature.describe()) for name, feature in schema.items()}
    assert described == {
        "id": (False, "int64"),
        "name": (False, "bytes"),
        "weights": (False, "float32[?]"),
        "frames": (True, "bytes"),
        "labels": (True, "int64"),
        "pairs": (True, "float32[2]"),
        "ragged": (True, "float32[?]"),
        "tokens": (True, "int64[?]"),
        "words": (True, "bytes[?]"),
    }
    assert {name for name, feature in schema.items() if feature.optional} == {"weights", "labels"}
    (batch,) = open_records(stream(every_kind(12))).batches(99)
    assert len(batch["tokens"].splits) == len(batch["words"].splits) == len(batch["ragged"].splits) == 2
    assert (len(batch["pairs"].splits), batch["pairs"].values.shape[1:]) == (1, (2,))
    assert (len(batch["labels"].splits), batch["labels"].values.shape[1:]) == (1, ())
    assert isinstance(batch["frames"].values, tb.Strings)
    assert batch.present["labels"].tolist() == [i % 3 != 1 for i in range(12)]


def test_rows_hold_steps():
    payloads = [
        sequence({}, {"a": [[1, 2], [3]], "b": [[7], [8]], "c": [[b"x"]], "d": [[1.0, 2.0]]}),
        sequence({}, {"a": [[1]], "b": [], "c": [], "d": []}),
    ]
    first, second = open_records(stream(payloads))
    assert [step.tolist() for step in first["a"]] == [[1, 2], [3]]
    assert isinstance(first["b"], np.ndarray)
    assert first["b"].tolist() == [7, 8]
    assert first["c"] == [b"x"]
    assert first["d"].shape == (1, 2)
    assert (second["b"].tolist(), second["c"], second["d"].shape) == ([], [], (0, 2))


def test_an_optional_list_of_single_values_keeps_all_its_steps():
    payloads = [sequence({}, {"a": [[1], [2]], "b": [[b"x"], [b"y"]]}), sequence({"c": [1]})]
    rows = list(open_records(stream(payloads)))
    assert rows[0]["a"].tolist() == [1, 2]
    assert rows[0]["b"] == [b"x", b"y"]
    assert [*rows[1]] == ["c"]


def test_empty_and_missing_lists_and_steps_without_a_kind():
    check(
        [
            sequence({"c": [1]}, {"a": [], "b": [[1], None, (INT64,), [2, 3]]}),
            sequence({}, {"b": [None]}),
            sequence({}, {"a": [None, None]}),
        ]
    )
    check([sequence({}, {"a": [None, [1.0]]})])
    schema = check([sequence({}, {"a": [None, None]}), sequence({}, {"a": []})])
    assert schema.lists == {"a": Feature("bytes", [None])}


def test_steps_without_a_kind_count_as_empty_in_any_block():
    """The length of a step is not 1 if a file before had an empty one, of no kind."""
    files = [
        stream([sequence({}, {"a": [None]})]),
        stream([sequence({}, {"a": [[5]]})]),
        stream([sequence({}, {"a": []})]),
    ]
    assert infer_schema(files) == Schema({}, {"a": ("int64", [None])})


def test_names_in_both_the_context_and_the_lists():
    payloads = [sequence({"x": [i], "y": [1]}, {"x": [[b"s"]] * i, "z": [[1.0]]}) for i in range(4)]
    schema = check(payloads)
    assert [*schema] == ["context/x", "y", "lists/x", "z"]
    (batch,) = open_records(stream(payloads), columns=["lists/x"]).batches(9)
    assert [*batch] == ["lists/x"]
    assert [len(row) for row in items_of(batch["lists/x"])] == [0, 1, 2, 3]
    with pytest.raises(errors.UsageError, match="'x' is in the context and in the lists: say 'context/x' or 'lists/x'"):
        list(open_records(stream(payloads), columns=["x"]))


def test_the_context_alone_and_the_lists_alone():
    payloads = every_kind(8)
    assert [row["id"] for row in open_records(stream(payloads), columns=["id"])] == list(range(8))
    (batch,) = open_records(stream(payloads), columns=["labels"]).batches(8)
    assert [len(row) for row in items_of(batch["labels"])] == [0 if i % 3 == 1 else i % 6 for i in range(8)]


@pytest.mark.parametrize("case", SEQUENCES)
def test_odd_sequences_one_by_one(case):
    if case == "steps of two kinds":
        with pytest.raises(errors.SchemaError, match="record 0: feature 'a' is a list of"):
            list(open_records(stream([SEQUENCES[case][0]])))
    else:
        check([SEQUENCES[case][0]] * 3)
        check([sequence({"other": [1]}, {"more": [[1]]}), SEQUENCES[case][0]])


@pytest.mark.parametrize("seeds", deep_but([20], [20, 60]))
@pytest.mark.parametrize("kind", [BYTES, FLOAT, INT64])
def test_odd_bytes_are_read_as_protobuf_reads_them(kind, seeds):
    tried = 0
    for seed in range(seeds):
        grammar = OneKind(seed, 1, kind)
        payloads = [grammar.sequence() for _ in range(1 + seed % 6)]
        read = [by_entries(payload, True) for payload in payloads]
        if any(lists for _, lists in read):  # else they might as well be Examples
            records = open_records(stream(payloads))
            rows = plain_rows(records)
            assert rows == expected(payloads, records.schema), seed
            assert plain_batches(open_records(stream(payloads)), 2) == rows, seed
            tried += 1
    assert tried > seeds // 2


def test_malformed_sequences_are_named():
    good = sequence({"a": [1]}, {"b": [[1]]})
    for bad in (
        field(2, field(1, field(1, "b") + field(2, field(1, field(3, field(1, b"\x80")))))),
        field(2, field(1, field(1, "b") + field(2, field(1, field(2, field(1, b"abc")) + field(3, number(1, 1)))))),
        field(2, field(1, field(1, b"\xff") + field(2, b""))),
        field(2, field(1, field(1, "b") + field(2, b"\x0a\x05"))),
        good + b"\x80",
    ):
        assert by_entries(bad, True) is None
        with pytest.raises(errors.CorruptError, match="record 1 is not a sound SequenceExample") as caught:
            list(open_records(stream([good, bad])))
        start = len(by_hand([good])) + 12
        assert start <= caught.value.at <= start + len(bad)


# ---- the schema ------------------------------------------------------------------


def test_what_does_not_fit_is_named():
    cases = [
        ([{"a": [[1]]}, {"a": [[1], [1.0]]}], "int64", "record 1: feature 'a', step 1 is a list of float; .*int64"),
        ([{"a": [[1], [2]]}, {"a": [[1], [2], [3, 4]]}], "int64", "record 1: feature 'a', step 2 has 2 values"),
        ([{"a": [[1], None]}], "int64", "record 0: feature 'a', step 1 has 0 values"),
        ([{"a": [[1]]}, {}], "int64", "record 1: feature 'a' is missing; the schema says int64"),
        ([{"a": []}, {"a": [[1], [200]]}], "int8", "record 1: feature 'a', step 1 holds 200; .*int8"),
        ([{"a": []}, {"a": [[1], [2, 300]]}], ("int8", [None]), "record 1: feature 'a', step 1 holds 300"),
        ([{"a": [[b"x"]]}, {"a": [[b"x"], [b"\xff"]]}], "text", "record 1: feature 'a', step 1 is not UTF-8"),
        ([{"a": [[b"x"] * 2]}, {"a": [[b"x"]]}], ("bytes", [2]), "record 1: feature 'a', step 0 has 1 values"),
    ]
    for lists, feature, match in cases:
        payloads = [sequence({}, found) for found in lists]
        with pytest.raises(errors.SchemaError, match=match):
            list(open_records(stream(payloads), schema=({}, {"a": feature})))


def test_shapes_dtypes_and_encodings_of_steps():
    images = [np.arange(6, dtype=np.uint8).reshape(2, 3) + i for i in range(3)]
    lists = {
        "flat": [x.reshape(-1).tolist() for x in images],
        "raw": [[x.tobytes()] for x in images],
        "proto": [[tf.io.serialize_tensor(x).numpy()] for x in images],
        "vary": [[tf.io.serialize_tensor(np.arange(i, dtype=np.float64)).numpy()] for i in range(3)],
        "text": [["é".encode(), b"b"], [b"", b"d"]],
        "rows": [[1.0] * (2 * i) or (FLOAT,) for i in range(3)],
    }
    schema = {
        "flat": ("uint8", [2, 3]),
        "raw": Feature("uint8", [2, 3], "raw"),
        "proto": Feature("uint8", [2, 3], "tensorproto"),
        "vary": ("float64", [None]),
        "text": ("text", [2]),
        "rows": ("float32", [None, 2]),
    }
    payloads = [sequence({}, lists), sequence({}, {name: [] for name in lists})]
    first, second = open_records(stream(payloads), schema=({}, schema))
    for name in ("flat", "raw", "proto"):
        assert first[name].dtype == np.uint8
        assert first[name].tolist() == [x.tolist() for x in images]
        assert len(second[name]) == 0
    assert [x.tolist() for x in first["vary"]] == [[], [0.0], [0.0, 1.0]]
    assert first["text"] == [["é", "b"], ["", "d"]]
    assert [x.shape for x in first["rows"]] == [(0, 2), (1, 2), (2, 2)]
    (batch,) = open_records(stream(payloads), schema=({}, schema)).batches(2)
    assert batch["flat"].values.shape == (3, 2, 3)
    assert batch["text"].values.shape == (2, 2)
    assert batch["text"].splits[0].tolist() == [0, 2, 2]
    assert batch["rows"].values.shape == (3, 2)
    with pytest.raises(errors.UnsupportedError, match="steps of feature lists, and strings, may vary in their first"):
        open_records(stream(payloads), schema=({}, {"x": Feature("uint8", [None, None], "tensorproto")}))


def test_an_unknown_list_is_not_passed_over(tmp_path):
    path = write(tmp_path / "x", [sequence({"c": [1]}, {"a": [[1]], "b": [[2]]})])
    Schema({"c": "int64"}, {"a": "int64"}).save(path + ".schema.json")
    with pytest.raises(errors.SchemaError, match="record 0 has a feature list 'b', which the schema file beside it"):
        list(open_records(path))
    Schema({}, {"a": "int64", "b": "int64"}).save(path + ".schema.json")
    with pytest.raises(errors.SchemaError, match="record 0 has a feature 'c'"):
        list(open_records(path))


# ---- TensorFlow's parsers ------------------------------------------------------------


def test_parse_sequence_example():
    payloads = every_kind(30)
    context = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
        "weights": tf.io.RaggedFeature(tf.float32),
    }
    lists = {
        "tokens": tf.io.RaggedFeature(tf.int64),
        "words": tf.io.RaggedFeature(tf.string),
        "ragged": tf.io.RaggedFeature(tf.float32),
        "labels": tf.io.RaggedFeature(tf.int64),
    }
    want_context, want_lists, _ = tf.io.parse_sequence_example(payloads, context, lists)
    (batch,) = open_records(stream(payloads)).batches(99, to="tensorflow")
    for name in ("id", "name"):
        assert batch[name].numpy().tolist() == want_context[name].numpy().tolist()
    assert same_ragged(batch["weights"], want_context["weights"])
    for name in ("tokens", "words", "ragged"):
        assert same_ragged(batch[name], want_lists[name]), name
    # Ours knows that each step has one value, theirs does not.
    assert batch["labels"].flat_values.numpy().tolist() == want_lists["labels"].flat_values.numpy().tolist()
    assert batch["labels"].row_splits.numpy().tolist() == want_lists["labels"].row_splits.numpy().tolist()


def same_ragged(ours, theirs):
    splits = [[level.numpy().tolist() for level in x.nested_row_splits] for x in (ours, theirs)]
    values = [x.flat_values.numpy() for x in (ours, theirs)]
    bits = [x.tolist() if x.dtype == object else x.tobytes() for x in values]
    return splits[0] == splits[1] and bits[0] == bits[1]


def test_parse_single_sequence_example():
    for payload, row in zip(every_kind(12), open_records(stream(every_kind(12))), strict=True):
        context, lists = tf.io.parse_single_sequence_example(
            payload,
            {"id": tf.io.FixedLenFeature([], tf.int64)},
            {
                "pairs": tf.io.FixedLenSequenceFeature([2], tf.float32),
                "frames": tf.io.FixedLenSequenceFeature([], tf.string),
                "labels": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
            },
        )
        assert row["id"] == context["id"].numpy()
        assert row["pairs"].tobytes() == lists["pairs"].numpy().tobytes()
        assert row["pairs"].shape == tuple(lists["pairs"].shape)
        assert row["frames"] == lists["frames"].numpy().tolist()
        assert list(row.get("labels", [])) == lists["labels"].numpy().tolist()


def test_our_schema_serves_their_parser():
    payloads = [
        sequence({"id": [i]}, {"pairs": [[1.0, 2.0]] * i, "tokens": [[1] * j for j in range(1, i)]}) for i in range(5)
    ]
    schema = infer_schema(stream(payloads))
    context, lists = schema.to_tf()
    want_context, want_lists, _ = tf.io.parse_sequence_example(payloads, context, lists)
    (batch,) = open_records(stream(payloads), schema=schema).batches(9)
    assert batch["id"].tolist() == want_context["id"].numpy().tolist()
    assert batch["tokens"].values.numpy().tolist() == want_lists["tokens"].flat_values.numpy().tolist()


def test_several_blocks(tmp_path):
    frame = np.random.default_rng(0).bytes(1 << 18)
    payloads = [sequence({"id": [i]}, {"frames": [[frame]] * (i % 4), "labels": [[i]] * (i % 3)}) for i in range(40)]
    assert sum(map(len, payloads)) > 9 << 20
    path = write(tmp_path / "x", payloads)
    for threads in (1, 2):
        records = open_records(path, threads=threads)
        assert plain_batches(records, 7) == expected(payloads, records.schema)
        records = open_records(path, threads=threads, columns=["labels", "id"])
        assert [(int(row["id"]), row["labels"].tolist()) for row in records] == [(i, [i] * (i % 3)) for i in range(40)]


@pytest.mark.parametrize("to", ["torch", "jax"])
def test_other_frameworks(to):
    pytest.importorskip(to)
    (batch,) = open_records(stream(every_kind(6)), to=to, columns=["pairs", "weights", "words"]).batches(9)
    assert isinstance(batch["words"], tb.Ragged)  # no strings, and two levels of rows
    row = next(iter(open_records(stream(every_kind(6)), to=to, columns=["pairs"])))
    assert type(row["pairs"]).__module__.startswith(to)


def test_steps_take_no_memory_on_the_word_of_a_schema(tmp_path):
    """How many steps there are shows only when they are read; each of them has a million values, says the schema."""
    width = 1 << 20
    record = encode_sequence({"pad": (BYTES, [bytes(width)])}, {"s": [(INT64, [1])]})
    path = tmp_path / "x"
    path.write_bytes(_wire.frames([[record]]))
    tracemalloc.start()
    try:
        with pytest.raises(errors.SchemaError, match="feature 's', step 0 has 1 values"):
            list(open_records(path, schema=Schema({}, {"s": ("int64", [width])})))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
