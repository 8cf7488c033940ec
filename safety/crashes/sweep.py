"""All scenarios, all their calls, all faults: what was run, what was found, and how to run one of them again."""

from __future__ import annotations

import argparse
import collections
import gc
import importlib
import json
import os
import pkgutil
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tensorbytes
from safety import totals
from safety.crashes import loop
from safety.crashes.judging import Scenario, Violation
from safety.crashes.running import Runner
from safety.crashes.scenarios import CORE, controls, scenarios

RESULTS = Path(__file__).parents[1] / "results" / "crashes.json"
_LEFT_OUT = (".frameworks.", "__main__", ".testing", ".records.read.arrow")  # they import what few use
_USED = ("numpy.ma", "encodings.cp437", "ml_dtypes", "multiprocessing", "concurrent.futures.thread")


def warm() -> None:
    """Import all that jobs and judges will use: a child that has to do so takes far longer than its job."""
    for found in pkgutil.walk_packages(tensorbytes.__path__, "tensorbytes."):
        if not any(word in found.name for word in _LEFT_OUT):
            importlib.import_module(found.name)
    for name in _USED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


@dataclass
class Tally:
    """What was run of one scenario, and how it went."""

    scenario: str
    where: str  # "faults", "model", or the name of a filesystem
    calls: int = 0
    points: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)  # (the point, what was wrong)

    def count(self, point: str, work: Callable[[], str]) -> None:
        """Run one point."""
        self.points += 1
        try:
            found = work()
        except Violation as error:
            self.violations.append((point, str(error)))
            return
        self.outcomes[found] = self.outcomes.get(found, 0) + 1


def faults(runner: Runner, few: bool, only: str | None, until: float, every: int = 1) -> Tally:
    """Kill the job, and let it fail, at each call."""
    tally = Tally(runner.scenario.name, "faults", len(runner.calls))
    begun = time.monotonic()
    for point in runner.points(few)[::every]:
        if time.monotonic() > until:
            break
        words = f"{point.number}:{point.fault}"
        if only in (None, words):
            tally.count(words, lambda point=point: runner.run(point))  # type: ignore[misc]
    tally.seconds = time.monotonic() - begun
    return tally


def model(runner: Runner, only: str | None, until: float, every: int = 1) -> Tally:
    """Cut the power of a modelled disk after each call."""
    tally = Tally(runner.scenario.name, "model", len(runner.calls))
    begun = time.monotonic()
    for number, cut in enumerate(runner.cuts()):
        if time.monotonic() > until:
            break
        if only in (None, f"model {number}") and not number % every:
            tally.count(f"model {number}", lambda cut=cut: f"cut: {runner.cut(cut)}")  # type: ignore[misc]
    tally.seconds = time.monotonic() - begun
    return tally


def real(runner: Runner, system: loop.Filesystem, folder: str, only: str | None, every: int = 1) -> Tally:
    """Cut the power of a real filesystem before each call and at the end."""
    tally = Tally(runner.scenario.name, system.name, len(runner.calls))
    begun = time.monotonic()
    disk = loop.Disk(system, runner, folder)
    for moment in disk.moments(every):
        words = f"{system.name} {moment.call}{' committed' if moment.committed else ''}"
        if only in (None, words):
            tally.count(words, lambda moment=moment: f"cut: {disk.judge(moment)}")  # type: ignore[misc]
    tally.seconds = time.monotonic() - begun
    shutil.rmtree(folder, ignore_errors=True)
    return tally


def tallies(args: argparse.Namespace, chosen: list[Scenario], folder: str) -> Iterator[Tally]:
    until = time.monotonic() + (args.seconds or 1e9)
    for scenario in sorted(chosen, key=lambda one: one.modules):  # a small process forks quicker
        if time.monotonic() > until:
            return
        for name in scenario.modules:
            importlib.import_module(name)
        try:
            runner = Runner(scenario, os.path.join(folder, "run"))
        except Violation as error:
            yield Tally(scenario.name, "faults", violations=[("", str(error))])
            continue
        if not args.power:
            if args.what != "model":
                yield faults(runner, args.few, args.point, until, args.every)
            if args.what != "faults" and scenario.lasts:
                yield model(runner, args.point, until, args.every)
        elif scenario.lasts:
            for system in loop.FILESYSTEMS:
                if not system.missing and args.filesystem in (None, system.name) and time.monotonic() < until:
                    yield real(runner, system, os.path.join(folder, "disk"), args.point, args.every)


