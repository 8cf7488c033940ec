"""Compressed TFRecord files: what TensorFlow reads and writes, damage at every byte, bombs, pipes, threads."""

import contextlib
import gc
import gzip
import io
import json
import os
import random
import struct
import subprocess
import sys
import threading
import zlib

import cramjam
import fsspec
import numpy as np
import pytest

from tensorbytes.errors import CorruptError, LimitError, Limits, MissingDependencyError, UsageError
from tensorbytes.records import compression, decoders, inflate
from tensorbytes.records.compression import (
    NAMES,
    Prefetched,
    SeekableInflate,
    Source,
    compressor,
    detect,
    open_source,
)
from wire_bytes import framed

PACKED = ("gzip", "zlib", "snappy")


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [t.name for t in threading.enumerate() if t.name.startswith("tensorbytes")] == []


@pytest.fixture(params=["isal", "zlib"])
def engine(request, monkeypatch):
    """Both decompressors of gzip; the second is that of machines without isal, and of pipes."""
    if request.param == "zlib":
        monkeypatch.setattr(decoders, "isal_zlib", None)
        monkeypatch.setattr(compression, "isal_zlib", None)
    return request.param


def some_records(count=20, size=40, seed=0):
    rng = random.Random(seed)
    return [bytes(rng.choices(b"abcdefghij", k=rng.randint(0, size))) for _ in range(count)]


def pack(name, *pieces, level=None):
    """Each piece is flushed."""
    packer = compressor(name, level)
    out = b"".join(bytes(packer.compress(piece)) + bytes(packer.flush()) for piece in pieces)
    return out + bytes(packer.finish())


def drain(source, room=1 << 16):
    """Everything that a source gives, and the error it ends with, which must come again."""
    out, view = bytearray(), memoryview(bytearray(room))
    failure = None
    try:
        while count := source.readinto(view):
            out += view[:count]
        assert source.readinto(view) == 0
    except CorruptError as error:
        failure = error
    if failure is not None:
        with pytest.raises(CorruptError) as again:
            source.readinto(view)
        assert str(again.value) == str(failure)
    return bytes(out), failure


def unpack(data, name="auto", **options):
    with open_source(io.BytesIO(data), name, **options) as source:
        return drain(source)


def unpack_whole(data, name="auto", **options):
    out, error = unpack(data, name, **options)
    assert error is None
    return out


class Pipe(io.RawIOBase):
    """Neither seeks nor gives more than so many bytes at a time."""

    def __init__(self, data, most=1):
        self._data, self._most = io.BytesIO(data), most

    def readable(self):
        return True

    def read(self, size=-1):
        return self._data.read(min(size, self._most))


# ---- TensorFlow ----------------------------------------------------------------


def tensorflow_writes(path, name, records):
    import tensorflow as tf
    from tensorflow.python.lib.io import _pywrap_record_io

    if name == "snappy":  # TFRecordOptions refuses the name, the writer beneath it does not
        writer = _pywrap_record_io.RecordWriter(path, _pywrap_record_io.RecordWriterOptions("SNAPPY"))
    else:
        writer = tf.io.TFRecordWriter(path, None if name == "none" else name.upper())
    for record in records:
        writer.write(record)
    writer.close()


def tensorflow_reads(path, name):
    import tensorflow as tf

    kind = "" if name == "none" else name.upper()
    return list(tf.data.TFRecordDataset(path, compression_type=kind).as_numpy_iterator())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "records", [[], [b""], some_records(2000), [bytes(300_000), np.random.default_rng(0).bytes(600_000), b"x"]]
)
def test_what_tensorflow_writes_we_read(tmp_path, name, records):
    path = str(tmp_path / "x")
    tensorflow_writes(path, name, records)
    with open_source(path) as source:
        assert source.compression == (name if os.path.getsize(path) else "none")
        assert drain(source) == (framed(*records), None)


