"""Keep a small corpus of each target: python -m safety.fuzz.parsers.keep [NAME ...], after a run.

libFuzzer picks few inputs that together reach every edge that the grown corpus reaches and the seeds,
which are made anew in every run, do not. The smallest stay, up to a size that is no burden to anybody.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from safety.fuzz.parsers.run import CORPUS, ROOT, plant
from safety.fuzz.parsers.targets import TARGETS

_MOST_BYTES = 8_000
_GROWN = ROOT / "build/fuzz/parsers"


def keep(name: str, grown: Path) -> tuple[int, int]:
    """(the number, the bytes) of what is kept of one target."""
    target, kept = TARGETS[name], CORPUS / name
    plant(target, grown)
    made = {hashlib.sha1(data).hexdigest(): data for data in target.seeds()}
    with tempfile.TemporaryDirectory() as merged:
        for digest, data in made.items():
            (Path(merged) / digest).write_bytes(data)
        command = ["-set_cover_merge=1", "-use_counters=0", f"-max_len={target.max_len}", merged, str(grown)]
        subprocess.run(
            [sys.executable, "-m", "safety.fuzz.parsers.child", name, *command],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        found = [path.read_bytes() for path in Path(merged).iterdir() if path.name not in made]
    kept.mkdir(parents=True, exist_ok=True)
    for path in kept.iterdir():
        path.unlink()
    total = number = 0
    for data in sorted(found, key=len):
        if total + len(data) > _MOST_BYTES:
            break
        (kept / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)
        total, number = total + len(data), number + 1
    return number, total


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 and "/" in sys.argv[1] else _GROWN
    for name in [word for word in sys.argv[1:] if "/" not in word] or TARGETS:
        if (grown := folder / name / "corpus").is_dir():
            number, total = keep(name, grown)
            print(f"{name:18} {number:4} files {total:6} bytes", flush=True)


if __name__ == "__main__":
    main()
