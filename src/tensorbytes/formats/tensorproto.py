"""TensorProto: exactly the bytes of tf.io.serialize_tensor, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorbytes import dtypes
from tensorbytes.errors import Limits, LossError
from tensorbytes.formats import Format, Options, _record, _tensorproto, only_value
from tensorbytes.tensor import Ragged, Sparse
from tensorbytes.tree import Document

# No protobuf runtime reads a message of 2 GiB or more.
_MAX_BYTES = (1 << 31) - 1


class TensorProto(Format):
    name = "tensorproto"
    suffixes = (".tensorproto", ".pb")

    def sniff(self, head: bytes, size: int) -> bool:
        # dtype, a known one, then a shape that fits: what serialize_tensor writes first
        return len(head) >= 4 and head[0] == 0x08 and (head[1] in dtypes.BY_CODE or head[1] == 7) and head[2] == 0x12

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        value = only_value(self, document, allow)
        if isinstance(value, Ragged | Sparse):
            kind = type(value).__name__.lower()
            hint = "'sparseproto' or 'tb'" if kind == "sparse" else "'tb'"
            raise LossError(f"format 'tensorproto' can't hold a {kind} value; use {hint}", feature=kind)
        code = _tensorproto.code_of(value)
        if code >= 1000:
            raise LossError(f"TensorFlow has no dtype {value.dtype}; use 'tb'", feature="dtype")  # type: ignore[union-attr]
        tag, content = _tensorproto.body(value)
        header = _tensorproto.head(code, value.shape) + tag
        if len(header) + len(content) > _MAX_BYTES:
            raise LossError(
                f"a TensorProto of {len(header) + len(content)} bytes: protobuf ends at 2 GiB; use 'tb'", feature="size"
            )
        return [header, content]

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        record = _record.decode(data, 0, len(data), limits, check_values=not lazy)
        yield Document([record.leaf])


FORMAT = TensorProto()
