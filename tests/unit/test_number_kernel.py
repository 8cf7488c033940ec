"""The kernel's figures over numbers: compiled, with and without wider vectors, against reference and against NumPy."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes import casting, dtypes
from tensorbytes._wire import FLOAT_TYPES
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import numbers_reference as reference
from tensorbytes.ops import tallies
from tensorbytes.quantization import Quantize, passes
from tensorbytes.quantization.core import quantize
from tensorbytes.tensor import Tensor
from tests.unit.test_kernel import outcome

FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
SIZES = (0, 1, 3, 4, 255, 256, 257, 1023, 1025, 5000)


def drawn(kind, size, seed=0, finite=False):
    """Numbers of every size and kind: any bits, and ordinary numbers; zeros of both signs."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(FLOATS[kind])
    numbers = np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).copy()
    with np.errstate(all="ignore"):
        plain = (rng.standard_normal(size) * 0.02).astype(dtype)
        numbers = np.where(rng.random(size) < 0.5, numbers, plain)
        numbers[rng.random(size) < 0.02] = 0
        numbers[rng.random(size) < 0.02] = dtype.type(-0.0)
        if finite:
            numbers[~np.isfinite(numbers.astype(np.float64))] = 1
    return numbers


def bare(arg):
    """Arrays of bfloat16 are no buffers."""
    return arg.view(np.uint16) if isinstance(arg, np.ndarray) and arg.dtype == ml_dtypes.bfloat16 else arg


def three(name, *args, out=()):
    """The results of all three, and what they wrote to copies of the arguments numbered in `out`."""
    found = []
    for kernel, more in ((compiled, ()), (compiled, (True,)), (reference, ())):
        given_to = [arg.copy() if k in out else arg for k, arg in enumerate(args)]
        handed = [bare(arg) for arg in given_to]
        more = more if name != "count_values" else ()
        found.append((getattr(kernel, name)(*handed, *more), *(given_to[k] for k in out)))
    return found


# ---- counts and sums --------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_values_are_counted(width, size):
    values = np.random.default_rng(size).integers(0, 1 << 8 * width, size, dtype=f"u{width}") & 0x0F
    for _, counts in three("count_values", values, width, np.zeros((2, 1 << 8 * width), np.uint32), out=(2,)):
        np.testing.assert_array_equal(counts.sum(axis=0), np.bincount(values, minlength=1 << 8 * width))


@pytest.mark.parametrize("size", [*SIZES, (1 << 20) + 5])
def test_sums_by_exponent(size):
    values = drawn("float32", size)
    results = three("sum_floats", values, np.zeros((512, 4), np.uint64), out=(1,))
    for found, bins in results:
        assert repr(found) == repr(results[2][0])
        np.testing.assert_array_equal(bins, results[2][1])


def test_sums_carry_into_the_next_word():
    values = np.full((1 << 20) + 3, np.nextafter(np.float32(2), np.float32(0)))
    for _, bins in three("sum_floats", values, np.zeros((512, 4), np.uint64), out=(1,)):
        count, first, low, high = bins[127].tolist()
        assert (count, first) == (len(values), len(values) * 0x7FFFFF)
        assert low + (high << 64) == len(values) * 0x7FFFFF**2


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("bins", [1, 2, 7, 40, 1000])
@pytest.mark.parametrize("step", [0.0, 0.25])
def test_histograms_go_by_their_edges(kind, bins, step):
    """Also of numbers that lie on the edges, which rounding puts on either side."""
    rng = np.random.default_rng(bins)
    values = rng.standard_normal(10_001).astype(kind)
    values = np.round(values / step) * np.dtype(kind).type(step) if step else values
    values[::97] = np.nan
    values[::89] = np.inf
    finite = values[np.isfinite(values)].astype(np.float64)
    edges = np.linspace(finite.min(), finite.max(), bins + 1)
    args = values, FLOAT_TYPES[kind], edges, bins / (edges[-1] - edges[0]), np.zeros((4, bins), np.uint64)
    for _, counts in three("histogram", *args, out=(4,)):
        np.testing.assert_array_equal(counts.sum(axis=0), np.histogram(finite, edges)[0])


