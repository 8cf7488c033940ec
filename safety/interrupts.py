"""python -m safety.interrupts [WORDS ...]: how long Ctrl-C takes to end a long call, and writes the figures.

Each call runs in a process of its own, on gigabytes of zeros (files with holes take no room on the disk). It gets
SIGINT a third of a second after it began, must end with KeyboardInterrupt, and leave no process.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from safety import totals
from tensorbytes import _wire
from tensorbytes._wire import proto

WAIT = 0.3  # seconds between the start of a call and Ctrl-C
MOST = 1.0  # seconds until it must have acted
GIB = 1 << 30
SIZE = 2 * GIB

Call = Callable[[], object]


def zeros(size: int = SIZE, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    """Zeros that take no memory until they are written to."""
    return np.zeros(size // np.dtype(dtype).itemsize, dtype)


def _with_hole(path: Path, head: bytes, size: int, tail: bytes) -> Path:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
        file.seek(0, os.SEEK_END)
        file.write(tail)
    return path


def _around(format: str) -> tuple[bytes, bytes]:
    """What a format writes before and after the bytes of one tensor of SIZE zeros."""
    pieces = [memoryview(piece).cast("B") for piece in tb.buffers({"x": zeros()}, format)]
    large = next(i for i, piece in enumerate(pieces) if len(piece) >= SIZE)
    assert len(pieces[large]) == SIZE
    return b"".join(pieces[:large]), b"".join(pieces[large + 1 :])


def _loading(format: str, suffix: str, **options: Any) -> Callable[[Path], Call]:
    def prepare(folder: Path) -> Call:
        head, tail = _around(format)
        path = _with_hole(folder / f"x{suffix}", head, SIZE, tail)
        return lambda: tb.load(path, limits=tb.errors.Limits(max_bytes=2 * SIZE), **options)

    return prepare


def _on_file(use: Callable[[Path], object]) -> Callable[[Path], Call]:
    def prepare(folder: Path) -> Call:
        head, tail = _around("safetensors")
        path = _with_hole(folder / "x.safetensors", head, SIZE, tail)
        return lambda: use(path)

    return prepare


def _saving(suffix: str, dtype: Any = np.uint8, size: int = SIZE, **options: Any) -> Callable[[Path], Call]:
    return lambda folder: lambda: tb.save({"x": zeros(size, dtype)}, folder / f"w{suffix}", **options)


def _record_file(folder: Path, payload_head: bytes, size: int) -> Path:
    """One record whose payload is a head and zeros."""
    length = len(payload_head) + size
    crc = _wire.crc32c(payload_head)
    for start in range(0, size, GIB):
        crc = _wire.crc32c(zeros(min(GIB, size - start)), crc)
    head = _wire.frame_header(length) + payload_head
    return _with_hole(folder / "x.tfrecord", head, size, _wire.mask(crc).to_bytes(4, "little"))


def _message(number: int, head: bytes, size: int) -> bytes:
    """The start of a field whose content is this head and `size` bytes more."""
    return bytes([number << 3 | 2]) + _wire.varint(len(head) + size) + head


def _integers(folder: Path) -> Call:
    """A record of one list of zeros, packed."""
    size = GIB
    feature = _message(3, _message(1, b"", size), size)
    entry = _message(1, proto.put_bytes(1, b"a") + _message(2, feature, size), size)
    path = _record_file(folder, _message(1, entry, size), size)
    schema = tb.records.Schema({"a": tb.records.Feature("int64", (None,))})
    limits = tb.errors.Limits(max_bytes=16 * GIB)
    return lambda: list(tb.open_records(path, schema=schema, limits=limits).batches(1))


def _damaged(folder: Path) -> Call:
    """A file of zeros after a header: what follows is looked through for the next record."""
    path = _with_hole(folder / "x.tfrecord", _wire.frames([[b"a"]]), 2 * SIZE, b"")
    return lambda: tb.verify(path)


def _inflating(folder: Path) -> Call:
    raw = zeros(GIB - 1000)
    packer = zlib.compressobj(1, wbits=31)
    path = folder / "x.tfrecord.gz"
    path.write_bytes(packer.compress(_wire.frame_header(len(raw)) + raw.tobytes()) + packer.flush())
    return lambda: tb.verify(path)


def _npz_deflated(folder: Path) -> Call:
    path = folder / "x.npz"
    np.savez_compressed(path, x=zeros(GIB))
    return lambda: tb.load(path, limits=tb.errors.Limits(max_bytes=2 * GIB))


def _strings(folder: Path) -> Call:
    raw = bytes(tb.dumps({"x": tb.Strings((50_000_000,), np.zeros(50_000_001, np.int64), b"")}))
    return lambda: [tb.loads(raw, limits=tb.errors.Limits(max_bytes=8 * GIB)) for _ in range(100)]


CALLS: dict[str, Callable[[Path], Call]] = {
    "the checksum of 8 GiB": lambda folder: lambda: _wire.crc32c(zeros(4 * SIZE)),
    "load tb": _loading("tb", ".tb"),
    "load tb, mapped": _loading("tb", ".tb", mmap=True),
    "load safetensors": _loading("safetensors", ".safetensors"),
    "load npz": _loading("npz", ".npz"),
    "load torch": _loading("torchfile", ".pt"),
    "load npz, deflated": _npz_deflated,
    "save tb": _saving(".tb"),
    "save npz": _saving(".npz"),
    "save checkpoint": _saving(".index"),
    "save tb, zstd": _saving(".tb", compression="zstd"),
    "save tb, split+huffman": _saving(".tb", np.float32, compression="split+huffman"),
    "save tb, auto": _saving(".tb", np.float32, compression="auto"),
    "save tb, quantized": _saving(".tb", np.float32, GIB, quantize="int8"),
    "dumps tb": lambda folder: lambda: tb.dumps({"x": zeros()}),
    "stats": _on_file(tb.stats),
    "diff": _on_file(lambda path: tb.diff(path, path)),
    "convert to npz": _on_file(lambda path: tb.convert(path, path.with_suffix(".npz"))),
    "convert to tb, verified": _on_file(lambda path: tb.convert(path, path.with_suffix(".tb"), verify=True)),
    "read a record of integers": _integers,
    "look for records in zeros": _damaged,
    "inflate records": _inflating,
    "load strings": _strings,
    "equal": lambda folder: lambda: tb.equal(zeros(dtype=np.float32), zeros(dtype=np.float32)),
}

CHILD = """
import os, signal, sys, tempfile
from pathlib import Path
from safety.interrupts import CALLS
signal.signal(signal.SIGINT, signal.default_int_handler)
call = CALLS[sys.argv[1]](Path(sys.argv[2]))
print("ready", flush=True)
try:
    call()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it was over before: nothing is left to be ended
