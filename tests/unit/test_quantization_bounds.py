"""Quantization by an error bound, and by a scale of one's own."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorbytes.errors import UnsupportedError, UsageError
from tensorbytes.quantization import Quantize, quantize
from tests.support.quantization_cases import arrays, exact_error, tensor

RNG = np.random.default_rng(5)


@example(np.array([np.finfo(np.float64).max, -2.99e292]), 0.0, None)  # whose range lies beyond the last float
@given(arrays(), st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 3.0, 1e10]), st.sampled_from([None, 3]))
def test_a_bound_is_kept_by_the_smallest_encoding(x, bound, group):
    """Each smaller candidate is tried here by itself, and must break the bound."""
    try:
        done = quantize(tensor(x), Quantize(max_error=bound, group=group))
        size = done.cost.bytes_after
        assert exact_error(x, done.dequantize().numpy()) <= Fraction(done.cost.max_error) <= Fraction(bound)
    except UnsupportedError as error:
        assert "no encoding smaller" in str(error)  # noqa: PT017 - the other outcome
        size = x.nbytes
    for stored in ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "uint8", "uint16"):
        integers = stored.startswith("u")
        try:
            spec = Quantize(stored, group=group, symmetric=False) if integers else Quantize(stored)
            other = quantize(tensor(x), spec)
        except UnsupportedError:
            continue
        if other.cost.bytes_after < size:
            assert exact_error(x, other.dequantize().numpy()) > Fraction(bound), stored


def test_a_bound_on_widths_between_bytes():
    x = RNG.normal(0, 1, 20_000).astype(np.float32)
    widths = []
    for bound in (0.5, 0.1, 0.01, 1e-3, 1e-4):
        done = quantize(tensor(x), Quantize.of(bound))
        assert exact_error(x, done.dequantize().numpy()) <= Fraction(bound)
        assert int(done.data.numpy().max()) < 1 << done.bits
        # A uniform grid can't do with one bit fewer: its steps would be over twice the bound.
        if done.parameters.scheme == "affine":
            assert (x.max() - x.min()) / (2 ** (done.bits - 1) - 1) > 2 * bound
        widths.append(done.bits)
    assert widths == sorted(widths)
    assert len(set(widths) - {8, 16}) >= 3


def test_two_values_need_one_bit():
    x = np.where(RNG.random(5000) < 0.5, 0.0, 5.0).astype(np.float32)
    done = quantize(tensor(x), Quantize(max_error=0))
    assert (done.bits, done.cost.max_error) == (1, 0)


def test_a_bound_where_the_worst_value_comes_last():
    x = np.zeros(300_000, np.float32)
    x[-3:] = 1.0, 0.3, 1e-4
    done = quantize(tensor(x), Quantize(max_error=1e-5))
    assert 0 < exact_error(x[-3:], done.dequantize().numpy()[-3:]) <= Fraction(1e-5)


def test_a_bound_out_of_reach_says_what_was_possible():
    x = RNG.normal(0, 1e6, 1000).astype(np.float32)
    with pytest.raises(UnsupportedError, match=r"within 1e-07; the best is integers of \d+ bits, with \d"):
        quantize(tensor(x), Quantize(max_error=1e-7))
    with pytest.raises(UnsupportedError, match=r"int8, max error .* over the bound of 0.1"):
        quantize(tensor(x), Quantize("int8", max_error=0.1))


def test_a_bound_with_infinities_goes_through_casts():
    x = np.array([math.inf, math.nan, 0.1, 3.0], np.float32)
    done = quantize(tensor(x), Quantize(max_error=1e-3))
    assert done.parameters.scheme == "cast"
    np.testing.assert_array_equal(done.dequantize().numpy()[:2], x[:2])


# ---- fixed point ------------------------------------------------------------


def test_fixed_point():
    x = np.array([-32.0, 31.999, 0.0004, 1 / 1024], np.float32)
    done = quantize(tensor(x), Quantize("int16", scale=2**-10))
    assert done.data.numpy().tolist() == [-32768, 32767, 0, 1]
    assert done.parameters.zeros is None
    assert done.cost.max_error == float(exact_error(x, done.dequantize().numpy()))
    shifted = quantize(tensor(np.array([-1.0, 0.5])), Quantize("uint8", scale=0.5, zero=2))
    assert shifted.data.numpy().tolist() == [0, 3]
    assert shifted.dequantize().numpy().tolist() == [-1.0, 0.5]


def test_fixed_point_refuses_what_is_out_of_reach():
    for bad in (32.0, -32.001, math.inf, math.nan, 3e38):
        with pytest.raises(UnsupportedError, match=r"tensor 'x'"):
            quantize(tensor(np.array([0, bad], np.float32)), Quantize("int16", scale=2**-10), "x")
    with pytest.raises(UsageError, match="does not fit float32"):
        quantize(tensor(np.ones(2, np.float32)), Quantize("int16", scale=1e-60))
