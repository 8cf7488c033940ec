"""One table: every dtype of every framework and format.

`bits` is the width of a value; in memory each element takes `itemsize` whole bytes
(types under 8 bits sit in the low bits of a byte each, as in ml_dtypes; formats that
pack do so at their border). A dash means that the framework or format has no such type.

TensorFlow's DataType numbers double as the codes of the native frame. Types that
TensorFlow lacks have codes from 1000 up, which are part of spec/frame.md.

Decided, not overlooked: datetime64 and timedelta64 are kept, their unit travelling in
the metadata; structured and void dtypes, long double (whose layout differs between
machines) and object arrays of anything but text or bytes are refused.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensorbytes.errors import Hint, UnsupportedError, UsageError, unknown


class DType(NamedTuple):
    name: str
    bits: int
    code: int  # TensorFlow's number, or ours from 1000 up
    numpy: str | None  # the name in numpy or ml_dtypes
    torch: str | None
    struct: str | None  # the letter of Python's struct module, standard sizes
    safetensors: str | None
    arrow: str | None
    onnx: int | None

    @property
    def itemsize(self) -> int:
        return max(self.bits // 8, 1)

    @property
    def in_tensorflow(self) -> bool:
        return self.code < 1000

    @property
    def value_mask(self) -> int:
        """The bits of a byte that carry the value of a type under 8 bits wide."""
        return (1 << self.bits) - 1


# name                 bits code  numpy                 torch               struct safetensors  Arrow      ONNX
_ROWS = """
bool                   8    10    bool                  bool                ?      BOOL         bool       9
int8                   8    6     int8                  int8                b      I8           int8       3
int16                  16   5     int16                 int16               h      I16          int16      5
int32                  32   3     int32                 int32               i      I32          int32      6
int64                  64   9     int64                 int64               q      I64          int64      7
uint8                  8    4     uint8                 uint8               B      U8           uint8      2
uint16                 16   17    uint16                uint16              H      U16          uint16     4
uint32                 32   22    uint32                uint32              I      U32          uint32     12
uint64                 64   23    uint64                uint64              Q      U64          uint64     13
float16                16   19    float16               float16             e      F16          float16    10
float32                32   1     float32               float32             f      F32          float32    1
float64                64   2     float64               float64             d      F64          float64    11
bfloat16               16   14    bfloat16              bfloat16            -      BF16         -          16
complex64              64   8     complex64             complex64           -      C64          -          14
complex128             128  18    complex128            complex128          -      -            -          15
complex32              32   1000  complex32             complex32           -      -            -          -
bcomplex32             32   1008  bcomplex32            -                   -      -            -          -
float8_e4m3fn          8    25    float8_e4m3fn         float8_e4m3fn       -      F8_E4M3      -          17
float8_e4m3fnuz        8    26    float8_e4m3fnuz       float8_e4m3fnuz     -      F8_E4M3FNUZ  -          18
float8_e4m3b11fnuz     8    27    float8_e4m3b11fnuz    -                   -      -            -          -
float8_e5m2            8    24    float8_e5m2           float8_e5m2         -      F8_E5M2      -          19
float8_e5m2fnuz        8    28    float8_e5m2fnuz       float8_e5m2fnuz     -      F8_E5M2FNUZ  -          20
float8_e8m0fnu         8    1001  float8_e8m0fnu        float8_e8m0fnu      -      F8_E8M0      -          24
float8_e4m3            8    1002  float8_e4m3           -                   -      -            -          -
float8_e3m4            8    1003  float8_e3m4           -                   -      -            -          -
float6_e2m3fn          6    1004  float6_e2m3fn         -                   -      F6_E2M3      -          27
float6_e3m2fn          6    1005  float6_e3m2fn         -                   -      F6_E3M2      -          28
float4_e2m1fn          4    33    float4_e2m1fn         float4_e2m1fn_x2    -      F4           -          23
int4                   4    29    int4                  int4                -      -            -          22
uint4                  4    30    uint4                 uint4               -      -            -          21
int2                   2    31    int2                  int2                -      -            -          26
uint2                  2    32    uint2                 uint2               -      -            -          25
int1                   1    1009  int1                  int1                -      -            -          -
uint1                  1    1010  uint1                 uint1               -      -            -          -
qint8                  8    11    -                     qint8               -      -            -          -
quint8                 8    12    -                     quint8              -      -            -          -
qint32                 32   13    -                     qint32              -      -            -          -
qint16                 16   15    -                     -                   -      -            -          -
quint16                16   16    -                     -                   -      -            -          -
datetime64             64   1006  datetime64            -                   -      -            -          -
timedelta64            64   1007  timedelta64           -                   -      -            -          -
"""

# The code of string tensors, which are `Strings` rather than `Tensor`.
STRING_CODE = 7


def _parse(row: str) -> DType:
    name, bits, code, *columns = row.split()
    numpy, torch, struct, safetensors, arrow, onnx = (None if cell == "-" else cell for cell in columns)
    return DType(name, int(bits), int(code), numpy, torch, struct, safetensors, arrow, int(onnx) if onnx else None)


DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in map(_parse, _ROWS.strip().splitlines())}
BY_CODE: dict[int, DType] = {dtype.code: dtype for dtype in DTYPES.values()}
BY_TORCH: dict[str, DType] = {dtype.torch: dtype for dtype in DTYPES.values() if dtype.torch}

BY_SAFETENSORS = {dtype.safetensors: dtype for dtype in DTYPES.values() if dtype.safetensors}
# What safetensors calls "I8", "U8" and "F4" has 8 and 4 bits; in lower case these are NumPy's codes, which count bytes.
_CODES_OF_NUMPY = ("i8", "u8", "f4")
# Other spellings that leave no doubt, in lower case: those of safetensors' headers ("bf16", "f32"), and "fp32".
# "float" and "int" are not among them: NumPy means 64 bits by them, PyTorch and TensorFlow 32.
_SPELLINGS: dict[str, DType] = {
    name.lower(): dtype for name, dtype in BY_SAFETENSORS.items() if name.lower() not in _CODES_OF_NUMPY
} | {
    "fp16": DTYPES["float16"],
    "half": DTYPES["float16"],
    "fp32": DTYPES["float32"],
    "fp64": DTYPES["float64"],
    "double": DTYPES["float64"],
}
_MODULES = ("torch.", "tf.", "tensorflow.", "jnp.", "jax.numpy.", "np.", "numpy.", "ml_dtypes.")

# TensorFlow's types that hold pointers or references rather than values.
_TF_REFUSED = {20: "resource", 21: "variant"}


def get(name: str) -> DType:
    """The row of a dtype by its name."""
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise UnsupportedError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}") from None


def named(given: Any) -> DType:
    """The row of a dtype as callers have it: "float32", "bf16", np.float32, np.dtype("<f4"), torch.float32, tf.float32,
    jnp.bfloat16. No framework is imported for it. Anything else raises UsageError."""
    found = find(given)
    if found is None and isinstance(given, str):
        raise unknown("dtype", given[:60], DTYPES)
    if found is None:
        raise UsageError(expected="a dtype, such as 'float32' or np.float32", got=repr(given)[:60])
    return found


def find(given: Any) -> DType | None:
    """The same; None for what is not a dtype. One that has no row raises UsageError."""
    if isinstance(given, str):
        return _of_text(given)
    kind, found = type(given), None
    package = kind.__module__.partition(".")[0]
    if package == "torch" and kind.__name__ == "dtype":
        found = BY_TORCH.get(str(given).removeprefix("torch."))
    elif package == "tensorflow" and kind.__name__ == "DType":
        found = BY_CODE.get(given.as_datatype_enum)
    elif isinstance(given, np.dtype):
        return _of_numpy(given)
    else:  # a class of NumPy's, ml_dtypes' or JAX's; not an array, whose dtype is hardly what was meant
        own = getattr(given, "dtype", None) if isinstance(given, type) else None
        is_scalar = isinstance(given, type) and issubclass(given, np.generic | bool | int | float | complex)
        return _of_numpy(np.dtype(given)) if is_scalar or isinstance(own, np.dtype) else None
    if found is None:
        raise UsageError(f"unknown dtype {given!r}")
    return found


def _of_text(text: str) -> DType | None:
    plain = next((text[len(module) :] for module in _MODULES if text.startswith(module)), text)
    found = DTYPES.get(plain) or BY_TORCH.get(plain) or BY_SAFETENSORS.get(plain) or _SPELLINGS.get(plain.lower())
    if found is None and plain[-1:].isdigit() and len(plain) < 8:  # NumPy's codes, such as "<f4"
        try:
            return _of_numpy(np.dtype(plain))
        except (TypeError, ValueError):
            return None
    return found


def _of_numpy(dtype: np.dtype[Any]) -> DType:
    try:
        return from_numpy(dtype)
    except UnsupportedError as error:
        raise UsageError(error.fault, hints=error.hints) from None


def by_code(code: int) -> DType:
    """The row of a dtype by the number that TensorProto stores."""
    try:
        return BY_CODE[code]
    except KeyError:
        what = f" ({_TF_REFUSED[code]}: a reference, not a value)" if code in _TF_REFUSED else ""
        raise UnsupportedError(f"unknown TensorProto dtype number {code}{what}") from None


@cache
def to_numpy(name: str) -> np.dtype[Any]:
    """NumPy's or ml_dtypes' little-endian dtype for a row."""
    row = get(name)
    if row.numpy is None or row.numpy.endswith("delta64") or row.numpy.startswith("datetime"):
        raise UnsupportedError(
            f"NumPy has no dtype for {name}", hints=[Hint("to", "tensor", "for the stored values", of="load")]
        )
    if hasattr(np, row.numpy):
        return np.dtype(np.dtype(row.numpy).newbyteorder("<"))
    import ml_dtypes

    if not hasattr(ml_dtypes, row.numpy):
        raise UnsupportedError(f"{name} needs a newer ml_dtypes than {ml_dtypes.__version__}")
    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, row.numpy))
    return extended


# dtype.kind is "V" for ml_dtypes too, so names decide; NumPy's own void is "void32". Kept,
# since NumPy takes its time to spell a name.
@lru_cache(1024)
def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The row of a NumPy dtype, in either byte order."""
    if dtype.kind in "mM":
        return DTYPES["timedelta64" if dtype.kind == "m" else "datetime64"]
    if dtype.names is not None:
        raise UnsupportedError(
            f"structured dtype with fields {', '.join(dtype.names)}",
            hints=[Hint(purpose="pass its fields as a dict, {name: x[name] for name in x.dtype.names}")],
        )
    row = DTYPES.get(dtype.name)
    if row is None or row.numpy is None:
        wide = dtype.char in "gG"
        raise UnsupportedError(
            f"NumPy dtype {dtype} has no portable form" + " (long double differs between machines)" * wide,
            hints=[Hint(purpose="cast it to float64")] if wide else (),
        )
    return row


def nbytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """The bytes a tensor takes in memory. Python's integers can't overflow."""
    return math.prod(shape) * dtype.itemsize
