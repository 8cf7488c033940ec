"""Tensors whose content is not their bytes: compressed, quantized, or both. spec/frame.md, sections 9 and 10.

    compression   1012: pipeline 1, chunk 2, sizes 3 (fixed32), checksums 4 (fixed32), raw 5 (strings alone)
    quantization  1013: see _quantized.py

Compressed content is always shorter than the tensor, so that a reader of TensorProtos that skips
these fields refuses it for its size, rather than taking it for values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.codecs.chunked import Chunks
from tensorbytes.codecs.pipelines import BYTES, Elements, Pipeline, elements_of
from tensorbytes.deferred import Deferred, elsewhere, leading_block
from tensorbytes.errors import CorruptError, UsageError
from tensorbytes.formats import _extension, _quantized
from tensorbytes.formats import _tensorproto as tensorproto
from tensorbytes.quantization import Quantization, dequantize, dequantize_rows
from tensorbytes.tensor import InvalidValueError, Strings, Tensor
from tensorbytes.tree import Stored

_PIPELINE, _CHUNK, _SIZES, _CHECKSUMS, _RAW = range(1, 6)


def encode(chunks: Chunks, strings: bool) -> bytes:
    """The field `compression`."""
    message = [
        proto.put_bytes(_PIPELINE, chunks.pipeline.text.encode()),
        proto.put_number(_CHUNK, chunks.chunk),
        proto.put_bytes(_SIZES, chunks.sizes.astype("<u4").tobytes()),
        proto.put_bytes(_CHECKSUMS, chunks.checksums.astype("<u4").tobytes()),
    ]
    if strings:
        message.append(proto.put_number(_RAW, chunks.raw))
    return proto.put_bytes(_extension.COMPRESSION, b"".join(message))


def _decode(data: memoryview, field: proto.Field, elements: Elements, raw: int | None) -> Chunks:
    """The chunks that the field tells of; `raw` is the size of the tensor, None if the field has to tell it."""
    pipeline, chunk, told = "", 0, 0
    numbers = {_SIZES: np.empty(0, "<u4"), _CHECKSUMS: np.empty(0, "<u4")}
    for item in proto.fields(data, field.start, field.end):
        if item.number == _PIPELINE:
            pipeline = proto.text(data, item)
        elif item.number == _CHUNK:
            chunk = proto.number(item)
        elif item.number in numbers:
            packed = proto.delimited(data, item)
            if len(packed) % 4 or len(numbers[item.number]):
                raise CorruptError(f"{len(packed)} bytes of 4-byte numbers, or a second list of them", at=item.at)
            numbers[item.number] = np.frombuffer(packed, "<u4")
        elif item.number == _RAW and raw is None:
            told = proto.number(item)
        else:
            raise CorruptError(f"field {item.number} of a compression is unknown to this version", at=item.at)
    try:
        parsed = Pipeline.parse(pipeline)
    except UsageError as error:
        raise CorruptError(f"a compression that this version does not know: {error.fault}", at=field.at) from None
    if parsed.level is not None:
        raise CorruptError(f"a level in the compression {pipeline!r}", at=field.at)
    return Chunks(parsed, elements, told if raw is None else raw, chunk, numbers[_SIZES], numbers[_CHECKSUMS])


@dataclass(slots=True)
class Content:
    """What a record says of a tensor that is stored in another form."""

    data: memoryview
    message: tensorproto.Message
    fields: dict[int, proto.Field]  # compression, quantization
    start: int
    budget: Budget
    lazy: bool
    dequantize: bool

    def read(self) -> tuple[Tensor | Strings | Deferred, Stored]:
        """The value, or with `lazy` how to get it, and how it is stored."""
        try:
            if self.message.code == dtypes.STRING_CODE:
                return self._strings()
            return self._dense()
        except InvalidValueError as error:
            raise CorruptError(error.fault, at=self.start) from None

    def _span(self) -> tuple[int, int]:
        tensorproto.refuse_typed(self.message)
        if self.message.strings is not None or not self.message.has_content or self.message.content is None:
            raise CorruptError("compressed or quantized values that are not in tensor_content", at=self.start)
        return self.message.content

    def _chunks(self, elements: Elements, raw: int | None) -> Chunks | None:
        field = self.fields.get(_extension.COMPRESSION)
        if field is None:
            return None
        start, end = self._span()
        chunks = _decode(self.data, field, elements, raw)
        try:
            chunks.check(end - start)
        except InvalidValueError as error:
            raise CorruptError(f"a compression that does not fit: {error.fault}", at=field.at) from None
        return chunks

    def _grow(self, size: int, what: str) -> None:
        """Count what this takes in memory beyond what is there, before it is taken."""
        start, end = self._span()
        self.budget.copy(max(size - (end - start), 0), what, self.start)

    def _strings(self) -> tuple[Strings, Stored]:
        if _extension.QUANTIZATION in self.fields:
            raise CorruptError("quantized strings", at=self.start)
        chunks = self._chunks(BYTES, None)
        assert chunks is not None
        start, end = self._span()
        shape = tensorproto.check_shape(self.message.shape, 8, self.budget, self.start)
        self._grow(chunks.raw, f"string{list(shape)}")
        body = chunks.decode(self.data[start:end], start, 0, chunks.raw)
        try:
            inner = tensorproto.parse(body, 0, len(body), self.budget)
            inner.code, inner.shape = self.message.code, list(shape)
            if inner.extra or inner.has_content or inner.typed or inner.strings is None:
                raise CorruptError("something else than strings", at=0)
            count = len(inner.strings[0]) - 1
            if count != math.prod(shape):  # a TensorProto may leave out the last ones; here all are there
                raise CorruptError(f"{count} strings where {math.prod(shape)} were due", at=0)
            found = tensorproto.decode(body, inner, self.budget, 0)
        except CorruptError as error:
            raise CorruptError(f"in the strings that were compressed: {error.what}", at=start) from None
        assert isinstance(found, Strings)
        return found, Stored(chunks.pipeline.text, end - start)

    def _dense(self) -> tuple[Tensor | Deferred, Stored]:
        row = dtypes.by_code(self.message.code)
        shape = tensorproto.check_shape(self.message.shape, row.itemsize, self.budget, self.start)
        raw = dtypes.nbytes(row, shape)
        chunks = self._chunks(elements_of(row), raw)
        start, end = self._span()
        kind = None
        if (field := self.fields.get(_extension.QUANTIZATION)) is not None:
            kind = _quantized.decode(self.data, field.start, field.end, row.name, shape)
        stored = Stored("" if chunks is None else chunks.pipeline.text, end - start, kind)
        wanted = row.name if kind is None or not self.dequantize else kind.dtype
        size = math.prod(shape) * dtypes.get(wanted).itemsize
        source = _Source(
            self.data, row.name, shape, (start, end), chunks, kind if self.dequantize else None, wanted, self.budget
        )
        if chunks is None:
            source.check_size(raw)
        if self.lazy:  # what is never read needs no memory
            return Deferred("tensor", wanted, shape, source.whole, size, source.part), stored
        self._grow(size, f"{wanted}{list(shape)}")
        return source.whole(), stored


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the values of one tensor come from."""

    data: memoryview
    dtype: str
    shape: tuple[int, ...]
    span: tuple[int, int]
    chunks: Chunks | None
    kind: Quantization | None  # set: the way back is wanted
    wanted: str  # the dtype that comes out
    budget: Budget

    def check_size(self, raw: int) -> None:
        start, end = self.span
        if end - start != raw:
            raise CorruptError(
                f"{self.dtype}{list(self.shape)} takes {raw} bytes, tensor_content has {end - start}", at=start
            )

    def _elements(self, first: int, shape: tuple[int, ...]) -> Tensor:
        """A block of stored elements from number `first` on."""
        width = dtypes.get(self.dtype).itemsize
        start, stop = first * width, (first + math.prod(shape)) * width
        begin, end = self.span
        size = math.prod(shape) * dtypes.get(self.wanted).itemsize
        self.budget.renewed(end - begin).copy(size, f"{self.wanted}{list(shape)}", begin)
        content = self.data[begin:end]
        block = content[start:stop] if self.chunks is None else self.chunks.decode(content, begin, start, stop)
        tensor = Tensor(self.dtype, shape, block)
        tensorproto.check_bits(tensor, None, begin)
        return tensor

    def whole(self) -> Tensor:
        stored = self._elements(0, self.shape)
        return stored if self.kind is None else self._back(lambda kind: dequantize(stored, kind))

    def part(self, index: Any) -> Tensor:
        """A slice: of the file, only the chunks are read that its leading axes ask for."""
        block = leading_block(self.shape, index, whole_rows=self.kind is not None)
        tensor = self._elements(block.first, block.shape)
        if self.kind is not None:
            row = block.first // max(math.prod(self.shape[1:]), 1) if self.shape else 0
            tensor = self._back(lambda kind: dequantize_rows(tensor, kind, row))
        width = dtypes.get(tensor.dtype).itemsize
        elements = np.frombuffer(tensor.data, f"V{width}").reshape(block.shape)
        picked = elsewhere(tensor.dtype, elements).part
        assert picked is not None
        found = picked(block.rest)
        assert isinstance(found, Tensor)
        return found

    def _back(self, way: Callable[[Quantization], Tensor]) -> Tensor:
        assert self.kind is not None
        try:
            return way(self.kind)
        except InvalidValueError as error:
            raise CorruptError(f"values that can't be had back: {error.fault}", at=self.span[0]) from None
