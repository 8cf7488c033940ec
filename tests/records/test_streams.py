"""Damage found on the way, and reading from what is not a plain file: pipes, sockets, file objects of any kind."""

import gc
import io
import os
import socket
import threading
from itertools import islice
from pathlib import Path

import pytest

from tensorbytes import errors, open_records
from tensorbytes.errors import DamageWarning, Limits
from tensorbytes.formats.tfrecord.files.memory import Memory
from tests.support.record_cases import by_hand, expected, plain_batches, plain_rows, stream, write
from tests.support.record_cases import example as made
from tests.support.streams import Onwards
from tests.support.wire_bytes import framed, masked_crc

SCHEMA = {"i": "int64"}


def payloads_of(count):
    return [made(i=[i], s=[b"x" * (i % 5)]) for i in range(count)]


def read(target, **options):
    """(the numbers of the rows that came, the error that followed or None)"""
    file = io.BytesIO(target) if isinstance(target, bytes) else target
    got, records = [], open_records(file, schema=SCHEMA, **options)
    rows = iter(records)
    while True:
        try:
            got.append(int(next(rows)["i"]))
        except StopIteration:
            return got, None
        except errors.CorruptError as error:
            return got, error


# ---- damage ----------------------------------------------------------------------------


def test_every_flip_in_a_small_file_is_detected_and_located():
    payloads = payloads_of(4)
    data = by_hand(payloads)
    starts = [len(by_hand(payloads[:n])) for n in range(5)]
    for at in range(len(data)):
        number = max(n for n in range(4) if starts[n] <= at)
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        _, error = read(bytes(flipped))
        part = "header" if at - starts[number] < 12 else "record"
        assert error is not None, at
        assert error.path == "<BytesIO>"
        assert error.at == starts[number], at
        assert f"record {number} " in str(error), at
        assert str(error).startswith(f"<BytesIO>: {'the header of' if part == 'header' else 'record'}"), error


def test_every_cut_of_a_small_file_is_detected_and_located():
    payloads = payloads_of(4)
    data = by_hand(payloads)
    starts = [len(by_hand(payloads[:n])) for n in range(5)]
    for end in range(len(data)):
        number = max(n for n in range(4) if starts[n] <= end)
        got, error = read(data[:end])
        if end in starts:
            assert (got, error) == (list(range(number)), None)
            continue
        where = "the header of record" if end - starts[number] < 12 else "inside record"
        assert where in str(error), end
        assert f"record {number}" in str(error), end
        assert error.at == starts[number], end


@pytest.mark.parametrize("place", ["header", "payload", "checksum", "cut"])
def test_rows_before_the_damage_come_first(place):
    payloads = payloads_of(6)
    start = len(by_hand(payloads[:4]))
    data = bytearray(by_hand(payloads))
    if place == "cut":
        del data[start + 14 :]
    else:
        data[start + {"header": 3, "payload": 15, "checksum": 12 + len(payloads[4])}[place]] ^= 4
    got, error = read(bytes(data))
    assert got == [0, 1, 2, 3]
    assert error.at == start


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_before_the_damage_come_first(tmp_path, threads):
    payloads = [made(i=[i], s=[bytes(1 << 20)]) for i in range(20)]
    start = len(by_hand(payloads[:17]))
    data = bytearray(by_hand(payloads))
    data[start + 1000] ^= 1
    path = tmp_path / "x"
    path.write_bytes(data)
    got, error = read(path, threads=threads)
    assert got == list(range(len(got)))
    assert len(got) >= 12
    assert "record 17 is damaged" in str(error)
    assert (error.at, error.path) == (start, str(path))


def test_damage_is_told_before_a_schema_is_guessed_from_it():
    data = bytearray(by_hand(payloads_of(3)))
    data[14] ^= 0xFF
    with pytest.raises(errors.CorruptError, match=r"record 0 is damaged: its .* bytes and their checksum disagree"):
        list(open_records(io.BytesIO(bytes(data))))


