"""Append cuts off what is provably an unfinished last write, and keeps it beside the file (catalogue 147 on, 200 on).

Damage anywhere else is CorruptError, and nothing is touched. One rule judges every case here: each byte that was
there is still in the file or in what was cut off, and no record that is as it was is in what was cut off.
"""

import gzip
import io
import os
import struct
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes._wire import frame_header, varint
from tensorbytes.formats.tfrecord.write import tail
from tensorbytes.io import storage
from tensorbytes.io.streams import snappy
from tests.support.appended_files import (
    CUT,
    GZIP,
    KINDS,
    PLAIN,
    SNAPPY,
    STREAM,
    attempt,
    check,
    flipped,
    kinds,
    record,
    sample,
    zeroed,
)
from tests.support.work import check_linear

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")

# Of a record that was not finished: its header is whole, its data are not.
TORN_BYTES = 14


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "files"
    made.mkdir()
    return made


# ---- bits, zeros, cuts --------------------------------------------------------


def flips(found, folder, bits):
    """How many flips were refused, and how many cut something off."""
    refused = cut = 0
    for bit in bits:
        damaged = flipped(found.data, bit)
        tried = check(found, damaged, folder)
        refused += bool(tried.refused)
        cut += tried.kept < len(damaged)
    return refused, cut


@kinds
def test_147_a_flipped_bit(kind, tmp_path, folder):
    """A2: of 4,215 flips in the first half of a stream, 3,480 had truncated it."""
    found = sample(kind, tmp_path)
    refused, _ = flips(found, folder, range(0, 8 * len(found.data), 37))
    assert refused > 0


@pytest.mark.deep
@pytest.mark.timeout(1200)
@kinds
def test_147_every_flipped_bit(kind, tmp_path, folder):
    found = sample(kind, tmp_path)
    refused, _ = flips(found, folder, range(8 * len(found.data)))
    assert refused > 0


def test_147_the_flip_that_emptied_a_stream(tmp_path, folder):
    """Byte 139 of a stream of 20 small arrays: it had become 0 bytes."""
    path = tmp_path / "x.tb"
    with tb.open(path, "w") as writer:
        for number in range(20):
            writer.write(np.arange(number, number + 4))
    damaged = flipped(path.read_bytes(), 8 * 139)
    path.write_bytes(damaged)
    with pytest.raises(tb.errors.CorruptError, match="repair"):
        tb.open(path, "a")
    assert path.read_bytes() == damaged
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["x.tb"]


@kinds
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.deep)])
def test_147_a_run_of_zeros(kind, step, tmp_path, folder):
    found = sample(kind, tmp_path)
    for size in (1, 4, 12, 16, 64, len(found.data)):
        for start in range(0, len(found.data), step):
            check(found, zeroed(found.data, start, start + size), folder)


def test_147_many_headers_are_searched_once(tmp_path, monkeypatch):
    """Each is sound, and claims more than there is: the search must not begin anew at each of them."""
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, sidecar=False) as writer:
        writer.write(record(1))
    with open(path, "ab") as file:
        file.write(frame_header(1 << 60) * (100_000 if tb.ACCELERATED else 500))
    size, taken, read_at = path.stat().st_size, [0], storage.read_at

    def counted(file, room, at):
        taken[0] += len(room)
        read_at(file, room, at)

    monkeypatch.setattr(storage, "read_at", counted)
    with pytest.warns(tb.errors.TornTailWarning):
        tb.RecordWriter(path, mode="a", sidecar=False).close()
    assert size < taken[0] < 8 * size


@kinds
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.deep)])
def test_148_a_write_that_was_not_finished(kind, step, tmp_path, folder):
    """The end of the file is missing: cut after the last whole record, kept, and appended to."""
    found = sample(kind, tmp_path)
    starts = [start for start, _ in found.spans]
    for size in range(0, len(found.data) + 1, step):
        tried = check(found, found.data[:size], folder)
        if size in (*starts, len(found.data)):
            assert (tried.refused, tried.kept) == ("", size)
        elif not tried.refused:
            assert tried.kept == max(start for start in starts if start <= size)
            number = starts.index(tried.kept)
            assert kind.read(kind.file(folder)) == [*range(number), 999_999]


