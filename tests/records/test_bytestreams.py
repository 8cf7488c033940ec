"""Where records are read from: files, pipes and URLs, in sequence, ahead, at any place; and bombs."""

import contextlib
import gc
import io
import json
import os
import random
import struct
import subprocess
import sys
import threading

import fsspec
import numpy as np
import pytest

from tensorbytes.errors import CorruptError, MissingDependencyError, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream, PrefetchedStream, SeekableStream, open_stream
from tensorbytes.io.streams import decoders
from tensorbytes.io.streams.detection import NAMES
from tensorbytes.io.streams.encoders import open_encoder
from tests.support.packed_bytes import PACKED, Pipe, drain, pack, some_records, threads_left, unpack
from tests.support.wire_bytes import framed


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert threads_left() == []


# ---- bombs -----------------------------------------------------------------------

# Reads a file twice, in small steps; tells how much memory it took.
BOMBED = """
import io, json, sys
from tensorbytes.io.streams import encoders, engines
from tensorbytes.formats.tfrecord.files import bytestreams

def peak():  # of this program alone: getrusage counts the process it was started from
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

path, engine = sys.argv[1:]
if engine == "zlib":
    engines.find_isal = lambda: None
import cramjam
bytestreams.open_stream(io.BytesIO(encoders.open_encoder("gzip").finish())).close()
view = memoryview(bytearray(1 << 16))
before, size = peak(), 0
with bytestreams.open_stream(path) as source:
    while count := source.readinto(view):
        size += count
with bytestreams.SeekableStream(path) as seekable:
    tail = len(seekable.read_at(size - 1000, 5000))
print(json.dumps([size, tail, peak() - before]))
"""


@pytest.mark.parametrize("name", ["isal", "zlib", "snappy"])
def test_a_bomb_takes_time_but_no_memory(tmp_path, name):
    size = 48 << 20
    packer = open_encoder("snappy") if name == "snappy" else open_encoder("gzip", 9)
    plain = framed(bytes((1 << 20) - 16))
    with open(tmp_path / "bomb", "wb") as file:
        for _ in range(size >> 20):
            file.write(packer.compress(plain))
        file.write(packer.finish())
    args = [sys.executable, "-c", BOMBED, str(tmp_path / "bomb"), name]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    got, tail, grown = json.loads(done.stdout)
    assert (got, tail) == (size, 1000)
    assert grown < 24 << 20


# ---- where bytes come from -------------------------------------------------------


KINDS = ["path", "file", "raw", "bytes", "one at a time", "pipe", "fifo", "memory", "file url"]


@contextlib.contextmanager
def target_of(kind, packed, path):
    """The packed bytes as some kind of target."""
    path.write_bytes(packed)
    if kind in ("file", "raw"):
        with open(path, "rb", buffering=0 if kind == "raw" else -1) as file:
            yield file
    elif kind in ("pipe", "fifo"):
        inner, outer = os.pipe()
        if kind == "fifo":
            os.mkfifo(path.with_suffix(".fifo"))
        place = outer if kind == "pipe" else path.with_suffix(".fifo")

        def write():
            with open(place, "wb") as file:
                file.write(packed)

        writer = threading.Thread(target=write)
        writer.start()
        with os.fdopen(inner, "rb") as file:
            yield file if kind == "pipe" else place
            writer.join()
        if kind == "fifo":
            os.close(outer)
    elif kind == "memory":
        with fsspec.open("memory://compression/x", "wb") as file:
            file.write(packed)
        yield "memory://compression/x"
    else:
        yield {
            "path": path,
            "file url": path.as_uri(),
            "bytes": io.BytesIO(packed),
            "one at a time": Pipe(packed),
        }[kind]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_target(tmp_path, name, kind):
    data = framed(*some_records(200), os.urandom(3_000 if kind == "one at a time" else 300_000))
    packed = pack(name, data[:1000], data[1000:])
    with target_of(kind, packed, tmp_path / "x") as target:
        with open_stream(target) as source:
            assert source.compression == name
            assert drain(source, 100_001) == (data, None)
            assert source.consumed == len(packed)
            if kind in ("path", "memory", "file url"):
                assert source.total == len(packed)
        if hasattr(target, "close"):
            assert not target.closed


def test_a_live_pipe_gives_what_was_flushed_before_more_is_written():
    first, second = framed(b"one"), framed(b"two")
    for name in NAMES:
        inner, outer = os.pipe()
        packer = open_encoder(name)
        view = memoryview(bytearray(100))
        with os.fdopen(inner, "rb") as reader, os.fdopen(outer, "wb", buffering=0) as writer:
            writer.write(bytes(packer.compress(first)) + bytes(packer.flush()))
            out = b""
            with open_stream(reader, name) as source:
                while len(out) < len(first):
                    out += view[: source.readinto(view)]
                assert out == first
                writer.write(bytes(packer.compress(second)) + bytes(packer.finish()))
                writer.close()
                assert drain(source) == (second, None)


