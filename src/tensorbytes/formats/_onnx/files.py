"""ONNX's external data: tensors whose bytes stand in a file beside the model.

A model names that file, and a hostile one may name any. So it must be a regular file with
a single name, in the model's folder or below it, once all links are followed. It is mapped
for lazy reading and read once otherwise; tensors are views of it.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import re
import stat
from collections.abc import Mapping

from tensorbytes.errors import CorruptError, Hint, UnsupportedError
from tensorbytes.io import storage

_DIGITS = re.compile("[0-9]{1,19}")
_SHA1 = re.compile("[0-9a-fA-F]{40}")


class ExternalFiles:
    """The files beside a model. `folder` is None for bytes that came without a path."""

    def __init__(self, folder: str | None, lazy: bool) -> None:
        self._folder, self._lazy = folder, lazy
        self._open: dict[str, memoryview] = {}
        self._sums: dict[str, str] = {}

    def view(self, entries: Mapping[str, str], need: int, label: str, at: int) -> memoryview:
        """The `need` bytes of a tensor; `entries` are its external_data."""
        data = self._file(entries.get("location", ""), label, at)
        offset = _number(entries, "offset", 0, label, at)
        length = _number(entries, "length", need, label, at)
        if length != need:
            raise CorruptError(f"{label} takes {need} bytes, external_data gives it {length}", at=at)
        if offset + length > len(data):
            raise CorruptError(
                f"{label} is said to stand at bytes {offset} to {offset + length} of {entries['location']!r}, "
                f"which has {len(data)}",
                at=at,
            )
        return data[offset : offset + length]

    def check(self, entries: Mapping[str, str], label: str, at: int) -> None:
        """The SHA-1 of the whole file, where external_data gives it."""
        wanted, location = entries.get("checksum"), entries.get("location", "")
        if wanted is None:
            return
        if not _SHA1.fullmatch(wanted):
            raise CorruptError(f"{label}: the checksum {wanted[:60]!r} is not a SHA-1 in 40 hexadecimal digits", at=at)
        if location not in self._sums:
            self._sums[location] = hashlib.sha1(self._file(location, label, at), usedforsecurity=False).hexdigest()
        if self._sums[location] != wanted.lower():
            raise CorruptError(f"{label}: the checksum of {location!r} differs", at=at)

    def _file(self, location: str, label: str, at: int) -> memoryview:
        if self._folder is None:
            raise UnsupportedError(
                f"{label} keeps its data in another file, {location!r}, which bytes alone don't lead to",
                at=at,
                hints=[Hint(operation="load", arguments=("path",), purpose="reads the model with its files")],
            )
        if location not in self._open:
            self._open[location] = self._read(self._resolve(location, label, at), location, label, at)
        return self._open[location]

    def _resolve(self, location: str, label: str, at: int) -> str:
        """The path of a file in the folder, or a refusal."""
        assert self._folder is not None
        steps = location.split("/")
        odd = not location or "\0" in location or "\\" in location or ":" in steps[0]
        if odd or os.path.isabs(location) or any(step in ("", "..") for step in steps):
            raise CorruptError(
                f"{label}: external data in {location[:200]!r}, which is not a plain relative path", at=at
            )
        root = os.path.realpath(self._folder)
        try:
            path = os.path.realpath(os.path.join(root, location))
            inside = os.path.commonpath((root, path)) == root and path != root
        except (OSError, ValueError) as error:
            raise CorruptError(f"{label}: external data in {location[:200]!r}: {error}", at=at) from None
        if not inside:
            raise CorruptError(
                f"{label}: external data in {location!r}, a link that leads out of the model's folder",
                at=at,
                hints=[Hint(purpose="put the file itself there")],
            )
        return path

    def _read(self, path: str, location: str, label: str, at: int) -> memoryview:
        # Not to wait for a pipe, nor to follow a link that has taken the file's place meanwhile.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            fd = os.open(path, flags)
        except OSError as error:
            what = error.strerror or type(error).__name__
            raise CorruptError(f"{label}: external data in {location!r}: {what}", at=at) from None
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                raise CorruptError(f"{label}: external data in {location!r}, which is not a regular file", at=at)
            if state.st_nlink > 1:
                raise CorruptError(
                    f"{label}: external data in {location!r}, a file with {state.st_nlink} names, "
                    "which may be someone else's",
                    at=at,
                    hints=[Hint(purpose="make it a copy")],
                )
            if not state.st_size:
                return memoryview(b"")
            if self._lazy:
                return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
            with io.FileIO(fd, closefd=False) as file:
                return storage.read_whole(file)
        finally:
            os.close(fd)


def _number(entries: Mapping[str, str], key: str, default: int, label: str, at: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not _DIGITS.fullmatch(text):
        raise CorruptError(f"{label}: the {key} of its external data is {text[:60]!r}, expected digits", at=at)
    return int(text)
