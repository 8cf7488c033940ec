"""Compressed files that were flushed and not finished are read, as TensorFlow does; what was cut is still damage."""

import random
import zlib

import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes.errors import CorruptError

MODES = {"gzip": 31, "zlib": 15}


def payload(number, size=1):
    values = random.Random(number).choices(range(1 << 20), k=size)
    feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=values))}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def tensorflow_reads(path, name):
    return list(tf.data.TFRecordDataset(str(path), compression_type=name.upper()).as_numpy_iterator())


@pytest.mark.parametrize("flush_mode", [None, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
@pytest.mark.parametrize("name", MODES)
def test_what_tensorflow_flushed_is_read(tmp_path, name, flush_mode):
    path, written = tmp_path / "x.tfrecord", []
    options = tf.io.TFRecordOptions(compression_type=name.upper(), flush_mode=flush_mode)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for number in range(16):  # with each, the flush ends at another bit
            written.append(payload(number, 1 + number % 7))
            writer.write(written[-1])
            writer.flush()
            records = tb.open_records(path)
            assert list(records.payloads()) == tensorflow_reads(path, name) == written
            assert len(records) == len(written)
    assert list(tb.open_records(path).payloads()) == written
    assert not tb.verify(path).unfinished


@pytest.mark.parametrize("name", MODES)
def test_what_we_flushed_is_read_and_said_to_be_unfinished(tmp_path, name, capsys):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, compression=name) as writer:
        for number in range(20):
            writer.write({"x": number, "s": "text " * number})
            writer.flush()
            assert [row["x"] for row in tb.open_records(path)] == list(range(number + 1))
            assert len(tensorflow_reads(path, name)) == number + 1
        report, details = tb.verify(path), tb.inspect(path).details
        assert report.ok
        assert report.records == 20
        assert report.unfinished == (name == "zlib")  # a member of gzip is ended by each flush
        assert ("not finished" in str(report)) == report.unfinished == report.to_dict().get("unfinished", False)
        assert ("not finished" in details["compression"]) == report.unfinished
    assert not tb.verify(path).unfinished


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("level", [0, 1, 6])
def test_a_cut_file_is_damaged_wherever_it_was_not_flushed(tmp_path, name, level):
    plain, packer, flushed = b"", zlib.compressobj(level, zlib.DEFLATED, MODES[name]), {}
    packed = b""
    with tb.RecordWriter(tmp_path / "plain") as writer:
        for number in range(12):
            writer.write({"x": list(range(number * 3 + 1))})
            writer.flush()
            whole = (tmp_path / "plain").read_bytes()
            packed += packer.compress(whole[len(plain) :])
            plain = whole
            if number % 4 == 2:
                packed += packer.flush([zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH][number // 4])
                flushed[len(packed)] = number + 1
    packed += packer.flush()
    found = {}
    for cut in range(1, len(packed)):
        (tmp_path / "cut").write_bytes(packed[:cut])
        try:
            found[cut] = len(list(tb.open_records(tmp_path / "cut", compression=name).payloads()))
        except CorruptError:
            continue
    assert found == flushed


@pytest.mark.parametrize("name", MODES)
def test_a_stream_that_was_flushed_inside_a_record_is_damaged(tmp_path, name):
    with tb.RecordWriter(tmp_path / "plain") as writer:
        writer.write({"x": 1})
        writer.write({"x": 2})
    plain = (tmp_path / "plain").read_bytes()
    for mode in (zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH):
        packer = zlib.compressobj(6, zlib.DEFLATED, MODES[name])
        (tmp_path / "torn").write_bytes(packer.compress(plain[:-3]) + packer.flush(mode))
        rows = iter(tb.open_records(tmp_path / "torn", schema={"x": "int64"}))
        assert next(rows) == {"x": 1}
        with pytest.raises(CorruptError, match="ends inside record 1"):
            next(rows)
        assert not tb.verify(tmp_path / "torn").ok


def test_appending_to_an_unfinished_member_is_refused_and_repair_finishes_it(tmp_path):
    path, written = tmp_path / "x.tfrecord", [payload(number) for number in range(5)]
    writer = tf.io.TFRecordWriter(str(path), "GZIP")
    for item in written:
        writer.write(item)
    writer.flush()
    before = path.read_bytes()
    with pytest.raises(CorruptError, match="5 whole records in its last part"):
        tb.RecordWriter(path, mode="a", compression="gzip").close()
    assert path.read_bytes() == before
    assert tb.repair(path, tmp_path / "whole.tfrecord").records == 5
    assert not tb.verify(tmp_path / "whole.tfrecord").unfinished
    assert tensorflow_reads(tmp_path / "whole.tfrecord", "gzip") == written
    writer.close()


@pytest.mark.parametrize("name", MODES)
def test_a_stream_with_nothing_but_its_start_is_not_taken_for_an_empty_file(tmp_path, name):
    packer = zlib.compressobj(6, zlib.DEFLATED, MODES[name])
    (tmp_path / "x").write_bytes(packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH))
    with pytest.raises(CorruptError, match=f"ends inside its {name} stream"):
        list(tb.open_records(tmp_path / "x", compression=name))
