"""Files that we write: torch.load(weights_only=True) reads them, mapped or not, and we read them back in full."""

import io
import json
import warnings
import zipfile

import numpy as np
import pytest
import torch

import tensorbytes as tb
from tensorbytes import dtypes, formats, testing
from tensorbytes.formats._torch.names import STORAGE_OF, UNTYPED
from tensorbytes.testing.case import difference
from tensorbytes.tree import Document, Leaf
from tests.support.tiers import deep_but
from tests.support.torch_bytes import pickled, saved

TORCH = sorted({case.dtype for case in testing.cases("torch")} - {"other"})
NATIVE = {*STORAGE_OF, *UNTYPED}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces prototypes, and its own storages as deprecated
        yield


def by_torch(path):
    """What torch reads, once read and once mapped: both must be the same."""
    got = torch.load(path, weights_only=True)
    mapped = torch.load(path, weights_only=True, mmap=True)
    assert tb.dumps(got) == tb.dumps(mapped)
    return got


def by_torch_itself(x):
    """What torch would give back had it saved the tensor; the tensor where it can't."""
    try:
        return torch.load(io.BytesIO(saved(x)), weights_only=True)
    except Exception:
        return x


@pytest.mark.parametrize("dtype", deep_but(list(TORCH)[::3], TORCH))
def test_torch_reads_every_tensor_of_its_own(dtype, tmp_path):
    path = tmp_path / "x.pt"
    for case in testing.cases("torch", dtype):
        x = case.build()
        try:
            tb.save(x, path, sync=False)
        except (tb.errors.UnsupportedError, tb.errors.LossError):
            assert testing.refusal(case.id)
            continue
        got = by_torch(path)
        jagged = x.is_nested and x.layout == torch.jagged
        if dtype not in NATIVE or jagged or (dtype == "float4_e2m1fn" and x.layout != torch.strided):
            continue  # torch can't load these from any file: it sees their parts
        # Memory formats come as a note, for us alone; and there are tensors that require grad which torch can't load.
        unread = dtype == "complex32" or (dtype == "complex64" and x.layout != torch.strided)
        ignore = ("memory.", "held.memory_format") + (("own.requires_grad",) if unread else ())
        expected = testing.fingerprint(by_torch_itself(x), "torch")
        assert not difference(expected, testing.fingerprint(got, "torch"), ignore), case.id


