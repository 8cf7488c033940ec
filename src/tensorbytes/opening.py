"""Finding out what a file is, and how it is decoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorbytes import formats, storage
from tensorbytes.errors import CorruptError, Limits, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer

SNIFF_BYTES = 4096


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
    return Found(formats.get(format or recognise(data, len(data), path)), data)


def mapped(target: Any, format: str | None) -> Found:
    """The format of a target that shall be read lazily: a local file is mapped. An empty file is an empty stream."""
    found = claimed(target, format)
    if found is not None:
        return found
    data = storage.map_file(target) if storage.is_local(target) else storage.read(target)
    return of_bytes(data, storage.describe(target), format or (None if len(data) else "tb"))


def holds_examples(head: Buffer) -> bool:
    """Whether a TFRecord file that starts like this has Examples in it: a TensorProto starts with its dtype."""
    return formats.get("tb").sniff(bytes(head[:12]), len(head)) and bytes(head[12:13]) == b"\x0a"


def recognise(data: Buffer, size: int, path: str) -> str:
    """The format of `size` bytes that start like `data`."""
    if not size:
        raise CorruptError("no bytes at all (an empty stream: iterate over open(path) instead)", at=0, path=path)
    if holds_examples(data):
        raise UsageError(f"{path}: records of Examples rather than of tensors; open_records(path) reads them")
    found = formats.sniff(bytes(data[:SNIFF_BYTES]), size) or formats.by_suffix(path)
    if found is None:
        raise UsageError(
            f"{path}: can't tell the format from its first bytes ({bytes(data[:8]).hex(' ')}); "
            f"pass format=, one of {', '.join(formats.BUILTIN)}"
        )
    return found
