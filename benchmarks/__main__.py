"""Run the benchmarks. A full run takes about twenty minutes, 4 GB of memory and 4 GB of disk."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from benchmarks import charts, report
from benchmarks.rows import ROWS, run_row

HERE = Path(__file__).parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data and few rounds, to try the harness")
    parser.add_argument("--only", choices=ROWS, action="append", metavar="ROW", help=f"one of {', '.join(ROWS)}")
    parser.add_argument("--out", type=Path, help="folder for results.json, chart.png and benchmarks.md")
    parser.add_argument("--merge", action="store_true", help="put the rows of --only into the results there are")
    parser.add_argument("--redraw", action="store_true", help="tables and chart again from results.json; no timing")
    return parser.parse_args()


def run(names: list[str], quick: bool) -> list[report.Entry]:
    """Each row in a process of its own: some peers crash beside others, and none finds the memory of the row before."""
    entries: list[report.Entry] = []
    for name in names:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            try:
                entries += process.submit(run_row, name, quick).result()
            except BrokenProcessPool:
                raise SystemExit(f"the process that measured {name} died; what crashed is above") from None
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
