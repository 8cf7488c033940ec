"""The safetensors format: named dense tensors after a JSON header; one file, or several with an index.

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

A tensor that has several names is stored under the first of them in the order of the alphabet; each other name is a
key of "__metadata__" whose text is that first name, as safetensors.torch.save_model writes it. So a key that is not
the name of a tensor, with the name of a tensor as its text, is a further name of that tensor. A tensor for which the
metadata of users has such a key bears a note, `aliases`, that tells its real ones; so does one in a nested structure.

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
from functools import partial
from typing import Any, NamedTuple

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, Dense
from tensorbytes.errors import MORE_TENSORS, USE_TB, CorruptError, Hint, LimitError, Limits, LossError, UsageError
from tensorbytes.formats import (
    ADVISORY,
    ADVISORY_OF_THE_WHOLE,
    Format,
    Option,
    Options,
    Salvaged,
    _json,
    _packed,
    _parts,
    known_options,
    ready_for,
)
from tensorbytes.formats._extension import utf8
from tensorbytes.formats._parts import Part
from tensorbytes.formats._safetensors import shards
from tensorbytes.formats._safetensors.header import (
    MAX_HEADER,
    METADATA,
    NOTES,
    ORDER,
    Entries,
    File,
    HeaderEntry,
    entry_names,
    read,
)
from tensorbytes.formats._tensorproto import check_bits
from tensorbytes.io import storage
from tensorbytes.io.storage import Target
from tensorbytes.tensor import Strings, Tensor, amended, fitting_tensor
from tensorbytes.tree import NO_META, Document, LazyLeaves, Leaf, find_aliases
from tensorbytes.typing import Buffer, pinned

_WHOLE = {row.name for row in dtypes.DTYPES.values() if row.safetensors and row.bits >= 8}
_RANK = {name: rank for rank, name in enumerate(ORDER)}
_CARRIERS = {1: "U8", 2: "U16", 4: "U32", 8: "U64"}
_EMPTY = Tensor("bool", (0,), b"")


class SafeTensors(Format):
    name = "safetensors"
    label = "safetensors"
    words = "byte for byte the library's; sharded too"
    suffixes = (shards.SUFFIX,)
    read_by = "safetensors"
    holds = "dense tensors; everything with `extended=True`"
    write_options = known_options(
        extended=Option(bool, "True stores what only tensorbytes understands, too", False),
        max_shard_bytes=Option(int | None, "several files of at most this many bytes, with an index"),
        aliases=Option(bool, "False stores a tensor with several names once for each of them", True),
    )
    read_options = known_options(aliases=Option(bool, "False: names that the metadata lists are metadata", True))
    ties = True
    unmistakable = True
    lists_quickly = True

    def sniff(self, head: bytes, size: int) -> bool:
        length = int.from_bytes(head[:8], "little")
        start = head[8:].lstrip(b" \n\r\t")
        return 2 <= length <= min(size - 8, MAX_HEADER) and start[:1] == b"{" and start[1:2] in b' "}\n\r\t'

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterable[Buffer]:
        if options.get("max_shard_bytes") is not None:
            raise UsageError("max_shard_bytes makes several files", hints=[Hint(purpose="save to a local path")])
        return pieces(*_parts_of(document, allow, options))

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        pieces(*_parts_of(document, allow, options))

    def written_apart(self, document: Document, options: Options) -> dict[int, int]:
        every = find_aliases(document.leaves)
        named = _choose_aliases(document.leaves, document.meta) if options.get("aliases", True) else {}
        return {part: first for part, first in every.items() if part not in named and first not in named}

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        yield document_of([read(data, budget)], budget, lazy, options)

    def salvage(self, data: memoryview, limits: Limits) -> Salvaged:
        budget = Budget(limits, len(data))
        file = read(data, budget, cut=True)
        there = {entry.name for entry in file.entries if entry.end <= len(data) or entry.begin == entry.end}
        whole = file._replace(entries=[entry for entry in file.entries if entry.name in there])
        if file.notes:
            there = {part.name for part in _parts.complete_parts(_read_parts([whole], lazy=True))}
            whole = whole._replace(entries=[entry for entry in file.entries if entry.name in there])
        lost = [entry.name for entry in file.entries if entry.name not in there]
        gone = {name: kept for name, kept in _find_aliases([file], file.meta).items() if kept not in there}
        whole = whole._replace(meta={key: text for key, text in file.meta.items() if key not in gone})
        lost += gone
        heads = [name for name in lost if "of" not in file.notes.get(name, {})]  # not the parts of others
        return Salvaged(document_of([whole], budget, lazy=True), heads, {"extended": True} if file.notes else {})

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        size = options.get("max_shard_bytes")
        if size is None:
            parts, meta = _parts_of(ready_for(document, target), allow, options)
            content = pieces(parts, meta)
            if storage.is_local(target):
                size = sum(_stored(part).nbytes for part in parts)
                shards.write_single(os.fspath(target), content, sync, size)  # type: ignore[arg-type]
            else:
                storage.write(target, content, sync=sync)
            return
        if size < 1:
            raise UsageError(f"max_shard_bytes={size!r}", expected="a number of bytes from 1 up")
        path = shards.check_target(target)
        parts, meta = _parts_of(document, allow, options)
        shards.write(path, [(part, _stored(part).nbytes) for part in parts], size, partial(pieces, meta=meta), sync)

    def files(self, path: str) -> list[str]:
        return shards.files(path)

    def replaces(self, path: str, options: Options) -> list[str]:
        if not path.endswith(shards.SUFFIX):
            return [path]
        # How many new shards there will be, and so their names, is known when they are made.
        old = shards.replaced(path) if options.get("max_shard_bytes") is None else shards.named(path)
        return [path, shards.index_of(path), *old]

    def claims(self, path: str) -> bool:
        return bool(shards.find(path))

    def decode_path(self, path: str, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits)
        yield document_of(shards.read(path, lambda data: read(data, budget), lazy), budget, lazy, options)


# ---- writing ----------------------------------------------------------------


def _parts_of(document: Document, allow: frozenset[str], options: Options) -> tuple[list[Part], dict[str, str]]:
    """The parts to store and the metadata of the whole, once nothing is lost in silence."""
    extended = options.get("extended", False)
    leaves, meta = document.leaves, dict(document.meta)
    if len(leaves) == 1 and not leaves[0].path:
        # Of a single value, its metadata is that of the whole: other software looks there.
        value = leaves[0].value
        meta = {**value.meta, **meta}
        leaves = [leaves[0]._replace(value=amended(value, value.name, {}))]
    aliases = _choose_aliases(leaves, meta) if options.get("aliases", True) else {}
    plain = not extended and not document.origin.keys() - ADVISORY_OF_THE_WHOLE
    parts = _plain(leaves, aliases) if plain else None
    if parts is None and not extended:
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
    if parts is None:
        whole = Document(leaves, origin=document.origin)
        parts = _parts.pack(whole, _holds, ordered=False, advisory=extended, aliases=aliases)
    parts, meta = _with_aliases(parts, meta)
    if any(part.name == METADATA for part in parts):
        raise LossError(
            f"safetensors can't hold a tensor named {METADATA!r}",
            feature="name",
            hints=[Hint(purpose="rename it"), USE_TB],
        )
    return parts, meta


def _choose_aliases(leaves: list[Leaf], meta: Mapping[str, str]) -> dict[int, int]:
    """The leaves that become names of another one: of each group, all but the first in the order of the alphabet.

    A name that can't be a key of the metadata, or is one of the user's, is stored like any other.
    """
    groups: dict[int, list[int]] = {}
    for part, first in find_aliases(leaves).items():
        groups.setdefault(first, [first]).append(part)
    found: dict[int, int] = {}
    for group in groups.values():
        free = [part for part in group if leaves[part].name not in (*meta, NOTES, METADATA)]
        kept, *others = sorted(free, key=lambda part: str(leaves[part].name)) or [-1]
        found |= dict.fromkeys(others, kept)
    return found


def _with_aliases(parts: list[Part], meta: dict[str, str]) -> tuple[list[Part], dict[str, str]]:
    """The parts and the metadata, with the further names of tensors among it.

    Notes tell of them where a name and a text alone would not, or would tell what is not so.
    """
    names = {part.name for part in parts}
    mistaken = {text for key, text in meta.items() if text in names and key not in names}
    made: dict[str, str] = {}
    for number, part in enumerate(parts):
        aliases = part.note.get("aliases", {})
        made |= dict.fromkeys(aliases, part.name)
        told = aliases if part.name in mistaken or any(aliases.values()) else None
        if told != part.note.get("aliases"):
            rest = {key: item for key, item in part.note.items() if key != "aliases"}
            parts[number] = part._replace(note=rest if told is None else {**rest, "aliases": told})
    taken = min(made.keys() & meta.keys(), default=None)
    if taken is not None:
        hint = Hint(purpose="rename it")
        raise LossError(f"the metadata key {taken!r} is the name of a tensor", feature="meta", hints=[hint, USE_TB])
    return parts, {**meta, **made}


def _plain(leaves: list[Leaf], aliases: Mapping[int, int]) -> list[Part] | None:
    """What _parts.pack gives for a flat dict of tensors alone: the usual case, and quick by the thousand."""
    parts = []
    for value, path, kind, *_ in leaves:
        if kind or len(path) != 1 or path[0][0] != "key" or not isinstance(value, Tensor | Deferred):
            return None
        if value.dtype not in _WHOLE or (not value.at_hand and value.header.kind != "tensor"):
            return None
        name = path[0][1]
        assert isinstance(name, str)
        if (
            value.meta or not value.origin.keys() <= ADVISORY or not name.isprintable()
        ):  # not printable: half a character, perhaps
            return None
        parts.append(Part(name, value))
    if not aliases:
        return parts
    for number, kept in aliases.items():
        further = {**parts[kept].note.get("aliases", {}), parts[number].name: {}}
        parts[kept] = parts[kept]._replace(note={"aliases": further})
    return [part for number, part in enumerate(parts) if number not in aliases]


def _holds(value: Dense) -> bool:
    if isinstance(value, Strings):
        return False
    row = dtypes.get(value.dtype)
    return row.safetensors is not None and _packed.whole_bytes(row, _parts.known_shape(value))


def _refuse(leaf: Leaf) -> None:
    """Values that other readers of the file would take for something else."""
    if isinstance(leaf.value, Tensor) and _holds(leaf.value):
        return
    feature, dtype, shape, _ = leaf.header
    if feature == "tensor":
        assert isinstance(leaf.value, Tensor | Deferred)
        if _holds(leaf.value):
            return
        feature, what = "dtype", f"the dtype {dtype}"
        if dtypes.get(dtype).safetensors:
            what = f"{dtype}{list(shape)}, which does not fill its last byte"
    else:
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
    assert not isinstance(part.value, Strings)
    row, shape = dtypes.get(part.value.dtype), _parts.known_shape(part.value)
    size = part.value.nbytes if part.value.at_hand else dtypes.nbytes(row, shape)
    if "dtype" not in part.note:
        assert row.safetensors is not None
        if row.bits < 8:
            return _Stored(row.safetensors, shape, size * row.bits // 8, True)
        return _Stored(row.safetensors, shape, size)
    if row.itemsize == 16:
        return _Stored("F64", (*shape, 2), size)
    return _Stored(_CARRIERS[row.itemsize], shape, size)


def pieces(parts: Sequence[Part], meta: Mapping[str, str]) -> Iterator[Buffer]:
    """The bytes of one file."""
    found = [(_stored(part), part) for part in parts]
    ranked = sorted((_RANK[stored.dtype], part.name, number) for number, (stored, part) in enumerate(found))
    rows = [found[number] for _, _, number in ranked]
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
        value = part.value.load()
        assert isinstance(value, Tensor)
        yield _packed.pack_tensor(value) if stored.packed else value.data


# ---- reading ----------------------------------------------------------------


def document_of(files: Sequence[File], budget: Budget, lazy: bool, options: Options = NO_META) -> Document:
    """The document that one or several files hold."""
    if sum(len(file.entries) for file in files) > budget.max_tensors:
        raise LimitError(f"over {budget.max_tensors} tensors", hints=[MORE_TENSORS])
    meta: dict[str, str] = {}
    for file in files:
        meta = {**file.meta, **meta}
    if not any(file.entries for file in files):
        return Document([Leaf(amended(_EMPTY, None, meta), (), "dict")])
    aliases = _find_aliases(files, meta) if options.get("aliases", True) else {}
    meta = {key: text for key, text in meta.items() if key not in aliases}
    if any(file.notes for file in files):
        document = _parts.unpack(_read_parts(files, lazy, aliases), budget, lazy)
        if len(document.leaves) == 1 and not document.leaves[0].path:
            return Document([_with_meta(document.leaves[0], meta)])
        return Document(document.leaves, meta, origin=document.origin)
    if lazy and len(files) == 1 and isinstance(files[0].entries, Entries) and not aliases:
        entries, data = files[0].entries, pinned(files[0].data)
        return Document(LazyLeaves(entries.names, lambda part: _leaf(data, entries[part], lazy)), meta)
    pinned_files = [(pinned(file.data), file.entries) for file in files]
    leaves = [_leaf(data, entry, lazy) for data, entries in pinned_files for entry in entries]
    if aliases:
        budget.tensors(len(aliases), 8)
        by_name = {leaf.name: leaf for leaf in leaves}
        leaves += [by_name[kept]._replace(path=(("key", name),)) for name, kept in aliases.items()]
    return Document(leaves, meta)


def _find_aliases(files: Sequence[File], meta: Mapping[str, str]) -> dict[str, str]:
    """The further names of tensors, as the metadata lists them: each with the name under which it is stored."""
    if not meta and not any(file.notes for file in files):
        return {}
    stored = {name for file in files for name in entry_names(file.entries)}
    found = {key: text for key, text in meta.items() if text and text in stored and key not in stored}
    told = {name: note["aliases"] for file in files for name, note in file.notes.items() if "aliases" in note}
    for name, aliases in told.items():
        unlisted = next((alias for alias in aliases if found.get(alias) != name), None)
        if unlisted is not None:
            what = f"the note of {name!r} has the alias {unlisted!r}, which the metadata does not list"
            raise CorruptError(what, at=8)
    return {key: text for key, text in found.items() if text not in told or key in told[text]}


def _with_meta(leaf: Leaf, meta: Mapping[str, str]) -> Leaf:
    value = leaf.value
    return leaf._replace(value=amended(value, value.name, {**value.meta, **meta}))


def _read_parts(files: Sequence[File], lazy: bool, aliases: Mapping[str, str] = NO_META) -> Iterator[Part]:
    further: dict[str, dict[str, Any]] = {}
    for name, kept in aliases.items():
        further.setdefault(kept, {})[name] = {}
    for file in files:
        for entry in file.entries:
            note = file.notes.get(entry.name, {})
            names = further.get(entry.name, {})
            if names or "aliases" in note:
                told = note.get("aliases", {})
                note = {**note, "aliases": {name: told.get(name, {}) for name in names}}
            yield Part(entry.name, _value(file.data, entry, lazy), note, entry.begin)


def _value(data: memoryview, entry: HeaderEntry, lazy: bool) -> Tensor | Deferred:
    raw = data[entry.begin : entry.end]
    if entry.row.bits >= 8:
        return Tensor(entry.row.name, entry.shape, raw)
    read = _packed.deferred if lazy else _packed.whole
    return read(entry.row, entry.shape, raw, entry.begin)


def _leaf(data: memoryview, entry: HeaderEntry, lazy: bool) -> Leaf:
    """A tensor without a note: the usual case, and quick to build by the thousand."""
    name, row, shape, begin, end = entry
    if row.bits < 8:
        return Leaf(_value(data, entry, lazy), (("key", name),), at=begin)
    value = fitting_tensor(row.name, shape, data[begin:end], {})
    check = None
    if row.name == "bool":
        check = partial(check_bits, value, begin)
        if not lazy:
            check()
    return Leaf(value, (("key", name),), "", check if lazy else None, begin)


FORMAT = SafeTensors()
