"""Documents as plain named tensors with notes: how formats of dense arrays hold everything else.

A document becomes a list of parts, each a dense tensor (or strings) under a name that
other software sees. What a name and an array can't say stands in a note beside the part,
a small JSON object that other software ignores. A plain tensor under its own key has no
note. The keys of a note, all optional:

    path      where the leaf stands: [["key", "a"], ["list", 0]]; default: [["key", <part name>]]
    kind      the kind of a Python value (tree.py)
    name      the tensor's own name; only where the path is empty
    meta      metadata of the tensor: {text: text}
    origin    how the tensor was held, as we note it ourselves: {text: text}
    dtype     the true dtype, where the format stores another one of the same width
    layout    what several parts make: "strings", or a layout of spec/frame.md, section 5
    parts     with layout: the names of the further parts, in order
    shape     with layout: the values are strings of this shape, held as bytes and offsets
    encoding  of strings: "utf-8" or "bytes" (the default)
    of        on further parts: the name of the first one
    index     the number of the leaf, for formats that keep no order
    document  metadata of the whole, on the first part
    document_origin  how the whole was held, on the first part
    aliases   further names of the same tensor, for formats that list them: each with the `path` and the `index` of its
              leaf, where these differ from the defaults

The first part of a ragged or sparse value is its values, then come the index parts as in
spec/frame.md. Strings, where a format has none, are their bytes (uint8); the last of the
further parts are their offsets, the end included (int64).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, Dense
from tensorbytes.errors import MORE_TENSORS, CorruptError, LimitError
from tensorbytes.formats import ADVISORY, ADVISORY_OF_THE_WHOLE, _layout, check_plain
from tensorbytes.formats._extension import utf8
from tensorbytes.formats._tensorproto import check_bits
from tensorbytes.tensor import ENCODINGS, InvalidValueError, Ragged, Sparse, Strings, Tensor, Value, amended
from tensorbytes.tree import Document, Leaf, Path

UNNAMED = "tensor"
_STEPS: dict[str, type] = {"key": str, "number": int, "list": int, "tuple": int}
_KEYS: dict[str, type] = {
    "path": list, "kind": str, "name": str, "meta": dict, "dtype": str, "layout": str,
    "parts": list, "shape": list, "encoding": str, "of": str, "index": int, "document": dict,
    "origin": dict, "document_origin": dict, "aliases": dict,
}  # fmt: skip
_PLACE: dict[str, type] = {"path": list, "index": int}
_LABELS: dict[str, tuple[str, ...]] = {
    "strings": (),
    "ragged-shapes": ("splits0", "shapes"),
    "coo": ("indices", "shape"),
    "dia": ("diagonals", "shape"),
    **dict.fromkeys(("csr", "csc", "bsr", "bsc"), ("pointers", "indices", "shape")),
}


class Part(NamedTuple):
    """One dense array as another program sees it, and what only we read. `at`: where its errors point."""

    name: str
    value: Dense
    note: Mapping[str, Any] = {}
    at: int = 0


def known_shape(value: Dense) -> tuple[int, ...]:
    """The shape of a dense value, all of which its header tells."""
    if not isinstance(value, Deferred):
        return value.shape
    return tuple(size or 0 for size in value.shape)


# ---- writing ----------------------------------------------------------------


def pack(
    document: Document,
    holds: Callable[[Dense], bool],
    *,
    ordered: bool = True,
    advisory: bool = True,
    unnamed: str = UNNAMED,
    aliases: Mapping[int, int] = MappingProxyType({}),
) -> list[Part]:
    """The parts of a document, under names of which no two are the same.

    `holds` tells whether the format stores a dtype, or strings, by itself; other dtypes get
    a note (the caller stores them as integers of the same width), strings become bytes and
    offsets. Tensors are not read here: that is left to whoever writes them. `ordered=False` is
    for formats that sort. `advisory=False` leaves out what only says how a value was held. `aliases` are numbers of
    leaves that are noted on another one instead of being stored.
    """
    check_plain(document)
    plain = all(len(leaf.path) == 1 and leaf.path[0][0] == "key" for leaf in document.leaves)
    taken: set[str] = set()
    parts: list[Part] = []
    stored: dict[int, dict[str, Any]] = {}  # the notes of leaves
    for index, leaf in enumerate(document.leaves):
        if index in aliases:
            continue
        note = _leaf_note(leaf, advisory)
        if not ordered and not plain and leaf.path:
            note["index"] = index
        if document.meta and not parts:
            note["document"] = _texts(document.meta)
        if not parts:
            told = {key: text for key, text in document.origin.items() if advisory or key not in ADVISORY_OF_THE_WHOLE}
            if told:
                note["document_origin"] = _texts(told)
        base = leaf.name if leaf.name is not None else unnamed
        utf8(base)
        value = leaf.value if leaf.header.kind == "tensor" else leaf.read()
        layout, values = _dense_parts(value, holds, note)
        labels = ("",) if layout is None else _labels(layout, len(values), "shape" in note)
        names = _unique_names(base, labels, taken)
        if leaf.path != (("key", names[0]),):
            note = {"path": [list(step) for step in leaf.path], **note}
        if layout is not None:
            note |= {"layout": layout, "parts": names[1:]}
        for number, (name, value) in enumerate(zip(names, values, strict=True)):
            own = note if number == 0 else {"of": names[0]}
            if not isinstance(value, Strings) and not holds(value):
                own["dtype"] = value.dtype
            parts.append(Part(name, value, own))
        stored[index] = note
    for index, kept in aliases.items():
        leaf = document.leaves[index]
        (name,) = _unique_names(str(leaf.name), ("",), taken)
        utf8(name)
        said: dict[str, Any] = {} if leaf.path == (("key", name),) else {"path": [list(step) for step in leaf.path]}
        if not ordered and not plain:
            said["index"] = index
        stored[kept].setdefault("aliases", {})[name] = said
    return parts


def _leaf_note(leaf: Leaf, advisory: bool) -> dict[str, Any]:
    note: dict[str, Any] = {}
    if leaf.kind:
        note["kind"] = leaf.kind
    if not leaf.path and leaf.value.name is not None:
        note["name"] = leaf.value.name
        utf8(leaf.value.name)
    if leaf.value.meta:
        note["meta"] = _texts(leaf.value.meta)
    origin = {key: text for key, text in leaf.value.origin.items() if advisory or key not in ADVISORY}
    if origin:
        note["origin"] = _texts(origin)
    return note


def _texts(meta: Mapping[str, str]) -> dict[str, str]:
    for key, text in meta.items():
        utf8(key)
        utf8(text)
    return {key: meta[key] for key in sorted(meta)}


def _dense_parts(
    value: Value | Deferred, holds: Callable[[Dense], bool], note: dict[str, Any]
) -> tuple[str | None, list[Dense]]:
    """(layout, dense parts, the first of which is the values); no layout for what is dense itself."""
    layout: str | None = None
    values = value
    index: list[Tensor | Strings] = []
    if isinstance(value, Ragged | Sparse):
        layout, index = _layout.parts_of(value)
        values = index.pop(_values_at(layout, len(index)))
    assert not isinstance(values, Ragged | Sparse)
    if isinstance(values, Strings):
        if values.encoding != "bytes":
            note["encoding"] = values.encoding
        if not holds(values):
            note["shape"] = list(values.shape)
            data, offsets = _bytes_and_offsets(values)
            return layout or "strings", [data, *index, offsets]
    return layout, [values, *index]


def _values_at(layout: str, count: int) -> int:
    """Where the values stand among the parts of spec/frame.md: before the shapes, if there are any."""
    return count - 1 if layout == "ragged" else count - 2


def _bytes_and_offsets(value: Strings) -> tuple[Tensor, Tensor]:
    offsets = np.ascontiguousarray(value.offsets, "<i8")
    return Tensor("uint8", (value.nbytes,), value.data), Tensor("int64", offsets.shape, offsets)


def _labels(layout: str, count: int, strings: bool) -> tuple[str, ...]:
    """What each part is called after its leaf's name; the values bear that name alone."""
    index = _LABELS[layout] if layout != "ragged" else tuple(f"splits{level}" for level in range(count - 1 - strings))
    return ("", *index, *(("offsets",) if strings else ()))