def test_checksums_of_payloads_can_be_left_out():
    payloads = payloads_of(3)
    data = bytearray(by_hand(payloads))
    data[len(by_hand(payloads[:2])) - 1] ^= 1  # of the checksum itself
    assert read(bytes(data), verify=False) == ([0, 1, 2], None)
    assert read(bytes(data))[1] is not None
    data[0] ^= 1  # headers are checked all the same: nothing could be read without
    assert read(bytes(data), verify=False)[1] is not None
    with pytest.raises(errors.UsageError, match="which verify=False leaves out"):
        open_records(io.BytesIO(), verify=False, on_corrupt="skip")


def test_a_record_that_is_longer_than_its_file(tmp_path):
    length = (1 << 40).to_bytes(8, "little")
    header = length + masked_crc(length)
    path = tmp_path / "x"
    for more in (100, 9 << 20):  # of one block and of several
        path.write_bytes(by_hand(payloads_of(2)) + header + bytes(more))
        with pytest.raises(
            errors.CorruptError, match=f"ends inside record 2, which should have {1 << 40} bytes"
        ) as caught:
            for _ in open_records(path, schema=SCHEMA):
                pass
        assert caught.value.at == len(by_hand(payloads_of(2)))
    for more in (100, 9 << 20):
        with pytest.raises(errors.CorruptError, match="ends inside record 0"):
            next(iter(open_records(io.BytesIO(header + bytes(more)), schema=SCHEMA)))
    with pytest.raises(errors.LimitError, match=rf"a record of {(1 << 40) + 16} bytes, .*\(record 0, byte 0\)"):
        next(iter(open_records(Onwards(header + bytes(9 << 20)), schema=SCHEMA)))


def test_streams_are_held_to_the_limit():
    big = framed(made(i=[1], s=[bytes(9 << 20)]))
    for stream_of in (io.BytesIO, Onwards):
        assert [int(row["i"]) for row in open_records(stream_of(big), schema=SCHEMA)] == [1]
    with pytest.raises(
        errors.LimitError, match=r"a record of .* bytes, over the limit of 1048576 \(record 0, byte 0\)"
    ):
        list(open_records(Onwards(big), schema=SCHEMA, limits=Limits(max_bytes=1 << 20)))


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        b"too short",
        bytes(100),
    ],
    ids=["PNG", "LFS", "short", "zeros"],
)
def test_what_is_no_record_file_is_said_to_be_none(tmp_path, data):
    path = tmp_path / "x"
    path.write_bytes(data)
    question = r"\(byte 0\); is this a TFRecord file, in this compression\?$"
    for use in (list, len):
        with pytest.raises(errors.CorruptError, match=question) as caught:
            use(open_records(path))
        assert "repair" not in str(caught.value)
    _, error = read(by_hand(payloads_of(2)) + data)
    assert "TFRecord file" not in str(error)
    assert "repair(src, dst)" in str(error)


