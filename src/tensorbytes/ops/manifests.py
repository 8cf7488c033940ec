"""Manifests: checksums of a file's tensors, for formats that have none.

A manifest is a JSON file beside another one, `model.safetensors.sums.json`, with a SHA-256 of each tensor:

    {"tensorbytes.sums": 1, "tensors": [{"name": "w", "dtype": "float32", "shape": [2, 3], "sha256": "..."}]}

The digest is of the tensor's values, whatever format they are stored in: dtype, shape and elements, as the
native frame has them. So it still fits when the file was converted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

from tensorbytes import formats
from tensorbytes.errors import UsageError
from tensorbytes.formats import _json
from tensorbytes.io import beside, storage
from tensorbytes.tensor import Value, amended
from tensorbytes.tree import Document, Leaf

SUFFIX = ".sums.json"
_KEY, _VERSION = "tensorbytes.sums", 1
# A file that is larger than this is not a manifest.
_MOST_BYTES = 1 << 28

# What is said of one tensor.
ManifestRow: TypeAlias = dict[str, Any]


def path_beside(path: str) -> str:
    """Where the manifest of a file is."""
    return path + SUFFIX


def find_beside(path: str) -> str | None:
    """The manifest beside a local file, if there is one."""
    place = path_beside(path)
    return place if storage.is_local(path) and os.path.lexists(place) else None


def write_manifest(path: str, rows: list[ManifestRow]) -> None:
    text = json.dumps({_KEY: _VERSION, "tensors": rows}, indent=1)
    storage.write(path, [text.encode()], follow=False)


def read_manifest(path: str) -> list[ManifestRow]:
    """The rows of a manifest."""
    text = beside.read(path, _MOST_BYTES)
    if text is None:
        raise UsageError("not a manifest that can be read", path=path, expected="a regular file of at most 256 MiB")
    return parse_rows(text, path)


def parse_rows(text: bytes, path: str) -> list[ManifestRow]:
    try:
        plain: Any = _json.parse(text, 0, "a manifest")
        if plain[_KEY] != _VERSION:
            raise UsageError(f"a manifest of version {plain[_KEY]!r}; this one reads version {_VERSION}", path=path)
        rows: list[ManifestRow] = [
            {"name": row["name"], "dtype": row["dtype"], "shape": row["shape"], "sha256": row["sha256"]}
            for row in plain["tensors"]
        ]
        if not all(row["name"] is None or type(row["name"]) is str for row in rows):
            raise TypeError("a name is text")
    except UsageError:  # also a TypeError
        raise
    except (ValueError, TypeError, LookupError):
        raise UsageError("not a manifest as verify writes them", path=path) from None
    return rows


def row_of(name: str | None, value: Value) -> ManifestRow:
    from tensorbytes.reader import Entry

    entry = Entry(Leaf(value), lambda whole: whole, "")
    shape = list(entry.shape)
    return {"name": name, "dtype": entry.dtype, "shape": shape, "sha256": digest_of(value)}


def digest_of(value: Value) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(value):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Value) -> Iterator[Any]:
    """The value as the native frame has it, without its name and metadata; never one big join."""
    # The unit of times is a part of them.
    origin = {key: text for key, text in value.origin.items() if key == "numpy.dtype" and "64[" in text}
    yield from formats.get(formats.NATIVE).encode(Document([Leaf(amended(value, None, {}, origin))]), frozenset(), {})


def compare(
    rows: list[ManifestRow], sums: list[ManifestRow], damaged: Collection[str | None]
) -> Iterator[tuple[str | None, str]]:
    """(name, what differs) of each tensor that is not what a manifest says; those in `damaged` are left out.

    Name by name, and in turn those that share one, as the objects of a stream do.
    """
    expected: dict[Any, list[ManifestRow]] = {}
    for row in sums:
        expected.setdefault(row["name"], []).append(row)
    for row in rows:
        waiting = expected.get(row["name"])
        if row["name"] in damaged:
            continue
        if not waiting:
            yield row["name"], "not in the manifest"
            continue
        wanted = waiting.pop(0)
        if row != wanted:
            yield row["name"], _describe_difference(row, wanted)
    for name, rest in expected.items():
        if rest and name not in damaged:
            yield name, "in the manifest, and not in the file"


def _describe_difference(row: ManifestRow, wanted: ManifestRow) -> str:
    for key in ("dtype", "shape"):
        if row[key] != wanted[key]:
            return f"{key} {row[key]}, and {wanted[key]} in the manifest"
    return "its values are not those of the manifest"
