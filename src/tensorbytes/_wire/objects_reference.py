"""The twin of objects.c: objects of the native frame in their usual form, read and written by the record.

The usual form: dense tensors alone, or the items of a flat dict, list or tuple, which say no more of themselves than
the framework they came from. Anything else, sound or not, is the general parser's and writer's work.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbytes._wire import reference
from tensorbytes._wire.common import LARGE_PAYLOAD, SMALL, mask, varint
from tensorbytes._wire.reference import crc32c, frames, scan
from tensorbytes.typing import Buffer, bytes_view

ALONE, DICT, LIST, TUPLE = range(4)
_MAX_RANK = 32
_MOST_PARTS = 1 << 16
_BOOL = 10
_ALIGNMENT, _ALIGN_FROM = 64, 4096
_NAME, _STEP, _PART, _PARTS, _ITEM = b"\xc2\x3e", b"\xd2\x3e", b"\xd8\x3e", b"\xe0\x3e", b"\xe8\x3e"
_PADDING, _HEADER_CRC, _ORIGIN, _DIRECTORY = b"\x92\x3f", b"\x9d\x3f", b"\xb2\x3f", b"\xe2\x5d"
_FRAMEWORK = b"\x0a\x09framework\x12"
_NAMED, _LIST_STEP, _TUPLE_STEP = 0x28, 0x18, 0x20

Row = tuple[bytes, Any, bytes, Buffer]


class _NotUsualError(Exception):
    """The general parser decides."""


class _Record(NamedTuple):
    code: int
    shape: tuple[int, ...]
    container: int
    name: bytes
    part: int
    parts: int
    item: int
    directory: memoryview | None
    content: int
    size: int


class _Fields:
    """Reads the fields of a message in the order of the writer."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def has(self, tag: bytes) -> bool:
        found = self.data[self.at : min(self.at + len(tag), self.end)] == tag
        self.at += len(tag) * found
        return found

    def need(self, tag: bytes) -> None:
        if not self.has(tag):
            raise _NotUsualError

    def varint(self) -> int:
        value, self.at = reference._varint(self.data, self.at, self.end)
        if self.at < 0:
            raise _NotUsualError
        return value

    def delimited(self) -> _Fields:
        size = self.varint()
        if size > self.end - self.at:
            raise _NotUsualError
        self.at += size
        return _Fields(self.data, self.at - size, self.at)

    @property
    def rest(self) -> memoryview:
        return self.data[self.at : self.end]


def _shape(fields: _Fields) -> tuple[int, ...]:
    fields.need(b"\x12")
    inner = fields.delimited()
    shape: list[int] = []
    while inner.at < inner.end:
        if len(shape) == _MAX_RANK:
            raise _NotUsualError
        inner.need(b"\x12")
        dim, size = inner.delimited(), 0
        if dim.at < dim.end:
            dim.need(b"\x08")
            size = dim.varint()
        if dim.at != dim.end or size >= 1 << 63:
            raise _NotUsualError
        shape.append(size)
    return tuple(shape)


def _container(step: _Fields | None, name: bytes | None, part: int) -> int:
    if step is None:
        if name is not None and not name.isascii():
            raise _NotUsualError
        return ALONE
    if step.at == step.end or name is None:
        raise _NotUsualError
    tag = step.data[step.at]
    step.at += 1
    number = step.varint()
    if step.at != step.end:
        raise _NotUsualError
    if tag == _NAMED and number == 1:
        return DICT
    if tag in (_LIST_STEP, _TUPLE_STEP) and number == part and name == str(number).encode():
        return LIST if tag == _LIST_STEP else TUPLE
    raise _NotUsualError


