"""RecordWriter: TensorFlow and protobuf read what it writes; nothing is lost in silence."""

import base64
import gc
import io
import os
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorbytes as tb
from tensorbytes import Ragged, Sparse, Strings, Tensor, _wire
from tensorbytes.errors import (
    SchemaError,
    TensorbytesError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats.tfrecord.read.reader import open_records
from tensorbytes.formats.tfrecord.schema import Feature, Schema
from tensorbytes.formats.tfrecord.write.writer import RecordWriter
from tests.support.tiers import deep_but
from tests.support.written_records import examples, lists, names, payloads, values, written

COMPRESSIONS = ["none", "gzip", "zlib", "snappy"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.tfrecord"


# ---- every kind of feature --------------------------------------------------

RNG = np.random.default_rng(0)
N = 7
# feature -> the values of seven rows, as one array
COLUMNS = {
    "int64": (Feature("int64"), np.array([0, 1, -1, 127, 128, 2**63 - 1, -(2**63)])),
    "int64 [3]": (Feature("int64", [3]), RNG.integers(-(2**62), 2**62, (N, 3))),
    "int64 [2, 2] flat": (Feature("int64", [2, 2]), RNG.integers(-9, 9, (N, 2, 2))),
    "bool": (Feature("bool"), np.arange(N) % 2 == 0),
    "bool [2]": (Feature("bool", [2]), RNG.random((N, 2)) > 0.5),
    "int8": (Feature("int8"), np.arange(-3, 4, dtype=np.int8)),
    "uint8 [2, 3] flat": (Feature("uint8", [2, 3]), RNG.integers(0, 256, (N, 2, 3), np.uint8)),
    "uint32": (Feature("uint32"), RNG.integers(0, 2**32, N, np.uint32)),
    "int4 [2]": (Feature("int4", [2]), RNG.integers(-8, 8, (N, 2)).astype(ml_dtypes.int4)),
    "float32": (Feature("float32"), np.array([0, -0.0, np.nan, np.inf, 1e-45, 3.5, -1], np.float32)),
    "float32 [32]": (Feature("float32", [32]), RNG.random((N, 32), np.float32)),
    "float16 [2]": (Feature("float16", [2]), RNG.random((N, 2)).astype(np.float16)),
    "bfloat16": (Feature("bfloat16"), RNG.random(N).astype(ml_dtypes.bfloat16)),
    "float8 [3]": (Feature("float8_e4m3fn", [3]), RNG.random((N, 3)).astype(ml_dtypes.float8_e4m3fn)),
    "nothing [0]": (Feature("int64", [0]), np.zeros((N, 0), np.int64)),
    "float64 tensorproto": (Feature("float64"), RNG.random(N)),
    "uint64 tensorproto [2]": (Feature("uint64", [2]), RNG.integers(0, 2**64, (N, 2), np.uint64)),
    "complex64 [2]": (Feature("complex64", [2]), (RNG.random((N, 2)) + 1j).astype(np.complex64)),
    "uint8 [4, 5] tensorproto": (Feature("uint8", [4, 5], "tensorproto"), RNG.integers(0, 256, (N, 4, 5), np.uint8)),
    "float32 [0, 3] tensorproto": (Feature("float32", [0, 3], "tensorproto"), np.zeros((N, 0, 3), np.float32)),
    "bool tensorproto": (Feature("bool", [], "tensorproto"), np.arange(N) % 3 == 0),
    "float16 raw [3]": (Feature("float16", [3], "raw"), RNG.random((N, 3)).astype(np.float16)),
    "float64 raw": (Feature("float64", [], "raw"), RNG.random(N)),
    "text": (Feature("text"), np.array(["", "a", "ä", "日本", "x" * 200, "\0", "z"], object)),
    "text [2]": (Feature("text", [2]), np.array([[f"a{i}", "ö" * i] for i in range(N)], object)),
    "bytes": (Feature("bytes"), np.array([bytes(range(i)) for i in range(N)], object)),
    "bytes [2, 1]": (Feature("bytes", [2, 1]), np.array([[[b"a"], [b"\xff" * i]] for i in range(N)], object)),
    "text base64": (Feature("text", [], "base64"), np.array(["", "a", "ä", "日本", "xx", "\0", "z"], object)),
    "bytes base64 [2]": (
        Feature("bytes", [2], "base64"),
        np.array([[b"\xfb\xff", b"x" * i] for i in range(N)], object),
    ),
    "text tensorproto [2]": (Feature("text", [2], "tensorproto"), np.array([["ä", "b" * i] for i in range(N)], object)),
}


def expected_list(feature: Feature, x) -> list:
    """What the list of a record must hold, computed by the rules of the schema and by TensorFlow."""
    if feature.encoding == "tensorproto":
        return [tf.io.serialize_tensor(tf.constant(x)).numpy()]
    if feature.encoding == "raw":
        return [np.ascontiguousarray(x).tobytes()]
    flat = np.asarray(x, object if feature.dtype in ("text", "bytes") else None).reshape(-1)
    if feature.kind == "int64":
        return flat.astype(np.int64).tolist()
    if feature.kind == "float":
        return flat.astype(np.float32).tolist()
    raw = [item.encode() if isinstance(item, str) else item for item in flat]
    return [base64.b64encode(item) for item in raw] if feature.encoding == "base64" else raw


@pytest.mark.parametrize("case", COLUMNS)
def test_every_feature_is_what_tensorflow_reads(path, case):
    feature, column = COLUMNS[case]
    want = [expected_list(feature, column[i]) for i in range(N)]
    written(path, ({"x": column[i]} for i in range(N)), schema={"x": feature})
    by_rows = path.read_bytes()
    got = [row["x"] for row in examples(path)]
    np.testing.assert_equal(got, want)  # nan equals nan here
    for columns in (column, list(column)):
        written(path, batch={"x": columns}, schema={"x": feature})
        assert path.read_bytes() == by_rows
    parsed = tf.io.parse_example(payloads(path), Schema({"x": feature}).to_tf())["x"]
    if isinstance(parsed, tf.RaggedTensor):
        parsed = parsed.to_tensor(shape=[N, *feature.shape])
    if feature.encoding == "tensorproto":
        for i in range(N):
            tensor = tf.io.parse_tensor(parsed[i], tf.constant(column[i]).dtype)
            assert tensor.shape == np.shape(column[i])
            stored = tf.constant(column[i]).numpy()
            np.testing.assert_array_equal(tensor.numpy(), stored)
    elif feature.encoding == "flat" and feature.kind != "bytes":
        assert parsed.shape == column.shape
        np.testing.assert_array_equal(parsed.numpy().astype(column.dtype), column)
    elif feature.encoding == "raw":
        decoded = tf.io.decode_raw(parsed, tf.as_dtype(column.dtype)).numpy().reshape(column.shape)
        np.testing.assert_array_equal(decoded, column)
    else:
        assert parsed.numpy().reshape(-1).tolist() == [item for row in want for item in row]


VARYING = {
    "int64 [?]": (Feature("int64", [None]), [np.arange(i) - 3 for i in range(N)]),
    "float32 [?]": (Feature("float32", [None]), [np.full(i, 0.5, np.float32) for i in range(N)]),
    "uint8 [?]": (Feature("uint8", [None]), [np.arange(i, dtype=np.uint8) for i in range(N)]),
    "float32 [?, 3]": (Feature("float32", [None, 3]), [np.full((i, 3), i, np.float32) for i in range(N)]),
    "int16 [2, ?]": (Feature("int16", [2, None]), [np.full((2, i), i, np.int16) for i in range(N)]),
    "text [?]": (Feature("text", [None]), [["ä"] * i for i in range(N)]),
    "bytes [?]": (Feature("bytes", [None]), [[b"\0"] * i for i in range(N)]),
    "float64 [?, ?]": (Feature("float64", [None, None]), [np.full((i, i + 1), 0.1) for i in range(N)]),
    "uint8 raw [?, 2]": (Feature("uint8", [None, 2], "raw"), [np.full((i, 2), i, np.uint8) for i in range(N)]),
    "bytes tensorproto [?]": (Feature("bytes", [None], "tensorproto"), [[b"a" * i] * i for i in range(N)]),
}


def ragged(feature: Feature, rows) -> Ragged:
    """The rows as one Ragged: by row lengths, or with a shape for each row."""
    if feature.dtype in ("text", "bytes"):
        flat = [item for row in rows for item in row]
        inner = Strings.from_items(flat, (len(flat),), "utf-8" if feature.dtype == "text" else "bytes")
        return Ragged(inner, (np.cumsum([0, *map(len, rows)]),))
    if feature.shape[0] is None and None not in feature.shape[1:]:
        whole = np.concatenate(rows)
        return Ragged(Tensor(feature.dtype, whole.shape, whole), (np.cumsum([0, *map(len, rows)]),))
    whole = np.concatenate([row.reshape(-1) for row in rows])
    shapes = np.array([row.shape for row in rows])
    return Ragged(Tensor(feature.dtype, whole.shape, whole), (np.cumsum([0, *(row.size for row in rows)]),), shapes)


@pytest.mark.parametrize("case", VARYING)
def test_values_of_varying_shape(path, case):
    feature, rows = VARYING[case]
    written(path, ({"x": row} for row in rows), schema={"x": feature})
    by_rows = path.read_bytes()
    found = examples(path)
    for row, record in zip(rows, found, strict=True):
        stored = np.array(row, object) if isinstance(row, list) else row
        if feature.encoding == "tensorproto" and isinstance(row, list):
            stored = tf.constant(row, tf.string).numpy() if row else np.zeros(0, object)
            assert tf.io.parse_tensor(record["x"][0], tf.string).numpy().tolist() == stored.tolist()
        else:
            assert record["x"] == expected_list(feature, stored)
    for columns in (ragged(feature, rows), list(rows)):
        written(path, batch={"x": columns}, schema={"x": feature})
        assert path.read_bytes() == by_rows
    tf.io.parse_example(payloads(path), Schema({"x": feature}).to_tf())


@pytest.mark.parametrize("case", [*COLUMNS, *VARYING])
def test_what_was_read_can_be_written_again(path, case):
    feature, column = (COLUMNS | VARYING)[case]
    written(path, batch={"x": column}, schema={"x": feature})
    want = path.read_bytes()
    (batch,), rows = open_records(path).batches(100), list(open_records(path))
    written(path, batch=batch, schema={"x": feature})
    assert path.read_bytes() == want
    written(path, rows, schema={"x": feature})
    assert path.read_bytes() == want


def test_tensorflows_own_ragged_tensor_is_a_column(path):
    tokens = tf.ragged.constant([[1, 2], [], [3]], tf.int64)
    writer = written(path, batch={"t": tokens, "i": tf.range(3, dtype=tf.int64)})
    assert writer.schema == Schema({"i": Feature("int64"), "t": Feature("int64", [None])})
    assert [row["t"] for row in examples(path)] == [[1, 2], [], [3]]
    parsed = tf.io.parse_example(payloads(path), writer.schema.to_tf())
    assert parsed["t"].to_list() == tokens.to_list()


# ---- SequenceExamples -------------------------------------------------------

SEQUENCE = Schema(
    {"id": Feature("int64"), "name": Feature("text", optional=True)},
    {
        "frames": Feature("float32", [2]),
        "tokens": Feature("int64", [None]),
        "words": Feature("text"),
        "image": Feature("uint8", [1, 2], "tensorproto"),
    },
)
SEQUENCE_ROWS = [
    {
        "id": i,
        "frames": np.full((i, 2), i, np.float32),
        "tokens": [list(range(k)) for k in range(i)],
        "words": [f"ä{k}" for k in range(i)],
        "image": np.full((i, 1, 2), i, np.uint8),
        **({"name": "odd"} if i % 2 else {}),
    }
    for i in range(5)
]


def sequence(data: bytes):
    """(context, lists) of a SequenceExample, by protobuf itself."""
    message = tf.train.SequenceExample.FromString(data)
    context = {name: values(feature) for name, feature in message.context.feature.items()}
    steps = message.feature_lists.feature_list.items()
    return context, {name: [values(feature) for feature in found.feature] for name, found in steps}


def test_sequences_row_by_row_and_in_columns(path):
    written(path, SEQUENCE_ROWS, schema=SEQUENCE)
    by_rows = path.read_bytes()
    for i, data in enumerate(payloads(path)):
        context, steps = sequence(data)
        assert context == {"id": [i], **({"name": [b"odd"]} if i % 2 else {})}
        assert steps["frames"] == [[i, i]] * i
        assert steps["tokens"] == [list(range(k)) for k in range(i)]
        assert steps["words"] == [[f"ä{k}".encode()] for k in range(i)]
        assert [tf.io.parse_tensor(step[0], tf.uint8).numpy().tolist() for step in steps["image"]] == [[[i, i]]] * i
    tokens = [row["tokens"] for row in SEQUENCE_ROWS]
    flat = np.array([n for row in tokens for step in row for n in step], np.int64)
    steps = np.cumsum([0, *(len(row) for row in tokens)])
    frames, image = (np.concatenate([row[name] for row in SEQUENCE_ROWS]) for name in ("frames", "image"))
    words = [word for row in SEQUENCE_ROWS for word in row["words"]]
    batch = {
        "id": np.arange(5),
        "name": [row.get("name") for row in SEQUENCE_ROWS],
        "frames": Ragged(Tensor("float32", frames.shape, frames), (steps,)),
        "tokens": Ragged(
            Tensor("int64", flat.shape, flat),
            (steps, np.cumsum([0, *(len(step) for row in tokens for step in row)])),
        ),
        "words": Ragged(Strings.from_items(words, (len(words),), "utf-8"), (steps,)),
        "image": Ragged(Tensor("uint8", image.shape, image), (steps,)),
    }
    written(path, batch=batch, schema=SEQUENCE)
    assert path.read_bytes() == by_rows
    written(path, batch={name: [row.get(name) for row in SEQUENCE_ROWS] for name in SEQUENCE}, schema=SEQUENCE)
    assert path.read_bytes() == by_rows
    context, found, lengths = tf.io.parse_sequence_example(payloads(path), *SEQUENCE.to_tf())
    assert context["id"].numpy().tolist() == [0, 1, 2, 3, 4]
    assert found["tokens"].to_list() == tokens
    assert lengths["frames"].numpy().tolist() == [0, 1, 2, 3, 4]


def test_sequences_without_a_schema(path):
    dense = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    writer = written(path, batch={"id": [1, 2, 3], "x": dense}, lists=["x"])
    assert writer.schema == Schema({"id": Feature("int64")}, {"x": Feature("float32", [2])})
    assert [sequence(data)[1]["x"] for data in payloads(path)] == dense.tolist()
    rows = [{"x": [[1], [2, 3]], "y": torch.arange(3)}, {"x": [], "y": torch.arange(1)}]
    writer = written(path, rows, lists=["x", "y"])
    assert writer.schema == Schema({}, {"x": Feature("int64", [None]), "y": Feature("int64")})
    assert [sequence(data)[1] for data in payloads(path)] == [
        {"x": [[1], [2, 3]], "y": [[0], [1], [2]]},
        {"x": [], "y": [[0]]},
    ]


def test_names_that_the_context_and_the_lists_share(path):
    schema = Schema({"x": Feature("int64")}, {"x": Feature("int64")})
    written(path, [{"context/x": 1, "lists/x": [2, 3]}], schema=schema)
    assert sequence(payloads(path)[0]) == ({"x": [1]}, {"x": [[2], [3]]})


def test_steps_are_checked_and_counted(path):
    with RecordWriter(path, schema=({}, {"x": Feature("float32", [2])})) as writer:
        writer.write({"x": np.zeros((3, 2), np.float32)})
        with pytest.raises(SchemaError, match=r"record 1: feature 'x': expected float32\[2\], got float32\[3\]"):
            writer.write({"x": [np.zeros(2, np.float32), np.zeros(3, np.float32)]})
        with pytest.raises(SchemaError, match="expected a list of steps"):
            writer.write({"x": np.float32(1)})
        writer.write({"x": np.ones((1, 2), np.float32)})
    assert [sequence(data)[1]["x"] for data in payloads(path)] == [[[0, 0]] * 3, [[1, 1]]]


# ---- odd records ------------------------------------------------------------


def test_empty_lists_optional_features_and_unicode_keys(path):
    schema = {
        "ключ": Feature("int64", optional=True),
        "é\0": Feature("text", [None]),
        "": Feature("bytes", optional=True),
        "d": Feature("float32", default=2.5),
    }
    rows = [
        {"ключ": 1, "é\0": [], "": b""},
        {"é\0": ["a", ""], "ключ": None, "d": 1.5},
        {"é\0": np.array([], object)},
    ]
    want = [
        {"ключ": [1], "é\0": [], "": [b""]},
        {"é\0": [b"a", b""], "d": [1.5]},
        {"é\0": []},
    ]
    written(path, rows, schema=schema)
    assert examples(path) == want
    by_rows = path.read_bytes()
    written(path, batch={name: [row.get(name) for row in rows] for name in schema}, schema=schema)
    assert path.read_bytes() == by_rows
    parsed = tf.io.parse_example(payloads(path), Schema.of(schema).to_tf())
    assert parsed["d"].numpy().tolist() == [2.5, 1.5, 2.5]
    assert parsed["ключ"].to_list() == [[1], [], []]


def test_records_without_features_and_files_without_records(path):
    written(path, [{}, {}], schema={})
    assert examples(path) == [{}, {}]
    for compression in COMPRESSIONS:
        written(path, schema={"x": "int64"}, compression=compression)
        assert payloads(path, compression) == []
    for batch in ({}, {"x": np.zeros((0, 3), np.float32)}, {"x": []}):
        writer = written(path, batch=batch)
        assert path.read_bytes() == b""
        assert (writer.count, writer.schema) == (0, None)


def test_any_bytes_can_be_a_record(path):
    with RecordWriter(path, schema={"x": "int64"}) as writer:
        writer.write({"x": 1})
        writer.write_raw(b"any \xff bytes")
        writer.write({"x": 2})
        writer.write_raw(bytearray(300_000))
        writer.write_raw(b"")
        assert writer.count == 5
    found = payloads(path)
    assert found[1::2] == [b"any \xff bytes", bytes(300_000)]
    assert found[4] == b""
    assert [lists(tf.train.Example.FromString(found[i])) for i in (0, 2)] == [{"x": [1]}, {"x": [2]}]


# ---- the same bytes always --------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    n = 3000
    return {
        "x": rng.random((n, 8), np.float32),
        "a": rng.integers(-(2**40), 2**40, n),
        "s": [f"row {i} " + "ä" * (i % 50) for i in range(n)],
        "image": rng.integers(0, 256, (n, 3, 4), np.uint8),
    }


def rows_of(table, order=1):
    return [{name: table[name][i] for name in list(table)[::order]} for i in range(len(table["s"]))]


def test_rows_batches_and_key_order_give_the_same_bytes(path, table):
    written(path, batch=table)
    want = path.read_bytes()
    schema = path.with_name("x.tfrecord.schema.json").read_bytes()
    written(path, rows_of(table, order=-1))
    assert path.read_bytes() == want
    assert path.with_name("x.tfrecord.schema.json").read_bytes() == schema
    with RecordWriter(path) as writer:  # mixed, in odd steps
        for start in range(0, 3000, 617):
            part = {name: column[start : start + 617] for name, column in table.items()}
            if start % 2:
                writer.write_batch(part)
            else:
                for row in rows_of(part):
                    writer.write(row)
    assert path.read_bytes() == want
    keys = [list(tf.train.Example.FromString(payloads(path)[0]).features.feature)]
    assert sorted(keys[0]) == ["a", "image", "s", "x"]


@pytest.mark.parametrize("shards", [1, 2])
def test_large_batches_keep_their_order(path, shards):
    """They are laid out several chunks at a time."""
    count = 1500 * shards
    x = np.repeat(np.arange(count, dtype=np.float32)[:, None], 1024, axis=1)
    written(path, batch={"i": np.arange(count), "x": x}, shards=shards)
    files = sorted(p for p in path.parent.iterdir() if p.suffix != ".json")
    for shard, file in enumerate(files):
        found = [lists(tf.train.Example.FromString(data)) for data in payloads(file)]
        assert [row["i"] for row in found] == [[i] for i in range(shard, count, shards)]
        assert all(row["x"] == row["i"] * 1024 for row in found)


def test_records_are_laid_out_canonically(path):
    written(path, [{"b": 1, "a": -1}])
    entry_a, entry_b = bytes.fromhex("0a0161120e1a0c0a0affffffffffffffffff01"), bytes.fromhex("0a016212051a030a0101")
    entries = b"\x0a\x13" + entry_a + b"\x0a\x0a" + entry_b
    assert path.read_bytes() == _wire.frames([[b"\x0a" + bytes([len(entries)]) + entries]])


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_each_compression(path, table, compression):
    written(path, rows_of(table), compression=compression)
    once = path.read_bytes()
    found = payloads(path, compression)
    written(path, batch=table)
    assert payloads(path) == found
    written(path, rows_of(table), compression=compression)
    assert path.read_bytes() == once


def test_levels(path, table):
    sizes = []
    for level in (1, 9):
        written(path, batch=table, compression="gzip", level=level)
        assert len(payloads(path, "gzip")) == 3000
        sizes.append(path.stat().st_size)
    assert sizes[1] < sizes[0]
    with pytest.raises(UsageError, match="level"):
        RecordWriter(path, level=3)
    assert "tmp" not in "".join(names(path.parent))


@pytest.mark.parametrize(
    ("shards", "compression"),
    deep_but([(3, "gzip")], [(2, "none"), (7, "none"), (3, "gzip"), (2, "zlib"), (2, "snappy")]),
)
def test_rows_go_to_shards_in_turn(path, table, shards, compression):
    written(path, batch=table)
    whole = payloads(path)
    path.unlink()
    files = [f"{path.name}-{i:05d}-of-{shards:05d}" for i in range(shards)]
    written(path, batch=table, shards=shards, compression=compression)
    assert names(path.parent) == [*files, "x.tfrecord.schema.json"]
    for i, name in enumerate(files):
        assert payloads(path.parent / name, compression) == whole[i::shards]
    before = [(path.parent / name).read_bytes() for name in files]
    with RecordWriter(path, shards=shards, compression=compression) as writer:
        for i, row in enumerate(rows_of(table)):
            if i == 2003:
                writer.write_raw(whole[i])
            else:
                writer.write(row)
    after = [payloads(path.parent / name, compression) for name in files]
    assert after == [whole[i::shards] for i in range(shards)]
    if compression == "none":
        assert [(path.parent / name).read_bytes() for name in files] == before


# ---- what goes in -----------------------------------------------------------


def test_values_are_copied_at_once(path):
    x, image, tokens, raw = np.zeros(3, np.float32), np.zeros((2, 2), np.uint8), [0], bytearray(2)
    with RecordWriter(path) as writer:
        for i in range(3):
            x[:] = image[:] = tokens[0] = raw[0] = i
            writer.write({"x": x, "image": image, "tokens": tokens, "raw": raw, "view": memoryview(raw)})
        x[:] = image[:] = tokens[0] = raw[0] = 9
    for i, row in enumerate(examples(path)):
        assert row["x"] == [i] * 3
        assert row["tokens"] == [i]
        assert row["raw"] == row["view"] == [bytes([i, 0])]
        assert tf.io.parse_tensor(row["image"][0], tf.uint8).numpy().tolist() == [[i, i]] * 2


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, tf.constant, jnp.asarray])
def test_rows_and_columns_of_every_framework(path, convert):
    x = RNG.random((4, 3)).astype(np.float32)
    n = np.arange(4, dtype=np.int32)  # jax has no int64 unless asked
    half = RNG.random((4, 2, 2)).astype(np.float16)
    written(path, batch={"x": x, "n": n, "half": half})
    want, schema = path.read_bytes(), Schema.load(path.with_name("x.tfrecord.schema.json"))
    assert schema == Schema(
        {
            "half": Feature("float16", [2, 2], "tensorproto"),
            "n": Feature("int32", [], "tensorproto"),
            "x": Feature("float32", [3]),
        }
    )
    batch = {"x": convert(x), "n": convert(n), "half": convert(half)}
    written(path, batch=batch)
    assert path.read_bytes() == want
    written(path, [{name: column[i] for name, column in batch.items()} for i in range(4)])
    assert path.read_bytes() == want


