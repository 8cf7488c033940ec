"""TensorProto: exactly the bytes of tf.io.serialize_tensor, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import USE_TB, Hint, Limits, LossError
from tensorbytes.formats import Format, Options, _message, _tensorproto, only_value
from tensorbytes.tensor import Ragged, Sparse
from tensorbytes.tree import Document


class TensorProto(Format):
    name = "tensorproto"
    words = "exactly the bytes of tf.io.serialize_tensor"
    suffixes = (".tensorproto",)

    def sniff(self, head: bytes, size: int) -> bool:
        return _message.look(head, 0, size) is not None

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        value = only_value(self, document, allow)
        if isinstance(value, Ragged | Sparse):
            kind = type(value).__name__.lower()
            hints = [Hint("format", "sparseproto", of="save"), USE_TB] if kind == "sparse" else [USE_TB]
            raise LossError(f"format 'tensorproto' can't hold a {kind} value", feature=kind, hints=hints)
        code = _tensorproto.code_of(value)
        if code >= 1000:
            raise LossError(f"TensorFlow has no dtype {value.dtype}", feature="dtype", hints=[USE_TB])  # type: ignore[union-attr]
        tag, content = _tensorproto.body(value)
        header = _tensorproto.head(code, value.shape) + tag
        if len(header) + len(content) > _message.MAX_BYTES:
            raise LossError(
                f"a TensorProto of {len(header) + len(content)} bytes: protobuf ends at 2 GiB",
                feature="size",
                hints=[USE_TB],
            )
        return [header, content]

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        yield _message.alone(data, budget, lazy)


FORMAT = TensorProto()
