r"""The npz format: a zip archive of npy arrays, as np.savez writes it and np.load reads it.

    name.npy  one member for each array, stored or deflated (_zip.py); its content is that
              of an npy file (npy.py), with the same notes in the comment of its header
    ...
    directory of the archive

The content of a stored member starts on a multiple of 64 bytes of the file, moved there by
an extra field of the local header (number 0x4254, zeros), and so does the array in it: a
memory map gives aligned arrays, and slices of them without reading the rest. Dates are
1980-01-01, so that the same arrays give the same bytes.

A dict of plain arrays has no notes. Elsewhere they tell the place in the structure, the
true dtype and whatever else `_parts.py` lists. A single value stands under its name, or as
arr_0, with an empty `path`. Since zip has no zero bytes in names, a key with one is
written with %00 instead, its path in the note.

Every CRC-32 is checked, that of a lazily opened member when it is loaded.

Arrays of Python objects are pickles, and never unpickled. These, arrays of other dtypes that are
not read, and members that are not arrays are listed when a file is opened, refused when it is
loaded, and left out with objects="skip".
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

from tensorbytes._wire.portions import portions
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    USE_TB,
    CorruptError,
    Hint,
    LimitError,
    Limits,
    LossError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats import Format, Option, Options, Salvaged, _zip, known_options
from tensorbytes.formats._npy import arrays as npy_arrays
from tensorbytes.formats._npy import header as npy_header
from tensorbytes.formats._parts import Part, complete_parts, unpack
from tensorbytes.formats._torch import unread
from tensorbytes.formats._zip import Content, Member
from tensorbytes.io import storage
from tensorbytes.io.checksums import can_join_crc32, crc32, join_crc32
from tensorbytes.io.workers import MANY, Crew, map_in_order
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer

_UNNAMED = "arr_0"
_SUFFIX = ".npy"
_PADDING = 0x4254
_LONGEST_NAME = 0xFFFF - len(_SUFFIX)
# Enough for nearly every header; longer ones are inflated again.
_HEAD_BYTES = 1 << 10
# Archives from this size on are checked in two threads.
_THREAD_BYTES = 1 << 22
# Members from this size on are worth a thread for each of reading and summing.
_LARGE_MEMBER = 1 << 25
_CHUNK = 1 << 20


class Npz(Format):
    name = "npz"
    label = "NumPy archive"
    words = "NumPy's archive, mapped and sliced too"
    suffixes = (".npz",)
    read_by = "NumPy"
    holds = "everything"
    complete = True
    structs = True
    checksums = "CRC-32 of each array"
    write_options = known_options(
        compression=Option(str | None, "deflated arrays are smaller, and not mapped", choices=(None, "deflate")),
        level=Option(int | None, "of deflate: 0 to 9, 6 unless it is said"),
    )
    compressions = (None, "deflate")
    read_options = known_options(
        dtype=npy_arrays.TRUE_DTYPE, bools=npy_arrays.BOOLS, objects=unread.OPTION, checksums=_zip.CHECKSUMS
    )
    unmistakable = True
    may_start_like = frozenset({"zip"})
    lists_quickly = True
    slices = "yes, where stored"

    def sniff(self, head: bytes, size: int) -> bool:
        if head.startswith(b"PK\x03\x04"):
            length = int.from_bytes(head[26:28], "little")
            return head[30 : 30 + length].endswith(_SUFFIX.encode())
        return head.startswith(b"PK\x05\x06") and size == 22  # without members

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterable[Buffer]:
        level = _level(options)
        pieces = _pieces(document)
        contents = [Content(piece.name + _SUFFIX, piece.buffers(allow), level, piece.nbytes) for piece in pieces]
        return _zip.archive(contents, npy_header.ALIGNMENT, _PADDING)

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        _level(options)
        for piece in _pieces(document):
            piece.header(allow)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        members = _zip.members(data, budget, options)
        if not lazy or not members:
            _zip.charge(members, budget)
            get = partial(_zip.content, data)
            yield _assembled(_contents(get, members), members, budget, options)
            return
        parts, objects, arrays = [], [], []
        budget.tensors(len(members))
        for member in members:
            try:
                found, made = _open(data, member, budget, options)
            except _UnreadError as error:
                objects.append(error.leaf(member))
                continue
            parts += made
            arrays.append((found, _name(member)))
        found_all = npy_arrays.noted_structs(_unread(data, parts, members, budget), arrays) if parts else _EMPTY
        if objects and not unread.skips(options):
            found_all = found_all._replace(leaves=[*(found_all.leaves if parts else ()), *objects])
        yield found_all

    def salvage(self, data: memoryview, limits: Limits) -> Salvaged:
        budget = Budget(limits, len(data))
        members, lost = _zip.local_members(data)
        parts, arrays = [], []
        for member in members:
            try:
                found, made = _open(data, member, budget, {})
            except (CorruptError, UnsupportedError):
                lost.append(member.name)
                continue
            parts += made
            arrays.append((found, _name(member)))
        whole = complete_parts(parts)
        kept = {part.name for part in whole}
        names = [part.name for part in parts if part.name not in kept and "of" not in part.note]
        names += [name.removesuffix(_SUFFIX) for name in lost]
        return Salvaged(npy_arrays.noted_structs(_unread(data, whole, members, budget), arrays), names)

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document]:
        data = storage.map_open(file)
        budget = Budget(limits, len(data))
        members = _zip.members(data, budget, options)
        _zip.charge(members, budget)
        yield _assembled(_fetch_all(file, data, members), members, budget, options)


# ---- writing ----------------------------------------------------------------


def _level(options: Options) -> int | None:
    compression, level = options.get("compression"), options.get("level")
    if level is not None and compression is None:
        raise UsageError(
            f"level={level!r}",
            expected="a compression beside it",
            hints=[Hint("compression", "deflate", of="save")],
        )
    if level is not None and not 0 <= level <= 9:
        raise UsageError(f"level={level!r}", expected="0 to 9")
    return None if compression is None else 6 if level is None else level


def _pieces(document: Document) -> list[npy_arrays.NpyArray]:
    return _storable(npy_arrays.pieces(npy_arrays.with_structs(document), _UNNAMED))


def _storable(pieces: list[npy_arrays.NpyArray]) -> list[npy_arrays.NpyArray]:
    """The same under names that a zip archive can have; notes keep the true ones."""
    taken = {piece.name for piece in pieces}
    for name in taken:
        if len(name.encode()) > _LONGEST_NAME:
            raise LossError(
                f"a key of {len(name.encode())} bytes: a zip archive ends at {_LONGEST_NAME}",
                feature="name",
                hints=[USE_TB],
            )
    new = {}
    for name in [piece.name for piece in pieces if "\0" in piece.name]:
        made = name.replace("\0", "%00")
        while made in taken:
            made += "~"
        taken.add(made)
        new[name] = made
    return [_renamed(piece, new) for piece in pieces] if new else pieces


def _renamed(piece: npy_arrays.NpyArray, new: dict[str, str]) -> npy_arrays.NpyArray:
    note = dict(piece.note)
    if "of" in note:
        note["of"] = new.get(note["of"], note["of"])
    elif piece.name in new and "path" not in note:
        note["path"] = [["key", piece.name]]
    if "parts" in note:
        note["parts"] = [new.get(name, name) for name in note["parts"]]
    return piece._replace(name=new.get(piece.name, piece.name), note=note)


# ---- reading ----------------------------------------------------------------


def _assembled(contents: Sequence[memoryview], members: list[Member], budget: Budget, options: Options) -> Document:
    """The document of these members, whose contents are verified."""
    parts, arrays = [], []
    budget.tensors(len(members))
    objects: list[_UnreadError] = []
    for content, member in zip(contents, members, strict=True):
        try:
            found = _find(content, member, budget, options)
        except _UnreadError as error:
            objects.append(error)
            continue
        parts += _parts(content, member, found, lazy=False)
        arrays.append((found, _name(member)))
    if not unread.skips(options) and objects:
        raise objects[0].refusal(len(objects) - 1)
    return npy_arrays.noted_structs(unpack(parts, budget, lazy=False), arrays) if parts else _EMPTY


class _UnreadError(UnsupportedError):
    """A member that is not read here: a pickle of objects, a dtype that is unknown, a file that is not an array."""

    def __init__(self, error: UnsupportedError, head: memoryview | bytes = b"") -> None:
        super().__init__(error.fault, at=error.at, hints=error.hints)
        self._array = bytes(head[: len(npy_header.MAGIC)]) == npy_header.MAGIC
        self._descr, self._shape = npy_header.sketch(head) if self._array else ("", ())

    def leaf(self, member: Member) -> Leaf:
        """An entry that says what stands there."""
        what = "object" if self._descr.endswith("O") else self._descr or ("structured" if self._array else "file")
        what = what if what.isprintable() else repr(what)[1:-1]
        return unread.leaf(what, self._refuse, (("key", _name(member)),), self._shape, member.at)

    def refusal(self, others: int = 0) -> UnsupportedError:
        more = f" ({others} more member{'s' * (others > 1)} that {'are' if others > 1 else 'is'} not read)" * (
            others > 0
        )
        return UnsupportedError(f"{self.what}{more}", at=self.at, hints=[*self.hints, unread.SKIP])

    def _refuse(self) -> NoReturn:
        raise self.refusal()


_EMPTY = Document([Leaf(Tensor("bool", (0,), b""), (), "dict")])


def _unread(data: memoryview, parts: Sequence[Part], members: Sequence[Member], budget: Budget) -> Document:
    """The document of parts that were not read yet."""
    by_name = {_name(member): member for member in members}
    # Ragged and sparse values are put together at once.
    at_once = [by_name[part.name] for part in parts if part.note.keys() & {"layout", "of"}]
    _zip.charge(at_once, budget)
    document = unpack(parts, budget, lazy=True)
    # The fields of a structured array stand in one member.
    own = {member.at: [member] for member in members}
    for part in parts:
        own[part.at] += [by_name[name] for name in part.note.get("parts", ())]
    return document._replace(leaves=[_with_checksum(data, leaf, own[leaf.at]) for leaf in document.leaves])


def _contents(get: Callable[[Member], memoryview], members: list[Member]) -> list[memoryview]:
    """What `get` gives for each; of much, in two threads. Neither reading nor inflating nor summing holds the GIL."""
    threads = 1 if sum(member.size for member in members) < _THREAD_BYTES else 2
    return list(map_in_order(get, members, threads, ahead=MANY))


def _fetch_all(file: io.FileIO, data: memoryview, members: list[Member]) -> list[memoryview]:
    """The contents of an open file's members, each in memory of its own; `data` is a map of the file."""

    def get(member: Member) -> memoryview:
        if member.method == _zip.DEFLATED:
            return _zip.content(data, member)
        room = storage.aligned_memory(member.size, 0)
        return _verified(room, _read_and_sum(file, room, member.start), member)

    large = {member.name: _fetch_large(file, member) for member in members if _is_large(member)}
    rest = [member for member in members if member.name not in large]
    contents = large | {member.name: content for member, content in zip(rest, _contents(get, rest), strict=True)}
    return [contents[member.name] for member in members]


