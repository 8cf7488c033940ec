"""TensorFlow's first format of checkpoints, beside TensorFlow, which still writes and reads it."""

import os

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors
from tensorbytes._wire import varint
from tensorbytes.formats._checkpoint import bundle, sstable
from tests.support import REAL_FILES
from tests.support.wire_bytes import field, number

tf = pytest.importorskip("tensorflow")

TENSORS = {
    "float32": np.float32([[1.5, -2], [0, np.inf]]),
    "float64": np.float64([1, np.nan]),
    "int32": np.int32([-1, 2]),
    "int64": np.int64([-1, 1 << 40]),
    "int16": np.int16([-1, 2]),
    "int8": np.int8([-128, 2]),
    "uint8": np.uint8([1, 255]),
    "bool": np.array([True, False]),
    "string": np.array([b"a", b"", b"\xff\0"], object),
    "scalar": np.float32(7),
    "empty": np.zeros((0, 3), np.float32),
    "large": np.arange(100_000, dtype=np.float32).reshape(100, 1000),
}


def saved(path, tensors, slices=None):
    names = list(tensors)
    specs = [(slices or {}).get(name, "") for name in names]
    data = [tf.constant(tensors[name]) for name in names]
    tf.raw_ops.SaveSlices(filename=str(path), tensor_names=[name.partition("#")[0] for name in names],
                          shapes_and_slices=specs, data=data)  # fmt: skip
    return path


def test_every_dtype_is_read_as_tensorflow_reads_it(tmp_path):
    path = saved(tmp_path / "model.ckpt-1", TENSORS)
    reader = tf.compat.v1.train.NewCheckpointReader(str(path))
    for got in (tb.load(path), tb.load(path, mmap=True), tb.loads(path.read_bytes()), tb.load(path, "checkpoint")):
        assert got.keys() == reader.get_variable_to_shape_map().keys()
        for name in TENSORS:
            want = reader.get_tensor(name)
            assert np.asarray(got[name]).tobytes() == np.asarray(want).tobytes() if name != "string" else True
            assert got[name].shape == np.shape(want)
            assert got[name].tolist() == np.asarray(want).tolist() or name == "float64"
    assert tb.inspect(path).format == "checkpoint"
    assert tb.verify(path).ok
    assert tb.load(path, names=["int8"])["int8"].tolist() == [-128, 2]


@pytest.mark.skipif(not REAL_FILES.exists(), reason="real files are not here")
def test_a_real_one():
    assert tb.load(REAL_FILES / "v1_checkpoint" / "export-00000-of-00001") == {"a": 0.5, "b": 2.0}


@pytest.mark.skipif(not REAL_FILES.exists(), reason="real files are not here")
def test_a_real_one_equals_what_tensorflow_reads():
    path = REAL_FILES / "v1_checkpoint" / "export-00000-of-00001"
    reader = tf.compat.v1.train.NewCheckpointReader(str(path))
    got = tb.load(path)
    for name in reader.get_variable_to_shape_map():
        assert got[name] == reader.get_tensor(name)


def test_a_folder_whose_latest_is_one(tmp_path):
    saved(tmp_path / "model.ckpt", {"v": np.float32([1, 2])})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    for path in (tmp_path, tmp_path / "model.ckpt"):
        assert tb.load(path)["v"].tolist() == [1, 2]
    tb.convert(tmp_path / "model.ckpt", tmp_path / "new.safetensors", verify=True)


