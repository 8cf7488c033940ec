"""tb info: what is in a file."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tensorbytes.cli.files import InputFile, for_each, input_files, local
from tensorbytes.cli.output import Cell, Heading, Output, size_text, width
from tensorbytes.cli.reading import addressed, read_options, reading_arguments, whole_number
from tensorbytes.cli.words import DIM, format_text, held_text, many, shape_text
from tensorbytes.cli.writing import STDOUT, check_free, force_argument, paragraph, standard_output
from tensorbytes.errors import UsageError

if TYPE_CHECKING:
    from tensorbytes.ops.inspection import Inspection, TensorInfo

EXAMPLES = """examples:
  tb model.safetensors                 the tree of tensors, with their sizes
  tb info --all model.pt               every tensor; --flat: under full names
  tb info --scan all train.tfrecord    look at every record, not the first ones
  tb info data/ *.npz s3://bucket/x.tb a line for each; --each: all about each
  tb info model.pt::encoder            only this group, or this tensor
  tb info model.tb --html page.html    histograms, pictures, records as a page
  tb info model.tb --json | jq .tensors[].name

`tb FILE` is `tb info FILE`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, globs, folders, URLs, or - for stdin")
    parser.add_argument("-a", "--all", action="store_true", help="every tensor, nothing folded or left out")
    parser.add_argument("--flat", action="store_true", help="every tensor under its full name, no tree")
    parser.add_argument("--depth", type=whole_number(1), metavar="N", help="N levels of the tree")
    parser.add_argument("--each", action="store_true", help="all about each of several files")
    parser.add_argument("--scan", type=_scan, metavar="N", help="records to look at: a number, or all (default: 1000)")
    parser.add_argument("--html", metavar="PAGE", help="write a web page about the file; - for stdout")
    force_argument(parser)
    reading_arguments(parser)


def _scan(text: str) -> int | str:
    if text == "all":
        return text
    try:
        found: int = whole_number(1)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of records, or all") from None
    return found


def run(args: argparse.Namespace, out: Output) -> int:
    if args.html is not None and len(args.files) > 1:
        raise UsageError(f"--html makes a page about one file, and {len(args.files)} were given")
    worst = 0
    for at, (files, part) in enumerate(addressed(args.files, None)):
        args.part = part
        with input_files(files) as found:
            worst = max(worst, _show(found, args, out, at > 0))
    return worst


def _show(found: list[InputFile], args: argparse.Namespace, out: Output, apart: bool) -> int:
    if args.html is not None:
        return _report(found, args, out)
    if out.json:
        return for_each(found, out, lambda file: _item(file, args, out))
    if len(found) > 1 and not (args.each or args.all or args.flat or args.depth):
        return _overview(found, args, out)
    return for_each(found, out, lambda file: _details(file, args, out, apart or file is not found[0]))


def _inspect(file: InputFile, args: argparse.Namespace) -> Inspection:
    from tensorbytes.ops.inspection import inspect

    result = inspect(file.path, args.format, scan=args.scan, read_options=read_options(args))
    result.path = file.shown
    for name in args.part or ():
        _narrow(result, name)
    return result


def _narrow(result: Inspection, name: str) -> None:
    """Leave what has that name: a tensor, those that a pattern matches, or a group."""
    from tensorbytes.patterns import goes_by

    every = result.tensors
    result.tensors = [
        tensor
        for tensor in every
        if goes_by(own := tensor.name or "", name) or own.startswith((f"{name}/", f"{name}."))
    ]
    if not result.tensors:
        from tensorbytes.cli.selecting import refuse_name

        refuse_name(result.path, name, [tensor.name for tensor in every])
    result.path = f"{result.path}::{name}"
    result.meta, result.details = {}, {key: text for key, text in result.details.items() if key == "damage"}


def _item(file: InputFile, args: argparse.Namespace, out: Output) -> int:
    result = _inspect(file, args)
    out.item(result.to_dict())
    return _code(result)


def _code(result: Inspection) -> int:
    """What was looked at may turn out to be damaged."""
    return 1 if "damage" in result.details else 0


