"""Writers that nobody closed (catalogue 154): what was written is kept, and a visible warning says where."""

import gc
import os
import re
import subprocess
import sys
import threading
import warnings

import pytest

import tensorbytes as tb
import tensorbytes.errors
from tensorbytes.records import events
from tests.support.appended_files import LOCK, STREAM, UNCLOSED, kinds, record
from tests.support.cli_cases import default_signals, inside

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks, forks and signals of POSIX")


def unclosed():
    """The warning, which older versions lack: so each test fails by itself."""
    return tensorbytes.errors.UnclosedWriterWarning


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def forget(kind, path, mode="w", numbers=(1, 2, 3), flush_after=()):
    """Write, and drop the writer; gives the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        writer = kind.open(path, mode)
        for number in numbers:
            writer.write(record(number))
            if number in flush_after:
                writer.flush()
        del writer
        gc.collect()
    return [warning for warning in caught if warning.category is unclosed()]


def check_told(told, path, count):
    assert len(told) == 1, [str(warning.message) for warning in told]
    text = str(told[0].message)
    assert str(path) in text
    assert re.search(rf"\b{count}\b", text), text


def test_154_the_warning_is_one_that_users_see():
    """ResourceWarning is hidden by default; a UserWarning is not."""
    assert issubclass(unclosed(), UserWarning)


@kinds
def test_154_a_new_file(kind, tmp_path):
    """A10: all of it was lost, with a ResourceWarning that nobody sees."""
    path = kind.file(tmp_path)
    told = forget(kind, path)
    check_told(told, path, 3)
    kept = tmp_path / f"{path.name}{UNCLOSED}1"
    assert names(tmp_path) == [kept.name]
    assert kept.name in str(told[0].message)
    assert kind.read(kept) == [1, 2, 3]


@kinds
def test_154_an_old_file_is_not_replaced(kind, tmp_path):
    """Half a file in the place of a whole one would be worse than none."""
    path = kind.file(tmp_path)
    kind.write(path, [7, 8])
    check_told(forget(kind, path), path, 3)
    assert kind.read(path) == [7, 8]
    assert kind.read(f"{path}{UNCLOSED}1") == [1, 2, 3]
    assert names(tmp_path) == [path.name, f"{path.name}{UNCLOSED}1"]


@kinds
def test_154_what_was_flushed_once_is_in_the_file(kind, tmp_path):
    path = kind.file(tmp_path)
    check_told(forget(kind, path, flush_after=[1]), path, 3)
    assert kind.read(path) == [1, 2, 3]
    assert names(tmp_path) == [path.name]


@kinds
def test_154_what_was_appended_is_in_the_file(kind, tmp_path):
    path = kind.file(tmp_path)
    kind.write(path, [7, 8])
    told = forget(kind, path, "a")
    assert len(told) == 1
    assert str(path) in str(told[0].message)
    assert kind.read(path) == [7, 8, 1, 2, 3]
    assert names(tmp_path) == [path.name]


@kinds
def test_154_an_append_to_a_file_that_was_not_there(kind, tmp_path):
    path = kind.file(tmp_path)
    check_told(forget(kind, path, "a"), path, 3)
    found = path if path.exists() else f"{path}{UNCLOSED}1"
    assert kind.read(found) == [1, 2, 3]


@kinds
def test_154_names_that_are_taken_stay(kind, tmp_path):
    path, victim = kind.file(tmp_path), tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f"{path.name}{UNCLOSED}1").write_bytes(b"of an earlier run")
    os.symlink(victim, f"{path}{UNCLOSED}2")
    for number in (3, 4):
        forget(kind, path, numbers=[number])
        assert kind.read(f"{path}{UNCLOSED}{number}") == [number]
    assert (tmp_path / f"{path.name}{UNCLOSED}1").read_bytes() == b"of an earlier run"
    assert victim.read_bytes() == b"precious"


@kinds
def test_154_nothing_written_is_nothing_to_keep(kind, tmp_path):
    forget(kind, kind.file(tmp_path), numbers=[])
    left = names(tmp_path)
    assert not [name for name in left if name.endswith(".tmp")]
    assert all(kind.read(tmp_path / name) == [] for name in left)


@kinds
def test_154_the_next_writer_is_not_held_up(kind, tmp_path):
    path = kind.file(tmp_path)
    forget(kind, path)
    kind.write(path, [5], "a")
    assert kind.read(path) == [5]
    assert not os.path.exists(f"{path}{LOCK}")


@kinds
def test_154_those_who_close_are_not_warned(kind, tmp_path):
    path = kind.file(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind.write(path, [1])
        kind.open(path, "a").close()
        writer = kind.open(tmp_path / "other")
        writer.write(record(1))
        writer.abort()
        del writer
        gc.collect()
    assert names(tmp_path) == [path.name]


@kinds
def test_154_a_cycle_of_references(kind, tmp_path):
    path = kind.file(tmp_path)

    class Holder:
        pass

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        holder = Holder()
        holder.me, holder.writer = holder, kind.open(path)
        holder.writer.write(record(4))
        del holder
        gc.collect()
    check_told([one for one in caught if one.category is unclosed()], path, 1)
    assert kind.read(f"{path}{UNCLOSED}1") == [4]


def test_154_dropped_in_a_thread(tmp_path):
    path = STREAM.file(tmp_path)
    told = []
    thread = threading.Thread(target=lambda: told.extend(forget(STREAM, path)))
    thread.start()
    thread.join()
    check_told(told, path, 3)
    assert STREAM.read(f"{path}{UNCLOSED}1") == [1, 2, 3]


def test_154_shards(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        writer = tb.RecordWriter(tmp_path / "x.tfrecord", shards=2, sidecar=False)
        for number in range(5):
            writer.write(record(number))
        del writer
        gc.collect()
    told = [str(one.message) for one in caught if one.category is unclosed()]
    assert told
    found = [int(row["x"]) for name in names(tmp_path) for row in tb.open_records(tmp_path / name)]
    assert sorted(found) == list(range(5))
    assert all(UNCLOSED in name for name in names(tmp_path))


# ---- the end of the interpreter --------------------------------------------------------

PROGRAM = """if True:
    import os, signal, sys, threading, numpy as np, tensorbytes as tb
    path, kind, mode, seen, how = sys.argv[1:]
    def write():
        global writer
        writer = tb.open(path, mode) if kind == "stream" else tb.RecordWriter(path, mode=mode, sidecar=False)
        for number in range(3):
            writer.write({"x": np.int64(number), "y": np.full(2, number)})
            if number == 0 and seen == "seen":
                writer.flush()
    write()
    if how == "sys.exit":
        sys.exit(3)
    if how == "exception":
        raise ZeroDivisionError
    if how == "cycle":
        here = [writer]
        here.append(here)
        del writer
    if how == "fork":
        child = os.fork()
        if not child:
            sys.exit(0)  # the parent's writer is not the child's
        os.waitpid(child, 0)
    if how == "interrupt":
        signal.raise_signal(signal.SIGINT)
