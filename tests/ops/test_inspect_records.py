"""inspect of records: presence, lengths, what bytes look like; every kind of file recognised by what is in it."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors
from tensorbytes.ops.profile import content_of

JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(50)


def example(features):
    import tensorflow as tf

    made = tf.train.Example()
    for name, values in features.items():
        kind = {bytes: "bytes_list", int: "int64_list", float: "float_list"}[type(values[0]) if values else int]
        getattr(made.features.feature[name], kind).value.extend(values)
    return made.SerializeToString()


def write(path, payloads, compression=""):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path), compression) as w:
        for payload in payloads:
            w.write(payload)


def many_examples(number):
    import tensorflow as tf

    box = tf.io.serialize_tensor(tf.ones((4, 2))).numpy()
    for i in range(number):
        features = {"label": [i], "ids": list(range(i % 5)), "image": [JPEG + bytes(i % 3)], "box": [box]}
        yield example(features | ({"caption": [b"caption %d" % i, b"x"]} if i % 3 == 0 else {}))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("name", ["x.tfrecord", "x.bin", "x"])
def test_features_are_counted_and_measured(tmp_path, name, compression):
    path = tmp_path / name
    write(path, many_examples(1500), compression)
    found = tb.inspect(path)
    assert (found.format, found.sampled) == ("tfrecord", 1000)
    assert found.objects == (None if compression else 1500)
    assert found.size == path.stat().st_size
    about = {t.name: (t.dtype, t.present, t.lengths, t.sizes, t.content, t.optional) for t in found.tensors}
    assert about == {
        "label": ("int64", 1000, (1, 1), None, "", False),
        "ids": ("int64", 1000, (0, 4), None, "", False),
        "image": ("bytes", 1000, (1, 1), (len(JPEG), len(JPEG) + 2), "JPEG", False),
        "box": ("bytes", 1000, (1, 1), (46, 46), "tensorproto float32[4, 2]", False),
        "caption": ("bytes", 334, (2, 2), (1, 11), "text", True),
    }
    text = str(found)
    assert "looked at the first 1000 records" in text
    assert "caption  bytes optional  [2]  in 334, at least 666 null  2 values" in text
    json.dumps(found.to_dict())
    whole = tb.inspect(path, scan="all")
    assert (whole.objects, whole.sampled) == (1500, None)
    assert {t.name: t.present for t in whole.tensors}["caption"] == 500
    assert tb.inspect(path, scan=10).sampled == 10
    assert tb.inspect(path, scan=2000).sampled is None


def test_few_bytes_are_looked_at_by_default(tmp_path):
    with tb.RecordWriter(tmp_path / "x", schema={"b": "bytes"}, sync=False) as w:
        for _ in range(30):
            w.write({"b": bytes(1 << 20)})
    found = tb.inspect(tmp_path / "x")
    assert 15 <= found.sampled <= 17  # in 16 MB, by the block
    assert found.objects == 30
    assert tb.inspect(tmp_path / "x", scan=20).sampled == 20


def test_the_schema_beside_a_file_says_what_features_are(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as w:
        w.write_batch({"image": np.zeros((10, 28, 28), np.uint8), "words": ["word"] * 10})
    found = {t.name: t for t in tb.inspect(tmp_path / "x.tfrecord").tensors}
    assert (found["image"].dtype, found["image"].shape, found["image"].present) == ("uint8", (28, 28), 10)
    assert found["image"].content == "tensorproto uint8[28, 28]"
    assert (found["words"].dtype, found["words"].sizes) == ("text", (4, 4))


def test_feature_lists(tmp_path):
    schema = tb.records.Schema({"id": tb.records.Feature("int64")}, {"tokens": tb.records.Feature("int64", [None])})
    with tb.RecordWriter(tmp_path / "x.tfrecord", schema=schema) as w:
        w.write({"id": 1, "tokens": [[5, 6], [7], []]})
        w.write({"id": 2, "tokens": [[8]]})
    for _ in range(2):  # with the schema beside it, and without
        found = tb.inspect(tmp_path / "x.tfrecord")
        (tokens,) = (t for t in found.tensors if t.name == "tokens")
        assert (tokens.kind, tokens.present, tokens.steps, tokens.lengths) == ("feature list", 2, (1, 3), (0, 2))
        assert "1..3 steps of 0..2 values" in str(found)
        (tmp_path / "x.tfrecord.schema.json").unlink(missing_ok=True)


def test_shards_globs_lists_urls_and_file_objects(tmp_path):
    import fsspec

    with tb.RecordWriter(tmp_path / "x", shards=3) as w:
        w.write({"a": 1})  # two of them are empty
        w.write({"a": 2})
    paths = [str(tmp_path / f"x-0000{i}-of-00003") for i in range(3)]
    data = b"".join(Path(path).read_bytes() for path in paths)
    with fsspec.open("memory://profile/x.bin", "wb") as file:
        file.write(data)
    targets = (f"{tmp_path}/x@3", f"{tmp_path}/x-*", paths[::-1], "memory://profile/x.bin", io.BytesIO(data))
    for target in targets:
        found = tb.inspect(target)
        assert (found.format, found.objects, found.tensors[0].present) == ("tfrecord", 2, 2), target
        assert found.size == len(data)
    np.save(tmp_path / "a.npy", np.ones(3))
    np.save(tmp_path / "b.npy", np.ones(3))
    with pytest.raises(errors.UsageError, match="stands for 2 files"):
        tb.inspect(f"{tmp_path}/*.npy")


def test_damage_is_told_with_what_came_before(tmp_path):
    write(tmp_path / "x", many_examples(300))
    data = bytearray((tmp_path / "x").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x").write_bytes(data)
    found = tb.inspect(tmp_path / "x")
    assert 100 < found.sampled < 200
    assert "checksum disagree" in found.details["damage"]
    (tmp_path / "x").write_bytes(data[:-5])
    assert tb.inspect(tmp_path / "x").objects is None
    data[20] ^= 1
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(errors.CorruptError, match="record 0"):
        tb.inspect(tmp_path / "x")


def test_records_that_contradict_each_other(tmp_path):
    write(tmp_path / "x", [example({"a": [1]})] * 3 + [example({"a": [1.5]})])
    found = tb.inspect(tmp_path / "x")
    assert (found.sampled, found.objects, found.tensors[0].dtype) == (3, 4, "int64")
    assert "record 3: feature 'a' is a list of float32" in found.details["mixed"]


def test_records_of_something_else(tmp_path):
    write(tmp_path / "x.tfrecord", [b"hello world", b"\x0ahello", b'{"a": 1}'])
    found = tb.inspect(tmp_path / "x.tfrecord")
    (record,) = found.tensors
    assert (found.objects, record.kind, record.sizes, record.content) == (3, "record", (6, 11), "text, JSON")
    assert "payloads()" in str(found)
    assert found.details["holds"].startswith("records of bytes, not Examples")


def test_event_files(tmp_path):
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(tmp_path / "run"))
    with writer.as_default():
        for step in (3, 4, 9):
            tf.summary.scalar("loss", 0.5, step)
            tf.summary.image("picture", np.zeros((1, 4, 6, 3), np.float32), step)
        tf.summary.text("note", "hello", 5)
    writer.close()
    (file,) = (tmp_path / "run").iterdir()
    shutil.copy(file, tmp_path / "x.bin")
    for path in (tmp_path / "run", file, tmp_path / "x.bin"):
        found = tb.inspect(path)
        assert (found.format, found.sampled, found.size) == ("events", None, file.stat().st_size)
        assert {t.name: (t.kind, t.dtype, t.shape, t.present, t.steps) for t in found.tensors} == {
            "loss": ("scalar", "float32", (), 3, (3, 9)),
            "picture": ("image", "", (4, 6), 3, (3, 9)),
            "note": ("text", "text", (), 1, (5, 5)),
        }
        assert "steps 3..9" in str(found)
        json.dumps(found.to_dict())
    assert tb.inspect(file, scan=3).sampled == 3
    with pytest.raises(errors.UsageError, match="read_events"):
        tb.diff(file, file)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (JPEG, "JPEG"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG"),
        (b"RIFF\0\0\0\0WAVEfmt ", "WAV"),
        ("Köln".encode(), "text"),
        (b'{"a": [1, 2]}', "JSON"),
        (b"{not json}", "text"),
        (("ü" * 3000).encode(), "text"),  # cut inside a character
        (b"\0\1\2\3", "bytes"),
        (b"tab\tand\nline", "text"),
        (b"bell\x07", "bytes"),
        (tb.dumps(np.ones((2, 3), np.float16), "tensorproto"), "tensorproto float16[2, 3]"),
        (tb.dumps(np.ones(3), "npy"), "npy"),
    ],
)
def test_what_bytes_look_like(value, kind):
    assert content_of(value) == kind


@pytest.mark.parametrize("scan", [0, -1, 1.5, "some", True])
def test_scan_is_a_number_or_all(tmp_path, scan):
    write(tmp_path / "x", [example({"a": [1]})])
    with pytest.raises(errors.UsageError, match="scan="):
        tb.inspect(tmp_path / "x", scan=scan)


# ---- by content rather than by name --------------------------------------------------


@pytest.mark.parametrize(
    "format",
    [
        "tb",
        "safetensors",
        "npy",
        "torchfile",
        "npz",
        "arrow",
        "arrowtensor",
        "parquet",
        "onnx",
        "sparseproto",
        "tensorproto",
        "delimited",
    ],
)
@pytest.mark.parametrize("name", ["x.bin", "x", "x.tfrecord", "x.dat"])
def test_a_file_is_what_is_in_it(tmp_path, format, name):
    import scipy.sparse

    single = format in ("npy", "arrowtensor", "onnx", "tensorproto")
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    content = scipy.sparse.coo_matrix(value) if format == "sparseproto" else value if single else {"w": value}
    tb.save(content, tmp_path / name, format)
    found = tb.inspect(tmp_path / name)
    assert (found.format, found.tensors[0].shape) == (format, (4, 3))


def test_compressed_tensors_are_named(tmp_path):
    (tmp_path / "x.tb.gz").write_bytes(gzip.compress(tb.dumps(np.ones(3))))
    with pytest.raises(errors.UsageError, match="native frame, gzip-compressed; decompress it first"):
        tb.inspect(tmp_path / "x.tb.gz")
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"hello" * 20))
    with pytest.raises(errors.UsageError, match="gzip-compressed"):
        tb.inspect(tmp_path / "y.gz")


def test_an_empty_file_of_records(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(b"")
    found = tb.inspect(tmp_path / "x.tfrecord")
    assert (found.format, found.objects, found.tensors) == ("tfrecord", 0, [])


def test_a_checkpoint_s_files_are_counted_together(tmp_path):
    tb.save({"a": np.ones(100), "b": np.ones(100)}, tmp_path / "m.safetensors", max_shard_bytes=800)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    for name in ("m.safetensors", "m.safetensors.index.json"):
        assert tb.inspect(tmp_path / name).size == total


def test_looking_into_a_file_loads_little(tmp_path):
    tb.save({"w": np.ones(3)}, tmp_path / "x.tb")
    code = (
        f"import sys, tensorbytes as tb; tb.inspect({str(tmp_path / 'x.tb')!r})\n"
        "print(sorted(name for name in sys.modules if name.startswith(('tensorbytes.formats.tfrecord.read', "
        "'tensorbytes.formats.tfrecord.write', 'tensorbytes.quantization', 'tensorbytes.ops.bench', "
        "'tensorbytes.ops.conv', "
        "'isal', 'concurrent', 'ml_dtypes', 'torch', 'tensorflow', 'pyarrow'))))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSTARTUP"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout == "[]\n"
