"""Dtypes as callers have them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes
from tensorbytes.errors import UsageError


@pytest.mark.parametrize(
    "given",
    ["float32", "f32", "F32", "fp32", "<f4", ">f4", "torch.float32", "np.float32", np.float32, np.dtype("f4")],
    ids=str,
)
def test_float32_as_people_type_it(given: Any) -> None:
    assert dtypes.named(given).name == "float32"


def test_bfloat16_of_ml_dtypes() -> None:
    for given in ("bfloat16", "bf16", "jnp.bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert dtypes.named(given).name == "bfloat16"


def test_dtypes_of_torch() -> None:
    torch = pytest.importorskip("torch")
    found = [x for x in vars(torch).values() if isinstance(x, torch.dtype)]
    assert len(found) > 20
    for dtype in found:
        name = str(dtype).removeprefix("torch.")
        if name in dtypes.BY_TORCH:
            assert dtypes.named(dtype) is dtypes.named(str(dtype)) is dtypes.BY_TORCH[name]
        else:  # bits8 and its like, which hold no numbers
            with pytest.raises(UsageError, match="unknown dtype"):
                dtypes.named(dtype)
    assert dtypes.named(torch.float) is dtypes.DTYPES["float32"]  # which is what torch means by it
    assert dtypes.named(torch.long) is dtypes.DTYPES["int64"]


def test_dtypes_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    for dtype in (tf.float32, tf.bfloat16, tf.int64, tf.bool, tf.complex64, tf.qint8, tf.half):
        assert dtypes.named(dtype).name == dtype.name
    for dtype in (tf.string, tf.resource, tf.variant):
        with pytest.raises(UsageError, match="unknown dtype"):
            dtypes.named(dtype)


def test_dtypes_of_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    for name in ("float32", "bfloat16", "int8", "bool_", "complex64", "float8_e4m3fn", "int4"):
        assert dtypes.named(getattr(jnp, name)).name == name.rstrip("_")
        assert dtypes.named(jnp.dtype(getattr(jnp, name))).name == name.rstrip("_")


@pytest.mark.parametrize(
    "given",
    [
        "float",
        "int",
        "",
        "x" * 10**6,
        "float3",
        "<q9",
        "V8",
        "U3",
        "torch.",
        3,
        None,
        np.zeros(2, np.float32),
        object,
        str,
        [1],
        b"f",
    ],
    ids=lambda given: repr(given)[:20],
)
def test_what_is_no_dtype_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="dtype") as caught:
        dtypes.named(given)
    assert len(str(caught.value)) < 1000


def test_a_near_name_is_offered() -> None:
    with pytest.raises(UsageError, match="did you mean 'float32'"):
        dtypes.named("flaot32")


def test_no_framework_is_imported() -> None:
    code = "import sys; from tensorbytes import dtypes; dtypes.named('torch.float32'); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_wherever_a_dtype_is_taken(tmp_path: Any) -> None:
    torch, tf = pytest.importorskip("torch"), pytest.importorskip("tensorflow")
    x = np.arange(6, dtype=np.float32)
    tb.save({"x": x}, tmp_path / "x.tb")
    for dtype in (torch.bfloat16, tf.bfloat16, ml_dtypes.bfloat16, "bf16"):
        tb.convert(tmp_path / "x.tb", tmp_path / "y.tb", cast=dtype)
        assert tb.load(tmp_path / "y.tb")["x"].dtype == ml_dtypes.bfloat16
        assert tb.Quantize(dtype) == tb.Quantize.of(dtype) == tb.Quantize("bfloat16")
    for dtype in (torch.float32, tf.float32, np.float32, "fp32"):
        assert (tb.loads(x.tobytes(), "raw", dtype=dtype) == x).all()
    with pytest.raises(UsageError, match="unknown dtype to cast to"):
        tb.convert(tmp_path / "x.tb", tmp_path / "y.tb", cast=torch.int8)
    with pytest.raises(UsageError, match="names a byte order"):
        tb.loads(x.tobytes(), "raw", dtype=np.dtype(">f4"))


def test_codes_that_numpy_has_mean_what_numpy_means():
    """In capitals they are safetensors'."""
    for code in ("i8", "u8", "f4", "f8", "i4", "u4", "<f4", "i2"):
        assert dtypes.named(code) == dtypes.from_numpy(np.dtype(code)), code
    assert [dtypes.named(name).name for name in ("I8", "U8", "F4")] == [
        "int8",
        "uint8",
        "float4_e2m1fn",
    ]  # safetensors'
