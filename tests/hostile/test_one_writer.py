"""One writer for a path (catalogue 151 to 153).

A stream writer or an appender takes its path when it is opened, also where no file is yet. Others who would write
there are refused before they replace anything; whoever is dead holds nobody up.
"""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import tensorbytes as tb
import tensorbytes.errors
from tests.support.appended_files import GZIP, KINDS, LOCK, PLAIN, STREAM, Kind, kinds, record
from tests.support.tiers import deep_but

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="locks, forks and signals of POSIX"),
    pytest.mark.timeout(120),
]

MODES = ("w", "a")
# What a file is when its writer is opened, and whether the writer has shown anything yet.
STARTS = ("new", "new, flushed", "old", "old, flushed")


def in_use():
    """The error, which older versions lack: so each test fails by itself."""
    return tensorbytes.errors.InUseError


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def run(code, *arguments, code_expected=0):
    ran = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert ran.returncode == code_expected, ran.stderr
    return ran.stdout


@pytest.fixture
def home(tmp_path):
    made = tmp_path / "home"
    made.mkdir()
    return made


def started(kind: Kind, folder, mode, start):
    """(a live writer, its path, the numbers that are acknowledged so far)"""
    path, there = kind.file(folder), []
    if start.startswith("old"):
        kind.write(path, range(3))
        there = [0, 1, 2]
    writer = kind.open(path, mode)
    if mode == "w" and "flushed" in start:
        there = []
    if "flushed" in start:
        writer.write(record(10))
        writer.flush()
        there = [*there, 10]
    return writer, path, there


# ---- a second stream writer ---------------------------------------------------------


def test_151_the_error_is_one_of_ours():
    assert issubclass(in_use(), tb.errors.TensorbytesError)


@kinds
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("second", MODES)
def test_151_a_second_writer(kind, start, mode, second, home):
    """A3: two appenders on a file that was not there yet, and the second replaced the first's."""
    writer, path, there = started(kind, home, mode, start)
    with writer:
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(in_use(), match="is being written") as caught:
            kind.open(path, second)
        for word in (path.name, str(os.getpid()), socket.gethostname()):
            assert word in str(caught.value)
        assert (path.read_bytes() if path.exists() else None) == before
        writer.write(record(11))
    expected = [*there, 11] if mode == "a" or "flushed" in start else [11]
    assert kind.read(path) == expected
    assert names(home) == [path.name]
    kind.write(path, [12], "a")
    assert kind.read(path) == [*expected, 12]


@pytest.mark.parametrize("start", deep_but(["new"], STARTS))
@pytest.mark.parametrize("mode", MODES)
def test_151_a_stream_and_records_of_one_path(start, mode, home):
    writer, path, _ = started(STREAM, home, mode, start)
    with writer, pytest.raises(in_use()):
        tb.RecordWriter(path, mode="w")


OTHER = """if True:
    import sys, tensorbytes as tb
    for opened in (lambda p: tb.open(p, "a"), lambda p: tb.open(p, "w"), lambda p: tb.RecordWriter(p, mode="a"),
                   lambda p: tb.save([1], p, "tb")):
        try:
            opened(sys.argv[1])
            print("nothing was said")
        except tb.errors.TensorbytesError as error:
            print(type(error).__name__, error)
"""


@pytest.mark.parametrize("mode", MODES)
def test_151_another_process_is_told_who_has_it(mode, home):
    with tb.open(home / "x.tb", mode) as writer:
        told = run(OTHER, home / "x.tb").splitlines()
        assert len(told) == 4
        for line in told:
            assert line.startswith("InUseError")
            assert "is being written" in line
            assert str(os.getpid()) in line
        writer.write(record(1))
    assert STREAM.read(home / "x.tb") == [1]


def test_151_other_names_of_the_same_file(home, monkeypatch):
    """Through a link, by a relative path, around a corner."""
    (home / "inner").mkdir()
    path = home / "x.tb"
    os.symlink("x.tb", home / "link.tb")
    os.symlink("..", home / "inner" / "up")
    monkeypatch.chdir(home)
    with tb.open(path, "w") as writer:
        for name in ("x.tb", "./x.tb", "inner/../x.tb", "link.tb", "inner/up/x.tb", home / "link.tb"):
            with pytest.raises(in_use()):
                tb.open(name, "a")
        writer.write(record(1))
        monkeypatch.chdir(home / "inner")
        with pytest.raises(in_use()):
            tb.open("../x.tb", "a")
    assert STREAM.read(path) == [1]