def test_a_partitioned_variable_is_one_tensor(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    parts = {"p#0": x[:4], "p#1": x[4:]}
    path = saved(tmp_path / "m", parts, {"p#0": "6 2 0,4:-", "p#1": "6 2 4,2:-"})
    for options in ({}, {"mmap": True}):
        assert tb.load(path, **options)["p"].tolist() == x.tolist()


def test_a_slice_alone_is_listed_and_refused(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    path = saved(tmp_path / "m-00000-of-00002", {"p": x[:4], "whole": x}, {"p": "6 2 0,4:-"})
    assert [(each.name, each.shape) for each in tb.inspect(path).tensors] == [("p", (6, 2)), ("whole", (6, 2))]
    with pytest.raises(errors.UnsupportedError, match=r"'p' is partitioned.*other files"):
        tb.load(path)
    assert tb.load(path, names=["whole"])["whole"].tolist() == x.tolist()


def test_every_damaged_byte_is_noticed(tmp_path):
    path = saved(tmp_path / "m", {"a": np.float32([1, 2]), "s": np.array([b"xy"], object)})
    raw = path.read_bytes()
    sound = tb.loads(raw)
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << at % 8
        try:
            got = tb.loads(bytes(damaged), "checkpoint")
        except errors.TensorbytesError:
            continue
        assert tb.equal(got, sound), at
    for size in range(len(raw)):
        with pytest.raises(errors.TensorbytesError):
            tb.loads(raw[:size], "checkpoint")


# ---- hostile ----------------------------------------------------------------


def table(tensors, values, **more):
    """A table of our own: each tensor is (name, shape, dtype number, slices)."""
    described = b"".join(
        field(1, field(1, name) + field(2, b"".join(field(2, number(1, n)) for n in shape)) + number(3, code)
              + b"".join(field(4, extents) for extents in slices))
        for name, shape, code, slices in tensors
    )  # fmt: skip
    rows = [(b"", field(1, described + more.get("versions", b"")))]
    rows += [(key, field(2, field(1, name) + field(3, content))) for key, name, content in values]
    return sstable.build(sorted(rows))


WHOLE = field(1, b"")
KEY = bundle.slice_key(b"a", ((0, -1),))
ONES = field(5, np.ones(2, "<f4").tobytes())
HOSTILE = {
    "sound": (table([("a", (2,), 1, [WHOLE])], [(KEY, "a", ONES)]), None),
    "a claim without values": (table([("a", (1 << 40,), 1, [WHOLE])], [(KEY, "a", ONES)]), "2 values for a shape"),
    "no values repeat": (table([("a", (3,), 1, [WHOLE])], [(KEY, "a", ONES)]), "2 values for a shape"),
    "a shape beyond 64 bits": (table([("a", (1 << 62, 9), 1, [WHOLE + WHOLE])], []), "64 bits"),
    "a negative size": (table([("a", (-1 & (1 << 64) - 1,), 1, [WHOLE])], []), "dimension"),
    "described twice": (table([("a", (2,), 1, [WHOLE])] * 2, [(KEY, "a", ONES)]), "twice"),
    "not stored": (table([("a", (2,), 1, [WHOLE])], []), "missing"),
    "without slices": (table([("a", (2,), 1, [])], []), "missing"),
    "not described": (table([], [(KEY, "a", ONES)]), "not described"),
    "under another name": (table([("a", (2,), 1, [WHOLE])], [(KEY, "b", ONES)]), "those of 'b'"),
    "an unknown dtype": (table([("a", (2,), 99, [WHOLE])], [(KEY, "a", ONES)]), "unknown dtype 99"),
    "another field of values": (table([("a", (2,), 9, [WHOLE])], [(KEY, "a", ONES)]), "field"),
    "strings for numbers": (table([("a", (1,), 1, [WHOLE])], [(KEY, "a", field(8, b"x"))]), "string values"),
    "a dtype of its own": (table([("a", (2,), 1, [WHOLE])], [(KEY, "a", number(1, 2) + ONES)]), "of their own"),
    "content": (table([("a", (2,), 1, [WHOLE])], [(KEY, "a", field(4, bytes(8)))]), "of their own"),
    "slices of more axes": (table([("a", (2,), 1, [WHOLE + WHOLE])], []), "missing"),
    "for later readers": (
        table([("a", (2,), 1, [WHOLE])], [(KEY, "a", ONES)], versions=field(2, number(2, 2))), "version 2"
    ),
    "slices that overlap": (
        table(
            [("a", (2,), 1, [field(1, number(2, 2)), WHOLE])],
            [(bundle.slice_key(b"a", ((0, 2),)), "a", ONES), (KEY, "a", ONES)],
        ),
        "overlap",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_tables(raw, words):
    if words is None:
        assert tb.loads(raw)["a"].tolist() == [1, 1]
        return
    with pytest.raises(errors.TensorbytesError, match=words):
        tb.loads(raw, "checkpoint")


def test_an_index_of_the_second_format_is_not_one(tmp_path):
    tb.save({"a": np.zeros(2)}, tmp_path / "m.ckpt")
    raw = (tmp_path / "m.ckpt.index").read_bytes()
    with pytest.raises(errors.UnsupportedError, match="index alone"):
        tb.loads(raw, "checkpoint")


def test_other_bytes_are_not_taken_for_one(tmp_path):
    for raw in (bytes(64), b"\0\0" + varint(9) + b"\x0a" + bytes(20), b"\0\0\x04\x0a\x02\x0a\0", os.urandom(64)):
        (tmp_path / "x").write_bytes(raw)
        with pytest.raises(errors.TensorbytesError):
            tb.load(tmp_path / "x")
