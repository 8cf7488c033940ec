"""Where to go on in a file that is appended to, and what of its end may be cut off first.

Only what is provably an unfinished last write is cut: a record whose bytes are not all there, or were never written
(zeros, as a power cut leaves them), of a file that has shown to be of this kind, with nothing sound after it to the
end of the file. Anything else is damage, for repair to deal with, and the file stays as it is. What is cut off is kept
beside the file.
"""

from __future__ import annotations

import contextlib
import os
import struct
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorbytes._wire import BAD_LENGTH, CUT_PAYLOAD, crc32c, mask, resync
from tensorbytes.errors import CorruptError, Hint, TornTailWarning
from tensorbytes.io import hidden, publish, storage
from tensorbytes.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from tensorbytes.tfrecord.walk import Walk, reader

_READ_BYTES = 1 << 20
# More is wrong with a file than its end: nothing is cut off it.
NOT_JUST_CUT = Hint(
    operation="repair", arguments=("src", "dst"), purpose="must come first: it is damaged, not just cut"
)


class End(NamedTuple):
    """Where the last whole record or object of a file ends, and how many there are."""

    at: int
    records: int


# Is told of each record (where its payload starts and ends) up to the last that is sound, and gives the end of the
# last object that is whole; records by themselves have none.
Objects = Callable[["list[tuple[int, int]]"], End]


def find(file: Any, path: str, objects: Objects | None = None) -> End:
    """The end of the last whole record of a plain file that is not empty, or of the last whole object."""
    size = os.fstat(file.fileno()).st_size
    walk, last, spans = Walk(reader(file), 0, size), (0, 0), []
    for places in walk:
        last = tuple(places[-1].tolist())
        if objects is not None:
            spans += [(start, start + length) for start, length in places.tolist()]
    end = End(walk.at, walk.count)
    if end.at < size:
        _check_torn(file, path, walk, size)
    elif not _is_sound(file, *last):
        if _read(file, size - FOOTER_BYTES, FOOTER_BYTES).strip(b"\0"):
            raise CorruptError(
                "the checksum of the last record's data differs", at=last[0], path=path, hints=[NOT_JUST_CUT]
            )
        end = End(last[0] - HEADER_BYTES, walk.count - 1)
        _check_nothing_sound(file, path, last[0], size, "the last record was not written to its end")
    if objects is not None:
        try:
            end = objects(spans[: end.records])
        except CorruptError as error:
            raise error.replaced(path=path, hints=(NOT_JUST_CUT,)) from None
    if end.at < size:
        _check_all(file, path, end.at)
    return end


def _check_torn(file: Any, path: str, walk: Walk, size: int) -> None:
    """Raise unless what follows the last whole record can only be a write that was not finished."""
    if walk.status == CUT_PAYLOAD:
        _check_nothing_sound(file, path, walk.at + 1, size, "a record claims more bytes than the file has")
        return
    written = _unpadded(file, walk.at, size) - walk.at
    if not walk.count and not written:
        raise CorruptError(
            "nothing but zeros, which don't tell whose they are",
            at=0,
            path=path,
            hints=[Hint(purpose="remove it"), NOT_JUST_CUT],
        )
    if not walk.count:
        raise CorruptError(
            "not a file of records, or its first header is damaged", at=0, path=path, hints=[NOT_JUST_CUT]
        )
    if walk.status == BAD_LENGTH and written >= HEADER_BYTES:  # else it is cut, or the rest of it was never written
        raise CorruptError("the checksum of a record's length differs", at=walk.at, path=path, hints=[NOT_JUST_CUT])


def _check_all(file: Any, path: str, end: int) -> None:
    """Raise if any record is damaged: nothing is cut off a file that has more wrong with it than its end."""
    walk = Walk(reader(file), 0, end, verify=1)
    for places in walk:
        start, length = places[-1].tolist()
        if length > _READ_BYTES - FRAME_BYTES and not _is_sound(file, start, length):
            raise CorruptError(
                "the checksum of a record's data differs", at=start - HEADER_BYTES, path=path, hints=[NOT_JUST_CUT]
            )
    if walk.status:
        raise CorruptError("the checksum of a record's data differs", at=walk.at, path=path, hints=[NOT_JUST_CUT])


def _check_nothing_sound(file: Any, path: str, at: int, size: int, what: str) -> None:
    """Raise if any header from here to the end of the file is sound, and its record would fit."""
    start = at
    while at + HEADER_BYTES <= size:
        data, inside = _read(file, at, min(_READ_BYTES, size - at)), 0
        while (inside := resync(data, inside, len(data))) + HEADER_BYTES <= len(data):
            here = at + inside
            if int.from_bytes(data[inside : inside + 8], "little") <= size - here - FRAME_BYTES:
                raise CorruptError(
                    f"{what}, and others follow it at byte {here}", at=start, path=path, hints=[NOT_JUST_CUT]
                )
            inside += 1
        at += len(data) - HEADER_BYTES + 1


def _unpadded(file: Any, start: int, size: int) -> int:
    """Where the zeros start that the file ends with, not before `start`."""
    while size > start:
        at = max(start, size - _READ_BYTES)
        data = _read(file, at, size - at).rstrip(b"\0")
        if data:
            return at + len(data)
        size = at
    return start


def _is_sound(file: Any, start: int, length: int) -> bool:
    """Whether a record's data have their checksum after them."""
    at, end, crc = start, start + length, 0
    while at < end:
        piece = _read(file, at, min(_READ_BYTES, end - at))
        crc, at = crc32c(piece, crc), at + len(piece)
    return _read(file, end, FOOTER_BYTES) == struct.pack("<I", mask(crc))


def _read(file: Any, at: int, size: int) -> bytes:
    data = bytearray(size)
    storage.read_at(file, memoryview(data), at)
    return bytes(data)


# ---- cutting ------------------------------------------------------------------------


def cut(file: Any, path: str, good: int, what: str, stacklevel: int) -> None:
    """Cut a file off after its last whole object, if there is more: that is kept beside it, and told of."""
    torn = os.fstat(file.fileno()).st_size - good
    if not torn:
        return
    place = _kept(file, path, good)
    warnings.warn(
        f"{path}: cut off {torn} bytes of an unfinished {what} at byte {good}; they are kept in {place}",
        TornTailWarning,
        stacklevel=stacklevel + 1,
    )
    file.truncate(good)


def _kept(file: Any, path: str, start: int) -> str:
    """Copy the end of a file to one beside it, on disk; its name."""
    mode = os.fstat(file.fileno()).st_mode & 0o777
    for name in hidden.kept_names(path, "cut"):
        try:
            copy = open(name, "xb", buffering=0, opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
        except FileExistsError:
            continue
        try:
            with copy:
                at, size = start, os.fstat(file.fileno()).st_size
                while at < size:
                    piece = _read(file, at, min(_READ_BYTES, size - at))
                    storage.write_all(copy, piece)
                    at += len(piece)
                os.fsync(copy.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        publish.sync_folder(name)
        return name
    raise AssertionError("there is always another name")
