"""Zip archives as npz and torch files use them: stored or deflated members, read as views, never unpacked to disk.

    members   local header (PK 03 04), name, extra field, content
    directory one entry for each member (PK 01 02): name, sizes, CRC-32, offset
    end       PK 05 06: count, size and offset of the directory, comment; before it, where
              numbers outgrow 32 bits, the records of zip64 (PK 06 06, PK 06 07)

Reading trusts nothing: directory and local headers must agree, members must not overlap,
encrypted members, links and other methods of compression are refused, and a deflated
member may not grow beyond the size that it states.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, NamedTuple

from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, Hint, LimitError, UnsupportedError
from tensorbytes.formats import Option, Options
from tensorbytes.io.checksums import crc32
from tensorbytes.io.streams.engines import DamagedError, deflate_whole, inflate_start, inflate_whole
from tensorbytes.io.workers import map_in_order
from tensorbytes.typing import Buffer, bytes_view

STORED, DEFLATED = 0, 8
_NO_OPTIONS: Options = MappingProxyType({})
_LOCAL, _CENTRAL = struct.Struct("<IHHHHHIIIHH"), struct.Struct("<IHHHHHHIIIHHHHHII")
_END, _END64, _LOCATOR = struct.Struct("<IHHHHIIH"), struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI")
_LOCAL_MARK, _CENTRAL_MARK, _END_MARK = 0x04034B50, 0x02014B50, 0x06054B50
_END64_MARK, _LOCATOR_MARK = 0x06064B50, 0x07064B50
# About what an entry of the directory takes in memory.
_MEMBER_BYTES = 400
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_UTF8 = 1 << 11
_REFUSED_FLAGS = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 13  # encryption, patches
# 1980-01-01: the same input gives the same bytes.
_DATE = 0x21
_SYMLINK = 0xA000
# Archives from this size on are summed and compressed in two threads while they are written.
_THREAD_BYTES = 1 << 23
_AHEAD = 4


CHECKSUMS = Option(str, "`ignore` reads members whose checksums differ", "check", ("check", "ignore"))
_IGNORE = Hint("checksums", "ignore", "to read it all the same, if you know why", of="load")


class Member(NamedTuple):
    """One file of an archive; its content, as stored, is data[start:start + stored]."""

    name: str
    method: int
    crc: int
    stored: int
    size: int
    start: int
    at: int  # of its local header
    checked: bool = True  # False if its checksum is not to be looked at


# ---- reading ----------------------------------------------------------------


def members(data: memoryview, budget: Budget, options: Options = _NO_OPTIONS) -> list[Member]:
    """The members of an archive in the order of its directory, checked against one another."""
    checked = options.get("checksums") != "ignore"
    count, size, start = _directory(data)
    most = min(count, size // _CENTRAL.size)  # a count beyond what the directory can hold is damage, and costs nothing
    if most > budget.max_tensors:
        raise LimitError(f"an archive of {most} members, over the limit of {budget.max_tensors}")
    budget.objects(most, "the members of an archive", 0, _MEMBER_BYTES)
    found: list[Member] = []
    names: set[str] = set()
    at, end = start, start + size
    for _ in range(count):
        entry, at = _central(data, at, end)
        member = _local(data, entry if checked else entry._replace(checked=False), start)
        if member.name in names:
            raise CorruptError(f"two members named {member.name!r}", at=entry.at)
        names.add(member.name)
        found.append(member)
    if at != end:
        raise CorruptError(f"the archive's directory has {end - at} bytes more than its {count} entries", at=at)
    _check_apart(found)
    return found


def _directory(data: memoryview) -> tuple[int, int, int]:
    """(number of entries, bytes, offset) of the directory, by the record at the end."""
    at = _find_end(data)
    _, disk, first, here, count, size, start, _ = _END.unpack_from(data, at)
    end = at
    # torch writes the wide record even where it is not needed; it stands between the directory and the end then.
    if start + size != at or _MAX16 in (disk, first, here, count) or _MAX32 in (size, start):
        locator = at - _LOCATOR.size
        if locator >= 0 and _LOCATOR.unpack_from(data, locator)[0] == _LOCATOR_MARK:
            _, _, end, _ = _LOCATOR.unpack_from(data, locator)
            if end > locator - _END64.size or _END64.unpack_from(data, end)[0] != _END64_MARK:
                raise CorruptError("the archive's zip64 record is not where it should be", at=locator)
            small = (count, size, start)
            _, _, _, _, disk, first, here, count, size, start = _END64.unpack_from(data, end)
            most = (_MAX16, _MAX32, _MAX32)
            if any(a not in (b, c) for a, b, c in zip(small, (count, size, start), most, strict=True)):
                raise CorruptError("the two records at the end of the archive differ", at=end)
    if disk or first or here != count:
        raise UnsupportedError("an archive in several volumes")
    if start + size != end:
        raise CorruptError(f"the archive's directory ends at byte {start + size}, not where its end record is", at=end)
    return count, size, start


def _find_end(data: memoryview) -> int:
    """The record at the end: its comment reaches exactly to the end of the file."""
    if len(data) < _END.size:
        raise CorruptError(f"{len(data)} bytes are not a zip archive", at=0)
    if _END.unpack_from(data, len(data) - _END.size)[0] == _END_MARK and not any(data[-2:]):
        return len(data) - _END.size
    first = max(len(data) - _END.size - _MAX16, 0)
    tail = bytes(data[first:])
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        if len(tail) - at >= _END.size and _END.unpack_from(tail, at)[7] == len(tail) - at - _END.size:
            return first + at
        at = tail.rfind(b"PK\x05\x06", 0, at)
    raise CorruptError("a zip archive without its directory: the file is cut short, or no archive", at=len(data))


def _central(data: memoryview, at: int, end: int) -> tuple[Member, int]:
    """The entry of the directory at `at`, with the offset of the local header as its start; and where it ends."""
    if at + _CENTRAL.size > end:
        raise CorruptError("the archive's directory ends inside an entry", at=at)
    fields = _CENTRAL.unpack_from(data, at)
    mark, _, _, flags, method, _, _, crc, stored, size, name_size, extra_size, comment_size, disk = fields[:14]
    attributes, offset = fields[15], fields[16]
    if mark != _CENTRAL_MARK:
        raise CorruptError("no entry of the archive's directory", at=at)
    after = at + _CENTRAL.size
    following = after + name_size + extra_size + comment_size
    if following > end:
        raise CorruptError("an entry runs past the end of the archive's directory", at=at)
    name = _name(data[after : after + name_size], flags, at)
    extra = data[after + name_size : after + name_size + extra_size]
    size, stored, offset = _wide(extra, (size, stored, offset), at)
    if flags & _REFUSED_FLAGS:
        raise UnsupportedError(f"the archive's member {name!r} is encrypted or patched")
    if attributes >> 16 & 0xF000 == _SYMLINK:
        raise UnsupportedError(f"the archive's member {name!r} is a link")
    if method not in (STORED, DEFLATED):
        raise UnsupportedError(f"the archive's member {name!r} uses compression {method}; known: stored, deflate")
    if disk not in (0, _MAX16):
        raise UnsupportedError("an archive in several volumes")
    if method == STORED and stored != size:
        raise CorruptError(f"the member {name!r} is stored, but {stored} bytes for {size}", at=at)
    return Member(name, method, crc, stored, size, offset, at), following


def _name(raw: memoryview, flags: int, at: int) -> str:
    try:
        name = str(raw, "utf-8") if flags & _UTF8 else bytes(raw).decode("cp437")
    except UnicodeDecodeError:
        raise CorruptError("a member's name is not UTF-8", at=at) from None
    if "\0" in name:
        raise CorruptError(f"a member's name holds a zero byte: {name!r}", at=at)
    return name


def _wide(extra: memoryview, numbers: tuple[int, int, int], at: int) -> tuple[int, int, int]:
    """The numbers, those of 32 set bits taken from the zip64 field."""
    wanted = [index for index, number in enumerate(numbers) if number == _MAX32]
    if not wanted:
        return numbers
    field = _extra_field(extra, 1, at)
    if field is None:
        return numbers
    if len(field) < 8 * len(wanted):
        raise CorruptError("a zip64 field that is too short", at=at)
    full = list(numbers)
    for place, index in enumerate(wanted):
        (full[index],) = struct.unpack_from("<Q", field, 8 * place)
    return full[0], full[1], full[2]


def _extra_field(extra: memoryview, wanted: int, at: int) -> memoryview | None:
    start = 0
    while start + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, start)
        if start + 4 + size > len(extra):
            if kind == wanted:
                raise CorruptError("an extra field runs past its end", at=at)
            return None
        if kind == wanted:
            return extra[start + 4 : start + 4 + size]
        start += 4 + size
    return None


def _local(data: memoryview, entry: Member, directory: int) -> Member:
    """The entry with the start of its content, once its local header says the same."""
    at = entry.start
    if at + _LOCAL.size > directory:
        raise CorruptError(f"the member {entry.name!r} would start at byte {at}, past the members", at=entry.at)
    mark, _, flags, method, _, _, crc, stored, size, name_size, extra_size = _LOCAL.unpack_from(data, at)
    if mark != _LOCAL_MARK:
        raise CorruptError(f"no member starts where the directory has {entry.name!r}", at=at)
    start = at + _LOCAL.size + name_size + extra_size
    if start + entry.stored > directory:
        raise CorruptError(f"the member {entry.name!r} runs into the archive's directory", at=at)
    name = _name(data[at + _LOCAL.size : at + _LOCAL.size + name_size], flags, at)
    extra = data[at + _LOCAL.size + name_size : start]
    size, stored, _ = _wide(extra, (size, stored, 0), at)
    if name != entry.name:
        raise CorruptError(f"the member {entry.name!r} is {name!r} in its own header", at=at)
    if method != entry.method or flags & _REFUSED_FLAGS:
        raise CorruptError(f"the member {entry.name!r} is compressed or encrypted in another way than listed", at=at)
    told_later = flags & 8 and not (crc or stored or size)  # in a record after the content
    if not told_later and (stored, size) != (entry.stored, entry.size):
        raise CorruptError(f"the sizes of {entry.name!r} differ between its header and the directory", at=at)
    if not told_later and entry.checked and crc != entry.crc:
        what = f"the checksums of {entry.name!r} differ between its header and the directory"
        raise CorruptError(what, at=at, hints=[_IGNORE])
    return entry._replace(start=start, at=at)


def local_members(data: memoryview) -> tuple[list[Member], list[str]]:
    """The whole members of an archive that lost its directory, by their own headers; and the names of those cut off."""
    found: dict[str, Member] = {}
    at = 0
    while at + _LOCAL.size <= len(data):
        mark, _, flags, method, _, _, crc, stored, size, name_size, extra_size = _LOCAL.unpack_from(data, at)
        after = at + _LOCAL.size + name_size
        start = after + extra_size
        # Sizes that follow the content are no help to find its end.
        if mark != _LOCAL_MARK or start > len(data) or flags & (_REFUSED_FLAGS | 8) or method not in (STORED, DEFLATED):
            break
        name = _name(data[at + _LOCAL.size : after], flags, at)
        size, stored, _ = _wide(data[after:start], (size, stored, 0), at)
        if start + stored > len(data):
            return list(found.values()), [name]
        found.setdefault(name, Member(name, method, crc, stored, size, start, at))
        at = start + stored
    return list(found.values()), []


def _check_apart(found: Sequence[Member]) -> None:
    """No byte may serve two members: a few megabytes could unfold into terabytes."""
    end = 0
    for member in sorted(found, key=lambda member: member.at):
        if member.at < end:
            raise CorruptError(f"the member {member.name!r} overlaps another", at=member.at)
        end = member.start + member.stored


def charge(members: Iterable[Member], budget: Budget) -> None:
    """Count what these members take in memory, before any of them is inflated."""
    for member in members:
        budget.charge(member.size - member.stored, f"the inflated member {member.name!r}", member.start)


def content(data: memoryview, member: Member, check: bool = True) -> memoryview:
    """A member's bytes: a view where it is stored, fresh memory where it is deflated. The caller has charged it."""
    raw = data[member.start : member.start + member.stored]
    if member.method == DEFLATED:
        raw = memoryview(_inflate(raw, member))
    if check:
        check_crc(raw, member)
    return raw


