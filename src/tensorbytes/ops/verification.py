"""verify: every byte of a file of any format read, and what can be checked of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from tensorbytes import formats, opening
from tensorbytes.damage import Damage
from tensorbytes.errors import LIMITS, Limits, UsageError
from tensorbytes.formats.tfrecord.files.salvage import check_records
from tensorbytes.formats.tfrecord.kinds import EVENTS, EXAMPLES, OTHERS
from tensorbytes.io import storage
from tensorbytes.io.paths import base_path, expand
from tensorbytes.io.rereading import rereadable
from tensorbytes.ops import manifests
from tensorbytes.ops.outcomes import EMPTY, Verification
from tensorbytes.ops.soundness import Progress, read_tensors

# What files of records are; each record has a checksum.
RECORDS = (EXAMPLES, EVENTS, OTHERS)
RECORD_CHECKSUMS = "CRC-32C of each record"


def verify(
    path: Any,
    format: str | None = None,
    *,
    manifest: str | os.PathLike[str] | Literal[False] | None = None,
    write_manifest: bool = False,
    compression: str = "auto",
    limits: Limits = LIMITS,
    progress: Progress | None = None,
) -> Verification:
    """Read every byte of a file, check what can be checked, and list which tensors or records are damaged, and where.

    `path` is a path, a URL or a file object of any format; for records a glob, "name@10" or a list of these, too, and
    for TensorBoard's event files a folder. Damage is not an error: it is in the `damages` of what is returned, which
    is `ok` without any. An empty file is damaged, unless it is one of several shards. A file that holds neither
    tensors nor records raises UsageError.

    For formats without checksums there are manifests. `write_manifest=True` writes one beside the file, with a SHA-256
    of each tensor. It is found there from then on, and compared; `manifest` is the path of another one, or False for
    none. `compression` is that of records. `progress` is called with the bytes read so far, and their total or None.
    """
    format = formats.resolve(format)
    if write_manifest and manifest:
        raise UsageError("a manifest is written or compared, not both")
    with rereadable(path) as again:
        if _is_empty(again()):
            return _verify_empty(storage.describe(path))
        kind = kind_of(again(), format, compression, limits)
        if kind not in RECORDS:
            where = _manifest_of(path, manifest, write_manifest)
            return verify_tensors(again, format, where, write_manifest, limits, progress)
        if manifest or write_manifest:
            raise UsageError("records have checksums of their own, and no manifest", path=storage.describe(path))
        return _verify_records(path, record_files(again(), kind), kind, compression, limits, progress)


def kind_of(target: Any, format: str | None, compression: str, limits: Limits) -> str:
    """Which records a file holds, one of RECORDS; of any other file the format that was given, or ""."""
    if format is not None:
        return format
    if compression != "auto":  # of the formats of tensors, none is compressed as a whole
        return EXAMPLES
    return opening.open_file(target, limits=limits).kind


def record_files(target: Any, kind: str) -> list[Any]:
    """The files of a target that holds records."""
    if kind == EVENTS:
        from tensorbytes.records.events import event_files

        return event_files(target)
    return expand(target)


def _is_empty(target: Any) -> bool:
    if hasattr(target, "read"):
        return not target.read(1)
    return storage.is_local(target) and os.path.isfile(target) and not os.path.getsize(target)


def _verify_empty(path: str) -> Verification:
    """An empty file: something went wrong before its first byte, unless it is a shard that got no record."""
    is_shard = base_path(path) != path
    return Verification(path, None, [] if is_shard else [Damage(path, "file", 0, cause=EMPTY)])


# ---- records ------------------------------------------------------------------------


def _verify_records(
    path: Any, files: list[Any], kind: str, compression: str, limits: Limits, progress: Progress | None
) -> Verification:
    one = storage.is_path(path) or len(files) == 1
    name = storage.describe(path if storage.is_path(path) else files[0]) if one else f"{len(files)} files"
    found = Verification(name, kind, checksums=RECORD_CHECKSUMS, records=0, size=0, intact=0)
    for file in files:
        if storage.is_path(file) and _is_empty(file):
            found.damages += _verify_empty(storage.describe(file)).damages
        else:
            _add_records(found, file, compression, limits, _progress_after(found.size or 0, progress, len(files)))
    return found


def _progress_after(done: int, progress: Progress | None, files: int) -> Progress | None:
    """Who is told of the bytes of a file that are read after those of others; the size of them all is not known."""
    if progress is None or files == 1:
        return progress
    tell = progress
    return lambda more, total: tell(done + more, None)


def _add_records(
    found: Verification, file: Any, compression: str, limits: Limits, progress: Progress | None = None
) -> None:
    checked = check_records(file, compression=compression, limits=limits, progress=progress)
    found.records = (found.records or 0) + checked.records
    found.size = (found.size or 0) + checked.size
    found.intact = (found.intact or 0) + checked.intact
    found.damages += checked.damages
    found.unfinished |= checked.unfinished


# ---- tensors ------------------------------------------------------------------------


def verify_tensors(
    again: Callable[[], Any],
    format: str | None,
    manifest: str | None,
    write_manifest: bool,
    limits: Limits,
    progress: Progress | None,
) -> Verification:
    """The same for a file that holds no records; `again` gives it from its start."""
    target = again()
    sums = None if manifest is None or write_manifest else manifests.read_manifest(manifest)
    rows: list[manifests.ManifestRow] | None = None if manifest is None else []
    source = opening.open_file(target, format, limits=limits)
    found = read_tensors(source, rows, progress, is_path=storage.is_path(target))
    if found.format == formats.NATIVE and any(damage.kind == "file" for damage in found.damages):
        found = _verify_each_record(found, again, limits)
    if rows is None or found.records is not None:
        return found
    if sums is None and found.ok:
        found.manifest, found.manifest_written = manifest, True
        manifests.write_manifest(str(manifest), rows)
    elif sums is not None:
        found.manifest = manifest
        damaged = {damage.name for damage in found.damages}
        for name, what in manifests.compare(rows, sums, damaged):
            found.damages.append(Damage(found.path, "manifest", cause=what, name=name))
    return found


def _verify_each_record(found: Verification, again: Callable[[], Any], limits: Limits) -> Verification:
    """A file of the native frame that can't be read as one: which of its records are damaged.

    Records of something else may start as those of the frame do. Each is whole then, and the name of the file tells.
    """
    checked = Verification(found.path, OTHERS, checksums=RECORD_CHECKSUMS)
    try:
        _add_records(checked, again(), "auto", limits)
    except UsageError:  # not even a file of records
        return found
    if checked.ok and formats.by_suffix(found.path) == EXAMPLES:
        return checked
    if checked.records and checked.damages:
        found.damages = checked.damages
    return found


def _manifest_of(path: Any, manifest: str | os.PathLike[str] | Literal[False] | None, writing: bool) -> str | None:
    """Where the manifest is that a file is compared with, or that is written."""
    if writing and not storage.is_local(path):
        raise UsageError("a manifest is written beside a local file", path=storage.describe(path))
    if writing:
        return manifests.path_beside(os.fspath(path))
    if manifest is None:
        return manifests.find_beside(os.fspath(path)) if storage.is_local(path) else None
    return None if manifest is False else os.fspath(manifest)
