"""Python structures: nested dicts, lists and tuples of tensors, and plain scalars.

A structure becomes a flat list of leaves. Each leaf knows its path from the root, so
structures need no header, can be salvaged in part, and come back as they were.
A path step is a pair:

    ("key", "w")    the value of a string key of a dict     ("list", 0)   item 0 of a list
    ("number", 3)   the value of an integer key of a dict   ("tuple", 0)  item 0 of a tuple

A leaf's `kind` tells what its value was when it was no tensor: "int", "float",
"complex", "bool", "str", "bytes", "none", "numpy" (a NumPy scalar), "list[float]" (a
list of nothing but floats, stored as one tensor), or "dict", "list", "tuple" (empty).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tensorbytes.errors import LIMITS, CorruptError, UnsupportedError, UsageError
from tensorbytes.tensor import Strings, Tensor, Value

Step: TypeAlias = tuple[str, str | int]
Path: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of a structure. `check` reads what lazy decoding left unread, and may raise."""

    value: Value
    path: Path = ()
    kind: str = ""
    check: Callable[[], None] | None = None

    @property
    def name(self) -> str | None:
        return path_name(self.path) if self.value.name is None else self.value.name


@dataclass(frozen=True, slots=True)
class Document:
    """One object: its leaves in order, metadata of the whole, its number in a stream (from 1)."""

    leaves: list[Leaf]
    meta: Mapping[str, str] = field(default_factory=dict)
    item: int = 0


def path_name(path: Path) -> str | None:
    """The name under which a leaf is listed: its key, or its keys joined by slashes."""
    return "/".join(str(step) for _, step in path) if path else None


def _numbers(dtype: str) -> Callable[[list[Any]], Value]:
    def build(items: list[Any]) -> Value:
        return Tensor(dtype, (len(items),), np.array(items, dtype).view(np.uint8))

    return build


def _integers(items: list[int]) -> Value:
    try:
        return _numbers("int64")(items)
    except OverflowError:  # Python's integers have no limit: as text they keep every digit
        if any(abs(item) >= 10**4300 for item in items):
            raise UnsupportedError("an integer of over 4300 digits: store it as bytes") from None
        return Strings.from_items(map(str, items), (len(items),), "utf-8")


_SCALARS: dict[type, Callable[[list[Any]], Value]] = {
    bool: _numbers("bool"),
    int: _integers,
    float: _numbers("float64"),
    complex: _numbers("complex128"),
    str: lambda items: Strings.from_items(items, (len(items),), "utf-8"),
    bytes: lambda items: Strings.from_items(items, (len(items),), "bytes"),
}
_BY_NAME = {kind.__name__: kind for kind in _SCALARS}
_EMPTY = Tensor("bool", (0,), b"")
_CONTAINERS: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple}


def flatten(obj: Any, to_value: Callable[[Any], Value | None]) -> list[Leaf]:
    """The leaves of a structure; `to_value` gives None for what is no tensor."""
    leaves: list[Leaf] = []
    _flatten(obj, (), to_value, leaves)
    return leaves


def _flatten(obj: Any, path: Path, to_value: Callable[[Any], Value | None], out: list[Leaf]) -> None:
    if len(path) > LIMITS.max_depth:
        raise UnsupportedError(f"nested deeper than {LIMITS.max_depth} levels, or containing itself")
    if type(obj) in _SCALARS:
        out.append(Leaf(_scalar(obj), path, type(obj).__name__))
    elif obj is None:
        out.append(Leaf(_EMPTY, path, "none"))
    elif type(obj) in (list, tuple):
        _flatten_sequence(obj, path, to_value, out)
    elif (value := to_value(obj)) is not None:
        out.append(Leaf(value, path, "numpy" if isinstance(obj, np.generic) else ""))
    elif isinstance(obj, Mapping):
        if not obj:
            out.append(Leaf(_EMPTY, path, "dict"))
        for key, item in obj.items():
            _flatten(item, (*path, _key_step(key)), to_value, out)
    else:
        raise UnsupportedError(_refusal(obj, path))


def _flatten_sequence(obj: Any, path: Path, to_value: Callable[[Any], Value | None], out: list[Leaf]) -> None:
    kind = type(obj).__name__
    if not obj:
        out.append(Leaf(_EMPTY, path, kind))
        return
    first = type(obj[0])
    if first in _SCALARS and all(type(item) is first for item in obj):
        out.append(Leaf(_SCALARS[first](list(obj)), path, f"{kind}[{first.__name__}]"))
        return
    for index, item in enumerate(obj):
        _flatten(item, (*path, (kind, index)), to_value, out)


