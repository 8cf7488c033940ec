"""From what a torch file's pickle made to a document: bounded, with the notes of our writer applied.

Values may be shared in a pickle, so that a short one can stand for an endless structure.
It is measured before anything is unfolded: every path through shared parts counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LIMITS, MORE_TENSORS, CorruptError, LimitError, UnsupportedError
from tensorbytes.formats import _json, _parts
from tensorbytes.formats._parts import Part
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.formats._torch import arrays, unread
from tensorbytes.formats._torch.names import Name
from tensorbytes.formats._torch.pickle_values import ODD_KEY, Ordered
from tensorbytes.formats._torch.unread import Opaque
from tensorbytes.formats._torch.values import Held, Storage, View
from tensorbytes.tensor import InvalidValueError, Sparse, Strings, Tensor, Value, amended
from tensorbytes.tree import Document, Extent, Leaf, Path, Step, find_overlaps, flatten, path_name

METADATA = "torch._metadata"
_SCALARS = (bool, int, float, complex, str, bytes)
# What a leaf takes in memory beside its data; what a number takes in a list of numbers.
_LEAF_BYTES, _ITEM_BYTES = 512, 16
# What is noted of each container while it is measured.
_KNOWN_BYTES = 240
_METADATA_BYTES = 1 << 26
_NOTE_KEYS: dict[str, type] = {
    "path": list, "kind": str, "name": str, "meta": dict, "origin": dict, "index": str, "parts": dict, "shape": list,
}  # fmt: skip
_Note = Mapping[str, Any]


def measure(root: Any, budget: Budget) -> None:
    """Refuse what contains itself or is nested too deeply; charge what it unfolds into."""
    deepest = min(budget.max_depth, LIMITS.max_depth) + budget.max_rank + 1  # strings are lists in lists
    known: dict[int, tuple[int, int, int]] = {}  # container -> (bytes when unfolded, leaves, levels)
    open_: set[int] = set()
    stack = [root] if type(root) in _CONTAINERS else []
    while stack:
        node = stack[-1]
        if id(node) in known:
            stack.pop()
            continue
        children = node.values() if isinstance(node, dict) else node
        inner = [x for x in children if type(x) in _CONTAINERS]
        pending = [x for x in inner if id(x) not in known]
        if pending:
            if id(node) in open_ or len(open_) > deepest:
                what = "a value contains itself, or is" if id(node) in open_ else "a value is"
                raise UnsupportedError(f"{what} nested deeper than {deepest} levels")
            open_.add(id(node))
            stack.extend(pending)
            continue
        open_.discard(id(node))
        stack.pop()
        total = _weight(node) + sum(known[id(x)][0] for x in inner)
        leaves = len(node) - len(inner) + sum(known[id(x)][1] for x in inner)
        depth = 1 + max((known[id(x)][2] for x in inner), default=0)
        if isinstance(node, dict):  # a leaf's name holds the keys above it
            below = {id(x): known[id(x)][1] for x in inner}
            total += sum(len(key) * below.get(id(x), 1) for key, x in node.items() if type(key) is str)
        if depth > deepest:
            raise UnsupportedError(f"a value is nested deeper than {deepest} levels")
        budget.objects(1, "a structure", 0, _KNOWN_BYTES)
        known[id(node)] = (total, leaves, depth)
    if known:
        budget.copy(known[id(root)][0], "a structure that unfolds", 0)


_CONTAINERS = (dict, Ordered, list, tuple)


def _weight(node: Any) -> int:
    """What the leaves of a container take in memory, beside the storages."""
    items = node.values() if isinstance(node, dict) else node
    each = _ITEM_BYTES if not isinstance(node, dict) and _is_leaf(node) else _LEAF_BYTES
    texts = sum(len(item) for item in items if type(item) is str or type(item) is bytes)
    copies = sum(item.value.nbytes for item in items if type(item) is Held and not item.value.at_hand)
    made = (item.made for item in items if type(item) is arrays.Held)
    copies += sum(value.nbytes for value in made if isinstance(value, Deferred))
    return each * len(items) + texts + copies


class Notes:
    """What our writer adds: `leaves` by their paths, metadata of the whole, where the tensors came from."""

    def __init__(self, raw: memoryview | None = None, at: int = 0, budget: Budget | None = None) -> None:
        self.at = at
        self.leaves: dict[Path, _Note] = {}
        self.document: Mapping[str, str] = {}
        self.document_origin: Mapping[str, str] = {}
        self.framework = "torch"
        if raw is None:
            return
        top = _json.parse(raw, at, "the notes", budget)
        if type(top) is not dict or not set(top) <= {"leaves", "document", "document_origin", "framework"}:
            raise self.wrong("are not an object of leaves, document and framework")
        self.framework, self.document = top.get("framework", "torch"), top.get("document", {})
        self.document_origin = top.get("document_origin", {})
        if type(self.framework) is not str or not (_is_texts(self.document) and _is_texts(self.document_origin)):
            raise self.wrong("'framework' must be text, 'document' must map names to text")
        leaves = top.get("leaves", [])
        for note in leaves if type(leaves) is list else [None]:
            self._add(note)

    def wrong(self, what: str) -> CorruptError:
        return CorruptError(f"the notes of this library: {what}", at=self.at)

    def _add(self, note: Any) -> None:
        if type(note) is not dict or type(note.get("path")) is not list:
            raise self.wrong("a leaf without a path")
        for key, value in note.items():
            if key not in _NOTE_KEYS or type(value) is not _NOTE_KEYS[key]:
                raise self.wrong(f"{key!r} is unknown to this version, or of another type")
        texts = (note.get(key, {}) for key in ("meta", "origin"))
        if not all(map(_is_texts, texts)) or note.get("index", "int32") != "int32":
            raise self.wrong("'meta' and 'origin' must map names to text, 'index' must be int32")
        if not all(type(n) is int and n >= 0 for n in note.get("shape", ())):
            raise self.wrong("a shape of other things than sizes")
        if not all(type(part) is dict for part in note.get("parts", {}).values()):
            raise self.wrong("a part without a note")
        path = tuple(map(self._step, note["path"]))
        if path in self.leaves:
            raise self.wrong(f"{path_name(path)!r} appears twice")
        self.leaves[path] = note

    def _step(self, step: Any) -> Step:
        kinds: dict[str, type] = {"key": str, "number": int, "list": int, "tuple": int}
        if type(step) is not list or len(step) != 2 or type(step[1]) is not kinds.get(str(step[0])):
            raise self.wrong(f"{step!r} is not a step of a path")
        kind, key = step
        return kind, key


def _is_texts(meta: Any) -> bool:
    return type(meta) is dict and all(type(text) is str for text in meta.values())


def document(root: Any, notes: Notes, budget: Budget, lazy: bool, skip: bool = False) -> Document:
    """The document of a measured structure. `skip` leaves out what is not read."""
    reader = _Reader(notes, budget, lazy)
    stack: list[tuple[Any, Path]] = [(root, ())]
    unused = dict(notes.leaves)
    deepest = min(budget.max_depth, LIMITS.max_depth)
    while stack:
        node, path = stack.pop()
        if len(path) > deepest:
            raise UnsupportedError(f"a value is nested deeper than {deepest} levels")
        note = unused.pop(path, None) if unused else None
        if note is not None:
            reader.noted(node, path, note)
        elif type(node) is Held:
            reader.held(node, path)
        elif (found := _unread(node)) is not None:
            reader.unread(found, path, skip)
        elif type(node) is arrays.Held:
            reader.array(node, path)
        elif isinstance(node, dict) and (node or hasattr(node, "attributes")):
            items = [(key, item) for key, item in _last(node) if not skip or _unread(item) is None]
            reader.attributes(node, path, bool(items))
            stack.extend((item, (*path, ("key" if type(key) is str else "number", key))) for key, item in items)
        elif type(node) in (list, tuple) and not _is_leaf(node) and not _is_leaf(node := type(node)(map(_text, node))):
            kind = type(node).__name__
            stack.extend((node[index], (*path, (kind, index))) for index in range(len(node) - 1, -1, -1))
        else:
            reader.plain(node, path)
        if len(reader.leaves) > budget.max_tensors:
            raise LimitError(f"over {budget.max_tensors} tensors", hints=[MORE_TENSORS])
    if unused:
        raise notes.wrong(f"{path_name(next(iter(unused)))!r} is not there")
    return reader.document()


def _unread(node: Any) -> Opaque | None:
    """What stands for a value that is not read; None for all others."""
    if isinstance(node, Opaque):
        return node
    if type(node) is arrays.Held and type(node.made) is Opaque:
        return node.made
    if isinstance(node, dict) and ODD_KEY in node:
        odd: Opaque = node[ODD_KEY]
        return odd
    if type(node) is Storage:
        return Opaque("torch.storage", "a bare storage: save a tensor")
    if type(node) is Name and node.kind != "dtype":
        return Opaque(node.name, "a name, not a value")
    if type(node) is arrays.DType:
        return Opaque("numpy.dtype", "a dtype, not a value; save its name")
    return None


def _last(node: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The items from the last to the first, for a stack."""
    return list(reversed(node.items()))


