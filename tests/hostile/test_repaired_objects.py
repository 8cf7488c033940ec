"""What repair makes of a damaged file of the native frame is read by everything; verify finds what readers find."""

import io
import itertools

import numpy as np
import pytest

import tensorbytes as tb
from tests.support.cli_cases import inside

ROWS = [{"x": np.full(700, i), "n": i, "s": [f"text {i}", np.arange(i)]} for i in range(6)]


def stream(path, rows=ROWS):
    with tb.open(path, "w") as writer:
        for row in rows:
            writer.write(row)
    return path


def borders(path):
    """Where each record starts, and where the last one ends."""
    data, at, found = path.read_bytes(), 0, [0]
    while at < len(data):
        at += int.from_bytes(data[at : at + 8], "little") + 16
        found.append(at)
    return found


def without(path, *numbers):
    """The same file, lacking some records."""
    data, places = path.read_bytes(), list(itertools.pairwise(borders(path)))
    path.write_bytes(b"".join(data[a:b] for number, (a, b) in enumerate(places) if number not in numbers))
    return path


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def check_reads(path, expected):
    """Every reader takes the file, and verify and another repair find nothing wrong with it."""
    assert tb.verify(path).ok
    with tb.open(path) as opened:
        assert tb.equal(list(opened), expected)
    assert tb.equal(tb.load(path), expected)
    assert tb.repair(path, path, replace=True).ok
    with tb.open(path, "a") as writer:
        writer.write(ROWS[0])
    assert tb.equal(tb.load(path), [*expected, ROWS[0]])


@pytest.mark.parametrize("number", range(6))
def test_210_a_stream_goes_on_without_a_damaged_object(number, tmp_path):
    path = stream(tmp_path / "x.tb", [row["x"] for row in ROWS])
    flip(path, borders(path)[number] + 2000)
    report = tb.repair(path, path, replace=True)
    assert [damage.record for damage in report.damages] == [number]
    check_reads(path, [row["x"] for i, row in enumerate(ROWS) if i != number])


@pytest.mark.parametrize("number", range(24))
def test_210_an_object_that_lacks_a_part_is_lost_as_a_whole(number, tmp_path):
    path = stream(tmp_path / "x.tb")
    places = borders(path)
    assert len(places) == 25
    flip(path, places[number] + 14)
    first, size = number // 4 * 4, len(path.read_bytes())
    report = tb.repair(path, path, replace=True)
    assert report.records == 20
    assert report.lost == places[first + 4] - places[first]
    assert report.lost + report.intact == report.size == size
    kinds = {(damage.start, damage.end): damage.kind for damage in report.damages}
    assert kinds.pop((places[number], places[number + 1])) == "payload"
    assert set(kinds.values()) == {"object"}
    assert sorted(itertools.chain(*kinds)) == [
        *([places[first], places[number]] if number > first else []),
        *([places[number + 1], places[first + 4]] if number < first + 3 else []),
    ]
    check_reads(path, [row for i, row in enumerate(ROWS) if i != number // 4])


@pytest.mark.parametrize("numbers", [(0,), (5,), (23,), (4, 5, 6, 7), (0, 1, 2, 3), (3, 4), (2, 9, 14)])
def test_210_records_that_are_not_there_are_missed(numbers, tmp_path, capsys):
    path = without(stream(tmp_path / "x.tb"), *numbers)
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path)
    assert not tb.verify(path).ok
    assert inside(capsys, "verify", path).code == 1
    assert not tb.repair(path, tmp_path / "mended.tb").ok
    gone = {number // 4 for number in numbers}
    check_reads(tmp_path / "mended.tb", [row for i, row in enumerate(ROWS) if i not in gone])
    assert inside(capsys, "repair", path, "--in-place").code == 1
    check_reads(path, [row for i, row in enumerate(ROWS) if i not in gone])


def test_210_an_item_that_vanished_is_told_of(tmp_path):
    path = without(stream(tmp_path / "x.tb", [row["x"] for row in ROWS]), 1)
    (damage,) = tb.verify(path).damages
    assert (damage.kind, damage.record, damage.start == damage.end) == ("missing", 1, True)
    assert "item 3 of a stream follows item 1" in str(damage)
    report = tb.repair(path, path, replace=True)
    assert (report.records, report.lost) == (5, 0)
    check_reads(path, [row["x"] for i, row in enumerate(ROWS) if i != 1])


def test_210_streams_that_were_joined_stay_joined(tmp_path):
    path = stream(tmp_path / "x.tb", ROWS[:3])
    path.write_bytes(path.read_bytes() + stream(tmp_path / "y.tb", ROWS[3:]).read_bytes())
    assert tb.verify(path).ok
    before = path.read_bytes()
    assert tb.repair(path, tmp_path / "same.tb").ok
    assert (tmp_path / "same.tb").read_bytes() == before
    flip(path, borders(path)[13] + 14)  # in the first object of the second
    tb.repair(path, path, replace=True)
    check_reads(path, [*ROWS[:3], *ROWS[4:]])


NESTED = {
    "w": np.arange(1000.0),
    "list": [np.ones(2000), {"deep": np.arange(5)}, "text"],
    "r": tb.Ragged(tb.Tensor("float64", (900,), np.ones(900)), (np.array([0, 3, 900]),)),
    "many": [f"s{i}" for i in range(90)],
    "meta": {"n": 3},
}


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}], ids=["plain", "packed"])
def test_211_a_saved_object_keeps_the_tensors_that_are_whole(options, tmp_path):
    tb.save(NESTED, tmp_path / "x.tb", meta={"step": "3"}, **options)
    with tb.open(tmp_path / "x.tb") as opened:
        values = {name: opened[name].load() for name in opened.keys()}  # noqa: SIM118
    names = list(values)
    places = borders(tmp_path / "x.tb")
    for number, name in enumerate(names):
        path = tmp_path / f"{number}.tb"
        path.write_bytes((tmp_path / "x.tb").read_bytes())
        flip(path, places[number] + 14)
        report = tb.repair(path, path, replace=True)
        (damage,) = report.damages  # its name, or where it is if that can't be read
        assert damage.name == name or damage.record == number
        assert tb.verify(path).ok
        assert tb.load(path)
        with tb.open(path) as opened:
            assert opened.keys() == [other for other in names if other != name]
            for other, entry in opened.items():
                assert tb.equal(entry.load(), values[other])
            assert opened.verify() == 1


