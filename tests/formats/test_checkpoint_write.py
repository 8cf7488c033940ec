"""Writing TensorFlow's checkpoints: TensorFlow reads them, and a failure at any step leaves the old one."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorbytes as tb
from tensorbytes.errors import CorruptError, UsageError
from tensorbytes.formats._checkpoint import bundle_read
from tensorbytes.io import storage
from tensorbytes.testing import bits

NAMES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "bfloat16", "complex64", "complex128", "int4", "uint4", "int2", "uint2", "float8_e5m2",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float4_e2m1fn",
]  # fmt: skip
SHAPES = [(), (0,), (0, 3), (3, 0, 2), (7,), (2, 3, 5)]


def theirs(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


# ---- what TensorFlow reads ----------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype(name, tmp_path):
    arrays = {f"x{i}": bits.array(name, shape) for i, shape in enumerate(SHAPES)}
    arrays["strided"] = bits.array(name, (6, 8))[::2, ::-3].T
    arrays["fortran"] = np.asfortranarray(bits.array(name, (3, 4)))
    tb.save(arrays, tmp_path / "m", "checkpoint")
    with tb.open(tmp_path / "m") as file:
        assert file.keys() == sorted(arrays)  # no notes, nothing else
    restored = tf.raw_ops.RestoreV2(
        prefix=str(tmp_path / "m"), tensor_names=list(arrays), shape_and_slices=[""] * len(arrays),
        dtypes=[name] * len(arrays),
    )  # fmt: skip
    for key, tensor in zip(arrays, restored, strict=True):
        assert tensor.dtype.name == name
        assert tb.equal(tensor, arrays[key])
    assert tb.equal(tb.load(tmp_path / "m"), {key: arrays[key] for key in sorted(arrays)})


def test_strings(tmp_path):
    texts = np.array([["a", "β"], ["", "x" * 1000]], object)
    values = {"text": texts, "bytes": np.array([b"\xff\0", b""], object), "none": np.empty((0, 2), object), "one": b"1"}
    tb.save(values, tmp_path / "m", "checkpoint")
    found = theirs(tmp_path / "m")
    assert found["text"].tolist() == [[b"a", "β".encode()], [b"", b"x" * 1000]]
    assert found["bytes"].tolist() == [b"\xff\0", b""]
    assert found["none"].shape == (0, 2)
    assert found["one"] == b"1"
    assert tb.equal(tb.load(tmp_path / "m"), {key: values[key] for key in ("bytes", "none", "one", "text")})


def test_structures_get_names_with_slashes(tmp_path):
    made = {"layers": [{"w": np.ones((2, 3)), "b": torch.zeros(3)}, {"w": np.ones(1), "b": torch.ones(1)}], "step": 7}
    tb.save(made, tmp_path / "m", "checkpoint", meta={"run": "42"})
    found = theirs(tmp_path / "m")
    assert set(found) - {"_TENSORBYTES"} == {"layers/0/w", "layers/0/b", "layers/1/w", "layers/1/b", "step"}
    assert found["step"] == 7
    back = tb.load(tmp_path / "m", to="original")
    assert type(back["layers"][0]["b"]) is torch.Tensor
    assert type(back["step"]) is int
    assert tb.equal(back, made)
    with tb.open(tmp_path / "m") as file:
        assert file.meta == {"run": "42"}
        assert file["layers/0/w"][1].tolist() == [1, 1, 1]


def test_names_that_mean_something_else_here(tmp_path):
    made = {"": np.ones(2), "~2": np.zeros(1), "_TENSORBYTES": np.arange(3), "_TENSORBYTES~2": "x", "a\0b": np.ones(1)}
    tb.save(made, tmp_path / "m", "checkpoint")
    back = tb.load(tmp_path / "m")
    assert tb.equal({key: back[key] for key in made}, made)
    assert set(back) == set(made)
    assert len(theirs(tmp_path / "m")) == 6
    scipy_sparse = pytest.importorskip("scipy.sparse")
    made = {"_TENSORBYTES": scipy_sparse.csr_array(np.eye(3)), "": [[1, 2], [3]]}
    tb.save(made, tmp_path / "m", "checkpoint")
    back = tb.load(tmp_path / "m", to="original")
    assert back[""] == [[1, 2], [3]]
    assert (back["_TENSORBYTES"].toarray() == np.eye(3)).all()


def test_lazily_with_notes(tmp_path):
    """What notes join is read at once, and verified; the rest is mapped."""
    ragged = tf.ragged.constant([[1, 2], [3]])
    tb.save({"r": ragged, "x": {"y": np.arange(10)}}, tmp_path / "m", "checkpoint")
    data = tmp_path / "m.data-00000-of-00001"
    good = data.read_bytes()
    with tb.open(tmp_path / "m") as file:
        assert file["r"].shape == (2, None)
        at = good.index(np.arange(10).tobytes())
        data.write_bytes(good[:at] + b"\7" + good[at + 1 :])  # the map sees it
        with pytest.raises(CorruptError, match="'x/y': the checksum differs"):
            file["x/y"].load()
    data.write_bytes(b"\7" + good[1:])
    with pytest.raises(CorruptError, match="checksum"):
        tb.open(tmp_path / "m").keys()


def test_the_index_is_tensorflows_own(tmp_path):
    """Byte for byte, data too, where tensors are aligned and the index is not compressed."""
    values = {
        f"layer{i:04d}/{kind}": np.full((i % 5, 3), i, np.float32) for i in range(3000) for kind in "abcd"[: i % 3]
    }
    values |= {"wide": np.arange(4.0), "text": np.array([b"x" * (i % 200) for i in range(500)], object)}
    tb.save(values, tmp_path / "ours", "checkpoint")
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "theirs"), tensor_names=list(values), shape_and_slices=[""] * len(values),
        tensors=[tf.constant(x, tf.string) if x.dtype == object else tf.constant(x) for x in values.values()],
    )  # fmt: skip
    for suffix in (".index", ".data-00000-of-00001"):
        mine, other = (tmp_path / f"ours{suffix}").read_bytes(), (tmp_path / f"theirs{suffix}").read_bytes()
        assert mine == other


def test_tensors_are_aligned_to_their_items(tmp_path):
    tb.save({"a": np.ones(3, np.int8), "b": np.ones(2), "c": np.ones(2, np.complex128)}, tmp_path / "m", "checkpoint")
    assert (tmp_path / "m.data-00000-of-00001").stat().st_size == 8 + 16 + 32
    with tb.open(tmp_path / "m") as file:
        assert all(file[name][:].flags.aligned for name in "abc")
    assert theirs(tmp_path / "m")["b"].tolist() == [1, 1]


def test_a_variable_is_restored_from_it(tmp_path):
    """Under the keys of an object-based checkpoint, TensorFlow's own objects take the values."""
    model = tf.train.Checkpoint(w=tf.Variable([0.0, 0.0]), s=tf.Variable(b""))
    first = model.write(str(tmp_path / "first"))
    values = tb.load(first)
    values["w/.ATTRIBUTES/VARIABLE_VALUE"] = np.array([5, 6], np.float32)
    values["s/.ATTRIBUTES/VARIABLE_VALUE"] = np.array(b"seven", object)
    tb.save(values, tmp_path / "second", "checkpoint")
    model.read(str(tmp_path / "second")).assert_consumed()
    assert model.w.numpy().tolist() == [5, 6]
    assert model.s.numpy() == b"seven"