@pytest.mark.parametrize(
    ("name", "level"), [(name, None) for name in NAMES] + [(name, n) for name in ("gzip", "zlib") for n in (0, 1, 9)]
)
@pytest.mark.parametrize("flushes", [0, 7])
def test_tensorflow_reads_what_we_write(tmp_path, name, flushes, level):
    records = [*some_records(500), np.random.default_rng(0).bytes(700_000), bytes(900_000), b""]
    data = framed(*records)
    step = len(data) // (flushes + 1) + 1
    path = tmp_path / "x"
    path.write_bytes(pack(name, *(data[at : at + step] for at in range(0, len(data), step)), level=level))
    assert tensorflow_reads(str(path), name) == records


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_stream_of_ours_is_one_for_tensorflow(tmp_path, name):
    (tmp_path / "x").write_bytes(pack(name))
    assert tensorflow_reads(str(tmp_path / "x"), name) == []
    assert unpack_whole(pack(name), name) == b""


def test_snappy_blocks_are_as_large_as_tensorflow_takes_them_and_no_larger(tmp_path):
    import tensorflow as tf

    path = str(tmp_path / "x")
    packed = pack("snappy", bytes(1_000_000))
    sizes, at = [], 0
    while at < len(packed):
        (length,) = struct.unpack_from(">I", packed, at)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[at + 4 : at + 4 + length]))
        at += 4 + length
    assert sizes == [262144, 262144, 262144, 213568]

    for size, readable in ((262144 - 16, True), (262144 - 15, False)):
        block = bytes(cramjam.snappy.compress_raw(framed(bytes(size))))
        (tmp_path / "x").write_bytes(struct.pack(">I", len(block)) + block)
        if readable:
            assert tensorflow_reads(path, "snappy") == [bytes(size)]
        else:
            with pytest.raises(tf.errors.ResourceExhaustedError):
                tensorflow_reads(path, "snappy")
        assert unpack_whole((tmp_path / "x").read_bytes()) == framed(bytes(size))


# ---- detection -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("records", [[b""], [b"abc"], [bytes(5000)], [bytes(376)], [os.urandom(40056)], some_records()])
def test_the_compression_is_seen(name, records):
    packed = pack(name, framed(*records))
    assert detect(packed[:64]) == name
    assert detect(packed) == name


def test_what_starts_like_nothing_known_is_taken_as_it_is():
    assert detect(b"") == "none"
    for head in (
        b"\0",
        b"x",
        b"\x78",
        b"\x78\x9d" + bytes(70),
        b"\x1f",
        b"PK\3\4" + bytes(70),
        bytes(70),
        b"\xff" * 70,
    ):
        assert detect(head) == "none", head


@pytest.mark.parametrize("length", [0x178, 0x5E78, 0x9C78, 0xDA78, 0x8B1F])
def test_a_damaged_header_does_not_make_a_plain_file_compressed(length):
    header = bytearray(framed(bytes(length))[:64])
    for bit in range(12 * 8):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        assert detect(bytes(damaged)) == "none", bit


def test_a_sound_record_header_outweighs_all_other_signs():
    for length in (0x178, 0x9C78, 0x8B1F, 0x088B1F):
        assert detect(framed(bytes(length))[:64]) == "none"


def test_names_are_checked():
    data = framed(b"abc")
    assert unpack_whole(gzip.compress(data), "GZIP") == data
    assert unpack_whole(data, None) == unpack_whole(data, "") == data
    for wrong in ("bz2", 3):
        with pytest.raises(UsageError, match="known: auto, gzip, none, snappy, zlib"):
            unpack(data, wrong)
    with pytest.raises(UsageError, match="nothing to detect"):
        compressor("auto")


# ---- damage ----------------------------------------------------------------------


def small_file(name):
    records = some_records(6)
    data = framed(*records)
    return data, pack(name, data[:70], data[70:])


def decodable(name, packed):
    """What can be decoded of damaged bytes, one byte at a time."""
    if name == "snappy":
        return b""
    wbits = 31 if name == "gzip" else 15
    tool, out = zlib.decompressobj(wbits), b""
    for index in range(len(packed)):
        try:
            out += tool.decompress(packed[index : index + 1])
        except zlib.error:
            return out
        if tool.eof:
            if name == "zlib":
                return out
            tool = zlib.decompressobj(wbits)
    return out


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("name", PACKED)
def test_a_file_cut_at_any_byte_is_an_error_after_all_it_held(name, engine, prefetch):
    data, packed = small_file(name)
    between = len(pack(name, data[:70])) if name != "zlib" else 0
    for cut in range(1, len(packed)):
        out, error = unpack(packed[:cut], name, prefetch=prefetch)
        if cut == between:  # a whole member, a whole block: nothing shows that there was more
            assert (out, error) == (data[:70], None)
            continue
        assert (type(error), error.at) == (CorruptError, cut)
        assert data.startswith(out)
        assert out.startswith(decodable(name, packed[:cut]))
        if between and cut > between:
            assert len(out) >= 70


