"""The header of a safetensors file, read and checked as the library does, and somewhat more strictly.

The layout is described in safetensors.py. Nothing but the header is looked at here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import header_read
from tensorbytes.budget import Budget
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError, UnsupportedError
from tensorbytes.formats import _json
from tensorbytes.formats._tensorproto import check_shape

MAX_HEADER = 100_000_000
METADATA, NOTES = "__metadata__", "tensorbytes"
# In the order of the file: a tensor of any of these types ends where the next one may start.
ORDER = (
    "U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "F8_E5M2FNUZ", "F8_E4M3FNUZ",
    "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "F6_E3M2", "F6_E2M3", "F4", "BOOL",
)  # fmt: skip
_ROWS = {row.safetensors: row for row in dtypes.DTYPES.values() if row.safetensors}
_MAX_DEPTH = 125  # the library's
# What the kernel reads: elements of whole bytes.
KERNEL_RANK = 64
_KERNEL_ROWS = [_ROWS[name] for name in ORDER if _ROWS[name].bits >= 8]
_KERNEL_NAMES = tuple(name.encode() for name in ORDER if _ROWS[name].bits >= 8)
_KERNEL_BITS = bytes(row.bits for row in _KERNEL_ROWS)


class HeaderEntry(NamedTuple):
    """A tensor by the word of its header, checked: the bytes from `begin` to `end` of the file."""

    name: str
    row: DType
    shape: tuple[int, ...]
    begin: int
    end: int


_place = itemgetter(3, 4)  # begin, end


class Entries(Sequence[HeaderEntry]):
    """The entries of a header that the kernel has read, each made when it is asked for."""

    def __init__(self, names: list[str], table: bytes, dims: bytes, start: int) -> None:
        self.names, self._start = names, start
        self._table = np.frombuffer(table, np.int64).reshape(-1, 6)
        self._dims, self._ends = np.frombuffer(dims, np.int64), np.cumsum(self._table[:, 5])

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        _, _, dtype, begin, end, rank = self._table[number].tolist()
        last = int(self._ends[number])
        shape = tuple(self._dims[last - rank : last].tolist())
        return HeaderEntry(self.names[number], _KERNEL_ROWS[dtype], shape, self._start + begin, self._start + end)


def entry_names(entries: Sequence[HeaderEntry]) -> list[str]:
    """The names of entries, none of which is made for it."""
    return entries.names if isinstance(entries, Entries) else [entry.name for entry in entries]


class File(NamedTuple):
    """One file, its content unread."""

    data: memoryview
    entries: Sequence[HeaderEntry]
    meta: dict[str, str]
    notes: dict[str, Any]


def read(data: memoryview, budget: Budget, cut: bool = False) -> File:
    """The checked header of a file; with `cut`, of one that may end before its tensors do, or after them."""
    if len(data) < 8:
        raise CorruptError(f"a safetensors file starts with 8 bytes of length, got {len(data)}", at=len(data))
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        raise CorruptError(f"the header claims {length} bytes; at most {MAX_HEADER} are allowed", at=0)
    if length > len(data) - 8:
        raise CorruptError(f"the header claims {length} bytes, {len(data) - 8} are there", at=0)
    quick = None if cut else _quick(data, length, budget)
    if quick is not None:
        return quick
    header = _json.parse(data[8 : 8 + length], 8, "the header", budget)
    if type(header) is not dict:
        raise CorruptError("the header is not a JSON object", at=8)
    meta = header.pop(METADATA, {})
    if type(meta) is not dict or not all(type(text) is str for text in meta.values()):
        raise CorruptError(f"{METADATA} must hold text alone", at=8)
    notes = _notes(meta.pop(NOTES, None), header, budget)
    start = 8 + length
    budget.tensors(len(header), 8)
    entries = [_entry(name, info, start, budget) for name, info in header.items()]
    told = max(entry.end for entry in entries) if cut and entries else len(data)
    _check_places(entries, start, told)
    if notes:
        entries = [_widened(entry, notes.get(entry.name, {})) for entry in entries]
    return File(data, entries, meta, notes)


def _quick(data: memoryview, length: int, budget: Budget) -> File | None:
    """A file whose header has the form that the library writes, and no notes of ours; None for any other."""
    if budget.max_rank < KERNEL_RANK:
        return None
    text, start = bytes(data[8 : 8 + length]), 8 + length
    found = header_read(text, len(data) - start, _KERNEL_NAMES, _KERNEL_BITS)
    if found is None:
        return None
    names, table, dims, (first, last) = found
    if len(set(names)) != len(names):
        return None
    meta: dict[str, str] = {}
    if last:
        meta = _json.parse(text[first:last], 8 + first, "the header", budget.renewed(last - first))
        if NOTES in meta:
            return None
    budget.json(text, "the header", 8)
    budget.tensors(len(names), 8)
    return File(data, Entries(names, table, dims, start), meta, {})


def _notes(text: str | None, header: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
    if text is None:
        return {}
    notes = _json.parse(text.encode(), 8, f"the metadata {NOTES!r}", budget)
    if type(notes) is not dict:
        raise CorruptError(f"the metadata {NOTES!r} is not a JSON object", at=8)
    for name, note in notes.items():
        if name not in header:
            raise CorruptError(f"a note for {name!r}, which is not in the file", at=8)
        if type(note) is not dict or type(note.get("aliases", {})) is not dict:
            raise CorruptError(f"the note of {name!r} is not a JSON object, or its aliases are not", at=8)
    return notes


def _entry(name: str, info: Any, start: int, budget: Budget) -> HeaderEntry:
    try:
        dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    except (TypeError, KeyError):
        raise CorruptError(f"{name!r} must have a dtype, a shape and data_offsets", at=8) from None
    if type(dtype) is not str or type(shape) is not list or type(offsets) is not list or len(offsets) != 2:
        raise CorruptError(f"{name!r} must have a dtype, a list of dimensions and two data_offsets", at=8)
    for number in (*shape, *offsets):
        if type(number) is not int or number < 0:
            what = repr(number) if isinstance(number, int | float | str) else type(number).__name__
            raise CorruptError(f"{name!r}: {what[:40]} is not a whole number from 0 up", at=8)
    row = _ROWS.get(dtype)
    if row is None:
        raise UnsupportedError(f"{name!r}: unknown dtype {dtype[:40]!r}; known: {', '.join(ORDER)} (byte 8)")
    if len(info) > 3:
        _check_depth(info, name, _MAX_DEPTH)
    begin, end = offsets
    if 0 in shape or len(shape) > budget.max_rank:
        check_shape(shape, row.itemsize, budget, 8)  # any other shape that fits its bytes is no larger than the file
    bits = math.prod(shape) * row.bits
    if bits != (end - begin) * 8:
        need = f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits, which fill no whole bytes"
        raise CorruptError(f"{name!r}: {row.name}{shape} takes {need}, data_offsets are {begin} and {end}", at=8)
    return HeaderEntry(name, row, tuple(shape), start + begin, start + end)


def _check_depth(value: Any, name: str, left: int) -> None:
    """Keys that we don't know are passed over, but not what the library takes for an attack."""
    if not left:
        raise CorruptError(f"{name!r} is nested too deeply", at=8)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(item, name, left - 1)


def _check_places(entries: list[HeaderEntry], start: int, size: int) -> None:
    """Every byte belongs to one tensor."""
    at = start
    for name, _, _, begin, end in sorted(entries, key=_place):
        if begin != at:
            what = "leaves a hole before it" if begin > at else "overlaps another"
            raise CorruptError(f"{name!r} at {begin - start} to {end - start} {what}", at=min(begin, size))
        at = end
    if at != size:
        what = "the file ends before its tensors do" if at > size else "bytes are left over after the last tensor"
        raise CorruptError(f"{what}: the header tells of {at} bytes, got {size}", at=min(at, size))


def _widened(entry: HeaderEntry, note: Mapping[str, Any]) -> HeaderEntry:
    """complex128 stands in the file as pairs of F64."""
    if note.get("dtype") != "complex128":
        return entry
    if entry.row.name != "float64" or entry.shape[-1:] != (2,):
        raise CorruptError(f"{entry.name!r}: complex128 must be stored as pairs of F64", at=8)
    return entry._replace(row=dtypes.get("complex128"), shape=entry.shape[:-1])
