"""What NumPy documents of its npy format, as tests of our own: what we write it reads, what it writes we read.

Each test names a rule of numpy.lib.format, or of np.save and np.load. Where we differ on purpose, the test says so, and
docs/safety.md lists it with the reason.
"""

import io
import struct
import warnings

import ml_dtypes
import numpy as np
import pytest
from numpy.lib import format as rules

import tensorbytes as tb
from tensorbytes import errors
from tests.support.npy_bytes import owner, same, saved

pytestmark = pytest.mark.filterwarnings("ignore:Stored array in format")
VERSIONS = [(1, 0), (2, 0), (3, 0)]


def in_version(x, version):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rules.write_array(file, x, version)
    return file.getvalue()


def parts(raw):
    """(version, the header's text, where the array starts)"""
    version = tuple(raw[6:8])
    size = struct.calcsize("<H" if version == (1, 0) else "<I")
    length = int.from_bytes(raw[8 : 8 + size], "little")
    return version, raw[8 + size : 8 + size + length], 8 + size + length


# ---- versions ---------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize(
    "x", [np.arange(6.0), np.array(3), np.array(["a", "日"]), np.zeros((2, 0)), np.zeros(2, "i4,f4")]
)
def test_every_version_is_written_byte_for_byte_and_read(x, version):
    want = in_version(x, version)
    assert tb.dumps(x, "npy", version=version) == want
    assert tb.dumps(x, "npy", version=f"{version[0]}.{version[1]}") == want
    assert np.array_equal(tb.loads(want), x)


def test_the_version_is_the_first_that_can_say_it():
    """Version 2 for headers over 65,535 bytes is beyond what either library reads unasked."""
    assert parts(tb.dumps(np.zeros(2, [("a", "<i4")]), "npy"))[0] == (1, 0)
    assert parts(tb.dumps(np.zeros(2, [("ä", "<i4")]), "npy"))[0] == (1, 0)  # Latin-1
    unicode = np.zeros(2, [("日本", "<i4")])
    assert parts(tb.dumps(unicode, "npy"))[0] == (3, 0)
    assert tb.dumps(unicode, "npy") == saved(unicode)


def test_a_version_that_cannot_say_it_is_refused():
    x = np.zeros(2, [("日本", "<i4")])
    for version in ((1, 0), (2, 0)):
        with pytest.raises(UnicodeEncodeError):
            in_version(x, version)
        with pytest.raises(errors.LossError, match=r"version [12]\.0.*version=\(3, 0\)"):
            tb.dumps(x, "npy", version=version)


@pytest.mark.parametrize("version", [(1, 1), (4, 0), "5", 1])
def test_unknown_versions_are_refused_on_both_sides(version):
    with pytest.raises(errors.UsageError, match="version"):
        tb.dumps(np.zeros(2), "npy", version=version)
    raw = bytearray(saved(np.zeros(2)))
    raw[6:8] = b"\4\0"
    with pytest.raises(ValueError, match="version"):
        np.load(io.BytesIO(raw))
    with pytest.raises(errors.UnsupportedError, match=r"4\.0"):
        tb.loads(bytes(raw), "npy")


def test_a_file_of_the_command_line_has_the_version_that_was_asked_for(tmp_path):
    tb.save(np.zeros(2), tmp_path / "x.npy")
    tb.convert(tmp_path / "x.npy", tmp_path / "y.npy", version="2.0")
    assert (tmp_path / "y.npy").read_bytes() == in_version(np.zeros(2), (2, 0))


# ---- the header -------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (10**9, 0), (2,) * 20], ids=str)
def test_the_array_starts_on_a_multiple_of_64_after_a_newline(shape, version):
    raw = tb.dumps(np.zeros(shape), "npy", version=version)
    _, text, start = parts(raw)
    assert start % rules.ARRAY_ALIGN == 0
    assert text.endswith(b"\n")


def test_the_keys_are_sorted_and_the_first_axis_has_room_to_grow():
    """The header of one row and of a million takes as many bytes."""
    one, many = (parts(saved(np.zeros(n, "u1")))[1] for n in (1, 10**6))
    ours = [parts(tb.dumps(np.zeros(n, "u1"), "npy"))[1] for n in (1, 10**6)]
    assert ours == [one, many]
    assert len(one) == len(many)
    assert one.index(b"descr") < one.index(b"fortran_order") < one.index(b"shape")


