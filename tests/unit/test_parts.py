"""A part of a file: names and patterns, and floats as other types."""

import io

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorbytes as tb
from tensorbytes.deferred import Deferred
from tests.support.work import check_linear

W = np.arange(6, dtype=np.float32).reshape(2, 3)
STATE = {
    "model": {"w": W, "b": np.zeros(3, np.float32)},
    "layers": [{"m": np.full(2, n, np.float64), "n": n} for n in range(3)],
    "pair": (np.ones(1), np.ones(2)),
    "step": 7,
}
FILES = ("x.tb", "x.npz", "x.safetensors", "x.pt", "x.ckpt", "x.arrow", "x.parquet")


# ---- names and patterns --------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_patterns_give_the_structure_as_it_was(name, tmp_path):
    tb.save(STATE, tmp_path / name)
    found = tb.load(tmp_path / name, names=["model/*", "pair/*"])
    assert tb.equal(found, {"model": STATE["model"], "pair": STATE["pair"]})
    assert type(found["pair"]) is tuple
    assert tb.equal(tb.load(tmp_path / name, names="*"), STATE)
    assert tb.equal(tb.load(tmp_path / name, names=["*"], mmap=True), STATE)


@pytest.mark.parametrize("name", FILES)
def test_names_give_a_flat_dict_in_the_order_asked_for(name, tmp_path):
    tb.save(STATE, tmp_path / name)
    found = tb.load(tmp_path / name, names=["step", "model/w", "layers/1/m"])
    assert list(found) == ["step", "model/w", "layers/1/m"]
    assert tb.equal(found, {"step": 7, "model/w": W, "layers/1/m": np.ones(2)})
    assert tb.load(tmp_path / name, names=[]) == {}


def test_bytes_have_parts_too():
    data = tb.dumps(STATE)
    assert tb.equal(tb.loads(data, names="model/*"), {"model": STATE["model"]})
    assert tb.equal(tb.loads(data, names=["model/w"], to="torch"), {"model/w": W})
    assert tb.equal(tb.load(io.BytesIO(data), names=["model/?"]), {"model": STATE["model"]})


def test_a_list_with_holes_is_a_dict_of_positions():
    data = tb.dumps(STATE)
    some = tb.loads(data, names=["layers/[02]/*"])["layers"]
    assert type(some) is dict
    assert list(some) == [0, 2]
    assert tb.equal(some[2], STATE["layers"][2])
    # A list that kept all of its items is a list, whatever its items lost.
    every = tb.loads(data, names=["layers/*/m"])["layers"]
    assert type(every) is list
    assert [list(one) for one in every] == [["m"]] * 3
    assert list(tb.loads(data, names=["pair/1*"])["pair"]) == [1]
    first = tb.loads(tb.dumps([np.ones(1), np.ones(2), np.ones(3)]), names=["[01]"])
    assert list(first) == [0, 1]


def test_lists_whose_names_start_the_same():
    data = tb.dumps({"a": {"b": [W, W]}, "a/b": [W, W, W], "a/b/c": W})
    found = tb.loads(data, names=["a/b/[01]"])
    assert list(found["a/b"]) == list(found["a"]["b"]) == [0, 1]


def test_names_that_look_like_patterns():
    data = tb.dumps({"a[0]": 1, "a0": 2, "b*": 3, "bc": 4})
    assert tb.loads(data, names=["a[0]"]) == {"a[0]": 1}  # whoever asks for names of keys() gets these
    assert tb.loads(data, names=["b*"]) == {"b*": 3}
    assert tb.loads(data, names=["a[0]", "b?"]) == {"a[0]": 1, "a0": 2, "b*": 3, "bc": 4}


def test_what_is_not_there(tmp_path):
    tb.save(STATE, tmp_path / "x.tb")
    with pytest.raises(tb.errors.MissingNameError, match=r"no tensor 'modle/\*'; it has 'model/w', .*mean 'model/w'"):
        tb.load(tmp_path / "x.tb", names=["modle/*"])
    with pytest.raises(KeyError, match=r"did you mean 'model/\*'"):
        tb.load(tmp_path / "x.tb", names=["step", "model"])
    with pytest.raises(tb.errors.TensorbytesError) as caught:
        tb.load(tmp_path / "x.tb", names=["model/*", "opt/*"])  # each pattern must pick something
    assert (caught.value.tensor, caught.value.path) == ("opt/*", str(tmp_path / "x.tb"))
    with pytest.raises(tb.errors.UsageError, match="expected names or patterns"):
        tb.load(tmp_path / "x.tb", names=[3])