@pytest.mark.parametrize("name", PACKED)
def test_a_pipe_that_is_cut_tells_the_same(name):
    _, packed = small_file(name)
    for cut in range(1, len(packed)):
        whole, error = unpack(packed[:cut], name)
        with open_source(Pipe(packed[:cut]), name, prefetch=False) as source:
            out, same = drain(source)
        assert (out, str(same).partition(":")[2]) == (whole, str(error).partition(":")[2])


@pytest.mark.parametrize("name", PACKED)
def test_every_flipped_bit_is_an_error_or_changes_nothing(name):
    """Snappy has no checksums of its own: there the framing has to find the damage."""
    data, packed = small_file(name)
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        damaged = bytes(damaged)
        out, error = unpack(damaged, name, prefetch=False)
        if error is None:
            assert out == data or name == "snappy"
        else:
            assert 0 <= error.at <= len(damaged)
        assert out.startswith(decodable(name, damaged))
        with open_source(Pipe(damaged, most=7), name, prefetch=False) as source:
            piped, same = drain(source)
        if error is None:  # zlib refuses a few code tables that isal can use, and rightly
            assert out.startswith(piped)
        else:
            assert piped == out
            assert str(same).partition(":")[2] == str(error).partition(":")[2]


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_everything_before_damage_in_a_long_member_is_handed_out(engine, where):
    data = np.random.default_rng(0).normal(size=800_000).astype("f4").tobytes()
    packed = bytearray(pack("gzip", b"first", data, b"last"))
    at = int(where * len(packed))
    packed[at : at + 64] = bytes(64)
    out, error = unpack(bytes(packed), "gzip")
    sound = zlib.decompressobj(31)
    first = sound.decompress(packed[:at])
    inside = zlib.decompressobj(31).decompress(sound.unused_data)
    assert out.startswith(first + inside)
    assert error.at >= at
    assert "damaged gzip data" in str(error)


def test_everything_before_the_cut_of_a_long_member_is_handed_out(engine):
    data = bytes(random.Random(0).choices(b"abcdefghijkl", k=5000)) * 30
    packed = pack("gzip", b"first", data, level=9)
    for cut in range(1000, len(packed), 251):
        sound = zlib.decompressobj(31)
        first = sound.decompress(packed[:cut])
        out, error = unpack(packed[:cut], "gzip", prefetch=False)
        assert out == first + zlib.decompressobj(31).decompress(sound.unused_data)
        assert error.at == cut


def test_a_wrong_checksum_is_found_after_the_last_byte(engine):
    data = framed(*some_records())
    for name, back in (("gzip", 8), ("gzip", 4), ("zlib", 4)):
        packed = bytearray(pack(name, data))
        packed[-back] ^= 1
        out, error = unpack(bytes(packed), name)
        assert out == data
        assert "check" in str(error)


def test_what_follows_a_stream_must_belong_to_it(engine):
    data = framed(*some_records())
    member = pack("gzip", data)
    assert unpack_whole(member + member) == data * 2
    assert unpack_whole(member + bytes(1)) == data
    assert unpack_whole(member + bytes(700_000)) == data
    for garbage, at in ((b"x", 0), (b"\x1f\x8c", 0), (bytes(600_000) + b"x", 600_000), (bytes(9) + member, 9)):
        out, error = unpack(member + garbage)
        assert (out, error.at) == (data, len(member) + at)
        assert "after the end of the gzip stream" in str(error)
    stream = pack("zlib", data)
    for garbage in (b"x", bytes(8), stream):
        out, error = unpack(stream + garbage)
        assert (out, error.at) == (data, len(stream))
        assert "after the end of the zlib stream" in str(error)


