"""Rows and batches as people have them: Python floats, empty lists, None, dataclasses, DataFrames, Arrow."""

import dataclasses
import math
import struct
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes.errors import (
    LossError,
    SchemaError,
    SchemaWarning,
    UnclosedWriterWarning,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats.tfrecord.write import untold
from tensorbytes.records import Feature, Schema
from tests.support.written_records import examples, payloads, written

FLOATS = [0.1, -0.0, 1e300, 5e-324, math.inf, -math.inf, math.nan, 2.0**53 + 2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.tfrecord"


def rows_of(path) -> list[dict[str, Any]]:
    return [
        {name: x.tolist() if isinstance(x, np.ndarray | np.generic) else x for name, x in row.items()}
        for row in tb.open_records(path)
    ]


def bits(x: float) -> bytes:
    return struct.pack("<d", x)


# ---- floats ------------------------------------------------------------------


@pytest.mark.parametrize("in_batches", [False, True])
def test_python_floats_are_float64_bit_for_bit(path, in_batches):
    if in_batches:
        written(path, batch={"x": FLOATS, "many": [[x, 1.5] for x in FLOATS]})
    else:
        written(path, [{"x": x, "many": [x, 1.5]} for x in FLOATS])
    records = tb.open_records(path)
    assert records.schema == Schema({"x": "float64", "many": ("float64", [2])})
    (batch,) = records.batches(100)
    assert batch["x"].dtype == np.float64
    assert list(map(bits, batch["x"])) == list(map(bits, FLOATS))
    assert list(map(bits, batch["many"][:, 0])) == list(map(bits, FLOATS))
    # What TensorFlow sees: a TensorProto of float64 in a bytes feature.
    spec = records.schema.to_tf()
    parsed = tf.io.parse_example(payloads(path), spec)
    found = [float(tf.io.parse_tensor(one, tf.float64)) for one in parsed["x"]]
    assert list(map(bits, found)) == list(map(bits, FLOATS))
    assert tf.io.parse_tensor(parsed["many"][0], tf.float64).numpy().tolist() == [0.1, 1.5]


@pytest.mark.parametrize("floats", ["float32", np.float32, tf.float32])
@pytest.mark.parametrize("in_batches", [False, True])
def test_float32_on_request_is_tensorflow_s_float_list(path, in_batches, floats):
    values = [0.1, 2.5, math.inf]
    rows = [{"x": x, "many": [x, 1]} for x in values]
    if in_batches:
        written(path, batch=rows, floats=floats)
    else:
        written(path, rows, floats=floats)
    parsed = tf.io.parse_example(
        payloads(path), {"x": tf.io.FixedLenFeature([], tf.float32), "many": tf.io.FixedLenFeature([2], tf.float32)}
    )
    assert parsed["x"].numpy().tolist() == np.float32(values).tolist()
    (batch,) = tb.open_records(path).batches(10)
    assert batch["x"].dtype == np.float32
    assert batch["many"].tolist() == parsed["many"].numpy().tolist()


def test_a_float_that_float32_can_not_hold_is_refused(path):
    with tb.RecordWriter(path, floats="float32") as writer:
        for wrong in (1e300, [1e300]):
            with pytest.raises(SchemaError, match="1e\\+300, which float32 can't hold"):
                writer.write({"x": wrong})
        writer.write({"x": 1.5})


def test_floats_and_integers_in_one_list_are_floats(path):
    written(path, [{"x": [1, 2.5]}, {"x": [3, 4]}, {"x": [0.5, 1]}])
    assert rows_of(path) == [{"x": [1.0, 2.5]}, {"x": [3.0, 4.0]}, {"x": [0.5, 1.0]}]
    written(path, batch={"x": [1, 2.5], "y": [[1], [2.5]], "i": [1, 2]})
    assert rows_of(path) == [{"i": 1, "x": 1.0, "y": [1.0]}, {"i": 2, "x": 2.5, "y": [2.5]}]


def test_complex_numbers_are_complex128(path):
    written(path, [{"z": 1.5 + 2j, "many": [1j]}])
    (row,) = tb.open_records(path)
    assert row["z"] == 1.5 + 2j
    assert row["many"].dtype == np.complex128
    (record,) = examples(path)
    assert tf.io.parse_tensor(record["z"][0], tf.complex128).numpy() == 1.5 + 2j


def test_what_floats_takes(path):
    for wrong in ("float16", "int64", object()):
        with pytest.raises(UsageError, match="float"):
            tb.RecordWriter(path, floats=wrong)
    with pytest.raises(UsageError, match="a schema says itself"):
        tb.RecordWriter(path, schema={"x": "float32"}, floats="float32")
    assert not path.exists()


def test_convert_takes_floats_as_well(tmp_path):
    """The option is the format's, so that whoever writes rows has it."""
    tb.save({"x": np.float32([1, 2])}, tmp_path / "x.parquet")
    tb.convert(tmp_path / "x.parquet", tmp_path / "x.tfrecord", floats="float32")
    assert tb.load(tmp_path / "x.tfrecord")["x"].tolist() == [1, 2]


# ---- empty lists -------------------------------------------------------------

TOLD = {
    "text": (["x", "y"], ("text", [None])),
    "bytes": ([b"x"], ("bytes", [None])),
    "int64": ([1, 2, 3], ("int64", [None])),
    "float64": ([0.5], ("float64", [None])),
    "an array": (np.float32([1, 2]), ("float32", [None])),
    "nested": ([[1, 2]], Feature("int64", [1, None], "tensorproto")),
}


@pytest.mark.parametrize("kind", TOLD)
@pytest.mark.parametrize("shards", [1, 3])
def test_empty_lists_wait_for_a_row_that_tells(path, kind, shards):
    value, feature = TOLD[kind]
    empty = [[]] if kind == "nested" else []
    rows = [{"n": i, "x": empty} for i in range(5)] + [{"n": 5, "x": value}, {"n": 6, "x": empty}]
    written(path, rows, shards=shards)
    known = path.with_name("known.tfrecord")
    written(known, rows, schema={"n": "int64", "x": feature}, shards=shards)
    for number in range(shards):
        suffix = f"-{number:05}-of-{shards:05}" if shards > 1 else ""
        assert payloads(f"{path}{suffix}") == payloads(f"{known}{suffix}")
    found = tb.open_records(f"{path}@{shards}" if shards > 1 else path)
    assert found.schema == Schema({"n": "int64", "x": feature})
    assert sorted(int(row["n"]) for row in found) == list(range(7))


def test_rows_that_lack_the_feature_and_rows_that_have_none_of_it(path):
    rows = [{"a": 1}, {"a": 2, "x": []}, {"a": 3, "x": None}, {"a": 4, "x": ["s"]}, {"a": 5}]
    written(path, rows)
    assert rows_of(path) == [{"a": 1}, {"a": 2, "x": []}, {"a": 3}, {"a": 4, "x": ["s"]}, {"a": 5}]
    written(path, [{"x": [], "y": []}, {"y": [1], "x": []}, {"y": [], "x": ["s"]}])  # told one after the other
    assert rows_of(path) == [{"x": [], "y": []}, {"x": [], "y": [1]}, {"x": ["s"], "y": []}]
    assert not tb.open_records(path).schema["x"].optional


def test_other_features_may_widen_meanwhile(path):
    rows = [{"t": [], "n": [1]}, {"t": [], "n": [1, 2]}, {"t": [], "n": [], "new": "a"}, {"t": ["a"], "n": [3]}]
    written(path, rows)
    assert rows_of(path) == rows


def test_feature_lists_without_steps(path):
    rows = [{"id": 1, "steps": []}, {"id": 2, "steps": [[]]}, {"id": 3, "steps": [["a"], []]}]
    written(path, rows, lists=["steps"])
    (batch,) = tb.open_records(path).batches(10)
    assert batch["steps"].to_list() == [[], [[]], [["a"], []]]
    parsed = [tf.train.SequenceExample.FromString(data) for data in payloads(path)]
    assert [len(one.feature_lists.feature_list["steps"].feature) for one in parsed] == [0, 1, 2]


def test_a_batch_of_empty_lists_waits_as_well(path):
    with tb.RecordWriter(path) as writer:
        own = np.arange(2)
        writer.write_batch({"x": [[], []], "n": own})
        own[:] = -1  # what waits is not the caller's memory
        writer.write({"x": [], "n": 2})
        assert writer.count == 3
        writer.write_batch({"x": [["a"], []], "n": np.arange(3, 5)})
        assert writer.count == 5
    assert rows_of(path) == [{"n": n, "x": ["a"] if n == 3 else []} for n in range(5)]
    with tb.RecordWriter(path) as writer:
        given: list[Any] = []
        writer.write({"x": given})
        given.append("later")
        writer.write({"x": ["a"]})
    assert rows_of(path) == [{"x": []}, {"x": ["a"]}]


def test_a_row_that_tells_and_is_refused_leaves_things_as_they_were(path):
    with tb.RecordWriter(path) as writer:
        writer.write({"n": 1, "x": []})
        with pytest.raises(SchemaError, match="record 1: feature 'n'"):
            writer.write({"n": "wrong", "x": ["text"]})
        with pytest.raises(
            SchemaError, match=r"record 1: feature 'x': expected a list, as it was empty before, got text"
        ):
            writer.write({"n": 2, "x": "a scalar"})
        writer.write({"n": 2, "x": [5]})
        with pytest.raises(SchemaError, match="record 2: feature 'x'"):
            writer.write({"n": 3, "x": ["text"]})
    assert rows_of(path) == [{"n": 1, "x": []}, {"n": 2, "x": [5]}]


@pytest.mark.parametrize("end", ["close", "flush", "write_raw"])
def test_empty_lists_alone_are_integers_with_a_warning(path, end):
    writer = tb.RecordWriter(path)
    writer.write({"x": [], "y": 1})
    with pytest.warns(SchemaWarning, match="'x', which are stored as lists of int64; pass schema="):
        writer.write_raw(b"") if end == "write_raw" else getattr(writer, end)()
    if end == "flush":
        writer.write({"x": [7], "y": 2})
        with pytest.raises(SchemaError, match=r"record 2: feature 'x': expected int64\[\?\], got a list of 1 str"):
            writer.write({"x": ["a"], "y": 3})
    writer.close()
    assert tf.train.Example.FromString(payloads(path)[0]).features.feature["x"].WhichOneof("kind") == "int64_list"
    assert tb.open_records(path).schema["x"] == Feature("int64", [None])


def test_records_wait_in_bounded_memory(path, monkeypatch):
    monkeypatch.setattr(untold, "MOST_ROWS", 5000)
    with tb.RecordWriter(path) as writer, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(10_000):
            writer.write({"x": [], "n": number})
    assert [warning.category for warning in caught] == [SchemaWarning]
    (batch,) = tb.open_records(path).batches(10_000)
    assert batch["n"].tolist() == list(range(10_000))
    assert batch["x"].to_list() == [[]] * 10_000


def test_a_writer_that_is_left_keeps_records_that_waited(path):
    writer = tb.RecordWriter(path)
    writer.write({"x": [], "n": 1})
    with pytest.warns(UnclosedWriterWarning, match="1 record"), pytest.warns(SchemaWarning):
        del writer
    (kept,) = [one for one in path.parent.iterdir() if not one.name.endswith(".json")]
    assert examples(kept) == [{"x": [], "n": [1]}]


def test_a_schema_and_an_append_know_the_type(path):
    written(path, [{"x": []}], schema={"x": ("text", [None])})
    written(path, [{"x": []}, {"x": ["a"]}], mode="a")
    assert rows_of(path) == [{"x": []}, {"x": []}, {"x": ["a"]}]
    with tb.RecordWriter(path, mode="a") as writer, pytest.raises(SchemaError, match="not in the schema"):
        writer.write({"x": [], "y": []})


# ---- None --------------------------------------------------------------------


def test_none_is_absent(path):
    written(path, [{"a": None, "b": 1}, {"a": 1.5, "b": None}, {"a": None, "b": None}])
    assert rows_of(path) == [{"b": 1}, {"a": 1.5}, {}]
    written(path, batch={"a": [None, None], "b": [1, None], "c": None})
    assert rows_of(path) == [{"b": 1}, {}]


# ---- other rows --------------------------------------------------------------


@dataclasses.dataclass
class Sample:
    id: str
    score: float
    tags: list[str] = dataclasses.field(default_factory=list)
    note: str | None = None


class Point(NamedTuple):
    x: float
    label: int


def test_dataclasses_and_named_tuples(path):
    samples = [Sample("a", 0.5), Sample("b", 1, ["t"], "n")]
    expected = [{"id": "a", "score": 0.5, "tags": []}, {"id": "b", "score": 1.0, "tags": ["t"], "note": "n"}]
    written(path, samples)
    assert rows_of(path) == expected
    written(path, batch=samples)
    assert rows_of(path) == expected
    written(path, [Point(0.5, 1)], batch=[Point(1.5, 2), {"x": 2.5, "label": 3}])
    assert rows_of(path) == [{"label": 1, "x": 0.5}, {"label": 2, "x": 1.5}, {"label": 3, "x": 2.5}]
    for wrong in (Sample, (1, 2), "ab", 5):
        with tb.RecordWriter(path) as writer, pytest.raises(UsageError, match="a row must be a dict of features, a da"):
            writer.write(wrong)


def test_a_list_of_rows_is_written_whole_or_not_at_all(path):
    with tb.RecordWriter(path) as writer:
        with pytest.raises(SchemaError, match="record 1: feature 'a'"):
            writer.write_batch([{"a": 1}, {"a": "x"}])
        assert writer.count == 0
        writer.write_batch([])
        writer.write_batch([{"a": 1, "b": "x"}, {"a": 2}])
    assert rows_of(path) == [{"a": 1, "b": "x"}, {"a": 2}]


def test_bytearrays_are_bytes(path):
    written(path, [{"x": bytearray(b"ab"), "many": [bytearray(b"c"), b"d"], "view": memoryview(b"e")}])
    assert rows_of(path) == [{"many": [b"c", b"d"], "view": b"e", "x": b"ab"}]


def test_structured_arrays_are_columns(path):
    written(path, batch=np.array([(1, 0.5), (2, 1.5)], [("a", "i8"), ("b", "f4")]))
    assert examples(path) == [{"a": [1], "b": [0.5]}, {"a": [2], "b": [1.5]}]


# ---- DataFrames and Arrow ----------------------------------------------------


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "i": [1, 2, 3],
            "f": [0.5, math.nan, -0.0],
            "s": ["a", None, "ö"],
            "d": pd.to_datetime(["2020-01-01", None, "2021-01-01"]),
            "c": pd.Categorical(["u", "v", "u"]),
            "n": pd.array([1, None, 3], "Int32"),
            "l": [[1], [2, 3], []],
            "a": list(np.zeros((3, 2), np.float32)),
            "b": [True, False, True],
        }
    )