def test_layouts_do_not_matter(path):
    x = RNG.random((4, 6)).astype(np.float32)
    for view in (x.T.copy().T, np.asfortranarray(x), x.astype(">f4"), np.repeat(x, 2, axis=1)[:, ::2]):
        written(path, batch={"x": view})
        assert [row["x"] for row in examples(path)] == x.tolist()
        written(path, [{"x": row} for row in view])
        assert [row["x"] for row in examples(path)] == x.tolist()


def test_first_values_give_the_schema(path):
    row = {
        "int": 1,
        "bool": True,
        "str": "a",
        "bytes": b"a",
        "ints": [1, 2],
        "strs": ("a", "b"),
        "f32": np.float32(1),
        "f64": np.float64(1),
        "i64": np.arange(3),
        "i32": np.arange(3, dtype=np.int32),
        "bools": np.array([True]),
        "image": np.zeros((2, 2), np.uint8),
        "matrix": np.zeros((2, 2), np.float32),
        "fixed": np.array(["a", "bc"]),
        "e8": np.ones(2, ml_dtypes.float8_e8m0fnu),
        "table": [[1, 2], [3, 4]],
        "none": None,
    }
    writer = written(path, [row])
    assert writer.schema == Schema(
        {
            "int": "int64",
            "bool": "bool",
            "str": "text",
            "bytes": "bytes",
            "ints": ("int64", [2]),
            "strs": ("text", [2]),
            "f32": "float32",
            "f64": Feature("float64", [], "tensorproto"),
            "i64": ("int64", [3]),
            "i32": Feature("int32", [3], "tensorproto"),
            "bools": Feature("bool", [1], "tensorproto"),
            "image": Feature("uint8", [2, 2], "tensorproto"),
            "matrix": Feature("float32", [2, 2], "tensorproto"),
            "fixed": ("text", [2]),
            "e8": Feature("float8_e8m0fnu", [2], "raw"),
            "table": Feature("int64", [2, 2], "tensorproto"),
        }
    )
    assert Schema.load(path.with_name("x.tfrecord.schema.json")) == writer.schema
    (record,) = examples(path)
    assert tf.io.parse_tensor(record["table"][0], tf.int64).numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([[], [[]]], SchemaError, "lists of equal length"),
        ([[1], [2, 3]], SchemaError, "lists of equal length"),
        ([np.zeros(2), np.zeros(3)], UnsupportedError, "list of arrays"),
        (object(), UnsupportedError, "builtins.object"),
        ({"a": 1}, UnsupportedError, "builtins.dict"),
        (Ragged(Tensor("int64", (0,), b""), (np.zeros(1, np.int64),)), UnsupportedError, "a ragged value"),
        (Sparse("coo", (2,), (np.zeros((0, 1), np.int64),), Tensor("int64", (0,), b"")), UnsupportedError, "sparse"),
        (np.datetime64("2020"), UsageError, "unit of datetime64"),
    ],
)
def test_first_values_that_tell_no_schema(path, value, error, words):
    writer = RecordWriter(path)
    with pytest.raises(error, match=words) as caught:
        writer.write({"good": 1, "x": value})
    assert "record 0: feature 'x'" in str(caught.value)
    assert writer.schema is None
    writer.write({"y": 1})  # as if nothing had happened
    writer.close()
    assert examples(path) == [{"y": [1]}]


