"""Two processes: one is killed at each of its system calls while the other works. 0 lost, 0 mixed.

The first is stopped before a call. The second does its work beside it, and is refused or ends well; then the first is
killed where it stands, and the second, which nobody may hold up now, does its work again. `python -m
safety.crashes.pairs` runs every pair at every call.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tensorbytes as tb
from safety import totals
from safety.crashes import faults
from safety.crashes.judging import Violation, demand
from safety.crashes.running import in_child
from tensorbytes.io import holding

_NUMBER = struct.Struct("<q")
_THERE = [0, 1]  # records that are there before
_FIRST, _SECOND, _THIRD = (10, 11, 12, 13), (20, 21), (30, 31)
FILES = ("x.tb", "x.tfrecord", "x.tfrecord.gz")
_PATIENCE = 0.3  # seconds; the one that is stopped holds its path for no mere moment
FIRSTS, SECONDS = ("append", "append to none", "write over"), ("append", "save", "read")


def _record(number: int) -> dict[str, Any]:
    return {"x": np.full(3, number, np.int64)}


def _opened(path: str, mode: str) -> Any:
    return tb.open(path, mode) if path.endswith(".tb") else tb.RecordWriter(path, mode=mode, sidecar=False)


def _read(path: str) -> list[int]:
    """The records up to where the file is whole."""
    found: list[int] = []
    if not os.path.exists(path):
        return found
    with contextlib.suppress(tb.errors.CorruptError):
        for row in tb.open(path, format="tb") if path.endswith(".tb") else tb.open_records(path, threads=1):
            values = {int(value) for value in row["x"]}
            demand(len(values) == 1, f"a record of two: {row}")
            found.append(values.pop())
    return found


def _first(path: str, how: str, tell: int) -> None:
    """Write four records; after each flush say how many are acknowledged."""
    with _opened(path, "w" if how == "write over" else "a") as writer:
        for count, number in enumerate(_FIRST, 1):
            writer.write(_record(number))
            if count in (2, 3):
                writer.flush()
                os.write(tell, bytes([count]))
    os.write(tell, bytes([len(_FIRST)]))


def _second(path: str, how: str, numbers: tuple[int, ...]) -> str:
    """The other's work: "done", "refused", or what was read."""
    holding._MOMENT_SECONDS = _PATIENCE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if how == "read":
                return json.dumps(_read(path))
            if how == "save" and path.endswith(".tb"):
                tb.save(_record(numbers[0]), path)
            elif how == "save":
                with tb.RecordWriter(path, mode="w", sidecar=False) as writer:
                    writer.write(_record(numbers[0]))
            else:
                with _opened(path, "a") as writer:
                    for number in numbers:
                        writer.write(_record(number))
        except tb.errors.InUseError:
            return "refused"
    return "done"


