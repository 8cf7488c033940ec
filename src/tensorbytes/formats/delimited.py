"""Size-delimited Protocol Buffers: any structure, or a stream of them, as one message for each tensor.

    varint      length of the message
    message     a `tensorbytes.Tensor` of spec/tensorbytes.proto
    ...         the same again, up to the end of the file

This is the framing of writeDelimitedTo and parseDelimitedFrom (Java, C++'s delimited
message util) and of google.protobuf.proto.serialize_length_prefixed (Python), so code
that protoc generates reads a file message by message, from a pipe as well. The fields
`path`, `part`, `parts` and `item` say which messages make an object; a file that was cut
between two messages of an object is noticed. There is no checksum: damage to content
goes unnoticed. `tb` holds the same messages with checksums.

Files that are concatenated hold the objects of both. The suffix is .pbs. Read lazily, a file
costs a look at the first fields of each message; see `protobuf` for what is left unread.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorbytes._wire import proto, varint
from tensorbytes.budget import Budget
from tensorbytes.errors import MORE_TENSORS, CorruptError, LimitError, Limits
from tensorbytes.formats import Format, Options, _message, _storing, frame
from tensorbytes.formats._record import Record
from tensorbytes.formats._storing import Storing
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer

# What may follow the shape: values, or the first field of ours.
_SECOND = {0, *range(3, 19), *range(1000, 1018)}


class Delimited(Format):
    name = "delimited"
    label = "protobuf messages"
    words = "protobuf messages, each after its length"
    suffixes = (".pbs",)
    read_by = "protobuf"
    holds = "everything"
    streams = True
    complete = ties = True
    write_options = _storing.OPTIONS
    compressions = _storing.FEW_PIPELINES
    pipelines = True
    read_options = _storing.READ_OPTIONS

    def sniff(self, head: bytes, size: int) -> bool:
        # There is no magic: a length that fits, and a message that starts as every writer's does.
        try:
            length, start = proto.read_length(memoryview(head), 0, len(head))
        except CorruptError:
            return False
        found = _message.look(head, start, start + length) if length <= size - start else None
        return found is not None and found.number in _SECOND

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterator[Buffer]:
        storing, aliases = self._prepared(document, options)
        found = [
            _message.encode(self, document, part, aliases.get(part), storing) for part in range(len(document.leaves))
        ]
        return (piece for size, pieces in found for piece in (varint(size), *pieces))

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        storing, aliases = self._prepared(document, options)
        _message.check(self, document, aliases, storing)

    def _prepared(self, document: Document, options: Options) -> tuple[Storing, dict[int, int]]:
        """How the tensors of a document are to be stored, and which of them are the same as an earlier one."""
        storing = Storing.of(options)
        storing.check_names(document)
        frame.check_rows(document)
        return storing, frame.aliases_of(document.leaves, storing)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        found = _records(data, Budget(limits, len(data)), lazy, options.get("dequantize", True))
        return frame.assemble(found, limits, len(data), directories=False)


def _records(data: memoryview, budget: Budget, lazy: bool, dequantize: bool) -> Iterator[tuple[Record, int, int]]:
    for number, (start, end) in enumerate(spans(data)):
        if number >= budget.max_tensors:
            raise LimitError(f"over {budget.max_tensors} tensors", hints=[MORE_TENSORS])
        record = _message.decode(data, start, end, budget, lazy, dequantize)
        yield record, start, end


def spans(data: memoryview) -> Iterator[tuple[int, int]]:
    """(start, end) of every message; raises at the first that is not whole."""
    at = 0
    while at < len(data):
        try:
            size, start = proto.read_length(data, at, len(data))
        except CorruptError as error:
            raise CorruptError(f"the length of a message: {error.what}", at=at) from None
        if size > len(data) - start:
            raise CorruptError(f"a message claims {size} bytes where {len(data) - start} are left", at=at)
        if not size:
            raise CorruptError("a message of no bytes, which is not a tensor", at=at)
        at = start + size
        yield start, at


FORMAT = Delimited()