def test_a_schema_that_was_not_given_widens(path):
    with RecordWriter(path) as writer:
        writer.write({"n": 1, "t": [1, 2], "w": ["a"], "m": np.zeros((2, 3), np.uint8)})
        writer.write({"n": 1, "t": [3], "w": [], "m": np.zeros((4, 3), np.uint8)})
        writer.write({"n": 1, "t": [], "w": ["b", "c"], "m": np.zeros((4, 3), np.uint8), "new": "x"})
        for row in ({"n": [1, 2], "t": []}, {"n": 1, "t": 5}, {"n": 1, "t": ["a"]}, {"n": 1, "t": [1], "m": b"a"}):
            with pytest.raises(SchemaError, match=r"record 3: feature '[ntm]': expected"):
                writer.write(row)
        writer.flush()
        assert Schema.load(path.with_name("x.tfrecord.schema.json")) == writer.schema
        writer.write_batch({"n": np.arange(2), "t": np.zeros((2, 5), np.int64), "new": [None, "y"]})
    grown = Schema(
        {
            "n": "int64",
            "t": ("int64", [None]),
            "w": {"dtype": "text", "shape": [None], "optional": True},
            "m": Feature("uint8", [None, 3], "tensorproto", optional=True),
            "new": {"dtype": "text", "optional": True},
        }
    )
    assert writer.schema == grown
    assert Schema.load(path.with_name("x.tfrecord.schema.json")) == grown
    found = examples(path)
    assert [row["t"] for row in found] == [[1, 2], [3], [], [0] * 5, [0] * 5]
    assert [row.get("new") for row in found] == [None, None, [b"x"], None, [b"y"]]
    assert [row["n"] for row in found] == [[1], [1], [1], [0], [1]]
    tf.io.parse_example(payloads(path), grown.to_tf())


