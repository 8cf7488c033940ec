"""Whether the tensors of a file are what was written, as far as its format can tell; manifests for those that can't.

A manifest is a JSON file beside another one, `model.safetensors.sums.json`, with a SHA-256 of each tensor:

    {"tensorbytes.sums": 1, "tensors": [{"name": "w", "dtype": "float32", "shape": [2, 3], "sha256": "..."}]}

The digest is of the tensor's values, whatever format they are stored in: dtype, shape and elements, as the
native frame has them. So it still fits when the file was converted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tensorbytes import formats, storage
from tensorbytes.errors import LIMITS, CorruptError, Hint, Limits, UsageError
from tensorbytes.formats import _json
from tensorbytes.io import beside
from tensorbytes.reader import naming
from tensorbytes.tensor import Value, amended
from tensorbytes.tools.inspection import files_of
from tensorbytes.tools.sources import BATCH_ROWS, Documents, Table, as_table, open_source
from tensorbytes.tree import Document, Leaf

MANIFEST_SUFFIX = ".sums.json"
_KEY, _VERSION = "tensorbytes.sums", 1
# A manifest that is larger than this is none.
_MOST_BYTES = 1 << 28
# What a format's own checksums are; all others have none.
_CHECKSUMS = {
    "tb": "CRC-32C of each tensor",
    "npz": "CRC-32 of each array",
    "torchfile": "CRC-32 of each storage",
    "checkpoint": "CRC-32C of each tensor",
    "parquet": "CRC-32 of each page, where its writer made them",
}


Progress: TypeAlias = Callable[[int, int | None], None]


class Fault(NamedTuple):
    """Something that is not as it was written. No name: the file as a whole."""

    name: str | None
    what: str
    at: int | None = None  # the byte of the file, where it is known


@dataclass
class Soundness:
    """What was found in a file of tensors."""

    path: str
    format: str
    tensors: int = 0
    rows: int | None = None  # of tables and streams
    nbytes: int = 0  # of the tensors, in memory
    checksums: str = ""  # what was checked beside the structure; empty: nothing could be
    read: int | None = None  # the bytes of its files, where no checksum covers them and all were read
    unread: int = 0  # objects that are listed, and neither read nor checked
    manifest: str = ""  # the path of the one that was compared
    faults: list[Fault] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.faults


def manifest_path(path: str) -> str:
    return path + MANIFEST_SUFFIX


def check(
    path: Any,
    format: str | None = None,
    *,
    manifest: str | None = None,
    limits: Limits = LIMITS,
    progress: Progress | None = None,
) -> Soundness:
    """Read every tensor of a file, one after the other, and list those that are damaged.

    A format without checksums is read to its last byte as well: what the disk can't give back raises OSError.
    With `manifest` the tensors are compared with it, too. Records have `verify`.
    """
    sums = None if manifest is None else read_manifest(manifest)
    digests: list[dict[str, Any]] | None = None if sums is None else []
    found = _read(open_source(path, format, limits=limits), digests, progress)
    if sums is not None and digests is not None:
        found.manifest = str(manifest)
        _compare(found, sums, digests)
    return found


def write_manifest(
    path: Any,
    target: str,
    format: str | None = None,
    *,
    limits: Limits = LIMITS,
    progress: Progress | None = None,
) -> Soundness:
    """Save the digests of a file's tensors, unless some of them are damaged already."""
    digests: list[dict[str, Any]] = []
    found = _read(open_source(path, format, limits=limits), digests, progress)
    if found.ok:
        text = json.dumps({_KEY: _VERSION, "tensors": digests}, indent=1)
        storage.write(target, [text.encode()], follow=False)
        found.manifest = target
    return found


def read_manifest(path: str) -> list[dict[str, Any]]:
    """The rows of a manifest."""
    text = beside.read(path, _MOST_BYTES)
    if text is None:
        raise UsageError("not a manifest that can be read", path=path, expected="a regular file of at most 256 MiB")
    return _rows(text, path)


