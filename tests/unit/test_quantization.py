"""Quantization: the stated error is the error, on hostile values too; the way back is what the format says it is."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes.errors import UnsupportedError
from tensorbytes.quantization import Quantize, dequantize_rows, quantize
from tensorbytes.quantization.measure import compare
from tensorbytes.quantization.parameters import CASTS, INTEGERS, ORIGINALS
from tensorbytes.tensor import Tensor
from tests.support.quantization_cases import (
    BITS,
    NUMPY,
    arrays,
    by_definition,
    exact_error,
    same_bits,
    specs,
    tensor,
    wide,
)

# ---- every scheme and dtype -------------------------------------------------

RNG = np.random.default_rng(5)
SHAPES = [(), (1,), (0,), (3, 0, 2), (0, 4), (7, 5), (2, 3, 33), (5, 64)]
FORMS = [{}, {"symmetric": True}, {"symmetric": False}, {"group": 4}, {"group": 1000}, {"group": 8, "symmetric": False}]


@pytest.mark.parametrize("stored", INTEGERS)
@pytest.mark.parametrize("original", ORIGINALS)
def test_integers_keep_what_they_state(original, stored):
    if int("".join(filter(str.isdigit, stored))) > BITS[original]:
        with pytest.raises(UnsupportedError, match="saves nothing"):
            quantize(tensor(np.ones(3, NUMPY[original])), Quantize(stored))
        return
    for shape, form in itertools.product(SHAPES, FORMS):
        x = RNG.normal(0.5, 3, shape).astype(NUMPY[original]) if shape else NUMPY[original].type(-2.5)
        x = np.asarray(x)
        done = quantize(tensor(x), Quantize(stored, **form))
        back = done.dequantize()
        assert (back.dtype, back.shape, done.data.dtype) == (original, shape, stored)
        assert same_bits(back.numpy(), by_definition(done.data, done.parameters, shape))
        assert exact_error(x, back.numpy()) <= Fraction(done.cost.max_error)
        if x.size:
            step = float(done.parameters.scales.max())
            assert done.cost.max_error <= step * 0.502 + 0.01 * float(np.abs(wide(x)).max())
            mean = float(np.abs(wide(x) - wide(back.numpy())).mean())
            assert done.cost.mean_error == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_each_index_of_an_axis_has_its_scale(axis):
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    index = [None] * 3
    index[axis] = slice(None)
    factors = 10.0 ** np.arange(x.shape[axis])
    x *= factors[tuple(index)].astype(np.float32)
    done = quantize(tensor(x), Quantize("int8", axis=axis))
    assert done.parameters.axis == axis % 3
    peaks = np.abs(np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)).max(axis=1)
    np.testing.assert_allclose(done.parameters.scales, peaks / 127, rtol=1e-6)
    assert same_bits(done.dequantize().numpy(), by_definition(done.data, done.parameters, x.shape))


def test_groups_follow_the_last_axis_and_the_last_may_be_short():
    x = np.arange(1, 17, dtype=np.float32).reshape(2, 8)
    done = quantize(tensor(x), Quantize("int8", group=3))
    np.testing.assert_allclose(done.parameters.scales * 127, [3, 6, 8, 11, 14, 16], rtol=1e-6)


@pytest.mark.parametrize("stored", CASTS)
@pytest.mark.parametrize("original", ORIGINALS)
def test_casts_round_once_and_keep_what_they_state(original, stored):
    most = float(ml_dtypes.finfo(NUMPY[stored]).max)
    x = np.concatenate([RNG.normal(0, 1, 500), RNG.uniform(-1, 1, 200) * min(most, 1e4), [0.0, -0.0, 1e-6, -1e-30]])
    x = x.astype(NUMPY[original]).reshape(32, 22)
    if (
        NUMPY[stored].itemsize * (1 if stored[5] in "8321b" or stored == "bfloat16" else 0.5)
        >= NUMPY[original].itemsize
    ):
        with pytest.raises(UnsupportedError, match="saves nothing"):
            quantize(tensor(x), Quantize(stored))
        return
    done = quantize(tensor(x), Quantize(stored))
    back = done.dequantize().numpy()
    assert back.dtype == NUMPY[original]
    assert exact_error(x, back) == Fraction(done.cost.max_error)
    assert same_bits(back, done.data.numpy().astype(np.float32).astype(x.dtype))
    # No other value of the type is nearer: all of them are tried, or the two neighbours.
    steps = done.data.numpy().astype(np.float64)
    for other in (np.nextafter(done.data.numpy(), NUMPY[stored].type(sign * most)) for sign in (-1, 1)):
        assert (np.abs(x.astype(np.float64) - steps) <= np.abs(x.astype(np.float64) - other.astype(np.float64))).all()


@pytest.mark.parametrize("stored", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_float64_is_rounded_to_the_target_at_once(stored):
    eps = float(ml_dtypes.finfo(NUMPY[stored]).eps)
    x = np.array([1 + eps / 2 + 2.0**-40, 1 + 1.5 * eps - 2.0**-40, -1 - eps / 2 - 2.0**-50])
    assert quantize(tensor(x), Quantize(stored)).dequantize().numpy().tolist() == [1 + eps, 1 + eps, -1 - eps]


def test_bfloat16_as_ml_dtypes_rounds_it():
    x = RNG.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    x = x[np.abs(x) < 3.3e38]
    done = quantize(tensor(x), Quantize("bfloat16"))
    assert done.data.numpy().tobytes() == x.astype(ml_dtypes.bfloat16).tobytes()


# ---- hostile values ---------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("original", ORIGINALS)
def test_integers_refuse_what_is_not_finite(original, value):
    x = np.array([1.0, value, 2.0], NUMPY[original])
    for spec in (Quantize("int8"), Quantize("uint8", group=2), Quantize("int4", axis=0)):
        with pytest.raises(UnsupportedError, match=f"tensor 'w'.*no {value}"):
            quantize(tensor(x), spec, "w")


def test_casts_keep_what_is_not_finite_or_refuse_it():
    x = np.array([math.nan, math.inf, -math.inf, -0.0, 1.25], np.float32)
    for stored in ("bfloat16", "float16", "float8_e5m2"):
        done = quantize(tensor(x), Quantize(stored))
        back = done.dequantize().numpy()
        np.testing.assert_array_equal(back, x)
        assert np.signbit(back[3])
        assert (done.cost.max_error, done.cost.snr_db) == (0, math.inf)
    assert math.isnan(quantize(tensor(x[:1]), Quantize("float8_e4m3fn")).dequantize().numpy()[0])
    for stored, bad in [("float8_e4m3fn", x[1:]), ("float4_e2m1fn", x[:1]), ("float6_e2m3fn", x[2:])]:
        with pytest.raises(UnsupportedError, match="can't hold"):
            quantize(tensor(bad), Quantize(stored))


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        ("float16", 65520.0),
        ("float8_e4m3fn", 500.0),
        ("float8_e5m2", 1e5),
        ("float4_e2m1fn", 6.5),
        ("bfloat16", 3.4e38),
    ],
)
def test_casts_refuse_to_overflow(stored, value):
    with pytest.raises(UnsupportedError, match=f"tensor 'layer/w': {stored} can't hold -"):
        quantize(tensor(np.array([0, -value], np.float32)), Quantize(stored), "layer/w")


@pytest.mark.parametrize("original", ORIGINALS)
@pytest.mark.parametrize("stored", ["int8", "uint8", "int4", "int2"])
def test_constants_are_exact(original, stored):
    info = ml_dtypes.finfo(NUMPY[original])
    for value in (0.0, -0.0, 0.1, -0.3, 1e4, float(info.max), float(info.min), float(info.smallest_subnormal)):
        for form in ({}, {"symmetric": False}, {"symmetric": True}, {"group": 2}):
            x = np.full((3, 5), value, NUMPY[original])
            done = quantize(tensor(x), Quantize(stored, **form))
            assert (done.dequantize().numpy() == x).all()
            assert done.cost.max_error == 0
            assert done.cost.snr_db == math.inf


@pytest.mark.parametrize("original", ORIGINALS)
@pytest.mark.parametrize("stored", ["int8", "uint8", "int4", "uint2", "int16"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_ends_of_the_range(original, stored, symmetric):
    info = ml_dtypes.finfo(NUMPY[original])
    top, tiny = float(info.max), float(info.smallest_subnormal)
    cases = [
        [top, -top, 0, 1],
        [top, top / 2, tiny],
        [-top, -top / 3],
        [tiny, -tiny, 0],
        [tiny * 999, 0, tiny * 17],
        [top, tiny],
    ]
    for case in cases:
        x = np.array(case, NUMPY[original])
        done = quantize(tensor(x), Quantize(stored, symmetric=symmetric))
        back = done.dequantize().numpy()
        assert np.isfinite(back).all()
        assert exact_error(x, back) <= Fraction(done.cost.max_error)
        width = Fraction(float(x.max())) - Fraction(float(x.min()))
        assert Fraction(done.cost.max_error) <= width


@given(arrays(), st.data())
def test_the_stated_error_is_never_exceeded(x, data):
    spec = data.draw(specs(x.ndim))
    done = quantize(tensor(x), spec)
    back = done.dequantize().numpy()
    assert np.isfinite(back).all()
    error = exact_error(x, back)
    assert error <= Fraction(done.cost.max_error)
    assert done.cost.max_error <= math.nextafter(float(error), math.inf)
    assert same_bits(back, by_definition(done.data, done.parameters, x.shape))
    if x.ndim:
        start = data.draw(st.integers(0, x.shape[0]))
        stop = data.draw(st.integers(start, x.shape[0]))
        rows = tensor(done.data.bits()[start:stop])
        rows = Tensor(done.data.dtype, (stop - start, *x.shape[1:]), rows.data)
        assert same_bits(dequantize_rows(rows, done.parameters, start).numpy(), back[start:stop])


def test_the_largest_error_is_never_rounded_down():
    assert compare(np.array([-1e-30, 0.5]), np.array([1.0, 0.5])).worst == math.nextafter(1.0, 2.0)
    assert compare(np.array([1e-30, 0.5]), np.array([1.0, 0.5])).worst == 1.0
    assert compare(np.float32([-1e-30, 2.0]), np.float32([1.0, 1.0])).worst == math.nextafter(1.0, 2.0)


@pytest.mark.parametrize("factor", [2.0**900, 2.0**-900, 2.0**-1030])
def test_the_ratio_of_powers_neither_overflows_nor_vanishes(factor):
    x = RNG.normal(size=1000)
    usual, extreme = (quantize(tensor(x * each), Quantize("int8")).cost for each in (1.0, factor))
    assert extreme.snr_db == pytest.approx(usual.snr_db, abs=0.02)
    assert 0 < extreme.mean_error < extreme.max_error


FAR = [(1000, 0.5), (1000, 0.3), (-777, 0.7), (3333, 0.2), (1e9, 1e-6), (-1e9, 1)]


@pytest.mark.parametrize(("low", "width"), FAR)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", ["uint8", "int8", "uint16", "int16", "int32"])
def test_far_from_zero(dtype, low, width, stored):
    """Zeros outgrow what floats count exactly: the way back must not care. Steps outgrow 32 bits: they are widened."""
    x = (low + np.linspace(0, width, 50)).astype(dtype)
    done = quantize(tensor(x), Quantize(stored, symmetric=False))
    back = done.dequantize().numpy()
    assert same_bits(back, by_definition(done.data, done.parameters, x.shape))
    assert done.cost.max_error <= max(width / 2 ** int(stored.lstrip("uint")), abs(low) / 2**22)


@pytest.mark.parametrize("stored", ["int8", "uint8", "int4"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_subnormal_steps_reach_the_last_value(stored, symmetric):
    tiny = 2.0**-1074
    for top in (340, 999, 1016):
        x = np.arange(top + 1) * tiny
        done = quantize(tensor(x), Quantize(stored, symmetric=symmetric))
        step = round(float(done.parameters.scales[0]) / tiny)
        assert done.cost.max_error / tiny <= step / 2


def test_rows_of_a_vector_in_groups():
    """Rows start inside a group, end inside one, or both."""
    x = (np.arange(1, 24) ** 3).astype(np.float32)
    done = quantize(tensor(x), Quantize("uint8", group=5))
    whole = done.dequantize().numpy()
    for start, stop in itertools.combinations_with_replacement(range(24), 2):
        rows = Tensor("uint8", (stop - start,), np.ascontiguousarray(done.data.numpy()[start:stop]))
        assert same_bits(dequantize_rows(rows, done.parameters, start).numpy(), whole[start:stop])


def test_a_narrowed_nan_stays_one():
    bits = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(quantize(tensor(bits), Quantize("bfloat16")).dequantize().numpy()).all()


# ---- large tensors ----------------------------------------------------------


@pytest.mark.parametrize("form", [{}, {"axis": 0}, {"axis": 1}, {"axis": 2}, {"group": 48}, {"group": 40_000}])
def test_tiles_and_threads_change_nothing(form):
    """More than a million values, in tiles; the oracle does all at once."""
    x = (RNG.normal(size=(3, 17, 40_001)) * RNG.uniform(0.1, 9, (3, 17, 1))).astype(np.float32)
    done = quantize(tensor(x), Quantize("int8", **form))
    back = done.dequantize().numpy()
    if form == {}:
        scale = np.abs(x).max() / np.float32(127)
    elif "axis" in form:
        others = tuple(i for i in range(3) if i != form["axis"])
        scale = np.abs(x).max(axis=others, keepdims=True) / np.float32(127)
    else:
        padded = np.zeros((3, 17, -(-40_001 // form["group"]) * form["group"]), np.float32)
        padded[:, :, :40_001] = np.abs(x)
        peaks = padded.reshape(3, 17, -1, form["group"]).max(axis=3)
        scale = np.repeat(peaks, form["group"], axis=2)[:, :, :40_001] / np.float32(127)
    assert (np.abs(x - back) <= scale * 0.501).all()
    error = np.abs(x.astype(np.float64) - back)
    assert done.cost.max_error == error.max()
    assert done.cost.mean_error == pytest.approx(error.mean(), rel=1e-12)
    signal = (x.astype(np.float64) ** 2).sum() / (error**2).sum()
    assert done.cost.snr_db == pytest.approx(10 * math.log10(signal), abs=0.006)
    rows = Tensor("int8", (1, 17, 40_001), np.ascontiguousarray(done.data.numpy()[1:2]))
    assert same_bits(dequantize_rows(rows, done.parameters, 1).numpy(), back[1:2])


def test_memory_stays_near_input_and_output():
    import tracemalloc

    x = tensor(RNG.normal(size=8 << 20).astype(np.float32))
    tracemalloc.start()
    done = quantize(x, Quantize("int8", group=64))
    peak = tracemalloc.get_traced_memory()[1]
    done.dequantize()
    after = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    scales = x.nbytes // 64
    assert peak < done.data.nbytes + 8 * scales + (16 << 20)
    assert after < x.nbytes + done.data.nbytes + 8 * scales + (16 << 20)
