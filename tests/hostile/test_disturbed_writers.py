"""Writers that somebody disturbs: signal handlers, cleaners, other users, forks, full disks, a change of folder."""

import glob
import os
import resource
import signal
import stat
import subprocess
import sys
import warnings

import fsspec
import numpy as np
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import tensorbytes as tb
from tensorbytes.errors import InUseError, TensorbytesError, UnclosedWriterWarning
from tensorbytes.io import hidden, holding
from tests.support.appended_files import kinds, record

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks, forks and signals of POSIX")


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


# ---- calls from inside other calls ----------------------------------------------------


@kinds
@pytest.mark.parametrize("verb", ["flush", "sync", "close", "abort", "write"])
def test_185_a_call_from_inside_another_is_refused(kind, tmp_path, verb):
    path = kind.file(tmp_path)
    writer = kind.open(path, "w")
    writer.write(record(1))
    raised = []

    def handler(*_):
        try:
            getattr(writer, verb)(*([record(9)] if verb == "write" else []))
        except TensorbytesError as error:
            raised.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with interrupted(signal.SIGUSR1, writer._lock):
            writer.write(record(2))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(raised) == 1
    assert "in the middle of another call" in str(raised[0])
    writer.write(record(3))
    writer.close()
    assert kind.read(path) == [1, 2, 3]


class interrupted:
    """A signal comes at the first line that runs while the lock is held."""

    def __init__(self, number, lock):
        self._number, self._lock, self.sent = number, lock, False

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_):
        sys.settrace(self._before)
        assert self.sent

    def _trace(self, frame, event, argument):
        if not self.sent and self._lock._is_owned():
            self.sent = True
            signal.raise_signal(self._number)
        return self._trace


def test_185_a_handler_that_closes_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"x": np.arange(3)}, path)
    writer = tb.open(path, "w")

    def stop(*_):
        writer.close()

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(TensorbytesError, match="in the middle"), interrupted(signal.SIGUSR1, writer._lock):
            writer.write(np.zeros(1 << 20))
    finally:
        signal.signal(signal.SIGUSR1, before)
    writer.abort()
    assert tb.load(path)["x"].tolist() == [0, 1, 2]


# ---- files that are not what they were ------------------------------------------------


@pytest.mark.parametrize("how", ["the folder is renamed", "a cleaner removes hidden files"])
def test_186_nobody_publishes_the_file_of_another(tmp_path, how):
    folder = tmp_path / "run"
    folder.mkdir()
    path = folder / "x.tb"
    first = tb.open(path, "w")
    first.write(np.full(4, 1))
    if how == "the folder is renamed":
        folder.rename(tmp_path / "old")
        folder.mkdir()
    else:
        for name in glob.glob(f"{folder}/*.tmp"):
            os.unlink(name)
    second = tb.open(path, "w")
    second.write(np.full(4, 7))
    with pytest.raises((FileNotFoundError, InUseError), match=r"removed|being written"):
        first.close()
    assert not path.exists()
    second.close()
    assert [x.tolist() for x in tb.open(path)] == [[7, 7, 7, 7]]


def test_186_what_was_removed_is_not_acknowledged(tmp_path):
    writer = tb.open(tmp_path / "x.tb", "w")
    writer.write(np.arange(3))
    for name in glob.glob(f"{tmp_path}/*.tmp"):
        os.unlink(name)
    with pytest.raises(FileNotFoundError, match="removed by another program"):
        writer.close()
    assert names(tmp_path) == []


@kinds
def test_187_an_appender_whose_lock_file_is_gone_still_has_its_file(kind, tmp_path):
    path = kind.file(tmp_path)
    kind.write(path, [1])
    writer = kind.open(path, "a")
    writer.write(record(2))
    writer.sync()
    for name in glob.glob(f"{tmp_path}/*.tmp"):
        os.unlink(name)
    with pytest.raises(InUseError):
        tb.save(np.arange(2), path, "tb")
    for mode in ("w", "a"):
        with pytest.raises(InUseError):
            kind.open(path, mode)
    writer.close()
    assert kind.read(path) == [1, 2]


def test_188_a_process_forked_off_while_saving_holds_nobody_up(tmp_path, monkeypatch):
    path, children = tmp_path / "x.tb", []
    gate, opener = os.pipe()
    sync = os.fsync

    def forking(fd):
        sync(fd)
        if not children:
            child = os.fork()
            if not child:
                os.close(opener)
                os.read(gate, 1)
                os._exit(0)
            children.append(child)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", forking)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of threads that are forked
                tb.save(np.arange(5), path)
        for mode in ("a", "w"):
            with tb.open(path, mode) as writer:
                writer.write(np.arange(2))
        tb.save(np.arange(3), path)
    finally:
        os.close(opener)
        os.close(gate)
        for child in children:
            os.waitpid(child, 0)
    assert children
    assert tb.load(path).tolist() == [0, 1, 2]


