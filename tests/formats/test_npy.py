"""The npy format beside NumPy: its bytes where they say everything, ours in a comment where not."""

import ast
import io
import itertools
import json
import mmap
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, errors, formats
from tensorbytes.formats._npy import header as npy_header
from tensorbytes.formats._npy import text as npy_text
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, identical
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

EXTENDED = [row.name for row in dtypes.DTYPES.values() if row.numpy and not hasattr(np, row.numpy)]


# ---- the same bytes ---------------------------------------------------------


@pytest.mark.parametrize("dtype", [*PLAIN, *TIMES])
def test_plain_arrays_give_the_bytes_of_numpy(dtype):
    for shape in SHAPES:
        x = filled(dtype, shape)
        assert tb.dumps(x, "npy") == saved(x)
        assert tb.dumps(other_order(x, ">"), "npy") == saved(other_order(x, "<"))
        assert same(tb.loads(saved(x)), x)


@pytest.mark.parametrize(
    "x",
    [
        np.array(["a", "", "日本語", "\U0001f600"]),
        np.array([["x", "nul\0in"], ["", "y"]]),
        np.array("scalar"),
        np.array(["wide"], "U300"),
        np.array([b"a", b"", b"\xff\0\xfe"]),
        np.array([b"abc"], "S77"),
        np.empty((0, 3), "U4"),
        np.array(["", ""]),
    ],
    ids=str,
)
def test_text_of_fixed_width_gives_the_bytes_of_numpy(x):
    data = tb.dumps(x, "npy")
    assert data == saved(x)
    assert same(tb.loads(data), x)
    assert same(tb.loads(saved(x.astype(x.dtype.newbyteorder(">")))), x)


def test_much_text(monkeypatch):
    """Turned block by block."""
    monkeypatch.setattr(npy_text, "_BLOCK", 64)
    words = np.array(["é" * (n % 7) + "z" * (n % 3) for n in range(999)])
    for x in (words, np.char.encode(words)):
        assert same(tb.loads(tb.dumps(x, "npy")), x)
        assert same(tb.loads(saved(np.asfortranarray(x.reshape(9, -1)))), x.reshape(9, -1))
    with pytest.raises(tb.errors.LimitError, match="max_bytes"):
        tb.loads(saved(np.zeros(1000, "S1")), limits=tb.errors.Limits(max_bytes=6000))
    assert tb.loads(saved(np.zeros(1000, "S8")), limits=tb.errors.Limits(max_bytes=0)).shape == (1000,)


def test_the_growing_axis_has_its_room():
    for size in (1, 9, 10, 99_999, 1 << 33):
        for shape in ((size, 0), (0, size)):
            assert tb.dumps(np.empty(shape, "f4"), "npy") == saved(np.empty(shape, "f4"))


# ---- NumPy reads what has a note --------------------------------------------


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_every_dtype_opens_in_numpy(name, tmp_path):
    x = Tensor(name, (3, 4), bits.content(name, (3, 4)), "w", {"unit": "m"})
    path = tmp_path / "x.npy"
    tb.save(x, path, sync=False)
    raw = path.read_bytes()
    for made in (np.load(path), np.load(path, mmap_mode="r"), np.load(io.BytesIO(raw))):
        assert made.shape == (3, 4)
        assert made.tobytes() == bytes(x.data)
    if name in EXTENDED:
        assert same(made.view(dtypes.to_numpy(name)), x.numpy())
    file = io.BytesIO(raw)
    version = np.lib.format.read_magic(file)
    assert np.lib.format.read_array_header_1_0(file)[:2] == ((3, 4), False)
    assert (version, file.tell() % 64) == ((1, 0), 0)
    back = tb.load(path, to="tensor")
    assert (back.name, back.meta, identical(back, x)) == ("w", {"unit": "m"}, True)


def test_older_numpy_ignores_the_comment_too():
    """Up to 1.23, NumPy ran every header through tokenize before evaluating it."""
    from numpy.lib import _format_impl

    raw = tb.dumps(Tensor("bfloat16", (3,), bytes(6), "a'\"\\\n#}é\0", {"k": "v\r\n"}), "npy")
    text = raw[10 : raw.index(b"\n", 10) + 1].decode("ascii")
    assert "# tensorbytes {" in text
    assert text.endswith(" \n")
    expected = {"descr": "<V2", "fortran_order": False, "shape": (3,)}
    assert ast.literal_eval(text) == expected
    assert ast.literal_eval(_format_impl._filter_header(text)) == expected
    assert ast.literal_eval(_format_impl._filter_header(text)[:-1]) == expected
    assert tb.loads(raw, to="tensor").name == "a'\"\\\n#}é\0"


