"""NumPy's structured arrays: byte for byte in npy and npz, dicts of their fields elsewhere."""

import io
import json
import re

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors, structs
from tests.support.npy_bytes import header, npy, saved

# What NumPy says of every file of version 3.
pytestmark = pytest.mark.filterwarnings("ignore:Stored array in format")
DTYPES = {
    "plain": [("a", "<i4"), ("b", "<f8")],
    "subarrays": [("a", "<i2", (2, 3)), ("b", "u1", (4,))],
    "nested": [("p", [("x", "<f4"), ("q", [("y", "<i8"), ("z", "?")])], (2,)), ("n", "<u2")],
    "text and times": [("s", "S5"), ("u", "<U3"), ("t", "<M8[ns]"), ("d", "<m8[3D]")],
    "the other byte order": [("a", ">i4"), ("b", "<c8"), ("u", ">U2"), ("t", ">M8[s]")],
    "titles": [(("Title of a", "a"), "<i4"), (("Ünicode", "b"), "<f4")],
    "padding": np.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"], "offsets": [3, 8], "itemsize": 24}),
    "aligned": np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2")], align=True),
    "odd names": [("it's", "<i4"), ('"\\\n', "<i4"), ("日本", "<i4"), (" ", "<i4")],
    "one field": [("only", "<f4")],
    "of no width": [("a", "<i4"), ("e", "S0"), ("n", "<f4", (0,))],
}


def filled(dtype, shape, seed=0):
    """Every field with values of its own; padding is zero."""
    x = np.zeros(shape, dtype)
    random = np.random.default_rng(seed)

    def fill(view):
        if view.dtype.names:
            for name in view.dtype.names:
                fill(view[name])
        elif view.dtype.kind == "U":
            view[...] = np.array(["", "é", "日本語"])[random.integers(0, 3, view.shape)]
        elif view.dtype.kind == "S":
            view[...] = np.array([b"", b"a\0b", b"\xff\xfe"])[random.integers(0, 3, view.shape)]
        elif view.dtype.kind == "b":
            view[...] = random.integers(0, 2, view.shape)
        else:
            view[...] = random.integers(0, 100, view.shape).astype("i8").astype(view.dtype)

    fill(x)
    return x


def same(a, b):
    """Padding, of which NumPy copies whatever stands there, does not count."""
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.names:
        return all(same(a[name], b[name]) for name in a.dtype.names)
    return a.tobytes() == b.tobytes()


def expected(x):
    """As np.load gives it back: without a flag that says that padding is meant."""
    return np.load(io.BytesIO(saved(x)))


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", DTYPES)
def test_npy_is_that_of_numpy_byte_for_byte(name, shape, tmp_path):
    x = filled(DTYPES[name], shape)
    assert tb.dumps(x, "npy") == saved(x)
    path = tmp_path / "x.npy"
    path.write_bytes(saved(x))
    for got in (tb.loads(saved(x)), tb.load(path), tb.load(path, mmap=True), next(iter(tb.open(path)))):
        assert same(got, expected(x))
    assert tb.verify(path).ok


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", DTYPES)
def test_npz_both_ways(name, save, tmp_path):
    x, y = filled(DTYPES[name], (4,)), np.arange(3)
    save(tmp_path / "x.npz", x=x, y=y)
    for got in (tb.load(tmp_path / "x.npz"), tb.load(tmp_path / "x.npz", mmap=True)):
        assert same(got["x"], expected(x))
        assert got["y"].tolist() == [0, 1, 2]
    tb.save({"x": x, "deep": [x, y]}, tmp_path / "y.npz", compression=None if save is np.savez else "deflate")
    with np.load(tmp_path / "y.npz") as file:
        assert same(file["x"], expected(x))
    back = tb.load(tmp_path / "y.npz")
    assert same(back["x"], expected(x))
    assert same(back["deep"][0], expected(x))