def test_one_tensor_has_no_structure():
    assert tb.loads(tb.dumps(W, name="w"), names="w").keys() == {"w"}
    assert tb.equal(tb.loads(tb.dumps(W, name="w"), names="w*"), W)
    assert tb.equal(tb.loads(tb.dumps(W), names="*"), W)


def test_a_stream_gives_a_part_of_each_object(tmp_path):
    with tb.open(tmp_path / "x.tb", "w") as file:
        for n in range(3):
            file.write({"id": n, "ids": np.arange(n), **({"odd": True} if n % 2 else {})})
    assert [one["ids"].tolist() for one in tb.load(tmp_path / "x.tb", names=["ids"])] == [[], [0], [0, 1]]
    assert tb.load(tmp_path / "x.tb", names=["o*"]) == [{}, {"odd": True}, {}]


def test_names_twice_in_one_object():
    data = tb.dumps({"a/b": 1, "a": {"b": 2}})
    with pytest.raises(tb.errors.MissingNameError, match="2 tensors are named 'a/b'"):
        tb.loads(data, names=["a/b"])
    assert tb.loads(data, names=["a*"]) == {"a/b": 1, "a": {"b": 2}}


# ---- tables ----------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    columns = {"a": [1, None, 3], "b": [1.5, 2.5, 3.5], "s": [{"x": 1, "y": None}, None, {"x": 3, "y": 2}]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.tb", "x.npz", "x.tfrecord"])
def test_a_column_brings_along_which_rows_there_are(name, table, tmp_path):
    if name != "x.parquet":
        tb.convert(table, tmp_path / name)
    for names in (["a"], ["a*"]):
        found = tb.load(tmp_path / name, names=names)
        assert found["a"].tolist() == [1, 0, 3]
        assert found["a/mask0"].tolist() == [True, False, True]
        assert list(found) == ["a", "a/mask0"]


def test_fields_of_structs(table):
    whole, found = tb.load(table), tb.load(table, names=["s/x*"])
    assert list(found["s"]) == ["x"]
    assert found["s/mask0"].tolist() == whole["s/mask0"].tolist() == [True, False, True]
    assert tb.equal(tb.load(table, names=["s/*"]), {name: whole[name] for name in ("s", "s/mask0")})


def test_records(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for n in range(4):
            writer.write({"id": n, "x": np.full(2, n, np.float32), **({"odd": n} if n % 2 else {})})
    found = tb.load(tmp_path / "x.tfrecord", names=["odd"])
    assert found["odd"].tolist() == [0, 1, 0, 3]
    assert found["odd/mask0"].tolist() == [False, True, False, True]
    assert tb.load(tmp_path / "x.tfrecord", names=["[xi]*"], dtype="float16")["x"].dtype == np.float16
    with pytest.raises(tb.errors.MissingNameError, match="did you mean 'odd'"):
        tb.load(tmp_path / "x.tfrecord", names=["ood"])


# ---- what is read ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.tb", "x.npz", "x.pt", "x.ckpt"])
def test_damage_elsewhere_is_not_met(name, tmp_path):
    good, bad = np.full(500, 1.25), np.full(500, 2.75)
    tb.save({"good": {"w": good}, "bad": {"w": bad}}, tmp_path / name)
    (path,) = [one for one in tmp_path.iterdir() if bad.tobytes() in one.read_bytes()]
    raw = path.read_bytes()
    path.write_bytes(raw.replace(bad.tobytes(), b"\1" + bad.tobytes()[1:], 1))
    assert tb.equal(tb.load(tmp_path / name, names=["good/*"]), {"good": {"w": good}})
    with pytest.raises(tb.errors.CorruptError):
        tb.load(tmp_path / name, names=["*/w"])


@pytest.mark.parametrize("name", ["x.arrow", "x.parquet", "x.npz"])
def test_only_what_is_chosen_is_decoded(name, tmp_path, monkeypatch):
    options = {"compression": "deflate" if name == "x.npz" else "zstd"}
    tb.save({"a": {"w": W}, "b": {"w": W + 1}, "c": W + 2}, tmp_path / name, **options)
    read, load = [], Deferred.load

    def counted(self):
        value = load(self)
        read.append(value.numpy()[0, 0])
        return value

    monkeypatch.setattr(Deferred, "load", counted)
    assert tb.equal(tb.load(tmp_path / name, names=["[bc]*"]), {"b": {"w": W + 1}, "c": W + 2})
    assert sorted(set(read)) == [1, 2]


def test_one_pass_over_records_for_all_columns(tmp_path, monkeypatch):
    from tensorbytes.formats.tfrecord.opened import OpenedRecords

    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        writer.write({"a": 1, "b": 2, "c": 3})
    asked, stored = [], OpenedRecords._stored_tables

    def counted(self, size, takes=None):
        asked.append([name for name in "abc" if takes(name)])
        return stored(self, size, takes)

    monkeypatch.setattr(OpenedRecords, "_stored_tables", counted)
    assert list(tb.load(tmp_path / "x.tfrecord", names=["a", "c"])) == ["a", "c"]
    assert asked == [["a", "c"]]


@pytest.mark.parametrize(
    "names", [lambda n: [f"l{k}/0" for k in range(n)], lambda n: ["l*/0"]], ids=["names", "pattern"]
)
def test_many_names_take_their_time_and_no_more(names):
    def use(given):
        data, asked = given
        return tb.loads(data, names=asked)

    check_linear(lambda n: (tb.dumps({f"l{k}": [W, W] for k in range(n)}), names(n)), use, 20)


def test_a_name_of_nothing_but_slashes():
    data = tb.dumps({"l": [W, W], "/" * 300_000: W})
    assert list(tb.loads(data, names=["l/1*"])["l"]) == [1]


def test_models_of_onnx(tmp_path):
    import onnx
    from onnx import helper, numpy_helper

    tensors = [numpy_helper.from_array(W + n, name) for n, name in enumerate(("enc.w", "enc.v", "dec.w"))]
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], tensors)), tmp_path / "m.onnx")
    found = tb.load(tmp_path / "m.onnx", names=["enc.*"], dtype="float16")
    assert tb.equal(found, {"enc.w": W.astype(np.float16), "enc.v": (W + 1).astype(np.float16)})


