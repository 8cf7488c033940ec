"""python -m safety.machine --steps 100000: run the machine, and note how many steps of each sort held."""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time

from safety import totals
from safety.machine import folder


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.machine", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=100, help="steps of one run at most")
    parser.add_argument("--seed", type=int, help="the same steps again; races and forks may end otherwise")
    parser.add_argument("--shrink", action="store_true", help="look for fewer steps that fail")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    args = parser.parse_args(argv)
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    begun, violation = time.monotonic(), ""
    try:
        folder.run(args.steps, args.length, seed=seed, shrink=args.shrink)
    except BaseException as error:
        violation = f"{type(error).__name__}: {error}"
        raise
    finally:
        seconds, counts = time.monotonic() - begun, folder.Folder.steps
        print(f"{sum(counts.values()):,} steps in {seconds:.0f} s, seed {seed}: {violation or 'no violation'}")
        if not args.dry:
            _note(seconds, seed, violation)
    return 0


def _note(seconds: float, seed: int, violation: str) -> None:
    counts = folder.Folder.steps
    row = {
        "steps": sum(counts.values()),
        "violations": int(bool(violation)),
        "violation": violation,
        "faults": sum(number for what, number in counts.items() if "fault" in what),
        "kills": counts["kill"],
        "damage": sum(number for what, number in counts.items() if what.startswith("damage")),
        "races": sum(number for what, number in counts.items() if what.startswith("race")),
        "seconds": round(seconds),
        "seed": seed,
        "python": platform.python_version(),
        "by rule": dict(sorted(counts.items())),
    }
    totals.write("machine", {"folder": row})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