def test_211_what_is_kept_is_stored_as_it_was(tmp_path):
    """Compressed content is not touched, and large content starts at a multiple of 64 bytes again."""
    tb.save({"a": np.zeros(3), "b": np.arange(9000), "c": np.arange(9000)}, tmp_path / "x.tb")
    flip(tmp_path / "x.tb", 15)
    tb.repair(tmp_path / "x.tb", tmp_path / "y.tb")
    data = (tmp_path / "y.tb").read_bytes()
    content = np.arange(9000).tobytes()
    assert data.index(content) % 64 == data.rindex(content) % 64 == 0
    tb.save({"a": np.zeros(3), "b": np.arange(9000)}, tmp_path / "x.tb", compression="zlib")
    flip(tmp_path / "x.tb", 15)
    tb.repair(tmp_path / "x.tb", tmp_path / "y.tb")
    assert (tmp_path / "y.tb").stat().st_size < 40_000
    assert tb.equal(tb.load(tmp_path / "y.tb"), {"b": np.arange(9000)})


def test_211_one_of_several_saved_objects_is_not_mixed_with_others(tmp_path):
    saved = [tb.dumps({"a": np.full(9, i), "b": np.full(9, -i)}) for i in range(3)]
    path = tmp_path / "x.tb"
    path.write_bytes(b"".join(saved))
    flip(path, len(saved[0]) + 14)
    report = tb.repair(path, path, replace=True)
    assert report.records == 4
    assert path.read_bytes() == saved[0] + saved[2]


def test_212_nothing_is_written_where_no_object_is_whole(tmp_path):
    path = without(stream(tmp_path / "x.tb", ROWS[:1]), 2)
    before = path.read_bytes()
    for target in (path, tmp_path / "y.tb"):
        with pytest.raises(tb.errors.CorruptError, match="no object in it is whole"):
            tb.repair(path, target, replace=True)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.tb"]


class Pipe(io.RawIOBase):
    """Bytes that are read once."""

    def __init__(self, data):
        self._file = io.BytesIO(data)

    def readable(self):
        return True

    def readinto(self, room):
        return self._file.readinto(room)


def test_212_file_objects_are_repaired_as_files_are(tmp_path):
    path = without(stream(tmp_path / "x.tb"), 5)
    tb.repair(path, tmp_path / "y.tb")
    expected = (tmp_path / "y.tb").read_bytes()
    data = path.read_bytes()
    behind = io.BytesIO(b"something" + data)
    behind.seek(9)
    for source in (io.BytesIO(data), behind, Pipe(data), path.open("rb")):
        out = io.BytesIO()
        tb.repair(source, out)
        assert out.getvalue() == expected
        source.close()


def test_212_records_of_something_else_stand_for_themselves(tmp_path):
    """They may start as a TensorProto does, or hold what looks like a part of an object."""
    path = tmp_path / "x.tfrecord"
    with tb.RecordWriter(path, sidecar=False) as writer:
        for payload in (b"\x08\x05", b"\x08\x01\x1a\x03abc", b"\x08\xff\xff", b"", b"\x0a\x00"):
            writer.write_raw(payload)
    before = path.read_bytes()
    assert tb.verify(path).ok
    assert tb.repair(path, path, replace=True).records == 5
    assert path.read_bytes() == before


SMALL = [{"a": np.arange(i + 1), "b": i} for i in range(3)]


@pytest.mark.parametrize("kind", ["stream", "saved"])
def test_213_whatever_byte_is_damaged_the_rest_is_read(kind, tmp_path):
    path = tmp_path / "x.tb"
    if kind == "stream":
        stream(path, SMALL)
    else:
        tb.save({str(row["b"]): row["a"] for row in SMALL}, path)
    data, first = path.read_bytes(), borders(path)[2]
    changes = [data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] for at in range(len(data))]
    for changed in [*changes, *(data[:at] for at in range(first, len(data)))]:
        out = io.BytesIO()
        report = tb.repair(io.BytesIO(changed), out, "tb")
        read = tb.loads(out.getvalue())
        kept = {row["b"]: row["a"] for row in read} if kind == "stream" else {int(name): read[name] for name in read}
        assert len(kept) == len(read) >= (2 if len(changed) == len(data) else 1)
        assert all(np.array_equal(x, np.arange(number + 1)) for number, x in kept.items())
        assert tb.verify(io.BytesIO(out.getvalue())).ok
        assert tb.verify(io.BytesIO(changed), "tb").damages == report.damages