def test_a_batch_may_start_and_widen_a_schema_too(path):
    writer = written(path, batch={"s": ["a", None, "c"], "t": [[1], [2, 3], []], "x": [np.zeros(1), None, np.zeros(2)]})
    assert writer.schema == Schema(
        {
            "s": {"dtype": "text", "optional": True},
            "t": ("int64", [None]),
            "x": Feature("float64", [None], "tensorproto", optional=True),
        }
    )
    assert [row.get("s") for row in examples(path)] == [[b"a"], None, [b"c"]]


# ---- what does not go in ----------------------------------------------------

STRICT = {
    "i": Feature("int64"),
    "small": Feature("uint8", optional=True),
    "x": Feature("float32", [2], optional=True),
    "half": Feature("float16", optional=True),
    "t": Feature("text", optional=True),
    "b": Feature("bytes", [None], optional=True),
    "flag": Feature("bool", optional=True),
    "image": Feature("uint8", [None, 3], "tensorproto", optional=True),
}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, r"feature 'i': is missing: expected int64"),
        ({"i": None}, r"feature 'i': is missing: expected int64"),
        ({"i": 1, "y": 1}, r"feature 'y': is not in the schema"),
        ({"i": 2**63}, r"feature 'i': expected int64, got 9223372036854775808, which is outside"),
        ({"i": -(2**63) - 1}, r"feature 'i': expected int64, got -9223372036854775809, which is outside"),
        ({"i": True}, r"feature 'i': expected int64, got the bool True"),
        ({"i": 1.0}, r"feature 'i': expected int64, got the float 1.0"),
        ({"i": "1"}, r"feature 'i': expected int64, got str"),
        ({"i": [1]}, r"feature 'i': expected int64, got int64\[1\]"),
        ({"i": np.float64(1)}, r"feature 'i': expected int64, got float64, and arrays are not cast with loss"),
        ({"i": np.uint64(1)}, r"feature 'i': expected int64, got uint64, and arrays are not cast"),
        ({"i": object()}, r"feature 'i': expected int64, got a builtins.object"),
        ({"i": 1, "small": 256}, r"feature 'small': expected uint8, got 256, which is outside 0..255"),
        ({"i": 1, "small": -1}, r"feature 'small': expected uint8, got -1, which is outside 0..255"),
        ({"i": 1, "small": np.int64(1)}, r"feature 'small': expected uint8, got int64"),
        ({"i": 1, "x": np.zeros(3, np.float32)}, r"feature 'x': expected float32\[2\], got float32\[3\]"),
        ({"i": 1, "x": np.zeros(2)}, r"feature 'x': expected float32\[2\], got float64\[2\]"),
        ({"i": 1, "x": [1e300, 0]}, r"feature 'x': expected float32\[2\], got 1e\+300, which float32 can't hold"),
        ({"i": 1, "x": [True, 0.5]}, r"feature 'x': expected float32\[2\], got a list of 2 bool, float"),
        ({"i": 1, "half": 70000.0}, r"feature 'half': expected float16, got 70000.0, which float16 can't hold"),
        ({"i": 1, "half": 10**400}, r"feature 'half': expected float16, got an integer too large"),
        ({"i": 1, "t": b"a"}, r"feature 't': expected text, got bytes"),
        ({"i": 1, "t": "\ud800"}, r"feature 't': expected text, got text with a lone surrogate"),
        ({"i": 1, "t": ["a"]}, r"feature 't': expected text, got text\[1\]"),
        ({"i": 1, "t": 5}, r"feature 't': expected text, got the int 5"),
        ({"i": 1, "t": tf.constant(b"\xff")}, r"feature 't': expected text, got bytes, and text is not UTF-8"),
        ({"i": 1, "b": ["a"]}, r"feature 'b': expected bytes\[\?\], got a list with str in it"),
        ({"i": 1, "b": np.array(["a"])}, r"feature 'b': expected bytes\[\?\], got text\[1\]; encode it"),
        ({"i": 1, "b": b"a"}, r"feature 'b': expected bytes\[\?\], got bytes"),
        ({"i": 1, "flag": 1}, r"feature 'flag': expected bool, got the int 1"),
        ({"i": 1, "flag": np.int8(1)}, r"feature 'flag': expected bool, got int8"),
        ({"i": 1, "image": np.zeros((2, 4), np.uint8)}, r"expected uint8\[\?, 3\] as tensorproto, got uint8\[2, 4\]"),
        ({"i": 1, "image": np.zeros((2, 3), np.int8)}, r"expected uint8\[\?, 3\] as tensorproto, got int8\[2, 3\]"),
        ({"i": 1, "image": "a"}, r"expected uint8\[\?, 3\] as tensorproto, got str"),
    ],
)
def test_wrong_rows_are_refused_whole(path, row, words):
    good = {"i": 7, "x": np.ones(2, np.float32), "b": [b"a"], "image": np.zeros((1, 3), np.uint8)}
    with RecordWriter(path, schema=STRICT) as writer:
        writer.write(good)
        writer.write(good)
        with pytest.raises(SchemaError, match=words) as caught:
            writer.write(row)
        assert str(caught.value).startswith("record 2: ")
        if row and all(x is not None for x in row.values()):
            with pytest.raises(SchemaError, match=words) as caught:
                writer.write_batch({name: [good.get(name), x] for name, x in row.items()} | {"i": [1, row.get("i", 1)]})
        writer.write(good)
        assert writer.count == 3
    found = examples(path)
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
    assert found[0]["i"] == [7]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.zeros((3, 1), np.int64), r"record 0: feature 'i': expected int64, got int64\[1\]"),
        (np.zeros(3), r"record 0: feature 'i': expected int64, got float64"),
        (["a", "b", "c"], r"record 0: feature 'i': expected int64, got str"),
        ([1, 2, 2**63], r"record 2: feature 'i': expected int64, got 9223372036854775808"),
        ([1, None, 3], r"record 1: feature 'i': expected int64, got None"),
        (np.array(["a", "b", "c"]), r"expected int64, got a column of text"),
        (tf.ragged.constant([[1], [], [2]], tf.int64), r"record 0: feature 'i': expected int64, got int64\[1\]"),
    ],
)
def test_wrong_columns_are_refused_whole(path, column, words):
    with RecordWriter(path, schema={"i": "int64"}) as writer:
        with pytest.raises(SchemaError, match=words):
            writer.write_batch({"i": column})
        writer.write_batch({"i": [5]})
    assert examples(path) == [{"i": [5]}]