def check_crc(raw: memoryview, member: Member) -> None:
    if member.checked:
        compare_crc(crc32(raw), member)


def compare_crc(crc: int, member: Member) -> None:
    """Refuse a member whose bytes have another checksum than it states."""
    if member.checked and crc != member.crc:
        raise CorruptError(f"the checksum of the member {member.name!r} differs", at=member.start, hints=[_IGNORE])


def _inflate(raw: memoryview, member: Member) -> bytes:
    try:
        made, alone = inflate_whole("deflate", raw, member.size)
    except DamagedError as error:
        raise CorruptError(f"the member {member.name!r} can't be inflated: {error}", at=member.start) from None
    except (MemoryError, OverflowError):
        raise LimitError(f"no memory for the {member.size} bytes of the member {member.name!r}") from None
    if len(made) != member.size or not alone:
        raise CorruptError(f"the member {member.name!r} states {member.size} bytes but holds others", at=member.start)
    return made


def inflate_head(data: memoryview, member: Member, size: int) -> bytes:
    """Up to `size` bytes from the start of a member, to look at a header."""
    raw = data[member.start : member.start + member.stored]
    if member.method == STORED:
        return bytes(raw[:size])
    try:
        return inflate_start("deflate", raw[: 4 * size + 1024], size)
    except DamagedError as error:
        raise CorruptError(f"the member {member.name!r} can't be inflated: {error}", at=member.start) from None


