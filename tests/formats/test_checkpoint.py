"""Reading TensorFlow's checkpoints: TensorFlow writes them, or they are built by hand, also wrong."""

import contextlib
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import cramjam
import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes.errors import CorruptError, LimitError, Limits, TensorbytesError, UnsupportedError, UsageError
from tests.support import REAL_FILES
from tests.support.checkpoint_bytes import (
    BOOL,
    FLOAT32,
    HEADER,
    INT32,
    STRING,
    VARIANT,
    block,
    entry,
    extents,
    floats,
    handle,
    index,
    put,
    slice_key,
    strings,
    table,
)
from tests.support.wire_bytes import field, number, varint

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
HEAD = (b"", HEADER)
TWO = floats(1, 2)
GOOD = entry(FLOAT32, (2,), TWO)
# Those that TensorFlow saves; it refuses to save float8.
NAMES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "bfloat16", "complex64", "complex128", "int4", "uint4", "qint8", "quint8", "qint16", "quint16",
    "qint32",
]  # fmt: skip


def save(prefix, values):
    tensors = [tf.convert_to_tensor(value) for value in values.values()]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=list(values), shape_and_slices=[""] * len(values), tensors=tensors
    )
    return str(prefix)


def of_dtype(name, shape):
    bits = np.random.default_rng(7).integers(0, 2 if name == "bool" else 100, shape)
    if name in ("int4", "uint4"):
        return tf.cast(tf.constant(bits % 16, tf.uint8), name)
    if name.startswith("complex"):
        return tf.constant(bits + 1j * bits, name)
    if name.startswith("q"):
        return tf.bitcast(tf.constant(bits, tf.as_dtype(name).as_numpy_dtype), name)
    return tf.cast(tf.constant(bits), name)


def same(got, want):
    """Bit for bit, against what TensorFlow's own reader gives."""
    want = np.asarray(want)
    assert got.shape == want.shape
    if want.dtype == object or got.dtype == object:
        assert got.reshape(-1).tolist() == want.reshape(-1).tolist()
    else:
        assert got.dtype.itemsize == want.dtype.itemsize
        assert got.tobytes() == want.tobytes()


def agrees(path, prefix=None):
    """Reading whole, mapped and entry by entry gives what TensorFlow's reader gives."""
    reader = tf.train.load_checkpoint(prefix or path)
    names = reader.get_variable_to_shape_map()
    loaded, mapped = tb.load(path), tb.load(path, mmap=True)
    assert set(loaded) == set(mapped) == set(names)
    with tb.open(path) as file:
        for name in names:
            want = reader.get_tensor(name)
            want = np.array(want, object) if isinstance(want, bytes) else want
            for got in (loaded[name], mapped[name], file[name].load()):
                same(np.asarray(got), want)
            assert file[name].shape == tuple(names[name])
    return loaded


# ---- what TensorFlow writes ---------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_shape(name, tmp_path):
    shapes = [(), (0,), (0, 3), (3, 0, 2), (7,), (2, 3, 5), (1, 1, 1, 1)]
    prefix = save(tmp_path / "m", {f"x{i}": of_dtype(name, shape) for i, shape in enumerate(shapes)})
    if name.startswith("q"):  # NumPy has no such dtype
        found = tb.load(prefix, to="tensor")
        reader = tf.train.load_checkpoint(prefix)
        for key, value in found.items():
            assert value.dtype == name
            assert bytes(value.data) == reader.get_tensor(key).tobytes()
    else:
        agrees(prefix)


def test_strings(tmp_path):
    long = b"x" * 100_000
    values = {
        "scalar": tf.constant(b"one"), "empty": tf.constant(b""), "none": tf.constant([], tf.string),
        "odd shape": tf.zeros((3, 0, 2), tf.string), "two": tf.constant([[b"a", b"\x00\xff"], [long, b""]]),
        "many": tf.constant([b"y" * (i % 300) for i in range(2000)]),
    }  # fmt: skip
    agrees(save(tmp_path / "m", values))


def test_an_object_based_checkpoint(tmp_path):
    class Layer(tf.Module):
        def __init__(self):
            self.kernel = tf.Variable(tf.random.stateless_normal((5, 3), (1, 2)))
            self.bias = tf.Variable(tf.zeros(3, tf.bfloat16))

    made = tf.train.Checkpoint(model=Layer(), layers=[Layer(), Layer()], step=tf.Variable(7, dtype=tf.int64))
    prefix = made.save(str(tmp_path / "ck" / "model"))
    loaded = agrees(str(tmp_path / "ck"), prefix)
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" in loaded
    assert list(loaded) == sorted(loaded)
    clean = tb.load(tmp_path / "ck", keys="clean")
    assert sorted(clean) == [
        "layers/0/bias", "layers/0/kernel", "layers/1/bias", "layers/1/kernel", "model/bias", "model/kernel", "step",
    ]  # fmt: skip
    same(clean["model/kernel"], made.model.kernel.numpy())
    for path in (prefix, f"{prefix}.index", tmp_path / "ck"):
        assert list(tb.load(path)) == list(loaded)
    assert tb.load(tmp_path / "ck" / "checkpoint", "checkpoint").keys() == loaded.keys()
    assert tb.load(prefix, names=["step/.ATTRIBUTES/VARIABLE_VALUE"]) == {"step" + VALUE: 7}


