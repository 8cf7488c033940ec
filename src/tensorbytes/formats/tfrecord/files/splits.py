"""Byte ranges of files that can be read independently, each record in exactly one of them.

A cut is first put at an even distance, then moved to where a record starts: the next place
with a sound header, from which sound headers lead to the next cut, or go on for 64 MiB. A
payload may hold TFRecords itself; their headers break off where it ends, so that they are not
taken for the file's. For payloads that hold more than that, build_index first: plan uses it.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np

from tensorbytes import _wire
from tensorbytes.errors import Hint, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import open_stream
from tensorbytes.formats.tfrecord.files.index import Index, current_index
from tensorbytes.io import storage
from tensorbytes.io.paths import Split, expand
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.tfrecord.walk import Walk, reader

_LOOK_BYTES = 1 << 20
# Headers must go on this far after a cut, unless they meet the next one.
_CONFIRM_BYTES = 64 << 20


def plan(paths: Any, n: int) -> list[Split]:
    """Divide uncompressed files into about `n` byte ranges of like size, none across two files.

    `open_records(split)` reads one. Compressed files can't be read from the middle: each is
    refused, with the advice to read whole files in parallel.
    """
    if n < 1:
        raise UsageError(f"{n} splits", expected="1 or more")
    files = []
    for target in expand(paths):
        if not storage.is_local(target):
            raise UsageError("only local files are split", path=storage.describe(target))
        with open_stream(target) as stream:
            if stream.compression != "none":
                raise UsageError(
                    f"a compressed file ({stream.compression}) can't be read from the middle",
                    path=stream.path,
                    hints=[Hint(purpose="give whole files to each reader")],
                )
            files.append((os.fspath(target), stream.size or 0))
    total = sum(size for _, size in files)
    share = max(1, -(-total // n))
    return [split for path, size in files for split in _split(path, size, max(1, round(size / share)))]


def _split(path: str, size: int, count: int) -> list[Split]:
    """Cuts are looked for from the last to the first: a chain of headers that meets one already found is right."""
    if not size:
        return []
    index = current_index(path)
    borders = [size]
    with open(path, "rb", buffering=0) as file:
        for number in range(count - 1, 0, -1):
            wanted = size * number // count
            found = None if index is None else _indexed(file, index, wanted, borders[-1])
            if found is None:
                index, found = None, next_record(file, wanted, borders[-1])
            if 0 < found < borders[-1]:
                borders.append(found)
    borders.append(0)
    return [Split(path, start, end) for end, start in reversed(list(pairwise(borders)))]


def _indexed(file: Any, index: Index, at: int, border: int) -> int | None:
    """Where the first record from `at` on starts, by the index; None if the headers there say otherwise."""
    starts = index.records[:, 0] - HEADER_BYTES
    number = int(np.searchsorted(starts, at))
    if number == len(starts) or starts[number] >= border:
        return border
    found = int(starts[number])
    if _follow(file, found, border) is None:
        return found
    index.refuse()
    return None


def next_record(file: Any, at: int, border: int) -> int:
    """Where the first record from `at` on starts; `border`, where one does, if there is none before."""
    while at < border:
        data = reader(file)(at, min(_LOOK_BYTES, border - at))
        found = _wire.resync(data, 0, len(data))
        if found + HEADER_BYTES > len(data):
            if at + len(data) >= border:
                break
            at += len(data) - HEADER_BYTES + 1
            continue
        broken = _follow(file, at + found, border)
        if broken is None:
            return at + found
        at = broken + 1
    return border


def _follow(file: Any, at: int, border: int) -> int | None:
    """Follow the headers from a record to a border, or far enough; where they break off, None if they don't.

    All records on the way would break off at the same place, so that the search goes on after it.
    """
    stop = min(border, at + _CONFIRM_BYTES)
    for verify in (True, False):  # the payloads of the first piece are looked at, too
        walk = Walk(reader(file), at, border, verify=verify)
        for _ in walk:
            if verify or walk.at >= stop:
                break
        at = walk.at
        if walk.status:
            return at
    return None