def _parse(data: memoryview, start: int, end: int, sizes: memoryview) -> _Record:
    fields = _Fields(data, start, end)
    fields.need(b"\x08")
    code = fields.varint()
    if code > 255 or not sizes[code]:
        raise _NotUsualError
    shape = _shape(fields)
    name = bytes(fields.delimited().rest) if fields.has(_NAME) else None
    step = fields.delimited() if fields.has(_STEP) else None
    part, parts, item = 0, 1, 0
    if fields.has(_PART):
        part = fields.varint()
        fields.need(_PARTS)
        parts = fields.varint()
    if part >= parts:
        raise _NotUsualError
    container = _container(step, name, part)
    if fields.has(_ITEM):
        item = fields.varint()
    if fields.has(_ORIGIN):
        entry = fields.delimited()
        entry.need(_FRAMEWORK)
        if not bytes(entry.delimited().rest).isascii() or entry.at != entry.end:
            raise _NotUsualError
    directory = fields.delimited().rest if fields.has(_DIRECTORY) else None
    if fields.has(_PADDING):
        fields.delimited()
    header_end = fields.at
    checked = fields.has(_HEADER_CRC)
    if checked:
        if bytes(fields.rest[:4]) != struct.pack("<I", mask(crc32c(data[start:header_end]))):
            raise _NotUsualError
        fields.at += 4
    if math.prod(max(size, 1) for size in shape) * sizes[code] >= 1 << 63:
        raise _NotUsualError
    want = math.prod(shape) * sizes[code]
    if want:
        fields.need(b"\x22")
        before = fields.at
        content = fields.delimited()
        canonical = content.at - before == len(varint(want))
        if content.end != end or content.end - content.at != want or (checked and not canonical):
            raise _NotUsualError
        fields.at = content.at
    elif fields.at != end or checked:
        raise _NotUsualError
    return _Record(code, shape, container, name or b"", part, parts, item, directory, fields.at, end - fields.at)


def _read_directory(raw: memoryview) -> dict[int, bytes]:
    columns, fields = {}, _Fields(raw, 0, len(raw))
    for number in range(1, 9):
        if fields.has(bytes([number << 3 | 2])):
            columns[number] = bytes(fields.delimited().rest)
    if fields.at != fields.end:
        raise _NotUsualError
    return columns


def _columns(names: list[bytes], heads: list[tuple[int, tuple[int, ...]]], sizes: list[int]) -> dict[int, bytes]:
    """The columns of the directory of an object, sizes of all records but the first included."""
    return {
        1: b"".join(names),
        2: b"".join(varint(len(name)) for name in names),
        3: b"".join(varint(code) for code, _ in heads),
        4: bytes(len(heads)),
        5: b"".join(varint(len(shape)) for _, shape in heads),
        6: b"".join(varint(size << 1) for _, shape in heads for size in shape),
        8: b"".join(struct.pack("<I", size) for size in sizes[1:]),
    }


def _check_listed(first: _Record, found: list[_Record], sizes: list[int]) -> None:
    assert first.directory is not None
    made = _columns([one.name for one in found], [(one.code, one.shape) for one in found], sizes)
    told = _read_directory(first.directory)
    if {number: raw for number, raw in told.items() if raw} != {number: raw for number, raw in made.items() if raw}:
        raise _NotUsualError


def objects_read(
    buffer: Buffer, start: int, item: int, most: int, sizes: Buffer, copy: int
) -> tuple[list[Any], int, int]:
    """(objects, where the first stands that was not read, the number of the last one in its stream)

    Objects are read from `start` on, verified, until there are `most` records, or up to one that is not of the usual
    form. `item` is the number of the stream's item before, and sizes[code] what an element of each dtype takes, 0 for
    those that are not to be read. A tensor alone is (code, shape, where its content is), others are (container, [(code,
    shape, where, key), ...]), the key None but in dicts. With `copy`, a bytearray of the content stands for its place.
    """
    data, known = bytes_view(buffer), bytes_view(sizes)
    if not 0 <= start <= len(data) or most < 0 or copy not in (0, 1) or not 0 <= item < 1 << 64:
        raise IndexError(f"position {start}, {most}, {copy} or {item} is out of its bounds")
    if len(known) != 256:
        raise ValueError("there must be 256 sizes of elements")
    out: list[Any] = []
    found: list[_Record] = []
    lengths: list[int] = []
    place = np.empty((1, 2), np.int64)
    at, count = start, 0
    while count < most or found:
        got, at, _ = scan(data, at, SMALL, place)
        if not got:
            break
        payload, size = place[0].tolist()
        try:
            if size >= LARGE_PAYLOAD:
                raise _NotUsualError
            record = _parse(data, payload, payload + size, known)
            _check_follows(found, record, item)
            content = data[record.content : record.content + record.size]
            if record.code == _BOOL and record.size and max(content) > 1:
                raise _NotUsualError
            count += 1
            if record.container == ALONE:
                out.append((record.code, record.shape, bytearray(content) if copy else record.content))
            else:
                if record.container == DICT:
                    record.name.decode()
                found.append(record)
                lengths.append(size)
                if len(found) < record.parts:
                    continue
                if found[0].directory is not None:
                    _check_listed(found[0], found, lengths)
                out.append((record.container, [_row(data, one, copy) for one in found]))
        except (_NotUsualError, UnicodeDecodeError):
            break
        start, item, found, lengths = at, record.item, [], []
    return out, start, item


