"""python -m safety.figures docs/safety-figures.md: writes the page of the figures in safety/results."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safety import totals

_HEAD = """# Figures of the campaigns

<!-- Written by `python -m safety.figures docs/safety-figures.md`; edit safety/figures.py instead. -->

How much was run of [what was tried](safety.md). Fuzzing and comparisons add up over all runs; the other rows show the
last run. The figures are those of `safety/results`.
"""
_COST = """Milliseconds of processor time, the quickest of several calls, with Python's garbage collector off. The last
column is the time for 100 n beside that for n: a hundred where cost is linear, ten thousand where it is quadratic. What
took over 150 times as long was timed up to three times, and the quickest kept. Rows are from several runs, on a busy
machine."""
_CTRL_C = """On gigabytes of zeros, a third of a second after the call began."""
_DIFFERENCES = "[listed](safety.md#where-others-decide-otherwise)"
_TIERS = ("coverage_guided", "mutation")
_FILESYSTEMS = ("ext4", "ext4 writeback", "xfs", "btrfs")

_GROWTH_HEAD = """The structure that took most for its bytes, of those that `safety/amplification` makes: the input,
the growth of the process at its peak, and how many times the input that is. The promise is `max_bytes` + 16 times
the input + 64 MiB; `max_bytes` is 1 GiB by default, so that a small input that claims much may take it.
"""
# What Python, NumPy and the readers' own buffers may take, whatever the input.
_SLACK = 64 << 20

Row = tuple[str, str, str]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _kernel() -> Iterator[Row]:
    figures = totals.read("fuzz_kernel")
    executions, seconds = (sum(row[what] for row in figures.values()) for what in ("executions", "seconds"))
    said = f"{executions:,} executions of {len(figures)} targets in {_hours(seconds)}; nothing open"
    yield "the kernel under ASan and UBSan, libFuzzer", said, "python -m safety.fuzz.kernel"


def _parsers() -> Iterator[Row]:
    figures = totals.read("fuzz_parsers")["targets"]
    guided, mutated = (sum(row[tier]["executions"] for row in figures.values()) for tier in _TIERS)
    seconds = sum(row[tier]["seconds"] for row in figures.values() for tier in _TIERS)
    each: Counter[str] = Counter()
    for row in figures.values():
        each[row["parser"]] += sum(row[tier]["executions"] for tier in _TIERS)
    said = f"{guided:,} executions guided by coverage and {mutated:,} mutations in {_hours(seconds)}"
    least = f"{min(each.values()):,} or more of each parser; nothing open"
    what = f"{len(each)} parsers in Python, by {len(figures)} targets"
    yield what, f"{said}; {least}", "python -m safety.fuzz.parsers"


def _differential() -> Iterator[Row]:
    figures = totals.read("differential")
    cases, seconds, faults, unlisted = (
        sum(row[what] for row in figures.values()) for what in ("cases", "seconds", "peer_faults", "unlisted")
    )
    listed = f"all differences but {unlisted} are {_DIFFERENCES}" if unlisted else f"every difference is {_DIFFERENCES}"
    said = f"{cases:,} inputs in {_hours(seconds)}; {listed}; {faults:,} crashes of the others"
    yield f"{len(figures)} comparisons with other libraries", said, "python -m safety.fuzz.differential"


def _sweeps() -> Iterator[Row]:
    figures = totals.read("sweeps")
    cases, reads = figures["cases"], figures["reads"]
    areas = f"{len(figures['areas'])} areas" + ("" if figures["complete"] else ", more to come")
    said = f"{cases:,} files, read {reads:,} times; {areas}"  # type: ignore[str-bytes-safe]
    yield "every truncation, every flipped bit", said, "python -m tests.support.sweeps.run"


def _crashes() -> Iterator[Row]:
    figures = totals.read("crashes")
    for kind, what, command in (
        ("faults", "kills, failing and short calls at every call of a writer", "python -m safety.crashes"),
        ("model", "power cuts of a modelled disk", "python -m safety.crashes --what model"),
    ):
        row = figures[kind]
        said = f"{row['points']:,} points of {row['scenarios']} ways to write; {row['violations']} violations"
        yield what, said, command
    if (row := figures.get("pairs")) is not None:
        said = f"{row['points']:,} points of {row['pairs']} pairs; {row['violations']} violations"
        yield "two processes, one killed at every call beside the other", said, "python -m safety.crashes.pairs"
    cut = [figures[name] for name in _FILESYSTEMS if name in figures]
    names = ", ".join(name for name in _FILESYSTEMS if name in figures)
    said = f"{sum(row['points'] for row in cut):,} cuts; {sum(row['violations'] for row in cut)} violations"
    yield f"power cuts of real filesystems ({names})", said, "python -m safety.crashes --power --core --every 3"


def _machine() -> Iterator[Row]:
    if (row := totals.read("machine").get("folder")) is None:
        return
    died = f"{row['faults']:,} killed or failed midway, {row['kills']:,} killed between steps, {row['races']:,} races"
    said = f"{row['steps']:,} steps ({died}) in {_hours(row['seconds'])}; {row['violations']} violations"
    yield "writers, readers, damage and lies on one folder", said, "python -m safety.machine"


def _memory() -> Iterator[Row]:
    figures = totals.read("memory")
    leaks, failed = figures["leaks"], figures["allocations"]
    each = [path["rounds"] for path in leaks["paths"].values()]
    said = f"{sum(each):,} over {len(each)} paths, {min(each):,} to {max(each):,} each; {leaks['leaks']} leaks"
    yield "round trips with memory watched", said, "python -m safety.memory.leaks"
    count, wrong, not_ours = (
        sum(row[what] for row in failed.values()) for what in ("failed allocations", "wrong", "errors of Python itself")
    )
    said = f"{count:,}; {wrong} ended wrongly, {not_ours} in errors of Python's and NumPy's own; no crash"
    yield "allocations that fail", said, "python -m safety.memory.allocations"
    if (row := figures.get("sanitizers: address,undefined")) is not None:
        others = len(row["failed for other reasons"])
        said = f"{row['tests']:,} tests; {row['findings']} findings; {others} failed for other reasons"
        yield "the suite with the kernel under ASan and UBSan", said, "python -m safety.memory.sanitize"
    if (row := figures.get("free-threaded")) is not None:
        said = f"{row['passed']:,} passed, {len(row['failed'])} failed, {row['lacking a package']} lack a package there"
        yield f"tests on CPython {row['python']} without its lock", said, "python -m safety.memory.freethreaded PYTHON"
    if (row := figures.get("sanitizers: thread")) is not None:
        said = f"{row['calls']:,} calls from 16 threads; {row['findings']} findings"
        yield "the kernel under ThreadSanitizer", said, "python -m safety.memory.sanitize --threads 20"


def _growth() -> Iterator[Row]:
    if figures := totals.read("growth"):
        rows = list(figures.values())
        linear = sum(row["linear"] for row in rows)
        said = f"{linear} of {len(rows)} within 150 times for a hundred times as much: [below](#cost-that-grows)"
        yield "time for n, 10 n and 100 n of what a file holds", said, "python -m safety.growth"
    if figures := totals.read("interrupts"):
        times = [row["seconds"] for row in figures.values() if row["seconds"] is not None]
        said = f"{sum(seconds <= 1 for seconds in times)} of {len(times)} long calls end within a second"
        yield "Ctrl-C in a long call", f"{said}: [below](#ctrl-c)", "python -m safety.interrupts"


def _cost() -> Iterator[str]:
    yield "| | what | n | ms for n | 10 n | 100 n | times |"
    yield "| --- | --- | --: | --: | --: | --: | --: |"
    for row in totals.read("growth").values():
        times = " | ".join(f"{value:,.2f}" for value in row["milliseconds"])
        yield f"| {row['area']} | {row['what']} | {row['n']:,} | {times} | {row['ratio']:.0f} |"


def _interrupts() -> Iterator[str]:
    yield "| call | seconds from SIGINT to the end of the process |"
    yield "| --- | --: |"
    for name, row in totals.read("interrupts").items():
        yield f"| {name} | {'over before' if row['seconds'] is None else row['seconds']} |"


def _targets() -> Iterator[str]:
    yield "| parser | target | executions | edges | hours |"
    yield "| --- | --- | --: | --: | --: |"
    for name, row in sorted(totals.read("fuzz_kernel").items()):
        yield f"| the kernel | {name} | {row['executions']:,} | {row['edges']:,} | {row['seconds'] / 3600:.2f} |"
    targets = totals.read("fuzz_parsers")["targets"]
    for name, row in sorted(targets.items(), key=lambda item: (item[1]["parser"], item[0])):
        executions, seconds = (sum(row[tier][what] for tier in _TIERS) for what in ("executions", "seconds"))
        yield f"| {row['parser']} | {name} | {executions:,} | {row['edges']:,} | {seconds / 3600:.2f} |"


def _tables() -> Iterator[str]:
    """What is there once it was run."""
    if totals.read("growth"):
        yield from ("## Cost that grows", "", _COST, "", *_cost(), "")
    if totals.read("interrupts"):
        yield from ("## Ctrl-C", "", _CTRL_C, "", *_interrupts(), "")
    if totals.read("amplification"):
        yield from ("## Memory, reader by reader", "", _GROWTH_HEAD, *_readers(), "")


def _amplification() -> Iterator[Row]:
    if not (figures := totals.read("amplification")):
        return
    rows = [row for structures in figures.values() for limits in structures.values() for row in limits.values()]
    broken = sum(not row["kept"] for row in rows)
    said = f"{len(rows)} measurements of {len(figures)} readers; {broken} over the bound"
    yield "structures that grow when they are read", said, "python -m safety.amplification"


def _readers() -> Iterator[str]:
    yield "| reader | under the default limits | | | under 1 MiB | | |"
    yield "| --- | --- | --: | --: | --- | --: | --: |"
    for reader, structures in sorted(totals.read("amplification").items()):
        cells = []
        for limits in ("default", "1 MiB"):
            rows = [(name, found[limits]) for name, found in structures.items() if limits in found]
            if not rows:  # not measured yet
                cells += ["", "", ""]
                continue
            name, row = max(rows, key=_share)
            times = f"{row['growth'] / max(row['input'], 1):,.1f}"
            cells += [name.replace("_", " "), f"{row['input'] / 1024:,.0f} KiB", f"{_mebibytes(row)} MiB, {times}x"]
        yield f"| {reader} | {' | '.join(cells)} |"


def _mebibytes(row: dict[str, Any]) -> str:
    return f"{row['growth'] / (1 << 20):,.0f}"


def _share(item: tuple[str, dict[str, Any]]) -> float:
    """How much was taken for each byte, where the fixed part of the promise is left out."""
    row = item[1]
    return float(max(row["growth"] - _SLACK, 0) / max(row["input"], 1) + row["growth"] / (1 << 50))


def page() -> str:
    rows: list[Row] = []
    for part in (_sweeps, _kernel, _parsers, _differential, _crashes, _machine, _memory, _growth, _amplification):
        rows += part()
    lines = ["| what was run | how much | command to repeat it |", "| --- | --- | --- |"]
    lines += [f"| {what} | {said} | `{command}` |" for what, said, command in rows]
    fuzzing = ["## Fuzzing, target by target", "", *_targets(), ""]
    return "\n".join([_HEAD, "## What was run", "", *lines, "", *fuzzing, *_tables()])


def main(arguments: list[str]) -> Any:
    if len(arguments) != 1:
        return "usage: python -m safety.figures PAGE"
    Path(arguments[0]).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
