"""Files that grow are followed, from any record on; each writer is a real second process."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import tensorflow as tf
from google.protobuf.wrappers_pb2 import StringValue

import tensorbytes as tb
from tensorbytes.errors import CorruptError, TornTailWarning, UsageError
from tensorbytes.records import Follow

SCHEMA = {"x": "int64"}
# Long beyond what any test takes: a test that reaches it fails by the records that it lacks.
PATIENCE = 120.0

OURS = """
import sys
import tensorbytes as tb
with tb.RecordWriter(sys.argv[1]) as writer:
    for number in range(int(sys.argv[2])):
        writer.write({"x": number})
        writer.flush()
        print(number, flush=True)
        sys.stdin.readline()
"""
TENSORFLOWS = """
import sys
import tensorflow as tf
with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    for number in range(int(sys.argv[2])):
        feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))}
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        writer.flush()
        print(number, flush=True)
        sys.stdin.readline()
"""


@contextlib.contextmanager
def writing(code, path, count):
    """A process that writes a record whenever it is told to, and has written the first."""
    command = [sys.executable, "-c", code, str(path), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "0\n"
            yield process
        finally:
            process.stdin.close()
            process.wait()


def go_on(process):
    with contextlib.suppress(BrokenPipeError):  # it has written all
        process.stdin.write("\n")
        process.stdin.flush()


@pytest.mark.parametrize(
    "code", [pytest.param(OURS, id="ours"), pytest.param(TENSORFLOWS, id="tensorflow", marks=pytest.mark.deep)]
)
def test_each_record_of_another_process_comes_as_it_is_flushed(tmp_path, code):
    path, count = tmp_path / "x.tfrecord", 12
    with writing(code, path, count) as process:
        follow = Follow(poll=0.01, stop=lambda: process.poll() is not None, timeout=PATIENCE)
        found = []
        for row in tb.open_records(path, schema=SCHEMA, follow=follow):
            found.append(row["x"])
            go_on(process)  # the next is written only now
        assert found == list(range(count))


def test_batches_are_given_when_they_are_full_and_the_rest_at_the_end(tmp_path):
    path = tmp_path / "x.tfrecord"
    with writing(OURS, path, 10) as process:
        threading.Thread(target=lambda: [go_on(process) for _ in range(10)]).start()
        follow = Follow(poll=0.01, stop=lambda: process.poll() is not None, timeout=PATIENCE)
        batches = list(tb.open_records(path, schema=SCHEMA, follow=follow).batches(4))
    assert [batch["x"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def written(path, count, start=0):
    with tb.RecordWriter(path, schema=SCHEMA, sidecar=False) as writer:
        for number in range(start, start + count):
            writer.write({"x": number})
    return path.read_bytes()


def written_path(path, count):
    written(path, count)
    return path


class Looks:
    """A stop condition that does something at each look at the file; reading ends after the last."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self):
        if not self.steps:
            return True
        self.steps.pop(0)()
        return False


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def test_a_torn_tail_is_waited_for_byte_by_byte(tmp_path):
    data, path = written(tmp_path / "whole", 3), tmp_path / "x"
    path.write_bytes(b"")
    looks = Looks(*[lambda at=at: append(path, data[at : at + 1]) for at in range(len(data))])
    found = list(tb.open_records(path, schema=SCHEMA, follow=Follow(poll=0.0001, stop=looks)))
    assert found == [{"x": 0}, {"x": 1}, {"x": 2}]


def test_what_tensorflow_flushes_is_followed(tmp_path):
    (one,) = tb.open_records(written_path(tmp_path / "one", 1)).payloads()
    path = tmp_path / "x"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.flush()
        looks = Looks(*[lambda: (writer.write(one), writer.flush())] * 5)
        found = list(tb.open_records(path, schema=SCHEMA, follow=Follow(poll=0.0001, stop=looks)))
    assert found == [{"x": 0}] * 5


