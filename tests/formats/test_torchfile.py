"""Files of torch.save, read without torch: torch itself is the oracle."""

import collections
import io
import subprocess
import sys
import tarfile
import warnings
import zipfile

import numpy as np
import pytest
import torch
import torch._dynamo  # torch reads its own jagged tensors only with this

import tensorbytes as tb
from tensorbytes import testing
from tensorbytes.testing.case import difference
from tests.support.tiers import deep_but
from tests.support.torch_bytes import archive, number, rezipped, saved, storage, tensor, text, whole

DTYPES = sorted({case.dtype for case in testing.cases("torch")})


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces prototypes, and its own storages as deprecated
        yield


def same(a, b):
    """Whether two structures of torch are the same: types, values, flags."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and not difference(
            testing.fingerprint(a, "torch"), testing.fingerprint(b, "torch"), ("memory.",)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a)


def torch_load(data, original):
    """What torch makes of its own bytes; the original where it can't read them."""
    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        return original


@pytest.mark.parametrize("old", [False, True], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("dtype", deep_but(list(DTYPES)[::3], DTYPES))
def test_every_tensor_that_torch_saves_is_read_as_torch_reads_it(dtype, old):
    read = 0
    for case in testing.cases("torch", dtype):
        try:
            x = case.build()
            data = saved(x, _use_new_zipfile_serialization=not old)
        except Exception:
            continue  # torch can't save it
        try:
            got = tb.loads(data, to="torch")
        except (tb.errors.UnsupportedError, tb.errors.CorruptError):
            assert testing.refusal(case.id), f"{case.id} is refused"
            continue
        read += 1
        assert same(torch_load(data, x), got), case.id
    assert read or dtype == "other" or dtype.startswith(("int1", "int2", "int4", "uint1", "uint2", "uint4"))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 4, 32)
        self.norm = torch.nn.BatchNorm1d(16)
        self.tied = torch.nn.Linear(16, 8, bias=False)
        self.head = torch.nn.Linear(16, 8, bias=False)
        self.head.weight = self.tied.weight


def checkpoint():
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3).state_dict(),
        "epoch": 7,
        "best": 0.25,
        "rng": torch.get_rng_state(),
    }