def _unique_names(base: str, labels: tuple[str, ...], taken: set[str]) -> list[str]:
    """Names for the parts of one leaf; another leaf's are never used again."""
    stem, number = base, 1
    while True:
        names = [f"{stem}.{label}" if label else stem for label in labels]
        if taken.isdisjoint(names):
            taken.update(names)
            return names
        number += 1
        stem = f"{base}~{number}"


# ---- reading ----------------------------------------------------------------


def unpack(parts: Iterable[Part], budget: Budget, lazy: bool) -> Document:
    """The document that these parts make; those without notes are plain tensors under their names."""
    by_name: dict[str, Part] = {}
    for part in parts:
        if part.name in by_name:
            raise CorruptError(f"the name {part.name!r} appears twice", at=part.at)
        if len(by_name) >= budget.max_tensors:
            raise LimitError(f"over {budget.max_tensors} tensors", hints=[MORE_TENSORS])
        check_note(part)
        by_name[part.name] = part
    used: set[str] = set()
    meta: Mapping[str, str] = {}
    origin: Mapping[str, str] = {}
    leaves: list[tuple[int, Leaf]] = []
    for part in by_name.values():
        if "of" in part.note:
            continue
        if "document" in part.note:
            meta = part.note["document"]
        if "document_origin" in part.note:
            origin = part.note["document_origin"]
        leaf = _leaf(part, by_name, used, budget, lazy)
        leaves.append((part.note.get("index", len(leaves)), leaf))
        for name, said in part.note.get("aliases", {}).items():
            budget.tensors(1, part.at)
            path = _path(Part(name, part.value, said, part.at), budget)
            leaves.append((said.get("index", len(leaves)), leaf._replace(path=path)))
    stray = next((name for name, part in by_name.items() if "of" in part.note and name not in used), None)
    if stray is not None:
        raise CorruptError(f"{stray!r} is a part of nothing", at=by_name[stray].at)
    leaves.sort(key=lambda pair: pair[0])
    return Document([leaf for _, leaf in leaves], meta, origin=origin)


