"""tb diff: two files, tensor by tensor."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorbytes.cli.files import STDIN_NAMES, input_files
from tensorbytes.cli.output import Cell, Heading, Output, width
from tensorbytes.cli.writing import format_name, paragraph
from tensorbytes.errors import UsageError
from tensorbytes.ops.addressing import Address, parse_address

EXAMPLES = """examples:
  tb diff model.safetensors model.npz        other formats, the same tensors?
  tb diff before.pt after.pt --names 'head.*'
  tb diff fp32.tb fp16.tb --rtol 1e-3        fine if all numbers are that close
  tb diff a.npz::w[0:4] b.pt::weight[0:4]    two tensors, or parts of them
  tb diff -q a.tb b.tb && echo same          the exit code alone

Exit code: 0 identical or within the tolerance, 1 different, 2 unreadable.
Identical is bit for bit, -0.0 and NaNs included. Metadata is shown, but does
not count."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("a", metavar="A", help="a file, a URL, - for stdin, or a tensor of a file: file::name[0:4]")
    parser.add_argument("b", metavar="B", help="another one, of any format")
    parser.add_argument("--names", action="append", metavar="PATTERN", help="only such tensors (repeatable)")
    parser.add_argument("--rtol", type=float, metavar="X", help="accept a relative difference of up to X")
    parser.add_argument("--atol", type=float, metavar="X", help="accept an absolute difference of up to X")
    parser.add_argument("--all", action="store_true", help="list tensors that are identical, too")
    parser.add_argument("--from", dest="formats", action="append", default=[], metavar="FORMAT", help="of A, then of B")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.a in STDIN_NAMES and args.b in STDIN_NAMES:
        raise UsageError("only one of the two can be -: stdin is read once")
    if any(tolerance is not None and not tolerance >= 0 for tolerance in (args.rtol, args.atol)):
        raise UsageError("a tolerance is a number from 0 on, such as --rtol 1e-3")
    if len(args.formats) > 2:
        raise UsageError("--from is given at most twice: for A, then for B")
    given = [*map(format_name, args.formats), None, None]
    addresses = [parse_address(text) for text in (args.a, args.b)]
    if any(address != Address(text) for address, text in zip(addresses, (args.a, args.b), strict=True)):
        result = _parts(addresses, given)
    else:
        result = _files(args, given, out)
    tolerant = args.rtol is not None or args.atol is not None
    close = result.close(args.rtol or 0.0, args.atol or 0.0)
    same = close if tolerant else result.identical
    if out.json:
        if not out.quiet:
            out.item(result.to_dict() | ({"close": close} if tolerant else {}))
    elif not out.quiet:
        _show(result, close if tolerant else None, args.all, out)
    return 0 if same else 1


def _files(args: argparse.Namespace, given: Sequence[str | None], out: Output) -> Any:
    from tensorbytes.ops.difference import diff

    with input_files([args.a]) as one, input_files([args.b]) as two:
        for found, argument in ((one, args.a), (two, args.b)):
            if len(found) != 1:
                raise UsageError(f"{argument} means {len(found)} files: compare one with one")
        path = one[0].path
        total = os.path.getsize(path) if os.path.isfile(path) else None
        with out.progress(f"comparing {one[0].shown}") as progress:
            result = diff(
                path,
                two[0].path,
                a_format=given[0],
                b_format=given[1],
                names=args.names,
                progress=lambda done: progress(min(done, total) if total else done, total),
            )
        result.a, result.b = one[0].shown, two[0].shown
        return result


def _parts(addresses: list[Address], given: Sequence[str | None]) -> Any:
    """One tensor with another, or parts of them; what one of the two does not say is as in the other."""
    from tensorbytes.cli.selecting import SelectedValue, select
    from tensorbytes.ops.difference import diff_values

    one, two = addresses
    both = [_completed(one, two), _completed(two, one)]
    values = []
    for address, format in zip(both, given, strict=False):
        part = select(address, format, {})
        if not isinstance(part, SelectedValue):
            raise UsageError(f"{address}: compare tensors with tensors; of records, whole files are compared")
        values.append((part.name, part.value()))
    (name, first), (_, second) = values
    return diff_values(first, second, (str(both[0]), str(both[1])), name or "tensor")