def test_a_pandas_frame(path):
    written(path, batch=frame())
    (batch,) = tb.open_records(path).batches(10)
    assert batch["f"].dtype == np.float64
    assert np.isnan(batch["f"][1])
    assert batch["l"].to_list() == [[1], [2, 3], []]
    assert batch["a"].shape == (3, 2)
    rows = rows_of(path)
    assert [row.get("s") for row in rows] == ["a", None, "ö"]
    assert [row.get("n") for row in rows] == [1, None, 3]
    assert [row["c"] for row in rows] == ["u", "v", "u"]
    features = tf.train.Example.FromString(payloads(path)[0]).features.feature
    kinds = [features[name].WhichOneof("kind") for name in ("i", "l", "s")]
    assert kinds == ["int64_list", "int64_list", "bytes_list"]
    # Times are numbers, with their unit in the schema beside the file: they come back in Arrow and Parquet.
    tb.convert(path, path.with_suffix(".parquet"))
    back = pd.read_parquet(path.with_suffix(".parquet"))
    assert back["d"].dt.year.tolist()[::2] == [2020, 2021]
    assert pd.isna(back["d"][1])


@pytest.mark.parametrize("library", [pd, pl, pa])
def test_times_keep_their_unit(path, library):
    days = np.array(["2020-01-01", "2021-01-01"], "M8[ms]")
    made = {pd: pd.DataFrame, pl: pl.DataFrame, pa: pa.table}[library]
    written(path, batch=made({"d": days, "l": [[1], [2]]}))
    assert np.asarray(rows_of(path)[0]["d"]).dtype == np.int64
    tb.convert(path, path.with_suffix(".arrow"))
    assert tb.load(path.with_suffix(".arrow"))["d"].astype("M8[ms]").tolist() == days.tolist()