def test_several_arrays_of_one_value_are_read_one_by_one_by_numpy():
    value = Ragged(Tensor("int16", (3,), np.arange(3, dtype=np.int16)), (np.array([0, 1, 3]),))
    file = io.BytesIO(tb.dumps(value, "npy"))
    assert np.load(file).tolist() == [0, 1, 2]
    assert np.load(file).tolist() == [0, 1, 3]
    assert file.read() == b""


def test_text_is_text_to_numpy():
    words = np.array(["a", "bcd", ""], object)
    made = np.load(io.BytesIO(tb.dumps(words, "npy")))
    assert made.dtype == "<U3"
    assert made.tolist() == words.tolist()
    assert np.load(io.BytesIO(tb.dumps("日本", "npy")))[()] == "日本"
    assert np.load(io.BytesIO(tb.dumps([b"a", b"bc"], "npy"))).tolist() == [b"a", b"bc"]


# ---- everything comes back --------------------------------------------------

SPLITS = np.array([0, 1, 3], np.int32)
TEXT = Strings.from_items(["a", "nul\0", "日本"], (3,), "utf-8")
VALUES = {
    "a name": Tensor("float32", (2,), bytes(8), "w"),
    "metadata": Tensor("float32", (2,), bytes(8), None, {"a": "b\n", "é": "\0"}),
    "bytes": Strings.from_items([b"a", b"b\0", b""], (3, 1), "bytes"),
    "bytes of one width": Strings.from_items([b"a", b"b"], (2,), "bytes"),
    "text": TEXT,
    "text of a width": Strings((1,), np.array([0, 2]), b"ab", "utf-8", "n", {"numpy.dtype": "<U9", "x": "y"}),
    "text of too small a width": Strings((1,), np.array([0, 2]), b"ab", "utf-8", None, {"numpy.dtype": "<U1"}),
    "text of no width": Strings((2,), np.zeros(3, int), b"", "utf-8", None, {"numpy.dtype": "<U0"}),
    "bytes said to be text": Strings((1,), np.array([0, 2]), b"ab", "bytes", None, {"numpy.dtype": "<U9"}),
    "one long among many": Strings.from_items([b"x" * 50_000, *[b""] * 1000], (1001,), "bytes"),
    "no strings": Strings.from_items([], (0, 2), "utf-8"),
    "a time": Tensor("datetime64", (1,), bytes(8), None, {"numpy.dtype": "<M8[ns]", "more": "x"}),
    "a time without a unit": Tensor("timedelta64", (1,), bytes(8)),
    "a time of a strange unit": Tensor("datetime64", (1,), bytes(8), None, {"numpy.dtype": "<M8[0s]"}),
    "ragged": Ragged(Tensor("bfloat16", (3,), bytes(6)), (SPLITS,), None, "r", {"m": "n"}),
    "ragged twice": Ragged(Tensor("int4", (3,), bytes(3)), (np.array([0, 2]), SPLITS)),
    "ragged with shapes": Ragged(Tensor("bool", (3,), bytes(3)), (SPLITS,), np.array([[1, 1], [1, 2]])),
    "ragged text": Ragged(TEXT, (SPLITS,)),
    "ragged short text": Ragged(Strings.from_items(["a", "b", "c"], (3,), "utf-8"), (SPLITS,)),
    "coo": Sparse("coo", (3, 4), (np.array([[2, 1], [0, 0]]),), Tensor("float8_e5m2", (2,), b"ab")),
    "csr": Sparse("csr", (2, 4), (np.array([0, 1, 1]), np.array([3])), Tensor("float64", (1,), bytes(8))),
    "dia": Sparse("dia", (4, 4), (np.array([-1]),), Tensor("qint8", (1, 3), b"abc")),
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("format", ["npy", "npz"])
def test_neutral_values_come_back(value, format, tmp_path):
    raw = tb.dumps(value, format)
    path = tmp_path / "x"
    path.write_bytes(raw)
    with tb.open(path, format=format, to="tensor") as file:
        (entry,) = file.entries()
        found = [tb.loads(raw, to="tensor"), entry.load(), tb.load(path, to="tensor", mmap=True)]
    for made in found:
        assert (made.name, made.meta) == (value.name, value.meta)
        assert identical(made, value)


@pytest.mark.parametrize(
    "x",
    [None, True, 7, -(10**30), 2.5, 1j, "text", "nul\0", b"bytes", "", b"", [1, 2], ("a", "b"), [], {}, ()],
    ids=repr,
)
@pytest.mark.parametrize("format", ["npy", "npz"])
def test_python_values_come_back(x, format):
    made = tb.loads(tb.dumps(x, format))
    assert (made, type(made)) == (x, type(x))


@pytest.mark.parametrize(
    "x", [{"a": np.ones(2)}, [np.ones(2), np.ones(3)], {"a": {"b": 1}}], ids=["dict", "list", "nested"]
)
def test_a_structure_is_for_npz(x):
    with pytest.raises(tb.errors.LossError, match="npz") as caught:
        tb.dumps(x, "npy")
    assert caught.value.feature == "structure"


def test_a_note_that_numpy_would_not_read_is_refused(tmp_path):
    x = np.arange(3)
    for size in range(9750, 9850, 7):
        raw = tb.dumps(x, "npy", meta={"k": "v" * size})
        assert np.load(io.BytesIO(raw)).tolist() == [0, 1, 2]
    for size in (9990, 70_000):
        with pytest.raises(tb.errors.LossError, match=r"allow=\{'meta'\}") as caught:
            tb.save(x, tmp_path / "x.npy", meta={"k": "v" * size})
        assert caught.value.feature == "meta"
        assert tb.loads(tb.dumps(x, "npy", meta={"k": "v" * size}, name="n", allow="meta"), to="tensor").name == "n"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tb.errors.LossError) as caught:
        tb.dumps(x, "npy", name="n" * 20_000, allow="meta")
    assert caught.value.feature == "name"