def test_skipping_damage_keeps_no_block_alive(tmp_path):
    """Memory is bounded whatever the size of the file."""
    import tracemalloc

    path = write(tmp_path / "x", [made(i=[i], s=[bytes(1 << 20)]) for i in range(32)])
    tracemalloc.start()
    try:
        count = sum(1 for _ in open_records(path, schema=SCHEMA, on_corrupt="skip", threads=1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 32
    assert peak < 20 << 20


def test_a_list_of_all_rows_skips_damage_too(tmp_path):
    """list() asks for a length first; that must not be where damage is met."""
    data = bytearray(by_hand(payloads_of(5)))
    data[len(by_hand(payloads_of(2))) + 3] ^= 1  # a header
    (tmp_path / "x").write_bytes(data)
    with pytest.warns(DamageWarning):
        rows = list(open_records(tmp_path / "x", schema=SCHEMA, on_corrupt="skip"))
    assert [int(row["i"]) for row in rows] in ([0, 1, 3, 4], [0, 1, 2, 3, 4])


# ---- streams ----------------------------------------------------------------------------


class OneByOne:
    """The least that a stream can be."""

    def __init__(self, data, size=1):
        self.file, self.size = io.BytesIO(data), size

    def read(self, count=-1):
        return self.file.read(min(count, self.size) if count >= 0 else self.size)


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_streams_that_give_few_bytes_at_a_time(tmp_path, size, compression):
    payloads = payloads_of(60)
    data = Path(write(tmp_path / "x", payloads, compression)).read_bytes()
    assert plain_rows(open_records(OneByOne(data, size))) == expected(payloads)
    assert plain_batches(open_records(OneByOne(data, size)), 7) == expected(payloads)


def send(sink, data):
    with sink:
        sink.sendall(data) if isinstance(sink, socket.socket) else sink.write(data)


@pytest.mark.parametrize("kind", ["pipe", "unbuffered pipe", "socket"])
def test_pipes_and_sockets(kind):
    payloads = [made(i=[i], s=[bytes(300_000)]) for i in range(40)]  # several blocks
    if kind == "socket":
        sink, source = socket.socketpair()
        file = source.makefile("rb")
        source.close()
    else:
        ends = os.pipe()
        sink = os.fdopen(ends[1], "wb")
        file = os.fdopen(ends[0], "rb", buffering=0 if kind.startswith("un") else -1)
    sender = threading.Thread(target=send, args=(sink, by_hand(payloads)))
    sender.start()
    with file:
        assert [int(row["i"]) for row in open_records(file, schema=SCHEMA)] == list(range(40))
    sender.join()


def test_a_named_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    payloads = payloads_of(10)
    sender = threading.Thread(target=lambda: path.write_bytes(by_hand(payloads)))
    sender.start()
    rows = list(open_records(path, schema=SCHEMA))  # which asks for the length first
    assert [int(row["i"]) for row in rows] == list(range(10))
    sender.join()
    with pytest.raises(errors.UsageError, match="can't seek has no length"):
        len(open_records(path))


def test_a_text_file_is_refused(tmp_path):
    (tmp_path / "x").write_text("abc")
    with open(tmp_path / "x") as file, pytest.raises(errors.UsageError, match="binary mode"):
        list(open_records(file))


def test_the_schema_of_a_stream_is_known_before_it_is_read():
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as sink:
        sink.write(by_hand(payloads_of(3)))
    with os.fdopen(read_end, "rb") as file:
        records = open_records(file)
        assert [*records.schema] == ["i", "s"]
        assert len(list(records)) == 3
        assert [*records.schema] == ["i", "s"]
        with pytest.raises(errors.UsageError, match="it was read already"):
            list(records)


# ---- iterating ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    payloads = [made(i=[i], s=[bytes(1 << 18)]) for i in range(40)]
    folder = tmp_path_factory.mktemp("large")
    return {name: write(folder / name, payloads, name) for name in ("none", "gzip")}


def ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tensorbytes")]


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("what", ["rows", "batches", "payloads", "arrow"])
def test_stopping_early_leaves_no_threads_and_no_files(large, compression, what):
    records = open_records(large[compression], schema=SCHEMA, threads=2)
    gc.collect()  # what earlier tests left open
    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    found = {
        "rows": lambda: iter(records),
        "batches": lambda: records.batches(3),
        "payloads": records.payloads,
        "arrow": lambda: iter(records.to_arrow(3)),
    }[what]()
    assert len(list(islice(found, 2))) == 2
    if hasattr(found, "close"):
        found.close()
    del found
    gc.collect()
    assert ours() == []
    if opened:
        assert len(os.listdir("/proc/self/fd")) <= opened


def test_errors_leave_no_threads(large):
    records = open_records(large["gzip"], schema={"i": "bytes"}, threads=2)
    with pytest.raises(errors.SchemaError):
        list(records)
    gc.collect()
    assert ours() == []


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_iterating_twice_and_two_at_once(large, compression):
    records = open_records(large[compression], schema=SCHEMA, threads=2)
    first, second = iter(records), iter(records)
    pairs = [(int(next(first)["i"]), int(next(second)["i"])) for _ in range(40)]
    assert pairs == [(i, i) for i in range(40)]
    assert next(first, None) is next(second, None) is None
    assert [len(batch["i"]) for batch in records.batches(16)] == [16, 16, 8]


def test_a_file_object_is_read_from_the_same_place_each_time():
    file = io.BytesIO(b"before" + by_hand(payloads_of(5)))
    file.seek(6)
    records = open_records(file, schema=SCHEMA)
    assert [int(row["i"]) for row in records] == list(range(5))
    assert [int(row["i"]) for row in records] == list(range(5))


def test_a_stream_that_was_read_is_not_taken_for_an_empty_one():
    records = open_records(OneByOne(by_hand(payloads_of(5)), 4096), schema=SCHEMA)
    assert len(list(records)) == 5
    with pytest.raises(errors.UsageError):
        list(records)


def test_two_iterations_over_one_file_object_are_not_mixed_up():
    payloads = [made(i=[i], s=[bytes(1 << 20)]) for i in range(12)]
    records = open_records(stream(payloads), schema=SCHEMA, threads=1)
    first = iter(records)
    next(first)
    next(iter(records))
    with pytest.raises(errors.UsageError):
        for _ in first:
            pass


@pytest.mark.parametrize(
    ("size", "count", "kept"), [(1 << 20, 1, 1), (1 << 20, 3, 1), (1 << 18, 9, 4), ((1 << 20) + 1, 1, 0)]
)
def test_memory_that_is_kept_for_later_has_a_limit(size, count, kept):
    import tracemalloc

    memory = Memory(1 << 20)
    tracemalloc.start()
    try:
        arrays = [memory.array(size) for _ in range(count)]
        arrays.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept * size <= held < kept * size + (1 << 16)


@pytest.mark.parametrize("to", ["numpy", "tensor", "torch", "arrow"])
def test_what_was_read_does_not_change_when_reading_goes_on(tmp_path, to):
    """Memory is used again, but never while anything made of it is alive, be it a part of a part."""
    count, wide = 300, 3000
    payloads = [
        made(i=[i], f=[float(i)] * wide, v=[i] * (wide + i % 3), s=[bytes([i % 256]) * wide]) for i in range(count)
    ]
    path = write(tmp_path / "x", payloads)
    assert os.path.getsize(path) > 5 << 20
    schema = {"i": "int64", "f": ("float32", [wide]), "v": ("int64", [None]), "s": "bytes"}
    records = open_records(path, schema=schema, threads=2, **({} if to == "arrow" else {"to": to}))
    kept = []
    if to == "arrow":
        pytest.importorskip("pyarrow")
        for batch in records.to_arrow(20):
            kept += [(batch.column("f")[n], batch.column("v")[n], batch.column("s")[n]) for n in range(batch.num_rows)]
        kept = [(f.values.to_numpy(), v.values.to_numpy(), s.as_py()) for f, v, s in kept]
    else:
        for batch in records.batches(20):
            f, v, s = (batch[name] for name in "fvs")
            f = f.numpy() if to != "numpy" else f
            v = [row.numpy() for row in v.unbind()] if to == "torch" else v.rows()
            s = s.tolist() if to == "torch" else s.items()
            kept += zip([row[5:] for row in f], [row[::2] for row in v], s, strict=True)
            del batch, f, v, s
    assert len(kept) == count
    for i, (f, v, s) in enumerate(kept):
        assert set(f.tolist()) == {float(i)}
        assert set(v.tolist()) == {i}
        assert s == bytes([i % 256]) * wide


def test_an_iteration_that_ends_gives_the_same_rows_in_any_number_of_threads(large):
    for threads in (1, 3, 8):
        assert [int(row["i"]) for row in open_records(large["none"], schema=SCHEMA, threads=threads)] == list(range(40))
