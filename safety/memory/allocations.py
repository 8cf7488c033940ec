"""python -m safety.memory.allocations: every allocation of small calls fails, one after another.

A shim loaded ahead of the C library lets the n-th malloc, calloc or realloc of a call fail, for each n until none is
left to fail. The call must raise MemoryError, or our LimitError, or do without; the same call must then give what it
gave before. Of the kernel's functions, as much memory must be live after a second sweep as after the first. The verbs
above it run on Python and NumPy, which lose some memory themselves then, and now and then raise SystemError or
RuntimeError where they found no memory for a MemoryError: that is counted, and not held against us. A process that
dies is a finding, and another one goes on after it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from safety import totals

HERE = Path(__file__).parent
SHIM = HERE.parents[1] / "build/memory/failing_malloc.so"
# Caches that grow by what a call taught them.
MOST_LIVE = 40
MOST_ALLOCATIONS = 20_000
MOST_CRASHES = 30


def _build() -> bool:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return False
    SHIM.parent.mkdir(parents=True, exist_ok=True)
    source = str(HERE / "failing_malloc.c")
    return not subprocess.run([compiler, "-shared", "-fPIC", "-O2", source, "-o", str(SHIM)]).returncode


def _same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b) if not isinstance(a, np.ndarray) else bool(np.array_equal(a, b))


def sweep(group: str, first_name: str, first: int) -> None:
    """What becomes of the calls from `first_name` on when allocations fail, from number `first` on; line by line."""
    from safety.memory.calls import calls
    from tensorbytes.errors import LimitError

    shim = ctypes.CDLL(str(SHIM))
    fail, left, live = shim.failing_after, shim.failing_left, shim.failing_live
    named = calls()[group]
    names = list(named)
    for name in names[names.index(first_name) :]:
        call, wrong, lost, level = named[name], [], 0, 0
        for _ in range(20):
            expected = call()
        for turn in range(2):
            for number in range(first, MOST_ALLOCATIONS):
                print(json.dumps([name, number]), flush=True)
                raised: BaseException | None = None
                fail(number)
                try:
                    call()
                except (MemoryError, LimitError):
                    pass
                except BaseException as error:
                    raised = error
                finally:
                    over = left() >= 0
                    fail(-1)
                if isinstance(raised, SystemError | RuntimeError) and group == "verbs":
                    lost += 1
                elif raised is not None:
                    wrong.append(f"{number}: {type(raised).__name__}: {raised}"[:300])
                if raised is not None:
                    raised.__traceback__ = raised.__context__ = None
                if over:
                    break
            if not _same(call(), expected):
                wrong.append("the call gives something else afterwards")
            gc.collect()
            grown, level = live() - level, live()
            if turn and group == "kernel" and grown > MOST_LIVE:
                wrong.append(f"{grown} allocations are live that were not before the second sweep")
        found = {"allocations": number, "wrong": sorted(set(wrong)), "of Python": lost}
        print(json.dumps([name, found]), flush=True)
        first = 0


def _swept(group: str, names: list[str]) -> dict[str, dict[str, Any]]:
    environment = {**os.environ, "LD_PRELOAD": str(SHIM), "PYTHONMALLOC": "malloc"}
    found: dict[str, dict[str, Any]] = {}
    crashes: dict[str, list[str]] = {name: [] for name in names}
    name, first = names[0], 0
    while True:
        command = [sys.executable, "-m", "safety.memory.allocations", "--sweep", group, name, "--first", str(first)]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as run:
            assert run.stdout is not None
            for line in run.stdout:
                name, told = json.loads(line)
                if isinstance(told, int):
                    first = told + 1
                    continue
                found[name] = {**told, "crashes": crashes[name]}
                print(f"{group}: {name:34} {told['allocations']:5} allocations", flush=True)
                for text in (*told["wrong"], *(f"CRASH {crash}" for crash in crashes[name])):
                    print(f"    {text}", flush=True)
                if name == names[-1]:
                    run.kill()
                    return found
        crashes[name].append(f"{first - 1}: the process ended with {run.returncode}")
        if len(crashes[name]) > MOST_CRASHES:
            raise SystemExit(f"{group}: {name}: {crashes[name]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.memory.allocations", description=__doc__)
    parser.add_argument(
        "--group", action="append", choices=("kernel", "verbs"), help="these alone; no figures are kept"
    )
    parser.add_argument("--sweep", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sweep:
        group, name = args.sweep
        sweep(group, name, args.first)
        return 0
    if not _build():
        print("allocations can't be made to fail here: no compiler, or another system than Linux")
        return 0
    from safety.memory.calls import calls

    figures: dict[str, Any] = {}
    for group, named in calls().items():
        if group not in (args.group or (group,)):
            continue
        started = time.monotonic()
        swept = _swept(group, list(named))
        figures[group] = {
            "calls": len(swept),
            "failed allocations": sum(found["allocations"] for found in swept.values()),
            "wrong": sum(len(found["wrong"]) for found in swept.values()),
            "crashes": sum(len(found["crashes"]) for found in swept.values()),
            "errors of Python itself": sum(found["of Python"] for found in swept.values()),
            "seconds": round(time.monotonic() - started),
        }
    if not args.group:
        totals.write("memory", {**totals.read("memory"), "allocations": figures})
    print(figures)
    return 1 if any(found["wrong"] or found["crashes"] for found in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