def test_shards(tmp_path):
    from safetensors.numpy import load_file

    tb.save({f"layer.{n}.w": W + n for n in range(4)}, tmp_path / "m.safetensors", max_shard_bytes=W.nbytes + 8)
    found = tb.load(tmp_path / "m.safetensors.index.json", names=["layer.[13].*"])
    assert list(found) == ["layer.1.w", "layer.3.w"]
    assert tb.equal(found["layer.3.w"], load_file(tmp_path / "m-00004-of-00004.safetensors")["layer.3.w"])


def test_objects_elsewhere_are_not_met(tmp_path):
    import argparse

    import torch

    torch.save({"model": {"w": torch.ones(2)}, "args": argparse.Namespace(a=1)}, tmp_path / "x.pt")
    assert tb.load(tmp_path / "x.pt", names=["model/*"])["model"]["w"].tolist() == [1, 1]
    with pytest.raises(tb.errors.UnsupportedError, match=r"'argparse\.Namespace' at 'args'"):
        tb.load(tmp_path / "x.pt", names=["*"])


def test_a_note_of_masks_that_is_not_sound():
    data = tb.dumps({"a": W, "b": W}, origin={"masks": "nonsense"})
    with pytest.raises(tb.errors.CorruptError, match="the note of masks and levels is not sound"):
        tb.loads(data, names=["a"])


def test_a_part_is_in_memory_of_its_own(tmp_path):
    tb.save(STATE, tmp_path / "x.safetensors")
    own = tb.load(tmp_path / "x.safetensors", names=["model/*"])["model"]["w"]
    view = tb.load(tmp_path / "x.safetensors", names=["model/*"], mmap=True)["model"]["w"]
    raw = (tmp_path / "x.safetensors").read_bytes()
    with open(tmp_path / "x.safetensors", "r+b") as file:
        file.write(raw.replace(W.tobytes(), (W + 1).tobytes()))
    assert np.array_equal(own, W)
    assert np.array_equal(view, W + 1)


def test_tied_tensors_stay_tied_in_a_part():
    w = np.ones(4)
    found = tb.loads(tb.dumps({"a": {"x": w, "y": w}, "b": w}), names=["a/*"], dtype="float32")["a"]
    assert np.shares_memory(found["x"], found["y"])


# ---- dtype= ------------------------------------------------------------------------

NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", NARROW)
def test_floats_are_rounded_as_torch_rounds_them(dtype):
    import torch

    rng = np.random.default_rng(7)
    x = torch.from_numpy(np.concatenate([rng.normal(0, 50, 4000), [0.0, -0.0, 448, 1e-9, 2**-9]]).astype(np.float32))
    found = tb.loads(tb.dumps({"x": x, "n": torch.arange(3), "flag": torch.ones(2) > 0}), dtype=dtype, to="torch")
    wanted = x.to(getattr(torch, dtype))
    assert found["x"].dtype == wanted.dtype
    assert torch.equal(found["x"].view(torch.uint8), wanted.view(torch.uint8))
    assert found["n"].dtype == torch.int64
    assert found["flag"].dtype == torch.bool


def test_the_same_as_convert(tmp_path):
    x = np.random.default_rng(1).normal(size=(70, 1000))
    tb.save({"x": x}, tmp_path / "x.tb")
    tb.convert(tmp_path / "x.tb", tmp_path / "y.tb", cast="bfloat16")
    for names in (None, ["x"], ["*"]):
        assert tb.equal(tb.load(tmp_path / "x.tb", names=names, dtype="bfloat16"), tb.load(tmp_path / "y.tb"))


@pytest.mark.parametrize("name", FILES)
def test_in_every_format_by_pattern(name, tmp_path):
    tb.save(STATE, tmp_path / name)
    found = tb.load(tmp_path / name, dtype={"model/*": "bfloat16", "layers/0/*": None, "*": "float32"})
    assert found["model"]["w"].dtype == ml_dtypes.bfloat16
    assert [one["m"].dtype.name for one in found["layers"]] == ["float64", "float32", "float32"]
    assert found["step"] == 7
    assert type(found["step"]) is int