@kinds
def test_148_most_unfinished_writes_need_no_repair(kind, tmp_path, folder):
    """Where the header of the last record is there, the rest is proof enough."""
    found = sample(kind, tmp_path)
    for start, _ in found.spans[1:]:
        tried = check(found, found.data[: start + TORN_BYTES], folder)
        assert (tried.refused, tried.kept) == ("", start)


@kinds
def test_148_zeros_after_the_last_record(kind, tmp_path, folder):
    """What file systems leave after a power cut."""
    found = sample(kind, tmp_path)
    for size in (1, 15, 16, 4096, 3 << 20):
        tried = check(found, found.data + bytes(size), folder)
        assert (tried.refused, tried.kept) == ("", len(found.data))


@kinds
def test_148_what_is_cut_off_is_kept_under_a_free_name(kind, tmp_path):
    found = sample(kind, tmp_path)
    path = kind.file(tmp_path)
    path.write_bytes(found.data)
    precious = tmp_path / f"{path.name}{CUT}1"
    precious.write_bytes(b"of an earlier cut")
    start, _ = found.spans[-1]
    for number in (2, 3):
        torn = found.data[start : start + TORN_BYTES]
        path.write_bytes(found.data[:start] + torn)
        kept = tmp_path / f"{path.name}{CUT}{number}"
        with pytest.warns(tb.errors.TornTailWarning, match=kept.name):
            kind.write(path, [7], "a")
        assert kept.read_bytes() == torn
    assert precious.read_bytes() == b"of an earlier cut"


@kinds
def test_148_what_is_cut_off_follows_no_planted_link(kind, tmp_path):
    found = sample(kind, tmp_path)
    victim, home = tmp_path / "victim", tmp_path / "home"
    victim.write_bytes(b"precious")
    home.mkdir()
    path = kind.file(home)
    for number in (1, 2):
        os.symlink(victim, f"{path}{CUT}{number}")
    start, _ = found.spans[-1]
    path.write_bytes(found.data[: start + TORN_BYTES])
    with pytest.warns(tb.errors.TornTailWarning):
        kind.write(path, [7], "a")
    assert victim.read_bytes() == b"precious"
    assert (home / f"{path.name}{CUT}3").read_bytes() == found.data[start : start + TORN_BYTES]