def test_thousands_of_variables_in_many_blocks(tmp_path):
    numbers = [tf.constant(float(i)) for i in range(7)]
    values = {f"some/{'long/' * 20}scope/of/variables/{i:05d}/kernel": numbers[i % 7] for i in range(6000)}
    names = list(values)
    for at in range(0, len(names), 2):  # names that share less, so that blocks fill
        values[names[at][::-1]] = values.pop(names[at])
    prefix = save(tmp_path / "m", values)
    assert (tmp_path / "m.index").stat().st_size > 2 << 18
    loaded = tb.load(prefix)
    assert {name: float(x) for name, x in loaded.items()} == {name: float(x) for name, x in values.items()}


def test_several_shards(tmp_path):
    parts = [
        save(tmp_path / f"part{i}", {f"a{i}": of_dtype("float32", (4, i + 1)), f"s{i}": tf.constant([b"x"] * i)})
        for i in range(3)
    ]
    merged = str(tmp_path / "all")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=merged)
    assert (tmp_path / "all.data-00002-of-00003").exists()
    agrees(merged)
    (tmp_path / "all.data-00001-of-00003").rename(tmp_path / "gone")
    with pytest.raises(CorruptError, match=r"all\.data-00001-of-00003.*is missing"):
        tb.load(merged)
    with pytest.raises(CorruptError, match=r"all\.data-00001-of-00003.*is missing"):
        tb.open(merged).keys()


def save_partitioned(prefix):
    """As TensorFlow 1 does; every element is its own number."""
    v1 = tf.compat.v1

    def variable(name, shape, parts, axis, dtype):
        start = tf.reshape(tf.range(np.prod(shape), dtype=tf.int64), shape)

        def initial(shape, dtype, partition_info):
            return tf.cast(tf.slice(start, partition_info.var_offset, shape), dtype)

        cut = v1.fixed_size_partitioner(parts, axis=axis)
        return v1.get_variable(name, shape, dtype, initial, partitioner=cut, use_resource=True)

    with v1.Graph().as_default(), v1.Session() as session:
        variable("scope/table", (1000, 7), 3, 0, tf.float32)
        variable("columns", (4, 130), 5, 1, tf.int64)
        variable("one", (3,), 1, 0, tf.float64)
        v1.get_variable("plain", (2, 2), initializer=v1.ones_initializer())
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, prefix, global_step=70000)


def test_partitioned_variables(tmp_path):
    save_partitioned(str(tmp_path / "model"))
    loaded = agrees(str(tmp_path), str(tmp_path / "model-70000"))
    assert set(loaded) == {"scope/table", "columns", "one", "plain"}
    table = np.arange(7000, dtype=np.float32).reshape(1000, 7)
    same(loaded["scope/table"], table)
    chosen = [
        5, -1, 333, slice(300, 400), slice(990, None, -7), slice(None, None, -1), (slice(None), 3), (3, 4), ...,
        (slice(1, 900, 13), [1, 2]), [5, 6, 999], slice(5, 5), np.arange(1000) % 2 == 0, (..., -1), (), np.int64(4),
    ]  # fmt: skip
    with tb.open(tmp_path) as file:
        for item in chosen:
            same(np.asarray(file["scope/table"][item]), table[item])
        same(file["columns"][:, 20:120:9], np.arange(520).reshape(4, 130)[:, 20:120:9])
        with pytest.raises(IndexError):
            file["scope/table"][1000]
    # A part that no slice is asked of is not read.
    data = tmp_path / "model-70000.data-00000-of-00001"
    raw = bytearray(data.read_bytes())
    raw[raw.index(table[999:].tobytes())] ^= 1
    data.write_bytes(raw)
    with tb.open(tmp_path) as file:
        same(file["scope/table"][10:20], table[10:20])
        with pytest.raises(CorruptError, match="'scope/table': the checksum differs"):
            file["scope/table"].load()