def test_wrong_calls(path, tmp_path):
    with RecordWriter(path) as writer:
        for row in (5, [1], "ab"):
            with pytest.raises(UsageError, match="a row must be a dict"):
                writer.write(row)
        with pytest.raises(UsageError, match="a row must be a dict"):
            writer.write_batch([1])
        with pytest.raises(UsageError, match="a batch must be a dict"):
            writer.write_batch(5)
        with pytest.raises(UsageError, match="of one length"):
            writer.write_batch({"a": [1, 2], "b": [1]})
        with pytest.raises(UsageError, match="needs a first axis"):
            writer.write_batch({"a": np.int64(1)})
        with pytest.raises(UsageError, match="name of a feature must be text"):
            writer.write({1: 2})
        with pytest.raises(UnsupportedError, match="two levels"):
            writer.write_batch({"a": tf.ragged.constant([[[1], []], [[2]]], tf.int64)})
    for options, words in [
        ({"mode": "r"}, "expected 'w' or 'a'"),
        ({"shards": 0}, "from 1 up"),
        ({"shards": 2, "mode": "a"}, "appending goes to one file"),
        ({"compression": "zip"}, "unknown compression"),
        ({"compression": "auto"}, "auto"),
        ({"schema": {"x": "int64"}, "lists": ["x"]}, "without a schema"),
        ({"lists": "x"}, "a list of names"),
    ]:
        with pytest.raises(UsageError, match=words):
            RecordWriter(tmp_path / "y.tfrecord", **options)
    with pytest.raises(UsageError, match="a path, a URL or a file object"):
        RecordWriter({"x": 1})
    with pytest.raises(UsageError, match="several shards need a path"):
        RecordWriter(io.BytesIO(), shards=2)
    assert not any("y.tfrecord" in name for name in names(tmp_path))