# ---- writing ----------------------------------------------------------------


class Content(NamedTuple):
    """A member to be written: its pieces are given in order, without a join."""

    name: str
    pieces: Iterable[Buffer]  # of an iterator, none is made before it is written
    compress: int | None = None  # the level of deflate, or None to store
    nbytes: int = 0  # about what the pieces take


def archive(contents: Iterable[Content], alignment: int, padding: int) -> Iterator[Buffer]:
    """An archive, piece by piece; the content of each stored member starts on a multiple of `alignment`.

    `padding` is the number of the extra field that moves it there. A member that deflate
    does not make smaller is stored.
    """
    items = list(contents)
    for item in items:
        if len(item.name.encode()) > _MAX16:
            raise UnsupportedError(f"a name of {len(item.name.encode())} bytes; zip archives end at {_MAX16}")
    directory: list[bytes] = []
    at = 0
    with closing(_bodies(items)) as bodies:
        for item, (method, crc, size, views) in zip(items, bodies, strict=True):
            name = item.name.encode()
            flags = 0 if name.isascii() else _UTF8
            stored = sum(map(len, views))
            wide = max(size, stored) >= _MAX32
            extra = struct.pack("<HHQQ", 1, 16, size, stored) if wide else b""
            shown = (_MAX32, _MAX32) if wide else (stored, size)
            if method == STORED:
                extra += _pad(at + _LOCAL.size + len(name) + len(extra), alignment, padding)
            version = 45 if wide else 20
            header = _LOCAL.pack(_LOCAL_MARK, version, flags, method, 0, _DATE, crc, *shown, len(name), len(extra))
            directory.append(_entry(name, flags, method, crc, size, stored, at))
            yield header + name + extra
            yield from views
            at += len(header) + len(name) + len(extra) + stored
    yield from directory
    yield _ending(len(directory), sum(map(len, directory)), at)


