"""What quantization is asked for, what it reports, and parameters that don't fit."""

import math

import numpy as np
import pytest

from tensorbytes import quantization
from tensorbytes.errors import UnsupportedError, UsageError
from tensorbytes.ops.quantizing import quantize as quantize_any
from tensorbytes.quantization import Quantization, Quantize, dequantize, dequantize_rows, quantize
from tensorbytes.tensor import InvalidValueError, Strings, Tensor
from tests.support.quantization_cases import tensor

RNG = np.random.default_rng(5)


# ---- what it looks like -----------------------------------------------------


def test_the_report():
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    done = quantize(tensor(x, "w"), Quantize("int4", group=16))
    assert done.cost.bytes_before == 256
    assert done.cost.bytes_after == 32 + 4 * 4
    assert done.cost.saved == 208
    assert (done.data.name, done.dequantize().name) == ("w", "w")
    assert str(done).startswith("float32[2, 32] as int4 per group of 16: max error 0.064, mean")
    assert str(done).endswith("dB; 48 bytes instead of 256, 81% saved")
    assert done.parameters.describe() == "int4 per group of 16, max error 0.064"
    assert quantize(tensor(np.zeros(3)), Quantize("int8")).parameters.describe() == "int8, exact"
    empty = quantize(tensor(np.zeros((0, 3))), Quantize.of(0.1))
    assert "exact" in str(empty)


@pytest.mark.parametrize(
    "make",
    [lambda x: x, "torch.tensor", "tensorflow.constant", "jax.numpy.asarray"],
    ids=["numpy", "torch", "tf", "jax"],
)
def test_tensors_of_any_framework(make):
    if isinstance(make, str):
        module, _, name = make.rpartition(".")
        make = getattr(pytest.importorskip(module), name)
    x = np.linspace(-1, 1, 10, dtype=np.float32)
    np.testing.assert_allclose(quantize_any(make(x), "int8").dequantize().numpy(), x, atol=0.004)


def test_what_can_be_quantized():
    assert quantization.applies(tensor(np.ones(3, np.float16)))
    assert quantization.applies(tensor(np.ones(3)), Quantize("float32"))
    assert not quantization.applies(tensor(np.ones(3, np.float32)), Quantize("float32"))
    assert not quantization.applies(tensor(np.ones(3, np.float16)), Quantize("bfloat16"))
    assert not quantization.applies(tensor(np.ones(3, np.int32)))
    assert not quantization.applies(Strings.from_items([b"a"], (1,), "bytes"))
    with pytest.raises(UnsupportedError, match=r"tensor 'n': int32 can't be quantized"):
        quantize(tensor(np.ones(3, np.int32)), Quantize("int8"), "n")
    with pytest.raises(UsageError, match="expected a tensor"):
        quantize_any([1.0], "int8")
    with pytest.raises(UnsupportedError, match="strings value"):
        quantize_any(np.array(["a"]), "int8")


# ---- arguments --------------------------------------------------------------


def test_short_forms():
    assert Quantize.of("int8") == Quantize("int8") == Quantize.of(Quantize("int8")) == Quantize.of({"dtype": "int8"})
    assert Quantize.of(1e-3) == Quantize(max_error=1e-3) == Quantize.of(np.float64(1e-3))
    assert Quantize.of({"dtype": "int4", "group": np.int64(32)}) == Quantize("int4", group=32)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("int9", "unknown dtype to quantize to 'int9'.*did you mean 'int"),
        ("float64", "unknown dtype"),
        ({"dtype": "int8", "gruop": 3}, "unknown option of Quantize 'gruop'.*'group'"),
        ({}, "say a dtype or a max_error"),
        (True, "expected a dtype"),
        (None, "expected a dtype"),
        (-1.0, "max_error must be"),
        (math.nan, "max_error must be"),
        (math.inf, "max_error must be"),
        ({"dtype": "int8", "axis": 0, "group": 4}, "exclude each other"),
        ({"dtype": "int8", "group": 0}, "group must be"),
        ({"dtype": "int8", "group": 1.5}, "group must be an integer"),
        ({"dtype": "int8", "axis": True}, "axis must be an integer"),
        ({"dtype": "bfloat16", "axis": 0}, "axis is for integers"),
        ({"dtype": "float16", "symmetric": False}, "symmetric is for integers"),
        ({"dtype": "int8", "scale": 0}, "scale must be"),
        ({"dtype": "int8", "scale": "1"}, "scale must be a number"),
        ({"dtype": "int8", "scale": 1, "group": 2}, "group goes with"),
        ({"max_error": 1, "scale": 1}, "scale needs a dtype"),
        ({"dtype": "int8", "zero": 1}, "zero needs a scale"),
        ({"dtype": "int8", "scale": 1, "zero": 1 << 31}, "zero must lie"),
        ({"dtype": "int8", "symmetric": "yes"}, "symmetric must be"),
    ],
)
def test_arguments_are_checked_early(spec, what):
    with pytest.raises(UsageError, match=what):
        Quantize.of(spec)


def test_an_axis_that_is_not_there():
    for shape, axis in [((), 0), ((3,), 1), ((3,), -2)]:
        with pytest.raises(UsageError, match=f"axis {axis} of a tensor of shape"):
            quantize(tensor(np.zeros(shape, np.float32)), Quantize("int8", axis=axis))


# ---- parameters that don't fit ----------------------------------------------

ONE = np.ones(1, "<f4")


@pytest.mark.parametrize(
    "changed",
    [
        {"scheme": "log"},
        {"dtype": "int8"},
        {"stored": "float16"},
        {"stored": "uint32"},
        {"scales": None},
        {"scales": np.zeros(1, "<f4")},
        {"scales": -ONE},
        {"scales": ONE * np.inf},
        {"scales": ONE * np.nan},
        {"scales": ONE.astype("<f8")},
        {"scales": np.ones((1, 1), "<f4")},
        {"scales": np.ones(2, "<f4")},
        {"zeros": np.zeros(2, "<i4")},
        {"zeros": np.zeros(1, "<i8")},
        {"zeros": np.array([-(1 << 31)], "<i4")},
        {"axis": 0, "group": 3},
        {"axis": -1},
        {"group": 0},
        {"max_error": -1.0},
        {"max_error": math.inf},
        {"max_error": math.nan},
        {"mean_error": 2.0},
        {"snr": math.nan},
        {"scheme": "cast", "stored": "bfloat16"},
        {"scheme": "cast", "stored": "float32", "scales": None},
        {"scheme": "cast", "stored": "int8", "scales": None},
    ],
)
def test_parameters_are_checked(changed):
    sound = {"scheme": "affine", "dtype": "float32", "stored": "int8", "scales": ONE, "max_error": 1.0}
    Quantization(**sound)
    with pytest.raises(InvalidValueError):
        Quantization(**{**sound, **changed})


def test_parameters_of_another_tensor_are_refused():
    x = tensor(RNG.normal(size=(4, 6)).astype(np.float32))
    done = quantize(x, Quantize("int8", group=2))
    for data in (Tensor("int8", (4, 8), bytes(32)), Tensor("uint8", (4, 6), bytes(24))):
        with pytest.raises(InvalidValueError):
            dequantize(data, done.parameters)
    with pytest.raises(InvalidValueError):
        dequantize_rows(Tensor("int8", (2, 6), bytes(12)), done.parameters, 3)


@pytest.mark.parametrize("spec", [np.int8, np.dtype("int8")])
def test_numpy_dtypes_are_taken(spec):
    assert Quantize.of(spec) == Quantize("int8")