def test_a_tail_that_stays_torn_is_told_of_and_can_be_taken_up_later(tmp_path):
    data, path = written(tmp_path / "whole", 3), tmp_path / "x"
    path.write_bytes(data[:-5])
    records = tb.open_records(path, schema=SCHEMA, follow=Follow(poll=0.001, timeout=0.0))
    with pytest.warns(TornTailWarning, match=f"it starts at byte {len(data) // 3 * 2}"):
        assert [row["x"] for row in records] == [0, 1]
    append(path, data[-5:])
    later = tb.open_records(path, schema=SCHEMA, offset=records.tell(), follow=Follow(poll=0.001, timeout=0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [row["x"] for row in later] == [2]


def test_damage_is_damage_all_the_same(tmp_path):
    data, path = bytearray(written(tmp_path / "whole", 3)), tmp_path / "x"
    size = len(data) // 3
    for at in (size + 2, size + 14):  # the length, the payload of record 1
        broken = data.copy()
        broken[at] ^= 1
        for follow in (Follow(poll=0.001), Follow(poll=0.001, timeout=0.0), Follow(poll=0.001, stop=lambda: True)):
            path.write_bytes(broken)
            rows = iter(tb.open_records(path, schema=SCHEMA, follow=follow))
            assert next(rows) == {"x": 0}
            with pytest.raises(CorruptError, match="record 1") as caught:
                next(rows)
            assert caught.value.at == size


def test_what_a_file_system_shows_before_it_is_written_is_looked_at_again(tmp_path):
    data, path = written(tmp_path / "whole", 2), tmp_path / "x"
    size = len(data) // 2
    path.write_bytes(data[:size] + bytes(size))  # zeros, where the second will be
    looks = Looks(lambda: None, lambda: path.write_bytes(data), lambda: None)
    rows = tb.open_records(path, schema=SCHEMA, follow=Follow(poll=0.001, stop=looks))
    assert [row["x"] for row in rows] == [0, 1]


def replaced(path, data):
    other = path.with_name("other")
    other.write_bytes(data)
    os.replace(other, path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda path, data: path.write_bytes(data[:10]), "became shorter: 10 bytes"),
        (replaced, "another file took its place"),
        (lambda path, data: path.unlink(), "was removed"),
        (lambda path, data: path.write_bytes(bytes(len(data)) + data), "is not what was read there"),
    ],
)
def test_a_file_that_is_cut_or_replaced_is_an_error(tmp_path, change, match):
    path = tmp_path / "x"
    data = written(path, 2)
    looks = Looks(lambda: None, lambda: change(path, data), lambda: None, lambda: None)
    rows = iter(tb.open_records(path, schema=SCHEMA, follow=Follow(poll=0.001, stop=looks)))
    assert [next(rows)["x"] for _ in range(2)] == [0, 1]
    with pytest.raises(CorruptError, match=match) as caught:
        next(rows)
    assert caught.value.at == len(data)


def test_a_record_larger_than_a_block_and_many_small_ones(tmp_path):
    path, schema = tmp_path / "x", {"x": ("int64", [None])}
    with tb.RecordWriter(path, schema=schema) as writer:
        for size in (1, 300_000, 2):
            writer.write({"x": [1 << 60] * size})
        for _ in range(20_000):
            writer.write({"x": [1]})
    records = tb.open_records(path, schema=schema, follow=Follow(timeout=0.0))
    lengths = [len(row) for batch in records.batches(65536) for row in batch["x"].rows()]
    assert lengths == [1, 300_000, 2] + [1] * 20_000
    assert records.tell() == path.stat().st_size


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_are_refused(tmp_path, compression):
    path = tmp_path / "x"
    with tb.RecordWriter(path, compression=compression) as writer:
        writer.write({"x": 1})
    for options in ({"follow": True}, {"offset": 5}):
        with pytest.raises(UsageError, match=f"this one is {compression}"):
            tb.open_records(path, **options)
    data = path.read_bytes()
    path.write_bytes(b"")
    looks = Looks(lambda: path.write_bytes(data), lambda: None)
    with pytest.raises(UsageError, match=f"this one is {compression}"):
        list(tb.open_records(path, schema=SCHEMA, follow=Follow(poll=0.001, stop=looks)))