def test_a_saved_model(tmp_path):
    module = tf.Module()
    module.w = tf.Variable([[1.0, 2.0]], name="w")
    tf.saved_model.save(module, str(tmp_path / "model"))
    for path in (tmp_path / "model", tmp_path / "model" / "saved_model.pb"):
        found = tb.load(path, keys="clean")
        assert list(found) == ["w"]
        same(found["w"], module.w.numpy())
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert tb.load(tmp_path / "bare", keys="clean") == {}
    shutil.rmtree(tmp_path / "bare" / "variables")
    with pytest.raises(UsageError, match="without variables"):
        tb.load(tmp_path / "bare")


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
def test_the_corpus():
    found = tb.load(REAL_FILES / "half_plus_two", keys="clean")
    assert {name: float(x) for name, x in found.items()} == {"a": 0.5, "b": 2.0, "c": 3.0}
    assert len(tb.load(REAL_FILES / "half_plus_two")) == 4


def test_tensorflow_is_not_needed(tmp_path):
    prefix = save(tmp_path / "m", {"w": tf.constant([1.0, 2.0]), "s": tf.constant([b"a"])})
    code = (
        "import sys, tensorbytes as tb\n"
        f"x = tb.load({prefix!r})\n"
        f"tb.save(x, {prefix + '2'!r}, 'checkpoint')\n"
        f"print(tb.equal(tb.load({prefix + '2'!r}), x))\n"
        f"print(tb.load({str(REAL_FILES / 'half_plus_two')!r}, keys='clean')['a'] if {REAL_FILES.is_dir()} else 0.5)\n"
        "print([name for name in sys.modules if name.startswith(('tensorflow', 'google.protobuf'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["True", "0.5", "[]"]


# ---- lazily -------------------------------------------------------------------


def test_slices_are_views_and_the_rest_is_not_read(tmp_path):
    values = {"a": tf.random.stateless_normal((100, 8), (1, 2)), "b": tf.range(1000), "s": tf.constant([b"xy", b"z"])}
    prefix = save(tmp_path / "m", values)
    data = tmp_path / "m.data-00000-of-00001"
    raw = bytearray(data.read_bytes())
    raw[3200 + 400] ^= 1  # in b
    raw[-1] ^= 1  # in s
    data.write_bytes(raw)
    with tb.open(prefix) as file:
        same(file["a"][10:20], values["a"][10:20].numpy())
        assert not file["a"][10:20].flags.owndata
        same(file["b"][:100], np.arange(100, dtype=np.int32))
        same(file["a"].load(), values["a"].numpy())
        assert (file["s"].shape, file["s"].dtype, file["s"].kind) == ((2,), "string", "strings")
        for name in ("b", "s"):
            with pytest.raises(CorruptError, match=f"'{name}': the checksum differs") as caught:
                file[name].load()
            assert caught.value.path == str(data)
        with pytest.raises(CorruptError, match="checksum"):
            file.verify()
    assert tb.load(prefix, names=["a"])["a"].shape == (100, 8)
    with pytest.raises(CorruptError, match="'b': the checksum differs"):
        tb.load(prefix)


def test_what_holds_no_values_is_listed_and_refused_by_name(tmp_path):
    data = floats(1, 2) + b"????"
    unknown = entry(77, (), b"????", offset=8)
    prefix = put(tmp_path, {b"ok": entry(FLOAT32, (2,), data[:8]), b"odd": unknown, b"v": entry(VARIANT, ())}, data)
    with tb.open(prefix) as file:
        assert file.keys() == ["odd", "ok", "v"]
        assert [file[name].dtype for name in file.keys()] == ["unknown(77)", "float32", "variant"]  # noqa: SIM118
        same(file["ok"].load(), np.array([1, 2], np.float32))
        for use in (lambda x: x.load(), lambda x: x[0]):
            with pytest.raises(UnsupportedError, match="'v' is of dtype variant"):
                use(file["v"])
    assert tb.load(prefix, names=["ok"])["ok"].tolist() == [1, 2]
    with pytest.raises(UnsupportedError, match="'odd' is of the unknown dtype 77"):
        tb.load(prefix)


def test_tensorflows_own_variants(tmp_path):
    made = tf.raw_ops.TensorListFromTensor(tensor=tf.ones((2, 3)), element_shape=[3])
    prefix = save(tmp_path / "m", {"list": made, "w": tf.constant(3)})
    with tb.open(prefix) as file:
        assert file["list"].dtype == "variant"
        assert file["w"].load() == 3
    with pytest.raises(UnsupportedError, match="'list' is of dtype variant"):
        tb.load(prefix)


def test_big_endian_ones_are_converted(tmp_path):
    wide, words = np.arange(6, dtype=">f8").tobytes(), strings(b"ab", b"", b"c", order=">")
    complexes = np.array([1 + 2j, -3j], ">c8").tobytes()
    parts = [wide, words[0], complexes, b"\x01\x00"]
    offsets = [sum(map(len, parts[:i])) for i in range(4)]
    entries = {
        b"f": entry(2, (2, 3), wide), b"s": entry(STRING, (3,), words[0], offset=offsets[1], crc=words[1]),
        b"c": entry(8, (2,), complexes, offset=offsets[2]), b"b": entry(BOOL, (2,), b"\1\0", offset=offsets[3]),
        b"p": entry(2, (2, 3), size=0, extra=extents((0, 1), None) + extents((1, 1), None)),
        slice_key(b"p", (0, 1), None): entry(2, (1, 3), wide[:24]),
        slice_key(b"p", (1, 1), None): entry(2, (1, 3), wide[24:], offset=24),
    }  # fmt: skip
    header = number(1, 1) + number(2, 1) + field(3, number(1, 1))
    prefix = put(tmp_path, entries, b"".join(parts), header)
    loaded = agrees(prefix)
    same(loaded["f"], np.arange(6.0).reshape(2, 3))
    with tb.open(prefix) as file:
        for name in ("f", "p"):
            same(file[name][1], np.array([3.0, 4, 5]))
    raw = bytearray(b"".join(parts))
    raw[0] ^= 1
    put(tmp_path, entries, raw, header)
    with tb.open(prefix) as file, pytest.raises(CorruptError, match="checksum"):
        file["f"].load()


# ---- where it is ----------------------------------------------------------------


def test_the_state_file(tmp_path):
    prefix = save(tmp_path / "a b'\"ü", {"w": tf.constant(1.0)})
    save(tmp_path / "other", {"w": tf.constant(2.0)})
    state = tmp_path / "checkpoint"
    for path in (Path(prefix).name, prefix):  # TensorFlow writes absolute paths too
        text = tf.compat.v1.train.generate_checkpoint_state_proto(str(tmp_path), path)
        state.write_text(str(text))
        assert tb.load(tmp_path) == {"w": 1.0}
    state.write_text("all_model_checkpoint_paths: 'x'\n  model_checkpoint_path: 'oth\\x65r'\n")
    assert tb.load(tmp_path) == {"w": 2.0}


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ('model_checkpoint_path: "../m"', UnsupportedError, "leads out of its folder"),
        ('model_checkpoint_path: "/etc/passwd"', UnsupportedError, "leads out of its folder"),
        ('model_checkpoint_path: "link/m"', UnsupportedError, "leads out of its folder"),
        ('model_checkpoint_path: "gone"', CorruptError, "'gone', is missing"),
        ('model_checkpoint_path: "a\\000b"', CorruptError, "not a name"),
        ('model_checkpoint_path: "\\377"', CorruptError, "not a name"),
        ('model_checkpoint_path: ""', CorruptError, "not a name"),
        ("model_checkpoint_path: m", CorruptError, "not a name"),
        ("something else", UsageError, "not a recognised checkpoint folder"),
    ],
)
def test_a_wrong_state_file(text, error, match, tmp_path):
    save(tmp_path / "m", {"w": tf.constant(1.0)})
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    (folder / "checkpoint").write_text(text + "\n")
    with pytest.raises(error, match=match):
        tb.load(folder)


