"""The npz format beside NumPy's savez and load: structures, alignment, checksums, hostile archives."""

import io
import itertools
import json
import mmap
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, errors, formats
from tensorbytes.formats import npz as npz_format
from tensorbytes.tensor import Ragged, Strings, Tensor, identical
from tensorbytes.testing import bits
from tests.support import REAL_FILES
from tests.support.npy_bytes import (
    PLAIN,
    RAISED,
    SHAPES,
    TIMES,
    check_offsets,
    filled,
    header,
    npy,
    other_order,
    owner,
    same,
    saved,
)


def savez(compressed=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def by_numpy(raw):
    with np.load(io.BytesIO(raw) if isinstance(raw, bytes) else raw) as file:
        return dict(file)


def archive(files, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as out:
        for name, data in files.items():
            out.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


ARRAYS = {f"{dtype}{list(shape)}": filled(dtype, shape) for dtype in (*PLAIN, *TIMES) for shape in SHAPES}
ARRAYS |= {"text": np.array([["a", "日本"]]), "bytes": np.array([b"a", b"bc"]), "": np.arange(2), "a/b": np.arange(3)}


# ---- both ways --------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"compression": "deflate"}, {"compression": "deflate", "level": 1}], ids=str)
def test_numpy_reads_what_we_write(options):
    raw = tb.dumps(ARRAYS, "npz", **options)
    found = by_numpy(raw)
    assert list(found) == list(ARRAYS)
    assert all(same(found[name], x) for name, x in ARRAYS.items())
    back = tb.loads(raw)
    assert list(back) == list(ARRAYS)
    assert all(same(back[name], x) for name, x in ARRAYS.items())
    assert tb.dumps(ARRAYS, "npz", **options) == raw
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        assert file.testzip() is None
        assert not options or file.getinfo("f4[70, 90].npy").compress_type == zipfile.ZIP_DEFLATED
        assert file.read("f4[2, 3].npy") == saved(ARRAYS["f4[2, 3]"])  # no notes where none are needed


@pytest.mark.parametrize("compressed", [False, True])
def test_we_read_what_numpy_writes(compressed, tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(savez(compressed, **ARRAYS))
    back = tb.load(path)
    assert list(back) == list(ARRAYS)
    assert all(same(back[name], x) for name, x in ARRAYS.items())
    with tb.open(path) as file:
        assert all(same(file[name].load(), x) for name, x in ARRAYS.items())


@pytest.mark.parametrize("compressed", [False, True])
def test_we_read_other_orders_than_ours(compressed):
    arrays = {name: x for name, x in ARRAYS.items() if x.ndim > 1}
    raw = savez(compressed, **{name: other_order(x, ">") for name, x in arrays.items()})
    back = tb.loads(raw)
    with tb.open(io.BytesIO(raw)) as file:
        for name, x in arrays.items():
            assert same(back[name], x)
            assert same(file[name].load(), x)
            assert same(file[name][..., 1:], np.ascontiguousarray(x[..., 1:]))


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_every_dtype_in_a_structure(name):
    tensor = Tensor(name, (3, 4), bits.content(name, (3, 4)), meta={"unit": "m"})
    ragged = Ragged(Tensor(name, (3,), bits.content(name, (3,))), (np.array([0, 1, 3]),))
    for options in ({}, {"compression": "deflate"}):
        raw = tb.dumps({"x": tensor, "in": [ragged, (tensor,)]}, "npz", meta={"all": "of it"}, **options)
        assert by_numpy(raw)["x"].tobytes() == bytes(tensor.data)
        back = tb.loads(raw, to="tensor")
        assert identical(back["x"], tensor)
        assert back["x"].meta == {"unit": "m"}
        assert identical(back["in"][0], ragged)
        assert identical(back["in"][1][0], tensor)
        with tb.open(io.BytesIO(raw), to="tensor") as file:
            assert file.meta == {"all": "of it"}
            assert file["x"].dtype == name
            assert identical(file["x"].load(), tensor)
            assert identical(file["in/0"].load(), ragged)


def test_structures_come_back():
    x = {
        "weights": {"w": np.ones((2, 2)), "b": [1.5, 2.5]},
        "list": [np.arange(2), (np.arange(3), None)],
        7: "seven",
        -1: {"deep": [{"er": b"bytes\0"}]},
        "empty": {},
        "words": np.array(["a", "b\0"], object),
        "when": np.array(["2020-01-01"], "M8[D]"),
        "half": np.ones(3, ml_dtypes.bfloat16),
    }
    for options in ({}, {"compression": "deflate"}):
        raw = tb.dumps(x, "npz", **options)
        assert tb.equal(tb.loads(raw), x)
        assert set(by_numpy(raw)) >= {"weights/w", "list/0", "when"}
        with tb.open(io.BytesIO(raw)) as file:
            assert tb.equal(file[0], x)


def test_a_single_value_is_arr_0():
    raw = tb.dumps(np.arange(3), "npz")
    assert by_numpy(raw)["arr_0"].tolist() == [0, 1, 2]
    assert tb.loads(raw).tolist() == [0, 1, 2]
    assert list(tb.loads(savez(arr_0=np.arange(3)))) == ["arr_0"]  # NumPy knows no single values
    assert list(by_numpy(tb.dumps(np.arange(3), "npz", name="w"))) == ["w"]


@pytest.mark.parametrize(
    "names",
    [
        ["a\0b", "a%00b", "a\0b~"],
        ["a", "a~2", "a.npy", "a.npy.npy", ".npy", ""],
        ["../up", "/root", "c:\\x", "\\\\host\\share", "."],
        ["é", "e\u0301", "A", "a", "日" * 100],
        ["x.splits0", "x", "x.offsets"],
        ["__class__", "file", "\n"],
    ],
)
def test_keys_are_opaque(names):
    ragged = Ragged(Tensor("int8", (1,), b"1"), (np.array([0, 1]),))
    x = {name: ragged if name in ("x", "a\0b") else np.full(2, index) for index, name in enumerate(names)}
    raw = tb.dumps(x, "npz")
    back = tb.loads(raw, to="tensor")
    assert list(back) == names
    assert tb.equal(back, x)
    by_numpy(raw)
    with tb.open(io.BytesIO(raw)) as file:
        assert file.keys() == names
        for name in names:
            file[name].load()


def test_what_numpy_could_not_find_is_refused_in_time(tmp_path):
    path = tmp_path / "x.npz"
    for given, feature in (
        (({"a": np.arange(2), "k" * 70_000: np.arange(2)}, {}), "name"),
        (({"a": np.arange(2), "b": {"k" * 20_000: np.arange(2)}}, {}), "name"),
        (({"a": np.arange(2), "b": np.arange(2)}, {"k": "v" * 20_000}), "meta"),
    ):
        with pytest.raises(tb.errors.LossError) as caught:
            tb.save(given[0], path, meta=given[1])
        assert caught.value.feature == feature
    assert list(tmp_path.iterdir()) == []
    assert list(by_numpy(tb.dumps({"k" * 60_000: np.arange(2)}, "npz"))) == ["k" * 60_000]
    assert list(tb.loads(tb.dumps({"a": np.arange(2)}, "npz", meta={"k": "v" * 20_000}, allow="meta"))) == ["a"]


def test_an_archive_of_nothing():
    assert tb.loads(savez()) == {}
    assert tb.loads(tb.dumps({}, "npz")) == {}
    assert tb.loads(tb.dumps([], "npz")) == []


def test_options_are_checked():
    x = {"a": np.arange(3)}
    for options in ({"compression": "zstd"}, {"level": 3}, {"compression": "deflate", "level": 10}):
        with pytest.raises(tb.errors.UsageError, match="expected"):
            tb.dumps(x, "npz", **options)
    with pytest.raises(tb.errors.UsageError, match="expected"):
        tb.dumps(x, "npz", compression="deflate", level=True)
    raw = savez(a=np.ones(2, ml_dtypes.bfloat16), b=np.ones(2, ml_dtypes.float8_e4m3fn), c=np.ones(2))
    with pytest.raises(tb.errors.UnsupportedError, match="'a'"):
        tb.loads(raw)
    back = tb.loads(raw, dtype={"a": "bfloat16", "b": ml_dtypes.float8_e4m3fn})
    assert [x.dtype for x in back.values()] == [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64]
    assert all((x == 1).all() for x in back.values())


# ---- alignment, laziness, checksums -----------------------------------------


@pytest.fixture
def saved_file(tmp_path):
    path = tmp_path / "x.npz"
    tb.save({"odd": np.ones(3, "i1"), "x": np.arange(20_000.0).reshape(200, 100), "last": np.arange(5)}, path)
    return path


def test_arrays_of_a_map_are_aligned_views(saved_file):
    with tb.open(saved_file) as file:
        for name in ("odd", "x", "last"):
            part = file[name][:]
            assert isinstance(owner(part), mmap.mmap)
            assert part.ctypes.data % 64 == 0
        assert same(file["x"][5:7], np.arange(500.0, 700.0).reshape(2, 100))
    for x in tb.load(saved_file, mmap=True).values():
        assert isinstance(owner(x), mmap.mmap)


def test_nothing_is_copied_when_written():
    x = np.arange(1000.0)
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), x) for piece in tb.buffers({"x": x}, "npz"))


