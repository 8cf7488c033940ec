"""The safetensors format: named dense tensors behind a JSON header; one file, or several with an index.

    8 bytes   n, the length of the header, little-endian; at most 100 000 000
    n bytes   the header: a JSON object, filled up with spaces to a multiple of 8
    rest      the tensors, without gaps, in C order, little-endian

The header holds "__metadata__" (text to text) and for each tensor, under its name,

    {"dtype":"F32","shape":[2,3],"data_offsets":[begin,end]}

where the offsets count from the end of the header. Writing gives the bytes of the
safetensors library: compact JSON, metadata first (its keys sorted, so that the same input
always gives the same bytes), the tensors by dtype, the widest first, then by name.
F4, F6_E2M3 and F6_E3M2 are packed (see _packed.py); their shape counts elements.

What the header can't say stands in the metadata, under the key "tensorbytes": a JSON
object of the notes (see _parts.py) by the names of the tensors they belong to. Files of a
flat dict of tensors have none. Metadata of the whole is the rest of "__metadata__".
A single tensor is stored under the name "tensor"; its metadata is that of the whole.

`extended=True` stores what other readers could not make sense of by themselves: dtypes
that safetensors lacks as U8 to U64 of the same width (complex128 as pairs of F64, along a
further axis), types under 8 bits as U8 where they would not fill their last byte, strings
as bytes and offsets, ragged and sparse values as their parts; and how values were held.

Checkpoints of several files: see _safetensors/shards.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tensorbytes import dtypes, storage
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import MORE_TENSORS, USE_TB, Hint, LimitError, Limits, LossError, UsageError
from tensorbytes.formats import ADVISORY, Format, Options, Salvaged, _json, _packed, _parts
from tensorbytes.formats._extension import utf8
from tensorbytes.formats._parts import Part
from tensorbytes.formats._safetensors import shards
from tensorbytes.formats._safetensors.header import MAX_HEADER, METADATA, NOTES, ORDER, Entry, File, read
from tensorbytes.formats._tensorproto import check_bits
from tensorbytes.storage import Target
from tensorbytes.tensor import Strings, Tensor, amended
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer

_RANK = {name: rank for rank, name in enumerate(ORDER)}
_CARRIERS = {1: "U8", 2: "U16", 4: "U32", 8: "U64"}
_EMPTY = Tensor("bool", (0,), b"")


class SafeTensors(Format):
    name = "safetensors"
    words = "byte for byte the library's; sharded too"
    suffixes = (".safetensors",)
    write_options = frozenset({"extended", "max_shard_bytes"})

    def sniff(self, head: bytes, size: int) -> bool:
        length = int.from_bytes(head[:8], "little")
        return 2 <= length <= min(size - 8, MAX_HEADER) and head[8:9] == b"{" and head[9:10] in b' "}\n\r\t'

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterable[Buffer]:
        if options.get("max_shard_bytes") is not None:
            raise UsageError("max_shard_bytes makes several files", hints=[Hint(purpose="save to a local path")])
        parts, meta = _parts_of(document, allow, _extended(options))
        return pieces(parts, meta)

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        pieces(*_parts_of(document, allow, _extended(options)))

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        yield document_of([read(data, budget)], budget, lazy)

    def salvage(self, data: memoryview, limits: Limits) -> Salvaged:
        budget = Budget(limits, len(data))
        file = read(data, budget, cut=True)
        there = {entry.name for entry in file.entries if entry.end <= len(data) or entry.begin == entry.end}
        whole = file._replace(entries=[entry for entry in file.entries if entry.name in there])
        if file.notes:
            there = {part.name for part in _parts.complete(_read_parts([whole], lazy=True))}
            whole = whole._replace(entries=[entry for entry in file.entries if entry.name in there])
        lost = [entry.name for entry in file.entries if entry.name not in there]
        heads = [name for name in lost if "of" not in file.notes.get(name, {})]  # not the parts of others
        return Salvaged(document_of([whole], budget, lazy=True), heads, {"extended": True} if file.notes else {})

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        size = options.get("max_shard_bytes")
        if size is None:
            content = self.encode(document, allow, options)
            if storage.is_local(target):
                shards.write_single(os.fspath(target), content, sync)  # type: ignore[arg-type]
            else:
                storage.write(target, content, sync=sync)
            return
        if type(size) is not int or size < 1:
            raise UsageError(f"max_shard_bytes={size!r}", expected="a number of bytes from 1 up")
        path = shards.check_target(target)
        parts, meta = _parts_of(document, allow, _extended(options))
        shards.write(path, [(part, _stored(part).nbytes) for part in parts], size, partial(pieces, meta=meta), sync)

    def claims(self, path: str) -> bool:
        return bool(shards.find(path))

    def decode_path(self, path: str, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits)
        yield document_of(shards.read(path, lambda data: read(data, budget), lazy), budget, lazy)


def _extended(options: Options) -> bool:
    extended = options.get("extended", False)
    if type(extended) is not bool:
        raise UsageError(f"extended={extended!r}", expected="True or False")
    return extended


# ---- writing ----------------------------------------------------------------


def _parts_of(document: Document, allow: frozenset[str], extended: bool) -> tuple[list[Part], dict[str, str]]:
    """The parts to store and the metadata of the whole, once nothing is lost in silence."""
    leaves, meta = document.leaves, dict(document.meta)
    if len(leaves) == 1 and not leaves[0].path:
        # Of a single value, its metadata is that of the whole: other software looks there.
        value = leaves[0].whole
        meta = {**value.meta, **meta}
        leaves = [leaves[0]._replace(value=amended(value, value.name, {}))]
    if not extended:
        for leaf in leaves:
            _refuse(leaf)
    for key, text in meta.items():
        utf8(key), utf8(text)
    if NOTES in meta and "meta" not in allow:
        raise LossError(
            f"the metadata key {NOTES!r} is taken in safetensors files",
            feature="meta",
            hints=[Hint(purpose="rename it"), Hint("allow", {"meta"}, "to drop it")],
        )
    meta.pop(NOTES, None)
    if len(leaves) == 1 and not leaves[0].path and leaves[0].kind == "dict":
        return [], meta
    parts = None if extended else _plain(leaves)
    if parts is None:
        parts = _parts.pack(Document(leaves, origin=document.origin), _holds, ordered=False, advisory=extended)
    if any(part.name == METADATA for part in parts):
        raise LossError(
            f"safetensors can't hold a tensor named {METADATA!r}",
            feature="name",
            hints=[Hint(purpose="rename it"), USE_TB],
        )
    return parts, meta


def _plain(leaves: list[Leaf]) -> list[Part] | None:
    """What _parts.pack gives for a flat dict of tensors alone: the usual case, and quick by the thousand."""
    parts = []
    for value, path, kind, *_ in leaves:
        if kind or len(path) != 1 or path[0][0] != "key" or not isinstance(value, Tensor):
            return None
        name = path[0][1]
        assert isinstance(name, str)
        if (
            value.meta or not value.origin.keys() <= ADVISORY or not name.isprintable()
        ):  # not printable: half a character, perhaps
            return None
        parts.append(Part(name, value))
    return parts


def _holds(value: Tensor | Strings) -> bool:
    if isinstance(value, Strings):
        return False
    row = dtypes.get(value.dtype)
    return row.safetensors is not None and _packed.whole_bytes(row, value.shape)


def _refuse(leaf: Leaf) -> None:
    """Values that other readers of the file would take for something else."""
    value = leaf.whole
    if isinstance(value, Tensor) and _holds(value):
        return
    if isinstance(value, Tensor):
        feature, what = "dtype", f"the dtype {value.dtype}"
        if dtypes.get(value.dtype).safetensors:
            what = f"{value.dtype}{list(value.shape)}, which does not fill its last byte"
    else:
        feature = type(value).__name__.lower()
        what = f"{feature} values" if feature != "strings" else "strings"
    where = "" if leaf.name is None else f" ({leaf.name!r})"
    raise LossError(
        f"safetensors can't hold {what}{where}",
        feature=feature,
        hints=[Hint("extended", True, "to store it in a way that only tensorbytes understands", of="save"), USE_TB],
    )


class _Stored(NamedTuple):
    """A part as the file has it."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    packed: bool = False