def test_the_labels_of_a_frame_are_not_dropped_in_silence(path):
    labelled = frame()[["i"]].iloc[[2, 0, 1]]
    with tb.RecordWriter(path) as writer:
        with pytest.raises(UnsupportedError, match=r"x.reset_index\(\) to store them as a column") as caught:
            writer.write_batch(labelled)
        for hint in caught.value.hints:
            code = next(word for word in hint.purpose.split() if word.startswith("x."))
            writer.write_batch(eval(code, {"x": labelled}))
        writer.write_batch(frame()[["i"]][1:])
        with pytest.raises(UsageError, match="two columns named 'i'"):
            writer.write_batch(frame()[["i", "i"]])
        with pytest.raises(UsageError, match="name of a feature must be text"):
            writer.write_batch(pd.DataFrame([[1]]))
    numbered = [{"i": 3, "index": 2}, {"i": 1, "index": 0}, {"i": 2, "index": 1}]
    assert rows_of(path) == [*numbered, {"i": 3}, {"i": 1}, {"i": 2}, {"i": 2}, {"i": 3}]


def test_a_polars_frame(path):
    given = pl.DataFrame({"i": [1, None], "s": ["a", "b"], "l": [[0.5], []], "f": [math.nan, None], "b": [b"x", b""]})
    written(path, batch=given)
    first, second = rows_of(path)
    assert math.isnan(first.pop("f"))
    assert first == {"b": b"x", "i": 1, "l": [0.5], "s": "a"}
    assert second == {"b": b"", "l": [], "s": "b"}


