"""What killed writers leave, links and modes, disks that fail or are full, signals."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import cli
from tensorbytes.io import publish
from tensorbytes.savedmodel import export
from tests.support.crash_writers import names, read, stream, writers

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks, forks and signals of POSIX")


# ---- what a killed writer leaves -------------------------------------------------

KILLED = """if True:
    import os, signal, sys, numpy as np, tensorbytes as tb
    from tensorbytes.io import storage
    def die(file, piece):
        os.kill(os.getpid(), signal.SIGKILL)
    storage.write_all = die
    tb.save({"a": np.ones(100_000), "b": np.ones(10)}, sys.argv[1], **eval(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("name", "options"),
    [("x.tb", {}), ("x.npz", {}), ("m", {"format": "checkpoint"}), ("x.safetensors", {"max_shard_bytes": 1000})],
)
def test_what_a_killed_writer_left_goes_with_the_next(tmp_path, name, options):
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", KILLED, tmp_path / name, repr(options)])
        assert ran.returncode == -signal.SIGKILL
        assert names(tmp_path)
        assert all(left.endswith(".tmp") for left in names(tmp_path))
    tb.save({"a": np.ones(100_000), "b": np.ones(10)}, tmp_path / name, **options)
    assert not [left for left in names(tmp_path) if left.endswith(".tmp")]


def test_files_of_others_and_of_live_writers_stay(tmp_path):
    path = tmp_path / "x.tb"
    for other in ("x.tb.tmp", "x.tb.0.tmp", "x.tb.1a2b3c4d.tmp", "y.tb.tensorbytes-0.tmp", "x.tensorbytes-0.tmp"):
        (tmp_path / other).write_bytes(b"precious")
    before = names(tmp_path)
    with tb.open(path, "w") as live:
        live.write({"x": 1})
        with pytest.raises(tb.errors.InUseError):
            tb.save(np.ones(3), path)  # not even if nothing of the writer is seen there yet
        assert names(tmp_path) == sorted([*before, "x.tb.tensorbytes-0.tmp", "x.tb.tensorbytes-lock.tmp"])
        live.close()
    assert read(path) == [1]
    assert names(tmp_path) == sorted([*before, "x.tb"])
    assert all((tmp_path / other).read_bytes() == b"precious" for other in before)


def test_commands_pass_over_what_is_not_whole(tmp_path, capsys):
    tb.save({"a": np.ones(3)}, tmp_path / "x.tb")
    shutil.copy(tmp_path / "x.tb", tmp_path / "x.tb.tensorbytes-0.tmp")
    assert cli.main(["info", "--json", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "x.tb" in told
    assert "tensorbytes-0" not in told


def test_many_writers_of_one_name(tmp_path):
    """Each has a hidden file of its own, and takes its place when it is done."""
    path = tmp_path / "x.tb"
    with contextlib.ExitStack() as done:
        files = [done.enter_context(publish.replacing(str(path))) for _ in range(12)]
        assert len(names(tmp_path)) == 12
        for number, file in enumerate(files):
            file.write(tb.dumps({"x": number}))
    assert tb.load(path) == {"x": 0}
    assert names(tmp_path) == ["x.tb"]


def test_writers_in_many_threads(tmp_path):
    path = tmp_path / "x.tb"
    failed = []

    def save(number):
        try:
            for _ in range(20):
                tb.save({"x": np.full(1000, number)}, path, sync=False)
                assert len(set(tb.load(path)["x"].tolist())) == 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert names(tmp_path) == ["x.tb"]


# ---- swapped under way -----------------------------------------------------------


def test_a_link_planted_under_the_hidden_name_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for number in range(3):
        (tmp_path / f"x.tb.tensorbytes-{number}.tmp").symlink_to(victim)
    tb.save(np.ones(3), tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb", "w") as writer:
        writer.write({"x": 1})
    assert victim.read_bytes() == b"precious"
    assert read(tmp_path / "x.tb") == [1]
    assert not (tmp_path / "x.tb").is_symlink()


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_link_put_in_the_targets_place_is_replaced_not_followed(tmp_path, kind):
    victim, path = tmp_path / "victim", tmp_path / "x.tb"
    victim.write_bytes(b"precious")

    def pieces():
        yield np.ones(10)
        path.unlink()
        path.symlink_to(victim) if kind == "symbolic" else os.link(victim, path)
        yield np.ones(10)

    tb.save(np.zeros(3), path)
    with tb.open(path, "w") as writer:
        for piece in pieces():
            writer.write({"x": 7, "y": piece})
    assert victim.read_bytes() == b"precious"
    assert not path.is_symlink()
    assert read(path) == [7, 7]


def test_other_names_of_the_old_file_keep_it(tmp_path):
    path = tmp_path / "x.tb"
    tb.save(np.zeros(3), path)
    os.link(path, tmp_path / "other.tb")
    tb.save(np.ones(4), path)
    assert tb.load(tmp_path / "other.tb").shape == (3,)


# ---- what belongs to the old file --------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes")
@pytest.mark.parametrize("write", [lambda path: tb.save(np.ones(4), path), lambda path: stream(path).close()])
def test_attributes_are_kept(tmp_path, write):
    path = tmp_path / "x.tb"
    tb.save(np.zeros(3), path)
    try:
        os.setxattr(path, "user.origin", b"the lab")
    except OSError:
        pytest.skip("this filesystem has no extended attributes")
    write(path)
    assert os.getxattr(path, "user.origin") == b"the lab"


def test_a_private_file_stays_private_while_it_is_replaced(tmp_path):
    path = tmp_path / "x.tb"
    tb.save(np.zeros(3), path)
    path.chmod(0o600)
    with tb.open(path, "w") as writer:
        (temporary,) = tmp_path.glob("*-0.tmp")
        assert temporary.stat().st_mode & 0o077 == 0
        writer.write({"x": 1})
    assert path.stat().st_mode & 0o777 == 0o600


# ---- disks that fail ----------------------------------------------------------------


@pytest.mark.parametrize("seen", [True, False])
@writers
def test_after_a_failed_sync_nothing_is_acknowledged(tmp_path, opened, seen, monkeypatch):
    """The system tells of data that it lost once: a second sync would find nothing to complain of."""
    path = tmp_path / "x"
    writer = opened(path)
    writer.write({"x": 1})
    if seen:
        writer.sync()
        writer.write({"x": 2})

    def broken(fd):
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="input/output"):
            writer.sync()
    for use in (writer.sync, writer.flush):
        with pytest.raises(tb.errors.TensorbytesError, match="closed"):
            use()
    with pytest.raises(tb.errors.TensorbytesError, match=r"a call failed.*nput/output error"):
        writer.close()
    writer.close()  # said once
    assert names(tmp_path) == (["x"] if seen else [])
    if seen:
        assert read(path, opened)[:1] == [1]


@writers
def test_an_old_file_is_replaced_by_one_that_is_on_disk(tmp_path, opened, monkeypatch):
    """flush() promises nothing about power cuts; but the old file had survived one."""
    path = tmp_path / "x"
    steps = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: steps.append("sync") or sync(fd))
    monkeypatch.setattr(os, "replace", lambda a, b: steps.append("replace") or replace(a, b))
    for expected in (["replace"], ["sync", "replace"]):
        with opened(path) as writer:
            writer.write({"x": 1})
            steps.clear()
            writer.flush()
            assert steps == expected


def test_a_pipe_that_does_not_wait_is_an_error_not_a_loss():
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with open(read_end, "rb"), open(write_end, "wb", buffering=0) as pipe, pytest.raises(BlockingIOError):
        tb.save(np.zeros(1 << 20), pipe, "tb")


def test_a_saved_model_is_in_place_before_the_old_one_goes(tmp_path, monkeypatch):
    place = tmp_path / "model"
    synced = []

    def write(folder):
        os.makedirs(folder)
        (Path(folder) / "saved_model.pb").write_bytes(b"new")

    def sync_folder(path):
        if path == str(place):
            synced.append([(entry / "saved_model.pb").exists() for entry in tmp_path.iterdir() if entry.is_dir()])

    export.put_in_place(write, str(place), sync=True)
    monkeypatch.setattr(export.publish, "sync_folder", sync_folder)
    export.put_in_place(write, str(place), sync=True)
    assert synced == [[True, True]]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("fails", [True, False])
def test_records_never_stand_beside_the_schema_of_others(tmp_path, fails, monkeypatch):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path) as writer:
        writer.write({"x": "text"})
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    seen = []
    replace = os.replace

    def watched(source, target):
        if str(target) == str(path):
            seen.append([name for name in names(tmp_path) if not name.endswith(".tmp")])
            if fails:
                raise OSError(errno.EIO, "input/output error")
        return replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    with pytest.raises(OSError, match="input") if fails else contextlib.nullcontext(), tb.RecordWriter(path) as writer:
        writer.write({"y": 1})
    assert seen == [["x.tfrecord"]]  # without a schema: readers look at the records
    if fails:
        assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before
    else:
        assert [dict(row) for row in tb.open_records(path)] == [{"y": 1}]
        assert names(tmp_path) == ["x.tfrecord", "x.tfrecord.schema.json"]


FULL = """
mount -t tmpfs -o size=300k none "$1" || exit 77
exec "$2" -c "$3" "$1"
"""
ON_A_FULL_DISK = """if True:
    import errno, os, sys, numpy as np, tensorbytes as tb
    folder = sys.argv[1]
    path = os.path.join(folder, "x.tb")
    tb.save(np.arange(1000), path)
    for large in (lambda: tb.save(np.zeros(100_000), path), lambda: tb.open(path, "w").write(np.zeros(100_000))):
        try:
            large()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
        else:
            raise AssertionError("there was room")
        assert os.listdir(folder) == ["x.tb"], os.listdir(folder)
    assert tb.load(path).tolist() == list(range(1000))
    records = os.path.join(folder, "r.tfrecord")
    with tb.RecordWriter(records) as writer:
        writer.write({"x": np.arange(100)})
    try:
        with tb.RecordWriter(records, mode="a") as writer:
            writer.write_batch({"x": np.arange(1_000_000).reshape(-1, 100) + (1 << 40)})
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    else:
        raise AssertionError("there was room")
    found = list(tb.open_records(records))
    assert found[0]["x"].tolist() == list(range(100))
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")], os.listdir(folder)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs tmpfs")
def test_a_disk_that_is_full(tmp_path):
    words = ["-m"] if os.geteuid() == 0 else ["-rm"]
    command = ["unshare", *words, "sh", "-c", FULL, "sh", tmp_path, sys.executable, ON_A_FULL_DISK]
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if ran.returncode == 77 or "unshare:" in ran.stderr:
        pytest.skip("no tmpfs can be mounted here")
    assert ran.returncode == 0, ran.stderr


# ---- signals -------------------------------------------------------------------------


def test_a_storm_of_signals_changes_nothing(tmp_path):
    """Each system call may be interrupted, and go on."""
    values = {f"w{i}": np.random.default_rng(i).normal(size=200_000) for i in range(6)}
    count = [0]

    def note(number, frame):
        count[0] += 1

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for name in ("x.tb", "x.npz", "x.safetensors"):
            tb.save(values, tmp_path / name)
        with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
            for number in range(400):
                writer.write({"n": number, "x": values["w0"][number : number + 500]})
                if not number % 50:
                    writer.sync()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count[0] > 3
    for name in ("x.tb", "x.npz", "x.safetensors"):
        assert tb.equal(tb.load(tmp_path / name), values)
    assert [int(row["n"]) for row in tb.open_records(tmp_path / "x.tfrecord")] == list(range(400))
