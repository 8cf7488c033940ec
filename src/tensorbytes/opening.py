"""Finding out what a file is, and how it is decoded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorbytes import formats, storage
from tensorbytes.errors import CorruptError, Limits, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer

SNIFF_BYTES = 4096


class Wrong(NamedTuple):
    """A kind of file that is often taken for one of tensors."""

    start: re.Pattern[bytes]
    words: str
    may_be: tuple[str, ...] = ()  # the formats whose files may start like this all the same


def _starts(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL | re.IGNORECASE)


_TEXT = rb"(?:\xef\xbb\xbf)?\s*"
# Asked when no format recognises the first bytes.
WRONG_FILES = (
    Wrong(_starts(_TEXT + rb"<(?:!doctype|html)\b"), "an HTML page, not tensors: a failed download?"),
    Wrong(_starts(_TEXT + rb"<[?]xml\b"), "XML, not tensors: a failed download?"),
    Wrong(
        re.compile(rb"version https://git-lfs"),
        "a git-LFS pointer, not the file itself: run `git lfs pull`",
    ),
    Wrong(_starts(_TEXT + rb'[{]\s*"'), "JSON, not tensors: an error message, or the index of other files?", ("raw",)),
    Wrong(
        re.compile(rb"\x1f\x8b\x08"),
        "gzip-compressed: decompress it first (open_records(path) reads compressed records as they are)",
        ("raw",),
    ),
    Wrong(re.compile(rb"\x28\xb5\x2f\xfd"), "zstd-compressed: decompress it first", ("raw",)),
    Wrong(re.compile(rb"\x89HDF\r\n\x1a\n"), "HDF5, which is not read here: read it with h5py", ("raw",)),
    # All opcodes are from "(" on; other files may start with a length of these bytes, and zeros.
    Wrong(
        re.compile(rb"\x80[\x02-\x05][\x28-\xff]"),
        "a pickle, which is never read here: loading one can run any code in it; "
        "load it where you trust it, and save its tensors",
        ("raw", "torchfile"),
    ),
    Wrong(re.compile(rb"\x89PNG\r\n\x1a\n"), "a PNG image, which is not read here", ("raw",)),
    Wrong(re.compile(rb"%PDF-"), "a PDF document, not tensors", ("raw",)),
    Wrong(re.compile(rb"\x7fELF"), "a program or a library (ELF), not tensors", ("raw",)),
    Wrong(
        re.compile(rb"PK\x03\x04"),
        "a zip archive, and neither npz nor one of torch.save: unpack it first",
        ("raw", "npz", "torchfile"),
    ),
)


class Found(NamedTuple):
    """A format, and the bytes it shall decode; None for a path that it reads by itself."""

    chosen: Format
    data: memoryview | None

    def decoder(self, path: str, limits: Limits, options: Options) -> Callable[[bool], Iterator[Document]]:
        """Decodes, lazily or not, as often as it is called."""
        chosen, data = self
        formats.check_options(chosen, options, chosen.read_options)
        if data is None:
            return lambda lazy: chosen.decode_path(path, limits, lazy, options)
        return lambda lazy: chosen.decode(data, limits, lazy, options)


def claimed(target: Any, format: str | None) -> Found | None:
    """The format of a target, if it wants a path rather than bytes."""
    if not storage.is_local(target):
        return None
    path = os.fspath(target)
    name = format or formats.by_path(path)
    if name is not None and formats.get(name).claims(path):
        return Found(formats.get(name), None)
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder, and none that a format knows: pass a file in it")
    return None


def of_bytes(data: memoryview, path: str, format: str | None) -> Found:
    """The format of some bytes; the path's suffix decides what they leave open."""
    return Found(choose(data, len(data), path, format), data)


def mapped(target: Any, format: str | None) -> Found:
    """The format of a target that shall be read lazily: a local file is mapped. An empty file is an empty stream."""
    found = claimed(target, format)
    if found is not None:
        return found
    data = storage.map_file(target) if storage.is_local(target) else storage.read(target)
    path = storage.describe(target)
    if not len(data) and formats.by_suffix(path) in (None, "tb"):
        format = format or "tb"
    return of_bytes(data, path, format)


def choose(data: Buffer, size: int, path: str, format: str | None) -> Format:
    """The format of `size` bytes that start like `data`: the given one, unless they are surely something else."""
    if format is None:
        return formats.get(recognise(data, size, path))
    chosen = formats.get(format)
    if format != "raw":  # any bytes are raw bytes
        head = bytes(data[:SNIFF_BYTES])
        if not chosen.sniff(head, size):
            refuse_wrong(head, path, format)
    return chosen


def refuse_wrong(head: bytes, path: str, format: str | None) -> None:
    """Name a file that is none of tensors. `format` is what it was taken for."""
    for wrong in WRONG_FILES:
        if format not in wrong.may_be and wrong.start.match(head):
            raise UsageError(f"{path}: {wrong.words}")


def holds_examples(head: Buffer) -> bool:
    """Whether a TFRecord file that starts like this has Examples in it: a TensorProto starts with its dtype."""
    return formats.get("tb").sniff(bytes(head[:12]), len(head)) and bytes(head[12:13]) == b"\x0a"


def recognise(data: Buffer, size: int, path: str) -> str:
    """The format of `size` bytes that start like `data`."""
    if not size:
        if os.path.splitext(path)[1].lower() in ("", ".tb"):
            raise CorruptError("no bytes at all (an empty stream: iterate over open(path) instead)", at=0, path=path)
        raise CorruptError("an empty file", at=0, path=path)
    if holds_examples(data):
        raise UsageError(f"{path}: records of Examples rather than of tensors; open_records(path) reads them")
    head = bytes(data[:SNIFF_BYTES])
    found = formats.sniff(head, size)
    if found is not None:
        return found
    found = formats.by_suffix(path)
    refuse_wrong(head, path, found)
    if found is None:
        raise UsageError(
            f"{path}: can't tell the format from its first bytes ({bytes(data[:8]).hex(' ')}); "
            f"pass format=, one of {', '.join(formats.BUILTIN)}"
        )
    return found
