"""repair: what is whole of a damaged file of any format, in a file of the same format."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from tensorbytes import formats, opening
from tensorbytes.errors import LIMITS, CorruptError, Hint, Limits, SchemaError, UsageError
from tensorbytes.formats.tfrecord.files.salvage import keep_records
from tensorbytes.io import storage
from tensorbytes.io.paths import byte_range
from tensorbytes.io.rereading import rereadable
from tensorbytes.ops import manifests, salvaging
from tensorbytes.ops.conversion import convert
from tensorbytes.ops.inspection import inspect
from tensorbytes.ops.outcomes import Repair, Verification
from tensorbytes.ops.soundness import Progress
from tensorbytes.ops.verification import RECORD_CHECKSUMS, RECORDS, kind_of, record_files, verify_tensors


def repair(
    src: Any,
    dst: Any,
    format: str | None = None,
    *,
    replace: bool = False,
    compression: str = "auto",
    limits: Limits = LIMITS,
    progress: Progress | None = None,
) -> Repair:
    """Write what is whole of a file to another one of the same format, and report what was lost.

    Records are copied as they are, in the same compression; only a record whose header was damaged gets a new one. Of
    streams of the native frame, the objects that are whole are kept, and numbered anew where others are missing. Of
    other formats it is the tensors whose checksums are right, by the file's own or by the manifest beside it; of an npz
    or safetensors file that was cut off, those before its end.

    `dst` is replaced atomically if it is a local path. That it is `src` itself must be said by `replace`: what is
    damaged is then lost for good. If nothing is whole, nothing is written, and CorruptError is raised.
    `format`, `compression` and `progress` are those of `verify`.
    """
    format = formats.resolve(format)
    with rereadable(src) as again:
        kind = kind_of(again(), format, compression, limits)
        holds_records = kind in RECORDS
        source = _only_file(again(), kind) if holds_records else src
        same = is_same(source, dst)
        if same and not replace:
            raise UsageError(
                "it would be replaced by its repaired self",
                path=storage.describe(source),
                hints=[Hint("replace", True, "to replace it", of="repair"), Hint(purpose="give another target")],
            )
        if not holds_records and not _is_stream(again, format, limits):
            return _repair_tensors(src, again, dst, format, same, limits, progress)
        with _schema_beside(source, dst) if holds_records and not same else contextlib.nullcontext():
            kept = keep_records(
                source if holds_records else again(),
                dst,
                compression=compression,
                same=same,
                limits=limits,
                progress=progress,
            )
    damages, checksums = list(kept.damages), RECORD_CHECKSUMS
    made = Repair(kept.path, storage.describe(dst), kind or formats.NATIVE, damages, checksums)
    made.records, made.size, made.intact = kept.records, kept.size, kept.intact
    return made


def is_same(src: Any, dst: Any) -> bool:
    """Whether a target is the very file that is read."""
    if src is dst:
        return True
    return storage.is_local(src) and storage.is_local(dst) and os.path.exists(dst) and os.path.samefile(src, dst)


@contextlib.contextmanager
def _schema_beside(src: Any, dst: Any) -> Iterator[None]:
    """The schema that is beside records goes beside what is kept of them, which is written in the block."""
    from tensorbytes.formats.tfrecord.created import copy_schema  # with all that writes records

    path = byte_range(src)[0]
    with contextlib.ExitStack() as stack:
        if storage.is_local(path) and storage.is_local(dst):
            with contextlib.suppress(SchemaError):  # of a schema that is damaged itself, nothing is kept
                stack.enter_context(copy_schema([os.fspath(path)], os.fspath(dst), True, _Kept(), []))
        yield


class _Kept:
    """Records that take the place of others, if there are any: their schema follows them."""

    count, replaces, published = 0, True, False


def _only_file(target: Any, kind: str) -> Any:
    files = record_files(target, kind)
    if len(files) > 1:
        raise UsageError(
            f"it stands for {len(files)} files",
            path=storage.describe(target),
            hints=[Hint(purpose="repair them one at a time")],
        )
    return files[0]


def _is_stream(again: Callable[[], Any], format: str | None, limits: Limits) -> bool:
    """Whether it is a stream of objects in the native frame, which are records, or so damaged that only these tell."""
    source = opening.open_file(again(), format, limits=limits)
    if source.format != formats.NATIVE:
        return False
    documents = source.documents()
    try:
        return bool(next(documents).item) or next(documents, None) is not None
    except (CorruptError, StopIteration):
        return True


# ---- tensors ------------------------------------------------------------------------


def _repair_tensors(
    src: Any,
    again: Callable[[], Any],
    dst: Any,
    format: str | None,
    same: bool,
    limits: Limits,
    progress: Progress | None,
) -> Repair:
    """Every tensor whose checksum is right, in the same format."""
    manifest = manifests.find_beside(os.fspath(src)) if storage.is_local(src) else None
    found = verify_tensors(again, format, manifest, False, limits, progress)
    if found.format is None or not formats.get(found.format).writes:
        raise UsageError(f"format {found.format!r} is read-only: it can't be repaired", path=found.path)
    checksums = found.checksums or ("SHA-256 of each tensor" if found.manifest else "")
    made = Repair(found.path, storage.describe(dst), found.format, found.damages, checksums)
    broken = next((damage for damage in found.damages if damage.kind == "file"), None)
    if broken is not None:
        kept = salvaging.keep_whole(again(), dst, found.format, limits=limits)
        if kept is not None:
            made.tensors = kept.tensors
            made.damages = [damage for damage in found.damages if damage.kind == "file"] + kept.damages
            return made
    if broken is not None or (found.damages and made.lost_tensors >= found.tensors):
        first = broken or found.damages[0]
        raise CorruptError(f"no tensor of it can be kept: {first.what}", at=first.start or 0, path=found.path)
    made.tensors = _keep(again, dst, format, found, same, limits)
    return made


def _keep(
    again: Callable[[], Any], dst: Any, format: str | None, found: Verification, same: bool, limits: Limits
) -> int:
    """Write what is whole of a file; how many tensors that are."""
    if found.format == formats.NATIVE and not found.manifest:
        return keep_records(again(), dst, same=same, limits=limits).records
    lost = {damage.name for damage in found.damages}
    names = None
    if lost:
        listed = (tensor.name for tensor in inspect(again(), format, limits=limits).tensors)
        names = [_only(name) for name in listed if name is not None and name not in lost]
    return convert(again(), dst, found.format, src_format=format, names=names, limits=limits).tensors


def _only(name: str) -> str:
    """The pattern that this name alone fits: a star in a name is a star."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
