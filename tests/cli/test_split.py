"""tb split and merge."""

import os
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tests.support.cli_cases import in_terminal, inside, interrupted, piped, record_file


def names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture
def model(tmp_path):
    tensors = {f"layer.{i}": np.full(100, i, np.float32) for i in range(6)}
    tb.save(tensors, tmp_path / "m.npz")
    return tmp_path / "m.npz"


def test_records_there_and_back(tmp_path, capsys):
    record_file(tmp_path / "train.tfrecord", 50)
    ran = inside(capsys, "split", tmp_path / "train.tfrecord", tmp_path / "p.tfrecord", "--shards", "3", "--json")
    assert ran.code == 0, ran.err
    assert sum(ran.item["items"]) == 50
    assert [os.path.basename(file) for file in ran.item["files"]] == [f"p.tfrecord-{i:05}-of-00003" for i in range(3)]
    ran = inside(capsys, "merge", f"{tmp_path}/p.tfrecord@3", tmp_path / "all.tfrecord")
    assert ran.code == 0, ran.err
    assert (tmp_path / "all.tfrecord").read_bytes() == (tmp_path / "train.tfrecord").read_bytes()
    ran = inside(capsys, "split", f"{tmp_path}/p.tfrecord-*", tmp_path / "q.tfrecord", "--rows", "20", "--json")
    assert ran.item["items"] == [20, 20, 10]
    assert inside(capsys, "merge", f"{tmp_path}/q.tfrecord-*", tmp_path / "r.tfrecord", "--json").item["total"] == 50


@pytest.mark.parametrize("suffix", ["npz", "tb", "safetensors", "pt"])
def test_tensors_there_and_back(suffix, model, tmp_path, capsys):
    parts = tmp_path / "parts"
    parts.mkdir()
    ran = inside(capsys, "split", model, parts / f"p.{suffix}", "--size", "900B", "--json")
    assert ran.code == 0, ran.err
    assert len(ran.item["files"]) == 3
    ran = inside(capsys, "merge", f"{parts}/p-*", tmp_path / f"all.{suffix}")
    assert ran.code == 0, ran.err
    assert inside(capsys, "diff", model, tmp_path / f"all.{suffix}").code == 0


def test_rows_of_tables(tmp_path, capsys):
    tb.save({"x": np.arange(100), "y": np.ones((100, 2))}, tmp_path / "t.parquet")
    ran = inside(capsys, "split", tmp_path / "t.parquet", tmp_path / "p.parquet", "--rows", "30")
    assert ran.code == 0, ran.err
    assert ran.lines[0].startswith(f"{tmp_path}/t.parquet -> 4 files (Parquet): 100 rows")
    assert [line.split()[1] for line in ran.lines[2:]] == ["30", "30", "30", "10"]
    ran = inside(capsys, "merge", f"{tmp_path}/p-*.parquet", tmp_path / "all.parquet")
    assert ran.lines[0].startswith(f"4 files -> {tmp_path}/all.parquet (Parquet): 100 rows")


def test_nothing_is_replaced_unasked(model, tmp_path, capsys):
    assert inside(capsys, "split", model, tmp_path / "p.tb", "--shards", "2").code == 0
    before = names(tmp_path)
    for other in ("2", "3"):  # nor are the parts of two splits mixed
        ran = inside(capsys, "split", model, tmp_path / "p.tb", "--shards", other)
        assert ran.code == 2
        assert "exists already" in ran.err
    ran = inside(capsys, "merge", f"{tmp_path}/p-*.tb", model)
    assert ran.code == 2
    assert names(tmp_path) == before
    assert inside(capsys, "split", model, tmp_path / "p.tb", "--shards", "2", "-f").code == 0


