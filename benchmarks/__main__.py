"""Run the benchmarks. A full run takes about twenty minutes, 4 GB of memory and 4 GB of disk."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks import (
    auto_rows,
    charts,
    checkpoint_rows,
    compression_rows,
    file_rows,
    lazy_rows,
    memory_rows,
    npz_rows,
    record_rows,
    report,
    safetensors_rows,
    start_rows,
    table_rows,
    tools_rows,
    torchfile_rows,
)
from benchmarks.memory_rows import QUICK_SCALE, Scale
from benchmarks.record_rows import RecordScale
from benchmarks.timing import QUICK, Effort, Line, measure

HERE = Path(__file__).parent
TENSOR_ROWS: dict[str, Callable[[Scale, Path], Iterator[Line]]] = {
    "small": memory_rows.small,
    "large": memory_rows.large,
    "save": file_rows.save,
    "slice": file_rows.slices,
    "dict": file_rows.tensors,
    "stream": file_rows.stream,
    "torch": memory_rows.torch,
    "many": memory_rows.many,
    "crc": memory_rows.crc,
    "import": start_rows.imports,
    "command": start_rows.command,
    "npz": npz_rows.npz,
    "safetensors": safetensors_rows.safetensors,
    "torchfile": torchfile_rows.torchfile,
    "tables": table_rows.tables,
    "checkpoint": checkpoint_rows.checkpoint,
    "lazy": lazy_rows.lazy,
    "weights": compression_rows.weights,
    "tokenids": compression_rows.tokenids,
    "auto": auto_rows.auto,
    "chunkslice": compression_rows.chunkslice,
    "quantize": compression_rows.quantize,
    "tools": tools_rows.tools,
}
RECORD_ROWS: dict[str, Callable[[RecordScale, Path], Iterator[Line]]] = {
    "records": record_rows.records,
    "wide": record_rows.wide,
    "tokens": record_rows.tokens,
    "images": record_rows.images,
    "sequences": record_rows.sequences,
    "harder": record_rows.harder,
    "random": record_rows.random,
    "write": record_rows.writing,
    "memory": record_rows.memory,
}
ROWS = [*TENSOR_ROWS, *RECORD_ROWS]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data and few rounds, to try the harness")
    parser.add_argument("--only", choices=ROWS, action="append", metavar="ROW", help=f"one of {', '.join(ROWS)}")
    parser.add_argument("--out", type=Path, help="folder for results.json, chart.png and benchmarks.md")
    parser.add_argument("--merge", action="store_true", help="put the rows of --only into the results there are")
    parser.add_argument("--redraw", action="store_true", help="tables and chart again from results.json; no timing")
    return parser.parse_args()


def lines(name: str, quick: bool, folder: Path) -> Iterator[Line]:
    if name in TENSOR_ROWS:
        return TENSOR_ROWS[name](QUICK_SCALE if quick else Scale(), folder)
    return RECORD_ROWS[name](record_rows.QUICK_SCALE if quick else RecordScale(), folder)


def run(names: list[str], quick: bool) -> list[report.Entry]:
    """Measure the rows in a folder beside this file, which is removed afterwards."""
    effort = QUICK if quick else Effort()
    entries = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=HERE) as folder:
            for line in lines(name, quick, Path(folder)):
                started = perf_counter()
                print(f"{line.title} ...", end=" ", file=sys.stderr, flush=True)
                entries.append(report.entry(name, line, measure(line, effort)))
                print(f"{perf_counter() - started:.1f} s", file=sys.stderr)
                print(report.text_table(entries[-1]), flush=True)
    return entries


def merged(old: report.Entry, new: report.Entry) -> report.Entry:
    """The new run, and of the old one the rows that were not run again; both must be of one machine and one effort."""
    if (old["machine"], old["quick"]) != (new["machine"], new["quick"]):
        raise SystemExit("--merge: the results there are come from another machine, or from another kind of run")
    again = {line["row"] for line in new["lines"]}
    lines = [line for line in old["lines"] if line["row"] not in again] + new["lines"]
    return new | {"lines": sorted(lines, key=lambda line: ROWS.index(line["row"]))}


def main() -> None:
    args = arguments()
    complete = not (args.quick or args.only)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    folder = args.out or HERE
    results, chart = folder / "results.json", folder / "chart.png"
    page = folder / "benchmarks.md" if args.out else HERE.parent / "docs" / "benchmarks.md"
    if args.redraw:
        document = json.loads(results.read_text())
    else:
        document = report.document(run(args.only or ROWS, args.quick), args.quick)
        if args.merge:
            document = merged(json.loads(results.read_text()), document)
        elif not complete and not args.out:
            print("nothing written: a partial run goes to a folder given with --out, or --merge", file=sys.stderr)
            return
        results.write_text(json.dumps(document, indent=1) + "\n")
    charts.draw(document, chart)
    charts.draw_summary(document, folder / "summary.png")
    page.write_text(report.markdown(document, "chart.png" if args.out else "../benchmarks/chart.png"))
    print(f"wrote {results.name}, {chart.name}, summary.png and {page.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
