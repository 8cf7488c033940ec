"""What exports memory to us: buffers, DLPack, __array__, __array_interface__; sound ones, those that lie or fail."""

import ctypes
import io
import mmap

import numpy as np
import pytest

import tensorbytes as tb

ARRAYS = {"w": np.arange(600, dtype=np.float32).reshape(6, 100), "b": np.arange(-40, 40, dtype=np.int64)}


class WithInterface:
    def __init__(self, interface):
        self.__array_interface__ = interface


class WithArray:
    def __init__(self, give):
        self.give = give

    def __array__(self, dtype=None, copy=None):
        return self.give()


class WithDlpack:
    def __init__(self, give):
        self.give = give

    def __dlpack__(self, **options):
        return self.give(**options)

    def __dlpack_device__(self):
        return 1, 0


class WithRaisingGetter:
    @property
    def __array__(self):
        raise RuntimeError("not today")


def raising():
    raise RuntimeError("not today")


def consumed():
    capsule = np.arange(4.0).__dlpack__()
    np.from_dlpack(WithDlpack(lambda **_: capsule))
    return WithDlpack(lambda **_: capsule)


MEMORY = ctypes.create_string_buffer(64)
SOUND = {"version": 3, "typestr": "<f4", "shape": (4,), "data": (ctypes.addressof(MEMORY), False)}
# None of these is asked for its memory at all: what only __array_interface__ says can't be checked.
LIES = {
    "a shape over its memory": {"shape": (1 << 40,)},
    "a negative shape": {"shape": (-1,)},
    "a shape whose size wraps": {"shape": (1 << 32, 1 << 32)},
    "no number as shape": {"shape": (1.5,)},
    "no such type": {"typestr": "zz"},
    "objects": {"typestr": "|O8"},
    "no memory": {"data": (0, False)},
    "strides that run backwards": {"strides": (-4,)},
    "strides that leave the memory": {"strides": (1 << 40,)},
    "strides for another rank": {"strides": (4, 4)},
    "no such version": {"version": 9},
}
REFUSED = {
    **{f"an interface of {name}": WithInterface({**SOUND, **lie}) for name, lie in LIES.items()},
    "an __array__ that raises": WithArray(raising),
    "an __array__ that gives a number": WithArray(lambda: 5),
    "an __array__ that gives nothing": WithArray(lambda: None),
    "an __array__ of objects": WithArray(lambda: np.array([object()])),
    "a __dlpack__ that raises": WithDlpack(lambda **_: raising()),
    "a __dlpack__ that gives no capsule": WithDlpack(lambda **_: 5),
    "a capsule that was taken before": consumed(),
    "a getter that raises": WithRaisingGetter(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_exporters_that_lie_or_fail_are_refused(what):
    with pytest.raises(tb.errors.TensorbytesError):
        tb.dumps(REFUSED[what])


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_capsules_old_and_versioned(options):
    array = np.arange(12.0).reshape(3, 4)[::-1, ::2]
    given = WithDlpack(lambda **_: array.__dlpack__(**options))
    assert np.array_equal(tb.loads(tb.dumps(given)), array)
    assert np.array_equal(tb.loads(tb.dumps([given, given]))[1], array)  # each time a capsule of its own


@pytest.mark.parametrize("strides", [(-8,), (0,), (24,)])
def test_any_strides_are_read_as_numpy_reads_them(strides):
    base = np.arange(40, dtype=np.int64)
    array = np.lib.stride_tricks.as_strided(base[20:], (3,), strides)
    assert np.array_equal(tb.loads(tb.dumps(array)), array)


def released():
    view = memoryview(bytearray(80))
    view.release()
    return view


def closed():
    mapped = mmap.mmap(-1, 80)
    mapped.close()
    return mapped


@pytest.mark.parametrize("format", [None, "tb", "npy", "safetensors"])
@pytest.mark.parametrize(
    "give",
    [released, closed, lambda: memoryview(bytes(80))[::2], lambda: memoryview(bytes(80))[::-1], lambda: 5, object],
    ids=["released", "closed", "strided", "backwards", "a number", "no buffer"],
)
def test_buffers_that_can_not_be_read(give, format):
    with pytest.raises(tb.errors.UsageError):
        tb.loads(give(), format)


@pytest.mark.parametrize(
    "wrap",
    [bytearray, memoryview, lambda data: np.frombuffer(data, np.int8), lambda data: io.BytesIO(data).getbuffer()],
    ids=["bytearray", "memoryview", "signed bytes", "a file's buffer"],
)
def test_any_buffer_is_read(wrap):
    assert tb.equal(tb.loads(wrap(tb.dumps(ARRAYS))), ARRAYS)
    assert tb.equal(tb.loads(wrap(tb.dumps(ARRAYS["b"]))), ARRAYS["b"])


def unaligned(array):
    """The same array, at an odd address."""
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    memory[:] = np.frombuffer(array.tobytes(), np.uint8)
    out = memory.view(array.dtype).reshape(array.shape)
    assert not out.flags.aligned or array.itemsize == 1
    return out


def records_of(batch):
    out = io.BytesIO()
    with tb.RecordWriter(out) as writer:
        writer.write_batch(batch)
    return out.getvalue()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "bool"])
def test_arrays_at_odd_addresses_are_written_as_others(dtype):
    array = np.arange(12).reshape(4, 3).astype(dtype)
    assert records_of({"x": unaligned(array)}) == records_of({"x": array})
    for name in ("tb", "npy", "arrow", "protobuf"):
        assert tb.dumps(unaligned(array), name) == tb.dumps(array, name)


def test_offsets_at_odd_addresses_are_read_as_others():
    offsets, splits = np.array([0, 1, 3, 6]), np.array([0, 2, 3])
    usual, odd = (tb.Strings((3,), place, b"abbccc", "utf-8") for place in (offsets, unaligned(offsets)))
    assert records_of({"x": odd}) == records_of({"x": usual})
    assert tb.dumps(odd, "onnx") == tb.dumps(usual, "onnx")
    rows = tb.Ragged(usual, (splits,)), tb.Ragged(odd, (unaligned(splits),))
    for write in (tb.dumps, lambda value: tb.dumps(value, "protobuf"), lambda value: records_of({"x": value})):
        assert write(rows[0]) == write(rows[1])
