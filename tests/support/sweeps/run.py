"""Every truncation and every single-bit flip of the golden files, read in a process that may not have much memory.

    python -m tests.support.sweeps.run                 # all files: safety/results/sweeps.json
    python -m tests.support.sweeps.run --small npy     # those of each commit, of one area

Each case must end in one of our exceptions with its place inside the file, in the same data, or, for formats without
checksums, in other data that is sound. The process that reads notes the case at hand in a shared file: if it dies,
that case is named, and left out of the next one.
"""

import argparse
import contextlib
import gc
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tensorbytes as tb
from tensorbytes import formats, opening
from tensorbytes.errors import SidecarWarning
from tensorbytes.io.source import Source
from tests.support import ROOT
from tests.support.sweeps.files import AREAS, goldens
from tests.support.sweeps.golden import Golden, stamp
from tests.support.sweeps.read import WAYS, Place
from tests.support.sweeps.unprotected import unprotected

with contextlib.suppress(ModuleNotFoundError):  # POSIX only
    import resource

RESULTS = ROOT / "safety" / "results" / "sweeps.json"
# What a reader may take on the word of a file here, and what a process may grow by, caches of libraries included.
MAX_BYTES = 1 << 24
ROOM = 256 << 20
# Before anything is validated: this, and once the bytes that are there.
FREE_BYTES = 64 << 10
LONGEST_SECONDS = 1.0
# Of a case that may never end, and of processes that died for one area.
ENDLESS_SECONDS = 20
MOST_DEATHS = 10
# Every so many cases the memory is traced, which takes several times as long.
TRACE_EVERY = 23
OURS = (
    tb.errors.CorruptError,
    tb.errors.LimitError,
    tb.errors.UnsupportedError,
    tb.errors.SchemaError,
    tb.errors.UsageError,
)
# Where nobody says that it is a frame, damaged ones may look like something else.
UNTOLD = ("shortcut", "sliced")
CASE = struct.Struct("<qqq")  # golden, way, case


@dataclass
class Found:
    """What came of the cases of an area."""

    cases: int = 0
    reads: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_case: str = ""
    peak: int = 0  # bytes that were traced, over what the process had before
    peak_case: str = ""
    grown: int = 0  # of the address space
    traced: int = 0


# ---- one case -----------------------------------------------------------------------


def damage(data: bytes, case: int) -> bytes:
    """Cases are the truncations, shortest first, and then the bits."""
    if case < len(data):
        return data[:case]
    bit = case - len(data)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def called(golden: Golden, way: str, case: int) -> str:
    size = len(golden.data)
    what = f"cut to {case} bytes" if case < size else f"bit {(case - size) % 8} of byte {(case - size) // 8}"
    return f"{golden.name}, {way}: {what}"


