"""PyTorch's cases: memory layouts, lazy bits, autograd, sparse, nested and quantized tensors."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch

from tensorbytes import dtypes
from tensorbytes.testing.bits import Array, content, every_pattern, keep_value_bits, patterns
from tensorbytes.testing.case import Case, Fingerprint

QUANTIZED = ("qint8", "quint8", "qint32")
NAMES = tuple(
    row.name for row in dtypes.DTYPES.values() if row.torch and hasattr(torch, row.torch) and row.name not in QUANTIZED
)
EMPTY = ((0,), (0, 3), (3, 0), (2, 0, 3))
# Those that torch.nested.nested_tensor has kernels for.
NESTED = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64", "bfloat16",
          "complex64", "complex128")  # fmt: skip


# ---- what a torch tensor is -------------------------------------------------


def _memory(x: torch.Tensor) -> Array:
    """The elements as they lie in memory, by strides, without any kernel of torch."""
    size = x.itemsize
    storage = x.untyped_storage()
    raw = ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
    if not x.numel():
        return np.empty(tuple(x.shape), f"V{size}")
    strides = tuple(step * size for step in x.stride())
    return np.ndarray(tuple(x.shape), f"V{size}", raw, x.storage_offset() * size, strides)


def _flip_signs(raw: bytes, width: int, every: int, start: int) -> bytes:
    """Negate each `every`-th float of `width` bytes, from `start` on, by its sign bit alone."""
    array = np.frombuffer(raw, np.uint8).copy().reshape(-1, every, width)
    array[:, start:, -1] ^= 0x80
    return array.tobytes()


def dense(x: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    """Our name of the dtype, the shape and the bits in C order."""
    name = str(x.dtype).removeprefix("torch.")
    name = {row.torch: row.name for row in dtypes.DTYPES.values() if row.torch}.get(name, name)
    raw = _memory(x).tobytes()
    shape = tuple(x.shape)
    if x.is_conj():
        raw = _flip_signs(raw, x.itemsize // 2, 2, 1)
    if x.is_neg():
        parts = 2 if x.is_complex() else 1
        raw = _flip_signs(raw, x.itemsize // parts, parts, 0)
    if name == "float4_e2m1fn" and shape:  # two values in each byte, the first in the low half
        raw = bytes(half for byte in raw for half in (byte & 15, byte >> 4))
        shape = (*shape[:-1], shape[-1] * 2)
    return name, shape, keep_value_bits(name, raw)


def _is_freed(x: torch.Tensor) -> bool:
    return bool(x.numel()) and x.untyped_storage().nbytes() == 0


def integers(part: torch.Tensor) -> Any:
    return part.tolist()


def fingerprint(x: Any) -> Fingerprint:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{type(x)} is not of torch")
    made: Fingerprint = {
        "held.type": (type(x).__name__, getattr(x, "persistent", None)),
        "own.requires_grad": x.requires_grad,
        "memory.device": str(x.device),
    }
    if type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not x.is_nested:
        made["own.type"] = type(x).__name__  # it may carry more than its tensor
    if x.device.type == "meta" or (x.layout == torch.strided and not x.is_nested and _is_freed(x)):
        return made | {"dense": (str(x.dtype), tuple(x.shape))}
    if x.is_nested:
        return made | _nested(x.detach())
    bare = x.detach()
    if x.layout != torch.strided:
        return made | _sparse(bare)
    made["memory.flags"] = (x.stride(), x.storage_offset(), x.is_conj(), x.is_neg())
    made["memory.version"] = 0 if x.is_inference() else x._version
    if x.dim() in (4, 5):
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        made["held.memory_format"] = x.is_contiguous(memory_format=last) and not x.is_contiguous()
    if x.is_quantized:
        made |= _quantization(bare)
    return made | {"dense": dense(bare)}


def _quantization(x: torch.Tensor) -> Fingerprint:
    if x.qscheme() == torch.per_tensor_affine:
        return {"own.quantization": (x.q_scale(), x.q_zero_point())}
    scales, zeros = x.q_per_channel_scales(), x.q_per_channel_zero_points()
    return {"own.quantization": (str(x.qscheme()), scales.tolist(), zeros.tolist(), x.q_per_channel_axis())}


def _sparse(x: torch.Tensor) -> Fingerprint:
    layout = str(x.layout).removeprefix("torch.sparse_")
    if layout == "coo":
        parts, values = [x._indices().t()], x._values()
    elif layout in ("csr", "bsr"):
        parts, values = [x.crow_indices(), x.col_indices()], x.values()
    else:
        parts, values = [x.ccol_indices(), x.row_indices()], x.values()
    return {
        "layout": layout,
        "shape": tuple(x.shape),
        "parts": [integers(part) for part in parts],
        "values": dense(values),
        "held.index": [str(part.dtype) for part in parts],
        "held.coalesced": layout == "coo" and x.is_coalesced(),
    }


def _nested(x: torch.Tensor) -> Fingerprint:
    if x.layout == torch.jagged:
        lengths = None if x._lengths is None else x._lengths.tolist()
        return {
            "splits": [integers(x.offsets())],
            "values": dense(x.values()),
            "held.splits": [str(x.offsets().dtype)],
            "held.lengths": (lengths, x._ragged_idx),
        }
    rows = [dense(row) for row in x.unbind()]
    sizes = [row.numel() for row in x.unbind()]
    name = rows[0][0] if rows else str(x.dtype)
    return {
        "splits": [[sum(sizes[:n]) for n in range(len(sizes) + 1)]],
        "values": (name, (sum(sizes),), b"".join(raw for _, _, raw in rows)),
        "own.shapes": [shape for _, shape, _ in rows],
    }


# ---- dense layouts ----------------------------------------------------------


def torch_dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtypes.get(name).torch or name)
    return found


def tensor(name: str, shape: tuple[int, ...], stride: tuple[int, ...] | None = None) -> torch.Tensor:
    """A fresh tensor: elements in the order of memory, seen through `stride` if given."""
    # float4 comes in pairs: an element is a byte, and every byte is used
    source = "uint8" if name == "float4_e2m1fn" else name
    raw = bytearray(content(source, shape))
    flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    flat = flat.view(torch_dtype(name))
    return flat.reshape(shape) if stride is None else flat.as_strided(shape, stride)


def _requires_grad(x: torch.Tensor) -> torch.Tensor:
    return x.requires_grad_()


LAYOUTS: dict[str, Callable[[str], torch.Tensor]] = {
    "0-d": lambda name: tensor(name, ()),
    "0-d of a longer storage": lambda name: tensor(name, (5,))[3],
    **{f"empty {'x'.join(map(str, shape))}": partial(tensor, shape=shape) for shape in EMPTY},
    "1-d": lambda name: tensor(name, (max(len(patterns(name)), 256),)),
    "4-d": lambda name: tensor(name, (2, 3, 4, 5)),
    "rank 32": lambda name: tensor(name, (1,) * 30 + (2, 3)),
    "page and more": lambda name: tensor(name, (70, 70)),
    "transposed": lambda name: tensor(name, (4, 5, 6)).permute(2, 0, 1),
    "strided": lambda name: tensor(name, (6, 8))[::2, 1::3],
    "storage offset": lambda name: tensor(name, (17,))[3:],
    "expanded": lambda name: tensor(name, (1, 5)).expand(4, 5),
    "F-order": lambda name: tensor(name, (4, 6), (1, 4)),
    "overlapping": lambda name: tensor(name, (24,)).as_strided((6, 4), (1, 1)),
    "channels last": lambda name: tensor(name, (2, 3, 4, 5), (60, 1, 15, 3)),
    "channels last 3d": lambda name: tensor(name, (2, 3, 2, 4, 5), (120, 1, 60, 15, 3)),
    "channels last, one channel": lambda name: tensor(name, (2, 1, 4, 5), (20, 1, 5, 1)),
    "Parameter": lambda name: torch.nn.Parameter(tensor(name, (3, 4)), requires_grad=False),
    "Buffer": lambda name: torch.nn.Buffer(tensor(name, (3, 4))),
    "Buffer, not persistent": lambda name: torch.nn.Buffer(tensor(name, (3, 4)), persistent=False),
}

_GRAD: dict[str, Callable[[str], torch.Tensor]] = {
    "requires grad": lambda name: _requires_grad(tensor(name, (3, 4))),
    "requires grad, not a leaf": lambda name: _requires_grad(tensor(name, (3, 4))).t(),
    "Parameter requires grad": lambda name: torch.nn.Parameter(tensor(name, (3, 4))),
    "negative bit": lambda name: torch._neg_view(tensor(name, (5, 8))),
    "negative bit, transposed": lambda name: torch._neg_view(tensor(name, (5, 8))).t(),
}

_COMPLEX: dict[str, Callable[[str], torch.Tensor]] = {
    "conjugate": lambda name: tensor(name, (5, 8)).conj(),
    "conjugate transposed": lambda name: tensor(name, (5, 8)).mH,
    "conjugate and negative": lambda name: torch._neg_view(tensor(name, (5, 8)).conj()),
    "conjugate, requires grad": lambda name: _requires_grad(tensor(name, (5, 8))).conj(),
}


def _case(name: str, layout: str, build: Callable[[str], torch.Tensor]) -> Case:
    def quietly() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch announces prototypes, betas and deprecations
            return build(name)

    return Case("torch", name, layout, quietly)


_COMPLEX_OF = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}


def _freed(name: str) -> torch.Tensor:
    made = torch.zeros(1000, dtype=torch_dtype(name))
    made.untyped_storage().resize_(0)
    return made


class _Subclass(torch.Tensor):  # type: ignore[misc]
    pass


def _dense_cases(name: str) -> Iterable[Case]:
    layouts = dict(LAYOUTS)
    dtype = torch_dtype(name)
    if dtypes.get(name).bits == 16:
        layouts["every bit pattern"] = lambda name: torch.frombuffer(
            bytearray(every_pattern(name)), dtype=torch_dtype(name)
        )
    if dtypes.get(name).bits < 8:
        layouts["high bits set"] = lambda name: tensor("uint8", (256,)).view(torch_dtype(name))
    if name in ("float16", "bfloat16", "float32", "float64") or dtype.is_complex:
        layouts |= _GRAD
    if dtype.is_complex:
        layouts |= _COMPLEX
    if name in _COMPLEX_OF:
        layouts["imaginary part of a conjugate"] = lambda name: tensor(_COMPLEX_OF[name], (5, 8)).conj().imag
    if name == "bool":
        layouts["byte that is not a valid bool"] = lambda name: torch.tensor([0, 1, 2], dtype=torch.uint8).view(
            torch.bool
        )
    if name == "float32":
        layouts["meta device"] = lambda name: torch.empty(3, device="meta")
        layouts["freed storage"] = _freed
        layouts["subclass"] = lambda name: tensor(name, (3,)).as_subclass(_Subclass)
        layouts["inference mode"] = lambda name: torch.inference_mode()(tensor)(name, (3, 4))
    for layout, build in layouts.items():
        yield _case(name, layout, build)


# ---- sparse -----------------------------------------------------------------


def _coo(name: str, indices: Any, shape: tuple[int, ...], inner: tuple[int, ...] = (), **options: Any) -> torch.Tensor:
    at = torch.tensor(indices, dtype=torch.int64).reshape(len(shape) - len(inner), -1)
    return torch.sparse_coo_tensor(at, tensor(name, (at.shape[1], *inner)), shape, **options)


def _compressed(
    name: str, layout: str, shape: tuple[int, ...], block: tuple[int, ...] = (), inner: tuple[int, ...] = (),
    index: torch.dtype = torch.int64, empty: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Two entries (or blocks) in each row (or column) of the matrix, at its start and its end."""
    batch, matrix = shape[: len(shape) - 2 - len(inner)], shape[len(shape) - 2 - len(inner) :][:2]
    rows, columns = (n // b for n, b in zip(matrix, block or (1, 1), strict=True))
    outer, limit = (rows, columns) if layout in ("csr", "bsr") else (columns, rows)
    count = 0 if empty else 2
    pointers = torch.arange(outer + 1, dtype=index) * count
    indices = torch.tensor([0, limit - 1] * outer if count else [], dtype=index)
    values = tensor(name, (*batch, outer * count, *block, *inner))
    make = getattr(torch, f"sparse_{layout}_tensor")
    repeated = (part.expand(*batch, -1).contiguous() for part in (pointers, indices))
    made: torch.Tensor = make(*repeated, values, shape)
    return made


_SPARSE: dict[str, Callable[[str], torch.Tensor]] = {
    "coo": lambda name: _coo(name, [[2, 0, 2], [1, 3, 0]], (3, 4)),
    "coo, duplicates": lambda name: _coo(name, [[2, 0, 2], [1, 3, 1]], (3, 4)),
    "coo, coalesced": lambda name: _coo(name, [[0, 1, 2], [1, 3, 0]], (3, 4), is_coalesced=True),
    "coo, empty": lambda name: _coo(name, [[], []], (3, 4)),
    "coo, no rows": lambda name: _coo(name, [[], []], (0, 4)),
    "coo, 1-d": lambda name: _coo(name, [[5, 1]], (9,)),
    "coo, 4-d": lambda name: _coo(name, [[0, 1], [2, 0], [1, 1], [3, 0]], (2, 3, 2, 4)),
    "coo, 0-d": lambda name: torch.sparse_coo_tensor(torch.empty((0, 2), dtype=torch.int64), tensor(name, (2,)), ()),
    "coo, all axes dense": lambda name: torch.sparse_coo_tensor(
        torch.empty((0, 2), dtype=torch.int64), tensor(name, (2, 3)), (3,)
    ),
    "coo, hybrid": lambda name: _coo(name, [[2, 0, 2]], (3, 4, 2), (4, 2)),
    "coo, hybrid coalesced": lambda name: _coo(name, [[0, 2]], (3, 5), (5,), is_coalesced=True),
    "csr": lambda name: _compressed(name, "csr", (3, 4)),
    "csr, int32 indices": lambda name: _compressed(name, "csr", (3, 4), index=torch.int32),
    "csr, empty": lambda name: _compressed(name, "csr", (3, 4), empty=True),
    "csr, batched": lambda name: _compressed(name, "csr", (2, 5, 3, 4)),
    "csr, hybrid": lambda name: _compressed(name, "csr", (3, 4, 2), inner=(2,)),
    "csr, batched hybrid": lambda name: _compressed(name, "csr", (2, 3, 4, 2, 3), inner=(2, 3)),
    "csc": lambda name: _compressed(name, "csc", (3, 4)),
    "csc, int32 indices": lambda name: _compressed(name, "csc", (3, 4), index=torch.int32),
    "csc, batched": lambda name: _compressed(name, "csc", (2, 3, 4)),
    "csc, hybrid": lambda name: _compressed(name, "csc", (3, 4, 2), inner=(2,)),
    "bsr": lambda name: _compressed(name, "bsr", (4, 6), (2, 3)),
    "bsr, batched": lambda name: _compressed(name, "bsr", (2, 4, 6), (2, 3)),
    "bsr, hybrid": lambda name: _compressed(name, "bsr", (4, 6, 2), (2, 3), (2,)),
    "bsr, int32 indices": lambda name: _compressed(name, "bsr", (4, 6), (2, 3), index=torch.int32),
    "bsc": lambda name: _compressed(name, "bsc", (4, 6), (2, 3)),
    "bsc, batched": lambda name: _compressed(name, "bsc", (2, 4, 6), (2, 3)),
    "bsc, hybrid": lambda name: _compressed(name, "bsc", (4, 6, 2), (2, 3), (2,)),
    "coo, index outside": lambda name: _coo(name, [[7, 0], [1, 3]], (3, 4), check_invariants=False),
    "coo, requires grad": lambda name: _requires_grad(_coo(name, [[2, 0], [1, 3]], (3, 4))),
    "csr, requires grad": lambda name: _requires_grad(_compressed(name, "csr", (3, 4))),
}


def _sparse_cases(name: str) -> Iterable[Case]:
    for layout, build in _SPARSE.items():
        if ("grad" not in layout and "outside" not in layout) or name in ("float32", "complex64"):
            yield _case(name, layout, build)


# ---- nested and quantized ---------------------------------------------------


def _jagged(name: str, inner: tuple[int, ...] = (), index: torch.dtype = torch.int64) -> torch.Tensor:
    offsets = torch.tensor([0, 2, 2, 7], dtype=index)
    made: torch.Tensor = torch.nested.nested_tensor_from_jagged(tensor(name, (7, *inner)), offsets)
    return made


_JAGGED: dict[str, Callable[[str], torch.Tensor]] = {
    "jagged": _jagged,
    "jagged, int32 offsets": lambda name: _jagged(name, index=torch.int32),
    "jagged, inner axes": lambda name: _jagged(name, (3, 2)),
}
_ROWS: dict[str, Callable[[str], torch.Tensor]] = {
    "nested": lambda name: torch.nested.nested_tensor([tensor(name, shape) for shape in ((2, 3), (4, 1), (0, 5))]),
    "nested, 1-d rows": lambda name: torch.nested.nested_tensor([tensor(name, (2,)), tensor(name, (0,))]),
    "nested, one row": lambda name: torch.nested.nested_tensor([tensor(name, (2, 3, 4))]),
}  # fmt: skip
_NESTED_ONLY: dict[str, Callable[[str], torch.Tensor]] = {
    "nested, 0-d rows": lambda name: torch.nested.nested_tensor([tensor(name, ()), tensor(name, ())]),
    "nested, requires grad": lambda name: torch.nested.nested_tensor([tensor(name, (2,))], requires_grad=True),
    "nested, transposed": lambda name: _ROWS["nested"](name).transpose(1, 2),
    "nested without rows": lambda name: torch.nested.nested_tensor([], dtype=torch_dtype(name)),
    "jagged, requires grad": lambda name: torch.nested.nested_tensor(
        [tensor(name, (2,)), tensor(name, (3,))], layout=torch.jagged, requires_grad=True
    ),
    "jagged with holes": lambda name: torch.nested.nested_tensor_from_jagged(
        tensor(name, (7,)), torch.tensor([0, 3, 7]), torch.tensor([2, 4])
    ),
    "jagged transposed": lambda name: _jagged(name, (3,)).transpose(1, 2),
}


def _quantized(name: str, shape: tuple[int, ...], scale: float = 0.1, zero: int = 3) -> torch.Tensor:
    kind = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}[name]
    return torch._make_per_tensor_quantized_tensor(tensor(kind, shape), scale, zero if name != "qint32" else 0)


