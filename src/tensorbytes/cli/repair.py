"""tb repair: what is whole of a damaged file."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from typing import Any

from tensorbytes.cli.files import Source, local, sources
from tensorbytes.cli.output import Cell, Column, Output, size_text
from tensorbytes.cli.writing import STDOUT, check_free, force_argument, replaced, standard_output
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  tb repair broken.tfrecord mended.tfrecord
  tb repair train.tfrecord --in-place     what is damaged is then lost for good
  tb repair - - < broken.tfrecord > mended.tfrecord
  tb repair broken.npz mended.npz         the tensors whose checksums are right
  tb repair part.safetensors whole.safetensors
                                          of a download that broke off, the
                                          tensors before its end (npz, too)

Records are copied as they are, in the same compression.
Exit code: 0 nothing was damaged; 1 damage was found, and what is whole is in
DST (if nothing is, there is no DST); 2 wrong usage or unreadable."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SRC", help="a file, a URL, or - for stdin")
    parser.add_argument("target", metavar="DST", nargs="?", help="the repaired file, or - for stdout")
    parser.add_argument("--in-place", action="store_true", help="replace SRC by its repaired self")
    force_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    if args.in_place is (args.target is not None):
        raise UsageError("say where the repaired file goes: tb repair SRC DST, or tb repair SRC --in-place")
    with sources([args.source]) as found:
        if len(found) > 1:
            raise UsageError(f"{args.source} means {len(found)} files: repair them one at a time")
        source = found[0]
        if args.in_place and source.path != local(args.source):
            raise UsageError(f"--in-place needs the path of a file, not {args.source}")
        target = source.path if args.in_place else local(args.target)
        piped = target == STDOUT
        same = not piped and os.path.exists(target) and "://" not in source.path and _same(source.path, target)
        if same and not args.in_place:
            raise UsageError(f"{target} would be replaced by its repaired self: pass --in-place alone if that is meant")
        if not (piped or args.in_place):
            check_free(replaced(target), args.force)
        with standard_output() if piped else nullcontext(target) as where:
            if _holds_records(source.path):
                return _repair_records(source, where, args.in_place, out)
            return _repair_tensors(source, where, args.in_place, out)


def _holds_records(path: str) -> bool:
    """Whether it is a file of records, or a stream of objects in the native frame, which are records as well."""
    from tensorbytes import opening
    from tensorbytes.errors import CorruptError
    from tensorbytes.tools import recognition

    if recognition.kind_of(path) != recognition.NO_RECORDS:
        return True
    found = opening.mapped(path, None)
    if found.chosen.name != "tb":
        return False
    from tensorbytes.tools.sources import Documents, open_source

    try:
        source = open_source(path, "tb")
        assert isinstance(source, Documents)
        documents = source.documents()
        return bool(next(documents).item) or next(documents, None) is not None
    except (CorruptError, StopIteration):
        return True  # not even its structure is whole


def _repair_records(source: Source, target: Any, replace: bool, out: Output) -> int:
    from tensorbytes.records.files.salvage import repair

    with out.progress(f"repairing {source.shown}") as progress:
        report = repair(source.path, target, replace=replace, progress=progress)
    if not isinstance(target, str):
        out.note(f"{source.shown} -> stdout: {_kept(report)}")
    elif out.json:
        out.item(damage_report(report, source.shown) | {"target": target})
    else:
        out.line(f"{source.shown} -> {target}: ", Cell(_kept(report), "green" if report.ok else "yellow"))
        damage_table(report.damages, out)
    return 0 if report.ok else 1


def _repair_tensors(source: Source, target: Any, replace: bool, out: Output) -> int:
    """Every tensor whose checksum is right, in the same format."""
    from tensorbytes import formats
    from tensorbytes.errors import CorruptError
    from tensorbytes.tools import soundness
    from tensorbytes.tools.plural import many

    with out.progress(f"checking {source.shown}") as progress:
        found = soundness.check(source.path, manifest=soundness.manifest_of(source.path), progress=progress)
    if not formats.get(found.format).writes:
        raise UsageError(f"{source.shown}: format {found.format!r} is read-only: it can't be repaired")
    broken = next((fault for fault in found.faults if fault.name is None), None)
    lost = {fault.name for fault in found.faults}
    if broken is not None and _repair_cut(source, target, found, out):
        return 1
    if broken is not None or (lost and len(lost) >= found.tensors):
        fault = broken or found.faults[0]
        raise CorruptError(f"no tensor of it can be kept: {fault.what}", at=fault.at or 0, path=source.shown)
    kept = _keep(source.path, target, found, replace)
    if not isinstance(target, str):
        out.note(f"{source.shown} -> stdout: {many(kept, 'tensor')} kept, {len(lost)} lost")
    elif out.json:
        damages = [fault._asdict() for fault in found.faults]
        out.item({"path": source.shown, "tensors": kept, "damages": damages, "target": target})
    else:
        checked = bool(found.checksums or found.manifest)
        rest = f"kept, {len(lost)} lost" if lost else "copied, nothing was damaged" if checked else "copied"
        sure = lost or checked
        out.line(
            f"{source.shown} -> {target}: ",
            Cell(f"{many(kept, 'tensor')} {rest}", "yellow" if lost else "green" if checked else ""),
            "" if sure else "; this format has no checksums, so damage can't be noticed",
        )
        fault_table(found.faults, out)
    return 1 if lost else 0


def _keep(path: str, target: Any, found: Any, replace: bool) -> int:
    """Write what is whole of a file; how many tensors that are."""
    if found.format == "tb" and not found.manifest:
        from tensorbytes.records.files.salvage import repair

        return repair(path, target, replace=replace).records
    from tensorbytes.tools.conversion import convert

    lost = {fault.name for fault in found.faults}
    names = [_only(name) for name in _names(path) if name not in lost] if lost else None
    return convert(path, target, found.format, names=names).tensors


def _repair_cut(source: Source, target: Any, found: Any, out: Output) -> bool:
    """The tensors of a file that ends too early which lie before its end; False if there are none."""
    from tensorbytes.tools import salvaging
    from tensorbytes.tools.plural import many

    kept = salvaging.rest(source.path, target, found.format)
    if kept is None:
        return False
    faults = [*(fault for fault in found.faults if fault.name is None), *kept.faults]
    words = f"{many(kept.tensors, 'tensor')} kept, {len(kept.faults)} lost"
    if not isinstance(target, str):
        out.note(f"{source.shown} -> stdout: {words}")
    elif out.json:
        damages = [fault._asdict() for fault in faults]
        out.item({"path": source.shown, "tensors": kept.tensors, "damages": damages, "target": target})
    else:
        out.line(f"{source.shown} -> {target}: ", Cell(words, "yellow"))
        fault_table(faults, out)
    return True


def _names(path: str) -> list[str]:
    from tensorbytes.tools.inspection import inspect

    return [tensor.name for tensor in inspect(path).tensors if tensor.name is not None]


def _only(name: str) -> str:
    """The pattern that this name alone fits: a star in a name is a star."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.samefile(one, other)


