"""Files that lead to others (catalogue 92): whatever stands there, nothing outside is read and nothing waits.

ONNX's external data is tried in formats/test_onnx_models.py; here are the shards of safetensors and of checkpoints.
"""

import os
import shutil
import socket
import struct

import numpy as np
import pytest

import tensorbytes as tb
from tests.support import checkpoint_bytes

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices of POSIX"),
    pytest.mark.timeout(20),  # whoever opens a pipe that nobody writes to would wait for ever
]

TWO = struct.pack("<2f", 1, 2)


def checkpoint(folder, shape=(2,), content=TWO):
    """A checkpoint whose one shard is to be replaced; gives (what is loaded, its shard, its content)."""
    prefix = checkpoint_bytes.put(folder, {b"w": checkpoint_bytes.entry(1, shape, content)}, content)
    return prefix, f"{prefix}.data-00000-of-00001"


def empty_checkpoint(folder):
    """No byte of the shard is needed, so its size says nothing against it."""
    return checkpoint(folder, (0,), b"")


def shards(folder):
    tb.save({"a": np.zeros(100), "b": np.ones(100)}, folder / "model.safetensors", max_shard_bytes=1000)
    return str(folder), str(folder / "model-00002-of-00002.safetensors")


MADE = {"checkpoint": checkpoint, "empty checkpoint": empty_checkpoint, "safetensors": shards}


def pipe(path, outside):
    os.mkfifo(path)


def folder(path, outside):
    os.mkdir(path)


def endless(path, outside):
    os.symlink("/dev/zero", path)


def silent(path, outside):
    os.symlink("/dev/tty", path)


def loop(path, outside):
    os.symlink(os.path.basename(path), path)


def nothing(path, outside):
    os.symlink("absent", path)


def bound(path, outside):
    here = os.getcwd()
    os.chdir(os.path.dirname(path))  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.basename(path))
    finally:
        os.chdir(here)


@pytest.mark.parametrize("put", [pipe, folder, endless, silent, loop, nothing, bound])
@pytest.mark.parametrize("made", MADE)
def test_92_what_is_no_regular_file_is_refused(made, put, tmp_path):
    target, shard = MADE[made](tmp_path)
    tb.load(target)
    os.unlink(shard)
    put(shard, tmp_path)
    for read in (tb.load, lambda path: tb.load(path, mmap=True), lambda path: tb.open(path).keys(), tb.inspect):
        with pytest.raises((tb.CorruptError, tb.UnsupportedError)) as caught:
            read(target)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("made", ["checkpoint", "safetensors"])
def test_92_a_link_out_of_the_folder(made, tmp_path):
    """Refused where the file's own bytes decide what is read of it; and never a way to another file's content."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    target, shard = MADE[made](home)
    shutil.move(shard, outside / "x")
    os.symlink(outside / "x", shard)
    for read in (tb.load, lambda path: tb.load(path, mmap=True), lambda path: tb.open(path).keys(), tb.inspect):
        with pytest.raises((tb.CorruptError, tb.UnsupportedError), match="leads out"):
            read(target)


@pytest.mark.parametrize("made", ["checkpoint", "safetensors"])
def test_92_links_inside_the_folder_are_followed(made, tmp_path):
    target, shard = MADE[made](tmp_path)
    os.rename(shard, tmp_path / "elsewhere")
    os.symlink("elsewhere", shard)
    assert tb.load(target).keys() == tb.load(target, mmap=True).keys()


@pytest.mark.parametrize("made", ["checkpoint", "safetensors"])
def test_92_a_hard_link_discloses_nothing(made, tmp_path):
    """Some other file under the name of a shard: it is no safetensors file, or has another checksum."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"something that nobody should see " * 100)
    target, shard = MADE[made](tmp_path)
    os.unlink(shard)
    os.link(secret, shard)
    for read in (tb.load, lambda path: [entry.load() for entry in tb.open(path).entries()]):
        with pytest.raises(tb.CorruptError) as caught:
            read(target)
        assert "nobody" not in str(caught.value)


def test_92_the_state_file_of_checkpoints_leads_nowhere_else(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    checkpoint(tmp_path)
    for name in ("../c", str(tmp_path / "c"), "..\\c", "a/../../c"):
        (inner / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
        with pytest.raises((tb.UnsupportedError, tb.CorruptError)):
            tb.load(inner)
    os.unlink(inner / "checkpoint")
    os.mkfifo(inner / "checkpoint")
    with pytest.raises((tb.TensorbytesError, OSError)):
        tb.load(inner)


def test_92_a_pipe_in_place_of_the_file_itself(tmp_path):
    """A path that the caller gave is opened as given; a pipe is read, and one without a writer is the caller's own."""
    for name in ("model.safetensors.index.json", "c.index"):
        os.mkfifo(tmp_path / name)
    for target in (tmp_path, tmp_path / "c"):
        with pytest.raises((tb.TensorbytesError, OSError)):
            tb.load(target)


# ---- what stands beside records -----------------------------------------------


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path) as writer:
        writer.write({"x": np.arange(3)})
    os.unlink(f"{path}.schema.json")
    return path


@pytest.mark.parametrize("put", [pipe, endless, silent, loop, nothing, bound])
@pytest.mark.parametrize("suffix", [".schema.json", ".index.tb"])
def test_92_what_stands_beside_records_is_a_file_or_nothing(records, put, suffix, tmp_path):
    put(f"{records}{suffix}", tmp_path)
    opened = tb.open_records(records)
    assert [row["x"].tolist() for row in opened] == [[0, 1, 2]]
    assert len(opened) == 1
    assert opened[0]["x"].tolist() == [0, 1, 2]
    assert tb.inspect(records).format == "tfrecord"


def test_92_a_pattern_waits_for_no_pipe(records, tmp_path):
    os.mkfifo(tmp_path / "y.tfrecord")
    with pytest.raises(tb.UsageError, match=r"y\.tfrecord' is a pipe or a device"):
        tb.open_records(tmp_path / "*.tfrecord")
    folder = tmp_path / "logs"
    folder.mkdir()
    os.mkfifo(folder / "events.out.tfevents.1.x")
    with pytest.raises(tb.UsageError, match="is a pipe or a device"):
        list(tb.read_events(folder))
