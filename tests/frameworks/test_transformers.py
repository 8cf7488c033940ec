"""Models of transformers, whose weights are tied: their files through us, and ours through them.

save_pretrained leaves tied weights out, and says so nowhere in the file: its metadata is {"format": "pt"}, and the
model ties them again. huggingface_hub's helpers list the names in the metadata, as safetensors does.
"""

import pytest

import tensorbytes as tb

# Importing transformers takes seconds. tests/formats/test_aliases.py and test_torch_modules.py have files of the same
# kinds that safetensors and torch write.
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def model():
    """A function that makes a small GPT-2 of some weights."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 16, "n_positions": 8}
    config = transformers.GPT2Config(bos_token_id=1, eos_token_id=2, **sizes)

    def make(seed):
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(config)

    return make


def same(one, two):
    return tb.equal(dict(one.state_dict()), dict(two.state_dict()))


def is_tied(module):
    return module.lm_head.weight is module.transformer.wte.weight


@pytest.mark.parametrize("sizes", [{}, {"max_shard_size": 2000}], ids=["one file", "shards"])
def test_what_save_pretrained_writes_loads_with_all_its_names(model, sizes, tmp_path):
    was, fresh = model(0), model(1)
    was.save_pretrained(tmp_path, **sizes)
    state = tb.load(tmp_path, to="torch")
    assert was.state_dict().keys() - state.keys() == {"lm_head.weight"}  # of which the file says nothing
    assert tb.torch.load_module(fresh, tmp_path) == ([], [])
    assert same(fresh, was)
    assert is_tied(fresh)


def test_a_module_saved_in_any_format_loads_into_another(model, tmp_path):
    for suffix in ("tb", "safetensors", "pt"):
        tb.torch.save_module(model(0), tmp_path / f"m.{suffix}")
        assert tb.load(tmp_path / f"m.{suffix}").keys() == model(0).state_dict().keys()
        fresh = model(1)
        assert tb.torch.load_module(fresh, tmp_path / f"m.{suffix}") == ([], [])
        assert same(fresh, model(0))
        assert is_tied(fresh)


@pytest.mark.parametrize("sizes", [{}, {"max_shard_bytes": 2000}], ids=["one file", "shards"])
def test_from_pretrained_reads_ours(model, sizes, tmp_path):
    was = model(0)
    was.config.save_pretrained(tmp_path)
    tb.torch.save_module(was, tmp_path / "model.safetensors", meta={"format": "pt"}, **sizes)
    found, told = type(was).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    assert same(found, was)
    assert is_tied(found)


def test_the_hub_s_own_helper_lists_the_names(model, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    was = model(0)
    hub.save_torch_model(was, tmp_path)
    found = tb.load(tmp_path, to="torch")
    assert found.keys() == was.state_dict().keys()
    assert tb.equal(found, dict(was.state_dict()))
    assert found["lm_head.weight"].data_ptr() == found["transformer.wte.weight"].data_ptr()
    with tb.open(tmp_path) as file:
        assert "lm_head.weight" not in file.meta
        assert file.meta["format"] == "pt"


def test_the_hub_s_own_helper_reads_ours(model, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    fresh = model(1)
    tb.torch.save_module(model(0), tmp_path / "model.safetensors", meta={"format": "pt"})
    hub.load_torch_model(fresh, tmp_path, strict=False)
    assert same(fresh, model(0))
    assert is_tied(fresh)
