"""All rows by their names, and how one is measured."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks import (
    auto_rows,
    checkpoint_rows,
    compression_rows,
    file_rows,
    lazy_rows,
    memory_rows,
    npz_rows,
    record_rows,
    report,
    safetensors_rows,
    start_rows,
    table_rows,
    tools_rows,
    torchfile_rows,
)
from benchmarks.memory_rows import QUICK_SCALE, Scale
from benchmarks.record_rows import RecordScale
from benchmarks.timing import QUICK, Effort, Line, measure

TENSOR_ROWS: dict[str, Callable[[Scale, Path], Iterator[Line]]] = {
    "small": memory_rows.small,
    "large": memory_rows.large,
    "save": file_rows.save,
    "slice": file_rows.slices,
    "dict": file_rows.tensors,
    "stream": file_rows.stream,
    "torch": memory_rows.torch,
    "many": memory_rows.many,
    "crc": memory_rows.crc,
    "import": start_rows.imports,
    "command": start_rows.command,
    "npz": npz_rows.npz,
    "safetensors": safetensors_rows.safetensors,
    "torchfile": torchfile_rows.torchfile,
    "tables": table_rows.tables,
    "checkpoint": checkpoint_rows.checkpoint,
    "lazy": lazy_rows.lazy,
    "weights": compression_rows.weights,
    "tokenids": compression_rows.tokenids,
    "auto": auto_rows.auto,
    "chunkslice": compression_rows.chunkslice,
    "quantize": compression_rows.quantize,
    "tools": tools_rows.tools,
}
RECORD_ROWS: dict[str, Callable[[RecordScale, Path], Iterator[Line]]] = {
    "records": record_rows.records,
    "wide": record_rows.wide,
    "tokens": record_rows.tokens,
    "images": record_rows.images,
    "sequences": record_rows.sequences,
    "harder": record_rows.harder,
    "random": record_rows.random,
    "write": record_rows.writing,
    "memory": record_rows.memory,
}
ROWS = [*TENSOR_ROWS, *RECORD_ROWS]


def run_row(name: str, quick: bool) -> list[report.Entry]:
    """Measure a row in a folder beside this file, which is removed afterwards."""
    effort = QUICK if quick else Effort()
    entries = []
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=Path(__file__).parent) as folder:
        for line in _lines(name, quick, Path(folder)):
            started = perf_counter()
            print(f"{line.title} ...", end=" ", file=sys.stderr, flush=True)
            entries.append(report.entry(name, line, measure(line, effort)))
            print(f"{perf_counter() - started:.1f} s", file=sys.stderr)
            print(report.text_table(entries[-1]), flush=True)
    return entries


def _lines(name: str, quick: bool, folder: Path) -> Iterator[Line]:
    if name in TENSOR_ROWS:
        return TENSOR_ROWS[name](QUICK_SCALE if quick else Scale(), folder)
    return RECORD_ROWS[name](record_rows.QUICK_SCALE if quick else RecordScale(), folder)