def test_nothing_is_copied():
    x = np.arange(1000.0)
    head, body = tb.buffers(x, "npy")
    assert np.shares_memory(np.frombuffer(body, np.uint8), x)
    made = tb.loads(bytearray(tb.dumps(x, "npy")))
    assert made.flags.writeable
    raw = tb.dumps(x, "npy")
    assert np.shares_memory(tb.loads(raw), np.frombuffer(raw, np.uint8))
    assert len(head) % 64 == 0


# ---- what NumPy writes ------------------------------------------------------


@pytest.mark.parametrize("dtype", [*PLAIN, *TIMES, "U3", "S5"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_foreign_arrays_in_any_order(dtype, order, tmp_path):
    path = tmp_path / "x.npy"
    text = np.array(["ab", "", "é"] if dtype[0] == "U" else [b"ab", b"", b"c\0d"], "U3" if dtype == "U3" else "S5")
    for shape in SHAPES:
        x = np.resize(text, shape) if dtype[0] in "US" else filled(dtype, shape)
        np.save(path, other_order(x, order))
        assert same(tb.load(path), x)
        with tb.open(path) as file:
            (entry,) = file.entries()
            assert (entry.shape, entry.kind) == (shape, "strings" if dtype[0] in "US" else "tensor")
            assert same(entry.load(), x)
            assert same(np.asarray(entry), x)
            if x.ndim and x.shape[0]:
                assert same(entry[-1:], x[-1:])
                assert same(entry[..., ::2], np.ascontiguousarray(x[..., ::2]))
                item = entry[0]  # one string is what NumPy gives: text, not an array
                assert same(np.asarray(item, x.dtype), np.asarray(x[0], x.dtype))
                assert dtype[0] not in "US" or type(item) is type(x[0])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_is_read(version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.arange(5.0), version)
    assert tb.loads(file.getvalue()).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "text",
    [
        header("'<f4'"),
        header('"<f4"'),
        header("'f4'"),
        header("'=f4'"),
        header("'|f4'"),
        header(shape="(2L,)"),
        header(shape="(2L, 1L)"),
        header(shape="(1,2,)"),
        header(shape="( 2 ,\t)"),
        "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
        header(after=" # of another program"),
        header(after="\n\n"),
        "\n " + header(),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading .* required additional header parsing")
def test_spellings_that_numpy_reads(text):
    data = npy(text, struct.pack("<2f", 1, 2))
    expected = np.load(io.BytesIO(data)) if not text.startswith("\n ") else np.array([1, 2], "f4")
    assert same(tb.loads(data), expected)


@pytest.mark.parametrize("name", EXTENDED)
def test_void_arrays_want_their_dtype_told(name):
    x = np.frombuffer(bits.content(name, (2, 3)), dtypes.to_numpy(name)).reshape(2, 3)
    data = saved(x)
    with pytest.raises(tb.errors.UnsupportedError, match="dtype="):
        tb.loads(data)
    for told in (name, x.dtype):
        assert same(tb.loads(data, dtype=told), x)
    with pytest.raises(tb.errors.UsageError, match="float64"):
        tb.loads(data, dtype="float64")


def test_the_option_dtype_is_checked():
    with pytest.raises(tb.errors.UsageError, match="nonsense"):
        tb.loads(saved(np.zeros(2, "V2")), dtype="nonsense")
    assert tb.loads(saved(np.arange(3)), dtype="bfloat16").dtype == np.int64  # for void arrays alone
    with pytest.raises(tb.errors.UsageError, match="no option"):
        tb.dumps(np.arange(3), "npy", dtype="bfloat16")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.array([Bomb()], object), "pickle"),
        (np.zeros(2, [("a", "O")]), "structured"),
        (np.zeros(2, np.longdouble), "long double"),
        (np.zeros(2, np.clongdouble), "long double"),
        (np.zeros(2, "V7"), "void"),
    ],
    ids=["object", "structured object", "longdouble", "clongdouble", "void"],
)
def test_what_has_no_portable_form_is_refused_by_name(x, words):
    with pytest.raises(tb.errors.UnsupportedError, match=words):
        tb.loads(saved(x))