def damage(path, name, at=-1):
    """Flip a bit of a member's content."""
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(name)
    raw = bytearray(path.read_bytes())
    start = info.header_offset + 30 + int.from_bytes(raw[info.header_offset + 26 : info.header_offset + 28], "little")
    start += int.from_bytes(raw[info.header_offset + 28 : info.header_offset + 30], "little")
    raw[start + at % info.compress_size] ^= 1
    path.write_bytes(raw)


def test_damage_is_found_by_whoever_reads_it(saved_file):
    damage(saved_file, "x.npy")
    with tb.open(saved_file) as file:
        assert same(file["x"][:3], np.arange(300.0).reshape(3, 100))  # far from the damage
        assert file["last"].load().tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(tb.errors.CorruptError, match=r"checksum of the member 'x\.npy'"):
            file["x"].load()
        with pytest.raises(tb.errors.CorruptError, match="checksum"):
            file.verify()
    for read in (tb.load, lambda path: tb.loads(path.read_bytes()), lambda path: tb.load(path, names=["x"])):
        with pytest.raises(tb.errors.CorruptError, match="checksum"):
            read(saved_file)


@pytest.mark.parametrize("damaged", ["r.npy", "r.splits0.npy"])
def test_every_part_of_a_value_is_summed(damaged, tmp_path):
    path = tmp_path / "x.npz"
    ragged = Ragged(Tensor("int8", (64,), bytes(64)), (np.array([0, 1, 64]),), meta={"padded": "x" * 50})
    tb.save({"r": ragged}, path)
    damage(path, damaged, at=100)  # in the header, among its spaces or in its note
    with pytest.raises(tb.errors.CorruptError), tb.open(path) as file:
        file["r"].load()
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path)


