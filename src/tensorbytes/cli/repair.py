"""tb repair: what is whole of a damaged file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tensorbytes.cli.files import input_files, local
from tensorbytes.cli.output import Cell, Heading, Output, size_text
from tensorbytes.cli.writing import STDOUT, check_free, force_argument, format_name, replaced, standard_output
from tensorbytes.errors import UsageError

if TYPE_CHECKING:
    from tensorbytes.damage import Damage
    from tensorbytes.ops import Repair

EXAMPLES = """examples:
  tb repair broken.tfrecord fixed.tfrecord
  tb repair train.tfrecord --in-place     what is damaged is then lost for good
  tb repair - - < broken.tfrecord > fixed.tfrecord
  tb repair broken.npz fixed.npz          the tensors whose checksums are right
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
    parser.add_argument("--from", dest="format", metavar="FORMAT", help="the format, where the bytes don't tell")
    parser.add_argument("--in-place", action="store_true", help="replace SRC by its repaired self")
    force_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.ops import repair
    from tensorbytes.ops.repairing import is_same

    if args.in_place is (args.target is not None):
        raise UsageError("say where the repaired file goes: tb repair SRC DST, or tb repair SRC --in-place")
    with input_files([args.source]) as found:
        if len(found) > 1:
            raise UsageError(f"{args.source} means {len(found)} files: repair them one at a time")
        file = found[0]
        if args.in_place and file.path != local(args.source):
            raise UsageError(f"--in-place needs the path of a file, not {args.source}")
        target = file.path if args.in_place else local(args.target)
        piped = target == STDOUT
        if not (piped or is_same(file.path, target)):  # what is replaced by itself is asked about by repair
            check_free(replaced(target), args.force)
        with (
            standard_output() if piped else nullcontext(target) as where,
            out.progress(f"repairing {file.shown}") as progress,
        ):
            made = repair(file.path, where, format_name(args.format), replace=args.in_place, progress=progress)
    made.path = file.shown
    if piped:
        out.note(f"{made.path} -> stdout: {_kept(made)}")
    elif out.json:
        out.item(made.to_dict())
    else:
        certain = not made.ok or made.checksums
        style = "yellow" if not made.ok else "green" if certain else ""
        doubt = "" if certain else "; this format has no checksums, so damage can't be noticed"
        out.line(f"{made.path} -> {made.target}: ", Cell(_kept(made), style), doubt)
        damage_table(made.damages, out)
    return 0 if made.ok else 1


def _kept(made: Repair) -> str:
    from tensorbytes.ops.plural import many

    if made.records is None:
        kept = many(made.tensors, "tensor")
        if made.ok:
            return f"{kept} copied, nothing was damaged" if made.checksums else f"{kept} copied"
        return f"{kept} kept, {made.lost_tensors} lost"
    kept = many(made.records, "record")
    places = many(len(made.damages), "place")
    return f"{kept}, nothing was damaged" if made.ok else f"{kept} kept, {size_text(made.lost)} lost in {places}"


def damage_table(damages: Sequence[Damage], out: Output) -> None:
    """Where a file is damaged: which of its records, and which of its tensors."""
    records = [damage for damage in damages if damage.record is not None]
    tensors = [damage for damage in damages if damage.record is None]
    if records:
        out.table(
            [
                Heading("  record", right=True),
                Heading("bytes"),
                Heading("lost", right=True),
                Heading("what", fold=True),
            ],
            [
                (
                    str(damage.record),
                    f"{damage.start} to {damage.end}",
                    "" if damage.recovered else size_text(damage.size),
                    damage.what,
                )
                for damage in records
            ],
        )
    if tensors:
        out.table(
            [Heading("  tensor", fold=True), Heading("byte", right=True), Heading("what", fold=True)],
            [
                (
                    f"  {'(the file)' if damage.name is None else damage.name}",
                    "" if damage.start is None else str(damage.start),
                    damage.what,
                )
                for damage in tensors
            ],
        )
