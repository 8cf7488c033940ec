"""Compressed records that lie, with checksums that are right: refused by every way of reading, without the memory."""

import contextlib
import gzip
import json
import struct
import subprocess
import sys
import zlib

import lz4.block
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import errors
from tensorbytes.codecs import chunked
from tests.hostile.test_damaged_padding import lazy, piped, whole
from tests.hostile.test_memory_limits import CHILD
from tests.support.compressed_bytes import COMPRESSION, QUANTIZATION, compression, record, stored
from tests.support.golden import STORED, write
from tests.support.wire_bytes import (
    FIXED32,
    FLOAT32,
    INT32,
    INT64,
    STRING,
    field,
    framed,
    int64s,
    layout,
    number,
    records,
    tag,
    tensor,
)

UINT8 = 4
X = np.arange(300, dtype=np.int64) // 40
CHUNK = 1024
RAW = [X.tobytes()[k : k + CHUNK] for k in range(0, X.nbytes, CHUNK)]  # two chunks and a part
ZSTD = zstandard.ZstdCompressor().compress
PIECES = [ZSTD(piece) for piece in RAW]
SIZES = [len(piece) for piece in PIECES]
FLOATS = [ZSTD(bytes(400))]
BODY = b"".join(field(8, b"word %d" % (n % 3)) for n in range(60))


def ints(pipeline="zstd", chunk=CHUNK, pieces=PIECES, *fields, **lies):
    return record(INT64, (300,), pipeline, chunk, pieces, *fields, **lies)


def one(pipeline, data, code=INT32, dims=(100,), chunk=CHUNK):
    """A record of one chunk."""
    return record(code, dims, pipeline, chunk, [data])


def strings(body=BODY, dims=(60,), raw=None, pipeline="zstd", **lies):
    return record(STRING, dims, pipeline, CHUNK, [ZSTD(body)], raw=len(body) if raw is None else raw, **lies)


def planes(*sizes, of=b"", width=4):
    return struct.pack(f"<{width}I", *sizes) + of


def packed(bits, low=0, rest=b""):
    return struct.pack("<BQ", bits, low) + rest


