"""Several files made of one: how much goes into each, and how they appear together.

Each file is written under a name of its own that nobody looks for. When all are whole, they get the names
by which they are found; if anything fails before that, none of them stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tensorbytes import formats
from tensorbytes.errors import Hint, UsageError
from tensorbytes.io import publish, storage
from tensorbytes.io.holding import Hold, check_free
from tensorbytes.io.paths import shard_path
from tensorbytes.notebook import Displayed
from tensorbytes.ops.plural import many
from tensorbytes.tensor import Array
from tensorbytes.tree import Leaf

_MOST_PARTS = 99_999
_SHOWN = 12


@dataclass
class Parts(Displayed):
    """The result of `split` and `merge`: the files, and what went into them."""

    source: str
    format: str
    files: list[str] = field(default_factory=list)
    items: list[int] = field(default_factory=list)  # how many records, rows, objects or tensors each file has
    unit: str = "record"  # what these are: "record", "row", "object" or "tensor"
    nbytes: int = 0  # of the files on disk
    changes: list[str] = field(default_factory=list)  # what differs from the source
    sources: list[str] = field(default_factory=list)  # of `merge`: all files that it joined

    @property
    def total(self) -> int:
        return sum(self.items)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = asdict(self)
        sources = plain.pop("sources")
        return plain | {"total": self.total} | ({"sources": sources} if sources else {})

    def __str__(self) -> str:
        files = many(len(self.files), "file")
        lines = [f"{self.source}: {many(self.total, self.unit)} in {files} ({self.format}), {self.nbytes} bytes"]
        lines += [f"  {change}" for change in self.changes]
        rows = list(zip(self.files, self.items, strict=True))
        lines += [f"  {file}  {many(number, self.unit)}" for file, number in rows[:_SHOWN]]
        if len(rows) > _SHOWN:
            lines.append(f"  and {len(rows) - _SHOWN} more")
        return "\n".join(lines)


def part_path(path: str, index: int, count: int, format: str) -> str:
    """x.tfrecord-00000-of-00004 as other tools call them; of other formats the suffix stays: x-00000-of-00004.npz."""
    if formats.get(format).several:
        return shard_path(path, index, count)
    stem, suffix = os.path.splitext(path)
    return shard_path(stem, index, count) + suffix


class FileSet:
    """Files that get their names together. `inputs` are paths that must not be among them."""

    def __init__(self, path: str, format: str, sync: bool, inputs: Iterable[str]) -> None:
        publish.check_folder(path)  # of the name that was given, rather than of a hidden one
        self._path, self._format, self._sync = path, format, sync
        self._inputs = [os.path.realpath(one) for one in inputs if storage.is_local(one)]
        self._names = publish.Names(path)
        self._hidden: list[str] = []
        self.count = 0  # no records of old parts stay
        self.published = False  # whether any of them has its name

    def new(self) -> str:
        """The name under which the next file is written."""
        if len(self._hidden) == _MOST_PARTS:
            raise UsageError(f"more than {_MOST_PARTS} parts", hints=[Hint(purpose="make them larger")])
        self._hidden.append(self._names.name(len(self._hidden)))
        return self._hidden[-1]

    @property
    def hidden(self) -> list[str]:
        """The names that the files so far have until then."""
        return list(self._hidden)

    @property
    def names(self) -> list[str]:
        """The names that the files so far will have."""
        count = len(self._hidden)
        return [part_path(self._path, index, count, self._format) for index in range(count)]

    @property
    def replaces(self) -> bool:
        return any(map(os.path.lexists, self.names))

    def publish(self, showing: AbstractContextManager[None] | None = None) -> list[str]:
        """Give all files their names, which these are, in the block `showing`."""
        names = self.names
        check_apart(names, self._inputs)
        for name in names:
            if os.path.isdir(name):
                raise UsageError("a folder has the name that a part would have", path=name)
        # Two who make the same parts at once would leave some of each.
        with Hold(publish.absolute(self._path)):
            for name in names:
                check_free(name)  # before any of them is replaced
            with showing or contextlib.nullcontext():
                self._rename(names)
        self._names.close()
        return names

    def _rename(self, names: list[str]) -> None:
        new: list[str] = []
        try:
            for unnamed, name in zip(self._hidden, names, strict=True):
                existed = os.path.lexists(name)
                publish.put(unnamed, name)
                self.published = True
                new += [] if existed else [name]
        except BaseException:
            _remove(new)
            raise
        if self._sync:
            publish.sync_folder(names[0])

    def discard(self) -> None:
        """Remove the files that have not got their names, if any."""
        self._names.close()


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def check_apart(outputs: Iterable[str], inputs: Iterable[str]) -> None:
    """An input must not be replaced by what is made of it."""
    read = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise UsageError(
                "it is one of the files that are read", path=path, hints=[Hint(purpose="give the result another name")]
            )


class Cutter:
    """Decides how many of the next items go into the present file."""

    def __init__(self, rows: int | None, nbytes: int | None, counts: list[int] | None = None) -> None:
        self._rows, self._bytes = rows, nbytes
        self._counts = counts  # how many items each file shall have
        self.items = [0]
        self._have = 0

    def take(self, sizes: Array) -> int:
        """How many items of these sizes still go into this file; if none, the next one is to be opened."""
        number = len(sizes)
        most = self._rows if self._counts is None else self._counts[len(self.items) - 1]
        if most is not None:
            number = min(number, most - self.items[-1])
        if self._bytes is not None and number:
            fit = int(np.searchsorted(np.cumsum(sizes[:number]), self._bytes - self._have, side="right"))
            number = fit if fit or self.items[-1] else 1  # what is too large for any file is alone in one
        self.items[-1] += number
        self._have += int(sizes[:number].sum())
        return number

    def next(self) -> None:
        self.items.append(0)
        self._have = 0

    @property
    def empty_left(self) -> bool:
        """Whether there are files still to come, with nothing in them."""
        return self._counts is not None and len(self.items) < len(self._counts)


def deal_evenly(total: int, shards: int) -> list[int]:
    """How many of `total` items each of some files gets, as evenly as it goes."""
    return [total * (index + 1) // shards - total * index // shards for index in range(shards)]


# ---- sizes --------------------------------------------------------------------


def groups(leaves: list[Leaf]) -> list[list[Leaf]]:
    """Leaves that must stay together, since a part of a list is not a list: all of each list."""
    found: dict[Any, list[Leaf]] = {}
    for leaf in leaves:
        steps = [kind for kind, _ in leaf.path]
        cut = next((at for at, kind in enumerate(steps) if kind in ("list", "tuple")), None)
        key = ("alone", len(found)) if cut is None else ("list", leaf.path[:cut])
        found.setdefault(key, []).append(leaf)
    return list(found.values())


def fill(sizes: list[int], most: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of runs of items of at most this many bytes; a larger item is alone."""
    start, room = 0, most
    for at, size in enumerate(sizes):
        if at > start and size > room:
            yield start, at
            start, room = at, most
        room -= size
    if sizes:
        yield start, len(sizes)


def smallest_limit(sizes: list[int], shards: int) -> int:
    """The smallest limit by which `fill` makes at most this many runs."""
    low, high = max([1, *sizes]), max(1, sum(sizes))
    while low < high:
        middle = (low + high) // 2
        if sum(1 for _ in fill(sizes, middle)) <= shards:
            high = middle
        else:
            low = middle + 1
    return low