def test_python_floats_take_the_precision_of_the_schema(path):
    schema = {"f": "float32", "h": "float16", "l": ("float32", [None]), "d": "float64", "big": "float32"}
    written(path, [{"f": 0.1, "h": 0.1, "l": [0.1, 1], "d": 0.1, "big": 3.4028235e38}], schema=schema)
    (row,) = examples(path)
    assert row["f"] == [np.float32(0.1)]
    assert row["h"] == [np.float16(0.1)]
    assert row["l"] == [np.float32(0.1), 1.0]
    assert row["big"] == [np.finfo(np.float32).max]
    assert tf.io.parse_tensor(row["d"][0], tf.float64).numpy() == 0.1


def test_narrower_integers_widen_exactly(path):
    schema = {"i": "int64", "u": "uint32", "p": Feature("int32", [2], "tensorproto")}
    row = {"i": np.int8(-5), "u": np.uint16(65535), "p": np.array([1, 2], np.uint8)}
    written(path, [row], schema=schema)
    by_rows = path.read_bytes()
    (found,) = examples(path)
    assert (found["i"], found["u"]) == ([-5], [65535])
    assert tf.io.parse_tensor(found["p"][0], tf.int32).numpy().tolist() == [1, 2]
    written(path, batch={name: np.stack([x]) for name, x in row.items()}, schema=schema)
    assert path.read_bytes() == by_rows