def test_a_file_object_is_read_from_where_it_stands():
    for name in PACKED:
        file = io.BytesIO(b"before" + pack(name, b"abc" * 50))
        file.seek(6)
        with open_stream(file, name) as source:
            assert drain(source) == (b"abc" * 50, None)
        damaged = bytearray(file.getvalue())
        damaged[20] ^= 0x55
        file = io.BytesIO(damaged)
        file.seek(6)
        with open_stream(file, name) as source:
            drain(source)  # isal has to start over, at byte 6


def test_file_objects_that_are_of_no_use():
    with pytest.raises(UsageError, match="binary mode"):
        open_stream(io.StringIO("text"))

    class NotYet(io.RawIOBase):
        def read(self, size=-1):
            return None

    with pytest.raises(UsageError, match="no bytes are ready"):
        open_stream(NotYet())

    class TooMuch:
        def read(self, size):
            return bytes(size + 1)

    with pytest.raises(UsageError, match="when asked for"):
        open_stream(TooMuch())
    for wrong in (b"bytes", bytearray(3), 5, None):
        with pytest.raises(UsageError):
            open_stream(wrong)
    with pytest.raises(FileNotFoundError):
        open_stream("no such file")
    with pytest.raises(IsADirectoryError):
        open_stream(os.curdir)


def test_a_file_object_that_only_has_read():
    class Reader:
        def __init__(self, data):
            self.read = io.BytesIO(data).read

    for name in NAMES:
        with open_stream(Reader(pack(name, framed(b"abc")))) as source:
            assert drain(source) == (framed(b"abc"), None)


def test_an_error_while_reading_comes_after_what_was_read_before_it():
    class Broken(Pipe):
        def read(self, size=-1):
            return super().read(size) or os.read(-1, 1)

    data = framed(*some_records())
    for prefetch in (True, False):
        with open_stream(Broken(pack("gzip", data), 1000), prefetch=prefetch) as source:
            view, out = memoryview(bytearray(10_000)), b""
            while len(out) < len(data):
                out += view[: source.readinto(view)]
            assert out == data
            for _ in range(2):
                with pytest.raises(OSError, match="Bad file descriptor"):
                    source.readinto(view)


@pytest.mark.parametrize("url", [False, True])
def test_a_range_of_bytes(tmp_path, url):
    data = framed(*some_records(50))
    path = tmp_path / "x"
    path.write_bytes(data)
    target = path.as_uri() if url else path
    for start, end in ((0, None), (0, 40), (100, 200), (16, None), (30, 30), (len(data), len(data)), (0, len(data))):
        for name in ("none", "auto"):
            with open_stream(target, name, start, end) as source:
                assert drain(source, 37) == (data[start:end], None)
                assert source.size == len(data)
                assert source.total == source.consumed == len(data[start:end])
    with open_stream(target, "none", 10, len(data) + 5) as source:
        out, error = drain(source)
    assert (out, error.at) == (data[10:], len(data))
    assert "has it become shorter" in str(error)


def test_ranges_that_make_no_sense(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(pack("gzip", framed(b"abc")))
    with pytest.raises(UsageError, match="uncompressed files only, and this one is gzip"):
        open_stream(path, "auto", 5)
    for start, end in ((-1, None), (5, 3), (-1, 3)):
        with pytest.raises(UsageError, match="expected a range"):
            open_stream(path, "none", start, end)
    with pytest.raises(UsageError, match="any place"):
        open_stream(Pipe(bytes(100)), "none", 5)


def test_optional_packages_are_named_when_they_are_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match=r"tensorbytes\[cloud\]"):
        open_stream("memory://x")


# ---- threads ---------------------------------------------------------------------


class Counting(ByteStream):
    """Numbers, without end or up to an error; tells how many were asked for."""

    path, compression = "counting", "none"

    def __init__(self, error=None, after=1 << 60):
        self.given, self.closed = 0, threading.Event()
        self._error, self._after = error, after

    def _read_piece(self):
        if self.given == self._after:
            raise self._error
        self.given += 1
        self.consumed += 8
        return struct.pack("<Q", self.given)

    def close(self):
        self.closed.set()


def test_reading_ahead_keeps_within_its_depth_and_stops_when_closed():
    source = Counting()
    ahead = PrefetchedStream(source, depth=3)
    view = memoryview(bytearray(8))
    for number in range(1, 50):
        assert ahead.readinto(view) == 8
        assert struct.unpack("<Q", view) == (number,)
        assert ahead.consumed == number * 8
        assert source.given <= number + 3 + 1
    ahead.close()
    assert source.closed.is_set()
    with pytest.raises(UsageError, match="closed"):
        ahead.readinto(view)
    ahead.close()


def test_an_error_ahead_waits_for_its_turn():
    for error in (CorruptError("bad", at=7), KeyboardInterrupt("stop"), MemoryError()):
        with PrefetchedStream(Counting(error, after=10), depth=30) as ahead:
            view = memoryview(bytearray(8))
            assert [ahead.readinto(view) for _ in range(10)] == [8] * 10
            for _ in range(3):
                with pytest.raises(type(error)) as raised:
                    ahead.readinto(view)
                assert raised.value is error


