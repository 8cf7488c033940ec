"""Documents as torch.save would write them: a pickle, the storages that it names, and notes on what torch lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import dtypes
from tensorbytes.deferred import Dense
from tensorbytes.errors import LIMITS, UnsupportedError
from tensorbytes.formats import _json, _parts
from tensorbytes.formats._extension import utf8
from tensorbytes.formats._torch.forms import in_order, is_coalesced, nested_lists, quantization, strides
from tensorbytes.formats._torch.names import LAYOUTS, STORAGE_OF, UNTYPED
from tensorbytes.formats._torch.pickle_write import MAX_INTEGER_BYTES, Pickler, Write, integer_bytes
from tensorbytes.formats._torch.tree import METADATA
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor
from tensorbytes.tree import Document, Leaf, Path, find_aliases, nest, restore
from tensorbytes.typing import Buffer

_PAIRS = "float4_e2m1fn"
_QUANTIZED = ("qint8", "quint8", "qint32")
# What torch.load can make require grad: of all else, notes say it. Sparse and nested tensors; dense ones; Parameters.
_DIFFERENTIABLE = ("float16", "bfloat16", "float32", "float64")
_WITH_GRADIENT = (*_DIFFERENTIABLE, "complex64", "complex128")
_V3 = "_rebuild_tensor_v3"
_CARRIERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_DEVICE = re.compile(r"[a-z]{1,32}(:[0-9]{1,6})?")
# Containers of numbers that torch's own dtypes can be in.
_PLAIN = tuple(name for name in (*STORAGE_OF, *UNTYPED) if name not in (*_QUANTIZED, _PAIRS))


_Call: TypeAlias = tuple[str, tuple[Any, ...]]
_Made: TypeAlias = tuple[Write, _Call]


def encode(document: Document) -> tuple[bytes, list[Buffer], bytes]:
    """(the pickle, the storages, the notes or nothing)"""
    writer = _Writer(document)
    root = writer.attached(nest(document.leaves, writer.leaf))
    pickler = Pickler()
    pickler.value(root)
    return pickler.finish(), writer.storages, writer.notes()


def check(document: Document) -> None:
    """Raise what `encode` raises: of the leaves, their keys, and what is noted."""
    writer = _Writer(document)
    nest(document.leaves, writer.leaf)
    for leaf in document.leaves:
        for _, key in leaf.path:
            utf8(str(key))
    writer.notes()


def _framework(document: Document) -> str:
    """Where most tensors are from: it is said once."""
    found = [leaf.value.origin.get("framework", "") for leaf in document.leaves if leaf.kind in ("", "numpy")]
    return max(sorted(set(found)), key=found.count, default="torch")


class _Writer:
    def __init__(self, document: Document) -> None:
        self.storages: list[Buffer] = []
        self._framework = _framework(document)
        self._notes: list[dict[str, Any]] = []
        self._document, self._origin = dict(document.meta), dict(document.origin)
        aliases = find_aliases(document.leaves)
        self._several = {id(document.leaves[part].value) for part in aliases}  # values that stand in several places
        self._made: dict[int, tuple[Any, dict[str, Any]]] = {}  # of these, what is pickled and noted

    def attached(self, root: Any) -> Any:
        """The structure with the _metadata of its state dicts, if reading will give back the very same text."""
        text = self._origin.get(METADATA)
        done: list[Any] = []
        made = _attached(root, (), _attributes(text), done)
        if not done or _json.dump(done) != text:
            return root
        del self._origin[METADATA]
        return made

    def notes(self) -> bytes:
        top: dict[str, Any] = {}
        if self._framework != "torch":
            top["framework"] = self._framework
        if self._document:
            top["document"] = _sorted(self._document)
        if self._origin:
            top["document_origin"] = _sorted(self._origin)
        if self._notes:
            top["leaves"] = self._notes
        utf8(json.dumps(top, ensure_ascii=False))  # half a character could be written, but not read
        return _json.dump(top).encode() if top else b""

    def leaf(self, leaf: Leaf) -> Any:
        """Something that can be pickled in the place of a leaf."""
        if len(leaf.path) > LIMITS.max_depth:
            raise UnsupportedError(f"nested deeper than {LIMITS.max_depth} levels")
        if leaf.kind not in ("", "numpy"):
            made, said = self._scalar(leaf)
        elif leaf.kind or id(leaf.value) not in self._several:
            made, said = self._value(leaf)
        else:
            made, said = self._shared_value(leaf)
        if said:
            self._notes.append({"path": [list(step) for step in leaf.path], **said})
        return made

    def _shared_value(self, leaf: Leaf) -> tuple[Any, dict[str, Any]]:
        """The same for each leaf of a value: one object of the pickle."""
        number = id(leaf.value)
        if number not in self._made:
            key = f"= {len(self._made)}"
            made, said = self._value(leaf)
            self._made[number] = Write(lambda pickler: pickler.shared(key, made)), said
        return self._made[number]

    def _value(self, leaf: Leaf) -> tuple[Any, dict[str, Any]]:
        """What is pickled of a tensor, and the note on it."""
        value = leaf.read()
        note: dict[str, Any] = {}
        if leaf.kind:
            note["kind"] = leaf.kind
        if value.name is not None:
            note["name"] = value.name
        native: Any = self._native(value, note)
        return (native, note) if native is not None else self._parts(leaf)

    def _scalar(self, leaf: Leaf) -> tuple[Any, dict[str, Any]]:
        """A Python value is itself; only its name, its metadata and endless integers need notes."""
        made = restore(leaf, lambda value: value.load())
        note: dict[str, Any] = {}
        origin = dict(leaf.value.origin)
        # An empty state_dict: its metadata are those of the whole.
        if made == {} and not leaf.path and METADATA in origin:
            self._origin[METADATA] = origin.pop(METADATA)
        if leaf.value.meta:
            note["meta"] = _sorted(leaf.value.meta)
        if origin:
            note["origin"] = _sorted(origin)
        if leaf.value.name is not None:
            note["name"] = leaf.value.name
        integers = [made] if type(made) is int else made if leaf.kind.endswith("[int]") else []
        if any(integer_bytes(number) > MAX_INTEGER_BYTES for number in integers):
            note["kind"] = leaf.kind
            made = str(made) if type(made) is int else type(made)(map(str, made))
        if "bytearray" in leaf.kind:
            note["kind"] = leaf.kind
            made = bytes(made) if type(made) is bytearray else type(made)(map(bytes, made))
        return made, note

    # ---- tensors ----

    def _native(self, value: Any, note: dict[str, Any]) -> Write | None:
        """The value as torch has it, and a note where reading it would give other metadata."""
        if isinstance(value, Strings):
            return None
        origin = value.origin
        wrap = origin.get("type") if origin.get("framework") == "torch" else None
        grad = origin.get("requires_grad") == "true"
        device = origin.get("device", "")
        placed = origin.get("framework") == "torch" and device != "meta" and _DEVICE.fullmatch(device)
        where = device if placed else "cpu"
        expected = {"framework": self._framework} if self._framework else {}
        if where != "cpu":
            expected["device"] = where
        if isinstance(value, Tensor):
            made = self._tensor(value, where, grad and wrap != "Parameter", expected)
        elif isinstance(value, Sparse):
            made = self._sparse(value, where, grad and wrap != "Parameter", expected, note)
        else:
            made = self._nested(value, where, grad, expected)
        if made is None:
            return None
        if wrap in ("Parameter", "Buffer") and isinstance(value, Tensor | Sparse):
            inner = value.values if isinstance(value, Sparse) else value
            made = _wrapped(made, wrap, inner.dtype, origin, expected)  # type: ignore[union-attr]
        if value.meta:
            note["meta"] = _sorted(value.meta)
        if dict(origin) != expected:
            note["origin"] = _sorted(origin)
        return made[0]

    def _tensor(self, value: Tensor, where: str, grad: bool, expected: dict[str, str]) -> _Made | None:
        """The tensor, and the call that rebuilds it; `expected` becomes its metadata."""
        grad = grad and value.dtype in _WITH_GRADIENT
        if value.dtype in _QUANTIZED:
            call = self._quantized(value, where, expected)
        elif value.dtype == _PAIRS:
            call = self._pairs(value, where)
        elif value.dtype in _PLAIN:
            call = self._plain(value, where, grad)
        else:
            call = None
        if call is None:
            return None
        if grad:
            expected["requires_grad"] = "true"
        return _calling(*call), call

    def _plain(self, value: Tensor, where: str, grad: bool = False) -> _Call:
        return self._rebuild(value.dtype, value.shape, value.data, where, grad)

    def _rebuild(self, dtype: str, shape: tuple[int, ...], data: Buffer, where: str, grad: bool) -> _Call:
        place = (0, _integers(shape), _integers(strides(shape)))
        if dtype in STORAGE_OF:
            return "_rebuild_tensor_v2", (self._storage(dtype, data, where), *place, grad, _HOOKS)
        name = Write(lambda pickler: pickler.name("torch", str(dtypes.get(dtype).torch)))
        return _V3, (self._storage("", data, where), *place, False, _HOOKS, name)

    def _storage(self, dtype: str, data: Buffer, where: str) -> Write:
        key = str(len(self.storages))
        self.storages.append(data)
        count = len(memoryview(data)) // (dtypes.get(dtype).itemsize if dtype else 1)

        def write(pickler: Pickler) -> None:
            pickler.put(b"(")
            pickler.word("storage")
            pickler.name(*(("torch", STORAGE_OF[dtype]) if dtype else ("torch.storage", "UntypedStorage")))
            pickler.value(key)
            pickler.word(where)
            pickler.value(count)
            pickler.put(b"tQ")

        return Write(write)

    def _pairs(self, value: Tensor, where: str) -> _Call | None:
        """torch packs two values into a byte, so their last axis must be even."""
        if not value.shape or value.shape[-1] % 2:
            return None
        flat = np.frombuffer(value.data, np.uint8)
        shape = (*value.shape[:-1], value.shape[-1] // 2)
        return self._rebuild(_PAIRS, shape, np.asarray(flat[0::2] | flat[1::2] << 4, np.uint8), where, False)

    def _quantized(self, value: Tensor, where: str, expected: dict[str, str]) -> _Call | None:
        found = quantization(value)
        if found is None:
            return None
        scale, zero, axis = found
        kind = "per_tensor_affine" if axis is None else "per_channel_affine"
        scheme: list[Any] = [Write(lambda pickler: pickler.name("torch", kind))]
        if axis is None:
            scheme += [scale, zero]
        else:
            for numbers, dtype in ((scale, "float64"), (zero, "int64")):
                array = np.array(numbers, dtype)
                scheme.append(_calling(*self._plain(Tensor(dtype, array.shape, array), where)))
            scheme.append(axis)
        expected |= {
            key: value.origin[key] for key in ("torch.scale", "torch.zero_point", "torch.axis") if key in value.origin
        }
        place = (0, _integers(value.shape), _integers(strides(value.shape)), tuple(scheme), False, _HOOKS)
        return "_rebuild_qtensor", (self._storage(value.dtype, value.data, where), *place)

    # ---- sparse and ragged ----

    def _sparse(
        self, value: Sparse, where: str, grad: bool, expected: dict[str, str], note: dict[str, Any]
    ) -> _Made | None:
        if not isinstance(value.values, Tensor) or value.values.dtype not in _PLAIN or value.values.meta:
            return None
        index = list(value.parts)
        layout = next((name for name, ours in LAYOUTS.items() if ours == value.layout), None)
        if layout is None or (value.layout != "coo" and not in_order(value)):
            return None
        coalesced: tuple[Any, ...] = ()
        if value.layout == "coo":
            if index[0].dtype == np.int32:
                note["index"] = "int32"
            coalesced = (value.origin.get("torch.coalesced") == "true" and is_coalesced(value),)
            if coalesced[0]:
                expected["torch.coalesced"] = "true"
            index = [np.ascontiguousarray(index[0].T, np.int64)]
        parts = [self._indices(part, where) for part in index]
        # torch keeps it with the values of compressed layouts, and nowhere for coordinates.
        grad = grad and value.layout != "coo" and value.values.dtype in _DIFFERENTIABLE
        if grad:
            expected["requires_grad"] = "true"
        held = _calling(*self._plain(value.values, where, grad))
        size = Write(lambda pickler: pickler.call("torch", "Size", value.shape))
        kind = Write(lambda pickler: pickler.call("torch.serialization", "_get_layout", layout))
        call = "_rebuild_sparse_tensor", (kind, (*parts, held, size, *coalesced))
        return _calling(*call), call

    def _indices(self, part: Array, where: str) -> Write:
        array = np.ascontiguousarray(part, part.dtype.newbyteorder("<"))
        return _calling(*self._plain(Tensor(array.dtype.name, part.shape, array.reshape(-1)), where))

    def _nested(self, value: Ragged, where: str, grad: bool, expected: dict[str, str]) -> _Made | None:
        """Rows with shapes, if they came from torch; its jagged layout can't be read without further imports."""
        if (
            value.shapes is None
            or value.origin.get("torch.layout") != "strided"
            or not isinstance(value.values, Tensor)
        ):
            return None
        if value.values.dtype not in _PLAIN or value.values.origin or not len(value) or value.shapes.dtype != np.int64:
            return None
        steps = np.array([strides(tuple(shape)) for shape in value.shapes.tolist()], np.int64)
        index = (value.shapes, steps.reshape(value.shapes.shape), value.splits[0][:-1].astype(np.int64))
        if value.splits[0].dtype != np.int64:
            return None
        parts = [self._indices(part, where) for part in index]
        grad = grad and value.values.dtype in _DIFFERENTIABLE
        if grad:
            expected["requires_grad"] = "true"
        call = "_rebuild_nested_tensor", (_calling(*self._plain(value.values, where, grad)), *parts)
        expected["torch.layout"] = "strided"
        return _calling(*call), call

    def _parts(self, leaf: Leaf) -> tuple[Any, dict[str, Any]]:
        """What torch has no form for: dense parts of it, and a note how they go together."""
        value = leaf.read()
        alone = isinstance(value, Strings)
        parts = _parts.pack(Document([leaf._replace(value=value, path=())]), lambda x: _holds(x, alone))
        note: dict[str, Any] = {"parts": {part.name: dict(part.note) for part in parts}}
        if isinstance(value, Strings):
            note["shape"] = list(value.shape)
            return nested_lists(value.items(), value.shape), note
        made = {part.name: self._carried(part.value) for part in parts}
        return (next(iter(made.values())) if len(made) == 1 else made), note

    def _carried(self, value: Any) -> Write:
        """A dense part, in a type of the same width where torch lacks its own."""
        assert isinstance(value, Tensor)
        if value.dtype in _PLAIN:
            return _calling(*self._plain(value, "cpu"))
        width = dtypes.get(value.dtype).itemsize
        return _calling(*self._rebuild(_CARRIERS[width], value.shape, value.data, "cpu", False))