@pytest.mark.parametrize("format", ["tb", "safetensors", "torchfile", "arrow", "parquet", "delimited"])
def test_other_formats_hold_the_fields_and_give_the_array_back(format):
    x = filled(DTYPES["nested"], (4,))
    got = tb.loads(tb.dumps({"x": x, "w": np.ones(2)}, format), format)
    assert same(got["x"], x)
    fields = tb.loads(tb.dumps(x, format), format, to="torch")
    assert fields["p"]["q"]["y"].tolist() == x["p"]["q"]["y"].tolist()
    neutral = tb.loads(tb.dumps(x, format), format, to="tensor")
    assert neutral["n"].dtype == "uint16"
    assert same(tb.loads(tb.dumps(x, format), format, to="original"), x)


def test_checkpoints_hold_them_too(tmp_path):
    x = filled(DTYPES["padding"], (4,))
    tb.save({"x": x}, tmp_path / "m.ckpt")
    assert same(tb.load(tmp_path / "m.ckpt")["x"], expected(x))


@pytest.mark.parametrize("format", ["protobuf", "tensorproto", "onnx", "raw"])
def test_formats_of_one_tensor_name_the_fields(format):
    with pytest.raises(errors.LossError, match=r"a.*b"):
        tb.dumps(filled(DTYPES["plain"], (4,)), format)


def test_fields_are_listed_and_sliced_alone(tmp_path):
    x = filled(DTYPES["nested"], (4,))
    np.save(tmp_path / "x.npy", x)
    with tb.open(tmp_path / "x.npy") as file:
        assert file.keys() == ["p/x", "p/q/y", "p/q/z", "n"]
        assert file["p/q/y"][1:3].tolist() == x["p"]["q"]["y"][1:3].tolist()
        assert file["p/q/z"].load().tolist() == x["p"]["q"]["z"].tolist()
    assert [each.shape for each in tb.inspect(tmp_path / "x.npy").tensors] == [(4, 2), (4, 2), (4, 2), (4,)]
    assert list(tb.load(tmp_path / "x.npy", names=["n"])) == ["n"]


def test_from_npy_to_npz_and_back_through_the_frame(tmp_path):
    x = filled(DTYPES["the other byte order"], (2, 3))
    np.save(tmp_path / "x.npy", x)
    for source, target in (("x.npy", "x.npz"), ("x.npz", "x.tb"), ("x.tb", "y.npy")):
        tb.convert(tmp_path / source, tmp_path / target, verify=True)
    assert same(np.load(tmp_path / "y.npy"), x)


def test_the_order_in_memory_is_kept():
    x = np.zeros((2, 3), DTYPES["padding"], order="F")
    x["a"] = np.arange(6).reshape(2, 3)
    assert tb.dumps(x, "npy") == saved(x)
    got = tb.loads(saved(x))
    assert got.flags.f_contiguous
    assert same(got, expected(x))


def test_an_element_is_an_element():
    x = filled(DTYPES["plain"], (3,))
    for format in ("npy", "npz", "tb"):
        got = tb.loads(tb.dumps(x[1], format))
        assert type(got) is np.void
        assert got == x[1]


def test_what_padding_holds_is_not_data():
    x = filled(DTYPES["aligned"], (3,))
    dirty = bytearray(saved(x))
    dirty[-1] = 77  # after the last field
    assert np.array_equal(tb.loads(bytes(dirty)), x)
    assert tb.dumps(tb.loads(bytes(dirty)), "npy") == saved(x)


def test_fields_that_are_no_longer_what_they_were_stay_a_dict(tmp_path):
    x = filled(DTYPES["plain"], (4,))
    tb.save({"x": x}, tmp_path / "x.npz")
    tb.convert(tmp_path / "x.npz", tmp_path / "cast.tb", cast="float32")
    got = tb.load(tmp_path / "cast.tb")["x"]
    assert got["b"].dtype == np.float32
    tb.convert(tmp_path / "x.npz", tmp_path / "part.tb", names=["x/a"])
    assert "struct" not in str(type(tb.load(tmp_path / "part.tb")))
    assert np.array_equal(next(iter(_arrays(tb.load(tmp_path / "part.tb")))), x["a"])