def test_deflated_members_are_read_when_asked(tmp_path):
    path = tmp_path / "x.npz"
    x = {"a": np.arange(10_000), "b": np.arange(10_000) % 7, "t": np.array(["a"] * 500), "flag": np.zeros(500, bool)}
    np.savez_compressed(path, **x)
    damage(path, "b.npy", at=-5)
    with tb.open(path) as file:
        assert [(e.name, e.kind, e.shape) for e in file.entries()][2:] == [
            ("t", "strings", (500,)),
            ("flag", "tensor", (500,)),
        ]
        assert file["b"].shape == (10_000,)
        assert same(file["a"].load(), x["a"])
        assert same(file["a"][10:20], x["a"][10:20])
        assert same(file["t"].load(), x["t"])
        with pytest.raises(tb.errors.CorruptError):
            file["b"].load()
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path)


def test_a_long_header_in_a_deflated_member():
    raw = tb.dumps({"a": np.zeros(5)}, "npz", compression="deflate", meta={"k": "v" * 9000})
    with tb.open(io.BytesIO(raw)) as file:
        assert file.meta == {"k": "v" * 9000}
        assert file["a"].load().tolist() == [0] * 5


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("order", ["C", "F"])
def test_bytes_that_are_no_bool(method, order):
    x = np.zeros((6, 6), np.uint8, order)
    x[5, 3] = 7
    raw = archive({"x.npy": saved(x).replace(b"|u1", b"|b1")}, method)
    with pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
        tb.loads(raw)
    with tb.open(io.BytesIO(raw)) as file, pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
        file["x"].load()
    noted = archive({"x.npy": npy(header("'<V1'", after=' # tensorbytes {"dtype":"int4"}'), b"\1\x80")}, method)
    with tb.open(io.BytesIO(noted)) as file, pytest.raises(tb.errors.CorruptError, match="not a valid int4"):
        file["x"].load()