def _stored(part: Part) -> _Stored:
    value = part.value
    assert isinstance(value, Tensor)
    row = dtypes.get(value.dtype)
    if "dtype" not in part.note:
        assert row.safetensors is not None
        if row.bits < 8:
            return _Stored(row.safetensors, value.shape, value.nbytes * row.bits // 8, True)
        return _Stored(row.safetensors, value.shape, value.nbytes)
    if row.itemsize == 16:
        return _Stored("F64", (*value.shape, 2), value.nbytes)
    return _Stored(_CARRIERS[row.itemsize], value.shape, value.nbytes)


def pieces(parts: Sequence[Part], meta: Mapping[str, str]) -> Iterator[Buffer]:
    """The bytes of one file."""
    rows = sorted(((_stored(part), part) for part in parts), key=lambda pair: (_RANK[pair[0].dtype], pair[1].name))
    notes = {part.name: part.note for part in sorted((part for part in parts if part.note), key=lambda part: part.name)}
    texts = dict(sorted(meta.items()))
    if notes:
        texts[NOTES] = _json.dump(notes)
    header: dict[str, Any] = {METADATA: texts} if texts else {}
    at = 0
    for stored, part in rows:
        header[part.name] = {
            "dtype": stored.dtype, "shape": stored.shape, "data_offsets": (at, at + stored.nbytes),
        }  # fmt: skip
        at += stored.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise LossError(
            f"a header of {len(text)} bytes: safetensors ends at {MAX_HEADER}", feature="size", hints=[USE_TB]
        )
    return _chain(len(text).to_bytes(8, "little") + text, rows)


def _chain(head: bytes, rows: Iterable[tuple[_Stored, Part]]) -> Iterator[Buffer]:
    yield head
    for stored, part in rows:
        assert isinstance(part.value, Tensor)
        yield _packed.pack_tensor(part.value) if stored.packed else part.value.data


# ---- reading ----------------------------------------------------------------


def document_of(files: Sequence[File], budget: Budget, lazy: bool) -> Document:
    """The document that one or several files hold."""
    if sum(len(file.entries) for file in files) > budget.max_tensors:
        raise LimitError(f"over {budget.max_tensors} tensors", hints=[MORE_TENSORS])
    meta: dict[str, str] = {}
    for file in files:
        meta = {**file.meta, **meta}
    if not any(file.entries for file in files):
        return Document([Leaf(amended(_EMPTY, None, meta), (), "dict")])
    if any(file.notes for file in files):
        document = _parts.unpack(_read_parts(files, lazy), budget, lazy)
        if len(document.leaves) == 1 and not document.leaves[0].path:
            return Document([_with_meta(document.leaves[0], meta)])
        return Document(document.leaves, meta, origin=document.origin)
    return Document([_leaf(file.data, entry, lazy) for file in files for entry in file.entries], meta)


def _with_meta(leaf: Leaf, meta: Mapping[str, str]) -> Leaf:
    value = leaf.value
    if isinstance(value, Deferred):
        return leaf._replace(value=replace(value, meta={**value.meta, **meta}))
    return leaf._replace(value=amended(value, value.name, {**value.meta, **meta}))


def _read_parts(files: Sequence[File], lazy: bool) -> Iterator[Part]:
    for file in files:
        for entry in file.entries:
            yield Part(entry.name, _value(file.data, entry, lazy), file.notes.get(entry.name, {}), entry.begin)


def _value(data: memoryview, entry: Entry, lazy: bool) -> Tensor | Deferred:
    raw = data[entry.begin : entry.end]
    if entry.row.bits >= 8:
        return Tensor(entry.row.name, entry.shape, raw)
    read = _packed.deferred if lazy else _packed.whole
    return read(entry.row, entry.shape, raw, entry.begin)


def _leaf(data: memoryview, entry: Entry, lazy: bool) -> Leaf:
    """A tensor without a note: the usual case, and quick to build by the thousand."""
    name, row, shape, begin, end = entry
    if row.bits < 8:
        return Leaf(_value(data, entry, lazy), (("key", name),), at=begin)
    value = Tensor(row.name, shape, data[begin:end])
    check = None
    if row.name == "bool":
        check = partial(check_bits, value, begin)
        if not lazy:
            check()
    return Leaf(value, (("key", name),), "", check if lazy else None, begin)


FORMAT = SafeTensors()
