"""Codecs and pipelines: other libraries read what ours write, and nothing but the right bytes passes."""

import contextlib
import gzip
import struct
import zlib

import backports.zstd
import lz4.block
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import codecs, dtypes
from tensorbytes.codecs import chunked
from tensorbytes.codecs.pipelines import BYTES, Elements, Pipeline, elements_of
from tensorbytes.io.streams.engines import DamagedError
from tests.support.compressed_bytes import CODECS, DECODERS, PIPELINES, read, stored, undone
from tests.support.generated_code import parse
from tests.support.wire_bytes import records

TEXT = b"".join(b"%d is a number; " % (n * n % 1000) for n in range(90))
RANDOM = np.random.default_rng(0).integers(0, 256, 300, np.uint8).tobytes()
PLANES = {"text": TEXT, "zeros": bytes(3000), "two values": bytes([1, 1, 0, 1, 0, 0, 0, 1] * 100), "random": RANDOM}
ENCODERS = {
    "zstd": [zstandard.ZstdCompressor(19).compress, backports.zstd.compress],
    "lz4": [lambda data: lz4.block.compress(data, store_size=False, mode="high_compression")],
    "gzip": [gzip.compress],
    "zlib": [zlib.compress],
    "snappy": [lambda data: pa.Codec("snappy").compress(data).to_pybytes()],
}


def decompressed(name, data, n):
    out = bytearray(n)
    codecs.get(name).decompress(memoryview(data), memoryview(out))
    return bytes(out)


# ---- codecs -----------------------------------------------------------------


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("name", CODECS)
def test_other_libraries_read_ours_and_we_read_theirs(name, plane):
    data = PLANES[plane]
    codec = codecs.get(name)
    for level in (None, *(codec.levels[:1] and (codec.levels[0], codec.levels[-1]))):
        made = bytes(codec.compress(memoryview(data), level))
        if len(made) < len(data) and len(made) > 1:
            assert DECODERS[name](made, len(data)) == data
            assert decompressed(name, made, len(data)) == data
    for compress in ENCODERS.get(name, ()):
        assert decompressed(name, compress(data), len(data)) == data


@pytest.mark.parametrize("name", CODECS)
def test_nothing_but_what_fills_the_plane_is_taken(name):
    made = bytes(codecs.get(name).compress(memoryview(TEXT), None))
    for more in (-1, 1, -len(TEXT), 1 - len(TEXT), 1000):
        with pytest.raises(DamagedError):
            decompressed(name, made, len(TEXT) + more)
    for tail in (b"\0", b"ab", b"abc", b"\0" * 4, made):
        with pytest.raises(DamagedError):
            decompressed(name, made + tail, len(TEXT))


@pytest.mark.parametrize("wrap", [zlib.compress, gzip.compress])
def test_bytes_behind_a_stream_are_noticed_at_any_alignment(wrap):
    name = {zlib.compress: "zlib", gzip.compress: "gzip"}[wrap]
    for n in range(20, 60):
        made = wrap(TEXT[:n])
        assert decompressed(name, made, n) == TEXT[:n]
        for tail in (b"\0", b"xy", b"xyz", b"0123"):
            with pytest.raises(DamagedError):
                decompressed(name, made + tail, n)


@pytest.mark.parametrize("name", CODECS)
def test_truncations_and_flips_of_codes_raise_damaged_or_nothing(name):
    made = bytes(codecs.get(name).compress(memoryview(TEXT), None))
    for size in range(len(made)):
        with pytest.raises(DamagedError):
            decompressed(name, made[:size], len(TEXT))
    checked = name in ("gzip", "zlib")
    for bit in range(0, 8 * len(made), 1 if tb.ACCELERATED or name != "huffman" else 23):
        flipped = bytearray(made)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = decompressed(name, flipped, len(TEXT))
        except DamagedError:
            continue
        assert len(found) == len(TEXT)
        assert not checked or found == TEXT  # in a header's flags


@pytest.mark.parametrize("name", CODECS)
@given(data=st.binary(max_size=80), n=st.integers(0, 300))
def test_any_bytes_raise_damaged_or_nothing(name, data, n):
    with contextlib.suppress(DamagedError):
        decompressed(name, data, n)