def test_paths_and_the_state_file(tmp_path):
    for name, prefix in (("a.ckpt", "a.ckpt"), ("b.index", "b"), ("ü'\" x.ckpt", "ü'\" x.ckpt")):
        tb.save({"w": np.ones(2)}, tmp_path / name, state=True)
        assert (tmp_path / f"{prefix}.index").exists()
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / prefix)
        assert tb.load(tmp_path)["w"].tolist() == [1, 1]
        assert tb.load(tmp_path / name)["w"].tolist() == [1, 1]
    (tmp_path / "checkpoint").unlink()
    tb.save({"w": np.ones(2)}, tmp_path / "a.ckpt")
    assert not (tmp_path / "checkpoint").exists()
    for bad in ("yes", 1, None):
        with pytest.raises(UsageError, match="expected True or False"):
            tb.save({"w": 1}, tmp_path / "m", "checkpoint", state=bad)
    with pytest.raises(UsageError, match="is a folder"):
        tb.save({"w": 1}, f"{tmp_path}/", "checkpoint")
    with open(tmp_path / "file", "wb") as file, pytest.raises(UsageError, match="local path"):
        tb.save({"w": 1}, file, "checkpoint")
    with pytest.raises(UsageError, match="no option 'keys'"):
        tb.save({"w": 1}, tmp_path / "m", "checkpoint", keys="raw")