@kinds
def test_148_where_nothing_can_be_kept_nothing_is_cut(kind, tmp_path):
    """No room for what would be cut off: an error, and the file as it was."""
    resource = pytest.importorskip("resource")
    path = kind.file(tmp_path)
    kind.write(path, range(3))
    good = path.stat().st_size
    with kind.open(path, "a") as writer:
        writer.write(large(3, 40_000))
    torn = path.read_bytes()[:-100_000]
    path.write_bytes(torn)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, before[1]))
    try:
        with pytest.raises((OSError, tb.errors.TensorbytesError)):
            kind.open(path, "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == torn
    assert left_behind(tmp_path, path) == []
    with pytest.warns(tb.errors.TornTailWarning, match=f"{path.name}{CUT}1"):
        kind.write(path, [3], "a")
    assert (tmp_path / f"{path.name}{CUT}1").read_bytes() == torn[good:]


# ---- headers and blocks that lie --------------------------------------------------


@pytest.mark.parametrize("kind", [STREAM, PLAIN], ids=lambda kind: kind.name)
@pytest.mark.parametrize("claim", [1 << 12, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_147_a_sound_header_that_claims_more_than_there_is(kind, claim, tmp_path, folder):
    """A2: `RecordWriter` had cut 10,000 records. Only of the last record is it an unfinished write."""
    found = sample(kind, tmp_path)
    for number, (start, _) in enumerate(found.spans):
        lying = found.data[:start] + frame_header(claim) + found.data[start + 12 :]
        tried = check(found, lying, folder)
        if number < len(found.spans) - 1:
            assert tried.refused.startswith("CorruptError"), tried


@pytest.mark.parametrize("kind", [STREAM, PLAIN], ids=lambda kind: kind.name)
@pytest.mark.parametrize("gap", [5 << 20, pytest.param((1 << 30) + 5, marks=pytest.mark.deep)])
def test_147_sound_records_a_long_way_after_the_damage(kind, gap, tmp_path):
    """Not in the next megabyte and not in the next gigabyte may anything sound follow what is cut off."""
    found = sample(kind, tmp_path)
    path = kind.file(tmp_path)
    with path.open("wb") as file:
        file.write(found.data + frame_header(1 << 50))
        file.seek(gap, os.SEEK_CUR)  # a hole
        file.write(found.data)
    size = path.stat().st_size
    with pytest.raises(tb.errors.CorruptError):
        kind.open(path, "a")
    assert path.stat().st_size == size
    assert not [entry.name for entry in tmp_path.iterdir() if CUT in entry.name]


@pytest.mark.parametrize("size", [1, 4, 11, 12, 40])
def test_147_bytes_that_nobody_wrote_before_sound_records(size, tmp_path, folder):
    for kind in KINDS:
        found = sample(kind, tmp_path)
        for filler in (bytes(size), b"\xff" * size, b"text " * size):
            path = kind.file(folder)
            middle = found.spans[3][0]
            damaged = found.data[:middle] + filler[:size] + found.data[middle:]
            path.write_bytes(damaged)
            tried = attempt(kind, path)
            assert tried.kept == len(damaged)
            for entry in folder.iterdir():
                entry.unlink()


def test_147_gzip_with_a_damaged_member_in_the_middle(tmp_path, folder):
    found = sample(GZIP, tmp_path)
    for number in range(len(found.spans) - 1):
        start, end = found.spans[number]
        for damaged in (
            found.data[: start + 3] + b"\xff" + found.data[start + 4 :],
            found.data[: end - 8] + bytes(8) + found.data[end:],  # its checksum and size
            found.data[:start] + found.data[end - 5 :],  # its end only
            found.data[: end - 1] + found.data[end:],  # a byte less
        ):
            assert check(found, damaged, folder).refused, number


def test_147_gzip_of_one_long_member(tmp_path):
    """Records of others stand in one member: when it is cut, whole records are in it, and none is given up."""
    found = sample(PLAIN, tmp_path)
    path = GZIP.file(tmp_path)
    data = gzip.compress(found.data * 50)
    for size in (len(data) - 1, len(data) - 9, len(data) // 2):
        path.write_bytes(data[:size])
        tried = attempt(GZIP, path)
        assert tried.refused.startswith("CorruptError")


@pytest.mark.parametrize("size", [0, 1, 5, 1000, 1 << 20, (1 << 32) - 1])
def test_147_snappy_with_a_wrong_size_of_a_block(size, tmp_path, folder):
    """A2: a block that claims more than the file has was taken for the last one."""
    found = sample(SNAPPY, tmp_path)
    for number in range(len(found.spans) - 1):
        start, _ = found.spans[number]
        damaged = found.data[:start] + struct.pack(">I", size) + found.data[start + 4 :]
        assert check(found, damaged, folder).refused, number


def blocks_of(path, count, rows=100):
    """The bytes of a snappy file of some blocks, with `rows` records in each, and where the blocks start."""
    starts = []
    for _ in range(count):
        starts.append(path.stat().st_size if path.exists() else 0)
        with tb.RecordWriter(path, mode="a", compression="snappy" if not path.exists() else None) as writer:
            for number in range(rows):
                writer.write(record(number))
    return path.read_bytes(), starts


@pytest.mark.parametrize("missing", [0, 1, 300])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_200_a_flipped_bit_in_the_length_of_a_snappy_block(count, missing, tmp_path):
    """A block that claimed more than there is was taken for an unfinished one: 100 sound records were cut off."""
    path = SNAPPY.file(tmp_path)
    data, starts = blocks_of(path, count)
    for start in starts:
        for bit in range(8 * start, 8 * start + 32):
            damaged = flipped(data, bit)[: len(data) - missing]
            path.write_bytes(damaged)
            tried = attempt(SNAPPY, path)
            assert "repair" in tried.refused, bit
            assert tried.kept == len(damaged)


def test_200_a_flipped_bit_in_a_snappy_block_inside_a_record(tmp_path):
    """None of these blocks but the first shows a header, and none holds a whole record."""
    path = SNAPPY.file(tmp_path)
    data, _ = blocks_of(path, 1)
    with tb.RecordWriter(path, mode="a") as writer:
        writer.write_raw(np.random.default_rng(1).bytes(900_000))
    good, data = len(data), path.read_bytes()
    start, blocks = good, 0
    while start < len(data):
        for bit in range(8 * start, 8 * start + 32):
            path.write_bytes(flipped(data, bit))
            tried = attempt(SNAPPY, path)
            assert "repair" in tried.refused, bit
            assert tried.kept == len(data)
        start, blocks = start + 4 + int.from_bytes(data[start : start + 4], "big"), blocks + 1
    assert blocks > 3
    path.write_bytes(data[:-300])
    assert attempt(SNAPPY, path) == ("", good)


def test_200_sound_snappy_blocks_behind_one_that_claims_too_much(tmp_path):
    """A claim that its content allows, since that is not all there either: what follows tells."""
    path = SNAPPY.file(tmp_path)
    with tb.RecordWriter(path, compression="snappy", sidecar=False) as writer:
        for number in range(3):
            writer.write_raw(np.random.default_rng(number).bytes(40_000))
            writer.flush()
    data = path.read_bytes()
    size = 4 + int.from_bytes(data[:4], "big")
    lying = struct.pack(">I", 200_000) + data[size + 4 : size + 20_000]
    for rest in (data[2 * size :], data[2 * size : -1], data[2 * size :][:100]):
        path.write_bytes(data[:size] + lying + rest)
        tried = attempt(SNAPPY, path)
        assert "repair" in tried.refused
        assert tried.kept == size + len(lying) + len(rest)


class Counted(io.FileIO):
    """Knows how much was read of it."""

    taken = 0

    def read(self, size=-1, /):
        data = super().read(size)
        self.taken += len(data)
        return data


def _spread(size):
    """The first three bytes of a varint, as far as the marks are not concerned, in a word of four."""
    return (size & 0x7F) << 24 | (size >> 7 & 0x7F) << 16 | (size >> 14 & 0x7F) << 8


def claims(path, count):
    """A sound block, then one that is cut; in it, every 8 bytes may be a block that ends where the file does."""
    with tb.RecordWriter(path, compression="snappy", sidecar=False) as writer:
        writer.write(record(1))
    sizes = range(8 * count - 4, 0, -8)
    places = b"".join(struct.pack(">II", size, 0x80808000 | _spread(size)) for size in sizes)
    cut = varint(16 * count) + b"\xfc" + struct.pack("<I", 16 * count) + frame_header(16 * count) + places
    with open(path, "ab") as file:
        file.write(struct.pack(">I", 17 * count) + cut)
    return Counted(path)


def test_205_many_places_that_may_be_snappy_blocks(tmp_path):
    """All of the rest was read for each of them: 10 seconds for a megabyte, 40 for two."""
    good = []

    def make(count):
        good.append(claims(tmp_path / f"{count}.tfrecord", count))
        return good[-1]

    check_linear(make, lambda file: tail.find(file, file.name, "snappy"), 2000)
    for file in good:
        with file:
            size = os.fstat(file.fileno()).st_size
            file.taken = 0
            assert tail.find(file, file.name, "snappy").records == 1
            assert size <= file.taken < 4 * size


def test_205_a_copy_in_a_snappy_block_costs_its_size(monkeypatch):
    """Not its distance."""
    taken = []

    class Plain(bytearray):
        def __getitem__(self, key):
            taken.append(len(found := super().__getitem__(key)))
            return found

    monkeypatch.setattr(snappy, "bytearray", Plain, raising=False)
    literal, copy = b"\xfc" + struct.pack("<I", 99_999) + bytes(100_000), b"\xff" + struct.pack("<I", 100_000)
    assert snappy.decode_start(literal + 100 * copy, 1 << 20) == bytes(106_400)
    assert sum(taken) < 2 * 106_400


@pytest.mark.parametrize("kind", [GZIP, SNAPPY], ids=lambda kind: kind.name)
def test_201_the_only_write_was_not_finished(kind, tmp_path, folder):
    """Nothing is whole, but the header of the first record shows whose file it is."""
    path = kind.file(tmp_path)
    with kind.open(path) as writer:
        writer.write(large(0, 5000))
    data = path.read_bytes()
    for size in (200, 1000, len(data) // 2, len(data) - 100):
        (made := kind.file(folder)).write_bytes(data[:size])
        assert attempt(kind, made) == ("", 0)
        for entry in folder.iterdir():
            entry.unlink()


@pytest.mark.parametrize("kind", [GZIP, SNAPPY], ids=lambda kind: kind.name)
def test_201_whole_records_in_a_part_that_is_cut_are_kept(kind, tmp_path):
    path = kind.file(tmp_path)
    with kind.open(path) as writer:
        for number in range(200):
            writer.write(large(number, 20))
    data = path.read_bytes()
    for size in (len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert "whole records in its last part would be lost" in attempt(kind, path).refused
    tb.repair(path, tmp_path / "repaired.tfrecord")
    assert len(list(tb.open_records(tmp_path / "repaired.tfrecord"))) >= 199


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("named", [False, True])
def test_202_flipped_flags_of_a_gzip_member(named, members, tmp_path):
    """zlib takes the data for a name then, and waits for its end: that was an unfinished write."""
    found = sample(PLAIN, tmp_path)
    path = GZIP.file(tmp_path)
    member = gzip.compress(found.data)
    if named:
        member = member[:3] + b"\x08" + member[4:10] + b"records\0" + member[10:]
    start = len(member) * (members - 1)
    for bit in range(8 * start + 24, 8 * start + 32):
        for size in (len(member) * members, len(member) * members - 9):
            damaged = flipped(member * members, bit)[:size]
            path.write_bytes(damaged)
            tried = attempt(GZIP, path)
            assert tried.kept == size
            # Bit 0 says that the content is text, which changes nothing.
            assert "repair" in tried.refused or (bit % 8 == 0 and size == len(member) * members)
            for entry in tmp_path.iterdir():
                entry.unlink()


@pytest.mark.parametrize("before", [0, 1])
def test_202_a_long_header_of_a_gzip_member(before, tmp_path):
    path = GZIP.file(tmp_path)
    data = sample(GZIP, tmp_path).data * before + b"\x1f\x8b\x08\x08" + bytes(6) + b"backup-of-everything" * 5000
    path.write_bytes(data)
    assert "repair" in attempt(GZIP, path).refused
    assert path.read_bytes() == data


# ---- files that are not ours -------------------------------------------------------

FOREIGN = {
    "ten bytes": b"0123456789",
    "one byte": b"x",
    "text": b"Dear diary,\n" * 40,
    "a line": b"hello\n",
    "json": b'{"a": [1, 2, 3]}\n',
    "png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "zip": b"PK\x03\x04" + bytes(26) + b"name",
    "pickle": b"\x80\x04\x95\x0b" + bytes(7) + b"\x8c\x07payload.",
    "elf": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0>\0",
    "random": np.random.default_rng(3).bytes(1000),
    "gzip of text": gzip.compress(b"Dear diary,\n" * 40),
    "cut gzip of text": gzip.compress(np.random.default_rng(4).bytes(3000))[:-9],
    "zeros, then text": bytes(5000) + b"Dear diary",
}


@kinds
@pytest.mark.parametrize("name", FOREIGN)
def test_149_a_file_that_is_not_ours(kind, name, folder):
    """A2: a text file of ten bytes was emptied."""
    path = kind.file(folder)
    path.write_bytes(FOREIGN[name])
    assert attempt(kind, path).refused
    assert path.read_bytes() == FOREIGN[name]


@pytest.mark.parametrize("size", [0, 1, 12, -1, -5])
def test_149_records_opened_as_a_stream(size, tmp_path, folder):
    """Framed alike, and each a sound record to the other; with whole and with cut ends."""
    records, objects = sample(PLAIN, tmp_path), sample(STREAM, tmp_path)
    for data, kind in ((records.data, STREAM), (objects.data, PLAIN)):
        path = kind.file(folder)
        changed = data[: size or None] if size <= 0 else data + data[:size]
        path.write_bytes(changed)
        tried = attempt(kind, path)
        assert tried.refused
        assert tried.kept == len(changed)
        path.unlink()


def test_149_one_record_of_the_other_sort_that_is_cut(tmp_path, folder):
    records, objects = sample(PLAIN, tmp_path, 1), sample(STREAM, tmp_path, 1)
    for data, kind in ((records.data, STREAM), (objects.data, PLAIN)):
        for size in range(14, len(data), 5):
            path = kind.file(folder)
            path.write_bytes(data[:size])
            tried = attempt(kind, path)  # loses no byte, whether or not so little tells what it was
            for entry in folder.iterdir():
                entry.unlink()
            assert tried.kept == size or not tried.refused


CONTENT = {
    "text": b"to be or not to be, that is the question. " * 100,
    "random": np.random.default_rng(5).bytes(5000),
    "zeros": bytes(10_000),
    "nothing": b"",
}


@pytest.mark.parametrize("content", CONTENT)
def test_203_the_start_of_a_gzip_file_that_is_not_ours(content, tmp_path):
    """A2 for gzip: as long as nothing could be inflated, it was taken for a write of ours, and emptied."""
    path = GZIP.file(tmp_path)
    data = gzip.compress(CONTENT[content])
    for size in range(1, min(len(data), 120)):
        path.write_bytes(data[:size])
        assert "repair" in attempt(GZIP, path).refused, size
        assert path.read_bytes() == data[:size]


@pytest.mark.parametrize("value", [np.arange(3), {"w": np.arange(3), "b": 1.5}, [], "text", np.zeros((0, 4))], ids=str)
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_204_records_are_not_appended_to_a_native_file(compression, value, tmp_path):
    """Examples had been added to a saved file, which nobody could load again."""
    path = tmp_path / "m.tb"
    tb.save(value, path)
    with tb.RecordWriter(tmp_path / "c", compression=compression, sidecar=False) as writer:
        for payload in tb.open_records(path).payloads():
            writer.write_raw(payload)
    (tmp_path / "c").replace(path)
    data = path.read_bytes()
    for size in (len(data), len(data) - 1):
        path.write_bytes(data[:size])
        for options in ({}, {"schema": {"a": "int64"}}, {"sidecar": False}):
            with pytest.raises(tb.errors.UsageError, match=r"records of tensors .*tb\.open\(path, 'a'\) appends"):
                tb.RecordWriter(path, mode="a", **options)
        assert path.read_bytes() == data[:size]
        assert [entry.name for entry in tmp_path.iterdir()] == ["m.tb"]


def test_204_examples_with_fields_of_a_tensor_are_appended_to(tmp_path):
    """A field that an Example has no place for is passed over."""
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, sidecar=False) as writer:
        writer.write({"a": 1})
    (payload,) = (bytes(one) for one in tb.open_records(path).payloads())
    with tb.RecordWriter(path, sidecar=False) as writer:
        writer.write_raw(tb.dumps(np.arange(3), "tensorproto") + payload)
    with tb.RecordWriter(path, mode="a", sidecar=False) as writer:
        writer.write({"a": 2})
    assert [int(row["a"]) for row in tb.open_records(path)] == [1, 2]


def test_149_other_formats_are_left_alone(folder):
    value = {"a": np.arange(4.0), "b": np.arange(3)}
    for name in ("x.npz", "x.safetensors", "x.pt"):
        path = folder / name
        tb.save(value, path)
        before = path.read_bytes()
        for opened in (lambda path: tb.open(path, "a", "tb"), lambda path: tb.RecordWriter(path, mode="a")):
            with pytest.raises(tb.errors.TensorbytesError):
                opened(path)
        assert path.read_bytes() == before


def test_149_a_zlib_file_is_refused_whatever_its_end(tmp_path):
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, compression="zlib", sidecar=False) as writer:
        for number in range(5):
            writer.write(record(number))
    data = path.read_bytes()
    for size in (len(data), len(data) - 1, len(data) // 2):
        path.write_bytes(data[:size])
        with pytest.raises(tb.errors.TensorbytesError):
            tb.RecordWriter(path, mode="a")
        assert path.read_bytes() == data[:size]


# ---- disks and signals in the middle of an append ------------------------------------


def large(number, size=500):
    """A record that does not get smaller by compression."""
    return {"x": np.int64(number), "z": np.random.default_rng(number).integers(0, 1 << 62, size)}


def append_many(writer, acknowledged):
    with writer:
        for number in range(1, 60):
            writer.write(large(number))
            writer.flush()
            acknowledged.append(number)


@kinds
def test_150_a_disk_that_fills_up(kind, tmp_path, small_files_only):
    """Up to the last flush that returned all is there, and nothing that was not written."""
    path = kind.file(tmp_path)
    with kind.open(path) as writer:
        writer.write(large(0))
    acknowledged = []
    with pytest.raises(OSError, match="large"):
        append_many(kind.open(path, "a"), acknowledged)
    acknowledged = 1 + len(acknowledged)
    assert acknowledged > 10
    with tb.open(path, format="tb") if kind.is_stream else tb.open_records(path) as found:
        numbers = [int(row["x"]) for row in found if np.array_equal(row["z"], large(int(row["x"]))["z"])]
    assert numbers in (list(range(acknowledged)), list(range(acknowledged + 1)))
    assert left_behind(tmp_path, path) == []


def left_behind(folder, path):
    return sorted(entry.name for entry in folder.iterdir() if entry != path)


class Interrupts:
    """Raises KeyboardInterrupt at the N-th line of the package that is run, its kernel left out."""

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, argument):
        path = frame.f_code.co_filename
        return self._line if "/tensorbytes/" in path and "/_wire/" not in path else None

    def _line(self, frame, event, argument):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", [47, pytest.param(1, marks=pytest.mark.deep)])
@kinds
def test_150_ctrl_c_at_any_line_of_an_append(kind, step, tmp_path):
    """What was acknowledged is there, at most the record under way more, and the next writer is not held up."""
    path = kind.file(tmp_path)
    tracing = sys.gettrace()
    for at in range(1, 5000, step):
        kind.write(path, range(3))
        acknowledged, interrupts, writer = 3, Interrupts(at), None
        sys.settrace(interrupts)
        try:
            writer = kind.open(path, "a")
            for number in (3, 4):
                writer.write(record(number))
                writer.flush()
                acknowledged = number + 1
            writer.close()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracing)
        if writer is not None:
            try:
                writer.close()
            except tb.errors.TensorbytesError:
                writer.abort()
        del writer
        found = kind.read(path)
        assert found in (list(range(acknowledged)), list(range(acknowledged + 1))), (at, found)
        kind.write(path, [9], "a")
        assert kind.read(path) == [*found, 9], at
        for entry in tmp_path.iterdir():
            assert CUT not in entry.name, (at, entry.name)
            entry.unlink()
        if interrupts.left > 0:
            return
    raise AssertionError("it takes more lines than were tried")


@kinds
def test_150_a_failing_disk_in_the_middle_of_an_append(kind, tmp_path, monkeypatch):
    path = kind.file(tmp_path)
    kind.write(path, range(3))
    writer = kind.open(path, "a")
    writer.write(record(3))
    writer.sync()
    writer.write(record(4))

    def broken(fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="Input/output"):
            writer.sync()
    with pytest.raises(tb.errors.TensorbytesError, match="closed"):
        writer.flush()
    with pytest.raises(tb.errors.TensorbytesError, match=r"a call failed.*nput/output error"):
        writer.close()
    writer.close()  # said once
    assert kind.read(path)[:4] == [0, 1, 2, 3]
    assert kind.read(path) in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert left_behind(tmp_path, path) == []
    kind.write(path, [5], "a")
    assert kind.read(path)[-1] == 5