def _attributes(text: str | None) -> dict[Path, Any]:
    """The _metadata of state dicts by their paths, as reading gives it; nothing for text of another form."""
    try:
        pairs = json.loads(text or "[]")
        found = {tuple((kind, key) for kind, key in path): metadata for path, metadata in pairs}
        sound = all(_is_plain(metadata) for metadata in found.values())
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if sound else {}


def _is_plain(metadata: Any) -> bool:
    return type(metadata) is dict and all(
        type(entry) is dict and all(type(item) in (str, int, bool, type(None)) for item in entry.values())
        for entry in metadata.values()
    )


def _attached(node: Any, path: Path, wanted: Mapping[Path, Any], done: list[Any]) -> Any:
    """The structure with OrderedDicts in place of the dicts that have _metadata; `done` lists them."""
    if type(node) is dict:
        metadata = wanted.get(path)
        if metadata is not None:
            done.append([[list(step) for step in path], metadata])
        steps = (("key" if type(key) is str else "number", key) for key in node)
        made = {step[1]: _attached(node[step[1]], (*path, step), wanted, done) for step in steps}
        return made if metadata is None else _state_dict(made, metadata)
    if type(node) in (list, tuple):
        kind = type(node).__name__
        return type(node)(_attached(item, (*path, (kind, n)), wanted, done) for n, item in enumerate(node))
    return node


