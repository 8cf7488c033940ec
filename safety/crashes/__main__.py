"""python -m safety.crashes: stop every writer at every system call."""

from __future__ import annotations

import os
import sys
import tempfile

from safety.crashes import faults


def start(argv: list[str]) -> int:
    """Run again with the library of faults loaded."""
    if not faults.loaded():
        with tempfile.TemporaryDirectory(prefix="crashes-") as folder:
            environment = os.environ | {"LD_PRELOAD": faults.build(folder), "OPENBLAS_NUM_THREADS": "1"}
            words = [sys.executable, "-m", "safety.crashes", *argv]
            return os.spawnve(os.P_WAIT, sys.executable, words, environment)
    from safety.crashes import sweep

    return sweep.main(argv)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