def test_what_can_not_be_followed_is_refused(tmp_path):
    path = tmp_path / "x"
    written(path, 1)
    with pytest.raises(UsageError, match="follow is for one file"):
        tb.open_records([path, path], follow=True)
    with open(path, "rb") as file, pytest.raises(UsageError, match="offset is for one file"):
        tb.open_records(file, offset=3)
    with pytest.raises(UsageError, match="on_corrupt='skip'"):
        tb.open_records(path, follow=True, on_corrupt="skip")
    for wrong in ({"poll": 0}, {"stop": 3}, {"timeout": -1}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Follow(**wrong)
    with pytest.raises(UsageError, match="follow='yes'"):
        tb.open_records(path, follow="yes")


def test_ctrl_c_ends_the_wait(tmp_path):
    path = tmp_path / "x"
    written(path, 1)
    code = """
import signal, sys
import tensorbytes as tb
signal.signal(signal.SIGINT, signal.default_int_handler)  # where this suite was started in the background
try:
    for row in tb.open_records(sys.argv[1], schema={"x": "int64"}, follow=tb.records.Follow(poll=60)):
        print(row["x"], flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"  # long before the next look at the file


# ---- offsets ---------------------------------------------------------------------


def test_reading_goes_on_where_it_was_left(tmp_path):
    path = tmp_path / "x"
    size = len(written(path, 100)) // 100
    records = tb.open_records(path, schema=SCHEMA)
    assert records.tell() == 0
    for number, row in enumerate(records):
        assert row["x"] == number
        assert records.tell() == (number + 1) * size
    assert [row["x"] for row in tb.open_records(path, schema=SCHEMA, offset=40 * size)] == list(range(40, 100))
    ends = []
    for _ in records.batches(30):
        ends.append(records.tell())
    assert ends == [30 * size, 60 * size, 90 * size, 100 * size]
    for _ in zip(range(7), records.payloads(), strict=False):
        pass
    assert records.tell() in (7 * size, 8 * size)  # zip took one more
    next(iter(records))
    assert records.tell() == size
    later = tb.open_records(path, offset=98 * size)
    assert later.tell() == 98 * size
    assert (len(later), later[1]["x"], later[[0]]["x"].tolist()) == (2, 99, [98])
    again = pickle.loads(pickle.dumps(later))
    assert [row["x"] for row in again] == [98, 99]
    assert list(tb.open_records(path, schema=SCHEMA, offset=100 * size)) == []
    assert type(records.tell()) is int


def test_tell_is_exact_where_records_are_of_an_odd_form(tmp_path):
    """Which the general parser rewrites: it is the file's bytes that count."""
    path = tmp_path / "x"
    one = tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(
        int64_list=tf.train.Int64List(value=[5]))})).SerializeToString()  # fmt: skip
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in (one, one + one, one):
            writer.write(record)
    records = tb.open_records(path, schema=SCHEMA)
    ends = [records.tell() for _ in records]
    assert ends == [len(one) + 16, 3 * len(one) + 32, 4 * len(one) + 48]
    for number, end in enumerate(ends, 1):
        assert len(list(tb.open_records(path, schema=SCHEMA, offset=end))) == 3 - number