# ---- several arrays in a file -----------------------------------------------


def test_arrays_one_after_another_are_a_list(tmp_path):
    arrays = [np.arange(3), np.ones((2, 2), "f4"), np.array(["a"]), np.empty(0)]
    path = tmp_path / "x.npy"
    path.write_bytes(saved(*arrays))
    made = tb.load(path)
    assert len(made) == 4
    assert all(map(same, made, arrays))
    with tb.open(path) as file:
        assert len(file) == 4
        assert same(file[1], arrays[1])
        assert all(map(same, file, arrays))


def test_values_of_several_arrays_one_after_another():
    ragged = VALUES["ragged"]
    raw = tb.dumps(ragged, "npy") + saved(np.arange(2)) + tb.dumps("nul\0", "npy") + tb.dumps(ragged, "npy")
    one, two, three, four = tb.loads(raw, to="tensor")
    assert identical(one, ragged)
    assert identical(four, ragged)
    assert two.numpy().tolist() == [0, 1]
    assert three == "nul\0"


@pytest.mark.parametrize("tail", [b"\0", b"\n", b"\x93NUMP", b"PK\3\4" + bytes(50)])
def test_bytes_after_the_last_array_are_noticed(tail):
    data = saved(np.arange(3))
    with pytest.raises(tb.errors.CorruptError) as caught:
        tb.loads(data + tail, "npy")
    assert len(data) <= caught.value.at <= len(data + tail)


def test_a_value_without_its_further_arrays():
    raw = tb.dumps(VALUES["ragged"], "npy")
    second = raw.index(b"\x93NUMPY", 1)
    with pytest.raises(tb.errors.CorruptError, match="ends before"):
        tb.loads(raw[:second])
    with pytest.raises(tb.errors.CorruptError, match="part of nothing"):
        tb.loads(raw[second:])
    with pytest.raises(tb.errors.CorruptError, match="not its own"):
        tb.loads(raw[:second] + saved(np.array([0, 1, 3], np.int32)))


# ---- lazy -------------------------------------------------------------------


def test_an_opened_array_is_a_view_of_the_map(tmp_path):
    path = tmp_path / "x.npy"
    x = np.arange(100_000, dtype=np.float32).reshape(1000, 100)
    np.save(path, x)
    with tb.open(path) as file:
        (entry,) = file.entries()
        part = entry[10:20]
        assert same(part, x[10:20])
        assert isinstance(owner(part), mmap.mmap)
        assert not part.flags.writeable
        assert part.ctypes.data % 16 == 0


