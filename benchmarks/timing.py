"""How calls are timed: contenders take turns, so that noise hits all of them alike.

A sample is the time of `calls` calls in a row. Each round takes one sample of every
contender, starting with another one each time; the median over rounds is reported.
Before anything is timed each contender runs once and its result is checked.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

OURS, PEER, FLOOR = "ours", "peer", "floor"


@dataclass(frozen=True)
class Contender:
    """One call to time: `function(argument)`.

    A floor does less than the task asks for (it keeps no dtype, say): it is shown, but
    nobody is compared with it unless a target names it. `check` gets the first result.
    `after` undoes a call, untimed; a contender with it makes one call per sample.
    """

    name: str
    function: Callable[[Any], Any]
    argument: Any
    check: Callable[[Any], bool]
    role: str = PEER
    after: Callable[[], None] | None = None
    note: str = ""


@dataclass(frozen=True)
class Target:
    """Our speed shall be at least `at_least` times that of the fastest of `against` (empty: any peer).

    Where sizes are measured, the smallest of them shall be at least that many times ours.
    """

    at_least: float
    text: str
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One comparison. `keep_results`: results stay alive until the clock has stopped.

    `warm` touches and frees twice the line's bytes before each sample. That is not neutral:
    it helps contenders whose memory would otherwise be cold, so it gets a line of its own.
    """

    name: str
    title: str
    contenders: Sequence[Contender]
    nbytes: int = 0
    target: Target | None = None
    keep_results: bool = True
    warm: bool = False
    reports_seconds: bool = False  # the calls return their own time, or what else is measured
    unit: str = "s"  # of what is measured; "bytes" of memory, or "size": the bytes that are left of `nbytes`
    note: str = ""


@dataclass(frozen=True)
class Effort:
    """How long to go on: `seconds` for each line, within the bounds on rounds.

    A line whose rounds are so slow that it passes `most_seconds` stops after two of them.
    """

    seconds: float = 6.0
    most_seconds: float = 20.0
    least_rounds: int = 3
    most_rounds: int = 40
    sample_seconds: float = 0.005


QUICK = Effort(seconds=0.1, least_rounds=2, most_rounds=3, sample_seconds=0.0005)


@dataclass
class Result:
    """The samples of one contender, in seconds per call; or why there are none."""

    contender: Contender
    calls: int = 1
    samples: list[float] = field(default_factory=list)
    failed: str = ""

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.samples, q))


def measure(line: Line, effort: Effort) -> list[Result]:
    results = [Result(contender) for contender in line.contenders]
    for result in results:
        _try_out(result, line, effort)
    running = [result for result in results if not result.failed]
    gc.collect()
    gc.disable()
    try:
        _take_rounds(running, line, effort)
    finally:
        gc.enable()
    return results


def _try_out(result: Result, line: Line, effort: Effort) -> None:
    """Check the answer, then find how many calls make a sample."""
    contender = result.contender
    started = perf_counter()
    try:
        out = contender.function(contender.argument)
        elapsed = perf_counter() - started
        right = contender.check(out)
    except Exception as error:  # whatever a library throws is its result here
        result.failed = f"{type(error).__name__}: {error}".splitlines()[0]
        return
    finally:
        if contender.after:
            contender.after()
    if not right:
        result.failed = "gave back something else than it was given"
    elif not contender.after and not line.reports_seconds and elapsed < 20 * effort.sample_seconds:
        del out
        once = min(_sample(contender, 1, line) for _ in range(2))
        result.calls = max(1, round(effort.sample_seconds / max(once, 1e-7)))


def _take_rounds(running: list[Result], line: Line, effort: Effort) -> None:
    started = perf_counter()
    for number in range(effort.most_rounds):
        elapsed = perf_counter() - started
        if elapsed > effort.seconds and number >= (2 if elapsed > effort.most_seconds else effort.least_rounds):
            return
        # Another order each time: what ran before leaves its memory and its file's blocks behind.
        for result in random.Random(number).sample(running, len(running)):
            result.samples.append(_sample(result.contender, result.calls, line))


def _sample(contender: Contender, calls: int, line: Line) -> float:
    """Seconds per call."""
    function, argument = contender.function, contender.argument
    kept: list[Any] = [None] * calls
    if line.warm:
        np.empty(2 * line.nbytes, np.uint8).fill(1)
    if line.keep_results:
        started = perf_counter()
        for index in range(calls):
            kept[index] = function(argument)
        elapsed = perf_counter() - started
    else:
        started = perf_counter()
        for _ in range(calls):
            function(argument)
        elapsed = perf_counter() - started
    if contender.after:
        contender.after()
    return float(kept[0]) if line.reports_seconds else elapsed / calls
