"""Appending to record files: after the last whole record, whatever a crash has left."""

import io
import warnings
import zlib

import pytest

from tensorbytes import _wire
from tensorbytes.errors import (
    CorruptError,
    SchemaError,
    TensorbytesError,
    TornTailWarning,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats.tfrecord.files.bytestreams import detect
from tensorbytes.formats.tfrecord.read.reader import open_records
from tensorbytes.formats.tfrecord.schema import Schema
from tensorbytes.formats.tfrecord.write.writer import RecordWriter
from tests.support.written_records import examples, names, payloads, written


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.tfrecord"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_appending_goes_on_where_the_file_ends(path, compression):
    for i in range(3):
        with RecordWriter(path, mode="a", compression=compression if i == 0 else None) as writer:
            assert writer.count == 1000 * i
            for k in range(1000):
                writer.write({"x": i, "s": f"text {k}"})
    found = examples(path, compression)
    assert [row["x"][0] for row in found] == [i for i in range(3) for _ in range(1000)]
    assert len(found) == 3000


def test_a_torn_tail_is_cut_at_every_byte(path):
    schema = {"x": "int64", "s": "text"}
    written(path, [{"x": i, "s": "abc"} for i in range(3)], schema=schema)
    whole = path.read_bytes()
    size = len(whole) // 3
    for cut in range(2 * size + 1, 3 * size):
        path.write_bytes(whole[:cut])
        with pytest.warns(TornTailWarning, match=rf"cut off {cut - 2 * size} bytes of an unfinished record") as caught:
            writer = RecordWriter(path, mode="a")
        with writer:
            assert writer.count == 2
            writer.write({"x": 2, "s": "abc"})
        assert caught[0].filename == __file__
        assert path.read_bytes() == whole


@pytest.mark.parametrize("tail", [bytes(1), bytes(11), bytes(12), bytes(100), bytes(3_000_000)])
def test_a_tail_of_zeros_is_cut(path, tail):
    written(path, [{"x": 1}])
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with pytest.warns(TornTailWarning), RecordWriter(path, mode="a") as writer:
        writer.write({"x": 1})
    assert path.read_bytes() == whole * 2


@pytest.mark.parametrize("compression", ["none", None])
def test_a_file_of_zeros_alone_may_be_anybodys(path, compression):
    """A power cut can leave a new file so, its size and none of its blocks; so is an array of zeros."""
    path.write_bytes(bytes(5000))
    with pytest.raises(CorruptError, match="nothing but zeros"):
        RecordWriter(path, mode="a", compression=compression)
    assert path.read_bytes() == bytes(5000)


def test_a_last_record_that_was_not_written_to_its_end_is_cut(path):
    """As a power cut leaves it: the file has its size, and zeros from somewhere on."""
    written(path, [{"x": 1}, {"x": 2}])
    data = path.read_bytes()
    half = len(data) // 2
    for at in range(half + 1, len(data) - 4):
        path.write_bytes(data[:at] + bytes(len(data) - at))
        with pytest.warns(TornTailWarning), RecordWriter(path, mode="a") as writer:
            assert writer.count == 1
        assert path.read_bytes() == data[:half]


def test_a_last_record_with_a_wrong_checksum_is_damage(path):
    written(path, [{"x": 1}, {"x": 2}])
    data = bytearray(path.read_bytes())
    half = len(data) // 2
    for at in range(half, len(data)):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptError, match=r"repair\(src, dst\) must come first: it is damaged, not just cut"):
            RecordWriter(path, mode="a")
        assert path.read_bytes() == data
        data[at] ^= 1


def test_damage_elsewhere_is_refused(path):
    written(path, [{"x": 1}, {"x": 2}, {"x": 3}])
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    for at in (*range(12), *range(third, third + 12)):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(
            CorruptError, match=r"repair\(src, dst\) must come first: it is damaged, not just cut"
        ) as caught:
            RecordWriter(path, mode="a")
        assert caught.value.at == at // third * third
        assert caught.value.path == str(path)
        assert path.read_bytes() == data
        data[at] ^= 1