def _kept(report: Any) -> str:
    from tensorbytes.tools.plural import many

    if report.ok:
        return f"{many(report.records, 'record')}, nothing was damaged"
    return (
        f"{many(report.records, 'record')} kept, {size_text(report.lost)} lost in {many(len(report.damages), 'place')}"
    )


# ---- damage, as verify shows it too --------------------------------------------------


def damage_report(report: Any, shown: str) -> dict[str, Any]:
    """What was found in a file of records, ready for JSON."""
    return {
        "path": shown,
        "records": report.records,
        "size": report.size,
        "lost": report.lost,
        "damages": [
            {
                "kind": damage.kind,
                "record": damage.record,
                "start": damage.start,
                "end": damage.end,
                "recovered": damage.recovered,
                "what": _what(damage),
            }
            for damage in report.damages
        ],
    }


def damage_table(damages: Any, out: Output) -> None:
    """Where a file of records is damaged."""
    if damages:
        out.table(
            [Column("  record", right=True), Column("bytes"), Column("lost", right=True), Column("what", fold=True)],
            [
                (
                    str(damage.record),
                    f"{damage.start} to {damage.end}",
                    "" if damage.recovered else size_text(damage.end - damage.start),
                    _what(damage),
                )
                for damage in damages
            ],
        )


def fault_table(faults: Any, out: Output) -> None:
    """Which tensors of a file are damaged."""
    if faults:
        out.table(
            [Column("  tensor", fold=True), Column("byte", right=True), Column("what", fold=True)],
            [
                (
                    f"  {'(the file)' if fault.name is None else fault.name}",
                    "" if fault.at is None else str(fault.at),
                    fault.what,
                )
                for fault in faults
            ],
        )


def _what(damage: Any) -> str:
    text = str(damage).removeprefix(f"{damage.path}: ")
    # The bytes have a column of their own.
    what, _, rest = text.partition(f" (bytes {damage.start} to {damage.end}, ")
    cause = rest.partition("): ")[2]
    kept = "; its payload was kept" if damage.recovered else ""
    return f"{what}{kept}{f': {cause}' if cause else ''}"
