"""Finding out what a file is, and how it is decoded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorbytes import formats, storage
from tensorbytes.errors import CorruptError, Hint, Limits, UsageError
from tensorbytes.formats import SNIFF_BYTES, Format, Options
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer

_CHECKPOINT_DATA = re.compile(r"(.*)[.]data-[0-9]{5}-of-[0-9]{5}", re.DOTALL)
# What np.savez() writes of no arrays, too: the name tells which it is.
_EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
READ_RECORDS = Hint(operation="open_records", arguments=("path",), purpose="reads them")


class Found(NamedTuple):
    """A format, and the bytes it shall decode; None for a path that it reads by itself."""

    chosen: Format
    data: memoryview | None

    @property
    def size(self) -> int:
        return 0 if self.data is None else len(self.data)

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
        from tensorbytes import foreign

        what, hints = foreign.about_folder(path)
        raise UsageError(what, path=path, hints=hints)
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
    """Raise if a file holds no tensors, and say what it is. `format` is what it was taken for."""
    from tensorbytes import foreign  # its patterns take a moment to compile

    found = foreign.about_file(head, format)
    if found is not None:
        raise UsageError(found.what, path=path, hints=found.hints)


def holds_examples(head: Buffer) -> bool:
    """Whether a TFRecord file that starts like this has Examples in it: a TensorProto starts with its dtype."""
    return formats.get("tb").sniff(bytes(head[:12]), len(head)) and bytes(head[12:13]) == b"\x0a"


def recognise(data: Buffer, size: int, path: str) -> str:
    """The format of `size` bytes that start like `data`."""
    if not size:
        if os.path.splitext(path)[1].lower() in ("", ".tb"):
            raise CorruptError(
                "no bytes at all",
                at=0,
                path=path,
                hints=[Hint(operation="open", arguments=("path",), purpose="reads it as an empty stream")],
            )
        raise CorruptError("an empty file", at=0, path=path)
    if holds_examples(data):
        raise UsageError("records of Examples rather than of tensors", path=path, hints=[READ_RECORDS])
    head = bytes(data[:SNIFF_BYTES])
    found = formats.sniff(head, size)
    if found == "npz" and size == len(_EMPTY_ZIP) and path.lower().endswith(".zip"):
        raise UsageError("an empty zip archive: there is nothing in it", path=path)
    if found is not None:
        return found
    found = formats.by_suffix(path)
    refuse_wrong(head, path, found)
    if found is None and (data_of := _CHECKPOINT_DATA.fullmatch(path)):
        name = os.path.basename(data_of[1])
        raise UsageError(
            "the data of a TensorFlow checkpoint, without its names",
            path=path,
            hints=[Hint(purpose=f"pass {name} or {name}.index")],
        )
    if found is None:
        raise UsageError(
            f"can't tell the format from its first bytes ({bytes(data[:8]).hex(' ')})",
            path=path,
            hints=[Hint("format", choices=tuple(formats.BUILTIN), of="load")],
        )
    return found