# ---- locks ----------------------------------------------------------------------------


def test_189_a_lock_file_that_is_another_name_of_a_file(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("years of work")
    os.link(precious, holding._lock_name(str(tmp_path / "x.tb")))
    with tb.open(tmp_path / "x.tb", "w") as writer:
        writer.write(np.arange(2))
    assert precious.read_text() == "years of work"
    assert names(tmp_path) == ["precious.txt", "x.tb"]


def test_220_others_see_a_lock_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        writer = tb.open(tmp_path / "x.tb", "w")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(holding._lock_name(str(tmp_path / "x.tb"))).st_mode) & 0o444 == 0o444
    writer.abort()


OTHER_USER = """
import os, sys
os.setuid(65534)
import tensorbytes as tb
from tensorbytes.errors import InUseError
try:
    tb.open(sys.argv[1], "w")
except InUseError as error:
    print(error)
"""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="becomes another user")
def test_220_a_lock_that_can_t_be_read_is_a_lock(tmp_path):
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if not os.stat(folder).st_mode & 0o001:
            pytest.skip("another user can't come here")
    lock = holding._lock_name(str(tmp_path / "x.tb"))
    with open(lock, "wb"):
        os.chmod(lock, 0o600)
    found = subprocess.run([sys.executable, "-c", OTHER_USER, tmp_path / "x.tb"], capture_output=True, text=True)
    if "PermissionError" in found.stderr:
        pytest.skip("another user can't read the package")
    assert "another user" in found.stdout, found.stderr


# ---- full disks, and what is said of them ---------------------------------------------


@kinds
def test_221_a_forgotten_writer_on_a_full_disk_keeps_what_is_whole(kind, tmp_path):
    path = kind.file(tmp_path)
    writer = kind.open(path, "w")
    rows = np.random.default_rng(0).integers(0, 1 << 60, (300, 1000))
    for row in rows:
        writer.write({"x": row})
    size = max(os.path.getsize(name) for name in glob.glob(f"{tmp_path}/*.tmp"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, limits[1]))
    try:
        with pytest.warns(UnclosedWriterWarning, match="kept in|can't keep"):
            del writer
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (left,) = [tmp_path / name for name in names(tmp_path) if "unclosed-1" in name and "schema" not in name]
    assert not path.exists()
    if "none" in kind.name or kind.name == "stream":  # compressed ones count up to their last flush
        found = list(tb.open(left, format="tb") if kind.name == "stream" else tb.open_records(left))
        assert 100 < len(found) < 300
        assert all((one["x"] == row).all() for one, row in zip(found, rows, strict=False))


@kinds
def test_222_close_after_a_failed_flush_says_so(kind, tmp_path):
    path = kind.file(tmp_path)
    writer = kind.open(path, "w")
    writer.write({"x": np.arange(10)})
    writer.flush()
    for row in np.random.default_rng(0).integers(0, 1 << 60, (40, 1000)):
        writer.write({"x": row})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(TensorbytesError, match=r"a call failed.*not flushed before is lost.*File too large"):
        writer.close()
    writer.close()  # said once


@kinds
def test_222_a_block_raises_the_failure_itself(kind, tmp_path):
    path = kind.file(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match="File too large"), kind.open(path, "w") as writer:  # noqa: PT012
            for row in np.random.default_rng(0).integers(0, 1 << 60, (20, 1000)):
                writer.write({"x": row})
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == []


# ---- places ---------------------------------------------------------------------------


def test_223_the_program_goes_elsewhere_while_records_are_written(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with tb.RecordWriter(tmp_path / "two" / "x.tfrecord") as writer:
        writer.write({"other": [1, 2]})
    monkeypatch.chdir(tmp_path / "one")
    writer = tb.RecordWriter("x.tfrecord")
    writer.write({"a": "text", "b": 3})
    monkeypatch.chdir(tmp_path / "two")
    writer.close()
    assert names(tmp_path / "one") == ["x.tfrecord", "x.tfrecord.schema.json"]
    (row,) = tb.open_records(tmp_path / "two" / "x.tfrecord")
    assert row["other"].tolist() == [1, 2]
    (row,) = tb.open_records(tmp_path / "one" / "x.tfrecord")
    assert (row["a"], row["b"]) == ("text", 3)


class Upload(AbstractBufferedFile):
    """An object that is there when it is closed, and not if it was discarded: as in object stores."""

    def _initiate_upload(self):
        self.parts = []

    def _upload_chunk(self, final=False):
        self.buffer.seek(0)
        self.parts.append(self.buffer.read())
        if final:
            self.fs.objects[self.path] = b"".join(self.parts)
        return True

    def _fetch_range(self, start, end):
        return self.fs.objects[self.path][start:end]

    def discard(self):
        self.parts = []


class Bucket(AbstractFileSystem):
    protocol = "bucket"
    objects = {}  # noqa: RUF012

    def _open(self, path, mode="rb", **options):
        return Upload(self, path, mode, size=len(self.objects.get(path, b"")), cache_type="all")

    def info(self, path, **_):
        path = self._strip_protocol(path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.objects[path]), "type": "file"}

    def ls(self, path, detail=True, **_):
        return [self.info(name) for name in self.objects] if detail else list(self.objects)