def _is_large(member: Member) -> bool:
    return can_join_crc32() and member.method == _zip.STORED and member.size >= _LARGE_MEMBER


def _fetch_large(file: io.FileIO, member: Member) -> memoryview:
    """Two threads read and sum a half each: the system copies a cached file no faster than one core can."""
    room = storage.aligned_memory(member.size, 0)
    middle = member.size // 2 & -4096

    def half(start: int, stop: int) -> int:
        return _read_and_sum(file, room[start:stop], member.start + start)

    with Crew(1) as crew:
        second = crew.start(half, middle, member.size)
        crc = join_crc32(half(0, middle), second.take(), member.size - middle)
    return _verified(room, crc, member)


def _read_and_sum(file: io.FileIO, room: memoryview, at: int) -> int:
    """Fill memory from a file's offset; the sum of it, taken while each piece is still near."""
    crc = 0
    for part in portions(len(room), _CHUNK):
        storage.read_at(file, room[part], at + part.start)
        crc = crc32(room[part], crc)
    return crc


def _verified(content: memoryview, crc: int, member: Member) -> memoryview:
    _zip.compare_crc(crc, member)
    return content


def _name(member: Member) -> str:
    return member.name.removesuffix(_SUFFIX)


def _find(content: memoryview | bytes, member: Member, budget: Budget, options: Options) -> npy_arrays.StoredArray:
    """The array in a member, which must be all that is in it. Faults are told by where the member stands."""
    if bytes(content[: len(npy_header.MAGIC)]) != npy_header.MAGIC:
        what = f"the archive's member {member.name!r} is not an npy array; an npz file holds nothing else"
        raise _UnreadError(UnsupportedError(what, at=member.start), content)
    name = _name(member)
    try:
        found = npy_arrays.find(content, 0, name, budget, npy_arrays.Reading(options))
    except CorruptError as error:
        raise error.shifted(member.start) from None
    except LimitError as error:
        raise error.shifted(member.start).within(repr(member.name)) from None
    except UnsupportedError as error:
        raise _UnreadError(error.shifted(member.start).within(repr(member.name)), content) from None
    if found.end != member.size:
        raise CorruptError(
            f"the array {member.name!r} takes {found.end} bytes, its member has {member.size}", at=member.start
        )
    return found


