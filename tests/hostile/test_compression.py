"""Compressed bytes that unfold into more, less or something else than they say (catalogue 93 to 100).

Chunks of `tb` are tried in unit/test_codecs.py and test_compressed_frame.py, archives in unit/test_zip.py. Here are the
compressed buffers of Arrow, the pages of Parquet and the streams of TFRecord.
"""

import gzip
import io
import struct
import zlib

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import tensorbytes as tb
from tensorbytes.errors import CorruptError, LimitError
from tests.support.compressed_bytes import record
from tests.support.hostile_formats import readings, zipped
from tests.support.npy_bytes import saved
from tests.support.wire_bytes import INT64, framed
from tests.support.work import check_linear

# Words in any order: what a thorough compressor saves leaves room for other frames in the place of its own.
_RNG = np.random.default_rng(0)
_WORDS = [_RNG.integers(0, 256, 12, np.uint8).tobytes() for _ in range(300)]
PLAIN = np.frombuffer(b"".join(_WORDS[n] for n in _RNG.integers(0, 300, 4000)), np.uint8)
SKIPPABLE = 0x184D2A50


def padded(frame, size):
    """A frame followed by one that says nothing, in so many bytes."""
    rest = size - len(frame)
    assert rest >= 8, (len(frame), size)
    return frame + struct.pack("<II", SKIPPABLE, rest - 8) + bytes(rest - 8)


def windowed(content, log):
    """A frame without the size of its content, whose window is said to be this large."""
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=20, write_content_size=False)
    maker = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = maker.compress(content) + maker.flush()
    assert (frame[4], frame[5]) == (0, 10 << 3)  # nothing but a window of 2^(10 + 10)
    return frame[:5] + bytes([log - 10 << 3]) + frame[6:]


def with_dictionary(content):
    samples = [content[n : n + 200] for n in range(0, len(content) - 200, 20)]
    return zstandard.ZstdCompressor(19, dict_data=zstandard.train_dictionary(1024, samples)).compress(content)


def small(content):
    return zstandard.ZstdCompressor(19).compress(content)


def lying(content):
    """The content size of a frame says a tebibyte."""
    frame = small(content)
    assert frame[4] & 0xE0 == 0x60, frame[:5]  # one segment, two bytes of size
    return frame[:4] + bytes([frame[4] | 0xC0]) + struct.pack("<Q", 1 << 40) + frame[7:]


# What stands where a zstd frame of the content is due; whether it is the same content after all.
FRAMES = {
    "96 a window of 256 MiB": (lambda content: windowed(content, 28), True),
    "96 a window of 2 GiB": (lambda content: windowed(content, 31), True),
    "97 skippable frames": (lambda content: b"", False),
    "97 frames of nothing": (lambda content: small(b"") * 100, False),
    "99 a dictionary": (with_dictionary, False),
    "95 a size of a tebibyte": (lying, False),
    "100 short by one": (lambda content: small(content[:-1]), False),
    "100 long by one": (lambda content: small(content + b"\0"), False),
    "94 a bomb": (lambda content: small(bytes(1 << 26)), False),
    "98 compressed twice": (lambda content: small(small(content)), False),
    "cut": (lambda content: small(content)[:-100], False),
}


def arrow_file(frame=None):
    """A file of one compressed column; with another frame in place of its own."""
    raw = tb.dumps({"x": PLAIN}, "arrow", compression="zstd")
    at = raw.index(struct.pack("<q", len(PLAIN)) + b"\x28\xb5\x2f\xfd") + 8
    if frame is None:
        return raw
    size = zstandard_size(raw[at:])
    return raw[:at] + padded(frame(PLAIN.tobytes()), size) + raw[at + size :]


def zstandard_size(raw):
    """The bytes of the frame that some bytes start with."""
    reader = zstandard.ZstdDecompressor().decompressobj()
    reader.decompress(raw)
    return len(raw) - len(reader.unused_data)


