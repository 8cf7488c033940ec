"""quantize and dequantize: tensors to tensors of fewer bits and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tensorbytes import dtypes
from tensorbytes.deferred import Deferred
from tensorbytes.errors import Hint, UnsupportedError, UsageError
from tensorbytes.notebook import Displayed
from tensorbytes.quantization import affine, casts, passes
from tensorbytes.quantization.blocks import TILE, Section, Tile, scales_of_rows, sections, spread
from tensorbytes.quantization.parameters import (
    CASTS,
    ORIGINALS,
    Quantization,
    arithmetic,
    at_most,
    scale_count,
)
from tensorbytes.quantization.search import Encoding, FlatTensor, smallest
from tensorbytes.quantization.spec import Quantize
from tensorbytes.tensor import Array, InvalidValueError, Tensor, Value

T = TypeVar("T")
_Back: TypeAlias = Callable[[int, Tile, Array, Array], None]


@dataclass(frozen=True, slots=True)
class QuantizationCost:
    """What a quantization costs and saves. `bytes_after` counts bits that are packed, and the parameters."""

    max_error: float
    mean_error: float
    snr_db: float
    bytes_before: int
    bytes_after: int

    @property
    def saved(self) -> int:
        return self.bytes_before - self.bytes_after

    def __str__(self) -> str:
        share = f", {self.saved / self.bytes_before:.0%} saved" if self.bytes_before else ""
        size = f"{self.bytes_after} bytes instead of {self.bytes_before}{share}"
        if not self.max_error:
            return f"exact; {size}"
        error = f"max error {at_most(self.max_error)}, mean {at_most(self.mean_error)}, SNR {self.snr_db:.1f} dB"
        return f"{error}; {size}"


@dataclass(frozen=True, slots=True, eq=False)
class Quantized(Displayed):
    """A quantized tensor: the stored values, the parameters of the way back, and the cost.

    `bits` is how many of each element's low bits carry anything: a packing codec needs no more.
    """

    data: Tensor
    parameters: Quantization
    cost: QuantizationCost
    bits: int = field(default=0)

    def dequantize(self) -> Tensor:
        """The values in the dtype that they had."""
        return dequantize(self.data, self.parameters)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: what was done and what it costs, without the tensor's values."""
        how, cost = self.parameters, self.cost
        return {
            "name": self.data.name,
            "dtype": how.dtype,
            "stored": how.stored,
            "shape": self.data.shape,
            "scheme": how.scheme,
            "axis": how.axis,
            "group": how.group,
            "bits": self.bits,
            **asdict(cost),
            "snr_db": cost.snr_db if math.isfinite(cost.snr_db) else None,  # None: nothing was lost
        }

    def __str__(self) -> str:
        kind, shape = self.parameters, list(self.data.shape)
        few = f" of {self.bits} bits" if self.bits < dtypes.get(kind.stored).bits else ""
        how, _, _ = kind.describe().partition(", ")
        return f"{kind.dtype}{shape} as {how}{few}: {self.cost}"


class _Plan(NamedTuple):
    """How the scales of one tensor lie."""

    axis: int | None
    group: int | None
    scales: int
    parts: list[Section]


def applies(value: Value | Deferred, spec: Quantize | None = None) -> bool:
    """Whether a value is a dense tensor of floats; with a spec, whether that would store it in fewer bits."""
    kind, dtype, _, _ = value.header
    if kind != "tensor" or dtype not in ORIGINALS:
        return False
    return spec is None or spec.dtype is None or saves(spec.dtype, dtype)


def saves(stored: str, original: str) -> bool:
    """Whether a dtype is one to store another as: a cast must save space; integers may take as much, since fixed
    point has other uses."""
    room = dtypes.get(original).bits
    return dtypes.get(stored).bits < room + (stored not in CASTS)


def quantize(value: Tensor, spec: Quantize, name: str | None = None) -> Quantized:
    """The tensor as the spec wants it. `name` is the one shown in errors."""
    called = name if name is not None else value.name
    return _named(called, lambda: _quantize(value, spec))