def _check_follows(found: list[_Record], record: _Record, item: int) -> None:
    """Whether a record comes next: of a new object, or of the one that is being read."""
    usual = record.part == len(found)
    if not found:
        usual = usual and record.parts <= _MOST_PARTS and (record.item == item + 1 or record.item <= 1)
        usual = usual and (record.container != ALONE or record.parts == 1)
        usual = usual and (record.directory is None or (record.parts > 1 and not record.item))
    else:
        first = found[0]
        usual = usual and record[2] == first[2] and record[5:7] == first[5:7] and record.directory is None
    if not usual:
        raise _NotUsualError


def _row(data: memoryview, record: _Record, copy: int) -> tuple[Any, ...]:
    place = bytearray(data[record.content : record.content + record.size]) if copy else record.content
    return record.code, record.shape, place, record.name.decode() if record.container == DICT else None


def objects_write(rows: list[Row], container: int, item: int, at: int, most: int) -> bytes | None:
    """The bytes of an object whose first record will stand at `at`; None where that is the general writer's work.

    A row is the fields dtype and tensor_shape, the key in a dict, the field of the origin, and the memory. `item` is
    the number in a stream, 0 outside. More than `most` bytes, the same memory twice, and bytes that are no bools are
    left to others.
    """
    if not 0 <= container <= TUPLE or item < 0 or at < 0 or most < 0:
        raise IndexError("a position is out of its bounds")
    if not rows or len(rows) > _MOST_PARTS or (container == ALONE and len(rows) != 1):
        return None
    names = [_name(key, number, container) for number, (_, key, _, _) in enumerate(rows)]
    seen: set[int] = set()
    views: list[memoryview] = []
    for _, _, _, memory in rows:
        view = memoryview(memory)
        if not view.c_contiguous:
            raise ValueError("the data is not C-contiguous")
        views.append(bytes_view(view))
        seen.add(np.frombuffer(views[-1], np.uint8).ctypes.data if view.nbytes else id(memory))
    if sum(map(len, views)) > most or len(seen) < len(rows):
        return None
    try:
        heads = [_head(memoryview(head)) for head, _, _, _ in rows]
    except _NotUsualError:
        return None
    if any(code == _BOOL and len(view) and max(view) > 1 for (code, _), view in zip(heads, views, strict=True)):
        return None
    sizes = [0] * len(rows)
    payloads: list[Sequence[Buffer]] = []
    for again in (False, True):  # once for the sizes, which the first record tells of
        payloads, place = [], at
        for number, (head, _, origin, _) in enumerate(rows):
            header = head
            if container != ALONE:
                tag = {DICT: _NAMED, LIST: _LIST_STEP, TUPLE: _TUPLE_STEP}[container]
                step = bytes([tag]) + (b"\x01" if container == DICT else varint(number))
                header += _NAME + varint(len(names[number])) + names[number] + _STEP + varint(len(step)) + step
            if len(rows) != 1:
                header += _PART + varint(number) + _PARTS + varint(len(rows))
            header += (_ITEM + varint(item) if item else b"") + origin
            if not number and len(rows) != 1 and not item:
                columns = _columns(names, heads, sizes)
                told = [bytes([n << 3 | 2]) + varint(len(raw)) + raw for n, raw in columns.items() if raw or n == 1]
                directory = b"".join(told)
                header += _DIRECTORY + varint(len(directory)) + directory
            payloads.append([_sealed(header, len(views[number]), place + 12), views[number]])
            sizes[number] = sum(map(len, payloads[-1]))
            place += 16 + sizes[number]
        if again or len(rows) == 1:
            break
    return frames(payloads)