def parquet_file(codec, **options):
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"x": PLAIN.view("<u8")}), sink, compression=codec, use_dictionary=False, write_statistics=False,
        column_encoding="PLAIN", data_page_version="1.0", **options,
    )  # fmt: skip
    return sink.getvalue()


def parquet_zstd(frame):
    raw = parquet_file("zstd")
    at = raw.index(b"\x28\xb5\x2f\xfd")
    size = zstandard_size(raw[at:])
    content = zstandard.ZstdDecompressor().decompressobj().decompress(raw[at : at + size])
    return raw[:at] + padded(frame(content), size) + raw[at + size :]


def outcome(raw, format):
    try:
        return tb.loads(raw, format, limits=tb.errors.Limits(max_bytes=1 << 22))["x"]
    except (CorruptError, LimitError) as error:
        return error


@pytest.mark.parametrize("case", FRAMES)
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_zstd_frames_of_others(format, case):
    frame, same = FRAMES[case]
    found = outcome(arrow_file(frame) if format == "arrow" else parquet_zstd(frame), format)
    if same and isinstance(found, np.ndarray):
        assert found.tobytes() == PLAIN.tobytes()
    else:
        assert isinstance(found, CorruptError | LimitError)


def test_what_the_frames_are_put_into_is_sound():
    assert outcome(arrow_file(), "arrow").tobytes() == PLAIN.tobytes()
    assert outcome(arrow_file(small), "arrow").tobytes() == PLAIN.tobytes()
    assert outcome(parquet_zstd(small), "parquet").tobytes() == PLAIN.tobytes()


def varint(n):
    out = bytearray()
    n *= 2  # thrift's signed integers
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


@pytest.mark.parametrize("claim", [-1, 1, (1 << 31) - 1, 0])
@pytest.mark.parametrize("codec", ["snappy", "gzip", "brotli", "zstd", "lz4"])
def test_95_100_pages_of_another_size_than_they_say(codec, claim):
    raw = parquet_file(codec)
    assert outcome(raw, "parquet").tobytes() == PLAIN.tobytes()
    head, _, rest = raw.partition(b"\x15\0\x15")  # a data page; its plain size follows
    size = next(n for n in range(len(PLAIN), len(PLAIN) + 64) if rest.startswith(varint(n) + b"\x15"))
    said = size + claim if abs(claim) == 1 else claim
    changed = head + b"\x15\0\x15" + varint(said) + rest[len(varint(size)) :]
    assert isinstance(outcome(changed, "parquet"), CorruptError | LimitError)


@pytest.mark.parametrize("codec", ["snappy", "gzip", "brotli", "zstd", "lz4"])
def test_93_94_a_page_does_not_unfold_beyond_the_limit(codec):
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": np.zeros(1 << 23, np.uint8)}), sink, compression=codec, use_dictionary=False)
    assert len(sink.getvalue()) < 1 << 22
    with pytest.raises(LimitError):
        tb.loads(sink.getvalue(), limits=tb.errors.Limits(max_bytes=1 << 20))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_93_94_a_column_does_not_unfold_beyond_the_limit(codec):
    raw = tb.dumps({"x": np.zeros(1 << 23, np.uint8)}, "arrow", compression=codec)
    with pytest.raises(LimitError):
        tb.loads(raw, limits=tb.errors.Limits(max_bytes=1 << 20))
    assert not tb.loads(raw)["x"].any()  # zeros are legitimate: the limit is of bytes, never of a ratio


# ---- streams of records ---------------------------------------------------------


def records(count=3):
    return framed(*(b"\n\0" for _ in range(count)))


def snappy(*blocks):
    made = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return b"".join(struct.pack(">I", len(block)) + block for block in made)


def preset(content):
    """A zlib stream that asks for a dictionary."""
    maker = zlib.compressobj(zdict=b"a dictionary that nobody has")
    return maker.compress(content) + maker.flush()