@pytest.mark.parametrize("options", [{}, {"compression": "deflate"}], ids=str)
def test_large_files_are_read_member_by_member(options, tmp_path, monkeypatch):
    """Above some megabytes each member gets memory of its own, and above some more two threads."""
    monkeypatch.setattr(npz_format, "_LARGE_MEMBER", 1 << 21)
    rng = np.random.default_rng(0)
    x = {f"{n}": rng.integers(0, 9, 100_000 * (n + 1)) for n in range(6)} | {
        "none": np.empty((0, 4)),
        "t": np.array(["é"]),
    }
    path = tmp_path / "x.npz"
    tb.save(x, path, sync=False, **options)
    assert path.stat().st_size > 1 << 20
    back = tb.load(path)
    assert list(back) == list(x)
    assert all(same(back[name], x[name]) for name in x)
    assert all(
        a.flags.writeable and a.ctypes.data % 64 == 0 for name, a in back.items() if name.isdigit() and not options
    )
    assert by_numpy(path).keys() == x.keys()
    for name in ("0.npy", "5.npy"):
        before = path.read_bytes()
        damage(path, name)
        with pytest.raises(tb.errors.CorruptError) as caught:
            tb.load(path)
        assert caught.value.path == str(path)
        path.write_bytes(before)
    path.write_bytes(before[:-1])
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path)


# ---- hostile ----------------------------------------------------------------

GOOD = saved(np.arange(3))


def noted(note):
    return archive({"a.npy": npy(header(after=f" # tensorbytes {note}"), bytes(8))})


