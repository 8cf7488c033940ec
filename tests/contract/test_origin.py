"""What users say of a tensor and what we note ourselves are two things, in every format."""

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats

# Words of our own, said by somebody else.
OURS = {"framework": "pt", "type": "Parameter", "memory_format": "x", "numpy.dtype": "<M8[s]", "requires_grad": "true"}
WHOLE = {"torch._metadata": "[]", "framework": "jax"}
X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = [name for name in formats.writable() if name != "checkpoint" and formats.get(name).documents]
OPTIONS = {"raw": {"dtype": "float32", "shape": (2, 3)}}


def written(obj, format, path, **more):
    """The object as it is read again, neutrally; None if the format refuses to hold it."""
    try:
        tb.save(obj, path, format, **more)
    except tb.errors.LossError:
        return None
    return tb.load(path, format, to="tensor", **OPTIONS.get(format, {}))


@pytest.mark.parametrize("format", ONE)
def test_metadata_of_a_tensor_comes_back_as_it_was_given(format, tmp_path):
    found = written(X, format, tmp_path / "x", meta=OURS)
    if found is None:
        with pytest.raises(tb.errors.LossError, match=r"framework|metadata"):
            tb.dumps(X, format, meta={"framework": "pt"})
        return
    if isinstance(found, dict):
        (found,) = found.values()
    assert dict(found.meta) == OURS
    assert dict(found.origin) == {}
    assert type(tb.load(tmp_path / "x", format, to="original")) in (np.ndarray, dict)
    assert tb.load(tmp_path / "x", format).dtype == np.float32


@pytest.mark.parametrize("format", formats.writable())
def test_metadata_of_a_structure_comes_back_as_it_was_given(format, tmp_path):
    value = tb.Tensor("float32", (2, 3), X.reshape(-1), None, OURS)
    if written({"a": value, "b": X}, format, tmp_path / "x", meta=WHOLE) is None:
        return
    with tb.open(tmp_path / "x", format=format) as file:
        assert dict(file.meta) == WHOLE
        assert dict(file.origin) == {}
        assert dict(file["a"].meta) == OURS
        assert dict(file["b"].meta) == {}
        assert dict(file["a"].origin) == dict(file["b"].origin) == {}
    assert {type(found) for found in tb.load(tmp_path / "x", format, to="original").values()} == {np.ndarray}


@pytest.mark.parametrize("format", formats.writable())
def test_both_under_the_same_keys(format, tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    options = {"extended": True} if format == "safetensors" else {}
    mine = {"framework": "mine", "requires_grad": "no"}
    if written(weight, format, tmp_path / "x", meta=mine, **options) is None:
        return
    with tb.open(tmp_path / "x", format=format, **OPTIONS.get(format, {})) as file:
        (entry,) = file.entries()
        assert dict(entry.meta) == mine
        assert entry.origin["framework"] == "torch"
        assert entry.origin["requires_grad"] == "true"
    found = tb.load(tmp_path / "x", format, to="original")
    if isinstance(found, dict):
        (found,) = found.values()
    assert isinstance(found, torch.nn.Parameter)
    assert found.requires_grad


@pytest.mark.parametrize("target", ["npz", "safetensors", "arrow", "parquet", "delimited", "pt", "tb"])
def test_conversion_keeps_them_apart(target, tmp_path):
    torch = pytest.importorskip("torch")
    value = tb.Tensor("float32", (2, 3), X.reshape(-1), None, OURS)
    tb.save({"a": value, "b": torch.ones(2)}, tmp_path / "x.tb", meta={"run": "7"}, origin={"torch._metadata": "[]"})
    suffix = {"delimited": "pbs"}.get(target, target)
    options = {"extended": True} if target == "safetensors" else {}
    tb.convert(tmp_path / "x.tb", tmp_path / f"y.{suffix}", **options)
    with tb.open(tmp_path / f"y.{suffix}") as file:
        assert dict(file.meta) == {"run": "7"}
        assert dict(file["a"].meta) == OURS
        assert dict(file["a"].origin) == {}
        assert dict(file["b"].meta) == {}
        assert dict(file["b"].origin) == {"framework": "torch"}
        assert dict(file.origin) == {"torch._metadata": "[]"}


def test_words_of_ours_are_never_dropped_in_silence():
    with pytest.raises(tb.errors.LossError, match="can't hold metadata framework='pt'"):
        tb.dumps(X, "tensorproto", meta={"framework": "pt"})
    assert tb.dumps(X, "tensorproto", meta={"framework": "pt"}, allow="meta")
    with pytest.raises(tb.errors.LossError, match="metadata"):
        tb.dumps(X, "raw", meta={"type": "x"})


def test_origins_must_be_text_as_well():
    with pytest.raises(tb.errors.UnsupportedError, match="must be text"):
        tb.dumps(X, origin={"framework": 1})
    with pytest.raises(tb.errors.UsageError, match="expected a dict"):
        tb.dumps(X, origin="torch")


def test_a_lie_about_the_origin_is_refused_not_followed():
    with pytest.raises(tb.errors.UnsupportedError, match="not a framework known here"):
        tb.loads(tb.dumps(X, origin={"framework": "pt"}), to="original")
    assert tb.loads(tb.dumps(X, meta={"framework": "pt"}), to="original").tolist() == X.tolist()


@pytest.mark.parametrize("key", ["framework", "type", "memory_format", "format", "python"])
@pytest.mark.parametrize("obj", [{}, X, {"a": X}], ids=["nothing", "a tensor", "a dict"])
def test_safetensors_has_the_key_in_its_own_metadata(key, obj, tmp_path):
    """Where other software looks for it."""
    safetensors = pytest.importorskip("safetensors")
    tb.save(obj, tmp_path / "x.safetensors", meta={key: "pt"})
    with safetensors.safe_open(tmp_path / "x.safetensors", "np") as file:
        assert file.metadata()[key] == "pt"
    with tb.open(tmp_path / "x.safetensors") as file:
        assert dict(file.meta) == {key: "pt"}
    tb.load(tmp_path / "x.safetensors", to="original")
