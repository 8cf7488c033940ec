"""The disk is told of what was written before it is waited for; what is promised of the file stays the same."""

import os

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import _wire
from tensorbytes.io import output

ROWS = {"a": np.arange(1 << 16, dtype=np.float32).reshape(64, -1)}


@pytest.fixture
def calls(monkeypatch):
    """What the system is asked for, in its order; the disk begins with every 100 000 bytes."""
    found = []
    fsync = os.fsync
    monkeypatch.setattr(output, "_WRITEBACK_BYTES", 100_000)
    monkeypatch.setattr(_wire, "start_writeback", lambda fd, at, size: found.append((os.fstat(fd).st_ino, at, size)))
    monkeypatch.setattr(os, "fsync", lambda fd: (found.append((os.fstat(fd).st_ino,)), fsync(fd))[1])
    return found


def write(path, mode="w", batches=6, **options):
    with tb.RecordWriter(path, mode=mode, **options) as file:
        for _ in range(batches):
            file.write_batch(ROWS)


def begun(calls, path):
    return [(at, at + size) for node, at, size in (call for call in calls if len(call) == 3)]


def test_what_is_begun_is_waited_for(tmp_path, calls):
    path = tmp_path / "a.tfrecord"
    write(path)
    node, size = os.stat(path).st_ino, os.path.getsize(path)
    parts = begun(calls, path)
    assert parts[0][0] == 0
    assert [start for start, _ in parts[1:]] == [stop for _, stop in parts[:-1]]
    assert size - 300_000 < parts[-1][1] <= size
    last = max(index for index, call in enumerate(calls) if len(call) == 3)
    assert (node,) in calls[last:]  # fsync comes after all of them
    assert all(call[0] == node for call in calls if len(call) == 3)


def test_an_appender_begins_where_it_goes_on(tmp_path, calls):
    path = tmp_path / "a.tfrecord"
    write(path)
    before = os.path.getsize(path)
    calls.clear()
    write(path, mode="a")
    assert begun(calls, path)[0][0] == before
    assert begun(calls, path)[-1][1] <= os.path.getsize(path)


@pytest.mark.parametrize("options", [{"sync": False}, {"batches": 0}], ids=str)
def test_a_disk_that_nobody_waits_for_is_not_told(tmp_path, calls, options):
    write(tmp_path / "a.tfrecord", schema={"a": tb.records.Feature("float32", (1024,))}, **options)
    assert begun(calls, tmp_path) == []


def test_a_hint_is_never_an_error(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.write(b"abc")
        for fd in (file.fileno(), 1 << 20):
            for at, size in ((0, 3), (0, 0), (1 << 40, 5)):
                assert _wire.start_writeback(fd, at, size) is None
    for wrong in ((-1, 0, 0), (0, -1, 0), (0, 0, -1)):
        with pytest.raises(IndexError):
            _wire.start_writeback(*wrong)
