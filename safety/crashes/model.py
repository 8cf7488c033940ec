"""Power cuts in a model of a disk: whatever was not synced may be there, or not, or in part.

The log of a job's calls is replayed. A file's data are safe once it was synced, a name once its folder was.
For the moment after each call, folders are made as the disk might hold them then: with none, some or all of
the changes of names since the folders were synced, in their order or (some filesystems keep none) each alone;
with none, all or a part of what was written since the files were, and zeros where blocks got lost.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_BLOCK = 4096
# Changes of names since the last sync of which each combination is tried.
_MOST_TOGETHER = 5


class Event(NamedTuple):
    """A line of the library's log."""

    name: str
    path: str
    other: str
    offset: int
    size: int
    data: bytes


@dataclass
class Inode:
    """A file, whatever its name."""

    safe: bytes = b""  # on disk for certain
    now: bytearray = field(default_factory=bytearray)
    pending: bool = False  # whether anything was written since
    growing: list[int] = field(default_factory=list)  # the sizes it had since

    def states(self) -> list[bytes]:
        """What may be found in it."""
        now = bytes(self.now)
        if not self.pending:
            return [self.safe]
        found = [self.safe, now]
        if len(now) > len(self.safe):
            found += [bytes(self.now[:size]) for size in self.growing]
            torn = len(self.safe) + (len(now) - len(self.safe)) // 2 // _BLOCK * _BLOCK
            found.append(now[:torn])
            found.append(now[:torn].ljust(len(now), b"\0"))  # its size is there, its last blocks are not
            kept = now[: len(self.safe)].ljust(max(torn, len(self.safe)), b"\0")
            found.append(kept + now[len(kept) :])  # blocks in the middle are not
            found.append(now[: len(self.safe)].ljust(len(now), b"\0"))
        return list(dict.fromkeys(found))


class Change(NamedTuple):
    """A change of names: the inodes that names stand for from then on; None for none."""

    folder: str
    names: dict[str, Inode | None]


class Cut(NamedTuple):
    """The disk, as it may be found."""

    after: int  # so many events
    synced: int  # what was acknowledged by then
    files: dict[str, bytes]
    words: str

    def lay_out(self, folder: str, links: dict[str, str]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, data in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        for name, target in links.items():
            os.symlink(target, os.path.join(folder, name))


class Disk:
    """What is on the disk for certain, and what may be."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._names: dict[str, Inode | None] = {name: Inode(data, bytearray(data)) for name, data in files.items()}
        self._safe = dict(self._names)
        self._changes: list[Change] = []
        self.synced = 0

    def replay(self, event: Event) -> None:
        if event.name == "mark":
            self.synced = event.offset
        elif event.name == "create":
            self._change(event.path, {event.path: Inode()})
        elif event.name == "write":
            node = self._node(event.path)
            end = event.offset + len(event.data)
            node.now.extend(bytes(max(0, end - len(node.now))))
            node.now[event.offset : end] = event.data
            self._touched(node)
        elif event.name == "truncate":
            node = self._node(event.path)
            del node.now[event.offset :]
            node.now.extend(bytes(event.offset - len(node.now)))
            self._touched(node)
        elif event.name == "fsync":
            self._sync(event.path)
        elif event.name in ("rename", "exchange"):
            self._rename(event)
        elif event.name == "unlink":
            self._change(event.path, {event.path: None})
        elif event.name not in ("close", "mkdir"):
            raise ValueError(f"the model knows no {event.name}")

    def _node(self, path: str) -> Inode:
        node = self._names[path]
        assert node is not None
        return node

    @staticmethod
    def _touched(node: Inode) -> None:
        node.pending = True
        node.growing.append(len(node.now))

    def _rename(self, event: Event) -> None:
        inside = [name for name, node in self._names.items() if node and name.startswith(f"{event.path}/")]
        moved = {name: event.other + name[len(event.path) :] for name in inside} or {event.path: event.other}
        names: dict[str, Inode | None] = dict.fromkeys(moved)
        if event.name == "exchange":
            back = [name for name, node in self._names.items() if node and name.startswith(f"{event.other}/")]
            names |= dict.fromkeys(back)
            names |= {event.path + name[len(event.other) :]: self._names[name] for name in back}
        names |= {new: self._names[old] for old, new in moved.items()}
        self._change(event.other, names)

    def _change(self, path: str, names: dict[str, Inode | None]) -> None:
        self._names |= names
        self._changes.append(Change(os.path.dirname(path), names))

    def _sync(self, path: str) -> None:
        node = self._names.get(path)
        if node is not None:
            node.safe, node.pending, node.growing = bytes(node.now), False, []
            return
        folder = "" if path == "." else path
        for change in [change for change in self._changes if change.folder == folder]:
            self._safe |= change.names
            self._changes.remove(change)

    def cuts(self, after: int) -> Iterator[Cut]:
        """Each way in which the disk may be found now."""
        seen = set()
        for chosen in self._chosen():
            names = dict(self._safe)
            for change in chosen:
                names |= change.names
            nodes = {name: node for name, node in names.items() if node is not None}
            for files, words in _contents(nodes):
                key = tuple(sorted(files.items()))
                if key not in seen:
                    seen.add(key)
                    yield Cut(after, self.synced, files, f"{len(chosen)} of {len(self._changes)} names, {words}")

    def _chosen(self) -> Iterator[list[Change]]:
        count = len(self._changes)
        for number in range(count + 1):
            yield self._changes[:number]
        if count <= _MOST_TOGETHER:
            for number in range(1, count):
                yield from map(list, itertools.combinations(self._changes, number))
        else:
            for at in range(count):
                yield [self._changes[at]]
                yield self._changes[:at] + self._changes[at + 1 :]


def _contents(nodes: dict[str, Inode]) -> Iterator[tuple[dict[str, bytes], str]]:
    """Each file in each of its states, the others all safe or all written."""
    for others in ("safe", "now"):
        base = {name: node.safe if others == "safe" else bytes(node.now) for name, node in nodes.items()}
        yield base, f"data {others}"
        for name, node in nodes.items():
            if node.pending:
                for number, state in enumerate(node.states()):
                    yield base | {name: state}, f"data {others}, {name} in state {number}"


def cuts(before: dict[str, bytes], events: list[Event]) -> Iterator[Cut]:
    """The disk as it may be found after each call of a job."""
    disk = Disk(before)
    yield from disk.cuts(0)
    for number, event in enumerate(events, 1):
        disk.replay(event)
        if event.name != "close":
            yield from disk.cuts(number)
