"""Writers beside other writers, beside readers, and in forked processes."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.io import publish
from tests.support.crash_writers import names, read, stream, writers
from tests.support.tiers import deep_but

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks, forks and signals of POSIX")


def run(code, *arguments):
    ran = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# ---- two writers ----------------------------------------------------------------


@writers
def test_a_file_that_is_being_written_is_not_replaced(tmp_path, opened):
    path = tmp_path / "x"
    with opened(path) as first:
        first.write({"x": 1})
        first.flush()
        for mode in ("w", "a"):
            with pytest.raises(tb.errors.TensorbytesError, match="is being written"):
                opened(path, mode)
        first.write({"x": 2})
    assert read(path, opened) == [1, 2]
    assert names(tmp_path) == ["x"]


@writers
def test_of_two_new_writers_the_first_has_the_path(tmp_path, opened):
    path = tmp_path / "x"
    with opened(path) as first:
        for mode in ("w", "a"):
            with pytest.raises(tb.errors.InUseError, match=rf"is being written by process {os.getpid()} on .*write"):
                opened(path, mode)
        first.write({"x": 1})
        first.flush()
        first.write({"x": 2})
    assert read(path, opened) == [1, 2]
    assert names(tmp_path) == ["x"]


def test_another_process_is_told_too(tmp_path):
    path = tmp_path / "x.tb"
    with tb.open(path, "w") as first:
        first.write({"x": 1})
        first.flush()
        attempt = "try: tb.open(sys.argv[1], 'a')\nexcept tb.errors.TensorbytesError as e: print(e)"
        code = f"import sys, tensorbytes as tb\n{attempt}"
        assert "is being written" in run(code, path)
    assert "is being written" not in run(code, path)


def test_a_filesystem_without_locks(tmp_path, monkeypatch):
    import fcntl

    def no_locks(fd, operation):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for mode in ("w", "a"):
        with tb.open(tmp_path / "x.tb", mode) as writer:
            writer.write({"x": 1})
    tb.save(np.ones(3), tmp_path / "y.tb")
    assert read(tmp_path / "x.tb") == [1, 1]
    assert names(tmp_path) == ["x.tb", "y.tb"]


# ---- a reader beside a writer ---------------------------------------------------


@writers
def test_a_reader_sees_whole_objects_of_a_live_writer(tmp_path, opened):
    """Whenever it looks: a prefix of what was written, at least what was flushed, never a wrong value."""
    path = tmp_path / "x"
    flushed, seen = [0], []

    def item(number):
        return {"x": np.int64(number), "y": np.full(number % 7 * 1000, number)}

    def tail():
        while not seen or seen[-1] < 300:
            least, got = flushed[0], 0
            if not path.exists():
                continue
            with contextlib.suppress(tb.errors.CorruptError):  # the last one is on its way
                for one in tb.open(path) if opened is stream else tb.open_records(path, threads=1):
                    assert int(one["x"]) == got
                    assert np.array_equal(one["y"], item(got)["y"])
                    got += 1
            assert got >= least
            seen.append(got)

    failed = []

    def watch():
        try:
            tail()
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=watch)
    reader.start()
    with opened(path) as writer:
        for number in range(300):
            writer.write(item(number))
            if number % 5 == 4:
                writer.flush()
                flushed[0] = number + 1
                time.sleep(0.001)
            if failed:
                break
    reader.join(60)
    assert not failed, failed
    assert not reader.is_alive()
    assert len(set(seen)) > 2


# ---- forks ----------------------------------------------------------------------

FORKED = """if True:
    import os, sys, tensorbytes as tb
    path, kind, seen, how = sys.argv[1:]
    opened = tb.open(path, "w") if kind == "stream" else tb.RecordWriter(path, sidecar=False)
    with opened as writer:
        writer.write({"x": 1})
        if seen == "seen":
            writer.flush()
            writer.write({"x": 2})
        child = os.fork()
        if not child:
            if how == "exit":
                sys.exit(0)  # ends the block
            if how == "close":
                writer.close()
                os._exit(0)
            if how == "abort":
                writer.abort()
                os._exit(0)
            code = 1
            for use in (lambda: writer.write_raw(b"") if kind != "stream" else writer.write({"x": 5}), writer.flush):
                try:
                    use()
                except tb.errors.TensorbytesError as error:
                    code = 0 if "process" in str(error) else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        writer.write({"x": 3})
"""


@pytest.mark.parametrize("how", deep_but(["close"], ["exit", "close", "abort", "use"]))
@pytest.mark.parametrize("seen", ["seen", "hidden"])
@writers
def test_a_fork_leaves_the_file_alone(tmp_path, opened, seen, how):
    path = tmp_path / "x"
    run(FORKED, path, opened.__name__, seen, how)
    assert read(path, opened) == ([1, 2, 3] if seen == "seen" else [1, 3])
    assert names(tmp_path) == ["x"]


def test_a_fork_that_lives_on_holds_no_lock(tmp_path):
    code = """if True:
        import os, sys, time, tensorbytes as tb
        writer = tb.open(sys.argv[1], "a")
        writer.write({"x": 1})
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # until the parent ends
            os._exit(0)
        writer.close()
        with tb.open(sys.argv[1], "a") as again:
            again.write({"x": 2})
    """
    run(code, tmp_path / "x.tb")
    assert read(tmp_path / "x.tb") == [1, 2]


def test_a_fork_does_not_give_up_the_parents_table(tmp_path):
    code = """if True:
        import contextlib, os, sys, numpy as np, tensorbytes as tb
        from tensorbytes.formats._arrow.batches import BatchWriter
        writer = BatchWriter(sys.argv[1])
        writer.write({"x": tb.Tensor("int64", (3,), np.arange(3))})
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                writer.abort()
            os._exit(0)
        os.waitpid(child, 0)
        writer.close()
    """
    run(code, tmp_path / "x.arrow")
    assert tb.load(tmp_path / "x.arrow")["x"].tolist() == [0, 1, 2]
    assert names(tmp_path) == ["x.arrow"]


def test_names_that_are_given_back_may_be_taken_at_once(tmp_path, monkeypatch):
    """The next writer has the same hidden names from the moment on that the claim of the one before is gone."""
    path = str(tmp_path / "x")
    first, taken = publish.Names(path), []
    first.name(0)
    discard = first._claim.discard

    def discard_and_wait():
        discard()
        taken.append(publish.Names(path))
        taken.append(taken[0].name(0))

    monkeypatch.setattr(first._claim, "discard", discard_and_wait)
    first.close()
    second, name = taken
    publish.check_name(name)
    second.close()
