"""Compressed streams of records: as TensorFlow reads and writes them, and with damage at every byte."""

import gzip
import os
import random
import struct
import zlib

import cramjam
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.errors import CorruptError, LimitError, Limits, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import detect, open_stream
from tensorbytes.io.streams import engines
from tensorbytes.io.streams.detection import NAMES
from tensorbytes.io.streams.encoders import open_encoder
from tests.support.packed_bytes import PACKED, Pipe, drain, pack, some_records, threads_left, unpack, unpack_whole
from tests.support.tiers import deep_but
from tests.support.wire_bytes import framed


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert threads_left() == []


@pytest.fixture(params=["isal", "zlib"])
def engine(request, monkeypatch):
    """Both decompressors of gzip; the second is that of machines without isal, and of pipes."""
    if request.param == "zlib":
        monkeypatch.setattr(engines, "find_isal", lambda: None)
    return request.param


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
    with open_stream(path) as source:
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
        open_encoder("auto")


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
        assert data.startswith(out)
        if error is None:  # where it was flushed
            assert name == "zlib"
            assert len(out) in (70, len(data))
            continue
        assert (type(error), error.at) == (CorruptError, cut)
        assert out.startswith(decodable(name, packed[:cut]))
        if between and cut > between:
            assert len(out) >= 70


@pytest.mark.parametrize("name", PACKED)
def test_a_pipe_that_is_cut_tells_the_same(name):
    _, packed = small_file(name)
    for cut in range(1, len(packed)):
        whole, error = unpack(packed[:cut], name)
        with open_stream(Pipe(packed[:cut]), name, prefetch=False) as source:
            out, same = drain(source)
        assert (out, str(same).partition(":")[2]) == (whole, str(error).partition(":")[2])


@pytest.mark.parametrize("every", deep_but([7], [1, 7]))
@pytest.mark.parametrize("name", PACKED)
def test_every_flipped_bit_is_an_error_or_changes_nothing(name, every):
    """Snappy has no checksums of its own: there the framing has to find the damage."""
    data, packed = small_file(name)
    for bit in range(0, len(packed) * 8, every):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        damaged = bytes(damaged)
        out, error = unpack(damaged, name, prefetch=False)
        if error is None:
            assert out == data or name == "snappy"
        else:
            assert 0 <= error.at <= len(damaged)
        assert out.startswith(decodable(name, damaged))
        with open_stream(Pipe(damaged, most=7), name, prefetch=False) as source:
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
        with open_stream(tmp_path / "x", how) as source:
            assert drain(source) == (b"", None)


def test_impossible_snappy_blocks_are_refused():
    good = pack("snappy", b"abc" * 100)
    whole = pack("snappy", b"xyz" * 100)
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
        assert (out.rstrip(b"\0"), error.at) == (b"abc" * 100, len(good)), name
        assert "snappy block" in str(error)
    # A wrong length, a wrong size: the elements are there all the same.
    for damage in (b"\1" + whole[1:], whole[:4] + b"\xff" + whole[5:]):
        out, error = unpack(good + damage, "snappy")
        assert (out, error.at) == (b"abc" * 100 + b"xyz" * 100, len(good))


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
    with pytest.raises(LimitError, match=r"a snappy block of 3000000 bytes, over the limit of 1000000 \(byte 0\)"):
        unpack(packed, "snappy", limits=Limits(max_bytes=1_000_000))
    _, error = unpack(packed[:-1], "snappy", limits=Limits(max_bytes=1_000_000))
    assert error.at == len(packed) - 1


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


# ---- compressors -----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_was_flushed_can_be_read_though_nothing_follows(name, engine):
    packer, packed, data = open_encoder(name), b"", b""
    for number in range(30):
        piece = bytes(random.Random(number).choices(b"abcdef", k=number * 100))
        data += piece
        packed += bytes(packer.compress(piece)) + bytes(packer.flush())
        out, error = unpack(packed, name)
        # Of zlib, only finish() writes the end; a stream that was flushed while it held nothing has shown nothing.
        assert (out, error is None) == (data, bool(data) or name != "zlib")
    assert bytes(packer.flush()) == b""
    assert unpack_whole(packed + bytes(packer.finish()), name) == data


@pytest.mark.parametrize("name", NAMES)
def test_buffers_of_every_kind_and_size_are_compressed(name):
    packer = open_encoder(name)
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
            open_encoder(name, level)


@pytest.mark.parametrize("first", [0, 5, 11])
def test_a_gzip_file_is_recognised_whose_first_member_is_short(tmp_path, first):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        writer.write_batch({"x": np.arange(4)})
    plain = (tmp_path / "x.tfrecord").read_bytes()
    members = [gzip.compress(part) for part in (plain[:first], b"", plain[first:])]
    path = tmp_path / "y.tfrecord.gz"
    path.write_bytes(b"".join(members))
    assert tb.load(path)["x"].tolist() == [0, 1, 2, 3]
    tb.convert(path, tmp_path / "y.npz")
    assert tb.load(tmp_path / "y.npz")["x"].tolist() == [0, 1, 2, 3]
    path.rename(tmp_path / "nameless")
    assert tb.inspect(tmp_path / "nameless").format == "tfrecord"
    path.write_bytes(gzip.compress(plain)[:-9] + b"\0" * 9)
    with pytest.raises(CorruptError):
        tb.load(path)