def test_a_file_that_is_not_what_it_is_said_to_be():
    for name in PACKED:
        out, error = unpack(framed(b"abc" * 100), name)
        assert out == b""
        assert error.at < 12
    out, error = unpack(gzip.compress(b"abc")[:3] + b"\xe0" + gzip.compress(b"abc")[4:], "gzip")
    assert (out, error.at) == (b"", 3)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_an_empty_stream(tmp_path, name):
    (tmp_path / "x").write_bytes(b"")
    for how in (name, "auto"):
        with open_source(tmp_path / "x", how) as source:
            assert drain(source) == (b"", None)


def test_impossible_snappy_blocks_are_refused():
    good = pack("snappy", b"abc" * 100)
    claims = {
        "no size": bytes(4),
        "endless size": struct.pack(">I", 9) + b"\xff" * 9,
        "size of 5 bytes that is over 32 bits": struct.pack(">I", 9) + b"\xff\xff\xff\xff\x7f" + bytes(4),
        "more than its bytes can hold": struct.pack(">I", 9) + b"\xff\xff\xff\x03" + bytes(5),
        "far longer than what it holds": struct.pack(">I", 1 << 31) + b"\x05" + bytes(5000),
        "copy from before the start": struct.pack(">I", 4) + b"\x04\x01\x01\x00",
    }
    for name, claim in claims.items():
        out, error = unpack(good + claim, "snappy")
        assert (out, error.at) == (b"abc" * 100, len(good)), name
        assert "snappy block" in str(error)


def test_all_that_a_damaged_snappy_block_holds_before_the_damage_is_handed_out():
    elements = b"\x14abcdef" + b"\x09\x03" + b"\x16\x02\x00" + b"\x13\x01\0\0\0" + b"\x00z"
    block = bytes([6 + 6 + 6 + 5 + 1]) + elements
    whole = bytes(cramjam.snappy.decompress_raw(block))
    assert whole == b"abcdef" + b"defdef" + b"efefef" + b"fffff" + b"z"
    assert unpack_whole(struct.pack(">I", len(block)) + block, "snappy") == whole
    for bad in (b"\x01\xff", b"\xfc\xff\xff"):  # a copy from too far back; a literal without its length
        broken = bytes([30]) + elements + bad
        out, error = unpack(struct.pack(">I", len(broken)) + broken, "snappy")
        assert out == whole
        assert error.at == 0


def test_large_snappy_blocks_are_read_within_the_limits():
    data = bytes(3_000_000)
    block = bytes(cramjam.snappy.compress_raw(data))
    packed = struct.pack(">I", len(block)) + block
    assert unpack_whole(packed, "snappy") == data
    with pytest.raises(LimitError, match="a snappy block of 3000000 bytes at byte 0; the limit is 1000000"):
        unpack(packed, "snappy", limits=Limits(max_bytes=1_000_000))