def test_slices_look_at_nothing_else(tmp_path):
    """A file whose other bytes are no values: only loading the whole notices."""
    x = np.asfortranarray(np.zeros((50, 40), bool))
    path = tmp_path / "x.npy"
    for given in (x, np.ascontiguousarray(x)):
        raw = bytearray(saved(given))
        raw[-1] = 7
        path.write_bytes(raw)
        with tb.open(path) as file:
            (entry,) = file.entries()
            assert not entry[:, :3].any()
            with pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
                entry.load()
        with pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
            tb.load(path)


def test_sub_byte_values_are_looked_at():
    raw = bytearray(tb.dumps(np.zeros(5, ml_dtypes.int4), "npy"))
    raw[-1] = 0x80
    with pytest.raises(tb.errors.CorruptError, match="int4"):
        tb.loads(raw)


# ---- hostile ----------------------------------------------------------------

NOTE = ' # tensorbytes {"dtype":"bfloat16"}'
CORRUPT = {
    "1 empty": b"",
    "2 magic only": b"\x93NUMPY",
    "2 magic and version": b"\x93NUMPY\1\0",
    "2 half a length": b"\x93NUMPY\2\0\1\0",
    "3 header longer than the file": b"\x93NUMPY\1\0\xff\xff{'descr'",
    "19 negative dimension": npy(header(shape="(-1,)")),
    "20 minus one among others": npy(header(shape="(2, -1)")),
    "21 product overflows": npy(header(shape=f"({1 << 32}, {1 << 32})")),
    "22 bytes overflow": npy(header(shape=f"({1 << 61},)")),
    "23 zero first": npy(header(shape=f"(0, {1 << 62}, {1 << 62})")),
    "23 zero last": npy(header(shape=f"({1 << 62}, {1 << 62}, 0)")),
    "27 True": npy(header(shape="(True,)")),
    "27 float": npy(header(shape="(2.0,)"), bytes(8)),
    "27 exponent": npy(header(shape="(2e0,)"), bytes(8)),
    "27 string": npy(header(shape="('2',)"), bytes(8)),
    "27 None": npy(header(shape="(None,)")),
    "27 hexadecimal": npy(header(shape="(0x2,)"), bytes(8)),
    "27 leading zero": npy(header(shape="(02,)"), bytes(8)),
    "27 underscore": npy(header(shape="(1_0,)"), bytes(40)),
    "29 too few bytes": npy(header(), bytes(7)),
    "43 number of many digits": npy(header(shape=f"({'9' * 5000},)")),
    "81 nested": npy(header(shape="(" * 5000 + ")" * 5000)),
    "81 nested brackets": npy("[" * 9000),
    "81 sum": npy(header(shape="(" + "1+" * 4000 + "1,)")),
    "81 power": npy(header(shape="(9**9**9,)")),
    "81 call": npy(header(shape="(__import__('os').getpid(),)")),
    "81 unary": npy(header(shape="(" + "-" * 9000 + "1,)")),
    "duplicate key": npy("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", bytes(16)),
    "missing key": npy("{'descr': '<f4', 'shape': (2,), }", bytes(8)),
    "another key": npy(header()[:-1] + "'x': 1, }", bytes(8)),
    "no dict": npy("('<f4', False, (2,))", bytes(8)),
    "no header": npy("", bytes(8)),
    "cut dict": npy(header()[:-1], bytes(8)),
    "something after": npy(header(after=" 1"), bytes(8)),
    "something after the comment": npy(header(after="# x\n1"), bytes(8)),
    "escape in a string": npy(header(descr="'<f\\x34'"), bytes(8)),
    "string over two lines": npy(header(descr="'<f\n4'"), bytes(8)),
    "order as a number": npy(header(fortran="0"), bytes(8)),
    "shape as a list": npy(header(shape="[2]"), bytes(8)),
    "shape as a number": npy(header(shape="2"), bytes(8)),
    "shape as a number in parentheses": npy(header(shape="(2)"), bytes(8)),
    "shape of commas": npy(header(shape="(,)"), bytes(8)),
    "shape without commas": npy(header(shape="(1 2)"), bytes(8)),
    "45 not UTF-8": npy(header(after=" # \xff").encode("latin-1"), bytes(8), (3, 0)),
    "33 bool of 2": npy(header(descr="'|b1'"), b"\1\2"),
    "text beyond Unicode": npy(header(descr="'<U1'"), struct.pack("<2I", 0x61, 0x110000)),
    "note: no JSON": npy(header("'<V2'", after=" # tensorbytes {"), bytes(4)),
    "note: no object": npy(header("'<V2'", after=" # tensorbytes []"), bytes(4)),
    "note: null": npy(header("'<V2'", after=" # tensorbytes null"), bytes(4)),
    "note: duplicate": npy(header("'<V2'", after=' # tensorbytes {"dtype":"bfloat16","dtype":"float16"}'), bytes(4)),
    "note: deep": npy(header("'<V2'", after=" # tensorbytes " + "[" * 9000), bytes(4)),
    "note: unknown key": npy(header("'<V2'", after=' # tensorbytes {"surprise":1}'), bytes(4)),
    "note: dtype of another width": npy(header("'<f4'", after=NOTE), bytes(8)),
    "note: dtype on text": npy(header("'<U1'", after=NOTE), bytes(8)),
    "note: encoding on numbers": npy(header(after=' # tensorbytes {"encoding":"utf-8"}'), bytes(8)),
    "note: parts of numbers": npy(header(after=' # tensorbytes {"layout":"coo","parts":[1]}'), bytes(8)),
    "note: parts twice": npy(header(after=' # tensorbytes {"layout":"coo","parts":["a","a"]}'), bytes(8)) * 3,
    "note: kind": npy(header(after=' # tensorbytes {"kind":"str"}'), bytes(8)),
}  # fmt: skip
OTHERS = {
    "16 unknown version": (b"\x93NUMPY\x09\1" + npy(header(), bytes(8))[8:], errors.UnsupportedError, "9.1"),
    "26 rank 65": (npy(header(shape="(" + "1," * 65 + ")"), bytes(4)), errors.LimitError, "rank 65"),
    "26 rank of thousands": (npy(header(shape="(" + "1," * 20_000 + ")"), bytes(4)), errors.LimitError, "rank"),
    "28 strings of no width": (npy(header("'<U0'", shape=f"({1 << 40},)")), errors.LimitError, "max_bytes"),
    "30 unknown dtype": (npy(header("'<f3'"), bytes(8)), errors.UnsupportedError, "f3"),
    "30 a name": (npy(header("'float32'"), bytes(8)), errors.UnsupportedError, "float32"),
    "30 nothing": (npy(header("''"), bytes(8)), errors.UnsupportedError, "''"),
    "30 a unit that is none": (npy(header("'<M8[x]'"), bytes(16)), errors.UnsupportedError, "M8"),
    "30 a unit of zero": (npy(header("'<M8[0s]'"), bytes(16)), errors.UnsupportedError, "M8"),
    "30 a width of many digits": (npy(header("'<U99999999999'")), errors.UnsupportedError, "U9"),
    "31 object": (npy(header("'|O'"), b"cposix\nsystem\n"), errors.UnsupportedError, "pickle"),
    "32 of objects": (npy(header("[('a', '|O')]"), bytes(16)), errors.UnsupportedError, "Python objects"),
    "32 recursive": (npy(header("[" * 9000), bytes(8)), errors.CorruptError, "nested deeper"),
    "32 a field twice": (npy(header("[('a', '<f4'), ('a', '<f4')]"), bytes(16)), errors.UnsupportedError, "twice"),
    "32 an element over 2 GiB": (
        npy(header("[('a', '<f4', (2147483647,))]"), bytes(8)),
        errors.UnsupportedError,
        "bytes",
    ),
    "32 of no fields": (npy(header("[]"), bytes(8)), errors.UnsupportedError, "structured"),
    "44 surrogate": (npy(header("'<U1'"), struct.pack("<2I", 0xD800, 0x61)), errors.UnsupportedError, "surrogate"),
    "82 header of 4 GiB": (b"\x93NUMPY\2\0\xff\xff\xff\xff" + header().encode(), errors.LimitError, "header"),
    "82 header of 4 GiB, version 3": (b"\x93NUMPY\3\0\xff\xff\xff\xff" + bytes(99), errors.LimitError, "header"),
    "note: unknown dtype": (npy(header("'<V2'", after=NOTE[:-10] + 'x"}'), bytes(4)), errors.UnsupportedError, "'x'"),
}  # fmt: skip