def _scalar(obj: Any) -> Value:
    value = _SCALARS[type(obj)]([obj])
    if isinstance(value, Strings):
        return Strings((), value.offsets, value.data, value.encoding)
    assert isinstance(value, Tensor)
    return Tensor(value.dtype, (), value.data)


def _key_step(key: Any) -> Step:
    if type(key) is str:
        return ("key", key)
    if type(key) is int and -(1 << 63) <= key < 1 << 63:
        return ("number", key)
    raise UnsupportedError(f"a dict key must be a string or a 64-bit integer, got {key!r} ({type(key).__name__})")


def _refusal(obj: Any, path: Path) -> str:
    where = f" at {path_name(path)!r}" if path else ""
    if isinstance(obj, tuple | list):
        return (
            f"{type(obj).__qualname__}{where} would come back as a plain {type(obj).__mro__[-2].__name__}: convert it"
        )
    what = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if hasattr(obj, "__next__"):
        return f"{what}{where} is an iterator: write its items one by one, with open(path, 'w') as f: f.write(item)"
    return (
        f"{what}{where} is neither a tensor nor a plain Python value; expected a tensor of numpy, torch, "
        "tensorflow, jax or scipy, a number, text, bytes or None, or a dict, list or tuple of them"
    )


def restore(leaf: Leaf, convert: Callable[[Value], Any]) -> Any:
    """What a leaf was: a Python value by its kind, or the tensor that `convert` makes."""
    kind, value = leaf.kind, leaf.value
    if not kind:
        return convert(value)
    if kind == "none":
        return None
    if kind in _CONTAINERS:
        return _CONTAINERS[kind]()
    if kind == "numpy":
        made = convert(value)
        return made[()] if isinstance(made, np.ndarray) and made.ndim == 0 else made
    container, _, rest = kind.partition("[")
    if rest.endswith("]") and container in ("list", "tuple"):
        return _CONTAINERS[container](_items(value, rest[:-1], 1))
    return _items(value, kind, 0)[0]


def _items(value: Value, name: str, rank: int) -> list[Any]:
    wanted = _BY_NAME.get(name)
    items: list[Any] | None = None
    if isinstance(value, Strings) and len(value.shape) == rank:
        items = value.items()
        if wanted is int and all(_INTEGER.fullmatch(item) for item in items):
            items = [int(item) for item in items]
    elif isinstance(value, Tensor) and len(value.shape) == rank and value.dtype in _NUMBER_TYPES:
        items = value.numpy().reshape(-1).tolist()
    if wanted is None or items is None or not all(type(item) is wanted for item in items):
        raise CorruptError(f"a value marked as Python {name!r} holds something else", at=0)
    return items


_NUMBER_TYPES = ("bool", "int64", "float64", "complex128")
# As many digits as Python itself converts without protest.
_INTEGER = re.compile("-?[0-9]{1,4300}")


class _Node:
    """A container under construction."""

    __slots__ = ("children", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.children: dict[str | int, Any] = {}

    def finish(self) -> Any:
        items = {key: child.finish() if isinstance(child, _Node) else child for key, child in self.children.items()}
        return items if self.kind == "dict" else _CONTAINERS[self.kind](items.values())


def unflatten(leaves: list[Leaf], convert: Callable[[Value], Any]) -> Any:
    """The structure that `flatten` took apart."""
    if len(leaves) == 1 and not leaves[0].path:
        return restore(leaves[0], convert)
    root: _Node | None = None
    for leaf in leaves:
        if not leaf.path:
            raise CorruptError("a value without a place stands among the parts of a structure", at=0)
        if root is None:
            root = _Node(_container(leaf.path[0]))
        _insert(root, leaf, restore(leaf, convert))
    if root is None:
        raise UsageError("a structure without leaves")
    return root.finish()


def _container(step: Step) -> str:
    return step[0] if step[0] in ("list", "tuple") else "dict"


def _insert(node: _Node, leaf: Leaf, made: Any) -> None:
    for depth, step in enumerate(leaf.path):
        if node.kind != _container(step):
            raise CorruptError(f"{path_name(leaf.path)!r} takes a {node.kind} for a {_container(step)}", at=0)
        key, last = step[1], depth + 1 == len(leaf.path)
        child = node.children.get(key)
        if child is None and key not in node.children:
            if node.kind != "dict" and key != len(node.children):
                raise CorruptError(f"{path_name(leaf.path)!r} follows item {len(node.children) - 1}", at=0)
            node.children[key] = child = made if last else _Node(_container(leaf.path[depth + 1]))
        elif last or not isinstance(child, _Node):
            raise CorruptError(f"{path_name(leaf.path)!r} is stored twice", at=0)
        node = child
