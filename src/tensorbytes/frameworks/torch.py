"""PyTorch: any device and memory layout; sparse, nested and quantized tensors too."""

from __future__ import annotations

import json
import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

from tensorbytes import dtypes
from tensorbytes.errors import Hint, UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.frameworks import placement
from tensorbytes.tensor import (
    Array,
    Header,
    Making,
    Memory,
    Ragged,
    Sparse,
    Strings,
    Tensor,
    Value,
    fitting_tensor,
    with_origin,
)
from tensorbytes.typing import bytes_view

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_COMPRESSED = {
    torch.sparse_csr: ("csr", "crow_indices", "col_indices"),
    torch.sparse_csc: ("csc", "ccol_indices", "row_indices"),
    torch.sparse_bsr: ("bsr", "crow_indices", "col_indices"),
    torch.sparse_bsc: ("bsc", "ccol_indices", "row_indices"),
}
# Stand-ins for copying: torch has no kernels for its rarer types, and some that change NaNs.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SIGNED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
)
_PAIRS = "float4_e2m1fn_x2"
# The dtypes whose bytes are those of the neutral value, whatever they are; both ways.
_AS_THEY_ARE = {
    getattr(torch, row.torch): row.name
    for row in dtypes.DTYPES.values()
    if row.torch and hasattr(torch, row.torch) and row.bits >= 8 and row.name != "bool" and row.numpy
}
_BY_NAME = {name: dtype for dtype, name in _AS_THEY_ARE.items()}
# Of these, torch gives NumPy's arrays.
_NUMPY = {dtype for dtype, name in _AS_THEY_ARE.items() if hasattr(np, name)}
_FRAMEWORK = {"framework"}
_MEMORY_FORMATS = {"channels_last": (4, torch.channels_last), "channels_last_3d": (5, torch.channels_last_3d)}


def to_value(x: Any) -> Value:
    if isinstance(x, torch.Tensor):
        try:
            if torch._is_functional_tensor(x):  # torch gives memory for these, but not theirs
                raise RuntimeError("it stands for values elsewhere")
            if type(x) in _PLAIN and (tensor := _as_it_is(x)) is not None:
                return tensor
            if x.device.type == "meta":
                raise UnsupportedError(f"a tensor on the 'meta' device {tuple(x.shape)} has no data to store")
            if x.is_nested:
                return with_origin(_nested(x), _describe(x))
            if type(x) in _PLAIN:
                return with_origin(_by_layout(x.detach()), _describe(x))
        except RuntimeError as error:  # inside of a transform, such as vmap
            reason = str(error).partition("\n")[0][:200]
            raise UnsupportedError(
                f"torch does not give the values of a tensor: {reason}",
                hints=[Hint(purpose="store what a transform returns, not what is inside of it")],
            ) from error
    raise UnsupportedError(
        f"{type(x).__module__}.{type(x).__qualname__} is not a plain tensor",
        hints=[Hint(purpose="pass x.as_subclass(torch.Tensor)")] if isinstance(x, torch.Tensor) else (),
    )


