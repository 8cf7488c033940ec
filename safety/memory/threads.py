"""python -m safety.memory.threads KERNEL: sixteen threads in a kernel that was built elsewhere, with ThreadSanitizer.

They share what is read, and each has its own to write to. Large copies take threads of the kernel's own.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from safety.memory.exercise import use

THREADS = 16


def main() -> None:
    kernel = use(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    import tensorbytes as tb
    from safety.memory.calls import calls

    large = np.arange(3 << 20, dtype=np.uint32)
    shared = tb.dumps({"w": large[:50_000], "s": np.array(["a", "b"])}, compression="split+huffman")
    framed = kernel.crc32c(kernel.frame(b"head", large))

    def work(number: int) -> int:
        made = 0
        for _ in range(rounds):
            for named in calls().values():
                for call in named.values():
                    call()
                    made += 1
            found = tb.loads(shared)
            if not np.array_equal(found["w"], large[:50_000]):
                raise AssertionError("something else was read")
            if number < 2 and kernel.crc32c(kernel.frame(b"head", large)) != framed:
                raise AssertionError("something else was copied")
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        print(sum(pool.map(work, range(THREADS))), "calls")


if __name__ == "__main__":
    main()