def test_a_prefix_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        tb.save({"w": np.ones(2)}, "m", "checkpoint", state=True)
    assert tb.load("m")["w"].tolist() == tb.load(".")["w"].tolist() == tb.load("m.index")["w"].tolist() == [1, 1]
    assert len(os.listdir()) == 3


# ---- replacing ----------------------------------------------------------------


def test_the_data_moves_back_and_forth(tmp_path):
    other = tmp_path / "m.data-00000-of-00001.txt"
    other.write_text("not ours")
    for number in range(5):
        tb.save({"w": np.full(3, number)}, tmp_path / "m", "checkpoint")
        name = "m.data-00001-of-00002" if number % 2 else "m.data-00000-of-00001"
        assert sorted(os.listdir(tmp_path)) == sorted([name, other.name, "m.index"])
        assert theirs(tmp_path / "m")["w"].tolist() == tb.load(tmp_path / "m")["w"].tolist() == [number] * 3
        assert tf.compat.v1.train.checkpoint_exists(str(tmp_path / "m"))


def test_one_of_several_shards_is_replaced(tmp_path):
    parts = []
    for name in "ab":
        parts.append(str(tmp_path / name))
        tb.save({name: np.ones(2)}, parts[-1], "checkpoint")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "m"))
    assert (tmp_path / "m.data-00001-of-00002").exists()
    tb.save({"w": np.ones(3)}, tmp_path / "m", "checkpoint")
    assert sorted(os.listdir(tmp_path)) == ["m.data-00000-of-00001", "m.index"]
    assert list(theirs(tmp_path / "m")) == ["w"]


def test_a_damaged_checkpoint_can_be_replaced(tmp_path):
    tb.save({"w": np.ones(3)}, tmp_path / "m", "checkpoint")
    (tmp_path / "m.index").write_bytes(b"damaged")
    tb.save({"w": np.zeros(3)}, tmp_path / "m", "checkpoint")
    assert tb.load(tmp_path / "m")["w"].tolist() == [0, 0, 0]
    assert len(os.listdir(tmp_path)) == 2


def test_several_writers_and_a_reader_at_once(tmp_path):
    """Whoever is last wins; nobody ever sees the data of one under the index of another."""
    prefix = tmp_path / "m"
    tb.save({"w": np.zeros(1000)}, prefix, "checkpoint")
    done = threading.Event()

    def write(number):
        for _ in range(25):
            tb.save({"w": np.full(1000 + number, number, float)}, prefix, "checkpoint", sync=False)

    def read():
        count = 0
        while not done.is_set() or not count:
            try:
                found = tb.load(prefix, mmap=count % 2 == 1)["w"]
            except CorruptError as error:
                if "replaced 5 times" not in str(error):
                    raise
                continue
            assert (found == found[0]).all()
            assert len(found) == 1000 + found[0]
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        reading = pool.submit(read)
        writing = [pool.submit(write, number) for number in (1, 2, 3)]
        for each in writing:
            each.result()
        done.set()
        assert reading.result() > 0
    assert tb.load(prefix)["w"][0] in (1, 2, 3)
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("times", [1, 3, 9])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_checkpoint_that_is_replaced_while_it_is_read(times, mapped, tmp_path, monkeypatch):
    """The reader has the old index, whose data is gone by then: it starts again."""
    prefix = tmp_path / "m"
    tb.save({"w": np.zeros(3)}, prefix, "checkpoint")
    before, left = bundle_read.Bundle._check_shards, [times]

    def replaced(self):
        left[0] -= 1
        if left[0] >= 0:
            tb.save({"w": np.full(3, left[0])}, prefix, "checkpoint")
        before(self)

    monkeypatch.setattr(bundle_read.Bundle, "_check_shards", replaced)
    if times > 5:
        with pytest.raises(CorruptError, match="replaced 5 times while it was read"):
            tb.load(prefix, mmap=mapped)
    else:
        assert tb.load(prefix, mmap=mapped)["w"].tolist() == [0, 0, 0]


class _Failure(OSError):
    pass