def test_151_each_shard_is_taken(home):
    with tb.RecordWriter(home / "x.tfrecord", shards=3, sidecar=False) as writer:
        for number in range(3):
            shard = home / f"x.tfrecord-{number:05d}-of-00003"
            with pytest.raises(in_use()):
                tb.RecordWriter(shard, mode="a", sidecar=False)
        for number in range(6):
            writer.write(record(number))
    assert sorted(names(home)) == [f"x.tfrecord-{number:05d}-of-00003" for number in range(3)]
    assert sorted(PLAIN.read(f"{home}/x.tfrecord@3")) == list(range(6))


def test_151_a_shard_that_is_taken_stops_all_of_them(home):
    with tb.RecordWriter(home / "x.tfrecord-00001-of-00003", sidecar=False) as writer:
        writer.write(record(1))
        with pytest.raises(in_use()):
            tb.RecordWriter(home / "x.tfrecord", shards=3, sidecar=False)
    assert names(home) == ["x.tfrecord-00001-of-00003"]


@kinds
def test_151_a_writer_that_ends_in_any_way_gives_the_path_back(kind, home):
    path = kind.file(home)
    kind.open(path).abort()
    with contextlib.suppress(ZeroDivisionError), kind.open(path) as writer:
        writer.write(record(1))
        raise ZeroDivisionError
    assert names(home) == []
    path.write_bytes(b"this is not one of our files, and long enough to tell")
    for _ in range(2):
        with pytest.raises(tb.errors.TensorbytesError) as caught:
            kind.open(path, "a")
        assert not isinstance(caught.value, in_use())
    assert names(home) == [path.name]
    kind.write(path, [2])
    assert kind.read(path) == [2]


def test_151_readers_need_no_lock(home):
    path = home / "x.tb"
    with tb.open(path, "w") as writer:
        for number in range(3):
            writer.write(record(number))
            writer.flush()
            assert STREAM.read(path) == list(range(number + 1))
        assert tb.inspect(path).format == "tb"


# ---- verbs beside a live writer ------------------------------------------------------


def value():
    return {"x": np.int64(77), "y": np.full(2, 77)}


def records_file(folder):
    path = folder / "source.tfrecord"
    if not path.exists():
        PLAIN.write(path, [77])
    return path


def _damaged(folder):
    path = folder / "damaged.tfrecord"
    data = bytearray(records_file(folder).read_bytes() * 3)
    data[60] ^= 1
    path.write_bytes(data)
    return path


