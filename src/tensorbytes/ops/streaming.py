"""Objects of streams on their way into another file, as split and merge move them."""

from __future__ import annotations

from tensorbytes import formats
from tensorbytes.errors import Hint, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.formats._opened import Opened
from tensorbytes.formats._storing import Storing
from tensorbytes.io.storage import naming
from tensorbytes.tree import Document, check_unread


def check_streams(format: str, options: Options) -> Format:
    """The format, if it holds a stream of objects and takes these options."""
    chosen = formats.get(format)
    if not chosen.streams:
        raise UsageError(
            f"format {format!r} holds no stream of objects",
            hints=[
                Hint(purpose="use .tb or .pbs"),
                Hint(operation="convert", arguments=("src", "dst"), purpose="makes one of the result"),
            ],
        )
    chosen.check_create(options)
    return chosen


def verify_document(source: Opened, document: Document) -> Document:
    """The document, once what lazy decoding left unread was verified."""
    with naming(source.path):
        return check_unread(document)


def storage_changes(document: Document, options: Options) -> list[str]:
    """What to say of tensors that were stored in a way which is not kept."""
    if Storing.of(options).changes or all(leaf.stored is None for leaf in document.leaves):
        return []
    return ["tensors that were compressed or quantized are stored plainly: pass compression= to pack them again"]
