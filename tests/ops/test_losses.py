"""convert tells everything that a target can't hold, at once, before a byte is written."""

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats, opening

torch = pytest.importorskip("torch")

MANY = [name for name in formats.writable() if not formats.get(name).holds_one]
ONE = [name for name in formats.writable() if formats.get(name).holds_one]
WHOLE = {"run": "7", "author": "somebody", "framework": "pt"}


def awkward():
    """Something of everything that some format can't hold."""
    x = np.arange(4, dtype=np.float32)
    sparse = tb.Sparse("coo", (2, 2), (np.array([[0, 1]]),), tb.Tensor("float32", (1,), np.ones(1, np.float32)))
    return {
        "plain": x,
        "noted": tb.Tensor("float32", (4,), x, None, {"unit": "m", "axis": "t", "type": "mine"}),
        "text": np.array(["a", "bc", "", "d"]),
        "small": tb.Tensor("int4", (3,), np.array([1, 2, 3], np.uint8)),
        "wide": np.arange(4) + 1j,
        "ragged": tb.Ragged(tb.Tensor("int32", (3,), np.arange(3, dtype=np.int32)), (np.array([0, 1, 3]),)),
        "sparse": sparse,
        "number": 7,
        "nothing": None,
        "nested": {"x": np.ones(4), "list": [np.ones(2), "text"]},
        "times": np.array(["2020-01-01"] * 4, "datetime64[s]"),
        "weight": torch.nn.Parameter(torch.ones(4)),
    }


@pytest.fixture
def source(tmp_path):
    tb.save(awkward(), tmp_path / "x.tb", meta=WHOLE)
    return tmp_path / "x.tb"


def losses_of(found):
    return {(loss.name, loss.feature, loss.what, loss.dropped) for loss in found}


def refused(source, target, format):
    """The losses that a conversion is refused for, if it is."""
    try:
        tb.convert(source, target, format=format)
    except tb.errors.LossError as error:
        left = [path for path in target.parent.iterdir() if path != source]
        return left or losses_of(error.losses)
    return set()


def leaves_of(path, format):
    """What is in a file: values and metadata by the names of tensors, and the metadata of the whole."""
    documents = list(opening.open_file(path, format).documents(lazy=False))
    found = {str(leaf.name): leaf for document in documents for leaf in document.leaves}
    return found, documents[0].meta


@pytest.mark.parametrize("format", MANY)
def test_every_loss_is_named_before_a_byte_is_written(format, source, tmp_path):
    target = tmp_path / f"y{formats.get(format).suffixes[0]}"
    told = refused(source, target, format)
    report = tb.convert(source, target, format=format, allow="all")
    assert told == losses_of(report.losses)
    assert bool(told) is not formats.get(format).complete
    if not formats.get(format).self_describing:
        return
    found, meta = leaves_of(target, format)
    before, _ = leaves_of(source, "tb")
    words = {name: " ".join(loss.what for loss in report.losses if loss.name == name) for name in (*before, None)}
    dropped = {loss.name for loss in report.losses if loss.dropped}
    for name, leaf in before.items():
        if name not in found:
            assert name in dropped, f"{name} is gone in silence"
            continue
        got = found[name]
        assert got.kind == leaf.kind or leaf.kind in words[name] or "nested" in words[name], name
        for key in leaf.value.meta:
            assert got.value.meta.get(key) == leaf.value.meta[key] or key in words[name], f"{name}: {key}"
        if leaf.value.origin.get("requires_grad"):
            assert got.value.origin.get("requires_grad") or "requires_grad" in words[name]
        assert got.header.dtype == leaf.header.dtype or words[name], name
    for key, text in WHOLE.items():
        assert meta.get(key) == text or key in words[None], f"metadata {key} of the whole is gone in silence"