def _parts(content: memoryview, member: Member, found: npy_arrays.StoredArray, lazy: bool) -> list[Part]:
    """The array in a member, or its fields."""
    try:
        return npy_arrays.parts(content, found, _name(member), member.at, lazy)
    except CorruptError as error:
        raise error.shifted(member.start) from None


def _open(
    data: memoryview, member: Member, budget: Budget, options: Options
) -> tuple[npy_arrays.StoredArray, list[Part]]:
    """The array in a member, unread, or its fields."""
    if member.method == _zip.STORED:
        content = _zip.content(data, member, check=False)
        found = _find(content, member, budget, options)
        return found, _parts(content, member, found, lazy=True)
    head = _zip.inflate_head(data, member, _HEAD_BYTES)
    if head.startswith(npy_header.MAGIC) and len(head) == _HEAD_BYTES:
        try:
            head = _zip.inflate_head(data, member, max(npy_header.needed(head, 0), _HEAD_BYTES))
        except CorruptError as error:
            raise error.shifted(member.start) from None
    found = _find(head, member, budget, options)

    def value(number: int) -> Tensor | Strings | Deferred:
        """The array, or the field of this number, once all of the member is inflated."""
        _zip.charge([member], budget.renewed(member.stored))
        return _parts(_zip.content(data, member), member, found, lazy=True)[number].value

    return found, npy_arrays.later_parts(found, _name(member), member.at, value)


def _with_checksum(data: memoryview, leaf: Leaf, members: list[Member]) -> Leaf:
    """A leaf whose members are summed before it is loaded. Those that are inflated then are summed anyway."""
    stored = [member for member in members if member.method == _zip.STORED]
    if not stored:
        return leaf
    return leaf._replace(check=partial(_check, data, stored, leaf.check))


def _check(data: memoryview, members: list[Member], further: Callable[[], Any] | None) -> None:
    for member in members:
        _zip.check_crc(data[member.start : member.start + member.stored], member)
    if further is not None:
        further()


FORMAT = Npz()