STREAMS = {
    "98 gzip in gzip": ("gzip", gzip.compress(gzip.compress(records()))),
    "98 zlib in gzip": ("gzip", gzip.compress(zlib.compress(records()))),
    "98 gzip in zlib": ("zlib", zlib.compress(gzip.compress(records()))),
    "98 snappy in snappy": ("snappy", snappy(snappy(records()))),
    "99 zlib with a dictionary": ("zlib", preset(records())),
    "100 gzip, a byte short": ("gzip", gzip.compress(records()[:-1])),
    "100 gzip, a byte long": ("gzip", gzip.compress(records() + b"\0")),
    "100 zlib, a byte short": ("zlib", zlib.compress(records()[:-1])),
    "100 snappy, a byte long": ("snappy", snappy(records() + b"\0")),
    "95 a snappy block of 2^32 bytes": ("snappy", struct.pack(">I", 6) + b"\xff\xff\xff\xff\x0f\0"),
    "95 a gzip length that lies": ("gzip", gzip.compress(records())[:-4] + b"\xff\xff\xff\xff"),
    "100 a gzip checksum of something else": ("gzip", gzip.compress(records())[:-8] + bytes(8)),
}


@pytest.mark.parametrize("case", STREAMS)
def test_streams_that_are_not_what_they_say(case, tmp_path):
    name, raw = STREAMS[case]
    (tmp_path / "x.tfrecord").write_bytes(raw)
    with pytest.raises((CorruptError, LimitError)):
        list(tb.open_records(tmp_path / "x.tfrecord", compression=name))
    with pytest.raises((tb.errors.TensorbytesError, EOFError)):
        list(tb.open_records(tmp_path / "x.tfrecord"))


EMPTY = {
    "gzip": gzip.compress(b""),
    "zlib": None,  # one stream, nothing may follow it
    "snappy": snappy(b""),
}


@pytest.mark.parametrize("name", [name for name, piece in EMPTY.items() if piece])
def test_97_members_of_nothing_take_linear_time(name, tmp_path):
    def write(count):
        path = tmp_path / f"{count}.tfrecord"
        path.write_bytes(EMPTY[name] * count + (gzip.compress(records()) if name == "gzip" else snappy(records())))
        return path

    def read(path):
        assert len(list(tb.open_records(path, compression=name))) == 3

    check_linear(write, read, 5_000)


# ---- compression inside compression ---------------------------------------------


def test_98_an_archive_in_an_archive_is_no_array(tmp_path):
    inner = zipped(("x.npy", saved(np.arange(3))))
    for name in ("inner.npz", "inner.npy"):
        made = zipped(("a.npy", saved(np.arange(2))), (name, inner))
        with pytest.raises((tb.errors.UnsupportedError, CorruptError), match="inner"):
            tb.loads(made, "npz")


def test_99_a_chunk_that_asks_for_a_dictionary():
    chunk = preset(bytes(800))
    with pytest.raises(CorruptError, match="zlib"):
        tb.loads(framed(record(INT64, (100,), "zlib", 800, [chunk])))


@pytest.mark.parametrize("codec", ["gzip", "zlib", "zstd", "lz4", "snappy", "huffman"])
def test_93_94_zeros_are_legitimate_and_bounded(codec, tmp_path):
    """A limit of bytes, whatever the ratio; by every way of reading."""
    from tests.support.hostile_formats import File

    raw = tb.dumps({"x": np.zeros(1 << 20)}, compression=codec)
    assert len(raw) < 1 << 20
    for way, found in readings(File("tb", raw), tmp_path, tb.errors.Limits(max_bytes=1 << 20)).items():
        if way in ("mapped", "inspect", "stats"):
            continue  # what is not read, or read a chunk at a time, claims nothing
        assert isinstance(found, LimitError), f"{way}: {found!r}"
    assert not tb.loads(raw)["x"].any()