def test_calls_that_make_no_sense(tmp_path):
    prefix = save(tmp_path / "m", {"w": tf.constant(1.0)})
    raw = (tmp_path / "m.index").read_bytes()
    with pytest.raises(UsageError, match=r"'keys' .*: expected 'raw' or 'clean', got 'all'"):
        tb.load(prefix, keys="all")
    with pytest.raises(UnsupportedError, match=r"load\(path\) takes its prefix"):
        tb.loads(raw, "checkpoint")
    with pytest.raises(UsageError, match="several files"):
        tb.loads(b"abc", "checkpoint")
    with pytest.raises(UsageError, match="several files"):
        tb.dumps({"w": 1}, "checkpoint")
    with pytest.raises(FileNotFoundError):
        tb.load(tmp_path / "none", "checkpoint")


def test_clean_keys_that_collide(tmp_path):
    prefix = put(
        tmp_path, {b"a": entry(FLOAT32, (), floats(1)), b"a" + VALUE.encode(): entry(FLOAT32, (), floats(1))}, floats(1)
    )
    assert len(tb.load(prefix)) == 2
    with pytest.raises(UnsupportedError, match="two tensors would be named 'a'"):
        tb.load(prefix, keys="clean")


# ---- hostile ----------------------------------------------------------------------


def snappy(body):
    return bytes(cramjam.snappy.compress_raw(body))


def test_a_compressed_index(tmp_path):
    """TensorFlow compresses blocks where its build can; its reader always takes them."""
    rng = np.random.default_rng(3)
    names = sorted({"/".join(rng.choice(["kernel", "bias", "layer", "a", "bb"], 6)).encode() for _ in range(3000)})
    items = [HEAD, *((name + VALUE.encode(), GOOD) for name in names)]
    prefix = put(tmp_path, table(snappy(block(items)), kind=1), TWO)
    loaded = agrees(prefix)
    assert len(loaded) == len(names) > 2000
    # Literals and copies of every length.
    for body in (b"", bytes(range(256)) * 3, b"a" * 70_000, rng.bytes(70_000), b"abcde" * 1000 + rng.bytes(300)):
        value = field(1000, body)  # an unknown field
        put(tmp_path, table(snappy(block([HEAD, (b"w", GOOD + value)])), kind=1), TWO)
        assert tb.load(prefix)["w"].tolist() == [1, 2]


