"""The inputs that are kept of each fuzz target.

safety/fuzz/corpus/<target>.tfrecord       what reaches most of the code: one record for each input
safety/fuzz/regressions/<target>/<name>    what once failed: one file for each, named for what was wrong

Not for child.py: this imports the library, which is instrumented there first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tensorbytes import _wire, open_records

ROOT = Path(__file__).parents[2]
CORPUS, REGRESSIONS = ROOT / "safety/fuzz/corpus", ROOT / "safety/fuzz/regressions"


def ordered(inputs: Iterable[bytes]) -> list[bytes]:
    """Each input once, the shortest first."""
    return sorted(set(inputs), key=lambda data: (len(data), data))


def packed(inputs: Iterable[bytes]) -> bytes:
    """A TFRecord file of these inputs: the same bytes in whatever order they come."""
    return _wire.frames([[data] for data in ordered(inputs)])


def write(target: str, inputs: Iterable[bytes]) -> None:
    (CORPUS / f"{target}.tfrecord").write_bytes(packed(inputs))


def read(target: str) -> list[bytes]:
    """The corpus of a target; a new one has none yet."""
    path = CORPUS / f"{target}.tfrecord"
    return list(open_records(path, compression="none").payloads()) if path.exists() else []


def kept(target: str) -> Iterator[tuple[str, bytes]]:
    """The corpus of a target and what once failed, each input with its place."""
    for number, data in enumerate(read(target)):
        yield f"safety/fuzz/corpus/{target}.tfrecord, record {number}", data
    for path in sorted((REGRESSIONS / target).glob("*")):
        yield str(path.relative_to(ROOT)), path.read_bytes()


def unpack(inputs: Iterable[bytes], folder: Path) -> list[Path]:
    """Write each input to a file of its own, under the name that libFuzzer would give it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for data in inputs:
        path = folder / hashlib.sha1(data).hexdigest()
        path.write_bytes(data)
        paths.append(path)
    return paths
