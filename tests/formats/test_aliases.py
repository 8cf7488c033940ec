"""Tied tensors: the same view of the same memory is one tensor, in every format that can say so, and told elsewhere."""

import io
import json
import os

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch

import tensorbytes as tb
from tensorbytes import formats, opening
from tests.support import CORPUS

torch = pytest.importorskip("torch")

KEEPS = ["tb", "torchfile", "safetensors", "delimited"]
LOSES = ["npz", "arrow", "parquet", "checkpoint"]


def tied():
    """A module whose third layer has the weight of the first, as language models have."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 64))
    module[2].weight = module[0].weight
    return module


def suffix(format):
    return formats.get(format).suffixes[0]


def save(obj, format, folder, **more):
    path = folder / f"x{suffix(format)}"
    tb.save(obj, path, format, **more)
    return path


def header(path):
    raw = path.read_bytes()
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


def are_tied(found, one="0.weight", two="2.weight"):
    return found[one].data_ptr() == found[two].data_ptr()


def same(found, want):
    assert found.keys() == want.keys()
    assert all(torch.equal(found[name], want[name]) for name in want)


# ---- through bytes and files -------------------------------------------------


@pytest.mark.parametrize("format", KEEPS)
def test_a_state_dict_is_stored_once_and_comes_back_tied(format, tmp_path):
    state = tied().state_dict()
    assert state["0.weight"] is not state["2.weight"]  # torch makes a new object for each name
    path = save(state, format, tmp_path)
    assert path.stat().st_size < 64 * 64 * 4 + 6000
    loaded = [
        tb.load(path, format, to="torch"),
        tb.load(path, format, to="torch", mmap=True),
        tb.loads(path.read_bytes(), format, to="torch"),
    ]
    for found in loaded:
        same(found, state)
        assert are_tied(found)
        found["0.weight"][0, 0] = 9  # which nothing but the tie sees
        assert found["2.weight"][0, 0] == 9
    arrays = tb.load(path, format)
    assert arrays["0.weight"] is arrays["2.weight"]
    with tb.open(path, format=format) as file:
        assert np.array_equal(file["2.weight"].load(), state["2.weight"])
        assert sorted(file.keys()) == sorted(state)
    document = next(opening.open_file(path, format).documents())
    values = {leaf.name: leaf.value for leaf in document.leaves}
    assert values["0.weight"] is values["2.weight"]


@pytest.mark.parametrize("format", KEEPS)
def test_assigning_keeps_the_weights_tied(format, tmp_path):
    module = tied()
    path = save(module.state_dict(), format, tmp_path)
    fresh = tied()
    fresh.load_state_dict(tb.load(path, format, to="torch"), assign=True)
    assert fresh[0].weight.data_ptr() == fresh[2].weight.data_ptr()
    same(fresh.state_dict(), module.state_dict())
    parameters = dict(module.named_parameters(remove_duplicate=False))
    path = save(parameters, format, tmp_path, **({"extended": True} if format == "safetensors" else {}))
    found = tb.load(path, format, to="original")
    assert found["0.weight"] is found["2.weight"]
    assert isinstance(found["0.weight"], torch.nn.Parameter)


@pytest.mark.parametrize("format", KEEPS)
def test_any_memory_layout(format, tmp_path):
    x = torch.arange(48.0).reshape(2, 3, 2, 4)
    last = x.to(memory_format=torch.channels_last)
    pairs = {
        "turned": x.permute(3, 2, 1, 0),
        "channels": last,
        "every other": x[..., ::2],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "complex": torch.view_as_complex(x.reshape(-1, 2)).conj(),
    }
    if format == "safetensors":
        del pairs["complex"]  # which it holds as complex64 alone
    obj = {name + end: t[...] if end == "2" else t for name, t in pairs.items() for end in "12"}
    found = tb.load(save(obj, format, tmp_path), format, to="torch")
    for name, t in pairs.items():
        assert found[name + "1"] is found[name + "2"], name
        assert torch.equal(found[name + "1"], t.resolve_conj())


def test_what_was_held_in_another_way_is_another_tensor():
    """A Parameter and its data share memory; as one tensor, one of them would come back as what it was not."""
    weight = torch.nn.Parameter(torch.ones(3))
    obj = {"weight": weight, "data": weight.data, "again": weight.data}
    for format in ("tb", "torchfile"):
        found = tb.loads(tb.dumps(obj, format), to="original")
        assert [type(x) for x in found.values()] == [torch.nn.Parameter, torch.Tensor, torch.Tensor]
        assert found["data"] is found["again"]
        assert found["data"].data_ptr() != found["weight"].data_ptr()
    x = torch.complex(torch.ones(2), torch.ones(2))
    found = tb.loads(tb.dumps({"x": x, "conjugate": x.conj(), "negative": x.conj().imag, "plain": x.imag}), to="torch")
    assert len({t.data_ptr() for t in found.values()}) == 4
    assert torch.equal(found["conjugate"], x.conj().resolve_conj())


@pytest.mark.parametrize("format", KEEPS)
def test_structures_and_other_values(format, tmp_path):
    text, x = np.array(["a", "bc"]), np.arange(3.0)
    ragged = tb.Ragged(tb.Tensor("int32", (3,), np.arange(3, dtype=np.int32)), (np.array([0, 1, 3]),))
    obj = {"a": {"x": x, "text": text}, "b": [x, text, 7, (ragged, ragged)], "a/x": x, "c": 7}
    options = {"extended": True} if format == "safetensors" else {}
    found = tb.load(save(obj, format, tmp_path, **options), format)
    assert tb.equal(found, obj)
    assert found["a"]["x"] is found["b"][0] is found["a/x"]
    assert found["a"]["text"] is found["b"][1]
    assert found["b"][3][0] is found["b"][3][1]


def test_equal_texts_are_not_one_array():
    """Python keeps one object for short texts: that is no alias."""
    obj = {name: np.array("a") for name in "xyz"}
    found = tb.loads(tb.dumps(obj, "torchfile"))
    assert tb.equal(found, obj)
    assert len({id(array) for array in found.values()}) == 3


# ---- torch's own files -------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch(zipped, tmp_path):
    state, path = tied().state_dict(), tmp_path / "x.pt"
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    for found in (
        tb.load(path, to="torch"),
        tb.load(path, to="torch", mmap=True),
        tb.loads(path.read_bytes(), to="torch"),
    ):
        same(found, state)
        assert are_tied(found)
    arrays = tb.loads(path.read_bytes())
    assert arrays["0.weight"] is arrays["2.weight"]


def test_torch_loads_ours_as_its_own():
    module, weight = tied(), torch.nn.Parameter(torch.ones(2))
    obj = {"state": module.state_dict(), "list": [weight, weight], "last": torch.ones(3).to_sparse()}
    obj["again"] = obj["last"]
    found = torch.load(io.BytesIO(tb.dumps(obj, "torchfile")), weights_only=True)
    assert are_tied(found["state"])
    assert found["list"][0] is found["list"][1]
    assert found["last"] is found["again"]
    plain = io.BytesIO()
    torch.save(obj, plain)
    ours = tb.dumps(obj, "torchfile")
    assert len(ours) < len(plain.getvalue()) + 200


def test_notes_of_a_tied_tensor_hold_for_all_its_places():
    """float4 has a note in torch files, and metadata has."""
    value = tb.Tensor("float4_e2m1fn", (3,), np.array([1, 2, 3], np.uint8), meta={"unit": "m"})
    others = {f"k{n}": tb.Tensor("float4_e2m1fn", (4,), np.full(4, n, np.uint8), meta={"n": str(n)}) for n in range(9)}
    found = tb.loads(tb.dumps({"a": value, "b": [value], **others}, "torchfile"), to="tensor")
    assert found["a"] is found["b"][0]
    assert found["a"] == value
    assert found["a"].meta == {"unit": "m"}
    assert all(found[name] == other and found[name].meta == other.meta for name, other in others.items())


def test_other_views_of_the_same_memory_come_apart(tmp_path):
    """As loads has always given them: whoever changes one of them changes one of them."""
    x = torch.arange(10.0)
    torch.save({"x": x, "head": x[:5], "tail": x[5:], "all": x[:]}, tmp_path / "x.pt")
    for found in (tb.load(tmp_path / "x.pt", to="torch"), tb.loads((tmp_path / "x.pt").read_bytes(), to="torch")):
        assert found["x"] is found["all"]
        for t in found.values():
            t.zero_()
        assert len({t.data_ptr() for t in found.values()}) == 3
    arrays = tb.load(tmp_path / "x.pt")
    arrays["x"][:] = 7
    assert arrays["head"].tolist() == [0, 1, 2, 3, 4]


def test_memory_for_views_that_overlap_is_limited(tmp_path):
    """A short file whose tensors are all of one storage must not take as many times its size."""
    x = torch.zeros(1 << 16)
    torch.save([x[n:] for n in range(200)], tmp_path / "x.pt")
    for act in (tb.load, lambda path, **more: tb.loads(path.read_bytes(), **more)):
        with pytest.raises(tb.errors.LimitError, match="share memory"):
            act(tmp_path / "x.pt", limits=tb.errors.Limits(max_bytes=1 << 22))
    assert len(tb.load(tmp_path / "x.pt")) == 200


def one_byte(metadata):
    """A safetensors file of one tensor, a."""
    table = {"__metadata__": metadata, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + b"\1"


# ---- safetensors -------------------------------------------------------------


def test_a_model_is_written_as_safetensors_writes_it(tmp_path):
    module = tied()
    safetensors.torch.save_model(module, str(tmp_path / "theirs.safetensors"), metadata={"format": "pt"})
    tb.save(module.state_dict(), tmp_path / "ours.safetensors", meta={"format": "pt"})
    theirs, ours = header(tmp_path / "theirs.safetensors"), header(tmp_path / "ours.safetensors")
    assert ours == theirs
    assert ours["__metadata__"] == {"format": "pt", "2.weight": "0.weight"}
    size = sum(end - begin for begin, end in (row["data_offsets"] for name, row in ours.items() if "__" not in name))
    one, two = ((tmp_path / f"{name}.safetensors").read_bytes()[-size:] for name in ("theirs", "ours"))
    assert one == two


def test_models_of_safetensors_load_with_all_their_names(tmp_path):
    module, path = tied(), tmp_path / "x.safetensors"
    safetensors.torch.save_model(module, str(path), metadata={"format": "pt", "author": "somebody"})
    found = tb.load(path, to="torch")
    same(found, module.state_dict())
    assert are_tied(found)
    with tb.open(path) as file:
        assert dict(file.meta) == {"format": "pt", "author": "somebody"}
        assert file["2.weight"].shape == (64, 64)
    fresh = tied()
    fresh.load_state_dict(found)  # strict
    assert "2.weight" not in tb.load(path, aliases=False)
    with tb.open(path, aliases=False) as file:
        assert file.meta["2.weight"] == "0.weight"


def test_safetensors_loads_ours(tmp_path):
    module, path, fresh = tied(), tmp_path / "x.safetensors", tied()
    tb.save(module.state_dict(), path)
    with torch.no_grad():
        fresh[0].weight.zero_()
    assert safetensors.torch.load_model(fresh, str(path)) == (set(), [])
    same(fresh.state_dict(), module.state_dict())
    assert fresh[0].weight is fresh[2].weight
    tb.save(module.state_dict(), path, aliases=False)
    assert safetensors.torch.load_file(str(path)).keys() == module.state_dict().keys()


X = np.arange(3.0)
METADATA = [
    ({"a": X, "b": X}, {}, True),
    ({"a": X, "b": X}, {"c": "a"}, True),
    ({"a": X, "b": X}, {"c": "b", "b2": "x"}, True),
    ({"a": X, "b": X}, {"b": "a"}, False),  # a key of the user's: both are stored
    ({"a": X, "b": X}, {"b": "something"}, False),
    ({"a": X, "b": X}, {"a": "b", "b": "a"}, False),
    ({"a": X}, {"best": "a"}, None),
    ({"pt": X}, {"format": "pt"}, None),
    ({"a": X, "tensorbytes": X}, {"format": "pt"}, False),
    ({"n": {"a": X, "b": X}}, {"x": "n/a", "y": "n/b"}, True),
]


@pytest.mark.parametrize(("obj", "meta", "kept"), METADATA, ids=str)
@pytest.mark.parametrize("extended", [False, True])
def test_keys_of_users_are_not_taken_for_names(obj, meta, kept, extended, tmp_path):
    path = tmp_path / "x.safetensors"
    tb.save(obj, path, meta=meta, extended=extended)
    found = tb.load(path)
    assert tb.equal(found, obj)
    with tb.open(path) as file:
        assert dict(file.meta) == meta
    inner = found.get("n", found)
    names = list(inner)
    if kept is not None:
        assert (inner[names[0]] is inner[names[1]]) == kept
        report = tb.convert(path, tmp_path / "y.tb")
        assert report.lossless
    for name, row in header(path).items():
        if name != "__metadata__":
            assert row["dtype"] == "F64"  # and safetensors itself reads what is there
    assert safetensors.numpy.load_file(str(path))


def test_several_files_share_the_names(tmp_path):
    path = tmp_path / "model.safetensors"
    obj = {"b": X, "a": X, "c": np.ones(3), "d": {"e": X}}
    tb.save(obj, path, max_shard_bytes=30, meta={"k": "v"})
    assert len(os.listdir(tmp_path)) == 3
    found = tb.load(path)
    assert tb.equal(found, obj)
    assert found["a"] is found["b"] is found["d"]["e"]
    with tb.open(path) as file:
        assert dict(file.meta) == {"k": "v"}


@pytest.mark.parametrize(
    "aliases",
    ["[]", '{"b":1}', '{"c":{}}', '{"b":{"x":1}}', '{"b":{"path":7}}', '{"b":{"path":[["key",1]]}}', '{"a":{}}'],
)
def test_notes_that_lie(aliases):
    raw = one_byte({"b": "a", "tensorbytes": f'{{"a":{{"aliases":{aliases}}}}}'})
    for lazy in (False, True):
        with pytest.raises(tb.errors.CorruptError):
            list(formats.get("safetensors").decode(memoryview(raw), tb.errors.Limits(), lazy, {}))


def test_very_many_names_of_one_tensor_are_limited():
    raw = one_byte({f"n{n}": "a" for n in range(3000)})
    assert len(tb.loads(raw)) == 3001
    with pytest.raises(tb.errors.LimitError):
        tb.loads(raw, limits=tb.errors.Limits(max_objects=2000))


def test_a_file_that_was_cut_off_tells_of_the_names_that_are_gone(tmp_path):
    obj = {"a": X, "b": X, "z": np.ones(3), "z2": np.zeros(3)}
    obj["y"] = obj["z"]
    tb.save(obj, tmp_path / "x.safetensors", meta={"k": "v"})
    raw = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(raw[: len(raw) - 24 - 8])  # into the tensor of y and z
    tb.repair(tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    found = tb.load(tmp_path / "y.safetensors")
    assert found.keys() == {"a", "b"}
    assert found["a"] is found["b"]
    with tb.open(tmp_path / "y.safetensors") as file:
        assert dict(file.meta) == {"k": "v"}


# ---- what convert tells ------------------------------------------------------


def losses(report):
    return [(loss.name, loss.feature) for loss in report.losses]


@pytest.mark.parametrize("source", ["torch", "tb", "safetensors"])
@pytest.mark.parametrize("target", [*KEEPS, *LOSES])
def test_conversion_keeps_the_tie_or_tells(source, target, tmp_path):
    state = tied().state_dict()
    path = tmp_path / "x.pt"
    if source == "torch":
        torch.save(state, path)
    else:
        path = save(state, source, tmp_path)
    to = tmp_path / f"y{suffix(target)}"
    report = tb.convert(path, to, format=target, verify=True)
    found = tb.load(to, target, to="torch")
    same(found, state)
    assert are_tied(found) == (target in KEEPS)
    assert losses(report) == ([] if target in KEEPS else [("2.weight", "aliases")])
    assert report.lossless == (target in KEEPS)
    assert ("nothing lost" in str(report)) == (target in KEEPS)


def test_conversion_tells_of_other_views_of_the_same_memory(tmp_path):
    x = torch.arange(10.0)
    torch.save({"x": x, "head": x[:5], "tail": x[5:], "apart": x + 1, "same": x[:]}, tmp_path / "x.pt")
    report = tb.convert(tmp_path / "x.pt", tmp_path / "y.tb")
    assert losses(report) == [("head", "aliases"), ("tail", "aliases")]
    assert "'x'" in report.losses[0].what
    assert losses(tb.convert(tmp_path / "x.pt", tmp_path / "y.pt", names=["head", "tail"])) == []
    found = tb.load(tmp_path / "y.tb")
    assert found["x"] is found["same"]
    torch.save({"a": x[:5], "b": x[5:]}, tmp_path / "h.pt")  # of one storage, and nothing in common
    assert tb.convert(tmp_path / "h.pt", tmp_path / "h.tb").lossless


def test_a_cast_is_done_once_and_keeps_the_tie(tmp_path):
    tb.save(tied().state_dict(), tmp_path / "x.tb")
    tb.convert(tmp_path / "x.tb", tmp_path / "y.tb", cast="bfloat16")
    found = tb.load(tmp_path / "y.tb", to="torch")
    assert found["0.weight"].dtype == torch.bfloat16
    assert are_tied(found)
    tb.convert(tmp_path / "x.tb", tmp_path / "z.tb", cast={"0.weight": "bfloat16"})
    found = tb.load(tmp_path / "z.tb", to="torch")
    assert (found["0.weight"].dtype, found["2.weight"].dtype) == (torch.bfloat16, torch.float32)


def test_a_file_for_each_tensor_tells_too(tmp_path):
    tb.save({"a": X, "b": X}, tmp_path / "x.tb")
    report = tb.convert(tmp_path / "x.tb", tmp_path / "{name}.npy")
    assert losses(report) == [("b", "aliases")]


def test_rows_tell_too(tmp_path):
    with tb.open(tmp_path / "x.tb", "w") as file:
        for _ in range(3):
            file.write({"a": X, "b": X})
    assert losses(tb.convert(tmp_path / "x.tb", tmp_path / "y.parquet")) == [("b", "aliases")]
    assert losses(tb.convert(tmp_path / "x.tb", tmp_path / "y.npz")) == [("b", "aliases")]
    assert tb.convert(tmp_path / "x.tb", tmp_path / "y.pbs", format="delimited").lossless
    tb.save({"a": X, "b": X}, tmp_path / "z.tb")
    assert losses(tb.convert(tmp_path / "z.tb", tmp_path / "z.tfrecord", unstack=0)) == [("b", "aliases")]


def test_golden_files_of_before_read_as_before():
    """A file whose writer knew of no aliases has none."""
    with tb.open(CORPUS / "valid" / "alias.tb") as file:
        assert len({id(leaf.value) for leaf in file._lazy()[0].leaves}) == 2
