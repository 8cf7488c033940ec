"""verify and repair from Python: every format, one result, and the same verdict as the commands'."""

import gzip
import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.formats import BUILTIN
from tests.support.cli_cases import inside, record_file
from tests.support.salvage_bytes import framed

TENSORS = {"w": np.arange(2000, dtype=np.float32), "b": np.zeros(3)}
SUFFIXES = {
    "tb": "tb", "safetensors": "safetensors", "npz": "npz", "torchfile": "pt", "arrow": "arrow", "parquet": "parquet",
    "onnx": "pb", "delimited": "pbs", "checkpoint": "ckpt", "npy": "npy", "arrowtensor": "tensor",
    "tensorproto": "pb", "protobuf": "pb", "sparseproto": "pb", "raw": "raw", "gguf": "gguf",
}  # fmt: skip
# Formats of one tensor.
ALONE = ("npy", "arrowtensor", "tensorproto", "protobuf", "onnx", "raw")
CORPUS = Path(__file__).parents[1] / "corpus"


def written(format, folder):
    """A sound file of a format."""
    path = folder / f"x.{SUFFIXES[format]}"
    if format == "gguf":
        path.write_bytes((CORPUS / "sweep/gguf/small.gguf").read_bytes())
    elif format == "sparseproto":
        tb.save(scipy.sparse.coo_array(np.eye(4)), path, format)
    else:
        tb.save(TENSORS["w"] if format in ALONE else TENSORS, path, format)
    return path


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damaged(path):
    """A file of TENSORS with a flipped bit in the middle of `w`."""
    tb.save(TENSORS, path)
    flip(path, path.read_bytes().index(TENSORS["w"][1000:1010].tobytes()))
    return path


def said(capsys, path, *more):
    """What the command says of a file: its exit code, and its JSON."""
    ran = inside(capsys, "verify", path, "--json", *more)
    return ran.code, ran.item


def check_same(capsys, path, *more, **options):
    """Python and the command find the same; returns it."""
    found = tb.verify(path, **options)
    assert said(capsys, path, *more) == (0 if found.ok else 1, found.to_dict())
    return found


# ---- every format -------------------------------------------------------------------


def test_every_format_is_listed():
    assert set(SUFFIXES) == {name for name in BUILTIN if formats.get(name).documents}


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_sound_file_of_every_format(format, tmp_path, capsys):
    path = written(format, tmp_path)
    told = ["protobuf", "tensorproto", "sparseproto", "onnx", "raw"]  # formats that the bytes don't tell
    if format == "raw":
        with pytest.raises(tb.errors.UsageError, match="dtype"):
            tb.verify(path, format)
        return
    more, options = (["--from", format], {"format": format}) if format in told else ([], {})
    found = check_same(capsys, path, *more, **options)
    assert found.ok
    assert found.format == format
    assert found.tensors
    assert "structure" in found.checked
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert pickle.loads(pickle.dumps(found)) == found
    if format != "checkpoint":  # which is several files
        with open(path, "rb") as file:
            assert tb.verify(file, format).tensors == found.tensors


