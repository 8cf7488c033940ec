"""python -m safety.fuzz.differential [--seconds N] [--only PAIR] [--part K/N] [--seed S] [--table]

Compares readers for N seconds each. Exit status 1: a difference that is not in divergences.py, whose inputs are then
below safety/fuzz/findings. Counts are added to safety/results/differential.json, unless --dry.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from safety.fuzz.differential import run
from safety.fuzz.differential.listing import KINDS, put_table, table
from safety.fuzz.differential.pair import PAIRS, ROOT, get


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each pair")
    parser.add_argument("--cases", type=int, default=1 << 62, help="at most so many for each pair")
    parser.add_argument("--only", action="append", choices=PAIRS, help="this pair; may be given several times")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the Kth of N parts of the pairs")
    parser.add_argument("--seed", type=int, default=None, help="start a series of its own; else go on where we were")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    parser.add_argument("--table", action="store_true", help="print the list of divergences as Markdown")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put it into this page, between its marks")
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    if options.write is not None:
        options.write.write_text(put_table(options.write.read_text()))
        return 0
    number, parts = map(int, options.part.split("/"))
    tallies = [_one(name, options) for name in options.only or list(PAIRS)[number - 1 :: parts]]
    _print(tallies)
    return 1 if any(tally.findings for tally in tallies) else 0


def _one(name: str, options: argparse.Namespace) -> run.Tally:
    seed = options.seed or 0
    first = run.results().get(name, {}).get("next", 0) if options.seed is None else 0
    tally = run.run(name, seed, first, options.seconds, options.cases, _say)
    _say(tally)
    if not options.dry:
        run.accumulate(tally, get(name).version, seed)
    groups: dict[str, list[run.Case]] = {}
    for case in tally.findings:
        groups.setdefault(run.likeness(case), []).append(case)
    for what, cases in sorted(groups.items(), key=lambda item: -len(item[1]))[:20]:
        print(f"  FINDING x{len(cases)} {what}: {run.keep(name, cases).relative_to(ROOT)}", file=sys.stderr)
    for words, raw in tally.faults.items():
        print(f"  their fault: {words}; first on {raw[:120]}", file=sys.stderr)
    return tally


def _say(tally: run.Tally) -> None:
    rate = tally.cases / max(tally.seconds, 1e-9)
    print(f"{tally.name}: {tally.cases} cases, {rate:.0f}/s, {len(tally.findings)} unlisted", file=sys.stderr)


def _print(tallies: list[run.Tally]) -> None:
    heads = ["pair", "cases", "both read", "both refuse", "theirs only", "ours only", "other values", "unlisted",
             "peer faults", "restarts"]  # fmt: skip
    rows = [
        [t.name, t.cases, *(t.kinds[kind] for kind in KINDS[:5]),
         len(t.findings), t.kinds["peer_faults"], t.restarts]
        for t in tallies
    ]  # fmt: skip
    lines = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    for line in lines:
        print(
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
        )


if __name__ == "__main__":
    sys.exit(main())