@pytest.fixture
def bucket():
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    Bucket.objects.clear()
    tb.save({"x": np.arange(5)}, "bucket://old.tb")
    tb.save({"x": np.arange(5)}, "bucket://old.pbs")
    return {name: bytes(data) for name, data in Bucket.objects.items()}


def test_224_a_failure_leaves_the_object_that_was_at_a_url(bucket, tmp_path):
    assert bucket
    writer = tb.open("bucket://old.tb", "w")
    writer.write(np.arange(3))
    writer.abort()
    assert Bucket.objects == bucket
    with pytest.raises(ZeroDivisionError), tb.open("bucket://old.tb", "w") as writer:  # noqa: PT012
        writer.write(np.arange(1 << 20))
        1 / 0  # noqa: B018
    assert Bucket.objects == bucket
    with pytest.raises(ZeroDivisionError), tb.RecordWriter("bucket://old.tb", sidecar=False) as writer:  # noqa: PT012
        writer.write({"a": np.arange(1 << 20)})
        1 / 0  # noqa: B018
    assert Bucket.objects == bucket
    damaged = bytearray(tb.dumps([{"x": np.arange(1000)}, {"x": np.arange(1000)}]))
    damaged[-30] ^= 1
    (tmp_path / "damaged.tb").write_bytes(damaged)
    with pytest.raises(tb.errors.CorruptError):
        tb.convert(tmp_path / "damaged.tb", "bucket://old.pbs")
    assert Bucket.objects == bucket
    with tb.open("bucket://old.tb", "w") as writer:
        writer.write(np.arange(3))
    assert Bucket.objects != bucket


@pytest.mark.parametrize("size", [200, 215, 226, 235, 243])
def test_225_names_that_leave_no_room_for_ours(tmp_path, size):
    path = tmp_path / ("é" + "x" * (size - 12) + ".tfrecord")
    assert len(os.fsencode(path.name)) == size - 1
    with tb.RecordWriter(path) as writer:
        writer.write({"a": 1})
    with tb.RecordWriter(path, mode="a") as writer:
        writer.write({"a": 2})
    assert [int(row["a"]) for row in tb.open_records(path)] == [1, 2]
    assert len(names(tmp_path)) == 2
    writer = tb.RecordWriter(path)
    writer.write({"a": 3})
    with pytest.warns(UnclosedWriterWarning, match="kept in"):
        del writer
    assert all(hidden.is_hidden(name) for name in names(tmp_path) if "unclosed" in name)
    stream = tmp_path / ("y" * (size - 3) + ".tb")
    first = tb.open(stream, "w")
    with pytest.raises(InUseError):
        tb.open(stream, "w")
    first.close()


def test_225_a_name_that_leaves_no_room_for_the_schema_is_refused_at_once(tmp_path):
    path = tmp_path / ("x" * 240 + ".tfrecord")
    with pytest.raises(OSError, match="sidecar=False"):
        tb.RecordWriter(path)
    assert names(tmp_path) == []
    with tb.RecordWriter(path, sidecar=False) as writer:
        writer.write({"a": 1})
    assert names(tmp_path) == [path.name]


# ---- a disk that fails even when a file is closed ---------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks for open files where Linux lists them")
@pytest.mark.parametrize("name", ["x.tb", "x.tfrecord"])
def test_226_a_failure_to_close_the_file_leaves_its_path_free(tmp_path, name):
    path = tmp_path / name
    writer = tb.open(path, "w") if name == "x.tb" else tb.RecordWriter(path)
    writer.write({"x": 1})
    writer.flush()
    (number,) = (fd for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == str(path))
    os.close(int(number))  # so that the writer can't
    with pytest.raises(OSError, match="Bad file descriptor"):
        writer.close()
    assert not [left for left in names(tmp_path) if left.endswith(".tmp")]
    with tb.open(path, "a") if name == "x.tb" else tb.RecordWriter(path, mode="a") as again:
        again.write({"x": 2})