@pytest.mark.parametrize("raw", CORRUPT.values(), ids=CORRUPT)
def test_corrupt(raw):
    with pytest.raises(errors.CorruptError) as caught:
        tb.loads(raw, "npy")
    assert 0 <= caught.value.at <= len(raw)


@pytest.mark.parametrize(("raw", "kind", "words"), OTHERS.values(), ids=OTHERS)
def test_refused(raw, kind, words):
    with pytest.raises(kind, match=words.replace("[", r"\[")) as caught:
        tb.loads(raw, "npy")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("raw", "shape"),
    [
        (npy(header(shape=f"(0, {1 << 40})")), (0, 1 << 40)),
        (npy(header(shape="()"), bytes(4)), ()),
        (npy(header("'<U0'", shape="(3,)")), (3,)),
        (npy(header("'<V2'", after=NOTE), bytes(4)), (2,)),
    ],
    ids=["24 empty and wide", "25 rank 0", "28 few strings of no width", "a note"],
)
def test_accepted(raw, shape):
    assert tb.loads(raw).shape == shape


def small_files():
    yield tb.dumps(np.arange(3, dtype=np.int16), "npy")
    yield tb.dumps(Tensor("bfloat16", (2,), bytes(4), "n", {"k": "v"}), "npy")
    yield tb.dumps(VALUES["ragged text"], "npy")
    yield tb.dumps(np.array(["ab", "c"]), "npy")
    yield saved(np.asfortranarray(np.ones((2, 2), ">f4")))