ARROW = pa.table({"i": [1, None, 3], "s": ["a", "b", None], "t": [{"u": 1}, {"u": 2}, None], "l": [["x"], None, []]})


@pytest.mark.parametrize("form", ["table", "record batch", "reader", "dict", "chunked"])
def test_arrow(path, form):
    whole = ARROW.combine_chunks()
    given: Any = {
        "table": ARROW,
        "record batch": whole.to_batches()[0],
        "reader": ARROW.to_reader(),
        "dict": {name: whole[name].chunk(0) for name in whole.column_names},
        "chunked": dict(zip(ARROW.column_names, pa.concat_tables([ARROW[:1], ARROW[1:]]).columns, strict=True)),
    }[form]
    written(path, batch=given)
    found = rows_of(path)
    assert [row.get("i") for row in found] == [1, None, 3]
    assert [row.get("l") for row in found] == [["x"], None, []]
    tb.convert(path, path.with_suffix(".parquet"))
    assert (
        pa.parquet.read_table(path.with_suffix(".parquet")).select(ARROW.column_names).to_pylist() == ARROW.to_pylist()
    )


def test_columns_of_all_kinds_side_by_side(path):
    columns = {
        "numpy": np.arange(2),
        "list": [0.5, None],
        "arrow": pa.chunked_array([["a"], [None]]),
        "pandas": pd.Series([1.5, math.nan]),
        "polars": pl.Series([None, [1]]),
        "nullable": pd.array([True, None], "boolean"),
        "ours": tb.Strings.from_items(["u", "v"], (2,), "utf-8"),
    }
    written(path, batch=columns)
    first, second = rows_of(path)
    assert first == {"arrow": "a", "list": 0.5, "nullable": True, "numpy": 0, "ours": "u", "pandas": 1.5}
    assert math.isnan(second.pop("pandas"))
    assert second == {"numpy": 1, "ours": "v", "polars": [1]}
    with tb.RecordWriter(path) as writer:
        for wrong in ({"a": pa.array([1]), "b": pa.array([1, 2])}, {"a": pa.array([1]), "b": [1, 2]}):
            with pytest.raises(UsageError, match="of one length"):
                writer.write_batch(wrong)
        with pytest.raises(UsageError, match="columns with names"):
            writer.write_batch(pa.array([1, 2]))
        with pytest.raises(UsageError, match="a batch must be"):
            writer.write_batch(pd.Series([1]).array)


