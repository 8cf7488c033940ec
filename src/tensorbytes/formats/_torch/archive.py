"""Where a torch file keeps its storages: a zip archive, or one after another (before torch 1.6)."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import partial
from typing import Any

from tensorbytes import dtypes
from tensorbytes._wire.portions import portions
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, Hint, UnsupportedError
from tensorbytes.formats import Options, _zip
from tensorbytes.formats._torch import pickle_read
from tensorbytes.formats._torch import tree as torch_tree
from tensorbytes.formats._torch.pickle_values import FaultError, RefusedError
from tensorbytes.formats._torch.unread import Opaque
from tensorbytes.formats._torch.values import Storage
from tensorbytes.formats._torch.world import World
from tensorbytes.formats._zip import Member
from tensorbytes.io import storage
from tensorbytes.io.checksums import crc32
from tensorbytes.io.workers import MANY, map_in_order
from tensorbytes.tree import Document

NOTES = "tensorbytes.json"
MAGIC = 0x1950A86A20F9469CFC6C
MAGIC_BYTES = MAGIC.to_bytes(10, "little")
_VERSION = 1001
# Archives from this size on are checksummed in two threads.
_THREAD_BYTES = 1 << 23
# Storages from this size on are read into memory of their own, in chunks.
_OWN_BYTES, _CHUNK = 1 << 16, 1 << 19
# The old format does not tell where its pickles end: they are sought in the first bytes, then in more.
_WINDOW = 1 << 20


def _width(dtype: str) -> int:
    return dtypes.DTYPES[dtype].itemsize if dtype else 1


# ---- zip --------------------------------------------------------------------


class Archive:
    """The members of a zip archive that torch.save wrote. With `file`, `data` is its map, and storages are read."""

    def __init__(
        self, data: memoryview, budget: Budget, lazy: bool, options: Options, file: io.FileIO | None = None
    ) -> None:
        self._data, self._budget, self._lazy = data, budget, lazy
        members = _zip.members(data, budget, options)
        self._by_name = {member.name: member for member in members}
        self._prefix = self._find_prefix()
        # torch can leave the checksums out; it writes zeros then.
        self._sums = any(member.crc and member.checked for member in members)
        order = self._small("byteorder", b"little")
        if order not in (b"little", b"big"):
            raise CorruptError(f"the byte order is {order[:20]!r}", at=self._by_name[self._prefix + "byteorder"].start)
        self._swap = order == b"big"
        self._storages: dict[str, Storage] = {}
        self._read: dict[str, memoryview] = {}
        inner = [member for member in members if member.name.startswith(f"{self._prefix}data/")]
        if file is not None:
            self._read = _read_members(file, data, inner, self._sums)
        if self._sums:  # lazily, those of the storages are checked when a tensor is loaded; the rest is small
            later = {member.name for member in inner} if lazy else self._read
            _check_sums(data, [member for member in members if member.name not in later])

    def _find_prefix(self) -> str:
        """The folder that everything stands in."""
        names = self._by_name
        script = next((name for name in names if name.endswith("/constants.pkl") or "/code/" in name), None)
        if script is not None:
            raise UnsupportedError(
                f"a TorchScript archive (it has {script!r}): it holds a program",
                hints=[Hint(purpose="save its state_dict()")],
            )
        if any(name.endswith("/archive_format") or "/models/" in name for name in names):
            raise UnsupportedError(
                "an archive of torch.export (.pt2): it holds a program", hints=[Hint(purpose="save its state_dict")]
            )
        found = next((name for name in names if name.endswith("/data.pkl") and name.count("/") == 1), None)
        if found is None:
            raise CorruptError("a zip archive without data.pkl: not one of torch.save", at=0)
        return found.removesuffix("data.pkl")

    def _small(self, name: str, default: bytes) -> bytes:
        member = self._by_name.get(self._prefix + name)
        return default if member is None else bytes(self._inflated(member, False)[:64])

    def _pickled(self) -> tuple[bytes, int]:
        member = self._by_name[self._prefix + "data.pkl"]
        return bytes(self._inflated(member, self._sums)), member.start

    def document(self, skip: bool = False) -> Document:
        """`skip` leaves out what is not read."""
        notes = self._notes()
        data, at = self._pickled()
        world = World(self._storage, notes.framework, self._budget)
        root, end = pickle_read.run(data, 0, at, world, self._budget)
        if end != len(data):
            raise CorruptError(f"{len(data) - end} bytes follow the pickle", at=at + end)
        torch_tree.measure(root, self._budget)
        return torch_tree.document(root, notes, self._budget, self._lazy, skip)

    def _notes(self) -> torch_tree.Notes:
        member = self._by_name.get(self._prefix + NOTES)
        if member is None:
            return torch_tree.Notes()
        return torch_tree.Notes(self._inflated(member, self._sums), member.start, self._budget)

    def _storage(self, dtype: str, key: str, location: str, count: int, view: Any) -> Storage:
        member = self._by_name.get(f"{self._prefix}data/{key}")
        if member is None or view is not None:
            raise FaultError(f"the storage {key!r} is not in the archive")
        size = count * _width(dtype)
        if size != member.size:
            raise FaultError(f"the storage {key!r} has {member.size} bytes, its tensors expect {size}")
        known = self._storages.get(key)
        if known is not None and known.dtype == dtype and known.location == location:
            return known
        check = partial(_zip.check_crc, member=member) if self._lazy and self._sums else None
        content = known.data if known else self._content(member)
        made = Storage(dtype, content, location, member.start, self._swap, partial(check, content) if check else None)
        self._storages[key] = made
        return made

    def _content(self, member: Member) -> memoryview:
        if member.name in self._read:
            return self._read[member.name]
        return self._inflated(member, False)

    def _inflated(self, member: Member, check: bool) -> memoryview:
        _zip.charge([member], self._budget)  # torch stores, others may deflate
        return _zip.content(self._data, member, check)


def _check_sums(data: memoryview, members: Iterable[Member]) -> None:
    """Every stored member against its checksum. Deflated ones are checked when they are inflated."""
    stored = [member for member in members if member.method == _zip.STORED]

    def check(member: Member) -> None:
        _zip.check_crc(data[member.start : member.start + member.stored], member)

    threads = 1 if sum(member.stored for member in stored) < _THREAD_BYTES else 2
    for _ in map_in_order(check, stored, threads, ahead=MANY):
        pass


def _read_members(file: io.FileIO, data: memoryview, members: list[Member], sums: bool) -> dict[str, memoryview]:
    """Storages in memory of their own, verified; small ones share. Two threads read."""
    stored = [member for member in members if member.method == _zip.STORED]
    large = [member for member in stored if member.size >= _OWN_BYTES]
    small = [member for member in stored if member.size < _OWN_BYTES]
    shared = storage.aligned_memory(sum(-(-member.size // 64) * 64 for member in small), 0)
    found: dict[str, memoryview] = {}
    at = 0
    for member in small:
        found[member.name] = shared[at : at + member.size]
        found[member.name][:] = data[member.start : member.start + member.size]
        if sums:
            _zip.check_crc(found[member.name], member)
        at += -(-member.size // 64) * 64

    def read(member: Member) -> memoryview:
        room = storage.aligned_memory(member.size, 0)
        crc = 0
        for part in portions(member.size, _CHUNK):
            storage.read_at(file, room[part], member.start + part.start)
            crc = crc32(room[part], crc) if sums else 0  # while it is still near
        if sums:
            _zip.compare_crc(crc, member)
        return room

    rooms = map_in_order(read, large, 2, ahead=MANY)
    return found | {member.name: room for member, room in zip(large, rooms, strict=True)}


# ---- before torch 1.6 -------------------------------------------------------


def legacy(data: memoryview, budget: Budget, lazy: bool, skip: bool = False) -> Document:
    """Pickles of the magic number, the version, the machine, the object and the storages' keys; then the storages.

    The object comes before its storages, so its pickle runs twice: once to find its end.
    """
    window = _WINDOW
    while True:
        raw = bytes(data[:window])
        try:
            start, keys, widths, at = _old_heads(raw, budget.renewed(len(raw)))
            break
        except CorruptError:
            if window >= len(data):
                raise
            window *= 8
    storages = _OldStorages(data, keys, widths, at)
    world = World(storages.storage, "torch", budget)
    root, _ = pickle_read.run(raw, start, 0, world, budget)
    torch_tree.measure(root, budget)
    return torch_tree.document(root, torch_tree.Notes(), budget, lazy, skip)


def _old_heads(raw: bytes, budget: Budget) -> tuple[int, Any, dict[str, int], int]:
    """(where the object's pickle starts, the keys of the storages, the widths of their elements, where they start)"""
    nothing = _Nothing(budget)
    magic, at = pickle_read.run(raw, 0, 0, nothing, budget)
    if type(magic) is not int or magic != MAGIC:
        raise UnsupportedError("a pickle that torch.save did not write: the magic number differs")
    version, at = pickle_read.run(raw, at, 0, nothing, budget)
    if version != _VERSION:
        raise UnsupportedError(f"another version of torch's old format than {_VERSION}")
    _, start = pickle_read.run(raw, at, 0, nothing, budget)
    _, at = pickle_read.run(raw, start, 0, nothing, budget)
    keys, at = pickle_read.run(raw, at, 0, nothing, budget)
    return start, keys, nothing.widths, at


class _Nothing(World):
    """A world in which every call gives nothing; it notes the width of each storage's elements."""

    def __init__(self, budget: Budget) -> None:
        self.widths: dict[str, int] = {}
        self._made = Opaque("")
        super().__init__(self._note, "", budget)

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        return super().call(function, args) if getattr(function, "of", "") == "ordered" else self._made

    def build(self, made: Any, state: Any) -> None:
        pass

    def _note(self, dtype: str, key: str, location: str, count: int, view: Any) -> Storage:
        if self.widths.setdefault(key, _width(dtype)) != _width(dtype):
            raise RefusedError(f"the storage {key!r} has elements of two widths")
        return Storage(dtype, memoryview(b""), location, 0, False, None)


class _OldStorages:
    """Storages in a row, each after the number of its elements."""

    def __init__(self, data: memoryview, keys: Any, widths: dict[str, int], at: int) -> None:
        self._found: dict[str, tuple[memoryview, int]] = {}
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise CorruptError("the keys of the storages are not a list of names", at=at)
        for key in keys:
            if key not in widths or key in self._found:
                raise CorruptError(f"a storage {key!r} that no tensor uses, or twice", at=at)
            start = at + 8
            end = start + int.from_bytes(data[at:start], "little") * widths[key]
            if end > len(data):
                raise CorruptError(f"the storage {key!r} would end at byte {end} of {len(data)}", at=at)
            self._found[key] = (data[start:end], start)
            at = end
        if at != len(data):
            raise CorruptError(f"{len(data) - at} bytes follow the storages", at=at)

    def storage(self, dtype: str, key: str, location: str, count: int, view: Any) -> Storage:
        content, at = self._found.get(key, (None, 0))
        width = _width(dtype)
        if content is None or len(content) != count * width:
            raise FaultError(f"the storage {key!r} is not there, or of another size")
        if view is not None:
            content, skipped = _window(content, view, width)
            at += skipped
        return Storage(dtype, content, location, at, False, None)


def _window(content: memoryview, view: Any, width: int) -> tuple[memoryview, int]:
    """A part of a storage, as the oldest files have them (its key, offset, size), and how many bytes are before it."""
    if type(view) is not tuple or len(view) != 3 or not all(type(n) is int and n >= 0 for n in view[1:]):
        raise FaultError("a view of a storage without an offset and a size")
    start, end = view[1] * width, (view[1] + view[2]) * width
    if end > len(content):
        raise FaultError(f"a view ends at byte {end} of a storage of {len(content)}")
    return content[start:end], start