@pytest.mark.parametrize("raw", list(small_files()), ids=["plain", "noted", "ragged", "text", "fortran"])
def test_damage_is_noticed_or_harmless(raw):
    for end in range(len(raw)):
        with pytest.raises(RAISED):
            tb.loads(raw[:end], "npy")
    for at, bit in itertools.product(range(len(raw)), range(8)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << bit
        check_offsets(bytes(damaged), "npy")


# Reads each file with little memory above what it started with.
CHILD = """
import io, json, resource, sys
import numpy, tensorbytes as tb
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
out = {}
for name, text in json.load(sys.stdin).items():
    raw = bytes.fromhex(text)
    for lazy in (False, True):
        try:
            [e.load() for e in tb.open(io.BytesIO(raw), format="npy").entries()] if lazy else tb.loads(raw, "npy")
            out[f"{name}, {lazy}"] = "loaded"
        except BaseException as error:
            out[f"{name}, {lazy}"] = type(error).__name__
print(json.dumps(out))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
def test_claims_without_the_memory_for_them():
    claims = {
        "dense": npy(header(shape=f"({1 << 40},)"), bytes(8)),
        "fortran": npy(header(fortran="True", shape=f"({1 << 20}, {1 << 20})"), bytes(8)),
        "text": npy(header("'<U999999999'", shape="(9,)"), bytes(8)),
        "no width": npy(header("'|S0'", shape=f"({1 << 30},)")),
        "no width, again and again": npy(header("'|S0'", shape=f"({1 << 26},)")) * 9,
        "4 GiB header": OTHERS["82 header of 4 GiB"][0],
    }
    given = json.dumps({name: raw.hex() for name, raw in claims.items()})
    run = subprocess.run([sys.executable, "-c", CHILD], input=given, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    outcomes = json.loads(run.stdout)
    assert len(outcomes) == 2 * len(claims)
    assert set(outcomes.values()) <= {"CorruptError", "LimitError"}


def test_long_headers_are_not_looked_at():
    for text in (header(shape="(" + "1," * 40_000 + ")"), header(after=" " * 70_000)):
        with pytest.raises(errors.LimitError, match="header"):
            tb.loads(npy(text, bytes(8), (2, 0)))
    assert tb.loads(npy(header(after=" " * 60_000), bytes(8), (2, 0))).tolist() == [0, 0]


def test_headers_that_were_seen_are_not_parsed_again():
    npy_header._parse_and_keep.cache_clear()
    data = saved(np.arange(3))
    tb.loads(data)
    tb.loads(data)
    assert npy_header._parse_and_keep.cache_info().hits == 1


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
def test_the_corpus_reads_as_numpy_reads_it():
    path = REAL_FILES / "quickdraw_airplane.npy"
    x = np.load(path)
    assert same(tb.load(path), x)
    assert tb.dumps(x, "npy") == saved(x)  # the file is of an older NumPy, which padded its header less
    with tb.open(path) as file:
        (entry,) = file.entries()
        assert same(entry[-3:], x[-3:])


def test_the_first_bytes_tell():
    assert formats.sniff(saved(np.arange(2)), 200) == "npy"


# ---- the rows of a ragged value -----------------------------------------------


def test_rows_by_their_number():
    flat = Tensor("int16", (5,), np.arange(5, dtype=np.int16))
    splits = np.array([0, 2, 2, 5])
    text = Ragged(Strings.from_items("abcde", (5,), "utf-8"), (splits,))
    assert [row.tolist() for row in text] == [["a", "b"], [], ["c", "d", "e"]]
    shaped = Ragged(flat, (splits,), np.array([[2, 1], [0, 7], [1, 3]]))
    assert [row.shape for row in shaped] == [(2, 1), (0, 7), (1, 3)]
    for value in (Ragged(flat, (splits,)), text, shaped):
        rows = value.rows()
        for number in range(-3, 3):
            assert type(value[number]) is np.ndarray
            assert np.array_equal(value[number], rows[number])
        for wrong in (3, -4):
            with pytest.raises(IndexError):
                value[wrong]
        with pytest.raises(TypeError):
            value["x"]
    deep = Ragged(flat, (np.array([0, 1, 3]), splits))
    assert [row.tolist() for row in deep[-1]] == [[], [2, 3, 4]]


def test_rows_of_the_same_shape_make_a_dense_array():
    flat = Tensor("int16", (12,), np.arange(12, dtype=np.int16))
    halves, thirds = np.array([0, 6, 12]), np.array([0, 4, 8, 12])
    assert np.asarray(Ragged(flat, (halves,))).tolist() == np.arange(12).reshape(2, 6).tolist()
    deep = Ragged(flat, (np.array([0, 3]), thirds))
    assert np.asarray(deep).tolist() == np.arange(12).reshape(1, 3, 4).tolist()
    shaped = Ragged(flat, (halves,), np.array([[2, 3], [2, 3]]))
    assert np.asarray(shaped).tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    assert np.asarray(Ragged(Tensor("int16", (0, 2), b""), (np.array([0]),))).shape == (0, 0, 2)
    for uneven in (
        Ragged(flat, (np.array([0, 5, 12]),)),
        Ragged(flat, (halves,), np.array([[2, 3], [3, 2]])),
        Ragged(flat, (np.array([0, 1, 3]), thirds)),
    ):
        for kind in (ValueError, tb.errors.UnsupportedError):
            with pytest.raises(kind, match="rows of different shapes"):
                np.asarray(uneven)


def test_what_a_ragged_value_shows():
    flat = Tensor("float32", (5,), bytes(20))
    splits = np.array([0, 0, 4, 5])
    assert repr(Ragged(flat, (splits,))) == "Ragged(3 rows of float32, lengths 0 to 4)"
    named = Ragged(flat, (splits,), np.array([[0, 9], [2, 2], [1, 1]]), "r", {"a": "b"})
    assert repr(named) == "Ragged(3 rows of float32, sizes 0 to 4, name='r', meta={'a': 'b'})"
    assert repr(Ragged(Strings.from_items([], (0,), "bytes"), (np.array([0]),))) == "Ragged(0 rows of strings)"


def test_a_mask_is_not_dropped():
    with pytest.raises(tb.errors.UnsupportedError, match=r"a mask, which np\.asarray\(x\) would drop"):
        tb.dumps(np.ma.masked_array([1, 2], [0, 1]), "npy")


def test_each_tensor_in_a_file_of_its_own_keeps_its_order(tmp_path):
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    tb.save({"x": x, "y": x.T}, tmp_path / "x.npz")
    tb.convert(tmp_path / "x.npz", tmp_path / "{name}.npy")
    assert np.load(tmp_path / "x.npy").flags.f_contiguous
    assert np.load(tmp_path / "x.npy").tolist() == x.tolist()
    assert np.load(tmp_path / "y.npy").flags.c_contiguous