def test_the_last_axis_has_the_room_in_fortran_order():
    x = np.zeros((2, 3), order="F")
    assert parts(tb.dumps(x, "npy"))[1] == parts(saved(x))[1]


def test_keys_in_another_order_and_long_integers_of_python_2_are_read():
    text = b"{'shape': (2L,), 'fortran_order': False, 'descr': '<i4'}\n"
    raw = rules.MAGIC_PREFIX + b"\1\0" + struct.pack("<H", len(text)) + text + bytes(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.load(io.BytesIO(raw)).tolist() == tb.loads(raw).tolist() == [0, 0]


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '<i4', 'shape': (2,)}\n",
        b"{'descr': '<i4', 'fortran_order': 0, 'shape': (2,)}\n",
        b"{'descr': '<i4', 'fortran_order': False, 'shape': 2}\n",
        b"[]\n",
        b"{'a': 1}\n",
    ],
)
def test_other_dicts_are_no_headers(text):
    raw = rules.MAGIC_PREFIX + b"\1\0" + struct.pack("<H", len(text)) + text + bytes(8)
    with pytest.raises(ValueError):  # noqa: PT011  NumPy's, of several words
        np.load(io.BytesIO(raw))
    with pytest.raises(errors.CorruptError):
        tb.loads(raw, "npy")


# ---- order in memory --------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f4", "?", "<c16", "<M8[s]", ml_dtypes.bfloat16, "<i8"])
def test_fortran_order_is_kept_both_ways(dtype, tmp_path):
    x = np.asfortranarray(np.arange(24).reshape(2, 3, 4).astype("<i8").astype(np.dtype(dtype)))
    raw = tb.dumps(x, "npy")
    assert b"'fortran_order': True" in raw
    if dtype != ml_dtypes.bfloat16:  # which NumPy calls void
        assert raw == saved(x)
    path = tmp_path / "x.npy"
    path.write_bytes(raw)
    for got in (tb.loads(raw), tb.load(path), tb.load(path, mmap=True), tb.open(path).entries()[0].load()):
        assert got.flags.f_contiguous
        assert not got.flags.c_contiguous
        assert got.tobytes() == x.tobytes()
        assert got.dtype == x.dtype
    if dtype == "<f4":
        assert np.array_equal(tb.load(path, to="torch").numpy(), x)


def test_text_is_written_in_c_order():
    """Deliberately otherwise: text has one order here. The values are the same."""
    x = np.asfortranarray([["a", "b", "c"], ["d", "e", "f"]])
    assert tb.dumps(x, "npy") == saved(np.ascontiguousarray(x))
    assert np.array_equal(tb.loads(saved(x)), x)


