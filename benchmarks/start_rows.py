"""How long it takes until something can be done: importing, and the first answer on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import Scale
from benchmarks.timing import FLOOR, OURS, PEER, Contender, Line, Target


def imports(scale: Scale, folder: Path) -> Iterator[Line]:
    def importing(code: str, role: str) -> Contender:
        return Contender(code, _import_seconds, code, lambda seconds: seconds > 0, role)

    yield Line(
        "import",
        "import in a fresh interpreter",
        [
            importing("from tensorbytes import dumps, loads, save, load", OURS),
            importing("import numpy", FLOOR),
            importing("from safetensors.numpy import save, load", PEER),
        ],
        target=Target(1 / 1.3, "at most 1.3 times as long as NumPy's own import", ("import numpy",)),
        reports_seconds=True,
        note="Both libraries import NumPy, so its time is part of theirs. `import tensorbytes` by itself loads "
        "nothing yet; its verbs are named here so that what they need is loaded.",
    )


def command(scale: Scale, folder: Path) -> Iterator[Line]:
    """Whole processes, from the shell's view."""
    path = folder / "model.safetensors"
    tb.save({f"layer.{k}.weight": np.zeros((64, 64), np.float32) for k in range(16)}, path)

    def running(name: str, arguments: list[str], role: str) -> Contender:
        return Contender(name, _process_seconds, arguments, lambda seconds: seconds > 0, role)

    peer = (
        "from safetensors import safe_open; f = safe_open({!r}, 'numpy')\n"
        "for name in f.keys(): s = f.get_slice(name); print(name, s.get_dtype(), s.get_shape())"
    )
    yield Line(
        "command",
        "tb info of a small file, in a pipe",
        [
            running("tb info", ["-m", "tensorbytes", "info", str(path)], OURS),
            running("python -c 'import numpy'", ["-c", "import numpy"], FLOOR),
            running("a script with safe_open", ["-c", peer.format(str(path))], PEER),
        ],
        reports_seconds=True,
        note="The time of the whole process. Meant to stay under 150 ms, most of which is NumPy's.",
    )


def _environment() -> dict[str, str]:
    # Compiled modules must be kept: pip compiled the peers, an editable install compiles at first import.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _import_seconds(code: str) -> float:
    timed = f"from time import perf_counter as now; start = now(); {code}; print(now() - start)"
    done = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True, env=_environment())
    return float(done.stdout)


def _process_seconds(arguments: list[str]) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, check=True, env=_environment())
    return perf_counter() - start
