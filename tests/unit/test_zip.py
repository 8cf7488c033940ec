"""Zip archives beside Python's zipfile: what it writes is read, what we write it reads, and what lies is refused."""

import io
import itertools
import random
import struct
import threading
import zipfile
import zlib

import pytest

from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, LimitError, Limits, UnsupportedError
from tensorbytes.formats import _zip
from tensorbytes.formats._zip import Content
from tensorbytes.io.streams import engines

LIMITS = Limits()
NUMBER = 0x4254
FILES = {"a.npy": b"first" * 50, "folder/é日.npy": bytes(range(256)) * 9, "": b"", "empty": b"", "x" * 300: b"z"}
END, LOCAL, CENTRAL = b"PK\5\6", b"PK\3\4", b"PK\1\2"
RAISED = (CorruptError, LimitError, UnsupportedError)


def written(files, level=None, alignment=64):
    contents = [Content(name, [data[:3], data[3:]], level) for name, data in files.items()]
    return b"".join(_zip.archive(contents, alignment, NUMBER))


def by_zipfile(files, method=zipfile.ZIP_STORED, file=None, zip64=False):
    file = io.BytesIO() if file is None else file
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=zip64) as member:
                member._compress_type = method
                member.write(data)
    return file.getvalue()


def read(raw, limits=LIMITS):
    data = memoryview(raw)
    budget = Budget(limits, len(data))
    members = _zip.members(data, budget)
    _zip.charge(members, budget)
    return {member.name: bytes(_zip.content(data, member)) for member in members}


class Pipe(io.RawIOBase):
    """Takes bytes in order alone, so that sizes have to follow the content."""

    def __init__(self):
        self.pieces = []

    def writable(self):
        return True

    def write(self, data):
        self.pieces.append(bytes(data))
        return len(data)

    def getvalue(self):
        return b"".join(self.pieces)


# ---- both ways --------------------------------------------------------------


@pytest.mark.parametrize("level", [None, 0, 1, 6, 9])
def test_zipfile_reads_what_we_write(level):
    raw = written(FILES, level)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert read(raw) == FILES
    assert raw == written(FILES, level)


@pytest.mark.parametrize("alignment", [1, 4, 64, 4096])
def test_stored_members_are_aligned(alignment):
    raw = written(FILES, alignment=alignment)
    assert [member.start % alignment for member in _zip.members(memoryview(raw), Budget(LIMITS))] == [0] * len(FILES)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        assert archive.testzip() is None


def test_what_does_not_shrink_is_stored():
    files = {"noise": random.Random(0).randbytes(5000), "zeros": bytes(5000)}
    methods = [member.method for member in _zip.members(memoryview(written(files, 6)), Budget(LIMITS))]
    assert methods == [_zip.STORED, _zip.DEFLATED]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("target", [io.BytesIO, Pipe])
def test_we_read_what_zipfile_writes(method, zip64, target):
    raw = by_zipfile(FILES, method, target(), zip64)
    assert read(raw) == FILES


def test_an_archive_without_members():
    assert read(by_zipfile({})) == {}
    assert written({}) == by_zipfile({})


def test_an_archive_with_a_comment():
    file = io.BytesIO(by_zipfile(FILES))
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"PK\5\6 and more" * 20
    assert read(file.getvalue()) == FILES


@pytest.mark.deep
def test_more_members_than_sixteen_bits_count():
    files = {f"{number}": b"" for number in range(65_540)}
    raw = written(files)
    assert list(read(raw)) == list(files)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        assert archive.namelist() == list(files)
    with pytest.raises(LimitError, match="65540 members"):
        _zip.members(memoryview(raw), Budget(Limits(max_tensors=1000)))


def test_members_larger_than_thirty_two_bits_count(tmp_path):
    """Zeros, so that the file is a hole; only the parts around it are written."""
    chunk = memoryview(bytes(1 << 26))
    large = Content("large", [b"head", *[chunk] * 64, b"tail"])
    path = tmp_path / "x.zip"
    with open(path, "wb") as file:
        for piece in _zip.archive([Content("before", [b"1"]), large, Content("after", [b"2"])], 64, NUMBER):
            if len(piece) == len(chunk):
                file.seek(len(piece), io.SEEK_CUR)
            else:
                file.write(piece)
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        assert sizes == {"before": 1, "large": (1 << 32) + 8, "after": 1}
        assert archive.read("after") == b"2"
        with archive.open("large") as member:
            assert member.read(5) == b"head\0"
    from tensorbytes.io import storage

    data = storage.map_file(path)
    before, middle, after = _zip.members(data, Budget(LIMITS))
    assert (middle.size, middle.start % 64) == ((1 << 32) + 8, 0)
    assert bytes(data[middle.start + middle.size - 5 : middle.start + middle.size]) == b"\0tail"
    assert bytes(_zip.content(data, after)) == b"2"
    assert bytes(_zip.content(data, before)) == b"1"