@pytest.mark.parametrize("dtype", [row.name for row in dtypes.DTYPES.values() if row.name != "datetime64"])
def test_torch_sees_the_bits_of_every_dtype(dtype, tmp_path):
    row = dtypes.get(dtype)
    count = 24
    raw = bytes(range(count)) if row.bits == 8 else np.arange(count * row.itemsize, dtype=np.uint8).tobytes()
    if row.bits < 8 or dtype == "bool":
        raw = bytes(n % (2 if dtype == "bool" else 1 << row.bits) for n in range(count))
    x = tb.Tensor(dtype, (2, count // 2), raw)
    tb.save({"x": x}, tmp_path / "x.pt")
    got = by_torch(tmp_path / "x.pt")["x"]
    if dtype == "float4_e2m1fn":
        assert got.view(torch.uint8).flatten().tolist() == [raw[n] | raw[n + 1] << 4 for n in range(0, count, 2)]
    else:
        assert got.contiguous().view(torch.uint8).numpy().tobytes() == raw
        assert tuple(got.shape) == x.shape
    back = tb.load(tmp_path / "x.pt", to="tensor")["x"]
    assert (back.dtype, back.shape, bytes(back.data), dict(back.meta)) == (dtype, x.shape, raw, {})


STRUCTURES = {
    "nested": {"a": [torch.arange(3), {"b": (torch.ones(2, 2), 5)}], 3: {"c": []}, "d": ()},
    "numbers": [0, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**64, -(2**2038)],
    "mixed": [1, 2.5, "x", b"\x00\xff", b"", "", None, True, False, 1 - 2j, [], {}, ()],
    "lists of one kind": {"i": [1, 2], "f": (0.5, -0.0), "s": ["a", "ä\0"], "b": [b"", b"x"], "t": [True]},
    "text": "only text",
    "nothing": None,
    "an empty dict": {},
    "deep": {"a": {"b": {"c": {"d": [[[[torch.ones(1)]]]]}}}},
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_structures_as_torch_sees_them(structure, tmp_path):
    x = STRUCTURES[structure]
    tb.save(x, tmp_path / "x.pt")
    assert tb.equal(by_torch(tmp_path / "x.pt"), x)
    assert tb.equal(tb.load(tmp_path / "x.pt", to="torch"), x)
    names = zipfile.ZipFile(tmp_path / "x.pt").namelist()
    assert "archive/tensorbytes.json" not in names


def test_a_module_can_load_what_we_write(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    tb.save(model.state_dict(), tmp_path / "x.pt")
    other = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    other.load_state_dict(by_torch(tmp_path / "x.pt"))
    assert tb.equal(dict(other.state_dict()), dict(model.state_dict()))


def test_the_metadata_of_state_dicts_goes_there_and_back(tmp_path):
    x = {"model": torch.nn.BatchNorm1d(3).state_dict(), "more": [torch.nn.Linear(1, 1).state_dict()]}
    torch.save(x, tmp_path / "x.pt")
    with tb.open(tmp_path / "x.pt", to="torch") as file:
        tb.save(file[0], tmp_path / "y.pt", origin=dict(file.origin))
    got = by_torch(tmp_path / "y.pt")
    assert got["model"]._metadata == x["model"]._metadata
    assert got["more"][0]._metadata == x["more"][0]._metadata
    with tb.open(tmp_path / "x.pt") as one, tb.open(tmp_path / "y.pt") as two:
        assert one.origin == two.origin
        assert one.meta == two.meta == {}


@pytest.mark.parametrize(
    "found", ["no JSON", "[]", "{}", "[[1]]", '[[[["key","zzz"]],{"":{"version":1}}]]', "[[[], 5]]"]
)
@pytest.mark.parametrize("of", ["origin", "meta"])
def test_metadata_that_fits_nowhere_stays_text(found, of, tmp_path):
    tb.save({"a": np.ones(1)}, tmp_path / "x.pt", **{of: {"torch._metadata": found}})
    by_torch(tmp_path / "x.pt")
    with tb.open(tmp_path / "x.pt") as file:
        assert getattr(file, of) == {"torch._metadata": found}


def test_an_empty_state_dict_keeps_its_metadata(tmp_path):
    torch.save(torch.nn.Sequential().state_dict(), tmp_path / "x.pt")
    with tb.open(tmp_path / "x.pt") as file:
        origin = dict(file.origin)
        tb.save(file[0], tmp_path / "y.pt", origin=origin)
    assert by_torch(tmp_path / "y.pt")._metadata == {"": {"version": 1}}
    with tb.open(tmp_path / "y.pt") as file:
        assert file.origin == origin
        assert file.meta == {}


def test_a_device_goes_into_the_file():
    x = tb.Tensor("float32", (2,), bytes(8), origin={"framework": "torch", "device": "cuda:1"})
    data = tb.dumps(x, "torchfile")
    assert b"cuda:1" in pickled(data)
    assert tb.loads(data, to="tensor").origin == x.origin
    other = tb.Tensor("float32", (2,), bytes(8), origin={"framework": "jax", "device": "TPU_0"})
    assert b"cpu" in pickled(tb.dumps(other, "torchfile"))
    assert tb.loads(tb.dumps(other, "torchfile"), to="tensor").origin == other.origin


def test_endless_integers_are_text_for_torch(tmp_path):
    x = {"a": 2**2040, "b": [1, -(2**9000)], "c": 2**2038}
    tb.save(x, tmp_path / "x.pt")
    assert by_torch(tmp_path / "x.pt") == {"a": str(2**2040), "b": ["1", str(-(2**9000))], "c": 2**2038}
    assert tb.load(tmp_path / "x.pt") == x


def test_strings_of_any_shape_are_lists_for_torch(tmp_path):
    x = {
        "words": np.array([["a", "ä"], ["", "ccc"]]),
        "raw": np.array([b"\xff", b""], object),
        "none": np.empty((2, 0), object),
        "empty": np.empty((0, 3), "U5"),
        "deep": np.array([[["x"]], [["y"]]]),
        "one": np.array("alone"),
    }
    tb.save(x, tmp_path / "x.pt")
    seen = by_torch(tmp_path / "x.pt")
    assert seen["words"] == [["a", "ä"], ["", "ccc"]]
    assert seen["raw"] == [b"\xff", b""]
    assert (seen["none"], seen["empty"], seen["deep"], seen["one"]) == ([[], []], [], [[["x"]], [["y"]]], "alone")
    assert tb.equal(tb.load(tmp_path / "x.pt"), x)
    with tb.open(tmp_path / "x.pt") as file:
        assert file["words"].shape == (2, 2)


def test_what_torch_has_no_layout_for_comes_in_parts(tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    x = {
        "ragged": tb.Ragged(tb.Tensor("int64", (3,), np.arange(3)), (np.array([0, 1, 1, 3]),)),
        "dia": sparse.dia_array((np.ones((1, 4)), [1]), shape=(4, 4)),
        "csr": sparse.csr_array(np.eye(3)),
        "unsorted": sparse.csr_array((np.ones(2), np.array([1, 0]), np.array([0, 2])), shape=(1, 2)),
        "coo": sparse.coo_array(np.eye(2)),
    }
    tb.save(x, tmp_path / "x.pt")
    seen = by_torch(tmp_path / "x.pt")
    assert seen["ragged"]["tensor"].tolist() == [0, 1, 2]
    assert seen["ragged"]["tensor.splits0"].tolist() == [0, 1, 1, 3]
    assert set(seen["dia"]) == {"tensor", "tensor.diagonals", "tensor.shape"}
    assert seen["csr"].layout == torch.sparse_csr
    assert isinstance(seen["unsorted"], dict)
    assert seen["coo"].to_dense().tolist() == [[1, 0], [0, 1]]
    assert tb.equal(tb.load(tmp_path / "x.pt", to="original"), x)
    back = tb.load(tmp_path / "x.pt", to="tensor")
    assert back["coo"].parts[0].dtype == np.int32


def test_names_and_metadata_are_notes(tmp_path):
    tb.save(np.arange(3), tmp_path / "x.pt", name="mine", meta={"unit": "cm"})
    assert by_torch(tmp_path / "x.pt").tolist() == [0, 1, 2]
    got = tb.load(tmp_path / "x.pt", to="tensor")
    assert (got.name, got.meta) == ("mine", {"unit": "cm"})
    tb.save({"a": np.arange(3), "n": np.float32(2), "s": 5}, tmp_path / "y.pt", meta={"run": "7"})
    notes = json.loads(zipfile.ZipFile(tmp_path / "y.pt").read("archive/tensorbytes.json"))
    assert notes == {
        "framework": "",
        "document": {"run": "7"},
        "leaves": [{"path": [["key", "n"]], "kind": "numpy"}],
    }
    got = tb.load(tmp_path / "y.pt")
    assert type(got["n"]) is np.float32
    with tb.open(tmp_path / "y.pt") as file:
        assert file.meta == {"run": "7"}


def test_plain_tensors_of_torch_need_no_notes():
    x = {"a": torch.ones(2), "b": torch.nn.Parameter(torch.ones(1)), "c": [1, "x"], "d": torch.ones(2).to_sparse()}
    with zipfile.ZipFile(io.BytesIO(tb.dumps(x, "torchfile"))) as file:
        assert sorted(file.namelist()) == sorted(
            ["archive/data.pkl", "archive/byteorder", "archive/version", *(f"archive/data/{n}" for n in range(4))]
        )
        assert file.testzip() is None


def test_storages_are_aligned_and_not_copied():
    x = {"a": torch.arange(100.0), "b": torch.arange(7, dtype=torch.int8), "c": torch.arange(5)}
    pieces = tb.buffers(x, "torchfile")
    addresses = {np.frombuffer(piece, np.uint8).ctypes.data for piece in pieces if len(memoryview(piece))}
    assert {part.data_ptr() for part in x.values()} <= addresses
    data = b"".join(pieces)
    for part in x.values():
        assert data.index(part.numpy().tobytes()) % 64 == 0


def test_empty_and_shared_tensors(tmp_path):
    shared = torch.arange(4.0)
    x = {"e": torch.zeros(0), "f": torch.zeros(3, 0, 2), "a": shared, "b": shared[1:], "z": torch.tensor(5)}
    tb.save(x, tmp_path / "x.pth")
    assert tb.equal(by_torch(tmp_path / "x.pth"), x)


def test_bytes_are_the_same_on_each_run():
    x = {"a": torch.ones(3), "b": [1, "x"], "c": np.array(["x"])}
    assert tb.dumps(x, "torchfile") == tb.dumps(x, "torchfile")


def test_gradients_that_torch_would_refuse_are_notes(tmp_path):
    for dtype, kind in (("int64", ""), ("int64", "Parameter"), ("quint8", ""), ("complex32", ""), ("bool", "Buffer")):
        origin = {"framework": "torch", "requires_grad": "true"} | ({"type": kind} if kind else {})
        x = tb.Tensor(dtype, (2,), bytes(2 * dtypes.get(dtype).itemsize), origin=origin)
        tb.save(x, tmp_path / "x.pt")
        assert not by_torch(tmp_path / "x.pt").requires_grad
        assert tb.load(tmp_path / "x.pt", to="tensor").origin == origin


def test_half_a_character_is_refused():
    with pytest.raises(tb.errors.UnsupportedError, match=r"surrogate|UTF-8"):
        tb.dumps(np.ones(1), "torchfile", name="\ud800")


def test_nesting_up_to_the_limit(tmp_path):
    x = {"text": np.array([[["a"]]]), "numbers": [1, 2], "tensor": np.ones(1)}
    for _ in range(63):
        x = [x]
    tb.save(x, tmp_path / "x.pt")
    torch.load(tmp_path / "x.pt", weights_only=True)
    assert tb.equal(tb.load(tmp_path / "x.pt"), x)


def test_nesting_beyond_the_limit_is_refused():
    x = tb.Tensor("int8", (1,), b"1")
    leaf = Leaf(x, (("list", 0),) * 65)
    with pytest.raises(tb.errors.UnsupportedError, match="deeper than 64"):
        formats.get("torchfile").dumps(Document([leaf]), frozenset(), {})


def test_a_module_is_no_tensor():
    for module in (torch.nn.Linear(2, 3), type("Own", (torch.nn.Module,), {})()):
        with pytest.raises(tb.errors.UnsupportedError, match=r"is a module; pass x\.state_dict\(\)"):
            tb.dumps(module, "torchfile")
