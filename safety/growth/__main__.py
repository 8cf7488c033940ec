"""python -m safety.growth [WORDS ...]: times n, 10 n and 100 n of what a sound file may hold, and writes the figures.

With words, only the cases whose names hold one of them. A hundred times as much may take a hundred and fifty times
as long; the exit code is 1 if something takes longer.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import traceback
from pathlib import Path

from safety import totals
from safety.growth.cases import Case, cases

STEPS = (1, 10, 100)
MOST = 150  # times as long for a hundred times as much
TRIES = 3
# Calls are made until they took this many seconds; the quickest counts.
QUICK = 0.2


def measure(case: Case, n: int) -> float:
    """The seconds of the quickest of some calls: those of processors, without waiting.

    Python's collector of cyclic garbage is off: how often it looks at all there is depends on the rest of the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = case.make(n, Path(folder))
        best = spent = 0.0
        gc.collect()
        gc.disable()
        try:
            while spent < QUICK:
                start = time.process_time()
                case.use(made)
                taken = time.process_time() - start
                best, spent = min(best or taken, taken), spent + taken
        finally:
            gc.enable()
        return best


def run(case: Case) -> dict[str, object]:
    times = [measure(case, case.n * step) for step in STEPS]
    for _ in range(TRIES - 1):  # a busy machine: the quickest counts
        if times[-1] <= MOST * times[0]:
            break
        times = [min(before, measure(case, case.n * step)) for before, step in zip(times, STEPS, strict=True)]
    ratio = times[-1] / times[0]
    return {
        "area": case.area,
        "what": case.what,
        "n": case.n,
        "milliseconds": [round(1000 * seconds, 3) for seconds in times],
        "ratio": round(ratio, 1),
        "linear": ratio <= MOST,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.growth", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    options = parser.parse_args()
    chosen = [case for case in cases() if not options.words or any(word in case.name for word in options.words)]
    figures = totals.read("growth") if options.words else {}
    worse = 0
    for case in chosen:
        try:
            row = run(case)
        except Exception:
            traceback.print_exc()
            print(f"{case.name}: failed", flush=True)
            worse += 1
            continue
        figures[case.name] = row
        worse += not row["linear"]
        times = "  ".join(f"{value:10.2f}" for value in row["milliseconds"])
        print(f"{times} ms  {row['ratio']:6.1f}  {'' if row['linear'] else 'NOT LINEAR '}{case.name}", flush=True)
        if not options.dry:
            totals.write("growth", figures)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
