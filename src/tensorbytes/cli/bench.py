"""tb bench: every format and compression, on your own data."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorbytes.cli.files import input_files
from tensorbytes.cli.output import Cell, Heading, Output
from tensorbytes.cli.writing import byte_count, check_free, force_argument, paragraph
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  tb bench model.safetensors                 what suits these tensors?
  tb bench train.npz --goal size             the smallest files
  tb bench model.pt --formats tb,safetensors --compressions none,zstd,huffman
  tb bench --shape 4096x4096 --dtype bfloat16
                                             made-up weights, without a file
  tb bench model.pt --chart bench.svg

Files are written to a temporary folder and removed. Speeds are GB of raw bytes
in a second, with files in the page cache."""
_MOST_BYTES = 32 << 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file of any format, a URL, or -; none: made-up data")
    parser.add_argument("--goal", default="balanced", choices=("balanced", "size", "speed"), help="what to advise for")
    parser.add_argument("--formats", type=_names, metavar="A,B", help="only these")
    parser.add_argument("--compressions", type=_names, metavar="A,B", help="only these; none: uncompressed")
    parser.add_argument("--chart", metavar="PATH", help="draw sizes and speeds, as .svg or .png")
    force_argument(parser)
    made = parser.add_argument_group("made-up data")
    made.add_argument("--shape", type=_shape, metavar="NxM", help="of a tensor, such as 1024x1024")
    made.add_argument("--dtype", metavar="DTYPE", help="its dtype, such as float32, bfloat16 or int64")
    how = parser.add_argument_group("how it is measured")
    how.add_argument(
        "--most", type=_most, default=_MOST_BYTES, metavar="SIZE", help="this much of the data (32MiB); all"
    )
    how.add_argument("--rounds", type=int, default=5, metavar="N", help="at most so often (5)")
    how.add_argument("--seconds", type=float, default=1.0, metavar="S", help="or so long, for each choice (1.0)")
    how.add_argument(
        "--storage", type=byte_count, default=500_000_000, metavar="SIZE", help="bytes a second of your disk (500MB)"
    )
    how.add_argument("--folder", metavar="PATH", help="where the files go meanwhile")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.file is not None and (args.shape is not None or args.dtype is not None):
        raise UsageError("--shape and --dtype are for made-up data: leave out the file")
    if args.chart is not None:
        _check_chart(args.chart)
        check_free([args.chart], args.force)
    if args.file is None:
        result = _measure(_made_up(args.shape, args.dtype), args, out)
        result.source = "made-up data"
    else:
        with input_files([args.file]) as found:
            if len(found) != 1:
                raise UsageError(f"{args.file} means {len(found)} files: measure one of them")
            result = _measure(found[0].path, args, out)
            result.source = found[0].shown
    if args.chart is not None:
        result.chart(args.chart)
        out.note(f"wrote {args.chart}")
    if out.json:
        out.item(result.to_dict())
    else:
        _show(result, args.file, out)
    return 0


def _measure(data: Any, args: argparse.Namespace, out: Output) -> Any:
    from tensorbytes.ops.benching import bench

    return bench(
        data,
        args.goal,
        formats=args.formats,
        compressions=args.compressions,
        max_bytes=args.most,
        rounds=args.rounds,
        seconds=args.seconds,
        storage=args.storage,
        folder=args.folder,
        progress=False if out.quiet else None,
    )


def _check_chart(path: str) -> None:
    """What would fail after all the measuring shall fail before."""
    import importlib.util

    if not path.lower().endswith((".svg", ".png")):
        raise UsageError(f"{path}: a chart is a .svg or a .png file")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise UsageError(f"{path}: no such folder")
    if path.lower().endswith(".png") and importlib.util.find_spec("matplotlib") is None:
        from tensorbytes.errors import MissingDependencyError

        raise MissingDependencyError("a chart as .png", "chart")


# ---- arguments ---------------------------------------------------------------------


def _names(text: str) -> list[str | None]:
    return [None if name == "none" else name for name in map(str.strip, text.split(",")) if name]


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").strip("[]() ,").split(","))
    except ValueError:
        shape = (-1,)
    if min(shape) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected sizes, such as 1024x1024")
    return shape