def complete_parts(parts: Iterable[Part]) -> list[Part]:
    """Those parts of a file that was cut off which still make values."""
    by_name = {part.name: part for part in parts}
    for part in by_name.values():
        check_note(part)
    heads = (part for part in by_name.values() if "of" not in part.note)
    whole = {part.name for part in heads if by_name.keys() >= set(part.note.get("parts", ()))}
    return [part for part in by_name.values() if part.note.get("of", part.name) in whole]


def check_note(part: Part) -> None:
    """A note is read from a file: every key must be known and of its type."""

    def wrong(what: str) -> CorruptError:
        return CorruptError(f"the note of {part.name!r}: {what}", at=part.at)

    if not isinstance(part.note, Mapping):
        raise wrong("is not a JSON object")
    for key, value in part.note.items():
        if key not in _KEYS:
            raise wrong(f"{key!r} is unknown to this version")
        if type(value) is not _KEYS[key]:
            raise wrong(f"{key!r} is {value!r}")
        sound, held = (_is_place, "a path and an index") if key == "aliases" else (_is_text, "text")
        if isinstance(value, dict) and not all(map(sound, value.values())):
            raise wrong(f"{key!r} must hold {held} alone")
    if part.note.get("encoding", "bytes") not in ENCODINGS:
        raise wrong(f"the encoding {part.note['encoding']!r} is unknown")
    if not all(type(name) is str for name in part.note.get("parts", ())):
        raise wrong("'parts' must be a list of names")
    if not all(type(n) is int and n >= 0 for n in part.note.get("shape", ())):
        raise wrong(f"the shape {part.note['shape']!r}")


def _is_text(text: Any) -> bool:
    return type(text) is str


def _is_place(said: Any) -> bool:
    return type(said) is dict and all(type(item) is _PLACE.get(key) for key, item in said.items())


def _leaf(part: Part, by_name: Mapping[str, Part], used: set[str], budget: Budget, lazy: bool) -> Leaf:
    note = part.note
    path = _path(part, budget)
    if path and "name" in note:
        raise CorruptError(f"the note of {part.name!r}: a name beside a path", at=part.at)
    try:
        if "layout" in note:
            value: Value | Deferred = _assemble(part, by_name, used, budget)
        else:
            value = _retype(part)
    except InvalidValueError as error:
        raise CorruptError(f"{part.name!r}: {error.fault}", at=part.at) from None
    # A file that no writer of ours has touched names its tensors by the parts alone.
    meta, origin = {**value.meta, **note.get("meta", {})}, {**value.origin, **note.get("origin", {})}
    named = amended(value, note.get("name") if not path else None, meta, origin)
    check = _bit_check(named, part.at, lazy)
    return Leaf(named, path, note.get("kind", ""), check, part.at)


def _bit_check(value: Value | Deferred, at: int, lazy: bool) -> Callable[[], None] | None:
    """Look at the bits of what must not hold every bit pattern: now, or when it is loaded."""
    dense = value.values if isinstance(value, Ragged | Sparse) else value
    if not isinstance(dense, Tensor) or (dense.dtype != "bool" and dtypes.get(dense.dtype).bits >= 8):
        return None
    if lazy:
        return partial(check_bits, dense, None, at)
    check_bits(dense, None, at)
    return None