def test_what_can_not_be(model, tmp_path, capsys):
    for arguments, words in [
        (["split", model, tmp_path / "p.tb"], "--shards --rows --size"),
        (["split", model, tmp_path / "p.tb", "--shards", "2", "--size", "1kB"], "not allowed with"),
        (["split", model, tmp_path / "p.tb", "--size", "much"], "such as 500MB"),
        (
            ["split", model, tmp_path / "p.tb", "--rows", "2"],
            "pass --shards N for a number of files, or pass --size SIZE",
        ),
        (["split", model, tmp_path / "p.tb", "--shards", "99"], "can't be cut into 99 parts"),
        (["split", model, tmp_path, "--shards", "2"], "is a folder"),
        (["split", model, "-", "--shards", "2"], "several files"),
        (["merge", model, model, tmp_path / "x.npz"], "--prefix stem"),
        (["merge", tmp_path / "none.npz", tmp_path / "x.npz"], "no such file"),
        (["merge", model, tmp_path], "is a folder"),
    ]:
        ran = inside(capsys, *arguments)
        assert ran.code == 2, arguments
        assert words in ran.err, ran.err
    assert names(tmp_path) == ["m.npz"]


def test_names_after_files(model, tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.ones(2))
    np.save(tmp_path / "b.npy", np.ones(3))
    ran = inside(capsys, "merge", tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "all.npz", "--prefix", "stem")
    assert ran.code == 0, ran.err
    assert {name: x.shape for name, x in np.load(tmp_path / "all.npz").items()} == {"a": (2,), "b": (3,)}


def test_through_pipes_and_in_a_terminal(model, tmp_path):
    ran = piped("split", "-", tmp_path / "p.npz", "--shards", "2", "--json", stdin=model.read_bytes())
    assert ran.code == 0, ran.err
    assert ran.item["source"] == "stdin"
    ran = piped(
        "merge", tmp_path / "p-00000-of-00002.npz", tmp_path / "p-00001-of-00002.npz", "-", "--to", "npz", text=False
    )
    assert ran.code == 0, ran.err
    (tmp_path / "back.npz").write_bytes(ran.out)
    assert tb.equal(tb.load(tmp_path / "back.npz"), tb.load(model))
    ran = in_terminal("split", "m.npz", "q.npz", "--shards", "2", cwd=tmp_path)
    assert ran.code == 0
    assert ran.lines[1].split() == ["file", "tensors", "size"]
    assert "binary data" in in_terminal("merge", "q-00000-of-00002.npz", "-", "--to", "npz", cwd=tmp_path).plain


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupted_split_leaves_nothing(tmp_path):
    weights = np.random.default_rng(0).normal(0, 0.02, 3 << 18).astype(np.float32)
    tb.save({f"w{i}": weights for i in range(16)}, tmp_path / "m.npz", sync=False)
    arguments = ["split", tmp_path / "m.npz", tmp_path / "p.tb", "--shards", "8", "--compression", "shuffle+zstd:17"]
    ran = interrupted(*arguments, after=lambda process: len(names(tmp_path)) > 1)
    assert ran.code == 130
    assert names(tmp_path) == ["m.npz"]


def test_merge_removes_no_shards_unasked(tmp_path, capsys):
    tb.save({"a": np.ones(10), "b": np.zeros(10)}, tmp_path / "m.safetensors")
    tb.save({"c": np.ones(3)}, tmp_path / "c.safetensors")
    target = tmp_path / "x.safetensors"
    assert inside(capsys, "split", tmp_path / "m.safetensors", target, "--shards", "2").code == 0
    before = names(tmp_path)
    assert "x-00002-of-00002.safetensors" in before
    shard, other = tmp_path / "x-00001-of-00002.safetensors", tmp_path / "c.safetensors"
    for force, words in (((), "--force"), (("--force",), "one of the files that are read")):
        ran = inside(capsys, "merge", shard, other, target, *force)
        assert ran.code == 2
        assert words in ran.err
        assert names(tmp_path) == before


def test_what_is_piped_into_merge_has_no_other_name(model):
    ran = piped("merge", "-", "out.tb", "--json", cwd=model.parent, stdin=model.read_bytes())
    assert ran.item["source"] == "stdin"


@pytest.mark.parametrize("verb", ["split", "merge"])
def test_options_that_no_format_has(verb, model, tmp_path, capsys):
    how = ["--shards", "2"] if verb == "split" else []
    ran = inside(capsys, verb, model, tmp_path / "p.npz", *how, "--option", "progress=1")
    assert ran.code == 2
    assert "--option progress" in ran.err
