"""Arrow tensor messages, against pyarrow."""

import contextlib
import io
import struct

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, errors, testing
from tensorbytes.tensor import Tensor

pa = pytest.importorskip("pyarrow")

NAMES = [row.name for row in dtypes.DTYPES.values() if row.arrow and row.name != "bool"]
SHAPES = [(), (0,), (5,), (0, 3), (3, 0, 2), (2, 3), (2, 1, 4), (1, 1, 1, 1, 7)]


def written(x, **options):
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(x, **options), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_pyarrow_reads_ours_and_we_read_its(name, shape):
    x = testing.bits.array(name, shape)
    raw = tb.dumps(x, "arrowtensor")
    found = pa.ipc.read_tensor(pa.BufferReader(raw))
    assert (tuple(found.shape), str(found.type)) == (shape, str(pa.from_numpy_dtype(x.dtype)))
    assert found.to_numpy().tobytes() == x.tobytes()
    for given in (raw, written(x)):
        got = tb.loads(given)
        assert (got.dtype, got.shape, got.tobytes()) == (x.dtype, x.shape, x.tobytes())


def test_any_order_is_read_and_c_order_written():
    base = np.arange(120, dtype=np.int32).reshape(4, 5, 6)
    for x in (base.transpose(2, 0, 1), base[::2, :, ::3], np.asfortranarray(base), base[1:]):
        assert np.array_equal(tb.loads(written(x)), x)
        found = pa.ipc.read_tensor(pa.BufferReader(tb.dumps(x, "arrowtensor")))
        assert found.is_contiguous
        assert np.array_equal(found.to_numpy(), x)


def test_strides_are_honoured_lazily_too():
    x = np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4))
    raw = bytearray(tb.dumps(np.ascontiguousarray(x.T), "arrowtensor"))
    at = raw.index(struct.pack("<qq", 6, 2))  # the strides of [4, 3] in C order
    raw[at : at + 16] = struct.pack("<qq", 2, 8)  # those of the same shape, column by column
    want = np.ndarray((4, 3), np.int16, bytes(raw[-24:]), strides=(2, 8))
    assert np.array_equal(pa.ipc.read_tensor(pa.BufferReader(raw)).to_numpy(), want)
    assert np.array_equal(tb.loads(raw), want)
    with tb.open(io.BytesIO(raw)) as file:
        (entry,) = file.entries()
        assert entry.shape == (4, 3)
        assert np.array_equal(entry[1:3, 0], want[1:3, 0])


def test_names_of_axes():
    x = np.zeros((2, 3))
    got = tb.loads(written(x, dim_names=["rows", "é"]), to="tensor")
    assert got.meta == {"dim_names": '["rows","\\u00e9"]'}
    assert pa.ipc.read_tensor(pa.BufferReader(tb.dumps(got, "arrowtensor"))).dim_names == ["rows", "é"]
    for wrong in ("x", "[1, 2]", '["a"]'):
        with pytest.raises(errors.LossError, match="dim_names"):
            tb.dumps(Tensor("int8", (1, 1), b"a", meta={"dim_names": wrong}), "arrowtensor")


@pytest.mark.parametrize(
    ("given", "feature"),
    [
        (np.zeros(2, bool), "dtype"),
        (np.zeros(2, complex), "dtype"),
        (np.array(["a"]), "strings"),
        ({"a": np.zeros(2)}, "structure"),
        (Tensor("int8", (1,), b"a", "name"), "name"),
        (Tensor("int8", (1,), b"a", meta={"unit": "m"}), "unit"),
    ],
)
def test_what_it_has_no_place_for(given, feature):
    with pytest.raises(errors.LossError) as caught:
        tb.dumps(given, "arrowtensor", allow={"numpy.dtype", "encoding"})
    assert caught.value.feature == feature


def test_memory_is_shared(tmp_path):
    x = np.arange(10_000)
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), x) for piece in tb.buffers(x, "arrowtensor"))
    raw = np.frombuffer(written(x), np.uint8)
    assert np.shares_memory(tb.loads(raw), raw)
    tb.save(x, tmp_path / "x.arrowtensor", sync=False)
    assert tb.open(tmp_path / "x.arrowtensor").format == "arrowtensor"
    assert np.array_equal(tb.load(tmp_path / "x.arrowtensor", mmap=True), x)


# ---- hostile ----------------------------------------------------------------------


def small():
    return tb.dumps(np.arange(6, dtype=np.int16).reshape(2, 3), "arrowtensor")


def attempt(raw):
    with contextlib.suppress(errors.TensorbytesError):
        tb.loads(raw, "arrowtensor")
    with contextlib.suppress(errors.TensorbytesError), tb.open(io.BytesIO(raw), format="arrowtensor") as file:
        file.entries()[0].load()


def test_bytes_behind_it():
    with pytest.raises(errors.CorruptError, match="follow"):
        tb.loads(small() + b"\0", "arrowtensor")


def test_90_offsets_of_flatbuffers():
    raw = small()
    for at in range(8, len(raw) - 12, 2):
        for value in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, at, 1 << 20):
            attempt(raw[:at] + struct.pack("<I", value) + raw[at + 4 :])


CLAIMS = {
    "a large axis": (struct.pack("<q", 3), struct.pack("<q", 1 << 40)),
    "an axis below zero": (struct.pack("<q", 3), struct.pack("<q", -3)),
    "beyond 64 bits": (struct.pack("<q", 3), struct.pack("<q", (1 << 63) - 1)),
    "a stride outside": (struct.pack("<qq", 6, 2), struct.pack("<qq", 6, 1 << 40)),
    "a stride below zero": (struct.pack("<qq", 6, 2), struct.pack("<qq", 6, -2)),
    "data outside": (struct.pack("<qq", 0, 12), struct.pack("<qq", 1, 12)),
    "data that is shorter": (struct.pack("<qq", 0, 12), struct.pack("<qq", 0, 4)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name):
    old, new = CLAIMS[name]
    raw = small()
    assert raw.count(old) == 1
    with pytest.raises((errors.CorruptError, errors.LimitError)):
        tb.loads(raw.replace(old, new))


def test_strides_of_zero_make_much_out_of_little():
    raw = small().replace(struct.pack("<qq", 6, 2), bytes(16))
    assert tb.loads(raw).tolist() == [[0] * 3] * 2
    huge = raw.replace(struct.pack("<q", 3), struct.pack("<q", 1 << 32))
    with pytest.raises(errors.LimitError, match="max_bytes"):
        tb.loads(huge)


def test_other_messages():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("x", pa.int8())])):
        pass
    with pytest.raises(errors.CorruptError, match="format 'arrow' reads tables"):
        tb.loads(sink.getvalue().to_pybytes()[:-8], "arrowtensor")
    sparse = pa.SparseCOOTensor.from_dense_numpy(np.eye(2))
    with pytest.raises(errors.UsageError, match="can't tell"):
        tb.loads(sparse_message(sparse))


def sparse_message(tensor):
    """The bytes of a tensor message, marked as one of a sparse tensor: pyarrow has no writer of these in Python."""
    assert tensor.shape == (2, 2)
    raw = bytearray(small())
    at = 8 + struct.unpack_from("<I", raw, 8)[0]
    assert raw[at + 18] == 4
    raw[at + 18] = 5
    with pytest.raises(errors.UnsupportedError, match="sparse"):
        tb.loads(raw, "arrowtensor")
    return bytes(raw)
