"""tb.torch: the state of whole modules, through every format, with torch and safetensors as judges."""

import io
import pickle
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import safetensors.torch

import tensorbytes as tb
from tensorbytes.errors import StateDictError

torch = pytest.importorskip("torch")

SUFFIXES = ["tb", "safetensors", "pt", "npz", "parquet"]


class Model(torch.nn.Module):
    """Tied weights, buffers that are saved and one that is not, a normalisation with counts."""

    def __init__(self, rows=5):
        super().__init__()
        self.embed = torch.nn.Embedding(rows, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.head = torch.nn.Linear(4, rows, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(3))
        self.register_buffer("cache", torch.ones(2), persistent=False)


def model(seed, **sizes):
    torch.manual_seed(seed)
    return Model(**sizes)


def same(one, two):
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def saved(tmp_path):
    tb.torch.save_module(model(0), tmp_path / "m.tb")
    return tmp_path / "m.tb"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_module_comes_back_in_place(suffix, tmp_path):
    was, path, fresh = model(0), tmp_path / f"m.{suffix}", model(1)
    was.steps += 7
    tb.torch.save_module(was, path, meta={"step": "3"})
    weight, steps, memory = fresh.embed.weight, fresh.steps, fresh.embed.weight.data_ptr()
    optimizer = torch.optim.SGD(fresh.parameters(), 0.1)
    assert tb.torch.load_module(fresh, path) == ([], [])
    assert same(was, fresh)
    assert fresh.head.weight is fresh.embed.weight is weight
    assert fresh.steps is steps
    assert fresh.embed.weight.data_ptr() == memory
    assert optimizer.param_groups[0]["params"][0] is weight
    assert fresh.cache.tolist() == [1, 1]
    with tb.open(path) as file:
        assert file.meta["step"] == "3"


def test_torch_reads_what_is_saved_as_its_own():
    out, plain = io.BytesIO(), io.BytesIO()
    tb.torch.save_module(model(0), out, "torchfile")
    torch.save(model(0).state_dict(), plain)
    ours, theirs = (torch.load(io.BytesIO(x.getvalue()), weights_only=True) for x in (out, plain))
    assert type(ours) is type(theirs) is OrderedDict
    assert list(ours) == list(theirs)
    assert ours._metadata == theirs._metadata
    assert ours["head.weight"].data_ptr() == ours["embed.weight"].data_ptr()


def test_files_of_torch_and_safetensors(tmp_path):
    torch.save(model(0).state_dict(), tmp_path / "m.pt")
    safetensors.torch.save_model(model(0), str(tmp_path / "m.safetensors"))
    for name in ("m.pt", "m.safetensors"):
        fresh = model(1)
        assert tb.torch.load_module(fresh, tmp_path / name) == ([], [])
        assert same(fresh, model(0))
    tb.torch.save_module(model(2), tmp_path / "ours.safetensors")
    fresh = model(1)
    assert safetensors.torch.load_model(fresh, str(tmp_path / "ours.safetensors")) == (set(), [])
    assert same(fresh, model(2))


def test_a_name_that_is_tied_to_one_that_is_there_is_not_missing(tmp_path):
    state = model(0).state_dict()
    del state["head.weight"]
    tb.save(dict(state), tmp_path / "m.safetensors")
    fresh = model(1)
    assert tb.torch.load_module(fresh, tmp_path / "m.safetensors") == ([], [])
    assert same(fresh, model(0))


def test_every_difference_is_named_and_nothing_is_changed(tmp_path):
    state = dict(model(0).state_dict())
    state["embed.weight"] = state["head.weight"] = torch.ones(6, 4)
    state["norm.weight"] = state["norm.weight"].half()
    state["more"], state["steps"] = torch.ones(1), [1, 2, 3]
    del state["norm.bias"]
    tb.save(state, tmp_path / "m.tb")
    fresh = model(1)
    with pytest.raises(StateDictError) as raised:
        tb.torch.load_module(fresh, tmp_path / "m.tb")
    error = raised.value
    assert error.missing_keys == ("norm.bias",)
    assert error.unexpected_keys == ("more",)
    text = str(error)
    for words in (
        "embed.weight: shape [5, 4] in the module, [6, 4] in the file",
        "norm.weight: torch.float32 in the module, torch.float16 in the file",
        "steps: a tensor in the module, a list in the file",
        "norm.bias: missing",
        "more: unexpected",
        "allow={'dtype'}",
        str(tmp_path / "m.tb"),
    ):
        assert words in text
    assert same(fresh, model(1))
    with pytest.raises(StateDictError, match="shape"):
        tb.torch.load_module(fresh, tmp_path / "m.tb", strict=False, allow="dtype")
    again = pickle.loads(pickle.dumps(error))
    assert (again.missing_keys, str(again)) == (error.missing_keys, text)
    assert isinstance(error, RuntimeError)  # which is what torch raises


def test_names_are_told_as_torch_tells_them(tmp_path):
    class More(Model):
        def __init__(self):
            super().__init__()
            self.extra = torch.nn.Linear(2, 2)
            del self.norm

    state = model(0).state_dict()
    tb.torch.save_module(model(0), tmp_path / "m.tb")
    torch.manual_seed(1)
    ours, theirs = More(), More()
    told = theirs.load_state_dict(state, strict=False)
    found = tb.torch.load_module(ours, tmp_path / "m.tb", strict=False)
    assert found.missing_keys == told.missing_keys == ["extra.weight", "extra.bias"]
    assert found.unexpected_keys == told.unexpected_keys == ["norm.weight", "norm.bias"]
    assert torch.equal(ours.embed.weight, theirs.embed.weight)
    with pytest.raises(StateDictError, match="strict=False"):
        tb.torch.load_module(ours, tmp_path / "m.tb")


def test_dtypes_are_cast_only_on_request(tmp_path):
    tb.torch.save_module(model(0).half(), tmp_path / "m.tb")
    fresh = model(1)
    with pytest.raises(StateDictError, match="float16 in the file"):
        tb.torch.load_module(fresh, tmp_path / "m.tb")
    tb.torch.load_module(fresh, tmp_path / "m.tb", allow={"dtype"})
    assert fresh.embed.weight.dtype == torch.float32
    assert torch.equal(fresh.embed.weight, model(0).half().float().embed.weight)


def test_weights_that_are_tied_here_and_differ_in_the_file(tmp_path):
    untied = model(0)
    untied.head.weight = torch.nn.Parameter(untied.head.weight.detach() + 1)
    tb.torch.save_module(untied, tmp_path / "m.tb")
    with pytest.raises(StateDictError, match=r"head.weight: tied to 'embed.weight' in the module, and of"):
        tb.torch.load_module(model(1), tmp_path / "m.tb")
    tb.save({name: t.clone() for name, t in model(0).state_dict().items()}, tmp_path / "copies.tb")
    fresh = model(1)
    tb.torch.load_module(fresh, tmp_path / "copies.tb")
    assert same(fresh, model(0))


def test_modules_with_rules_of_their_own_decide_about_names(tmp_path):
    """BatchNorm does without a count that old files lack; a hook renames what old files called otherwise."""
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(3)
    state = dict(norm.state_dict())
    del state["num_batches_tracked"]
    tb.save(state, tmp_path / "m.safetensors")
    assert tb.torch.load_module(torch.nn.BatchNorm1d(3), tmp_path / "m.safetensors") == ([], [])

    def rename(module, state, prefix, *_):
        if prefix + "old" in state:
            state[prefix + "weight"] = state.pop(prefix + "old")

    layer = torch.nn.Linear(2, 2, bias=False)
    layer.register_load_state_dict_pre_hook(rename)
    tb.save({"old": torch.ones(2, 2)}, tmp_path / "old.tb")
    assert tb.torch.load_module(layer, tmp_path / "old.tb") == ([], [])
    assert layer.weight.sum() == 4
    tb.save({"other": torch.ones(2, 2)}, tmp_path / "other.tb")
    with pytest.raises(StateDictError, match="other: unexpected"):
        tb.torch.load_module(layer, tmp_path / "other.tb")


def test_versions_of_modules_are_those_of_the_file(tmp_path):
    seen = []

    class Versioned(torch.nn.Linear):
        _version = 7

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            seen.append(local_metadata.get("version"))
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    module = Versioned(2, 2)
    for suffix, version in {"tb": 7, "pt": 7, "npz": 7, "safetensors": None}.items():
        tb.torch.save_module(module, tmp_path / f"m.{suffix}")
        tb.torch.load_module(Versioned(2, 2), tmp_path / f"m.{suffix}")
        assert seen.pop() == version


def test_extra_state_is_kept(tmp_path):
    class Extra(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = None

        def get_extra_state(self):
            return {"step": 3, "scale": torch.ones(2)}

        def set_extra_state(self, state):
            self.value = state

    tb.torch.save_module(Extra(), tmp_path / "m.tb")
    fresh = Extra()
    tb.torch.load_module(fresh, tmp_path / "m.tb")
    assert fresh.value["step"] == 3
    assert fresh.value["scale"].tolist() == [1, 1]


@pytest.mark.parametrize("suffix", ["tb", "safetensors", "pt"])
def test_a_module_without_memory_gets_it_and_stays_tied(suffix, tmp_path):
    tb.torch.save_module(model(0), tmp_path / f"m.{suffix}")
    with torch.device("meta"):
        empty = Model()
    with pytest.raises(StateDictError, match="cache: on the 'meta' device, and not in the file"):
        tb.torch.load_module(empty, tmp_path / f"m.{suffix}")
    assert empty.embed.weight.is_meta
    empty.cache = torch.ones(2)
    tb.torch.load_module(empty, tmp_path / f"m.{suffix}", device="cpu")
    assert same(empty, model(0))
    assert empty.head.weight is empty.embed.weight
    assert isinstance(empty.embed.weight, torch.nn.Parameter)
    with torch.device("meta"):
        larger = torch.nn.Sequential(OrderedDict(embed=torch.nn.Embedding(5, 4), other=torch.nn.Linear(2, 2)))
    with pytest.raises(StateDictError, match=r"other.weight: on the 'meta' device"):
        tb.torch.load_module(larger, tmp_path / f"m.{suffix}", strict=False)


def test_a_lazy_module_takes_its_shape_from_the_file(tmp_path):
    tb.torch.save_module(torch.nn.Linear(3, 2), tmp_path / "m.tb")
    fresh = torch.nn.LazyLinear(2)
    tb.torch.load_module(fresh, tmp_path / "m.tb")
    assert fresh.weight.shape == (2, 3)


def test_bits_are_kept(tmp_path):
    module = torch.nn.Linear(2, 2, bias=False)
    bits = np.array([[0x7FC12345, 0xFF812345], [0x80000000, 1]], np.uint32)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(bits.view(np.float32)))
    tb.torch.save_module(module, tmp_path / "m.tb")
    fresh = torch.nn.Linear(2, 2, bias=False)
    tb.torch.load_module(fresh, tmp_path / "m.tb")
    assert np.array_equal(fresh.weight.detach().numpy().view(np.uint32), bits)


def test_what_is_not_the_state_of_a_module(tmp_path, saved):
    with pytest.raises(tb.errors.UsageError, match=r"expected a torch.nn.Module, got dict"):
        tb.torch.save_module({}, tmp_path / "x.tb")
    with pytest.raises(tb.errors.UsageError, match=r"expected a torch.nn.Module, got str"):
        tb.torch.load_module("m.tb", saved)
    tb.save(torch.ones(3), tmp_path / "one.tb")
    with pytest.raises(tb.errors.UsageError, match="a Tensor, not the state"):
        tb.torch.load_module(model(0), tmp_path / "one.tb")
    tb.save({1: torch.ones(3)}, tmp_path / "number.tb")
    with pytest.raises(tb.errors.UsageError, match="the key 1"):
        tb.torch.load_module(model(0), tmp_path / "number.tb")
    with tb.open(tmp_path / "stream.tb", "w") as file:
        file.write({"a": torch.ones(1)})
        file.write({"a": torch.ones(1)})
    with pytest.raises(tb.errors.UsageError, match="2 objects"):
        tb.torch.load_module(model(0), tmp_path / "stream.tb")
    with pytest.raises(tb.errors.UsageError, match="meta"):
        tb.torch.load_module(model(0), saved, device="meta")
    (tmp_path / "bad.tb").write_bytes(saved.read_bytes()[:-9])
    fresh = model(1)
    with pytest.raises(tb.errors.CorruptError):
        tb.torch.load_module(fresh, tmp_path / "bad.tb")
    assert same(fresh, model(1))


def test_names_from_a_file_do_no_harm_to_a_terminal(tmp_path):
    tb.save({f"\x1b[31m{n}": torch.ones(1) for n in range(100)}, tmp_path / "m.tb")
    with pytest.raises(StateDictError) as raised:
        tb.torch.load_module(torch.nn.Identity(), tmp_path / "m.tb")
    assert "\x1b" not in str(raised.value)
    assert "and 76 more" in str(raised.value)
    assert len(raised.value.unexpected_keys) == 100


def test_pipes_too(saved):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    fresh = model(1)
    assert tb.torch.load_module(fresh, Pipe(saved.read_bytes())) == ([], [])
    assert same(fresh, model(0))


def test_torch_is_loaded_when_it_is_used():
    code = "import sys, tensorbytes as tb; tb.torch.save_module; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys; sys.modules['torch'] = None; import tensorbytes as tb\ntb.torch.load_module(1, 'x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingDependencyError" in done.stderr
