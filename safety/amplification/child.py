"""python -m safety.amplification.child PARSER GENERATOR SIZE MAX_BYTES: reads one input, prints what it took, as JSON.

Memory is what the kernel counts as resident, at its peak: pages that NumPy asked for and never touched are none.
A tiny input of the same kind is read before, so that what is loaded on first use does not count.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorbytes as tb
from safety.amplification import inputs, records

_MOST_MEMORY = 5 << 29  # above what the limits allow: reaching it is a failure
_WARM_BYTES = 1 << 12


def _memory(which: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(which))


def _restart_peak() -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def _read_formats(parser: str, raw: bytes, limits: tb.errors.Limits) -> Any:
    _read_lazily(parser, raw, limits)
    return tb.loads(raw, parser, limits=limits)


def _read_lazily(parser: str, raw: bytes, limits: tb.errors.Limits) -> None:
    """One tensor after another; nothing of it is left when the whole is read."""
    with contextlib.suppress(tb.errors.TensorbytesError):  # what counts is the memory
        for entry in tb.open(io.BytesIO(raw), format=parser, limits=limits).entries():
            entry.load()


def _read_paths(way: str, path: Path, limits: tb.errors.Limits) -> Any:
    if way == "checkpoint":
        return tb.load(path, limits=limits)
    if way == "events":
        return sum(1 for _ in tb.records.read_events(path, limits=limits))
    if way == "infer_schema":
        return tb.records.infer_schema(path)
    if way == "inspect":
        return tb.inspect(path, limits=limits)
    if way == "verify":
        return tb.verify(path, limits=limits)
    found = tb.open_records(path, limits=limits, on_corrupt="skip" if way == "skip" else "raise")
    if way == "len":
        return len(found)
    if way == "one":
        return found[0]
    if way in ("rows", "skip"):
        return sum(1 for _ in found)
    if way == "batches":
        return sum(1 for _ in found.batches(1 << 16))
    return sum(1 for _ in found.to_arrow())


def measure(parser: str, name: str, size: int, limits: tb.errors.Limits) -> dict[str, Any]:
    """What came of reading an input, the bytes of it, and the growth of the process at its peak."""
    with tempfile.TemporaryDirectory() as folder:
        run, input_bytes = _prepared(parser, name, size, Path(folder))
        _prepared(parser, name, _WARM_BYTES, Path(folder) / "warm")[0](tb.errors.Limits())
        resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + limits.max_bytes + _MOST_MEMORY,) * 2)
        _restart_peak()
        before = _memory("VmRSS")
        outcome = run(limits)
        return {"outcome": outcome, "input": input_bytes, "growth": max(_memory("VmHWM") - before, 0)}


def _prepared(parser: str, name: str, size: int, folder: Path) -> tuple[Callable[[tb.errors.Limits], str], int]:
    made: Any
    if parser in inputs.FORMATS:
        made = next(make for make in inputs.FORMATS[parser] if make.__name__ == name)(size)
        return lambda limits: _outcome(lambda: _read_formats(parser, made, limits)), len(made)
    folder.mkdir(exist_ok=True)
    make = next(make for make in records.READS[parser] if make.__name__ == name)
    path = make(folder, size)
    files = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return lambda limits: _outcome(lambda: _read_paths(parser, path, limits)), files


def _outcome(read: Callable[[], Any]) -> str:
    try:
        read()
    except tb.errors.TensorbytesError as error:
        return type(error).__name__
    except MemoryError:
        return "MemoryError"
    except Exception as error:  # another's exception is a finding
        return f"{type(error).__name__}: {error}"[:200]
    return "read"


if __name__ == "__main__":
    parser_, name_, size_, max_bytes_ = sys.argv[1:]
    warnings.simplefilter("ignore")
    print(json.dumps(measure(parser_, name_, int(size_), tb.errors.Limits(max_bytes=int(max_bytes_)))))