@pytest.mark.parametrize("suffix", ["tb", "npz", "pt"])
def test_a_damaged_tensor_is_named_and_the_others_are_kept(suffix, tmp_path, capsys):
    path = damaged(tmp_path / f"m.{suffix}")
    found = check_same(capsys, path)
    (damage,) = found.damages
    assert (damage.name, damage.kind, damage.path) == ("w", "tensor", str(path))
    assert damage.start
    assert "w: " in str(found).splitlines()[1]
    made = tb.repair(path, tmp_path / f"n.{suffix}")
    assert (made.tensors, made.lost_tensors, made.ok) == (1, 1, False)
    assert made.damages == found.damages
    assert tb.equal(tb.load(tmp_path / f"n.{suffix}"), {"b": TENSORS["b"]})
    ran = inside(capsys, "repair", path, tmp_path / f"n.{suffix}", "-f", "--json")
    assert (ran.code, ran.item) == (1, made.to_dict())
    assert str(made).splitlines()[0].endswith(": 1 tensor kept, 1 lost")
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_damaged_tensor_without_checksums_goes_unnoticed(tmp_path, capsys):
    path = damaged(tmp_path / "m.safetensors")
    found = check_same(capsys, path)
    assert found.ok
    assert found.read == path.stat().st_size
    assert str(found).endswith("readable (structure, every byte was read); this format has no checksums")
    assert "damage can't be noticed" in str(tb.repair(path, tmp_path / "n.safetensors"))


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_what_is_left_of_a_download_that_broke_off(suffix, tmp_path, capsys):
    path, target = tmp_path / f"m.{suffix}", tmp_path / f"n.{suffix}"
    tb.save({"a": np.ones(200), "b": np.arange(900.0)}, path)
    path.write_bytes(path.read_bytes()[: -900 if suffix == "npz" else -1])
    found = check_same(capsys, path)
    assert [damage.kind for damage in found.damages] == ["file"]
    made = tb.repair(path, target)
    assert (made.tensors, [damage.name for damage in made.damages]) == (1, [None, "b"])
    assert tb.equal(tb.load(target), {"a": np.ones(200)})
    assert inside(capsys, "repair", path, target, "-f", "--json").item == made.to_dict()


def test_what_can_not_be_repaired(tmp_path):
    with pytest.raises(tb.errors.UsageError, match="'gguf' is read-only"):
        tb.repair(written("gguf", tmp_path), tmp_path / "y.gguf")
    tb.save({"w": TENSORS["w"]}, tmp_path / "x.npz")
    flip(tmp_path / "x.npz", 4000)
    with pytest.raises(tb.errors.CorruptError, match="no tensor of it can be kept"):
        tb.repair(tmp_path / "x.npz", tmp_path / "y.npz")
    assert not list(tmp_path.glob("y*"))
    (tmp_path / "text").write_text("hello, this is no file of tensors\n")
    for call in (tb.verify, lambda path: tb.repair(path, tmp_path / "y")):
        with pytest.raises(tb.errors.UsageError):
            call(tmp_path / "text")
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "missing.npz")


# ---- what is several files ------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.ckpt", "m.ckpt.index"])
def test_a_checkpoint(name, tmp_path, capsys):
    tb.save(TENSORS, tmp_path / "m.ckpt")
    found = check_same(capsys, tmp_path / name)
    assert (found.ok, found.format, found.tensors, found.checksums) == (True, "checkpoint", 2, "CRC-32C of each tensor")
    data = tmp_path / "m.ckpt.data-00000-of-00001"
    flip(data, data.read_bytes().index(TENSORS["w"][1000:1010].tobytes()))
    assert [damage.name for damage in check_same(capsys, tmp_path / name).damages] == ["w"]
    made = tb.repair(tmp_path / name, tmp_path / "n.ckpt")
    assert (made.tensors, made.format) == (1, "checkpoint")
    assert tb.equal(tb.load(tmp_path / "n.ckpt"), {"b": TENSORS["b"]})