def shared(args: argparse.Namespace, chosen: list[Scenario], folder: str) -> Iterator[Tally]:
    """The tallies of several processes, each with some of the scenarios."""
    read, write = os.pipe()
    children = []
    for number in range(args.jobs):
        child = os.fork()
        if not child:
            code = 1
            try:
                with os.fdopen(write, "w") as file:
                    for tally in tallies(args, chosen[number :: args.jobs], os.path.join(folder, str(number))):
                        file.write(json.dumps(asdict(tally)) + "\n")
                        file.flush()
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        children.append(child)
    os.close(write)
    with os.fdopen(read) as lines:
        for line in lines:
            yield Tally(**json.loads(line))
    if any(os.waitpid(child, 0)[1] for child in children):
        raise RuntimeError("a process of the sweep failed")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.crashes", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--only", help="scenarios whose name holds this")
    parser.add_argument("--scenario", help="the one scenario of this name")
    parser.add_argument("--point", help="one point alone, as a violation names it")
    parser.add_argument("--core", action="store_true", help="one scenario of each sort")
    parser.add_argument("--controls", action="store_true", help="writers that are wrong: violations must be found")
    parser.add_argument("--what", choices=["faults", "model"], help="kills and errors alone, or modelled power cuts")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth point alone")
    parser.add_argument("--few", action="store_true", help="one fault of each sort at each call")
    parser.add_argument("--power", action="store_true", help="cut the power of real filesystems (needs root)")
    parser.add_argument("--filesystem", help="this one alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--save", type=Path, help="where figures go; by default to safety/results if all is run")
    args = parser.parse_args(argv)
    chosen = _chosen(args)
    partial = (args.only, args.scenario, args.point, args.few, args.filesystem, args.seconds, args.core, args.controls)
    whole = not any(partial) and args.every == 1
    folder = tempfile.mkdtemp(prefix="crashes-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    warm()
    if args.power:
        for system in loop.FILESYSTEMS:
            if system.missing:
                print(f"{system.name}: left out: {system.missing}")
        loop.enter_namespace()
    begun = time.monotonic()
    place: Path | None = args.save or (RESULTS if whole else None)
    found: list[Tally] = []
    try:
        for tally in shared(args, chosen, folder):
            found.append(tally)
            _show(tally)
            if place is not None:
                _save(place, _figures(found, time.monotonic() - begun))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = _figures(found, time.monotonic() - begun)
    bad = sum(len(tally.violations) for tally in found)
    print(json.dumps({where: row["points"] for where, row in figures.items()}), f"{bad} violations")
    return 1 if bad else 0


def _chosen(args: argparse.Namespace) -> list[Scenario]:
    found = controls() if args.controls else scenarios()
    if args.core:
        found = [one for one in found if one.name in CORE]
    return [one for one in found if (args.only or "") in one.name and args.scenario in (None, one.name)]


def _show(tally: Tally) -> None:
    words = ", ".join(f"{number} {what}" for what, number in sorted(tally.outcomes.items()))
    print(f"{tally.scenario} | {tally.where} | {tally.points} points, {tally.seconds:.0f} s | {words}", flush=True)
    for point, text in tally.violations[:5]:
        power = "" if tally.where in ("faults", "model") else f"--power --filesystem '{tally.where}' "
        print(f"  VIOLATION {text[-2000:]}")
        print(f"  python -m safety.crashes {power}--scenario '{tally.scenario}' --point '{point}'", flush=True)
    if len(tally.violations) > 5:
        print(f"  and {len(tally.violations) - 5} more")


def _figures(found: list[Tally], seconds: float) -> dict[str, dict[str, Any]]:
    """One row for the faults, one for the modelled disk, one for each filesystem."""
    rows: dict[str, dict[str, Any]] = {}
    for where in dict.fromkeys(tally.where for tally in found):
        mine = [tally for tally in found if tally.where == where]
        outcomes: collections.Counter[str] = collections.Counter()
        for tally in mine:
            for what, number in tally.outcomes.items():
                outcomes[what.partition(":")[0]] += number
        rows[where] = {
            "scenarios": len(mine),
            "calls": sum(tally.calls for tally in mine),
            "points": sum(tally.points for tally in mine),
            "violations": sum(len(tally.violations) for tally in mine),
            "outcomes": dict(outcomes),
            "seconds": round(seconds),
            "kernel": "compiled" if tensorbytes.ACCELERATED else "reference",
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release().split('-')[0]}",
            "by scenario": {tally.scenario: tally.points for tally in mine},
        }
    return rows


def _save(path: Path, figures: dict[str, dict[str, Any]]) -> None:
    """Rows of this run replace those of earlier ones; others stay."""
    before = json.loads(path.read_text()) if path.exists() else {}
    totals.save(path, before | figures)