def _rows(text: bytes, path: str) -> list[dict[str, Any]]:
    try:
        plain: Any = _json.parse(text, 0, "a manifest")
        if plain[_KEY] != _VERSION:
            raise UsageError(f"a manifest of version {plain[_KEY]!r}; this one reads version {_VERSION}", path=path)
        rows: list[dict[str, Any]] = [
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


# ---- reading ----------------------------------------------------------------------


def _read(
    source: Documents | Table,
    digests: list[dict[str, Any]] | None,
    progress: Progress | None,
) -> Soundness:
    if isinstance(source, Table):
        raise UsageError(
            "it holds records",
            path=source.path,
            hints=[Hint(operation="verify", arguments=("path",), purpose="checks those")],
        )
    found = Soundness(source.path, source.format, checksums=_checksums(source))
    if not found.checksums:
        found.read, progress = _read_through(source, progress, again=digests is not None)
    table = as_table(source) if digests is None else None
    if table is not None:
        # A few rows at a time: a column may be larger than the memory.
        _read_rows(table, found, progress)
        return found
    try:
        _read_documents(source, found, digests, progress)
    except CorruptError as error:
        found.faults.append(Fault(None, error.fault, error.at))
    return found


def _checksums(source: Documents) -> str:
    """What the file's own checksums are, if it has some: files of torch have, since they are archives."""
    if source.format == "torchfile" and source.data is not None and bytes(source.data[:2]) != b"PK":
        return ""
    return _CHECKSUMS.get(source.format, "")


def _read_through(source: Documents, progress: Progress | None, again: bool) -> tuple[int | None, Progress | None]:
    """Read the files of a source, which a map of them does not; their size, and who is told of what follows.

    By reading, not through the map: a block that the disk can't read is an error then, and not the end of the process.
    """
    files = [os.path.join(at, name) for path in files_of(source.path) for at, name in _below(path)]
    if not files:
        return None, progress
    total = sum(map(os.path.getsize, files))
    done = 0
    for path in files:
        for size in storage.read_through(path):
            done += size
            if progress is not None:
                progress(done, 2 * total if again else total)
    if progress is None or not again:  # the rest is a look at headers
        return done, None
    tell = progress
    return done, lambda more, _: tell(min(done + more, 2 * total), 2 * total)


def _below(path: str) -> Iterator[tuple[str, str]]:
    """(folder, name) of a local file, or of those in a folder."""
    if os.path.isdir(path):
        yield from ((at, name) for at, _, names in os.walk(path) for name in sorted(names))
    elif storage.is_local(path) and os.path.isfile(path):
        yield os.path.split(path)


def _read_rows(table: Table, found: Soundness, progress: Progress | None) -> None:
    names: dict[str, None] = {}
    found.rows = 0
    try:
        with naming(found.path):
            for columns in table.batches(BATCH_ROWS):
                names.update(dict.fromkeys(columns.values))
                found.rows += columns.size
                found.nbytes += sum(value.nbytes for value in columns.values.values())
                if progress is not None:
                    progress(found.nbytes, None)
    except CorruptError as error:
        found.faults.append(Fault(None, f"{error.fault} (after row {found.rows})", error.at or None))
    found.tensors = len(names)


def _read_documents(
    source: Documents,
    found: Soundness,
    digests: list[dict[str, Any]] | None,
    progress: Progress | None,
) -> None:
    count = 0
    compressed = plain = False
    for count, document in enumerate(source.documents(), 1):
        sizes = [_size(leaf) for leaf in document.leaves]
        total = None if document.item else sum(sizes)
        done = 0
        for leaf, size in zip(document.leaves, sizes, strict=True):
            try:
                if leaf.kind == "object":  # nothing of it is read, here or elsewhere
                    found.unread += 1
                    continue
                compressed, plain = compressed or leaf.stored is not None, plain or leaf.stored is None
            except CorruptError as error:  # a record that was listed, and can't be read
                found.faults.append(Fault(leaf.name, error.what, error.at or None))
                found.tensors, found.nbytes, done = found.tensors + 1, found.nbytes + size, done + size
                continue
            found.tensors += 1
            row = _checked(leaf, size, found, digests is not None)
            if digests is not None and row is not None:
                digests.append(row)
            done += size
            if progress is not None:
                progress(done, total) if total else progress(found.nbytes, None)
        if document.item:
            found.rows = count
    if compressed and not found.checksums:
        found.checksums = "CRC-32C of each compressed tensor" if plain else "CRC-32C of each tensor"


def _size(leaf: Leaf) -> int:
    """What a tensor takes in memory, as far as that is known before it is read."""
    try:
        return leaf.header.nbytes or 0
    except CorruptError:
        return 0


def _checked(leaf: Leaf, size: int, found: Soundness, wanted: bool) -> dict[str, Any] | None:
    """Look at one tensor; its row of a manifest, if that is wanted and it is whole."""
    try:
        if leaf.check is not None:
            leaf.check()
        value = leaf.whole
        if found.format == "onnx" and not wanted:  # its tensors may be in files that the model alone names
            _digest(value)
    except CorruptError as error:
        found.faults.append(Fault(leaf.name, error.fault, error.at or None))
        found.nbytes += size
        return None
    found.nbytes += value.nbytes
    return _row(leaf.name, value) if wanted else None


# ---- manifests --------------------------------------------------------------------


def _row(name: str | None, value: Value) -> dict[str, Any]:
    from tensorbytes.reader import Entry

    entry = Entry(Leaf(value), lambda whole: whole, "")
    shape = list(entry.shape)
    return {"name": name, "dtype": entry.dtype, "shape": shape, "sha256": _digest(value)}


def _digest(value: Value) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(value):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Value) -> Iterator[Any]:
    """The value as the native frame has it, without its name and metadata; never one big join."""
    # The unit of times is a part of them.
    origin = {key: text for key, text in value.origin.items() if key == "numpy.dtype" and "64[" in text}
    yield from formats.get("tb").encode(Document([Leaf(amended(value, None, {}, origin))]), frozenset(), {})


def _compare(found: Soundness, sums: list[dict[str, Any]], digests: list[dict[str, Any]]) -> None:
    """Name by name, and in turn those that share one, as the objects of a stream do."""
    expected: dict[Any, list[dict[str, Any]]] = {}
    for row in sums:
        expected.setdefault(row["name"], []).append(row)
    damaged = {fault.name for fault in found.faults}
    for row in digests:
        waiting = expected.get(row["name"])
        if row["name"] in damaged:
            continue
        if not waiting:
            found.faults.append(Fault(row["name"], "not in the manifest"))
            continue
        wanted = waiting.pop(0)
        if row != wanted:
            found.faults.append(Fault(row["name"], _apart(row, wanted)))
    for name, rest in expected.items():
        if rest and name not in damaged:
            found.faults.append(Fault(name, "in the manifest, and not in the file"))


def _apart(row: dict[str, Any], wanted: dict[str, Any]) -> str:
    for key in ("dtype", "shape"):
        if row[key] != wanted[key]:
            return f"{key} {row[key]}, and {wanted[key]} in the manifest"
    return "its values are not those of the manifest"


def manifest_of(path: str) -> str | None:
    """The manifest beside a local file, if there is one."""
    place = manifest_path(path)
    return place if storage.is_local(path) and os.path.lexists(place) else None