def _quantize(value: Tensor, spec: Quantize) -> Quantized:
    original = value.dtype
    if original not in ORIGINALS:
        raise UnsupportedError(f"{original} can't be quantized: it is for {', '.join(ORIGINALS)}")
    if spec.dtype is not None and not saves(spec.dtype, original):
        raise UnsupportedError(
            f"{original} stored as {spec.dtype} saves nothing", hints=[Hint(purpose="choose a narrower type")]
        )
    plan = _plan(value.shape, spec)
    flat = value.numpy().reshape(-1)
    tensor = FlatTensor(flat, original, plan.parts, plan.scales)
    found = smallest(tensor, spec.max_error or 0.0) if spec.dtype is None else _as_asked(tensor, spec)
    parameters = found.parameters(original, plan.axis, plan.group)
    if spec.max_error is not None and parameters.max_error > spec.max_error:
        raise UnsupportedError(
            f"{parameters.describe()}, over the bound of {spec.max_error:g}",
            hints=[
                Hint(purpose="take a wider type"),
                Hint(purpose="scales for smaller parts (group=, axis=)"),
                Hint(purpose="no dtype, for the smallest encoding within the bound"),
            ],
        )
    data = Tensor(
        parameters.stored, value.shape, found.encoded.raw.view(np.uint8), value.name, value.meta, value.origin
    )
    after = -(-flat.size * found.bits // 8) + parameters.nbytes
    cost = QuantizationCost(parameters.max_error, parameters.mean_error, parameters.snr, value.nbytes, after)
    return Quantized(data, parameters, cost, found.bits)


def _plan(shape: tuple[int, ...], spec: Quantize) -> _Plan:
    axis = spec.axis
    if axis is not None:
        if not -len(shape) <= axis < len(shape):
            raise UsageError(f"axis {axis} of a tensor of shape {list(shape)}")
        axis %= len(shape)
    return _Plan(axis, spec.group, scale_count(shape, axis, spec.group), sections(shape, axis, spec.group))


def _as_asked(tensor: FlatTensor, spec: Quantize) -> Encoding:
    stored = spec.dtype
    assert stored is not None
    if stored in CASTS:
        return Encoding(passes.encode_cast(tensor.flat, stored, tensor.parts), stored)
    if spec.scale is not None:
        how = _fixed(stored, spec.scale, spec.zero, tensor.original)
    else:
        how = _measured(tensor, stored, spec.is_symmetric)
    return Encoding(passes.encode_affine(tensor.flat, tensor.original, tensor.parts, how), stored, how)


def _fixed(stored: str, scale: float, zero: int | None, original: str) -> passes.Affine:
    with np.errstate(over="ignore", under="ignore"):
        scales = np.array([scale], arithmetic(original))
    if not 0 < float(scales[0]) < np.inf:
        raise UsageError(
            f"a scale of {scale:g} does not fit {scales.dtype.name}, which scales of {original} are kept in"
        )
    zeros = None if not zero else np.array([zero], "<i4")
    return passes.Affine(stored, scales, zeros, affine.limits(stored), strict=True)


def _measured(tensor: FlatTensor, stored: str, symmetric: bool) -> passes.Affine:
    least, most = affine.limits(stored)
    low, high = tensor.extremes
    if not symmetric:
        span = (0, most) if stored == "int32" else (least, most)
        scales, zeros = affine.ranged(low, high, tensor.original, span)
        return passes.Affine(stored, scales, zeros, span)
    if not stored.startswith("u"):
        return passes.Affine(stored, affine.centred(low, high, tensor.original, most), None, (-most, most))
    middle = (most + 1) // 2
    scales = affine.centred(low, high, tensor.original, middle - 1)
    return passes.Affine(stored, scales, np.full(tensor.count, middle, "<i4"), (1, most))


# ---- back -------------------------------------------------------------------


def dequantize(data: Tensor, parameters: Quantization) -> Tensor:
    """The tensor in the dtype that it had. `data` holds the stored values."""
    parameters.check_shape(data.shape)
    return _dequantize(data, parameters, 0)


def dequantize_rows(data: Tensor, parameters: Quantization, start: int) -> Tensor:
    """The same of rows of a tensor: those along its first axis from number `start` on."""
    if not data.shape:
        return dequantize(data, parameters)
    return _dequantize(data, parameters, start)


def _dequantize(data: Tensor, parameters: Quantization, start: int) -> Tensor:
    original, shape = parameters.dtype, data.shape
    if data.dtype != parameters.stored:
        raise InvalidValueError(f"values of {data.dtype} with the parameters of {parameters.stored}")
    parts = sections(shape, parameters.axis, parameters.group, start)
    out = np.empty(data.nbytes // dtypes.get(data.dtype).itemsize, dtypes.to_numpy(original))
    raw = np.frombuffer(data.data, affine.memory(data.dtype)) if parameters.scales is not None else data.numpy()
    if parts and out.size <= TILE and parameters.axis is None and parameters.group is None:
        _small(raw.reshape(-1), parameters, out)
    elif parts:
        decode = _cast_back(original) if parameters.scales is None else _affine_back(parameters, parts, shape, start)
        passes.decode(raw.reshape(-1), parts, out, decode)
    return Tensor(original, shape, out.view(np.uint8), data.name, data.meta, data.origin)


def _small(raw: Array, parameters: Quantization, out: Array) -> None:
    """The same without the preparations that only larger tensors are worth."""
    if parameters.scales is None:
        out[...] = casts.widen(raw, parameters.dtype)
    else:
        numbers = affine.signed(raw, parameters.stored)
        affine.to_values(numbers, parameters.scales, parameters.zeros, parameters.dtype, out)


def _cast_back(original: str) -> _Back:
    def one(number: int, tile: Tile, raw: Array, out: Array) -> None:
        out[...] = casts.widen(raw, original)

    return one


def _affine_back(parameters: Quantization, parts: list[Section], shape: tuple[int, ...], start: int) -> _Back:
    def own(flat: Array) -> list[Array]:
        rows = scales_of_rows(flat, shape, parameters.axis, parameters.group, start) if shape else flat
        if len(rows) != parts[0].scale_rows * parts[0].scale_width:
            raise InvalidValueError(f"{list(shape)} from row {start} on: there are no scales for it")
        return [part.scales(rows) for part in parts]

    assert parameters.scales is not None
    scales = own(parameters.scales)
    zeros = None if parameters.zeros is None else own(parameters.zeros)

    def one(number: int, tile: Tile, raw: Array, out: Array) -> None:
        zero = None if zeros is None else spread(zeros[number], tile, raw.shape)
        numbers = affine.signed(raw, parameters.stored)
        affine.to_values(numbers, spread(scales[number], tile, raw.shape), zero, parameters.dtype, out)

    return one


def _named(name: str | None, work: Callable[[], T]) -> T:
    """Errors say which tensor."""
    try:
        return work()
    except (UnsupportedError, UsageError) as error:
        if name is None:
            raise
        raise error.within(f"tensor {name!r}", tensor=name) from None
