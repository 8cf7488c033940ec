"""python -m benchmarks.turns OLD [NEW] [--rounds N]: two states of the package, taking turns.

OLD and NEW are folders of checkouts whose kernels are built; NEW is this one unless it is given. Each round runs every
row in a fresh process of one state, then of the other, in changing order, so that both see the same machine. Told are
the medians, and the ratio old / new (above 1: the new one is faster) with the interval that nine in ten of the rounds
lie in.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.states import HERE, print_table, run_in

_LEAST_SECONDS = 0.05


def rows(folder: str) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    import numpy as np

    import tensorbytes as tb

    small, page, large = np.arange(16.0), np.arange(256, dtype="f4"), np.zeros(1 << 18, "f4")
    names = {f"layer.{n}": np.full(16, n, "f4") for n in range(200)}
    dumped, dumped_names = tb.dumps(small), tb.dumps(names)
    stream, records = os.path.join(folder, "s.tb"), os.path.join(folder, "r.tfrecord")
    growing = os.path.join(folder, "a.tfrecord")
    with tb.open(stream, "w") as f:
        for n in range(1000):
            f.write(page + n)
    many = {"x": np.arange(20_000), "y": np.ones((20_000, 4), "f4"), "s": [b"abc"] * 20_000}
    for path in (records, growing):
        with tb.RecordWriter(path) as writer:
            writer.write_batch(many)
    opened = tb.open_records(records)
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in names.items()}
    model, archive, packed = (os.path.join(folder, name) for name in ("m.safetensors", "m.npz", "p.npz"))
    tb.save(tensors, model)
    columns = {"x": np.arange(50_000), "y": np.ones((50_000, 8), "f4")}
    tb.save(columns, archive)
    tb.save(columns, packed, compression="deflate")
    named = tb.dumps(small, name="w")
    target = os.path.join(folder, "m.parquet")
    numbers = np.random.default_rng(0).integers(0, 20_000, 200).tolist()

    def write_stream() -> None:
        with tb.open(os.path.join(folder, "w.tb"), "w") as f:
            for _ in range(200):
                f.write(page)

    def append_stream() -> None:
        with tb.open(stream, "a") as f:
            f.write(page)

    def append_record() -> None:
        with tb.RecordWriter(growing, mode="a", sync=False) as writer:
            writer.write({"x": 1, "y": [1.0, 2.0, 3.0, 4.0], "s": b"abc"})

    def write_records() -> None:
        with tb.RecordWriter(os.path.join(folder, "w.tfrecord"), sync=False) as writer:
            writer.write_batch(many)

    return {
        "dumps 16 values": lambda: tb.dumps(small),
        "loads 16 values": lambda: tb.loads(dumped),
        "dumps 200 arrays": lambda: tb.dumps(names),
        "loads 200 arrays": lambda: tb.loads(dumped_names),
        "dumps 16 values with a name": lambda: tb.dumps(small, name="w"),
        "loads 16 values with a name": lambda: tb.loads(named),
        "save 200 torch tensors as safetensors": lambda: tb.save(tensors, model, sync=False),
        "load 200 torch tensors from safetensors": lambda: tb.load(model, to="torch"),
        "one of 200 tensors by name": lambda: tb.open(model)["layer.77"][3:9],
        "convert npz to Parquet": lambda: tb.convert(archive, target, sync=False),
        "convert deflated npz to Parquet": lambda: tb.convert(packed, target, sync=False),
        "save 1 KiB, no sync": lambda: tb.save(page, os.path.join(folder, "a.tb"), sync=False),
        "save 1 KiB": lambda: tb.save(page, os.path.join(folder, "b.tb")),
        "save 1 MiB, no sync": lambda: tb.save(large, os.path.join(folder, "c.tb"), sync=False),
        "load 1 MiB": lambda: tb.load(os.path.join(folder, "c.tb")),
        "write 200 objects": write_stream,
        "append an object to 1000": append_stream,
        "read 1000 objects": lambda: sum(1 for _ in tb.open(stream)),
        "append a record to 20,000": append_record,
        "write 20,000 records": write_records,
        "read 20,000 records": lambda: sum(len(batch["x"]) for batch in tb.open_records(records).batches(1024)),
        "read 200 records by number": lambda: [opened[n] for n in numbers],
    }


def measure() -> None:
    """Print the seconds of each row, as JSON."""
    found = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for name, job in rows(folder).items():
            times = []
            job()
            end = time.perf_counter() + _LEAST_SECONDS
            while time.perf_counter() < end or len(times) < 3:
                started = time.perf_counter()
                job()
                times.append(time.perf_counter() - started)
            found[name] = statistics.median(times)
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure()
    if len(options.states) not in (1, 2):
        parser.error("say which states: OLD [NEW]")
    old, new = [*options.states, HERE][:2]
    taken: dict[Path, list[dict[str, float]]] = {old: [], new: []}
    for turn in range(options.rounds):
        for state in (old, new) if turn % 2 else (new, old):
            taken[state].append(run_in(state, "turns", "--measure"))
    lines = []
    for name in taken[old][0]:
        before, after = [run[name] for run in taken[old]], [run[name] for run in taken[new]]
        ratios = sorted(one / other for one, other in zip(before, after, strict=True))
        cut = len(ratios) // 20
        middle = [f"{1e6 * statistics.median(some):,.1f} µs" for some in (before, after)]
        spread = f"{ratios[cut]:.2f} to {ratios[-1 - cut]:.2f}"
        lines.append([name, *middle, f"{statistics.median(ratios):.2f}", spread])
    print_table(["row", "old", "new", "old / new", "nine in ten"], lines)


if __name__ == "__main__":
    main()