# ---- casts ------------------------------------------------------------------


@pytest.mark.parametrize("old", FLOATS)
@pytest.mark.parametrize("new", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", SIZES)
def test_casts_are_those_of_the_libraries(old, new, size):
    if old == new or (old == "float64" and new != "float32"):
        pytest.skip("not cast by the kernel")
    values = drawn(old, size, finite=True)
    for scale in (1, 1e-3, 1e-30):
        with np.errstate(all="ignore"):
            some = (values.astype(np.float64) * scale).clip(-60000, 60000).astype(values.dtype)
        out = np.zeros(size, FLOATS[new])
        for (error, status), made in three("cast_floats", some, FLOAT_TYPES[old], out, FLOAT_TYPES[new], out=(2,)):
            want = some.astype(new if new != "bfloat16" else ml_dtypes.bfloat16)
            assert made.tobytes() == want.tobytes()
            assert status == 0
            assert error == np.abs(some.astype(np.float64) - want.astype(np.float64)).max(initial=0)


def test_all_half_floats_are_rounded_at_the_right_place():
    """Every float16, the number halfway to the next, and those beside it."""
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1] + halves[1:]) / 2
    ends = np.float32(0), np.float32(np.inf)
    values = np.concatenate([halves, middles, *(np.nextafter(middles, end) for end in ends)])
    values = np.concatenate([values, -values, np.array([65519.996, 2**-25, np.nextafter(np.float32(2**-25), ends[1])])])
    values = values.astype(np.float32)
    out = np.zeros(len(values), np.float16)
    for (_, status), made in three("cast_floats", values, 2, out, 0, out=(2,)):
        assert status == 0
        assert made.tobytes() == values.astype(np.float16).tobytes()


@pytest.mark.parametrize("bad", [np.nan, 65520.0, 3.4e38])
def test_what_a_cast_does_not_hold_is_told(bad):
    values = np.ones(500, np.float32)
    values[333] = bad
    for (_, status), _ in three("cast_floats", values, 2, np.zeros(500, np.float16), 0, out=(2,)):
        assert status == (1 if np.isnan(bad) else 2)
    values[333] = np.inf
    for (_, status), made in three("cast_floats", values, 2, np.zeros(500, np.float16), 0, out=(2,)):
        assert (status, made[333]) == (0, np.inf)


@pytest.mark.parametrize("old", FLOATS)
@pytest.mark.parametrize("new", FLOATS)
def test_casting_is_the_same_without_the_kernel(monkeypatch, old, new):
    if old == new:
        return
    values = drawn(old, 100_001, finite=True)
    with np.errstate(all="ignore"):
        values = values.astype(np.float64).clip(-60000, 60000).astype(values.dtype)
    values[[5, 40_000]] = np.nan, np.inf
    tensor = Tensor(old, values.shape, values.view(np.uint8), "x")
    found = []
    for known in (casting._KERNEL_CASTS, set()):
        monkeypatch.setattr(casting, "_KERNEL_CASTS", known)
        monkeypatch.setattr(casting, "_PART", 1 << 15)  # in threads
        cast = casting.Casting(new)
        found.append((bytes(cast.cast(tensor, new, "x").data), cast.losses))
    assert found[0] == found[1]


