"""Keep a small corpus of each target: python -m safety.fuzz.parsers.keep [NAME ...], after a run.

libFuzzer picks few inputs that together reach every edge that the grown corpus reaches and the seeds,
which are made anew in every run, do not. The smallest stay, up to a few thousand bytes for each target.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from safety.fuzz import corpora
from safety.fuzz.parsers.run import ROOT, plant
from safety.fuzz.parsers.targets import TARGETS

_MOST_BYTES = 8_000
_GROWN = ROOT / "build/fuzz/parsers"


def keep(name: str, grown: Path) -> tuple[int, int]:
    """(the number, the bytes) of what is kept of one target."""
    target = TARGETS[name]
    plant(target, grown)
    with tempfile.TemporaryDirectory() as merged:
        made = set(corpora.unpack(target.seeds(), Path(merged)))
        command = ["-set_cover_merge=1", "-use_counters=0", f"-max_len={target.max_len}", merged, str(grown)]
        subprocess.run(
            [sys.executable, "-m", "safety.fuzz.parsers.child", name, *command],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        found = [path.read_bytes() for path in Path(merged).iterdir() if path not in made]
    kept: list[bytes] = []
    total = 0
    for data in corpora.ordered(found):
        if total + len(data) > _MOST_BYTES:
            break
        kept.append(data)
        total += len(data)
    corpora.write(name, kept)
    return len(kept), total


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 and "/" in sys.argv[1] else _GROWN
    for name in [word for word in sys.argv[1:] if "/" not in word] or TARGETS:
        if (grown := folder / name / "corpus").is_dir():
            number, total = keep(name, grown)
            print(f"{name:18} {number:4} inputs {total:6} bytes", flush=True)


if __name__ == "__main__":
    main()
