"""python -m benchmarks.walks [OLD] [--list WALK]: how far a call walks through the package.

OLD is the folder of another checkout whose kernel is built; both are shown then, old → new. Each walk runs in a process
of its own: once to import what it needs and to fill caches, and once more while it is watched.

functions   different functions of the package that were called; a comprehension belongs to the function around it
files       the files of the package that these functions are in
calls       how often they were called; resuming a generator is not a call
depth       the most of them that were on the stack of one thread at once
reads       how often the file that the walk reads was opened
others      how often other files were opened beside it: sidecars, locks, and the file that takes the target's place
sniff, decode, encode, check
            how often a format was asked to do this

Not seen are C functions, methods that dataclasses make, and files that a C++ library opens by itself. `--list` prints
the functions of one walk in the order of their first calls, and the files that were opened.
"""

from __future__ import annotations

import argparse
import dis
import gc
import itertools
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from benchmarks.states import HERE, old_and_new, print_table, run_in

_VERBS = ("sniff", "decode", "encode", "check")
_NUMBERS = ("functions", "files", "calls", "depth", "reads", "others", *_VERBS)
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_RESUME = dis.opmap["RESUME"]
_TENSORS = 8
_RECORDS = 1000


class Walk(NamedTuple):
    """A call to watch, and the file that it reads."""

    run: Callable[[], Any]
    source: str = ""


def bytes_walk(loads: bool, **options: Any) -> Callable[[str], Walk]:
    def prepare(folder: str) -> Walk:
        import numpy as np

        import tensorbytes as tb

        array = np.arange(16.0)
        data = tb.dumps(array, **options)
        return Walk((lambda: tb.loads(data)) if loads else (lambda: tb.dumps(array, **options)))

    return prepare


def torch_walk(load: bool, values: int) -> Callable[[str], Walk]:
    """A dict of tensors with `values` float32 values each."""

    def prepare(folder: str) -> Walk:
        import torch

        import tensorbytes as tb

        tensors = {f"layer.{n}": torch.full((values,), float(n)) for n in range(_TENSORS)}
        source = os.path.join(folder, "source.safetensors")
        tb.save(tensors, source)
        targets = _new_paths(folder, ".safetensors")
        if load:
            return Walk(lambda: tb.load(source, to="torch"), source)
        return Walk(lambda: tb.save(tensors, next(targets)))

    return prepare


def convert_walk(deflated: bool) -> Callable[[str], Walk]:
    def prepare(folder: str) -> Walk:
        import numpy as np

        import tensorbytes as tb

        source = os.path.join(folder, "source.npz")
        (np.savez_compressed if deflated else np.savez)(source, x=np.arange(1000), y=np.ones((1000, 4), "f4"))
        targets = _new_paths(folder, ".parquet")
        return Walk(lambda: tb.convert(source, next(targets)), source)

    return prepare


def records_walk(folder: str) -> Walk:
    import numpy as np

    import tensorbytes as tb

    source = os.path.join(folder, "source.tfrecord")
    with tb.RecordWriter(source) as writer:
        rows = {"x": np.arange(_RECORDS), "y": np.ones((_RECORDS, 4), "f4"), "s": [b"abc"] * _RECORDS}
        writer.write_batch(rows)
    return Walk(lambda: next(iter(tb.open_records(source).batches(_RECORDS))), source)


def _new_paths(folder: str, suffix: str) -> Iterator[str]:
    """Targets that do not exist yet, one for each call."""
    return (os.path.join(folder, f"target{n}{suffix}") for n in itertools.count())


WALKS: dict[str, tuple[str, Callable[[str], Walk]]] = {
    "dumps": ("`dumps(array)`", bytes_walk(False)),
    "loads": ("`loads(data)`", bytes_walk(True)),
    "dumps-name": ('`dumps(array, name="w")`', bytes_walk(False, name="w")),
    "loads-name": ("`loads(data)`, with a name", bytes_walk(True, name="w")),
    "save": ("`save`: torch to safetensors, 32 kB", torch_walk(False, 1000)),
    "load": ("`load`: safetensors to torch, 32 kB", torch_walk(True, 1000)),
    "save-large": ("`save`: torch to safetensors, 8 MiB", torch_walk(False, 1 << 18)),
    "load-large": ("`load`: safetensors to torch, 8 MiB", torch_walk(True, 1 << 18)),
    "convert": ("`convert(npz, parquet)`", convert_walk(False)),
    "convert-deflated": ("`convert(npz, parquet)`, deflated", convert_walk(True)),
    "records": ("`open_records().batches()`, the first", records_walk),
}