class Reading:
    """A golden file, read in one way."""

    def __init__(self, golden: Golden, way: str, folder: str) -> None:
        self.golden, self.name, self.way = golden, way, WAYS[way]
        self.folder = folder if golden.damaged else ""
        self.path = os.path.join(folder, golden.damaged)
        self.opened = os.path.join(folder, golden.opened) if golden.opened else folder
        self.checked = golden.checked and self.way.whole
        self.unprotected = unprotected(golden) if golden.checked else frozenset()
        for name, data in golden.files.items() if self.folder else ():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            stamp(path)
        pieces, error = self.read(golden.data)
        if error is not None:
            raise AssertionError(f"{golden.name}, {way}: the sound file is refused") from error
        self.pieces: list[Any] = pieces

    def put(self, data: bytes) -> None:
        if self.folder:
            with open(self.path, "wb", buffering=0) as file:
                file.write(data)
            stamp(self.path)

    def read(self, data: bytes) -> tuple[list[Any], BaseException | None]:
        """What is delivered, and what is raised in the end."""
        golden = self.golden
        place = Place(data, self.folder, self.opened, golden.format, golden.options)
        pieces: list[Any] = []
        try:
            for piece in self.way.read(place):
                pieces.append(piece)
        except Exception as error:
            return pieces, error
        return pieces, None

    def verdict(self, case: int, size: int, pieces: list[Any], error: BaseException | None) -> str:
        """What a case ended in; what must not be starts with "!"."""
        if error is not None:
            if type(error) not in (
                OURS if self.golden.format != "tb" or self.name in UNTOLD else (tb.errors.CorruptError,)
            ):
                return f"! {type(error).__name__}: {error}"
            if type(error) is tb.errors.CorruptError and not 0 <= error.at <= self.size_of(error.path, size):
                return f"! byte {error.at} is outside the file: {error}"
        flipped = (case - len(self.golden.data)) // 8
        if pieces == self.pieces:
            if error is not None:
                return "refused"
            known = not self.checked or self.way.gaps or self.golden.renewed or flipped in self.unprotected
            return "same" if known or flipped < 0 else "! no checksum covers this byte"
        if not self.checked:
            return "refused" if error is not None else "other" if flipped >= 0 else "shorter"
        if self.way.gaps:
            return "part" if in_order(pieces, self.pieces) else "! data that was never written"
        if pieces == self.pieces[: len(pieces)]:
            if error is not None:
                return "refused"
            if self.golden.stream and flipped < 0:
                return "part"
        if case == 0 and self.golden.format == "tb" and not any(pieces) and error is None:
            return "part"  # a file of no bytes is a stream of no objects
        if self.way.keyed and error is None and flipped < 0 and in_order(pieces, self.pieces):
            return "part"
        # A lazy reader may list what it can't read after the rest.
        if error is not None and not self.golden.stream and in_order(pieces, self.pieces):
            return "refused"
        return "! other data, in silence" if error is None else f"! other data before the error: {error}"

    def size_of(self, path: str | None, size: int) -> int:
        """Of the file that an error names."""
        if not self.folder or path is None or path == self.path:
            return max(size, self.golden.inflated)
        return os.path.getsize(path) if os.path.isfile(path) else max(map(len, self.golden.files.values()))


def in_order(some: list[Any], every: list[Any]) -> bool:
    """Whether these are some of those, in the same order."""
    rest = iter(every)
    return all(any(piece == other for other in rest) for piece in some)


# ---- the process that reads ---------------------------------------------------------