# ---- quantization -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("run", [1, 3, 250, 256, 1000])
@pytest.mark.parametrize("zeros", [False, True])
def test_quantizing_is_the_same_in_all(kind, run, zeros):
    rng = np.random.default_rng(run)
    values = rng.standard_normal(run * 7).astype(FLOATS[kind])
    scales = rng.uniform(0.001, 0.1, 7).astype(np.float32)
    offsets = rng.integers(-200, 200, 7, dtype=np.int32) if zeros else None
    args = values, FLOAT_TYPES[kind], np.zeros(len(values), np.uint8), scales, offsets, run, -8, 7, 15, np.ones(512)
    results = three("quantize_floats", *args, out=(2, 9))
    for (worst, signal, noise, beyond), made, sums in results:
        (same_worst, same_signal, same_noise, same_beyond), same_made, same_sums = results[2]
        assert (worst, beyond, made.tobytes(), sums.tobytes()) == (
            same_worst,
            same_beyond,
            same_made.tobytes(),
            same_sums.tobytes(),
        )
        assert [signal, noise] == pytest.approx([same_signal, same_noise], rel=1e-12)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "how",
    [
        {"dtype": "int8"},
        {"dtype": "uint8"},
        {"dtype": "int4", "group": 32},
        {"dtype": "int8", "axis": 0},
        {"dtype": "int8", "axis": 1},
        {"dtype": "uint4", "group": 100},
        {"dtype": "int8", "scale": 0.1},
    ],
    ids=str,
)
def test_tensors_are_quantized_alike_without_the_kernel(monkeypatch, kind, how):
    rng = np.random.default_rng(1)
    for offset in (0, 3):
        values = (rng.standard_normal((311, 512)) + offset).astype(FLOATS[kind])
        tensor = Tensor(kind, values.shape, values.view(np.uint8))
        found = quantize(tensor, Quantize(**how))
        with monkeypatch.context() as without:
            without.setattr(passes, "_encode_by_kernel", lambda *args: None)
            without.setattr(passes._wire, "extremes", lambda *args: False)
            want = quantize(tensor, Quantize(**how))
        assert bytes(found.data.data) == bytes(want.data.data)
        assert found.cost == want.cost
        assert found.parameters.scales.tobytes() == want.parameters.scales.tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("run", [1, 7, 256, 1000])
def test_extremes_of_runs(kind, run):
    values = drawn(kind, run * 9, finite=True)
    ends = np.zeros(9, np.float32), np.zeros(9, np.float32)
    for finite, low, high in three("extremes", values, FLOAT_TYPES[kind], run, *ends, out=(3, 4)):
        assert finite
        np.testing.assert_array_equal(low, values.reshape(9, run).astype(np.float32).min(axis=1))
        np.testing.assert_array_equal(high, values.reshape(9, run).astype(np.float32).max(axis=1))
    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        values[run * 4] = bad
        assert [one[0] for one in three("extremes", values, FLOAT_TYPES[kind], run, *ends, out=(3, 4))] == [False] * 3


# ---- comparing --------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("finite", [False, True])
def test_pairs_are_compared_alike(kind, size, finite):
    a, b = drawn(kind, size, 1, finite), drawn(kind, size, 2, finite)
    same = np.random.default_rng(3).random(size) < 0.5
    b[same] = a[same]
    compiled_wide, compiled_plain, want = (one[0] for one in three("compare_floats", a, b, FLOAT_TYPES[kind]))
    for found in (compiled_wide, compiled_plain):
        assert found[:6] == want[:6]
        np.testing.assert_allclose(found[6:], want[6:], rtol=1e-9)


def test_the_largest_share_is_found_wherever_it_stands():
    a = np.full(5000, 3.0, np.float32)
    for place in (0, 255, 256, 4095, 4999):
        b = a * np.float32(1.0001)
        b[place] = 3.5
        for found, *_ in three("compare_floats", a, b, 2):
            assert found[4:6] == (0.5, 0.5 / 3.5)


# ---- wrong calls ------------------------------------------------------------