"""
CODES = {"sys.exit": 3, "exception": 1, "interrupt": -2}


def program(path, kind, mode="w", seen="hidden", how="end", options=()):
    words = [sys.executable, *options, "-c", PROGRAM, path, kind.name, mode, seen, how]
    with default_signals():
        ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == CODES.get(how, 0), ran.stderr
    return ran.stderr


@pytest.mark.parametrize("how", ["end", "sys.exit", "exception", "cycle", "fork", "interrupt"])
@pytest.mark.parametrize("seen", ["hidden", "seen"])
def test_154_alive_when_the_interpreter_ends(how, seen, tmp_path):
    path = STREAM.file(tmp_path)
    told = program(path, STREAM, "w", seen, how)
    assert told.count("UnclosedWriterWarning") == 1, told
    line = next(line for line in told.splitlines() if "UnclosedWriterWarning" in line)
    assert str(path) in line
    assert re.search(r"\b3\b", line), line
    found = path if seen == "seen" else f"{path}{UNCLOSED}1"
    assert STREAM.read(found) == [0, 1, 2]
    assert names(tmp_path) == [os.path.basename(found)]


@pytest.mark.deep
@kinds
@pytest.mark.parametrize("mode", ["w", "a"])
def test_154_each_kind_alive_when_the_interpreter_ends(kind, mode, tmp_path):
    path = kind.file(tmp_path)
    kind.write(path, [7])
    assert "UnclosedWriterWarning" in program(path, kind, mode)
    assert kind.read(path) == ([7, 0, 1, 2] if mode == "a" else [7])
    if mode == "w":
        assert kind.read(f"{path}{UNCLOSED}1") == [0, 1, 2]


@pytest.mark.parametrize("options", [["-W", "error"], ["-W", "ignore"]])
def test_154_whatever_becomes_of_warnings_the_records_are_kept(options, tmp_path):
    path = STREAM.file(tmp_path)
    words = [sys.executable, *options, "-c", PROGRAM, path, "stream", "w", "hidden", "end"]
    with default_signals():
        ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert STREAM.read(f"{path}{UNCLOSED}1") == [0, 1, 2]


def test_154_a_folder_that_is_gone_is_no_reason_to_crash(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        writer = tb.open(folder / "x.tb", "w")
        writer.write(record(1))
        for entry in folder.iterdir():
            entry.unlink()
        folder.rmdir()
        del writer
        gc.collect()
    assert names(tmp_path) == []


def test_214_what_was_kept_is_read_only_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, number in (("x.tfrecord", 1), ("events.tfevents.1", 3)):
        with tb.RecordWriter(name, sidecar=False) as writer:
            writer.write({"a": number})
    writer = tb.RecordWriter("x.tfrecord")
    writer.write({"a": 100})
    with pytest.warns(unclosed()):
        del writer
    for name in ("x.tfrecord", "events.tfevents.1"):
        with open(name, "ab") as file:
            file.write(b"\1\2\3")
        with pytest.warns(tb.errors.TornTailWarning):
            tb.RecordWriter(name, mode="a", sidecar=False).close()
    assert [int(row["a"]) for row in tb.open_records("x.tfrecord*")] == [1]
    assert [int(row["a"]) for row in tb.open_records("x.tfrecord.tensorbytes-unclosed-1")] == [100]
    assert "tensorbytes-" not in inside(capsys, "verify", "x.tfrecord*").out
    assert events.event_files(".") == ["./events.tfevents.1"]