def test_a_source_that_is_forgotten_stops_its_thread():
    source = Counting()
    ahead = PrefetchedStream(source, depth=2)
    ahead.readinto(memoryview(bytearray(8)))
    (thread,) = ahead._crew.threads
    del ahead
    gc.collect()
    thread.join()
    assert source.closed.is_set()


def test_closing_does_not_wait_for_a_pipe_that_gives_nothing(monkeypatch):
    monkeypatch.setattr("tensorbytes.formats.tfrecord.files.bytestreams._PATIENCE_SECONDS", 0.01)
    inner, outer = os.pipe()
    with os.fdopen(inner, "rb", buffering=0) as reader, os.fdopen(outer, "wb", buffering=0) as writer:
        writer.write(pack("gzip", b"abc"))
        source = open_stream(reader, "gzip")
        view = memoryview(bytearray(8))
        assert source.readinto(view) == 3
        source.close()
        writer.close()
        source._crew.threads[0].join()


def test_a_fork_can_neither_read_nor_hang(tmp_path):
    (tmp_path / "x").write_bytes(pack("gzip", os.urandom(30 << 20), level=0))
    program = (
        "import os, sys\n"
        "from tensorbytes.formats.tfrecord.files.bytestreams import open_stream\n"
        "from tensorbytes.errors import UsageError\n"
        "source = open_stream(sys.argv[1])\n"
        "child = os.fork()\n"
        "try:\n"
        "    count = source.readinto(memoryview(bytearray(9)))\n"
        "except UsageError as error:\n"
        "    assert 'fork' in str(error)\n"
        "    count = 0\n"
        "source.close()\n"
        "sys.exit(0 if child == 0 and not count else 1 if child == 0 else os.waitpid(child, 0)[1] or count != 9)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "x")], timeout=60, check=False)
    assert done.returncode == 0


# ---- random access ---------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch):
    """Checkpoints close together, so that a small file has many."""
    monkeypatch.setattr(decoders, "_SPACING", 1 << 14)
    return 1 << 14


def inflating(monkeypatch):
    """How many bytes decoders give from here on."""
    given = [0]
    for kind in (decoders.Inflater, decoders.Unsnapper):

        def counted(self, limit, real=kind.next):
            piece = real(self, limit)
            given[0] += len(piece)
            return piece

        monkeypatch.setattr(kind, "next", counted)
    return given


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("members", [1, 5, 300])
def test_any_place_of_a_compressed_file_can_be_read(tmp_path, name, members, narrow, monkeypatch):
    rng = random.Random(members)
    data = np.random.default_rng(0).integers(0, 1000, 100_000).astype("<i4").tobytes()
    step = len(data) // members + 1
    (tmp_path / "x").write_bytes(pack(name, *(data[at : at + step] for at in range(0, len(data), step))))
    given = inflating(monkeypatch)
    block = min(step, 1 << 18) if name == "snappy" else 0
    with SeekableStream(tmp_path / "x", name) as file:
        assert file.read_at(len(data), 10) == b""
        assert given[0] == len(data)
        for _ in range(200):
            start, size = rng.randrange(len(data) + 100), rng.choice([0, 1, 10, 5000, 70_000])
            given[0] = 0
            assert file.read_at(start, size) == data[start : start + size]
            assert given[0] <= narrow + size + block
        given[0] = 0
        for start in range(100_000, 300_000, 1000):
            assert file.read_at(start, 1000) == data[start : start + 1000]
        assert given[0] <= 200_000 + narrow + block


def test_random_access_from_several_threads(tmp_path, narrow):
    data = np.random.default_rng(0).integers(0, 1000, 100_000).astype("<i4").tobytes()
    (tmp_path / "x").write_bytes(pack("gzip", data))
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(30):
            start = rng.randrange(len(data))
            if file.read_at(start, 100) != data[start : start + 100]:
                wrong.append(start)

    with SeekableStream(tmp_path / "x", "gzip") as file:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", PACKED)
def test_damage_is_an_error_only_where_it_is_reached(name, narrow):
    data = np.random.default_rng(0).integers(0, 1000, 100_000).astype("<i4").tobytes()
    packed = pack(name, data[:200_000], data[200_000:])
    cut = packed[: -len(packed) // 4]
    with SeekableStream(io.BytesIO(cut), name) as file:
        whole = unpack(cut, name)[0]
        for _ in range(2):
            with pytest.raises(CorruptError, match="the file ends inside"):
                file.read_at(len(data) - 10, 5)
            with pytest.raises(CorruptError, match="the file ends inside"):
                file.read_at(len(whole) - 10, 11)
            assert file.read_at(1000, 50) == data[1000:1050]
            assert file.read_at(len(whole) - 10, 10) == data[len(whole) - 10 : len(whole)]


def test_files_that_have_no_places():
    with pytest.raises(UsageError, match="no seek"):
        SeekableStream(Pipe(pack("gzip", b"abc")), "gzip")
    with pytest.raises(UsageError, match="not compressed"):
        SeekableStream(io.BytesIO(framed(b"abc")))
    with SeekableStream(io.BytesIO(pack("gzip", b"abc"))) as file, pytest.raises(UsageError, match="0 or more"):
        file.read_at(-1, 1)