STRUCTURES = {
    "state_dict": lambda: torch.nn.Linear(3, 4).state_dict(),
    "empty state_dict": lambda: torch.nn.Sequential().state_dict(),
    "checkpoint": checkpoint,
    "numbers": lambda: [0, -1, 255, 256, 65536, -(2**31), 2**31, 2**63, -(2**64), 2**2039, 1.5, float("inf"), True],
    "text and bytes": lambda: {"a": "ä\0\U0001f600", "b": b"\x00\xff", "c": b"", "d": "", "e": None, "f": 1 - 2j},
    "containers": lambda: {"a": [], "b": (), "c": {}, "d": [[1], (2, "x"), {3: {4: torch.ones(1)}}], -5: ((),)},
    "lists of one kind": lambda: [[1, 2], ["a"], [b"a", b""], (0.5,), [True, False]],
    "shared": lambda: (lambda x: [x, x, x[0], [x, {"a": x}]])(torch.arange(6.0).reshape(2, 3)),
    "views": lambda: (lambda x: {"all": x, "row": x[1], "column": x[:, 1], "t": x.t()})(torch.arange(12).reshape(3, 4)),
    "a number": lambda: 5,
    "text": lambda: "only",
    "nothing": lambda: None,
    "Parameters": lambda: [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)],
    "Counter": lambda: collections.OrderedDict([("b", 1), ("a", 2)]),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("old", [False, True], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_structures_come_back_as_torch_gives_them(structure, old, protocol):
    x = STRUCTURES[structure]()
    data = saved(x, _use_new_zipfile_serialization=not old, pickle_protocol=protocol)
    expected = torch.load(io.BytesIO(data), weights_only=False)
    assert same(expected, tb.loads(data, to="torch"))


def test_what_is_read_as_something_else():
    x = {
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "cpu": torch.device("cpu"),
        "gpu": torch.device("cuda", 1),
    }
    assert tb.loads(saved(x)) == {"size": (2, 3), "dtype": "torch.bfloat16", "cpu": "cpu", "gpu": "cuda:1"}
    assert tb.loads(saved([torch.strided])) == ["torch.strided"]


def test_the_metadata_of_state_dicts_is_kept(tmp_path):
    x = {"model": torch.nn.BatchNorm1d(3).state_dict(), "other": [torch.nn.Linear(1, 1).state_dict()]}
    torch.save(x, tmp_path / "x.pt")
    with tb.open(tmp_path / "x.pt") as file:
        found = file.origin["torch._metadata"]
        assert file.meta == {}
    assert found == ('[[[["key","model"]],{"":{"version":2}}],[[["key","other"],["list",0]],{"":{"version":1}}]]')


def test_metadata_of_the_tensors():
    x = [torch.nn.Parameter(torch.ones(1)), torch.ones(1, requires_grad=True), torch.ones(1)]
    first, second, third = tb.loads(saved(x), to="tensor")
    assert first.origin == {"framework": "torch", "type": "Parameter", "requires_grad": "true"}
    assert second.origin == {"framework": "torch", "requires_grad": "true"}
    assert third.origin == {"framework": "torch"}
    assert first.meta == second.meta == third.meta == {}


def test_a_device_is_kept_and_asks_for_itself():
    data = archive(whole(tensor(held=storage(location="cuda:3"))))
    assert tb.loads(data, to="tensor").origin["device"] == "cuda:3"
    assert tb.loads(data, to="torch").device.type == "cpu"  # as with map_location="cpu"


@pytest.mark.parametrize("dtype", ["float32", "int16", "complex64", "complex32", "bool", "uint8", "bfloat16"])
def test_the_other_byte_order(dtype):
    x = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    data = saved([x, x.t(), x[1:]])
    little = zipfile.ZipFile(io.BytesIO(data)).read("archive/data/0")
    width = x.itemsize // (2 if x.is_complex() else 1)
    big = np.frombuffer(little, f"u{width}").byteswap().tobytes()
    turned = rezipped(data, byteorder=b"big", **{"data/0": big})
    assert same([x, x.t(), x[1:]], tb.loads(turned, to="torch"))


def test_files_that_someone_compressed():
    x = {"a": torch.arange(1000.0), "b": torch.zeros(3)}
    assert same(x, tb.loads(rezipped(saved(x), zipfile.ZIP_DEFLATED), to="torch"))


def test_files_without_checksums(tmp_path):
    try:
        torch.serialization.set_crc32_options(False)
        data = saved({"a": torch.arange(5)})
    finally:
        torch.serialization.set_crc32_options(True)
    assert tb.loads(data)["a"].tolist() == [0, 1, 2, 3, 4]


def test_checksums_are_checked(tmp_path):
    data = bytearray(saved({"a": torch.arange(5), "b": torch.arange(100, 105)}))
    data[data.index((103).to_bytes(8, "little"))] ^= 1
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    with pytest.raises(tb.errors.CorruptError, match="checksum"):
        tb.loads(bytes(data))
    with pytest.raises(tb.errors.CorruptError, match="checksum"):
        tb.load(path)
    with tb.open(path) as file:
        assert file["a"].load().tolist() == [0, 1, 2, 3, 4]
        assert file["b"][0] == 100  # a slice checks nothing
        with pytest.raises(tb.errors.CorruptError, match="checksum"):
            file["b"].load()


def test_large_files_are_read_in_pieces(tmp_path):
    x = {"a": torch.randn(1 << 19), "b": torch.arange(9), "c": torch.randn(1 << 18, 2).t(), "d": torch.zeros(0)}
    path = tmp_path / "x.pt"
    torch.save(x, path)
    assert same(x, tb.load(path, to="torch"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(tb.errors.CorruptError, match=r"x\.pt.*checksum"):
        tb.load(path)


def test_lazy_entries_are_views_and_slices(tmp_path):
    base = torch.arange(60, dtype=torch.int32).reshape(3, 4, 5)
    x = {
        "plain": base,
        "turned": base.permute(2, 0, 1),
        "wide": torch.ones(1).expand(1000, 1000),
        "s": base.to_sparse(),
    }
    torch.save(x, tmp_path / "x.pt")
    with tb.open(tmp_path / "x.pt") as file:
        assert file.format == "torchfile"
        assert file.keys() == ["plain", "turned", "wide", "s"]
        assert file["turned"].shape == (5, 3, 4)
        assert file["turned"][1:3, ..., 2].tolist() == x["turned"][1:3, ..., 2].tolist()
        assert not file["plain"].load().flags.writeable  # of the map
        assert file["wide"][5, :3].tolist() == [1.0, 1.0, 1.0]
        assert file["s"].kind == "sparse"
        for name, expected in x.items():
            assert same(expected, tb.load(tmp_path / "x.pt", names=[name], to="torch")[name])


def test_mapped_tensors_of_torch_share_the_map_and_keep_their_changes(tmp_path):
    torch.save({"a": torch.arange(6.0)}, tmp_path / "x.pt")
    before = (tmp_path / "x.pt").read_bytes()
    got = tb.load(tmp_path / "x.pt", mmap=True, to="torch")["a"]
    got += 1
    assert got.tolist() == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "x.pt").read_bytes() == before


def test_opening_reads_no_content(tmp_path):
    x = {f"{i}": torch.full((4096,), float(i)) for i in range(8)}
    data = bytearray(saved(x))
    for i in range(8):  # every storage is damaged
        at = data.index(np.full(4096, i, np.float32).tobytes()) if i else data.index(bytes(4096 * 4))
        data[at] ^= 0xFF
    (tmp_path / "x.pt").write_bytes(data)
    with tb.open(tmp_path / "x.pt") as file:
        assert [file[str(i)][17] for i in range(8)] == list(range(8))


def test_recognised_by_content(tmp_path):
    torch.save({"state_dict": {"w": torch.ones(2)}}, tmp_path / "last.ckpt")
    assert tb.load(tmp_path / "last.ckpt")["state_dict"]["w"].tolist() == [1, 1]
    (tmp_path / "plain").write_bytes(saved(torch.ones(2), _use_new_zipfile_serialization=False))
    assert tb.load(tmp_path / "plain").tolist() == [1, 1]


def test_programs_are_refused_by_their_kind(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "script.pt")
    with pytest.raises(tb.errors.UnsupportedError, match="TorchScript"):
        tb.load(tmp_path / "script.pt")
    exported = archive(whole(b"N"), archive_format=b"pt2", prefix="x/")
    with pytest.raises(tb.errors.UnsupportedError, match=r"torch\.export"):
        tb.loads(exported, "torchfile")


def test_the_oldest_format_is_refused():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("storages"))
    with pytest.raises(tb.errors.UnsupportedError, match="tar archive"):
        tb.loads(file.getvalue(), "torchfile")


REFUSED = {
    "a set": ({"a": {1, 2}}, r"a set at 'a'"),
    "a set alone": ({1}, "a set"),
    "a frozenset": ([frozenset([1])], "frozenset"),
    "a NumPy array of objects": (np.array([{}], object), "NumPy array of Python objects"),
    "a NumPy scalar of two floats": ([np.longdouble(1)], "long double"),
    "a range": (range(3), "range"),
    "a bare storage": ([torch.ones(2).untyped_storage()], "a bare storage"),
    "a tuple as a key": ({(1, 2): 3}, "dict key of type tuple"),
    "a bool as a key": ({True: 3}, "dict key of type bool"),
    "a large integer as a key": ({1 << 63: 3}, "64-bit"),
    "a path": ([__import__("pathlib").PurePosixPath("x")], "PurePosixPath"),
    "a module": (torch.nn.Linear(1, 1), r"torch\.nn\.modules\.linear\.Linear"),
    "bits8": (torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "bits8"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("protocol", [2, 4])
def test_refused_by_name(case, protocol):
    x, words = REFUSED[case]
    with pytest.raises(tb.errors.UnsupportedError, match=words):
        tb.loads(saved(x, pickle_protocol=protocol))


def test_attributes_of_tensors_are_not_lost_in_silence():
    x = torch.ones(2)
    x.scale = 3
    with pytest.raises(tb.errors.UnsupportedError, match="attribute 'scale'"):
        tb.loads(saved(x))
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.sharded = True
    with pytest.raises(tb.errors.UnsupportedError, match="attribute 'sharded'"):
        tb.loads(saved([parameter]))


def test_python_2_spelled_things_otherwise():
    """SHORT_BINSTRING for text, an OrderedDict as a list of pairs, a storage that is a part of another."""
    key = b"U\x01w"
    pairs = b"ccollections\nOrderedDict\n(]](" + key + tensor() + b"ea" + b"tR"
    assert tb.loads(archive(whole(pairs)))["w"].tolist() == [[0, 0, 0], [0, 0, 0]]
    data = saved(torch.arange(6.0), _use_new_zipfile_serialization=False)
    at = data.index(b"K\x06Nt")
    window = b"K\x06(" + text("v") + number(2) + number(3) + b"tt"
    changed = data[:at] + window + data[at + 4 :]
    changed = changed.replace(b"K\x00K\x06\x85", b"K\x00K\x03\x85")
    assert tb.loads(changed).tolist() == [2, 3, 4]


def test_reading_needs_no_torch(tmp_path):
    torch.save({"a": torch.arange(3), "q": torch.ones(2, 2).to_sparse_csr()}, tmp_path / "x.pt")
    code = (
        "import sys, pickle, _pickle; sys.modules['torch'] = None\n"
        "import tensorbytes as tb\n"
        "pickle.load = pickle.loads = pickle.Unpickler = _pickle.Unpickler = _pickle.loads = None\n"
        f"print(tb.load({str(tmp_path / 'x.pt')!r})['a'].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1, 2]\n"
