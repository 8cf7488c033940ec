"""tb split: one file into several."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tensorbytes.cli.files import STDIN, STDIN_NAMES, InputFile, input_files, local
from tensorbytes.cli.output import Cell, Heading, Output, size_text
from tensorbytes.cli.words import format_text
from tensorbytes.cli.writing import (
    STDOUT,
    byte_count,
    check_free,
    force_argument,
    format_name,
    format_options,
    named_option,
    parts_of,
    typed,
)
from tensorbytes.errors import UsageError

if TYPE_CHECKING:
    from tensorbytes.ops import Parts

EXAMPLES = """examples:
  tb split train.tfrecord part.tfrecord --shards 8
                            part.tfrecord-00000-of-00008 and so on
  tb split train.parquet part.parquet --rows 100000
  tb split model.npz part.npz --size 500MB
                            part-00000-of-00003.npz, cut between tensors
  tb split model.safetensors out/model.safetensors --size 2GB
                            with the index that other software reads

The order stays, and no record, row or tensor is cut. All files appear together,
when they are whole. tb merge joins them again."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SRC", help="a file of any format, name@10, a glob of records, or -")
    parser.add_argument("target", metavar="DST", help="what the parts are called, without their numbers")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--shards", type=int, metavar="N", help="N files, equally long")
    how.add_argument("--rows", type=int, metavar="N", help="N records, rows or objects in a file")
    how.add_argument(
        "--size", type=byte_count, metavar="SIZE", help="at most this much in a file, such as 500MB or 2GiB"
    )
    parser.add_argument("--to", metavar="FORMAT", help="the parts' format; by default their suffix, or the source's")
    parser.add_argument("--names", action="append", metavar="PATTERN", help="only such tensors (repeatable)")
    storing_arguments(parser)


def storing_arguments(parser: argparse.ArgumentParser) -> None:
    """What split and merge have in common."""
    parser.add_argument("--compression", type=typed, metavar="SPEC", help="auto, zstd, gzip ...; records keep theirs")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=named_option,
        metavar="KEY=VALUE",
        help="another option of the format (repeatable)",
    )
    force_argument(parser)
    parser.add_argument("--no-sync", dest="sync", action="store_false", help="don't wait for the disk")


def storing(args: argparse.Namespace, command: Callable[..., Any]) -> dict[str, Any]:
    options = format_options(args.option, command)
    return options if args.compression is None else {**options, "compression": args.compression}


def run(args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.ops.splitting import split

    target = local(args.target)
    if target == STDOUT:
        raise UsageError("split writes several files: name them")
    if os.path.isdir(target):
        raise UsageError(f"{target} is a folder: name the files, such as {os.path.join(target, 'part.tb')}")
    if not args.force:
        _check_free(target)
    # A glob or name@10 is one source here, which the library takes as it is.
    with input_files([STDIN]) if args.source in STDIN_NAMES else nullcontext([_as_it_is(args.source)]) as found:
        file = found[0]
        with out.progress(f"splitting {file.shown}") as progress:
            made = split(
                file.path,
                target,
                shards=args.shards,
                rows=args.rows,
                nbytes=args.size,
                format=format_name(args.to),
                names=args.names,
                sync=args.sync,
                progress=progress,
                **storing(args, split),
            )
    made.source = file.shown
    if out.json:
        out.item(made.to_dict())
    else:
        _show(made, out)
    return 0


def _as_it_is(argument: str) -> InputFile:
    path = local(argument)
    return InputFile(path, path)


def _check_free(target: str) -> None:
    """Parts of an earlier split are not mixed with new ones."""
    check_free([*parts_of(target), target, f"{target}.index.json"], force=False)


def _show(made: Parts, out: Output) -> None:
    """What went where."""
    from tensorbytes.ops.plural import many

    words = f"{many(made.total, made.unit)}, {size_text(made.nbytes)} on disk"
    out.line(f"{made.source} -> {many(len(made.files), 'file')} ({format_text(made.format)}): {words}")
    for change in made.changes:
        out.line("  ", Cell(change, "yellow"))
    out.table(
        [Heading("  file", fold=True), Heading(f"{made.unit}s", right=True), Heading("size", right=True)],
        [
            (f"  {file}", str(number), size_text(os.path.getsize(file)))
            for file, number in zip(made.files, made.items, strict=True)
        ],
    )