REFUSED = {
    "85 no array": (archive({"a.npy": GOOD, "readme.txt": b"hello"}), errors.UnsupportedError, r"readme\.txt"),
    "85 a folder": (archive({"a/": b"", "a/x.npy": GOOD}), errors.UnsupportedError, "a/"),
    "85 an empty member": (archive({"a.npy": b""}), errors.UnsupportedError, r"a\.npy"),
    "85 a torch file": (archive({"archive/data.pkl": b"\x80\2"}), errors.UnsupportedError, r"data\.pkl"),
    "31 a pickle": (archive({"a.npy": saved(np.array([{}], object))}), errors.UnsupportedError, "pickle"),
    "32 of objects": (archive({"a.npy": saved(np.zeros(2, "i4,O"))}), errors.UnsupportedError, r"a\.npy.*structured"),
    "13 bytes after the array": (archive({"a.npy": GOOD + b"\0"}), errors.CorruptError, r"a\.npy"),
    "12 two arrays in a member": (archive({"a.npy": GOOD + GOOD}), errors.CorruptError, r"a\.npy"),
    "29 an array cut short": (archive({"a.npy": GOOD[:-1]}), errors.CorruptError, r"a\.npy"),
    "40 a name in two ways": (archive({"a.npy": GOOD, "a": GOOD}), errors.CorruptError, "twice"),
    "71 a claim": (archive({"a.npy": npy(header(shape=f"({1 << 40},)"))}), errors.CorruptError, r"a\.npy"),
    "28 no width": (archive({"a.npy": npy(header("'<U0'", shape=f"({1 << 40},)"))}), errors.LimitError, r"a\.npy"),
    "a part of nothing": (noted('{"of":"b"}'), errors.CorruptError, "nothing"),
    "a part that is missing": (noted('{"layout":"coo","parts":["b"]}'), errors.CorruptError, "'b'"),
    "its own part": (noted('{"layout":"coo","parts":["a"],"of":"a"}'), errors.CorruptError, "nothing"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "kind", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_refused(raw, kind, words, method):
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        raw = archive({name: file.read(name) for name in file.namelist()}, method)
    with pytest.raises(kind, match=words) as caught:
        tb.loads(raw, "npz")
    assert type(caught.value) is kind
    with pytest.raises(kind, match=words):
        [entry.load() for entry in tb.open(io.BytesIO(raw), format="npz").entries()]


def test_a_member_without_the_suffix_is_read():
    """NumPy goes by the magic too."""
    raw = archive({"a": GOOD, "b.npy": GOOD})
    assert list(by_numpy(raw)) == list(tb.loads(raw, "npz")) == ["a", "b"]


def test_claims_of_many_members_count_together():
    member = saved(np.zeros(100_000))
    raw = archive({f"{n}.npy": member for n in range(8)}, zipfile.ZIP_DEFLATED)
    limits = tb.errors.Limits(max_bytes=2_000_000)
    with pytest.raises(tb.errors.LimitError, match="would take"):
        tb.loads(raw, limits=limits)
    with tb.open(io.BytesIO(raw), limits=limits) as file:
        assert not file["3"].load().any()
    ragged = Ragged(Tensor("float64", (100_000,), bytes(800_000)), (np.array([0, 100_000]),))
    parts = tb.dumps([ragged] * 8, "npz", compression="deflate")
    assert len(tb.loads(parts)) == 8
    with pytest.raises(tb.errors.LimitError), tb.open(io.BytesIO(parts), limits=limits) as file:
        file.entries()
    wide = npy(header("'|S0'", shape="(100000,)"))
    with pytest.raises(tb.errors.LimitError):
        tb.loads(archive({f"{n}.npy": wide for n in range(8)}), limits=limits)


# The end of a bomb: few bytes that claim to be many, read with little memory.
CHILD = """
import io, json, resource, sys
import numpy, tensorbytes as tb
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (512 << 20)
raw = bytes.fromhex(sys.stdin.read())
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
out = []
for lazy in (False, True):
    try:
        [e.load() for e in tb.open(io.BytesIO(raw)).entries()] if lazy else tb.loads(raw)
    except BaseException as error:
        out.append(type(error).__name__)
print(json.dumps(out))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
def test_93_a_bomb_without_the_memory_for_it():
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = npy(header("'|u1'", shape=f"({2 << 30},)"))
    deflated = engine.compress(start) + engine.flush(zlib.Z_FULL_FLUSH)
    deflated += (engine.compress(bytes(1 << 24)) + engine.flush(zlib.Z_FULL_FLUSH)) * 128 + engine.flush()
    size = len(start) + (2 << 30)
    raw = bytearray(archive({"a.npy": deflated}))
    for mark, at in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        place = raw.index(mark) + at
        raw[place : place + 2] = b"\x08\0"
        raw[place + 14 : place + 18] = size.to_bytes(4, "little")
    run = subprocess.run([sys.executable, "-c", CHILD], input=raw.hex(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == ["LimitError", "LimitError"]


@pytest.mark.parametrize(
    "raw",
    [
        tb.dumps({"a": np.arange(2, dtype="i1")}, "npz"),
        tb.dumps({"a": np.arange(40) // 40}, "npz", compression="deflate"),
        tb.dumps(Strings.from_items([b"a\0"], (1,), "bytes"), "npz"),
    ],
    ids=["stored", "deflated", "strings"],
)
def test_damage_is_noticed_or_harmless(raw):
    for end in range(len(raw)):
        with pytest.raises(RAISED):
            tb.loads(raw[:end], "npz")
    for at, bit in itertools.product(range(len(raw)), range(8)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << bit
        check_offsets(bytes(damaged), "npz")


def test_the_first_bytes_tell():
    for raw in (savez(a=np.arange(2)), tb.dumps({"a": np.arange(2)}, "npz"), savez()):
        assert formats.sniff(raw[:4096], len(raw)) == "npz"
    other = archive({"archive/data.pkl": b""})
    assert not formats.get("npz").sniff(other, len(other))


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
def test_the_corpus_reads_as_numpy_reads_it():
    path = REAL_FILES / "pneumoniamnist.npz"
    expected = by_numpy(path)
    back = tb.load(path)
    assert list(back) == list(expected)
    assert all(same(back[name], x) for name, x in expected.items())
    with tb.open(path) as file:
        assert all(same(file[name][:2], x[:2]) for name, x in expected.items())
