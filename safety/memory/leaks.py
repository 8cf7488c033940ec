"""python -m safety.memory.leaks: a million round trips through each hot path, and memory as it was before them.

A path is gone through in laps. After the first one, which fills caches, three things must stand still: the blocks that
Python's allocator has handed out, the bytes that malloc has, and the resident memory of the process. One object lost
in each round would show a millionfold.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

from safety import totals
from safety.memory.paths import PATHS, SLOW

LAPS = 10
# What may come and go without being a leak: a dict that grew, an arena, a page.
MOST_BLOCKS, MOST_MALLOC, MOST_RESIDENT = 300, 1 << 16, 1 << 21


class Level(NamedTuple):
    blocks: int
    objects: int
    malloc: int
    resident: int


_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def _malloc_bytes() -> int:
    """What malloc has given out, in its arenas and as maps; 0 where the C library does not tell."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return 0
    ask.restype = _Mallinfo2
    told = ask()
    return int(told.uordblks + told.hblkhd)


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0


def level() -> Level:
    gc.collect()
    return Level(sys.getallocatedblocks(), len(gc.get_objects()), _malloc_bytes(), _resident())


def _lap(trip: Callable[[], Any], rounds: int) -> None:
    for _ in range(rounds):
        trip()


def measure(trip: Callable[[], Any], rounds: int) -> dict[str, int | float]:
    """How much more there is after the laps than after the first of them."""
    each = max(rounds // LAPS, 1)
    _lap(trip, each)
    level()  # which itself takes something, the first time
    before, started = level(), time.process_time()
    for _ in range(LAPS):
        _lap(trip, each)
    took, after = time.process_time() - started, level()
    return {
        "rounds": each * LAPS,
        "seconds": round(took, 1),
        "blocks": after.blocks - before.blocks,
        "objects": after.objects - before.objects,
        "malloc bytes": after.malloc - before.malloc,
        "resident bytes": after.resident - before.resident,
    }


def leaks(figures: dict[str, int | float]) -> bool:
    return (
        figures["blocks"] > MOST_BLOCKS
        or figures["objects"] > MOST_BLOCKS
        or figures["malloc bytes"] > MOST_MALLOC
        or figures["resident bytes"] > MOST_RESIDENT
    )


def where(trip: Callable[[], Any], rounds: int = 2000) -> str:
    """The lines that keep the most, to be looked at when something leaks."""
    tracemalloc.start(8)
    _lap(trip, rounds)
    before = tracemalloc.take_snapshot()
    _lap(trip, rounds)
    grown = tracemalloc.take_snapshot().compare_to(before, "lineno")
    tracemalloc.stop()
    return "\n".join(f"    {line}" for line in grown[:5])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.memory.leaks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000, help="of each path (1,000,000); of slow ones a fifth")
    parser.add_argument("--only", action="append", choices=PATHS, help="this path; no figures are kept")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    bad = []
    for name in args.only or sorted(PATHS, key=SLOW.__contains__):
        trip = PATHS[name]()
        found[name] = measure(trip, args.rounds // 5 if name in SLOW else args.rounds)
        print(f"{name:32} {found[name]}", flush=True)
        if leaks(found[name]):
            bad.append(name)
            print(where(trip))
        if not args.only:
            paths = {**totals.read("memory").get("leaks", {}).get("paths", {}), **found}  # those of before, until then
            figures = {
                "paths": paths,
                "rounds": sum(figures["rounds"] for figures in paths.values()),
                "leaks": sum(map(leaks, paths.values())),
                "python": platform.python_version(),
            }
            totals.write("memory", {**totals.read("memory"), "leaks": figures})
    print(f"{len(found)} paths, {len(bad)} that leak{': ' if bad else ''}{', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