SKIPPED = struct.pack("<II", 0x184D2A50, 4) + b"abcd"


def _windowed(log):
    parameters = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False, enable_ldm=True)
    maker = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return maker.compress(TEXT) + maker.flush()


def _with_dictionary():
    samples = [TEXT[n : n + 200] + bytes([n % 251, n // 251]) for n in range(1200)]
    made = zstandard.train_dictionary(2048, samples)
    return zstandard.ZstdCompressor(dict_data=made).compress(TEXT)


def _lying_size():
    made = bytearray(zstandard.ZstdCompressor().compress(TEXT))
    assert struct.unpack_from("<H", made, 5)[0] == len(TEXT) - 256  # the frame's content size, in two bytes
    struct.pack_into("<H", made, 5, len(TEXT) - 255)
    return bytes(made)


ZSTD_REFUSED = {
    "window of 256 MiB": lambda: _windowed(28),
    "window of 2 GiB": lambda: _windowed(31),
    "a dictionary": _with_dictionary,
    "a size that lies": _lying_size,
    "a frame of nothing": lambda: zstandard.ZstdCompressor().compress(b""),
    "skippable frames alone": lambda: SKIPPED * 100,
    "one frame too many": lambda: zstandard.ZstdCompressor().compress(TEXT) + zstandard.ZstdCompressor().compress(b"x"),
    "a bomb": lambda: zstandard.ZstdCompressor().compress(bytes(1 << 26)),
    "a wrong checksum": lambda: zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)[:-4] + bytes(4),
}


@pytest.mark.parametrize("case", ZSTD_REFUSED)
def test_zstd_frames_that_are_refused(case):
    with pytest.raises(DamagedError, match="zstd"):
        decompressed("zstd", ZSTD_REFUSED[case](), len(TEXT))


@pytest.mark.parametrize("name", ["gzip", "zlib", "snappy", "lz4"])
def test_a_bomb_is_cut_off(name):
    made = ENCODERS[name][0](bytes(1 << 24))
    with pytest.raises(DamagedError):
        decompressed(name, made, 1000)


# ---- pipelines --------------------------------------------------------------

ELEMENTS = [Elements(w, f) for w in (1, 2, 4, 8) for f in ("float", "signed", "unsigned") if w > 1 or f != "float"]
KINDS = ("few", "steps", "random", "constant")


def data_of(elements, count, kind, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "constant":
        return bytes(range(1, 1 + elements.width)) * count
    if kind == "random":
        return rng.integers(0, 256, count * elements.width, np.uint8).tobytes()
    values = np.cumsum(rng.integers(-3, 5, count)) if kind == "steps" else rng.geometric(0.3, count) - 3
    if elements.family == "float" and elements.width == 2:
        return (values / 8).astype("<f2").tobytes()
    return values.astype(f"<{'f' if elements.family == 'float' else 'i'}{elements.width}").tobytes()


@pytest.mark.parametrize("elements", [*ELEMENTS, BYTES], ids=lambda e: f"{e.family}{e.width}")
@pytest.mark.parametrize("text", PIPELINES)
def test_chunks_come_back_and_others_read_them(text, elements):
    pipeline = Pipeline.parse(text).fitted(elements)
    if pipeline is None:
        assert text in ("pack", "delta+pack")
        assert elements.family in ("float", "bytes")
        return
    for kind in KINDS:
        for count in (0, 1, 2, 5, 300):
            data = data_of(elements, count, kind)
            made = bytes(pipeline.encode(memoryview(data), elements)) if data else b""
            assert len(made) < len(data) or made == data
            out = bytearray(len(data))
            pipeline.decode(memoryview(made), memoryview(out), elements)
            assert bytes(out) == data
            assert undone(made, pipeline.text, len(data), elements.width) == data
            if kind == "constant" and count == 300:
                assert len(made) < len(data) / 2


@pytest.mark.parametrize("text", PIPELINES)
def test_damaged_chunks_raise_damaged_or_nothing(text):
    elements = Elements(4, "float" if "split" in text else "signed")
    pipeline = Pipeline.parse(text)
    assert pipeline.text == text
    data = data_of(elements, 600, "few")
    made = bytes(pipeline.encode(memoryview(data), elements))
    assert len(made) < len(data)

    def passes(chunk, n):
        try:
            pipeline.decode(memoryview(chunk), memoryview(bytearray(n)), elements)
        except DamagedError:
            return False
        return True

    assert passes(made, len(data))
    # A plane of which one byte is left is the plane of that value: only checksums tell.
    assert sum(passes(made[:cut], len(data)) for cut in range(0, len(made), 3)) <= 1
    for bit in np.random.default_rng(0).integers(0, 8 * len(made), 300):
        harmed = bytearray(made)
        harmed[bit // 8] ^= 1 << bit % 8
        for n in (len(data), len(data) + 4, 4):
            passes(harmed, n)


def test_every_dtype_has_elements():
    families = {row.name: elements_of(row) for row in dtypes.DTYPES.values()}
    assert families["bfloat16"] == (2, "float")
    assert families["complex128"] == (8, "float")
    assert families["bcomplex32"] == (2, "float")
    assert families["quint16"] == (2, "unsigned")
    assert families["datetime64"] == (8, "signed")
    assert families["int8"] == (1, "signed")
    assert families["int4"] == families["bool"] == families["float8_e5m2"] == (1, "unsigned")
    for name, elements in families.items():
        assert dtypes.get(name).itemsize % elements.width == 0
        assert chunked.CHUNK_BYTES % dtypes.get(name).itemsize == 0


# ---- whole records ----------------------------------------------------------

ARRAYS = {
    "float32": np.random.default_rng(1).normal(0, 0.02, 3000).astype(np.float32),
    "int64": np.cumsum(np.random.default_rng(2).integers(0, 9, 3000)),
    "uint8": np.random.default_rng(3).binomial(9, 0.3, 3000).astype(np.uint8),
    "complex64": np.round(np.random.default_rng(4).normal(0, 1, (900, 2)), 1).astype(np.float32).view(np.complex64),
    "bool": np.arange(3000) % 7 == 0,
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("text", PIPELINES)
def test_other_libraries_read_our_records(monkeypatch, text, name):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 2048)
    x = ARRAYS[name]
    (payload,) = records(tb.dumps({"x": x}, compression=text))
    found = stored(payload)
    fitted = Pipeline.parse(text).fitted(elements_of(dtypes.get(name)))
    if found is None:
        assert fitted is None or name in ("float32", "complex64") or "uint8" in name or "bool" in name
        return
    assert found.pipeline == fitted.text
    assert len(found.sizes) == -(-x.nbytes // 2048) > 1
    assert read(payload, x.itemsize, elements_of(dtypes.get(name)).width) == x.tobytes()


def test_generated_code_reads_the_compression():
    (payload,) = records(tb.dumps({"x": ARRAYS["int64"]}, compression="delta+pack"))
    message, found = parse(payload), stored(payload)
    assert (
        (message.compression.pipeline, message.compression.chunk) == ("delta+pack", chunked.CHUNK_BYTES) == found[2:4]
    )
    assert (tuple(message.compression.sizes), tuple(message.compression.checksums)) == (found.sizes, found.crcs)
    assert message.tensor_content == found.content
    assert message.SerializeToString()  # and has kept it
    (payload,) = records(tb.dumps(np.array(["word"] * 999), compression="zstd"))
    assert parse(payload).compression.raw == 999 * 6


@pytest.mark.parametrize("text", CODECS)
def test_other_libraries_read_our_strings(monkeypatch, text):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 1024)
    words = np.array([f"word {n * n % 91}" * (n % 4) for n in range(700)])
    (payload,) = records(tb.dumps(words, compression=text))
    body = read(payload, 0, 1)
    (plain,) = records(tb.dumps(words))
    assert plain.endswith(body)
    assert tb.loads(tb.dumps(words, compression=text)).tolist() == words.tolist()
