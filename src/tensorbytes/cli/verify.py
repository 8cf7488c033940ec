"""tb verify: read every byte and check what can be checked."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tensorbytes.cli.files import InputFile, for_each, input_files
from tensorbytes.cli.output import Cell, Output, size_text
from tensorbytes.cli.repair import damage_table
from tensorbytes.cli.words import format_text
from tensorbytes.cli.writing import check_free, force_argument, format_name, paragraph
from tensorbytes.errors import UsageError

if TYPE_CHECKING:
    from tensorbytes.ops import Verification

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
    args.format = format_name(args.format)
    with input_files(args.files) as found:
        if args.manifest is not None and len(found) > 1:
            raise UsageError(f"--manifest goes with one file, not with {len(found)}")
        return for_each(_single(found), out, lambda file: _verify(file, args, out))


def _single(found: list[InputFile]) -> list[InputFile]:
    """Each file by itself: name@10 stands for ten."""
    from tensorbytes.io.paths import expand

    singles = []
    for file in found:
        several = "@" in os.path.basename(file.path) and "://" not in file.path and not os.path.exists(file.path)
        singles += [InputFile(path, path) for path in expand(file.path)] if several else [file]
    return singles


def _verify(file: InputFile, args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.ops import verify
    from tensorbytes.ops.manifests import path_beside

    if args.write_manifest:
        if file.shown != file.path:  # what comes through the pipe
            raise UsageError("a manifest is written beside a local file", path=file.shown)
        check_free([path_beside(file.path)], args.force)
    with out.progress(f"verifying {file.shown}") as progress:
        found = verify(
            file.path,
            args.format,
            manifest=False if args.no_manifest else args.manifest,
            write_manifest=args.write_manifest,
            progress=progress,
        )
    found.path = file.shown
    if out.json:
        out.item(found.to_dict())
    elif found.format is None:
        out.line(f"{found.path}: ", Cell(found.emptiness, "" if found.ok else "red"))
    elif found.records is not None:
        _show_records(found, found.format, out)
    else:
        _show_tensors(found, found.format, out)
    return 0 if found.ok else 1


def _show_records(found: Verification, format: str, out: Output) -> None:
    from tensorbytes.ops.outcomes import UNFINISHED
    from tensorbytes.ops.plural import many

    records = found.records or 0
    what = f"{found.path}: {format_text(format)}, {many(records, 'record')}, {size_text(found.size)}: "
    if found.ok:
        out.line(what, Cell("sound", "green"), f" ({found.checksums})")
        if found.unfinished:
            out.line(f"  {UNFINISHED}")
        return
    places = many(len(found.damages), "place")
    out.line(what, Cell(f"damaged in {places}, {size_text(found.lost)} lost", "red"))
    damage_table(found.damages, out)
    if records:
        kept = "the record that is whole" if records == 1 else f"the {records} records that are whole"
        out.line(f"  tb repair {found.path} DST keeps {kept}")
    else:
        out.line("  nothing in it is a record: is it a TFRecord file, in this compression?")


def _show_tensors(found: Verification, format: str, out: Output) -> None:
    from tensorbytes.ops.plural import many

    rows = "" if found.rows is None else f", {many(found.rows, 'row')}"
    size = f"{size_text(found.nbytes)} of data"
    unread = f" (and {many(found.unread, 'object')} that no one here reads, or checks)" if found.unread else ""
    head = f"{found.path}: {format_text(format)}, {many(found.tensors, 'tensor')}{rows}, {size}{unread}: "
    if found.damages:
        out.line(head, Cell(f"damaged in {many(len(found.damages), 'place')}", "red"))
        damage_table(found.damages, out)
        from tensorbytes import formats

        if formats.get(format).salvages and any(damage.kind == "file" for damage in found.damages):
            out.line(f"  tb repair {found.path} DST keeps the tensors that are whole, if it was cut off")
        return
    if found.manifest_written:
        out.line(head, Cell("sound", "green"), f"; wrote {found.manifest}")
        return
    checks = [found.checksums] if found.checksums else []
    checks += [f"SHA-256 of each tensor, by {found.manifest}"] if found.manifest else []
    if checks:
        out.line(head, Cell("sound", "green"), f" ({'; '.join(checks)})")
        return
    out.line(head, Cell("readable", "yellow"), "" if found.read is None else " (structure; every byte was read)")
    paragraph("this format has no checksums: a changed value goes unnoticed; --write-manifest makes some", out, "  ")
