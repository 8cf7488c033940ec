"""tb merge: several files into one."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext

from tensorbytes.cli.files import input_files, local
from tensorbytes.cli.output import Cell, Output, size_text
from tensorbytes.cli.split import storing, storing_arguments
from tensorbytes.cli.words import format_text
from tensorbytes.cli.writing import STDOUT, check_free, format_name, replaced, standard_output
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  tb merge train.tfrecord@8 train.tfrecord    the shards of a set, in order
  tb merge 'day-*.parquet' all.parquet        rows after rows
  tb merge a.safetensors b.safetensors both.safetensors
  tb merge *.npy all.npz --prefix stem        tensors named after their files

Records are copied as they are, with their checksums. A tensor's name may be in
one of the files only."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("sources", nargs="+", metavar="SRC", help="files, globs, name@10 or folders, in this order")
    parser.add_argument("target", metavar="DST", help="the file that they become, or - for stdout")
    parser.add_argument("--to", metavar="FORMAT", help="its format; by default its suffix, or the sources'")
    parser.add_argument("--prefix", choices=["stem"], help="stem: the name of its file before that of each tensor")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=["meta"],
        help="where the metadata differ, keep those of the first file",
    )
    storing_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.ops.merging import merge
    from tensorbytes.ops.plural import many

    target = local(args.target)
    piped = target == STDOUT
    if os.path.isdir(target):
        raise UsageError(f"{target} is a folder: name the file, such as {os.path.join(target, 'all.tb')}")
    if not piped:
        check_free(replaced(target), args.force)
    with input_files(args.sources) as found, standard_output() if piped else nullcontext(target) as where:
        with out.progress(f"merging {many(len(found), 'file')}") as progress:
            made = merge(
                [file.path for file in found],
                where,
                format=format_name(args.to),
                prefix=args.prefix,
                allow=args.allow,
                sync=args.sync,
                progress=progress,
                **storing(args, merge),
            )
        made.sources = [file.shown for file in found]
    made.source = made.sources[0] if len(made.sources) == 1 else many(len(made.sources), "file")
    kind = format_text(made.format)
    words = f"({kind}): {many(made.total, made.unit)}, {size_text(made.nbytes)}"
    if piped:
        out.note(f"{made.source} -> stdout {words}")
    elif out.json:
        out.item(made.to_dict())
    else:
        out.line(f"{made.source} -> {target} {words} on disk")
        for change in made.changes:
            out.line("  ", Cell(change, "yellow"))
    return 0
