"""python -m safety.amplification [--size BYTES] [--only PARSER] [--dry]: the memory that reading takes.

Every structure of inputs.py and records.py is read under the default limits and under 1 MiB, in a process of its own.
It fails where one takes more than max_bytes + 16 times its input + 64 MiB, or raises what is not ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from safety import totals
from safety.amplification import inputs, records

TIMES, SLACK = 16, 64 << 20
LIMITS = {"default": 1 << 30, "1 MiB": 1 << 20}
_SIZE = 4 << 20
_OURS = ("read", "LimitError", "CorruptError", "UnsupportedError", "SchemaError", "UsageError")


def cases(only: str | None = None) -> Iterator[tuple[str, str]]:
    """Each parser, or way to read records, with its generators."""
    for parser, makes in {**inputs.FORMATS, **records.READS}.items():
        if only in (None, parser):
            yield from ((parser, make.__name__) for make in makes)


def run(parser: str, name: str, size: int, max_bytes: int) -> dict[str, Any]:
    """One measurement, and whether it keeps the promise."""
    command = [sys.executable, "-m", "safety.amplification.child", parser, name, str(size), str(max_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        return {"outcome": f"exit {done.returncode}: {done.stderr[-300:]}", "input": 0, "growth": 0, "kept": False}
    found: dict[str, Any] = json.loads(done.stdout)
    bound = max_bytes + TIMES * found["input"] + SLACK
    return found | {"kept": found["growth"] <= bound and found["outcome"] in _OURS}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.amplification", description=__doc__)
    parser.add_argument("--size", type=int, default=_SIZE, help="bytes of each input, about")
    parser.add_argument("--only", help="one parser, or one way to read records")
    parser.add_argument("--dry", action="store_true", help="leave safety/results alone")
    chosen = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = totals.read("amplification") if chosen.only else {}
    found.pop(chosen.only or "", None)
    broken = count = 0
    for name, structure in cases(chosen.only):
        for limits, max_bytes in LIMITS.items():
            row = run(name, structure, chosen.size, max_bytes)
            found.setdefault(name, {}).setdefault(structure, {})[limits] = row
            count += 1
            broken += not row["kept"]
            grown = f"{row['input']:>11,} -> {row['growth']:>13,} bytes"
            print(
                f"{'' if row['kept'] else 'BROKEN '}{name} {structure} ({limits}): {grown}, {row['outcome']}",
                flush=True,
            )
    if not chosen.dry:
        totals.write("amplification", found)
    print(f"{count} measurements, {broken} over the bound")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