# ---- files ------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_an_exception_leaves_the_old_files(path, compression):
    written(path, [{"x": 1}], compression=compression)
    before = {name: (path.parent / name).read_bytes() for name in names(path.parent)}

    def interrupted(flush):
        with RecordWriter(path, compression=compression) as writer:
            writer.write_batch({"y": np.zeros((3000, 100), np.float32)})
            if flush:
                writer.flush()
                writer.write({"y": np.ones(100, np.float32)})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted(flush=False)
    assert {name: (path.parent / name).read_bytes() for name in names(path.parent)} == before
    with pytest.raises(RuntimeError):
        interrupted(flush=True)
    assert names(path.parent) == sorted(before)
    assert len(payloads(path, compression)) == 3001


def test_abort_removes_what_was_not_visible(path):
    writer = RecordWriter(path, shards=3)
    writer.write({"x": 1})
    writer.abort()
    assert names(path.parent) == []
    for use in (lambda: writer.write({"x": 1}), lambda: writer.write_batch({"x": [1]}), writer.flush, writer.sync):
        with pytest.raises(TensorbytesError, match="closed"):
            use()
    writer.close()


def test_a_closed_writer_takes_nothing_more(path):
    writer = written(path, [{"x": 1}])
    with pytest.raises(TensorbytesError, match="closed"):
        writer.write({"x": 2})
    with pytest.raises(TensorbytesError, match="closed"):
        writer.write_raw(b"")
    assert examples(path) == [{"x": [1]}]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_flushed_records_survive_the_process(path, compression):
    code = f"""
import os
from tensorbytes.formats.tfrecord.write.writer import RecordWriter
writer = RecordWriter({str(path)!r}, compression={compression!r})
for i in range(1500):
    writer.write({{"x": i, "s": "text " * 20}})
    if i == 1299:
        writer.flush()
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    data = path.read_bytes()
    if compression == "gzip":  # whole members, then one that is cut
        plain = b""
        while data:
            inflate = zlib.decompressobj(31)
            plain += inflate.decompress(data)
            data = inflate.unused_data
    elif compression == "zlib":
        plain = zlib.decompressobj().decompress(data)
    else:
        kind = "" if compression == "none" else compression.upper()
        found = 0
        try:
            for _ in tf.data.TFRecordDataset(str(path), kind):
                found += 1
        except tf.errors.DataLossError:
            pass
        assert found >= 1300
        return
    records = np.empty((2000, 2), np.int64)
    assert _wire.scan(plain, 0, True, records)[0] >= 1300
    assert Schema.load(path.with_name("x.tfrecord.schema.json")) == Schema({"x": "int64", "s": "text"})


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_a_full_disk_keeps_whole_records(path, compression, small_files_only):
    noise = np.random.default_rng(0).integers(0, 2**62, (2000, 10))

    def write_too_much():
        with RecordWriter(path, compression=compression) as writer:
            writer.write_batch({"x": noise[:500]})
            writer.flush()
            writer.write_batch({"x": noise})

    with pytest.raises(OSError, match="too large"):
        write_too_much()
    found = payloads(path, compression)
    assert len(found) == 500
    assert names(path.parent) == ["x.tfrecord", "x.tfrecord.schema.json"]


def test_a_full_disk_before_anything_was_visible(path, small_files_only):
    with pytest.raises(OSError, match="too large"):
        written(path, batch={"x": np.zeros((200, 1000), np.float32)})
    assert names(path.parent) == []


def test_file_objects_and_urls(path):
    written(path, [{"x": 1}, {"x": 2}])
    memory = io.BytesIO()
    written(memory, [{"x": 1}, {"x": 2}])
    assert memory.getvalue() == path.read_bytes()
    import fsspec

    written("memory://writer/x.tfrecord", [{"x": 1}, {"x": 2}], shards=2)
    system = fsspec.filesystem("memory")
    assert sorted(Path(name).name for name in system.ls("/writer", detail=False)) == [
        "x.tfrecord-00000-of-00002",
        "x.tfrecord-00001-of-00002",
        "x.tfrecord.schema.json",
    ]
    whole = system.cat("/writer/x.tfrecord-00000-of-00002") + system.cat("/writer/x.tfrecord-00001-of-00002")
    assert whole == path.read_bytes()
    assert Schema.load("memory://writer/x.tfrecord.schema.json") == Schema({"x": "int64"})


def test_the_sidecar_is_about_the_file(path):
    beside = path.with_name("x.tfrecord.schema.json")
    written(path, [{"x": 1}], sidecar=False)
    assert names(path.parent) == ["x.tfrecord"]
    written(path, [{"x": 1}])
    assert Schema.load(beside) == Schema({"x": "int64"})
    with RecordWriter(path) as writer:
        writer.write_raw(b"no Example")
    assert not beside.exists()  # it was about the records that are gone


def test_shards_written_one_by_one_share_a_schema(path):
    for i, tokens in enumerate(([1], [1, 2])):
        written(f"{path}-{i:05d}-of-00002", [{"t": tokens}])
    assert Schema.load(path.with_name("x.tfrecord.schema.json")) == Schema({"t": ("int64", [None])})


def test_modes_of_files_are_kept(path):
    written(path, [{"x": 1}])
    os.chmod(path, 0o640)
    written(path, [{"x": 2}])
    assert path.stat().st_mode & 0o777 == 0o640


def test_devices_and_pipes_have_nothing_beside_them(path):
    """A link to a device stands for one: nobody may write beside the real one."""
    path.symlink_to(os.devnull)
    with RecordWriter(path) as writer:
        writer.write({"x": 1})
    assert names(path.parent) == ["x.tfrecord"]
    pipe = path.parent / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with RecordWriter(pipe) as writer:
            writer.write({"x": 1})
        assert len(os.read(reader, 1000)) > 16
    finally:
        os.close(reader)
    assert names(path.parent) == ["pipe", "x.tfrecord"]


def test_a_folder_of_the_same_name_is_no_device(path):
    path.mkdir()
    with RecordWriter(path, shards=2) as writer:
        writer.write({"x": 1})
    assert "x.tfrecord.schema.json" in names(path.parent)


# ---- writers that nobody closes ---------------------------------------------


def opened_writers(path):
    return RecordWriter(path, shards=2), RecordWriter(f"{path}.gz", compression="gzip"), tb.open(f"{path}.tb", "w")


def write_some(writers):
    for writer in writers:
        writer.write({"x": np.zeros(100_000)})


def test_a_dropped_writer_keeps_what_it_has_under_another_name(path):
    writers = opened_writers(path)
    write_some(writers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del writers
        gc.collect()
    assert [warning.category for warning in caught] == [tb.errors.UnclosedWriterWarning] * 3
    kept = [name for name in names(path.parent) if not name.endswith(".schema.json")]
    assert len(kept) == 4
    assert all(name.endswith(".tensorbytes-unclosed-1") for name in kept)


def test_a_dropped_writer_leaves_what_was_flushed(path):
    writers = opened_writers(path)
    write_some(writers)
    for writer in writers:
        writer.flush()
    before = [name for name in names(path.parent) if not name.endswith("-lock.tmp")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del writers, writer
        gc.collect()
    assert [warning.category for warning in caught] == [tb.errors.UnclosedWriterWarning] * 3
    assert names(path.parent) == before
    assert not any(name.endswith(".tmp") for name in before)
    with tb.open(f"{path}.tb") as found:
        assert found.verify() == 1


def test_a_writer_that_is_open_at_the_end_keeps_what_it_has(tmp_path):
    path = tmp_path / "x.tb"
    code = "import sys, tensorbytes as tb; w = tb.open(sys.argv[1], 'w'); w.write(1); r = tb.RecordWriter(sys.argv[2])"
    ran = subprocess.run([sys.executable, "-c", code, path, f"{path}2"], check=True, capture_output=True, text=True)
    assert names(path.parent) == [f"{path.name}.tensorbytes-unclosed-1"]
    assert "never closed" in ran.stderr
    assert tb.load(path.parent / names(path.parent)[0], "tb") == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_leaves_the_file_to_its_parent(tmp_path):
    path = tmp_path / "x.tb"
    code = """if True:
        import gc, os, sys, tensorbytes as tb
        w = tb.open(sys.argv[1], "w")
        w.write(1)
        child = os.fork()
        if not child:
            del w
            gc.collect()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        w.close()
    """
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert names(path.parent) == ["x.tb"]
    assert tb.load(path) == [1]
