"""Protocol Buffers: one tensor as one `tensorbytes.Tensor` message of spec/tensorbytes.proto.

The file is the message and nothing else, so code that protoc generates parses it in any
language. It has the fields of a TensorProto first, then those of ours:

    dtype 1, tensor_shape 2, name 1000, meta 1001, kind 1006, layout 1007, encoding 1008,
    document 1009, origin 1014, document_origin 1015, then tensor_content 4 or string_val 8

An unnamed dense tensor without metadata is byte for byte what tf.io.serialize_tensor
writes. Structures take several messages: see `delimited`. There is no checksum: damage
to the content goes unnoticed, and a message cut short is noticed because a field ends
past it. `tb` holds the same messages with checksums.

Read lazily, a dense tensor is a view of the file, and of a ragged or sparse value only the
shapes of its parts are read; strings are read whole, since their fields have to be walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import USE_TB, CorruptError, Hint, Limits
from tensorbytes.formats import Format, Options, _message, _storing, only_leaf
from tensorbytes.formats._storing import Storing
from tensorbytes.tree import Document


class Protobuf(Format):
    name = "protobuf"
    label = "protobuf message"
    words = "one protobuf message, for any language"
    suffixes = (".binpb",)
    read_by = "TensorFlow"
    holds = "one value of any kind"
    holds_one = True
    complete = True
    write_options = _storing.OPTIONS
    compressions = _storing.FEW_PIPELINES
    pipelines = True
    read_options = _storing.READ_OPTIONS

    def sniff(self, head: bytes, size: int) -> bool:
        # Without fields of ours it is a TensorProto, whose format reads it just as well.
        found = _message.look(head, 0, size)
        return found is not None and found.extended

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        storing = self._storing(document, options)
        return _message.encode(self, document, 0, None, storing)[1]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        _message.check(self, document, {}, self._storing(document, options))

    def _storing(self, document: Document, options: Options) -> Storing:
        """How the only tensor of a document is to be stored."""
        only_leaf(self, document, [Hint("format", "delimited", "for a message for each", of="save"), USE_TB])
        storing = Storing.of(options)
        storing.check_names(document)
        return storing

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        leaf, place, *_ = _message.decode(data, 0, len(data), budget, lazy, options.get("dequantize", True))
        if place.parts != 1:
            raise CorruptError(f"part {place.part} of the {place.parts} parts of an object, without the others", at=0)
        # A number in a stream says nothing outside of it.
        yield Document([leaf], place.document, origin=place.origin)


FORMAT = Protobuf()