def test_large_records_are_passed_over(path):
    with RecordWriter(path) as writer:
        for size in (10, 3_000_000, 1 << 20, (1 << 20) - 16, 5, 2_500_000):
            writer.write_raw(bytes(size))
    with RecordWriter(path, mode="a") as writer:
        assert writer.count == 6
        writer.write_raw(b"end")
    assert [len(data) for data in payloads(path)] == [10, 3_000_000, 1 << 20, (1 << 20) - 16, 5, 2_500_000, 3]
    whole = path.read_bytes()
    path.write_bytes(whole[: -19 - 1_000_000])
    with pytest.warns(TornTailWarning), RecordWriter(path, mode="a") as writer:
        assert writer.count == 5


@pytest.mark.parametrize("compression", ["gzip", "snappy"])
def test_a_torn_compressed_tail(path, compression):
    with RecordWriter(path, compression=compression) as writer:
        writer.write({"x": 1})
        writer.flush()
        first = path.stat().st_size
        writer.write({"x": 2})
    whole = path.read_bytes()
    refused = 0
    for cut in range(first + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                written(path, [{"x": 2}], mode="a")
            except CorruptError:
                # The record is whole, only the end of its member is missing: not ours to throw away.
                assert path.read_bytes() == whole[:cut]
                refused += 1
                continue
        assert [warning.category for warning in caught] == [TornTailWarning]
        assert path.read_bytes() == whole
    assert 8 <= refused < 12 if compression == "gzip" else not refused
    path.write_bytes(whole + bytes(50))
    with pytest.warns(TornTailWarning), RecordWriter(path, mode="a"):
        pass
    assert len(payloads(path, compression)) == 2


@pytest.mark.parametrize("compression", ["gzip", "snappy"])
def test_damaged_compressed_files_are_refused(path, compression):
    written(path, [{"x": i} for i in range(50)], compression=compression)
    data = bytearray(path.read_bytes())
    refused = 0
    for at in range(len(data)):
        data[at] ^= 0x10
        path.write_bytes(data)
        try:
            RecordWriter(path, mode="a", compression=compression, sidecar=False).abort()
        except (CorruptError, UsageError, UnsupportedError):
            refused += 1
        except TornTailWarning:
            pass
        data[at] ^= 0x10
    assert refused > len(data) // 2
    body = _wire.frames([[b"whole"]]) + b"not whole"
    path.write_bytes(zlib.compress(body, wbits=31))
    with pytest.raises(CorruptError, match=r"damaged|too early"):
        RecordWriter(path, mode="a")


def test_what_can_not_be_appended_to(path):
    written(path, [{"x": 1}], compression="zlib")
    with pytest.raises(UsageError, match="zlib file can't be appended to: TensorFlow silently drops"):
        RecordWriter(path, mode="a")
    written(path, [{"x": 1}], compression="gzip")
    with pytest.raises(UsageError, match="its compression is 'gzip', not 'none'"):
        RecordWriter(path, mode="a", compression="none")
    with pytest.raises(UsageError, match="appending needs a path"):
        RecordWriter(io.BytesIO(), mode="a")
    with pytest.raises(UsageError, match="can't be appended to"):
        RecordWriter("memory://a", mode="a")
    with RecordWriter(path, mode="a"), pytest.raises(TensorbytesError, match="being written"):
        RecordWriter(path, mode="a")


def test_appended_records_fit_the_ones_before(path):
    beside = path.with_name("x.tfrecord.schema.json")
    written(path, [{"t": [1, 2], "s": "a"}])
    with RecordWriter(path, mode="a") as writer:
        assert writer.schema == Schema({"t": ("int64", [2]), "s": "text"})
        with pytest.raises(SchemaError, match=r"record 1: feature 't': expected int64\[2\], got int64\[3\]"):
            writer.write({"t": [1, 2, 3], "s": "a"})
        writer.write({"t": [1, 2], "s": "b"})
    with pytest.raises(SchemaError, match="'s' is text in the records there are, but bytes in the new ones"):
        RecordWriter(path, mode="a", schema={"t": ("int64", [2]), "s": "bytes"})
    wider = Schema({"t": ("int64", [None]), "s": "text"})
    written(path, [{"t": [1, 2, 3], "s": "c"}], mode="a", schema=wider)
    assert Schema.load(beside) == wider
    assert [row["t"] for row in examples(path)] == [[1, 2], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_appending_to_a_file_without_a_sidecar(path, compression):
    written(path, [{"t": [1, 2], "s": b"a"}], sidecar=False, compression=compression)
    with RecordWriter(path, mode="a") as writer:
        assert writer.schema is None
        writer.write_raw(payloads(path, compression)[0])
        with pytest.raises(SchemaError, match="record 2: feature 's': expected bytes, got str"):
            writer.write({"t": [1], "s": "text"})
        writer.write({"t": [1], "s": b"b"})
    assert Schema.load(path.with_name("x.tfrecord.schema.json")) == Schema({"t": ("int64", [None]), "s": "bytes"})
    assert [row["t"] for row in examples(path, compression)] == [[1, 2], [1, 2], [1]]


def test_appending_raw_records_needs_no_schema(path):
    with RecordWriter(path) as writer:
        writer.write_raw(b"no Example")
    with RecordWriter(path, mode="a") as writer:
        writer.write_raw(b"another")
    assert payloads(path) == [b"no Example", b"another"]
    assert names(path.parent) == ["x.tfrecord"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.tfrecord.gz", "gzip"),
        ("x.tfrecord.GZIP", "gzip"),
        ("x.zlib", "zlib"),
        ("x.tfrecord.zz", "zlib"),
        ("x.snappy", "snappy"),
        ("x.tfrecord", "none"),
        ("x.gz.tfrecord", "none"),
    ],
)
def test_the_name_asks_for_a_compression(name, expected, tmp_path):
    def found(path):
        return detect(path.read_bytes()[:64])

    path = tmp_path / name
    with RecordWriter(path) as writer:
        writer.write({"x": 1})
    assert found(path) == expected
    assert [row["x"] for row in open_records(path)] == [1]
    assert (tmp_path / f"{name}.schema.json").exists()
    # What is said counts more than the name, and what is there more than either.
    for given in ("none", "", "gzip", "snappy"):
        with RecordWriter(path, compression=given) as writer:
            writer.write({"x": 3})
        assert found(path) == (given or "none")
        with RecordWriter(path, mode="a") as writer:
            writer.write({"x": 4})
        assert found(path) == (given or "none")
        assert [row["x"] for row in open_records(path)] == [3, 4]
    new = tmp_path / f"new-{name}"
    for number in range(1 if expected == "zlib" else 2):  # of a file that is not there, and of one that is
        with RecordWriter(new, mode="a") as writer:
            writer.write({"x": number})
    assert found(new) == expected
    with RecordWriter(new, shards=2) as writer:
        writer.write({"x": 5})
        writer.write({"x": 6})
    shard = tmp_path / f"new-{name}-00001-of-00002"
    assert found(shard) == expected
    with RecordWriter(shard) as writer:  # one by one
        writer.write({"x": 7})
    assert found(shard) == expected
    assert [row["x"] for row in open_records(f"{new}@2")] == [5, 7]


def test_a_level_goes_with_the_compression_of_the_name(tmp_path):
    sizes = []
    for level in (0, 9):
        with RecordWriter(tmp_path / "x.tfrecord.gz", level=level) as writer:
            writer.write({"x": b"abc" * 1000})
        sizes.append((tmp_path / "x.tfrecord.gz").stat().st_size)
    assert sizes[0] > 10 * sizes[1]
    with pytest.raises(UsageError, match="level"):
        RecordWriter(tmp_path / "x.tfrecord", level=3)
