"""tb stats: how the numbers of each tensor are spread."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tensorbytes.cli.drawing import gathered, histogram, percent
from tensorbytes.cli.files import InputFile, for_each_named
from tensorbytes.cli.output import Cell, Heading, Output
from tensorbytes.cli.reading import names_argument, read_options, reading_arguments, whole_number
from tensorbytes.cli.words import DIM, many, name_cell, shortened

if TYPE_CHECKING:
    from tensorbytes.ops.statistics import Statistics

EXAMPLES = """examples:
  tb stats model.safetensors                 a line for each tensor
  tb stats model.tb::embed.weight            one, its histogram drawn large
  tb stats model.pt --names '*.bias' -H      some, with their histograms
  tb stats train.tfrecord --bins 10          features of all records
  tb stats model.tb --json | jq 'select(.nan > 0)'
                                             what has NaNs in it

Min, max, mean and std are those of the finite numbers. Every number is seen,
and every checksum verified."""

_HEIGHT = 8
_SMALL_BINS = 10
# So many tensors get a large histogram without being asked to.
_FEW = 3
_DEFAULT_BINS = 40
_PASSES = 2  # numbers are seen twice: what is told of the progress is how much of the file is done


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, globs, folders, URLs, or - for stdin")
    names_argument(parser, "tensors or features")
    parser.add_argument("--bins", type=whole_number(1), metavar="N", help=f"columns of the histogram ({_DEFAULT_BINS})")
    parser.add_argument("-H", "--histograms", action="store_true", help="draw the histogram of each")
    reading_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    def look(file: InputFile, names: list[str] | None, several: bool) -> int:
        return _stats(file, names, args, out, several)

    return for_each_named(args.files, args.names, out, look)


def _stats(file: InputFile, names: list[str] | None, args: argparse.Namespace, out: Output, several: bool) -> int:
    from tensorbytes.ops.statistics import stats

    options = read_options(args)
    with out.progress(file.shown) as bar:
        whole = None if not bar.shows else _bytes_to_see(file, names, args)
        found = stats(
            file.path,
            names,
            format=args.format,
            bins=args.bins or _DEFAULT_BINS,
            read_options=options,
            progress=lambda done: bar(done // _PASSES, whole),
        )
    if out.json:
        for plain in found.to_dict().values():
            out.item({"path": file.shown} | plain)
        return 0
    if several:
        out.line(Cell(file.shown, "bold"))
    numbers = [each for each in found.values() if each.dtype != "string"]
    strings = [each for each in found.values() if each.dtype == "string"]
    large = args.histograms or len(numbers) <= _FEW
    if numbers:
        _numbers(numbers, out, small=not large)
    if strings:
        if numbers:
            out.line()
        _strings(strings, out)
    if large:
        for each in numbers:
            _histogram(each, out, len(found) > 1)
    return 0


def _bytes_to_see(file: InputFile, names: list[str] | None, args: argparse.Namespace) -> int | None:
    """What the tensors take in memory, where that is known beforehand."""
    from tensorbytes.ops.inspection import inspect
    from tensorbytes.ops.selection import Selection

    about = inspect(file.path, args.format, read_options=read_options(args))
    selection = Selection(names, None)
    sizes = [tensor.nbytes for tensor in about.tensors if selection.takes(tensor.name)]
    if not about.listed_all or about.lists_records or None in sizes:
        return None
    return sum(size or 0 for size in sizes)


# ---- numbers --------------------------------------------------------------------------


def _numbers(found: list[Statistics], out: Output, small: bool) -> None:
    rows: list[list[str | Cell]] = []
    for each in found:
        kind = each.dtype + ("" if each.kind == "tensor" else f" {each.kind}")
        bars = ""
        if small and each.histogram is not None:
            (bars,) = histogram(gathered(each.histogram.counts, _SMALL_BINS), 1, out.drawable)
        figures = [_figure(each, getattr(each, key)) for key in ("min", "max", "mean", "std")]
        zeros = percent(each.zeros, each.count) if each.zeros and each.dtype != "bool" else ""
        odd = ", ".join(f"{number:,} {label}" for label, number in _oddities(each).items() if number)
        row: list[str | Cell] = [name_cell(each.name), f"|{kind}|" if each.of == "magnitude" else kind]
        rows.append([*row, f"{each.count:,}", *figures, Cell(bars, "cyan"), zeros, Cell(odd, "red")])
    columns = [Heading("name", fold=True, least=24), Heading("dtype", drop=7), Heading("count", right=True, drop=6)]
    columns += [Heading(key, right=True, drop=rank) for key, rank in (("min", 1), ("max", 2), ("mean", 3), ("std", 5))]
    columns += [Heading("spread", drop=4), Heading("zero", right=True, drop=8)]
    columns.append(Heading("not numbers", fold=True))
    kept = [at for at in range(len(columns)) if at < 7 or any(_text(row[at]) for row in rows)]
    out.table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _oddities(each: Statistics) -> dict[str, int]:
    return {"NaN": each.nan, "+Inf": each.positive_inf, "-Inf": each.negative_inf, "missing": each.missing}


def _figure(each: Statistics, number: int | float | None) -> str:
    if number is None:
        return "-"
    if each.earliest is not None and number in (each.min, each.max):
        return str(each.earliest if number == each.min else each.latest)
    if isinstance(number, int):
        return str(number) if abs(number) < 10**8 else f"{number:.4g}"
    return f"{number:.4g}"


def _histogram(each: Statistics, out: Output, named: bool) -> None:
    """Columns of blocks over an axis that tells where they begin and end."""
    if each.histogram is None:
        return
    room = min(out.width, 120) - 12
    counts = gathered(each.histogram.counts, max(room, 10))
    wide = max(min(room // len(counts), 6), 1)
    lines = histogram(counts, _HEIGHT, out.drawable)
    most = f"{max(counts):,.0f}"
    out.line()
    if named:
        out.line("  ", name_cell(each.name))
    for at, line in enumerate(lines):
        label = most if not at else "0" if at == len(lines) - 1 else ""
        out.line(Cell(f"{label:>9} ", DIM), Cell("".join(letter * wide for letter in line).rstrip(), "cyan"))
    # The last edge of integers is one that none of them reaches: the ends are the least and the largest value.
    low, high = _figure(each, each.min), _figure(each, each.max)
    gap = " " * max(len(counts) * wide - len(low) - len(high), 1)
    out.line(" " * 10, Cell(low if low == high else f"{low}{gap}{high}", DIM))


# ---- strings --------------------------------------------------------------------------


def _strings(found: list[Statistics], out: Output) -> None:
    rows: list[list[str | Cell]] = []
    for each in found:
        lengths = each.lengths
        known = lengths is not None and lengths.mean is not None
        figures = [str(lengths.min), str(lengths.max), f"{lengths.mean:.5g}"] if known and lengths else ["-"] * 3
        distinct = "many" if each.distinct is None else f"{each.distinct:,}"
        often = [f'"{shortened(text, 24)}" {count:,}' for text, count in each.frequent if count > 1][:3]
        notes = [f"{many(lengths.empty, 'empty one')}"] if lengths and lengths.empty else []
        notes += [f"{each.missing:,} missing"] if each.missing else []
        row: list[str | Cell] = [name_cell(each.name), f"{each.count:,}", distinct, *figures]
        rows.append([*row, ", ".join([*often, *notes])])
    columns = [Heading("strings", fold=True, least=20), Heading("count", right=True), Heading("distinct", right=True)]
    columns += [Heading(key, right=True, drop=2) for key in ("shortest", "longest", "mean")]
    columns.append(Heading("most frequent", fold=True, drop=1))
    kept = [at for at in range(len(columns)) if at < 6 or any(_text(row[at]) for row in rows)]
    out.table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])
