"""inspect: what is in a file of any format, without reading its data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tensorbytes import storage
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LIMITS, Limits
from tensorbytes.reader import Entry
from tensorbytes.records.files.detection import detect
from tensorbytes.tools.report import many
from tensorbytes.tools.sources import Documents, Records, open_source
from tensorbytes.tree import Leaf

# A stream may hold millions of tensors: the first ones show what it is like.
_MOST_LISTED = 10_000
_MOST_SHOWN = 60


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file, or one feature of its records. None in the shape is a size that varies."""

    name: str | None
    kind: str  # tensor, strings, ragged, sparse, feature, feature list
    dtype: str
    shape: tuple[int | None, ...]
    nbytes: int | None = None  # in memory
    meta: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    stored: str = ""  # how it is compressed and quantized
    stored_nbytes: int | None = None  # what that takes, where it is not nbytes


@dataclass
class Inspection:
    """The result of `inspect`."""

    path: str
    format: str
    size: int | None  # bytes on disk
    tensors: list[TensorInfo]
    objects: int | None = 1  # documents of a stream, or records; None where counting would read everything
    meta: Mapping[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    schema: Any = None  # of TFRecord files
    files: list[str] = field(default_factory=list)
    listed_all: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        schema = None if self.schema is None else self.schema.to_json()
        plain = {key: value for key, value in vars(self).items() if key not in ("tensors", "schema")}
        return plain | {"tensors": [asdict(tensor) for tensor in self.tensors], "schema": schema}

    def __str__(self) -> str:
        size = "" if self.size is None else f", {self.size} bytes"
        rows = "" if self.objects == 1 else f", {'?' if self.objects is None else self.objects} rows"
        lines = [f"{self.path}: {self.format}{size}{rows}, {many(len(self.tensors), 'tensor')}"]
        lines += [f"  {printable(key)}: {printable(text)}" for key, text in {**self.details, **self.meta}.items()]
        shown = self.tensors[:_MOST_SHOWN]
        lines += table([(_name(t.name), t.dtype + _mark(t), _shape(t.shape), _bytes(t.nbytes), _how(t)) for t in shown])
        if len(self.tensors) > len(shown) or not self.listed_all:
            lines.append(f"  and {len(self.tensors) - len(shown)} more" if self.listed_all else "  and more")
        return "\n".join(lines)


def inspect(
    path: Any,
    format: str | None = None,
    *,
    limits: Limits = LIMITS,
    read_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """The format, tensors, dtypes, shapes, sizes, schema and metadata of a file, without loading its data."""
    source = open_source(path, format, limits=limits, options=read_options)
    if isinstance(source, Records):
        return _records(source)
    assert isinstance(source, Documents)
    found: list[TensorInfo] = []
    objects, meta, listed_all = 0, {}, True
    for document in source.documents():
        if not objects:
            meta = dict(document.meta)
        objects += 1
        if len(found) < _MOST_LISTED:
            found += [_info(leaf, source.path) for leaf in document.leaves]
        else:
            listed_all = False
    return Inspection(source.path, source.format, _size([source.path]), found, objects, meta, listed_all=listed_all)


def _info(leaf: Leaf, path: str) -> TensorInfo:
    entry = Entry(leaf, lambda value: value, path)
    # Of some values the size is known when they are read.
    size = None if isinstance(leaf.value, Deferred) and not leaf.value.nbytes else entry.nbytes
    info = TensorInfo(entry.name, entry.kind, entry.dtype, entry.shape, size, dict(entry.meta))
    stored = entry.stored
    if stored is None:
        return info
    words = filter(None, [stored.compression, "" if stored.quantization is None else stored.quantization.describe()])
    return replace(info, stored="; ".join(words), stored_nbytes=stored.nbytes)


def _records(source: Records) -> Inspection:
    records = source.records
    schema = records.schema
    features = [_feature(name, feature, "feature") for name, feature in schema.features.items()]
    features += [_feature(name, feature, "feature list") for name, feature in (schema.lists or {}).items()]
    compression = _compression(records.paths[0])
    details = {} if compression == "none" else {"compression": compression}
    # The length of a compressed file is known only when all of it is inflated.
    count = len(records) if compression == "none" else None
    return Inspection(
        source.path, source.format, _size(records.paths), features, count, {}, details, schema, records.paths
    )


def _feature(name: str, feature: Any, kind: str) -> TensorInfo:
    return TensorInfo(name, kind, feature.dtype, feature.shape, optional=feature.optional)


def _compression(path: str) -> str:
    if not storage.is_local(path) or not os.path.isfile(path):
        return "none"
    with open(path, "rb") as file:
        return detect(file.read(64))


def _size(paths: Iterable[str]) -> int | None:
    """The bytes of some files, or of all files in a folder; None for what is not on this machine."""
    total = 0
    for path in paths:
        if not storage.is_local(path) or not os.path.exists(path):
            return None
        if os.path.isdir(path):
            total += sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)
        else:
            total += os.path.getsize(path)
    return total


# ---- words --------------------------------------------------------------------


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned columns."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _name(name: str | None) -> str:
    return "(no name)" if name is None else printable(name)


def printable(text: str) -> str:
    """Names come from files: nothing in them may steer a terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def _mark(tensor: TensorInfo) -> str:
    kind = "" if tensor.kind in ("tensor", "strings", "feature") else f" {tensor.kind}"
    return f"{kind}{' optional' if tensor.optional else ''}"


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"


def _how(tensor: TensorInfo) -> str:
    return f"in {tensor.stored_nbytes}: {tensor.stored}" if tensor.stored else ""


def _bytes(size: int | None) -> str:
    return "" if size is None else str(size)
