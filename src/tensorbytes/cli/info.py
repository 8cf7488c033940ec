"""tb info: what is in a file."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tensorbytes.cli.files import Source, for_each, local, sources
from tensorbytes.cli.output import Cell, Column, Output, size_text, width
from tensorbytes.cli.reading import addressed, read_options, reading_arguments, whole_number
from tensorbytes.cli.words import DIM, PARTS, format_text, held_text, many, shape_text
from tensorbytes.cli.writing import STDOUT, check_free, force_argument, paragraph, standard_output
from tensorbytes.errors import UsageError

if TYPE_CHECKING:
    from tensorbytes.tools.inspection import Inspection, TensorInfo

EXAMPLES = """examples:
  tb model.safetensors                 the tree of tensors, with their sizes
  tb info --all model.pt               every tensor; --flat: under full names
  tb info --scan all train.tfrecord    look at every record, not the first ones
  tb info data/ *.npz s3://bucket/x.tb a line for each; --each: all about each
  tb info model.pt::encoder            only this group, or this tensor
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
        with sources(files) as found:
            worst = max(worst, _show(found, args, out, at > 0))
    return worst


def _show(found: list[Source], args: argparse.Namespace, out: Output, apart: bool) -> int:
    if args.html is not None:
        return _report(found, args, out)
    if out.json:
        return for_each(found, out, lambda source: _item(source, args, out))
    if len(found) > 1 and not (args.each or args.all or args.flat or args.depth):
        return _overview(found, args, out)
    return for_each(found, out, lambda source: _details(source, args, out, apart or source is not found[0]))


def _inspect(source: Source, args: argparse.Namespace) -> Inspection:
    from tensorbytes.tools.inspection import inspect

    result = inspect(source.path, args.format, scan=args.scan, read_options=read_options(args))
    result.path = source.shown
    for name in args.part or ():
        _narrow(result, name)
    return result


def _narrow(result: Inspection, name: str) -> None:
    """Leave what is called so: a tensor, those that a pattern matches, or a group."""
    from fnmatch import fnmatchcase

    every = result.tensors
    result.tensors = [
        tensor
        for tensor in every
        if (own := tensor.name or "") == name or fnmatchcase(own, name) or own.startswith((f"{name}/", f"{name}."))
    ]
    if not result.tensors:
        from tensorbytes.cli.selecting import refuse_name

        refuse_name(result.path, name, [tensor.name for tensor in every])
    result.path = f"{result.path}::{name}"
    result.meta, result.details = {}, {key: text for key, text in result.details.items() if key == "damage"}


def _item(source: Source, args: argparse.Namespace, out: Output) -> int:
    result = _inspect(source, args)
    plain = result.as_dict()
    plain["tensors"] = [_told(tensor) for tensor in plain["tensors"]]
    if isinstance(plain["schema"], str):
        import json

        plain["schema"] = json.loads(plain["schema"])
    out.item(plain)
    return _code(result)


def _told(tensor: dict[str, Any]) -> dict[str, Any]:
    """What there is to tell of a tensor: most of what could be said is about records, or about compression."""

    def tells(key: str, value: Any) -> bool:
        return key == "name" or (value is not None and (key == "value" or not (value is False or value in ("", {}))))

    return {key: value for key, value in tensor.items() if tells(key, value)}


def _code(result: Inspection) -> int:
    """What was looked at may turn out to be damaged."""
    return 1 if "damage" in result.details else 0


def _report(found: list[Source], args: argparse.Namespace, out: Output) -> int:
    if len(found) != 1:
        raise UsageError(f"--html makes a page about one file, and {len(found)} were given")
    if args.part:
        raise UsageError("--html makes a page about a whole file: leave out what is behind ::")
    from tensorbytes.viewer import report

    source, target = found[0], local(args.html)
    piped = target == STDOUT
    if not piped:
        check_free([target], args.force)
    with out.progress(source.shown) as bar, standard_output("a page") if piped else nullcontext(target) as where:
        summary = report(source.path, where, format=args.format, read_options=read_options(args), progress=bar)
    if piped:
        for line in (f"{source.shown} -> stdout: {size_text(summary.size)}", *summary.notes):
            out.note(line)
    elif out.json:
        out.item({"path": source.shown, "report": summary.as_dict() | {"source": source.shown}})
    else:
        out.line(str(summary))
        for note in summary.notes:
            out.line("  ", Cell(note, DIM))
    return 1 if summary.troubles else 0


# ---- a line each -----------------------------------------------------------------


def _overview(found: list[Source], args: argparse.Namespace, out: Output) -> int:
    rows: list[list[str | Cell]] = []
    total = 0

    def look(source: Source) -> int:
        nonlocal total
        result = _inspect(source, args)
        total += result.size or 0
        damaged = Cell(result.details.get("damage", ""), "red")
        rows.append([source.shown, format_text(result.format), size_text(result.size), _contents(result, out), damaged])
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


def _alone(tensor: TensorInfo, out: Output) -> str:
    """float32 [2, 3], or int = 5"""
    from tensorbytes.cli.info_tables import kind_text, value_text

    return f"{kind_text(tensor)} {value_text(tensor, out) or shape_text(tensor.shape)}"


def _contents(result: Inspection, out: Output) -> str:
    """500 records of 4 features"""
    item, part = PARTS.get(result.format, ("object", "tensor"))
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
    if result.objects == 1 and result.format not in PARTS:
        only = result.tensors[0] if len(result.tensors) == 1 else None
        return parts if only is None else _alone(only, out)
    count = many(result.objects, item) if result.objects is not None else f"{item}s"
    return count if not result.tensors else f"{count} of {parts}" if item != "event" else f"{parts}, {count}"


# ---- all about one ---------------------------------------------------------------


def _details(source: Source, args: argparse.Namespace, out: Output, apart: bool) -> int:
    from tensorbytes.cli import info_tables

    result = _inspect(source, args)
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
