"""The verbs: structures come back as they were, mistakes get a message that helps."""

import collections
import enum
import io
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensorbytes as tb
from tensorbytes import formats, frameworks

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.binary(max_size=8),
)
arrays = hnp.arrays(
    hnp.scalar_dtypes().filter(lambda d: d.itemsize <= 16 and d.char not in "gG"), hnp.array_shapes(max_side=3)
)
structures = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(
            st.one_of(st.text(st.characters(codec="utf-8"), max_size=5), st.integers(-(2**63), 2**63 - 1)),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def same(a, b):
    """Equal in type and bits, container by container."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        b = b.astype(b.dtype.newbyteorder("<"))  # values are kept, byte order is ours
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, float | complex):
        assert np.array(a).tobytes() == np.array(b).tobytes()
    else:
        assert a == b


@given(structures)
def test_any_structure_comes_back_as_it_was(obj):
    data = tb.dumps(obj)
    same(tb.loads(data), obj)
    assert tb.dumps(tb.loads(data)) == data


@pytest.mark.parametrize(
    "obj",
    [
        2**63 - 1,
        -(2**63),
        2**64,
        10**4299,
        [2**70, -1],
        float("nan"),
        -0.0,
        {"": {"": ()}},
        {"a/b": 1, "a": {"b": 2}},
        {1: "int", "1": "str"},
        np.float32(1.5),
        np.bool_(True),
        np.str_("text"),
        np.datetime64("2026-01-02T03", "h"),
        ml_dtypes.bfloat16(2),
        [True, 1],
        [1, 1.0],
        [[1, 2], [3]],
        collections.OrderedDict(b=1, a=2),
    ],
    ids=repr,
)
def test_particular_values(obj):
    back = tb.loads(tb.dumps(obj))
    assert type(back) is (dict if isinstance(obj, collections.OrderedDict) else type(obj))
    assert tb.equal(back, obj)
    if not isinstance(obj, float):
        assert back == obj


class Colour(enum.IntEnum):
    RED = 1


class Pair(tuple):
    pass


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (object(), "object is neither a tensor nor a plain Python value"),
        ({"a": [object()]}, "at 'a/0'"),
        (Colour.RED, "a member of an enumeration; pass x.value"),
        (Pair((1, 2)), "would come back as a plain tuple"),
        ((i for i in range(3)), r"is an iterator; pass list\(x\), or write items one by one"),
        ({(1, 2): 3}, "a dict key must be a string or a 64-bit integer"),
        ({True: 3}, "a dict key must be"),
        ({2**63: 3}, "a dict key must be"),
        ("\ud800", "lone surrogate"),
        ({"\ud800": 1}, "UTF-8"),
        (10**4300, "over 4300 digits"),
        ({1, 2}, r"a set, which has no order; pass list\(x\)"),
        (np.array([object()]), "element 0 is object"),
        (np.array(["a", b"b"], object), "only all-text or all-bytes"),
        (np.array(["a", None], object), "element 1 is NoneType"),
        (np.zeros(2, [("a", "i4"), ("b", "O")]), "structured dtype with fields a, b"),
        (np.zeros(2, "V3"), "no portable form"),
        (np.zeros(2, np.longdouble), "long double"),
        (np.ma.masked_array([1, 2], [0, 1]), "MaskedArray carries more than its array"),
        (np.rec.array([(1, 2.0)]), "carries more"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_what_is_refused_says_why(obj, words):
    with pytest.raises(tb.errors.UnsupportedError, match=words):
        tb.dumps(obj)


def test_a_structure_that_contains_itself():
    loop = []
    loop.append(loop)
    with pytest.raises(tb.errors.UnsupportedError, match="containing itself"):
        tb.dumps(loop)


# ---- mistakes ---------------------------------------------------------------


def test_swapped_arguments(tmp_path):
    x = np.ones(3)
    with pytest.raises(tb.errors.UsageError, match="the object comes first, the path second"):
        tb.save(tmp_path / "x.tb", x)
    with pytest.raises(tb.errors.UsageError, match=r"load\(path\) reads a file"):
        tb.loads("x.tb")
    for verb in (tb.load, tb.open):
        with pytest.raises(tb.errors.UsageError, match=r"expected a path or a file object.*loads\(data\) reads bytes"):
            verb(b"bytes")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(
        tb.errors.UsageError, match=r"unknown format 'zip'; known: .*raw, safetensors, sparseproto, tb, tensorproto"
    ):
        tb.dumps(1, "zip")
    with pytest.raises(tb.errors.UsageError, match="unknown framework 'mxnet'; known: jax, jax32, numpy"):
        tb.loads(tb.dumps(np.ones(2)), to="mxnet")
    with pytest.raises(tb.errors.UsageError, match="no option 'level' here; its options: compression, quantize"):
        tb.dumps(np.ones(2), level=3)
    with pytest.raises(tb.errors.UsageError, match="no option 'shape' here"):
        tb.loads(tb.dumps(np.ones(2)), shape=(2,))
    with pytest.raises(tb.errors.UsageError, match="mode 'rb'"):
        tb.open("x.tb", "rb")
    with pytest.raises(tb.errors.UsageError, match="can't tell the format from its first bytes"):
        tb.loads(b"\x80\x05 a pickle, perhaps")
    with pytest.raises(tb.errors.UsageError, match="raw bytes don't tell their dtype"):
        tb.loads(b"1234", "raw")
    with pytest.raises(tb.errors.UsageError, match="goes with one tensor"):
        tb.dumps([np.ones(2)], name="x")


def test_the_name_that_was_meant():
    for wrong, meant in [("torch_file", "torchfile"), ("nzp", "npz"), ("safetensor", "safetensors")]:
        with pytest.raises(tb.errors.UsageError, match=f"known: arrow, .*; did you mean '{meant}'\\?"):
            tb.dumps(1, wrong)
    with pytest.raises(tb.errors.UsageError) as caught:
        tb.dumps(1, "zip")
    assert "did you mean" not in str(caught.value)


def test_suffixes_that_are_not_written(tmp_path):
    with pytest.raises(tb.errors.UsageError, match=r"pass format=\.\.\., one of tb, ") as caught:
        tb.save(np.ones(3), tmp_path / "x.xyz")
    named = str(caught.value).rpartition("one of ")[2].split(", ")
    assert named == [name for name in formats.BUILTIN if formats.get(name).writes]
    assert "gguf" not in named
    with pytest.raises(tb.errors.LossError, match=r"RecordWriter.*convert"):
        tb.save(np.ones(3), tmp_path / "x.tfrecord.gz")
    assert not (tmp_path / "x.tfrecord.gz").exists()


COLUMNS = {
    "x": np.arange(12, dtype=np.float32).reshape(4, 3),
    "n": np.array([1, -2, 3, 4], np.int16),
    "text": np.array(["a", "bé", "", "c"]),
    "flag": np.array([True, False, False, True]),
    "half": np.array([[1.5], [2], [3], [4]], ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz"])
def test_columns_are_saved_as_rows_and_loaded_as_columns(tmp_path, name):
    tf = pytest.importorskip("tensorflow")
    tb.save(COLUMNS, tmp_path / name)
    back = tb.load(tmp_path / name)
    assert tb.equal(back, COLUMNS)
    compression = "GZIP" if name.endswith("gz") else ""
    payloads = [raw.numpy() for raw in tf.data.TFRecordDataset(str(tmp_path / name), compression)]
    rows = [tf.train.Example.FromString(raw).features.feature for raw in payloads]
    assert [list(row["x"].float_list.value) for row in rows] == COLUMNS["x"].tolist()
    assert [row["text"].bytes_list.value[0].decode() for row in rows] == COLUMNS["text"].tolist()
    tb.save(back, tmp_path / f"again-{name}")
    assert tb.equal(tb.load(tmp_path / f"again-{name}"), COLUMNS)


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones(3),
        {"a": np.ones(3), "b": np.ones(4)},
        {"a": 1},
        {"a": np.float32(1)},
        {"a": {"b": np.ones(3)}},
        [np.ones(2)],
        {},
    ],
)
def test_what_is_not_columns_is_not_saved_as_rows(tmp_path, wrong):
    with pytest.raises(tb.errors.LossError, match=r"expected a dict of arrays of one length.*RecordWriter.*convert"):
        tb.save(wrong, tmp_path / "x.tfrecord")
    assert not list(tmp_path.iterdir())


def test_a_mapping_that_has_a_key_twice_is_refused():
    class Multiple(dict):
        def items(self):
            return [("a", np.ones(1)), ("a", np.zeros(1))]

    for format in ("tb", "safetensors", "npz"):
        with pytest.raises(tb.errors.UnsupportedError, match="has a key twice"):
            tb.dumps({"inside": Multiple(a=1)}, format)


@pytest.mark.parametrize("scalar", [np.bytes_(b"x\0"), np.str_("x\0"), np.bytes_(b"\0")])
def test_zeros_at_the_end_of_a_scalar_are_not_dropped_in_silence(scalar):
    with pytest.raises(tb.errors.UnsupportedError, match="NumPy drops the zeros at the end"):
        tb.dumps({"a": scalar})
    plain = str(scalar) if isinstance(scalar, str) else bytes(scalar)
    assert tb.loads(tb.dumps({"a": plain})) == {"a": plain}


def test_metadata_of_columns_is_not_dropped_in_silence(tmp_path):
    path = tmp_path / "x.tfrecord"
    column = tb.Tensor("int64", (2,), bytes(16), meta={"unit": "m"})
    for obj, meta in ((COLUMNS, {"of": "all"}), ({"a": column}, None)):
        with pytest.raises(tb.errors.LossError, match="can't hold metadata"):
            tb.save(obj, path, meta=meta)
        assert not list(tmp_path.iterdir())
        tb.save(obj, path, meta=meta, allow={"meta"})
        assert tb.equal(tb.load(path), obj)
        [found.unlink() for found in tmp_path.iterdir()]


def test_metadata_and_limits_of_another_type(tmp_path):
    tb.save(np.ones(2), tmp_path / "x.tb")
    for obj in (np.ones(2), [np.ones(2)]):
        with pytest.raises(tb.errors.UsageError, match="meta='hi': expected a dict"):
            tb.dumps(obj, meta="hi")
        with pytest.raises(
            tb.errors.UnsupportedError, match=r"must be text, a number, .* got meta\['epoch'\] of type ob"
        ):
            tb.dumps(obj, meta={"epoch": object()})
        with pytest.raises(tb.errors.UnsupportedError, match=r"metadata keys must be str, got 1; pass str\(1\)"):
            tb.dumps(obj, meta={1: "a"})
    for read in (tb.load, tb.open):
        with pytest.raises(tb.errors.UsageError, match="limits=10: expected Limits"):
            read(tmp_path / "x.tb", limits=10)
    with pytest.raises(tb.errors.UsageError, match="limits=10: expected Limits"):
        tb.loads(tb.dumps(np.ones(2)), limits=10)


def test_a_missing_file_is_the_systems_error(tmp_path):
    for verb in (tb.load, tb.open):
        with pytest.raises(FileNotFoundError):
            verb(tmp_path / "none.tb")


@pytest.mark.parametrize("name", sorted(set(frameworks.BUILTIN) - {"numpy"}))
def test_a_missing_framework_is_named_with_its_pip_command(name):
    code = (
        "import sys, numpy, tensorbytes as tb\n"
        f"sys.modules[{frameworks.BUILTIN[name][0][0]!r}] = None\n"
        f"try: tb.loads(tb.dumps(numpy.ones(2)), to={name!r})\n"
        "except tb.errors.MissingDependencyError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == f"framework {name!r} needs the optional package {name}: pip install 'tensorbytes[{name}]'\n"


def test_losses_are_refused_until_allowed():
    import torch

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(
        tb.errors.LossError, match=r"can't hold metadata requires_grad='true'; pass allow=\{'requires_grad'\}"
    ) as caught:
        tb.dumps(x, "tensorproto")
    assert caught.value.feature == "requires_grad"
    assert tb.loads(tb.dumps(x, "tensorproto", allow="requires_grad")).tolist() == [1, 1]
    with pytest.raises(tb.errors.LossError, match="metadata of the whole: epoch='3'"):
        tb.dumps({"a": np.ones(2)}, "raw", meta={"epoch": "3"})
    with pytest.raises(tb.errors.LossError, match="the name 'w'"):
        tb.dumps(np.ones(2), "tensorproto", name="w")
    with pytest.raises(tb.errors.LossError, match="one tensor, not a structure of 2"):
        tb.dumps([np.ones(2), np.ones(3)], "tensorproto")
    with pytest.raises(tb.errors.LossError, match="a Python int"):
        tb.dumps(5, "tensorproto")
    with pytest.raises(tb.errors.LossError, match="TensorFlow has no dtype float8_e3m4"):
        tb.dumps(np.ones(2, ml_dtypes.float8_e3m4), "tensorproto")


# ---- buffers, names, metadata -----------------------------------------------


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8), lambda b: memoryview(b).cast("c")]
)
def test_any_buffer_is_read(wrap):
    for obj in (np.arange(5), {"a": np.arange(2000.0)}):
        assert tb.equal(tb.loads(wrap(tb.dumps(obj))), obj)


def test_views_are_as_writable_as_their_buffer():
    data = tb.dumps(np.arange(5))
    assert not tb.loads(data).flags.writeable
    assert tb.loads(bytearray(data)).flags.writeable


def test_a_misaligned_buffer():
    for obj in (np.arange(5.0), {"a": np.arange(2000.0)}):
        data = tb.dumps(obj)
        for shift in range(1, 9):
            shifted = memoryview(bytes(shift) + data)[shift:]
            assert tb.equal(tb.loads(shifted), obj)
            assert tb.equal(tb.loads(shifted, to="torch"), obj)


def test_torch_tensors_of_one_element_or_none_with_any_step():
    torch = pytest.importorskip("torch")
    stepped, complex_one = torch.arange(4.0)[::2], torch.tensor([1j])
    for x in (stepped[:1], stepped[1:], stepped[:0], complex_one.imag, complex_one.conj().imag):
        assert x.stride(0) != 1
        assert tb.equal(tb.loads(tb.dumps(x), to="torch"), x)


def test_name_and_metadata_travel():
    value = tb.loads(tb.dumps(np.ones(2), name="weights", meta={"epoch": "3", "note": "ü"}), to="tensor")
    assert (value.name, dict(value.meta)) == ("weights", {"epoch": "3", "note": "ü"})
    inside = tb.loads(tb.dumps({"key": value}), to="tensor")["key"]
    assert inside.origin["name"] == "weights"
    assert inside.meta == {"epoch": "3", "note": "ü"}


def test_the_short_cut_gives_the_same_bytes():
    for x in (np.arange(6, dtype="f4").reshape(2, 3), np.ones((3, 1), "c16"), np.full((), 2.0)):
        first = tb.dumps(x)  # the long way; later calls take the short one
        assert tb.dumps(x) == first == tb.dumps(x.copy(order="F"))
        assert tb.loads(first, "tb", limits=tb.errors.Limits()).tobytes() == x.tobytes()


def test_equal_tells_apart_what_comparison_does_not():
    assert not tb.equal(np.array([0.0]), np.array([-0.0]))
    assert tb.equal(np.array([np.nan]), np.array([np.nan]))
    assert not tb.equal(np.ones(2), np.ones(2, "f4"))
    assert not tb.equal([1], (1,))
    assert not tb.equal(1, True)
    assert not tb.equal({"a": 1}, {"b": 1})


def test_other_exporters_of_arrays():
    class Exporter:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3)

    assert tb.loads(tb.dumps(Exporter())).tolist() == [0, 1, 2]
    assert tb.loads(tb.dumps(memoryview(b"abc"))).tolist() == [97, 98, 99]
    with pytest.raises(tb.errors.UnsupportedError, match="does not give up its data"):
        tb.dumps(type("Broken", (), {"__array__": lambda self, **_: 1 / 0})())


def test_errors_are_also_built_in_ones():
    assert issubclass(tb.errors.CorruptError, ValueError)
    assert issubclass(tb.errors.UnsupportedError, TypeError)
    assert issubclass(tb.errors.MissingDependencyError, ImportError)


def test_an_unwritable_format_object_says_so():
    with pytest.raises(tb.errors.UsageError, match="streams are written as 'tb'"):
        tb.open(io.BytesIO(), "w", "raw")
    with pytest.raises(tb.errors.UsageError, match="appending needs a path"):
        tb.open(io.BytesIO(), "a")
    assert formats.by_suffix("model.TB") == "tb"


@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_stream_takes_no_more_than_it_can_use(tmp_path, mode):
    with pytest.raises(tb.errors.UsageError, match="streams are written as 'tb', and the suffix asks for 'npz'"):
        tb.open(tmp_path / "x.npz", mode)
    for options in ({"to": "torch"}, {"device": "cpu"}):
        with pytest.raises(tb.errors.UsageError, match="are for reading"):
            tb.open(tmp_path / "x.tb", mode, **options)
    with pytest.raises(tb.errors.UsageError, match="no option 'level' here"):
        tb.open(tmp_path / "x.tb", mode, level=3)
    assert list(tmp_path.iterdir()) == []
    with tb.open(tmp_path / "x.npz", mode, "tb") as f:  # asked for in so many words
        f.write(1)
    assert tb.load(tmp_path / "x.npz") == [1]


def test_a_file_of_examples_is_a_dict_of_columns(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as w:
        for n in range(3):
            w.write({"a": n, "b": np.full(2, n, np.float32), "c": np.arange(n), "d": f"{n}"})
    raw = (tmp_path / "x.tfrecord").read_bytes()
    for found in (tb.load(tmp_path / "x.tfrecord"), tb.loads(raw), tb.load(tmp_path / "x.tfrecord", mmap=True)):
        assert found["a"].tolist() == [0, 1, 2]
        assert found["b"].tolist() == [[0, 0], [1, 1], [2, 2]]
        assert [row.tolist() for row in found["c"]] == [[], [0], [0, 1]]
    with tb.open(tmp_path / "x.tfrecord") as file:
        assert file.keys() == ["a", "b", "c", "d"]
        assert file["b"].shape == (3, 2)
        assert file["b"][1:].tolist() == [[1, 1], [2, 2]]
        assert file["b"][-1, 0] == 2
        assert file["a"][1] == 1
        assert list(file["d"].load()) == ["0", "1", "2"]
    assert tb.load(tmp_path / "x.tfrecord", names=["a"])["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["w", "", "ä/ß", "x" * 300, "a\0b", "layer.0"])
@pytest.mark.parametrize("shape", [(), (16,), (3, 4), (0, 2), (70_000,)], ids=str)
def test_an_array_under_a_name_has_the_bytes_of_the_general_way(name, shape):
    from tensorbytes import api, formats

    for array in (
        np.ones(shape, "f4"),
        np.ones(shape, ">i2"),
        np.ones((*shape, 2), "i8")[..., 0],
        np.ones(shape, bool),
    ):
        general = formats.get("tb").dumps(api.to_document(array, name=name), frozenset(), {})
        assert tb.dumps(array, name=name) == general
        found = tb.loads(general, to="tensor")
        assert (found.name, found.shape) == (name, shape)


@pytest.mark.parametrize("name", ["\ud800", 3, b"w"])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(tb.errors.TensorbytesError):
        tb.dumps(np.ones(3), name=name)


def test_loads_takes_the_bytes_in_a_string_tensor():
    """Their memory has addresses of Python objects, which were read as a file."""
    tf = pytest.importorskip("tensorflow")
    one, several = tb.dumps(np.arange(3.0)), tb.dumps({"a": np.ones(2)})
    for x in (tf.constant(one), np.array(one, object)):
        assert tb.loads(x).tolist() == [0, 1, 2]
    assert tb.loads(tf.constant(several))["a"].tolist() == [1, 1]
    for x in (tf.constant([one, one]), np.array([one], object), np.array("text", object), np.array(None, object)):
        with pytest.raises(tb.errors.UsageError, match="Python objects"):
            tb.loads(x)
    with pytest.raises(TypeError, match="addresses"):
        tb.Tensor("int64", (1,), np.array([one], object))


def test_a_tensor_of_zeros_without_memory():
    torch = pytest.importorskip("torch")
    for x in (torch._efficientzerotensor(3), torch._efficientzerotensor((2, 3), dtype=torch.complex64)):
        for format in ("tb", "torchfile", "safetensors"):
            found = tb.loads(tb.dumps({"x": x, "y": x, "z": x[...]}, format), to="torch")
            assert all(torch.equal(t, torch.zeros(x.shape, dtype=x.dtype)) for t in found.values())


@pytest.mark.parametrize("cls", [np.ndarray, dict, int, type])
def test_classes_are_not_tensors_whatever_was_asked_before(cls):
    """A class has the attributes of its instances, such as `__array__`; and all classes are of one type."""
    assert frameworks.of(cls) is None
    with pytest.raises(tb.errors.UnsupportedError, match=r"is a class; pass x\.__name__"):
        tb.dumps(cls)