def _is_leaf(node: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a sequence is stored as one tensor: see tree.py."""
    kind = type(node[0]) if node else None
    return kind is None or (kind in _SCALARS and all(type(item) is kind for item in node))


def _text(node: Any) -> Any:
    """A dtype is read as its name."""
    return node.name if type(node) is Name and node.kind == "dtype" else node


class _Reader:
    """Collects the leaves."""

    def __init__(self, notes: Notes, budget: Budget, lazy: bool) -> None:
        self.leaves: list[Leaf] = []
        self._notes, self._budget, self._lazy = notes, budget, lazy
        self._firsts: dict[Extent, tuple[View, Value | Deferred]] = {}  # most are alone
        self._shared: dict[Any, Value | Deferred] = {}  # where they are not: the first value of each view
        self._loaded: dict[int, tuple[Value | Deferred, Value]] = {}  # each with what keeps its number its own
        self._assembled: dict[int, tuple[_Note, Leaf]] = {}
        self._attributes: list[str] = []
        self._texts: dict[int, str] = {}
        self._text_bytes = 0
        self._refused: list[tuple[Opaque, Path]] = []

    def document(self) -> Document:
        if self._refused and not self._lazy:
            raise unread.refused(*self._refused[0], len(self._refused) - 1)
        self._separate()
        meta, origin = self._notes.document, dict(self._notes.document_origin)
        if self._attributes:
            origin[METADATA] = f"[{','.join(self._attributes)}]"
        if (meta or origin) and len(self.leaves) == 1 and not self.leaves[0].path:
            (leaf,) = self.leaves
            value = leaf.value
            meta, origin = {**value.meta, **meta}, {**value.origin, **origin}
            return Document([leaf._replace(value=amended(value, value.name, meta, origin))])
        return Document(self.leaves, meta, origin=origin)

    def held(self, held: Held, path: Path, kind: str = "", note: _Note | None = None) -> None:
        value = held.value
        if note:
            value = amended(value, note.get("name"), note.get("meta", value.meta), note.get("origin", value.origin))
        at = held.storages[0].at if held.storages else 0
        extent = None
        if held.view is not None:
            extent = held.view.extent
            value = self._share(held.view, value)
        if not self._lazy:
            value = self._load(value)
        bits = value if isinstance(value, Tensor) and value.dtype == "bool" else None
        if not self._lazy:
            if bits is not None:
                check_bits(bits, None, at)
            self.leaves.append(Leaf(value, path, kind, None, at, extent=extent))
            return
        check = partial(_check, held.storages, bits, at)
        self.leaves.append(Leaf(value, path, kind, check, at, extent=extent))

    def _share(self, view: View, value: Value | Deferred) -> Value | Deferred:
        """The value, or the one that is the same view of the same memory, and was held in the same way."""
        first = self._firsts.setdefault(view.extent, (view, value))
        if first[1] is value:
            return value
        self._shared.setdefault(_mark(*first), first[1])
        return self._shared.setdefault(_mark(view, value), value)

    def _separate(self) -> None:
        """Other views of the memory of a tensor get memory of their own, unless nobody can write to it."""
        own: dict[int, Value | Deferred] = {}
        for part in find_overlaps(self.leaves):
            leaf = self.leaves[part]
            value = leaf.value
            if isinstance(value, Tensor) and id(value) not in own:
                self._budget.copy(value.nbytes, "tensors that share memory", leaf.at)
                copies = not self._lazy and not memoryview(value.data).readonly
                own[id(value)] = replace(value, data=bytearray(value.data)) if copies else value
        if own:
            self.leaves = [leaf._replace(value=own.get(id(leaf.value), leaf.value)) for leaf in self.leaves]

    def array(self, held: arrays.Held, path: Path) -> None:
        value: Any = held.made
        if value is None:
            raise CorruptError("a NumPy array without its content", at=self._notes.at)
        check = None
        if isinstance(value, Tensor) and value.dtype == "bool":
            check = partial(check_bits, value, None)
        if not self._lazy:
            if check is not None:
                check()
            value = self._load(value)
        self.leaves.append(Leaf(value, path, held.kind, check if self._lazy else None))

    def unread(self, found: Opaque, path: Path, skip: bool) -> None:
        """In a list or a tuple, None keeps the place of what is left out."""
        if skip and path:
            self.plain(None, path)
        elif self._lazy and not skip:
            self.leaves.append(unread.leaf(found.what, partial(_refuse, found, path), path, at=max(found.at, 0)))
        else:
            self._refused.append((found, path))
            if not path:
                raise unread.refused(found, path)

    def _load(self, value: Value | Deferred) -> Value:
        """A shared one is read once."""
        if id(value) not in self._loaded:
            self._loaded[id(value)] = value, value.load()
        return self._loaded[id(value)][1]

    def attributes(self, node: dict[Any, Any], path: Path, filled: bool) -> None:
        found = getattr(node, "attributes", None)
        if found and "_metadata" in found:
            text = self._metadata_text(found["_metadata"], path)
            steps = _json.dump([list(step) for step in path])
            self._text_bytes += len(steps) + len(text)
            if self._text_bytes > _METADATA_BYTES:
                raise LimitError(f"the _metadata of the state dicts takes over {_METADATA_BYTES} bytes")
            self._attributes.append(f"[{steps},{text}]")
        if not filled:
            self.plain({}, path)

    def _metadata_text(self, metadata: Any, path: Path) -> str:
        """As JSON; one that many dicts share is spelled once."""
        if id(metadata) not in self._texts:
            _check_plain(metadata, path)
            measure(metadata, self._budget)
            self._texts[id(metadata)] = _json.dump(metadata)
        return self._texts[id(metadata)]

    def plain(self, node: Any, path: Path) -> None:
        for leaf in flatten(_text(node), lambda _: None):
            self.leaves.append(leaf._replace(path=path))

    def noted(self, node: Any, path: Path, note: _Note) -> None:
        if "parts" in note:
            self._assemble(node, path, note)
            return
        if "index" in note and type(node) is Held:
            node = _narrowed(node, self._notes)
        if type(node) is Held:
            self.held(node, path, note.get("kind", ""), note)
            return
        before = len(self.leaves)
        self.plain(node, path)
        if len(self.leaves) != before + 1:
            raise self._notes.wrong(f"{path_name(path)!r} is not one value")
        leaf = self.leaves[-1]
        changed = amended(leaf.value, note.get("name"), note.get("meta", {}), note.get("origin", {}))
        self.leaves[-1] = leaf._replace(value=changed, kind=note.get("kind", leaf.kind))

    def _assemble(self, node: Any, path: Path, note: _Note) -> None:
        """A value that torch has no form for: its parts stand there, alone or in a dict."""
        said = {key: item for key, item in note.items() if key != "path"}
        known = self._assembled.get(id(node))
        if known is not None and known[0] == said:
            self.leaves.append(known[1]._replace(path=path))
            return
        held = dict.fromkeys(note["parts"], node) if len(note["parts"]) == 1 else node
        if type(held) is not dict or held.keys() != note["parts"].keys():
            raise self._notes.wrong(f"{path_name(path)!r} has other parts")
        parts: list[Part] = []
        storages: tuple[Storage, ...] = ()
        for name, item in held.items():
            if "shape" in note:
                value: Any = _strings(item, tuple(note["shape"]), self._budget)
            elif type(item) is Held and item.value.origin.keys() <= {"framework", "device", "requires_grad"}:
                storages += item.storages
                value = amended(item.value, None, {}, {})
            else:
                value = None
            if not isinstance(value, Tensor | Strings | Deferred):
                raise self._notes.wrong(f"{path_name(path)!r} has parts of other types")
            parts.append(Part(name, value, note["parts"][name], self._notes.at))
        made = _parts.unpack(parts, self._budget, self._lazy)
        if len(made.leaves) != 1 or made.meta or made.origin or made.leaves[0].path:
            raise self._notes.wrong(f"{path_name(path)!r} is not one value")
        leaf = made.leaves[0]
        value = leaf.value if self._lazy else self._load(leaf.value)
        check = partial(_check_all, storages, leaf.check) if self._lazy else None
        self.leaves.append(leaf._replace(value=value, path=path, check=check))
        if type(node) in (Held, dict, list):  # which texts are the same object says nothing
            self._assembled[id(node)] = said, self.leaves[-1]


def _mark(view: View, value: Value | Deferred) -> Hashable:
    """What is the same of values that are one."""
    return view, value.name, *(tuple(sorted(texts.items())) for texts in (value.origin, value.meta))


def _check(storages: tuple[Storage, ...], value: Any, at: int) -> None:
    for storage in storages:
        storage.verify()
    if value is not None:
        check_bits(value, None, at)


def _check_all(storages: tuple[Storage, ...], also: Callable[[], None] | None) -> None:
    _check(storages, None, 0)
    if also is not None:
        also()


def _refuse(found: Opaque, path: Path) -> NoReturn:
    raise unread.refused(found, path)


def _check_plain(metadata: Any, path: Path) -> None:
    """The versions of a state_dict's modules: names to small dicts of plain values."""
    scalars = (str, int, bool, type(None))
    sound = isinstance(metadata, dict) and all(
        type(name) is str
        and isinstance(entry, dict)
        and all(type(key) is str and type(item) in scalars for key, item in entry.items())
        for name, entry in metadata.items()
    )
    if not sound:
        raise UnsupportedError(f"the _metadata of the state_dict at {path_name(path) or 'the top'!r} is not plain")


def _narrowed(held: Held, notes: Notes) -> Held:
    """Coordinates that were int32 before torch, which knows int64 alone."""
    later = held.value
    if later.header.kind != "sparse":
        raise notes.wrong("'index' on something that is not a sparse tensor")

    def fetch() -> Value:
        got = later.load()
        if not isinstance(got, Sparse) or any(part.size and part.max() >> 31 for part in got.parts):
            raise notes.wrong("indices that are not int32")
        return replace(got, parts=tuple(part.astype(np.int32) for part in got.parts))

    _, dtype, shape, _ = later.header
    narrowed = Deferred("sparse", dtype, shape, fetch, later.nbytes, None, later.name, later.meta, later.origin)
    return Held(narrowed, held.storages)


def _strings(node: Any, shape: tuple[int, ...], budget: Budget) -> Strings | None:
    """Strings of this shape out of lists in lists."""
    check_shape(shape, 8, budget, 0)
    items = [node]
    for _ in shape:
        if not all(type(item) is list for item in items):
            return None
        items = [item for inner in items for item in inner]
    kinds = set(map(type, items))
    if len(items) != math.prod(shape) or kinds not in (set(), {str}, {bytes}):
        return None
    try:
        return Strings.from_items(items, shape, "utf-8" if kinds == {str} else "bytes")
    except InvalidValueError:
        return None
