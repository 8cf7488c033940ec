"""tb info: what is in a file."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tensorbytes.cli.files import Source, for_each, sources
from tensorbytes.cli.output import Cell, Column, Output, size_text
from tensorbytes.cli.reading import read_options, reading_arguments, whole_number
from tensorbytes.cli.words import DIM, PARTS, format_text, many, shape_text
from tensorbytes.errors import UsageError

if TYPE_CHECKING:
    from tensorbytes.tools.inspection import Inspection

EXAMPLES = """examples:
  tb model.safetensors                 the tree of tensors, with their sizes
  tb info --all model.pt               every tensor; --flat: under full names
  tb info --scan all train.tfrecord    look at every record, not the first ones
  tb info data/ *.npz s3://bucket/x.tb a line for each; --each: all about each
  tb info model.tb --html page.html    histograms, pictures, records as a page
  tb info model.tb | jq .tensors[].name

`tb FILE` is `tb info FILE`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, globs, folders, URLs, or - for stdin")
    parser.add_argument("-a", "--all", action="store_true", help="every tensor, nothing folded or left out")
    parser.add_argument("--flat", action="store_true", help="every tensor under its full name, no tree")
    parser.add_argument("--depth", type=whole_number(1), metavar="N", help="so many levels of the tree")
    parser.add_argument("--each", action="store_true", help="all about each of several files")
    parser.add_argument("--scan", type=_scan, metavar="N", help="records to look at: a number, or all (default: 1000)")
    parser.add_argument("--html", metavar="REPORT", help="write a page about the file, which needs nothing else")
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
    with sources(args.files) as found:
        if args.html is not None:
            return _report(found, args, out)
        if out.json:
            return for_each(found, out, lambda source: _item(source, args, out))
        if len(found) > 1 and not (args.each or args.all or args.flat or args.depth):
            return _overview(found, args, out)
        return for_each(found, out, lambda source: _details(source, args, out, source is not found[0]))


def _inspect(source: Source, args: argparse.Namespace) -> Inspection:
    from tensorbytes.tools.inspection import inspect

    if "::" in source.path and "://" not in source.path and not os.path.exists(source.path):
        raise UsageError(f"{source.shown}: no such file; parts of files, FILE::NAME, are for tb head, cat and stats")
    result = inspect(source.path, args.format, scan=args.scan, read_options=read_options(args))
    result.path = source.shown
    return result


def _item(source: Source, args: argparse.Namespace, out: Output) -> int:
    result = _inspect(source, args)
    plain = result.as_dict()
    if isinstance(plain["schema"], str):
        import json

        plain["schema"] = json.loads(plain["schema"])
    out.item(plain)
    return _code(result)


def _code(result: Inspection) -> int:
    """What was looked at may turn out to be damaged."""
    return 1 if "damage" in result.details else 0


def _report(found: list[Source], args: argparse.Namespace, out: Output) -> int:
    if len(found) != 1:
        raise UsageError(f"--html makes a page about one file, and {len(found)} were given")
    _check_page(args.html)
    from tensorbytes.viewer import report

    source = found[0]
    with out.progress(source.shown) as bar:
        summary = report(source.path, args.html, format=args.format, read_options=read_options(args), progress=bar)
    if out.json:
        out.item({"path": source.shown, "report": summary.as_dict() | {"source": source.shown}})
    else:
        out.line(str(summary))
        for note in summary.notes:
            out.line("  ", Cell(note, DIM))
    return 1 if summary.troubles else 0


def _check_page(path: str) -> None:
    """A page may take the place of an older one, and of nothing else."""
    if "://" not in path and os.path.isfile(path) and os.path.getsize(path):
        with open(path, "rb") as file:
            start = file.read(64)
        if not start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise UsageError(f"{path} exists already, and is no page: pass another name to --html")


# ---- a line each -----------------------------------------------------------------


def _overview(found: list[Source], args: argparse.Namespace, out: Output) -> int:
    rows: list[list[str | Cell]] = []
    total = 0

    def look(source: Source) -> int:
        nonlocal total
        result = _inspect(source, args)
        total += result.size or 0
        damaged = Cell(result.details.get("damage", ""), "red")
        rows.append([source.shown, format_text(result.format), size_text(result.size), _contents(result), damaged])
        return _code(result)

    code = for_each(found, out, look)
    if rows:
        columns = [Column("file", fold=True, least=24), Column("format", drop=1), Column("size", right=True)]
        columns.append(Column("holds", fold=True, drop=2))
        if any(row[4].text for row in rows if isinstance(row[4], Cell)):
            columns.append(Column("damage", fold=True))
        out.table(columns, [row[: len(columns)] for row in rows])
        out.line(Cell(f"{many(len(rows), 'file')}, {size_text(total)}", DIM))
    return code


def _contents(result: Inspection) -> str:
    """500 records of 4 features"""
    item, part = PARTS.get(result.format, ("object", "tensor"))
    if any(tensor.kind == "record" for tensor in result.tensors):
        return many(result.objects, "record") if result.objects is not None else "records"
    names = {tensor.name for tensor in result.tensors}
    parts = many(len(names) if result.objects != 1 else len(result.tensors), part)
    if not result.listed_all:
        parts = f"over {parts}"
    if result.objects == 1 and result.format not in PARTS:
        only = result.tensors[0] if len(result.tensors) == 1 else None
        return parts if only is None else f"{only.dtype} {shape_text(only.shape)}"
    count = many(result.objects, item) if result.objects is not None else f"{item}s"
    return count if not result.tensors else f"{count} of {parts}" if item != "event" else f"{parts}, {count}"


# ---- all about one ---------------------------------------------------------------


def _details(source: Source, args: argparse.Namespace, out: Output, apart: bool) -> int:
    from tensorbytes.cli import info_tables

    result = _inspect(source, args)
    if apart:
        out.line()
    words = [format_text(result.format), size_text(result.size), _contents(result), info_tables.amount(result)]
    out.line(Cell(source.shown, "bold"), ": ", ", ".join(filter(None, words)))
    info_tables.facts(result, out)
    info_tables.show(result, args, out)
    return _code(result)
