"""python -m safety.memory.exercise KERNEL: some thousand calls of a kernel that was built elsewhere, with sanitizers.

Sound input, damaged input, and input that other threads change meanwhile. The sanitizers end the process at the first
fault; without one it prints how many calls were made.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


def use(path: str) -> Any:
    """Have the package use this kernel; before anything else of it is imported."""
    name = "tensorbytes._wire._kernel"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    kernel = importlib.util.module_from_spec(spec)
    loader.exec_module(kernel)
    sys.modules[name] = kernel
    from tensorbytes import _wire

    if _wire.kernel is not kernel:
        raise SystemExit("the package took another kernel")
    return kernel


def damaged(rounds: int) -> int:
    """Files with a few bytes changed, read by everything that reads such files."""
    import tensorbytes as tb

    random = np.random.default_rng(7)
    tree = {"w": np.arange(40, dtype=np.float32), "s": np.array(["one", "two"]), "n": 3}
    files = [
        tb.dumps(tree),
        tb.dumps(tree, compression="split+huffman"),
        tb.dumps(np.array([b"a", b"bc"], object), "tensorproto"),
    ]
    files += [tb.dumps(np.arange(3000) % 7, compression=how) for how in ("huffman", "pack+huffman", "delta+pack")]
    for _ in range(rounds):
        for data in files:
            bent = np.frombuffer(data, np.uint8).copy()
            bent[random.integers(0, len(bent), 3)] ^= random.integers(0, 256, 3, np.uint8)
            try:
                tb.loads(bent[: random.integers(1, len(bent) + 1)])
            except tb.errors.TensorbytesError:
                continue
    return rounds * len(files)


def direct(kernel: Any, rounds: int) -> int:
    """The decoders themselves: no checksum stands before them."""
    random = np.random.default_rng(8)
    plane = (np.arange(900) % 5).astype(np.uint8)
    room, out, places = np.empty(1000, np.uint8), np.empty(900, np.uint8), np.empty((20, 2), np.int64)
    code = room[: kernel.huffman_encode(plane, room)].copy()
    planes = room[: kernel.planes_encode(plane, room, out, 4, True)].copy()
    strings = np.frombuffer(kernel.strings_pack(0x42, np.arange(0, 90, 9), bytes(90)), np.uint8)
    example = np.frombuffer(b"\x0a\x20\x0a\x1e\x0a\x01a\x12\x19\x1a\x17\x0a\x15" + bytes(range(1, 22)), np.uint8)
    keys, spans = np.array([0, 1], np.int64), np.empty((1, 2), np.int64)
    decimals, text = np.arange(0, 60, 6), np.frombuffer(b"-12.34" * 9, np.uint8)

    def bent(data: Any) -> Any:
        changed = data.copy()
        changed[random.integers(0, len(changed), 2)] = random.integers(0, 256, 2, np.uint8)
        return changed[: random.integers(1, len(changed) + 1)]

    for _ in range(rounds):
        kernel.huffman_decode(bent(code), out)
        kernel.planes_decode(bent(planes), out, np.empty(900, np.uint8), 4, True)
        some = bent(strings)
        kernel.strings_unpack(some, 0, len(some), 0x42)
        kernel.fields(some, 0, len(some), 0)
        kernel.scan(some, 0, True, places)
        kernel.resync(some, 0, len(some))
        some = bent(example)
        kinds, notes = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
        kernel.example_locate(some, np.array([[0, len(some)]]), b"a", keys, 0, kinds, spans, notes)
        if kinds[0] == 3:
            kernel.example_fill(some, spans, 3, -1, np.empty(8, np.int64))
        arrays = [np.empty(8, np.int64), None, np.empty(2, np.int64), None, None]
        kernel.example_decode(some, np.array([[0, len(some)]]), 0, 0, b"a", keys, np.array([3, 0, -1]), 1, 0, arrays)
        kernel.decimal_parse(bent(text), decimals, None, np.empty(144, np.uint8), 16, 2, 10**6)
        kernel.longest_word(bent(text), 3)
    return 11 * rounds


def changing(kernel: Any, rounds: int) -> int:
    """Input that a thread changes while the kernel, which holds no lock, goes through it twice."""
    random = np.random.default_rng(9)
    plane = np.zeros(1 << 17, np.uint8)
    plane[: 1 << 9] = np.arange(1 << 9) % 251
    noise = random.integers(0, 251, len(plane)).astype(np.uint8)
    room = np.empty(len(plane) + 16, np.uint8)
    code = room[: kernel.huffman_encode(plane, room)].copy()
    stop = threading.Event()
    moving, moving_code, sound = plane.copy(), code.copy(), plane.copy()

    def change() -> None:
        while not stop.is_set():
            np.copyto(moving, noise)
            np.copyto(moving, sound)
            moving_code[:200] = random.integers(0, 256, 200, np.uint8)
            np.copyto(moving_code, code)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(rounds):
            kernel.huffman_encode(moving, np.empty(len(plane) + 16, np.uint8))
            kernel.huffman_decode(moving_code, np.empty(len(plane), np.uint8))
    finally:
        stop.set()
        thread.join()
    return 2 * rounds


def main() -> None:
    kernel = use(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    from safety.memory.calls import calls

    made = 0
    named: dict[str, Callable[[], Any]]
    for named in calls().values():
        for call in named.values():
            call()
            made += 1
    print(made + damaged(rounds) + direct(kernel, 5 * rounds) + changing(kernel, rounds // 2), "calls")


if __name__ == "__main__":
    main()