def _report(found: list[InputFile], args: argparse.Namespace, out: Output) -> int:
    if len(found) != 1:
        raise UsageError(f"--html makes a page about one file, and {len(found)} were given")
    if args.part:
        raise UsageError("--html makes a page about a whole file: leave out what follows ::")
    from tensorbytes.view import report

    file, target = found[0], local(args.html)
    piped = target == STDOUT
    if not piped:
        check_free([target], args.force)
    with out.progress(file.shown) as bar, standard_output("a page") if piped else nullcontext(target) as where:
        summary = report(file.path, where, format=args.format, read_options=read_options(args), progress=bar)
    if piped:
        for line in (f"{file.shown} -> stdout: {size_text(summary.size)}", *summary.notes):
            out.note(line)
    elif out.json:
        out.item({"path": file.shown, "report": summary.to_dict() | {"source": file.shown}})
    else:
        out.line(str(summary))
        for note in summary.notes:
            out.line("  ", Cell(note, DIM))
    return 1 if summary.troubles else 0


# ---- a line each -----------------------------------------------------------------


def _overview(found: list[InputFile], args: argparse.Namespace, out: Output) -> int:
    rows: list[list[str | Cell]] = []
    total = 0

    def look(file: InputFile) -> int:
        nonlocal total
        result = _inspect(file, args)
        total += result.size or 0
        damaged = Cell(result.details.get("damage", ""), "red")
        rows.append([file.shown, format_text(result.format), size_text(result.size), _contents(result, out), damaged])
        return _code(result)

    code = for_each(found, out, look)
    if rows:
        columns = [Heading("file", fold=True, least=24), Heading("format", drop=1), Heading("size", right=True)]
        columns.append(Heading("holds", fold=True, drop=2))
        if any(row[4].text for row in rows if isinstance(row[4], Cell)):
            columns.append(Heading("damage", fold=True))
        out.table(columns, [row[: len(columns)] for row in rows])
        out.line(Cell(f"{many(len(rows), 'file')}, {size_text(total)}", DIM))
    return code


def _alone(tensor: TensorInfo, out: Output) -> str:
    """float32 [2, 3], or int = 5"""
    from tensorbytes.cli.info_tables import kind_text, value_text

    return f"{kind_text(tensor)} {value_text(tensor, out) or shape_text(tensor.shape)}"


def _contents(result: Inspection, out: Output) -> str:
    """500 records of 4 features"""
    item, part = result.units
    if result.size == 0:
        return f"empty: no {item}s"
    if any(tensor.kind == "record" for tensor in result.tensors):
        return many(result.objects, "record") if result.objects is not None else "records"
    alone = result.objects == 1
    kinds: list[list[str | None]] = [[], [], []]  # names of tensors, of plain values, of what is not read
    for tensor in result.tensors:
        kinds[1 if tensor.python else 2 if tensor.kind == "object" else 0].append(tensor.name)
    counts = [len(names if alone else set(names)) for names in kinds]
    parts = held_text(counts[0], counts[1], counts[2], noun=part, join=", " if alone else " and ")
    if not result.listed_all:
        parts = f"over {parts}"
    if result.objects == 1 and not result.lists_records:
        only = result.tensors[0] if len(result.tensors) == 1 else None
        return parts if only is None else _alone(only, out)
    count = many(result.objects, item) if result.objects is not None else f"{item}s"
    return count if not result.tensors else f"{count} of {parts}" if item != "event" else f"{parts}, {count}"


# ---- all about one ---------------------------------------------------------------


def _details(file: InputFile, args: argparse.Namespace, out: Output, apart: bool) -> int:
    from tensorbytes.cli import info_tables

    result = _inspect(file, args)
    if apart:
        out.line()
    size = "" if result.size is None or args.part else size_text(result.size)
    words = [format_text(result.format), size, _contents(result, out), info_tables.amount(result)]
    about = ", ".join(filter(None, words))
    if width(f"{result.path}: {about}") <= out.width:
        out.line(Cell(result.path, "bold"), ": ", about)
    else:
        out.line(Cell(result.path, "bold"), ":")
        paragraph(about, out, "  ")
    info_tables.facts(result, out)
    info_tables.show(result, args, out)
    return _code(result)