def address_of(x: Any) -> int:
    """Sparse and nested tensors have several memories, or none: of these only the object itself tells."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.is_nested or x._is_zerotensor():
        return 0
    address: int = x.data_ptr()
    return address


def place_of(x: torch.Tensor) -> Hashable:
    return x.data_ptr(), x.dtype, x.shape, x.stride(), x.device, x.is_conj(), x.is_neg()


def _as_it_is(x: torch.Tensor) -> Tensor | None:
    """The usual case, in few steps: a tensor whose memory is what is stored, in C order. None for any other."""
    name = _AS_THEY_ARE.get(x.dtype)
    if name is None or x.layout != torch.strided or x.is_nested or not x.is_cpu or not x.is_contiguous():
        return None
    if x.is_conj() or x.is_neg() or x._is_zerotensor():
        return None
    if x.untyped_storage().nbytes() < (x.storage_offset() + x.numel()) * x.itemsize:
        return None  # it was freed
    plain = type(x) is torch.Tensor and not x.requires_grad and not x.__dict__  # which tells a Buffer
    origin = {"framework": "torch"} if plain else _describe(x)
    data = x if plain else x.detach()
    if x.dtype not in _NUMPY:
        data = data.reshape(-1).view(_INTEGERS[x.itemsize])
    return fitting_tensor(name, tuple(x.shape), bytes_view(data.numpy()), origin)


def memory_of(x: torch.Tensor) -> tuple[str, tuple[int, ...], Array] | None:
    """The dtype, the shape and the memory of a plain tensor that is nothing else; None for any other."""
    dtype = x.dtype
    name = _SHORT.get(dtype)
    try:
        if name is None or x.requires_grad or x.__dict__ or torch._is_functional_tensor(x) or x.is_nested:
            return None
        if not x.is_cpu or x.layout != torch.strided or not x.is_contiguous() or x._is_zerotensor():
            return None
        if x.untyped_storage().nbytes() < (x.storage_offset() + x.numel()) * x.itemsize:
            return None
        data = x if dtype in _NUMPY or name == "bool" else x.reshape(-1).view(_INTEGERS[dtype.itemsize])
        return name, tuple(x.shape), data.numpy()  # which refuses what is conjugated or negated
    except (RuntimeError, TypeError):  # inside of a transform, such as vmap
        return None


def _describe(x: torch.Tensor) -> dict[str, str]:
    """What is not in the values; only what differs from a fresh CPU tensor."""
    origin = {"framework": "torch"}
    if x.device.type != "cpu":
        origin["device"] = str(x.device)
    if x.requires_grad:
        origin["requires_grad"] = "true"
    if isinstance(x, torch.nn.Parameter):
        origin["type"] = "Parameter"
    elif isinstance(x, torch.nn.Buffer):
        origin["type"] = "Buffer"
        if not x.persistent:
            origin["torch.persistent"] = "false"
    if x.layout == torch.strided and not x.is_nested and not x.is_contiguous():
        for name, (rank, memory_format) in _MEMORY_FORMATS.items():
            if x.dim() == rank and x.is_contiguous(memory_format=memory_format):
                origin["memory_format"] = name
    return origin


def _by_layout(x: torch.Tensor) -> Value:
    if x.layout == torch.strided:
        return _dense(x)
    _refuse_pairs(x)
    if x.layout == torch.sparse_coo:
        indices = np.ascontiguousarray(x._indices().cpu().numpy().T)
        value = Sparse("coo", tuple(x.shape), (indices,), _dense(x._values()))
        return with_origin(value, {"torch.coalesced": "true"} if x.is_coalesced() else {})
    if x.layout in _COMPRESSED:
        layout, outer, inner = _COMPRESSED[x.layout]
        parts = (getattr(x, outer)().cpu().numpy(), getattr(x, inner)().cpu().numpy())
        return Sparse(layout, tuple(x.shape), parts, _dense(x.values().detach()))
    raise UnsupportedError(f"the layout {x.layout} has no portable form", hints=[Hint(purpose="pass x.to_dense()")])


def _dense(x: torch.Tensor) -> Tensor:
    name = str(x.dtype).removeprefix("torch.")
    row = dtypes.BY_TORCH.get(name)
    if row is None:
        raise UnsupportedError(
            f"the dtype torch.{name} has no portable form", hints=[Hint(purpose="pass x.view(torch.uint8)")]
        )
    origin: dict[str, str] = {}
    if x.is_quantized:
        origin, x = _quantization(x), x.int_repr()
    flat = _flat_bytes(x)
    shape = tuple(x.shape)
    if name == _PAIRS:
        if not shape:
            raise UnsupportedError(f"a 0-d {_PAIRS} tensor holds two values and no axis for them: reshape to (1,)")
        flat = np.stack((flat & 15, flat >> 4), axis=-1).reshape(-1)
        shape = (*shape[:-1], shape[-1] * 2)
    elif row.bits < 8:
        flat = flat & row.value_mask
    numpy_adapter.check_bool(row.name, flat)
    return Tensor(row.name, shape, flat, origin=origin)


def _check_storage(x: torch.Tensor) -> None:
    """Training in shards frees the storage of tensors that live on; torch would read what is there now."""
    if x.numel():
        last = x.storage_offset() + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
        if x.untyped_storage().nbytes() < (last + 1) * x.itemsize:
            raise UnsupportedError(f"the storage of a tensor {tuple(x.shape)} was freed: gather its data first")


def _flat_bytes(x: torch.Tensor) -> Array:
    if x._is_zerotensor():  # torch keeps the zeros of some gradients without memory
        x = torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    _check_storage(x)
    conjugate, negative = x.is_conj(), x.is_neg()
    if negative and x.dtype not in _SIGNED:
        x, negative = x.resolve_neg(), False
    if conjugate:
        x = x.conj()
    if negative:
        x = torch._neg_view(x)
    size, parts = x.itemsize, 2 if x.is_complex() else 1
    x = (torch.view_as_real(x) if size == 16 else x).view(_INTEGERS[min(size, 8)])
    x = x.cpu().contiguous()
    # Of an axis with one element or none the step may be anything, and view() insists on 1.
    flat: Array = x.as_strided((x.numel(),), (1,)).view(torch.uint8).numpy()
    if conjugate or negative:
        flat = _flip_signs(flat, size // parts, [negative, negative != conjugate][:parts])
    return flat


def _flip_signs(flat: Array, width: int, which: list[bool]) -> Array:
    """Negate real or imaginary parts by their sign bits, as arithmetic would change NaNs."""
    bits = flat.view(f"<u{width}").reshape(-1, len(which))
    sign = 1 << width * 8 - 1
    flipped: Array = bits ^ np.array([sign if flip else 0 for flip in which], bits.dtype)
    return flipped.reshape(-1).view(np.uint8)


def _refuse_pairs(x: torch.Tensor) -> None:
    """Of sparse and nested tensors: their indices count elements, and an element is two values here."""
    if str(x.dtype).endswith(_PAIRS):
        raise UnsupportedError(
            f"sparse and nested tensors of {_PAIRS} have no portable form",
            hints=[Hint(purpose="pass x.view(torch.uint8)")],
        )


def _nested(x: torch.Tensor) -> Ragged:
    _refuse_pairs(x)
    if x.layout == torch.jagged:
        if x._lengths is not None or x._ragged_idx != 1:
            raise UnsupportedError(
                "a jagged tensor with holes or transposed", hints=[Hint(purpose="pass x.contiguous()")]
            )
        return Ragged(_dense(x.values().detach()), (x.offsets().cpu().numpy(),), origin={"torch.layout": "jagged"})
    rows = [_dense(row) for row in x.detach().unbind()]
    if not rows:
        raise UnsupportedError(
            "a nested tensor without rows does not tell its dtype's shape", hints=[Hint(purpose="store None instead")]
        )
    sizes = np.array([row.shape for row in rows], np.int64).reshape(len(rows), len(rows[0].shape))
    splits = np.concatenate(([0], np.cumsum(sizes.prod(axis=1)))).astype(np.int64)
    values = Tensor(rows[0].dtype, (int(splits[-1]),), b"".join(row.data for row in rows))
    return Ragged(values, (splits,), sizes, origin={"torch.layout": "strided"})


def _quantization(x: torch.Tensor) -> dict[str, str]:
    scheme = str(x.qscheme()).removeprefix("torch.")
    if scheme == "per_tensor_affine":
        return {"torch.scale": repr(x.q_scale()), "torch.zero_point": repr(x.q_zero_point())}
    if scheme == "per_channel_affine":
        return {
            "torch.scale": json.dumps(x.q_per_channel_scales().tolist()),
            "torch.zero_point": json.dumps(x.q_per_channel_zero_points().tolist()),
            "torch.axis": repr(x.q_per_channel_axis()),
        }
    raise UnsupportedError(
        f"the quantization scheme {scheme} has no portable form", hints=[Hint(purpose="pass x.dequantize()")]
    )


def from_value(value: Value, device: str | None = None) -> Any:
    if isinstance(value, Strings):
        return numpy_adapter.from_value(value)  # torch has no strings
    if device is None and isinstance(value, Tensor) and (tensor := _from_memory(value)) is not None:
        return tensor
    made = _tensor(value) if isinstance(value, Tensor) else _structure(value)
    where = placement(value, device)
    try:
        if where is not None:
            made = made.to(where)
        if value.origin.get("requires_grad") == "true":
            made.requires_grad_()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UnsupportedError(f"torch can't put {made.dtype} on {where or 'cpu'!r} as asked: {reason}") from None
    wrapper = {"Parameter": torch.nn.Parameter, "Buffer": torch.nn.Buffer}.get(value.origin.get("type", ""))
    if wrapper is torch.nn.Parameter:
        made = wrapper(made, requires_grad=made.requires_grad)
    elif wrapper:
        made = wrapper(made, persistent=value.origin.get("torch.persistent") != "false")
    return made


def _from_memory(value: Tensor) -> torch.Tensor | None:
    """The usual case, in few steps: a plain tensor of bytes as they are. None for any other."""
    dtype = _BY_NAME.get(value.dtype)
    data = value.data
    if dtype is None or not value.origin.keys() <= _FRAMEWORK or not len(data):
        return None
    made = torch.frombuffer(bytearray(data) if data.readonly else data, dtype=dtype)  # torch knows no read-only memory
    return None if made.data_ptr() % dtype.itemsize else made.view(value.shape)


def _made(dtype: torch.dtype, shape: tuple[int, ...], memory: bytearray) -> torch.Tensor:
    """A tensor of memory that is its alone."""
    if not memory:
        return torch.empty(shape, dtype=dtype, device="cpu")
    made = torch.frombuffer(memory, dtype=dtype)
    return made if len(shape) == 1 else made.view(shape)


_SHORT = {**_AS_THEY_ARE, torch.bool: "bool"}
MEMORIES = {torch.Tensor: Memory("torch", memory_of)}
MAKING = Making({name: dtype for dtype, name in _SHORT.items()}, _made)


def _tensor(value: Tensor) -> torch.Tensor:
    row = dtypes.get(value.dtype)
    if row.torch is None or not hasattr(torch, row.torch):
        raise UnsupportedError(
            f"torch has no dtype for {value.dtype}", hints=[Hint("to", choices=("numpy", "tensor"), of="load")]
        )
    shape = value.shape
    flat: Array = np.frombuffer(value.data, np.uint8)
    if row.torch == _PAIRS:
        if not shape or shape[-1] % 2:
            raise UnsupportedError(f"torch stores {row.name} in pairs: the last axis of {shape} must be even")
        flat = flat[0::2] | flat[1::2] << 4
        shape = (*shape[:-1], shape[-1] // 2)
    # torch knows no read-only memory, and wants it aligned.
    if not flat.flags.writeable or flat.ctypes.data % max(row.itemsize, 1):
        flat = flat.copy()
    if row.name.startswith(("qint", "quint")):
        signed = "i" if row.name.startswith("qint") else "u"
        return _quantized(value, flat.view(f"{signed}{row.itemsize}"), shape)
    dtype: torch.dtype = getattr(torch, row.torch)
    standin = _INTEGERS.get(dtype.itemsize, dtype)
    made = torch.from_numpy(flat).view(standin) if flat.size else torch.empty(0, dtype=standin, device="cpu")
    made = made.reshape(shape)
    rank, memory_format = _MEMORY_FORMATS.get(value.origin.get("memory_format", ""), (-1, None))
    return (made.contiguous(memory_format=memory_format) if rank == len(shape) else made).view(dtype)


def _quantized(value: Tensor, integers: Array, shape: tuple[int, ...]) -> torch.Tensor:
    ints = torch.from_numpy(integers).reshape(shape)
    try:
        scale = json.loads(value.origin["torch.scale"])
        zero = json.loads(value.origin["torch.zero_point"])
        axis = int(value.origin.get("torch.axis", "0"))
    except (KeyError, ValueError, RecursionError):
        raise UnsupportedError(f"torch needs a scale and a zero point for {value.dtype}; the file has none") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # quantized dtypes are deprecated, but files hold them
        try:
            if isinstance(scale, list):
                scales = torch.tensor(scale, dtype=torch.float64, device="cpu")
                zeros = torch.tensor(zero, dtype=torch.int64, device="cpu")
                made: torch.Tensor = torch._make_per_channel_quantized_tensor(ints, scales, zeros, axis)
            else:
                made = torch._make_per_tensor_quantized_tensor(ints, scale, zero)
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # metadata may say anything
            reason = str(error).partition("\n")[0][:200]
            raise UnsupportedError(f"torch can't make {value.dtype} of its scale and zero point: {reason}") from None
    return made


def _structure(value: Ragged | Sparse) -> torch.Tensor:
    if isinstance(value.values, Tensor) and dtypes.get(value.values.dtype).torch == _PAIRS:
        raise UnsupportedError(
            f"torch's {_PAIRS} has no sparse or nested form of single values", hints=[Hint("to", "tensor", of="load")]
        )
    try:
        return _ragged(value) if isinstance(value, Ragged) else _sparse(value)
    except RuntimeError as error:  # indices that torch wants sorted and distinct, a dtype without a kernel
        raise UnsupportedError(f"torch can't hold this: {error}") from None


def _ragged(value: Ragged) -> torch.Tensor:
    if isinstance(value.values, Strings):
        raise UnsupportedError("torch has no strings, so no ragged ones either", hints=[Hint("to", "numpy", of="load")])
    values = _tensor(value.values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nested tensors announce themselves as a prototype
        if value.shapes is not None or value.origin.get("torch.layout") == "strided":
            shapes = value.shapes if value.shapes is not None else np.diff(value.splits[0])[:, None]
            sizes = [int(n) for n in np.diff(value.splits[0])]
            rows = [
                row.reshape(shape) for row, shape in zip(values.split(sizes), shapes.tolist(), strict=True)
            ]  # fmt: skip
            return torch.nested.nested_tensor(rows)
        if len(value.splits) > 1:
            raise UnsupportedError(
                "torch's nested tensors have one ragged axis",
                hints=[Hint("to", choices=("numpy", "tensorflow"), of="load")],
            )
        return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(value.splits[0].copy()))


def _sparse(value: Sparse) -> torch.Tensor:
    if isinstance(value.values, Strings):
        raise UnsupportedError(
            "torch has no strings, so no sparse ones either", hints=[Hint("to", "tensorflow", of="load")]
        )
    if value.layout == "dia":
        value = value.to_coo()
    assert isinstance(value.values, Tensor)
    values = _tensor(value.values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # compressed layouts announce themselves as beta
        if value.layout == "coo":
            indices = torch.from_numpy(np.ascontiguousarray(value.parts[0].T, np.int64))
            coalesced = True if value.origin.get("torch.coalesced") == "true" else None
            return torch.sparse_coo_tensor(
                indices, values, value.shape, device="cpu", is_coalesced=coalesced, check_invariants=bool(coalesced)
            )
        layout = {name: layout for layout, (name, *_) in _COMPRESSED.items()}[value.layout]
        pointers, inner = (torch.from_numpy(part.copy()) for part in value.parts)
        return torch.sparse_compressed_tensor(
            pointers, inner, values, value.shape, layout=layout, device="cpu", check_invariants=True
        )


# ---- templates ----------------------------------------------------------------


def state(x: Any) -> Any:
    """The state_dict of a module; None for anything else."""
    return x.state_dict() if isinstance(x, torch.nn.Module) else None


def outline(x: Any) -> Header | None:
    """What a dense tensor is, on the meta device, too; None for any other."""
    name = _AS_THEY_ARE.get(x.dtype) if isinstance(x, torch.Tensor) else None
    if isinstance(x, torch.Tensor) and x.dtype == torch.bool:
        name = "bool"
    if name is None or x.layout != torch.strided or x.is_nested:
        return None
    return Header("tensor", name, tuple(x.shape), None)


def like(value: Value, x: Any, device: str | None) -> Any:
    """A tensor on the device of `x`, which learns, and is a Parameter, if `x` does and is."""
    made = from_value(value, device)
    if not isinstance(made, torch.Tensor):
        return made
    made = made.detach()
    if device is None and x.device.type != "meta":
        made = made.to(x.device)
    if isinstance(x, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=x.requires_grad)
    return made.requires_grad_() if x.requires_grad else made
