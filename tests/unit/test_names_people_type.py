"""Names, dtypes and metadata as people type them; wrong names of parameters; honest hints."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import io
import math
import pathlib
import pickle
import types
import uuid
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
import torch
from PIL import Image

import tensorbytes as tb
from tensorbytes import formats, frameworks
from tensorbytes.errors import LossError, TensorbytesError, UnsupportedError, UsageError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# ---- frameworks --------------------------------------------------------------

NAMES = {
    "np": np.ndarray,
    "numpy": np.ndarray,
    "pt": torch.Tensor,
    "pytorch": torch.Tensor,
    "tf": tf.Tensor,
    "jnp": jax.Array,
    "jax.numpy": jax.Array,
}


@pytest.mark.parametrize("to", [*NAMES, np, torch, tf, jax, jax.numpy], ids=str)
def test_frameworks_by_other_names(to, tmp_path):
    name = to if isinstance(to, str) else to.__name__
    wanted = NAMES.get(name) or NAMES[{"torch": "pt", "tensorflow": "tf", "jax": "jnp"}[name]]
    data, path, records = tb.dumps(X), tmp_path / "x.tb", tmp_path / "x.tfrecord"
    tb.save({"x": X}, path)
    tb.save({"x": X}, records)
    found = [tb.loads(data, to=to), tb.load(path, to=to)["x"], tb.load(path, to=to, names=["x"])["x"]]
    with tb.open(path, to=to) as file:
        found.append(file["x"].load())
    found += [row["x"] for row in tb.open_records(records, to=to)][:1]
    found.append(next(tb.open_records(records).batches(2, to=to))["x"])
    assert all(isinstance(x, wanted) for x in found)
    assert all(np.array_equal(x, X) for x in [*found[:4], found[5]])


def test_unknown_frameworks_are_refused_where_they_are_named(tmp_path):
    tb.save({"x": X}, tmp_path / "x.tb")
    for call in (tb.load, tb.open, tb.open_records):
        with pytest.raises(UsageError, match="did you mean 'torch'"):
            call(tmp_path / "x.tb", to="torhc")
    with pytest.raises(UsageError, match="expected the name of a framework"):
        tb.loads(tb.dumps(X), to=3)


# ---- JAX without 64 bits -----------------------------------------------------


@pytest.fixture
def numbers(tmp_path):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path) as writer:
        writer.write_batch({"i": np.array([1, -(2**31)]), "f": [0.1, math.inf], "s": ["a", "b"]})
    return path


def test_integers_in_jax(numbers):
    assert not jax.config.jax_enable_x64
    for give in (lambda **o: list(tb.open_records(numbers, columns=["i"], **o)), lambda **o: tb.load(numbers, **o)):
        with pytest.raises(LossError, match=r"(?s)int64 into int32.*tensor 'i'.*pass to='jax32'|float64.*'f'.*jax32"):
            give(to="jax")
    rows = list(tb.open_records(numbers, to="jax32"))
    assert [int(row["i"]) for row in rows] == [1, -(2**31)]
    assert {row["i"].dtype for row in rows} == {np.dtype("int32")}
    (batch,) = tb.open_records(numbers).batches(2, to="jax32")
    assert isinstance(batch["f"], jax.Array)
    assert batch["f"].tolist() == np.float32([0.1, math.inf]).tolist()
    loaded = tb.load(numbers, to="jax32")
    assert loaded["i"].tolist() == [1, -(2**31)]


@pytest.mark.parametrize(
    ("value", "narrow"),
    [
        (np.array([2**31 - 1]), "int32"),
        (np.array([2**32 - 1], np.uint64), "uint32"),
        (np.array([1e30, np.nan]), "float32"),
        (np.array([1 + 2j]), "complex64"),
        (np.array([1], np.int16), "int16"),
        (np.array([]), "float32"),
        (np.array(7), "int32"),
    ],
    ids=str,
)
def test_numbers_that_fit(value, narrow):
    made = tb.loads(tb.dumps(value), to="jax32")
    assert made.dtype == narrow
    assert np.array_equal(np.asarray(made), value.astype(narrow), equal_nan=True)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, np.uint64(2**32), 1e39, -1e300], ids=str)
def test_a_number_that_does_not_fit_is_named(value):
    data = tb.dumps({"fits": np.array([1]), "w": np.array([value])})
    with pytest.raises(LossError, match=r"can't hold .*tensor 'w'.*jax_enable_x64") as caught:
        tb.loads(data, to="jax32")
    assert str(np.array([value])[0]) in caught.value.what
    with pytest.raises(LossError, match="tensor 'w'"):
        tb.loads(data, to="jax32")


def test_with_x64_nothing_is_narrowed(numbers):
    with jax.enable_x64(True):
        assert [row["i"].dtype for row in tb.open_records(numbers, to="jax")] == [np.dtype("int64")] * 2
        assert tb.load(numbers, to="jax")["f"].dtype == np.float64
        assert tb.load(numbers, to="jax32")["f"].dtype == np.float32


# ---- formats -----------------------------------------------------------------

FORMATS = {"pt": "torchfile", ".PT": "torchfile", "pth": "torchfile", "torch": "torchfile", "pytorch": "torchfile",
           "np": "npy", "numpy": "npy", "pb": "onnx", "pq": "parquet", "feather": "arrow", "tensorbytes": "tb",
           "safetensors": "safetensors"}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_formats_by_other_names(name, tmp_path):
    wanted = FORMATS[name]
    assert formats.resolve(name) == wanted
    assert formats.get(name) is formats.get(wanted)
    obj = X if formats.get(wanted).holds_one else {"x": X}
    data = tb.dumps(obj, name)
    assert data == tb.dumps(obj, wanted) == b"".join(map(bytes, tb.buffers(obj, name)))
    assert tb.equal(tb.loads(data, name), obj)
    path = tmp_path / "x.bin"
    tb.save(obj, path, name)
    assert tb.equal(tb.load(path, name), obj)
    with tb.open(path, "r", name) as file:
        assert file.format == wanted
    assert tb.inspect(path, name).format == wanted
    assert tb.verify(path, name).ok
    report = tb.convert(path, tmp_path / "y.bin", name, src_format=name)
    assert (report.source_format, report.target_format) == (wanted, wanted)
    assert tb.equal(tb.load(tmp_path / "y.bin", name), obj)


def test_a_format_that_is_no_name(tmp_path):
    tb.save(X, tmp_path / "x.tb")
    calls = [
        lambda: tb.dumps(X, ["pt"]),
        lambda: tb.save(X, tmp_path / "y", ["pt"]),
        lambda: tb.loads(tb.dumps(X), ["pt"]),
        lambda: tb.load(tmp_path / "x.tb", ["pt"]),
        lambda: tb.load(tmp_path / "x.tb", ["pt"], objects="skip"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"format=\['pt'\]: expected the name of a format"):
            call()


def test_no_alias_stands_for_two_formats():
    names: list[str] = []
    for name in formats.BUILTIN:
        chosen = formats.get(name)
        names += [name, *chosen.aliases, *(suffix.lstrip(".") for suffix in set(chosen.suffixes) - {f".{name}"})]
    assert len(set(names)) == len(names) - names.count("tfrecords") + 1
    with pytest.raises(UsageError, match="unknown format 'nope'"):
        tb.dumps(X, "nope")


# ---- wrong names of parameters -------------------------------------------------

CALLS: dict[str, tuple[Any, str]] = {
    "map_location": (lambda p: tb.load(p, map_location="cpu"), "load has no parameter 'map_location'; pass device="),
    "map_location, bytes": (lambda p: tb.loads(p.read_bytes(), map_location="cpu"), "loads .* pass device="),
    "map_location, open": (lambda p: tb.open(p, map_location="cpu"), "open .* pass device="),
    "mmap_mode": (lambda p: tb.load(p, mmap_mode="r"), "pass mmap=True"),
    "weights_only": (lambda p: tb.load(p, weights_only=True), "nothing is ever unpickled"),
    "framework": (lambda p: tb.open(p, framework="pt"), "pass to="),
    "tensors": (lambda p: tb.load(p, tensors=["x"]), "pass names="),
    "metadata": (lambda p: tb.save({"x": X}, p, "safetensors", metadata={"a": "b"}), "save .*; pass meta="),
    "metadata, dumps": (lambda p: tb.dumps(X, metadata={"a": "b"}), "dumps .*; pass meta="),
    "compress": (lambda p: tb.dumps(X, compress="zstd"), "pass compression="),
    "filename": (lambda p: tb.save(X, p, filename="x"), "pass it first"),
    "convert to": (lambda p: tb.convert(p, p.with_name("y"), to="npz"), "pass format="),
    "convert dtype": (lambda p: tb.convert(p, p.with_name("y.tb"), dtype="bf16"), "pass cast="),
    "records": (lambda p: tb.open_records(p, compression_type="GZIP"), "open_records .* pass compression="),
    "batch_size": (lambda p: tb.open_records(p, batch_size=3), r"call .batches\(size\)"),
    "writer": (lambda p: tb.RecordWriter(p, num_shards=3), "RecordWriter has no parameter 'num_shards'; pass shards="),
    "a slip": (lambda p: tb.RecordWriter(p, compresion="gzip"), "did you mean 'compression'"),
    "no such thing": (lambda p: tb.open_records(p, zzzzz=1), "open_records has no parameter 'zzzzz'$"),
}


@pytest.mark.parametrize("case", CALLS)
def test_the_right_name_is_in_the_error(case, tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"x": X}, path)
    call, words = CALLS[case]
    with pytest.raises(UsageError, match=words):
        call(path)
    assert tb.equal(tb.load(path), {"x": X})


def test_a_hint_names_only_what_the_call_has():
    with pytest.raises(UsageError) as caught:
        tb.loads(tb.dumps(X), mmap_mode="r")  # which maps nothing
    assert "mmap=" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        tb.dumps(X, "npy", compress="zstd")  # which has no compression
    assert "pass compression" not in str(caught.value)


# ---- metadata ----------------------------------------------------------------

META = {
    "step": 3,
    "lr": 1e-3,
    "best": True,
    "seed": None,
    "text": "3",
    "big": -(10**30),
    "inf": -math.inf,
    "zero": -0.0,
}


@pytest.mark.parametrize("name", [name for name in formats.BUILTIN if formats.get(name).complete or name == "npy"])
@pytest.mark.parametrize("whole", [False, True])
def test_numbers_as_metadata_come_back(name, whole, tmp_path):
    if whole and formats.get(name).holds_one:
        pytest.skip("one tensor")
    path = tmp_path / f"x{formats.get(name).suffixes[0]}"
    tb.save({"w": X} if whole else X, path, name, meta=META)
    with tb.open(path, format=name) as file:
        found = dict(file.meta)
    assert found == META
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in META.items()}
    assert math.copysign(1, found["zero"]) == -1
    tb.convert(path, tmp_path / "y.tb", src_format=name)
    with tb.open(tmp_path / "y.tb") as file:
        assert dict(file.meta) == META


def test_other_software_sees_text(tmp_path):
    from safetensors import safe_open

    tb.save({"w": X}, tmp_path / "x.safetensors", meta={"step": 3, "best": True, "seed": None})
    with safe_open(tmp_path / "x.safetensors", "np") as file:
        told = file.metadata()
    assert {key: told[key] for key in ("step", "best", "seed")} == {"step": "3", "best": "True", "seed": "None"}


def test_values_carry_them_and_files_of_text_stay_as_they_were(tmp_path):
    value = tb.loads(tb.dumps(X, meta={"step": 3}), to="tensor")
    assert value.meta == {"step": 3}
    again = tb.loads(tb.dumps({"w": value, "v": X}), to="tensor")
    assert again["w"].meta == {"step": 3}
    assert tb.loads(tb.dumps(value, meta={"more": 1.5}), to="tensor").meta == {"step": 3, "more": 1.5}
    assert tb.loads(tb.dumps(value, meta={"step": "text"}), to="tensor").meta == {"step": "text"}
    assert pickle.loads(pickle.dumps(value)).meta == {"step": 3}
    tb.save({"w": X}, tmp_path / "x.tb", meta={"n": np.int32(5), "f": np.float32(0.5), "b": np.bool_(True)})
    with tb.open(tmp_path / "x.tb") as file:
        assert dict(file.meta) == {"n": 5, "f": 0.5, "b": True}
        tb.save({"w": X}, tmp_path / "y.tb", meta=file.meta, origin=file.origin)
        tb.save({"w": X}, tmp_path / "z.tb", meta={"n": "5"}, origin=file.origin)
    with tb.open(tmp_path / "y.tb") as file:
        assert dict(file.meta) == {"n": 5, "f": 0.5, "b": True}
    with tb.open(tmp_path / "z.tb") as file:
        assert dict(file.meta) == {"n": "5"}
    plain = tb.dumps({"w": X}, meta={"a": "1"})
    assert b"meta.types" not in plain


@pytest.mark.parametrize("note", ["", "[", "[1]", '{"n": 3}', '{"n": "int"}', '{"n": ["int"]}', "[" * 10**5, "null"])
def test_a_note_that_lies_is_passed_over(note):
    value = tb.Tensor("bool", (0,), b"", meta={"n": "five"}, origin={"meta.types": note})
    data = formats.get("tb").dumps(tb.formats.Document([tb.formats.Leaf(value)]), frozenset(), {})
    assert tb.loads(data, to="tensor").meta == {"n": "five"}


@pytest.mark.parametrize("wrong", [[1], {"a": 1}, object(), X, b"bytes", 1j, 10**5000], ids=lambda x: type(x).__name__)
def test_other_metadata_is_refused(wrong):
    with pytest.raises(UnsupportedError, match="metadata must be text, a number, a bool or None") as caught:
        tb.dumps(X, meta={"k": wrong})
    assert len(str(caught.value)) < 300
    with pytest.raises(UnsupportedError, match="metadata keys must be str"):
        tb.dumps(X, meta={1: "a"})


def test_a_number_differs_from_its_text(tmp_path):
    tb.save({"w": X}, tmp_path / "x.tb", meta={"n": 3, "same": 4})
    tb.save({"w": X}, tmp_path / "y.tb", meta={"n": "3", "same": 4})
    found = tb.diff(tmp_path / "x.tb", tmp_path / "y.tb")
    assert found.meta == {"n": (3, "3")}
    assert "metadata n: 3 | '3'" in str(found)


class Kind(str, enum.Enum):  # noqa: UP042 - str() of it is not its text, as of enum.StrEnum
    FAST = "fast"


def test_text_of_another_class_is_its_text():
    assert tb.loads(tb.dumps(X, meta={"k": Kind.FAST, "n": np.str_("x")}), to="tensor").meta == {"k": "fast", "n": "x"}


def test_metadata_of_the_whole_stays_typed_as_that_of_its_only_tensor(tmp_path):
    tb.save({"w": X}, tmp_path / "x.tb", meta=META)
    tb.convert(tmp_path / "x.tb", tmp_path / "x.npy")
    with tb.open(tmp_path / "x.npy") as file:
        assert dict(file.meta) == META
    value = tb.loads(tb.dumps(X, meta={"own": 1.5, "step": "text"}), to="tensor")
    tb.save({"w": value}, tmp_path / "y.tb", meta={"step": "text", "all": 3})
    tb.convert(tmp_path / "y.tb", tmp_path / "y.npy")
    with tb.open(tmp_path / "y.npy") as file:
        assert dict(file.meta) == {"own": 1.5, "step": "text", "all": 3}


def test_formats_without_metadata_name_the_user_s_key():
    with pytest.raises(LossError, match="metadata step='3'"):
        tb.dumps(X, "tensorproto", meta={"step": 3})


# ---- bytearray ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in formats.BUILTIN if formats.get(name).complete and not formats.get(name).holds_one]
)
def test_bytearrays_come_back_as_bytearrays(name, tmp_path):
    obj = {"a": bytearray(b"ab\0"), "b": b"ab", "c": [bytearray(b""), bytearray(b"x")], "d": (bytearray(b"y"),), "e": X}
    path = tmp_path / f"x{formats.get(name).suffixes[0]}"
    tb.save(obj, path, name)
    found = tb.load(path, name)
    assert {key: found[key] for key in "abcd"} == {key: obj[key] for key in "abcd"}
    assert type(found["a"]) is type(found["c"][0]) is type(found["d"][0]) is bytearray
    assert type(found["b"]) is bytes
    found["a"][0] = 7  # memory of its own
    assert obj["a"] == b"ab\0"


def test_a_bytearray_in_a_torch_file_is_bytes_to_torch(tmp_path):
    tb.save({"a": bytearray(b"ab"), "w": torch.ones(2)}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True)["a"] == b"ab"


# ---- hints -------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1


class Number(int):
    pass


def objects() -> dict[str, Any]:
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    frame = pd.DataFrame({"a": [1, 2], "s": ["x", "y"]})
    return {
        "torch.Size": torch.Size([2, 3]),
        "torch.dtype": torch.float32,
        "torch.device": torch.device("cpu"),
        "torch.Generator": torch.Generator(),
        "module": module,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3),
        "tf.DType": tf.float32,
        "tf.TensorShape": tf.TensorShape([2, None]),
        "tf.data": tf.data.Dataset.range(3),
        "pandas": frame,
        "pandas series": frame["a"],
        "polars": pl.DataFrame({"a": [1, 2]}),
        "polars series": pl.Series([1.5]),
        "arrow": pa.table({"a": [1, None], "s": ["x", "y"]}),
        "record batch": pa.record_batch({"a": [1, None]}),
        "chunked": pa.chunked_array([[1, 2]]),
        "arrow text": pa.array(["a", None]),
        "numpy dtype": np.dtype("f4"),
        "a class": np.float32,
        "rng": np.random.default_rng(0),
        "PIL": Image.new("RGB", (2, 2)),
        "datetime": datetime.datetime(2020, 1, 2, 3),
        "date": datetime.date(2020, 1, 2),
        "time": datetime.time(3),
        "timedelta": datetime.timedelta(1),
        "timestamp": pd.Timestamp("2020-01-01"),
        "decimal": decimal.Decimal("1.5"),
        "uuid": uuid.uuid4(),
        "set": {1, 2},
        "frozenset": frozenset("a"),
        "range": range(1, 5, 2),
        "keys": {"a": 1}.keys(),
        "items": {"a": 1}.items(),
        "deque": collections.deque([1]),
        "namespace": types.SimpleNamespace(a=1),
        "arguments": argparse.Namespace(lr=0.5),
        "enum": Color.RED,
        "path": pathlib.Path(__file__),
        "file": io.BytesIO(b"abc"),
        "generator": (i for i in range(3)),
        "a subclass": Number(5),
        "keys of dicts": {(1, 2): 3},
    }


@pytest.mark.parametrize("name", objects())
def test_the_first_hint_runs(name):
    """What it gives can be stored, alone and in a dict."""
    x = objects()[name]
    with pytest.raises(UnsupportedError) as caught:
        tb.dumps(x)
    first, *others = caught.value.hints
    assert first.purpose.startswith("pass ")
    code = first.purpose.removeprefix("pass ")
    made = eval(code, {"x": x, "np": np})
    tb.loads(tb.dumps(made))
    with pytest.raises(UnsupportedError) as nested:
        tb.dumps({"deep": {"er": objects()[name]}})
    assert nested.value.hints == caught.value.hints
    for hint in others:
        if hint.purpose[:2] in ("x.", "np") or hint.purpose.startswith(("str(", "float(", "tuple(")):
            x = objects()[name]
            tb.dumps(eval(hint.purpose.partition(" for ")[0], {"x": x, "np": np}))


def test_the_advice_for_rows_runs(tmp_path):
    for number, name in enumerate(("pandas", "polars", "arrow", "record batch")):
        with pytest.raises(UnsupportedError, match=r"or RecordWriter\(path\).write_batch\(x\) for rows"):
            tb.dumps(objects()[name])
        with tb.RecordWriter(tmp_path / f"{number}.tfrecord") as writer:
            writer.write_batch(objects()[name])
        assert len(tb.open_records(tmp_path / f"{number}.tfrecord")) == 2


def test_a_class_whose_attributes_raise_is_refused_all_the_same():
    class Odd:
        @property
        def state_dict(self) -> None:
            raise RuntimeError

    with pytest.raises(UnsupportedError, match="neither a tensor nor a plain Python value"):
        tb.dumps(Odd())


# ---- errors ------------------------------------------------------------------


def test_errors_are_what_callers_catch(tmp_path):
    assert tb.errors.TensorbytesError is TensorbytesError
    tb.save({"x": X}, tmp_path / "x.tb")
    for kind in (KeyError, TensorbytesError):
        with pytest.raises(kind, match="there is no tensor 'y'"):
            tb.load(tmp_path / "x.tb", names=["y"])
    for kind in (ValueError, TypeError, TensorbytesError):
        with pytest.raises(kind, match=r"torch\.dtype is a dtype"):
            tb.dumps(torch.float32)
    assert frameworks.resolve("tf") == "tensorflow"
