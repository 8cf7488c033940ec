"""tb verify, repair, diff and index."""

import errno
import itertools
import json
import os
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.io import storage
from tensorbytes.ops import salvaging
from tests.support.cli_cases import checkpoint, in_terminal, inside, interrupted, piped, record_file

WITH_CHECKSUMS = ["tb", "npz", "pt", "parquet"]
WITHOUT = ["safetensors", "arrow", "pbs"]
TENSORS = {"w": np.arange(2000, dtype=np.float32), "b": np.zeros(3)}


def flip(path, at):
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damaged(path):
    """A file of TENSORS with a flipped bit in the middle of `w`."""
    tb.save(TENSORS, path)
    flip(path, path.read_bytes().index(TENSORS["w"][1000:1010].tobytes()) if path.suffix != ".parquet" else 3000)
    return path


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "train.tfrecord"
    record_file(path, 50)
    return path


@pytest.fixture
def broken(records, tmp_path):
    """The same with two records damaged, and the path of the sound one."""
    path = tmp_path / "broken.tfrecord"
    path.write_bytes(records.read_bytes())
    size = len(path.read_bytes())
    flip(path, size // 3)
    flip(path, size // 2)
    return path


# ---- verify -------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [*WITH_CHECKSUMS, "ckpt"])
def test_formats_with_checksums_are_sound(suffix, tmp_path, capsys):
    tb.save(TENSORS, tmp_path / f"m.{suffix}")
    ran = inside(capsys, "verify", tmp_path / f"m.{suffix}", "--json")
    assert ran.code == 0
    assert ran.item["ok"]
    assert ran.item["tensors"] == 2
    assert "CRC" in ran.item["checked"]
    ran = inside(capsys, "verify", tmp_path / f"m.{suffix}")
    assert ": sound (CRC-32" in ran.lines[0]


@pytest.mark.parametrize("suffix", WITH_CHECKSUMS)
def test_a_flipped_bit_is_found_in_its_tensor(suffix, tmp_path, capsys):
    path = damaged(tmp_path / f"m.{suffix}")
    ran = inside(capsys, "verify", path, "--json")
    assert ran.code == 1
    assert [damage["name"] for damage in ran.item["damages"]] == ["w"]
    ran = inside(capsys, "verify", path)
    assert ran.code == 1
    assert "damaged in 1 place" in ran.lines[0]
    assert ran.lines[2].split()[0] == "w"


@pytest.mark.parametrize("suffix", WITHOUT)
def test_formats_without_checksums_say_so(suffix, tmp_path, capsys):
    path = damaged(tmp_path / f"m.{suffix}")
    ran = inside(capsys, "verify", path)
    assert ran.code == 0
    assert ran.lines[0].endswith("readable (structure; every byte was read)")
    assert "no checksums" in ran.lines[1]
    assert inside(capsys, "verify", path, "--json").item["checked"] == "structure, every byte was read"


@pytest.mark.parametrize("suffix", WITHOUT)
def test_a_manifest_finds_what_the_format_can_not(suffix, tmp_path, capsys):
    path = tmp_path / f"m.{suffix}"
    tb.save(TENSORS, path)
    assert inside(capsys, "verify", "--write-manifest", path, "--json").item["manifest"] == f"{path}.sums.json"
    ran = inside(capsys, "verify", path)
    assert ran.code == 0
    assert "sound (SHA-256 of each tensor" in ran.lines[0]
    damaged(path)
    ran = inside(capsys, "verify", path, "--json")
    assert ran.code == 1
    assert ran.item["damages"] == [{"name": "w", "what": "its values are not those of the manifest", "at": None}]
    assert inside(capsys, "verify", path, "--no-manifest").code == 0
    # It is one of the tensors, not of the file: another format of the same is sound by it.
    tb.save(TENSORS, tmp_path / "other.npz")
    assert inside(capsys, "verify", tmp_path / "other.npz", "--manifest", f"{path}.sums.json").code == 0


def test_a_manifest_tells_of_names_dtypes_and_shapes(tmp_path, capsys):
    tb.save({"a": np.ones(3), "b": np.ones(2), "c": ["x", "y"]}, tmp_path / "m.tb")
    assert inside(capsys, "verify", "--write-manifest", tmp_path / "m.tb").code == 0
    ran = inside(capsys, "verify", "--write-manifest", tmp_path / "m.tb")
    assert ran.code == 2
    assert "--force" in ran.err
    tb.save({"a": np.ones((3, 1)), "b": np.ones(2, np.float32), "d": np.ones(1)}, tmp_path / "m.tb")
    found = {
        damage["name"]: damage["what"]
        for damage in inside(capsys, "verify", tmp_path / "m.tb", "--json").item["damages"]
    }
    assert found["a"] == "shape [3, 1], and [3] in the manifest"
    assert found["b"] == "dtype float32, and float64 in the manifest"
    assert found["d"] == "not in the manifest"
    assert found["c"] == "in the manifest, and not in the file"
    (tmp_path / "m.tb.sums.json").write_text(json.dumps({"tensors": []}))
    ran = inside(capsys, "verify", tmp_path / "m.tb")
    assert ran.code == 2
    assert "not a manifest" in ran.err


def test_records_damage_by_damage(broken, records, capsys):
    assert inside(capsys, "verify", records, "--json").item["ok"]
    ran = inside(capsys, "verify", broken, "--json")
    expected = tb.verify(broken)
    assert ran.code == 1
    assert ran.item["records"] == 48
    assert [(d["record"], d["start"], d["end"]) for d in ran.item["damages"]] == [
        (d.record, d.start, d.end) for d in expected.damages
    ]
    ran = inside(capsys, "verify", broken)
    assert "damaged in 2 places" in ran.lines[0]
    assert ran.lines[-1] == f"  tb repair {broken} DST keeps the 48 records that are whole"


def test_several_files_and_the_worst_of_them(broken, records, tmp_path, capsys):
    (tmp_path / "text").write_text("hello")
    ran = inside(capsys, "verify", records, broken, tmp_path / "text", tmp_path / "none", "--json")
    assert ran.code == 2
    assert [item.get("ok") for item in ran.items] == [True, False, None, None]
    assert inside(capsys, "verify", records, broken).code == 1


def test_shards_streams_events_and_stdin(tmp_path, records, capsys):
    tb.convert(records, tmp_path / "s.tfrecord", shards=3, sync=False)
    ran = inside(capsys, "verify", f"{tmp_path}/s.tfrecord@3", "--json")
    assert [item["records"] for item in ran.items] == [17, 17, 16]
    tb.convert(records, tmp_path / "rows.parquet", allow="all")
    assert inside(capsys, "verify", tmp_path / "rows.parquet", "--json").item["rows"] == 50
    with tb.open(tmp_path / "stream.tb", "w") as stream:
        for i in range(3):
            stream.write({"x": np.full(3, i)})
    assert inside(capsys, "verify", tmp_path / "stream.tb", "--json").item["rows"] == 3
    ran = piped("verify", "-", "--json", stdin=records.read_bytes())
    assert ran.code == 0
    assert ran.item["path"] == "stdin"


def test_what_is_no_file_of_tensors(tmp_path, capsys):
    (tmp_path / "x").write_bytes(b"<!doctype html><html>")
    ran = inside(capsys, "verify", tmp_path / "x")
    assert ran.code == 2
    assert "HTML" in ran.err
    (tmp_path / "cut.npz").write_bytes(damaged(tmp_path / "m.npz").read_bytes()[:-40])
    assert inside(capsys, "verify", tmp_path / "cut.npz").code in (1, 2)


def test_verify_in_a_terminal(broken, tmp_path):
    for columns in (80, 120):
        ran = in_terminal("verify", broken.name, columns=columns, cwd=tmp_path)
        assert ran.code == 1
        assert ran.lines[1].split() == ["record", "bytes", "lost", "what"]
        assert max(map(len, ran.lines)) <= columns


def test_every_byte_is_read_where_no_checksum_asks_for_it(tmp_path, capsys, monkeypatch):
    path = tmp_path / "m.safetensors"
    tb.save({"w": np.zeros(1 << 19), "b": np.zeros(3)}, path)
    told = []
    found = tb.verify(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert found.read == size
    assert told[-1] == (size, size)
    assert len(told) > 3
    assert max(b - a for (a, _), (b, _) in itertools.pairwise(told)) <= 1 << 20
    # With a manifest it is read twice: for the disk's sake, and to be summed.
    told.clear()
    tb.verify(path, write_manifest=True, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][1] == 2 * size
    assert tb.verify(path).manifest == f"{path}.sums.json"

    def broken(path):
        yield 4096
        raise OSError(errno.EIO, "Input/output error (after byte 4096)", str(path))

    monkeypatch.setattr(storage, "read_through", broken)
    ran = inside(capsys, "verify", path)
    assert ran.code == 2
    assert f"{path}: input/output error (after byte 4096)" in ran.err


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file that can't be read, on Linux")
def test_what_the_disk_can_not_give_back_is_an_error():
    with pytest.raises(OSError, match=r"after byte 0.*/proc/self/mem") as caught:
        list(storage.read_through("/proc/self/mem"))
    assert caught.value.errno == errno.EIO


def test_the_shards_of_a_checkpoint_are_all_read(tmp_path):
    tb.save({"a": np.zeros(1000), "b": np.ones(1000)}, tmp_path / "m.safetensors", max_shard_bytes=8000)
    sizes = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert tb.verify(tmp_path / "m.safetensors.index.json").read == sizes
    assert tb.verify(tmp_path).read == sizes


def test_what_is_not_checked_is_said(tmp_path, capsys):
    np.savez(tmp_path / "o.npz", a=np.array([{}], object), b=np.ones(5))
    ran = inside(capsys, "verify", tmp_path / "o.npz", "--json")
    assert (ran.code, ran.item["tensors"], ran.item["unread"]) == (0, 1, 1)
    assert "(and 1 object that no one here reads, or checks): sound" in inside(capsys, "verify", tmp_path / "o.npz").out
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(5)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    ran = inside(capsys, "verify", tmp_path / "old.pt", "--json")
    assert ran.code == 0
    assert ran.item["checked"] == "structure, every byte was read"


@pytest.mark.parametrize("name", ["e.tb", "e.tfrecord", "e.safetensors", "e.npz", "e", "e.tfrecord.gz"])
def test_nothing_is_not_sound(name, tmp_path, capsys):
    (tmp_path / name).touch()
    ran = inside(capsys, "verify", tmp_path / name)
    assert ran.code == 1
    assert ran.lines == [f"{tmp_path / name}: an empty file: nothing was written, or a download failed"]
    assert not inside(capsys, "verify", tmp_path / name, "--json").item["ok"]
    if name in ("e.tb", "e.tfrecord"):  # legal, as streams
        assert ", 0 B, empty: no " in inside(capsys, "info", tmp_path / name).lines[0]
    assert not tb.verify(tmp_path / name).ok


def test_nothing_on_stdin_and_a_shard_without_records(tmp_path, capsys):
    ran = piped("verify", "-")
    assert (ran.code, ran.out) == (1, "stdin: an empty file: nothing was written, or a download failed\n")
    with tb.RecordWriter(tmp_path / "s.tfrecord", shards=3) as writer:
        writer.write({"x": 1})
    ran = inside(capsys, "verify", f"{tmp_path}/s.tfrecord@3")
    assert ran.code == 0
    assert ran.lines[1].endswith("empty: a shard without records")
    assert tb.verify(tmp_path / "s.tfrecord-00001-of-00003").ok


# ---- repair -------------------------------------------------------------------------


def test_repair_keeps_what_is_whole(broken, tmp_path, capsys):
    mended = tmp_path / "mended.tfrecord"
    ran = inside(capsys, "repair", broken, mended, "--json")
    assert ran.code == 1
    assert ran.item["records"] == 48
    assert tb.verify(mended).ok
    ran = inside(capsys, "repair", mended, tmp_path / "again.tfrecord")
    assert ran.code == 0
    assert ran.lines == [f"{mended} -> {tmp_path}/again.tfrecord: 48 records, nothing was damaged"]
    assert inside(capsys, "repair", broken, mended).code == 2
    assert inside(capsys, "repair", broken, mended, "-f").code == 1


def test_repair_in_place_and_by_pipe(broken, tmp_path, capsys):
    ran = piped("repair", "-", "-", stdin=broken.read_bytes(), text=False)
    assert ran.code == 1
    assert b"48 records kept" in ran.err
    assert inside(capsys, "repair", broken).code == 2
    assert inside(capsys, "repair", broken, broken, "-f").code == 2
    assert inside(capsys, "repair", broken, "--in-place").code == 1
    assert broken.read_bytes() == ran.out


@pytest.mark.parametrize("suffix", WITH_CHECKSUMS)
def test_repair_of_tensors_keeps_the_sound_ones(suffix, tmp_path, capsys):
    path = damaged(tmp_path / f"m.{suffix}")
    ran = inside(capsys, "repair", path, tmp_path / f"mended.{suffix}", "--json")
    assert ran.code == 1, ran.err
    assert [damage["name"] for damage in ran.item["damages"]] == ["w"]
    assert list(tb.load(tmp_path / f"mended.{suffix}")) == ["b"]


NESTED = {
    "a": np.arange(10.0),
    "list": [np.ones(20), np.arange(500)],
    "r": tb.Ragged(tb.Tensor("float64", (9,), np.ones(9)), (np.array([0, 3, 9]),)),
}


@pytest.mark.parametrize("cut", [1, 100, 5000])
@pytest.mark.parametrize("made", ["m.safetensors", "theirs.safetensors", "m.npz", "theirs.npz", "deflated.npz"])
def test_repair_of_a_file_that_was_cut_off(made, cut, tmp_path, capsys):
    rng = np.random.default_rng(0)
    tensors = {f"t{i}": rng.random(n) for i, n in enumerate([100, 400, 300])}
    path, mended = tmp_path / made, tmp_path / f"mended.{made.rpartition('.')[2]}"
    if made == "theirs.safetensors":
        pytest.importorskip("safetensors.numpy").save_file(tensors, path)
    elif made == "theirs.npz":
        np.savez(path, **tensors)
    elif made == "deflated.npz":
        np.savez_compressed(path, **tensors)
    else:
        tb.save(tensors, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert inside(capsys, "verify", path).code == 1
    assert f"tb repair {path} DST" in inside(capsys, "verify", path).out
    ran = inside(capsys, "repair", path, mended, "--json")
    assert ran.code == 1, ran.err
    kept = tb.load(mended)
    lost = {damage["name"] for damage in ran.item["damages"]} - {None}
    # A directory is at the end of an archive, so its members may all be there; nothing but tensors is in the other.
    expected = {name for name, x in tensors.items() if whole[:-cut].find(x.tobytes()) >= 0}
    if "deflated" not in made:
        assert kept.keys() == expected
    assert kept.keys() | lost <= tensors.keys()
    assert not kept.keys() & lost
    assert kept
    for name, x in kept.items():
        assert x.tobytes() == tensors[name].tobytes()
    assert inside(capsys, "verify", mended).code == 0


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_repair_at_every_place_of_a_cut(suffix, tmp_path):
    path, mended = tmp_path / f"m.{suffix}", tmp_path / f"mended.{suffix}"
    tb.save(NESTED, path, **({"extended": True} if suffix == "safetensors" else {}))
    whole = path.read_bytes()
    counts = set()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        kept = salvaging.keep_whole(path, mended, suffix)
        counts.add(0 if kept is None else kept.tensors)
        if kept is not None:
            found = tb.load(mended)
            assert "a" not in found or tb.equal(found["a"], NESTED["a"])
            assert "r" not in found or tb.equal(tb.load(mended, to="tensor")["r"], NESTED["r"])
            mended.unlink()
        assert not mended.exists()
    assert counts >= {0, 1, 3}


def test_repair_of_a_cut_file_checks_what_it_keeps(tmp_path, capsys):
    path = damaged(tmp_path / "m.npz")
    path.write_bytes(path.read_bytes()[:-30])
    ran = inside(capsys, "repair", path, tmp_path / "n.npz")
    assert ran.code == 1
    assert "1 tensor kept, 1 lost" in ran.lines[0]
    assert list(tb.load(tmp_path / "n.npz")) == ["b"]


def test_repair_promises_nothing_without_checksums(tmp_path, capsys):
    path = damaged(tmp_path / "m.safetensors")
    ran = inside(capsys, "repair", path, tmp_path / "n.safetensors")
    assert ran.code == 0
    assert "damage can't be noticed" in ran.out


def test_nothing_whole_leaves_no_file(tmp_path, capsys):
    (tmp_path / "bad.tfrecord").write_bytes(os.urandom(500))
    ran = inside(capsys, "repair", tmp_path / "bad.tfrecord", tmp_path / "out.tfrecord")
    assert ran.code in (1, 2)
    path = tmp_path / "x.npz"
    tb.save({"w": TENSORS["w"]}, path)
    flip(path, 4000)
    ran = inside(capsys, "repair", path, tmp_path / "out.npz")
    assert ran.code == 1
    assert "no tensor of it can be kept" in ran.err
    assert not list(tmp_path.glob("out*"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupted_repair_leaves_the_old_file(tmp_path):
    payload = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8).tobytes()
    with tb.RecordWriter(tmp_path / "large.tfrecord.gz", compression="gzip", sync=False) as writer:
        for _ in range(24):
            writer.write({"x": payload})
    old = (tmp_path / "large.tfrecord.gz").read_bytes()

    def begun(process):
        return any(name.endswith(".tmp") for name in os.listdir(tmp_path))

    ran = interrupted("repair", tmp_path / "large.tfrecord.gz", "--in-place", after=begun)
    assert ran.code == 130
    assert not begun(None)
    assert (tmp_path / "large.tfrecord.gz").read_bytes() == old


# ---- diff ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "arrow", "parquet", "ckpt", "pt", "pbs"])
def test_other_formats_same_tensors(suffix, tmp_path, capsys):
    tb.save(TENSORS, tmp_path / "a.tb")
    tb.save(TENSORS, tmp_path / f"b.{suffix}")
    ran = inside(capsys, "diff", tmp_path / "a.tb", tmp_path / f"b.{suffix}", "--json")
    assert ran.code == 0
    assert ran.item["identical"]


def test_what_differs(tmp_path, capsys):
    tb.save({"w": np.ones((2, 3), np.float32), "s": np.ones(2), "t": np.ones(4), "a": np.ones(1)}, tmp_path / "a.tb")
    tb.save(
        {"w": np.ones((2, 3), np.float16) * 2, "s": np.ones(3), "t": np.ones(4), "b": np.ones(1)}, tmp_path / "b.tb"
    )
    ran = inside(capsys, "diff", tmp_path / "a.tb", tmp_path / "b.tb")
    assert ran.code == 1
    assert ran.lines[0].endswith(": 2 of 3 common tensors differ, 2 in one of them only")
    assert "  only in A: a" in ran.lines
    assert "  only in B: b" in ran.lines
    shown = {line.split()[0]: line for line in ran.lines[4:]}
    assert "float32 | float16" in shown["w"]
    assert "6 of 6" in shown["w"]
    assert "[2] | [3]" in shown["s"]
    assert "t" not in shown
    assert "identical" in inside(capsys, "diff", tmp_path / "a.tb", tmp_path / "b.tb", "--all").lines[-1]
    assert inside(capsys, "diff", tmp_path / "a.tb", tmp_path / "b.tb", "--names", "t").code == 0
    assert inside(capsys, "diff", tmp_path / "a.tb", tmp_path / "b.tb", "--names", "zz").code == 2


def test_tolerances(tmp_path, capsys):
    tb.save({"w": np.ones(3)}, tmp_path / "a.npz")
    tb.save({"w": np.ones(3) + 1e-4}, tmp_path / "b.npz")
    both = [tmp_path / "a.npz", tmp_path / "b.npz"]
    assert inside(capsys, "diff", *both).code == 1
    assert inside(capsys, "diff", *both, "--rtol", "1e-3", "--json").item["close"]
    assert inside(capsys, "diff", *both, "--atol", "1e-3").code == 0
    ran = inside(capsys, "diff", *both, "--atol", "1e-6")
    assert ran.code == 1
    assert "beyond the tolerance" in ran.lines[0]
    assert inside(capsys, "diff", *both, "--rtol", "-1").code == 2


def test_quiet_is_the_exit_code_alone(tmp_path):
    tb.save({"w": np.ones(3)}, tmp_path / "a.npz")
    tb.save({"w": np.zeros(3)}, tmp_path / "b.npz")
    for run in (piped, in_terminal):
        ran = run("diff", "-q", tmp_path / "a.npz", tmp_path / "b.npz")
        assert ran.code == 1
        assert (ran.out, ran.err) == ("", "")
        assert run("diff", "-q", tmp_path / "a.npz", tmp_path / "a.npz").code == 0


def test_diff_of_a_pipe_and_of_damage(tmp_path, capsys):
    path = damaged(tmp_path / "m.npz")
    ran = piped("diff", "-", path, stdin=path.read_bytes())
    assert ran.code == 1
    assert "checksum" in ran.err
    assert inside(capsys, "diff", "-", "-").code == 2
    assert inside(capsys, "diff", path, tmp_path / "none").code == 2


def test_one_tensor_with_another_and_names_that_changed(tmp_path, capsys):
    weights = np.arange(40, dtype=np.float32).reshape(10, 4)
    tb.save({"w": weights, "b": np.zeros(3)}, tmp_path / "a.npz")
    tb.save({"layer.w": weights, "b": np.zeros(3), "c": np.ones(2)}, tmp_path / "b.tb")
    ran = inside(capsys, "diff", tmp_path / "a.npz", tmp_path / "b.tb", "--json")
    assert ran.code == 1
    assert ran.item["renamed"] == [["w", "layer.w"]]
    ran = inside(capsys, "diff", tmp_path / "a.npz", tmp_path / "b.tb")
    assert "  the same under two names: w | layer.w" in ran.lines
    assert inside(capsys, "diff", f"{tmp_path}/a.npz::w", f"{tmp_path}/b.tb::layer.w").code == 0
    assert inside(capsys, "diff", f"{tmp_path}/a.npz::b[0:2]", tmp_path / "b.tb").code == 0
    ran = inside(capsys, "diff", f"{tmp_path}/a.npz::w[0:2]", f"{tmp_path}/b.tb::layer.w[1:3]", "--json")
    assert ran.code == 1
    assert ran.item["tensors"][0]["max_abs"] == 4
    assert inside(capsys, "diff", f"{tmp_path}/a.npz::w", tmp_path / "b.tb").code == 2


def test_diff_in_a_terminal(tmp_path):
    tb.save(checkpoint(2), tmp_path / "a.tb")
    other = checkpoint(2)
    other["layers.1.norm.weight"] = other["layers.1.norm.weight"] * 1.5
    other["layers.1.attention.query.weight"] = other["layers.1.attention.query.weight"] + 1
    tb.save(other, tmp_path / "b.safetensors")
    for columns in (80, 120):
        ran = in_terminal("diff", "a.tb", "b.safetensors", columns=columns, cwd=tmp_path)
        assert ran.code == 1
        assert "16 of 16" in ran.plain
        assert ("\n  layers.1.attention.query.weight\n" in ran.plain) is (columns == 80)
        assert max(map(len, ran.lines)) <= columns


# ---- index --------------------------------------------------------------------------


def test_index_written_checked_and_outdated(records, capsys):
    index = f"{records}.index.tb"
    ran = inside(capsys, "index", "--check", records, "--json")
    assert (ran.code, ran.item["state"]) == (1, "missing")
    assert not os.path.exists(index)
    ran = inside(capsys, "index", records, "--json")
    assert ran.item | {"size": 0} == {
        "path": str(records),
        "index": index,
        "records": 50,
        "size": 0,
        "state": "current",
    }
    assert inside(capsys, "index", "--check", records).code == 0
    record_file(records, 60)
    assert inside(capsys, "index", "--check", records).lines[0].startswith(f"{index}: outdated")
    assert inside(capsys, "index", records).lines[0].startswith(f"{index}: 60 records, ")


def test_index_of_shards_and_of_what_has_none(records, tmp_path, capsys):
    tb.convert(records, tmp_path / "s.tfrecord", shards=3, sync=False)
    assert len(inside(capsys, "index", f"{tmp_path}/s.tfrecord@3", "--json").items) == 3
    assert len(inside(capsys, "index", f"{tmp_path}/s.tfrecord-*", "--json").items) == 3
    tb.save(TENSORS, tmp_path / "m.npz")
    ran = inside(capsys, "index", tmp_path / "m.npz")
    assert ran.code == 2
    assert "holds tensors, not records" in ran.err


@pytest.mark.parametrize("verb", ["verify", "repair", "diff", "index", "split", "merge", "bench"])
def test_help(verb, capsys):
    ran = inside(capsys, verb, "--help")
    assert ran.code == 0
    assert ran.out.count(f"\n  tb {verb} ") >= 3
    assert max(map(len, ran.lines)) <= 80


@pytest.mark.parametrize("name", [["w"], {"w": 1}, 5])
def test_a_manifest_whose_names_are_no_text(name, tmp_path, capsys):
    tb.save(TENSORS, tmp_path / "m.safetensors")
    row = {"name": name, "dtype": "float32", "shape": [3], "sha256": "0"}
    (tmp_path / "sums.json").write_text(json.dumps({"tensorbytes.sums": 1, "tensors": [row]}))
    ran = inside(capsys, "verify", tmp_path / "m.safetensors", "--manifest", tmp_path / "sums.json")
    assert ran.code == 2
    assert "not a manifest" in ran.err


def test_repair_takes_names_for_names(tmp_path, capsys):
    tensors = {"a*": np.zeros(5), "ab": np.arange(2000.0), "w[0]": np.ones(3), "q?": np.ones(2)}
    path = tmp_path / "x.npz"
    tb.save(tensors, path)
    flip(path, path.read_bytes().index(tensors["ab"][1000:1010].tobytes()))
    ran = inside(capsys, "repair", path, tmp_path / "y.npz")
    assert ran.code == 1
    assert tb.equal(tb.load(tmp_path / "y.npz"), {name: x for name, x in tensors.items() if name != "ab"})


def test_repair_in_place_keeps_the_tensors_of_an_object(tmp_path, capsys):
    path = tmp_path / "x.tb"
    noise = np.random.default_rng(0).standard_normal(1000)
    tb.save({"a": noise, "b": noise + 1, "c": noise + 2}, path)
    flip(path, path.read_bytes().index((noise + 1)[:10].tobytes()) - 40)  # in what is said of the second of three
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path)
    assert inside(capsys, "repair", path, "--in-place").code == 1
    assert tb.equal(tb.load(path), {"a": noise, "c": noise + 2})
    assert inside(capsys, "verify", path).code == 0
    assert os.listdir(tmp_path) == ["x.tb"]


def test_repair_in_place_leaves_a_file_that_would_not_load(tmp_path, capsys):
    path = tmp_path / "x.tb"
    noise = np.random.default_rng(0).standard_normal(1000)
    with tb.open(path, "w") as stream:
        stream.write({"a": noise, "b": noise + 1, "c": noise + 2})
    data = path.read_bytes()
    flip(path, data.index((noise + 1)[:10].tobytes()) - 40)  # in what is said of the second of three tensors
    before = path.read_bytes()
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path)
    ran = inside(capsys, "repair", path, "--in-place")
    assert ran.code == 1
    assert "not replaced" in ran.err
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.tb"]