@pytest.mark.parametrize("first", [0, 1])
def test_a_failure_at_any_step_leaves_the_old_one_or_the_new_one(first, tmp_path, monkeypatch):
    """Every call that changes the disk fails once, in turn, until none is left to fail."""
    prefix = tmp_path / "m"
    for _ in range(first + 1):
        tb.save({"w": np.zeros(3), "s": "old"}, prefix, "checkpoint")
    calls = {"left": 0}

    def failing(function):
        def call(*args, **kwargs):
            if str(args[0]).endswith("-lock.tmp"):  # one that is left does no harm
                return function(*args, **kwargs)
            calls["left"] -= 1
            if calls["left"] == 0:
                raise _Failure("injected")
            return function(*args, **kwargs)

        return call

    new, results, step = {"w": np.ones(4), "s": "new"}, [], 0
    while True:
        step += 1
        calls["left"] = step
        with monkeypatch.context() as patch:
            for name in ("replace", "fsync", "unlink"):
                patch.setattr(os, name, failing(getattr(os, name)))
            patch.setattr(storage, "write_all", failing(storage.write_all))
            try:
                tb.save(new, prefix, "checkpoint")
                done = calls["left"] > 0
            except _Failure:
                done = False
        found = tb.load(prefix)
        results.append(found["s"])
        assert found["w"].tolist() == ([0] * 3 if found["s"] == "old" else [1] * 4)
        assert theirs(prefix)["s"] == found["s"].encode()
        if done:
            break
        # Back to the old one, in the same place.
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()
        for _ in range(first + 1):
            tb.save({"w": np.zeros(3), "s": "old"}, prefix, "checkpoint")
    assert step > 6
    assert results[0] == "old"
    assert results[-1] == "new"
    assert results == sorted(results, reverse=True)  # once it is the new one, it stays
    assert len(os.listdir(tmp_path)) == 2


CHILD = """
import os, sys
import numpy as np, tensorbytes as tb
from tensorbytes.io import storage
prefix, left = sys.argv[1], int(sys.argv[2])
def dying(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return function(*args, **kwargs)
    return call
for name in ("replace", "fsync", "unlink"):
    setattr(os, name, dying(getattr(os, name)))
storage.write_all = dying(storage.write_all)
tb.save({"w": np.ones(4), "s": "new"}, prefix, "checkpoint")
"""


@pytest.mark.deep
def test_a_process_that_dies_leaves_the_old_one_or_the_new_one(tmp_path):
    results = []
    for step in range(1, 20):
        prefix = tmp_path / f"m{step}"
        tb.save({"w": np.zeros(3), "s": "old"}, prefix, "checkpoint")
        run = subprocess.run([sys.executable, "-c", CHILD, str(prefix), str(step)], check=False)
        found = tb.load(prefix)
        results.append(found["s"])
        assert found["w"].tolist() == ([0] * 3 if found["s"] == "old" else [1] * 4)
        # What the dead one left behind does not stand in the way of the next.
        tb.save({"s": "next"}, prefix, "checkpoint")
        assert tb.load(prefix) == {"s": "next"}
        if run.returncode == 0:
            break
    assert results[0] == "old"
    assert results[-1] == "new"


def test_the_same_values_give_the_same_bytes(tmp_path):
    made = {"b": np.ones(3), "a": {"x": [1, 2], "y": torch.ones(2)}}
    for name in ("one", "two"):
        tb.save(made, tmp_path / name, "checkpoint", meta={"k": "v"})
    for suffix in (".index", ".data-00000-of-00001"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_nothing_is_written_of_what_is_refused(tmp_path):
    with pytest.raises(tb.errors.UnsupportedError):
        tb.save({"w": object()}, tmp_path / "m", "checkpoint")
    assert not os.listdir(tmp_path)


def test_convert_to_and_from_other_formats(tmp_path):
    made = {"w": np.arange(6.0).reshape(2, 3), "n": {"t": "text", "f8": bits.array("float8_e3m4", (4,))}}
    tb.save(made, tmp_path / "m", "checkpoint")
    tb.save(tb.load(tmp_path / "m"), tmp_path / "m.tb")
    assert tb.equal(tb.load(tmp_path / "m.tb"), tb.load(tmp_path / "m"))
    assert theirs(tmp_path / "m")["n/f8"].dtype == np.uint8
