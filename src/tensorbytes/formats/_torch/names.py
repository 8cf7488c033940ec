"""The names that a torch file may use, and what each stands for. Nothing else is known, and nothing is looked up."""

from __future__ import annotations

from typing import NamedTuple

from tensorbytes import dtypes


class Name(NamedTuple):
    """One entry: `kind` is storage, dtype, qscheme, type or call; `of` the dtype, or what is called."""

    kind: str
    name: str
    of: str = ""


STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "LongStorage": "int64",
    "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "BFloat16Storage": "bfloat16", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "QInt8Storage": "qint8", "QInt32Storage": "qint32", "QUInt8Storage": "quint8",
}  # fmt: skip
STORAGE_OF = {dtype: name for name, dtype in STORAGES.items()}
# Types without a storage of their own: their tensors name the dtype themselves.
UNTYPED = (
    "uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn",
)  # fmt: skip
_SCHEMES = ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
            "per_channel_affine_float_qparams")  # fmt: skip
_CALLS = {
    "torch._utils._rebuild_tensor": "tensor",
    "torch._utils._rebuild_tensor_v2": "tensor_v2",
    "torch._utils._rebuild_tensor_v3": "tensor_v3",
    "torch._utils._rebuild_parameter": "parameter",
    "torch._utils._rebuild_parameter_with_state": "parameter",
    "torch._utils._rebuild_sparse_tensor": "sparse",
    "torch._utils._rebuild_qtensor": "quantized",
    "torch._utils._rebuild_nested_tensor": "nested",
    "torch._tensor._rebuild_from_type_v2": "from_type",
    "torch.tensor._rebuild_from_type_v2": "from_type",
    "torch.nested._internal.nested_tensor._rebuild_njt": "jagged",
    "torch.serialization._get_layout": "layout",
    "torch.Size": "size",
    "torch.device": "device",
    "collections.OrderedDict": "ordered",
    "collections.defaultdict": "defaultdict",
    "collections.Counter": "counter",
    "_codecs.encode": "encode",
    "__builtin__.complex": "complex",
    "builtins.complex": "complex",
    "__builtin__.bytes": "bytes",
    "builtins.bytes": "bytes",
    "numpy.dtype": "np_dtype",
    **{f"numpy.{core}.multiarray._reconstruct": "np_reconstruct" for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": "np_scalar" for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": "np_frombuffer" for core in ("core", "_core")},
    **{f"{module}.set": "set" for module in ("builtins", "__builtin__")},
    **{f"{module}.frozenset": "frozenset" for module in ("builtins", "__builtin__")},
    # Notes of torch's compiler on tensors: they may stand there, and are not looked at.
    "torch._dynamo.decorators._DimRange": "opaque",
}
_TYPES = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nested._internal.nested_tensor.NestedTensor",
          "numpy.ndarray")  # fmt: skip
LAYOUTS = {f"torch.sparse_{name}": name for name in ("coo", "csr", "csc", "bsr", "bsc")}


def _table() -> dict[str, Name]:
    rows = [Name("call", name, what) for name, what in _CALLS.items()]
    rows += [Name("type", name) for name in _TYPES]
    for module in ("torch", "torch.cuda"):
        rows += [Name("storage", f"{module}.{name}", dtype) for name, dtype in STORAGES.items()]
    for name in ("UntypedStorage", "_UntypedStorage"):
        rows += [Name("storage", f"{module}.{name}") for module in ("torch", "torch.storage", "torch.cuda")]
    rows += [Name("dtype", f"torch.{name}", row.name) for name, row in dtypes.BY_TORCH.items()]
    rows += [Name("qscheme", f"torch.{name}", name) for name in _SCHEMES]
    return {row.name: row for row in rows}


NAMES = _table()
