"""What the tests of quantization share: tensors, exact errors, and the way back by its definition."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tensorbytes.quantization import Quantize
from tensorbytes.quantization.parameters import CASTS, ORIGINALS
from tensorbytes.tensor import Tensor

NUMPY = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in (*ORIGINALS, *CASTS)}
BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


def tensor(array, name=None):
    array = np.asarray(array)
    return Tensor(array.dtype.name, array.shape, array.copy(order="C").reshape(-1).view(np.uint8), name)


def wide(array):
    return np.asarray(array).astype(np.longdouble)


def exact_error(before, after):
    """The largest |before - after| of finite values, as a fraction: no rounding at all."""
    pairs = zip(before.astype(np.float64).ravel().tolist(), after.astype(np.float64).ravel().tolist(), strict=True)
    return max((abs(Fraction(a) - Fraction(b)) for a, b in pairs if math.isfinite(a)), default=Fraction(0))


def by_definition(data, parameters, shape):
    """The way back, element by element, from the words of the format's definition alone."""
    raw, mode = data.bits().ravel(), np.float64 if parameters.dtype == "float64" else np.float32
    out = []
    for place, byte in zip(np.ndindex(shape), raw.tolist(), strict=True):
        number = int(byte)
        width = int("".join(filter(str.isdigit, parameters.stored)))
        if not parameters.stored.startswith("u") and number >= 1 << width - 1:
            number -= 1 << width
        if parameters.axis is not None:
            which = place[parameters.axis]
        elif parameters.group is not None and shape:
            rows = np.ravel_multi_index(place[:-1], shape[:-1]) if len(shape) > 1 else 0
            which = int(rows) * -(-shape[-1] // parameters.group) + place[-1] // parameters.group
        else:
            which = 0
        zero = 0 if parameters.zeros is None else int(parameters.zeros[which])
        with np.errstate(all="ignore"):
            out.append(mode(number - zero) * mode(parameters.scales[which]))
    return np.array(out, mode).reshape(shape).astype(NUMPY[parameters.dtype])


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- hypothesis ----

FLOATS = {
    "float64": st.floats(width=64, allow_nan=False, allow_infinity=False),
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float16": st.floats(width=16, allow_nan=False, allow_infinity=False),
    "bfloat16": st.floats(-(2.0**127), 2.0**127, width=32),
}


@st.composite
def arrays(draw):
    original = draw(st.sampled_from(ORIGINALS))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = math.prod(shape)
    pool = st.one_of(FLOATS[original], st.floats(-4, 4, width=16), st.sampled_from([0.0, -0.0, 1.0]))
    values = draw(st.lists(pool, min_size=count, max_size=count))
    return np.array(values, np.float64).astype(NUMPY[original]).reshape(shape)


@st.composite
def specs(draw, rank):
    stored = draw(st.sampled_from(["int8", "uint8", "int4", "uint4", "int2", "uint2", "int16", "uint16"]))
    form = draw(st.sampled_from(["tensor", "axis", "group"]))
    symmetric = draw(st.sampled_from([None, True, False]))
    if form == "axis" and rank:
        return Quantize(stored, axis=draw(st.integers(-rank, rank - 1)), symmetric=symmetric)
    if form == "group":
        return Quantize(stored, group=draw(st.integers(1, 7)), symmetric=symmetric)
    return Quantize(stored, symmetric=symmetric)
