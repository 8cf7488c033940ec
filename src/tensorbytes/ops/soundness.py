"""Reading every tensor of a file, and noting those that are not what was written, as far as its format can tell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

from tensorbytes import formats
from tensorbytes.damage import Damage
from tensorbytes.errors import CorruptError
from tensorbytes.formats._opened import BATCH_ROWS, Opened
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.ops.inspection import files_of
from tensorbytes.ops.manifests import ManifestRow, digest_of, row_of
from tensorbytes.ops.outcomes import Verification
from tensorbytes.tree import Leaf

Progress: TypeAlias = Callable[[int, int | None], object]


def read_tensors(
    source: Opened, sums: list[ManifestRow] | None, progress: Progress | None, *, is_path: bool = True
) -> Verification:
    """Read every tensor of a file, one after the other, and list those that are damaged.

    A format without checksums is read to its last byte as well: what the disk can't give back raises OSError.
    With `sums`, a row of a manifest is added to it for each tensor that is whole. A file object, for which `is_path`
    is false, was read into memory when it was opened.
    """
    found = Verification(source.path, source.format, checksums=source.chosen.checksums_of(source.data))
    if not found.checksums and is_path:
        found.read, progress = _read_through(source, progress, again=sums is not None)
    elif not found.checksums and source.data is not None:
        found.read = len(source.data)
    if source.rows and sums is None:
        # A few rows at a time: a column may be larger than the memory.
        _read_rows(source, found, progress)
        return found
    try:
        _read_documents(source, found, sums, progress)
    except CorruptError as error:
        _note(found, "file", error.fault, error.at)
    return found


def _note(found: Verification, kind: str, what: str, at: int | None, name: str | None = None) -> None:
    found.damages.append(Damage(found.path, kind, at, cause=what, name=name))


def _note_tensor(found: Verification, leaf: Leaf, error: CorruptError, size: int) -> None:
    _note(found, "tensor", error.fault, error.at or None, leaf.name)
    found.nbytes += size


def _read_through(source: Opened, progress: Progress | None, again: bool) -> tuple[int | None, Progress | None]:
    """Read the files of a source, which a map of them does not; their size, and who is told of what follows.

    By reading, not through the map: a block that the disk can't read is an error then, and not the end of the process.
    """
    files = [os.path.join(at, name) for path in files_of(source) for at, name in _files_below(path)]
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


def _files_below(path: str) -> Iterator[tuple[str, str]]:
    """(folder, name) of a local file, or of those in a folder."""
    if os.path.isdir(path):
        yield from ((at, name) for at, _, names in os.walk(path) for name in sorted(names))
    elif storage.is_local(path) and os.path.isfile(path):
        yield os.path.split(path)


def _read_rows(source: Opened, found: Verification, progress: Progress | None) -> None:
    names: dict[str, None] = {}
    found.rows = 0
    try:
        with naming(found.path):
            for table in source.tables(BATCH_ROWS):
                names.update(dict.fromkeys(table.columns))
                found.rows += table.rows
                found.nbytes += table.nbytes
                if progress is not None:
                    progress(found.nbytes, None)
    except CorruptError as error:
        _note(found, "file", f"{error.fault} (after row {found.rows})", error.at or None)
    found.tensors = len(names)


def _read_documents(
    source: Opened,
    found: Verification,
    sums: list[ManifestRow] | None,
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
                _note_tensor(found, leaf, error, size)
                found.tensors, done = found.tensors + 1, done + size
                continue
            found.tensors += 1
            row = _check_tensor(leaf, size, found, sums is not None)
            if sums is not None and row is not None:
                sums.append(row)
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


def _check_tensor(leaf: Leaf, size: int, found: Verification, wanted: bool) -> ManifestRow | None:
    """Look at one tensor; its row of a manifest, if that is wanted and it is whole."""
    try:
        if leaf.check is not None:
            leaf.check()
        value = leaf.read()
        if formats.get(found.format).further_files and not wanted:  # which were not read through
            digest_of(value)
    except CorruptError as error:
        _note_tensor(found, leaf, error, size)
        return None
    found.nbytes += value.nbytes
    return row_of(leaf.name, value) if wanted else None