def test_batches_of_several_kinds_one_after_another(path):
    with tb.RecordWriter(path) as writer:
        writer.write_batch(pa.table({"i": [1, 2], "s": ["a", "b"]}))
        writer.write_batch(pd.DataFrame({"i": [3], "s": ["c"]}))
        writer.write_batch(pl.DataFrame({"i": [4], "s": ["d"]}))
        writer.write_batch([{"i": 5, "s": "e"}])
        writer.write({"i": 6, "s": "f"})
    assert rows_of(path) == [{"i": i, "s": s} for i, s in enumerate("abcdef", 1)]


def test_empty_lists_of_other_depths_are_refused_when_they_come(tmp_path):
    """Not when the file is closed, and all that waited would be lost."""
    path = tmp_path / "x.tfrecord"
    writer = tb.RecordWriter(path)
    writer.write({"a": [], "b": 1})
    with pytest.raises(SchemaError, match=r"record 1: feature 'a': .*1 dimension.*2"):
        writer.write({"a": [[]], "b": 2})
    with pytest.raises(SchemaError, match="record 2: feature 'a'"):
        writer.write_batch({"a": [[], [[]]], "b": [2, 3]})
    writer.write({"a": [], "b": 4})
    with pytest.warns(SchemaWarning):
        writer.close()
    assert [(int(row["b"]), len(row["a"])) for row in tb.open_records(path)] == [(1, 0), (4, 0)]


