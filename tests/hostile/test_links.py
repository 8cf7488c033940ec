"""Files that lead to others (catalogue 92): whatever stands there, nothing outside is read and nothing waits.

ONNX's external data is tried in formats/test_onnx_models.py; here are the shards of safetensors and of checkpoints.
"""

import os
import shutil
import socket
import stat
import struct
import warnings

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
        with pytest.raises((tb.errors.CorruptError, tb.errors.UnsupportedError)) as caught:
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
        with pytest.raises((tb.errors.CorruptError, tb.errors.UnsupportedError), match="leads out"):
            read(target)


@pytest.mark.parametrize("made", ["checkpoint", "safetensors"])
def test_92_links_inside_the_folder_are_followed(made, tmp_path):
    target, shard = MADE[made](tmp_path)
    os.rename(shard, tmp_path / "elsewhere")
    os.symlink("elsewhere", shard)
    assert tb.load(target).keys() == tb.load(target, mmap=True).keys()


@pytest.mark.parametrize("made", ["checkpoint", "safetensors"])
def test_92_a_hard_link_discloses_nothing(made, tmp_path):
    """Some other file under the name of a shard: it is not a safetensors file, or has another checksum."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"something that nobody should see " * 100)
    target, shard = MADE[made](tmp_path)
    os.unlink(shard)
    os.link(secret, shard)
    for read in (tb.load, lambda path: [entry.load() for entry in tb.open(path).entries()]):
        with pytest.raises(tb.errors.CorruptError) as caught:
            read(target)
        assert "nobody" not in str(caught.value)


def test_92_the_state_file_of_checkpoints_leads_nowhere_else(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    checkpoint(tmp_path)
    for name in ("../c", str(tmp_path / "c"), "..\\c", "a/../../c"):
        (inner / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
        with pytest.raises((tb.errors.UnsupportedError, tb.errors.CorruptError)):
            tb.load(inner)
    os.unlink(inner / "checkpoint")
    os.mkfifo(inner / "checkpoint")
    with pytest.raises((tb.errors.TensorbytesError, OSError)):
        tb.load(inner)


def test_92_a_pipe_in_place_of_the_file_itself(tmp_path):
    """A path that the caller gave is opened as given; a pipe is read, and one without a writer is the caller's own."""
    for name in ("model.safetensors.index.json", "c.index"):
        os.mkfifo(tmp_path / name)
    for target in (tmp_path, tmp_path / "c"):
        with pytest.raises((tb.errors.TensorbytesError, OSError)):
            tb.load(target)


# ---- what stands beside records -----------------------------------------------


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path) as writer:
        writer.write({"x": np.arange(3)})
    os.unlink(f"{path}.schema.json")
    return path