def _completed(address: Address, other: Address) -> Address:
    if address.name is None and address.number is None and address.index is None:
        return replace(other, path=address.path)
    return address


# ---- tables ------------------------------------------------------------------------


def _show(result: Any, close: bool | None, everything: bool, out: Output) -> None:
    different = [tensor for tensor in result.tensors if not tensor.identical]
    out.line(f"{result.a} | {result.b}: ", _verdict(result, close, different))
    if result.rows is not None and result.rows[0] != result.rows[1]:
        out.line(f"  rows: {result.rows[0]} | {result.rows[1]}")
    for where, names in (("A", result.only_in_a), ("B", result.only_in_b)):
        for name in names:
            out.line(f"  only in {where}: ", Cell(name, "bold"))
    for one, two in result.renamed:
        out.line("  the same under two names: ", Cell(one, "bold"), " | ", Cell(two, "bold"))
    _tensors(result.tensors if everything else different, out)
    for key, (one, two) in result.meta.items():
        out.line(f"  metadata {key}: {_quoted(one)} | {_quoted(two)}")


_TITLES = ("  name", "dtype", "shape", "differ", "max abs", "max rel", "cosine", "")


def _tensors(tensors: list[Any], out: Output) -> None:
    """A row for each; where a terminal is too narrow for that, a line with its name and one with the rest."""
    rows = [_row(tensor) for tensor in tensors]
    texts = [_TITLES, *([cell.text if isinstance(cell, Cell) else cell for cell in row] for row in rows)]
    widths = [max(map(width, column)) for column in zip(*texts, strict=True)]
    if not rows:
        return
    if sum(widths) + 2 * len(widths) <= out.width:
        numbers = range(3, 7)
        out.table([Heading(title, right=at in numbers) for at, title in enumerate(_TITLES)], rows)
        return
    for name, dtype, shape, *rest in rows:
        out.line(name)
        words = [_LABELS[at].format(cell) for at, cell in enumerate(rest) if cell]
        paragraph(f"{dtype} {shape}: {', '.join(words)}", out, "    ")


# Of the columns after the shape, when they stand in a sentence.
_LABELS = ("{} differ", "max abs {}", "max rel {}", "cosine {}", "{}")


def _verdict(result: Any, close: bool | None, different: list[Any]) -> Cell:
    from tensorbytes.ops.plural import many

    if result.identical:
        number = len(result.tensors)
        rows = "" if result.rows is None else f", {many(result.rows[0], 'row')}"
        return Cell(f"identical ({many(number, 'tensor')}{rows})", "green")
    words = []
    if different:
        words.append(f"{len(different)} of {many(len(result.tensors), 'common tensor')} differ")
    lonely = len(result.only_in_a) + len(result.only_in_b)
    if lonely:
        words.append(f"{lonely} in one of them only")
    if not words:
        words.append("other numbers of rows")
    if close is not None:
        words.append("within the tolerance" if close else "beyond the tolerance")
    return Cell(", ".join(words), "yellow" if close else "red")


def _row(tensor: Any) -> list[str | Cell]:
    numbers = tensor.numbers
    dtype = _both(*tensor.dtypes)
    shape = _both(*map(_shape, tensor.shapes))
    name = Cell(f"  {tensor.name}", "bold")
    if tensor.identical:
        return [name, dtype, shape, "0", "", "", "", "identical"]
    if tensor.why:
        # A change of the shape is seen in its own column.
        why = "other shape" if tensor.why.startswith("shape [") else tensor.why
        return [name, dtype, shape, "", "", "", "", why]
    cosine = "" if numbers.cosine is None else f"{numbers.cosine:.6g}"
    remark = f"NaN {numbers.nan_a} | {numbers.nan_b}" if numbers.nan_a or numbers.nan_b else ""
    if not numbers.differing:
        return [name, dtype, shape, "0", "0", "0", cosine, remark or "equal numbers, other bits"]
    count = f"{numbers.differing} of {numbers.elements}"
    return [name, dtype, shape, count, f"{numbers.max_abs:.3g}", f"{numbers.max_rel:.3g}", cosine, remark]


def _both(one: str, two: str) -> str:
    return one if one == two else f"{one} | {two}"


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"


def _quoted(text: str | None) -> str:
    return "nothing" if text is None else repr(text)