def _name(key: Any, number: int, container: int) -> bytes:
    if container != DICT:
        return str(number).encode()
    if type(key) is not str:  # a subclass would come back as plain text, and two of them may be the same
        raise TypeError("a key must be text, and nothing else")
    return key.encode()


def _head(head: memoryview) -> tuple[int, tuple[int, ...]]:
    fields = _Fields(head, 0, len(head))
    fields.need(b"\x08")
    code = fields.varint()
    shape = _shape(fields)
    if fields.at != fields.end:
        raise _NotUsualError
    return code, shape


def _sealed(header: bytes, size: int, at: int) -> bytes:
    """A header with padding and checksum where the content is large, and the content's tag."""
    tag = b"\x22" + varint(size) if size else b""
    if size < _ALIGN_FROM:
        return header + tag
    need = -(at + len(header) + 6 + len(tag)) % _ALIGNMENT
    if need:
        need += _ALIGNMENT if need < 3 else 0
        header += _PADDING + varint(need - 3) + bytes(need - 3)
    return header + _HEADER_CRC + struct.pack("<I", mask(crc32c(header))) + tag


# ---- headers of safetensors files --------------------------------------------------------

_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
_TEXT = rb'"[^"\\\x00-\x1f]*"'


def _listed(item: bytes) -> bytes:
    return b"(?:" + item + b"(?:," + item + b")*)?"


_ENTRY = re.compile(
    rb'{"dtype":"([^"\\\x00-\x1f]*)","shape":\[(' + _listed(_NUMBER) + rb")\],"
    rb'"data_offsets":\[(' + _NUMBER + b"),(" + _NUMBER + rb")\]}"
)
_NAME_OF_ENTRY = re.compile(_TEXT + b":")
_METADATA = re.compile(b"{" + _listed(_TEXT + b":" + _TEXT) + b"}")
_MAX_HEADER_RANK = 64


def header_read(
    header: bytes, size: int, dtypes: tuple[bytes, ...], bits: bytes
) -> tuple[list[str], bytes, bytes, tuple[int, int]] | None:
    """(names, table, dimensions, where the metadata stands) of a header as the safetensors library writes it, before
    `size` bytes of data; None for any other, sound or not.

    The table has six int64 for each entry: where its name starts and ends, the number of its dtype, where its content
    begins and ends, its rank. An element of dtype i takes bits[i] bits; those of 0 bits are not read here.
    """
    if type(header) is not bytes:
        raise TypeError("a header is bytes, which don't change")
    if not 0 <= size < 1 << 63:
        raise IndexError(f"position {size} is out of its bounds")
    if not 0 < len(dtypes) == len(bits) <= 64 or any(len(name) > 15 for name in dtypes):
        raise ValueError("dtypes have short names, and as many widths")
    names, table, dims, metadata = [], array("q"), array("q"), (0, 0)
    at, place = 1, 0
    if header[:2] != b'{"':
        return None
    while True:
        name = _NAME_OF_ENTRY.match(header, at)
        if name is None:
            return None
        if name[0] == b'"__metadata__":':
            found = _METADATA.match(header, name.end())
            if found is None or metadata[1]:
                return None
            metadata = found.span()
        else:
            found = _ENTRY.match(header, name.end())
            if found is None or found[1] not in dtypes:
                return None
            dtype, shape = dtypes.index(found[1]), [int(size) for size in found[2].split(b",") if size]
            begin, end, width = int(found[3]), int(found[4]), bits[dtypes.index(found[1])]
            whole = math.prod(shape) * width
            if len(shape) > _MAX_HEADER_RANK or math.prod(max(n, 1) for n in shape) * width >= 1 << 63 or not width:
                return None
            if begin != place or not begin <= end <= size or whole != (end - begin) * 8:
                return None
            place = end
            try:
                names.append(name[0][1:-2].decode())
            except UnicodeDecodeError:
                return None
            table.extend((at + 1, name.end() - 2, dtype, begin, end, len(shape)))
            dims.extend(shape)
        at = found.end()
        if header[at : at + 2] != b',"':
            break
        at += 1
    if header[at : at + 1] != b"}" or header[at + 1 :].strip(b" ") or place != size:
        return None
    return names, table.tobytes(), dims.tobytes(), metadata