@pytest.mark.parametrize("level", [None, 1])
def test_threads_give_the_same_bytes(level, monkeypatch):
    files = {f"{number}": random.Random(number).randbytes(1000) * 3 for number in range(30)}
    alone = written(files, level)
    monkeypatch.setattr(_zip, "_THREAD_BYTES", 0)
    assert written(files, level) == alone


def test_an_archive_that_nobody_finishes_writing(monkeypatch):
    monkeypatch.setattr(_zip, "_THREAD_BYTES", 0)
    pieces = _zip.archive([Content(str(n), [bytes(100)]) for n in range(50)], 64, NUMBER)
    before = set(threading.enumerate())
    next(pieces)
    started = set(threading.enumerate()) - before
    assert started
    pieces.close()
    assert not started & set(threading.enumerate())


def test_a_name_too_long_is_refused_before_anything_is_written():
    with pytest.raises(UnsupportedError, match="70000 bytes"):
        next(_zip.archive([Content("a", [b"1"]), Content("x" * 70_000, [b""])], 64, NUMBER))


@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_the_start_of_a_member(size):
    files = {"a": bytes(range(256)) * 300}
    for raw in (written(files), written(files, 9)):
        (member,) = _zip.members(memoryview(raw), Budget(LIMITS))
        assert _zip.inflate_head(memoryview(raw), member, size) == files["a"][:size]


def test_stored_members_are_views():
    raw = bytearray(written(FILES))
    member = _zip.members(memoryview(raw), Budget(LIMITS))[0]
    assert _zip.content(memoryview(raw), member).obj is raw


# ---- lies -------------------------------------------------------------------


def patched(raw, mark, offset, value, layout="<I", nth=0):
    """With a number overwritten, so many bytes after the nth place of a mark."""
    at = -1
    for _ in range(nth + 1):
        at = raw.index(mark, at + 1)
    out = bytearray(raw)
    struct.pack_into(layout, out, at + offset, value)
    return bytes(out)


ONE = written({"a": b"content of a"})
TWO = written({"a": bytes(300), "b": bytes(300)})
SQUEEZED = written({"a": bytes(3000)}, 6)


def overlapping():
    """Two entries of the directory for one member, under the same and under another name."""
    at = ONE.index(CENTRAL)
    entry = ONE[at : ONE.index(END)]
    raw = ONE[:at] + entry + entry + ONE[ONE.index(END) :]
    return patched(patched(raw, END, 8, 2 | 2 << 16), END, 12, 2 * len(entry))


def quoting():
    """A member that spans the one inside it: the way to terabytes (CVE-2024-0450)."""
    inner = written({"b": b"1"})
    local = inner[: inner.index(CENTRAL)]
    raw = bytearray(written({"a": local}, alignment=1))
    at = raw.index(local)
    entry = inner[inner.index(CENTRAL) : inner.index(END)]
    entry = patched(entry, CENTRAL, 42, at)
    end = raw.index(END)
    size = end - raw.index(CENTRAL)
    raw[end:end] = entry
    return patched(patched(bytes(raw), END, 8, 2 | 2 << 16), END, 12, size + len(entry))


def zip64_locator(position):
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return struct.pack("<IIQI", 0x07064B50, 0, position, 1) + end