def _arrays(found):
    return _arrays(next(iter(found.values()))) if isinstance(found, dict) else [found]


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ([("a", "<i4"), ("o", "O")], "fields a, o.*Python objects"),
        (np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 2]}), "fields a, b that overlap"),
        (np.dtype({"names": ["b", "a"], "formats": ["<i4", "<i4"], "offsets": [4, 0]}), "another order.*repack_fields"),
        ([("v", "V7")], "no portable form"),
        ([("g", "g")], "long double"),
    ],
    ids=["objects", "overlapping", "out of order", "void", "long double"],
)
def test_what_has_no_portable_form_is_refused_by_name(dtype, words):
    with pytest.raises(errors.UnsupportedError, match=words):
        tb.dumps(np.zeros(2, dtype))


@pytest.mark.parametrize("format", ["tb", "npz"])
def test_a_struct_that_is_left_of_a_list_is_one(format):
    x = np.array([(1.5, 2)], [("x", "f8"), ("y", "i4")])
    got = tb.loads(tb.dumps({"l": [x, (x, 1)]}, format), names=["l/1/0/*"])
    assert same(got["l"][1][0], x)


def test_structs_that_were_left_out_are_no_loss(tmp_path):
    tb.save({"s": np.zeros(2, [("x", "f8"), ("y", "i4")]), "w": np.ones(3)}, tmp_path / "x.tb")
    for name in ("w", "s/x"):
        tb.convert(tmp_path / "x.tb", tmp_path / "x.npy", names=name)
        assert np.load(tmp_path / "x.npy").dtype == np.float64
        assert b"numpy.structs" not in (tmp_path / "x.npy").read_bytes()


def test_void_fields_are_read_when_they_are_told(tmp_path):
    x = np.zeros(3, [("w", ml_dtypes.bfloat16), ("n", "<i4")])
    x["w"] = [1, 2, 3]
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(errors.UnsupportedError, match=r"'array/w' is of NumPy's void dtype") as caught:
        tb.load(tmp_path / "x.npy")
    assert "pass dtype={'array/w': 'bfloat16'} if" in str(caught.value)  # a dtype for all fields would not do
    got = tb.load(tmp_path / "x.npy", dtype={"array/w": "bfloat16"})
    assert got["w"].dtype == ml_dtypes.bfloat16
    assert got["w"].tolist() == [1, 2, 3]
    assert same(tb.loads(tb.dumps(x)), x)  # the frame knows the dtype


@pytest.mark.parametrize("of", ["dtype", "bool"])
def test_values_are_looked_at_in_fields_too(of):
    raw = bytearray(saved(np.zeros(2, [("n", "<i4"), ("b", "?")])))
    raw[-1] = 255
    with pytest.raises(errors.CorruptError, match=r"255.*bools='any'"):
        tb.loads(bytes(raw))
    assert tb.loads(bytes(raw), bools="any")["b"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("descr", "kind", "words"),
    [
        ("[]", errors.UnsupportedError, "without fields"),
        ("[('', '|V4')]", errors.UnsupportedError, "without fields"),
        ("[('', '<i4')]", errors.UnsupportedError, "without a name"),
        ("[('a', '<i4'), ('a', '<i4')]", errors.UnsupportedError, "twice"),
        ("[('a', '<i4', (-1,))]", errors.CorruptError, "expected"),
        ("[('a', '<i4', 1, 2)]", errors.UnsupportedError, "not a field"),
        ("[('a', 'i4,f4')]", errors.UnsupportedError, "unknown dtype"),
        ("[('a', '<i4', (99999999999,))]", errors.UnsupportedError, "sizes"),
        ("[('a', '<U1000000000')]", errors.UnsupportedError, "struct"),
        ("[('a', '<i4',", errors.CorruptError, "expected"),
        ("{'a': '<i4'}", errors.CorruptError, "expected"),
        ("[('a\\q', '<i4')]", errors.CorruptError, "escape"),
        ("[('a', [('b', '<i4'), ('c', 'O')])]", errors.UnsupportedError, "Python objects"),
        ("[('a', " * 40 + "'<i4'" + ")]" * 40, errors.UnsupportedError, "nested deeper"),
        ("[('a', '<i4', (" + "1," * 40 + ")), ('b', [('c', '<i4', (" + "1," * 30 + "))], (" + "1," * 40 + "))]",
         errors.LimitError, "axes"),
    ],
)  # fmt: skip
def test_hostile_fields(descr, kind, words):
    with pytest.raises(kind, match=words):
        tb.loads(npy(header(descr), bytes(64)), "npy")