def test_every_flipped_bit_of_a_compressed_index(tmp_path):
    """Behind valid checksums, so that the decoder itself meets the damage."""
    good = snappy(block([HEAD, *((b"a/name/" * i + VALUE.encode(), GOOD) for i in range(1, 4))]))
    kinds = set()
    for bit in range(8 * len(good)):
        raw = bytearray(good)
        raw[bit // 8] ^= 1 << bit % 8
        prefix = put(tmp_path, table(bytes(raw), kind=1), TWO)
        try:
            tb.load(prefix)
            kinds.add("loaded")
        except TensorbytesError as error:
            kinds.add(type(error).__name__)
    assert kinds == {"CorruptError", "UnsupportedError", "loaded"}


BIG = 1 << 62
SLICED = entry(FLOAT32, (2,), size=0, crc=0, extra=extents((0, 1)) + extents((1, 1)))
FIRST, SECOND = slice_key(b"w", (0, 1)), slice_key(b"w", (1, 1))
HALF = entry(FLOAT32, (1,), TWO[:4])
REST = entry(FLOAT32, (1,), TWO[4:], offset=4)
ENTRIES = {
    "18 negative size": (entry(FLOAT32, (2,), TWO, size=-8), CorruptError, "takes -8"),
    "19 negative dim": (entry(FLOAT32, (-2,), TWO), CorruptError, "a dimension is -2"),
    "21 product overflow": (entry(FLOAT32, (1 << 32, 1 << 32), TWO), CorruptError, "64 bits"),
    "22 bytes overflow": (entry(FLOAT32, (BIG,), TWO), CorruptError, "64 bits"),
    "23 zero first": (entry(FLOAT32, (0, BIG, BIG)), CorruptError, "64 bits"),
    "23 zero last": (entry(FLOAT32, (BIG, BIG, 0)), CorruptError, "64 bits"),
    "26 rank": (entry(FLOAT32, (1,) * 65, TWO), LimitError, "rank 65"),
    "29 size differs": (entry(FLOAT32, (3,), TWO), CorruptError, "takes 12 bytes, the index says 8"),
    "30 unknown dtype": (entry(99, (2,), TWO), UnsupportedError, "unknown dtype 99"),
    "no dtype": (entry(0, (2,), TWO), CorruptError, "no dtype"),
    "unknown rank": (GOOD + field(2, number(3, 1)), CorruptError, "unknown_rank"),
    "beyond the shard": (entry(FLOAT32, (2,), TWO, offset=1), CorruptError, "bytes 1 to 9 of c.data-00000.*has 8"),
    "far beyond": (entry(FLOAT32, (2,), TWO, offset=(1 << 63) - 1), CorruptError, "which has 8"),
    "negative offset": (entry(FLOAT32, (2,), TWO, offset=-4), CorruptError, "stands at byte -4"),
    "another shard": (entry(FLOAT32, (2,), TWO, shard=1), CorruptError, "shard 1 of a checkpoint of 1"),
    "negative shard": (entry(FLOAT32, (2,), TWO, shard=-1), CorruptError, "shard -1"),
    "checksum": (entry(FLOAT32, (2,), TWO, crc=5), CorruptError, "checksum differs"),
    "a bool of 2": (entry(BOOL, (4,), b"\0\0\x80\x3f", size=4), CorruptError, "is not a valid bool"),
    "60 long varint": (GOOD + b"\x20" + b"\xff" * 11, CorruptError, "ten bytes"),
    "63 wire type": (GOOD + b"\x27", CorruptError, "wire type 7"),
    "64 length": (GOOD + b"\x3a\xff\x01", CorruptError, "claims"),
    "another wire type": (GOOD + field(5, b"x"), CorruptError, "wire type 2, expected 0"),
    "a checksum of 8 bytes": (GOOD + b"\x31" + bytes(8), CorruptError, "wire type 1, expected 5"),
    "a slice that is not there": (SLICED, CorruptError, "slice 0,1 is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
def test_hostile_entries(case, tmp_path):
    raw, error, match = ENTRIES[case]
    with pytest.raises(error, match=match):
        tb.load(put(tmp_path, {b"w": raw}, TWO))


SLICES = {
    "overlap": ((((0, 2),), ((1, 1),)), [(2,), (1,)], "overlap, or leave gaps"),
    "twice": ((((0, 1),), ((0, 1),)), [(1,), (1,)], "overlap, or leave gaps"),
    "gap": ((((0, 1),),), [(1,)], "overlap, or leave gaps"),
    "beyond": ((((1, 2),),), [(2,)], "slice 1,2 of a shape"),
    "rank": ((((0, 1), (0, 1)),), [(1,)], "slice 0,1:0,1 of a shape"),
    "another shape": ((((0, 1),), ((1, 1),)), [(1,), (1, 1)], "stored as something else"),
}  # fmt: skip


@pytest.mark.parametrize("case", SLICES)
def test_hostile_slices(case, tmp_path):
    boxes, shapes, match = SLICES[case]
    entries = {b"w": entry(FLOAT32, (2,), size=0, crc=0, extra=b"".join(extents(*box) for box in boxes))}
    for box, shape in zip(boxes, shapes, strict=True):
        data = TWO[: 4 * int(np.prod(shape))]
        entries[slice_key(b"w", *box)] = entry(FLOAT32, shape, data)
    with pytest.raises(CorruptError, match=match):
        tb.load(put(tmp_path, entries, TWO))


def test_slices_of_a_grid_and_other_dtypes(tmp_path):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    boxes = [((i, 2), (j, 2)) for i in (0, 2) for j in (0, 2)]
    pieces = [np.ascontiguousarray(x[i : i + 2, j : j + 2]).tobytes() for ((i, _), (j, _)) in boxes]
    entries = {b"w": entry(FLOAT32, (4, 4), size=0, crc=0, extra=b"".join(extents(*box) for box in boxes))}
    for n, box in enumerate(boxes):
        entries[slice_key(b"w", *box)] = entry(FLOAT32, (2, 2), pieces[n], offset=16 * n)
    prefix = put(tmp_path, entries, b"".join(pieces))
    same(tb.load(prefix)["w"], x)
    with tb.open(prefix) as file:
        same(file["w"][1:3, 1:3], x[1:3, 1:3])
    overlapping = {
        **entries,
        b"w": entry(FLOAT32, (4, 4), size=0, crc=0, extra=b"".join(extents(*boxes[n]) for n in (0, 1, 2, 2))),
    }
    with pytest.raises(CorruptError, match="overlap"):
        tb.load(put(tmp_path, overlapping, b"".join(pieces)))
    with pytest.raises(CorruptError, match="stored as something else"):
        tb.load(put(tmp_path, {b"w": SLICED, FIRST: HALF, SECOND: entry(INT32, (1,), TWO[4:], offset=4)}, TWO))
    with pytest.raises(UnsupportedError, match="in slices"):
        tb.load(put(tmp_path, {b"w": entry(STRING, (2,), size=0, extra=extents((0, 1)))}, TWO))
    same(tb.load(put(tmp_path, {b"w": SLICED, FIRST: HALF, SECOND: REST}, TWO))["w"], np.array([1, 2], np.float32))


STRINGS, STRINGS_CRC = strings(b"ab", b"c")
TEXTS = {
    "lengths' checksum": STRINGS[:2] + b"????" + STRINGS[6:],
    "length too large": b"\x09" + STRINGS[1:],
    "length of ten bytes": b"\xff" * 9 + b"\x01" + STRINGS[1:],
    "length never ends": b"\xff" * 9,
    "bytes left over": STRINGS + b"x",
    "one byte short": STRINGS[:-1],
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_hostile_strings(case, tmp_path):
    data = TEXTS[case]
    for lazily in (False, True):
        prefix = put(tmp_path, {b"s": entry(STRING, (2,), data, crc=STRINGS_CRC)}, data)
        with pytest.raises(CorruptError, match=r"'s': |ten bytes"):
            tb.open(prefix)["s"].load() if lazily else tb.load(prefix)
    with pytest.raises(CorruptError, match="can't fit"):
        tb.load(put(tmp_path, {b"s": entry(STRING, (1 << 40,), STRINGS, crc=STRINGS_CRC)}, STRINGS))


TABLES = {
    "1 empty": (b"", "0 bytes"),
    "2 magic alone": (bytes.fromhex("57fb808b247547db"), "8 bytes"),
    "wrong magic": (table(block([HEAD]), magic=b"12345678"), "expected 57 fb"),
    "no header": (table(block([(b"w", GOOD)])), "no header"),
    "nothing at all": (table(), "no header"),
    "padding": (table(block([HEAD]), padding=b"\1"), "padding"),
    "3 block beyond the file": (table(block([HEAD]), handles=[handle(0, 1 << 40)]), "a block from byte 0"),
    "4 block of 2^64": (table(block([HEAD]), handles=[handle((1 << 64) - 4, 8)]), "a block from byte"),
    "handle cut": (table(block([HEAD]), handles=[b"\0"]), "varint"),
    "handle and more": (table(block([HEAD]), handles=[handle(0, len(block([HEAD]))) + b"x"]), "handle"),
    "blocks twice": (table(block([HEAD]), block([HEAD]), handles=[handle(0, len(block([HEAD])))] * 2), "leads back"),
    "a block without restarts": (table(b"\0\0\0\0"), "0 restarts"),
    "a block of 3 bytes": (table(b"\0\0\0"), "3 bytes"),
    "restarts beyond": (table(block([HEAD], count=1000)), "1000 restarts"),
    "2^32 restarts": (table(block([HEAD], count=(1 << 32) - 1)), "4294967295 restarts"),
    "a restart inside an entry": (table(block([HEAD, (b"w", GOOD)], restarts=(0, 5))), "not an entry"),
    "restarts that fall": (table(block([HEAD], restarts=(0, 0))), "don't rise"),
    "a first restart of 1": (table(block([HEAD], restarts=(1,))), "don't rise"),
    "a restart that shares": (table(block([HEAD, (b"w", b""), (1, b"x", b"")], restarts=(0, 13))), "shares bytes"),
    "shared beyond the key": (table(block([HEAD, (3, b"w", GOOD)])), "shares 3 bytes of 0"),
    "key beyond the block": (table(b"\0\x7f\0" + block([])), "takes 127"),
    "value of 2^63": (table(b"\0\1" + varint(1 << 63) + b"w" + block([])), "takes 1 \\+ 9223372036854775808"),
    "unsorted": (table(block([HEAD, (b"x", GOOD), (b"w", GOOD)])), "out of order"),
    "40 twice": (table(block([HEAD, (b"w", GOOD), (b"w", GOOD)])), "out of order, or appears twice"),
    "unsorted blocks": (table(block([HEAD, (b"x", b"")]), block([(b"w", b"")]), keys=[b"x", b"y"]), "out of order"),
    "index below its block": (table(block([HEAD, (b"x", GOOD)]), keys=[b"a"]), "beyond its own"),
    "45 no UTF-8": (index({b"\xc3(": GOOD}), "not UTF-8"),
    "a slice of nothing": (index({FIRST: HALF}), "not UTF-8"),
    "no shards": (index({}, number(1, 0)), "0 shards"),
    "negative shards": (index({}, number(1, -1)), "-1 shards"),
    "2^31 shards": (index({b"w": GOOD}, number(1, 1 << 31)), "2147483648 shards"),
    "2^31 - 1 shards": (index({b"w": GOOD}, number(1, (1 << 31) - 1)), "data-00000-of-2147483647.*missing"),
    "unknown byte order": (index({}, number(1, 1) + number(2, 2)), "byte order 2"),
    "snappy of nothing": (table(b"", kind=1), "varint"),
    "95 snappy's size": (table(varint(1 << 40) + b"\0a", kind=1), "impossible snappy"),
    "100 snappy, short": (table(b"\x05\x04ab", kind=1), "snappy can't"),
    "100 snappy, long": (table(b"\x01\x04ab", kind=1), "snappy can't"),
    "snappy copy from before": (table(b"\x08\x04ab\x01\x03", kind=1), "snappy can't"),
    "snappy copy from here": (table(b"\x08\x04ab\x01\x00", kind=1), "snappy can't"),
    "snappy element cut": (table(b"\x08\xf4\x01", kind=1), "snappy can't"),
    "snappy literal cut": (table(b"\x08\x1cab", kind=1), "snappy can't"),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_hostile_tables(case, tmp_path):
    raw, match = TABLES[case]
    prefix = put(tmp_path, raw, TWO)
    for read in (tb.load, lambda path: tb.open(path).keys()):
        with pytest.raises(CorruptError, match=match) as caught:
            read(prefix)
        assert caught.value.path == f"{prefix}.index"


def test_other_refusals(tmp_path):
    with pytest.raises(UnsupportedError, match="unknown compression 2"):
        tb.load(put(tmp_path, table(block([HEAD]), kind=2)))
    with pytest.raises(UnsupportedError, match="version 2"):
        tb.load(put(tmp_path, {}, header=number(1, 1) + field(3, number(2, 2))))
    with pytest.raises(LimitError, match="over 3 entries"):
        tb.load(put(tmp_path, {bytes([97 + i]): GOOD for i in range(4)}, TWO), limits=Limits(max_tensors=3))
    # Keys that repeat a long one take more memory than the file has.
    many = [HEAD, (b"k" * 100_000, GOOD), *((100_000, struct.pack(">H", i), GOOD) for i in range(1000))]
    with pytest.raises(LimitError, match="the entries of the table"):
        tb.load(put(tmp_path, table(block(many)), TWO), limits=Limits(max_bytes=1 << 25))
    # So do tensors that share their bytes.
    same_bytes = {f"{i:04d}".encode(): entry(FLOAT32, (250_000,), bytes(1_000_000)) for i in range(50)}
    prefix = put(tmp_path, same_bytes, bytes(1_000_000))
    with pytest.raises(LimitError, match="which share bytes"):
        tb.load(prefix, limits=Limits(max_bytes=1 << 25))
    assert len(tb.load(prefix)) == 50


def test_names_are_opaque(tmp_path):
    names = [b"../../etc/passwd", b"/etc/passwd", b"C:\\x", b"a\0b", "é".encode(), "e\u0301".encode(), b"__class__"]
    found = tb.load(put(tmp_path, dict.fromkeys(names, GOOD), TWO))
    assert set(found) == {name.decode() for name in names}


def test_bytes_that_belong_to_nothing_are_not_looked_at(tmp_path):
    """Alignment between tensors, in which TensorFlow's own writer can leave gaps."""
    for gap in (b"\0\0\0", b"abc"):
        data = b"\1" + gap + TWO
        found = tb.load(put(tmp_path, {b"b": entry(BOOL, (), b"\1"), b"w": entry(FLOAT32, (2,), TWO, offset=4)}, data))
        assert found["w"].tolist() == [1, 2]


NOTES = {
    "no JSON": (b"{", "is not JSON"),
    "no object": (b"[]", "must be a JSON object"),
    "40 twice": (b'{"w":{},"w":{}}', "appears twice"),
    "of nothing": (b'{"x":{}}', "a note on 'x', which is not there"),
    "unknown key": (b'{"w":{"y":1}}', "'y' is unknown"),
    "no note": (b'{"w":3}', "is not a JSON object"),
    "a list": (b'{"w":["layout"]}', "is not a JSON object"),
    "path": (b'{"w":{"path":[["key"]]}}', "not a step of a path"),
    "dtype": (b'{"w":{"dtype":"float64"}}', "float64 over elements of float32"),
    "42 deep": (b'{"w":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
}


@pytest.mark.parametrize("case", NOTES)
@pytest.mark.parametrize("lazily", [False, True])
def test_hostile_notes(case, lazily, tmp_path):
    text, match = NOTES[case]
    data, crc = strings(text)
    entries = {b"w": GOOD, b"_TENSORBYTES": entry(STRING, (), data, offset=8, crc=crc)}
    with pytest.raises(CorruptError, match=match):
        tb.load(put(tmp_path, entries, TWO + data), mmap=lazily)
    with pytest.raises(CorruptError, match="must be one string"):
        tb.load(put(tmp_path, {b"w": GOOD, b"_TENSORBYTES": GOOD}, TWO), mmap=lazily)


MEMORY = """
import resource, sys
import tensorbytes as tb
tb.loads(tb.dumps(1.0))  # what is loaded when it is used
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (1 << 28)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        tb.load(path, "checkpoint")
        print("loaded")
    except tb.errors.TensorbytesError as error:
        print(type(error).__name__)
"""


def test_huge_claims_take_no_memory(tmp_path):
    pytest.importorskip("resource")  # POSIX only
    sliced = entry(UINT8 := 4, (1 << 40,), size=0, crc=0, extra=extents((0, 63)))
    cases = [
        {b"w": entry(UINT8, (1 << 40,), TWO, size=1 << 40)},
        {b"w": sliced, slice_key(b"w", (0, 63)): entry(UINT8, (63,), bytes(63))},
        {b"w": entry(STRING, (1 << 40,), TWO, size=1 << 41)},
        table(varint(1 << 33) + b"\0a", kind=1),
        {f"{i:05d}".encode(): entry(UINT8, (1 << 20,), bytes(1 << 20)) for i in range(2000)},
        table(block([HEAD, (b"k" * 1_000_000, GOOD), *((1_000_000, struct.pack(">H", i), GOOD) for i in range(2000))])),
    ]
    paths = [put(tmp_path, case, bytes(1 << 20), name=f"c{i}") for i, case in enumerate(cases)]
    run = subprocess.run([sys.executable, "-c", MEMORY, *paths], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["CorruptError"] * 4 + ["LimitError"] * 2


def test_flipped_bits_of_a_table_by_hand_raise_nothing_else(tmp_path):
    """With checksums made anew: whatever an entry may say, it loads or is refused."""
    body = block([HEAD, (b"s", entry(STRING, (2,), STRINGS, crc=STRINGS_CRC, offset=8)), (b"w", GOOD)])
    for bit in range(8 * len(body)):
        raw = bytearray(body)
        raw[bit // 8] ^= 1 << bit % 8
        prefix = put(tmp_path, table(bytes(raw)), TWO + STRINGS)
        for lazily in (False, True):
            with contextlib.suppress(TensorbytesError):
                tb.load(prefix, mmap=lazily)