@pytest.mark.parametrize("format", ONE)
def test_every_loss_of_a_single_tensor(format, tmp_path):
    meta, origin = {"unit": "m", "axis": "t"}, {"requires_grad": "true"}
    value = tb.Tensor("float32", (2,), np.ones(2, np.float32), "w", meta, origin)
    tb.save({"w": value}, tmp_path / "x.tb", meta={**WHOLE, "unit": "another"}, origin={"arrow.schema": "something"})
    target = tmp_path / f"y{formats.get(format).suffixes[0]}"
    with pytest.raises(tb.errors.LossError) as raised:
        tb.convert(tmp_path / "x.tb", target, format=format)
    assert not target.exists()
    text = "\n".join(map(str, raised.value.losses))
    assert "unit='another'" in text  # which the tensor's own hides
    assert "arrow.schema='something'" in text
    try:
        report = tb.convert(tmp_path / "x.tb", target, format=format, allow="all")
    except tb.errors.LossError:  # sparseproto holds no dense tensors
        assert "dense" in text or "sparse" in text
        return
    assert losses_of(report.losses) == losses_of(raised.value.losses)
    found = tb.load(target, format, to="tensor")
    if not isinstance(found, dict):
        for key in ("unit", "axis", "run", "author", "framework"):
            assert key in found.meta or key in text


def test_three_entries_of_metadata_are_three_losses(tmp_path):
    """One was named, and the others went with it."""
    tb.save({"a": np.ones(2), "b": np.ones(2)}, tmp_path / "x.tb", meta=WHOLE)
    with pytest.raises(tb.errors.LossError) as raised:
        tb.convert(tmp_path / "x.tb", tmp_path / "y.tfrecord", unstack=0)
    assert len(raised.value.losses) == 3
    assert all(key in str(raised.value) for key in WHOLE)
    with pytest.raises(tb.errors.LossError) as raised:
        tb.save({"a": np.ones(2)}, tmp_path / "y.raw", meta=WHOLE)
    assert all(f"{key}={text!r}" in str(raised.value) for key, text in WHOLE.items())


def test_objects_and_what_else_is_lost_are_told_together(tmp_path):
    torch.save({"model": torch.ones(2), "names": ["a", "b"], "args": Odd()}, tmp_path / "x.pt")
    with pytest.raises(tb.errors.LossError) as raised:
        tb.convert(tmp_path / "x.pt", tmp_path / "y.safetensors")
    assert {(loss.name, loss.feature) for loss in raised.value.losses} == {("args", "objects"), ("names", "strings")}
    report = tb.convert(tmp_path / "x.pt", tmp_path / "y.safetensors", allow={"objects", "strings"})
    assert {loss.feature for loss in report.losses} == {"objects", "strings"}
    assert list(tb.load(tmp_path / "y.safetensors")) == ["model"]


def test_a_file_of_nothing_but_objects(tmp_path):
    torch.save({"args": Odd()}, tmp_path / "x.pt")
    with pytest.raises(tb.errors.LossError) as raised:
        tb.convert(tmp_path / "x.pt", tmp_path / "y.tb")
    assert [loss.feature for loss in raised.value.losses] == ["objects"]


class Odd:
    """A class that is not read."""


def test_rows_tell_what_is_lost_of_them_and_of_the_whole(tmp_path):
    small = tb.Tensor("float4_e2m1fn", (3, 2), np.ones(6, np.uint8))
    tb.save({"n": np.arange(3), "s": {"x": np.ones(3)}, "f": small}, tmp_path / "x.tb", meta={"a": "1", "b": "2"})
    for target in ("y.tfrecord", "y.parquet"):
        with pytest.raises(tb.errors.LossError) as raised:
            tb.convert(tmp_path / "x.tb", tmp_path / target, unstack=0)
        found = losses_of(raised.value.losses)
        assert {what for _, _, what, _ in found} >= {"metadata of the whole: a='1'", "metadata of the whole: b='2'"}
        assert ("s/x", "structure") in {(name, feature) for name, feature, *_ in found}
        report = tb.convert(tmp_path / "x.tb", tmp_path / target, unstack=0, allow="all")
        assert losses_of(report.losses) == found


def test_a_stream_that_is_stacked_tells_both(tmp_path):
    with tb.open(tmp_path / "x.tb", "w") as file:
        for n in range(3):
            file.write({"n": n, "z": np.ones(2) * 1j}, meta={"a": str(n)})
    with pytest.raises(tb.errors.LossError) as raised:
        tb.convert(tmp_path / "x.tb", tmp_path / "y.safetensors")
    assert {(loss.name, loss.feature) for loss in raised.value.losses} == {
        (None, "meta"), ("n", "kind"), ("z", "dtype"),
    }  # fmt: skip
