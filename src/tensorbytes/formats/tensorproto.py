"""TensorProto: exactly the bytes of tf.io.serialize_tensor, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import USE_TB, Hint, Limits, LossError
from tensorbytes.formats import Format, Options, _message, _tensorproto, only_value
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.tree import Document


class TensorProto(Format):
    name = "tensorproto"
    label = "TensorProto"
    words = "exactly the bytes of tf.io.serialize_tensor"
    suffixes = (".tensorproto",)
    read_by = "TensorFlow"
    holds = "one dense or string tensor"
    holds_one = True
    nameless = True

    def sniff(self, head: bytes, size: int) -> bool:
        return _message.look(head, 0, size) is not None

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        value, code = self._held(document, allow)
        tag, content = _tensorproto.body(value)
        return [_tensorproto.head(code, value.shape) + tag, content]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        self._held(document, allow)

    def _held(self, document: Document, allow: frozenset[str]) -> tuple[Tensor | Strings, int]:
        """The tensor, and TensorFlow's number for its dtype."""
        value = only_value(self, document, allow)
        if isinstance(value, Ragged | Sparse):
            kind = type(value).__name__.lower()
            hints = [Hint("format", "sparseproto", of="save"), USE_TB] if kind == "sparse" else [USE_TB]
            raise LossError(f"format 'tensorproto' can't hold a {kind} value", feature=kind, hints=hints)
        code = _tensorproto.code_of(value)
        if code >= 1000:
            raise LossError(f"TensorFlow has no dtype {value.dtype}", feature="dtype", hints=[USE_TB])  # type: ignore[union-attr]
        size = len(_tensorproto.head(code, value.shape)) + _tensorproto.body_size(value)
        if size > _message.MAX_BYTES:
            raise LossError(f"a TensorProto of {size} bytes: protobuf ends at 2 GiB", feature="size", hints=[USE_TB])
        return value, code

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        yield _message.alone(data, budget, lazy)


FORMAT = TensorProto()