CORRUPT = {
    "empty": b"",
    "short": b"PK\3\4",
    "no archive": bytes(100),
    "cut": ONE[:-1],
    "without its directory": ONE[: ONE.index(CENTRAL)],
    "13 bytes after the end": ONE + b"x",
    "13 bytes before the start": b"x" + ONE,
    "83 one member twice": overlapping(),
    "83 a member in a member": quoting(),
    "84 another name in the header": patched(ONE, LOCAL, 30, ord("b"), "<B"),
    "84 another size in the header": patched(ONE, LOCAL, 22, 11),
    "84 another stored size in the header": patched(ONE, LOCAL, 18, 11),
    "84 another checksum in the header": patched(ONE, LOCAL, 14, 11),
    "84 another method in the header": patched(ONE, LOCAL, 8, 8, "<H"),
    "84 encrypted in the header": patched(ONE, LOCAL, 6, 1, "<H"),
    "84 sizes to follow, yet given": patched(patched(ONE, LOCAL, 6, 8, "<H"), LOCAL, 22, 11),
    "84 no header": patched(ONE, CENTRAL, 42, 1),
    "84 header past the members": patched(ONE, CENTRAL, 42, 1 << 31),
    "stored and of another size": patched(ONE, CENTRAL, 20, 11),
    "two of a name": patched(patched(TWO, LOCAL, 30, ord("a"), "<B", 1), CENTRAL, 46, ord("a"), "<B", 1),
    "content into the directory": patched(
        patched(patched(patched(ONE, CENTRAL, 20, 13), CENTRAL, 24, 13), LOCAL, 18, 13), LOCAL, 22, 13
    ),
    "too few entries": patched(TWO, END, 8, 1 | 1 << 16),
    "too many entries": patched(TWO, END, 8, 3 | 3 << 16),
    "directory elsewhere": patched(ONE, END, 16, 0),
    "directory larger": patched(ONE, END, 12, 1000),
    "name past the directory": patched(ONE, CENTRAL, 28, 0xFFFF, "<H"),
    "47 zero byte in a name": patched(patched(ONE, LOCAL, 30, 0, "<B"), CENTRAL, 46, 0, "<B"),
    "45 name not UTF-8": patched(patched(ONE, CENTRAL, 8, 1 << 11, "<H"), CENTRAL, 46, 0xFF, "<B"),
    "zip64 record past the end": zip64_locator(1 << 63),
    "zip64 record that is none": bytes(60) + zip64_locator(0),
    "checksum": ONE.replace(b"content", b"Content"),
    "checksum of both": patched(patched(ONE, LOCAL, 14, 11), CENTRAL, 16, 11),
    "100 deflated: one byte more": patched(patched(SQUEEZED, LOCAL, 22, 2999), CENTRAL, 24, 2999),
    "100 deflated: one byte less": patched(patched(SQUEEZED, LOCAL, 22, 3001), CENTRAL, 24, 3001),
    "deflated: damaged": SQUEEZED.replace(SQUEEZED[31:33], b"\xff\xff", 1),
}  # fmt: skip
UNSUPPORTED = {
    "85 encrypted": (patched(ONE, CENTRAL, 8, 1, "<H"), "encrypted"),
    "85 link": (patched(ONE, CENTRAL, 38, 0xA1FF << 16), "link"),
    "bzip2": (patched(ONE, CENTRAL, 10, 12, "<H"), "compression 12"),
    "several volumes": (patched(ONE, END, 4, 1, "<H"), "volumes"),
    "another volume": (patched(ONE, CENTRAL, 34, 7, "<H"), "volumes"),
}


@pytest.mark.parametrize("raw", CORRUPT.values(), ids=CORRUPT)
def test_corrupt(raw):
    with pytest.raises(CorruptError) as caught:
        read(raw)
    assert 0 <= caught.value.at <= len(raw)


@pytest.mark.parametrize(("raw", "words"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_unsupported(raw, words):
    with pytest.raises(UnsupportedError, match=words):
        read(raw)


@pytest.fixture(params=["isal", "zlib"])
def inflater(request, monkeypatch):
    """isal where it is installed, zlib where not."""
    if request.param == "zlib":
        monkeypatch.setattr(engines, "find_isal", lambda: None)
    else:
        pytest.importorskip("isal")


@pytest.mark.usefixtures("inflater")
def test_bytes_after_a_deflated_stream_are_noticed():
    stream = zlib.compress(bytes(100), 9, -15)
    for extra in (1, 5, 20):
        filler = b"~" * (len(stream) + extra)
        raw = bytearray(written({"a": filler}))
        at = raw.index(filler)
        raw[at : at + len(stream)] = stream
        crc = zlib.crc32(bytes(100))
        raw = patched(patched(patched(bytes(raw), LOCAL, 8, 8, "<H"), LOCAL, 22, 100), LOCAL, 14, crc)
        raw = patched(patched(patched(raw, CENTRAL, 10, 8, "<H"), CENTRAL, 24, 100), CENTRAL, 16, crc)
        with pytest.raises(CorruptError, match="holds others"):
            read(raw)


@pytest.mark.usefixtures("inflater")
@pytest.mark.parametrize("name", [name for name in CORRUPT if "deflated" in name])
def test_corrupt_by_either_library(name):
    assert read(SQUEEZED) == {"a": bytes(3000)}
    with pytest.raises(CorruptError):
        read(CORRUPT[name])


@pytest.mark.usefixtures("inflater")
def test_93_a_member_does_not_unfold_beyond_the_limit():
    raw = written({"a": bytes(5_000_000)}, 9)
    assert len(raw) < 10_000
    with pytest.raises(LimitError, match=r"inflated member 'a' would take 499\d+ bytes"):
        read(raw, Limits(max_bytes=1_000_000))
    assert len(read(raw)["a"]) == 5_000_000


@pytest.mark.parametrize(
    "raw",
    [ONE, written({"a": bytes(50)}, 6), by_zipfile({"a": b"12", "é": b"3"}, file=Pipe(), zip64=True)],
    ids=["stored", "deflated", "zip64 from a pipe"],
)
def test_damage_is_noticed_or_harmless(raw):
    """Every truncation is noticed; a flipped bit is, or stands where it says nothing about the content."""
    expected = read(raw)
    for end in range(len(raw)):
        with pytest.raises(RAISED):
            read(raw[:end])
    for at, bit in itertools.product(range(len(raw)), range(8)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << bit
        try:
            found = read(bytes(damaged))
        except RAISED:
            continue
        assert list(found.values()) == list(expected.values())