def _per_channel(name: str, axis: int, shape: tuple[int, ...] = (3, 4, 5)) -> torch.Tensor:
    kind = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}[name]
    scales = torch.tensor([0.1 / (n + 3) for n in range(shape[axis])], dtype=torch.float64)
    zeros = torch.arange(shape[axis], dtype=torch.int64)
    made: torch.Tensor = torch._make_per_channel_quantized_tensor(tensor(kind, shape), scales, zeros, axis)
    return made


_QUANTIZED: dict[str, Callable[[str], torch.Tensor]] = {
    "per tensor": lambda name: _quantized(name, (256,)),
    "per tensor, 0-d": lambda name: _quantized(name, ()),
    "per tensor, empty": lambda name: _quantized(name, (2, 0)),
    "per tensor, transposed": lambda name: _quantized(name, (4, 5)).t(),
    "per tensor, strided": lambda name: _quantized(name, (6, 8))[::2, 1::3],
    "per tensor, tiny scale": lambda name: _quantized(name, (4,), 5e-324),
    "per channel 0": lambda name: _per_channel(name, 0),
    "per channel 2": lambda name: _per_channel(name, 2),
}


def _float_zero_points(name: str) -> torch.Tensor:
    scales = zeros = torch.tensor([0.5, 0.25])
    return torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch_dtype(name))


def _opaque(name: str, _: str) -> torch.Tensor:
    return tensor("uint8", (8,)).view(getattr(torch, name))


_OTHER = ("int3", "int5", "int6", "int7", "uint3", "uint5", "uint6", "uint7", "bits8", "bits16", "bits1x8")

CASES: list[Case] = [
    *(case for name in NAMES for case in _dense_cases(name)),
    *(case for name in NAMES for case in _sparse_cases(name)),
    *(_case(name, layout, build) for name in NAMES for layout, build in _JAGGED.items()),
    *(_case(name, layout, build) for name in NESTED for layout, build in _ROWS.items()),
    *(_case("float32", layout, build) for layout, build in _NESTED_ONLY.items()),
    *(_case(name, layout, build) for name in QUANTIZED for layout, build in _QUANTIZED.items()),
    _case("quint8", "per channel, float zero points", _float_zero_points),
    *(_case("other", name, partial(_opaque, name)) for name in _OTHER),
]