def test_a_gzip_header_of_any_length_is_skipped(engine):
    data = framed(*some_records())
    body = pack("gzip", data)[10:]
    for flags, fields in ((4, struct.pack("<H", 65535) + bytes(65535)), (8, b"n" * 700_000 + b"\0"), (1, b"")):
        packed = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + fields + body
        assert unpack_whole(packed * 2) == data * 2
        cut, error = unpack(packed + packed[: len(fields) // 2 + 5])
        assert (cut, error.at) == (data, len(packed) + len(fields) // 2 + 5)


def test_very_many_small_members_and_blocks(engine):
    pieces = [b"%d" % n for n in range(3000)]
    for name in ("gzip", "snappy"):
        assert unpack_whole(pack(name, *pieces), name) == b"".join(pieces)
    assert unpack_whole(gzip.compress(b"") * 3000 + gzip.compress(b"end")) == b"end"


# ---- bombs -----------------------------------------------------------------------

# Reads a file twice, in small steps; tells how much memory it took.
BOMBED = """
import io, json, sys
from tensorbytes.records import compression, decoders

def peak():  # of this program alone: getrusage counts the process it was started from
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

path, engine = sys.argv[1:]
if engine == "zlib":
    decoders.isal_zlib = None
import cramjam
compression.open_source(io.BytesIO(compression.compressor("gzip").finish())).close()
view = memoryview(bytearray(1 << 16))
before, size = peak(), 0
with compression.open_source(path) as source:
    while count := source.readinto(view):
        size += count
with compression.SeekableInflate(path) as seekable:
    tail = len(seekable.read_at(size - 1000, 5000))
print(json.dumps([size, tail, peak() - before]))
"""


@pytest.mark.parametrize("name", ["isal", "zlib", "snappy"])
def test_a_bomb_takes_time_but_no_memory(tmp_path, name):
    size = 80 << 20
    packer = compressor("snappy") if name == "snappy" else compressor("gzip", 9)
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
        with open_source(target) as source:
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
        packer = compressor(name)
        view = memoryview(bytearray(100))
        with os.fdopen(inner, "rb") as reader, os.fdopen(outer, "wb", buffering=0) as writer:
            writer.write(bytes(packer.compress(first)) + bytes(packer.flush()))
            out = b""
            with open_source(reader, name) as source:
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
        with open_source(file, name) as source:
            assert drain(source) == (b"abc" * 50, None)
        damaged = bytearray(file.getvalue())
        damaged[20] ^= 0x55
        file = io.BytesIO(damaged)
        file.seek(6)
        with open_source(file, name) as source:
            drain(source)  # isal has to start over, at byte 6


def test_file_objects_that_are_of_no_use():
    with pytest.raises(UsageError, match="binary mode"):
        open_source(io.StringIO("text"))

    class NotYet(io.RawIOBase):
        def read(self, size=-1):
            return None

    with pytest.raises(UsageError, match="no bytes ready"):
        open_source(NotYet())

    class TooMuch:
        def read(self, size):
            return bytes(size + 1)

    with pytest.raises(UsageError, match="when asked for"):
        open_source(TooMuch())
    for wrong in (b"bytes", bytearray(3), 5, None):
        with pytest.raises(UsageError):
            open_source(wrong)
    with pytest.raises(FileNotFoundError):
        open_source("no such file")
    with pytest.raises(IsADirectoryError):
        open_source(os.curdir)


def test_a_file_object_that_only_has_read():
    class Reader:
        def __init__(self, data):
            self.read = io.BytesIO(data).read

    for name in NAMES:
        with open_source(Reader(pack(name, framed(b"abc")))) as source:
            assert drain(source) == (framed(b"abc"), None)


def test_an_error_while_reading_comes_after_what_was_read_before_it():
    class Broken(Pipe):
        def read(self, size=-1):
            return super().read(size) or os.read(-1, 1)

    data = framed(*some_records())
    for prefetch in (True, False):
        with open_source(Broken(pack("gzip", data), 1000), prefetch=prefetch) as source:
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
            with open_source(target, name, start, end) as source:
                assert drain(source, 37) == (data[start:end], None)
                assert source.size == len(data)
                assert source.total == source.consumed == len(data[start:end])
    with open_source(target, "none", 10, len(data) + 5) as source:
        out, error = drain(source)
    assert (out, error.at) == (data[10:], len(data))
    assert "has it become shorter" in str(error)


def test_ranges_that_make_no_sense(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(pack("gzip", framed(b"abc")))
    with pytest.raises(UsageError, match="uncompressed files only, this one is gzip"):
        open_source(path, "auto", 5)
    for start, end in ((-1, None), (5, 3), (-1, 3)):
        with pytest.raises(UsageError, match="expected a range"):
            open_source(path, "none", start, end)
    with pytest.raises(UsageError, match="any place"):
        open_source(Pipe(bytes(100)), "none", 5)


def test_optional_packages_are_named_when_they_are_missing(monkeypatch, tmp_path):
    packed = pack("snappy", framed(b"abc"))
    monkeypatch.setitem(sys.modules, "cramjam", None)
    for need in (lambda: open_source(io.BytesIO(packed)), lambda: compressor("snappy")):
        with pytest.raises(MissingDependencyError, match=r"tensorbytes\[snappy\]"):
            need()
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match=r"tensorbytes\[cloud\]"):
        open_source("memory://x")


# ---- threads ---------------------------------------------------------------------


class Counting(Source):
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
    ahead = Prefetched(source, depth=3)
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
        with Prefetched(Counting(error, after=10), depth=30) as ahead:
            view = memoryview(bytearray(8))
            assert [ahead.readinto(view) for _ in range(10)] == [8] * 10
            for _ in range(3):
                with pytest.raises(type(error)) as raised:
                    ahead.readinto(view)
                assert raised.value is error


def test_a_source_that_is_forgotten_stops_its_thread():
    source = Counting()
    ahead = Prefetched(source, depth=2)
    ahead.readinto(memoryview(bytearray(8)))
    thread = ahead._thread
    del ahead
    gc.collect()
    thread.join()
    assert source.closed.is_set()


def test_closing_does_not_wait_for_a_pipe_that_gives_nothing(monkeypatch):
    monkeypatch.setattr("tensorbytes.records.sources._PATIENCE_SECONDS", 0.01)
    inner, outer = os.pipe()
    with os.fdopen(inner, "rb", buffering=0) as reader, os.fdopen(outer, "wb", buffering=0) as writer:
        writer.write(pack("gzip", b"abc"))
        source = open_source(reader, "gzip")
        view = memoryview(bytearray(8))
        assert source.readinto(view) == 3
        source.close()
        writer.close()
        source._thread.join()


def test_a_fork_can_neither_read_nor_hang(tmp_path):
    (tmp_path / "x").write_bytes(pack("gzip", os.urandom(30 << 20), level=0))
    program = (
        "import os, sys\n"
        "from tensorbytes.records.compression import open_source\n"
        "from tensorbytes.errors import UsageError\n"
        "source = open_source(sys.argv[1])\n"
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
    monkeypatch.setattr(inflate, "_SPACING", 1 << 14)
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
    with SeekableInflate(tmp_path / "x", name) as file:
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

    with SeekableInflate(tmp_path / "x", "gzip") as file:
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
    with SeekableInflate(io.BytesIO(cut), name) as file:
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
        SeekableInflate(Pipe(pack("gzip", b"abc")), "gzip")
    with pytest.raises(UsageError, match="not compressed"):
        SeekableInflate(io.BytesIO(framed(b"abc")))
    with SeekableInflate(io.BytesIO(pack("gzip", b"abc"))) as file, pytest.raises(UsageError, match="0 or more"):
        file.read_at(-1, 1)


# ---- compressors -----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_was_flushed_can_be_read_though_nothing_follows(name, engine):
    packer, packed, data = compressor(name), b"", b""
    for number in range(30):
        piece = bytes(random.Random(number).choices(b"abcdef", k=number * 100))
        data += piece
        packed += bytes(packer.compress(piece)) + bytes(packer.flush())
        out, error = unpack(packed, name)
        assert out == data
        assert error is None or name == "zlib"  # whose end only finish() writes
    assert bytes(packer.flush()) == b""
    assert unpack_whole(packed + bytes(packer.finish()), name) == data


@pytest.mark.parametrize("name", NAMES)
def test_buffers_of_every_kind_and_size_are_compressed(name):
    packer = compressor(name)
    array = np.arange(300_000, dtype="<i4").reshape(3, -1)
    pieces = [b"", b"a", bytearray(b"bc"), memoryview(b"def"), array, np.zeros((0, 3)), b"g" * 262_143, b"h" * 262_144]
    packed = b"".join(bytes(packer.compress(piece)) for piece in pieces) + bytes(packer.finish())
    assert unpack_whole(packed, name) == b"".join(bytes(piece) for piece in pieces)


def test_the_same_input_gives_the_same_bytes():
    data = framed(*some_records(500))
    for name in NAMES:
        assert pack(name, data[:999], data[999:]) == pack(name, data[:999], data[999:])
    for level in (None, 0, 6):
        packed = pack("gzip", data, level=level)
        assert packed[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no time, no name, no system
        assert gzip.decompress(packed) == data


def test_levels():
    data = framed(*some_records(2000))
    sizes = [len(pack("gzip", data, level=level)) for level in (0, 1, 9)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(pack("gzip", data)) < len(data) < sizes[0]
    for name, level in (("gzip", 10), ("zlib", -1), ("gzip", "high"), ("snappy", 1), ("none", 0)):
        with pytest.raises(UsageError, match="level from 0 to 9"):
            compressor(name, level)