def test_steps_of_empty_lists_are_as_deep_as_the_deepest(tmp_path):
    path = tmp_path / "x.tfrecord"
    writer = tb.RecordWriter(path, lists=["steps"])
    for steps in ([], [[]], [], [[], []]):
        writer.write({"steps": steps})
    with pytest.warns(SchemaWarning):
        writer.close()
    assert [[len(step) for step in row["steps"]] for row in tb.open_records(path)] == [[], [0], [], [0, 0]]


def test_a_row_that_is_too_large_leaves_no_empty_list_behind(tmp_path, monkeypatch):
    path = tmp_path / "x.tfrecord"
    monkeypatch.setattr("tensorbytes.formats.tfrecord.write.writer.MAX_BYTES", 1000)
    monkeypatch.setattr("tensorbytes.formats.tfrecord.write.writer._CHUNK_BYTES", 1000)
    with tb.RecordWriter(path) as writer:
        writer.write({"a": b"1"})
        with pytest.raises(LossError, match="2 GiB"):
            writer.write({"a": b"2" * 1001, "empty": []})
        writer.write({"a": b"3"})
    assert list(tb.open_records(path)) == [{"a": b"1"}, {"a": b"3"}]


def test_a_batch_that_tells_what_empty_lists_hold_may_lack_some(tmp_path):
    """It once made the feature required and optional, in turns and for ever."""
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path) as writer:
        writer.write_batch({"a": [[], []], "b": np.arange(2)})
        writer.write_batch({"a": [["x"], None], "b": np.arange(2, 4)})
        writer.write_batch({"b": np.arange(4, 5)})
    rows = [(int(row["b"]), row.get("a")) for row in tb.open_records(path)]
    assert rows == [(0, []), (1, []), (2, ["x"]), (3, None), (4, None)]


def test_integers_beside_floats_are_not_rounded(tmp_path):
    path, large = tmp_path / "x.tfrecord", 2**53 + 1
    with tb.RecordWriter(path) as writer:
        writer.write({"x": 0.5, "y": [0.5, 2**53 + 2]})
        for row in ({"x": large, "y": [0.5, 1]}, {"x": 1, "y": [0.5, large]}):
            with pytest.raises(SchemaError, match=f"{large}, which float64 can't hold exactly"):
                writer.write(row)
        with pytest.raises(SchemaError, match=f"{large}, which float64 can't hold exactly"):
            writer.write_batch({"x": [0.5, large], "y": [[0.5, 1], [1, 2]]})
        writer.write({"x": -(2**60), "y": [1, 2]})
    found = [(row["x"], list(row["y"])) for row in tb.open_records(path)]
    assert found == [(0.5, [0.5, 2**53 + 2]), (-(2**60), [1, 2])]


def test_a_table_is_appended_to_records_of_its_like(tmp_path):
    """Times and masks of elements are noted beside the file: what is appended is held against that."""
    path, back = tmp_path / "x.tfrecord", tmp_path / "x.arrow"
    table = pa.table({"t": pa.array([1, None], pa.timestamp("s", "UTC")), "l": pa.array([[1, None], None])})
    with tb.RecordWriter(path) as writer:
        writer.write_batch(table)
    with tb.RecordWriter(path, mode="a") as writer:
        writer.write_batch(table)
        other = pa.table({"t": pa.array([1], pa.timestamp("ms", "UTC")), "l": pa.array([[1]])})
        with pytest.raises(SchemaError, match="'t' is timestamp"):
            writer.write_batch(other)
    tb.convert(path, back)
    with pa.ipc.open_file(back) as file:
        found = file.read_all()
    assert found.schema.types == table.schema.types
    assert found.to_pylist() == table.to_pylist() * 2