def test_an_offset_inside_a_record_is_an_error_that_names_the_nearest(tmp_path):
    path, sizes = tmp_path / "x", [5, 2000, 1, 300]
    with tb.RecordWriter(path, schema={"x": "bytes"}) as writer:
        for size in sizes:
            writer.write({"x": bytes(size)})
    starts = [0]
    records = tb.open_records(path)
    starts += [records.tell() for _ in records]
    for offset in [*range(1, 60), *range(1900, starts[-1] - 12)]:
        if offset in starts:
            continue
        near = min(starts, key=lambda start: (abs(start - offset), start))
        other = min(starts, key=lambda start: (abs(start - offset), -start))
        with pytest.raises(UsageError, match=f"no record starts at byte {offset}") as caught:
            tb.open_records(path, offset=offset)
        assert any(f"starts at byte {place}" in str(caught.value) for place in (near, other))
    for wrong, match in ((starts[-1] + 1, "the file has"), (-1, "0 or more"), (1.5, "0 or more"), (True, "0 or more")):
        with pytest.raises(UsageError, match=match):
            tb.open_records(path, offset=wrong)


def test_an_offset_of_a_url(tmp_path):
    import fsspec

    data = written(tmp_path / "x", 5)
    with fsspec.open("memory://test_follow/x", "wb") as file:
        file.write(data)
    found = tb.open_records("memory://test_follow/x", schema=SCHEMA, offset=len(data) // 5 * 3)
    assert [row["x"] for row in found] == [3, 4]
    with pytest.raises(UsageError, match="no record starts at byte 7"):
        tb.open_records("memory://test_follow/x", schema=SCHEMA, offset=7)
    with pytest.raises(UsageError, match="only a local file is followed"):
        tb.open_records("memory://test_follow/x", schema=SCHEMA, follow=True)


def test_tell_is_for_one_plain_file(tmp_path):
    written(tmp_path / "a", 2)
    with pytest.raises(UsageError, match="one uncompressed file"):
        tb.open_records([tmp_path / "a", tmp_path / "a"]).tell()
    with tb.RecordWriter(tmp_path / "b", compression="gzip") as writer:
        writer.write({"x": 1})
    records = tb.open_records(tmp_path / "b")
    list(records)
    with pytest.raises(UsageError, match="one uncompressed file"):
        records.tell()


@pytest.mark.parametrize("how", ["rows", "messages", "payloads", "batches", "arrow"])
def test_tell_is_exact_for_records_of_bytes(tmp_path, how):
    """However they are read: whoever goes on from there gets no record twice, and misses none."""
    path = tmp_path / "x"
    values = [f"value {number}" * number for number in range(6)]
    with tb.RecordWriter(path) as writer:
        for value in values:
            writer.write_raw(StringValue(value=value).SerializeToString() + b"\x48\x01")
    records = tb.open_records(path, message=StringValue if how == "messages" else None)
    passes = {"payloads": records.payloads, "batches": lambda: records.batches(1), "arrow": lambda: records.to_arrow(1)}
    given = 0
    for _ in passes.get(how, lambda: records)():
        given += 1
        rest = tb.open_records(path, message=StringValue, offset=records.tell())
        assert [message.value for message in rest] == values[given:]
    assert given == len(values)


def test_tell_of_examples_as_arrow(tmp_path):
    written(tmp_path / "x", 5)
    records = tb.open_records(tmp_path / "x", schema=SCHEMA)
    assert records.to_arrow(2).read_next_batch().num_rows == 2
    assert len(list(tb.open_records(tmp_path / "x", schema=SCHEMA, offset=records.tell()))) == 3


def test_tell_stands_while_the_schema_is_looked_for(tmp_path):
    written(tmp_path / "x", 3)
    records = tb.open_records(tmp_path / "x", follow=Follow(timeout=0))
    payloads = iter(records.payloads())
    next(payloads)
    place = records.tell()
    assert records.schema
    assert records.tell() == place > 0


@pytest.mark.parametrize(
    "how", [{"poll": "1"}, {"poll": None}, {"poll": True}, {"poll": float("inf")}, {"timeout": "1"}]
)
def test_seconds_are_numbers(how):
    with pytest.raises(UsageError, match="expected seconds"):
        Follow(**how)