VERBS = {
    "save": (STREAM, lambda path, other: tb.save(value(), path)),
    "save as records' neighbour": (PLAIN, lambda path, other: tb.save(value(), path, "tb")),
    "convert to a stream": (STREAM, lambda path, other: tb.convert(records_file(other), path)),
    "convert to records": (PLAIN, lambda path, other: tb.convert(records_file(other), path)),
    "convert to gzip": (GZIP, lambda path, other: tb.convert(records_file(other), path, compression="gzip")),
    "merge": (PLAIN, lambda path, other: tb.merge([records_file(other)] * 2, path)),
    "repair": (PLAIN, lambda path, other: tb.repair(_damaged(other), path, replace=True)),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verb", VERBS)
def test_152_verbs_beside_a_live_writer(verb, mode, start, home, tmp_path):
    """A4: they had replaced the file, and the writer went on to acknowledge what was gone."""
    kind, act = VERBS[verb]
    writer, path, there = started(kind, home, mode, start)
    with writer:
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(in_use(), match="is being written"):
            act(path, tmp_path)
        assert (path.read_bytes() if path.exists() else None) == before
        writer.write(record(11))
        writer.flush()
        with pytest.raises(in_use()):
            act(path, tmp_path)
        writer.write(record(12))
    assert kind.read(path) == [*(there if mode == "a" or "flushed" in start else []), 11, 12]
    assert names(home) == [path.name]
    act(path, tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_152_split_onto_a_part_that_is_being_written(mode, home, tmp_path):
    source = tmp_path / "source.tfrecord"
    PLAIN.write(source, range(10))
    other = tmp_path / "other.tfrecord"  # of other bytes, so that it shows if a part is replaced
    PLAIN.write(other, range(20, 30))
    part = home / "part.tfrecord-00001-of-00003"
    tb.split(source, home / "part.tfrecord", shards=3)
    assert part.name in names(home)
    before = {entry.name: entry.read_bytes() for entry in home.iterdir()}
    with tb.RecordWriter(part, mode=mode, sidecar=False) as writer:
        with pytest.raises(in_use()):
            tb.split(other, home / "part.tfrecord", shards=3)
        after = {entry.name: entry.read_bytes() for entry in home.iterdir() if not entry.name.endswith(".tmp")}
        assert after == before  # none of the parts was replaced
        writer.write(record(11))
    assert PLAIN.read(part)[-1] == 11


def test_152_an_index_of_what_is_being_written(home):
    path = home / "x.tfrecord"
    with tb.RecordWriter(path, sidecar=False) as writer:
        writer.write(record(1))
        writer.flush()
        with pytest.raises(in_use()):
            tb.records.build_index(path)
        writer.write(record(2))
    assert names(home) == ["x.tfrecord"]
    tb.records.build_index(path)
    assert len(tb.open_records(path)) == 2


@pytest.mark.parametrize("mode", MODES)
def test_152_commands_say_it_in_a_line(mode, home, tmp_path, capsys):
    from tensorbytes import cli

    source = records_file(tmp_path)
    path = home / "x.tfrecord"
    with tb.RecordWriter(path, mode=mode, sidecar=False) as writer:
        writer.write(record(1))
        for command in ("convert", "merge"):
            code = cli.main([command, str(source), str(path)])
            told = capsys.readouterr()
            assert code not in (0, 70), told
            assert "is being written" in told.err
            assert "Traceback" not in told.err
    assert PLAIN.read(path) == [1]


# ---- savers beside savers --------------------------------------------------------------

SAVER = """if True:
    import sys, numpy as np, tensorbytes as tb
    path, me = sys.argv[1], int(sys.argv[2])
    for turn in range(30):
        tb.save({"x": np.full(5000, me)}, path, sync=False)
        assert len(set(tb.load(path)["x"].tolist())) == 1
"""


def test_152_savers_in_processes_and_threads(home):
    """The last one wins, whole: nobody is refused."""
    path = home / "x.tb"
    children = [subprocess.Popen([sys.executable, "-c", SAVER, path, str(me)]) for me in range(2)]
    failed = []

    def save(me):
        try:
            for _ in range(30):
                tb.save({"x": np.full(5000, me)}, path, sync=False)
                assert len(set(tb.load(path)["x"].tolist())) == 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(10 + me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait() for child in children] == [0, 0]
    assert not failed, failed
    assert names(home) == ["x.tb"]


# ---- appenders side by side --------------------------------------------------------------

APPENDER = """if True:
    import sys, time, numpy as np, tensorbytes as tb, tensorbytes.errors
    path, kind, me = sys.argv[1], sys.argv[2], int(sys.argv[3])
    done = 0
    while done < 12:
        try:
            stream = kind == "stream"
            writer = tb.open(path, "a") if stream else tb.RecordWriter(path, mode="a", sidecar=False, sync=False)
        except tensorbytes.errors.InUseError:
            time.sleep(0.001)
            continue
        with writer:
            for number in range(3):
                writer.write({"x": np.int64(100 * me + done), "y": np.full(2, 100 * me + done)})
                done += 1
"""


@pytest.mark.parametrize("kind", deep_but([STREAM, PLAIN], KINDS), ids=lambda kind: kind.name)
def test_153_appenders_of_a_new_file_in_processes(kind, home):
    """A3: each gets the file in its turn, and every record is there once, in its order."""
    in_use()
    path = kind.file(home)
    if kind not in (STREAM, PLAIN):
        kind.write(path, [])
    words = [sys.executable, "-c", APPENDER, path, kind.name]
    children = [subprocess.Popen([*words, str(me)]) for me in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    found = kind.read(path)
    assert sorted(found) == [100 * me + number for me in range(4) for number in range(12)]
    for me in range(4):
        assert [number % 100 for number in found if number // 100 == me] == list(range(12))
    assert names(home) == [path.name]


@kinds
def test_153_appenders_of_a_new_file_in_threads(kind, home, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    in_use()
    path, failed = kind.file(home), []
    barrier = threading.Barrier(4)

    def append(me):
        try:
            barrier.wait()
            done = 0
            while done < 12:
                with contextlib.suppress(in_use()), kind.open(path, "a") as writer:
                    for _ in range(3):
                        writer.write(record(100 * me + done))
                        done += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=append, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert sorted(kind.read(path)) == [100 * me + number for me in range(4) for number in range(12)]
    assert names(home) == [path.name]


# ---- the dead hold nobody up ----------------------------------------------------------------

KILLED = """if True:
    import os, signal, sys, numpy as np, tensorbytes as tb
    path, kind, mode, seen = sys.argv[1:]
    writer = tb.open(path, mode) if kind == "stream" else tb.RecordWriter(path, mode=mode, sidecar=False)
    writer.write({"x": np.int64(5), "y": np.full(2, 5)})
    if seen == "seen":
        writer.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("seen", ["seen", "hidden"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [STREAM, PLAIN], ids=lambda kind: kind.name)
def test_153_a_killed_writer_holds_nobody_up(kind, mode, seen, home):
    path = kind.file(home)
    run(KILLED, path, kind.name, mode, seen, code_expected=-signal.SIGKILL)
    with kind.open(path, "a") as writer:
        writer.write(record(6))
    assert kind.read(path) == ([5, 6] if seen == "seen" else [6])
    assert names(home) == [path.name]


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", b"\0" * 100, b"x" * 100_000, b'{"pid": 1}', b"1", b"99999999999999999999", b"-1", b"\xff\xfe"],
    ids=range(9),
)
@pytest.mark.parametrize("mode", MODES)
def test_153_a_lock_file_that_nobody_holds(mode, content, home):
    """Left behind, or written by somebody else: what it says does not count, who holds it does."""
    path = home / "x.tb"
    (home / f"x.tb{LOCK}").write_bytes(content)
    with tb.open(path, mode) as writer:
        writer.write(record(1))
        with pytest.raises(in_use(), match=str(os.getpid())):
            tb.open(path, "a")
    tb.save(value(), path)
    assert names(home) == ["x.tb"]


@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "folder", "link to a device"])
@pytest.mark.parametrize("act", [lambda path: tb.open(path, "a").close(), lambda path: tb.save(value(), path)])
def test_153_a_lock_that_is_not_a_file(what, act, home, tmp_path):
    """Nothing is followed and nothing waits. Whether the writer goes on or refuses, it says so in our words."""
    victim, place = tmp_path / "victim", home / f"x.tb{LOCK}"
    victim.write_bytes(b"precious")
    {
        "link": lambda: place.symlink_to(victim),
        "dangling link": lambda: place.symlink_to(tmp_path / "absent"),
        "pipe": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "link to a device": lambda: place.symlink_to("/dev/zero"),
    }[what]()
    with contextlib.suppress(tb.errors.TensorbytesError, OSError):
        act(home / "x.tb")
    assert victim.read_bytes() == b"precious"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["home", "victim"]


FORKED = """if True:
    import os, signal, sys, numpy as np, tensorbytes as tb
    path, mode, how = sys.argv[1:]
    writer = tb.open(path, mode)
    writer.write({"x": np.int64(1), "y": np.full(2, 1)})
    writer.flush()
    if not os.fork():
        os.close(1)
        sys.stdin.read()  # lives on, with all that it inherited, until the test lets it go
        os._exit(0)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "closed":
        writer.close()
    elif how == "aborted":
        writer.abort()
    os._exit(0)
"""


@pytest.mark.parametrize("how", ["killed", "closed", "aborted", "ended"])
@pytest.mark.parametrize("mode", MODES)
def test_153_a_child_that_inherited_a_lock_holds_nobody_up(how, mode, home):
    """Forked while the lock is held; the parent is gone, the child lives on."""
    path = home / "x.tb"
    words = [sys.executable, "-c", FORKED, path, mode, how]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.read()  # until both have closed it
        parent.wait() if how != "killed" else os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        try:
            with tb.open(path, "a") as writer:
                writer.write(record(2))
            tb.save(value(), home / "y.tb")
            assert STREAM.read(path) == [1, 2]
        finally:
            parent.stdin.close()  # the child ends
    assert names(home) == ["x.tb", "y.tb"]


def test_153_a_child_that_starts_another_program_holds_nobody_up(home):
    """Descriptors of writers are not inherited by programs."""
    path = home / "x.tb"
    writer = tb.open(path, "a")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        writer.write(record(1))
        writer.close()
        with tb.open(path, "a") as again:
            again.write(record(2))
        child.stdin.close()
    assert STREAM.read(path) == [1, 2]


@pytest.mark.filterwarnings("ignore:os.fork")
def test_153_a_forked_child_can_t_use_its_parents_lock(home):
    """The child may open the path only when the parent is done with it."""
    path = home / "x.tb"
    writer = tb.open(path, "w")
    writer.write(record(1))
    child = os.fork()
    if not child:
        code = 1
        try:
            tb.open(path, "a")
        except tb.errors.TensorbytesError as error:
            code = 0 if type(error).__name__ == "InUseError" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.close()
    assert STREAM.read(path) == [1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("act", [lambda path: tb.open(path, "a"), lambda path: tb.save(value(), path)])
def test_153_a_lock_that_can_t_be_looked_at_is_not_free(number, act, home, monkeypatch):
    """Only where nobody may write, or there is no folder, can there be no lock."""
    path = home / "x.tb"
    real = os.open

    def failing(name, flags, *rest, **options):
        if not isinstance(name, int) and os.fspath(name).endswith(LOCK):
            raise OSError(number, os.strerror(number), name)
        return real(name, flags, *rest, **options)

    STREAM.write(path, [0])
    with tb.open(path, "w") as writer:
        writer.write(record(1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", failing)
            with pytest.raises((OSError, tb.errors.TensorbytesError)):
                act(path)
        writer.write(record(2))
    assert STREAM.read(path) == [1, 2]