except KeyboardInterrupt:
    sys.exit(130)
"""


def interrupt(name: str) -> float | None:
    """Seconds from SIGINT until the process is gone; None if the call was over before."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([sys.executable, "-c", CHILD, name, folder], stdout=subprocess.PIPE)
        assert child.stdout is not None
        try:
            if child.stdout.readline() != b"ready\n":
                raise RuntimeError(f"{name}: the call could not be prepared")
            time.sleep(WAIT)
            if child.poll() is not None:
                return None
            sent = time.perf_counter()
            child.send_signal(signal.SIGINT)
            code = child.wait(timeout=60)
            if code == 0:
                return None
            if code != 130:
                raise RuntimeError(f"{name}: ended with {code}")
            return time.perf_counter() - sent
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.interrupts", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    options = parser.parse_args()
    figures = totals.read("interrupts") if options.words else {}
    slow = 0
    for name in CALLS:
        if options.words and not any(word in name for word in options.words):
            continue
        try:
            seconds = interrupt(name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", flush=True)
            slow += 1
            continue
        slow += seconds is not None and seconds > MOST
        figures[name] = {"seconds": None if seconds is None else round(seconds, 2)}
        print(f"{name}: {'over before' if seconds is None else f'{seconds:.2f} s'}", flush=True)
        if not options.dry:
            totals.write("interrupts", figures)
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