def _most(text: str) -> int | None:
    return None if text == "all" else byte_count(text)


def _made_up(shape: tuple[int, ...] | None, dtype: str | None) -> Any:
    """Numbers that are distributed as weights and token ids are; without a shape, some of each."""
    import numpy as np

    rng = np.random.default_rng(0)
    if shape is None and dtype is None:
        return {
            "weights": rng.normal(0, 0.02, (1024, 1024)).astype(np.float32),
            "tokens": np.minimum(rng.zipf(1.3, (256, 512)), 50_256).astype(np.int32),
            "mask": rng.random((256, 512)) < 0.9,
        }
    return _numbers(rng, shape or (1024, 1024), dtype or "float32")


def _numbers(rng: Any, shape: tuple[int, ...], name: str) -> Any:
    import numpy as np

    from tensorbytes import dtypes
    from tensorbytes.errors import UnsupportedError, unknown

    try:
        dtype = dtypes.to_numpy(name)
    except (UnsupportedError, UsageError, KeyError):
        raise unknown("dtype", name, dtypes.DTYPES) from None
    try:
        if dtype == np.bool_:
            return rng.random(shape) < 0.9
        if dtype.kind in "iu":
            most = min(50_256, int(np.iinfo(dtype).max))
            return np.minimum(rng.zipf(1.3, shape), most).astype(dtype)
        if dtype.kind == "c":
            return (rng.normal(0, 0.02, shape) + 1j * rng.normal(0, 0.02, shape)).astype(dtype)
        return rng.normal(0, 0.02, shape).astype(dtype)
    except MemoryError:
        raise UsageError(f"there is no memory for {name} of shape {list(shape)}") from None


# ---- what was found ------------------------------------------------------------------


def _show(result: Any, path: str | None, out: Output) -> None:
    from tensorbytes.ops.benching.result import HEAD, LEFT, METHOD, refusals, row_cells

    advised = result.recommend()
    paragraph(result.headline, out)
    out.line("")
    paragraph(f"{result.goal}: {advised.reason}", out)
    if advised.row is not None:
        out.line("  ", Cell(advised.row.usage, "green"))
        out.line("  ", Cell(_command(result.source if path else None, advised.row), "green"))
    out.line("")
    rows = [row for row in result.ranked() if not row.refused]
    shown = _fitting([HEAD, *map(row_cells, rows)], out.width)
    out.table(
        [Heading(HEAD[at], right=at not in LEFT) for at in shown],
        [_styled([row_cells(row)[at] for at in shown], row is advised.row) for row in rows],
    )
    out.line("")
    paragraph(METHOD, out)
    faults = [f"{row.label}: {row.fault}" for row in result.rows if row.fault]
    for title, lines in (("not lossless:", faults), ("can't hold this:", refusals(result.rows))):
        if lines:
            out.line("")
            out.line(title)
        for line in lines:
            paragraph(line, out, "  ")


def _command(source: str | None, row: Any) -> str:
    """How to make such a file of one that there is."""
    from tensorbytes import formats

    chosen = formats.get(row.format)
    ending = f" --to {row.format}" if chosen.documents else ""
    compression = f" --compression {row.compression}" if row.compression else ""
    unstack = "" if chosen.documents else " --unstack 0"
    target = "OUT" if chosen.documents else f"OUT{chosen.suffixes[0]}"
    return f"tb convert {source or 'FILE'} {target}{ending}{unstack}{compression}"


def _fitting(rows: list[tuple[str, ...]], width: int) -> list[int]:
    """The columns that a terminal has room for; those that say least go first."""
    widths = dict(zip(rows[0], (max(map(len, column)) for column in zip(*rows, strict=True)), strict=True))
    for title in ("read by", "slice", "mmap", "checks"):
        if sum(widths.values()) + 2 * len(widths) > width:
            del widths[title]
    return [at for at, title in enumerate(rows[0]) if title in widths]


def _styled(texts: list[str], best: bool) -> list[str | Cell]:
    return [Cell(text, "bold green" if best else "red" if text == "NO" else "") for text in texts]