class _Body(NamedTuple):
    method: int
    crc: int
    size: int
    views: list[memoryview]


def _body(item: Content) -> _Body:
    views = [bytes_view(piece) for piece in item.pieces]
    size = sum(map(len, views))
    crc = 0
    for view in views:
        crc = crc32(view, crc)
    if item.compress is not None:
        deflated = deflate_whole("deflate", views, item.compress)
        if len(deflated) < size:
            return _Body(DEFLATED, crc, size, [memoryview(deflated)])
    return _Body(STORED, crc, size, views)


def _bodies(items: Sequence[Content]) -> Generator[_Body, None, None]:
    """What to write for each member. Large archives are prepared a few members ahead, without the GIL."""
    size = sum(item.nbytes for item in items)
    return map_in_order(_body, items, 1 if size < _THREAD_BYTES else 2, ahead=_AHEAD)


def _pad(at: int, alignment: int, kind: int) -> bytes:
    """An extra field after which the content stands aligned."""
    need = -(at + 4) % alignment
    return struct.pack("<HH", kind, need) + bytes(need)


def _entry(name: bytes, flags: int, method: int, crc: int, size: int, stored: int, at: int) -> bytes:
    numbers: list[Any] = [size, stored, at]
    wide = b"".join(struct.pack("<Q", number) for number in numbers if number >= _MAX32)
    extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
    size, stored, at = (min(number, _MAX32) for number in numbers)
    version = 45 if wide else 20
    fixed = (version, version, flags, method, 0, _DATE, crc, stored, size, len(name), len(extra), 0, 0, 0, 0, at)
    return _CENTRAL.pack(_CENTRAL_MARK, *fixed) + name + extra


def _ending(count: int, size: int, at: int) -> bytes:
    wide = b""
    if count >= _MAX16 or size >= _MAX32 or at >= _MAX32:
        wide = _END64.pack(_END64_MARK, _END64.size - 12, 45, 45, 0, 0, count, count, size, at)
        wide += _LOCATOR.pack(_LOCATOR_MARK, 0, at + size, 1)
    many = min(count, _MAX16)
    return wide + _END.pack(_END_MARK, 0, 0, many, many, min(size, _MAX32), min(at, _MAX32), 0)
