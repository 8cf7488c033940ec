"""Files that are appended to: the four kinds, ways to damage them, and what must hold when one is opened with "a"."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensorbytes as tb

CUT = ".tensorbytes-cut-"  # and a number from 1 on
UNCLOSED = ".tensorbytes-unclosed-"
LOCK = ".tensorbytes-lock.tmp"
_MARKER = 999_999  # the record that an attempt to append adds


@dataclass(frozen=True)
class Kind:
    """A stream of objects, or a file of records in one compression."""

    name: str
    compression: str = ""

    @property
    def is_stream(self) -> bool:
        return not self.compression

    def file(self, folder: Any) -> Path:
        return Path(folder) / ("x.tb" if self.is_stream else "x.tfrecord")

    def open(self, path: Any, mode: str = "w") -> Any:
        """A writer; one that appends keeps the compression that is there."""
        if self.is_stream:
            return tb.open(path, mode)
        compression = self.compression if mode == "w" or not os.path.exists(path) else None
        return tb.RecordWriter(path, mode=mode, compression=compression, sidecar=False)

    def read(self, path: Any) -> list[int]:
        """The numbers of all records; raises where the file is damaged."""
        if self.is_stream:
            with tb.open(path, format="tb") as stream:
                return [_number_of(one) for one in stream]
        return [_number_of(row) for row in tb.open_records(path, threads=1)]

    def read_undamaged(self, path: Any) -> list[int]:
        """The numbers of the records that a reader finds around damage."""
        if self.is_stream:
            return [int(one["x"]) for one in tb.open_records(path, on_corrupt="skip")]
        return [_number_of(row) for row in tb.open_records(path, on_corrupt="skip", threads=1)]

    def write(self, path: Any, numbers: Any, mode: str = "w") -> list[int]:
        """Write records; gives where each of them ends."""
        ends = []
        with self.open(path, mode) as writer:
            for number in numbers:
                writer.write(record(number))
                writer.flush()
                ends.append(os.path.getsize(path))
        return ends


STREAM = Kind("stream")
PLAIN, GZIP, SNAPPY = (Kind(f"records {name}", name) for name in ("none", "gzip", "snappy"))
KINDS = [STREAM, PLAIN, GZIP, SNAPPY]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def record(number: int) -> dict[str, Any]:
    """Record `number`: what it holds tells which it is."""
    return {"x": np.int64(number), "y": np.full(2, number, np.int64)}


def _number_of(found: Any) -> int:
    number = int(found["x"])
    assert found["y"].tolist() == [number] * 2, f"record {number} came back changed"
    return number


class Sample(NamedTuple):
    """A sound file: its bytes, and where each of its records starts and ends."""

    kind: Kind
    data: bytes
    spans: list[tuple[int, int]]


def sample(kind: Kind, folder: Any, count: int = 6) -> Sample:
    path = kind.file(folder)
    ends = kind.write(path, range(count))
    data = path.read_bytes()
    path.unlink()
    assert ends[-1] == len(data)
    return Sample(kind, data, list(zip([0, *ends], ends, strict=False)))


class Attempt(NamedTuple):
    """What became of a file that was opened with "a" and written to."""

    refused: str  # the error, "" if there was none
    kept: int  # bytes of the file as it was that are still in it


def attempt(kind: Kind, path: Path) -> Attempt:
    """Append one record. Whatever happens, each byte that was there is still there."""
    before = path.read_bytes()
    names = {entry.name for entry in path.parent.iterdir()}
    refused, opened = "", False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with kind.open(path, "a") as writer:
                opened = True
                writer.write(record(_MARKER))
        except tb.errors.TensorbytesError as error:
            refused = f"{type(error).__name__}: {error}"
    made = sorted(entry.name for entry in path.parent.iterdir() if entry.name not in names)
    after = path.read_bytes()
    if not opened:
        assert after == before, f"{refused}; and yet it was changed"
        assert made == [], f"{refused}; and yet a file was left"
        return Attempt(refused, len(before))
    # Damage may also be found when the first record is written, to learn what others look like.
    assert made in ([], [f"{path.name}{CUT}1"]), f"made {made}"
    cut = (path.parent / made[0]).read_bytes() if made else b""
    told = [str(warning.message) for warning in caught if warning.category is tb.errors.TornTailWarning]
    assert len(told) == len(made), f"made {made}, and said {told}"
    assert not made or made[0] in told[0], f"made {made}, and said {told}"
    kept = len(before) - len(cut)
    lost = f"of {len(before)} bytes {len(cut)} are in {made}, and the file has {len(after)}"
    assert after[:kept] + cut == before, f"bytes are lost: {lost}"
    assert (len(after) > kept) != bool(refused), f"the new record: {refused or 'it is not there'}"
    return Attempt(refused, kept)


def check(found: Sample, damaged: bytes, folder: Path) -> Attempt:
    """Append to a damaged file: no record that is as it was may be cut off, let alone lost."""
    path = found.kind.file(folder)
    for old in folder.iterdir():
        old.unlink()
    path.write_bytes(damaged)
    tried = attempt(found.kind, path)
    for number, (start, end) in enumerate(found.spans):
        if damaged[start:end] == found.data[start:end]:
            assert end <= tried.kept, f"record {number} is sound, and was cut off"
    return tried


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def zeroed(data: bytes, start: int, stop: int) -> bytes:
    stop = min(stop, len(data))
    return data[:start] + bytes(stop - start) + data[stop:]
