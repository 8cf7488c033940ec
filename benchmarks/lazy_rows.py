"""Opening a large file and reading 4 KB of it, in every format that is read lazily."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import Scale, same, size_name
from benchmarks.timing import FLOOR, OURS, Contender, Line, Target

_BOUND = 0.005
_ROW = 1024  # float32: 4 KB
# Format -> the file to save to and to open.
_SAVED = {
    "tb": "x.tb",
    "npy": "x.npy",
    "npz": "x.npz",
    "safetensors": "x.safetensors",
    "arrow": "x.arrow",
    "arrowtensor": "x.arrowtensor",
    "torchfile": "x.pt",
    "checkpoint": "x.ckpt",
    "onnx": "x.pb",
    "protobuf": "x.binpb",
    "delimited": "x.pbs",
}


def _gguf(x: Any, path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, "benchmark")
    writer.add_tensor("x", x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _writers() -> dict[str, tuple[str, Callable[[Any, Path], None]]]:
    ours = {
        name: (file, partial(lambda x, path, format: tb.save(x, path, format, sync=False), format=name))
        for name, file in _SAVED.items()
    }
    return {**ours, "gguf": ("x.gguf", _gguf)}


def wait(seconds: float) -> None:
    """The bound itself, as a contender; a sleep would take longer than it is told."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


def middle(path: str) -> Any:
    with tb.open(path) as file:
        entry = file.entries()[0]
        at = len(entry) // 2
        return entry[at : at + 1].copy()


def lazy(scale: Scale, folder: Path) -> Iterator[Line]:
    size = scale.slices[-1]
    x = np.arange(size // 4, dtype=np.float32).reshape(-1, _ROW)
    expected = x[len(x) // 2 : len(x) // 2 + 1].copy()
    for format, (file, write) in _writers().items():
        inner = folder / format
        inner.mkdir()
        write(x, inner / file)
        yield Line(
            f"lazy.{format}",
            f"open and 4 KB out of {size_name(size)}, {format}",
            [
                Contender("tensorbytes", middle, str(inner / file), lambda got: same(got, expected), OURS),
                Contender("5 ms", wait, _BOUND, lambda _: True, FLOOR),
            ],
            target=Target(1.0, "under 5 ms", ("5 ms",)),
        )
        shutil.rmtree(inner)
