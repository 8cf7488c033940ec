"""The directory of an object: what its first record says of all its records, so that one small read lists it.

spec/frame.md, section 11, is the normative text. It is a message of columns:

    names 1     bytes             the names, one after another
    lengths 2   packed uint64     the bytes of each name
    dtypes 3    packed uint32     the codes of the dtypes
    kinds 4     bytes             one for each record: what it holds, and some bits about it
    ranks 5     packed uint64     the number of dimensions
    dims 6      packed sint64     the dimensions of all of them; -1 where they vary
    nbytes 7    packed uint64     the bytes in memory of those that are not dense tensors
    sizes32 8   packed fixed32    the bytes of the payloads of all records but the first
    sizes64 9   packed fixed64    the same where 32 bits are not enough

Sizes have a fixed width and come last, so that they can be filled in once the records are written. Offsets follow from
them: the records stand one after another. Nothing here is believed: a record that is read must be what was said of it.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto, varint
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LIMITS, MORE_TENSORS, CorruptError, LimitError
from tensorbytes.formats._extension import utf8
from tensorbytes.tensor import Array, Header, Tensor, Value
from tensorbytes.tree import NO_META, Leaf, Path, Stored

# What a record holds, and bits about it.
_KINDS = ("tensor", "strings", "ragged", "sparse")
_KIND_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
ALIAS, PYTHON, META, PACKED = 4, 8, 16, 32
_KNOWN = 64
_CODES = {row.name: row.code for row in dtypes.DTYPES.values()}
_WIDTHS = np.zeros(1 + max(_CODES.values()), np.uint8)  # of an element, by its code
for _row in dtypes.DTYPES.values():
    _WIDTHS[_row.code] = _row.itemsize
_NARROW = 1 << 32
# More than a header with its padding takes beside the values, whatever is noted in it.
_SLACK = 1 << 24


# ---- writing ----------------------------------------------------------------


def encode(leaves: Sequence[Leaf], aliases: Collection[int], packed: bool) -> bytes:
    """The columns of a directory but for the sizes; nothing for leaves without names, or of which nothing is known.

    `aliases` are the parts that are stored as others. `packed`: records may be compressed or quantized.
    """
    names: list[str] = []
    codes: list[int] = []
    kinds: list[int] = []
    ranks: list[int] = []
    dims: list[int] = []
    nbytes: list[int] = []
    other = PACKED if packed else 0
    for leaf in leaves:
        plain = 0 if leaf.kind else other  # Python's own values stay as they are
        value, path = leaf.value, leaf.path
        if not path:
            return b""
        names.append(path[0][1] if len(path) == 1 and path[0][0] == "key" else leaf.name or "")  # type: ignore[arg-type]
        if type(value) is Tensor:
            codes.append(_CODES[value.dtype])
            kinds.append(plain if not leaf.kind and not value.meta else plain | _bits(leaf))
            ranks.append(len(value.shape))
            dims += value.shape
            continue
        kind, dtype, shape, inside = leaf.header
        if kind not in _KIND_NUMBERS:
            return b""
        codes.append(dtypes.STRING_CODE if dtype == "string" else dtypes.get(dtype).code)
        kinds.append(_KIND_NUMBERS[kind] | plain | _bits(leaf))
        ranks.append(len(shape))
        dims += [-1 if size is None else size for size in shape]
        if kind != "tensor":
            nbytes.append(inside or 0)
    for part in aliases:
        kinds[part] |= ALIAS
    text = "".join(names)
    lengths = list(map(len, names if text.isascii() else [utf8(name) for name in names]))
    zigzag = [size << 1 if size >= 0 else 1 for size in dims]
    return (
        _column(1, utf8(text))
        + _packed(2, lengths)
        + _packed(3, codes)
        + _column(4, bytes(kinds))
        + _packed(5, ranks)
        + _packed(6, zigzag)
        + _packed(7, nbytes)
    )


def _bits(leaf: Leaf) -> int:
    return (PYTHON if leaf.kind else 0) | (META if leaf.value.meta else 0)


def _packed(number: int, values: list[int]) -> bytes:
    if not values:
        return b""
    return _column(number, bytes(values) if max(values) < 128 else b"".join(map(varint, values)))


def _column(number: int, raw: bytes) -> bytes:
    tag, size = number << 3 | proto.DELIMITED, len(raw)  # numbers up to 15 make tags of one byte
    return bytes((tag, size)) + raw if size < 128 else bytes((tag,)) + varint(size) + raw


def sizes_field(sizes: Sequence[int], wide: bool) -> bytes:
    """The last column: the bytes of each record's payload but the first's."""
    return (
        _column(9, struct.pack(f"<{len(sizes)}Q", *sizes))
        if wide
        else _column(8, struct.pack(f"<{len(sizes)}I", *sizes))
    )


def is_wide(leaves: Sequence[Leaf]) -> bool:
    """Whether a record may be too long for 32 bits; told before it is made."""
    return max(map(_grown, leaves)) + _SLACK >= _NARROW


def _grown(leaf: Leaf) -> int:
    """What a record may take: of strings, each has its length before it."""
    value = leaf.value
    if type(value) is Tensor:
        return value.nbytes
    kind, _, shape, nbytes = leaf.header
    if nbytes is None and kind != "tensor":  # it is known when it is read, which is too late
        return _NARROW
    return 2 * value.nbytes + 16 * math.prod(size for size in shape if size is not None)


# ---- reading ----------------------------------------------------------------


class UnreadDirectory(NamedTuple):
    """A directory in the bytes of a record, not read yet."""

    data: memoryview
    field: proto.Field


class Directory(NamedTuple):
    """The columns, decoded: one entry for each record of the object."""

    names: list[str]
    headers: Sequence[Header]
    flags: bytes
    sizes: Array  # of payloads, as uint64; that of the first record included


def decode(data: memoryview, field: proto.Field, size: int, parts: int, budget: Budget) -> Directory:
    """The directory in a field of a record, whose payload has `size` bytes and whose object `parts` records."""
    columns = _columns(data, field)
    kinds = bytes(columns.get(4, b""))
    if len(kinds) != parts:
        raise _wrong(f"tells of {len(kinds)} records, the object has {parts}", field)
    if max(kinds) >= _KNOWN:
        raise _wrong("has a kind of record that is unknown to this version", field)
    if parts > budget.max_tensors:
        raise LimitError(f"over {budget.max_tensors} tensors", hints=[MORE_TENSORS])
    sizes = np.empty(parts, np.uint64)
    sizes[0], sizes[1:] = size, _sizes(columns, parts, field)
    budget.tensors(parts, field.at)
    names = _names(columns, parts, field)
    flags = (np.frombuffer(kinds, np.uint8) & 0xFC).tobytes()
    return Directory(names, _headers(columns, kinds, sizes, budget, field), flags, sizes)


def _columns(data: memoryview, field: proto.Field) -> dict[int, memoryview]:
    found: dict[int, memoryview] = {}
    for item in proto.fields(data, field.start, field.end):
        if item.number <= 9:
            if item.number in found:
                raise _wrong(f"has its column {item.number} twice", item)
            found[item.number] = proto.delimited(data, item)
    return found


def _wrong(what: str, field: proto.Field) -> CorruptError:
    return CorruptError(f"the directory of the object {what}", at=field.at)


def _sizes(columns: dict[int, memoryview], parts: int, field: proto.Field) -> Array:
    if (8 in columns) == (9 in columns):
        raise _wrong("must have one column of sizes", field)
    wide = 9 in columns
    raw = columns[9 if wide else 8]
    if len(raw) != (parts - 1) * (8 if wide else 4):
        raise _wrong(f"has {len(raw)} bytes of sizes for {parts - 1} records", field)
    return np.frombuffer(raw, "<u8" if wide else "<u4")


def _numbers(columns: dict[int, memoryview], number: int, field: proto.Field) -> Array:
    return proto.varints(columns.get(number, memoryview(b"")), field.start)


def _names(columns: dict[int, memoryview], parts: int, field: proto.Field) -> list[str]:
    lengths: list[int] = _numbers(columns, 2, field).tolist()
    raw = columns.get(1, memoryview(b""))
    if len(lengths) != parts or sum(lengths) != len(raw):
        raise _wrong(f"has {len(raw)} bytes of names, and {len(lengths)} lengths for {parts} records", field)
    bounds = [0, *itertools.accumulate(lengths)]
    try:
        text = str(raw, "utf-8")
        if len(text) == len(raw):
            return [text[a:b] for a, b in itertools.pairwise(bounds)]
        return [str(raw[a:b], "utf-8") for a, b in itertools.pairwise(bounds)]
    except UnicodeDecodeError:
        raise _wrong("has a name that is not UTF-8", field) from None


def _headers(
    columns: dict[int, memoryview], kinds: bytes, sizes: Array, budget: Budget, field: proto.Field
) -> Sequence[Header]:
    codes, ranks, dims = (_numbers(columns, number, field) for number in (3, 5, 6))
    if len(codes) != len(kinds) or len(ranks) != len(kinds) or sum(ranks.tolist()) != len(dims):
        raise _wrong("has columns of different lengths", field)
    if ranks.max() > budget.max_rank:
        raise LimitError(f"a tensor of rank {ranks.max()}, over the limit of {budget.max_rank}", at=field.at)
    if 7 not in columns and _are_dense(codes, ranks, dims, kinds, sizes):
        return _DenseHeaders(codes, ranks, dims)
    others = iter(_numbers(columns, 7, field).tolist())
    return _any_headers(kinds, codes.tolist(), ranks.tolist(), dims.tolist(), others, sizes.tolist(), field)


def _are_dense(codes: Array, ranks: Array, dims: Array, kinds: bytes, sizes: Array) -> bool:
    """Whether all records are dense tensors, as they are, that fit into their bytes beyond doubt: the usual case, of
    which nothing more has to be looked at."""
    if max(kinds) & (3 | PACKED | ALIAS) or codes.max() >= len(_WIDTHS):
        return False
    widths = _WIDTHS[codes]  # 0 for codes that are unknown
    if not widths.all() or (dims & np.uint64(1)).any():
        return False
    nbytes, axes = widths.astype(np.float64), dims.astype(np.float64) / 2
    starts = np.cumsum(ranks) - ranks
    for axis in range(int(ranks.max())):
        deep = ranks > axis
        nbytes[deep] *= axes[starts[deep] + np.uint64(axis)]
    # Floats of whole numbers up to this one are exact.
    return bool((nbytes <= sizes).all() and sizes.max() < 1 << 52)


class _DenseHeaders(Sequence[Header]):
    """The headers of dense tensors, each made when it is asked for."""

    def __init__(self, codes: Array, ranks: Array, dims: Array) -> None:
        self._codes, self._ends, self._ranks, self._dims = codes, np.cumsum(ranks), ranks, dims

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, part: Any) -> Any:
        row, end = dtypes.by_code(int(self._codes[part])), int(self._ends[part])
        shape = tuple([size >> 1 for size in self._dims[end - int(self._ranks[part]) : end].tolist()])
        return Header("tensor", row.name, shape, math.prod(shape) * row.itemsize)


def _any_headers(
    kinds: bytes,
    codes: list[int],
    ranks: list[int],
    dims: list[int],
    others: Iterator[int],
    sizes: list[int],
    field: proto.Field,
) -> list[Header]:
    found: list[Header] = []
    at = 0
    for number, (kind, code, rank) in enumerate(zip(kinds, codes, ranks, strict=True)):
        shape = tuple([_size(dim, field) for dim in dims[at : at + rank]])
        at += rank
        name = _KINDS[kind & 3]
        row = dtypes.BY_CODE.get(code)
        if (row is None and code != dtypes.STRING_CODE) or (row is None) > (name != "tensor"):
            raise _wrong(f"has the dtype code {code} for a record", field)
        if name == "tensor":
            assert row is not None
            nbytes: int | None = _dense_bytes(shape, row.itemsize, field)
            if not kind & (PACKED | ALIAS) and nbytes is not None and nbytes > sizes[number]:
                raise _wrong(f"has {row.name}{list(shape)} in a record of {sizes[number]} bytes", field)
        else:
            nbytes = next(others, None)
            if nbytes is None:
                raise _wrong("has columns of different lengths", field)
        found.append(Header(name, "string" if row is None else row.name, shape, nbytes))
    if next(others, None) is not None:
        raise _wrong("has columns of different lengths", field)
    return found


def _size(dim: int, field: proto.Field) -> int | None:
    """A dimension, as sint64 has it."""
    if dim & 1:
        if dim != 1:
            raise _wrong(f"has a dimension of {-(dim >> 1) - 1}", field)
        return None
    return dim >> 1


def _dense_bytes(shape: tuple[int | None, ...], itemsize: int, field: proto.Field) -> int:
    if None in shape:
        raise _wrong("has a dense tensor with a dimension that varies", field)
    return math.prod(size for size in shape if size is not None) * itemsize


def compare(found: UnreadDirectory, leaves: Sequence[Leaf], sizes: Sequence[int], aliases: Collection[int]) -> None:
    """Refuse a directory that is not that of these records."""
    data, field = found
    raw = data[field.start : field.end]
    wide = max(sizes) >= _NARROW
    if raw == encode(leaves, aliases, packed=False) + sizes_field(sizes[1:], wide):  # as our writer has it
        return
    try:
        directory = decode(data, field, sizes[0], len(leaves), Budget(LIMITS, sum(sizes)))
    except LimitError as error:
        raise _wrong(f"is not that of its records: {error}", field) from None
    for part, (leaf, size) in enumerate(zip(leaves, sizes, strict=True)):
        wrong = fault(directory, part, leaf, part in aliases)
        told = int(directory.sizes[part])
        if not wrong and size != told:
            wrong = f"the directory of the object says {told} bytes of part {part}, which has {size}"
        if wrong:
            raise CorruptError(wrong, at=field.at)


def fault(directory: Directory, part: int, leaf: Leaf, is_alias: bool) -> str:
    """What a directory says of a record that the record, which holds this leaf, is not; nothing if it is right."""
    flags, header = directory.flags[part], leaf.header
    said: list[tuple[str, Any, Any]] = [
        ("name", directory.names[part], leaf.name),
        ("kind", directory.headers[part].kind, header.kind),
        ("dtype", directory.headers[part].dtype, header.dtype),
        ("shape", directory.headers[part].shape, header.shape),
        ("alias", bool(flags & ALIAS), is_alias),
        ("Python value", bool(flags & PYTHON), bool(leaf.kind)),
        ("metadata", bool(flags & META), bool(leaf.value.meta)),
    ]
    if not flags & PACKED:
        said.append(("form", None, leaf.stored))
        said.append(("size in memory", directory.headers[part].nbytes, header.nbytes or 0))
    for what, told, found in said:
        if told != found:
            return f"the directory of the object says {told!r} of the {what} of part {part}, which is {found!r}"
    return ""


# ---- leaves that were listed and not read yet -------------------------------------------


class Listed(Leaf):
    """A leaf of which a directory told the name and the header. Anything else of it reads its record, once."""

    _name: str
    _header: Header
    _flags: int
    _read: Callable[[], Leaf]

    @classmethod
    def of(cls, directory: Directory, part: int, read: Callable[[], Leaf]) -> Listed:
        made = tuple.__new__(cls, (None, (), "", None, 0, None, None))
        made._name, made._header, made._flags = directory.names[part], directory.headers[part], directory.flags[part]
        made._read = read
        return made

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def header(self) -> Header:
        return self._read().header if self._flags & PACKED else self._header

    @property
    def meta(self) -> Mapping[str, str]:
        return self._read().value.meta if self._flags & META else NO_META

    @property
    def value(self) -> Value | Deferred:
        return self._read().value

    @property
    def path(self) -> Path:
        return self._read().path

    @property
    def kind(self) -> str:
        return self._read().kind if self._flags & PYTHON else ""

    @property
    def check(self) -> Callable[[], None] | None:
        return self._read().check

    @property
    def at(self) -> int:
        return self._read().at

    @property
    def stored(self) -> Stored | None:
        return self._read().stored if self._flags & PACKED else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Listed({self._name!r}, {self._header})"

    def _replace(self, **changes: Any) -> Leaf:  # type: ignore[override]
        return self._read()._replace(**changes)