F32, OUT = np.zeros(8, np.float32), np.zeros(8, np.uint8)
WRONG = [
    ("count_values", b"abc", 2, np.zeros((2, 65536), np.uint32)),
    ("count_values", b"ab", 0, np.zeros((2, 65536), np.uint32)),
    ("count_values", b"ab", 3, np.zeros((2, 65536), np.uint32)),
    ("count_values", b"ab", 1, np.zeros((2, 255), np.uint32)),
    ("sum_floats", b"abc", np.zeros((512, 4), np.uint64)),
    ("sum_floats", F32, np.zeros((511, 4), np.uint64)),
    ("histogram", F32, 2, np.zeros(1), 1.0, np.zeros((4, 0), np.uint64)),
    ("histogram", F32, 2, np.zeros(3), 1.0, np.zeros((4, 3), np.uint64)),
    ("histogram", F32, 0, np.zeros(3), 1.0, np.zeros((4, 2), np.uint64)),
    ("histogram", F32, 4, np.zeros(3), 1.0, np.zeros((4, 2), np.uint64)),
    ("cast_floats", F32, 2, np.zeros(7, np.uint16), 0),
    ("cast_floats", F32, 2, np.zeros(8, np.float32), 2),
    ("cast_floats", F32, 2, np.zeros(8, np.float64), 3),
    ("cast_floats", F32, -1, np.zeros(8, np.float64), 0),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), None, 0, -8, 7, 15, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), None, 3, -8, 7, 15, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(2, np.float32), None, 8, -8, 7, 15, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), np.zeros(2, np.int32), 8, -8, 7, 15, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), np.full(1, 1 << 20, np.int32), 8, 0, 7, 7, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), None, 8, -8, 1 << 20, 15, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), None, 8, 7, -8, 15, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), None, 8, -8, 7, 256, np.zeros(512)),
    ("quantize_floats", F32, 2, OUT, np.zeros(1, np.float32), None, 8, -8, 7, 15, np.zeros(511)),
    ("extremes", F32, 2, 0, np.zeros(1, np.float32), np.zeros(1, np.float32)),
    ("extremes", F32, 2, 8, np.zeros(2, np.float32), np.zeros(1, np.float32)),
    ("extremes", F32, 3, 4, np.zeros(1, np.float32), np.zeros(1, np.float32)),
    ("compare_floats", F32, F32[:7], 2),
    ("compare_floats", b"abc", b"abc", 1),
    ("compare_floats", F32, F32, 9),
]


@pytest.mark.parametrize("call", WRONG, ids=lambda call: call[0])
def test_wrong_calls_are_refused(call):
    name, *args = call
    found = outcome(getattr(compiled, name), *args)
    assert found in (ValueError, IndexError)
    assert outcome(getattr(reference, name), *args) is found


def test_scales_that_are_none_harm_nothing():
    for scale in (0.0, -1.0, np.nan, np.inf, 1e-45):
        values = drawn("float32", 300)
        args = values, 2, np.zeros(300, np.uint8), np.array([scale], np.float32), None, 300, -8, 7, 15, np.zeros(512)
        for _, made, _ in three("quantize_floats", *args, out=(2, 9)):
            assert made.max() <= 15


# ---- what stats makes of them -----------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "int8", "uint8", "int16", "bool"])
def test_large_parts_give_the_same_as_small_ones(dtype):
    """Counted or added up by exponents, and number by number: bit for bit."""
    rng = np.random.default_rng(0)
    stored = np.dtype("u1") if dtype == "bool" else dtypes.to_numpy(dtype)
    data = rng.bytes(40_000 * stored.itemsize)
    if dtype == "float32":
        data = drawn("float32", 40_000).tobytes()
    found = []
    for each in (len(data), 4000 * stored.itemsize):
        numbers = tallies.Numbers(dtype, 40)
        parts = [memoryview(data)[start : start + each] for start in range(0, len(data), each)]
        for part in parts:
            numbers.add(numbers.look(part))
        numbers.prepare()
        for part in parts:
            numbers.add_again(numbers.look_again(part))
        found.append((numbers.found, numbers.mean, numbers.std, numbers.edges, numbers.counts))
    assert repr(found[0]) == repr(found[1])


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_standard_deviations_are_the_true_ones_rounded(values):
    numbers = tallies.Numbers("float32", 4)
    repeated = np.array(values * (1 + tallies._WORTH_COUNTING // len(values)), np.float32)
    numbers.add(numbers.look(memoryview(repeated.view(np.uint8))))
    exact = [Fraction(float(value)) for value in repeated[: len(values)]]
    mean = sum(exact) / len(exact)
    variance = sum((one - mean) ** 2 for one in exact) / len(exact)
    std = Fraction(numbers.std)
    assert numbers.mean == mean.numerator / mean.denominator
    # Half a last place to either side.
    below, above = (Fraction(float(np.nextafter(numbers.std, end))) for end in (0.0, np.inf))
    assert ((std + below) / 2) ** 2 <= variance <= ((std + above) / 2) ** 2