def test_a_sharded_model(tmp_path, capsys):
    tb.save({"a": np.zeros(1000), "b": np.ones(1000)}, tmp_path / "m.safetensors", max_shard_bytes=8000)
    sizes = sum(file.stat().st_size for file in tmp_path.iterdir())
    found = check_same(capsys, tmp_path / "m.safetensors.index.json")
    assert (found.ok, found.format, found.tensors, found.read) == (True, "safetensors", 2, sizes)
    assert tb.verify(tmp_path).read == sizes
    shard = next(tmp_path.glob("m-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert not check_same(capsys, tmp_path / "m.safetensors.index.json").ok


# ---- records --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
def test_records_damage_by_damage(suffix, tmp_path, capsys):
    path, target = tmp_path / f"x.{suffix}", tmp_path / f"y.{suffix}"
    record_file(path, 50)
    data = bytearray(path.read_bytes() if suffix == "tfrecord" else gzip.decompress(path.read_bytes()))
    assert check_same(capsys, path).records == 50
    data[len(data) // 3] ^= 1
    path.write_bytes(data if suffix == "tfrecord" else gzip.compress(data))
    found = check_same(capsys, path)
    (damage,) = found.damages
    assert (found.records, found.format, found.size) == (49, "tfrecord", len(data))
    assert damage.start <= len(data) // 3 < damage.end
    assert found.lost == damage.end - damage.start == found.size - found.intact
    made = tb.repair(path, target)
    assert (made.records, made.lost, made.damages) == (49, found.lost, found.damages)
    assert tb.verify(target).ok
    assert inside(capsys, "repair", path, target, "-f", "--json").item == made.to_dict()
    assert str(made).splitlines()[0].endswith(f": 49 records kept, {found.lost} bytes lost in 1 place")
    assert str(tb.repair(target, tmp_path / "again")).endswith(": 49 records, nothing was damaged")


def test_records_of_anything_and_events(tmp_path, capsys):
    (tmp_path / "other").write_bytes(framed([b"\x01 something", b"else"]))
    assert check_same(capsys, tmp_path / "other").format == "other records"
    event = b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"
    (tmp_path / "run").mkdir()
    for number in range(2):
        (tmp_path / f"run/events.out.tfevents.{number}").write_bytes(framed([event]))
    found = check_same(capsys, tmp_path / "run/events.out.tfevents.0")
    assert (found.format, found.records) == ("events", 1)
    assert tb.verify(tmp_path / "run").records == 2
    with pytest.raises(tb.errors.UsageError, match="it stands for 2 files; repair them one at a time"):
        tb.repair(tmp_path / "run", tmp_path / "y")


def test_a_set_of_shards_is_one_result(tmp_path, capsys):
    with tb.RecordWriter(tmp_path / "s.tfrecord", shards=3) as writer:
        for i in range(2):
            writer.write({"x": i})
    assert [os.path.getsize(path) > 0 for path in sorted(tmp_path.glob("s.tfrecord-*"))] == [True, True, False]
    for target in (f"{tmp_path}/s.tfrecord@3", f"{tmp_path}/s.tfrecord-*", sorted(tmp_path.glob("s.tfrecord-*"))):
        found = tb.verify(target)
        assert (found.ok, found.records) == (True, 2)
    path = tmp_path / "s.tfrecord-00001-of-00003"
    flip(path, 20)
    found = tb.verify(f"{tmp_path}/s.tfrecord@3")
    assert (found.records, [damage.path for damage in found.damages]) == (1, [str(path)])
    assert f"  {path}: the data of record 0" in str(found)
    ran = inside(capsys, "verify", f"{tmp_path}/s.tfrecord@3", "--json")
    assert [item["ok"] for item in ran.items] == [True, False, True]


def test_a_stream_of_the_native_frame_tells_all_that_is_damaged(tmp_path, capsys):
    path = tmp_path / "x.tb"
    with tb.open(path, "w") as stream:
        for i in range(5):
            stream.write(np.full(500, i))
    assert check_same(capsys, path).rows == 5
    size = path.stat().st_size // 5
    flip(path, size + 2000)
    flip(path, 3 * size + 2000)
    found = check_same(capsys, path)
    assert [(damage.record, damage.kind) for damage in found.damages] == [(1, "payload"), (3, "payload")]
    made = tb.repair(path, tmp_path / "y.tb")
    assert (made.records, made.damages) == (3, found.damages)
    assert [x[0] for x in tb.load(tmp_path / "y.tb")] == [0, 2, 4]


def test_pipes_and_file_objects(tmp_path):
    read, write = os.pipe()
    path = tmp_path / "x.npz"
    tb.save(TENSORS, path)
    os.write(write, path.read_bytes())
    os.close(write)
    with open(read, "rb") as pipe:
        assert tb.verify(pipe).tensors == 2
    out = io.BytesIO()
    with open(damaged(path), "rb") as file:
        assert tb.repair(file, out).tensors == 1
    assert list(tb.loads(out.getvalue())) == ["b"]


# ---- nothing, manifests, arguments ----------------------------------------------------


@pytest.mark.parametrize("name", ["e.tb", "e.tfrecord", "e.safetensors", "e", "s.tfrecord-00001-of-00003"])
def test_an_empty_file(name, tmp_path, capsys):
    (tmp_path / name).touch()
    found = check_same(capsys, tmp_path / name)
    assert found.ok == ("-of-" in name)
    assert found.format is None
    assert "empty" in str(found)
    assert not tb.verify(io.BytesIO()).ok


def test_a_manifest_is_found_beside_its_file(tmp_path, capsys):
    path = tmp_path / "m.safetensors"
    tb.save(TENSORS, path)
    wrote = tb.verify(path, write_manifest=True)
    assert (wrote.manifest, wrote.manifest_written) == (f"{path}.sums.json", True)
    assert str(wrote).endswith(f"sound; wrote {path}.sums.json")
    found = check_same(capsys, path)
    assert found.manifest == f"{path}.sums.json"
    assert "SHA-256 of each tensor" in found.checked
    damaged(path)
    found = check_same(capsys, path)
    assert [(damage.name, damage.kind) for damage in found.damages] == [("w", "manifest")]
    assert check_same(capsys, path, "--no-manifest", manifest=False).ok
    assert tb.repair(path, tmp_path / "n.safetensors").tensors == 1
    # It fits the same tensors in another format, and not others.
    tb.save(TENSORS, tmp_path / "same.npz")
    tb.save({"w": TENSORS["w"]}, tmp_path / "less.npz")
    sums = f"{path}.sums.json"
    assert check_same(capsys, tmp_path / "same.npz", "--manifest", sums, manifest=sums).ok
    less = check_same(capsys, tmp_path / "less.npz", "--manifest", sums, manifest=Path(sums))
    assert [damage.what for damage in less.damages] == ["in the manifest, and not in the file"]


def test_manifests_where_there_are_none(tmp_path):
    record_file(tmp_path / "x.tfrecord", 3)
    for options in ({"write_manifest": True}, {"manifest": "sums.json"}):
        with pytest.raises(tb.errors.UsageError, match="records have checksums of their own"):
            tb.verify(tmp_path / "x.tfrecord", **options)
    with pytest.raises(tb.errors.UsageError, match="beside a local file"):
        tb.verify(io.BytesIO(tb.dumps(np.ones(3))), write_manifest=True)
    with pytest.raises(tb.errors.UsageError, match="not both"):
        tb.verify(tmp_path / "x.npz", manifest="sums.json", write_manifest=True)


def test_a_file_that_is_not_told_by_its_bytes(tmp_path, capsys):
    """The first header is damaged, and the name says nothing."""
    record_file(tmp_path / "x.tfrecord", 5)
    path = tmp_path / "data"
    path.write_bytes((tmp_path / "x.tfrecord").read_bytes())
    flip(path, 3)
    with pytest.raises(tb.errors.UsageError, match="can't tell the format"):
        tb.verify(path)
    assert check_same(capsys, path, "--from", "tfrecord", format="tfrecord").records == 5
    made = tb.repair(path, tmp_path / "y", "tfrecord")
    assert made.records == 5
    assert inside(capsys, "repair", path, tmp_path / "y", "-f", "--from", "tfrecord", "--json").item == made.to_dict()


def test_a_file_is_replaced_by_itself_if_that_is_said(tmp_path, capsys):
    path = damaged(tmp_path / "m.npz")
    with pytest.raises(tb.errors.UsageError, match=r"m\.npz: it would be replaced .*pass replace=True"):
        tb.repair(path, path)
    ran = inside(capsys, "repair", path, path)
    assert ran.code == 2
    assert "pass --in-place" in ran.err
    assert tb.repair(path, path, replace=True).tensors == 1
    assert list(tb.load(path)) == ["b"]


def test_notebooks_show_both(tmp_path):
    path = damaged(tmp_path / "m<b>.npz")
    assert "1 place is damaged" in tb.verify(path)._repr_html_()
    shown = tb.repair(path, tmp_path / "n.npz")._repr_html_()
    assert "1 tensor kept, 1 lost" in shown
    assert "m<b>" not in shown


def test_a_name_that_would_steer_a_terminal_is_escaped(tmp_path):
    tb.save({"w\x1b[31m": TENSORS["w"], "b": TENSORS["b"]}, tmp_path / "m.npz")
    path = tmp_path / "m.npz"
    flip(path, path.read_bytes().index(TENSORS["w"][1000:1010].tobytes()))
    assert "\x1b" not in str(tb.verify(path))