def address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def limit_memory() -> int:
    """Allow only little more than there is now; gives what there is."""
    before = address_space()
    resource.setrlimit(resource.RLIMIT_AS, (before + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return before


def warm_up(readings: dict[tuple[int, int], Reading], note: Callable[..., bool]) -> None:
    """Load what is loaded when it is first used, so that it is not counted."""
    for data in (b"", b"\x80\x04K\x01.", b"<html>", b"version https://git-lfs", b"PK\3\4", bytes(100), b"\xff" * 100):
        for name in formats.BUILTIN:
            with contextlib.suppress(tb.errors.TensorbytesError):
                opening.choose(Source.of_bytes(memoryview(data)), name)
            with contextlib.suppress(tb.errors.TensorbytesError):
                tb.loads(data, name)
        with contextlib.suppress(tb.errors.TensorbytesError):
            tb.loads(data)
    for place, reading in readings.items():
        count = 9 * len(reading.golden.data)
        for case in range(0, count, max(1, count // 60)):
            if note(*place, case):
                data = damage(reading.golden.data, case)
                reading.put(data)
                reading.read(data)
        reading.put(reading.golden.data)


def child(area: str, small: bool, fatal: list[list[int]], progress: str) -> Found:
    """All cases but those that ended a process before."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", tb.errors.DamageWarning)
    warnings.simplefilter("ignore", SidecarWarning)  # a damaged index is not used, and said to be
    found = Found()
    skipped = set(map(tuple, fatal))
    with contextlib.ExitStack() as stack:
        shared = mmap.mmap(stack.enter_context(open(progress, "r+b")).fileno(), CASE.size)

        def note(*case: int) -> bool:
            """Say which case comes now, and whether it may."""
            CASE.pack_into(shared, 0, *case)
            return not skipped or case not in skipped

        readings: dict[tuple[int, int], Reading] = {}
        for number, golden in enumerate(goldens(area, small)):
            for at, way in enumerate(golden.ways):
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                readings[number, at] = Reading(golden, way, folder)
        warm_up(readings, note)
        gc.collect()
        gc.freeze()
        before = limit_memory()
        began = time.process_time()
        for traced in (False, True):
            if traced:  # once: CPython 3.11 may crash if threads of C enter it meanwhile, as pyarrow's do
                tracemalloc.start()
            for place, reading in readings.items():
                for case in range(9 * len(reading.golden.data)):
                    if not case % 50:  # errors that went from thread to thread hold on to their frames until then
                        gc.collect()
                    if ((case + 7 * place[0]) % TRACE_EVERY == 0) is traced and note(*place, case):
                        judge(reading, case, traced, area, found)
                reading.put(reading.golden.data)
        found.seconds = time.process_time() - began
        found.grown = address_space() - before
    return found


def judge(reading: Reading, case: int, traced: bool, area: str, found: Found) -> None:
    """Read one case, and note what came of it."""
    golden = reading.golden
    data = damage(golden.data, case)
    reading.put(data)
    if traced:
        tracemalloc.clear_traces()
    signal.setitimer(signal.ITIMER_PROF, ENDLESS_SECONDS)  # the signal ends the process, and so names the case
    then = time.process_time()
    pieces, error = reading.read(data)
    took = time.process_time() - then
    signal.setitimer(signal.ITIMER_PROF, 0)
    verdict = reading.verdict(case, len(data), pieces, error)
    found.reads += 1
    if traced:
        peak = tracemalloc.get_traced_memory()[1]
        found.traced += 1
        if peak > found.peak:
            found.peak, found.peak_case = peak, called(golden, reading.name, case)
        size = sum(map(len, golden.files.values()))
        if peak > FREE_BYTES + size + golden.working + held(pieces) + (MAX_BYTES if error is None else 0):
            verdict = f"! {peak} bytes at once for a file of {size}: {verdict} {error}"
    elif took > found.slowest:
        found.slowest, found.slowest_case = took, called(golden, reading.name, case)
    if took > LONGEST_SECONDS:
        verdict = f"! {took:.2f} s: {verdict}"
    if error is not None:
        found.errors[type(error).__name__] += 1
    if verdict[0] == "!":
        found.failures.append(f"{area}: {called(golden, reading.name, case)} {verdict}"[:400])
        verdict = "failed"
    found.verdicts[verdict] += 1


def held(pieces: list[Any]) -> int:
    """Roughly the memory of what was delivered, in the forms that are compared."""
    size, stack = 0, [pieces]
    while stack:
        item: Any = stack.pop()
        size += sys.getsizeof(item)
        if isinstance(item, list | tuple):
            stack.extend(item)
    return 2 * size


def scratch() -> str | None:
    """A folder in memory, if there is one: files are written a hundred thousand times."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# ---- the process that watches -------------------------------------------------------

ENVIRONMENT = {
    "PYTHONFAULTHANDLER": "1",  # where it was when it died
    "TENSORBYTES_MAX_BYTES": str(MAX_BYTES),
    # Address space that is reserved and never used would count.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def sweep(area: str, small: bool) -> Found:
    """All cases of an area; a case that ends the process that reads it is left out of the next one."""
    files = goldens(area, small)
    fatal: list[tuple[int, ...]] = []
    deaths: list[str] = []
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:  # also what a process that died left behind
        progress = Path(folder, "progress")
        progress.write_bytes(bytes(CASE.size))
        while True:
            command = [sys.executable, "-m", __spec__.name, "--child", area, str(progress), json.dumps([small, fatal])]
            environment = os.environ | ENVIRONMENT | {"TMPDIR": folder}
            run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
            if run.returncode > 0:  # no case: the sweep itself is at fault
                deaths.append(f"{area}: {run.stderr[-2000:]}")
            if run.returncode >= 0 or len(fatal) == MOST_DEATHS:
                break
            case = CASE.unpack(progress.read_bytes())
            fatal.append(case)
            golden = files[case[0]]
            name = signal.Signals(-run.returncode).name
            what = f"takes over {ENDLESS_SECONDS} s" if name == "SIGPROF" else f"the process died of {name}"
            deaths.append(f"{area}: {called(golden, golden.ways[case[1]], case[2])}: {what}\n{run.stderr[-1000:]}")
    found = Found() if run.returncode else Found(**json.loads(run.stdout))
    found.verdicts, found.errors = Counter(found.verdicts), Counter(found.errors)
    found.cases = sum(9 * len(golden.data) for golden in files)
    found.failures = deaths + found.failures
    return found


def row(found: Found) -> dict[str, Any]:
    """What is reported of an area."""
    return {
        "cases": found.cases,
        "reads": found.reads,
        "verdicts": dict(sorted(found.verdicts.items())),
        "errors": dict(sorted(found.errors.items())),
        "failures": found.failures,
        "cpu_seconds": round(found.seconds, 1),
        "slowest_ms": round(1000 * found.slowest, 1),
        "slowest_case": found.slowest_case,
        "traced_reads": found.traced,
        "peak_traced_bytes": found.peak,
        "peak_case": found.peak_case,
        "address_space_grown": found.grown,
    }


def report(areas: list[str], small: bool, target: Path, jobs: int, missing: bool) -> bool:
    kept = json.loads(target.read_text())["areas"] if target.exists() else {}
    areas = [area for area in areas if not (missing and area in kept)]
    pool = ThreadPoolExecutor(jobs)
    sweeps = {pool.submit(sweep, area, small): area for area in areas}
    for done in as_completed(sweeps):
        area, found = sweeps[done], done.result()
        files = goldens(area, small)
        size = sum(len(golden.data) for golden in files)
        kept[area] = {"files": len(files), "bytes": size} | row(found)
        print(area, json.dumps(kept[area], indent=1), flush=True)
        write(kept, target)
    return not any(item["failures"] for item in kept.values())


def write(areas: dict[str, Any], target: Path) -> None:
    total = Found()
    for item in areas.values():
        total.cases, total.reads = total.cases + item["cases"], total.reads + item["reads"]
        total.seconds += item["cpu_seconds"]
        total.verdicts += Counter(item["verdicts"])
    plain = {
        "command": "python -m tests.support.sweeps.run",
        "complete": len(areas) == len(AREAS),
        "cases": total.cases,
        "reads": total.reads,
        "verdicts": dict(sorted(total.verdicts.items())),
        "cpu_seconds": round(total.seconds),
        "max_bytes": MAX_BYTES,
        "address_space_allowed": ROOM,
        "kernel": "compiled" if tb.ACCELERATED else "reference",
        "versions": {name: version(name) for name in ("tensorbytes", "numpy", "pyarrow", "cramjam", "isal")},
        "areas": {name: areas[name] for name in AREAS if name in areas},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(plain, indent=1) + "\n")


def arguments() -> Iterator[argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of {', '.join(AREAS)}")
    parser.add_argument("--small", action="store_true", help="the files that each commit sweeps")
    parser.add_argument("--missing", action="store_true", help="only areas that the results do not have yet")
    parser.add_argument("--jobs", type=int, default=2, help="so many processes at once (2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the figures are written")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    yield parser.parse_args()


def main() -> int:
    (args,) = arguments()
    if args.child:
        area, progress, text = args.child
        print(json.dumps(vars(child(area, *json.loads(text), progress))))
        return 0
    return 0 if report(args.areas or list(AREAS), args.small, args.results, args.jobs, args.missing) else 1


if __name__ == "__main__":
    sys.exit(main())
