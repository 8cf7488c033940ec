"""Quantized features: what stands in their bytes, and the way back.

| encoding    | a record holds                                            | scale and zero       |
| ----------- | --------------------------------------------------------- | -------------------- |
| raw         | the narrower floats or integers, little-endian            | in the schema        |
| tensorproto | a TensorProto of them, with the field 1013 of the frame   | in that field        |

Whoever wants the integers as they are takes a schema that says so: Feature("int8", shape, "raw").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorbytes import dtypes, quantization
from tensorbytes._wire import proto, varint
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, Hint, TensorbytesError, UsageError
from tensorbytes.formats import _message, _quantized
from tensorbytes.formats import _tensorproto as tensorproto
from tensorbytes.formats._extension import MEANINGFUL, PADDING, QUANTIZATION
from tensorbytes.quantization import Quantization, Quantize
from tensorbytes.quantization.parameters import CASTS, ORIGINALS, arithmetic
from tensorbytes.tensor import Array, Tensor, Value

if TYPE_CHECKING:
    from tensorbytes.formats.tfrecord.schema.feature import Feature

_TAG = proto.tag(QUANTIZATION, proto.DELIMITED)


def checked_encoding(dtype: str, shape: tuple[int | None, ...], encoding: Any, spec: Quantize) -> str:
    """The encoding of a quantized feature; raw if the schema can say all, unless another was asked for."""
    if dtype not in ORIGINALS:
        raise UsageError(f"{dtype} can't be quantized: it is for {', '.join(ORIGINALS)}")
    stored = spec.dtype
    if stored is not None and not quantization.saves(stored, dtype):
        raise UsageError(f"{dtype} stored as {stored} saves nothing", hints=[Hint(purpose="choose a narrower type")])
    if spec.axis is not None and not -len(shape) <= spec.axis < len(shape):
        raise UsageError(f"axis {spec.axis} of a feature of {len(shape)} dimensions")
    if not encoding:
        encoding = "raw" if spec.fixed else "tensorproto"
    if encoding == "raw" and not spec.fixed:
        raise UsageError(
            f"raw has no room for scales that are measured ({spec.describe()})",
            hints=[Hint("scale", of="Quantize"), Hint("encoding", "tensorproto", of="Feature")],
        )
    if encoding == "tensorproto" and stored is not None and not dtypes.get(stored).in_tensorflow:
        raise UsageError(f"{stored} can't be stored as tensorproto: TensorFlow has no such dtype")
    if encoding not in ("raw", "tensorproto"):
        raise UsageError(f"quantized values are stored as 'raw' or 'tensorproto', not as {encoding!r}")
    return str(encoding)


def cell(value: Tensor, spec: Quantize, encoding: str) -> tuple[bytes, bytes]:
    """(head, content) of a value."""
    done = quantization.quantize(value, spec)
    if encoding == "raw":
        return b"", bytes(done.data.data)
    head = tensorproto.head(dtypes.get(done.data.dtype).code, value.shape)
    head += proto.put_bytes(QUANTIZATION, _quantized.encode(done.parameters))
    if value.nbytes:
        head += tensorproto.CONTENT_TAG + varint(done.data.nbytes)
    return head, bytes(done.data.data)


# ---- back -------------------------------------------------------------------


def stored_feature(feature: Feature) -> Feature:
    """The same feature without the way back: of what is stored."""
    return replace(feature, dtype=feature.quantize.dtype, encoding="raw", default=None, quantize=None)


def restored(values: Array, feature: Feature) -> Array:
    """Values of a raw feature, in the dtype that the schema gives them."""
    spec, flat = feature.quantize, np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if spec.dtype in CASTS:
        parameters = Quantization("cast", feature.dtype, spec.dtype)
    else:
        scales = np.array([spec.scale], arithmetic(feature.dtype))
        zeros = np.array([spec.zero], "<i4") if spec.zero else None
        parameters = Quantization("affine", feature.dtype, spec.dtype, scales=scales, zeros=zeros)
    back = quantization.dequantize(Tensor(spec.dtype, (values.size,), flat), parameters)
    return back.numpy().reshape(values.shape)


def parsed(data: memoryview, budget: Budget, wanted: str) -> Value:
    """A TensorProto; if it is quantized, its values or what is stored of them, whichever has the dtype `wanted`."""
    found = both(data, budget)
    if found is None:
        return _message.alone(data, budget, lazy=False).leaves[0].read()
    value, parameters = found
    return value if wanted == value.dtype else quantization.dequantize(value, parameters)


def both(data: memoryview, budget: Budget) -> tuple[Tensor, Quantization] | None:
    """What is stored, and the parameters of the way back; None for a TensorProto that is not quantized."""
    if _TAG not in bytes(data):  # mostly in front, but other writers put what they don't know after the content
        return None
    message = tensorproto.parse(data, 0, len(data), budget)
    fields = [item for item in message.extra if item.number < MEANINGFUL and item.number != PADDING]
    if all(item.number != QUANTIZATION for item in fields):
        return None
    if len(fields) != 1:
        numbers = ", ".join(str(item.number) for item in fields)
        raise CorruptError(f"a quantized tensor with the extension fields {numbers}", at=0)
    value = tensorproto.decode(data, message, budget, 0)
    if not isinstance(value, Tensor):
        raise CorruptError("quantized strings", at=fields[0].at)
    tensorproto.check_content(value, message, 0)
    proto.delimited(data, fields[0])
    return value, _quantized.decode(data, fields[0].start, fields[0].end, value.dtype, value.shape)


def alike(cells: Array, budget: Budget, wanted: str) -> Array | None:
    """The values of cells [rows, bytes] that differ in nothing but content and parameters; None if they differ in more.

    Also None for whatever is wrong with one of them, which is found one by one.
    """
    first = memoryview(cells[0].tobytes())
    try:
        found = both(first, budget)
        if found is None:
            return None
        value, parameters = found
        if parameters.axis is not None or (parameters.group is not None and not value.shape):
            return None
        message, at = tensorproto.parse(first, 0, len(first), budget), len(first) - value.nbytes
        if value.nbytes and message.content != (at, len(first)):  # values in another form, or fields after them
            return None
        spans = _parameter_spans(first, message)
        same = cells[:, :at] == cells[0, :at]
        for start, stop in spans.values():
            same[:, start:stop] = True
        together = _together(cells, spans, parameters) if same.all() else None
        if together is None:
            return None
        content = Tensor(value.dtype, (len(cells), *value.shape), cells[:, at:].copy().reshape(-1))
        tensorproto.check_bits(content, None)
        return (content if wanted == value.dtype else quantization.dequantize(content, together)).numpy()
    except TensorbytesError:
        return None


def _parameter_spans(cell: memoryview, message: tensorproto.Message) -> dict[int, tuple[int, int]]:
    """Where the numbers of the parameters stand: those that differ from record to record."""
    (whole,) = (item for item in message.extra if item.number == QUANTIZATION)
    fields = proto.fields(cell, whole.start, whole.end)
    return {item.number: (item.start, item.end) for item in fields if item.number in _quantized.NUMBERS}


def _together(cells: Array, spans: dict[int, tuple[int, int]], one: Quantization) -> Quantization | None:
    """The parameters of all cells as those of one tensor, a row for each; None if the errors stated make no sense."""

    def numbers(name: str, dtype: Any) -> Array | None:
        start, stop = spans.get(_quantized.NUMBER_OF[name], (0, 0))
        return cells[:, start:stop].copy().reshape(-1).view(dtype) if stop else None

    stated = {name: numbers(name, "<f8") for name in ("max_error", "mean_error", "snr")}
    most, mean, ratio = (np.zeros(1) if found is None else found for found in stated.values())
    if not ((mean >= 0) & (mean <= most) & (most < np.inf)).all() or np.isnan(ratio).any():
        return None
    scales, zeros = numbers("scales", arithmetic(one.dtype)), numbers("zeros", "<i4")
    axis = 0 if scales is not None and one.group is None else None
    return replace(one, axis=axis, scales=scales, zeros=zeros, max_error=0.0, mean_error=0.0)


def recognised(data: memoryview, before: Feature | None) -> Feature | None:
    """The feature of a quantized tensor, and of those before it; None if they have none in common, or it is no such."""
    from tensorbytes.formats.tfrecord.schema.feature import Feature

    try:
        found = both(data, Budget(LIMITS, len(data)))
        if found is None:
            return None
        value, parameters = found
        spec = _spec(parameters)
        if before is None:
            return Feature(parameters.dtype, value.shape, "tensorproto", quantize=spec)
        if (before.dtype, len(before.shape)) != (parameters.dtype, len(value.shape)):
            return None
        shape = tuple(m if m == n else None for m, n in zip(before.shape, value.shape, strict=True))
        if shape == before.shape and spec == before.quantize:
            return before
        return replace(before, shape=shape, quantize=spec if spec == before.quantize else None)
    except TensorbytesError:
        return None


def _spec(parameters: Quantization) -> Quantize:
    """What was asked for, as far as the parameters tell."""
    if parameters.scheme == "cast":
        return Quantize(parameters.stored)
    symmetric = parameters.zeros is None
    usual = symmetric != parameters.stored.startswith("u")
    return Quantize(parameters.stored, parameters.axis, parameters.group, None if usual else symmetric)
