"""The safetensors format, beside the safetensors library: its bytes, its dtypes; structures, notes, slices."""

import errno
import io
import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

import tensorbytes as tb
from tensorbytes import dtypes, testing
from tensorbytes.errors import CorruptError, LossError, UnsupportedError, UsageError
from tensorbytes.formats import _packed
from tensorbytes.formats import safetensors as ours
from tensorbytes.formats._safetensors import header
from tensorbytes.io import storage
from tensorbytes.testing import case as contract
from tests.support.safetensors_cases import BOTH, entry, file

NUMPY = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64",
]  # fmt: skip
TORCH = [
    *NUMPY, "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2",
]  # fmt: skip
SHAPES = [(), (1,), (0,), (0, 3), (3, 0, 2), (5, 7), (2, 3, 4)]


def numbers(dtype, shape):
    """Arrays of every bit pattern that fits, bools aside."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(size).integers(0, 2 if dtype == "bool" else 256, size, np.uint8)
    return raw.view(dtype).reshape(shape)


def tensors(dtype, shape):
    kind = getattr(torch, dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.random.default_rng(size).integers(0, 2 if dtype == "bool" else 256, size, np.uint8)
    return torch.from_numpy(raw).view(kind).reshape(shape) if size else torch.empty(shape, dtype=kind)


def header_of(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size])


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def same_tensors(a, b):
    def bits(x):
        return bytes(x.contiguous().reshape(-1).view(torch.uint8).numpy()) if x.numel() else b""

    return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


def all_same(a, b, alike=same):
    return a.keys() == b.keys() and all(alike(a[name], b[name]) for name in b)


# ---- the library's bytes ----------------------------------------------------

DICTS = {
    "every dtype of NumPy": {f"{d}.{i}": numbers(d, s) for d in NUMPY for i, s in enumerate(SHAPES)},
    "one": {"x": numbers("float32", (3, 4))},
    "none": {},
    "names": {
        name: numbers("uint8", (2,))
        for name in ["", "a\nb", 'q"\\/', "\x00\x1f\x7f", "\u00e9", "e\u0301", "\u2028", "\U0001f600", "Z", "tensor"]
    },
    "large": {"x": numbers("float64", (300, 1000)), "y": numbers("int8", (100_000,))},
}  # fmt: skip


@pytest.mark.parametrize("name", DICTS)
def test_the_bytes_are_those_of_the_library(name, tmp_path):
    data = tb.dumps(DICTS[name], "safetensors")
    assert data == safetensors.numpy.save(DICTS[name])
    tb.save(DICTS[name], tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == data


def test_the_bytes_of_torch_dicts_are_too():
    x = {f"{d}.{i}": tensors(d, s) for d in TORCH for i, s in enumerate(SHAPES) if s or "x2" not in d}
    assert tb.dumps(x, "safetensors") == safetensors.torch.save(x)


@pytest.mark.parametrize("meta", [{"format": "pt"}, {"": ""}, {"é\n": '"\\\x00'}], ids=str)
def test_with_metadata_too(meta):
    x = {"b": numbers("float32", (2,)), "a": numbers("int64", (2,))}
    assert tb.dumps(x, "safetensors", meta=meta) == safetensors.numpy.save(x, meta)


def test_metadata_is_sorted():
    meta = dict.fromkeys("zebra", "1")
    made = {
        tb.dumps({"x": np.zeros(1)}, "safetensors", meta=dict(pairs)) for pairs in (meta.items(), sorted(meta.items()))
    }
    assert len(made) == 1
    assert list(header_of(made.pop())["__metadata__"]) == sorted(meta)


LAYOUTS = {
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "stepped": lambda x: x[:, ::2],
    "fortran": np.asfortranarray,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["int16", "float64", "complex64"])
def test_any_layout_gives_the_bytes_of_its_plain_copy(layout, dtype):
    x = LAYOUTS[layout](numbers(dtype, (6, 4)))
    plain = np.ascontiguousarray(x, x.dtype.newbyteorder("<"))
    assert tb.dumps({"x": x}, "safetensors") == safetensors.numpy.save({"x": plain})


def test_order_of_the_file_is_the_library_s_for_every_dtype():
    """Also for the types of 6 bits, which its Python side can read but not write."""
    names = sorted(header.ORDER, key=lambda name: (-header._ROWS[name].bits, name))
    assert set(names) == {row.safetensors for row in dtypes.DTYPES.values() if row.safetensors}
    x = {d: tensors(d, (2,)) for d in TORCH}
    order = [info["dtype"] for info in header_of(safetensors.torch.save(x)).values()]
    assert [name for name in header.ORDER if name in order] == order


def test_header_has_its_limit(monkeypatch):
    monkeypatch.setattr(ours, "MAX_HEADER", 100)
    with pytest.raises(LossError) as error:
        tb.dumps({"n" * 100: np.zeros(1)}, "safetensors")
    assert error.value.feature == "size"


# ---- reading each other's files ---------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY)
def test_numpy_dtypes_in_both_directions(dtype, tmp_path):
    x = {str(shape): numbers(dtype, shape) for shape in SHAPES}
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file(x, path)
    for got in (tb.load(path), tb.load(path, mmap=True), tb.loads(path.read_bytes())):
        assert all_same(got, x)
    tb.save(x, path)
    got = safetensors.numpy.load_file(path)
    assert all_same(got, x)


@pytest.mark.parametrize("dtype", TORCH)
def test_torch_dtypes_in_both_directions(dtype, tmp_path):
    x = {str(shape): tensors(dtype, shape) for shape in SHAPES if shape or "x2" not in dtype}
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file(x, path)
    with tb.open(path, to="torch") as opened:
        for name in x:
            assert same_tensors(opened[name].load(), x[name])
    assert all_same(tb.load(path, to="torch"), x, same_tensors)
    tb.save(x, path)
    assert all_same(safetensors.torch.load_file(path), x, same_tensors)


def test_metadata_in_both_directions(tmp_path):
    path = tmp_path / "x.safetensors"
    x = {"x": np.zeros(2)}
    safetensors.numpy.save_file(x, path, {"format": "pt", "b": "é"})
    with tb.open(path) as opened:
        assert opened.meta == {"format": "pt", "b": "é"}
        assert opened["x"].meta == {}
    tb.save(x, path, meta={"format": "np"})
    with safetensors.safe_open(path, "numpy") as opened:
        assert opened.metadata() == {"format": "np"}


SLICES = [
    np.s_[2:5], np.s_[3], np.s_[-1], np.s_[1:7, 3:5], np.s_[::-1], np.s_[:, 1], np.s_[5:2], ..., np.s_[0, 0],
    np.s_[[1, 3]], np.s_[None, 2], np.s_[1:20:3], np.eye(8, 12) > 0, (),
]  # fmt: skip


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_types_under_8_bits_are_packed(name, tmp_path):
    row = dtypes.get(name)
    x = (np.arange(96) * 7 % (row.value_mask + 1)).astype(np.uint8).view(getattr(ml_dtypes, name)).reshape(8, 12)
    data = tb.dumps({"x": x, "y": x[:0], "z": np.int8([1])}, "safetensors")
    found = dict(safetensors.deserialize(data))
    assert (found["x"]["dtype"], found["x"]["shape"]) == (row.safetensors, [8, 12])
    raw = bytes(found["x"]["data"])
    assert len(raw) == 96 * row.bits // 8
    stream = int.from_bytes(raw, "little")  # the first element in the lowest bits
    assert [stream >> row.bits * i & row.value_mask for i in range(96)] == x.view(np.uint8).reshape(-1).tolist()
    assert same(tb.loads(data)["x"], x)
    (tmp_path / "x.safetensors").write_bytes(data)
    with tb.open(tmp_path / "x.safetensors") as opened:
        lazy = opened["x"]
        assert (lazy.dtype, lazy.shape, lazy.nbytes) == (name, (8, 12), 96)
        for index in SLICES:
            assert same(np.asarray(lazy[index]), np.asarray(x[index]))
        with pytest.raises(IndexError):
            lazy[8]
        assert same(lazy.load(), x)


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn"])
def test_rows_that_start_inside_a_byte(name):
    row = dtypes.get(name)
    x = (np.arange(24) * 5 % (row.value_mask + 1)).astype(np.uint8).reshape(8, 3)
    packed = _packed.deferred(row, (8, 3), memoryview(_packed.pack(x.reshape(-1), row.bits)), 0)
    for first in range(8):
        assert bytes(packed.part(first).data) == x[first].tobytes()
        for last in range(9):
            assert bytes(packed.part(np.s_[first:last]).data) == x[first:last].tobytes()


def test_a_slice_unpacks_its_rows_alone(monkeypatch):
    row = dtypes.get("float6_e2m3fn")
    packed = _packed.deferred(row, (1000, 3, 4), memoryview(bytes(9000)), 0)
    sizes = []
    whole = _packed.unpack
    monkeypatch.setattr(_packed, "unpack", lambda raw, *rest: sizes.append(len(raw)) or whole(raw, *rest))
    assert packed.part(np.s_[10:12]).shape == (2, 3, 4)
    assert packed.part(5).shape == (3, 4)
    assert sizes == [18, 9]


# ---- structures, notes, refusals --------------------------------------------

STRUCTURES = {
    "bare": np.arange(3.0),
    "bare scalar": np.float32(2),
    "number": 3,
    "none": None,
    "empty list": [],
    "empty dict": {},
    "list": [np.zeros(2), np.ones(3, np.int8)],
    "tuple": (np.zeros(2), {"a": np.ones(1)}),
    "nested": {"b": {"c": np.zeros(2), "a": [np.ones(1), 5, 2.5, True, None]}, "a": np.ones(2, np.uint8)},
    "numbered": {2: np.zeros(1), 1: np.ones(1, np.int64)},
    "slash": {"a/b": np.zeros(1), "a": {"b": np.ones(1)}},
    "named tensor": {"tensor": np.zeros(1)},
    "lists of numbers": {"x": [1, 2, 3], "y": (0.5,), "z": [True]},
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_come_back(name, tmp_path):
    x = STRUCTURES[name]
    path = tmp_path / "x.safetensors"
    tb.save(x, path)
    for got in (tb.load(path), tb.load(path, mmap=True), tb.open(path)[0]):
        assert tb.equal(got, x)
    safetensors.numpy.load_file(path)


def test_only_what_a_header_can_t_say_gets_a_note():
    assert "__metadata__" not in header_of(tb.dumps({"x": torch.zeros(2), "y": np.zeros(1)}, "safetensors"))
    data = tb.dumps({"a": [np.zeros(1)], "b": np.ones(1)}, "safetensors", meta={"k": "v"})
    meta = header_of(data)["__metadata__"]
    assert meta.keys() == {"k", "tensorbytes"}
    assert json.loads(meta["tensorbytes"]) == {
        "a/0": {"path": [["key", "a"], ["list", 0]], "index": 0},
        "b": {"index": 1},
    }


def test_a_single_tensor_has_its_metadata_where_others_look():
    data = tb.dumps(np.zeros(2), "safetensors", name="w", meta={"unit": "m"})
    header = header_of(data)
    assert header["w"]["shape"] == [2]
    assert header["__metadata__"]["unit"] == "m"
    got = tb.loads(data, to="tensor")
    assert (got.name, got.meta) == ("w", {"unit": "m"})
    assert list(header_of(tb.dumps(np.zeros(2), "safetensors"))) == ["__metadata__", "tensor"]


def test_metadata_of_an_empty_dict(tmp_path):
    tb.save({}, tmp_path / "x.safetensors", meta={"a": "b"})
    assert header_of((tmp_path / "x.safetensors").read_bytes()) == {"__metadata__": {"a": "b"}}
    with tb.open(tmp_path / "x.safetensors") as opened:
        assert (opened.meta, opened[0]) == ({"a": "b"}, {})


def test_metadata_of_single_tensors_in_a_dict():
    x = {"t": np.array(["2020-01-01"], "datetime64[D]")}
    got = tb.loads(tb.dumps(x, "safetensors", extended=True))
    assert same(got["t"], x["t"])


def test_our_key_is_taken():
    with pytest.raises(LossError) as error:
        tb.dumps({"x": np.zeros(1)}, "safetensors", meta={"tensorbytes": "{}"})
    assert error.value.feature == "meta"
    data = tb.dumps({"x": np.zeros(1)}, "safetensors", meta={"tensorbytes": "{}", "a": "b"}, allow={"meta"})
    assert header_of(data)["__metadata__"] == {"a": "b"}


@pytest.mark.parametrize("x", [{"\ud800": np.zeros(1)}, {"a": {"\ud800": np.zeros(1)}}])
def test_names_are_text(x):
    with pytest.raises(UnsupportedError, match="UTF-8"):
        tb.dumps(x, "safetensors")
    with pytest.raises(UnsupportedError, match="UTF-8"):
        tb.dumps({"x": np.zeros(1)}, "safetensors", meta={"\ud800": "a"})


def test_the_name_of_the_metadata_is_taken():
    with pytest.raises(LossError) as error:
        tb.dumps({"__metadata__": np.zeros(1)}, "safetensors")
    assert error.value.feature == "name"


REFUSED = {
    "dtype": {"x": np.zeros(2, np.complex128)},
    "dtype, integers of 4 bits": {"x": np.zeros(2, ml_dtypes.int4)},
    "dtype, times": {"x": np.zeros(2, "datetime64[s]")},
    "dtype, half a byte": {"x": np.zeros(3, ml_dtypes.float4_e2m1fn)},
    "dtype, of a number": {"x": 1j},
    "strings": {"x": np.array(["a", "bc"])},
    "strings, of Python": {"x": "text"},
    "ragged": lambda: {"x": torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)},
    "sparse": {"x": torch.eye(3).to_sparse()},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_others_would_misread_is_refused_unless_asked_for(case):
    x = REFUSED[case]
    x = x() if callable(x) else x  # torch takes three seconds for its first nested tensor
    with pytest.raises(LossError, match=r"\('x'\).*extended=True") as error:
        tb.dumps(x, "safetensors")
    assert error.value.feature == case.partition(",")[0]
    data = tb.dumps(x, "safetensors", extended=True)
    assert tb.equal(tb.loads(data, to="original"), x)
    safetensors.deserialize(data)
    with tb.open(io.BytesIO(data), to="original") as opened:
        assert tb.equal(opened[0], x)


def test_complex128_is_pairs_to_others():
    x = numbers("complex128", (2, 3))
    data = tb.dumps({"x": x}, "safetensors", extended=True)
    assert same(safetensors.numpy.load(data)["x"], x.view(np.float64).reshape(2, 3, 2))
    assert same(tb.loads(data)["x"], x)


@pytest.mark.parametrize("framework", ["numpy", "torch", "scipy"])
def test_extended_keeps_everything(framework, monkeypatch):
    """The contract of complete formats, to which the plain form does not pretend."""
    monkeypatch.setattr(contract, "FULL", contract.FULL | {"safetensors"})
    monkeypatch.setattr(contract, "_dumps", lambda x, format: {"": tb.dumps(x, format, extended=True)})
    cases = testing.cases(framework)
    testing.check_cases(cases[:: 1 + len(cases) // 250], "safetensors")


@pytest.mark.parametrize("options", [{"extended": 1}, {"max_shard_bytes": 5}, {"extend": True}], ids=str)
def test_wrong_options(options):
    with pytest.raises(UsageError):
        tb.dumps(np.zeros(1), "safetensors", **options)


def test_losses_come_before_the_old_file_is_touched(tmp_path):
    path = tmp_path / "x.safetensors"
    tb.save({"x": np.zeros(1)}, path)
    before = path.read_bytes()
    with pytest.raises(LossError):
        tb.save({"x": np.zeros(1), "y": "text"}, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


# ---- lazy -------------------------------------------------------------------


def test_slices_are_views_of_the_map(tmp_path):
    x = {"a": numbers("float32", (100, 8)), "b": numbers("bool", (50,)), "c": numbers("int16", ())}
    path = tmp_path / "x.safetensors"
    tb.save(x, path)
    with tb.open(path) as opened:
        assert opened.keys() == ["a", "c", "b"]
        for name in x:
            assert same(opened[name].load(), x[name])
        for index in (np.s_[3:7], np.s_[::-3], np.s_[5], np.s_[..., 2]):
            assert same(opened["a"][index], x["a"][index])
        assert not opened["a"][3:7].flags.writeable
        assert not opened["a"].load().flags.owndata


def test_damage_elsewhere_does_not_matter_to_a_slice(tmp_path):
    path = tmp_path / "x.safetensors"
    tb.save({"a": np.arange(4, dtype=np.int32), "b": np.zeros(3, bool)}, path)
    data = bytearray(path.read_bytes())
    data[-1] = 7  # no bool
    path.write_bytes(data)
    with tb.open(path) as opened:
        assert opened["a"].load().tolist() == [0, 1, 2, 3]
        assert opened["b"][:2].tolist() == [False, False]
        with pytest.raises(CorruptError, match=r"x\.safetensors.*is not a valid bool"):
            opened["b"].load()
    with pytest.raises(CorruptError):
        tb.load(path)


def test_opening_reads_the_header_alone(tmp_path):
    path = tmp_path / "x.safetensors"
    head = file({"x": entry("F32", (1 << 38,), (0, 1 << 40))})
    with open(path, "wb") as out:
        out.write(head)
        out.truncate(len(head) + (1 << 40))  # a hole of a tebibyte
    with tb.open(path) as opened:
        assert opened["x"].shape == (1 << 38,)
        assert opened["x"][-2:].tolist() == [0, 0]


def test_loaded_arrays_are_writable_and_aligned(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"a": numbers("float64", (3,)), "b": numbers("int8", (5,))}, path)
    got = tb.load(path)
    assert all(x.flags.writeable and x.flags.aligned for x in got.values())


MISALIGNED = BOTH["59 misaligned"][0]


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow", "tensor"])
def test_misaligned_tensors_are_right_everywhere(to, tmp_path):
    want = np.frombuffer(bytes(range(1, 17)), np.float64)
    path = tmp_path / "x.safetensors"
    path.write_bytes(MISALIGNED)
    with testing.setting("jax"):
        for got in (tb.loads(MISALIGNED, to=to), tb.load(path, to=to), tb.load(path, to=to, mmap=True)):
            b = got["b"].numpy() if to == "tensor" else got["b"]
            assert np.asarray(b).tobytes() == want.tobytes()
            assert bool((b + b)[0] == want[0] * 2)


def test_large_files_are_read_by_two_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_LARGE_READ", 10_000)
    calls = []
    read_at = storage.read_at
    monkeypatch.setattr(
        storage, "read_at", lambda file, room, at: calls.append((at, len(room))) or read_at(file, room, at)
    )
    for size in (9_999, 10_000, 12_288, 1_000_003):
        calls.clear()
        path = tmp_path / "x"
        want = np.random.default_rng(size).bytes(size)
        path.write_bytes(want)
        assert bytes(storage.read(path)) == want
        assert len(calls) == (1 if size < 10_000 else 2)
        assert sum(count for _, count in calls) == size


def test_a_file_that_shrinks_while_two_threads_read_it(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_LARGE_READ", 10_000)
    path = tmp_path / "x"
    path.write_bytes(bytes(100_000))
    prepare = storage.aligned_memory
    monkeypatch.setattr(
        storage, "aligned_memory", lambda size, phase: (path.write_bytes(bytes(60_000)), prepare(size, phase))[1]
    )
    with pytest.raises(CorruptError, match="shorter"):
        storage.read(path)


# ---- large files on their way to the disk -----------------------------------


def test_the_disk_takes_large_files_while_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_FLUSH_BYTES", 1 << 20)
    flushed = []
    flush = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: flushed.append(os.fstat(fd).st_size) or flush(fd))
    x = {"x": np.random.default_rng(0).integers(0, 256, 5 << 20, np.uint8), "y": np.arange(10)}
    tb.save(x, tmp_path / "x.safetensors")
    assert flushed
    assert flushed[0] >= 1 << 20
    assert all_same(tb.load(tmp_path / "x.safetensors"), x)
    flushed.clear()
    tb.save(x, tmp_path / "x.safetensors", sync=False)
    assert not flushed


def test_an_error_of_the_disk_on_the_way_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    tb.save({"x": np.zeros(1)}, path)
    before = path.read_bytes()
    monkeypatch.setattr(storage, "_FLUSH_BYTES", 1 << 20)

    calls = []

    def fail_once(fd):
        calls.append(fd)
        if len(calls) == 1:
            raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "fdatasync", fail_once)
    with pytest.raises(OSError, match="the disk is gone"):
        tb.save({"x": np.zeros(1 << 20)}, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.safetensors"]
