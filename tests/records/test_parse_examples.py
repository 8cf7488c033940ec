"""Serialized Examples in memory: columns as those of a file of the same records, and of TensorFlow."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes.errors import CorruptError, LimitError, Limits, SchemaError, UsageError
from tensorbytes.records import parse_examples


def records_of(tmp_path, rows, **options):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, **options) as writer:
        for row in rows:
            writer.write(row)
    return list(tb.open_records(path).payloads()), tb.open_records(path)


ROWS = [{"x": number, "v": np.arange(number % 4, dtype=np.float32), "s": f"text {number}"} for number in range(50)]

FORMS = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "bytearrays": lambda items: [bytearray(item) for item in items],
    "Strings": lambda items: tb.Strings.from_items(items, (len(items),), "bytes"),
    "a part of Strings": lambda items: tb.Strings.from_items([b"no", *items], (len(items) + 1,), "bytes")[1:],
    "objects": lambda items: np.array(items, object),
    "binary": lambda items: pa.array(items, pa.binary()),
    "large binary": lambda items: pa.array(items, pa.large_binary()),
    "binary view": lambda items: pa.array(items, pa.binary_view()),
    "a slice": lambda items: pa.array([b"no", None, *items, b"no"], pa.binary()).slice(2, len(items)),
    "chunks": lambda items: pa.chunked_array([items[:10], [], items[10:]], pa.binary()),
    "polars": lambda items: pl.Series(items),
    "pandas": lambda items: pd.Series(items),
    "pandas, arrow": lambda items: pd.Series(items, dtype=pd.ArrowDtype(pa.binary())),
    "tensorflow": lambda items: tf.constant(items),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_columns_of_the_file(tmp_path, form):
    items, records = records_of(tmp_path, ROWS)
    batch = parse_examples(FORMS[form](items), schema=records.schema)
    assert batch == next(records.batches(100))
    assert batch.records == 50
    assert parse_examples(FORMS[form](items))["x"].tolist() == list(range(50))


def test_the_schema_is_inferred_from_all_records(tmp_path):
    items, _ = records_of(tmp_path, [{"x": [1]}] * 100 + [{"x": [1, 2]}], schema={"x": ("int64", [None])})
    batch = parse_examples(items)
    assert batch["x"].to_list()[-2:] == [[1], [1, 2]]


@pytest.mark.parametrize("to", ["numpy", "torch", "tensorflow"])
def test_columns_and_frameworks(tmp_path, to):
    items, records = records_of(tmp_path, ROWS)
    batch = parse_examples(items, columns=["x"], to=to)
    assert list(batch) == ["x"]
    assert type(batch["x"]) is type(next(records.batches(5, to=to))["x"])
    with pytest.raises(UsageError, match="columns='x'"):
        parse_examples(items, columns="x")


def test_a_feature_spec_gives_what_tensorflow_parses(tmp_path):
    items, _ = records_of(tmp_path, ROWS)
    spec = {"v": tf.io.VarLenFeature(tf.float32), "x": tf.io.FixedLenFeature([], tf.int64)}
    batch, expected = parse_examples(items, schema=spec, to="tensorflow"), tf.io.parse_example(items, spec)
    assert (batch["v"].indices == expected["v"].indices).numpy().all()
    assert (batch["v"].values == expected["v"].values).numpy().all()
    assert (batch["x"] == expected["x"]).numpy().all()


def test_sequences(tmp_path):
    schema = tb.records.Schema({"id": "int64"}, {"tokens": ("int64", [None])})
    items, records = records_of(tmp_path, [{"id": 1, "tokens": [[5, 6], [7]]}, {"id": 2, "tokens": []}], schema=schema)
    for given in (schema, None):
        batch = parse_examples(items, schema=given)
        assert [[step.tolist() for step in record] for record in batch["tokens"].rows()] == [[[5, 6], [7]], []]
    assert parse_examples(items, schema=schema) == next(records.batches(5))


def test_many_records_and_large_ones_are_decoded_in_blocks(tmp_path):
    rows = [{"x": np.full(300_000 if number % 50 == 0 else 3, number)} for number in range(200)]
    items, records = records_of(tmp_path, rows, schema={"x": ("int64", [None])})
    expected = next(records.batches(1000))
    for threads in (1, 2):
        assert parse_examples(items, schema=records.schema, threads=threads) == expected
    many = [items[1]] * 150_000
    assert parse_examples(many, schema={"x": ("int64", [3])})["x"].shape == (150_000, 3)


def test_nothing_is_a_batch_of_no_records():
    empty = parse_examples([])
    assert (dict(empty), empty.records) == ({}, 0)
    batch = parse_examples(pa.array([], pa.binary()), schema={"x": ("float32", [2]), "s": "text"})
    assert batch["x"].shape == (0, 2)
    assert batch["s"].tolist() == []


def test_errors_name_the_record(tmp_path):
    items, _ = records_of(tmp_path, [{"x": 1}] * 70_000)
    with pytest.raises(SchemaError, match="record 69999: feature 'x' is missing") as caught:
        parse_examples([*items[:-1], b""], schema={"x": "int64"})
    assert caught.value.record == 69_999
    with pytest.raises(CorruptError, match="record 3 is not a sound Example"):
        parse_examples([*items[:3], items[3][:-1]], schema={"x": "int64"})
    for wrong, got in ((None, "None"), ("text", "str"), (3, "int")):
        with pytest.raises(UsageError, match=f"record 2 is not bytes.*got {got}") as caught:
            parse_examples([items[0], items[0], wrong])
        assert caught.value.record == 2
    with pytest.raises(UsageError, match="record 11 is not bytes"):
        parse_examples(pa.chunked_array([items[:10], [items[0], None]], pa.binary()))


def test_what_is_not_a_list_of_records_is_refused(tmp_path):
    items, _ = records_of(tmp_path, [{"x": 0}])
    for wrong in (items[0], "text", 3, {"a": items[0]}, tf.constant([1.0]), np.array([[items[0]]], object)):
        with pytest.raises(UsageError):
            parse_examples(wrong)
    with pytest.raises(UsageError, match="a column of binary, got one of int64"):
        parse_examples(pa.array([1, 2]))
    assert items[0].endswith(b"\0")
    with pytest.raises(UsageError, match="lost the zeros"):
        parse_examples(np.array(items))
    with pytest.raises(UsageError, match="not Examples"):
        parse_examples([b"\x12\x03abc"])


def test_columns_take_no_more_than_the_limit():
    schema = {"y": tb.records.Feature("float32", [1000, 100], default=0.0)}
    with pytest.raises(LimitError):
        parse_examples([b""] * 600, schema=schema, limits=Limits(max_bytes=10 << 20))


def test_pyarrow_is_not_needed():
    code = """
import sys
sys.modules["pyarrow"] = None
import tensorbytes as tb
record = b"\\n\\x0c\\n\\n\\n\\x01x\\x12\\x05\\x1a\\x03\\n\\x01\\x07"
for data in ([record], tb.Strings.from_items([record], (1,), "bytes")):
    assert tb.records.parse_examples(data)["x"].tolist() == [7]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
