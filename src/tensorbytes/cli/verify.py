"""tb verify: read every byte and check what can be checked."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorbytes.cli.files import Source, for_each, sources
from tensorbytes.cli.output import Cell, Output, size_text
from tensorbytes.cli.repair import damage_report, damage_table, fault_table
from tensorbytes.cli.words import format_text
from tensorbytes.cli.writing import check_free, force_argument, format_name, paragraph
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  tb verify train.tfrecord       which records are damaged, and where
  tb verify *.npz                several files; exit code 1 if one is damaged
  tb verify --write-manifest model.safetensors
                                 checksums for a format that has none, beside it
  tb verify model.safetensors    compares with those, from then on
  tb verify model.tb --manifest model.safetensors.sums.json
                                 the same tensors, in another format

Checksums guard against accidents, not against an adversary who rewrites them.
Every byte is read in any case, so that a bad disk shows.
Exit code: 0 sound, 1 damaged or empty, 2 unreadable."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, globs, folders, URLs, or - for stdin")
    parser.add_argument("--from", dest="format", metavar="FORMAT", help="the format, where the bytes don't tell")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--manifest", metavar="PATH", help="compare with this one (FILE.sums.json, if it is there)")
    how.add_argument("--write-manifest", action="store_true", help="write FILE.sums.json: a SHA-256 of each tensor")
    how.add_argument("--no-manifest", action="store_true", help="don't look for one")
    force_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    with sources(args.files) as found:
        if args.manifest is not None and len(found) > 1:
            raise UsageError(f"--manifest goes with one file, not with {len(found)}")
        return for_each(_single(found, args), out, lambda source: _verify(source, args, out))


def _single(found: list[Source], args: argparse.Namespace) -> list[Source]:
    """Each file by itself: name@10 stands for ten."""
    from tensorbytes.records.files.paths import expand

    singles = []
    for source in found:
        several = "@" in os.path.basename(source.path) and "://" not in source.path and not os.path.exists(source.path)
        singles += [Source(path, path) for path in expand(source.path)] if several else [source]
    return singles


def _verify(source: Source, args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.tools import recognition

    args.format = format_name(args.format)
    if _is_empty(source.path):
        return _show_empty(source, out)
    kind = args.format or recognition.kind_of(source.path)
    if kind in (recognition.EXAMPLES, recognition.EVENTS, recognition.OTHERS):
        if args.manifest or args.write_manifest:
            raise UsageError(f"{source.shown}: records have checksums of their own, and no manifest")
        return _verify_records(source, kind, out)
    return _verify_tensors(source, args, out)


def _is_empty(path: str) -> bool:
    return os.path.isfile(path) and not os.path.getsize(path)


def _show_empty(source: Source, out: Output) -> int:
    """Nothing can be wrong with no bytes, and that is no good sign; one of several shards may have got no record."""
    from tensorbytes.records.files.paths import base_path

    shard = base_path(source.path) != source.path
    what = "empty: a shard without records" if shard else "an empty file: nothing was written, or a download failed"
    if out.json:
        damages = [] if shard else [{"name": None, "what": what, "at": 0}]
        out.item({"path": source.shown, "format": None, "ok": shard, "checked": "size", "damages": damages})
    else:
        out.line(f"{source.shown}: ", Cell(what, "" if shard else "red"))
    return 0 if shard else 1


# ---- records ------------------------------------------------------------------------


def _verify_records(source: Source, kind: str, out: Output) -> int:
    from tensorbytes.records.files.salvage import verify
    from tensorbytes.tools.plural import many

    with out.progress(f"verifying {source.shown}") as progress:
        report = verify(source.path, progress=progress)
    checked = "CRC-32C of each record"
    if out.json:
        plain = damage_report(report, source.shown)
        out.item({"path": source.shown, "format": kind, "ok": report.ok, "checked": checked} | plain)
        return 0 if report.ok else 1
    what = f"{format_text(kind)}, {many(report.records, 'record')}, {size_text(report.size)}"
    if report.ok:
        out.line(f"{source.shown}: {what}: ", Cell("sound", "green"), f" ({checked})")
        return 0
    places = many(len(report.damages), "place")
    out.line(f"{source.shown}: {what}: ", Cell(f"damaged in {places}, {size_text(report.lost)} lost", "red"))
    damage_table(report.damages, out)
    if report.records:
        out.line(f"  tb repair {source.shown} DST keeps {_all(report.records)}")
    else:
        out.line("  nothing in it is a record: is it a TFRecord file, in this compression?")
    return 1


def _all(records: int) -> str:
    return "the record that is whole" if records == 1 else f"the {records} records that are whole"


# ---- tensors --------------------------------------------------------------------------


def _verify_tensors(source: Source, args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.tools import soundness

    with out.progress(f"verifying {source.shown}") as progress:
        if args.write_manifest:
            target = soundness.manifest_path(source.path)
            if source.shown != source.path or "://" in source.path:
                raise UsageError(f"{source.shown}: a manifest is written beside a local file")
            check_free([target], args.force)
            found = soundness.write_manifest(source.path, target, args.format, progress=progress)
        else:
            manifest = args.manifest or (None if args.no_manifest else soundness.manifest_of(source.path))
            found = soundness.check(source.path, args.format, manifest=manifest, progress=progress)
    if out.json:
        out.item(_plain(found, source.shown, args.write_manifest))
    else:
        _show(found, source.shown, args.write_manifest, out)
    return 0 if found.ok else 1


def _plain(found: Any, shown: str, writing: bool) -> dict[str, Any]:
    compared = "" if writing or not found.manifest else f"SHA-256 of each tensor, in {found.manifest}"
    return {
        "path": shown,
        "format": found.format,
        "ok": found.ok,
        "checked": ", ".join(filter(None, ["structure", _all_read(found), found.checksums, compared])),
        "tensors": found.tensors,
        "rows": found.rows,
        "unread": found.unread,
        "nbytes": found.nbytes,
        "manifest": found.manifest or None,
        "damages": [fault._asdict() for fault in found.faults],
    }


def _all_read(found: Any) -> str:
    return "" if found.read is None else "every byte was read"


def _show(found: Any, shown: str, writing: bool, out: Output) -> None:
    from tensorbytes.tools.plural import many

    rows = "" if found.rows is None else f", {many(found.rows, 'row')}"
    size = f"{size_text(found.nbytes)} of data"
    unread = f" (and {many(found.unread, 'object')} that no one here reads, or checks)" if found.unread else ""
    head = f"{shown}: {format_text(found.format)}, {many(found.tensors, 'tensor')}{rows}, {size}{unread}: "
    if found.faults:
        out.line(head, Cell(f"damaged in {many(len(found.faults), 'place')}", "red"))
        fault_table(found.faults, out)
        if found.format in ("safetensors", "npz") and any(fault.name is None for fault in found.faults):
            out.line(f"  tb repair {shown} DST keeps the tensors that are whole, if it was cut off")
        return
    if writing:
        out.line(head, Cell("sound", "green"), f"; wrote {found.manifest}")
        return
    checks = [found.checksums] if found.checksums else []
    checks += [f"SHA-256 of each tensor, by {found.manifest}"] if found.manifest else []
    if checks:
        out.line(head, Cell("sound", "green"), f" ({'; '.join(checks)})")
        return
    out.line(head, Cell("readable", "yellow"), f" (structure; {_all_read(found)})" if _all_read(found) else "")
    paragraph("this format has no checksums: a changed value goes unnoticed; --write-manifest makes some", out, "  ")
