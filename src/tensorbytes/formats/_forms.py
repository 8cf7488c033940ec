"""Tensors in the form that they are stored in: quantized, compressed, or as they are.

Loaded when first asked for: most tensors are stored as they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tensorbytes import dtypes, quantization
from tensorbytes._wire import proto
from tensorbytes.codecs import choice, chunked
from tensorbytes.codecs.pipelines import BYTES, Pipeline, elements_of
from tensorbytes.errors import CorruptError
from tensorbytes.formats import _extension, _quantized, _stored
from tensorbytes.formats import _tensorproto as tensorproto
from tensorbytes.quantization import Quantize
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.typing import Buffer, bytes_view

AUTO = "auto"
_PACKED = "pack"


class Form(NamedTuple):
    """A tensor as it goes into a message: its stored values, fields about that, and the content if it is not theirs."""

    value: Tensor | Strings
    fields: bytes = b""
    content: list[Buffer] | None = None


def of(
    value: Tensor | Strings,
    compression: str | None,
    quantize: Quantize | None,
    name: str | None,
    choices: choice.Choices | None = None,
) -> Form:
    """The form of a tensor; `quantize` must apply to it. `choices`: what "auto" chose for others of the same file."""
    fields = b""
    if quantize is not None:
        assert isinstance(value, Tensor)
        quantized = quantization.quantize(value, quantize, name)
        fields = proto.put_bytes(_extension.QUANTIZATION, _quantized.encode(quantized.parameters))
        value = quantized.data
        # Bits that carry nothing are not stored, whatever was asked for.
        if compression is None and quantized.bits < 8 * dtypes.get(value.dtype).itemsize:
            compression = _PACKED
    if compression is None or not value.nbytes:
        return Form(value, fields)
    if isinstance(value, Tensor):
        data, elements = bytes_view(value.data), elements_of(dtypes.get(value.dtype))
    else:
        data, elements = bytes_view(tensorproto.body(value)[1]), BYTES
    pipeline = choice.choose(data, elements, choices) if compression == AUTO else Pipeline.parse(compression)
    made = None if pipeline is None else chunked.compress(data, pipeline, elements)
    if made is None or (isinstance(value, Strings) and _passes_for_strings(b"".join(made[1]), math.prod(value.shape))):
        return Form(value, fields)
    chunks, pieces = made
    return Form(value, _stored.encode(chunks, isinstance(value, Strings)) + fields, pieces)


def _passes_for_strings(content: bytes, count: int) -> bool:
    """Whether TensorFlow, which knows nothing of compression, would take it for strings: lengths, then as many bytes.

    Numbers it refuses for their size. Of strings one in a few hundred would come out as something else: it stays raw.
    """
    data, at, total = memoryview(content), 0, 0
    try:
        for _ in range(count):
            length, at = proto.read_varint(data, at, len(data))
            total += length
            if at + total > len(data):
                return False
    except CorruptError:
        return False
    return at + total == len(data)