def _is_start(frame: FrameType) -> bool:
    """Whether a function starts; else it is a generator that goes on, or is closed."""
    instruction, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return instruction == _RESUME and not argument & 3  # 1 to 3: after yield, yield from and await


class Watch:
    """Notes the calls of functions of a package, and the files that are opened in a folder, while `active`."""

    def __init__(self, package: str, folder: str) -> None:
        self._inside, self._folder = os.path.join(package, ""), os.path.join(folder, "")
        self._functions: dict[CodeType, str] = {}  # "" for code that is none of the package's functions
        self._opening: tuple[str, int] | None = None
        self.active = False
        self.calls: Counter[str] = Counter()  # by file:function, in the order of their first calls
        self.verbs: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        self.depth = 0
        sys.addaudithook(self._audit)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _function(self, code: CodeType) -> str:
        found = self._functions.get(code)
        if found is None:
            own = code.co_filename.startswith(self._inside) and not code.co_qualname.endswith(_COMPREHENSIONS)
            name = f"{code.co_filename[len(self._inside) :]}:{code.co_qualname.replace('.<locals>', '')}"
            found = self._functions[code] = name if own else ""
        return found

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self.active:
            return
        name = self._function(frame.f_code)
        if not name or not _is_start(frame):
            return
        self.calls[name] += 1
        self.depth = max(self.depth, self._depth(frame))
        if frame.f_code.co_name in _VERBS:
            from tensorbytes.formats import Format

            if isinstance(frame.f_locals.get("self"), Format):
                self.verbs[frame.f_code.co_name] += 1

    def _depth(self, frame: FrameType | None) -> int:
        depth = 0
        while frame is not None:
            depth += bool(self._function(frame.f_code))
            frame = frame.f_back
        return depth

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self.active or not isinstance(arguments[0], str | bytes):
            return
        path, mode = os.path.abspath(os.fsdecode(arguments[0])), arguments[1]
        caller = sys._getframe(1)
        if mode is None and self._opening == (path, id(caller.f_back)):  # os.open as the opener of what was counted
            return
        self._opening = (path, id(caller))
        if path.startswith(self._folder):
            self.opened[path.removeprefix(self._folder)] += 1


def watch(name: str) -> dict[str, Any]:
    """What one walk takes, in this process."""
    import tensorbytes

    with tempfile.TemporaryDirectory() as made:
        folder = os.path.realpath(made)
        seen = Watch(os.path.dirname(tensorbytes.__file__), folder)
        walk = WALKS[name][1](folder)
        walk.run()
        gc.collect()
        seen.active = True
        walk.run()
        seen.active = False
        sys.setprofile(None)
        threading.setprofile(None)
        reads = seen.opened[os.path.basename(walk.source)]
    return {
        "functions": len(seen.calls),
        "files": len({function.partition(":")[0] for function in seen.calls}),
        "calls": seen.calls.total(),
        "depth": seen.depth,
        "reads": reads,
        "others": seen.opened.total() - reads,
        **{verb: seen.verbs[verb] for verb in _VERBS},
        "called": seen.calls,
        "opened": +seen.opened,
    }


def _print_list(found: dict[str, Any]) -> None:
    for what in ("called", "opened"):
        for name, count in found[what].items():
            print(f"{count:5} {what} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", type=Path, metavar="OLD")
    parser.add_argument("--list", choices=WALKS, metavar="WALK", help=f"one of {', '.join(WALKS)}")
    parser.add_argument("--measure", choices=WALKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(watch(options.measure)))
        return
    states = [state for state in (options.old, HERE) if state is not None]
    if options.list is not None:
        for state in states:
            print(f"in {state}:")
            _print_list(run_in(state, "walks", "--measure", options.list))
        return
    lines = []
    for name, (title, _) in WALKS.items():
        found = [run_in(state, "walks", "--measure", name) for state in states]
        lines.append([title, *(old_and_new(one[number] for one in found) for number in _NUMBERS)])
    print_table(["walk", *_NUMBERS], lines)


if __name__ == "__main__":
    main()