def test_arrays_in_no_order_are_written_in_c_order():
    for x in (np.arange(24).reshape(4, 6)[::2, ::3], np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)):
        assert tb.dumps(x, "npy") == saved(x)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_keeps_it_too(save, tmp_path):
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    save(tmp_path / "x.npz", x=x)
    for got in (
        tb.load(tmp_path / "x.npz"),
        tb.load(tmp_path / "x.npz", mmap=True),
        tb.load(tmp_path / "x.npz", names="x"),
    ):
        assert got["x"].flags.f_contiguous
        assert same(np.ascontiguousarray(got["x"]), np.ascontiguousarray(x))
    tb.save({"x": x}, tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as file:
        assert file["x"].flags.f_contiguous
        assert np.array_equal(file["x"], x)


def test_a_mapped_array_in_fortran_order_is_not_copied(tmp_path):
    """np.load(mmap_mode="r") does not, either."""
    x = np.asfortranarray(np.arange(60_000.0).reshape(200, 300))
    np.save(tmp_path / "x.npy", x)
    got = tb.load(tmp_path / "x.npy", mmap=True)
    assert type(owner(got)).__name__ == "mmap"
    assert np.array_equal(got, x)
    assert type(owner(tb.load(tmp_path / "x.npy"))).__name__ != "mmap"
    tb.convert(tmp_path / "x.npy", tmp_path / "y.npy")
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()


def test_other_formats_hold_the_values_in_their_own_order():
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for format in ("tb", "safetensors", "torchfile", "arrow", "tensorproto", "onnx"):
        assert tb.dumps(x, format) == tb.dumps(np.ascontiguousarray(x), format)
        assert np.array_equal(tb.loads(tb.dumps(x, format), format), x)
    assert tb.equal(x, np.ascontiguousarray(x))


# ---- content ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2), ()], ids=str)
def test_arrays_without_elements_and_without_axes(shape):
    for x in (np.zeros(shape, "<i4"), np.zeros(shape, "<U0"), np.zeros(shape, "?")):
        assert np.array_equal(tb.loads(saved(x)), x)
    assert tb.dumps(np.zeros(shape, "<i4"), "npy") == saved(np.zeros(shape, "<i4"))


def test_objects_are_refused_as_without_allow_pickle():
    raw = saved(np.array([{}, None], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(io.BytesIO(raw))
    with pytest.raises(errors.UnsupportedError, match="pickle"):
        tb.loads(raw)


def test_arrays_one_after_another_are_read_one_after_another():
    file = io.BytesIO()
    for n in range(3):
        np.save(file, np.full(n, n))
    assert [x.tolist() for x in tb.loads(file.getvalue())] == [[], [1], [2, 2]]


def test_a_cut_array_is_refused():
    raw = saved(np.zeros(100))[:-1]
    with pytest.raises(ValueError):  # noqa: PT011
        np.load(io.BytesIO(raw))
    with pytest.raises(errors.CorruptError) as caught:
        tb.loads(raw)
    assert caught.value.at == len(raw)


def test_headers_over_the_limit_of_numpy_are_read_where_they_are_bounded():
    """NumPy refuses a header over 10,000 bytes unless it is told otherwise, since it evaluates it; we don't."""
    x = np.zeros(2, [(f"a long name of a field {n}", "<i4") for n in range(400)])
    raw = saved(x)
    with pytest.raises(ValueError, match="max_header_size"):
        np.load(io.BytesIO(raw))
    assert tb.loads(raw).dtype == x.dtype
    assert tb.dumps(x, "npy") == raw


# ---- bools ------------------------------------------------------------------


@pytest.mark.parametrize("order", "CF")
def test_bools_of_0_and_255(order, tmp_path):
    """NumPy reads them; they are damage to us unless they are asked for, also when the file is mapped."""
    raw = bytearray(saved(np.zeros((3, 4), bool, order=order)))
    start = len(raw) - 12
    raw[start + 5] = raw[start + 7] = 255
    path = tmp_path / "x.npy"
    path.write_bytes(raw)
    want = np.load(path).view(np.uint8) != 0
    assert want.sum() == 2
    for read in (tb.load, lambda path: tb.load(path, mmap=True), lambda path: tb.open(path).entries()[0].load()):
        with pytest.raises(errors.CorruptError, match=r"byte 255 \(element 5\).*bools='any'") as caught:
            read(path)
        assert caught.value.at == start + 5
    for got in (
        tb.load(path, bools="any"),
        tb.load(path, mmap=True, bools="any"),
        tb.open(path, bools="any").entries()[0].load(),
        tb.open(path, bools="any").entries()[0][:, :],
    ):
        assert np.array_equal(got, want)
        assert got.view(np.uint8).max() == 1
    with pytest.raises(errors.CorruptError, match="255"):
        tb.open(path).entries()[0][:]
    assert np.array_equal(tb.loads(tb.dumps(tb.load(path, bools="any"))), want)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_bools_in_npz(save, tmp_path):
    x = np.array([0, 255, 1], np.uint8).view(bool)
    save(tmp_path / "x.npz", x=x)
    for options in ({}, {"mmap": True}):
        with pytest.raises(errors.CorruptError, match="bools='any'"):
            tb.load(tmp_path / "x.npz", **options)
        assert tb.load(tmp_path / "x.npz", bools="any", **options)["x"].tolist() == [False, True, True]
    with pytest.raises(errors.UsageError, match="'any'"):
        tb.load(tmp_path / "x.npz", bools=True)