def test_no_memory_for_places_without_bytes():
    raw = npy(header("[('a', '|S0')]", shape=f"({1 << 40},)"), b"")
    with pytest.raises(errors.LimitError):
        tb.loads(raw, "npy")


def _frame_with(note, fields):
    return tb.dumps(fields, origin={structs.KEY: note})


@pytest.mark.parametrize(
    "note",
    [
        "{", "1", "[1]", '[{"path": [], "fields": []}]', '[{"path": 3, "fields": [["a", "<i4"]]}]',
        '[{"path": [["list", "x"]], "fields": [["a", "<i4"]]}]', "[" * 100_000,
    ],
)  # fmt: skip
def test_notes_that_are_no_notes_are_refused(note):
    raw = _frame_with(note, {"a": np.zeros(2, "i4")})
    with pytest.raises(errors.UnsupportedError, match=re.escape(structs.KEY)):
        tb.loads(raw)


def test_a_note_may_not_ask_for_memory():
    note = json.dumps([{"path": [], "fields": [["a", "<i4"], ["", "|V999999999"]]}])
    with pytest.raises(errors.LimitError, match=r"metadata 'numpy.structs' asks for 1999999998 bytes"):
        tb.loads(_frame_with(note, {"a": np.zeros(2, "i4")}))


def test_many_notes_together_may_not_ask_for_memory():
    fields = [["a", "<i4"], ["", "|V600000000"]]
    note = json.dumps([{"path": [["key", key]], "fields": fields} for key in "xy"])
    data = _frame_with(note, {key: {"a": np.zeros(1, "i4")} for key in "xy"})
    with pytest.raises(errors.LimitError, match="asks for 1200000000 bytes"):
        tb.loads(data)
    one = json.dumps([{"path": [], "fields": [["a", "<i4"], ["", "|V5000"]]}])
    data = _frame_with(one, {"a": np.zeros(1, "i4")})
    with pytest.raises(errors.LimitError, match="asks for 5000 bytes of padding, over 1004"):
        tb.loads(data, limits=errors.Limits(max_bytes=1000))
    assert tb.loads(data).dtype.itemsize == 5004


def test_padding_that_is_in_the_file_is_within_any_limits():
    x = np.ones(1000, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    assert same(tb.loads(saved(x), limits=errors.Limits(max_bytes=1000)), x)


def test_a_note_that_does_not_fit_changes_nothing():
    fields = {"a": np.zeros(2, "i4"), "b": np.zeros(3)}
    for text in (
        '[["a", "<i4"]]',
        '[["a", "<i4"], ["b", "<f8"]]',
        '[["a", "<i4", [2]], ["b", "<f8", [3]], ["c", "<i4"]]',
    ):
        got = tb.loads(_frame_with(f'[{{"path": [], "fields": {text}}}]', fields))
        assert isinstance(got, dict)
        assert got["b"].tolist() == [0, 0, 0]
    lied = tb.loads(_frame_with('[{"path": [], "fields": [["a", "<U3"]]}]', {"a": np.array(["longer"])}))
    assert lied["a"].tolist() == ["longer"]
