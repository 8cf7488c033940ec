"""The bytes of formats with checksums that no checksum covers: a flip there goes unnoticed, and the data is the same.

Nothing else may. What stands in these places is the archive's own bookkeeping, which we do not hand out: times,
attributes, versions, copies of what the directory says, padding. Deflated bytes may change into others that inflate
to the same; the checksum is of what comes out.
"""

import struct
from collections.abc import Iterator
from itertools import chain

from tests.support.sweeps.golden import Golden

SIGNATURES = {"local": b"PK\3\4", "central": b"PK\1\2", "end": b"PK\5\6", "end64": b"PK\6\6", "locator64": b"PK\6\7"}
# Each record of an archive: its fields with their sizes.
LAYOUTS = {
    "local": "signature 4 version 2 flags 2 method 2 time 2 date 2 crc 4 stored 4 size 4 name 2 extra 2",
    "central": "signature 4 made 2 version 2 flags 2 method 2 time 2 date 2 crc 4 stored 4 size 4 name 2 extra 2 "
    "comment 2 disk 2 internal 2 external 4 offset 4",
    "end": "signature 4 disk 2 start 2 here 2 entries 2 size 4 offset 4 comment 2",
    "end64": "signature 4 own 8 made 2 version 2 disk 4 start 4 here 8 entries 8 size 8 offset 8",
    "locator64": "signature 4 disk 4 offset 8 disks 4",
}
# Of the flags, only that of encryption, that of UTF-8 and a few more that change what the bytes mean are looked at.
UNPROTECTED = {
    "local": {"version", "flags", "time", "date"},
    "central": {"made", "version", "flags", "time", "date", "internal", "external"},
    # What an archive of several disks would need, and what stands in the 64-bit record as well.
    "end": {"disk", "start", "here"},
    "end64": {"own", "made", "version", "disk", "start", "here"},
    "locator64": {"disk", "disks"},
}
DESCRIPTOR = b"PK\7\x08"
# Our writer aligns each tensor to 8 bytes: after 6 bytes of `w`, and after 18 of the list before the next.
PADDING = {"ours: m.ckpt.data-00000-of-00001": frozenset({6, 7, *range(34, 40)})}


def unprotected(golden: Golden) -> frozenset[int]:
    """The places of a file whose flipped bits may go unnoticed."""
    data = golden.data
    if data.startswith(SIGNATURES["local"]):
        return frozenset(chain.from_iterable(_archive(data)))
    if golden.options.get("compression") in ("gzip", "zlib", "snappy"):
        return frozenset(range(len(data)))  # the records inside have checksums of their own
    return PADDING.get(golden.name, frozenset())


def _fields(kind: str, at: int) -> dict[str, range]:
    words, found = LAYOUTS[kind].split(), {}
    for name, size in zip(words[::2], map(int, words[1::2]), strict=True):
        found[name] = range(at, at + size)
        at += size
    return found | {"after": range(at, at)}


def _number(data: bytes, place: range) -> int:
    return int.from_bytes(data[place.start : place.stop], "little")


def _archive(data: bytes) -> Iterator[range]:
    end = _fields("end", data.rindex(SIGNATURES["end"]))
    for kind in ("end64", "locator64"):
        if SIGNATURES[kind] in data:
            yield from _loose(kind, data.rindex(SIGNATURES[kind]))
    if SIGNATURES["end64"] in data:
        yield from _loose("end", end["signature"].start)
    at = _number(data, end["offset"])
    for _ in range(_number(data, end["entries"])):
        central = _fields("central", at)
        yield from _loose("central", at)
        yield from _member(data, central)
        at = central["after"].start + sum(_number(data, central[key]) for key in ("name", "extra", "comment"))


def _loose(kind: str, at: int) -> Iterator[range]:
    fields = _fields(kind, at)
    return (fields[name] for name in UNPROTECTED[kind])


def _member(data: bytes, central: dict[str, range]) -> Iterator[range]:
    at = _number(data, central["offset"])
    local = _fields("local", at)
    yield from _loose("local", at)
    name, extra = (_number(data, local[key]) for key in ("name", "extra"))
    start = local["after"].start + name
    if struct.unpack_from("<H", data, start)[0] != 1:  # padding, which torch writes as an extra field
        yield range(start, start + extra)
    content = range(start + extra, start + extra + _number(data, central["stored"]))
    if _number(data, central["method"]):
        yield content
    if data[content.stop :].startswith(DESCRIPTOR):  # says again what the directory says
        yield range(content.stop, content.stop + (24 if b"PK\6\6" in data else 16))