def _state_dict(items: dict[Any, Any], metadata: dict[str, Any]) -> Write:
    def write(pickler: Pickler) -> None:
        pickler.call("collections", "OrderedDict")
        pickler.items(items)
        pickler.value({"_metadata": Write(versions)})
        pickler.put(b"b")

    def versions(pickler: Pickler) -> None:
        pickler.call("collections", "OrderedDict")
        pickler.items(metadata)

    return Write(write)


def _calling(name: str, args: tuple[Any, ...]) -> Write:
    return Write(lambda pickler: pickler.call("torch._utils", name, *args))


def _wrapped(made: _Made, wrap: str, dtype: str, origin: Mapping[str, str], expected: dict[str, str]) -> _Made:
    """A Parameter or a Buffer of a tensor."""
    inner, (name, args) = made
    expected["type"] = wrap
    if wrap == "Parameter":
        able = dtype.startswith(("float", "bfloat", "complex")) and dtype != _PAIRS
        grad = able and origin.get("requires_grad") == "true"
        if grad:
            expected["requires_grad"] = "true"
        return _calling("_rebuild_parameter", (inner, grad, _HOOKS)), ("", ())
    kept = origin.get("torch.persistent") != "false"
    if not kept:
        expected["torch.persistent"] = "false"
    rebuild = Write(lambda pickler: pickler.name("torch._utils", name))
    plain = Write(lambda pickler: pickler.name("torch", "Tensor"))
    state = {"persistent": kept, "_is_buffer": True}
    return Write(lambda pickler: pickler.call("torch._tensor", "_rebuild_from_type_v2", rebuild, plain, args, state)), (
        "",
        (),
    )


_HOOKS = Write(lambda pickler: pickler.call("collections", "OrderedDict"))


def _integers(numbers: tuple[int, ...]) -> Write:
    return Write(lambda pickler: pickler.integers(numbers))


def _sorted(meta: Mapping[str, str]) -> dict[str, str]:
    return {key: meta[key] for key in sorted(meta)}


def _holds(value: Dense, strings: bool) -> bool:
    return strings if isinstance(value, Strings) else value.dtype in _PLAIN