@pytest.mark.parametrize("put", [pipe, folder, endless, silent, loop, nothing, bound])
@pytest.mark.parametrize("suffix", [".schema.json", ".index.tb"])
def test_92_what_stands_beside_records_is_a_file_or_nothing(records, put, suffix, tmp_path):
    put(f"{records}{suffix}", tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opened = tb.open_records(records)
        assert [row["x"].tolist() for row in opened] == [[0, 1, 2]]
        assert len(opened) == 1
        assert opened[0]["x"].tolist() == [0, 1, 2]
        assert tb.inspect(records).format == "tfrecord"
    assert {warning.category for warning in caught} == {tb.errors.SidecarWarning}
    assert all(str(warning.message).startswith(f"{records}{suffix} ") for warning in caught)


def test_92_a_file_beside_records_has_a_limit(records, monkeypatch):
    with open(f"{records}.index.tb", "wb") as file:
        file.truncate(tb.errors.LIMITS.max_bytes + 1)  # a hole, which takes no room
    with pytest.warns(tb.errors.SidecarWarning, match=f"at most {tb.errors.LIMITS.max_bytes} are read"):
        assert len(tb.open_records(records)) == 1


# ---- links that were planted for those who read or write --------------------------

READERS = {
    "iteration": lambda path: list(tb.open_records(path)),
    "len": lambda path: len(tb.open_records(path)),
    "one record": lambda path: tb.open_records(path)[0],
    "batches": lambda path: list(tb.open_records(path).batches(2)),
    "plan": lambda path: tb.records.plan(path, 2),
    "inspect": tb.inspect,
    "verify": tb.verify,
    "stats": tb.stats,
    "split": lambda path: tb.split(path, path.parent / "part.tfrecord", shards=1),
}


def secret(folder):
    victim = folder / "victim"
    victim.write_bytes(b"precious")
    return victim


def state(path):
    found = path.lstat()
    return found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns


@pytest.mark.filterwarnings("ignore::tensorbytes.errors.SidecarWarning")
@pytest.mark.parametrize("suffix", [".schema.json", ".index.tb"])
@pytest.mark.parametrize("reader", READERS)
def test_reading_writes_nothing_and_follows_no_planted_link(records, reader, suffix, tmp_path):
    """A1: an index that was out of date used to be saved again, through a link to any file of the reader's."""
    victim = secret(tmp_path)
    os.symlink(victim.name, f"{records}{suffix}")
    before = {path: state(path) for path in tmp_path.iterdir()}
    READERS[reader](records)
    assert victim.read_bytes() == b"precious"
    assert {path: state(path) for path in before} == before


def test_an_index_and_a_schema_replace_a_planted_link(tmp_path):
    """Names that follow from another file's are nobody's choice: what stands there is replaced, not followed."""
    victim, path = secret(tmp_path), tmp_path / "x.tfrecord"
    for suffix in (".schema.json", ".index.tb"):
        os.symlink(victim.name, f"{path}{suffix}")
    with tb.RecordWriter(path) as writer:
        writer.write({"x": 1})
    tb.records.build_index(path)
    assert victim.read_bytes() == b"precious"
    assert not os.path.islink(f"{path}.schema.json")
    assert not os.path.islink(f"{path}.index.tb")
    assert len(tb.open_records(path)) == 1


@pytest.mark.filterwarnings("ignore::tensorbytes.errors.SidecarWarning")
@pytest.mark.parametrize("put", [pipe, endless, silent, loop, nothing, bound])
@pytest.mark.parametrize("mode", ["w", "a"])
def test_writers_neither_wait_for_nor_write_to_what_stands_beside(records, put, mode, tmp_path):
    """A pipe or a device under the name of a schema or an index, itself or through a link, is replaced."""
    for suffix in (".schema.json", ".index.tb"):
        put(f"{records}{suffix}", tmp_path)
    with tb.RecordWriter(records, mode=mode) as writer:
        writer.write({"x": np.arange(3)})
    tb.records.build_index(records)
    for suffix in (".schema.json", ".index.tb"):
        assert stat.S_ISREG(os.lstat(f"{records}{suffix}").st_mode)
    assert len(tb.open_records(records)) == (2 if mode == "a" else 1)


def test_a_schema_is_not_read_through_a_link_when_appending(records, tmp_path):
    (tmp_path / "other.json").write_text(tb.records.Schema({"y": "int64"}).to_json())
    os.symlink("other.json", f"{records}.schema.json")
    with pytest.warns(tb.errors.SidecarWarning, match="is a symbolic link"):
        writer = tb.RecordWriter(records, mode="a")
    with writer:
        writer.write({"x": np.arange(3)})
    assert [row["x"].tolist() for row in tb.open_records(records)] == [[0, 1, 2]] * 2
    assert "y" in (tmp_path / "other.json").read_text()


def test_what_replaces_a_link_gets_nothing_of_what_it_led_to(records, tmp_path):
    victim = secret(tmp_path)
    victim.chmod(0o777)
    os.symlink(victim.name, f"{records}.index.tb")
    tb.records.build_index(records)
    assert os.lstat(f"{records}.index.tb").st_mode & 0o111 == 0


def test_a_link_that_the_caller_names_is_followed(tmp_path):
    target = secret(tmp_path)
    os.symlink(target.name, tmp_path / "link.tb")
    tb.save(np.arange(3), tmp_path / "link.tb")
    with tb.open(tmp_path / "link.tb", "a") as writer:
        writer.write(np.arange(2))
    assert os.path.islink(tmp_path / "link.tb")
    assert len(list(tb.open(target, format="tb"))) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes links of other users")
@pytest.mark.parametrize("write", [lambda path: tb.save(np.arange(3), path), lambda path: tb.open(path, "w").close()])
def test_a_link_of_another_user_in_a_folder_for_everybody(write, tmp_path):
    """A9: resolving the link ourselves used to pass by the protection that Linux gives to such folders."""
    victim, shared = secret(tmp_path), tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "x.tb"
    os.symlink(victim, link)
    os.chown(link, 12345, 12345, follow_symlinks=False)
    with pytest.raises(PermissionError, match="another user put into a folder for everybody"):
        write(link)
    assert victim.read_bytes() == b"precious"
    os.chown(link, os.geteuid(), -1, follow_symlinks=False)
    write(link)
    assert victim.read_bytes() != b"precious"


@pytest.mark.parametrize("write", [lambda path: tb.save(np.arange(3), path), lambda path: tb.open(path, "w").close()])
def test_new_content_does_not_get_the_rights_of_the_old(write, tmp_path):
    """A9: the right to run as the owner was given to what was there before."""
    path = tmp_path / "x.tb"
    path.write_bytes(b"a program")
    path.chmod(0o6755)
    write(path)
    assert path.stat().st_mode & 0o7777 == 0o755


def test_links_that_go_round_in_circles(tmp_path):
    os.symlink("b.tb", tmp_path / "a.tb")
    os.symlink("a.tb", tmp_path / "b.tb")
    with pytest.raises(OSError, match="symbolic link"):
        tb.save(np.arange(3), tmp_path / "a.tb")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tb", "b.tb"]


def test_92_a_pattern_waits_for_no_pipe(records, tmp_path):
    os.mkfifo(tmp_path / "y.tfrecord")
    with pytest.raises(tb.errors.UsageError, match=r"y\.tfrecord' is a pipe or a device"):
        tb.open_records(tmp_path / "*.tfrecord")
    folder = tmp_path / "logs"
    folder.mkdir()
    os.mkfifo(folder / "events.out.tfevents.1.x")
    with pytest.raises(tb.errors.UsageError, match="is a pipe or a device"):
        list(tb.records.read_events(folder))
