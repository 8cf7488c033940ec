"""Quantized tensors in the native frame: dumps(quantize=...), loads, dequantize=False, lazy slices."""

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.errors import CorruptError, UnsupportedError, UsageError
from tensorbytes.quantization import Quantize

RNG = np.random.default_rng(3)
X = RNG.normal(size=(50, 70)).astype(np.float32)
SPECS = [
    "int8", "uint8", "int4", "uint4", "int16", "bfloat16", "float16", "float8_e4m3fn", 1e-3,
    Quantize("int8", axis=0), Quantize("int8", axis=1), Quantize("int4", group=32),
    Quantize("int8", group=16, symmetric=False), Quantize("int16", scale=2**-10),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_original_dtype_comes_back(spec):
    done = tb.quantize(X, spec)
    data = tb.dumps(X, quantize=spec)
    back = tb.loads(data)
    assert back.dtype == X.dtype
    assert back.tobytes() == bytes(done.dequantize().data)
    assert np.abs(X.astype(np.float64) - back).max() <= done.cost.max_error
    assert len(data) < X.nbytes * 0.8
    assert tb.dumps(X, quantize=spec) == data


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_stored_values_on_request(spec):
    done = tb.quantize(X, spec)
    stored = tb.loads(tb.dumps(X, quantize=spec), dequantize=False, to="tensor")
    assert (stored.dtype, stored.shape) == (done.parameters.stored, X.shape)
    assert bytes(stored.data) == bytes(done.data.data)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_slices_of_a_lazy_file(spec, tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"w": X, "n": np.arange(3)}, path, quantize=spec)
    whole = tb.load(path)["w"]
    with tb.open(path) as file:
        for index in (np.s_[7], np.s_[3:20], np.s_[-2:], np.s_[5:5], np.s_[4:9, 3:60], np.s_[::7]):
            np.testing.assert_array_equal(file["w"][index], whole[index])


def test_one_spec_leaves_other_values_alone():
    tree = {"w": X, "n": np.arange(4), "name": "layer", "scalar": 1.5, "z": X.astype(np.complex64)}
    back = tb.loads(tb.dumps(tree, quantize="int8"))
    assert back["n"].tolist() == [0, 1, 2, 3]
    assert (back["name"], back["scalar"]) == ("layer", 1.5)
    np.testing.assert_array_equal(back["z"], tree["z"])
    assert 0 < np.abs(back["w"] - X).max() < 0.05


def test_patterns_choose():
    tree = {"a": {"w": X, "b": X[0]}, "c": X}
    back = tb.loads(tb.dumps(tree, quantize={"a/w": "int4", "a/*": "bfloat16"}))
    assert np.abs(back["a"]["w"] - X).max() > np.abs(back["a"]["b"] - X[0]).max() > 0
    np.testing.assert_array_equal(back["c"], X)
    with pytest.raises((UnsupportedError, UsageError), match="n"):
        tb.dumps({"n": np.arange(3)}, quantize={"n": "int8"})


def test_errors_name_the_tensor():
    with pytest.raises(UnsupportedError, match="layer/w"):
        tb.dumps({"layer": {"w": X * np.inf}}, quantize="int8")
    with pytest.raises(UsageError, match="int9"):
        tb.dumps(X, quantize="int9")


def test_tensorflow_reads_the_stored_integers():
    tf = pytest.importorskip("tensorflow")
    done = tb.quantize(X, "int8")
    message = tb.dumps(X, format="protobuf", quantize="int8")
    parsed = tf.io.parse_tensor(message, tf.int8)
    np.testing.assert_array_equal(parsed.numpy(), done.data.numpy())
    back = tf.cast(parsed, tf.float32) * done.parameters.scales[0]
    assert back.numpy().tobytes() == tb.loads(message, format="protobuf").tobytes()


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_damage_is_found(place):
    data = bytearray(tb.dumps(X[:3, :10], quantize=Quantize("int8", group=4)))
    data[place % len(data)] ^= 0x10
    with pytest.raises(CorruptError):
        tb.loads(bytes(data), format="tb")


def test_the_parameters_are_shown(tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"w": X}, path, quantize=Quantize("int8", group=32))
    assert "int8 per group of 32, max error" in str(tb.inspect(path))