def test_dtypes_of_frameworks():
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    data = tb.dumps(np.ones(3))
    for given in (torch.bfloat16, tf.bfloat16, jnp.bfloat16, ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert tb.loads(data, dtype=given).dtype == ml_dtypes.bfloat16
    assert tb.loads(data, dtype=np.float16).dtype == tb.loads(data, dtype="<f2").dtype == np.float16
    assert tb.loads(data, dtype="float32", to="jax").dtype == jnp.float32  # which JAX alone would refuse


def test_small_floats_are_floats_too():
    import torch

    x = np.array([0.5, -448, 2**-9, np.nan], ml_dtypes.float8_e4m3fn)
    found = tb.loads(tb.dumps(x), dtype="float32", to="torch")
    assert torch.equal(found[:3], tb.loads(tb.dumps(x), to="torch").to(torch.float32)[:3])
    assert torch.isnan(found[3])


def test_ragged_and_sparse_values():
    import scipy.sparse

    ragged = tb.Ragged(tb.Tensor("float64", (3,), np.arange(3.0)), (np.array([0, 1, 3]),))
    found = tb.loads(tb.dumps({"r": ragged}), dtype="float16")["r"]
    assert [row.tolist() for row in found] == [[0], [1, 2]]
    assert found.values.dtype == "float16"
    matrix = scipy.sparse.csr_array(np.diag([1.5, 2.5]))
    assert tb.loads(tb.dumps(matrix), dtype="float32", to="scipy").dtype == np.float32


def test_what_becomes_infinite_is_refused(tmp_path):
    tb.save({"big": np.array([1e30]), "n": np.arange(3)}, tmp_path / "x.tb")
    with pytest.raises(tb.errors.LossError, match="'big': float16 can't hold numbers as large as 1e\\+30") as caught:
        tb.load(tmp_path / "x.tb", dtype="float16")
    assert (caught.value.tensor, caught.value.path) == ("big", str(tmp_path / "x.tb"))
    with pytest.raises(tb.errors.LossError, match="float8_e4m3fn can't hold inf"):  # which has no infinity
        tb.loads(tb.dumps(np.array([np.inf])), dtype="float8_e4m3fn")
    with pytest.raises(tb.errors.LossError, match="float4_e2m1fn can't hold 100"):
        tb.loads(tb.dumps(np.array([100.0])), dtype="float4_e2m1fn")
    assert np.isinf(tb.loads(tb.dumps(np.array([np.inf])), dtype="float16"))


def test_slips_in_dtype(tmp_path):
    data = tb.dumps({"w": np.ones(2), "n": np.arange(3)})
    with pytest.raises(tb.errors.UsageError, match="unknown dtype to cast to 'int8'"):
        tb.loads(data, dtype="int8")
    with pytest.raises(tb.errors.UsageError, match="unknown dtype to cast to 'nonsense'"):
        tb.loads(data, dtype="nonsense")
    with pytest.raises(tb.errors.UsageError, match="dtype: no tensor of floats goes by 'n'"):
        tb.loads(data, dtype={"n": "float32"})
    assert tb.loads(tb.dumps(np.arange(3)), dtype="float32").dtype == np.int64  # nothing to cast, as in torch
    with pytest.raises(tb.errors.UsageError, match="are for reading"):
        tb.open(tmp_path / "x.tb", "w", dtype="float32")


def test_open_casts_what_is_read(tmp_path):
    x = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    tb.save({"w": x, "n": np.arange(3)}, tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb", dtype="bfloat16") as file:
        assert (file["w"].dtype, file["w"].nbytes, file["n"].dtype) == ("bfloat16", 1600, "int64")
        assert tb.equal(file["w"][10:20], x.astype(ml_dtypes.bfloat16)[10:20])
        assert tb.equal(file["w"].load(), x.astype(ml_dtypes.bfloat16))
        assert tb.equal(file[0]["w"], x.astype(ml_dtypes.bfloat16))
    with pytest.raises(tb.errors.UsageError, match="no tensor of floats goes by 'v'"):
        tb.open(tmp_path / "x.tb", dtype={"v": "float16"}).keys()


def test_streams_are_cast(tmp_path):
    class Pipe(io.RawIOBase):
        def __init__(self, data):
            self.data = io.BytesIO(data)

        def readable(self):
            return True

        def readinto(self, buffer):
            return self.data.readinto(buffer)

    with tb.open(tmp_path / "x.tb", "w") as file:
        for n in range(3):
            file.write({"x": np.full(2, n, np.float64)})
    with tb.open(tmp_path / "x.tb", dtype="float16") as file:
        assert [one["x"].dtype.name for one in file] == ["float16"] * 3
        assert not file._casting._cast_leaves  # nothing is held for what was given already
    found = list(tb.open(Pipe((tmp_path / "x.tb").read_bytes()), dtype={"x": "float16"}))
    assert [one["x"].dtype.name for one in found] == ["float16"] * 3
    assert [one["x"].dtype.name for one in tb.load(tmp_path / "x.tb", dtype="float16")] == ["float16"] * 3


def test_formats_with_a_dtype_of_their_own(tmp_path):
    x = np.arange(3, dtype=np.float32)
    assert tb.loads(x.tobytes(), "raw", dtype="float32").tolist() == [0, 1, 2]  # what the elements are
    np.save(tmp_path / "void.npy", x.astype(ml_dtypes.bfloat16))
    np.savez(tmp_path / "x.npz", void=x.astype(ml_dtypes.bfloat16), plain=x, n=np.arange(2))
    assert tb.load(tmp_path / "void.npy", dtype="bfloat16").dtype == ml_dtypes.bfloat16
    found = tb.load(tmp_path / "x.npz", dtype="bfloat16")  # taken for, or cast to
    assert [found[name].dtype.name for name in ("void", "plain", "n")] == ["bfloat16", "bfloat16", "int64"]
    found = tb.load(tmp_path / "x.npz", dtype={"v*": "bfloat16", "plain": "float64"})
    assert found["plain"].dtype == np.float64


def test_casts_count_against_the_limits():
    # A TensorProto of 2**20 times the same number, which is stored once.
    claim = bytes.fromhex("0801 1206 1204 08808040 2a04 0000803f")
    limits = tb.errors.Limits(max_bytes=5 << 20)
    assert tb.loads(claim, "tensorproto", limits=limits).nbytes == 4 << 20
    with pytest.raises(tb.errors.LimitError, match="as float64 would take"):
        tb.loads(claim, "tensorproto", limits=limits, dtype="float64")


@pytest.mark.parametrize("names", [3, [3], b"w", [None]])
def test_names_that_are_none(names):
    with pytest.raises(tb.errors.UsageError, match="names=: expected names or patterns"):
        tb.loads(tb.dumps({"w": np.ones(2)}), names=names)


def test_names_may_come_one_by_one():
    data = tb.dumps({"a": np.ones(1), "b": np.zeros(2), "c": np.ones(3)})
    assert list(tb.loads(data, names=(name for name in "ca"))) == ["c", "a"]


@pytest.mark.parametrize("format", ["tb", "npz"])
def test_dtypes_are_given_by_names(format):
    with pytest.raises(tb.errors.UsageError, match=r"dtype=: expected names or patterns.*got 1"):
        tb.loads(tb.dumps({"a": np.ones(1)}, format), dtype={1: "int8"})
