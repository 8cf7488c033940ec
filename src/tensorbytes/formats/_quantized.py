"""The parameters of a quantized tensor as a protobuf message, field 1013 of a record.

    scheme 1 string, dtype 2 (code of the original dtype), axis 3, group 4, scales 5, zeros 6,
    max_error 7 double, mean_error 8 double, snr 9 double

Scales are float64 if the original dtype is, else float32; zeros are int32; both little-endian,
one after another. The stored dtype and the shape are the TensorProto's own. Fields come in
the order of their numbers, and absent means 0 or none, so the bytes are those of any
protobuf library. spec/frame.md is the normative text.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto
from tensorbytes.errors import CorruptError, UnsupportedError
from tensorbytes.quantization import Quantization
from tensorbytes.quantization.parameters import arithmetic
from tensorbytes.tensor import Array, InvalidValueError

_SCHEME, _DTYPE, _AXIS, _GROUP, _SCALES, _ZEROS = range(1, 7)
_ERRORS = {7: "max_error", 8: "mean_error", 9: "snr"}
# The fields that hold measured numbers: in tensors quantized alike, only these differ.
NUMBERS = {_SCALES: "scales", _ZEROS: "zeros", **_ERRORS}
NUMBER_OF = {name: number for number, name in NUMBERS.items()}


def encode(parameters: Quantization) -> bytes:
    """The message."""
    out = [
        proto.put_bytes(_SCHEME, parameters.scheme.encode()),
        proto.put_number(_DTYPE, dtypes.get(parameters.dtype).code),
    ]
    if parameters.axis is not None:
        out.append(proto.put_number(_AXIS, parameters.axis))
    if parameters.group is not None:
        out.append(proto.put_number(_GROUP, parameters.group))
    for number, part in ((_SCALES, parameters.scales), (_ZEROS, parameters.zeros)):
        if part is not None and part.size:
            out.append(proto.put_bytes(number, part.tobytes()))
    for number, name in _ERRORS.items():
        if value := getattr(parameters, name):
            out.append(proto.tag(number, proto.FIXED64) + struct.pack("<d", value))
    return b"".join(out)


def decode(data: memoryview, start: int, end: int, stored: str, shape: tuple[int, ...]) -> Quantization:
    """The parameters in data[start:end], of a tensor of this stored dtype and shape. Nothing is copied."""
    found: dict[str, Any] = {"scheme": "", "snr": 0.0}
    raw: dict[int, memoryview] = {}
    for item in proto.fields(data, start, end):
        if item.number == _SCHEME:
            found["scheme"] = proto.text(data, item)
        elif item.number == _DTYPE:
            found["dtype"] = _dtype(item)
        elif item.number in (_AXIS, _GROUP):
            found["axis" if item.number == _AXIS else "group"] = proto.number(item)
        elif item.number in (_SCALES, _ZEROS):
            raw[item.number] = proto.delimited(data, item)
        elif item.number in _ERRORS:
            found[_ERRORS[item.number]] = _double(data, item)
        else:
            raise CorruptError(f"field {item.number} of a quantization is unknown to this version", at=item.at)
    if "dtype" not in found:
        raise CorruptError("a quantization that does not say what it was made of", at=start)
    try:
        return _built(found, raw, stored, shape)
    except InvalidValueError as error:
        raise CorruptError(f"a quantization that does not fit: {error.fault}", at=start) from None


def _built(found: dict[str, Any], raw: dict[int, memoryview], stored: str, shape: tuple[int, ...]) -> Quantization:
    if found["scheme"] == "affine":
        # A tensor without scales, since an axis is 0, may well have no zeros either: nothing tells, or matters.
        found["scales"] = _numbers(raw.pop(_SCALES, None), arithmetic(found["dtype"]), "scales")
    if _ZEROS in raw:
        found["zeros"] = _numbers(raw.pop(_ZEROS), np.dtype("<i4"), "zeros")
    if raw:
        raise InvalidValueError("scales where there should be none")
    parameters = Quantization(stored=stored, **found)
    parameters.check_shape(shape)
    return parameters


def _dtype(item: proto.Field) -> str:
    try:
        return dtypes.by_code(proto.number(item)).name
    except UnsupportedError as error:
        raise CorruptError(f"quantized from an {error.fault}", at=item.at) from None


def _double(data: memoryview, item: proto.Field) -> float:
    if item.wire != proto.FIXED64:
        raise CorruptError(f"field {item.number} has the wire type {item.wire}, expected 1", at=item.at)
    value: float = struct.unpack_from("<d", data, item.start)[0]
    return value


def _numbers(raw: memoryview | None, dtype: np.dtype[Any], what: str) -> Array:
    raw = raw if raw is not None else memoryview(b"")
    if len(raw) % dtype.itemsize:
        raise InvalidValueError(f"{what} in {len(raw)} bytes, {dtype.itemsize} each")
    return np.frombuffer(raw, dtype)