def _path(part: Part, budget: Budget) -> Path:
    steps = part.note.get("path")
    if steps is None:
        return (("key", part.name),)
    if len(steps) > budget.max_depth:
        raise LimitError(f"a path of {len(steps)} steps, over the limit of {budget.max_depth}")
    for step in steps:
        if not isinstance(step, list) or len(step) != 2 or type(step[1]) is not _STEPS.get(str(step[0])):
            raise CorruptError(f"the note of {part.name!r}: {step!r} is not a step of a path", at=part.at)
    return tuple((kind, key) for kind, key in steps)


def _retype(part: Part) -> Tensor | Strings | Deferred:
    """The part's value with its true dtype, or its true encoding."""
    value, note = part.value, part.note
    kind, held, _, _ = value.header
    if "encoding" in note:
        if kind != "strings":
            raise InvalidValueError("an encoding on something that is not strings")
        return _change(value, "string", lambda got: replace(got, encoding=note["encoding"]))
    dtype = note.get("dtype")
    if dtype is None:
        return value
    if kind != "tensor" or held not in dtypes.DTYPES:
        raise InvalidValueError(f"the dtype {dtype} on something that is not a tensor")
    if dtypes.get(dtype).itemsize != dtypes.get(held).itemsize:
        raise InvalidValueError(f"the dtype {dtype} over elements of {held}")
    return _change(value, dtype, lambda got: replace(got, dtype=dtype))


def _change(
    value: Tensor | Strings | Deferred, dtype: str, change: Callable[[Any], Tensor | Strings]
) -> Tensor | Strings | Deferred:
    """The value after a change that touches no bytes: now, or when it is read."""
    if value.at_hand:
        return change(value)
    kind, _, shape, size = value.header
    cut = (lambda index: change(value.part(index))) if value.in_parts else None
    turned = _change_reversed(value.reverse, change) if isinstance(value, Deferred) else None
    later = partial(Deferred, kind, dtype, shape, lambda: change(value.load()), size or 0, cut)
    return later(meta=value.meta, origin=value.origin, reverse=turned)


def _change_reversed(
    reverse: Callable[[], Tensor] | None, change: Callable[[Any], Tensor | Strings]
) -> Callable[[], Tensor] | None:
    """The same change of a tensor in Fortran order, which stays so."""
    if reverse is None:
        return None

    def changed() -> Tensor:
        made = change(reverse())
        assert isinstance(made, Tensor)
        return made

    return changed


def _assemble(part: Part, by_name: Mapping[str, Part], used: set[str], budget: Budget) -> Value:
    """A value of several parts; each part serves once."""
    note, layout = part.note, part.note["layout"]
    as_bytes = "shape" in note or layout == "strings"
    kept = ("dtype",) if as_bytes else ("dtype", "encoding")
    values = [_load_plain(Part(part.name, part.value, {key: note[key] for key in kept if key in note}, part.at))]
    for name in note.get("parts", ()):
        other = by_name.get(name)
        if other is None or other.note.get("of") != part.name or name in used:
            raise CorruptError(f"{part.name!r} wants a part {name!r} that is not there or not its own", at=part.at)
        used.add(name)
        values.append(_load_plain(other))
    if as_bytes:
        values = [_strings(values[0], values.pop(), note, budget), *values[1:]]
        if layout == "strings" and len(values) == 1:
            return values[0]
    if len(values) < 2:
        raise InvalidValueError(f"layout {layout!r} with {len(values)} parts")
    position = _values_at(layout, len(values))
    rest = values[1:]
    return _layout.build(layout, [*rest[:position], values[0], *rest[position:]], budget)


def _load_plain(part: Part) -> Tensor | Strings:
    value = _retype(part).load()
    assert isinstance(value, Tensor | Strings)
    return value


def _strings(data: Tensor | Strings, offsets: Tensor | Strings, note: Mapping[str, Any], budget: Budget) -> Strings:
    shape = tuple(note.get("shape", ()))
    for value, dtype in ((data, "uint8"), (offsets, "int64")):
        if not isinstance(value, Tensor) or value.dtype != dtype or len(value.shape) != 1:
            raise InvalidValueError("strings are two lists: bytes (uint8) and offsets (int64)")
    assert isinstance(data, Tensor)
    if len(shape) > budget.max_rank or math.prod(shape) + 1 != offsets.shape[0]:
        raise InvalidValueError(f"{offsets.shape[0]} offsets for strings of shape {list(shape)}")
    return Strings(shape, offsets.numpy(), data.data, note.get("encoding", "bytes"))