def coded(first, last, lengths, *, n=100, sizes=None, streams=None):
    """A Huffman code of n bytes whose symbols take one bit each."""
    nibbles = [*lengths, 0]
    table = bytes(a | b << 4 for a, b in zip(nibbles[0::2], nibbles[1::2], strict=False))
    each = -(-n // 4)
    parts = [bytes(-(-min(each, n - each * k) // 8)) for k in range(4)]
    sizes = [len(part) for part in parts[:3]] if sizes is None else sizes
    return struct.pack("<BB3I", first, last, *sizes) + table + (b"".join(parts) if streams is None else streams)


def test_what_the_lies_are_made_of_is_sound(tmp_path):
    """Each helper gives a record that reads, before anything in it is changed."""
    everything = [
        (ints(), X.tolist()),
        (ints("delta+pack", CHUNK, [RAW[0][:8] + packed(0)] * 3), [0] * 300),
        (one("pack", packed(0, 7)), [7] * 100),
        (one("shuffle+zstd", planes(1, 1, 1, 1, of=b"\0\0\1\2")), [258] * 100),
        (one("huffman", coded(5, 6, [1, 1]), UINT8), [5] * 100),
        (record(FLOAT32, (100,), "zstd", CHUNK, FLOATS), [0.0] * 100),
        (strings(), [b"word %d" % (n % 3) for n in range(60)]),
        (ints("gzip", CHUNK, [gzip.compress(piece) for piece in RAW]), X.tolist()),
        (ints("lz4", CHUNK, [lz4.block.compress(piece, store_size=False) for piece in RAW]), X.tolist()),
    ]
    for payload, expected in everything:
        for read in (whole, lazy, piped):
            found = read(framed(payload))
            assert (found if isinstance(found, np.ndarray) else found[0]).tolist() == expected


TEBIBYTE = record(UINT8, (1 << 40,), "pack", 1 << 26, [packed(0)] * (1 << 14))
# name: (payload, words of the error)
LIES = {
    "no chunk size": (ints(chunk=0), "chunks of 0 bytes"),
    "chunks of more than 64 MiB": (ints(chunk=(1 << 26) + 8, pieces=PIECES[:1]), "chunks of 67108872 bytes"),
    "chunks of 2^63": (ints(chunk=1 << 63, pieces=PIECES[:1]), "chunks of 9223372036854775808 bytes"),
    "chunks that cut elements": (ints(chunk=1020), "chunks of 1020 bytes"),
    "chunks of another size": (ints(chunk=512), "3 chunks, 3 checksums, expected 5"),
    "a size too few": (ints(sizes=SIZES[:2]), "2 chunks, 3 checksums"),
    "a size too many": (ints(sizes=[*SIZES, 0]), "4 chunks"),
    "no sizes at all": (ints(sizes=[], crcs=[]), "0 chunks"),
    "a checksum too few": (ints(crcs=[1, 2]), "2 checksums"),
    "a checksum too many": (ints(crcs=[1, 2, 3, 4]), "4 checksums"),
    "checksums of other bytes": (ints(crcs=[1, 2, 3]), "checksum of chunk 0 differs"),
    "sizes beyond the content": (ints(sizes=[SIZES[0], SIZES[1], SIZES[2] + 1]), "in "),
    "sizes short of the content": (ints(sizes=[SIZES[0], SIZES[1], SIZES[2] - 1]), "in "),
    "sizes that overflow 32 bits": (ints(sizes=[0xFFFFFFFF] * 3), "chunks of 12884901885 bytes"),
    "sizes that overflow to the truth": (
        record(UINT8, (CHUNK * 3,), "zstd", CHUNK, PIECES[:3], sizes=[0x80000000, 0x80000000, sum(SIZES)]), "in "),
    "a chunk of no bytes": (ints(pieces=[b"", PIECES[1], PIECES[2]]), "a chunk without bytes"),
    "a chunk longer than itself": (ints(pieces=[bytes(1025), PIECES[1], PIECES[2]]), "more than it stands for"),
    "content as long as the tensor": (ints(pieces=RAW), "compressed bytes for 2400"),
    "sizes moved": (ints(sizes=[SIZES[0] + 1, SIZES[1] - 1, SIZES[2]]), "checksum of chunk 0"),
    "chunks swapped": (ints(pieces=[PIECES[2], PIECES[1], PIECES[0]]), "chunk 0: zstd made 352"),
    "a size of numbers": (ints(raw=2400), "field 5 of a compression is unknown"),
    "a field of a later version": (ints(extra=number(6, 1)), "field 6 of a compression is unknown"),
    "sizes in five bytes": (ints(extra=field(3, b"12345")), "5 bytes of 4-byte numbers"),
    "checksums in seven bytes": (ints(extra=field(4, b"1234567")), "7 bytes of 4-byte numbers"),
    "sizes that are not packed": (ints(extra=tag(3, FIXED32) + bytes(4)), "wire type"),
    "a chunk size in bytes": (ints(extra=field(2, b"\1")), "wire type"),
    "a pipeline that is a number": (ints(extra=number(1, 1)), "wire type"),
    "a message that is a number": (tensor(INT64, (2,), number(COMPRESSION, 5), field(4, bytes(3))), "wire type"),
    "a message cut short": (
        tensor(INT64, (2,), field(COMPRESSION, compression("zstd", 8, [b"a"])[3:-1]), field(4, b"a")), ""),
    "no pipeline": (ints(""), "does not know"),
    "an unknown codec": (ints("brotli"), "unknown codec or filter 'brotli'"),
    "an unknown filter": (ints("xor+zstd"), "does not know"),
    "auto": (ints("auto"), "does not know"),
    "a filter that says nothing": (ints("delta"), "does not know"),
    "two codecs": (ints("zstd+zstd"), "does not know"),
    "a level": (ints("zstd:3"), "a level in"),
    "a level of 5000 digits": (ints("zstd:" + "9" * 5000), "does not know"),
    "a level of none": (ints("zstd:"), "does not know"),
    "a level in other digits": (ints("zstd:٣"), "does not know"),
    "a pipeline that is not text": (ints(b"zst\xff"), "UTF-8"),
    "a pipeline of a megabyte": (ints("zstd+" * 200_000), "does not know"),
    "split of integers": (ints("split+zstd"), "of signed elements"),
    "delta of floats": (record(FLOAT32, (100,), "delta+zstd", CHUNK, FLOATS), "of float elements"),
    "pack of floats": (record(FLOAT32, (100,), "pack", CHUNK, FLOATS), "of float elements"),
    "shuffle of bytes": (one("shuffle+zstd", ZSTD(bytes(100)), UINT8), "of unsigned elements"),
    "shuffle of strings": (strings(pipeline="shuffle+zstd"), "of bytes elements"),
    "delta of strings": (strings(pipeline="delta+zstd"), "of bytes elements"),
    "no content": (tensor(INT64, (300,), compression("zstd", CHUNK, PIECES)), "not in tensor_content"),
    "values beside the content": (ints() + number(10, 5), "does not use"),
    "strings beside the content": (strings() + field(8, b"a"), "tensor_content"),
    "no elements": (record(INT64, (0,), "zstd", CHUNK, []), ""),
    "no elements, but a chunk": (record(INT64, (0, 3), "zstd", CHUNK, [b"a"]), "expected 0"),
    "a Python value": (ints("zstd", CHUNK, PIECES, field(1006, "list[int]")), "compressed or quantized"),
    "an encoding of numbers": (ints("zstd", CHUNK, PIECES, field(1008, "utf-8")), "encoding"),
    # what stands in chunks
    "a frame one byte short": (one("zstd", ZSTD(bytes(399))), "made 399 bytes"),
    "a frame one byte long": (one("zstd", ZSTD(bytes(401))), "chunk 0: zstd"),
    "a bomb": (one("zstd", ZSTD(bytes(9 << 20))), "chunk 0: zstd"),
    "a gzip bomb": (one("gzip", gzip.compress(bytes(1 << 17))), "chunk 0: gzip"),
    "two members": (one("gzip", gzip.compress(bytes(200)) * 2), "chunk 0: gzip"),
    "bytes after gzip": (one("gzip", gzip.compress(bytes(400)) + b"\0"), "or left some"),
    "bytes after zlib": (one("zlib", zlib.compress(bytes(400)) + b"\0"), "left some"),
    "snappy that claims 4 GiB": (one("snappy", b"\xff\xff\xff\xff\x0f" + bytes(9)), "chunk 0: snappy"),
    "lz4 that runs past its end": (one("lz4", b"\x1f" + bytes(20)), "chunk 0: lz4"),
    "planes cut short": (one("shuffle+zstd", planes(1, 1, 1, 1)[:15]), "inside the sizes"),
    "planes that are not there": (one("shuffle+zstd", planes(1, 1, 1, 1, of=b"abc")), "planes of 4 bytes in 3"),
    "planes that are too many": (one("shuffle+zstd", planes(1, 1, 1, 1, of=b"abcde")), "planes of 4 bytes in 5"),
    "planes that overflow": (one("shuffle+zstd", planes(*[1 << 30] * 4, of=bytes(4))), "planes of 4294967296"),
    "a plane of nothing": (one("shuffle+zstd", planes(0, 1, 1, 1, of=b"abc")), "chunk 0: "),
    "a plane too long": (one("shuffle+zstd", planes(101, 1, 1, 1, of=bytes(104))), "101 bytes where 100"),
    "a plane without a codec": (one("shuffle", planes(9, 1, 1, 1, of=bytes(12))), "9 bytes where 100"),
    "packed, and cut in its head": (one("pack", packed(0)[:8]), "inside the head"),
    "packed, more bits than an element": (one("pack", packed(33, 0, bytes(413))[:300]), "in 33 bits"),
    "packed in 57 bits": (ints("pack", CHUNK, [packed(57, 0, bytes(900))] * 2 + [packed(57)]), "in 57 bits"),
    "packed in 255 bits": (one("pack", packed(255)), "in 255 bits"),
    "packed, a byte short": (one("pack", packed(3, 0, bytes(37))), "37 bytes where 38"),
    "packed, a byte long": (one("pack", packed(3, 0, bytes(39))), "39 bytes where 38"),
    "packed in no bits, and some": (one("pack", packed(0, 0, b"\0")), "1 bytes too many"),
    "packed, bits after the end": (one("pack", packed(3, 0, bytes(37) + b"\x10")), "bits after the last"),
    "packed, a constant with bits after": (one("pack", packed(3, 0, b"\xff")), "bits after the last"),
    "packed by a codec, one short": (one("pack+zstd", packed(8, 0, ZSTD(bytes(99)))), "made 99 bytes"),
    "differences of nothing": (one("delta+zstd", b"\0\0"), "chunk 0: "),
    "differences that end in the first": (one("delta+pack", b"abc"), "chunk 0: "),
    "a code that is incomplete": (one("huffman", coded(5, 6, [1, 2]), UINT8), "not sound"),
    "a code that is over-complete": (one("huffman", coded(5, 7, [1, 1, 1]), UINT8), "not sound"),
    "a code of one symbol": (one("huffman", coded(5, 5, [1]), UINT8), "not sound"),
    "a code of long lengths": (one("huffman", coded(5, 6, [15, 15]), UINT8), "not sound"),
    "a code with too large sizes": (one("huffman", coded(5, 6, [1, 1], sizes=[4, 4, 2**32 - 1]), UINT8), "not sound"),
    "a code cut short": (one("huffman", coded(5, 6, [1, 1])[:-1], UINT8), "not sound"),
    "a code with bits after": (one("huffman", coded(5, 6, [1, 1])[:-1] + b"\x02", UINT8), "not sound"),
    "a bool of two": (one("pack", packed(0, 2), 10), "is not a valid bool"),
    "an int4 of sixteen": (one("pack", packed(0, 16), 29), ""),
    # strings
    "strings without their size": (strings(raw=0), ""),
    "no strings": (strings(bytes(0) + field(1500, bytes(200))), "something else than strings"),
    "strings, one byte fewer": (strings(raw=len(BODY) - 1), "chunk 0: zstd"),
    "strings, one byte more": (strings(raw=len(BODY) + 1), "made"),
    "strings that are more": (strings(dims=(59,)), "60 strings where 59 were due"),
    "strings that are fewer": (strings(dims=(61,)), "60 strings where 61 were due"),
    "2^40 strings": (strings(dims=(1 << 40,)), "60 strings where 1099511627776 were due"),
    "strings that are numbers": (strings(number(10, 7) * 200), "in the strings that were compressed"),
    "strings with content": (strings(field(4, b"\1a") + BODY), "in the strings that were compressed"),
    "strings with a name": (strings(field(1000, "n") + BODY), "something else than strings"),
    "strings compressed twice": (strings(compression("zstd", CHUNK, [b"a"]) + BODY), "something else than strings"),
    "strings cut short": (strings(BODY[:-1], raw=len(BODY) - 1), "in the strings that were compressed"),
    "strings quantized": (strings() + field(QUANTIZATION, b""), "quantized strings"),
    # in other values
    "a layout as a whole": (
        layout("ragged", int64s(0, 1), int64s(7), extra=compression("zstd", CHUNK, PIECES)), "compressed in its parts"),
    "a part that lies": (layout("ragged", int64s(0, 300), ints(crcs=[1, 2, 3])), "checksum of chunk 0"),
    "a part of a part": (
        layout("ragged", int64s(0, 300), ints("zstd", CHUNK, PIECES, field(1007, "ragged"))), "no place"),
    "a part that is quantized": (layout("ragged", int64s(0, 1), int64s(7) + field(QUANTIZATION, b"")), "no place"),
    "splits that fall, compressed": (
        layout("ragged", record(INT64, (100,), "delta+pack", CHUNK, [RAW[0][:8] + packed(0, 1)]), int64s()), ""),
}  # fmt: skip
CLAIMS = {
    "a tebibyte": TEBIBYTE,
    "a tebibyte of floats": record(FLOAT32, (1 << 38,), "zstd", 1 << 26, [b"\0"] * (1 << 14)),
    "strings of 2 GiB": record(STRING, (1,), "zstd", 1 << 26, [b"\0"] * 32, raw=1 << 31),
}


def mapped(raw):
    """As load(mmap=True) does, without a file."""
    found = tb.formats.get("tb").decode(memoryview(raw), tb.errors.Limits(), True, {})
    return [leaf.read() for document in found for leaf in document.leaves]


@pytest.mark.parametrize("read", [whole, lazy, piped, mapped])
@pytest.mark.parametrize("case", LIES)
def test_lies_are_refused(case, read):
    payload, words = LIES[case]
    raw = framed(int64s(1, 2, 3)) + framed(payload)
    with pytest.raises(errors.CorruptError) as caught:
        read(raw)
    assert words in str(caught.value)
    assert 0 < caught.value.at <= len(raw)


@pytest.mark.parametrize("case", LIES)
@pytest.mark.parametrize("format", ["protobuf", "delimited", "tensorproto"])
def test_lies_are_refused_in_other_formats(case, format):
    payload, words = LIES[case]
    size = b"" if format != "delimited" else field(1, payload)[1 : -len(payload)]
    with pytest.raises(errors.CorruptError) as caught:
        tb.loads(size + payload, format)
    assert words in str(caught.value)


@pytest.mark.parametrize("read", [whole, lazy, piped, mapped])
@pytest.mark.parametrize("case", CLAIMS)
def test_claims_meet_a_limit(case, read):
    with pytest.raises(errors.LimitError):
        read(framed(CLAIMS[case]))


def test_claims_take_no_memory():
    window = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    maker = zstandard.ZstdCompressor(compression_params=window).compressobj()
    wide = maker.compress(bytes(1000)) + maker.flush()
    cases = {**CLAIMS, "a bomb in each chunk": record(UINT8, (20 << 19,), "zstd", 1 << 19, [ZSTD(bytes(1 << 25))] * 20)}
    cases["wide windows"] = record(UINT8, (50_000,), "zstd", 1000, [wide] * 49 + [b"ab"])
    given = {
        f"{name}, {way}": ("tb", framed(payload).hex(), way)
        for name, payload in cases.items()
        for way in ("whole", "lazy", "stream")
    }
    run = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(given), capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    outcomes, grown = json.loads(run.stdout)
    assert set(outcomes.values()) <= {"CorruptError", "LimitError"}
    assert outcomes["a tebibyte, lazy"] == "LimitError"
    assert grown < 64 << 20


@pytest.mark.parametrize("way", ["zeros", "strings", "parts"])
@pytest.mark.parametrize("read", ["whole", "lazy"])
def test_many_claims_count_together(way, read):
    four = [packed(0)] * 4  # four mebibytes from 36 bytes
    zeros = record(INT64, (1 << 19,), "pack", 1 << 20, four)
    body = field(8, bytes(4_000_000))
    pieces = [ZSTD(body[k : k + (1 << 20)]) for k in range(0, len(body), 1 << 20)]
    long = record(STRING, (1,), "zstd", 1 << 20, pieces, raw=len(body))
    raw = {
        "zeros": framed(*[zeros] * 10),
        "strings": framed(*[long] * 10),
        "parts": framed(layout("coo", *[zeros] * 10)),
    }[way]
    chosen = tb.formats.get("tb")

    def attempt(limit):
        return list(chosen.decode(memoryview(raw), tb.errors.Limits(max_bytes=limit), read == "lazy", {}))

    if way == "parts":
        with pytest.raises(errors.CorruptError, match="don't fit"):
            attempt(1 << 26)
    else:
        assert len(attempt(1 << 26)) == 10
    if read == "whole" or way == "strings":  # the others are not read yet
        with pytest.raises(errors.LimitError):
            attempt(1 << 24)
    with pytest.raises(errors.LimitError):
        [document.leaves[0].read() for document in attempt(1 << 21)]


# ---- damage -----------------------------------------------------------------

PIPELINES = ("zstd", "shuffle+huffman", "delta+pack", "lz4")


@pytest.mark.parametrize("read", [whole, lazy, piped, mapped])
@pytest.mark.parametrize("text", PIPELINES)
def test_truncations_and_flips_of_a_file(monkeypatch, text, read):
    """Large enough that a lazy reader trusts the header alone: then each chunk must vouch for itself."""
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 4096)
    x = np.random.default_rng(0).geometric(0.1, 9000).astype(np.int16)
    raw = bytearray(tb.dumps(x, compression=text))
    found = stored(records(raw)[0])
    assert len(found.content) > 4096
    assert len(found.sizes) == 5
    for size in range(1, len(raw), 97):
        with pytest.raises(errors.CorruptError):
            read(bytes(raw[:size]))
    begin, survived = raw.index(found.content), 0
    for bit in [
        *range(0, 8 * begin, 7),
        *range(8 * begin, 8 * len(raw) - 32, 797),
        *range(8 * len(raw) - 32, 8 * len(raw)),
    ]:
        raw[bit // 8] ^= 1 << bit % 8
        try:
            made = read(bytes(raw))
        except errors.CorruptError:
            pass
        else:  # the checksum of the record, which a lazy reader has no use for
            survived += 1
            made = made[0].numpy() if read is mapped else made[0]
            assert bit >= 8 * len(raw) - 32
            assert made.tolist() == x.tolist()
        raw[bit // 8] ^= 1 << bit % 8
    assert survived == (32 if read in (lazy, mapped) else 0)


@pytest.mark.parametrize("read", [whole, lazy, piped])
@pytest.mark.parametrize("name", STORED)
def test_truncations_and_flips_of_small_files(name, read):
    """All of it is under the record's checksum here, for every reader."""
    raw = bytearray(write(name))
    for size in range(1, len(raw)):
        with pytest.raises(errors.CorruptError):
            read(bytes(raw[:size]))
    for bit in range(0, 8 * len(raw), 1 if len(raw) < 200 else 5):
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.CorruptError):
            read(bytes(raw))
        raw[bit // 8] ^= 1 << bit % 8
    read(bytes(raw))


SOUND = [
    ints(),
    strings(),
    one("huffman", coded(5, 6, [1, 1]), UINT8),
    one("shuffle+zstd", planes(1, 1, 1, 1, of=b"\0\0\1\2")),
    ints("delta+pack", CHUNK, [RAW[0][:8] + packed(0)] * 3),
    layout("ragged", int64s(0, 300), ints()),
]


@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
def test_changed_bytes_under_right_checksums_raise_only_our_errors(payload, changes, bits):
    raw = bytearray(payload)
    for where, value in changes:
        at = min(int(where * len(raw)), len(raw) - 1)
        raw[at] = raw[at] ^ 1 << value % 8 if bits else value
    for read in (whole, lazy, piped, mapped):
        with contextlib.suppress(errors.TensorbytesError):
            read(framed(bytes(raw)))