class Pair:
    """One pair on one sort of file."""

    def __init__(self, name: str, first: str, second: str, folder: str) -> None:
        self.words = f"{first} beside {second}, {name}"
        self._how, self._other = first, second
        self._folder, self._path = folder, os.path.join(folder, name)
        self._base = [] if first == "append to none" else _THERE

    def points(self) -> Iterator[int]:
        """Each call at which the first can be stopped."""
        number = 0
        while self._stopped(number, lambda: None)[0]:
            yield number
            number += 1

    def run(self, number: int) -> str:
        """Stop at a call, have the other work, kill, have the other work again. Raises Violation."""
        beside: list[str] = []
        acknowledged = self._stopped(number, lambda: beside.append(in_child(self._work(_SECOND))))[1]
        self._check(acknowledged, [(self._other, beside[0], _SECOND)])
        after = in_child(self._work(_THIRD))
        demand(after != "refused", "the dead one holds the path")
        self._check(acknowledged, [(self._other, beside[0], _SECOND), (self._other, after, _THIRD)])
        left = [name for name in os.listdir(self._folder) if name.endswith("-lock.tmp")]
        demand(self._other == "read" or not left, f"left {left}")
        return beside[0] if beside[0] in ("done", "refused") else "read"

    def _work(self, numbers: tuple[int, ...]) -> Callable[[], str]:
        return lambda: _second(self._path, self._other, numbers)

    def _stopped(self, number: int, work: Callable[[], Any]) -> tuple[bool, int]:
        """(whether there is such a call, how many records were acknowledged); the first is dead afterwards."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.makedirs(self._folder)
        if self._base:
            with _opened(self._path, "w") as writer:
                for each in self._base:
                    writer.write(_record(each))
        calls, tell = os.pipe()
        wait, go = os.pipe()
        heard, say = os.pipe()
        child = os.fork()
        if not child:
            for fd in (calls, go, heard):
                os.close(fd)
            try:
                shim = faults.Shim()
                shim.watch(self._folder)
                shim.pause(tell, wait)
                _first(self._path, self._how, say)
                shim.stop()
            finally:
                os._exit(0)
        for fd in (tell, wait, say):
            os.close(fd)
        there = False
        while data := os.read(calls, _NUMBER.size):
            if _NUMBER.unpack(data)[0] == number:
                there = True
                work()
                os.kill(child, signal.SIGKILL)
                break
            os.write(go, b"g")
        os.waitpid(child, 0)
        said = os.read(heard, 100)
        for fd in (calls, go, heard):
            os.close(fd)
        return there, max(said, default=0)

    def _check(self, acknowledged: int, others: list[tuple[str, str, tuple[int, ...]]]) -> None:
        found = in_child(lambda: json.dumps(_read(self._path)))
        numbers = json.loads(found)
        said = f"found {numbers}, acknowledged {acknowledged} of {list(_FIRST)}, the other: {others}"
        demand(len(set(numbers)) == len(numbers), f"a record twice: {said}")
        mine = [number for number in numbers if number in _FIRST]
        demand(mine == list(_FIRST[: len(mine)]), f"mixed up: {said}")
        for how, what, given in others:
            there = [number for number in numbers if number in given]
            if how == "append":
                demand(there == (list(given) if what == "done" else []), f"lost or mixed: {said}")
            elif how == "read":
                seen = json.loads(what)
                whole = [*self._base, *_FIRST]
                states = [whole[:end] for end in range(len(whole) + 1)] + [list(_FIRST[:end]) for end in range(5)]
                demand(seen in states, f"a reader saw {seen}: {said}")
        replaced = any(how == "save" and what == "done" for how, what, _ in others)
        if replaced:
            demand(numbers == [others[-1][2][0]] or len(others) == 1, f"saved over, and not alone: {said}")
            return
        demand(len(mine) >= acknowledged, f"acknowledged records are lost: {said}")
        if self._how != "write over":
            demand(numbers[: len(self._base)] == self._base, f"older records are lost: {said}")


def run(every: int, only: str = "") -> tuple[Counter[str], list[str]]:
    """(outcomes, violations) of all pairs at each, or each so many, of the calls."""
    outcomes: Counter[str] = Counter()
    violations = []
    top = tempfile.mkdtemp(prefix="pairs-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        for name in FILES:
            for first in FIRSTS:
                for second in SECONDS:
                    pair = Pair(name, first, second, os.path.join(top, "at"))
                    if only in pair.words:
                        for number in pair.points():
                            if number % every == 0:
                                outcomes["points"] += 1
                                try:
                                    outcomes[pair.run(number)] += 1
                                except Violation as error:
                                    violations.append(f"{pair.words}, call {number}: {error}")
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return outcomes, violations


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.crashes.pairs", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="each so many of the calls")
    parser.add_argument("--only", default="", help="pairs with these words")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    args = parser.parse_args(argv)
    if not faults.loaded():
        with tempfile.TemporaryDirectory(prefix="crashes-") as folder:
            environment = os.environ | {"LD_PRELOAD": faults.build(folder), "OPENBLAS_NUM_THREADS": "1"}
            words = [sys.executable, "-m", "safety.crashes.pairs", *argv]
            return os.spawnve(os.P_WAIT, sys.executable, words, environment)
    begun = time.monotonic()
    outcomes, violations = run(args.every, args.only)
    for text in violations[:20]:
        print(f"VIOLATION {text[-1500:]}")
    seconds = round(time.monotonic() - begun)
    print(f"{outcomes['points']} points in {seconds} s: {dict(outcomes)}, {len(violations)} violations")
    if not args.dry:
        row = {"points": outcomes["points"], "violations": len(violations), "outcomes": dict(outcomes)}
        row |= {"pairs": len(FILES) * len(FIRSTS) * len(SECONDS), "seconds": seconds}
        totals.write("crashes", totals.read("crashes") | {"pairs": row | {"python": platform.python_version()}})
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
