"""What a golden file of the sweeps is, and where those of other libraries are."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support import CORPUS

FOREIGN = CORPUS / "sweep"
VALID = CORPUS / "valid"
# The state of zlib or isal: a window of 32 KiB, tables, a buffer for the output.
INFLATER = 96 << 10
# The same for what deflates the schema of a table, which its origin tells.
DEFLATER = 288 << 10
# Two blocks of 2 MiB, and what is beside them.
BLOCKS = (4 << 20) + (96 << 10)
# A file is read through in pieces of this size.
PIECE = 1 << 20
FULL_ONLY = ("recognised", "sliced", "path mapped", "inferred", "piped rows")
SMALL_ONLY = (*FULL_ONLY, "shortcut", "batches", "random rows")
LARGE = 1000
TENSORS = ("loads", "recognised", "lazy")
FILES = ("path whole", "path lazy", "path mapped")
RECORDS = ("rows", "piped rows", "batches", "random rows", "kept rows", "verified", "inferred")


@dataclass(frozen=True)
class Golden:
    """Some files, of which one is damaged; a single file has no name and is read from memory."""

    name: str
    files: Mapping[str, bytes]
    ways: tuple[str, ...]
    format: str | None = None
    damaged: str = ""
    opened: str = ""  # what is opened; "": the folder
    checked: bool = False  # whether no other data may come out of a damaged file
    renewed: bool = False  # whether a damaged file is replaced rather than refused
    stream: bool = False  # whether a cut between two objects leaves a sound file
    options: Mapping[str, Any] = field(default_factory=dict)
    inflated: int = 0  # the size of what is compressed in it: errors may tell a place in there
    working: int = 0  # what reading takes for itself, whatever is in the file
    small: bool = True  # whether it is swept at each commit

    @property
    def data(self) -> bytes:
        return self.files[self.damaged]


def one(name: str, data: bytes, *ways: str, small: int = 1 << 20, **more: Any) -> Golden:
    return Golden(name, {"": data}, ways or TENSORS, small=len(data) <= small, **more)


def saved(area: str, format: str, *ways: str, small: int = 400, **more: Any) -> Iterator[Golden]:
    """The files of a library."""
    for path in sorted((FOREIGN / area).iterdir()):
        if path.is_file():
            yield one(path.name, path.read_bytes(), *ways, format=format, small=small, **more)


def folders(area: str, small: int = 400, **more: Any) -> Iterator[Golden]:
    """Each file of each folder of a library."""
    for folder in sorted((FOREIGN / area).iterdir()):
        if folder.is_dir():
            found = sorted(path for path in folder.rglob("*") if path.is_file())
            files = {str(path.relative_to(folder)): path.read_bytes() for path in found}
            yield from each(folder.name, files, small=small, **more)


def each(name: str, files: dict[str, bytes], small: int = 400, **more: Any) -> Iterator[Golden]:
    given = {"ways": FILES} | more
    for damaged, data in files.items():
        if data:
            yield Golden(f"{name}: {damaged}", files, damaged=damaged, small=len(data) <= small, **given)


def folder_of(fill: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that something writes."""
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name))
        found = sorted(path for path in Path(name).rglob("*") if path.is_file())
        return {str(path.relative_to(name)): path.read_bytes() for path in found}


def stamp(path: Any) -> None:
    """Files of a golden case have this time, always: a saved index tells it."""
    os.utime(path, ns=(10**18, 10**18))


def without(golden: Golden, ways: tuple[str, ...]) -> Golden:
    return replace(golden, ways=tuple(way for way in golden.ways if way not in ways))
