"""The formats: each module turns documents into bytes and back.

A format is one file here and one row in BUILTIN. Its module has an object FORMAT
that fills in the class `Format` below; see CONTRIBUTING.md.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tensorbytes import storage
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    USE_TB,
    Hint,
    Limits,
    LossError,
    MissingDependencyError,
    UsageError,
    nearest,
    unknown,
)
from tensorbytes.storage import Target
from tensorbytes.tensor import Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, path_name
from tensorbytes.typing import Buffer

# name -> (module, the extra that installs what it needs); sniffing asks in this order
BUILTIN: dict[str, tuple[str, str]] = {
    "tb": ("tensorbytes.formats.frame", ""),
    "safetensors": ("tensorbytes.formats.safetensors", ""),
    "npy": ("tensorbytes.formats.npy", ""),
    "torchfile": ("tensorbytes.formats.torchfile", ""),
    "npz": ("tensorbytes.formats.npz", ""),
    "arrow": ("tensorbytes.formats.arrow", "arrow"),
    "arrowtensor": ("tensorbytes.formats.arrowtensor", ""),
    "parquet": ("tensorbytes.formats.parquet", "arrow"),
    "gguf": ("tensorbytes.formats.gguf", ""),
    "onnx": ("tensorbytes.formats.onnx", ""),
    "sparseproto": ("tensorbytes.formats.sparseproto", ""),
    "protobuf": ("tensorbytes.formats.protobuf", ""),
    "tensorproto": ("tensorbytes.formats.tensorproto", ""),
    "checkpoint": ("tensorbytes.formats.checkpoint", ""),
    "delimited": ("tensorbytes.formats.delimited", ""),
    "raw": ("tensorbytes.formats.raw", ""),
}

# How much of a file `sniff` gets to see.
SNIFF_BYTES = 4096

Options: TypeAlias = Mapping[str, Any]
# Files that point to others: their format wants their path.
_INDEXES = (".index", ".json", ".onnx", ".pb")

# Of a value's origin, what describes how it was held rather than what it is: dropping it loses nothing.
ADVISORY = frozenset({"framework", "memory_format", "type"})
# The same of a whole structure: the versions of a state_dict's modules.
ADVISORY_OF_THE_WHOLE = frozenset({"torch._metadata"})


class Salvaged(NamedTuple):
    """What is whole of a file that was cut off: lazily decoded, not checked yet; the names of the rest, where known."""

    document: Document
    lost: list[str]
    options: Options = MappingProxyType({})  # to write it with


class Format:
    """What every format provides.

    `allow` names the losses that the caller accepts; `options` are keyword arguments of
    the format's own, from `write_options` or `read_options`.
    """

    name: ClassVar[str]
    words: ClassVar[str]  # what it is, in a line of a table
    suffixes: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[bool] = True  # False: for reading alone
    streams: ClassVar[bool] = False  # True: documents, encoded with item numbers, may follow one another
    several_files: ClassVar[bool] = False  # True: saved and loaded by path, never as bytes
    complete: ClassVar[bool] = False  # True: holds whatever the native frame holds, metadata included
    write_options: ClassVar[frozenset[str]] = frozenset()
    read_options: ClassVar[frozenset[str]] = frozenset()

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether a file of this size that starts with these bytes is likely of this format."""
        return False

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterable[Buffer]:
        """The bytes of a document, piece by piece: never one big join. Losses are raised before the first piece."""
        raise NotImplementedError

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        """Raise the losses that writing would raise, without writing; formats of several files say so themselves."""
        if not self.several_files:
            next(iter(self.encode(document, allow, options)), None)

    def dumps(self, document: Document, allow: frozenset[str], options: Options) -> bytes:
        return b"".join(self.encode(document, allow, options))

    def pieces(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        """The same as `dumps` in pieces, all of them at once."""
        return list(self.encode(document, allow, options))

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        """The documents in some bytes, as views of them. `lazy` reads no content."""
        raise NotImplementedError

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        """Save a document; formats of several files do so in their own way."""
        storage.write(target, self.encode(document, allow, options), sync=sync)

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document] | None:
        """The documents of a large open file, verified, for formats that read one better than as a whole."""
        return None

    def salvage(self, data: memoryview, limits: Limits) -> Salvaged | None:
        """What is whole of bytes that end too early, for formats that tell where each tensor is."""
        return None

    def claims(self, path: str) -> bool:
        """Whether a local path is one of this format that bytes alone can't be: a folder, an index, a prefix."""
        return False

    def decode_path(self, path: str, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        """The documents at a path that this format claims. `lazy` maps files rather than reading them."""
        raise NotImplementedError


@cache  # asked several times by each call
def get(name: str) -> Format:
    """The format of this name."""
    if name not in BUILTIN:
        raise unknown("format", name, BUILTIN)
    module, extra = BUILTIN[name]
    try:
        found: Format = importlib.import_module(module).FORMAT
    except ModuleNotFoundError as error:
        if not extra:
            raise
        raise MissingDependencyError(f"format {name!r}", extra) from error
    return found


def writable() -> list[str]:
    """The formats that are written here."""
    return [name for name in BUILTIN if get(name).writes]


def by_suffix(path: str) -> str | None:
    """The format that a file name asks for."""
    for name in BUILTIN:
        if path.lower().endswith(get(name).suffixes):
            return name
    return None


def by_path(path: str) -> str | None:
    """The format that claims a local path as a whole."""
    if os.path.isfile(path) and not path.endswith(_INDEXES):
        return None
    return next((name for name in BUILTIN if get(name).claims(path)), None)


def sniff(head: bytes, size: int) -> str | None:
    """The format that the first bytes look like."""
    for name in BUILTIN:
        if get(name).sniff(head, size):
            return name
    return None


def check_options(chosen: Format, options: Options, known: frozenset[str]) -> None:
    wrong = sorted(set(options) - known)
    if wrong:
        have = ", ".join(sorted(known)) or "none"
        hint = nearest(wrong[0], known)
        raise UsageError(f"format {chosen.name!r} has no option {wrong[0]!r} here; its options: {have}{hint}")


def only_value(chosen: Format, document: Document, allow: frozenset[str]) -> Value:
    """The single tensor of a document, for formats that hold one; anything else is a loss."""
    leaves = document.leaves
    if len(leaves) != 1 or leaves[0].path:
        names = ", ".join(str(path_name(leaf.path)) for leaf in leaves[:3])
        raise LossError(
            f"format {chosen.name!r} holds one tensor, not a structure of {len(leaves)} (such as {names})",
            feature="structure",
            hints=[Hint(purpose="save them one by one"), USE_TB],
        )
    return bare_value(chosen, leaves[0], allow)


def check_plain(document: Document) -> None:
    """Refuse a table, for formats that hold documents alone; tree.plain makes one of it."""
    if document.rows is not None:
        raise LossError("this format holds documents, not tables of rows with masks", feature="rows", hints=[USE_TB])


def check_document(chosen: Format, document: Document, allow: frozenset[str]) -> None:
    """Refuse to drop metadata of a whole structure, for formats without a place for it."""
    told = told_of_the_whole(document)
    if told and "meta" not in allow:
        key = min(told)
        raise LossError(
            f"format {chosen.name!r} can't hold metadata of the whole, such as {key}={told[key]!r}",
            feature="meta",
            hints=[Hint("allow", {"meta"}, "to drop it"), USE_TB],
        )


def told(value: Value | Deferred) -> dict[str, str]:
    """What would be lost of a value without its metadata: all that users gave it, and what of its origin matters."""
    return {key: text for key, text in value.origin.items() if key not in ADVISORY} | dict(value.meta)


def told_of_the_whole(document: Document) -> dict[str, str]:
    """The same of a whole structure."""
    own = {key: text for key, text in document.origin.items() if key not in ADVISORY_OF_THE_WHOLE}
    return own | dict(document.meta)


def bare_value(chosen: Format, leaf: Leaf, allow: frozenset[str]) -> Value:
    """A leaf's value for a format without names or metadata, once nothing is lost in silence."""
    value = leaf.whole
    metadata = told(value)
    losses = {key: f"metadata {key}={text!r}" for key, text in metadata.items()}
    if value.name is not None:
        losses["name"] = f"the name {value.name!r}"
    if leaf.kind not in ("", "numpy"):
        losses["kind"] = f"that the value is a Python {leaf.kind}"
    if isinstance(value, Strings) and value.encoding != "bytes":
        losses["encoding"] = "that the strings are text; they would come back as bytes"
    for feature, what in losses.items():
        if feature not in allow and not (feature in metadata and "meta" in allow):
            raise LossError(
                f"format {chosen.name!r} can't hold {what}",
                feature=feature,
                hints=[Hint("allow", {feature}, "to drop it"), USE_TB],
            )
    return value


def dense(chosen: Format, value: Value) -> Tensor:
    """A dense tensor, for formats that hold nothing else."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__.lower()
        raise LossError(f"format {chosen.name!r} holds dense tensors only, not {kind}", feature=kind, hints=[USE_TB])
    return value
